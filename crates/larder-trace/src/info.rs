//! Statistics of a trace, in one pass.
//!
//! Source: the definitions are those of `shared/traces/TRACES.md`, with AustereCache §5.1's I/O deduplication ratio and
//! CacheDedup's Table 2 (working set, unique data, write-to-read ratio) beside them. All are counted in *blocks*: of the
//! trace's content granularity, or of `block_bytes` where it has no content.
//!
//! Invariants: memory grows with the working set, not with the trace: a slot of 41 bytes for each distinct address and
//! one of 25 for each distinct fingerprint, in maps of which 44 to 87% are full (so 47 to 94 and 29 to 57 bytes).
//!
//! What it does not do: print.

mod collect;
mod sizes;

pub use collect::InfoCollector;
pub use sizes::Sizes;

use crate::{record::Provenance, sink::BackSteps};

/// Blocks of zeroes, or all blocks, or those without zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub all: u64,
    /// Those that are zeroes.
    pub zeroes: u64,
}

impl Counts {
    /// Those that are not zeroes.
    pub fn without_zeroes(&self) -> u64 {
        self.all - self.zeroes
    }

    fn add(&mut self, is_zero: bool) {
        self.all += 1;
        self.zeroes += u64::from(is_zero);
    }
}

/// Statistics of a trace. Shares are of 1; a share of nothing is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Bytes of a block, the unit of all that follows.
    pub block_bytes: u64,
    /// Requests: runs of records with one number.
    pub requests: u64,
    /// Block requests: each block that a read or write touches, as often as it does.
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
    /// Times from first to last (the greatest less the least), in microseconds; `None` without times.
    pub duration_us: Option<u64>,
    /// Records whose time is below the greatest before.
    pub back_steps: BackSteps,
    /// Requests (reads and writes) that begin where one of the last few ended.
    pub sequential_requests: u64,
    /// Requests that read or write.
    pub data_requests: u64,
    /// Sizes of requests that read.
    pub read_sizes: Sizes,
    /// Sizes of requests that write.
    pub write_sizes: Sizes,
    /// Records whose content is of no whole block (another size, or another place): their content is not counted.
    pub content_left_out: u64,
    /// What only a trace with content has.
    pub content: Option<ContentInfo>,
}

/// Statistics of a trace's content.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContentInfo {
    /// The worst provenance in it: whether anything was made up.
    pub provenance: Provenance,
    /// Blocks of zeroes among all and among writes.
    pub zero_blocks: u64,
    /// Writes of zeroes.
    pub zero_writes: u64,
    /// Distinct fingerprints, that of zeroes included.
    pub unique_blocks: u64,
    /// Writes whose fingerprint was in an earlier record, read or write (TRACES.md: dup-write).
    pub duplicate_writes: Counts,
    /// Writes whose fingerprint was written before: what deduplication saves on the write path (AustereCache §5.1).
    pub rewritten_fingerprints: Counts,
    /// Writes that put on a block what the trace last wrote there, where it was not trimmed since, nor in part.
    pub same_content_rewrites: u64,
    /// Reads of blocks that the trace wrote before and did not trim since. A trim of a part leaves what nobody knows: the
    /// first read after it is not among these, and later ones are compared with that.
    pub reads_checked: u64,
    /// Those whose fingerprint is not what was last written.
    pub reads_mismatched: u64,
    /// Reads of blocks that were trimmed and not written since.
    pub reads_after_trim: u64,
    /// Those that are not zeroes.
    pub reads_after_trim_not_zero: u64,
    /// Blocks whose compressed size is known.
    pub sized_blocks: Counts,
    /// Sum of the compressed sizes, in bytes.
    pub stored_bytes: u64,
    /// Sum of the compressed sizes of what is not zeroes.
    pub stored_bytes_without_zeroes: u64,
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Info {
    /// Writes for each read, in blocks.
    pub fn write_to_read_ratio(&self) -> Option<f64> {
        share(self.write_blocks, self.read_blocks)
    }

    /// Distinct addresses, in bytes.
    pub fn working_set_bytes(&self) -> u64 {
        self.working_set_blocks * self.block_bytes
    }

    /// Distinct addresses written, in bytes.
    pub fn written_set_bytes(&self) -> u64 {
        self.written_set_blocks * self.block_bytes
    }

    /// Distinct content, in bytes, before compression.
    pub fn unique_bytes(&self) -> Option<u64> {
        self.content.map(|content| content.unique_blocks * self.block_bytes)
    }

    /// The share of requests that go on where one of the last few ended.
    pub fn sequential_share(&self) -> Option<f64> {
        share(self.sequential_requests, self.data_requests)
    }

    /// The share of writes that were in the trace before (dup-write of TRACES.md).
    pub fn duplicate_write_share(&self) -> Option<f64> {
        share(self.content?.duplicate_writes.all, self.write_blocks)
    }

    /// The same of what is not zeroes: such duplicates among such writes.
    pub fn duplicate_write_share_without_zeroes(&self) -> Option<f64> {
        let content = self.content?;
        share(content.duplicate_writes.without_zeroes(), self.write_blocks - content.zero_writes)
    }

    /// AustereCache's I/O deduplication ratio: the share of writes that were written before.
    pub fn io_dedup_ratio(&self) -> Option<f64> {
        share(self.content?.rewritten_fingerprints.all, self.write_blocks)
    }

    /// Data size before and after deduplication (Nitro §5.1), at least 1: block requests for each distinct content.
    pub fn dedup_ratio(&self) -> Option<f64> {
        share(self.blocks, self.content?.unique_blocks)
    }

    /// The share of writes that put on a block what was last written there.
    pub fn same_content_share(&self) -> Option<f64> {
        share(self.content?.same_content_rewrites, self.write_blocks)
    }

    /// Zeroes among writes.
    pub fn zero_write_share(&self) -> Option<f64> {
        share(self.content?.zero_writes, self.write_blocks)
    }

    /// Zeroes among all block requests.
    pub fn zero_share(&self) -> Option<f64> {
        share(self.content?.zero_blocks, self.blocks)
    }

    /// Bytes before and after compression, over all block requests whose size is known.
    pub fn compression_ratio(&self) -> Option<f64> {
        let content = self.content?;
        share(content.sized_blocks.all * self.block_bytes, content.stored_bytes)
    }

    /// The same without zeroes.
    pub fn compression_ratio_without_zeroes(&self) -> Option<f64> {
        let content = self.content?;
        share(content.sized_blocks.without_zeroes() * self.block_bytes, content.stored_bytes_without_zeroes)
    }
}
