//! What is fuzzed: functions of bytes that panic where something does not hold.
//!
//! Role: the programs in `fuzz_targets/` are thin shells around these, for cargo-fuzz; the tests of the crate that a
//! target exercises include the same files, and run them on seeded bytes. So the two cannot drift. `docs/TESTING.md`
//! lists the targets.
//!
//! Invariants: a target depends on its bytes alone.
//!
//! What it does not do: hold corpora. Each target has a function that makes its first inputs; the seeded tests write them
//! to the folder that `LARDER_FUZZ_CORPUS` names.

pub mod config;
pub mod format;
pub mod image;
pub mod input;
pub mod memory;
pub mod record;
pub mod trace;

use larder::{args, config_file, control, error, size, state_dir};
