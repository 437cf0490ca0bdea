//! The write modes: the way of each write to the origin, the insertions, and the switch between
//! them.

use crate::common::*;
use larder_device::{
    IoErrorKind, IoOp, Runtime, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::SimDevice,
};
use larder_engine::{Cache, WriteMode};
use std::time::Duration;

const CHUNK: usize = 8 << 10;
const VOLUME: u64 = 4 << 20;

fn setup(mode: WriteMode) -> Setup {
    let mut setup = Setup { origin_bytes: VOLUME, ..Setup::default() };
    setup.options.mode = mode;
    setup
}

fn origin_modes() -> [WriteMode; 2] {
    [WriteMode::Through, WriteMode::Around]
}

#[test]
fn flush_reaches_the_origin() {
    each_seed(10, |seed| {
        for mode in origin_modes() {
            let mut world = World::new(seed, setup(mode));
            let mut twin = Twin::new();
            let mut rng = Rng::new(seed);
            for number in 0..60 {
                let (offset, len) = random_run(&mut rng, VOLUME, 64);
                let data = noise(number, len);
                world.write(offset, &data);
                twin.write(offset, &data);
                if rng.chance(1, 4) {
                    let (offset, len) = random_run(&mut rng, VOLUME, 64);
                    world.trim(offset, len as u64);
                    twin.zero(offset, len as u64);
                }
                if rng.chance(1, 3) {
                    let (offset, len) = random_run(&mut rng, VOLUME, 64);
                    assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read");
                }
            }
            world.flush();
            let expected = twin.bytes(0, VOLUME as usize);
            assert_same(&world.origin.sim.peek_durable(0, VOLUME as usize), &expected, "the origin after FLUSH");
            assert_eq!((world.status().dirty_bytes, world.status().trimmed_bytes), (0, 0));
            // The flash is lost: the origin alone is complete, under a new cache.
            world.crash();
            let lost = World::made(seed, setup(mode));
            world.flash.sim.attach(&lost.runtime);
            world.origin.sim.attach(&lost.runtime);
            let origin: std::sync::Arc<SimDevice> = world.origin.sim.clone();
            let open = Cache::open(lost.flash.clone(), origin, lost.runtime.clone(), lost.setup.tuning.clone());
            let cache = lost.run(open).unwrap_or_else(|error| panic!("open: {error}"));
            let bytes = lost.run(cache.read(0, larder_device::IoBuf::new(VOLUME as usize))).expect("a read");
            assert_same(&bytes, &expected, "a new cache over the origin");
        }
    });
}

#[test]
fn fua_reaches_the_origin_at_once() {
    each_seed(10, |seed| {
        for mode in origin_modes() {
            let world = World::new(seed, setup(mode));
            for number in 0..20_u64 {
                let (offset, data) = (number * (24 << 10), noise(number, 5 * SECTOR));
                world.write_fua(offset, &data);
                assert_same(&world.origin.sim.peek_durable(offset, data.len()), &data, "the origin after FUA");
            }
            world.zero(0, 12 << 10, ZeroFlags { fua: true, ..ZeroFlags::default() });
            assert!(world.origin.sim.peek_durable(0, 12 << 10).iter().all(|&b| b == 0));
        }
    });
}

#[test]
fn write_back_keeps_the_origin_out_of_writes_and_flushes() {
    each_seed(5, |seed| {
        let world = World::new(seed, setup(WriteMode::Back));
        world.origin.take_events();
        for number in 0..50_u64 {
            world.try_write(number * CHUNK as u64, &noise(number, CHUNK), number % 5 == 0).expect("a write");
            if number % 10 == 0 {
                world.flush();
            }
        }
        world.trim(0, 3 * CHUNK as u64);
        world.flush();
        let asked = world.origin.take_events();
        assert!(asked.is_empty(), "the origin was asked {asked:?}");
    });
}

#[test]
fn write_around_inserts_nothing_and_invalidates() {
    each_seed(10, |seed| {
        let world = World::new(seed, setup(WriteMode::Around));
        let (old, new) = (noise(1, CHUNK), noise(2, CHUNK));
        world.write(0, &old);
        world.wait_for_insertions();
        assert_eq!(world.status().counts.inserted_chunks, 0);
        assert_same(&world.read(0, CHUNK), &old, "the miss");
        assert_eq!(world.origin_reads(), 1, "a write was not inserted");
        world.wait_for_insertions();
        assert_eq!(world.status().counts.inserted_chunks, 1, "a read is");
        assert_same(&world.read(0, CHUNK), &old, "the hit");
        assert_eq!(world.origin_reads(), 1);
        world.write(0, &new);
        assert_same(&world.read(0, CHUNK), &new, "after the second write");
        assert_eq!(world.origin_reads(), 2, "the write forgot the cached copy");
        world.wait_for_insertions();
        world.write(1024, &old[..1024]);
        assert_same(&world.read(1024, 1024), &old[..1024], "after a partial write");
        assert_same(&world.read(0, 1024), &new[..1024], "beside a partial write");
        assert_eq!(world.status().counts.fragments_written, 0);
    });
}

#[test]
fn write_through_inserts_what_it_writes() {
    each_seed(10, |seed| {
        let world = World::new(seed, setup(WriteMode::Through));
        let mut content = noise(1, CHUNK);
        world.write(0, &content);
        world.wait_for_insertions();
        assert_same(&world.read(0, CHUNK), &content, "the chunk");
        assert_eq!(world.origin_reads(), 0, "a write is inserted");
        assert_same(&world.origin.sim.peek(0, CHUNK), &content, "the origin has it before the write is over");
        // A part of a cached chunk keeps it cached.
        content[2048..3072].copy_from_slice(&noise(2, 1024));
        world.write(2048, &content[2048..3072]);
        world.wait_for_insertions();
        assert_same(&world.read(0, CHUNK), &content, "the merged chunk");
        assert_eq!(world.origin_reads(), 0);
        // A part of an uncached chunk does not.
        world.write(10 * CHUNK as u64, &content[..512]);
        world.wait_for_insertions();
        assert_eq!(world.status().counts.fragments_written, 0, "write-through keeps no fragments");
        assert_same(&world.read(10 * CHUNK as u64, 512), &content[..512], "the part");
        assert_eq!(world.origin_reads(), 1);
    });
}

#[test]
fn no_stale_copy_comes_back_after_a_crash() {
    // The trap of write-through: the origin is written and acknowledged, the mapping is not yet
    // durable, the old one is.
    each_seed(30, |seed| {
        for mode in origin_modes() {
            let mut world = World::new(seed, setup(mode));
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            for number in 0..30_u64 {
                world.write(number * CHUNK as u64, &noise(number, CHUNK));
                twin.write(number * CHUNK as u64, &noise(number, CHUNK));
                world.read(number * CHUNK as u64, CHUNK);
            }
            world.wait_for_insertions();
            world.run(world.cache().checkpoint()).expect("a checkpoint");
            for number in 100..130 {
                let (offset, len) = random_run(&mut rng, 30 * CHUNK as u64, 32);
                let data = noise(number, len);
                world.write(offset, &data);
                twin.write(offset, &data);
                // Others' reads insert the new content, whose mapping may or may not become
                // durable.
                world.read(offset, len);
            }
            world.flush();
            if rng.chance(1, 2) {
                world.crash()
            } else {
                world.kill()
            }
            world.open();
            let bytes = 30 * CHUNK;
            assert_same(&world.read(0, bytes), &twin.bytes(0, bytes), "after the crash");
            assert_same(&world.origin.sim.peek(0, bytes), &twin.bytes(0, bytes), "the origin");
        }
    });
}

#[test]
fn a_switch_to_write_through_leaves_nothing_dirty_and_lasts() {
    each_seed(10, |seed| {
        for mode in origin_modes() {
            let mut world = World::new(seed, setup(WriteMode::Back));
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            for number in 0..80 {
                let (offset, len) = random_run(&mut rng, VOLUME, 48);
                if rng.chance(1, 6) {
                    world.trim(offset, len as u64);
                    twin.zero(offset, len as u64);
                } else {
                    world.write(offset, &noise(number, len));
                    twin.write(offset, &noise(number, len));
                }
            }
            assert!(world.status().dirty_bytes > 0);
            world.run(world.cache().set_mode(mode)).unwrap_or_else(|error| panic!("set mode: {error}"));
            let status = world.status();
            assert_eq!((status.dirty_bytes, status.trimmed_bytes), (0, 0), "nothing is dirty");
            assert_eq!(world.cache().mode(), mode);
            let expected = twin.bytes(0, VOLUME as usize);
            assert_same(&world.origin.sim.peek_durable(0, VOLUME as usize), &expected, "the origin");
            world.crash();
            world.open();
            assert_eq!(world.cache().mode(), mode, "the mode is durable");
            let status = world.status();
            assert_eq!((status.dirty_bytes, status.trimmed_bytes), (0, 0), "no dirty record comes back");
            assert_same(&world.read(0, VOLUME as usize), &expected, "the volume");
            // And back.
            world.run(world.cache().set_mode(WriteMode::Back)).unwrap_or_else(|error| panic!("set mode: {error}"));
            world.origin.take_events();
            world.write(0, &noise(1000, CHUNK));
            world.flush();
            assert!(world.origin.asked(IoOp::Write).is_empty(), "write-back writes the cache");
            world.crash();
            world.open();
            assert_eq!(world.cache().mode(), WriteMode::Back);
            assert_same(&world.read(0, CHUNK), &noise(1000, CHUNK), "a write after the switch");
        }
    });
}

#[test]
fn writes_during_a_switch_are_kept() {
    each_seed(20, |seed| {
        let mut world = World::new(seed, setup(WriteMode::Back));
        for number in 0..40_u64 {
            world.write(number * CHUNK as u64, &noise(number, CHUNK));
        }
        let cache = world.cache().clone();
        world.run(all(vec![
            Box::pin(async { cache.set_mode(WriteMode::Through).await.expect("the switch") }),
            Box::pin(async {
                for number in 0..40_u64 {
                    let data = larder_device::IoBuf::copy_of(&noise(500 + number, CHUNK)).freeze();
                    cache.write(number * CHUNK as u64, data, Default::default()).await.expect("a write");
                }
                cache.flush().await.expect("a flush");
            }),
        ]));
        drop(cache);
        assert_eq!(world.status().dirty_bytes, 0);
        world.flush();
        world.crash();
        world.open();
        for number in 0..40_u64 {
            assert_same(&world.read(number * CHUNK as u64, CHUNK), &noise(500 + number, CHUNK), "a write");
            let origin = world.origin.sim.peek_durable(number * CHUNK as u64, CHUNK);
            assert_same(&origin, &noise(500 + number, CHUNK), "the origin");
        }
    });
}

/// A switch that failed halfway may have left its mode in one twin of the superblock.
#[test]
fn the_mode_that_was_set_last_is_the_one_that_a_crash_brings_back() {
    each_seed(120, |seed| {
        let mut world = World::new(seed, setup(WriteMode::Around));
        let (cache, mut rng) = (world.cache().clone(), Rng::new(seed));
        let (flash, later) = (world.flash.clone(), world.runtime.delay(Duration::from_micros(rng.below(600))));
        let fault = Fault { op: Some(IoOp::Write), range: None, kind: IoErrorKind::Io, times: FOR_EVER };
        world.run(all(vec![
            Box::pin(async {
                let _ = cache.set_mode(WriteMode::Through).await;
            }),
            Box::pin(async {
                later.await.expect("it passes");
                flash.sim.plan().add(fault);
            }),
        ]));
        if seed % 2 == 0 {
            world.flash.sim.plan().clear();
        }
        let set = world.run(cache.set_mode(WriteMode::Around)).is_ok();
        world.flash.sim.plan().clear();
        drop(cache);
        world.crash();
        world.open();
        assert!(!set || world.cache().mode() == WriteMode::Around);
    });
}

#[test]
fn a_switch_that_cannot_destage_changes_nothing() {
    each_seed(10, |seed| {
        let world = World::new(seed, setup(WriteMode::Back));
        world.write(0, &noise(1, CHUNK));
        let fault = Fault { op: Some(IoOp::Write), range: None, kind: IoErrorKind::Io, times: FOR_EVER };
        world.origin.sim.plan().add(fault);
        assert!(world.run(world.cache().set_mode(WriteMode::Through)).is_err());
        assert_eq!(world.cache().mode(), WriteMode::Back);
        assert_eq!(world.superblock().mode, WriteMode::Back);
        assert_eq!(world.status().dirty_bytes, CHUNK as u64);
        // Writes go on.
        world.write(CHUNK as u64, &noise(2, CHUNK));
        world.flush();
        world.origin.sim.plan().clear();
        world.run(world.cache().set_mode(WriteMode::Through)).expect("the switch works again");
        assert_same(&world.origin.sim.peek_durable(0, CHUNK), &noise(1, CHUNK), "the origin");
    });
}
