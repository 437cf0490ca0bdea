//! Slots of one chunk each, reused one by one, without compression (CacheDedup, FAST 2016, sections
//! 3.2 and 3.3).
//!
//! Section 3.3 has "the entire Metadata Cache" persistent. Here log and checkpoints have the
//! mappings, and the slots in the order of their use. They also have the fingerprints of all stored
//! content, even of content without an address. Checkpoints alone have the design's history, which
//! is all else: addresses without data, the order on its lists, its target.
//!
//! Invariants: a slot is its record alone; nothing in it identifies it.
//!
//! It does not number the slots as the paper's design does.
//! [`Placed`](larder_core::slotted::Placed) has its data slots take turns in those of the flash.

use super::Store;
use crate::{config::CreateOptions, designs, requested::refusal::Refusal};
use larder_core::{
    named::OverSlots,
    nitro,
    slotted::{
        SETS_BYTES_MAX, addresses_for, lost_bytes_max, mapped_max, mappings_for, shape_of, slots_bytes_max, spares,
    },
};
use larder_format::{
    Compression, HistoryRequest, Layout, StoreKind, Superblock,
    layout::{CHUNK_BYTES_MAX, SLOT_COUNT_MIN},
};

/// Data slots of a sample design, which shows the cost of one slot.
const SAMPLE_SLOTS: u64 = 1 << 16;

/// Returns the limit of bytes of the history for each slot, of many.
fn history_bytes(over: &OverSlots, chunk_bytes: u32) -> u64 {
    shape_of(&*(over.make)(SAMPLE_SLOTS, chunk_bytes)).bytes_max().div_ceil(SAMPLE_SLOTS)
}

/// Returns the limit of bytes of RAM for each slot, for content that the design lost.
fn lost_bytes(over: &OverSlots, chunk_bytes: u32) -> u64 {
    let design = (over.make)(SAMPLE_SLOTS, chunk_bytes);
    let addresses = if design.looks_at_content() { design.sizes().addresses } else { 0 };
    (addresses * lost_bytes_max()).div_ceil(SAMPLE_SLOTS)
}

impl Store for OverSlots {
    fn kind(&self) -> StoreKind {
        StoreKind::Slots
    }

    fn can_share(&self) -> bool {
        self.dedup
    }

    /// The cost of a slot, with the design's entries, is shared among the addresses that may have
    /// it.
    fn index_bytes_max(&self, chunk_bytes: u32) -> u64 {
        let design = (self.make)(SAMPLE_SLOTS, chunk_bytes);
        // A checkpoint takes the history as of one moment.
        let slot = slots_bytes_max()
            + design.ram_bytes_max().div_ceil(SAMPLE_SLOTS)
            + history_bytes(self, chunk_bytes)
            + lost_bytes(self, chunk_bytes);
        nitro::INDEX_BYTES_MAX + SETS_BYTES_MAX + (slot * SAMPLE_SLOTS).div_ceil(mapped_max(&*design))
    }

    fn slot_tables_bytes(&self, layout: &Layout) -> u64 {
        let design = (self.make)(SAMPLE_SLOTS, layout.chunk_bytes);
        let slot_bytes = slots_bytes_max() + design.ram_bytes_max().div_ceil(SAMPLE_SLOTS);
        u64::from(layout.slot_count) * slot_bytes
    }

    fn history(&self, options: &CreateOptions) -> Option<HistoryRequest> {
        let entries_max = match options.ram_budget_bytes {
            0 => u64::MAX,
            _ => self.slots_max(options).into(),
        };
        let bytes_per_chunk = history_bytes(self, options.chunk_bytes);
        Some(HistoryRequest { bytes_per_chunk, bytes_per_mapping: 0, entries_max })
    }

    /// A table entry for each slot is there from the beginning. The slots are limited to those
    /// whose addresses can all be mapped.
    fn slots_max(&self, options: &CreateOptions) -> u32 {
        let entries = options.ram_budget_bytes / self.index_bytes_max(options.chunk_bytes);
        let addresses = mapped_max(&*(self.make)(SAMPLE_SLOTS, options.chunk_bytes));
        let slots = (u128::from(addresses_for(entries)) * u128::from(SAMPLE_SLOTS) / u128::from(addresses)) as u64;
        let slots = u32::try_from(slots + spares(slots)).unwrap_or(u32::MAX);
        slots.max(SLOT_COUNT_MIN)
    }

    fn mappings_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Result<Option<u64>, String> {
        let slots = flash_bytes / u64::from(chunk_bytes);
        let design = (self.make)(slots, chunk_bytes);
        match design.sizes().data_chunks >= slots {
            // A sixteenth of the mappings that a checkpoint has room for is kept free
            // (`recover::index_limits`).
            true => Ok(Some(mappings_for(mapped_max(&*design)) / 15 * 16 + 16)),
            false => {
                let larger = if chunk_bytes < CHUNK_BYTES_MAX { "larger chunks" } else { "a smaller flash" };
                Err(format!(
                    "cannot have the {slots} slots of {chunk_bytes} bytes that this flash has: take {larger}, or {}",
                    designs::names_where(|store| store.kind() == StoreKind::Weus)
                ))
            }
        }
    }

    fn fit(&self, options: &mut CreateOptions) {
        options.weu_bytes = options.chunk_bytes;
        options.compression = Compression::Off;
        options.dedup = self.dedup;
        options.fp_index_percent = 100;
    }

    fn check(&self, options: &CreateOptions) -> Result<(), Refusal> {
        if options.weu_bytes != options.chunk_bytes {
            return Err(Refusal::new("has slots of one chunk, and no WEUs", "leave their size out"));
        }
        if options.compression != Compression::Off {
            return Err(Refusal::new(
                "stores chunks in slots of their size and does not compress",
                "switch compression off",
            ));
        }
        match (self.dedup, options.dedup) {
            (true, _) => shares_all(options),
            (false, false) => Ok(()),
            (false, true) => Err(Refusal::new("does not deduplicate", "switch deduplication off")),
        }
    }

    fn has_made(&self, superblock: &Superblock) -> bool {
        superblock.layout.store() == StoreKind::Slots
            && superblock.compression == Compression::Off
            && superblock.dedup == self.dedup
    }
}

/// Returns an error for options under which a design that knows all contents would miss some.
///
/// # Errors
/// As [`Store::check`].
pub fn shares_all(options: &CreateOptions) -> Result<(), Refusal> {
    match (options.dedup, options.fp_index_percent) {
        (true, 100) => Ok(()),
        (true, _) => {
            Err(Refusal::new("has the fingerprints of all that is stored", "leave the size of the FP index out"))
        }
        (false, _) => Err(Refusal::new("deduplicates, with all its fingerprints", "switch that on")),
    }
}
