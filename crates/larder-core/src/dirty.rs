//! The dirty list: the chunks that the origin lacks, with sequence numbers (Nitro §3.1, "dirty
//! list").
//!
//! It is ordered by address, and a number is that of the write.
//!
//! Invariants: the list has a chunk exactly while its entry in the LBA index carries the dirty
//! flag. A chunk that recovery defers is listed at the next settle.
//!
//! It leaves the location of the data to the LBA index.

use crate::{
    pages::{PageMap, key_bytes_max},
    types::Lba,
};

/// Factor by which the list must exceed the deferred chunks so that they are listed one by one.
const SETTLED_ALONE_SHARE: usize = 8;

/// Index entries per dirty chunk at most. Beyond it, a cache holds back writers.
pub const DIRTY_SHARE: usize = 2;
/// Index entries per fragment at most.
pub const FRAGMENT_SHARE: usize = 4;
/// Index entries per trimmed run at most.
pub const RUN_SHARE: usize = 16;
/// Bytes of RAM for each of many dirty chunks at most.
pub const DIRTY_BYTES_MAX: usize = key_bytes_max(size_of::<u64>());

/// The list.
#[derive(Default)]
pub struct DirtyList {
    listed: PageMap<u64>,
    /// Chunks that recovery mapped, oldest first, while no request needs them. Listing each at
    /// once, in no order, would take longer than the rest of a mapping.
    deferred: Vec<(u64, u64)>,
}

impl DirtyList {
    /// Counts the dirty chunks.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Returns whether nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns the bytes that the list has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.listed.ram_bytes() + self.deferred.capacity() * size_of::<(u64, u64)>()
    }

    /// Lists `lba`, or gives it a newer sequence number.
    pub fn insert(&mut self, lba: Lba, seq: u64) {
        self.listed.insert(lba.0, seq);
    }

    /// Lists `lba` at the next [`DirtyList::settle`].
    pub fn defer(&mut self, lba: Lba, seq: u64) {
        self.deferred.push((lba.0, seq));
    }

    /// Lists the deferred chunks that `is_dirty` confirms, each with its newest number.
    pub fn settle(&mut self, is_dirty: impl Fn(Lba) -> bool) {
        let mut deferred = std::mem::take(&mut self.deferred);
        // Stable: the newest entry of a chunk stays last.
        deferred.sort_by_key(|&(lba, _)| lba);
        let newest = deferred
            .iter()
            .enumerate()
            .filter(|&(i, &(lba, _))| deferred.get(i + 1).is_none_or(|&(next, _)| next != lba) && is_dirty(Lba(lba)));
        let newest = newest.map(|(_, &entry)| entry);
        if deferred.len() < self.listed.len() / SETTLED_ALONE_SHARE {
            newest.for_each(|(lba, seq)| {
                self.listed.insert(lba, seq);
            });
        } else {
            // A rebuild in order fills the pages from first to last.
            let listed = std::mem::take(&mut self.listed);
            let mut old = listed.iter_from(0).peekable();
            for (lba, seq) in newest {
                while let Some((before, seq)) = old.next_if(|&(other, _)| other <= lba) {
                    self.listed.insert(before, seq);
                }
                self.listed.insert(lba, seq);
            }
            old.for_each(|(lba, seq)| {
                self.listed.insert(lba, seq);
            });
        }
    }

    /// Removes `lba` from the list.
    pub fn remove(&mut self, lba: Lba) -> Option<u64> {
        self.listed.remove(lba.0)
    }

    /// Returns the sequence number of `lba`'s dirty data.
    pub fn get(&self, lba: Lba) -> Option<u64> {
        self.listed.get(lba.0)
    }

    /// Returns up to `max` dirty chunks from `from` on, by address.
    pub fn from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        let mut chunks = Vec::with_capacity(max.min(self.len()));
        chunks.extend(self.listed.iter_from(from.0).take(max).map(|(lba, seq)| (Lba(lba), seq)));
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_deferred_is_listed_once_with_its_newest_number() {
        for before in [0, 1, 100] {
            let mut list = DirtyList::default();
            (1000..1000 + before).for_each(|lba| list.insert(Lba(lba), 1));
            for (lba, seq) in [(7, 2), (3, 3), (7, 4), (9, 5), (1000, 6)] {
                list.defer(Lba(lba), seq);
            }
            assert_eq!(list.get(Lba(7)), None);
            list.settle(|lba| lba != Lba(9));
            assert_eq!(list.from(Lba(0), 3), [(Lba(3), 3), (Lba(7), 4), (Lba(1000), 6)]);
            assert_eq!(list.len() as u64, 3 + before.max(1) - 1);
            list.settle(|_| true);
            assert_eq!(list.len() as u64, 3 + before.max(1) - 1, "nothing is left to settle");
        }
    }
}
