//! Detects a change of the origin since the last orderly end, by the mark of its device.
//!
//! The end notes the device's mark, and the next opening compares it. The mark is noted after the
//! last write to the origin, with the superblock that records the orderly end. The first write of
//! an opening removes the mark from both twins. So a mark holds even in the older twin, and a crash
//! leaves no mark. Without a mark a change stays unknown: the opening accepts the origin, unless it
//! is to forget the copies.
//!
//! Dropping copies follows the order of a repair: (1) The state without them becomes a checkpoint
//! in the area that the superblock does not name. A flush follows, its header with FUA, a flush.
//! (2) The twins name it, and note no mark. *Crash before (2): the mark is still there, and the
//! next opening asks again.*
//!
//! Invariants: dirty data is never dropped. An order to drop the copies is carried out, unless the
//! mark shows that no other program wrote to the origin.
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
use larder_device::{BlockDevice, ChangeMark};
use larder_format::OriginState;

/// The change of an origin by other programs since the last orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The marks show no change.
    Absent,
    /// A mark is missing, or the two do not compare.
    Unknown,
    /// The marks show a change.
    Present,
}

impl Change {
    fn between(before: Option<OriginState>, now: Option<ChangeMark>) -> Change {
        match before.zip(now) {
            None => Change::Unknown,
            Some((before, now)) if before.size_bytes != now.size_bytes => Change::Present,
            Some((before, now)) if before.epoch != now.epoch => Change::Unknown,
            Some((before, now)) if before.changes == now.changes => Change::Absent,
            Some(_) => Change::Present,
        }
    }
}

/// The check of an origin against the mark of the last orderly end.
pub(crate) struct OriginCheck {
    /// The change of the origin.
    pub change: Change,
    /// The action on the copies on the flash, if there is any.
    pub action: Option<OriginChanged>,
}

/// Checks the origin.
///
/// # Errors
/// [`EngineError::OriginChanged`] after a change of the origin, if the tuning names no action for
/// it.
pub(crate) async fn check(
    found: &Recovered,
    origin: &dyn BlockDevice,
    tuning: &Tuning,
) -> Result<OriginCheck, EngineError> {
    let before = found.superblock.origin_state_now();
    let now = match &before {
        Some(_) => origin.change_mark().await.map_err(EngineError::Io)?,
        None => None,
    };
    // An option that accepts a grown origin accepts its change, too; no copy comes from the flash
    // then.
    let has_grown = before.as_ref().zip(now).is_some_and(|(before, now)| now.size_bytes > before.size_bytes);
    let change = Change::between(before, now);
    if has_grown && tuning.accept_grown_origin {
        return Ok(OriginCheck { change, action: None });
    }
    let action = match (change, tuning.origin_changed) {
        (Change::Present | Change::Unknown, OriginChanged::Drop) => Some(OriginChanged::Drop),
        (Change::Present, OriginChanged::Keep) => Some(OriginChanged::Keep),
        (Change::Present, OriginChanged::Refuse) => return Err(changed(found, origin)),
        (Change::Absent | Change::Unknown, _) => None,
    };
    Ok(OriginCheck { change, action })
}

fn changed(found: &Recovered, origin: &dyn BlockDevice) -> EngineError {
    let stays = match found.lacked() {
        None => "none is dirty".to_owned(),
        Some(lacked) => format!("{lacked} stay, and are laid over the origin as it is now"),
    };
    EngineError::OriginChanged(format!(
        "the origin {} was written to since this cache ended: --origin-changed drop forgets all clean copies ({stays}), and --origin-changed keep keeps them if its content is unchanged",
        origin.info().name
    ))
}

/// Returns the sentence with which an opening refuses this origin, if another program changed it.
pub async fn refusal(found: &Recovered, origin: &dyn BlockDevice) -> Option<String> {
    check(found, origin, &Tuning::default()).await.err().map(|error| error.to_string())
}

/// Makes the flash forget all clean copies, durably. The caller recovers it again afterwards.
///
/// # Errors
/// Errors of the device.
pub(crate) async fn drop_copies(flash: &dyn BlockDevice, found: Recovered) -> Result<(), EngineError> {
    let (log_start, entry_seq) = found.log_end();
    let Recovered { mut superblock, repair, state, geometry, .. } = found;
    let old = state.design();
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
    // The lost twin may have lacked the mark of an orderly end.
    superblock.clean_shutdown &= repair.is_none();
    superblock.origin_state = None;
    superblock.check()?;
    superblock::write(flash, &superblock, repair).await?;
    flash.flush().await.map_err(EngineError::Flash)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_that_compare_show_a_change_or_its_absence() {
        let before = Some(OriginState { sequence: 9, size_bytes: 100, epoch: 1, changes: 5 });
        let now = |size_bytes, epoch, changes| Some(ChangeMark { size_bytes, epoch, changes });
        assert_eq!(Change::between(before, now(100, 1, 5)), Change::Absent);
        assert_eq!(Change::between(before, now(100, 1, 6)), Change::Present);
        assert_eq!(Change::between(before, now(101, 1, 5)), Change::Present);
        assert_eq!(Change::between(before, now(101, 2, 5)), Change::Present);
        assert_eq!(Change::between(before, now(100, 2, 6)), Change::Unknown);
        assert_eq!(Change::between(before, None), Change::Unknown);
        assert_eq!(Change::between(None, now(100, 1, 5)), Change::Unknown);
    }
}
