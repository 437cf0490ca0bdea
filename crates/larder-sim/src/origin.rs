//! What a cache lies before, simulated: a disk, an array of disks, a flash drive or a network volume, and when its requests are over.
//!
//! Role: a [`Profile`] names a medium and its figures; an [`Origin`] is one with a clock. Requests are made by [`Origin::submit`], and
//! the clock goes from event to event, as that of a drive does ([`ssd::time`](crate::ssd::time)): so both can follow one clock.
//!
//! | file | what is there |
//! |---|---|
//! | [`profile`] | named origins: their figures, where these come from, and the ranges that they may have |
//! | [`platter`] | where a disk's bytes lie, seeks, rotation |
//! | [`disk`] | a rotating disk: its queue, its arm, reading ahead |
//! | [`raid`] | disks as RAID 5 or RAID 6: what a request is on the disks |
//! | [`flash`] | a SATA or NVMe drive by its data sheet |
//! | [`network`] | a volume behind a network, with caps |
//!
//! **No origin here has a volatile write cache**: a write is over when the medium has it, and a flush finds nothing to wait for but
//! its command. Arrays and enterprise disks run so; a flash drive's own buffer is in its write latency.
//!
//! Invariants: time does not go back; a request is over once, and not before its parts; what happens at the same time happens in the
//! order in which it was asked for; the same requests take the same time. There is no randomness: a disk's angle is that of the clock.
//!
//! What it does not do: hold data, fail, remap sectors, run degraded or rebuild.

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

use crate::ssd::{
    geometry::OutOfRange,
    time::{Nanos, latency::Latencies},
};
use profile::{Figures, Profile};

/// What is asked of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Bytes are read.
    Read,
    /// Bytes are written, and durable with that.
    Write,
    /// Bytes are of no more use.
    Trim,
    /// What was written is to be durable.
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub kind: Kind,
    /// From this byte on; of no meaning for a flush.
    pub offset: u64,
    /// So many bytes; of no meaning for a flush.
    pub len: u64,
}

/// What the parts of an origin did.
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
    /// How long parts were at work, summed over [`Work::parts`].
    pub busy_ns: u128,
    /// Parts that can be at work at the same time: arms, channels, or the one gate of a network volume.
    pub parts: u64,
}

impl Work {
    /// With another's.
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

    /// What was done since the work was `before`.
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

    /// The share of a time during which its parts were at work; 0 of no time.
    pub fn utilisation(&self, elapsed: Nanos) -> f64 {
        let whole = u128::from(elapsed) * u128::from(self.parts);
        if whole == 0 { 0.0 } else { self.busy_ns as f64 / whole as f64 }
    }

    fn count(&mut self, request: &Request) {
        match request.kind {
            Kind::Read => {
                self.reads += 1;
                self.bytes_read += request.len;
            }
            Kind::Write => {
                self.writes += 1;
                self.bytes_written += request.len;
            }
            Kind::Trim | Kind::Flush => {}
        }
    }
}

/// What answers requests: it has no clock of its own, and is told the time by whoever has it.
trait Medium: Send {
    /// Takes a request now; `id` is the caller's name for it. All that happens until now has happened.
    fn submit(&mut self, now: Nanos, id: u64, request: Request);

    /// When something happens next, if nothing more is asked.
    fn next_at(&self) -> Option<Nanos>;

    /// Lets happen what happens at `now`, which is [`Medium::next_at`]; those that are over by it.
    fn step(&mut self, now: Nanos, over: &mut Vec<u64>);

    /// What was done until now. All that happens until then has happened.
    fn work(&self, now: Nanos) -> Work;
}

/// How long requests took, so far.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// When the last request was over.
    pub last_ns: Nanos,
}

/// An origin with a clock; see the module.
pub struct Origin {
    medium: Box<dyn Medium>,
    size_bytes: u64,
    now: Nanos,
    /// What is not over: what it is, and when it was asked for.
    pending: HashMap<u64, (Kind, Nanos)>,
    next_request: u64,
    over: VecDeque<(u64, Nanos)>,
    times: Times,
}

impl Origin {
    /// One of so many bytes. A disk's arm sweeps all of its platter over them: a small origin is no part of a large disk, but a disk
    /// with few tracks.
    ///
    /// # Errors
    /// The first figure of the profile that cannot hold, or an origin of no bytes.
    pub fn new(profile: &Profile, size_bytes: u64) -> Result<Origin, OutOfRange> {
        profile.check()?;
        if !(1..=profile::SIZE_BYTES_MAX).contains(&size_bytes) {
            let range = format!("from 1 to {}", profile::SIZE_BYTES_MAX);
            return Err(OutOfRange::new("size_bytes", size_bytes, range));
        }
        let medium: Box<dyn Medium> = match profile.figures {
            Figures::Disk(figures) => Box::new(disk::Disk::new(figures, size_bytes)),
            Figures::Raid(figures) => Box::new(raid::Raid::new(figures, size_bytes)),
            Figures::Flash(figures) => Box::new(Foreseen::new(flash::Flash::new(figures))),
            Figures::Network(figures) => Box::new(Foreseen::new(network::Network::new(figures))),
        };
        Ok(Origin {
            medium,
            size_bytes,
            now: 0,
            pending: HashMap::new(),
            next_request: 0,
            over: VecDeque::new(),
            times: Times::default(),
        })
    }

    /// What time it is.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// How long what took, so far.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// What its parts did, so far.
    pub fn work(&self) -> Work {
        self.work_until(self.now)
    }

    /// What its parts did until `at`, before which all has happened that happens.
    pub fn work_until(&self, at: Nanos) -> Work {
        self.medium.work(at)
    }

    /// Requests that are not over.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Makes a request now; its number.
    ///
    /// # Panics
    /// For bytes that the origin has not, or none at all.
    pub fn submit(&mut self, request: Request) -> u64 {
        let end = request.offset.checked_add(request.len);
        let fits = request.len > 0 && end.is_some_and(|end| end <= self.size_bytes);
        assert!(request.kind == Kind::Flush || fits, "{request:?} of an origin of {} bytes", self.size_bytes);
        let number = self.next_request;
        self.next_request += 1;
        self.pending.insert(number, (request.kind, self.now));
        self.medium.submit(self.now, number, request);
        number
    }

    /// When something happens next, if anything does without another request.
    pub fn next_event_at(&self) -> Option<Nanos> {
        self.medium.next_at()
    }

    /// A request that is over, and when it was.
    pub fn take_over(&mut self) -> Option<(u64, Nanos)> {
        self.over.pop_front()
    }

    /// Lets the next thing happen. False where nothing will.
    pub fn step(&mut self) -> bool {
        let Some(at) = self.medium.next_at() else { return false };
        self.now = at;
        let mut over = Vec::new();
        self.medium.step(at, &mut over);
        for number in over {
            let Some((kind, asked_at)) = self.pending.remove(&number) else { continue };
            match kind {
                Kind::Read => self.times.reads.add(at - asked_at),
                Kind::Write => self.times.writes.add(at - asked_at),
                Kind::Trim | Kind::Flush => {}
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

    /// Lets everything that is under way end.
    pub fn finish(&mut self) {
        while self.step() {}
    }
}

/// How long bytes take at a rate, in nanoseconds.
fn transfer_ns(bytes: u64, bytes_per_second: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second)) as Nanos
}

/// What knows of each request when it is over as soon as it is asked for.
trait Foresees: Send {
    /// Parts that can be at work at the same time.
    const PARTS: u64;

    /// Takes a request now: when it is over, and from when until when it has a part at work, which is no later.
    fn take(&mut self, now: Nanos, request: &Request) -> (Nanos, Range<Nanos>);
}

/// A medium of such.
struct Foreseen<F> {
    of: F,
    ends: Ends,
    work: Work,
    /// When parts are at work for what is not over.
    at_work: HashMap<u64, Range<Nanos>>,
}

impl<F: Foresees> Foreseen<F> {
    fn new(of: F) -> Foreseen<F> {
        let work = Work { parts: F::PARTS, ..Work::default() };
        Foreseen { of, ends: Ends::default(), work, at_work: HashMap::new() }
    }
}

impl<F: Foresees> Medium for Foreseen<F> {
    fn submit(&mut self, now: Nanos, id: u64, request: Request) {
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

/// Requests of which it is known when they are over.
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
