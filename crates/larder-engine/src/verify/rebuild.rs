//! Making a state anew without some of it, and the place where its log may go on.
//!
//! Invariants: a kept entry keeps its place, its sequence number and its order of replacement.
//!
//! It does not choose the kept entries.

use super::{frames, window::Window};
use crate::{error::EngineError, geometry::Geometry, recover::new_design};
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, NewMapping, Place, design::ExportedMapping, ranges::Run, slots::SlotState,
};
use larder_device::BlockDevice;
use larder_format::{LogStart, Superblock};

/// Returns a design with the slots and pages of `old`, and the mappings, runs and fingerprints to
/// keep.
///
/// # Errors
/// Those of [`new_design`].
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
            _ => {
                design.restore_slot(slot, generation);
                design.restore_class(slot, class);
            }
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
            design.restore_fingerprint(&fingerprint, &place);
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

/// Returns a start for a new log that no frame in the log now can be taken for a part of.
///
/// `named_frame` is the newest frame that the superblock or a slot names.
pub async fn fresh_log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    end: (LogStart, u64),
    named_frame: u64,
) -> (LogStart, u64) {
    let layout = &superblock.layout;
    let mut window = Window::new(flash, layout.log_offset, layout.log_offset + layout.log_bytes);
    let lying = frames::scan(&mut window, superblock).await;
    let lying_frames = lying.whole.iter().map(|frame| frame.header.start.frame_seq);
    let newest = lying_frames.chain([end.0.frame_seq, named_frame]).max().unwrap_or(0);
    let last_entry = lying.whole.iter().map(|frame| frame.header.entry_seq_next()).max().unwrap_or(0).max(end.1);
    // Unreadable frames may be readable later: the start is beyond the most that may lie there.
    let frames_max = layout.log_bytes / u64::from(layout.sector_bytes.max(1)) + 1;
    let start = LogStart { offset_in_log: end.0.offset_in_log, frame_seq: newest.saturating_add(frames_max) };
    (start, last_entry.saturating_add(layout.log_bytes))
}

/// Returns a run that is a range alone.
pub fn span(first: u64, count: u64) -> Run {
    Run::new(Lba(first), count, 0)
}

/// Returns whether generation `a` comes after `b`, on a counter that wraps.
pub fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
