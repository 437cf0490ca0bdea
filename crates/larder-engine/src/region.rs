//! The metadata region of a bucket store: reading a metadata slot that a decision wants to know, and writing those that changed.
//!
//! A design whose decisions are provisional names the metadata slot to be read ([`Design::unread`]); it is read without the lock,
//! and then the design is asked again. What it changed is written like a segment: before the log entries that depend on it.
//!
//! Whoever works on a block has its *turn*, which is AustereCache's lock of a bucket (section 4): requests of other blocks go on.
//!
//! Invariants: of what lies in one block of the device, one read or write is under way at a time, in the order in which they were
//! asked for under the lock; and what was read is told, or used for a hit that is pinned, before its turn ends. So nobody is told
//! what was written over meanwhile, and a block that is read, changed and written back loses no neighbour's change.
//!
//! What it does not do: decide, or know what is dirty.
//!
//! [`Design::unread`]: larder_core::Design::unread

pub(crate) mod scan;

use crate::{shared::Shared, state::State, tickets::Ticket};
use larder_core::{SlotId, austere::bucketed::entries::RegionEntry, design::Question};
use larder_device::{IoBuf, IoResult, WriteFlags};
use larder_format::metadata_slot::METADATA_SLOT_BYTES;
use std::sync::{Arc, atomic::Ordering::*};

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
}

impl Shared {
    /// Reads what the design has to know before it can answer `question`.
    pub(crate) async fn inform(self: &Arc<Self>, question: Question<'_>) {
        loop {
            let Some(slot) = self.state.lock().design.unread(question) else { return };
            self.inform_of(slot).await;
        }
    }

    /// Reads the metadata slot of `slot`, and tells the design.
    pub(crate) async fn inform_of(self: &Arc<Self>, slot: SlotId) {
        let turn = self.region_turn(slot).granted().await;
        let entry = self.read_entry(slot).await;
        self.state.lock().design.tell(slot, entry.map(Arc::new));
        drop(turn);
    }

    /// Reads the metadata slot of `slot`; the caller has the turn. `None` where it cannot be read, or is damaged.
    pub(crate) async fn read_entry(&self, slot: SlotId) -> Option<RegionEntry> {
        let spot = self.spot(slot);
        let read = self.flash.read(spot.block * self.region_block(), IoBuf::new(spot.len)).await;
        self.counters.note_region_read(self.stripes.mine());
        let entry = match &read {
            Ok(bytes) => bytes
                .get(spot.skip..spot.skip + METADATA_SLOT_BYTES)
                .and_then(|bytes| scan::decode(bytes, self.geometry.flash_tag, slot)),
            Err(error) => {
                self.note_flash_read_error(error);
                None
            }
        };
        if read.is_ok() && entry.is_none() {
            self.counters.corrupt_records.fetch_add(1, Relaxed);
        }
        entry
    }

    /// Writes the metadata slot of `slot`, if it changed, into its block; the caller has the turn. What changed again since it was
    /// asked for is written once.
    pub(crate) async fn write_entry(&self, slot: SlotId) -> IoResult<()> {
        let Some(entry) = self.state.lock().design.entry_to_write(slot) else { return Ok(()) };
        self.write_block(slot, &entry).await?;
        self.state.lock().design.entry_written(&entry);
        Ok(())
    }

    async fn write_block(&self, slot: SlotId, entry: &RegionEntry) -> IoResult<()> {
        let spot = self.spot(slot);
        let offset = spot.block * self.region_block();
        let mut block = match spot.len == METADATA_SLOT_BYTES {
            true => IoBuf::zeroed(spot.len),
            // What cannot be read is lost to its neighbours already: they are misses.
            false => match self.flash.read(offset, IoBuf::new(spot.len)).await {
                Ok(block) => block,
                Err(_) => {
                    let again = self.flash.read(offset, IoBuf::new(spot.len)).await;
                    again.unwrap_or_else(|_| IoBuf::zeroed(spot.len))
                }
            },
        };
        block[spot.skip..spot.skip + METADATA_SLOT_BYTES]
            .copy_from_slice(&scan::encode(entry, self.geometry.flash_tag));
        let block = block.freeze();
        let mut result = self.flash.write(offset, block.clone(), WriteFlags::default()).await;
        if result.is_err() {
            self.counters.flash_write_errors.fetch_add(1, Relaxed);
            result = self.flash.write(offset, block, WriteFlags::default()).await;
        }
        self.counters.flash_region_bytes_written.fetch_add(METADATA_SLOT_BYTES as u64, Relaxed);
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
