//! [`LaterDevice`]: a device whose description is known before it is open.
//!
//! Role: a server takes its addresses before the cache is opened, so that an address in use is
//! refused while nothing was changed yet. Servers need a device at their creation; they get this
//! one.
//!
//! Before [`LaterDevice::set`] it does not serve: requests fail as on a device that is gone.

use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, SharedBuf, WriteFlags, ZeroFlags,
};
use std::sync::{Arc, OnceLock};

/// A device that is set later; see the module.
pub struct LaterDevice {
    info: DeviceInfo,
    device: OnceLock<Arc<dyn BlockDevice>>,
}

impl LaterDevice {
    /// Returns a device that will be as `info` says.
    pub fn new(info: DeviceInfo) -> LaterDevice {
        LaterDevice { info, device: OnceLock::new() }
    }

    /// Sets the device; the first call counts.
    pub fn set(&self, device: Arc<dyn BlockDevice>) {
        // Clients were told of the first device, which a second one could not be.
        let _ = self.device.set(device);
    }

    fn with<T: Send + 'static>(
        &self,
        op: IoOp,
        offset: u64,
        len: u64,
        start: impl FnOnce(&dyn BlockDevice) -> IoFuture<T>,
    ) -> IoFuture<T> {
        match self.device.get() {
            Some(device) => start(&**device),
            None => IoFuture::ready(Err(IoError::new(IoErrorKind::Gone, op, offset, len))),
        }
    }
}

impl BlockDevice for LaterDevice {
    fn info(&self) -> &DeviceInfo {
        self.device.get().map_or(&self.info, |device| device.info())
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.with(IoOp::Read, offset, buf.len() as u64, |device| device.read(offset, buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.with(IoOp::Write, offset, data.len() as u64, |device| device.write(offset, data, flags))
    }

    fn flush(&self) -> IoFuture<()> {
        self.with(IoOp::Flush, 0, 0, |device| device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.with(IoOp::Discard, offset, len, |device| device.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.with(IoOp::WriteZeroes, offset, len, |device| device.write_zeroes(offset, len, flags))
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.with(IoOp::Extents, offset, len, |device| device.extents(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{driver::block_on, ram::RamDevice};

    #[test]
    fn requests_fail_until_the_device_is_there() {
        let ram: Arc<dyn BlockDevice> = Arc::new(RamDevice::new("ram", 8192, 512));
        let later = LaterDevice::new(ram.info().clone());
        assert_eq!(block_on(later.read(0, IoBuf::new(512))).expect_err("no device yet").kind, IoErrorKind::Gone);
        later.set(ram);
        assert!(block_on(later.read(0, IoBuf::new(512))).is_ok());
    }
}
