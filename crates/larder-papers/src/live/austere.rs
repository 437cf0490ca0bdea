//! AustereCache's experiments on time: Figures 11, 12 and 13 (§5.5, Exp#7 to Exp#9).
//!
//! Chunks have 32 KiB, caches are in write-back, requests those of the paper's synthetic traces
//! (§5.1). CD-LRU-D is `d-lru`, CD-ARC-D `d-arc`, CD-ARC-DC `cd-arc`. AC-D and AC-DC are `austere`
//! without compression and with it.
//!
//! It does not count indices, hits and writes saved; the rest of this crate does.

mod cpu;
mod index;
mod threads;
mod throughput;

use super::{Clocks, LiveRun, Source, load::request, rig::CacheOf};
use crate::{Heading, StandIn, profile, request::PaperRequest};
use larder_device::throttled::Profile;
use larder_engine::designs::DESIGNS;
use larder_trace::generate::{ZipfConfig, ZipfTrace};

const PAPER: &str = "AustereCache (ATC '20)";
const CHUNK_BYTES: u32 = 32 << 10;
const DISK: Profile = Profile::Hdd7200;
const FLASH: Profile = Profile::SataSsd;
/// Working set and disk of the synthetic traces.
const WORKING_SET_BYTES: f64 = 128.0 * (1 << 20) as f64;
const DISK_BYTES: u64 = 5 << 30;
/// The caches' share of the working set.
const CACHE_SHARE: f64 = 0.5;
const SEED: u64 = 20;

const WEBVM: StandIn = StandIn {
    name: "WebVM",
    about: "profile webvm@austere",
    scale: 0.03,
    records: |scale| profile("webvm@austere", scale),
};

/// The paper's experiments.
pub static LIVE: &[LiveRun] = &[
    LiveRun {
        heading: Heading {
            name: "austere-fig11",
            paper: PAPER,
            figure: "Figure 11 (Exp#7)",
            about: "throughput by I/O deduplication ratio and by write-to-read ratio",
        },
        source: Source::Made {
            name: "Synthetic",
            about: "requests by Zipf's law with constant 1, of 32 KiB, in 128 MiB of a disk of 5 GiB",
            scale: 0.2,
        },
        clocks: Clocks::Either,
        run: throughput::run,
    },
    LiveRun {
        heading: Heading {
            name: "austere-fig12",
            paper: PAPER,
            figure: "Figure 12 (Exp#8)",
            about: "microseconds of fingerprint, compression, index lookup and index update",
        },
        source: Source::Traces(&[WEBVM]),
        clocks: Clocks::RealOnly("what it shows is computing"),
        run: cpu::run,
    },
    LiveRun {
        heading: Heading {
            name: "austere-fig13",
            paper: PAPER,
            figure: "Figure 13 (Exp#9)",
            about: "throughput by number of threads",
        },
        source: Source::Made {
            name: "Synthetic",
            about: "the same as for Figure 11, seven writes to three reads",
            scale: 0.1,
        },
        clocks: Clocks::RealOnly("what it shows is computing on several threads"),
        run: threads::run,
    },
];

/// A variant of the paper, or another design.
struct Variant {
    name: &'static str,
    design: &'static str,
    compress: bool,
}

/// Returns the engine's variants: the paper's by its names, then all other designs.
fn variants() -> Vec<Variant> {
    let known = [
        ("CD-LRU-D", "d-lru", false),
        ("CD-ARC-D", "d-arc", false),
        ("AC-D", "austere", false),
        ("CD-ARC-DC", "cd-arc", true),
        ("AC-DC", "austere", true),
    ];
    let others = DESIGNS.iter().map(|design| (design.name, design.name, true));
    let others = others.filter(|(_, name, _)| known.iter().all(|(_, design, _)| design != name));
    known.into_iter().chain(others).map(|(name, design, compress)| Variant { name, design, compress }).collect()
}

impl Variant {
    fn cache(&self, data_bytes: u64) -> Result<CacheOf, String> {
        Ok(CacheOf { compress: self.compress, ..CacheOf::named(self.design, CHUNK_BYTES, data_bytes)? })
    }
}

/// Returns a synthetic trace at a scale.
fn synthetic(scale: f64, dedup: f64, write_to_read: f64, requests: u64) -> Result<Vec<PaperRequest>, String> {
    let config = ZipfConfig {
        storage_bytes: DISK_BYTES,
        working_set_bytes: (WORKING_SET_BYTES * scale) as u64,
        chunk_bytes: CHUNK_BYTES,
        io_dedup_ratio: dedup,
        write_to_read,
        requests,
        seed: SEED,
        ..ZipfConfig::default()
    };
    let trace = ZipfTrace::new(config).map_err(|error| error.to_string())?;
    let requests: Result<_, _> = trace.map(|record| record.map(|record| request(&record))).collect();
    requests.map_err(|error| error.to_string())
}

/// Returns the bytes of a cache for it.
fn cache_bytes(scale: f64) -> u64 {
    (WORKING_SET_BYTES * scale * CACHE_SHARE) as u64
}
