//! Designs with equal slots over flash slots, with calls as from an engine.
//!
//! Chunks are stored in free slots. Duplicates, fragments, trims, and destages with right and stale
//! sequence numbers follow. Evictions go on all the time, with restarts in between. The model is
//! the content of each address. A design may forget clean content, and must find all other.
//!
//! Invariants, checked after each step: a lookup finds the newest content of its address, and all
//! dirty content. No found slot is free. The design's own bookkeeping holds ([`Placed::check`]).

use crate::common::{Rng, for_seeds};
use crate::slotted::{CHUNK, Drafting, bare, fingerprint_of, make, reopen};
use larder_core::{
    Decider, DesignConfig, Lba, Lookup, NewMapping, Place, SectorMap, StreamClass,
    design::{Mapping, Persist, Slots},
    ranges::Run,
    slotted::{Decision, Placed, mapped_max},
};
use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap},
};

const LBAS: u64 = 64;

/// The data of an address: its content, and whether it is dirty, or a fragment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Holds {
    content: u64,
    dirty: Option<u64>,
    fragment: bool,
}

struct World {
    rng: Rng,
    kind: usize,
    config: DesignConfig,
    design: Decider<Placed>,
    holds: HashMap<u64, Holds>,
    trimmed: HashMap<u64, u64>,
    /// The content of each flash slot, with its last generation.
    stored: HashMap<u32, (u32, u64)>,
    next_content: u64,
    seq: u64,
    /// Contents without an address that restarts brought back.
    orphans_restored: u64,
    /// The history of an earlier restart.
    history: Vec<u8>,
    drafting: Drafting,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let kind = rng.below(4) as usize;
        let dedup = kind < 2;
        let config = DesignConfig {
            slot_count: 7 + rng.below(30) as u32,
            mappings_max: [24, 60, 1000][rng.below(3) as usize],
            fp_entries_max: if dedup { 1000 } else { 0 },
        };
        let design = make(kind, config);
        let (holds, trimmed, stored, history, drafting) = Default::default();
        let (next_content, seq, orphans_restored) = (100, 0, 0);
        World {
            rng,
            kind,
            config,
            design,
            holds,
            trimmed,
            stored,
            next_content,
            seq,
            orphans_restored,
            history,
            drafting,
        }
    }

    fn content(&mut self) -> u64 {
        if self.rng.chance(60) {
            return self.rng.below(12);
        }
        self.next_content += 1;
        self.next_content
    }

    /// Stores `content` for `lba`, or maps its stored copy, as an engine does. Returns false
    /// without room.
    fn put(&mut self, lba: u64, content: u64, dirty: bool, fragment: bool) -> bool {
        self.seq += 1;
        let (seq, fingerprint) = (dirty.then_some(self.seq), fingerprint_of(content));
        let known = if fragment { None } else { self.design.find_duplicate(&fingerprint) };
        if let Some(place) = known {
            assert_eq!(self.stored[&place.slot.0], (place.generation, content), "a duplicate of other content");
            self.design.map(Lba(lba), NewMapping::Duplicate { place }, seq);
        } else {
            let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
            let Some((slot, generation)) = self.design.open_slot(class) else { return false };
            self.stored.insert(slot.0, (generation, content));
            let stored_len = if fragment { 512 } else { CHUNK };
            let place = Place { slot, generation, offset: 0, stored_len, crc: content as u32, encoding: 0 };
            self.design.seal_slot(slot);
            let mut sectors = SectorMap::EMPTY;
            sectors.set(0, 1);
            let new = match fragment {
                true => NewMapping::Fragment { place, sectors },
                false => NewMapping::Unique { place, fingerprint: Some(fingerprint) },
            };
            self.design.map(Lba(lba), new, seq);
        }
        self.trimmed.remove(&lba);
        self.holds.insert(lba, Holds { content, dirty: seq, fragment });
        true
    }

    fn write(&mut self) {
        let lba = self.rng.below(LBAS);
        let content = self.content();
        match self.rng.below(6) {
            // Write-back.
            0..3 if self.design.has_room(2) => {
                let fragment = self.rng.chance(15);
                self.put(lba, content, true, fragment);
            }
            // Write-through of a clean address: forgotten, and perhaps mapped anew.
            3..5 if self.holds.get(&lba).is_none_or(|holds| holds.dirty.is_none())
                && !self.trimmed.contains_key(&lba) =>
            {
                self.design.suspend(Lba(lba));
                self.holds.insert(lba, Holds { content, dirty: None, fragment: false });
                if self.rng.chance(60) && self.design.has_room(1) {
                    self.put(lba, content, false, false);
                }
            }
            // Write-around.
            _ if self.holds.get(&lba).is_none_or(|holds| holds.dirty.is_none()) && !self.trimmed.contains_key(&lba) => {
                self.design.unmap(Lba(lba));
                self.holds.insert(lba, Holds { content, dirty: None, fragment: false });
            }
            _ => {}
        }
    }

    fn read(&mut self) {
        let lba = self.rng.below(LBAS);
        let found = self.design.lookup(Lba(lba));
        assert_eq!(found, self.design.peek(Lba(lba)));
        self.judge(lba, &found);
        if found != Lookup::Miss {
            return;
        }
        let Some(&holds) = self.holds.get(&lba) else { return };
        if let Some(fingerprint) = self.design.remembered(Lba(lba)) {
            assert_eq!(fingerprint, fingerprint_of(holds.content), "what is remembered of {lba} is not what it holds");
        }
        if self.design.has_room(1) {
            self.put(lba, holds.content, false, false);
        }
    }

    /// Checks an answer of the design.
    fn judge(&self, lba: u64, found: &Lookup) {
        if self.trimmed.contains_key(&lba) {
            assert_eq!(*found, Lookup::Zero, "{lba} was trimmed");
            return;
        }
        let holds = self.holds.get(&lba);
        match found {
            Lookup::Miss => assert!(holds.is_none_or(|holds| holds.dirty.is_none()), "{lba} is dirty, and not found"),
            Lookup::Zero => panic!("{lba} is no zeroes"),
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                let holds = holds.unwrap_or_else(|| panic!("{lba} was never written"));
                assert_eq!(self.stored[&place.slot.0], (place.generation, holds.content), "{lba} holds something else");
                assert_eq!(matches!(found, Lookup::Fragment { .. }), holds.fragment);
            }
        }
    }

    fn trim(&mut self) {
        let first = self.rng.below(LBAS);
        let longest = if self.rng.chance(10) { 1 << 40 } else { 6 };
        let count = 1 + self.rng.below(longest);
        self.seq += 1;
        self.design.trim(Run::new(Lba(first), count, self.seq));
        for lba in first..LBAS.min(first.saturating_add(count)) {
            self.holds.remove(&lba);
            self.trimmed.insert(lba, self.seq);
        }
    }

    fn destage(&mut self, lbas: Vec<Lba>) {
        for lba in lbas {
            let Some(holds) = self.holds.get_mut(&lba.0) else { continue };
            let Some(seq) = holds.dirty else { continue };
            assert!(!self.design.mark_clean(lba, seq + 1000), "a stale number");
            assert_eq!(self.design.dirty_seq(lba), Some(seq));
            assert!(self.design.mark_clean(lba, seq));
            holds.dirty = None;
            holds.fragment = false;
        }
    }

    fn evict(&mut self) {
        let busy = self.rng.below(8);
        let Some(victim) = self.design.choose_victim(&mut |slot| u64::from(slot.0) % 8 == busy) else { return };
        if self.rng.chance(10) {
            return self.design.spare_victim(victim.slot);
        }
        let dirty = self.design.dirty_in(victim.slot);
        if !dirty.is_empty() {
            assert_eq!(self.design.evict(victim.slot), None, "a slot with dirty references");
        }
        self.destage(dirty);
        let generation = self.design.evict(victim.slot).expect("nothing in it is dirty");
        assert_eq!(self.stored.remove(&victim.slot.0).map(|(generation, _)| generation), Some(generation));
        self.design.release_slot(victim.slot);
    }

    /// Restarts from a checkpoint and nothing else. After an orderly end it has the present
    /// history. Otherwise it has none, or an old or damaged one, of which only the order is
    /// trusted.
    fn restart(&mut self) {
        let now = self.design.whole_history();
        self.drafting.give_up();
        let (mut history, is_trusted) = match self.rng.below(5) {
            0 => (Vec::new(), false),
            1 => (now, true),
            2 => (std::mem::replace(&mut self.history, now), false),
            _ => (self.drafting.finished.clone(), false),
        };
        if !is_trusted && !history.is_empty() && self.rng.chance(30) {
            let at = self.rng.below(history.len() as u64) as usize;
            history[at] ^= 1 << self.rng.below(8);
        }
        let old = std::mem::replace(&mut self.design, make(self.kind, self.config));
        let design = &mut self.design;
        reopen(&old, design, &history, is_trusted);
        let contents = |design: &Decider<Placed>| {
            BTreeSet::from_iter(design.export_fingerprints().into_iter().map(|(known, _)| known.0))
        };
        let (before, after) = (contents(&old), contents(&self.design));
        assert!(after.is_subset(&before), "content came from nowhere");
        // Released dirty data belongs to the design again, and may leave no room.
        let stats = self.design.design().stats();
        let is_full = stats.live_slots + stats.stale_slots == self.design.design().sizes().data_chunks;
        assert!(is_full || after == before, "{} contents were known, and {} are", before.len(), after.len());
        self.orphans_restored += stats.stale_slots;
    }

    fn check(&self) {
        self.design.check();
        for lba in 0..LBAS {
            self.judge(lba, &self.design.peek(Lba(lba)));
        }
    }
}

#[test]
fn what_is_found_is_what_was_put() {
    let orphans_restored = Cell::new(0);
    for_seeds(0..400, |seed| {
        let mut world = World::new(seed);
        for _ in 0..300 {
            if world.rng.chance(10) {
                world.drafting.go_on(&mut world.design);
            }
            match world.rng.below(100) {
                0..45 => world.write(),
                45..75 => world.read(),
                75..80 => world.trim(),
                80..84 => {
                    let lbas = world.design.dirty_from(Lba(0), 8).into_iter().map(|(lba, _)| lba).collect();
                    world.destage(lbas);
                }
                84..86 => {
                    if let Some(run) = world.design.trimmed_from(Lba(0)) {
                        world.design.mark_run_clean(&run);
                        (run.first.0..LBAS.min(run.first.0.saturating_add(run.count))).for_each(|lba| {
                            world.trimmed.remove(&lba);
                        });
                    }
                }
                86..98 => world.evict(),
                98 => {
                    world.design.drop_clean_zeroes(false, 4);
                    world.design.sweep();
                }
                _ => world.restart(),
            }
            while world.design.free_slots() < 2 {
                let before = world.design.free_slots();
                world.evict();
                if world.design.free_slots() == before && world.rng.chance(30) {
                    break;
                }
            }
            world.check();
        }
        orphans_restored.set(orphans_restored.get() + world.orphans_restored);
    });
    assert!(orphans_restored.get() > 0, "restarts met content that no address has");
}

/// After a restart content without an address leaves in its old place in the order.
#[test]
fn content_without_an_address_keeps_its_place_in_the_order() {
    for kind in [0, 1] {
        let mut world = World { kind, ..World::new(1) };
        world.config = DesignConfig { slot_count: 20, mappings_max: 1000, fp_entries_max: 1000 };
        world.design = make(kind, world.config);
        // Twelve contents by age; those of even numbers lose their address to later ones.
        for content in 0..12 {
            assert!(world.put(content, content, false, false));
        }
        let find = |world: &mut World, content| world.design.find_duplicate(&fingerprint_of(content)).is_some();
        (0..4).for_each(|of| assert!(world.put(of * 2, 11, false, false)));
        assert!((0..12).all(|content| find(&mut world, content)), "nothing has left");
        world.restart();
        assert!((0..12).all(|content| find(&mut world, content)), "nothing is lost");
        let slots = world.design.design().sizes().data_chunks;
        let mut left = Vec::new();
        for new in 100..100 + slots {
            while world.design.free_slots() == 0 {
                world.evict();
            }
            assert!(world.put(30 + new, new, false, false));
            let gone = |content: &u64| !left.contains(content);
            let now: Vec<u64> = (0..12).filter(gone).collect();
            left.extend(now.into_iter().filter(|&content| !find(&mut world, content)));
        }
        // D-ARC takes content without an address first.
        let expected: &[u64] = if kind == 0 { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] } else { &[0, 2, 4, 6] };
        assert_eq!(left[..expected.len()], *expected, "{kind}");
    }
}

/// A cache with endless overwrites goes on: its released slots come back.
#[test]
fn no_slot_is_lost() {
    for_seeds(0..40, |seed| {
        let mut world = World::new(seed);
        for round in 0..400u64 {
            let lba = world.rng.below(LBAS);
            while !world.design.has_room(2) || world.design.free_slots() == 0 {
                world.evict();
                world.design.drop_clean_zeroes(false, 100);
                world.design.sweep();
                let dirty = world.design.dirty_from(Lba(0), 100).into_iter().map(|(lba, _)| lba).collect();
                world.destage(dirty);
            }
            assert!(world.put(lba, 1000 + round, round % 2 == 0, false));
        }
        world.check();
    });
}

/// If all addresses share one content, no slot is ever wanted: the addresses of the design fill
/// first. The list of addresses is full before the mappings are. The evicted addresses are those of
/// the same design by itself. Forgetting them makes room at once.
#[test]
fn mappings_have_room_for_all_that_the_design_keeps() {
    let sizes = [(20, 1000), (20, 50), (300, 200), (7, 9)];
    for (kind, (slot_count, mappings_max)) in (0..4).flat_map(|kind| sizes.map(|sizes| (kind, sizes))) {
        let what = format!("{kind}, {slot_count} slots, {mappings_max} mappings");
        let mut world = World { kind, ..World::new(1) };
        world.config = DesignConfig { slot_count, mappings_max, fp_entries_max: if kind < 2 { 1000 } else { 0 } };
        world.design = make(kind, world.config);
        let kept = mapped_max(world.design.design());
        let room = mappings_max.checked_sub(kept).filter(|&room| room > 0).expect("more mappings than addresses");
        let data_slots = world.design.design().sizes().data_chunks;
        let (mut alone, mut decision) = (bare(kind, data_slots), Decision::default());
        let mut forgotten = 0;
        for lba in 0..3 * mappings_max {
            // Designs without sharing need slots, too.
            let content = if kind < 2 { 1 } else { 100 + lba };
            while world.design.free_slots() == 0 {
                world.evict();
            }
            assert!(world.put(lba, content, lba % 3 == 0, false), "{what}: {lba} is stored");
            alone.put(Lba(lba), &fingerprint_of(content), false, &mut decision);
            world.destage(vec![Lba(lba)]);
            forgotten += world.design.drop_clean_zeroes(false, usize::MAX).len();
            // A released address is mapped until its slot is taken.
            for _ in 0..200 {
                if !world.design.has_room(room) {
                    world.evict();
                }
            }
            assert!(world.design.has_room(room), "{what}: room after {lba}");
            for known in 0..=lba {
                let is_found = world.design.peek(Lba(known)) != Lookup::Miss;
                assert_eq!(is_found, alone.lookup(Lba(known)).is_some(), "{what}: {known} after {lba}");
            }
        }
        assert!(kind > 1 || forgotten > 0, "{what}: the design evicted addresses");
        world.check();
    }
}
