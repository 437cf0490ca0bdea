//! What a cache under replay asks of its two devices, request by request: the flash that it lies on, and its origin.
//!
//! Role: [`ReplayCache::gather`](crate::cache::ReplayCache::gather) makes a cache keep them, and
//! [`take_requests`](crate::cache::ReplayCache::take_requests) hands them over. Who lays the flash on a simulated drive, or
//! gives devices a time, listens there, after each request of a client.
//!
//! Order: requests come in the order in which the cache makes them. Those that a client waits for ([`Waits::Client`]) are made
//! one after the other, before the client is answered; what nobody waits for comes behind it, and is over some time later.
//!
//! Invariants: the bytes of gathered requests are those that [`Traffic`](crate::cache::Traffic) counts: data and metadata written
//! to flash; data and metadata read from flash *and from the cache's buffer*, since what is read while its segment is still in
//! RAM is counted as read from flash; chunks read from the origin and written to it. No write of the flash reaches beyond
//! [`ReplayCache::flash_span_bytes`](crate::cache::ReplayCache::flash_span_bytes). A cache that does not gather does no more
//! than look at one flag.
//!
//! What it does not do: know pages, or time. Requests are as the cache makes them, in bytes.

use std::ops::Range;

use larder_core::Fingerprint;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The flash. Offsets are those of the cache's layout.
    Flash,
    /// The cache's own memory, which has what lies at this offset of the flash until its segment is written. Only reads.
    Buffer,
    /// The origin. Offset 0 is the beginning of chunk 0.
    Origin,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To read a range.
    Read,
    /// To write a range.
    Write,
    /// To forget a range: nobody reads it before it is written again.
    Trim,
    /// To make durable what was written before. Has no range.
    Flush,
}

/// Who waits until a request is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// The client whose read, write or trim it was.
    Client,
    /// The client who asked for a flush.
    Flush,
    /// Nobody: a miss is inserted, a segment is full, something is destaged, evicted or put into a checkpoint.
    #[default]
    Nobody,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Who is asked.
    pub device: Device,
    /// What for.
    pub action: Action,
    /// Who waits for it.
    pub waits: Waits,
    /// First byte.
    pub start: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// Of them, bytes that [`Traffic`](crate::cache::Traffic) counts as metadata.
    pub metadata_bytes: u64,
    /// What a write holds, as far as is known: those of [`Requests::raw_chunks`].
    raw_first: u32,
    raw_count: u32,
}

impl DeviceRequest {
    /// The bytes.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.len
    }
}

/// A chunk that lies on flash as it is, uncompressed, within a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawChunk {
    /// Where on the flash.
    pub start: u64,
    /// Its bytes.
    pub len: u32,
    /// What it holds.
    pub fingerprint: Fingerprint,
}

/// Requests, in the order in which they were made, and what their writes hold.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    list: Vec<DeviceRequest>,
    raw: Vec<RawChunk>,
    sealed: Vec<Range<u64>>,
    told: Vec<Told>,
}

/// Bytes of the flash that are dirty from here on, or no longer, for one address more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// So many of the requests come before.
    pub requests_before: usize,
    /// Which.
    pub bytes: Range<u64>,
    /// Whether the origin lacks what is there, or will be once it is written.
    pub is_dirty: bool,
}

impl Requests {
    /// Forgets all of them, and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.raw.clear();
        self.sealed.clear();
        self.told.clear();
    }

    /// What becomes dirty and what no longer is, in order, of a cache that
    /// [says so](crate::cache::ReplayCache::expect_drops).
    pub fn told(&self) -> &[Told] {
        &self.told
    }

    /// Bytes of the flash that got all that they get until they are trimmed, such as a write-evict unit that is full: what of
    /// them was not written is padding. Told once all requests are made.
    pub fn sealed(&self) -> &[Range<u64>] {
        &self.sealed
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, DeviceRequest> {
        self.list.iter()
    }

    /// The chunks of a write whose bytes are known, ascending.
    pub fn raw_chunks(&self, request: &DeviceRequest) -> &[RawChunk] {
        self.raw.get(request.raw_first as usize..(request.raw_first + request.raw_count) as usize).unwrap_or_default()
    }
}

impl<'a> IntoIterator for &'a Requests {
    type Item = &'a DeviceRequest;
    type IntoIter = std::slice::Iter<'a, DeviceRequest>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Requests while they are made: what caches note them with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathering {
    is_on: bool,
    /// Who waits for what comes next.
    waits: Waits,
    requests: Requests,
}

impl Gathering {
    /// Whether to gather from now on. What was gathered and not taken is forgotten.
    pub fn turn(&mut self, on: bool) {
        self.is_on = on;
        self.requests.clear();
    }

    /// Whether anybody wants to know.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// For what comes next, this one waits.
    #[inline]
    pub fn for_whom(&mut self, waits: Waits) {
        self.waits = waits;
    }

    /// Who waits for what comes next.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Hands over what was gathered, in place of what `into` has.
    pub fn take(&mut self, into: &mut Requests) {
        into.clear();
        std::mem::swap(into, &mut self.requests);
    }

    /// Notes that these bytes of the flash get no more.
    pub fn seal(&mut self, bytes: Range<u64>) {
        self.requests.sealed.push(bytes);
    }

    /// Notes that bytes of the flash are dirty, or no longer.
    pub fn tell(&mut self, bytes: Range<u64>, is_dirty: bool) {
        if self.is_on {
            self.requests.told.push(Told { requests_before: self.requests.list.len(), bytes, is_dirty });
        }
    }

    /// Notes a request of data; the caller has looked whether anybody wants to know.
    pub fn add(&mut self, device: Device, action: Action, start: u64, len: u64) {
        self.add_with(device, action, start, len, 0, &[]);
    }

    /// Notes a request of metadata.
    pub fn add_metadata(&mut self, action: Action, start: u64, len: u64) {
        self.add_with(Device::Flash, action, start, len, len, &[]);
    }

    /// Notes a request, so much of it metadata, with the chunks that it holds.
    pub fn add_with(
        &mut self,
        device: Device,
        action: Action,
        start: u64,
        len: u64,
        metadata_bytes: u64,
        raw: &[RawChunk],
    ) {
        let Requests { list, raw: all, .. } = &mut self.requests;
        let (raw_first, raw_count) = (all.len() as u32, raw.len() as u32);
        all.extend_from_slice(raw);
        list.push(DeviceRequest {
            device,
            action,
            waits: self.waits,
            start,
            len,
            metadata_bytes,
            raw_first,
            raw_count,
        });
    }
}
