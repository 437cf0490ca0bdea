//! The layer's operations on their way to the planes.
//!
//! It does not hash or program them.

use crate::{ftl::PageWrite, op::FlashOp};

/// The layer's operations, while the controller hashes them.
#[derive(Default)]
pub(super) struct HandedOver {
    /// The batch and its pages; `None` if there was no batch.
    pub batch: Option<(u64, Vec<PageWrite>)>,
    pub ops: Vec<FlashOp>,
    /// The operation that a request waits for, by its place, and the request.
    pub awaited: Option<(usize, u64)>,
}
