//! Designs with lists of addresses over a restart, against the same design without one.
//!
//! They are those with equal slots, and CD-ARC over WEUs. Both get the same requests. After an
//! orderly end each request must have the same answer and effect. An end seals the open WEU, so the
//! continuing design seals it, too.
//!
//! `placed.rs` has the effects of a crash. Here no design may give a wrong answer for any history.

use crate::common::{Rng, for_seeds};
use crate::slotted::{CHUNK, Drafting, fingerprint_of, make_boxed, reopen};
use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    cd_arc::CdArc, ranges::Run, slotted::Placed,
};
use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
};

const LBAS: u64 = 400;
const NAMES: [&str; 5] = ["d-lru", "d-arc", "lru", "arc", "cd-arc"];
const CD_ARC: usize = 4;
/// Chunks of a WEU.
const PER_WEU: u32 = 3;

/// A design with lists.
trait Listed: Design {
    fn check(&self);
    fn target(&self) -> f64;
}

impl Listed for Placed {
    fn check(&self) {
        Placed::check(self);
    }

    fn target(&self) -> f64 {
        self.design().target_size()
    }
}

impl Listed for CdArc {
    fn check(&self) {
        CdArc::check(self);
        assert!(!self.has_orphan());
    }

    fn target(&self) -> f64 {
        CdArc::target(self)
    }
}

fn make_listed(kind: usize, config: DesignConfig) -> Decider<dyn Listed> {
    let design: Box<dyn Listed> = if kind == CD_ARC { Box::new(CdArc::new(config)) } else { make_boxed(kind, config) };
    Decider::new(design)
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read(u64),
    Write {
        lba: u64,
        content: u64,
        dirty: bool,
        fragment: bool,
    },
    /// A write past the cache; `known` tells whether the cache then gets it.
    WriteThrough {
        lba: u64,
        content: u64,
        is_inserted: bool,
    },
    Trim(u64, u64),
    Destage(usize),
}

/// The answer and the effect of a request.
#[derive(Clone, PartialEq, Debug, Default)]
struct Outcome {
    hit: Option<u64>,
    was_ghost: bool,
    remembered: Option<Fingerprint>,
    duplicate: bool,
    ghosts: u64,
    target: u64,
    contents: u64,
    destaged: Vec<u64>,
}

struct Cache {
    kind: usize,
    config: DesignConfig,
    design: Decider<dyn Listed>,
    /// Generation and content, by flash slot and offset.
    stored: HashMap<(u32, u32), (u32, u64)>,
    /// The open slot of each class, its generation, and its number of records.
    open: [Option<(SlotId, u32, u32)>; 2],
    /// The content of each address, on origin or cache.
    holds: HashMap<u64, u64>,
    seq: u64,
}

impl Cache {
    fn new(kind: usize, config: DesignConfig) -> Cache {
        let (stored, holds) = Default::default();
        Cache { kind, config, design: make_listed(kind, config), stored, open: [None; 2], holds, seq: 0 }
    }

    /// Returns the place of the next record.
    fn append(&mut self, class: StreamClass, stored_len: u32, content: u64) -> Place {
        let (slot, generation, records) = match self.open[class as usize].take() {
            Some(open) => open,
            None => {
                let (slot, generation) = self.design.open_slot(class).expect("a free slot");
                (slot, generation, 0)
            }
        };
        let offset = records * CHUNK;
        self.stored.insert((slot.0, offset), (generation, content));
        let records_max = if self.kind == CD_ARC { PER_WEU } else { 1 };
        if records + 1 == records_max {
            self.design.seal_slot(slot);
        } else {
            self.open[class as usize] = Some((slot, generation, records + 1));
        }
        Place { slot, generation, offset, stored_len, crc: content as u32, encoding: 0 }
    }

    fn seal(&mut self) {
        for (slot, ..) in std::mem::take(&mut self.open).into_iter().flatten() {
            self.design.seal_slot(slot);
        }
    }

    fn put(&mut self, lba: u64, content: u64, dirty: bool, fragment: bool, outcome: &mut Outcome) {
        self.seq += 1;
        let (seq, fingerprint) = (dirty.then_some(self.seq), fingerprint_of(content));
        let known = if fragment { None } else { self.design.find_duplicate(&fingerprint) };
        outcome.duplicate = known.is_some();
        if let Some(place) = known {
            self.design.map(Lba(lba), NewMapping::Duplicate { place }, seq);
        } else {
            let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
            let place = self.append(class, if fragment { 512 } else { CHUNK }, content);
            let mut sectors = SectorMap::EMPTY;
            sectors.set(0, 1);
            let new = match fragment {
                true => NewMapping::Fragment { place, sectors },
                false => NewMapping::Unique { place, fingerprint: Some(fingerprint) },
            };
            self.design.map(Lba(lba), new, seq);
        }
    }

    fn serve(&mut self, request: Request) -> Outcome {
        let mut outcome = Outcome::default();
        match request {
            Request::Read(lba) => {
                outcome.was_ghost = self.design.is_ghost(Lba(lba));
                match self.design.lookup(Lba(lba)) {
                    Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                        let (generation, content) = self.stored[&(place.slot.0, place.offset)];
                        assert_eq!(generation, place.generation, "a slot that was freed");
                        outcome.hit = Some(content);
                    }
                    Lookup::Zero => outcome.hit = Some(0),
                    Lookup::Miss => {
                        outcome.remembered = self.design.remembered(Lba(lba));
                        if let Some(&content) = self.holds.get(&lba) {
                            self.put(lba, content, false, false, &mut outcome);
                        }
                    }
                }
            }
            Request::Write { lba, content, dirty, fragment } => {
                self.put(lba, content, dirty, fragment, &mut outcome);
                self.holds.insert(lba, content);
            }
            Request::WriteThrough { lba, content, is_inserted } => {
                if self.design.dirty_seq(Lba(lba)).is_none() {
                    self.design.suspend(Lba(lba));
                    self.holds.insert(lba, content);
                    match is_inserted {
                        true => self.put(lba, content, false, false, &mut outcome),
                        false => {
                            self.design.unmap(Lba(lba));
                        }
                    }
                }
            }
            Request::Trim(first, count) => {
                self.seq += 1;
                let run = Run::new(Lba(first), count, self.seq);
                self.design.trim(run);
                self.holds.extend((first..first + count).map(|lba| (lba, 0)));
                self.design.mark_run_clean(&run);
            }
            Request::Destage(max) => {
                for (lba, seq) in self.design.dirty_from(Lba(0), max) {
                    assert!(self.design.mark_clean(lba, seq));
                    outcome.destaged.push(lba.0);
                }
            }
        }
        self.tidy();
        let stats = self.design.stats();
        (outcome.ghosts, outcome.contents) = (stats.ghosts, stats.fp_index_entries);
        outcome.target = self.design.target().to_bits();
        outcome
    }

    /// Forgets released addresses, and frees their slots.
    fn tidy(&mut self) {
        self.design.drop_clean_zeroes(true, usize::MAX);
        if self.kind == CD_ARC {
            // A restart leaves no stale entries, and each present one takes room.
            (0..larder_core::lba_index::SHARDS_USUAL).for_each(|_| {
                self.design.sweep();
            });
        }
        while self.kind != CD_ARC || self.design.free_slots() < 2 {
            let Some(victim) = self.design.choose_victim(&mut |_| false) else { break };
            for lba in self.design.dirty_in(victim.slot) {
                let seq = self.design.dirty_seq(lba).expect("it is dirty");
                self.design.mark_clean(lba, seq);
            }
            self.design.evict(victim.slot).expect("nothing in it is dirty");
            self.design.release_slot(victim.slot);
        }
        self.design.check();
    }

    fn restart(&mut self) {
        let mut old = std::mem::replace(&mut self.design, make_listed(self.kind, self.config));
        let history = old.whole_history();
        let design = &mut self.design;
        reopen(&old, design, &history, true);
        design.check();
        assert!(design.whole_history().len() == history.len(), "as much is known as was before");
    }
}

fn request(rng: &mut Rng) -> Request {
    // Some addresses get more requests.
    let below = [20, 100, LBAS][rng.below(3) as usize];
    let lba = rng.below(below);
    let content = if rng.chance(50) { 1 + rng.below(60) } else { 100 + rng.below(1 << 30) };
    match rng.below(100) {
        0..55 => Request::Read(lba),
        55..80 => Request::Write { lba, content, dirty: rng.chance(40), fragment: rng.chance(5) },
        80..92 => Request::WriteThrough { lba, content, is_inserted: rng.chance(60) },
        92..94 => Request::Trim(lba, 1 + rng.below(4)),
        _ => Request::Destage(1 + rng.below(8) as usize),
    }
}

/// Returns small sizes, so that everything fills soon.
fn sizes(rng: &mut Rng, kind: usize) -> DesignConfig {
    DesignConfig {
        slot_count: 20 + rng.below(80) as u32,
        mappings_max: if kind == CD_ARC { 40 + rng.below(200) } else { 10_000 },
        fp_entries_max: if matches!(kind, 2 | 3) { 0 } else { 10_000 },
    }
}

#[test]
fn a_restart_after_an_end_in_order_changes_no_decision() {
    let ghost_hits: [Cell<u64>; 5] = Default::default();
    for_seeds(0..300, |seed| {
        let mut rng = Rng::new(seed);
        let kind = seed as usize % 5;
        let config = sizes(&mut rng, kind);
        let (mut steady, mut restarted) = (Cache::new(kind, config), Cache::new(kind, config));
        for step in 0..2000 {
            if step > 200 && rng.chance(1) {
                steady.seal();
                restarted.seal();
                restarted.restart();
            }
            let request = request(&mut rng);
            let (expected, found) = (steady.serve(request), restarted.serve(request));
            assert_eq!(found, expected, "{}: request {step}, {request:?}", NAMES[kind]);
            ghost_hits[kind].update(|hits| hits + u64::from(expected.was_ghost));
        }
    });
    assert!([0, 1, 3, CD_ARC].iter().all(|&kind| ghost_hits[kind].get() > 0), "{ghost_hits:?}");
}

/// Checks that each answer, and each remembered content, is the right one.
fn assert_right(cache: &Cache) {
    for lba in 0..LBAS {
        let holds = cache.holds.get(&lba).copied();
        if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = cache.design.peek(Lba(lba)) {
            assert_eq!(Some(cache.stored[&(place.slot.0, place.offset)]), holds.map(|holds| (place.generation, holds)));
        }
        let remembered = cache.design.remembered(Lba(lba));
        assert!(remembered.is_none() || remembered == holds.map(fingerprint_of), "address {lba}");
    }
}

#[test]
fn after_a_crash_no_history_has_an_answer_be_wrong() {
    let ghosts = Cell::new(0);
    for_seeds(0..200, |seed| {
        let mut rng = Rng::new(seed);
        let kind = seed as usize % 5;
        let config = sizes(&mut rng, kind);
        let mut cache = Cache::new(kind, config);
        let mut old = Drafting::default();
        for step in 0..1500 {
            if rng.chance(10) {
                old.go_on(&mut cache.design);
            }
            if step > 200 && rng.chance(1) {
                let mut history = if rng.chance(50) { old.finished.clone() } else { cache.design.whole_history() };
                old.give_up();
                if !history.is_empty() && rng.chance(40) {
                    let at = rng.below(history.len() as u64) as usize;
                    history[at] ^= 1 << rng.below(8);
                }
                cache.seal();
                let before = std::mem::replace(&mut cache.design, make_listed(kind, config));
                reopen(&before, &mut cache.design, &history, false);
                cache.design.check();
                assert_right(&cache);
                if kind == CD_ARC {
                    ghosts.update(|ghosts| ghosts + cache.design.stats().ghosts);
                }
            }
            cache.serve(request(&mut rng));
        }
        assert_right(&cache);
    });
    assert!(ghosts.get() > 0, "what CD-ARC has of addresses without data outlives a crash");
}

/// An overwrite of an address without data must be logged: a restart may trust its content. That
/// holds while the design knows the content, and afterwards until no checkpoint has it.
#[test]
fn who_overwrites_what_is_remembered_is_told_to_log_it() {
    for (kind, name) in NAMES.into_iter().enumerate().filter(|&(kind, _)| kind != CD_ARC) {
        let config =
            DesignConfig { slot_count: 40, mappings_max: 10_000, fp_entries_max: if kind < 2 { 10_000 } else { 0 } };
        let mut cache = Cache::new(kind, config);
        // Enough to make some ghosts, and to make others leave altogether.
        for lba in 0..4000 {
            cache.serve(Request::Write { lba, content: 1000 + lba, dirty: false, fragment: false });
        }
        let is_ghost = |cache: &Cache, lba: u64| cache.design.is_ghost(Lba(lba));
        let ghosts: Vec<u64> = (0..4000).filter(|&lba| is_ghost(&cache, lba)).collect();
        let looks = kind < 2;
        assert_eq!(!ghosts.is_empty(), looks, "{name}: the baselines had but one use of each");
        for &lba in ghosts.iter().take(3) {
            assert!(cache.design.is_forgetting_logged(Lba(lba), 1));
            assert!(cache.design.suspend(Lba(lba)), "{name}: address {lba} is remembered");
        }
        // An address that has left is reported until a second checkpoint is durable: checkpoint and
        // log may have it.
        let left = Lba(0);
        assert!(!cache.design.is_ghost(left) && cache.design.peek(left) == Lookup::Miss);
        for is_told in [looks, looks, false] {
            assert_eq!(cache.design.is_forgetting_logged(left, 1), is_told, "{name}");
            assert_eq!(cache.design.suspend(left), is_told);
            cache.design.begin_export();
            cache.design.export_is_durable();
        }
        // A write around the cache forgets its address, and logs that once.
        if let Some(&lba) = ghosts.last() {
            assert_eq!([(); 2].map(|()| cache.design.unmap(Lba(lba))), [true, false]);
        }
    }
}

/// Pieces of an export without changes in between are the whole; the slots are so in any case.
#[test]
fn pieces_of_an_export_are_the_whole() {
    for (kind, name) in NAMES.into_iter().enumerate() {
        // The baselines share no content.
        let fp_entries_max = if kind == 2 || kind == 3 { 0 } else { 10_000 };
        let config = DesignConfig { slot_count: 3000, mappings_max: 40_000, fp_entries_max };
        let mut cache = Cache::new(kind, config);
        let mut rng = Rng::new(kind as u64);
        for lba in 0..3500 {
            let content = rng.below(9000);
            cache.serve(Request::Write { lba, content, dirty: rng.chance(10), fragment: false });
        }
        cache.seal();
        let design = &mut cache.design;
        // A cancelled export is no part of the next.
        for is_given_up in [true, false] {
            design.begin_export();
            let (mut slots, mut known) = (Vec::new(), Vec::new());
            while let Some(piece) = design.next_slots() {
                slots.extend(piece);
                if is_given_up && slots.len() > 1000 {
                    break;
                }
            }
            while let Some(piece) = design.next_fingerprints() {
                known.extend(piece);
                if is_given_up && known.len() > 1000 {
                    break;
                }
            }
            if !is_given_up {
                assert_eq!((slots, known), (design.export_slots(), design.export_fingerprints()), "{name}");
            }
        }
        let whole_now = design.whole_history();
        let mut draft = design.begin_history().expect("each of them has one");
        assert!(design.export_history(&mut draft, &|_| false));
        assert_eq!(design.whole_history(), whole_now, "{name}: a draft that was given up");
        // Contents go, and come back elsewhere, between two pieces: none is told twice. Unmoved
        // ones are told, unless more became recent meanwhile than there are.
        for writes in [100, 500, 2000] {
            let before = cache.design.export_fingerprints();
            cache.design.begin_export();
            let mut told = HashSet::new();
            while let Some(piece) = cache.design.next_fingerprints() {
                assert!(piece.into_iter().all(|(known, _)| told.insert(known.0)), "{name}: a content is told twice");
                for _ in 0..writes {
                    let (lba, content) = (rng.below(3500), rng.below(9000));
                    cache.serve(Request::Write { lba, content, dirty: false, fragment: false });
                }
            }
            let after: HashSet<_> =
                cache.design.export_fingerprints().into_iter().map(|known| format!("{known:?}")).collect();
            let stayed = before.into_iter().filter(|known| after.contains(&format!("{known:?}")));
            let left_out = stayed.clone().filter(|(known, _)| !told.contains(&known.0)).count();
            assert!(left_out == 0 || writes > 1000, "{name}: {left_out} of {} are left out", stayed.count());
        }
    }
}
