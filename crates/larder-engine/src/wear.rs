//! The wear budget of an opening: bytes of the flash in any 24 hours.
//!
//! Each write of the flash asks for its bytes ([`metered`]), and the superblock has the record of
//! all. In order, as the budget shrinks: (1) No clean chunk is stored, and no record again. (2) A
//! write goes past the flash: dirty data of its chunks is destaged first, and that is durable on
//! the flash. Its mappings are forgotten, and the origin is written. A FLUSH then flushes the
//! origin, too. (3) The flash counts as failed: the fence forgets all that it holds at the next
//! opening, and nothing is written to it.
//!
//! Invariants: each durable record lends some bytes, and a write beyond them waits for the next
//! one. So a crash loses no written byte from the sum.
//!
//! It measures no time by a clock that may jump. A clock that went back between two openings gives
//! nothing back.

pub(crate) mod account;
pub(crate) mod metered;

use crate::{
    conditions::condition::{Condition, Severity},
    error::EngineError,
    shared::Shared,
};
use account::WearStatus;
use larder_core::{Lba, wear::WearLevel};
use larder_device::{IoError, IoErrorKind, IoOp};
use larder_format::{Superblock, WriteMode, size::exact};
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// The pause after a record that failed.
const RETRY: Duration = Duration::from_secs(2);

impl Shared {
    /// Returns how much the cache still writes to the flash.
    pub(crate) fn wear_level(&self) -> WearLevel {
        if self.wear.is_limited() { self.wear.level(self.runtime.now()) } else { WearLevel::Free }
    }

    /// Returns whether clean chunks are stored.
    pub(crate) fn wear_admits(&self) -> bool {
        self.wear_level() == WearLevel::Free
    }

    /// Changes the superblock, durably, with the bytes of the last day.
    ///
    /// # Errors
    /// As [`SuperblockKeeper::update`](crate::superblock::SuperblockKeeper::update).
    pub(crate) async fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), EngineError> {
        let mut lent_until = 0;
        let change = |superblock: &mut Superblock| {
            change(superblock);
            let record = self.wear.record(self.runtime.now(), superblock.clean_shutdown);
            superblock.wear = record.map(|(record, until)| {
                lent_until = until;
                Box::new(record)
            });
        };
        self.superblock.update(&*self.flash, &self.counters, change).await?;
        self.wear.is_recorded(lent_until);
        Ok(())
    }

    /// Runs the task that keeps the record until the cache closes.
    pub(crate) async fn wear_keeper(self: Arc<Self>) {
        while self.wear.is_limited() {
            let wanted = self.wear.listen();
            if self.is_closing() || self.state.lock().flash.is_failed() {
                break;
            }
            let due = self.wear.look_for_record(self.runtime.now());
            if due.is_changed {
                self.conditions_changed();
                self.signals.destage_wanted.notify();
            }
            if due.level == WearLevel::Spent {
                let spent = IoError::new(IoErrorKind::NoSpace, IoOp::Write, 0, 0);
                self.fail_flash(spent.with_detail("the wear budget is used up, its reserve included"));
            } else if !due.is_due {
                wanted.await;
            } else if self.update_superblock(|_| {}).await.is_err() {
                let _ = self.runtime.delay(RETRY).await;
            }
        }
        self.wear.end_records();
    }

    /// Has an orderly end lent its bytes, which it needs once the keeper of records has ended.
    pub(crate) async fn lend_wear_for_end(self: &Arc<Self>) {
        if self.wear.is_limited() && !self.state.lock().flash.is_failed() {
            self.wear.ask_for_end();
            // Without them the end fails, and the next opening recovers as from a crash.
            let _ = self.update_superblock(|_| {}).await;
        }
    }

    /// Returns the mode of a change of chunks. The caller holds the ticket.
    ///
    /// It is the mode in force. In write-back on a spent budget it is write-around, and the change
    /// is prepared.
    ///
    /// # Errors
    /// As [`Shared::go_past_budget`].
    pub(crate) async fn mode_of_change(self: &Arc<Self>, first: Lba, count: u64) -> Result<WriteMode, EngineError> {
        match self.mode.get() {
            WriteMode::Back if self.wear_level() >= WearLevel::Past => self.go_past_budget(first, count).await,
            mode => Ok(mode),
        }
    }

    /// Prepares a change of chunks that goes past a flash which may take no more, in write-back.
    ///
    /// Returns write-around, or write-back if the flash has failed.
    ///
    /// # Errors
    /// Errors of the devices: then the older data stays dirty.
    async fn go_past_budget(self: &Arc<Self>, first: Lba, count: u64) -> Result<WriteMode, EngineError> {
        match self.bring_durably(first, count).await {
            Ok(()) => {}
            Err(EngineError::FlashFailed(_)) => return Ok(WriteMode::Back),
            Err(error) => return Err(error),
        }
        // From here on a FLUSH flushes the origin, too.
        self.mode.note_write_past();
        self.counters.writes_past_budget.fetch_add(1, Relaxed);
        Ok(WriteMode::Around)
    }

    /// Has the older data of chunks clean, durably: a crash would lay it over the change.
    async fn bring_durably(self: &Arc<Self>, first: Lba, count: u64) -> Result<(), EngineError> {
        self.bring_to_origin(first, Lba(first.0 + count)).await?;
        let upto = self.state.lock().log.next_seq();
        self.commit(upto).await
    }

    /// Returns the wear, for the status.
    pub(crate) fn wear_status(&self) -> WearStatus {
        self.wear.status(self.runtime.now())
    }

    /// Returns the condition of a budget that keeps data from the flash.
    pub(crate) fn wear_condition(&self) -> Option<Condition> {
        let level = self.wear_level();
        let WearStatus { budget_bytes_a_day, spent_bytes, .. } = self.wear_status();
        let (name, severity, effect) = match level {
            WearLevel::Free => return None,
            WearLevel::Saving => ("wear_saving", Severity::Notice, "reads store nothing on the flash"),
            WearLevel::Past | WearLevel::Spent => {
                ("wear_budget_spent", Severity::Warning, "writes go past the flash to the origin")
            }
        };
        let what = format!(
            "{} of the wear budget of {} a day are written: {effect}, until the oldest bytes are a day old",
            exact(spent_bytes),
            exact(budget_bytes_a_day)
        );
        Some(Condition { name, severity, what })
    }
}
