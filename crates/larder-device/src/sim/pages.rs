//! Sparse bytes that are copied only at a write, and changes to them.
//!
//! Invariants: a clone shares everything with its original; its cost is in proportion to the
//! leaves, not to the bytes. Offsets and lengths of changes are multiples of [`SECTOR_BYTES`].
//!
//! A discarded sector without promised content is *undefined*. It reads as its old bytes, as zeroes
//! or as garbage, as its seed and a salt decide, until it is rewritten. Another salt, after a power
//! loss, may decide otherwise.
//!
//! It does not know the durable part; [`super::image`] does.

use crate::{
    SharedBuf,
    rng::{Rng, mix64},
};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// The unit of all changes, in bytes.
pub(super) const SECTOR_BYTES: u64 = 512;
pub(super) const PAGE_BYTES: u64 = 4096;
/// Pages of a leaf; as many as a word has bits.
const LEAF_PAGES: u64 = 64;
/// Bytes of a discarded range without earlier writes that become undefined; the rest reads as
/// zeroes.
const UNDEFINED_HOLE_BYTES_MAX: u64 = 16 << 20;
/// The atoms of the longest change that tears in many places; longer ones tear in one.
const SHREDDED_ATOMS_MAX: u64 = 16 << 10;

type Bytes = [u8; PAGE_BYTES as usize];

/// The content of a page.
#[derive(Clone, Default)]
struct Page {
    /// `None`: zeroes.
    bytes: Option<Arc<Bytes>>,
    /// Bit i: sector i of the page is undefined.
    undefined: u8,
    seed: u32,
}

/// Some pages that follow each other.
#[derive(Clone)]
struct Leaf {
    /// Bit i: page i is not a hole.
    there: u64,
    pages: [Page; LEAF_PAGES as usize],
}

/// Sparse bytes; a missing page is a hole and reads as zeroes.
#[derive(Clone, Default)]
pub(super) struct Pages(BTreeMap<u64, Arc<Leaf>>);

/// Calls `f` for each page of `offset..offset + len`.
///
/// Its arguments are the page number, the range in the page, and the range in the operation.
fn each_page(offset: u64, len: u64, mut f: impl FnMut(u64, Range<usize>, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = (offset + done) % PAGE_BYTES;
        let part = (PAGE_BYTES - at).min(len - done);
        f((offset + done) / PAGE_BYTES, at as usize..(at + part) as usize, done as usize..(done + part) as usize);
        done += part;
    }
}

/// Returns the numbers of the pages that a range touches.
pub(super) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    if len == 0 { 0..0 } else { offset / PAGE_BYTES..(offset + len - 1) / PAGE_BYTES + 1 }
}

/// Returns a bit for each sector of the page that the range touches.
fn sectors_of(at: &Range<usize>) -> u8 {
    let (first, last) = (at.start / SECTOR_BYTES as usize, (at.end - 1) / SECTOR_BYTES as usize);
    (u8::MAX << first) & (u8::MAX >> (7 - last))
}

impl Page {
    fn bytes_mut(&mut self) -> &mut Bytes {
        Arc::make_mut(self.bytes.get_or_insert_with(|| Arc::new([0; PAGE_BYTES as usize])))
    }

    fn write(&mut self, at: &Range<usize>, data: &[u8]) {
        self.undefined &= !sectors_of(at);
        // A shared page that is overwritten whole needs no copy.
        if let Ok(whole) = <&Bytes>::try_from(data)
            && self.bytes.as_mut().is_none_or(|bytes| Arc::get_mut(bytes).is_none())
        {
            self.bytes = Some(Arc::new(*whole));
        } else {
            self.bytes_mut()[at.clone()].copy_from_slice(data);
        }
    }

    fn read(&self, number: u64, at: &Range<usize>, salt: u64, out: &mut [u8]) {
        match &self.bytes {
            Some(bytes) => out.copy_from_slice(&bytes[at.clone()]),
            None => out.fill(0),
        }
        if self.undefined & sectors_of(at) != 0 {
            self.read_undefined(number, at, salt, out);
        }
    }

    #[cold]
    fn read_undefined(&self, number: u64, at: &Range<usize>, salt: u64, out: &mut [u8]) {
        let mut sector = [0; SECTOR_BYTES as usize];
        for index in (0..8).filter(|index| self.undefined & (1 << index) != 0) {
            let start = index * SECTOR_BYTES as usize;
            let (from, to) = (start.max(at.start), (start + SECTOR_BYTES as usize).min(at.end));
            if from >= to {
                continue;
            }
            let drawn = mix64(mix64(u64::from(self.seed) ^ salt) ^ (number * 8 + index as u64));
            let out = &mut out[from - at.start..to - at.start];
            match drawn % 4 {
                // The old bytes.
                0 => {}
                1 => out.fill(0),
                _ => {
                    Rng::new(drawn).fill(&mut sector);
                    out.copy_from_slice(&sector[from - start..to - start]);
                }
            }
        }
    }
}

impl Pages {
    fn get(&self, page: u64) -> Option<&Page> {
        let leaf = self.0.get(&(page / LEAF_PAGES))?;
        let index = page % LEAF_PAGES;
        (leaf.there & (1 << index) != 0).then(|| &leaf.pages[index as usize])
    }

    fn get_mut(&mut self, page: u64) -> &mut Page {
        let leaf = self
            .0
            .entry(page / LEAF_PAGES)
            .or_insert_with(|| Arc::new(Leaf { there: 0, pages: std::array::from_fn(|_| Page::default()) }));
        let leaf = Arc::make_mut(leaf);
        leaf.there |= 1 << (page % LEAF_PAGES);
        &mut leaf.pages[(page % LEAF_PAGES) as usize]
    }

    fn remove(&mut self, page: u64) {
        if let Some(shared) = self.0.get_mut(&(page / LEAF_PAGES))
            && shared.there & (1 << (page % LEAF_PAGES)) != 0
        {
            let leaf = Arc::make_mut(shared);
            leaf.there &= !(1 << (page % LEAF_PAGES));
            leaf.pages[(page % LEAF_PAGES) as usize] = Page::default();
            if leaf.there == 0 {
                self.0.remove(&(page / LEAF_PAGES));
            }
        }
    }

    /// Returns the pages of a range that are not holes, in order.
    pub(super) fn there(&self, pages: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let leaves = pages.start / LEAF_PAGES..=pages.end.saturating_sub(1) / LEAF_PAGES;
        let found = self.0.range(leaves).flat_map(|(&number, leaf)| {
            let there = leaf.there;
            (0..LEAF_PAGES).filter(move |index| there & (1 << index) != 0).map(move |index| number * LEAF_PAGES + index)
        });
        found.filter(move |page| pages.contains(page))
    }

    pub(super) fn is_hole(&self, page: u64) -> bool {
        self.get(page).is_none()
    }

    /// Returns whether the device keeps nothing of this page: never written, or discarded whole.
    pub(super) fn is_free(&self, page: u64) -> bool {
        self.get(page).is_none_or(|page| page.undefined == u8::MAX)
    }

    /// Returns whether some sector of the range may read as anything.
    pub(super) fn is_undefined(&self, offset: u64, len: u64) -> bool {
        let mut found = false;
        each_page(offset, len, |page, at, _| {
            found |= self.get(page).is_some_and(|page| page.undefined & sectors_of(&at) != 0);
        });
        found
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8], salt: u64) {
        each_page(offset, out.len() as u64, |page, at, from| match self.get(page) {
            Some(found) => found.read(page, &at, salt, &mut out[from]),
            None => out[from].fill(0),
        });
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        each_page(offset, data.len() as u64, |page, at, from| self.get_mut(page).write(&at, &data[from]));
    }

    fn zero(&mut self, offset: u64, len: u64) {
        // Only pages that exist are visited, so that zeroing a huge range is cheap.
        let there: Vec<u64> = self.there(pages_of(offset, len)).collect();
        for page in there {
            let (from, to) = ((page * PAGE_BYTES).max(offset), ((page + 1) * PAGE_BYTES).min(offset + len));
            if to - from == PAGE_BYTES {
                self.remove(page);
                continue;
            }
            let at = (from % PAGE_BYTES) as usize..(from % PAGE_BYTES + (to - from)) as usize;
            let found = self.get_mut(page);
            found.undefined &= !sectors_of(&at);
            found.bytes_mut()[at].fill(0);
            // A page zeroed in two parts is as free as one zeroed whole.
            if found.undefined == 0 && found.bytes_mut().iter().all(|&byte| byte == 0) {
                self.remove(page);
            }
        }
    }

    /// Makes a range undefined: the existing pages, and holes up to `holes_end`.
    fn forget(&mut self, offset: u64, len: u64, seed: u32, holes_end: u64) {
        let there: Vec<u64> = self.there(pages_of(offset, len)).collect();
        let holes = pages_of(offset, len.min(holes_end.saturating_sub(offset)));
        for page in there.into_iter().filter(|page| !holes.contains(page)).chain(holes.clone()) {
            let (from, to) = ((page * PAGE_BYTES).max(offset), ((page + 1) * PAGE_BYTES).min(offset + len));
            let at = (from % PAGE_BYTES) as usize..(from % PAGE_BYTES + (to - from)) as usize;
            let page = self.get_mut(page);
            page.undefined |= sectors_of(&at);
            page.seed = seed;
        }
    }

    /// Takes over another image's page, a hole included.
    pub(super) fn share(&mut self, other: &Pages, page: u64) {
        match other.get(page) {
            Some(found) => *self.get_mut(page) = found.clone(),
            None => self.remove(page),
        }
    }

    /// Flips a bit, of a byte that stays as defined as it was.
    pub(super) fn flip(&mut self, bit: u64) {
        let byte = bit / 8;
        self.get_mut(byte / PAGE_BYTES).bytes_mut()[(byte % PAGE_BYTES) as usize] ^= 1 << (bit % 8);
    }

    /// Applies the part of the change that lies in this page.
    pub(super) fn apply_to_page(&mut self, change: &Change, page: u64) {
        if let Some(part) = change.part(page * PAGE_BYTES, (page + 1) * PAGE_BYTES) {
            self.apply(&part);
        }
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match &change.content {
            Content::Data(data) => self.write(change.offset, data),
            Content::Zeroes => self.zero(change.offset, change.len),
            Content::Undefined { seed, from } => {
                self.forget(change.offset, change.len, *seed, from + UNDEFINED_HOLE_BYTES_MAX);
            }
        }
    }
}

/// The new content of a change.
#[derive(Clone)]
pub(super) enum Content {
    /// These bytes, as many as the change is long.
    Data(SharedBuf),
    Zeroes,
    /// Any bytes; `from` is the start of the discarded range.
    Undefined {
        seed: u32,
        from: u64,
    },
}

/// A write, discard or zeroing, or a part of one.
///
/// Offset and length are multiples of [`SECTOR_BYTES`].
#[derive(Clone)]
pub(super) struct Change {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) content: Content,
}

impl Change {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Returns whether it is zeroes or a discard, which may be longer than the existing pages.
    pub(super) fn is_hole(&self) -> bool {
        !matches!(self.content, Content::Data(_))
    }

    /// Returns the atoms of `atom_bytes` that the change touches, the first and last perhaps in
    /// part.
    pub(super) fn atoms(&self, atom_bytes: u64) -> Range<u64> {
        self.offset / atom_bytes..self.end().div_ceil(atom_bytes)
    }

    /// Returns the part of this change between `from` and `to`, if any.
    pub(super) fn part(&self, from: u64, to: u64) -> Option<Change> {
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

    /// Splits the change into some of its atoms and the others: a beginning, an end, or any.
    pub(super) fn tear(&self, atom_bytes: u64, rng: &mut Rng) -> (Vec<Change>, Vec<Change>) {
        let Range { start, end } = self.atoms(atom_bytes);
        let atoms = end - start;
        let cut = (start + rng.below(atoms + 1)) * atom_bytes;
        let shape = if atoms <= SHREDDED_ATOMS_MAX { rng.below(3) } else { rng.below(2) };
        let (mut some, mut others) = (Vec::new(), Vec::new());
        if shape < 2 {
            let (head, tail) = (self.part(self.offset, cut), self.part(cut, self.end()));
            let (first, second) = if shape == 0 { (head, tail) } else { (tail, head) };
            some.extend(first);
            others.extend(second);
            return (some, others);
        }
        // Runs of one fate, so that a long change does not become thousands of pieces of one atom.
        let mut at = start;
        while at < end {
            let run = 1 + rng.below(1 + atoms / 4);
            let side = if rng.chance(1, 2) { &mut some } else { &mut others };
            side.extend(self.part(at * atom_bytes, (at + run) * atom_bytes));
            at += run;
        }
        (some, others)
    }
}
