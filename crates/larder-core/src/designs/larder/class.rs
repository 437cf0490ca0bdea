//! The class of a content: the traits from which its life is foretold.
//!
//! A content with references has a class by the reads of the requesting address since its last
//! write, by whether several addresses share it, and by the re-read rate of the address's region.
//! A content without references has a class by the first two alone.

/// Classes of contents with references.
const LIVE: usize = 32;
/// Classes.
pub const CLASSES: usize = LIVE + 8;
/// Groups of classes that share a prior.
pub const GROUPS: usize = 16;

/// A class, below [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

impl Class {
    /// Returns the class of a content with references.
    ///
    /// `own` counts the reads of the address since its last write, 3 for more. `rate` is the share
    /// of re-reads among the reads of its region, in 0..=1.
    pub fn live(own: u8, is_shared: bool, rate: f64) -> Class {
        let level = match rate {
            ..0.15 => 0,
            ..0.4 => 1,
            ..0.75 => 2,
            _ => 3,
        };
        Class(own.min(3) | u8::from(is_shared) << 2 | level << 3)
    }

    /// Returns the reads of the address since its last write, 3 for more.
    pub fn own(self) -> u8 {
        self.0 & 3
    }

    /// Returns a share of re-reads in the region with which this is the class.
    pub fn rate(self) -> f64 {
        [0.1, 0.3, 0.6, 0.9][usize::from(self.0 >> 3 & 3)]
    }

    /// Returns the class of the same content after its last reference.
    pub fn dead(self) -> Class {
        if self.is_dead() { self } else { Class(LIVE as u8 + (self.0 & 7)) }
    }

    /// Returns whether the content has no reference.
    pub fn is_dead(self) -> bool {
        usize::from(self.0) >= LIVE
    }

    /// Returns its number.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the class of this number, below [`CLASSES`].
    pub fn of_index(index: usize) -> Class {
        debug_assert!(index < CLASSES);
        Class(index as u8)
    }

    /// Returns the group whose life it has until it has lives enough of its own.
    pub fn group(self) -> usize {
        match self.is_dead() {
            true => 8 + usize::from(self.0) - LIVE,
            false => usize::from(self.0 & 7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn classes_are_apart_and_end_in_their_groups() {
        let mut seen = BTreeSet::new();
        for own in 0..5 {
            for is_shared in [false, true] {
                for rate in [0.0, 0.2, 0.5, 0.9] {
                    let class = Class::live(own, is_shared, rate);
                    assert!(!class.is_dead() && class.index() < CLASSES && class.group() < 8);
                    assert_eq!(Class::of_index(class.index()), class);
                    assert_eq!(Class::live(class.own(), is_shared, class.rate()), class);
                    seen.insert(class.index());
                    let dead = class.dead();
                    assert!(dead.is_dead() && dead.dead() == dead && (8..GROUPS).contains(&dead.group()));
                    seen.insert(dead.index());
                }
            }
        }
        assert_eq!(seen.len(), CLASSES);
    }
}
