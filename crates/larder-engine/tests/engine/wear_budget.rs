//! The wear budget: bytes written to the flash in any 24 hours. No data is lost on the way past it.
//!
//! Random writes use the budget up. Then writes go past the flash, FLUSH makes them durable on the
//! origin, and crashes bring back no older data. Time gives the budget back. Restarts and crashes
//! go on with the bytes of before, however the clock jumps.
//!
//! It leaves the sum over bins to `larder-core`.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{Runtime, rng::Rng, sim::Schedule};
use larder_engine::{EngineError, WearLimit, WriteMode};
use larder_format::size::exact;
use std::time::Duration;

const CHUNK: usize = 8 << 10;
const DAY: u64 = 24 * 3600;
/// The volume's bytes that the tests write.
const SPAN: u64 = 4 * MIB;
/// The time of the first opening, in seconds since 1970.
const BEGIN: u64 = 1_800_000_000;

fn setup(mode: WriteMode) -> Setup {
    let mut setup = Setup { origin_bytes: 8 * MIB, schedule: Schedule::Timed, ..Setup::default() };
    setup.options.mode = mode;
    setup.tuning.prefetch_bytes_max = 0;
    setup.tuning.wall_seconds = BEGIN;
    setup.tuning.fence = MemoryFence::new().keeper();
    setup
}

/// Returns a cache with the smallest budget, and that budget.
fn world(seed: u64, mut setup: Setup) -> (World, u64) {
    setup.tuning.wear = Some(WearLimit::BytesADay(1));
    let mut world = World::made(seed, setup);
    let refused = world.try_open().expect_err("a budget of a byte");
    let EngineError::Invalid(sentence) = &refused else { panic!("{refused}") };
    let layout = world.layout();
    let reserve =
        2 * layout.checkpoint_area_bytes + layout.log_bytes / 2 + 8 * u64::from(layout.slot_bytes).max(512 << 10);
    let budget = 4 * reserve;
    assert!(sentence.contains("too small") && sentence.contains(&exact(budget)), "{sentence}");
    world.setup.tuning.wear = Some(WearLimit::BytesADay(budget - 1));
    assert!(world.try_open().is_err());
    world.setup.tuning.wear = Some(WearLimit::BytesADay(budget));
    world.open();
    (world, budget)
}

fn pass(world: &World, time: Duration) {
    world.run(world.runtime.delay(time)).expect("time");
}

/// Runs random writes and flushes, and checks each read and the budget.
fn work(world: &World, twin: &mut Twin, rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let (offset, len) = random_run(rng, SPAN, 48);
        match rng.below(8) {
            0..5 => {
                let data = noise(rng.next_u64(), len);
                world.try_write(offset, &data, rng.chance(1, 8)).unwrap_or_else(|error| panic!("write: {error}"));
                twin.write(offset, &data);
            }
            5 => {
                world.trim(offset, len as u64);
                twin.zero(offset, len as u64);
            }
            6 if rng.chance(1, 4) => world.flush(),
            _ => assert_same(&world.read(offset, len), &twin.bytes(offset, len), "a read"),
        }
        let wear = world.status().wear;
        assert!(wear.spent_bytes <= wear.budget_bytes_a_day, "{wear:?}");
        assert_eq!(wear.spent_bytes + wear.left_bytes, wear.budget_bytes_a_day);
    }
}

fn check_all(world: &World, twin: &Twin, what: &str) {
    for offset in (0..SPAN).step_by(CHUNK) {
        assert_same(&world.read(offset, CHUNK), &twin.bytes(offset, CHUNK), what);
    }
}

fn has(world: &World, name: &str) -> bool {
    world.status().conditions.iter().any(|condition| condition.name == name)
}

#[test]
fn a_spent_budget_lets_writes_past_and_time_gives_it_back() {
    each_seed(3, |seed| {
        for mode in [WriteMode::Back, WriteMode::Through] {
            let (world, budget) = world(seed, setup(mode));
            let (mut twin, mut rng) = (Twin::new(), Rng::new(seed));
            assert!(!has(&world, "wear_budget_spent"));
            for _ in 0..400 {
                work(&world, &mut twin, &mut rng, 20);
                if has(&world, "wear_budget_spent") || has(&world, "wear_saving") && mode == WriteMode::Through {
                    break;
                }
            }
            assert!(has(&world, "wear_budget_spent") || mode == WriteMode::Through, "{:?}", world.status().wear);
            let before = world.status();
            work(&world, &mut twin, &mut rng, 100);
            let after = world.status();
            let (past, segments) = (
                after.counts.writes_past_budget - before.counts.writes_past_budget,
                after.counts.flash_segment_bytes_written - before.counts.flash_segment_bytes_written,
            );
            assert!(past > 0 || mode == WriteMode::Through, "no write went past");
            assert!(segments < budget / 8, "{segments} bytes of segments in spite of the budget");
            check_all(&world, &twin, "past the flash");
            pass(&world, Duration::from_secs(DAY + 600));
            assert!(!has(&world, "wear_budget_spent") && !has(&world, "wear_saving"), "{:?}", world.status().wear);
            let before = world.status().counts.flash_segment_bytes_written;
            work(&world, &mut twin, &mut rng, 200);
            world.flush();
            let status = world.status();
            let stored = status.counts.flash_segment_bytes_written - before;
            assert!(stored > 0, "{mode:?}: {:?}, {:?}", status.wear, status.conditions);
            check_all(&world, &twin, "a day later");
        }
    });
}

#[test]
fn what_a_flush_covers_survives_a_crash_past_the_flash() {
    each_seed(6, |seed| {
        let (mut world, _) = world(seed, setup(WriteMode::Back));
        let (mut twin, mut rng) = (Twin::new(), Rng::new(seed));
        while !has(&world, "wear_budget_spent") {
            work(&world, &mut twin, &mut rng, 20);
        }
        for round in 0..6 {
            work(&world, &mut twin, &mut rng, 15);
            world.flush();
            assert!(world.status().counts.writes_past_budget > 0 || round == 0);
            let spent = world.status().wear.spent_bytes;
            if rng.chance(1, 2) {
                world.crash();
            } else {
                world.kill();
            }
            world.open();
            assert!(world.status().wear.spent_bytes >= spent, "a crash gives bytes back");
            check_all(&world, &twin, "after a crash");
            if world.status().degraded {
                break;
            }
        }
    });
}

#[test]
fn the_sum_goes_on_over_restarts_and_jumps_of_the_clock() {
    let (mut world, budget) = world(1, setup(WriteMode::Back));
    let (mut twin, mut rng) = (Twin::new(), Rng::new(1));
    work(&world, &mut twin, &mut rng, 100);
    let mut spent = world.status().wear.spent_bytes;
    for clock in [BEGIN, BEGIN - 5 * DAY, BEGIN - 5 * DAY + 60] {
        world.close();
        // Without a budget of its own, an opening goes on with the last one.
        (world.setup.tuning.wear, world.setup.tuning.wall_seconds) = (None, clock);
        world.open();
        let wear = world.status().wear;
        assert_eq!(wear.budget_bytes_a_day, budget);
        assert!(wear.spent_bytes >= spent && wear.spent_bytes < spent + budget / 8, "{wear:?} after {spent}");
        spent = wear.spent_bytes;
    }
    world.close();
    world.setup.tuning.wall_seconds = BEGIN - 4 * DAY + 660;
    world.open();
    assert!(world.status().wear.spent_bytes < spent / 4, "a day has passed on the clock of the last opening");
    world.close();
    // A clock that is not known counts no time.
    world.setup.tuning.wall_seconds = 0;
    world.open();
    let spent = world.status().wear.spent_bytes;
    world.close();
    world.setup.tuning.wall_seconds = BEGIN - 4 * DAY + 660;
    world.open();
    assert!(world.status().wear.spent_bytes >= spent);
    world.close();
    world.setup.tuning.wear = Some(WearLimit::Absent);
    world.open();
    assert_eq!(world.status().wear.budget_bytes_a_day, 0);
    assert!(world.superblock().wear.is_none());
    check_all(&world, &twin, "in the end");
}

#[test]
fn a_used_up_reserve_fences_the_flash_and_loses_nothing() {
    let (mut world, budget) = world(2, setup(WriteMode::Through));
    let (mut twin, mut rng) = (Twin::new(), Rng::new(2));
    let mut rounds = 0;
    while !world.status().degraded {
        // Each forgets a logged mapping, and the log is written for it.
        work(&world, &mut twin, &mut rng, 20);
        world.run(world.cache().checkpoint()).ok();
        pass(&world, Duration::from_secs(2));
        rounds += 1;
        assert!(rounds < 5000, "{:?}", world.status().conditions);
    }
    assert!(world.status().wear.spent_bytes <= budget);
    let before = world.status().flash_bytes_written;
    for _ in 0..50 {
        let (offset, len) = random_run(&mut rng, SPAN, 48);
        let data = noise(rng.next_u64(), len);
        world.write(offset, &data);
        twin.write(offset, &data);
    }
    world.flush();
    assert_eq!(world.status().flash_bytes_written, before, "nothing is written any more");
    check_all(&world, &twin, "past the fence");
    world.crash();
    world.setup.tuning.wall_seconds = BEGIN + 3 * DAY;
    world.open();
    assert!(!world.status().degraded && has(&world, "emptied_behind_fence"));
    check_all(&world, &twin, "behind the fence");
}
