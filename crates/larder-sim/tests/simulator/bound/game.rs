//! Small random games of reads, writes and trims of addresses, played by every possible cache at
//! once. The bound must give the best of them, or enclose it.
//!
//! The search knows nothing of intervals. Its states are the sets of contents that a cache may
//! hold. After each request, a cache holds any fitting subset of its contents and those that passed
//! by.

use larder_core::Fingerprint;
use larder_sim::{
    bound::{BoundCollector, BoundTrace, Zeroes},
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

/// Plays a game, and returns the content of each read (true) and write, in order.
fn play(held: [usize; ADDRESSES], ops: &[Op]) -> Vec<(usize, bool)> {
    let mut held = held;
    let mut played = Vec::new();
    for op in ops {
        match *op {
            Op::Read(address) => played.push((held[address], true)),
            Op::Write(address, content) => {
                held[address] = content;
                played.push((content, false));
            }
            Op::Trim(address) => held[address] = ZERO,
        }
    }
    played
}

fn collect(played: &[(usize, bool)], bytes: [u32; CONTENTS], zeroes: Zeroes) -> BoundTrace {
    let mut collector = BoundCollector::new(zeroes);
    for &(number, is_read) in played {
        let content = content(number as u64, bytes[number]);
        let is_zero = number == ZERO;
        let taken = if is_read { collector.read(&content, is_zero) } else { collector.write(&content, is_zero) };
        taken.expect("a short trace");
    }
    collector.finish()
}

/// Returns the most reads that any cache hits.
fn best(played: &[(usize, bool)], bytes: [u32; CONTENTS], zeroes: Zeroes, capacity_bytes: u64) -> u64 {
    let is_free = |number| zeroes == Zeroes::Free && number == ZERO;
    let needs = |set: usize| -> u64 {
        (0..CONTENTS).filter(|number| set >> number & 1 == 1 && !is_free(*number)).map(|n| u64::from(bytes[n])).sum()
    };
    let fits: Vec<bool> = (0..1 << CONTENTS).map(|set| needs(set) <= capacity_bytes).collect();
    // The most hits with each set held in the end; a free content is in all sets.
    let mut most = vec![None; 1 << CONTENTS];
    most[usize::from(zeroes == Zeroes::Free) << ZERO] = Some(0u64);
    for &(number, is_read) in played {
        let mut after = vec![None; 1 << CONTENTS];
        for (set, hits) in most.iter().enumerate().filter_map(|(set, hits)| hits.map(|hits| (set, hits))) {
            let hits = hits + u64::from(is_read && set >> number & 1 == 1);
            let choice = set | 1 << number;
            for subset in (0..1 << CONTENTS).filter(|subset| subset & choice == *subset && fits[*subset]) {
                if zeroes == Zeroes::Stored || subset >> ZERO & 1 == 1 {
                    after[subset] = after[subset].max(Some(hits));
                }
            }
        }
        most = after;
    }
    most.into_iter().flatten().max().expect("holding nothing is always possible")
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
        let trace = collect(&played, [1; CONTENTS], zeroes);
        for capacity in 0..=CONTENTS as u64 {
            let bound = trace.equal_sizes(capacity);
            prop_assert!(bound.is_exact());
            prop_assert_eq!(bound.read_hits_upper, best(&played, [1; CONTENTS], zeroes, capacity), "{} chunks", capacity);
            prop_assert_eq!(bound.reads, played.iter().filter(|(_, is_read)| *is_read).count() as u64);
        }
        prop_assert_eq!(trace.equal_sizes(u64::MAX).read_hits_lower, trace.reads() - trace.compulsory_misses());
    }

    #[test]
    fn chunks_of_several_sizes_give_bounds_about_the_optimum(
        held in prop::array::uniform5(0..CONTENTS),
        ops in ops(),
        zeroes in zeroes(),
        bytes in prop::array::uniform6(0u32..12),
    ) {
        let played = play(held, &ops);
        let trace = collect(&played, bytes, zeroes);
        let capacities: Vec<u64> = (0..40).chain([u64::MAX]).collect();
        for (capacity, bound) in capacities.iter().zip(trace.with_sizes(&capacities)) {
            let best = best(&played, bytes, zeroes, *capacity);
            prop_assert!(bound.read_hits_lower <= best && best <= bound.read_hits_upper, "{capacity}: {best}, {bound:?}");
            let are_equal = bytes.iter().all(|size| *size == bytes[0]);
            prop_assert!(bound.is_exact() || !are_equal && *capacity != u64::MAX, "{capacity}: {bound:?}");
        }
    }

    #[test]
    fn chunks_of_one_size_in_bytes_are_chunks_in_places(
        held in prop::array::uniform5(0..CONTENTS), ops in ops(), zeroes in zeroes(), size in 1..5u32
    ) {
        let trace = collect(&play(held, &ops), [size; CONTENTS], zeroes);
        for capacity in 0..30 {
            let in_places = trace.equal_sizes(capacity / u64::from(size));
            prop_assert_eq!(trace.with_sizes(&[capacity]), [in_places]);
        }
    }
}
