//! The answers of a [`Decider`] that may need a metadata slot of the flash.
//!
//! Invariants: for a design without a [provisional](crate::design::Provisional) part, the decider
//! answers as the other parts of the design do. A trimmed run is exact, so it comes before a
//! provisional answer.
//!
//! It does not read the flash.

use super::Decider;
#[cfg(doc)]
use crate::design::Provisional;
use crate::{
    design::{Design, Hit, Lookup, Question, Use, Wanted},
    region::RegionEntry,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};
use std::sync::Arc;

impl<D: Design + ?Sized> Decider<D> {
    /// Returns whether forgetting `lba` surely is [not logged](Decider::is_forgetting_logged). A
    /// mapping that it gets now is the only one that a crash could bring back.
    ///
    /// A provisional design never says so. There addresses share an index entry: forgetting one
    /// forgets the logged mapping of another.
    pub fn is_forgotten(&self, lba: Lba) -> bool {
        self.design.provisional().is_none() && !self.is_forgetting_logged(lba, 1)
    }

    /// Asks [`Provisional::slot_of`], else answers as the design's other parts do.
    pub fn slot_of(&self, lba: Lba) -> Option<SlotId> {
        match self.design.provisional() {
            Some(_) if self.ledger.is_trimmed(lba) => None,
            Some(design) => design.slot_of(lba),
            None => match self.peek(lba) {
                Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot),
                Lookup::Zero | Lookup::Miss => None,
            },
        }
    }

    /// Asks [`Provisional::hit_with`]; none without it.
    pub fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit> {
        let design = self.design.provisional().filter(|_| !self.ledger.is_trimmed(lba));
        design.and_then(|design| design.hit_with(lba, slot, entry))
    }

    /// Asks [`Provisional::use_now`]; false without it.
    pub fn use_now(&self, hit: &Use) -> bool {
        self.design.provisional().is_some_and(|design| design.use_now(hit))
    }

    /// Asks [`Provisional::maps_to`], else answers as the design's other parts do.
    pub fn maps_to(&self, lba: Lba, place: &Place, fingerprint: &Fingerprint) -> bool {
        match self.design.provisional() {
            Some(design) => design.maps_to(lba, place, fingerprint) && !self.ledger.is_trimmed(lba),
            None => matches!(self.peek(lba), Lookup::Chunk { place: now, .. } if now == *place),
        }
    }

    /// Asks [`Provisional::keeps_zeroes`]; true without it.
    pub(super) fn keeps_zeroes(&self) -> bool {
        self.design.provisional().is_none_or(|design| design.keeps_zeroes())
    }

    /// Asks [`Provisional::unread`]; none without it.
    pub fn unread(&self, question: Question<'_>) -> Option<SlotId> {
        match question {
            Question::Address(lba) if self.is_provisional && self.ledger.is_trimmed(lba) => None,
            question => self.design.provisional().and_then(|design| design.unread(question)),
        }
    }

    /// Tells [`Provisional::tell`], if the design has it.
    pub fn tell(&mut self, slot: SlotId, entry: Option<Arc<RegionEntry>>) {
        if let Some(design) = self.design.provisional_mut() {
            design.tell(slot, entry);
        }
    }

    /// Asks [`Provisional::next_changed_entry`]; none without it.
    pub fn next_changed_entry(&mut self) -> Option<Arc<RegionEntry>> {
        self.design.provisional_mut().and_then(|design| design.next_changed_entry())
    }

    /// Asks [`Provisional::entry_to_write`]; none without it.
    pub fn entry_to_write(&self, slot: SlotId) -> Option<Arc<RegionEntry>> {
        self.design.provisional().and_then(|design| design.entry_to_write(slot))
    }

    /// Tells [`Provisional::entry_written`], if the design has it.
    pub fn entry_written(&mut self, entry: &Arc<RegionEntry>) {
        if let Some(design) = self.design.provisional_mut() {
            design.entry_written(entry);
        }
    }

    /// Asks [`Provisional::held_at`]; none without it.
    pub fn held_at(&self, lba: Lba) -> Option<SlotId> {
        self.design.provisional().and_then(|design| design.held_at(lba))
    }

    /// Tells [`Provisional::spoil`], if the design has it.
    pub fn spoil(&mut self, place: &Place) {
        if let Some(design) = self.design.provisional_mut() {
            design.spoil(place);
        }
    }

    /// Asks [`Provisional::held_entries`]; 0 without it.
    pub fn held_entries(&self) -> usize {
        self.design.provisional().map_or(0, |design| design.held_entries())
    }

    /// Tells [`Provisional::settle`], if the design has it.
    pub fn settle(&mut self, lba: Lba, is_durable: bool) {
        if let Some(design) = self.design.provisional_mut() {
            design.settle(lba, is_durable);
        }
    }

    /// Tells [`Provisional::committed`], if the design has it.
    pub fn committed(&mut self, upto: u64) {
        if let Some(design) = self.design.provisional_mut() {
            design.committed(upto);
        }
    }

    /// Asks [`Provisional::open_slot_for`], else answers as the design's other parts do.
    pub fn open_slot_for(&mut self, class: StreamClass, wanted: &Wanted) -> Option<(SlotId, u32)> {
        if let Some(design) = self.design.provisional_mut() {
            return design.open_slot_for(class, wanted);
        }
        self.open_slot(class)
    }

    /// Asks [`Provisional::is_freeing_due`]; false without it.
    pub fn is_freeing_due(&self) -> bool {
        self.design.provisional().is_some_and(|design| design.is_freeing_due())
    }

    /// Asks [`Provisional::likely_victims`]; empty without it.
    pub fn likely_victims(&mut self, max: usize) -> Vec<SlotId> {
        self.design.provisional_mut().map_or_else(Vec::new, |design| design.likely_victims(max))
    }

    /// Asks [`Provisional::free_ahead`]; none without it.
    pub fn free_ahead(&mut self, slot: SlotId, seq: u64) -> Option<u32> {
        self.design.provisional_mut().and_then(|design| design.free_ahead(slot, seq))
    }

    /// Asks [`Provisional::in_the_way`]; empty without it.
    pub fn in_the_way(&self, lba: Lba) -> Vec<SlotId> {
        self.design.provisional().map_or_else(Vec::new, |design| design.in_the_way(lba))
    }

    /// Asks [`Provisional::is_freed`]; false without it.
    pub fn is_freed(&mut self, slot: SlotId, durable_below: u64) -> bool {
        self.design.provisional_mut().is_some_and(|design| design.is_freed(slot, durable_below))
    }

    /// Tells [`Provisional::reuse`], if the design has it.
    pub fn reuse(&mut self, slots: &[SlotId]) {
        if let Some(design) = self.design.provisional_mut() {
            design.reuse(slots);
        }
    }

    /// Tells [`Provisional::keep`], if the design has it.
    pub fn keep(&mut self, slot: SlotId) {
        if let Some(design) = self.design.provisional_mut() {
            design.keep(slot);
        }
    }

    /// Tells [`Provisional::keep_all`], if the design has it.
    pub fn keep_all(&mut self) {
        if let Some(design) = self.design.provisional_mut() {
            design.keep_all();
        }
    }

    /// Asks [`Provisional::page_count`]; 0 without it.
    pub fn page_count(&self) -> usize {
        self.design.provisional().map_or(0, |design| design.page_count())
    }

    /// Asks [`Provisional::export_page`]; empty without it.
    pub fn export_page(&self, page: usize) -> Vec<u8> {
        self.design.provisional().map_or_else(Vec::new, |design| design.export_page(page))
    }

    /// Asks [`Provisional::stored_runs`]; empty without it.
    pub fn stored_runs(&self) -> Vec<(SlotId, u32)> {
        self.design.provisional().map_or_else(Vec::new, |design| design.stored_runs())
    }

    /// Asks [`Provisional::is_found_in`]; false without it.
    pub fn is_found_in(&self, slot: SlotId, fingerprint: &Fingerprint) -> bool {
        self.design.provisional().is_some_and(|design| design.is_found_in(slot, fingerprint))
    }

    /// Tells [`Provisional::forget_clean`], if the design has it.
    pub fn forget_clean(&mut self, is_wrong: &dyn Fn(SlotId) -> bool) {
        if let Some(design) = self.design.provisional_mut() {
            design.forget_clean(is_wrong);
        }
    }
}
