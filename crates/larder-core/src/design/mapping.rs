//! [`Mapping`]: the addresses of a design.
//!
//! Invariants: [`Mapping::lookup`] answers with the newest mapping, or a miss.
//!
//! It leaves the space of the flash to [`Slots`](super::Slots).

use super::{Hit, Lookup, NewMapping, Use};
use crate::{
    limits::TRIMMED_AT_ONCE,
    types::{Fingerprint, Lba, Place},
};

/// The addresses of a design: look up, note uses, map, unmap.
pub trait Mapping {
    /// Returns the mapping of `lba`. Counts as a use.
    fn lookup(&mut self, lba: Lba) -> Lookup;

    /// Returns the mapping of `lba` as [`Mapping::lookup`] does. Does not count as a use.
    fn peek(&self, lba: Lba) -> Lookup;

    /// Returns the chunk of `lba`, if its lookup would change only the next eviction and no answer.
    ///
    /// The caller may then postpone the lookup: it passes the use to the next [`Mapping::used`],
    /// before any other change of the design. A design that is not sure, or does not support this,
    /// returns `None`.
    fn hit(&self, _lba: Lba) -> Option<Hit> {
        None
    }

    /// Applies postponed uses, in their order and as a batch. They come from [`Mapping::hit`] and
    /// [`Provisional::hit_with`](super::Provisional::hit_with).
    ///
    /// The batch follows BP-Wrapper (Ding, Jiang and Zhang, ICDE 2009, section III), which
    /// prefetches the memory of the batch (section III.B).
    fn used(&mut self, uses: &[Use]) {
        for hit in uses {
            self.lookup(hit.lba);
        }
    }

    /// Returns the place of a stored chunk with this content that may take another reference.
    ///
    /// Counts as a use.
    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place>;

    /// Maps `lba`; the origin lacks the data of a dirty mapping. Replaces an older mapping of the
    /// address.
    fn map(&mut self, lba: Lba, new: NewMapping, is_dirty: bool);

    /// Marks `lba` clean, because the origin has its dirty data. Forgets a fragment then.
    fn mark_clean(&mut self, lba: Lba);

    /// Returns whether the mapping of `lba` is dirty.
    fn is_dirty(&self, lba: Lba) -> bool;

    /// Forgets `lba`. Returns whether it was mapped, or a crash might bring that back.
    fn unmap(&mut self, lba: Lba) -> bool;

    /// Forgets `lba` before an overwrite that maps it anew. Returns as [`Mapping::unmap`].
    ///
    /// A design that counts an overwrite as a use of the address keeps the address in mind.
    fn suspend(&mut self, lba: Lba) -> bool {
        self.unmap(lba)
    }

    /// Forgets a run of chunks of any length, and all memory of its addresses.
    fn unmap_run(&mut self, first: Lba, count: u64) {
        self.unmap_each(first, count, &|_| true);
    }

    /// Unmaps each leaving address of a run, at the cost of its mapped chunks. Returns whether the
    /// log names one of them; for a long run, it may return true without need.
    fn unmap_each(&mut self, first: Lba, count: u64, is_leaving: &dyn Fn(Lba) -> bool) -> bool {
        let mapped = self.mapped_in(first, count);
        unmap_some(self, mapped, is_leaving)
    }

    /// Returns the addresses in a run that have an index entry, ascending; an entry may be stale.
    ///
    /// An index that does not know the owners of its entries yields the addresses that the design
    /// knows elsewhere.
    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// Returns whether [`Mapping::unmap`] or [`Mapping::suspend`] says yes for any address in a
    /// run. Forgetting that address must then be logged.
    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        !self.mapped_in(first, count).is_empty()
    }

    /// Returns how many of `count` chunks from `first` one short trim takes. At most
    /// [`TRIMMED_AT_ONCE`] of them are mapped.
    fn trim_span(&self, first: Lba, count: u64) -> u64 {
        self.mapped_in(first, count).get(TRIMMED_AT_ONCE as usize).map_or(count, |lba| lba.0 - first.0)
    }

    /// Returns whether the LBA index has room for `count` more entries.
    fn has_room(&self, count: u64) -> bool;
}

/// Unmaps the leaving ones of `mapped`, addresses of a run. Returns as [`Mapping::unmap_each`].
pub(crate) fn unmap_some<D: Mapping + ?Sized>(
    design: &mut D,
    mut mapped: Vec<Lba>,
    is_leaving: &dyn Fn(Lba) -> bool,
) -> bool {
    mapped.sort_unstable();
    mapped.dedup();
    let mut any = false;
    for lba in mapped.into_iter().filter(|&lba| is_leaving(lba)) {
        any |= design.unmap(lba);
    }
    any
}
