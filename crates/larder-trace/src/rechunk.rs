//! Content traces at another chunk size than their own, by the two passes of the papers.
//!
//! Source: Nitro §5.2 ("fingerprint generation") and AustereCache §5.1 ("two-phase trace conversion"). Pass 1 ([`Rechunker::learn`]) records
//! the fingerprint of each block that is read: the state of the disk before the trace. Pass 2 ([`Rechunker::replay`])
//! runs the trace, keeps the content of each block, and composes a chunk's fingerprint from its blocks' after each
//! request. A block whose first access is a write was something unknown until then, and so was a block that the trace
//! never touches. Nitro takes a unique value for each of these, AustereCache zeroes: [`Unknown`]. [`Initial::FirstSeen`]
//! takes what is first written for what was there before; that is no paper's, and makes more duplicates.
//!
//! Departures: the papers hash with SHA-1, we with XXH3-128. A chunk of one block keeps its block's fingerprint, and a
//! chunk of zeroes is the chunk of zeroes, whatever hash the trace uses. A trim makes whole blocks zero; the papers'
//! traces have none.
//!
//! A chunk's compressed size is the sum of its blocks', since a sum is all that a trace of blocks can tell; together they
//! might take less. An unknown block counts as the known ones of its chunk do on average, or whole where none is known.
//!
//! Invariants: memory is 24 bytes for each block of each chunk that the trace touches (so 24 bytes for 4 KiB, or for 512
//! bytes in a trace of sectors, and 768 for a chunk of 128 KiB of which one block is touched), up to a quarter more while
//! it grows, and 14 to 22 bytes a chunk to find it. Blocks of one request that lie in one chunk and follow one another in the trace are one request of the
//! chunk.
//!
//! What it does not do: split blocks. A chunk is at least a block.

use twox_hash::XxHash3_128;

use crate::{
    chunk::{ChunkRequest, Pieces, check_chunk_bytes},
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    numbering::{Numbering, make_room},
    record::{Content, Fingerprint, Op, Provenance, Record, Tag},
    zero,
};

/// What an unknown block is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// Content that no other block has (Nitro §5.2).
    #[default]
    Unique,
    /// Zeroes (AustereCache §5.1).
    Zero,
}

/// Which first access tells what a block held before the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// A read only (both papers).
    #[default]
    FirstRead,
    /// A read or a write.
    FirstSeen,
}

/// How a trace is re-chunked.
#[derive(Clone, Copy, Debug)]
pub struct RechunkOptions {
    /// Bytes of a chunk: a power of two, at least a block of the trace.
    pub chunk_bytes: u32,
    /// What an unknown block is taken for.
    pub unknown: Unknown,
    /// Which first access tells what was there before.
    pub initial: Initial,
}

impl RechunkOptions {
    /// As in Nitro.
    pub fn new(chunk_bytes: u32) -> RechunkOptions {
        RechunkOptions { chunk_bytes, unknown: Unknown::default(), initial: Initial::default() }
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No access so far.
    #[default]
    Untouched,
    /// Its first access does not tell what it holds.
    Unknown,
    Zero,
    Content,
}

/// Size of a block that the trace does not give.
const NO_SIZE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    fingerprint: Fingerprint,
    stored_bytes: u32,
    known: Known,
    provenance: Provenance,
}

const UNTOUCHED: Block = Block {
    fingerprint: zero::XXH3_4K,
    stored_bytes: NO_SIZE,
    known: Known::Untouched,
    provenance: Provenance::Recorded,
};

const _: () = assert!(size_of::<Block>() == 24, "the head of this file and the documents say 24");

impl Block {
    fn of(content: &Content) -> Block {
        Block {
            fingerprint: if content.is_zero { zero::XXH3_4K } else { content.fingerprint },
            stored_bytes: content.stored_bytes.unwrap_or(NO_SIZE),
            known: if content.is_zero { Known::Zero } else { Known::Content },
            provenance: content.provenance,
        }
    }
}

/// LZ4's size of `bytes` zeroes.
fn zeroes_stored_bytes(bytes: u32) -> u32 {
    bytes.div_ceil(255) + 9
}

/// The content of all blocks of the chunks that a trace touches.
pub struct Rechunker {
    options: RechunkOptions,
    /// Bytes of a block: the length of the first record with content; 0 before that.
    block_bytes: u32,
    /// Which group of `blocks` is a chunk's.
    chunks: Numbering,
    blocks: Vec<Block>,
    /// Whether the trace gives sizes.
    has_sizes: bool,
    /// The fingerprints of a chunk's blocks, one after the other.
    scratch: Vec<u8>,
}

fn content_error(message: String) -> TraceError {
    TraceError::new(TraceErrorKind::Content, "", Position::Whole, message)
}

impl Rechunker {
    /// Knows nothing yet.
    pub fn new(options: RechunkOptions) -> TraceResult<Rechunker> {
        check_chunk_bytes(options.chunk_bytes)?;
        let (chunks, blocks, scratch) = (Numbering::default(), Vec::new(), Vec::new());
        Ok(Rechunker { options, block_bytes: 0, chunks, blocks, has_sizes: false, scratch })
    }

    /// Pass 1: what the disk held before the trace.
    pub fn learn(&mut self, records: impl IntoIterator<Item = TraceResult<Record>>) -> TraceResult<()> {
        for record in records {
            let record = record?;
            match record.op {
                Op::Flush => {}
                Op::Trim => self.trim(&record, |block| {
                    // What it held is not asked any more, unless a request has touched it already.
                    if block.known == Known::Untouched {
                        block.known = Known::Unknown;
                    }
                }),
                Op::Read | Op::Write => {
                    let content = self.check(&record)?;
                    let tells = record.op == Op::Read || self.options.initial == Initial::FirstSeen;
                    let block = self.block_mut(record.offset_bytes)?;
                    if block.known == Known::Untouched {
                        *block = if tells { Block::of(&content) } else { Block { known: Known::Unknown, ..UNTOUCHED } };
                    }
                }
            }
        }
        Ok(())
    }

    /// Pass 2 over the same trace: requests of chunks with their content.
    pub fn replay<I>(self, records: I) -> Rechunked<I::IntoIter>
    where
        I: IntoIterator<Item = TraceResult<Record>>,
    {
        Rechunked { disk: self, records: records.into_iter(), open: None, trim: None }
    }

    /// Bytes of memory that are held: 24 a block, and the map of chunks.
    pub fn memory_bytes(&self) -> u64 {
        (self.blocks.capacity() * size_of::<Block>() + self.chunks.memory_bytes()) as u64
    }

    fn blocks_per_chunk(&self) -> usize {
        (self.options.chunk_bytes / self.block_bytes.max(1)).max(1) as usize
    }

    /// The content of a record, if it is a whole block of the trace's granularity.
    fn check(&mut self, record: &Record) -> TraceResult<Content> {
        let Some(content) = record.content else {
            let message =
                format!("request {} has no content: only a trace with content can be re-chunked", record.request);
            return Err(content_error(message));
        };
        if self.block_bytes == 0 {
            let chunk_bytes = self.options.chunk_bytes;
            let is_part = u64::from(chunk_bytes).is_multiple_of(record.len_bytes);
            self.block_bytes = u32::try_from(record.len_bytes).ok().filter(|_| is_part).ok_or_else(|| {
                let bytes = record.len_bytes;
                content_error(format!("chunks of {chunk_bytes} bytes cannot be made of blocks of {bytes} bytes"))
            })?;
        }
        let block_bytes = u64::from(self.block_bytes);
        if record.len_bytes != block_bytes || !record.offset_bytes.is_multiple_of(block_bytes) {
            let message = format!(
                "expected blocks of {block_bytes} bytes as at the beginning of the trace, found {} bytes at byte {}",
                record.len_bytes, record.offset_bytes
            );
            return Err(content_error(message));
        }
        self.has_sizes |= content.stored_bytes.is_some();
        Ok(content)
    }

    /// Where a chunk's blocks begin; they are untouched if nobody asked before.
    fn group(&mut self, chunk: u64) -> TraceResult<usize> {
        let per_chunk = self.blocks_per_chunk();
        let index = match self.chunks.find(chunk) {
            Some(index) => index,
            None => {
                let index = self.chunks.add(chunk).ok_or_else(|| content_error("more than 2^32 chunks".into()))?;
                make_room(&mut self.blocks, per_chunk);
                self.blocks.resize(self.chunks.len() * per_chunk, UNTOUCHED);
                index
            }
        };
        Ok(index as usize * per_chunk)
    }

    fn block_mut(&mut self, offset_bytes: u64) -> TraceResult<&mut Block> {
        let chunk_bytes = u64::from(self.options.chunk_bytes);
        let at = (offset_bytes % chunk_bytes / u64::from(self.block_bytes.max(1))) as usize;
        let group = self.group(offset_bytes / chunk_bytes)?;
        self.blocks.get_mut(group + at).ok_or_else(|| content_error("a block outside its chunk".into()))
    }

    /// Applies `change` to the whole blocks of a trim, in chunks that are known; no other chunk matters.
    fn trim(&mut self, record: &Record, mut change: impl FnMut(&mut Block)) {
        if self.block_bytes == 0 {
            return;
        }
        let block_bytes = u64::from(self.block_bytes);
        let per_chunk = self.blocks_per_chunk() as u64;
        let first = record.offset_bytes.div_ceil(block_bytes);
        let end = record.end_bytes() / block_bytes;
        if first >= end {
            return;
        }
        let chunks = first / per_chunk..end.div_ceil(per_chunk);
        let blocks = &mut self.blocks;
        let mut change_chunk = |chunk: u64, index: u32| {
            let from = first.max(chunk * per_chunk) - chunk * per_chunk;
            let to = end.min((chunk + 1) * per_chunk) - chunk * per_chunk;
            let group = index as usize * per_chunk as usize;
            let range = group + from as usize..group + to as usize;
            blocks.get_mut(range).unwrap_or_default().iter_mut().for_each(&mut change);
        };
        if chunks.end - chunks.start <= self.chunks.len() as u64 {
            for chunk in chunks {
                if let Some(index) = self.chunks.find(chunk) {
                    change_chunk(chunk, index);
                }
            }
        } else {
            for (chunk, index) in self.chunks.iter().filter(|(chunk, _)| chunks.contains(chunk)) {
                change_chunk(chunk, index);
            }
        }
    }

    /// The content of a chunk as it is now.
    fn compose(&mut self, chunk: u64) -> TraceResult<Content> {
        let group = self.group(chunk)?;
        let per_chunk = self.blocks_per_chunk();
        let blocks = self.blocks.get(group..group + per_chunk).unwrap_or_default();
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let mut is_zero = true;
        let mut provenance = Provenance::Recorded;
        let mut sizes = Sizes::default();
        let mut last = zero::XXH3_4K;
        for (at, block) in blocks.iter().enumerate() {
            let is_unknown = matches!(block.known, Known::Untouched | Known::Unknown);
            let is_zero_block = block.known == Known::Zero || is_unknown && self.options.unknown == Unknown::Zero;
            last = match (is_zero_block, is_unknown) {
                (true, _) => zero::XXH3_4K,
                (false, true) => unique(chunk * per_chunk as u64 + at as u64),
                (false, false) => block.fingerprint,
            };
            match block.stored_bytes {
                _ if is_unknown && !is_zero_block => sizes.unknown += 1,
                NO_SIZE if is_zero_block => sizes.add(zeroes_stored_bytes(self.block_bytes)),
                NO_SIZE => sizes.is_missing = true,
                bytes => sizes.add(bytes),
            }
            is_zero &= is_zero_block;
            provenance = provenance.max(block.provenance);
            bytes.extend(last.to_u128().to_be_bytes());
        }
        let fingerprint = match blocks.len() {
            _ if is_zero => zero::XXH3_4K,
            1 => last,
            _ => Fingerprint::from_u128(XxHash3_128::oneshot(&bytes)),
        };
        self.scratch = bytes;
        let chunk_bytes = self.options.chunk_bytes;
        let stored_bytes = self.has_sizes.then(|| sizes.total(self.block_bytes, chunk_bytes)).flatten();
        Ok(Content { fingerprint, stored_bytes, is_zero, provenance })
    }
}

/// The compressed sizes of a chunk's blocks.
#[derive(Default)]
struct Sizes {
    sum: u64,
    known: u64,
    unknown: u64,
    /// A known block without a size: then the chunk has none.
    is_missing: bool,
}

impl Sizes {
    fn add(&mut self, bytes: u32) {
        self.sum += u64::from(bytes);
        self.known += 1;
    }

    fn total(&self, block_bytes: u32, chunk_bytes: u32) -> Option<u32> {
        let unknown = match self.known {
            0 => self.unknown * u64::from(block_bytes),
            known => (self.sum * self.unknown).div_ceil(known),
        };
        let total = (self.sum + unknown).min(u64::from(chunk_bytes));
        (!self.is_missing).then_some(total as u32)
    }
}

/// Content that no other block has: a hash of the block's number that no trace's hash gives.
fn unique(block: u64) -> Fingerprint {
    Fingerprint::from_u128(XxHash3_128::oneshot_with_seed(u64::from_be_bytes(*b"unwritte"), &block.to_be_bytes()))
}

/// See [`Rechunker::replay`].
pub struct Rechunked<I> {
    disk: Rechunker,
    records: I,
    /// The request of a chunk whose blocks are coming in.
    open: Option<Open>,
    trim: Option<Pieces>,
}

#[derive(Clone, Copy)]
struct Open {
    time_us: Option<u64>,
    request: u64,
    tag: Tag,
    op: Op,
    chunk: u64,
    start_bytes: u64,
    end_bytes: u64,
}

impl<I: Iterator<Item = TraceResult<Record>>> Rechunked<I> {
    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.disk.options.chunk_bytes
    }

    /// Bytes of memory that are held.
    pub fn memory_bytes(&self) -> u64 {
        self.disk.memory_bytes()
    }

    fn close(&mut self) -> Option<TraceResult<ChunkRequest>> {
        let Open { time_us, request, tag, op, chunk, start_bytes, end_bytes } = self.open.take()?;
        let first = chunk * u64::from(self.disk.options.chunk_bytes);
        let len_bytes = (end_bytes - start_bytes) as u32;
        Some(self.disk.compose(chunk).map(|content| ChunkRequest {
            time_us,
            request,
            tag,
            op,
            lba: chunk,
            chunk_count: 1,
            start_bytes: (start_bytes - first) as u32,
            len_bytes,
            is_whole: len_bytes == self.disk.options.chunk_bytes,
            content: Some(content),
        }))
    }

    /// Takes a record in, and gives the request of a chunk that it ends.
    fn step(&mut self, record: &Record) -> Option<TraceResult<ChunkRequest>> {
        if !record.is_data() {
            let closed = self.close();
            self.disk.trim(record, |block| *block = Block { known: Known::Zero, ..UNTOUCHED });
            self.trim = Some(Pieces::new(*record, self.disk.options.chunk_bytes));
            return closed;
        }
        let content = match self.disk.check(record) {
            Ok(content) => content,
            Err(error) => return Some(Err(error)),
        };
        let chunk = record.offset_bytes / u64::from(self.disk.options.chunk_bytes);
        let joins = |open: &Open| (open.request, open.op, open.chunk) == (record.request, record.op, chunk);
        let closed = if self.open.as_ref().is_some_and(joins) { None } else { self.close() };
        match self.disk.block_mut(record.offset_bytes) {
            // What is read is what is there, whatever the trace said before.
            Ok(block) => *block = Block::of(&content),
            Err(error) => return Some(Err(error)),
        }
        let open = self.open.get_or_insert(Open {
            time_us: record.time_us,
            request: record.request,
            tag: record.tag,
            op: record.op,
            chunk,
            start_bytes: record.offset_bytes,
            end_bytes: record.end_bytes(),
        });
        open.start_bytes = open.start_bytes.min(record.offset_bytes);
        open.end_bytes = open.end_bytes.max(record.end_bytes());
        closed
    }
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
                None => return self.close(),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(record)) => {
                    if let Some(closed) = self.step(&record) {
                        return Some(closed);
                    }
                }
            }
        }
    }
}
