//! The layout of an AustereCache (AustereCache §3.1, §3.2, §5.2), and its limits.
//!
//! Invariants: an accepted layout has at least one bucket in each index, and numbers that fit their
//! types.
//!
//! It does not allocate.

use std::fmt;

use super::{keys::PREFIX_BITS, sketch::WIDTH_MAX};
use crate::named::DesignLayout;

/// Slots of a bucket, the paper's 128 (§3.1).
pub const BUCKET_SLOTS: u32 = 128;
/// Default slots of the LBA index for each whole chunk of flash (§5.2).
pub const LBA_ENTRIES_PER_CHUNK: u64 = 4;
/// Bits of a prefix in builds that provoke collisions.
const FEW_PREFIX_BITS: u32 = 3;
/// Default maximum of subchunks of a compressed chunk (§5.2: 8 KiB of 32 KiB).
pub const SUBCHUNKS_PER_CHUNK: u32 = 4;
/// Minimum subchunk of a cache on a device, in bytes: the unit that the device writes whole.
pub const SUBCHUNK_BYTES_LEAST: u32 = 4096;

/// Buckets that a flash should have, unless they would have fewer than [`BUCKET_SLOTS_LEAST`]
/// slots.
const BUCKETS_WANTED: u64 = 64;
const BUCKET_SLOTS_LEAST: u64 = 16;

/// Returns the slots of a bucket on a flash of `slots`. Small flashes have small buckets, so that
/// they have enough of them.
pub fn bucket_slots_for(slots: u64) -> u32 {
    (slots / BUCKETS_WANTED).next_power_of_two().clamp(BUCKET_SLOTS_LEAST, BUCKET_SLOTS.into()) as u32
}

/// Returns the default bytes of a subchunk.
///
/// With compression a subchunk is the paper's quarter of a chunk, at least
/// [`SUBCHUNK_BYTES_LEAST`]. Chunks of 16 KiB and more have the paper's quarter, as its own chunks
/// of 32 KiB. Without compression a subchunk is the chunk.
pub fn subchunk_bytes(chunk_bytes: u32, has_compression: bool) -> u32 {
    match has_compression {
        true => (chunk_bytes / SUBCHUNKS_PER_CHUNK).max(SUBCHUNK_BYTES_LEAST).min(chunk_bytes),
        false => chunk_bytes,
    }
}

/// The layout of an AustereCache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AustereConfig {
    /// Bytes of flash for chunks. Each slot takes
    /// [`METADATA_SLOT_BYTES`](crate::region::METADATA_SLOT_BYTES) of flash besides.
    pub data_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a subchunk, the content of a slot. It divides the chunk; without compression it is
    /// the chunk.
    pub subchunk_bytes: u32,
    /// Slots of the LBA index, rounded down to whole buckets; `None` for the default.
    pub lba_entries: Option<u64>,
    /// Bytes of RAM for counts above 15, beside the [sketch](super::sketch); `None` for no limit.
    pub large_counts_bytes_max: Option<u64>,
    /// True if mappings may be dirty.
    pub is_write_back: bool,
    /// Slots of a bucket, 2 to 128: [`BUCKET_SLOTS`]. Fewer are for tests.
    pub bucket_slots: u32,
    /// Bits of a prefix, 1 to 16: [`PREFIX_BITS`]. Fewer are for tests with frequent collisions.
    pub prefix_bits: u32,
}

impl AustereConfig {
    /// Returns the paper's layout (§5.2), with compression or without, for write-through.
    pub fn new(data_bytes: u64, chunk_bytes: u32, has_compression: bool) -> AustereConfig {
        let subchunk_bytes = if has_compression { chunk_bytes / SUBCHUNKS_PER_CHUNK } else { chunk_bytes };
        AustereConfig {
            data_bytes,
            chunk_bytes,
            subchunk_bytes,
            lba_entries: None,
            large_counts_bytes_max: None,
            is_write_back: false,
            bucket_slots: BUCKET_SLOTS,
            prefix_bits: PREFIX_BITS,
        }
    }

    /// Returns the layout for a number of slots of a divided flash. A superblock has all of its
    /// inputs.
    pub fn of_layout(layout: &DesignLayout, slots: u64) -> AustereConfig {
        let DesignLayout { chunk_bytes, slot_bytes: subchunk_bytes, bucket_slots, .. } = *layout;
        AustereConfig {
            data_bytes: slots * u64::from(subchunk_bytes),
            subchunk_bytes,
            bucket_slots,
            prefix_bits: if cfg!(feature = "few-hash-bits") { FEW_PREFIX_BITS } else { PREFIX_BITS },
            // Counts that the sketch has no room for are counted anew at times.
            large_counts_bytes_max: Some(slots),
            ..AustereConfig::new(0, chunk_bytes, true)
        }
    }

    /// Returns the buckets of the FP index and of the LBA index.
    pub(super) fn buckets(&self) -> Result<(u32, u32), AustereError> {
        let Self { data_bytes, chunk_bytes, subchunk_bytes, lba_entries, bucket_slots, prefix_bits, .. } = *self;
        if !(2..=BUCKET_SLOTS).contains(&bucket_slots) || !(1..=PREFIX_BITS).contains(&prefix_bits) {
            return Err(AustereError::Bucket { bucket_slots, prefix_bits });
        }
        if subchunk_bytes == 0
            || !chunk_bytes.is_multiple_of(subchunk_bytes)
            || chunk_bytes / subchunk_bytes > bucket_slots
        {
            return Err(AustereError::Subchunk { subchunk_bytes, chunk_bytes, bucket_slots });
        }
        let (slots, chunk) = (u64::from(bucket_slots), u64::from(chunk_bytes.max(1)));
        let bucket_bytes = slots * u64::from(subchunk_bytes);
        if data_bytes < bucket_bytes {
            return Err(AustereError::FlashTooSmall { data_bytes, least_bytes: bucket_bytes });
        }
        // Slots are numbered with 32 bits.
        let most = u64::from(u32::MAX) / slots;
        if data_bytes / bucket_bytes > most {
            return Err(AustereError::FlashTooLarge { data_bytes, most_bytes: most * bucket_bytes });
        }
        let entries = match lba_entries {
            Some(entries) if entries < slots => {
                return Err(AustereError::TooFewLbaEntries { lba_entries: entries, least: slots });
            }
            Some(entries) => entries,
            None => (data_bytes / chunk * LBA_ENTRIES_PER_CHUNK).max(slots),
        };
        if entries > u64::from(WIDTH_MAX) {
            return Err(AustereError::TooManyLbaEntries { lba_entries: entries, most: u64::from(WIDTH_MAX) });
        }
        Ok(((data_bytes / bucket_bytes) as u32, (entries / slots) as u32))
    }
}

/// The reason that a layout is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AustereError {
    /// The flash does not hold one bucket.
    FlashTooSmall {
        /// The requested size.
        data_bytes: u64,
        /// The minimum.
        least_bytes: u64,
    },
    /// Slot numbers would not fit into 32 bits.
    FlashTooLarge {
        /// The requested size.
        data_bytes: u64,
        /// The maximum.
        most_bytes: u64,
    },
    /// The LBA index would not have one bucket.
    TooFewLbaEntries {
        /// The requested number.
        lba_entries: u64,
        /// The minimum.
        least: u64,
    },
    /// The sketch's counters would exceed 32-bit numbers.
    TooManyLbaEntries {
        /// The requested number, or four times the flash.
        lba_entries: u64,
        /// The maximum.
        most: u64,
    },
    /// Subchunks do not fill a chunk, or a chunk does not fit into a bucket.
    Subchunk {
        /// The requested size.
        subchunk_bytes: u32,
        /// Bytes of a chunk.
        chunk_bytes: u32,
        /// Slots of a bucket.
        bucket_slots: u32,
    },
    /// The size of buckets or prefixes is out of range.
    Bucket {
        /// The requested slots of a bucket.
        bucket_slots: u32,
        /// The requested bits of a prefix.
        prefix_bits: u32,
    },
}

impl fmt::Display for AustereError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AustereError::FlashTooSmall { data_bytes, least_bytes } => {
                write!(
                    f,
                    "austere: {data_bytes} bytes for chunks are too few for one bucket; {least_bytes} bytes are the least"
                )
            }
            AustereError::FlashTooLarge { data_bytes, most_bytes } => {
                write!(
                    f,
                    "austere: {data_bytes} bytes for chunks are too many for these subchunks; {most_bytes} bytes are the most"
                )
            }
            AustereError::TooFewLbaEntries { lba_entries, least } => {
                write!(f, "austere: {lba_entries} LBA entries are too few for one bucket; {least} are the least")
            }
            AustereError::TooManyLbaEntries { lba_entries, most } => {
                write!(f, "austere: {lba_entries} LBA entries are too many; {most} are the most")
            }
            AustereError::Subchunk { subchunk_bytes, chunk_bytes, bucket_slots } => write!(
                f,
                "austere needs subchunks that divide the chunk of {chunk_bytes} bytes into {bucket_slots} pieces at \
                 most, and {subchunk_bytes} bytes do not"
            ),
            AustereError::Bucket { bucket_slots, prefix_bits } => write!(
                f,
                "austere needs buckets of 2 to 128 slots with prefixes of 1 to 16 bits, not {bucket_slots} slots with \
                 {prefix_bits} bits"
            ),
        }
    }
}

impl std::error::Error for AustereError {}
