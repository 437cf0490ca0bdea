//! The simulated origin of a cache, with time: a disk, an array of disks, a flash drive or a
//! network volume.
//!
//! Role: a [`OriginProfile`] names a medium and its figures; an [`OriginModel`] is one with a
//! clock. [`OriginModel::submit`] makes requests. The clock goes from event to event, as that of a
//! drive does ([`ssd::time`](larder_ssd::time)): so both can follow one clock.
//!
//! | file | content |
//! |---|---|
//! | [`profile`] | named origins: their figures, the sources of these, and their ranges |
//! | [`platter`] | the places of a disk's bytes, seeks, rotation |
//! | [`disk`] | a rotating disk: its queue, its arm, reading ahead |
//! | [`raid`] | disks as RAID 5 or RAID 6: the parts of a request on the disks |
//! | [`flash`] | a SATA or NVMe drive by its data sheet |
//! | [`network`] | a volume behind a network, with caps |
//!
//! **No origin here has a volatile write cache**: a write is over when the medium has it, and a
//! flush waits only for its command. Arrays and enterprise disks run so. A flash drive's own buffer
//! is in its write latency.
//!
//! Invariants: time does not go back. A request is over once, and not before its parts. Events at
//! the same time come in the order of their requests. The same requests take the same time. There
//! is no randomness: a disk's angle is that of the clock.
//!
//! It does not hold data, fail, remap sectors, run degraded or rebuild.

pub mod disk;
pub mod flash;
pub mod network;
pub mod platter;
pub mod profile;
pub mod raid;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Range,
};

use hashbrown::HashMap;

use larder_ssd::{
    geometry::OutOfRange,
    time::{Nanos, latency::Latencies},
};
use profile::{OriginFigures, OriginProfile};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// Reads bytes.
    Read,
    /// Writes bytes, and makes them durable.
    Write,
    /// Tells that bytes are of no more use.
    Trim,
    /// Asks that all writes be durable.
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginRequest {
    /// Its kind.
    pub kind: RequestKind,
    /// Its first byte; of no meaning for a flush.
    pub offset: u64,
    /// Its bytes; of no meaning for a flush.
    pub len: u64,
}

/// The work of the parts of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Reads of a part: of one disk of an array, or of the whole drive.
    pub reads: u64,
    /// Writes of a part.
    pub writes: u64,
    /// Bytes that were read, parity included.
    pub bytes_read: u64,
    /// Bytes that were written, parity included.
    pub bytes_written: u64,
    /// The time for which parts were at work, summed over [`Work::parts`].
    pub busy_ns: u128,
    /// Parts that can be at work at the same time: arms, channels, or the one gate of a network
    /// volume.
    pub parts: u64,
}

impl Work {
    /// Adds another's.
    pub fn and(self, other: Work) -> Work {
        Work {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            busy_ns: self.busy_ns + other.busy_ns,
            parts: self.parts + other.parts,
        }
    }

    /// Returns the work since it was `before`.
    pub fn since(self, before: &Work) -> Work {
        Work {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            busy_ns: self.busy_ns - before.busy_ns,
            parts: self.parts,
        }
    }

    /// Returns the share of a time in which its parts were at work; 0 of no time.
    pub fn utilisation(&self, elapsed: Nanos) -> f64 {
        let whole = u128::from(elapsed) * u128::from(self.parts);
        if whole == 0 { 0.0 } else { self.busy_ns as f64 / whole as f64 }
    }

    fn count(&mut self, request: &OriginRequest) {
        match request.kind {
            RequestKind::Read => {
                self.reads += 1;
                self.bytes_read += request.len;
            }
            RequestKind::Write => {
                self.writes += 1;
                self.bytes_written += request.len;
            }
            RequestKind::Trim | RequestKind::Flush => {}
        }
    }
}

/// A medium that answers requests. It has no clock of its own: its caller tells it the time.
trait Medium: Send {
    /// Takes a request now; `id` is the caller's name for it. All events until now have happened.
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest);

    /// Returns the time of the next event, if no more requests come.
    fn next_at(&self) -> Option<Nanos>;

    /// Lets the event at `now` happen, which is [`Medium::next_at`], and adds the requests that are
    /// over by it.
    fn step(&mut self, now: Nanos, over: &mut Vec<u64>);

    /// Returns the work until now. All events until then have happened.
    fn work(&self, now: Nanos) -> Work;
}

/// The times that requests took so far.
#[derive(Clone, Debug, Default)]
pub struct OriginTimes {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// The time when the last request was over.
    pub last_ns: Nanos,
}

/// An origin with a clock; see the module.
pub struct OriginModel {
    medium: Box<dyn Medium>,
    size_bytes: u64,
    now: Nanos,
    /// The requests that are not over: their kinds, and the times when they were made.
    pending: HashMap<u64, (RequestKind, Nanos)>,
    next_request: u64,
    over: VecDeque<(u64, Nanos)>,
    times: OriginTimes,
}

impl OriginModel {
    /// Makes an origin of so many bytes.
    ///
    /// A disk's arm sweeps all of its platter over them. So a small origin is a disk with few
    /// tracks, not a part of a large disk.
    ///
    /// # Errors
    /// The first figure of the profile that cannot hold, or an origin of no bytes.
    pub fn new(profile: &OriginProfile, size_bytes: u64) -> Result<OriginModel, OutOfRange> {
        profile.check()?;
        if !(1..=profile::SIZE_BYTES_MAX).contains(&size_bytes) {
            let range = format!("from 1 to {}", profile::SIZE_BYTES_MAX);
            return Err(OutOfRange::new("size_bytes", size_bytes, range));
        }
        let medium: Box<dyn Medium> = match profile.figures {
            OriginFigures::Disk(figures) => Box::new(disk::DiskModel::new(figures, size_bytes)),
            OriginFigures::Raid(figures) => Box::new(raid::Raid::new(figures, size_bytes)),
            OriginFigures::Flash(figures) => Box::new(Foreseen::new(flash::FlashModel::new(figures))),
            OriginFigures::Network(figures) => Box::new(Foreseen::new(network::Network::new(figures))),
        };
        Ok(OriginModel {
            medium,
            size_bytes,
            now: 0,
            pending: HashMap::new(),
            next_request: 0,
            over: VecDeque::new(),
            times: OriginTimes::default(),
        })
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the times that requests took so far.
    pub fn times(&self) -> &OriginTimes {
        &self.times
    }

    /// Returns the work of its parts so far.
    pub fn work(&self) -> Work {
        self.work_until(self.now)
    }

    /// Returns the work of its parts until `at`. All earlier events have happened.
    pub fn work_until(&self, at: Nanos) -> Work {
        self.medium.work(at)
    }

    /// Returns the number of requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Makes a request now, and returns its number.
    ///
    /// # Panics
    /// For bytes beyond the origin, or none at all.
    pub fn submit(&mut self, request: OriginRequest) -> u64 {
        let end = request.offset.checked_add(request.len);
        let fits = request.len > 0 && end.is_some_and(|end| end <= self.size_bytes);
        assert!(request.kind == RequestKind::Flush || fits, "{request:?} of an origin of {} bytes", self.size_bytes);
        let number = self.next_request;
        self.next_request += 1;
        self.pending.insert(number, (request.kind, self.now));
        self.medium.submit(self.now, number, request);
        number
    }

    /// Returns the time of the next event, if one comes without another request.
    pub fn next_event_at(&self) -> Option<Nanos> {
        self.medium.next_at()
    }

    /// Takes a request that is over, and the time when it was.
    pub fn take_over(&mut self) -> Option<(u64, Nanos)> {
        self.over.pop_front()
    }

    /// Lets the next event happen. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.medium.next_at() else { return false };
        self.now = at;
        let mut over = Vec::new();
        self.medium.step(at, &mut over);
        for number in over {
            let Some((kind, asked_at)) = self.pending.remove(&number) else { continue };
            match kind {
                RequestKind::Read => self.times.reads.add(at - asked_at),
                RequestKind::Write => self.times.writes.add(at - asked_at),
                RequestKind::Trim | RequestKind::Flush => {}
            }
            self.times.last_ns = at;
            self.over.push_back((number, at));
        }
        true
    }

    /// Lets time pass until a moment.
    pub fn advance_to(&mut self, at: Nanos) {
        while self.next_event_at().is_some_and(|next| next <= at) {
            self.step();
        }
        self.now = self.now.max(at);
    }

    /// Lets all requests end.
    pub fn finish(&mut self) {
        while self.step() {}
    }
}

/// Returns the nanoseconds of bytes at a rate.
fn transfer_ns(bytes: u64, bytes_per_second: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second)) as Nanos
}

/// A medium that knows the end of each request as soon as it takes it.
trait Foresees: Send {
    /// Parts that can be at work at the same time.
    const PARTS: u64;

    /// Takes a request now. Returns its end, and the time in which it has a part at work, which
    /// ends no later.
    fn take(&mut self, now: Nanos, request: &OriginRequest) -> (Nanos, Range<Nanos>);
}

/// A medium that foresees the ends of its requests.
struct Foreseen<F> {
    of: F,
    ends: Ends,
    work: Work,
    /// The times in which parts are at work for requests that are not over.
    at_work: HashMap<u64, Range<Nanos>>,
}

impl<F: Foresees> Foreseen<F> {
    fn new(of: F) -> Foreseen<F> {
        let work = Work { parts: F::PARTS, ..Work::default() };
        Foreseen { of, ends: Ends::default(), work, at_work: HashMap::new() }
    }
}

impl<F: Foresees> Medium for Foreseen<F> {
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        self.work.count(&request);
        let (over_at, at_work) = self.of.take(now, &request);
        self.at_work.insert(id, at_work);
        self.ends.add(over_at, id);
    }

    fn next_at(&self) -> Option<Nanos> {
        self.ends.next_at()
    }

    fn step(&mut self, now: Nanos, over: &mut Vec<u64>) {
        let before = over.len();
        self.ends.take_until(now, over);
        let ended = over[before..].iter().filter_map(|id| self.at_work.remove(id));
        self.work.busy_ns += ended.map(|time| u128::from(time.end - time.start)).sum::<u128>();
    }

    fn work(&self, now: Nanos) -> Work {
        let until_now = |time: &Range<Nanos>| u128::from(time.end.min(now).saturating_sub(time.start));
        Work { busy_ns: self.work.busy_ns + self.at_work.values().map(until_now).sum::<u128>(), ..self.work }
    }
}

/// Requests with a known end.
#[derive(Default)]
struct Ends {
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Ends {
    fn add(&mut self, at: Nanos, id: u64) {
        self.heap.push(Reverse((at, id)));
    }

    fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|end| end.0.0)
    }

    fn take_until(&mut self, now: Nanos, over: &mut Vec<u64>) {
        while let Some(Reverse((_, id))) = self.heap.peek().copied().filter(|end| end.0.0 <= now) {
            self.heap.pop();
            over.push(id);
        }
    }
}
