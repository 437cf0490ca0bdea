//! The host's side of a drive: lays the flash of a cache on the logical pages of a simulated SSD.
//!
//! Role: [`Host`] takes the [requests](crate::devices) of a cache to its flash, in bytes, and asks
//! a translation layer for pages. Offset 0 of the flash is logical page 0. If only
//! [a part of the flash](Host::lay_only) lies on the drive, the part begins at page 0, and requests
//! of the rest are passed over.
//!
//! - A **write** is one request to the layer for all whole units in it. A unit is a page, or as
//!   many as the drive [takes at once](Ftl::write_unit_pages). A part of a unit waits in the
//!   drive's buffer ([`DriveProfile::buffer_bytes`]) until the rest comes. If more units wait than
//!   the buffer holds, the one that has waited longest is completed. The host reads the rest of it
//!   from the drive, and writes the unit. A unit that [gets no more](Requests::sealed) is completed
//!   at once. Otherwise the drive would miss a write-evict unit that is full but for padding, and
//!   its reads. The buffer survives a loss of power, so a flush does not empty it.
//! - A **read** is of each page that it touches, but for bytes that wait in the buffer.
//! - A **trim** is told for whole pages. Its effect is up to the layer.
//! - **Dirty** pages are told to layers that drop clean ones, page by page, in the order of the
//!   requests.
//! - A page's content, if known, is told to layers that deduplicate.
//!
//! Invariants: the layer gets no other requests, so its counts are those of the cache's requests.
//!
//! It does not take time or buffer whole units: each is written as it comes, however soon it is
//! written again. The drive is never idle, so a layer's work for idle time stays undone.

use std::ops::Range;

use crate::{
    contents::PageContents,
    devices::{Device, DeviceAction, DeviceRequest, Requests, Told},
    dirty::{DirtyPages, Dirtying, TooDirty},
    waiting::{Waiting, WaitingUnit},
};
use larder_ssd::{
    counts::{DriveCounts, Wear},
    ftl::{Ftl, PageWrite},
    geometry::{Lpn, OutOfRange},
    kinds::FtlKind,
    op::{FlashOp, OpSink},
    profile::DriveProfile,
};

/// The part of the flash beyond which a buffer was not cut with the drive.
///
/// It then absorbs much of a small cache's rewrites.
const BUFFER_PART: u64 = 4;

/// Counts of the requests between the cache and the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Bytes that the cache wrote.
    pub bytes_written: u64,
    /// Units that were written with less than all of their bytes new.
    pub units_completed: u64,
    /// Pages that were read to complete them.
    pub pages_read_to_complete: u64,
    /// Writes that met their unit in the buffer, and so cost no page of their own.
    pub writes_absorbed: u64,
}

impl HostCounts {
    /// Returns the counts since `earlier`, a former state of the same counts.
    pub fn since(&self, earlier: &HostCounts) -> HostCounts {
        HostCounts {
            bytes_written: self.bytes_written - earlier.bytes_written,
            units_completed: self.units_completed - earlier.units_completed,
            pages_read_to_complete: self.pages_read_to_complete - earlier.pages_read_to_complete,
            writes_absorbed: self.writes_absorbed - earlier.writes_absorbed,
        }
    }
}

/// See the module.
pub struct Host {
    ftl: Box<dyn Ftl>,
    profile: DriveProfile,
    /// The bytes of the flash that lie on the drive.
    laid: Range<u64>,
    page_bytes: u64,
    unit_bytes: u64,
    waiting: Waiting,
    pages: Vec<PageWrite>,
    /// Contents of the pages in the buffer and on the drive.
    contents: PageContents,
    counts: HostCounts,
    evicted: Evicted,
    /// The dirty pages, if the drive drops clean ones.
    dirty: Option<DirtyPages>,
    /// The cache's dirty bytes, in bytes of the drive, if it announced them.
    dirtying: Option<Dirtying>,
}

/// Pages that the drive dropped by itself.
#[derive(Default)]
struct Evicted(Vec<Lpn>);

impl OpSink for Evicted {
    fn op(&mut self, op: &FlashOp) {
        if let FlashOp::Evicted { lpn } = op {
            self.0.push(*lpn);
        }
    }
}

impl Host {
    /// Makes a new drive of this profile with this layer.
    ///
    /// The cache's write-evict units are of `weu_bytes` (`None`: it has none). A layer that takes
    /// whole units takes those.
    ///
    /// # Errors
    /// The first number of the profile that cannot be, or the units' size.
    pub fn new(profile: &DriveProfile, kind: &FtlKind, weu_bytes: Option<u64>) -> Result<Host, OutOfRange> {
        profile.check()?;
        let ftl = kind.make_for(profile, weu_bytes)?;
        let page_bytes = u64::from(profile.geometry.page_bytes);
        let unit_bytes = page_bytes * u64::from(ftl.write_unit_pages());
        Ok(Host {
            dirty: DirtyPages::of(&*ftl),
            dirtying: None,
            contents: PageContents::of(&*ftl),
            waiting: Waiting::new(&*ftl, profile.buffer_bytes),
            ftl,
            profile: *profile,
            laid: 0..u64::MAX,
            page_bytes,
            unit_bytes,
            pages: Vec::new(),
            counts: HostCounts::default(),
            evicted: Evicted::default(),
        })
    }

    /// Lays only these bytes of the flash on the drive. It must precede all requests.
    pub fn lay_only(&mut self, bytes: Range<u64>) {
        self.laid = bytes;
    }

    /// Announces how much of the flash the cache makes dirty, and which parts for ever.
    ///
    /// The drive never drops the latter. The call must precede all requests, and follow
    /// [`Host::lay_only`].
    ///
    /// # Errors
    /// If there are too few blocks for that.
    pub fn keep(&mut self, dirtying: &Dirtying) -> Result<(), TooDirty> {
        let for_ever = dirtying.for_ever.iter().filter_map(|bytes| self.laid_part(bytes)).collect();
        let on_drive = Dirtying { for_ever, ..*dirtying };
        let Some(dirty) = &mut self.dirty else { return Ok(()) };
        for pages in dirty.keep(&on_drive)? {
            self.ftl.tell_dirty(pages, true);
        }
        self.dirtying = Some(on_drive);
        Ok(())
    }

    /// Returns the [announced](Host::keep) dirty bytes, in bytes of the drive.
    ///
    /// `None`: nothing was announced, or the drive ignores it.
    pub fn dirtying(&self) -> Option<&Dirtying> {
        self.dirtying.as_ref()
    }

    /// Returns bytes of the flash to write back, if the drive has no room for more dirty ones.
    pub fn too_dirty(&self) -> Option<Range<u64>> {
        let bytes = self.dirty.as_ref()?.too_dirty()?;
        Some(self.laid.start + bytes.start..self.laid.start + bytes.end)
    }

    /// Returns the part of these bytes of the flash that lies on the drive, as bytes of the drive.
    fn laid_part(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (bytes.start.max(self.laid.start), bytes.end.min(self.laid.end));
        (start < end).then(|| start - self.laid.start..end - self.laid.start)
    }

    /// Returns the layer.
    pub fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    /// Returns the drive.
    pub fn profile(&self) -> &DriveProfile {
        &self.profile
    }

    /// Returns the bytes that the layer takes at once: a page, or more.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Returns true if the buffer decides the number of erasures.
    ///
    /// Its units are written in parts, and it is too large beside the flash.
    pub fn buffer_decides(&self) -> bool {
        let flash = self.ftl.array().geometry().physical_bytes();
        self.unit_bytes > self.page_bytes && self.profile.buffer_bytes > flash / BUFFER_PART
    }

    /// Returns the counts of the drive.
    pub fn drive_counts(&self) -> &DriveCounts {
        self.ftl.counts()
    }

    /// Returns the counts of the requests on the way to it.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Returns the wear of its blocks.
    pub fn wear(&self) -> Wear {
        Wear::of(self.ftl.array())
    }

    /// Returns the bytes of the flash that the drive would drop next, if it waits to be asked.
    pub fn next_eviction(&self) -> Option<Range<u64>> {
        let pages = self.ftl.next_eviction().filter(|_| !self.ftl.drops_unasked())?;
        let at = |page: u32| self.laid.start + u64::from(page) * self.page_bytes;
        Some(at(pages.start)..at(pages.end))
    }

    /// Takes the bytes of the flash that the drive dropped by itself since the last call: runs,
    /// ascending.
    pub fn take_evicted(&mut self) -> Vec<Range<u64>> {
        let mut pages = std::mem::take(&mut self.evicted.0);
        pages.sort_unstable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for lpn in pages {
            let start = self.laid.start + u64::from(lpn.0) * self.page_bytes;
            match runs.last_mut() {
                Some(run) if run.end == start => run.end += self.page_bytes,
                _ => runs.push(start..start + self.page_bytes),
            }
        }
        runs
    }

    /// Makes all requests for the flash, in order.
    pub fn carry_out(&mut self, requests: &Requests) {
        let mut told = requests.told().iter().peekable();
        for (at, request) in requests.iter().enumerate() {
            while let Some(told) = told.next_if(|told| told.requests_before <= at) {
                self.tell(told);
            }
            let is_here = request.action == DeviceAction::Flush || self.laid.contains(&request.start);
            if request.device != Device::Flash || !is_here {
                continue;
            }
            match request.action {
                DeviceAction::Read => self.read(request),
                DeviceAction::Write => self.write(requests, request),
                DeviceAction::Trim => self.trim(request),
                DeviceAction::Flush => self.ftl.flush(&mut self.evicted),
            }
        }
        told.for_each(|told| self.tell(told));
        for bytes in requests.sealed() {
            self.seal(bytes);
        }
    }

    /// Takes the cache's word that bytes are dirty, or clean again.
    fn tell(&mut self, told: &Told) {
        let Some(bytes) = self.laid_part(&told.bytes) else { return };
        let Some(dirty) = &mut self.dirty else { return };
        for page in dirty.told(&bytes, told.is_dirty) {
            self.ftl.tell_dirty(page..page + 1, told.is_dirty);
        }
    }

    /// Writes a unit that gets no more, padding included.
    fn seal(&mut self, bytes: &Range<u64>) {
        let Some(on_drive) = self.laid_part(bytes) else { return };
        if let Some((unit, waited)) = self.waiting.forget_unit_of(&on_drive) {
            self.complete(unit, &waited);
        }
    }

    /// Returns the bytes of the drive of a request.
    fn on_drive(&self, request: &DeviceRequest) -> Range<u64> {
        let start = request.start - self.laid.start;
        start..start + request.len
    }

    fn read(&mut self, request: &DeviceRequest) {
        let range = self.on_drive(request);
        for page in self.waiting.pages_read(&range) {
            self.ftl.read(Lpn(page as u32), &mut self.evicted);
        }
    }

    fn write(&mut self, requests: &Requests, request: &DeviceRequest) {
        let range = self.on_drive(request);
        self.counts.bytes_written += request.len;
        let unit = self.unit_bytes;
        let (whole_from, whole_to) = (range.start.next_multiple_of(unit), range.end / unit * unit);
        if whole_from > whole_to {
            // Within one unit.
            return self.write_part(requests, request, range);
        }
        if range.start < whole_from {
            self.write_part(requests, request, range.start..whole_from);
        }
        if whole_from < whole_to {
            let units = whole_from / unit..whole_to / unit;
            self.counts.writes_absorbed += units.clone().filter_map(|unit| self.waiting.forget(unit)).count() as u64;
            self.note(requests, request, whole_from..whole_to);
            self.write_units(units);
        }
        if whole_to < range.end {
            self.write_part(requests, request, whole_to..range.end);
        }
    }

    /// Notes the new contents of these bytes.
    fn note(&mut self, requests: &Requests, request: &DeviceRequest, bytes: Range<u64>) {
        self.contents.write(requests.raw_chunks(request), self.laid.start, bytes);
    }

    /// Writes bytes of one unit, not all of it.
    fn write_part(&mut self, requests: &Requests, request: &DeviceRequest, bytes: Range<u64>) {
        self.note(requests, request, bytes.clone());
        let unit = bytes.start / self.unit_bytes;
        let put = self.waiting.put(bytes);
        self.counts.writes_absorbed += u64::from(put.waited);
        if put.is_whole {
            self.write_units(unit..unit + 1);
        }
        while let Some((unit, waited)) = self.waiting.take_excess() {
            self.complete(unit, &waited);
        }
    }

    /// Writes a unit that waited, after it read the rest of it from the drive.
    fn complete(&mut self, unit: u64, waited: &WaitingUnit) {
        for lpn in self.waiting.pages_missing(unit, waited).map(|page| Lpn(page as u32)) {
            if self.ftl.locate(lpn).is_some() {
                self.ftl.read(lpn, &mut self.evicted);
                self.counts.pages_read_to_complete += 1;
            }
        }
        self.counts.units_completed += 1;
        self.write_units(unit..unit + 1);
    }

    /// Hands units to the layer, with all that was written to them.
    fn write_units(&mut self, units: Range<u64>) {
        let pages = self.unit_bytes / self.page_bytes;
        self.pages.clear();
        self.pages.extend(self.contents.page_writes(units.start * pages..units.end * pages));
        self.ftl.write(&self.pages, &mut self.evicted);
    }

    fn trim(&mut self, request: &DeviceRequest) {
        let range = self.on_drive(request);
        let (first, last) = (range.start.div_ceil(self.page_bytes), range.end / self.page_bytes);
        if first >= last {
            return;
        }
        self.waiting.forget_units_in(&(first * self.page_bytes..last * self.page_bytes));
        self.contents.trim(first..last);
        let pages = first as u32..last as u32;
        self.ftl.trim(pages.clone(), &mut self.evicted);
        // A page whose dirtiness was told before its write is still dirty.
        for page in self.dirty.iter().flat_map(|dirty| dirty.dirty_in(pages.clone())) {
            self.ftl.tell_dirty(page..page + 1, true);
        }
    }
}

#[cfg(test)]
mod tests;
