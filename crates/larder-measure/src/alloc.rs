//! The counting allocator of the drives' tests, under this program's own name.
//!
//! It has no count of its own.

#[path = "../../larder-ssd/tests/common/live.rs"]
mod live;

pub use live::{Counting, Live};
