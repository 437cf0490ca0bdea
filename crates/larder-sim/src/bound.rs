//! The offline bound: the most reads that any cache could hit, with future and contents known.
//!
//! Role: [`BoundCollector`] takes the requests once, in order. [`BoundTrace`] then answers for any
//! capacity. Chunks take one place each ([`BoundTrace::read_hit_ratio_in_chunks`], exact) or as
//! many bytes as they compress to ([`BoundTrace::with_sizes`], an upper bound and a feasible lower
//! one).
//!
//! The game: the cache stores contents, each once. A read hits if the address's content at that
//! moment is stored. A content comes in only when it passes by, in a read or a write. It may be
//! passed over, and left out at any time. Metadata takes no space. Writes cost nothing and are no
//! misses, but bring their content. Trims bring nothing, and need not be told.
//!
//! An address that no request touched before is unknown: only the origin can tell its content. So a
//! first read misses, and brings its content ([`Knowledge::Addresses`]). An origin that reveals
//! contents without a read of them, such as one with recipes (Nitro §3.1), lets a first read hit
//! ([`Knowledge::Contents`]). Apart from that, addresses do not matter, only the sequence of
//! contents.
//!
//! No design that stores contents it has seen can beat the bound. A design forgets, takes space for
//! metadata, pads, or stores a content twice. A cache that fetches unrequested chunks could beat
//! it: nothing is prefetched here.
//!
//! The *intervals*: between request `i` and `i + 1` lies gap `i`. A read at `j` of a known content
//! that passed by before, last at `i`, is an interval. It is a hit exactly if the content is stored
//! over gaps `i` to `j - 1`. If a write of the content or a first read comes between, it brings the
//! content anew. Keeping the content until there is worth nothing and is no interval. A read that
//! ends no interval is a *compulsory miss*. The hits of a cache are a set of intervals that fits
//! the capacity over each gap. Each such set is the hits of some cache. The bound is the largest
//! set.
//!
//! The *bytes written* (`chosen.rs`): the cache of the lower bound writes a content when it begins
//! to be kept. No cache with as many hits writes fewer than the lower one of the two figures. One
//! of these caches writes the upper one.
//!
//! Departures: capacities are bytes of chunks as stored. The model leaves out units of 2 MiB,
//! padded records and a free unit. Each such rounding only takes from a design's hits, so the upper
//! bound stays one.
//!
//! Invariants: no randomness; the same requests give the same bounds. An upper bound is never below
//! the optimum, rounding of floating-point numbers included. A lower bound is reached by a cache
//! that was found.
//!
//! Memory: while collecting, 4 bytes a request and 4 a distinct content; while they grow, up to
//! three times that. The map from fingerprints has a slot of 21 bytes a content, 44 to 87% full.
//! After that, 20 bytes for each interval and 8 for each content, for each kind of knowledge. There
//! are at most as many intervals as reads. The further memory of a bound is stated beside its
//! computation.
//!
//! It does not read traces, or tell which design comes close.

mod bits;
mod chosen;
mod furthest;
mod intervals;
mod knowledge;
mod occupancy;
mod prices;
mod sized;

use std::fmt;

use hashbrown::{HashMap, hash_map::Entry};
use larder_core::Fingerprint;

use crate::cache::Content;
use intervals::{Appearance, Intervals, Passing, intervals};
pub use knowledge::Knowledge;
use sized::{KeptBounds, Sized};

/// The treatment of chunks of zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeroes {
    /// Each read of zeroes is a hit that takes no space.
    ///
    /// It bounds a design that maps zeroes without storing them: such a design knows them after a
    /// trim, too, before any zeroes pass by.
    #[default]
    Free,
    /// Zeroes are a content as any other: for designs that store them.
    Stored,
}

/// More requests than the bound can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRequests {
    /// The greatest number of requests that it takes.
    pub requests_max: u32,
}

impl fmt::Display for TooManyRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the offline bound takes traces of at most {} requests of chunks, and this one has more",
            self.requests_max
        )
    }
}

impl std::error::Error for TooManyRequests {}

/// Requests are numbered in 30 bits.
const REQUESTS_MAX: u32 = (1 << 30) - 1;

/// The bounds for a cache of one capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Reads of the trace, in chunks.
    pub reads: u64,
    /// The most reads that any cache hits.
    pub read_hits_upper: u64,
    /// The reads that some cache hits.
    pub read_hits_lower: u64,
    /// The least that any cache with `read_hits_lower` hits writes, in units of the capacity.
    pub written_lower: u64,
    /// The amount that some cache with `read_hits_lower` hits writes, in units of the capacity.
    pub written_upper: u64,
}

impl Bound {
    /// Returns the highest ratio of read hits to reads of any cache. 0 if there are no reads.
    pub fn read_hit_ratio_upper(&self) -> f64 {
        ratio(self.read_hits_upper, self.reads)
    }

    /// Returns a ratio of read hits to reads that some cache has. 0 if there are no reads.
    pub fn read_hit_ratio_lower(&self) -> f64 {
        ratio(self.read_hits_lower, self.reads)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Takes the requests of a trace, in order.
pub struct BoundCollector {
    zeroes: Zeroes,
    appearances: Vec<Appearance>,
    numbers: HashMap<Fingerprint, u32>,
    /// Sizes of contents, by their numbers.
    stored_bytes: Vec<u32>,
    zero_reads: ZeroReads,
    requests_max: u32,
}

/// Reads of free zeroes.
#[derive(Clone, Copy, Default)]
struct ZeroReads {
    /// All such reads.
    all: u64,
    /// Such reads of addresses that no request touched before.
    first: u64,
}

impl BoundCollector {
    /// Makes a collector without requests.
    pub fn new(zeroes: Zeroes) -> BoundCollector {
        BoundCollector {
            zeroes,
            appearances: Vec::new(),
            numbers: HashMap::new(),
            stored_bytes: Vec::new(),
            zero_reads: ZeroReads::default(),
            requests_max: REQUESTS_MAX,
        }
    }

    /// Takes a read of a chunk with `content`, whose address a request touched before.
    pub fn read(&mut self, content: &Content, is_zero: bool) -> Result<(), TooManyRequests> {
        self.add(content, is_zero, Passing::Read)
    }

    /// Takes a read of a chunk with `content`, whose address no request touched before.
    pub fn first_read(&mut self, content: &Content, is_zero: bool) -> Result<(), TooManyRequests> {
        self.add(content, is_zero, Passing::FirstRead)
    }

    /// Takes a write of `content`, or a read that does not count.
    pub fn write(&mut self, content: &Content, is_zero: bool) -> Result<(), TooManyRequests> {
        self.add(content, is_zero, Passing::Write)
    }

    fn add(&mut self, content: &Content, is_zero: bool, passing: Passing) -> Result<(), TooManyRequests> {
        if is_zero && self.zeroes == Zeroes::Free {
            self.zero_reads.all += u64::from(passing != Passing::Write);
            self.zero_reads.first += u64::from(passing == Passing::FirstRead);
            return Ok(());
        }
        if self.appearances.len() >= self.requests_max as usize {
            return Err(TooManyRequests { requests_max: self.requests_max });
        }
        // There are no more contents than requests.
        let next = self.stored_bytes.len() as u32;
        let number = match self.numbers.entry(content.fingerprint) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.stored_bytes.push(content.stored_bytes);
                *entry.insert(next)
            }
        };
        // Equal contents have equal sizes. If a trace errs, the smallest keeps the upper bound one.
        if let Some(bytes) = self.stored_bytes.get_mut(number as usize) {
            *bytes = content.stored_bytes.min(*bytes);
        }
        self.appearances.push(Appearance::new(number, passing));
        Ok(())
    }

    /// Ends the requests. O(n); takes 16 bytes a content, and up to 52 an interval, beside the
    /// collected ones.
    pub fn finish(self) -> BoundTraces {
        drop(self.numbers);
        let reads = self.appearances.iter().filter(|appearance| appearance.is_read()).count() as u64;
        let of = |knowledge| BoundTrace {
            requests: self.appearances.len() as u32,
            reads: reads + self.zero_reads.all,
            zero_hits: match knowledge {
                Knowledge::Addresses => self.zero_reads.all - self.zero_reads.first,
                Knowledge::Contents => self.zero_reads.all,
            },
            intervals: intervals(&self.appearances, &self.stored_bytes, knowledge),
        };
        BoundTraces { addresses: of(Knowledge::Addresses), contents: of(Knowledge::Contents) }
    }
}

/// A trace for caches of each [`Knowledge`].
pub struct BoundTraces {
    /// For caches that know addresses.
    pub addresses: BoundTrace,
    /// For caches whose origin reveals contents.
    pub contents: BoundTrace,
}

/// A trace as the bound sees it.
pub struct BoundTrace {
    /// Requests without those of free zeroes.
    requests: u32,
    /// Reads, those of free zeroes among them.
    reads: u64,
    /// Reads of free zeroes that hit.
    zero_hits: u64,
    intervals: Intervals,
}

impl BoundTrace {
    /// Returns the reads, in chunks.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns bounds for caches of these many bytes, if each chunk takes its stored size.
    ///
    /// They enclose the optimum. They equal it if all contents are of one size or all fit.
    /// Capacities of one call share work.
    ///
    /// O(n log n) for each capacity; memory 12 bytes a request and up to 108 an interval (see
    /// `sized.rs`).
    pub fn with_sizes(&self, capacities_bytes: &[u64]) -> Vec<Bound> {
        let sized = Sized::new(&self.intervals, self.requests);
        capacities_bytes.iter().map(|capacity| self.bound(sized.kept(*capacity))).collect()
    }

    /// Returns the optimal ratio of read hits for a cache of `capacity_chunks` chunks.
    ///
    /// It does not depend on the chunks' stored sizes. O(n log n); memory 2 bits a request and
    /// 80 bytes an interval.
    pub fn read_hit_ratio_in_chunks(&self, capacity_chunks: u64) -> f64 {
        self.ratio_of(furthest::kept(&self.intervals.all, self.requests, capacity_chunks, |_| 1).count())
    }

    /// Returns the highest ratio of read hits of any cache, for each of these many bytes.
    ///
    /// They are those of [`BoundTrace::with_sizes`], without the bytes written.
    pub fn read_hit_ratios_in_bytes(&self, capacities_bytes: &[u64]) -> Vec<f64> {
        let sized = Sized::new(&self.intervals, self.requests);
        capacities_bytes.iter().map(|capacity| self.ratio_of(sized.chosen(*capacity).1)).collect()
    }

    fn ratio_of(&self, kept: u64) -> f64 {
        ratio(self.zero_hits + kept, self.reads)
    }

    fn bound(&self, kept: KeptBounds) -> Bound {
        Bound {
            reads: self.reads(),
            read_hits_upper: self.zero_hits + kept.upper,
            read_hits_lower: self.zero_hits + kept.lower,
            written_lower: kept.written_lower,
            written_upper: kept.written_upper,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_a_trace_is_refused() {
        let mut collector = BoundCollector { requests_max: 2, ..BoundCollector::new(Zeroes::Free) };
        let content = Content { fingerprint: Fingerprint([7; 16]), stored_bytes: 1 };
        assert_eq!((collector.read(&content, false), collector.write(&content, false)), (Ok(()), Ok(())));
        let error = collector.read(&content, false).unwrap_err();
        assert!(error.to_string().contains("at most 2 requests"), "{error}");
        // Free zeroes need no number.
        assert_eq!(collector.read(&content, true), Ok(()));
    }
}
