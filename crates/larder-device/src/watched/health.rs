//! The success of a device's operations, and the one that waits longest.
//!
//! It does not begin operations.

use crate::{IoError, IoErrorKind, IoOp, IoResult};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::*},
    time::Duration,
};

/// The operation that waits longest for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// The operation.
    pub op: IoOp,
    /// Its age.
    pub age: Duration,
    /// The number of waiting operations, this one included.
    pub waiting: usize,
}

/// The success of a device's operations.
#[derive(Default)]
pub(super) struct Health {
    /// A kind of operation fails: the one word that a healthy operation reads.
    pub is_ill: AtomicBool,
    pub errors: Mutex<Errors>,
}

impl Health {
    pub fn note<T>(&self, op: IoOp, result: &IoResult<T>) {
        let Some(kind) = kind_of(op) else { return };
        match result {
            Ok(_) if !self.is_ill.load(Acquire) => {}
            Ok(_) => {
                let mut errors = self.errors.lock();
                for (other, failing) in errors.failing.iter_mut().enumerate() {
                    // A device that does any work is back. A look need not ask the device.
                    let is_back = |error: &IoError| kind != LOOK && error.kind == IoErrorKind::Gone;
                    if other == kind || failing.as_ref().is_some_and(is_back) {
                        *failing = None;
                    }
                }
                self.is_ill.store(errors.failing.iter().any(Option::is_some), Release);
            }
            Err(error) if tells_of_device(error.kind) => {
                let mut errors = self.errors.lock();
                errors.failing[kind] = Some(error.clone());
                errors.unseen = Some(error.clone());
                self.is_ill.store(true, Release);
            }
            Err(_) => {}
        }
    }
}

/// The last error of each kind of operation (write, flush, read, look) without a later success.
#[derive(Default)]
pub(super) struct Errors {
    pub failing: [Option<IoError>; 4],
    /// The last error not yet taken.
    pub unseen: Option<IoError>,
}

/// The place of writes, and all that changes content, in [`Errors`].
pub(super) const WRITE: usize = 0;
/// The place of flushes.
pub(super) const FLUSH: usize = 1;
/// The place of reads.
pub(super) const READ: usize = 2;
/// The place of looks at the standing.
pub(super) const LOOK: usize = 3;

/// Returns the place of an operation's kind in [`Errors`]; `None` if it says nothing of a device.
fn kind_of(op: IoOp) -> Option<usize> {
    match op {
        IoOp::Write | IoOp::Discard | IoOp::WriteZeroes => Some(WRITE),
        IoOp::Flush => Some(FLUSH),
        IoOp::Read => Some(READ),
        IoOp::Standing => Some(LOOK),
        IoOp::Open | IoOp::Extents => None,
    }
}

/// Returns whether an error concerns the device, and not the request or the end.
fn tells_of_device(kind: IoErrorKind) -> bool {
    use IoErrorKind::{Cancelled, OutOfRange, Unaligned, Unsupported};
    !matches!(kind, Cancelled | OutOfRange | Unaligned | Unsupported)
}
