//! The metadata region of a bucket store: reads the metadata slots of decisions, and writes
//! changes.
//!
//! A design whose decisions are provisional names the metadata slot to read
//! ([`Provisional::unread`]). The engine reads it without the lock, and asks the design again.
//! Changed slots are written like a segment: before the log entries that depend on them.
//!
//! A read or write of a block has its *turn*, which is AustereCache's lock of a bucket (section 4):
//! requests of other blocks go on.
//!
//! Slots in several blocks are read side by side. Each block has its turn and its read, and no
//! holder of a turn waits for another.
//!
//! Invariants: one read or write at a time runs in one block of the device, in the order of the
//! requests under the lock. The slots of a read are told, or used for a hit that is pinned, before
//! its turn ends. So no design is told of a slot that was written over meanwhile. A block that is
//! read, changed and written back loses no neighbour's change.
//!
//! It does not decide, or know dirty data. It leaves answers that lack a metadata slot to `looks`,
//! addresses that are named later to `held`, slots freed ahead to `freeing`, and mappings that go
//! on without the lock to `mapping`. Other files of the engine ask a design through the methods
//! here, on `State` and `Shared`.
//!
//! [`Provisional::unread`]: larder_core::design::Provisional::unread

pub(crate) mod entry;
pub(crate) mod freeing;
mod held;
pub(crate) mod looks;
mod mapping;
pub(crate) mod turns;

use crate::{region::looks::Unconfirmed, shared::Shared, state::State, sync::join_all, tickets::Ticket};
use larder_core::{Fingerprint, Lba, SlotId, decisions::Event, region::RegionEntry};
use larder_device::{IoBuf, IoFuture, IoResult, WriteFlags};
use larder_format::metadata_slot::METADATA_SLOT_BYTES;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::*},
};

/// Limit of the metadata slots that are read side by side for one request.
pub(crate) const CONFIRMED_MAX: usize = 64;

/// A request's part of the slots that may be read ahead of their use.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    slots: usize,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.region_turns.give_back(self.slots);
    }
}

/// The spot of a metadata slot: the device's block, and the bytes before the slot in it.
struct Spot {
    block: u64,
    len: usize,
    skip: usize,
}

impl State {
    /// Queues the metadata slots that the last decision changed for their write.
    fn note_changed_entries(&mut self) {
        while let Some(entry) = self.decide().next_changed_entry() {
            self.push_entry(&entry);
        }
    }

    /// Notes that a metadata slot is on flash in this form.
    pub(crate) fn note_entry_written(&mut self, entry: &Arc<RegionEntry>) {
        self.decide().entry_written(entry);
    }
}

impl Shared {
    /// Makes the answers about `lba` sure: the design knows the metadata slots that they need.
    pub(crate) async fn confirm(self: &Arc<Self>, lba: Lba) {
        loop {
            let Some(Unconfirmed(slot)) = self.state.lock().unconfirmed(lba) else { return };
            self.tell_block(&[slot]).await;
        }
    }

    /// Reads the metadata slot that one answer lacks.
    pub(crate) async fn confirm_one(self: &Arc<Self>, answer: Unconfirmed) {
        self.tell_block(&[answer.0]).await;
    }

    /// Reads the metadata slots that the first of `contents` need, side by side. The caller keeps
    /// the result until it has used the answers.
    pub(crate) async fn confirm_contents(self: &Arc<Self>, contents: &[Fingerprint]) -> Option<Ahead> {
        let answers: Vec<Unconfirmed> = {
            let state = self.state.lock();
            contents.iter().filter_map(|content| state.unconfirmed_content(content)).collect()
        };
        self.confirm_some(&answers).await
    }

    /// Reads the metadata slots of the first of these answers, at least one, and tells the design.
    ///
    /// It reads as many as may be read ahead. The caller keeps the result until it has used the
    /// answers.
    pub(crate) async fn confirm_some(self: &Arc<Self>, answers: &[Unconfirmed]) -> Option<Ahead> {
        if answers.is_empty() {
            return None;
        }
        let part = self.region_turns.take_ahead(answers.len().min(CONFIRMED_MAX));
        let ahead = Ahead { shared: self.clone(), slots: part };
        self.tell_all(&answers[..part]).await;
        Some(ahead)
    }

    async fn tell_all(self: &Arc<Self>, answers: &[Unconfirmed]) {
        let mut blocks: BTreeMap<u64, Vec<SlotId>> = BTreeMap::new();
        for &Unconfirmed(slot) in answers {
            let block = blocks.entry(self.spot(slot).block).or_default();
            if !block.contains(&slot) {
                block.push(slot);
            }
        }
        if let (1, Some((_, block))) = (blocks.len(), blocks.first_key_value()) {
            return self.tell_block(block).await;
        }
        let told = |block: Vec<SlotId>| {
            let this = self.clone();
            IoFuture::boxed(async move {
                this.tell_block(&block).await;
                Ok(())
            })
        };
        join_all(blocks.into_values().map(told).collect()).await;
    }

    /// Reads metadata slots of one block, and tells the design.
    async fn tell_block(self: &Arc<Self>, slots: &[SlotId]) {
        let Some(&first) = slots.first() else { return };
        let turn = self.region_turn(first).granted().await;
        let read = self.read_block(first).await;
        let entries: Vec<_> = slots.iter().map(|&slot| (slot, self.entry_in(&read, slot))).collect();
        {
            let mut state = self.state.lock();
            entries.into_iter().for_each(|(slot, entry)| {
                state.tell(slot, entry);
            });
        }
        drop(turn);
    }

    /// Reads the metadata slot of `slot`; the caller has the turn. Returns `None` if it is
    /// unreadable or damaged.
    async fn read_entry(&self, slot: SlotId) -> Option<RegionEntry> {
        let read = self.read_block(slot).await;
        self.entry_in(&read, slot)
    }

    /// Reads the block of the metadata slot of `slot`.
    async fn read_block(&self, slot: SlotId) -> IoResult<IoBuf> {
        let spot = self.spot(slot);
        self.counters.note_region_read(self.stripes.mine(), spot.len as u64);
        let read = self.flash.read(spot.block * self.region_block(), IoBuf::new(spot.len)).await;
        read.inspect_err(|error| self.note_flash_read_error(error))
    }

    /// Returns the metadata slot of `slot` in its block.
    fn entry_in(&self, block: &IoResult<IoBuf>, slot: SlotId) -> Option<RegionEntry> {
        let (spot, Ok(block)) = (self.spot(slot), block) else { return None };
        let bytes = block.get(spot.skip..spot.skip + METADATA_SLOT_BYTES);
        let entry = bytes.and_then(|bytes| entry::decode(bytes, self.geometry.flash_tag, slot));
        if entry.is_none() {
            self.counters.corrupt_records.fetch_add(1, Relaxed);
        }
        entry
    }

    /// Writes the metadata slot of `slot`, if it changed, into its block; the caller has the turn.
    ///
    /// A slot that changed again since the request is written once. The caller tells the design of
    /// the write with the result. `segment` is its number.
    pub(crate) async fn write_entry(&self, slot: SlotId, segment: u64) -> IoResult<Option<Arc<RegionEntry>>> {
        let (entry, durable_frame) = {
            let state = self.state.lock();
            let entry = state.design().entry_to_write(slot);
            state.note_slot(Event::Taken { segment }, entry.as_ref().map(|_| slot));
            (entry, state.log.area().durable_frame())
        };
        if let Some(entry) = &entry {
            self.write_block(slot, &entry::encode(entry, self.geometry.flash_tag, durable_frame)).await?;
        }
        Ok(entry)
    }

    async fn write_block(&self, slot: SlotId, entry: &[u8; METADATA_SLOT_BYTES]) -> IoResult<()> {
        let spot = self.spot(slot);
        let offset = spot.block * self.region_block();
        let mut block = match spot.len == METADATA_SLOT_BYTES {
            true => IoBuf::zeroed(spot.len),
            // A block that cannot be read is lost to its neighbours already: they are misses.
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

    /// Asks for the turn of a metadata slot's block, which each of its readers and writers takes.
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
