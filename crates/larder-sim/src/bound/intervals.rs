//! The intervals that are worth keeping, from the sequence of contents.
//!
//! Invariants: intervals come in the order of their starts; no two have the same start, and no two
//! the same end.
//!
//! It does not choose.

use super::knowledge::Knowledge;

/// The way in which a content passes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// A write brings it.
    Write = 0,
    /// A read of an address that no request touched before brings it.
    FirstRead = 1,
    /// A read of an address that a request touched before asks for it.
    Read = 2,
}

/// One request: the number of its content, and two bits for its passing.
#[derive(Clone, Copy)]
pub(super) struct Appearance(u32);

impl Appearance {
    /// Makes one; `content` is below 2^30.
    pub fn new(content: u32, passing: Passing) -> Appearance {
        Appearance(content << 2 | passing as u32)
    }

    pub fn content(self) -> usize {
        (self.0 >> 2) as usize
    }

    pub fn is_read(self) -> bool {
        self.0 & 3 != Passing::Write as u32
    }

    /// Returns true if a cache of this knowledge hits, provided that it has the content.
    pub fn can_hit(self, knowledge: Knowledge) -> bool {
        match knowledge {
            Knowledge::Addresses => self.0 & 3 == Passing::Read as u32,
            Knowledge::Contents => self.is_read(),
        }
    }
}

/// A read that hits if its content is kept since it last passed by: over the gaps `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The request at which the content passed by.
    pub start: u32,
    /// The read.
    pub end: u32,
    /// Number of intervals that start before `end`.
    ///
    /// With the number of this one, it gives the intervals that start within it.
    pub starts_before_end: u32,
    /// Bytes of the content.
    pub bytes: u32,
}

const _: () = assert!(size_of::<Interval>() == 16, "the head of bound.rs says 16");

impl Interval {
    /// Returns the bytes times gaps that keeping it takes. The product fits: both are below 2^32.
    pub fn resource(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.end - self.start)
    }
}

/// No request, and no interval.
pub(super) const NEVER: u32 = u32::MAX;

/// The intervals of a trace, and their contents.
#[derive(Default)]
pub(super) struct Intervals {
    /// In the order of their starts.
    pub all: Vec<Interval>,
    /// The number of the next interval of the same content; [`NEVER`] if there is none.
    pub next: Vec<u32>,
    /// The intervals of each content that has any, and its bytes.
    pub contents: Vec<(u32, u32)>,
}

/// Returns the intervals of a trace. `stored_bytes` has the size of each content.
pub(super) fn intervals(appearances: &[Appearance], stored_bytes: &[u32], knowledge: Knowledge) -> Intervals {
    // Backwards, so that intervals come up by start. The starts before each end are then filled in
    // forwards.
    let mut next = vec![NEVER; stored_bytes.len()];
    let mut found = Vec::new();
    for (at, appearance) in appearances.iter().enumerate().rev() {
        let content = appearance.content();
        let (at, end) = (at as u32, next[content]);
        if end != NEVER {
            found.push(Interval { start: at, end, starts_before_end: 0, bytes: stored_bytes[content] });
        }
        // A miss brings the content anew: an interval that ends there is worth nothing.
        next[content] = if appearance.can_hit(knowledge) { at } else { NEVER };
    }
    found.reverse();
    found.shrink_to_fit();

    // From here on `open` has the interval of each content that did not end yet, and `last` its
    // last one.
    let mut open = next;
    open.fill(NEVER);
    let mut last = open.clone();
    let mut next = vec![NEVER; found.len()];
    let mut counts = vec![0u32; stored_bytes.len()];
    let mut started = 0;
    for (at, appearance) in appearances.iter().enumerate() {
        let content = appearance.content();
        if appearance.can_hit(knowledge) && open[content] != NEVER {
            found[open[content] as usize].starts_before_end = started;
        }
        open[content] = NEVER;
        if found.get(started as usize).is_some_and(|interval| interval.start as usize == at) {
            if let Some(before) = next.get_mut(last[content] as usize) {
                *before = started;
            }
            (open[content], last[content]) = (started, started);
            counts[content] += 1;
            started += 1;
        }
    }
    let contents = counts.into_iter().zip(stored_bytes.iter().copied()).filter(|(count, _)| *count > 0).collect();
    Intervals { all: found, next, contents }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_splits_and_the_last_appearance_is_worth_nothing() {
        // a read, b write, a read, a write, b read, a read, a read.
        let requests = [(0, true), (1, false), (0, true), (0, false), (1, true), (0, true), (0, true)]
            .map(|(content, is_read)| Appearance::new(content, if is_read { Passing::Read } else { Passing::Write }));
        let Intervals { all: found, next, contents } = intervals(&requests, &[10, 20], Knowledge::Addresses);
        let interval = |start, end, starts_before_end, bytes| Interval { start, end, starts_before_end, bytes };
        assert_eq!(found, [interval(0, 2, 2, 10), interval(1, 4, 3, 20), interval(3, 5, 3, 10), interval(5, 6, 4, 10)]);
        assert_eq!(found[1].resource(), 60);
        assert_eq!(next, [2, NEVER, 3, NEVER]);
        assert_eq!(contents, [(3, 10), (1, 20)]);
    }

    #[test]
    fn the_first_read_of_an_address_hits_only_if_contents_are_known() {
        let requests = [Passing::Read, Passing::FirstRead, Passing::Read].map(|passing| Appearance::new(0, passing));
        let ends = |knowledge| -> Vec<u32> {
            intervals(&requests, &[1], knowledge).all.iter().map(|interval| interval.end).collect()
        };
        assert_eq!(ends(Knowledge::Contents), [1, 2]);
        assert_eq!(ends(Knowledge::Addresses), [2], "the miss brings the content, and the last read hits");
    }
}
