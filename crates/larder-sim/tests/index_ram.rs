//! The RAM that caches of equal slots and of WEUs say that they have, against what they really allocate: counted by the allocator.
//!
//! Counted is what the test's own thread allocates: the harness has others.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use larder_core::{
    Design, DesignConfig, Lba,
    arc::Arc,
    cd_arc::CdArc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    nitro::Nitro,
    slotted::{FlashSize, Slotted},
};
use larder_sim::{
    cache::{ReplayCache, WritePolicy},
    replay::own_content,
    slotted::SlottedCache,
    weu::{WeuCache, sizing::WeuSizing},
};

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

fn count(bytes: i64) {
    // A thread that ends may free when its counter is gone.
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Replays a loop that is larger than the cache, with overwrites and trims; all that is allocated is told.
fn check(name: &str, design: impl FnOnce() -> Box<dyn ReplayCache>) {
    let before = live_bytes();
    let mut cache = design();
    let fixed = live_bytes() - before - cache.figures().index_ram_bytes as i64;
    assert!((0..2048).contains(&fixed), "{name}: {fixed} bytes of its own");
    for step in 0..60_000u64 {
        let lba = step * 7919 % 9000;
        match step % 16 {
            0 => cache.trim(Lba(lba)),
            1..8 => {
                cache.write(Lba(lba), &own_content(Lba(step % 5000), 4096));
            }
            _ => {
                cache.read(Lba(lba), &own_content(Lba(step % 3000), 4096));
            }
        }
        if step % 1000 == 0 {
            let live = live_bytes() - before - fixed;
            assert_eq!(live, cache.figures().index_ram_bytes as i64, "{name}, step {step}");
        }
    }
    let told = cache.figures().index_ram_bytes;
    assert!(told > 2000 * 16, "{name} has its index in RAM");
    drop(cache);
    assert_eq!(live_bytes(), before, "{name} gives all of it back");
}

fn boxed(design: impl Slotted + 'static) -> Box<dyn ReplayCache> {
    Box::new(SlottedCache::new(design, WritePolicy::Back, 4096))
}

/// Of what is dirty Nitro and CD-ARC keep a list besides, which is none of the indices.
fn over_weus(design: impl FnOnce(DesignConfig) -> Box<dyn Design>) -> Box<dyn ReplayCache> {
    let sizing =
        WeuSizing { weu_bytes: 512 << 10, ..WeuSizing::new(FlashSize::DataChunks(2000), 4096, WritePolicy::Through) };
    let cache = sizing.options().and_then(|options| WeuCache::new(design, options));
    Box::new(cache.expect("a cache"))
}

#[test]
fn index_ram_is_what_is_allocated() {
    check("lru", || boxed(Lru::new(2000).unwrap()));
    check("arc", || boxed(Arc::new(2000).unwrap()));
    check("d-lru", || boxed(DLru::new(2000, 5000).unwrap()));
    check("d-arc", || boxed(DArc::new(2000, 2000).unwrap()));
    check("nitro", || over_weus(|config| Box::new(Nitro::new(config))));
    check("cd-arc", || over_weus(|config| Box::new(CdArc::new(config))));
}
