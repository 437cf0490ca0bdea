//! The keeper of the fence knows the number of the newest superblock while the cache serves. A
//! flash with a lower number is an older copy, and never the flash that a crash leaves.
//!
//! It leaves a directory that hangs, and copies themselves, to the program's tests.

use crate::common::*;
use crate::conditions::Heard;
use crate::fence::MemoryFence;
use larder_device::{IoOp, Runtime, rng::Rng, sim::Schedule};
use larder_engine::{WriteMode, conditions::Severity, fence::Note, status::mode_name};
use larder_format::layout::SUPERBLOCK_OFFSETS;
use parking_lot::Mutex;
use std::{future::Future, sync::Arc, task::Poll, time::Duration};

const CHUNK: usize = 8 << 10;
/// Longer than a refused note waits for its next try, and than a note takes until it is told.
const LONG: Duration = Duration::from_secs(15);

fn world(seed: u64, schedule: Schedule) -> (World, Arc<MemoryFence>) {
    let fence = MemoryFence::new();
    let mut setup = Setup { schedule, ..Setup::default() };
    setup.tuning.fence = fence.keeper();
    (World::new(seed, setup), fence)
}

fn checkpoint(world: &World) {
    world.run(world.cache().checkpoint()).expect("a checkpoint");
}

fn wait(world: &World) {
    world.run(world.runtime.delay(LONG)).expect("time");
}

fn is_told(world: &World) -> bool {
    world.status().conditions.iter().any(|it| it.name == "superblock_unnoted" && it.severity == Severity::Warning)
}

#[test]
fn each_checkpoint_and_switch_is_noted() {
    for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
        let (world, fence) = world(1, Schedule::Chaos);
        wait(&world);
        assert_eq!(fence.sequence(), world.superblock().sequence, "the opening");
        for round in 0..5 {
            world.write(0, &noise(round, CHUNK));
            let before = fence.sequence();
            checkpoint(&world);
            wait(&world);
            assert!(fence.sequence() > before && fence.sequence() == world.superblock().sequence, "a checkpoint");
        }
        world.run(world.cache().set_mode(mode)).expect("a switch");
        wait(&world);
        assert_eq!(fence.sequence(), world.superblock().sequence, "the switch to {mode:?}");
    }
}

/// A crash ends a cache at any step of a checkpoint, also between the twins of its superblock.
#[test]
fn no_note_is_ahead_of_the_superblock_that_a_crash_leaves() {
    let (first, count) = match std::env::var("LARDER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (1, 12_u64),
    };
    let (mut noted, mut behind) = (0, 0);
    for seed in first..first + count {
        let (mut world, fence) = world(seed, Schedule::Chaos);
        let mut rng = Rng::new(seed);
        for life in 0..16 {
            world.runtime.stop_at_change(Some(world.runtime.changes() + 1 + rng.below(60)));
            let cache = world.cache().clone();
            let stopped = world.runtime.block_on_or_stop(async move {
                loop {
                    let data = larder_device::IoBuf::copy_of(&noise(life, CHUNK)).freeze();
                    cache
                        .write(life * CHUNK as u64, data, larder_device::WriteFlags::default())
                        .await
                        .expect("a write");
                    cache.checkpoint().await.expect("a checkpoint");
                }
            });
            assert!(stopped.is_none());
            if rng.chance(1, 2) {
                world.crash()
            } else {
                world.kill()
            }
            noted += fence.take_newest().len();
            let (known, found) = (fence.sequence(), world.superblock().sequence);
            assert!(known <= found, "superblock {known} is noted, and the flash has {found}: LARDER_SEED={seed}");
            behind += u64::from(known < found);
            world.open();
        }
    }
    assert!(noted > 10 && behind > 0, "{noted} notes in the background, {behind} behind the flash");
}

/// The keeper is free for a note while the twins of the next superblock are written.
#[test]
fn a_superblock_is_not_noted_before_both_twins_have_it() {
    let (world, fence) = world(6, Schedule::Timed);
    wait(&world);
    fence.hang(true);
    checkpoint(&world);
    assert_eq!(fence.waiting().len(), 1);
    let whole = world.superblock().sequence;
    world.flash.take_events();
    world.flash.slow_down(&world.runtime, Duration::from_secs(1));
    let cache = world.cache().clone();
    world.runtime.spawn(Box::pin(async move { cache.checkpoint().await.expect("a checkpoint") }));
    let last_twin = |event: &Event| event.offset == SUPERBLOCK_OFFSETS[1];
    while !world.flash.asked(IoOp::Write).iter().any(last_twin) {
        world.run(world.runtime.delay(Duration::from_millis(100))).expect("time");
    }
    fence.hang(false);
    world.run(world.runtime.delay(Duration::from_millis(100))).expect("time");
    assert_eq!(fence.sequence(), whole, "the second twin is being written");
    world.flash.at_full_speed();
    wait(&world);
    assert!(fence.sequence() > whole);
}

/// Checkpoints, writes and flushes go on. The note that comes next has the newest number.
#[test]
fn a_keeper_that_hangs_keeps_nothing_waiting() {
    let (mut world, fence) = world(3, Schedule::Timed);
    wait(&world);
    fence.hang(true);
    fence.take_newest();
    let began = world.runtime.now();
    for round in 0..20 {
        world.write(0, &noise(round, CHUNK));
        world.flush();
        checkpoint(&world);
    }
    assert!(world.runtime.now() - began < Duration::from_secs(5) && !is_told(&world));
    let waiting = fence.waiting();
    let [Note::Newest(first)] = waiting[..] else { panic!("{waiting:?}") };
    wait(&world);
    assert!(is_told(&world), "{:?}", world.status().conditions);
    fence.hang(false);
    wait(&world);
    let newest = world.superblock().sequence;
    assert_eq!(fence.take_newest(), [first, newest], "the numbers between are left out");
    assert!(newest >= first + 19 && !is_told(&world));
    world.close();
    assert_eq!(fence.sequence(), world.superblock().sequence);
}

/// The mode that lets the origin lack data begins after its note. The note of another mode follows
/// that mode.
#[test]
fn a_switch_whose_note_hangs_holds_no_write() {
    for (seed, to) in [(7, WriteMode::Back), (8, WriteMode::Through), (9, WriteMode::Around)] {
        let (mut world, fence) = world(seed, Schedule::Timed);
        let before = if to == WriteMode::Back { WriteMode::Through } else { WriteMode::Back };
        world.run(world.cache().set_mode(before)).expect("a switch");
        world.write(0, &noise(seed, CHUNK));
        wait(&world);
        fence.hang(true);
        let (cache, switched) = (world.cache().clone(), Arc::new(Mutex::new(false)));
        let over = switched.clone();
        world.runtime.spawn(Box::pin(async move { *over.lock() = cache.set_mode(to).await.is_ok() }));
        wait(&world);
        let waiting = fence.waiting();
        assert!(waiting.iter().any(|note| matches!(note, Note::Mode(mode, _) if *mode == to)), "{to:?}: {waiting:?}");
        let in_force = if to == WriteMode::Back { before } else { to };
        assert_eq!((world.status().mode, *switched.lock()), (mode_name(in_force), false));
        assert!(is_told(&world), "{to:?}: {:?}", world.status().conditions);
        let began = world.runtime.now();
        for round in 0..10 {
            world.write(round * CHUNK as u64, &noise(100 + round, CHUNK));
            world.flush();
        }
        assert!(world.runtime.now() - began < Duration::from_secs(5), "{to:?}: writes wait for the note");
        assert_eq!(world.status().dirty_bytes, 0, "{to:?}: the keeper has no note of write-back");
        fence.hang(false);
        wait(&world);
        assert!(
            *switched.lock() && world.status().mode == mode_name(to) && fence.mode() == Some(to) && !is_told(&world)
        );
        world.close();
    }
}

/// The mode stays then, and the keeper has it again.
#[test]
fn a_switch_that_is_given_up_behind_its_note_leaves_the_note_of_the_mode_in_force() {
    let (world, fence) = world(11, Schedule::Timed);
    world.run(world.cache().set_mode(WriteMode::Through)).expect("a switch");
    wait(&world);
    fence.hang(true);
    let mut switch = Box::pin(world.cache().set_mode(WriteMode::Back));
    let is_asked = || fence.waiting().iter().any(|note| matches!(note, Note::Mode(WriteMode::Back, _)));
    world.run(std::future::poll_fn(|context| {
        assert!(switch.as_mut().poll(context).is_pending());
        match is_asked() {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }));
    drop(switch);
    fence.hang(false);
    assert_eq!(fence.mode(), Some(WriteMode::Back), "the note was under way");
    wait(&world);
    assert_eq!((world.status().mode, fence.mode()), (mode_name(WriteMode::Through), Some(WriteMode::Through)));
}

/// The keeper gets the mode once it takes notes again.
#[test]
fn a_mode_whose_note_was_refused_is_noted_later() {
    for to in [WriteMode::Through, WriteMode::Around] {
        let (world, fence) = world(10, Schedule::Timed);
        wait(&world);
        fence.break_down(true);
        world.run(world.cache().set_mode(to)).expect_err("the note is refused");
        assert_eq!((world.status().mode, fence.mode()), (mode_name(to), Some(WriteMode::Back)));
        wait(&world);
        assert!(is_told(&world));
        fence.break_down(false);
        wait(&world);
        assert!(fence.mode() == Some(to) && !is_told(&world));
    }
}

/// The mark of the orderly end is on the flash then, and no note comes after the end.
#[test]
fn an_end_waits_for_a_note_behind_its_checkpoint() {
    let (world, fence) = world(4, Schedule::Timed);
    wait(&world);
    fence.hang(true);
    checkpoint(&world);
    let (cache, is_over) = (world.cache().clone(), Arc::new(Mutex::new(false)));
    let over = is_over.clone();
    world.runtime.spawn(Box::pin(async move { *over.lock() = cache.close().await.is_ok() }));
    wait(&world);
    assert!(world.superblock().clean_shutdown && !*is_over.lock() && fence.waiting().len() == 1);
    fence.hang(false);
    wait(&world);
    assert!(*is_over.lock());
    assert_eq!(fence.sequence(), world.superblock().sequence);
}

/// The end itself is in order, for no data is at risk.
#[test]
fn a_last_note_that_is_refused_is_told_before_the_end_is_over() {
    let (heard, fence) = (Arc::new(Heard::default()), MemoryFence::new());
    let mut setup = Setup { schedule: Schedule::Timed, ..Setup::default() };
    setup.tuning.fence = fence.keeper();
    setup.tuning.listener = heard.listener();
    let mut world = World::new(5, setup);
    wait(&world);
    fence.break_down(true);
    world.close();
    assert_eq!(heard.count("+superblock_unnoted"), 1);
    fence.break_down(false);
    world.open();
    wait(&world);
    assert!(!is_told(&world) && heard.count("+superblock_unnoted") == 1);
}
