//! `larder sim sweep`: one trace, caches of many sizes, RAM budgets and options.
//!
//! In order: (1) the grid is made and checked; (2) the file of the sweep says what was done before; (3) the trace is read
//! once for every few of the caches that are left, on all processors, and what came of them is noted; (4) all of the grid
//! is reported.
//!
//! Invariants: a replay that was noted is not done again. What is reported is in the order of the grid, whenever it was
//! done.
//!
//! What it does not do: replay; `replay.rs` does.

use crate::{
    args::SweepArgs,
    error::{Failure, Outcome},
    size::exact,
    trace::watch::Watch,
};
use larder_sim::{
    report::{Row, table::table},
    setup::{Options, Setup},
};
use serde_json::{Value, json};
use std::{collections::HashMap, io::Read};
use twox_hash::XxHash3_64;

use super::{
    chart,
    compare::{designs, possible},
    journal::Journal,
    outputs::Outputs,
    replay::{Bounds, Pass, check, check_common, common, fitted, processors, survey},
    source::Source,
    spec::{Change, DesignSpec, Parameter, Warmup, policy},
};

/// Caches that a pass over the trace feeds at least, where there are as many: reading is shared by them.
const POINTS_PER_PASS: usize = 8;
/// Bytes at the beginning of a trace that tell it from others.
const HEAD_BYTES: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// One sentence.
pub fn run(args: &SweepArgs) -> Outcome {
    let outputs = Outputs::of(&args.report)?;
    let watch = Watch::new()?;
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
    let grid = grid(args, &designs, &options, source.chunk_bytes())?;
    // (2)
    let (mut journal, done) = Journal::open(&args.output, &head(args, &source)?)?;
    let mut done: HashMap<String, Row> = done.into_iter().collect();
    // (3)
    let mut chunks: Vec<u32> = grid.iter().map(|setup| setup.chunk_bytes).collect();
    chunks.sort_unstable();
    chunks.dedup();
    let mut order: Vec<Setup> = Vec::new();
    for &chunk in &chunks {
        let of_chunk: Vec<Setup> = grid.iter().filter(|setup| setup.chunk_bytes == chunk).copied().collect();
        let chunked = Source::open(&args.input, Some(chunk), watch)?;
        order.extend(replay_chunk(args, &chunked, of_chunk, &mut journal, &mut done)?);
    }
    // (4)
    let in_order = grid.iter().filter(|setup| order.contains(setup));
    Ok(in_order.filter_map(|setup| done.get(&key(setup)).cloned()).collect())
}

/// Replays what is missing of the setups of one chunk size; those that there can be.
fn replay_chunk(
    args: &SweepArgs,
    source: &Source<'_>,
    setups: Vec<Setup>,
    journal: &mut Journal,
    done: &mut HashMap<String, Row>,
) -> Outcome<Vec<Setup>> {
    let is_missing = |setup: &&Setup, done: &HashMap<String, Row>| !done.contains_key(&key(setup));
    let missing: Vec<Setup> = setups.iter().filter(|setup| is_missing(setup, done)).copied().collect();
    let survey = survey(source, &args.input, &missing)?;
    let missing = match args.design.is_empty() {
        true => possible(missing, survey.as_ref()).or_else(|failure| {
            // Others may have been done before.
            if done.is_empty() { Err(failure) } else { Ok(Vec::new()) }
        })?,
        false => {
            check(&missing, survey.as_ref())?;
            missing
        }
    };
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
        let pass = Pass { source, warmup: args.input.warmup, survey, words, threads };
        let rows = pass.rows(some, Bounds::of(args.report.bound)).map_err(|failure| kept(failure, args))?;
        for (setup, row) in some.iter().zip(rows) {
            journal.add(&key(setup), &row)?;
            done.insert(key(setup), row);
        }
    }
    Ok(setups.into_iter().filter(|setup| done.contains_key(&key(setup))).collect())
}

/// What a signal ends can be gone on with.
fn kept(failure: Failure, args: &SweepArgs) -> Failure {
    match failure {
        Failure::Failed(text) if text.contains("ended by a signal") => {
            let file = args.output.display();
            Failure::Failed(format!(
                "ended by a signal; what was replayed before is in {file}, and the same command goes on"
            ))
        }
        other => other,
    }
}

/// All caches: by parameter, then by flash, then by RAM budget, then by design.
fn grid(args: &SweepArgs, designs: &[DesignSpec], options: &Options, chunk_bytes: u32) -> Outcome<Vec<Setup>> {
    let rams: Vec<Option<u64>> =
        if args.ram.is_empty() { vec![None] } else { args.ram.iter().copied().map(Some).collect() };
    let mut grid: Vec<Setup> = Vec::new();
    for changes in combinations(&args.vary) {
        for &flash in &args.flash {
            for &ram_bytes in &rams {
                let options = Options { ram_bytes, ..*options };
                for spec in designs {
                    let mut asked =
                        Setup { design: spec.design, chunk_bytes, flash, policy: policy(args.cache.mode), options };
                    changes.iter().for_each(|change| change.apply(&mut asked));
                    // A parameter that a design does not have makes no cache of its own.
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

/// That some design has it.
fn check_parameter(parameter: &Parameter, designs: &[DesignSpec]) -> Outcome {
    let is_general = matches!(parameter.name.as_str(), "chunk" | "mode");
    let has = |spec: &DesignSpec| spec.design.options.iter().any(|id| id.name() == parameter.name);
    if is_general || designs.iter().any(has) {
        return Ok(());
    }
    let names: Vec<&str> = designs.iter().map(|spec| spec.design.name).collect();
    Err(Failure::failed(format_args!("--vary {}: none of {} has such an option", parameter.name, names.join(", "))))
}

/// Each value of each parameter with each of the others.
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

/// What tells a replay from the others of a sweep.
fn key(setup: &Setup) -> String {
    format!("{} {} {} {}", setup.label(), setup.flash, setup.policy.name(), setup.chunk_bytes)
}

/// What tells a sweep from others: all that its replays have in common.
fn head(args: &SweepArgs, source: &Source<'_>) -> Outcome<Value> {
    let input = &args.input;
    let shown = input.file.trace.display();
    let wrong = |error: std::io::Error| {
        Failure::failed(format_args!("{shown} cannot be read: {}", crate::error::system_reason(&error)))
    };
    let file = std::fs::File::open(&input.file.trace).map_err(wrong)?;
    let bytes = file.metadata().map_err(wrong)?.len();
    let mut beginning = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut beginning).map_err(wrong)?;
    let warmup = match input.warmup {
        Warmup::Requests(requests) => requests.to_string(),
        Warmup::Percent(percent) => format!("{percent}%"),
    };
    Ok(json!({
        "larder_sweep": 1,
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
    }))
}
