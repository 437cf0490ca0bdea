//! The tests of the simulator, in one program, with a module for each suite.
//!
//! So common code is compiled once, and long tests of one suite run beside those of the next. Tests
//! with an allocator that counts are apart: `austere_allocations.rs`, `index_ram.rs`,
//! `replay_ram.rs`.

mod austere_bucketed;
mod austere_model;
mod austere_published;
mod austere_safety;
mod bound;
#[path = "../common/mod.rs"]
mod common;
mod devices;
mod drops;
mod host;
mod origin;
mod published;
mod robust;
mod slotted;
mod ssd_slots;
mod trims;
mod weu;
mod weu_sizing;
mod whole;
