//! (l) Random reads that hit, over RAM, by 1, 2, 4 and more threads at once, in each design, against one of these threads.
//!
//! As many threads as the machine can run at once, at most. Each reads whole chunks of 4 KiB, stored raw, in one async loop under
//! one `block_on`, from one open cache. A round runs each number of threads once, so that what disturbs the machine for longer
//! disturbs all of them; the median of the rounds' ratios counts. In turn with the reads as many threads copy random chunks of a memory
//! of the same size and take their CRC32C: what the machine itself gives then.
//!
//! What it does not do: pin threads to cores, or read through a front end.

use crate::{
    Options,
    caches::{end, filled, only_hits, options, runtime},
    data::{Kind, Source},
    devices::{FlatRam, Memory},
    measure::{Res, median},
    report::Row,
};
use larder_device::{IoBuf, IoError, driver::block_on, ram::RamDevice, rng::Rng};
use larder_engine::{
    Cache, Compression,
    designs::{DESIGNS, EngineDesign},
};
use std::{
    hint::black_box,
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

const CHUNK_BYTES: usize = 4096;
/// Bytes in a cache, and in the memory that is copied.
const SET_BYTES: u64 = 256 << 20;
/// Reads of each thread in a round: some hundredths of a second of them.
const ROUND_READS: usize = 40_000;
const ROUNDS: usize = 16;
const THREADS_MAX: usize = 256;

/// Measures.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let mut memory = Memory::new(SET_BYTES as usize)?;
    let memory = memory.bytes_mut();
    Rng::new(2).fill(memory);
    let counts = thread_counts();
    let mut rows = Vec::new();
    for design in DESIGNS {
        rows.extend(design_rows(bench, &counts, design, memory)?);
    }
    Ok(rows)
}

/// 1, 2, 4 and so on, and as many as can run at once.
fn thread_counts() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get()).min(THREADS_MAX);
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

fn design_rows(bench: &Options, counts: &[usize], design: &EngineDesign, memory: &[u8]) -> Res<Vec<Row>> {
    let source = Source::new(Kind::Noise, CHUNK_BYTES, 1);
    let flash = Arc::new(FlatRam::new(4 * SET_BYTES, 2 * SET_BYTES)?);
    let origin = Arc::new(RamDevice::new("origin", 4 * SET_BYTES, 512));
    let runtime = runtime(0);
    let mut options = options(CHUNK_BYTES, Compression::Off);
    design.fit(&mut options);
    let cache = filled(flash, origin, runtime.clone(), &options, (&source, SET_BYTES))?;
    let (mut reads, mut copies) = (vec![Vec::new(); counts.len()], vec![Vec::new(); counts.len()]);
    // The first round warms up.
    for round in 0..=bench.scaled(ROUNDS) {
        for (at, &count) in counts.iter().enumerate() {
            let read = rate_of(count, round as u64, &|seed| block_on(read_loop(&cache, seed)))?;
            let copied = rate_of(count, round as u64, &|seed| {
                copy_loop(memory, seed);
                Ok(())
            })?;
            if round > 0 {
                reads[at].push(read);
                copies[at].push(copied);
            }
        }
    }
    only_hits(&cache)?;
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

/// The median of how many times the rate of one thread that of many is, round by round.
fn times(many: &[f64], one: &[f64]) -> f64 {
    median(many.iter().zip(one).map(|(many, one)| many / one).collect())
}

/// Reads a second of so many threads, from when all of them are ready to when the last is done.
fn rate_of(count: usize, round: u64, work: &(impl Fn(u64) -> Result<(), IoError> + Sync)) -> Res<f64> {
    let ready = Barrier::new(count + 1);
    let ready = &ready;
    let seconds = thread::scope(|scope| {
        let thread_of = |number: usize| {
            scope.spawn(move || {
                ready.wait();
                work(round << 16 | number as u64)
            })
        };
        let threads: Vec<_> = (0..count).map(thread_of).collect();
        ready.wait();
        let began = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| "a reading thread panicked")??;
        }
        Ok::<f64, Box<dyn std::error::Error>>(began.elapsed().as_secs_f64())
    })?;
    Ok((count * ROUND_READS) as f64 / seconds)
}

async fn read_loop(cache: &Cache, seed: u64) -> Result<(), IoError> {
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(CHUNK_BYTES);
    for _ in 0..ROUND_READS {
        buf = cache.read(rng.below(SET_BYTES / CHUNK_BYTES as u64) * CHUNK_BYTES as u64, buf).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_comes_first_and_as_many_as_there_are_cores_last() {
        let counts = thread_counts();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        assert_eq!((counts[0], counts.last().copied()), (1, Some(cores.min(THREADS_MAX))));
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]), "{counts:?}");
    }
}
