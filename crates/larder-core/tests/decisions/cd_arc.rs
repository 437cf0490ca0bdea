//! CD-ARC's lists over WEUs: lists of addresses, victims, revived hits, and forgotten addresses.
//!
//! `nitro_model.rs` has the rest.

use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    cd_arc::CdArc,
    design::{Mapping, Persist, Slots},
    ranges::Run,
};
use proptest::{prelude::*, test_runner::RngSeed};

const RECORD_BYTES: u32 = 1000;

fn fingerprint(content: u64) -> Fingerprint {
    let mut bytes = [1; 16];
    bytes[..8].copy_from_slice(&content.to_le_bytes());
    Fingerprint(bytes)
}

/// A design whose WEUs have `per_weu` records, one open at a time.
struct Cache {
    design: Decider<CdArc>,
    per_weu: u32,
    open: Option<(SlotId, u32, u32)>,
}

impl Cache {
    fn new(slot_count: u32, mappings_max: u64, per_weu: u32) -> Self {
        let config = DesignConfig { slot_count, mappings_max, fp_entries_max: 1000 };
        Cache { design: Decider::new(Box::new(CdArc::new(config))), per_weu, open: None }
    }

    /// Evicts a WEU as a cache does; returns its number.
    fn evict(&mut self) -> u32 {
        let victim = self.design.choose_victim(&mut |_| false).expect("some WEU may go");
        for lba in self.design.dirty_in(victim.slot) {
            let seq = self.design.dirty_seq(lba).expect("it is dirty");
            assert!(self.design.mark_clean(lba, seq));
        }
        self.design.evict(victim.slot).expect("nothing is dirty");
        self.design.release_slot(victim.slot);
        assert!(!self.design.has_orphan());
        victim.slot.0
    }

    fn append(&mut self) -> Place {
        let (slot, generation, records) = match self.open.take() {
            Some(open) if open.2 < self.per_weu => open,
            full => {
                full.inspect(|&(slot, ..)| self.design.seal_slot(slot));
                let opened = self.design.open_slot(StreamClass::Clean).or_else(|| {
                    self.evict();
                    self.design.open_slot(StreamClass::Clean)
                });
                let (slot, generation) = opened.expect("a WEU");
                (slot, generation, 0)
            }
        };
        self.open = Some((slot, generation, records + 1));
        let offset = records * RECORD_BYTES;
        Place { slot, generation, offset, stored_len: RECORD_BYTES, crc: 0, encoding: 1 }
    }

    /// Gives `lba` a content, which is stored if it is unknown.
    fn put(&mut self, lba: u64, content: u64, dirty: Option<u64>) {
        let new = match self.design.find_duplicate(&fingerprint(content)) {
            Some(place) => NewMapping::Duplicate { place },
            None => NewMapping::Unique { place: self.append(), fingerprint: Some(fingerprint(content)) },
        };
        self.design.map(Lba(lba), new, dirty);
    }

    /// Reads `lba`, with the content of its own number; returns whether it hit.
    fn read(&mut self, lba: u64) -> bool {
        let is_mapped = self.design.lookup(Lba(lba)) != Lookup::Miss;
        let remembered = self.design.remembered(Lba(lba));
        assert!(remembered.is_none_or(|content| !is_mapped && content == fingerprint(lba)));
        if !is_mapped {
            self.put(lba, lba, None);
        }
        self.design.check();
        is_mapped || remembered.is_some()
    }

    fn lens(&self) -> [u64; 5] {
        self.design.list_lens()
    }
}

#[test]
fn addresses_go_through_the_lists_of_arc() {
    // C = 4, X = 0.
    let mut cache = Cache::new(8, 8, 4);
    (0..3).for_each(|lba| assert!(!cache.read(lba)));
    assert!(cache.read(1));
    assert_eq!(cache.lens(), [2, 1, 0, 0, 0], "asked for twice");
    assert!(!cache.read(3) && !cache.read(4));
    // T1 and T2 were full: 0 left T1 for B1, and its data is still there.
    assert_eq!(cache.lens(), [3, 1, 1, 0, 0]);
    assert_eq!(cache.design.target(), 0.0);
    assert!(cache.read(0), "a hit in B1");
    assert_eq!(cache.design.target(), 1.0, "T1 should have been larger");
    assert_eq!(cache.lens(), [2, 2, 1, 0, 0]);
    assert!(!cache.design.is_ghost(Lba(0)), "its data never went");
    // A rewrite: the old copy is forgotten before the write of the origin, but the address stays
    // known.
    assert!(cache.design.unmap(Lba(0)));
    assert_eq!((cache.design.lookup(Lba(0)), cache.lens()), (Lookup::Miss, [2, 2, 1, 0, 0]));
    cache.put(0, 100, None);
    assert_eq!(cache.lens(), [2, 2, 1, 0, 0], "it is in T2");
    cache.design.trim(Run::new(Lba(0), 1, 9));
    assert_eq!((cache.design.lookup(Lba(0)), cache.lens()), (Lookup::Zero, [2, 1, 1, 0, 0]));
}

#[test]
fn a_weu_without_an_address_in_t1_and_t2_goes_first_however_recent_it_is() {
    // C = 20: no address has to leave the lists. WEUs of two records.
    let mut cache = Cache::new(4, 40, 2);
    (0..8).for_each(|lba| assert!(!cache.read(lba)));
    // The third WEU has 4 and 5, which are forgotten; its last use follows.
    assert!(cache.design.unmap(Lba(4)) && cache.design.unmap(Lba(5)));
    cache.put(20, 4, None);
    assert!(cache.design.unmap(Lba(20)));
    assert!(!cache.read(8));
    assert_eq!(cache.lens()[..3], [9 + 1, 0, 0], "none had to move; the three without data stay on T1");
    let hits: Vec<u64> = (0..9).filter(|&lba| cache.design.peek(Lba(lba)) != Lookup::Miss).collect();
    assert!((0..9).all(|lba| cache.design.remembered(Lba(lba)).is_none()));
    assert_eq!(hits, [0, 1, 2, 3, 6, 7, 8]);
    // Now each has some. From T1's end 0 and 1 leave first, and that is a whole WEU.
    (9..10).for_each(|lba| assert!(!cache.read(lba)));
    assert!(!cache.read(10));
    assert_eq!(cache.lens()[2], 2, "two are remembered in B1");
    assert!(cache.design.peek(Lba(0)) == Lookup::Miss && cache.design.peek(Lba(1)) == Lookup::Miss);
}

#[test]
fn the_weu_that_lost_its_last_address_first_goes_first_also_after_an_opening() {
    for is_opened in [false, true] {
        let mut cache = Cache::new(5, 40, 2);
        if is_opened {
            cache.design.begin_restore(0, 0);
            cache.design.confirm_dirty();
            cache.design.end_restore();
        }
        (0..7).for_each(|lba| assert!(!cache.read(lba)));
        // The third WEU loses its addresses first, then the second, then the first.
        for lba in [5, 4, 2, 3, 0, 1] {
            assert!(cache.design.unmap(Lba(lba)));
        }
        assert_eq!([cache.evict(), cache.evict(), cache.evict()], [2, 1, 0], "opened: {is_opened}");
    }
}

#[test]
fn an_address_without_data_hits_when_its_content_is_known_again() {
    let mut cache = Cache::new(3, 40, 2);
    (0..7).for_each(|lba| assert!(!cache.read(lba)));
    assert_eq!(cache.design.peek(Lba(0)), Lookup::Miss, "its WEU is gone");
    assert_eq!(cache.design.stats().ghosts, 2);
    // Another address brings the content back.
    cache.put(50, 0, None);
    assert_eq!((cache.design.peek(Lba(0)), cache.design.remembered(Lba(0))), (Lookup::Miss, Some(fingerprint(0))));
    assert!(cache.read(0));
    let place = cache.design.find_duplicate(&fingerprint(0)).expect("its content is known");
    assert_eq!(cache.design.peek(Lba(0)), Lookup::Chunk { place, duplicate: true });
    assert_eq!(cache.design.remembered(Lba(0)), None);
    // An outdated address does not come back.
    let mut cache = Cache::new(3, 40, 2);
    (0..7).for_each(|lba| assert!(!cache.read(lba)));
    assert!(!cache.design.unmap(Lba(0)), "it is not mapped");
    cache.put(50, 0, None);
    assert_eq!((cache.design.lookup(Lba(0)), cache.design.remembered(Lba(0))), (Lookup::Miss, None));
}

/// A log tells an old content of an address, without later writes while it was unmapped.
#[test]
fn nothing_is_remembered_of_what_recovery_found_gone() {
    let mut cache = Cache::new(3, 40, 2);
    let place = |slot| Place { slot: SlotId(slot), generation: 0, offset: 0, stored_len: 1000, crc: 0, encoding: 1 };
    cache.design.begin_restore(0, 0);
    for slot in 0..2 {
        assert!(cache.design.restore_slot(SlotId(slot), 0, None));
        let new = NewMapping::Unique { place: place(slot), fingerprint: Some(fingerprint(slot.into())) };
        cache.design.map(Lba(slot.into()), new, None);
    }
    cache.design.restore_freed(SlotId(0), 0);
    cache.design.end_restore();
    cache.design.check();
    cache.put(50, 0, None);
    cache.put(51, 1, None);
    assert_eq!((cache.design.lookup(Lba(0)), cache.design.remembered(Lba(0))), (Lookup::Miss, None));
    assert_eq!(cache.design.lookup(Lba(1)), Lookup::Chunk { place: place(1), duplicate: false });
}

#[test]
fn what_leaves_the_lists_is_dropped_when_the_caller_can_log_it() {
    // C = 4, X = 0, and room for all data.
    let mut cache = Cache::new(8, 8, 4);
    (0..4).for_each(|lba| cache.put(lba, lba, Some(lba)));
    (4..6).for_each(|lba| assert!(!cache.read(lba)));
    assert_eq!(cache.lens(), [4, 0, 0, 0, 0], "T1 has C at most, and without T2 nothing else is remembered");
    assert_eq!(cache.design.stats().mapped_chunks, 6);
    assert_eq!(cache.design.drop_clean_zeroes(false, usize::MAX), [], "0 and 1 are dirty");
    assert!(cache.design.mark_clean(Lba(1), 1));
    assert!(cache.design.peek(Lba(1)) != Lookup::Miss, "nobody logged that it is gone");
    assert_eq!(cache.design.drop_clean_zeroes(false, usize::MAX), [Lba(1)]);
    assert_eq!(cache.design.peek(Lba(1)), Lookup::Miss);
    assert!(cache.design.dirty_seq(Lba(0)).is_some() && cache.design.peek(Lba(0)) != Lookup::Miss);
}

/// Found by replays with a small RAM budget: a new address passed over all dirty ones that had
/// left.
#[test]
fn what_has_left_and_is_dirty_is_not_passed_over_to_find_what_may_go() {
    // C = 4, X = 0, and room for all data.
    let mut cache = Cache::new(8, 8, 4);
    (0..8).for_each(|lba| cache.put(lba, lba, Some(lba)));
    cache.design.check();
    assert_eq!(cache.design.waiting(), [0, 4], "nothing may go");
    assert_eq!(cache.design.drop_clean_zeroes(false, usize::MAX), []);
    assert!(cache.design.mark_clean(Lba(2), 2) && cache.design.mark_clean(Lba(1), 1));
    assert!(!cache.design.mark_clean(Lba(3), 9), "it was written again since");
    assert_eq!(cache.design.waiting(), [2, 2]);
    assert_eq!(cache.design.drop_clean_zeroes(false, 1), [Lba(2)], "in the order in which they became clean");
    // A used address comes back, and a forgotten one is not dropped besides.
    assert!(cache.design.lookup(Lba(0)) != Lookup::Miss && cache.design.unmap(Lba(3)));
    cache.design.check();
    assert_eq!(cache.design.waiting(), [1, 1], "1, and 4, for which 0 made it leave");
    cache.put(1, 1, Some(9));
    cache.design.check();
    assert_eq!(cache.design.waiting(), [0, 2]);
    assert_eq!(cache.design.drop_clean_zeroes(false, usize::MAX), []);
}

/// As after a crash: dirty addresses of recovery wait until they are clean, apart from the rest.
#[test]
fn what_recovery_finds_dirty_waits_apart() {
    // C = 1, X = 0: one address in T2, one in B2.
    let config = DesignConfig { slot_count: 4, mappings_max: 2, fp_entries_max: 10 };
    let mut design = Decider::new(Box::new(CdArc::new(config)));
    design.begin_restore(6, 0);
    assert!(design.restore_slot(SlotId(1), 7, None));
    for (lba, seq) in [(0, None), (1, None), (2, Some(1)), (3, None), (4, Some(2)), (5, Some(3)), (4, None)] {
        let place = Place { slot: SlotId(1), generation: 7, offset: lba as u32, stored_len: 1, crc: 0, encoding: 1 };
        design.map(Lba(lba), NewMapping::Unique { place, fingerprint: None }, seq);
    }
    design.confirm_dirty();
    assert!(design.mark_clean(Lba(5), 3));
    design.end_restore();
    design.check();
    assert_eq!((design.list_lens(), design.waiting()), ([0, 1, 0, 1, 0], [3, 1]));
    assert_eq!(design.drop_clean_zeroes(false, usize::MAX), [Lba(3), Lba(4), Lba(5)]);
}

#[test]
fn no_address_moves_where_no_weu_may_go() {
    let mut cache = Cache::new(4, 40, 2);
    (0..8).for_each(|lba| assert!(!cache.read(lba)));
    assert_eq!(cache.design.choose_victim(&mut |_| true), None);
    assert_eq!(cache.lens(), [8, 0, 0, 0, 0]);
    let victim = cache.design.choose_victim(&mut |slot| slot.0 != 2).expect("one may");
    assert_eq!(victim.slot, SlotId(2));
    assert_eq!(cache.lens(), [2, 0, 6, 0, 0], "from the end of T1 up to the last one in it");
    // A hit in a leaving WEU moves nothing.
    assert!(cache.read(4));
    assert_eq!(cache.lens(), [2, 0, 6, 0, 0]);
    cache.design.spare_victim(victim.slot);
    assert!(cache.read(4));
    assert_eq!(cache.lens(), [2, 1, 5, 0, 0]);
}

#[test]
fn what_was_mapped_before_a_restart_is_remembered_as_far_as_the_lists_go() {
    // C = 4, X = 1.
    let config = DesignConfig { slot_count: 4, mappings_max: 9, fp_entries_max: 10 };
    let mut design = Decider::new(Box::new(CdArc::new(config)));
    design.begin_restore(9, 0);
    assert!(design.restore_slot(SlotId(1), 7, None));
    for lba in 0..9 {
        let place = Place { slot: SlotId(1), generation: 7, offset: lba as u32, stored_len: 1, crc: 0, encoding: 1 };
        design.map(Lba(lba), NewMapping::Unique { place, fingerprint: None }, None);
    }
    design.end_restore();
    design.check();
    assert_eq!(design.list_lens(), [0, 5, 0, 4, 0]);
    assert!((0..9).all(|lba| design.lookup(Lba(lba)) != Lookup::Miss));
}

/// Found by `wastes_nothing`: addresses that waited to be dropped outlived their WEUs, without an
/// end.
#[test]
fn what_waits_to_be_dropped_does_not_pile_up() {
    let mut cache = Cache::new(3, 4, 2);
    for lba in 0..10_000 {
        while !cache.design.has_room(1) {
            (0..cache.design.export_pieces()).for_each(|_| {
                cache.design.sweep();
            });
            if !cache.design.has_room(1) {
                cache.open.take().inspect(|&(slot, ..)| cache.design.seal_slot(slot));
                cache.evict();
            }
        }
        cache.put(lba, lba, None);
        let stats = cache.design.stats();
        assert!(stats.ghosts + stats.mapped_chunks <= 3 * 4 + 2, "{stats:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(20_260), failure_persistence: None, ..ProptestConfig::default() })]

    /// For any reads, writes, trims and evictions the lists keep their sizes. An eviction leaves no
    /// orphan in T1 and T2, and a hit has the content that was put last.
    #[test]
    fn wastes_nothing(
        slots in 3u32..7,
        mappings in 4u64..40,
        per_weu in 1u32..6,
        requests in prop::collection::vec((0u64..30, 0u64..30, 0u32..20), 1..500),
    ) {
        let mut cache = Cache::new(slots, mappings, per_weu);
        let mut volume = [0; 30];
        let mut records = std::collections::HashMap::new();
        for (step, (lba, content, what)) in requests.into_iter().enumerate() {
            match what {
                0 => {
                    cache.design.trim(Run::new(Lba(lba), 1, step as u64));
                    volume[lba as usize] = u64::MAX;
                }
                1 => {
                    cache.design.unmap(Lba(lba));
                }
                2 => {
                    for lba in cache.design.drop_clean_zeroes(false, usize::MAX) {
                        prop_assert_eq!(cache.design.peek(lba), Lookup::Miss);
                    }
                }
                3..10 => {
                    let peeked = cache.design.peek(Lba(lba));
                    prop_assert_eq!(cache.design.lookup(Lba(lba)), peeked);
                }
                _ => {
                    while !cache.design.has_room(1) {
                        cache.design.drop_clean_zeroes(false, usize::MAX);
                        (0..cache.design.export_pieces()).for_each(|_| { cache.design.sweep(); });
                        if !cache.design.has_room(1) {
                            cache.open.take().inspect(|&(slot, ..)| cache.design.seal_slot(slot));
                            cache.evict();
                        }
                    }
                    cache.put(lba, content, (what < 14).then_some(step as u64));
                    volume[lba as usize] = content;
                    if let Lookup::Chunk { place, duplicate: false } = cache.design.peek(Lba(lba)) {
                        records.insert((place.slot, place.generation, place.offset), content);
                    }
                }
            }
            cache.design.check();
            prop_assert!(!cache.design.has_orphan());
            for lba in 0..30 {
                match cache.design.peek(Lba(lba)) {
                    Lookup::Chunk { place, .. } => {
                        let held = records[&(place.slot, place.generation, place.offset)];
                        prop_assert_eq!(held, volume[lba as usize], "chunk {}", lba);
                    }
                    Lookup::Zero => prop_assert_eq!(volume[lba as usize], u64::MAX),
                    Lookup::Miss => {}
                    Lookup::Fragment { .. } => prop_assert!(false, "no fragment was made"),
                }
            }
        }
    }
}
