//! The content of a flash, in words and numbers, for people and programs: `larder dump`.
//!
//! Invariants: it does not write, and does not tell the key of the fingerprints. Lists have at most
//! as many entries as the caller allows, and give the full count.
//!
//! Readable parts of damaged metadata are printed all the same, with a note that they are not all.
//!
//! It does not judge; [`verify`](crate::verify) does.

mod checkpoint;
mod history;
mod log;
mod record;
mod segments;
mod shapes;
mod superblock;
mod values;

pub use checkpoint::{checkpoint, checkpoint_block};
pub use history::history;
pub use log::{frame, frames, log};
pub use record::{RecordAt, record};
pub use segments::{segments, slot_segments};
pub use shapes::*;
pub use superblock::{SuperblockDump, SuperblockFields, superblocks};
use values::{StateOf, check_lba, fingerprint_dump, mapping_dump, sorted_mappings, state_of};

use crate::region::stored_runs;
use larder_core::{Lookup, StreamClass, slots::SlotState};
use larder_device::BlockDevice;
use larder_engine::EngineError;
use larder_format::Superblock;
use std::collections::HashMap;

/// Returns the division of the flash.
pub fn layout(superblock: &Superblock) -> LayoutDump {
    let layout = &superblock.layout;
    let twin = larder_format::superblock::SUPERBLOCK_BYTES as u64;
    let region = |region, flash_offset, bytes| Region { region, flash_offset, bytes };
    let mut regions = vec![
        region("superblock a", layout.superblock_offsets[0], twin),
        region("superblock b", layout.superblock_offsets[1], twin),
        region("checkpoint area 0", layout.checkpoint_offset[0], layout.checkpoint_area_bytes),
        region("checkpoint area 1", layout.checkpoint_offset[1], layout.checkpoint_area_bytes),
        region("metadata log", layout.log_offset, layout.log_bytes),
    ];
    let slots_bytes = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    let store = layout.store();
    regions.push(region("metadata slots", layout.region_offset, layout.region_bytes()));
    regions.push(region(store.slots_name(), layout.slots_offset, slots_bytes));
    // Not each flash has metadata slots.
    regions.retain(|region| region.bytes > 0);
    LayoutDump {
        flash_bytes: layout.flash_bytes,
        store: store.name(),
        chunk_bytes: layout.chunk_bytes,
        slot_bytes: layout.slot_bytes,
        weu_bytes: layout.slot_bytes,
        sector_bytes: layout.sector_bytes,
        slot_count: layout.slot_count,
        bucket_slots: layout.bucket_slots,
        mappings_max: layout.mappings_max,
        fragments_max: layout.fragments_max,
        zero_ranges_max: layout.zero_ranges_max,
        fp_entries_max: layout.fp_entries_max,
        design_pages_max: layout.design_pages_max,
        short_checkpoints: layout.short_checkpoints,
        regions,
    }
}

/// Returns the slots that an opening finds, in flash order, and whether metadata was damaged.
///
/// # Errors
/// No superblock is whole.
pub async fn slots(flash: &dyn BlockDevice, limit: usize) -> Result<(Listing<SlotDump>, bool), EngineError> {
    let StateOf { found, salvaged } = state_of(flash).await?;
    let mut mapped: HashMap<u32, (u64, u64)> = HashMap::new();
    let runs = stored_runs(flash, &found.superblock, &found.design).await;
    for (_, lookup, dirty) in sorted_mappings(&found, &runs) {
        if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = lookup {
            let (chunks, dirty_chunks) = mapped.entry(place.slot.0).or_default();
            *chunks += 1;
            *dirty_chunks += u64::from(dirty);
        }
    }
    let mut slots = found.design.export_slots();
    slots.extend(runs.iter().map(|run| {
        let dirty = !found.design.dirty_in(run.slot).is_empty();
        let generation = run.known(&found.design).map_or(0, |entry| entry.place.generation);
        (run.slot, generation, SlotState::Sealed, if dirty { StreamClass::Dirty } else { StreamClass::Clean })
    }));
    slots.sort_by_key(|(slot, ..)| *slot);
    let mut listing = Listing::new();
    for (slot, generation, state, class) in slots {
        let (mapped_chunks, dirty_chunks) = mapped.get(&slot.0).copied().unwrap_or_default();
        listing.add(limit, || SlotDump {
            slot: slot.0,
            flash_offset: found.superblock.layout.slot_offset(slot.0).unwrap_or_default(),
            generation,
            state: format!("{state:?}").to_lowercase(),
            class: format!("{class:?}").to_lowercase(),
            mapped_chunks,
            dirty_chunks,
        });
    }
    Ok((listing, salvaged))
}

/// Returns the mappings that an opening finds, of one chunk or all, and whether metadata was
/// damaged.
///
/// They come by address, without trimmed runs.
///
/// # Errors
/// No superblock is whole, or there is no such chunk.
pub async fn mappings(
    flash: &dyn BlockDevice,
    lba: Option<u64>,
    limit: usize,
) -> Result<(Listing<MappingDump>, bool), EngineError> {
    let StateOf { found, salvaged } = state_of(flash).await?;
    if let Some(lba) = lba {
        check_lba(&found.superblock, lba)?;
    }
    let runs = stored_runs(flash, &found.superblock, &found.design).await;
    let mut listing = Listing::new();
    for (at, lookup, dirty) in sorted_mappings(&found, &runs) {
        if lba.is_none_or(|lba| lba == at) {
            listing.add(limit, || mapping_dump(at, &lookup, dirty));
        }
    }
    Ok((listing, salvaged))
}

/// Returns the FP index that an opening finds, least recent first, and whether metadata was
/// damaged.
///
/// # Errors
/// No superblock is whole.
pub async fn fingerprints(
    flash: &dyn BlockDevice,
    limit: usize,
) -> Result<(Listing<FingerprintDump>, bool), EngineError> {
    let StateOf { found, salvaged } = state_of(flash).await?;
    let mut listing = Listing::new();
    for (fingerprint, place) in found.design.export_fingerprints() {
        listing.add(limit, || fingerprint_dump(&fingerprint.0, &place));
    }
    for run in stored_runs(flash, &found.superblock, &found.design).await {
        if let Some(entry) = run.known(&found.design) {
            listing.add(limit, || fingerprint_dump(&entry.metadata.fingerprint().0, &entry.place));
        }
    }
    Ok((listing, salvaged))
}

/// Returns the trimmed runs that an opening finds, by address, and whether metadata was damaged.
///
/// The origin lacks them.
///
/// # Errors
/// No superblock is whole.
pub async fn trims(flash: &dyn BlockDevice, limit: usize) -> Result<(Listing<TrimDump>, bool), EngineError> {
    let StateOf { found, salvaged } = state_of(flash).await?;
    let mut listing = Listing::new();
    for run in found.design.export_runs() {
        listing.add(limit, || TrimDump {
            lba: run.first.0,
            chunk_count: run.count,
            seq: run.seq,
            no_hole: run.no_hole,
            advisory: run.advisory,
        });
    }
    Ok((listing, salvaged))
}

#[cfg(test)]
mod tests;
