//! Traces with the published figures of FIU's WebVM, Homes and Mail, and of CacheDedup's Hadoop.
//!
//! Sources: CacheDedup Table 2 (blocks of 4 KiB); AustereCache Table 2 (chunks of 32 KiB); Nitro
//! §5.2 (size of the file systems, share of it accessed, write-to-read ratio) and §2 with Figure
//! 1 (deduplication to about 2.0 at 4 KiB). Their figures differ, so each paper has profiles of its
//! own. Nitro's and AustereCache's profiles take the number of I/Os from CacheDedup, since all
//! three papers replay the same recordings. With 32 KiB each such I/O is a chunk. GB are read as
//! 2^30 bytes.
//!
//! A profile fixes total I/O, working set, unique data and write-to-read ratio. A trace has them
//! exactly, but for rounding and the share of first reads. All else is ours:
//!
//! - The working set grows with the square root of time.
//! - Other requests go to addresses already touched, the k-th of them in proportion to 1/k (writes
//!   by age, reads by age or recency, as often).
//! - Repeated content is drawn likewise.
//! - New addresses come in runs of eight chunks.
//!
//! Invariants: memory is 8 bytes for each chunk of the working set.
//!
//! It does not have times, request sizes or anything else of the recordings.

use super::within;
use crate::{
    error::{TraceError, TraceResult},
    record::{Op, Record},
    rng::TraceRng,
    synthetic::{Compressibility, made_content, skewed},
    zipf::Permutation,
};

const GIB: f64 = (1u64 << 30) as f64;
/// Adjacent chunks whose first touches follow one another.
const RUN_CHUNKS: u64 = 8;

/// The figures that a paper prints of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadProfile {
    /// Trace and paper.
    pub name: &'static str,
    /// The source of the figures.
    pub source: &'static str,
    /// Bytes of a chunk: each request is one.
    pub chunk_bytes: u32,
    /// The disk, in GiB.
    pub disk_gib: f64,
    /// Reads and writes in all, in GiB.
    pub io_gib: f64,
    /// Size of the distinct addresses, in GiB.
    pub working_set_gib: f64,
    /// Size of the distinct content, in GiB.
    pub unique_gib: f64,
    /// Writes per read.
    pub write_to_read: f64,
}

const CACHEDEDUP: &str = "CacheDedup Table 2";
const AUSTERE: &str = "AustereCache Table 2; number of I/Os from CacheDedup Table 2";
const NITRO: &str = "Nitro 5.2 and Figure 1; number of I/Os from CacheDedup Table 2";

const fn profile(name: &'static str, source: &'static str, chunk_bytes: u32, figures: [f64; 5]) -> WorkloadProfile {
    let [disk_gib, io_gib, working_set_gib, unique_gib, write_to_read] = figures;
    WorkloadProfile { name, source, chunk_bytes, disk_gib, io_gib, working_set_gib, unique_gib, write_to_read }
}

/// The profiles. For Nitro the working set is the file system times the accessed share. Unique data
/// is all I/O over 2.0.
pub const PROFILES: [WorkloadProfile; 10] = [
    profile("webvm@cachededup", CACHEDEDUP, 4096, [70.0, 54.5, 2.1, 23.4, 3.6]),
    profile("homes@cachededup", CACHEDEDUP, 4096, [470.0, 67.3, 5.9, 44.4, 31.5]),
    profile("mail@cachededup", CACHEDEDUP, 4096, [500.0, 1741.0, 57.1, 171.3, 8.1]),
    profile("hadoop@cachededup", CACHEDEDUP, 4096, [100.0, 23.6, 14.4, 3.7, 0.4]),
    profile("webvm@austere", AUSTERE, 32 << 10, [70.0, 8.0 * 54.5, 2.71, 69.37, 3.24]),
    profile("homes@austere", AUSTERE, 32 << 10, [470.0, 8.0 * 67.3, 19.19, 240.00, 10.81]),
    profile("mail@austere", AUSTERE, 32 << 10, [500.0, 8.0 * 1741.0, 59.01, 983.78, 5.09]),
    profile("webvm@nitro", NITRO, 4096, [70.0, 54.5, 70.0 * 0.053, 54.5 / 2.0, 3.6]),
    profile("homes@nitro", NITRO, 4096, [470.0, 67.3, 470.0 * 0.058, 67.3 / 2.0, 4.2]),
    profile("mail@nitro", NITRO, 4096, [500.0, 1741.0, 500.0 * 0.115, 1741.0 / 2.0, 4.3]),
];

impl WorkloadProfile {
    /// Returns the profile with a name.
    pub fn named(name: &str) -> TraceResult<WorkloadProfile> {
        PROFILES.into_iter().find(|profile| profile.name == name).ok_or_else(|| {
            let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            TraceError::parameter(format!("no trace profile {name:?}; there are {}", names.join(", ")))
        })
    }

    /// Converts a size in GiB to chunks, at a scale.
    fn chunks(&self, gib: f64, scale: f64) -> u64 {
        (gib * GIB * scale / f64::from(self.chunk_bytes)).round() as u64
    }
}

/// The trace of a profile.
pub struct ProfileTrace {
    profile: WorkloadProfile,
    compress: Compressibility,
    seed: u64,
    rng: TraceRng,
    runs: Permutation,
    requests: u64,
    working_set: u64,
    made: u64,
    writes_left: u64,
    /// The content of each touched address, in the order of the first touch.
    held: Vec<u64>,
    contents_left: u64,
    contents: u64,
    /// Expected remaining requests that can bring content: writes and first reads.
    chances_left: f64,
}

impl ProfileTrace {
    /// Makes a trace of `scale` times the profile's sizes. The scale 1.0 is all of it; 0.01 a
    /// hundredth of requests, addresses and content.
    pub fn new(
        profile: WorkloadProfile,
        scale: f64,
        compress: Compressibility,
        seed: u64,
    ) -> TraceResult<ProfileTrace> {
        within("a scale", scale, 0.0..=1000.0)?;
        let chunks = |gib| profile.chunks(gib, scale);
        let (requests, working_set, contents) =
            (chunks(profile.io_gib), chunks(profile.working_set_gib), chunks(profile.unique_gib));
        let writes = (requests as f64 * profile.write_to_read / (1.0 + profile.write_to_read)).round() as u64;
        let first_reads = working_set as f64 * (1.0 - writes as f64 / requests.max(1) as f64);
        let chances = writes as f64 + first_reads;
        if working_set == 0 || contents == 0 || working_set > requests || contents as f64 > chances {
            let message = format!("the scale {scale} of {} leaves too few requests: choose a larger one", profile.name);
            return Err(TraceError::parameter(message));
        }
        let disk = chunks(profile.disk_gib).max(working_set);
        Ok(ProfileTrace {
            profile,
            compress,
            seed,
            rng: TraceRng::new(seed),
            runs: Permutation::new(disk.div_ceil(RUN_CHUNKS), seed),
            requests,
            working_set,
            made: 0,
            writes_left: writes,
            held: Vec::new(),
            contents_left: contents,
            contents: 0,
            chances_left: chances,
        })
    }

    /// Returns the number of requests in all.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Draws content for a request that can bring some. It is new as often as new content is left
    /// to place, else repeated.
    fn draw(&mut self) -> u64 {
        let is_new = self.rng.unit() * self.chances_left < self.contents_left as f64;
        self.chances_left = (self.chances_left - 1.0).max(0.0);
        if self.contents_left > 0 && (is_new || self.contents == 0) {
            self.contents_left -= 1;
            self.contents += 1;
            return self.contents - 1;
        }
        let rank = skewed(&mut self.rng, self.contents);
        if self.rng.chance(0.5) { rank - 1 } else { self.contents - rank }
    }

    /// Returns the number of a request's address, in the order of first touches. A new address has
    /// the number of addresses so far.
    fn address(&mut self, is_write: bool) -> u64 {
        let touched = self.held.len() as u64;
        let share = self.made as f64 / self.requests as f64;
        let wanted = (self.working_set as f64 * share.sqrt()).ceil() as u64;
        if touched < wanted.min(self.working_set) {
            return touched;
        }
        let rank = skewed(&mut self.rng, touched);
        if is_write || self.rng.chance(0.5) { rank - 1 } else { touched - rank }
    }
}

impl Iterator for ProfileTrace {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.made == self.requests {
            return None;
        }
        let left = self.requests - self.made;
        self.made += 1;
        let is_write = self.rng.below(left) < self.writes_left;
        self.writes_left -= u64::from(is_write);
        let address = self.address(is_write);
        let is_first = address == self.held.len() as u64;
        let content = if is_write || is_first { self.draw() } else { *self.held.get(address as usize)? };
        match self.held.get_mut(address as usize) {
            Some(held) => *held = content,
            None => self.held.push(content),
        }
        let chunk = self.runs.apply(address / RUN_CHUNKS) * RUN_CHUNKS + address % RUN_CHUNKS;
        let bytes = u64::from(self.profile.chunk_bytes);
        let op = if is_write { Op::Write } else { Op::Read };
        let mut record = Record::new(self.made, op, chunk * bytes, bytes);
        record.content = Some(made_content(self.seed, content, self.profile.chunk_bytes, &self.compress));
        Some(Ok(record))
    }
}
