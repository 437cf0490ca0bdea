//! [`Mapping`]: the addresses of a design, and the data that the origin lacks.
//!
//! Invariants: [`Mapping::lookup`] answers with the newest mapping, or a miss.
//!
//! It leaves the space of the flash to [`Slots`](super::Slots).

use super::{DirtyCounts, Hit, Leaving, Lookup, NewMapping, Use};
use crate::{
    ranges::Run,
    types::{Fingerprint, Lba, Place},
};

/// The addresses of a design: look up, note uses, map, unmap, trim.
pub trait Mapping {
    /// Returns the mapping of `lba`. Counts as a use.
    fn lookup(&mut self, lba: Lba) -> Lookup;

    /// Returns the mapping of `lba` as [`Mapping::lookup`] does. Does not count as a use.
    fn peek(&self, lba: Lba) -> Lookup;

    /// Returns the chunk that `lba` maps to, if its lookup would change only the next eviction and
    /// no answer.
    ///
    /// The caller may then postpone the lookup: it passes the use to the next [`Mapping::used`],
    /// before any other change of the design. A design that is not sure, or does not support this,
    /// returns `None`.
    fn hit(&self, _lba: Lba) -> Option<Hit> {
        None
    }

    /// Applies postponed uses from [`Mapping::hit`] and [`Provisional::hit_with`] in their order,
    /// as a batch.
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

    /// Maps `lba`; a write that the origin lacks has a sequence number. Replaces an older mapping
    /// or a trimmed run of the address.
    fn map(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>);

    /// Forgets `lba`. Returns whether it was mapped or trimmed, or a crash might bring that back.
    fn unmap(&mut self, lba: Lba) -> bool;

    /// Returns the remembered content of `lba`, if `lba` is unmapped and the content is stored for
    /// others.
    ///
    /// The caller may map `lba` as a duplicate of it. A design without ghosts has none.
    fn remembered(&self, _lba: Lba) -> Option<Fingerprint> {
        None
    }

    /// Forgets `lba` before an overwrite that maps it anew. Returns as [`Mapping::unmap`].
    ///
    /// A design that counts an overwrite as a use of the address keeps the address in mind.
    fn suspend(&mut self, lba: Lba) -> bool {
        self.unmap(lba)
    }

    /// Returns whether `lba` is a ghost: an address that the design remembers without its data.
    ///
    /// A request of a ghost is a miss that informs the design. A ghost is not mapped, and its known
    /// content is not stored. A design that remembers no replaced address has none.
    fn is_ghost(&self, _lba: Lba) -> bool {
        false
    }

    /// Forgets a run of chunks of any length, trimmed parts included.
    fn unmap_run(&mut self, first: Lba, count: u64);

    /// [Unmaps](Mapping::unmap) each address of a run of any length, at the cost of its mapped
    /// chunks. Returns whether any of them is logged; for a long run, it may say so without need.
    fn unmap_each(&mut self, first: Lba, count: u64, leaving: Leaving) -> bool {
        let mapped = self.mapped_in(first, count);
        unmap_some(self, mapped, (first, count), leaving)
    }

    /// Returns the addresses in a run that have an index entry, ascending; an entry may be stale.
    ///
    /// An index that does not know the owners of its entries yields the addresses that the design
    /// knows elsewhere.
    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// Returns whether [`Mapping::unmap`] or [`Mapping::suspend`] says yes for any address in a
    /// run. Forgetting that address must then be logged.
    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        let is_trimmed = |run: Run| run.first.0 < first.0.saturating_add(count);
        self.trimmed_from(first).is_some_and(is_trimmed) || !self.mapped_in(first, count).is_empty()
    }

    /// Forgets the mappings of a run, which reads as zeroes until the origin is zeroed. Parts in a
    /// trimmed run have no mappings and cost nothing.
    fn trim(&mut self, run: Run);

    /// Returns how many of `count` chunks from `first` one short [`Mapping::trim`] takes. At most
    /// `mapped_max` of them are mapped.
    fn trim_span(&self, first: Lba, count: u64, mapped_max: usize) -> u64 {
        self.mapped_in(first, count).get(mapped_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Returns whether the LBA index has room for `count` more entries.
    fn has_room(&self, count: u64) -> bool;

    /// Returns the sequence number of `lba`'s dirty data.
    fn dirty_seq(&self, lba: Lba) -> Option<u64>;

    /// Returns up to `max` dirty chunks from `from` on, by address, with their sequence numbers.
    fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)>;

    /// Returns the first trimmed run that ends after `from`.
    fn trimmed_from(&self, from: Lba) -> Option<Run>;

    /// Counts the dirty data.
    fn dirty_counts(&self) -> DirtyCounts;

    /// Marks `lba` clean if `seq` is still its newest sequence number, because the origin has it.
    /// Forgets a fragment then. Returns whether it became clean.
    fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool;

    /// Forgets the rest of `run` under its sequence number, because the origin has the trim.
    fn mark_run_clean(&mut self, run: &Run);
}

/// Unmaps the leaving ones of `mapped`, addresses of a run, and trimmed parts.
///
/// Returns as [`Mapping::unmap_each`].
pub(crate) fn unmap_some<D: Mapping + ?Sized>(
    design: &mut D,
    mut mapped: Vec<Lba>,
    (first, count): (Lba, u64),
    leaving: Leaving,
) -> bool {
    let end = first.0.saturating_add(count);
    let is_owed = |design: &D, lba| {
        design.dirty_seq(lba).is_some() || design.trimmed_from(lba).is_some_and(|run| run.first <= lba)
    };
    mapped.sort_unstable();
    mapped.dedup();
    let mut any = false;
    for lba in mapped {
        if leaving == Leaving::All || !is_owed(design, lba) {
            any |= design.unmap(lba);
        }
    }
    if leaving == Leaving::All && design.trimmed_from(first).is_some_and(|run| run.first.0 < end) {
        design.unmap_run(first, count);
        any = true;
    }
    any
}
