//! Fault sweeps: a short script, one failing device operation at each of its steps, a power loss.
//! Sectors of a failed request are old or new; all data that was acknowledged and flushed is there.
//!
//! Invariants: requests may fail, and are tried again once. Nothing hangs or panics, and no sector
//! reads as a value that it never had. Writes go past a flash that failed for good, behind a fence.

use crate::{
    design, fence,
    world::{Model, Shape, World, ZERO, identify, sector_bytes},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, WriteFlags, ZeroFlags,
    sim::{SimDevice, SimOptions, SimRuntime},
};
use larder_engine::{Cache, Compression, Tuning, WriteMode};
use std::sync::Arc;

/// Sectors of a chunk.
const CHUNK: usize = 8;
/// Steps of the script.
const STEPS: usize = 18;

fn shape(mode: WriteMode) -> Shape {
    Shape {
        design: design::chosen(),
        chunk_bytes: (CHUNK * SECTOR_BYTES) as u32,
        slot_bytes: 512 << 10,
        flash_bytes: 6 << 20,
        origin_bytes: 2 << 20,
        mode,
        compression: Compression::Lz4,
        dedup: true,
        fp_index_percent: 100,
        ram_budget_bytes: 0,
        tuning: Tuning {
            commit_interval_ms: 5,
            prefetch_bytes_max: 0,
            fence: fence::MemoryFence::new().keeper(),
            // Dirty data on a failed flash is destaged below, before its next opening drops it.
            discard_fenced: true,
            ..Tuning::default()
        },
    }
}

fn attach(world: &World, seed: u64) -> Arc<SimRuntime> {
    let runtime = SimRuntime::with_options(seed, SimOptions { steps_max: 1_000_000, ..SimOptions::default() });
    world.flash.attach(&runtime);
    world.origin.attach(&runtime);
    runtime
}

/// Writes with a second try.
///
/// If both fail, the sectors are old or new, and the model accepts either.
async fn put(cache: &Cache, model: &mut Model, at: usize, count: usize, content: u32) {
    let stamps: Vec<u32> = (0..count as u32).map(|i| content + 2 * i).collect();
    let mut buf = IoBuf::new(count * SECTOR_BYTES);
    stamps.iter().zip(buf.chunks_mut(SECTOR_BYTES)).for_each(|(&stamp, out)| sector_bytes(stamp, out));
    let data = buf.freeze();
    model.begin(at, &stamps);
    for _ in 0..2 {
        if cache.write((at * SECTOR_BYTES) as u64, data.clone(), WriteFlags::default()).await.is_ok() {
            return model.complete(at, &stamps);
        }
    }
    panic!("a write failed twice over one fault");
}

async fn trim(cache: &Cache, model: &mut Model, at: usize, count: usize) {
    let stamps = vec![ZERO; count];
    model.begin(at, &stamps);
    let (offset, len) = ((at * SECTOR_BYTES) as u64, (count * SECTOR_BYTES) as u64);
    for _ in 0..2 {
        if cache.zero(offset, len, ZeroFlags::default()).await.is_ok() {
            return model.complete(at, &stamps);
        }
    }
    panic!("a trim failed twice over one fault");
}

async fn flush(cache: &Cache, model: &mut Model) {
    let flushed = cache.flush().await.is_ok();
    told(model, flushed);
    if flushed {
        let sectors = model.current.len();
        model.durable(0..sectors);
    }
}

/// Tells the model that a request failed: its client cannot rely on data that was not durable
/// before.
fn told(model: &mut Model, succeeded: bool) {
    if !succeeded {
        model.doubt();
    }
}

async fn check(cache: &Cache, model: &mut Model, after_crash: bool, when: &str) {
    for at in 0..60 * CHUNK {
        let offset = (at * SECTOR_BYTES) as u64;
        let mut read = cache.read(offset, IoBuf::new(SECTOR_BYTES)).await;
        if read.is_err() {
            read = cache.read(offset, IoBuf::new(SECTOR_BYTES)).await;
        }
        let bytes = read.unwrap_or_else(|error| panic!("{when}: sector {at}: {error}"));
        let older = if after_crash { std::mem::take(&mut model.older[at]) } else { Vec::new() };
        let current = model.current[at];
        match identify(&bytes, older.iter().copied().chain([current])) {
            Some(stamp) => model.current[at] = stamp,
            None => panic!("{when}: sector {at} is neither {current} nor of {older:?}"),
        }
    }
}

async fn step(cache: &Cache, model: &mut Model, mode: WriteMode, step: usize) {
    let content = 1001 + 1000 * step as u32;
    match step % 9 {
        0 => put(cache, model, 0, 6 * CHUNK, content).await,
        1 => flush(cache, model).await,
        2 => put(cache, model, 2 * CHUNK + 1, CHUNK, content).await,
        3 => drop(cache.checkpoint().await),
        4 => put(cache, model, 0, CHUNK, 1001).await,
        5 => {
            told(model, cache.destage_all().await);
        }
        6 => trim(cache, model, CHUNK, 3 * CHUNK).await,
        7 => {
            put(cache, model, 20 * CHUNK, 2, content).await;
            cache.wait_for_insertions().await;
            flush(cache, model).await;
        }
        _ => {
            let other = if mode == WriteMode::Back { WriteMode::Through } else { WriteMode::Back };
            told(model, cache.set_mode(other).await.is_ok());
            put(cache, model, 3 * CHUNK, CHUNK, content).await;
            told(model, cache.set_mode(mode).await.is_ok());
            put(cache, model, 4 * CHUNK, CHUNK, content + 100).await;
        }
    }
}

fn run(mode: WriteMode, fault: (bool, IoOp, usize)) {
    let (on_flash, op, at_step) = fault;
    let first = SimRuntime::new(at_step as u64);
    let world = World::new(&first, shape(mode));
    first.kill();
    let mut model = Model::new(world.sectors);
    let device: &SimDevice = if on_flash { &world.flash } else { &world.origin };
    let rt = attach(&world, 10 + at_step as u64);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for number in 0..STEPS {
            if number == at_step {
                device.fail_next(op, IoErrorKind::Io);
            }
            step(&cache, &mut model, mode, number).await;
            if number > at_step + 2 {
                break;
            }
        }
        device.plan().clear();
        check(&cache, &mut model, false, "before the crash").await;
        if cache.status().degraded {
            assert!(cache.destage_all().await, "what can be read can be destaged");
            flush(&cache, &mut model).await;
        }
    });
    rt.crash();
    let rt = attach(&world, 11);
    rt.block_on(async { check(&world.open(&rt).await, &mut model, true, "after the crash").await });
    rt.crash();
    let rt = attach(&world, 12);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        assert!(cache.destage_all().await, "destage");
        check(&cache, &mut model, true, "at the end").await;
        cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
    });
}

struct Fault(WriteMode, (bool, IoOp, usize));

impl Drop for Fault {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, (on flash, operation, step) = {:?}", self.0, self.1);
        }
    }
}

fn sweep(mode: WriteMode) {
    for on_flash in [true, false] {
        for op in [IoOp::Write, IoOp::Flush, IoOp::Read] {
            for at_step in 0..STEPS {
                let print = Fault(mode, (on_flash, op, at_step));
                run(mode, print.1);
            }
        }
    }
}

#[test]
fn fault_sweep_write_back() {
    sweep(WriteMode::Back);
}

#[test]
fn fault_sweep_write_through() {
    sweep(WriteMode::Through);
}

#[test]
fn fault_sweep_write_around() {
    sweep(WriteMode::Around);
}
