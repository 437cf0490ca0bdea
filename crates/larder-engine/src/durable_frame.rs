//! The log's frame that the superblock names as durable: a log that ends before it has lost its
//! end. So the loss of a whole log is told over each store.
//!
//! An opening that will be written to, in order: (1) The superblock loses its mark of an orderly
//! end, and names the last frame that recovery found. (2) If the log has no frame, one without
//! entries is made durable. (3) The superblock names that frame. A crash before (3) leaves a log
//! without any client's entry. A checkpoint that leaves a log without a frame does (2) and (3),
//! too. So most openings write nothing more.
//!
//! Invariants: a named frame is durable. Each frame before it is, too, from the log start on.
//!
//! It names no frame that follows the last superblock; slots may.

use crate::{error::EngineError, shared::Shared};
use std::sync::Arc;

impl Shared {
    /// Makes the log have a frame, and the superblock name it.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) async fn name_a_frame(self: &Arc<Self>) -> Result<(), EngineError> {
        let superblock = self.superblock.get();
        let first = superblock.log_start.frame_seq;
        if superblock.durable_frame_now() >= first {
            return Ok(());
        }
        self.commit_frame(first).await?;
        let durable = self.durable_frame();
        self.update_superblock(|superblock| superblock.note_durable_frame(durable)).await
    }

    /// Returns the newest frame that is durable.
    pub(crate) fn durable_frame(&self) -> u64 {
        self.state.lock().log.area().durable_frame()
    }

    /// Returns once the frame of this number is durable.
    async fn commit_frame(&self, frame_seq: u64) -> Result<(), EngineError> {
        let asked = {
            let mut state = self.state.lock();
            state.commits.want_frame(frame_seq);
            state.asked_now()
        };
        loop {
            let committed = self.signals.committed.listen();
            {
                let state = self.state.lock();
                if !state.commits.lack_frame(&state.log) {
                    return Ok(());
                }
                state.flash.check()?;
                self.check_commits(&state, asked, true)?;
            }
            self.signals.commit_wanted.notify();
            committed.await;
        }
    }
}
