//! [`Decider`]: a design, and the [ledger](Ledger) of the data that the origin lacks.
//!
//! Engine and simulator decide through it. A verb changes both parts at once, so neither is ever
//! ahead of the other. The design learns from a verb only whether a mapping is dirty.
//!
//! The decider answers each question that changes nothing as its design does. Its own answers come
//! before those of the design: they include trimmed runs, which read as zeroes.
//!
//! Invariants: a chunk is in the ledger exactly while its mapping is dirty. In a restart that
//! holds from [`Decider::confirm_dirty`] to the next change. No mapped address is in a trimmed run.
//!
//! It does not choose: the design does.

mod memory;
mod passed;
mod provisional;
mod selective;

use crate::{
    design::{Deferred, Design, DesignStats, DirtyCounts, Hit, Leaving, Lookup, NewMapping},
    ledger::Ledger,
    ranges::Run,
    types::{Lba, SlotId, StreamClass},
};
use std::ops::Deref;

/// See the module.
pub struct Decider<D: Design + ?Sized = dyn Design> {
    ledger: Ledger,
    design: Box<D>,
    /// True if the design may name a mapping for an address that it was never told of.
    is_provisional: bool,
}

impl<D: Design + ?Sized> Decider<D> {
    /// Creates a decider for an empty design. The origin lacks nothing.
    pub fn new(design: Box<D>) -> Self {
        Decider::with_ledger(design, Ledger::default())
    }

    /// Creates a decider for a design and a ledger that has the dirty mappings of the design.
    pub fn with_ledger(design: Box<D>, ledger: Ledger) -> Self {
        let is_provisional = design.provisional().is_some();
        Decider { ledger, design, is_provisional }
    }

    /// Returns the answer for `lba` from that of the design.
    ///
    /// No mapped address is in a run. A provisional design may name another address's mapping.
    #[inline]
    fn answer(&self, lba: Lba, found: Lookup) -> Lookup {
        let is_sure = found != Lookup::Miss && !self.is_provisional;
        if !is_sure && self.ledger.is_trimmed(lba) { Lookup::Zero } else { found }
    }

    /// Returns the mapping of `lba`. Counts as a use.
    pub fn lookup(&mut self, lba: Lba) -> Lookup {
        let found = self.design.lookup(lba);
        self.answer(lba, found)
    }

    /// Returns the mapping of `lba` as [`Decider::lookup`] does. Does not count as a use.
    pub fn peek(&self, lba: Lba) -> Lookup {
        self.answer(lba, self.design.peek(lba))
    }

    /// Returns a chunk as [`Mapping::hit`](crate::design::Mapping::hit).
    pub fn hit(&self, lba: Lba) -> Option<Hit> {
        let hit = self.design.hit(lba)?;
        (!self.is_provisional || !self.ledger.is_trimmed(lba)).then_some(hit)
    }

    /// Maps `lba`; a write that the origin lacks has a sequence number. Replaces an older mapping
    /// or a trimmed run of the address.
    pub fn map(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) {
        drop(self.map_deferring(lba, new, dirty_seq));
    }

    /// Maps as [`Decider::map`], and returns the part of it that may run beside later decisions.
    ///
    /// Until that part is done, the caller on this thread asks only for dirty state, room and
    /// changed metadata slots.
    pub fn map_deferring(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred {
        let is_fragment = matches!(new, NewMapping::Fragment { .. });
        match dirty_seq {
            Some(seq) if new == NewMapping::Zero && !self.keeps_zeroes() => {
                self.design.unmap_run(lba, 1);
                self.ledger.trim(Run { first: lba, count: 1, seq, no_hole: true, advisory: false });
                return Deferred::nothing();
            }
            Some(seq) => self.ledger.write(lba, seq, is_fragment),
            None => _ = self.ledger.forget(lba),
        }
        if let Some(design) = self.design.provisional_mut() {
            return design.map_deferring(lba, new, dirty_seq);
        }
        self.design.map(lba, new, dirty_seq.is_some());
        Deferred::nothing()
    }

    /// Forgets `lba`. Returns whether it was mapped or trimmed, or a crash might bring that back.
    pub fn unmap(&mut self, lba: Lba) -> bool {
        let was_mapped = self.design.unmap(lba);
        self.ledger.forget(lba) || was_mapped
    }

    /// Forgets `lba` as [`Mapping::suspend`](crate::design::Mapping::suspend). Returns as
    /// [`Decider::unmap`].
    pub fn suspend(&mut self, lba: Lba) -> bool {
        let was_mapped = self.design.suspend(lba);
        self.ledger.forget(lba) || was_mapped
    }

    /// Forgets a run of chunks of any length, trimmed parts included.
    pub fn unmap_run(&mut self, first: Lba, count: u64) {
        self.design.unmap_run(first, count);
        self.ledger.forget_run(first, count);
    }

    /// Unmaps each address of a run of any length, at the cost of its mapped chunks. Returns
    /// whether the log names one of them; for a long run, it may return true without need.
    pub fn unmap_each(&mut self, first: Lba, count: u64, leaving: Leaving) -> bool {
        let Decider { ledger, design, .. } = self;
        match leaving {
            Leaving::Clean => design.unmap_each(first, count, &|lba| !ledger.is_owed(lba)),
            Leaving::All => {
                let was_mapped = design.unmap_each(first, count, &|_| true);
                let was_trimmed = ledger.is_trimmed_in(first, count);
                if was_trimmed {
                    design.unmap_run(first, count);
                }
                ledger.forget_run(first, count);
                was_mapped || was_trimmed
            }
        }
    }

    /// Returns whether [`Decider::unmap`] or [`Decider::suspend`] says yes for any address in a
    /// run. Forgetting that address must then be logged.
    pub fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        self.ledger.is_trimmed_in(first, count) || self.design.is_forgetting_logged(first, count)
    }

    /// Forgets the mappings of a run, which reads as zeroes until the origin is zeroed. Parts in a
    /// trimmed run have no mappings and cost nothing.
    ///
    /// A restart of a provisional design forgets the whole run. A checkpoint may hold a run that an
    /// earlier frame of the log trims later. The trim removed the mappings of other addresses with
    /// the same hash, and the log does not list them. A lookup would find such a mapping after a
    /// write to its address.
    pub fn trim(&mut self, run: Run) {
        let forgotten = match self.is_provisional && self.ledger.is_restoring() {
            true => vec![(run.first, run.count)],
            false => self.ledger.untrimmed(run.first, run.count),
        };
        forgotten.into_iter().for_each(|(first, count)| self.design.unmap_run(first, count));
        self.ledger.trim(run);
    }

    /// Returns the sequence number of `lba`'s dirty data.
    pub fn dirty_seq(&self, lba: Lba) -> Option<u64> {
        self.ledger.seq(lba)
    }

    /// Returns up to `max` dirty chunks from `from` on, by address, with their sequence numbers.
    pub fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        self.ledger.dirty_from(from, max)
    }

    /// Returns the first trimmed run that ends after `from`.
    pub fn trimmed_from(&self, from: Lba) -> Option<Run> {
        self.ledger.trimmed_from(from)
    }

    /// Returns the trimmed runs, by address.
    pub fn export_runs(&self) -> Vec<Run> {
        self.ledger.runs().collect()
    }

    /// Counts the dirty data.
    pub fn dirty_counts(&self) -> DirtyCounts {
        self.ledger.counts()
    }

    /// Marks `lba` clean if `seq` is still its newest sequence number, because the origin has it.
    /// Forgets a fragment then. Returns whether it became clean.
    pub fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool {
        self.confirm_dirty();
        let is_newest = self.ledger.clean(lba, seq);
        if is_newest {
            self.design.mark_clean(lba);
        }
        is_newest
    }

    /// Forgets the rest of `run` under its sequence number, because the origin has the trim.
    pub fn mark_run_clean(&mut self, run: &Run) {
        self.ledger.clean_run(run);
    }

    /// Begins recovery and makes room for so many mappings and fingerprints. From now on, dirty
    /// state is known only after [`Decider::confirm_dirty`].
    pub fn begin_restore(&mut self, mappings: u64, fingerprints: u64) {
        self.ledger.begin_restore();
        self.design.begin_restore(mappings, fingerprints);
    }

    /// Recovery: makes dirty state known.
    pub fn confirm_dirty(&mut self) {
        self.ledger.confirm(|lba| self.design.is_dirty(lba));
    }

    /// Recovery: restores a slot as
    /// [`Persist::restore_slot`](crate::design::Persist::restore_slot).
    pub fn restore_slot(&mut self, slot: SlotId, generation: u32, class: Option<StreamClass>) -> bool {
        let Decider { ledger, design, .. } = self;
        design.restore_slot(slot, generation, class, &mut |lba| _ = ledger.forget(lba))
    }

    /// Recovery: frees a slot as [`Persist::restore_freed`](crate::design::Persist::restore_freed).
    pub fn restore_freed(&mut self, slot: SlotId, generation: u32) {
        let Decider { ledger, design, .. } = self;
        design.restore_freed(slot, generation, &mut |lba| _ = ledger.forget(lba));
    }

    /// Ends recovery.
    pub fn end_restore(&mut self) {
        self.design.end_restore(&|lba| self.ledger.is_trimmed(lba));
        self.ledger.end_restore(|lba| self.design.is_dirty(lba));
    }

    /// Returns the counts.
    pub fn stats(&self) -> DesignStats {
        let (stats, dirty) = (self.design.stats(), self.ledger.counts());
        DesignStats {
            dirty_chunks: dirty.chunks,
            trimmed_chunks: dirty.run_chunks,
            dirty_ram_bytes: stats.dirty_ram_bytes + self.ledger.ram_bytes() as u64,
            ..stats
        }
    }
}

impl<D: Design + ?Sized> Deref for Decider<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.design
    }
}
