//! One life: the cache opens, clients and operator follow the plan, faults begin, and it ends.
//!
//! Invariants: the model hears of every result of a request at its time. The first violation ends
//! the run.
//!
//! It leaves the requests themselves to [`crate::requests`].

use crate::{
    desk::{Desk, Violation, ViolationKind},
    plan::{At, Ending, Fault, Life},
    world::World,
};
use larder_device::sim::{SimOptions, SimRuntime};
use larder_engine::{Cache, EngineError, Tuning, WriteMode, config::TrimPolicy};
use std::{
    cell::Cell,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
};

/// Steps after which a life that was to end by itself is stuck.
const STEPS_MAX: u64 = 2_000_000;

impl Life {
    /// Returns the treatment of TRIMs in this life.
    ///
    /// Some lives of a world destage the trims that others keep.
    fn trim_policy(&self, tuning: &Tuning) -> TrimPolicy {
        match tuning.trim {
            TrimPolicy::Keep if self.schedule_seed.is_multiple_of(4) => {
                [TrimPolicy::Zero, TrimPolicy::Pass][(self.schedule_seed / 4 % 2) as usize]
            }
            policy => policy,
        }
    }
}

/// The outcome of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cache was open.
    Lived,
    /// The opening failed: cut short, or by a device error.
    NotOpened,
    /// The flash was refused, as damaged.
    Refused,
    /// The cache was detached.
    Detached,
}

/// The progress of a life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    Closed,
    Over(Outcome),
}

/// Executes a life over the world's devices, and leaves the model as the next opening finds it.
pub fn live(world: &mut World, desk: &Arc<Desk>, life: &Life, number: usize) -> Result<Outcome, Violation> {
    let options = SimOptions { steps_max: STEPS_MAX, ..SimOptions::default() };
    let runtime = SimRuntime::with_options(life.schedule_seed, options);
    let moves = world.move_flash(&runtime, life.schedule_seed);
    world.attach(&runtime);
    desk.begin_life(number, life, &runtime, world);
    desk.treats_trims(life.trim_policy(&world.shape.tuning), world.shape.tuning.trim);
    if moves {
        let sector_bytes = larder_device::BlockDevice::info(&*world.flash).sector_bytes;
        desk.history(|| format!("the flash moves to sectors of {sector_bytes} bytes"));
    }
    desk.knows_its_flash(world);
    if life.discard_fenced && world.fence.is_up() {
        // Even if this opening is cut short.
        desk.drop_dirty_data();
    }
    let stage = Cell::new(Stage::Opening);
    let run = AssertUnwindSafe(|| {
        let main = Box::pin(story(world, desk, &runtime, life, &stage));
        drive(world, desk, &runtime, life, &stage, main)
    });
    let ended = catch_unwind(run).map_err(|_| {
        let text = crate::panics::take();
        let stuck = text.contains("steps, no end") || text.contains("deadlock");
        Violation { kind: if stuck { ViolationKind::Stuck } else { ViolationKind::Panic }, text }
    });
    desk.forget_cache();
    let violation = desk.take_violation();
    finish(desk, &runtime, life, stage.get(), matches!(ended, Ok(false)));
    let outcome = match stage.get() {
        Stage::Opening => Outcome::NotOpened,
        Stage::Open | Stage::Closed => Outcome::Lived,
        Stage::Over(outcome) => outcome,
    };
    desk.end_life(&runtime, outcome == Outcome::Lived);
    world.heal();
    match violation {
        Some(violation) => Err(violation),
        None => ended.map(|_| outcome),
    }
}

/// Ends the runtime as the plan says, and counts it.
fn finish(desk: &Desk, runtime: &SimRuntime, life: &Life, stage: Stage, cut_short: bool) {
    let power_loss = match life.end.how {
        Ending::PowerLoss => true,
        Ending::Kill | Ending::Drop => false,
        // After a clean end the power may go, or stay.
        Ending::Close => life.schedule_seed.is_multiple_of(2),
    };
    if power_loss {
        runtime.crash();
    } else {
        runtime.kill();
    }
    let what = if power_loss { "the power goes" } else { "the process is killed" };
    desk.history(|| format!("{what} after {} steps and {} changes", runtime.steps(), runtime.changes()));
    let in_flight = desk.in_flight();
    desk.stats(|stats| {
        if stage == Stage::Closed {
            return;
        }
        stats.crashes += 1;
        *(if power_loss { &mut stats.power_losses } else { &mut stats.kills }) += 1;
        stats.crashes_in_recovery += u64::from(stage == Stage::Opening && cut_short);
        stats.crashes_under_load += u64::from(in_flight);
    });
}

/// Drives the life, with faults and its end at their moments, and returns true if its story ended.
fn drive(
    world: &World,
    desk: &Desk,
    runtime: &SimRuntime,
    life: &Life,
    stage: &Cell<Stage>,
    mut main: Pin<Box<impl Future<Output = ()>>>,
) -> bool {
    let mut waiting: Vec<&Fault> = life.faults.iter().collect();
    loop {
        let latest = life.end.latest.map(At::Step);
        let moments = || waiting.iter().map(|fault| fault.at).chain(life.end.at).chain(latest);
        let steps = moments().filter_map(|at| if let At::Step(step) = at { Some(step) } else { None }).min();
        let changes = moments().filter_map(|at| if let At::Change(change) = at { Some(change) } else { None }).min();
        runtime.stop_at_step(steps);
        runtime.stop_at_change(changes);
        if runtime.block_on_or_stop(main.as_mut()).is_some() {
            return true;
        }
        let reached = |at: At| match at {
            At::Step(step) => runtime.steps() >= step,
            At::Change(change) => runtime.changes() >= change,
        };
        waiting.retain(|fault| {
            if reached(fault.at) {
                world.arm(&fault.what);
                desk.fault_begins(&fault.what, stage.get() == Stage::Opening);
            }
            !reached(fault.at)
        });
        if life.end.at.is_some_and(reached) || latest.is_some_and(reached) {
            return false;
        }
    }
}

/// Executes the events of a life, in order.
async fn story(world: &World, desk: &Arc<Desk>, runtime: &Arc<SimRuntime>, life: &Life, stage: &Cell<Stage>) {
    let mut tuning = world.shape.tuning.clone();
    tuning.discard_fenced = life.discard_fenced;
    tuning.trim = life.trim_policy(&tuning);
    if world.shape.fence {
        tuning.fence = world.fence.keeper();
    }
    desk.state.lock().model.trouble.opening_begins();
    let opened = Cache::open(world.flash.clone(), world.origin.clone(), runtime.clone(), tuning).await;
    let cache = match opened {
        Ok(cache) => Arc::new(cache),
        Err(error) => return stage.set(Stage::Over(not_opened(world, desk, life, &error))),
    };
    stage.set(Stage::Open);
    desk.opened(&cache);
    if life.check_first {
        desk.check(&cache, life).await;
    }
    desk.spawn_clients(&cache, life);
    desk.all_done().await;
    if life.check_last {
        desk.check(&cache, life).await;
    }
    match life.end.how {
        Ending::Close => {
            if desk.is_sound() && desk.close(&cache, false).await {
                stage.set(Stage::Closed);
            }
        }
        Ending::Drop => {
            desk.forget_cache();
            drop(cache);
            // Its tasks end, and the requests that it began.
            larder_device::Runtime::delay(&**runtime, std::time::Duration::from_millis(1)).await.ok();
        }
        Ending::Kill | Ending::PowerLoss => {}
    }
}

fn not_opened(world: &World, desk: &Desk, life: &Life, error: &EngineError) -> Outcome {
    let trouble = desk.trouble();
    desk.history(|| format!("the cache is not opened: {error}"));
    if trouble.opening_may_fail(error, world.fence.is_up() && !life.discard_fenced) {
        desk.stats(|stats| {
            stats.openings_failed += 1;
            stats.openings_fenced += u64::from(matches!(error, EngineError::Fenced { .. }));
        });
        Outcome::NotOpened
    } else if trouble.opening_may_be_refused(error) {
        desk.stats(|stats| stats.openings_refused += 1);
        if matches!(error, EngineError::Detached) { Outcome::Detached } else { Outcome::Refused }
    } else {
        desk.violate(ViolationKind::Opening, format!("the cache is not opened: {error}"));
        Outcome::NotOpened
    }
}

/// Returns true if a mode has dirty data.
pub fn keeps_dirty(mode: WriteMode) -> bool {
    mode == WriteMode::Back
}
