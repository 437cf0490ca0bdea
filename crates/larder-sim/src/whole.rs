//! Time of the whole: a cache, the drive that its flash lies on, and its origin, on one clock.
//!
//! Role: [`Whole`] makes the requests of a trace to a cache, and the cache's requests to its
//! devices. [`Drive`] and [`OriginModel`] say when these are over, and so when a client is
//! answered. Requests are made at their own times, or so many at a time as fast as they go
//! ([`ReplayPace`]).
//!
//! | file | content |
//! |---|---|
//! | `clients.rs` | the requests of a trace as clients made them |
//! | `pace.rs` | their times |
//! | `decide.rs` | the cache's device requests for one of them, chunk by chunk |
//! | `plan.rs` | the steps for one of them, in their order |
//! | `pages.rs` | bytes of flash as pages of the drive |
//! | `devices.rs` | the requests under way on them |
//! | [`drive`] | a drive as large as a cache, with its parallelism |
//! | [`figures`] | the results |
//! | [`uncached`] | no cache, to compare with |
//!
//! **Waiting.** A read hit waits for its metadata and then its data, a miss for the origin; the
//! insertion follows in the background. A write waits for the requests that the cache marks for its
//! client (write-through: the origin; a design without segments in RAM: flash). It also waits for
//! *room* while background evictions owe more flash than the cache keeps in reserve. A flush waits
//! for the segments under way, its own, the log, and the flushes. Computing takes no time.
//!
//! **Bounds**, as in the engine: a 32nd of the flash is kept free, 2 to 8 WEUs
//! (`larder-engine/src/store/weus.rs`); for slots of one chunk a 64th, 2 to 256 of them
//! (`larder-engine/src/store.rs`). [`DESTAGE_DEPTH`] writes of destaging are under way
//! (`destage_depth`). At most [`STORES_MAX`] tasks write in the background (closed segments,
//! `larder-engine/src/segment.rs`), and [`EVICTIONS_MAX`] make room. Beyond that no request begins,
//! not even a read. The engine drops insertions then; here the chunk already counts as cached.
//!
//! **One clock.** The earlier of both devices' next events happens next, the drive's first at equal
//! times, so neither misses one. A request of a trace at that moment is made after them.
//!
//! Invariants: a cache decides in the order of the trace, when a request begins. So hits and bytes
//! are those of a replay without time, except on a drive that drops data by itself. Each request is
//! answered once, not before it was made. The same trace takes the same time.
//!
//! It does not make a request wait for another of the same chunk (a chunk on its way from the
//! origin is a hit), or a write for the trim of evicted data. It leaves out reading ahead, commits
//! by a timer, and the processor.

mod clients;
mod decide;
mod devices;
pub mod drive;
pub mod figures;
mod pace;
mod pages;
mod plan;
pub mod uncached;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;
use larder_trace::{Op, TraceError};

pub use clients::{ClientRequest, Clients};
pub use devices::DESTAGE_DEPTH;
use devices::Devices;
use figures::{Marks, TimedFigures};
pub use pace::{ReplayPace, WholeError};
use pages::Pages;
use plan::{Chain, Stage, Task};

use crate::{cache::ReplayCache, devices::Requests, host::Host, origin::OriginModel};
use larder_core::limits::{FREE_MIN, RECORD_BATCH_MAX, RECORD_SLOTS_PER_FREE, WEU_BATCH_MAX, WEUS_PER_FREE};
use larder_ssd::{
    geometry::OutOfRange,
    kinds::FtlKind,
    profile::DriveProfile,
    time::{Drive, Nanos},
};

/// Background writes (closed segments, above all), at most, before requests wait to begin.
pub const STORES_MAX: usize = 64;
/// Tasks that make room, at most, before requests wait to begin.
pub const EVICTIONS_MAX: usize = 256;
/// The most bytes that an eviction of one chunk frees.
const CHUNK_BYTES_MAX: u64 = 64 << 10;

/// The waiter of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The client with this request.
    Client(u64),
    /// No client. A flush waits until its flash is written.
    Stores,
    /// No client. It makes room.
    Evicts,
}

/// A task that is under way.
struct Running {
    of: For,
    stages: VecDeque<Stage>,
    chains: Vec<Chain>,
    left: usize,
}

/// A request that was made and has not begun.
struct Made {
    at: Nanos,
    is_counted: bool,
    request: ClientRequest,
}

/// A client's request that is not over.
struct Client {
    op: Op,
    made_at: Nanos,
    is_counted: bool,
    /// Its own task is not over.
    runs: bool,
    /// Bytes of the flash that must have been freed before it is answered.
    needs_freed: u64,
    /// The task of a flush, for the moment when the stores under way are over.
    then: Option<Task>,
    waits_for: BTreeSet<u64>,
}

/// A cache with time; see the module.
pub struct Whole {
    cache: Box<dyn ReplayCache>,
    pages: Option<Pages>,
    devices: Devices,
    now: Nanos,
    tasks: HashMap<u64, Running>,
    next_task: u64,
    /// Tasks that write in the background and are not over.
    stores: BTreeSet<u64>,
    clients: HashMap<u64, Client>,
    next_client: u64,
    /// Requests that were made, and not begun, since too much goes on in the background.
    made: VecDeque<Made>,
    is_counting: bool,
    /// Writes that are over but for room: the bytes that they need, and their numbers.
    room: BTreeSet<(u64, u64)>,
    flushes: BTreeSet<u64>,
    /// Bytes of flash that evictions were to free so far.
    owed: u64,
    /// Tasks that make room and are not over, each with the bytes owed before it.
    evicting: BTreeMap<u64, u64>,
    /// The most bytes that one eviction freed.
    largest: u64,
    asked: Requests,
    figures: TimedFigures,
}

impl Whole {
    /// Puts an unused cache on its devices. Without a drive, the flash takes no time.
    ///
    /// # Errors
    /// A drive that has no room for the cache's flash.
    pub fn new(
        mut cache: Box<dyn ReplayCache>,
        drive: Option<(Drive, &DriveProfile)>,
        origin: OriginModel,
    ) -> Result<Whole, OutOfRange> {
        let mut pages = None;
        if let Some((drive, profile)) = &drive {
            let geometry = drive.ftl().array().geometry();
            let bytes = u64::from(drive.ftl().logical_pages()) * u64::from(geometry.page_bytes);
            let span = cache.flash_span_bytes();
            if bytes < span {
                return Err(OutOfRange::new("capacity", bytes, format!("at least {span}, the flash of the cache")));
            }
            pages = Some(Pages::new(drive.ftl(), profile.buffer_bytes));
        }
        cache.gather(true);
        let devices = Devices::new(drive.map(|(drive, _)| drive), origin);
        Ok(Whole {
            cache,
            pages,
            devices,
            now: 0,
            tasks: HashMap::new(),
            next_task: 0,
            stores: BTreeSet::new(),
            clients: HashMap::new(),
            next_client: 0,
            made: VecDeque::new(),
            is_counting: false,
            room: BTreeSet::new(),
            flushes: BTreeSet::new(),
            owed: 0,
            evicting: BTreeMap::new(),
            largest: 0,
            asked: Requests::default(),
            figures: TimedFigures::default(),
        })
    }

    /// Puts a cache on a drive with a clock, cut like `counted`, which has none.
    ///
    /// The drive learns the [dirty bytes](Host::dirtying) of `counted`. If a drive is asked for its
    /// next drop, `counted` answers.
    ///
    /// # Errors
    /// A figure that the layer or its time refuses.
    pub fn beside(
        cache: Box<dyn ReplayCache>,
        counted: Box<Host>,
        kind: &FtlKind,
        origin: OriginModel,
    ) -> Result<Whole, OutOfRange> {
        let cut = *counted.profile();
        let drive = drive::clocked(&cut, kind, cache.flash_weu_bytes())?;
        let is_asked = drive.ftl().write_unit_pages() > 1;
        let mut whole = Whole::new(cache, Some((drive, &cut)), origin)?;
        if let Some(dirtying) = counted.dirtying() {
            whole.devices.keep(dirtying)?;
        }
        whole.devices.advisor = is_asked.then_some(counted);
        Ok(whole)
    }

    /// Returns the cache.
    pub fn cache(&self) -> &dyn ReplayCache {
        &*self.cache
    }

    /// Returns the drive, if there is one.
    pub fn drive(&self) -> Option<&Drive> {
        self.devices.drive.as_ref()
    }

    /// Returns the origin.
    pub fn origin(&self) -> &OriginModel {
        &self.devices.origin
    }

    /// Makes all requests, and lets all of them end.
    ///
    /// The first `warmup` reads and writes of chunks are not counted. Time begins with the first
    /// counted request.
    ///
    /// # Errors
    /// The trace's first error, or missing times if its own pace is asked for.
    pub fn run(
        &mut self,
        requests: impl IntoIterator<Item = Result<ClientRequest, TraceError>>,
        pace: ReplayPace,
        warmup: u64,
    ) -> Result<TimedFigures, WholeError> {
        let mut chunks = 0;
        for request in requests {
            let request = request.map_err(WholeError::Trace)?;
            match pace {
                ReplayPace::Own => {
                    let at = request.at.ok_or(WholeError::NoTimes)?;
                    while self.devices.next_event_at().is_some_and(|next| next <= at) {
                        self.step();
                    }
                    self.now = self.now.max(at);
                }
                ReplayPace::Full(outstanding) => while self.under_way() >= outstanding.max(1) && self.step() {},
            }
            let is_counted = chunks >= warmup;
            if is_counted && !self.is_counting {
                self.count();
            }
            chunks += if matches!(request.op, Op::Read | Op::Write) { request.chunks.len() as u64 } else { 0 };
            self.made.push_back(Made { at: self.now, is_counted, request });
            self.begin_what_may();
        }
        while self.under_way() > 0 && self.step() {}
        if !self.is_counting {
            self.count();
        }
        let marks = self.marks();
        self.figures.end(&marks);
        self.figures.drive = self.drive().map(Drive::times);
        while self.step() {}
        Ok(self.figures.clone())
    }

    /// Returns the number of requests that were made and are not over.
    fn under_way(&self) -> usize {
        self.clients.len() + self.made.len()
    }

    /// Counts from now on.
    fn count(&mut self) {
        self.is_counting = true;
        let marks = self.marks();
        self.figures.begin(marks);
        self.devices.drive.iter_mut().for_each(Drive::begin_times);
    }

    fn marks(&mut self) -> Marks {
        let Devices { drive, origin, .. } = &mut self.devices;
        // Idle work of the drive before this moment is done, and is not counted.
        drive.iter_mut().for_each(|drive| drive.advance_to(self.now));
        let programmed = drive.as_ref().map_or(0, |drive| {
            let page_bytes = drive.ftl().array().geometry().page_bytes;
            drive.ftl().counts().pages_programmed() * u64::from(page_bytes)
        });
        let bytes = (self.pages.as_ref().map_or(0, Pages::bytes_written), programmed);
        let drive = drive.as_ref().map(|drive| (drive.cells_ns(self.now), drive.planes()));
        Marks { now: self.now, drive, bytes, origin: origin.work_until(self.now) }
    }

    /// Lets the next event happen, and its effects at once. Returns false if there is none.
    fn step(&mut self) -> bool {
        let Some(next) = self.devices.step() else { return false };
        self.now = next;
        self.take_finished();
        self.begin_what_may();
        true
    }

    /// Takes all finished steps from the devices.
    fn take_finished(&mut self) {
        while let Some((task, chain)) = self.devices.take_over(self.now) {
            self.go_on(task, chain);
        }
    }

    /// Begins requests that were made, in their order, while the background has room.
    fn begin_what_may(&mut self) {
        while self.stores.len() < STORES_MAX
            && self.evicting.len() < EVICTIONS_MAX
            && let Some(made) = self.made.pop_front()
        {
            self.begin(&made);
            self.take_finished();
        }
    }

    /// Lets the cache decide on a request, and begins its tasks.
    fn begin(&mut self, Made { at, is_counted, request }: &Made) {
        let number = self.next_client;
        self.next_client += 1;
        let (client, stores, evicts) = self.decide(request, *is_counted).finish();
        let owed_before = self.owed;
        self.owed += evicts.frees;
        self.largest = self.largest.max(evicts.frees);
        let is_flush = request.op == Op::Flush;
        let needs_freed = if request.op == Op::Write { self.owed.saturating_sub(self.reserve()) } else { 0 };
        let task = (!client.is_empty()).then(|| Task { stages: VecDeque::from([client]), frees: 0 });
        let waits_for = if is_flush { self.stores.clone() } else { BTreeSet::new() };
        let has_to_wait = !waits_for.is_empty();
        let (now, then) = if has_to_wait { (None, task) } else { (task, None) };
        self.clients.insert(
            number,
            Client {
                op: request.op,
                made_at: *at,
                is_counted: *is_counted,
                runs: now.is_some(),
                needs_freed,
                then,
                waits_for,
            },
        );
        if has_to_wait {
            self.flushes.insert(number);
        }
        if let Some(task) = now {
            self.start(For::Client(number), task);
        }
        if !stores.is_empty() {
            self.start(For::Stores, stores);
        }
        if !evicts.is_empty() {
            self.evicting.insert(self.next_task, owed_before);
            self.start(For::Evicts, evicts);
        }
        self.answer(number);
    }

    /// Returns the bytes of flash that have been freed.
    ///
    /// An eviction counts when all before it are over: these may destage the data that it evicts.
    fn freed(&self) -> u64 {
        self.evicting.first_key_value().map_or(self.owed, |(_, &before)| before)
    }

    /// Returns the bytes of flash that evictions may owe while writes are answered.
    fn reserve(&self) -> u64 {
        let is_of_chunks = self.largest <= CHUNK_BYTES_MAX;
        let (share, most) = match is_of_chunks {
            true => (RECORD_SLOTS_PER_FREE, RECORD_BATCH_MAX),
            false => (WEUS_PER_FREE, WEU_BATCH_MAX),
        };
        let of_largest = |slots: usize| slots as u64 * self.largest;
        (self.cache.flash_span_bytes() / share as u64).clamp(of_largest(FREE_MIN), of_largest(most))
    }

    fn start(&mut self, of: For, task: Task) {
        let number = self.next_task;
        self.next_task += 1;
        if of == For::Stores {
            self.stores.insert(number);
        }
        let Task { stages, .. } = task;
        self.tasks.insert(number, Running { of, stages, chains: Vec::new(), left: 0 });
        self.next_stage(number);
    }

    /// Begins the next stage of a task, or ends it.
    fn next_stage(&mut self, number: u64) {
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let Some(stage) = task.stages.pop_front() else { return self.end(number) };
        task.left = stage.len();
        task.chains = stage;
        for chain in 0..task.left {
            self.next_step(number, chain);
        }
    }

    /// Asks a device for the next step of a chain. Returns false if there was none.
    fn next_step(&mut self, number: u64, chain: usize) -> bool {
        let Some(task) = self.tasks.get_mut(&number) else { return false };
        let Some(step) = task.chains.get_mut(chain).and_then(VecDeque::pop_front) else { return false };
        let destages = task.of == For::Evicts;
        self.devices.ask(self.now, (number, chain), step, destages);
        true
    }

    /// Goes on after a step of a chain.
    fn go_on(&mut self, number: u64, chain: usize) {
        if self.next_step(number, chain) {
            return;
        }
        let Some(task) = self.tasks.get_mut(&number) else { return };
        task.left -= 1;
        if task.left == 0 {
            self.next_stage(number);
        }
    }

    fn end(&mut self, number: u64) {
        let Some(Running { of, .. }) = self.tasks.remove(&number) else { return };
        match of {
            For::Client(client) => {
                if let Some(client) = self.clients.get_mut(&client) {
                    client.runs = false;
                }
                self.answer(client);
            }
            For::Stores => {
                self.stores.remove(&number);
                self.stored(number);
            }
            For::Evicts => {
                self.evicting.remove(&number);
                let freed = self.freed();
                while let Some(&(needs, client)) = self.room.first()
                    && needs <= freed
                {
                    self.room.pop_first();
                    self.answer(client);
                }
            }
        }
    }

    /// Begins the flushes that waited for this task alone.
    fn stored(&mut self, task: u64) {
        let mut ready = Vec::new();
        for &number in &self.flushes {
            let Some(flush) = self.clients.get_mut(&number) else { continue };
            flush.waits_for.remove(&task);
            if flush.waits_for.is_empty() {
                ready.push(number);
            }
        }
        for number in ready {
            self.flushes.remove(&number);
            let Some(flush) = self.clients.get_mut(&number) else { continue };
            let then = flush.then.take();
            flush.runs = then.is_some();
            match then {
                Some(task) => self.start(For::Client(number), task),
                None => self.answer(number),
            }
        }
    }

    /// Answers a client, if its request lacks nothing.
    fn answer(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        if client.runs || client.then.is_some() || !client.waits_for.is_empty() {
            return;
        }
        if client.needs_freed > self.freed() {
            self.room.insert((client.needs_freed, number));
            return;
        }
        if client.is_counted {
            self.figures.answered(client.op, self.now - client.made_at);
        }
        self.clients.remove(&number);
    }
}
