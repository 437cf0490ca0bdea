//! The drive's RAM: frames of one page each, for waiting writes and for reads on their way out.
//!
//! Written pages form *batches*, one a request, or a part of one that has no room whole. The
//! translation layer gets whole batches, in their order. If a waiting page is written again, the
//! new content takes the place of the old: the page is *absorbed*.
//!
//! If the layer takes only whole write-evict units, a batch is one unit, and is handed over when it
//! has all its pages. A trim of some of its pages while it waits does not break it: those pages are
//! handed over, and trimmed after that. A unit is given up if all its pages are trimmed.
//!
//! Invariants: a frame is free, or it holds a page. The page waits in a batch, or was handed over
//! and is not programmed, or is being read. A logical page waits in one batch at most.
//!
//! It does not time events.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use hashbrown::{HashMap, HashSet};

use crate::{ftl::PageWrite, geometry::Lpn};

/// Pages that are handed over together.
struct Batch {
    number: u64,
    request: u64,
    /// `None`: the page was trimmed meanwhile.
    pages: Vec<Option<PageWrite>>,
}

/// The content of one handover.
pub struct HandOver {
    /// The batch's number.
    pub batch: u64,
    /// The written pages.
    pub pages: Vec<PageWrite>,
    /// Written pages that are trimmed after that.
    pub trimmed: Vec<Lpn>,
}

/// The write buffer; see the module.
pub struct Buffer {
    frames: u32,
    free: u32,
    /// Pages that are handed over whole; 1 if there are no units.
    unit_pages: u32,
    /// Trimmed pages that wait with their unit.
    trimmed: HashSet<u32>,
    waiting: VecDeque<Batch>,
    next_batch: u64,
    /// The place of a waiting page: the batch and the page's number in it.
    places: HashMap<u32, (u64, usize)>,
    /// Copies of a page that were handed over and are not programmed.
    handed_over: HashMap<u32, u32>,
    /// Pages of each batch that are not programmed, nor given up.
    left: BTreeMap<u64, u32>,
    /// Pages that the host wrote and that never came to the translation layer.
    ///
    /// They were written again, or trimmed, before.
    pub absorbed: u64,
}

impl Buffer {
    /// Makes a buffer of so many frames, at least one unit.
    pub fn new(frames: u32, unit_pages: u32) -> Buffer {
        Buffer {
            frames,
            free: frames,
            unit_pages,
            trimmed: HashSet::new(),
            waiting: VecDeque::new(),
            next_batch: 0,
            places: HashMap::new(),
            handed_over: HashMap::new(),
            left: BTreeMap::new(),
            absorbed: 0,
        }
    }

    /// Returns the fill in percent.
    pub fn fill_percent(&self) -> u8 {
        (u64::from(self.frames - self.free) * 100 / u64::from(self.frames.max(1))) as u8
    }

    /// Returns true if the buffer holds the newest content of a page.
    pub fn holds(&self, lpn: Lpn) -> bool {
        self.waits(lpn) || self.handed_over.contains_key(&lpn.0)
    }

    /// Returns true if content of a page was not handed over yet.
    pub fn waits(&self, lpn: Lpn) -> bool {
        self.places.contains_key(&lpn.0)
    }

    /// Checks that a request writes whole units, each with its pages in order.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_units(&self, pages: &[PageWrite]) {
        let unit_pages = self.unit_pages;
        let is_at_place = |(at, page): (u32, &PageWrite)| page.lpn.0 % unit_pages == at % unit_pages;
        let is_whole = (pages.len() as u32).is_multiple_of(unit_pages) && (0..).zip(pages).all(is_at_place);
        assert!(is_whole, "a write is not of whole units of {unit_pages} pages");
    }

    /// Takes a frame for a page that is read; returns false if none is free.
    pub fn take_frame(&mut self) -> bool {
        let has_one = self.free > 0;
        self.free -= u32::from(has_one);
        has_one
    }

    /// Frees the frame of a page that was read.
    pub fn give_frame(&mut self) {
        self.free += 1;
    }

    /// Puts a page of a write request into the buffer; returns false if there is no room.
    pub fn put(&mut self, request: u64, page: PageWrite) -> bool {
        if let Some(&(batch, at)) = self.places.get(&page.lpn.0) {
            *self.waiting_page(batch, at) = Some(page);
            self.trimmed.remove(&page.lpn.0);
            self.absorbed += 1;
            return true;
        }
        if !self.take_frame() {
            return false;
        }
        let unit_pages = self.unit_pages as usize;
        let goes_on = |last: &&mut Batch| last.request == request && (unit_pages == 1 || last.pages.len() < unit_pages);
        let (number, at) = match self.waiting.back_mut().filter(goes_on) {
            Some(batch) => {
                batch.pages.push(Some(page));
                (batch.number, batch.pages.len() - 1)
            }
            None => {
                let number = self.next_batch;
                self.next_batch += 1;
                self.waiting.push_back(Batch { number, request, pages: vec![Some(page)] });
                (number, 0)
            }
        };
        self.places.insert(page.lpn.0, (number, at));
        *self.left.entry(number).or_default() += 1;
        true
    }

    /// Trims pages. Returns those that the layer has to trim now.
    pub fn trim(&mut self, pages: Range<u32>) -> Vec<Range<u32>> {
        if self.unit_pages == 1 {
            pages.clone().for_each(|lpn| self.give_up(lpn));
            return vec![pages];
        }
        let batches: BTreeSet<u64> = pages.clone().filter_map(|lpn| Some(self.places.get(&lpn)?.0)).collect();
        self.trimmed.extend(pages.clone().filter(|lpn| self.places.contains_key(lpn)));
        for number in batches {
            let all = self.pages_of(number);
            if all.len() == self.unit_pages as usize && all.iter().all(|lpn| self.trimmed.contains(lpn)) {
                for lpn in all {
                    self.trimmed.remove(&lpn);
                    self.give_up(lpn);
                }
            }
        }
        pages.filter(|lpn| !self.trimmed.contains(lpn)).map(|lpn| lpn..lpn + 1).collect()
    }

    fn pages_of(&self, number: u64) -> Vec<u32> {
        let first = self.waiting.front().map_or(0, |batch| batch.number);
        self.waiting[(number - first) as usize].pages.iter().flatten().map(|page| page.lpn.0).collect()
    }

    /// Gives up the waiting content of a page.
    fn give_up(&mut self, lpn: u32) {
        let Some((number, at)) = self.places.remove(&lpn) else { return };
        *self.waiting_page(number, at) = None;
        self.absorbed += 1;
        self.is_done_with(number);
    }

    /// Finds a waiting page. Batches wait in the order of their numbers, without a gap.
    fn waiting_page(&mut self, number: u64, at: usize) -> &mut Option<PageWrite> {
        let first = self.waiting.front().map_or(0, |batch| batch.number);
        &mut self.waiting[(number - first) as usize].pages[at]
    }

    /// Hands over the oldest batch, if it is whole.
    pub fn hand_over(&mut self) -> Option<HandOver> {
        if self.unit_pages > 1 && self.waiting.front()?.pages.len() < self.unit_pages as usize {
            return None;
        }
        let batch = self.waiting.pop_front()?;
        let pages: Vec<PageWrite> = batch.pages.into_iter().flatten().collect();
        for page in &pages {
            self.places.remove(&page.lpn.0);
            *self.handed_over.entry(page.lpn.0).or_default() += 1;
        }
        let trimmed = pages.iter().map(|page| page.lpn).filter(|lpn| self.trimmed.remove(&lpn.0)).collect();
        Some(HandOver { batch: batch.number, pages, trimmed })
    }

    /// Frees the frame of a page that was handed over.
    pub fn release(&mut self, lpn: Lpn, batch: u64) {
        if let Some(count) = self.handed_over.get_mut(&lpn.0) {
            *count -= 1;
            if *count == 0 {
                self.handed_over.remove(&lpn.0);
            }
        }
        self.is_done_with(batch);
    }

    fn is_done_with(&mut self, batch: u64) {
        self.free += 1;
        if let Some(left) = self.left.get_mut(&batch) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&batch);
            }
        }
    }

    /// Returns the next batch's number: all pages written until now are in batches before it.
    pub fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// Returns true if all batches before that number are programmed.
    pub fn is_programmed_before(&self, batch: u64) -> bool {
        self.left.keys().next().is_none_or(|&first| first >= batch)
    }

    /// Returns true if no frame is taken.
    pub fn is_empty(&self) -> bool {
        self.free == self.frames
    }
}
