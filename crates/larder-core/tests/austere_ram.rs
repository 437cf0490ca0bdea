//! AustereCache with a maximum for its large counts never allocates more than that and its indices.
//!
//! The growth of a table, and a recount, are included: every byte that the test's thread allocates
//! is counted.
//!
//! It does not count allocations of other threads, such as the one that waits for the test.

mod common;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use common::{Rng, for_seeds};
use larder_core::{
    Fingerprint, Lba,
    austere::{Austere, AustereConfig},
};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// True on the test's thread.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count(bytes: i64) {
    if !IS_COUNTED.get() {
        return;
    }
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
    PEAK_BYTES.fetch_max(live, Relaxed);
}

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

const CHUNK: u32 = 4096;

fn content(number: u64) -> Fingerprint {
    Fingerprint(u128::from(number).to_le_bytes())
}

#[test]
fn large_counts_keep_to_their_bytes_at_every_moment() {
    IS_COUNTED.set(true);
    for_seeds(0..24, |seed| {
        let mut rng = Rng::new(seed);
        let entries = 128 * (1 + rng.below(20));
        let most = rng.one_of(&[0u64, 1, 8, 64, 100, 1000, 5000, 1 << 30]);
        let config = AustereConfig {
            lba_entries: Some(entries),
            large_counts_bytes_max: Some(most),
            is_write_back: true,
            ..AustereConfig::new(1024 * u64::from(CHUNK), CHUNK, true)
        };
        let live = LIVE_BYTES.load(Relaxed);
        let austere = Austere::new(config).expect("a cache");
        let at_first = austere.ram().bytes() as i64;
        PEAK_BYTES.store(LIVE_BYTES.load(Relaxed), Relaxed);
        let mut changes = 0;
        for step in 0..20_000u64 {
            let lba = Lba(rng.below(entries * 2));
            // Some 14 addresses have a content at first, and then some 2: counts become large, and
            // small again.
            let group = if step < 12_000 { 14 } else { 2 };
            match rng.below(12) {
                0 => austere.forget(lba),
                1..4 => austere.touch(lba),
                _ => drop(austere.map(lba, &content(lba.0 / group), false)),
            }
            changes += i64::from(austere.ram().bytes() as i64 != at_first);
            let told = LIVE_BYTES.load(Relaxed) - live;
            assert_eq!(told, austere.ram().bytes() as i64, "what it tells is what is allocated");
        }
        let peak = PEAK_BYTES.load(Relaxed) - live;
        assert!(peak <= at_first + most as i64, "{peak} bytes, with {at_first} and {most}");
        assert!(most < 100 || changes > 0, "some counts are large");
        austere.check();
    });
}
