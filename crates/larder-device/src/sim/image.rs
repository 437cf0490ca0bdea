//! The bytes of a simulated device: the view of reads, the durable image, and the changes in
//! between.
//!
//! Invariants: replaying the log over the durable image, in order, gives the current image. A page
//! that no entry of the log touches is the same in both, and shared. The log holds no part of an
//! entry older than a durable change of the same sector, so a crash never revives it. A clone
//! shares all pages. The cost of a power loss is in proportion to the unflushed changes.
//!
//! It does not decide when a change happens or becomes durable; the device does.

use super::pages::{Change, Content, PAGE_BYTES, Pages, pages_of};
use crate::{
    Extent,
    rng::{Rng, mix64},
};
use std::collections::{HashMap, VecDeque};

/// Unflushed changes and their bytes that a device holds; beyond, the oldest become durable.
const LOG_CHANGES_MAX: usize = 64 << 10;
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Most extents in one answer.
const EXTENTS_MAX: usize = 4096;

/// A change that a power loss may take.
#[derive(Clone)]
struct VolatileChange {
    number: u64,
    change: Change,
    /// The pages that it touches; for zeroes and discards only pages that existed.
    pages: Vec<u64>,
    /// A flush of it failed, and later ones do not make it durable. Such entries are the oldest of
    /// the log.
    forgotten: bool,
}

/// The bytes of a device, durable and not.
#[derive(Clone)]
pub(super) struct Medium {
    /// The bytes that reads see.
    current: Pages,
    /// The bytes after a power loss of every unflushed change.
    durable: Pages,
    /// Changes in the current image and not yet in the durable one, oldest first.
    log: VecDeque<VolatileChange>,
    /// The number of log entries that touch a page.
    entries_of_page: HashMap<u64, u32>,
    /// The number of zero and discard entries.
    holed: u64,
    next_change: u64,
    log_bytes: u64,
    /// The number of entries ever forgotten.
    forgotten: u64,
    failed_flushes: u64,
    /// The seed of undefined sectors' content, until the next power loss.
    salt: u64,
    /// The atom, in bytes: it is written at once or not at all.
    tear_bytes: u64,
}

impl Medium {
    /// Returns a medium of zeroes. A crash leaves atoms of `tear_bytes` whole.
    pub(super) fn new(tear_bytes: u64) -> Medium {
        Medium {
            current: Pages::default(),
            durable: Pages::default(),
            log: VecDeque::new(),
            entries_of_page: HashMap::new(),
            holed: 0,
            next_change: 0,
            log_bytes: 0,
            forgotten: 0,
            failed_flushes: 0,
            salt: 0,
            tear_bytes,
        }
    }

    /// Returns the same bytes, durable, on a medium with atoms of `tear_bytes`.
    pub(super) fn copied(&self, tear_bytes: u64) -> Medium {
        let (current, durable) = (self.current.clone(), self.current.clone());
        let Medium { salt, forgotten, failed_flushes, .. } = *self;
        Medium { current, durable, salt, forgotten, failed_flushes, ..Medium::new(tear_bytes) }
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        self.current.read(offset, out, self.salt);
    }

    pub(super) fn read_durable(&self, offset: u64, out: &mut [u8]) {
        self.durable.read(offset, out, self.salt);
    }

    /// Returns the bytes after a power loss that takes everything.
    pub(super) fn durable(&self) -> &Pages {
        &self.durable
    }

    pub(super) fn tear_bytes(&self) -> u64 {
        self.tear_bytes
    }

    /// Returns the number of the next change: a flush that begins now covers those below it.
    pub(super) fn next_change(&self) -> u64 {
        self.next_change
    }

    /// Returns the bytes changed and not yet durable, counting each change.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Returns the changes that are not durable, oldest first.
    pub(super) fn unflushed(&self) -> impl Iterator<Item = &Change> {
        self.log.iter().map(|entry| &entry.change)
    }

    /// Returns whether some page of the range is empty, so that a write needs space.
    pub(super) fn needs_space(&self, offset: u64, len: u64) -> bool {
        pages_of(offset, len).any(|page| self.current.is_free(page))
    }

    /// Returns the parts of a change that need no space.
    pub(super) fn parts_with_space(&self, change: &Change) -> Vec<Change> {
        let pages = pages_of(change.offset, change.len).filter(|&page| !self.current.is_free(page));
        pages.filter_map(|page| change.part(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)).collect()
    }

    /// Returns the pages that a change touches in one of the images.
    pub(super) fn pages_touched(&self, change: &Change) -> Vec<u64> {
        let all = pages_of(change.offset, change.len);
        if let Content::Data(_) = change.content {
            return all.collect();
        }
        let mut there: Vec<u64> = self.current.there(all.clone()).chain(self.durable.there(all)).collect();
        there.sort_unstable();
        there.dedup();
        there
    }

    /// Makes a change that a power loss may take back.
    pub(super) fn change(&mut self, change: Change) {
        if change.len == 0 {
            return;
        }
        let pages = self.show(&change);
        self.note(&pages);
        self.log_bytes += change.len;
        self.holed += u64::from(change.is_hole());
        self.log.push_back(VolatileChange { number: self.next_change, change, pages, forgotten: false });
        self.next_change += 1;
        while self.log.len() > LOG_CHANGES_MAX || (self.log_bytes > LOG_BYTES_MAX && self.log.len() > 1) {
            self.make_oldest_durable();
        }
    }

    /// Puts a change into the current image. Returns the pages that it touched.
    fn show(&mut self, change: &Change) -> Vec<u64> {
        let before = self.pages_touched(change);
        self.current.apply(change);
        match change.content {
            // Pages that were holes are none now.
            Content::Undefined { .. } => self.pages_touched(change),
            _ => before,
        }
    }

    fn note(&mut self, pages: &[u64]) {
        for &page in pages {
            *self.entries_of_page.entry(page).or_insert(0) += 1;
        }
    }

    /// Counts one entry less for the page. Returns true for the last one.
    fn unnote(&mut self, page: u64) -> bool {
        if let Some(entries) = self.entries_of_page.get_mut(&page) {
            *entries -= 1;
            if *entries > 0 {
                return false;
            }
            self.entries_of_page.remove(&page);
        }
        true
    }

    /// Makes a change that is durable at once.
    pub(super) fn change_durably(&mut self, change: &Change) {
        let pages = self.show(change);
        let overlaps = |old: &Change| old.offset < change.end() && change.offset < old.end();
        // Zeroes and discards cover more than the pages that they touch.
        let covered = self.holed > 0 || pages.iter().any(|page| self.entries_of_page.contains_key(page));
        if covered && self.log.iter().any(|entry| overlaps(&entry.change)) {
            self.durable.apply(change);
            self.cut(change, u64::MAX);
        } else {
            for page in pages {
                if self.entries_of_page.contains_key(&page) {
                    self.durable.apply_to_page(change, page);
                } else {
                    self.durable.share(&self.current, page);
                }
            }
        }
    }

    /// Cuts a durable change out of all older entries, with numbers below `below`.
    ///
    /// They must not cover it after a crash.
    fn cut(&mut self, change: &Change, below: u64) {
        for entry in std::mem::take(&mut self.log) {
            if entry.number >= below || entry.change.end() <= change.offset || change.end() <= entry.change.offset {
                self.log.push_back(entry);
                continue;
            }
            self.holed -= u64::from(entry.change.is_hole());
            // The halves of an entry share its number.
            for part in [entry.change.part(0, change.offset), entry.change.part(change.end(), u64::MAX)] {
                let Some(part) = part else { continue };
                let range = pages_of(part.offset, part.len);
                let pages: Vec<u64> = entry.pages.iter().copied().filter(|page| range.contains(page)).collect();
                self.note(&pages);
                self.holed += u64::from(part.is_hole());
                self.log.push_back(VolatileChange {
                    number: entry.number,
                    change: part,
                    pages,
                    forgotten: entry.forgotten,
                });
            }
            for page in entry.pages {
                if self.unnote(page) {
                    self.durable.share(&self.current, page);
                }
            }
        }
        self.log_bytes = self.log.iter().map(|entry| entry.change.len).sum();
    }

    /// Makes all changes below number `upto` durable, except forgotten ones.
    pub(super) fn flush(&mut self, upto: u64) {
        let forgotten = self.log.iter().take_while(|entry| entry.forgotten).count();
        while self.log.get(forgotten).is_some_and(|entry| entry.number < upto) {
            if forgotten == 0 {
                self.make_oldest_durable();
            } else {
                return self.flush_behind(forgotten, upto);
            }
        }
    }

    /// Does the same, but keeps the `forgotten` oldest.
    fn flush_behind(&mut self, forgotten: usize, upto: u64) {
        let end = self.log.iter().take_while(|entry| entry.number < upto).count();
        let durable: Vec<VolatileChange> = self.log.drain(forgotten..end).collect();
        for VolatileChange { number, change, pages, .. } in durable {
            self.holed -= u64::from(change.is_hole());
            self.durable.apply(&change);
            for page in pages {
                if self.unnote(page) {
                    self.durable.share(&self.current, page);
                }
            }
            self.cut(&change, number);
        }
        self.log_bytes = self.log.iter().map(|entry| entry.change.len).sum();
    }

    /// Notes a failed flush, and perhaps forgets the changes below some number.
    ///
    /// Reads see these until the next power loss, which may take them, and no flush makes them
    /// durable. Linux does so with pages after a failed write.
    pub(super) fn flush_failed(&mut self, forgets: Option<u64>) {
        self.failed_flushes += 1;
        let upto = forgets.unwrap_or(0);
        for entry in self.log.iter_mut().take_while(|entry| entry.number < upto) {
            self.forgotten += u64::from(!entry.forgotten);
            entry.forgotten = true;
        }
    }

    /// Returns the number of failed flushes so far.
    pub(super) fn failed_flushes(&self) -> u64 {
        self.failed_flushes
    }

    /// Returns the number of changes forgotten so far.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Decides each forgotten change, as another process opens the device: it is there for good, or
    /// is not.
    pub(super) fn recall(&mut self) {
        let count = self.log.iter().take_while(|entry| entry.forgotten).count();
        if count == 0 {
            return;
        }
        let mut rng = Rng::new(mix64(self.salt ^ self.next_change));
        for VolatileChange { change, pages, .. } in self.log.drain(..count).collect::<Vec<_>>() {
            self.log_bytes -= change.len;
            self.holed -= u64::from(change.is_hole());
            if rng.chance(1, 2) {
                self.durable.apply(&change);
            }
            for page in pages {
                self.unnote(page);
                self.current.share(&self.durable, page);
            }
        }
        // Reads still see the younger changes, also on a page of a lost one.
        for entry in &self.log {
            self.current.apply(&entry.change);
        }
    }

    fn make_oldest_durable(&mut self) {
        let Some(VolatileChange { change, pages, .. }) = self.log.pop_front() else { return };
        self.log_bytes -= change.len;
        self.holed -= u64::from(change.is_hole());
        for page in pages {
            if self.unnote(page) {
                self.durable.share(&self.current, page);
            } else {
                self.durable.apply_to_page(&change, page);
            }
        }
    }

    /// Loses power: each change that is not durable is kept, dropped or torn.
    pub(super) fn power_loss(&mut self, rng: &mut Rng) {
        // Now and then all of them share one fate, as in most crashes of real machines.
        let keep_of_8 = [0, 1, 4, 7, 8][rng.index(5)];
        let tear_bytes = self.tear_bytes;
        // Not taken from the stream: without undefined sectors this draws nothing.
        let salt = rng.clone().next_u64();
        self.lose(salt, |change, durable| {
            if keep_of_8 % 8 != 0 && rng.chance(1, 4) {
                change.tear(tear_bytes, rng).0.iter().for_each(|part| durable.apply(part));
            } else if rng.chance(keep_of_8, 8) {
                durable.apply(change);
            }
        });
    }

    /// Loses power. `keep` puts its choice of each volatile change, oldest first, into the durable
    /// image.
    ///
    /// `salt` decides anew the content of undefined sectors.
    pub(super) fn lose(&mut self, salt: u64, mut keep: impl FnMut(&Change, &mut Pages)) {
        let log = std::mem::take(&mut self.log);
        log.iter().for_each(|entry| keep(&entry.change, &mut self.durable));
        for page in std::mem::take(&mut self.entries_of_page).into_keys() {
            self.current.share(&self.durable, page);
        }
        (self.log_bytes, self.holed) = (0, 0);
        self.salt = mix64(self.salt ^ salt);
    }

    /// Flips between one and eight bits of `offset..offset + len`, behind the device's back.
    pub(super) fn flip_bits(&mut self, offset: u64, len: u64, rng: &mut Rng) {
        let mut bits: Vec<u64> = (0..=rng.below(8)).map(|_| rng.below(len * 8)).collect();
        bits.sort_unstable();
        bits.dedup();
        for bit in bits {
            self.current.flip(offset * 8 + bit);
            self.durable.flip(offset * 8 + bit);
        }
    }

    /// Returns the runs of written and unwritten pages.
    pub(super) fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end && extents.len() < EXTENTS_MAX {
            let page = at / PAGE_BYTES;
            let hole = self.current.is_hole(page);
            let next = if hole {
                self.current.there(page..end.div_ceil(PAGE_BYTES)).next().unwrap_or(u64::MAX)
            } else {
                (page + 1..).find(|&page| self.current.is_hole(page)).unwrap_or(u64::MAX)
            };
            let to = next.saturating_mul(PAGE_BYTES).min(end);
            extents.push(Extent { len: to - at, hole, zero: hole });
            at = to;
        }
        extents
    }
}
