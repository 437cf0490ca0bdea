//! The RAM of `larder`, against the maximum that the RAM budget counts.
//!
//! Each case is as bad as its kind allows: addresses without neighbours, contents without order,
//! beliefs beyond all room, and blocks of contents of which few stay.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Decider, DesignConfig, Fingerprint, Lba, Lookup, NewMapping, Place, StreamClass,
    design::{Mapping, Slots, Wanted},
    larder::{INDEX_BYTES_MAX, Larder},
    ledger::DIRTY_SHARE_BYTES_MAX,
};

const SLOT_BYTES: u32 = 512 << 10;
const MAPPINGS: u64 = 20_000;
/// Requests of a case: its bytes are looked at along the way.
const REQUESTS: u64 = 400_000;

/// The choice of addresses and contents.
struct Case {
    name: &'static str,
    stored_len: u32,
    /// Addresses, and the step between two.
    addresses: (u64, u64),
    contents: u64,
    writes_percent: u64,
    /// True if contents in a row go to addresses in a row.
    is_ordered: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "addresses without neighbours",
        stored_len: 900,
        addresses: (100_000, 1000),
        contents: u64::MAX,
        writes_percent: 30,
        is_ordered: false,
    },
    Case {
        name: "neighbours with contents in any order",
        stored_len: 900,
        addresses: (120_000, 1),
        contents: 60_000,
        writes_percent: 10,
        is_ordered: false,
    },
    Case {
        name: "beliefs of contents that are unique",
        stored_len: 900,
        addresses: (300_000, 1),
        contents: u64::MAX,
        writes_percent: 0,
        is_ordered: false,
    },
    Case {
        name: "few of a block stay",
        stored_len: 900,
        addresses: (60_000, 3),
        contents: u64::MAX,
        writes_percent: 80,
        is_ordered: false,
    },
    Case {
        name: "neighbours in order",
        stored_len: 900,
        addresses: (60_000, 1),
        contents: u64::MAX,
        writes_percent: 5,
        is_ordered: true,
    },
];

struct World {
    design: Decider<Larder>,
    open: Option<(larder_core::SlotId, u32, u32)>,
    seq: u64,
}

impl World {
    fn new() -> World {
        let config = DesignConfig { slot_count: 40, mappings_max: MAPPINGS, fp_entries_max: MAPPINGS };
        World { design: Decider::new(Box::new(Larder::new(config))), open: None, seq: 0 }
    }

    fn append(&mut self, len: u32) -> Place {
        loop {
            if let Some((slot, generation, end)) = self.open.filter(|(.., end)| end + len <= SLOT_BYTES) {
                self.open = Some((slot, generation, end + len));
                return Place { slot, generation, offset: end, stored_len: len, crc: end, encoding: 1 };
            }
            if let Some((full, ..)) = self.open.take() {
                self.design.seal_slot(full);
            }
            while self.design.free_slots() < 2 {
                self.evict();
            }
            let (slot, generation) = self.design.open_slot(StreamClass::Dirty).expect("it is free");
            self.open = Some((slot, generation, 0));
        }
    }

    fn evict(&mut self) {
        let victim = self.design.choose_victim(&mut |_| false).expect("a full one");
        for lba in self.design.dirty_in(victim.slot) {
            let seq = self.design.dirty_seq(lba).expect("it is dirty");
            self.design.mark_clean(lba, seq);
        }
        self.design.evict(victim.slot).expect("nothing is dirty");
        self.design.release_slot(victim.slot);
    }

    fn map(&mut self, lba: Lba, content: u64, len: u32, is_dirty: bool) {
        while !self.design.has_room(1) {
            match self.open.take() {
                Some((slot, ..)) => self.design.seal_slot(slot),
                None => self.evict(),
            }
        }
        let fingerprint = Fingerprint(std::array::from_fn(|at| Rng::new(content ^ (at as u64) << 56).bits() as u8));
        let new = match self.design.find_duplicate(&fingerprint) {
            Some(place) => NewMapping::Duplicate { place },
            None => {
                let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: len };
                if !is_dirty && !self.design.admits(&wanted) {
                    return;
                }
                NewMapping::Unique { place: self.append(len), fingerprint: Some(fingerprint) }
            }
        };
        self.seq += 1;
        self.design.map(lba, new, is_dirty.then_some(self.seq));
    }
}

#[test]
fn no_addresses_or_contents_take_more_ram_than_the_budget_counts() {
    let most = INDEX_BYTES_MAX - DIRTY_SHARE_BYTES_MAX;
    for case in &CASES {
        for_seeds(0..2, |seed| {
            let mut rng = Rng::new(seed);
            let mut world = World::new();
            let (mut largest, mut fresh) = (0, 1 << 40);
            for request in 0..REQUESTS {
                let at = if case.is_ordered { request % case.addresses.0 } else { rng.below(case.addresses.0) };
                let lba = Lba(at * case.addresses.1);
                let is_write = rng.chance(case.writes_percent);
                fresh += 1;
                let content = if case.contents == u64::MAX { fresh } else { rng.below(case.contents) };
                if is_write {
                    world.map(lba, content, case.stored_len, true);
                } else if world.design.lookup(lba) == Lookup::Miss {
                    world.map(lba, content, case.stored_len, false);
                }
                if request % 500 == 0 {
                    let stats = world.design.stats();
                    largest = largest.max(stats.ram_bytes() - stats.dirty_ram_bytes);
                }
            }
            let each = largest as f64 / MAPPINGS as f64;
            println!("seed {seed}: {}: {each:.1} bytes a mapping of {most}", case.name);
            assert!(each <= most as f64, "{}: {each:.1} bytes a mapping, where {most} are counted", case.name);
        });
    }
}
