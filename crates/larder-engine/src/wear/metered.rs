//! A flash whose writes ask the account of the wear for their bytes.
//!
//! Invariants: a write begins once its bytes are granted. A superblock waits for nothing, because
//! it has the record that others wait for.
//!
//! It does not write records.

use super::account::{Taken, WearAccount};
use larder_device::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, Runtime, SharedBuf,
    Standing, WriteFlags, ZeroFlags,
};
use larder_format::layout::SUPERBLOCK_OFFSETS;
use std::sync::Arc;

/// See the module.
pub(crate) struct MeteredDevice {
    inner: Arc<dyn BlockDevice>,
    wear: Arc<WearAccount>,
    runtime: Arc<dyn Runtime>,
}

impl MeteredDevice {
    /// Returns `flash`, metered if there is a budget.
    pub(crate) fn over(
        flash: Arc<dyn BlockDevice>,
        wear: &Arc<WearAccount>,
        runtime: &Arc<dyn Runtime>,
    ) -> Arc<dyn BlockDevice> {
        match wear.is_limited() {
            true => Arc::new(MeteredDevice { inner: flash, wear: wear.clone(), runtime: runtime.clone() }),
            false => flash,
        }
    }
}

impl BlockDevice for MeteredDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let (len, is_record) = (data.len() as u64, SUPERBLOCK_OFFSETS.contains(&offset));
        if self.wear.take(self.runtime.now(), len, is_record) == Taken::Granted {
            return self.inner.write(offset, data, flags);
        }
        let (inner, wear, runtime) = (self.inner.clone(), self.wear.clone(), self.runtime.clone());
        IoFuture::boxed(async move {
            loop {
                let recorded = wear.listen_for_record();
                match wear.take(runtime.now(), len, is_record) {
                    Taken::Granted => return inner.write(offset, data, flags).await,
                    Taken::Later => recorded.await,
                    Taken::Never => {
                        let spent = IoError::new(IoErrorKind::NoSpace, IoOp::Write, offset, len);
                        return Err(spent.with_detail("the wear budget grants no more bytes"));
                    }
                }
            }
        })
    }

    fn flush(&self) -> IoFuture<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.inner.write_zeroes(offset, len, flags)
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.inner.extents(offset, len)
    }

    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        self.inner.change_mark()
    }

    fn look(&self) -> IoFuture<Standing> {
        self.inner.look()
    }
}
