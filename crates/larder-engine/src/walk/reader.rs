//! [`Reader`]: a flash to read, with workers that decode and a progress to update.
//!
//! Invariant: it does not write.
//!
//! It knows no structure.

use crate::error::EngineError;
use larder_device::{BlockDevice, IoBuf, Runtime, runtime::compute};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes of one read.
pub const READ_BYTES: u64 = 1 << 20;

/// Limit of reads in flight.
pub const READS_IN_FLIGHT: usize = 8;

/// The progress of a recovery, for a program that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes_read: AtomicU64,
    bytes_to_read: AtomicU64,
}

impl Progress {
    /// Returns the bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Returns the bytes to read in all, as far as is known; 0 before the first read.
    ///
    /// The length of the log shows only during the read. Until then half of its region counts,
    /// because a checkpoint is due when that is full.
    pub fn bytes_to_read(&self) -> u64 {
        self.bytes_to_read.load(Relaxed).max(self.bytes_read())
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.bytes_to_read.fetch_add(bytes, Relaxed);
    }

    /// Notes that more bytes are read.
    pub(crate) fn advance(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Notes that all bytes are read.
    pub(crate) fn finish(&self) {
        self.bytes_to_read.store(self.bytes_read(), Relaxed);
    }
}

/// A reader of a flash, with its workers and its progress.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The flash.
    pub flash: &'a dyn BlockDevice,
    /// Workers that check and decode; without them, the reading task does.
    pub workers: Option<&'a dyn Runtime>,
    /// The progress to update.
    pub progress: Option<&'a Progress>,
}

impl<'a> Reader<'a> {
    /// Returns a reader without workers and without progress.
    pub fn alone(flash: &'a dyn BlockDevice) -> Self {
        Reader { flash, workers: None, progress: None }
    }

    /// Reads bytes at any boundary: it reads their sectors, and cuts the ends off.
    pub(crate) async fn read(self, offset: u64, bytes: u64) -> Result<IoBuf, EngineError> {
        let sector = u64::from(self.flash.info().sector_bytes.max(1));
        let (from, end) = (offset - offset % sector, (offset + bytes).next_multiple_of(sector));
        let buf = self.flash.read(from, IoBuf::new((end - from) as usize)).await?;
        if let Some(progress) = self.progress {
            progress.advance(end - from);
        }
        if buf.len() as u64 == bytes {
            return Ok(buf);
        }
        let skip = (offset - from) as usize;
        Ok(IoBuf::copy_of(buf.get(skip..skip + bytes as usize).unwrap_or_default()))
    }

    /// Runs `decode`, on a worker if there are any, and returns its result.
    pub(super) async fn decoded<T: Send + 'static>(
        self,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        match self.workers {
            Some(workers) => Ok(compute(workers, decode).await?),
            None => Ok(decode()),
        }
    }
}
