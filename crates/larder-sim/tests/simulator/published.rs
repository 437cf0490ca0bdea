//! Hit ratios of the designs with equal slots on public traces.
//!
//! They are compared with published ones and other implementations. They agree to the digit if the
//! algorithm leaves no choice.

use crate::common::{read, references, replay_contents, replay_reads, traces};
use larder_core::{
    arc::Arc,
    cd_arc::CdArc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{FlashSize, Slotted},
};
use larder_sim::{
    cache::{ReplayCache, WritePolicy},
    executor::{Executor, sizing::WeuSizing},
    slotted::SlottedCache,
};
use larder_trace::{FormatId, Record};

/// Returns the miss ratio of `references` in a cache of `design`.
fn miss_ratio(design: impl Slotted, references: &[u32], chunk_bytes: u32) -> f64 {
    let mut cache = SlottedCache::new(design, WritePolicy::Through, chunk_bytes);
    replay_reads(&mut cache, references, chunk_bytes).total_miss_ratio()
}

fn hit_percent(design: impl Slotted, references: &[u32]) -> String {
    format!("{:.2}", 100.0 * (1.0 - miss_ratio(design, references, 4096)))
}

#[test]
fn lru_and_arc_on_oltp() {
    let Some(traces) = traces("lru_and_arc_on_oltp") else { return };
    let oltp = references(&traces.join("public/arc-fast03/OLTP.lis.zst"), FormatId::ArcLis, 4096);
    for (pages, lru, arc) in [
        (1_000, "32.83", "38.95"),
        (2_000, "42.47", "46.08"),
        (5_000, "53.65", "55.25"),
        (10_000, "60.70", "61.87"),
        (15_000, "64.63", "65.40"),
    ] {
        assert_eq!(hit_percent(Lru::new(pages).unwrap(), &oltp), lru, "LRU of {pages} pages");
        assert_eq!(hit_percent(Arc::new(pages).unwrap(), &oltp), arc, "ARC of {pages} pages");
    }
}

#[test]
fn lru_and_arc_on_w106_and_p3() {
    let Some(traces) = traces("lru_and_arc_on_w106_and_p3") else { return };
    let w106 = references(&traces.join("public/cloudphysics/w106.trace.xz"), FormatId::BlockIds, 4096);
    let p3 = references(&traces.join("public/arc-fast03/P3.lis.zst"), FormatId::ArcLis, 4096);
    for (name, references, pages, lru, arc) in
        [("w106", w106, 50_000, "0.0666", "0.0676"), ("P3", p3, 32_768, "0.9643", "0.8289")]
    {
        let found = miss_ratio(Lru::new(pages).unwrap(), &references, 4096);
        assert_eq!(format!("{found:.4}"), lru, "LRU on {name}");
        let found = miss_ratio(Arc::new(pages).unwrap(), &references, 4096);
        assert_eq!(format!("{found:.4}"), arc, "ARC on {name}");
    }
}

/// Returns read hits in percent, and megabytes (10^6) of data written to flash.
fn replay_synthetic(design: impl Slotted, records: &[Record]) -> (f64, f64) {
    const CHUNK_BYTES: u32 = 32 << 10;
    let mut cache = SlottedCache::new(design, WritePolicy::Through, CHUNK_BYTES);
    let tally = replay_contents(&mut cache, records, CHUNK_BYTES);
    assert_eq!(tally.requests(), 163_840);
    (100.0 * tally.read_hit_ratio(), cache.traffic().flash_data_bytes_written as f64 / 1e6)
}

/// The D-LRU and D-ARC of AustereCache's authors, on a trace of their generator. It has 1024 chunks
/// and an index of 4096 addresses. Their D-LRU is Algorithm 1; their D-ARC departs from the paper
/// (see `larder-core/src/designs/d_arc.rs`).
#[test]
fn d_lru_and_d_arc_on_a_synthetic_trace() {
    let Some(traces) = traces("d_lru_and_d_arc_on_a_synthetic_trace") else { return };
    let path = traces.join("public/austere-synthetic/syn-rw7to3-dup50.txt.zst");
    let records: Vec<Record> = read(&path).collect();
    let (hits, megabytes) = replay_synthetic(DLru::new(1024, 4096).unwrap(), &records);
    println!("d-lru: {hits:.2}% read hits, {megabytes:.1} MB");
    assert_eq!((format!("{hits:.2}"), format!("{megabytes:.0}")), ("64.90".to_owned(), "3904".to_owned()));
    let (hits, megabytes) = replay_synthetic(DArc::new(1024, 2048).unwrap(), &records);
    println!("d-arc: {hits:.2}% read hits, {megabytes:.1} MB");
    assert!((hits - 75.69).abs() < 1.5, "{hits:.2}% read hits");
    assert!((megabytes / 3571.0 - 1.0).abs() < 0.05, "{megabytes:.1} MB");
}

/// The CD-ARC of AustereCache's authors on that trace, in WEUs of 2 MiB.
#[test]
fn cd_arc_on_a_synthetic_trace() {
    const CHUNK_BYTES: u32 = 32 << 10;
    let Some(traces) = traces("cd_arc_on_a_synthetic_trace") else { return };
    let path = traces.join("public/austere-synthetic/syn-rw7to3-dup50.txt.zst");
    let records: Vec<Record> = read(&path).collect();
    let sizing = WeuSizing {
        lba_entries: Some(4096),
        ..WeuSizing::new(FlashSize::DataChunks(1024), CHUNK_BYTES, WritePolicy::Through)
    };
    let mut cache = Executor::new(|config| Box::new(CdArc::new(config)), sizing.options().unwrap()).unwrap();
    let tally = replay_contents(&mut cache, &records, CHUNK_BYTES);
    let hits = 100.0 * tally.read_hit_ratio();
    let traffic = cache.traffic();
    let megabytes = traffic.flash_data_bytes_written as f64 / 1e6;
    println!("cd-arc: {hits:.2}% read hits, {megabytes:.1} MB of data, {traffic:?}");
    assert!((hits - 70.30).abs() < 1.5, "{hits:.2}% read hits");
    assert!((megabytes / 1843.0 - 1.0).abs() < 0.05, "{megabytes:.1} MB");
}
