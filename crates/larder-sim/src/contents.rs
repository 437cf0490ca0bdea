//! Contents of the pages of a drive, as its cache tells them, for layers that keep equal pages
//! once.
//!
//! A page is known if uncompressed chunks cover all of it, in one write or several. Then its
//! content is the fingerprint of the chunks and of the page's place in them, and that of
//! [zeroes](Content::ZEROES) if all of them are. Compressed records, metadata and padding are
//! unknown.
//!
//! A trace has a fingerprint for each chunk and none for parts of one. So pages count as equal if
//! they consist of the same parts of equal chunks, or of zeroes. Equal parts of different chunks
//! stay undetected.
//!
//! Invariants: the pieces of a page are apart and ascending; a page with none has no entry. For a
//! layer that does not ask, no contents are kept.
//!
//! It does not know which pages are on flash, and which wait.

use std::ops::Range;

use hashbrown::{HashMap, hash_map::Entry};
use larder_core::{Fingerprint, types::mix};
use smallvec::SmallVec;

use crate::{cache::Content, devices::RawChunk};
use larder_ssd::{
    ftl::{Ftl, PageWrite},
    geometry::Lpn,
};

/// See the module. Offsets are bytes of the drive.
pub(crate) struct PageContents {
    page_bytes: u64,
    is_asked: bool,
    pages: HashMap<u64, Pieces>,
}

/// Most pages hold one chunk, or a part of one: it is in the table, with no memory of its own.
type Pieces = SmallVec<[Piece; 1]>;

/// Some bytes of a chunk, on one page.
#[derive(Clone, Copy)]
struct Piece {
    /// Their place on the page.
    start: u32,
    end: u32,
    /// The first of them within the chunk.
    from: u32,
    chunk_bytes: u32,
    fingerprint: Fingerprint,
}

impl PageContents {
    /// Makes the contents of a drive with this layer, all unknown.
    pub fn of(ftl: &dyn Ftl) -> PageContents {
        let page_bytes = u64::from(ftl.array().geometry().page_bytes);
        PageContents { page_bytes, is_asked: ftl.deduplicates(), pages: HashMap::new() }
    }

    /// Writes these bytes of the drive, which begins at byte `laid_at` of the flash.
    ///
    /// The request has these [chunks](crate::devices::Requests::raw_chunks) of the flash.
    pub fn write(&mut self, chunks: &[RawChunk], laid_at: u64, bytes: Range<u64>) {
        if !self.is_asked {
            return;
        }
        let page_bytes = self.page_bytes;
        for page in bytes.start / page_bytes..bytes.end.div_ceil(page_bytes) {
            let page_start = page * page_bytes;
            let (start, end) = (bytes.start.max(page_start), bytes.end.min(page_start + page_bytes));
            let first = chunks.partition_point(|chunk| chunk.start + u64::from(chunk.len) <= laid_at + start);
            let here = chunks.get(first..).unwrap_or_default().iter();
            let here = here.take_while(|chunk| chunk.start < laid_at + end);
            let mut pieces = here.map(|chunk| Piece::of(chunk, laid_at, start..end, page_start)).peekable();
            let on_page = (start - page_start) as u32..(end - page_start) as u32;
            match self.pages.entry(page) {
                Entry::Vacant(_) if pieces.peek().is_none() => {}
                Entry::Vacant(unknown) => drop(unknown.insert(pieces.collect())),
                Entry::Occupied(mut known) => {
                    overwrite(known.get_mut(), on_page, pieces);
                    if known.get().is_empty() {
                        known.remove();
                    }
                }
            }
        }
    }

    /// Trims these pages.
    pub fn trim(&mut self, pages: Range<u64>) {
        if !self.pages.is_empty() {
            pages.for_each(|page| drop(self.pages.remove(&page)));
        }
    }

    /// Returns pages, to be handed to the layer with all that was written to them.
    pub fn page_writes(&self, pages: Range<u64>) -> impl Iterator<Item = PageWrite> {
        pages.map(|page| PageWrite { lpn: Lpn(page as u32), content: self.get(page) })
    }

    /// Returns the content of a page, if it is known.
    pub fn get(&self, page: u64) -> Option<Fingerprint> {
        let mut at = 0;
        let mut hash = PageHash::default();
        for piece in self.pages.get(&page)? {
            if piece.start > at {
                return None;
            }
            hash.add(piece);
            at = piece.end;
        }
        (u64::from(at) == self.page_bytes).then(|| hash.finish())
    }
}

/// Puts new pieces in place of the known ones in these bytes of a page.
fn overwrite(known: &mut Pieces, bytes: Range<u32>, new: impl Iterator<Item = Piece>) {
    let covers = |piece: &Piece| bytes.start <= piece.start && piece.end <= bytes.end;
    if known.iter().all(covers) {
        known.clear();
        return known.extend(new);
    }
    let old = std::mem::take(known);
    known.extend(old.iter().filter_map(|piece| piece.part(piece.start..piece.end.min(bytes.start))));
    known.extend(new);
    known.extend(old.iter().filter_map(|piece| piece.part(piece.start.max(bytes.end)..piece.end)));
}

impl Piece {
    /// Returns the part of a chunk in these bytes of the drive; the page that begins there has them
    /// all.
    fn of(chunk: &RawChunk, laid_at: u64, bytes: Range<u64>, page_start: u64) -> Piece {
        // A chunk may begin before the part of the flash that lies on the drive.
        let start = bytes.start.max(chunk.start.saturating_sub(laid_at));
        let end = bytes.end.min(chunk.start + u64::from(chunk.len) - laid_at);
        Piece {
            start: (start - page_start) as u32,
            end: (end - page_start) as u32,
            from: (laid_at + start - chunk.start) as u32,
            chunk_bytes: chunk.len,
            fingerprint: chunk.fingerprint,
        }
    }

    /// Returns these bytes of it, if there are any.
    fn part(&self, bytes: Range<u32>) -> Option<Piece> {
        let from = self.from + (bytes.start - self.start);
        (bytes.start < bytes.end).then_some(Piece { start: bytes.start, end: bytes.end, from, ..*self })
    }

    /// Returns the two as one, if the other goes on at this one's end.
    fn joined(&self, next: &Piece) -> Option<Piece> {
        let is_one = self.fingerprint == next.fingerprint
            && (self.fingerprint == Content::ZEROES
                || self.from + (self.end - self.start) == next.from && self.chunk_bytes == next.chunk_bytes);
        is_one.then_some(Piece { end: next.end, ..*self })
    }
}

/// The fingerprint of a page that consists of parts of chunks.
///
/// It is the same for a part written at once or in pieces.
#[derive(Default)]
struct PageHash {
    halves: [u64; 2],
    /// Parts before the last.
    parts: u32,
    last: Option<Piece>,
}

impl PageHash {
    fn add(&mut self, piece: &Piece) {
        let Some(last) = self.last.replace(*piece) else { return };
        match last.joined(piece) {
            Some(joined) => self.last = Some(joined),
            None => self.mix_in(&last),
        }
    }

    fn mix_in(&mut self, piece: &Piece) {
        let len = u64::from(piece.end - piece.start);
        // All parts of zeroes are alike.
        let place = if piece.fingerprint == Content::ZEROES { len } else { u64::from(piece.from) << 32 | len };
        let number = u128::from_le_bytes(piece.fingerprint.0);
        let [low, high] = self.halves;
        self.halves = [mix(low ^ mix(number as u64 ^ place)), mix(high ^ mix((number >> 64) as u64 ^ !place))];
        self.parts += 1;
    }

    fn finish(mut self) -> Fingerprint {
        if let Some(last) = self.last.take() {
            let is_whole = last.from == 0 && last.end - last.start == last.chunk_bytes;
            if self.parts == 0 && (is_whole || last.fingerprint == Content::ZEROES) {
                return last.fingerprint;
            }
            self.mix_in(&last);
        }
        let [low, high] = self.halves.map(u128::from);
        Fingerprint((high << 64 | low).to_le_bytes())
    }
}

#[cfg(test)]
mod tests;
