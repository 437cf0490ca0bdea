//! CacheDedup's Metadata Cache (§3.1): the content of each address, and the slot of each content.
//!
//! The source address index is [`Addresses`], each with the number of its content. The fingerprint
//! store is a slab of contents and a hash table of their numbers. A content counts its addresses,
//! and a list links its dirty ones, so that a slot's dirty addresses are found without a search. A
//! content stays known while an address has it or a slot holds it. It is historical without data,
//! and an orphan, or stale, without an address.
//!
//! Metadata on flash: an entry of 24 bytes for each address (8 for the address and its flags, 16
//! for the fingerprint). Each slot has one, too (16 for the fingerprint, 8 for the reference count
//! and a check). With one address for each chunk that is 48 bytes a chunk of 4 KiB. This is
//! CacheDedup's minimum for D-LRU in §5.4 (129 MB for 11 GB). The paper gives no sizes of entries.
//! Historical fingerprints are with their addresses.
//!
//! Invariants: an address is dirty only while its content has a slot. Counts are those of the
//! lists.
//!
//! It leaves replacement to the designs.

use crate::{
    recency::NONE,
    slotted::{
        ChunkSlot, DataStep, Decision, Destage, MetadataEntry, SlotPool, SlottedStats,
        addresses::Addresses,
        kept::KeptAddress,
        ram::{table_bytes_max, vec_bytes_max},
    },
    types::{Fingerprint, Lba, mix},
};
use hashbrown::HashTable;

/// Bytes of an entry on flash, of an address or a slot.
pub(crate) const ENTRY_BYTES: u32 = 24;
/// Share of the data's bytes for historical addresses beside the minimum metadata: 2% (§5.1).
const EXTRA_SHARE: u64 = 50;
/// Contents of the slab at the beginning.
const CONTENTS_FIRST: usize = 64;

/// Returns how many addresses fit 2% of the bytes of `data_chunks`.
pub(crate) fn extra_addresses(data_chunks: u64, chunk_bytes: u32) -> u64 {
    data_chunks * u64::from(chunk_bytes) / EXTRA_SHARE / u64::from(ENTRY_BYTES)
}

/// The treatment of orphans: data whose last address was overwritten, or evicted for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphans {
    /// Orphans stay until their slot is wanted, as other data does, and are found by fingerprint.
    /// That is CacheDedup's algorithm to the letter, for addresses that keep their content.
    /// AustereCache's authors' version does the same, and their paper mentions the kept stale
    /// chunks (§5.3).
    #[default]
    Keep,
    /// Orphans are forgotten and their slots become free. An overwrite takes a reference from the
    /// old content (CacheDedup §3.2), and content without references "is removed from the Metadata
    /// Cache" (§3.1).
    Forget,
}

impl Orphans {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Orphans::Keep => "keep",
            Orphans::Forget => "forget",
        }
    }
}

/// The content of an address.
#[derive(Clone, Copy)]
pub(crate) struct MappedContent {
    content: u32,
    /// Neighbours among the dirty addresses of the content.
    dirty_before: u32,
    dirty_after: u32,
}

const UNMAPPED: MappedContent = MappedContent { content: NONE, dirty_before: NONE, dirty_after: NONE };

struct Content {
    fingerprint: [u8; 16],
    /// Its slot; for an unused entry the next unused one.
    slot: u32,
    /// Number of its addresses.
    refs: u32,
    /// Number of addresses among them that hold the data; the design chooses them.
    holds: u32,
    /// The first of its dirty addresses.
    dirty: u32,
}

/// See the module.
pub(crate) struct Metadata<const LISTS: usize> {
    pub addresses: Addresses<MappedContent, LISTS>,
    table: HashTable<u32>,
    contents: Vec<Content>,
    free: u32,
    /// The content in each slot that was used.
    in_slot: Vec<u32>,
    contents_max: usize,
    orphans: Orphans,
    mapped: u64,
    live: u64,
    stale: u64,
}

fn hash_of(fingerprint: &[u8; 16]) -> u64 {
    let value = u128::from_le_bytes(*fingerprint);
    mix(value as u64 ^ mix((value >> 64) as u64))
}

impl<const LISTS: usize> Metadata<LISTS> {
    /// Creates an empty cache with room for the contents of `slots` slots and `addresses_max`
    /// addresses.
    pub fn new(slots: u32, addresses_max: usize) -> Self {
        Metadata {
            addresses: Addresses::new(addresses_max),
            table: HashTable::new(),
            contents: Vec::new(),
            free: NONE,
            in_slot: Vec::new(),
            // The old content of an address goes only after the new one came.
            contents_max: slots as usize + addresses_max + 1,
            orphans: Orphans::default(),
            mapped: 0,
            live: 0,
            stale: 0,
        }
    }

    /// Sets the treatment of orphans in an empty cache.
    pub fn with_orphans(self, orphans: Orphans) -> Self {
        Metadata { orphans, ..self }
    }

    /// Returns the slot of the content of address `i`.
    #[inline]
    pub fn slot(&self, i: u32) -> Option<ChunkSlot> {
        self.slot_of(self.content(i))
    }

    /// Returns the slot of a content.
    #[inline]
    pub fn slot_of(&self, content: u32) -> Option<ChunkSlot> {
        let slot = self.contents.get(content as usize)?.slot;
        (slot != NONE).then_some(ChunkSlot(slot))
    }

    /// Returns the content of address `i`.
    #[inline]
    pub fn content(&self, i: u32) -> u32 {
        self.addresses.payload(i).content
    }

    /// Returns the fingerprint of the content of address `i`.
    pub fn fingerprint(&self, i: u32) -> Fingerprint {
        Fingerprint(self.contents[self.content(i) as usize].fingerprint)
    }

    /// Returns the content in a slot that has one.
    pub fn content_in(&self, slot: ChunkSlot) -> u32 {
        self.in_slot[slot.0 as usize]
    }

    /// Returns the fingerprint of the content in a slot that has one.
    pub fn fingerprint_in(&self, slot: ChunkSlot) -> Fingerprint {
        Fingerprint(self.contents[self.content_in(slot) as usize].fingerprint)
    }

    /// Returns the slots with content.
    pub fn slots_in_use(&self) -> impl Iterator<Item = ChunkSlot> + '_ {
        let with_content = self.in_slot.iter().enumerate().filter(|&(_, &content)| content != NONE);
        with_content.map(|(slot, _)| ChunkSlot(slot as u32))
    }

    /// Shows the next addresses of a walk with their content; returns whether it goes on.
    pub fn show_some(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool {
        let seen = self.addresses.walk();
        seen.iter().flatten().for_each(|&i| see(self.addresses.lba(i), &self.fingerprint(i)));
        seen.is_some()
    }

    /// Returns the end of the slots that may be in use.
    pub fn slots_end(&self) -> usize {
        self.in_slot.len()
    }

    /// Returns whether a data slot has content.
    pub fn is_in_use(&self, slot: ChunkSlot) -> bool {
        self.in_slot.get(slot.0 as usize).is_some_and(|&content| content != NONE)
    }

    /// Restart: puts this content into one of the slots `free`, and returns it. None if it has one,
    /// or none is free.
    pub fn restore_data(&mut self, fingerprint: &Fingerprint, free: &mut SlotPool) -> Option<ChunkSlot> {
        if self.slot_with(fingerprint).is_some() {
            return None;
        }
        let slot = free.take().map(ChunkSlot)?;
        let content = self.intern(fingerprint);
        self.place(content, slot, &mut Decision::default());
        Some(slot)
    }

    /// Restart: makes this address the most recent of `list`, and returns its number. None if it is
    /// on a list already.
    pub fn restore_address(&mut self, address: &KeptAddress, list: usize) -> Option<u32> {
        if self.addresses.find(address.lba).is_some() {
            return None;
        }
        let i = self.insert(address.lba, list);
        let content = self.intern(&address.fingerprint);
        self.remap(i, content);
        if address.is_dirty && self.slot(i).is_some() {
            self.set_dirty(i, true);
        }
        Some(i)
    }

    /// Counts the addresses that have `content`.
    pub fn refs(&self, content: u32) -> u32 {
        self.contents[content as usize].refs
    }

    /// Returns the number of addresses that hold `content`, for the design to change.
    #[inline]
    pub fn holds(&mut self, content: u32) -> &mut u32 {
        &mut self.contents[content as usize].holds
    }

    /// Puts a new `lba` on `list`, without content until [`Metadata::remap`].
    pub fn insert(&mut self, lba: Lba, list: usize) -> u32 {
        self.addresses.insert(lba, list, UNMAPPED)
    }

    /// Returns the content of `fingerprint`, new or known. The caller gives it an address or a slot
    /// at once.
    pub fn intern(&mut self, fingerprint: &Fingerprint) -> u32 {
        let hash = hash_of(&fingerprint.0);
        let is_it = |&c: &u32| self.contents[c as usize].fingerprint == fingerprint.0;
        if let Some(&content) = self.table.find(hash, is_it) {
            return content;
        }
        let new = Content { fingerprint: fingerprint.0, slot: NONE, refs: 0, holds: 0, dirty: NONE };
        let c = self.free;
        let c = match self.contents.get_mut(c as usize) {
            Some(unused) => {
                self.free = unused.slot;
                *unused = new;
                c
            }
            None => {
                let len = self.contents.len();
                if len == self.contents.capacity() {
                    let room = self.contents_max.saturating_sub(len).max(1);
                    self.contents.reserve_exact(len.max(CONTENTS_FIRST).min(room));
                }
                self.contents.push(new);
                len as u32
            }
        };
        let contents = &self.contents;
        self.table.insert_unique(hash, c, |&other| hash_of(&contents[other as usize].fingerprint));
        c
    }

    /// Gives address `i` another content, clean. Its old content is overwritten, dirty or not.
    pub fn remap(&mut self, i: u32, content: u32) {
        self.detach(i);
        self.addresses.payload_mut(i).content = content;
        let known = &mut self.contents[content as usize];
        known.refs += 1;
        if known.slot != NONE {
            self.mapped += 1;
            if known.refs == 1 {
                self.live += 1;
                self.stale -= 1;
            }
        }
    }

    /// Takes its content from address `i`.
    fn detach(&mut self, i: u32) {
        let content = self.content(i);
        self.set_dirty(i, false);
        let Some(known) = self.contents.get_mut(content as usize) else { return };
        self.addresses.payload_mut(i).content = NONE;
        known.refs -= 1;
        if known.slot != NONE {
            self.mapped -= 1;
            if known.refs == 0 {
                self.live -= 1;
                self.stale += 1;
            }
        } else if known.refs == 0 {
            self.release(content);
        }
    }

    /// Forgets a content without address and slot.
    fn release(&mut self, content: u32) {
        let hash = hash_of(&self.contents[content as usize].fingerprint);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == content) {
            found.remove();
        }
        self.contents[content as usize].slot = std::mem::replace(&mut self.free, content);
    }

    /// Marks address `i`, whose content has a slot, dirty or clean; returns whether that changed.
    pub fn set_dirty(&mut self, i: u32, is_dirty: bool) -> bool {
        if !self.addresses.set_dirty(i, is_dirty) {
            return false;
        }
        let MappedContent { content, dirty_before, dirty_after } = self.addresses.payload(i);
        if is_dirty {
            let first = std::mem::replace(&mut self.contents[content as usize].dirty, i);
            if first != NONE {
                self.addresses.payload_mut(first).dirty_before = i;
            }
            *self.addresses.payload_mut(i) = MappedContent { content, dirty_before: NONE, dirty_after: first };
        } else {
            if dirty_after != NONE {
                self.addresses.payload_mut(dirty_after).dirty_before = dirty_before;
            }
            if dirty_before != NONE {
                self.addresses.payload_mut(dirty_before).dirty_after = dirty_after;
            } else {
                self.contents[content as usize].dirty = dirty_after;
            }
        }
        true
    }

    /// Makes address `i` clean, with a destage if it is dirty.
    fn destage(&mut self, i: u32, decision: &mut Decision) {
        if let Some(slot) = self.slot(i)
            && self.set_dirty(i, false)
        {
            decision.destage.push(Destage { lba: self.addresses.lba(i), slot });
        }
    }

    /// Evicts address `i` for want of room.
    pub fn evict_address(&mut self, i: u32, decision: &mut Decision) {
        self.destage(i, decision);
        decision.evicted.push(self.addresses.lba(i));
        self.remove(i, decision);
    }

    /// Returns the slot of this content.
    pub fn slot_with(&self, fingerprint: &Fingerprint) -> Option<ChunkSlot> {
        let is_it = |&c: &u32| self.contents[c as usize].fingerprint == fingerprint.0;
        self.slot_of(*self.table.find(hash_of(&fingerprint.0), is_it)?)
    }

    /// Forgets address `i`, as [`Slotted::forget`](super::Slotted::forget). Returns its slot if
    /// that becomes free, because no other address has its content.
    pub fn forget(&mut self, i: u32, decision: &mut Decision) -> Option<ChunkSlot> {
        let slot = self.slot(i);
        let is_shared = self.refs(self.content(i)) > 1;
        self.remove(i, decision);
        decision.was_cached = slot.is_some();
        let slot = slot.filter(|_| !is_shared)?;
        self.displace(slot, decision);
        decision.freed.push(slot);
        Some(slot)
    }

    /// Handles the loss of an address of the content in `slot`, if there is one. Returns the slot
    /// if it becomes free.
    pub fn orphan(&mut self, slot: Option<ChunkSlot>, decision: &mut Decision) -> Option<ChunkSlot> {
        let slot = slot.filter(|_| self.orphans == Orphans::Forget)?;
        if self.refs(self.in_slot[slot.0 as usize]) > 0 {
            return None;
        }
        self.displace(slot, decision);
        decision.freed.push(slot);
        Some(slot)
    }

    /// Marks `lba` clean, because the origin has its data; returns whether it was dirty.
    pub fn clean(&mut self, lba: Lba) -> bool {
        self.addresses.find(lba).is_some_and(|i| self.set_dirty(i, false))
    }

    /// Forgets address `i`.
    pub fn remove(&mut self, i: u32, decision: &mut Decision) {
        self.detach(i);
        self.addresses.remove(i);
        decision.changed.push(MetadataEntry::Address(i));
    }

    /// Puts the content of `fingerprint` into one of the slots `free` without an address; returns
    /// the slot. None if it has a slot, none is free, or orphans are forgotten.
    pub fn put_orphan(
        &mut self,
        fingerprint: &Fingerprint,
        free: &mut SlotPool,
        decision: &mut Decision,
    ) -> Option<ChunkSlot> {
        if self.orphans == Orphans::Forget || self.slot_with(fingerprint).is_some() {
            return None;
        }
        let slot = free.take().map(ChunkSlot)?;
        let content = self.intern(fingerprint);
        self.place(content, slot, decision);
        decision.data = DataStep::Store { slot, evicts: false };
        Some(slot)
    }

    /// Stores `content` in `slot`.
    pub fn place(&mut self, content: u32, slot: ChunkSlot, decision: &mut Decision) {
        let at = slot.0 as usize;
        if at >= self.in_slot.len() {
            self.in_slot.resize(at + 1, NONE);
        }
        self.in_slot[at] = content;
        let known = &mut self.contents[content as usize];
        known.slot = slot.0;
        self.mapped += u64::from(known.refs);
        match known.refs {
            0 => self.stale += 1,
            _ => self.live += 1,
        }
        decision.changed.push(MetadataEntry::Slot(slot));
    }

    /// Removes the content of `slot`, with a destage of its dirty addresses.
    pub fn displace(&mut self, slot: ChunkSlot, decision: &mut Decision) {
        let content = std::mem::replace(&mut self.in_slot[slot.0 as usize], NONE);
        while self.contents[content as usize].dirty != NONE {
            let i = self.contents[content as usize].dirty;
            self.destage(i, decision);
            decision.changed.push(MetadataEntry::Address(i));
        }
        let known = &mut self.contents[content as usize];
        known.slot = NONE;
        self.mapped -= u64::from(known.refs);
        if known.refs > 0 {
            self.live -= 1;
        } else {
            self.stale -= 1;
            self.release(content);
        }
        decision.changed.push(MetadataEntry::Slot(slot));
    }

    /// Returns the maximum bytes that it allocates for `slots` slots.
    pub fn ram_bytes_max(&self, slots: usize) -> usize {
        let contents = table_bytes_max::<u32>(self.contents_max) + self.contents_max * size_of::<Content>();
        self.addresses.ram_bytes_max() + contents + vec_bytes_max::<u32>(slots)
    }

    /// Returns the counts; `ram_bytes` is for this structure alone.
    pub fn stats(&self, addresses: usize) -> SlottedStats {
        let lists = self.table.allocation_size() + self.contents.capacity() * size_of::<Content>();
        let ram = self.addresses.ram_bytes() + lists + self.in_slot.capacity() * size_of::<u32>();
        SlottedStats {
            mapped_chunks: self.mapped,
            dirty_chunks: self.addresses.dirty_count(),
            live_slots: self.live,
            stale_slots: self.stale,
            ghosts: addresses as u64 - self.mapped,
            ram_bytes: ram as u64,
        }
    }
}
