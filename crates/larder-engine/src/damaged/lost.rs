//! Dirty chunks whose record is damaged: the origin lacks them, and the flash does not give them
//! back.
//!
//! Invariants: a chunk is lost under the sequence number of one mapping. A write of the chunk ends
//! that ([`outdate`](crate::state::State::outdate)), and no later mapping counts as lost.
//!
//! It does not know the records; `DamagedRecords` does.

use larder_core::Lba;
use std::collections::BTreeMap;

/// The lost chunks, with the sequence numbers of their mappings.
#[derive(Default)]
pub(crate) struct LostChunks(BTreeMap<u64, u64>);

impl LostChunks {
    /// Notes that the record of the dirty mapping `seq` of `lba` is damaged.
    pub fn note(&mut self, lba: Lba, seq: u64) {
        self.0.insert(lba.0, seq);
    }

    /// Forgets `lba`, whose content changed.
    pub fn remove(&mut self, lba: Lba) {
        if !self.0.is_empty() {
            self.0.remove(&lba.0);
        }
    }

    /// Removes a run, as [`LostChunks::remove`].
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let lost: Vec<u64> = self.0.range(first.0..first.0 + count).map(|(&lba, _)| lba).collect();
        lost.iter().for_each(|lba| _ = self.0.remove(lba));
    }

    /// Returns whether `lba` is lost.
    pub fn has(&self, lba: Lba) -> bool {
        self.0.contains_key(&lba.0)
    }

    /// Returns whether `lba` is lost under the mapping `seq`.
    pub fn has_mapping(&self, lba: Lba, seq: u64) -> bool {
        self.0.get(&lba.0) == Some(&seq)
    }

    /// Returns the number of lost chunks.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the lost chunks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Lba> {
        self.0.keys().copied().map(Lba)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_lost_until_it_is_written() {
        let mut lost = LostChunks::default();
        lost.remove(Lba(1));
        lost.remove_range(Lba(0), 9);
        [(3, 30), (5, 50), (4, 40), (8, 80)].into_iter().for_each(|(lba, seq)| lost.note(Lba(lba), seq));
        assert!(lost.has(Lba(4)) && lost.has_mapping(Lba(4), 40) && !lost.has_mapping(Lba(4), 41));
        lost.remove_range(Lba(4), 4);
        assert_eq!(lost.iter().collect::<Vec<_>>(), [Lba(3), Lba(8)]);
        lost.remove(Lba(8));
        assert_eq!((lost.count(), lost.has(Lba(8)), lost.has(Lba(3))), (1, false, true));
    }
}
