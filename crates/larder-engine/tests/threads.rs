//! Real threads over devices in memory, through the blocking interface: every read of a sector must return a write that
//! can have been the newest, whole; and the next opening finds the same volume.
//!
//! Which interleavings happen is the machine's business; what each client does, its seed's.

mod common;

use common::{SECTOR, each_seed};
use larder_device::{
    BlockDevice,
    driver::block_on,
    ram::RamDevice,
    rng::{Rng, mix64},
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{Cache, CreateOptions, Tuning, WriteMode, create};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

const VOLUME: u64 = 8 << 20;
/// Everyone works here most of the time, so that operations overlap.
const HOT: u64 = 64 << 10;
const CLIENTS: u64 = 4;
const OPS: u64 = 2500;

/// What happened to one sector: the interval on the common clock, and the stamp. Zeroes have stamp 0.
#[derive(Clone, Copy, Debug)]
struct Happened {
    began: u64,
    ended: u64,
    stamp: u64,
}

#[derive(Default)]
struct History {
    writes: Vec<Vec<Happened>>,
    reads: Vec<Vec<Happened>>,
}

impl History {
    fn new() -> History {
        let sectors = (VOLUME as usize) / SECTOR;
        let zeroes = vec![Happened { began: 0, ended: 0, stamp: 0 }];
        History { writes: vec![zeroes; sectors], reads: vec![Vec::new(); sectors] }
    }

    fn note(list: &mut [Vec<Happened>], first: usize, stamps: &[u64], began: u64, ended: u64) {
        for (sector, &stamp) in list[first..].iter_mut().zip(stamps) {
            sector.push(Happened { began, ended, stamp });
        }
    }

    /// Whether a write of what each read found can have been the newest when it was read.
    fn check(&self) -> usize {
        let mut checked = 0;
        for (sector, reads) in self.reads.iter().enumerate() {
            let writes = &self.writes[sector];
            for read in reads {
                // The newest write that was surely over when the read began: what began after another ended is newer.
                let over = writes.iter().filter(|write| write.ended < read.began);
                let newest_began = over.map(|write| write.began).max().unwrap_or(0);
                let possible = writes
                    .iter()
                    .any(|write| write.stamp == read.stamp && write.began < read.ended && write.ended >= newest_began);
                assert!(possible, "sector {sector}: {read:?} is outdated or invented");
                checked += 1;
            }
        }
        checked
    }
}

/// Sector content of a stamp: half of them compress.
fn fill(stamp: u64, sector: usize, out: &mut [u8]) {
    if stamp == 0 {
        return out.fill(0);
    }
    for (i, word) in out.chunks_mut(8).enumerate() {
        let value = match i {
            0 => stamp,
            1 => sector as u64,
            _ if stamp.is_multiple_of(2) => mix64(stamp),
            _ => mix64(stamp ^ ((i as u64) << 48)),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The stamp of a sector, which must be whole.
fn stamp_of(sector: usize, bytes: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let mut expected = [0; SECTOR];
    fill(stamp, sector, &mut expected);
    assert!(bytes == expected, "sector {sector} is a mix, or another sector: it begins with stamp {stamp}");
    stamp
}

struct Place {
    offset: u64,
    len: usize,
}

fn draw(rng: &mut Rng) -> Place {
    let area = if rng.chance(1, 2) { HOT } else { VOLUME };
    let sectors = area / SECTOR as u64;
    let longest = [1, 8, 16, 40][rng.index(4)];
    let count = 1 + rng.below(longest);
    let mut first = rng.below(sectors - count + 1);
    if rng.chance(1, 2) {
        first = (first / 16 * 16).min(sectors - count);
    }
    Place { offset: first * SECTOR as u64, len: count as usize * SECTOR }
}

fn client(cache: &Cache, number: u64, mut rng: Rng, clock: &AtomicU64, history: &Mutex<History>) {
    for op in 0..OPS {
        let Place { offset, len } = draw(&mut rng);
        let first = offset as usize / SECTOR;
        match rng.below(100) {
            0..40 => {
                // Unique: who, what number.
                let stamp = ((number + 1) << 32) | (op + 1);
                let mut data = vec![0; len];
                for (i, out) in data.chunks_mut(SECTOR).enumerate() {
                    fill(stamp, first + i, out);
                }
                let began = clock.fetch_add(1, SeqCst);
                cache.write_at(offset, &data).unwrap_or_else(|error| panic!("write: {error}"));
                let ended = clock.fetch_add(1, SeqCst);
                let stamps = vec![stamp; len / SECTOR];
                History::note(&mut history.lock().writes, first, &stamps, began, ended);
            }
            40..90 => {
                let mut data = vec![0; len];
                let began = clock.fetch_add(1, SeqCst);
                cache.read_at(offset, &mut data).unwrap_or_else(|error| panic!("read: {error}"));
                let ended = clock.fetch_add(1, SeqCst);
                let stamps: Vec<u64> =
                    data.chunks(SECTOR).enumerate().map(|(i, bytes)| stamp_of(first + i, bytes)).collect();
                History::note(&mut history.lock().reads, first, &stamps, began, ended);
            }
            90..97 => {
                let began = clock.fetch_add(1, SeqCst);
                cache.trim(offset, len as u64).unwrap_or_else(|error| panic!("trim: {error}"));
                let ended = clock.fetch_add(1, SeqCst);
                let stamps = vec![0; len / SECTOR];
                History::note(&mut history.lock().writes, first, &stamps, began, ended);
            }
            _ => cache.flush_blocking().unwrap_or_else(|error| panic!("flush: {error}")),
        }
    }
}

/// What an operator does meanwhile.
fn operator(cache: &Cache, mut rng: Rng, stop: &AtomicBool, modes: &[WriteMode]) {
    while !stop.load(SeqCst) {
        match rng.below(3) {
            0 => {
                block_on(cache.destage_all());
            }
            1 => block_on(cache.checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}")),
            _ => {
                let mode = modes[rng.index(modes.len())];
                block_on(cache.set_mode(mode)).unwrap_or_else(|error| panic!("set mode: {error}"));
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(rng.below(20)));
    }
}

fn tiny_cache(mode: WriteMode) -> (Arc<RamDevice>, Arc<RamDevice>, Tuning) {
    let flash = Arc::new(RamDevice::new("flash", 5 << 20, 512));
    let origin = Arc::new(RamDevice::new("origin", VOLUME, 512));
    let options = CreateOptions {
        weu_bytes: 512 << 10,
        mode,
        flash_uuid: [7; 16],
        hash_key: [9; 32],
        origin_uri: "ram:".into(),
        ..CreateOptions::default()
    };
    block_on(create(&*flash, origin.info().size_bytes, &options)).unwrap_or_else(|error| panic!("create: {error}"));
    let tuning = Tuning {
        dirty_low_percent: 10,
        dirty_high_percent: 20,
        dirty_max_percent: 40,
        commit_interval_ms: 20,
        ..Tuning::default()
    };
    (flash, origin, tuning)
}

fn runtime(workers: usize) -> Arc<ThreadRuntime> {
    ThreadRuntime::new(ThreadRuntimeOptions { workers, name: "test".into() })
}

fn open(flash: &Arc<RamDevice>, origin: &Arc<RamDevice>, runtime: &Arc<ThreadRuntime>, tuning: &Tuning) -> Cache {
    block_on(Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning.clone()))
        .unwrap_or_else(|error| panic!("open: {error}"))
}

fn clients_and_operator(seed: u64, workers: usize, modes: &[WriteMode]) {
    let (flash, origin, tuning) = tiny_cache(modes[0]);
    let (clock, history) = (AtomicU64::new(1), Mutex::new(History::new()));
    let mut rng = Rng::new(seed);
    let mut evicted = 0;
    for life in 0..3_u64 {
        let runtime = runtime(workers);
        let cache = open(&flash, &origin, &runtime, &tuning);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (cache, clock, history, stop) = (&cache, &clock, &history, &stop);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let rng = rng.fork();
                    scope.spawn(move || client(cache, life * CLIENTS + number, rng, clock, history))
                })
                .collect();
            let rng = rng.fork();
            let operator = scope.spawn(move || operator(cache, rng, stop, modes));
            let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            stop.store(true, SeqCst);
            let operator = operator.join();
            assert!(results.iter().all(Result::is_ok) && operator.is_ok(), "a thread panicked; see above");
        });
        let status = cache.status();
        evicted += status.counts.evicted_weus;
        assert_eq!((status.counts.corrupt_records, status.health.as_str()), (0, "ok"));
        cache.close_blocking().unwrap_or_else(|error| panic!("close: {error}"));
        drop(cache);
        runtime.shutdown();
    }
    // The last opening reads all of it, after everything else.
    let runtime = runtime(workers);
    let cache = open(&flash, &origin, &runtime, &tuning);
    let mut volume = vec![0; VOLUME as usize];
    let began = clock.fetch_add(1, SeqCst);
    cache.read_at(0, &mut volume).unwrap_or_else(|error| panic!("read: {error}"));
    let ended = clock.fetch_add(1, SeqCst);
    let stamps: Vec<u64> = volume.chunks(SECTOR).enumerate().map(|(i, bytes)| stamp_of(i, bytes)).collect();
    let mut history = history.into_inner();
    History::note(&mut history.reads, 0, &stamps, began, ended);
    let checked = history.check();
    assert!(checked > 50_000 && evicted > 0, "{checked} sector reads, {evicted} evictions: too few to mean much");
    cache.close_blocking().unwrap_or_else(|error| panic!("close: {error}"));
}

#[test]
fn clients_see_the_newest_write_in_write_back() {
    for workers in [0, 2] {
        each_seed(1, |seed| clients_and_operator(seed, workers, &[WriteMode::Back]));
    }
}

#[test]
fn clients_see_the_newest_write_in_write_through_and_around() {
    for workers in [0, 2] {
        each_seed(1, |seed| clients_and_operator(seed, workers, &[WriteMode::Through, WriteMode::Around]));
    }
}

#[test]
fn clients_see_the_newest_write_while_the_mode_changes() {
    for workers in [0, 2] {
        let modes = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
        each_seed(1, |seed| clients_and_operator(seed, workers, &modes));
    }
}

#[test]
fn dropping_a_cache_without_closing_it_loses_nothing_that_was_flushed() {
    each_seed(4, |seed| {
        let (flash, origin, tuning) = tiny_cache(WriteMode::Back);
        let mut rng = Rng::new(seed);
        let mut expected = vec![0; VOLUME as usize];
        for life in 0..4_u64 {
            let runtime = runtime(life as usize % 3);
            let cache = open(&flash, &origin, &runtime, &tuning);
            let mut found = vec![0; expected.len()];
            cache.read_at(0, &mut found).unwrap_or_else(|error| panic!("read: {error}"));
            assert!(found == expected, "life {life} began with another volume");
            for _ in 0..500 {
                let Place { offset, len } = draw(&mut rng);
                let data = &mut expected[offset as usize..offset as usize + len];
                rng.fill(data);
                cache.write_at(offset, data).unwrap_or_else(|error| panic!("write: {error}"));
            }
            cache.flush_blocking().unwrap_or_else(|error| panic!("flush: {error}"));
            drop(cache);
            runtime.shutdown();
        }
    });
}

#[test]
fn a_closed_cache_refuses_requests_and_leaves_its_devices() {
    let (flash, origin, tuning) = tiny_cache(WriteMode::Back);
    let runtime = runtime(1);
    let cache = open(&flash, &origin, &runtime, &tuning);
    cache.write_at(0, &[1; 4096]).expect("a write");
    cache.close_blocking().expect("a clean end");
    assert!(cache.write_at(0, &[2; 4096]).is_err());
    assert!(cache.read_at(0, &mut [0; 4096]).is_err());
    assert!(cache.trim(0, 4096).is_err());
    drop(cache);
    runtime.shutdown();
    assert_eq!(Arc::strong_count(&flash), 1, "something still holds the flash");
    assert_eq!(Arc::strong_count(&origin), 1, "something still holds the origin");
}
