//! The metadata region of a bucket store: reading a metadata slot that a decision wants to know, and writing those that changed.
//!
//! A design whose decisions are provisional names the metadata slot to be read ([`Design::unread`]); it is read without the lock,
//! and then the design is asked again. What it changed is written like a segment: before the log entries that depend on it.
//!
//! Whoever works on a block has its *turn*, which is AustereCache's lock of a bucket (section 4): requests of other blocks go on.
//!
//! What is wanted of several blocks is read side by side: each block has its turn and its read, and nobody who has a turn
//! waits for another.
//!
//! Invariants: of what lies in one block of the device, one read or write is under way at a time, in the order in which they were
//! asked for under the lock; and what was read is told, or used for a hit that is pinned, before its turn ends. So nobody is told
//! what was written over meanwhile, and a block that is read, changed and written back loses no neighbour's change.
//!
//! What it does not do: decide, or know what is dirty.
//!
//! [`Design::unread`]: larder_core::Design::unread

pub(crate) mod scan;

use crate::{shared::Shared, state::State, sync::join_all, tickets::Ticket};
use larder_core::{
    Fingerprint, Lba, Place, SlotId,
    decisions::{Answer, Event},
    design::Question,
    region::RegionEntry,
};
use larder_device::{IoBuf, IoFuture, IoResult, WriteFlags};
use larder_format::metadata_slot::METADATA_SLOT_BYTES;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::*},
};

/// Metadata slots that are read side by side for one request at most.
pub(crate) const INFORMED_MAX: usize = 64;

/// Metadata slots that all requests of several chunks together may be reading, or have read and not used yet, beside one for each: half
/// of those that are remembered. So they seldom push out each other's; what is pushed out is read again.
const AHEAD_MAX: usize = 128;

/// Addresses that may wait until a metadata slot names them on flash: some 3 MiB of RAM. Then writers wait for a commit, and nothing is
/// inserted.
pub(crate) const HELD_ENTRIES_MAX: usize = 4096;

/// A request's part of what may be read ahead of its use.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    slots: usize,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.region_slots_ahead.fetch_sub(self.slots, AcqRel);
    }
}

/// Where a metadata slot is: the device's block, and the bytes before it in there.
struct Spot {
    block: u64,
    len: usize,
    skip: usize,
}

impl State {
    /// Has the metadata slots written that the last decision changed.
    pub fn note_changed_entries(&mut self) {
        while let Some(entry) = self.design.next_changed_entry() {
            self.push_entry(&entry);
        }
    }

    /// The origin durably has what the clean chunk `lba` has at `place`, or it is not mapped there any more.
    pub fn settle(&mut self, lba: Lba, place: &Place, is_durable: bool) {
        if self.design.held_at(lba) == Some(place.slot) {
            self.decisions.note(|| (Event::Settled { lba, is_durable }, Answer::Done));
            self.design.settle(lba, is_durable);
            self.note_changed_entries();
        }
    }

    /// The log durably has what is below `log.durable_below`.
    pub fn note_committed(&mut self) {
        if self.design.held_entries() > 0 {
            let upto = self.log.durable_below;
            self.decisions.note(|| (Event::Committed { upto }, Answer::Done));
            self.design.committed(upto);
            self.note_changed_entries();
        }
    }
}

impl Shared {
    /// Reads what the design has to know before it can answer `question`.
    pub(crate) async fn inform(self: &Arc<Self>, question: Question<'_>) {
        loop {
            let Some(slot) = self.state.lock().design.unread(question) else { return };
            self.inform_of_block(&[slot]).await;
        }
    }

    /// As [`Shared::inform`], of the first of several contents, side by side. What this returns is kept until they are used.
    pub(crate) async fn inform_of_contents(self: &Arc<Self>, contents: &[Fingerprint]) -> Option<Ahead> {
        let unread: Vec<SlotId> = {
            let state = self.state.lock();
            contents.iter().filter_map(|content| state.design.unread(Question::Content(content))).collect()
        };
        self.inform_of(&unread).await
    }

    /// Reads the first of these metadata slots, one at least and as many as may be read ahead, and tells the design of each. What this
    /// returns is kept until they are used.
    pub(crate) async fn inform_of(self: &Arc<Self>, slots: &[SlotId]) -> Option<Ahead> {
        if slots.is_empty() {
            return None;
        }
        let mut part = 1;
        let more = |ahead: usize| {
            part = slots.len().min(INFORMED_MAX).min(AHEAD_MAX.saturating_sub(ahead)).max(1);
            Some(ahead + part)
        };
        let _ = self.region_slots_ahead.fetch_update(AcqRel, Acquire, more);
        let ahead = Ahead { shared: self.clone(), slots: part };
        self.inform_of_all(&slots[..part]).await;
        Some(ahead)
    }

    async fn inform_of_all(self: &Arc<Self>, slots: &[SlotId]) {
        let mut blocks: BTreeMap<u64, Vec<SlotId>> = BTreeMap::new();
        for &slot in slots {
            let block = blocks.entry(self.spot(slot).block).or_default();
            if !block.contains(&slot) {
                block.push(slot);
            }
        }
        if let (1, Some((_, block))) = (blocks.len(), blocks.first_key_value()) {
            return self.inform_of_block(block).await;
        }
        let inform = |block: Vec<SlotId>| {
            let this = self.clone();
            IoFuture::boxed(async move {
                this.inform_of_block(&block).await;
                Ok(())
            })
        };
        join_all(blocks.into_values().map(inform).collect()).await;
    }

    /// Reads metadata slots of one block, and tells the design.
    pub(crate) async fn inform_of_block(self: &Arc<Self>, slots: &[SlotId]) {
        let Some(&first) = slots.first() else { return };
        let turn = self.region_turn(first).granted().await;
        let read = self.read_block(first).await;
        let entries: Vec<_> = slots.iter().map(|&slot| (slot, self.entry_in(&read, slot))).collect();
        {
            let mut state = self.state.lock();
            entries.into_iter().for_each(|(slot, entry)| {
                state.note_told(slot, entry.as_ref());
                state.design.tell(slot, entry.map(Arc::new));
            });
        }
        drop(turn);
    }

    /// Reads the metadata slot of `slot`; the caller has the turn. `None` where it cannot be read, or is damaged.
    pub(crate) async fn read_entry(&self, slot: SlotId) -> Option<RegionEntry> {
        let read = self.read_block(slot).await;
        self.entry_in(&read, slot)
    }

    /// Reads the block that the metadata slot of `slot` lies in.
    async fn read_block(&self, slot: SlotId) -> IoResult<IoBuf> {
        let spot = self.spot(slot);
        self.counters.note_region_read(self.stripes.mine(), spot.len as u64);
        let read = self.flash.read(spot.block * self.region_block(), IoBuf::new(spot.len)).await;
        read.inspect_err(|error| self.note_flash_read_error(error))
    }

    /// The metadata slot of `slot` in its block.
    fn entry_in(&self, block: &IoResult<IoBuf>, slot: SlotId) -> Option<RegionEntry> {
        let (spot, Ok(block)) = (self.spot(slot), block) else { return None };
        let bytes = block.get(spot.skip..spot.skip + METADATA_SLOT_BYTES);
        let entry = bytes.and_then(|bytes| scan::decode(bytes, self.geometry.flash_tag, slot));
        if entry.is_none() {
            self.counters.corrupt_records.fetch_add(1, Relaxed);
        }
        entry
    }

    /// Writes the metadata slot of `slot`, if it changed, into its block; the caller has the turn. What changed again since it was
    /// asked for is written once. The design is to be told, with what this returns, that it was written. `segment` is its number.
    pub(crate) async fn write_entry(&self, slot: SlotId, segment: u64) -> IoResult<Option<Arc<RegionEntry>>> {
        let (entry, durable_frame) = {
            let state = self.state.lock();
            let entry = state.design.entry_to_write(slot);
            state.note_slot(Event::Taken { segment }, entry.as_ref().map(|_| slot));
            (entry, state.log.area.durable_frame())
        };
        if let Some(entry) = &entry {
            self.write_block(slot, &scan::encode(entry, self.geometry.flash_tag, durable_frame)).await?;
        }
        Ok(entry)
    }

    async fn write_block(&self, slot: SlotId, entry: &[u8; METADATA_SLOT_BYTES]) -> IoResult<()> {
        let spot = self.spot(slot);
        let offset = spot.block * self.region_block();
        let mut block = match spot.len == METADATA_SLOT_BYTES {
            true => IoBuf::zeroed(spot.len),
            // What cannot be read is lost to its neighbours already: they are misses.
            false => match self.read_block(slot).await {
                Ok(block) => block,
                Err(_) => self.read_block(slot).await.unwrap_or_else(|_| IoBuf::zeroed(spot.len)),
            },
        };
        block[spot.skip..spot.skip + METADATA_SLOT_BYTES].copy_from_slice(entry);
        let block = block.freeze();
        let result = self.until_taken(|| self.flash.write(offset, block.clone(), WriteFlags::default())).await;
        self.counters.flash_region_writes.fetch_add(1, Relaxed);
        self.counters.flash_region_bytes_written.fetch_add(spot.len as u64, Relaxed);
        result
    }

    /// Asks for the turn of a metadata slot's block, which who reads or writes it takes.
    pub(crate) fn region_turn(&self, slot: SlotId) -> Ticket {
        self.region_turns.ask(self.spot(slot).block)
    }

    fn region_block(&self) -> u64 {
        self.geometry.flash_align.max(METADATA_SLOT_BYTES) as u64
    }

    fn spot(&self, slot: SlotId) -> Spot {
        let len = self.region_block();
        let at = self.geometry.layout.metadata_slot_offset(slot.0).expect("designs name slots that there are");
        Spot { block: at / len, len: len as usize, skip: (at % len) as usize }
    }
}
