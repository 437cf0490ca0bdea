//! Work given up by dropping its future: a mode switch, a close, an opening. It goes on to its end,
//! in its turn, and no step of it overwrites later work. And an abandoned cache has no work under
//! way any more.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::{
    fence::MemoryFence,
    world::{World, identify, read, write},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{BlockDevice, IoBuf, IoOp, Runtime, WriteFlags, sim::SimRuntime};
use larder_engine::{Cache, WriteMode};
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// Writes of the flash that a switch makes, with room for more.
const WRITES: u32 = 12;

async fn fill(cache: &Cache) {
    for chunk in 0..20 {
        write(cache, chunk * CHUNK, &stamps(1001 + 100 * chunk as u32, CHUNK), false).await;
    }
    cache.flush().await.expect("flushed");
}

/// Loses power, and checks that each chunk has its content.
fn check_after_crash(world: &World, rt: &Arc<SimRuntime>, wanted: &[(usize, u32)]) {
    rt.crash();
    let rt = attach(world, 2);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        for &(chunk, stamp) in wanted {
            expect(&cache, chunk * CHUNK, &stamps(stamp, CHUNK)).await;
        }
        cache.close().await.expect("closed");
    });
}

#[test]
fn contract_given_up_mode_switch_goes_on_before_the_next() {
    let mut held = 0;
    for nth in 1..=WRITES {
        let (world, rt) = new_world(WriteMode::Back);
        let flash = Gate::new(&world.flash);
        let was_held = rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            fill(&cache).await;
            flash.hold_nth(IoOp::Write, nth);
            {
                let mut switching = Box::pin(cache.set_mode(WriteMode::Through));
                for _ in 0..1000 {
                    let over = within(&rt, Duration::from_micros(100), &mut switching).await.is_some();
                    if over || flash.waiting() > 0 {
                        break;
                    }
                }
            }
            if flash.waiting() == 0 {
                return false;
            }
            // The next one waits for it at any of its steps.
            let (next, runtime) = (cache.clone(), rt.clone());
            let switched = spawn(&rt, async move { next.set_mode(WriteMode::Back).await.expect("write-back again") });
            runtime.delay(Duration::from_millis(50)).await.expect("a delay ends");
            assert!(!switched.load(Acquire), "write {nth}: a switch overtook another");
            flash.release();
            until(&rt, "its outcome is known", || flash.waiting() > 0 || switched.load(Acquire)).await;
            flash.release();
            until(&rt, "the next switch is over", || switched.load(Acquire)).await;
            assert_eq!(cache.mode(), WriteMode::Back);
            write(&cache, 0, &stamps(9001, CHUNK), false).await;
            cache.flush().await.expect("flushed");
            true
        });
        held += u32::from(was_held);
        let first = if was_held { 9001 } else { 1001 };
        check_after_crash(&world, &rt, &[(0, first), (1, 1101), (19, 2901)]);
    }
    assert!(held >= 3, "{held} switches were held");
}

/// A switch is given up after its mode is in force, and before its keeper notes it.
///
/// The note comes before that of the next switch.
#[test]
fn contract_given_up_mode_switch_does_not_note_its_mode_late() {
    for seed in 0..20 {
        let (mut world, first) = new_world(WriteMode::Back);
        first.kill();
        let keeper = MemoryFence::new();
        world.shape.tuning.fence = keeper.keeper();
        let rt = SimRuntime::new(seed);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        rt.block_on(async {
            let cache = Arc::new(world.open(&rt).await);
            keeper.hang(true);
            drop_when(&rt, cache.set_mode(WriteMode::Through), || cache.mode() == WriteMode::Through).await;
            let next = cache.clone();
            let switched = spawn(&rt, async move { next.set_mode(WriteMode::Back).await.expect("write-back again") });
            rt.delay(Duration::from_secs(1)).await.expect("a delay ends");
            assert!(!switched.load(Acquire), "seed {seed}: a switch overtook another");
            keeper.hang(false);
            until(&rt, "the next switch is over", || switched.load(Acquire)).await;
            rt.delay(Duration::from_secs(5)).await.expect("a delay ends");
            assert_eq!(keeper.mode(), Some(WriteMode::Back), "seed {seed}");
        });
        rt.kill();
    }
}

#[test]
fn contract_given_up_close_and_detach_go_on_to_their_end() {
    for (nth, detach) in (1..=WRITES).flat_map(|nth| [(nth, false), (nth, true)]) {
        let (world, rt) = new_world(WriteMode::Back);
        let flash = Gate::new(&world.flash);
        let was_held = rt.block_on(async {
            let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
            fill(&cache).await;
            flash.hold_nth(IoOp::Write, nth);
            {
                let ended = async || if detach { cache.detach().await } else { cache.close().await };
                let mut ending = Box::pin(ended());
                for _ in 0..1000 {
                    let over = within(&rt, Duration::from_micros(100), &mut ending).await.is_some();
                    if over || flash.waiting() > 0 {
                        break;
                    }
                }
            }
            if flash.waiting() == 0 {
                return false;
            }
            let was_ending = cache.is_closed();
            let (again, runtime) = (cache.clone(), rt.clone());
            let over = spawn(&rt, async move {
                let _ = again.close().await;
            });
            runtime.delay(Duration::from_millis(50)).await.expect("a delay ends");
            assert!(!over.load(Acquire), "write {nth}: a close overtook another");
            flash.release();
            until(&rt, "its outcome is known", || flash.waiting() > 0 || over.load(Acquire)).await;
            flash.release();
            until(&rt, "the end", || over.load(Acquire)).await;
            was_ending
        });
        rt.kill();
        if !was_held {
            continue;
        }
        let rt = attach(&world, 2);
        rt.block_on(async {
            let (flash, origin, tuning) = (world.flash.clone(), world.origin.clone(), world.shape.tuning.clone());
            match (Cache::open(flash, origin, rt.clone(), tuning).await, detach) {
                (Ok(cache), false) => {
                    assert!(cache.recovery().clean_shutdown, "write {nth}: the end was not orderly");
                    expect(&cache, 0, &stamps(1001, CHUNK)).await;
                }
                (Ok(_), true) => panic!("write {nth}: the detach ended half way"),
                (Err(error), _) => assert!(detach, "write {nth}: {error}"),
            }
        });
        rt.kill();
    }
}

#[test]
fn contract_given_up_opening_leaves_nothing_running() {
    let mut held = 0;
    for nth in 1..=4 {
        let (world, rt) = new_world(WriteMode::Back);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            fill(&cache).await;
            cache.abandon().await;
            let flash = Gate::new(&world.flash);
            flash.hold_nth(IoOp::Write, nth);
            {
                let (runtime, tuning) = (rt.clone(), world.shape.tuning.clone());
                let opening = Cache::open(flash.clone(), world.origin.clone(), runtime, tuning);
                let mut opening = Box::pin(opening);
                for _ in 0..1000 {
                    let over = within(&rt, Duration::from_micros(100), &mut opening).await.is_some();
                    if over || flash.waiting() > 0 {
                        break;
                    }
                }
            }
            held += u32::from(flash.waiting() > 0);
            for _ in 0..2 {
                flash.release();
                rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
            }
            // No other task uses the device any more.
            assert_eq!(Arc::strong_count(&flash), 1, "write {nth}: who was to open it still has the flash");
            let cache = world.open(&rt).await;
            write(&cache, 0, &stamps(9001, CHUNK), false).await;
            cache.flush().await.expect("flushed");
        });
        check_after_crash(&world, &rt, &[(0, 9001), (1, 1101), (19, 2901)]);
    }
    assert!(held >= 2, "{held} openings were held");
}

/// A cache is abandoned during a flush or a write to the origin, and opened again.
///
/// The devices are the same.
#[test]
fn contract_abandoned_cache_does_not_write_into_the_next_one() {
    for seed in 0..100 {
        for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
            let (world, first) = new_world(mode);
            first.kill();
            let rt = SimRuntime::new(seed);
            world.flash.attach(&rt);
            world.origin.attach(&rt);
            rt.block_on(async {
                let cache = Arc::new(world.open(&rt).await);
                fill(&cache).await;
                {
                    let both = async {
                        write(&cache, 0, &stamps(8001, CHUNK), false).await;
                        let _ = cache.flush().await;
                    };
                    let _ = within(&rt, Duration::from_micros(seed % 40), both).await;
                }
                let cache = Arc::into_inner(cache).expect("nobody else has it");
                cache.abandon().await;
                let cache = world.open(&rt).await;
                write(&cache, 0, &stamps(9001, CHUNK), false).await;
                cache.flush().await.expect("flushed");
                assert!(identify(&read(&cache, 0, 1).await[..SECTOR_BYTES], [9001]).is_some(), "seed {seed}");
                rt.delay(Duration::from_millis(5)).await.expect("a delay ends");
            });
            check_after_crash(&world, &rt, &[(0, 9001), (1, 1101), (19, 2901)]);
        }
    }
}

/// A close is given up while it waits for the origin; then the cache is abandoned.
#[test]
fn contract_abandoned_cache_waits_for_a_close_that_was_given_up() {
    for seed in 0..60 {
        let (world, first) = new_world(WriteMode::Through);
        first.kill();
        let rt = SimRuntime::new(seed);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open_on(&world, world.flash.clone(), origin.clone(), &rt).await;
            fill(&cache).await;
            cache.wait_for_insertions().await;
            write(&cache, 0, &stamps(7001, CHUNK), false).await;
            origin.hold(IoOp::Flush);
            drop_when(&rt, cache.close(), || origin.waiting() > 0).await;
            let cache = Arc::into_inner(cache).expect("nobody else has it");
            let over = spawn(&rt, cache.abandon());
            rt.delay(Duration::from_millis(1)).await.expect("a delay ends");
            origin.release();
            until(&rt, "it is abandoned", || over.load(Acquire)).await;
            let before = world.flash.counters().writes;
            rt.delay(Duration::from_millis(50)).await.expect("a delay ends");
            assert_eq!(world.flash.counters().writes, before, "seed {seed}: the flash is written later");
        });
        check_after_crash(&world, &rt, &[(0, 7001), (1, 1101), (19, 2901)]);
    }
}

/// The close waits for a write, then.
#[test]
fn contract_given_up_close_that_waits_for_its_turn_goes_on() {
    let (world, rt) = new_world(WriteMode::Back);
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        flash.hold(IoOp::Flush);
        let writing = cache.clone();
        let written = spawn(&rt, async move { write(&writing, 0, &stamps(1001, CHUNK), true).await });
        until(&rt, "the write waits for its commit", || flash.waiting() > 0).await;
        assert!(within(&rt, Duration::from_millis(10), cache.close()).await.is_none(), "it waits for the write");
        flash.release();
        until(&rt, "the end", || written.load(Acquire) && cache.is_closed()).await;
        assert!(cache.close().await.is_err(), "it is over");
    });
    check_after_crash(&world, &rt, &[(0, 1001)]);
}

/// A write is under way while the cache is abandoned, and adds nothing after its end.
#[test]
fn contract_abandoned_cache_ends_when_its_last_write_does() {
    let (world, rt) = new_world(WriteMode::Back);
    let flash = Gate::new(&world.flash);
    rt.block_on(async {
        let cache = open_on(&world, flash.clone(), world.origin.clone(), &rt).await;
        fill(&cache).await;
        flash.hold(IoOp::Read);
        // Part of a chunk: the write reads the rest first.
        let part = IoBuf::zeroed(SECTOR_BYTES).freeze();
        let writing = cache.write(0, part, WriteFlags::default());
        let written = spawn(&rt, async move {
            let _ = writing.await;
        });
        until(&rt, "the write reads", || flash.waiting() > 0).await;
        let over = spawn(&rt, Arc::into_inner(cache).expect("nobody else has it").abandon());
        rt.delay(Duration::from_millis(10)).await.expect("a delay ends");
        flash.release();
        until(&rt, "the write is over", || written.load(Acquire)).await;
        until(&rt, "it is abandoned", || over.load(Acquire)).await;
        let before = world.flash.counters().writes;
        rt.delay(Duration::from_secs(10)).await.expect("a delay ends");
        assert_eq!(world.flash.counters().writes, before);
    });
    check_after_crash(&world, &rt, &[(0, 1001), (1, 1101), (19, 2901)]);
}
