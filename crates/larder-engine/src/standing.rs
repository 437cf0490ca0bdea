//! A flash or an origin that lost its name, or its size, while the cache is open.
//!
//! A file without a name goes when its last user closes it, so its content is no more durable than
//! RAM. A FLUSH therefore takes the dirty data of such a flash to the origin. A request that is
//! durable by itself takes its own chunks there. A flash that was cut short has failed: durable
//! data on it may be gone.
//!
//! Invariants: a device reports its standing ([`BlockDevice::look`]); the cache asks at each FLUSH,
//! at each status, once a second and at the end. It asks the flash before the answer of each
//! durable request, after the commit: the file may lose its name meanwhile. Requests side by side
//! share a look ([`looks`]). A device may hang, so conditions and the timer take the last answer.
//!
//! It does not give a file its name back.
//!
//! [`BlockDevice::look`]: larder_device::BlockDevice::look
//! [`looks`]: larder_device::watched::looks

use crate::{
    Cache,
    conditions::{
        condition::{Condition, Severity},
        devices::{flash_unlooked, origin_stands},
    },
    destage::reach::{Reach, Wanted},
    error::EngineError,
    lacked,
    shared::Shared,
    tickets::Ticket,
    unflushed::waiting::{Asker, Audience},
};
use larder_core::{Lba, design::DirtyCounts};
use larder_device::{IoError, IoErrorKind, IoOp, IoResult, Standing, watched::Watch};
use std::sync::Arc;

impl Cache {
    /// Returns the watch over the flash: its requests, and its standing.
    pub fn flash_watch(&self) -> &Arc<Watch> {
        &self.shared().flash_watch
    }

    /// Returns the watch over the origin: its requests, their success, and its standing.
    pub fn origin_watch(&self) -> &Arc<Watch> {
        &self.shared().origin_watch
    }
}

impl Shared {
    /// Fails a flash that was cut to so many bytes, and returns the failure. Data is lost, so the
    /// flash is fenced, though writes may never go past it.
    fn fail_cut_flash(self: &Arc<Self>, bytes: u64) -> IoError {
        let what = format!("the file of the flash was cut to {bytes} bytes while it was in use");
        let error = self.fail_flash(IoError::new(IoErrorKind::Io, IoOp::Flush, 0, 0).with_detail(what));
        self.fence_in_background();
        error
    }

    /// Looks at the devices' names and sizes in the background. It acts on the last known standing
    /// of the flash.
    ///
    /// Once the name is lost, destaging takes all dirty data to the origin. The fence goes up,
    /// because another file may have the name by the next opening.
    pub(crate) fn look_at_devices(self: &Arc<Self>) {
        self.origin_watch.look_in_background();
        self.flash_watch.look_in_background();
        match self.flash_watch.standing() {
            Standing::Sound | Standing::Renamed => {}
            Standing::Truncated(bytes) if !self.state.lock().flash.is_failed() => {
                self.fail_cut_flash(bytes);
            }
            // The keeper may have refused the fence, or the note, before.
            Standing::Truncated(_) => self.fence_in_background(),
            Standing::Unlinked => {
                if self.state.lock().flash.lose_name() {
                    self.ask_for_destage(Wanted::Now);
                    self.conditions_changed();
                }
                self.fence_in_background();
            }
        }
    }

    /// Looks at name and size of the flash. A failed look is a condition, even if the next look
    /// succeeds.
    async fn look_at_flash(&self) -> IoResult<Standing> {
        let looked = self.flash_watch.look().await;
        if let Err(error) = &looked
            && !self.state.lock().flash.is_failed()
        {
            self.condition_raised(|| flash_unlooked(error));
        }
        looked
    }

    /// Completes a durable request in write-back, whose chunks are mapped below `upto`. The flash
    /// holds it then, or the origin if the flash does not keep its content.
    ///
    /// It gives back the `ticket` of the chunks: later requests of them go on, and share the commit
    /// and its flush. If the flash fails meanwhile, it does as a FLUSH behind the fence, for a
    /// later request may have changed the chunks.
    ///
    /// # Errors
    /// [`EngineError::Flash`] when the flash cannot be looked at; [`EngineError::NoFence`]; the
    /// errors of [`Shared::bring_to_origin`] and [`Shared::flush_below`].
    pub(crate) async fn make_durable(
        self: &Arc<Self>,
        ticket: Ticket,
        (first, count): (Lba, u64),
        upto: u64,
    ) -> Result<(), EngineError> {
        drop(ticket);
        let looked = match self.commit(upto).await {
            Ok(()) => Some(self.look_at_flash().await.map_err(EngineError::Flash)?),
            Err(EngineError::FlashFailed(_)) => None,
            Err(error) => return Err(error),
        };
        match looked {
            Some(Standing::Sound | Standing::Renamed) => Ok(()),
            Some(Standing::Unlinked) => {
                let (this, ticket) = (self.clone(), self.orders.change(first, count).granted().await);
                // A destage runs to its end even if the client goes: later destages of the chunks
                // wait for it.
                self.to_its_end(async move {
                    let _ticket = ticket;
                    this.bring_to_origin(first, Lba(first.0 + count)).await
                })
                .await
            }
            Some(Standing::Truncated(bytes)) => {
                self.fail_cut_flash(bytes);
                self.flush_behind_fence(upto).await
            }
            None => self.flush_behind_fence(upto).await,
        }
    }

    /// Takes all dirty data below `upto` to the origin, behind the fence.
    async fn flush_behind_fence(self: &Arc<Self>, upto: u64) -> Result<(), EngineError> {
        self.ensure_fence().await?;
        self.flush_below(upto, &Asker::new(Audience::Client)).await
    }

    /// Completes a FLUSH in write-back if the flash does not keep its content. It destages all
    /// dirty data to the origin.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`] when some of it cannot be destaged; [`EngineError::NoFence`] if
    /// the reason is a missing fence; [`EngineError::Flash`] when the flash cannot be looked at.
    pub(crate) async fn flush_what_flash_loses(self: &Arc<Self>) -> Result<(), EngineError> {
        let error = match self.look_at_flash().await {
            Ok(Standing::Sound | Standing::Renamed) => return Ok(()),
            Ok(Standing::Unlinked) => nameless("the origin does not take all that is dirty"),
            Ok(Standing::Truncated(bytes)) => self.fail_cut_flash(bytes),
            // A flash that is gone answers no look, and the FLUSH needs nothing of it.
            Err(_) if self.state.lock().flash.is_failed() => return Ok(()),
            Err(error) => return Err(EngineError::Flash(error)),
        };
        // Data of the meantime does not count.
        if self.destage_or_tell(Reach::All).await? { Ok(()) } else { Err(EngineError::FlashFailed(error)) }
    }

    /// Returns the conditions of the devices' standing; the flash alone has the `dirty` data.
    pub(crate) fn standing_conditions(&self, dirty: &DirtyCounts) -> Vec<Condition> {
        let of_flash = match self.flash_watch.standing() {
            Standing::Unlinked => Some((
                "flash_unlinked",
                Severity::Degraded,
                format!(
                    "the file of the flash has no name any more, so its content goes with this server: an orderly end first brings {} to the origin",
                    lacked::exactly(dirty, self.geometry.chunk_bytes as u64)
                ),
            )),
            Standing::Renamed => Some((
                "flash_renamed",
                Severity::Warning,
                format!(
                    "the file of the flash is no longer at {}: it was renamed, or its file system unmounted; another file of \
                     that name is not this cache",
                    self.flash.info().name
                ),
            )),
            Standing::Sound | Standing::Truncated(_) => None,
        };
        let of_flash = of_flash.map(|(name, severity, what)| Condition { name, severity, what });
        of_flash.into_iter().chain(origin_stands(self.origin_watch.standing())).collect()
    }
}

/// Returns the failure of a flash without a name.
pub(crate) fn nameless(and: &str) -> IoError {
    let what = format!("the file of the flash has no name any more, and {and}");
    IoError::new(IoErrorKind::Gone, IoOp::Flush, 0, 0).with_detail(what)
}
