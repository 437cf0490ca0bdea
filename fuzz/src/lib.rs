//! The fuzz targets: functions of bytes that panic if a property fails.
//!
//! Role: the programs in `fuzz_targets/` are thin shells around these, for cargo-fuzz. The tests of
//! the crate that a target exercises include the same files, and run them on seeded bytes. So the
//! two cannot drift. `docs/TESTING.md` lists the targets.
//!
//! Invariants: a target depends on its bytes alone.
//!
//! It does not hold corpora. Each target has a function that makes its first inputs. The seeded
//! tests write them to the folder in `LARDER_FUZZ_CORPUS`.

pub mod config;
pub mod format;
pub mod image;
pub mod input;
pub mod memory;
pub mod record;
pub mod trace;

use larder::{args, client, config_file, control, error, size, state_record};
