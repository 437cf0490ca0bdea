//! The account of the wear: the budget, the bytes written, and those that the last record lends.
//!
//! Invariants: no byte is granted beyond those that a durable record has, or lends. Time is that of
//! the opening and of the runtime since.
//!
//! It does not write.

use crate::{
    error::EngineError,
    sync::{Notified, Notify},
};
use larder_core::wear::{WEAR_BIN_SECONDS, WearBudget, WearLevel};
use larder_format::{Layout, Superblock, WearRecord, size::exact};
use parking_lot::Mutex;
use std::time::Duration;

/// A record lends one part in so many of the budget, or more if a write waits for it.
const LENT_SHARE: u64 = 64;
/// Bytes that the record of an orderly end lends: superblocks.
const LENT_AT_END: u64 = 64 << 10;
/// The reserve is one part in so many of the budget at most.
const RESERVE_SHARE: u64 = 4;
/// Slots whose segments may be on their way when writes begin to go past the flash.
const SLOTS_ON_THEIR_WAY: u64 = 8;
/// Bytes of such a slot at least.
const SLOT_BYTES_MIN: u64 = 512 << 10;

/// The wear budget that an opening asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WearLimit {
    /// No budget.
    Absent,
    /// Bytes in any 24 hours.
    BytesADay(u64),
    /// The whole flash so often in any 24 hours.
    DriveWritesADay(f64),
}

impl WearLimit {
    /// Returns the bytes of a day, 0 for no budget.
    fn day_bytes(self, layout: &Layout) -> u64 {
        match self {
            WearLimit::Absent => 0,
            WearLimit::BytesADay(bytes) => bytes.max(1),
            WearLimit::DriveWritesADay(writes) => ((layout.flash_bytes as f64 * writes) as u64).max(1),
        }
    }
}

/// The wear of the flash, for people and programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WearStatus {
    /// The budget of any 24 hours in bytes; 0 for none.
    #[serde(rename = "wear_budget_bytes_a_day")]
    pub budget_bytes_a_day: u64,
    /// Bytes written in the last 24 hours, or somewhat more; 0 without a budget.
    #[serde(rename = "wear_spent_bytes")]
    pub spent_bytes: u64,
    /// Bytes left.
    #[serde(rename = "wear_left_bytes")]
    pub left_bytes: u64,
    /// Bytes of these that log and checkpoints alone may take.
    #[serde(rename = "wear_reserve_bytes")]
    pub reserve_bytes: u64,
}

impl WearStatus {
    /// Returns the wear that a superblock tells.
    pub fn of(superblock: &Superblock) -> WearStatus {
        let Some(record) = superblock.wear.as_deref() else { return WearStatus::default() };
        let spent_bytes = record.bytes().fold(record.lent_bytes, u64::saturating_add);
        WearStatus {
            budget_bytes_a_day: record.day_bytes,
            spent_bytes,
            left_bytes: record.day_bytes.saturating_sub(spent_bytes),
            reserve_bytes: reserve_of(&superblock.layout),
        }
    }
}

/// Returns the bytes that a cache keeps for log and checkpoints, and for segments on their way.
fn reserve_of(layout: &Layout) -> u64 {
    let slots = SLOTS_ON_THEIR_WAY * u64::from(layout.slot_bytes).max(SLOT_BYTES_MIN);
    2 * layout.checkpoint_area_bytes + layout.log_bytes / 2 + slots
}

/// The answer to a write that asks for its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// They are granted.
    Granted,
    /// The next record has to be durable first.
    Later,
    /// There is no further record.
    Never,
}

/// The next step of the keeper of records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    pub(crate) level: WearLevel,
    pub(crate) is_due: bool,
    pub(crate) is_changed: bool,
}

/// The budget in force, or none.
#[derive(Default)]
pub struct WearAccount {
    account: Option<Mutex<Counts>>,
    /// A record is due, or time has passed.
    wanted: Notify,
    /// A record is durable, or there is no further one.
    recorded: Notify,
}

struct Counts {
    budget: WearBudget,
    /// The time of the opening on the budget's own clock, in seconds.
    opened_at: u64,
    /// The time of the opening, in seconds since 1970.
    wall_at_opening: u64,
    /// Bytes that were granted since the opening.
    taken: u64,
    /// The bytes up to which the last durable record lends.
    lent_until: u64,
    /// Bytes that writes wait for.
    asked: u64,
    /// The level that the conditions tell.
    told: WearLevel,
    is_over: bool,
}

impl WearAccount {
    /// Returns the account of a cache that is opened `now`, in seconds since 1970.
    ///
    /// If that is 0, the time is unknown, and none has passed since the last opening. `wanted` is
    /// the budget that the opening asks for. Without it, that of the superblock goes on.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a budget that is too small for log and checkpoints.
    pub fn new(superblock: &Superblock, wanted: Option<WearLimit>, now: u64) -> Result<WearAccount, EngineError> {
        let record = superblock.wear.as_deref();
        let wanted = wanted.map(|limit| limit.day_bytes(&superblock.layout));
        let day_bytes = wanted.or(record.map(|record| record.day_bytes)).unwrap_or(0);
        if day_bytes == 0 {
            return Ok(WearAccount::default());
        }
        let reserve = reserve_of(&superblock.layout);
        let least = reserve * RESERVE_SHARE;
        if day_bytes < least {
            return Err(EngineError::Invalid(format!(
                "a wear budget of {} a day is too small for this cache: its log and checkpoints need a budget of at least {}",
                exact(day_bytes),
                exact(least)
            )));
        }
        let at = record.map_or(now, |record| record.at_seconds);
        let now = if now == 0 { at } else { now };
        // A clock that went back lets no time pass, and the last bin begins anew.
        let opened_at = if now >= at { now } else { at / WEAR_BIN_SECONDS * WEAR_BIN_SECONDS };
        let spent: Vec<u64> = record.map(|record| record.bytes().collect()).unwrap_or_default();
        let mut budget = WearBudget::new(day_bytes, reserve, spent, at);
        budget.pass(opened_at);
        // They may have been written a moment ago.
        budget.spend(record.map_or(0, |record| record.lent_bytes));
        let account = Counts {
            budget,
            opened_at,
            wall_at_opening: now,
            taken: 0,
            lent_until: 0,
            asked: 0,
            told: WearLevel::Free,
            is_over: false,
        };
        Ok(WearAccount { account: Some(Mutex::new(account)), ..WearAccount::default() })
    }

    /// Returns whether there is a budget.
    pub(crate) fn is_limited(&self) -> bool {
        self.account.is_some()
    }

    /// Returns a listener for a record that is due, and for time that has passed.
    pub(crate) fn listen(&self) -> Notified<'_> {
        self.wanted.listen()
    }

    /// Has the keeper of records look again.
    pub(crate) fn wake(&self) {
        self.wanted.notify();
    }

    /// Returns a listener for a durable record, and for the end of records.
    pub(crate) fn listen_for_record(&self) -> Notified<'_> {
        self.recorded.listen()
    }

    /// Returns the level, `since` the opening.
    pub(crate) fn level(&self, since: Duration) -> WearLevel {
        self.account.as_ref().map_or(WearLevel::Free, |account| account.lock().level(since))
    }

    /// Asks for the bytes of a write, which waits for none if it `is_record` itself.
    pub(crate) fn take(&self, since: Duration, bytes: u64, is_record: bool) -> Taken {
        let Some(account) = &self.account else { return Taken::Granted };
        let mut account = account.lock();
        account.pass(since);
        let is_lent = is_record || account.taken + bytes <= account.lent_until;
        let taken = match is_lent {
            true => {
                account.taken += bytes;
                account.budget.spend(bytes);
                Taken::Granted
            }
            false if account.is_over => Taken::Never,
            false => {
                account.asked += bytes;
                Taken::Later
            }
        };
        if account.is_short() {
            self.wanted.notify();
        }
        taken
    }

    /// Returns whether a record is due, and whether the level changed since the last look.
    pub(crate) fn look_for_record(&self, since: Duration) -> Due {
        let Some(account) = &self.account else { return Due::default() };
        let mut account = account.lock();
        let level = account.level(since);
        let is_changed = std::mem::replace(&mut account.told, level) != level;
        Due { level, is_due: account.is_short(), is_changed }
    }

    /// Asks for bytes of an orderly end, which follow its last record.
    pub(crate) fn ask_for_end(&self) {
        if let Some(account) = &self.account {
            let mut account = account.lock();
            account.asked += account.budget.reserve_bytes() / 2;
        }
    }

    /// Returns the record of the next superblock, and the granted bytes up to which it lends.
    ///
    /// An end lends the superblocks that follow it.
    pub(crate) fn record(&self, since: Duration, is_end: bool) -> Option<(WearRecord, u64)> {
        let mut account = self.account.as_ref()?.lock();
        account.pass(since);
        let lent = account.lends().min(if is_end { LENT_AT_END } else { u64::MAX });
        let at = account.wall_at_opening.saturating_add(since.as_secs());
        let record = WearRecord::new(account.budget.day_bytes(), at, lent, account.budget.bins());
        Some((record, account.taken + lent))
    }

    /// Notes that such a superblock is durable.
    pub(crate) fn is_recorded(&self, lent_until: u64) {
        if let Some(account) = &self.account {
            let mut account = account.lock();
            account.lent_until = account.lent_until.max(lent_until);
            // Writes that need more ask again. A record that fails leaves them.
            account.asked = 0;
            drop(account);
            self.recorded.notify();
        }
    }

    /// Notes that no further record comes.
    pub(crate) fn end_records(&self) {
        if let Some(account) = &self.account {
            account.lock().is_over = true;
            self.recorded.notify();
        }
    }

    /// Returns the wear, for the status.
    pub(crate) fn status(&self, since: Duration) -> WearStatus {
        let Some(account) = &self.account else { return WearStatus::default() };
        let mut account = account.lock();
        account.pass(since);
        WearStatus {
            budget_bytes_a_day: account.budget.day_bytes(),
            spent_bytes: account.budget.spent_bytes(),
            left_bytes: account.budget.left_bytes(),
            reserve_bytes: account.budget.reserve_bytes(),
        }
    }
}

impl Counts {
    fn pass(&mut self, since: Duration) {
        self.budget.pass(self.opened_at.saturating_add(since.as_secs()));
    }

    fn level(&mut self, since: Duration) -> WearLevel {
        self.pass(since);
        self.budget.level()
    }

    /// Returns the bytes that the next record lends.
    fn lends(&self) -> u64 {
        (self.budget.day_bytes() / LENT_SHARE).max(2 * self.asked).min(self.budget.left_bytes())
    }

    /// Returns whether writes wait, or half of the usual loan is used.
    fn is_short(&self) -> bool {
        self.asked > 0 || self.taken + self.lends() / 2 > self.lent_until
    }
}
