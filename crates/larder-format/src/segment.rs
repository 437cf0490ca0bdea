//! Segments, which fill a WEU: header, payloads, record table, padding.
//!
//! Role: encodes and decodes headers and tables. A record's payload is opaque here;
//! [`crate::record_crc`] guards it.
//!
//! Invariants: a segment is written once and never rewritten. Segments confirm content; they never
//! create a mapping. A header of version 2 records how far the metadata log was durable at its
//! write; a header of version 1 does not.
//!
//! It does not place payloads in a segment, and does not decide when one is closed.

use crate::checksum::crc32c;
use crate::codes::{Encoding, WeuClass};
use crate::error::{FormatError, Structure};
use crate::limits::{SECTOR_BYTES_MIN, WEU_BYTES_MAX};
use crate::place::{FlashPlace, Sectors};
use crate::wire::{self, Le16, Le32, Le64};
use crate::{COUNTER_MAX, FORMAT_VERSION};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Size of one entry of a record table.
pub const RECORD_ENTRY_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"LARDERSG";
/// Version of a header that names a frame of the log as durable.
const VERSION_NAMING: u32 = 2;
/// Unit of offsets and sizes in such a header, in bytes.
const UNIT_BYTES: u32 = SECTOR_BYTES_MIN;
const FLAG_FRAGMENT: u8 = 1;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// [`crate::Superblock::flash_tag`].
    pub flash_tag: u64,
    /// The slot that it was written to.
    pub slot: u32,
    /// The slot's generation.
    pub generation: u32,
    /// Its first byte, in bytes from the start of the WEU.
    pub offset: u32,
    /// Counts the segments of this flash.
    pub segment_seq: u64,
    /// The newest durable frame of the metadata log when the segment was closed, 0 for none.
    ///
    /// `None`: a header of version 1, which names no frame.
    pub durable_frame_seq: Option<u64>,
    /// Its size, header, table and padding included.
    pub segment_bytes: u32,
    /// The start of the record table, in bytes from the start of the segment.
    pub table_offset: u32,
    /// Entries in the table.
    pub record_count: u32,
    /// The class of the chunks in the WEU.
    pub class: WeuClass,
    /// CRC32C of the table, as [`encode_table`] returns it.
    pub table_crc: u32,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordContent {
    /// A whole chunk, with its fingerprint.
    Chunk([u8; 16]),
    /// Some sectors of a chunk; the payload decodes to a whole chunk, whose other sectors are void.
    Fragment(Sectors),
}

/// One entry of a record table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEntry {
    /// The volume: 0.
    pub volume: u16,
    /// The form in which the payload is stored.
    pub encoding: Encoding,
    /// Its length.
    pub stored_len: u32,
    /// The chunk that it was stored for: the chunk's number on the origin.
    pub lba: u64,
    /// Its first byte, in bytes from the start of the WEU.
    pub offset: u32,
    /// [`crate::record_crc`] of the payload.
    pub crc: u32,
    /// Its content.
    pub content: RecordContent,
}

impl RecordEntry {
    /// Returns the record's place, in the slot and generation of its segment.
    pub fn place(&self, slot: u32, generation: u32) -> FlashPlace {
        let RecordEntry { encoding, stored_len, offset, crc, .. } = *self;
        FlashPlace { slot, generation, offset, stored_len, crc, encoding }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSegmentHeader {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    slot: Le32,
    generation: Le32,
    segment_seq: Le64,
    segment_bytes: Le32,
    table_offset: Le32,
    record_count: Le32,
    table_crc: Le32,
    offset: Le32,
    class: u8,
    reserved: [u8; 3],
}

const CRC_OFFSET: usize = 12;
wire::assert_wire!(
    RawSegmentHeader, SEGMENT_HEADER_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, slot @ 24, generation @ 28, segment_seq @ 32,
    segment_bytes @ 40, table_offset @ 44, record_count @ 48, table_crc @ 52, offset @ 56, class @ 60, reserved @ 61,
);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNamingHeader {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    slot: Le32,
    generation: Le32,
    segment_seq: Le64,
    durable_frame_seq: Le64,
    table_offset: Le32,
    table_crc: Le32,
    segment_units: Le16,
    offset_units: Le16,
    record_count: Le16,
    class: u8,
    reserved: [u8; 1],
}

wire::assert_wire!(
    RawNamingHeader, SEGMENT_HEADER_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, slot @ 24, generation @ 28, segment_seq @ 32,
    durable_frame_seq @ 40, table_offset @ 48, table_crc @ 52, segment_units @ 56, offset_units @ 58,
    record_count @ 60, class @ 62, reserved @ 63,
);

/// A header in its form on flash, of either version.
enum Raw {
    Plain(RawSegmentHeader),
    Naming(RawNamingHeader),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    volume: Le16,
    flags: u8,
    encoding: u8,
    stored_len: Le32,
    lba: Le64,
    offset: Le32,
    crc: Le32,
    content: [u8; 32],
    reserved: [u8; 8],
}

wire::assert_wire!(
    RawRecord, RECORD_ENTRY_BYTES,
    volume @ 0, flags @ 2, encoding @ 3, stored_len @ 4, lba @ 8, offset @ 16, crc @ 20, content @ 24, reserved @ 56,
);

/// Encodes a header.
///
/// It encodes invalid fields as well, which [`decode_header`] refuses: keep the fields valid.
pub fn encode_header(header: &SegmentHeader) -> [u8; SEGMENT_HEADER_BYTES] {
    match header_to_raw(header) {
        Raw::Plain(mut raw) => {
            raw.crc = Le32::new(wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET));
            zerocopy::transmute!(raw)
        }
        Raw::Naming(mut raw) => {
            raw.crc = Le32::new(wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET));
            zerocopy::transmute!(raw)
        }
    }
}

/// Decodes a header; [`SegmentHeader::check_home`] checks that it belongs to the place of the read.
///
/// # Errors
/// As [`FormatError`] says.
pub fn decode_header(bytes: &[u8]) -> Result<SegmentHeader, FormatError> {
    const STRUCTURE: Structure = Structure::SegmentHeader;
    let invalid = |what| FormatError::Invalid { structure: STRUCTURE, what };
    let plain: RawSegmentHeader = wire::read(bytes, STRUCTURE)?;
    let computed = wire::crc_with_hole(plain.as_bytes(), CRC_OFFSET);
    let names_log = plain.version.get() == VERSION_NAMING;
    // Both versions begin alike.
    let version = if names_log { FORMAT_VERSION } else { plain.version.get() };
    wire::check_prefix((&plain.magic, &MAGIC), (plain.crc.get(), computed), version, STRUCTURE)?;
    let class = |code| WeuClass::from_code(code).ok_or_else(|| invalid("an unknown class"));
    let header = if names_log {
        let raw: RawNamingHeader = wire::read(bytes, STRUCTURE)?;
        SegmentHeader {
            flash_tag: raw.flash_tag.get(),
            slot: raw.slot.get(),
            generation: raw.generation.get(),
            offset: u32::from(raw.offset_units.get()) * UNIT_BYTES,
            segment_seq: raw.segment_seq.get(),
            durable_frame_seq: Some(raw.durable_frame_seq.get()),
            segment_bytes: u32::from(raw.segment_units.get()) * UNIT_BYTES,
            table_offset: raw.table_offset.get(),
            record_count: raw.record_count.get().into(),
            class: class(raw.class)?,
            table_crc: raw.table_crc.get(),
        }
    } else {
        SegmentHeader {
            flash_tag: plain.flash_tag.get(),
            slot: plain.slot.get(),
            generation: plain.generation.get(),
            offset: plain.offset.get(),
            segment_seq: plain.segment_seq.get(),
            durable_frame_seq: None,
            segment_bytes: plain.segment_bytes.get(),
            table_offset: plain.table_offset.get(),
            record_count: plain.record_count.get(),
            class: class(plain.class)?,
            table_crc: plain.table_crc.get(),
        }
    };
    // The new encoding differs if the bytes hold more than the fields, above all in reserved bytes.
    let again: RawSegmentHeader = wire::read(&encode_header(&header), STRUCTURE)?;
    wire::check_canonical(&again, &plain, STRUCTURE)?;
    if header.durable_frame_seq.is_some_and(|frame_seq| frame_seq >= COUNTER_MAX) {
        return Err(invalid("a counter is too high"));
    }
    if !header.segment_bytes.is_multiple_of(SECTOR_BYTES_MIN)
        || !header.offset.is_multiple_of(SECTOR_BYTES_MIN)
        || u64::from(header.offset) + u64::from(header.segment_bytes) > u64::from(WEU_BYTES_MAX)
    {
        return Err(invalid("it is not aligned or leaves its WEU"));
    }
    let table_end = u64::from(header.table_offset) + u64::from(header.record_count) * RECORD_ENTRY_BYTES as u64;
    if (header.table_offset as usize) < SEGMENT_HEADER_BYTES || table_end > u64::from(header.segment_bytes) {
        return Err(invalid("the record table leaves the segment"));
    }
    Ok(header)
}

impl SegmentHeader {
    /// Confirms that a header belongs to the place of the read.
    ///
    /// # Errors
    /// [`FormatError::Foreign`] when it is another flash's, another slot's or another generation's,
    /// or was written to another offset.
    pub fn check_home(&self, flash_tag: u64, slot: u32, generation: u32, offset: u32) -> Result<(), FormatError> {
        if (self.flash_tag, self.slot, self.generation, self.offset) == (flash_tag, slot, generation, offset) {
            Ok(())
        } else {
            Err(FormatError::Foreign(Structure::SegmentHeader))
        }
    }

    /// Returns the size of the record table.
    pub fn table_bytes(&self) -> usize {
        self.record_count as usize * RECORD_ENTRY_BYTES
    }
}

/// Writes a record table to the front of `out` and returns its CRC32C, for the header.
///
/// # Errors
/// [`FormatError::TooLarge`] when `out` is too small.
pub fn encode_table(records: &[RecordEntry], out: &mut [u8]) -> Result<u32, FormatError> {
    let max = (out.len() / RECORD_ENTRY_BYTES) as u64;
    let table = out
        .get_mut(..records.len() * RECORD_ENTRY_BYTES)
        .ok_or(FormatError::TooLarge { structure: Structure::RecordTable, max })?;
    for (slot, record) in table.chunks_exact_mut(RECORD_ENTRY_BYTES).zip(records) {
        slot.copy_from_slice(record_to_raw(record).as_bytes());
    }
    Ok(crc32c(table))
}

/// Reads the record table of a segment; `bytes` starts at the table and may be longer.
///
/// # Errors
/// As [`FormatError`] says; also when a record's payload leaves the segment's room for payloads.
pub fn decode_table(header: &SegmentHeader, bytes: &[u8]) -> Result<Vec<RecordEntry>, FormatError> {
    const STRUCTURE: Structure = Structure::RecordTable;
    let table = wire::prefix(bytes, header.table_bytes(), STRUCTURE)?;
    if crc32c(table) != header.table_crc {
        return Err(FormatError::BadChecksum(STRUCTURE));
    }
    table.chunks_exact(RECORD_ENTRY_BYTES).map(|entry| record_from_bytes(entry, header)).collect()
}

fn header_to_raw(header: &SegmentHeader) -> Raw {
    let (magic, crc, flash_tag) = (MAGIC, Le32::new(0), Le64::new(header.flash_tag));
    let (slot, generation) = (Le32::new(header.slot), Le32::new(header.generation));
    let (segment_seq, class) = (Le64::new(header.segment_seq), header.class.code());
    let (table_offset, table_crc) = (Le32::new(header.table_offset), Le32::new(header.table_crc));
    // A WEU has fewer units, and fewer records, than 16 bits count.
    let units = |bytes: u32| Le16::new((bytes / UNIT_BYTES) as u16);
    match header.durable_frame_seq {
        None => Raw::Plain(RawSegmentHeader {
            magic,
            version: Le32::new(FORMAT_VERSION),
            crc,
            flash_tag,
            slot,
            generation,
            segment_seq,
            segment_bytes: Le32::new(header.segment_bytes),
            table_offset,
            record_count: Le32::new(header.record_count),
            table_crc,
            offset: Le32::new(header.offset),
            class,
            reserved: [0; 3],
        }),
        Some(durable_frame_seq) => Raw::Naming(RawNamingHeader {
            magic,
            version: Le32::new(VERSION_NAMING),
            crc,
            flash_tag,
            slot,
            generation,
            segment_seq,
            durable_frame_seq: Le64::new(durable_frame_seq),
            table_offset,
            table_crc,
            segment_units: units(header.segment_bytes),
            offset_units: units(header.offset),
            record_count: Le16::new(header.record_count as u16),
            class,
            reserved: [0; 1],
        }),
    }
}

fn record_to_raw(record: &RecordEntry) -> RawRecord {
    let (flags, content) = match record.content {
        RecordContent::Chunk(fingerprint) => (0, wire::widen(fingerprint)),
        RecordContent::Fragment(sectors) => (FLAG_FRAGMENT, sectors),
    };
    RawRecord {
        volume: Le16::new(record.volume),
        flags,
        encoding: record.encoding.code(),
        stored_len: Le32::new(record.stored_len),
        lba: Le64::new(record.lba),
        offset: Le32::new(record.offset),
        crc: Le32::new(record.crc),
        content,
        reserved: [0; 8],
    }
}

fn record_from_bytes(bytes: &[u8], header: &SegmentHeader) -> Result<RecordEntry, FormatError> {
    const STRUCTURE: Structure = Structure::RecordTable;
    let invalid = |what| FormatError::Invalid { structure: STRUCTURE, what };
    let raw: RawRecord = wire::read(bytes, STRUCTURE)?;
    let content = match raw.flags {
        0 => RecordContent::Chunk(wire::narrow(raw.content)),
        FLAG_FRAGMENT => RecordContent::Fragment(raw.content),
        _ => return Err(invalid("unknown flags")),
    };
    let record = RecordEntry {
        volume: raw.volume.get(),
        encoding: Encoding::from_code(raw.encoding).ok_or_else(|| invalid("an unknown encoding"))?,
        stored_len: raw.stored_len.get(),
        lba: raw.lba.get(),
        offset: raw.offset.get(),
        crc: raw.crc.get(),
        content,
    };
    wire::check_canonical(&record_to_raw(&record), &raw, STRUCTURE)?;
    let payloads_start = u64::from(header.offset) + SEGMENT_HEADER_BYTES as u64;
    let payloads_end = u64::from(header.offset) + u64::from(header.table_offset);
    let end = u64::from(record.offset) + u64::from(record.stored_len);
    if !record.place(header.slot, header.generation).is_plausible()
        || u64::from(record.offset) < payloads_start
        || end > payloads_end
    {
        return Err(invalid("a record leaves the room for payloads"));
    }
    Ok(record)
}
