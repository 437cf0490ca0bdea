//! The limits that the engine keeps, and that the simulator's executor keeps as it does.
//!
//! Role: both crates take them from here, so a replay decides at the same counts as a served cache.
//!
//! Invariants: no other file writes one of them down.
//!
//! It does not have limits of threads, devices and memory, which a replay lacks.

/// Share of the log in use from which on a checkpoint is due, in percent.
pub const CHECKPOINT_DUE_PERCENT: u64 = 50;

/// Entries that wait for the log at most; beyond them, writers wait.
const PENDING_ENTRIES_MAX: u64 = 1 << 16;

/// Divisor of the log, for the share that waiting entries may take.
const PENDING_SHARE: u64 = 8;

/// Addresses that metadata slots may not name yet, at most: some 3 MiB of RAM.
///
/// Beyond it, writers wait for a commit, and insertion stops.
pub const HELD_ADDRESSES_MAX: usize = 4096;

/// Slots that are freed ahead with one commit.
///
/// A writer that waits for room waits for their dirty chunks, too.
pub const FREED_AHEAD_MAX: usize = 32;

/// Slots for one record that are evicted with one commit, at most.
pub const RECORD_BATCH_MAX: usize = 256;

/// Slots for one record, for each one that is kept free: half of the spare ones.
pub const RECORD_SLOTS_PER_FREE: usize = 64;

/// WEUs that are evicted with one commit, at most.
pub const WEU_BATCH_MAX: usize = 8;

/// WEUs for each one that is kept free.
pub const WEUS_PER_FREE: usize = 32;

/// The fewest slots that are kept free.
pub const FREE_MIN: usize = 2;

/// Divisor of a RAM budget, for the share of AustereCache's indices. The rest is for dirty data.
pub const INDEX_SHARE: u64 = 2;

/// Share of the data area that may be dirty before destaging has no limit of rate, in percent.
pub const DIRTY_HIGH_PERCENT: u8 = 40;

/// Chunks that are destaged at once, at most.
pub const DESTAGED_AT_ONCE: usize = 256;

/// The longest write that neighbours are joined to when they are destaged, in bytes.
pub const JOINED_BYTES_MAX: usize = 1 << 20;

/// Chunks of a trim that are forgotten at once, at most.
pub const TRIMMED_AT_ONCE: u64 = 1 << 14;

/// Mappings with room in any checkpoint whose history names records.
pub const MAPPINGS_ALWAYS: u64 = 4096;

/// Divisor of the mappings of a checkpoint, for those that are kept back.
const KEPT_BACK_SHARE: u64 = 16;

/// Returns the limit of waiting entries for a log with room for so many.
pub fn pending_entries_max(log_entries: u64) -> u64 {
    PENDING_ENTRIES_MAX.min(log_entries / PENDING_SHARE)
}

/// Returns the slots to keep free, of so many slots for one record.
pub fn free_record_slots(slots: usize) -> usize {
    (slots / RECORD_SLOTS_PER_FREE).clamp(FREE_MIN, RECORD_BATCH_MAX)
}

/// Returns the WEUs to keep free, of so many.
pub fn free_weus(weus: usize) -> usize {
    (weus / WEUS_PER_FREE).clamp(FREE_MIN, WEU_BATCH_MAX)
}

/// Returns the waiting entries, or held addresses, at which a commit is due: half of the most.
pub fn commit_due(most: u64) -> u64 {
    most / 2
}

/// Returns the mappings of a cache, for a checkpoint with room for so many.
///
/// A checkpoint gathers its pieces at different moments, so a little more must fit its area.
pub fn mappings_beside_checkpoint(mappings_max: u64) -> u64 {
    mappings_max - mappings_max / KEPT_BACK_SHARE
}

/// Returns the mappings with room in a checkpoint whose history names records, of so many.
///
/// They are more than those that may be dirty: destaging makes room before an eviction does.
/// [`MAPPINGS_ALWAYS`] have room in any case.
pub fn mappings_in_short_checkpoint(mappings: u64) -> u64 {
    (mappings / 16 * 9).max(MAPPINGS_ALWAYS).min(mappings)
}

/// Returns the room of a checkpoint for so many mappings, by [`mappings_beside_checkpoint`].
pub fn checkpoint_for_mappings(mappings: u64) -> u64 {
    mappings.saturating_add(mappings.div_ceil(KEPT_BACK_SHARE - 1))
}
