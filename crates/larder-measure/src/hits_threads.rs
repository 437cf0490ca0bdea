//! (l) Random reads that hit, over RAM, by 1, 2, 4 and more threads, in each design.
//!
//! The base is one of these threads. There are at most as many threads as the machine can run at
//! once. Each reads whole chunks of 4 KiB, stored raw, in one async loop under one `block_on`, from
//! one open cache. A round runs each number of threads once, so that a longer disturbance of the
//! machine disturbs all of them. The median of the rounds' ratios counts. In turn with the reads as
//! many threads copy random chunks of an equally large memory and take their CRC32C. That shows the
//! machine's own scaling.
//!
//! A design with metadata slots on flash reads clean chunks, with one more read of the metadata
//! slot for each. Chunks that its hashes confuse with others are left out.
//!
//! It does not pin threads to cores, or read through a front end.

use crate::{
    caches::{end, filled, not_hits, only_hits_since, options, runtime},
    data::{DataKind, Source},
    devices::{FlatRam, Memory},
    measure::{Res, median},
    options::Options,
    report::Row,
    threads::{seconds_of, thread_counts, times},
};
use larder_device::{IoBuf, IoError, driver::block_on, ram::RamDevice, rng::Rng};
use larder_engine::{
    Cache, Compression,
    designs::{ENGINE_DESIGNS, EngineDesign},
};
use larder_format::StoreKind;
use std::{hint::black_box, sync::Arc};

const CHUNK_BYTES: usize = 4096;
/// Bytes in a cache, and in the memory of the copies.
const SET_BYTES: u64 = 256 << 20;
/// Reads of each thread in a round, which take some hundredths of a second.
const ROUND_READS: usize = 40_000;
const ROUNDS: usize = 16;
/// Chunks that are left out together if one of them is not there.
const GROUP: u64 = 64;

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut memory = Memory::new(SET_BYTES as usize)?;
    let memory = memory.bytes_mut();
    Rng::new(2).fill(memory);
    let counts = thread_counts();
    let mut rows = Vec::new();
    for design in ENGINE_DESIGNS {
        rows.extend(design_rows(bench, &counts, design, memory)?);
    }
    Ok(rows)
}

fn design_rows(bench: &Options, counts: &[usize], design: &EngineDesign, memory: &[u8]) -> Res<Vec<Row>> {
    let source = Source::new(DataKind::Noise, CHUNK_BYTES, 1);
    let flash = Arc::new(FlatRam::new(4 * SET_BYTES, 2 * SET_BYTES)?);
    let origin = Arc::new(RamDevice::new("origin", 4 * SET_BYTES, 512));
    let runtime = runtime(0);
    let mut options = options(CHUNK_BYTES, Compression::Off);
    design.fit(&mut options);
    let cache = filled(flash, origin, runtime.clone(), &options, (&source, SET_BYTES))?;
    let chunks = match design.kind() {
        StoreKind::Buckets => clean_chunks(&cache)?,
        StoreKind::Weus | StoreKind::Slots => (0..SET_BYTES / CHUNK_BYTES as u64).collect(),
    };
    let (before, counts_before) = (not_hits(&cache), cache.status().counts);
    let (mut reads, mut copies) = (vec![Vec::new(); counts.len()], vec![Vec::new(); counts.len()]);
    // The first round warms up.
    for round in 0..=bench.scaled(ROUNDS) {
        for (at, &count) in counts.iter().enumerate() {
            let seed = |number: usize| (round as u64) << 16 | number as u64;
            let reading = seconds_of(count, &|number| block_on(read_loop(&cache, &chunks, seed(number))))?;
            let copying = seconds_of(count, &|number| {
                copy_loop(memory, seed(number));
                Ok::<_, IoError>(())
            })?;
            let [read, copied] = [reading, copying].map(|seconds| (count * ROUND_READS) as f64 / seconds);
            if round > 0 {
                reads[at].push(read);
                copies[at].push(copied);
            }
        }
    }
    only_hits_since(&cache, before)?;
    let counts_after = cache.status().counts;
    let chunks_read = counts_after.read_chunks - counts_before.read_chunks;
    let region_reads = counts_after.flash_region_reads - counts_before.flash_region_reads;
    if design.kind() == StoreKind::Buckets && region_reads != chunks_read {
        return Err(format!("{chunks_read} chunks were read by {region_reads} metadata slots").into());
    }
    end(&cache, &runtime)?;
    let mut rows = Vec::new();
    for (at, &count) in counts.iter().enumerate() {
        let (name, threads) = (design.name, if count == 1 { "thread" } else { "threads" });
        let what = format!("{name}, 4 KiB reads that hit, RAM, {count} {threads}");
        rows.push(Row::told(&format!("l.{name}.{count}"), format!("{what}: a second"), median(reads[at].clone())));
        if count > 1 {
            let text = format!("{what}: times those of 1 thread (copies: {:.2})", times(&copies[at], &copies[0]));
            rows.push(Row::told(&format!("l.{name}.{count}.ratio"), text, times(&reads[at], &reads[0])));
        }
    }
    Ok(rows)
}

/// Destages all, and returns the chunks that hit after any order of reads.
fn clean_chunks(cache: &Cache) -> Res<Vec<u64>> {
    if !block_on(cache.destage_all()) {
        return Err("dirty chunks could not be destaged".into());
    }
    let mut groups: Vec<u64> = (0..SET_BYTES / CHUNK_BYTES as u64 / GROUP).collect();
    loop {
        let mut kept = Vec::new();
        for &group in &groups {
            let before = not_hits(cache);
            let mut buf = IoBuf::new(CHUNK_BYTES);
            for number in group * GROUP..(group + 1) * GROUP {
                buf = block_on(cache.read(number * CHUNK_BYTES as u64, buf))?;
            }
            if not_hits(cache) == before {
                kept.push(group);
            }
        }
        // A miss inserts a chunk, which may have evicted another.
        block_on(cache.wait_for_insertions());
        if kept.len() == groups.len() {
            return Ok(groups.into_iter().flat_map(|group| group * GROUP..(group + 1) * GROUP).collect());
        }
        groups = kept;
    }
}

async fn read_loop(cache: &Cache, chunks: &[u64], seed: u64) -> Result<(), IoError> {
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(CHUNK_BYTES);
    for _ in 0..ROUND_READS {
        buf = cache.read(chunks[rng.index(chunks.len())] * CHUNK_BYTES as u64, buf).await?;
        black_box(&buf);
    }
    Ok(())
}

fn copy_loop(memory: &[u8], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(CHUNK_BYTES);
    for _ in 0..ROUND_READS {
        let at = rng.index(memory.len() / CHUNK_BYTES) * CHUNK_BYTES;
        if let Some(bytes) = memory.get(at..at + CHUNK_BYTES) {
            buf.copy_from_slice(bytes);
        }
        black_box(crc_fast::crc32_iscsi(&buf));
    }
}
