//! How the flash of a cache lies on the pages of a drive with a clock: bytes become requests of whole pages.
//!
//! Offset 0 of the flash is logical page 0. As where erasures are counted ([`host`](crate::host)), what covers a page in part
//! waits in the drive's buffer, which a loss of power does not empty, until the rest of the page comes; where more wait than
//! the buffer has frames, the one that has waited longest is completed with what was there, which is read, and written.
//! Bytes that wait so take no time: not to be written, and not to be read.
//!
//! What it does not do: make requests, or know when they are over.

use std::collections::{HashMap, VecDeque};

use crate::{
    devices::{Action, DeviceRequest, Requests},
    ssd::{ftl::PageWrite, geometry::Lpn, time::Request},
};

/// The unit in which parts of pages are known, in bytes: no request of a cache is of less.
const SECTOR_BYTES: u64 = 512;

/// A page of which a part waits.
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
    parts_max: usize,
    parts: HashMap<u64, Part>,
    /// Pages and numbers of parts, first begun first; those that wait no more are passed over.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
}

impl Pages {
    /// Of a drive with pages of so many bytes, and so many frames of its buffer.
    pub fn new(page_bytes: u32, frames: u64) -> Pages {
        Pages {
            page_bytes: u64::from(page_bytes),
            parts_max: usize::try_from(frames).unwrap_or(usize::MAX).max(1),
            parts: HashMap::new(),
            order: VecDeque::new(),
            next_number: 0,
        }
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
        let Some(part) = self.parts.get(&page) else { return false };
        let from = start.max(page * self.page_bytes) - page * self.page_bytes;
        let to = end.min((page + 1) * self.page_bytes) - page * self.page_bytes;
        (from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES)).all(|sector| part.has(sector))
    }

    fn write(&mut self, requests: &Requests, request: &DeviceRequest) -> Vec<Request> {
        let range = request.range();
        let mut asked = Vec::new();
        let mut whole = Vec::new();
        for page in range.start / self.page_bytes..range.end.div_ceil(self.page_bytes) {
            let page_start = page * self.page_bytes;
            let (from, to) = (range.start.max(page_start), range.end.min(page_start + self.page_bytes));
            if to - from == self.page_bytes {
                self.parts.remove(&page);
                let content = requests.page_content(request, page_start, self.page_bytes as u32);
                whole.push(PageWrite { lpn: Lpn(page as u32), content });
            } else if self.put_part(page, from - page_start, to - page_start) {
                whole.push(PageWrite { lpn: Lpn(page as u32), content: None });
            }
        }
        if !whole.is_empty() {
            asked.push(Request::Write(whole));
        }
        while self.parts.len() > self.parts_max {
            let Some(page) = self.oldest() else { break };
            asked.push(Request::Read(page..page + 1));
            asked.push(Request::Write(vec![PageWrite { lpn: Lpn(page), content: None }]));
        }
        asked
    }

    /// Some bytes of a page. Whether that is all of it now.
    fn put_part(&mut self, page: u64, from: u64, to: u64) -> bool {
        let sectors = self.page_bytes.div_ceil(SECTOR_BYTES);
        let number = self.next_number;
        let part = self.parts.entry(page).or_insert_with(|| Part {
            sectors: vec![0; sectors.div_ceil(64) as usize],
            left: sectors,
            number,
        });
        if part.number == number {
            self.next_number += 1;
            self.order.push_back((page, number));
        }
        (from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES)).for_each(|sector| part.set(sector));
        let is_whole = part.left == 0;
        if is_whole {
            self.parts.remove(&page);
        }
        // Of pages that wait no more, no more entries stay than of those that do.
        while self.order.len() > 2 * self.parts_max.max(self.parts.len()) {
            let Some((page, number)) = self.order.pop_front() else { break };
            if self.parts.get(&page).is_some_and(|part| part.number == number) {
                self.order.push_back((page, number));
            }
        }
        is_whole
    }

    /// The page that has waited longest; it waits no more.
    fn oldest(&mut self) -> Option<u32> {
        while let Some((page, number)) = self.order.pop_front() {
            if self.parts.get(&page).is_some_and(|part| part.number == number) {
                self.parts.remove(&page);
                return Some(page as u32);
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
            (first..last).for_each(|page| drop(self.parts.remove(&page)));
        }
        Some(Request::Trim(first as u32..last as u32))
    }
}
