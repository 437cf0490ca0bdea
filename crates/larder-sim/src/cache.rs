//! One cache under replay, of any design: requests go in, hits come out, traffic is counted.
//!
//! Invariants: each request is one whole chunk; counts only grow.
//!
//! It does not take time: devices have none here.

use std::ops::Range;

use larder_core::{Fingerprint, Lba};

use crate::{devices::Requests, tally::Tally, traffic::Traffic};

/// The content of a chunk, as far as a cache needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Equal exactly if the bytes are equal.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk as stored: compressed, or the whole chunk if that is no less. Not 0.
    pub stored_bytes: u32,
}

impl Content {
    /// The fingerprint of a chunk of zeroes, for any hash of a trace.
    ///
    /// Designs without a notion of zeroes store them as any other content.
    pub const ZEROES: Fingerprint = Fingerprint([0; 16]);

    /// Returns true if it is all zeroes.
    pub fn is_zero(&self) -> bool {
        self.fingerprint == Content::ZEROES
    }
}

/// The moment when writes reach the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// Writes reach it when they leave the cache.
    #[default]
    Back,
    /// Writes reach it at once, and the cache keeps them, too.
    Through,
    /// Writes reach it at once, and the cache forgets the chunk (CacheDedup's write-invalidate).
    Around,
}

impl WritePolicy {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WritePolicy::Back => "write-back",
            WritePolicy::Through => "write-through",
            WritePolicy::Around => "write-around",
        }
    }
}

/// The state of a cache at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// RAM that the indices have allocated, in bytes.
    pub index_ram_bytes: u64,
    /// Addresses that would hit.
    pub mapped_chunks: u64,
    /// Mapped chunks of zeroes that take no place on flash.
    pub unstored_zero_chunks: u64,
    /// Distinct contents on flash with a mapping.
    pub live_chunks: u64,
    /// Chunks on flash that no address maps to any more.
    pub stale_chunks: u64,
    /// Bytes of the live chunks as stored, without padding.
    pub live_stored_bytes: u64,
}

/// A request of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRequest {
    /// A client reads the chunk, which has this content.
    Read(Lba, Content),
    /// A client writes this content to the chunk.
    Write(Lba, Content),
    /// A client trims so many whole chunks from this one on: they read as zeroes.
    Trim(Lba, u64),
    /// So many chunks from this one on have a content that the trace does not tell.
    ///
    /// A client trimmed a part of each, or trimmed them in a trace without content.
    Forget(Lba, u64),
    /// A client asks that all completed writes be durable.
    Flush,
}

const _: () = assert!(size_of::<CacheRequest>() == 32, "batches of requests stay in the nearest caches");

/// A cache.
pub trait ReplayCache: Send {
    /// Reads `lba` for a client. Returns true for a hit.
    ///
    /// `content` is the volume's content at `lba`: the cache inserts it after a miss.
    fn read(&mut self, lba: Lba, content: &Content) -> bool;

    /// Writes `content` to `lba` for a client. Returns true if the address was cached.
    fn write(&mut self, lba: Lba, content: &Content) -> bool;

    /// Trims all of `lba` for a client: it reads as zeroes, and the cache may remember that.
    fn trim(&mut self, lba: Lba);

    /// Trims all of `count` chunks from `first` on for a client, in one request.
    fn trim_run(&mut self, first: Lba, count: u64) {
        (first.0..first.0 + count).for_each(|lba| self.trim(Lba(lba)));
    }

    /// Trims a part of `lba`, or a chunk whose content after the trim is not in the trace.
    ///
    /// The cache destages a dirty chunk first, since a part of it stays. Then it forgets the chunk,
    /// since its content has changed.
    fn trim_part(&mut self, lba: Lba);

    /// Makes all completed writes durable for a client.
    fn flush(&mut self);

    /// Makes all `requests`, in order, and counts them.
    ///
    /// One call makes many, so a replay through `dyn ReplayCache` costs no more than one over a
    /// known design.
    fn replay(&mut self, requests: &[CacheRequest], tally: &mut Tally) {
        for request in requests {
            match request {
                CacheRequest::Read(lba, content) => tally.read(self.read(*lba, content)),
                CacheRequest::Write(lba, content) => tally.write(self.write(*lba, content)),
                CacheRequest::Trim(first, count) => {
                    tally.trims += count;
                    self.trim_run(*first, *count);
                }
                CacheRequest::Forget(first, count) => {
                    tally.trims += count;
                    (first.0..first.0 + count).for_each(|lba| self.trim_part(Lba(lba)));
                }
                CacheRequest::Flush => {
                    tally.flushes += 1;
                    self.flush();
                }
            }
        }
    }

    /// Returns the traffic of the cache so far.
    fn traffic(&self) -> Traffic;

    /// Returns the state of the cache at this moment.
    fn figures(&self) -> CacheFigures;

    /// Turns the gathering of device requests on or off. It begins off.
    ///
    /// The cache keeps them until they are [taken](ReplayCache::take_requests).
    fn gather(&mut self, on: bool);

    /// Takes the device requests since the last call, in place of the content of `into`.
    fn take_requests(&mut self, into: &mut Requests);

    /// Returns the bytes of the flash that the cache's layout takes: no request reaches further.
    fn flash_span_bytes(&self) -> u64;

    /// Returns the part of them with chunks; the rest is metadata.
    fn flash_data_range(&self) -> Range<u64>;

    /// Returns the bytes of a write-evict unit that the cache fills and evicts.
    ///
    /// The units lie side by side from the beginning of its [data](ReplayCache::flash_data_range),
    /// each aligned to its size. `None` in designs without such units.
    fn flash_weu_bytes(&self) -> Option<u64> {
        None
    }

    /// Learns the bytes of the flash that the drive beneath would drop next.
    ///
    /// Nitro §3.2: "the CacheManager will query the SSD to determine which WEU should be
    /// replaced". If the cache needs room, it evicts all that lies there before anything else, for
    /// the drive drops all of it. The advice holds until the cache needs room once. Designs that
    /// choose among chunks, and not among places of the flash, ignore it.
    fn advise_victim(&mut self, _bytes: Range<u64>) {}

    /// Announces, before the first request, that the drive beneath drops clean data by itself.
    ///
    /// From now on the cache [tells](Requests::told) the dirty bytes, and can
    /// [forget](ReplayCache::evict_range) dropped ones. Returns false in designs that cannot.
    fn expect_drops(&mut self) -> bool {
        false
    }

    /// Gives up these bytes of the flash, because the drive beneath drops them.
    ///
    /// The cache destages the dirty ones, and forgets all mappings into them. Chunks that are being
    /// filled and are not on flash yet stay. Dropped data is written again in the order in which it
    /// was told.
    ///
    /// # Panics
    /// In designs that do not [expect drops](ReplayCache::expect_drops): their mappings into the
    /// bytes would be false.
    fn evict_range(&mut self, bytes: Range<u64>) {
        panic!("nothing that lies at {bytes:?} was to be dropped");
    }

    /// Destages and keeps the dirty chunks in these bytes of the flash.
    ///
    /// The drive has no room for more dirty ones. It is for caches that
    /// [expect drops](ReplayCache::expect_drops).
    fn clean_range(&mut self, _bytes: Range<u64>) {}
}
