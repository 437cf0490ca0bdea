//! The flash of a cache on the pages of a drive with a clock: bytes become requests of whole pages.
//!
//! Offset 0 of the flash is logical page 0. As in the count of erasures ([`host`](crate::host)), a
//! write goes to the drive in whole units. A unit is a page, or as many as the drive takes at once.
//! A part of a unit waits in the drive's buffer, which survives a loss of power, until the rest
//! comes. If more units wait than the buffer has frames, the one that has waited longest is
//! completed. The rest of it is read from the drive, and the unit is written. A unit that gets no
//! more is written at once. Bytes that wait so take no time to be written or read.
//!
//! It does not make requests, or know when they are over.

use std::ops::Range;

use crate::{
    contents::PageContents,
    devices::{DeviceAction, DeviceRequest, Requests},
    waiting::Waiting,
};
use larder_ssd::{ftl::Ftl, time::DriveRequest};

/// See the module.
pub(super) struct Pages {
    page_bytes: u64,
    unit_pages: u64,
    waiting: Waiting,
    /// Contents of the pages in the buffer and on the drive.
    contents: PageContents,
    bytes_written: u64,
}

impl Pages {
    /// Makes the pages of a drive with this layer, and with so many bytes of buffer.
    pub fn new(ftl: &dyn Ftl, buffer_bytes: u64) -> Pages {
        Pages {
            page_bytes: u64::from(ftl.array().geometry().page_bytes),
            unit_pages: u64::from(ftl.write_unit_pages()),
            waiting: Waiting::new(ftl, buffer_bytes),
            contents: PageContents::of(ftl),
            bytes_written: 0,
        }
    }

    /// Returns the bytes of the flash that were written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn unit_bytes(&self) -> u64 {
        self.unit_pages * self.page_bytes
    }

    /// Returns the drive's requests for a request of the flash, one after the other.
    pub fn of(&mut self, requests: &Requests, request: &DeviceRequest) -> Vec<DriveRequest> {
        let range = request.range();
        match request.action {
            DeviceAction::Read => reads(self.waiting.pages_read(&range)),
            DeviceAction::Write => self.write(requests, request),
            DeviceAction::Trim => self.trim(range.start, range.end).into_iter().collect(),
            DeviceAction::Flush => vec![DriveRequest::Flush],
        }
    }

    /// Returns the drive's request when these bytes get no more.
    ///
    /// If they are a unit that waits, its rest is padding.
    pub fn seal(&mut self, bytes: &Range<u64>) -> Option<DriveRequest> {
        let (unit, _) = self.waiting.forget_unit_of(bytes)?;
        Some(self.unit_write(unit))
    }

    fn write(&mut self, requests: &Requests, request: &DeviceRequest) -> Vec<DriveRequest> {
        let range = request.range();
        self.bytes_written += request.len;
        let mut asked = Vec::new();
        let mut whole = Vec::new();
        for unit in range.start / self.unit_bytes()..range.end.div_ceil(self.unit_bytes()) {
            let unit_start = unit * self.unit_bytes();
            let bytes = range.start.max(unit_start)..range.end.min(unit_start + self.unit_bytes());
            self.contents.write(requests.raw_chunks(request), 0, bytes.clone());
            let is_whole = bytes.end - bytes.start == self.unit_bytes();
            if is_whole {
                self.waiting.forget(unit);
            }
            if is_whole || self.waiting.put(bytes).is_whole {
                whole.extend(self.contents.page_writes(self.pages_of(unit)));
            }
        }
        if !whole.is_empty() {
            asked.push(DriveRequest::Write(whole));
        }
        while let Some((unit, waited)) = self.waiting.take_excess() {
            asked.extend(reads(self.waiting.pages_missing(unit, &waited)));
            asked.push(self.unit_write(unit));
        }
        asked
    }

    fn pages_of(&self, unit: u64) -> Range<u64> {
        unit * self.unit_pages..(unit + 1) * self.unit_pages
    }

    /// Returns the write of a unit, with all that was written to it.
    fn unit_write(&self, unit: u64) -> DriveRequest {
        DriveRequest::Write(self.contents.page_writes(self.pages_of(unit)).collect())
    }

    fn trim(&mut self, start: u64, end: u64) -> Option<DriveRequest> {
        let (first, last) = (start.div_ceil(self.page_bytes), end / self.page_bytes);
        if first >= last {
            return None;
        }
        self.waiting.forget_units_in(&(first * self.page_bytes..last * self.page_bytes));
        self.contents.trim(first..last);
        Some(DriveRequest::Trim(first as u32..last as u32))
    }
}

/// Returns reads of these pages, which ascend: one of each run.
fn reads(pages: impl Iterator<Item = u64>) -> Vec<DriveRequest> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for page in pages.map(|page| page as u32) {
        match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs.into_iter().map(DriveRequest::Read).collect()
}
