//! A load: requests in their order, so many at a time, each read verified, on a rig's clock.
//!
//! Invariants: a request that overlaps one under way waits for it, and all later ones with it, so
//! that each read has one right answer. A wrong one ends the experiment: it gives no figure for a
//! cache that lost a write.
//!
//! It does not keep to a trace's own times: requests are made as soon as they may.

use super::{
    disk::DiskContent,
    rig::{Plan, Rig, Time},
};
use crate::{
    blocks::{Blocks, Expected},
    content::{Bytes, ContentSizes},
    request::{Block, PaperRequest},
};
use larder_device::{BlockDevice, IoBuf, IoFuture, IoResult, Runtime, WriteFlags, ZeroFlags};
use larder_engine::{Cache, status::CounterValues};
use larder_trace::{ChunkRequest, Op, Record, TraceContent};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

/// The most bytes of a trace's request that are made as one request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Requests between two looks for a signal.
const LOOK_EVERY: usize = 256;

/// Requests, with their pace and measurement.
#[derive(Clone)]
pub struct Load {
    /// In their order.
    pub requests: Arc<Vec<PaperRequest>>,
    /// Bytes of a block of content.
    pub block_bytes: u32,
    /// The most requests under way.
    pub outstanding: usize,
    /// The number of first requests that are made and verified, and not measured.
    pub warmup: usize,
    /// All reads of the warm-up are on flash before the measurement.
    pub drains: bool,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The number of requests.
    pub requests: u64,
    /// The sum of their times.
    pub sum: Duration,
}

impl Times {
    /// Returns the mean, in microseconds; `None` without requests.
    pub fn mean_us(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum.as_secs_f64() * 1e6 / self.requests as f64)
    }

    fn add(&mut self, time: Duration) {
        self.join(Times { requests: 1, sum: time });
    }

    fn join(&mut self, others: Times) {
        self.requests += others.requests;
        self.sum += others.sum;
    }
}

/// The results of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadFigures {
    /// Reads.
    pub reads: Times,
    /// Writes.
    pub writes: Times,
    /// Bytes of both.
    pub bytes: u64,
    /// The time from the first measured request to the end of the last.
    pub elapsed: Duration,
    /// The chunks that the cache counted meanwhile; operations under way at the start count, too.
    pub read_chunks: u64,
    /// The hits among them.
    pub read_hits: u64,
    /// The correct blocks read.
    pub verified: u64,
}

impl LoadFigures {
    /// Returns the reads and writes a second.
    pub fn iops(&self) -> f64 {
        (self.reads.requests + self.writes.requests) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the MiB a second.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the mean time of a read or write, in microseconds.
    pub fn mean_us(&self) -> f64 {
        let LoadFigures { reads, writes, .. } = self;
        (reads.sum + writes.sum).as_secs_f64() * 1e6 / (reads.requests + writes.requests).max(1) as f64
    }

    /// Returns the percentage of hits among the chunks read; `None` without a cache.
    pub fn hit_percent(&self) -> Option<f64> {
        (self.read_chunks > 0).then(|| 100.0 * self.read_hits as f64 / self.read_chunks as f64)
    }

    fn count(&mut self, before: &CounterValues, after: &CounterValues) {
        let hits = |counts: &CounterValues| counts.read_hits + counts.prefetch_hits;
        self.read_chunks = after.read_chunks - before.read_chunks;
        self.read_hits = hits(after) - hits(before);
    }
}

/// Makes the load on a rig, and ends the rig.
///
/// # Errors
/// A sentence: a request that failed, a wrong block, a signal.
pub fn on_rig(plan: &Plan, time: Time, load: &Load, ending: &AtomicBool) -> Result<LoadFigures, String> {
    let rig = Rig::new(plan, time)?;
    let figures = make(&rig, load, ending);
    rig.end();
    figures
}

/// Makes several loads on one rig, all at once, each by a client of its own, and ends the rig.
///
/// There is no warm-up. No two loads may touch the same addresses. Returns the results of all
/// together, from the beginning to the end of the last.
///
/// # Errors
/// As [`on_rig`].
pub fn side_by_side(plan: &Plan, time: Time, loads: &[Load], ending: &AtomicBool) -> Result<LoadFigures, String> {
    let rig = Rig::new(plan, time)?;
    let figures = make_side_by_side(&rig, loads, ending);
    rig.end();
    figures
}

fn make_side_by_side(rig: &Rig, loads: &[Load], ending: &AtomicBool) -> Result<LoadFigures, String> {
    let runtime = rig.runtime();
    let counts = || rig.cache().map_or(CounterValues::default(), |cache| cache.status().counts);
    let (before, began) = (counts(), runtime.now());
    let mut clients: Vec<Making> = loads.iter().map(|load| Making::new(rig, load.block_bytes)).collect();
    let making = clients.iter_mut().zip(loads).map(|(client, load)| client.all(None, load, ending));
    let of_each = rig.run(all_of(making));
    let mut all = LoadFigures::default();
    for figures in of_each {
        let LoadFigures { reads, writes, bytes, verified, .. } = figures?;
        all.reads.join(reads);
        all.writes.join(writes);
        all.bytes += bytes;
        all.verified += verified;
    }
    all.elapsed = runtime.now().saturating_sub(began).max(Duration::from_nanos(1));
    all.count(&before, &counts());
    something(all)
}

/// Returns the output of each future, all begun at once.
async fn all_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut doing: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, given) in doing.iter_mut().filter(|(_, given)| given.is_none()) {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                *given = Some(output);
            }
        }
        if doing.iter().all(|(_, given)| given.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    doing.into_iter().filter_map(|(_, given)| given).collect()
}

/// Makes the load.
///
/// # Errors
/// As [`on_rig`].
pub fn make(rig: &Rig, load: &Load, ending: &AtomicBool) -> Result<LoadFigures, String> {
    let mut making = Making::new(rig, load.block_bytes);
    let mut figures = rig.run(making.all(rig.cache(), load, ending))?;
    figures.elapsed = figures.elapsed.max(Duration::from_nanos(1));
    something(figures)
}

fn something(figures: LoadFigures) -> Result<LoadFigures, String> {
    match figures.reads.requests + figures.writes.requests {
        0 => Err("nothing is left to measure: choose a larger scale".to_owned()),
        _ => Ok(figures),
    }
}

/// A request that is under way.
struct Flight {
    request: PaperRequest,
    expected: Vec<Expected>,
    doing: Doing,
    since: Duration,
    is_measured: bool,
}

enum Doing {
    Read(IoFuture<IoBuf>),
    Other(IoFuture<()>),
}

impl Doing {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<IoResult<Option<IoBuf>>> {
        match self {
            Doing::Read(read) => Pin::new(read).poll(context).map_ok(Some),
            Doing::Other(other) => Pin::new(other).poll(context).map_ok(|()| None),
        }
    }
}

/// A client, with its knowledge of the volume's content that its requests touch.
pub struct Making {
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    blocks: Blocks,
    flights: Vec<Flight>,
    scratch: Vec<u8>,
    figures: LoadFigures,
    failed: Option<String>,
}

impl Making {
    /// Returns a client of a rig's unused volume.
    pub fn new(rig: &Rig, block_bytes: u32) -> Making {
        Making {
            device: rig.volume(),
            runtime: rig.runtime(),
            blocks: Blocks::new(block_bytes.into()),
            flights: Vec::new(),
            scratch: vec![0; block_bytes as usize],
            figures: LoadFigures::default(),
            failed: None,
        }
    }

    /// Makes a load, and remembers its writes for the next one. `counting` tells its hits.
    ///
    /// # Errors
    /// As [`on_rig`].
    pub async fn all(
        &mut self,
        counting: Option<&Cache>,
        load: &Load,
        ending: &AtomicBool,
    ) -> Result<LoadFigures, String> {
        self.figures = LoadFigures::default();
        let counts = || counting.map_or(CounterValues::default(), |cache| cache.status().counts);
        let mut before = counts();
        let mut began = self.runtime.now();
        for (number, request) in load.requests.iter().enumerate() {
            if number == load.warmup {
                if load.drains {
                    self.drain(counting).await;
                }
                before = counts();
                began = self.runtime.now();
            }
            let meets = |flight: &Flight| flight.request.meets(request.offset, request.len, request.op == Op::Read);
            while self.flights.len() >= load.outstanding || self.flights.iter().any(meets) {
                self.wait().await;
            }
            if number % LOOK_EVERY == 0 && ending.load(Ordering::Relaxed) {
                self.failed.get_or_insert("ended by a signal".to_owned());
            }
            if self.failed.is_some() {
                break;
            }
            self.start(request, number >= load.warmup);
        }
        while !self.flights.is_empty() {
            self.wait().await;
        }
        self.figures.elapsed = self.runtime.now().saturating_sub(began);
        self.figures.count(&before, &counts());
        self.failed.take().map_or(Ok(self.figures), Err)
    }

    /// Waits until all requests have ended, and their content is on flash.
    async fn drain(&mut self, cache: Option<&Cache>) {
        while !self.flights.is_empty() {
            self.wait().await;
        }
        if let Some(cache) = cache {
            cache.wait_for_insertions().await;
            if let Err(error) = cache.flush().await {
                self.failed.get_or_insert(format!("the flush after the warm-up failed: {error}"));
            }
        }
    }

    fn start(&mut self, request: &PaperRequest, is_measured: bool) {
        let expected = if request.op == Op::Read { self.blocks.read(request) } else { Vec::new() };
        self.blocks.change(request);
        let PaperRequest { op, offset, len, .. } = *request;
        let since = self.runtime.now();
        let doing = match op {
            Op::Read => Doing::Read(self.device.read(offset, IoBuf::new(len as usize))),
            Op::Write => {
                let mut data = IoBuf::new(len as usize);
                for block in &request.blocks {
                    if let Some(place) = data.get_mut(block.at as usize..(block.at + block.len) as usize) {
                        block.bytes.unwrap_or(Bytes::Zero).fill(place);
                    }
                }
                Doing::Other(self.device.write(offset, data.freeze(), WriteFlags::default()))
            }
            Op::Trim => Doing::Other(self.device.write_zeroes(offset, len, ZeroFlags::default())),
            Op::Flush => Doing::Other(self.device.flush()),
        };
        self.flights.push(Flight { request: request.clone(), expected, doing, since, is_measured });
    }

    /// Waits until at least one request ends.
    async fn wait(&mut self) {
        let mut over = Vec::new();
        let (flights, runtime) = (&mut self.flights, &self.runtime);
        poll_fn(|context| {
            let mut at = 0;
            while let Some(flight) = flights.get_mut(at) {
                match flight.doing.poll(context) {
                    Poll::Ready(result) => over.push((flights.swap_remove(at), result, runtime.now())),
                    Poll::Pending => at += 1,
                }
            }
            if over.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for (flight, result, at) in over {
            self.finish(&flight, result, at);
        }
    }

    fn finish(&mut self, flight: &Flight, result: IoResult<Option<IoBuf>>, at: Duration) {
        let request = &flight.request;
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                self.failed.get_or_insert(format!("request {} failed: {error}", request.number));
                return;
            }
        };
        if flight.is_measured {
            let took = at.saturating_sub(flight.since);
            match request.op {
                Op::Read => self.figures.reads.add(took),
                Op::Write => self.figures.writes.add(took),
                Op::Trim | Op::Flush => {}
            }
            if matches!(request.op, Op::Read | Op::Write) {
                self.figures.bytes += request.len;
            }
        }
        if let Some(found) = found {
            self.verify(flight, &found);
        }
    }

    fn verify(&mut self, flight: &Flight, found: &[u8]) {
        let request = &flight.request;
        for (block, expected) in request.blocks.iter().zip(&flight.expected) {
            let (Expected::Surely(bytes) | Expected::IfPrepared(bytes)) = expected else { continue };
            let found = found.get(block.at as usize..(block.at + block.len) as usize).unwrap_or_default();
            if bytes.is(found, &mut self.scratch) {
                self.figures.verified += 1;
                continue;
            }
            let (number, offset) = (request.number, request.offset + block.at);
            self.failed.get_or_insert(format!(
                "request {number} did not read the last content at byte {offset}: nothing is measured of such a cache"
            ));
        }
    }
}

/// Returns the chunks of a trace as requests.
///
/// Adjacent chunks of one request of the trace are one request. `place` moves chunks.
///
/// # Errors
/// A sentence: a write without content in the trace.
pub fn requests(
    chunks: impl Iterator<Item = Result<ChunkRequest, String>>,
    chunk_bytes: u32,
    place: impl Fn(u64) -> u64,
) -> Result<Vec<PaperRequest>, String> {
    requests_with(chunks, chunk_bytes, place, &mut ContentSizes::default())
}

/// Does the same for one of several traces with common content `sizes`.
///
/// # Errors
/// As [`requests`].
pub fn requests_with(
    chunks: impl Iterator<Item = Result<ChunkRequest, String>>,
    chunk_bytes: u32,
    place: impl Fn(u64) -> u64,
    sizes: &mut ContentSizes,
) -> Result<Vec<PaperRequest>, String> {
    let mut requests: Vec<PaperRequest> = Vec::new();
    let mut last = None;
    for chunk in chunks {
        let chunk = chunk?;
        if chunk.op == Op::Write && chunk.content.is_none() {
            return Err(format!("request {} of the trace writes what it does not say", chunk.request));
        }
        let record = Record { offset_bytes: place(chunk.lba) * u64::from(chunk_bytes), ..chunk.to_record(chunk_bytes) };
        let goes_on = last == Some((chunk.request, chunk.op)) && chunk.chunk_count == 1;
        last = Some((chunk.request, chunk.op));
        match requests.last_mut().filter(|_| goes_on) {
            Some(request)
                if request.offset + request.len == record.offset_bytes
                    && request.len + record.len_bytes <= REQUEST_BYTES_MAX =>
            {
                request.blocks.extend(block(&record, request.len, |content| sizes.bytes(content)));
                request.len += record.len_bytes;
            }
            _ => requests.push(request_with(&record, |content| sizes.bytes(content))),
        }
    }
    Ok(requests)
}

/// Returns a request of one record of a generator that gives each fingerprint one size.
pub fn request(record: &Record) -> PaperRequest {
    request_with(record, Bytes::of)
}

fn request_with(record: &Record, bytes_of: impl FnOnce(&TraceContent) -> Bytes) -> PaperRequest {
    PaperRequest {
        number: record.request,
        time_us: record.time_us,
        op: record.op,
        offset: record.offset_bytes,
        len: record.len_bytes,
        blocks: block(record, 0, bytes_of).into_iter().collect(),
    }
}

fn block(record: &Record, at: u64, bytes_of: impl FnOnce(&TraceContent) -> Bytes) -> Option<Block> {
    let bytes = record.content.as_ref().map(bytes_of);
    record.is_data().then_some(Block { at, len: record.len_bytes, bytes })
}

/// Returns the disk's content before these requests: the blocks that they read before they write
/// them.
pub fn before(requests: &[PaperRequest], block_bytes: u32) -> DiskContent {
    let mut blocks = Blocks::new(block_bytes.into());
    let first = requests.iter().flat_map(|request| blocks.first_reads(request));
    Arc::new(first.map(|(offset, _, bytes)| (offset / u64::from(block_bytes), bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::rig::{CacheOf, Volume};
    use super::*;
    use larder_device::throttled::Profile;
    use larder_engine::designs::ENGINE_DESIGNS;
    use larder_trace::generate::{ZipfConfig, ZipfTrace};

    const CHUNK: u32 = 4096;

    fn trace(requests: u64) -> Vec<PaperRequest> {
        let config = ZipfConfig {
            storage_bytes: 1 << 30,
            working_set_bytes: 2 << 20,
            chunk_bytes: CHUNK,
            write_to_read: 1.0,
            requests,
            seed: 9,
            ..ZipfConfig::default()
        };
        ZipfTrace::new(config).expect("a trace").map(|record| request(&record.expect("a record"))).collect()
    }

    fn plan(volume: Volume, requests: &[PaperRequest]) -> Plan {
        Plan {
            volume,
            disk: Profile::Hdd7200,
            flash: Profile::SataSsd,
            disk_bytes: 1 << 30,
            block_bytes: CHUNK,
            initial: before(requests, CHUNK),
            workers: 1,
        }
    }

    fn load(requests: Vec<PaperRequest>, outstanding: usize) -> Load {
        let warmup = requests.len() / 2;
        Load { requests: Arc::new(requests), block_bytes: CHUNK, outstanding, warmup, drains: true }
    }

    fn figures(volume: Volume, requests: &[PaperRequest]) -> LoadFigures {
        let load = load(requests.to_vec(), 4);
        on_rig(&plan(volume, requests), Time::Virtual, &load, &AtomicBool::new(false)).expect("measured")
    }

    #[test]
    fn each_design_answers_each_read_right_and_sooner_than_a_disk() {
        let requests = trace(1200);
        let disk = figures(Volume::Disk, &requests);
        assert_eq!(disk.hit_percent(), None);
        for design in ENGINE_DESIGNS {
            let cache = CacheOf::named(design.name, CHUNK, 4 << 20).expect("a cache");
            let cached = figures(Volume::Cached(cache), &requests);
            let (verified, reads) = (cached.verified, cached.reads.requests + cached.writes.requests);
            assert!(verified > 400 && reads == 600, "{}: {verified} of {reads}", design.name);
            assert!(cached.hit_percent().is_some_and(|hits| hits > 50.0), "{}: {cached:?}", design.name);
            assert!(cached.reads.mean_us() < disk.reads.mean_us(), "{}: {cached:?} {disk:?}", design.name);
            let again = figures(Volume::Cached(cache), &requests);
            assert_eq!((cached.elapsed, cached.reads.sum), (again.elapsed, again.reads.sum), "{}", design.name);
        }
        let flash = figures(Volume::Flash, &requests);
        assert!(flash.reads.mean_us() < disk.reads.mean_us());
    }

    /// Each client has a request under way, all reads are right, and the result is the same each
    /// time.
    #[test]
    fn clients_side_by_side_share_a_cache() {
        let alone = trace(600);
        let apart = 1 << 30;
        let moved: Vec<PaperRequest> =
            alone.iter().map(|request| PaperRequest { offset: request.offset + apart, ..request.clone() }).collect();
        let both = [alone, moved];
        let all = both.concat();
        for volume in [Volume::Disk, Volume::Cached(CacheOf::named("d-lru", CHUNK, 4 << 20).expect("a cache"))] {
            let plan = Plan { disk_bytes: 2 << 30, ..plan(volume, &all) };
            let loads = both.clone().map(|requests| Load { warmup: 0, drains: false, ..load(requests, 1) });
            let together = side_by_side(&plan, Time::Virtual, &loads, &AtomicBool::new(false)).expect("measured");
            let one_after_the_other = Load { warmup: 0, drains: false, ..load(all.clone(), 1) };
            let serial = on_rig(&plan, Time::Virtual, &one_after_the_other, &AtomicBool::new(false)).expect("measured");
            let of = |figures: &LoadFigures| {
                (figures.reads.requests, figures.writes.requests, figures.bytes, figures.verified)
            };
            assert_eq!(of(&together), of(&serial));
            assert_eq!(together.reads.requests + together.writes.requests, 1200);
            assert_eq!(together.read_chunks, serial.read_chunks);
            if matches!(volume, Volume::Disk) {
                // One always waits while the disk is busy with the other; requests of one client
                // never wait for each other.
                let under_way = |figures: &LoadFigures| {
                    (figures.reads.sum + figures.writes.sum).as_secs_f64() / figures.elapsed.as_secs_f64()
                };
                assert!((1.8..=2.0).contains(&under_way(&together)), "{together:?}");
                assert!((0.99..=1.01).contains(&under_way(&serial)), "{serial:?}");
            }
            let again = side_by_side(&plan, Time::Virtual, &loads, &AtomicBool::new(false)).expect("measured");
            assert_eq!((together.elapsed, together.reads.sum), (again.elapsed, again.reads.sum));
            let wrong = Plan { initial: DiskContent::default(), ..plan };
            let told = side_by_side(&wrong, Time::Virtual, &loads, &AtomicBool::new(false)).expect_err("it lacks all");
            assert!(told.contains("did not read the last content at byte"), "{told}");
        }
    }

    /// A volume with other content gives no figures.
    #[test]
    fn a_wrong_block_ends_the_experiment() {
        let requests = trace(400);
        let wrong = Plan { initial: DiskContent::default(), ..plan(Volume::Disk, &requests) };
        let ending = AtomicBool::new(false);
        let told = on_rig(&wrong, Time::Virtual, &load(requests, 1), &ending).expect_err("it lacks what is read");
        assert!(told.contains("did not read the last content at byte"), "{told}");
    }

    #[test]
    fn a_signal_ends_a_load_and_nothing_to_measure_is_told() {
        let requests = trace(300);
        let plan = plan(Volume::Disk, &requests);
        let told = on_rig(&plan, Time::Virtual, &load(requests.clone(), 1), &AtomicBool::new(true));
        assert!(told.expect_err("ended").contains("signal"));
        let all = Load { warmup: 300, ..load(requests, 1) };
        let told = on_rig(&plan, Time::Virtual, &all, &AtomicBool::new(false));
        assert!(told.expect_err("nothing is left").contains("larger scale"));
    }
}
