//! An open slot: records are appended to its segment until that closes.
//!
//! Invariants: the records lie in their order, and the bytes behind them are zeroes.
//!
//! It does not write to flash.

use crate::segment::record::{NewRecord, RecordOf, SegmentHome, SegmentIdentity};
use crate::{in_flight::InFlightSegment, store::Store};
use larder_core::{
    Place, SlotId, StreamClass,
    packing::{PackingRules, SegmentPacker},
};
use larder_device::IoBuf;
use larder_format::{Encoding, LogEntry, RecordContent, RecordEntry, RecordIdentity, crc32c, record_crc_of};
use std::ops::Range;

/// A record with the parts that do not depend on its place. They are its CRC, and its copy if it
/// has slots of its own. They are made without the lock.
pub(crate) struct Ready<'a> {
    pub record: NewRecord<'a>,
    pub encoding: Encoding,
    /// The stored bytes.
    pub payload: &'a [u8],
    /// CRC32C of the payload.
    payload_crc: u32,
    /// The bytes of its slots, if the record has slots of its own. Otherwise it is copied into the
    /// segment.
    image: Option<IoBuf>,
}

impl<'a> Ready<'a> {
    /// Makes the parts of a record. One with slots of its own fills units of so many bytes.
    pub(super) fn new(
        record: NewRecord<'a>,
        encoding: Encoding,
        payload: &'a [u8],
        own_unit: Option<usize>,
    ) -> Ready<'a> {
        let image = own_unit.map(|unit| {
            let mut image = IoBuf::new(payload.len().next_multiple_of(unit));
            image[..payload.len()].copy_from_slice(payload);
            image
        });
        Ready { record, encoding, payload, payload_crc: crc32c(payload), image }
    }
}

/// A slot that is open for records.
pub struct OpenSlot {
    pub(crate) slot: SlotId,
    generation: u32,
    class: StreamClass,
    pub(super) packer: SegmentPacker,
    pub(super) store: &'static dyn Store,
    /// The rest of the slot from the open segment's start on.
    buf: IoBuf,
    records: Vec<RecordEntry>,
    /// Clean mappings into the open segment.
    pub awaiting: Vec<LogEntry>,
    /// A dirty mapping names a record of the open segment, in either class.
    pub commit_needs_it: bool,
}

impl OpenSlot {
    /// Opens a slot.
    pub(super) fn new(
        (slot, generation): (SlotId, u32),
        class: StreamClass,
        store: &'static dyn Store,
        rules: PackingRules,
    ) -> OpenSlot {
        OpenSlot {
            slot,
            generation,
            class,
            packer: SegmentPacker::new(rules),
            store,
            buf: IoBuf::new(if store.is_full_with_one() { 0 } else { rules.slot_bytes as usize }),
            records: Vec::new(),
            awaiting: Vec::new(),
            commit_needs_it: false,
        }
    }

    pub(super) fn class(&self) -> StreamClass {
        self.class
    }

    /// Returns whether `place` is in the open segment.
    pub fn holds(&self, place: &Place) -> bool {
        self.slot == place.slot && self.generation == place.generation && place.offset >= self.packer.start()
    }

    /// Returns the bytes of `range` of the slot.
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let start = self.packer.start() as usize;
        self.buf.get(range.start.checked_sub(start)?..range.end.checked_sub(start)?)
    }

    pub(super) fn append(&mut self, ready: &mut Ready<'_>) -> Option<Place> {
        let Ready { record: NewRecord { lba, of, .. }, encoding, payload, .. } = *ready;
        let offset = self.packer.place(payload.len() as u32, encoding == Encoding::Raw)?;
        match ready.image.take() {
            Some(image) => {
                debug_assert_eq!(
                    offset,
                    self.packer.start(),
                    "a record with slots of its own fills them from the first byte on"
                );
                self.buf = image;
            }
            None => {
                let at = (offset - self.packer.start()) as usize;
                self.buf[at..at + payload.len()].copy_from_slice(payload);
            }
        }
        let identity = RecordIdentity { slot: self.slot.0, generation: self.generation, offset };
        let crc = record_crc_of(identity, encoding.code(), ready.payload_crc);
        self.records.push(RecordEntry {
            volume: 0,
            encoding,
            stored_len: payload.len() as u32,
            lba: lba.0,
            offset,
            crc,
            content: match of {
                RecordOf::Chunk(fingerprint) => RecordContent::Chunk(fingerprint.map_or([0; 16], |f| f.0)),
                RecordOf::Fragment(sectors) => RecordContent::Fragment(sectors.to_bytes()),
            },
        });
        Some(Place {
            slot: self.slot,
            generation: self.generation,
            offset,
            stored_len: payload.len() as u32,
            crc,
            encoding: encoding.code(),
        })
    }

    /// Closes the open segment. Returns it, and whether the slot has room for another.
    pub(super) fn close(&mut self, identity: SegmentIdentity) -> (InFlightSegment, bool) {
        let start = self.packer.start();
        let bytes = (self.packer.closed_end() - start) as usize;
        let table = (self.packer.table_offset() - start) as usize;
        let payload_end = (self.packer.payload_end() - start) as usize;
        let mut data = self.buf.split_to(bytes);
        data[payload_end..].fill(0);
        let home = SegmentHome { slot: self.slot, generation: self.generation, offset: start, class: self.class };
        let described = self.store.describe(&mut data, table, &self.records, identity, home);
        described.expect("the table has its exact size");
        self.records.clear();
        self.commit_needs_it = false;
        let segment = InFlightSegment {
            seq: identity.segment_seq,
            slot: self.slot,
            generation: self.generation,
            start,
            data: data.freeze(),
            is_entry: false,
            awaiting: std::mem::take(&mut self.awaiting),
            failed: false,
        };
        (segment, self.packer.next_segment())
    }
}
