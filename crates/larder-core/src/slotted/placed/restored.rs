//! What recovery found goes into an empty design: from a checkpoint's history lists and orders, as far as mappings and slots agree; and
//! then, in the order in which the slots were used, what is mapped beside, and content that no address has.
//!
//! History is believed in three degrees. After an end in order all of it holds: nothing happened since. After a crash a checkpoint's history
//! still says how recently an address was used, and what one holds that is not mapped, where the log behind it says nothing of the address:
//! who overwrites it has that logged ([`outliving`](super::outliving)). Where the log may not be whole, as after a repair, such an address
//! goes on without a content that anything has. It is a ghost, and its next request a miss.
//!
//! Invariants: what is mapped is what mappings say, whatever history has. Nothing is remembered of an address that may have been written
//! since.
//!
//! What it does not do: read a checkpoint, or know how the cache ended; the caller says.

use super::{ChunkSlot, Held, NONE, NOTHING, Placed, outliving::Logged, unshared};
use crate::{
    design::{Design, Lookup},
    history::{Draft, History, ListedAddress, Pages, Trust, UsedSlot, cut},
    slots::SlotState,
    slotted::kept::{Kept, KeptAddress, shape_of},
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
    walk::Numbers,
};
use std::{collections::BTreeMap, ops::Range};

/// What recovery was told so far.
#[derive(Default)]
pub(super) struct Restoring {
    /// What the flash slots hold.
    pub told: BTreeMap<SlotId, Held>,
    /// Pieces of the history.
    pages: Pages,
    /// What the log behind the checkpoint says of addresses.
    pub logged: Logged,
    /// How far the history holds.
    pub trust: Option<Trust>,
}

/// What is mapped, or lies in a slot without an address.
struct Found {
    /// How recently its slot was used.
    rank: usize,
    lba: Option<Lba>,
    held: Held,
    is_dirty: bool,
}

impl Restoring {
    /// An address is mapped, to this content as far as that is known.
    pub fn map(&mut self, lba: Lba, known: Option<(Place, Option<Fingerprint>)>) {
        if let Some((place, Some(fingerprint))) = known {
            self.told.insert(place.slot, Held::new(&place, &fingerprint));
        }
        let held = known.and_then(|(place, _)| self.told.get(&place.slot).filter(|held| held.is_at(&place)));
        self.logged.map(lba, held.map(|held| Fingerprint(held.fingerprint)));
    }

    fn held(&self, place: &Place) -> Held {
        let told = self.told.get(&place.slot).filter(|held| held.is_at(place));
        let fingerprint = told.map_or_else(|| unshared(place), |held| Fingerprint(held.fingerprint));
        Held::new(place, &fingerprint)
    }
}

impl Placed {
    /// The next piece of the design's history, for a checkpoint; whether there is more.
    pub(super) fn draft(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        let Placed { design, suspended, held, .. } = self;
        let lists = design.list_count();
        let goes_on = match draft.stage() {
            None => false,
            Some(list) if list < lists => design.show_addresses(&mut |lba, fingerprint| {
                match suspended.contains(&lba) || is_doubtful(lba) {
                    // Nobody knows what it holds by now.
                    true => draft.address(lba, &unknown(lba)),
                    false => draft.address(lba, fingerprint),
                }
            }),
            Some(_) => design.show_data(&mut |slot, stamp| {
                if let Some(held) = held.get(slot.0 as usize).filter(|held| held.slot != NONE) {
                    draft.used(&UsedSlot { slot: SlotId(held.slot), generation: held.generation, stamp });
                }
            }),
        };
        if goes_on {
            return true;
        }
        draft.set_target(design.target_size());
        match draft.next_stage() {
            list if list < lists => design.begin_list(list),
            stage if stage == lists => design.begin_data(),
            _ => return false,
        }
        true
    }

    /// An empty history, to be written down.
    pub(super) fn new_draft(&self) -> Draft {
        Draft::new(shape_of(&*self.design), self.design.sizes().addresses)
    }

    /// The contents of these data slots that addresses may share, and where they are; but not `without`.
    pub(super) fn known_among(&self, slots: Range<usize>, without: &Numbers) -> Vec<(Fingerprint, Place)> {
        let shared = |held: &Held| self.dedup && held.slot != NONE && !is_unshared(&Fingerprint(held.fingerprint));
        let held = slots.clone().zip(self.held.get(slots).unwrap_or_default());
        let told = held.filter(|(slot, held)| shared(held) && !without.has(*slot as u32));
        told.map(|(_, held)| (Fingerprint(held.fingerprint), held.place())).collect()
    }

    /// A piece of a history; whether it can be one.
    pub(super) fn note_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        let shape = shape_of(&*self.design);
        self.restoring.as_mut().is_some_and(|restoring| {
            // What came before is the checkpoint's, not the log's.
            restoring.logged = Logged::default();
            restoring.pages.note(page, bytes, &shape)
        })
    }

    /// Puts what recovery found into the design.
    pub(super) fn put_restored(&mut self, mut restoring: Restoring) {
        let slots = self.mappings.export_slots();
        let found = self.found(&restoring, &slots);
        let history = std::mem::take(&mut restoring.pages).history(&shape_of(&*self.design));
        let is_restored = history.as_ref().is_some_and(|history| self.restore_history(history, &found, &restoring));
        // What the design does not have as the history had it the next crash may bring back again.
        for ListedAddress { lba, .. } in history.iter().flat_map(|history| history.lists.iter().flatten()) {
            if !self.is_remembered(*lba) {
                self.note_lost(*lba);
            }
        }
        for Found { lba, held, is_dirty, .. } in found {
            let (place, fingerprint) = (held.place(), Fingerprint(held.fingerprint));
            let Some(lba) = lba else {
                if self.owner[place.slot.0 as usize] == NONE {
                    self.design.put_content(&fingerprint, &mut self.decision);
                    self.settle(Some((&place, &fingerprint)));
                }
                continue;
            };
            let is_known = self.known(lba).is_some_and(|held| held.is_at(&place));
            // What is dirty may have left the design's lists, and waits to be destaged.
            let has_left = is_restored && restoring.trust == Some(Trust::Whole) && is_dirty && !self.design.knows(lba);
            if is_restored && is_known || has_left {
                continue;
            }
            self.put(lba, &place, &fingerprint, is_dirty);
            if !self.is_visible(lba, &Lookup::Chunk { place, duplicate: false }) {
                self.note_hidden(lba);
            }
        }
        self.let_go.clear();
        for (slot, _, state, _) in slots {
            if state == SlotState::Sealed && self.owner[slot.0 as usize] == NONE {
                self.let_go.push_back(slot);
            }
        }
    }

    /// What is mapped, and content that no address has, of that the most recently used for which there is room beside the rest; in
    /// the order in which the slots were used.
    fn found(&self, restoring: &Restoring, slots: &[(SlotId, u32, SlotState, StreamClass)]) -> Vec<Found> {
        let mut rank = vec![0; self.owner.len()];
        for (at, (slot, ..)) in slots.iter().enumerate() {
            rank[slot.0 as usize] = at;
        }
        let mut found: Vec<Found> = Vec::new();
        let mut is_mapped = vec![false; self.owner.len()];
        let pieces = 0..self.mappings.export_pieces();
        for mapping in pieces.flat_map(|piece| self.mappings.export_mappings(piece)) {
            if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = mapping.lookup {
                let slot = place.slot.0 as usize;
                is_mapped[slot] = true;
                let (lba, held) = (Some(mapping.lba), restoring.held(&place));
                found.push(Found { rank: rank[slot], lba, held, is_dirty: mapping.dirty });
            }
        }
        // What the design let go of just before a crash is among it: its slot had not been freed yet.
        let room = self.held.len().saturating_sub(is_mapped.iter().filter(|&&is_mapped| is_mapped).count());
        let orphans = slots.iter().rev().filter_map(|(slot, generation, state, _)| {
            let held = restoring.told.get(slot).filter(|held| held.generation == *generation)?;
            (*state == SlotState::Sealed && !is_mapped[slot.0 as usize]).then_some(*held)
        });
        let orphan = |held: Held| Found { rank: rank[held.slot as usize], lba: None, held, is_dirty: false };
        found.extend(orphans.take(room).map(orphan));
        found.sort_unstable_by_key(|found| (found.rank, found.lba));
        found
    }

    /// Makes the design what the history says, as far as what was found agrees; whether it is that now.
    fn restore_history(&mut self, history: &History, found: &[Found], restoring: &Restoring) -> bool {
        let mut in_slot = vec![NOTHING; self.owner.len()];
        for Found { held, .. } in found {
            in_slot[held.slot as usize] = *held;
        }
        let data = self.data_of(history, &in_slot);
        let mut is_used = vec![false; self.owner.len()];
        data.iter().for_each(|held| is_used[held.slot as usize] = true);
        let looks = self.design.looks_at_content();
        let kept = |listed: &ListedAddress| {
            let place = match self.mappings.peek(listed.lba) {
                Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place),
                // The design has no zeroes.
                Lookup::Zero => return None,
                Lookup::Miss => None,
            };
            let held = place.map(|place| in_slot[place.slot.0 as usize]);
            let fingerprint = match held {
                Some(held) if !looks || is_used[held.slot as usize] => Fingerprint(held.fingerprint),
                None => {
                    let logged = restoring.trust.and_then(|_| restoring.logged.content(listed.lba, listed.fingerprint));
                    logged.filter(|content| !is_unshared(content)).unwrap_or_else(|| unknown(listed.lba))
                }
                _ => unknown(listed.lba),
            };
            let is_dirty = self.mappings.dirty_seq(listed.lba).is_some();
            Some(KeptAddress { lba: listed.lba, fingerprint, is_mapped: held.is_some(), is_dirty })
        };
        let mut kept = Kept {
            target: history.target,
            lists: history.lists.iter().map(|list| list.iter().filter_map(kept).collect()).collect(),
            data: data.iter().map(|held| Fingerprint(held.fingerprint)).collect(),
        };
        for (lists, max) in self.design.limits() {
            cut(&mut kept.lists, &lists, max);
        }
        if !self.design.restore(&kept) {
            return false;
        }
        for held in data {
            self.hold_restored(self.design.slot_of(&Fingerprint(held.fingerprint)), held);
        }
        for Found { lba, held, .. } in found.iter().filter(|_| !looks) {
            self.hold_restored(lba.and_then(|lba| self.design.lookup(lba)), *held);
        }
        true
    }

    /// What lies in the data slots of a history and is there still, least recently used first.
    fn data_of(&self, history: &History, in_slot: &[Held]) -> Vec<Held> {
        let mut data: Vec<(u64, Held)> = Vec::new();
        let mut is_named = vec![false; self.owner.len()];
        for used in &history.data {
            let is_there = self.mappings.slot(used.slot) == Some((SlotState::Sealed, used.generation));
            if !is_there || std::mem::replace(&mut is_named[used.slot.0 as usize], true) {
                continue;
            }
            let known = in_slot[used.slot.0 as usize];
            let held = match known.slot {
                // It takes up a slot, and nobody finds it.
                NONE => {
                    let place = Place { slot: used.slot, generation: used.generation, ..NOTHING.place() };
                    Held::new(&place, &unshared(&place))
                }
                _ => known,
            };
            data.push((used.stamp, held));
        }
        data.sort_by_key(|&(stamp, _)| stamp);
        data.into_iter().map(|(_, held)| held).collect()
    }

    /// A data slot of the restored design, if it is one that holds nothing yet, holds this.
    fn hold_restored(&mut self, slot: Option<ChunkSlot>, held: Held) {
        if let Some(slot) = slot
            && let Some(of_slot) = self.held.get_mut(slot.0 as usize).filter(|of_slot| of_slot.slot == NONE)
            && self.owner[held.slot as usize] == NONE
        {
            self.owner[held.slot as usize] = slot.0;
            *of_slot = held;
        }
    }
}

/// A fingerprint that no content has, but the unknown one of `lba`.
fn unknown(lba: Lba) -> Fingerprint {
    let mut bytes = [0xFF; 16];
    bytes[..8].copy_from_slice(&lba.0.to_le_bytes());
    bytes[15] = 0xFE;
    Fingerprint(bytes)
}

/// Whether this is a content that `lba` may be believed to have.
pub(super) fn is_believable(lba: Lba, content: &Fingerprint) -> bool {
    !is_unshared(content) && *content != unknown(lba)
}

/// Whether this is what [`unshared`] says of some place.
pub(super) fn is_unshared(fingerprint: &Fingerprint) -> bool {
    fingerprint.0[8..] == [0xFF; 8]
}
