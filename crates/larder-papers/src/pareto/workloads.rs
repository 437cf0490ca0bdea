//! A trace of each generator, small enough that a run of all takes minutes.
//!
//! Profiles are those of CacheDedup, in chunks of 4 KiB; other papers have other figures of the
//! same recordings.
//!
//! It replays none.

use super::cells::CHUNK_BYTES;
use crate::{Records, SEED, StandIn, profile};
use larder_trace::{
    TraceResult,
    generate::{
        BootStorm, BootStormConfig, Bursts, BurstsConfig, RandomReads, RandomReadsConfig, Restore, RestoreConfig,
        Snapshots, SnapshotsConfig, SyntheticBoot, SyntheticBootConfig, ZipfConfig, ZipfTrace,
    },
};

/// Bytes of the touched addresses at a scale of 1.
const WORKING_SET_BYTES: f64 = (192u64 << 20) as f64;
/// Requests at a scale of 1.
const REQUESTS: f64 = 250_000.0;
/// A working set of random reads is so many times a cache.
const WORKING_SET_RATIO: f64 = 4.0;

/// The traces.
pub(super) const GENERATED: &[StandIn] = &[
    StandIn { name: "Zipf", about: "zipf, 192 MiB touched, three reads a write", scale: 1.0, records: zipf },
    StandIn { name: "RandomReads", about: "random reads, each content four times", scale: 1.0, records: random_reads },
    StandIn { name: "BootStorm", about: "24 machines boot at once", scale: 1.0, records: boot_storm },
    StandIn { name: "Snapshots", about: "snapshots, 40 days of 192 MiB", scale: 1.0, records: snapshots },
    StandIn { name: "Restore", about: "8 days of 64 MiB, written and read back", scale: 1.0, records: restore },
    StandIn { name: "Bursts", about: "bursts of small requests, 17% duplicates", scale: 1.0, records: bursts },
    profiled("WebVM", "profile webvm@cachededup", 0.03, |scale| profile("webvm@cachededup", scale)),
    profiled("Homes", "profile homes@cachededup", 0.015, |scale| profile("homes@cachededup", scale)),
    profiled("Mail", "profile mail@cachededup", 0.0008, |scale| profile("mail@cachededup", scale)),
    profiled("Hadoop", "profile hadoop@cachededup", 0.04, |scale| profile("hadoop@cachededup", scale)),
];

const fn profiled(
    name: &'static str,
    about: &'static str,
    scale: f64,
    records: fn(f64) -> TraceResult<Records<'static>>,
) -> StandIn {
    StandIn { name, about, scale, records }
}

fn scaled(amount: f64, scale: f64) -> u64 {
    (amount * scale) as u64
}

fn zipf(scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(ZipfTrace::new(ZipfConfig {
        working_set_bytes: scaled(WORKING_SET_BYTES, scale),
        chunk_bytes: CHUNK_BYTES,
        write_to_read: 1.0 / 3.0,
        requests: scaled(REQUESTS, scale),
        seed: SEED,
        ..ZipfConfig::default()
    })?))
}

fn random_reads(scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(RandomReads::new(RandomReadsConfig {
        cache_bytes: scaled(WORKING_SET_BYTES / WORKING_SET_RATIO, scale),
        working_set_ratio: WORKING_SET_RATIO,
        dedup_ratio: 4.0,
        chunk_bytes: CHUNK_BYTES,
        requests: scaled(REQUESTS, scale),
        seed: SEED,
        ..RandomReadsConfig::default()
    })?))
}

fn boot_storm(scale: f64) -> TraceResult<Records<'static>> {
    let base = SyntheticBootConfig::default();
    let boot_bytes = scaled(base.boot_bytes as f64, scale);
    let boot = SyntheticBoot::new(SyntheticBootConfig { boot_bytes, seed: SEED, ..base })?;
    let config = BootStormConfig { vms: 24, disk_bytes: base.disk_bytes, seed: SEED, ..BootStormConfig::default() };
    Ok(Box::new(BootStorm::new(boot.collect::<TraceResult<Vec<_>>>()?, config)?))
}

fn days(image_bytes: f64, days: u32, scale: f64) -> SnapshotsConfig {
    let image_bytes = scaled(image_bytes, scale);
    SnapshotsConfig { image_bytes, days, seed: SEED, ..SnapshotsConfig::default() }
}

fn snapshots(scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(Snapshots::new(days(WORKING_SET_BYTES, 40, scale))?))
}

fn restore(scale: f64) -> TraceResult<Records<'static>> {
    let days = days(WORKING_SET_BYTES / 3.0, 8, scale);
    Ok(Box::new(Restore::new(move || Snapshots::new(days), RestoreConfig::default())?))
}

fn bursts(scale: f64) -> TraceResult<Records<'static>> {
    let config = BurstsConfig {
        seconds: 3600.0,
        blocks_written: 120_000,
        request_blocks: (1, 8),
        write_share: 0.6,
        duplication: 0.17,
        footprint_blocks: 60_000,
        burst_requests: 16,
        seed: SEED,
    };
    Ok(Box::new(Bursts::new(config.scaled(scale))?))
}
