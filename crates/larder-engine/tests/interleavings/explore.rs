//! Runs a check under many schedules, and the checks of a test program.
//!
//! Invariants: a schedule comes from its number. A failure prints the number, and `LARDER_SEED=N`
//! runs that schedule alone. `LARDER_SCHEDULES=N` takes N times as many.
//!
//! It does not exhaust the schedules. Odd seeds draw each step at random. Even ones give threads
//! priorities that change at a few points (`priorities.rs`), and find errors that need few but
//! exact preemptions.

#[path = "priorities.rs"]
mod priorities;

// Clock, threads and atomics of the program itself are the real ones, and `std` may mean others
// here.
use real_std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::scope,
    time::Instant,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, scheduler::RandomScheduler};
use std::{
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::ExitCode,
};

use priorities::Priorities;

/// Steps after which a schedule counts as one that never ends.
const STEPS_MAX: usize = 2_000_000;
/// Stack of each thread in bytes; compressors need most.
const STACK_BYTES: usize = 1 << 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

/// Runs `check` under `schedules` schedules.
///
/// [`explorers`](crate::explorers) gives the number of threads: the scheduler has its own state in
/// each.
///
/// # Panics
/// With a schedule that fails: a panic, a deadlock, or no end.
pub fn explore(schedules: u64, check: fn()) {
    let times = number("LARDER_SCHEDULES").unwrap_or(1);
    let seeds = number("LARDER_SEED").map_or(1..=schedules * times, |seed| seed..=seed);
    let (next, over, failure) = (AtomicU64::new(*seeds.start()), AtomicBool::new(false), Mutex::new(None));
    let work = || {
        while !over.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            if !seeds.contains(&seed) {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_schedule(seed, check))) {
                over.store(true, Relaxed);
                eprintln!("replay with LARDER_SEED={seed}");
                *failure.lock().expect("nothing panics under it") = Some(panic);
            }
        }
    };
    scope(|threads| (0..crate::explorers()).for_each(|_| drop(threads.spawn(work))));
    if let Some(panic) = failure.into_inner().expect("nothing panics under it") {
        resume_unwind(panic);
    }
}

fn run_schedule(seed: u64, check: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    match seed % 2 {
        1 => Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(check),
        _ => Runner::new(Priorities::new(seed), config).run(check),
    };
}

/// Runs the checks of a test program without the usual harness.
///
/// These are the checks whose names contain an argument, and all checks without one. It prints the
/// lines of the usual harness.
pub fn run(checks: &[(&str, fn())]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        checks.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen =
        checks.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())));
    let began = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    for (name, check) in chosen {
        print!("test {name} ... ");
        let _ = std::io::stdout().flush();
        let ok = catch_unwind(check).is_ok();
        println!("{}", if ok { "ok" } else { "FAILED" });
        *if ok { &mut passed } else { &mut failed } += 1;
    }
    let filtered = checks.len() - passed - failed;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out; \
         finished in {:.2}s\n",
        began.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
