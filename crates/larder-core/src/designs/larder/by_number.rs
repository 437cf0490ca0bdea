//! A map by numbers, for few of them.

use crate::types::mix;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Spreads numbers.
#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = mix(self.0 ^ u64::from(byte)));
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = mix(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(value);
    }
}

/// A map by numbers.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;
