//! The tests of the format on flash, in one program, so that their shared parts are compiled once.
//!
//! Each suite is a module. Apart is `fuzz_seeds.rs`: it installs an allocator that counts, and
//! includes sources of the fuzz targets. Those expect to lie in the root of their crate.

#[path = "../common/mod.rs"]
mod common;
mod fixtures;
mod layout;
mod mutation;
mod roundtrip;
