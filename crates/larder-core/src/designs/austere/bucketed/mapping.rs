//! New mappings of an address, in the cache's life and in a restart.
//!
//! Invariants: those of [`Bucketed`]. Dirty data is exact before any other change.
//!
//! It leaves the store of a chunk to the caller.

use super::{Bucketed, entries::Until};
use crate::{
    design::{Deferred, NewMapping},
    ranges::Run,
    types::Lba,
};

impl Bucketed {
    /// Maps as [`Provisional::map_deferring`](crate::design::Provisional::map_deferring).
    pub(super) fn map_as(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred {
        self.count();
        self.exact.remove(lba);
        self.entries.drop_held(lba);
        let until = dirty_seq.map_or(Until::Told, Until::Committed);
        let (place, sectors) = match &new {
            NewMapping::Unique { place, .. } | NewMapping::Duplicate { place } => (*place, None),
            NewMapping::Fragment { place, sectors } => (*place, Some(*sectors)),
            NewMapping::Zero => {
                match dirty_seq {
                    Some(seq) => {
                        self.forget_in_core(lba);
                        self.exact.trim(Run { first: lba, count: 1, seq, no_hole: true, advisory: false });
                    }
                    // Clean zeroes are not kept, and so not logged.
                    None => self.lose_in_core(lba),
                }
                return Deferred::nothing();
            }
        };
        self.wishes.remove(&lba);
        if !self.is_restoring {
            self.ahead.keep(place.slot);
        }
        if let Some(seq) = dirty_seq {
            self.exact.put(lba, &place, sectors, seq);
        }
        match new {
            NewMapping::Unique { fingerprint: Some(fingerprint), .. } => match self.is_restoring {
                true => {
                    self.restore(Some(lba), &fingerprint, &place);
                    Deferred::nothing()
                }
                false => self.stored(lba, &place, &fingerprint, until),
            },
            // A mapping from a checkpoint, whose pages have the content.
            NewMapping::Unique { fingerprint: None, .. } => Deferred::nothing(),
            NewMapping::Duplicate { .. } if self.is_restoring => {
                self.untold = Some(lba);
                Deferred::nothing()
            }
            NewMapping::Duplicate { .. } => self.share(lba, &place, until),
            // A fragment from a checkpoint has no number, and is in its pages, too.
            NewMapping::Fragment { .. } if self.is_restoring && dirty_seq == Some(0) => Deferred::nothing(),
            NewMapping::Fragment { .. } => self.put_unshared(lba, &place),
            NewMapping::Zero => Deferred::nothing(),
        }
    }
}
