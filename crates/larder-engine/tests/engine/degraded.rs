//! A flash that fails for good while it is served, and the next opening of its cache.
//!
//! Behind a fence reads, writes, trims and flushes go on. Without a fence the engine refuses
//! writes. Readable dirty data is saved. A fenced flash never brings back data older than the
//! origin's.
//!
//! It leaves the sweep over all moments to the simulation.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{
    IoErrorKind, IoOp, Runtime, Standing, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::Schedule,
};
use larder_engine::{EngineError, WriteMode, fence::Keeper};
use std::cell::Cell;
use std::{sync::Arc, time::Duration};

const CHUNK: usize = 8 << 10;
const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

fn fenced_setup(mode: WriteMode) -> (Setup, Arc<MemoryFence>) {
    let fence = MemoryFence::new();
    let mut setup = Setup { origin_bytes: 8 * MIB, ..Setup::default() };
    setup.options.mode = mode;
    setup.tuning.prefetch_bytes_max = 0;
    setup.tuning.fence = fence.keeper();
    setup.tuning.flash_full_timeout = Some(Duration::from_secs(2));
    (setup, fence)
}

fn always(op: IoOp, kind: IoErrorKind) -> Fault {
    Fault { op: Some(op), range: None, kind, times: FOR_EVER }
}

fn has(world: &World, name: &str) -> bool {
    world.status().conditions.iter().any(|condition| condition.name == name)
}

/// Runs random writes, trims, flushes and reads.
///
/// It checks every read, and each request must succeed.
fn work(world: &World, twin: &mut Twin, rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let (offset, len) = random_run(rng, 4 * MIB, 48);
        match rng.below(8) {
            0..4 => {
                let data = if rng.chance(1, 2) { noise(rng.next_u64(), len) } else { text(rng.below(4), len) };
                world.try_write(offset, &data, rng.chance(1, 8)).unwrap_or_else(|error| panic!("write: {error}"));
                twin.write(offset, &data);
            }
            4 => {
                world.zero(offset, len as u64, ZeroFlags::default());
                twin.zero(offset, len as u64);
            }
            5 => world.flush(),
            _ => assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read"),
        }
    }
}

/// The flash refuses writes in the middle of work, but takes reads.
///
/// No data is lost, and in the end the origin has all of it.
#[test]
fn a_flash_that_takes_no_writes_is_written_past_and_saved() {
    each_seed(12, |seed| {
        for mode in MODES {
            for (kind, name) in [(IoErrorKind::Io, "flash_failed"), (IoErrorKind::NoSpace, "flash_full")] {
                let (setup, fence) = fenced_setup(mode);
                let mut world = World::new(seed, setup);
                let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
                work(&world, &mut twin, &mut rng, 60);
                assert!(!world.status().degraded && !fence.is_up());
                world.flash.sim.plan().add(always(IoOp::Write, kind));
                work(&world, &mut twin, &mut rng, 200);
                // Work that needs no write of the flash would show nothing.
                world.run(world.cache().flush()).unwrap_or_else(|error| panic!("flush: {error}"));
                if mode == WriteMode::Back || world.status().degraded {
                    assert!(world.status().degraded && fence.is_up(), "{mode:?}");
                    assert!(has(&world, name) && has(&world, "fence_up"), "{:?}", world.status().conditions);
                    assert!(world.destage_all(), "what can be read can be saved");
                    assert_eq!(world.status().dirty_bytes, 0);
                }
                world.flush();
                let expected = twin.bytes(0, 4 << 20);
                if mode != WriteMode::Back || world.status().degraded {
                    assert_same(&world.origin.sim.peek_durable(0, 4 << 20), &expected, "the origin");
                }
                // The flash comes back. The data that it still calls dirty was saved, and is no
                // newer than the origin's.
                world.flash.sim.plan().clear();
                world.crash();
                if fence.is_up() {
                    match world.try_open() {
                        Err(EngineError::Fenced { dirty_bytes, .. }) => {
                            assert!(dirty_bytes > 0 && fence.is_up());
                            world.setup.tuning.discard_fenced = true;
                            world.open();
                        }
                        opened => opened.unwrap_or_else(|error| panic!("open: {error}")),
                    }
                    assert!(!fence.is_up() && has(&world, "emptied_behind_fence"));
                } else {
                    world.open();
                }
                assert_same(&world.read(0, 4 << 20), &expected, "after the return");
                work(&world, &mut twin, &mut rng, 60);
                world.flush();
                world.crash();
                world.open();
                assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "in the next life");
            }
        }
    });
}

/// The flash vanishes. Write-through and write-around go on whole.
#[test]
fn without_their_flash_write_through_and_around_keep_serving() {
    each_seed(12, |seed| {
        for mode in [WriteMode::Through, WriteMode::Around] {
            let (setup, fence) = fenced_setup(mode);
            let mut world = World::new(seed, setup);
            let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
            work(&world, &mut twin, &mut rng, 80);
            world.wait_for_insertions();
            world.flash.sim.set_gone(true);
            work(&world, &mut twin, &mut rng, 200);
            assert!(world.status().degraded && has(&world, "flash_gone") && fence.is_up());
            world.run(world.cache().close()).unwrap_or_else(|error| panic!("close: {error}"));
            world.crash();
            world.flash.sim.set_gone(false);
            world.open();
            assert!(!fence.is_up() && has(&world, "emptied_behind_fence"));
            assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after the return");
            assert_same(&world.origin.sim.peek(0, 4 << 20), &twin.bytes(0, 4 << 20), "the origin");
        }
    });
}

/// In write-back a chunk of the vanished flash alone reads as an error, never as old data.
///
/// An overwrite heals the chunk. The other chunks are served.
#[test]
fn without_its_flash_write_back_answers_dirty_chunks_with_an_error() {
    each_seed(8, |seed| {
        let (setup, fence) = fenced_setup(WriteMode::Back);
        let mut world = World::new(seed, setup);
        for lba in 500..510 {
            world.fill_origin(at(lba), &noise(lba, CHUNK));
        }
        for lba in 0..10 {
            world.write(at(lba), &noise(lba, CHUNK));
        }
        world.trim(at(20), 4 * CHUNK as u64);
        world.flush();
        world.flash.sim.set_gone(true);
        for lba in 0..10 {
            assert!(world.try_read(at(lba), CHUNK).is_err(), "chunk {lba} is on the flash alone");
            assert!(world.try_write(at(lba) + 512, &noise(100, 512), false).is_err(), "nor can it be merged with");
        }
        assert_same(
            &world.read(at(500), 10 * CHUNK),
            &[500, 501, 502, 503, 504, 505, 506, 507, 508, 509].map(|n| noise(n, CHUNK)).concat(),
            "clean chunks",
        );
        assert_same(&world.read(at(20), 4 * CHUNK), &vec![0; 4 * CHUNK], "a trimmed run is known without the flash");
        assert!(has(&world, "flash_gone") && has(&world, "undurable_data"));
        world.write(at(3), &noise(103, CHUNK));
        world.write(at(21) + 512, &noise(121, 512));
        assert!(fence.is_up());
        world.flush();
        assert_same(&world.read(at(3), CHUNK), &noise(103, CHUNK), "an overwritten chunk");
        let mut trimmed = vec![0; 4 * CHUNK];
        trimmed[CHUNK + 512..CHUNK + 1024].copy_from_slice(&noise(121, 512));
        assert_same(&world.read(at(20), 4 * CHUNK), &trimmed, "a trimmed run written into");
        world.crash();
        world.flash.sim.set_gone(false);
        let refused = world.try_open().expect_err("dirty data that may be old");
        assert!(
            matches!(refused, EngineError::Fenced { .. }) && refused.to_string().contains("--discard"),
            "{refused}"
        );
        assert!(fence.is_up(), "a refusal changes nothing");
        world.setup.tuning.discard_fenced = true;
        world.open();
        assert!(!fence.is_up());
        assert_same(&world.read(at(3), CHUNK), &noise(103, CHUNK), "what was written past the flash");
        assert_same(&world.read(at(4), CHUNK), &[0; CHUNK], "what was dropped reads as the origin has it");
        assert_same(&world.read(at(20), 4 * CHUNK), &trimmed, "the run");
    });
}

/// All dirty data goes to the origin before an orderly end behind the fence.
///
/// The flash misses that and still calls the data dirty. The next opening drops it without an
/// option.
#[test]
fn what_went_to_the_origin_behind_the_fence_needs_no_discard() {
    each_seed(4, |seed| {
        let (setup, fence) = fenced_setup(WriteMode::Back);
        let mut world = World::new(seed, setup);
        let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
        let fail_flash = |world: &World, twin: &mut Twin, rng: &mut Rng| {
            work(world, twin, rng, 60);
            world.flush();
            world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
            work(world, twin, rng, 60);
            world.flush();
            assert!(fence.is_up() && world.destage_all());
        };
        fail_flash(&world, &mut twin, &mut rng);
        world.close();
        world.flash.sim.plan().clear();
        world.open();
        assert!(!fence.is_up() && has(&world, "emptied_behind_fence"));
        assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after the return");
        // The same without an orderly end.
        fail_flash(&world, &mut twin, &mut rng);
        world.crash();
        world.flash.sim.plan().clear();
        world.open();
        assert!(!fence.is_up() && has(&world, "emptied_behind_fence"));
        assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after the crash");
        // The notes of earlier fences do not count for this one: the origin takes nothing.
        work(&world, &mut twin, &mut rng, 60);
        world.flush();
        world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        let _ = world.try_write(at(2), &noise(2, CHUNK), true);
        assert!(fence.is_up() && world.run(world.cache().flush()).is_err());
        world.crash();
        world.flash.sim.plan().clear();
        world.origin.sim.plan().clear();
        assert!(matches!(world.try_open(), Err(EngineError::Fenced { .. })), "seed {seed}");
    });
}

/// An orderly end does not note the data as destaged if some of it did not reach the origin.
#[test]
fn what_did_not_go_to_the_origin_behind_the_fence_is_kept() {
    each_seed(4, |seed| {
        let (setup, fence) = fenced_setup(WriteMode::Back);
        let mut world = World::new(seed, setup);
        (0..20).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
        world.flush();
        world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        let _ = world.try_write(at(30), &noise(30, CHUNK), false);
        assert!(world.run(world.cache().flush()).is_err(), "it is nowhere for good");
        assert!(fence.is_up() && world.status().dirty_bytes > 0);
        assert!(world.run(world.cache().close()).is_err());
        world.kill();
        world.flash.sim.plan().clear();
        world.origin.sim.plan().clear();
        match world.try_open() {
            Err(EngineError::Fenced { dirty_bytes, .. }) => assert!(dirty_bytes >= 20 * CHUNK as u64),
            other => panic!("seed {seed}: {other:?}"),
        }
    });
}

/// The flash had durable dirty data that never reached the origin, and comes back without it. The
/// fence's note tells the loss, whatever the flash tells.
#[test]
fn a_flash_that_comes_back_without_its_dirty_data_is_not_emptied_in_silence() {
    each_seed(4, |seed| {
        for is_written_past in [true, false] {
            let (mut setup, fence) = fenced_setup(WriteMode::Back);
            // The look that finds the cut comes with time.
            setup.schedule = Schedule::Timed;
            let mut world = World::new(seed, setup);
            let bytes = world.setup.flash_bytes as usize;
            // The last orderly end, before all writes.
            world.close();
            let older = world.flash.sim.peek_durable(0, bytes);
            world.open();
            (0..20).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
            world.flush();
            world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
            world.flash.stand(Standing::Truncated(4096));
            if is_written_past {
                assert!(world.run(world.cache().flush()).is_err(), "it is nowhere for good");
                let _ = world.try_write(at(30), &noise(30, CHUNK), false);
            } else {
                world.runtime.run_for(Duration::from_secs(3));
            }
            assert!(fence.is_up() && has(&world, "flash_failed"));
            world.kill();
            world.origin.sim.plan().clear();
            world.flash.stand(Standing::Sound);
            world.flash.sim.poke(0, &older);
            match world.try_open() {
                Err(error @ EngineError::Fenced { dirty_bytes: 0, noted_bytes, .. }) => {
                    assert_eq!(noted_bytes, 20 * CHUNK as u64);
                    assert!(error.to_string().contains("--discard"), "{error}");
                }
                other => panic!("seed {seed}: {other:?}"),
            }
            assert!(fence.is_up(), "a refusal changes nothing");
            world.setup.tuning.discard_fenced = true;
            world.open();
            assert!(!fence.is_up() && has(&world, "emptied_behind_fence"));
        }
    });
}

/// Checks that the keeper's superblock number is never above the flash's: none counts as a copy.
/// After an orderly end the two are equal.
#[test]
fn the_keeper_never_knows_a_newer_superblock_than_the_flash() {
    each_seed(12, |seed| {
        let (setup, fence) = fenced_setup(WriteMode::Back);
        let mut world = World::new(seed, setup);
        let mut rng = Rng::new(seed);
        for round in 0..12 {
            (0..rng.below(40)).for_each(|lba| drop(world.try_write(at(lba), &noise(lba, CHUNK), rng.chance(1, 8))));
            match rng.below(5) {
                0 => drop(world.run(world.cache().checkpoint())),
                1 => drop(world.run(world.cache().set_mode(MODES[rng.below(3) as usize]))),
                2 => {
                    world.flash.sim.fail_next(IoOp::Write, IoErrorKind::NoSpace);
                    let _ = world.run(world.cache().set_mode(MODES[rng.below(3) as usize]));
                    world.flash.sim.plan().clear();
                }
                3 => {
                    world.crash();
                    assert!(fence.sequence() <= world.superblock().sequence, "seed {seed}, round {round}");
                    world.open();
                }
                _ => {
                    world.close();
                    assert_eq!(fence.sequence(), world.superblock().sequence, "seed {seed}, round {round}");
                    world.open();
                }
            }
            assert!(fence.sequence() <= world.superblock().sequence, "seed {seed}, round {round}");
            assert!(!fence.is_up(), "the flash works");
        }
    });
}

/// A write of a part of a dirty chunk goes past a failed flash, and the origin refuses it.
///
/// The error is the origin's, and does not mention damage.
#[test]
fn an_origin_that_fails_beside_a_failed_flash_is_named() {
    each_seed(4, |seed| {
        let (setup, _fence) = fenced_setup(WriteMode::Back);
        let world = World::new(seed, setup);
        world.write(at(0), &noise(1, CHUNK));
        world.flush();
        world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
        world.write(at(5), &noise(5, CHUNK));
        world.run(world.cache().flush()).expect_err("neither of them takes it");
        assert!(world.status().degraded);
        let error = world.try_write(at(0) + 512, &noise(2, 512), false).expect_err("neither of them takes it");
        assert_eq!(error.kind, IoErrorKind::Io, "{error}");
        assert!(!error.to_string().contains("damaged"), "{error}");
        world.origin.sim.plan().clear();
        world.write(at(0) + 512, &noise(2, 512));
        let mut expected = noise(1, CHUNK);
        expected[512..1024].copy_from_slice(&noise(2, 512));
        assert_same(&world.read(at(0), CHUNK), &expected, "both writes");
        world.flush();
    });
}

/// Without a fence no write goes past the flash, so the flash is trusted when it comes back.
#[test]
fn without_a_fence_writes_fail_and_the_flash_stays_good() {
    each_seed(8, |seed| {
        for mode in MODES {
            let (setup, fence) = fenced_setup(mode);
            let mut world = World::new(seed, setup);
            let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
            work(&world, &mut twin, &mut rng, 80);
            world.wait_for_insertions();
            world.flush();
            world.flash.sim.set_gone(true);
            // Any request to the flash shows that it is gone.
            let _ = world.run(world.cache().checkpoint());
            for lba in 0..64 {
                let _ = world.try_read(at(lba), CHUNK);
            }
            fence.break_down(true);
            let mut refused = 0;
            for number in 0..40 {
                let (offset, len) = random_run(&mut rng, 4 * MIB, 48);
                match world.try_write(offset, &noise(number, len), false) {
                    // In write-back the data is in memory alone, taken before the flash was missed,
                    // and is lost with it. In the other modes it is on the origin.
                    Ok(()) if !world.status().degraded => twin.write(offset, &noise(number, len)),
                    Ok(()) => panic!("{mode:?}: a write past the flash without a fence"),
                    Err(error) => refused += u64::from(error.to_string().contains("fence")),
                }
            }
            assert!(refused > 0 && has(&world, "fence_refused"), "{mode:?}: {:?}", world.status().conditions);
            assert!(!fence.is_up());
            if mode != WriteMode::Back {
                world.flush();
            }
            world.crash();
            world.flash.sim.set_gone(false);
            fence.break_down(false);
            world.open();
            if mode != WriteMode::Back {
                assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after the return");
            }
        }
    });
}

/// A crash between the emptying of a fenced flash and the end of its fence has it emptied again.
#[test]
fn a_crash_while_a_fenced_flash_is_emptied_loses_nothing() {
    each_seed(6, |seed| {
        for stop in 1..12 {
            let (setup, fence) = fenced_setup(WriteMode::Through);
            let mut world = World::new(seed, setup);
            let mut rng = Rng::new(seed);
            let mut twin = Twin::new();
            work(&world, &mut twin, &mut rng, 60);
            world.wait_for_insertions();
            world.flush();
            world.flash.sim.set_gone(true);
            work(&world, &mut twin, &mut rng, 60);
            assert!(fence.is_up());
            world.flush();
            world.crash();
            world.flash.sim.set_gone(false);
            let next = world.runtime.changes() + stop;
            world.runtime.stop_at_change(Some(next));
            world.open_until_stopped();
            world.crash();
            world.open();
            assert!(!fence.is_up());
            assert_same(&world.read(0, 4 << 20), &twin.bytes(0, 4 << 20), "after two openings");
        }
    });
}

/// The keeper always knows whether the origin may lack data.
#[test]
fn the_mode_is_noted_before_the_origin_can_lack_anything() {
    let (setup, fence) = fenced_setup(WriteMode::Through);
    let world = World::new(1, setup);
    assert_eq!(fence.mode(), Some(WriteMode::Through));
    fence.break_down(true);
    assert!(world.run(world.cache().set_mode(WriteMode::Back)).is_err());
    assert_eq!(world.cache().mode(), WriteMode::Through, "a mode that cannot be noted does not come");
    fence.break_down(false);
    world.run(world.cache().set_mode(WriteMode::Back)).expect("switch");
    assert_eq!(fence.mode(), Some(WriteMode::Back));
    world.write(0, &noise(1, CHUNK));
    world.run(world.cache().set_mode(WriteMode::Around)).expect("switch");
    assert_eq!(fence.mode(), Some(WriteMode::Around));
}

/// If two switches of modes overlap, the one that ends last is in force everywhere.
///
/// It is in force for the cache, its superblock, and the keeper. The keeper says whether a volume
/// may go on without its flash.
#[test]
fn switches_at_the_same_time_leave_one_mode() {
    each_seed(150, |seed| {
        let (setup, fence) = fenced_setup(WriteMode::Through);
        let world = World::new(seed, setup);
        let (cache, mut rng) = (world.cache().clone(), Rng::new(seed));
        let mut switch = |mode| {
            let (cache, later) = (&cache, world.runtime.delay(Duration::from_micros(rng.below(1000))));
            Box::pin(async move {
                later.await.expect("it passes");
                cache.set_mode(mode).await.expect("the switch");
            })
        };
        let (back, through) = (switch(WriteMode::Back), switch(WriteMode::Through));
        world.run(all(vec![back, through]));
        assert_eq!((fence.mode(), world.superblock().mode), (Some(cache.mode()), cache.mode()));
    });
}

/// A cache with a keeper is not opened without one, because that would overlook the fence.
#[test]
fn a_cache_with_a_keeper_is_not_opened_without_it() {
    let (setup, fence) = fenced_setup(WriteMode::Through);
    let mut world = World::new(1, setup);
    world.close();
    world.setup.tuning.fence = Default::default();
    let refused = world.try_open().expect_err("no keeper");
    assert!(refused.to_string().contains("keeps its state in memory"), "{refused}");
    world.setup.tuning.fence = fence.keeper();
    world.open();
}

#[test]
fn a_detached_cache_leaves_a_whole_origin_and_is_not_opened_again() {
    each_seed(6, |seed| {
        for mode in MODES {
            let (setup, _) = fenced_setup(mode);
            let mut world = World::new(seed, setup);
            let (mut rng, mut twin) = (Rng::new(seed), Twin::new());
            work(&world, &mut twin, &mut rng, 80);
            world.origin.sim.plan().add(Fault { times: 1, ..always(IoOp::Flush, IoErrorKind::Io) });
            let first = world.run(world.cache().detach());
            if first.is_err() {
                // The flush tells clients of the failure, too.
                let _ = world.run(world.cache().flush());
                work(&world, &mut twin, &mut rng, 20);
                world.run(world.cache().detach()).unwrap_or_else(|error| panic!("detach: {error}"));
            }
            assert!(world.try_read(0, CHUNK).is_err(), "it is closed");
            world.crash();
            world.origin.sim.plan().clear();
            // In the other modes a client that was told of a failed flush has to write again.
            if first.is_ok() || mode == WriteMode::Back {
                assert_same(&world.origin.sim.peek(0, 4 << 20), &twin.bytes(0, 4 << 20), "the origin");
            }
            let refused = world.try_open().expect_err("it was detached");
            assert!(matches!(refused, EngineError::Detached), "{refused:?}");
        }
    });
}

/// A FLUSH makes writes past the flash durable on the origin.
///
/// No entry waits for the log when the flash fails.
#[test]
fn a_flush_past_the_flash_reaches_the_origin() {
    each_seed(6, |seed| {
        for mode in MODES {
            let (setup, fence) = fenced_setup(mode);
            let world = World::new(seed, setup);
            world.fill_origin(0, &noise(1, CHUNK));
            world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
            // The flash refuses the segment of a clean chunk. No chunk is dirty, and no entry
            // waits.
            world.read(0, CHUNK);
            world.wait_for_insertions();
            // The order of completions decides how much time the tries take.
            let fails = (0..12).any(|_| {
                world.runtime.run_for(Duration::from_secs(5));
                world.status().degraded
            });
            assert!(fails, "{mode:?}");
            world.write(at(1), &noise(2, CHUNK));
            world.flush();
            assert!(fence.is_up());
            assert_same(&world.origin.sim.peek_durable(at(1), CHUNK), &noise(2, CHUNK), "what was flushed");
        }
    });
}

/// A failed flush of the flash fails the flash, even if a checkpoint asked for it.
///
/// No later flush tells whether the earlier writes are durable. The checkpoint flushes the data
/// that it commits, and flushes again before its header.
#[test]
fn a_flush_that_fails_in_a_checkpoint_fails_the_flash() {
    let hits = [0; 4].map(Cell::new);
    each_seed(40, |seed| {
        for (number, hits) in hits.iter().enumerate().skip(1) {
            let (setup, _) = fenced_setup(WriteMode::Back);
            let world = World::new(seed, setup);
            world.write(0, &noise(1, CHUNK));
            world.flash.take_events();
            let cache = world.cache().clone();
            let mut checkpoint = std::pin::pin!(async move { cache.checkpoint().await });
            let mut armed = false;
            let result = world.run(std::future::poll_fn(|cx| {
                // The order of completions decides how often this polls.
                if world.flash.asked(IoOp::Flush).len() + 1 == number && !std::mem::replace(&mut armed, true) {
                    world.flash.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
                }
                cx.waker().wake_by_ref();
                checkpoint.as_mut().poll(cx)
            }));
            let hit = armed && world.flash.sim.plan().left() == 0;
            assert_eq!((world.status().degraded, result.is_err()), (hit, hit), "flush {number}");
            hits.set(hits.get() + usize::from(hit));
        }
    });
    // The third flush is mostly the one before the header.
    assert!(hits[3].get() > 10, "{hits:?}");
}

/// Returns a world in write-through in which a flush of the origin failed unseen by clients.
fn after_an_unseen_failure(seed: u64) -> World {
    let (setup, _) = fenced_setup(WriteMode::Through);
    let world = World::new(seed, setup);
    world.write(0, &noise(1, CHUNK));
    world.wait_for_insertions();
    world.origin.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
    // The chunk's clean mapping waits for the origin's flush, which fails.
    let _ = world.run(world.cache().checkpoint());
    world
}

/// The next FLUSH tells of a flush of the origin that failed unseen.
///
/// A later flush does not bring back the writes that the failed one lost.
#[test]
fn a_flush_of_the_origin_that_failed_unseen_is_told() {
    each_seed(6, |seed| {
        let world = after_an_unseen_failure(seed);
        let _ = world.run(world.cache().checkpoint());
        assert!(world.run(world.cache().flush()).is_err(), "the flush that failed is told");
        world.flush();
    });
}

/// A flush that failed unseen counts as untold until the switch of modes has told it.
///
/// It stays untold if the caller of the switch gives up.
#[test]
fn what_a_switch_of_modes_will_tell_is_told_to_others_meanwhile() {
    let (meanwhile, given_up) = (Cell::new(0), Cell::new(0));
    // The last switch runs to its end.
    for looks in (0..12).chain([u32::MAX]) {
        each_seed(4, |seed| {
            let world = after_an_unseen_failure(seed);
            let cache = world.cache().clone();
            let mut switch = Box::pin(async move { cache.set_mode(WriteMode::Back).await });
            let mut left = looks;
            let switched = world.run(std::future::poll_fn(|cx| match switch.as_mut().poll(cx) {
                std::task::Poll::Pending if left > 0 => {
                    left -= 1;
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
                polled => std::task::Poll::Ready(polled),
            }));
            if let std::task::Poll::Ready(switched) = switched {
                assert!(switched.is_err(), "the flush that failed is told");
                assert!(world.run(world.cache().destage_all()), "once");
                return;
            }
            if seed % 2 == 0 {
                drop(switch);
                // The rest of the switch runs to its end without its caller.
                world.run(world.runtime.delay(Duration::from_millis(100))).expect("time passes");
                given_up.set(given_up.get() + 1);
                assert!(!world.run(world.cache().destage_all()), "nobody was told");
            } else {
                let (destaged, switched) = world.run(async {
                    let destaged = world.cache().destage_all().await;
                    (destaged, switch.await)
                });
                meanwhile.set(meanwhile.get() + 1);
                assert!(!destaged, "nobody was told yet");
                assert!(switched.is_err() || world.cache().mode() == WriteMode::Back);
            }
        });
    }
    assert!(meanwhile.get() > 3 && given_up.get() > 3, "{meanwhile:?} {given_up:?}");
}

/// Data of a failed flush of the origin is not cached for good when it is read.
///
/// The data may vanish with the power even if later flushes succeed. A power loss would then leave
/// the copy and take the original.
#[test]
fn what_the_origin_may_have_forgotten_is_not_cached_for_good() {
    each_seed(40, |seed| {
        for mode in [WriteMode::Through, WriteMode::Around] {
            let (setup, _) = fenced_setup(mode);
            let mut world = World::new(seed, setup);
            world.origin.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
            (0..8).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
            world.run(world.cache().flush()).expect_err("the first flush");
            assert!(has(&world, "origin_doubtful"), "{:?}", world.status().conditions);
            // Chunk 1 is rewritten as a whole, chunk 2 in part, the others not at all.
            world.write(at(1), &noise(101, CHUNK));
            world.write(at(2) + 512, &noise(102, 512));
            for _ in 0..2 {
                (0..8).for_each(|lba| drop(world.read(at(lba), CHUNK)));
                world.wait_for_insertions();
            }
            world.flush();
            assert!(world.slot_of(1).is_some(), "{mode:?}: what was rewritten is cached again");
            world.crash();
            world.open();
            for lba in 0..8 {
                let origin = world.origin.sim.peek_durable(at(lba), CHUNK);
                assert_same(&world.read(at(lba), CHUNK), &origin, &format!("{mode:?}, chunk {lba}"));
            }
            assert_same(&world.read(at(1), CHUNK), &noise(101, CHUNK), "what was flushed");
            assert!(!has(&world, "origin_doubtful"));
        }
    });
}

/// A destage, a trim, and a write past a failed flash each end the doubt about a chunk.
///
/// Each of them writes the chunk again as a whole.
#[test]
fn doubt_ends_with_each_write_of_the_whole_chunk() {
    each_seed(4, |seed| {
        let (setup, _) = fenced_setup(WriteMode::Through);
        let world = World::new(seed, setup);
        let chunks = || {
            let conditions = world.status().conditions;
            let doubtful = conditions.into_iter().find(|condition| condition.name == "origin_doubtful");
            doubtful.map(|doubtful| doubtful.what)
        };
        // The commit timer flushes the origin, too, and fires early: chunks that are flushed so are
        // in no doubt. No flush covers a part of one write, which is made again if one covers all.
        let doubt = || {
            let is_told = (0..20).any(|_| {
                world.write(at(0), &(0..8).flat_map(|lba| noise(lba, CHUNK)).collect::<Vec<u8>>());
                world.origin.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
                let flushed = world.run(world.cache().flush());
                world.origin.sim.plan().clear();
                flushed.is_err()
            });
            assert!(is_told, "the flush that fails");
            assert!(chunks().is_some_and(|what| what.contains(" 8 chunks")), "{:?}", chunks());
        };
        doubt();
        // The first switch tells the operator of the failed flush, and only that one.
        let _ = world.run(world.cache().set_mode(WriteMode::Back));
        world.run(world.cache().set_mode(WriteMode::Back)).expect("switched");
        (0..6).for_each(|lba| world.write(at(lba), &noise(100 + lba, CHUNK)));
        world.write(at(6) + 512, &noise(106, 512));
        world.flush();
        assert!(world.destage_all());
        assert!(chunks().is_some_and(|what| what.contains(" 2 chunks")), "6 in part and 7 not at all: {:?}", chunks());
        world.trim(at(6), 2 * CHUNK as u64);
        world.flush();
        assert!(world.destage_all());
        assert_eq!(chunks(), None);
        world.run(world.cache().set_mode(WriteMode::Through)).expect("switched");
        doubt();
        world.flash.sim.set_gone(true);
        (0..7).for_each(|lba| world.write(at(lba), &noise(200 + lba, CHUNK)));
        assert!(chunks().is_some_and(|what| what.contains(" 1 chunks")), "{:?}", chunks());
    });
}

/// Reads that succeed do not show that a full origin takes writes again.
#[test]
fn an_origin_that_takes_no_writes_is_told_though_it_reads() {
    each_seed(4, |seed| {
        let world = World::new(seed, Setup::default());
        world.write(0, &noise(1, 64 << 10));
        world.flush();
        world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::NoSpace));
        let before = world.status().counts;
        assert!(!world.destage_all());
        let why = world.cache().why_dirty(&before);
        assert!(why.starts_with("the origin has no room (") && why.contains("): make room where it is"), "{why}");
        for _ in 0..3 {
            world.read(32 << 20, 8 << 10);
            assert!(has(&world, "origin_full"), "{:?}", world.status().conditions);
            assert!(world.status().health.contains("dirty data stays on the flash"), "{}", world.status().health);
        }
        world.origin.sim.plan().clear();
        assert!(world.destage_all());
        assert!(!has(&world, "origin_full"), "{:?}", world.status().conditions);
        // The origin goes and comes back. Any answer of the origin shows that.
        world.write(0, &noise(2, 64 << 10));
        world.origin.sim.set_gone(true);
        assert!(!world.destage_all());
        assert!(has(&world, "origin_gone"), "{:?}", world.status().conditions);
        world.origin.sim.set_gone(false);
        world.read(40 << 20, 8 << 10);
        assert!(!has(&world, "origin_gone"), "{:?}", world.status().conditions);
        // Without dirty data the status does not mention any.
        world.run(world.cache().set_mode(WriteMode::Through)).expect("a switch");
        world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::NoSpace));
        world.try_write(0, &noise(3, 8 << 10), false).expect_err("it goes to the origin");
        let status = world.status();
        assert!(status.health.starts_with("the origin fails (") && !status.health.contains("dirty"), "{status:?}");
    });
}

/// The flash fails under data that is not durable there. Its file may have been cut, or have lost
/// its name and then its room. A FLUSH, a destage of everything and an end save the readable data,
/// behind the fence. Without a fence none of them succeeds.
#[test]
fn each_request_for_durable_data_raises_the_fence() {
    each_seed(4, |seed| {
        for standing in [Standing::Sound, Standing::Truncated(4096), Standing::Unlinked] {
            for (how, has_fence) in
                [("flush", true), ("destage", true), ("end", true), ("flush", false), ("end", false)]
            {
                let what = format!("{standing:?}, {how}, a fence: {has_fence}");
                let (mut setup, fence) = fenced_setup(WriteMode::Back);
                if !has_fence {
                    setup.tuning.fence = Keeper(None);
                }
                let world = World::new(seed, setup);
                (0..16).for_each(|lba| world.write(at(lba), &noise(lba, CHUNK)));
                world.flush();
                (8..32).for_each(|lba| world.write(at(lba), &noise(100 + lba, CHUNK)));
                world.zero(at(4), CHUNK as u64, ZeroFlags::default());
                world.flash.stand(standing);
                world.flash.sim.plan().add(match standing {
                    Standing::Unlinked => always(IoOp::Write, IoErrorKind::NoSpace),
                    _ => always(IoOp::Flush, IoErrorKind::Io),
                });
                let saved = match how {
                    "flush" => world.run(world.cache().flush()).is_ok(),
                    "destage" => world.destage_all(),
                    _ => world.run(world.cache().close()).is_ok(),
                };
                assert_eq!((saved, fence.is_up()), (has_fence, has_fence), "{what}");
                if !has_fence {
                    // Only data that is durable on the flash may go to the origin.
                    assert!(has(&world, "undurable_data") && has(&world, "fence_refused"), "{what}");
                    continue;
                }
                for lba in 0..32 {
                    let expected = match lba {
                        4 => vec![0; CHUNK],
                        0..8 => noise(lba, CHUNK),
                        _ => noise(100 + lba, CHUNK),
                    };
                    let origin = world.origin.sim.peek_durable(at(lba), CHUNK);
                    assert_same(&origin, &expected, &format!("{what}: the origin, chunk {lba}"));
                }
            }
        }
    });
}

/// The error of a failed flush of the origin has the origin's name, at once and at the end.
#[test]
fn a_failed_flush_of_the_origin_names_the_origin() {
    let (setup, _) = fenced_setup(WriteMode::Through);
    let world = World::new(1, setup);
    world.write(0, &noise(1, CHUNK));
    world.origin.sim.fail_next(IoOp::Flush, IoErrorKind::Gone);
    let told = world.run(world.cache().flush()).expect_err("the flush that fails").to_string();
    assert!(told.starts_with("the origin origin: flush failed"), "{told}");
    world.write(0, &noise(2, CHUNK));
    world.flush();
    let told = world.run(world.cache().close()).expect_err("the operator is told").to_string();
    assert!(told.starts_with("a flush of the origin origin failed earlier"), "{told}");
}
