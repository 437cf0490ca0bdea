//! CAFTL's own counts, beside those of every drive, for the figures of its paper.
//!
//! Role: the layer keeps [`CaftlCounts`].
//!
//! It leaves operations on flash and removed writes to [`DriveCounts`](crate::counts::DriveCounts).

/// Counts since the drive was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaftlCounts {
    /// Pages that were written with in-line deduplication switched off (section 3.4.3).
    pub pages_switched_off: u64,
    /// Times that it was switched off.
    pub switched_off: u64,
    /// Sampling units of more than one page (section 3.4.1).
    pub units_sampled: u64,
    /// Sampled units whose sample page was there.
    pub samples_found: u64,
    /// Pages written without fingerprint because their unit's sample page was not there.
    pub pages_sampled_out: u64,
    /// Pages whose CRC32 was looked up (section 3.4.2).
    pub crc_lookups: u64,
    /// Pages whose CRC32 was that of a stored page, so that they were fingerprinted.
    pub crc_found: u64,
    /// Pages deduplicated in line whose content did not change.
    pub same_content: u64,
    /// Pages deduplicated in line that found a deleted page, not erased yet (section 1.3).
    pub revalidated: u64,
    /// VBAs that were made: pages that became shared.
    pub pages_shared: u64,
    /// Pages fingerprinted out of line, in idle time (section 3.5).
    pub fingerprinted_idle: u64,
    /// Pages fingerprinted out of line, as collection moved them.
    pub fingerprinted_collected: u64,
    /// Physical pages given up out of line, because others had the same content.
    pub coalesced: u64,
    /// External merge sorts that went through.
    pub merges: u64,
    /// Times that the tables were written out.
    pub syncs: u64,
    /// Metadata pages that came into RAM, to be changed or looked at.
    ///
    /// They were read, if there were any yet.
    pub metadata_pages_brought_in: u64,
}
