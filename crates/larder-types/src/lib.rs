//! The words of the cache as types: addresses, slots, places, fingerprints, sector bitmaps.
//!
//! Role: decisions, engine, codec and the model of a drive share these words. [`recency`] is the
//! list by last use that designs and drives keep.
//!
//! Invariants: no I/O, clock, thread, randomness.
//!
//! It leaves their form on flash to `larder-format`.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod recency;

/// Bytes of the smallest unit that a client may write, and of one bit of a [`SectorMap`].
pub const SECTOR_BYTES: usize = 512;
/// The largest chunk, 128 KiB.
pub const CHUNK_BYTES_MAX: usize = 128 << 10;

/// Number of a chunk on the origin: byte offset divided by the chunk size. At most 2^40 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// Number of a slot on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// The first 128 bits of the keyed BLAKE3 hash of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

/// The location of a record on flash, with the data for reading and checking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The slot.
    pub slot: SlotId,
    /// The slot's generation at the write of the record. The place is dead when the slot's has
    /// moved on.
    pub generation: u32,
    /// Byte offset of the payload in the slot.
    pub offset: u32,
    /// Bytes of the payload as stored.
    pub stored_len: u32,
    /// Checksum of the payload and its identity.
    pub crc: u32,
    /// Encoding of the payload (the format's code; 0 is raw).
    pub encoding: u8,
}

/// The class of a slot: dirty and clean chunks are apart (Nitro §3.2, cache insertion path, step
/// 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamClass {
    /// Chunks that the origin has, too.
    Clean,
    /// Chunks that only the cache has.
    Dirty,
}

/// The valid 512-byte sectors of a fragment: bit `i` is sector `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorMap(pub [u64; 4]);

impl SectorMap {
    /// No sector.
    pub const EMPTY: SectorMap = SectorMap([0; 4]);

    /// Adds sectors `first..end`.
    pub fn set(&mut self, first: usize, end: usize) {
        for sector in first..end.min(256) {
            self.0[sector / 64] |= 1 << (sector % 64);
        }
    }

    /// Removes sectors `first..end`.
    pub fn clear(&mut self, first: usize, end: usize) {
        for sector in first..end.min(256) {
            self.0[sector / 64] &= !(1 << (sector % 64));
        }
    }

    /// Returns whether `sector` is held.
    pub fn has(&self, sector: usize) -> bool {
        sector < 256 && self.0[sector / 64] >> (sector % 64) & 1 == 1
    }

    /// Returns whether all of `first..end` are held.
    pub fn has_all(&self, first: usize, end: usize) -> bool {
        (first..end).all(|sector| self.has(sector))
    }

    /// Counts the held sectors.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the held runs as `first..end`, in order, among the first `sectors` sectors.
    pub fn runs(&self, sectors: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < sectors && !self.has(at) {
                at += 1;
            }
            if at >= sectors {
                return None;
            }
            let first = at;
            while at < sectors && self.has(at) {
                at += 1;
            }
            Some((first, at))
        })
    }

    /// Returns 32 bytes, bit `i` of byte `i / 8` first.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (piece, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            piece.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the 32 bytes of [`SectorMap::to_bytes`].
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let mut map = SectorMap::EMPTY;
        for (piece, word) in bytes.chunks_exact(8).zip(&mut map.0) {
            let mut eight = [0; 8];
            eight.copy_from_slice(piece);
            *word = u64::from_le_bytes(eight);
        }
        map
    }
}

/// Mixes an address into a hash: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sector_maps_find_runs_and_survive_bytes() {
        let mut map = SectorMap::EMPTY;
        map.set(3, 5);
        map.set(63, 66);
        map.set(255, 256);
        assert_eq!(map.runs(256).collect::<Vec<_>>(), [(3, 5), (63, 66), (255, 256)]);
        assert_eq!(map.count(), 6);
        assert!(map.has_all(63, 66) && !map.has_all(62, 64));
        assert_eq!(SectorMap::from_bytes(&map.to_bytes()), map);
    }
}
