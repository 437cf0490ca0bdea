//! New mappings of an address, in the cache's life and in a restart.
//!
//! Invariants: those of [`Bucketed`]. Dirty data is exact before any other change.
//!
//! It leaves the store of a chunk to the caller.

use super::{Bucketed, entries::Until};
use crate::{
    design::{Deferred, NewMapping},
    types::Lba,
};

impl Bucketed {
    /// Maps as [`Provisional::map_deferring`](crate::design::Provisional::map_deferring). The
    /// metadata slot names the address from `until` on.
    pub(super) fn map_as(&mut self, lba: Lba, new: NewMapping, is_dirty: bool, until: Until) -> Deferred {
        self.count();
        self.exact.remove(lba);
        self.entries.drop_held(lba);
        let (place, sectors) = match &new {
            NewMapping::Unique { place, .. } | NewMapping::Duplicate { place } => (*place, None),
            NewMapping::Fragment { place, sectors } => (*place, Some(*sectors)),
            NewMapping::Zero => {
                match is_dirty {
                    // They are a trimmed run.
                    true => self.forget_in_core(lba),
                    // Clean zeroes are not kept, and so not logged.
                    false => self.lose_in_core(lba),
                }
                return Deferred::nothing();
            }
        };
        self.wishes.remove(&lba);
        if !self.is_restoring {
            self.ahead.keep(place.slot);
        }
        if is_dirty {
            self.exact.put(lba, &place, sectors);
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
            NewMapping::Fragment { .. } if self.is_restoring && until == Until::Committed(0) => Deferred::nothing(),
            NewMapping::Fragment { .. } => self.put_unshared(lba, &place),
            NewMapping::Zero => Deferred::nothing(),
        }
    }
}
