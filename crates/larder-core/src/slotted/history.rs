//! What a slotted design knows beside mappings and contents, as bytes for a checkpoint: the addresses on its lists in their order,
//! those without data included, each with its content; the order of its data; the target of its lists. CacheDedup section 3.3 has all of
//! that persistent ("the entire Metadata Cache").
//!
//! The bytes, all numbers little-endian: a head of version (2), lists (2), data chunks (4), addresses at most (8), target (8, a double),
//! the length of each list (8 of 4) and of the data (4); then the addresses list by list, least recent first, of 6 bytes, or of 22 in a
//! design that looks at content: address (5), flags (1, all zero so far), fingerprint (16); then, where content is looked at, 16 bytes for
//! each data slot in use: flash slot (4), generation (4), and a number (8) that is higher the later the slot was used.
//!
//! Invariants: any bytes can be read; what is no history of a design of these sizes is none at all. Nothing is allocated for what the
//! bytes do not have.
//!
//! What it does not do: believe what it reads; [`Placed`](super::Placed) asks mappings and slots.

use super::{ChunkSlot, Slotted};
use crate::types::{Fingerprint, Lba, SlotId};

/// The most lists that a design has.
pub const LISTS_MAX: usize = 8;
/// Bytes of a page of it. A checkpoint has larger ones.
pub const PAGE_BYTES: usize = 4084;
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 2 + 2 + 4 + 8 + 8 + 4 * LISTS_MAX + 4;
/// An address has 40 bits.
const LBA_BYTES: usize = 5;
const ADDRESS_BYTES: usize = LBA_BYTES + 1;
const FINGERPRINT_BYTES: usize = 16;
const DATA_BYTES: usize = 16;

/// An address of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedAddress {
    /// Itself.
    pub lba: Lba,
    /// Its content; zeroes in a design that does not look at content.
    pub fingerprint: Fingerprint,
}

/// A data slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedSlot {
    /// Where its content is on flash.
    pub slot: SlotId,
    /// The use of that slot.
    pub generation: u32,
    /// Higher the later it was used.
    pub stamp: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// [`Slotted::target_size`].
    pub target: f64,
    /// By list, least recent first.
    pub lists: Vec<Vec<ListedAddress>>,
    /// In no order.
    pub data: Vec<UsedSlot>,
}

/// An address as it goes into an empty design again.
#[derive(Clone, Copy, Debug)]
pub struct KeptAddress {
    /// Itself.
    pub lba: Lba,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// It is mapped, so that its data is there.
    pub is_mapped: bool,
    /// The origin lacks it.
    pub is_dirty: bool,
}

/// A history after mappings and slots were asked: what goes into an empty design again.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// [`Slotted::target_size`].
    pub target: f64,
    /// By list, least recent first.
    pub lists: Vec<Vec<KeptAddress>>,
    /// What lies in data slots, least recently used first; none in a design that does not look at content.
    pub data: Vec<Fingerprint>,
}

impl Kept {
    /// How many addresses are on these lists.
    pub fn len_of(&self, lists: &[usize]) -> usize {
        lists.iter().filter_map(|&list| self.lists.get(list)).map(Vec::len).sum()
    }
}

/// Bytes of the history of a design of these sizes at most.
pub fn bytes_max(design: &dyn Slotted) -> u64 {
    let sizes = design.sizes();
    let (address, data) = entry_bytes(design);
    HEAD_BYTES as u64 + sizes.addresses * address as u64 + sizes.data_chunks * data as u64
}

/// Bytes of an address, and of a data slot.
fn entry_bytes(design: &dyn Slotted) -> (usize, usize) {
    match design.looks_at_content() {
        true => (ADDRESS_BYTES + FINGERPRINT_BYTES, DATA_BYTES),
        false => (ADDRESS_BYTES, 0),
    }
}

/// The history of `design`. `place` says where the content of a data slot is on flash, if it is anywhere; `content` which content an
/// address has, of which the design believes that it has the one given.
pub fn encode(
    design: &dyn Slotted,
    place: impl Fn(ChunkSlot) -> Option<(SlotId, u32)>,
    content: impl Fn(Lba, &Fingerprint) -> Fingerprint,
) -> Vec<u8> {
    let sizes = design.sizes();
    let looks = design.looks_at_content();
    let mut bytes = Vec::with_capacity(bytes_max(design) as usize);
    let put = |bytes: &mut Vec<u8>, part: &[u8]| bytes.extend_from_slice(part);
    put(&mut bytes, &VERSION.to_le_bytes());
    put(&mut bytes, &(design.list_count() as u16).to_le_bytes());
    put(&mut bytes, &(sizes.data_chunks as u32).to_le_bytes());
    put(&mut bytes, &sizes.addresses.to_le_bytes());
    put(&mut bytes, &design.target_size().to_le_bytes());
    let counts_at = bytes.len();
    bytes.resize(HEAD_BYTES, 0);
    let mut counts = [0_u32; LISTS_MAX + 1];
    for (list, count) in counts.iter_mut().enumerate().take(design.list_count()) {
        design.show_list(list, &mut |lba, fingerprint| {
            *count += 1;
            bytes.extend_from_slice(&lba.0.to_le_bytes()[..LBA_BYTES]);
            bytes.push(0);
            if looks {
                bytes.extend_from_slice(&content(lba, fingerprint).0);
            }
        });
    }
    design.show_data(&mut |slot, stamp| {
        if let Some((slot, generation)) = place(slot) {
            counts[LISTS_MAX] += 1;
            bytes.extend_from_slice(&slot.0.to_le_bytes());
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(&stamp.to_le_bytes());
        }
    });
    for (to, count) in bytes[counts_at..HEAD_BYTES].chunks_exact_mut(4).zip(counts) {
        to.copy_from_slice(&count.to_le_bytes());
    }
    bytes
}

/// Takes numbers off the front of bytes.
struct Front<'a>(&'a [u8]);

impl Front<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

impl History {
    /// What these bytes say, of a design of the sizes of `design`, which is empty.
    pub fn decode(bytes: &[u8], design: &dyn Slotted) -> Option<History> {
        let sizes = design.sizes();
        let mut front = Front(bytes);
        let is_of_it = u16::from_le_bytes(front.take()?) == VERSION
            && usize::from(u16::from_le_bytes(front.take()?)) == design.list_count()
            && u64::from(u32::from_le_bytes(front.take()?)) == sizes.data_chunks
            && u64::from_le_bytes(front.take()?) == sizes.addresses;
        let target = f64::from_le_bytes(front.take()?);
        let mut counts = [0; LISTS_MAX + 1];
        for count in &mut counts {
            *count = u32::from_le_bytes(front.take()?) as usize;
        }
        let (of_lists, in_data) = (&counts[..LISTS_MAX], counts[LISTS_MAX]);
        let addresses: usize = of_lists.iter().sum();
        let (address_bytes, data_bytes) = entry_bytes(design);
        let is_whole = addresses as u64 <= sizes.addresses
            && in_data as u64 <= sizes.data_chunks
            && of_lists[design.list_count()..].iter().all(|&count| count == 0)
            && (data_bytes > 0 || in_data == 0)
            && front.0.len() == addresses * address_bytes + in_data * data_bytes;
        if !is_of_it || !is_whole || !(0.0..=sizes.data_chunks as f64).contains(&target) {
            return None;
        }
        let mut lists = Vec::new();
        for &count in &of_lists[..design.list_count()] {
            let mut list = Vec::with_capacity(count);
            for _ in 0..count {
                let mut lba = [0; 8];
                lba[..LBA_BYTES].copy_from_slice(&front.take::<LBA_BYTES>()?);
                let [_flags] = front.take()?;
                let fingerprint = if data_bytes > 0 { front.take()? } else { [0; FINGERPRINT_BYTES] };
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
