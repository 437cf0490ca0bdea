//! The dirty bytes of a cache's flash, for a drive that drops clean data by itself.
//!
//! Role: `DirtyChunks` is the cache's: the places of the data of dirty addresses. The cache tells
//! it every change of an address. It then tells the drive which bytes become dirty or clean
//! ([`Requests::told`](crate::devices::Requests::told)), in the order of its requests: FlashTier's
//! write-dirty, write-clean and clean. [`DirtyPages`] is the drive's side. A page is dirty while
//! any data on it is. The number of dirty blocks is limited: beyond it the cache has to write back
//! the data that has been dirty longest.
//!
//! Metadata is dirty for ever ([`DirtyPages::keep`]): without it no dirty data could be found. A
//! cache in write-back is asked after each request of a chunk, which makes only its own stored
//! bytes dirty. Blocks for so much are left.
//!
//! Invariants: bytes that were told dirty are told clean once, in the same ranges.
//!
//! It does not write data back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use larder_core::Lba;

use crate::devices::Gathering;
use larder_ssd::ftl::Ftl;

/// Blocks that may get dirty before a cache is asked again, at least.
///
/// If blocks are larger than chunks, one request makes two dirty.
const SPARE_BLOCKS_MIN: u32 = 4;

/// A cache's announcement of its dirty bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirtying {
    /// These bytes are dirty for ever.
    pub for_ever: Vec<Range<u64>>,
    /// The adjacent bytes that a request of one chunk makes dirty at most; 0: no others are ever
    /// dirty.
    pub at_once: u64,
}

/// The error of too few blocks for a cache's dirty data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDirty {
    /// Blocks that are dirty for ever.
    pub for_ever: u32,
    /// Blocks that one request may make dirty.
    pub at_once: u32,
    /// Blocks that are needed.
    pub needed: u32,
    /// Blocks that may be dirty.
    pub blocks_max: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DirtyChunks {
    is_on: bool,
    places: BTreeMap<Lba, Range<u64>>,
    by_place: BTreeSet<(u64, Lba)>,
    longest: u64,
}

impl DirtyChunks {
    /// Turns it on, from the beginning on.
    pub fn turn_on(&mut self) {
        self.is_on = true;
    }

    /// Returns true if dirty bytes are told.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Sets the place of the dirty data of `lba`; `None`: it is clean, or lies nowhere.
    pub fn set(&mut self, lba: Lba, now: Option<Range<u64>>, gathering: &mut Gathering) {
        if self.places.get(&lba) == now.as_ref() {
            return;
        }
        if let Some(old) = self.places.remove(&lba) {
            self.by_place.remove(&(old.start, lba));
            gathering.tell(old, false);
        }
        if let Some(new) = now {
            self.longest = self.longest.max(new.end - new.start);
            self.by_place.insert((new.start, lba));
            gathering.tell(new.clone(), true);
            self.places.insert(lba, new);
        }
    }

    /// Returns the addresses whose dirty data lies in these bytes, in whole or in part.
    pub fn in_bytes(&self, bytes: &Range<u64>) -> Vec<Lba> {
        let from = (bytes.start.saturating_sub(self.longest), Lba(0));
        let near = self.by_place.range(from..(bytes.end, Lba(0)));
        let is_in = |lba: &Lba| self.places.get(lba).is_some_and(|place| place.end > bytes.start);
        near.map(|&(_, lba)| lba).filter(is_in).collect()
    }

    /// Returns the dirty addresses of a run.
    pub fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.places.range(first..Lba(first.0 + count)).map(|(&lba, _)| lba).collect()
    }
}

#[derive(Debug)]
struct Block {
    pages: u32,
    /// Its number, in the order in which blocks became dirty.
    number: u64,
}

/// See the module.
#[derive(Debug)]
pub struct DirtyPages {
    page_bytes: u64,
    pages_per_block: u32,
    blocks_max: u32,
    /// Blocks that may get dirty before a cache is asked again.
    spare_blocks: u32,
    /// Dirty chunks on each page.
    chunks: HashMap<u32, u32>,
    blocks: HashMap<u32, Block>,
    /// Blocks that can be written back, by their numbers.
    order: BTreeMap<u64, u32>,
    next_number: u64,
    kept: HashSet<u32>,
}

impl DirtyPages {
    /// Makes the pages of a new drive; `None` if it drops only on request.
    pub fn of(ftl: &dyn Ftl) -> Option<DirtyPages> {
        let geometry = ftl.array().geometry();
        Some(DirtyPages {
            page_bytes: u64::from(geometry.page_bytes),
            pages_per_block: geometry.pages_per_block,
            blocks_max: ftl.dirty_blocks_max().filter(|_| ftl.drops_unasked())?,
            spare_blocks: SPARE_BLOCKS_MIN,
            chunks: HashMap::new(),
            blocks: HashMap::new(),
            order: BTreeMap::new(),
            next_number: 0,
            kept: HashSet::new(),
        })
    }

    /// Takes a cache's announcement, and returns the pages to tell, which are dirty for ever.
    ///
    /// # Errors
    /// If they leave fewer blocks than two requests may make dirty, or none.
    pub fn keep(&mut self, dirtying: &Dirtying) -> Result<Vec<Range<u32>>, TooDirty> {
        let Dirtying { for_ever, at_once } = dirtying;
        let pages: Vec<Range<u32>> = for_ever.iter().map(|bytes| self.pages(bytes)).collect();
        let blocks = pages.iter().flat_map(|pages| {
            pages.start / self.pages_per_block
                ..pages.end.div_ceil(self.pages_per_block).max(pages.start / self.pages_per_block)
        });
        self.kept.extend(blocks);
        for pages in &pages {
            for page in pages.clone() {
                self.change(page, true);
            }
        }
        let block_bytes = u64::from(self.pages_per_block) * self.page_bytes;
        let (for_ever, blocks_max) = (self.kept.len() as u32, self.blocks_max);
        let (at_once, needed) = match at_once {
            0 => {
                self.spare_blocks = 0;
                (0, for_ever + 1)
            }
            // For bytes that begin in the last of a block's.
            bytes => {
                let at_once = ((bytes - 1).div_ceil(block_bytes) + 1) as u32;
                self.spare_blocks = at_once.max(SPARE_BLOCKS_MIN);
                (at_once, for_ever + 2 * self.spare_blocks)
            }
        };
        if needed > blocks_max {
            return Err(TooDirty { for_ever, at_once, needed, blocks_max });
        }
        Ok(pages)
    }

    /// Makes bytes of the drive dirty, or no longer. Returns the pages that this changes.
    pub fn told(&mut self, bytes: &Range<u64>, is_dirty: bool) -> Vec<u32> {
        self.pages(bytes).filter(|&page| self.change(page, is_dirty)).collect()
    }

    /// Returns the dirty ones of these pages: a trim has made the drive forget them.
    pub fn dirty_in(&self, pages: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        pages.filter(|page| self.chunks.contains_key(page))
    }

    /// Returns bytes of the drive to write back, if there is no room for more dirty ones.
    pub fn too_dirty(&self) -> Option<Range<u64>> {
        if (self.blocks.len() as u32) + self.spare_blocks <= self.blocks_max {
            return None;
        }
        let (_, &block) = self.order.first_key_value()?;
        let block_bytes = u64::from(self.pages_per_block) * self.page_bytes;
        Some(u64::from(block) * block_bytes..(u64::from(block) + 1) * block_bytes)
    }

    fn pages(&self, bytes: &Range<u64>) -> Range<u32> {
        (bytes.start / self.page_bytes) as u32..bytes.end.div_ceil(self.page_bytes) as u32
    }

    /// Counts one dirty chunk more or less on a page. Returns true if the page becomes dirty or
    /// clean.
    fn change(&mut self, page: u32, is_dirty: bool) -> bool {
        let chunks = self.chunks.entry(page).or_insert(0);
        if is_dirty {
            *chunks += 1;
        } else {
            *chunks -= 1;
        }
        let chunks = *chunks;
        if chunks == 0 {
            self.chunks.remove(&page);
        }
        if chunks != u32::from(is_dirty) {
            return false;
        }
        let number = page / self.pages_per_block;
        match self.blocks.get_mut(&number) {
            None => {
                self.blocks.insert(number, Block { pages: 1, number: self.next_number });
                if !self.kept.contains(&number) {
                    self.order.insert(self.next_number, number);
                }
                self.next_number += 1;
            }
            Some(block) if is_dirty => block.pages += 1,
            Some(block) => {
                block.pages -= 1;
                if block.pages == 0 {
                    self.order.remove(&block.number);
                    self.blocks.remove(&number);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Requests;
    use larder_ssd::{
        geometry::DriveGeometry,
        kinds::FtlKind,
        profile::{DriveProfile, PROFILES},
    };

    fn pages() -> DirtyPages {
        let geometry = DriveGeometry {
            packages: 1,
            dies_per_package: 1,
            planes_per_die: 1,
            blocks_per_plane: 64,
            pages_per_block: 4,
            ..PROFILES[0].geometry
        };
        let make = FtlKind::named("flashtier").expect("it is one").make;
        DirtyPages::of(&*make(&DriveProfile { geometry, ..PROFILES[0] }).expect("a drive")).expect("it drops")
    }

    #[test]
    fn a_page_is_dirty_while_a_chunk_on_it_is() {
        let mut pages = pages();
        let page = pages.page_bytes;
        assert_eq!(pages.told(&(page / 2..page + 1), true), [0, 1]);
        assert_eq!(pages.told(&(0..page / 2), true), [] as [u32; 0]);
        assert_eq!(pages.dirty_in(0..9).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(pages.told(&(page / 2..page + 1), false), [1]);
        assert_eq!(pages.told(&(0..page / 2), false), [0]);
        assert!(pages.blocks.is_empty() && pages.order.is_empty() && pages.chunks.is_empty());
    }

    #[test]
    fn what_has_been_dirty_longest_goes_first_and_metadata_never() {
        let mut pages = pages();
        let block = 4 * pages.page_bytes;
        pages.keep(&Dirtying { for_ever: std::iter::once(0..block + 1).collect(), at_once: block }).expect("room");
        let most = pages.blocks_max - SPARE_BLOCKS_MIN;
        for number in 2..u64::from(most) {
            pages.told(&(number * block..number * block + 1), true);
            assert_eq!(pages.too_dirty(), None, "{number}");
        }
        // Dirty again, and so the last.
        pages.told(&(2 * block..2 * block + 1), false);
        pages.told(&(2 * block..2 * block + 1), true);
        let more = u64::from(most);
        pages.told(&(more * block..more * block + 1), true);
        assert_eq!(pages.too_dirty(), Some(3 * block..4 * block));
        pages.told(&(3 * block..3 * block + 1), false);
        assert_eq!(pages.too_dirty(), None);
    }

    #[test]
    fn room_is_left_for_what_a_request_may_make_dirty() {
        let of = |for_ever: u64, at_once: u64| {
            let mut pages = pages();
            let block = 4 * pages.page_bytes;
            let for_ever = std::iter::once(0..for_ever * block).collect();
            pages.keep(&Dirtying { for_ever, at_once }).map(|_| pages.spare_blocks)
        };
        let (block, blocks_max) = (4 * pages().page_bytes, pages().blocks_max);
        // A byte, and the most bytes from the last byte of a block on.
        for (at_once, spare) in [(1, 4), (2 * block + 1, 4), (3 * block + 1, 4), (3 * block + 2, 5)] {
            assert_eq!(of(1, at_once), Ok(spare), "{at_once} bytes");
        }
        let most = u64::from(blocks_max);
        // If no other data gets dirty, one droppable block is left.
        assert_eq!(of(most - 1, 0), Ok(0));
        assert_eq!(of(most, 0), Err(TooDirty { for_ever: blocks_max, at_once: 0, needed: blocks_max + 1, blocks_max }));
        assert_eq!(of(most - 8, 1), Ok(4));
        assert_eq!(
            of(most - 7, 2),
            Err(TooDirty { for_ever: blocks_max - 7, at_once: 2, needed: blocks_max + 1, blocks_max })
        );
        let large = TooDirty { for_ever: blocks_max - 20, at_once: 11, needed: blocks_max + 2, blocks_max };
        assert_eq!(of(most - 20, 10 * block), Err(large));
    }

    #[test]
    fn what_was_told_is_told_back_with_the_same_bytes() {
        let (mut chunks, mut gathering) = (DirtyChunks::default(), Gathering::default());
        gathering.turn(true);
        chunks.set(Lba(1), Some(100..200), &mut gathering);
        chunks.set(Lba(2), Some(180..220), &mut gathering);
        chunks.set(Lba(1), Some(100..200), &mut gathering);
        assert_eq!(chunks.in_bytes(&(199..200)), [Lba(1), Lba(2)]);
        assert_eq!(chunks.in_bytes(&(200..201)), [Lba(2)]);
        assert_eq!(chunks.in_bytes(&(0..100)), []);
        assert_eq!(chunks.in_run(Lba(0), 2), [Lba(1)]);
        chunks.set(Lba(1), Some(300..350), &mut gathering);
        chunks.set(Lba(2), None, &mut gathering);
        let mut asked = Requests::default();
        gathering.take(&mut asked);
        let told: Vec<_> = asked.told().iter().map(|told| (told.bytes.clone(), told.is_dirty)).collect();
        let expected = [(100..200, true), (180..220, true), (100..200, false), (300..350, true), (180..220, false)];
        assert_eq!(told, expected);
    }
}
