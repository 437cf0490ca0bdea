//! Printing segments and their record tables: of the slots in use, or all in one slot.
//!
//! It does not check records; [`verify`](crate::verify) does.

use super::{
    shapes::{Listing, RecordDump, SegmentDump},
    values::{StateOf, hex, place_of, runs, state_of},
};
use crate::verify::window::Window;
use larder_core::slots::SlotState;
use larder_device::BlockDevice;
use larder_engine::{EngineError, offline::check_superblock, walk};
use larder_format::{
    RecordContent, RecordEntry, SegmentHeader, Superblock,
    layout::SECTOR_BYTES_MIN,
    segment::{decode_header, decode_table},
};

/// Segments with records, cut off at a limit for both together.
struct Cut {
    listing: Listing<SegmentDump>,
    left: usize,
}

impl Cut {
    fn new(limit: usize) -> Self {
        Cut { listing: Listing::new(), left: limit }
    }

    fn add(&mut self, segment: &walk::Segment) {
        self.listing.total += 1;
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let dump = segment_dump(segment, self.left);
        self.left -= dump.records.len();
        self.listing.entries.push(dump);
    }
}

/// Returns the segments in the used slots, in flash order, and whether metadata was damaged.
///
/// `limit` counts segments and records.
///
/// # Errors
/// No superblock is whole.
pub async fn segments(flash: &dyn BlockDevice, limit: usize) -> Result<(Listing<SegmentDump>, bool), EngineError> {
    let StateOf { found, salvaged } = state_of(flash).await?;
    let superblock = &found.superblock;
    let mut slots = found.design.export_slots();
    slots.sort_by_key(|(slot, ..)| *slot);
    let mut cut = Cut::new(limit);
    for (slot, generation, state, _) in slots {
        if state == SlotState::Free || !found.superblock.layout.store().lists_records() {
            continue;
        }
        let stored = slot_bytes(flash, superblock, slot.0).await?;
        let (segments, _) = walk::segments(&stored, superblock.flash_tag(), slot.0, generation);
        segments.iter().for_each(|segment| cut.add(segment));
    }
    Ok((cut.listing, salvaged))
}

/// Returns every segment in a slot, of any generation, in the order of the flash.
///
/// # Errors
/// There is no such slot.
pub async fn slot_segments(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    slot: u32,
    limit: usize,
) -> Result<Listing<SegmentDump>, EngineError> {
    let stored = slot_bytes(flash, superblock, slot).await?;
    let mut cut = Cut::new(limit);
    for segment in lying(&stored, superblock, slot)? {
        cut.add(&segment);
    }
    Ok(cut.listing)
}

/// Returns the segments in the bytes of a slot, of any generation.
///
/// # Errors
/// For a superblock that this version cannot have made.
pub(super) fn lying(stored: &[u8], superblock: &Superblock, slot: u32) -> Result<Vec<walk::Segment>, EngineError> {
    // The finest unit covers sectors of every size.
    let sector = SECTOR_BYTES_MIN as usize;
    let mut found = Vec::new();
    check_superblock(superblock)?;
    if !superblock.layout.store().lists_records() {
        return Ok(found);
    }
    for offset in (0..stored.len()).step_by(sector) {
        let bytes = stored.get(offset..).unwrap_or_default();
        let Ok(header) = decode_header(bytes) else { continue };
        if header.check_home(superblock.flash_tag(), slot, header.generation, offset as u32).is_ok() {
            let table = bytes.get(header.table_offset as usize..).unwrap_or_default();
            found.push(walk::Segment { header, records: decode_table(&header, table) });
        }
    }
    Ok(found)
}

/// Returns the bytes of a slot; unreadable ones are zero.
pub(super) async fn slot_bytes(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    slot: u32,
) -> Result<Vec<u8>, EngineError> {
    let layout = &superblock.layout;
    let Some(offset) = layout.slot_offset(slot) else {
        let last = layout.slot_count.saturating_sub(1);
        return Err(EngineError::Invalid(format!("there is no slot {slot}: the flash has slots 0 to {last}")));
    };
    let bytes = layout.slot_bytes as usize;
    Ok(Window::new(flash, offset, offset + bytes as u64).bytes(offset, bytes).await.to_vec())
}

fn segment_dump(segment: &walk::Segment, records_max: usize) -> SegmentDump {
    let header = &segment.header;
    let records = segment.records.as_deref().unwrap_or_default();
    SegmentDump {
        slot: header.slot,
        generation: header.generation,
        weu_offset: header.offset,
        segment_seq: header.segment_seq,
        durable_frame_seq: header.durable_frame_seq,
        bytes: header.segment_bytes,
        class: format!("{:?}", header.class).to_lowercase(),
        error: segment.records.as_ref().err().map(ToString::to_string),
        records_total: records.len() as u64,
        records: records.iter().take(records_max).map(|record| record_dump(header, record)).collect(),
    }
}

pub(super) fn record_dump(header: &SegmentHeader, record: &RecordEntry) -> RecordDump {
    let place = place_of(&record.place(header.slot, header.generation));
    let (kind, fingerprint, sectors) = match &record.content {
        RecordContent::Chunk(fingerprint) => ("chunk", Some(hex(fingerprint)), None),
        RecordContent::Fragment(sectors) => ("fragment", None, Some(runs(sectors))),
    };
    RecordDump { lba: record.lba, kind, place, fingerprint, sectors }
}
