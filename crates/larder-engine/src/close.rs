//! Ending a cache.
//!
//! In order: (1) Writes in flight end; writes that wait for room end with an error. (2) The offered
//! chunks are stored, and all is flushed. (3) The background tasks end. (4) A checkpoint says that
//! the end was orderly, and the keeper of the fence notes its superblock. (5) For a detach, the
//! superblock twins say so. (6) The committer ends.
//!
//! Invariants: no write follows the mark of (4). An end goes on even if its caller gives up. From
//! (2) on it goes on even if the cache is dropped. Before that, a drop is like a crash. No note to
//! the keeper of the fence is under way after an end.
//!
//! It does not write dirty data to the origin; [`detach`](crate::detach) does that before.

use crate::{
    Cache,
    error::EngineError,
    shared::Shared,
    sync::either,
    tickets::Ticket,
    unflushed::waiting::{Asker, Audience},
};
use larder_device::IoFuture;
use std::{future::Future, pin::pin, sync::Arc};

impl Cache {
    /// Ends the cache: waits for running work, flushes, and writes a checkpoint that marks a clean
    /// end.
    ///
    /// Dirty data stays on flash. Requests after this call fail.
    ///
    /// # Errors
    /// Errors of the devices; then the next opening recovers as from a crash.
    pub async fn close(&self) -> Result<(), EngineError> {
        let shared = self.shared();
        shared.life.drain();
        shared.wake_waiting();
        // A ticket over all chunks is behind all writes.
        let asker = Asker::new(Audience::Operator);
        let ended = shared.end(shared.orders.change_all(), false, &asker).await;
        shared.answer(&asker, ended)
    }

    /// Ends the cache as a crash does, and returns once no request of it is under way on the
    /// devices.
    ///
    /// Then they may be opened again, and all flushed data is there.
    pub async fn abandon(self) {
        let shared = self.shared().clone();
        drop(self);
        loop {
            let stopped = shared.signals.stopped.listen();
            if !shared.life.has_ends() {
                break;
            }
            stopped.await;
        }
        shared.stop_tasks(0).await;
        shared.notes_at_rest().await;
    }
}

impl Shared {
    /// Ends the cache, once `ticket`, which covers all chunks, is granted: then no write is under
    /// way.
    ///
    /// # Errors
    /// [`EngineError::Closed`] if the cache has ended; errors of the devices.
    pub(crate) async fn end(self: &Arc<Self>, ticket: Ticket, detach: bool, asker: &Asker) -> Result<(), EngineError> {
        let (ending, asker) = (Ending::begin(self), asker.clone());
        let (completer, result) = IoFuture::pending();
        self.runtime.spawn(Box::pin(async move {
            let ticket = ticket.granted().await;
            let ended = match ending.0.is_closing() {
                true => Err(EngineError::Closed),
                false => ending.0.end_all(ticket, detach, &asker).await,
            };
            drop(ending);
            completer.complete(Ok(ended));
        }));
        result.await?
    }

    async fn end_all(self: &Arc<Self>, ticket: Ticket, detach: bool, asker: &Asker) -> Result<(), EngineError> {
        self.life.drain();
        // It counts from here on, because the cache may be dropped meanwhile.
        let finishing = Finishing::begin(self);
        self.wait_for_insertions().await;
        let flushed = self.flush(asker).await;
        // All tasks but the committer end before the last checkpoint, because no write may follow
        // its mark.
        self.lend_wear_for_end().await;
        self.life.close();
        self.stop_tasks(1).await;
        // A flash that failed is left as it is: the next opening recovers it as from a crash.
        let failed = {
            let mut state = self.state.lock();
            state.keep_slots();
            state.flash.is_failed()
        };
        let mut result = match flushed {
            Ok(()) if !failed => self.checkpoint(true).await,
            result => result,
        };
        self.notes_at_rest().await;
        if result.is_ok() && !failed {
            self.note_end().await;
        }
        if result.is_ok() {
            // The origin was flushed.
            result = self.note_if_destaged().await;
        }
        if detach && result.is_ok() {
            result = self.write_superblock(|it| it.detached = true).await;
            if result.is_err() {
                // One twin may have the mark. If this fails, too, the next opening may find it, and
                // the origin is complete.
                let _ = self.write_superblock(|_| {}).await;
            }
        }
        drop(finishing);
        drop(ticket);
        self.stop_tasks(0).await;
        self.tell_conditions_now();
        result
    }

    /// Makes all running work end, as a crash would; no new work begins.
    pub(crate) fn stop(&self) {
        self.life.abandon();
        self.wake_waiting();
        self.wake_tasks();
    }

    /// Waits until offered insertions are stored.
    pub(crate) async fn wait_for_insertions(&self) {
        loop {
            let inserted = self.signals.inserted.listen();
            if self.state.lock().insertions.are_over() {
                return;
            }
            inserted.await;
        }
    }

    /// Returns the result of `work`, or `None` if the cache begins to close first.
    ///
    /// A cache that was dropped waits for the work, because the next opening of the devices counts
    /// on that.
    pub(crate) async fn unless_closing<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let changed = self.signals.pace.listen();
            if self.is_closing() && !self.life.is_abandoned() {
                return None;
            }
            let mut result = None;
            either(async { result = Some(work.as_mut().await) }, changed).await;
            if result.is_some() {
                return result;
            }
        }
    }

    /// Waits until no more than `left` tasks run.
    async fn stop_tasks(&self, left: u32) {
        loop {
            let stopped = self.signals.stopped.listen();
            if self.life.tasks() <= left {
                return;
            }
            self.wake_tasks();
            stopped.await;
        }
    }

    fn wake_waiting(&self) {
        let signals = &self.signals;
        self.room.call_all();
        for signal in [
            &signals.index_room,
            &signals.reserved,
            &signals.segments,
            &signals.destaged,
            &signals.committed,
            &signals.checkpointed,
        ] {
            signal.notify();
        }
    }

    fn wake_tasks(&self) {
        let signals = &self.signals;
        for signal in [
            &signals.commit_wanted,
            &signals.evict_wanted,
            &signals.destage_wanted,
            &signals.pace,
            &signals.checkpoint_wanted,
            &signals.checkpointed,
            &signals.index_room,
            &signals.inserted,
            &signals.prefetched,
        ] {
            signal.notify();
        }
        self.wear.wake();
    }
}

/// Counts an end under way.
struct Ending(Arc<Shared>);

impl Ending {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.life.end_begins();
        Ending(shared.clone())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.life.end_is_over();
        self.0.signals.stopped.notify();
    }
}

/// Keeps the committer running while a closing cache writes its last checkpoint.
struct Finishing<'a>(&'a Shared);

impl<'a> Finishing<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.life.set_finishing(true);
        Finishing(shared)
    }
}

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        self.0.life.set_finishing(false);
        self.0.signals.commit_wanted.notify();
    }
}
