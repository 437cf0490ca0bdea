//! The reported RAM of caches of equal slots and of WEUs, against their allocations.
//!
//! The allocator counts only the test's own thread, since the harness has others.

#[allow(dead_code, unused_imports, reason = "another program uses the rest")]
mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use larder_core::{
    Decider, Design, DesignConfig, Lba, NewMapping, Place, SectorMap, StreamClass,
    arc::Arc,
    cd_arc::CdArc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    nitro::Nitro,
    ranges::Run,
    slotted::{FlashSize, Slotted},
};
use larder_sim::{
    cache::{ReplayCache, WritePolicy},
    executor::{Executor, sizing::WeuSizing},
    replay::own_content,
    slotted::SlottedCache,
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

/// Replays a loop that is larger than the cache, with overwrites and trims. The report covers all
/// allocations.
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

fn over_weus(policy: WritePolicy, design: impl FnOnce(DesignConfig) -> Box<dyn Design>) -> Box<dyn ReplayCache> {
    let sizing = WeuSizing { weu_bytes: 512 << 10, ..WeuSizing::new(FlashSize::DataChunks(2000), 4096, policy) };
    let cache = sizing.options().and_then(|options| Executor::new(design, options));
    Box::new(cache.expect("a cache"))
}

#[test]
fn index_ram_is_what_is_allocated() {
    check("lru", || boxed(Lru::new(2000).unwrap()));
    check("arc", || boxed(Arc::new(2000).unwrap()));
    check("d-lru", || boxed(DLru::new(2000, 5000).unwrap()));
    check("d-arc", || boxed(DArc::new(2000, 2000).unwrap()));
    for policy in [WritePolicy::Through, WritePolicy::Back] {
        check("nitro", || over_weus(policy, |config| Box::new(Nitro::new(config))));
        check("cd-arc", || over_weus(policy, |config| Box::new(CdArc::new(config))));
    }
}

/// Checks that the report covers dirty, fragmented and trimmed chunks. They come in order, strewn,
/// and while they go again.
fn check_dirty(name: &str, design: impl FnOnce(DesignConfig) -> Box<dyn Design>) {
    const CHUNKS: u64 = 200_000;
    let before = live_bytes();
    let config = DesignConfig { slot_count: 8, mappings_max: 1 << 30, fp_entries_max: 0 };
    let mut design = Decider::new(design(config));
    let fixed = live_bytes() - before - design.stats().ram_bytes() as i64;
    let told = |design: &Decider| {
        let stats = design.stats();
        assert_eq!(live_bytes() - before - fixed, stats.ram_bytes() as i64, "{name}: {stats:?}");
        stats.dirty_ram_bytes
    };
    let (slot, generation) = design.open_slot(StreamClass::Dirty).expect("a slot");
    let place = Place { slot, generation, offset: 0, stored_len: 512, crc: 0, encoding: 0 };
    assert_eq!(told(&design), 0, "nothing is dirty");
    for number in 0..CHUNKS {
        let lba = Lba(if number < CHUNKS / 2 { number } else { CHUNKS + number * 7919 % CHUNKS });
        match number % 4 {
            0 => design.trim(Run::new(lba, 1, number)),
            1 => design.map(lba, NewMapping::Fragment { place, sectors: SectorMap::EMPTY }, Some(number)),
            _ => design.map(lba, NewMapping::Zero, Some(number)),
        }
        if number % 10_000 == 0 {
            told(&design);
        }
    }
    let counts = design.dirty_counts();
    assert_eq!((counts.chunks, counts.fragments, counts.runs), (CHUNKS * 3 / 4, CHUNKS / 4, CHUNKS / 4));
    let full = told(&design);
    assert!(full > counts.chunks * 16 + counts.fragments * 40 + counts.runs * 32, "{name}: {full} bytes");
    while let [(first, _), ..] = design.dirty_from(Lba(0), 100)[..] {
        for (lba, seq) in design.dirty_from(first, 100) {
            assert!(design.mark_clean(lba, seq));
        }
    }
    assert!(told(&design) < full / 2, "{name} gives back what is clean");
    while let Some(run) = design.trimmed_from(Lba(0)) {
        design.mark_run_clean(&run);
    }
    assert_eq!(told(&design), 0, "{name} has nothing dirty any more");
}

#[test]
fn ram_for_what_is_dirty_is_what_is_allocated() {
    check_dirty("nitro", |config| Box::new(Nitro::new(config)));
    check_dirty("cd-arc", |config| Box::new(CdArc::new(config)));
}
