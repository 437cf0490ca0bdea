//! The designs over WEUs, nitro and cd-arc, against a plain model, with calls as from an engine.
//!
//! Records are appended to open slots. Duplicates, zeroes, fragments, trims, and destages with
//! right and stale sequence numbers follow. Evictions go on all the time, with restarts in between.
//! Each step compares every answer of the design.
//!
//! The model does not know cd-arc's victims and ghosts. A victim has to be one that may go, and a
//! revived hit has to have the address's newest content.
//!
//! The model keeps no index and no counters: a hash map of mappings, vectors for the LRU orders,
//! and loops.

use crate::{
    common::{Rng, for_seeds},
    slotted::mapped_again,
};
use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    cd_arc::CdArc,
    design::{Mapping, Slots, ToldBy},
    nitro::Nitro,
    ranges::{Advisory, Run},
    slots::SlotState,
};
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
};

/// Capacity of a slot in bytes.
const SLOT_BYTES: u32 = 64 << 10;
/// The kinds of a trimmed run: it stays allocated or not, and the origin has to be told or not.
const RUN_KINDS: [[bool; 2]; 3] = [[false, false], [true, false], [false, true]];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapped {
    lookup: Lookup,
    dirty: Option<u64>,
}

#[derive(Clone, Copy)]
struct ModelSlot {
    generation: u32,
    state: SlotState,
    end: u32,
    /// True for a slot that was never used: a checkpoint lacks it, and its first generation may be
    /// any.
    unheard: bool,
}

struct Known {
    content: u64,
    place: Place,
}

/// A design under test.
trait Driven: Design {
    /// True if it replaces WEUs in LRU order, without ghosts.
    const IS_PLAIN: bool;
    fn new(config: DesignConfig) -> Self;
    /// Checks its own invariants. `is_recovered` is true after states that never were.
    fn check(&self, _is_recovered: bool) {}
}

impl Driven for Nitro {
    const IS_PLAIN: bool = true;
    fn new(config: DesignConfig) -> Self {
        Nitro::new(config)
    }
}

impl Driven for CdArc {
    const IS_PLAIN: bool = false;
    fn new(config: DesignConfig) -> Self {
        CdArc::new(config)
    }
    fn check(&self, is_recovered: bool) {
        CdArc::check(self);
        assert!(is_recovered || !self.has_orphan(), "an address in T1 or T2 lost its data");
    }
}

struct World<D: Driven> {
    rng: Rng,
    config: DesignConfig,
    design: Decider<D>,
    base: u64,
    lbas: u64,
    contents: u64,
    seq: u64,
    mappings: BTreeMap<u64, Mapped>,
    trimmed: BTreeMap<u64, (u64, [bool; 2])>,
    slots: Vec<ModelSlot>,
    /// Sealed slots, least recent first.
    lru: Vec<u32>,
    open: [Option<u32>; 2],
    /// Known contents, least recent first.
    known: Vec<Known>,
    fp_evictions: u64,
    /// The newest content of an address with a known fingerprint.
    newest: HashMap<u64, u64>,
    /// Number of revived addresses.
    revived: u64,
    is_recovered: bool,
    /// Every record ever stored: slot, generation, offset.
    records: HashMap<(u32, u32, u32), Option<u64>>,
}

fn fingerprint_of(content: u64) -> Fingerprint {
    let mut rng = Rng::new(content ^ 0x00c0_ffee);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&rng.bits().to_le_bytes());
    bytes[8..].copy_from_slice(&rng.bits().to_le_bytes());
    // Some share the half that the table hashes by: the rest must tell them apart.
    if content.is_multiple_of(3) {
        bytes[..8].fill(7);
    }
    Fingerprint(bytes)
}

fn place_of(lookup: &Lookup) -> Option<&Place> {
    match lookup {
        Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place),
        Lookup::Miss | Lookup::Zero => None,
    }
}

impl<D: Driven> World<D> {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let slot_count = 3 + rng.below(6) as u32;
        let mappings_max = [40, 120, 1000][rng.below(3) as usize];
        let fp_entries_max = [0, 1, 3, 20, 1000][rng.below(5) as usize];
        let config = DesignConfig { slot_count, mappings_max, fp_entries_max };
        let mut design = Decider::new(Box::new(D::new(config)));
        // Start of generations: fresh, before the 24 bits of an entry wrap, before the sign turns,
        // before all wrap.
        let first = [0, (1 << 24) - 3, (1 << 31) - 3, u32::MAX - 3][rng.below(4) as usize];
        for slot in 0..slot_count {
            if first > 0 {
                design.restore_freed(SlotId(slot), first - 1);
            }
        }
        let lbas = 96;
        let base = if rng.chance(50) { 0 } else { (1 << 40) - lbas };
        World {
            contents: 1 + rng.below(60),
            rng,
            config,
            design,
            base,
            lbas,
            seq: 0,
            mappings: BTreeMap::new(),
            trimmed: BTreeMap::new(),
            slots: vec![
                ModelSlot { generation: first, state: SlotState::Free, end: 64, unheard: first == 0 };
                slot_count as usize
            ],
            lru: Vec::new(),
            open: [None, None],
            known: Vec::new(),
            fp_evictions: 0,
            newest: HashMap::new(),
            revived: 0,
            is_recovered: false,
            records: HashMap::new(),
        }
    }

    fn in_state(&self, state: SlotState) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize].state == state).collect()
    }

    fn any_lba(&mut self) -> u64 {
        self.base + self.rng.below(self.lbas)
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn touch(&mut self, slot: SlotId) {
        if let Some(at) = self.lru.iter().position(|&other| other == slot.0) {
            self.lru.remove(at);
            self.lru.push(slot.0);
        }
    }

    fn model_lookup(&self, lba: u64) -> Lookup {
        match self.mappings.get(&lba) {
            Some(mapping) => mapping.lookup,
            None if self.trimmed.contains_key(&lba) => Lookup::Zero,
            None => Lookup::Miss,
        }
    }

    /// Compares `found`, the design's answer for `lba`.
    fn agree(&self, lba: u64, found: Lookup) {
        assert_eq!(found, self.model_lookup(lba), "lba {lba}");
        if let Some(remembered) = self.design.remembered(Lba(lba)) {
            assert!(!D::IS_PLAIN && found == Lookup::Miss);
            let newest = self.newest.get(&lba).copied().expect("it was forgotten");
            assert_eq!(remembered, fingerprint_of(newest), "lba {lba} has its newest content");
            assert!(self.known.iter().any(|known| known.content == newest), "it is known");
        }
    }

    fn dirty_in(&self, slot: u32) -> Vec<Lba> {
        let here = |m: &Mapped| m.dirty.is_some() && place_of(&m.lookup).is_some_and(|place| place.slot.0 == slot);
        self.mappings.iter().filter(|(_, m)| here(m)).map(|(&lba, _)| Lba(lba)).collect()
    }

    /// Returns maximal runs of trimmed chunks with one sequence number.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (&lba, &(seq, [no_hole, advisory])) in &self.trimmed {
            match runs.last_mut() {
                Some(run) if run.first.0 + run.count == lba && run.seq == seq => run.count += 1,
                _ => runs.push(Run { first: Lba(lba), count: 1, seq, no_hole, advisory }),
            }
        }
        runs
    }

    fn map(&mut self, lba: u64, new: NewMapping, dirty: Option<u64>) {
        self.map_content(lba, new, dirty, None);
    }

    fn map_content(&mut self, lba: u64, new: NewMapping, dirty: Option<u64>, content: Option<u64>) {
        self.design.map(Lba(lba), new, dirty);
        self.newest.remove(&lba);
        self.newest.extend(content.map(|content| (lba, content)));
        let lookup = match new {
            NewMapping::Unique { place, .. } => Lookup::Chunk { place, duplicate: false },
            NewMapping::Duplicate { place } => Lookup::Chunk { place, duplicate: true },
            NewMapping::Zero => Lookup::Zero,
            NewMapping::Fragment { place, sectors } => Lookup::Fragment { place, sectors },
        };
        self.mappings.insert(lba, Mapped { lookup, dirty });
        self.trimmed.remove(&lba);
    }

    /// Makes room for a record of `len` bytes in the open slot of `class`.
    fn append(&mut self, class: usize, len: u32) -> Option<Place> {
        loop {
            let slot = match self.open[class] {
                Some(slot) => slot,
                None => {
                    let words = [StreamClass::Clean, StreamClass::Dirty];
                    let free = self.in_state(SlotState::Free);
                    let opened = self.design.open_slot(words[class]);
                    assert_eq!(opened.is_none(), free.is_empty());
                    let (slot, generation) = opened?;
                    assert!(free.contains(&slot.0), "an open slot was free before");
                    assert_eq!(generation, self.slots[slot.0 as usize].generation);
                    self.slots[slot.0 as usize].state = SlotState::Open;
                    self.slots[slot.0 as usize].end = 64;
                    self.slots[slot.0 as usize].unheard = false;
                    self.open[class] = Some(slot.0);
                    slot.0
                }
            };
            let model = &mut self.slots[slot as usize];
            if model.end + len > SLOT_BYTES {
                model.state = SlotState::Sealed;
                self.open[class] = None;
                self.lru.push(slot);
                self.design.seal_slot(SlotId(slot));
                continue;
            }
            let offset = model.end;
            model.end += len;
            let generation = model.generation;
            let (crc, encoding) = (self.rng.bits() as u32, self.rng.below(3) as u8);
            return Some(Place { slot: SlotId(slot), generation, offset, stored_len: len, crc, encoding });
        }
    }

    /// Forgets `lba` in the model; returns whether it was mapped or trimmed.
    fn lose(&mut self, lba: u64) -> bool {
        self.newest.remove(&lba);
        self.mappings.remove(&lba).is_some() | self.trimmed.remove(&lba).is_some()
    }

    fn find_duplicate(&mut self, content: u64) -> Option<Place> {
        let found = self.design.find_duplicate(&fingerprint_of(content));
        let mut expected = None;
        if let Some(at) = self.known.iter().position(|known| known.content == content) {
            let place = self.known[at].place;
            let slot = self.slots[place.slot.0 as usize];
            if matches!(slot.state, SlotState::Open | SlotState::Sealed) {
                let known = self.known.remove(at);
                if slot.generation == place.generation {
                    self.known.push(known);
                    self.touch(place.slot);
                    expected = Some(place);
                }
            }
        }
        assert_eq!(found, expected, "the place of content {content}");
        if let Some(place) = found {
            let record = (place.slot.0, place.generation, place.offset);
            assert_eq!(self.records.get(&record), Some(&Some(content)), "a duplicate is of that very content");
        }
        found
    }

    fn learn(&mut self, content: u64, place: Place) {
        let before = self.known.len();
        self.known.retain(|known| known.content != content);
        if before == self.known.len() && before as u64 == self.config.fp_entries_max {
            self.known.remove(0);
            self.fp_evictions += 1;
        }
        self.known.push(Known { content, place });
    }

    fn store(&mut self) {
        let lba = self.any_lba();
        let dirty = self.rng.chance(50).then(|| self.next_seq());
        if self.rng.chance(15) {
            return self.map(lba, NewMapping::Zero, dirty);
        }
        if self.rng.chance(15) {
            // The engine makes dirty fragments only; the format allows clean ones.
            let dirty = if self.rng.chance(90) { Some(self.next_seq()) } else { None };
            let Some(place) = self.append(1, 4096) else { return };
            let mut sectors = SectorMap::EMPTY;
            sectors.set(self.rng.below(8) as usize, 9);
            self.records.insert((place.slot.0, place.generation, place.offset), None);
            return self.map(lba, NewMapping::Fragment { place, sectors }, dirty);
        }
        let content = self.rng.below(self.contents);
        let deduplicated = self.rng.chance(90);
        if deduplicated && let Some(place) = self.find_duplicate(content) {
            return self.map_content(lba, NewMapping::Duplicate { place }, dirty, Some(content));
        }
        let len = 1 + self.rng.below(16 << 10) as u32;
        let Some(place) = self.append(usize::from(dirty.is_some()), len) else { return };
        self.records.insert((place.slot.0, place.generation, place.offset), deduplicated.then_some(content));
        if deduplicated && self.config.fp_entries_max > 0 {
            self.learn(content, place);
        }
        let fingerprint = deduplicated.then(|| fingerprint_of(content));
        self.map_content(lba, NewMapping::Unique { place, fingerprint }, dirty, deduplicated.then_some(content));
    }

    fn mark_clean(&mut self, lba: u64, seq: u64) {
        let newest = self.mappings.get(&lba).is_some_and(|mapping| mapping.dirty == Some(seq));
        assert_eq!(self.design.mark_clean(Lba(lba), seq), newest);
        if newest && matches!(self.model_lookup(lba), Lookup::Fragment { .. }) {
            self.mappings.remove(&lba);
        } else if newest {
            self.mappings.entry(lba).and_modify(|mapping| mapping.dirty = None);
        }
    }

    fn choose_victim(&mut self) {
        let busy: Vec<u32> =
            self.lru.iter().copied().filter(|slot| (slot * 7 + self.seq as u32).is_multiple_of(5)).collect();
        let expected = self.lru.iter().copied().find(|slot| !busy.contains(slot));
        let victim = self.design.choose_victim(&mut |slot| busy.contains(&slot.0));
        if D::IS_PLAIN {
            assert_eq!(victim.map(|victim| victim.slot.0), expected, "the least recent sealed slot that is not busy");
        }
        assert_eq!(victim.is_some(), expected.is_some(), "some slot may go");
        let Some(victim) = victim else { return };
        assert!(self.lru.contains(&victim.slot.0) && !busy.contains(&victim.slot.0));
        assert_eq!(victim.dirty_refs as usize, self.dirty_in(victim.slot.0).len());
        self.lru.retain(|&slot| slot != victim.slot.0);
        self.slots[victim.slot.0 as usize].state = SlotState::Evicting;
    }

    fn evict(&mut self, slot: u32) {
        let dirty = self.dirty_in(slot);
        assert_eq!(self.design.dirty_in(SlotId(slot)), dirty);
        let model = self.slots[slot as usize];
        let ended = self.design.evict(SlotId(slot));
        if model.state != SlotState::Evicting || !dirty.is_empty() {
            assert_eq!(ended, None, "only a victim without dirty references is evicted");
            return;
        }
        assert_eq!(ended, Some(model.generation));
        self.mappings.retain(|_, mapping| place_of(&mapping.lookup).is_none_or(|place| place.slot.0 != slot));
        self.known.retain(|known| known.place.slot.0 != slot);
        self.slots[slot as usize].generation = model.generation.wrapping_add(1);
        self.slots[slot as usize].state = SlotState::Retired;
    }

    fn sweep(&mut self) {
        let clean_zeroes = |world: &Self| {
            world.mappings.values().filter(|m| m.lookup == Lookup::Zero && m.dirty.is_none()).count() as u64
        };
        let many = clean_zeroes(self) > self.config.mappings_max / 4;
        self.design.sweep();
        // The design chooses the dropped zeroes, but must have the right to drop some, and report
        // them.
        let dropped = self.design.drop_clean_zeroes(false, usize::MAX);
        assert!(!D::IS_PLAIN || many || dropped.is_empty(), "a few zeroes are not dropped");
        for lba in dropped {
            let mapping = self.mappings.remove(&lba.0).expect("what is dropped was mapped");
            assert!((!D::IS_PLAIN || mapping.lookup == Lookup::Zero) && mapping.dirty.is_none());
            self.newest.remove(&lba.0);
            assert_eq!(self.design.peek(lba), Lookup::Miss);
        }
    }

    fn full_sweep(&mut self) {
        for _ in 0..self.design.export_pieces() {
            self.sweep();
        }
        let clean = self.mappings.values().filter(|m| m.lookup == Lookup::Zero && m.dirty.is_none()).count() as u64;
        assert!(clean <= self.config.mappings_max / 4, "{clean} clean zeroes outlive a full sweep");
        assert_eq!(
            self.design.stats().lba_index_entries,
            self.mappings.len() as u64,
            "no stale entry outlives a sweep"
        );
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=39 => {
                if self.design.has_room(1) {
                    self.store();
                } else {
                    self.full_sweep();
                    self.choose_victim();
                }
            }
            40..=59 => {
                let lba = self.any_lba();
                let found = self.design.lookup(Lba(lba));
                self.agree(lba, found);
                if let Some(&place) = place_of(&found) {
                    self.touch(place.slot);
                }
                if self.design.remembered(Lba(lba)).is_some() {
                    self.revived += 1;
                    let content = self.newest[&lba];
                    let place = self.find_duplicate(content).expect("what is remembered is stored");
                    self.map_content(lba, NewMapping::Duplicate { place }, None, Some(content));
                }
            }
            60..=63 => {
                let content = self.rng.below(self.contents + 1);
                self.find_duplicate(content);
            }
            64..=67 => {
                let lba = self.any_lba();
                let had = self.lose(lba);
                assert_eq!(self.design.unmap(Lba(lba)), had);
            }
            68..=70 => {
                let first = self.any_lba();
                let longest = self.base + self.lbas - first;
                // Longer than the index at times, because there are two ways through it.
                let most = if self.rng.chance(60) { longest.min(5) } else { longest };
                let count = 1 + self.rng.below(most);
                let (seq, kind) = (self.next_seq(), self.rng.one_of(&RUN_KINDS));
                let [no_hole, advisory] = kind;
                self.design.trim(Run { first: Lba(first), count, seq, no_hole, advisory });
                for lba in first..first + count {
                    self.lose(lba);
                    self.trimmed.insert(lba, (seq, kind));
                }
            }
            71..=73 => {
                let runs = self.runs();
                let Some(mut run) = self.rng.pick(&runs) else { return };
                match self.rng.below(4) {
                    0 => run.seq -= 1,
                    1 => (run.first, run.count) = (Lba(self.base), self.lbas),
                    2 => run.count = self.rng.below(run.count + 1),
                    _ => {}
                }
                self.design.mark_run_clean(&run);
                let range = run.first.0..run.first.0 + run.count;
                self.trimmed.retain(|lba, (seq, _)| !(range.contains(lba) && *seq == run.seq));
            }
            74..=82 => {
                let dirty: Vec<(u64, u64)> =
                    self.mappings.iter().filter_map(|(&lba, mapping)| Some((lba, mapping.dirty?))).collect();
                if let Some((lba, seq)) = self.rng.pick(&dirty) {
                    let stale = self.rng.chance(20);
                    self.mark_clean(lba, if stale { seq - 1 } else { seq });
                } else {
                    let lba = self.any_lba();
                    self.mark_clean(lba, self.seq);
                }
            }
            83..=86 => self.choose_victim(),
            87..=92 => {
                let evicting = self.in_state(SlotState::Evicting);
                let Some(slot) = self.rng.pick(&evicting) else { return };
                if self.rng.chance(80) {
                    for lba in self.dirty_in(slot) {
                        let seq = self.mappings[&lba.0].dirty.expect("it is dirty");
                        self.mark_clean(lba.0, seq);
                    }
                }
                self.evict(slot);
            }
            93 => {
                let slot = self.rng.below(self.slots.len() as u64) as u32;
                self.evict(slot);
            }
            94 => {
                let evicting = self.in_state(SlotState::Evicting);
                let Some(slot) = self.rng.pick(&evicting) else { return };
                self.design.spare_victim(SlotId(slot));
                self.slots[slot as usize].state = SlotState::Sealed;
                self.lru.push(slot);
            }
            95..=97 => {
                let retired = self.in_state(SlotState::Retired);
                let Some(slot) = self.rng.pick(&retired) else { return };
                self.design.release_slot(SlotId(slot));
                self.slots[slot as usize].state = SlotState::Free;
            }
            98 => self.sweep(),
            _ => {
                if self.rng.chance(10) {
                    self.full_sweep();
                }
                if self.rng.chance(20) {
                    self.restart();
                }
            }
        }
    }

    /// Moves the export into a new design, which is driven from here on.
    fn restart(&mut self) {
        let old = &self.design;
        let mut new = Decider::new(Box::new(D::new(self.config)));
        new.begin_restore(self.mappings.len() as u64, self.known.len() as u64);
        let mut order = Vec::new();
        for (slot, generation, state, _) in old.export_slots() {
            let model = self.slots[slot.0 as usize];
            assert_eq!((generation, state), (model.generation, model.state));
            match state {
                // As in a checkpoint: the generation that ended last, none for a slot that was
                // never used.
                SlotState::Free | SlotState::Retired if generation == 0 => {}
                SlotState::Free | SlotState::Retired => new.restore_freed(slot, generation - 1),
                SlotState::Open | SlotState::Sealed | SlotState::Evicting => {
                    assert!(new.restore_slot(slot, generation, None));
                    order.push(slot.0);
                }
            }
        }
        let mut seen = 0;
        for piece in 0..old.export_pieces() {
            for mapping in old.export_mappings(piece) {
                seen += 1;
                let seq = old.dirty_seq(mapping.lba);
                assert_eq!(mapping.dirty, seq.is_some());
                new.map(mapping.lba, mapped_again(mapping.lookup), seq);
            }
        }
        assert_eq!(seen, self.mappings.len());
        assert_eq!(old.export_runs(), self.runs());
        old.export_runs().into_iter().for_each(|run| new.trim(run));
        let usable = |slot: &ModelSlot| matches!(slot.state, SlotState::Open | SlotState::Sealed);
        let slots = &self.slots;
        self.known.retain(|known| {
            let slot = &slots[known.place.slot.0 as usize];
            usable(slot) && slot.generation == known.place.generation
        });
        let exported = old.export_fingerprints();
        let expected: Vec<_> = self.known.iter().map(|known| (fingerprint_of(known.content), known.place)).collect();
        assert_eq!(exported, expected, "fingerprints with live places, least recent first");
        for (fingerprint, place) in &exported {
            new.restore_fingerprint(fingerprint, place, ToldBy::Checkpoint);
        }
        new.end_restore();
        self.fp_evictions = 0;
        self.newest.clear();
        self.open = [None, None];
        // Victims that were not evicted were the least recent; open slots are the newest.
        let mut by_age = self.in_state(SlotState::Evicting);
        by_age.extend(&self.lru);
        by_age.extend(self.in_state(SlotState::Open));
        self.lru = by_age;
        assert_eq!(order, self.lru, "the order of replacement");
        for slot in &mut self.slots {
            slot.unheard = slot.generation == 0 && matches!(slot.state, SlotState::Free | SlotState::Retired);
            slot.state = match slot.state {
                SlotState::Free | SlotState::Retired => SlotState::Free,
                SlotState::Open | SlotState::Sealed | SlotState::Evicting => SlotState::Sealed,
            };
        }
        self.design = new;
    }

    fn check(&mut self) {
        for lba in self.base..self.base + self.lbas {
            let found = self.design.peek(Lba(lba));
            self.agree(lba, found);
            if let Some(place) = place_of(&found) {
                assert_eq!(place.generation, self.slots[place.slot.0 as usize].generation, "no dead place is named");
                assert!(self.records.contains_key(&(place.slot.0, place.generation, place.offset)));
            }
            assert_eq!(self.design.dirty_seq(Lba(lba)), self.mappings.get(&lba).and_then(|mapping| mapping.dirty));
        }
        let dirty: Vec<(Lba, u64)> =
            self.mappings.iter().filter_map(|(&lba, mapping)| Some((Lba(lba), mapping.dirty?))).collect();
        assert_eq!(self.design.dirty_from(Lba(self.base), usize::MAX), dirty);
        let from = self.any_lba();
        let some: Vec<_> = dirty.iter().copied().filter(|(lba, _)| lba.0 >= from).take(3).collect();
        assert_eq!(self.design.dirty_from(Lba(from), 3), some);
        let runs = self.runs();
        let next = runs.iter().find(|run| run.first.0 + run.count > from).copied();
        assert_eq!(self.design.trimmed_from(Lba(from)), next);

        let fragment = |mapping: &&Mapped| matches!(mapping.lookup, Lookup::Fragment { .. });
        let counts = self.design.dirty_counts();
        assert_eq!(counts.chunks, dirty.len() as u64);
        let dirty_fragments = self.mappings.values().filter(fragment).filter(|m| m.dirty.is_some()).count();
        assert_eq!(counts.fragments, dirty_fragments as u64);
        assert_eq!((counts.runs, counts.run_chunks), (runs.len() as u64, self.trimmed.len() as u64));
        let advisory = runs.iter().filter(|run| run.advisory);
        let chunks = self.trimmed.values().filter(|(_, [_, advisory])| *advisory).count() as u64;
        assert_eq!(counts.advisory, Advisory { runs: advisory.count() as u64, chunks });

        let stats = self.design.stats();
        assert_eq!(stats.mapped_chunks, self.mappings.len() as u64);
        let zeroes = self.mappings.values().filter(|mapping| mapping.lookup == Lookup::Zero).count();
        assert_eq!(stats.zero_chunks, zeroes as u64);
        assert_eq!(stats.fragments, self.mappings.values().filter(fragment).count() as u64);
        assert_eq!(stats.dirty_chunks, dirty.len() as u64);
        assert_eq!(stats.trimmed_chunks, self.trimmed.len() as u64);
        assert!(stats.lba_index_entries >= stats.mapped_chunks);
        for count in [0, 1, 64] {
            assert_eq!(self.design.has_room(count), stats.lba_index_entries + count <= self.config.mappings_max);
        }
        assert_eq!(stats.fp_index_entries, self.known.len() as u64);
        assert!(stats.fp_index_entries <= self.config.fp_entries_max);
        assert_eq!(stats.fp_index_evictions, self.fp_evictions);
        let free = self.in_state(SlotState::Free).len();
        assert_eq!((self.design.free_slots(), stats.slots_free), (free, free as u64));
        for slot in 0..self.slots.len() as u32 {
            assert_eq!(self.design.dirty_in(SlotId(slot)), self.dirty_in(slot));
        }
        let order: Vec<u32> = self
            .design
            .export_slots()
            .into_iter()
            .filter(|(_, _, state, _)| *state == SlotState::Sealed)
            .map(|(slot, ..)| slot.0)
            .collect();
        assert_eq!(order, self.lru);
        self.design.check(self.is_recovered);
    }
}

fn agrees_with_a_plain_model<D: Driven>() {
    let revived = Cell::new(0);
    for_seeds(0..60, |seed| {
        let mut world = World::<D>::new(seed);
        for _ in 0..4000 {
            world.step();
            world.check();
        }
        world.full_sweep();
        world.restart();
        world.check();
        revived.set(revived.get() + world.revived);
    });
    assert_eq!(revived.get() > 200, !D::IS_PLAIN, "{} addresses without data were mapped again", revived.get());
}

impl<D: Driven> World<D> {
    /// Ends a slot's generation: its data dies.
    fn end_generation(&mut self, slot: u32) {
        self.mappings.retain(|_, mapping| place_of(&mapping.lookup).is_none_or(|place| place.slot.0 != slot));
        self.known.retain(|known| known.place.slot.0 != slot);
    }

    /// Replays a log entry that does not fit the present state. It is an old one over a newer
    /// checkpoint, or one of a log that is only whole at its end.
    fn replay(&mut self) {
        let slot = self.rng.below(self.slots.len() as u64) as u32;
        let model = self.slots[slot as usize];
        // Mostly the present generation; for a free slot that is the next one.
        let nearby = [0, 0, 0, 0, 0, 0, 1, 2, u32::MAX, u32::MAX - 1];
        let generation = model.generation.wrapping_add(nearby[self.rng.below(10) as usize]);
        let older = !model.unheard && (generation.wrapping_sub(model.generation) as i32) < 0;
        match self.rng.below(10) {
            0..=5 if self.design.has_room(1) => {
                let lba = self.any_lba();
                assert_eq!(self.design.restore_slot(SlotId(slot), generation, None), !older);
                if older {
                    let had = self.lose(lba);
                    assert_eq!(self.design.unmap(Lba(lba)), had);
                    return;
                }
                if generation != model.generation || model.state == SlotState::Free {
                    self.end_generation(slot);
                    self.lru.retain(|&other| other != slot);
                    self.lru.push(slot);
                    self.slots[slot as usize] =
                        ModelSlot { generation, state: SlotState::Sealed, end: SLOT_BYTES, unheard: false };
                }
                let seq = self.next_seq();
                let place = Place {
                    slot: SlotId(slot),
                    generation,
                    offset: seq as u32 % (4 << 20),
                    stored_len: 1,
                    crc: seq as u32,
                    encoding: 0,
                };
                self.records.insert((slot, generation, place.offset), None);
                let mut sectors = SectorMap::EMPTY;
                sectors.set(0, 3);
                let new = match self.rng.below(3) {
                    0 => NewMapping::Unique { place, fingerprint: None },
                    1 => NewMapping::Duplicate { place },
                    _ => NewMapping::Fragment { place, sectors },
                };
                let dirty = self.rng.chance(50).then_some(seq);
                self.map(lba, new, dirty);
            }
            6 => {
                self.design.restore_freed(SlotId(slot), generation);
                if !older {
                    self.end_generation(slot);
                    self.lru.retain(|&other| other != slot);
                    let generation = generation.wrapping_add(1);
                    self.slots[slot as usize] =
                        ModelSlot { generation, state: SlotState::Free, end: 64, unheard: false };
                }
            }
            7 => {
                // The fingerprint of a mapped record, or of one that is gone.
                let places: Vec<Place> = self.mappings.values().filter_map(|m| place_of(&m.lookup).copied()).collect();
                let Some(mut place) = self.rng.pick(&places) else { return };
                if self.rng.chance(20) {
                    place.generation = place.generation.wrapping_sub(1);
                }
                let content = self.rng.below(self.contents);
                let record = (place.slot.0, place.generation, place.offset);
                let known = |known: &Known| (known.place.slot.0, known.place.generation, known.place.offset) == record;
                if self.config.fp_entries_max == 0 || self.known.iter().any(|k| k.content != content && known(k)) {
                    return;
                }
                self.design.restore_fingerprint(&fingerprint_of(content), &place, ToldBy::Checkpoint);
                if place.generation == self.slots[place.slot.0 as usize].generation {
                    self.records.insert(record, Some(content));
                    self.learn(content, place);
                }
            }
            8 => {
                let beyond = SlotId(self.slots.len() as u32 + self.rng.below(3) as u32);
                assert!(!self.design.restore_slot(beyond, generation, None));
                self.design.restore_freed(beyond, generation);
            }
            _ => {
                let lba = self.any_lba();
                let had = self.lose(lba);
                assert_eq!(self.design.unmap(Lba(lba)), had);
            }
        }
    }
}

#[test]
fn nitro_agrees_with_a_plain_model() {
    agrees_with_a_plain_model::<Nitro>();
}

#[test]
fn cd_arc_agrees_with_a_plain_model() {
    agrees_with_a_plain_model::<CdArc>();
}

fn replay_keeps_the_counts_right<D: Driven>() {
    for_seeds(1000..1040, |seed| {
        let mut world = World::<D>::new(seed);
        world.is_recovered = true;
        for _ in 0..3 {
            (0..300).for_each(|_| world.step());
            world.restart();
            for _ in 0..600 {
                world.replay();
                world.check();
            }
            for _ in 0..300 {
                world.step();
                world.check();
            }
        }
        world.full_sweep();
    });
}

#[test]
fn replay_over_any_state_keeps_the_counts_of_nitro_right() {
    replay_keeps_the_counts_right::<Nitro>();
}

#[test]
fn replay_over_any_state_keeps_the_counts_of_cd_arc_right() {
    replay_keeps_the_counts_right::<CdArc>();
}

#[test]
fn a_fresh_cache_takes_any_generation_first() {
    for generation in [0, 1, (1 << 24) - 1, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, u32::MAX - 1, u32::MAX] {
        let config = DesignConfig { slot_count: 2, mappings_max: 10, fp_entries_max: 10 };
        let mut nitro = Decider::new(Box::new(Nitro::new(config)));
        assert!(nitro.restore_slot(SlotId(1), generation, None), "{generation:#x}");
        assert!(!nitro.restore_slot(SlotId(1), generation.wrapping_sub(1), None));
        let place = Place { slot: SlotId(1), generation, offset: 64, stored_len: 9, crc: 3, encoding: 1 };
        nitro.map(Lba(5), NewMapping::Unique { place, fingerprint: Some(fingerprint_of(1)) }, None);
        nitro.map(Lba(6), NewMapping::Duplicate { place }, None);
        assert_eq!(nitro.lookup(Lba(6)), Lookup::Chunk { place, duplicate: true });
        assert_eq!(nitro.find_duplicate(&fingerprint_of(1)), Some(place));
        assert_eq!(nitro.choose_victim(&mut |_| false).map(|victim| victim.slot), Some(SlotId(1)));
        assert_eq!(nitro.evict(SlotId(1)), Some(generation));
        assert_eq!(nitro.lookup(Lba(5)), Lookup::Miss);
        assert_eq!(nitro.lookup(Lba(6)), Lookup::Miss);
        assert_eq!(nitro.find_duplicate(&fingerprint_of(1)), None);
        assert_eq!(nitro.open_slot(StreamClass::Clean), Some((SlotId(0), 0)));
        assert_eq!(nitro.open_slot(StreamClass::Clean), None, "an evicted slot must be released first");
        nitro.release_slot(SlotId(1));
        assert_eq!(nitro.open_slot(StreamClass::Clean), Some((SlotId(1), generation.wrapping_add(1))));
    }
}

#[test]
fn calls_in_the_wrong_state_change_nothing() {
    let config = DesignConfig { slot_count: 2, mappings_max: 10, fp_entries_max: 0 };
    let mut nitro = Decider::new(Box::new(Nitro::new(config)));
    let (slot, _) = nitro.open_slot(StreamClass::Dirty).expect("both are free");
    nitro.spare_victim(slot);
    nitro.release_slot(slot);
    assert_eq!(nitro.free_slots(), 1);
    assert_eq!(nitro.evict(slot), None);
    nitro.seal_slot(slot);
    nitro.seal_slot(slot);
    nitro.spare_victim(slot);
    assert_eq!(nitro.choose_victim(&mut |_| false).map(|victim| victim.slot), Some(slot));
    assert_eq!(nitro.choose_victim(&mut |_| false), None);
    assert_eq!(nitro.evict(slot), Some(0));
    nitro.spare_victim(slot);
    assert_eq!(nitro.choose_victim(&mut |_| false), None, "a retired slot does not come back");
    nitro.release_slot(slot);
    nitro.release_slot(slot);
    assert_eq!(nitro.free_slots(), 2);
}

#[test]
fn rewriting_one_chunk_does_not_compact_each_time() {
    // 300,000 records of one address, each outdating the last: quadratic work would take minutes.
    let config = DesignConfig { slot_count: 1, mappings_max: 10, fp_entries_max: 1 << 20 };
    let mut nitro = Decider::new(Box::new(Nitro::new(config)));
    let (slot, generation) = nitro.open_slot(StreamClass::Dirty).expect("it is free");
    for i in 0..300_000_u32 {
        let place = Place { slot, generation, offset: i, stored_len: 1, crc: 0, encoding: 0 };
        // Contents with a shared hash are left out: the test itself would be quadratic.
        let fingerprint = Some(fingerprint_of(u64::from(i) * 3 + 1));
        nitro.map(Lba(1), NewMapping::Unique { place, fingerprint }, Some(u64::from(i)));
    }
    // Dirty duplicates leave only live pointers.
    let ram = nitro.stats().slot_table_ram_bytes;
    let place = Place { slot, generation, offset: 5, stored_len: 1, crc: 0, encoding: 0 };
    for i in 0..3_000_000_u64 {
        nitro.map(Lba(i % 5), NewMapping::Duplicate { place }, Some(i));
    }
    assert!(nitro.stats().slot_table_ram_bytes <= 4 * ram, "outdated back pointers are dropped");
    assert_eq!(nitro.dirty_in(slot).len(), 5);
}

/// A run that is longer than the index costs the size of the index, not of the run.
#[test]
fn a_run_of_any_length_is_forgotten() {
    let config = DesignConfig { slot_count: 8, mappings_max: 1 << 20, fp_entries_max: 0 };
    let mut design = Decider::new(Box::new(Nitro::new(config)));
    for lba in [3, 70, 1 << 20, 1 << 39] {
        design.map(Lba(lba), NewMapping::Zero, Some(lba));
    }
    design.trim(Run::new(Lba(100), 50, 1000));
    assert_eq!(design.mapped_in(Lba(4), 1 << 39), [70, 1 << 20, 1 << 39].map(Lba));
    assert_eq!(design.mapped_in(Lba(3), 2), [Lba(3)]);
    design.unmap_run(Lba(70), 1 << 38);
    let left: Vec<u64> = design.dirty_from(Lba(0), 10).into_iter().map(|(lba, _)| lba.0).collect();
    assert_eq!(left, [3, 1 << 39]);
    assert_eq!(design.dirty_counts().runs, 0);
    design.trim(Run::new(Lba(0), 1 << 40, 1001));
    assert_eq!((design.dirty_counts().chunks, design.dirty_counts().runs), (0, 1));
}
