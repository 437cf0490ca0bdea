//! The tests of drives, in one program, with a module for each suite.
//!
//! `ssd_ram.rs`, with an allocator that counts, is apart.

mod caftl;
mod caftl_maps;
mod caftl_own_pages;
mod caftl_store;
#[path = "../common/mod.rs"]
mod common;
mod ssd_buffer;
mod ssd_conservation;
mod ssd_greedy;
mod ssd_hybrid;
mod ssd_hybrid_merges;
mod ssd_profiles;
mod ssd_rules;
mod ssd_time;
mod ssd_wear;
mod ssd_weu_aligned;
