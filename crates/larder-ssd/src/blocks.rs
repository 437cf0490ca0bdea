//! Free blocks by wear, and closed blocks by valid pages: the queues of a translation layer.
//!
//! Role: [`FreeBlocks`] gives the least-worn free block of a plane (dynamic wear levelling) or the
//! most-worn (a place for still data). [`ClosedBlocks`] gives the closed block of a plane with the
//! fewest valid pages (greedy collection). Among equals, it gives the block that has had so few for
//! longest. Both can be of the whole drive instead, for layers that take blocks from anywhere:
//! everything is in [`POOL`] then.
//!
//! Invariants: a block is in at most one of the two. A change of a block's valid pages costs a
//! constant. A search for the fewest costs as many steps as the smallest count has risen since the
//! last search.
//!
//! It does not follow the array: the layer reports an invalidated page with [`ClosedBlocks::set`].

use super::{
    array::FlashArray,
    geometry::{BlockId, DriveGeometry, PlaneId},
};

/// No block, in tables.
pub(crate) const NO_BLOCK: u32 = u32::MAX;
/// The plane of queues that are not kept by plane.
pub const POOL: PlaneId = PlaneId(0);

/// The free blocks of each plane, by their erasures.
#[derive(Debug)]
pub struct FreeBlocks {
    planes: u32,
    /// Erasures in the upper half, block in the lower; the largest first.
    sorted: Vec<Vec<u64>>,
}

impl FreeBlocks {
    /// Takes all blocks of a new drive.
    pub fn all(geometry: &DriveGeometry) -> Self {
        let blocks = |plane| {
            let indices = (0..geometry.blocks_per_plane).rev();
            indices.map(|index| u64::from(geometry.block_in_plane(PlaneId(plane), index).0)).collect()
        };
        FreeBlocks { planes: geometry.planes(), sorted: (0..geometry.planes()).map(blocks).collect() }
    }

    /// Takes blocks of a new drive into one pool; they come in the order of their numbers.
    pub fn pooled(blocks: impl DoubleEndedIterator<Item = BlockId>) -> Self {
        FreeBlocks { planes: 1, sorted: vec![blocks.rev().map(|block| u64::from(block.0)).collect()] }
    }

    /// Counts the free blocks of `plane`.
    pub fn len(&self, plane: PlaneId) -> u32 {
        self.sorted[plane.0 as usize].len() as u32
    }

    /// Returns true if `plane` has none.
    pub fn is_empty(&self, plane: PlaneId) -> bool {
        self.sorted[plane.0 as usize].is_empty()
    }

    /// Returns the block that [`FreeBlocks::take_least_worn`] would take.
    pub fn least_worn(&self, plane: PlaneId) -> Option<BlockId> {
        self.sorted[plane.0 as usize].last().map(|&key| BlockId(key as u32))
    }

    /// Takes the block with the fewest erasures; of equals, the one with the smallest number.
    pub fn take_least_worn(&mut self, plane: PlaneId) -> Option<BlockId> {
        self.sorted[plane.0 as usize].pop().map(|key| BlockId(key as u32))
    }

    /// Takes the block with the most erasures.
    pub fn take_most_worn(&mut self, plane: PlaneId) -> Option<BlockId> {
        let blocks = &mut self.sorted[plane.0 as usize];
        (!blocks.is_empty()).then(|| BlockId(blocks.remove(0) as u32))
    }

    /// Puts the erased `block` among the free ones.
    pub fn put(&mut self, block: BlockId, array: &FlashArray) {
        let key = key(block, array);
        let blocks = &mut self.sorted[(block.0 % self.planes) as usize];
        let at = blocks.partition_point(|&other| other > key);
        blocks.insert(at, key);
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let blocks: usize = self.sorted.iter().map(|blocks| blocks.capacity() * size_of::<u64>()).sum();
        (blocks + self.sorted.capacity() * size_of::<Vec<u64>>()) as u64
    }
}

/// Makes the sort key of a free block.
fn key(block: BlockId, array: &FlashArray) -> u64 {
    u64::from(array.erases(block)) << 32 | u64::from(block.0)
}

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    /// Neighbour in a ring; `NONE` if the block is in no bucket.
    next: u32,
    prev: u32,
    /// The bucket: valid pages.
    valid: u32,
}

/// The closed blocks of each plane, in buckets by their valid pages.
#[derive(Debug)]
pub struct ClosedBlocks {
    planes: u32,
    /// One more than the pages of a block.
    buckets: u32,
    links: Vec<Links>,
    /// The first of each bucket's ring, by plane and bucket.
    heads: Vec<u32>,
    /// Buckets of a plane below this are empty.
    lowest: Vec<u32>,
}

impl ClosedBlocks {
    /// Makes empty queues, one for each plane.
    pub fn new(geometry: &DriveGeometry) -> Self {
        let (planes, buckets) = (geometry.planes(), geometry.pages_per_block + 1);
        ClosedBlocks {
            planes,
            buckets,
            links: vec![Links { next: NONE, prev: NONE, valid: 0 }; geometry.blocks() as usize],
            heads: vec![NONE; planes as usize * buckets as usize],
            lowest: vec![buckets; planes as usize],
        }
    }

    /// Makes an empty queue of a whole drive.
    pub fn pooled(geometry: &DriveGeometry) -> Self {
        let buckets = geometry.pages_per_block + 1;
        ClosedBlocks {
            planes: 1,
            buckets,
            links: vec![Links { next: NONE, prev: NONE, valid: 0 }; geometry.blocks() as usize],
            heads: vec![NONE; buckets as usize],
            lowest: vec![buckets],
        }
    }

    /// Returns true if `block` is one of them.
    pub fn has(&self, block: BlockId) -> bool {
        self.links[block.0 as usize].next != NONE
    }

    /// Inserts a closed block with `valid` valid pages.
    pub fn insert(&mut self, block: BlockId, valid: u32) {
        debug_assert!(!self.has(block));
        let plane = block.0 % self.planes;
        let head = &mut self.heads[plane as usize * self.buckets as usize + valid as usize];
        let (next, prev) = match *head {
            NONE => {
                *head = block.0;
                (block.0, block.0)
            }
            first => (first, self.links[first as usize].prev),
        };
        self.links[block.0 as usize] = Links { next, prev, valid };
        self.links[prev as usize].next = block.0;
        self.links[next as usize].prev = block.0;
        let lowest = &mut self.lowest[plane as usize];
        *lowest = valid.min(*lowest);
    }

    /// Removes a block.
    pub fn remove(&mut self, block: BlockId) {
        let Links { next, prev, valid } = self.links[block.0 as usize];
        debug_assert!(next != NONE);
        let plane = block.0 % self.planes;
        let head = &mut self.heads[plane as usize * self.buckets as usize + valid as usize];
        if next == block.0 {
            *head = NONE;
        } else {
            if *head == block.0 {
                *head = next;
            }
            self.links[prev as usize].next = next;
            self.links[next as usize].prev = prev;
        }
        self.links[block.0 as usize].next = NONE;
    }

    /// Sets the valid pages of `block`, if it is one of them.
    pub fn set(&mut self, block: BlockId, valid: u32) {
        if self.has(block) {
            self.remove(block);
            self.insert(block, valid);
        }
    }

    /// Finds the block of `plane` with the fewest valid pages, and their number.
    pub fn fewest(&mut self, plane: PlaneId) -> Option<(BlockId, u32)> {
        let buckets = self.buckets;
        let heads = &self.heads[plane.0 as usize * buckets as usize..][..buckets as usize];
        let lowest = &mut self.lowest[plane.0 as usize];
        while *lowest < buckets {
            let head = heads[*lowest as usize];
            if head != NONE {
                return Some((BlockId(head), *lowest));
            }
            *lowest += 1;
        }
        None
    }

    /// Finds the same block as [`ClosedBlocks::fewest`], without a change.
    pub fn peek_fewest(&self, plane: PlaneId) -> Option<BlockId> {
        let heads = &self.heads[plane.0 as usize * self.buckets as usize..][..self.buckets as usize];
        heads.iter().skip(self.lowest[plane.0 as usize] as usize).find(|&&head| head != NONE).map(|&head| BlockId(head))
    }

    /// Checks that each block is in the bucket of its valid pages.
    ///
    /// # Panics
    /// If one is not.
    pub(super) fn check(&self, array: &FlashArray) {
        for (block, links) in self.links.iter().enumerate().filter(|(_, links)| links.next != NONE) {
            assert_eq!(links.valid, array.valid(BlockId(block as u32)), "the bucket of block {block}");
        }
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let links = self.links.capacity() * size_of::<Links>();
        (links + (self.heads.capacity() + self.lowest.capacity()) * size_of::<u32>()) as u64
    }
}
