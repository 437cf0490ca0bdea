//! CAFTL's options, their defaults, and the sizes that follow from a geometry.
//!
//! Role: [`CaftlOptions`] names the choices that the paper leaves to the maker of a drive, and
//! those that its experiments vary. `Sizes` counts the pages that the layer has for itself, and
//! the blocks that have to be free. These blocks have room for the pages that a capacitor saves, or
//! that the log owes without one, at any loss of power.
//!
//! Invariant: a `Sizes` that was made fits the drive's 31 bits of page numbers.
//!
//! It leaves the host's remaining room to the space, which may refuse it.

use super::{
    entry::StoreOptions,
    journal::{PRIMARY_BYTES, RECORD_BYTES, SECONDARY_BYTES},
    pages::METADATA_BYTES,
};
use crate::{
    geometry::{DriveGeometry, OutOfRange, within},
    space::SpaceOptions,
};

/// The points at which in-line deduplication goes off and on, in percent of the write buffer.
///
/// See section 3.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InLineSwitch {
    /// Off from here.
    pub high_percent: u8,
    /// On from here down.
    pub low_percent: u8,
}

impl Default for InLineSwitch {
    fn default() -> Self {
        InLineSwitch { high_percent: 95, low_percent: 50 }
    }
}

/// The options of CAFTL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaftlOptions {
    /// Options of writing and collection; the layer sets those of its own pages.
    pub space: SpaceOptions,
    /// The fingerprint store.
    pub store: StoreOptions,
    /// True if writes are deduplicated in line at all.
    pub in_line: bool,
    /// Bytes of a sampling unit (section 3.4.1: 8 to 128 KiB); `None`: every page is fingerprinted.
    pub sampling_unit_bytes: Option<u32>,
    /// True if CRC32 decides which pages are fingerprinted (section 3.4.2).
    pub pre_hashes: bool,
    /// The switch by which a full buffer turns in-line deduplication off, if there is one.
    pub switch: Option<InLineSwitch>,
    /// True if a page without references can be found and made valid until it is erased (section
    /// 1.3).
    pub keeps_deleted: bool,
    /// True if idle time is used (section 3.5).
    pub out_of_line: bool,
    /// True if pages that collection moves are fingerprinted and deduplicated.
    pub fingerprints_collected: bool,
    /// True if the work of idle time goes on with each collection, too.
    ///
    /// It then takes as many operations as the erased blocks have pages. Section 3.5 has both ways;
    /// it does not say how much goes with a collection.
    pub merges_collecting: bool,
    /// Fingerprints that are sorted at a time (section 3.5's N; it names none).
    pub sort_fingerprints_max: u32,
    /// Host pages programmed since external merging last began, after which it begins again.
    ///
    /// In percent of the logical pages. The paper says "periodically".
    pub merge_after_percent: f64,
    /// Pages of the log's buffer. The paper says "small".
    pub log_pages: u32,
    /// Pages of the journal at which the tables are written out.
    ///
    /// `None`: as many as the primary table has, so that a start reads about twice the tables. The
    /// paper says "periodically".
    pub journal_pages_max: Option<u32>,
    /// Metadata pages in RAM.
    ///
    /// `None`: two for each block that is open, 16 at least, so that a page of metadata is written
    /// once its pages are. The paper says nothing.
    pub metadata_pages_in_ram: Option<u32>,
    /// True if a capacitor saves the log and changed metadata pages when the power goes (section
    /// 3.3.2).
    pub capacitor: bool,
}

impl Default for CaftlOptions {
    /// Returns CAFTL as in the paper's sections 4.2 and 4.3: every page is fingerprinted.
    fn default() -> Self {
        CaftlOptions {
            space: SpaceOptions::default(),
            store: StoreOptions::default(),
            in_line: true,
            sampling_unit_bytes: None,
            pre_hashes: false,
            switch: None,
            keeps_deleted: true,
            out_of_line: true,
            fingerprints_collected: true,
            merges_collecting: false,
            sort_fingerprints_max: 65_536,
            merge_after_percent: 5.0,
            log_pages: 1,
            journal_pages_max: None,
            metadata_pages_in_ram: None,
            capacitor: true,
        }
    }
}

impl CaftlOptions {
    /// Returns the three accelerations of section 3.4 (Figure 17), and its largest sampling unit.
    pub fn accelerated() -> Self {
        CaftlOptions {
            sampling_unit_bytes: Some(128 << 10),
            pre_hashes: true,
            switch: Some(InLineSwitch::default()),
            ..CaftlOptions::default()
        }
    }
}

/// The numbers of pages that the layer has for itself, by their contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Pages of a sampling unit; one if every page is fingerprinted.
    pub sampling_unit_pages: usize,
    pub primary_pages: u32,
    pub secondary_pages: u32,
    pub records_per_page: u32,
    /// Records of the log's buffer.
    pub log_records: usize,
    pub journal_pages_max: u32,
    pub metadata_pages: u32,
    pub metadata_frames: u32,
    /// Fingerprints of a page of a sort run.
    pub sorted_per_page: u32,
    pub internal_pages_max: u32,
    /// Free blocks that each plane keeps, so that it can collect after any loss of power.
    pub free_blocks_min: u32,
    /// Without a capacitor: pages of the journal that a block's erasure may need.
    pub owed_pages_max: u32,
}

/// Checks each option by itself, for pages of so many bytes.
fn check(options: &CaftlOptions, page_bytes: u32) -> Result<(), OutOfRange> {
    if let Some(bytes) = options.sampling_unit_bytes
        && (bytes == 0 || bytes % page_bytes != 0)
    {
        let is_of_pages = bytes > 0 && u64::from(page_bytes) > u64::from(bytes);
        return Err(match is_of_pages {
            // The user gave the page: a sampled unit is at least one.
            true => {
                OutOfRange::new("page_bytes", page_bytes, format!("{bytes} at most, as much as is sampled at once"))
            }
            false => OutOfRange::new("sampling_unit_bytes", bytes, format!("whole pages of {page_bytes}")),
        });
    }
    if let Some(InLineSwitch { high_percent, low_percent }) = options.switch {
        within("high_percent", high_percent.into(), 1, 100)?;
        within("low_percent", low_percent.into(), 0, u32::from(high_percent) - 1)?;
    }
    within("sort_fingerprints_max", options.sort_fingerprints_max, 2, 1 << 26)?;
    within("log_pages", options.log_pages, 1, 1 << 10)?;
    if !(0.0..=1000.0).contains(&options.merge_after_percent) {
        return Err(OutOfRange::new("merge_after_percent", options.merge_after_percent, "from 0 to 1000"));
    }
    Ok(())
}

impl Sizes {
    /// Computes the sizes of a drive.
    ///
    /// # Errors
    /// The first option outside its range, or a drive of more pages than 31 bits number.
    pub fn of(geometry: &DriveGeometry, options: &CaftlOptions) -> Result<Sizes, OutOfRange> {
        geometry.check()?;
        let page_bytes = geometry.page_bytes;
        check(options, page_bytes)?;
        let table_pages = |entries: u32, bytes: u32| entries.div_ceil(page_bytes / bytes);
        let logical = geometry.logical_pages();
        let primary_pages = table_pages(logical, PRIMARY_BYTES);
        let secondary_pages = table_pages(logical, SECONDARY_BYTES);
        let journal_pages_max = options.journal_pages_max.unwrap_or(primary_pages.max(4));
        within("journal_pages_max", journal_pages_max, 1, 1 << 24)?;
        let open_blocks = 4 * geometry.planes();
        let metadata_frames = options.metadata_pages_in_ram.unwrap_or((2 * open_blocks).max(16));
        within("metadata_pages_in_ram", metadata_frames, 4, 1 << 24)?;
        let metadata_pages = table_pages(geometry.pages(), METADATA_BYTES);
        let run_pages = metadata_pages + geometry.pages().div_ceil(options.sort_fingerprints_max);
        let tables = primary_pages + secondary_pages;
        let records_per_page = page_bytes / RECORD_BYTES;
        // For one page of room a plane may have to empty as many blocks as they have pages, each
        // all but valid.
        let per_block = geometry.pages_per_block;
        let collected = u64::from(per_block) * u64::from(per_block.div_ceil(records_per_page));
        let log_pages = u64::from(options.log_pages);
        let (logged, free_blocks_min) = if options.capacitor {
            let logged = u64::from(per_block).pow(2).div_ceil(records_per_page.into()) + 2;
            let metadata = u64::from(metadata_pages).min(u64::from(metadata_frames) + 2 * u64::from(per_block) + 8);
            let a_row = u64::from(geometry.planes()) * u64::from(per_block);
            (logged, 2 + (log_pages + logged + metadata).div_ceil(a_row))
        } else {
            (collected + 2, 3 + log_pages.div_ceil(per_block.into()))
        };
        // Tables are there twice while they are written out, and pages that move meanwhile are
        // logged.
        let internal = u64::from(metadata_pages)
            + 2 * u64::from(tables)
            + u64::from(journal_pages_max + options.log_pages + tables / 8 + 4)
            + u64::from(run_pages)
            + logged;
        let numbers = u64::from(geometry.pages()) + internal;
        if numbers >= 1 << 31 {
            let range = "so few that they and the layer's own numbers are below 2147483648";
            return Err(OutOfRange::new("physical pages", geometry.pages(), range));
        }
        Ok(Sizes {
            sampling_unit_pages: options.sampling_unit_bytes.map_or(1, |bytes| (bytes / page_bytes) as usize),
            primary_pages,
            secondary_pages,
            records_per_page,
            log_records: (records_per_page * options.log_pages) as usize,
            journal_pages_max,
            metadata_pages,
            metadata_frames,
            sorted_per_page: page_bytes / METADATA_BYTES,
            internal_pages_max: internal as u32,
            free_blocks_min: free_blocks_min as u32,
            owed_pages_max: if options.capacitor { 0 } else { per_block.div_ceil(records_per_page) },
        })
    }
}
