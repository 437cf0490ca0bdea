//! The written data: text-like data that LZ4 halves, and noise that it does not, each chunk unique.
//!
//! Invariants: a seed gives the same bytes everywhere. A chunk's first 8 bytes are its stamp. The
//! stamp makes the chunk unique, and later shows that a read returned the right one.
//!
//! It does not imitate a particular application; compressors behave on it about as on text.

use larder_device::{IoBuf, SharedBuf, rng::Rng, rng::mix64};

/// Bytes of a template, and of one request that fills a cache.
pub const PIECE_BYTES: usize = 1 << 20;
/// Different pieces; beyond them only the stamps differ.
const PIECES: usize = 16;
/// Words of the made-up language.
const WORDS: usize = 3000;
/// Percentage of repetitions in place of words.
const REPEATS_PERCENT: u64 = 45;

/// The compressibility of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// LZ4 halves it, about.
    Text,
    /// Nothing shrinks it.
    Noise,
}

/// A source of pieces.
pub struct Source {
    pieces: Vec<Vec<u8>>,
    chunk_bytes: usize,
    salt: u64,
}

impl Source {
    /// Makes a source of chunks of `chunk_bytes`. Different seeds give different chunks.
    pub fn new(kind: DataKind, chunk_bytes: usize, seed: u64) -> Source {
        let mut rng = Rng::new(seed);
        let words: Vec<Vec<u8>> = (0..WORDS)
            .map(|_| {
                let len = 2 + rng.index(4) + rng.index(6);
                (0..len).map(|_| b"etaoinsrhldcumfpgwybvk"[(rng.unit() * rng.unit() * 22.0) as usize]).collect()
            })
            .collect();
        let pieces = (0..PIECES)
            .map(|_| {
                let mut piece = vec![0; PIECE_BYTES];
                match kind {
                    DataKind::Noise => rng.fill(&mut piece),
                    DataKind::Text => write_text(&mut piece, &words, &mut rng),
                }
                piece
            })
            .collect();
        Source { pieces, chunk_bytes, salt: rng.next_u64() }
    }

    /// Returns the stamp of chunk `number`.
    pub fn stamp(&self, number: u64) -> [u8; 8] {
        mix64(number ^ self.salt).to_le_bytes()
    }

    /// Returns a piece whose first chunk has number `first`, the next `first + 1`, and so on.
    pub fn piece(&self, first: u64) -> IoBuf {
        let index = first as usize * self.chunk_bytes / PIECE_BYTES % PIECES;
        let mut piece = IoBuf::copy_of(self.pieces.get(index).expect("the index is below the number of pieces"));
        for (number, chunk) in (first..).zip(piece.chunks_mut(self.chunk_bytes)) {
            chunk[..8].copy_from_slice(&self.stamp(number));
        }
        piece
    }

    /// Returns the chunks `first..`, `bytes` of them in whole pieces.
    pub fn pieces(&self, first: u64, bytes: usize) -> Vec<SharedBuf> {
        let step = PIECE_BYTES / self.chunk_bytes;
        let firsts = (first..).step_by(step).take(bytes / PIECE_BYTES);
        firsts.map(|first| self.piece(first).freeze()).collect()
    }
}

/// Writes words, few of them frequent and most rare, with a repetition of earlier text now and
/// then. Any text, log or source file looks so.
fn write_text(out: &mut [u8], words: &[Vec<u8>], rng: &mut Rng) {
    /// The longest distance of a repetition, in bytes.
    const BACK_MAX: usize = 2000;
    let mut at = 0;
    while at < out.len() {
        if at > BACK_MAX && rng.chance(REPEATS_PERCENT, 100) {
            let from = at - 40 - rng.index(BACK_MAX - 40);
            let len = (8 + rng.index(24)).min(out.len() - at);
            out.copy_within(from..from + len, at);
            at += len;
            continue;
        }
        let skewed = rng.unit().powi(3);
        let word = words.get((skewed * words.len() as f64) as usize).map_or(&b"a"[..], Vec::as_slice);
        for &byte in word.iter().chain(b" ").take(out.len() - at) {
            out[at] = byte;
            at += 1;
        }
    }
}

/// Returns LZ4's compression ratio of the source's chunks, over one piece.
pub fn lz4_ratio(source: &Source) -> f64 {
    let piece = source.piece(0);
    let stored: usize = piece
        .chunks(source.chunk_bytes)
        .map(|chunk| lz4::block::compress(chunk, None, false).map_or(chunk.len(), |out| out.len().min(chunk.len())))
        .sum();
    piece.len() as f64 / stored as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_halved_and_noise_is_not() {
        for chunk in [4096, 8192] {
            let text = lz4_ratio(&Source::new(DataKind::Text, chunk, 1));
            assert!((1.75..2.25).contains(&text), "{chunk}: {text}");
            assert!(lz4_ratio(&Source::new(DataKind::Noise, chunk, 1)) < 1.01);
        }
    }

    #[test]
    fn chunks_differ() {
        let source = Source::new(DataKind::Text, 4096, 7);
        let (a, b) = (source.piece(0), source.piece(16 * 256));
        assert_eq!(a[8..4096], b[8..4096]);
        assert_ne!(a[..8], b[..8]);
        assert_eq!(a[4096..4104], source.stamp(1));
    }
}
