//! The content of each chunk of a trace by its own account: reads of another content are counted.
//!
//! The definition is that of `larder-lab trace info`, for chunks, and covers all cases. A chunk has
//! the content of its last write. After one trim covered it, it is zeroes. With neither, it has the
//! content of its first read. If a trim covers a part of a chunk, its content is unknown until a
//! write or the next read.
//!
//! Invariants: a sound trace has no such read, with one exception. A trim may cut through a block
//! that is composed with others to a chunk. Re-chunking keeps the old block until the next read of
//! it, which then contradicts that. In a trace without contradictions, a design that hits by
//! address gives the content that the read asks for.
//!
//! Memory: a slot of 17 bytes for each chunk that is read or written, and a range for each run of
//! trimmed chunks. The table of slots is 44 to 87% full.
//!
//! It does not tell contents apart whose fingerprints begin with the same 64 bits.

use std::collections::BTreeMap;

use hashbrown::{HashMap, hash_map::Entry};

use crate::cache::Content;

/// The beginning of a fingerprint; 0 is zeroes.
type Digest = u64;

/// An unknown content. One content in 2^64 has this digest, and is then not looked at.
const UNKNOWN: Digest = Digest::MAX;

/// The content of a read beside the earlier requests of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// No request touched the chunk before.
    First,
    /// It agrees with the earlier requests.
    Expected,
    /// It contradicts them.
    Contradicts,
}

impl Seen {
    fn again(agrees: bool) -> Seen {
        if agrees { Seen::Expected } else { Seen::Contradicts }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct KnownContents {
    /// Goes before `trimmed`.
    chunks: HashMap<u64, Digest>,
    /// Runs of trimmed chunks: the first, and the one after the last. They do not touch.
    trimmed: BTreeMap<u64, u64>,
}

impl KnownContents {
    /// Takes a read of `content`.
    pub fn read(&mut self, lba: u64, content: &Content) -> Seen {
        let found = digest_of(content);
        let was_trimmed = !self.trimmed.is_empty() && self.is_trimmed(lba);
        match self.chunks.entry(lba) {
            Entry::Vacant(entry) if !was_trimmed => {
                entry.insert(found);
                Seen::First
            }
            Entry::Vacant(entry) => Seen::again(*entry.insert(0) == found),
            Entry::Occupied(mut entry) if *entry.get() == UNKNOWN => {
                entry.insert(found);
                Seen::Expected
            }
            Entry::Occupied(entry) => Seen::again(*entry.get() == found),
        }
    }

    /// Takes a write.
    pub fn write(&mut self, lba: u64, content: &Content) {
        self.chunks.insert(lba, digest_of(content));
    }

    /// Makes a run of chunks zeroes.
    pub fn trim(&mut self, first: u64, count: u64) {
        for lba in first..first + count {
            self.chunks.remove(&lba);
        }
        let (mut start, mut end) = (first, first + count);
        // Runs that it touches or covers become one with it.
        while let Some((&at, &other_end)) = self.trimmed.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.trimmed.remove(&at);
            (start, end) = (start.min(at), end.max(other_end));
        }
        self.trimmed.insert(start, end);
    }

    /// Makes the contents of a run of chunks unknown.
    pub fn forget(&mut self, first: u64, count: u64) {
        for lba in first..first + count {
            if let Some(held) = self.chunks.get_mut(&lba) {
                *held = UNKNOWN;
            } else if self.is_trimmed(lba) {
                self.chunks.insert(lba, UNKNOWN);
            }
        }
    }

    fn is_trimmed(&self, lba: u64) -> bool {
        self.trimmed.range(..=lba).next_back().is_some_and(|(_, &end)| lba < end)
    }
}

fn digest_of(content: &Content) -> Digest {
    let [a, b, c, d, e, f, g, h, ..] = content.fingerprint.0;
    Digest::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::own_content;
    use larder_core::{Fingerprint, Lba, types::mix};
    use std::collections::HashMap;

    fn content(number: u64) -> Content {
        match number {
            0 => Content { fingerprint: Content::ZEROES, stored_bytes: 1 },
            _ => own_content(Lba(number), 4096),
        }
    }

    #[test]
    fn a_chunk_holds_what_was_written_or_trimmed_or_first_read() {
        let mut held = KnownContents::default();
        let (first, same, other) = (Seen::First, Seen::Expected, Seen::Contradicts);
        assert_eq!([7, 7, 8, 7].map(|n| held.read(1, &content(n))), [first, same, other, same]);
        held.write(1, &content(8));
        assert_eq!([7, 7, 8].map(|n| held.read(1, &content(n))), [other, other, same]);
        held.trim(0, 3);
        assert_eq!([7, 0].map(|n| held.read(1, &content(n))), [other, same]);
        assert_eq!(held.read(2, &content(7)), other, "zeroes, though it was never touched");
        held.forget(0, 1);
        assert_eq!([7, 8, 7].map(|n| held.read(0, &content(n))), [same, other, same]);
    }

    #[test]
    fn it_is_what_a_map_of_all_chunks_says() {
        const CHUNKS: u64 = 40;
        for seed in 0..50 {
            let mut held = KnownContents::default();
            let mut model: HashMap<u64, u64> = HashMap::new();
            for step in 0..400 {
                let bits = mix(seed << 32 | step);
                let (lba, number) = (bits % CHUNKS, bits >> 16 & 3);
                let count = (1 + (bits >> 24) % 8).min(CHUNKS - lba);
                match bits >> 40 & 7 {
                    0 => {
                        held.trim(lba, count);
                        model.extend((lba..lba + count).map(|lba| (lba, 0)));
                    }
                    1 => {
                        held.forget(lba, count);
                        model.retain(|at, _| !(lba..lba + count).contains(at));
                    }
                    2 | 3 => {
                        held.write(lba, &content(number));
                        model.insert(lba, number);
                    }
                    _ => {
                        let contradicts = *model.entry(lba).or_insert(number) != number;
                        let found = held.read(lba, &content(number)) == Seen::Contradicts;
                        assert_eq!(found, contradicts, "seed {seed}, step {step}");
                    }
                }
                let runs: Vec<_> = held.trimmed.iter().collect();
                assert!(runs.windows(2).all(|two| two[0].1 < two[1].0), "seed {seed}, step {step}: {runs:?}");
            }
        }
    }

    #[test]
    fn no_fingerprint_is_needed_beyond_its_beginning() {
        let mut fingerprint = Fingerprint([1; 16]);
        let mut held = KnownContents::default();
        assert_eq!(held.read(0, &Content { fingerprint, stored_bytes: 1 }), Seen::First);
        fingerprint.0[7] = 2;
        assert_eq!(held.read(0, &Content { fingerprint, stored_bytes: 1 }), Seen::Contradicts);
    }
}
