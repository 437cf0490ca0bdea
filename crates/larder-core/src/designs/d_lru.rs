//! CacheDedup's `d-lru` (§4.1, Algorithm 1): two LRU lists, for addresses and for data blocks.
//!
//! The Metadata Cache M has the addresses and the Data Cache D the blocks, each replaced by itself.
//! Each request makes its address the most recent of M and its content the most recent of D. An
//! address may therefore lack its data (an orphan, which hits again if another address brings the
//! content back), or data an address. Both never happen at once if an address keeps its content
//! (the paper's no-wastage policy, P1 and P2).
//!
//! Open points of the paper, and departures:
//! - An overwrite gives the address its new content in M. [`Orphans`] decides about data without an
//!   address. Algorithm 1, which has no overwrites, keeps it until it is the least recent; §3.1
//!   and §3.2, which count references, forget it. AustereCache's authors' version keeps it, and
//!   has the same hits.
//! - A trim, and a write around the cache, remove the address, and its data if no other address has
//!   it (§3.2, "write invalidate").
//! - Fewer metadata entries than data chunks are refused: §3.1 calls "the required space for
//!   storing the metadata of all the cached data" the minimum.
//! - "An additional 2% taken from the Data Cache" (§5.1) are 2% of its bytes here, spent on
//!   addresses. §5.4's figures for it, 111 MB of 11 GB, are 1%.
//!
//! Invariants: |M| <= m, |D| <= d. If orphans are forgotten, each slot in use has an address.
//!
//! It does not prefer orphans as victims.

use crate::{
    design::Use,
    named::{NamedDesign, Over, OverSlots},
    slotted::{
        ChunkSlot, ContentOrder, DataStep, Decision, FlashSize, Kept, MetadataEntry, Orphans, SizeError, SizeErrorKind,
        Sizes, SlotPool, Slotted, SlottedStats,
        contents::{ENTRY_BYTES, Metadata, extra_addresses},
        of_slots,
        order::SlotList,
        sizes::{Formula, check_chunks, check_count, pages_bytes},
    },
    types::{Fingerprint, Lba},
};

/// The design's name.
pub const NAME: &str = "d-lru";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "CacheDedup's D-LRU (Li et al., FAST 2016, section 4.1): addresses and data, each by last use",
    over: Over::Slots(OverSlots {
        dedup: true,
        make: |slots, chunk_bytes| of_slots(slots, |size| DLru::for_flash(size, chunk_bytes)),
    }),
};

/// The design.
pub type DLru = OverContents<LastUse>;

/// The design with any order of D.
pub struct OverContents<O> {
    metadata: Metadata<1>,
    slots: SlotPool,
    /// D.
    order: O,
    /// The paper's d.
    data_chunks: u32,
    /// The paper's m.
    addresses_max: u32,
}

/// The order of D by last use.
pub struct LastUse(SlotList);

impl ContentOrder for LastUse {
    const NAME: &'static str = NAME;

    fn new(_: u32) -> Self {
        LastUse(SlotList::new())
    }

    fn push(&mut self, slot: ChunkSlot, _: &Fingerprint) {
        self.0.push(slot);
    }

    #[inline]
    fn touch(&mut self, slot: ChunkSlot) {
        self.0.touch(slot);
    }

    fn remove(&mut self, slot: ChunkSlot) {
        self.0.remove(slot);
    }

    fn evict(&mut self, _: impl Fn(ChunkSlot) -> Fingerprint) -> Option<ChunkSlot> {
        let slot = self.0.oldest()?;
        self.0.remove(slot);
        Some(slot)
    }

    fn warm(&self, slots: impl Iterator<Item = ChunkSlot> + Clone) {
        self.0.warm(slots);
    }

    fn begin_walk(&mut self) {
        self.0.begin_walk();
    }

    fn walk(&mut self, see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        self.0.walk(see)
    }

    fn ram_bytes(&self) -> usize {
        self.0.ram_bytes()
    }

    fn ram_bytes_max(slots: u32) -> usize {
        SlotList::ram_bytes_max(slots as usize)
    }
}

impl<O: ContentOrder> OverContents<O> {
    /// Creates a cache of `data_chunks` (the paper's d, at least 1) and `addresses` (m, at least
    /// d).
    pub fn new(data_chunks: u64, addresses: u64) -> Result<Self, SizeError> {
        let chunks = check_chunks(O::NAME, data_chunks)?;
        if addresses < data_chunks {
            let kind = SizeErrorKind::MetadataEntries { given: addresses, least: data_chunks };
            return Err(SizeError { design: O::NAME, kind });
        }
        let addresses_max = check_count(O::NAME, addresses)?;
        Ok(OverContents {
            // One more, because a new address comes before the least recent one goes.
            metadata: Metadata::new(chunks, addresses_max as usize + 1),
            slots: SlotPool::new(chunks),
            order: O::new(chunks),
            data_chunks: chunks,
            addresses_max,
        })
    }

    /// Creates a cache that fills `flash`: an address for each chunk, and 2% of the data's bytes
    /// more.
    pub fn for_flash(flash: FlashSize, chunk_bytes: u32) -> Result<Self, SizeError> {
        let addresses = |chunks| chunks + extra_addresses(chunks, chunk_bytes);
        let entries = |chunks| addresses(chunks) + chunks;
        let chunks = Formula { design: O::NAME, chunk_bytes, entry_bytes: ENTRY_BYTES, entries }.data_chunks(flash)?;
        OverContents::new(chunks, addresses(chunks))
    }

    /// Sets the treatment of orphans in an empty cache.
    pub fn with_orphans(self, orphans: Orphans) -> Self {
        OverContents { metadata: self.metadata.with_orphans(orphans), ..self }
    }

    /// Handles the loss of an address of the content in `slot`, if there is one.
    fn orphan(&mut self, slot: Option<ChunkSlot>, decision: &mut Decision) {
        if let Some(slot) = self.metadata.orphan(slot, decision) {
            self.order.remove(slot);
            self.slots.give_back(slot.0);
        }
    }

    /// Gives `lba` its `content`: INSERT-USING-LRU(x, M, m). Returns its number, and whether the
    /// content is new.
    fn insert_address(&mut self, lba: Lba, content: u32, decision: &mut Decision) -> (u32, bool) {
        let Some(i) = self.metadata.addresses.find(lba) else {
            let i = self.metadata.insert(lba, 0);
            self.metadata.remap(i, content);
            if self.metadata.addresses.len(0) > self.addresses_max as usize
                && let Some(oldest) = self.metadata.addresses.oldest(0)
            {
                let slot = self.metadata.slot(oldest);
                self.metadata.evict_address(oldest, decision);
                self.orphan(slot, decision);
            }
            return (i, true);
        };
        let before = self.metadata.slot(i);
        decision.was_cached = before.is_some();
        decision.was_ghost = !decision.was_cached;
        self.metadata.addresses.move_to(i, 0);
        let is_new = self.metadata.content(i) != content;
        if is_new {
            self.metadata.remap(i, content);
            self.orphan(before, decision);
        }
        (i, is_new)
    }

    /// Stores `content`, if it is not in D: INSERT-USING-LRU(f(x), D, d).
    fn insert_data(&mut self, content: u32, fingerprint: &Fingerprint, decision: &mut Decision) {
        if let Some(slot) = self.metadata.slot_of(content) {
            self.order.touch(slot);
            decision.data = DataStep::Map(slot);
            return;
        }
        let free = self.slots.take().map(ChunkSlot);
        let metadata = &self.metadata;
        let evict = || self.order.evict(|slot| metadata.fingerprint_in(slot));
        let Some(slot) = free.or_else(evict) else { return };
        if free.is_none() {
            self.metadata.displace(slot, decision);
        }
        self.metadata.place(content, slot, decision);
        self.order.push(slot, fingerprint);
        decision.data = DataStep::Store { slot, evicts: free.is_none() };
    }
}

impl<O: ContentOrder> Slotted for OverContents<O> {
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot> {
        self.metadata.addresses.find(lba).and_then(|i| self.metadata.slot(i))
    }

    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)> {
        let i = self.metadata.addresses.find(lba)?;
        Some((self.metadata.slot(i)?, i))
    }

    fn used(&mut self, uses: &[Use], decision: &mut Decision) {
        decision.clear();
        self.metadata.addresses.warm(uses);
        let metadata = &self.metadata;
        self.order.warm(uses.iter().filter_map(|hit| metadata.slot(hit.number)));
        for &Use { number, .. } in uses {
            self.metadata.addresses.move_to(number, 0);
            if let Some(slot) = self.metadata.slot(number) {
                self.order.touch(slot);
            }
        }
    }

    fn slot_of(&self, fingerprint: &Fingerprint) -> Option<ChunkSlot> {
        self.metadata.slot_with(fingerprint)
    }

    fn content_of(&self, lba: Lba) -> Option<Fingerprint> {
        self.metadata.addresses.find(lba).map(|i| self.metadata.fingerprint(i))
    }

    fn knows(&self, lba: Lba) -> bool {
        self.metadata.addresses.find(lba).is_some()
    }

    fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.metadata.addresses.in_run(first, count)
    }

    fn read(&mut self, lba: Lba, decision: &mut Decision) -> Option<ChunkSlot> {
        decision.clear();
        let i = self.metadata.addresses.find(lba)?;
        let slot = self.metadata.slot(i)?;
        self.metadata.addresses.move_to(i, 0);
        self.order.touch(slot);
        decision.was_cached = true;
        decision.data = DataStep::Map(slot);
        Some(slot)
    }

    fn put(&mut self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision) {
        decision.clear();
        let content = self.metadata.intern(fingerprint);
        let (i, is_new) = self.insert_address(lba, content, decision);
        self.insert_data(content, fingerprint, decision);
        if self.metadata.set_dirty(i, is_dirty) || is_new {
            decision.changed.push(MetadataEntry::Address(i));
        }
    }

    fn is_selective(&self) -> bool {
        O::IS_SELECTIVE
    }

    fn admits(&mut self, lba: Lba, fingerprint: &Fingerprint, decision: &mut Decision) -> bool {
        decision.clear();
        if self.metadata.slot_with(fingerprint).is_some() || self.order.admits(fingerprint) {
            return true;
        }
        let content = self.metadata.intern(fingerprint);
        let (i, is_new) = self.insert_address(lba, content, decision);
        if self.metadata.set_dirty(i, false) || is_new {
            decision.changed.push(MetadataEntry::Address(i));
        }
        false
    }

    fn put_content(&mut self, fingerprint: &Fingerprint, decision: &mut Decision) {
        decision.clear();
        if let Some(slot) = self.metadata.put_orphan(fingerprint, &mut self.slots, decision) {
            self.order.push(slot, fingerprint);
        }
    }

    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool {
        decision.clear();
        let Some(i) = self.metadata.addresses.find(lba) else { return false };
        if let Some(slot) = self.metadata.forget(i, decision) {
            self.order.remove(slot);
            self.slots.give_back(slot.0);
        }
        true
    }

    fn clean(&mut self, lba: Lba) -> bool {
        self.metadata.clean(lba)
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.metadata.addresses.is_dirty_at(lba)
    }

    fn list_count(&self) -> usize {
        1
    }

    fn looks_at_content(&self) -> bool {
        true
    }

    fn begin_list(&mut self, list: usize) {
        self.metadata.addresses.begin_walk(list);
    }

    fn show_addresses(&mut self, see: &mut dyn FnMut(Lba, &Fingerprint)) -> bool {
        self.metadata.show_some(see)
    }

    fn begin_data(&mut self) {
        self.order.begin_walk();
    }

    fn show_data(&mut self, see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        self.order.walk(see)
    }

    fn restore(&mut self, kept: &Kept) -> bool {
        if !kept.fits(&self.limits()) {
            return false;
        }
        for fingerprint in &kept.data {
            if let Some(slot) = self.metadata.restore_data(fingerprint, &mut self.slots) {
                self.order.push(slot, fingerprint);
            }
        }
        for address in kept.lists.iter().flatten() {
            self.metadata.restore_address(address, 0);
        }
        let in_use: Vec<_> = self.metadata.slots_in_use().collect();
        in_use.into_iter().for_each(|slot| self.orphan(Some(slot), &mut Decision::default()));
        true
    }

    fn limits(&self) -> Vec<(Vec<usize>, usize)> {
        vec![(vec![0], self.addresses_max as usize)]
    }

    fn sizes(&self) -> Sizes {
        let (data_chunks, addresses) = (u64::from(self.data_chunks), u64::from(self.addresses_max));
        let metadata_bytes = pages_bytes(addresses + data_chunks, ENTRY_BYTES);
        Sizes { data_chunks, addresses, entry_bytes: ENTRY_BYTES, metadata_bytes }
    }

    fn stats(&self) -> SlottedStats {
        let mut stats = self.metadata.stats(self.metadata.addresses.len(0));
        stats.ram_bytes += (self.order.ram_bytes() + self.slots.ram_bytes()) as u64;
        stats
    }

    fn ram_bytes_max(&self) -> u64 {
        let slots = self.data_chunks as usize;
        let ram = self.metadata.ram_bytes_max(slots) + self.slots.ram_bytes_max() + O::ram_bytes_max(self.data_chunks);
        ram as u64
    }
}
