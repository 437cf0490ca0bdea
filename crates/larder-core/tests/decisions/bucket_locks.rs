//! Mappings of AustereCache under the locks of their buckets, after the caller gave back its own.
//!
//! Other mappings go on meanwhile, and the end is as if each had been made at once.

use crate::common::{Rng, for_seeds};
use larder_core::{
    Decider, Fingerprint, Lba, NewMapping, Place, StreamClass,
    austere::{
        AustereConfig, Bucketed,
        bucketed::{BucketedConfig, memory::MemoryRegion},
    },
    design::{Deferred, Question, Wanted},
    types::mix,
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

const CHUNK_BYTES: u32 = 8 << 10;
const ADDRESSES: u64 = 6000;
const CONTENTS: u64 = 700;
/// Fewer than addresses: some are lost to others.
const LBA_ENTRIES: u64 = 4096;
const THREADS: u64 = 4;
const STEPS: u64 = 1500;

/// A decision, for a list in order.
#[derive(Clone, Copy)]
enum Decision {
    Map(Lba, u64),
    Look(Lba),
}

/// A cache with room for all contents, and its metadata region.
struct World {
    design: Decider<Bucketed>,
    region: MemoryRegion,
    decided: Vec<Decision>,
}

fn content(number: u64) -> Fingerprint {
    Fingerprint((u128::from(mix(number)) << 64 | u128::from(mix(!number))).to_le_bytes())
}

impl World {
    fn new() -> World {
        let austere =
            AustereConfig { lba_entries: Some(LBA_ENTRIES), ..AustereConfig::new(64 << 20, CHUNK_BYTES, true) };
        let config = BucketedConfig { austere, chunk_count: ADDRESSES, exact_max: ADDRESSES };
        let design = Decider::new(Box::new(Bucketed::new(config).expect("a layout")));
        let region = MemoryRegion::new(design.core().slot_count());
        World { design, region, decided: Vec::new() }
    }

    /// Decides under the caller's lock; the deferred part may run without it.
    fn decide(&mut self, decision: Decision) -> Deferred {
        let World { design, region, decided } = self;
        let seq = decided.len() as u64;
        decided.push(decision);
        let (lba, number) = match decision {
            Decision::Map(lba, number) => (lba, number),
            Decision::Look(lba) => {
                region.inform(design, Question::Address(lba));
                design.lookup(lba);
                return Deferred::nothing();
            }
        };
        let fingerprint = content(number);
        region.inform(design, Question::Content(&fingerprint));
        let new = match design.find_duplicate(&fingerprint) {
            Some(place) => NewMapping::Duplicate { place },
            None => {
                let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK_BYTES };
                let (slot, generation) = design.open_slot_for(StreamClass::Dirty, &wanted).expect("room for all");
                let place = Place { slot, generation, offset: 0, stored_len: CHUNK_BYTES, crc: 0, encoding: 0 };
                NewMapping::Unique { place, fingerprint: Some(fingerprint) }
            }
        };
        let later = design.map_deferring(lba, new, Some(seq));
        region.write(design);
        later
    }

    fn sketch_bytes(&self) -> u64 {
        self.design.core().ram().sketch_bytes as u64
    }

    fn bytes_beside_the_sketch(&self) -> u64 {
        self.design.stats().ram_bytes() - self.sketch_bytes()
    }

    /// Returns the data of both indices, in their order.
    fn pages(&self) -> Vec<Vec<u8>> {
        (0..self.design.page_count()).map(|page| self.design.export_page(page)).collect()
    }
}

#[test]
fn mappings_beside_each_other_are_as_those_one_after_the_other() {
    for_seeds(0..12, |seed| {
        let world = Mutex::new(World::new());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let world = &world;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed << 8 | number);
                    for _ in 0..STEPS {
                        // No other thread writes the address: requests have tickets.
                        let lba = Lba(rng.below(ADDRESSES / THREADS) * THREADS + number);
                        let decision = match rng.chance(70) {
                            true => Decision::Map(lba, rng.below(CONTENTS)),
                            false => Decision::Look(lba),
                        };
                        let later = world.lock().expect("nobody failed").decide(decision);
                        if rng.chance(10) {
                            thread::yield_now();
                        }
                        drop(later);
                    }
                });
            }
        });
        let mut beside = world.into_inner().expect("nobody failed");
        beside.design.check();
        let mut alone = World::new();
        for decision in beside.decided.clone() {
            drop(alone.decide(decision));
        }
        assert!(beside.pages() == alone.pages(), "seed {seed}: the indices differ");
        assert_eq!(beside.bytes_beside_the_sketch(), alone.bytes_beside_the_sketch(), "seed {seed}");
        // The table of large counts keeps the room of its largest number of counts at a time.
        // Threads beside each other may enlarge it once more: by a quarter and eight words.
        let counters = World::new().sketch_bytes();
        let (one, other) = (beside.sketch_bytes() - counters, alone.sketch_bytes() - counters);
        assert!(one.abs_diff(other) <= one.min(other) / 4 + 64, "seed {seed}: tables of {one} and {other} bytes");
        // Lost addresses are among them, which the log may still know.
        for lba in (0..ADDRESSES).map(Lba) {
            assert_eq!(beside.design.unmap(lba), alone.design.unmap(lba), "seed {seed}: {lba:?}");
        }
    });
}

#[test]
fn a_mapping_that_is_left_for_later_holds_its_bucket_and_no_other() {
    let mut world = World::new();
    let lba = Lba(1);
    let bucket = |world: &World, lba: Lba| world.design.core().key_of_lba(lba).0 >> 16;
    // A part has some neighbouring buckets: this one is in the other half.
    let far = (2..ADDRESSES).map(Lba).find(|&far| bucket(&world, far).abs_diff(bucket(&world, lba)) >= 16);
    let far = far.expect("there are 32 buckets");
    let mut later = world.decide(Decision::Map(lba, 1));
    let is_done = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let (world, is_done) = (&mut world, &is_done);
        scope.spawn(move || {
            // No call waits for other buckets.
            drop(world.decide(Decision::Map(far, 2)));
            drop(world.decide(Decision::Map(far, 1)));
            drop(world.decide(Decision::Look(far)));
            sender.send(()).expect("it is waited for");
            // A call for the bucket waits.
            assert!(world.design.core().lookup(lba).is_some(), "it is mapped");
            assert!(is_done.load(SeqCst), "and not found before");
        });
        receiver.recv().expect("others went on");
        is_done.store(true, SeqCst);
        later.finish();
    });
}
