//! What only looks at a design changes nothing, in all designs that an engine runs: the same requests are made three times, of a
//! design that is only asked, of one that is looked at all the time besides, and of one whose hits are made up for later, as
//! late as [`Design::hit`] allows. All three answer alike, step by step, and are the same in the end.
//!
//! Requests are those of an engine: chunks stored in open slots, duplicates, zeroes, fragments, trims, destages, evictions, and
//! what a design wants forgotten.
//!
//! What it does not do: say that an answer is right; the tests of each design do.

mod common;

use common::{Rng, for_seeds};
use larder_core::{
    Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    arc::Arc,
    cd_arc::CdArc,
    d_arc::DArc,
    d_lru::DLru,
    design::Use,
    lru::Lru,
    nitro::Nitro,
    ranges::Run,
    slotted::{FlashSize, Placed, Slotted},
};
use std::collections::HashMap;

const CHUNK: u32 = 4096;
const LBAS: u64 = 64;
const STEPS: usize = 600;
/// Records in a slot of a design over WEUs.
const WEU_RECORDS: u32 = 5;
/// Hits that are made up for at once, at most.
const LATER_MAX: usize = 9;

/// Name, records in a slot, whether content is shared, and an empty cache.
type Made = (&'static str, u32, bool, fn(DesignConfig) -> Box<dyn Design>);

const DESIGNS: [Made; 6] = [
    ("nitro", WEU_RECORDS, true, |config| Box::new(Nitro::new(config))),
    ("cd-arc", WEU_RECORDS, true, |config| Box::new(CdArc::new(config))),
    ("d-lru", 1, true, |config| placed(config, |size| Box::new(DLru::for_flash(size, CHUNK).expect("it fits")))),
    ("d-arc", 1, true, |config| placed(config, |size| Box::new(DArc::for_flash(size, CHUNK).expect("it fits")))),
    ("lru", 1, false, |config| placed(config, |size| Box::new(Lru::for_flash(size, CHUNK).expect("it fits")))),
    ("arc", 1, false, |config| placed(config, |size| Box::new(Arc::for_flash(size, CHUNK).expect("it fits")))),
];

fn placed(config: DesignConfig, make: impl FnOnce(FlashSize) -> Box<dyn Slotted>) -> Box<dyn Design> {
    Box::new(Placed::new(config, |slots| make(FlashSize::DataChunks(slots))))
}

/// How a design is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Manner {
    Plainly,
    /// With looks at any time.
    Looking,
    /// Hits are told of later.
    Later,
}

struct World {
    rng: Rng,
    /// Of what only looks.
    looks: Rng,
    manner: Manner,
    design: Box<dyn Design>,
    weu_records: u32,
    open: [Option<(SlotId, u32, u32)>; 2],
    /// Content of each address that is not trimmed.
    contents: HashMap<u64, u64>,
    seq: u64,
    later: Vec<Use>,
    said: Vec<String>,
    deferred: u64,
}

fn fingerprint_of(content: u64) -> Fingerprint {
    let mut bytes = [7; 16];
    bytes[8..].copy_from_slice(&content.to_le_bytes());
    Fingerprint(bytes)
}

impl World {
    fn new(seed: u64, manner: Manner, (_, weu_records, dedup, make): &Made) -> World {
        let mut rng = Rng::new(seed);
        let config = DesignConfig {
            slot_count: 7 + rng.below(30) as u32,
            mappings_max: [24, 60, 1000][rng.below(3) as usize],
            fp_entries_max: if *dedup { [5, 1000][rng.below(2) as usize] } else { 0 },
        };
        World {
            rng,
            looks: Rng::new(seed ^ 0x100c),
            manner,
            design: make(config),
            weu_records: *weu_records,
            open: [None; 2],
            contents: HashMap::new(),
            seq: 0,
            later: Vec::new(),
            said: Vec::new(),
            deferred: 0,
        }
    }

    fn say(&mut self, what: impl std::fmt::Debug) {
        self.said.push(format!("{what:?}"));
    }

    /// The design, for what may change it: all hits are made up for.
    fn design(&mut self) -> &mut dyn Design {
        let later = std::mem::take(&mut self.later);
        self.design.used(&later);
        &mut *self.design
    }

    fn lookup(&mut self, lba: Lba) -> Lookup {
        match self.manner {
            Manner::Plainly => self.design.lookup(lba),
            Manner::Looking => {
                let (hit, peeked) = (self.design.hit(lba), self.design.peek(lba));
                let found = self.design.lookup(lba);
                assert_eq!(peeked, found, "{lba:?}");
                if let Some(hit) = hit {
                    assert!(matches!(found, Lookup::Chunk { place, .. } if place == hit.place), "{lba:?}: {hit:?}");
                    assert_eq!((hit.used.lba, hit.used.slot), (lba, hit.place.slot));
                }
                found
            }
            Manner::Later => {
                let peeked = self.design.peek(lba);
                let Some(hit) = self.design.hit(lba) else {
                    let found = self.design().lookup(lba);
                    assert_eq!(peeked, found, "{lba:?}, while other hits were not made up for");
                    return found;
                };
                assert!(matches!(peeked, Lookup::Chunk { place, .. } if place == hit.place), "{lba:?}: {hit:?}");
                self.deferred += 1;
                self.later.push(hit.used);
                if self.later.len() == LATER_MAX {
                    self.design();
                }
                peeked
            }
        }
    }

    fn look_around(&mut self) {
        for _ in 0..self.looks.below(4) {
            let lba = Lba(self.looks.below(LBAS));
            let (hit, peeked) = (self.design.hit(lba), self.design.peek(lba));
            let is_same = |place: Place| matches!(peeked, Lookup::Chunk { place: now, .. } if now == place);
            assert!(hit.is_none_or(|hit| is_same(hit.place)), "{lba:?}: {hit:?}, {peeked:?}");
        }
    }

    /// A place in the open slot of a class; `None` where no slot is free.
    fn append(&mut self, class: StreamClass, content: u64, stored_len: u32) -> Option<Place> {
        let which = usize::from(class == StreamClass::Dirty);
        let (slot, generation, records) = match self.open[which] {
            Some(open) => open,
            None => {
                let (slot, generation) = self.design().open_slot(class)?;
                (slot, generation, 0)
            }
        };
        self.open[which] = Some((slot, generation, records + 1));
        if records + 1 == self.weu_records {
            self.open[which] = None;
            self.design().seal_slot(slot);
        }
        Some(Place { slot, generation, offset: records * CHUNK, stored_len, crc: content as u32, encoding: 0 })
    }

    fn put(&mut self, lba: u64, content: u64, dirty: bool, fragment: bool) {
        if !self.design().has_room(2) {
            return;
        }
        self.seq += 1;
        let (seq, fingerprint) = (dirty.then_some(self.seq), fingerprint_of(content));
        let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
        let known = if fragment { None } else { self.design().find_duplicate(&fingerprint) };
        let new = match known {
            Some(place) => NewMapping::Duplicate { place },
            None if content == 0 && !fragment => NewMapping::Zero,
            None => {
                let Some(place) = self.append(class, content, if fragment { 512 } else { CHUNK }) else { return };
                let mut sectors = SectorMap::EMPTY;
                sectors.set(0, 1);
                match fragment {
                    true => NewMapping::Fragment { place, sectors },
                    false => NewMapping::Unique { place, fingerprint: Some(fingerprint) },
                }
            }
        };
        self.say(new);
        self.design().map(Lba(lba), new, seq);
        self.contents.insert(lba, content);
    }

    fn read(&mut self) {
        let lba = self.rng.skewed(LBAS);
        let found = self.lookup(Lba(lba));
        self.say(("read", lba, found));
        if found == Lookup::Miss {
            let about = (self.design().remembered(Lba(lba)), self.design().is_ghost(Lba(lba)));
            self.say(about);
            if let Some(&content) = self.contents.get(&lba) {
                self.put(lba, content, false, false);
            }
        }
    }

    fn write(&mut self) {
        let lba = self.rng.skewed(LBAS);
        let content = self.rng.below(40);
        let is_dirty = self.design().dirty_seq(Lba(lba)).is_some();
        match self.rng.below(5) {
            0..3 => {
                let fragment = self.rng.chance(15);
                self.put(lba, content, true, fragment);
            }
            3 if !is_dirty => {
                self.design().suspend(Lba(lba));
                self.put(lba, content, false, false);
            }
            _ if !is_dirty => {
                self.design().unmap(Lba(lba));
                self.contents.insert(lba, content);
            }
            _ => {}
        }
    }

    fn destage(&mut self, lbas: &[Lba]) {
        for &lba in lbas {
            if let Some(seq) = self.design().dirty_seq(lba) {
                assert!(self.design().mark_clean(lba, seq));
            }
        }
    }

    fn evict(&mut self) {
        let busy = self.rng.below(8);
        let Some(victim) = self.design().choose_victim(&mut |slot| u64::from(slot.0) % 8 == busy) else { return };
        self.say(victim);
        if self.rng.chance(10) {
            return self.design().spare_victim(victim.slot);
        }
        if self.rng.chance(50) {
            // Between the choice and the end, hits go on.
            (0..3).for_each(|_| self.read());
        }
        let dirty = self.design().dirty_in(victim.slot);
        self.destage(&dirty);
        let ended = self.design().evict(victim.slot);
        self.say(ended);
        match ended {
            Some(_) => self.design().release_slot(victim.slot),
            None => self.design().spare_victim(victim.slot),
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..25 => self.write(),
            25..85 => (0..3).for_each(|_| self.read()),
            85..88 => {
                self.seq += 1;
                let run = Run {
                    first: Lba(self.rng.below(LBAS)),
                    count: 1 + self.rng.below(5),
                    seq: self.seq,
                    no_hole: false,
                };
                self.design().trim(run);
                self.contents.retain(|&lba, _| !(run.first.0..run.first.0 + run.count).contains(&lba));
            }
            88..91 => {
                let dirty: Vec<Lba> = self.design().dirty_from(Lba(0), 8).into_iter().map(|(lba, _)| lba).collect();
                self.destage(&dirty);
                if let Some(run) = self.design().trimmed_from(Lba(0)) {
                    self.design().mark_run_clean(&run);
                }
            }
            91..99 => self.evict(),
            _ => {
                let dropped = self.design().drop_clean_zeroes(false, 4);
                let swept = self.design().sweep();
                self.say((dropped, swept));
            }
        }
        while self.design().free_slots() < 2 {
            let before = self.design().free_slots();
            self.evict();
            if self.design().free_slots() == before && self.rng.chance(30) {
                break;
            }
        }
        if self.manner != Manner::Plainly {
            self.look_around();
        }
    }

    /// All that was said, and what there is in the end, orders included.
    fn run(mut self) -> (Vec<String>, u64) {
        (0..STEPS).for_each(|_| self.step());
        let design = self.design();
        let mut mappings: Vec<_> =
            (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)).collect();
        mappings.sort_unstable_by_key(|mapping| mapping.lba);
        let mut stats = design.stats();
        // Memory that lists have reserved depends on how long they were once.
        (stats.lba_index_ram_bytes, stats.slot_table_ram_bytes) = (0, 0);
        let end = format!("{mappings:?} {:?} {:?} {stats:?}", design.export_slots(), design.export_fingerprints());
        self.said.push(end);
        (self.said, self.deferred)
    }
}

#[test]
fn looks_change_nothing_and_hits_may_be_told_of_later() {
    for made in &DESIGNS {
        let deferred = std::cell::Cell::new(0);
        for_seeds(0..120, |seed| {
            let [plainly, looking, later] =
                [Manner::Plainly, Manner::Looking, Manner::Later].map(|manner| World::new(seed, manner, made).run());
            for (manner, (said, _)) in [(Manner::Looking, &looking), (Manner::Later, &later)] {
                let differs = plainly.0.iter().zip(said).position(|(one, other)| one != other);
                if let Some(at) = differs {
                    panic!("{}, {manner:?}: step {at}: {} and not {}", made.0, said[at], plainly.0[at]);
                }
                assert_eq!(plainly.0.len(), said.len(), "{}, {manner:?}", made.0);
            }
            deferred.set(deferred.get() + later.1);
        });
        assert!(deferred.get() > 10_000, "{}: only {} hits were told of later", made.0, deferred.get());
    }
}
