//! A plan, executed: life after life over the same devices, until the last one or a broken promise.
//!
//! It does not draw plans, or make failing ones smaller.

use crate::{
    content::ZERO,
    desk::{Desk, Violation, ViolationKind},
    life::{Outcome, keeps_dirty, live},
    model::Model,
    panics,
    plan::Plan,
    stats::Stats,
    world::World,
};
use larder_core::types::SECTOR_BYTES;
use larder_engine::EngineError;

/// The result of a run.
pub struct Report {
    pub violation: Option<Violation>,
    pub stats: Stats,
    /// The events in order, if the caller wants them.
    pub history: Vec<String>,
    /// A hash of every choice: two runs with the same one were the same run.
    pub trace: u64,
}

/// Executes a plan. `tell`: with its history.
pub fn execute(plan: &Plan, tell: bool, watched: Option<usize>) -> Report {
    panics::during(|| {
        let shape = &plan.shape;
        let sectors = (shape.origin_bytes / SECTOR_BYTES as u64) as usize;
        let model = Model::new(sectors, shape.chunk_bytes as usize / SECTOR_BYTES);
        debug_assert_eq!(ZERO, 0);
        let desk = Desk::new(model, shape.tuning.durable_writes, tell, watched);
        let violation = live_all(plan, &desk).err();
        Report { violation, stats: desk.take_stats(), history: desk.take_history(), trace: desk.trace() }
    })
}

fn live_all(plan: &Plan, desk: &std::sync::Arc<Desk>) -> Result<(), Violation> {
    let made = |result: Result<World, EngineError>| {
        result.map_err(|error| Violation {
            kind: ViolationKind::Opening,
            text: format!("the cache cannot be made: {error}"),
        })
    };
    let mut world = made(World::new(&plan.shape))?;
    for (number, life) in plan.lives.iter().enumerate() {
        let outcome = live(&mut world, desk, life, number)?;
        // A refused flash is given up: the origin remains.
        if life.end.flash_lost || matches!(outcome, Outcome::Refused | Outcome::Detached) {
            desk.history(|| "the flash is lost; an empty one takes its place".to_owned());
            // The keeper of the fence knows if the origin can do without the flash.
            let noted = world.fence.mode().is_some_and(|mode| !keeps_dirty(mode));
            let has_no_dirty = noted && !world.fence.is_up();
            desk.new_flash(outcome == Outcome::Detached || has_no_dirty, !has_no_dirty);
            world = made(world.with_new_flash())?;
        }
    }
    Ok(())
}
