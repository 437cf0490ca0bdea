//! A log of WEUs, filled with segments: one write for many records, of any size.
//!
//! Invariants: each segment has a header and a table that identify its records and its use of the
//! slot.
//!
//! It does not open, close or write segments; [`segment`](crate::segment) and [`send`](crate::send)
//! do. It reads headers for the frames that they name.

use super::Store;
use crate::{
    config::CreateOptions,
    named_frames::{
        PIECE_BYTES, each_piece,
        look::{Look, Named, Naming},
        newer,
    },
    requested::refusal::Refusal,
    segment::record::{SegmentHome, SegmentIdentity},
    segment::weu_class,
    walk::Reader,
};
use larder_core::{
    history::waiting_weus_bytes,
    limits::checkpoint_for_mappings,
    limits::{RECORD_BATCH_MAX, free_weus},
    named::OverWeus,
    packing::PackingRules,
    slots::SlotTable,
};
use larder_device::IoBuf;
use larder_format::{
    FormatError, HistoryRequest, Layout, RecordEntry, SegmentHeader, StoreKind, Superblock,
    layout::WEU_BYTES_MIN,
    segment::{RECORD_ENTRY_BYTES, SEGMENT_HEADER_BYTES, decode_header, encode_header, encode_table},
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

    fn fingerprints_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Option<u64> {
        Some(self.checkpoint?.fingerprints(flash_bytes / u64::from(chunk_bytes)))
    }

    fn mappings_wanted(&self, flash_bytes: u64, chunk_bytes: u32) -> Result<Option<u64>, String> {
        let chunks = flash_bytes / u64::from(chunk_bytes);
        Ok(self.checkpoint.map(|shares| checkpoint_for_mappings(shares.mappings(chunks))))
    }

    fn history(&self, options: &CreateOptions) -> Option<HistoryRequest> {
        let entries_max = match options.ram_budget_bytes {
            0 => u64::MAX,
            budget => budget / self.index_bytes_max,
        };
        let bytes_per_chunk = waiting_weus_bytes(options.chunk_bytes, options.slot_bytes);
        let bytes_per_mapping = self.history_bytes_max;
        let names_records = self.checkpoint.is_some_and(|shares| shares.names_records);
        (bytes_per_mapping > 0).then_some(HistoryRequest {
            bytes_per_chunk,
            bytes_per_mapping,
            entries_max,
            names_records,
        })
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
        Box::pin(named_in_segments(reader, superblock, look))
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

/// Returns the newest frame that headers of segments name.
async fn named_in_segments(reader: Reader<'_>, superblock: &Superblock, look: Look) -> Option<Naming> {
    let mut segments = Segments { reader, superblock, piece: None };
    let mut newest = None;
    match look {
        Look::All => {
            for slot in 0..superblock.layout.slot_count {
                newest = newer(newest, segments.of_slot(slot, None).await);
            }
        }
        Look::Likely(likely) => {
            for slot in likely.whole {
                newest = newer(newest, segments.of_slot(slot, None).await);
            }
            let heads: Vec<_> = likely
                .heads
                .into_iter()
                .filter_map(|head| Some((superblock.layout.slot_offset(head.0)?, head)))
                .collect();
            let mut begun = Vec::new();
            each_piece(reader, heads.into_iter(), &mut |at, (slot, generation), piece| {
                if let Some(header) = header_in(piece, superblock, slot, 0) {
                    newest = newer(newest, naming(&header, at));
                    begun.extend((header.generation == generation).then_some((slot, generation)));
                }
            })
            .await;
            for (slot, generation) in begun {
                newest = newer(newest, segments.of_slot(slot, Some(generation)).await);
            }
        }
    }
    newest
}

/// Returns the frame that a header at this place names.
fn naming(header: &SegmentHeader, flash_offset: u64) -> Option<Naming> {
    header.durable_frame_seq.map(|frame_seq| Naming { frame_seq, flash_offset })
}

/// Returns the header of a segment of this flash and slot, at `offset` in the slot.
fn header_in(bytes: &[u8], superblock: &Superblock, slot: u32, offset: u32) -> Option<SegmentHeader> {
    let header = decode_header(bytes).ok()?;
    header.check_home(superblock.flash_tag(), slot, header.generation, offset).ok()?;
    Some(header)
}

/// Headers of segments, read one after the other.
struct Segments<'a> {
    reader: Reader<'a>,
    superblock: &'a Superblock,
    /// The last piece read, and its offset.
    piece: Option<(u64, IoBuf)>,
}

impl Segments<'_> {
    /// Returns the newest frame that the segments of a slot name.
    ///
    /// It reads the segments of `generation`, or of the generation at the slot's start.
    async fn of_slot(&mut self, slot: u32, mut generation: Option<u32>) -> Option<Naming> {
        let start = self.superblock.layout.slot_offset(slot)?;
        let (mut offset, mut newest) = (0, None);
        while offset < self.superblock.layout.slot_bytes {
            let at = start + u64::from(offset);
            let superblock = self.superblock;
            let Some(header) = self.bytes(at).await.and_then(|bytes| header_in(bytes, superblock, slot, offset)) else {
                break;
            };
            if *generation.get_or_insert(header.generation) != header.generation || header.segment_bytes == 0 {
                break;
            }
            newest = newer(newest, naming(&header, at));
            offset += header.segment_bytes;
        }
        newest
    }

    /// Returns the bytes from `at` to the end of their piece.
    async fn bytes(&mut self, at: u64) -> Option<&[u8]> {
        let from = at - at % PIECE_BYTES as u64;
        if self.piece.as_ref().is_none_or(|(start, _)| *start != from) {
            self.piece = Some((from, self.reader.read(from, PIECE_BYTES as u64).await.ok()?));
        }
        self.piece.as_ref().and_then(|(_, piece)| piece.get((at - from) as usize..))
    }
}
