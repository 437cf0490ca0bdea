//! The measures of a replay: [`Meter`] makes the requests of a trace to a cache and fills
//! [`Measures`].
//!
//! The figures and their sources:
//! - Hit and miss ratios: `tally.rs` (CacheDedup §5.1, AustereCache §5.3).
//! - Deduplication ratio: addresses for each chunk stored, in the cache at the end. Chunks of
//!   zeroes that take no place are left out, as in `larder status`. Compression ratio: bytes of the
//!   live chunks over their bytes as stored, without padding. Both are 1 here, and null in a
//!   report, if nothing is cached.
//! - Write reduction ratio (AustereCache §5.3, Exp#4): the fraction by which fewer bytes of data
//!   are written to flash than those of all chunks inserted or written into the cache. Metadata is
//!   not in it.
//! - Stale share: chunks on flash that no address maps to, among all on flash, at the end
//!   (CacheDedup §2.3).
//! - Index RAM: the allocation of the design's structures at the end. It is for each address that
//!   would hit, and for each GiB of the volume that would.
//!
//! Invariants: counts begin after the warm-up; the state of the cache is that at the end. Beside
//! the cache a meter takes a fixed number of bytes.
//!
//! It does not read a trace, or write a report.

use std::time::{Duration, Instant};

use crate::{
    cache::{CacheFigures, CacheRequest, ReplayCache},
    devices::Requests,
    host::{Host, HostCounts},
    lab::LabListener,
    setup::Built,
    tally::{Tally, ratio},
    traffic::Traffic,
};
use larder_ssd::{
    counts::{DriveCounts, Life, Wear},
    geometry::DriveGeometry,
};

/// The measures of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of flash that the cache takes, metadata included.
    pub flash_bytes: u64,
    /// The part of them for chunks.
    pub flash_data_bytes: u64,
    /// Requests of chunks before counting began.
    pub warmup_requests: u64,
    /// Requests and hits, after the warm-up.
    pub tally: Tally,
    /// The cache's traffic, after the warm-up.
    pub traffic: Traffic,
    /// The cache's state at the end.
    pub figures: CacheFigures,
    /// The measures of the drive beneath, if one was simulated.
    pub drive: Option<DriveMeasures>,
    /// The cache's time for the requests after the warm-up. Reading the trace is not in it.
    pub elapsed: Duration,
}

/// The measures of a drive under a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveMeasures {
    /// The drive's counts, after the warm-up.
    pub counts: DriveCounts,
    /// Counts of the requests between the cache and it, after the warm-up.
    pub host: HostCounts,
    /// The wear of its blocks at the end, that of the warm-up included.
    pub wear: Wear,
    /// Its build, as it was cut to the cache.
    pub geometry: DriveGeometry,
    /// Bytes that its layer has for the host: its geometry's, less those that the layer keeps for
    /// itself.
    pub logical_bytes: u64,
    /// The erasures that a block stands.
    pub rated_cycles: u32,
}

impl DriveMeasures {
    /// Returns the bytes programmed for each that the cache wrote. `None` without writes.
    ///
    /// The programmed bytes include the padding of a page or a unit. They leave out deduplicated
    /// bytes, and bytes that met another part in the buffer.
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.counts.pages_programmed() as f64 * f64::from(self.geometry.page_bytes);
        (self.host.bytes_written > 0).then(|| programmed / self.host.bytes_written as f64)
    }

    /// Returns the flash beyond its layer's bytes for the host, in percent of these.
    ///
    /// It exceeds the over-provisioning if blocks are few, or if the layer keeps more for itself.
    /// It is less if the layer drops data that has no room.
    pub fn spare_percent(&self) -> f64 {
        let bytes = u64::from(self.geometry.blocks()) * self.geometry.block_bytes();
        100.0 * (bytes as f64 / self.logical_bytes as f64 - 1.0)
    }

    /// Returns the life of the drive, if the traffic goes on as it did, and took so many seconds.
    pub fn life(&self, seconds: f64) -> Life {
        Life::of(&self.wear, self.rated_cycles, seconds)
    }
}

impl Measures {
    /// Returns the addresses for each stored chunk.
    pub fn dedup_ratio(&self) -> f64 {
        let stored = self.figures.mapped_chunks - self.figures.unstored_zero_chunks;
        ratio_or_one(stored, self.figures.live_chunks)
    }

    /// Returns the bytes of the live chunks over their bytes as stored.
    pub fn compression_ratio(&self) -> f64 {
        ratio_or_one(self.figures.live_chunks * u64::from(self.chunk_bytes), self.figures.live_stored_bytes)
    }

    /// Returns the share of chunks on flash that no address maps to.
    pub fn stale_ratio(&self) -> f64 {
        ratio(self.figures.stale_chunks, self.figures.stale_chunks + self.figures.live_chunks)
    }

    /// Returns the fraction by which deduplication and compression reduced the data written to
    /// flash.
    ///
    /// It is below 0 if padding made it more.
    pub fn write_reduction_ratio(&self) -> f64 {
        let Traffic { chunks_stored, chunks_stored_again, chunks_deduplicated, .. } = self.traffic;
        let chunks = chunks_stored - chunks_stored_again + chunks_deduplicated;
        match chunks * u64::from(self.chunk_bytes) {
            0 => 0.0,
            offered => 1.0 - self.traffic.flash_data_bytes_written as f64 / offered as f64,
        }
    }

    /// Returns the data and metadata written to flash, in bytes.
    pub fn flash_total_bytes_written(&self) -> u64 {
        self.traffic.flash_data_bytes_written + self.traffic.flash_metadata_bytes_written
    }

    /// Returns the bytes of index for each address that would hit; 0 if there is none.
    pub fn index_ram_bytes_per_mapped_chunk(&self) -> f64 {
        ratio(self.figures.index_ram_bytes, self.figures.mapped_chunks)
    }

    /// Returns the bytes of index for each GiB of the volume that would hit; 0 if there is none.
    pub fn index_ram_bytes_per_cached_gib(&self) -> f64 {
        self.index_ram_bytes_per_mapped_chunk() * f64::from(1 << 30) / f64::from(self.chunk_bytes.max(1))
    }

    /// Returns the requests of chunks a second, of the cache alone; 0 if no time passed.
    pub fn requests_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.tally.requests() as f64 / seconds } else { 0.0 }
    }
}

impl LabListener for Meter {
    fn take(&mut self, requests: &[CacheRequest]) {
        let counted = if self.warming > 0 { self.warm(requests) } else { requests };
        let began = Instant::now();
        make(&mut *self.cache, &mut self.beneath, counted, &mut self.measures.tally);
        self.measures.elapsed += began.elapsed();
    }
}

fn ratio_or_one(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// A drive under a cache, and the requests on the way to it.
struct Beneath {
    host: Box<Host>,
    asked: Requests,
    counts_before: DriveCounts,
    host_before: HostCounts,
}

/// Makes requests to a cache, and the cache's requests to the drive, if there is one.
fn make(cache: &mut dyn ReplayCache, beneath: &mut Option<Beneath>, requests: &[CacheRequest], tally: &mut Tally) {
    let Some(Beneath { host, asked, .. }) = beneath else { return cache.replay(requests, tally) };
    for request in requests {
        if let Some(bytes) = host.next_eviction() {
            cache.advise_victim(bytes);
        }
        cache.replay(std::slice::from_ref(request), tally);
        cache.take_requests(asked);
        host.carry_out(asked);
        loop {
            // The cache learns which data the drive dropped by itself, and writes back surplus
            // dirty data.
            for bytes in host.take_evicted() {
                cache.evict_range(bytes);
                cache.take_requests(asked);
                host.carry_out(asked);
            }
            let Some(bytes) = host.too_dirty() else { break };
            cache.clean_range(bytes);
            cache.take_requests(asked);
            host.carry_out(asked);
        }
    }
}

/// A cache whose answers are counted.
pub struct Meter {
    cache: Box<dyn ReplayCache>,
    beneath: Option<Beneath>,
    measures: Measures,
    /// Requests until the warm-up ends.
    warming: u64,
    /// The traffic when it ended.
    before: Traffic,
}

impl Meter {
    /// Makes a meter that counts after `warmup_requests` reads and writes of chunks.
    pub fn new(built: Built, chunk_bytes: u32, warmup_requests: u64) -> Meter {
        let Built { mut cache, flash_bytes, data_bytes, drive } = built;
        cache.gather(drive.is_some());
        let beneath = drive.map(|host| Beneath {
            host,
            asked: Requests::default(),
            counts_before: DriveCounts::default(),
            host_before: HostCounts::default(),
        });
        let measures =
            Measures { chunk_bytes, flash_bytes, flash_data_bytes: data_bytes, warmup_requests, ..Measures::default() };
        Meter { cache, beneath, measures, warming: warmup_requests, before: Traffic::default() }
    }

    /// Returns the cache.
    pub fn cache(&self) -> &dyn ReplayCache {
        &*self.cache
    }

    /// Makes the requests of the warm-up, and returns the rest.
    fn warm<'a>(&mut self, requests: &'a [CacheRequest]) -> &'a [CacheRequest] {
        let mut left = self.warming;
        let end = requests.iter().position(|request| {
            let is_over = left == 0;
            left -= u64::from(!is_over && matches!(request, CacheRequest::Read(..) | CacheRequest::Write(..)));
            is_over
        });
        let (warming, counted) = requests.split_at(end.unwrap_or(requests.len()));
        make(&mut *self.cache, &mut self.beneath, warming, &mut Tally::default());
        self.warming = left;
        self.before = self.cache.traffic();
        if let Some(Beneath { host, counts_before, host_before, .. }) = &mut self.beneath {
            (*counts_before, *host_before) = (host.drive_counts().clone(), host.counts());
        }
        counted
    }

    /// Returns the measures, after all requests.
    pub fn finish(self) -> Measures {
        let traffic = self.cache.traffic().since(&self.before);
        let warmup_requests = self.measures.warmup_requests - self.warming;
        let drive = self.beneath.map(|Beneath { host, counts_before, host_before, .. }| DriveMeasures {
            counts: host.drive_counts().since(&counts_before),
            host: host.counts().since(&host_before),
            wear: host.wear(),
            geometry: host.profile().geometry,
            logical_bytes: u64::from(host.ftl().logical_pages()) * u64::from(host.profile().geometry.page_bytes),
            rated_cycles: host.profile().rated_cycles,
        });
        Measures { traffic, warmup_requests, figures: self.cache.figures(), drive, ..self.measures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cache::WritePolicy, replay::own_content, slotted::SlottedCache};
    use larder_core::{Lba, d_lru::DLru, lru::Lru, slotted::Slotted};

    fn built(design: impl Slotted + 'static) -> Built {
        let cache = SlottedCache::new(design, WritePolicy::Through, 4096);
        Built { cache: Box::new(cache), flash_bytes: 50_000, data_bytes: 40_000, drive: None }
    }

    fn read(lba: u64) -> CacheRequest {
        CacheRequest::Read(Lba(lba), own_content(Lba(lba), 4096))
    }

    #[test]
    fn what_came_before_the_warm_up_ended_is_not_counted() {
        let requests: Vec<CacheRequest> = (0..10).chain(0..10).map(read).collect();
        for size in [1, 3, 20] {
            let mut meter = Meter::new(built(Lru::new(10).unwrap()), 4096, 12);
            requests.chunks(size).for_each(|some| meter.take(some));
            let measures = meter.finish();
            assert_eq!((measures.tally.reads, measures.tally.read_hits), (8, 8), "in batches of {size}");
            assert_eq!(measures.traffic.flash_data_bytes_written, 0);
            assert_eq!(measures.traffic.flash_data_bytes_read, 8 * 4096);
            assert_eq!((measures.figures.mapped_chunks, measures.warmup_requests), (10, 12));
        }
        let mut meter = Meter::new(built(Lru::new(10).unwrap()), 4096, 100);
        meter.take(&requests);
        let measures = meter.finish();
        assert_eq!((measures.tally.requests(), measures.warmup_requests, measures.requests_per_second()), (0, 20, 0.0));
    }

    #[test]
    fn trims_and_flushes_do_not_shorten_the_warm_up() {
        let mut meter = Meter::new(built(Lru::new(10).unwrap()), 4096, 2);
        meter.take(&[
            CacheRequest::Flush,
            read(1),
            CacheRequest::Trim(Lba(5), 3),
            read(2),
            CacheRequest::Flush,
            read(1),
        ]);
        let tally = meter.finish().tally;
        assert_eq!((tally.reads, tally.read_hits, tally.flushes, tally.trims), (1, 1, 1, 0));
    }

    #[test]
    fn ratios_are_those_of_their_definitions() {
        let shared = own_content(Lba(7), 4096);
        let mut meter = Meter::new(built(DLru::new(4, 10).unwrap()), 4096, 0);
        let requests: Vec<CacheRequest> = (0..6).map(|lba| CacheRequest::Write(Lba(lba), shared)).collect();
        meter.take(&requests);
        meter.take(&[read(20), read(20), CacheRequest::Write(Lba(0), own_content(Lba(0), 4096))]);
        let measures = meter.finish();
        // Addresses 0 to 5 and 20, three contents; eight chunks came in, three were stored.
        assert_eq!(measures.dedup_ratio(), 7.0 / 3.0);
        assert_eq!(measures.compression_ratio(), 1.0);
        assert_eq!(measures.write_reduction_ratio(), 1.0 - 3.0 / 8.0);
        let traffic = &measures.traffic;
        assert_eq!(traffic.flash_data_bytes_read + traffic.flash_metadata_bytes_read, 4096);
        assert_eq!((measures.tally.write_hits, measures.tally.read_hits), (1, 1));
        let per_chunk = measures.index_ram_bytes_per_mapped_chunk();
        assert_eq!(per_chunk, measures.figures.index_ram_bytes as f64 / 7.0);
        assert_eq!(measures.index_ram_bytes_per_cached_gib(), per_chunk * 262_144.0);
        assert_eq!(Measures::default().dedup_ratio(), 1.0);
        let figures =
            CacheFigures { live_chunks: 3, stale_chunks: 1, live_stored_bytes: 4096, ..CacheFigures::default() };
        let measures = Measures { chunk_bytes: 4096, figures, ..Measures::default() };
        assert_eq!((measures.stale_ratio(), measures.compression_ratio()), (0.25, 3.0));
    }
}
