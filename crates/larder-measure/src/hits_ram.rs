//! (a) Random reads that hit, over RAM, against a copy and a checksum of as many bytes.
//!
//! There is one thread and no compression; chunk and request have one size. The base copies a
//! random chunk of an equally large memory into the same kind of buffer and takes its CRC32C. Both
//! memories are in huge pages if there are any. The cache's reads are one async loop under one
//! `block_on`, as in an embedder or a front end. The report also has the rate with a `block_on` for
//! each read.

use crate::{
    caches::{end, filled, only_hits, options, runtime},
    data::{DataKind, Source},
    devices::{FlatRam, Memory},
    measure::{OneCore, Res, Side, compare, time},
    options::Options,
    report::{Aim, Row},
};
use larder_device::{IoBuf, IoError, driver::block_on, ram::RamDevice, rng::Rng};
use larder_engine::{Cache, Compression};
use std::{hint::black_box, sync::Arc};

/// Bytes in the cache, and in the base's memory.
const SET_BYTES: u64 = 256 << 20;
/// Reads in a round, which take a millisecond, so that most rounds see no other process.
const ROUND_READS: usize = 1024;
const ROUNDS: usize = 3000;
const READS_PER_SECOND_AIM: f64 = 1e6;
const RATIO_AIM: f64 = 0.5;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, chunk) in [("4", 4096), ("8", 8192)] {
        rows.extend(one_size(bench, name, chunk)?);
    }
    Ok(rows)
}

fn one_size(bench: &Options, name: &str, chunk: usize) -> Res<Vec<Row>> {
    let _one = OneCore::pin()?;
    let source = Source::new(DataKind::Noise, chunk, 1);
    let flash = Arc::new(FlatRam::new(4 * SET_BYTES, 2 * SET_BYTES)?);
    let origin = Arc::new(RamDevice::new("origin", 4 * SET_BYTES, 512));
    let runtime = runtime(0);
    let cache = filled(flash, origin, runtime.clone(), &options(chunk, Compression::Off), (&source, SET_BYTES))?;
    let mut memory = Memory::new(SET_BYTES as usize)?;
    let memory = memory.bytes_mut();
    Rng::new(2).fill(memory);
    let (reads, rounds) = (ROUND_READS, bench.scaled(ROUNDS));
    let mut buf = Some(IoBuf::new(chunk));
    let result = compare(rounds, |round, side| match side {
        Side::Ours => time(|| {
            let mine = buf.take().unwrap_or_else(|| IoBuf::new(chunk));
            buf = Some(block_on(read_loop(&cache, chunk, reads, round as u64, mine))?);
            Ok(reads as f64)
        }),
        Side::Base => time(|| Ok(copy_loop(memory, chunk, reads, round as u64))),
    })?;
    let blocking = compare(rounds / 3, |round, side| match side {
        Side::Ours => time(|| {
            let mine = buf.take().unwrap_or_else(|| IoBuf::new(chunk));
            buf = Some(blocking_loop(&cache, chunk, reads, round as u64, mine)?);
            Ok(reads as f64)
        }),
        Side::Base => time(|| Ok(copy_loop(memory, chunk, reads, round as u64))),
    })?;
    only_hits(&cache)?;
    end(&cache, &runtime)?;
    let rate = format!(
        "{name} KiB reads that hit, RAM, one thread ({:.0} for each second of CPU time): reads a second",
        result.ours_cpu
    );
    let rate = match chunk {
        4096 => Row::aimed(&format!("a{name}.rate"), rate, result.ours, Aim::AtLeast(READS_PER_SECOND_AIM)),
        _ => Row::told(&format!("a{name}.rate"), rate, result.ours),
    };
    let what = format!(
        "{name} KiB reads that hit against memcpy + CRC32C ({:.0} a second; by CPU time {:.3}): ratio",
        result.base, result.cpu_ratio
    );
    let each = format!("{name} KiB reads that hit, a block_on for each: ratio");
    Ok(vec![
        rate,
        Row::aimed(&format!("a{name}.ratio"), what, result.ratio, Aim::AtLeast(RATIO_AIM)),
        Row::told(&format!("a{name}.block_on"), each, blocking.ratio),
    ])
}

async fn read_loop(cache: &Cache, chunk: usize, reads: usize, seed: u64, mut buf: IoBuf) -> Result<IoBuf, IoError> {
    let mut rng = Rng::new(seed);
    for _ in 0..reads {
        buf = cache.read(rng.below(SET_BYTES / chunk as u64) * chunk as u64, buf).await?;
        black_box(&buf);
    }
    Ok(buf)
}

fn blocking_loop(cache: &Cache, chunk: usize, reads: usize, seed: u64, mut buf: IoBuf) -> Result<IoBuf, IoError> {
    let mut rng = Rng::new(seed);
    for _ in 0..reads {
        buf = block_on(cache.read(rng.below(SET_BYTES / chunk as u64) * chunk as u64, buf))?;
        black_box(&buf);
    }
    Ok(buf)
}

fn copy_loop(memory: &[u8], chunk: usize, reads: usize, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(chunk);
    for _ in 0..reads {
        let at = rng.index(memory.len() / chunk) * chunk;
        if let Some(bytes) = memory.get(at..at + chunk) {
            buf.copy_from_slice(bytes);
        }
        black_box(crc_fast::crc32_iscsi(&buf));
    }
    reads as f64
}
