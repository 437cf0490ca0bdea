//! The RAM that caches of equal slots and of WEUs say that they have, against what they really allocate: counted by the allocator.
//!
//! One test in its process, so that nothing else allocates meanwhile.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
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
use larder_sim::replay::own_content;
use larder_sim::{
    cache::{ReplayCache, WritePolicy},
    slotted::SlottedCache,
    weu::{WeuCache, sizing::WeuSizing},
};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Replays a loop that is larger than the cache, with overwrites and trims; all that is allocated is told.
fn check(name: &str, design: impl FnOnce() -> Box<dyn ReplayCache>) {
    let before = LIVE_BYTES.load(Relaxed);
    let mut cache = design();
    let fixed = LIVE_BYTES.load(Relaxed) - before - cache.figures().index_ram_bytes as i64;
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
            let live = LIVE_BYTES.load(Relaxed) - before - fixed;
            assert_eq!(live, cache.figures().index_ram_bytes as i64, "{name}, step {step}");
        }
    }
    let told = cache.figures().index_ram_bytes;
    assert!(told > 2000 * 16, "{name} has its index in RAM");
    drop(cache);
    assert_eq!(LIVE_BYTES.load(Relaxed), before, "{name} gives all of it back");
}

fn boxed(design: impl Slotted + 'static) -> Box<dyn ReplayCache> {
    Box::new(SlottedCache::new(design, WritePolicy::Back, 4096))
}

/// Of what is dirty Nitro and CD-ARC keep a list besides, which is none of the indices.
fn over_weus(design: impl FnOnce(DesignConfig) -> Box<dyn Design>) -> Box<dyn ReplayCache> {
    let sizing =
        WeuSizing { weu_bytes: 512 << 10, ..WeuSizing::new(FlashSize::DataChunks(2000), 4096, WritePolicy::Through) };
    Box::new(WeuCache::new(design, sizing.options().expect("a size that works")).expect("options that work"))
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
