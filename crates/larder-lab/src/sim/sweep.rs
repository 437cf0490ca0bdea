//! `larder-lab sim sweep`: one trace, caches of many sizes, RAM budgets and options.
//!
//! In order: (1) the grid is made and checked. (2) The file of the sweep tells the earlier replays.
//! (3) The rest is checked, in chunks of each size. (4) The trace is read once for every few of
//! those caches, on all processors, and their results are noted. (5) All of the grid is reported.
//!
//! Invariants: a noted replay is not done again. The report has the order of the grid, independent
//! of the replays' times. A sweep that is refused has replayed nothing.
//!
//! It does not replay; `replay.rs` does.

use crate::{args::SweepArgs, trace::watch::Watch};
use larder::{
    error::{Failure, Outcome},
    size::exact,
};
use larder_sim::{
    report::{Row, table::table},
    setup::{Options, Setup, drive::DriveSetup},
    survey::Survey,
};
use serde_json::{Value, json};
use std::{collections::HashMap, io::Read};
use twox_hash::XxHash3_64;

use super::{
    chart,
    compare::{designs, possible, side_by_side},
    journal::Journal,
    outputs::Outputs,
    replay::{Bounds, Pass, check, check_common, common, fitted, processors, survey},
    source::Source,
    spec::{Change, DesignSpec, Parameter, Warmup, policy},
    ssd::{check_metric, drives},
    time,
};

/// The least number of caches that share one pass over the trace, if there are as many.
const POINTS_PER_PASS: usize = 8;
/// Bytes at the beginning of a trace that tell it from others.
const HEAD_BYTES: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &SweepArgs) -> Outcome {
    check_metric(&args.drive, args.report.metric)?;
    time::check(&args.time, Some(args.report.metric))?;
    let watch = Watch::new()?;
    let outputs = Outputs::of(&args.report)?;
    let rows = replay(args, &watch);
    watch.finish();
    let rows = rows?;
    outputs.write_rows(&rows, || chart::of_sweep(&rows, args.report.metric), || table(&rows))
}

fn replay(args: &SweepArgs, watch: &Watch) -> Outcome<Vec<Row>> {
    // (1)
    let designs = designs(&args.design);
    let mut options = common(&args.cache, args.ram.first().copied());
    check_common(&options, &designs)?;
    options.ram_bytes = None;
    let source = Source::open(&args.input, args.cache.chunk, watch)?;
    let mut grid = grid(args, &designs, &options, source.chunk_bytes())?;
    // (2)
    let (mut journal, done) = Journal::open(&args.output, &head(args, &source)?)?;
    let mut done: HashMap<String, Row> = done.into_iter().collect();
    // (3)
    let mut chunks: Vec<u32> = grid.iter().map(|setup| setup.chunk_bytes).collect();
    chunks.sort_unstable();
    chunks.dedup();
    let mut works = Vec::new();
    for &chunk in &chunks {
        let source = Source::open(&args.input, Some(chunk), watch)?;
        let known = put_side_by_side(args, &source, &mut grid)?;
        let of_chunk = grid.iter().filter(|setup| setup.chunk_bytes == chunk && !done.contains_key(&key(setup)));
        works.push(work(args, source, known, of_chunk.copied().collect())?);
    }
    let is_left = works.iter().any(|work| !work.setups.is_empty());
    if let Some(refusal) = works.iter_mut().find_map(|work| work.refusal.take())
        && !is_left
        && done.is_empty()
    {
        return Err(refusal);
    }
    // (4)
    for work in &works {
        replay_work(args, work, &mut journal, &mut done)?;
    }
    // (5)
    Ok(grid.iter().filter_map(|setup| done.get(&key(setup)).cloned()).collect())
}

/// The replays in chunks of one size.
struct Work<'a> {
    source: Source<'a>,
    setups: Vec<Setup>,
    survey: Option<Survey>,
    /// The origin's size, if time is requested.
    origin_bytes: Option<u64>,
    /// The reason, if no cache of several can be.
    refusal: Option<Failure>,
}

/// Gives the drives beneath each flash equal blocks, in chunks of this source's size.
///
/// Returns the survey of the trace, if one was needed.
fn put_side_by_side(args: &SweepArgs, source: &Source<'_>, grid: &mut [Setup]) -> Outcome<Option<Survey>> {
    if args.drive.ssd.is_none() {
        return Ok(None);
    }
    let known = survey(source, &args.input, grid)?;
    for &flash in &args.flash {
        let is_here = |setup: &&mut Setup| setup.chunk_bytes == source.chunk_bytes() && setup.flash == flash;
        let mut of_flash: Vec<&mut Setup> = grid.iter_mut().filter(is_here).collect();
        let equal = side_by_side(of_flash.iter().map(|setup| **setup).collect(), known.as_ref());
        of_flash.iter_mut().zip(equal).for_each(|(setup, equal)| **setup = equal);
    }
    Ok(known)
}

/// Returns the possible setups; all, if designs are named.
fn work<'a>(args: &SweepArgs, source: Source<'a>, known: Option<Survey>, missing: Vec<Setup>) -> Outcome<Work<'a>> {
    let survey = if known.is_some() { known } else { survey(&source, &args.input, &missing)? };
    let mut refusal = None;
    let setups = if args.design.is_empty() {
        possible(missing, survey.as_ref()).unwrap_or_else(|failure| {
            refusal = Some(failure);
            Vec::new()
        })
    } else {
        check(&missing, survey.as_ref())?;
        missing
    };
    let pass = Pass { source: &source, warmup: args.input.warmup, survey, words: String::new(), threads: 1 };
    let origin_bytes = if setups.is_empty() { None } else { time::origin_bytes(&args.time, &pass, &setups)? };
    Ok(Work { source, setups, survey, origin_bytes, refusal })
}

/// Replays the work, and notes its results.
fn replay_work(args: &SweepArgs, work: &Work<'_>, journal: &mut Journal, done: &mut HashMap<String, Row>) -> Outcome {
    let Work { source, setups: missing, survey, origin_bytes, .. } = work;
    let threads = args.threads.map_or_else(processors, usize::from);
    let per_pass = threads.max(POINTS_PER_PASS);
    let passes = missing.len().div_ceil(per_pass);
    for (at, some) in missing.chunks(per_pass).enumerate() {
        let words = format!(
            "pass {} of {passes}, {} caches, chunks of {}",
            at + 1,
            some.len(),
            exact(source.chunk_bytes().into())
        );
        let pass = Pass { source, warmup: args.input.warmup, survey: *survey, words, threads };
        let timed = |mut rows: Vec<Row>| {
            time::add(&args.time, &pass, some, *origin_bytes, &mut rows)?;
            Ok(rows)
        };
        let rows = pass.rows(some, Bounds::of(args.report.bound)).and_then(timed);
        let rows = rows.map_err(|failure| if journal.has_replays() { kept(failure, args) } else { failure })?;
        for (setup, row) in some.iter().zip(rows) {
            journal.add(&key(setup), &row)?;
            done.insert(key(setup), row);
        }
    }
    Ok(())
}

/// Adds to a signal's failure that the sweep can be continued.
fn kept(failure: Failure, args: &SweepArgs) -> Failure {
    match failure {
        Failure::Failed(text) if text.contains("ended by a signal") => {
            let file = args.output.display();
            Failure::Failed(format!("ended by a signal; the replay so far is in {file}, and the same command goes on"))
        }
        other => other,
    }
}

/// Returns all caches: by parameter, then by flash, RAM budget, design and translation layer.
fn grid(args: &SweepArgs, designs: &[DesignSpec], options: &Options, chunk_bytes: u32) -> Outcome<Vec<Setup>> {
    let rams: Vec<Option<u64>> =
        if args.ram.is_empty() { vec![None] } else { args.ram.iter().copied().map(Some).collect() };
    let drives = drives(&args.drive);
    let mut grid: Vec<Setup> = Vec::new();
    for changes in combinations(&args.vary) {
        for &flash in &args.flash {
            for &ram_bytes in &rams {
                for (spec, &drive) in designs.iter().flat_map(|spec| drives.iter().map(move |drive| (spec, drive))) {
                    let options = Options { ram_bytes, drive, ..*options };
                    let mut asked =
                        Setup { design: spec.design, chunk_bytes, flash, policy: policy(args.cache.mode), options };
                    changes.iter().for_each(|change| change.apply(&mut asked));
                    // A parameter that a design lacks makes no cache of its own.
                    let setup = fitted(spec, asked);
                    if !grid.contains(&setup) {
                        grid.push(setup);
                    }
                }
            }
        }
    }
    for parameter in &args.vary {
        check_parameter(parameter, designs)?;
    }
    Ok(grid)
}

/// Checks that some design has it.
fn check_parameter(parameter: &Parameter, designs: &[DesignSpec]) -> Outcome {
    let is_general = matches!(parameter.name.as_str(), "chunk" | "mode");
    let options = |spec: &DesignSpec| spec.design.options.iter().chain(spec.design.paper_options);
    let has = |spec: &DesignSpec| options(spec).any(|id| id.name() == parameter.name);
    if is_general || designs.iter().any(has) {
        return Ok(());
    }
    let names: Vec<&str> = designs.iter().map(|spec| spec.design.name).collect();
    let why = format!("--vary {}: none of {} has such an option", parameter.name, names.join(", "));
    Err(Failure::Usage(why))
}

/// Returns each value of each parameter with each of the others.
fn combinations(parameters: &[Parameter]) -> Vec<Vec<Change>> {
    let mut all = vec![Vec::new()];
    for parameter in parameters {
        let with = |before: &Vec<Change>| {
            let before = before.clone();
            parameter.values.iter().map(move |(_, change)| before.iter().copied().chain([*change]).collect())
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// Returns a replay's key within a sweep.
///
/// It includes the blocks that a drive has because of its neighbours: with other neighbours it is
/// another drive.
fn key(setup: &Setup) -> String {
    let key = format!("{} {} {} {}", setup.label(), setup.flash, setup.policy.name(), setup.chunk_bytes);
    match setup.options.drive.and_then(|drive| drive.shape) {
        Some(shape) => format!("{key} {shape:?}"),
        None => key,
    }
}

/// Returns the head that tells a sweep from others: the common options of its replays.
fn head(args: &SweepArgs, source: &Source<'_>) -> Outcome<Value> {
    let input = &args.input;
    let shown = input.file.trace.display();
    let wrong = |error: std::io::Error| {
        Failure::failed(format_args!("{shown} cannot be read: {}", larder::error::system_reason(&error)))
    };
    let file = std::fs::File::open(&input.file.trace).map_err(wrong)?;
    let bytes = file.metadata().map_err(wrong)?.len();
    let mut beginning = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut beginning).map_err(wrong)?;
    let warmup = match input.warmup {
        Warmup::Requests(requests) => requests.to_string(),
        Warmup::Percent(percent) => format!("{percent}%"),
    };
    // Rows on drives, rows with time and rows without have other keys, and so other files.
    let kind = match (args.time.origin, args.drive.ssd) {
        (Some(_), _) => 4,
        (None, Some(_)) => 3,
        (None, None) => 1,
    };
    let mut head = json!({
        "larder_sweep": kind,
        // Older files have the papers' accounting of some designs under the same names.
        "accounting": "named",
        "trace": input.file.trace.file_name().map(|name| name.to_string_lossy()),
        "trace_bytes": bytes,
        "trace_beginning_xxh3": format!("{:016x}", XxHash3_64::oneshot(&beginning)),
        "format": source.format().name(),
        "unit_bytes": input.file.unit,
        "skip_bad": input.file.skip_bad,
        "made_content": input.file.content.map(|content| format!("{content:?}")),
        "unknown": format!("{:?}", input.unknown).to_lowercase(),
        "warmup": warmup,
        "bound": format!("{:?}", Bounds::of(args.report.bound)).to_lowercase(),
    });
    if let (Some(columns), Some(head)) = (input.file.how.columns, head.as_object_mut()) {
        head.insert("columns".to_owned(), format!("{columns}").into());
    }
    // Beside the name of an object with many numbers stands a digest of all of them.
    let digest = |numbers: String| Value::from(format!("{:016x}", XxHash3_64::oneshot(numbers.as_bytes())));
    if let (Some(drive), Some(head)) = (args.drive.ssd, head.as_object_mut()) {
        // The name of a setup has the translation layer.
        let DriveSetup { profile, capacity, keeps_spare, .. } = drive;
        head.insert("ssd".to_owned(), profile.name.into());
        head.insert("ssd_numbers_xxh3".to_owned(), digest(format!("{profile:?} {capacity:?} {keeps_spare}")));
    }
    if let (Some(origin), Some(head)) = (args.time.origin, head.as_object_mut()) {
        head.insert("time_origin".to_owned(), origin.name.into());
        let numbers = format!("{:?} {:?}", origin.figures, time::pace(&args.time));
        head.insert("time_numbers_xxh3".to_owned(), digest(numbers));
    }
    Ok(head)
}
