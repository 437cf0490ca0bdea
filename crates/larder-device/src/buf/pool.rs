//! The memory of buffers: fresh from the system, or kept from an earlier buffer.
//!
//! Kept memory saves the faults of fresh pages. Large pieces are mapped one by one, so each of them
//! goes back to the system by itself, beside any other allocation.
//!
//! Invariants: each size class keeps a bounded number of bytes, and all of them together 272 MiB.
//! [`give_back`] frees the kept memory that stayed unused since the last call.
//!
//! It does not decide when to give back; that needs a clock and a thread.

use parking_lot::Mutex;
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ptr::{NonNull, null_mut},
};

/// Alignment of every allocation, in bytes: the most that O_DIRECT needs.
pub const BUF_ALIGN: usize = 4096;

/// Allocations of up to this many bytes are kept for reuse.
const POOLED_BYTES_MAX: usize = 4 << 20;
/// Bytes kept for reuse in each size class below 1 MiB.
const CLASS_BYTES_MAX: usize = 16 << 20;
/// Bytes kept in each class from 1 MiB on: the segments that a cache has in flight. Fresh memory
/// for them would fault page by page.
const LARGE_CLASS_BYTES_MAX: usize = 48 << 20;
/// Size classes: powers of two from 4 KiB to 4 MiB.
const CLASSES: usize = (POOLED_BYTES_MAX / BUF_ALIGN).ilog2() as usize + 1;
/// Allocations of at least this many bytes are mapped, not taken from the allocator.
const MAPPED_BYTES_MIN: usize = 64 << 10;
/// A call trims the allocator when at least this much memory went back to it.
const TRIMMED_BYTES_MIN: usize = 1 << 20;

/// The pool of the process.
pub static POOL: Pool = Pool::new();

/// Memory, owned and initialised, until `take` moves it out.
pub struct Raw {
    ptr: NonNull<u8>,
    /// 0 after the memory was moved out.
    bytes: usize,
}

// SAFETY: a `Raw` is a plain owned allocation; nothing about it belongs to a thread.
unsafe impl Send for Raw {}

impl Raw {
    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Moves the memory out and leaves an empty piece.
    pub fn take(&mut self) -> Raw {
        Raw { ptr: self.ptr, bytes: std::mem::take(&mut self.bytes) }
    }

    fn fresh(bytes: usize) -> Raw {
        let ptr = if bytes >= MAPPED_BYTES_MIN { map(bytes) } else { allocate(bytes) };
        let Some(ptr) = ptr else { handle_alloc_error(layout(bytes)) };
        Raw { ptr, bytes }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        match self.bytes {
            0 => {}
            // SAFETY: mapped by `fresh` with this length, and no handle is left.
            MAPPED_BYTES_MIN.. => unsafe { _ = libc::munmap(self.as_ptr().cast(), self.bytes) },
            // SAFETY: allocated by `fresh` with this layout, and no handle is left.
            _ => unsafe { dealloc(self.as_ptr(), layout(self.bytes)) },
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, BUF_ALIGN).expect("a buffer's size fits the address space")
}

fn allocate(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { alloc_zeroed(layout(bytes)) })
}

/// Maps zeroed pages, which are aligned to [`BUF_ALIGN`].
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping of a length that is not zero; it overlaps nothing.
    let ptr = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if ptr == libc::MAP_FAILED { None } else { NonNull::new(ptr.cast()) }
}

fn class_of(bytes: usize) -> Option<usize> {
    let class = (bytes / BUF_ALIGN).next_power_of_two().ilog2() as usize;
    (bytes <= POOLED_BYTES_MAX).then_some(class)
}

/// Returns the bytes of the piece for a buffer of `len` bytes.
pub fn allocated(len: usize) -> usize {
    let rounded = len.max(1).next_multiple_of(BUF_ALIGN);
    class_of(rounded).map_or(rounded, |class| BUF_ALIGN << class)
}

/// Returns the bytes of memory that a buffer of `len` bytes costs.
///
/// The allocator aligns a small piece to [`BUF_ALIGN`] with its own header before it, so it spends
/// a page more on each.
pub fn cost(len: usize) -> usize {
    let bytes = allocated(len);
    if bytes < MAPPED_BYTES_MIN { bytes + BUF_ALIGN } else { bytes }
}

/// Memory of one size, kept.
struct Class {
    kept: Vec<Raw>,
    /// The fewest pieces kept since the last return of memory: this many stayed unused.
    unwanted: usize,
}

/// The pool, as the module describes it.
pub struct Pool([Mutex<Class>; CLASSES]);

impl Pool {
    const fn new() -> Pool {
        Pool([const { Mutex::new(Class { kept: Vec::new(), unwanted: 0 }) }; CLASSES])
    }

    /// Takes memory for `len` bytes. The flag is set for fresh memory, which is all zeroes.
    pub fn take(&self, len: usize) -> (Raw, bool) {
        let bytes = allocated(len);
        if let Some(class) = class_of(bytes).and_then(|class| self.0.get(class)) {
            let mut class = class.lock();
            if let Some(raw) = class.kept.pop() {
                class.unwanted = class.unwanted.min(class.kept.len());
                return (raw, false);
            }
        }
        (Raw::fresh(bytes), true)
    }

    /// Keeps memory for reuse, or frees it when the class is full.
    pub fn keep(&self, raw: Raw) {
        let kept_max = if raw.bytes < 1 << 20 { CLASS_BYTES_MAX } else { LARGE_CLASS_BYTES_MAX };
        if let Some(class) = class_of(raw.bytes).and_then(|class| self.0.get(class)) {
            let mut class = class.lock();
            if class.kept.len() * raw.bytes < kept_max {
                class.kept.push(raw);
            }
        }
    }

    /// Frees the kept memory that stayed unused since the last call. Returns its bytes.
    fn free_unwanted(&self) -> usize {
        let mut freed = 0;
        for class in &self.0 {
            let unwanted: Vec<Raw> = {
                let mut class = class.lock();
                let unwanted = class.unwanted;
                class.unwanted = class.kept.len() - unwanted;
                // The oldest pieces lie first.
                class.kept.drain(..unwanted).collect()
            };
            freed += unwanted.iter().map(|raw| raw.bytes).sum::<usize>();
        }
        freed
    }
}

/// Gives back the memory that stayed unused since the last call. Returns its bytes.
///
/// The caller repeats this regularly, seconds apart.
pub fn give_back() -> usize {
    let freed = POOL.free_unwanted();
    if freed >= TRIMMED_BYTES_MIN {
        trim_allocator();
    }
    freed
}

/// Makes the allocator give its free memory back.
fn trim_allocator() {
    // SAFETY: a plain call; it touches free memory only.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_takes_what_its_class_has() {
        assert_eq!([1, 4096, 4097, 12288].map(allocated), [4096, 4096, 8192, 16384]);
        assert_eq!(allocated((4 << 20) + 1), (4 << 20) + 4096);
        assert_eq!([1, 4096, 32 << 10, 64 << 10].map(cost), [8192, 8192, 36 << 10, 64 << 10]);
    }

    #[test]
    fn memory_that_no_buffer_wants_goes_back_and_the_rest_stays() {
        let pool = Pool::new();
        for bytes in [4096, 64 << 10, 1 << 20] {
            let all: Vec<Raw> = (0..8).map(|_| pool.take(bytes).0).collect();
            all.into_iter().for_each(|raw| pool.keep(raw));
            // The first look starts the interval in which they stay unused.
            assert_eq!(pool.free_unwanted(), 0);
            // Three are in use at once meanwhile; they come from the kept memory.
            let wanted: Vec<(Raw, bool)> = (0..3).map(|_| pool.take(bytes)).collect();
            assert!(wanted.iter().all(|(_, fresh)| !fresh));
            wanted.into_iter().for_each(|(raw, _)| pool.keep(raw));
            assert_eq!(pool.free_unwanted(), 5 * bytes);
            assert_eq!(pool.free_unwanted(), 3 * bytes);
            assert_eq!(pool.free_unwanted(), 0);
            assert!(pool.take(bytes).1, "a fresh one");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_in_each_class() {
        let pool = Pool::new();
        for (bytes, kept_max) in [(64 << 10, CLASS_BYTES_MAX), (2 << 20, LARGE_CLASS_BYTES_MAX)] {
            let all: Vec<Raw> = (0..kept_max / bytes + 5).map(|_| pool.take(bytes).0).collect();
            all.into_iter().for_each(|raw| pool.keep(raw));
            pool.free_unwanted();
            assert_eq!(pool.free_unwanted(), kept_max);
        }
        pool.keep(pool.take(POOLED_BYTES_MAX + 1).0);
        assert_eq!(pool.free_unwanted() + pool.free_unwanted(), 0, "large ones are not kept");
    }

    #[test]
    fn fresh_memory_is_zero_whatever_its_size() {
        for bytes in [4096, MAPPED_BYTES_MIN, (4 << 20) + 4096] {
            let raw = Raw::fresh(bytes);
            // SAFETY: the memory has this many bytes, and this is its only handle.
            let content = unsafe { std::slice::from_raw_parts_mut(raw.as_ptr(), bytes) };
            assert!(content.iter().all(|&byte| byte == 0));
            assert_eq!(raw.as_ptr() as usize % BUF_ALIGN, 0);
            content.fill(1);
        }
    }
}
