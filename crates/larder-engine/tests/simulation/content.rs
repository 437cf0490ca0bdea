//! The content of sectors: a [`Value`] in 32 bits, from which all 512 bytes follow, and back.
//!
//! Invariants: two sectors have the same bytes exactly if they have the same value. A sector that
//! mixes two writes, or holds anything else, has no value.
//!
//! It does not know the place of a value.

use crate::sector::{Value, WriteNumber};
use larder_core::types::SECTOR_BYTES;
use larder_device::rng::mix64;

/// The value of a sector of zeroes.
pub const ZERO: Value = 0;
/// Most sectors of one write.
pub const WRITE_SECTORS_MAX: usize = 1 << 10;
/// Write numbers are below this.
pub const WRITES_MAX: u32 = 1 << 19;
/// Contents of the pool, which many chunks share, are below this.
pub const POOL_MAX: u32 = 1 << 16;
/// The pool's contents repeat after this many sectors: 128 KiB, the largest chunk.
const POOL_SECTORS: usize = 256;

/// The content of a write's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Bytes that are nowhere else, and do not compress.
    Noise,
    /// Bytes that are nowhere else, and compress.
    Text,
    /// Content with this number, laid out by address: chunks with the same content are duplicates.
    Pool(u32),
    /// Zeroes.
    Zeroes,
}

// The two lowest bits of a value tell its kind; they are 0 only for the value zero.
const NOISE: u32 = 1;
const TEXT: u32 = 2;
const POOL: u32 = 3;

/// Returns the value of sector number `index` of write `write`, at sector `at` of the volume.
pub fn value(fill: Fill, write: WriteNumber, index: usize, at: usize) -> Value {
    debug_assert!(write < WRITES_MAX && index < WRITE_SECTORS_MAX);
    match fill {
        Fill::Zeroes => ZERO,
        Fill::Noise => (((write << 10) | index as u32) << 2) | NOISE,
        Fill::Text => (((write << 10) | index as u32) << 2) | TEXT,
        Fill::Pool(content) => ((((content % POOL_MAX) << 8) | (at % POOL_SECTORS) as u32) << 2) | POOL,
    }
}

/// Returns a readable name of a value.
pub fn name(value: Value) -> String {
    let payload = value >> 2;
    match value & 3 {
        0 if value == ZERO => "zeroes".to_owned(),
        POOL => format!("p{}", payload >> 8),
        _ => format!("v{}", payload >> 10),
    }
}

fn words(value: Value) -> (u64, u64, u64) {
    let first = u64::from(value) | (u64::from(!value) << 32);
    let second = mix64(first);
    // Text and every second content of the pool repeat one word; the rest is noise.
    let repeats = value & 3 == TEXT || (value & 3 == POOL && (value >> 10) & 1 == 1);
    (first, second, if repeats { 0 } else { 0x9e37_79b9_7f4a_7c15 })
}

fn next(word: u64, step: u64) -> u64 {
    // With a step of 0 the word stays.
    if step == 0 { word } else { word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(step).rotate_left(23) }
}

/// Fills a sector.
pub fn write_sector(value: Value, out: &mut [u8]) {
    if value == ZERO {
        out.fill(0);
        return;
    }
    let (first, mut word, step) = words(value);
    let (head, rest) = out.split_at_mut(8);
    head.copy_from_slice(&first.to_le_bytes());
    for piece in rest.chunks_exact_mut(8) {
        piece.copy_from_slice(&word.to_le_bytes());
        word = next(word, step);
    }
}

/// Returns the value of a sector; `None` for bytes that [`write_sector`] did not make.
pub fn read_sector(bytes: &[u8]) -> Option<Value> {
    let (head, rest) = bytes.split_at(8);
    let first = u64::from_le_bytes(head.try_into().expect("eight bytes"));
    let mut pieces = rest.chunks_exact(8).map(|piece| u64::from_le_bytes(piece.try_into().expect("eight bytes")));
    if first == 0 {
        return pieces.all(|word| word == 0).then_some(ZERO);
    }
    let value = first as u32;
    let (expected, mut word, step) = words(value);
    let whole = pieces.all(|piece| {
        let same = piece == word;
        word = next(word, step);
        same
    });
    (whole && first == expected && value & 3 != 0).then_some(value)
}

/// Checks of this module.
pub mod checks {
    use super::*;

    /// Values and bytes follow from each other, and mixtures have no value.
    pub fn values_and_bytes_follow_from_each_other() {
        let fills = [Fill::Noise, Fill::Text, Fill::Pool(3), Fill::Pool(4), Fill::Zeroes];
        let mut bytes = [0; SECTOR_BYTES];
        for fill in fills {
            let value = value(fill, 77, 5, 300);
            write_sector(value, &mut bytes);
            assert_eq!(read_sector(&bytes), Some(value), "{fill:?}");
            for at in [0, 9, SECTOR_BYTES - 1] {
                bytes[at] ^= 4;
                assert_eq!(read_sector(&bytes), None, "{fill:?} with a flipped bit in byte {at}");
                bytes[at] ^= 4;
            }
            bytes[8..].fill(0x5a);
            assert_eq!(read_sector(&bytes), None, "{fill:?}, and then something else");
        }
        assert_ne!(value(Fill::Noise, 77, 5, 300), value(Fill::Noise, 77, 6, 300));
        assert_eq!(value(Fill::Pool(3), 77, 5, 300), value(Fill::Pool(3), 78, 6, 300 + POOL_SECTORS));
        assert_eq!((name(value(Fill::Text, 77, 5, 0)).as_str(), name(ZERO).as_str()), ("v77", "zeroes"));
    }
}
