//! Puts the fence up, reports to its keeper, and takes it down.
//!
//! The fence goes up for a flash that failed, before the first write past it. It also goes up when
//! the file of the flash loses its name: the name may lead to an older copy by the next opening.
//! The keeper learns how much dirty data the flash had then, and later that the origin has all of
//! it. So the next opening can tell a loss, even if the flash itself tells nothing.
//!
//! Invariants: one task at a time puts it up. The keeper learns that the origin has the data only
//! after a flush of the origin.
//!
//! It does not keep the note.

use crate::{
    config::Tuning,
    error::EngineError,
    fence::{Note, Raised},
    recover::recovered::Recovered,
    shared::Shared,
    standing::nameless,
    state::State,
};
use larder_device::{IoError, Runtime, runtime::compute};
use std::sync::Arc;

impl Shared {
    /// Puts the fence up, if it is not.
    ///
    /// # Errors
    /// [`EngineError::NoFence`].
    pub async fn ensure_fence(self: &Arc<Self>) -> Result<(), EngineError> {
        loop {
            let changed = self.signals.fence.listen();
            let reason = {
                let mut state = self.state.lock();
                if state.fence.is_up() {
                    return Ok(());
                }
                if state.fence.is_rising() {
                    None
                } else {
                    let Some(reason) = fence_reason(&state) else {
                        return Err(EngineError::State("the flash works: there is nothing to fence".into()));
                    };
                    state.fence.begin_to_rise();
                    Some((reason, self.dirty_bytes(&state)))
                }
            };
            match reason {
                None => changed.await,
                // It runs to its end even if the caller gives up: others wait for the outcome.
                Some((reason, dirty_bytes)) => {
                    let this = self.clone();
                    return self.to_its_end(async move { this.raise_fence(reason, dirty_bytes).await }).await;
                }
            }
        }
    }

    /// Returns the bytes of dirty data and of trimmed ranges.
    fn dirty_bytes(&self, state: &State) -> u64 {
        let dirty = state.design().dirty_counts();
        (dirty.chunks + dirty.run_chunks) * self.geometry.chunk_bytes as u64
    }

    async fn raise_fence(self: &Arc<Self>, reason: IoError, dirty_bytes: u64) -> Result<(), EngineError> {
        let raised = match &self.tuning.fence.0 {
            None => Err("no state directory was named; serve with --state DIR".to_owned()),
            Some(keeper) => {
                let (why, superblock_sequence) = (reason.to_string(), self.superblock.get().sequence);
                let fence = Raised { why, dirty_bytes, superblock_sequence, is_destaged: false };
                self.note_with(keeper, Note::Raised(fence)).await
            }
        };
        let result = raised.clone().map_err(|why| EngineError::NoFence { flash: reason, why });
        self.state.lock().fence.end_rise(raised);
        self.signals.fence.notify();
        self.conditions_changed();
        // Dirty data that was not durable on the flash may go to the origin now.
        self.signals.destage_wanted.notify();
        result
    }

    /// Puts the fence up for a flash that loses its content, if there is a keeper. The keeper
    /// learns when no dirty data is left. No task waits.
    ///
    /// A failure shows in the state of the fence, and the next look at the flash tries again.
    pub(crate) fn fence_in_background(self: &Arc<Self>) {
        let is_open = {
            let fence = &self.state.lock().fence;
            !fence.is_rising() && (!fence.is_up() || fence.owes_destaged())
        };
        if self.tuning.fence.0.is_some() && is_open {
            let this = self.clone();
            self.spawn_counted(async move {
                if this.ensure_fence().await.is_ok() {
                    let _ = this.note_if_destaged().await;
                }
            });
        }
    }

    /// Tells the keeper of a fence that is up, if no dirty data is left.
    ///
    /// # Errors
    /// As [`Shared::note_destaged`].
    pub(crate) async fn note_if_destaged(&self) -> Result<(), EngineError> {
        if self.dirty_bytes(&self.state.lock()) == 0 { self.note_destaged().await } else { Ok(()) }
    }

    /// Tells the keeper of a raised fence, once, that the origin has all data the flash promised to
    /// keep. Later data on a flash without a name is promised by the origin alone.
    ///
    /// # Errors
    /// [`EngineError::State`]: then the next opening counts the data that was dirty as lost.
    pub(crate) async fn note_destaged(&self) -> Result<(), EngineError> {
        let is_news = self.state.lock().fence.owes_destaged();
        if let (true, Some(keeper)) = (is_news, &self.tuning.fence.0) {
            self.note_with(keeper, Note::Destaged).await.map_err(EngineError::State)?;
            self.state.lock().fence.destaged_is_noted();
        }
        Ok(())
    }

    /// Makes the emptied flash durable and takes the fence down: no content is older than the
    /// origin.
    pub(crate) async fn leave_fence(self: &Arc<Self>) -> Result<(), EngineError> {
        self.checkpoint(false).await?;
        let Some(keeper) = &self.tuning.fence.0 else { return Ok(()) };
        self.note_with(keeper, Note::Lowered).await.map_err(EngineError::State)
    }
}

/// Returns the reason for a fence, if there is one.
fn fence_reason(state: &State) -> Option<IoError> {
    let for_lost_name = || state.flash.is_nameless().then(|| nameless("another one may have it"));
    state.flash.failure().cloned().or_else(for_lost_name)
}

/// Returns whether the fence is up, so that the content of the flash must be dropped.
///
/// # Errors
/// [`EngineError::Fenced`] if dirty data would be dropped without permission;
/// [`EngineError::State`] if the keeper does not know.
pub(crate) async fn behind_fence(
    found: &Recovered,
    tuning: &Tuning,
    runtime: &Arc<dyn Runtime>,
) -> Result<bool, EngineError> {
    let Some(keeper) = tuning.fence.0.clone() else {
        let place = found.superblock.state_dir.as_str();
        if place.is_empty() {
            return Ok(false);
        }
        return Err(EngineError::State(format!(
            "this cache keeps its state in {place}, where a fence may say that the flash is old: open it with that directory"
        )));
    };
    let raised = compute(&**runtime, move || keeper.raised()).await?.map_err(EngineError::State)?;
    let Some(raised) = raised else { return Ok(false) };
    let Raised { why, dirty_bytes: noted_bytes, superblock_sequence, is_destaged } = raised;
    // The note says nothing of a flash that lived on after it: the keeper's file is an older one.
    let is_newer = superblock_sequence > 0 && found.superblock.sequence > superblock_sequence;
    let is_destaged = is_destaged && !is_newer;
    let dirty_bytes = found.dirty_bytes();
    if (dirty_bytes > 0 || noted_bytes > 0) && !is_destaged && !tuning.discard_fenced {
        return Err(EngineError::Fenced { why, dirty_bytes, noted_bytes });
    }
    Ok(true)
}
