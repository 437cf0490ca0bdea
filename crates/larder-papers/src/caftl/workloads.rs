//! The stand-ins for the eleven workloads.
//!
//! It replays none.

use crate::{Records, SEED, StandIn};
use larder_trace::{
    TraceResult,
    generate::{Bursts, BurstsConfig},
};

/// Makes a kind of workload, as it is generated.
const fn bursts(seconds: f64, blocks_written: u64, request_blocks: (u32, u32), duplication: f64) -> BurstsConfig {
    BurstsConfig {
        seconds,
        blocks_written,
        request_blocks,
        write_share: 0.7,
        duplication,
        footprint_blocks: blocks_written / 2,
        burst_requests: 32,
        seed: SEED,
    }
}

/// Makes small requests, few at a time, for hours.
const fn desktop(hours: f64) -> BurstsConfig {
    BurstsConfig { write_share: 0.6, burst_requests: 16, ..bursts(3600.0 * hours, 400_000, (1, 8), 0.17) }
}

/// Makes large writes of temporary data for minutes.
const fn hadoop(minutes: f64, blocks_written: u64, duplication: f64) -> BurstsConfig {
    bursts(60.0 * minutes, blocks_written, (32, 128), duplication)
}

/// Makes many writes, a checkpoint at a time.
const fn transactions(minutes: f64, request_blocks: (u32, u32), duplication: f64) -> BurstsConfig {
    let of = bursts(60.0 * minutes, 600_000, request_blocks, duplication);
    BurstsConfig { write_share: 0.85, footprint_blocks: 150_000, burst_requests: 256, ..of }
}

fn generated(config: BurstsConfig, scale: f64) -> TraceResult<Records<'static>> {
    Ok(Box::new(Bursts::new(config.scaled(scale))?))
}

macro_rules! workload {
    ($name:literal, $about:literal, $scale:literal, $config:expr) => {
        StandIn { name: $name, about: $about, scale: $scale, records: |scale| generated($config, scale) }
    };
}

/// The eleven workloads of §4.1.3.
pub(super) const WORKLOADS: &[StandIn] = &[
    workload!("d1", "12 hours of small requests in bursts of 16, 17% duplicates", 0.2, desktop(12.0)),
    workload!("d2", "19 hours of small requests in bursts of 16, 17% duplicates", 0.2, desktop(19.0)),
    workload!("h1", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 400_000, 0.17)),
    workload!("h2", "2 minutes of large writes, 44 MB, 16.6% duplicates", 1.0, hadoop(2.0, 11_264, 0.166)),
    workload!("h3", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 300_000, 0.17)),
    workload!("h4", "10 minutes of large writes, 17% duplicates", 0.2, hadoop(10.0, 200_000, 0.17)),
    workload!("h5", "2 minutes of large writes, 44 MB, 15% duplicates", 1.0, hadoop(2.0, 11_264, 0.15)),
    workload!("h6", "20 minutes of large writes, 28.1% duplicates", 0.2, hadoop(20.0, 400_000, 0.281)),
    workload!("h7", "40 minutes of large writes, 18% duplicates", 0.2, hadoop(40.0, 800_000, 0.18)),
    workload!(
        "t1",
        "30 minutes of bursts of 256 small writes, 5.8% duplicates",
        0.2,
        transactions(30.0, (1, 8), 0.058)
    ),
    workload!("t2", "4 hours of bursts of 256 larger writes, 17% duplicates", 0.2, transactions(240.0, (2, 32), 0.17)),
];
