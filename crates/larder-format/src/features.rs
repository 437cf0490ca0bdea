//! The feature bits of the superblock: one row for each addition to the format since its first
//! version.
//!
//! Role: [`FEATURES`] names every bit that has a meaning, and [`names`] lists the features of a
//! flash for an operator. A program learns a bit by its row here and in `docs/FORMAT.md`.
//!
//! Invariants: each number is given once, and keeps its meaning. [`COMPATIBLE_KNOWN`] and
//! [`INCOMPATIBLE_KNOWN`] follow from the rows that this program can handle.
//!
//! It leaves the choice of a flash's features to the superblock's fields; the bits follow from
//! them.

/// Compatible: the superblock records the origin's state at an orderly end.
pub const FEATURE_ORIGIN_STATE: u64 = 1 << 0;
/// Compatible: the superblock names a durable frame of the log.
pub const FEATURE_DURABLE_FRAME: u64 = 1 << 1;
/// Compatible: the superblock records the wear budget and the bytes of the last day. Bit 2 is that
/// of an unknown feature in fixtures.
pub const FEATURE_WEAR: u64 = 1 << 3;

/// Incompatible feature: the cache was detached.
///
/// The origin is complete, and may have changed since.
pub const FEATURE_DETACHED: u64 = 1 << 0;
/// Incompatible feature: a fence may stand in the state directory; an opening must check for it.
pub const FEATURE_STATE_DIR: u64 = 1 << 3;
/// Incompatible feature: slots are subchunks in buckets, and there is a metadata region.
pub const FEATURE_BUCKETS: u64 = 1 << 4;
/// Incompatible feature: segment headers record how far the log was durable at their write.
pub const FEATURE_LOG_POSITIONS: u64 = 1 << 5;
/// Incompatible feature: client trims are kept apart from requested zeroes.
///
/// The log and the checkpoints make that difference.
pub const FEATURE_KEPT_TRIMS: u64 = 1 << 6;
/// Incompatible feature: a checkpoint has room for a part of the mappings.
///
/// The history of the design and the record tables have the others.
pub const FEATURE_SHORT_CHECKPOINTS: u64 = 1 << 7;

/// The incompatible bits that allow an unaware program to read: 32 to 63.
pub const READABLE: u64 = u64::MAX << 32;

/// Compatible features that this Larder handles.
pub const COMPATIBLE_KNOWN: u64 = known(Word::Compatible);
/// Incompatible features that this Larder handles.
pub const INCOMPATIBLE_KNOWN: u64 = known(Word::Incompatible);

/// The superblock word that a bit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A program that does not know the bit serves the flash, and keeps the bit and its fields.
    Compatible,
    /// A program that does not know the bit refuses the flash.
    ///
    /// If the bit is one of [`READABLE`], the program reads the flash and refuses to write.
    Incompatible,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The word that has the bit.
    pub word: Word,
    /// The bit, as a mask.
    pub bit: u64,
    /// Its name, for an operator.
    pub name: &'static str,
    /// True if this program handles the feature.
    ///
    /// If not, the number is taken, and the flash belongs to another program.
    pub is_handled: bool,
}

/// Every bit that has a meaning.
pub const FEATURES: [Feature; 9] = [
    feature(Word::Compatible, FEATURE_ORIGIN_STATE, "origin state", true),
    feature(Word::Compatible, FEATURE_DURABLE_FRAME, "durable frame", true),
    feature(Word::Compatible, FEATURE_WEAR, "wear", true),
    feature(Word::Incompatible, FEATURE_DETACHED, "detached", true),
    feature(Word::Incompatible, FEATURE_STATE_DIR, "state directory", true),
    feature(Word::Incompatible, FEATURE_BUCKETS, "buckets", true),
    feature(Word::Incompatible, FEATURE_LOG_POSITIONS, "log positions", true),
    feature(Word::Incompatible, FEATURE_KEPT_TRIMS, "kept trims", true),
    feature(Word::Incompatible, FEATURE_SHORT_CHECKPOINTS, "short checkpoints", true),
];

/// Returns the number of each set bit, and its name if it has one.
pub fn names(word: Word, bits: u64) -> Vec<String> {
    let set = (0..u64::BITS).filter(|&number| bits & (1 << number) != 0);
    set.map(|number| match FEATURES.iter().find(|row| row.word == word && row.bit == 1 << number) {
        Some(row) => format!("{number} ({})", row.name),
        None => number.to_string(),
    })
    .collect()
}

const fn feature(word: Word, bit: u64, name: &'static str, is_handled: bool) -> Feature {
    Feature { word, bit, name, is_handled }
}

const fn known(word: Word) -> u64 {
    let (mut bits, mut row) = (0, 0);
    #[allow(clippy::indexing_slicing, reason = "a constant, computed by the compiler from a table of this length")]
    while row < FEATURES.len() {
        if FEATURES[row].word as u8 == word as u8 && FEATURES[row].is_handled {
            bits |= FEATURES[row].bit;
        }
        row += 1;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_and_each_bit_has_its_name() {
        for (at, row) in FEATURES.iter().enumerate() {
            assert!(row.bit.is_power_of_two(), "{row:?}");
            assert!(
                FEATURES.iter().skip(at + 1).all(|other| (other.word, other.bit) != (row.word, row.bit)),
                "{row:?}"
            );
            let named = names(row.word, row.bit);
            assert_eq!(named, [format!("{} ({})", row.bit.trailing_zeros(), row.name)]);
        }
        assert_eq!(names(Word::Incompatible, 1 << 63 | 1 << 1), ["1", "63"]);
    }

    #[test]
    fn the_format_document_names_each_bit() {
        let document = include_str!("../../../docs/FORMAT.md");
        for row in FEATURES {
            let word = if row.word == Word::Compatible { "compatible" } else { "incompatible" };
            let line = format!("| {word} | {} | {} |", row.bit.trailing_zeros(), row.name);
            assert!(document.contains(&line), "docs/FORMAT.md lacks the row {line}");
        }
    }
}
