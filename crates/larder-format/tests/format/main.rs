//! The tests of the format on flash, in one program: a module for each suite, so that what they share is compiled once.
//!
//! Apart is `fuzz_seeds.rs`: it installs an allocator that counts, and includes sources of the fuzz targets, which expect to
//! lie in the root of their crate.

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod layout;
mod mutation;
mod roundtrip;
