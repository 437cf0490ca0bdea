//! The bounds of a geometry, and the kinds of slots.
//!
//! Role: constants that each structure checks against. It imports nothing.

/// The smallest chunk.
pub const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// The largest chunk.
pub const CHUNK_BYTES_MAX: u32 = 128 << 10;
/// The most chunks of an origin: an address has 40 bits in the index.
pub const CHUNKS_MAX: u64 = 1 << 40;
/// The smallest WEU: four of the largest chunks.
pub const WEU_BYTES_MIN: u32 = 512 << 10;
/// The largest WEU.
pub const WEU_BYTES_MAX: u32 = 4 << 20;
/// The smallest subchunk: a sector.
pub const SUBCHUNK_BYTES_MIN: u32 = 512;
/// The most slots of a bucket: the paper's (AustereCache §3.1).
pub const BUCKET_SLOTS_MAX: u32 = 128;
/// The most pages of a design: indices of 64 GiB. The largest flash has room for as many.
pub const DESIGN_PAGES_MAX: u64 = 1 << 24;
/// The smallest sector that segments and frames are padded to.
pub const SECTOR_BYTES_MIN: u32 = 512;
/// The largest sector that segments and frames are padded to.
pub const SECTOR_BYTES_MAX: u32 = 4096;
/// The fewest slots (for subchunks: whole chunks): eight WEUs without the first, for metadata.
pub const SLOT_COUNT_MIN: u32 = 7;
/// The starts of the superblock twins: apart, so that one bad erase block does not take both.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 64 << 10];
/// The start of the metadata area.
pub const METADATA_OFFSET: u64 = 128 << 10;
/// The smallest log.
pub const LOG_BYTES_MIN: u64 = 256 << 10;
/// The least value of a scaled limit, in entries; below it, writers could wait for ever.
///
/// A reader refuses a lower one, but for mappings of a small origin, which needs fewer.
pub const ENTRIES_MIN: u64 = 32;

/// The kind of a flash's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// WEUs, which segments fill.
    Weus,
    /// A chunk each, and nothing but its bytes.
    Slots,
    /// Subchunks, in buckets, each with a metadata slot; a chunk takes consecutive ones of a
    /// bucket.
    Buckets,
}

impl StoreKind {
    /// Returns the word for all slots of this kind.
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Weus => "weus",
            StoreKind::Slots => "slots",
            StoreKind::Buckets => "buckets",
        }
    }

    /// Returns the word for one slot.
    pub fn slot_name(self) -> &'static str {
        match self {
            StoreKind::Weus => "WEU",
            StoreKind::Slots => "chunk",
            StoreKind::Buckets => "subchunk",
        }
    }

    /// Returns the term for the part of the flash that the slots take.
    pub fn slots_name(self) -> &'static str {
        match self {
            StoreKind::Weus => "WEU slots",
            StoreKind::Slots | StoreKind::Buckets => "data slots",
        }
    }

    /// Returns whether a slot's content identifies itself, its records and its use of the slot.
    pub fn lists_records(self) -> bool {
        self == StoreKind::Weus
    }
}
