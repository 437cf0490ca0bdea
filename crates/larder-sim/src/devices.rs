//! The requests of a cache under replay to its two devices: its flash and its origin.
//!
//! Role: [`ReplayCache::gather`](crate::cache::ReplayCache::gather) makes a cache keep them, and
//! [`take_requests`](crate::cache::ReplayCache::take_requests) hands them over. A simulated drive,
//! or devices with a time, take them after each request of a client.
//!
//! Order: requests come in the order in which the cache makes them. Those that a client waits for
//! ([`Waits::Client`]) are made one after the other, before the client is answered. Background
//! requests follow them, and are over some time later.
//!
//! Invariants: the bytes of gathered requests are those that [`Traffic`](crate::traffic::Traffic)
//! counts. These are data and metadata written to flash, chunks read from the origin and written to
//! it, and data and metadata read from flash *and from the cache's buffer*. A read of a segment
//! that is still in RAM counts as a read from flash. No write of the flash reaches beyond
//! [`ReplayCache::flash_span_bytes`](crate::cache::ReplayCache::flash_span_bytes). A cache that
//! does not gather only looks at one flag.
//!
//! It does not know pages or time. Requests are as the cache makes them, in bytes.

use std::ops::Range;

use larder_core::Fingerprint;

/// The device of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The flash. Offsets are those of the cache's layout.
    Flash,
    /// The cache's own memory: it holds these bytes of the flash until their segment is written.
    /// Only reads.
    Buffer,
    /// The origin. Offset 0 is the beginning of chunk 0.
    Origin,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAction {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write,
    /// Forgets a range: it is written again before the next read.
    Trim,
    /// Makes all earlier writes durable. It has no range.
    Flush,
}

/// The client that waits until a request is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// The client of the read, write or trim.
    Client,
    /// The client of the flush.
    Flush,
    /// No client: the cache inserts, closes a segment, destages, evicts or writes a checkpoint.
    #[default]
    Nobody,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The device.
    pub device: Device,
    /// The action.
    pub action: DeviceAction,
    /// The client that waits for it.
    pub waits: Waits,
    /// First byte.
    pub start: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// The part of them that [`Traffic`](crate::traffic::Traffic) counts as metadata.
    pub metadata_bytes: u64,
    /// The known contents of a write: those of [`Requests::raw_chunks`].
    raw_first: u32,
    raw_count: u32,
}

impl DeviceRequest {
    /// Returns the bytes.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.len
    }
}

/// A chunk that lies on flash as it is, uncompressed, within a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawChunk {
    /// The first byte on the flash.
    pub start: u64,
    /// Its bytes.
    pub len: u32,
    /// Its content.
    pub fingerprint: Fingerprint,
}

/// Requests, in the order in which they were made, and the contents of their writes.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    list: Vec<DeviceRequest>,
    raw: Vec<RawChunk>,
    sealed: Vec<Range<u64>>,
    told: Vec<Told>,
}

/// A change of bytes of the flash, for one more address: they are dirty from here on, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The number of requests before it.
    pub requests_before: usize,
    /// The bytes.
    pub bytes: Range<u64>,
    /// True if the origin lacks the content of the bytes, or will lack it once it is written.
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

    /// Returns the changes of dirty bytes, in order.
    ///
    /// Only caches that [expect drops](crate::cache::ReplayCache::expect_drops) tell them.
    pub fn told(&self) -> &[Told] {
        &self.told
    }

    /// Returns bytes of the flash that get no more until they are trimmed, such as a full
    /// write-evict unit.
    ///
    /// Their unwritten rest is padding. They are known once all requests are made.
    pub fn sealed(&self) -> &[Range<u64>] {
        &self.sealed
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, DeviceRequest> {
        self.list.iter()
    }

    /// Returns the chunks of a write whose bytes are known, ascending.
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

/// Requests in the making: caches note them here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathering {
    is_on: bool,
    /// The client that waits for the next requests.
    waits: Waits,
    requests: Requests,
}

impl Gathering {
    /// Turns gathering on or off, and forgets all requests that were not taken.
    pub fn turn(&mut self, on: bool) {
        self.is_on = on;
        self.requests.clear();
    }

    /// Returns true if requests are gathered.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Sets the client that waits for the next requests.
    #[inline]
    pub fn for_whom(&mut self, waits: Waits) {
        self.waits = waits;
    }

    /// Returns the client that waits for the next requests.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Hands the gathered requests over, in place of the content of `into`.
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

    /// Notes a request of data. The caller has checked that requests are gathered.
    pub fn add(&mut self, device: Device, action: DeviceAction, start: u64, len: u64) {
        self.add_with(device, action, start, len, 0, &[]);
    }

    /// Notes a request of metadata.
    pub fn add_metadata(&mut self, action: DeviceAction, start: u64, len: u64) {
        self.add_with(Device::Flash, action, start, len, len, &[]);
    }

    /// Notes a request with its bytes of metadata and its chunks.
    pub fn add_with(
        &mut self,
        device: Device,
        action: DeviceAction,
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
