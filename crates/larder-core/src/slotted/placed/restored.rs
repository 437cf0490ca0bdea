//! The restart of a placed design: an empty design takes the mappings and a checkpoint's history.
//!
//! Lists and orders of the history come first, as far as mappings and slots agree. The other
//! mappings, and content without an address, follow in the order of their slots' uses.
//!
//! A history has three degrees of trust. After an orderly end all of it holds, because nothing
//! happened since. After a crash it still gives the recency of an address. It also gives the
//! content of an unmapped address without a later log entry, because an overwrite of that is logged
//! ([`outliving`](super::outliving)). If the log may not be whole, as after a repair, such an
//! address becomes a ghost with a unique content. Its next request is a miss.
//!
//! Invariants: mappings have precedence over history. Nothing is remembered of an address that may
//! have been written since.
//!
//! It leaves checkpoints, and the way the cache ended, to the caller.

use super::{
    super::ChunkSlot,
    Placed,
    logged::Logged,
    made_up::{is_unshared, unknown, unshared},
    restoring::RestoringSlots,
    slot_content::{NONE, NOTHING, SlotContent},
};
use crate::{
    design::{Lookup, Mapping, Persist},
    history::{Draft, History, ListedAddress, Trust, UsedSlot, cut},
    slots::SlotState,
    slotted::{
        kept::{Kept, KeptAddress},
        shape_of,
    },
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
    walk::Numbers,
};
use std::ops::Range;

/// A mapping, or a content without an address.
struct Found {
    /// The position of its slot in the order of uses.
    rank: usize,
    lba: Option<Lba>,
    held: SlotContent,
    is_dirty: bool,
}

impl Placed {
    /// Adds the next piece of the history to a draft; returns whether more follows.
    pub(super) fn draft(&mut self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        let Placed { design, suspended, held, .. } = self;
        let lists = design.list_count();
        let goes_on = match draft.stage() {
            None => false,
            Some(list) if list < lists => design.show_addresses(&mut |lba, fingerprint| {
                match suspended.contains(&lba) || is_doubtful(lba) {
                    // Its present content is unknown.
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

    /// Creates an empty draft of the history.
    pub(super) fn new_draft(&self) -> Draft {
        Draft::new(shape_of(&*self.design), self.design.sizes().addresses)
    }

    /// Returns contents and places of these data slots that addresses may share, except `without`.
    pub(super) fn known_among(&self, slots: Range<usize>, without: &Numbers) -> Vec<(Fingerprint, Place)> {
        let shared =
            |held: &SlotContent| self.dedup && held.slot != NONE && !is_unshared(&Fingerprint(held.fingerprint));
        let held = slots.clone().zip(self.held.get(slots).unwrap_or_default());
        let told = held.filter(|(slot, held)| shared(held) && !without.has(*slot as u32));
        told.map(|(_, held)| (Fingerprint(held.fingerprint), held.place())).collect()
    }

    /// Notes a page of a history; returns whether it is valid.
    pub(super) fn note_page(&mut self, page: usize, bytes: &[u8]) -> bool {
        let shape = shape_of(&*self.design);
        self.restoring.as_mut().is_some_and(|restoring| {
            // Entries before it are the checkpoint's, not the log's.
            restoring.logged = Logged::default();
            restoring.pages.note(page, bytes, shape.pages_max())
        })
    }

    /// Puts the recovered data into the design.
    pub(super) fn put_restored(&mut self, mut restoring: RestoringSlots, is_trimmed: &dyn Fn(Lba) -> bool) {
        let slots = self.mappings.export_slots();
        let found = self.found(&restoring, &slots);
        let history = std::mem::take(&mut restoring.pages).history(&shape_of(&*self.design));
        let is_restored =
            history.as_ref().is_some_and(|history| self.restore_history(history, &found, &restoring, is_trimmed));
        // The next crash may bring back an address that the design did not take from the history.
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
                    self.execute(Some((&place, &fingerprint)));
                }
                continue;
            };
            let is_known = self.known(lba).is_some_and(|held| held.is_at(&place));
            // A dirty address may have left the design's lists, and waits for its destage.
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

    /// Returns the mappings, and content without addresses, in the order of their slots' uses. The
    /// content is limited to the most recently used that has room beside the mappings.
    fn found(&self, restoring: &RestoringSlots, slots: &[(SlotId, u32, SlotState, StreamClass)]) -> Vec<Found> {
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
        // It includes content that the design released just before a crash, in a slot that was not
        // freed yet.
        let room = self.held.len().saturating_sub(is_mapped.iter().filter(|&&is_mapped| is_mapped).count());
        let orphans = slots.iter().rev().filter_map(|(slot, generation, state, _)| {
            let held = restoring.told.get(slot).filter(|held| held.generation == *generation)?;
            (*state == SlotState::Sealed && !is_mapped[slot.0 as usize]).then_some(*held)
        });
        let orphan = |held: SlotContent| Found { rank: rank[held.slot as usize], lba: None, held, is_dirty: false };
        found.extend(orphans.take(room).map(orphan));
        found.sort_unstable_by_key(|found| (found.rank, found.lba));
        found
    }

    /// Restores the design from the history, as far as recovery agrees; returns whether it
    /// succeeded.
    fn restore_history(
        &mut self,
        history: &History,
        found: &[Found],
        restoring: &RestoringSlots,
        is_trimmed: &dyn Fn(Lba) -> bool,
    ) -> bool {
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
                Lookup::Miss if is_trimmed(listed.lba) => return None,
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
            let is_dirty = self.mappings.is_dirty(listed.lba);
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

    /// Returns the contents of the history's data slots that are still there, least recently used
    /// first.
    fn data_of(&self, history: &History, in_slot: &[SlotContent]) -> Vec<SlotContent> {
        let mut data: Vec<(u64, SlotContent)> = Vec::new();
        let mut is_named = vec![false; self.owner.len()];
        for used in &history.data {
            let is_there = self.mappings.slot(used.slot) == Some((SlotState::Sealed, used.generation));
            if !is_there || std::mem::replace(&mut is_named[used.slot.0 as usize], true) {
                continue;
            }
            let known = in_slot[used.slot.0 as usize];
            let held = match known.slot {
                // It takes up a slot, and no search finds it.
                NONE => {
                    let place = Place { slot: used.slot, generation: used.generation, ..NOTHING.place() };
                    SlotContent::new(&place, &unshared(&place))
                }
                _ => known,
            };
            data.push((used.stamp, held));
        }
        data.sort_by_key(|&(stamp, _)| stamp);
        data.into_iter().map(|(_, held)| held).collect()
    }

    /// Gives a content to a data slot of the restored design, if the slot is empty.
    fn hold_restored(&mut self, slot: Option<ChunkSlot>, held: SlotContent) {
        if let Some(slot) = slot
            && let Some(of_slot) = self.held.get_mut(slot.0 as usize).filter(|of_slot| of_slot.slot == NONE)
            && self.owner[held.slot as usize] == NONE
        {
            self.owner[held.slot as usize] = slot.0;
            *of_slot = held;
        }
    }
}
