//! An allocator that counts, so that a target can limit the memory of an input.
//!
//! Role: a test or a fuzz target installs it with
//! `#[global_allocator] static ALLOCATOR: Counting = Counting;`.
//!
//! Invariants: counts are of one thread, so tests side by side do not disturb each other.
//!
//! It does not see the allocations of C code.

#![allow(dead_code, reason = "each crate that includes this file uses a part of it")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    /// Bytes that this thread allocated and did not free. Bytes that another thread frees stay
    /// counted.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counting;

fn count(bytes: isize) {
    // A thread that is ending may allocate without its counters.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
}

/// Runs `f`. Returns its result, and the most bytes that this thread held meanwhile beyond those
/// before. 0 if the allocator is not installed.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// Returns whether this program counts its allocations.
pub fn is_installed() -> bool {
    peak_of(|| drop(std::hint::black_box(vec![1_u8; 1 << 16]))).1 >= 1 << 16
}
