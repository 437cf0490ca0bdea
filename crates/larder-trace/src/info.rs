//! Statistics of a trace, in one pass.
//!
//! Source: `shared/traces/TRACES.md` defines them. AustereCache §5.1 adds the I/O deduplication
//! ratio, CacheDedup's Table 2 working set, unique data and write-to-read ratio. All are counted in
//! *blocks*: of the trace's content granularity, or of `block_bytes` if it has no content.
//!
//! Invariants: memory grows with the working set, not with the trace. A distinct address takes a
//! slot of 41 bytes, a distinct fingerprint one of 25. Their maps are 44 to 87% full (so 47 to 94
//! and 29 to 57 bytes).
//!
//! It does not print.

mod collect;
mod sizes;

pub use collect::InfoCollector;
pub use sizes::SizeCounts;

use crate::{record::Provenance, sink::BackSteps};

/// Counts of all blocks and of zero blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All blocks.
    pub all: u64,
    /// Blocks of zeroes.
    pub zeroes: u64,
}

impl Counts {
    /// Returns the blocks that are not zeroes.
    pub fn without_zeroes(&self) -> u64 {
        self.all - self.zeroes
    }

    fn add(&mut self, is_zero: bool) {
        self.all += 1;
        self.zeroes += u64::from(is_zero);
    }
}

/// Statistics of a trace. Shares are from 0 to 1; a share of nothing is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Bytes of a block, the unit of all block counts.
    pub block_bytes: u64,
    /// Requests: runs of records with one number.
    pub requests: u64,
    /// Block requests: each block that a read or write touches, counted each time.
    pub blocks: u64,
    /// Block requests that read.
    pub read_blocks: u64,
    /// Block requests that write.
    pub write_blocks: u64,
    /// Trims, as records.
    pub trims: u64,
    /// Bytes trimmed.
    pub trim_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Distinct blocks that were read or written.
    pub working_set_blocks: u64,
    /// Distinct blocks that were written.
    pub written_set_blocks: u64,
    /// The byte after the last that was touched.
    pub end_bytes: u64,
    /// The greatest time less the least, in microseconds; `None` without times.
    pub duration_us: Option<u64>,
    /// Records whose time is below the greatest time before them.
    pub back_steps: BackSteps,
    /// Requests (reads and writes) that begin at the end of one of the last few.
    pub sequential_requests: u64,
    /// Requests that read or write.
    pub data_requests: u64,
    /// Sizes of requests that read.
    pub read_sizes: SizeCounts,
    /// Sizes of requests that write.
    pub write_sizes: SizeCounts,
    /// Records with content of no whole block (another size, or another place). Their content is
    /// not counted.
    pub content_left_out: u64,
    /// The statistics of content; `None` for a trace without.
    pub content: Option<ContentInfo>,
}

/// Statistics of a trace's content.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContentInfo {
    /// The worst provenance in the trace: whether anything was made up.
    pub provenance: Provenance,
    /// Blocks of zeroes among all block requests.
    pub zero_blocks: u64,
    /// Writes of zeroes.
    pub zero_writes: u64,
    /// Distinct fingerprints, that of zeroes included.
    pub unique_blocks: u64,
    /// Writes whose fingerprint was in an earlier record, read or write (TRACES.md: dup-write).
    pub duplicate_writes: Counts,
    /// Writes whose fingerprint was written before. Deduplication saves these on the write path
    /// (AustereCache §5.1).
    pub rewritten_fingerprints: Counts,
    /// Writes that repeat the last written content of their block, if no trim touched it since.
    pub same_content_rewrites: u64,
    /// Reads of blocks that the trace wrote before and did not trim since. After a trim of a part
    /// the content is unknown: the first read is not counted, and later reads are compared with it.
    pub reads_checked: u64,
    /// Checked reads whose fingerprint differs from the last written one.
    pub reads_mismatched: u64,
    /// Reads of blocks that were trimmed and not written since.
    pub reads_after_trim: u64,
    /// Reads after a trim that are not zeroes.
    pub reads_after_trim_not_zero: u64,
    /// Blocks with a known compressed size.
    pub sized_blocks: Counts,
    /// Sum of the compressed sizes, in bytes.
    pub stored_bytes: u64,
    /// Sum of the compressed sizes without zeroes.
    pub stored_bytes_without_zeroes: u64,
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Info {
    /// Returns writes per read, in blocks.
    pub fn write_to_read_ratio(&self) -> Option<f64> {
        share(self.write_blocks, self.read_blocks)
    }

    /// Returns the bytes of the distinct addresses.
    pub fn working_set_bytes(&self) -> u64 {
        self.working_set_blocks * self.block_bytes
    }

    /// Returns the bytes of the distinct addresses that were written.
    pub fn written_set_bytes(&self) -> u64 {
        self.written_set_blocks * self.block_bytes
    }

    /// Returns the bytes of the distinct content, before compression.
    pub fn unique_bytes(&self) -> Option<u64> {
        self.content.map(|content| content.unique_blocks * self.block_bytes)
    }

    /// Returns the share of requests that begin at the end of one of the last few.
    pub fn sequential_share(&self) -> Option<f64> {
        share(self.sequential_requests, self.data_requests)
    }

    /// Returns the share of writes that were in the trace before (dup-write of TRACES.md).
    pub fn duplicate_write_share(&self) -> Option<f64> {
        share(self.content?.duplicate_writes.all, self.write_blocks)
    }

    /// Returns the same share without zeroes: such duplicates among such writes.
    pub fn duplicate_write_share_without_zeroes(&self) -> Option<f64> {
        let content = self.content?;
        share(content.duplicate_writes.without_zeroes(), self.write_blocks - content.zero_writes)
    }

    /// Returns AustereCache's I/O deduplication ratio: the share of writes that were written
    /// before.
    pub fn io_dedup_ratio(&self) -> Option<f64> {
        share(self.content?.rewritten_fingerprints.all, self.write_blocks)
    }

    /// Returns the data size before over after deduplication (Nitro §5.1), at least 1. It is the
    /// block requests per distinct content.
    pub fn dedup_ratio(&self) -> Option<f64> {
        share(self.blocks, self.content?.unique_blocks)
    }

    /// Returns the share of writes that repeat the last written content of their block.
    pub fn same_content_share(&self) -> Option<f64> {
        share(self.content?.same_content_rewrites, self.write_blocks)
    }

    /// Returns the share of zeroes among writes.
    pub fn zero_write_share(&self) -> Option<f64> {
        share(self.content?.zero_writes, self.write_blocks)
    }

    /// Returns the share of zeroes among all block requests.
    pub fn zero_share(&self) -> Option<f64> {
        share(self.content?.zero_blocks, self.blocks)
    }

    /// Returns the bytes before over after compression, for all block requests of known size.
    pub fn compression_ratio(&self) -> Option<f64> {
        let content = self.content?;
        share(content.sized_blocks.all * self.block_bytes, content.stored_bytes)
    }

    /// Returns the compression ratio without zeroes.
    pub fn compression_ratio_without_zeroes(&self) -> Option<f64> {
        let content = self.content?;
        share(content.sized_blocks.without_zeroes() * self.block_bytes, content.stored_bytes_without_zeroes)
    }
}
