//! The provisional part of an AustereCache: its metadata slots on flash, and runs freed ahead.
//!
//! Invariants: those of [`Bucketed`].
//!
//! It leaves the agreement of indices, entries and exact data to `bucketed.rs`.

use super::{
    super::fp_index::SlotRun,
    Bucketed, HEAD_PAGES, Wish,
    decisions::hit_at,
    entries::{EntryState, Until},
};
use crate::{
    design::{Deferred, Hit, Lookup, Mapping, NewMapping, Provisional, Question, Use, Wanted},
    region::RegionEntry,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};
use std::sync::Arc;

impl Provisional for Bucketed {
    fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit> {
        if self.exact.get(lba) != Lookup::Miss {
            return self.hit(lba);
        }
        let run = self.run_of(lba).filter(|run| run.first == slot.0 && entry.place.slot == slot)?;
        let newer = self.entries.unwritten(slot);
        let entry = newer.as_deref().unwrap_or(entry);
        let is_its = self.indices.core.is_run_of(run, entry.metadata.fingerprint()) && entry.metadata.has(lba);
        is_its.then(|| hit_at(lba, entry.place))
    }

    fn use_now(&self, hit: &Use) -> bool {
        match self.run_of(hit.lba) {
            None => true,
            // A lookup uses up the entry that was read for it.
            Some(run) if self.entries.state(SlotId(run.first)) == EntryState::Unwritten => false,
            Some(_) => {
                self.indices.core.touch(hit.lba);
                true
            }
        }
    }

    fn slot_of(&self, lba: Lba) -> Option<SlotId> {
        match self.exact.get(lba) {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot),
            Lookup::Zero => None,
            Lookup::Miss => self.run_of(lba).map(|run| SlotId(run.first)),
        }
    }

    fn maps_to(&self, lba: Lba, place: &Place, fingerprint: &Fingerprint) -> bool {
        match self.exact.get(lba) {
            Lookup::Chunk { place: now, .. } => now == *place,
            Lookup::Miss => self
                .run_of(lba)
                .is_some_and(|run| run.first == place.slot.0 && self.indices.core.is_run_of(run, fingerprint)),
            _ => false,
        }
    }

    fn unread(&self, question: Question<'_>) -> Option<SlotId> {
        self.unread_for(question)
    }

    fn tell(&mut self, slot: SlotId, entry: Option<Arc<RegionEntry>>) {
        // A run that left meanwhile needs no entry.
        if self.indices.core.run_from(slot.0).is_some() && !self.retired.contains(&slot) {
            self.entries.read(slot, entry.filter(|entry| entry.place.slot == slot));
        }
    }

    fn next_changed_entry(&mut self) -> Option<Arc<RegionEntry>> {
        self.entries.next_changed()
    }

    fn entry_to_write(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.entries.to_write(slot)
    }

    fn entry_written(&mut self, entry: &Arc<RegionEntry>) {
        self.entries.written(entry);
    }

    fn held_at(&self, lba: Lba) -> Option<SlotId> {
        self.entries.held_at(lba)
    }

    fn spoil(&mut self, place: &Place) {
        self.spoil_run(place);
    }

    fn held_entries(&self) -> usize {
        self.entries.held()
    }

    fn settle(&mut self, lba: Lba, is_durable: bool) {
        match is_durable {
            true => self.settle_held(lba),
            false => self.entries.drop_held(lba),
        }
    }

    fn committed(&mut self, upto: u64) {
        while let Some(lba) = self.entries.next_committed(upto) {
            self.settle_held(lba);
        }
    }

    fn keeps_zeroes(&self) -> bool {
        false
    }

    fn map_deferring(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred {
        self.map_as(lba, new, dirty_seq.is_some(), dirty_seq.map_or(Until::Told, Until::Committed))
    }

    fn open_slot_for(&mut self, _class: StreamClass, wanted: &Wanted) -> Option<(SlotId, u32)> {
        let fingerprint = self.content_of(wanted);
        let slots = self.indices.core.slots_for(wanted.stored_len);
        if self.indices.core.find_content(&fingerprint).is_none()
            && let Some(SlotRun { first, .. }) = self.indices.core.store(&fingerprint, slots)
        {
            self.wishes.remove(&wanted.lba);
            self.indices.due.lock().look_at(SlotId(first));
            let generation = self.generation;
            self.generation = generation.wrapping_add(1);
            return Some((SlotId(first), generation));
        }
        let is_new = |wish: &Wish| (wish.fingerprint, wish.slots) != (fingerprint, slots);
        if self.wishes.get(&wanted.lba).is_none_or(is_new) {
            self.wishes.insert(wanted.lba, Wish { fingerprint, slots, victims: Vec::new(), is_mapped: false });
        }
        self.map_wish(wanted.lba);
        None
    }

    fn is_freeing_due(&self) -> bool {
        self.ahead.has_room() && self.indices.due.lock().are_enough()
    }

    fn likely_victims(&mut self, max: usize) -> Vec<SlotId> {
        self.next_to_go(max)
    }

    fn free_ahead(&mut self, slot: SlotId, seq: u64) -> Option<u32> {
        self.free_run(slot, seq)
    }

    fn in_the_way(&self, lba: Lba) -> Vec<SlotId> {
        self.in_the_way_for(lba)
    }

    fn is_freed(&mut self, slot: SlotId, durable_below: u64) -> bool {
        self.ahead.is_durable(slot, durable_below)
    }

    fn reuse(&mut self, slots: &[SlotId]) {
        self.reuse_runs(slots);
    }

    fn keep(&mut self, slot: SlotId) {
        self.ahead.keep(slot);
    }

    fn keep_all(&mut self) {
        self.ahead.keep_all();
    }

    fn page_count(&self) -> usize {
        HEAD_PAGES + self.indices.core.page_count()
    }

    fn export_page(&self, page: usize) -> Vec<u8> {
        match page.checked_sub(HEAD_PAGES) {
            None => self.generation.to_le_bytes().to_vec(),
            Some(page) => {
                // The log from here on may lack the entries that freed these runs.
                let is_freed = |first| self.ahead.has(SlotId(first));
                self.indices.core.export_page(page, |key| self.suspended.contains(&key), is_freed)
            }
        }
    }

    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        match (page.checked_sub(HEAD_PAGES), bytes.first_chunk()) {
            (None, Some(generation)) => {
                self.generation = self.generation.max(u32::from_le_bytes(*generation));
                true
            }
            (None, None) => false,
            (Some(page), _) => {
                self.is_uncounted = true;
                self.indices.core.restore_page(page, bytes)
            }
        }
    }

    fn stored_runs(&self) -> Vec<(SlotId, u32)> {
        self.indices.core.runs().map(|run| (SlotId(run.first), run.count)).collect()
    }

    fn is_found_in(&self, slot: SlotId, fingerprint: &Fingerprint) -> bool {
        self.indices.core.run_from(slot.0).is_some_and(|run| self.indices.core.is_run_of(run, fingerprint))
    }

    fn forget_clean(&mut self, is_wrong: &dyn Fn(SlotId) -> bool) {
        self.count();
        let wrong: Vec<SlotRun> = self.indices.core.runs().filter(|run| is_wrong(SlotId(run.first))).collect();
        for run in wrong {
            self.forget_what_was_in(SlotId(run.first));
            self.indices.core.evict(run);
        }
        self.reserve_exact();
    }
}
