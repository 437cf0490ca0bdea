//! The ledger: all data that the origin lacks, by address (Nitro §3.1, "dirty list").
//!
//! It has each dirty chunk with the sequence number of its write, and the trimmed runs. It is the
//! same for each design, so a design has none of it.
//!
//! A restart maps chunks in no order. Listing each at once would take longer than the rest of a
//! mapping, so the ledger defers them until it is [confirmed](Ledger::confirm).
//!
//! Invariants: an address is dirty, or in a trimmed run, or neither. Dirty chunks and runs are in
//! the order of their addresses. The RAM of a dirty chunk is bounded ([`DIRTY_BYTES_MAX`]), and the
//! RAM of a run is, too.
//!
//! It leaves the location of dirty data to the design, and the bounds on its own size to writers.

use crate::{
    design::DirtyCounts,
    pages::{PageMap, key_bytes_max},
    ranges::{RUN_BYTES_MAX, Run, RunMap},
    types::{Lba, SectorMap},
};

/// Factor by which the list must exceed the deferred chunks so that they are listed one by one.
const SETTLED_ALONE_SHARE: usize = 8;
/// The flag of a fragment in a listed number. Sequence numbers have 63 bits.
const FRAGMENT: u64 = 1 << 63;

/// Index entries per dirty chunk at most. Beyond it, a cache holds back writers.
pub const DIRTY_SHARE: usize = 2;
/// Index entries per fragment at most.
pub const FRAGMENT_SHARE: usize = 4;
/// Index entries per trimmed run at most.
pub const RUN_SHARE: usize = 16;
/// Bytes of RAM for each of many dirty chunks at most.
pub const DIRTY_BYTES_MAX: usize = key_bytes_max(size_of::<u64>());
/// Bytes of RAM for each of many fragments at most, in the index of a design.
const FRAGMENT_BYTES_MAX: usize = key_bytes_max(size_of::<SectorMap>());
/// Bytes of RAM for dirty list, fragments and trimmed runs at most, for each entry of the index.
///
/// Writers are held back beyond one dirty entry in [`DIRTY_SHARE`], one fragment in
/// [`FRAGMENT_SHARE`] or one run in [`RUN_SHARE`].
pub const DIRTY_SHARE_BYTES_MAX: u64 =
    (DIRTY_BYTES_MAX / DIRTY_SHARE + FRAGMENT_BYTES_MAX / FRAGMENT_SHARE + RUN_BYTES_MAX / RUN_SHARE) as u64 + 1;

/// See the module.
#[derive(Default)]
pub struct Ledger {
    /// Sequence numbers of dirty chunks, with the flag of a fragment.
    listed: PageMap<u64>,
    /// Fragments among them.
    fragments: u64,
    /// Chunks that a restart mapped, oldest first, with numbers as in the list.
    deferred: Vec<(u64, u64)>,
    is_restoring: bool,
    trimmed: RunMap,
}

impl Ledger {
    /// Notes a write of `lba` that the origin lacks, under its sequence number.
    pub fn write(&mut self, lba: Lba, seq: u64, is_fragment: bool) {
        self.untrim(lba);
        let number = seq & !FRAGMENT | if is_fragment { FRAGMENT } else { 0 };
        match self.is_restoring {
            true => self.deferred.push((lba.0, number)),
            false => self.list(lba.0, number),
        }
    }

    /// Forgets `lba`, as it has no dirty data any more and is in no run. Returns whether it was
    /// there.
    pub fn forget(&mut self, lba: Lba) -> bool {
        let was_trimmed = self.untrim(lba);
        self.unlist(lba) || was_trimmed
    }

    /// Forgets a run of chunks of any length.
    pub fn forget_run(&mut self, first: Lba, count: u64) {
        self.unlist_run(first, count);
        self.trimmed.remove(first, count);
    }

    /// Notes the trim of a run, under the sequence number of the run.
    pub fn trim(&mut self, run: Run) {
        self.unlist_run(run.first, run.count);
        self.trimmed.insert(run);
    }

    /// Takes `lba` off the list if `seq` is still its newest sequence number. Returns whether it
    /// was.
    pub fn clean(&mut self, lba: Lba, seq: u64) -> bool {
        self.seq(lba) == Some(seq) && self.unlist(lba)
    }

    /// Forgets the rest of `run` under its sequence number.
    pub fn clean_run(&mut self, run: &Run) {
        self.trimmed.remove_if_unchanged(run);
    }

    /// Returns the sequence number of `lba`'s dirty data.
    pub fn seq(&self, lba: Lba) -> Option<u64> {
        self.listed.get(lba.0).map(|number| number & !FRAGMENT)
    }

    /// Returns up to `max` dirty chunks from `from` on, by address, with their sequence numbers.
    pub fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        let mut chunks = Vec::with_capacity(max.min(self.listed.len()));
        let listed = self.listed.iter_from(from.0).take(max);
        chunks.extend(listed.map(|(lba, number)| (Lba(lba), number & !FRAGMENT)));
        chunks
    }

    /// Returns whether `lba` is in a trimmed run.
    #[inline]
    pub fn is_trimmed(&self, lba: Lba) -> bool {
        !self.trimmed.is_empty() && self.trimmed.get(lba).is_some()
    }

    /// Returns whether the origin lacks the state of `lba`.
    pub fn is_owed(&self, lba: Lba) -> bool {
        self.listed.get(lba.0).is_some() || self.is_trimmed(lba)
    }

    /// Returns the first trimmed run that ends after `from`.
    pub fn trimmed_from(&self, from: Lba) -> Option<Run> {
        self.trimmed.next(from)
    }

    /// Returns whether a trimmed run reaches into a run.
    pub fn is_trimmed_in(&self, first: Lba, count: u64) -> bool {
        count > 0 && self.trimmed_from(first).is_some_and(|run| run.first.0 < first.0.saturating_add(count))
    }

    /// Returns the parts of a run that are in no trimmed run, by address.
    pub fn untrimmed(&self, first: Lba, count: u64) -> Vec<(Lba, u64)> {
        self.trimmed.gaps(first, count)
    }

    /// Returns the trimmed runs, by address.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.trimmed.iter()
    }

    /// Counts the dirty data.
    pub fn counts(&self) -> DirtyCounts {
        DirtyCounts {
            chunks: self.listed.len() as u64,
            fragments: self.fragments,
            runs: self.trimmed.len() as u64,
            run_chunks: self.trimmed.chunks(),
            advisory: self.trimmed.advisory(),
        }
    }

    /// Returns the bytes that the ledger has allocated.
    pub fn ram_bytes(&self) -> usize {
        let deferred = self.deferred.capacity() * size_of::<(u64, u64)>();
        self.listed.ram_bytes() + deferred + self.trimmed.ram_bytes()
    }

    /// Begins a restart. From now on, dirty chunks are known only after [`Ledger::confirm`].
    pub fn begin_restore(&mut self) {
        self.is_restoring = true;
    }

    /// Lists the deferred chunks that `is_dirty` confirms, each with its newest number.
    pub fn confirm(&mut self, is_dirty: impl Fn(Lba) -> bool) {
        if self.deferred.is_empty() {
            return;
        }
        let mut deferred = std::mem::take(&mut self.deferred);
        // Stable: the newest entry of a chunk stays last.
        deferred.sort_by_key(|&(lba, _)| lba);
        let newest = deferred
            .iter()
            .enumerate()
            .filter(|&(i, &(lba, _))| deferred.get(i + 1).is_none_or(|&(next, _)| next != lba) && is_dirty(Lba(lba)));
        let newest = newest.map(|(_, &entry)| entry);
        if deferred.len() < self.listed.len() / SETTLED_ALONE_SHARE {
            newest.for_each(|(lba, number)| self.list(lba, number));
            return;
        }
        // A rebuild in order fills the pages from first to last.
        let listed = std::mem::take(&mut self.listed);
        self.fragments = 0;
        let mut old = listed.iter_from(0).peekable();
        for (lba, number) in newest {
            while let Some((before, number)) = old.next_if(|&(other, _)| other <= lba) {
                self.list(before, number);
            }
            self.list(lba, number);
        }
        old.for_each(|(lba, number)| self.list(lba, number));
    }

    /// Returns whether a restart is under way.
    pub fn is_restoring(&self) -> bool {
        self.is_restoring
    }

    /// Ends a restart, [confirmed](Ledger::confirm).
    pub fn end_restore(&mut self, is_dirty: impl Fn(Lba) -> bool) {
        self.confirm(is_dirty);
        self.is_restoring = false;
    }

    fn list(&mut self, lba: u64, number: u64) {
        let old = self.listed.insert(lba, number).unwrap_or_default();
        self.fragments += u64::from(number & FRAGMENT != 0);
        self.fragments -= u64::from(old & FRAGMENT != 0);
    }

    fn unlist(&mut self, lba: Lba) -> bool {
        if self.listed.is_empty() {
            return false;
        }
        let Some(number) = self.listed.remove(lba.0) else { return false };
        self.fragments -= u64::from(number & FRAGMENT != 0);
        true
    }

    fn unlist_run(&mut self, first: Lba, count: u64) {
        let end = first.0.saturating_add(count);
        let listed = self.listed.iter_from(first.0).map(|(lba, _)| Lba(lba));
        let inside: Vec<Lba> = listed.take_while(|lba| lba.0 < end).collect();
        inside.into_iter().for_each(|lba| _ = self.unlist(lba));
    }

    #[inline]
    fn untrim(&mut self, lba: Lba) -> bool {
        !self.trimmed.is_empty() && self.trimmed.remove(lba, 1) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deferred_chunk_is_listed_once_with_its_newest_number() {
        for before in [0, 1, 100] {
            let mut ledger = Ledger::default();
            (1000..1000 + before).for_each(|lba| ledger.write(Lba(lba), 1, false));
            ledger.begin_restore();
            for (lba, seq) in [(7, 2), (3, 3), (7, 4), (9, 5), (1000, 6)] {
                ledger.write(Lba(lba), seq, lba == 3);
            }
            assert_eq!(ledger.seq(Lba(7)), None);
            ledger.confirm(|lba| lba != Lba(9));
            assert_eq!(ledger.dirty_from(Lba(0), 3), [(Lba(3), 3), (Lba(7), 4), (Lba(1000), 6)]);
            assert_eq!((ledger.counts().chunks, ledger.counts().fragments), (3 + before.max(1) - 1, 1));
            ledger.write(Lba(4), 7, true);
            ledger.end_restore(|lba| lba != Lba(4));
            assert_eq!((ledger.counts().chunks, ledger.counts().fragments), (3 + before.max(1) - 1, 1));
            ledger.write(Lba(5), 7, true);
            assert_eq!(ledger.seq(Lba(5)), Some(7), "a write after the restart is listed at once");
        }
    }
}
