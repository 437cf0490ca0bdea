//! Devices that only measurements need.
//!
//! [`SteadyRam`] is memory that is there from the start and stays (a RAM disk): no page fault is charged to the cache.
//! [`Sink`] keeps its first bytes and forgets the others: a large flash that takes no memory, for counting the cache's
//! own. [`Made`] makes up what it is read: an origin that costs a copy.
//!
//! What they do not do: fail, or take time.

use larder_device::{
    BlockDevice, DeviceInfo, IoBuf, IoFuture, SharedBuf, WriteFlags, ZeroFlags, ram::RamDevice, rng::mix64,
};

/// A RAM device whose memory was touched, and which ignores discards.
pub struct SteadyRam {
    inner: RamDevice,
    info: DeviceInfo,
}

impl SteadyRam {
    /// A device of `size_bytes`, the first `present_bytes` of which are there from the start.
    pub fn new(size_bytes: u64, present_bytes: u64) -> SteadyRam {
        let inner = RamDevice::new("ram", size_bytes, 512);
        let info = DeviceInfo { discard_zeroes: false, ..inner.info().clone() };
        let piece = IoBuf::copy_of(&vec![0xa5; 1 << 20]).freeze();
        for at in (0..present_bytes.min(size_bytes)).step_by(piece.len()) {
            let len = (piece.len() as u64).min(size_bytes - at) as usize;
            drop(inner.write(at, piece.slice(0..len), WriteFlags::default()));
        }
        SteadyRam { inner, info }
    }
}

impl BlockDevice for SteadyRam {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.inner.write(offset, data, flags)
    }
    fn flush(&self) -> IoFuture<()> {
        self.inner.flush()
    }
    fn discard(&self, _offset: u64, _len: u64) -> IoFuture<()> {
        IoFuture::ready(Ok(()))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.inner.write_zeroes(offset, len, flags)
    }
}

/// Keeps what is written below `kept_bytes`.
pub struct Sink {
    kept: RamDevice,
    info: DeviceInfo,
}

impl Sink {
    /// A device of `size_bytes`.
    pub fn new(size_bytes: u64, kept_bytes: u64) -> Sink {
        let kept = RamDevice::new("sink", kept_bytes, 512);
        let info = DeviceInfo { size_bytes, discard_zeroes: false, ..kept.info().clone() };
        Sink { kept, info }
    }

    fn keeps(&self, offset: u64, len: u64) -> bool {
        offset + len <= self.kept.info().size_bytes
    }
}

impl BlockDevice for Sink {
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

/// An origin whose content is made from a template as it is read: each 4 KiB block begins with a number of its own.
pub struct Made {
    info: DeviceInfo,
    template: Vec<u8>,
}

impl Made {
    /// A device of `size_bytes` whose blocks look like those of `template`, a multiple of 4 KiB long.
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
