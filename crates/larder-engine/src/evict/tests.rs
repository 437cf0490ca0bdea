//! A chunk that needs room takes slots that were freed ahead at once, unless they are in use. A
//! search from outside hardly ever meets a slot in use: a read makes its chunk recent, and others
//! go first.

use super::*;
use crate::{CreateOptions, Tuning, cache::Cache, create, stripes::Stripe};
use larder_core::{Fingerprint, design::Wanted};
use larder_device::{
    Runtime,
    driver::block_on,
    ram::RamDevice,
    rng::mix64,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use std::time::Instant;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 8 << 10;
/// Chunks of the volume, each of which is written once.
pub(crate) const CHUNKS: u64 = 1000;

/// Returns the content of [`full_cache`] at this chunk.
pub(crate) fn chunk(number: u64) -> Vec<u8> {
    (0..CHUNK as u64).map(|at| mix64(number << 16 | at) as u8).collect()
}

/// Makes a cache of austere after write-throughs of its whole volume: more than it can keep.
pub(crate) fn full_cache() -> (Cache, Arc<ThreadRuntime>) {
    let flash = Arc::new(RamDevice::new("flash", 6 * MIB, 512));
    let origin = Arc::new(RamDevice::new("origin", CHUNKS * CHUNK as u64, 512));
    let mut options = CreateOptions { flash_uuid: [7; 16], hash_key: [9; 32], ..CreateOptions::default() };
    crate::designs::named("austere").expect("austere").fit(&mut options);
    options.mode = larder_format::WriteMode::Through;
    block_on(create(&*flash, CHUNKS * CHUNK as u64, &options)).expect("created");
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "evict".into() });
    let opening = Cache::open(flash, origin, runtime.clone() as Arc<dyn Runtime>, Tuning::default());
    let cache = block_on(opening).expect("opened");
    for number in 0..CHUNKS {
        cache.write_at(number * CHUNK as u64, &chunk(number)).expect("written");
    }
    (cache, runtime)
}

#[test]
fn a_slot_that_was_freed_ahead_is_not_taken_while_it_is_used() {
    let (cache, runtime) = full_cache();
    let shared = &cache.shared;
    let began = Instant::now();
    // A chunk whose bucket is full of slots that were freed ahead; the evictor frees those in its
    // own time.
    let mut number = 0;
    let (mut state, lba, slots) = loop {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was freed ahead");
        number += 1;
        let mut state = shared.state.lock();
        let mut fingerprint = Fingerprint([5; 16]);
        fingerprint.0[..8].copy_from_slice(&mix64(number).to_le_bytes());
        let lba = Lba(CHUNKS + number);
        let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK as u32 };
        if state.decide().open_slot_for(StreamClass::Clean, &wanted).is_some() {
            continue;
        }
        let slots = state.design().in_the_way(lba);
        let durable_below = state.log.durable_below();
        let is_free = |&slot: &SlotId| state.decide().is_freed(slot, durable_below) && !state.writer.is_in_memory(slot);
        if !slots.is_empty() && slots.iter().all(is_free) {
            break (state, lba, slots);
        }
    };
    let evicted = || shared.counters.evicted_slots.load(Relaxed);
    let before = evicted();
    for &slot in &slots {
        let pinned = shared.pins.pin(slot, Stripe(0));
        assert!(!shared.make_way(&mut state, lba), "{slot:?} is being read");
        drop(pinned);
        state.writer.set_in_memory(slot, true);
        assert!(!shared.make_way(&mut state, lba), "{slot:?} is being written");
        state.writer.set_in_memory(slot, false);
    }
    assert_eq!(evicted(), before);
    assert!(shared.make_way(&mut state, lba), "nobody uses {slots:?}");
    assert_eq!(evicted() - before, slots.len() as u64);
    drop(state);
    drop(cache);
    runtime.shutdown();
}

#[test]
fn a_slot_that_is_being_written_is_not_freed_ahead() {
    let (cache, runtime) = full_cache();
    let mut state = cache.shared.state.lock();
    let slots: Vec<SlotId> = state.design().stored_runs().into_iter().map(|(slot, _)| slot).collect();
    assert!(slots.len() > 100, "{} chunks are stored", slots.len());
    let mut freed = 0;
    for slot in slots.into_iter().filter(|slot| !state.writer.is_in_memory(*slot)).collect::<Vec<_>>() {
        state.decide().keep(slot);
        let entries = state.log.len();
        state.writer.set_in_memory(slot, true);
        assert!(!state.free_ahead(slot), "{slot:?} is being written");
        assert_eq!(state.log.len(), entries);
        state.writer.set_in_memory(slot, false);
        if state.free_ahead(slot) {
            assert_eq!(state.log.len(), entries + 1, "the log says it");
            freed += 1;
        }
    }
    assert!(freed > 100, "{freed} slots were freed");
    drop(state);
    drop(cache);
    runtime.shutdown();
}
