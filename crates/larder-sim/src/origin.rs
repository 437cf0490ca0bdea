//! The simulated origin of a cache, with time: a disk, an array, a flash drive or a network volume.
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
//! | `request.rs` | requests, and the work for them |
//! | `medium.rs` | media that answer requests |
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
mod medium;
pub mod network;
pub mod platter;
pub mod profile;
pub mod raid;
mod request;

use std::collections::VecDeque;

use hashbrown::HashMap;

use larder_ssd::{
    geometry::OutOfRange,
    time::{Nanos, latency::Latencies},
};
use medium::{Foreseen, Medium};
use profile::{OriginFigures, OriginProfile};
pub use request::{OriginRequest, RequestKind, Work};

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
