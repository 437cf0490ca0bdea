//! The tests of the decisions in one program, with a module for each suite: shared code compiles
//! once.
//!
//! `austere_ram.rs` is apart, because its allocator counts.

mod austere;
mod bucket_locks;
mod bucketed;
mod cd_arc;
#[path = "../common/mod.rs"]
mod common;
mod larder;
mod larder_ram;
mod ledger;
mod looks;
mod nitro_model;
mod placed;
mod restarts;
#[path = "../common/slotted.rs"]
mod slotted;
mod slotted_model;
mod slotted_sizes;
mod structures;
mod weu_lru;
