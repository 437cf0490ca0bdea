//! The warmth of a cache after a restart: the same requests as without one, and the hits among
//! them. The workload reads and overwrites addresses that share content, some far more often than
//! others, with scans between. So it fills the memory of the designs that remember addresses
//! without data, and weigh one list against another.
//!
//! It leaves the cached mappings to `recovery.rs`.

use crate::common::{Setup, World, assert_same, design, each_seed, noise};
use larder_device::{rng::Rng, sim::Schedule};
use larder_engine::designs;
use larder_format::{DesignId, StoreKind};
use std::cell::RefCell;

const CHUNK: usize = 8 << 10;
const CHUNKS: u64 = 7000;
/// Fewer contents than chunks.
const CONTENTS: u64 = 4000;
const WARM_UP: usize = 8000;
/// Before a crash, after the last checkpoint.
const AFTER_CHECKPOINT: usize = 800;
const MEASURED: usize = 3000;
/// Requests between two flushes of the origin, each with a checkpoint.
///
/// So nothing is held back for want of either.
const PERIOD: usize = 400;

fn at(lba: u64) -> u64 {
    lba * CHUNK as u64
}

fn content(number: u64) -> Vec<u8> {
    noise((1 << 42) | (number % CONTENTS), CHUNK)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    None,
    Clean,
    /// Just after a checkpoint.
    CrashAfterCheckpoint,
    /// [`AFTER_CHECKPOINT`] requests after the last one.
    Crash,
}

const ENDS: [End; 3] = [End::Clean, End::CrashAfterCheckpoint, End::Crash];

/// A cache, and the memory of its clients.
struct Client {
    world: World,
    rng: Rng,
    holds: Vec<u64>,
    scan_at: u64,
}

impl Client {
    fn new(seed: u64, design: DesignId) -> Client {
        let mut setup = Setup { schedule: Schedule::Timed, ..Setup::default() };
        setup.options.design = design;
        setup.tuning.prefetch_bytes_max = 0;
        let world = World::new(seed, setup);
        for lba in 0..CHUNKS {
            world.fill_origin(at(lba), &content(lba));
        }
        Client { world, rng: Rng::new(seed ^ 0x77), holds: (0..CHUNKS).collect(), scan_at: 0 }
    }

    /// Serves so many requests, and returns the hits among the reads.
    fn serve(&mut self, count: usize) -> Vec<bool> {
        let mut hits = Vec::new();
        for _ in 0..count {
            let skewed = (self.rng.unit() * self.rng.unit() * CHUNKS as f64) as u64;
            match self.rng.below(100) {
                0..20 => {
                    let number = self.rng.below(CONTENTS);
                    self.world.write(at(skewed), &content(number));
                    self.holds[skewed as usize] = number;
                }
                kind => {
                    // In no sequence that the cache would take for a stream.
                    self.scan_at = (self.scan_at + 1) % CHUNKS;
                    let lba = if kind < 40 { self.scan_at * 1009 % CHUNKS } else { skewed };
                    let before = self.world.origin_reads();
                    let found = self.world.read(at(lba), CHUNK);
                    assert_same(&found, &content(self.holds[lba as usize]), "a read");
                    hits.push(self.world.origin_reads() == before);
                    self.world.wait_for_insertions();
                }
            }
        }
        hits
    }

    fn serve_with_checkpoints(&mut self, count: usize) -> Vec<bool> {
        let mut hits = Vec::new();
        for done in (0..count).step_by(PERIOD) {
            hits.extend(self.serve(PERIOD.min(count - done)));
            self.world.destage_all();
            self.world.flush();
            self.checkpoint();
        }
        hits
    }

    fn checkpoint(&self) {
        self.world.run(self.world.cache().checkpoint()).unwrap_or_else(|error| panic!("checkpoint: {error}"));
    }

    fn end(&mut self, end: End) {
        self.world.destage_all();
        self.world.flush();
        match end {
            End::None => return,
            End::Clean => self.world.close(),
            End::CrashAfterCheckpoint => {
                self.checkpoint();
                self.world.crash();
            }
            End::Crash => self.world.crash(),
        }
        self.world.open();
    }

    fn check(&mut self) {
        for lba in 0..CHUNKS {
            assert_same(&self.world.read(at(lba), CHUNK), &content(self.holds[lba as usize]), "in the end");
        }
    }
}

/// Returns the hits among the measured reads.
fn run(seed: u64, design: DesignId, end: End) -> Vec<bool> {
    let mut client = Client::new(seed, design);
    client.serve_with_checkpoints(WARM_UP);
    client.serve(AFTER_CHECKPOINT);
    client.end(end);
    let hits = client.serve_with_checkpoints(MEASURED);
    client.check();
    hits
}

/// Returns the allowed difference of the hit ratios; at 0 the same reads hit. A crash of larder has
/// it in the mean of the seeds.
///
/// The order of reads after the last checkpoint is in no log, so that a crash takes it. Over WEUs a
/// crash takes CD-ARC's memory of addresses whose data had left, too; and any end seals a WEU that
/// was open. A crash takes the beliefs of larder, and all that it has learned since the last
/// checkpoint. A full bucket's next victim is free ahead of need, and a crash loses it. The hands
/// of buckets are as the checkpoint has them.
fn difference_max(design: DesignId, end: End) -> f64 {
    let kind = designs::find(design).expect("it is known").kind();
    match (kind, end) {
        (StoreKind::Slots, End::Clean | End::CrashAfterCheckpoint) => 0.0,
        (StoreKind::Slots, _) => 0.02,
        (StoreKind::Buckets, End::Clean) => 0.0,
        (StoreKind::Buckets, _) => 0.01,
        (StoreKind::Weus, End::Clean) => 0.02,
        (StoreKind::Weus, _) if design == DesignId::Nitro => 0.02,
        (StoreKind::Weus, _) if design == DesignId::Larder => 0.09,
        (StoreKind::Weus, _) => 0.11,
    }
}

fn ratio(hits: &[bool]) -> f64 {
    hits.iter().filter(|&&hit| hit).count() as f64 / hits.len() as f64
}

#[test]
fn a_restart_after_an_end_in_order_hits_as_none_does() {
    for design in design::all() {
        let name = design::name(design);
        let differences: RefCell<[Vec<f64>; ENDS.len()]> = RefCell::default();
        each_seed(2, |seed| {
            let without = run(seed, design, End::None);
            assert!((0.2..0.9).contains(&ratio(&without)), "{name} hits and misses: {}", ratio(&without));
            for (end, differences) in ENDS.into_iter().zip(differences.borrow_mut().iter_mut()) {
                let with = run(seed, design, end);
                let same = with.iter().zip(&without).filter(|(with, without)| with == without).count();
                let (before, after) = (ratio(&without), ratio(&with));
                println!("{name}, seed {seed}, {end:?}: {before:.4} without, {after:.4} with, {same} alike");
                let (difference, most) = ((after - before).abs(), difference_max(design, end));
                let is_of_mean = design == DesignId::Larder && end != End::Clean;
                assert!(is_of_mean || difference <= most, "{name}, {end:?}: {before:.4} without, {after:.4} with");
                differences.push(difference);
                assert!(most > 0.0 || with == without, "{name}, {end:?}: other reads hit");
            }
        });
        for (end, differences) in ENDS.into_iter().zip(differences.into_inner()) {
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            assert!(mean <= difference_max(design, end), "{name}, {end:?}: {differences:?}");
        }
    }
}
