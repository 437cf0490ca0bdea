//! A plain LRU cache of contents never beats the bound.

use std::collections::BTreeMap;

use larder_sim::bound::{BoundCollector, BoundTrace, Zeroes};
use larder_trace::{rng::TraceRng, zipf::Zipf};

use super::game::content;

/// Counts the read hits of LRU over contents. A read or written content comes in, and the one used
/// longest ago leaves.
pub fn lru_hits(requests: &[(u64, u32, bool)], capacity_bytes: u64) -> u64 {
    let (mut last_use, mut by_use, mut used, mut hits) = (BTreeMap::new(), BTreeMap::new(), 0u64, 0u64);
    for (now, &(number, bytes, is_read)) in requests.iter().enumerate() {
        match last_use.insert(number, now) {
            Some(before) => {
                by_use.remove(&before);
                hits += u64::from(is_read);
            }
            None => used += u64::from(bytes),
        }
        by_use.insert(now, (number, bytes));
        while used > capacity_bytes
            && let Some((_, (number, bytes))) = by_use.pop_first()
        {
            last_use.remove(&number);
            used -= u64::from(bytes);
        }
    }
    hits
}

/// Returns the same requests, as the bound takes them.
pub fn collect(requests: &[(u64, u32, bool)]) -> BoundTrace {
    let mut collector = BoundCollector::new(Zeroes::Free);
    for &(number, bytes, is_read) in requests {
        let content = content(number, bytes);
        let taken = if is_read { collector.read(&content, false) } else { collector.write(&content, false) };
        taken.expect("a short trace");
    }
    collector.finish().addresses
}

/// Returns contents drawn by Zipf's law, with scans between, and some writes. Sizes are 1 to
/// `bytes_max`, each content's its own.
pub fn requests(seed: u64, count: u64, bytes_max: u64) -> Vec<(u64, u32, bool)> {
    let mut rng = TraceRng::new(seed);
    let zipf = Zipf::new(count / 8, 0.4 + rng.unit());
    let mut scanned = count;
    let mut requests = Vec::new();
    for _ in 0..count {
        scanned += 1;
        let number = if rng.chance(0.2) { scanned % (count / 4) } else { zipf.sample(&mut rng) };
        let bytes = 1 + larder_trace::rng::mix(number) % bytes_max;
        requests.push((number, bytes as u32, rng.chance(0.7)));
    }
    requests
}

#[test]
fn lru_never_beats_the_bound() {
    for seed in 0..20 {
        let requests = requests(seed, 4000, 1);
        let trace = collect(&requests);
        let mut before = 0;
        for capacity in [0, 1, 2, 5, 20, 100, 400, 1500, 10_000] {
            let bound = trace.with_sizes(&[capacity])[0];
            let lru = lru_hits(&requests, capacity);
            assert!(lru <= bound.read_hits_lower, "seed {seed}, {capacity} chunks: {lru} hits, {bound:?}");
            assert!(before <= bound.read_hits_lower, "seed {seed}: {capacity} chunks hit less than fewer do");
            before = bound.read_hits_lower;
        }
        // With room for all, LRU forgets nothing and is an optimum, too.
        assert_eq!(lru_hits(&requests, 10_000), before, "seed {seed}");
    }
}

#[test]
fn lru_never_beats_the_bound_with_sizes() {
    let capacities = [0, 3, 10, 100, 1000, 4000, 15_000, 100_000];
    for seed in 0..10 {
        let requests = requests(seed, 4000, 16);
        let trace = collect(&requests);
        let bounds = trace.with_sizes(&capacities);
        for (capacity, bound) in capacities.into_iter().zip(&bounds) {
            let lru = lru_hits(&requests, capacity);
            assert!(lru <= bound.read_hits_upper, "seed {seed}, {capacity} bytes: {lru} hits, {bound:?}");
            assert!(bound.read_hits_lower <= bound.read_hits_upper, "seed {seed}, {capacity} bytes: {bound:?}");
            // In theory the closeness of the bounds is luck. These are their figures here, where
            // many chunks fit.
            let apart = bound.read_hits_upper - bound.read_hits_lower;
            assert!(capacity < 100 || apart <= bound.read_hits_upper / 20, "seed {seed}, {capacity} bytes: {bound:?}");
        }
        let all = bounds.last().expect("not empty");
        assert_eq!(all.read_hits_lower, all.read_hits_upper, "seed {seed}");
        assert_eq!(lru_hits(&requests, 100_000), all.read_hits_lower, "seed {seed}");
    }
}
