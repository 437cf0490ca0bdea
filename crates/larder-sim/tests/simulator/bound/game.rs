//! Small random games of reads, writes and trims of addresses, played by every possible cache at
//! once. The bound must give the best of them, or enclose it.
//!
//! The search knows no intervals. Its states are the sets of contents that a cache may
//! hold. After each request, a cache holds any fitting subset of its contents and those that passed
//! by.

use std::collections::BTreeMap;

use larder_core::Fingerprint;
use larder_sim::{
    bound::{Bound, BoundCollector, BoundTraces, Knowledge, Zeroes},
    cache::Content,
};
use proptest::{prelude::*, test_runner::RngSeed};

const SEED: RngSeed = RngSeed::Fixed(0x6275_6e64);
const ADDRESSES: usize = 5;
const CONTENTS: usize = 6;
/// The content of zeroes, which a trimmed address holds.
const ZERO: usize = 0;

#[derive(Clone, Copy, Debug)]
enum Op {
    Read(usize),
    Write(usize, usize),
    Trim(usize),
}

/// Returns a content with a number.
pub fn content(number: u64, stored_bytes: u32) -> Content {
    let mut fingerprint = [0; 16];
    fingerprint[..8].copy_from_slice(&number.to_le_bytes());
    Content { fingerprint: Fingerprint(fingerprint), stored_bytes }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    FirstRead,
    Read,
}

/// Plays a game, and returns the content and the kind of each read and write, in order.
fn play(held: [usize; ADDRESSES], ops: &[Op]) -> Vec<(usize, Kind)> {
    let mut held = held;
    let mut is_touched = [false; ADDRESSES];
    let mut played = Vec::new();
    for op in ops {
        let (Op::Read(address) | Op::Write(address, _) | Op::Trim(address)) = *op;
        let was_touched = std::mem::replace(&mut is_touched[address], true);
        match *op {
            Op::Read(_) => played.push((held[address], if was_touched { Kind::Read } else { Kind::FirstRead })),
            Op::Write(_, content) => {
                held[address] = content;
                played.push((content, Kind::Write));
            }
            Op::Trim(_) => held[address] = ZERO,
        }
    }
    played
}

fn collect(played: &[(usize, Kind)], bytes: [u32; CONTENTS], zeroes: Zeroes) -> BoundTraces {
    let mut collector = BoundCollector::new(zeroes);
    for &(number, kind) in played {
        let content = content(number as u64, bytes[number]);
        let is_zero = number == ZERO;
        let taken = match kind {
            Kind::Write => collector.write(&content, is_zero),
            Kind::FirstRead => collector.first_read(&content, is_zero),
            Kind::Read => collector.read(&content, is_zero),
        };
        taken.expect("a short trace");
    }
    collector.finish()
}

/// Returns, for each number of hits that some cache reaches, the fewest bytes written for it.
fn best(
    played: &[(usize, Kind)],
    bytes: [u32; CONTENTS],
    zeroes: Zeroes,
    capacity_bytes: u64,
    knowledge: Knowledge,
) -> BTreeMap<u64, u64> {
    let is_free = |number| zeroes == Zeroes::Free && number == ZERO;
    let needs = |set: usize| -> u64 {
        (0..CONTENTS).filter(|number| set >> number & 1 == 1 && !is_free(*number)).map(|n| u64::from(bytes[n])).sum()
    };
    let fits: Vec<bool> = (0..1 << CONTENTS).map(|set| needs(set) <= capacity_bytes).collect();
    // The fewest bytes for each number of hits, with each set held in the end. A free content is in
    // all sets.
    let mut least: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); 1 << CONTENTS];
    least[usize::from(zeroes == Zeroes::Free) << ZERO].insert(0, 0);
    for &(number, kind) in played {
        let can_hit = kind == Kind::Read || kind == Kind::FirstRead && knowledge == Knowledge::Contents;
        let mut after = vec![BTreeMap::new(); 1 << CONTENTS];
        for (set, before) in least.iter().enumerate().filter(|(_, before)| !before.is_empty()) {
            let had = set >> number & 1 == 1;
            let choice = set | 1 << number;
            for subset in (0..1 << CONTENTS).filter(|subset| subset & choice == *subset && fits[*subset]) {
                if zeroes == Zeroes::Free && subset >> ZERO & 1 == 0 {
                    continue;
                }
                let takes = if !had && subset >> number & 1 == 1 { u64::from(bytes[number]) } else { 0 };
                for (hits, written) in before {
                    let entry = after[subset].entry(hits + u64::from(can_hit && had)).or_insert(u64::MAX);
                    *entry = (*entry).min(written + takes);
                }
            }
        }
        least = after;
    }
    let mut best = BTreeMap::new();
    for (hits, written) in least.into_iter().flatten() {
        let entry = best.entry(hits).or_insert(u64::MAX);
        *entry = written.min(*entry);
    }
    best
}

/// Checks a bound against all caches. Returns the most hits.
fn check(bound: &Bound, best: &BTreeMap<u64, u64>) -> u64 {
    let (&most, _) = best.last_key_value().expect("holding nothing is always possible");
    assert!(bound.read_hits_lower <= most && most <= bound.read_hits_upper, "{most} hits, {bound:?}");
    let least = best.range(bound.read_hits_lower..).map(|(_, written)| *written).min().expect("as many hits");
    assert!(bound.written_lower <= least && least <= bound.written_upper, "{least} bytes at least, {bound:?}");
    most
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (0..ADDRESSES).prop_map(Op::Read),
        2 => (0..ADDRESSES, 0..CONTENTS).prop_map(|(address, content)| Op::Write(address, content)),
        1 => (0..ADDRESSES).prop_map(Op::Trim),
    ];
    prop::collection::vec(op, 0..40)
}

fn zeroes() -> impl Strategy<Value = Zeroes> {
    prop_oneof![Just(Zeroes::Free), Just(Zeroes::Stored)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: SEED, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_of_one_size_give_the_optimum(held in prop::array::uniform5(0..CONTENTS), ops in ops(), zeroes in zeroes()) {
        let played = play(held, &ops);
        let traces = collect(&played, [1; CONTENTS], zeroes);
        for (knowledge, trace) in [(Knowledge::Addresses, &traces.addresses), (Knowledge::Contents, &traces.contents)] {
            for capacity in (0..=CONTENTS as u64).chain([u64::MAX]) {
                let bound = trace.with_sizes(&[capacity])[0];
                prop_assert_eq!(bound.read_hits_lower, bound.read_hits_upper);
                prop_assert_eq!(trace.read_hit_ratio_in_chunks(capacity), bound.read_hit_ratio_upper());
                check(&bound, &best(&played, [1; CONTENTS], zeroes, capacity, knowledge));
                prop_assert_eq!(bound.reads, played.iter().filter(|(_, kind)| *kind != Kind::Write).count() as u64);
            }
        }
    }

    #[test]
    fn chunks_of_several_sizes_give_bounds_about_the_optimum(
        held in prop::array::uniform5(0..CONTENTS),
        ops in ops(),
        zeroes in zeroes(),
        bytes in prop::array::uniform6(0u32..12),
    ) {
        let played = play(held, &ops);
        let traces = collect(&played, bytes, zeroes);
        let capacities: Vec<u64> = (0..40).step_by(3).chain([u64::MAX]).collect();
        let ratios = traces.addresses.read_hit_ratios_in_bytes(&capacities);
        let bounds = traces.addresses.with_sizes(&capacities);
        for ((capacity, bound), ratio) in capacities.iter().zip(bounds).zip(ratios) {
            prop_assert_eq!(ratio, bound.read_hit_ratio_upper());
            check(&bound, &best(&played, bytes, zeroes, *capacity, Knowledge::Addresses));
            let are_equal = bytes.iter().all(|size| *size == bytes[0]);
            let is_exact = bound.read_hits_lower == bound.read_hits_upper;
            prop_assert!(is_exact || !are_equal && *capacity != u64::MAX, "{capacity}: {bound:?}");
        }
    }

    #[test]
    fn chunks_of_one_size_in_bytes_are_chunks_in_places(
        held in prop::array::uniform5(0..CONTENTS), ops in ops(), zeroes in zeroes(), size in 1..5u32
    ) {
        let played = play(held, &ops);
        let trace = collect(&played, [size; CONTENTS], zeroes).addresses;
        let places = collect(&played, [1; CONTENTS], zeroes).addresses;
        for capacity in 0..30 {
            let in_places = places.with_sizes(&[capacity / u64::from(size)])[0];
            prop_assert_eq!(trace.read_hit_ratio_in_chunks(capacity / u64::from(size)), in_places.read_hit_ratio_upper());
            let in_bytes = trace.with_sizes(&[capacity])[0];
            prop_assert_eq!(in_bytes.read_hits_lower, in_places.read_hits_lower);
            prop_assert_eq!(in_bytes.read_hits_upper, in_places.read_hits_upper);
            prop_assert_eq!(in_bytes.written_upper, in_places.written_upper * u64::from(size));
        }
    }
}
