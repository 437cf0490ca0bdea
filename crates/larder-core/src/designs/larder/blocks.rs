//! The contents by number, in blocks of 64.
//!
//! The records of a slot have numbers of its own blocks, in the order in which they came. So the
//! neighbours that were stored together have numbers in a row. A number belongs to one storing of
//! a content. Once the slot ends, the numbers that an address names are remembered.
//!
//! Invariants: a number is given away again only if its whole block is unused. A block has one
//! slot, or none if its contents are remembered.
//!
//! It does not search.

use super::{
    addresses::ContentNumber,
    content::{ContentRecord, Remembered},
    growth,
};
use crate::types::SlotId;

/// Numbers of a block.
const BLOCK: u32 = 64;
/// Records for which a block has room at first.
const ROOM_FIRST: usize = 8;

enum BlockItems {
    /// All numbers from the first one on.
    Stored(Vec<ContentRecord>),
    /// Those in use alone, in order.
    Remembered(Vec<Remembered>),
}

struct ContentBlock {
    /// Numbers in use.
    used: u64,
    /// The slot of its records.
    slot: SlotId,
    /// The export before which it began.
    export: u32,
    items: BlockItems,
}

/// A content.
pub enum ContentView<'a> {
    /// It has a record in a slot.
    Stored(SlotId, &'a ContentRecord),
    /// It has none.
    Remembered(&'a Remembered),
}

/// A content, to change it.
pub enum ContentMut<'a> {
    /// It has a record.
    Stored(&'a mut ContentRecord),
    /// It has none.
    Remembered(&'a mut Remembered),
}

/// See the module.
#[derive(Default)]
pub struct ContentBlocks {
    blocks: Vec<ContentBlock>,
    unused: Vec<u32>,
    /// Bytes of the lists in the blocks.
    item_bytes: usize,
    remembered: usize,
    /// The block that takes the next remembered content, and its next number.
    open: Option<(u32, u32)>,
}

/// Returns the block of a number, and the position in it.
#[inline]
fn split(id: ContentNumber) -> (usize, u32) {
    ((id.0 / BLOCK) as usize, id.0 % BLOCK)
}

impl BlockItems {
    fn bytes(&self) -> usize {
        match self {
            BlockItems::Stored(records) => records.capacity() * size_of::<ContentRecord>(),
            BlockItems::Remembered(items) => items.capacity() * size_of::<Remembered>(),
        }
    }
}

impl ContentBlock {
    /// Returns the number of items in use before a position.
    #[inline]
    fn rank(&self, at: u32) -> usize {
        (self.used & ((1 << at) - 1)).count_ones() as usize
    }
}

impl ContentBlocks {
    /// Returns the block of a number.
    pub fn block_of(id: ContentNumber) -> u32 {
        id.0 / BLOCK
    }

    /// Returns a content.
    #[inline]
    pub fn get(&self, id: ContentNumber) -> ContentView<'_> {
        let (block, at) = split(id);
        let block = &self.blocks[block];
        debug_assert!(block.used >> at & 1 == 1);
        match &block.items {
            BlockItems::Stored(records) => ContentView::Stored(block.slot, &records[at as usize]),
            BlockItems::Remembered(items) => ContentView::Remembered(&items[block.rank(at)]),
        }
    }

    /// Returns a content, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: ContentNumber) -> ContentMut<'_> {
        let (block, at) = split(id);
        let block = &mut self.blocks[block];
        debug_assert!(block.used >> at & 1 == 1);
        let rank = block.rank(at);
        match &mut block.items {
            BlockItems::Stored(records) => ContentMut::Stored(&mut records[at as usize]),
            BlockItems::Remembered(items) => ContentMut::Remembered(&mut items[rank]),
        }
    }

    /// Counts the contents that are not stored.
    pub fn remembered(&self) -> usize {
        self.remembered
    }

    fn begin(&mut self, block: ContentBlock) -> u32 {
        match self.unused.pop() {
            Some(at) => {
                self.blocks[at as usize] = block;
                at
            }
            None => growth::push(&mut self.blocks, block) as u32,
        }
    }

    /// Adds a record to a block of its slot, and returns its number.
    ///
    /// The block is new if the open one is full, was ended, or is of an earlier export.
    pub fn store(&mut self, open: Option<u32>, slot: SlotId, export: u32, record: ContentRecord) -> ContentNumber {
        let has_room = |block: &ContentBlock| match &block.items {
            BlockItems::Stored(records) => {
                block.slot == slot && block.export == export && records.len() < BLOCK as usize
            }
            BlockItems::Remembered(_) => false,
        };
        let at = match open.filter(|&open| has_room(&self.blocks[open as usize])) {
            Some(open) => open,
            None => {
                open.into_iter().for_each(|open| self.shrink(open));
                self.begin(ContentBlock {
                    used: 0,
                    slot,
                    export,
                    items: BlockItems::Stored(Vec::with_capacity(ROOM_FIRST)),
                })
            }
        };
        let block = &mut self.blocks[at as usize];
        let before = if block.used == 0 { 0 } else { block.items.bytes() };
        let BlockItems::Stored(records) = &mut block.items else { unreachable!("it has room for records") };
        let position = records.len() as u32;
        records.push(record);
        block.used |= 1 << position;
        self.item_bytes += block.items.bytes() - before;
        ContentNumber(at * BLOCK + position)
    }

    /// Adds a content that is not stored. Returns its number.
    pub fn remember(&mut self, content: Remembered) -> ContentNumber {
        let (at, position) = match self.open.filter(|&(_, position)| position < BLOCK) {
            Some(open) => open,
            None => {
                self.end_open();
                let items = BlockItems::Remembered(Vec::with_capacity(ROOM_FIRST));
                self.item_bytes += items.bytes();
                (self.begin(ContentBlock { used: 0, slot: SlotId(u32::MAX), export: 0, items }), 0)
            }
        };
        self.open = Some((at, position + 1));
        let block = &mut self.blocks[at as usize];
        self.item_bytes -= block.items.bytes();
        let BlockItems::Remembered(items) = &mut block.items else { unreachable!("it was begun so") };
        items.push(content);
        block.used |= 1 << position;
        self.item_bytes += block.items.bytes();
        self.remembered += 1;
        ContentNumber(at * BLOCK + position)
    }

    fn end_open(&mut self) {
        if let Some((at, _)) = self.open.take() {
            self.settle(at);
        }
    }

    /// Gives back the room that a block does not use, or the block.
    fn settle(&mut self, at: u32) {
        let is_open = self.open.is_some_and(|(open, _)| open == at);
        let block = &mut self.blocks[at as usize];
        let before = block.items.bytes();
        match &mut block.items {
            _ if block.used == 0 && !is_open => block.items = BlockItems::Remembered(Vec::new()),
            BlockItems::Remembered(items) if items.len() * 2 <= items.capacity() => items.shrink_to_fit(),
            _ => return,
        }
        self.item_bytes = self.item_bytes - before + block.items.bytes();
        if block.used == 0 && !is_open {
            growth::push(&mut self.unused, at);
        }
    }

    /// Gives back the room that the last block of a slot does not use.
    pub fn shrink(&mut self, at: u32) {
        let block = &mut self.blocks[at as usize];
        self.item_bytes -= block.items.bytes();
        if let BlockItems::Stored(records) = &mut block.items {
            records.shrink_to_fit();
        }
        self.item_bytes += block.items.bytes();
    }

    /// Removes a content that no address names.
    pub fn remove(&mut self, id: ContentNumber) {
        let (at, position) = split(id);
        let block = &mut self.blocks[at];
        let rank = block.rank(position);
        if let BlockItems::Remembered(items) = &mut block.items {
            items.remove(rank);
            self.remembered -= 1;
        }
        block.used &= !(1 << position);
        self.settle(at as u32);
    }

    /// Remembers those records of a block that `kept` returns; the others are gone.
    pub fn end(&mut self, at: u32, mut kept: impl FnMut(ContentNumber, &ContentRecord) -> Option<Remembered>) {
        let block = &mut self.blocks[at as usize];
        let before = block.items.bytes();
        let BlockItems::Stored(records) = &block.items else { return };
        let (mut items, mut used) = (Vec::new(), 0);
        for (position, record) in (0..BLOCK).zip(records).filter(|(position, _)| block.used >> position & 1 == 1) {
            if let Some(content) = kept(ContentNumber(at * BLOCK + position), record) {
                items.push(content);
                used |= 1 << position;
            }
        }
        block.used = used;
        items.shrink_to_fit();
        self.remembered += items.len();
        block.items = BlockItems::Remembered(items);
        self.item_bytes = self.item_bytes - before + block.items.bytes();
        self.settle(at);
    }

    /// Counts the blocks.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the export before which the block of a number began.
    pub fn export_of(&self, id: ContentNumber) -> u32 {
        self.blocks[split(id).0].export
    }

    /// Returns the stored contents of a block.
    pub fn stored_in(&self, at: usize) -> impl Iterator<Item = (ContentNumber, &ContentRecord)> + '_ {
        let block = &self.blocks[at];
        let records = match &block.items {
            BlockItems::Stored(records) => records.as_slice(),
            BlockItems::Remembered(_) => &[],
        };
        let used = (0..BLOCK).zip(records).filter(|(position, _)| block.used >> position & 1 == 1);
        used.map(move |(position, record)| (ContentNumber(at as u32 * BLOCK + position), record))
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<ContentBlock>() + self.unused.capacity() * size_of::<u32>() + self.item_bytes
    }
}
