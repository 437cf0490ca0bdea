//! Contents that a peer remembers without their data, in the order in which they came.
//!
//! Invariants: at most as many as at its making, and one entry for each content.
//!
//! It has 56 bits of a fingerprint. Two contents that share them would be taken for each other.

use larder_core::{
    slotted::Addresses,
    types::{Fingerprint, Lba},
};

/// The bits of a fingerprint that tell contents apart.
const KEY_BITS: u32 = 56;

/// See the module.
pub(super) struct Ghosts {
    keys: Addresses<(), 1>,
    max: usize,
}

impl Ghosts {
    /// Creates an empty queue of at most so many.
    pub fn new(max: u32) -> Self {
        // One more, because the newest comes before the oldest goes.
        Ghosts { keys: Addresses::new(max as usize + 1), max: max as usize }
    }

    /// Adds a content as the newest, and forgets the oldest beyond the most.
    pub fn add(&mut self, content: &Fingerprint) {
        match self.keys.find(key(content)) {
            Some(known) => self.keys.move_to(known, 0),
            None => _ = self.keys.insert(key(content), 0, ()),
        }
        self.cut(self.max);
    }

    /// Forgets the oldest beyond so many.
    pub fn cut(&mut self, max: usize) {
        while self.keys.len(0) > max
            && let Some(oldest) = self.keys.oldest(0)
        {
            self.keys.remove(oldest);
        }
    }

    /// Takes a content out, and returns whether it was there.
    pub fn take(&mut self, content: &Fingerprint) -> bool {
        let found = self.keys.find(key(content));
        found.into_iter().for_each(|known| self.keys.remove(known));
        found.is_some()
    }

    pub fn ram_bytes(&self) -> usize {
        self.keys.ram_bytes()
    }

    /// Returns the maximum bytes for at most so many.
    pub fn ram_bytes_max(max: u32) -> usize {
        Ghosts::new(max).keys.ram_bytes_max()
    }
}

fn key(content: &Fingerprint) -> Lba {
    let bits = u128::from_le_bytes(content.0) as u64;
    Lba(bits >> (u64::BITS - KEY_BITS))
}
