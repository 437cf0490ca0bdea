//! What is known of each physical page, and the metadata pages that hold it in flash (CAFTL section 3.3.3).
//!
//! Role: [`Pages`] has each page's fingerprint, and whether the drive has computed it and the store holds it. In flash
//! that lies in *metadata pages*, 24 bytes a physical page ({fingerprint, LBA or VBA}), which the *metadata page array*
//! finds. Some of them are in RAM ([`Pages::touch`]), so that one is programmed once for many changes.
//!
//! What a metadata page in flash says is kept apart from what the drive knows, in bits a page: whether its metadata
//! page in RAM, and whether that in flash, has its fingerprint and its LBA or VBA as they are. A change takes both
//! away; [`Pages::touch`] gives the one, [`Pages::programmed`] the other. A start sees no more than whether the metadata
//! page in flash has a fingerprint there ([`Pages::load`]), and with a capacitor that is enough: where it is not that
//! of the page any longer, the start panics. The fingerprint itself is not kept twice.
//!
//! Invariants: a metadata page whose bit says that all of its pages are fingerprinted has no valid page of data that is
//! not. What is in RAM is at most what may be; a page gives way by the clock (second chance).
//!
//! The paper says neither how many metadata pages are in RAM nor when they are written; both are ours.
//!
//! What it does not do: program metadata pages (`persist.rs`).

use std::ops::Range;

use super::digest::Digest;
use crate::ssd::{geometry::Ppa, table};

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

    /// Those of a range become what they are in `other`.
    fn copy(&mut self, other: &Bits, range: Range<u32>) {
        let mut at = range.start;
        while at < range.end {
            let word = at as usize / 64;
            let end = (at / 64 * 64).saturating_add(64).min(range.end);
            let mask = u64::MAX << (at % 64) & u64::MAX >> ((64 - end % 64) % 64);
            self.0[word] = self.0[word] & !mask | other.0[word] & mask;
            at = end;
        }
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

/// See the module.
#[derive(Debug)]
pub struct Pages {
    digests: Vec<Digest>,
    /// Whether the drive knows the fingerprint.
    known: Bits,
    /// Whether the store has an entry that means this page.
    stored: Bits,
    /// Whether the metadata page, as it is in RAM, has the page's fingerprint and referrer.
    noted: Bits,
    /// Whether the metadata page, as it was programmed last, has them still.
    saved: Bits,
    /// Whether the metadata page, as it was programmed last, has a fingerprint there, of whatever content.
    in_flash: Bits,
    per_metadata_page: u32,
    /// A bit a metadata page: none of its valid pages is without fingerprint.
    complete: Bits,
    /// Where each metadata page is in RAM.
    frame_of: Vec<u32>,
    frames: Vec<Frame>,
    frames_max: u32,
    hand: u32,
    /// Metadata pages that are wanted in RAM, and whether they change.
    wanted: Vec<(u32, bool)>,
    /// Changed metadata pages that gave way and are not programmed yet.
    leaving: Vec<u32>,
}

impl Pages {
    /// Nothing is known of `pages` pages; `frames_max` metadata pages may be in RAM.
    pub fn new(pages: u32, page_bytes: u32, frames_max: u32) -> Self {
        let per_metadata_page = page_bytes / METADATA_BYTES;
        let metadata_pages = pages.div_ceil(per_metadata_page);
        Pages {
            digests: table::filled(Digest::default(), pages as usize),
            known: Bits::new(pages),
            stored: Bits::new(pages),
            noted: Bits::new(pages),
            saved: Bits::new(pages),
            in_flash: Bits::new(pages),
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

    /// The fingerprint of what a page holds, whether or not the drive has computed it.
    pub fn digest(&self, ppa: Ppa) -> Digest {
        self.digests[ppa.0 as usize]
    }

    /// A page's fingerprint, and whether the store has it, will be looked at soon.
    pub fn prefetch(&self, ppa: Ppa) {
        table::prefetch(&self.digests, ppa.0 as usize);
        table::prefetch(&self.stored.0, ppa.0 as usize / 64);
    }

    /// Whether the drive has computed it.
    pub fn is_known(&self, ppa: Ppa) -> bool {
        self.known.get(ppa.0)
    }

    /// Whether the store has an entry that means this page.
    pub fn is_stored(&self, ppa: Ppa) -> bool {
        self.stored.get(ppa.0)
    }

    /// What the page holds since it was programmed.
    pub fn hold(&mut self, ppa: Ppa, digest: Digest, is_known: bool) {
        self.digests[ppa.0 as usize] = digest;
        self.known.set(ppa.0, is_known);
        self.outdated(ppa);
        if !is_known {
            self.complete.set(ppa.0 / self.per_metadata_page, false);
        }
    }

    /// The drive has computed the page's fingerprint.
    pub fn fingerprinted(&mut self, ppa: Ppa) {
        self.known.set(ppa.0, true);
        self.outdated(ppa);
    }

    /// Another LBA or VBA refers to the page, or what is there is new: its metadata is not as it is noted.
    pub fn outdated(&mut self, ppa: Ppa) {
        self.noted.set(ppa.0, false);
        self.saved.set(ppa.0, false);
    }

    /// The store has an entry that means this page, or has none.
    pub fn set_stored(&mut self, ppa: Ppa, is_stored: bool) {
        self.stored.set(ppa.0, is_stored);
    }

    /// What is programmed is none of the host's: it has no fingerprint.
    pub fn forget(&mut self, ppa: Ppa) {
        self.known.set(ppa.0, false);
        self.outdated(ppa);
    }

    /// The power went: the store is empty, no metadata page is in RAM, and no fingerprint is known until its metadata
    /// page is read. Without `trust` in what flash has of them, none is there.
    pub fn power_lost(&mut self, trust: bool) {
        if !trust {
            self.saved.0.fill(0);
            self.in_flash.0.fill(0);
        }
        self.known.0.fill(0);
        self.noted.0.fill(0);
        self.stored.0.fill(0);
        self.complete.0.fill(u64::MAX);
        self.frame_of.fill(NONE);
        self.frames.clear();
        self.wanted.clear();
        self.leaving.clear();
        self.hand = 0;
    }

    /// A metadata page is programmed, as it is in RAM.
    pub fn programmed(&mut self, metadata_page: u32) {
        let pages = self.pages_of(metadata_page);
        self.saved.copy(&self.noted, pages.clone());
        self.in_flash.copy(&self.noted, pages);
        self.leaving.retain(|&leaving| leaving != metadata_page);
    }

    /// A valid page of data, whose metadata page was read after the power came back: what that says is known.
    ///
    /// # Panics
    /// If it is of a former content, or names a former LBA or VBA: nothing on flash would tell.
    pub fn load(&mut self, ppa: Ppa) {
        let is_there = self.in_flash.get(ppa.0);
        assert!(!is_there || self.saved.get(ppa.0), "the metadata of page {} is of what it was", ppa.0);
        self.noted.set(ppa.0, is_there);
        self.known.set(ppa.0, is_there);
        if !is_there {
            self.complete.set(self.metadata_page(ppa), false);
        }
    }

    /// How many metadata pages there are.
    pub fn metadata_pages(&self) -> u32 {
        self.frame_of.len() as u32
    }

    /// The metadata page of a page.
    pub fn metadata_page(&self, ppa: Ppa) -> u32 {
        ppa.0 / self.per_metadata_page
    }

    /// The pages of a metadata page.
    pub fn pages_of(&self, metadata_page: u32) -> Range<u32> {
        let first = metadata_page * self.per_metadata_page;
        first..first.saturating_add(self.per_metadata_page).min(self.digests.len() as u32)
    }

    /// Whether all valid pages of a metadata page are fingerprinted.
    pub fn is_complete(&self, metadata_page: u32) -> bool {
        self.complete.get(metadata_page)
    }

    /// The first metadata page from `from` on that has pages to fingerprint.
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

    /// All valid pages of a metadata page are fingerprinted.
    pub fn completed(&mut self, metadata_page: u32) {
        self.complete.set(metadata_page, true);
    }

    /// A page's metadata is read, or becomes what is known now. A metadata page that is not in RAM is wanted there.
    pub fn touch(&mut self, ppa: Ppa, changes: bool) {
        if changes {
            self.noted.set(ppa.0, self.known.get(ppa.0));
        }
        let metadata_page = self.metadata_page(ppa);
        if self.touch_frame(metadata_page, changes) {
            return;
        }
        if self.wanted.last() != Some(&(metadata_page, changes)) {
            self.wanted.push((metadata_page, changes));
        }
    }

    /// Whether a metadata page is in RAM; it is touched then.
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

    /// A metadata page that is wanted and not in RAM, and whether it changes.
    pub fn next_wanted(&mut self) -> Option<(u32, bool)> {
        while let Some((metadata_page, changes)) = self.wanted.pop() {
            if !self.touch_frame(metadata_page, changes) {
                return Some((metadata_page, changes));
            }
        }
        None
    }

    /// Brings a metadata page into RAM, which it is not in. The one that gave way, if it has to be programmed.
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

    /// A metadata page in RAM that differs from flash; it is as in flash from now on.
    pub fn take_dirty(&mut self) -> Option<u32> {
        if let Some(leaving) = self.leaving.pop() {
            return Some(leaving);
        }
        let frame = self.frames.iter_mut().find(|frame| frame.is_dirty)?;
        frame.is_dirty = false;
        Some(frame.metadata_page)
    }

    /// How many pages the store means.
    pub fn stored(&self) -> u32 {
        self.stored.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Bytes that are allocated.
    pub fn ram_bytes(&self) -> u64 {
        let bits = [&self.known, &self.stored, &self.noted, &self.saved, &self.in_flash, &self.complete];
        let bits: usize = bits.iter().map(|bits| bits.0.capacity()).sum();
        (self.digests.capacity() * size_of::<Digest>()
            + bits * size_of::<u64>()
            + self.frame_of.capacity() * size_of::<u32>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.leaving.capacity() * size_of::<u32>()
            + self.wanted.capacity() * size_of::<(u32, bool)>()) as u64
    }

    /// Metadata pages in RAM are found there.
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
