//! Creation, ended at each of its changes: over nothing, and over an older cache.
//!
//! Invariants: the flash then opens as the older cache, whole, or as the new one, empty, or is
//! refused with a sentence. And a second creation succeeds.

use super::{
    model::{bytes_of, holds},
    sweep::seeds,
    world::{CHUNK, devices, read, runtime},
};
use crate::design;
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    BlockDevice, WriteFlags,
    rng::{Rng, mix64},
    sim::{Frozen, SimDevice, SimRuntime},
};
use larder_engine::{Cache, CreateOptions, EngineError, Tuning, create, superblock};
use std::{cell::Cell, sync::Arc};

const FLASH_BYTES: u64 = 4 << 20;
const ORIGIN_BYTES: u64 = 1 << 20;
/// Instants with more outcomes are sampled, this often.
const OUTCOMES_IN_FULL_MAX: u64 = 4096;
/// The contents of the origin, of the older cache over it, and of the new cache.
const ON_ORIGIN: u32 = 1001;
const IN_OLDER: u32 = 2001;
const IN_NEW: u32 = 3001;

struct Devices {
    flash: Arc<SimDevice>,
    origin: Arc<SimDevice>,
}

impl Devices {
    fn attach(&self, seed: u64) -> Arc<SimRuntime> {
        let runtime = runtime(seed);
        self.flash.attach(&runtime);
        self.origin.attach(&runtime);
        runtime
    }

    async fn open(&self, runtime: &Arc<SimRuntime>) -> Result<Cache, EngineError> {
        let tuning = Tuning { commit_interval_ms: 5, prefetch_bytes_max: 0, ..Tuning::default() };
        Cache::open(self.flash.clone(), self.origin.clone(), runtime.clone(), tuning).await
    }
}

fn options(uuid: u8) -> CreateOptions {
    let design = design::chosen();
    design::fitted(CreateOptions {
        design,
        chunk_bytes: 4096,
        slot_bytes: 512 << 10,
        flash_uuid: [uuid; 16],
        ..CreateOptions::default()
    })
}

fn stamps(first: u32) -> Vec<u32> {
    (0..3 * CHUNK as u32).map(|i| first + 2 * i).collect()
}

async fn write(device: &dyn BlockDevice, stamp: u32) {
    let fua = WriteFlags { fua: true };
    device.write(0, bytes_of(&stamps(stamp)).freeze(), fua).await.unwrap_or_else(|error| panic!("write: {error}"));
}

/// Returns the volume's content of the three; panics for others, or if another cache holds it.
async fn content(devices: &Devices, cache: &Cache) -> u32 {
    let (superblock, _) = superblock::read(&*devices.flash).await.unwrap_or_else(|error| panic!("superblock: {error}"));
    let bytes = read(cache, 0, 3 * CHUNK).await;
    let is = |first: u32| bytes.chunks(SECTOR_BYTES).zip(stamps(first)).all(|(sector, stamp)| holds(sector, stamp));
    let found = [ON_ORIGIN, IN_OLDER, IN_NEW].into_iter().find(|&first| is(first)).expect("a mixture of two caches");
    let older = superblock.flash_uuid == options(1).flash_uuid;
    assert_eq!(older, found == IN_OLDER, "the older cache without its data, or the new one with it");
    found
}

/// The place in the sweep, for the message of a panic.
struct Place(Cell<(u64, bool, usize, u64)>);

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, over_older, point, choice) = self.0.get();
            eprintln!("creation, seed {seed}, over an older cache: {over_older}, instant {point}, outcome {choice}");
        }
    }
}

/// Returns the instants of a creation.
fn instants(devices: &Devices, seed: u64, over_older: bool) -> Vec<Frozen> {
    let rt = devices.attach(mix64(seed));
    rt.block_on(async {
        write(&*devices.origin, ON_ORIGIN).await;
        if over_older {
            let made = create(&*devices.flash, ORIGIN_BYTES, &options(1)).await;
            made.unwrap_or_else(|error| panic!("create the older cache: {error}"));
            let cache = devices.open(&rt).await.unwrap_or_else(|error| panic!("open the older cache: {error}"));
            write(&cache, IN_OLDER).await;
            if seed.is_multiple_of(2) {
                cache.close().await.unwrap_or_else(|error| panic!("close the older cache: {error}"));
            }
        }
    });
    rt.crash();
    let rt = devices.attach(mix64(seed + 1));
    let mut instants = Vec::new();
    rt.stop_at_change(Some(1));
    let made = rt.block_on_pausing(create(&*devices.flash, ORIGIN_BYTES, &options(2)), |rt| {
        instants.push(rt.capture());
        rt.stop_at_change(Some(rt.changes() + 1));
    });
    made.unwrap_or_else(|error| panic!("create: {error}"));
    instants.push(rt.capture());
    rt.crash();
    instants
}

/// Opens the flash, and returns the volume's content, or `None` if it was refused.
fn opened(devices: &Devices, seed: u64) -> Option<u32> {
    let rt = devices.attach(seed);
    let found = rt.block_on(async {
        match devices.open(&rt).await {
            Ok(cache) => Some(content(devices, &cache).await),
            Err(EngineError::Io(error)) => panic!("no device failed: {error}"),
            Err(error) => {
                assert!(error.to_string().len() > 20, "a sentence: {error}");
                None
            }
        }
    });
    rt.crash();
    found
}

#[test]
fn crash_sweep_creation() {
    for over_older in [false, true] {
        let (mut points, mut in_full, mut outcomes, mut refused) = (0, 0, 0, 0);
        for seed in seeds() {
            let rt = runtime(seed);
            let [flash, origin] = devices(&rt, seed, FLASH_BYTES, ORIGIN_BYTES, false);
            let devices = Devices { flash, origin };
            let instants = instants(&devices, seed, over_older);
            let (mut rng, last) = (Rng::new(mix64(seed)), instants.len() - 1);
            let place = Place(Cell::new((seed, over_older, 0, 0)));
            for (point, frozen) in instants.iter().enumerate() {
                points += 1;
                in_full += u64::from(frozen.choices() <= OUTCOMES_IN_FULL_MAX);
                for i in 0..frozen.choices().min(OUTCOMES_IN_FULL_MAX) {
                    let choice = if frozen.choices() <= OUTCOMES_IN_FULL_MAX { i } else { rng.below(frozen.choices()) };
                    place.0.set((seed, over_older, point, choice));
                    frozen.thaw(choice);
                    outcomes += 1;
                    let found = opened(&devices, rng.next_u64());
                    refused += u64::from(found.is_none());
                    assert!(found != Some(IN_OLDER) || over_older, "an older cache out of nothing");
                    assert!(point < last || found == Some(ON_ORIGIN), "a cache that was made opens, empty");
                    // A content once seen stays.
                    assert_eq!(opened(&devices, rng.next_u64()), found);
                    let rt = devices.attach(rng.next_u64());
                    rt.block_on(async {
                        let made = create(&*devices.flash, ORIGIN_BYTES, &options(3)).await;
                        made.unwrap_or_else(|error| panic!("create again: {error}"));
                        let cache = devices.open(&rt).await.unwrap_or_else(|error| panic!("open: {error}"));
                        assert_eq!(content(&devices, &cache).await, ON_ORIGIN);
                        write(&cache, IN_NEW).await;
                    });
                    rt.crash();
                    assert_eq!(opened(&devices, rng.next_u64()), Some(IN_NEW));
                }
            }
        }
        let over = if over_older { "an older cache" } else { "nothing" };
        println!(
            "creation over {over}: {points} crash points ({in_full} of them with every outcome); {outcomes} outcomes, of which {refused} were refused"
        );
    }
}
