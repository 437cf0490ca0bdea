//! Sequences that are worked out by hand.

use larder_sim::bound::{Bound, BoundCollector, BoundTrace, Zeroes};

use super::game::content;

/// Parses a sequence. Letters are contents: lower case reads them, upper case writes them. `bytes`
/// gives their sizes.
pub fn sequence(requests: &str, bytes: impl Fn(char) -> u32) -> BoundTrace {
    let mut collector = BoundCollector::new(Zeroes::Free);
    for letter in requests.chars().filter(|letter| letter.is_alphanumeric()) {
        let name = letter.to_ascii_lowercase();
        let content = content(u64::from(name), bytes(name));
        let is_zero = name == '0';
        let taken =
            if letter.is_uppercase() { collector.write(&content, is_zero) } else { collector.read(&content, is_zero) };
        taken.expect("a short trace");
    }
    collector.finish().contents
}

/// Returns the bound of a trace whose contents all have one byte.
fn in_places(trace: &BoundTrace, capacity_chunks: u64) -> Bound {
    trace.with_sizes(&[capacity_chunks])[0]
}

fn hits(requests: &str, capacity_chunks: u64) -> u64 {
    let Bound { read_hits_upper, read_hits_lower, .. } = in_places(&sequence(requests, |_| 1), capacity_chunks);
    assert_eq!(read_hits_lower, read_hits_upper);
    read_hits_upper
}

#[test]
fn the_reference_string_of_the_operating_systems_books() {
    // 7 0 1 2 0 3 0 4 2 3 0 3 2 1 2 0 1 7 0 1, with letters for digits (h is 7). The books' OPT
    // takes in each page that it reads, and hits 11 with 3 frames. Here h (7) and the first b (1)
    // are passed over, so that a, c and d stay until b is read again. Only the first repeats of h
    // and b miss, among the 14 reads that are not first ones.
    let books = "habcadaecdadcbcabhab";
    assert_eq!(hits(books, 3), 12);
    // One place: a from request 1 to 4, 6 and 10, c from 12 to 14, a from 15 to 18.
    assert_eq!(hits(books, 1), 5);
    assert_eq!(hits(books, 0), 0);
    // 6 contents: the 14 reads that are not first ones.
    assert_eq!(hits(books, 6), 14);
}

#[test]
fn passing_over_pays() {
    // A scan past one content that is read again and again.
    assert_eq!(hits("a b a c a d a", 1), 3);
    // A loop over one more than fits: LRU hits nothing; 2 of 3 hit each time but the first.
    assert_eq!(hits("abcabcabcabc", 2), 6);
}

#[test]
fn a_write_brings_its_content_for_nothing() {
    // Kept from the write to the read; the write itself is no hit.
    assert_eq!(hits("Aa", 1), 1);
    // Nothing of a is worth keeping between its write and the next, so b can be kept there.
    assert_eq!(hits("A b A b a", 1), 1);
    assert_eq!(hits("A b b A a", 1), 2);
    // Writes alone give no reads.
    let trace = sequence("AAAA", |_| 1);
    assert_eq!((trace.reads(), trace.read_hit_ratio_in_chunks(4)), (0, 0.0));
}

#[test]
fn several_small_ones_are_worth_more_than_a_large_one() {
    // b, c and d take 1 byte each and a takes 3; all are wanted over the same gaps.
    let trace = sequence("a b c d  a b c d", |name| if name == 'a' { 3 } else { 1 });
    let hits = |capacity: u64| {
        let bound = trace.with_sizes(&[capacity])[0];
        (bound.read_hits_lower, bound.read_hits_upper)
    };
    assert_eq!(hits(0), (0, 0));
    assert_eq!(hits(3), (3, 3));
    assert_eq!(hits(6), (4, 4));
    // Belady's rule alone would keep a, whose next read is the first, and hit once where these hit
    // twice.
    let trace = sequence("a b c  a b c", |name| if name == 'a' { 2 } else { 1 });
    assert_eq!(trace.with_sizes(&[2])[0].read_hits_lower, 2);
}

#[test]
fn a_content_has_one_size() {
    let mut collector = BoundCollector::new(Zeroes::Free);
    for bytes in [9, 4, 6] {
        collector.read(&content(1, bytes), false).expect("a short trace");
    }
    // The smallest that the trace gives.
    let bounds = collector.finish().contents.with_sizes(&[3, 4]);
    assert_eq!([bounds[0].read_hits_upper, bounds[1].read_hits_lower], [0, 2]);
}

#[test]
fn a_first_read_of_an_address_misses_unless_contents_are_revealed() {
    // An image is booted, then two clones of it: their addresses are new, their contents are not.
    let mut collector = BoundCollector::new(Zeroes::Free);
    for _clone in 0..3 {
        for number in [1, 2, 0] {
            collector.first_read(&content(number, 1), number == 0).expect("a short trace");
        }
    }
    collector.read(&content(1, 1), false).expect("a short trace");
    let traces = collector.finish();
    let hits = |trace: &BoundTrace, capacity| in_places(trace, capacity).read_hits_lower;
    // Only the repeated address hits.
    assert_eq!((hits(&traces.addresses, 2), hits(&traces.addresses, u64::MAX), traces.addresses.reads()), (1, 1, 10));
    // Both clones and the repeated address hit, and each read of zeroes does.
    assert_eq!((hits(&traces.contents, 2), hits(&traces.contents, u64::MAX), traces.contents.reads()), (8, 8, 10));
}

#[test]
fn contents_are_written_when_they_begin_to_be_kept() {
    let written = |requests: &str, capacity| {
        let bound = in_places(&sequence(requests, |_| 1), capacity);
        (bound.read_hits_lower, bound.written_lower, bound.written_upper)
    };
    // Kept from the first read on, over all others.
    assert_eq!(written("a a a a", 1), (3, 1, 1));
    assert_eq!(written("a", 1), (0, 0, 0));
    // A rewrite of the content is no reason to write it again while it is kept.
    assert_eq!(written("A a A a", 1), (2, 1, 1));
    // The only place is b's between the two uses of a, so a is written twice.
    assert_eq!(written("A a B b A a", 1), (3, 2, 3));
    assert_eq!(written("A a B b A a", 2), (3, 2, 2));
    // Sizes count: both contents hit, one after the other.
    let bound = sequence("a a a a b b", |name| if name == 'a' { 1 } else { 9 }).with_sizes(&[9])[0];
    assert_eq!((bound.read_hits_lower, bound.written_lower, bound.written_upper), (4, 10, 10));
}

#[test]
fn zeroes_are_free_or_a_content_as_any() {
    let requests = "0 a 0 b 0 a";
    let free = sequence(requests, |_| 1);
    // Even the first read of zeroes is a hit.
    assert_eq!((free.reads(), in_places(&free, u64::MAX).read_hits_lower), (6, 4));
    assert_eq!(in_places(&free, 0).read_hits_lower, 3);
    assert_eq!(in_places(&free, 1).read_hits_lower, 4);

    let mut stored = BoundCollector::new(Zeroes::Stored);
    for number in [0, 1, 0, 2, 0, 1] {
        stored.read(&content(number, 1), number == 0).expect("a short trace");
    }
    let stored = stored.finish().contents;
    assert_eq!((stored.reads(), in_places(&stored, u64::MAX).read_hits_lower), (6, 3));
    assert_eq!([0, 1, 2].map(|capacity| in_places(&stored, capacity).read_hits_lower), [0, 2, 3]);
}
