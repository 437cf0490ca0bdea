//! The on-flash structures of Larder: bytes to plain Rust structs and back.
//!
//! Role: encodes and decodes all that Larder keeps on its flash:
//! - the superblock twins ([`superblock`]) and the division of the flash ([`layout`]),
//! - the segments that fill a WEU ([`segment`]), and the slots that describe the content of buckets
//!   ([`metadata_slot`]),
//! - the metadata log ([`log`]) and its checkpoints ([`checkpoint`]).
//!
//! `docs/FORMAT.md` describes all of it once, with the failure that each field guards against.
//!
//! Invariants: fixed-width little-endian, sizes and offsets asserted at compile time. All bytes
//! decode to a value or to a [`FormatError`], never to a panic. A decoded value is canonical:
//! encoding it again gives the same bytes, so reserved bytes are zero. Each structure starts with a
//! magic number, a version and a checksum.
//!
//! It does no I/O, allocates no sequence numbers, and does not decide which structure to write
//! when.

#![deny(clippy::indexing_slicing)]

pub mod checkpoint;
pub mod checksum;
pub mod codes;
pub mod error;
pub mod features;
pub mod layout;
mod limits;
pub mod log;
pub mod metadata_slot;
pub mod place;
pub mod segment;
pub mod size;
pub mod superblock;
pub mod text;

mod flags;
mod wire;

pub use checkpoint::{
    BlockIdentity, BlockKind, CheckpointBlock, CheckpointCounts, CheckpointEncoder, CheckpointHeader, DesignPage,
    FingerprintEntry, FragmentEntry, MappingEntry, SlotEntry, ZeroRange, checkpoint_bytes_max,
};
pub use checksum::{RecordIdentity, crc32c, record_crc, record_crc_of};
pub use codes::{Compression, DesignId, Encoding, SlotState, WeuClass, WriteMode};
pub use error::{FormatError, Structure};
pub use layout::{BucketRequest, HistoryRequest, Layout, LayoutRequest, StoreKind};
pub use log::{
    FrameHeader, FrameStart, LogEntry, LogStart, decode_frame, encode_frame, encode_frame_into, frame_crc, peek_frame,
    traces_of_frame,
};
pub use metadata_slot::{LbaList, MetadataSlot};
pub use place::{FlashPlace, Sectors};
pub use segment::{RecordContent, RecordEntry, SegmentHeader};
pub use superblock::{
    CheckpointPointer, Chosen, DurableFrame, Origin, OriginState, Superblock, WEAR_RECORD_BINS, WEAR_RECORD_BYTES,
    WearRecord, choose,
};
pub use text::{DirectoryPath, OriginUri, VolumeName};

/// The version of every structure in this crate. A reader refuses a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// The bound of every counter on a flash: frames, entries, checkpoints, rewrites.
///
/// At a billion counts a second a counter would take a century to reach it. A reader refuses a
/// counter that does, so that counting on from the value read never overflows.
pub const COUNTER_MAX: u64 = 1 << 62;

/// The alignment of starts and ends of metadata structures, bytes, for any sector size.
pub const METADATA_ALIGN_BYTES: u64 = 4096;
