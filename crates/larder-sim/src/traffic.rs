//! The counts of a cache under replay: chunks and bytes that it read, wrote, stored and evicted.
//!
//! Invariants: counts add up.
//!
//! It does not count requests; [`Tally`](crate::tally::Tally) does.

/// The traffic of a cache so far. Bytes are those that the device sees, padding included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Chunks written to flash, in bytes.
    pub flash_data_bytes_written: u64,
    /// Metadata written to flash, in bytes.
    pub flash_metadata_bytes_written: u64,
    /// Chunks read from flash, in bytes.
    pub flash_data_bytes_read: u64,
    /// Metadata read from flash, in bytes.
    pub flash_metadata_bytes_read: u64,
    /// Chunks stored on flash.
    pub chunks_stored: u64,
    /// Those among them that no request stored: records of evicted slots, which had another life.
    pub chunks_stored_again: u64,
    /// Chunks inserted or written without a store, since their content was there.
    pub chunks_deduplicated: u64,
    /// Stored chunks that left the flash.
    pub chunks_evicted: u64,
    /// Chunks read from the origin.
    pub origin_chunks_read: u64,
    /// Chunks written to the origin, by clients or by destaging. Trims are not in it.
    pub origin_chunks_written: u64,
    /// WEUs that were emptied for new writes. 0 for designs without WEUs.
    pub weu_erasures: u64,
    /// Reads and writes of ghosts: addresses remembered without data, which are inserted again.
    ///
    /// A write around the cache does not count. 0 for designs without ghosts.
    pub ghost_hits: u64,
}

impl Traffic {
    /// Returns the traffic since it was `before`.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            flash_data_bytes_written: self.flash_data_bytes_written - before.flash_data_bytes_written,
            flash_metadata_bytes_written: self.flash_metadata_bytes_written - before.flash_metadata_bytes_written,
            flash_data_bytes_read: self.flash_data_bytes_read - before.flash_data_bytes_read,
            flash_metadata_bytes_read: self.flash_metadata_bytes_read - before.flash_metadata_bytes_read,
            chunks_stored: self.chunks_stored - before.chunks_stored,
            chunks_stored_again: self.chunks_stored_again - before.chunks_stored_again,
            chunks_deduplicated: self.chunks_deduplicated - before.chunks_deduplicated,
            chunks_evicted: self.chunks_evicted - before.chunks_evicted,
            origin_chunks_read: self.origin_chunks_read - before.origin_chunks_read,
            origin_chunks_written: self.origin_chunks_written - before.origin_chunks_written,
            weu_erasures: self.weu_erasures - before.weu_erasures,
            ghost_hits: self.ghost_hits - before.ghost_hits,
        }
    }
}
