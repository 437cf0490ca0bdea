//! The rewritten regions of each neighbourhood: many of them stand for all of it.

use super::by_number::ByNumber;
use hashbrown::hash_map::Entry;

/// Regions of a neighbourhood.
const NEIGHBOURS: u64 = 64;
/// Rewritten regions from which on a whole neighbourhood counts as rewritten.
const REWRITTEN_MIN: u32 = 8;

/// Rewritten regions of each neighbourhood that has any.
#[derive(Default)]
pub struct Neighbourhoods(ByNumber<u64, u32>);

impl Neighbourhoods {
    /// Adds a rewritten region.
    pub fn add(&mut self, region: u64) {
        *self.0.entry(region / NEIGHBOURS).or_insert(0) += 1;
    }

    /// Forgets a rewritten region.
    pub fn forget(&mut self, region: u64) {
        if let Entry::Occupied(mut regions) = self.0.entry(region / NEIGHBOURS) {
            *regions.get_mut() -= 1;
            if *regions.get() == 0 {
                regions.remove();
            }
        }
    }

    /// Returns whether many regions around one are rewritten.
    pub fn is_rewritten(&self, region: u64) -> bool {
        self.0.get(&(region / NEIGHBOURS)).is_some_and(|&regions| regions >= REWRITTEN_MIN)
    }

    /// Returns whether no region is rewritten.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.0.allocation_size()
    }
}
