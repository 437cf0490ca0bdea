//! The number of chunks and metadata entries that fit a flash, and the errors of small sizes.
//!
//! Data and metadata share the flash (CacheDedup §5.1, "The same size of flash storage is used to
//! store both data and metadata"). The metadata area is a table of entries, in whole pages. Each
//! design has a formula for the entries and their bytes, from a number of data chunks.
//!
//! Invariants: 64-bit sums do not overflow for any sizes.
//!
//! It does not know the designs' formulas.

use std::fmt;

/// The unit of metadata writes, in bytes.
pub const METADATA_PAGE_BYTES: u64 = 4096;
/// Maximum data chunks, and entries: their numbers have 32 bits.
pub(crate) const ENTRIES_MAX: u64 = u32::MAX as u64 - 2;

/// The size of a flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashSize {
    /// Bytes for data and metadata together.
    Bytes(u64),
    /// Data chunks, with metadata on top.
    DataChunks(u64),
}

/// The capacities of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Data chunks.
    pub data_chunks: u64,
    /// Remembered addresses, with those without data.
    pub addresses: u64,
    /// Bytes of a [`MetadataEntry`](super::MetadataEntry) on flash.
    pub entry_bytes: u32,
    /// Bytes of the metadata area, in whole pages.
    pub metadata_bytes: u64,
}

/// A size that a design cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeError {
    /// Name of the design.
    pub design: &'static str,
    /// The error.
    pub kind: SizeErrorKind,
}

/// The error of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeErrorKind {
    /// Too few data chunks.
    DataChunks {
        /// The given number.
        given: u64,
        /// The minimum.
        least: u64,
    },
    /// Too few metadata entries for the data chunks.
    MetadataEntries {
        /// The given number.
        given: u64,
        /// The minimum.
        least: u64,
    },
    /// Too small a flash.
    FlashBytes {
        /// Its bytes.
        given: u64,
        /// The minimum for chunks of this size.
        least: u64,
    },
    /// More chunks or entries than numbers for them.
    TooMany {
        /// The given or resulting number; there may be even more room.
        given: u64,
        /// The maximum.
        most: u64,
    },
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let design = self.design;
        match self.kind {
            SizeErrorKind::DataChunks { given, least } => {
                write!(f, "{design}: {given} data chunks are too few; {least} is the least")
            }
            SizeErrorKind::MetadataEntries { given, least } => {
                write!(f, "{design}: {given} metadata entries are too few for its data chunks; {least} are the least")
            }
            SizeErrorKind::FlashBytes { given, least } => {
                write!(f, "{design}: a flash of {given} bytes is too small; {least} bytes is the least")
            }
            SizeErrorKind::TooMany { given, most } => {
                write!(f, "{design} can have at most {most} data chunks and as many metadata entries, not {given}")
            }
        }
    }
}

impl std::error::Error for SizeError {}

/// Returns the bytes of `entries` of `entry_bytes`, in whole pages.
pub(crate) fn pages_bytes(entries: u64, entry_bytes: u32) -> u64 {
    entries.saturating_mul(u64::from(entry_bytes)).div_ceil(METADATA_PAGE_BYTES).saturating_mul(METADATA_PAGE_BYTES)
}

/// A design's formula: from a number of data chunks (of 32 bits) to that of all metadata entries.
pub(crate) struct Formula<F> {
    pub design: &'static str,
    pub chunk_bytes: u32,
    pub entry_bytes: u32,
    pub entries: F,
}

impl<F: Fn(u64) -> u64> Formula<F> {
    fn flash_bytes(&self, data_chunks: u64) -> u64 {
        let data = data_chunks.saturating_mul(u64::from(self.chunk_bytes));
        data.saturating_add(pages_bytes((self.entries)(data_chunks), self.entry_bytes))
    }

    /// Returns the data chunks that fit.
    pub fn data_chunks(&self, flash: FlashSize) -> Result<u64, SizeError> {
        let error = |kind| SizeError { design: self.design, kind };
        let chunks = match flash {
            FlashSize::DataChunks(given) if given == 0 => {
                return Err(error(SizeErrorKind::DataChunks { given, least: 1 }));
            }
            FlashSize::DataChunks(chunks) => chunks,
            FlashSize::Bytes(given) => {
                let least = self.flash_bytes(1);
                if given < least {
                    return Err(error(SizeErrorKind::FlashBytes { given, least }));
                }
                // `low` fits. `high` does not, or is above the maximum, which is reported below.
                let (mut low, mut high) = (1, ENTRIES_MAX + 2);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if self.flash_bytes(middle) <= given { low = middle } else { high = middle }
                }
                low
            }
        };
        check_count(self.design, chunks)?;
        check_count(self.design, (self.entries)(chunks))?;
        Ok(chunks)
    }
}

/// Checks an explicit number of data chunks, or of entries.
pub(crate) fn check_count(design: &'static str, given: u64) -> Result<u32, SizeError> {
    if given > ENTRIES_MAX {
        return Err(SizeError { design, kind: SizeErrorKind::TooMany { given, most: ENTRIES_MAX } });
    }
    Ok(given as u32)
}

/// Checks a number of data chunks, of which there is at least one.
pub(crate) fn check_chunks(design: &'static str, given: u64) -> Result<u32, SizeError> {
    if given == 0 {
        return Err(SizeError { design, kind: SizeErrorKind::DataChunks { given, least: 1 } });
    }
    check_count(design, given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_is_shared_to_the_last_chunk_that_fits() {
        let formula = Formula { design: "test", chunk_bytes: 4096, entry_bytes: 24, entries: |chunks| 2 * chunks };
        for bytes in (8192..3_000_000).step_by(1234) {
            let chunks = formula.data_chunks(FlashSize::Bytes(bytes)).unwrap();
            assert!(formula.flash_bytes(chunks) <= bytes && formula.flash_bytes(chunks + 1) > bytes, "{bytes} bytes");
        }
        let error = formula.data_chunks(FlashSize::Bytes(8191)).unwrap_err();
        assert_eq!(error.kind, SizeErrorKind::FlashBytes { given: 8191, least: 8192 });
        assert_eq!(formula.data_chunks(FlashSize::Bytes(8192)), Ok(1));
        assert_eq!(formula.data_chunks(FlashSize::DataChunks(5000)), Ok(5000));
        for absurd in [FlashSize::Bytes(u64::MAX), FlashSize::DataChunks(u64::MAX), FlashSize::DataChunks(1 << 31)] {
            let error = formula.data_chunks(absurd).unwrap_err();
            assert!(matches!(error.kind, SizeErrorKind::TooMany { .. }), "{error}");
        }
    }
}
