//! A flash or an origin that lost its name, or its size, while the cache is open.
//!
//! A file without a name goes when its last user closes it, so its content is no more durable than
//! RAM. A FLUSH therefore takes the dirty data of such a flash to the origin. A flash that was cut
//! short has failed: durable data on it may be gone.
//!
//! Invariants: a device reports its standing ([`BlockDevice::standing`]); the cache asks at each
//! FLUSH, at each status and at the end.
//!
//! It does not give a file its name back.
//!
//! [`BlockDevice::standing`]: larder_device::BlockDevice::standing

use crate::{
    Cache,
    conditions::{Condition, Severity},
    destage::Reach,
    error::EngineError,
    shared::Shared,
};
use larder_device::{IoError, IoErrorKind, IoOp, Standing};
use std::sync::Arc;

impl Cache {
    /// Returns the standing of the flash, and of the origin, since the cache was opened.
    pub fn standing(&self) -> (Standing, Standing) {
        (self.shared().flash.standing(), self.shared().origin.standing())
    }
}

impl Shared {
    /// Fails a flash that was cut short.
    ///
    /// # Errors
    /// The failure.
    pub(crate) fn check_flash_size(&self) -> Result<(), IoError> {
        match self.flash.standing() {
            Standing::Truncated(bytes) => {
                let what = format!("the file of the flash was cut to {bytes} bytes while it was in use");
                Err(self.fail_flash(IoError::new(IoErrorKind::Io, IoOp::Flush, 0, 0).with_detail(what)))
            }
            Standing::Sound | Standing::Unlinked => Ok(()),
        }
    }

    /// Completes a FLUSH in write-back if the flash does not keep its content. It destages all
    /// dirty data to the origin.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`] when some of it cannot be destaged; [`EngineError::NoFence`] if
    /// that is for want of a fence.
    pub(crate) async fn flush_what_flash_loses(self: &Arc<Self>) -> Result<(), EngineError> {
        let error = match self.flash.standing() {
            Standing::Sound => return Ok(()),
            Standing::Unlinked => IoError::new(IoErrorKind::Gone, IoOp::Flush, 0, 0).with_detail(
                "the file of the flash has no name any more, and the origin does not take all that is dirty",
            ),
            Standing::Truncated(_) => match self.check_flash_size() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
        };
        self.destage_all(Reach::All).await;
        if self.undurable_left() {
            self.ensure_fence().await?;
        }
        let dirty = self.state.lock().design.dirty_counts();
        if dirty.chunks + dirty.runs > 0 { Err(EngineError::FlashFailed(error)) } else { Ok(()) }
    }

    /// Returns the conditions of the devices' standing; `dirty_bytes` are on the flash alone.
    pub(crate) fn standing_conditions(&self, dirty_bytes: u64) -> Vec<Condition> {
        let mut found = Vec::new();
        if self.flash.standing() == Standing::Unlinked {
            let what = format!(
                "the file of the flash has no name any more: what it holds goes when this server ends, {dirty_bytes} bytes of \
                 dirty data now; an orderly end brings them to the origin first"
            );
            found.push(Condition { name: "flash_unlinked", severity: Severity::Degraded, what });
        }
        found.extend(origin_stands(self.origin.standing()));
        found
    }
}

/// The condition of an origin with this standing.
pub(crate) fn origin_stands(standing: Standing) -> Option<Condition> {
    let (name, what) = match standing {
        Standing::Sound => return None,
        Standing::Unlinked => (
            "origin_unlinked",
            "the file of the origin has no name any more: it goes when this server ends; copy the volume to another place \
             before that"
                .to_owned(),
        ),
        Standing::Truncated(bytes) => (
            "origin_truncated",
            format!("the file of the origin was cut to {bytes} bytes while it was in use: what lay behind is lost there"),
        ),
    };
    Some(Condition { name, severity: Severity::Degraded, what })
}
