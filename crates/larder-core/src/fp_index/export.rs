//! Export of the index, least recent first: at once, or piece by piece while the index changes.
//!
//! Invariants: no fingerprint is told twice.
//!
//! It does not check the generation of an entry.

use super::{FpIndex, hash_of};
use crate::types::{Fingerprint, Place};
use hashbrown::{HashMap, HashSet};

impl FpIndex {
    /// Returns all entries, least recent first: fingerprint and place, with the generation modulo
    /// 2^24.
    pub fn iter_oldest_first(&self) -> impl Iterator<Item = (Fingerprint, Place)> + '_ {
        let (mut at, superseded) = (self.by_use.oldest(), self.superseded());
        std::iter::from_fn(move || {
            let (i, entry) = (at, self.slab.get(at)?);
            at = entry.newer;
            let known = (Fingerprint(entry.fingerprint), Self::place_of(entry, (entry.packed >> 40) as u32));
            Some((!superseded.contains(&i)).then_some(known))
        })
        .flatten()
    }

    /// Begins a walk along all entries, least recent first.
    pub fn begin_walk(&mut self) {
        self.walk_begins = true;
    }

    /// Returns the next entries of the walk, with the generation modulo 2^24; `None` at the end.
    ///
    /// An entry comes once, and an entry from after the begin never. The first pieces are empty,
    /// one for each shard with waiting entries: settling a shard removes some.
    pub fn walk(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        if self.walk_begins && self.waiting > 0 {
            self.merge_some();
            return Some(Vec::new());
        }
        if std::mem::take(&mut self.walk_begins) {
            self.walk.begin(self.by_use.oldest(), self.len());
        }
        let slab = &self.slab;
        let seen = self.walk.next(|i| slab[i].newer)?;
        let known = |&i: &u32| {
            let entry = &slab[i];
            (Fingerprint(entry.fingerprint), Self::place_of(entry, (entry.packed >> 40) as u32))
        };
        Some(seen.iter().map(known).collect())
    }

    /// Returns the entries that waiting ones will replace in the tables.
    fn superseded(&self) -> HashSet<u32> {
        let mut superseded = HashSet::new();
        for shard in self.shards.iter().filter(|shard| !shard.waiting.is_empty()) {
            let mut newest: HashMap<[u8; 16], u32> = HashMap::new();
            for &i in &shard.waiting {
                let fingerprint = self.slab[i].fingerprint;
                let in_table = |&j: &u32| self.slab[j].fingerprint == fingerprint;
                let older = newest.insert(fingerprint, i);
                superseded.extend(older.or_else(|| shard.table.find(hash_of(&fingerprint), in_table).copied()));
            }
        }
        superseded
    }
}
