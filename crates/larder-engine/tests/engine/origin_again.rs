//! An origin that failed is asked again in the background, so that its condition ends by itself.

use crate::{
    common::*,
    conditions::{CHUNK, Scene, always},
};
use larder_device::{BlockDevice, IoBuf, IoErrorKind, IoOp, Runtime};
use larder_engine::WriteMode;
use std::time::Duration;

/// A place of the origin that no test caches.
const FAR: u64 = 32 << 20;

const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A client whose reads hit alone leaves the question to the cache.
#[test]
fn a_failed_read_is_asked_again_until_one_succeeds() {
    for mode in MODES {
        let scene = Scene::new(mode, |_| {});
        let origin = scene.world.origin.sim.clone();
        scene.write(0..8);
        scene.world.flush();
        (0..8).for_each(|lba| drop(scene.world.read(lba * CHUNK as u64, CHUNK)));
        scene.world.wait_for_insertions();
        origin.plan().fail_range(IoOp::Read, FAR..FAR + 1, IoErrorKind::Io, u64::MAX);
        scene.world.try_read(FAR, CHUNK).expect_err("the origin's");
        let reads = origin.counters();
        scene.wait(second(100));
        scene.raised("origin_failing");
        let asked = origin.counters().reads - reads.reads;
        // After 1, 2, 4, 8, 16, 30 and 30 seconds.
        assert!((5..=8).contains(&asked), "{mode:?}: {asked} questions");
        let block = u64::from(origin.info().sector_bytes);
        assert_eq!(origin.counters().read_bytes - reads.read_bytes, asked * block, "a block each");
        assert_eq!(scene.world.status().counts.origin_errors, 1, "{mode:?}: questions are not counted");
        origin.plan().clear();
        scene.wait(second(31));
        scene.cleared("origin_failing");
        let reads = origin.counters().reads;
        scene.wait(second(100));
        assert_eq!(origin.counters().reads, reads, "{mode:?}: it works again");
        // The next failure is asked about within a second.
        origin.fail_next(IoOp::Read, IoErrorKind::Io);
        scene.world.try_read(FAR, CHUNK).expect_err("the origin's");
        scene.wait(second(2));
        let conditions = scene.world.status().conditions;
        assert!(conditions.iter().all(|condition| condition.name != "origin_failing"), "{mode:?}: {conditions:?}");
    }
}

/// A read shows that an origin is back whose writes found it gone.
#[test]
fn an_origin_that_is_back_is_known_without_a_request() {
    let scene = Scene::new(WriteMode::Through, |_| {});
    scene.world.origin.sim.set_gone(true);
    scene.world.try_write(0, &noise(0, CHUNK), false).expect_err("the origin's");
    scene.raised("origin_gone");
    scene.world.origin.sim.set_gone(false);
    scene.wait(second(31));
    scene.cleared("origin_gone");
}

/// No read of the cache is a write: a full origin is full until a write succeeds.
#[test]
fn failed_writes_are_left_to_their_users() {
    let scene = Scene::new(WriteMode::Through, |_| {});
    scene.world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::NoSpace));
    scene.world.try_write(0, &noise(0, CHUNK), false).expect_err("the origin's");
    let before = scene.world.origin.event_count();
    scene.world.origin.sim.plan().clear();
    scene.wait(second(100));
    scene.raised("origin_full");
    assert_eq!(scene.world.origin.event_count(), before, "nothing is asked");
    scene.write(0..1);
    scene.cleared("origin_full");
}

/// A flush that is asked again may fail, too. Clients hear of it only if they wrote meanwhile.
#[test]
fn a_failed_flush_is_asked_again_and_its_losses_are_told_once() {
    for wrote in [false, true] {
        let scene = Scene::new(WriteMode::Through, |_| {});
        let flush = || scene.world.run(scene.world.cache().flush());
        scene.write(0..8);
        scene.world.origin.sim.plan().add(always(IoOp::Flush, IoErrorKind::Io));
        flush().expect_err("the origin's");
        scene.raised("origin_failing");
        if wrote {
            scene.write(0..8);
        }
        let before = scene.world.status().counts.origin_flush_failures;
        scene.wait(second(100));
        let asked = scene.world.status().counts.origin_flush_failures - before;
        // The commit timer of a design that caches by then flushes, too.
        assert!((2..=8).contains(&asked), "{asked} flushes");
        scene.world.origin.sim.plan().clear();
        scene.wait(second(31));
        scene.cleared("origin_failing");
        assert_eq!(flush().is_err(), wrote, "the losses of a question are told");
        flush().expect("they were told");
    }
}

/// An end, in order or not, is the last time that the origin is read.
#[test]
fn an_end_stops_the_questions() {
    for (mode, crashes) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let mut scene = Scene::new(mode, |_| {});
        scene.world.origin.sim.plan().add(always(IoOp::Read, IoErrorKind::Io));
        scene.world.try_read(FAR, CHUNK).expect_err("the origin's");
        scene.wait(second(100));
        let (reads, began) = (scene.world.origin_reads(), scene.world.runtime.now());
        if crashes {
            scene.world.abandon();
        } else {
            scene.world.close();
        }
        assert!(scene.world.runtime.now() - began < second(1), "{mode:?}: an end waits for no pause");
        scene.wait(second(100));
        assert_eq!(scene.world.origin_reads(), reads, "{mode:?}");
    }
}

/// An origin that owes answers gets no question, and one alone hangs if it hangs on a question.
#[test]
fn a_hanging_origin_is_not_asked() {
    let mut scene = Scene::back();
    scene.world.origin.sim.fail_next(IoOp::Read, IoErrorKind::Io);
    scene.world.try_read(FAR, CHUNK).expect_err("the origin's");
    scene.world.origin.slow_down(&scene.world.runtime, second(10_000));
    let before = scene.world.origin_reads();
    let cache = scene.world.cache().clone();
    let read = cache.read(2 * FAR, IoBuf::new(CHUNK)).map(|read| read.map(drop));
    drop(cache);
    scene.world.runtime.spawn(Box::pin(async move { drop(read.await) }));
    scene.wait(second(300));
    assert_eq!(scene.world.origin_reads() - before, 1, "the client's");
    scene = Scene::back();
    scene.world.origin.sim.fail_next(IoOp::Read, IoErrorKind::Io);
    scene.world.try_read(FAR, CHUNK).expect_err("the origin's");
    scene.world.origin.slow_down(&scene.world.runtime, second(10_000));
    let before = scene.world.origin_reads();
    scene.wait(second(300));
    assert_eq!(scene.world.origin_reads() - before, 1, "the question");
    let began = scene.world.runtime.now();
    scene.world.close();
    assert!(scene.world.runtime.now() - began < second(60), "an end does not wait for it");
}
