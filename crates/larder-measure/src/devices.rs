//! Devices that only measurements need.
//!
//! [`FlatRam`] is flat memory in huge pages that is there from the start and stays, like the memory
//! of a RAM disk. So the cache is not charged for page faults or for the tables of a sparse device.
//! [`Memory`] is the same for the other side. [`Sink`] keeps its first bytes and forgets the
//! others: a large flash that takes no memory, for counting the cache's own. [`Made`] makes up the
//! content that is read: an origin that costs a copy.
//!
//! They do not fail, or take time.

use larder_device::{
    BlockDevice, DeviceInfo, IoBuf, IoFuture, IoOp, SharedBuf, WriteFlags, ZeroFlags, ram::RamDevice, rng::mix64,
};
use std::{
    hint::black_box,
    io,
    ptr::{self, NonNull},
    sync::RwLock,
};

/// Bytes behind one lock.
const STRIPE_BYTES: usize = 64 << 10;

/// Zeroed memory in huge pages, if the system has them.
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, which belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` hands out its address; the user of that address keeps writers apart
// from all other threads.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves `bytes`; they take memory at their first touch.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a new mapping, at any address of the system's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        let Some(start) = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the range is the mapping just made. It is advice: small pages do as well.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Memory { start, bytes })
    }

    /// Returns all of it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is alive, zeroed by the system, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A RAM disk: flat memory, present from the start, that ignores discards.
pub struct FlatRam {
    memory: Memory,
    /// One lock for each stripe. A copy into a stripe holds its lock alone.
    locks: Box<[RwLock<()>]>,
    info: DeviceInfo,
}

impl FlatRam {
    /// Makes a device of `size_bytes` zeroes, the first `present_bytes` of which are touched.
    pub fn new(size_bytes: u64, present_bytes: u64) -> io::Result<FlatRam> {
        let mut memory = Memory::new(size_bytes as usize)?;
        let present = present_bytes.min(size_bytes) as usize;
        memory.bytes_mut().iter_mut().take(present).step_by(4096).for_each(|byte| *byte = black_box(0));
        let info = RamDevice::new("flat RAM", size_bytes, 512).info().clone();
        let locks = (0..size_bytes.div_ceil(STRIPE_BYTES as u64)).map(|_| RwLock::default()).collect();
        Ok(FlatRam { memory, locks, info: DeviceInfo { discard_zeroes: false, zeroes_fast: false, ..info } })
    }

    /// Calls `copy` for each stripe of an operation. It gets the stripe's lock, its address, its
    /// start in the operation, and its length. The range must have passed [`DeviceInfo::check`].
    fn pieces(&self, offset: u64, len: usize, mut copy: impl FnMut(&RwLock<()>, *mut u8, usize, usize)) {
        let mut done = 0;
        while done < len {
            let at = offset as usize + done;
            let part = (STRIPE_BYTES - at % STRIPE_BYTES).min(len - done);
            assert!(at + part <= self.memory.bytes, "the range was checked");
            if let Some(lock) = self.locks.get(at / STRIPE_BYTES) {
                // SAFETY: inside the mapping, as just asserted.
                copy(lock, unsafe { self.memory.start.as_ptr().add(at) }, done, part);
            }
            done += part;
        }
    }
}

impl BlockDevice for FlatRam {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        if let Err(error) = self.info.check(IoOp::Read, offset, buf.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        let to = buf.as_mut_ptr();
        self.pieces(offset, buf.len(), |lock, from, done, len| {
            let _guard = lock.read();
            // SAFETY: the source is mapped, and the lock keeps writers away from it; the target is
            // the buffer's.
            unsafe { ptr::copy_nonoverlapping(from, to.add(done), len) };
        });
        IoFuture::ready(Ok(buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, _flags: WriteFlags) -> IoFuture<()> {
        if let Err(error) = self.info.check(IoOp::Write, offset, data.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        let from = data.as_ptr();
        self.pieces(offset, data.len(), |lock, to, done, len| {
            let _guard = lock.write();
            // SAFETY: the source is the caller's data; the target is mapped, and the lock keeps all
            // other threads away.
            unsafe { ptr::copy_nonoverlapping(from.add(done), to, len) };
        });
        IoFuture::ready(Ok(()))
    }
    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn discard(&self, _offset: u64, _len: u64) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn write_zeroes(&self, offset: u64, len: u64, _flags: ZeroFlags) -> IoFuture<()> {
        self.write(offset, IoBuf::zeroed(len as usize).freeze(), WriteFlags::default())
    }
}

/// A device that keeps only its bytes below `kept_bytes`.
pub struct Sink<D = RamDevice> {
    kept: D,
    info: DeviceInfo,
}

impl Sink {
    /// Makes a device of `size_bytes`.
    pub fn new(size_bytes: u64, kept_bytes: u64) -> Sink {
        Sink::over(RamDevice::new("sink", kept_bytes, 512), size_bytes)
    }
}

impl<D: BlockDevice> Sink<D> {
    /// Makes a device of `size_bytes` whose beginning is kept in `kept`.
    pub fn over(kept: D, size_bytes: u64) -> Sink<D> {
        let info = DeviceInfo { size_bytes, discard_zeroes: false, ..kept.info().clone() };
        Sink { kept, info }
    }

    /// Returns the number of kept bytes.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.info().size_bytes
    }

    fn keeps(&self, offset: u64, len: u64) -> bool {
        offset + len <= self.kept_bytes()
    }
}

impl<D: BlockDevice> BlockDevice for Sink<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        if self.keeps(offset, buf.len() as u64) {
            return self.kept.read(offset, buf);
        }
        buf.fill(0);
        IoFuture::ready(Ok(buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        if self.keeps(offset, data.len() as u64) {
            return self.kept.write(offset, data, flags);
        }
        IoFuture::ready(Ok(()))
    }
    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn discard(&self, _offset: u64, _len: u64) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        if self.keeps(offset, len) {
            return self.kept.write_zeroes(offset, len, flags);
        }
        IoFuture::ready(Ok(()))
    }
}

/// An origin that makes its content from a template when it is read. Each 4 KiB block begins with a
/// number of its own.
pub struct Made {
    info: DeviceInfo,
    template: Vec<u8>,
}

impl Made {
    /// Makes a device of `size_bytes` whose blocks look like those of `template`, a multiple of 4
    /// KiB long.
    pub fn new(size_bytes: u64, template: Vec<u8>) -> Made {
        let info = RamDevice::new("made", size_bytes, 512).info().clone();
        Made { info, template }
    }
}

impl BlockDevice for Made {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        const BLOCK: usize = 4096;
        let blocks = self.template.len() / BLOCK;
        // The measurements read whole blocks.
        for (number, out) in (offset / BLOCK as u64..).zip(buf.chunks_mut(BLOCK)) {
            let from = (mix64(number) as usize % blocks) * BLOCK;
            if let Some(block) = self.template.get(from..from + out.len()) {
                out.copy_from_slice(block);
            }
            if let Some(stamp) = out.get_mut(..8) {
                stamp.copy_from_slice(&mix64(number).to_le_bytes());
            }
        }
        IoFuture::ready(Ok(buf))
    }
    fn write(&self, _offset: u64, _data: SharedBuf, _flags: WriteFlags) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn flush(&self) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn discard(&self, _offset: u64, _len: u64) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn write_zeroes(&self, _offset: u64, _len: u64, _flags: ZeroFlags) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::driver::block_on;

    #[test]
    fn flat_ram_keeps_what_is_written_across_stripes() {
        let device = FlatRam::new(1 << 20, 1 << 20).unwrap();
        let data: Vec<u8> = (0..200 << 10).map(|i: u32| (i / 7) as u8).collect();
        block_on(device.write(512, IoBuf::copy_of(&data).freeze(), WriteFlags::default())).unwrap();
        let read = block_on(device.read(512, IoBuf::new(data.len()))).unwrap();
        assert_eq!(&read[..], &data[..]);
        assert!(block_on(device.read((1 << 20) - 512, IoBuf::new(1024))).is_err(), "past the end");
    }
}
