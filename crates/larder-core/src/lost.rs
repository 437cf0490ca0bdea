//! Which addresses, or hashes of them, a design lost by itself, as far as a crash may bring them back: those that are in the last
//! checkpoint, or in the log behind it. Whoever overwrites such an address has to log that, though the design does not know it any more.
//!
//! It is a bitmap of hashes: it may take an address for lost that is not, and never the other way. What was lost before the last
//! checkpoint but one began has no entry in the log any more, for each checkpoint ends with a commit of all that waited.
//!
//! Invariants: what was lost is told until a checkpoint that began after another one had ended, which began after the loss, is durable.
//!
//! What it does not do: know what was logged.

use crate::types::mix;

/// Bits for each entry that there is room for, in each of the maps.
const BITS_PER_ENTRY: u64 = 2;
/// How many maps there are.
const MAPS: usize = 3;

/// See the module.
pub struct Lost {
    mask: u64,
    /// Lost before the last durable checkpoint began; since then; since the one began that is being made.
    maps: [Vec<u64>; MAPS],
}

impl Lost {
    /// Bytes for each entry at most: twice as many bits as there have to be.
    pub const BYTES_MAX: u64 = (MAPS as u64 * BITS_PER_ENTRY * 2).div_ceil(u8::BITS as u64);

    /// For so many entries.
    pub fn new(entries: u64) -> Lost {
        let bits = Lost::bits_for(entries);
        Lost { mask: bits - 1, maps: std::array::from_fn(|_| vec![0; (bits / u64::from(u64::BITS)) as usize]) }
    }

    /// Bytes that it allocates for so many entries.
    pub fn bytes_for(entries: u64) -> u64 {
        MAPS as u64 * Lost::bits_for(entries) / u64::from(u8::BITS)
    }

    /// Bits of a map.
    fn bits_for(entries: u64) -> u64 {
        (entries * BITS_PER_ENTRY).next_power_of_two().max(u64::BITS.into())
    }

    /// An entry is lost.
    pub fn add(&mut self, key: u64) {
        let (word, bit) = self.place(key);
        self.maps[MAPS - 1][word] |= bit;
    }

    /// All entries are lost.
    pub fn add_all(&mut self) {
        self.maps[MAPS - 1].fill(u64::MAX);
    }

    /// Whether this one may be lost.
    pub fn has(&self, key: u64) -> bool {
        let (word, bit) = self.place(key);
        self.maps.iter().any(|map| map[word] & bit != 0)
    }

    /// A checkpoint begins; one that had begun before failed.
    pub fn checkpoint_begins(&mut self) {
        let [_, since, now] = &mut self.maps;
        since.iter_mut().zip(now.iter()).for_each(|(since, now)| *since |= now);
        now.fill(0);
    }

    /// It is durable.
    pub fn checkpoint_is_durable(&mut self) {
        self.maps.rotate_left(1);
        self.maps[MAPS - 1].fill(0);
    }

    /// Bytes that it has allocated.
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
        let key = 7;
        lost.checkpoint_begins();
        lost.add(key);
        assert!(lost.has(key) && !lost.has(8));
        // This one began before.
        lost.checkpoint_is_durable();
        lost.checkpoint_begins();
        // It failed.
        lost.checkpoint_begins();
        lost.checkpoint_is_durable();
        assert!(lost.has(key), "an entry that waited may be in the log behind it");
        lost.checkpoint_begins();
        assert!(lost.has(key));
        lost.checkpoint_is_durable();
        assert!(!lost.has(key));
    }
}
