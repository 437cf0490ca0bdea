//! The log of an engine's decisions, so that a simulator can come to the same ones by itself.
//!
//! A simulator knows neither time nor bytes. What it needs instead is here, in the order in which the engine decided, under
//! its lock: what was asked, what content it was and how long it is as stored, and when something that was begun is over. So an
//! [`Event`] is an input. What the engine made of it is its [`Answer`], which is noted beside it and which a replay has to
//! find by itself: whether an address hits, whether content is known, where a record goes, when a WEU is full, which segments
//! a commit closes and how long they are, which WEU goes, and what is clean then.
//!
//! A design that has a part of what it knows on flash is [told](Event::Told) what it reads there. The log says which metadata slot
//! that is, not what it holds: a replay knows, for it has seen each of them change, and its write be over.
//!
//! [`text`] has both as lines of text.
//!
//! Invariants: an event names no place on flash, but the metadata slot that is read; only answers do.
//!
//! What it does not do: read or write files. What follows [`Event::Fault`] depends on bytes, and cannot be replayed.

pub mod text;

use crate::{
    design::Wanted,
    types::{Fingerprint, Lba, Place, SectorMap, SlotId, StreamClass},
};

/// The cache that a log begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The design's name.
    pub design: String,
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a WEU in bytes, or of what is a slot in its place.
    pub weu_bytes: u32,
    /// Segments are padded to this, in bytes.
    pub sector_bytes: u32,
    /// Bytes of a segment's header.
    pub header_bytes: u32,
    /// Bytes of an entry of a segment's table.
    pub entry_bytes: u32,
    /// WEU slots.
    pub slot_count: u32,
    /// Entries of the LBA index at most.
    pub mappings_max: u64,
    /// Entries of the FP index at most; 0 where nothing is deduplicated.
    pub fp_entries_max: u64,
    /// Number of the first segment that is closed.
    pub first_segment: u64,
    /// What the opening found: mapped and trimmed chunks, and slots that were used before. A log can be replayed where that is
    /// nothing.
    pub found: u64,
    /// How slots lie together, where they are parts of a chunk.
    pub buckets: Option<BucketLayout>,
}

/// What the layout of a bucket store depends on, beside its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLayout {
    /// Slots of a bucket.
    pub slots: u32,
    /// Chunks of the volume.
    pub chunk_count: u64,
}

/// A record as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of its payload.
    pub bytes: u32,
    /// Not compressed.
    pub raw: bool,
}

/// What a chunk holds that is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewContent {
    /// Zeroes.
    Zero,
    /// Anything else.
    Chunk {
        /// Its fingerprint; `None` where deduplication is off.
        fingerprint: Option<Fingerprint>,
        /// How it was stored; `None` where it had not to be, so that nothing says how long it would be.
        stored: Option<Stored>,
    },
}

/// What an engine was asked, or what was over, when it decided something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cache was opened. The first event of a log.
    Opened(Opened),
    /// A read asks for a chunk.
    Read {
        /// The chunk.
        lba: Lba,
        /// The first sector of it that is read, of 512 bytes.
        first: u16,
        /// The sector behind the last one.
        end: u16,
        /// An address that the design replaced must not be mapped again now: its origin block is being changed, or log or
        /// index have no room.
        held_back: bool,
    },
    /// A write of a part of a chunk asks for what it merges with.
    Merge {
        /// The chunk.
        lba: Lba,
        /// As that of [`Event::Read`].
        held_back: bool,
    },
    /// Whether content is stored was asked before it was compressed.
    Look {
        /// The content.
        fingerprint: Fingerprint,
    },
    /// A chunk is inserted: by a write in write-back, or by a fill, whose bytes have come.
    Insert {
        /// The chunk.
        lba: Lba,
        /// What it holds.
        content: NewContent,
        /// The number of the write where the origin lacks it.
        dirty: Option<u64>,
    },
    /// Some sectors of a chunk are stored, which the origin lacks.
    Fragment {
        /// The chunk.
        lba: Lba,
        /// The sectors.
        sectors: SectorMap,
        /// How they are stored.
        stored: Stored,
        /// The number of the write.
        seq: u64,
    },
    /// The origin is about to be written: what is mapped there is forgotten.
    Change {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// The new content is offered to the cache then.
        again: bool,
    },
    /// A chunk is forgotten: its copy is damaged, or the origin may have lost what it copies.
    Forget {
        /// The chunk.
        lba: Lba,
    },
    /// In write-back, whole chunks are trimmed.
    Trim {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// The number of the trim.
        seq: u64,
    },
    /// A record did not fit the open WEU of its class, which is sealed; it is stored later, or not.
    Full {
        /// The class.
        class: StreamClass,
        /// Its content; `None` for a fragment, and where deduplication is off.
        fingerprint: Option<Fingerprint>,
        /// How it would be stored.
        stored: Stored,
    },
    /// A WEU is opened for a class.
    Open {
        /// The class.
        class: StreamClass,
        /// The record that comes first, and for whom.
        wanted: Wanted,
    },
    /// A metadata slot was read, and the design is told what it says: its record, or that it has none.
    Told {
        /// The first slot of its record.
        slot: SlotId,
    },
    /// The origin durably has what a clean chunk is mapped to, so that a metadata slot may name it; or it is not mapped so any more.
    Settled {
        /// The chunk.
        lba: Lba,
        /// The first.
        is_durable: bool,
    },
    /// The log durably has the writes below a number, so that metadata slots may name their chunks.
    Committed {
        /// The number.
        upto: u64,
    },
    /// The write of a metadata slot begins, with what it is to hold by now. Metadata slots that change are numbered among the segments.
    Taken {
        /// Its number.
        segment: u64,
    },
    /// A commit closes the open segments that it needs: a FLUSH, a write with FUA, or whoever else asked for one.
    Commit {
        /// Those of clean data in any case.
        all: bool,
    },
    /// Every open WEU is sealed, so that it may be evicted.
    Seal,
    /// The write of a segment, or of a metadata slot, is over.
    Written {
        /// Its number: they count up as segments are closed, and as metadata slots change.
        segment: u64,
    },
    /// One step of the cleaning of stale entries.
    Sweep,
    /// The design drops what it may forget ([`Design::drop_clean_zeroes`](crate::design::Design::drop_clean_zeroes)).
    Drop {
        /// A shard's worth in any case.
        all: bool,
        /// So many at most.
        max: u64,
    },
    /// A victim is to be chosen.
    Choose,
    /// The victim that was chosen first, of those that are left, is evicted, if it is clean by now.
    Evict,
    /// The slot that was evicted first, of those that are left, is free.
    Release,
    /// What has to go for what waits to be stored for `lba` was freed ahead, and goes at once.
    Reuse {
        /// The chunk.
        lba: Lba,
    },
    /// The origin has what a write left dirty.
    Clean {
        /// The chunk.
        lba: Lba,
        /// The number of the write.
        seq: u64,
    },
    /// The origin was told of a trimmed run, or of a piece of one.
    CleanRun {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// The number of the trim.
        seq: u64,
    },
    /// The flash failed, or a record of it turned out damaged.
    Fault,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The slot.
    pub slot: SlotId,
    /// Byte offset in it.
    pub offset: u32,
    /// Bytes as stored.
    pub bytes: u32,
}

impl From<&Place> for Spot {
    fn from(place: &Place) -> Self {
        Spot { slot: place.slot, offset: place.offset, bytes: place.stored_len }
    }
}

/// What was made of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing to say.
    Done,
    /// It is not there, or some of what is asked for is not.
    Miss,
    /// It is there, and zero.
    Zero,
    /// It is there: a chunk that is asked for, or content.
    Hit(Spot),
    /// It was stored there.
    Stored(Spot),
    /// This slot was opened, chosen, evicted or freed; or it is the one whose metadata is written.
    Slot(SlotId),
    /// No slot was.
    NoSlot,
    /// So many: bytes of a segment's data, chunks that were dropped or are clean, entries that were swept.
    Count(u64),
}
