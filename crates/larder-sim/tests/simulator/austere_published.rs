//! AustereCache on the trace of its authors' generator, beside the results of their own code.

use std::path::Path;

use crate::common::traces;
use larder_core::{Fingerprint, Lba, austere::AustereConfig};
use larder_sim::{
    austere::AustereCache,
    cache::{Content, ReplayCache, WritePolicy},
    traffic::Traffic,
};
use larder_trace::{Op, ReaderOptions};

const CHUNK: u32 = 32 << 10;

/// Reads, read hits, traffic.
fn replay(path: &Path, config: AustereConfig) -> (u64, u64, Traffic) {
    let mut cache = AustereCache::new(config, WritePolicy::Through).expect("a cache");
    let (mut reads, mut hits) = (0, 0);
    for record in larder_trace::open(path, None, ReaderOptions::default()).expect("opens") {
        let record = record.expect("a record");
        let content = record.content.expect("content");
        let lba = Lba(record.offset_bytes / u64::from(CHUNK));
        let content = Content {
            fingerprint: Fingerprint(content.fingerprint.to_u128().to_be_bytes()),
            stored_bytes: content.stored_bytes.expect("a size"),
        };
        match record.op {
            Op::Read => {
                reads += 1;
                hits += u64::from(cache.read(lba, &content));
            }
            _ => drop(cache.write(lba, &content)),
        }
    }
    assert_eq!(cache.wrong_hits(), 0);
    cache.core().check();
    (reads, hits, cache.traffic())
}

/// The output of the authors' code for this trace.
///
/// It has read hits in percent, and MB (10^6 bytes) written to flash as data and as metadata, if
/// noted. Its counter of data also counts each metadata slot (`IOModule::write` adds to both), so
/// that its 2086 MB have the 64 MB in them. Ours must be near in either reading.
struct Published {
    hit_percent: f64,
    /// The largest difference in points. The authors' code leaves the order of equals to its sort;
    /// ours has a hand (departure 10 of `austere.rs`). The hand costs hits if Zipf's law draws the
    /// contents: the newest goes last, even if the oldest is popular.
    points: f64,
    written: Option<(f64, f64)>,
}

fn compare(test: &str, has_compression: bool, published: &Published) {
    let Some(traces) = traces(test) else { return };
    let path = traces.join("public/austere-synthetic/syn-rw7to3-dup50.txt.zst");
    let config = AustereConfig {
        lba_entries: Some(4096),
        ..AustereConfig::new(1024 * u64::from(CHUNK), CHUNK, has_compression)
    };
    let (reads, hits, traffic) = replay(&path, config);
    assert_eq!((reads, traffic.origin_chunks_written), (49_195, 114_645));
    let hit_percent = hits as f64 / reads as f64 * 100.0;
    let data = traffic.flash_data_bytes_written as f64 / 1e6;
    let metadata = traffic.flash_metadata_bytes_written as f64 / 1e6;
    println!("{test}: {hit_percent:.2}% hits, {data:.1} MB of data, {metadata:.1} MB of metadata");
    assert!((hit_percent - published.hit_percent).abs() <= published.points, "{hit_percent:.2}% of reads hit");
    if let Some((published_data, published_metadata)) = published.written {
        let is_near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() <= 0.05;
        assert!(is_near(data, published_data), "{data:.1} MB of data");
        assert!(is_near(data + metadata, published_data), "{data:.1} MB and {metadata:.1} MB");
        assert!(is_near(metadata, published_metadata), "{metadata:.1} MB of metadata");
    }
}

#[test]
fn deduplication_and_compression() {
    let published = Published { hit_percent: 78.67, points: 1.5, written: Some((2086.0, 64.0)) };
    compare("deduplication_and_compression", true, &published);
}

#[test]
fn deduplication_alone() {
    compare("deduplication_alone", false, &Published { hit_percent: 68.68, points: 3.1, written: None });
}
