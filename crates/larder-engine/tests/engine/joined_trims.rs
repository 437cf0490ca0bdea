//! Trims that touch become one run, and one batch of destaging costs one flush of the origin.

use crate::common::*;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use std::time::Duration;

const CHUNK: u64 = 8 << 10;

/// Numbers below `count` in any order.
fn shuffled(rng: &mut Rng, count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, rng.index(at + 1));
    }
    numbers
}

#[test]
fn trims_that_touch_become_one_run() {
    each_seed(6, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, Setup { origin_bytes: 1 << 30, ..Setup::default() });
        let pieces = 256_u64;
        let order = match seed % 3 {
            0 => (0..pieces).collect(),
            1 => (0..pieces).rev().collect(),
            _ => shuffled(&mut rng, pieces),
        };
        world.write(5 * CHUNK, &noise(1, CHUNK as usize));
        for piece in order {
            world.trim(piece * 64 * CHUNK, 64 * CHUNK);
        }
        let status = world.status();
        assert_eq!((status.trimmed_runs, status.trimmed_bytes), (1, pieces * 64 * CHUNK));
        assert_eq!((status.dirty_bytes, status.logical_bytes_cached), (0, 0), "the chunk in it is gone");
        // Zeroes that the origin keeps allocated form another kind of run.
        world.zero(pieces * 64 * CHUNK, CHUNK, ZeroFlags { no_hole: true, ..ZeroFlags::default() });
        assert_eq!(world.status().trimmed_runs, 2);
        world.flush();
        world.crash();
        world.open();
        assert_eq!(world.status().trimmed_runs, 2, "after a crash");
        world.origin.take_events();
        assert!(world.destage_all());
        let (zeroes, flushes) = (world.origin.asked(IoOp::WriteZeroes).len(), world.origin.asked(IoOp::Flush).len());
        assert!(zeroes <= 12 && flushes <= 3, "{zeroes} requests and {flushes} flushes");
        assert_eq!(world.status().trimmed_runs, 0);
    });
}

#[test]
fn what_is_destaged_together_costs_one_flush_of_the_origin() {
    each_seed(6, |seed| {
        // A batch ends after a quarter of a second: devices that take any time for anything would
        // end it early.
        let setup = Setup { origin_bytes: 1 << 30, schedule: Schedule::Timed, ..Setup::default() };
        let mut world = World::new(seed, setup);
        // Chunks and runs alternate.
        for number in 0..100_u64 {
            world.write(number * 8 * CHUNK, &noise(number, CHUNK as usize));
            world.trim((number * 8 + 2) * CHUNK, 4 * CHUNK);
        }
        world.origin.take_events();
        assert!(world.destage_all());
        let flushes = world.origin.asked(IoOp::Flush).len();
        assert!(flushes <= 3, "{flushes} flushes of the origin for 200 pieces");
        // The marks become durable.
        world.flush();
        world.crash();
        world.open();
        let status = world.status();
        assert_eq!((status.dirty_bytes, status.trimmed_bytes), (0, 0), "what is clean stays so");
        for number in 0..100_u64 {
            let chunk = world.origin.sim.peek_durable(number * 8 * CHUNK, CHUNK as usize);
            assert_same(&chunk, &noise(number, CHUNK as usize), "the origin");
        }
    });
}

/// The destage of a run goes on while trims beside it give it newer numbers, and while writes cut
/// it.
#[test]
fn a_run_that_grows_while_it_is_destaged_is_told_of_once() {
    each_seed(40, |seed| {
        let chunks = 512_u64;
        let mut world = World::new(seed, Setup { schedule: Schedule::Timed, ..Setup::default() });
        world.fill_origin(0, &noise(1, (chunks * CHUNK) as usize));
        let mut twin = Twin::new();
        twin.write(0, &noise(1, (chunks * CHUNK) as usize));
        world.trim(0, 64 * CHUNK);
        twin.zero(0, 64 * CHUNK);
        world.origin.slow_down(&world.runtime, Duration::from_millis(3));
        let (cache, mut rng) = (world.cache().clone(), Rng::new(seed));
        let writes: Vec<u64> = (0..6).map(|_| rng.below(chunks)).collect();
        world.run(all(vec![
            Box::pin(async {
                for _ in 0..3 {
                    assert!(cache.destage_all().await);
                }
            }),
            Box::pin(async {
                for (number, at) in (64..chunks).step_by(64).zip(&writes) {
                    cache.zero(number * CHUNK, 64 * CHUNK, ZeroFlags::default()).await.expect("a trim");
                    let data = IoBuf::copy_of(&noise(*at, CHUNK as usize)).freeze();
                    cache.write(at * CHUNK, data, Default::default()).await.expect("a write");
                    // A second trim; one chunk behind it stays.
                    cache.zero((at / 2) * CHUNK, CHUNK, ZeroFlags::default()).await.expect("a trim");
                }
            }),
        ]));
        for (number, at) in (64..chunks).step_by(64).zip(&writes) {
            twin.zero(number * CHUNK, 64 * CHUNK);
            twin.write(at * CHUNK, &noise(*at, CHUNK as usize));
            twin.zero((at / 2) * CHUNK, CHUNK);
        }
        drop(cache);
        let len = (chunks * CHUNK) as usize;
        let expected = twin.bytes(0, len);
        assert_same(&world.read(0, len), &expected, "at once");
        if rng.chance(1, 2) {
            assert!(world.destage_all());
        }
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(0, len), &expected, "after a crash");
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(0, len), &expected, "the origin");
    });
}

#[test]
fn a_large_device_is_zeroed_in_few_requests() {
    // Requests of 16 MiB with a flush each would be 16,384 of both.
    let origin_bytes = 1 << 38;
    let setup = Setup { origin_bytes, flash_bytes: 32 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    let world = World::new(1, setup);
    world.trim(0, origin_bytes);
    world.origin.take_events();
    assert!(world.destage_all());
    let (zeroes, flushes) = (world.origin.asked(IoOp::WriteZeroes).len(), world.origin.asked(IoOp::Flush).len());
    assert!(zeroes <= 64 && flushes <= 64, "{zeroes} requests and {flushes} flushes");
    let status = world.status();
    assert_eq!((status.counts.origin_zero_bytes, status.trimmed_bytes), (origin_bytes, 0));
}

/// The requests of an origin that writes the zeroes stay short, so that others get their turn.
#[test]
fn a_slow_origin_is_zeroed_in_short_requests() {
    let origin_bytes = 1 << 30;
    let world = World::new(1, Setup { origin_bytes, schedule: Schedule::Timed, ..Setup::default() });
    world.origin.slow_down(&world.runtime, Duration::from_millis(600));
    world.trim(0, origin_bytes);
    world.origin.take_events();
    assert!(world.destage_all());
    let longest = world.origin.asked(IoOp::WriteZeroes).iter().map(|request| request.len).max();
    assert_eq!(longest, Some(16 * MIB), "no request is longer than the first");
}

#[test]
fn the_status_names_the_limit_that_binds() {
    let mut setup = Setup { flash_bytes: 5 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    setup.tuning = lazy_tuning();
    let world = World::new(1, setup);
    let fault = Fault { op: Some(IoOp::WriteZeroes), range: None, kind: IoErrorKind::Io, times: FOR_EVER };
    world.origin.sim.plan().add(fault);
    let (cache, origin, runtime) = (world.cache().clone(), world.origin.clone(), world.runtime.clone());
    world.run(all(vec![
        Box::pin(async {
            for number in 0..2000 {
                cache
                    .zero(number * 4 * CHUNK, CHUNK, ZeroFlags::default())
                    .await
                    .expect("a trim waits, it does not fail");
            }
        }),
        Box::pin(async {
            runtime.delay(Duration::from_secs(60)).await.expect("time passes");
            let status = cache.status();
            let names: Vec<&str> = status.conditions.iter().map(|condition| condition.name).collect();
            assert!(names.contains(&"full_of_trimmed_runs"), "{names:?}");
            assert!(!names.contains(&"full_of_dirty_data"), "{names:?}: nothing is dirty");
            assert_eq!(status.dirty_bytes, 0);
            origin.sim.plan().clear();
        }),
    ]));
}
