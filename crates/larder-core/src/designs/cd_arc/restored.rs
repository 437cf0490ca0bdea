//! CD-ARC over a restart: its lists in order, the content of each address, `p`, and the queued
//! WEUs.
//!
//! CacheDedup section 3.3 has "the entire Metadata Cache" persistent. A checkpoint has it as the
//! design's history ([`history`](crate::history)), which restoring lays over the mappings of
//! recovery.
//!
//! As for designs with equal slots, a history has two degrees of trust. After an orderly end all of
//! it holds. After a crash it still gives the recency of an address, but not the content of an
//! unmapped one. A client may have overwritten that on the origin, without a log entry. Such an
//! address is a ghost without content, and its next request a miss.
//!
//! Invariants: mappings have precedence over history, and stay. A mapped address is remembered with
//! the content of its mapping.
//!
//! It leaves checkpoints, and the way the cache ended, to the caller.

use super::{At, B1, B2, B3, CdArc, T1, T2, at, lists::ON_LISTS, restoring::RestoringLists};
use crate::{
    design::{Lookup, Mapping, Persist},
    history::{Draft, History, ListedAddress, Shape, UsedSlot, cut},
    slots::SlotState,
    types::{Fingerprint, Lba, Place},
};
use std::collections::HashMap;

/// The content of an address in a history, if it is unknown.
const NOT_KNOWN: Fingerprint = Fingerprint([0; 16]);

/// The record of a content: slot, generation, offset.
type RecordKey = (u32, u32, u32);

fn record(place: &Place) -> RecordKey {
    (place.slot.0, place.generation, place.offset)
}

/// A mapped address.
struct Mapped {
    at: At,
    fingerprint: Option<Fingerprint>,
    is_dirty: bool,
}

impl CdArc {
    /// Returns the number of lists, and their maximum lengths.
    pub(super) fn shape(&self) -> Shape {
        let (data_chunks, extra) = self.lists.sizes();
        Shape {
            lists: ON_LISTS,
            // If the volume has fewer chunks than mappings, C is no bound, and may be any number.
            data_chunks: data_chunks.min(u32::MAX.into()),
            addresses: 2 * data_chunks + extra,
            used_slots: self.lists.slot_count(),
            looks_at_content: true,
        }
    }

    /// Creates an empty draft of the history.
    pub(super) fn new_draft(&self) -> Draft {
        Draft::new(self.shape(), self.lists.total())
    }

    /// Adds the next piece of the history to a draft; returns whether more follows.
    pub(super) fn draft(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        let goes_on = draft.stage().is_some_and(|_| {
            self.lists.show_some(|lba, fingerprint| match is_doubtful(lba) {
                true => draft.address(lba, &NOT_KNOWN),
                false => draft.address(lba, fingerprint),
            })
        });
        if goes_on {
            return true;
        }
        draft.set_target(self.lists.target());
        match draft.next_stage() {
            list if list < ON_LISTS => {
                self.lists.begin_walk(list);
                true
            }
            _ => {
                // There are few WEUs.
                for ((slot, generation), stamp) in self.lists.unheld().zip(1..) {
                    draft.used(&UsedSlot { slot, generation, stamp });
                }
                false
            }
        }
    }

    /// Ends recovery: lays the history, if there is one, over the mappings.
    pub(super) fn put_restored(&mut self, mut restoring: RestoringLists, is_trimmed: &dyn Fn(Lba) -> bool) {
        // A log tells an old content of an address, without later writes of its origin while it was
        // unmapped.
        self.lists.forget_ghosts();
        let history = std::mem::take(&mut restoring.pages).history(&self.shape());
        if let Some(mut history) = history {
            self.cut(&mut history);
            self.restore_history(&history, restoring.is_trusted, is_trimmed);
        }
        // A slot from recovery may have no address in T1 or T2 without having lost one. A free slot
        // is queued after it loses its last.
        for (slot, _, state, _) in self.nitro.export_slots() {
            if state == SlotState::Sealed {
                self.lists.note_unheld(slot);
            }
        }
    }

    /// Leaves out addresses of a history without room on the lists.
    fn cut(&self, history: &mut History) {
        let (data_chunks, extra) = self.lists.sizes();
        cut(&mut history.lists, &[B3, T1, T2], (data_chunks + extra) as usize);
        cut(&mut history.lists, &[B1, B2], data_chunks as usize);
    }

    fn restore_history(&mut self, history: &History, is_trusted: bool, is_trimmed: &dyn Fn(Lba) -> bool) {
        let known: HashMap<RecordKey, Fingerprint> =
            self.nitro.export_fingerprints().iter().map(|(fingerprint, place)| (record(place), *fingerprint)).collect();
        let found = self.lists.take_all();
        for (slot, generation, ..) in self.nitro.export_slots() {
            self.lists.begin_generation(slot, generation);
        }
        let told: HashMap<Lba, Option<Fingerprint>> = found.iter().copied().collect();
        let mut ghosts_left = self.lists.sizes().0 - (history.lists[B1].len() + history.lists[B2].len()) as u64;
        for (list, addresses) in history.lists.iter().enumerate() {
            for &ListedAddress { lba, fingerprint } in addresses {
                let remembered = Some(fingerprint).filter(|&fingerprint| is_trusted && fingerprint != NOT_KNOWN);
                let told = told.get(&lba).copied().flatten();
                let is_top = list == T1 || list == T2;
                if self.lists.find(lba).is_some() {
                    continue;
                }
                match self.mapped(lba, told.or(remembered), &known) {
                    Some(Mapped { at, fingerprint, is_dirty }) => {
                        self.lists.put_back(lba, list, at, fingerprint, is_dirty);
                    }
                    // It reads as zeroes, and is on no list.
                    None if is_trimmed(lba) => {}
                    // It lost its data since.
                    None if is_top && !is_trusted => {
                        if ghosts_left > 0 {
                            ghosts_left -= 1;
                            self.lists.put_back(lba, if list == T1 { B1 } else { B2 }, At::NOWHERE, None, false);
                        }
                    }
                    None => self.lists.put_back(lba, list, At::NOWHERE, remembered, false),
                }
            }
        }
        self.lists.set_target(history.target);
        let mut waiting = history.data.clone();
        waiting.sort_by_key(|used| used.stamp);
        for UsedSlot { slot, generation, .. } in waiting {
            if self.nitro.slot(slot) == Some((SlotState::Sealed, generation)) {
                self.lists.queue(slot);
            }
        }
        // Other mapped addresses wait to be dropped, or were mapped since.
        for (lba, told) in found {
            if self.lists.find(lba).is_some() {
                continue;
            }
            let Some(Mapped { at, fingerprint, is_dirty }) = self.mapped(lba, told, &known) else { continue };
            let i = self.lists.find_or_insert(lba);
            match is_trusted {
                true => self.lists.leave(i),
                false => self.lists.process(i),
            }
            self.lists.place(i, at, fingerprint);
            self.lists.set_dirty(i, is_dirty);
        }
    }

    /// Returns the mapping of `lba` with its content: the known one of its record, or the `told`
    /// one.
    fn mapped(&self, lba: Lba, told: Option<Fingerprint>, known: &HashMap<RecordKey, Fingerprint>) -> Option<Mapped> {
        let (at, fingerprint) = match self.nitro.peek(lba) {
            Lookup::Chunk { place, .. } => (at(&place), known.get(&record(&place)).copied().or(told)),
            Lookup::Fragment { place, .. } => (at(&place), None),
            Lookup::Zero if self.nitro.has_entry(lba) => (At::ZERO, None),
            Lookup::Zero | Lookup::Miss => return None,
        };
        Some(Mapped { at, fingerprint, is_dirty: self.nitro.is_dirty(lba) })
    }
}
