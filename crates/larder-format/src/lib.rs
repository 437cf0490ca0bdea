//! The on-flash structures of Larder: bytes to plain Rust structs and back.
//!
//! Role: everything that Larder keeps on its flash is encoded and decoded here: the superblock twins
//! ([`superblock`]), the division of the flash ([`layout`]), the segments that fill a WEU ([`segment`]), the slots that
//! describe what lies in buckets ([`metadata_slot`]), the metadata log ([`log`]) and its checkpoints ([`checkpoint`]).
//! `docs/FORMAT.md` describes all of it once, with the failure that each field guards against.
//!
//! Invariants: fixed-width little-endian, sizes and offsets asserted at compile time. Any bytes whatever decode to a
//! value or to a [`FormatError`], never to a panic. What decodes is canonical: encoding it again gives the same bytes,
//! so reserved bytes are zero. Each structure starts with a magic number, a version and a checksum.
//!
//! What it does not do: I/O, allocation of sequence numbers, or any decision about what to write when.

#![deny(clippy::indexing_slicing)]

pub mod checkpoint;
pub mod checksum;
pub mod codes;
pub mod error;
pub mod features;
pub mod layout;
pub mod log;
pub mod metadata_slot;
pub mod place;
pub mod segment;
pub mod size;
pub mod superblock;
pub mod text;

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
pub use place::{Place, Sectors};
pub use segment::{RecordContent, RecordEntry, SegmentHeader};
pub use superblock::{CheckpointPointer, Chosen, Origin, OriginState, Superblock, choose};
pub use text::{DirectoryPath, OriginUri, VolumeName};

/// The version of every structure in this crate. A reader refuses a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// No counter on a flash (of frames, entries, checkpoints, rewrites) reaches this: at a billion counts a second it would
/// take a century. A reader refuses one that does, so that counting on from what was read never overflows.
pub const COUNTER_MAX: u64 = 1 << 62;

/// Metadata structures start and end at multiples of this many bytes, whatever the device's sector size.
pub const METADATA_ALIGN_BYTES: u64 = 4096;
