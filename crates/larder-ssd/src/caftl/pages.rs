//! The fingerprints of physical pages, and their metadata pages in flash (CAFTL section 3.3.3).
//!
//! Role: [`PageFingerprints`] has each page's fingerprint. It knows if the drive has computed it,
//! and if the store holds it. In flash, fingerprints lie in *metadata pages*, 24 bytes a physical
//! page ({fingerprint, LBA or VBA}), which the *metadata page array* finds. Some metadata pages are
//! in RAM ([`PageFingerprints::touch`]), so that one is programmed once for many changes.
//!
//! Invariants: a metadata page whose bit says "complete" has no valid page of data without
//! fingerprint. RAM holds at most its limit of metadata pages; a page gives way by the clock
//! (second chance).
//!
//! The paper does not give the number of metadata pages in RAM, or the time of their writing; both
//! are ours.
//!
//! It leaves the programming of metadata pages to `persist.rs`.

use std::ops::Range;

use super::digest::Digest;
use crate::{geometry::Ppa, table};

/// Bytes of metadata of a physical page: 160 bits of fingerprint and 32 of LBA or VBA.
pub const METADATA_BYTES: u32 = 24;

/// No frame.
const NONE: u32 = u32::MAX;

/// A bit for each of many.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: u32) -> Self {
        Bits(table::zeroed(len.div_ceil(64) as usize))
    }

    fn get(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: u32, to: bool) {
        let word = &mut self.0[at as usize / 64];
        *word = *word & !(1 << (at % 64)) | u64::from(to) << (at % 64);
    }
}

/// A metadata page in RAM.
#[derive(Clone, Copy, Debug)]
struct Frame {
    metadata_page: u32,
    is_dirty: bool,
    was_touched: bool,
}

/// The fingerprints of all pages; see the module.
#[derive(Debug)]
pub struct PageFingerprints {
    digests: Vec<Digest>,
    /// The drive knows the fingerprint.
    known: Bits,
    /// The store has an entry that means this page.
    stored: Bits,
    per_metadata_page: u32,
    /// A bit a metadata page: none of its valid pages is without fingerprint.
    complete: Bits,
    /// The frame of each metadata page in RAM.
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    frames_max: u32,
    hand: u32,
    /// Metadata pages that are wanted in RAM, and true for each that changes.
    wanted: Vec<(u32, bool)>,
    /// Changed metadata pages that gave way and are not programmed yet.
    leaving: Vec<u32>,
}

impl PageFingerprints {
    /// Makes the state of `pages` unknown pages; `frames_max` metadata pages may be in RAM.
    pub fn new(pages: u32, page_bytes: u32, frames_max: u32) -> Self {
        let per_metadata_page = page_bytes / METADATA_BYTES;
        let metadata_pages = pages.div_ceil(per_metadata_page);
        PageFingerprints {
            digests: table::filled(Digest::default(), pages as usize),
            known: Bits::new(pages),
            stored: Bits::new(pages),
            per_metadata_page,
            complete: Bits(vec![u64::MAX; metadata_pages.div_ceil(64) as usize]),
            frame_of: vec![NONE; metadata_pages as usize],
            frames: Vec::with_capacity(frames_max as usize),
            frames_max,
            hand: 0,
            wanted: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Returns the fingerprint of a page's content, computed by the drive or not.
    pub fn digest(&self, ppa: Ppa) -> Digest {
        self.digests[ppa.0 as usize]
    }

    /// Prefetches a page's fingerprint, and its bit of the store.
    pub fn prefetch(&self, ppa: Ppa) {
        table::prefetch(&self.digests, ppa.0 as usize);
        table::prefetch(&self.stored.0, ppa.0 as usize / 64);
    }

    /// Returns true if the drive has computed it.
    pub fn is_known(&self, ppa: Ppa) -> bool {
        self.known.get(ppa.0)
    }

    /// Returns true if the store has an entry that means this page.
    pub fn is_stored(&self, ppa: Ppa) -> bool {
        self.stored.get(ppa.0)
    }

    /// Sets the content of a page that was programmed.
    pub fn hold(&mut self, ppa: Ppa, digest: Digest, is_known: bool) {
        self.digests[ppa.0 as usize] = digest;
        self.known.set(ppa.0, is_known);
        if !is_known {
            self.complete.set(ppa.0 / self.per_metadata_page, false);
        }
    }

    /// Notes that the drive has computed the page's fingerprint.
    pub fn fingerprinted(&mut self, ppa: Ppa) {
        self.known.set(ppa.0, true);
    }

    /// Notes that the store has an entry that means this page, or has none.
    pub fn set_stored(&mut self, ppa: Ppa, is_stored: bool) {
        self.stored.set(ppa.0, is_stored);
    }

    /// Forgets the fingerprint of a page that is not the host's.
    pub fn forget(&mut self, ppa: Ppa) {
        self.known.set(ppa.0, false);
    }

    /// Notes that a metadata page is programmed.
    pub fn programmed(&mut self, metadata_page: u32) {
        self.leaving.retain(|&leaving| leaving != metadata_page);
    }

    /// Counts the metadata pages.
    pub fn metadata_pages(&self) -> u32 {
        self.frame_of.len() as u32
    }

    /// Returns the metadata page of a page.
    pub fn metadata_page(&self, ppa: Ppa) -> u32 {
        ppa.0 / self.per_metadata_page
    }

    /// Returns the pages of a metadata page.
    pub fn pages_of(&self, metadata_page: u32) -> Range<u32> {
        let first = metadata_page * self.per_metadata_page;
        first..first.saturating_add(self.per_metadata_page).min(self.digests.len() as u32)
    }

    /// Returns true if all valid pages of a metadata page are fingerprinted.
    pub fn is_complete(&self, metadata_page: u32) -> bool {
        self.complete.get(metadata_page)
    }

    /// Finds the first metadata page from `from` on that has pages to fingerprint.
    pub fn next_incomplete(&self, from: u32) -> Option<u32> {
        let mut at = from;
        while at < self.metadata_pages() {
            let word = !self.complete.0[at as usize / 64] >> (at % 64);
            if word != 0 {
                at += word.trailing_zeros();
                return (at < self.metadata_pages()).then_some(at);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Notes that all valid pages of a metadata page are fingerprinted.
    pub fn completed(&mut self, metadata_page: u32) {
        self.complete.set(metadata_page, true);
    }

    /// Touches a page's metadata: a read, or an update to the present values.
    ///
    /// A metadata page that is not in RAM is wanted there.
    pub fn touch(&mut self, ppa: Ppa, changes: bool) {
        let metadata_page = self.metadata_page(ppa);
        if self.touch_frame(metadata_page, changes) {
            return;
        }
        if self.wanted.last() != Some(&(metadata_page, changes)) {
            self.wanted.push((metadata_page, changes));
        }
    }

    /// Touches a metadata page if it is in RAM; returns false if it is not.
    pub fn touch_frame(&mut self, metadata_page: u32, changes: bool) -> bool {
        let frame = self.frame_of[metadata_page as usize];
        if frame == NONE {
            return false;
        }
        let frame = &mut self.frames[frame as usize];
        frame.was_touched = true;
        frame.is_dirty |= changes;
        true
    }

    /// Takes a metadata page that is wanted and not in RAM, and true if it changes.
    pub fn next_wanted(&mut self) -> Option<(u32, bool)> {
        while let Some((metadata_page, changes)) = self.wanted.pop() {
            if !self.touch_frame(metadata_page, changes) {
                return Some((metadata_page, changes));
            }
        }
        None
    }

    /// Brings a metadata page into RAM.
    ///
    /// Returns the one that gave way, if it has to be programmed.
    pub fn bring_in(&mut self, metadata_page: u32, changes: bool) -> Option<u32> {
        let frame = Frame { metadata_page, is_dirty: changes, was_touched: true };
        if (self.frames.len() as u32) < self.frames_max {
            self.frame_of[metadata_page as usize] = self.frames.len() as u32;
            self.frames.push(frame);
            return None;
        }
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.frames_max;
            let victim = &mut self.frames[at as usize];
            if victim.was_touched {
                victim.was_touched = false;
                continue;
            }
            let Frame { metadata_page: old, is_dirty, .. } = std::mem::replace(victim, frame);
            self.frame_of[old as usize] = NONE;
            self.frame_of[metadata_page as usize] = at;
            if is_dirty {
                self.leaving.push(old);
            }
            return is_dirty.then_some(old);
        }
    }

    /// Takes a metadata page in RAM that differs from flash; from now on it counts as equal.
    pub fn take_dirty(&mut self) -> Option<u32> {
        if let Some(leaving) = self.leaving.pop() {
            return Some(leaving);
        }
        let frame = self.frames.iter_mut().find(|frame| frame.is_dirty)?;
        frame.is_dirty = false;
        Some(frame.metadata_page)
    }

    /// Counts the pages that entries of the store mean.
    pub fn stored(&self) -> u32 {
        self.stored.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let bits = [&self.known, &self.stored, &self.complete];
        let bits: usize = bits.iter().map(|bits| bits.0.capacity()).sum();
        (self.digests.capacity() * size_of::<Digest>()
            + bits * size_of::<u64>()
            + self.frame_of.capacity() * size_of::<u32>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.leaving.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, bool)>()) as u64
    }

    /// Checks that metadata pages in RAM are found there.
    ///
    /// # Panics
    /// If not.
    pub fn check(&self) {
        let found = self.frame_of.iter().filter(|frame| **frame != NONE).count();
        assert_eq!(found, self.frames.len(), "each frame is found");
        for (at, frame) in self.frames.iter().enumerate() {
            assert_eq!(self.frame_of[frame.metadata_page as usize], at as u32, "metadata page in its frame");
        }
        assert!(self.frames.len() as u32 <= self.frames_max, "no more frames than may be");
    }
}
