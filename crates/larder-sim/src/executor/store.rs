//! The store beneath a design under replay: the facts by which the engine's stores differ.
//!
//! `store.rs` of `larder-engine`, and its folder, have the same facts.
//!
//! Invariants: the executor asks for a fact, and never for the kind of the store.
//!
//! It does not know the layout of a flash.

use larder_core::limits::{RECORD_BATCH_MAX, free_record_slots};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct StoreRules {
    /// True if one record fills the slots that were opened for it.
    pub one_record: bool,
    /// True if chunks of zeroes are stored as any other content.
    pub stores_zeroes: bool,
    /// True if a slot is trimmed when it was evicted.
    pub trims_slots: bool,
    /// True if data that the drive dropped can be forgotten.
    pub forgets_drops: bool,
    /// Slots that are kept free. 0 for WEUs, where only concurrency needs some.
    pub free_slots_wanted: usize,
    /// Slots that go with one commit.
    pub evicted_at_once: usize,
    /// An eviction commits once so many entries wait.
    pub evict_commit_entries: u64,
    /// Bytes that a read or write of a metadata slot takes; 0 for a store without a metadata
    /// region.
    pub metadata_block_bytes: u64,
}

impl StoreRules {
    /// Returns those of WEUs.
    pub fn weus() -> StoreRules {
        StoreRules {
            one_record: false,
            stores_zeroes: false,
            trims_slots: true,
            forgets_drops: true,
            free_slots_wanted: 0,
            evicted_at_once: 1,
            evict_commit_entries: 1,
            metadata_block_bytes: 0,
        }
    }

    /// Returns the rules of `slot_count` slots of one chunk each.
    pub fn slots(slot_count: u32, keeps_orphans: bool) -> StoreRules {
        StoreRules {
            one_record: true,
            stores_zeroes: true,
            trims_slots: false,
            forgets_drops: !keeps_orphans,
            free_slots_wanted: free_record_slots(slot_count as usize),
            evicted_at_once: RECORD_BATCH_MAX,
            ..StoreRules::weus()
        }
    }

    /// Returns the rules of `slot_count` slots in buckets, on a flash of these sectors.
    pub fn buckets(slot_count: u32, sector_bytes: u32) -> StoreRules {
        StoreRules { metadata_block_bytes: sector_bytes.into(), ..StoreRules::slots(slot_count, false) }
    }
}
