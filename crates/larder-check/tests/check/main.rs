//! Checks and repairs of whole flashes, in one program: a module for each suite.
//!
//! The worlds are those of the engine's tests. `mutated_images.rs` is a program of its own. It
//! installs an allocator that counts, and includes sources of the fuzz targets, which expect to lie
//! in the root of their crate.

#[allow(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../larder-engine/tests/common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../larder-engine/tests/common/fence.rs"]
mod fence;
mod flash_generations;
mod lives;
mod lost_end;
mod repair;

use common::design;
