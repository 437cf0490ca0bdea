//! A log of WEUs, filled with segments: one write for many records, of any size.
//!
//! Invariants: each segment has a header and a table that identify its records and its use of the
//! slot.
//!
//! It does not open, close or write segments; [`segment`](crate::segment) and [`send`](crate::send)
//! do.

use super::Store;
use crate::{
    config::CreateOptions,
    named_frames::look::Look,
    named_frames::look::Named,
    named_frames::{self},
    requested::refusal::Refusal,
    segment::record::{SegmentHome, SegmentIdentity},
    segment::weu_class,
    walk::Reader,
};
use larder_core::{
    history::waiting_weus_bytes,
    limits::{RECORD_BATCH_MAX, free_weus},
    named::OverWeus,
    packing::PackingRules,
    slots::SlotTable,
};
use larder_format::{
    FormatError, HistoryRequest, Layout, RecordEntry, SegmentHeader, StoreKind, Superblock,
    layout::WEU_BYTES_MIN,
    segment::{RECORD_ENTRY_BYTES, SEGMENT_HEADER_BYTES, encode_header, encode_table},
};

impl Store for OverWeus {
    fn kind(&self) -> StoreKind {
        StoreKind::Weus
    }

    fn index_bytes_max(&self, _chunk_bytes: u32) -> u64 {
        self.index_bytes_max
    }

    fn slot_tables_bytes(&self, layout: &Layout) -> u64 {
        u64::from(layout.slot_count) * SlotTable::SLOT_BYTES
    }

    fn history(&self, options: &CreateOptions) -> Option<HistoryRequest> {
        let entries_max = match options.ram_budget_bytes {
            0 => u64::MAX,
            budget => budget / self.index_bytes_max,
        };
        let bytes_per_chunk = waiting_weus_bytes(options.chunk_bytes, options.slot_bytes);
        let bytes_per_mapping = self.history_bytes_max;
        (bytes_per_mapping > 0).then_some(HistoryRequest { bytes_per_chunk, bytes_per_mapping, entries_max })
    }

    fn weu_wanted(&self, flash_bytes: u64) -> Option<u32> {
        let most = CreateOptions::default().slot_bytes;
        (self.weus_wanted > 0).then(|| self.weu_for(flash_bytes, WEU_BYTES_MIN, most))
    }

    fn fit(&self, _options: &mut CreateOptions) {}

    fn check(&self, options: &CreateOptions) -> Result<(), Refusal> {
        match options.slot_bytes == options.chunk_bytes {
            true => Err(Refusal::new("fills WEUs, and none of a single chunk", "give them room for several")),
            false => Ok(()),
        }
    }

    fn has_made(&self, superblock: &Superblock) -> bool {
        superblock.layout.store() == StoreKind::Weus
    }

    fn packing(&self, layout: &Layout) -> PackingRules {
        PackingRules {
            slot_bytes: layout.slot_bytes,
            sector_bytes: layout.sector_bytes,
            header_bytes: SEGMENT_HEADER_BYTES as u32,
            entry_bytes: RECORD_ENTRY_BYTES as u32,
        }
    }

    fn describe(
        &self,
        data: &mut [u8],
        table_offset: usize,
        records: &[RecordEntry],
        SegmentIdentity { flash_tag, segment_seq, durable_frame_seq }: SegmentIdentity,
        home: SegmentHome,
    ) -> Result<(), FormatError> {
        clear_gaps(data, home.offset, records);
        let table = table_offset..table_offset + records.len() * RECORD_ENTRY_BYTES;
        let table_crc = encode_table(records, data.get_mut(table).unwrap_or_default())?;
        let header = SegmentHeader {
            flash_tag,
            slot: home.slot.0,
            generation: home.generation,
            offset: home.offset,
            segment_seq,
            durable_frame_seq,
            segment_bytes: data.len() as u32,
            table_offset: table_offset as u32,
            record_count: records.len() as u32,
            class: weu_class(home.class),
            table_crc,
        };
        data[..SEGMENT_HEADER_BYTES].copy_from_slice(&encode_header(&header));
        Ok(())
    }

    fn record_step_bytes(&self, _layout: &Layout) -> u32 {
        1
    }

    fn is_full_with_one(&self) -> bool {
        false
    }

    fn stores_zeroes(&self) -> bool {
        false
    }

    fn free_slots_wanted(&self, slots: usize) -> usize {
        free_weus(slots)
    }

    fn evict_at_once(&self, missing: usize, _index_is_full: bool) -> usize {
        missing.clamp(1, RECORD_BATCH_MAX)
    }

    fn trims_slots(&self) -> bool {
        true
    }

    fn names_frames(&self) -> bool {
        true
    }

    fn newest_in_slots<'a>(&'a self, reader: Reader<'a>, superblock: &'a Superblock, look: Look) -> Named<'a> {
        Box::pin(named_frames::in_segments(reader, superblock, look))
    }
}

/// Gaps between raw payloads may hold an earlier buffer's bytes, which must not leak to the flash.
fn clear_gaps(data: &mut [u8], start: u32, records: &[RecordEntry]) {
    let mut at = SEGMENT_HEADER_BYTES;
    for record in records {
        let offset = (record.offset - start) as usize;
        if at < offset {
            data[at..offset].fill(0);
        }
        at = offset + record.stored_len as usize;
    }
}
