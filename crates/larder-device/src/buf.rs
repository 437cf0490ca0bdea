//! Buffers for device I/O: aligned, owned while an operation runs, split without copying, pooled.
//!
//! [`IoBuf`] is the only handle to its range of an allocation and may be written; [`SharedBuf`] is
//! a shared, read-only handle. An `IoBuf` splits into disjoint pieces, each exclusive to its
//! holder. The pieces join again, and freeze into a `SharedBuf`.
//!
//! Invariants: at any time each byte of an allocation is covered by at most one `IoBuf`, and by no
//! `SharedBuf` while an `IoBuf` covers it. Allocations start at a multiple of [`BUF_ALIGN`] bytes
//! and are always initialised.
//!
//! It does not bound the memory in use. Front ends and the engine do that with named limits; `pool`
//! bounds the memory kept for reuse.

mod pool;

pub use pool::{BUF_ALIGN, give_back};

use pool::{POOL, Raw};
use std::{
    fmt,
    ops::{Deref, DerefMut, Range},
    sync::Arc,
};

/// One allocation. The last handle's drop frees it, or keeps it for reuse.
struct Alloc(Raw);

// SAFETY: the bytes are reached only through `IoBuf` (exclusive range) and `SharedBuf` (read-only
// range).
unsafe impl Sync for Alloc {}

impl Alloc {
    /// Allocates memory. The flag is set for fresh memory, which is all zeroes.
    fn new(len: usize) -> (Alloc, bool) {
        let (raw, fresh) = POOL.take(len);
        (Alloc(raw), fresh)
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        POOL.keep(self.0.take());
    }
}

/// An exclusive, writable range of an aligned allocation.
pub struct IoBuf {
    alloc: Arc<Alloc>,
    start: usize,
    len: usize,
}

impl IoBuf {
    /// Returns a buffer of `len` bytes with arbitrary content: zeroes or the bytes of an earlier
    /// buffer.
    pub fn new(len: usize) -> Self {
        IoBuf { alloc: Arc::new(Alloc::new(len).0), start: 0, len }
    }

    /// Returns the bytes of memory that a buffer of `len` bytes costs.
    pub fn cost(len: usize) -> usize {
        pool::cost(len)
    }

    /// Returns a buffer of `len` zeroes.
    pub fn zeroed(len: usize) -> Self {
        let (alloc, fresh) = Alloc::new(len);
        let mut buf = IoBuf { alloc: Arc::new(alloc), start: 0, len };
        if !fresh {
            buf.fill(0);
        }
        buf
    }

    /// Returns a buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = IoBuf::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Takes the first `at` bytes off into a buffer of their own; `self` keeps the rest.
    ///
    /// # Panics
    /// If `at` is greater than the length.
    pub fn split_to(&mut self, at: usize) -> IoBuf {
        assert!(at <= self.len, "split at {at} of a buffer of {} bytes", self.len);
        let head = IoBuf { alloc: self.alloc.clone(), start: self.start, len: at };
        self.start += at;
        self.len -= at;
        head
    }

    /// Joins `tail` onto the end again. Gives `tail` back if it does not follow this buffer in the
    /// same allocation.
    pub fn unsplit(&mut self, tail: IoBuf) -> Result<(), IoBuf> {
        if Arc::ptr_eq(&self.alloc, &tail.alloc) && self.start + self.len == tail.start {
            self.len += tail.len;
            Ok(())
        } else {
            Err(tail)
        }
    }

    /// Shortens the buffer to `len` bytes and gives up the rest.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Turns the buffer into a shared, read-only one.
    pub fn freeze(self) -> SharedBuf {
        SharedBuf { alloc: self.alloc, start: self.start, len: self.len }
    }

    /// Returns the address of the first byte, for a kernel interface.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: `start` lies inside the allocation.
        unsafe { self.alloc.0.as_ptr().add(self.start) }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the allocation, initialised, and exclusive to `self`.
        unsafe { std::slice::from_raw_parts(self.alloc.0.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.alloc.0.as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

/// A shared, read-only range of an aligned allocation.
#[derive(Clone)]
pub struct SharedBuf {
    alloc: Arc<Alloc>,
    start: usize,
    len: usize,
}

impl SharedBuf {
    /// Returns the part `range` of this buffer, sharing its memory.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn slice(&self, range: Range<usize>) -> SharedBuf {
        assert!(range.start <= range.end && range.end <= self.len, "slice {range:?} of {} bytes", self.len);
        SharedBuf { alloc: self.alloc.clone(), start: self.start + range.start, len: range.end - range.start }
    }

    /// Turns the buffer back into a writable one. Copies it if another handle shares the
    /// allocation.
    pub fn into_iobuf(mut self) -> IoBuf {
        if Arc::get_mut(&mut self.alloc).is_some() {
            IoBuf { alloc: self.alloc, start: self.start, len: self.len }
        } else {
            IoBuf::copy_of(&self)
        }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the allocation and initialised, and no `IoBuf` covers it.
        unsafe { std::slice::from_raw_parts(self.alloc.0.as_ptr().add(self.start), self.len) }
    }
}

impl From<IoBuf> for SharedBuf {
    fn from(buf: IoBuf) -> Self {
        buf.freeze()
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_pieces_are_disjoint_and_join_again() {
        let mut buf = IoBuf::zeroed(8192);
        assert_eq!(buf.as_ptr() as usize % BUF_ALIGN, 0);
        let mut head = buf.split_to(512);
        head.fill(1);
        buf.fill(2);
        assert!(head.iter().all(|&b| b == 1));
        head.unsplit(buf).expect("adjacent");
        assert_eq!(head.len(), 8192);
        assert_eq!((head[511], head[512]), (1, 2));
    }

    #[test]
    fn strangers_do_not_join() {
        let mut a = IoBuf::zeroed(512);
        assert!(a.unsplit(IoBuf::zeroed(512)).is_err());
    }

    #[test]
    fn a_shared_allocation_is_copied_before_it_is_written() {
        let shared = IoBuf::copy_of(&[7; 1024]).freeze();
        let part = shared.slice(512..1024);
        let mut copy = shared.into_iobuf();
        copy.fill(9);
        assert!(part.iter().all(|&b| b == 7));
        let mut own = part.into_iobuf();
        own.fill(3);
        assert!(own.iter().all(|&b| b == 3));
    }

    #[test]
    fn pooled_memory_is_zeroed_when_asked() {
        for _ in 0..4 {
            let mut buf = IoBuf::zeroed(4096);
            assert!(buf.iter().all(|&b| b == 0));
            buf.fill(0xff);
        }
    }
}
