//! The bytes of a simulated device: what reads see, what survives a power loss, and the changes in between.
//!
//! Invariants: replaying the log over the durable image, in order, gives the current image. Nothing of an entry
//! older than a durable change of the same sector is left in the log, so a crash never revives it.
//!
//! What it does not do: decide when a change happens or is made durable; the device does.

use crate::{
    Extent, SharedBuf,
    rng::{Rng, mix64},
};
use std::collections::{BTreeMap, VecDeque};

/// What a medium writes at once or not at all, in bytes.
pub(super) const ATOM_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;
/// Unflushed changes and their bytes that a device holds; beyond, the oldest become durable.
const LOG_CHANGES_MAX: usize = 64 << 10;
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a discarded range that garbage fills; the rest reads as zeroes.
const GARBAGE_BYTES_MAX: u64 = 16 << 20;
/// Longer changes are torn in one place only.
const SHREDDED_ATOMS_MAX: u64 = 16 << 10;
/// Most extents that one query answers with.
const EXTENTS_MAX: usize = 4096;

type Page = Box<[u8; PAGE_BYTES as usize]>;

/// Sparse bytes; a page that is not there is zeroes.
#[derive(Default)]
struct Pages(BTreeMap<u64, Page>);

/// Calls `f` with page number, range in the page, and range in the operation, for each page of `offset..offset + len`.
fn each_page(offset: u64, len: u64, mut f: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = (offset + done) % PAGE_BYTES;
        let part = (PAGE_BYTES - at).min(len - done);
        f((offset + done) / PAGE_BYTES, at as usize..(at + part) as usize, done as usize..(done + part) as usize);
        done += part;
    }
}

fn new_page() -> Page {
    Box::new([0; PAGE_BYTES as usize])
}

impl Pages {
    fn read(&self, offset: u64, out: &mut [u8]) {
        each_page(offset, out.len() as u64, |page, at, from| match self.0.get(&page) {
            Some(bytes) => out[from].copy_from_slice(&bytes[at]),
            None => out[from].fill(0),
        });
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        each_page(offset, data.len() as u64, |page, at, from| {
            self.0.entry(page).or_insert_with(new_page)[at].copy_from_slice(&data[from]);
        });
    }

    fn zero(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = offset + len;
        // Only pages that exist are visited, so that zeroing a huge range is cheap.
        let there: Vec<u64> =
            self.0.range(offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES).map(|(&page, _)| page).collect();
        for page in there {
            let (from, to) = ((page * PAGE_BYTES).max(offset), ((page + 1) * PAGE_BYTES).min(end));
            if to - from == PAGE_BYTES {
                self.0.remove(&page);
            } else if let Some(bytes) = self.0.get_mut(&page) {
                bytes[(from % PAGE_BYTES) as usize..][..(to - from) as usize].fill(0);
            }
        }
    }

    fn copy_pages_of(&mut self, other: &Pages, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let pages = offset / PAGE_BYTES..=(offset + len - 1) / PAGE_BYTES;
        let mine: Vec<u64> = self.0.range(pages.clone()).map(|(&page, _)| page).collect();
        for page in mine.into_iter().filter(|page| !other.0.contains_key(page)) {
            self.0.remove(&page);
        }
        for (&page, bytes) in other.0.range(pages) {
            self.0.entry(page).or_insert_with(new_page).copy_from_slice(&bytes[..]);
        }
    }

    fn apply(&mut self, change: &Change) {
        match &change.content {
            Content::Data(data) => self.write(change.offset, data),
            Content::Zeroes => self.zero(change.offset, change.len),
            Content::Garbage { seed, from } => {
                self.zero(change.offset, change.len);
                let len = change.len.min((from + GARBAGE_BYTES_MAX).saturating_sub(change.offset));
                let mut atom = [0; ATOM_BYTES as usize];
                for at in (change.offset..change.offset + len).step_by(ATOM_BYTES as usize) {
                    Rng::new(mix64(*seed) ^ at).fill(&mut atom);
                    self.write(at, &atom);
                }
            }
        }
    }
}

/// What a change puts in its place.
#[derive(Clone)]
pub(super) enum Content {
    /// These bytes, as many as the change is long.
    Data(SharedBuf),
    Zeroes,
    /// Bytes that depend on the seed and on their place; `from` is where the discarded range began.
    Garbage {
        seed: u64,
        from: u64,
    },
}

/// A write, discard or zeroing, or a part of one. Offset and length are multiples of [`ATOM_BYTES`].
#[derive(Clone)]
pub(super) struct Change {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) content: Content,
}

impl Change {
    fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part of this change between `from` and `to`, where there is one.
    fn part(&self, from: u64, to: u64) -> Option<Change> {
        let (from, to) = (from.max(self.offset), to.min(self.end()));
        if from >= to {
            return None;
        }
        let content = match &self.content {
            Content::Data(data) => {
                Content::Data(data.slice((from - self.offset) as usize..(to - self.offset) as usize))
            }
            other => other.clone(),
        };
        Some(Change { offset: from, len: to - from, content })
    }

    /// Some of the change's sectors and the others: a beginning, an end, or any.
    pub(super) fn tear(&self, rng: &mut Rng) -> (Vec<Change>, Vec<Change>) {
        let atoms = self.len / ATOM_BYTES;
        let cut = self.offset + rng.below(atoms + 1) * ATOM_BYTES;
        let shape = if atoms <= SHREDDED_ATOMS_MAX { rng.below(3) } else { rng.below(2) };
        let (mut some, mut others) = (Vec::new(), Vec::new());
        if shape < 2 {
            let (head, tail) = (self.part(self.offset, cut), self.part(cut, self.end()));
            let (first, second) = if shape == 0 { (head, tail) } else { (tail, head) };
            some.extend(first);
            others.extend(second);
            return (some, others);
        }
        // Runs of one fate, so that a long change does not become thousands of pieces of one sector.
        let mut at = self.offset;
        while at < self.end() {
            let run = (1 + rng.below(1 + atoms / 4)) * ATOM_BYTES;
            let side = if rng.chance(1, 2) { &mut some } else { &mut others };
            side.extend(self.part(at, at + run));
            at += run;
        }
        (some, others)
    }
}

/// The bytes of a device, durable and not.
#[derive(Default)]
pub(super) struct Medium {
    /// What reads see.
    current: Pages,
    /// What is there after a power loss that takes every unflushed change.
    durable: Pages,
    /// Changes in the current image and not yet in the durable one, oldest first, each with its number.
    log: VecDeque<(u64, Change)>,
    next_change: u64,
    log_bytes: u64,
}

impl Medium {
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        self.current.read(offset, out);
    }

    pub(super) fn read_durable(&self, offset: u64, out: &mut [u8]) {
        self.durable.read(offset, out);
    }

    /// Number of the next change: a flush that begins now covers those below it.
    pub(super) fn next_change(&self) -> u64 {
        self.next_change
    }

    /// Bytes changed and not yet durable, counting each change.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Makes a change that a power loss may take back.
    pub(super) fn change(&mut self, change: Change) {
        if change.len == 0 {
            return;
        }
        self.current.apply(&change);
        self.log_bytes += change.len;
        self.log.push_back((self.next_change, change));
        self.next_change += 1;
        while self.log.len() > LOG_CHANGES_MAX || (self.log_bytes > LOG_BYTES_MAX && self.log.len() > 1) {
            self.settle_oldest();
        }
    }

    /// Makes a change that is durable at once.
    pub(super) fn change_durably(&mut self, change: &Change) {
        self.current.apply(change);
        self.durable.apply(change);
        // No older entry may cover it after a crash: cut it out of them. The halves of an entry share its number.
        if self.log.iter().all(|(_, old)| old.end() <= change.offset || change.end() <= old.offset) {
            return;
        }
        for (number, old) in std::mem::take(&mut self.log) {
            let parts = [old.part(0, change.offset), old.part(change.end(), u64::MAX)];
            self.log.extend(parts.into_iter().flatten().map(|part| (number, part)));
        }
        self.log_bytes = self.log.iter().map(|(_, old)| old.len).sum();
    }

    /// Makes all changes below number `upto` durable.
    pub(super) fn flush(&mut self, upto: u64) {
        while self.log.front().is_some_and(|(number, _)| *number < upto) {
            self.settle_oldest();
        }
    }

    fn settle_oldest(&mut self) {
        if let Some((_, change)) = self.log.pop_front() {
            self.durable.apply(&change);
            self.log_bytes -= change.len;
        }
    }

    /// Loses power: each change that is not durable is kept, dropped or torn.
    pub(super) fn power_loss(&mut self, rng: &mut Rng) {
        // Now and then all of them share one fate: those are the crashes that real machines have most.
        let keep_of_8 = [0, 1, 4, 7, 8][rng.index(5)];
        let log = std::mem::take(&mut self.log);
        for (_, change) in &log {
            if keep_of_8 % 8 != 0 && rng.chance(1, 4) {
                change.tear(rng).0.iter().for_each(|part| self.durable.apply(part));
            } else if rng.chance(keep_of_8, 8) {
                self.durable.apply(change);
            }
        }
        for (_, change) in &log {
            self.current.copy_pages_of(&self.durable, change.offset, change.len);
        }
        self.log_bytes = 0;
    }

    /// Flips between one and eight bits of `offset..offset + len`, behind the device's back.
    pub(super) fn flip_bits(&mut self, offset: u64, len: u64, rng: &mut Rng) {
        let mut bits: Vec<u64> = (0..=rng.below(8)).map(|_| rng.below(len * 8)).collect();
        bits.sort_unstable();
        bits.dedup();
        for bit in bits {
            let mut byte = [0];
            self.current.read(offset + bit / 8, &mut byte);
            let flipped = [byte[0] ^ (1 << (bit % 8))];
            self.current.write(offset + bit / 8, &flipped);
            self.durable.write(offset + bit / 8, &flipped);
        }
    }

    /// Runs of pages that were written and that were not.
    pub(super) fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + len);
        while at < end && extents.len() < EXTENTS_MAX {
            let page = at / PAGE_BYTES;
            let hole = !self.current.0.contains_key(&page);
            let next = if hole {
                self.current.0.range(page..).next().map_or(u64::MAX, |(&page, _)| page)
            } else {
                (page + 1..).find(|page| !self.current.0.contains_key(page)).unwrap_or(u64::MAX)
            };
            let to = next.saturating_mul(PAGE_BYTES).min(end);
            extents.push(Extent { len: to - at, hole, zero: hole });
            at = to;
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoBuf;

    fn data(offset: u64, byte: u8, len: usize) -> Change {
        let content = Content::Data(IoBuf::copy_of(&vec![byte; len]).freeze());
        Change { offset, len: len as u64, content }
    }

    fn byte(medium: &Medium, offset: u64) -> u8 {
        let mut byte = [0];
        medium.read(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn a_durable_change_is_not_covered_by_an_older_one_after_a_crash() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut medium = Medium::default();
            medium.change(data(0, 1, 8192));
            medium.change_durably(&data(2048, 2, 1024));
            assert_eq!(medium.unflushed_bytes(), 8192 - 1024);
            medium.power_loss(&mut rng);
            assert_eq!((byte(&medium, 2048), byte(&medium, 3071)), (2, 2), "seed {seed}");
            assert!(byte(&medium, 2047) <= 1 && byte(&medium, 3072) <= 1, "seed {seed}");
        }
    }

    #[test]
    fn tearing_parts_a_change_without_loss() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let len = ATOM_BYTES * (1 + rng.below(64));
            let (some, others) = data(512, 1, len as usize).tear(&mut rng);
            let mut parts: Vec<_> = some.iter().chain(&others).map(|part| (part.offset, part.end())).collect();
            parts.sort_unstable();
            assert_eq!(parts.first().map(|part| part.0), Some(512), "seed {seed}");
            assert_eq!(parts.last().map(|part| part.1), Some(512 + len), "seed {seed}");
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "seed {seed}");
        }
    }

    #[test]
    fn a_flush_covers_what_came_before_it_only() {
        let mut medium = Medium::default();
        medium.change(data(0, 1, 512));
        let upto = medium.next_change();
        medium.change(data(512, 2, 512));
        medium.flush(upto);
        let mut out = [9; 1024];
        medium.read_durable(0, &mut out);
        assert_eq!((out[0], out[512]), (1, 0));
        assert_eq!(medium.unflushed_bytes(), 512);
    }

    #[test]
    fn extents_and_zeroes_follow_the_pages() {
        let mut medium = Medium::default();
        medium.change(data(1 << 30, 1, 8192));
        let extents: Vec<_> = medium.extents(0, 1 << 40).iter().map(|extent| (extent.len, extent.hole)).collect();
        assert_eq!(extents, [(1 << 30, true), (8192, false), ((1 << 40) - (1 << 30) - 8192, true)]);
        medium.change(Change { offset: 512, len: (1 << 40) - 512, content: Content::Zeroes });
        assert_eq!(medium.extents(0, 1 << 40).len(), 1);
        assert_eq!(byte(&medium, 1 << 30), 0);
    }

    #[test]
    fn garbage_is_the_same_however_it_is_cut() {
        let whole = Change { offset: 1024, len: 8192, content: Content::Garbage { seed: 7, from: 1024 } };
        let (mut a, mut b) = (Medium::default(), Medium::default());
        a.change(whole.clone());
        let (some, others) = whole.tear(&mut Rng::new(3));
        some.into_iter().chain(others).for_each(|part| b.change(part));
        let (mut out_a, mut out_b) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        a.read(0, &mut out_a);
        b.read(0, &mut out_b);
        assert!(out_a == out_b && out_a[1024..1536].iter().any(|&byte| byte != 0));
    }
}
