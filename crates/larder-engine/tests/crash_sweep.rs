//! Crash sweeps: short scripts, ended by a power loss or a kill at one change of a device after the other, each opened
//! again and compared with the model; then lost power once more, and destaged to the origin.
//!
//! Invariants: a script with one seed always runs the same up to its end. Scripts with few changes are ended at
//! each of them, longer ones at some, spread evenly.
//!
//! `LARDER_CRASH_CASES=N` ends each script at up to N changes, with several seeds when N exceeds its changes.

#[allow(dead_code)]
#[path = "model/world.rs"]
mod world;

use larder_core::types::SECTOR_BYTES;
use larder_device::{
    ZeroFlags,
    sim::{SimDevice, SimOptions, SimRuntime},
};
use larder_engine::{Cache, Compression, Tuning, WriteMode, create};
use std::{cell::RefCell, future::Future, pin::Pin, sync::Arc, task::Poll};
use world::{Model, Shape, World, ZERO, identify, read, write, zero};

/// Sectors of a chunk.
const CHUNK: usize = 8;
/// Changes at which a script is ended, if not told otherwise.
const CASES: u64 = 40;

fn cases() -> u64 {
    std::env::var("LARDER_CRASH_CASES").ok().and_then(|value| value.parse().ok()).unwrap_or(CASES)
}

fn shape(mode: WriteMode) -> Shape {
    Shape {
        chunk_bytes: (CHUNK * SECTOR_BYTES) as u32,
        weu_bytes: 512 << 10,
        flash_bytes: 6 << 20,
        // The last chunk is short.
        origin_bytes: (8 << 20) + 512 * 3,
        mode,
        compression: Compression::Lz4,
        dedup: true,
        fp_index_percent: 100,
        ram_budget_bytes: 0,
        tuning: Tuning { commit_interval_ms: 5, prefetch_bytes_max: 0, ..Tuning::default() },
    }
}

/// What a script works with.
struct Client<'a> {
    cache: &'a Cache,
    model: &'a RefCell<Model>,
}

impl Client<'_> {
    async fn put(&self, at: usize, count: usize, content: u32) {
        let stamps: Vec<u32> = (0..count as u32).map(|i| content + 2 * i).collect();
        self.model.borrow_mut().begin(at, &stamps);
        write(self.cache, at, &stamps, false).await;
        self.model.borrow_mut().complete(at, &stamps);
    }

    async fn put_durably(&self, at: usize, count: usize, content: u32) {
        let stamps: Vec<u32> = (0..count as u32).map(|i| content + 2 * i).collect();
        self.model.borrow_mut().begin(at, &stamps);
        write(self.cache, at, &stamps, true).await;
        let mut model = self.model.borrow_mut();
        model.complete(at, &stamps);
        model.durable(at..at + count);
    }

    async fn trim(&self, at: usize, count: usize) {
        let stamps = vec![ZERO; count];
        self.model.borrow_mut().begin(at, &stamps);
        zero(self.cache, at, count, ZeroFlags::default()).await;
        self.model.borrow_mut().complete(at, &stamps);
    }

    /// Of one script at a time: everything that completed is durable after it.
    async fn flush(&self) {
        self.cache.flush().await.unwrap_or_else(|error| panic!("flush: {error}"));
        let mut model = self.model.borrow_mut();
        let sectors = model.current.len();
        model.durable(0..sectors);
    }

    async fn check(&self, at: usize, count: usize) {
        let bytes = read(self.cache, at, count).await;
        let model = self.model.borrow();
        for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let expected = model.current[at + i];
            assert!(identify(sector, [expected]).is_some(), "sector {} is not {expected}", at + i);
        }
    }
}

type Script = for<'a> fn(Client<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

async fn all<'a>(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn runtime(seed: u64) -> Arc<SimRuntime> {
    SimRuntime::with_options(seed, SimOptions { steps_max: 3_000_000, ..SimOptions::default() })
}

fn attach(world: &World, seed: u64) -> Arc<SimRuntime> {
    let runtime = runtime(seed);
    world.flash.attach(&runtime);
    world.origin.attach(&runtime);
    runtime
}

/// Compares all sectors; after a crash what is read becomes what is expected from then on.
async fn check_all(cache: &Cache, model: &RefCell<Model>, when: &str) {
    let sectors = model.borrow().current.len();
    for at in (0..sectors).step_by(1000) {
        let bytes = read(cache, at, 1000.min(sectors - at)).await;
        let mut model = model.borrow_mut();
        for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let at = at + i;
            let (current, older) = (model.current[at], std::mem::take(&mut model.older[at]));
            match identify(sector, older.iter().copied().chain([current])) {
                Some(stamp) => model.current[at] = stamp,
                None => {
                    let was = identify(sector, model.current.iter().copied());
                    panic!("{when}: sector {at} reads as {was:?}, allowed are {current} and {older:?}");
                }
            }
        }
    }
}

fn origin_has_it(world: &World, model: &RefCell<Model>, when: &str) {
    let model = model.borrow();
    let bytes = world.origin.peek(0, model.current.len() * SECTOR_BYTES);
    for (at, (sector, &expected)) in bytes.chunks(SECTOR_BYTES).zip(&model.current).enumerate() {
        assert!(identify(sector, [expected]).is_some(), "{when}: the origin lacks {expected} in sector {at}");
    }
}

/// Runs `script` up to change `stop`, crashes, and goes on from there. Returns the changes of a run to the end.
fn run(mode: WriteMode, script: Script, seed: u64, stop: Option<u64>) -> u64 {
    let first = runtime(seed);
    let world = World::new(&first, shape(mode));
    first.kill();
    let model = RefCell::new(Model::new(world.sectors));
    let rt = attach(&world, seed + 1);
    rt.stop_at_change(stop);
    rt.block_on_or_stop(async {
        let cache = world.open(&rt).await;
        script(Client { cache: &cache, model: &model }).await;
    });
    let changes = rt.changes();
    let stop = stop.unwrap_or(changes + 1);
    if stop % 4 == 3 {
        rt.kill()
    } else {
        rt.crash()
    }
    // What is read after the crash stays, through another power loss at once.
    let rt = attach(&world, seed + 2);
    rt.block_on(async { check_all(&world.open(&rt).await, &model, "after the crash").await });
    rt.crash();
    let rt = attach(&world, seed + 3);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        check_all(&cache, &model, "after the second crash").await;
        // And through evictions and destaging: no old copy hides behind the one that was read.
        cache.set_mode(WriteMode::Through).await.unwrap_or_else(|error| panic!("set mode: {error}"));
        check_all(&cache, &model, "in write-through").await;
        cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
    });
    origin_has_it(&world, &model, "at the end");
    rt.crash();
    let rt = attach(&world, seed + 4);
    rt.block_on(async {
        let cache = world.open(&rt).await;
        assert!(cache.recovery().clean_shutdown, "the end was clean");
        check_all(&cache, &model, "after a clean end").await;
    });
    changes
}

struct Case(&'static str, u64, Option<u64>);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("script {}, seed {}, stopped at change {:?}", self.0, self.1, self.2);
        }
    }
}

fn sweep(name: &'static str, mode: WriteMode, script: Script) {
    let mut left = cases();
    let mut seed = 1000;
    while left > 0 {
        let changes = {
            let _print = Case(name, seed, None);
            run(mode, script, seed, None)
        };
        let ends = changes.min(left);
        for i in 0..ends {
            // Another phase each seed, so that long scripts are swept whole in time.
            let stop = 1 + (i * changes + seed % changes) / ends.max(1) % changes;
            let _print = Case(name, seed, Some(stop));
            run(mode, script, seed, Some(stop));
        }
        left -= ends;
        seed += 1;
    }
}

#[test]
fn crash_sweep_overwrites() {
    sweep("overwrites", WriteMode::Back, |client| {
        Box::pin(async move {
            for round in 0..3 {
                client.put(0, 3 * CHUNK, 1001 + round * 1000).await;
                // Fragments, one of them made whole in the end.
                client.put(5 * CHUNK + round as usize * 3, 3, 5001 + round * 1000).await;
                client.put(9 * CHUNK - 1, 2, 7001 + round * 1000).await;
                client.flush().await;
                client.put(CHUNK, CHUNK, 9001 + round * 1000).await;
                client.check(4 * CHUNK, 6 * CHUNK).await;
                client.put_durably(20 * CHUNK, CHUNK + 1, 11_001 + round * 1000).await;
            }
            // The short last chunk.
            let sectors = client.model.borrow().current.len();
            client.put(sectors - 3, 3, 15_001).await;
            client.flush().await;
        })
    });
}

#[test]
fn crash_sweep_duplicates_of_dirty_chunks() {
    sweep("duplicates", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, CHUNK, 1001).await;
            client.put(CHUNK, CHUNK, 1001).await;
            client.flush().await;
            client.put(0, CHUNK, 2001).await;
            client.put(2 * CHUNK, CHUNK, 1001).await;
            client.cache.destage_all().await;
            client.put(3 * CHUNK, CHUNK, 1001).await;
            client.put(CHUNK, CHUNK, 2001).await;
            client.flush().await;
            client.trim(2 * CHUNK, CHUNK).await;
            client.put(4 * CHUNK, CHUNK, 2001).await;
            client.flush().await;
        })
    });
}

#[test]
fn crash_sweep_trims() {
    sweep("trims", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 12 * CHUNK, 1001).await;
            client.flush().await;
            client.trim(2 * CHUNK, 6 * CHUNK).await;
            client.put(4 * CHUNK, CHUNK, 3001).await;
            client.put(5 * CHUNK + 1, 2, 4001).await;
            client.flush().await;
            client.cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}"));
            client.trim(3 * CHUNK + 2, 4 * CHUNK).await;
            client.put(6 * CHUNK, CHUNK, 5001).await;
            client.cache.destage_all().await;
            client.trim(0, 12 * CHUNK).await;
            client.flush().await;
            client.put(0, 1, 6001).await;
        })
    });
}

#[test]
fn crash_sweep_evictions_of_dirty_data() {
    sweep("evictions", WriteMode::Back, |client| {
        Box::pin(async move {
            // Incompressible, and more than the flash holds.
            for round in 0..2 {
                for i in 0..28 {
                    let content = 1_000_000 * (1 + round) + 1000 * i;
                    client.put(i as usize * 64 * CHUNK, 50 * CHUNK, content).await;
                    client.put(i as usize * 64 * CHUNK + 55 * CHUNK, CHUNK, 501).await;
                    if i % 5 == 4 {
                        client.flush().await;
                    }
                    client.check(i as usize / 2 * 64 * CHUNK, 2 * CHUNK).await;
                }
            }
        })
    });
}

#[test]
fn crash_sweep_checkpoints_beside_everything() {
    sweep("checkpoints", WriteMode::Back, |client| {
        Box::pin(async move {
            client.put(0, 40 * CHUNK, 1001).await;
            client.trim(10 * CHUNK, 20 * CHUNK).await;
            client.flush().await;
            for round in 0..3 {
                let (client, checkpoints) = (&client, 2);
                all(vec![
                    Box::pin(async move {
                        for _ in 0..checkpoints {
                            client.cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}"));
                        }
                    }),
                    Box::pin(async move {
                        assert!(client.cache.destage_all().await, "destage");
                    }),
                    Box::pin(async move {
                        for i in 0..6 {
                            client.put((12 + 3 * i) * CHUNK, CHUNK, 3001 + 100 * i as u32 + 1000 * round).await;
                            client.put((13 + 3 * i) * CHUNK + 1, 2, 2001 + 100 * i as u32 + 1000 * round).await;
                            if i % 2 == 0 {
                                client.trim((14 + 3 * i) * CHUNK, 2 * CHUNK).await;
                            }
                            client.flush().await;
                        }
                    }),
                ])
                .await;
            }
        })
    });
}

fn write_through<'a>(client: Client<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async move {
        for round in 0..3 {
            client.put(0, 6 * CHUNK, 1001 + 1000 * round).await;
            client.cache.settle().await;
            client.put(CHUNK + 1, 3, 501 + 1000 * round).await;
            client.check(0, 8 * CHUNK).await;
            client.cache.settle().await;
            if round == 1 {
                client.cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}"));
            }
            client.put(2 * CHUNK, CHUNK, 7001 + 1000 * round).await;
            client.flush().await;
            client.trim(4 * CHUNK, CHUNK + 3).await;
            client.put(3 * CHUNK, CHUNK, 7001 + 1000 * round).await;
        }
    })
}

#[test]
fn crash_sweep_write_through() {
    sweep("write-through", WriteMode::Through, write_through);
}

#[test]
fn crash_sweep_write_around() {
    sweep("write-around", WriteMode::Around, write_through);
}

#[test]
fn crash_sweep_write_through_evictions() {
    sweep("write-through evictions", WriteMode::Through, |client| {
        Box::pin(async move {
            for round in 0..2 {
                for i in 0..28 {
                    client.put(i * 64 * CHUNK, 56 * CHUNK, 1_000_000 * (1 + round) + 1000 * i as u32).await;
                    client.put(i / 2 * 64 * CHUNK, CHUNK, 500_000 * (1 + round) + 1000 * i as u32).await;
                    client.cache.settle().await;
                    if i % 7 == 6 {
                        client.flush().await;
                    }
                }
            }
        })
    });
}

#[test]
fn crash_sweep_mode_switches() {
    sweep("modes", WriteMode::Back, |client| {
        Box::pin(async move {
            for round in 0..2 {
                for (i, mode) in
                    [WriteMode::Through, WriteMode::Back, WriteMode::Around, WriteMode::Back].into_iter().enumerate()
                {
                    let content = 1001 + 1000 * i as u32 + 10_000 * round;
                    let client = &client;
                    client.put(0, 2 * CHUNK, content).await;
                    client.put(4 * CHUNK + i, 2, content).await;
                    all(vec![
                        Box::pin(async move {
                            client.cache.set_mode(mode).await.unwrap_or_else(|error| panic!("set mode: {error}"));
                        }),
                        Box::pin(async move {
                            client.put(CHUNK, CHUNK, content + 500).await;
                            client.flush().await;
                            client.trim(5 * CHUNK, 3 * CHUNK).await;
                            client.check(0, 9 * CHUNK).await;
                            client.put(6 * CHUNK + 2, 2, content + 600).await;
                        }),
                    ])
                    .await;
                    client.flush().await;
                }
            }
        })
    });
}

#[test]
fn crash_sweep_creation() {
    let options = shape(WriteMode::Back);
    for stop in 1.. {
        let rt = runtime(stop);
        let flash = SimDevice::new(&rt, "flash", options.flash_bytes, 512);
        let origin = SimDevice::new(&rt, "origin", options.origin_bytes, 512);
        let world =
            World { shape: options.clone(), flash, origin, sectors: options.origin_bytes as usize / SECTOR_BYTES };
        // An older cache with another identity is there before.
        let mut older = options.options();
        older.flash_uuid = [1; 16];
        rt.block_on(async { create(&*world.flash, options.origin_bytes, &older).await.unwrap() });
        let before = rt.block_on(async {
            let cache = world.open(&rt).await;
            write(&cache, 0, &[1001; 3 * CHUNK], true).await;
            cache.close().await.unwrap();
            rt.changes()
        });
        rt.stop_at_change(Some(before + stop));
        let made = rt.block_on_or_stop(create(&*world.flash, options.origin_bytes, &options.options()));
        rt.crash();
        let rt = attach(&world, stop + 100);
        rt.block_on(async {
            let tuning = Tuning::default();
            let opened = Cache::open(world.flash.clone(), world.origin.clone(), rt.clone(), tuning).await;
            let Ok(cache) = opened else {
                assert!(made.is_none(), "a cache that was made opens");
                return;
            };
            // The older one, whole, or the new one, empty: never a mixture.
            let first = read(&cache, 0, 3 * CHUNK).await;
            let stamp = identify(&first[..SECTOR_BYTES], [1001, ZERO]).expect("old or new");
            assert!(first.chunks(SECTOR_BYTES).all(|sector| identify(sector, [stamp]).is_some()));
            assert!(made.is_none() || stamp == ZERO, "the new cache is empty");
        });
        rt.crash();
        let rt = attach(&world, stop + 200);
        rt.block_on(async { create(&*world.flash, options.origin_bytes, &options.options()).await.unwrap() });
        rt.block_on(async { write(&world.open(&rt).await, 0, &[2001; CHUNK], true).await });
        if made.is_some() {
            return;
        }
    }
}
