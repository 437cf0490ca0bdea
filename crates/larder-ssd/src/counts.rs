//! Counts of a drive: operations by cause, write amplification, wear, and years of life.
//!
//! Role: [`CountedFlash`](super::flash::CountedFlash) and the translation layer keep
//! [`DriveCounts`]. [`Wear`] and [`Life`] are derived on request.
//!
//! Invariant: `programs[Host]` = host pages written − pages deduplicated. Pages that a buffer
//! before the drive absorbs are not among them, and have their own count.
//!
//! It does not know times.

use super::{
    array::FlashArray,
    op::{Cause, Hash},
};

/// Operations since the drive was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveCounts {
    /// Pages read from flash, by [`Cause`].
    pub reads: [u64; Cause::COUNT],
    /// Pages programmed, by [`Cause`].
    pub programs: [u64; Cause::COUNT],
    /// Blocks erased, by [`Cause`].
    pub erases: [u64; Cause::COUNT],
    /// Pages that the controller hashed, by [`Hash`](enum@Hash).
    pub hashes: [u64; Hash::COUNT],
    /// Pages that the host wrote, as they came to the translation layer.
    ///
    /// Partial pages were completed before; absorbed pages did not come.
    pub host_pages_written: u64,
    /// Written pages that were not programmed because their content was there.
    pub pages_deduplicated: u64,
    /// Pages that the host read.
    pub host_pages_read: u64,
    /// Pages that were read and not there.
    pub unmapped_pages_read: u64,
    /// Pages that the host trimmed, there or not.
    pub host_pages_trimmed: u64,
    /// Logical pages that the drive dropped by itself.
    pub pages_evicted: u64,
}

impl DriveCounts {
    /// Sums the pages programmed for any cause.
    pub fn pages_programmed(&self) -> u64 {
        self.programs.iter().sum()
    }

    /// Sums the pages read from flash for any cause.
    pub fn pages_read(&self) -> u64 {
        self.reads.iter().sum()
    }

    /// Sums the blocks erased for any cause.
    pub fn blocks_erased(&self) -> u64 {
        self.erases.iter().sum()
    }

    /// Sums the pages copied from flash to flash: by collection, wear levelling and merges.
    pub fn pages_copied(&self) -> u64 {
        [Cause::Collection, Cause::WearLevelling, Cause::Merge].map(|cause| self.programs[cause as usize]).iter().sum()
    }

    /// Returns the pages programmed for each page that came to the translation layer.
    ///
    /// This is the layer's own write amplification, below 1 if it deduplicates. It is `None` before
    /// the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_pages_written > 0).then(|| self.pages_programmed() as f64 / self.host_pages_written as f64)
    }

    /// Returns the counts since `earlier`, a former state of the same counts.
    pub fn since(&self, earlier: &DriveCounts) -> DriveCounts {
        DriveCounts {
            hashes: less(&self.hashes, &earlier.hashes),
            reads: less(&self.reads, &earlier.reads),
            programs: less(&self.programs, &earlier.programs),
            erases: less(&self.erases, &earlier.erases),
            host_pages_written: self.host_pages_written - earlier.host_pages_written,
            pages_deduplicated: self.pages_deduplicated - earlier.pages_deduplicated,
            host_pages_read: self.host_pages_read - earlier.host_pages_read,
            unmapped_pages_read: self.unmapped_pages_read - earlier.unmapped_pages_read,
            host_pages_trimmed: self.host_pages_trimmed - earlier.host_pages_trimmed,
            pages_evicted: self.pages_evicted - earlier.pages_evicted,
        }
    }
}

fn less<const N: usize>(now: &[u64; N], then: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|at| now[at] - then[at])
}

/// The erasures of a drive's blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    /// The erasures of the least-worn block.
    pub min: u32,
    /// Erasures a block.
    pub mean: f64,
    /// The erasures of the most-worn block.
    pub max: u32,
    /// Standard deviation of the erasures a block, over all blocks.
    pub standard_deviation: f64,
}

impl Wear {
    /// Computes the wear of `array`.
    pub fn of(array: &FlashArray) -> Wear {
        let blocks = f64::from(array.geometry().blocks());
        let (mut min, mut max, mut sum) = (u32::MAX, 0, 0u64);
        for erases in array.all_erases() {
            min = min.min(erases);
            max = max.max(erases);
            sum += u64::from(erases);
        }
        let mean = sum as f64 / blocks;
        let squares: f64 = array.all_erases().map(|erases| (f64::from(erases) - mean).powi(2)).sum();
        Wear { min, mean, max, standard_deviation: (squares / blocks).sqrt() }
    }

    /// Returns the standard deviation of the erasures a block over their mean. `None` if there were
    /// none.
    pub fn variation(&self) -> Option<f64> {
        (self.mean > 0.0).then(|| self.standard_deviation / self.mean)
    }
}

/// A year, in seconds: 365.25 days.
pub const YEAR_SECONDS: f64 = 365.25 * 86_400.0;

/// The life of a drive in years, if its wear goes on at the same rate.
///
/// It is infinite if nothing was erased.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    /// Years until the mean block has reached its rated cycles.
    pub years_mean_block: f64,
    /// Years until the most-worn block has reached them.
    pub years_worst_block: f64,
}

impl Life {
    /// Computes the life of blocks that stand `rated_cycles` erasures and got `wear` in `seconds`.
    pub fn of(wear: &Wear, rated_cycles: u32, seconds: f64) -> Life {
        let years = |erases: f64| f64::from(rated_cycles) / erases * seconds / YEAR_SECONDS;
        let until = |erases: f64| if erases > 0.0 { years(erases) } else { f64::INFINITY };
        Life { years_mean_block: until(wear.mean), years_worst_block: until(f64::from(wear.max)) }
    }
}
