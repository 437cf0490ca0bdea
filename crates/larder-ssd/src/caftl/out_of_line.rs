//! Deduplication out of line (CAFTL section 3.5): fingerprinting and merging in idle time.
//!
//! The same goes on with collection, if the options say so.
//!
//! Role: [`Caftl::use_idle_time`] goes on at its last point, step by step. First it reads and
//! fingerprints pages without fingerprint, which a bit a metadata page shows, and looks each up.
//! When none is left, and enough was written since the last time, it merges. It reads the metadata
//! pages, sorts as many fingerprints at a time as memory holds, writes each sorted run to flash,
//! and merges the runs. Pages with equal fingerprints come side by side and become one. If all fit
//! in memory, no run is written.
//!
//! Invariants: each step leaves everything whole, so that idle time may end after any. A
//! fingerprint may be old by the time it is used: two pages become one only if both are valid and
//! have that fingerprint now. A missed duplicate is found the next time, without harm.
//!
//! Two pages that are both shared have two VBAs. Only the primary table knows the references to
//! one. Such pairs are gathered, and one search of that table serves all of them, at the end of the
//! idle time. The table is in RAM, and the search costs no operation. The paper does not describe
//! this step.
//!
//! [`Caftl::go_on_with_collection`] does the same for a while after a write for which blocks were
//! erased.
//!
//! It does not begin by itself: the owner of the drive tells it of idle time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use hashbrown::HashMap;

use super::{
    Caftl,
    books::PageOwner,
    digest::Digest,
    location::Vba,
    maps::Released,
    merging::{Phase, Run, Sorted},
};
use crate::{
    geometry::Ppa,
    op::{Cause, Hash, OpSink},
};

impl Caftl {
    /// Works until `budget` operations are used or nothing is left; returns the used ones.
    pub(super) fn use_idle_time(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        if self.options.out_of_line { self.go_on(budget, sink) } else { 0 }
    }

    /// Works for as many operations as the blocks that a write erased have pages.
    ///
    /// `erased_before` is the number of erasures when the write began. Collection during the work
    /// adds nothing.
    pub(super) fn go_on_with_collection(&mut self, erased_before: u64, sink: &mut dyn OpSink) {
        let flash = self.space.flash();
        let erased = flash.counts().blocks_erased() - erased_before;
        let pages = u64::from(flash.array().geometry().pages_per_block);
        self.go_on(erased * pages, sink);
    }

    fn go_on(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        let before = self.operations();
        while self.operations() - before < budget && self.step(sink) {
            self.catch_up(sink);
        }
        self.join_vbas();
        self.catch_up(sink);
        self.operations() - before
    }

    fn operations(&self) -> u64 {
        let counts = self.space.flash().counts();
        counts.pages_programmed() + counts.pages_read() + counts.hashes.iter().sum::<u64>()
    }

    /// Does one more step; returns false if there is none.
    fn step(&mut self, sink: &mut dyn OpSink) -> bool {
        match std::mem::take(&mut self.out_of_line.phase) {
            Phase::Rest => {
                let is_wanted = self.books.pages.next_incomplete(0).is_some() || self.merge_is_due();
                if is_wanted {
                    self.out_of_line.phase = Phase::Fingerprint { next: 0 };
                }
                is_wanted
            }
            Phase::Fingerprint { next } => {
                self.out_of_line.phase = match self.books.pages.next_incomplete(next) {
                    Some(metadata_page) => {
                        self.fingerprint_one(metadata_page, sink);
                        Phase::Fingerprint { next: metadata_page }
                    }
                    None if self.merge_is_due() => {
                        self.out_of_line.programmed_before = self.programmed();
                        Phase::Gather { next: 0 }
                    }
                    None => Phase::Rest,
                };
                true
            }
            Phase::Gather { next } => {
                self.gather(next, sink);
                true
            }
            Phase::Write { next, pages } => {
                self.write_run(next, pages, sink);
                true
            }
            Phase::Merge { heads, kept } => {
                self.merge_one(heads, kept, sink);
                true
            }
        }
    }

    fn programmed(&self) -> u64 {
        self.space.flash().counts().programs[Cause::Host as usize]
    }

    fn merge_is_due(&self) -> bool {
        let least = f64::from(self.books.maps.logical_pages()) * self.options.merge_after_percent / 100.0;
        let new = self.programmed() - self.out_of_line.programmed_before;
        new > 0 && new as f64 >= least
    }

    /// Returns true if a page is valid, of data, and has a known fingerprint.
    fn is_fingerprinted_data(&self, ppa: Ppa) -> bool {
        self.is_data(ppa) && self.books.pages.is_known(ppa)
    }

    fn is_data(&self, ppa: Ppa) -> bool {
        self.space.array().is_valid(ppa) && !matches!(self.owner(ppa), PageOwner::Internal(_))
    }

    /// Fingerprints a page of a metadata page; sets its bit if none is left.
    fn fingerprint_one(&mut self, metadata_page: u32, sink: &mut dyn OpSink) {
        let mut pages = self.books.pages.pages_of(metadata_page).map(Ppa);
        let Some(ppa) = pages.find(|&ppa| self.is_data(ppa) && !self.books.pages.is_known(ppa)) else {
            self.books.pages.completed(metadata_page);
            return;
        };
        self.flash().read(ppa, Cause::OutOfLine, sink);
        self.flash().hash(Hash::Sha1, Cause::OutOfLine, sink);
        self.books.pages.fingerprinted(ppa);
        self.books.pages.touch(ppa, true);
        self.books.counts.fingerprinted_idle += 1;
        self.meet(ppa);
    }

    /// Joins a page that was fingerprinted out of line with the store's page, or remembers it.
    pub(super) fn meet(&mut self, ppa: Ppa) {
        if !self.is_fingerprinted_data(ppa) || self.books.pages.is_stored(ppa) {
            return;
        }
        let digest = self.books.pages.digest(ppa);
        let entry = self.books.entry(digest, ppa, self.owner(ppa));
        let Some(found) = self.books.store.look_up(digest) else {
            self.books.remember(entry, ppa);
            return;
        };
        let Some(other) = self.books.maps.resolve(found.location) else { panic!("{found:?} is somewhere") };
        if self.space.array().is_valid(other) {
            self.coalesce(ppa, other);
        } else {
            // The store's page is deleted: this one is better.
            self.books.hand_over(other, ppa);
            self.books.store.change(digest, entry.location, entry.reference);
        }
    }

    /// Makes one page of two valid ones with the same content, if that can be done at once.
    ///
    /// Returns the page that others can join.
    fn coalesce(&mut self, one: Ppa, other: Ppa) -> Ppa {
        debug_assert_eq!(self.books.pages.digest(one), self.books.pages.digest(other));
        let (lpn, gone, vba, kept) = match (self.owner(one), self.owner(other)) {
            (PageOwner::Page(lpn), PageOwner::Shared(vba)) => (lpn, one, vba, other),
            (PageOwner::Shared(vba), PageOwner::Page(lpn)) => (lpn, other, vba, one),
            (PageOwner::Page(lpn), PageOwner::Page(first)) => (lpn, one, self.share(first, other), other),
            (PageOwner::Shared(vba), PageOwner::Shared(into)) => {
                let (vba, into) = (self.out_of_line.last_joined(vba), self.out_of_line.last_joined(into));
                if vba != into {
                    self.out_of_line.joins.insert(vba, into);
                }
                return other;
            }
            owners => panic!("pages {} and {} are of data, not {owners:?}", one.0, other.0),
        };
        let released = self.books.maps.refer(lpn, vba, &mut self.books.log);
        assert_eq!(released, Released::Page(gone), "a page of its own");
        self.space.invalidate(gone);
        self.books.hand_over(gone, kept);
        self.books.references_changed(vba);
        self.books.counts.coalesced += 1;
        kept
    }

    /// Makes one VBA of those with the same content, which may have changed since they were found.
    fn join_vbas(&mut self) {
        if self.out_of_line.joins.is_empty() {
            return;
        }
        let vbas = self.out_of_line.joins.keys().copied();
        let mut joins: Vec<(Vba, Vba)> = vbas.map(|vba| (vba, self.out_of_line.last_joined(vba))).collect();
        self.out_of_line.joins = HashMap::new();
        let content = |vba: Vba| {
            let shared = self.books.maps.shared(vba);
            (shared.references > 0).then(|| self.books.pages.digest(shared.ppa))
        };
        joins.retain(|&(vba, into)| content(vba).is_some() && content(vba) == content(into));
        if joins.is_empty() {
            return;
        }
        joins.sort_unstable();
        let pages: HashMap<Ppa, Vba> =
            joins.iter().map(|&(vba, into)| (self.books.maps.shared(vba).ppa, into)).collect();
        for gone in self.books.maps.join(&joins, &mut self.books.log) {
            let into = pages[&gone];
            self.space.invalidate(gone);
            self.books.hand_over(gone, self.books.maps.shared(into).ppa);
            self.books.counts.coalesced += 1;
        }
        for (_, into) in joins {
            self.books.references_changed(into);
        }
    }

    /// Gathers the fingerprints of a metadata page; sorts once memory is full, or all are there.
    fn gather(&mut self, next: u32, sink: &mut dyn OpSink) {
        let pages = self.books.pages.pages_of(next);
        let first = Ppa(pages.start);
        let known = pages.map(Ppa).filter(|&ppa| self.is_fingerprinted_data(ppa));
        let more: Vec<Sorted> = known.map(|ppa| (self.books.pages.digest(ppa), ppa)).collect();
        if !more.is_empty() {
            self.books.pages.touch(first, false);
            self.catch_up(sink);
        }
        self.out_of_line.gathered.extend(more);
        let next = next + 1;
        let is_last = next == self.books.pages.metadata_pages();
        let is_full = self.out_of_line.gathered.len() >= self.options.sort_fingerprints_max as usize;
        if is_last || is_full {
            self.out_of_line.gathered.sort_unstable();
        }
        self.out_of_line.phase = match (is_last, is_full) {
            (true, _) if self.out_of_line.runs.is_empty() => {
                let sorted = std::mem::take(&mut self.out_of_line.gathered);
                self.out_of_line.runs.push(Run { sorted, next: 0, pages: Vec::new() });
                self.begin_merge(sink)
            }
            (false, false) => Phase::Gather { next },
            _ => Phase::Write { next, pages: Vec::new() },
        };
    }

    /// Programs a page of a run.
    fn write_run(&mut self, next: u32, mut pages: Vec<u32>, sink: &mut dyn OpSink) {
        let wanted = self.out_of_line.gathered.len().div_ceil(self.sizes.sorted_per_page as usize);
        if pages.len() < wanted {
            pages.push(self.program_run(sink));
            self.out_of_line.phase = Phase::Write { next, pages };
            return;
        }
        let sorted = std::mem::take(&mut self.out_of_line.gathered);
        self.out_of_line.runs.push(Run { sorted, next: 0, pages });
        let is_last = next == self.books.pages.metadata_pages();
        self.out_of_line.phase = if is_last { self.begin_merge(sink) } else { Phase::Gather { next } };
    }

    fn begin_merge(&mut self, sink: &mut dyn OpSink) -> Phase {
        let mut heads = BinaryHeap::with_capacity(self.out_of_line.runs.len());
        for run in 0..self.out_of_line.runs.len() {
            heads.extend(self.take_of_run(run, sink).map(|(digest, ppa)| Reverse((digest, ppa, run))));
        }
        Phase::Merge { heads, kept: None }
    }

    /// Takes the next of a run, and reads its page at the page's first.
    fn take_of_run(&mut self, run: usize, sink: &mut dyn OpSink) -> Option<Sorted> {
        let Run { sorted, next, pages } = &mut self.out_of_line.runs[run];
        let found = sorted.get(*next).copied()?;
        let page = *next / self.sizes.sorted_per_page as usize;
        let begins = *next % self.sizes.sorted_per_page as usize == 0;
        *next += 1;
        if let Some(&id) = pages.get(page)
            && begins
        {
            self.read_own(id, Cause::SortRun, sink);
        }
        Some(found)
    }

    /// Merges the next fingerprint of all runs.
    ///
    /// It checks a fingerprint's age only if another is equal: few are.
    fn merge_one(
        &mut self,
        mut heads: BinaryHeap<Reverse<(Digest, Ppa, usize)>>,
        mut kept: Option<Sorted>,
        sink: &mut dyn OpSink,
    ) {
        let Some(mut head) = heads.peek_mut() else {
            self.books.counts.merges += 1;
            self.end_merge();
            return;
        };
        let Reverse((digest, ppa, run)) = *head;
        match self.take_of_run(run, sink) {
            Some((digest, ppa)) => {
                *head = Reverse((digest, ppa, run));
                drop(head);
            }
            None => drop(PeekMut::pop(head)),
        }
        kept = match kept {
            Some((same, other)) if same == digest => Some((digest, self.merged(digest, ppa, other))),
            _ => Some((digest, ppa)),
        };
        self.out_of_line.phase = Phase::Merge { heads, kept };
    }

    /// Joins two pages that had this fingerprint when it was read, if both have it still.
    ///
    /// Returns the page that the next is to join.
    fn merged(&mut self, digest: Digest, ppa: Ppa, other: Ppa) -> Ppa {
        let is_as_read = |ppa: Ppa| self.is_fingerprinted_data(ppa) && self.books.pages.digest(ppa) == digest;
        match (is_as_read(ppa), is_as_read(other)) {
            (true, true) if ppa != other => self.coalesce(ppa, other),
            (true, _) => ppa,
            (false, _) => other,
        }
    }

    /// Drops gathered and sorted fingerprints, and the runs in flash.
    fn end_merge(&mut self) {
        self.out_of_line.gathered = Vec::new();
        let unfinished = match std::mem::take(&mut self.out_of_line.phase) {
            Phase::Write { pages, .. } => pages,
            _ => Vec::new(),
        };
        let runs = std::mem::take(&mut self.out_of_line.runs);
        for id in runs.into_iter().flat_map(|run| run.pages).chain(unfinished) {
            self.give_up_own(id);
        }
    }
}
