//! Detects a change of the origin since the last orderly end, by the mark of its device.
//!
//! The end notes the device's mark, and the next opening compares it. The mark is noted after the
//! last write to the origin, with the superblock that records the orderly end. The first write of
//! an opening removes it. So after a crash there is no mark, and the opening accepts the origin.
//!
//! Dropping copies follows the order of a repair: (1) The state without them becomes a checkpoint
//! in the area that the superblock does not name. A flush follows, its header with FUA, a flush.
//! (2) The twins name it, and note no mark. *Crash before (2): the mark is still there, and the
//! next opening asks again.*
//!
//! Invariants: dirty data is never dropped. An opening accepts an origin whose device reports no
//! mark.
//!
//! It does not look at the content of the origin.

use crate::{
    checkpoint::CheckpointTarget,
    config::Tuning,
    config::policies::OriginChanged,
    error::EngineError,
    rebuild::{rebuild, write_whole},
    recover::recovered::Recovered,
    superblock,
};
use larder_device::BlockDevice;

/// Returns whether another program changed the origin since the last orderly end. An origin without
/// a mark counts as unchanged.
///
/// # Errors
/// [`EngineError::OriginChanged`] after such a change, if the tuning names no action for it.
pub(crate) async fn check(found: &Recovered, origin: &dyn BlockDevice, tuning: &Tuning) -> Result<bool, EngineError> {
    // The older one of two superblocks does not show the later changes.
    let before = found.superblock.origin_state_now().filter(|_| found.repair.is_none());
    let Some(before) = before else { return Ok(false) };
    let Some(now) = origin.change_mark().await.map_err(EngineError::Io)? else { return Ok(false) };
    // An option that accepts a grown origin accepts its change, too; no copy comes from the flash
    // then.
    let has_grown = tuning.accept_grown_origin && now.size_bytes > before.size_bytes;
    let is_same = now.size_bytes == before.size_bytes && (now.epoch != before.epoch || now.changes == before.changes);
    if is_same || has_grown {
        return Ok(false);
    }
    if tuning.origin_changed != OriginChanged::Refuse {
        return Ok(true);
    }
    let stays = match found.dirty_bytes() {
        0 => "none is dirty".to_owned(),
        bytes => format!("{bytes} bytes of dirty data stay, and are laid over the origin as it is now"),
    };
    Err(EngineError::OriginChanged(format!(
        "the origin {} was written to since this cache ended, so copies on the flash may be out of date: name \
         --origin-changed drop to forget all clean copies ({stays}), or --origin-changed keep if its content is as it was, \
         as after a mere touch or where the same file was put back",
        origin.info().name
    )))
}

/// Returns the sentence with which an opening refuses this origin, if another program changed it.
pub async fn refusal(found: &Recovered, origin: &dyn BlockDevice) -> Option<String> {
    check(found, origin, &Tuning::default()).await.err().map(|error| error.to_string())
}

/// Makes the flash forget all clean copies, durably. The caller recovers it again afterwards.
///
/// # Errors
/// Those of the device.
pub(crate) async fn drop_copies(flash: &dyn BlockDevice, found: Recovered) -> Result<(), EngineError> {
    let (log_start, entry_seq) = found.log_end();
    let Recovered { mut superblock, repair, state, geometry, .. } = found;
    let old = &state.design;
    let mut design =
        rebuild(&superblock, &geometry, old, &mut |mapping| mapping.dirty, &mut |_| true, &mut |_, _| false)?;
    design.forget_clean(&|_| true);
    // (1)
    let target = CheckpointTarget::after(&superblock, log_start, entry_seq);
    let pointer = write_whole(flash, &geometry, &target, design).await?;
    flash.flush().await.map_err(EngineError::Flash)?;
    // (2)
    superblock.advance();
    superblock.checkpoint = Some(pointer);
    superblock.log_start = log_start;
    superblock.entry_seq_next = entry_seq;
    // The log starts at such a boundary now.
    superblock.layout.sector_bytes = geometry.layout.sector_bytes;
    superblock.clean_shutdown = true;
    superblock.origin_state = None;
    superblock.check()?;
    superblock::write(flash, &superblock, repair).await?;
    flash.flush().await.map_err(EngineError::Flash)?;
    Ok(())
}
