//! A hash table in shards: growth or a scan of one is short, however large the whole is.
//!
//! Callers hold a lock, and growth of a single table of a large cache would take seconds.
//!
//! Invariants: an item is in the shard of its hash. The bytes of all tables are counted as they
//! change, for a status request cannot ask thousands of tables.
//!
//! It does not know equal items: callers search before they insert.

use hashbrown::HashTable;

/// Shards of a table that is not small, a power of two. More are used if a shard could exceed
/// [`SHARD_ITEMS`].
pub const SHARDS_USUAL: usize = 256;
/// Items of a shard in a small table, on average.
const SHARD_ITEMS_SMALL: u64 = 256;
/// Shards of a hash table at most, a power of two.
pub(crate) const SHARDS_MAX: usize = 1 << 16;
/// Items of a shard on average, at most. A scan of them, or a move to a larger table, takes a few
/// milliseconds.
const SHARD_ITEMS: u64 = 1 << 15;

/// See the module.
pub(crate) struct Sharded<T> {
    /// A power of two of shards.
    shards: Vec<HashTable<T>>,
    len: usize,
    table_bytes: usize,
}

impl<T> Sharded<T> {
    /// Creates an empty table for `items_max` items; it does not refuse more.
    pub fn new(items_max: u64) -> Self {
        let usual = (items_max / SHARD_ITEMS_SMALL).clamp(1, SHARDS_USUAL as u64);
        let shards = usual.max(items_max / SHARD_ITEMS).min(SHARDS_MAX as u64).next_power_of_two();
        Sharded { shards: (0..shards).map(|_| HashTable::new()).collect(), len: 0, table_bytes: 0 }
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // Bits that the table of the shard uses neither for the bucket (low) nor for the tag (top
        // seven).
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    /// Counts the shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Counts the items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.shards.capacity() * size_of::<HashTable<T>>() + self.table_bytes
    }

    /// Changes the size of a shard and updates the count of the bytes.
    fn resize(&mut self, shard: usize, change: impl FnOnce(&mut HashTable<T>)) {
        let shard = &mut self.shards[shard];
        self.table_bytes -= shard.allocation_size();
        change(shard);
        self.table_bytes += shard.allocation_size();
    }

    /// Makes room for `items` more, spread over the shards. No shard gets more than it would by
    /// growing.
    pub fn reserve(&mut self, items: u64, hash_of: impl Fn(&T) -> u64) {
        let each = (items / self.shards.len() as u64) as usize;
        if each > 0 {
            (0..self.shards.len()).for_each(|shard| self.resize(shard, |shard| shard.reserve(each, &hash_of)));
        }
    }

    /// Returns the item of a hash that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards[self.shard_of(hash)].find(hash, is_it)
    }

    /// Returns the item of a hash that `is_it` accepts, to change it.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let shard = self.shard_of(hash);
        self.shards[shard].find_mut(hash, is_it)
    }

    /// Adds an item that is not there.
    pub fn insert(&mut self, hash: u64, item: T, hash_of: impl Fn(&T) -> u64) {
        let at = self.shard_of(hash);
        if self.shards[at].len() == self.shards[at].capacity() {
            self.resize(at, |shard| shard.reserve(1, &hash_of));
        }
        self.shards[at].insert_unique(hash, item, hash_of);
        self.len += 1;
    }

    /// Removes the item of a hash that `is_it` accepts.
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let shard = self.shard_of(hash);
        let found = self.shards[shard].find_entry(hash, is_it).ok()?;
        self.len -= 1;
        Some(found.remove().0)
    }

    /// Removes items of a shard that `keep` refuses; returns how many.
    pub fn sweep(&mut self, shard: usize, keep: impl FnMut(&mut T) -> bool, hash_of: impl Fn(&T) -> u64) -> usize {
        let shard = shard % self.shards.len();
        let table = &mut self.shards[shard];
        let before = table.len();
        table.retain(keep);
        let (left, room) = (table.len(), table.capacity());
        self.len -= before - left;
        // A table that shrank much gives its memory back.
        if left < room / 8 {
            self.resize(shard, |table| table.shrink_to(left * 2, hash_of));
        }
        before - left
    }

    /// Returns the items of a shard, in no useful order.
    pub fn shard(&self, shard: usize) -> impl Iterator<Item = &T> {
        let table = &self.shards[shard % self.shards.len()];
        // A scan of all shards of a small table would wait for the memory of many empty ones.
        (!table.is_empty()).then(|| table.iter()).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::mix;

    #[test]
    fn bytes_are_counted_as_tables_change() {
        let hash_of = |item: &u64| mix(*item);
        let mut sharded = Sharded::new(10_000);
        let counts_its_bytes = |sharded: &Sharded<u64>| {
            let tables = sharded.shards.iter().map(HashTable::allocation_size).sum::<usize>();
            assert_eq!(sharded.table_bytes, tables);
            tables
        };
        (0..10_000).for_each(|item| sharded.insert(mix(item), item, hash_of));
        let grown = counts_its_bytes(&sharded);
        assert!((0..10_000).all(|item| sharded.find(mix(item), |&found| found == item) == Some(&item)));
        let gone: usize = (0..sharded.shard_count()).map(|at| sharded.sweep(at, |item| *item % 64 == 1, hash_of)).sum();
        assert_eq!((gone, sharded.len()), (9843, 157));
        let shrunk = counts_its_bytes(&sharded);
        assert!(shrunk < grown / 4, "{shrunk} of {grown} bytes");
        assert_eq!((sharded.remove(mix(65), |&item| item == 65), sharded.len()), (Some(65), 156));
        assert_eq!(sharded.remove(mix(66), |&item| item == 66), None);
        sharded.reserve(20_000, hash_of);
        assert!(counts_its_bytes(&sharded) > grown);
    }
}
