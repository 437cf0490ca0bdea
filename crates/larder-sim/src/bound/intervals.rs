//! The intervals that are worth keeping, from the sequence of contents.
//!
//! Invariants: intervals come in the order of their starts; no two have the same start, and no two
//! the same end.
//!
//! It does not choose.

/// One request: the number of its content, and a bit for a read.
#[derive(Clone, Copy)]
pub(super) struct Appearance(u32);

impl Appearance {
    /// Makes one; `content` is below 2^31.
    pub fn new(content: u32, is_read: bool) -> Appearance {
        Appearance(content << 1 | u32::from(is_read))
    }

    pub fn content(self) -> usize {
        (self.0 >> 1) as usize
    }

    pub fn is_read(self) -> bool {
        self.0 & 1 == 1
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

/// No request.
const NEVER: u32 = u32::MAX;

/// Returns the intervals of a trace. `stored_bytes` has the size of each content.
pub(super) fn intervals(appearances: &[Appearance], stored_bytes: &[u32]) -> Vec<Interval> {
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
        // A write brings the content anew: an interval that ends there is worth nothing.
        next[content] = if appearance.is_read() { at } else { NEVER };
    }
    found.reverse();
    found.shrink_to_fit();

    // From here on `open` has the interval of each content that did not end yet.
    let mut open = next;
    open.fill(NEVER);
    let mut started = 0;
    for (at, appearance) in appearances.iter().enumerate() {
        let slot = &mut open[appearance.content()];
        if appearance.is_read() && *slot != NEVER {
            found[*slot as usize].starts_before_end = started;
        }
        let starts_here = found.get(started as usize).is_some_and(|interval| interval.start as usize == at);
        *slot = if starts_here { started } else { NEVER };
        started += u32::from(starts_here);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_splits_and_the_last_appearance_is_worth_nothing() {
        // a read, b write, a read, a write, b read, a read, a read.
        let requests = [(0, true), (1, false), (0, true), (0, false), (1, true), (0, true), (0, true)]
            .map(|(c, r)| Appearance::new(c, r));
        let found = intervals(&requests, &[10, 20]);
        let interval = |start, end, starts_before_end, bytes| Interval { start, end, starts_before_end, bytes };
        assert_eq!(found, [interval(0, 2, 2, 10), interval(1, 4, 3, 20), interval(3, 5, 3, 10), interval(5, 6, 4, 10)]);
        assert_eq!(found[1].resource(), 60);
    }
}
