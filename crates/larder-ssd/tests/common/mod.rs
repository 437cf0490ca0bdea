//! The shared part of the tests of drives: small drives, a shadow flash, and seeded randomness.

pub mod caftl;
#[path = "../../../larder-core/tests/common/mod.rs"]
mod seeded;
pub mod ssd;

pub use seeded::{Rng, for_seeds};
