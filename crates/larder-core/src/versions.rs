//! Versions of chunks, striped. A fill carries the version from before its origin read, and a stale
//! one is dropped.
//!
//! Invariants: every change of a chunk's data bumps its stripe. If two chunks share a stripe, a
//! fill may be dropped without need, which costs only a later miss.

use crate::types::{Lba, mix};

const STRIPES: usize = 1 << 17;

/// Version counters.
pub struct Versions(Box<[u32]>);

impl Default for Versions {
    fn default() -> Self {
        Versions(vec![0; STRIPES].into_boxed_slice())
    }
}

impl Versions {
    fn stripe(lba: Lba) -> usize {
        mix(lba.0) as usize % STRIPES
    }

    /// Returns the version of `lba`.
    pub fn get(&self, lba: Lba) -> u32 {
        self.0[Self::stripe(lba)]
    }

    /// Outdates every running fill of `lba`.
    pub fn bump(&mut self, lba: Lba) {
        let stripe = &mut self.0[Self::stripe(lba)];
        *stripe = stripe.wrapping_add(1);
    }

    /// Outdates every running fill of `count` chunks from `first`.
    pub fn bump_range(&mut self, first: Lba, count: u64) {
        if count >= STRIPES as u64 {
            self.0.iter_mut().for_each(|stripe| *stripe = stripe.wrapping_add(1));
        } else {
            (first.0..first.0 + count).for_each(|lba| self.bump(Lba(lba)));
        }
    }
}
