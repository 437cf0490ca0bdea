//! Slots of one chunk, reused one by one, without compression (CacheDedup, FAST 2016, §3.2,
//! §3.3).
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
use larder_core::named::OverSlots;
use larder_format::{
    Compression, HistoryRequest, Layout, StoreKind, Superblock,
    layout::{CHUNK_BYTES_MAX, SLOT_COUNT_MIN},
};

impl Store for OverSlots {
    fn kind(&self) -> StoreKind {
        StoreKind::Slots
    }

    fn can_share(&self) -> bool {
        self.dedup
    }

    fn index_bytes_max(&self, chunk_bytes: u32) -> u64 {
        OverSlots::index_bytes_max(self, chunk_bytes)
    }

    fn slot_tables_bytes(&self, layout: &Layout) -> u64 {
        u64::from(layout.slot_count) * self.slot_bytes_max(layout.chunk_bytes)
    }

    fn history(&self, options: &CreateOptions) -> Option<HistoryRequest> {
        let entries_max = match options.ram_budget_bytes {
            0 => u64::MAX,
            _ => self.slots_max(options).into(),
        };
        let bytes_per_chunk = self.history_bytes(options.chunk_bytes);
        Some(HistoryRequest { bytes_per_chunk, bytes_per_mapping: 0, entries_max, names_records: false })
    }

    /// Returns the slots whose addresses can all be mapped. A table entry for each slot takes RAM
    /// from the beginning.
    fn slots_max(&self, options: &CreateOptions) -> u32 {
        let slots = self.slots_within(options.ram_budget_bytes, options.chunk_bytes);
        u32::try_from(slots).unwrap_or(u32::MAX).max(SLOT_COUNT_MIN)
    }

    fn mappings_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Result<Option<u64>, String> {
        let slots = flash_bytes / u64::from(chunk_bytes);
        match OverSlots::mappings_wanted(self, slots, chunk_bytes) {
            Some(mappings) => Ok(Some(mappings)),
            None => {
                let larger = if chunk_bytes < CHUNK_BYTES_MAX { "larger chunks" } else { "a smaller flash" };
                Err(format!(
                    "cannot have the {slots} slots of {chunk_bytes} bytes that this flash has: take {larger}, or {}",
                    designs::names_where(|store| store.kind() == StoreKind::Weus)
                ))
            }
        }
    }

    fn fit(&self, options: &mut CreateOptions) {
        options.slot_bytes = options.chunk_bytes;
        options.compression = Compression::Off;
        options.dedup = self.dedup;
        options.fp_index_percent = 100;
    }

    fn check(&self, options: &CreateOptions) -> Result<(), Refusal> {
        if options.slot_bytes != options.chunk_bytes {
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
