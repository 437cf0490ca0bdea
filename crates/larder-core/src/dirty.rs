//! The dirty list: which chunks the origin does not have, by address, with the sequence number of the write
//! (Nitro §3.1, "dirty list").
//!
//! Invariants: a chunk is listed exactly while its entry in the LBA index carries the dirty flag; but what recovery defers
//! is listed only when that is settled.
//!
//! What it does not do: say where the data is; the LBA index does.

use crate::{
    pages::{PageMap, key_bytes_max},
    types::Lba,
};

/// Deferred chunks are listed one by one where the list is this many times as long, else together.
const SETTLED_ALONE_SHARE: usize = 8;

/// Of how many entries of an index one may be dirty: beyond that, a cache holds back who writes.
pub const DIRTY_SHARE: usize = 2;
/// Of how many entries of an index one may be a fragment.
pub const FRAGMENT_SHARE: usize = 4;
/// For how many entries of an index there may be a trimmed run.
pub const RUN_SHARE: usize = 16;
/// Bytes of RAM for each of many dirty chunks at most.
pub const DIRTY_BYTES_MAX: usize = key_bytes_max(size_of::<u64>());

/// The list.
#[derive(Default)]
pub struct DirtyList {
    listed: PageMap<u64>,
    /// What recovery mapped and nobody asked for yet, oldest first: to list each at once, in no order, would take longer
    /// than all else that is done for a mapping.
    deferred: Vec<(u64, u64)>,
}

impl DirtyList {
    /// Number of dirty chunks.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Bytes that the list has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.listed.ram_bytes() + self.deferred.capacity() * size_of::<(u64, u64)>()
    }

    /// Lists `lba`, or gives it a newer sequence number.
    pub fn insert(&mut self, lba: Lba, seq: u64) {
        self.listed.insert(lba.0, seq);
    }

    /// Lists `lba` later: at the next [`DirtyList::settle`].
    pub fn defer(&mut self, lba: Lba, seq: u64) {
        self.deferred.push((lba.0, seq));
    }

    /// Lists what was deferred, the newest number of each chunk, if `is_dirty` says that it still is dirty.
    pub fn settle(&mut self, is_dirty: impl Fn(Lba) -> bool) {
        let mut deferred = std::mem::take(&mut self.deferred);
        // Stable: of one chunk the newest stays last.
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
            // Rebuilt as a whole, in order: that fills pages from first to last.
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

    /// Takes `lba` off the list.
    pub fn remove(&mut self, lba: Lba) -> Option<u64> {
        self.listed.remove(lba.0)
    }

    /// The sequence number of `lba`'s dirty data.
    pub fn get(&self, lba: Lba) -> Option<u64> {
        self.listed.get(lba.0)
    }

    /// Up to `max` dirty chunks from `from` on, by address.
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
