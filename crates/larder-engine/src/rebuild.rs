//! Making a state anew without some of it, and writing it as a checkpoint.
//!
//! Invariants: a kept entry keeps its place, its sequence number and its order of replacement. The
//! blocks of the checkpoint are durable before its header is written.
//!
//! It does not choose the kept entries, or name the checkpoint in the superblock.

use crate::{
    checkpoint::{CheckpointTarget, write_blocks, write_header},
    damaged::DamagedRecords,
    error::EngineError,
    geometry::Geometry,
    recover::new_design,
};
use larder_core::{
    Decider, Fingerprint, Lookup, NewMapping, Place,
    design::{ExportedMapping, ToldBy},
    ranges::Run,
    slots::SlotState,
};
use larder_device::BlockDevice;
use larder_format::{CheckpointPointer, Superblock};
use parking_lot::Mutex;

/// Returns a design with the slots and pages of `old`, and the mappings, runs and fingerprints to
/// keep.
///
/// # Errors
/// Errors of [`new_design`].
pub fn rebuild(
    superblock: &Superblock,
    geometry: &Geometry,
    old: &Decider,
    keep: &mut dyn FnMut(&ExportedMapping) -> bool,
    keep_run: &mut dyn FnMut(&Run) -> bool,
    keep_fingerprint: &mut dyn FnMut(&Fingerprint, &Place) -> bool,
) -> Result<Decider, EngineError> {
    let mut design = new_design(superblock, geometry.chunk_count)?;
    for (slot, generation, state, class) in old.export_slots() {
        match state {
            // A slot that was never used has had no generation yet.
            SlotState::Free | SlotState::Retired if generation == 0 => {}
            SlotState::Free | SlotState::Retired => design.restore_freed(slot, generation.wrapping_sub(1)),
            _ => _ = design.restore_slot(slot, generation, Some(class)),
        }
    }
    for page in 0..old.page_count() {
        design.restore_page(page, &old.export_page(page));
    }
    for mapping in (0..old.export_pieces()).flat_map(|piece| old.export_mappings(piece)) {
        if keep(&mapping)
            && let Some(new) = again(&mapping)
        {
            design.map(mapping.lba, new, old.dirty_seq(mapping.lba).filter(|_| mapping.dirty));
        }
    }
    old.export_runs().into_iter().filter(|run| keep_run(run)).for_each(|run| design.trim(run));
    for (fingerprint, place) in old.export_fingerprints() {
        if keep_fingerprint(&fingerprint, &place) {
            design.restore_fingerprint(&fingerprint, &place, ToldBy::Checkpoint);
        }
    }
    Ok(design)
}

/// Returns the mapping of a chunk as it was.
pub fn again(mapping: &ExportedMapping) -> Option<NewMapping> {
    Some(match mapping.lookup {
        Lookup::Miss => return None,
        Lookup::Zero => NewMapping::Zero,
        Lookup::Chunk { place, duplicate: true } => NewMapping::Duplicate { place },
        Lookup::Chunk { place, duplicate: false } => NewMapping::Unique { place, fingerprint: None },
        Lookup::Fragment { place, sectors } => NewMapping::Fragment { place, sectors },
    })
}

/// Writes the whole state as the checkpoint `target`. Returns the pointer for the superblock.
///
/// The header goes with FUA, and the caller flushes the flash behind it.
///
/// # Errors
/// Errors of the device, and [`EngineError::CheckpointTooLarge`].
pub async fn write_whole(
    flash: &dyn BlockDevice,
    geometry: &Geometry,
    target: &CheckpointTarget,
    mut design: Decider,
) -> Result<CheckpointPointer, EngineError> {
    // No log has a mapping of it.
    let target = &CheckpointTarget { logged_from: u64::MAX, ..*target };
    design.begin_export();
    let design = Mutex::new(design);
    let history = async |pages| design.lock().history_within(pages);
    let damaged = DamagedRecords::default();
    let header = write_blocks(flash, geometry, target, &damaged, || design.lock(), history).await?;
    flash.flush().await.map_err(EngineError::Flash)?;
    write_header(flash, geometry, target, &header).await
}
