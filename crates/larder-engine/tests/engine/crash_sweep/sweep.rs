//! One scenario: its script runs once, and the instant of each change of a device is captured. Each
//! instant ends in every way of a power loss or a kill, or in a drawn sample of them.
//!
//! After each end the devices alone remain, and these steps follow:
//! 1. The cache is opened, and each sector that was ever written is read: one of the allowed
//!    values.
//! 2. Power is lost again, at once or after some more changes, and the cache opened again. The
//!    values of the reads are still there, except in sectors written since.
//! 3. Everything is destaged and the cache closed: the origin alone holds the values of the reads.
//!    Then the cache is opened once more, after some of these clean ends.
//!
//! Invariants: a scenario with one seed is always the same, crashes included. A failure names its
//! replay.

use super::{
    client::{Client, Script, go_on},
    model::Model,
    world::{ALL, CHUNK, World, check_all, check_origin, devices, runtime},
};
use crate::{design, wear::use_up_wear};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    BlockDevice,
    rng::{Rng, mix64},
    sim::{Frozen, SimRuntime},
};
use larder_engine::{Compression, CreateOptions, Tuning, WriteMode, create, designs::ENGINE_DESIGNS};
use larder_format::DesignId;
use std::{
    cell::{Cell, RefCell},
    time::Instant,
};

/// Outcomes of a crash point up to which the sweep tries all.
const OUTCOMES_IN_FULL_MAX: u64 = 64;
/// Outcomes that the sweep draws at a point with more outcomes, by default.
const SAMPLES: u64 = 8;
/// Seeds of a scenario, by default: one for each kind of device.
const SEEDS: u64 = 4;
/// The most captured instants of a script.
const POINTS_MAX: usize = 4000;
/// The number of outcomes of which one goes on, before it crashes again.
const GO_ON_ONE_OF: u64 = 2;
/// The most changes of such an outcome before its crash.
const CHANGES_MORE_MAX: u64 = 16;
/// The number of outcomes of which one has its recovery swept, too.
const RECOVERIES_ONE_OF: u64 = 40;
/// The same in scripts that move the flash.
const MOVING_RECOVERIES_ONE_OF: u64 = 12;
/// The number of clean ends of which one is opened once more.
const CLEAN_ENDS_ONE_OF: u64 = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Outcomes to draw at a crash point.
fn samples() -> u64 {
    number("LARDER_CRASH_CASES").unwrap_or(SAMPLES)
}

/// Returns the seeds to run: a deep sweep has more of them.
pub fn seeds() -> Vec<u64> {
    match number("LARDER_SEED") {
        Some(seed) => vec![seed],
        None => (0..SEEDS.max(samples() / 8)).collect(),
    }
}

/// Returns the runs: each design with a seed, the default one, or the named one, with all.
fn runs() -> Vec<(DesignId, u64)> {
    let chosen = design::chosen();
    let others = ENGINE_DESIGNS.iter().map(|design| design.id).filter(|&id| design::wanted().is_none() && id != chosen);
    let one_each = others.zip(seeds().into_iter().cycle());
    seeds().into_iter().map(|seed| (chosen, seed)).chain(one_each).collect()
}

/// A script, and its sweep.
#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub mode: WriteMode,
    pub chunk_bytes: u32,
    pub flash_bytes: u64,
    pub origin_bytes: u64,
    pub tuning: Tuning,
    /// The crash points of each outcome's first opening are swept, too; otherwise those of some.
    pub sweep_recovery: bool,
    /// The flash of the script has fine sectors, and is copied to one of coarse ones after each
    /// end.
    pub moves: bool,
    /// The script detaches the cache; then the origin alone is the volume.
    pub detaches: bool,
    /// The number of runs of settled sectors of which one is read after each crash. The origin is
    /// compared whole.
    pub read_one_of: u64,
    /// The bytes of the wear budget that are left beside its reserve when the script begins.
    pub wear_left: Option<u64>,
    pub script: Script,
}

impl Scenario {
    pub fn new(name: &'static str, mode: WriteMode, script: Script) -> Scenario {
        Scenario {
            name,
            mode,
            chunk_bytes: (CHUNK * SECTOR_BYTES) as u32,
            flash_bytes: 4 << 20,
            // The last chunk is short, if the device's sector allows that.
            origin_bytes: (1 << 20) + (CHUNK + 3) as u64 * SECTOR_BYTES as u64,
            tuning: Tuning { commit_interval_ms: 5, prefetch_bytes_max: 0, ..Tuning::default() },
            sweep_recovery: false,
            moves: false,
            detaches: false,
            read_one_of: 1,
            wear_left: None,
            script,
        }
    }

    fn options(&self, design: DesignId) -> CreateOptions {
        design::fitted(CreateOptions {
            design,
            chunk_bytes: self.chunk_bytes,
            slot_bytes: 512 << 10,
            mode: self.mode,
            compression: Compression::Lz4,
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        })
    }
}

/// An instant of a script.
struct Point {
    change: u64,
    frozen: Frozen,
    model: Model,
}

/// The end of an instant.
#[derive(Clone, Copy, Debug)]
enum End {
    Lost(u64),
    LostNothing,
    LostDrawn(u64),
    Killed(u64),
    KilledDrawn(u64),
}

impl End {
    fn thaw(self, frozen: &Frozen) {
        match self {
            End::Lost(choice) => frozen.thaw(choice),
            End::LostNothing => frozen.thaw_all_kept(),
            End::LostDrawn(seed) => frozen.thaw_drawn(&mut Rng::new(seed)),
            End::Killed(choice) => frozen.thaw_killed(choice),
            End::KilledDrawn(seed) => frozen.thaw_killed_drawn(&mut Rng::new(seed)),
        }
    }
}

/// Returns the ends to try of an instant, and true if they are all of its ends.
fn ends(frozen: &Frozen, samples: u64, rng: &mut Rng) -> (Vec<End>, bool) {
    let (mut ends, mut in_full) = (Vec::new(), true);
    let in_full_max = OUTCOMES_IN_FULL_MAX.max(samples);
    if frozen.choices() <= in_full_max {
        ends.extend((0..frozen.choices()).map(End::Lost));
    } else {
        in_full = false;
        // No volatile write is left, all are, each as enumerated, each as drawn.
        ends.extend([End::Lost(0), End::LostNothing]);
        ends.extend((2..samples).map(|i| match i % 2 {
            0 => End::LostDrawn(rng.next_u64()),
            _ => End::Lost(rng.below(frozen.choices())),
        }));
    }
    // A kill differs only if completed data is not durable. A share of these is enough, because the
    // sweep above meets a power loss that follows at once.
    if frozen.choices_of_a_kill() <= samples.min(in_full_max) {
        ends.extend((0..frozen.choices_of_a_kill()).map(End::Killed));
    } else {
        ends.extend((0..samples / 2).map(|_| End::KilledDrawn(rng.next_u64())));
    }
    (ends, in_full)
}

/// Names the replay of a failure.
struct Replay {
    name: &'static str,
    design: DesignId,
    seed: u64,
    place: Cell<Option<(u64, End)>>,
    of_recovery: Cell<Option<(u64, End)>>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (name, design) = (self.name, design::name(self.design));
            eprintln!("scenario {name}: replay with LARDER_DESIGN={design} LARDER_SEED={}", self.seed);
            if let Some((change, end)) = self.place.get() {
                eprintln!("  LARDER_CRASH_POINT={change} has the instant, which ends with {end:?}");
            }
            if let Some((change, end)) = self.of_recovery.get() {
                eprintln!("  then the recovery's change {change}, which ends with {end:?}");
            }
        }
    }
}

/// The counts of the sweep.
#[derive(Default)]
struct Tried {
    points: u64,
    in_full: u64,
    outcomes: u64,
    crashes: u64,
    recovery_points: u64,
    detached: u64,
}

/// Sweeps a scenario with all seeds, and prints the counts.
pub fn sweep(scenario: &Scenario) {
    let (began, mut tried) = (Instant::now(), Tried::default());
    for (design, seed) in runs() {
        sweep_seed(scenario, design, seed, &mut tried);
    }
    assert!(tried.points > 0, "a scenario changes something");
    assert_eq!(tried.detached > 0, scenario.detaches, "a script that detaches comes to its end");
    println!(
        "{}: {} crash points ({} of them with every outcome), {} in recoveries; {} outcomes, {} crashes, {:.1} s",
        scenario.name,
        tried.points,
        tried.in_full,
        tried.recovery_points,
        tried.outcomes,
        tried.crashes,
        began.elapsed().as_secs_f64()
    );
}

fn sweep_seed(scenario: &Scenario, design: DesignId, seed: u64, tried: &mut Tried) {
    let replay = Replay { name: scenario.name, design, seed, place: Cell::default(), of_recovery: Cell::default() };
    let mut rng = Rng::new(mix64(seed));
    let (world, points) = run_script(scenario, design, seed);
    let only = number("LARDER_CRASH_POINT");
    for point in &points {
        let mut rng = rng.fork();
        if only.is_some_and(|only| only != point.change) {
            continue;
        }
        let (ends, in_full) = ends(&point.frozen, samples(), &mut rng);
        tried.points += 1;
        tried.in_full += u64::from(in_full);
        for end in ends {
            replay.place.set(Some((point.change, end)));
            end.thaw(&point.frozen);
            tried.outcomes += 1;
            let moved = scenario.moves.then(|| world.moved(true));
            let on = moved.as_ref().unwrap_or(&world);
            let share = world.draw_share(&mut rng);
            check_origin(&world, share, "the origin alone, after the crash", |at, bytes| match scenario.mode {
                WriteMode::Back => point.model.was_written(at, bytes),
                // Flushed data does not need the flash.
                _ => point.model.may_hold(at, bytes),
            });
            let one_of = if scenario.moves { MOVING_RECOVERIES_ONE_OF } else { RECOVERIES_ONE_OF };
            if scenario.sweep_recovery || rng.chance(1, one_of) {
                sweep_recovery(on, &point.model, &replay, tried, &mut rng);
                end.thaw(&point.frozen);
            }
            let moved = scenario.moves.then(|| world.moved(true));
            afterwards(moved.as_ref().unwrap_or(&world), point.model.clone(), tried, &mut rng);
        }
    }
}

/// Runs the script to its end and captures each change of its swept part, and the end.
fn run_script(scenario: &Scenario, design: DesignId, seed: u64) -> (World, Vec<Point>) {
    let first = runtime(seed);
    let [flash, origin] = devices(&first, seed, scenario.flash_bytes, scenario.origin_bytes, scenario.moves);
    let origin_bytes = origin.info().size_bytes;
    let world = World {
        flash,
        origin,
        tuning: scenario.tuning.clone(),
        read_one_of: scenario.read_one_of,
        may_be_detached: scenario.detaches,
    };
    let made = first.block_on(create(&*world.flash, origin_bytes, &scenario.options(design)));
    let log_bytes = made.unwrap_or_else(|error| panic!("create: {error}")).layout.log_bytes;
    if let Some(left) = scenario.wear_left {
        first.block_on(use_up_wear(&*world.flash, left));
    }
    first.kill();
    let (model, sweeping) = (RefCell::new(Model::new(scenario.mode)), Cell::new(false));
    let mut points = Vec::new();
    let rt = world.attach(mix64(seed ^ 1));
    let mut capture = |rt: &SimRuntime| {
        assert!(points.len() < POINTS_MAX, "a script has at most {POINTS_MAX} changes");
        points.push(Point { change: rt.changes(), frozen: rt.capture(), model: model.borrow().clone() });
        rt.stop_at_change(Some(rt.changes() + 1));
    };
    let script = async {
        let cache = world.open(&rt).await;
        let sectors = world.origin_sectors();
        let client = Client { cache: &cache, model: &model, sectors, log_bytes, runtime: &rt, sweeping: &sweeping };
        (scenario.script)(&client).await;
        assert!(sweeping.get(), "a script says where its sweep begins");
        cache
    };
    let cache = rt.block_on_pausing(script, &mut capture);
    capture(&rt);
    drop(cache);
    rt.crash();
    (world, points)
}

/// Ends the first opening after a crash at each of its changes, in every way.
///
/// It opens each result as any other.
fn sweep_recovery(world: &World, model: &Model, replay: &Replay, tried: &mut Tried, rng: &mut Rng) {
    let rt = world.attach(rng.next_u64());
    let mut points = Vec::new();
    rt.stop_at_change(Some(1));
    let opening = world.open_or_detached(&rt);
    let cache = rt.block_on_pausing(opening, |rt| {
        points.push((rt.changes(), rt.capture()));
        rt.stop_at_change(Some(rt.changes() + 1));
    });
    points.push((rt.changes(), rt.capture()));
    drop(cache);
    rt.crash();
    for (change, frozen) in points {
        tried.recovery_points += 1;
        for end in ends(&frozen, samples().min(SAMPLES), rng).0 {
            replay.of_recovery.set(Some((change, end)));
            end.thaw(&frozen);
            tried.crashes += 1;
            afterwards(world, model.clone(), tried, rng);
        }
    }
    replay.of_recovery.set(None);
}

/// Opens the devices after a crash, again after another power loss, and destages them.
fn afterwards(world: &World, mut model: Model, tried: &mut Tried, rng: &mut Rng) {
    let sectors = world.origin_sectors();
    let share = world.draw_share(rng);
    tried.crashes += 1;
    let rt = world.attach(rng.next_u64());
    let opened = rt.block_on(async {
        let cache = world.open_or_detached(&rt).await?;
        check_all(&cache, &mut model, share, sectors, "after the crash").await;
        Some(cache)
    });
    let detached = opened.is_none();
    if let Some(cache) = opened
        && rng.chance(1, GO_ON_ONE_OF)
    {
        rt.stop_at_change(Some(rt.changes() + 1 + rng.below(CHANGES_MORE_MAX)));
        let shared = RefCell::new(std::mem::take(&mut model));
        rt.block_on_or_stop(go_on(&cache, &shared, rng.fork()));
        model = shared.into_inner();
    }
    rt.crash();
    if detached {
        assert!(world.may_be_detached, "a cache that nobody detached says so");
        // All completed writes, flushed or not; and acknowledged data stays.
        check_origin(world, ALL, "a detached origin", |at, bytes| model.is_or_newer(at, bytes));
        let rt = world.attach(rng.next_u64());
        assert!(rt.block_on(world.open_or_detached(&rt)).is_none(), "detached, and then not");
        rt.kill();
        tried.detached += 1;
        return;
    }
    tried.crashes += 1;
    let rt = world.attach(rng.next_u64());
    rt.block_on(async {
        let cache = world.open(&rt).await;
        check_all(&cache, &mut model, share, sectors, "after the second crash").await;
        assert!(cache.destage_all().await, "destage at the end");
        cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
    });
    rt.crash();
    check_origin(world, ALL, "the origin alone, at the end", |at, bytes| model.is(at, bytes));
    if rng.chance(1, CLEAN_ENDS_ONE_OF) {
        // The reads hide neither an older copy nor a record of another chunk, on finer sectors
        // either.
        let world = world.moved(false);
        let rt = world.attach(rng.next_u64());
        rt.block_on(async {
            let cache = world.open(&rt).await;
            assert!(cache.recovery().clean_shutdown, "the end was clean");
            check_all(&cache, &mut model, share, sectors, "after a clean end").await;
        });
        rt.kill();
    }
}
