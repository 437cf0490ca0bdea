//! The record of a trace, one block or request: [`Record`], its content, and the limits of all
//! formats.
//!
//! Invariants: a record is small, `Copy` and owns no memory. A record with content covers exactly
//! one content block, so its length is the granularity of the content. Reads, writes and trims have
//! a length above 0; flushes have none. Every address ends at or below [`ADDRESS_MAX`].
//!
//! It does not hold data. A trace has fingerprints and sizes only.

use std::fmt;

/// The bound of all addresses of a trace (1 EiB): sums of two stay far from overflow.
pub const ADDRESS_MAX: u64 = 1 << 60;
/// The longest read or write of a trace, in bytes. Trims may be longer.
pub const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// The longest content block, in bytes.
pub const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A trim (discard): the range reads as zeroes from then on.
    Trim,
    /// A flush of all writes so far; address and length are 0.
    Flush,
}

/// The fingerprint of a content block, from the trace, widened to 128 bits. Equal fingerprints are
/// equal content, within one trace and one granularity.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId(pub [u64; 2]);

impl ContentId {
    /// Makes a fingerprint from a number, in the order of its hexadecimal digits.
    pub const fn from_u128(value: u128) -> Self {
        ContentId([(value >> 64) as u64, value as u64])
    }

    /// Returns the number.
    pub const fn to_u128(self) -> u128 {
        (self.0[0] as u128) << 64 | self.0[1] as u128
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0[0] == 0 { write!(f, "{:016x}", self.0[1]) } else { write!(f, "{:032x}", self.to_u128()) }
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The source of a record's content. Made-up content is never taken for recorded content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provenance {
    /// The trace has it.
    #[default]
    Recorded,
    /// The trace has the fingerprint; the stored size was made up.
    SizeMade,
    /// All of it was made up, by a generator or for a trace without content.
    Made,
}

/// The content of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContent {
    /// The fingerprint that the trace gives. For SHA-1 its first 128 bits.
    pub fingerprint: ContentId,
    /// Bytes of the compressed block, if they are known; at most the block's length.
    pub stored_bytes: Option<u32>,
    /// True if the block is all zeroes. Its fingerprint is that of zeroes for the trace's hash and
    /// granularity.
    pub is_zero: bool,
    /// The source of the content.
    pub provenance: Provenance,
}

/// The most bytes of a tag; the rest is cut off.
const TAG_BYTES_MAX: usize = 15;

/// A short name that a trace gives a request: workload, guest, process or host. At most 15 bytes
/// are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    len: u8,
    bytes: [u8; TAG_BYTES_MAX],
}

impl Tag {
    /// No tag.
    pub const NONE: Tag = Tag { len: 0, bytes: [0; TAG_BYTES_MAX] };

    /// Makes a tag of the first 15 bytes of `name`.
    pub fn new(name: &[u8]) -> Tag {
        let mut bytes = [0; TAG_BYTES_MAX];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
            len += 1;
        }
        Tag { len, bytes }
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// One line of a trace: a request, or one content block of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Arrival in microseconds since an instant of the trace's choice; `None` if the format has no
    /// times. Records stand in the order of their replay, and times may step back.
    pub time_us: Option<u64>,
    /// The number of the request. Consecutive records with the same number belong to it.
    pub request: u64,
    /// Name of workload, guest, process or host.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset_bytes: u64,
    /// The length in bytes.
    pub len_bytes: u64,
    /// The read or written content, if the trace knows it.
    pub content: Option<TraceContent>,
}

const _: () = assert!(size_of::<Record>() <= 112, "templates and batches count on it");

impl Record {
    /// Makes a record without time, tag or content.
    pub const fn new(request: u64, op: Op, offset_bytes: u64, len_bytes: u64) -> Record {
        Record { time_us: None, request, tag: Tag::NONE, op, offset_bytes, len_bytes, content: None }
    }

    /// Returns the byte after the last.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes)
    }

    /// Returns whether the record moves data: a read or a write.
    pub fn is_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write)
    }
}
