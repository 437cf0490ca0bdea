//! `larder` under loads that break caches.
//!
//! Each test states its expectation: against the other designs of a replay, with the same flash, or
//! against the offline bound. *At least its hits* means less half a point. Designs without
//! admission are all but `larc`, and designs over contents all but `lru` and `arc`. Costs are the
//! engine's.
//!
//! The traces are small and seeded. They say nothing about loads of another kind. Nor do the tests
//! claim that `larder` is the best in all of it: `larder-lab paper run pareto` compares.

use crate::common::Rng;
use larder_core::{Lba, larder::NAME};
use larder_sim::{
    bound::BoundTraces,
    cache::{CacheRequest, Content, WritePolicy},
    lab::{BoundListener, Collected, LabListener},
    measure::{Measures, Meter},
    replay::{Batches, own_content},
    setup::{Accounting, FlashAmount, OptionId, Options, REPLAY_DESIGNS, ReplayDesign, Setup},
};
use larder_trace::{Op, Record, chunks, rng::TraceRng, zipf::Zipf};
use std::time::{Duration, Instant};

const CHUNK: u32 = 4096;
/// The flash, and its chunks if they do not shrink.
const FLASH_BYTES: u64 = 16 << 20;
const FLASH_CHUNKS: u64 = FLASH_BYTES / CHUNK as u64;
/// Half a point of the reads.
const HALF_A_POINT: f64 = 0.005;
const SEED: u64 = 36;

fn setup(name: &str, flash_bytes: u64, policy: WritePolicy) -> Setup {
    let design = ReplayDesign::named(name).expect("a design");
    let flash = FlashAmount::Bytes(flash_bytes);
    Setup { design, chunk_bytes: CHUNK, flash, policy, options: Options::default() }
}

/// Replays requests, of which the first `warmup` are not counted.
fn replayed(setup: &Setup, requests: &[CacheRequest], warmup: usize) -> Option<Measures> {
    let mut meter = Meter::new(setup.build(0).ok()?, CHUNK, warmup as u64);
    requests.chunks(1024).for_each(|batch| meter.take(batch));
    Some(meter.finish())
}

/// Replays requests through `larder` and all others that the flash has room for.
fn all(flash_bytes: u64, policy: WritePolicy, requests: &[CacheRequest], warmup: usize) -> (Measures, Others) {
    let of = |name| replayed(&setup(name, flash_bytes, policy), requests, warmup);
    let others: Others = REPLAY_DESIGNS
        .iter()
        .map(|design| design.name)
        .filter(|name| *name != NAME)
        .filter_map(|name| Some((name, of(name)?)))
        .collect();
    assert!(others.len() > 8, "{} others", others.len());
    let ours = of(NAME).expect("a cache");
    for (name, measures) in others.iter().chain([&(NAME, ours.clone())]) {
        let (hits, bytes) = (measures.tally.read_hit_ratio(), measures.flash_total_bytes_written());
        println!("seed {SEED}, {}: {name} hits {hits:.4} and writes {bytes} bytes", policy.name());
    }
    (ours, others)
}

type Others = Vec<(&'static str, Measures)>;

/// Checks that `larder` has at least the hits of these, less `behind` of the reads.
fn assert_hits((ours, others): &(Measures, Others), is_one: impl Fn(&str) -> bool, behind: f64) {
    let own = ours.tally.read_hit_ratio();
    for (name, other) in others.iter().filter(|(name, _)| is_one(name)) {
        let hits = other.tally.read_hit_ratio();
        assert!(own + behind >= hits, "{name} hits {hits:.4}, larder {own:.4}");
    }
}

/// Checks that `larder` writes at most this share of the bytes of each design without admission.
fn assert_bytes((ours, others): &(Measures, Others), share: f64) {
    let own = ours.flash_total_bytes_written();
    for (name, other) in others.iter().filter(|(name, _)| *name != "larc") {
        let bytes = other.flash_total_bytes_written();
        assert!(own as f64 <= share * bytes as f64, "{name} writes {bytes} bytes, larder {own}");
    }
}

fn any(_: &str) -> bool {
    true
}

fn is_over_contents(name: &str) -> bool {
    !["lru", "arc"].contains(&name)
}

/// Returns a content that does not shrink.
fn content(number: u64) -> Content {
    own_content(Lba(number), CHUNK)
}

fn read(number: u64) -> CacheRequest {
    CacheRequest::Read(Lba(number), content(number))
}

/// Returns so many reads by Zipf's law, of `count` chunks from `first` on.
fn hot_reads(rng: &mut TraceRng, first: u64, count: u64, reads: usize) -> Vec<CacheRequest> {
    let law = Zipf::new(count, 0.8);
    (0..reads).map(|_| read(first + law.sample(rng))).collect()
}

/// Scans of chunks that are read once come between reads of a set that fits.
///
/// Expected: a point below the hits of the best at most, for a tenth of the bytes of each design
/// without admission.
#[test]
fn scans_pass_by_a_hot_set() {
    let mut rng = TraceRng::new(SEED);
    let mut requests = Vec::new();
    for round in 0..12 {
        requests.extend(hot_reads(&mut rng, 0, FLASH_CHUNKS / 2, 8000));
        requests.extend((0..6000).map(|at| read(1_000_000 + round * 6000 + at)));
    }
    let found = all(FLASH_BYTES, WritePolicy::Through, &requests, 28_000);
    assert_hits(&found, any, 0.01);
    assert_bytes(&found, 0.1);
}

/// The working set moves at once to other chunks. Expected: at least the hits of each other.
#[test]
fn a_shift_of_the_working_set_is_followed() {
    let mut rng = TraceRng::new(SEED);
    let sets = (0..6).map(|set| hot_reads(&mut rng, set * 100_000, FLASH_CHUNKS / 2, 24_000));
    let requests: Vec<CacheRequest> = sets.flatten().collect();
    assert_hits(&all(FLASH_BYTES, WritePolicy::Through, &requests, 24_000), any, HALF_A_POINT);
}

/// A loop over twice the chunks that fit.
///
/// Expected: half of the bound's hits, at least the hits of each other, and a tenth of the bytes of
/// each design without admission.
#[test]
fn a_loop_larger_than_the_cache_keeps_a_part() {
    let requests: Vec<CacheRequest> = (0..30 * 2 * FLASH_CHUNKS).map(|at| read(at % (2 * FLASH_CHUNKS))).collect();
    let found = all(FLASH_BYTES, WritePolicy::Through, &requests, 0);
    let mut listener = BoundListener::new(0, u64::MAX);
    listener.take(&requests);
    let Collected::Trace(BoundTraces { addresses, .. }) = listener.finish() else { panic!("the trace has a bound") };
    let bound = addresses.read_hit_ratio_in_chunks(FLASH_CHUNKS);
    let own = found.0.tally.read_hit_ratio();
    println!("bound {bound:.4}");
    assert!(own >= bound / 2.0, "larder hits {own:.4} of {bound:.4}");
    assert_hits(&found, any, HALF_A_POINT);
    assert_bytes(&found, 0.1);
}

/// Phases of writes whose contents never come again.
///
/// Expected: two points below the hits of the best at most, for a tenth of the bytes of each design
/// without admission.
#[test]
fn phases_without_duplicates_are_not_stored() {
    let (mut rng, mut next) = (TraceRng::new(SEED), 10_000_000);
    let mut requests = Vec::new();
    for round in 0..6u64 {
        requests.extend(hot_reads(&mut rng, 0, FLASH_CHUNKS / 2, 10_000));
        requests.extend((0..10_000).map(|at| {
            next += 1;
            CacheRequest::Write(Lba(2_000_000 + round * 10_000 + at), content(next))
        }));
    }
    let found = all(FLASH_BYTES, WritePolicy::Through, &requests, 20_000);
    assert_hits(&found, any, 0.02);
    assert_bytes(&found, 0.1);
}

/// Contents that do not shrink, read and written by Zipf's law.
///
/// Expected: at least the hits of each design over contents.
#[test]
fn incompressible_data_is_chosen_among() {
    let (mut rng, law) = (TraceRng::new(SEED), Zipf::new(4 * FLASH_CHUNKS, 0.9));
    let mut contents: Vec<u64> = (0..4 * FLASH_CHUNKS).collect();
    let requests: Vec<CacheRequest> = (0..150_000)
        .map(|at| {
            let lba = law.sample(&mut rng);
            let is_write = rng.chance(0.25);
            if is_write {
                contents[lba as usize] = 1_000_000 + at;
            }
            let content = content(contents[lba as usize]);
            if is_write { CacheRequest::Write(Lba(lba), content) } else { CacheRequest::Read(Lba(lba), content) }
        })
        .collect();
    assert_hits(&all(FLASH_BYTES, WritePolicy::Through, &requests, 0), is_over_contents, HALF_A_POINT);
}

/// Zeroes. Expected: each read of a known address hits, and no data goes to flash, in each mode.
#[test]
fn zeroes_take_no_data() {
    for policy in [WritePolicy::Through, WritePolicy::Back] {
        let zeroes = Content { fingerprint: Content::ZEROES, stored_bytes: 25 };
        let mut rng = Rng::new(SEED);
        let (mut known, mut expected) = (vec![false; 2000], 0);
        let requests: Vec<CacheRequest> = (0..40_000)
            .map(|_| {
                let lba = rng.below(2000);
                let was_known = std::mem::replace(&mut known[lba as usize], true);
                if rng.chance(30) {
                    return CacheRequest::Write(Lba(lba), zeroes);
                }
                expected += u64::from(was_known);
                CacheRequest::Read(Lba(lba), zeroes)
            })
            .collect();
        let found = replayed(&setup(NAME, FLASH_BYTES, policy), &requests, 0).expect("a cache");
        assert_eq!(found.tally.read_hits, expected, "{}", policy.name());
        assert_eq!(found.traffic.flash_data_bytes_written, 0, "{}", policy.name());
    }
}

/// Returns the requests of chunks that records make.
fn chunked(records: impl Iterator<Item = Record>) -> Vec<CacheRequest> {
    let mut batches = Batches::new(chunks(records.map(Ok), CHUNK).expect("a size"), CHUNK);
    let mut all = Vec::new();
    loop {
        match batches.next_batch().expect("sound records") {
            [] => return all,
            batch => all.extend_from_slice(batch),
        }
    }
}

/// Requests of one sector.
///
/// Expected: the hits of requests of their whole chunks, and at least those of each other design.
#[test]
fn requests_of_512_bytes_are_those_of_their_chunks() {
    let of = |len_bytes: u64| {
        let (mut rng, law) = (TraceRng::new(SEED), Zipf::new(3 * FLASH_CHUNKS, 0.9));
        chunked((0..120_000).map(move |number| {
            let (chunk, sector) = (law.sample(&mut rng), rng.below(8));
            let op = if rng.chance(0.2) { Op::Write } else { Op::Read };
            let within = if len_bytes < CHUNK.into() { sector * 512 } else { 0 };
            Record::new(number, op, chunk * u64::from(CHUNK) + within, len_bytes)
        }))
    };
    let (small, whole) = (of(512), of(CHUNK.into()));
    let found = all(FLASH_BYTES, WritePolicy::Through, &small, 0);
    let of_whole = replayed(&setup(NAME, FLASH_BYTES, WritePolicy::Through), &whole, 0).expect("a cache");
    assert_eq!(found.0.tally, of_whole.tally);
    assert_hits(&found, any, HALF_A_POINT);
}

/// Requests of 1 MiB, some of them repeated.
///
/// Expected: at least the hits of each design over contents.
#[test]
fn requests_of_a_mib_are_chosen_among() {
    let (mut rng, law) = (TraceRng::new(SEED), Zipf::new(64, 0.9));
    let requests = chunked((0..900).map(move |number| {
        let op = if rng.chance(0.2) { Op::Write } else { Op::Read };
        Record::new(number, op, law.sample(&mut rng) << 20, 1 << 20)
    }));
    assert_hits(&all(FLASH_BYTES, WritePolicy::Through, &requests, 0), is_over_contents, HALF_A_POINT);
}

/// A cache of eight WEUs. Expected: at least the hits of each other design over WEUs of that size.
#[test]
fn eight_weus_are_a_cache() {
    let slots = |bytes: u64| {
        let built = setup(NAME, bytes, WritePolicy::Through).build(0).ok()?;
        Some(built.data_bytes / built.cache.flash_weu_bytes()?)
    };
    let flash = (1..200).map(|step| step << 18).find(|&bytes| slots(bytes) == Some(8)).expect("such a flash");
    let requests = hot_reads(&mut TraceRng::new(SEED), 0, 4096, 150_000);
    let of = |name| {
        let setup = setup(name, flash, WritePolicy::Through);
        let weu_bytes = setup.design.takes(OptionId::Weu, Accounting::Engine).then_some(512 << 10);
        let setup = Setup { options: Options { weu_bytes, ..Options::default() }, ..setup };
        let found = replayed(&setup, &requests, 0).expect("a cache");
        println!("seed {SEED}, {flash} bytes: {name} hits {:.4}", found.tally.read_hit_ratio());
        (name, found)
    };
    let others = ["nitro", "cd-arc"].map(of).to_vec();
    assert_hits(&(of(NAME).1, others), any, HALF_A_POINT);
}

/// A cache of ten million WEUs.
///
/// Expected: it begins with half a byte at most for each chunk of 8 KiB that fits. A request takes
/// at most twenty times that of a cache of some 200 WEUs: a scan of all takes thousands.
#[test]
fn ten_million_weus_take_bounded_ram_and_time() {
    const WEUS: u64 = 10_000_000;
    let requests: Vec<CacheRequest> = {
        let (mut rng, law) = (TraceRng::new(SEED), Zipf::new(200_000, 0.7));
        (0..60_000).map(|_| read(law.sample(&mut rng))).collect()
    };
    let timed = |bytes: u64| -> (u64, u64, Duration) {
        let built = setup(NAME, bytes, WritePolicy::Through).build(0).unwrap_or_else(|why| panic!("{bytes}: {why}"));
        let (ram, slots) = (built.cache.figures().index_ram_bytes, built.cache.flash_weu_bytes());
        let slots = built.data_bytes / slots.expect("WEUs");
        let mut meter = Meter::new(built, CHUNK, 0);
        let began = Instant::now();
        requests.chunks(1024).for_each(|batch| meter.take(batch));
        (ram, slots, began.elapsed())
    };
    let (_, _, small) = timed(128 << 20);
    let weus = |bytes: u64| {
        let built = setup(NAME, bytes, WritePolicy::Through).build(0).expect("a cache");
        let weu_bytes = built.cache.flash_weu_bytes().expect("WEUs");
        (built.data_bytes / weu_bytes, weu_bytes)
    };
    let flash_bytes = std::iter::successors(Some(1 << 44), |&bytes| {
        let (found, _) = weus(bytes);
        // The share of metadata changes a little with the size.
        (found < WEUS).then(|| bytes / found * (WEUS + WEUS / 100))
    });
    let flash_bytes = flash_bytes.last().expect("a size");
    let (_, weu_bytes) = weus(flash_bytes);
    let (ram, slots, large) = timed(flash_bytes);
    println!("{slots} WEUs begin with {ram} bytes; {large:?} for {small:?}");
    assert!(slots >= WEUS, "{slots} WEUs");
    assert!(ram <= slots * weu_bytes / 8192 / 2, "{ram} bytes for {slots} WEUs of {weu_bytes}");
    assert!(large <= 20 * small, "{large:?} for {small:?}");
}
