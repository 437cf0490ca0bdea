//! The chunks whose only mapping is in RAM: no log entry and no checkpoint has one of the chunk.
//!
//! A clean mapping waits for its record, and then for a flush of the origin, before it is logged.
//! Until then a crash forgets it anyway, so forgetting it takes neither an entry nor a commit. A
//! chunk that is written through again and again is cached and forgotten each time without one.
//!
//! A chunk comes here with a clean mapping, if the design had forgotten the chunk before
//! (`Design::is_forgotten`). The log's queue may still have an entry that forgets an earlier
//! mapping: a change of the origin waits for all of those. A chunk leaves with the entry of its
//! mapping, with a change of its content, and when its waiting entry finds it unmapped.
//!
//! A checkpoint exports mappings that no log has. So the chunks that are here when it begins leave,
//! and none comes until its pieces are made.
//!
//! Invariants: a chunk that is here has no mapping that a crash brings back, but for one that an
//! entry in the queue forgets. The chunks are no more than the clean mappings that wait for the
//! log.
//!
//! It does not know the mappings.

use larder_core::Lba;
use std::collections::BTreeSet;

/// See the module.
#[derive(Default)]
pub struct Unlogged {
    chunks: BTreeSet<u64>,
    is_exporting: bool,
    /// Mappings that were left out of the log since the last export began.
    left_out: u64,
}

impl Unlogged {
    /// Notes a clean mapping of a chunk that had none, neither in RAM nor anywhere else.
    pub fn insert(&mut self, lba: Lba) {
        if !self.is_exporting {
            self.chunks.insert(lba.0);
        }
    }

    /// Returns whether forgetting the mapping of `lba` needs no entry.
    pub fn has(&self, lba: Lba) -> bool {
        self.chunks.contains(&lba.0)
    }

    /// Notes that the log has no entry of a mapping that waited for it.
    pub fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// Counts the mappings that were left out of the log since the last export began.
    ///
    /// A crash forgets their contents: a checkpoint is due as if the log had them.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Notes that `lba` changed, is unmapped, or has an entry in the log's queue. Returns whether
    /// it was here.
    pub fn remove(&mut self, lba: Lba) -> bool {
        self.chunks.remove(&lba.0)
    }

    /// Notes that a run of chunks changed.
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<u64> = self.chunks.range(first.0..first.0.saturating_add(count)).copied().collect();
        for lba in inside {
            self.chunks.remove(&lba);
        }
    }

    /// Begins the export of a checkpoint, which may have any mapping that exists until its end.
    pub fn export_begins(&mut self) {
        self.chunks.clear();
        self.is_exporting = true;
        self.left_out = 0;
    }

    /// Ends the export: later mappings are in no piece of it.
    pub fn export_ends(&mut self) {
        self.is_exporting = false;
    }

    /// Forgets all chunks, because the log is dead.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_may_have_each_mapping_from_before_its_end() {
        let mut unlogged = Unlogged::default();
        unlogged.insert(Lba(1));
        unlogged.export_begins();
        unlogged.insert(Lba(2));
        assert!(!unlogged.has(Lba(1)) && !unlogged.has(Lba(2)));
        unlogged.export_ends();
        unlogged.insert(Lba(3));
        assert!(!unlogged.has(Lba(2)) && unlogged.has(Lba(3)));
        assert!(unlogged.remove(Lba(3)) && !unlogged.remove(Lba(3)));
        (4..9).for_each(|lba| unlogged.insert(Lba(lba)));
        unlogged.remove_range(Lba(5), 3);
        let left: Vec<u64> = (0..20).filter(|&lba| unlogged.has(Lba(lba))).collect();
        assert_eq!(left, [4, 8]);
    }
}
