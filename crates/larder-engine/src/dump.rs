//! What is on a flash, in words and numbers, for people and programs that look at it: `larder dump`.
//!
//! Invariants: nothing is written; the key of the fingerprints is not told. Lists have at most as many entries as the
//! caller allows, and say whether there were more.
//!
//! What it does not do: judge; [`verify`](crate::verify) does.

mod shapes;

pub use shapes::*;

use crate::{
    config::Tuning,
    error::EngineError,
    recover::{Recovered, recover},
    status::{compression_name, mode_name},
    walk,
};
use larder_core::{Lookup, Place, slots::SlotState};
use larder_device::{BlockDevice, IoBuf};
use larder_format::{CheckpointBlock, Encoding, LogEntry, RecordContent, Superblock, layout::SUPERBLOCK_OFFSETS};
use std::collections::HashMap;

/// Both superblock twins.
pub async fn superblocks(flash: &dyn BlockDevice) -> Vec<SuperblockDump> {
    let twins = walk::twins(flash).await;
    let dump = |(flash_offset, twin): (u64, Result<Superblock, EngineError>)| match twin {
        Ok(superblock) => SuperblockDump { flash_offset, error: None, fields: Some(fields(&superblock)) },
        Err(error) => SuperblockDump { flash_offset, error: Some(error.to_string()), fields: None },
    };
    SUPERBLOCK_OFFSETS.into_iter().zip(twins).map(dump).collect()
}

fn fields(superblock: &Superblock) -> SuperblockFields {
    let checkpoint = superblock.checkpoint;
    SuperblockFields {
        sequence: superblock.sequence,
        flash_uuid: hex(&superblock.flash_uuid),
        volume_name: superblock.volume_name.to_string(),
        design: format!("{:?}", superblock.design).to_lowercase(),
        mode: mode_name(superblock.mode),
        compression: compression_name(superblock.compression),
        dedup: superblock.dedup,
        fp_index_percent: superblock.fp_index_percent,
        ram_budget_bytes: superblock.ram_budget_bytes,
        clean_shutdown: superblock.clean_shutdown,
        origin: superblock.origin.uri.to_string(),
        origin_bytes: superblock.origin.size_bytes,
        origin_identity: superblock.origin.identity,
        checkpoint_id: checkpoint.map(|checkpoint| checkpoint.checkpoint_id),
        checkpoint_area: checkpoint.map(|checkpoint| checkpoint.area),
        checkpoint_bytes: checkpoint.map(|checkpoint| checkpoint.bytes),
        log_start_offset: superblock.log_start.offset_in_log,
        log_start_frame_seq: superblock.log_start.frame_seq,
        entry_seq_next: superblock.entry_seq_next,
        features_compat: superblock.features_compat,
        features_incompat: superblock.features_incompat(),
    }
}

/// How the flash is divided.
pub fn layout(superblock: &Superblock) -> LayoutDump {
    let layout = &superblock.layout;
    let twin = larder_format::superblock::SUPERBLOCK_BYTES as u64;
    let region = |region, flash_offset, bytes| Region { region, flash_offset, bytes };
    LayoutDump {
        flash_bytes: layout.flash_bytes,
        chunk_bytes: layout.chunk_bytes,
        weu_bytes: layout.weu_bytes,
        sector_bytes: layout.sector_bytes,
        slot_count: layout.slot_count,
        mappings_max: layout.mappings_max,
        fragments_max: layout.fragments_max,
        zero_ranges_max: layout.zero_ranges_max,
        fp_entries_max: layout.fp_entries_max,
        regions: vec![
            region("superblock a", layout.superblock_offsets[0], twin),
            region("superblock b", layout.superblock_offsets[1], twin),
            region("checkpoint area 0", layout.checkpoint_offset[0], layout.checkpoint_area_bytes),
            region("checkpoint area 1", layout.checkpoint_offset[1], layout.checkpoint_area_bytes),
            region("metadata log", layout.log_offset, layout.log_bytes),
            region("WEU slots", layout.weu_offset, u64::from(layout.slot_count) * u64::from(layout.weu_bytes)),
        ],
    }
}

/// The newest checkpoint; `None` where there is none yet.
///
/// # Errors
/// What is wrong with it.
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    limit: usize,
) -> Result<Option<CheckpointDump>, EngineError> {
    let Some(pointer) = &superblock.checkpoint else { return Ok(None) };
    let mut blocks = Listing::new();
    let header = walk::checkpoint(flash, superblock, pointer, &mut |block, flash_offset, bytes, content| {
        let kind = match content {
            CheckpointBlock::Slots(_) => "slots",
            CheckpointBlock::Mappings(_) => "mappings",
            CheckpointBlock::Fragments(_) => "fragments",
            CheckpointBlock::ZeroRanges(_) => "zero ranges",
            CheckpointBlock::Fingerprints(_) => "fingerprints",
        };
        let (bytes, count) = (bytes as u64, content.len() as u64);
        blocks.add(limit, || CheckpointBlockDump { block, flash_offset, bytes, kind: kind.into(), count });
    })
    .await?;
    let area = superblock.layout.checkpoint_offset.get(usize::from(pointer.area));
    Ok(Some(CheckpointDump {
        checkpoint_id: header.checkpoint_id,
        flash_offset: area.copied().unwrap_or_default(),
        total_bytes: header.total_bytes,
        slots: header.counts.slots,
        mappings: header.counts.mappings,
        fragments: header.counts.fragments,
        zero_ranges: header.counts.zero_ranges,
        fingerprints: header.counts.fingerprints,
        log_start_offset: header.log_start.offset_in_log,
        log_start_frame_seq: header.log_start.frame_seq,
        entry_seq_next: header.entry_seq_next,
        blocks,
    }))
}

/// The log since the checkpoint.
///
/// # Errors
/// The device's.
pub async fn log(flash: &dyn BlockDevice, superblock: &Superblock, limit: usize) -> Result<LogDump, EngineError> {
    let mut log = Listing::new();
    let start = (superblock.log_start, superblock.entry_seq_next);
    let end = walk::log(flash, superblock, start, &mut |at, header, entries| {
        for (seq, entry) in (header.start.first_entry_seq..).zip(entries) {
            log.add(limit, || LogEntryDump {
                seq,
                frame_seq: header.start.frame_seq,
                frame_flash_offset: superblock.layout.log_offset + at,
                ..log_entry(entry)
            });
        }
    })
    .await?;
    Ok(LogDump { frames: end.frames, bytes: end.bytes, next_frame_seq: end.next_frame_seq, log })
}

fn log_entry(entry: &LogEntry) -> LogEntryDump {
    let none = LogEntryDump::default();
    match entry {
        LogEntry::Map { lba, place, dirty, duplicate, .. } => LogEntryDump {
            kind: "map",
            lba: Some(*lba),
            place: Some(place_of(place)),
            dirty: Some(*dirty),
            duplicate: Some(*duplicate),
            ..none
        },
        LogEntry::MapZero { lba, dirty } => {
            LogEntryDump { kind: "map-zero", lba: Some(*lba), dirty: Some(*dirty), ..none }
        }
        LogEntry::Fragment { lba, place, dirty, sectors } => LogEntryDump {
            kind: "fragment",
            lba: Some(*lba),
            place: Some(place_of(place)),
            dirty: Some(*dirty),
            sectors: Some(runs(sectors)),
            ..none
        },
        LogEntry::Trim { lba, chunk_count, dirty, .. } => {
            LogEntryDump { kind: "trim", lba: Some(*lba), chunk_count: Some(*chunk_count), dirty: Some(*dirty), ..none }
        }
        LogEntry::Invalidate { lba, chunk_count } => {
            LogEntryDump { kind: "invalidate", lba: Some(*lba), chunk_count: Some(*chunk_count), ..none }
        }
        LogEntry::Clean { lba, chunk_count, map_seq } => LogEntryDump {
            kind: "clean",
            lba: Some(*lba),
            chunk_count: Some(*chunk_count),
            map_seq: Some(*map_seq),
            ..none
        },
        LogEntry::SlotFreed { slot, generation } => {
            LogEntryDump { kind: "slot-freed", freed_slot: Some(*slot), freed_generation: Some(*generation), ..none }
        }
        LogEntry::Mode { mode } => LogEntryDump { kind: "mode", mode: Some(mode_name(*mode)), ..none },
    }
}

/// The WEU slots as an opening would find them, in the order of the flash.
///
/// # Errors
/// The recovery's.
pub async fn slots(flash: &dyn BlockDevice, limit: usize) -> Result<Listing<SlotDump>, EngineError> {
    let recovered = recover(flash, None, &Tuning::default()).await?;
    let mut mapped: HashMap<u32, (u64, u64)> = HashMap::new();
    for (_, lookup, dirty) in sorted_mappings(&recovered) {
        if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = lookup {
            let (chunks, dirty_chunks) = mapped.entry(place.slot.0).or_default();
            *chunks += 1;
            *dirty_chunks += u64::from(dirty);
        }
    }
    let mut slots = recovered.state.design.export_slots();
    slots.sort_by_key(|(slot, ..)| *slot);
    let mut listing = Listing::new();
    for (slot, generation, state, class) in slots {
        let (mapped_chunks, dirty_chunks) = mapped.get(&slot.0).copied().unwrap_or_default();
        listing.add(limit, || SlotDump {
            slot: slot.0,
            flash_offset: recovered.superblock.layout.slot_offset(slot.0).unwrap_or_default(),
            generation,
            state: format!("{state:?}").to_lowercase(),
            class: format!("{class:?}").to_lowercase(),
            mapped_chunks,
            dirty_chunks,
        });
    }
    Ok(listing)
}

/// What is mapped, by address, as an opening would find it.
///
/// # Errors
/// The recovery's.
pub async fn mappings(flash: &dyn BlockDevice, limit: usize) -> Result<Listing<MappingDump>, EngineError> {
    let recovered = recover(flash, None, &Tuning::default()).await?;
    let mut listing = Listing::new();
    for (lba, lookup, dirty) in sorted_mappings(&recovered) {
        listing.add(limit, || {
            let zero = MappingDump { lba, kind: "zero", dirty, duplicate: false, place: None, sectors: None };
            match lookup {
                Lookup::Chunk { place, duplicate } => {
                    MappingDump { kind: "chunk", duplicate, place: Some(core_place(&place)), ..zero }
                }
                Lookup::Fragment { place, sectors } => MappingDump {
                    kind: "fragment",
                    place: Some(core_place(&place)),
                    sectors: Some(runs(&sectors.to_bytes())),
                    ..zero
                },
                Lookup::Zero | Lookup::Miss => zero,
            }
        });
    }
    Ok(listing)
}

fn sorted_mappings(recovered: &Recovered) -> Vec<(u64, Lookup, bool)> {
    let design = &recovered.state.design;
    let pieces = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
    let mut mappings: Vec<_> = pieces.map(|mapping| (mapping.lba.0, mapping.lookup, mapping.dirty)).collect();
    mappings.sort_by_key(|(lba, ..)| *lba);
    mappings
}

/// The segments in the slots that are not free, in the order of the flash. `limit` counts segments and records.
///
/// # Errors
/// The recovery's or the device's.
pub async fn segments(flash: &dyn BlockDevice, limit: usize) -> Result<Listing<SegmentDump>, EngineError> {
    let recovered = recover(flash, None, &Tuning::default()).await?;
    let superblock = &recovered.superblock;
    let mut slots = recovered.state.design.export_slots();
    slots.sort_by_key(|(slot, ..)| *slot);
    let mut listing: Listing<SegmentDump> = Listing::new();
    let mut left = limit;
    for (slot, generation, state, _) in slots {
        let Some(offset) = superblock.layout.slot_offset(slot.0) else { continue };
        if state == SlotState::Free {
            continue;
        }
        let weu = flash.read(offset, IoBuf::new(superblock.layout.weu_bytes as usize)).await?;
        let (found, _) = walk::segments(&weu, superblock.flash_tag(), slot.0, generation);
        for segment in found {
            listing.total += 1;
            if left == 0 {
                continue;
            }
            left -= 1;
            let dump = segment_dump(&segment, left);
            left -= dump.records.len();
            listing.entries.push(dump);
        }
    }
    Ok(listing)
}

fn segment_dump(segment: &walk::Segment, records_max: usize) -> SegmentDump {
    let header = &segment.header;
    let records = segment.records.as_deref().unwrap_or_default();
    let record = |record: &larder_format::RecordEntry| {
        let place = place_of(&record.place(header.slot, header.generation));
        let (kind, fingerprint, sectors) = match &record.content {
            RecordContent::Chunk(fingerprint) => ("chunk", Some(hex(fingerprint)), None),
            RecordContent::Fragment(sectors) => ("fragment", None, Some(runs(sectors))),
        };
        RecordDump { lba: record.lba, kind, place, fingerprint, sectors }
    };
    SegmentDump {
        slot: header.slot,
        generation: header.generation,
        weu_offset: header.offset,
        segment_seq: header.segment_seq,
        bytes: header.segment_bytes,
        class: format!("{:?}", header.class).to_lowercase(),
        error: segment.records.as_ref().err().map(ToString::to_string),
        records: records.iter().take(records_max).map(record).collect(),
    }
}

fn place_of(place: &larder_format::Place) -> PlaceDump {
    PlaceDump {
        slot: place.slot,
        generation: place.generation,
        weu_offset: place.offset,
        stored_bytes: place.stored_len,
        encoding: encoding_name(Some(place.encoding)),
        record_crc: place.crc,
    }
}

fn core_place(place: &Place) -> PlaceDump {
    PlaceDump {
        slot: place.slot.0,
        generation: place.generation,
        weu_offset: place.offset,
        stored_bytes: place.stored_len,
        encoding: encoding_name(Encoding::from_code(place.encoding)),
        record_crc: place.crc,
    }
}

fn encoding_name(encoding: Option<Encoding>) -> &'static str {
    match encoding {
        Some(Encoding::Raw) => "raw",
        Some(Encoding::Lz4) => "lz4",
        Some(Encoding::Zstd) => "zstd",
        None => "unknown",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A sector bitmap as runs: `0-3,7`.
fn runs(sectors: &[u8; 32]) -> String {
    let map = larder_core::SectorMap::from_bytes(sectors);
    let run = |(first, end): (usize, usize)| match end - first {
        1 => first.to_string(),
        _ => format!("{first}-{}", end - 1),
    };
    map.runs(256).map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_are_told_as_runs() {
        let mut map = larder_core::SectorMap::EMPTY;
        map.set(0, 4);
        map.set(7, 8);
        assert_eq!(runs(&map.to_bytes()), "0-3,7");
    }

    #[test]
    fn a_listing_counts_what_it_does_not_keep() {
        let mut listing = Listing::new();
        (0..5).for_each(|n| listing.add(2, || n));
        assert_eq!((listing.entries, listing.total), (vec![0, 1], 5));
    }
}
