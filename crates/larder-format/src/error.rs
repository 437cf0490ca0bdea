//! The reasons to refuse bytes or a geometry.
//!
//! Role: one small enum to match on; `Display` gives one sentence for the operator. It carries no
//! offset, which the caller knows from its read.

use crate::features::{self, Word};
use crate::limits::{BUCKET_SLOTS_MAX, DESIGN_PAGES_MAX, StoreKind};
use crate::size::exact;
use core::fmt;

/// The structure that an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// One of the superblock twins.
    Superblock,
    /// The header of a segment in a WEU.
    SegmentHeader,
    /// The record table of a segment.
    RecordTable,
    /// A frame of the metadata log.
    LogFrame,
    /// The header block of a checkpoint area.
    CheckpointHeader,
    /// A block of a checkpoint.
    CheckpointBlock,
    /// A slot of the metadata region.
    MetadataSlot,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Superblock => "superblock",
            Structure::SegmentHeader => "segment header",
            Structure::RecordTable => "record table",
            Structure::LogFrame => "log frame",
            Structure::CheckpointHeader => "checkpoint header",
            Structure::CheckpointBlock => "checkpoint block",
            Structure::MetadataSlot => "metadata slot",
        })
    }
}

/// The reason why bytes from flash were refused, or why a flash cannot be laid out as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The magic number is missing: never formatted, overwritten, or another structure.
    BadMagic(Structure),
    /// Written by a newer Larder: a higher version, or a feature bit that this one does not know.
    NewerVersion {
        /// The structure that has the version or bit.
        structure: Structure,
        /// Its version.
        version: u32,
        /// Its unknown incompatible feature bits (superblock only, else 0).
        features: u64,
    },
    /// The checksum does not match: bit rot or a torn write.
    BadChecksum(Structure),
    /// Fewer bytes than the structure needs.
    Truncated {
        /// The structure.
        structure: Structure,
        /// The bytes that it needs, as far as is known.
        needed_bytes: u64,
    },
    /// A byte that the format reserves is not zero.
    ReservedNotZero(Structure),
    /// Well formed, but of another flash, slot, generation, checkpoint or place: stale or
    /// misdirected.
    Foreign(Structure),
    /// Well formed, but a field has a value that the format does not allow.
    Invalid {
        /// The structure.
        structure: Structure,
        /// The field, and its error.
        what: &'static str,
    },
    /// More entries than one structure holds, or a buffer too small for them: the caller's mistake.
    TooLarge {
        /// The structure.
        structure: Structure,
        /// The most that it holds.
        max: u64,
    },
    /// A text is longer than its field, or holds a zero byte.
    BadText {
        /// The longest text that the field holds, bytes.
        bytes_max: usize,
    },
    /// The chunk size is not a power of two from 4 KiB to 128 KiB.
    ChunkSize {
        /// The size asked for.
        bytes: u32,
    },
    /// The WEU size is not a power of two from 512 KiB to 4 MiB.
    WeuSize {
        /// The size asked for.
        bytes: u32,
    },
    /// The sector size is not a power of two from 512 to 4096.
    SectorSize {
        /// The size asked for.
        bytes: u32,
    },
    /// The subchunk size is not a power of two from a sector to the chunk.
    SubchunkSize {
        /// The size asked for.
        bytes: u32,
        /// The smallest size allowed.
        least_bytes: u32,
        /// The chunk size.
        chunk_bytes: u32,
    },
    /// A bucket has too many slots, or too few for a chunk.
    BucketSlots {
        /// The slots asked for.
        slots: u32,
        /// The fewest slots allowed.
        least: u32,
    },
    /// The design asks for more pages in a checkpoint than the format allows.
    DesignPages {
        /// The pages asked for.
        pages: u64,
    },
    /// The origin is empty.
    OriginEmpty,
    /// The flash is too small.
    FlashTooSmall {
        /// Its size.
        flash_bytes: u64,
        /// The smallest size allowed with this chunk and slot size.
        needed_bytes: u64,
    },
    /// The flash has more slots than the format can number.
    FlashTooLarge {
        /// The largest size allowed with slots of this size.
        flash_bytes_max: u64,
        /// The kind of the slots.
        store: StoreKind,
    },
}

impl FormatError {
    /// Returns the error with the least size that `fits`, in whole slots. Other errors stay.
    ///
    /// The division into buckets depends on the size of the flash: the lack at one size says
    /// nothing about the next.
    #[must_use]
    pub fn with_least_size(self, slot_bytes: u64, fits: impl Fn(u64) -> bool) -> FormatError {
        let FormatError::FlashTooSmall { flash_bytes, .. } = self else { return self };
        let larger = (flash_bytes / slot_bytes + 1..=u64::from(u32::MAX)).map(|slots| slots * slot_bytes);
        let least = larger.into_iter().find(|&bytes| fits(bytes));
        least.map_or(self, |needed_bytes| FormatError::FlashTooSmall { flash_bytes, needed_bytes })
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FormatError::BadMagic(Structure::Superblock) => {
                f.write_str("this is not a Larder flash: it holds no superblock")
            }
            FormatError::BadMagic(s) => write!(f, "no {s} here: the magic number is missing"),
            FormatError::NewerVersion { structure, version, features: 0 } => {
                write!(f, "the {structure} has version {version}, written by a newer Larder: use that one")
            }
            FormatError::NewerVersion { structure, features, .. } => unknown_features(f, structure, features),
            FormatError::BadChecksum(s) => write!(f, "the {s} is corrupt: its checksum does not match"),
            FormatError::Truncated { structure, needed_bytes } => {
                write!(f, "the {structure} is cut short: it needs {needed_bytes} bytes")
            }
            FormatError::ReservedNotZero(s) => write!(f, "the {s} has reserved bytes that are not zero"),
            FormatError::Foreign(s) => write!(f, "the {s} is stale or belongs elsewhere"),
            FormatError::Invalid { structure, what } => write!(f, "the {structure} is invalid: {what}"),
            FormatError::TooLarge { structure, max } => {
                write!(f, "too much for one {structure}: it holds {max} at most")
            }
            FormatError::BadText { bytes_max } => {
                write!(f, "a text is longer than {bytes_max} bytes or holds a zero byte")
            }
            FormatError::ChunkSize { bytes } => {
                write!(f, "the chunk size must be a power of two from 4 KiB to 128 KiB, not {bytes} bytes")
            }
            FormatError::WeuSize { bytes } => {
                write!(f, "the WEU size must be a power of two from 512 KiB to 4 MiB, not {bytes} bytes")
            }
            FormatError::SectorSize { bytes } => {
                write!(f, "the sector size must be a power of two from 512 to 4096 bytes, not {bytes}")
            }
            FormatError::SubchunkSize { bytes, least_bytes, chunk_bytes } => {
                let (least, most) = (exact(least_bytes.into()), exact(chunk_bytes.into()));
                write!(f, "the subchunk size must be a power of two from {least} to {most}, not {bytes} bytes")
            }
            FormatError::BucketSlots { slots, least } => {
                write!(f, "a bucket of such chunks must have from {least} to {BUCKET_SLOTS_MAX} slots, not {slots}")
            }
            FormatError::DesignPages { pages } => {
                write!(f, "a checkpoint can have {DESIGN_PAGES_MAX} pages of its design at most, not {pages}")
            }
            FormatError::OriginEmpty => f.write_str("the origin is empty"),
            FormatError::FlashTooSmall { flash_bytes, needed_bytes } => {
                let (given, least) = (exact(flash_bytes), exact(needed_bytes));
                write!(f, "a flash of {given} is too small; {least} is the least")
            }
            FormatError::FlashTooLarge { flash_bytes_max, store } => {
                let size = store.slot_name();
                write!(f, "the flash has more than {}: use a larger {size} size", exact(flash_bytes_max))
            }
        }
    }
}

/// Writes the sentence on incompatible features that this program does not handle.
fn unknown_features(f: &mut fmt::Formatter<'_>, structure: Structure, features: u64) -> fmt::Result {
    let names = features::names(Word::Incompatible, features);
    let bits = if names.len() == 1 { "bit" } else { "bits" };
    write!(
        f,
        "the {structure} has incompatible feature {bits} {}, which this Larder does not know",
        names.join(" and ")
    )?;
    if features & !features::READABLE == 0 {
        f.write_str(" and must not write to (`larder verify` and `larder dump` may read it)")?;
    }
    f.write_str(": use the Larder that wrote to this flash last, or a newer one")
}

impl core::error::Error for FormatError {}
