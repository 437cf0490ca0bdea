//! The tests of the format on flash, in one program: a module for each suite, so that what they share is compiled once.
//!
//! Apart is `fuzz_seeds.rs`: it counts what the whole process allocates, and includes sources of the fuzz targets, which expect to
//! lie in the root of their crate.

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod layout;
mod mutation;
mod roundtrip;
