//! `larder` against a plain memory of addresses, with calls as from an engine.
//!
//! Records are appended to open slots; refused chunks are not. Duplicates, zeroes, fragments,
//! trims and destages follow, with evictions all the time, and restarts from a checkpoint in
//! between. A hit has to have the newest content of its address. So has a belief: the address is
//! mapped by it again. A model of log and checkpoint has the mappings that a crash would bring
//! back: each is right at any time, and no transient one is among them.
//!
//! The memory does not know the choices: a victim has to be one that may go.

use crate::{
    common::{Rng, for_seeds},
    slotted::mapped_again,
};
use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass,
    design::{Mapping, Persist, Slots, ToldBy, Wanted},
    history::{PAGE_BYTES, Trust},
    larder::Larder,
    limits::mappings_in_short_checkpoint,
    ranges::Run,
    slots::SlotState,
};
use std::collections::{BTreeMap, HashMap};

/// Capacity of a slot in bytes.
const SLOT_BYTES: u32 = 64 << 10;
const ADDRESSES: u64 = 400;
const CONTENTS: u64 = 300;

fn fingerprint_of(content: u64) -> Fingerprint {
    let mut rng = Rng::new(content);
    Fingerprint(std::array::from_fn(|_| rng.bits() as u8))
}

/// The data of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Zeroes,
    Content(u64),
    /// Some sectors alone are known.
    Part,
}

/// The address of a record, its place, and the fingerprint of a whole chunk.
type TableEntry = (u64, Place, Option<Fingerprint>);

struct World {
    rng: Rng,
    design: Decider<Larder>,
    config: DesignConfig,
    /// The newest data of each address that was written or read, whether cached or not.
    newest: BTreeMap<u64, Data>,
    dirty: BTreeMap<u64, u64>,
    /// The content of each record: slot, generation and offset. `None` for a part.
    records: HashMap<(u32, u32, u32), Option<u64>>,
    /// The entries of the record tables, by the same.
    tables: HashMap<(u32, u32, u32), TableEntry>,
    /// The data that a crash would bring back for an address, with the slot of its record.
    durable: BTreeMap<u64, (Data, Option<SlotId>)>,
    open: [Option<(SlotId, u32, u32)>; 2],
    victims: Vec<SlotId>,
    seq: u64,
    hits: u64,
    revived: u64,
    restored_beliefs: u64,
    refused: u64,
    kept: u64,
    transient: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let config = DesignConfig {
            slot_count: 4 + rng.below(12) as u32,
            mappings_max: rng.one_of(&[60, 200, 2000]),
            fp_entries_max: rng.one_of(&[0, 2000, 2000]),
        };
        World {
            rng,
            design: Decider::new(Box::new(Larder::new(config))),
            config,
            newest: BTreeMap::new(),
            dirty: BTreeMap::new(),
            records: HashMap::new(),
            tables: HashMap::new(),
            durable: BTreeMap::new(),
            open: [None, None],
            victims: Vec::new(),
            seq: 0,
            hits: 0,
            revived: 0,
            restored_beliefs: 0,
            refused: 0,
            kept: 0,
            transient: 0,
        }
    }

    fn key(place: &Place) -> (u32, u32, u32) {
        (place.slot.0, place.generation, place.offset)
    }

    /// Appends a record; `None` without a slot.
    fn append(&mut self, lba: u64, is_dirty: bool, len: u32, content: Option<u64>) -> Option<Place> {
        let class = usize::from(is_dirty);
        loop {
            let Some((slot, generation, end)) = self.open[class] else {
                let wanted = if is_dirty { StreamClass::Dirty } else { StreamClass::Clean };
                let (slot, generation) = self.design.open_slot(wanted)?;
                self.open[class] = Some((slot, generation, 64));
                continue;
            };
            if end + len > SLOT_BYTES {
                self.design.seal_slot(slot);
                self.open[class] = None;
                continue;
            }
            self.open[class] = Some((slot, generation, end + len));
            let place = Place { slot, generation, offset: end, stored_len: len, crc: end ^ len, encoding: 1 };
            self.records.insert(Self::key(&place), content);
            self.tables.insert(Self::key(&place), (lba, place, content.map(fingerprint_of)));
            return Some(place);
        }
    }

    fn map(&mut self, lba: u64, new: NewMapping, is_dirty: bool) {
        self.seq += 1;
        let seq = is_dirty.then_some(self.seq);
        self.design.map(Lba(lba), new, seq);
        match seq {
            Some(seq) => _ = self.dirty.insert(lba, seq),
            None => _ = self.dirty.remove(&lba),
        }
        if self.design.is_transient(Lba(lba)) {
            assert!(!is_dirty && !self.durable.contains_key(&lba), "a crash forgets {lba}");
            self.transient += 1;
            return;
        }
        let slot = match new {
            NewMapping::Zero => None,
            NewMapping::Unique { place, .. } | NewMapping::Duplicate { place } | NewMapping::Fragment { place, .. } => {
                Some(place.slot)
            }
        };
        self.durable.insert(lba, (self.newest[&lba], slot));
    }

    /// Forgets the copy of a chunk that the origin is about to lose.
    fn suspend(&mut self, lba: u64) {
        if !self.design.suspend(Lba(lba)) {
            assert!(!self.durable.contains_key(&lba), "a crash would bring {lba} back");
            return;
        }
        let (first, count) = self.design.retreat(Lba(lba), 1);
        assert!((first.0..first.0 + count).contains(&lba));
        for lba in first.0..first.0 + count {
            assert!(!self.dirty.contains_key(&lba), "dirty data of {lba} would be lost");
            self.durable.remove(&lba);
        }
    }

    /// Stores a content for an address as the engine does. Returns whether it is mapped then.
    fn insert(&mut self, lba: u64, content: u64, is_dirty: bool) -> bool {
        let fingerprint = Some(fingerprint_of(content)).filter(|_| self.config.fp_entries_max > 0);
        if let Some(place) = fingerprint.and_then(|known| self.design.find_duplicate(&known)) {
            assert_eq!(self.records[&Self::key(&place)], Some(content), "a duplicate has this content");
            self.map(lba, NewMapping::Duplicate { place }, is_dirty);
            return true;
        }
        let wanted = Wanted { lba: Lba(lba), fingerprint, stored_len: 500 + (content * 37 % 8000) as u32 };
        if !is_dirty && !self.design.admits(&wanted) {
            self.refused += 1;
            assert_eq!(self.design.peek(Lba(lba)), Lookup::Miss, "a refused chunk is not mapped");
            return false;
        }
        let Some(place) = self.append(lba, is_dirty, wanted.stored_len, Some(content)) else { return false };
        self.map(lba, NewMapping::Unique { place, fingerprint }, is_dirty);
        true
    }

    /// Makes room and a free slot.
    fn make_room(&mut self) {
        for _ in 0..100 {
            if self.design.has_room(1) && self.design.free_slots() > 1 {
                return;
            }
            self.evict_one();
        }
    }

    fn evict_one(&mut self) {
        for class in 0..2 {
            if self.design.free_slots() == 0
                && let Some((slot, _, _)) = self.open[class].take()
            {
                self.design.seal_slot(slot);
            }
        }
        let busy = SlotId(self.rng.below(u64::from(self.config.slot_count)) as u32);
        let Some(victim) = self.design.choose_victim(&mut |slot| slot == busy) else {
            // The index is full of chunks in open slots.
            for class in 0..2 {
                if let Some((slot, _, _)) = self.open[class].take() {
                    self.design.seal_slot(slot);
                }
            }
            return;
        };
        assert!(victim.slot != busy && !self.victims.contains(&victim.slot));
        let dirty = self.design.dirty_in(victim.slot);
        assert_eq!(dirty.is_empty(), victim.dirty_refs == 0);
        if !dirty.is_empty() {
            assert_eq!(self.design.evict(victim.slot), None, "dirty data stays");
            if self.rng.chance(20) {
                self.design.spare_victim(victim.slot);
                return;
            }
            dirty.into_iter().for_each(|lba| self.destage(lba.0));
        }
        let kept = self.design.survivors(victim.slot);
        let kept: Vec<_> = kept.into_iter().filter(|kept| self.records[&Self::key(&kept.place)].is_some()).collect();
        let bytes: u64 = kept.iter().map(|kept| u64::from(kept.place.stored_len)).sum();
        assert!(bytes <= u64::from(SLOT_BYTES) / 2, "an eviction frees space");
        let contents: Vec<_> = kept.iter().map(|kept| self.records[&Self::key(&kept.place)]).collect();
        for kept in &kept {
            let found = self.design.peek(kept.lba);
            assert!(matches!(found, Lookup::Chunk { place, .. } if place == kept.place), "its address maps to it");
        }
        assert!(self.design.evict(victim.slot).is_some());
        self.records.retain(|(slot, _, _), _| *slot != victim.slot.0);
        self.durable.retain(|_, (_, slot)| *slot != Some(victim.slot));
        self.design.release_slot(victim.slot);
        for (kept, content) in kept.into_iter().zip(contents) {
            let content = content.expect("a whole chunk");
            assert_eq!(kept.fingerprint, fingerprint_of(content));
            if self.design.has_room(1) && self.rng.chance(90) {
                self.kept += u64::from(self.insert(kept.lba.0, content, false));
            }
        }
    }

    fn destage(&mut self, lba: u64) {
        let seq = self.dirty.remove(&lba).expect("it is dirty");
        assert!(self.design.mark_clean(Lba(lba), seq));
        if self.newest.get(&lba) == Some(&Data::Part) {
            assert_eq!(self.design.peek(Lba(lba)), Lookup::Miss, "a clean fragment is forgotten");
            self.durable.remove(&lba);
            // The origin has the rest; from here on the content is a whole one.
            self.newest.insert(lba, Data::Content(CONTENTS + lba));
        }
    }

    fn read(&mut self, lba: u64) {
        let found = self.design.lookup(Lba(lba));
        self.confirm(lba, found);
        if found != Lookup::Miss {
            self.hits += 1;
            return;
        }
        let data = *self.newest.entry(lba).or_insert(Data::Content(lba % CONTENTS));
        if let Some(fingerprint) = self.design.remembered(Lba(lba)) {
            assert_eq!(data, self.content_of(&fingerprint), "a belief is true");
            if self.design.has_room(1) {
                let place = self.design.find_duplicate(&fingerprint).expect("it is stored");
                self.map(lba, NewMapping::Duplicate { place }, false);
                self.revived += 1;
                self.confirm(lba, self.design.peek(Lba(lba)));
            }
            return;
        }
        self.make_room();
        match data {
            Data::Zeroes => self.map(lba, NewMapping::Zero, false),
            Data::Content(content) => _ = self.insert(lba, content, false),
            Data::Part => {}
        }
    }

    fn content_of(&self, fingerprint: &Fingerprint) -> Data {
        let content = (0..CONTENTS + ADDRESSES).find(|&content| fingerprint_of(content) == *fingerprint);
        Data::Content(content.expect("a content of this test"))
    }

    /// Checks an answer for an address.
    fn confirm(&self, lba: u64, found: Lookup) {
        let data = self.newest.get(&lba).copied();
        match found {
            Lookup::Miss => assert!(!self.dirty.contains_key(&lba), "dirty data of {lba} is lost"),
            Lookup::Zero => assert_eq!(data, Some(Data::Zeroes)),
            Lookup::Chunk { place, .. } => {
                let content = self.records.get(&Self::key(&place)).copied().flatten();
                assert_eq!(data, content.map(Data::Content), "the record of {lba}");
            }
            Lookup::Fragment { place, sectors } => {
                assert_eq!((data, self.records.get(&Self::key(&place))), (Some(Data::Part), Some(&None)));
                assert!(sectors.has(3));
            }
        }
    }

    fn write(&mut self, lba: u64) {
        self.make_room();
        let is_back = self.rng.chance(50);
        if !is_back {
            self.dirty.remove(&lba);
            self.suspend(lba);
        }
        let draw = self.rng.below(100);
        let data = match draw {
            0..8 => Data::Zeroes,
            8..14 if is_back => Data::Part,
            _ => Data::Content(self.rng.skewed(CONTENTS)),
        };
        let before = self.newest.insert(lba, data);
        match data {
            Data::Zeroes => self.map(lba, NewMapping::Zero, is_back),
            Data::Content(content) => {
                if !self.insert(lba, content, is_back) && is_back {
                    // No slot: the write did not happen.
                    self.restore_newest(lba, before);
                }
            }
            Data::Part => match self.append(lba, true, 600, None) {
                Some(place) => {
                    let mut sectors = SectorMap::EMPTY;
                    sectors.set(3, 5);
                    self.map(lba, NewMapping::Fragment { place, sectors }, true);
                }
                None => self.restore_newest(lba, before),
            },
        }
    }

    fn restore_newest(&mut self, lba: u64, before: Option<Data>) {
        match before {
            Some(before) => _ = self.newest.insert(lba, before),
            None => _ = self.newest.remove(&lba),
        }
    }

    fn trim(&mut self, first: u64) {
        let count = 1 + self.rng.below(40);
        self.seq += 1;
        let run = Run { first: Lba(first), count, seq: self.seq, no_hole: false, advisory: false };
        self.design.trim(run);
        for lba in first..first + count {
            self.dirty.remove(&lba);
            self.durable.remove(&lba);
            self.newest.insert(lba, Data::Zeroes);
        }
    }

    fn step(&mut self) {
        let lba = self.rng.skewed(ADDRESSES);
        match self.rng.below(100) {
            0..55 => self.read(lba),
            55..85 => self.write(lba),
            85..88 => self.trim(lba),
            88..94 => {
                let dirty: Vec<u64> = self.dirty.keys().copied().collect();
                if let Some(lba) = self.rng.pick(&dirty) {
                    self.destage(lba);
                }
            }
            94..96 => {
                let dropped = self.design.drop_clean_zeroes(self.rng.chance(50), 20);
                for lba in dropped {
                    assert!(!self.dirty.contains_key(&lba.0));
                    assert_eq!(self.design.peek(lba), Lookup::Miss);
                    self.durable.remove(&lba.0);
                }
            }
            _ => self.evict_one(),
        }
    }

    /// Checks all answers and counts. Returns the mappings that a checkpoint must have.
    fn check(&self) -> u64 {
        let (mut mapped, mut needed, mut dirty) = (0, 0, 0);
        for lba in 0..ADDRESSES + CONTENTS {
            let found = self.design.peek(Lba(lba));
            self.confirm(lba, found);
            let is_trimmed = self.design.trimmed_from(Lba(lba)).is_some_and(|run| run.first.0 <= lba);
            mapped += u64::from(found != Lookup::Miss && !is_trimmed);
            let has_own = matches!(found, Lookup::Chunk { duplicate: false, .. } | Lookup::Fragment { .. });
            let is_dirty = self.dirty.contains_key(&lba);
            dirty += u64::from(!is_trimmed && is_dirty);
            needed += u64::from(!is_trimmed && (has_own || is_dirty));
            let seq = self.design.dirty_seq(Lba(lba)).filter(|_| !is_trimmed);
            assert_eq!(seq, self.dirty.get(&lba).copied(), "{lba}: {found:?}");
        }
        let stats = self.design.stats();
        assert_eq!(stats.mapped_chunks, mapped, "the count of mappings");
        assert_eq!(stats.dirty_chunks, self.dirty.len() as u64);
        let has_room = self.design.has_room(1);
        assert!(
            has_room
                || dirty >= mappings_in_short_checkpoint(self.config.mappings_max)
                || mapped >= self.config.mappings_max
        );
        let room = mappings_in_short_checkpoint(self.config.mappings_max);
        assert!(!has_room || dirty < room, "{dirty} mappings have to be in a checkpoint");
        for (lba, (data, _)) in &self.durable {
            assert_eq!(self.newest.get(lba), Some(data), "a crash would bring back old data of {lba}");
        }
        let exported: usize =
            (0..self.design.export_pieces()).map(|piece| self.design.export_mappings(piece).len()).sum();
        assert_eq!(exported as u64, mapped);
        needed
    }

    /// Restores the records that the history names, with the help of their tables. Returns the
    /// number of mappings.
    fn recall(&mut self, new: &mut Decider<Larder>) -> u64 {
        let mut mapped = 0;
        while let Some(named) = new.next_recalled() {
            for recalled in named.records {
                let (lba, place, known) = self.tables[&(named.slot.0, named.generation, recalled.offset)];
                let known = known.filter(|_| recalled.is_known);
                if recalled.is_mapped {
                    assert_eq!((new.peek(Lba(lba)), lba as u16), (Lookup::Miss, recalled.lba_low));
                    new.map(Lba(lba), NewMapping::Unique { place, fingerprint: known }, None);
                    self.durable.insert(lba, (self.newest[&lba], Some(place.slot)));
                    mapped += 1;
                } else {
                    let known = known.expect("it is named for a reason");
                    new.restore_fingerprint(&known, &place, ToldBy::Checkpoint);
                }
            }
        }
        mapped
    }

    /// Restores a new cache from a checkpoint of this one.
    fn restart(&mut self) {
        let (needed, is_orderly) = (self.check(), self.rng.chance(50));
        let old = &mut self.design;
        let mut new = Decider::new(Box::new(Larder::new(self.config)));
        if is_orderly {
            old.persist_all();
        }
        old.begin_export();
        self.durable.clear();
        let mut exported = 0;
        new.begin_restore(10, 10);
        while let Some(slots) = old.next_slots() {
            for (slot, generation, state, class) in slots {
                match state {
                    SlotState::Free | SlotState::Retired if generation == 0 => {}
                    SlotState::Free | SlotState::Retired => new.restore_freed(slot, generation - 1),
                    _ => assert!(new.restore_slot(slot, generation, Some(class))),
                }
            }
        }
        for piece in 0..old.export_pieces() {
            for mapping in old.export_mappings(piece) {
                let seq = old.dirty_seq(mapping.lba);
                assert!(is_orderly || !old.is_transient(mapping.lba));
                exported += 1;
                let slot = match mapping.lookup {
                    Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot),
                    Lookup::Zero | Lookup::Miss => None,
                };
                self.durable.insert(mapping.lba.0, (self.newest[&mapping.lba.0], slot));
                assert_eq!(mapping.dirty, seq.is_some());
                new.map(mapping.lba, mapped_again(mapping.lookup), seq);
            }
        }
        old.export_runs().into_iter().for_each(|run| new.trim(run));
        while let Some(known) = old.next_fingerprints() {
            for (fingerprint, place) in known {
                new.restore_fingerprint(&fingerprint, &place, ToldBy::Checkpoint);
            }
        }
        for (page, bytes) in old.whole_history().chunks(PAGE_BYTES).enumerate() {
            assert!(new.restore_page(page, bytes));
        }
        exported += self.recall(&mut new);
        new.trust_history(if is_orderly { Trust::Whole } else { Trust::WithLog });
        new.end_restore();
        let (mapped, room) =
            (self.design.stats().mapped_chunks, mappings_in_short_checkpoint(self.config.mappings_max));
        assert!(exported <= mapped, "{exported} of {mapped}");
        let least = if mapped <= room / 4 * 3 { mapped } else { needed };
        assert!(!is_orderly || exported >= least, "{exported} of {mapped}, and {needed} are needed");
        assert!(is_orderly || new.stats().ghosts == 0, "no belief outlives a crash");
        self.restored_beliefs += new.stats().ghosts;
        self.design = new;
        self.open = [None, None];
    }
}

#[test]
fn each_hit_has_the_newest_content_of_its_address() {
    let totals = std::cell::Cell::new([0; 6]);
    for_seeds(0..60, |seed| {
        let mut world = World::new(seed);
        for _ in 0..4 {
            for step in 0..1500 {
                world.step();
                if step % 50 == 0 {
                    world.check();
                }
            }
            world.restart();
            world.check();
        }
        let World { hits, revived, restored_beliefs, refused, kept, transient, .. } = world;
        let mine = [hits, revived, restored_beliefs, refused, kept, transient];
        totals.set(std::array::from_fn(|i| totals.get()[i] + mine[i]));
    });
    let [hits, revived, restored, refused, kept, transient] = totals.get();
    assert!(hits > 10_000 && revived > 100 && restored > 100, "{:?}", totals.get());
    assert!(refused > 100 && kept > 10 && transient > 1000, "{:?}", totals.get());
}

/// Equal calls give equal answers.
#[test]
fn two_caches_with_the_same_calls_agree() {
    for_seeds(100..104, |seed| {
        let (mut one, mut other) = (World::new(seed), World::new(seed));
        for _ in 0..3000 {
            one.step();
            other.step();
        }
        assert_eq!(
            (one.hits, one.revived, one.refused, one.kept),
            (other.hits, other.revived, other.refused, other.kept)
        );
        assert_eq!(one.design.export_slots(), other.design.export_slots());
    });
}
