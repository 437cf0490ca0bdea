//! The shared part of the tests of replays: traces, their replay, and seeded randomness.

#[path = "../../../larder-core/tests/common/mod.rs"]
mod seeded;

pub use seeded::{Rng, for_seeds};
use std::path::{Path, PathBuf};

use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{Content, ReplayCache},
    replay::own_content,
    tally::Tally,
};
use larder_trace::{FormatId, Op, ReaderOptions, Record};

/// Returns the folder of traces beside the checkout, or prints a line and returns `None`.
pub fn traces(test: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: {test} (no folder shared/traces beside the checkout)");
    }
    found
}

/// Returns all records of a trace whose file names its format.
pub fn read(path: &Path) -> impl Iterator<Item = Record> {
    let reader = larder_trace::open(path, None, ReaderOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    reader.map(|record| record.unwrap_or_else(|error| panic!("{error}")))
}

/// Returns the chunks that a trace without content refers to, one after the other.
pub fn references(path: &Path, format: FormatId, chunk_bytes: u32) -> Vec<u32> {
    let records = larder_trace::open(path, Some(format), ReaderOptions::default());
    let records = records.unwrap_or_else(|error| panic!("{error}"));
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
        let content = Content { fingerprint, stored_bytes: content.stored_bytes.unwrap_or(chunk_bytes) };
        match record.op {
            Op::Read => tally.read(cache.read(lba, &content)),
            Op::Write => tally.write(cache.write(lba, &content)),
            Op::Trim => cache.trim(lba),
            Op::Flush => cache.flush(),
        }
    }
    tally
}
