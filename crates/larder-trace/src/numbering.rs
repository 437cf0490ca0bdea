//! Numbers of things in the order in which they turn up: a table that finds them, and vectors that grow by a quarter.
//!
//! Memory: 8 bytes for each thing, up to 10 while it grows, and a table slot of 5 bytes, of which 44 to 87% are full.
//!
//! What it does not do: forget.

use hashbrown::HashTable;

use crate::rng::mix;

/// See the module.
#[derive(Default)]
pub(crate) struct Numbering {
    table: HashTable<u32>,
    things: Vec<u64>,
}

impl Numbering {
    /// How many things there are.
    pub fn len(&self) -> usize {
        self.things.len()
    }

    /// The number of a thing that is known.
    #[inline]
    pub fn find(&self, thing: u64) -> Option<u32> {
        self.table.find(mix(thing), |&number| self.things.get(number as usize) == Some(&thing)).copied()
    }

    /// The number of a thing that is not known yet; `None` where 32 bits do not number it.
    pub fn add(&mut self, thing: u64) -> Option<u32> {
        let number = u32::try_from(self.things.len()).ok()?;
        make_room(&mut self.things, 1);
        self.things.push(thing);
        let things = &self.things;
        self.table.insert_unique(mix(thing), number, |&other| {
            // Each number of the table has its thing.
            mix(things.get(other as usize).copied().unwrap_or_default())
        });
        Some(number)
    }

    /// All things, each with its number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.things.iter().copied().zip(0..)
    }

    /// Bytes that are allocated.
    pub fn memory_bytes(&self) -> usize {
        self.table.allocation_size() + self.things.capacity() * size_of::<u64>()
    }
}

/// Room for `more` elements, a quarter of those there are at least: where memory counts more than time.
pub(crate) fn make_room<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 4).max(64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_keep_their_numbers() {
        let mut numbering = Numbering::default();
        for n in 0..10_000u64 {
            assert_eq!((numbering.find(n * n), numbering.len()), (None, n as usize));
            assert_eq!(numbering.add(n * n), Some(n as u32));
        }
        assert!((0..10_000u64).all(|n| numbering.find(n * n) == Some(n as u32)));
        assert_eq!(numbering.find(3), None);
        assert!(numbering.iter().eq((0..10_000u64).map(|n| (n * n, n as u32))));
        assert!(numbering.memory_bytes() < 10_000 * 22, "{}", numbering.memory_bytes());
    }
}
