//! The metadata log: frames of entries in a circular region.
//!
//! Role: encodes and decodes frames. Beside its checkpoints the log is the only source of mappings.
//!
//! Invariants: frames carry consecutive `frame_seq`, entries consecutive sequence numbers. A frame
//! never straddles the end of the region. A writer without room left goes on at offset 0, and so
//! does a reader that finds no frame with the expected `frame_seq`. A frame is whole or refused.
//!
//! It leaves the choice of entries to the engine, which also keeps the writer from overtaking the
//! oldest frame still needed.

mod entry;

pub use entry::{LOG_ENTRY_BYTES, LogEntry};

use crate::error::{FormatError, Structure};
use crate::limits::{SECTOR_BYTES_MAX, SECTOR_BYTES_MIN};
use crate::wire::{self, Le32, Le64};
use crate::{COUNTER_MAX, FORMAT_VERSION};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 64;
/// The largest frame.
pub const FRAME_BYTES_MAX: u64 = 1 << 20;
/// The most entries in a frame.
pub const ENTRIES_PER_FRAME_MAX: usize = entries_that_fit(FRAME_BYTES_MAX);

const MAGIC: [u8; 8] = *b"LARDERLF";
const STRUCTURE: Structure = Structure::LogFrame;
/// The most wrong bits in a tag that still identifies a frame.
const TAG_WRONG_BITS_MAX: u32 = 8;

/// A place in the log where frames start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LogStart {
    /// Bytes from the start of the log region; a multiple of the sector size.
    ///
    /// The region's end is allowed, and means that the next frame is at 0.
    pub offset_in_log: u64,
    /// The `frame_seq` of the frame there (or to be written there).
    pub frame_seq: u64,
}

/// The fields that a writer gives a new frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStart {
    /// [`crate::Superblock::flash_tag`].
    pub flash_tag: u64,
    /// One more than the frame before.
    pub frame_seq: u64,
    /// The sequence number of the first entry; the others count up from it.
    pub first_entry_seq: u64,
    /// The newest `frame_seq` known to be durable at this frame's write, 0 for none.
    ///
    /// If a reader stops before it, the log is damaged, not merely torn at its end.
    pub durable_frame_seq: u64,
    /// The checksum of the frame before ([`frame_crc`]), 0 before the first of all.
    ///
    /// It refuses a frame that a crash left behind a lost frame. Such a frame has the right number
    /// to follow the new frame in that place.
    pub previous_crc: u32,
}

impl FrameStart {
    /// Returns true if frame `frame_seq` was durable already at the start of this one.
    ///
    /// The first entry of frame `frame_seq` has number `entry_seq`; the log has `log_bytes`. After
    /// a crash, a reader that misses that frame finds no frame like this. Frame numbers that are
    /// consistent decide alone. Otherwise one of them is damaged. Then two of the three numbers
    /// have to say so, and a number beyond the size of the log does not count.
    pub fn shows_durable(&self, frame_seq: u64, entry_seq: u64, log_bytes: u64) -> bool {
        if self.is_consistent() {
            return self.frame_seq > frame_seq;
        }
        let frames_max = log_bytes / u64::from(SECTOR_BYTES_MIN);
        let entries_max = log_bytes / LOG_ENTRY_BYTES as u64;
        let is_within = |number: u64, first: u64, count: u64| number >= first && number - first <= count;
        let votes = [
            is_within(self.frame_seq, frame_seq.saturating_add(1), frames_max),
            is_within(self.durable_frame_seq, frame_seq, frames_max),
            is_within(self.first_entry_seq, entry_seq.saturating_add(1), entries_max),
        ];
        votes.into_iter().filter(|&vote| vote).count() >= 2
    }

    /// Returns true if the frame's numbers are consistent, as in each written frame.
    pub fn is_consistent(&self) -> bool {
        self.durable_frame_seq.checked_add(1) == Some(self.frame_seq)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The fields from its writer.
    pub start: FrameStart,
    /// Entries in the frame.
    pub entry_count: u32,
    /// Size of the frame with its padding.
    pub frame_bytes: u32,
    /// The frame's checksum.
    pub crc: u32,
}

impl FrameHeader {
    /// Returns the sequence number of the first entry of the next frame.
    pub fn entry_seq_next(&self) -> u64 {
        self.start.first_entry_seq.saturating_add(self.entry_count.into())
    }

    /// Returns true if this frame is the one written after `previous`; replay ends at any other.
    pub fn follows(&self, previous: &FrameHeader) -> bool {
        previous.start.frame_seq.checked_add(1) == Some(self.start.frame_seq)
            && previous.entry_seq_next() == self.start.first_entry_seq
            && previous.crc == self.start.previous_crc
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFrameHeader {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    frame_seq: Le64,
    first_entry_seq: Le64,
    entry_count: Le32,
    frame_bytes: Le32,
    durable_frame_seq: Le64,
    previous_crc: Le32,
    reserved: [u8; 4],
}

const CRC_OFFSET: usize = 12;
wire::assert_wire!(
    RawFrameHeader, FRAME_HEADER_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, frame_seq @ 24, first_entry_seq @ 32, entry_count @ 40,
    frame_bytes @ 44, durable_frame_seq @ 48, previous_crc @ 56, reserved @ 60,
);

/// Returns the number of entries that fit into a frame of this many bytes, padding included.
pub const fn entries_that_fit(frame_bytes: u64) -> usize {
    let bytes = if frame_bytes < FRAME_BYTES_MAX { frame_bytes } else { FRAME_BYTES_MAX };
    (bytes as usize).saturating_sub(FRAME_HEADER_BYTES) / LOG_ENTRY_BYTES
}

/// Returns the size of a frame of `entry_count` entries, padded to `sector_bytes` (a power of two).
pub fn frame_bytes_for(entry_count: usize, sector_bytes: u32) -> usize {
    (FRAME_HEADER_BYTES + entry_count * LOG_ENTRY_BYTES).next_multiple_of(sector_bytes.max(1) as usize)
}

/// Returns the bytes of a frame.
///
/// # Errors
/// [`FormatError::TooLarge`] when there are more than [`ENTRIES_PER_FRAME_MAX`] entries.
pub fn encode_frame(start: &FrameStart, entries: &[LogEntry], sector_bytes: u32) -> Result<Vec<u8>, FormatError> {
    let mut bytes = vec![0; frame_bytes_for(entries.len().min(ENTRIES_PER_FRAME_MAX), sector_bytes)];
    encode_frame_into(start, entries, sector_bytes, &mut bytes)?;
    Ok(bytes)
}

/// Writes a frame to the front of `out` and returns its size; the rest of `out` stays as it is.
///
/// # Errors
/// [`FormatError::TooLarge`] when there are more than [`ENTRIES_PER_FRAME_MAX`] entries, or more
/// than `out` has room for.
pub fn encode_frame_into(
    start: &FrameStart,
    entries: &[LogEntry],
    sector_bytes: u32,
    out: &mut [u8],
) -> Result<usize, FormatError> {
    let frame_bytes = frame_bytes_for(entries.len(), sector_bytes);
    let max = ENTRIES_PER_FRAME_MAX.min(entries_that_fit(out.len() as u64));
    if entries.len() > max {
        return Err(FormatError::TooLarge { structure: STRUCTURE, max: max as u64 });
    }
    let too_large = FormatError::TooLarge { structure: STRUCTURE, max: max as u64 };
    let frame = out.get_mut(..frame_bytes).ok_or(too_large)?;
    let header =
        FrameHeader { start: *start, entry_count: entries.len() as u32, frame_bytes: frame_bytes as u32, crc: 0 };
    let (head, body) = frame.split_at_mut_checked(FRAME_HEADER_BYTES).ok_or(too_large)?;
    head.copy_from_slice(header_to_raw(&header).as_bytes());
    let (table, padding) = body.split_at_mut_checked(entries.len() * LOG_ENTRY_BYTES).ok_or(too_large)?;
    for (slot, entry) in table.chunks_exact_mut(LOG_ENTRY_BYTES).zip(entries) {
        slot.copy_from_slice(entry.to_raw().as_bytes());
    }
    padding.fill(0);
    let crc = wire::crc_with_hole(frame, CRC_OFFSET);
    wire::put_crc(frame, CRC_OFFSET, crc);
    Ok(frame_bytes)
}

/// Returns the checksum of an encoded frame, for the next one's `previous_crc`.
pub fn frame_crc(frame: &[u8]) -> u32 {
    let field = frame.get(CRC_OFFSET..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns the header of a frame, *not yet verified by its checksum*.
///
/// It tells a reader how many bytes to read: `frame_bytes` is sane all the same.
///
/// # Errors
/// As [`FormatError`] says; [`FormatError::Foreign`] when the frame is another flash's.
pub fn peek_frame(bytes: &[u8], flash_tag: u64) -> Result<FrameHeader, FormatError> {
    let invalid = |what| Err(FormatError::Invalid { structure: STRUCTURE, what });
    let raw: RawFrameHeader = wire::read(bytes, STRUCTURE)?;
    if raw.magic != MAGIC {
        return Err(FormatError::BadMagic(STRUCTURE));
    }
    let header = header_from_raw(&raw);
    if header.start.flash_tag != flash_tag {
        return Err(FormatError::Foreign(STRUCTURE));
    }
    if header.entry_count as usize > ENTRIES_PER_FRAME_MAX
        || !header.frame_bytes.is_multiple_of(SECTOR_BYTES_MIN)
        || u64::from(header.frame_bytes) > FRAME_BYTES_MAX
    {
        return invalid("it is too large or not aligned");
    }
    let needed = frame_bytes_for(header.entry_count as usize, 1) as u64;
    if u64::from(header.frame_bytes) < needed || u64::from(header.frame_bytes) >= needed + u64::from(SECTOR_BYTES_MAX) {
        return invalid("its size does not fit its entries");
    }
    if header.start.frame_seq >= COUNTER_MAX || header.start.first_entry_seq >= COUNTER_MAX {
        return invalid("a counter is too high");
    }
    Ok(header)
}

/// Returns the header of a damaged frame of this flash, even if the damage is in the header.
///
/// A reader uses it to look for frames that were there once, and reads nothing by it. Any one field
/// may have any value; the tag may have a few wrong bits if all other identifying fields are right.
/// It returns `None` for bytes that were no such frame, or are beyond recognition.
pub fn traces_of_frame(bytes: &[u8], flash_tag: u64) -> Option<FrameHeader> {
    let raw: RawFrameHeader = wire::read(bytes, STRUCTURE).ok()?;
    let header = header_from_raw(&raw);
    // Two flashes' tags are random: another one's differs by half of its bits.
    let wrong_bits = (header.start.flash_tag ^ flash_tag).count_ones();
    let is_named = raw.magic == MAGIC && raw.version.get() == FORMAT_VERSION;
    let is_ours = wrong_bits == 0 || (is_named && wrong_bits <= TAG_WRONG_BITS_MAX);
    is_ours.then_some(header)
}

/// Decodes a frame; `bytes` starts at the frame and may be longer.
///
/// The caller checks that `frame_seq` is the expected one.
///
/// # Errors
/// As [`FormatError`] says; [`FormatError::Foreign`] when the frame is another flash's.
pub fn decode_frame(bytes: &[u8], flash_tag: u64) -> Result<(FrameHeader, Vec<LogEntry>), FormatError> {
    let header = peek_frame(bytes, flash_tag)?;
    let frame = wire::prefix(bytes, header.frame_bytes as usize, STRUCTURE)?;
    let raw: RawFrameHeader = wire::read(frame, STRUCTURE)?;
    let computed = wire::crc_with_hole(frame, CRC_OFFSET);
    wire::check_prefix((&raw.magic, &MAGIC), (raw.crc.get(), computed), raw.version.get(), STRUCTURE)?;
    wire::check_canonical(
        &RawFrameHeader { crc: raw.crc, version: raw.version, ..header_to_raw(&header) },
        &raw,
        STRUCTURE,
    )?;
    let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let (table, padding) = body.split_at_checked(header.entry_count as usize * LOG_ENTRY_BYTES).unwrap_or_default();
    wire::check_zero(padding, STRUCTURE)?;
    let entries: Result<_, _> = table.chunks_exact(LOG_ENTRY_BYTES).map(LogEntry::from_bytes).collect();
    Ok((header, entries?))
}

fn header_from_raw(raw: &RawFrameHeader) -> FrameHeader {
    FrameHeader {
        start: FrameStart {
            flash_tag: raw.flash_tag.get(),
            frame_seq: raw.frame_seq.get(),
            first_entry_seq: raw.first_entry_seq.get(),
            durable_frame_seq: raw.durable_frame_seq.get(),
            previous_crc: raw.previous_crc.get(),
        },
        entry_count: raw.entry_count.get(),
        frame_bytes: raw.frame_bytes.get(),
        crc: raw.crc.get(),
    }
}

fn header_to_raw(header: &FrameHeader) -> RawFrameHeader {
    RawFrameHeader {
        magic: MAGIC,
        version: Le32::new(FORMAT_VERSION),
        crc: Le32::new(0),
        flash_tag: Le64::new(header.start.flash_tag),
        frame_seq: Le64::new(header.start.frame_seq),
        first_entry_seq: Le64::new(header.start.first_entry_seq),
        entry_count: Le32::new(header.entry_count),
        frame_bytes: Le32::new(header.frame_bytes),
        durable_frame_seq: Le64::new(header.start.durable_frame_seq),
        previous_crc: Le32::new(header.start.previous_crc),
        reserved: [0; 4],
    }
}
