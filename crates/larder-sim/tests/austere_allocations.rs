//! AustereCache allocates nothing for a request, except to grow a table. The test counts every
//! allocation of this process.

#[allow(dead_code, unused_imports, reason = "another program uses the rest")]
mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

use common::Rng;
use larder_core::{Fingerprint, Lba, austere::AustereConfig};
use larder_sim::{
    austere::AustereCache,
    cache::{Content, ReplayCache, WritePolicy},
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn run(cache: &mut AustereCache, rng: &mut Rng, requests: u64) {
    for _ in 0..requests {
        let lba = Lba(rng.skewed(3000));
        // The content of an address is its own or one that many share.
        let number = if rng.chance(50) { lba.0 + 10_000 } else { rng.below(200) };
        let content = Content { fingerprint: Fingerprint(u128::from(number).to_le_bytes()), stored_bytes: 20_000 };
        match rng.below(10) {
            0 => cache.trim(lba),
            1..5 => drop(cache.read(lba, &content)),
            _ => drop(cache.write(lba, &content)),
        }
    }
}

/// The most allocations of a second run of as many requests. Some shard of the simulated metadata
/// region holds more than ever before.
const GROWN_MAX: u64 = 10;

#[test]
fn requests_do_not_allocate() {
    for policy in [WritePolicy::Through, WritePolicy::Around, WritePolicy::Back] {
        let config = AustereConfig::new(512 * (32 << 10), 32 << 10, true);
        let mut cache = AustereCache::new(config, policy).expect("a cache");
        let mut rng = Rng::new(7);
        // The sketch's table of large counts, the metadata region and the list of destaged chunks
        // grow to their final size.
        run(&mut cache, &mut rng, 100_000);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "allocations are counted");
        run(&mut cache, &mut rng, 100_000);
        let since = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(since <= GROWN_MAX, "{policy:?}: {since} allocations");
        assert!(cache.traffic().chunks_evicted > 10_000 || policy == WritePolicy::Around);
    }
}
