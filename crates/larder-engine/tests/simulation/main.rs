//! The engine in simulation: a seed decides requests, faults, crashes, and the order of
//! completions. Clients and operators make the requests. A model of the contract checks every read,
//! before and after every crash.
//!
//! It has a front of its own that understands the arguments of `cargo test` (filters, `--exact`,
//! `--skip`, `--list`):
//!
//! - `LARDER_SEEDS=N` takes seeds 1 to N instead of the share that belongs to every test run;
//! - `LARDER_SEED=N` takes that one, and tells its history if it fails;
//! - `LARDER_SEED_FIRST=N` begins elsewhere;
//! - `LARDER_WATCH=SECTOR` prints the events of a sector, with `LARDER_SEED`;
//! - `LARDER_STATS=1` prints the counts of events.
//!
//! Invariants: a seed is one run, on every machine and in every repetition (checked for some).
//!
//! It leaves real devices and threads to other tests.

// A program of its own: its modules are public to each other.
#![allow(missing_docs)]

mod content;
#[allow(dead_code, reason = "another program uses the rest")]
#[path = "../common/design.rs"]
mod design;
mod desk;
mod draw;
#[allow(dead_code, reason = "another program uses the rest")]
#[path = "../common/fence.rs"]
mod fence;
mod life;
mod model;
mod operator;
mod panics;
mod plan;
mod requests;
mod run;
mod sector;
mod shrink;
mod stats;
mod trouble;
#[path = "../common/wear.rs"]
mod wear;
mod world;

use plan::Plan;
use stats::Stats;
use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Seeds of an ordinary test run.
const SEEDS_DEFAULT: u64 = 3000;
/// Violations whose history is told; after these nothing more is run.
const VIOLATIONS_TOLD_MAX: usize = 3;
/// Seeds that are executed twice, to see that they are one run.
const SEEDS_TWICE: u64 = 20;
/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(20);
/// Lines of a history that are printed.
const HISTORY_LINES_MAX: usize = 400;

type Check = (&'static str, fn());

/// The checks. The last one is the simulation itself.
const CHECKS: &[Check] = &[
    ("content::values_and_bytes_follow_from_each_other", content::checks::values_and_bytes_follow_from_each_other),
    ("sector::reads_are_new", sector::checks::reads_are_new),
    ("sector::reads_go_forward", sector::checks::reads_go_forward),
    ("sector::failed_writes_stay", sector::checks::failed_writes_stay),
    ("sector::failed_writes_lurk_under_dirty_data", sector::checks::failed_writes_lurk_under_dirty_data),
    ("sector::flushed_writes_survive", sector::checks::flushed_writes_survive),
    ("sector::no_flip", sector::checks::no_flip),
    ("sector::origin_holds_the_rest", sector::checks::origin_holds_the_rest),
    ("sector::writes_past_the_flash_are_on_the_origin", sector::checks::writes_past_the_flash_are_on_the_origin),
    ("sector::dirty_is_what_the_flash_takes_for_dirty", sector::checks::dirty_is_what_the_flash_takes_for_dirty),
    ("sector::forgotten_writes_may_go", sector::checks::forgotten_writes_may_go),
    ("sector::reverting_brings_back_what_was_there", sector::checks::reverting_brings_back_what_was_there),
    ("sector::equal_values_are_either", sector::checks::equal_values_are_either),
    ("sector::trims_that_may_be_kept_stay_what_they_are", sector::checks::trims_that_may_be_kept_stay_what_they_are),
    ("trouble::errors_need_a_reason", trouble::checks::errors_need_a_reason),
    ("a_seed_is_one_run", a_seed_is_one_run),
    ("seeds", seeds),
];

fn main() -> ExitCode {
    panics::install();
    let (mut filters, mut skipped, mut exact, mut list) = (Vec::new(), Vec::new(), false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => list = true,
            "--exact" => exact = true,
            "--skip" => skipped.extend(args.next()),
            // Options of the usual front that take a value.
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(args.next()),
            // No check here is kept for later.
            "--ignored" => return ExitCode::SUCCESS,
            other if other.starts_with('-') => {}
            _ => filters.push(arg),
        }
    }
    let matches = |name: &str, filter: &String| if exact { name == filter } else { name.contains(filter.as_str()) };
    let wanted: Vec<&Check> = CHECKS
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| matches(name, filter)))
        .filter(|(name, _)| !skipped.iter().any(|filter| matches(name, filter)))
        .collect();
    if list {
        wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, check) in wanted {
        let result = std::panic::catch_unwind(check);
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += u32::from(result.is_err());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Executes seeds twice and compares all choices of their schedulers.
fn a_seed_is_one_run() {
    for seed in 1..=SEEDS_TWICE {
        let plan = Plan::draw(seed);
        let (a, b) = (run::execute(&plan, false, None), run::execute(&plan, true, None));
        assert_eq!(a.trace, b.trace, "seed {seed} is not one run");
    }
}

/// A run that broke a promise.
struct Failure {
    seed: u64,
    text: String,
}

/// Runs the simulation: all seeds, on all cores.
fn seeds() {
    if let Some(seed) = number("LARDER_SEED") {
        return one_seed(seed);
    }
    let long = number("LARDER_SEEDS");
    let first = number("LARDER_SEED_FIRST").unwrap_or(1);
    let count = long.unwrap_or(SEEDS_DEFAULT);
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let all = Mutex::new((Stats::default(), Vec::<Failure>::new(), Instant::now()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        loop {
            if all.lock().expect("no panic").1.len() >= VIOLATIONS_TOLD_MAX {
                return;
            }
            let seed = first + next.fetch_add(1, Relaxed);
            if seed - first >= count {
                return;
            }
            let report = run::execute(&Plan::draw(seed), false, None);
            let mut all = all.lock().expect("no panic");
            all.0.add(&report.stats);
            if let Some(violation) = report.violation {
                eprintln!("seed {seed}: {:?}: {}", violation.kind, violation.text);
                all.1.push(Failure { seed, text: violation.text });
            }
            if long.is_some() && all.2.elapsed() > PROGRESS {
                all.2 = Instant::now();
                eprintln!(
                    "{} of {count} seeds, {} crashes, {} faults, {} violations, {:.0} s",
                    seed - first,
                    all.0.crashes,
                    all.0.faults,
                    all.1.len(),
                    began.elapsed().as_secs_f64()
                );
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (stats, failures, _) = all.into_inner().expect("no panic");
    let seconds = began.elapsed().as_secs_f64();
    if number("LARDER_STATS").is_some_and(|wanted| wanted > 0) {
        stats.list().iter().for_each(|(name, count, _)| println!("{count:>12}  {}", name.replace('_', " ")));
    }
    failures.iter().for_each(|failure| tell(failure.seed));
    // The runs that were begun: after some violations the rest is left out.
    let count = next.into_inner().min(count);
    println!("{count} seeds, {} crashes, {} faults, {} violations", stats.crashes, stats.faults, failures.len());
    println!("{seconds:.1} s on {threads} threads: {:.0} crashes an hour", stats.crashes as f64 / seconds * 3600.0);
    let seeds: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    assert!(failures.is_empty(), "promises are broken by seeds {seeds:?}, first: {}", failures[0].text);
    let mut missing = stats.missing();
    // One design alone may be one that shares nothing.
    missing.retain(|&name| name != "duplicates" || design::wanted().is_none_or(design::shares_content));
    assert!(count < SEEDS_DEFAULT || missing.is_empty(), "the simulation did not meet: {}", missing.join(", "));
}

/// Runs one seed, and tells its history if it fails.
fn one_seed(seed: u64) {
    let watched = number("LARDER_WATCH").map(|sector| sector as usize);
    let plan = Plan::draw(seed);
    let report = run::execute(&plan, true, watched);
    if number("LARDER_STATS").is_some_and(|wanted| wanted > 0) {
        report.history.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {seed}: {} lives, {} crashes", report.stats.lives, report.stats.crashes);
    if let Some(violation) = report.violation {
        tell(seed);
        panic!("seed {seed} breaks a promise: {}", violation.text);
    }
}

/// Tells the smallest history found in which a seed's promise is broken.
fn tell(seed: u64) {
    let plan = Plan::draw(seed);
    let Some(violation) = run::execute(&plan, false, None).violation else {
        println!("seed {seed} fails only now and then: something is not decided by the seed");
        return;
    };
    let small = shrink::shrink(&plan, &violation);
    let report = run::execute(&small, true, None);
    println!("\nseed {seed}: {}", violation.text);
    println!("{:?}", small.shape);
    let skipped = report.history.len().saturating_sub(HISTORY_LINES_MAX);
    if skipped > 0 {
        println!("({skipped} lines before)");
    }
    report.history.iter().skip(skipped).for_each(|line| println!("  {line}"));
    let text = report.violation.map_or_else(String::new, |violation| violation.text);
    println!("so: {text}");
    println!("replay: LARDER_SEED={seed} cargo test -p larder-engine --test simulation seeds\n");
}
