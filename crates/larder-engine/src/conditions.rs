//! The conditions that a status lists: the faults and the notable states of a cache, by name.
//!
//! Invariants: a condition is listed while it lasts; the counters record it afterwards. The most
//! serious conditions come first. Each name is in the table of [`advice`](crate::advice).
//!
//! It does not change anything.

pub(crate) mod condition;
pub(crate) mod devices;
pub(crate) mod missing_mark;

use crate::{
    conditions::devices::{flash_hangs, flash_unlooked, origin_fails, origin_hangs},
    config::policies::{OriginChanged, TrimPolicy},
    destage::Limit,
    fence::Raised,
    lacked,
    recover::recovered::Recovered,
    shared::Shared,
    state::State,
    status::counters::CounterValues,
};
pub use condition::{Condition, Severity};
pub use devices::{Watches, of_origin};
use larder_core::Lba;
use larder_device::{IoError, IoErrorKind, IoResult};
use larder_format::{Superblock, WriteMode};
use std::sync::{Arc, atomic::Ordering::*};

impl Shared {
    /// Notes the result of an operation of the origin.
    pub fn note_origin<T>(self: &Arc<Self>, result: &IoResult<T>) {
        if result.is_err() {
            self.counters.origin_errors.fetch_add(1, Relaxed);
            self.conditions_changed();
            self.ask_origin_again();
            // Its writes may be the only question to the origin.
            self.signals.destage_wanted.notify();
        }
    }

    /// Returns the conditions, the most serious first.
    pub fn conditions(&self, state: &State, counts: &CounterValues) -> Vec<Condition> {
        let mut found = of_state(state, counts, self.geometry.chunk_bytes as u64);
        found.extend(self.device_conditions(state, counts));
        if state.mode.get() == WriteMode::Back
            && !state.flash.is_failed()
            && let Some((name, what)) = self.limit_that_binds(state).map(Limit::told)
        {
            found.push(Condition { name, severity: Severity::Warning, what });
        }
        found.extend(self.wear_condition());
        found.extend(self.note_condition());
        found.extend(self.missing_mark.condition());
        found.extend(self.opening_conditions(state));
        if !self.origin.info().discard_zeroes && self.tuning.trim != TrimPolicy::Keep {
            let what = "the origin does not promise zeroes after a discard: trims are written to it as zeroes".into();
            found.push(Condition { name: "origin_discard_keeps_data", severity: Severity::Notice, what });
        }
        found.extend(self.standing_conditions(&state.design().dirty_counts()));
        most_serious_first(&mut found);
        found
    }

    /// Returns the conditions of devices that refuse, fail or hang.
    fn device_conditions(&self, state: &State, counts: &CounterValues) -> Vec<Condition> {
        let mut found = Vec::new();
        if !state.flash.is_failed() {
            let refuses = self.refusals.standing().map(|(error, waiting)| flash_refuses(&error, waiting));
            let unlooked = || self.flash_watch.look_error().map(|error| flash_unlooked(&error));
            found.extend(refuses.or_else(unlooked));
        }
        if let Some(error) = self.origin_watch.error() {
            let owed = self.owed(state);
            found.push(origin_fails(&error, owed.chunks > state.lost.count() || owed.runs > 0));
        }
        let limit = self.tuning.origin_timeout;
        found.extend(flash_hangs(&self.flash_watch, limit));
        found.extend(origin_hangs(&self.origin_watch, limit));
        if let Some(since) = state.flash.reads_failed_lately(self.runtime.now()) {
            let what = format!(
                "{} reads of the flash failed since the opening, the last one {} s ago",
                counts.flash_read_errors,
                since.as_secs()
            );
            found.push(Condition { name: "flash_read_errors", severity: Severity::Warning, what });
        }
        found
    }

    /// Returns the conditions of an opening that repaired or dropped something.
    fn opening_conditions(&self, state: &State) -> Vec<Condition> {
        let mut found = Vec::new();
        let mut add = |name, severity, what| found.push(Condition { name, severity, what });
        if let Some(twin) = self.opening.superblock_repaired {
            let name = twin_name(twin);
            let what = format!("the {name} superblock was damaged or older when the cache was opened; it was repaired");
            add("superblock_repaired", Severity::Notice, what);
        }
        if let Some(done) = self.opening.origin_changed {
            let dirty = state.design().dirty_counts();
            let laid = match dirty.chunks + dirty.run_chunks {
                0 => String::new(),
                _ => {
                    let lacked = lacked::exactly(&dirty, self.geometry.chunk_bytes as u64);
                    format!("; {lacked} are laid over the origin as it is now")
                }
            };
            let what = match done {
                OriginChanged::Drop => {
                    format!(
                        "the origin was, or may have been, changed while this cache was closed: its copies were forgotten, as was asked{laid}"
                    )
                }
                OriginChanged::Keep | OriginChanged::Refuse => {
                    format!(
                        "the origin was changed while this cache was closed, and its copies are believed, as was asked{laid}"
                    )
                }
            };
            add("origin_changed", Severity::Notice, what);
        }
        if self.opening.emptied {
            let what = "the flash was emptied when the cache was opened, for the origin had been written without it";
            add("emptied_behind_fence", Severity::Notice, what.into());
        }
        found
    }
}

/// Returns the condition of a flash that takes no writes for now; `waiting` writes wait.
pub(crate) fn flash_refuses(error: &IoError, waiting: usize) -> Condition {
    let (name, how) = match error.kind {
        kind if kind.is_shortage() => ("flash_full", "the flash has no room"),
        _ => ("flash_failing", "the flash refuses writes"),
    };
    let writes = if waiting == 1 {
        "1 write of the cache waits and is"
    } else {
        &format!("{waiting} writes of the cache wait and are")
    };
    let what =
        format!("{how} ({error}): {writes} tried again; reads go on, and nothing acknowledged is lost meanwhile");
    Condition { name, severity: Severity::Degraded, what }
}

/// Returns the condition of a cache that was detached.
pub fn detached() -> Condition {
    let what = "the cache was detached: the origin is complete, and nothing here is used any more".into();
    Condition { name: "detached", severity: Severity::Degraded, what }
}

/// Sorts conditions in the order of their listing.
pub fn most_serious_first(conditions: &mut [Condition]) {
    conditions.sort_by_key(|condition| std::cmp::Reverse(condition.severity));
}

/// Returns the conditions of an unopened flash, beside its state.
///
/// `fence` is a fence that is up, as its keeper reports it, or the keeper's reason for not knowing.
pub fn of_unopened(found: &Recovered, fence: Result<Option<Raised>, String>) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let read_only = read_only(&found.superblock);
    let is_opened = !found.superblock.detached && read_only.is_none();
    conditions.extend(read_only);
    let mut add = |name, severity, what| conditions.push(Condition { name, severity, what });
    match fence {
        // The flash of a detached cache is not used any more.
        _ if found.superblock.detached => {}
        Ok(None) => {}
        Ok(Some(Raised { why, dirty_bytes: noted_bytes, is_destaged, .. })) => {
            let becomes = match found.lacked() {
                _ if is_destaged => {
                    "the origin has all that was dirty: the content of the flash is dropped at the next opening"
                        .to_owned()
                }
                None if noted_bytes == 0 => "its content is dropped at the next opening".to_owned(),
                None => format!(
                    "its {noted_bytes} bytes of dirty data and trims are gone, so the origin may lack them: it is not opened without --discard"
                ),
                Some(lacked) => format!(
                    "it has {lacked}, which may be older than what the origin has: it is not opened without --discard, \
                     which drops them"
                ),
            };
            let what = format!("the fence is up: the origin was written while this flash was away ({why}); {becomes}");
            add("fence_up", Severity::Degraded, what);
        }
        Err(why) => conditions.push(state_unknown(&why)),
    }
    if let Some(twin) = found.repair.filter(|_| is_opened) {
        let what = format!("the {} superblock is damaged or older; the next opening writes it anew", twin_name(twin));
        conditions.push(Condition { name: "superblock_repaired", severity: Severity::Notice, what });
    }
    conditions
}

/// Returns the condition of a flash that has a later program's features: it is read and not
/// written.
pub fn read_only(superblock: &Superblock) -> Option<Condition> {
    let refusal = superblock.check_writable().err()?;
    let what = format!("this flash is read and not served: {refusal}");
    Some(Condition { name: "read_only_features", severity: Severity::Degraded, what })
}

/// Returns the condition of a flash whose state directory cannot be read or believed.
pub fn state_unknown(why: &str) -> Condition {
    let what = format!("whether a fence is up cannot be told, and this flash is not opened: {why}");
    Condition { name: "state_unknown", severity: Severity::Degraded, what }
}

fn twin_name(twin: usize) -> &'static str {
    if twin == 0 { "first" } else { "second" }
}

/// Returns the conditions of a flash that failed, and of a fence.
fn of_failure(state: &State, chunk_bytes: u64) -> Vec<Condition> {
    let mut found = Vec::new();
    let mut add = |name, severity, what| found.push(Condition { name, severity, what });
    if let Some(error) = state.flash.failure() {
        let (name, how) = match error.kind {
            IoErrorKind::Gone => ("flash_gone", "the flash is gone"),
            IoErrorKind::NoSpace | IoErrorKind::Quota => ("flash_full", "the flash has no space left"),
            _ => ("flash_failed", "the flash failed"),
        };
        let what = format!("degraded: {how} ({error}); nothing new is cached, and the origin serves what it can");
        add(name, Severity::Degraded, what);
        if state.fence.is_up() {
            let what = "the fence is up: writes go to the origin, and the content of the flash will be dropped".into();
            add("fence_up", Severity::Degraded, what);
        } else if let Some(why) = state.fence.refusal() {
            add("fence_refused", Severity::Degraded, format!("writes are refused, for there is no fence: {why}"));
        }
        let dirty = state.design().dirty_counts();
        if dirty.chunks + dirty.runs > 0 {
            let lacked = lacked::exactly(&dirty, chunk_bytes);
            let what = format!("{lacked} are on a flash that failed; the origin lacks them");
            add("undurable_data", Severity::Degraded, what);
        }
    }
    if let (false, Some(why)) = (state.flash.is_failed(), state.fence.refusal()) {
        let what = format!("there is no fence, and a copy that takes the name of the flash would be believed: {why}");
        add("fence_refused", Severity::Degraded, what);
    }
    found
}

/// Returns the conditions that the state alone shows.
pub fn of_state(state: &State, counts: &CounterValues, chunk_bytes: u64) -> Vec<Condition> {
    let mut found = of_failure(state, chunk_bytes);
    let mut add = |name, severity, what| found.push(Condition { name, severity, what });
    if let Some(Lba(first)) = state.lost.iter().next() {
        let (count, first) = (state.lost.count(), first * chunk_bytes);
        let what = format!("{count} dirty chunks are damaged, the first at volume offset {first}");
        add("dirty_data_lost", Severity::Degraded, what);
    }
    let doubtful = state.origin_changes.doubtful_chunks();
    if doubtful != Some(0) {
        let which = doubtful.map_or("any".to_owned(), |chunks| chunks.to_string());
        let what = format!(
            "a flush of the origin failed: it may lose earlier writes to {which} chunks, which are not cached until they are written again"
        );
        add("origin_doubtful", Severity::Warning, what);
    }
    if let Some(error) = state.checkpoint_tries.last_error() {
        let what = format!("the last checkpoint failed ({error}); it is tried again");
        add("checkpoint_failing", Severity::Warning, what);
    }
    if counts.corrupt_records > 0 {
        let times =
            if counts.corrupt_records == 1 { "once".into() } else { format!("{} times", counts.corrupt_records) };
        let what = format!(
            "damaged records were met {times} since the opening: the origin has the clean data; dirty data is an error until it is written anew"
        );
        add("corrupt_records", Severity::Warning, what);
    }
    if let Some(mode) = state.mode.switching_to() {
        let what = format!("the mode is being switched to {}", crate::status::names::mode_name(mode));
        add("switching_mode", Severity::Notice, what);
    }
    found
}
