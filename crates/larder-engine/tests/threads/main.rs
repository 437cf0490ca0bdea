//! Real threads over devices in memory: many clients, blocking and with requests in flight. The
//! flash is so small that it evicts all the time, beside destages, checkpoints and mode switches.
//! Each sector must have been a register (`register.rs` defines one), through clean ends and new
//! openings.
//!
//! The seed determines the requests of each client, and the machine the interleavings. So a failure
//! has no exact replay, and prints the sector's history instead. `LARDER_STRESS_SECONDS` goes on
//! with new seeds for so long, in each of the three stress tests.
//!
//! It leaves crashes to `tests/simulation`.

#[allow(dead_code, reason = "another program uses the rest")]
#[path = "../common/mod.rs"]
mod common;

mod client;
mod history;
mod register;
mod slow;

use client::{Area, Client};
use common::{SECTOR, each_seed, random_run};
use history::{Clock, Record, What, judge, values_of};
use larder_device::{
    BlockDevice,
    driver::block_on,
    ram::RamDevice,
    rng::Rng,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{Cache, CreateOptions, Tuning, WriteMode, create};
use slow::Slow;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const VOLUME: u64 = 8 << 20;
const FLASH: u64 = 5 << 20;
const AREA: Area = Area { sectors: VOLUME as usize / SECTOR, hot_sectors: 128 };
/// Clients that use the blocking interface, and those that keep requests in flight.
const BLOCKING: u32 = 3;
const IN_FLIGHT: u32 = 2;
/// Requests of each client in each life of the cache.
const REQUESTS: u64 = 4000;
/// Openings of one cache, with work in each.
const LIVES: u32 = 3;

/// Makes the operator's requests meanwhile.
fn operator(cache: &Cache, mut rng: Rng, stop: &AtomicBool, modes: &[WriteMode]) {
    while !stop.load(SeqCst) {
        match rng.below(4) {
            0 => {
                block_on(cache.destage_all());
            }
            1 => block_on(cache.checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}")),
            2 => assert_eq!(cache.status().counts.failed_checks, 0),
            _ => {
                let mode = modes[rng.index(modes.len())];
                block_on(cache.set_mode(mode)).unwrap_or_else(|error| panic!("set mode: {error}"));
                let dirty = if mode == WriteMode::Back { 0 } else { cache.status().dirty_bytes };
                assert_eq!(dirty, 0, "dirty data is left in a mode without any");
            }
        }
        std::thread::sleep(Duration::from_millis(rng.below(20)));
    }
}

fn make(flash: &dyn BlockDevice, mode: WriteMode) {
    let options = common::design::fitted(CreateOptions {
        design: common::design::chosen(),
        slot_bytes: 512 << 10,
        mode,
        flash_uuid: [7; 16],
        hash_key: [9; 32],
        origin_uri: "ram:".into(),
        ..CreateOptions::default()
    });
    block_on(create(flash, VOLUME, &options)).unwrap_or_else(|error| panic!("create: {error}"));
}

fn tuning() -> Tuning {
    Tuning {
        dirty_low_percent: 10,
        dirty_high_percent: 20,
        dirty_max_percent: 40,
        commit_interval_ms: 20,
        // So soon that hits share the lock, and stop to, all the time.
        share_after_reads: 1,
        ..Tuning::default()
    }
}

fn runtime(workers: usize) -> Arc<ThreadRuntime> {
    ThreadRuntime::new(ThreadRuntimeOptions { workers, name: "test".into() })
}

fn open(flash: Arc<dyn BlockDevice>, origin: Arc<dyn BlockDevice>, runtime: &Arc<ThreadRuntime>) -> Cache {
    block_on(Cache::open(flash, origin, runtime.clone(), tuning())).unwrap_or_else(|error| panic!("open: {error}"))
}

/// Takes one cache through some lives, and judges its history.
fn stress(seed: u64, workers: usize, modes: &[WriteMode]) {
    let mut rng = Rng::new(seed);
    let timer = runtime(0);
    let flash = Arc::new(Slow::new(RamDevice::new("flash", FLASH, 512), &timer, rng.fork(), 5, 300));
    let origin = Arc::new(Slow::new(RamDevice::new("origin", VOLUME, 512), &timer, rng.fork(), 50, 500));
    make(&*flash.ram, modes[0]);
    let clock = Clock::new();
    let (mut records, mut evicted) = (Vec::new(), 0);
    let began = Instant::now();
    for life in 0..LIVES {
        let runtime = runtime(workers);
        let cache = open(flash.clone(), origin.clone(), &runtime);
        records.extend(one_life(&cache, &clock, life, &mut rng, modes));
        let status = cache.status();
        evicted += status.counts.evicted_slots;
        assert_eq!((status.counts.failed_checks, status.health.as_str()), (0, "ok"));
        cache.close_blocking().unwrap_or_else(|error| panic!("close: {error}"));
        drop(cache);
        runtime.shutdown();
    }
    // The last opening reads all of it, after everything else.
    let runtime = runtime(workers);
    let cache = open(flash, origin, &runtime);
    let mut volume = vec![0; VOLUME as usize];
    let called = clock.now();
    cache.read_at(0, &mut volume).unwrap_or_else(|error| panic!("read: {error}"));
    let (returned, what) = (clock.now(), What::Found(values_of(0, &volume)));
    let requests = records.len();
    records.push(Record { called, returned, client: u32::MAX, first_sector: 0, what });
    cache.close_blocking().unwrap_or_else(|error| panic!("close: {error}"));
    let worked = began.elapsed();
    let judged = judge(AREA.sectors, &records);
    println!(
        "seed {seed}, {workers} workers: {requests} requests in {:.1} s, {judged} sector reads judged in {:.1} s, \
         {evicted} evictions",
        worked.as_secs_f64(),
        (began.elapsed() - worked).as_secs_f64(),
    );
    assert!(judged > 50_000 && evicted > 0, "{judged} sector reads, {evicted} evictions: too few to mean much");
}

fn one_life(cache: &Cache, clock: &Clock, life: u32, rng: &mut Rng, modes: &[WriteMode]) -> Vec<Record> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let clients: Vec<_> = (0..BLOCKING + IN_FLIGHT)
            .map(|number| {
                let client = Client::new(cache, clock, AREA, life * 10 + number, rng.fork(), stop);
                scope.spawn(move || {
                    // A client that fails ends the others, because they would wait for long.
                    let _guard = StopOnPanic(stop);
                    if number < BLOCKING { client.run_blocking(REQUESTS) } else { client.run_in_flight(REQUESTS) }
                })
            })
            .collect();
        let rng = rng.fork();
        let operator = scope.spawn(move || {
            let _guard = StopOnPanic(stop);
            operator(cache, rng, stop, modes)
        });
        let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        stop.store(true, SeqCst);
        let operator = operator.join();
        assert!(results.iter().all(Result::is_ok) && operator.is_ok(), "a thread panicked; see above");
        results.into_iter().flatten().flatten().collect()
    })
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// Runs one seed without and one with workers, then others while `LARDER_STRESS_SECONDS` last.
fn stress_for_a_while(modes: &[WriteMode]) {
    let seconds = std::env::var("LARDER_STRESS_SECONDS").ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(seconds);
    for workers in [0, 2] {
        each_seed(1, |seed| stress(seed, workers, modes));
    }
    let mut round = 1;
    while Instant::now() < until {
        round += 1;
        println!("replay the requests with LARDER_SEED={round}");
        stress(round, round as usize % 4, modes);
    }
}

#[test]
fn sectors_are_registers_in_write_back() {
    stress_for_a_while(&[WriteMode::Back]);
}

#[test]
fn sectors_are_registers_in_write_through_and_around() {
    stress_for_a_while(&[WriteMode::Through, WriteMode::Around]);
}

#[test]
fn sectors_are_registers_while_the_mode_changes() {
    stress_for_a_while(&[WriteMode::Back, WriteMode::Through, WriteMode::Around]);
}

fn ram_devices(mode: WriteMode) -> (Arc<RamDevice>, Arc<RamDevice>) {
    let flash = Arc::new(RamDevice::new("flash", FLASH, 512));
    make(&*flash, mode);
    (flash, Arc::new(RamDevice::new("origin", VOLUME, 512)))
}

#[test]
fn dropping_a_cache_without_closing_it_loses_nothing_that_was_flushed() {
    each_seed(4, |seed| {
        let (flash, origin) = ram_devices(WriteMode::Back);
        let mut rng = Rng::new(seed);
        let mut expected = vec![0; VOLUME as usize];
        for life in 0..4_u64 {
            let runtime = runtime(life as usize % 3);
            let cache = open(flash.clone(), origin.clone(), &runtime);
            let mut found = vec![0; expected.len()];
            cache.read_at(0, &mut found).unwrap_or_else(|error| panic!("read: {error}"));
            assert!(found == expected, "life {life} began with another volume");
            for _ in 0..500 {
                let (offset, len) = random_run(&mut rng, VOLUME, 40);
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
    let (flash, origin) = ram_devices(WriteMode::Back);
    let runtime = runtime(1);
    let cache = open(flash.clone(), origin.clone(), &runtime);
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
