//! Fuzz input as a stream of choices: numbers are taken off its front, and zeroes follow its end.
//!
//! Invariants: the same bytes make the same choices; every choice is possible with an input of any
//! length.
//!
//! It does not draw at random.

#![allow(dead_code, reason = "each crate that includes this file uses a part of it")]

/// Numbers at the ends of the ranges of fields.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x1000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
];

/// The rest of an input.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next byte, 0 past the end.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    /// Takes the next two bytes as a number.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes a number at the end of a range, or the next eight bytes as one.
    pub fn u64(&mut self) -> u64 {
        match self.byte() {
            edge @ 0..=15 => EDGES[usize::from(edge)],
            small @ 16..=127 => u64::from(small),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// Takes a number below `bound`, which is not 0; at most two bytes.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0..=256 => usize::from(self.byte()) % bound.max(1),
            _ => usize::from(self.u16()) % bound,
        }
    }

    /// Takes up to `max` bytes off the front.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(max.min(self.0.len()));
        self.0 = rest;
        head
    }
}

/// Overwrites 1, 2, 4 or 8 bytes of `bytes`; `input` names the place and the value. Most choices
/// fall into the first `front` bytes.
pub fn patch(bytes: &mut [u8], front: usize, input: &mut Input<'_>) {
    if bytes.is_empty() {
        return;
    }
    let choice = input.byte();
    let reach = if choice & 4 == 0 { front.clamp(1, bytes.len()) } else { bytes.len() };
    let at = input.below(reach);
    let value = input.u64().to_le_bytes();
    let width = (1 << (choice & 3)).min(bytes.len() - at);
    match choice & 8 {
        0 => bytes[at..at + width].copy_from_slice(&value[..width]),
        _ => bytes[at] ^= 1 << (value[0] & 7),
    }
}
