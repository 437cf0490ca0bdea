//! How an AustereCache is laid out (AustereCache §3.1, §3.2, §5.2), and what cannot be.
//!
//! Invariants: a layout that is accepted has a bucket in each index at least, and numbers that fit their types.
//!
//! What it does not do: allocate.

use std::fmt;

use super::{keys::PREFIX_BITS, sketch::WIDTH_MAX};
use crate::named::DesignLayout;

/// Slots of a bucket, the paper's 128 (§3.1).
pub const BUCKET_SLOTS: u32 = 128;
/// The LBA index has this many slots for each whole chunk of flash, where nothing else is asked (§5.2).
pub const LBA_ENTRIES_PER_CHUNK: u64 = 4;
/// Bits of a prefix in builds that look for trouble with collisions.
const FEW_PREFIX_BITS: u32 = 3;
/// A compressed chunk has this many subchunks at most, where nothing else is asked (§5.2: 8 KiB of 32 KiB).
pub const SUBCHUNKS_PER_CHUNK: u32 = 4;
/// The least subchunk of a cache on a device, in bytes: what that writes whole.
pub const SUBCHUNK_BYTES_LEAST: u32 = 4096;

/// Bytes of a subchunk where nothing else is asked: the paper's share of a chunk, but [`SUBCHUNK_BYTES_LEAST`] at least; of chunks that
/// are not compressed there is nothing to divide. From chunks of four times the least on it is the paper's, whose chunks have 32 KiB.
pub fn subchunk_bytes(chunk_bytes: u32, has_compression: bool) -> u32 {
    match has_compression {
        true => (chunk_bytes / SUBCHUNKS_PER_CHUNK).max(SUBCHUNK_BYTES_LEAST).min(chunk_bytes),
        false => chunk_bytes,
    }
}

/// How an AustereCache is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AustereConfig {
    /// Bytes of flash for chunks. Each slot takes [`METADATA_SLOT_BYTES`](crate::region::METADATA_SLOT_BYTES) of flash besides.
    pub data_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a subchunk, which is what a slot holds: divides the chunk. The chunk itself where nothing is compressed.
    pub subchunk_bytes: u32,
    /// Slots of the LBA index, rounded down to whole buckets; `None` for the default.
    pub lba_entries: Option<u64>,
    /// Bytes of RAM for counts above 15, which the sketch keeps beside it ([`sketch`](super::sketch)); `None` for as many as it takes.
    pub large_counts_bytes_max: Option<u64>,
    /// Whether mappings may be dirty.
    pub is_write_back: bool,
    /// Slots of a bucket, 2 to 128: [`BUCKET_SLOTS`]. Fewer are for tests.
    pub bucket_slots: u32,
    /// Bits of a prefix, 1 to 16: [`PREFIX_BITS`]. Fewer are for tests: collisions are frequent then.
    pub prefix_bits: u32,
}

impl AustereConfig {
    /// The paper's layout (§5.2), with compression or without, for write-through.
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

    /// The layout of a cache that runs over so many slots of a flash that is divided so: what a superblock says of a flash is enough for it.
    pub fn of_layout(layout: &DesignLayout, slots: u64) -> AustereConfig {
        let DesignLayout { chunk_bytes, slot_bytes: subchunk_bytes, bucket_slots, .. } = *layout;
        AustereConfig {
            data_bytes: slots * u64::from(subchunk_bytes),
            subchunk_bytes,
            bucket_slots,
            prefix_bits: if cfg!(feature = "few-hash-bits") { FEW_PREFIX_BITS } else { PREFIX_BITS },
            // What the sketch has no room for is counted anew now and then.
            large_counts_bytes_max: Some(slots),
            ..AustereConfig::new(0, chunk_bytes, true)
        }
    }

    /// Buckets of the FP index and of the LBA index.
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

/// Why there is no such cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AustereError {
    /// The flash does not hold one bucket.
    FlashTooSmall {
        /// What was asked.
        data_bytes: u64,
        /// The least that works.
        least_bytes: u64,
    },
    /// Slot numbers would not fit into 32 bits.
    FlashTooLarge {
        /// What was asked.
        data_bytes: u64,
        /// The most that works.
        most_bytes: u64,
    },
    /// The LBA index would not have one bucket.
    TooFewLbaEntries {
        /// What was asked.
        lba_entries: u64,
        /// The least that works.
        least: u64,
    },
    /// The sketch's counters would not be numbered by 32 bits.
    TooManyLbaEntries {
        /// What was asked, or what four times the flash comes to.
        lba_entries: u64,
        /// The most that works.
        most: u64,
    },
    /// Subchunks do not fill a chunk, or a chunk does not fit into a bucket.
    Subchunk {
        /// What was asked.
        subchunk_bytes: u32,
        /// Bytes of a chunk.
        chunk_bytes: u32,
        /// Slots of a bucket.
        bucket_slots: u32,
    },
    /// Buckets or prefixes of no use.
    Bucket {
        /// What was asked.
        bucket_slots: u32,
        /// What was asked.
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
