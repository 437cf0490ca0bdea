//! The knowledge of [`Larder`] in a checkpoint: classes and ages of contents, and the life tables.
//!
//! The head has version (2), time (4), rule (1) and both rents (8 each, doubles). The records of
//! each slot follow: slot (4), generation (4), number of records (4); and for each record its
//! offset (22 bits), class (6) and marks (4) in four bytes, its bin of age (1), and the low bytes
//! of its address (2). A mark says that a search finds the content ([`KNOWN`]), and another that
//! the address of the record has a clean mapping to it ([`MAPPED`]). The record's table has address
//! and fingerprint. Behind the last slot (all ones) come the cells of the life tables: class (1),
//! bin (1), and lived, events and hits (4 each, floats). Beliefs follow: [`BELIEF`] (1), address
//! (5) and fingerprint (16). All numbers are little-endian.
//!
//! Invariants: any bytes can be read. A history of another version, or cut short, is taken as far
//! as it goes. A content whose slot was used again since has no history.
//!
//! Only an orderly end has beliefs, for the log lacks overwrites of them. It leaves out the sample.
//! The heat of an address follows from the class of its content.

use super::{
    Larder, RECORD_BYTES,
    addresses::Address,
    ages::BINS,
    class::{CLASSES, Class},
    content::ContentRecord,
    recalling::{CLASS_MASK, KNOWN, MAPPED, NO_SLOT, VERSION, offset_of},
};
use crate::{
    history::{Draft, Front},
    lba_index::OFFSET_BITS,
    types::{Fingerprint, Lba, Place, SlotId},
};

/// Slots of a piece of an export: each of their records is looked up.
const PIECE: usize = 4;
/// The first byte of a belief: no class of a cell.
const BELIEF: u8 = u8::MAX;
/// Pieces of the address index of a piece of an export.
const PIECES: usize = 16;

impl Larder {
    /// Adds the next piece to a draft; returns whether more follows.
    pub(super) fn export_knowledge(&self, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        let piece = draft.next_stage();
        if piece == 0 {
            self.export_head(draft);
        }
        let (from, count) = (piece * PIECE, self.slots.count() as usize);
        (from..count.min(from + PIECE)).for_each(|slot| self.export_slot(SlotId(slot as u32), draft));
        if from + PIECE < count {
            return true;
        }
        let beyond = piece - count.div_ceil(PIECE).saturating_sub(1);
        if beyond == 0 {
            self.export_cells(draft);
        }
        if self.persists_all {
            self.export_beliefs(beyond * PIECES, draft, is_doubtful);
        }
        self.persists_all && (beyond + 1) * PIECES < self.index.pieces()
    }

    /// Adds the beliefs of the next pieces of the index, as far as there is room.
    ///
    /// The origin may forget the content of a doubtful address, which is no belief then.
    fn export_beliefs(&self, from: usize, draft: &mut Draft, is_doubtful: &dyn Fn(Lba) -> bool) {
        let is_belief = |entry: &Address| !Self::is_live(&self.contents, entry) && !is_doubtful(entry.lba);
        let all = (from..self.index.pieces().min(from + PIECES)).flat_map(|piece| self.index.piece(piece));
        for entry in all.filter(is_belief) {
            let Some(known) = entry.content().and_then(|id| self.contents.fingerprint(id)) else { continue };
            let mut belief = vec![BELIEF];
            belief.extend(&entry.lba.0.to_le_bytes()[..5]);
            belief.extend(known.0);
            draft.append(&belief);
        }
    }

    fn export_cells(&self, draft: &mut Draft) {
        draft.append(&NO_SLOT.to_le_bytes());
        for (class, bin, [lived, events, hits]) in self.sample.lives().counts() {
            let mut cell = vec![class.index() as u8, bin as u8];
            cell.extend([lived, events, hits].iter().flat_map(|count| count.to_le_bytes()));
            draft.append(&cell);
        }
    }

    fn export_head(&self, draft: &mut Draft) {
        let mut head = Vec::from(VERSION.to_le_bytes());
        head.extend(self.sample.now().to_le_bytes());
        head.push(self.sample.keeps_recent().into());
        head.extend(self.rents.parts().iter().flat_map(|rent| rent.to_le_bytes()));
        draft.append(&head);
    }

    /// Adds the records of a slot, if there is room for all.
    fn export_slot(&self, slot: SlotId, draft: &mut Draft) {
        let mut records = Vec::new();
        for (id, record) in self.contents.in_slot(slot) {
            let bin = self.sample.lives().ages().bin(self.sample.since(record.used_at()));
            let owner = record.owner().and_then(|owner| self.index.get(owner));
            let is_mapped = owner.is_some_and(|entry| entry.content() == Some(id) && self.is_recalled(&entry));
            // The log has a later content, if its mapping lasts.
            let is_known = record.is_known() && (is_mapped || self.contents.is_exported(id));
            let marks = if is_known { KNOWN } else { 0 } | if is_mapped { MAPPED } else { 0 };
            let packed = record.offset() | (record.class().index() as u32) << OFFSET_BITS | marks;
            records.extend(packed.to_le_bytes());
            records.push(bin as u8);
            records.extend((record.owner().map_or(0, |owner| owner.0) as u16).to_le_bytes());
        }
        if records.is_empty() {
            return;
        }
        let (_, generation, _, _) = self.slots.describe(slot);
        let count = records.len() as u32 / RECORD_BYTES as u32;
        let mut bytes: Vec<u8> = [slot.0, generation, count].iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.append(&mut records);
        draft.append(&bytes);
    }

    /// Takes the knowledge of a checkpoint, once all mappings are restored.
    pub(super) fn take_knowledge(&mut self, bytes: &[u8]) {
        let mut front = Front(bytes);
        if self.take_head(&mut front).is_some() {
            while self.take_slot(&mut front).is_some() {}
            self.take_heat();
            while self.take_piece(&mut front).is_some() {}
            self.sample.lives_mut().solve();
        }
    }

    fn take_head(&mut self, front: &mut Front<'_>) -> Option<()> {
        if u16::from_le_bytes(front.take()?) != VERSION {
            return None;
        }
        let now = u32::from_le_bytes(front.take()?);
        let [keeps_recent] = front.take()?;
        let rents = [f64::from_le_bytes(front.take()?), f64::from_le_bytes(front.take()?)];
        self.rents.restore(rents);
        self.sample.restore(now, keeps_recent != 0);
        // A record without history is as one that was just stored.
        self.contents.use_all_at(self.sample.stamp());
        Some(())
    }

    /// Takes the records of a slot. Returns `None` behind the last slot.
    fn take_slot(&mut self, front: &mut Front<'_>) -> Option<()> {
        let slot = u32::from_le_bytes(front.take()?);
        if slot == NO_SLOT {
            return None;
        }
        let generation = u32::from_le_bytes(front.take()?);
        let count = u32::from_le_bytes(front.take()?);
        for _ in 0..count {
            let packed = u32::from_le_bytes(front.take()?);
            let [bin] = front.take()?;
            front.take::<2>()?;
            let (offset, class) = (offset_of(packed), (packed >> OFFSET_BITS & CLASS_MASK) as usize);
            let place = Place { slot: SlotId(slot), generation, offset, stored_len: 0, crc: 0, encoding: 0 };
            let Some(id) = self.contents.at(&place) else { continue };
            if class < CLASSES && usize::from(bin) < BINS {
                let age = self.sample.lives().ages().least(bin.into());
                let used_at = self.sample.stamp_before(age);
                if let Some(record) = self.contents.record_mut(id) {
                    record.set_class(Class::of_index(class));
                    record.use_at(used_at);
                }
            }
        }
        Some(())
    }

    /// Gives each mapped address the heat that the class of its content tells.
    fn take_heat(&mut self) {
        for piece in 0..self.index.pieces() {
            let entries: Vec<Address> = self.index.piece(piece).collect();
            for entry in entries {
                let class = entry.content().and_then(|id| self.contents.record(id)).map(ContentRecord::class);
                if let Some(class) = class.filter(|class| !class.is_dead()) {
                    self.index.restore_heat(entry.lba, class);
                }
            }
        }
    }

    fn take_piece(&mut self, front: &mut Front<'_>) -> Option<()> {
        let [kind] = front.take()?;
        match kind {
            BELIEF => self.take_belief(front)?,
            class => self.take_cell(class, front)?,
        }
        Some(())
    }

    fn take_belief(&mut self, front: &mut Front<'_>) -> Option<()> {
        let mut lba = [0; 8];
        lba[..5].copy_from_slice(&front.take::<5>()?);
        let (lba, fingerprint) = (Lba(u64::from_le_bytes(lba)), Fingerprint(front.take()?));
        if self.trusts_beliefs && self.index.get(lba).is_none() {
            self.believe(lba, &fingerprint);
        }
        Some(())
    }

    fn take_cell(&mut self, class: u8, front: &mut Front<'_>) -> Option<()> {
        let [bin] = front.take()?;
        let mut counts = [0.0; 3];
        for count in &mut counts {
            *count = f32::from_le_bytes(front.take()?);
        }
        let is_right = counts.iter().all(|count| count.is_finite() && *count >= 0.0);
        if is_right && usize::from(class) < CLASSES && usize::from(bin) < BINS {
            self.sample.lives_mut().restore(Class::of_index(class.into()), bin.into(), counts);
        }
        Some(())
    }
}
