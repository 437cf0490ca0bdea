//! Trims that touch become one run, and one batch of destaging costs one flush of the origin.

use crate::common::*;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use larder_engine::config::TrimPolicy;
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
        // The flash is large enough for a run of each piece without a destage, in each design.
        let mut world = World::new(seed, Setup { origin_bytes: 1 << 30, flash_bytes: 64 * MIB, ..Setup::default() });
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

/// A client's request for zeroes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Zeroes {
    Trim,
    Written { no_hole: bool },
}

const WRITTEN: Zeroes = Zeroes::Written { no_hole: false };

fn ask(world: &World, zeroes: Zeroes, offset: u64, len: u64) {
    match zeroes {
        Zeroes::Trim => world.trim(offset, len),
        Zeroes::Written { no_hole } => world.zero(offset, len, ZeroFlags { no_hole, ..ZeroFlags::default() }),
    }
}

#[test]
fn neighbours_that_meet_inside_a_chunk_become_one_run() {
    let world = World::new(1, Setup::default());
    world.trim(0, 4_194_816);
    world.trim(4_194_816, 4_193_792);
    let status = world.status();
    assert_eq!((status.trimmed_runs, status.trimmed_bytes, status.dirty_bytes), (1, 8 * MIB, 0));
    assert_eq!(status.counts.trims, 2);
}

/// Checks that a range trimmed in any pieces, in any order, leaves one run and nothing dirty.
#[test]
fn any_cut_of_a_range_leaves_the_same_run() {
    const SECTOR: u64 = 512;
    each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let trim = if seed % 2 == 0 { TrimPolicy::Zero } else { TrimPolicy::Pass };
        let zeroes = [Zeroes::Trim, WRITTEN, Zeroes::Written { no_hole: true }][rng.index(3)];
        // Volume and flash are large enough for a run of each piece without a destage.
        let mut setup = Setup { origin_bytes: 64 * MIB - 2560, flash_bytes: 64 * MIB, ..Setup::default() };
        setup.tuning.trim = trim;
        let volume = setup.origin_bytes;
        let base = 60 * MIB;
        let tail = volume - base;
        let mut world = World::new(seed, setup);
        let mut twin = Twin::new();
        world.fill_origin(base, &noise(99, tail as usize));
        twin.write(base, &noise(99, tail as usize));
        for number in 0..rng.below(30) {
            let (at, len) = random_run(&mut rng, tail, 40);
            let at = base + at;
            match rng.below(4) {
                0 => assert_same(&world.read(at, len), &twin.bytes(at, len), "a read"),
                kind => {
                    let data = if kind == 1 { vec![0; len] } else { noise(number, len) };
                    world.write(at, &data);
                    twin.write(at, &data);
                }
            }
        }
        if rng.chance(1, 3) {
            assert!(world.destage_all());
        }
        // Whole chunks: the last one is short.
        let first = base / CHUNK + rng.below(300);
        let end = if rng.chance(1, 4) { volume } else { (first + 1 + rng.below(200)) * CHUNK };
        let (from, to) = (first * CHUNK / SECTOR, end / SECTOR);
        let mut cuts: Vec<u64> = (0..rng.below(60)).map(|_| from + rng.below(to - from)).collect();
        cuts.extend([from, to]);
        cuts.sort_unstable();
        cuts.dedup();
        for piece in shuffled(&mut rng, cuts.len() as u64 - 1) {
            let (at, until) = (cuts[piece as usize] * SECTOR, cuts[piece as usize + 1] * SECTOR);
            ask(&world, zeroes, at, until - at);
            twin.zero(at, until - at);
            assert_same(&world.read(at, (until - at) as usize), &twin.bytes(at, (until - at) as usize), "a piece");
        }
        // Again, over zeroes.
        let (at, len) = random_run(&mut rng, end - first * CHUNK, 60);
        ask(&world, zeroes, first * CHUNK + at, len as u64);
        assert_same(&world.read(base, tail as usize), &twin.bytes(base, tail as usize), "the volume");
        let trimmed = end.next_multiple_of(CHUNK) - first * CHUNK;
        assert_eq!((world.status().trimmed_runs, world.status().trimmed_bytes), (1, trimmed), "{trim:?} {zeroes:?}");
        world.flush();
        world.crash();
        world.open();
        assert_eq!((world.status().trimmed_runs, world.status().trimmed_bytes), (1, trimmed), "after a crash");
        world.origin.take_events();
        assert!(world.destage_all());
        let inside = |op| {
            let asked = world.origin.asked(op).into_iter();
            asked.filter(|it| it.offset < end && it.end() > first * CHUNK).collect::<Vec<_>>()
        };
        assert!(inside(IoOp::Write).is_empty(), "{:?}: nothing in it was dirty", inside(IoOp::Write));
        let is_discarded = trim == TrimPolicy::Pass && zeroes == Zeroes::Trim;
        assert_eq!(inside(IoOp::Discard).is_empty(), !is_discarded, "{trim:?} {zeroes:?}");
        assert_eq!(inside(IoOp::WriteZeroes).is_empty(), is_discarded, "{trim:?} {zeroes:?}");
        let no_hole = zeroes == Zeroes::Written { no_hole: true };
        assert!(inside(IoOp::WriteZeroes).iter().all(|it| it.no_hole == no_hole), "{zeroes:?}");
        let expected = twin.bytes(base, tail as usize);
        assert_same(&world.origin.sim.peek_durable(base, tail as usize), &expected, "the origin");
    });
}

/// The origin is owed zeroes that a client wrote, also in the chunk in which they meet a TRIM.
#[test]
fn a_chunk_of_two_kinds_is_owed_and_stays_allocated() {
    let half = CHUNK / 2;
    let owed = |requests: &[(Zeroes, u64, u64)]| {
        let mut setup = Setup::default();
        setup.tuning.trim = TrimPolicy::Pass;
        let mut world = World::new(1, setup);
        world.fill_origin(0, &noise(1, 16 * CHUNK as usize));
        requests.iter().for_each(|&(zeroes, at, len)| ask(&world, zeroes, at, len));
        world.close();
        world.setup.tuning.trim = TrimPolicy::Keep;
        world.open();
        let status = world.status();
        assert_eq!(status.dirty_bytes, 0, "{requests:?}");
        world.origin.take_events();
        assert!(world.destage_all());
        let no_hole: u64 = world.origin.asked(IoOp::WriteZeroes).iter().filter(|it| it.no_hole).map(|it| it.len).sum();
        (status.kept_trim_bytes / CHUNK, status.trimmed_bytes / CHUNK, no_hole / CHUNK)
    };
    use Zeroes::Trim;
    let no_hole = Zeroes::Written { no_hole: true };
    // Chunks of kept trims, chunks of owed trims, and owed chunks that must stay allocated.
    assert_eq!(owed(&[(Trim, 0, half), (Trim, half, half)]), (1, 0, 0));
    assert_eq!(owed(&[(Trim, 0, half), (WRITTEN, half, half)]), (0, 1, 0));
    assert_eq!(owed(&[(WRITTEN, half, half), (Trim, 0, half)]), (0, 1, 0));
    assert_eq!(owed(&[(Trim, 0, half), (WRITTEN, 0, half), (Trim, half, half)]), (0, 1, 0));
    assert_eq!(owed(&[(WRITTEN, 0, half), (Trim, 0, CHUNK)]), (1, 0, 0));
    assert_eq!(owed(&[(no_hole, 0, half), (WRITTEN, half, half)]), (0, 1, 1));
    assert_eq!(owed(&[(no_hole, 0, half), (Trim, half, half)]), (0, 1, 1));
    // In a run, all of which reads as zeroes.
    assert_eq!(owed(&[(Trim, 0, 4 * CHUNK), (WRITTEN, CHUNK, half)]), (3, 1, 0));
    assert_eq!(owed(&[(WRITTEN, 0, 4 * CHUNK), (Trim, CHUNK, half)]), (0, 4, 0));
    assert_eq!(owed(&[(WRITTEN, 0, 4 * CHUNK), (no_hole, CHUNK + half, CHUNK)]), (0, 4, 2));
    assert_eq!(owed(&[(no_hole, 0, 4 * CHUNK), (WRITTEN, CHUNK, half)]), (0, 4, 4));
    assert_eq!(owed(&[(no_hole, 0, CHUNK), (WRITTEN, 0, half), (WRITTEN, half, half)]), (0, 1, 0));
    assert_eq!(owed(&[(WRITTEN, 0, CHUNK), (Trim, 0, half), (Trim, half, half)]), (1, 0, 0));
}

/// A durable request ends after the commit of all its pieces, those in older runs included.
#[test]
fn a_durable_trim_across_runs_survives_a_crash() {
    each_seed(20, |seed| {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed, Setup::default());
        let mut twin = Twin::new();
        world.fill_origin(0, &noise(1, 64 * CHUNK as usize));
        twin.write(0, &noise(1, 64 * CHUNK as usize));
        let last = 8 + rng.below(40);
        world.zero(last * CHUNK, 4 * CHUNK, ZeroFlags { no_hole: true, ..ZeroFlags::default() });
        twin.zero(last * CHUNK, 4 * CHUNK);
        let (from, to) = (CHUNK * rng.below(8), last * CHUNK + 512 * (1 + rng.below(30)));
        world.zero(from, to - from, ZeroFlags { fua: true, ..ZeroFlags::default() });
        twin.zero(from, to - from);
        world.crash();
        world.open();
        let len = (last * CHUNK) as usize;
        assert_same(&world.read(0, len), &twin.bytes(0, len), "after a crash");
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

/// Checks that a writer at a limit waits for the origin, and not for the destage rate. That would
/// take ages.
#[test]
fn no_rate_holds_writers_at_a_limit() {
    let setup = |tuning: fn() -> larder_engine::Tuning| {
        let mut setup = Setup { flash_bytes: 5 * MIB, schedule: Schedule::Timed, ..Setup::default() };
        setup.tuning = larder_engine::Tuning { destage_rate_bytes_per_s: 1, ..tuning() };
        setup
    };
    // Trimmed runs.
    let world = World::new(1, setup(lazy_tuning));
    for number in 0..2000 {
        world.trim(number * 4 * CHUNK, CHUNK);
    }
    let status = world.status();
    assert!(status.counts.write_waits > 0 || status.trimmed_runs < 2000, "the table was full");
    assert!(world.runtime.now() < Duration::from_secs(60), "{:?}", world.runtime.now());
    // Dirty data.
    let world = World::new(1, setup(Default::default));
    for number in 0..1000 {
        world.write(number * 2 * CHUNK, &noise(number, CHUNK as usize));
    }
    assert!(world.status().counts.destaged_chunks > 100, "the flash was full");
    assert!(world.runtime.now() < Duration::from_secs(60), "{:?}", world.runtime.now());
}

/// Much dirty data ends a pause that began while little was dirty.
#[test]
fn no_rate_holds_a_destage_above_the_high_watermark() {
    let mut setup = Setup { schedule: Schedule::Timed, ..Setup::default() };
    setup.tuning.destage_rate_bytes_per_s = 1;
    (setup.tuning.dirty_low_percent, setup.tuning.dirty_high_percent) = (5, 20);
    let world = World::new(1, setup);
    let write = |number: u64| world.write(number * 2 * CHUNK, &noise(number, CHUNK as usize));
    let rest = || world.run(async { world.runtime.delay(Duration::from_secs(30)).await.expect("time passes") });
    (0..200).for_each(write);
    rest();
    let slow = world.status().counts.destaged_chunks;
    assert!(slow <= 64, "{slow} chunks at a byte a second");
    (200..700).for_each(write);
    rest();
    let status = world.status();
    assert!(status.counts.destaged_chunks > slow + 100, "{} chunks", status.counts.destaged_chunks);
}
