//! Room in the index.
//!
//! Invariants: mappings that the design has replaced go before data that it uses.
//!
//! It leaves the choice of slots to the design.

use super::Executor;
use larder_core::Decider;

impl Executor {
    /// Makes room in the index: replaced mappings go first, then stale entries, then slots.
    pub(super) fn make_room(&mut self) {
        if self.design.has_room(1) {
            return;
        }
        self.drop_replaced();
        self.sweep_while(|design| !design.has_room(1));
        while !self.design.has_room(1) && (self.evict_some(1) || self.close_all() || self.destage_first()) {
            self.sweep_while(|_| true);
            (0..self.design.export_pieces()).for_each(|_| self.drop_replaced());
        }
    }

    /// Removes stale entries, until none is left or it is enough.
    ///
    /// If none is stale, a search of the index for each new address would take longer than all
    /// else.
    fn sweep_while(&mut self, is_wanted: impl Fn(&Decider) -> bool) {
        if !is_wanted(&self.design) {
            return;
        }
        let stats = self.design.stats();
        let mut stale = stats.lba_index_entries - stats.mapped_chunks;
        for _ in 0..self.design.export_pieces() {
            if stale == 0 || !is_wanted(&self.design) {
                return;
            }
            stale = stale.saturating_sub(self.design.sweep() as u64);
        }
    }

    /// Drops replaced mappings, and logs that.
    pub(super) fn drop_replaced(&mut self) {
        self.pending += self.design.drop_clean_zeroes(false, usize::MAX).len() as u64;
    }
}
