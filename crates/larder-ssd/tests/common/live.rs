//! The system's allocator with two counts: the live bytes, and their peak.
//!
//! Invariants: while the counts are off, they cost one relaxed load an allocation, so that timings
//! do not feel them.
//!
//! It does not tell the origin of an allocation.

#![allow(dead_code, reason = "each program that includes this file uses a part of it")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

static IS_ON: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with the counts.
pub struct Counting;

fn note(bytes: i64) {
    if IS_ON.load(Relaxed) {
        let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
        PEAK_BYTES.fetch_max(live, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises pass to the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises pass to the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller's promises pass to the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises pass to the system's allocator.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Counts from zero until it is dropped.
pub struct Live(());

impl Live {
    /// Begins to count.
    pub fn begin() -> Live {
        LIVE_BYTES.store(0, Relaxed);
        PEAK_BYTES.store(0, Relaxed);
        IS_ON.store(true, Relaxed);
        Live(())
    }

    /// Returns the bytes allocated since the beginning and not freed.
    pub fn bytes(&self) -> i64 {
        LIVE_BYTES.load(Relaxed)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        IS_ON.store(false, Relaxed);
    }
}

/// Runs `work`; returns the peak of the bytes that it allocated, and its result.
pub fn peak<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let live = Live::begin();
    let result = work();
    drop(live);
    (PEAK_BYTES.load(Relaxed).max(0) as u64, result)
}
