//! The time of a drive: its requests, planes, write buffer and controller on one clock.
//!
//! The controller hashes, planes do one thing each, and the translation layer's own operations are
//! in the requests' way.
//!
//! A write is over when the buffer has all its pages (CAFTL section 4.1.1): it takes a frame a
//! page, and passes the host's link. The oldest request goes from the buffer to the translation
//! layer. If pages of it are to be hashed, it goes through the controller first, one request at a
//! time. Then its pages are programmed, and their frames are free. Pages of a trim, a flush or idle
//! time that are to be hashed take their turn there, too. If a page's content is there, the page is
//! not programmed. It keeps its frame until it is hashed, and until the page that it refers to is
//! programmed, if that still waits.
//!
//! A read is over when its pages are in the buffer and have passed the link. Pages that the buffer
//! holds are there at once. The others are read from flash, before all jobs that wait for those
//! planes and are not reads of the host. Reads take frames, too, before writes do, unless they
//! [wait their turn](Drive::with_reads_in_turn). So writes wait while the buffer is full, and reads
//! while it is full of pages that are not programmed yet.
//!
//! The translation layer decides when a request is handed over, and its operations take their time
//! after that. It gets no more than a few pages a plane ahead of the flash, so that the buffer can
//! absorb pages that are written again.
//!
//! If the host asks for nothing and nothing is under way, the layer may do deferred work, a few
//! operations at a time. A new request waits for no more than those.
//!
//! A drive that was cut to fewer planes than its profile has is as parallel as the profile:
//! [`stripes`].
//!
//! Invariants: time does not go back. Events at the same time happen in the order in which they
//! were caused. The same requests take the same time. Each request is over once, in the end.
//!
//! It does not move data. It leaves the making of requests to [`run`].

pub mod buffer;
mod events;
mod filling;
mod frames;
mod handed_over;
mod handing;
mod jobs;
pub mod lanes;
pub mod latency;
mod nanos;
pub mod run;
pub mod stripes;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use buffer::Buffer;
use events::{Event, Events};
use filling::Filling;
use handed_over::HandedOver;
use lanes::{FlashJob, JobOwner, LaneStep, Lanes};
use latency::OperationTimes;
pub use nanos::Nanos;
use stripes::BusyStripes;

use super::{
    ftl::{Ftl, PageWrite},
    geometry::{Lpn, OutOfRange},
    op::FlashOp,
    profile::DriveProfile,
};

/// Operations that the layer may do at once while the host asks for nothing.
const IDLE_BUDGET: u64 = 16;
/// Waiting host pages a plane at or above which the layer gets no further request.
const PROGRAMS_AHEAD: u64 = 2;

/// A request of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveRequest {
    /// Reads these pages.
    Read(Range<u32>),
    /// Writes these pages, each once.
    Write(Vec<PageWrite>),
    /// Trims these pages.
    Trim(Range<u32>),
    /// Brings all pages that were written until now to flash.
    Flush,
}

/// The kinds by which requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Trim,
    Flush,
}

/// A request that is not over.
struct Pending {
    kind: Kind,
    asked_at: Nanos,
    /// Pages, or operations, that it still waits for.
    left: u64,
    /// Pages of a write that have no frame yet.
    pages: VecDeque<PageWrite>,
}

/// A drive with a clock; see the module.
pub struct Drive {
    ftl: Box<dyn Ftl>,
    profile: DriveProfile,
    stripes: BusyStripes,
    /// Copies from one plane to another, so far.
    links: u64,
    lanes: Lanes,
    buffer: Buffer,
    now: Nanos,
    events: Events,
    requests: BTreeMap<u64, Pending>,
    next_request: u64,
    writes_waiting: VecDeque<u64>,
    reads_waiting: VecDeque<(u64, Lpn)>,
    /// Flushes, and the batch before which all has to be programmed.
    flushes: VecDeque<(u64, u64)>,
    link_is_free_at: Nanos,
    /// The operations in the controller, and those that wait for it.
    hashing: VecDeque<HandedOver>,
    /// Host pages that were handed over and are not programmed.
    programs_ahead: u64,
    /// Pages whose programs are not over.
    filling: Filling,
    /// The layer has nothing left to do on its own.
    is_at_rest: bool,
    reads_in_turn: bool,
    over: VecDeque<(u64, Nanos)>,
    evicted: BTreeSet<Lpn>,
    times: OperationTimes,
}

impl Drive {
    /// Makes a drive with this translation layer, which was made for that profile.
    ///
    /// # Errors
    /// The first number of the profile with which there is no time, or no buffer.
    pub fn new(ftl: Box<dyn Ftl>, profile: &DriveProfile) -> Result<Drive, OutOfRange> {
        profile.check_time()?;
        let geometry = *ftl.array().geometry();
        let frames = profile.buffer_bytes / u64::from(geometry.page_bytes);
        let unit_pages = ftl.write_unit_pages();
        let Some(frames) = u32::try_from(frames).ok().filter(|&frames| frames >= unit_pages) else {
            let unit_bytes = u64::from(unit_pages) * u64::from(geometry.page_bytes);
            let range = format!("the bytes of one write, {unit_bytes}, or more, below 2^32 pages");
            return Err(OutOfRange::new("buffer_bytes", profile.buffer_bytes, range));
        };
        let stripes = BusyStripes::new(profile, geometry);
        Ok(Drive {
            ftl,
            profile: *profile,
            lanes: Lanes::new(&stripes, profile.timing),
            stripes,
            links: 0,
            buffer: Buffer::new(frames, unit_pages),
            now: 0,
            events: Events::default(),
            requests: BTreeMap::new(),
            next_request: 0,
            writes_waiting: VecDeque::new(),
            reads_waiting: VecDeque::new(),
            flushes: VecDeque::new(),
            link_is_free_at: 0,
            hashing: VecDeque::new(),
            programs_ahead: 0,
            filling: Filling::default(),
            is_at_rest: true,
            reads_in_turn: false,
            over: VecDeque::new(),
            evicted: BTreeSet::new(),
            times: OperationTimes::default(),
        })
    }

    /// Returns the drive with one queue for the buffer's frames.
    ///
    /// Reads take frames behind all writes that were made before.
    pub fn with_reads_in_turn(self) -> Drive {
        Drive { reads_in_turn: true, ..self }
    }

    /// Returns the present time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the translation layer.
    pub fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    /// Counts the planes at work.
    ///
    /// On a drive that was cut to fewer planes, these are the ones that its planes stand for
    /// ([`stripes`]).
    pub fn planes(&self) -> u32 {
        self.stripes.planes()
    }

    /// Returns the times since the start, or since [`Drive::begin_times`].
    pub fn times(&self) -> OperationTimes {
        OperationTimes { absorbed: self.buffer.absorbed, ..self.times.clone() }
    }

    /// Begins the times anew.
    pub fn begin_times(&mut self) {
        self.buffer.absorbed = 0;
        self.times = OperationTimes { since_ns: self.now, ..OperationTimes::default() };
    }

    /// Returns the time that cells were at work until `at`, in nanoseconds, summed over planes.
    ///
    /// All events before `at` have to be over.
    pub fn cells_ns(&self, at: Nanos) -> u128 {
        let is_of_cells = |event: Event| matches!(event, Event::Step(LaneStep::Cells(_)));
        let ends = self.events.iter().filter(|&(_, event)| is_of_cells(event)).map(|(ends, _)| ends);
        self.lanes.begun_ns() - ends.map(|ends| u128::from(ends - at)).sum::<u128>()
    }

    /// Takes a page that the drive has dropped by itself and that was not written since.
    pub fn take_evicted(&mut self) -> Option<Lpn> {
        let comes = |lpn| self.requests.values().flat_map(|pending| &pending.pages).any(|page| page.lpn == lpn);
        let is_there = |lpn| self.ftl.locate(lpn).is_some() || self.buffer.waits(lpn) || comes(lpn);
        std::iter::from_fn(|| self.evicted.pop_first()).find(|lpn| !is_there(*lpn))
    }

    /// Tells pages dirty or clean; see [`Ftl::tell_dirty`], panics included.
    pub fn tell_dirty(&mut self, pages: Range<u32>, is_dirty: bool) {
        self.ftl.tell_dirty(pages, is_dirty);
    }

    /// Counts the requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Makes a request now, and returns its number.
    ///
    /// # Panics
    /// For pages that the drive does not have, and writes not of whole units, each with its pages
    /// in order.
    pub fn submit(&mut self, request: DriveRequest) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.is_at_rest = false;
        let pending = |kind, left, pages| Pending { kind, asked_at: self.now, left, pages };
        match request {
            DriveRequest::Read(pages) => {
                self.requests.insert(number, pending(Kind::Read, pages.len() as u64, VecDeque::new()));
                self.reads_waiting.extend(pages.clone().map(|lpn| (number, Lpn(lpn))));
                if pages.is_empty() {
                    self.is_over(number);
                }
            }
            DriveRequest::Write(pages) => {
                self.buffer.check_units(&pages);
                let is_empty = pages.is_empty();
                self.requests.insert(number, pending(Kind::Write, pages.len() as u64, pages.into()));
                match is_empty {
                    true => self.is_over(number),
                    false => self.writes_waiting.push_back(number),
                }
            }
            DriveRequest::Trim(pages) => {
                self.requests.insert(number, pending(Kind::Trim, 0, VecDeque::new()));
                let mut ops = Vec::new();
                for run in self.buffer.trim(pages) {
                    self.ftl.trim(run, &mut |op: &FlashOp| ops.push(*op));
                }
                self.hash_and_program(HandedOver { ops, ..HandedOver::default() });
                self.is_over(number);
            }
            DriveRequest::Flush => {
                self.requests.insert(number, pending(Kind::Flush, 0, VecDeque::new()));
                self.flushes.push_back((number, self.buffer.next_batch()));
            }
        }
        self.go_on();
        number
    }

    /// Returns the time of the next event, if one happens without another request.
    pub fn next_event_at(&self) -> Option<Nanos> {
        self.events.next_at()
    }

    /// Takes a request that is over, and the time of its end.
    pub fn take_over(&mut self) -> Option<(u64, Nanos)> {
        self.over.pop_front()
    }

    /// Lets the next event happen; returns false if there is none.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.events.take() else { return false };
        self.now = at;
        match event {
            Event::Step(step) => {
                let events = &mut self.events;
                let job = self.lanes.step_ends(step, &mut |ns, step| events.put(at + ns, Event::Step(step)));
                if let Some(job) = job {
                    self.job_is_done(&job);
                }
            }
            Event::Linked { request, gives_frame } => {
                if gives_frame {
                    self.buffer.give_frame();
                }
                self.one_less(request);
            }
            Event::Hashed => self.is_hashed(),
        }
        self.go_on();
        true
    }

    /// Lets time pass until `at`. While the host asks for nothing, the layer does deferred work.
    pub fn advance_to(&mut self, at: Nanos) {
        loop {
            while self.next_event_at().is_some_and(|next| next <= at) {
                self.step();
            }
            let is_quiet = self.events.is_empty() && self.requests.is_empty() && self.buffer.is_empty();
            if !is_quiet || self.now >= at || self.is_at_rest || !self.work_alone() {
                break;
            }
        }
        self.now = self.now.max(at);
    }

    /// Lets everything that is under way end.
    pub fn finish(&mut self) {
        while self.step() {}
    }

    /// Lets the layer do a little deferred work; returns false if nothing follows from it.
    fn work_alone(&mut self) -> bool {
        let mut ops = Vec::new();
        let used = self.ftl.idle(IDLE_BUDGET, &mut |op: &FlashOp| ops.push(*op));
        self.is_at_rest = used == 0;
        if used > 0 {
            self.hash_and_program(HandedOver { ops, ..HandedOver::default() });
        }
        !self.events.is_empty()
    }

    /// Begins everything that can begin now.
    fn go_on(&mut self) {
        loop {
            let waiting = (self.reads_waiting.len(), self.writes_waiting.len());
            self.begin_reads();
            self.fill_buffer();
            if !self.reads_in_turn || waiting == (self.reads_waiting.len(), self.writes_waiting.len()) {
                break;
            }
        }
        while self.hashing.is_empty()
            && self.programs_ahead < PROGRAMS_AHEAD * u64::from(self.planes())
            && let Some(handed) = self.hand_over()
        {
            self.hash_and_program(handed);
        }
        self.end_flushes();
    }

    /// Sends a page of a request over the link.
    fn link(&mut self, request: u64, gives_frame: bool) {
        let begins = self.link_is_free_at.max(self.now);
        self.link_is_free_at = begins + self.profile.link_ns();
        self.events.put(self.link_is_free_at, Event::Linked { request, gives_frame });
    }

    /// Reads a page that the buffer does not hold, into a frame.
    fn read(&mut self, request: u64, lpn: Lpn) {
        let mut ops = Vec::new();
        self.ftl.read(lpn, &mut |op: &FlashOp| ops.push(*op));
        match ops.iter().rposition(|op| matches!(op, FlashOp::Read { .. })) {
            // Nothing is there.
            None => self.link(request, true),
            Some(last) => self.enqueue(&ops, None, Some((last, request))),
        }
    }

    /// Gives operations to their planes, in their order.
    fn enqueue(&mut self, ops: &[FlashOp], batch: Option<u64>, awaited: Option<(usize, u64)>) {
        self.evicted.extend(jobs::evicted(ops));
        let Drive { stripes, links, filling, lanes, events, now, .. } = self;
        jobs::of(stripes, ops, batch, awaited, links, &mut |job| {
            if let Some(ppa) = job.fills {
                filling.begins(ppa);
            }
            lanes.push(job, &mut |ns, step| events.put(*now + ns, Event::Step(step)));
        });
    }

    fn job_is_done(&mut self, job: &FlashJob) {
        if let Some(ppa) = job.fills {
            for (lpn, batch) in self.filling.ends(ppa) {
                self.buffer.release(lpn, batch);
            }
        }
        match job.owner {
            JobOwner::Nobody => {}
            JobOwner::Request(request) => match self.requests.get(&request).map(|pending| pending.kind) {
                Some(Kind::Flush) => self.one_less(request),
                _ => self.link(request, true),
            },
            JobOwner::Frame { lpn, batch } => {
                self.programs_ahead -= 1;
                self.buffer.release(Lpn(lpn), batch);
            }
        }
    }

    /// Flushes the layer for each flush whose writes are programmed.
    ///
    /// The layer makes its own state durable; the flush is over when that is.
    fn end_flushes(&mut self) {
        while let Some(&(request, batch)) = self.flushes.front()
            && self.buffer.is_programmed_before(batch)
        {
            self.flushes.pop_front();
            let mut ops = Vec::new();
            self.ftl.flush(&mut |op: &FlashOp| ops.push(*op));
            let last = ops.iter().rposition(|op| matches!(op, FlashOp::Program { .. }));
            match last {
                None => self.is_over(request),
                Some(_) => {
                    if let Some(flush) = self.requests.get_mut(&request) {
                        flush.left = 1;
                    }
                }
            }
            self.hash_and_program(HandedOver { ops, awaited: last.map(|last| (last, request)), batch: None });
        }
    }

    fn one_less(&mut self, request: u64) {
        let Some(pending) = self.requests.get_mut(&request) else { return };
        pending.left -= 1;
        if pending.left == 0 {
            self.is_over(request);
        }
    }

    fn is_over(&mut self, request: u64) {
        let Some(pending) = self.requests.remove(&request) else { return };
        let took = self.now - pending.asked_at;
        match pending.kind {
            Kind::Read => self.times.reads.add(took),
            Kind::Write => self.times.writes.add(took),
            Kind::Flush => self.times.flushes.add(took),
            Kind::Trim => {}
        }
        self.times.last_ns = self.now;
        self.over.push_back((request, self.now));
    }
}
