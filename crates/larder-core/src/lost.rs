//! The addresses, or hashes of them, that a design lost by itself and that a crash may bring back.
//!
//! They are in the last checkpoint, or in the log behind it. An overwrite of a lost address must be
//! logged, although the design does not know the address any more.
//!
//! The set is a bitmap of hashes. It may report an address that was not lost, but misses none. A
//! loss from before the start of the last checkpoint but one has no log entry any more: each
//! checkpoint ends with a full commit.
//!
//! Invariants: a loss is reported until two checkpoints that began after it are durable, one after
//! the other.
//!
//! It does not know the log.

use crate::types::mix;

/// Bits for each entry in each of the maps.
const BITS_PER_ENTRY: u64 = 2;
/// Number of maps.
const MAPS: usize = 3;

/// See the module.
pub struct Lost {
    mask: u64,
    /// Losses before the last durable checkpoint began; since then; and since the current
    /// checkpoint began.
    maps: [Vec<u64>; MAPS],
    /// Upper bounds on the losses in each map.
    counts: [u64; MAPS],
}

impl Lost {
    /// Maximum bytes for each entry: twice the needed bits.
    pub const BYTES_MAX: u64 = (MAPS as u64 * BITS_PER_ENTRY * 2).div_ceil(u8::BITS as u64);

    /// Creates an empty set for so many entries.
    pub fn new(entries: u64) -> Lost {
        let bits = Lost::bits_for(entries);
        Lost {
            mask: bits - 1,
            maps: std::array::from_fn(|_| vec![0; (bits / u64::from(u64::BITS)) as usize]),
            counts: [0; MAPS],
        }
    }

    /// Returns the bytes that a set for so many entries allocates.
    pub fn bytes_for(entries: u64) -> u64 {
        MAPS as u64 * Lost::bits_for(entries) / u64::from(u8::BITS)
    }

    /// Returns the bits of a map.
    fn bits_for(entries: u64) -> u64 {
        (entries * BITS_PER_ENTRY).next_power_of_two().max(u64::BITS.into())
    }

    /// Adds a lost entry.
    pub fn add(&mut self, key: u64) {
        let (word, bit) = self.place(key);
        self.maps[MAPS - 1][word] |= bit;
        self.counts[MAPS - 1] += 1;
    }

    /// Marks all entries as lost.
    pub fn add_all(&mut self) {
        self.maps[MAPS - 1].fill(u64::MAX);
        self.counts[MAPS - 1] += self.mask + 1;
    }

    /// Returns whether no entry is lost.
    pub fn is_empty(&self) -> bool {
        self.counts == [0; MAPS]
    }

    /// Returns whether this entry may be lost.
    pub fn has(&self, key: u64) -> bool {
        let (word, bit) = self.place(key);
        self.maps.iter().any(|map| map[word] & bit != 0)
    }

    /// Begins a checkpoint; one that had begun before failed.
    pub fn checkpoint_begins(&mut self) {
        let [_, since, now] = &mut self.maps;
        since.iter_mut().zip(now.iter()).for_each(|(since, now)| *since |= now);
        now.fill(0);
        let [_, since, now] = &mut self.counts;
        *since += std::mem::take(now);
    }

    /// Ends the checkpoint as durable.
    pub fn checkpoint_is_durable(&mut self) {
        self.maps.rotate_left(1);
        self.maps[MAPS - 1].fill(0);
        self.counts.rotate_left(1);
        self.counts[MAPS - 1] = 0;
    }

    /// Returns the bytes that the set has allocated.
    pub fn ram_bytes(&self) -> usize {
        self.maps.iter().map(|map| map.capacity() * size_of::<u64>()).sum()
    }

    fn place(&self, key: u64) -> (usize, u64) {
        let at = mix(key) & self.mask;
        ((at / u64::from(u64::BITS)) as usize, 1 << (at % u64::from(u64::BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_told_until_the_second_checkpoint() {
        let mut lost = Lost::new(1000);
        assert!(lost.is_empty());
        let key = 7;
        lost.checkpoint_begins();
        lost.add(key);
        assert!(lost.has(key) && !lost.has(8) && !lost.is_empty());
        // This checkpoint began before the loss.
        lost.checkpoint_is_durable();
        lost.checkpoint_begins();
        // The previous checkpoint failed.
        lost.checkpoint_begins();
        lost.checkpoint_is_durable();
        assert!(lost.has(key), "an entry that waited may be in the log behind it");
        lost.checkpoint_begins();
        assert!(lost.has(key));
        lost.checkpoint_is_durable();
        assert!(!lost.has(key) && lost.is_empty());
    }
}
