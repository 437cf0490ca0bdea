//! The treatments of a TRIM: kept by the cache, passed on as a discard, or written as zeroes.
//!
//! It leaves sweeps over crashes to the simulation.

use crate::{common::*, fence::MemoryFence};
use larder_device::{
    IoErrorKind, IoOp, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::SimDeviceOptions,
};
use larder_engine::{EngineError, WriteMode, config::TrimPolicy, fence::Note};

const CHUNK: u64 = 8 << 10;

fn setup(trim: TrimPolicy) -> Setup {
    let mut setup = Setup { origin_bytes: 4 * MIB, ..Setup::default() };
    setup.tuning.trim = trim;
    setup
}

/// Makes a world over an origin without holes, with the volume as a client expects it.
fn filled(seed: u64, setup: Setup) -> (World, Twin, usize) {
    let len = setup.origin_bytes as usize;
    let world = World::new(seed, setup);
    let mut twin = Twin::new();
    world.fill_origin(0, &noise(99, len));
    twin.write(0, &noise(99, len));
    (world, twin, len)
}

/// Counts the requests that change the origin, since its events were last taken.
fn changes(world: &World) -> usize {
    [IoOp::Write, IoOp::WriteZeroes, IoOp::Discard].iter().map(|&op| world.origin.asked(op).len()).sum()
}

/// A kept trim costs the origin nothing, through a full destage, a checkpoint, and all ends.
///
/// Crashes are among the ends. Without the option, the next cache brings it to the origin as
/// zeroes.
#[test]
fn kept_trims_stay_in_the_cache_until_another_serving_destages_them() {
    each_seed(8, |seed| {
        let (mut world, mut twin, len) = filled(seed, setup(TrimPolicy::Keep));
        assert!(world.superblock().kept_trims, "older programs are kept out before the first kept trim");
        let before = world.origin.sim.peek_durable(0, len);
        world.write(40 * CHUNK, &noise(1, 4 * CHUNK as usize));
        world.read(50 * CHUNK, 2 * CHUNK as usize);
        world.origin.take_events();
        world.trim(32 * CHUNK, 64 * CHUNK);
        world.trim(200 * CHUNK, 10 * CHUNK);
        twin.zero(32 * CHUNK, 64 * CHUNK);
        twin.zero(200 * CHUNK, 10 * CHUNK);
        for step in 0..6 {
            assert_same(&world.read(0, 256 * CHUNK as usize), &twin.bytes(0, 256 * CHUNK as usize), "the volume");
            let status = world.status();
            assert_eq!((status.kept_trim_bytes, status.kept_trim_runs), (74 * CHUNK, 2), "step {step}");
            assert_eq!((status.trimmed_bytes, status.trimmed_runs, status.dirty_bytes), (0, 0, 0));
            assert!(world.destage_all(), "nothing is owed");
            assert_eq!(changes(&world), 0, "step {step}");
            world.flush();
            match step {
                0 => world.crash(),
                1 => world.run(world.cache().checkpoint()).expect("a checkpoint"),
                2 | 4 => world.kill(),
                3 => world.close(),
                _ => world.close(),
            }
            if step != 1 {
                world.open();
            }
        }
        assert_same(&world.origin.sim.peek_durable(0, len), &before, "the origin");
        world.close();
        world.setup.tuning.trim = TrimPolicy::Zero;
        world.open();
        assert_eq!((world.status().kept_trim_bytes, world.status().trimmed_bytes), (0, 74 * CHUNK));
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "the origin");
        assert_eq!(world.status().trimmed_runs, 0);
    });
}

/// A kept trim may replace data that the origin lacks. Behind a full destage no crash brings back
/// what was there before that data.
#[test]
fn a_kept_trim_outlives_a_crash_behind_a_full_destage() {
    each_seed(8, |seed| {
        let (mut world, mut twin, len) = filled(seed, setup(TrimPolicy::Keep));
        world.zero(10 * CHUNK + 512, 2048, ZeroFlags::default());
        world.write(12 * CHUNK, &noise(1, CHUNK as usize));
        world.trim(10 * CHUNK, 4 * CHUNK);
        twin.zero(10 * CHUNK, 4 * CHUNK);
        assert!(world.destage_all(), "nothing is owed");
        if seed % 2 == 0 {
            world.crash()
        } else {
            world.kill()
        }
        world.open();
        assert_same(&world.read(0, len), &twin.bytes(0, len), "the volume");
    });
}

/// A write cuts a kept trim, and WRITE_ZEROES over it reaches the origin.
///
/// A trim over such zeroes leaves them owed.
#[test]
fn writes_and_zeroes_over_a_kept_trim_reach_the_origin() {
    each_seed(8, |seed| {
        let (mut world, mut twin, len) = filled(seed, setup(TrimPolicy::Keep));
        let mut origin = Twin::new();
        origin.write(0, &noise(99, len));
        world.trim(0, 64 * CHUNK);
        twin.zero(0, 64 * CHUNK);
        for volume in [&mut twin, &mut origin] {
            volume.write(8 * CHUNK, &noise(2, CHUNK as usize));
            // A part of a chunk: the rest of it is zeroes that the origin lacks.
            volume.zero(20 * CHUNK, CHUNK);
            volume.write(20 * CHUNK + 1024, &noise(3, 512));
            volume.zero(30 * CHUNK, 6 * CHUNK);
            volume.zero(100 * CHUNK, 4 * CHUNK);
        }
        world.write(8 * CHUNK, &noise(2, CHUNK as usize));
        world.write(20 * CHUNK + 1024, &noise(3, 512));
        world.zero(30 * CHUNK, 6 * CHUNK, ZeroFlags::default());
        world.zero(100 * CHUNK, 2 * CHUNK, ZeroFlags::default());
        world.zero(102 * CHUNK, 2 * CHUNK, ZeroFlags { no_hole: true, ..ZeroFlags::default() });
        world.trim(98 * CHUNK, 8 * CHUNK);
        twin.zero(98 * CHUNK, 8 * CHUNK);
        let status = world.status();
        assert_eq!((status.kept_trim_bytes, status.trimmed_bytes), ((64 - 2 - 6 + 4) * CHUNK, 10 * CHUNK));
        assert_eq!(status.counts.ignored_trim_bytes, 0);
        if seed % 2 == 0 {
            world.flush();
            world.crash();
            world.open();
        }
        assert_same(&world.read(0, len), &twin.bytes(0, len), "the volume");
        assert!(world.destage_all());
        assert_same(&world.origin.sim.peek_durable(0, len), &origin.bytes(0, len), "the origin");
        let status = world.status();
        assert_eq!((status.kept_trim_bytes, status.trimmed_bytes), ((64 - 2 - 6 + 4) * CHUNK, 0));
    });
}

/// A trim without room, or of a part of a chunk, changes nothing and is counted.
#[test]
fn trims_without_room_are_ignored_and_counted() {
    each_seed(4, |seed| {
        let mut setup = setup(TrimPolicy::Keep);
        setup.flash_bytes = 5 * MIB;
        let (mut world, mut twin, len) = filled(seed, setup);
        let room = world.layout().zero_ranges_max / 2;
        let mut ignored = 0;
        for number in 0..room + 20 {
            let at = number * 4 * CHUNK;
            // The sectors before the chunk are a part of one.
            world.trim(at + 2 * CHUNK - 1024, CHUNK + 1024);
            if number < room {
                twin.zero(at + 2 * CHUNK, CHUNK);
                ignored += 1024;
            } else {
                ignored += CHUNK + 1024;
            }
        }
        assert_eq!(world.status().counts.ignored_trim_bytes, ignored);
        // One that joins kept runs takes no room.
        world.trim(3 * CHUNK, 3 * CHUNK);
        twin.zero(3 * CHUNK, 3 * CHUNK);
        let status = world.status();
        assert_eq!((status.counts.ignored_trim_bytes, status.kept_trim_runs), (ignored, room - 1));
        assert_eq!(status.kept_trim_bytes, (room + 3) * CHUNK);
        assert_same(&world.read(0, len), &twin.bytes(0, len), "the volume");
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(0, len), &twin.bytes(0, len), "after a crash");
        assert_eq!(changes(&world), 0, "the origin gets nothing");
    });
}

/// Writes that cut kept trims find room in the table: the origin gets the shortest ones as zeroes.
#[test]
fn writes_that_fill_the_table_give_the_shortest_trims_to_the_origin() {
    each_seed(4, |seed| {
        let mut setup = setup(TrimPolicy::Keep);
        setup.flash_bytes = 5 * MIB;
        let (mut world, mut twin, len) = filled(seed, setup);
        let max = world.layout().zero_ranges_max;
        let count = max / 2;
        // The first half of them is short.
        let run = |number: u64| (number * 8 * CHUNK, if number < count / 2 { CHUNK } else { 7 * CHUNK });
        for (at, len) in (0..count).map(run) {
            world.trim(at, len);
            twin.zero(at, len);
        }
        assert_eq!(world.status().kept_trim_runs, count);
        let before = world.origin.sim.peek_durable(0, len);
        for (number, (at, _)) in (0..count).map(run).enumerate().skip(count as usize / 2) {
            world.write(at + 3 * CHUNK, &noise(number as u64, CHUNK as usize));
            twin.write(at + 3 * CHUNK, &noise(number as u64, CHUNK as usize));
        }
        let cache = world.cache().clone();
        world.run(async {
            while cache.status().kept_trim_runs >= max / 4 * 3 {
                larder_device::Runtime::delay(&*world.runtime, std::time::Duration::from_millis(1)).await.unwrap();
            }
        });
        drop(cache);
        let status = world.status();
        assert!(status.kept_trim_runs >= max / 2, "{} of {max} runs are left", status.kept_trim_runs);
        let after = world.origin.sim.peek_durable(0, len);
        let told: Vec<u64> = (0..count)
            .filter(|&number| before[run(number).0 as usize..][..512] != after[run(number).0 as usize..][..512])
            .collect();
        assert!(!told.is_empty() && told.iter().all(|&number| number < count / 2), "the origin got {told:?}");
        assert_same(&world.read(0, len), &twin.bytes(0, len), "the volume");
        world.flush();
        world.crash();
        world.open();
        assert_same(&world.read(0, len), &twin.bytes(0, len), "after a crash");
    });
}

/// A mode without dirty data has no kept trims: the origin gets them before the switch.
///
/// A TRIM is ignored from then on, and copies of the range stay valid.
#[test]
fn a_switch_away_from_write_back_brings_kept_trims_to_the_origin() {
    each_seed(6, |seed| {
        for mode in [WriteMode::Through, WriteMode::Around] {
            let (mut world, mut twin, len) = filled(seed, setup(TrimPolicy::Keep));
            world.trim(16 * CHUNK, 16 * CHUNK);
            twin.zero(16 * CHUNK, 16 * CHUNK);
            world.run(world.cache().set_mode(mode)).expect("a switch");
            let status = world.status();
            assert_eq!((status.kept_trim_bytes, status.trimmed_bytes, status.mode), (0, 0, mode_name(mode)));
            assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "the origin");
            world.read(64 * CHUNK, 8 * CHUNK as usize);
            world.wait_for_insertions();
            world.origin.take_events();
            let hits = world.status().counts.read_hits;
            world.trim(64 * CHUNK, 8 * CHUNK);
            assert_same(
                &world.read(64 * CHUNK, 8 * CHUNK as usize),
                &twin.bytes(64 * CHUNK, 8 * CHUNK as usize),
                "copies",
            );
            assert_eq!(world.status().counts.read_hits, hits + 8, "the copies stay");
            assert_eq!((world.status().counts.ignored_trim_bytes, changes(&world)), (8 * CHUNK, 0));
            world.zero(66 * CHUNK, CHUNK, ZeroFlags::default());
            twin.zero(66 * CHUNK, CHUNK);
            world.flush();
            assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "WRITE_ZEROES is none of this");
            world.crash();
            world.open();
            assert_same(&world.read(0, len), &twin.bytes(0, len), "after a crash");
        }
    });
}

fn mode_name(mode: WriteMode) -> &'static str {
    larder_engine::status::mode_name(mode)
}

/// A flash that fails holds no trims: the origin gets them as zeroes.
///
/// Behind the fence nothing is lost.
#[test]
fn a_flash_that_fails_gives_its_kept_trims_to_the_origin() {
    each_seed(8, |seed| {
        let fence = MemoryFence::new();
        let mut setup = setup(TrimPolicy::Keep);
        setup.tuning.fence = fence.keeper();
        setup.tuning.durable_writes = seed % 2 == 0;
        let (mut world, mut twin, len) = filled(seed, setup);
        world.trim(0, 32 * CHUNK);
        world.flush();
        let fault = Fault { op: Some(IoOp::Write), range: None, kind: IoErrorKind::Io, times: FOR_EVER };
        world.flash.sim.plan().add(fault);
        // Not durable on the flash.
        world.trim(64 * CHUNK, 32 * CHUNK);
        twin.zero(0, 32 * CHUNK);
        twin.zero(64 * CHUNK, 32 * CHUNK);
        world.flush();
        assert!(world.status().degraded && fence.is_up());
        assert!(world.destage_all());
        assert_eq!((world.status().kept_trim_bytes, world.status().trimmed_bytes), (0, 0));
        assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "the origin");
        world.trim(128 * CHUNK, CHUNK);
        assert_eq!(world.status().counts.ignored_trim_bytes, CHUNK, "nothing is kept any more");
        assert_same(&world.read(0, len), &twin.bytes(0, len), "without the flash");
        world.close();
        world.flash.sim.plan().clear();
        world.crash();
        match world.try_open() {
            // The end told the keeper that the origin has all data, so that nothing is lost.
            Ok(()) => assert_same(&world.read(0, len), &twin.bytes(0, len), "after the return"),
            Err(error) => panic!("open: {error}"),
        }
    });
}

/// A fence that is up keeps a flash from being opened while it holds trims that the origin may
/// lack.
#[test]
fn a_kept_trim_behind_a_fence_is_not_dropped_silently() {
    let fence = MemoryFence::new();
    let mut setup = setup(TrimPolicy::Keep);
    setup.tuning.fence = fence.keeper();
    let (mut world, _, _) = filled(1, setup);
    world.trim(0, 32 * CHUNK);
    world.flush();
    world.crash();
    let why = "the origin was served alone".to_owned();
    let alone = larder_engine::fence::Raised { why, dirty_bytes: 0, superblock_sequence: 0, is_destaged: false };
    fence.keep(Note::Raised(alone)).expect("a fence");
    match world.try_open() {
        Err(EngineError::Fenced { dirty_bytes, .. }) => assert_eq!(dirty_bytes, 32 * CHUNK),
        opened => panic!("opened: {opened:?}"),
    }
}

/// A detached cache leaves the origin as it was under kept trims, and knows how many bytes these
/// are.
#[test]
fn a_detach_tells_of_the_trims_that_the_origin_lacks() {
    each_seed(4, |seed| {
        let (world, _, len) = filled(seed, setup(TrimPolicy::Keep));
        let mut origin = Twin::new();
        origin.write(0, &noise(99, len));
        world.trim(0, 32 * CHUNK);
        world.write(100 * CHUNK, &noise(5, CHUNK as usize));
        origin.write(100 * CHUNK, &noise(5, CHUNK as usize));
        world.zero(110 * CHUNK, CHUNK, ZeroFlags::default());
        origin.zero(110 * CHUNK, CHUNK);
        world.run(world.cache().detach()).expect("detached");
        assert_eq!(world.status().kept_trim_bytes, 32 * CHUNK);
        assert_same(&world.origin.sim.peek_durable(0, len), &origin.bytes(0, len), "the origin");
    });
}

/// Passed on, a TRIM is a plain discard if the origin promises zeroes after one, otherwise zeroes.
///
/// WRITE_ZEROES never is one.
#[test]
fn trims_are_passed_on_where_the_origin_promises_zeroes() {
    each_seed(6, |seed| {
        for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
            for discard_zeroes in [true, false] {
                let mut setup = setup(TrimPolicy::Pass);
                setup.options.mode = mode;
                setup.tuning.durable_writes = seed % 3 == 0;
                setup.origin = SimDeviceOptions { discard_zeroes, ..SimDeviceOptions::default() };
                let (mut world, mut twin, len) = filled(seed, setup);
                world.origin.take_events();
                let mut rng = Rng::new(seed);
                for _ in 0..20 {
                    let (at, len) = random_run(&mut rng, MIB, 600);
                    world.trim(at, len as u64);
                    twin.zero(at, len as u64);
                }
                if mode == WriteMode::Back && rng.chance(1, 2) {
                    world.flush();
                    world.crash();
                    world.open();
                }
                world.zero(2 * MIB, 16 * CHUNK, ZeroFlags::default());
                twin.zero(2 * MIB, 16 * CHUNK);
                assert_same(&world.read(0, len), &twin.bytes(0, len), "the volume");
                assert!(world.destage_all());
                world.flush();
                assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "the origin");
                let (discards, zeroes) = (world.origin.asked(IoOp::Discard), world.origin.asked(IoOp::WriteZeroes));
                assert_eq!(!discards.is_empty(), discard_zeroes, "{mode:?}");
                assert!(discards.iter().all(|it| it.end() <= MIB), "{discards:?}");
                assert!(zeroes.iter().any(|it| it.offset >= 2 * MIB), "{zeroes:?}");
                assert!(!discard_zeroes || zeroes.iter().all(|it| it.offset >= MIB), "{zeroes:?}");
            }
        }
    });
}

/// A cache without kept trims stays open to programs that do not know them.
#[test]
fn the_feature_is_set_with_the_first_serving_that_needs_it() {
    let mut world = World::new(1, setup(TrimPolicy::Zero));
    world.trim(0, 8 * CHUNK);
    assert!(!world.superblock().kept_trims);
    world.close();
    world.setup.tuning.trim = TrimPolicy::Pass;
    world.open();
    assert!(world.superblock().kept_trims);
}

/// An origin that refuses a discard in spite of its promise gets zeroes.
#[test]
fn a_refused_discard_becomes_zeroes() {
    let (world, mut twin, len) = filled(1, setup(TrimPolicy::Pass));
    let fault = Fault { op: Some(IoOp::Discard), range: None, kind: IoErrorKind::Unsupported, times: FOR_EVER };
    world.origin.sim.plan().add(fault);
    world.trim(0, 32 * CHUNK);
    twin.zero(0, 32 * CHUNK);
    assert!(world.destage_all());
    assert_same(&world.origin.sim.peek_durable(0, len), &twin.bytes(0, len), "the origin");
    assert_eq!(world.status().counts.origin_zero_bytes, 32 * CHUNK);
}
