//! The engine under a scheduler that picks the next thread at each lock and each atomic operation.
//!
//! This program compiles the engine's own sources a second time. Their names `parking_lot::Mutex`,
//! `std::sync::atomic` and `std::thread_local` mean shuttle's here. The crate stands in for
//! `parking_lot` and for `std`, and its root has their modules beside the engine's. Production code
//! does not know of it.
//!
//! Invariants: all randomness comes from the schedule, and so from its seed. A thread that waits
//! for ever, and one that never ends, fail.
//!
//! It leaves the devices and the driver to `crates/larder-device/tests/interleavings`, and does not
//! explore weak memory (see `stand_ins.rs`). It does not use the usual test harness, because the
//! sources would bring their own unit tests.

// The sources are used in part, and their own crate checks their documentation.
#![allow(dead_code, unused_imports, missing_docs, ambiguous_glob_reexports)]

extern crate self as parking_lot;
extern crate self as std;
extern crate std as real_std;

pub use real_std::*;
pub use shuttle::thread_local;
pub use stand_ins::{Condvar, Mutex, MutexGuard};

mod stand_ins;

// All of it, so that `crate::state` and the like resolve in the engine's files.
pub use engine::*;

#[path = "../../src/lib.rs"]
mod engine;

/// The standard library's, with shuttle's atomics, and the engine's module of that name.
pub mod sync {
    pub use crate::engine::sync::*;
    pub use real_std::sync::*;
    pub use shuttle::sync::atomic;
}

/// The standard library's and the engine's.
pub mod error {
    pub use crate::engine::error::*;
    pub use real_std::error::Error;
}

mod caches;
mod confirming;
mod explore;
#[path = "../threads/history.rs"]
mod history;
#[path = "../threads/register.rs"]
mod register;
mod sharing;
mod waiting;
mod world;

/// The names that `history.rs` takes from the engine's other tests.
mod common {
    pub const SECTOR: usize = 512;
}

/// Schedules at once: the caches of a process share nothing of the engine.
fn explorers() -> usize {
    real_std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn main() -> process::ExitCode {
    explore::run(&[
        ("a_thread_pauses_while_another_one_does_all", waiting::a_thread_pauses_while_another_one_does_all),
        ("a_change_after_the_check_wakes_its_listener", waiting::a_change_after_the_check_wakes_its_listener),
        ("either_change_wakes", waiting::either_change_wakes),
        ("operations_side_by_side_all_end", waiting::operations_side_by_side_all_end),
        ("overlapping_tickets_exclude_each_other", waiting::overlapping_tickets_exclude_each_other),
        ("tickets_are_granted_in_the_order_of_asking", waiting::tickets_are_granted_in_the_order_of_asking),
        ("tickets_given_up_block_no_others", waiting::tickets_given_up_block_no_others),
        ("an_eviction_waits_for_the_last_reader", waiting::an_eviction_waits_for_the_last_reader),
        ("touches_are_applied_before_a_decision", sharing::touches_are_applied_before_a_decision),
        ("a_shared_hit_pins_against_an_eviction", sharing::a_shared_hit_pins_against_an_eviction),
        ("hits_by_a_metadata_slot_are_of_what_is_there", confirming::hits_by_a_metadata_slot_are_of_what_is_there),
        ("readers_and_evictions", caches::readers_and_evictions),
        ("writers_that_wait_for_room", caches::writers_that_wait_for_room),
        ("a_writer_that_waits_alone_for_room", caches::a_writer_that_waits_alone_for_room),
        ("slow_readers_and_evictions", caches::slow_readers_and_evictions),
        ("hits_by_metadata_slots_and_evictions", caches::hits_by_metadata_slots_and_evictions),
        ("overlapping_writes_in_write_back", caches::overlapping_writes_in_write_back),
        ("kept_trims_and_writes", caches::kept_trims_and_writes),
        ("fills_and_writes_in_write_through", caches::fills_and_writes_in_write_through),
        ("fills_and_writes_in_write_around", caches::fills_and_writes_in_write_around),
        ("mode_switches_and_writes", caches::mode_switches_and_writes),
        ("closing_under_requests", caches::closing_under_requests),
    ])
}
