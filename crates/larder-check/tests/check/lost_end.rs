//! The end of a crashed cache's log is lost: zeroed from some place on or as a whole, or set back.
//!
//! These rules hold over each store. If a repair plan reports no loss and the end of the log is
//! confirmed, no chunk reads as older. If the superblock or a slot names a lost frame as durable,
//! an opening refuses, and a check reports the loss. A repair then lists its possible cost, and
//! unlisted chunks read as before. Without such a name, the report calls the end of the log
//! unconfirmed.

use crate::design;
use larder_check::verify::{
    VerifyReport,
    repair::{RepairOptions, repair},
    verify,
};
use larder_device::{
    BlockDevice, IoBuf, WriteFlags,
    rng::{Rng, mix64},
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, CreateOptions, EngineError, Tuning, create, walk};
use larder_format::{
    Superblock, WriteMode,
    layout::SUPERBLOCK_OFFSETS,
    segment::{decode_header, encode_header},
};
use std::{collections::BTreeSet, sync::Arc};

/// The number of damaged logs; `LARDER_LOST_END_CASES` overrides it.
const CASES: u64 = 24;
const MIB: u64 = 1 << 20;

/// The damage to the log.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    ZeroedFromAPlace,
    ZeroedWhole,
    RolledBack,
}

/// A cache, and its acknowledged durable content.
struct World {
    runtime: Arc<SimRuntime>,
    flash: Arc<SimDevice>,
    origin: Arc<SimDevice>,
    chunk_bytes: usize,
    /// By chunk; 0 means zeroes.
    durable: Vec<u64>,
    history: Vec<BTreeSet<u64>>,
    next_content: u64,
}

fn content(number: u64, len: usize) -> Vec<u8> {
    match number {
        0 => vec![0; len],
        _ => (0..len as u64 / 8).flat_map(|i| mix64(number << 24 | i).to_le_bytes()).collect(),
    }
}

fn lazy() -> Tuning {
    Tuning { dirty_low_percent: 80, dirty_high_percent: 85, dirty_max_percent: 90, ..Tuning::default() }
}

impl World {
    fn new(rng: &mut Rng, design: larder_format::DesignId, mode: WriteMode) -> World {
        let runtime = SimRuntime::new(rng.next_u64());
        let chunk_bytes = 4096 << rng.below(3);
        let options = design::fitted(CreateOptions {
            design,
            chunk_bytes,
            slot_bytes: 512 << 10,
            mode,
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        });
        let flash = SimDevice::new(&runtime, "flash", 8 * MIB, 512);
        let origin = SimDevice::new(&runtime, "origin", 4 * MIB, 512);
        runtime.block_on(create(&*flash, 4 * MIB, &options)).expect("created");
        let chunks = 4 * MIB as usize / chunk_bytes as usize;
        World {
            runtime,
            flash,
            origin,
            chunk_bytes: chunk_bytes as usize,
            durable: vec![0; chunks],
            history: vec![BTreeSet::from([0]); chunks],
            next_content: 1,
        }
    }

    fn open(&self) -> Result<Cache, EngineError> {
        self.runtime.block_on(Cache::open(self.flash.clone(), self.origin.clone(), self.runtime.clone(), lazy()))
    }

    /// Writes new contents to chunks, and makes them durable.
    fn round(&mut self, cache: &Cache, rng: &mut Rng) {
        for _ in 0..1 + rng.below(3) {
            // Few chunks, so that each is written again and again.
            let chunk = rng.index(self.durable.len().min(48));
            let number = self.next_content;
            self.next_content += 1;
            let data = IoBuf::copy_of(&content(number, self.chunk_bytes)).freeze();
            let offset = (chunk * self.chunk_bytes) as u64;
            self.runtime.block_on(cache.write(offset, data, WriteFlags::default())).expect("written");
            self.durable[chunk] = number;
            self.history[chunk].insert(number);
        }
        self.runtime.block_on(cache.flush()).expect("flushed");
    }

    /// Returns the chunks that read as older than acknowledged, each as one of its earlier
    /// contents.
    fn stale(&self, cache: &Cache) -> Vec<usize> {
        let mut stale = Vec::new();
        for (chunk, &number) in self.durable.iter().enumerate() {
            let offset = (chunk * self.chunk_bytes) as u64;
            let found = self.runtime.block_on(cache.read(offset, IoBuf::new(self.chunk_bytes))).expect("read");
            if found[..] != content(number, self.chunk_bytes) {
                let mut ever = self.history[chunk].iter();
                assert!(ever.any(|&was| found[..] == content(was, self.chunk_bytes)), "chunk {chunk} is made up");
                stale.push(chunk);
            }
        }
        stale
    }

    fn abandon(&self, cache: Cache) {
        self.runtime.block_on(cache.abandon());
    }

    fn superblock(&self) -> Superblock {
        self.runtime.block_on(larder_engine::superblock::read(&*self.flash)).expect("a superblock").0
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        self.runtime.block_on(self.flash.read(offset, IoBuf::new(len as usize))).expect("read").to_vec()
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let data = IoBuf::copy_of(data).freeze();
        self.runtime.block_on(self.flash.write(offset, data, WriteFlags { fua: true })).expect("written");
    }

    fn put(&self, superblock: &Superblock) {
        SUPERBLOCK_OFFSETS.into_iter().for_each(|offset| self.write(offset, &superblock.encode()));
    }

    /// Zeroes the log from this place on.
    fn zero_log(&self, from: u64) {
        let layout = self.superblock().layout;
        self.write(layout.log_offset + from, &vec![0; (layout.log_bytes - from) as usize]);
    }

    fn log_image(&self) -> Vec<u8> {
        let layout = self.superblock().layout;
        self.read(layout.log_offset, layout.log_bytes)
    }

    /// Returns the number of the last frame that a walk finds, and the place of each.
    fn frames(&self) -> (u64, Vec<u64>) {
        let superblock = self.superblock();
        let mut places = Vec::new();
        let start = (superblock.log_start, superblock.entry_seq_next);
        let end = self.runtime.block_on(walk::log(&*self.flash, &superblock, start, &mut |at, _, _| places.push(at)));
        (end.expect("read").next_frame_seq - 1, places)
    }

    fn verified(&self) -> VerifyReport {
        self.runtime.block_on(verify(&*self.flash, &mut |_, _| {})).expect("a cache")
    }
}

struct SeedOnPanic(u64);
impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with LARDER_SEED={}", self.0);
        }
    }
}

fn cases() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("LARDER_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("LARDER_LOST_END_CASES").unwrap_or(CASES)).collect(),
    }
}

/// Lets a cache live and crash, damages its log, and returns true if the loss is reported.
///
/// Returns `None` when no durable frame was lost.
fn damaged(seed: u64) -> Option<bool> {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let designs = design::all();
    let design = designs[seed as usize % designs.len()];
    let damage = [Damage::ZeroedFromAPlace, Damage::ZeroedFromAPlace, Damage::ZeroedWhole, Damage::RolledBack]
        [seed as usize / designs.len() % 4];
    let modes = [WriteMode::Back, WriteMode::Back, WriteMode::Back, WriteMode::Through, WriteMode::Around];
    let mode = modes[rng.index(5)];
    let mut world = World::new(&mut rng, design, mode);
    let cache = world.open().expect("opened");
    let rounds = 8 + rng.below(60);
    let (rolled_to, checkpoint) = (rng.below(rounds), rng.below(2 * rounds));
    let mut older = world.log_image();
    for round in 0..rounds {
        world.round(&cache, &mut rng);
        if round == checkpoint {
            world.runtime.block_on(cache.checkpoint()).expect("a checkpoint");
        }
        if round == rolled_to {
            older = world.log_image();
        }
    }
    world.abandon(cache);

    let (last, places) = world.frames();
    let layout = world.superblock().layout;
    match damage {
        Damage::ZeroedFromAPlace => {
            // Mostly within the part that has frames.
            let end = places.last().copied().unwrap_or_default() + 1024;
            let from = rng.below(end.min(layout.log_bytes)) / 512 * 512;
            world.zero_log(from);
        }
        Damage::ZeroedWhole => world.zero_log(0),
        Damage::RolledBack => world.write(layout.log_offset, &older),
    }
    let (left, _) = world.frames();
    let what = format!(
        "{} in {mode:?}, {damage:?}: frames to {last}, {left} are left",
        larder_engine::designs::find(design).map_or("?", |design| design.name)
    );

    let report = world.verified();
    assert!(!report.log_end_confirmed, "{what}: nothing confirms the end of a log after a crash");
    let planned = world
        .runtime
        .block_on(repair(&*world.flash, &RepairOptions { dry_run: true, ..RepairOptions::default() }, &mut |_, _| {}))
        .expect("a plan");
    let says_nothing_lost = !planned.loses_data() && planned.before.log_end_confirmed;
    let is_named = report.log_frame_named.is_some_and(|named| named > left);
    let told = !report.clean;
    assert!(told || damage != Damage::ZeroedWhole, "{what}: a log without any frame is told");
    match world.open() {
        Err(EngineError::LogDamaged { .. }) => assert!(told && left < last, "{what}: {report:?}"),
        Err(error) => panic!("{what}: {error}"),
        Ok(cache) => {
            assert!(!is_named, "{what}: an opening passes over what names frame {:?}", report.log_frame_named);
            let stale = world.stale(&cache);
            assert!(
                stale.is_empty() || !says_nothing_lost,
                "{what}: {stale:?} are old, and nothing is said to be lost"
            );
            world.abandon(cache);
            return (left < last).then_some(false);
        }
    }
    // In write-back each round closed a segment before it wrote its frames: only the last round's
    // frames have no witness.
    assert!(planned.loses_data() || mode != WriteMode::Back, "{what}: {planned:?}");
    let done =
        world.runtime.block_on(repair(&*world.flash, &RepairOptions::default(), &mut |_, _| {})).expect("repaired");
    assert!(done.whole, "{what}: {:?}", done.after);
    let cache = world.open().unwrap_or_else(|error| panic!("{what}: after a repair: {error}"));
    for chunk in world.stale(&cache) {
        let at = (chunk * world.chunk_bytes) as u64;
        let is_listed = [&done.lost, &done.suspect, &done.unknown].iter().any(|ranges| ranges.contains(at));
        assert!(is_listed, "{what}: chunk {chunk} is old, and not listed");
    }
    // The new log goes on behind all named frames.
    world.round(&cache, &mut rng);
    world.abandon(cache);
    let cache = world.open().unwrap_or_else(|error| panic!("{what}: after a repair and a crash: {error}"));
    world.abandon(cache);
    Some(true)
}

#[test]
fn no_lost_end_of_a_log_is_said_to_be_none() {
    let outcomes: Vec<_> = cases().into_iter().filter_map(damaged).collect();
    let told = outcomes.iter().filter(|&&told| told).count();
    println!("{} logs lost durable frames, {told} are told as loss", outcomes.len());
    // Over slots of one chunk the superblock alone names a frame, and the last frames have no
    // witness.
    let namers = design::all().into_iter().filter(|&design| !design::is_slotted(design)).count();
    assert!(outcomes.len() < 8 || namers == 0 || told * design::all().len() >= outcomes.len() * namers / 2);
}

/// When each flush has a segment of its own, all lost frames but the last have a witness.
///
/// That holds for any first lost frame.
#[test]
fn a_log_that_ends_before_a_frame_that_a_slot_names_is_refused() {
    for design in design::all().into_iter().filter(|&design| !design::is_slotted(design)) {
        let mut rng = Rng::new(5);
        let mut world = World::new(&mut rng, design, WriteMode::Back);
        let cache = world.open().expect("opened");
        for _ in 0..12 {
            world.round(&cache, &mut rng);
        }
        world.abandon(cache);
        let (layout, (last, places)) = (world.superblock().layout, world.frames());
        let whole = world.log_image();
        assert!(world.verified().clean, "{}", design::name(design));
        for (&from, lost) in places.iter().rev().zip(1..) {
            world.zero_log(from);
            let what = format!("{}: {lost} of {last} frames are lost", design::name(design));
            let report = world.verified();
            match world.open().map(drop) {
                Ok(()) => assert!(lost == 1 && report.clean, "{what}"),
                Err(EngineError::LogDamaged { lost: first, is_named, .. }) => {
                    assert!(is_named && !report.clean && first == last + 1 - lost, "{what}: {:?}", report.problems);
                }
                Err(error) => panic!("{what}: {error}"),
            }
            assert!(!report.log_end_confirmed, "{what}");
            world.write(layout.log_offset, &whole);
        }
    }
}

/// The moment of a power loss after which a log is zeroed.
#[derive(Clone, Copy, Debug)]
enum Crash {
    InTheFirstServing,
    AfterAnOpening,
    AfterACheckpoint,
    BehindACheckpoint,
    AfterACleanEnd,
    AfterARepair,
}

const CRASHES: [Crash; 6] = [
    Crash::InTheFirstServing,
    Crash::AfterAnOpening,
    Crash::AfterACheckpoint,
    Crash::BehindACheckpoint,
    Crash::AfterACleanEnd,
    Crash::AfterARepair,
];

/// Returns a crashed cache, whose log begins in the way that `crash` says.
fn crashed(design: larder_format::DesignId, crash: Crash, rng: &mut Rng) -> World {
    let mut world = World::new(rng, design, WriteMode::Back);
    let mut cache = world.open().expect("opened");
    (0..4).for_each(|_| world.round(&cache, rng));
    match crash {
        Crash::InTheFirstServing => {}
        Crash::AfterAnOpening => {
            world.abandon(cache);
            cache = world.open().expect("opened");
        }
        Crash::AfterACheckpoint | Crash::BehindACheckpoint => {
            world.runtime.block_on(cache.checkpoint()).expect("a checkpoint");
        }
        Crash::AfterACleanEnd => {
            world.runtime.block_on(cache.close()).expect("an orderly end");
            cache = world.open().expect("opened");
        }
        Crash::AfterARepair => {
            world.abandon(cache);
            world.zero_log(0);
            let options = RepairOptions::default();
            let done = world.runtime.block_on(repair(&*world.flash, &options, &mut |_, _| {})).expect("repaired");
            assert!(done.whole && done.loses_data(), "{done:?}");
            cache = world.open().expect("opened");
            for chunk in world.stale(&cache) {
                (world.durable[chunk], world.history[chunk]) = (0, BTreeSet::from([0]));
            }
            assert!(world.stale(&cache).is_empty(), "all is as the origin has it");
        }
    }
    if matches!(crash, Crash::BehindACheckpoint | Crash::AfterARepair) {
        (0..3).for_each(|_| world.round(&cache, rng));
    }
    world.abandon(cache);
    world
}

/// The superblock names a frame from each opening on, so a log without any frame is told.
#[test]
fn a_log_that_is_zeroed_whole_is_told_over_each_store() {
    for design in design::all() {
        for crash in CRASHES {
            let mut rng = Rng::new(8);
            let world = crashed(design, crash, &mut rng);
            let what = format!("{}, {crash:?}", design::name(design));
            assert!(world.verified().clean, "{what}: {:?}", world.verified().problems);
            world.zero_log(0);
            let report = world.verified();
            assert!(!report.clean, "{what}: {report:?}");
            let told =
                report.problems.iter().any(|it| it.kind == "log" && it.what.contains("the end of the metadata log"));
            assert!(told, "{what}: {:?}", report.problems);
            match world.open().map(drop) {
                Err(EngineError::LogDamaged { is_named: true, .. }) => {}
                other => panic!("{what}: {other:?}"),
            }
            let options = RepairOptions { dry_run: true, ..RepairOptions::default() };
            let plan = world.runtime.block_on(repair(&*world.flash, &options, &mut |_, _| {})).expect("a plan");
            assert!(plan.needed && plan.loses_data(), "{what}: {plan:?}");
            let options = RepairOptions::default();
            let done = world.runtime.block_on(repair(&*world.flash, &options, &mut |_, _| {})).expect("repaired");
            assert!(done.whole, "{what}: {:?}", done.after);
            let cache = world.open().unwrap_or_else(|error| panic!("{what}: after a repair: {error}"));
            for chunk in world.stale(&cache) {
                let at = (chunk * world.chunk_bytes) as u64;
                let is_listed = [&done.lost, &done.suspect, &done.unknown].iter().any(|ranges| ranges.contains(at));
                assert!(is_listed, "{what}: chunk {chunk} is old, and not listed");
            }
            world.abandon(cache);
        }
    }
}

/// Checks that a log is told if it ends before the named frame, and only then. The slots of one
/// chunk have no other witness.
#[test]
fn each_end_of_a_log_before_the_frame_that_the_superblock_names_is_told() {
    for design in design::all() {
        let mut rng = Rng::new(9);
        let mut world = World::new(&mut rng, design, WriteMode::Back);
        let cache = world.open().expect("opened");
        (0..6).for_each(|_| world.round(&cache, &mut rng));
        // An opening names the frames before it, and no checkpoint moves the start of the log.
        world.abandon(cache);
        let cache = world.open().expect("opened");
        (0..5).for_each(|_| world.round(&cache, &mut rng));
        world.abandon(cache);
        let (superblock, (last, places), whole) = (world.superblock(), world.frames(), world.log_image());
        let named = superblock.durable_frame_now();
        let first = superblock.log_start.frame_seq;
        assert!((first + 5..last - 3).contains(&named), "{named} of {first} to {last}");
        for (&from, frame) in places.iter().zip(first..) {
            world.zero_log(from);
            let what = format!("{}: frames {frame} to {last} are lost, {named} is named", design::name(design));
            let report = world.verified();
            match world.open().map(|cache| world.abandon(cache)) {
                Ok(()) => assert!(frame > named && report.clean, "{what}: {:?}", report.problems),
                Err(EngineError::LogDamaged { lost, is_named: true, .. }) => {
                    assert!(lost == frame && !report.clean, "{what}: {:?}", report.problems);
                    assert!(frame <= named || !design::is_slotted(design), "{what}: nothing names it");
                }
                Err(error) => panic!("{what}: {error}"),
            }
            // The opening that was not refused has written: all is as it was again.
            world.write(superblock.layout.log_offset, &whole);
            world.put(&superblock);
        }
    }
}

/// A program that does not know the field keeps it and counts on. It may have passed over a loss,
/// and have written other frames of the same numbers.
#[test]
fn a_frame_that_was_named_before_an_older_program_served_means_nothing() {
    for design in design::all().into_iter().filter(|&design| design::is_slotted(design)) {
        let mut rng = Rng::new(10);
        let mut world = World::new(&mut rng, design, WriteMode::Back);
        let cache = world.open().expect("opened");
        (0..4).for_each(|_| world.round(&cache, &mut rng));
        world.abandon(cache);
        let mut superblock = world.superblock();
        superblock.sequence += 1;
        world.put(&superblock);
        world.zero_log(0);
        assert!(world.verified().log_frame_named.is_none());
        let cache = world.open().expect("opened, as by the older program");
        (0..2).for_each(|_| world.round(&cache, &mut rng));
        world.abandon(cache);
        assert!(world.verified().clean);
        world.zero_log(0);
        assert!(!world.verified().clean, "from the opening on the superblock names a frame");
    }
}

/// The first opening writes a frame and the twins once more, each other one the twins alone.
#[test]
fn most_openings_write_the_twins_alone() {
    for design in design::all() {
        let mut rng = Rng::new(11);
        let mut world = World::new(&mut rng, design, WriteMode::Back);
        let writes = |world: &World| world.flash.counters().writes;
        let opening = |world: &World| {
            let before = writes(world);
            let cache = world.open().expect("opened");
            (cache, writes(world) - before)
        };
        let (cache, written) = opening(&world);
        assert_eq!(written, 5, "{}: the twins, a frame, the twins that name it", design::name(design));
        world.round(&cache, &mut rng);
        world.runtime.block_on(cache.close()).expect("an orderly end");
        for _ in 0..2 {
            let (cache, written) = opening(&world);
            assert_eq!(written, 2, "{} after an orderly end", design::name(design));
            world.runtime.block_on(cache.close()).expect("an orderly end");
        }
        let (cache, _) = opening(&world);
        world.abandon(cache);
        let (cache, written) = opening(&world);
        assert_eq!(written, 2, "{} after a crash", design::name(design));
        world.abandon(cache);
    }
}

/// A flash whose segments name no frames opens, and keeps its dirty data.
///
/// It names frames from then on.
#[test]
fn a_flash_of_the_old_kind_opens_and_names_frames_from_then_on() {
    for design in design::all().into_iter().filter(|&design| design::fills_weus(design)) {
        let mut rng = Rng::new(6);
        let mut world = World::new(&mut rng, design, WriteMode::Back);
        let cache = world.open().expect("opened");
        for _ in 0..12 {
            world.round(&cache, &mut rng);
        }
        world.abandon(cache);
        make_old(&world);
        let report = world.verified();
        assert!(report.clean && report.log_frame_named.is_none(), "{:?}", report.problems);
        let cache = world.open().expect("an old flash opens");
        assert!(world.stale(&cache).is_empty());
        assert!(world.superblock().log_positions, "it is one of the new kind before anything is written to a slot");
        for _ in 0..3 {
            world.round(&cache, &mut rng);
        }
        world.abandon(cache);
        assert!(world.verified().log_frame_named.is_some());
        let cache = world.open().expect("opened");
        assert!(world.stale(&cache).is_empty());
        world.abandon(cache);
    }
}

/// Gives a flash the form that an older program writes: no feature bit, and headers of version 1.
fn make_old(world: &World) {
    let mut superblock = world.superblock();
    superblock.log_positions = false;
    superblock.durable_frame = None;
    world.put(&superblock);
    let layout = superblock.layout;
    for slot in 0..layout.slot_count {
        let start = layout.slot_offset(slot).expect("a slot");
        let mut weu = world.read(start, layout.slot_bytes.into());
        for sector in weu.chunks_mut(512) {
            if let Ok(mut header) = decode_header(sector) {
                header.durable_frame_seq = None;
                sector[..64].copy_from_slice(&encode_header(&header));
            }
        }
        world.write(start, &weu);
    }
}
