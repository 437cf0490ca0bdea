//! Belady's rule (MIN, 1966) on reads, with bypass: the chunk that is needed last leaves.
//!
//! It is the optimum for chunks of one size, and a feasible choice for others.
//!
//! Over the requests, in order: keep each interval that starts. If those over a gap do not fit,
//! leave out the one that ends last. That may be the one that just started: then the chunk is
//! passed over.
//!
//! Why that is exact for one size: call *left* the intervals that were not left out so far. Claim:
//! at each step some optimal set lies among the left ones. It holds at first, when all are left.
//!
//! Now let the left ones overfill a gap for the first time, by one. Let `z` be the one of them that
//! ends last. An optimal set misses at least one of those over this gap. If it misses `z`, the
//! claim holds. Else it has `z` and misses some `x`, and may have `x` in place of `z`. From this
//! gap on `x` covers no gap that `z` does not. Before this gap no choice among the left ones
//! overfills a gap, since all of them together do not. So there still is an optimal set after `z`
//! is left out. In the end the left ones fit everywhere, so they are an optimal set themselves.
//!
//! With chunks of several sizes the swap fails: `z` may make room for several, or `x` not fit in
//! the place of `z`. The kept intervals fit all the same, so their number is a lower bound; it is
//! no upper one.
//!
//! Invariants: O(n log n), the logarithm's base being 64; memory is 2 bits a request.
//!
//! It does not take several capacities in one pass.

use super::{bits::Bits, chosen::Chosen, intervals::Interval};

/// Chooses the intervals that are kept with `capacity`.
///
/// The one that ends at a request takes `taken_by(request)`.
pub(super) fn kept(intervals: &[Interval], requests: u32, capacity: u64, taken_by: impl Fn(u32) -> u64) -> Chosen {
    let mut ends = Bits::new(requests as usize);
    let mut chosen = Chosen::none(requests);
    let mut taken = 0u64;
    let mut at = 0;
    for interval in intervals.iter().filter(|interval| taken_by(interval.end) <= capacity) {
        // Intervals that ended since then made room: the gap of a read is behind it.
        for end in at..=interval.start {
            if ends.remove(end) {
                taken -= taken_by(end);
            }
        }
        at = interval.start + 1;
        ends.insert(interval.end);
        taken += taken_by(interval.end);
        chosen.add(interval.end);
        while taken > capacity
            && let Some(last) = ends.largest()
        {
            ends.remove(last);
            taken -= taken_by(last);
            chosen.leave_out(last);
        }
    }
    chosen
}
