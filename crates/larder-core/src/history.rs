//! The history of a design with lists of addresses, as bytes for a checkpoint.
//!
//! It has the addresses of each list in order, ghosts included, each with its content. It also has
//! the order of the data, and the target of the lists. CacheDedup section 3.3 keeps all of that
//! persistent ("the entire Metadata Cache"). Designs with equal slots have a history, and so has
//! CD-ARC, over WEUs.
//!
//! All numbers are little-endian. The head has version (2), lists (2), data chunks (4), maximum
//! addresses (8) and target (8, a double). The length of each list (8 of 4) and of the data (4)
//! follow. The addresses follow, list by list, least recent first: 6 bytes each, or 22 in a design
//! that looks at content. An address has its number (5), flags (1, all zero so far) and fingerprint
//! (16). A design that looks at content then has 16 bytes for each used data slot: flash slot (4),
//! generation (4), and use stamp (8). A later use has a higher stamp. CD-ARC has its waiting WEUs
//! instead. A design without lists has [plain](Draft::plain) bytes of its own.
//!
//! Invariants: any bytes can be read; a history of another shape counts as no history. Nothing is
//! allocated beyond the length of the bytes.
//!
//! It does not check its content; the restoring design compares it with mappings and slots.

use crate::types::{Fingerprint, Lba, SlotId};
use std::collections::BTreeMap;

/// Maximum number of lists of a design.
pub const LISTS_MAX: usize = 8;
/// Bytes of a history page. Pages of a checkpoint are larger.
pub const PAGE_BYTES: usize = 4084;
/// Version 1 belongs to a log without entries for overwrites of unmapped addresses.
const VERSION: u16 = 2;
const HEAD_BYTES: usize = 2 + 2 + 4 + 8 + 8 + 4 * LISTS_MAX + 4;
/// An address has 40 bits.
const LBA_BYTES: usize = 5;
const ADDRESS_BYTES: usize = LBA_BYTES + 1;
const FINGERPRINT_BYTES: usize = 16;
/// Bytes of an address with its content.
pub const CONTENT_ADDRESS_BYTES: usize = ADDRESS_BYTES + FINGERPRINT_BYTES;
/// Bytes of a named slot.
pub const DATA_BYTES: usize = 16;

/// The lists of a design and their maximum lengths. A history of another shape is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lists of addresses, at most [`LISTS_MAX`].
    pub lists: usize,
    /// The paper's C, or d: the maximum of the target.
    pub data_chunks: u64,
    /// Addresses on all lists, at most.
    pub addresses: u64,
    /// Named slots, at most.
    pub used_slots: u64,
    /// True if addresses have a content and slots may be named.
    pub looks_at_content: bool,
}

impl Shape {
    /// Returns the maximum bytes of such a history.
    pub fn bytes_max(&self) -> u64 {
        let entries = self.addresses.saturating_mul(self.address_bytes() as u64);
        entries.saturating_add(self.used_slots.saturating_mul(DATA_BYTES as u64)).saturating_add(HEAD_BYTES as u64)
    }

    /// Returns the maximum pages of it.
    pub fn pages_max(&self) -> u64 {
        self.bytes_max().div_ceil(PAGE_BYTES as u64)
    }

    fn address_bytes(&self) -> usize {
        if self.looks_at_content { CONTENT_ADDRESS_BYTES } else { ADDRESS_BYTES }
    }
}

/// Returns the bytes of a history over WEUs for each chunk, without its addresses.
pub fn waiting_weus_bytes(chunk_bytes: u32, weu_bytes: u32) -> u64 {
    (DATA_BYTES as u64 * u64::from(chunk_bytes)).div_ceil(u64::from(weu_bytes.max(1)))
}

/// The reach of a history from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The log behind it is whole. The history is right about an address without a later log entry,
    /// if the design logs overwrites of its ghosts.
    WithLog,
    /// The cache ended in order and has not changed since.
    Whole,
}

/// An address of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedAddress {
    /// The address itself.
    pub lba: Lba,
    /// Its content; zeroes in a design that does not look at content.
    pub fingerprint: Fingerprint,
}

/// A data slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedSlot {
    /// The flash slot of its content.
    pub slot: SlotId,
    /// The slot's generation.
    pub generation: u32,
    /// Use stamp, higher for a later use.
    pub stamp: u64,
}

/// Pieces of a history, as they come out of a checkpoint.
#[derive(Default)]
pub struct Pages(BTreeMap<usize, Vec<u8>>);

impl Pages {
    /// Adds a page; returns whether a history of so many pages can have it.
    pub fn note(&mut self, page: usize, bytes: &[u8], pages_max: u64) -> bool {
        let can_be = (page as u64) < pages_max && bytes.len() <= PAGE_BYTES;
        if can_be {
            self.0.insert(page, bytes.to_vec());
        }
        can_be
    }

    /// Returns the bytes of the pages up to the first that is missing.
    pub fn bytes(&self) -> Vec<u8> {
        let in_order = self.0.iter().zip(0..).take_while(|((number, _), at)| *number == at);
        in_order.flat_map(|((_, bytes), _)| bytes.iter().copied()).collect()
    }

    /// Decodes the history from the pages.
    pub fn history(&self, shape: &Shape) -> Option<History> {
        History::decode(&self.bytes(), shape)
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The [target](crate::slotted::Slotted::target_size) of the lists.
    pub target: f64,
    /// Lists, least recent first.
    pub lists: Vec<Vec<ListedAddress>>,
    /// Used slots, in no order.
    pub data: Vec<UsedSlot>,
}

/// Drops the least recent addresses, list by list in the order of `these`, down to `max` in total.
///
/// More addresses exist only if the lists come from different moments.
pub fn cut<A>(lists: &mut [Vec<A>], these: &[usize], max: usize) {
    for &list in these {
        let all: usize = these.iter().filter_map(|&list| lists.get(list)).map(Vec::len).sum();
        if let Some(addresses) = lists.get_mut(list) {
            addresses.drain(..all.saturating_sub(max).min(addresses.len()));
        }
    }
}

/// A history that is written piece by piece while the design goes on: lists in order, then slots.
///
/// An address may therefore be on two lists, or on none. A full draft takes no more addresses.
pub struct Draft {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The current list, or the slots behind the last list; `None` before the first.
    stage: Option<usize>,
    /// The head of a history with lists.
    head: Option<Head>,
}

/// The head of a history that is written.
struct Head {
    shape: Shape,
    counts: [u32; LISTS_MAX + 1],
    target: f64,
}

impl Draft {
    /// Creates an empty draft with room for so many addresses, and for all slots.
    pub fn new(shape: Shape, addresses: u64) -> Draft {
        let with_room = Shape { addresses: addresses.min(shape.addresses), ..shape };
        let bytes_max = with_room.bytes_max() as usize;
        let mut bytes = Vec::with_capacity(bytes_max);
        bytes.resize(HEAD_BYTES, 0);
        Draft { bytes, bytes_max, stage: None, head: Some(Head { shape, counts: [0; LISTS_MAX + 1], target: 0.0 }) }
    }

    /// Creates an empty draft without lists, of so many bytes at most.
    pub fn plain(bytes_max: usize) -> Draft {
        Draft { bytes: Vec::new(), bytes_max, stage: None, head: None }
    }

    /// Ends a draft without lists where so many pages do.
    pub fn limit(&mut self, pages: u64) {
        self.bytes_max = self.bytes_max.min(pages.saturating_mul(PAGE_BYTES as u64) as usize);
    }

    /// Adds bytes to a draft without lists. Returns false and changes nothing if there is no room.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.head.is_none() && self.bytes.len() + bytes.len() <= self.bytes_max;
        if has_room {
            self.bytes.extend_from_slice(bytes);
        }
        has_room
    }

    /// Returns the number of the current list, or the count of lists for the slots. `None` before
    /// the first.
    pub fn stage(&self) -> Option<usize> {
        self.stage
    }

    /// Moves to the next list, or to the slots.
    pub fn next_stage(&mut self) -> usize {
        let next = self.stage.map_or(0, |stage| stage + 1);
        self.stage = Some(next);
        next
    }

    /// Adds the next address of the current list, if there is room.
    pub fn address(&mut self, lba: Lba, fingerprint: &Fingerprint) {
        let Some(Head { shape, counts, .. }) = &mut self.head else { return };
        let Some(list) = self.stage.filter(|&list| list < shape.lists) else { return };
        let all: u64 = counts[..LISTS_MAX].iter().map(|&count| u64::from(count)).sum();
        if all >= shape.addresses {
            return;
        }
        counts[list] += 1;
        self.bytes.extend_from_slice(&lba.0.to_le_bytes()[..LBA_BYTES]);
        self.bytes.push(0);
        if shape.looks_at_content {
            self.bytes.extend_from_slice(&fingerprint.0);
        }
    }

    /// Adds a slot, after all addresses.
    pub fn used(&mut self, used: &UsedSlot) {
        let Some(Head { shape, counts, .. }) = &mut self.head else { return };
        if u64::from(counts[LISTS_MAX]) >= shape.used_slots {
            return;
        }
        counts[LISTS_MAX] += 1;
        self.bytes.extend_from_slice(&used.slot.0.to_le_bytes());
        self.bytes.extend_from_slice(&used.generation.to_le_bytes());
        self.bytes.extend_from_slice(&used.stamp.to_le_bytes());
    }

    /// Sets the target of the lists.
    pub fn set_target(&mut self, target: f64) {
        if let Some(head) = &mut self.head {
            head.target = target;
        }
    }

    /// Returns the bytes of the draft.
    pub fn finish(mut self) -> Vec<u8> {
        let Some(Head { shape, counts, target }) = self.head else { return self.bytes };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(shape.lists as u16).to_le_bytes());
        head.extend_from_slice(&(shape.data_chunks as u32).to_le_bytes());
        head.extend_from_slice(&shape.addresses.to_le_bytes());
        head.extend_from_slice(&target.min(shape.data_chunks as f64).to_le_bytes());
        head.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
        self.bytes[..HEAD_BYTES].copy_from_slice(&head);
        self.bytes
    }
}

/// A reader of numbers from the front of bytes.
pub struct Front<'a>(pub &'a [u8]);

impl Front<'_> {
    /// Returns the next bytes, or `None` if too few are left.
    pub fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

impl History {
    /// Decodes the history of a design of this shape.
    pub fn decode(bytes: &[u8], shape: &Shape) -> Option<History> {
        let mut front = Front(bytes);
        let is_of_it = u16::from_le_bytes(front.take()?) == VERSION
            && usize::from(u16::from_le_bytes(front.take()?)) == shape.lists
            && u64::from(u32::from_le_bytes(front.take()?)) == shape.data_chunks
            && u64::from_le_bytes(front.take()?) == shape.addresses;
        let target = f64::from_le_bytes(front.take()?);
        let mut counts = [0; LISTS_MAX + 1];
        for count in &mut counts {
            *count = u32::from_le_bytes(front.take()?) as usize;
        }
        let (of_lists, in_data) = (&counts[..LISTS_MAX], counts[LISTS_MAX]);
        let addresses: usize = of_lists.iter().sum();
        let is_whole = addresses as u64 <= shape.addresses
            && in_data as u64 <= shape.used_slots
            && of_lists[shape.lists..].iter().all(|&count| count == 0)
            && front.0.len() == addresses * shape.address_bytes() + in_data * DATA_BYTES;
        if !is_of_it || !is_whole || !(0.0..=shape.data_chunks as f64).contains(&target) {
            return None;
        }
        let mut lists = Vec::new();
        for &count in &of_lists[..shape.lists] {
            let mut list = Vec::with_capacity(count);
            for _ in 0..count {
                let mut lba = [0; 8];
                lba[..LBA_BYTES].copy_from_slice(&front.take::<LBA_BYTES>()?);
                let [_flags] = front.take()?;
                let fingerprint = if shape.looks_at_content { front.take()? } else { [0; FINGERPRINT_BYTES] };
                list.push(ListedAddress { lba: Lba(u64::from_le_bytes(lba)), fingerprint: Fingerprint(fingerprint) });
            }
            lists.push(list);
        }
        let mut data = Vec::with_capacity(in_data);
        for _ in 0..in_data {
            let slot = SlotId(u32::from_le_bytes(front.take()?));
            let generation = u32::from_le_bytes(front.take()?);
            data.push(UsedSlot { slot, generation, stamp: u64::from_le_bytes(front.take()?) });
        }
        Some(History { target, lists, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of different moments may have more addresses together than one moment allows.
    #[test]
    fn a_draft_has_no_more_than_there_is_room_for() {
        for looks_at_content in [false, true] {
            let used_slots = if looks_at_content { 5 } else { 0 };
            let shape = Shape { lists: 3, data_chunks: 9, addresses: 20, used_slots, looks_at_content };
            let mut draft = Draft::new(shape, 4);
            let content = |number: u64| Fingerprint(if looks_at_content { [number as u8; 16] } else { [0; 16] });
            draft.address(Lba(99), &content(0));
            let mut expected = vec![Vec::new(); 3];
            for number in 0..27 {
                if number % 9 == 0 {
                    draft.next_stage();
                }
                draft.address(Lba(number), &content(number));
                if number < 20 {
                    let listed = ListedAddress { lba: Lba(number), fingerprint: content(number) };
                    expected[number as usize / 9].push(listed);
                }
            }
            draft.next_stage();
            draft.address(Lba(99), &content(0));
            let used = |slot: u32| UsedSlot { slot: SlotId(slot), generation: slot + 1, stamp: slot.into() };
            (0..8).for_each(|slot| draft.used(&used(slot)));
            draft.set_target(12.5);
            let bytes = draft.finish();
            assert!(bytes.len() as u64 <= shape.bytes_max());
            let data = (0..used_slots as u32).map(used).collect();
            assert_eq!(History::decode(&bytes, &shape), Some(History { target: 9.0, lists: expected, data }));
        }
    }

    #[test]
    fn the_first_list_gives_way_to_the_others() {
        let mut lists = vec![vec![1, 2, 3], vec![4, 5], vec![6, 7, 8, 9]];
        cut(&mut lists, &[2, 0], 7);
        assert_eq!(lists, [vec![1, 2, 3], vec![4, 5], vec![6, 7, 8, 9]], "there is room");
        cut(&mut lists, &[2, 0], 5);
        assert_eq!(lists, [vec![1, 2, 3], vec![4, 5], vec![8, 9]]);
        cut(&mut lists, &[2, 0], 1);
        assert_eq!(lists, [vec![3], vec![4, 5], vec![]]);
    }
}
