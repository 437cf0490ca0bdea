//! One cache under replay, whatever its design: requests go in, hits come out, traffic is counted.
//!
//! Invariants: each request is one whole chunk; counts only grow.
//!
//! What it does not do: time. Devices have none here.

use std::ops::Range;

use larder_core::{Fingerprint, Lba};

use crate::{devices::Requests, tally::Tally};

/// What a chunk holds, as far as a cache cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Equal exactly where the bytes are.
    pub fingerprint: Fingerprint,
    /// Bytes of the chunk as stored: compressed, or the whole chunk where that is no less. Not 0.
    pub stored_bytes: u32,
}

impl Content {
    /// The fingerprint of a chunk of zeroes, whatever hash a trace has. Designs that know nothing of zeroes store them as
    /// any other content.
    pub const ZEROES: Fingerprint = Fingerprint([0; 16]);

    /// Whether it is all zeroes.
    pub fn is_zero(&self) -> bool {
        self.fingerprint == Content::ZEROES
    }
}

/// When writes reach the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// When they leave the cache.
    #[default]
    Back,
    /// At once, and the cache has them, too.
    Through,
    /// At once, and the cache forgets the chunk (CacheDedup's write-invalidate).
    Around,
}

impl WritePolicy {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WritePolicy::Back => "write-back",
            WritePolicy::Through => "write-through",
            WritePolicy::Around => "write-around",
        }
    }
}

/// What a cache did so far. Bytes are those that the device sees, padding included.
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
    /// Chunks inserted or written that were not stored, since their content was there.
    pub chunks_deduplicated: u64,
    /// Stored chunks that left the flash.
    pub chunks_evicted: u64,
    /// Chunks read from the origin.
    pub origin_chunks_read: u64,
    /// Chunks written to the origin, by clients or by destaging. What it is told of trims is not in it.
    pub origin_chunks_written: u64,
    /// WEUs that were emptied, to be written anew. 0 for designs without WEUs.
    pub weu_erasures: u64,
    /// Reads and writes of addresses that the cache remembered without their data, and that are inserted again: a write around
    /// the cache is none. 0 for designs without ghosts.
    pub ghost_hits: u64,
}

impl Traffic {
    /// What was done since the traffic was `before`.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            flash_data_bytes_written: self.flash_data_bytes_written - before.flash_data_bytes_written,
            flash_metadata_bytes_written: self.flash_metadata_bytes_written - before.flash_metadata_bytes_written,
            flash_data_bytes_read: self.flash_data_bytes_read - before.flash_data_bytes_read,
            flash_metadata_bytes_read: self.flash_metadata_bytes_read - before.flash_metadata_bytes_read,
            chunks_stored: self.chunks_stored - before.chunks_stored,
            chunks_deduplicated: self.chunks_deduplicated - before.chunks_deduplicated,
            chunks_evicted: self.chunks_evicted - before.chunks_evicted,
            origin_chunks_read: self.origin_chunks_read - before.origin_chunks_read,
            origin_chunks_written: self.origin_chunks_written - before.origin_chunks_written,
            weu_erasures: self.weu_erasures - before.weu_erasures,
            ghost_hits: self.ghost_hits - before.ghost_hits,
        }
    }
}

/// What a cache is at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// RAM that the indices have allocated, in bytes.
    pub index_ram_bytes: u64,
    /// Addresses that would hit.
    pub mapped_chunks: u64,
    /// Of them, those of zeroes that take no place on flash.
    pub unstored_zero_chunks: u64,
    /// Distinct contents on flash that some address maps to.
    pub live_chunks: u64,
    /// Chunks on flash that no address maps to any more.
    pub stale_chunks: u64,
    /// Bytes of the live chunks as stored, without padding.
    pub live_stored_bytes: u64,
}

/// A request of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A client reads the chunk, which holds this.
    Read(Lba, Content),
    /// A client writes this to the chunk.
    Write(Lba, Content),
    /// A client trims so many whole chunks from this one on: they read as zeroes.
    Trim(Lba, u64),
    /// So many chunks from this one on hold something that the trace does not tell: a client trimmed a part of each, or
    /// trimmed them in a trace without content.
    Forget(Lba, u64),
    /// A client asks that all completed writes be durable.
    Flush,
}

const _: () = assert!(size_of::<Request>() == 32, "batches of requests stay in the nearest caches");

/// A cache.
pub trait ReplayCache: Send {
    /// A client reads `lba`; `content` is what the volume holds there, which is inserted where it was a miss. Whether it
    /// was a hit.
    fn read(&mut self, lba: Lba, content: &Content) -> bool;

    /// A client writes `content` to `lba`. Whether the address was cached.
    fn write(&mut self, lba: Lba, content: &Content) -> bool;

    /// A client trims all of `lba`: it reads as zeroes, which a cache may know.
    fn trim(&mut self, lba: Lba);

    /// A client trims all of `count` chunks from `first` on, in one request.
    fn trim_run(&mut self, first: Lba, count: u64) {
        (first.0..first.0 + count).for_each(|lba| self.trim(Lba(lba)));
    }

    /// A client trims a part of `lba`, or what it holds then is not told. What was dirty goes to the origin first, since
    /// a part of it stays; then the cache forgets the chunk, since what is left is not what it was.
    fn trim_part(&mut self, lba: Lba);

    /// A client asks that all completed writes be durable.
    fn flush(&mut self);

    /// Makes all `requests`, in order, and counts them: one call for many, so that a replay through `dyn ReplayCache`
    /// costs no more than one that knows the design.
    fn replay(&mut self, requests: &[Request], tally: &mut Tally) {
        for request in requests {
            match request {
                Request::Read(lba, content) => tally.read(self.read(*lba, content)),
                Request::Write(lba, content) => tally.write(self.write(*lba, content)),
                Request::Trim(first, count) => {
                    tally.trims += count;
                    self.trim_run(*first, *count);
                }
                Request::Forget(first, count) => {
                    tally.trims += count;
                    (first.0..first.0 + count).for_each(|lba| self.trim_part(Lba(lba)));
                }
                Request::Flush => {
                    tally.flushes += 1;
                    self.flush();
                }
            }
        }
    }

    /// What the cache did so far.
    fn traffic(&self) -> Traffic;

    /// What the cache is now.
    fn figures(&self) -> Figures;

    /// Whether the cache is to keep what it asks of its devices from now on, until that is [taken](ReplayCache::take_requests).
    /// At first it does not.
    fn gather(&mut self, on: bool);

    /// What the cache asked of its devices since that was taken last, in place of what `into` has.
    fn take_requests(&mut self, into: &mut Requests);

    /// How much of the flash the cache's layout takes, in bytes: no request reaches further.
    fn flash_span_bytes(&self) -> u64;

    /// Of that, where chunks lie; the rest is metadata.
    fn flash_data_range(&self) -> Range<u64>;

    /// Bytes of the write-evict units that the cache fills and evicts, which lie side by side from the beginning of its
    /// [data](ReplayCache::flash_data_range) on, each aligned to its size; `None` in designs that have none.
    fn flash_weu_bytes(&self) -> Option<u64> {
        None
    }

    /// The drive beneath would drop these bytes of the flash next (Nitro §3.2, "the CacheManager will query the SSD to
    /// determine which WEU should be replaced"): where the cache needs room, it evicts all that lies there before anything else,
    /// for the drive drops all of it. Holds until the cache needs room once. Designs that choose among chunks, and not among places of the flash, do not listen.
    fn advise_victim(&mut self, _bytes: Range<u64>) {}

    /// Before the first request: the drive beneath drops by itself what is clean. From now on the cache
    /// [says](Requests::told) what is dirty, and can [forget](ReplayCache::evict_range) what was dropped. False in designs that
    /// cannot.
    fn expect_drops(&mut self) -> bool {
        false
    }

    /// The drive beneath drops these bytes of the flash: the cache destages what is dirty there, and forgets all that maps into
    /// them; but not what is being filled and not on flash yet. What was dropped is written again in the order in which it was told.
    ///
    /// # Panics
    /// In designs that do not [expect that](ReplayCache::expect_drops): what they still mapped into it would be false.
    fn evict_range(&mut self, bytes: Range<u64>) {
        panic!("nothing that lies at {bytes:?} was to be dropped");
    }

    /// Destages what is dirty in these bytes of the flash, and keeps it: the drive has no room for more that is dirty. Of caches that
    /// [expect drops](ReplayCache::expect_drops).
    fn clean_range(&mut self, _bytes: Range<u64>) {}
}
