//! [`Selective`]: a design that refuses chunks, and keeps records of the slots that go.
//!
//! Invariants: a design without this part takes each chunk, and keeps no record. A
//! [`Decider`](crate::decider::Decider) answers for such a design. A dirty chunk is always stored.
//!
//! It does not move records.

use super::{Survivor, Wanted};
use crate::types::{Lba, Place, SlotId};

/// The records of a slot that a history names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecalledSlot {
    /// The slot.
    pub slot: SlotId,
    /// Its generation. Records of another one are others.
    pub generation: u32,
    /// Its records that a restart takes, by offset.
    pub records: Vec<Recalled>,
}

/// A record that a restart takes with the help of its record table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// The offset in the slot.
    pub offset: u32,
    /// True if its fingerprint leads to it.
    pub is_known: bool,
    /// True if the address that it was stored for has a clean mapping to it.
    pub is_mapped: bool,
    /// The low bytes of that address, which the table has, too.
    pub lba_low: u16,
}

/// The choice of contents that are stored at all, and of those that are stored again.
pub trait Selective {
    /// Returns whether a clean chunk that is not stored is worth a record.
    ///
    /// A refused chunk is not mapped. The design may note that the address has this content. So the
    /// caller asks only if a mapping of the chunk would be right.
    fn admits(&mut self, wanted: &Wanted) -> bool;

    /// Returns whether the clean mapping of `lba` is *transient*: the caller leaves it out of the
    /// log.
    ///
    /// The design leaves it out of exports. So a crash forgets it, and the log need not tell of its
    /// end: [`Mapping::unmap`](super::Mapping::unmap) says so.
    fn is_transient(&self, _lba: Lba) -> bool {
        false
    }

    /// Makes the clean mappings around a run of chunks transient that a write replaces.
    ///
    /// Returns the run of chunks whose mappings the log forgets: the given one, or a longer one.
    /// It grows by runs of which `may` says so.
    fn retreat(&mut self, first: Lba, count: u64, _may: &dyn Fn(Lba, u64) -> bool) -> (Lba, u64) {
        (first, count)
    }

    /// Has no search find the record at a place, for it is damaged.
    fn unshare(&mut self, _place: &Place) {}

    /// Ends all transience, for no write follows: the next export has each mapping.
    fn persist_all(&mut self) {}

    /// Returns the records of a clean victim that are worth another life, the best first.
    ///
    /// The caller may insert each again for its address, once the victim has gone. Each is
    /// [admitted](Selective::admits) then.
    fn survivors(&mut self, _victim: SlotId) -> Vec<Survivor> {
        Vec::new()
    }

    /// Recovery: returns the next slot whose records the history names; `None` at the end.
    ///
    /// All pages were taken before, and no entry of the log.
    fn next_recalled(&mut self) -> Option<RecalledSlot> {
        None
    }
}
