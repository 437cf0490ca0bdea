//! What CD-ARC knows over a restart: its lists, in their order, with what is remembered of each address; `p`; and the WEUs that wait to go.
//! CacheDedup section 3.3 has "the entire Metadata Cache" persistent. A checkpoint has it as the design's history
//! ([`history`](crate::history)), which here is laid over what recovery mapped.
//!
//! History is believed in two degrees, as that of designs with equal slots. After an end in order all of it holds. After a crash a
//! checkpoint's history still says how recently an address was used, but of one that is not mapped not what it holds: a client may have
//! overwritten it on the origin, and nothing in the log says so. Such an address is a ghost without a content, and its next request a miss.
//!
//! Invariants: what is mapped is what mappings say, whatever history has, and stays mapped. What is remembered of an address that is
//! mapped is the content of what it is mapped to.
//!
//! What it does not do: read a checkpoint, or know how the cache ended; the caller says.

use super::{At, B1, B2, B3, CdArc, T1, T2, at, lists::ON_LISTS};
use crate::{
    design::{Design, Lookup},
    history::{Draft, History, ListedAddress, Pages, Shape, UsedSlot, cut},
    slots::SlotState,
    types::{Fingerprint, Lba, Place},
};
use std::collections::HashMap;

/// What recovery was told so far.
#[derive(Default)]
pub(super) struct Restoring {
    /// Pieces of the history.
    pub pages: Pages,
    /// The end was in order, and nothing followed it.
    pub is_trusted: bool,
}

/// What a history has of an address whose content is not known.
const NOT_KNOWN: Fingerprint = Fingerprint([0; 16]);

/// The record of a content: slot, generation, offset.
type Record = (u32, u32, u32);

fn record(place: &Place) -> Record {
    (place.slot.0, place.generation, place.offset)
}

/// A mapped address.
struct Mapped {
    at: At,
    fingerprint: Option<Fingerprint>,
    is_dirty: bool,
}

impl CdArc {
    /// Which lists there are, and how long they can be.
    pub(super) fn shape(&self) -> Shape {
        let (data_chunks, extra) = self.lists.sizes();
        Shape {
            lists: ON_LISTS,
            // Where the volume has fewer chunks than may be mapped, C is no bound, and may be any number.
            data_chunks: data_chunks.min(u32::MAX.into()),
            addresses: 2 * data_chunks + extra,
            used_slots: self.lists.slot_count(),
            looks_at_content: true,
        }
    }

    /// An empty history, to be written down.
    pub(super) fn new_draft(&self) -> Draft {
        Draft::new(self.shape(), self.lists.total())
    }

    /// The next piece of the design's history, for a checkpoint; whether there is more.
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

    /// Recovery is over: lays the history, if there is one, over what was mapped.
    pub(super) fn put_restored(&mut self, mut restoring: Restoring) {
        // A log says what an address held once, and not that its origin was written since, where nothing was mapped then.
        self.lists.forget_ghosts();
        let history = std::mem::take(&mut restoring.pages).history(&self.shape());
        if let Some(mut history) = history {
            self.cut(&mut history);
            self.restore_history(&history, restoring.is_trusted);
        }
        // What recovery found has no address in T1 or T2, perhaps, and lost none. A free slot has its turn once it has lost its last.
        for (slot, _, state, _) in self.nitro.export_slots() {
            if state == SlotState::Sealed {
                self.lists.note_unheld(slot);
            }
        }
    }

    /// Leaves out of a history what the lists have no room for.
    fn cut(&self, history: &mut History) {
        let (data_chunks, extra) = self.lists.sizes();
        cut(&mut history.lists, &[B3, T1, T2], (data_chunks + extra) as usize);
        cut(&mut history.lists, &[B1, B2], data_chunks as usize);
    }

    fn restore_history(&mut self, history: &History, is_trusted: bool) {
        let known: HashMap<Record, Fingerprint> =
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
                    // Trimmed: it reads as zeroes, and is on no list.
                    None if self.nitro.peek(lba) != Lookup::Miss => {}
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
        // What else is mapped waits to be dropped, or was mapped since.
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

    /// What `lba` is mapped to, with its content: that which was `told` of it, or which is known of the record.
    fn mapped(&self, lba: Lba, told: Option<Fingerprint>, known: &HashMap<Record, Fingerprint>) -> Option<Mapped> {
        let (at, fingerprint) = match self.nitro.peek(lba) {
            Lookup::Chunk { place, .. } => (at(&place), known.get(&record(&place)).copied().or(told)),
            Lookup::Fragment { place, .. } => (at(&place), None),
            Lookup::Zero if self.nitro.has_entry(lba) => (At::ZERO, None),
            Lookup::Zero | Lookup::Miss => return None,
        };
        Some(Mapped { at, fingerprint, is_dirty: self.nitro.dirty_seq(lba).is_some() })
    }
}
