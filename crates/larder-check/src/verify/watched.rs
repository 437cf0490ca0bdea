//! A flash that remembers its failed reads, so that a check can tell unread bytes from damaged
//! ones.
//!
//! Invariants: a range counts as unread from a failed read of the device until a later read or
//! write of it succeeds. A refusal for good (the device is gone, or asks for other requests) is no
//! finding about the flash.
//!
//! It does not retry; the reader does.

use super::{report::VerifyReport, window::span};
use larder_core::{Lba, ranges::RunMap};
use larder_device::{
    BlockDevice, DeviceInfo, IoBuf, IoError, IoErrorKind, IoFuture, IoResult, SharedBuf, WriteFlags, ZeroFlags,
};
use larder_engine::EngineError;
use parking_lot::Mutex;
use std::sync::Arc;

/// The observations of a flash.
#[derive(Default)]
struct Seen {
    /// Bytes that could not be read.
    unread: RunMap,
    /// The first error of a read.
    first: Option<IoError>,
    /// The device refuses: later results say nothing about its content.
    refused: Option<IoError>,
}

/// A flash under watch.
pub struct WatchedFlash<'a> {
    flash: &'a dyn BlockDevice,
    seen: Arc<Mutex<Seen>>,
}

impl<'a> WatchedFlash<'a> {
    /// Watches this flash, before any read.
    pub fn over(flash: &'a dyn BlockDevice) -> Self {
        WatchedFlash { flash, seen: Arc::default() }
    }

    /// Returns an error for findings that are the device's errors, and notes the unread bytes in
    /// `report`.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn conclude(&self, report: &mut VerifyReport) -> Result<(), EngineError> {
        let seen = self.seen.lock();
        if let Some(error) = &seen.refused {
            return Err(error.clone().into());
        }
        report.unread_bytes = seen.unread.iter().map(|run| run.count).sum();
        if let Some(error) = seen.first.as_ref().filter(|_| report.unread_bytes > 0) {
            report.note(format!("{} bytes could not be read, which is no damage: {error}", report.unread_bytes));
        }
        Ok(())
    }

    /// Returns an error after unread bytes, unless the caller gives them up.
    ///
    /// # Errors
    /// Errors of the device, or a sentence with the right next step.
    pub fn all_was_read(&self, given_up: bool) -> Result<(), EngineError> {
        let seen = self.seen.lock();
        if let Some(error) = &seen.refused {
            return Err(error.clone().into());
        }
        match &seen.first {
            Some(error) if !seen.unread.is_empty() && !given_up => Err(EngineError::Invalid(format!(
                "the flash is not repaired, because a part cannot be read ({error}): mend the device, copy the rest to another one, or give the part up with --unread-is-lost"
            ))),
            _ => Ok(()),
        }
    }
}

impl Seen {
    fn read(&mut self, offset: u64, len: u64, is_past_end: bool, result: &IoResult<IoBuf>) {
        match result {
            Ok(_) => self.is_known(offset, len),
            Err(error) => match error.kind {
                IoErrorKind::Io | IoErrorKind::Corrupt => {
                    self.unread.insert(span(offset, len));
                    self.first.get_or_insert_with(|| error.clone());
                }
                // The reader repeats a request that is too long, in pieces.
                IoErrorKind::Unsupported => {}
                // A flash that was cut short; its superblock shows that.
                IoErrorKind::OutOfRange if is_past_end => {}
                _ => {
                    self.refused.get_or_insert_with(|| error.clone());
                }
            },
        }
    }

    fn is_known(&mut self, offset: u64, len: u64) {
        if !self.unread.is_empty() {
            self.unread.remove(Lba(offset), len);
        }
    }
}

impl BlockDevice for WatchedFlash<'_> {
    fn info(&self) -> &DeviceInfo {
        self.flash.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let (seen, len) = (self.seen.clone(), buf.len() as u64);
        let is_past_end = offset.saturating_add(len) > self.info().size_bytes;
        self.flash.read(offset, buf).map(move |result| {
            seen.lock().read(offset, len, is_past_end, &result);
            result
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let (seen, len) = (self.seen.clone(), data.len() as u64);
        self.flash.write(offset, data, flags).map(move |result| {
            if result.is_ok() {
                seen.lock().is_known(offset, len);
            }
            result
        })
    }

    fn flush(&self) -> IoFuture<()> {
        self.flash.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.flash.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.flash.write_zeroes(offset, len, flags)
    }
}
