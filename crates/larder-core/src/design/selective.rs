//! [`Selective`]: a design that refuses chunks, and keeps records of the slots that go.
//!
//! Invariants: a design without this part takes each chunk, and keeps no record. A
//! [`Decider`](crate::decider::Decider) answers for such a design. A dirty chunk is always stored.
//!
//! It does not move records.

use super::{Survivor, Wanted};
use crate::types::SlotId;

/// The choice of contents that are stored at all, and of those that are stored again.
pub trait Selective {
    /// Returns whether a clean chunk that is not stored is worth a record.
    ///
    /// A refused chunk is not mapped. The design may note that the address has this content. So the
    /// caller asks only if a mapping of the chunk would be right.
    fn admits(&mut self, wanted: &Wanted) -> bool;

    /// Returns the records of a clean victim that are worth another life, the best first.
    ///
    /// The caller may insert each again for its address, once the victim has gone. Each is
    /// [admitted](Selective::admits) then.
    fn survivors(&mut self, victim: SlotId) -> Vec<Survivor>;
}
