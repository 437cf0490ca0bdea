//! How the flash of a cache lies on the pages of a drive with a clock: bytes become requests of whole pages.
//!
//! Offset 0 of the flash is logical page 0. As where erasures are counted ([`host`](crate::host)), a write goes to the drive in whole
//! units: a page, or as many as the drive takes at once. What covers a unit in part waits in the drive's buffer, which a loss of power does
//! not empty, until the rest of it comes; where more wait than the buffer has frames, the one that has waited longest is completed
//! with what was there, which is read, and written. A unit that gets no more is written at once.
//! Bytes that wait so take no time: not to be written, and not to be read.
//!
//! What it does not do: make requests, or know when they are over.

use std::{collections::VecDeque, ops::Range};

use hashbrown::HashMap;

use crate::{
    contents::PageContents,
    devices::{Action, DeviceRequest, Requests},
    ssd::{
        ftl::{Ftl, PageWrite},
        geometry::Lpn,
        time::Request,
    },
};

/// The unit in which parts of pages are known, in bytes: no request of a cache is of less.
const SECTOR_BYTES: u64 = 512;

/// A unit of which a part waits.
struct Part {
    /// A bit a sector: it waits.
    sectors: Vec<u64>,
    left: u64,
    /// Which of those that were begun.
    number: u64,
}

impl Part {
    fn has(&self, sector: u64) -> bool {
        self.sectors.get(sector as usize / 64).is_some_and(|word| word >> (sector % 64) & 1 == 1)
    }

    fn set(&mut self, sector: u64) {
        if let Some(word) = self.sectors.get_mut(sector as usize / 64) {
            self.left -= u64::from(*word >> (sector % 64) & 1 == 0);
            *word |= 1 << (sector % 64);
        }
    }
}

/// See the module.
pub(super) struct Pages {
    page_bytes: u64,
    unit_pages: u64,
    parts_max: usize,
    parts: HashMap<u64, Part>,
    /// Units and numbers of parts, first begun first; those that wait no more are passed over.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
    /// What waits and what is on the drive, of a layer that asks.
    contents: Option<PageContents>,
    bytes_written: u64,
}

impl Pages {
    /// Of a drive with this layer, and so many frames of its buffer.
    pub fn new(ftl: &dyn Ftl, frames: u64) -> Pages {
        let unit_pages = u64::from(ftl.write_unit_pages());
        Pages {
            page_bytes: u64::from(ftl.array().geometry().page_bytes),
            unit_pages,
            parts_max: usize::try_from(frames / unit_pages).unwrap_or(usize::MAX).max(1),
            parts: HashMap::new(),
            order: VecDeque::new(),
            next_number: 0,
            contents: PageContents::of(ftl),
            bytes_written: 0,
        }
    }

    /// Bytes of the flash that were written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn unit_bytes(&self) -> u64 {
        self.unit_pages * self.page_bytes
    }

    /// What the drive is asked for a request of the flash, one after the other.
    pub fn of(&mut self, requests: &Requests, request: &DeviceRequest) -> Vec<Request> {
        let range = request.range();
        match request.action {
            Action::Read => self.read(range.start, range.end),
            Action::Write => self.write(requests, request),
            Action::Trim => self.trim(range.start, range.end).into_iter().collect(),
            Action::Flush => vec![Request::Flush],
        }
    }

    /// What the drive is asked where these bytes get no more: if they are a unit that waits, the rest of it is padding.
    pub fn seal(&mut self, bytes: &Range<u64>) -> Option<Request> {
        let unit = bytes.start / self.unit_bytes();
        let is_unit = *bytes == (unit * self.unit_bytes()..(unit + 1) * self.unit_bytes());
        self.parts.remove(&unit).filter(|_| is_unit).map(|_| Request::Write(self.filled(unit)))
    }

    /// A read of the pages; of none of them that waits as far as it is asked for, at the ends of the run.
    fn read(&self, start: u64, end: u64) -> Vec<Request> {
        let (mut first, mut last) = (start / self.page_bytes, end.div_ceil(self.page_bytes));
        if first < last && self.waits(first, start, end) {
            first += 1;
        }
        if first < last && self.waits(last - 1, start, end) {
            last -= 1;
        }
        if first < last { vec![Request::Read(first as u32..last as u32)] } else { Vec::new() }
    }

    /// Whether what lies in a page of these bytes waits.
    fn waits(&self, page: u64, start: u64, end: u64) -> bool {
        let unit = page / self.unit_pages;
        let Some(part) = self.parts.get(&unit) else { return false };
        let from = start.max(page * self.page_bytes) - unit * self.unit_bytes();
        let to = end.min((page + 1) * self.page_bytes) - unit * self.unit_bytes();
        (from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES)).all(|sector| part.has(sector))
    }

    fn write(&mut self, requests: &Requests, request: &DeviceRequest) -> Vec<Request> {
        let range = request.range();
        self.bytes_written += request.len;
        let mut asked = Vec::new();
        let mut whole = Vec::new();
        for unit in range.start / self.unit_bytes()..range.end.div_ceil(self.unit_bytes()) {
            let unit_start = unit * self.unit_bytes();
            let (from, to) = (range.start.max(unit_start), range.end.min(unit_start + self.unit_bytes()));
            if let Some(contents) = &mut self.contents {
                contents.write(requests.raw_chunks(request), 0, from..to);
            }
            let is_whole = to - from == self.unit_bytes();
            if is_whole {
                self.parts.remove(&unit);
            }
            if is_whole || self.put_part(unit, from - unit_start, to - unit_start) {
                whole.extend(self.filled(unit));
            }
        }
        if !whole.is_empty() {
            asked.push(Request::Write(whole));
        }
        while self.parts.len() > self.parts_max {
            let Some((unit, part)) = self.oldest() else { break };
            asked.extend(self.missing(unit, &part).map(Request::Read));
            asked.push(Request::Write(self.filled(unit)));
        }
        asked
    }

    fn pages_of(&self, unit: u64) -> Range<u64> {
        unit * self.unit_pages..(unit + 1) * self.unit_pages
    }

    /// A unit with all that was written to it.
    fn filled(&self, unit: u64) -> Vec<PageWrite> {
        let content = |page| self.contents.as_ref().and_then(|contents| contents.get(page));
        self.pages_of(unit).map(|page| PageWrite { lpn: Lpn(page as u32), content: content(page) }).collect()
    }

    /// The pages of a unit that are not whole in what waits of it.
    fn missing(&self, unit: u64, part: &Part) -> impl Iterator<Item = Range<u32>> + use<> {
        let sectors = self.page_bytes.div_ceil(SECTOR_BYTES);
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (at, page) in (0..).zip(self.pages_of(unit)) {
            if (at * sectors..(at + 1) * sectors).all(|sector| part.has(sector)) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if u64::from(run.end) == page => run.end += 1,
                _ => runs.push(page as u32..page as u32 + 1),
            }
        }
        runs.into_iter()
    }

    /// Some bytes of a unit. Whether that is all of it now.
    fn put_part(&mut self, unit: u64, from: u64, to: u64) -> bool {
        let sectors = self.unit_bytes().div_ceil(SECTOR_BYTES);
        let number = self.next_number;
        let part = self.parts.entry(unit).or_insert_with(|| Part {
            sectors: vec![0; sectors.div_ceil(64) as usize],
            left: sectors,
            number,
        });
        if part.number == number {
            self.next_number += 1;
            self.order.push_back((unit, number));
        }
        (from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES)).for_each(|sector| part.set(sector));
        let is_whole = part.left == 0;
        if is_whole {
            self.parts.remove(&unit);
        }
        // Of units that wait no more, no more entries stay than of those that do.
        while self.order.len() > 2 * self.parts_max.max(self.parts.len()) {
            let Some((unit, number)) = self.order.pop_front() else { break };
            if self.parts.get(&unit).is_some_and(|part| part.number == number) {
                self.order.push_back((unit, number));
            }
        }
        is_whole
    }

    /// The unit that has waited longest; it waits no more.
    fn oldest(&mut self) -> Option<(u64, Part)> {
        while let Some((unit, number)) = self.order.pop_front() {
            if self.parts.get(&unit).is_some_and(|part| part.number == number) {
                return self.parts.remove(&unit).map(|part| (unit, part));
            }
        }
        None
    }

    fn trim(&mut self, start: u64, end: u64) -> Option<Request> {
        let (first, last) = (start.div_ceil(self.page_bytes), end / self.page_bytes);
        if first >= last {
            return None;
        }
        if !self.parts.is_empty() {
            (first.div_ceil(self.unit_pages)..last / self.unit_pages).for_each(|unit| drop(self.parts.remove(&unit)));
        }
        if let Some(contents) = &mut self.contents {
            contents.trim(first..last);
        }
        Some(Request::Trim(first as u32..last as u32))
    }
}
