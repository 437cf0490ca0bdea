//! `larder-lab sim compare`: one trace, several designs side by side.
//!
//! Invariants: a named design must work at the requested size. Without names, the designs that
//! cannot are left out, and a note says so.
//!
//! It does not vary sizes; `sweep` does.

use crate::{args::CompareArgs, trace::watch::Watch};
use larder::{
    error::Outcome,
    output,
    size::{exact, human},
};
use larder_sim::{
    report::{Row, table::table},
    setup::{FlashAmount, Options, REPLAY_DESIGNS, Setup, with_equal_blocks},
    survey::Survey,
};

use super::{
    chart,
    outputs::Outputs,
    replay::{Bounds, Pass, can_be, check, check_common, common, fitted, processors, refused, survey},
    source::Source,
    spec::{DesignSpec, policy},
    ssd::{check_metric, drives},
    time,
};

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &CompareArgs) -> Outcome {
    check_metric(&args.drive, args.output.metric)?;
    time::check(&args.time, Some(args.output.metric))?;
    let watch = Watch::new()?;
    let outputs = Outputs::of(&args.output)?;
    let rows = replay(args, &watch);
    watch.finish();
    let rows = rows?;
    let chart = || chart::of_designs(&rows, args.output.metric);
    outputs.write_rows(&rows, chart, || table(&rows))
}

/// Returns the named designs, or all.
pub fn designs(named: &[DesignSpec]) -> Vec<DesignSpec> {
    match named.is_empty() {
        true => REPLAY_DESIGNS.iter().map(|design| DesignSpec { design, changes: Vec::new() }).collect(),
        false => named.to_vec(),
    }
}

fn replay(args: &CompareArgs, watch: &Watch) -> Outcome<Vec<Row>> {
    let designs = designs(&args.design);
    let options = common(&args.cache, args.room.ram);
    check_common(&options, &designs)?;
    let source = Source::open(&args.input, args.cache.chunk, watch)?;
    let drives = drives(&args.drive);
    let of = |spec: &DesignSpec, drive| {
        let (policy, flash) = (policy(args.cache.mode), args.room.flash);
        let options = Options { drive, ..options };
        fitted(spec, Setup { design: spec.design, chunk_bytes: source.chunk_bytes(), flash, policy, options })
    };
    let setups: Vec<Setup> = designs.iter().flat_map(|spec| drives.iter().map(move |drive| of(spec, *drive))).collect();
    if !args.design.is_empty() {
        check(&setups, None)?;
    }
    let survey = survey(&source, &args.input, &setups)?;
    let setups = match args.design.is_empty() {
        true => possible(setups, survey.as_ref())?,
        false => setups,
    };
    let setups = side_by_side(setups, survey.as_ref());
    let words = "replaying".to_owned();
    let pass = Pass { source: &source, warmup: args.input.warmup, survey, words, threads: processors() };
    let origin_bytes = time::origin_bytes(&args.time, &pass, &setups)?;
    let mut rows = pass.rows(&setups, Bounds::of(args.output.bound))?;
    time::add(&args.time, &pass, &setups, origin_bytes, &mut rows)?;
    Ok(rows)
}

/// Gives the setups drives whose erasures can be compared.
///
/// It prints a note if some would have larger blocks by themselves, and if a buffer decides the
/// number of erasures.
pub fn side_by_side(mut setups: Vec<Setup>, survey: Option<&Survey>) -> Vec<Setup> {
    let working_set = survey.map_or(0, |survey| survey.working_set_chunks);
    if let Some(bytes) = with_equal_blocks(&mut setups, working_set) {
        let flash = setups.first().map_or_else(String::new, |setup| words(setup.flash));
        let bytes = exact(bytes);
        output::note(&format!(
            "note: the drives beneath {flash} all have blocks of {bytes}, so that erasures can be compared: one of them needs such blocks"
        ));
    }
    tell_buffers(&setups, survey);
    setups
}

/// Prints a note if the drive's buffer decides the erasures of these caches.
pub fn tell_buffers(setups: &[Setup], survey: Option<&Survey>) {
    let working_set = survey.map_or(0, |survey| survey.working_set_chunks);
    let on_drives = setups.iter().filter(|setup| setup.options.drive.is_some());
    // Caches in WEUs write whole units.
    let hosts = on_drives.filter_map(|setup| {
        let built = setup.build(working_set).ok().filter(|built| built.cache.flash_weu_bytes().is_none())?;
        Some((setup, built.drive?))
    });
    let decided: Vec<_> = hosts.filter(|(_, host)| host.buffer_decides()).collect();
    let Some((first, host)) = decided.first() else { return };
    let labels: Vec<String> = decided.iter().map(|(setup, _)| setup.label()).collect();
    let physical = host.ftl().array().geometry().physical_bytes();
    output::note(&format!(
        "note: {} on {}: parts of units of {} wait in the drive's buffer of {}, uncut for {} of flash: erasures are the buffer's doing; {}:buffer_bytes=SIZE sets it",
        labels.join(", "),
        words(first.flash),
        human(host.unit_bytes()),
        human(host.profile().buffer_bytes),
        human(physical),
        host.profile().name
    ));
}

/// Returns a flash in people's form.
fn words(flash: FlashAmount) -> String {
    match flash {
        FlashAmount::Bytes(bytes) => exact(bytes),
        other => other.to_string(),
    }
}

/// Returns the setups with a possible cache; prints a note for each other.
///
/// # Errors
/// A sentence, if none is left.
pub fn possible(setups: Vec<Setup>, survey: Option<&Survey>) -> Outcome<Vec<Setup>> {
    let mut left = Vec::new();
    let (mut first, mut notes) = (None, Vec::new());
    for setup in setups {
        match can_be(&setup, survey) {
            Ok(()) => left.push(setup),
            Err(sentence) => {
                let Options { ram_bytes, drive, .. } = setup.options;
                let options = Options { ram_bytes, drive, ..Options::default() };
                let label = Setup { options, ..setup }.label();
                notes.push(format!("note: {label} on {} is left out: {sentence}", words(setup.flash)));
                first.get_or_insert_with(|| refused(&setup, &sentence));
            }
        }
    }
    match first {
        // One sentence is enough for a command that does nothing.
        Some(failure) if left.is_empty() => Err(failure),
        _ => {
            notes.iter().for_each(|note| output::note(note));
            Ok(left)
        }
    }
}
