//! The records of a segment, and the segment's identity and place.
//!
//! Invariants: they only describe.
//!
//! It does not place a record.

use larder_codec::Encoded;
use larder_core::{Lba, SectorMap, SlotId, StreamClass, types::Fingerprint};
use larder_format::Encoding;

/// The content of a record, for the segment's table.
#[derive(Clone, Copy)]
pub enum RecordOf {
    /// A whole chunk.
    Chunk(Option<Fingerprint>),
    /// Some sectors.
    Fragment(SectorMap),
}

/// A record to append.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    /// Class of its slot.
    pub class: StreamClass,
    /// The chunk of the record.
    pub lba: Lba,
    /// Its content.
    pub of: RecordOf,
    /// Its bytes.
    pub payload: Payload<'a>,
}

/// The bytes of a record to append.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// The stored bytes and their encoding.
    Encoded(Encoding, &'a [u8]),
    /// A chunk whose content was stored, or likely so, at the lookup. Mostly it is mapped and not
    /// stored again. It is encoded only if it must be stored after all.
    Known(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// Returns the payload of an encoded content; `raw` is the content itself.
    pub fn of(encoded: &'a Encoded, raw: &'a [u8]) -> Self {
        Payload::Encoded(encoded.encoding, encoded.stored(raw))
    }
}

/// The cache, slot and generation of a segment, and the log's state at its making.
#[derive(Clone, Copy)]
pub struct SegmentIdentity {
    /// The flash's tag.
    pub flash_tag: u64,
    /// The number of the segment.
    pub segment_seq: u64,
    /// The newest durable frame of the log; `None` on a flash whose segments name none.
    pub durable_frame_seq: Option<u64>,
}

/// The place of a segment, and its class.
pub struct SegmentHome {
    /// The slot.
    pub slot: SlotId,
    /// Its generation.
    pub generation: u32,
    /// Offset from the start of the slot.
    pub offset: u32,
    /// The class of its slot.
    pub class: StreamClass,
}
