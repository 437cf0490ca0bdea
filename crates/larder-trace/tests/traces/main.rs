//! The tests of traces, in one program: a module for each suite, so that common code is compiled
//! once.
//!
//! `fuzz_seeds.rs` is apart: it includes sources of the fuzz targets, which expect to lie in the
//! root of their crate.

mod arbitrary;
mod bad_input;
mod chunking;
mod clouds;
mod columns;
#[path = "../common/mod.rs"]
mod common;
mod detection;
mod foreign;
mod generators;
mod info;
mod public;
mod readers;
mod rechunk_model;
mod synthetic;
mod writers;
