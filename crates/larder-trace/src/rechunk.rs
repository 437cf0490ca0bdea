//! Content traces at another chunk size than their own, by the two passes of the papers.
//!
//! Source: Nitro §5.2 ("fingerprint generation") and AustereCache §5.1 ("two-phase trace
//! conversion"). Pass 1 ([`Rechunker::learn`]) records the fingerprint of each block that is read:
//! the state of the disk before the trace. Pass 2 ([`Rechunker::replay`]) runs the trace, keeps the
//! content of each block, and composes a chunk's fingerprint from its blocks' after each request. A
//! block is unknown until its first access if that is a write, and always if the trace never
//! touches it. Nitro takes a unique value for each of these, AustereCache zeroes: [`Unknown`].
//! [`Initial::FirstSeen`] takes the first written content as the content before. No paper has that,
//! and it makes more duplicates.
//!
//! Departures: the papers hash with SHA-1, Larder with XXH3-128. A chunk of one block keeps its
//! block's fingerprint, and a chunk of zeroes is the chunk of zeroes under every hash of a trace. A
//! trim makes whole blocks zero; the papers' traces have none.
//!
//! A chunk's compressed size is the sum of its blocks', since a trace of blocks tells only a sum.
//! Compressed together, the blocks might take less. An unknown block counts as the known ones of
//! its chunk do on average, or whole if none is known.
//!
//! Invariants: only blocks that the trace touches take memory, at every chunk size. Each block that
//! is read or written takes 28 to 42 bytes, and 47 at most while a table grows (`rechunk/first.rs`
//! and `rechunk/disk.rs`). A run of trimmed blocks takes up to 48 more. Consecutive blocks of one
//! request in one chunk are one request of the chunk.
//!
//! It does not split blocks. A chunk is at least a block.

mod block;
mod compose;
mod disk;
mod first;

use std::ops::Range;

pub use self::compose::Unknown;
use self::{block::Block, compose::Rules, disk::Disk, first::FirstContent};
use crate::{
    chunk::{ChunkRequest, Pieces, check_chunk_bytes},
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    record::{Op, Record, Tag, TraceContent},
};

/// The kind of first access that tells a block's content before the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// A read only (both papers).
    #[default]
    FirstRead,
    /// A read or a write.
    FirstSeen,
}

/// The options of re-chunking.
#[derive(Clone, Copy, Debug)]
pub struct RechunkOptions {
    /// Bytes of a chunk: a power of two, at least a block of the trace.
    pub chunk_bytes: u32,
    /// The content that stands for an unknown block.
    pub unknown: Unknown,
    /// The kind of first access that tells the content before.
    pub initial: Initial,
}

impl RechunkOptions {
    /// Returns Nitro's options.
    pub fn new(chunk_bytes: u32) -> RechunkOptions {
        RechunkOptions { chunk_bytes, unknown: Unknown::default(), initial: Initial::default() }
    }
}

fn content_error(message: String) -> TraceError {
    TraceError::new(TraceErrorKind::Content, "", Position::Whole, message)
}

/// The facts about a trace that both passes have: its block size, and whether it has compressed
/// sizes.
#[derive(Clone, Copy)]
struct Grain {
    /// Bytes of a block: the length of the first record with content; 0 before that. It is a power
    /// of two, like a chunk.
    block_bytes: u32,
    /// The exponent of `block_bytes`.
    block_shift: u32,
    chunk_bytes: u32,
    has_sizes: bool,
}

impl Grain {
    /// Returns the content of a record if it is a whole block of the trace's granularity.
    #[inline]
    fn check(&mut self, record: &Record) -> TraceResult<TraceContent> {
        let Some(content) = record.content else { return Err(no_content(record)) };
        if self.block_bytes == 0 {
            self.begin(record)?;
        }
        let block_bytes = u64::from(self.block_bytes);
        if record.len_bytes != block_bytes || record.offset_bytes & (block_bytes - 1) != 0 {
            return Err(other_block(record, block_bytes));
        }
        self.has_sizes |= content.stored_bytes.is_some();
        Ok(content)
    }

    /// Takes the block size from the first record.
    fn begin(&mut self, record: &Record) -> TraceResult<()> {
        let chunk_bytes = self.chunk_bytes;
        let is_part = u64::from(chunk_bytes).is_multiple_of(record.len_bytes);
        self.block_bytes = u32::try_from(record.len_bytes).ok().filter(|_| is_part).ok_or_else(|| {
            let bytes = record.len_bytes;
            content_error(format!("chunks of {chunk_bytes} bytes cannot be made of blocks of {bytes} bytes"))
        })?;
        self.block_shift = self.block_bytes.trailing_zeros();
        Ok(())
    }

    /// Returns the block that begins at a byte.
    #[inline]
    fn block(&self, offset_bytes: u64) -> u64 {
        offset_bytes >> self.block_shift
    }

    /// Returns the chunk that has a byte.
    #[inline]
    fn chunk(&self, offset_bytes: u64) -> u64 {
        offset_bytes >> self.chunk_bytes.trailing_zeros()
    }

    /// Returns the whole blocks of a trim, if there are any; none before the first block.
    fn trimmed(&self, record: &Record) -> Option<Range<u64>> {
        let block_bytes = u64::from(self.block_bytes);
        let first = record.offset_bytes.checked_next_multiple_of(block_bytes)? / block_bytes;
        let end = record.end_bytes() / block_bytes;
        (first < end).then_some(first..end)
    }

    /// Returns the exponent of the number of blocks in a chunk.
    fn chunk_shift(&self) -> u32 {
        self.chunk_bytes.trailing_zeros() - self.block_shift
    }
}

#[cold]
fn no_content(record: &Record) -> TraceError {
    content_error(format!("request {} has no content: only a trace with content can be re-chunked", record.request))
}

#[cold]
fn other_block(record: &Record, block_bytes: u64) -> TraceError {
    content_error(format!(
        "expected blocks of {block_bytes} bytes as at the beginning of the trace, found {} bytes at byte {}",
        record.len_bytes, record.offset_bytes
    ))
}

/// Pass 1 over a trace, and the way to pass 2.
pub struct Rechunker {
    options: RechunkOptions,
    grain: Grain,
    first: FirstContent,
}

impl Rechunker {
    /// Makes a re-chunker without any block.
    pub fn new(options: RechunkOptions) -> TraceResult<Rechunker> {
        check_chunk_bytes(options.chunk_bytes)?;
        let grain = Grain { block_bytes: 0, block_shift: 0, chunk_bytes: options.chunk_bytes, has_sizes: false };
        Ok(Rechunker { options, grain, first: FirstContent::default() })
    }

    /// Runs pass 1: learns the content of the disk before the trace.
    pub fn learn(&mut self, records: impl IntoIterator<Item = TraceResult<Record>>) -> TraceResult<()> {
        for record in records {
            let record = record?;
            match record.op {
                Op::Flush => {}
                Op::Trim => {
                    if let Some(blocks) = self.grain.trimmed(&record) {
                        self.first.trim(blocks);
                    }
                }
                Op::Read | Op::Write => {
                    let content = self.grain.check(&record)?;
                    let tells = record.op == Op::Read || self.options.initial == Initial::FirstSeen;
                    let number = self.grain.block(record.offset_bytes);
                    let make = || if tells { Block::of(number, &content) } else { Block::unknown(number) };
                    self.first.touch(number, make).ok_or_else(|| content_error("more than 2^32 blocks".into()))?;
                }
            }
        }
        Ok(())
    }

    /// Runs pass 2 over the same trace: returns requests of chunks with their content. A block that
    /// pass 1 has not seen is an error.
    pub fn replay<I>(self, records: I) -> Rechunked<I::IntoIter>
    where
        I: IntoIterator<Item = TraceResult<Record>>,
    {
        let Rechunker { options, grain, first } = self;
        let disk = Disk::new(first.into_sorted(), grain.chunk_shift());
        Rechunked {
            unknown: options.unknown,
            grain,
            disk: Some(disk),
            records: records.into_iter(),
            open: None,
            trim: None,
        }
    }

    /// Returns the requests of [`Rechunker::replay`] without their content. It needs no pass 1, and
    /// keeps no block.
    pub fn outline<I>(self, records: I) -> Rechunked<I::IntoIter>
    where
        I: IntoIterator<Item = TraceResult<Record>>,
    {
        let Rechunker { options, grain, first: _ } = self;
        Rechunked { unknown: options.unknown, grain, disk: None, records: records.into_iter(), open: None, trim: None }
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.first.memory_bytes() as u64
    }
}

/// See [`Rechunker::replay`] and [`Rechunker::outline`].
pub struct Rechunked<I> {
    unknown: Unknown,
    grain: Grain,
    /// The content of the blocks; `None` for an outline.
    disk: Option<Disk>,
    records: I,
    /// The request of a chunk whose blocks arrive.
    open: Option<OpenRequest>,
    trim: Option<Pieces>,
}

#[derive(Clone, Copy)]
struct OpenRequest {
    time_us: Option<u64>,
    request: u64,
    tag: Tag,
    op: Op,
    chunk: u64,
    /// The place of the chunk's blocks on the disk.
    group: usize,
    start_bytes: u64,
    end_bytes: u64,
}

impl<I: Iterator<Item = TraceResult<Record>>> Rechunked<I> {
    /// Returns the bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.grain.chunk_bytes
    }

    /// Returns the bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, Disk::memory_bytes) as u64
    }

    fn close(&mut self) -> Option<ChunkRequest> {
        let OpenRequest { time_us, request, tag, op, chunk, group, start_bytes, end_bytes } = self.open.take()?;
        let Grain { block_bytes, chunk_bytes, has_sizes, .. } = self.grain;
        let rules = Rules { block_bytes, chunk_bytes, unknown: self.unknown, has_sizes };
        let first = chunk * u64::from(chunk_bytes);
        // At most a chunk, which fits.
        let len_bytes = (end_bytes - start_bytes) as u32;
        Some(ChunkRequest {
            time_us,
            request,
            tag,
            op,
            lba: chunk,
            chunk_count: 1,
            start_bytes: (start_bytes - first) as u32,
            len_bytes,
            is_whole: len_bytes == chunk_bytes,
            content: self.disk.as_mut().map(|disk| disk.compose(chunk, group, &rules)),
        })
    }

    /// Takes a record, and returns the request of a chunk that it ends.
    fn step(&mut self, record: &Record) -> TraceResult<Option<ChunkRequest>> {
        if !record.is_data() {
            let closed = self.close();
            if let (Some(disk), Some(blocks)) = (&mut self.disk, self.grain.trimmed(record)) {
                disk.trim(blocks);
            }
            self.trim = Some(Pieces::new(*record, self.grain.chunk_bytes));
            return Ok(closed);
        }
        let content = self.grain.check(record)?;
        let chunk = self.grain.chunk(record.offset_bytes);
        let joins = |open: &&mut OpenRequest| (open.request, open.op, open.chunk) == (record.request, record.op, chunk);
        if let Some(open) = self.open.as_mut().filter(joins) {
            open.start_bytes = open.start_bytes.min(record.offset_bytes);
            open.end_bytes = open.end_bytes.max(record.end_bytes());
            let group = open.group;
            self.keep(record, &content, group)?;
            return Ok(None);
        }
        let closed = self.close();
        let group = self.disk.as_ref().map_or(Some(0), |disk| disk.group(chunk)).ok_or_else(|| unseen(record))?;
        self.keep(record, &content, group)?;
        let &Record { time_us, request, tag, op, offset_bytes: start_bytes, .. } = record;
        self.open =
            Some(OpenRequest { time_us, request, tag, op, chunk, group, start_bytes, end_bytes: record.end_bytes() });
        Ok(closed)
    }

    /// Keeps the content of a record. A read replaces earlier content, too.
    fn keep(&mut self, record: &Record, content: &TraceContent, group: usize) -> TraceResult<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let block = Block::of(self.grain.block(record.offset_bytes), content);
        disk.set(group, block).ok_or_else(|| unseen(record))
    }
}

#[cold]
fn unseen(record: &Record) -> TraceError {
    content_error(format!(
        "request {} touches byte {}, which the first pass over the trace has not seen: it must not change between the passes",
        record.request, record.offset_bytes
    ))
}

impl<I: Iterator<Item = TraceResult<Record>>> Iterator for Rechunked<I> {
    type Item = TraceResult<ChunkRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.trim.as_mut().and_then(Pieces::next) {
                return Some(Ok(request));
            }
            self.trim = None;
            match self.records.next() {
                None => return self.close().map(Ok),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(record)) => {
                    if let Some(closed) = self.step(&record).transpose() {
                        return Some(closed);
                    }
                }
            }
        }
    }
}
