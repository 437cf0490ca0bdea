//! Designs with equal slots over a restart, against the same design without one. Both get the same requests: as long as the restart
//! was after an end in order, each request must have the same answer, and leave the same.
//!
//! What a crash may bring back is in `placed.rs`: there no answer may be wrong, whatever the history says.

mod common;
#[path = "common/slotted.rs"]
mod slotted;

use common::{Rng, for_seeds};
use larder_core::{
    Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, StreamClass, ranges::Run,
    slotted::Placed,
};
use slotted::{CHUNK, fingerprint_of, make, reopen};
use std::{cell::Cell, collections::HashMap};

const LBAS: u64 = 400;
const NAMES: [&str; 4] = ["d-lru", "d-arc", "lru", "arc"];

#[derive(Clone, Copy, Debug)]
enum Request {
    Read(u64),
    Write {
        lba: u64,
        content: u64,
        dirty: bool,
        fragment: bool,
    },
    /// Past the cache; `known` says whether it comes into the cache after all.
    WriteThrough {
        lba: u64,
        content: u64,
        is_inserted: bool,
    },
    Trim(u64, u64),
    Destage(usize),
}

/// What a request found, and what it left.
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
    design: Placed,
    /// By flash slot: generation and content.
    stored: HashMap<u32, (u32, u64)>,
    /// What the origin, or the cache, has for an address.
    holds: HashMap<u64, u64>,
    seq: u64,
}

impl Cache {
    fn new(kind: usize, config: DesignConfig) -> Cache {
        let (stored, holds) = Default::default();
        Cache { kind, config, design: make(kind, config), stored, holds, seq: 0 }
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
            let (slot, generation) = self.design.open_slot(class).expect("a free slot");
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
    }

    fn serve(&mut self, request: Request) -> Outcome {
        let mut outcome = Outcome::default();
        match request {
            Request::Read(lba) => {
                outcome.was_ghost = self.design.is_ghost(Lba(lba));
                match self.design.lookup(Lba(lba)) {
                    Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                        let (generation, content) = self.stored[&place.slot.0];
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
                let run = Run { first: Lba(first), count, seq: self.seq, no_hole: false };
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
        let (stats, design) = (self.design.stats(), self.design.design());
        (outcome.ghosts, outcome.contents) = (stats.ghosts, stats.fp_index_entries);
        outcome.target = design.target_size().to_bits();
        outcome
    }

    /// Forgets what the design let go of, and frees its slots.
    fn tidy(&mut self) {
        self.design.drop_clean_zeroes(true, usize::MAX);
        while let Some(victim) = self.design.choose_victim(&mut |_| false) {
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
        let old = std::mem::replace(&mut self.design, make(self.kind, self.config));
        let history = old.export_history();
        let design = &mut self.design;
        reopen(&old, design, &history, true);
        design.check();
        assert!(design.export_history().len() == history.len(), "as much is known as was before");
    }
}

fn request(rng: &mut Rng) -> Request {
    // Some addresses are asked for more often.
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

#[test]
fn a_restart_after_an_end_in_order_changes_no_decision() {
    let ghost_hits: [Cell<u64>; 4] = Default::default();
    for_seeds(0..240, |seed| {
        let mut rng = Rng::new(seed);
        let kind = seed as usize % 4;
        let config = DesignConfig {
            slot_count: 20 + rng.below(80) as u32,
            mappings_max: 10_000,
            fp_entries_max: if kind < 2 { 10_000 } else { 0 },
        };
        let (mut steady, mut restarted) = (Cache::new(kind, config), Cache::new(kind, config));
        for step in 0..2000 {
            if step > 200 && rng.chance(1) {
                restarted.restart();
            }
            let request = request(&mut rng);
            let (expected, found) = (steady.serve(request), restarted.serve(request));
            assert_eq!(found, expected, "{}: request {step}, {request:?}", NAMES[kind]);
            ghost_hits[kind].update(|hits| hits + u64::from(expected.was_ghost));
        }
    });
    assert!([0, 1, 3].iter().all(|&kind| ghost_hits[kind].get() > 0), "{ghost_hits:?}");
}
