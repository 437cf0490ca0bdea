//! The host's side of a drive: how the flash of a cache lies on the logical pages of a simulated SSD.
//!
//! Role: [`Host`] takes what a cache [asks](crate::devices) of its flash, in bytes, and asks a translation layer for pages. Offset 0
//! of the flash is logical page 0; or, where [a part of the flash](Host::lay_only) alone lies on the drive, the part begins there, and
//! requests of the rest are passed over.
//!
//! - A **write** is one request to the layer for all whole units in it: a unit is a page, or as many as the drive
//!   [takes at once](Ftl::write_unit_pages). What covers a unit in part waits in the drive's buffer
//!   ([`Profile::buffer_bytes`]) until the rest comes; where more units wait than the buffer holds, the one that has waited longest
//!   is completed with what was there, which is read first, and written. So is a unit that [gets no more](Requests::sealed), at
//!   once: the drive would else not know of a write-evict unit that is full but for padding, nor of reads of it. The buffer keeps
//!   what it has over a loss of power, so that a flush does not empty it.
//! - A **read** is of each page that it touches, but for bytes that wait in the buffer.
//! - A **trim** is told for whole pages. What becomes of it is the layer's to say.
//! - What is **dirty** is told to layers that drop what is not, page by page, in the order of the requests.
//! - A page's content is told where it is known ([`contents`](crate::contents)), to layers that deduplicate.
//!
//! Invariants: the layer is asked for nothing else, so that its counts are those of the cache's requests.
//!
//! What it does not do: time, or buffer whole units: each is written as it comes, however soon it is written again. And the drive is
//! never idle, so that what a layer leaves for idle time is not done.

use std::ops::Range;

use crate::{
    contents::PageContents,
    devices::{Action, Device, DeviceRequest, Requests, Told},
    dirty::{DirtyPages, Dirtying, TooDirty},
    ssd::{
        counts::{Counts, Wear},
        ftl::{Ftl, FtlKind, PageWrite},
        geometry::{Lpn, OutOfRange},
        op::{Op, Sink},
        profile::Profile,
    },
    waiting::{Waiting, WaitingUnit},
};

/// A buffer larger than such a part of the flash has much of what a small cache writes again: it was not cut with the drive.
const BUFFER_PART: u64 = 4;

/// What happened between the cache and the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Bytes that the cache wrote.
    pub bytes_written: u64,
    /// Units that were written with less than all of their bytes new.
    pub units_completed: u64,
    /// Pages that were read to complete them.
    pub pages_read_to_complete: u64,
    /// Writes that met what still waited in the buffer, and so cost no page of their own.
    pub writes_absorbed: u64,
}

impl HostCounts {
    /// What was counted since `earlier`, a former state of the same counts.
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
    profile: Profile,
    /// What of the flash lies on the drive.
    laid: Range<u64>,
    page_bytes: u64,
    unit_bytes: u64,
    waiting: Waiting,
    pages: Vec<PageWrite>,
    /// Of what waits and what is on the drive.
    contents: PageContents,
    counts: HostCounts,
    evicted: Evicted,
    /// Of a drive that drops what is clean.
    dirty: Option<DirtyPages>,
    /// What the cache makes dirty, in bytes of the drive, if it said so.
    dirtying: Option<Dirtying>,
}

/// Pages that the drive dropped by itself.
#[derive(Default)]
struct Evicted(Vec<Lpn>);

impl Sink for Evicted {
    fn op(&mut self, op: &Op) {
        if let Op::Evicted { lpn } = op {
            self.0.push(*lpn);
        }
    }
}

impl Host {
    /// A new drive of this profile with this layer, for a cache whose write-evict units are of so many bytes (`None`: it
    /// has none): a layer that takes whole units takes those.
    ///
    /// # Errors
    /// The first number of the profile that cannot be, or the units' size.
    pub fn new(profile: &Profile, kind: &FtlKind, weu_bytes: Option<u64>) -> Result<Host, OutOfRange> {
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

    /// Lays these bytes of the flash alone on the drive, before anything is asked of it.
    pub fn lay_only(&mut self, bytes: Range<u64>) {
        self.laid = bytes;
    }

    /// The cache makes so much of the flash dirty, some of it for ever: that is never to be dropped. Said before anything is asked
    /// of the drive, and behind [`Host::lay_only`].
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

    /// What was [said](Host::keep) that the cache makes dirty, in bytes of the drive. `None`: nothing was, or the drive does not care.
    pub fn dirtying(&self) -> Option<&Dirtying> {
        self.dirtying.as_ref()
    }

    /// Bytes of the flash to be written back, where so much is dirty that the drive has no room for more.
    pub fn too_dirty(&self) -> Option<Range<u64>> {
        let bytes = self.dirty.as_ref()?.too_dirty()?;
        Some(self.laid.start + bytes.start..self.laid.start + bytes.end)
    }

    /// What of these bytes of the flash lies on the drive, as bytes of that.
    fn laid_part(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (bytes.start.max(self.laid.start), bytes.end.min(self.laid.end));
        (start < end).then(|| start - self.laid.start..end - self.laid.start)
    }

    /// The layer.
    pub fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    /// The drive.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Bytes that the layer takes at once: a page, or more.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Whether units that are written in parts wait in a buffer so large beside the flash that it decides how many are erased.
    pub fn buffer_decides(&self) -> bool {
        let flash = self.ftl.array().geometry().physical_bytes();
        self.unit_bytes > self.page_bytes && self.profile.buffer_bytes > flash / BUFFER_PART
    }

    /// What the drive did.
    pub fn drive_counts(&self) -> &Counts {
        self.ftl.counts()
    }

    /// What happened on the way to it.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// How its blocks are worn.
    pub fn wear(&self) -> Wear {
        Wear::of(self.ftl.array())
    }

    /// The bytes of the flash that the drive would drop next, if it is one that waits to be asked.
    pub fn next_eviction(&self) -> Option<Range<u64>> {
        let pages = self.ftl.next_eviction().filter(|_| !self.ftl.drops_unasked())?;
        let at = |page: u32| self.laid.start + u64::from(page) * self.page_bytes;
        Some(at(pages.start)..at(pages.end))
    }

    /// What the drive dropped by itself since that was asked last: runs of bytes of the flash, ascending.
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

    /// Makes all requests that are for the flash, in order.
    pub fn carry_out(&mut self, requests: &Requests) {
        let mut told = requests.told().iter().peekable();
        for (at, request) in requests.iter().enumerate() {
            while let Some(told) = told.next_if(|told| told.requests_before <= at) {
                self.tell(told);
            }
            let is_here = request.action == Action::Flush || self.laid.contains(&request.start);
            if request.device != Device::Flash || !is_here {
                continue;
            }
            match request.action {
                Action::Read => self.read(request),
                Action::Write => self.write(requests, request),
                Action::Trim => self.trim(request),
                Action::Flush => self.ftl.flush(&mut self.evicted),
            }
        }
        told.for_each(|told| self.tell(told));
        for bytes in requests.sealed() {
            self.seal(bytes);
        }
    }

    /// The cache says that something is dirty, or no longer.
    fn tell(&mut self, told: &Told) {
        let Some(bytes) = self.laid_part(&told.bytes) else { return };
        let Some(dirty) = &mut self.dirty else { return };
        for page in dirty.told(&bytes, told.is_dirty) {
            self.ftl.tell_dirty(page..page + 1, told.is_dirty);
        }
    }

    /// A unit that gets no more is written, whatever of it is padding.
    fn seal(&mut self, bytes: &Range<u64>) {
        let Some(on_drive) = self.laid_part(bytes) else { return };
        if let Some((unit, waited)) = self.waiting.forget_unit_of(&on_drive) {
            self.complete(unit, &waited);
        }
    }

    /// The bytes of the drive that a request is of.
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

    /// What these bytes hold from here on.
    fn note(&mut self, requests: &Requests, request: &DeviceRequest, bytes: Range<u64>) {
        self.contents.write(requests.raw_chunks(request), self.laid.start, bytes);
    }

    /// Bytes of one unit, not all of it.
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

    /// Writes a unit that waited, with what was there in the rest of it.
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
        // What is told before it is written is dirty still.
        for page in self.dirty.iter().flat_map(|dirty| dirty.dirty_in(pages.clone())) {
            self.ftl.tell_dirty(page..page + 1, true);
        }
    }
}

#[cfg(test)]
mod tests;
