//! The tests of the decisions, in one program: a module for each suite, so that what they share is compiled once.
//!
//! Apart is `austere_ram.rs`, which has an allocator that counts.

mod austere;
mod bucket_locks;
mod bucketed;
mod cd_arc;
#[path = "../common/mod.rs"]
mod common;
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
