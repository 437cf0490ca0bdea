//! Looks at a design change nothing, in all designs that an engine runs.
//!
//! The same requests are made three times. One design has no looks, one has looks all the time, and
//! one has postponed hits, as late as [`Mapping::hit`] allows. All three answer alike, step by
//! step, and end in the same state.
//!
//! Requests are those of an engine: chunks stored in open slots, duplicates, zeroes, fragments,
//! trims, destages, evictions, and addresses that a design wants forgotten.
//!
//! It leaves the correctness of answers to the tests of each design.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    arc::Arc,
    austere::{
        AustereConfig, Bucketed,
        bucketed::{BucketedConfig, memory::MemoryRegion},
    },
    cd_arc::CdArc,
    d_arc::DArc,
    d_lru::DLru,
    design::{Hit, Leaving, Question, Use, Wanted},
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
/// Maximum attempts to make room for one chunk.
const ROOM_TURNS: usize = 8;
/// Maximum number of postponed hits.
const LATER_MAX: usize = 9;

/// Name, records in a slot, content sharing, and a constructor of an empty cache.
type Made = (&'static str, u32, bool, fn(DesignConfig) -> Box<dyn Design>);

const MADE: [Made; 7] = [
    ("nitro", WEU_RECORDS, true, |config| Box::new(Nitro::new(config))),
    ("cd-arc", WEU_RECORDS, true, |config| Box::new(CdArc::new(config))),
    ("d-lru", 1, true, |config| placed(config, |size| Box::new(DLru::for_flash(size, CHUNK).expect("it fits")))),
    ("d-arc", 1, true, |config| placed(config, |size| Box::new(DArc::for_flash(size, CHUNK).expect("it fits")))),
    ("lru", 1, false, |config| placed(config, |size| Box::new(Lru::for_flash(size, CHUNK).expect("it fits")))),
    ("arc", 1, false, |config| placed(config, |size| Box::new(Arc::for_flash(size, CHUNK).expect("it fits")))),
    ("austere", 1, true, bucketed),
];

/// Makes a cache with small buckets and short prefixes, so that contents and addresses collide.
fn bucketed(config: DesignConfig) -> Box<dyn Design> {
    let data_bytes = u64::from(config.slot_count.next_multiple_of(4) * CHUNK);
    let austere = AustereConfig {
        bucket_slots: 16,
        prefix_bits: 6,
        lba_entries: Some(64),
        ..AustereConfig::new(data_bytes, CHUNK, true)
    };
    let config = BucketedConfig { austere, chunk_count: LBAS, exact_max: config.mappings_max };
    Box::new(Bucketed::new(config).expect("a layout"))
}

fn placed(config: DesignConfig, make: impl Fn(FlashSize) -> Box<dyn Slotted>) -> Box<dyn Design> {
    Box::new(Placed::new(config, |slots| make(FlashSize::DataChunks(slots))))
}

/// The way to ask a design.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Manner {
    Plainly,
    /// With looks at any time.
    Looking,
    /// With postponed hits.
    Later,
}

struct World {
    rng: Rng,
    /// Random numbers for looks.
    looks: Rng,
    manner: Manner,
    design: Decider,
    /// Metadata slots on flash, if the design has them.
    region: MemoryRegion,
    /// True during an eviction: a read then makes no room for itself.
    evicting: bool,
    weu_records: u32,
    open: [Option<(SlotId, u32, u32)>; 2],
    /// Content of each address that is not trimmed.
    contents: HashMap<u64, u64>,
    seq: u64,
    later: Vec<Use>,
    said: Vec<String>,
    deferred: u64,
    /// Hits that a metadata slot confirmed.
    confirmed: u64,
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
            design: Decider::new(make(config)),
            region: MemoryRegion::new(config.slot_count.next_multiple_of(4) as usize * 4),
            evicting: false,
            weu_records: *weu_records,
            open: [None; 2],
            contents: HashMap::new(),
            seq: 0,
            later: Vec::new(),
            said: Vec::new(),
            deferred: 0,
            confirmed: 0,
        }
    }

    fn say(&mut self, what: impl std::fmt::Debug) {
        self.said.push(format!("{what:?}"));
    }

    /// Returns the design for a change, after all postponed hits.
    fn design(&mut self) -> &mut Decider {
        let later = std::mem::take(&mut self.later);
        self.design.used(&later);
        &mut self.design
    }

    /// Reads the metadata that the design needs.
    fn inform(&mut self, question: Question<'_>) {
        let later = std::mem::take(&mut self.later);
        if self.design.unread(question).is_some() {
            self.design.used(&later);
            self.region.inform(&mut self.design, question);
        } else {
            self.later = later;
        }
    }

    /// Returns a hit, by the metadata slot if one must be read.
    fn hit(&mut self, lba: Lba) -> Option<Hit> {
        if let Some(hit) = self.design.hit(lba) {
            return Some(hit);
        }
        let slot = self.design.unread(Question::Address(lba))?;
        let hit = self.design.hit_with(lba, slot, &self.region.get(slot)?);
        self.confirmed += u64::from(hit.is_some());
        hit
    }

    fn lookup(&mut self, lba: Lba) -> Lookup {
        match self.manner {
            Manner::Plainly => {
                self.inform(Question::Address(lba));
                self.design.lookup(lba)
            }
            Manner::Looking => {
                let hit = self.hit(lba);
                self.inform(Question::Address(lba));
                let peeked = self.design.peek(lba);
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
                let is_known = self.design.unread(Question::Address(lba)).is_none();
                let Some(hit) = self.hit(lba) else {
                    self.inform(Question::Address(lba));
                    let found = self.design().lookup(lba);
                    assert!(!is_known || peeked == found, "{lba:?}, while other hits were not made up for");
                    return found;
                };
                let is_same = matches!(peeked, Lookup::Chunk { place, .. } if place == hit.place);
                assert!(!is_known || is_same, "{lba:?}: {hit:?}");
                self.deferred += 1;
                self.later.push(hit.used);
                if self.later.len() == LATER_MAX {
                    self.design();
                }
                // A design that has to be told never has it twice.
                if is_known { peeked } else { Lookup::Chunk { place: hit.place, duplicate: false } }
            }
        }
    }

    fn look_around(&mut self) {
        for _ in 0..self.looks.below(4) {
            let lba = Lba(self.looks.below(LBAS));
            let is_known = self.design.unread(Question::Address(lba)).is_none();
            let (hit, peeked) = (self.hit(lba), self.design.peek(lba));
            let is_same = |place: Place| matches!(peeked, Lookup::Chunk { place: now, .. } if now == place);
            assert!(hit.is_none_or(|hit| !is_known || is_same(hit.place)), "{lba:?}: {hit:?}, {peeked:?}");
        }
    }

    /// Returns a place in the open slot of a class; `None` if no slot is free.
    fn append(&mut self, class: StreamClass, content: u64, wanted: &Wanted) -> Option<Place> {
        let which = usize::from(class == StreamClass::Dirty);
        let (slot, generation, records) = match self.open[which] {
            Some(open) => open,
            None => {
                let (slot, generation) = self.design().open_slot_for(class, wanted)?;
                (slot, generation, 0)
            }
        };
        self.open[which] = Some((slot, generation, records + 1));
        if records + 1 == self.weu_records {
            self.open[which] = None;
            self.design().seal_slot(slot);
        }
        Some(Place {
            slot,
            generation,
            offset: records * CHUNK,
            stored_len: wanted.stored_len,
            crc: content as u32,
            encoding: 0,
        })
    }

    fn put(&mut self, lba: u64, content: u64, dirty: bool, fragment: bool) {
        if !self.design().has_room(2) {
            return;
        }
        self.seq += 1;
        let (seq, fingerprint) = (dirty.then_some(self.seq), fingerprint_of(content));
        let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
        let mut new = None;
        for _ in 0..ROOM_TURNS {
            let known = match fragment {
                true => None,
                false => {
                    self.inform(Question::Content(&fingerprint));
                    self.design().find_duplicate(&fingerprint)
                }
            };
            new = match known {
                Some(place) => Some(NewMapping::Duplicate { place }),
                None if content == 0 && !fragment => Some(NewMapping::Zero),
                None => self.store(lba, content, class, fragment),
            };
            if new.is_some() || self.evicting {
                break;
            }
            self.evict();
        }
        let Some(new) = new else { return };
        self.say(new);
        self.design().map(Lba(lba), new, seq);
        self.contents.insert(lba, content);
    }

    fn store(&mut self, lba: u64, content: u64, class: StreamClass, fragment: bool) -> Option<NewMapping> {
        let fingerprint = (!fragment).then(|| fingerprint_of(content));
        // One of a few lengths, fixed for a content.
        let stored_len = if fragment { 512 } else { CHUNK - content as u32 % 4 * 1024 };
        let place = self.append(class, content, &Wanted { lba: Lba(lba), fingerprint, stored_len })?;
        let mut sectors = SectorMap::EMPTY;
        sectors.set(0, 1);
        Some(match fragment {
            true => NewMapping::Fragment { place, sectors },
            false => NewMapping::Unique { place, fingerprint },
        })
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
            // Hits go on between the choice and the end.
            let outer = std::mem::replace(&mut self.evicting, true);
            (0..3).for_each(|_| self.read());
            self.evicting = outer;
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
                    advisory: self.seq.is_multiple_of(3),
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
        if self.rng.chance(50) {
            self.design();
            self.region.write(&mut self.design);
        }
        if self.manner != Manner::Plainly {
            self.look_around();
        }
    }

    /// Returns all answers, and the final state with its orders.
    fn run(mut self) -> (Vec<String>, [u64; 2]) {
        (0..STEPS).for_each(|_| self.step());
        let design = self.design();
        let mut mappings: Vec<_> =
            (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)).collect();
        mappings.sort_unstable_by_key(|mapping| mapping.lba);
        let mut stats = design.stats();
        // The memory that lists have reserved depends on their earlier lengths.
        (stats.lba_index_ram_bytes, stats.slot_table_ram_bytes) = (0, 0);
        let pages: Vec<_> = (0..design.page_count()).map(|page| design.export_page(page)).collect();
        let end =
            format!("{mappings:?} {pages:?} {:?} {:?} {stats:?}", design.export_slots(), design.export_fingerprints());
        self.said.push(end);
        (self.said, [self.deferred, self.confirmed])
    }
}

#[test]
fn looks_change_nothing_and_hits_may_be_told_of_later() {
    for made in &MADE {
        let told = std::cell::Cell::new([0; 2]);
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
            let [deferred, confirmed] = told.get();
            told.set([deferred + later.1[0], confirmed + later.1[1]]);
        });
        let [deferred, confirmed] = told.get();
        assert!(deferred > 10_000, "{}: only {deferred} hits were told of later", made.0);
        let has_region = made.0 == "austere";
        assert_eq!(confirmed > 5_000, has_region, "{}: {confirmed} hits that a metadata slot told of", made.0);
    }
}

/// All mappings of a design, by address.
fn mappings_of(design: &Decider) -> String {
    let pieces = 0..design.export_pieces();
    let mut mappings: Vec<_> = pieces.flat_map(|piece| design.export_mappings(piece)).collect();
    mappings.sort_unstable_by_key(|mapping| mapping.lba);
    format!("{mappings:?} {:?} {:?}", design.export_runs(), design.dirty_counts())
}

/// Some steps, and a run of addresses.
fn run_of(seed: u64, made: &Made) -> (World, Lba, u64) {
    let mut world = World::new(seed, Manner::Plainly, made);
    (0..STEPS / 4).for_each(|_| world.step());
    let mut rng = Rng::new(seed);
    let first = rng.below(LBAS);
    (world, Lba(first), rng.below(LBAS - first) + 1)
}

#[test]
fn a_run_is_unmapped_as_its_addresses_are_one_by_one() {
    for made in &MADE {
        let forgotten = std::cell::Cell::new(0);
        for_seeds(0..60, |seed| {
            let ((mut whole, first, count), (mut single, ..)) = (run_of(seed, made), run_of(seed, made));
            let logged = whole.design().unmap_each(first, count, Leaving::All);
            let mut any = false;
            for lba in (first.0..first.0 + count).map(Lba) {
                let is_forgotten = single.design().is_forgotten(lba);
                let is_logged = single.design().unmap(lba);
                assert!(!(is_forgotten && is_logged), "{}: {lba:?}", made.0);
                forgotten.set(forgotten.get() + u32::from(is_forgotten));
                any |= is_logged;
            }
            assert_eq!((made.0, logged), (made.0, any));
            assert_eq!(mappings_of(whole.design()), mappings_of(single.design()), "{}", made.0);
            // The data that the origin lacks stays.
            let ((mut clean, ..), (mut single, ..)) = (run_of(seed, made), run_of(seed, made));
            clean.design().unmap_each(first, count, Leaving::Clean);
            for lba in (first.0..first.0 + count).map(Lba) {
                let design = single.design();
                let is_trimmed = design.trimmed_from(lba).is_some_and(|run| run.first <= lba);
                if !is_trimmed && design.dirty_seq(lba).is_none() {
                    design.unmap(lba);
                }
            }
            assert_eq!(mappings_of(clean.design()), mappings_of(single.design()), "{}", made.0);
        });
        let share_entries = made.0 == "austere";
        assert_eq!(forgotten.get() < 100, share_entries, "{}: {} were forgotten", made.0, forgotten.get());
    }
}

/// A walk over the addresses of the run would never end.
#[test]
fn a_run_of_any_length_costs_what_is_mapped_in_it() {
    const LONG: u64 = 1 << 50;
    for made in &MADE {
        for_seeds(0..10, |seed| {
            let mut untouched = World::new(seed, Manner::Plainly, made);
            for leaving in [Leaving::Clean, Leaving::All] {
                assert!(!untouched.design().unmap_each(Lba(0), LONG, leaving), "{}: nothing is mapped", made.0);
                assert!(!untouched.design.is_forgetting_logged(Lba(0), LONG));
            }
            let (mut world, ..) = run_of(seed, made);
            let dirty = world.design.dirty_counts();
            assert!(world.design.is_forgetting_logged(Lba(0), LONG), "{}", made.0);
            assert!(world.design().unmap_each(Lba(0), LONG, Leaving::Clean) || dirty.chunks + dirty.runs > 0);
            assert_eq!(world.design.dirty_counts(), dirty, "{}", made.0);
            world.design().unmap_each(Lba(0), LONG, Leaving::All);
            assert_eq!(world.design.dirty_counts().chunks + world.design.dirty_counts().runs, 0);
            assert!((0..LBAS).all(|lba| world.design.peek(Lba(lba)) == Lookup::Miss), "{}", made.0);
            // A checkpoint has none of it any more.
            (0..3).for_each(|_| {
                world.design().begin_export();
                world.design().export_is_durable();
            });
            assert!(!world.design().unmap_each(Lba(0), LONG, Leaving::All), "{}", made.0);
        });
    }
}
