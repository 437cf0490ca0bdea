//! The dirty list: which chunks the origin does not have, by address, with the sequence number of the write
//! (Nitro §3.1, "dirty list").
//!
//! Invariants: a chunk is listed exactly while its entry in the LBA index carries the dirty flag.
//!
//! What it does not do: say where the data is; the LBA index does.

use crate::types::Lba;
use std::collections::BTreeMap;

/// The list.
#[derive(Default)]
pub struct DirtyList(BTreeMap<u64, u64>);

impl DirtyList {
    /// Number of dirty chunks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is dirty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists `lba`, or gives it a newer sequence number.
    pub fn insert(&mut self, lba: Lba, seq: u64) {
        self.0.insert(lba.0, seq);
    }

    /// Takes `lba` off the list.
    pub fn remove(&mut self, lba: Lba) -> Option<u64> {
        self.0.remove(&lba.0)
    }

    /// The sequence number of `lba`'s dirty data.
    pub fn get(&self, lba: Lba) -> Option<u64> {
        self.0.get(&lba.0).copied()
    }

    /// Up to `max` dirty chunks from `from` on, by address.
    pub fn from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        self.0.range(from.0..).take(max).map(|(&lba, &seq)| (Lba(lba), seq)).collect()
    }
}
