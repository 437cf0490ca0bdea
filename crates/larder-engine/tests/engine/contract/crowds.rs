//! Many clients at once on small logs, beside slow checkpoints, mode switches and failing devices.
//! Devices fail now and then, in half of the runs. All requests end, and without an error if no
//! device failed. And the log goes round many times, in frames of all sizes.
//!
//! Invariants: as in `mod.rs`; each run has a seed, and a failure names it.

use super::gate::*;
use crate::{
    fence::MemoryFence,
    world::{World, identify, read, write},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime, WriteFlags, ZeroFlags,
    rng::Rng,
    sim::{Schedule, SimOptions, SimRuntime},
};
use larder_engine::{Cache, WriteMode};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::*},
    },
    time::Duration,
};

const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
const CLIENTS: usize = 200;
const REQUESTS: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// Rounds of a crowd in which devices may fail.
const ROUNDS_WITH_FAULTS: u32 = 100;

pub fn patient(seed: u64) -> Arc<SimRuntime> {
    let options = SimOptions { schedule: Schedule::Timed, steps_max: 60_000_000, ..SimOptions::default() };
    SimRuntime::with_options(seed, options)
}

/// Sends a random request, and returns true if it succeeded.
async fn request(cache: &Cache, rng: &mut Rng, sectors: usize) -> bool {
    let chunk = rng.index(sectors / CHUNK - 40);
    let stamp = 1 + rng.below(2_000_000) as u32;
    let at = (chunk * CHUNK * SECTOR_BYTES) as u64;
    match rng.below(12) {
        0..4 => try_write(cache, chunk * CHUNK, &stamps(stamp, CHUNK)).await,
        4..6 => try_write(cache, chunk * CHUNK + 1, &[stamp, stamp + 1]).await,
        6 => try_write(cache, chunk * CHUNK, &stamps(stamp | 1, CHUNK * 16)).await,
        7 => cache.flush().await.is_ok(),
        8 => {
            let (from, len) = (rng.index(8) * SECTOR_BYTES, (1 + rng.index(30 * CHUNK)) * SECTOR_BYTES);
            let flags = ZeroFlags { fua: rng.chance(1, 4), ..ZeroFlags::default() };
            cache.zero(at + from as u64, len as u64, flags).await.is_ok()
        }
        9 => {
            let zeroes = IoBuf::zeroed(SECTOR_BYTES * CHUNK).freeze();
            cache.write(at, zeroes, WriteFlags { fua: true }).await.is_ok()
        }
        _ => cache.read(at, IoBuf::new(SECTOR_BYTES * CHUNK * (1 + rng.index(16)))).await.is_ok(),
    }
}

fn crowded_world(seed: u64, rng: &mut Rng, mode: WriteMode) -> (World, Arc<SimRuntime>) {
    let rt = patient(seed);
    let mut shape = shape(mode);
    shape.flash_bytes = (6 + rng.below(3)) << 20;
    shape.origin_bytes = (8 + rng.below(24)) << 20;
    shape.tuning.dirty_low_percent = 10;
    shape.tuning.dirty_high_percent = 30;
    shape.tuning.dirty_max_percent = 50;
    shape.tuning.commit_interval_ms = 1 + rng.below(50);
    shape.tuning.insert_depth = 1 + rng.index(16);
    shape.tuning.fence = MemoryFence::new().keeper();
    (World::new(&rt, shape), rt)
}

/// Makes a device fail once, or a few writes of a checkpoint.
fn fail(world: &World, rng: &mut Rng) {
    match rng.below(12) {
        0..3 => world.origin.fail_next(IoOp::Flush, IoErrorKind::Io),
        3 => world.origin.fail_next(IoOp::Write, IoErrorKind::Io),
        4 => world.flash.fail_next(IoOp::Write, IoErrorKind::Io),
        5 if rng.chance(1, 12) => world.flash.fail_next(IoOp::Flush, IoErrorKind::Io),
        6 if rng.chance(1, 12) => {
            let below = world.layout().log_offset;
            world.flash.fail_range(IoOp::Write, 0..below, IoErrorKind::Io, 3);
        }
        _ => {}
    }
}

fn crowd(seed: u64, with_faults: bool) {
    let mut rng = Rng::new(seed ^ 0x9999);
    let mode = MODES[rng.index(3)];
    let (world, rt) = crowded_world(seed, &mut rng, mode);
    let flash = Gate::new(&world.flash);
    let (sectors, below) = (world.sectors, world.layout().log_offset);
    let switches = rng.chance(1, 2);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        let (over, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for client in 0..CLIENTS {
            let (cache, over, failed) = (cache.clone(), over.clone(), failed.clone());
            let mut rng = Rng::new(seed << 20 | client as u64);
            spawn(&rt, async move {
                for _ in 0..REQUESTS {
                    let done = request(&cache, &mut rng, sectors).await;
                    failed.fetch_add(usize::from(!done), AcqRel);
                }
                over.fetch_add(1, AcqRel);
            });
        }
        let mut rounds = 0;
        while over.load(Acquire) < CLIENTS && rounds < 4000 {
            rounds += 1;
            // A checkpoint is slow.
            if rng.chance(1, 3) {
                flash.hold_below(IoOp::Write, below);
            }
            rt.delay(Duration::from_millis(rng.below(40))).await.expect("a delay ends");
            if with_faults && rounds < ROUNDS_WITH_FAULTS {
                fail(&world, &mut rng);
            }
            flash.release();
            rt.delay(Duration::from_millis(rng.below(10))).await.expect("a delay ends");
            if switches && rng.chance(1, 8) {
                let to = MODES[rng.index(3)];
                let switched = within(&rt, 10 * MINUTE, cache.set_mode(to)).await;
                let is_right = switched.as_ref().is_some_and(|switched| with_faults || switched.is_ok());
                assert!(is_right, "seed {seed}: to {to:?}: {switched:?}");
            }
        }
        for _ in 0..600 {
            if over.load(Acquire) < CLIENTS {
                rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
            }
        }
        let log = cache.status().log_used_percent;
        assert_eq!(over.load(Acquire), CLIENTS, "seed {seed}, {mode:?}: requests hang, the log is {log}% full");
        assert!(
            with_faults || failed.load(Acquire) == 0,
            "seed {seed}, {mode:?}: requests fail, the log is {log}% full"
        );
        let flushed = within(&rt, MINUTE, cache.flush()).await;
        assert!(flushed.is_some_and(|flushed| with_faults || flushed.is_ok()), "seed {seed}: FLUSH");
        let made = within(&rt, MINUTE, cache.checkpoint()).await;
        assert!(made.is_some_and(|made| with_faults || made.is_ok()), "seed {seed}: a checkpoint");
        let detach = rng.chance(1, 2);
        let end = async || if detach { cache.detach().await } else { cache.close().await };
        let ended = within(&rt, 10 * MINUTE, end()).await;
        assert!(ended.is_some_and(|ended| with_faults || ended.is_ok()), "seed {seed}: the end");
    });
    rt.kill();
}

#[test]
fn contract_crowds_end_beside_slow_checkpoints() {
    (0..10).for_each(|seed| crowd(seed, false));
}

#[test]
fn contract_crowds_end_where_devices_fail() {
    (100..110).for_each(|seed| crowd(seed, true));
}

/// The power goes at any time.
#[test]
fn contract_the_log_goes_round() {
    const CHUNKS: usize = 2000;
    for seed in 0..12 {
        let mut rng = Rng::new(seed ^ 0x1234_5678);
        let mut rt = patient(seed);
        let mut shape = shape(WriteMode::Back);
        shape.flash_bytes = (6 + rng.below(3)) << 20;
        let world = World::new(&rt, shape);
        let mut durable = vec![0u32; CHUNKS];
        let mut stamp = 1u32;
        for life in 0..6 {
            let mut later: Vec<Vec<u32>> = vec![Vec::new(); CHUNKS];
            let (flushes, slow) = (rng.index(150), rng.chance(1, 3));
            rt.block_on(async {
                let flash = Gate::new(&world.flash);
                let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
                if slow {
                    let (flash, runtime, below) = (flash.clone(), rt.clone(), world.layout().log_offset);
                    spawn(&rt, async move {
                        loop {
                            flash.hold_below(IoOp::Write, below);
                            if runtime.delay(Duration::from_millis(20)).await.is_err() {
                                return;
                            }
                            flash.release();
                        }
                    });
                }
                for _ in 0..flushes {
                    for _ in 0..1 + rng.index(400) {
                        let chunk = rng.index(CHUNKS);
                        stamp += 2;
                        write(&cache, chunk * CHUNK, &[stamp; CHUNK], false).await;
                        durable[chunk] = stamp;
                    }
                    cache.flush().await.expect("flushed");
                }
                for _ in 0..rng.index(600) {
                    let chunk = rng.index(CHUNKS);
                    stamp += 2;
                    write(&cache, chunk * CHUNK, &[stamp; CHUNK], false).await;
                    later[chunk].push(stamp);
                }
                if rng.chance(1, 2) {
                    let flushing = cache.clone();
                    spawn(&rt, async move {
                        let _ = flushing.flush().await;
                    });
                }
                rt.delay(Duration::from_micros(rng.below(400))).await.expect("a delay ends");
            });
            rt.crash();
            rt = patient(seed * 100 + life);
            world.flash.attach(&rt);
            world.origin.attach(&rt);
            rt.block_on(async {
                let cache = world.open(&rt).await;
                for chunk in 0..CHUNKS {
                    let bytes = read(&cache, chunk * CHUNK, 1).await;
                    let all = later[chunk].iter().copied().chain([durable[chunk]]);
                    let found = identify(&bytes[..SECTOR_BYTES], all);
                    // The value that it reads as now stays.
                    durable[chunk] = found.unwrap_or_else(|| panic!("seed {seed}, life {life}, chunk {chunk}"));
                }
                assert!(cache.status().log_used_percent <= 75);
            });
            rt.crash();
            rt = patient(seed * 100 + 50 + life);
            world.flash.attach(&rt);
            world.origin.attach(&rt);
        }
        rt.kill();
    }
}
