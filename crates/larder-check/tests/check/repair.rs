//! `verify` and `repair` over random damage. A volume lives, ends in order, by a kill or a power
//! loss, and its flash is damaged in random places. Bits flip, and sectors become zero, noise, the
//! bytes of another place, or old bytes. Then it is repaired, opened, and read whole.
//!
//! The rules: the repair succeeds or refuses with a sentence. After it, `verify` finds nothing, the
//! cache opens, and each sector reads as its newest value (or one that the crash allows). A sector
//! of a range that the report names may read as any value that it ever had, and as no other. A dry
//! run writes nothing and says the same; a crash in the middle of a repair leaves a cache that can
//! be repaired.
//!
//! Only damage to the last frames of a log without an orderly end looks like a crash: there, old
//! values are allowed everywhere.

use crate::design;
use larder_check::verify::{
    repair::{RepairOptions, RepairReport, repair},
    verify,
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    IoBuf, Runtime, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{SimDevice, SimOptions, SimRuntime},
};
use larder_engine::{Cache, CreateOptions, Tuning, create, walk};
use larder_format::{Compression, Superblock, WriteMode, layout::SUPERBLOCK_OFFSETS};
use std::{collections::BTreeSet, sync::Arc};

/// Seeds that each test takes, unless `LARDER_REPAIR_CASES` says otherwise.
const CASES: u64 = 80;
const OPS_MAX: u64 = 160;

fn cases() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("LARDER_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("LARDER_REPAIR_CASES").unwrap_or(CASES)).collect(),
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

fn runtime(rng: &mut Rng) -> Arc<SimRuntime> {
    SimRuntime::with_options(rng.next_u64(), SimOptions { steps_max: 5_000_000, ..SimOptions::default() })
}

/// Returns the bytes of a sector with a stamp; 0 is zeroes. Odd stamps compress.
fn sector_bytes(stamp: u32) -> [u8; SECTOR_BYTES] {
    let mut out = [0; SECTOR_BYTES];
    if stamp > 0 {
        for (i, piece) in out.chunks_mut(8).enumerate() {
            let word = if stamp % 2 == 1 { u64::from(stamp) } else { u64::from(stamp) << 32 | i as u64 };
            piece.copy_from_slice(&mix64(word).to_le_bytes());
        }
    }
    out
}

/// The values that each sector may read as.
struct Model {
    current: Vec<u32>,
    /// The values that a crash may bring back.
    older: Vec<Vec<u32>>,
    /// All values that it ever had.
    history: Vec<BTreeSet<u32>>,
}

impl Model {
    fn put(&mut self, at: usize, stamps: &[u32]) {
        for (i, &stamp) in stamps.iter().enumerate() {
            self.older[at + i].push(self.current[at + i]);
            self.current[at + i] = stamp;
            self.history[at + i].insert(stamp);
        }
    }

    fn durable(&mut self) {
        self.older.iter_mut().for_each(Vec::clear);
    }
}

struct World {
    flash: Arc<SimDevice>,
    origin: Arc<SimDevice>,
    runtime: Arc<SimRuntime>,
    tuning: Tuning,
    model: Model,
    rng: Rng,
    closed: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let runtime = runtime(&mut rng);
        let slot_bytes: u32 = 512 << 10 << rng.below(2);
        let flash_bytes = u64::from(slot_bytes) * (9 + rng.below(5));
        let origin_bytes = (2 << 20) + rng.below(4 << 11) * SECTOR_BYTES as u64;
        let modes = [WriteMode::Back, WriteMode::Back, WriteMode::Back, WriteMode::Through, WriteMode::Around];
        let options = design::fitted(CreateOptions {
            design: design::drawn(seed),
            chunk_bytes: 4096 << rng.below(4),
            slot_bytes,
            mode: modes[rng.index(5)],
            compression: [Compression::Lz4, Compression::Zstd, Compression::Off][rng.index(3)],
            dedup: rng.chance(4, 5),
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            ..CreateOptions::default()
        });
        let flash = SimDevice::new(&runtime, "flash", flash_bytes, 512);
        let origin = SimDevice::new(&runtime, "origin", origin_bytes, 512);
        runtime.block_on(create(&*flash, origin_bytes, &options)).expect("created");
        let sectors = (origin_bytes / SECTOR_BYTES as u64) as usize;
        let tuning = Tuning {
            dirty_low_percent: [5, 60][rng.index(2)],
            dirty_high_percent: 65,
            dirty_max_percent: 70,
            destage_rate_bytes_per_s: 0,
            commit_interval_ms: 1 + rng.below(50),
            ..Tuning::default()
        };
        let model = Model {
            current: vec![0; sectors],
            older: vec![Vec::new(); sectors],
            history: vec![BTreeSet::from([0]); sectors],
        };
        World { flash, origin, runtime, tuning, model, rng, closed: true }
    }

    fn next_runtime(&mut self) {
        self.runtime = runtime(&mut self.rng);
        self.flash.attach(&self.runtime);
        self.origin.attach(&self.runtime);
    }

    async fn open(&self) -> Result<Cache, larder_engine::EngineError> {
        let runtime = self.runtime.clone() as Arc<dyn Runtime>;
        Cache::open(self.flash.clone(), self.origin.clone(), runtime, self.tuning.clone()).await
    }

    /// Runs some operations, and an end.
    fn live(&mut self) {
        let end = self.rng.below(4);
        let mut rng = self.rng.fork();
        let runtime = self.runtime.clone();
        let model = std::cell::RefCell::new(std::mem::replace(
            &mut self.model,
            Model { current: Vec::new(), older: Vec::new(), history: Vec::new() },
        ));
        runtime.block_on(async {
            let cache = self.open().await.unwrap_or_else(|error| panic!("open: {error}"));
            for _ in 0..20 + rng.below(OPS_MAX) {
                operate(&cache, &model, &mut rng).await;
            }
            if rng.chance(1, 2) {
                cache.flush().await.unwrap_or_else(|error| panic!("flush: {error}"));
                model.borrow_mut().durable();
            }
            if end < 2 {
                cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
                model.borrow_mut().durable();
            }
        });
        self.model = model.into_inner();
        self.closed = end < 2;
        if end == 2 {
            runtime.kill()
        } else {
            runtime.crash()
        }
        self.next_runtime();
    }

    /// Reads everything through the cache, and checks each sector. The values of these reads are
    /// final.
    fn check(&mut self, untold: bool, named: impl Fn(u64) -> bool) {
        let runtime = self.runtime.clone();
        let sectors = self.model.current.len();
        let found: Vec<Vec<u8>> = runtime.block_on(async {
            let cache = self.open().await.unwrap_or_else(|error| panic!("open after the repair: {error}"));
            let mut found = Vec::new();
            for at in (0..sectors).step_by(512) {
                let count = 512.min(sectors - at);
                let buf = IoBuf::new(count * SECTOR_BYTES);
                let bytes = cache.read((at * SECTOR_BYTES) as u64, buf).await;
                let bytes = bytes.unwrap_or_else(|error| panic!("read at sector {at}: {error}"));
                found.extend(bytes.chunks(SECTOR_BYTES).map(<[u8]>::to_vec));
            }
            assert!(cache.destage_all().await, "destage");
            cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
            found
        });
        for (at, bytes) in found.iter().enumerate() {
            let model = &mut self.model;
            let is = |stamp: &u32| sector_bytes(*stamp) == bytes[..];
            let older = named((at * SECTOR_BYTES) as u64);
            let by_crash = model.older[at].iter().copied().chain([model.current[at]]).find(is);
            let by_loss = model.history[at].iter().copied().filter(|_| older).find(is);
            let Some(stamp) = by_crash.or(by_loss) else {
                let was = model.history[at].iter().copied().find(is);
                panic!("sector {at} reads as {was:?}, and not as {}; named: {older}", model.current[at]);
            };
            model.current[at] = stamp;
            let same = self.origin.peek((at * SECTOR_BYTES) as u64, SECTOR_BYTES) == *bytes;
            assert!(same || untold, "sector {at} reads as {stamp}, and the origin has something else after a destage");
        }
        self.model.durable();
        runtime.kill();
        self.next_runtime();
    }

    fn repair(&self, options: RepairOptions) -> Result<RepairReport, larder_engine::EngineError> {
        let flash = self.flash.clone();
        self.runtime.block_on(async move { repair(&*flash, &options, &mut |_, _| {}).await })
    }

    fn superblock(&self) -> Superblock {
        let flash = self.flash.clone();
        self.runtime.block_on(async move { larder_engine::superblock::read(&*flash).await }).expect("a superblock").0
    }

    /// Returns the frames behind the checkpoint: offset on the flash, and bytes.
    fn frames(&self, superblock: &Superblock) -> Vec<(u64, usize)> {
        let mut frames = Vec::new();
        let start = match &superblock.checkpoint {
            _ if superblock.clean_shutdown => return frames,
            _ => (superblock.log_start, superblock.entry_seq_next),
        };
        let flash = self.flash.clone();
        let log_offset = superblock.layout.log_offset;
        let mut visit = |at: u64, header: &larder_format::FrameHeader, _: &[larder_format::LogEntry]| {
            frames.push((log_offset + at, header.frame_bytes as usize));
        };
        self.runtime.block_on(async { walk::log(&*flash, superblock, start, &mut visit).await }).expect("a log");
        frames
    }

    fn image(&self) -> Vec<u8> {
        use larder_device::BlockDevice;
        self.flash.peek(0, self.flash.info().size_bytes as usize)
    }
}

async fn operate(cache: &Cache, model: &std::cell::RefCell<Model>, rng: &mut Rng) {
    let sectors = model.borrow().current.len();
    let most = [1, 8, 32, 128][rng.index(4)];
    let count = (1 + rng.index(most)).min(sectors);
    let mut at = rng.index(sectors - count + 1);
    if rng.chance(1, 2) {
        at = at / 16 * 16;
    }
    let offset = (at * SECTOR_BYTES) as u64;
    match rng.below(100) {
        0..55 => {
            // Few contents, so that chunks repeat; or new ones.
            let content = rng.below(6) as u32;
            let repeats = rng.chance(1, 3);
            let stamps: Vec<u32> = (0..count)
                .map(|i| match repeats {
                    true => 1000 + content * 512 + ((at + i) % 64) as u32,
                    false => rng.next_u64() as u32 | 1 << 20,
                })
                .collect();
            let bytes: Vec<u8> = stamps.iter().flat_map(|&stamp| sector_bytes(stamp)).collect();
            model.borrow_mut().put(at, &stamps);
            let buf = IoBuf::copy_of(&bytes).freeze();
            cache.write(offset, buf, WriteFlags::default()).await.unwrap_or_else(|error| panic!("write: {error}"));
        }
        55..70 => {
            let buf = IoBuf::new(count * SECTOR_BYTES);
            cache.read(offset, buf).await.unwrap_or_else(|error| panic!("read: {error}"));
        }
        70..78 => {
            model.borrow_mut().put(at, &vec![0; count]);
            let len = (count * SECTOR_BYTES) as u64;
            cache.zero(offset, len, ZeroFlags::default()).await.unwrap_or_else(|error| panic!("zero: {error}"));
        }
        78..92 => {
            cache.flush().await.unwrap_or_else(|error| panic!("flush: {error}"));
            model.borrow_mut().durable();
        }
        92..95 => assert!(cache.destage_all().await, "destage"),
        95..98 => cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}")),
        _ => {
            let mode = [WriteMode::Back, WriteMode::Through, WriteMode::Around][rng.index(3)];
            cache.set_mode(mode).await.unwrap_or_else(|error| panic!("set mode: {error}"));
        }
    }
}

/// Places of one kind of structure, from which damage chooses.
fn places(world: &World, superblock: &Superblock, rng: &mut Rng) -> (u64, u64) {
    let layout = &superblock.layout;
    let frames = world.frames(superblock);
    match rng.below(8) {
        0 => (SUPERBLOCK_OFFSETS[rng.index(2)], 4096),
        1 | 2 => match &superblock.checkpoint {
            Some(pointer) => (layout.checkpoint_offset[usize::from(pointer.area)], pointer.bytes.max(512)),
            None => (layout.log_offset, 8192),
        },
        3 | 4 if !frames.is_empty() => {
            let (at, bytes) = frames[rng.index(frames.len())];
            (at, bytes as u64)
        }
        5 => (layout.slot_offset(rng.below(u64::from(layout.slot_count)) as u32).expect("a slot"), 4096),
        _ => {
            let slot = layout.slot_offset(rng.below(u64::from(layout.slot_count)) as u32).expect("a slot");
            (slot, u64::from(layout.slot_bytes) / [1, 2, 4][rng.index(3)])
        }
    }
}

fn damage(world: &World, old: Option<&[u8]>, rng: &mut Rng) {
    let superblock = world.superblock();
    for _ in 0..1 + rng.below(3) {
        let (at, bytes) = places(world, &superblock, rng);
        let sectors = bytes / 512;
        let from = at + rng.below(sectors) * 512;
        let most = (at + bytes - from).min([512, 4096, 65536, 1 << 20][rng.index(4)]);
        let len = (512 + rng.below(most)) / 512 * 512;
        let len = len.min(at + bytes.next_multiple_of(512) - from);
        match (rng.below(7), old) {
            // Bytes that were never written, though the device acknowledged them.
            (6, Some(old)) => world.flash.poke(from, &old[from as usize..(from + len) as usize]),
            (0..3, _) => world.flash.corrupt(from, len, rng),
            (3, _) => world.flash.poke(from, &vec![0; len as usize]),
            (4, _) => {
                let mut noise = vec![0; len as usize];
                rng.fill(&mut noise);
                world.flash.poke(from, &noise);
            }
            _ => {
                // A write that went elsewhere.
                let (other, room) = places(world, &superblock, rng);
                let len = len.min(room / 512 * 512);
                let moved = world.flash.peek(other, len as usize);
                world.flash.poke(from, &moved);
            }
        }
    }
}

/// Returns true if the end of a log without an orderly end is damaged.
fn tail_is_damaged(world: &World, superblock: &Superblock, before: &[u8], frames: &[(u64, usize)]) -> bool {
    let Some(&(at, bytes)) = frames.last() else { return false };
    let range = at as usize..at as usize + bytes;
    !superblock.clean_shutdown && before[range] != world.flash.peek(at, bytes)[..]
}

struct Tally {
    refused: u64,
    needed: u64,
    lossy: u64,
}

fn run(seed: u64, crash_in_repair: bool) -> Option<RepairReport> {
    let _print = SeedOnPanic(seed);
    let mut world = World::new(seed);
    let mut old = None;
    if world.rng.chance(1, 2) {
        world.live();
        // The state after a crash is final from here on.
        world.check(false, |_| false);
        old = Some(world.image());
    }
    world.live();
    let mut rng = world.rng.fork();
    let superblock = world.superblock();
    let (frames, before) = (world.frames(&superblock), world.image());
    damage(&world, old.as_deref(), &mut rng);
    let tail = tail_is_damaged(&world, &superblock, &before, &frames);

    let drop_suspect = rng.chance(1, 3);
    if std::env::var_os("LARDER_SEED").is_some() {
        eprintln!("{superblock:?}\nclosed {} tail {tail} frames {frames:?}", world.closed);
        for (at, (old, new)) in before.chunks(512).zip(world.image().chunks(512)).enumerate() {
            if old != new {
                eprintln!("sector at {} changed", at * 512);
            }
        }
    }
    let damaged = world.image();
    let planned = world.repair(RepairOptions { dry_run: true, drop_suspect, unread_is_lost: true });
    assert!(world.image() == damaged, "a dry run writes nothing");
    let planned = match planned {
        Ok(planned) => planned,
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.contains("superblock") && !sentence.contains('\n'), "{sentence}");
            return None;
        }
    };
    if crash_in_repair && planned.needed {
        let changes = 1 + rng.below(24);
        world.runtime.stop_at_change(Some(changes));
        let flash = world.flash.clone();
        let options = RepairOptions { dry_run: false, drop_suspect, unread_is_lost: true };
        world.runtime.block_on_or_stop(async move { repair(&*flash, &options, &mut |_, _| {}).await.map(|_| ()) });
        if rng.chance(1, 4) {
            world.runtime.kill()
        } else {
            world.runtime.crash()
        }
        world.next_runtime();
    }
    let done = world.repair(RepairOptions { dry_run: false, drop_suspect, unread_is_lost: true });
    let done = done.unwrap_or_else(|error| panic!("the dry run said that it can be repaired: {error}"));
    if std::env::var_os("LARDER_SEED").is_some() {
        eprintln!("{done:#?}");
    }
    assert!(done.whole, "not whole: {:?}", done.after.unwrap_or(done.before).problems);
    if !crash_in_repair {
        assert_eq!((done.needed, done.loses_data()), (planned.needed, planned.loses_data()));
        assert_eq!((&done.lost, &done.suspect, &done.unknown), (&planned.lost, &planned.suspect, &planned.unknown));
        if !done.needed {
            assert!(world.image() == damaged, "nothing was to be done, and something was written");
        }
    }
    let flash = world.flash.clone();
    let again = world.runtime.block_on(async move { verify(&*flash, &mut |_, _| {}).await }).expect("a cache");
    assert!(again.clean, "{:?}", again.problems);
    // Damage that looks like a crash's torn write.
    let untold = tail && planned.log_gaps.is_empty();
    world.check(untold, |at| {
        let named = |report: &RepairReport| {
            report.lost.contains(at) || report.suspect.contains(at) || report.unknown.contains(at)
        };
        untold || named(&planned) || named(&done)
    });
    // It goes on as a cache does.
    world.live();
    Some(planned)
}

fn run_all(crash_in_repair: bool) {
    let mut tally = Tally { refused: 0, needed: 0, lossy: 0 };
    let seeds = cases();
    for &seed in &seeds {
        match run(seed, crash_in_repair) {
            None => tally.refused += 1,
            Some(report) => {
                tally.needed += u64::from(report.needed);
                tally.lossy += u64::from(report.loses_data());
            }
        }
    }
    println!(
        "{} seeds: {} needed a repair, {} lost data or may have, {} could not be repaired",
        seeds.len(),
        tally.needed,
        tally.lossy,
        tally.refused
    );
    if seeds.len() >= 50 {
        // A test whose damage hits nothing proves nothing; one whose reports always say "anywhere",
        // little.
        assert!(tally.needed * 3 > seeds.len() as u64, "only {} needed a repair", tally.needed);
        assert!(tally.lossy > 0 && tally.lossy < tally.needed, "{} of {} are lossy", tally.lossy, tally.needed);
    }
}

#[test]
fn repair_keeps_all_that_it_does_not_name() {
    run_all(false);
}

#[test]
fn a_crash_in_a_repair_can_be_repaired() {
    run_all(true);
}
