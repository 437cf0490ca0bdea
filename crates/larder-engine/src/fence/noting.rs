//! Makes the notes of the keeper of the fence, and has the newest superblock noted by itself.
//!
//! A flash with a lower number than the note is a copy from before. In order: (1) Both twins of the
//! superblock are durable. (2) The keeper notes their number. A crash between leaves the number of
//! an earlier superblock: the flash is believed, and so is a copy from after that one.
//!
//! Invariants: no note is ahead of the superblock that a crash leaves on the flash, or the flash
//! would count as a copy of itself. One note of a number is under way at a time, and the next one
//! has the newest number. No request and no checkpoint waits for it. The end of a cache waits for
//! each note: a note that came later could undo that of the next opening.
//!
//! It does not keep the number.

use crate::{
    conditions::condition::{Condition, Severity},
    error::EngineError,
    fence::{FenceKeeper, Note},
    shared::Shared,
};
use larder_device::IoFuture;
use larder_format::{Superblock, WriteMode};
use std::{sync::Arc, time::Duration};

/// Pause after a note was refused.
const RETRY: Duration = Duration::from_secs(2);
/// A note that is under way for this long is told.
const SLOW: Duration = Duration::from_secs(10);

impl Shared {
    /// Changes the superblock, durably, and has its number noted.
    ///
    /// # Errors
    /// As [`Shared::write_superblock`].
    pub(crate) async fn update_superblock(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), EngineError> {
        self.write_superblock(change).await?;
        self.note_in_background();
        Ok(())
    }

    /// Has the newest superblock's number noted. A cache that is closing leaves that to its end.
    fn note_in_background(self: &Arc<Self>) {
        let Some(keeper) = self.tuning.fence.0.clone() else { return };
        if !self.is_closing() && self.notes.want_task() {
            let this = self.clone();
            self.runtime.spawn(Box::pin(async move { this.note_until_newest(keeper).await }));
        }
    }

    /// Makes notes until the keeper has the newest number, or the cache closes.
    async fn note_until_newest(&self, keeper: Arc<dyn FenceKeeper>) {
        let mut task = self.notes.task();
        let newest = || self.superblock.durable_sequence();
        while let Some((sequence, with_mode)) = task.next(newest, || self.is_closing()) {
            let noted = match with_mode {
                true => self.note_mode_in_turn().await,
                false => self.note_number(&keeper, sequence).await,
            };
            match noted {
                Ok(()) | Err(EngineError::Closed) => {}
                Err(why) => {
                    self.notes.refuse(why.to_string());
                    self.conditions_changed();
                    let _ = self.unless_closing(self.runtime.delay(RETRY)).await;
                }
            }
        }
    }

    async fn note_number(&self, keeper: &Arc<dyn FenceKeeper>, sequence: u64) -> Result<(), EngineError> {
        self.note_with(keeper, Note::Newest(sequence)).await.map_err(EngineError::State)?;
        self.notes.keep(sequence);
        Ok(())
    }

    /// Makes a note, and returns when the keeper has answered. The note's age shows meanwhile.
    ///
    /// # Errors
    /// The keeper's sentence.
    pub(super) async fn note_with(&self, keeper: &Arc<dyn FenceKeeper>, note: Note) -> Result<(), String> {
        let _owed = self.notes.owe(self.runtime.now());
        let (completer, answer) = IoFuture::pending();
        keeper.clone().note(note, Box::new(move |noted| completer.complete(Ok(noted))));
        answer.await.unwrap_or_else(|_| Err("no thread makes the note".to_owned()))
    }

    /// Tells the keeper the mode in force, and the durable superblock's number.
    ///
    /// # Errors
    /// [`EngineError::State`].
    pub(crate) async fn note_mode(&self, mode: WriteMode) -> Result<(), EngineError> {
        let Some(keeper) = &self.tuning.fence.0 else { return Ok(()) };
        let sequence = self.superblock.durable_sequence();
        self.notes.mode_is_asked();
        self.note_with(keeper, Note::Mode(mode, sequence)).await.map_err(EngineError::State)?;
        self.notes.keep_mode(sequence, mode);
        Ok(())
    }

    /// Tells the keeper the mode in force, and lets no switch begin meanwhile.
    ///
    /// # Errors
    /// [`EngineError::Closed`] if the cache begins to close first. A switch that holds the turn may
    /// wait for the ticket of the end, which waits for this note.
    async fn note_mode_in_turn(&self) -> Result<(), EngineError> {
        let turn = self.orders.switch_mode().granted();
        let Some(_turn) = self.unless_closing(turn).await else { return Err(EngineError::Closed) };
        self.note_mode(self.mode.get()).await
    }

    /// Has the mode in force noted in the background, if the keeper may have another one.
    pub(crate) fn note_mode_in_background(self: &Arc<Self>) {
        if self.notes.owe_mode(self.mode.get()) {
            self.note_in_background();
        }
    }

    /// Waits until no note is under way in a cache that is closing.
    pub(crate) async fn notes_at_rest(&self) {
        self.notes.at_rest(|| self.signals.pace.notify()).await;
    }

    /// Makes the last note of an orderly end. A refusal is told before the cache is gone: copies of
    /// the flash from before this end count as the flash then.
    pub(crate) async fn note_end(&self) {
        if let Err(error) = self.note_mode(self.mode.get()).await {
            self.notes.refuse(error.to_string());
            self.tell_conditions_now();
        }
    }

    /// Returns the condition that the newest superblock is not noted.
    pub(crate) fn note_condition(&self) -> Option<Condition> {
        let what = match self.notes.trouble(self.runtime.now()) {
            (waited, _) if waited >= SLOW => format!(
                "the state directory has not answered for {} s: mode changes and a fence wait for it, and an older copy of the flash would be believed",
                waited.as_secs()
            ),
            (_, refused) => format!(
                "the newest superblock, or the mode, is not noted ({}): an older copy of the flash would be believed; the note is tried again",
                refused?
            ),
        };
        Some(Condition { name: "superblock_unnoted", severity: Severity::Warning, what })
    }
}
