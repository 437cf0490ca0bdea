//! All entries of checkpoint and log about a chunk, in the order in which an opening applies them.
//!
//! Invariants: damage ends nothing: blocks and frames count each for itself.
//!
//! It does not apply anything; `mappings` gives the result.

use super::{
    checkpoint::{area_of, blocks},
    log::log_entry,
    shapes::{HistoryDump, Listing, LogEntryDump, MappingDump},
    values::{check_lba, mapping_dump},
};
use crate::verify::{frames as lying, window::Window};
use larder_core::{Lookup, SectorMap};
use larder_device::BlockDevice;
use larder_engine::{EngineError, offline::from_format};
use larder_format::{CheckpointBlock, LogEntry, Superblock};

/// Returns the entries about chunk `lba` in the checkpoint that counts, and in the log behind it.
///
/// # Errors
/// There is no such chunk.
pub async fn history(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    lba: u64,
    limit: usize,
) -> Result<HistoryDump, EngineError> {
    check_lba(superblock, lba)?;
    let mut checkpoint: Vec<MappingDump> = Vec::new();
    let mut slots = Vec::new();
    if let Some(pointer) = &superblock.checkpoint {
        let (start, _) = area_of(superblock, pointer.area);
        let region = (start, start + pointer.bytes);
        let mut window = Window::new(flash, region.0, region.1);
        blocks(&mut window, superblock, region, &mut |found| {
            if found.checkpoint_id == pointer.checkpoint_id {
                in_block(&found.block, lba, &mut checkpoint);
            }
        })
        .await;
    }
    slots.extend(checkpoint.iter().filter_map(|mapping| mapping.place.map(|place| place.slot)));
    let layout = &superblock.layout;
    let mut window = Window::new(flash, layout.log_offset, layout.log_offset + layout.log_bytes);
    let frames = lying::scan(&mut window, superblock).await.whole;
    let mut log = Listing::new();
    for frame in frames.iter().filter(|frame| frame.header.start.frame_seq >= superblock.log_start.frame_seq) {
        let Some((header, entries)) = lying::at(&mut window, superblock, frame.offset_in_log).await else { continue };
        for (seq, entry) in (header.start.first_entry_seq..).zip(&entries) {
            if !speaks_of(entry, lba, &slots) {
                continue;
            }
            if let LogEntry::Map { place, .. } | LogEntry::Fragment { place, .. } = entry {
                slots.push(place.slot);
            }
            log.add(limit, || LogEntryDump {
                seq,
                frame_seq: header.start.frame_seq,
                frame_flash_offset: layout.log_offset + frame.offset_in_log,
                ..log_entry(entry)
            });
        }
    }
    Ok(HistoryDump { lba, checkpoint, log })
}

/// Returns whether an entry is about a chunk, or frees a slot that had a record of it.
fn speaks_of(entry: &LogEntry, lba: u64, slots: &[u32]) -> bool {
    match *entry {
        LogEntry::Map { lba: at, .. } | LogEntry::MapZero { lba: at, .. } | LogEntry::Fragment { lba: at, .. } => {
            at == lba
        }
        LogEntry::Trim { lba: from, chunk_count, .. }
        | LogEntry::Invalidate { lba: from, chunk_count }
        | LogEntry::Clean { lba: from, chunk_count, .. } => (from..from.saturating_add(chunk_count)).contains(&lba),
        LogEntry::SlotFreed { slot, .. } => slots.contains(&slot),
        LogEntry::Mode { .. } => false,
    }
}

fn in_block(block: &CheckpointBlock, lba: u64, said: &mut Vec<MappingDump>) {
    match block {
        CheckpointBlock::Mappings(mappings) => {
            for mapping in mappings.iter().filter(|mapping| mapping.lba == lba) {
                let lookup = match &mapping.place {
                    Some(place) => Lookup::Chunk { place: from_format(place), duplicate: mapping.duplicate },
                    None => Lookup::Zero,
                };
                said.push(mapping_dump(lba, &lookup, mapping.dirty));
            }
        }
        CheckpointBlock::Fragments(fragments) => {
            for fragment in fragments.iter().filter(|fragment| fragment.lba == lba) {
                let sectors = SectorMap::from_bytes(&fragment.sectors);
                let lookup = Lookup::Fragment { place: from_format(&fragment.place), sectors };
                said.push(mapping_dump(lba, &lookup, fragment.dirty));
            }
        }
        CheckpointBlock::ZeroRanges(ranges) => {
            for range in ranges {
                if (range.lba..range.lba.saturating_add(range.chunk_count)).contains(&lba) {
                    let trimmed = mapping_dump(lba, &Lookup::Zero, range.dirty);
                    said.push(MappingDump { kind: "trimmed run", ..trimmed });
                }
            }
        }
        CheckpointBlock::Slots(_) | CheckpointBlock::Fingerprints(_) | CheckpointBlock::DesignPages(_) => {}
    }
}
