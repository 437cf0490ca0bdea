//! Time of a drive: when its requests are over, with planes that do one thing each, a write buffer, a controller that hashes, and
//! whatever the translation layer does in between in their way.
//!
//! A write is over when the buffer has all its pages (CAFTL section 4.1.1): it takes a frame a page, and passes the host's
//! link. From the buffer the oldest request goes to the translation layer, first through the controller where it is to be hashed, one
//! request at a time; then its pages are programmed, and their frames are free. What a trim, a flush or idle time has to be hashed
//! takes its turn there, too. A page that is not programmed, since its content is
//! there, keeps its frame until it is hashed, and until the page that it refers to is programmed, where that waits still. A read is over when its pages are in the buffer
//! and have passed the link: what the buffer holds is there at once, the rest is read from flash, before all that waits for those
//! planes without being a read of the host. Reads take frames, too, before writes do, unless they shall [wait their
//! turn](Drive::with_reads_in_turn). So writes wait where the buffer is full, and reads where it is full of what is not programmed yet.
//!
//! The translation layer decides when a request is handed over, and its operations take their time after that. It is not handed
//! more than a few pages a plane ahead of the flash, so that the buffer can absorb what is written again.
//!
//! Where nothing is asked of the drive, and nothing under way, the layer may do what can wait, a few operations at a time:
//! a request that comes waits for no more than those.
//!
//! A drive that was cut to fewer planes than its profile has is as parallel as that: [`stripes`].
//!
//! Invariants: time does not go back; what happens at the same time happens in the order in which it was caused; the same
//! requests take the same time. Each request that was made is over once, in the end.
//!
//! What it does not do: move data, or make requests: [`run`] does.

pub mod buffer;
mod events;
mod filling;
mod frames;
mod handing;
mod jobs;
pub mod lanes;
pub mod latency;
pub mod run;
pub mod stripes;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use buffer::Buffer;
use events::{Event, Events};
use filling::Filling;
use handing::HandedOver;
use lanes::{Job, Lanes, Owner, Step};
use latency::Times;
use stripes::Stripes;

use super::{
    ftl::{Ftl, PageWrite},
    geometry::{Lpn, OutOfRange},
    op::Op,
    profile::Profile,
};

/// Nanoseconds since the drive was switched on, or how many.
pub type Nanos = u64;

/// Operations that the layer may do at once where nothing is asked.
const IDLE_BUDGET: u64 = 16;
/// The layer is handed a request while fewer host pages than so many a plane wait to be programmed.
const PROGRAMS_AHEAD: u64 = 2;

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// These pages are read.
    Read(Range<u32>),
    /// These are written, each once.
    Write(Vec<PageWrite>),
    /// These are of no more use.
    Trim(Range<u32>),
    /// What was written until now is to be on flash.
    Flush,
}

/// What requests are counted by.
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
    /// Of a write: what has no frame yet.
    pages: VecDeque<PageWrite>,
}

/// A drive with a clock; see the module.
pub struct Drive {
    ftl: Box<dyn Ftl>,
    profile: Profile,
    stripes: Stripes,
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
    /// What the controller hashes, and what waits for that.
    hashing: VecDeque<HandedOver>,
    /// Host pages that were handed over and are not programmed.
    programs_ahead: u64,
    /// Pages whose programs are not over.
    filling: Filling,
    /// The layer has nothing left to do on its own.
    is_settled: bool,
    reads_in_turn: bool,
    over: VecDeque<(u64, Nanos)>,
    evicted: BTreeSet<Lpn>,
    times: Times,
}

impl Drive {
    /// A drive with this translation layer, which was made for that profile.
    ///
    /// # Errors
    /// The first number of the profile with which there is no time, or no buffer.
    pub fn new(ftl: Box<dyn Ftl>, profile: &Profile) -> Result<Drive, OutOfRange> {
        profile.check_time()?;
        let geometry = *ftl.array().geometry();
        let frames = profile.buffer_bytes / u64::from(geometry.page_bytes);
        let unit_pages = ftl.write_unit_pages();
        let Some(frames) = u32::try_from(frames).ok().filter(|&frames| frames >= unit_pages) else {
            let unit_bytes = u64::from(unit_pages) * u64::from(geometry.page_bytes);
            let range = format!("what is written at once, {unit_bytes} bytes, or more, below 2^32 pages");
            return Err(OutOfRange::new("buffer_bytes", profile.buffer_bytes, range));
        };
        let stripes = Stripes::new(profile, geometry);
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
            is_settled: true,
            reads_in_turn: false,
            over: VecDeque::new(),
            evicted: BTreeSet::new(),
            times: Times::default(),
        })
    }

    /// The same, with one queue for the buffer's frames: reads take them behind all writes that were made before.
    pub fn with_reads_in_turn(self) -> Drive {
        Drive { reads_in_turn: true, ..self }
    }

    /// What time it is.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The translation layer.
    pub fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    /// Planes that are at work: of a drive that was cut to fewer, those that they stand for ([`stripes`]).
    pub fn planes(&self) -> u32 {
        self.stripes.planes()
    }

    /// How long what took, so far, or since [`Drive::begin_times`].
    pub fn times(&self) -> Times {
        Times { absorbed: self.buffer.absorbed, ..self.times.clone() }
    }

    /// What took how long is told from now on, and no longer what did before.
    pub fn begin_times(&mut self) {
        self.buffer.absorbed = 0;
        self.times = Times { since_ns: self.now, ..Times::default() };
    }

    /// How long cells were at work until `at`, before which all has happened that happens: in nanoseconds, summed over planes.
    pub fn cells_ns(&self, at: Nanos) -> u128 {
        let is_of_cells = |event: Event| matches!(event, Event::Step(Step::Cells(_)));
        let ends = self.events.iter().filter(|&(_, event)| is_of_cells(event)).map(|(ends, _)| ends);
        self.lanes.begun_ns() - ends.map(|ends| u128::from(ends - at)).sum::<u128>()
    }

    /// A page that the drive has dropped by itself and that was not written since.
    pub fn take_evicted(&mut self) -> Option<Lpn> {
        let comes = |lpn| self.requests.values().flat_map(|pending| &pending.pages).any(|page| page.lpn == lpn);
        let is_there = |lpn| self.ftl.locate(lpn).is_some() || self.buffer.waits(lpn) || comes(lpn);
        std::iter::from_fn(|| self.evicted.pop_first()).find(|lpn| !is_there(*lpn))
    }

    /// See [`Ftl::tell_dirty`], panics included.
    pub fn tell_dirty(&mut self, pages: Range<u32>, is_dirty: bool) {
        self.ftl.tell_dirty(pages, is_dirty);
    }

    /// Requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Makes a request now; its number.
    ///
    /// # Panics
    /// For pages that the drive has not, and writes not of whole units, each with its pages in order.
    pub fn submit(&mut self, request: Request) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        self.is_settled = false;
        let pending = |kind, left, pages| Pending { kind, asked_at: self.now, left, pages };
        match request {
            Request::Read(pages) => {
                self.requests.insert(number, pending(Kind::Read, pages.len() as u64, VecDeque::new()));
                self.reads_waiting.extend(pages.clone().map(|lpn| (number, Lpn(lpn))));
                if pages.is_empty() {
                    self.is_over(number);
                }
            }
            Request::Write(pages) => {
                self.buffer.check_units(&pages);
                let is_empty = pages.is_empty();
                self.requests.insert(number, pending(Kind::Write, pages.len() as u64, pages.into()));
                match is_empty {
                    true => self.is_over(number),
                    false => self.writes_waiting.push_back(number),
                }
            }
            Request::Trim(pages) => {
                self.requests.insert(number, pending(Kind::Trim, 0, VecDeque::new()));
                let mut ops = Vec::new();
                for run in self.buffer.trim(pages) {
                    self.ftl.trim(run, &mut |op: &Op| ops.push(*op));
                }
                self.hash_and_program(HandedOver { ops, ..HandedOver::default() });
                self.is_over(number);
            }
            Request::Flush => {
                self.requests.insert(number, pending(Kind::Flush, 0, VecDeque::new()));
                self.flushes.push_back((number, self.buffer.next_batch()));
            }
        }
        self.go_on();
        number
    }

    /// When something happens next, if anything does without another request.
    pub fn next_event_at(&self) -> Option<Nanos> {
        self.events.next_at()
    }

    /// A request that is over, and when it was.
    pub fn take_over(&mut self) -> Option<(u64, Nanos)> {
        self.over.pop_front()
    }

    /// Lets the next thing happen. False where nothing will.
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

    /// Lets time pass until a moment. Where nothing is asked of the drive meanwhile, the layer does what can wait.
    pub fn advance_to(&mut self, at: Nanos) {
        loop {
            while self.next_event_at().is_some_and(|next| next <= at) {
                self.step();
            }
            let is_quiet = self.events.is_empty() && self.requests.is_empty() && self.buffer.is_empty();
            if !is_quiet || self.now >= at || self.is_settled || !self.work_alone() {
                break;
            }
        }
        self.now = self.now.max(at);
    }

    /// Lets everything that is under way end.
    pub fn finish(&mut self) {
        while self.step() {}
    }

    /// Has the layer do a little of what can wait. False where there is nothing.
    fn work_alone(&mut self) -> bool {
        let mut ops = Vec::new();
        let used = self.ftl.idle(IDLE_BUDGET, &mut |op: &Op| ops.push(*op));
        self.is_settled = used == 0;
        if used > 0 {
            self.hash_and_program(HandedOver { ops, ..HandedOver::default() });
        }
        !self.events.is_empty()
    }

    /// Whatever can begin now begins.
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

    /// A page of a request passes the link.
    fn link(&mut self, request: u64, gives_frame: bool) {
        let begins = self.link_is_free_at.max(self.now);
        self.link_is_free_at = begins + self.profile.link_ns();
        self.events.put(self.link_is_free_at, Event::Linked { request, gives_frame });
    }

    /// Reads a page that the buffer has not, into a frame.
    fn read(&mut self, request: u64, lpn: Lpn) {
        let mut ops = Vec::new();
        self.ftl.read(lpn, &mut |op: &Op| ops.push(*op));
        match ops.iter().rposition(|op| matches!(op, Op::Read { .. })) {
            // Nothing is there.
            None => self.link(request, true),
            Some(last) => self.enqueue(&ops, None, Some((last, request))),
        }
    }

    /// Gives operations to their planes, in their order.
    fn enqueue(&mut self, ops: &[Op], batch: Option<u64>, awaited: Option<(usize, u64)>) {
        self.evicted.extend(jobs::evicted(ops));
        let Drive { stripes, links, filling, lanes, events, now, .. } = self;
        jobs::of(stripes, ops, batch, awaited, links, &mut |job| {
            if let Some(ppa) = job.fills {
                filling.begins(ppa);
            }
            lanes.push(job, &mut |ns, step| events.put(*now + ns, Event::Step(step)));
        });
    }

    fn job_is_done(&mut self, job: &Job) {
        if let Some(ppa) = job.fills {
            for (lpn, batch) in self.filling.ends(ppa) {
                self.buffer.release(lpn, batch);
            }
        }
        match job.owner {
            Owner::Nobody => {}
            Owner::Request(request) => match self.requests.get(&request).map(|pending| pending.kind) {
                Some(Kind::Flush) => self.one_less(request),
                _ => self.link(request, true),
            },
            Owner::Frame { lpn, batch } => {
                self.programs_ahead -= 1;
                self.buffer.release(Lpn(lpn), batch);
            }
        }
    }

    /// Flushes whose writes are programmed have the layer make its own state durable; that has to be over, too.
    fn end_flushes(&mut self) {
        while let Some(&(request, batch)) = self.flushes.front()
            && self.buffer.is_programmed_before(batch)
        {
            self.flushes.pop_front();
            let mut ops = Vec::new();
            self.ftl.flush(&mut |op: &Op| ops.push(*op));
            let last = ops.iter().rposition(|op| matches!(op, Op::Program { .. }));
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
