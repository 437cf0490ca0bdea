//! The drive's RAM: frames of one page each, for writes that are not programmed yet and for reads on their way out.
//!
//! What is written is put into *batches*, one a request, or a part of one that has no room whole; the translation layer is handed
//! whole batches, in their order. A page that is written again while it waits takes the place of what was there: that is *absorbed*.
//!
//! Invariants: a frame is free, or holds a page that waits in a batch, or one that was handed over and is not programmed, or one
//! that is being read. A logical page waits in one batch at most.
//!
//! What it does not do: say when anything happens.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::ssd::{ftl::PageWrite, geometry::Lpn};

/// Pages that are handed over together.
struct Batch {
    number: u64,
    request: u64,
    /// `None`: the page was trimmed meanwhile.
    pages: Vec<Option<PageWrite>>,
}

/// See the module.
pub struct Buffer {
    frames: u32,
    free: u32,
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
    /// Of so many pages.
    pub fn new(frames: u32) -> Buffer {
        Buffer {
            frames,
            free: frames,
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
        self.places.contains_key(&lpn.0) || self.handed_over.contains_key(&lpn.0)
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
            self.absorbed += 1;
            return true;
        }
        if !self.take_frame() {
            return false;
        }
        let (number, at) = match self.waiting.back_mut().filter(|last| last.request == request) {
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

    /// The host has no more use for a page.
    pub fn trim(&mut self, lpn: Lpn) {
        let Some((number, at)) = self.places.remove(&lpn.0) else { return };
        *self.waiting_page(number, at) = None;
        self.absorbed += 1;
        self.is_done_with(number);
    }

    /// Batches wait in the order of their numbers, none of which is left out.
    fn waiting_page(&mut self, number: u64, at: usize) -> &mut Option<PageWrite> {
        let first = self.waiting.front().map_or(0, |batch| batch.number);
        &mut self.waiting[(number - first) as usize].pages[at]
    }

    /// Hands over the oldest batch: its number, and its pages.
    pub fn hand_over(&mut self) -> Option<(u64, Vec<PageWrite>)> {
        let batch = self.waiting.pop_front()?;
        let pages: Vec<PageWrite> = batch.pages.into_iter().flatten().collect();
        for page in &pages {
            self.places.remove(&page.lpn.0);
            *self.handed_over.entry(page.lpn.0).or_default() += 1;
        }
        Some((batch.number, pages))
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
