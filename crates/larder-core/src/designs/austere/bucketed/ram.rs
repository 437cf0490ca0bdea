//! The RAM of the indices of a layout, before there are any: the divisor of a budget.
//!
//! Invariants: [`Bucketed`](super::Bucketed) allocates no more for indices, their losses, large
//! counts and remembered metadata slots. Metadata slots that wait to be written are not included.
//!
//! It does not count dirty data.

use super::{ahead::Ahead, entries};
use crate::austere::{
    AustereConfig, config::AustereError, fp_index::FpHashIndex, keys::KeySpace, lba_index::LbaHashIndex, sketch::Sketch,
};
use crate::lost::Lost;

/// Bytes of a slot in either index beside the FP-hash: a prefix.
const PREFIX_BYTES: u64 = 2;
/// Flags of a bucket's slots.
const FLAGS_BYTES: u64 = 16;
/// A bucket's hand in the FP index.
const HAND_BYTES: u64 = 1;

/// Returns the maximum bytes of RAM.
///
/// # Errors
/// An impossible layout.
pub fn ram_bytes_max(config: &AustereConfig) -> Result<u64, AustereError> {
    let (fp_buckets, lba_buckets) = config.buckets()?;
    let slots = u64::from(config.bucket_slots);
    let (fp_slots, entries) = (u64::from(fp_buckets) * slots, u64::from(lba_buckets) * slots);
    let fp_hash_bits = u64::from(KeySpace::new(fp_buckets, config.prefix_bits).bits());
    let fp_parts = FpHashIndex::parts_bytes(fp_buckets as usize, config.bucket_slots as usize) as u64;
    let fp_index = fp_slots * PREFIX_BYTES + u64::from(fp_buckets) * (FLAGS_BYTES + HAND_BYTES) + fp_parts;
    let hashes = (slots * fp_hash_bits).div_ceil(u64::from(u64::BITS)) * size_of::<u64>() as u64;
    let lba_parts = LbaHashIndex::parts_bytes(lba_buckets as usize, config.bucket_slots as usize) as u64;
    let lba_index = entries * PREFIX_BYTES + u64::from(lba_buckets) * (hashes + FLAGS_BYTES) + lba_parts;
    let large = Sketch::large_bytes_max(LbaHashIndex::references_of(u64::from(lba_buckets), slots));
    let large = config.large_counts_bytes_max.map_or(large, |bytes| bytes.min(large));
    Ok(fp_index
        + lba_index
        + Sketch::counter_bytes(entries)
        + large
        + Lost::bytes_for(entries)
        + Ahead::bytes_for(fp_slots, slots)
        + entries::READ_BYTES_MAX)
}
