//! What the tests of replays share: traces beside the checkout, replaying them, and seeded randomness.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};

use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{Content, ReplayCache},
    replay::own_content,
    tally::Tally,
};
use larder_trace::{Op, OpenOptions, Record};

/// The folder of traces beside the checkout, or `None` with a printed line.
pub fn traces(test: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: {test} (no folder shared/traces beside the checkout)");
    }
    found
}

/// All records of a trace.
pub fn read(path: &Path) -> impl Iterator<Item = Record> {
    let reader = larder_trace::open(path, None, OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    reader.map(|record| record.unwrap_or_else(|error| panic!("{error}")))
}

/// The chunks that a trace without content refers to, one after the other.
pub fn references(path: &Path, chunk_bytes: u32) -> Vec<u32> {
    let records = larder_trace::open(path, None, OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let chunks = larder_trace::chunks(records, chunk_bytes).expect("a size of chunks");
    chunks.map(|chunk| chunk.expect("a record").lba.try_into().expect("a number of 32 bits")).collect()
}

/// Reads all of `references`, each with its own content.
pub fn replay_reads(cache: &mut impl ReplayCache, references: &[u32], chunk_bytes: u32) -> Tally {
    let mut tally = Tally::default();
    for &lba in references {
        let lba = u64::from(lba);
        tally.read(cache.read(Lba(lba), &own_content(Lba(lba), chunk_bytes)));
    }
    tally
}

/// Replays records with content, each of one whole chunk.
pub fn replay_contents(cache: &mut impl ReplayCache, records: &[Record], chunk_bytes: u32) -> Tally {
    let mut tally = Tally::default();
    for record in records {
        assert_eq!(record.len_bytes, u64::from(chunk_bytes));
        let lba = Lba(record.offset_bytes / record.len_bytes);
        let content = record.content.expect("a trace with content");
        let fingerprint = Fingerprint(content.fingerprint.to_u128().to_be_bytes());
        let content = Content { fingerprint, stored_bytes: chunk_bytes };
        match record.op {
            Op::Read => tally.read(cache.read(lba, &content)),
            Op::Write => tally.write(cache.write(lba, &content)),
            Op::Trim => cache.trim(lba),
            Op::Flush => cache.flush(),
        }
    }
    tally
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the same seed gives the same run on every machine.
pub struct Rng(u64);

impl Rng {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6c61_7264_6572)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// A number below `n`, small ones more often.
    pub fn skewed(&mut self, n: u64) -> u64 {
        let bound = 1 + self.below(n);
        self.below(bound)
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, of which there are some.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Runs `test` for each seed; a panic is preceded by the seed that made it.
pub fn for_seeds(seeds: std::ops::Range<u64>, test: impl Fn(u64)) {
    struct Tell(u64);
    impl Drop for Tell {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with seed {}", self.0);
            }
        }
    }
    for seed in seeds {
        let tell = Tell(seed);
        test(seed);
        std::mem::forget(tell);
    }
}
