//! The counts of a cache since it was opened.
//!
//! Invariants: a count only grows, and needs no lock.
//!
//! It does not know the meaning of a count.

use crate::stripes::{Apart, Stripe, Stripes};
use std::sync::atomic::{AtomicU64, Ordering::*};

macro_rules! counters {
    (striped { $($(#[$striped_doc:meta])* $striped:ident,)+ } $($(#[$doc:meta])* $name:ident,)+) => {
        /// Counts since the cache was opened.
        pub struct Counters {
            /// Counts that each read hit adds to, by stripe: otherwise the cores would wait for one
            /// another.
            striped: Box<[Apart<Striped>]>,
            $($(#[$doc])* pub $name: AtomicU64,)+
        }

        #[derive(Default)]
        struct Striped {
            $($striped: AtomicU64,)+
        }

        /// A copy of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize)]
        pub struct CounterValues {
            $($(#[$striped_doc])* pub $striped: u64,)+
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Returns counters of 0, for threads with these stripes.
            pub fn new(stripes: &Stripes) -> Counters {
                Counters {
                    striped: (0..stripes.count()).map(|_| Apart::default()).collect(),
                    $($name: AtomicU64::new(0),)+
                }
            }

            /// Returns the counts now.
            pub fn values(&self) -> CounterValues {
                CounterValues {
                    $($striped: self.striped.iter().map(|stripe| stripe.$striped.load(Relaxed)).sum(),)+
                    $($name: self.$name.load(Relaxed),)+
                }
            }
        }
    };
}

counters! {
    striped {
        /// Read requests.
        reads,
        /// Bytes that they asked for.
        read_bytes,
        /// Chunks that they touched.
        read_chunks,
        /// Chunks among these that were served by flash, by RAM before flash, or as zeroes.
        read_hits,
        /// Bytes of them.
        read_hit_bytes,
        /// Bytes of records read from flash, for reads, for destages and for merging partial
        /// writes. They include the gaps of records that are read as one.
        flash_data_bytes_read,
        /// Reads of the metadata region: of the device's blocks, each with one metadata slot or
        /// several.
        flash_region_reads,
        /// Bytes of them.
        flash_region_bytes_read,
    }
    /// Chunks for which the origin was read.
    read_misses,
    /// Chunks served from prefetched RAM.
    prefetch_hits,
    /// Chunks read ahead.
    prefetched_chunks,
    /// Chunks of sequential streams that were not offered to flash.
    scan_bypassed_chunks,
    /// Write requests.
    writes,
    /// Bytes of them.
    write_bytes,
    /// Times that a write waited for room.
    write_waits,
    /// Times that a record waited for a free slot.
    slot_waits,
    /// TRIM and write-zeroes requests.
    trims,
    /// Bytes of them.
    trim_bytes,
    /// Bytes, among these, that `--trim keep` ignored.
    ignored_trim_bytes,
    /// FLUSH requests.
    flushes,
    /// Whole chunks that were inserted, by writes and by fills.
    inserted_chunks,
    /// Duplicates of stored content among them.
    duplicate_chunks,
    /// Zeroes among them.
    zero_chunks,
    /// Records that were stored.
    stored_records,
    /// Bytes of them, compressed.
    stored_bytes,
    /// Bytes of flash that they take: in slots and subchunks, whole ones.
    stored_flash_bytes,
    /// Bytes of their content: all of whole chunks, and the present sectors of fragments.
    stored_content_bytes,
    /// Fragments that were stored.
    fragments_written,
    /// Bytes of the sectors that they hold.
    fragment_bytes,
    /// Insertions dropped because the queue was full.
    insertions_dropped,
    /// Insertions that were overtaken by a write.
    insertions_stale,
    /// Insertions that the design refused: their content is not worth a record.
    insertions_refused,
    /// Chunks that were stored again, because they were worth more than their slot.
    chunks_stored_again,
    /// Bytes of segments written to flash.
    flash_segment_bytes_written,
    /// Metadata slots written to flash.
    flash_region_writes,
    /// Bytes written for them: those of the device's blocks.
    flash_region_bytes_written,
    /// Bytes of the metadata log written to flash.
    flash_log_bytes_written,
    /// Bytes of checkpoints and superblocks written to flash.
    flash_metadata_bytes_written,
    /// Flushes of the flash device.
    flash_flushes,
    /// Reads of flash that failed.
    flash_read_errors,
    /// Writes to flash that failed once at least.
    flash_write_errors,
    /// Reads of a record with the wrong bytes; each such read counts.
    corrupt_records,
    /// Failed checks of bytes read for a record. They include reads whose second try was right, and
    /// reads of a chunk that changed meanwhile, so that its record was obsolete.
    failed_checks,
    /// Commits of the metadata log.
    commits,
    /// Checkpoints written.
    checkpoints,
    /// Checkpoints that failed.
    checkpoint_errors,
    /// Slots evicted: WEUs, chunks, or the subchunks of one.
    evicted_slots,
    /// Slots trimmed.
    slots_trimmed,
    /// Chunks destaged.
    destaged_chunks,
    /// Reads of the origin.
    origin_reads,
    /// Bytes of them.
    origin_bytes_read,
    /// Writes to the origin.
    origin_writes,
    /// Bytes of them.
    origin_bytes_written,
    /// Bytes zeroed on the origin.
    origin_zero_bytes,
    /// Bytes discarded on the origin.
    origin_discard_bytes,
    /// Flushes of the origin.
    origin_flushes,
    /// Failures among them.
    origin_flush_failures,
    /// Operations of the origin that failed.
    origin_errors,
    /// Writes and zeroings that went past a failed flash to the origin.
    writes_past_flash,
    /// Writes and zeroings that went past the flash for want of wear budget.
    writes_past_budget,
}

impl Counters {
    /// Counts the beginning of a read of `bytes`.
    #[inline]
    pub fn begin_read(&self, stripe: Stripe, bytes: u64) {
        let counts = &self.striped[stripe.0];
        counts.reads.fetch_add(1, Relaxed);
        counts.read_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts the chunks of a read.
    #[inline]
    pub fn note_chunks(&self, stripe: Stripe, chunks: u64) {
        self.striped[stripe.0].read_chunks.fetch_add(chunks, Relaxed);
    }

    /// Counts bytes of a chunk that needed no origin.
    #[inline]
    pub fn note_hit(&self, stripe: Stripe, bytes: u64) {
        let counts = &self.striped[stripe.0];
        counts.read_hits.fetch_add(1, Relaxed);
        counts.read_hit_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes of records read from flash.
    #[inline]
    pub fn note_data_read(&self, stripe: Stripe, bytes: u64) {
        self.striped[stripe.0].flash_data_bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts the read of a block of the metadata region.
    #[inline]
    pub fn note_region_read(&self, stripe: Stripe, bytes: u64) {
        let counts = &self.striped[stripe.0];
        counts.flash_region_reads.fetch_add(1, Relaxed);
        counts.flash_region_bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts a stored record of `bytes`, with its content's bytes, rounded up to steps of flash.
    pub fn note_stored(&self, bytes: u32, content_bytes: usize, step_bytes: u32) {
        let flash_bytes = u64::from(bytes).next_multiple_of(step_bytes.into());
        self.stored_records.fetch_add(1, Relaxed);
        self.stored_flash_bytes.fetch_add(flash_bytes, Relaxed);
        self.stored_content_bytes.fetch_add(content_bytes as u64, Relaxed);
        self.stored_bytes.fetch_add(u64::from(bytes), Relaxed);
    }
}
