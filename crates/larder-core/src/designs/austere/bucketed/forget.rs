//! Forgetting addresses, one by one and in runs.
//!
//! Invariants: the caller learns of each address that a crash might bring back, and logs it.
//!
//! It does not log.

use super::{ASKED_MAX, Bucketed};
use crate::types::Lba;

/// Maximum chunks of a run whose addresses are looked up without a look at the whole indices.
const LOOKED_MAX: u64 = 1 << 12;

impl Bucketed {
    /// Removes an address from the indices. The log has an entry that forgets its LBA-hash at each
    /// restart, too.
    pub(super) fn forget_in_core(&mut self, lba: Lba) {
        self.entries.drop_held(lba);
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
        self.indices.core.forget(lba);
    }

    /// Removes an address from the indices, without a log entry for it at some restart.
    pub(super) fn lose_in_core(&mut self, lba: Lba) {
        self.count();
        self.indices.note_lost(lba);
        self.forget_in_core(lba);
    }

    /// Forgets an address. Returns as [`Mapping::unmap`](crate::design::Mapping::unmap).
    pub(super) fn forget_one(&mut self, lba: Lba) -> bool {
        self.count();
        let was_exact = self.exact.remove(lba);
        // The log lacks the losses of the indices.
        let may_come_back = self.indices.may_come_back(lba);
        self.forget_in_core(lba);
        was_exact || may_come_back
    }

    /// Forgets the addresses of a run.
    pub(super) fn forget_run(&mut self, first: Lba, count: u64) {
        self.count();
        self.exact.remove_run(first, count);
        if self.has_nothing_clean(count) {
            return;
        }
        if self.is_too_long(count) {
            return self.lose_clean(first, count);
        }
        (first.0..first.0.saturating_add(count)).for_each(|lba| self.forget_in_core(Lba(lba)));
    }

    /// Returns whether a run has too many addresses to look up, as the indices know none of theirs.
    fn is_too_long(&self, count: u64) -> bool {
        count > self.indices.core.lba_entries_max().max(ASKED_MAX)
    }

    /// Empties the indices for a run that is too long.
    fn lose_clean(&mut self, first: Lba, count: u64) {
        self.indices.lose_all();
        self.suspended.clear();
        self.entries.drop_held_run(first, Lba(first.0.saturating_add(count)));
    }

    /// Forgets as [`Mapping::unmap_each`](crate::design::Mapping::unmap_each) does. Looks up each
    /// address, unless the indices are empty.
    pub(super) fn forget_each(&mut self, first: Lba, count: u64, is_leaving: &dyn Fn(Lba) -> bool) -> bool {
        let end = first.0.saturating_add(count);
        self.count();
        let (is_clean, is_too_long) = (self.has_nothing_clean(count), self.is_too_long(count));
        if is_clean || is_too_long {
            let kept = self.exact.kept_in(first, count);
            let has_exact = !kept.is_empty();
            kept.into_iter().filter(|&lba| is_leaving(lba)).for_each(|lba| _ = self.exact.remove(lba));
            if !is_clean {
                self.lose_clean(first, count);
            }
            return has_exact || !is_clean;
        }
        let mut any = false;
        for lba in (first.0..end).map(Lba).filter(|&lba| is_leaving(lba)) {
            any |= self.forget_one(lba);
        }
        any
    }

    /// Returns whether any address of a run is mapped, or a crash might bring it back.
    pub(super) fn has_any(&self, first: Lba, count: u64) -> bool {
        let may_come_back = || {
            let lbas = first.0..first.0.saturating_add(count);
            !self.has_nothing_clean(count)
                && (self.is_too_long(count) || lbas.map(Lba).any(|lba| self.indices.may_come_back(lba)))
        };
        !self.exact.kept_in(first, count).is_empty() || may_come_back()
    }

    /// Returns whether the indices have nothing and lost nothing. Looks for a long run alone.
    fn has_nothing_clean(&self, count: u64) -> bool {
        count > LOOKED_MAX
            && self.suspended.is_empty()
            && self.entries.held() == 0
            && self.indices.lost.lock().is_empty()
            && self.indices.core.lba_entries() == 0
    }
}
