//! The log of an engine's decisions, from which a simulator repeats them.
//!
//! A simulator knows neither time nor bytes. An [`Event`] is its input instead, in the order of
//! decisions under the engine's lock. Events have the requests, each content with its stored
//! length, and the end of each operation. The engine's [`Answer`] stands beside the event, and a
//! replay has to reach the same answer. Answers are hits, known contents, places, full slots,
//! closed segments with their lengths, victims, and chunks that became clean.
//!
//! A design with knowledge on flash is [told](Event::Told) its reads there. The log names the
//! metadata slot and not its content. A replay knows the content: it has seen each change of the
//! slot and the end of each write.
//!
//! Invariants: an event names no place on flash except the metadata slot that is read; only answers
//! do.
//!
//! It does not read or write files. Decisions after [`Event::Fault`] depend on bytes and cannot be
//! replayed.

use crate::{
    design::Wanted,
    types::{Fingerprint, Lba, Place, SectorMap, SlotId, StreamClass},
};

/// The cache at the beginning of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The design's name.
    pub design: String,
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a slot, in bytes.
    pub slot_bytes: u32,
    /// Size to which segments are padded, in bytes.
    pub sector_bytes: u32,
    /// Bytes of a segment's header.
    pub header_bytes: u32,
    /// Bytes of an entry of a segment's table.
    pub entry_bytes: u32,
    /// Slots of the flash.
    pub slot_count: u32,
    /// Entries of the LBA index at most.
    pub mappings_max: u64,
    /// Entries of the FP index at most; 0 without deduplication.
    pub fp_entries_max: u64,
    /// Number of the first closed segment.
    pub first_segment: u64,
    /// Mapped chunks, trimmed chunks and used slots at the opening. A log is replayable if this is
    /// 0.
    pub found: u64,
    /// Layout of the slots that are parts of a chunk.
    pub buckets: Option<BucketLayout>,
}

/// The layout of a bucket store, beside its slots.
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
    /// True for a payload without compression.
    pub raw: bool,
}

/// The content of an inserted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewContent {
    /// Zeroes.
    Zero,
    /// Anything else.
    Chunk {
        /// Its fingerprint; `None` without deduplication.
        fingerprint: Option<Fingerprint>,
        /// The stored form; `None` if nothing was stored, so that its length is unknown.
        stored: Option<Stored>,
    },
}

/// A request to an engine, or the end of an operation, that led to a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An opening of the cache, the first event of a log.
    Opened(Opened),
    /// A read of a chunk.
    Read {
        /// The chunk.
        lba: Lba,
        /// The first sector of the read in the chunk, of 512 bytes.
        first: u16,
        /// The sector behind the last one.
        end: u16,
        /// True if a replaced address must wait: its origin block changes, or log or index are
        /// full.
        held_back: bool,
    },
    /// The use of a read's hit on flash, found beside other looks or alone. It precedes the next
    /// other decision.
    Use {
        /// The chunk.
        lba: Lba,
    },
    /// A partial write that looks up the rest of its chunk.
    Merge {
        /// The chunk.
        lba: Lba,
        /// As that of [`Event::Read`].
        held_back: bool,
    },
    /// A search for content before compression.
    Look {
        /// The content.
        fingerprint: Fingerprint,
    },
    /// An insertion of a chunk: by a write in write-back, or by a fill with its bytes.
    Insert {
        /// The chunk.
        lba: Lba,
        /// The content.
        content: NewContent,
        /// The number of the write if the origin lacks it.
        dirty: Option<u64>,
    },
    /// A stored fragment: some sectors of a chunk that the origin lacks.
    Fragment {
        /// The chunk.
        lba: Lba,
        /// The sectors.
        sectors: SectorMap,
        /// The stored form.
        stored: Stored,
        /// The number of the write.
        seq: u64,
    },
    /// A write of the origin that is about to begin; its mappings are forgotten.
    Change {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// True if the cache is then offered the new content.
        again: bool,
    },
    /// A forgotten chunk: its copy is damaged, or the origin may have lost the content.
    Forget {
        /// The chunk.
        lba: Lba,
    },
    /// A trim of whole chunks in write-back.
    Trim {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// The number of the trim.
        seq: u64,
    },
    /// A record that did not fit the open slot of its class, which is sealed. The record may be
    /// stored later.
    Full {
        /// The class.
        class: StreamClass,
        /// Its content; `None` for a fragment, and without deduplication.
        fingerprint: Option<Fingerprint>,
        /// Its stored form.
        stored: Stored,
    },
    /// The opening of a slot for a class.
    Open {
        /// The class.
        class: StreamClass,
        /// The first record, with its address.
        wanted: Wanted,
    },
    /// A metadata slot that was read; the design is told its record, or that it has none.
    Told {
        /// The first slot of the record.
        slot: SlotId,
    },
    /// A settled clean chunk: the origin durably has its content, or it is mapped elsewhere by now.
    /// A durable one may be named by a metadata slot.
    Settled {
        /// The chunk.
        lba: Lba,
        /// True if the origin has it.
        is_durable: bool,
    },
    /// A commit of the log up to a number. Metadata slots may name the chunks of writes below it.
    Committed {
        /// The number.
        upto: u64,
    },
    /// The start of a write of a metadata slot, with its current content. Changes of metadata slots
    /// are numbered among the segments.
    Taken {
        /// Its number.
        segment: u64,
    },
    /// A commit for a FLUSH, a FUA write or another caller. It closes the open segments that it
    /// needs.
    Commit {
        /// True to close segments of clean data in any case.
        all: bool,
    },
    /// The sealing of every open slot, so that it may be evicted.
    Seal,
    /// The end of a write of a segment or of a metadata slot.
    Written {
        /// Its number, which counts closed segments and changes of metadata slots.
        segment: u64,
    },
    /// One cleaning step for stale entries.
    Sweep,
    /// A drop of forgettable chunks
    /// ([`drop_clean_zeroes`](crate::design::Slots::drop_clean_zeroes)).
    Drop {
        /// True to drop a shard's worth in any case.
        all: bool,
        /// The maximum number.
        max: u64,
    },
    /// A choice of a victim.
    Choose,
    /// A choice of records of a chosen victim that are to be stored again: at least one.
    Keep {
        /// The victim.
        slot: SlotId,
    },
    /// A refused insertion: the chunk is not worth a record.
    Refuse {
        /// The record that it would have had.
        wanted: Wanted,
    },
    /// An eviction of the oldest chosen victim that is left, if it is clean by now.
    Evict,
    /// The end of the oldest eviction that is left; its slot is free.
    Release,
    /// A reuse of slots that were freed ahead: they go at once for the waiting chunk.
    Reuse {
        /// The chunk.
        lba: Lba,
    },
    /// A destaged write.
    Clean {
        /// The chunk.
        lba: Lba,
        /// The number of the write.
        seq: u64,
    },
    /// A destaged trimmed run, or a piece of one.
    CleanRun {
        /// The first chunk.
        first: Lba,
        /// Number of chunks.
        count: u64,
        /// The number of the trim.
        seq: u64,
    },
    /// A failure of the flash, or a damaged record.
    Fault,
}

/// The location of a record.
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

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No result.
    Done,
    /// Absence of all or some of the requested data.
    Miss,
    /// A hit on zeroes.
    Zero,
    /// A hit on a requested chunk, or on content.
    Hit(Spot),
    /// The place of the new record.
    Stored(Spot),
    /// The slot that was opened, chosen, evicted or freed, or whose metadata is written.
    Slot(SlotId),
    /// The absence of such a slot.
    NoSlot,
    /// A number: bytes of a segment's data, dropped or clean chunks, or swept entries.
    Count(u64),
}
