//! [`Counting`]: the system's allocator, with a switchable count of live bytes.
//!
//! Invariants: off, it costs one relaxed load an allocation, so that the timed measurements do not
//! feel it. On, it counts the requested bytes of the whole process, without the allocator's
//! overhead.
//!
//! It does not tell allocations apart by their caller.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

static ON: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// See the module.
pub struct Counting;

fn note(bytes: i64) {
    if ON.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Counts from zero until it is dropped.
pub struct Live(());

impl Live {
    /// Begins to count.
    pub fn begin() -> Live {
        LIVE.store(0, Relaxed);
        ON.store(true, Relaxed);
        Live(())
    }

    /// Returns the bytes allocated since the beginning and not freed.
    pub fn bytes(&self) -> i64 {
        LIVE.load(Relaxed)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        ON.store(false, Relaxed);
    }
}
