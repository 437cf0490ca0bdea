//! The address regions that a trace has touched; a trim of everything is cut to them.
//!
//! Invariants: every added chunk lies in a remembered region, so the parts cut off a trim are in no
//! cache.
//!
//! It does not remember single chunks.

use std::collections::BTreeSet;

/// Chunks of a region, as a power of two.
const REGION_SHIFT: u32 = 16;
/// Regions that are looked up without the set.
const RECENT: usize = 256;

/// See the module.
pub struct TouchedPages {
    regions: BTreeSet<u64>,
    /// Regions that are in the set, by their last bits; `u64::MAX` if there is none.
    recent: Box<[u64; RECENT]>,
}

impl TouchedPages {
    /// Makes an empty set.
    pub fn new() -> TouchedPages {
        TouchedPages { regions: BTreeSet::new(), recent: Box::new([u64::MAX; RECENT]) }
    }

    /// Touches a chunk.
    #[inline]
    pub fn add(&mut self, lba: u64) {
        let region = lba >> REGION_SHIFT;
        let recent = &mut self.recent[region as usize % RECENT];
        if *recent != region {
            *recent = region;
            self.regions.insert(region);
        }
    }

    /// Returns the parts of a run of chunks in touched regions: first chunk and count, ascending.
    pub fn parts_of(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = first.saturating_add(count);
        let regions = if count == 0 { 1..1 } else { first >> REGION_SHIFT..((end - 1) >> REGION_SHIFT) + 1 };
        self.regions.range(regions).map(move |region| {
            let from = first.max(region << REGION_SHIFT);
            let to = end.min((region + 1) << REGION_SHIFT);
            (from, to - from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_cut_to_the_regions_that_were_touched() {
        let mut touched = TouchedPages::new();
        let parts = |touched: &TouchedPages, first, count| touched.parts_of(first, count).collect::<Vec<_>>();
        assert_eq!(parts(&touched, 0, u64::MAX), []);
        // Two regions with the same last bits, and one beside them.
        for lba in [5, 6, (RECENT as u64) << REGION_SHIFT, 3 << REGION_SHIFT | 9, 5] {
            touched.add(lba);
        }
        let region = 1 << REGION_SHIFT;
        assert_eq!(parts(&touched, 0, u64::MAX), [(0, region), (3 * region, region), (RECENT as u64 * region, region)]);
        assert_eq!(parts(&touched, 5, 1), [(5, 1)]);
        assert_eq!(parts(&touched, region - 1, 2), [(region - 1, 1)]);
        assert_eq!(parts(&touched, 2 * region, region), []);
        assert_eq!(parts(&touched, 2 * region, region + 1), [(3 * region, 1)]);
        assert_eq!(parts(&touched, 7, 0), []);
    }
}
