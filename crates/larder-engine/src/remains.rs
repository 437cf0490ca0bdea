//! The reasons for data that stayed dirty after a destage of everything, in words for its
//! requester.
//!
//! Invariants: no device is blamed that did not fail.
//!
//! It does not destage; [`destage`](crate::destage) does.

use crate::{Cache, losses::Ranges, shared::Shared, state::State, status::counters::CounterValues};
use larder_device::IoErrorKind;

/// Damaged ranges that a sentence names; the others are counted.
const RANGES_TOLD_MAX: usize = 4;

impl Cache {
    /// Returns the reason for dirty data after a [`Cache::destage_all`] that began with the counts
    /// `since`.
    pub fn why_dirty(&self, since: &CounterValues) -> String {
        self.shared().why_dirty(since)
    }
}

impl Shared {
    /// Returns the reasons for dirty data since the counts were `since`: part of a sentence.
    pub(crate) fn why_dirty(&self, since: &CounterValues) -> String {
        let counts = self.counters.values();
        let mut reasons = Vec::new();
        if counts.origin_errors > since.origin_errors {
            reasons.push(match self.origin_watch.error() {
                Some(error) if matches!(error.kind, IoErrorKind::NoSpace | IoErrorKind::Quota) => {
                    format!("the origin has no room ({error}): make room where it is, or raise its quota")
                }
                Some(error) => format!("the origin fails ({error}): bring it back"),
                None => "the origin failed, and answers again: try again".to_owned(),
            });
        }
        let state = self.state.lock();
        if state.lost.count() > 0 {
            reasons.push(self.damage(&state));
        }
        // A switch to a mode without dirty data destages kept trims, too.
        let owed = if state.mode.switching_to().is_some() { state.design().dirty_counts() } else { self.owed(&state) };
        if owed.chunks > state.lost.count() || owed.runs > 0 {
            if counts.flash_read_errors > since.flash_read_errors {
                reasons.push("the flash fails to read some of it, which stays dirty and is tried again".to_owned());
            }
            match (state.flash.failure(), state.checkpoint_tries.last_error()) {
                (Some(error), _) if !state.fence.is_up() => {
                    let why = state.fence.refusal().map_or_else(String::new, |why| format!(": {why}"));
                    reasons.push(format!(
                        "the flash failed ({error}), and without a fence its undurable data is not written past it{why}"
                    ));
                }
                (None, Some(error)) => reasons.push(format!("the flash takes no checkpoint ({error})")),
                _ => {}
            }
        }
        if reasons.is_empty() {
            reasons.push("more was written meanwhile, or a flush of the origin failed before".to_owned());
        }
        reasons.join("; ")
    }

    /// Returns the damaged dirty data on the flash and its remedy.
    fn damage(&self, state: &State) -> String {
        let mut ranges = Ranges::default();
        for lba in state.lost.iter() {
            ranges.add(self.geometry.offset_of(lba), self.geometry.chunk_len(lba) as u64);
        }
        ranges.join();
        let told = ranges.all().iter().take(RANGES_TOLD_MAX);
        let mut told: Vec<String> = told.map(|range| format!("{} bytes at {}", range.bytes, range.offset)).collect();
        if ranges.all().len() > RANGES_TOLD_MAX {
            told.push(format!("and {} more ranges", ranges.all().len() - RANGES_TOLD_MAX));
        }
        let (count, are, them) = match state.lost.count() {
            1 => ("1 dirty chunk".to_owned(), "is", "it"),
            count => (format!("{count} dirty chunks"), "are", "them"),
        };
        format!(
            "{count} {are} damaged on the flash, and the origin lacks {them} (of the volume {}): write {them} anew, or give \
             {them} up with `larder verify --repair`",
            told.join(", ")
        )
    }
}
