//! The entries of the metadata log, each of 64 bytes.
//!
//! Invariants: as everywhere, an entry that decodes encodes to the same bytes again.

use crate::codes::{Encoding, WriteMode};
use crate::error::{FormatError, Structure};
use crate::flags::{FLAG_ADVISORY, FLAG_DIRTY, FLAG_DUPLICATE, FLAG_NO_HOLE};
use crate::place::{FlashPlace, Sectors};
use crate::wire::{self, Le16, Le32, Le64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of an entry.
pub const LOG_ENTRY_BYTES: usize = 64;

const STRUCTURE: Structure = Structure::LogFrame;

/// One entry. `lba` is the chunk's number on the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// The chunk is in a record.
    Map {
        /// The chunk.
        lba: u64,
        /// The record.
        place: FlashPlace,
        /// True if the origin lacks it.
        dirty: bool,
        /// True if the record was there before, stored for another chunk or an older write.
        duplicate: bool,
        /// The record's fingerprint; zeroes when it has none.
        fingerprint: [u8; 16],
    },
    /// The chunk is all zeroes and has no record.
    MapZero {
        /// The chunk.
        lba: u64,
        /// True if the origin lacks it.
        dirty: bool,
    },
    /// Some sectors of the chunk are in a record.
    Fragment {
        /// The chunk.
        lba: u64,
        /// The record.
        place: FlashPlace,
        /// True if the origin lacks them.
        dirty: bool,
        /// The sectors in the record.
        sectors: Sectors,
    },
    /// A run of whole chunks reads as zeroes.
    Trim {
        /// The first chunk.
        lba: u64,
        /// Number of chunks, at least 1.
        chunk_count: u64,
        /// True if the origin lacks the zeroes.
        dirty: bool,
        /// True if the origin shall keep the range allocated when it is zeroed.
        no_hole: bool,
        /// True if a client trimmed the run and asked for no zeroes.
        ///
        /// The engine need not tell the origin of such a run.
        advisory: bool,
    },
    /// A run of chunks is no longer cached.
    Invalidate {
        /// The first chunk.
        lba: u64,
        /// Number of chunks, at least 1.
        chunk_count: u64,
    },
    /// The origin holds the version `map_seq` of a run of chunks.
    Clean {
        /// The first chunk.
        lba: u64,
        /// Number of chunks, at least 1.
        chunk_count: u64,
        /// Mappings in the run are clean if their entry has this sequence number or a lower one.
        map_seq: u64,
    },
    /// A slot is given up: no mapping names it any more.
    SlotFreed {
        /// The slot.
        slot: u32,
        /// Mappings of this generation and older ones are dead.
        generation: u32,
    },
    /// The write mode is a new one.
    Mode {
        /// The new mode.
        mode: WriteMode,
    },
}

const KIND_MAP: u8 = 1;
const KIND_MAP_ZERO: u8 = 2;
const KIND_FRAGMENT: u8 = 3;
const KIND_TRIM: u8 = 4;
const KIND_INVALIDATE: u8 = 5;
const KIND_CLEAN: u8 = 6;
const KIND_SLOT_FREED: u8 = 7;
const KIND_MODE: u8 = 8;

/// The shared layout of all kinds of entry; the fields that a kind does not use are zero.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    kind: u8,
    flags: u8,
    volume: Le16,
    crc: Le32,
    lba: Le64,
    slot: Le32,
    generation: Le32,
    offset: Le32,
    stored_len: [u8; 3],
    encoding: u8,
    content: [u8; 32],
}

wire::assert_wire!(
    RawEntry, LOG_ENTRY_BYTES,
    kind @ 0, flags @ 1, volume @ 2, crc @ 4, lba @ 8, slot @ 16, generation @ 20, offset @ 24, stored_len @ 28,
    encoding @ 31, content @ 32,
);

impl RawEntry {
    fn new(kind: u8, lba: u64) -> Self {
        RawEntry { kind, lba: Le64::new(lba), ..RawEntry::new_zeroed() }
    }

    fn dirty(self, dirty: bool) -> Self {
        RawEntry { flags: if dirty { self.flags | FLAG_DIRTY } else { self.flags }, ..self }
    }

    fn duplicate(self, duplicate: bool) -> Self {
        RawEntry { flags: if duplicate { self.flags | FLAG_DUPLICATE } else { self.flags }, ..self }
    }

    fn no_hole(self, no_hole: bool) -> Self {
        RawEntry { flags: if no_hole { self.flags | FLAG_NO_HOLE } else { self.flags }, ..self }
    }

    fn advisory(self, advisory: bool) -> Self {
        RawEntry { flags: if advisory { self.flags | FLAG_ADVISORY } else { self.flags }, ..self }
    }

    fn at(self, place: &FlashPlace) -> Self {
        RawEntry {
            crc: Le32::new(place.crc),
            slot: Le32::new(place.slot),
            generation: Le32::new(place.generation),
            offset: Le32::new(place.offset),
            stored_len: wire::to_le24(place.stored_len),
            encoding: place.encoding.code(),
            ..self
        }
    }

    fn holding(self, first: u64, second: u64) -> Self {
        let content: [[u8; 8]; 4] = [first.to_le_bytes(), second.to_le_bytes(), [0; 8], [0; 8]];
        RawEntry { content: zerocopy::transmute!(content), ..self }
    }

    fn held(&self) -> (u64, u64) {
        let [first, second, ..]: [[u8; 8]; 4] = zerocopy::transmute!(self.content);
        (u64::from_le_bytes(first), u64::from_le_bytes(second))
    }

    fn place(&self) -> Result<FlashPlace, FormatError> {
        let encoding = Encoding::from_code(self.encoding).ok_or_else(|| invalid("an unknown encoding"))?;
        let place = FlashPlace {
            slot: self.slot.get(),
            generation: self.generation.get(),
            offset: self.offset.get(),
            stored_len: wire::from_le24(self.stored_len),
            crc: self.crc.get(),
            encoding,
        };
        if place.is_plausible() { Ok(place) } else { Err(invalid("a record that leaves its slot")) }
    }
}

impl LogEntry {
    pub(super) fn to_raw(self) -> RawEntry {
        match self {
            LogEntry::Map { lba, place, dirty, duplicate, fingerprint } => RawEntry {
                content: wire::widen(fingerprint),
                ..RawEntry::new(KIND_MAP, lba).at(&place).dirty(dirty).duplicate(duplicate)
            },
            LogEntry::MapZero { lba, dirty } => RawEntry::new(KIND_MAP_ZERO, lba).dirty(dirty),
            LogEntry::Fragment { lba, place, dirty, sectors } => {
                RawEntry { content: sectors, ..RawEntry::new(KIND_FRAGMENT, lba).at(&place).dirty(dirty) }
            }
            LogEntry::Trim { lba, chunk_count, dirty, no_hole, advisory } => {
                RawEntry::new(KIND_TRIM, lba).holding(chunk_count, 0).dirty(dirty).no_hole(no_hole).advisory(advisory)
            }
            LogEntry::Invalidate { lba, chunk_count } => RawEntry::new(KIND_INVALIDATE, lba).holding(chunk_count, 0),
            LogEntry::Clean { lba, chunk_count, map_seq } => {
                RawEntry::new(KIND_CLEAN, lba).holding(chunk_count, map_seq)
            }
            LogEntry::SlotFreed { slot, generation } => RawEntry {
                slot: Le32::new(slot),
                generation: Le32::new(generation),
                ..RawEntry::new(KIND_SLOT_FREED, 0)
            },
            LogEntry::Mode { mode } => RawEntry::new(KIND_MODE, 0).holding(mode.code().into(), 0),
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: RawEntry = wire::read(bytes, STRUCTURE)?;
        let lba = raw.lba.get();
        let dirty = raw.flags & FLAG_DIRTY != 0;
        let duplicate = raw.flags & FLAG_DUPLICATE != 0;
        let (first, second) = raw.held();
        let run = |chunk_count: u64| match chunk_count != 0 && lba.checked_add(chunk_count).is_some() {
            true => Ok(chunk_count),
            false => Err(invalid("a run of chunks that is empty or overflows")),
        };
        let entry = match raw.kind {
            KIND_MAP => {
                let fingerprint = wire::narrow(raw.content);
                LogEntry::Map { lba, place: raw.place()?, dirty, duplicate, fingerprint }
            }
            KIND_MAP_ZERO => LogEntry::MapZero { lba, dirty },
            KIND_FRAGMENT => LogEntry::Fragment { lba, place: raw.place()?, dirty, sectors: raw.content },
            KIND_TRIM => {
                let (no_hole, advisory) = (raw.flags & FLAG_NO_HOLE != 0, raw.flags & FLAG_ADVISORY != 0);
                if no_hole && advisory {
                    return Err(invalid("a trim that keeps its range allocated"));
                }
                LogEntry::Trim { lba, chunk_count: run(first)?, dirty, no_hole, advisory }
            }
            KIND_INVALIDATE => LogEntry::Invalidate { lba, chunk_count: run(first)? },
            KIND_CLEAN => LogEntry::Clean { lba, chunk_count: run(first)?, map_seq: second },
            KIND_SLOT_FREED => LogEntry::SlotFreed { slot: raw.slot.get(), generation: raw.generation.get() },
            KIND_MODE => {
                let code = u8::try_from(first).unwrap_or(0);
                LogEntry::Mode { mode: WriteMode::from_code(code).ok_or_else(|| invalid("an unknown write mode"))? }
            }
            _ => return Err(invalid("an entry of an unknown kind")),
        };
        wire::check_canonical(&entry.to_raw(), &raw, STRUCTURE)?;
        Ok(entry)
    }
}

fn invalid(what: &'static str) -> FormatError {
    FormatError::Invalid { structure: STRUCTURE, what }
}
