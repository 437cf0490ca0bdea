//! The drive's RAM: frames of one page each, for writes that are not programmed yet and for reads on their way out.
//!
//! What is written is put into *batches*, one a request, or a part of one that has no room whole; the translation layer is handed
//! whole batches, in their order. A page that is written again while it waits takes the place of what was there: that is *absorbed*.
//!
//! Where the layer takes whole write-evict units alone, a batch is one unit, and is not handed over before it has all its
//! pages. A trim of some of them while it waits does not break it: those pages are handed over, to be trimmed after that. One
//! of which all is trimmed is given up.
//!
//! Invariants: a frame is free, or holds a page that waits in a batch, or one that was handed over and is not programmed, or one
//! that is being read. A logical page waits in one batch at most.
//!
//! What it does not do: say when anything happens.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use hashbrown::{HashMap, HashSet};

use crate::ssd::{ftl::PageWrite, geometry::Lpn};

/// Pages that are handed over together.
struct Batch {
    number: u64,
    request: u64,
    /// `None`: the page was trimmed meanwhile.
    pages: Vec<Option<PageWrite>>,
}

/// What is handed over together.
pub struct HandOver {
    /// The batch's number.
    pub batch: u64,
    /// What is written.
    pub pages: Vec<PageWrite>,
    /// What of it is trimmed after that.
    pub trimmed: Vec<Lpn>,
}

/// See the module.
pub struct Buffer {
    frames: u32,
    free: u32,
    /// Pages that are handed over whole; 1 where any are.
    unit_pages: u32,
    /// Pages that wait with their unit, and are of no use.
    trimmed: HashSet<u32>,
    waiting: VecDeque<Batch>,
    next_batch: u64,
    /// Where a page waits: the batch and the page's number in it.
    places: HashMap<u32, (u64, usize)>,
    /// How often a page was handed over and is not programmed.
    handed_over: HashMap<u32, u32>,
    /// Pages of each batch that are not programmed, nor given up.
    left: BTreeMap<u64, u32>,
    /// Pages that the host wrote and that never came to the translation layer: written again, or trimmed, before.
    pub absorbed: u64,
}

impl Buffer {
    /// Of so many pages, at least one of the units in which they are handed over.
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

    /// How full it is, in percent.
    pub fn fill_percent(&self) -> u8 {
        (u64::from(self.frames - self.free) * 100 / u64::from(self.frames.max(1))) as u8
    }

    /// Whether it holds what was written to a page last.
    pub fn holds(&self, lpn: Lpn) -> bool {
        self.waits(lpn) || self.handed_over.contains_key(&lpn.0)
    }

    /// Whether something that was written to a page was not handed over yet.
    pub fn waits(&self, lpn: Lpn) -> bool {
        self.places.contains_key(&lpn.0)
    }

    /// Nothing, if a request writes whole units, each with its pages in order.
    ///
    /// # Panics
    /// If not.
    pub fn check_units(&self, pages: &[PageWrite]) {
        let unit_pages = self.unit_pages;
        let is_at_place = |(at, page): (u32, &PageWrite)| page.lpn.0 % unit_pages == at % unit_pages;
        let is_whole = (pages.len() as u32).is_multiple_of(unit_pages) && (0..).zip(pages).all(is_at_place);
        assert!(is_whole, "a write is not of whole units of {unit_pages} pages");
    }

    /// A frame for a page that is read. False where none is free.
    pub fn take_frame(&mut self) -> bool {
        let has_one = self.free > 0;
        self.free -= u32::from(has_one);
        has_one
    }

    /// What was read has left.
    pub fn give_frame(&mut self) {
        self.free += 1;
    }

    /// A page of a request that the host writes. False where there is no room for it.
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

    /// The host has no more use for pages. Returns those that the layer is to trim now.
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

    /// What waits for a page is not handed over.
    fn give_up(&mut self, lpn: u32) {
        let Some((number, at)) = self.places.remove(&lpn) else { return };
        *self.waiting_page(number, at) = None;
        self.absorbed += 1;
        self.is_done_with(number);
    }

    /// Batches wait in the order of their numbers, none of which is left out.
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

    /// A page that was handed over needs its frame no more.
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

    /// The number that the next batch will have: all before it hold what was written until now.
    pub fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// Whether all batches before that number are programmed.
    pub fn is_programmed_before(&self, batch: u64) -> bool {
        self.left.keys().next().is_none_or(|&first| first >= batch)
    }

    /// Whether no frame is taken.
    pub fn is_empty(&self) -> bool {
        self.free == self.frames
    }
}
