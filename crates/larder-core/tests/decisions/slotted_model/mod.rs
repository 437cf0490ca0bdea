//! The designs with equal slots against plain models, over a flash, an origin and a volume of
//! bytes.
//!
//! Content changes, trims and background destages run in each write policy. Each request is
//! followed by a check of every address: flash has its newest content, or else the origin does.

mod models;

use std::collections::{BTreeMap, BTreeSet};

use larder_core::{
    Fingerprint, Lba,
    arc::Arc,
    d_arc::DArc,
    d_lru::DLru,
    lru::Lru,
    slotted::{DataStep, Decision, MetadataEntry, Orphans, Slotted},
};
use models::{ArcModel, Counts, DArcModel, DLruModel, LruModel, Model, Outcome, Step};
use proptest::{prelude::*, test_runner::RngSeed};

/// Number of addresses; one of them is the largest possible.
const LBAS: u64 = 24;

#[derive(Clone, Copy, Debug)]
enum Op {
    Read(u64),
    Write(u64, u8),
    Trim(u64),
    Clean(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Back,
    Through,
    Around,
}

fn ops(contents: u8) -> impl Strategy<Value = Vec<Op>> {
    // Some addresses get more requests than others.
    let lba = || prop_oneof![0..LBAS, 0..LBAS / 4];
    let op = prop_oneof![
        8 => lba().prop_map(Op::Read),
        8 => (lba(), 1..=contents).prop_map(|(lba, content)| Op::Write(lba, content)),
        1 => lba().prop_map(Op::Trim),
        1 => lba().prop_map(Op::Clean),
    ];
    prop::collection::vec(op, 1..400)
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Back), Just(Policy::Through), Just(Policy::Around)]
}

fn lba_of(number: u64) -> Lba {
    Lba(if number == LBAS - 1 { (1 << 40) - 1 } else { number })
}

fn fingerprint_of(content: u8) -> Fingerprint {
    let mut bytes = [0; 16];
    bytes[15] = content;
    Fingerprint(bytes)
}

/// A design and its model, over devices.
struct World<D, M> {
    design: D,
    model: M,
    policy: Policy,
    /// The data that clients see.
    volume: BTreeMap<u64, u8>,
    origin: BTreeMap<u64, u8>,
    flash: BTreeMap<u32, u8>,
    decision: Decision,
}

impl<D: Slotted, M: Model> World<D, M> {
    fn new(design: D, model: M, policy: Policy) -> Self {
        let initial: BTreeMap<u64, u8> = (0..LBAS).map(|lba| (lba, (lba % 5) as u8)).collect();
        let (volume, origin) = (initial.clone(), initial);
        World { design, model, policy, volume, origin, flash: BTreeMap::new(), decision: Decision::default() }
    }

    fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(*op);
            self.check();
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Read(lba) => {
                let before = self.design.lookup(lba_of(lba));
                let found = self.design.read(lba_of(lba), &mut self.decision);
                assert_eq!(found, before);
                match self.model.read(lba) {
                    Some(expected) => {
                        assert_eq!(self.flash.get(&found.expect("the model has a hit").0), self.volume.get(&lba));
                        self.execute(lba, expected);
                    }
                    None => {
                        assert_eq!((found, &self.decision), (None, &Decision::default()));
                        self.put(lba, self.volume[&lba], false);
                    }
                }
            }
            Op::Write(lba, content) => {
                self.volume.insert(lba, content);
                if self.policy != Policy::Back {
                    self.origin.insert(lba, content);
                }
                match self.policy {
                    Policy::Around => self.forget(lba),
                    _ => self.put(lba, content, self.policy == Policy::Back),
                }
            }
            Op::Trim(lba) => {
                self.volume.insert(lba, 0);
                self.origin.insert(lba, 0);
                self.forget(lba);
            }
            Op::Clean(lba) => {
                let is_dirty = self.design.is_dirty(lba_of(lba));
                if is_dirty {
                    self.origin.insert(lba, self.volume[&lba]);
                }
                assert_eq!(self.design.clean(lba_of(lba)), is_dirty);
                self.model.clean(lba);
            }
        }
    }

    fn put(&mut self, lba: u64, content: u8, is_dirty: bool) {
        let before = self.design.lookup(lba_of(lba));
        let changes = before.is_none()
            || self.design.is_dirty(lba_of(lba)) != is_dirty
            || before.is_some_and(|slot| self.flash[&slot.0] != content);
        self.design.put(lba_of(lba), &fingerprint_of(content), is_dirty, &mut self.decision);
        if let DataStep::Store { slot, evicts } = self.decision.data {
            let is_used = self.flash.contains_key(&slot.0) && !self.decision.freed.contains(&slot);
            // An address may overwrite its own chunk, even if it counts as evicted.
            assert!(evicts == is_used || is_used && before == Some(slot), "slot {slot:?}");
            assert!(u64::from(slot.0) < self.design.sizes().data_chunks);
        }
        // An address without data may have had this content already, on flash as in RAM.
        if changes && before.is_some() && self.design.sizes().entry_bytes > 8 {
            assert!(self.decision.changed.iter().any(|entry| matches!(entry, MetadataEntry::Address(_))));
        }
        let expected = self.model.put(lba, content, is_dirty);
        self.execute(lba, expected);
        if matches!(expected_step(&self.decision), Step::Store { .. }) {
            let slot = self.design.lookup(lba_of(lba)).expect("what was put is there");
            self.flash.insert(slot.0, content);
        }
    }

    fn forget(&mut self, lba: u64) {
        self.design.forget(lba_of(lba), &mut self.decision);
        let expected = self.model.forget(lba);
        self.execute(lba, expected);
    }

    /// Executes a decision, except the write of new data, and compares.
    fn execute(&mut self, lba: u64, expected: Outcome) {
        let decision = &self.decision;
        let mut destaged = BTreeSet::new();
        for destage in &decision.destage {
            let number = (0..LBAS).find(|&number| lba_of(number) == destage.lba).expect("an address of ours");
            assert_ne!(number, lba, "what is asked for is not destaged");
            assert_eq!(self.flash.get(&destage.slot.0), self.volume.get(&number), "the newest data of {number}");
            self.origin.insert(number, self.volume[&number]);
            assert!(destaged.insert(number), "{number} is destaged twice");
        }
        for slot in &decision.freed {
            assert!(self.flash.remove(&slot.0).is_some());
        }
        let (step, freed) = (expected_step(decision), decision.freed.len());
        let found = Outcome { was_cached: decision.was_cached, step, freed, destaged };
        assert_eq!(found, expected);
    }

    fn check(&mut self) {
        for lba in 0..LBAS {
            let newest = self.volume[&lba];
            let found = self.design.lookup(lba_of(lba)).map(|slot| self.flash[&slot.0]);
            assert_eq!(found, self.model.cached(lba), "address {lba}");
            match found {
                Some(content) => assert_eq!(content, newest, "address {lba}"),
                None => {
                    assert!(!self.design.is_dirty(lba_of(lba)));
                    assert_eq!(self.origin[&lba], newest, "address {lba}, not on flash");
                }
            }
            assert!(self.design.is_dirty(lba_of(lba)) || self.origin[&lba] == newest);
        }
        let stats = self.design.stats();
        let found = Counts {
            mapped: stats.mapped_chunks,
            dirty: stats.dirty_chunks,
            live: stats.live_slots,
            stale: stats.stale_slots,
            ghosts: stats.ghosts,
        };
        assert_eq!(found, self.model.counts());
        assert_eq!(stats.live_slots + stats.stale_slots, self.flash.len() as u64);
        assert!(stats.mapped_chunks + stats.ghosts <= self.design.sizes().addresses);
    }
}

fn expected_step(decision: &Decision) -> Step {
    match decision.data {
        DataStep::Nothing => Step::Nothing,
        DataStep::Map(_) => Step::Map,
        DataStep::Store { evicts, .. } => Step::Store { evicts },
    }
}

fn d_lru(chunks: usize, addresses: usize, orphans: Orphans, policy: Policy) -> World<DLru, DLruModel> {
    let model = DLruModel { chunks, addresses, metadata: vec![], data: vec![], orphans };
    let design = DLru::new(chunks as u64, addresses as u64).expect("a size");
    World::new(design.with_orphans(orphans), model, policy)
}

fn d_arc(chunks: usize, extra: usize, orphans: Orphans, policy: Policy) -> World<DArc, DArcModel> {
    let design = DArc::new(chunks as u64, extra as u64).expect("a size");
    World::new(design.with_orphans(orphans), DArcModel::new(chunks, extra, orphans), policy)
}

fn orphans() -> impl Strategy<Value = Orphans> {
    prop_oneof![Just(Orphans::Keep), Just(Orphans::Forget)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(20_260), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lru_is_its_model(chunks in 1usize..12, policy in policy(), ops in ops(20)) {
        let model = LruModel { chunks, list: vec![] };
        World::new(Lru::new(chunks as u64).unwrap(), model, policy).run(&ops);
    }

    #[test]
    fn arc_is_its_model(chunks in 1usize..12, policy in policy(), ops in ops(20)) {
        let mut world = World::new(Arc::new(chunks as u64).unwrap(), ArcModel::new(chunks), policy);
        world.run(&ops);
        prop_assert_eq!(world.design.target(), world.model.p);
    }

    #[test]
    fn d_lru_is_its_model(
        chunks in 1usize..12,
        more in 0usize..12,
        orphans in orphans(),
        policy in policy(),
        ops in ops(30),
    ) {
        d_lru(chunks, chunks + more, orphans, policy).run(&ops);
    }

    #[test]
    fn d_lru_is_its_model_where_much_is_the_same(
        chunks in 1usize..6,
        more in 0usize..20,
        orphans in orphans(),
        policy in policy(),
        ops in ops(7),
    ) {
        d_lru(chunks, chunks + more, orphans, policy).run(&ops);
    }

    #[test]
    fn d_arc_is_its_model(
        chunks in 1usize..10,
        extra in 0usize..10,
        orphans in orphans(),
        policy in policy(),
        ops in ops(30),
    ) {
        let mut world = d_arc(chunks, extra, orphans, policy);
        world.run(&ops);
        prop_assert_eq!(world.design.target(), world.model.p);
    }

    #[test]
    fn d_arc_is_its_model_where_much_is_the_same(
        chunks in 1usize..6,
        extra in 0usize..12,
        orphans in orphans(),
        policy in policy(),
        ops in ops(7),
    ) {
        let mut world = d_arc(chunks, extra, orphans, policy);
        world.run(&ops);
        prop_assert_eq!(world.design.target(), world.model.p);
    }

    /// CacheDedup's P1 and P2, proved there for content that never changes.
    #[test]
    fn d_lru_wastes_nothing(
        chunks in 1u64..10,
        more in 0u64..14,
        contents in 1u64..24,
        requests in prop::collection::vec((0..LBAS, any::<bool>()), 1..600),
    ) {
        let mut design = DLru::new(chunks, chunks + more).unwrap();
        let mut decision = Decision::default();
        for (lba, is_write) in requests {
            let content = fingerprint_of((lba * 7 % contents) as u8);
            if is_write || design.read(Lba(lba), &mut decision).is_none() {
                design.put(Lba(lba), &content, is_write, &mut decision);
            }
            let stats = design.stats();
            prop_assert!(stats.stale_slots == 0 || stats.ghosts == 0, "{stats:?}");
        }
    }

    /// CacheDedup §3.1: content without references is forgotten, so each used slot has an address.
    #[test]
    fn where_orphans_are_forgotten_each_slot_in_use_has_an_address(
        chunks in 1u64..10,
        more in 0u64..14,
        requests in prop::collection::vec((0..LBAS, 1u8..30), 1..600),
    ) {
        let d_lru = DLru::new(chunks, chunks + more).unwrap().with_orphans(Orphans::Forget);
        let d_arc = DArc::new(chunks, more).unwrap().with_orphans(Orphans::Forget);
        let mut designs: [Box<dyn Slotted>; 2] = [Box::new(d_lru), Box::new(d_arc)];
        let mut decision = Decision::default();
        for (lba, content) in requests {
            for design in &mut designs {
                design.put(Lba(lba), &fingerprint_of(content), true, &mut decision);
                prop_assert_eq!(design.stats().stale_slots, 0);
            }
        }
    }

    /// The same calls give the same decisions.
    #[test]
    fn decisions_are_deterministic(chunks in 1u64..8, extra in 0u64..8, ops in ops(20)) {
        let run = || {
            let mut design = DArc::new(chunks, extra).unwrap();
            let mut decisions = vec![];
            for op in &ops {
                let mut decision = Decision::default();
                match *op {
                    Op::Read(lba) => {
                        design.read(Lba(lba), &mut decision);
                    }
                    Op::Write(lba, content) => design.put(Lba(lba), &fingerprint_of(content), true, &mut decision),
                    Op::Trim(lba) => {
                        design.forget(Lba(lba), &mut decision);
                    }
                    Op::Clean(lba) => {
                        design.clean(Lba(lba));
                    }
                }
                decisions.push(decision);
            }
            decisions
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn designs_can_be_sent() {
    fn is_send<T: Send>() {}
    is_send::<Lru>();
    is_send::<Arc>();
    is_send::<DLru>();
    is_send::<DArc>();
}
