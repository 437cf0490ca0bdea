//! CacheDedup's `d-arc` (§4.2, Algorithms 2 and 3): ARC over addresses, with deduplicated data.
//!
//! The Data Cache D has C chunks without duplicates. T1 and T2 have up to C + X addresses, because
//! several may share a chunk. B1 and B2 have addresses that left them. B3 has those that left B1
//! and B2, while T1, T2 and B3 together have no more than C + X. Data may leave D only if no
//! address in T1 or T2 has it, the least recently used first (§4.2.1: "replace LRU victim in D").
//! If there is none, addresses move out of T1 and T2 until there is. Every address in T1 and T2
//! therefore has its data. An address in B1, B2 or B3 hits while its data happens to be in D.
//!
//! Departures from Algorithms 2 and 3, and their open points:
//! - An overwrite may give an address in T1 or T2 content that is not in D; Algorithm 2 only moves
//!   the address. Here the data is inserted after the move.
//! - Algorithm 3 as printed loops for ever in MANAGEMETADATACACHE if both of its tests fail. Here
//!   REPLACEINMETADATACACHE is called outside the inner `if`, as ARC calls REPLACE.
//! - If the evicted address of B3 is the requested one, it stays: it leaves B3 at once anyway.
//! - `p` moves as in ARC, by the quotient of the sizes of B1 and B2 or by 1. It is a real number
//!   between 0 and C. (The paper only says "Increase p".)
//! - D has free slots at first, and after trims; those are used before there is a victim.
//! - Content without an address on a list is a victim, too, or forgotten (§3.1): [`Orphans`].
//! - A trim, and a write around the cache, remove the address. They remove its data if no other
//!   address on a list has it (§3.2, "write invalidate").
//! - Two percent of the data's bytes (§5.1) are spent on X. X = 0 is the minimum, with 72 bytes a
//!   chunk ("under 3%", §5.1). §5.4's 341 MB for 11 GB are 127 bytes a chunk, unexplained.
//!
//! AustereCache's authors' version departs from the paper. With 1024 chunks and an index of 4096
//! addresses (C = 1024 and X = 2048 here), its lists have C = 2048 and X = 0. Its `p` moves by 1.
//! Its victim is the first content that lost its last address in T1 and T2. Replaced content loses
//! its address only when the new has room. `larder-sim/tests/simulator/published.rs` compares both.
//!
//! Invariants: |T1|+|T2|+|B3| <= C+X, |B1|+|B2| <= C, |D| <= C. T1 and T2 have their data in D.
//!
//! It does not keep data for the sake of B1, B2 or B3.

use crate::{
    design::Use,
    named::{NamedDesign, Over, OverSlots},
    slotted::{
        ChunkSlot, DataStep, Decision, FlashSize, Kept, MetadataEntry, Orphans, SizeError, Sizes, SlotPool, Slotted,
        SlottedStats,
        contents::{ENTRY_BYTES, Metadata, extra_addresses},
        of_slots,
        order::SlotHeap,
        sizes::{Formula, check_chunks, check_count, pages_bytes},
    },
    types::{Fingerprint, Lba},
    walk::PIECE,
};

/// The design's name.
pub const NAME: &str = "d-arc";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "CacheDedup's D-ARC (Li et al., FAST 2016, section 4.2): duplication-aware ARC",
    over: Over::Slots(OverSlots {
        dedup: true,
        make: |slots, chunk_bytes| of_slots(slots, |size| DArc::for_flash(size, chunk_bytes)),
    }),
};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;
const B3: usize = 4;
/// The list of an incoming address that is on no list yet.
const NEW: usize = 5;

/// The design.
pub struct DArc {
    metadata: Metadata<6>,
    slots: SlotPool,
    /// The last use of each slot, and the slots without an address in T1 or T2.
    victims: SlotHeap,
    /// The paper's C.
    data_chunks: usize,
    /// The paper's X.
    extra: usize,
    /// The target size of T1.
    p: f64,
    /// Number of data slots that a walk has passed.
    shown: usize,
}

impl DArc {
    /// Creates a cache of `data_chunks` (the paper's C, at least 1), with 2C + `extra` addresses.
    pub fn new(data_chunks: u64, extra: u64) -> Result<Self, SizeError> {
        let chunks = check_chunks(NAME, data_chunks)?;
        check_count(NAME, extra)?;
        let addresses = check_count(NAME, 2 * data_chunks + extra)?;
        Ok(DArc {
            // One more for the incoming address.
            metadata: Metadata::new(chunks, addresses as usize + 1),
            slots: SlotPool::new(chunks),
            victims: SlotHeap::new(),
            data_chunks: chunks as usize,
            extra: extra as usize,
            p: 0.0,
            shown: 0,
        })
    }

    /// Creates a cache that fills `flash`: 2C addresses, and 2% of the data's bytes more.
    pub fn for_flash(flash: FlashSize, chunk_bytes: u32) -> Result<Self, SizeError> {
        let extra = |chunks| extra_addresses(chunks, chunk_bytes);
        let entries = |chunks| 3 * chunks + extra(chunks);
        let chunks = Formula { design: NAME, chunk_bytes, entry_bytes: ENTRY_BYTES, entries }.data_chunks(flash)?;
        DArc::new(chunks, extra(chunks))
    }

    /// Sets the treatment of orphans in an empty cache.
    pub fn with_orphans(self, orphans: Orphans) -> Self {
        DArc { metadata: self.metadata.with_orphans(orphans), ..self }
    }

    /// Returns the target size of T1 (the paper's p).
    pub fn target(&self) -> f64 {
        self.p
    }

    fn len(&self, list: usize) -> usize {
        self.metadata.addresses.len(list)
    }

    /// Counts another address in T1 or T2 for `content`.
    fn hold(&mut self, content: u32) {
        let holds = self.metadata.holds(content);
        *holds += 1;
        if *holds == 1
            && let Some(slot) = self.metadata.slot_of(content)
        {
            self.victims.remove(slot);
        }
    }

    /// Uncounts an address in T1 or T2 for `content`.
    fn let_go(&mut self, content: u32) {
        let holds = self.metadata.holds(content);
        *holds -= 1;
        if *holds == 0
            && let Some(slot) = self.metadata.slot_of(content)
        {
            self.victims.push(slot);
        }
    }

    /// Moves `i` to the head of `list`.
    fn move_to(&mut self, i: u32, list: usize) {
        let was_held = is_top(self.metadata.addresses.list(i));
        self.metadata.addresses.move_to(i, list);
        match (was_held, is_top(list)) {
            (false, true) => self.hold(self.metadata.content(i)),
            (true, false) => self.let_go(self.metadata.content(i)),
            _ => {}
        }
    }

    fn move_oldest(&mut self, from: usize, to: usize) {
        if let Some(i) = self.metadata.addresses.oldest(from) {
            self.move_to(i, to);
        }
    }

    /// Handles a request of address `i`, which has its content (PROCESSREQUEST).
    fn process(&mut self, i: u32, decision: &mut Decision) {
        let to = match self.metadata.addresses.list(i) {
            T1 | T2 => {
                self.move_to(i, T2);
                self.insert_data(i, decision);
                T2
            }
            list @ (B1 | B2) => {
                self.adapt(list);
                self.insert_data(i, decision);
                self.check_metadata(i, decision);
                T2
            }
            B3 => {
                self.insert_data(i, decision);
                T1
            }
            _ => {
                self.insert_data(i, decision);
                self.check_metadata(i, decision);
                T1
            }
        };
        self.move_to(i, to);
        if let Some(slot) = self.metadata.slot(i) {
            self.victims.touch(slot);
        }
    }

    /// Moves `p` after a hit in `list`, B1 or B2.
    fn adapt(&mut self, list: usize) {
        let (b1, b2) = (self.len(B1) as f64, self.len(B2) as f64);
        self.p = if list == B1 {
            (self.p + (b2 / b1).max(1.0)).min(self.data_chunks as f64)
        } else {
            (self.p - (b1 / b2).max(1.0)).max(0.0)
        };
    }

    /// Stores the content of `i`, if it is not in D (INSERTINDATACACHE).
    fn insert_data(&mut self, i: u32, decision: &mut Decision) {
        if let Some(slot) = self.metadata.slot(i) {
            decision.data = DataStep::Map(slot);
            return;
        }
        let free = self.slots.take().map(ChunkSlot);
        let Some(slot) = free.or_else(|| self.find_victim(i)) else { return };
        if free.is_none() {
            self.victims.remove(slot);
            self.metadata.displace(slot, decision);
        }
        self.metadata.place(self.metadata.content(i), slot, decision);
        self.victims.touch(slot);
        decision.data = DataStep::Store { slot, evicts: free.is_none() };
    }

    /// Returns the victim slot of a full D for the sake of `i`. Each round takes an address other
    /// than `i` out of T1 and T2; without them all of D may go.
    fn find_victim(&mut self, i: u32) -> Option<ChunkSlot> {
        while self.victims.oldest().is_none() && self.len(T1) + self.len(T2) > 0 {
            self.manage_metadata(i);
        }
        self.victims.oldest()
    }

    /// Makes room for an address on the lists, if they are full (CHECKMETADATACACHE).
    fn check_metadata(&mut self, i: u32, decision: &mut Decision) {
        if self.len(T1) + self.len(T2) + self.len(B3) < self.data_chunks + self.extra {
            return;
        }
        if self.len(B3) == 0 {
            self.manage_metadata(i);
        }
        if let Some(oldest) = self.metadata.addresses.oldest(B3)
            && oldest != i
        {
            let slot = self.metadata.slot(oldest);
            self.metadata.evict_address(oldest, decision);
            self.orphan(slot, decision);
        }
    }

    /// Handles the loss of an address of the content in `slot`, if there is one.
    fn orphan(&mut self, slot: Option<ChunkSlot>, decision: &mut Decision) {
        if let Some(slot) = self.metadata.orphan(slot, decision) {
            self.victims.remove(slot);
            self.slots.give_back(slot.0);
        }
    }

    /// Takes one address out of T1 or T2, if there is one (MANAGEMETADATACACHE).
    fn manage_metadata(&mut self, i: u32) {
        let t1 = self.len(T1);
        if t1 + self.len(B1) >= self.data_chunks {
            if t1 < self.data_chunks {
                self.move_oldest(B1, B3);
                self.replace_in_metadata(i);
            } else if self.len(B1) > 0 {
                self.move_oldest(B1, B3);
                self.move_oldest(T1, B1);
            } else {
                self.move_oldest(T1, B3);
            }
        } else {
            if self.len(B1) + self.len(B2) >= self.data_chunks {
                self.move_oldest(B2, B3);
            }
            self.replace_in_metadata(i);
        }
    }

    /// Moves the oldest of T1 or T2 to B1 or B2 (REPLACEINMETADATACACHE). |T1| < C, and all C
    /// contents of D have addresses in T1 and T2, or these are C + X. So T2 has one beside `i`.
    fn replace_in_metadata(&mut self, i: u32) {
        let t1 = self.len(T1) as f64;
        let is_in_b2 = self.metadata.addresses.list(i) == B2;
        if t1 > 0.0 && (t1 > self.p || is_in_b2 && t1 == self.p) {
            self.move_oldest(T1, B1);
        } else {
            self.move_oldest(T2, B2);
        }
    }

    /// Gives `lba` its `content`; returns its number, and whether the content is new.
    fn assign(&mut self, lba: Lba, content: u32, decision: &mut Decision) -> (u32, bool) {
        let Some(i) = self.metadata.addresses.find(lba) else {
            let i = self.metadata.insert(lba, NEW);
            self.metadata.remap(i, content);
            return (i, true);
        };
        let slot = self.metadata.slot(i);
        decision.was_cached = slot.is_some();
        decision.was_ghost = !decision.was_cached;
        let before = self.metadata.content(i);
        if before == content {
            return (i, false);
        }
        let is_held = is_top(self.metadata.addresses.list(i));
        if is_held {
            self.let_go(before);
        }
        self.metadata.remap(i, content);
        self.orphan(slot, decision);
        if is_held {
            self.hold(content);
        }
        (i, true)
    }
}

fn is_top(list: usize) -> bool {
    list == T1 || list == T2
}

impl Slotted for DArc {
    fn lookup(&self, lba: Lba) -> Option<ChunkSlot> {
        self.metadata.addresses.find(lba).and_then(|i| self.metadata.slot(i))
    }

    fn hit(&self, lba: Lba) -> Option<(ChunkSlot, u32)> {
        // A return from B1 or B2 may take the place of an address in B3.
        let comes_alone = |&i: &u32| !matches!(self.metadata.addresses.list(i), B1 | B2);
        let i = self.metadata.addresses.find(lba).filter(comes_alone)?;
        Some((self.metadata.slot(i)?, i))
    }

    fn used(&mut self, uses: &[Use], decision: &mut Decision) {
        decision.clear();
        self.metadata.addresses.warm(uses);
        self.victims.warm(uses.iter().filter_map(|hit| self.metadata.slot(hit.number)));
        uses.iter().for_each(|hit| self.process(hit.number, decision));
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
        decision.was_cached = true;
        self.process(i, decision);
        Some(slot)
    }

    fn put(&mut self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool, decision: &mut Decision) {
        decision.clear();
        let content = self.metadata.intern(fingerprint);
        let (i, is_new) = self.assign(lba, content, decision);
        self.process(i, decision);
        if self.metadata.set_dirty(i, is_dirty) || is_new {
            decision.changed.push(MetadataEntry::Address(i));
        }
    }

    fn put_content(&mut self, fingerprint: &Fingerprint, decision: &mut Decision) {
        decision.clear();
        if let Some(slot) = self.metadata.put_orphan(fingerprint, &mut self.slots, decision) {
            self.victims.touch(slot);
            self.victims.push(slot);
        }
    }

    fn forget(&mut self, lba: Lba, decision: &mut Decision) -> bool {
        decision.clear();
        let Some(i) = self.metadata.addresses.find(lba) else { return false };
        if is_top(self.metadata.addresses.list(i)) {
            self.let_go(self.metadata.content(i));
        }
        if let Some(slot) = self.metadata.forget(i, decision) {
            self.victims.remove(slot);
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
        NEW
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
        self.shown = 0;
    }

    fn show_data(&mut self, see: &mut dyn FnMut(ChunkSlot, u64)) -> bool {
        let end = self.metadata.slots_end().min(self.shown + PIECE);
        let slots = (self.shown..end).map(|slot| ChunkSlot(slot as u32));
        slots.filter(|&slot| self.metadata.is_in_use(slot)).for_each(|slot| see(slot, self.victims.stamp_of(slot)));
        self.shown = end;
        end < self.metadata.slots_end()
    }

    fn target_size(&self) -> f64 {
        self.p
    }

    fn restore(&mut self, kept: &Kept) -> bool {
        if !kept.fits(&self.limits()) {
            return false;
        }
        for fingerprint in &kept.data {
            if let Some(slot) = self.metadata.restore_data(fingerprint, &mut self.slots) {
                self.victims.touch(slot);
            }
        }
        for (list, addresses) in kept.lists.iter().enumerate() {
            for address in addresses {
                if is_top(list) && self.metadata.slot_with(&address.fingerprint).is_none() {
                    continue;
                }
                if let Some(i) = self.metadata.restore_address(address, list).filter(|_| is_top(list)) {
                    self.hold(self.metadata.content(i));
                }
            }
        }
        let in_use: Vec<_> = self.metadata.slots_in_use().collect();
        for slot in in_use {
            if *self.metadata.holds(self.metadata.content_in(slot)) == 0 {
                self.victims.push(slot);
                self.orphan(Some(slot), &mut Decision::default());
            }
        }
        self.p = kept.target;
        true
    }

    fn limits(&self) -> Vec<(Vec<usize>, usize)> {
        vec![(vec![B3, T2, T1], self.data_chunks + self.extra), (vec![B2, B1], self.data_chunks)]
    }

    fn sizes(&self) -> Sizes {
        let data_chunks = self.data_chunks as u64;
        let addresses = 2 * data_chunks + self.extra as u64;
        let metadata_bytes = pages_bytes(addresses + data_chunks, ENTRY_BYTES);
        Sizes { data_chunks, addresses, entry_bytes: ENTRY_BYTES, metadata_bytes }
    }

    fn stats(&self) -> SlottedStats {
        let addresses = [T1, T2, B1, B2, B3].map(|list| self.len(list)).iter().sum();
        let mut stats = self.metadata.stats(addresses);
        stats.ram_bytes += (self.victims.ram_bytes() + self.slots.ram_bytes()) as u64;
        stats
    }

    fn ram_bytes_max(&self) -> u64 {
        let slots = self.data_chunks;
        let ram = self.metadata.ram_bytes_max(slots) + self.slots.ram_bytes_max() + SlotHeap::ram_bytes_max(slots);
        ram as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::*, test_runner::RngSeed};

    const LBAS: u64 = 24;

    fn content(number: u64) -> Fingerprint {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Fingerprint(bytes)
    }

    fn put(design: &mut DArc, lba: u64, number: u64) -> Decision {
        let mut decision = Decision::default();
        design.put(Lba(lba), &content(number), false, &mut decision);
        decision
    }

    /// Checks the sizes of the lists, and that no data of T1 and T2 is a victim.
    fn check(design: &DArc) {
        let addresses = &design.metadata.addresses;
        for i in (0..LBAS).filter_map(|lba| addresses.find(Lba(lba))) {
            assert_ne!(addresses.list(i), NEW);
            assert!(!is_top(addresses.list(i)) || design.metadata.slot(i).is_some(), "an orphan in T1 or T2");
        }
        let [t1, t2, b1, b2, b3] = [T1, T2, B1, B2, B3].map(|list| design.len(list));
        assert!(t1 + t2 + b3 <= design.data_chunks + design.extra, "T1 {t1}, T2 {t2}, B3 {b3}");
        assert!(b1 + b2 <= design.data_chunks, "B1 {b1}, B2 {b2}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(20_260), failure_persistence: None, ..ProptestConfig::default() })]

        /// The no-wastage policy (§4.2.2), on T1 and T2: no orphaned address is among them. None
        /// can therefore coexist with an orphaned data block. Each address keeps its content, as
        /// the paper's proof assumes.
        #[test]
        fn wastes_nothing(
            chunks in 1u64..10,
            extra in 0u64..14,
            contents in 1u64..24,
            requests in prop::collection::vec((0..LBAS, any::<bool>()), 1..600),
        ) {
            let mut design = DArc::new(chunks, extra).unwrap();
            let mut decision = Decision::default();
            for (lba, is_write) in requests {
                if is_write || design.read(Lba(lba), &mut decision).is_none() {
                    design.put(Lba(lba), &content(lba * 7 % contents), is_write, &mut decision);
                }
                check(&design);
            }
        }

        #[test]
        fn lists_keep_their_sizes_with_overwrites_and_trims(
            chunks in 1u64..8,
            extra in 0u64..8,
            requests in prop::collection::vec((0..LBAS, 0u64..24), 1..600),
        ) {
            let mut design = DArc::new(chunks, extra).unwrap();
            let mut decision = Decision::default();
            for (lba, number) in requests {
                match number {
                    0 => {
                        design.forget(Lba(lba), &mut decision);
                    }
                    1..6 => {
                        design.read(Lba(lba), &mut decision);
                    }
                    _ => design.put(Lba(lba), &content(number), true, &mut decision),
                }
                check(&design);
            }
        }
    }

    #[test]
    fn an_overwrite_in_t1_inserts_its_data() {
        let mut design = DArc::new(2, 0).unwrap();
        put(&mut design, 1, 1);
        put(&mut design, 2, 2);
        let decision = put(&mut design, 1, 3);
        assert!(matches!(decision.data, DataStep::Store { evicts: true, .. }), "{decision:?}");
        assert!(decision.was_cached && design.lookup(Lba(1)).is_some() && design.lookup(Lba(2)).is_some());
        assert_eq!((design.len(T1), design.len(T2)), (1, 1));
    }

    #[test]
    fn replace_is_called_where_both_tests_of_algorithm_3_fail() {
        let mut design = DArc::new(3, 0).unwrap();
        for lba in [1, 2, 3, 1, 2, 3] {
            put(&mut design, lba, lba);
        }
        assert_eq!([T1, T2, B1, B2].map(|list| design.len(list)), [0, 3, 0, 0]);
        put(&mut design, 4, 4);
        assert_eq!([T1, T2, B1, B2].map(|list| design.len(list)), [1, 2, 0, 1]);
        assert!(design.lookup(Lba(1)).is_none() && design.lookup(Lba(4)).is_some());
    }

    #[test]
    fn an_address_without_data_hits_when_another_brings_it_back() {
        let mut design = DArc::new(2, 2).unwrap();
        for (lba, number) in [(1, 1), (2, 1), (3, 3), (4, 4)] {
            put(&mut design, lba, number);
        }
        assert!(design.lookup(Lba(1)).is_none() && design.lookup(Lba(2)).is_none(), "1 left D");
        put(&mut design, 5, 1);
        assert!(design.lookup(Lba(2)).is_some(), "its history is remembered");
    }
}
