//! The executor as a cache under replay: one request of a client, with all that follows from it.
//!
//! Invariants: a request leaves nothing behind that the engine would do at once. Device requests
//! have the client that waits for them.
//!
//! It does not know the steps; the files beside it do.

use super::{Executor, ExecutorOptions};
use crate::{
    cache::{CacheFigures, Content, ReplayCache, WritePolicy},
    devices::{DeviceAction, Requests, Waits},
    traffic::Traffic,
};
use larder_core::{Lba, Lookup, design::Question, limits::TRIMMED_AT_ONCE, ranges::Run};
use std::ops::Range;

/// Bits of an address that a volume has, and those of them within a region of far addresses.
const VOLUME_BITS: u32 = 40;
const REGION_BITS: u32 = 34;

impl Executor {
    /// Returns the address in the volume for one of a trace.
    ///
    /// A trace of several disks has addresses beyond the largest volume. Their regions lie behind
    /// each other at its end, in the order in which they come.
    #[inline]
    fn in_volume(&mut self, lba: Lba) -> Lba {
        if lba.0 >> VOLUME_BITS == 0 { lba } else { self.far(lba) }
    }

    #[cold]
    fn far(&mut self, lba: Lba) -> Lba {
        let next = self.far_regions.len() as u64;
        let number = *self.far_regions.entry(lba.0 >> REGION_BITS).or_insert(next);
        let regions = 1 << (VOLUME_BITS - REGION_BITS);
        let region = regions - 1 - number % regions;
        Lba(region << REGION_BITS | lba.0 & ((1 << REGION_BITS) - 1))
    }
}

impl ReplayCache for Executor {
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        let lba = self.in_volume(lba);
        self.asked.for_whom(Waits::Client);
        if let Some(place) = self.confirmed_hit(lba) {
            self.count_record_read(&place);
            return true;
        }
        self.inform(Question::Address(lba));
        let found = self.look_up(lba, false);
        self.decided(lba, false);
        match found {
            Lookup::Chunk { place, .. } => {
                self.count_record_read(&place);
                true
            }
            Lookup::Zero => true,
            Lookup::Miss | Lookup::Fragment { .. } => {
                self.traffic.origin_chunks_read += 1;
                self.asked.origin(DeviceAction::Read, lba, 1);
                self.asked.for_whom(Waits::Nobody);
                self.traffic.ghost_hits += u64::from(self.design.is_ghost(lba));
                self.insert(lba, content, false);
                false
            }
        }
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        let lba = self.in_volume(lba);
        // Addresses in a trimmed run read as zeroes, but are not cached: they have neither data nor
        // an entry.
        let hit = match self.design.peek(lba) {
            // A provisional design knows no more without a read, which a write needs not.
            Lookup::Miss => self.design.slot_of(lba).is_some() || self.design.remembered(lba).is_some(),
            Lookup::Zero => self.run_of(lba).is_none(),
            Lookup::Chunk { .. } | Lookup::Fragment { .. } => true,
        };
        let is_inserted = self.options.policy != WritePolicy::Around;
        self.traffic.ghost_hits += u64::from(is_inserted && !hit && self.design.is_ghost(lba));
        match self.options.policy {
            WritePolicy::Back => {
                self.asked.for_whom(Waits::Nobody);
                self.insert(lba, content, true);
                self.destage_some();
            }
            WritePolicy::Through | WritePolicy::Around => {
                self.asked.for_whom(Waits::Client);
                if is_inserted {
                    self.suspend(lba);
                } else {
                    self.forget(lba, 1);
                }
                self.traffic.origin_chunks_written += 1;
                self.asked.origin(DeviceAction::Write, lba, 1);
                self.asked.for_whom(Waits::Nobody);
                if self.options.policy == WritePolicy::Through {
                    self.insert(lba, content, false);
                }
            }
        }
        hit
    }

    fn trim(&mut self, lba: Lba) {
        self.trim_run(lba, 1);
    }

    fn trim_run(&mut self, first: Lba, count: u64) {
        let first = self.in_volume(first);
        let end = first.0 + count;
        if self.options.policy != WritePolicy::Back {
            self.asked.for_whom(Waits::Client);
            self.forget(first, count);
            self.asked.origin(DeviceAction::Trim, first, count);
            return;
        }
        self.asked.for_whom(Waits::Nobody);
        for at in (first.0..end).step_by(TRIMMED_AT_ONCE as usize) {
            let seq = self.next_seq;
            self.next_seq += 1;
            let count = TRIMMED_AT_ONCE.min(end - at);
            self.design.trim(Run::new(Lba(at), count, seq));
            self.dirty.in_run(Lba(at), count).into_iter().for_each(|lba| self.tell_dirty(lba));
            self.pending += 1;
            self.destage_some();
        }
    }

    /// Forgets the chunk. The engine may keep it, with zeroes in the part; here its content is
    /// unknown.
    fn trim_part(&mut self, lba: Lba) {
        let lba = self.in_volume(lba);
        self.asked.for_whom(Waits::Client);
        if let Some(seq) = self.design.dirty_seq(lba) {
            self.destage(std::iter::once((lba, seq)));
        }
        if let Some(run) = self.run_of(lba) {
            self.destage_run(Run { first: lba, count: 1, ..run });
        }
        self.forget(lba, 1);
    }

    fn flush(&mut self) {
        self.asked.for_whom(Waits::Flush);
        if self.options.policy != WritePolicy::Back {
            self.asked.flush_origin();
            return;
        }
        self.close_for_commit(false);
        self.commit();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> CacheFigures {
        self.count_figures()
    }

    fn gather(&mut self, on: bool) {
        self.asked.turn(on);
    }

    fn take_requests(&mut self, into: &mut Requests) {
        self.asked.take(into);
    }

    fn flash_span_bytes(&self) -> u64 {
        self.asked.end_of(self.options.slot_count)
    }

    fn flash_data_range(&self) -> Range<u64> {
        self.asked.end_of(0)..self.flash_span_bytes()
    }

    fn flash_weu_bytes(&self) -> Option<u64> {
        // A slot for one record, or an extent, is no longer than its chunk.
        let ExecutorOptions { chunk_bytes, rules, .. } = &self.options;
        (rules.slot_bytes > *chunk_bytes).then_some(rules.slot_bytes.into())
    }

    fn advise_victim(&mut self, bytes: Range<u64>) {
        self.advise(&bytes);
    }

    fn expect_drops(&mut self) -> bool {
        if self.options.store.forgets_drops {
            self.dirty.turn_on();
        }
        self.options.store.forgets_drops
    }

    fn evict_range(&mut self, bytes: Range<u64>) {
        self.evict_all_in(&bytes);
    }

    fn clean_range(&mut self, bytes: Range<u64>) {
        self.clean_all_in(&bytes);
    }
}
