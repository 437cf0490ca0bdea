//! Whole caches under many schedules: a few clients with a few requests each, over a full flash.
//! Pins, evictions, destages, commits, fills and mode switches meet.
//!
//! The history of each sector is judged as in the stress with real threads
//! (`tests/threads/register.rs`). The ordinary engine makes the images of the schedules once.
//!
//! It does not crash the cache.

use crate::{
    Cache, Tuning, WriteMode,
    common::SECTOR,
    config::TrimPolicy,
    explore::explore,
    history::{Clock, Record, What, fill, judge, values_of},
    register::ZERO,
    world::{Late, Threads, World, tuning},
};
use larder_device::{
    BlockDevice, IoBuf, WriteFlags, ZeroFlags, driver,
    ram::RamDevice,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_format::DesignId;
// The counters serve the check, and are no part of the exploration.
use real_std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use shuttle::{future::block_on, thread};
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

const CHUNK: u64 = 128 << 10;
const CHUNK_SECTORS: usize = CHUNK as usize / SECTOR;
const CHUNKS: u64 = 32;
/// Chunks cached on the images' flash: more than fit, so that the first of them were evicted.
const CACHED_CHUNKS: u64 = 24;
/// The superblock and metadata, and seven WEUs of 512 KiB.
const FLASH: u64 = 5 << 20;
const SCHEDULES: u64 = 150;

/// WEUs, or runs of slots, evicted in all schedules so far.
static EVICTED: AtomicU64 = AtomicU64::new(0);
/// Times that a record waited for a free slot, in all schedules so far.
static SLOT_WAITS: AtomicU64 = AtomicU64::new(0);
/// Bytes of ignored trims, in all schedules so far.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Reads of metadata slots, and hits of chunks, in all schedules with such slots so far.
static REGION_READS: AtomicU64 = AtomicU64::new(0);
static REGION_HITS: AtomicU64 = AtomicU64::new(0);

/// A step of a client; numbers are chunks.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    /// Reads some sectors of the chunk.
    ReadPart(u64),
    Write(u64),
    WritePart(u64),
    Zero(u64),
    Trim(u64),
    Flush,
    Destage,
    Checkpoint,
    Mode(WriteMode),
}
use Step::*;

/// Flash and origin at the start of a schedule.
struct Images {
    flash: Vec<u8>,
    origin: Vec<u8>,
}

/// Returns the images of a design in a mode.
///
/// Every chunk of the origin has its number as value; a cache read or wrote the last
/// [`CACHED_CHUNKS`].
fn images(design: DesignId, mode: WriteMode) -> &'static Images {
    static IMAGES: [[OnceLock<Images>; 3]; 2] = [const { [const { OnceLock::new() }; 3] }; 2];
    let index = match mode {
        WriteMode::Back => 0,
        WriteMode::Through => 1,
        WriteMode::Around => 2,
    };
    IMAGES[usize::from(has_region(design))][index].get_or_init(|| {
        let (flash, origin) = (flash_of(design), RamDevice::new("origin", CHUNKS * CHUNK, 512));
        let (flash, origin) = (Arc::new(flash), Arc::new(origin));
        let mut options = larder_engine::CreateOptions {
            slot_bytes: 512 << 10,
            chunk_bytes: CHUNK as u32,
            mode,
            compression: larder_engine::Compression::Off,
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "ram:".into(),
            ..larder_engine::CreateOptions::default()
        };
        larder_engine::designs::find(design).expect("it is one").fit(&mut options);
        driver::block_on(larder_engine::create(&*flash, CHUNKS * CHUNK, &options)).expect("a cache is made");
        let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "images".into() });
        let opening = larder_engine::Cache::open(
            flash.clone(),
            origin.clone(),
            runtime.clone(),
            larder_engine::Tuning { prefetch_bytes_max: 0, ..larder_engine::Tuning::default() },
        );
        let cache = driver::block_on(opening).expect("it opens");
        let mut data = vec![0; CHUNK as usize];
        for chunk in 0..CHUNKS {
            fill(first_value(chunk), chunk as usize * CHUNK_SECTORS, &mut data);
            if chunk < CHUNKS - CACHED_CHUNKS {
                driver::block_on(origin.write(chunk * CHUNK, IoBuf::copy_of(&data).freeze(), WriteFlags::default()))
                    .expect("written");
                continue;
            }
            cache.write_at(chunk * CHUNK, &data).expect("written");
            cache.read_at(chunk * CHUNK, &mut data).expect("read");
            driver::block_on(cache.wait_for_insertions());
        }
        assert!(driver::block_on(cache.destage_all()), "the origin takes all");
        cache.close_blocking().expect("a clean end");
        drop(cache);
        runtime.shutdown();
        Images { flash: flash.snapshot(), origin: origin.snapshot() }
    })
}

fn has_region(design: DesignId) -> bool {
    design == DesignId::Austere
}

/// Returns a flash; eight metadata slots share one of its blocks, if it has any.
fn flash_of(design: DesignId) -> RamDevice {
    RamDevice::new("flash", FLASH, if has_region(design) { 4096 } else { 512 })
}

/// Returns a value that no clock of a schedule draws.
fn first_value(chunk: u64) -> u32 {
    1_000_000 + chunk as u32 * 3
}

/// Opens a cache that keeps its trims and has room for each trim of a whole chunk.
fn open(flash: &Arc<RamDevice>, origin: &Arc<RamDevice>, world: &Arc<World>) -> Cache {
    let (flash, origin) = (Late::new(flash, world), Late::new(origin, world));
    let tuning = Tuning { trim: TrimPolicy::Keep, ..tuning() };
    block_on(Cache::open(flash, origin, Arc::new(Threads(world.clone())), tuning)).expect("it opens")
}

/// Runs one schedule with a client for each script.
///
/// With `closing` the cache is closed meanwhile, and it may refuse requests.
fn run(mode: WriteMode, scripts: &'static [&'static [Step]], closing: bool) {
    run_with(DesignId::Nitro, mode, scripts, closing);
}

fn run_with(design: DesignId, mode: WriteMode, scripts: &'static [&'static [Step]], closing: bool) {
    let images = images(design, mode);
    let (flash, origin) = (flash_of(design), RamDevice::new("origin", CHUNKS * CHUNK, 512));
    flash.restore(&images.flash);
    origin.restore(&images.origin);
    let (flash, origin) = (Arc::new(flash), Arc::new(origin));
    let touched: BTreeSet<u64> = scripts.iter().flat_map(|script| script.iter()).filter_map(Step::chunk).collect();
    let clock = Arc::new(Clock::new());
    let mut records: Vec<Record> = touched.iter().map(|&chunk| began_with(&clock, chunk)).collect();
    let mut unknown = BTreeSet::new();

    let world = World::new();
    let cache = Arc::new(open(&flash, &origin, &world));
    let clients: Vec<_> = scripts
        .iter()
        .enumerate()
        .map(|(number, script)| {
            let (cache, clock) = (cache.clone(), clock.clone());
            thread::spawn(move || block_on(client(&cache, &clock, number as u32, script, closing)))
        })
        .collect();
    if closing {
        block_on(cache.close()).expect("a clean end");
    }
    for client in clients {
        let (done, refused) = client.join().expect("a client ends");
        records.extend(done);
        unknown.extend(refused);
    }
    if closing {
        drop(cache);
        world.stop();
        let world = World::new();
        let cache = open(&flash, &origin, &world);
        finish(cache, &clock, &touched, &mut records, &world);
    } else {
        let cache = Arc::try_unwrap(cache).unwrap_or_else(|_| panic!("the clients are gone"));
        finish(cache, &clock, &touched, &mut records, &world);
    }
    records.retain(|record| !unknown.contains(&((record.first_sector / CHUNK_SECTORS) as u64)));
    judge(CHUNKS as usize * CHUNK_SECTORS, &records);
}

/// Reads everything once more and closes.
fn finish(cache: Cache, clock: &Clock, touched: &BTreeSet<u64>, records: &mut Vec<Record>, world: &Arc<World>) {
    block_on(async {
        for &chunk in touched {
            records.extend(step(&cache, clock, 99, Read(chunk)).await.expect("a read"));
        }
        let counts = cache.status().counts;
        let damaged = (counts.failed_checks, counts.corrupt_records);
        assert_eq!(damaged, (0, 0), "a record failed its check, and nothing damaged it");
        EVICTED.fetch_add(counts.evicted_slots, Relaxed);
        IGNORED.fetch_add(counts.ignored_trim_bytes, Relaxed);
        SLOT_WAITS.fetch_add(counts.slot_waits, Relaxed);
        if counts.flash_region_reads > 0 {
            REGION_READS.fetch_add(counts.flash_region_reads, Relaxed);
            REGION_HITS.fetch_add(counts.read_hits, Relaxed);
        }
        cache.close().await.expect("a clean end");
    });
    drop(cache);
    world.stop();
}

fn began_with(clock: &Clock, chunk: u64) -> Record {
    Record {
        called: clock.now(),
        returned: clock.now(),
        client: 98,
        first_sector: chunk as usize * CHUNK_SECTORS,
        what: What::Wrote { value: first_value(chunk), sectors: CHUNK_SECTORS },
    }
}

impl Step {
    fn chunk(&self) -> Option<u64> {
        match *self {
            Read(chunk) | ReadPart(chunk) | Write(chunk) | WritePart(chunk) | Zero(chunk) | Trim(chunk) => Some(chunk),
            Flush | Destage | Checkpoint | Mode(_) => None,
        }
    }
}

async fn client(cache: &Cache, clock: &Clock, number: u32, script: &[Step], closing: bool) -> (Vec<Record>, Vec<u64>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    for &next in script {
        match step(cache, clock, number, next).await {
            Ok(record) => records.extend(record),
            Err(_) if closing => refused.extend(next.chunk()),
            Err(error) => panic!("client {number}, {next:?}: {error}"),
        }
    }
    (records, refused)
}

async fn step(cache: &Cache, clock: &Clock, client: u32, step: Step) -> Result<Option<Record>, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let (chunk, part) = match step {
        Read(chunk) | Write(chunk) | Zero(chunk) | Trim(chunk) => (chunk, 0..CHUNK_SECTORS),
        ReadPart(chunk) => (chunk, 4..6),
        WritePart(chunk) => (chunk, 3..8),
        Flush => return cache.flush().await.map(|()| None).map_err(|error| words(&error)),
        Checkpoint => return cache.checkpoint().await.map(|()| None).map_err(|error| words(&error)),
        Mode(mode) => {
            cache.set_mode(mode).await.map_err(|error| words(&error))?;
            // One client alone changes the mode.
            let dirty = if mode == WriteMode::Back { 0 } else { cache.status().dirty_bytes };
            assert_eq!(dirty, 0, "dirty data is left in a mode without any");
            return Ok(None);
        }
        Destage => {
            cache.destage_all().await;
            return Ok(None);
        }
    };
    let (first_sector, sectors) = (chunk as usize * CHUNK_SECTORS + part.start, part.len());
    let (offset, len) = ((first_sector * SECTOR) as u64, sectors * SECTOR);
    let called = clock.now();
    let what = match step {
        Read(_) | ReadPart(_) => {
            let data = cache.read(offset, IoBuf::new(len)).await.map_err(|error| words(&error))?;
            What::Found(values_of(first_sector, &data))
        }
        Zero(_) => {
            cache.zero(offset, len as u64, ZeroFlags::default()).await.map_err(|error| words(&error))?;
            What::Wrote { value: ZERO, sectors }
        }
        Trim(_) => {
            cache.discard(offset, len as u64).await.map_err(|error| words(&error))?;
            What::Wrote { value: ZERO, sectors }
        }
        _ => {
            let value = clock.new_value();
            let mut data = IoBuf::new(len);
            fill(value, first_sector, &mut data);
            cache.write(offset, data.freeze(), WriteFlags::default()).await.map_err(|error| words(&error))?;
            What::Wrote { value, sectors }
        }
    };
    Ok(Some(Record { called, returned: clock.now(), client, first_sector, what }))
}

/// Readers of cached chunks, while writers of other chunks need their slots.
pub fn readers_and_evictions() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Read(31), Read(30), Read(12), ReadPart(20), Read(13)],
            &[Write(0), Write(1), Write(2), Write(3), Write(4)],
            &[Read(14), Read(5), Read(12), Write(12), Read(12)],
        ];
        run(WriteMode::Back, SCRIPTS, false);
    });
    assert!(EVICTED.load(Relaxed) > 0, "no schedule has evicted anything");
}

/// More writers than the flash has room for: a writer waits, and wakes when a slot is free.
///
/// This is its only wake-up: no clock commits, and no writer follows the last one.
pub fn writers_that_wait_for_room() {
    let before = SLOT_WAITS.load(Relaxed);
    explore(2 * SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Write(0), Write(1), Write(2), Write(3), Write(4), Write(5), Write(6)],
            &[Write(8), Write(9), Write(10), Write(11), Write(12), Write(13), Write(14)],
            &[Write(16), Write(17), Write(18), Write(19), Write(20), Write(21), Write(22)],
        ];
        run(WriteMode::Back, SCRIPTS, false);
    });
    let waits = SLOT_WAITS.load(Relaxed) - before;
    assert!(waits >= SCHEDULES, "only {waits} writes have waited for a slot");
}

/// One writer alone, so that no other writer's wake-up hides a lost one.
pub fn a_writer_that_waits_alone_for_room() {
    let before = SLOT_WAITS.load(Relaxed);
    explore(SCHEDULES / 2, || {
        const SCRIPTS: &[&[Step]] =
            &[&[Write(0), Write(1), Write(2), Write(3), Write(4), Write(5), Write(6), Write(8), Write(9), Write(10)]];
        run(WriteMode::Back, SCRIPTS, false);
    });
    let waits = SLOT_WAITS.load(Relaxed) - before;
    assert!(waits >= SCHEDULES / 2, "only {waits} writes have waited for a slot");
}

/// Reads that last until all chunks of their start are evicted.
///
/// In write-through only clients read the flash, so that nothing else waits for a held read.
pub fn slow_readers_and_evictions() {
    explore(SCHEDULES / 2, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Read(31), Read(30), Read(29), Read(28)],
            &[Read(12), Read(31), Read(25), Read(24)],
            &[
                Write(0),
                Write(1),
                Write(2),
                Write(3),
                Write(4),
                Write(5),
                Write(6),
                Write(7),
                Write(8),
                Write(9),
                Write(10),
                Write(11),
                Write(13),
                Write(14),
                Write(15),
                Write(16),
                Write(17),
                Write(18),
                Write(19),
                Write(20),
                Write(21),
                Write(22),
                Write(23),
                Write(0),
                Write(1),
                Write(2),
            ],
        ];
        run(WriteMode::Through, SCRIPTS, false);
    });
}

/// Hits of clean chunks by their metadata slots, while their runs are evicted.
///
/// Both the record slots and the metadata slots are written anew. A write of a metadata slot reads
/// its block, and writes the neighbours back with it.
pub fn hits_by_metadata_slots_and_evictions() {
    let before = EVICTED.load(Relaxed);
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Read(31), Read(30), Read(29), ReadPart(28), Read(27), Read(31)],
            &[
                Write(0),
                Write(1),
                Write(2),
                Write(3),
                Write(4),
                Write(5),
                Write(6),
                Write(7),
                Write(26),
                Write(25),
                Write(24),
                Write(23),
            ],
            &[Read(26), Write(31), Read(31), Read(25), Read(30), Read(28)],
        ];
        run_with(DesignId::Austere, WriteMode::Through, SCRIPTS, false);
    });
    let (reads, hits) = (REGION_READS.load(Relaxed), REGION_HITS.load(Relaxed));
    assert!(EVICTED.load(Relaxed) > before, "no schedule has evicted anything");
    assert!(reads >= SCHEDULES && hits >= SCHEDULES, "only {reads} metadata slots were read, and {hits} chunks hit");
}

/// Writes, parts of writes and trims of the same chunks, with commits, destages and checkpoints.
pub fn overlapping_writes_in_write_back() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Write(9), WritePart(3), ReadPart(9), Read(3), Flush],
            &[WritePart(9), Read(9), Zero(3), WritePart(9), Read(9)],
            &[WritePart(3), Destage, ReadPart(3), Checkpoint, Read(9)],
        ];
        run(WriteMode::Back, SCRIPTS, false);
    });
}

/// Kept trims beside writes of the same chunks, owed zeroes, destages and checkpoints.
pub fn kept_trims_and_writes() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Trim(9), WritePart(9), Read(9), Trim(3), Read(3), Flush],
            &[Write(3), Trim(9), Zero(9), Read(9), Trim(10), Read(10)],
            &[Trim(8), Destage, Read(3), Checkpoint, WritePart(8), Read(8)],
        ];
        run(WriteMode::Back, SCRIPTS, false);
    });
    assert_eq!(IGNORED.load(Relaxed), 0, "bytes of trims were ignored, and there is room");
}

/// Misses that are filled while their chunks are rewritten: the trap of the stale clean copy.
pub fn fills_and_writes_in_write_through() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Read(2), Read(2), Read(9), Read(2)],
            &[Write(2), WritePart(9), Read(2), Zero(9), Read(9)],
            &[WritePart(2), Read(9), Write(9), Flush, Read(2)],
        ];
        run(WriteMode::Through, SCRIPTS, false);
    });
}

pub fn fills_and_writes_in_write_around() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Read(2), Read(2), Read(9), Read(2)],
            &[Write(2), Read(2), Zero(9), Read(9), Flush],
            &[WritePart(2), Read(2), Read(9), WritePart(9)],
        ];
        run(WriteMode::Around, SCRIPTS, false);
    });
}

pub fn mode_switches_and_writes() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Mode(WriteMode::Through), Mode(WriteMode::Back)],
            &[Write(9), Read(9), WritePart(2), Read(2), Flush],
            &[WritePart(9), Read(2), Zero(2), Read(9)],
        ];
        run(WriteMode::Back, SCRIPTS, false);
    });
}

pub fn closing_under_requests() {
    explore(SCHEDULES, || {
        const SCRIPTS: &[&[Step]] = &[
            &[Write(0), Write(1), Write(2), Flush],
            &[Read(9), WritePart(3), Read(30), Read(12)],
            &[Zero(20), Destage, Write(4), Checkpoint],
        ];
        run(WriteMode::Back, SCRIPTS, true);
    });
}
