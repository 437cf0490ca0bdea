//! The writes of a repair: the mended superblock, and the repaired state as a checkpoint.
//!
//! The numbers are steps of `repair.rs`, which also tells the result of a crash between two of
//! them.
//!
//! Invariants: each step is durable before the next begins.
//!
//! It does not decide on the repaired state, and writes no record.

use super::{fresh_log::fresh_log, salvage::Salvaged, watched::WatchedFlash};
use larder_core::Decider;
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_engine::{
    EngineError,
    offline::{CheckpointTarget, write_whole},
    superblock,
};
use larder_format::{Superblock, WriteMode};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Writes the whole twin of the superblock over the damaged one, durably.
pub(crate) async fn mend_twin(
    flash: &WatchedFlash<'_>,
    superblock: &mut Superblock,
    damaged: Option<usize>,
) -> Result<(), EngineError> {
    superblock.advance();
    // The lost twin may have lacked the mark: later writes may be in no log.
    superblock.clean_shutdown = false;
    superblock::write(flash, superblock, damaged).await?;
    flash.flush().await?;
    Ok(())
}

/// Writes the repaired state: a checkpoint, the superblock that names it, and an empty log.
pub(crate) async fn write_repaired(
    flash: &WatchedFlash<'_>,
    found: &Salvaged,
    mut superblock: Superblock,
    design: Decider,
) -> Result<(), EngineError> {
    // (6)
    let (log_start, entry_seq) = fresh_log(flash, &superblock, found.log_end, found.named_frame).await;
    let target = CheckpointTarget::after(&superblock, log_start, entry_seq);
    superblock.advance();
    superblock.log_start = log_start;
    superblock.entry_seq_next = entry_seq;
    superblock.mode = mode_of(found, &design);
    superblock.clean_shutdown = true;
    superblock.layout.sector_bytes = found.geometry.layout.sector_bytes;
    // A superblock that a reader would refuse must not be written: counters end somewhere.
    superblock.check()?;
    let pointer = write_whole(flash, &found.geometry, &target, design).await?;
    flash.flush().await?;
    // (7)
    superblock.checkpoint = Some(pointer);
    superblock::write(flash, &superblock, None).await?;
    flash.flush().await?;
    // (8)
    for &(from, end) in &found.damage.unreadable_log {
        for at in (from..end).step_by(WRITE_BYTES) {
            let zeroes = IoBuf::zeroed(WRITE_BYTES.min((end - at) as usize)).freeze();
            flash.write(at, zeroes, WriteFlags::default()).await?;
        }
    }
    flash.flush().await?;
    Ok(())
}

fn mode_of(found: &Salvaged, design: &Decider) -> WriteMode {
    let dirty = design.dirty_counts();
    if dirty.chunks + dirty.runs > 0 { WriteMode::Back } else { found.superblock.mode }
}
