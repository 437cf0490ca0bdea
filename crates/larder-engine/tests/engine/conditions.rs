//! Each condition is reported once when it is raised, and once when it is over.
//!
//! The last test compares the scenarios with the table of names: a condition without a scenario
//! fails it.
//!
//! It leaves the lines on standard error to the program's tests.

use crate::common::*;
use crate::fence::MemoryFence;
use larder_device::{
    IoBuf, IoErrorKind, IoOp, Runtime, WriteFlags, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    rng::Rng,
    sim::{Schedule, SimDeviceOptions},
};
use larder_engine::{
    WearLimit, WriteMode,
    advice::ADVICE,
    conditions::Condition,
    tell::{ConditionListener, Listener},
};
use larder_format::DesignId;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::*},
    },
    time::Duration,
};

pub const CHUNK: usize = 8 << 10;
/// Longer than the time in which the end of a condition is reported.
const TOLD: Duration = Duration::from_secs(6);

/// The reports, each as `+name` or `-name`.
#[derive(Default)]
pub struct Heard(Mutex<Vec<String>>);

impl ConditionListener for Heard {
    fn raised(&self, condition: &Condition) {
        assert!(!condition.what.is_empty() && !condition.what.contains('\n'), "{condition:?}");
        self.0.lock().push(format!("+{}", condition.name));
    }
    fn cleared(&self, condition: &Condition) {
        self.0.lock().push(format!("-{}", condition.name));
    }
}

impl Heard {
    /// Returns the listener for an opening.
    pub fn listener(self: &Arc<Self>) -> Listener {
        Listener(Some(self.clone()))
    }

    /// Counts the reports of this entry.
    pub fn count(&self, entry: &str) -> usize {
        self.0.lock().iter().filter(|told| *told == entry).count()
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

pub struct Scene {
    pub world: World,
    heard: Arc<Heard>,
    fence: Arc<MemoryFence>,
}

impl Scene {
    pub fn new(mode: WriteMode, change: impl FnOnce(&mut Setup)) -> Scene {
        let (heard, fence) = (Arc::new(Heard::default()), MemoryFence::new());
        let mut setup = Setup::default();
        setup.options.mode = mode;
        setup.schedule = Schedule::Timed;
        setup.tuning.prefetch_bytes_max = 0;
        setup.tuning.listener = heard.listener();
        setup.tuning.fence = fence.keeper();
        change(&mut setup);
        Scene { world: World::new(asked_seed().unwrap_or(3), setup), heard, fence }
    }

    pub fn back() -> Scene {
        Scene::new(WriteMode::Back, |_| {})
    }

    pub fn wait(&self, time: Duration) {
        self.world.run(self.world.runtime.delay(time)).expect("time");
    }

    /// Checks that the start of this condition was reported once, and its end was not.
    #[track_caller]
    pub fn raised(&self, name: &str) {
        self.wait(TOLD);
        let (raised, cleared) = (self.heard.count(&format!("+{name}")), self.heard.count(&format!("-{name}")));
        assert_eq!((raised, cleared), (1, 0), "{name}: {:?}", self.heard.all());
        let listed = self.world.status().conditions;
        assert!(listed.iter().any(|condition| condition.name == name), "{listed:?}");
    }

    /// Checks that the start of this condition was reported once, and its end once.
    #[track_caller]
    pub fn cleared(&self, name: &str) {
        self.wait(TOLD);
        let (raised, cleared) = (self.heard.count(&format!("+{name}")), self.heard.count(&format!("-{name}")));
        assert_eq!((raised, cleared), (1, 1), "{name}: {:?}", self.heard.all());
        let listed = self.world.status().conditions;
        assert!(listed.iter().all(|condition| condition.name != name), "{listed:?}");
    }

    pub fn write(&self, chunks: std::ops::Range<u64>) {
        chunks.for_each(|lba| self.world.write(lba * CHUNK as u64, &noise(lba, CHUNK)));
    }
}

pub fn always(op: IoOp, kind: IoErrorKind) -> Fault {
    Fault { op: Some(op), range: None, kind, times: FOR_EVER }
}

fn origin_refuses_writes(name: &str, kind: IoErrorKind) {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.origin.sim.plan().add(always(IoOp::Write, kind));
    assert!(!scene.world.destage_all());
    scene.raised(name);
    // The condition ends by itself: the destager tries again.
    scene.world.origin.sim.plan().clear();
    assert!(scene.world.destage_all());
    scene.cleared(name);
}

fn origin_gone() {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.origin.sim.set_gone(true);
    assert!(!scene.world.destage_all());
    scene.raised("origin_gone");
    scene.world.origin.sim.set_gone(false);
    assert!(scene.world.destage_all());
    scene.cleared("origin_gone");
}

fn flash_refuses(name: &str, kind: IoErrorKind, heals_after: Duration) {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.flash.sim.plan().add(always(IoOp::Write, kind));
    let (runtime, flash) = (scene.world.runtime.clone(), scene.world.flash.clone());
    scene.world.runtime.spawn(Box::pin(async move {
        runtime.delay(heals_after).await.ok();
        flash.sim.plan().clear();
    }));
    let began = scene.world.runtime.now();
    scene.world.flush();
    assert!(scene.world.runtime.now() - began >= heals_after, "the flush waited");
    assert!(!scene.world.status().degraded && !scene.fence.is_up());
    scene.cleared(name);
}

/// The file system answers no query of name and size, and the device does all other work.
fn device_cannot_be_looked_at(name: &str) {
    let scene = Scene::back();
    scene.write(0..8);
    let is_flash = name == "flash_failing";
    let device = if is_flash { scene.world.flash.clone() } else { scene.world.origin.clone() };
    device.fail_looks(true);
    scene.raised(name);
    let flushed = scene.world.run(scene.world.cache().flush());
    assert_eq!(flushed.is_err(), is_flash, "{flushed:?}");
    assert!(!scene.world.status().degraded && !scene.fence.is_up());
    assert_same(&scene.world.read(0, CHUNK), &noise(0, CHUNK), "a hit");
    device.fail_looks(false);
    scene.world.flush();
    scene.cleared(name);
}

/// The look for a durable write fails, and the next look succeeds.
fn flash_cannot_be_looked_at_for_a_moment() {
    let scene = Scene::back();
    scene.wait(TOLD);
    scene.world.flash.fail_looks(true);
    let written = scene.world.try_write(0, &noise(0, CHUNK), true);
    scene.world.flash.fail_looks(false);
    written.expect_err("it may not be durable");
    scene.cleared("flash_failing");
}

fn flash_fails(name: &str, also: &[&str]) {
    let scene = Scene::back();
    scene.write(0..8);
    if name == "flash_gone" {
        scene.world.flash.sim.set_gone(true);
    } else {
        scene.world.flash.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
    }
    scene.world.run(scene.world.cache().flush()).expect("past the flash");
    scene.raised(name);
    also.iter().for_each(|also| scene.raised(also));
}

fn without_a_fence(name: &str) {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.flush();
    scene.write(8..9);
    scene.fence.break_down(true);
    scene.world.flash.sim.set_gone(true);
    let flushed = scene.world.run(scene.world.cache().flush());
    let is_durable = scene.world.origin.sim.peek_durable(8 * CHUNK as u64, CHUNK) == noise(8, CHUNK);
    let dirty = scene.world.status().dirty_bytes;
    assert!(flushed.is_err(), "no fence: {:?}, durable {is_durable}, {dirty} dirty", scene.heard.all());
    scene.raised(name);
}

/// Begins a read of a chunk; the flag is set once it has succeeded.
fn read_in_the_background(scene: &Scene, offset: u64) -> Arc<AtomicBool> {
    let read = scene.world.cache().read(offset, IoBuf::new(CHUNK));
    let answered = Arc::new(AtomicBool::new(false));
    let note = answered.clone();
    scene.world.runtime.spawn(Box::pin(async move { note.store(read.await.is_ok(), Release) }));
    answered
}

/// Checks that a device that owes this read is told with the read's age.
fn hangs_for_a_read(scene: &Scene, name: &str, device: &str) {
    scene.wait(Duration::from_secs(20));
    assert_eq!(scene.heard.count(&format!("+{name}")), 0, "not yet");
    scene.wait(Duration::from_secs(20));
    scene.raised(name);
    let what = scene.world.status().health;
    assert!(what.contains(&format!("the {device} hangs: it has not answered a read for 4")), "{what}");
}

fn origin_hangs() {
    let scene = Scene::back();
    scene.write(0..4);
    scene.world.origin.slow_down(&scene.world.runtime, Duration::from_secs(100));
    let answered = read_in_the_background(&scene, 32 << 20);
    hangs_for_a_read(&scene, "origin_hangs", "origin");
    // Work without the origin goes on.
    let began = scene.world.runtime.now();
    scene.write(4..8);
    scene.world.flush();
    assert_same(&scene.world.read(0, CHUNK), &noise(0, CHUNK), "a hit");
    assert!(scene.world.runtime.now() - began < Duration::from_secs(5));
    assert!(!answered.load(Acquire));
    // The requests that it has keep their time.
    scene.world.origin.at_full_speed();
    scene.wait(Duration::from_secs(100));
    assert!(answered.load(Acquire), "it was not given up");
    scene.cleared("origin_hangs");
}

fn flash_hangs() {
    let scene = Scene::back();
    scene.write(0..4);
    scene.world.flush();
    scene.world.flash.slow_down(&scene.world.runtime, Duration::from_secs(100));
    let answered = read_in_the_background(&scene, 0);
    hangs_for_a_read(&scene, "flash_hangs", "flash");
    // Work without the flash goes on.
    let began = scene.world.runtime.now();
    scene.world.read(32 << 20, CHUNK);
    assert!(scene.world.runtime.now() - began < Duration::from_secs(5));
    assert!(!answered.load(Acquire) && !scene.world.status().degraded);
    scene.world.flash.at_full_speed();
    scene.wait(Duration::from_secs(100));
    assert!(answered.load(Acquire), "it was not given up");
    scene.cleared("flash_hangs");
}

fn origin_doubtful() {
    let scene = Scene::new(WriteMode::Through, |_| {});
    scene.write(0..8);
    scene.world.origin.sim.fail_next(IoOp::Flush, IoErrorKind::Io);
    scene.world.run(scene.world.cache().flush()).expect_err("the origin's");
    scene.raised("origin_doubtful");
    scene.write(0..8);
    scene.cleared("origin_doubtful");
}

fn write_in_the_background(scene: &Scene, chunks: std::ops::Range<u64>) {
    for lba in chunks {
        let data = IoBuf::copy_of(&noise(lba, CHUNK)).freeze();
        let write = scene.world.cache().write(lba * CHUNK as u64, data, WriteFlags::default());
        scene.world.runtime.spawn(Box::pin(async move { drop(write.await) }));
    }
}

fn full_of_dirty_data() {
    let scene = Scene::back();
    scene.world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
    write_in_the_background(&scene, 0..3000);
    scene.wait(Duration::from_secs(10));
    scene.raised("full_of_dirty_data");
    scene.world.origin.sim.plan().clear();
    assert!(scene.world.destage_all());
    scene.wait(Duration::from_secs(60));
    scene.cleared("full_of_dirty_data");
}

/// The average size of the chunks since the opening says little of those that are dirty now.
fn full_of_unique_chunks_after_many_duplicates() {
    let scene = Scene::back();
    for lba in 0..4000 {
        scene.world.write(lba * CHUNK as u64, &noise(1, CHUNK));
    }
    assert!(scene.world.destage_all());
    scene.world.origin.sim.plan().add(always(IoOp::Write, IoErrorKind::Io));
    write_in_the_background(&scene, 4000..6400);
    scene.wait(Duration::from_secs(2));
    scene.raised("full_of_dirty_data");
    scene.world.origin.sim.plan().clear();
    scene.wait(Duration::from_secs(60));
    assert!(scene.world.destage_all());
    scene.cleared("full_of_dirty_data");
}

fn full_of_trimmed_runs() {
    let scene = Scene::back();
    scene.world.origin.sim.plan().add(always(IoOp::WriteZeroes, IoErrorKind::Io));
    let cache = scene.world.cache().clone();
    for number in 0..2000_u64 {
        // The writes wait in the background.
        let cache = cache.clone();
        scene.world.runtime.spawn(Box::pin(async move {
            let trim = cache.zero(number * 4 * CHUNK as u64, CHUNK as u64, ZeroFlags::default());
            drop(trim.await);
        }));
    }
    drop(cache);
    scene.wait(Duration::from_secs(10));
    scene.raised("full_of_trimmed_runs");
    scene.world.origin.sim.plan().clear();
    assert!(scene.world.destage_all());
    scene.wait(Duration::from_secs(60));
    scene.cleared("full_of_trimmed_runs");
}

fn damaged_records(name: &str) {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.flush();
    let record = scene.world.record_of(3).range;
    scene.world.flash.sim.corrupt(record.start, record.end - record.start, &mut Rng::new(5));
    scene.world.try_read(3 * CHUNK as u64, CHUNK).expect_err("it was dirty");
    scene.raised(name);
    if name == "dirty_data_lost" {
        scene.write(3..4);
        scene.cleared(name);
    }
}

fn flash_read_errors() {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.flush();
    scene.world.flash.sim.fail_next(IoOp::Read, IoErrorKind::Io);
    scene.world.read(0, CHUNK);
    scene.raised("flash_read_errors");
    scene.wait(Duration::from_secs(60));
    scene.cleared("flash_read_errors");
    assert!(scene.world.status().counts.flash_read_errors > 0, "the count stays");
}

fn checkpoint_failing() {
    let scene = Scene::new(WriteMode::Through, |setup| {
        // Overwrites fill the log.
        if !design::logs_each_mapping(setup.options.design) {
            setup.options.design = DesignId::Nitro;
        }
    });
    let rewrite = |round: u64| {
        scene.write(round % 256..round % 256 + 1);
        scene.world.wait_for_insertions();
    };
    let mut round = 0;
    while scene.world.status().log_used_percent < 45 {
        rewrite(round);
        scene.world.flush();
        round += 1;
        assert!(round < 20_000, "the log fills");
    }
    scene.world.origin.sim.plan().add(always(IoOp::Flush, IoErrorKind::Io));
    for round in 0..4000 {
        if scene.heard.count("+checkpoint_failing") > 0 {
            break;
        }
        // Some designs log so much for a write that the log is full before the condition is told.
        let lba = round % 256;
        let written = scene.world.try_write(lba * CHUNK as u64, &noise(lba, CHUNK), false);
        if let Err(error) = written {
            assert!(!design::fills_weus(design::chosen()), "{error}");
            break;
        }
        scene.world.wait_for_insertions();
    }
    scene.raised("checkpoint_failing");
    scene.world.origin.sim.plan().clear();
    scene.wait(TOLD);
    scene.cleared("checkpoint_failing");
}

fn superblock_repaired() {
    let mut scene = Scene::back();
    scene.world.close();
    scene.world.flash.sim.corrupt(0, 4096, &mut Rng::new(1));
    scene.world.open();
    scene.raised("superblock_repaired");
}

/// The end itself is in order.
fn origin_unmarked() {
    let mut scene = Scene::back();
    scene.world.origin.sim.plan().add(always(IoOp::Standing, IoErrorKind::Io));
    scene.world.close();
    assert!(scene.heard.count("+origin_unmarked") == 1 && scene.world.superblock().clean_shutdown);
}

fn superblock_unnoted() {
    let scene = Scene::back();
    scene.fence.break_down(true);
    scene.world.run(scene.world.cache().checkpoint()).expect("a checkpoint, all the same");
    scene.raised("superblock_unnoted");
    // It is tried again without another checkpoint.
    scene.fence.break_down(false);
    scene.wait(TOLD);
    assert_eq!(scene.fence.sequence(), scene.world.superblock().sequence);
    scene.cleared("superblock_unnoted");
}

fn switching_mode() {
    let scene = Scene::back();
    scene.write(0..8);
    scene.world.origin.slow_down(&scene.world.runtime, Duration::from_secs(10));
    let cache = scene.world.cache().clone();
    scene.world.runtime.spawn(Box::pin(async move { cache.set_mode(WriteMode::Through).await.expect("a switch") }));
    scene.raised("switching_mode");
    scene.wait(Duration::from_secs(60));
    scene.cleared("switching_mode");
}

fn emptied_behind_fence() {
    let mut scene = Scene::new(WriteMode::Through, |_| {});
    scene.write(0..8);
    // The flash has the copies, so it must be told of the next write.
    scene.world.run(scene.world.cache().checkpoint()).expect("a checkpoint");
    scene.world.flash.sim.set_gone(true);
    scene.write(0..8);
    assert!(scene.fence.is_up());
    scene.world.crash();
    scene.world.flash.sim.set_gone(false);
    scene.world.open();
    scene.raised("emptied_behind_fence");
}

fn origin_discard_keeps_data() {
    let keeps = SimDeviceOptions { discard_zeroes: false, ..SimDeviceOptions::default() };
    Scene::new(WriteMode::Back, |setup| setup.origin = keeps).raised("origin_discard_keeps_data");
}

fn wear_runs_out() {
    let scene = Scene::new(WriteMode::Back, |setup| setup.tuning.wear = Some(WearLimit::BytesADay(24 * MIB)));
    let mut lba = 0;
    let mut write_until = |name: &str| {
        while scene.world.status().conditions.iter().all(|condition| condition.name != name) {
            scene.write(lba..lba + 16);
            scene.world.flush();
            lba += 16;
            assert!(lba < 8000, "{name}: {:?}", scene.world.status().wear);
        }
    };
    write_until("wear_saving");
    scene.raised("wear_saving");
    write_until("wear_budget_spent");
    scene.raised("wear_budget_spent");
    scene.cleared("wear_saving");
    scene.wait(Duration::from_secs(25 * 3600));
    scene.cleared("wear_budget_spent");
}

/// Raises the condition of this name, and ends it if that is possible.
type Act = fn(&str);

/// A scenario for each name that an open cache can have.
const SCENES: &[(&str, Act)] = &[
    ("checkpoint_failing", |_| checkpoint_failing()),
    ("corrupt_records", damaged_records),
    ("dirty_data_lost", damaged_records),
    ("emptied_behind_fence", |_| emptied_behind_fence()),
    ("fence_refused", without_a_fence),
    ("fence_up", |name| flash_fails("flash_gone", &[name])),
    ("flash_failed", |name| flash_fails(name, &[])),
    ("flash_failing", |name| {
        flash_refuses(name, IoErrorKind::Io, Duration::from_secs(1));
        device_cannot_be_looked_at(name);
        flash_cannot_be_looked_at_for_a_moment();
    }),
    ("flash_full", |name| {
        for kind in [IoErrorKind::NoSpace, IoErrorKind::Quota] {
            flash_refuses(name, kind, Duration::from_secs(600));
        }
    }),
    ("flash_gone", |name| flash_fails(name, &[])),
    ("flash_hangs", |_| flash_hangs()),
    ("flash_read_errors", |_| flash_read_errors()),
    ("full_of_dirty_data", |_| {
        full_of_dirty_data();
        full_of_unique_chunks_after_many_duplicates();
    }),
    ("full_of_trimmed_runs", |_| full_of_trimmed_runs()),
    ("origin_discard_keeps_data", |_| origin_discard_keeps_data()),
    ("origin_doubtful", |_| origin_doubtful()),
    ("origin_failing", |name| {
        origin_refuses_writes(name, IoErrorKind::Io);
        device_cannot_be_looked_at(name);
    }),
    ("origin_full", |name| {
        for kind in [IoErrorKind::NoSpace, IoErrorKind::Quota] {
            origin_refuses_writes(name, kind);
        }
    }),
    ("origin_gone", |_| origin_gone()),
    ("origin_hangs", |_| origin_hangs()),
    ("origin_unmarked", |_| origin_unmarked()),
    ("superblock_repaired", |_| superblock_repaired()),
    ("superblock_unnoted", |_| superblock_unnoted()),
    ("switching_mode", |_| switching_mode()),
    ("undurable_data", without_a_fence),
    ("wear_budget_spent", |_| wear_runs_out()),
    ("wear_saving", |_| wear_runs_out()),
];

/// Conditions of an unopened flash, or of the process around the cache: the program's tests raise
/// them.
const ELSEWHERE: [&str; 11] = [
    "detached",
    "flash_renamed",
    "flash_unlinked",
    "origin_changed",
    "origin_refused",
    "origin_renamed",
    "origin_truncated",
    "origin_unlinked",
    "read_only_features",
    "state_unknown",
    "too_many_files",
];

#[test]
fn each_condition_is_told_when_it_is_raised_and_when_it_is_over() {
    for (name, scene) in SCENES {
        println!("{name}");
        scene(name);
    }
    let mut known: Vec<&str> = SCENES.iter().map(|&(name, _)| name).chain(ELSEWHERE).collect();
    known.sort_unstable();
    let names: Vec<&str> = ADVICE.iter().map(|&(name, _)| name).collect();
    assert_eq!(known, names, "each name has a scenario, and the table is in order");
}

/// A report also comes of an error that is over before the next look.
///
/// An error that comes and goes is not reported each time.
#[test]
fn a_blip_is_told_and_a_flood_is_not() {
    let scene = Scene::back();
    scene.world.origin.sim.fail_next(IoOp::Read, IoErrorKind::Io);
    scene.world.try_read(32 << 20, CHUNK).expect_err("the origin's");
    scene.world.read(32 << 20, CHUNK);
    scene.cleared("origin_failing");
    for round in 0..600 {
        scene.world.origin.sim.fail_next(IoOp::Read, IoErrorKind::Io);
        let at = (16 << 20) + round * CHUNK as u64;
        let _ = scene.world.try_read(at, CHUNK);
        let _ = scene.world.try_read(at, CHUNK);
        scene.wait(Duration::from_secs(3));
    }
    let told = scene.heard.all().iter().filter(|told| told.ends_with("origin_failing")).count();
    assert!((3..20).contains(&told), "{told} in half an hour");
}
