//! (g) Writes with a FLUSH every 16 blocks: bytes written to flash for each byte stored.
//!
//! The writes are random blocks of one chunk over a large volume. Time is virtual, so that the
//! figure is the same in every run. Flash is like a SATA SSD, the origin like a disk of 7,200
//! turns. Tuning is the default, and destaging is on. *Stored* counts the payloads of records.
//! *Written* counts all bytes that go to flash: segments with their tables and padding, the
//! metadata log, checkpoints and superblocks.

use crate::{
    caches::options,
    data::{DataKind, PIECE_BYTES, Source},
    measure::Res,
    options::Options,
    report::{Aim, Row},
};
use larder_device::{
    WriteFlags,
    ram::RamDevice,
    rng::Rng,
    sim::SimRuntime,
    throttled::{Profile, Throttled},
};
use larder_engine::{Cache, Compression, Tuning, create};
use std::sync::Arc;

const BLOCKS_A_FLUSH: usize = 16;
const FLUSHES: usize = 4096;
const ORIGIN_BYTES: u64 = 4 << 30;
const FLASH_BYTES: u64 = 1 << 30;
const RATIO_AIM: f64 = 1.3;

/// Bytes a byte stored.
struct Written {
    all: f64,
    segments: f64,
    log: f64,
    metadata: f64,
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (chunk, kind, id) in [
        (4096, DataKind::Text, "g4.lz4"),
        (4096, DataKind::Noise, "g4.noise"),
        (8192, DataKind::Text, "g8.lz4"),
        (8192, DataKind::Noise, "g8.noise"),
    ] {
        let written = write(bench, chunk, kind)?;
        let data = if kind == DataKind::Text { "LZ4 2:1" } else { "incompressible" };
        let what = format!(
            "random {} KiB writes, chunks alike, FLUSH every {BLOCKS_A_FLUSH}, {data}: flash bytes a byte stored \
             (segments {:.3}, log {:.3}, checkpoints {:.3})",
            chunk >> 10,
            written.segments,
            written.log,
            written.metadata
        );
        rows.push(Row::aimed(id, what, written.all, Aim::AtMost(RATIO_AIM)));
    }
    Ok(rows)
}

fn write(bench: &Options, chunk: usize, kind: DataKind) -> Res<Written> {
    let sim = SimRuntime::timed(11);
    let flash = Throttled::new(RamDevice::new("flash", FLASH_BYTES, 512), Profile::SataSsd, sim.clone());
    let origin = Throttled::new(RamDevice::new("origin", ORIGIN_BYTES, 512), Profile::Hdd7200, sim.clone());
    let (flash, origin) = (Arc::new(flash), Arc::new(origin));
    let source = Source::new(kind, chunk, 6);
    let blocks = bench.scaled(FLUSHES) * BLOCKS_A_FLUSH;
    let written = sim.block_on(async {
        create(&*flash, ORIGIN_BYTES, &options(chunk, Compression::Lz4)).await?;
        let cache = Cache::open(flash, origin, sim.clone(), Tuning::default()).await?;
        let before = cache.status();
        let mut rng = Rng::new(12);
        let mut piece = source.piece(0).freeze();
        for block in 0..blocks {
            let at = block * chunk % PIECE_BYTES;
            if at == 0 {
                piece = source.piece(block as u64).freeze();
            }
            let offset = rng.below(ORIGIN_BYTES / chunk as u64) * chunk as u64;
            cache.write(offset, piece.slice(at..at + chunk), WriteFlags::default()).await?;
            if (block + 1) % BLOCKS_A_FLUSH == 0 {
                cache.flush().await?;
            }
        }
        let after = cache.status();
        let (then, now) = (before.counts, after.counts);
        let stored = (now.stored_bytes - then.stored_bytes) as f64;
        Ok::<Written, Box<dyn std::error::Error>>(Written {
            all: (after.flash_bytes_written - before.flash_bytes_written) as f64 / stored,
            segments: (now.flash_segment_bytes_written - then.flash_segment_bytes_written) as f64 / stored,
            log: (now.flash_log_bytes_written - then.flash_log_bytes_written) as f64 / stored,
            metadata: (now.flash_metadata_bytes_written - then.flash_metadata_bytes_written) as f64 / stored,
        })
    })?;
    sim.kill();
    Ok(written)
}
