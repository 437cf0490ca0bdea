//! The bytes of a fingerprint: its own, as compressible as the trace says.
//!
//! A block begins with its fingerprint; random bytes drawn from it follow, and zeroes to the end.
//! LZ4 shrinks the block to about the size that the trace gives. (zstd makes a few bytes less.)
//!
//! Invariants: the same fingerprint, size and length give the same bytes, on every machine. Other
//! fingerprints give other bytes. A trace's fingerprint has one content under all sizes that the
//! trace gives it ([`ContentSizes`]): the first counts. So any reading of a trace from its
//! beginning comes to the same bytes, also for a part of it.
//!
//! It does not notice that a fingerprint has several sizes.

use larder_device::rng::{Rng, mix64};
use larder_trace::{ContentId, TraceContent};
use std::collections::HashMap;

/// Bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = 16;
/// LZ4's overhead: a byte for so many literals or bytes of a match, and the ends of the block.
const LZ4_RUN_BYTES: usize = 255;
const LZ4_ENDS_BYTES: usize = 16;

/// The content of a block, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Zeroes.
    Zero,
    /// The bytes of a fingerprint.
    Of {
        /// The fingerprint.
        fingerprint: ContentId,
        /// The compressed size, or the whole size if it is unknown.
        stored_bytes: u32,
    },
}

impl Bytes {
    /// Returns the bytes of a trace's content at this place; [`ContentSizes`] has its first size.
    pub fn of(content: &TraceContent) -> Bytes {
        match content.is_zero {
            true => Bytes::Zero,
            false => {
                Bytes::Of { fingerprint: content.fingerprint, stored_bytes: content.stored_bytes.unwrap_or(u32::MAX) }
            }
        }
    }

    /// Fills `out`, a whole block, with it.
    pub fn fill(&self, out: &mut [u8]) {
        let Bytes::Of { fingerprint, stored_bytes } = *self else { return out.fill(0) };
        let random = random_bytes(stored_bytes as usize, out.len());
        let (drawn, zeroes) = out.split_at_mut(random);
        zeroes.fill(0);
        let [a, b] = fingerprint.0;
        let mut rng = Rng::new(mix64(a ^ mix64(b ^ mix64(stored_bytes.into()))));
        let (words, rest) = drawn.as_chunks_mut::<8>();
        let mut own = [a, b].into_iter();
        for word in words {
            *word = own.next().unwrap_or_else(|| rng.next_u64()).to_le_bytes();
        }
        rest.copy_from_slice(&rng.next_u64().to_le_bytes()[..rest.len()]);
    }

    /// Returns whether `found` has this content; `scratch` is as long.
    pub fn is(&self, found: &[u8], scratch: &mut [u8]) -> bool {
        let Some(scratch) = scratch.get_mut(..found.len()) else { return false };
        self.fill(scratch);
        scratch == found
    }
}

/// The size of each fingerprint of a trace: the first that the trace gives.
///
/// AustereCache's generator draws a new size at each write of a content. With those sizes, a
/// duplicate would not have the bytes of its original.
///
/// Memory: 40 bytes at most for each fingerprint.
#[derive(Default)]
pub struct ContentSizes {
    /// By a hash of the fingerprint.
    ///
    /// If two collide, the second has the first's size, everywhere in this trace.
    first: HashMap<u64, u32>,
}

impl ContentSizes {
    /// Returns the bytes of the trace's next content.
    pub fn bytes(&mut self, content: &TraceContent) -> Bytes {
        let said = Bytes::of(content);
        let Bytes::Of { fingerprint, stored_bytes } = said else { return said };
        let [a, b] = fingerprint.0;
        let stored_bytes = *self.first.entry(mix64(a ^ mix64(b))).or_insert(stored_bytes);
        Bytes::Of { fingerprint, stored_bytes }
    }
}

/// Returns how many bytes of a block of `len` are random, so that it compresses to `stored`.
fn random_bytes(stored: usize, len: usize) -> usize {
    let least = FINGERPRINT_BYTES.min(len);
    if stored >= len {
        return len;
    }
    let beside = LZ4_ENDS_BYTES + (len - stored) / LZ4_RUN_BYTES;
    let copied = stored.saturating_sub(beside) * LZ4_RUN_BYTES / (LZ4_RUN_BYTES + 1);
    copied.clamp(least, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_trace::Provenance;

    fn bytes(number: u64, stored_bytes: Option<u32>, len: usize) -> Vec<u8> {
        let fingerprint = ContentId([mix64(number), 7 + mix64(7)]);
        let content = TraceContent { fingerprint, stored_bytes, is_zero: false, provenance: Provenance::Recorded };
        let mut out = vec![0xaa; len];
        Bytes::of(&content).fill(&mut out);
        out
    }

    #[test]
    fn content_has_its_identity_and_its_size() {
        for len in [512, 4096, 8192, 32768] {
            for share in [5, 10, 25, 50, 75, 95] {
                let stored = len * share / 100;
                let a = bytes(1, Some(stored as u32), len);
                assert_eq!(a, bytes(1, Some(stored as u32), len), "the same twice");
                assert!(a != bytes(2, Some(stored as u32), len));
                let packed = lz4::block::compress(&a, None, false).expect("it fits").len();
                let off = packed.abs_diff(stored);
                assert!(off <= 24 + stored / 100, "{packed} of {len} bytes instead of {stored}");
            }
            let whole = bytes(1, None, len);
            assert!(lz4::block::compress(&whole, None, false).expect("it fits").len() >= len);
        }
        assert!(bytes(1, Some(1), 512) != bytes(2, Some(1), 512), "as small as can be, and still itself");
    }

    #[test]
    fn a_fingerprint_keeps_the_first_size_that_a_trace_says() {
        let content = |number, stored_bytes, is_zero| TraceContent {
            fingerprint: ContentId([number, 9]),
            stored_bytes,
            is_zero,
            provenance: Provenance::Recorded,
        };
        let mut sizes = ContentSizes::default();
        let first = sizes.bytes(&content(1, Some(700), false));
        assert_eq!(first, Bytes::of(&content(1, Some(700), false)));
        let unsized_first = sizes.bytes(&content(2, None, false));
        for later in [Some(700), Some(900), None] {
            assert_eq!(sizes.bytes(&content(1, later, false)), first);
            assert_eq!(sizes.bytes(&content(2, later, false)), unsized_first);
            assert_eq!(sizes.bytes(&content(3, later, true)), Bytes::Zero);
        }
        assert_eq!(sizes.bytes(&content(3, Some(44), false)), Bytes::of(&content(3, Some(44), false)));
    }

    #[test]
    fn zeroes_are_zeroes_and_a_wrong_bit_shows() {
        let zero = TraceContent {
            fingerprint: ContentId([1, 1]),
            stored_bytes: Some(100),
            is_zero: true,
            provenance: Provenance::Recorded,
        };
        let mut scratch = [1; 512];
        assert!(Bytes::of(&zero).is(&[0; 512], &mut scratch));
        let mut found = bytes(3, Some(200), 512);
        let of = Bytes::Of { fingerprint: ContentId([mix64(3), 7 + mix64(7)]), stored_bytes: 200 };
        assert!(of.is(&found, &mut scratch));
        for at in [0, 15, 16, 199, 511] {
            found[at] ^= 4;
            assert!(!of.is(&found, &mut scratch), "byte {at}");
            found[at] ^= 4;
        }
    }
}
