//! Writing records that are whole into free slots, because the segment around them is damaged.
//!
//! Invariants: only slots that the state has as free are written, so that a crash before the new
//! state is durable leaves the old state. A record keeps its encoding and its bytes; its place, and
//! with it its checksum, are new.
//!
//! It does not make anything durable, or free the slot that the record was in.

use super::salvage::Salvaged;
use larder_core::{
    Decider, Lba, Place, SlotId, StreamClass,
    packing::{PackingRules, SegmentPacker},
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_engine::{
    EngineError,
    offline::{SegmentHome, SegmentIdentity, StoreForm},
};
use larder_format::{Encoding, RecordContent, RecordEntry, RecordIdentity, Superblock, record_crc};

/// A record to move.
pub struct Moved<'a> {
    /// Class of its slot.
    pub class: StreamClass,
    /// The chunk of the record.
    pub lba: Lba,
    /// Its content.
    pub content: RecordContent,
    /// Its encoding.
    pub encoding: Encoding,
    /// Its bytes, as stored.
    pub payload: &'a [u8],
}

struct OpenSlot {
    slot: SlotId,
    generation: u32,
    class: StreamClass,
    packer: SegmentPacker,
    buf: IoBuf,
    records: Vec<RecordEntry>,
}

/// Fills free slots.
pub struct Mover<'a> {
    flash: &'a dyn BlockDevice,
    superblock: &'a Superblock,
    form: StoreForm,
    /// Packing in the device's present sectors.
    packing: PackingRules,
    /// If false, the flash is not written.
    writes: bool,
    open: Vec<OpenSlot>,
    segment_seq: u64,
    durable_frame_seq: Option<u64>,
}

impl<'a> Mover<'a> {
    /// Returns a mover without records; its segments are numbered from `segment_seq` on.
    pub fn new(flash: &'a dyn BlockDevice, found: &'a Salvaged, writes: bool) -> Self {
        let (superblock, form) = (&found.superblock, StoreForm::of(&found.geometry));
        let packing = form.packing(&found.geometry.layout);
        // The log as it was read is durable. A flash whose segments name no frames stays so until
        // its next opening.
        let durable_frame_seq = superblock.log_positions.then_some(found.log_end.0.frame_seq.saturating_sub(1));
        let segment_seq = found.log_end.1;
        Mover { flash, superblock, form, packing, writes, open: Vec::new(), segment_seq, durable_frame_seq }
    }

    /// Puts a record into a slot of its class. Returns `None` if no slot is free.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn put(&mut self, design: &mut Decider, record: &Moved<'_>) -> Result<Option<Place>, EngineError> {
        // A second turn is for the slot that follows a full one.
        for _ in 0..2 {
            let at = match self.open.iter().position(|open| open.class == record.class) {
                Some(at) => at,
                None => {
                    let Some((slot, generation)) = design.open_slot(record.class) else { return Ok(None) };
                    self.open.push(OpenSlot {
                        slot,
                        generation,
                        class: record.class,
                        packer: SegmentPacker::new(self.packing),
                        buf: IoBuf::zeroed(self.superblock.layout.slot_bytes as usize),
                        records: Vec::new(),
                    });
                    self.open.len() - 1
                }
            };
            let place = self.open.get_mut(at).and_then(|open| open.append(record));
            if place.is_none() || self.form.is_full_with_one() {
                let full = self.open.swap_remove(at);
                self.write(design, full).await?;
            }
            if place.is_some() {
                return Ok(place);
            }
        }
        Ok(None)
    }

    /// Writes the open slots.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn finish(mut self, design: &mut Decider) -> Result<(), EngineError> {
        while let Some(open) = self.open.pop() {
            self.write(design, open).await?;
        }
        Ok(())
    }

    async fn write(&mut self, design: &mut Decider, open: OpenSlot) -> Result<(), EngineError> {
        design.seal_slot(open.slot);
        let Some(offset) = self.superblock.layout.slot_offset(open.slot.0) else { return Ok(()) };
        let (flash_tag, segment_seq) = (self.superblock.flash_tag(), self.segment_seq);
        let identity = SegmentIdentity { flash_tag, segment_seq, durable_frame_seq: self.durable_frame_seq };
        let segment = open.close(identity, self.form)?;
        self.segment_seq += 1;
        if !self.writes {
            return Ok(());
        }
        // Advisory: a device that cannot trim loses nothing.
        let _ = self.flash.discard(offset, self.superblock.layout.slot_bytes.into()).await;
        self.flash.write(offset, segment.freeze(), WriteFlags::default()).await?;
        Ok(())
    }
}

impl OpenSlot {
    fn append(&mut self, record: &Moved<'_>) -> Option<Place> {
        let len = record.payload.len() as u32;
        let offset = self.packer.place(len, record.encoding == Encoding::Raw)?;
        let at = offset as usize;
        self.buf.get_mut(at..at + record.payload.len())?.copy_from_slice(record.payload);
        let identity = RecordIdentity { slot: self.slot.0, generation: self.generation, offset };
        let crc = record_crc(identity, record.encoding.code(), record.payload);
        self.records.push(RecordEntry {
            volume: 0,
            encoding: record.encoding,
            stored_len: len,
            lba: record.lba.0,
            offset,
            crc,
            content: record.content,
        });
        Some(Place {
            slot: self.slot,
            generation: self.generation,
            offset,
            stored_len: len,
            crc,
            encoding: record.encoding.code(),
        })
    }

    /// Returns the slot's one segment.
    fn close(mut self, identity: SegmentIdentity, form: StoreForm) -> Result<IoBuf, EngineError> {
        let (table, bytes) = (self.packer.table_offset() as usize, self.packer.closed_end() as usize);
        self.buf.truncate(bytes);
        let home = SegmentHome { slot: self.slot, generation: self.generation, offset: 0, class: self.class };
        form.describe(&mut self.buf, table, &self.records, identity, home)?;
        Ok(self.buf)
    }
}
