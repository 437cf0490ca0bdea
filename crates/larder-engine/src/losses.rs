//! Ranges of a volume, in bytes, for reports of damage.
//!
//! Invariants: sorted and joined once [`Ranges::join`] was called; all are counted,
//! [`RANGES_MAX`] are told.
//!
//! It leaves the fate of the ranges to the fields that hold them.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Ranges that a report lists; more are counted.
pub const RANGES_MAX: usize = 100;

/// A range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ByteRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// Ranges of a volume. As JSON: `ranges_total`, `bytes`, and the first of them as `ranges`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<ByteRange>);

impl Ranges {
    /// Adds a range.
    pub fn add(&mut self, offset: u64, bytes: u64) {
        match self.0.last_mut() {
            // Mostly they come in order.
            Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
            _ if bytes > 0 => self.0.push(ByteRange { offset, bytes }),
            _ => {}
        }
    }

    /// Sorts and joins the ranges.
    pub fn join(&mut self) {
        self.0.sort_unstable_by_key(|range| range.offset);
        self.0.dedup_by(|next, kept| {
            let end = kept.offset + kept.bytes;
            let joins = next.offset <= end;
            if joins {
                kept.bytes = kept.bytes.max(next.offset + next.bytes - kept.offset);
            }
            joins
        });
    }

    /// Returns all ranges.
    pub fn all(&self) -> &[ByteRange] {
        &self.0
    }

    /// Returns whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.bytes).sum()
    }

    /// Returns whether byte `at` is in a range.
    pub fn contains(&self, at: u64) -> bool {
        let before = self.0.partition_point(|range| range.offset <= at);
        before.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|range| at < range.offset + range.bytes)
    }
}

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Ranges", 3)?;
        object.serialize_field("ranges_total", &self.0.len())?;
        object.serialize_field("bytes", &self.bytes())?;
        object.serialize_field("ranges", self.0.get(..RANGES_MAX.min(self.0.len())).unwrap_or_default())?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_found() {
        let mut ranges = Ranges::default();
        for (offset, bytes) in [(100, 10), (110, 5), (0, 50), (40, 20), (200, 0)] {
            ranges.add(offset, bytes);
        }
        ranges.join();
        let all: Vec<_> = ranges.all().iter().map(|range| (range.offset, range.bytes)).collect();
        assert_eq!(all, [(0, 60), (100, 15)]);
        assert_eq!(ranges.bytes(), 75);
        let found: Vec<u64> = (0..300).filter(|&at| ranges.contains(at)).collect();
        assert_eq!(found.len(), 75);
        assert!(!ranges.contains(60) && ranges.contains(114) && !ranges.contains(115));
    }
}
