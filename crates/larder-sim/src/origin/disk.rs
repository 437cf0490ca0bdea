//! A rotating disk: one arm with a queue, and a buffer into which it reads ahead. There is no write
//! cache.
//!
//! Discipline: among the first [`DiskFigures::queue_depth`] waiting requests the arm takes the one
//! that it reaches first (shortest positioning time first). If the oldest has waited for longer
//! than [`DiskFigures::age_max_ns`], that goes first. A depth of 1 is first come, first served. The
//! arm ends each request that it has begun.
//!
//! After a read, and while no request waits, the head reads on into the buffer, so a stream with
//! pauses goes at the disk's rate. The buffer remembers the last [`SEGMENTS_MAX`] ranges. A write
//! drops those that it meets.
//!
//! Invariants: one transfer at a time; each request is over once.
//!
//! It does not settle longer for writes than for reads, or keep writes back.

use std::collections::VecDeque;

use super::{
    medium::{Ends, Medium, transfer_ns},
    platter::Platter,
    profile::DiskFigures,
    request::{OriginRequest, RequestKind, Work},
};
use larder_ssd::time::Nanos;

/// Ranges that the buffer remembers.
pub const SEGMENTS_MAX: usize = 16;

/// A request that waits for the arm.
struct WaitingRequest {
    since: Nanos,
    id: u64,
    request: OriginRequest,
    /// Its beginning on the spiral.
    turns: f64,
}

struct Job {
    ends: Nanos,
    id: u64,
    request: OriginRequest,
}

/// The head's way behind a read, on which it reads ahead.
struct Ahead {
    /// The first byte in the buffer, which reaches to the head.
    from: u64,
    /// The byte where the head was at `since`.
    head: u64,
    since: Nanos,
    /// The byte where it stops.
    until: u64,
}

/// See the module.
pub struct DiskModel {
    figures: DiskFigures,
    platter: Platter,
    size_bytes: u64,
    /// The byte under the head when the last job ended.
    head: u64,
    job: Option<Job>,
    queue: VecDeque<WaitingRequest>,
    ahead: Option<Ahead>,
    segments: VecDeque<(u64, u64)>,
    ends: Ends,
    work: Work,
}

impl DiskModel {
    /// Makes an idle disk of so many bytes, its head at the outer edge.
    pub fn new(figures: DiskFigures, size_bytes: u64) -> DiskModel {
        DiskModel {
            figures,
            platter: Platter::new(&figures, size_bytes),
            size_bytes,
            head: 0,
            job: None,
            queue: VecDeque::new(),
            ahead: None,
            segments: VecDeque::new(),
            ends: Ends::default(),
            work: Work { parts: 1, ..Work::default() },
        }
    }

    /// Returns the end of a request that needs the interface alone.
    fn over_from_buffer(&self, now: Nanos, len: u64) -> Nanos {
        now + self.figures.command_ns + transfer_ns(len, self.figures.interface_bytes_per_second)
    }

    fn wait(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        let turns = self.platter.turns_to(request.offset);
        self.queue.push_back(WaitingRequest { since: now, id, request, turns });
    }

    fn read(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        let (from, to) = (request.offset, request.offset + request.len);
        if self.segments.iter().any(|&(start, end)| start <= from && to <= end) {
            return self.ends.add(self.over_from_buffer(now, request.len), id);
        }
        let Some(ahead) = &mut self.ahead else { return self.wait(now, id, request) };
        let reached = reached(&self.platter, ahead, now);
        if !(ahead.from..=reached).contains(&from) || reached == ahead.until {
            // Elsewhere, or the head has stopped: the buffer serves its part of a stream, the arm
            // the rest.
            let mut rest = request;
            if (ahead.from..reached).contains(&from) {
                (rest.offset, rest.len) = (reached.min(to), to.saturating_sub(reached));
            }
            if rest.len == 0 {
                return self.ends.add(self.over_from_buffer(now, request.len), id);
            }
            return self.wait(now, id, rest);
        }
        ahead.until = (to + self.figures.read_ahead_bytes).min(self.size_bytes);
        if to <= reached {
            return self.ends.add(self.over_from_buffer(now, request.len), id);
        }
        // The head is on its way through the range: wait for it.
        let turns = |byte| self.platter.turns_to(byte);
        let ends = ahead.since + self.platter.sweep_ns(turns(ahead.head), turns(to));
        let (start, ends) = (ahead.from, ends.max(self.over_from_buffer(now, 0)));
        self.ahead = None;
        self.remember(start, from);
        self.begin(now, Job { ends, id, request });
    }

    fn begin(&mut self, now: Nanos, job: Job) {
        self.work.busy_ns += u128::from(job.ends - now);
        self.job = Some(job);
    }

    fn remember(&mut self, from: u64, to: u64) {
        if from < to {
            self.segments.push_back((from, to));
        }
        if self.segments.len() > SEGMENTS_MAX {
            self.segments.pop_front();
        }
    }

    fn write(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        let (from, to) = (request.offset, request.offset + request.len);
        self.segments.retain(|&(start, end)| end <= from || to <= start);
        if self.ahead.as_ref().is_some_and(|ahead| ahead.from < to && from < ahead.until) {
            self.ahead = None;
        }
        self.wait(now, id, request);
    }

    /// Sets the arm to work, if there is work for it.
    fn start(&mut self, now: Nanos) {
        if self.queue.is_empty() {
            return;
        }
        if let Some(ahead) = self.ahead.take() {
            self.head = reached(&self.platter, &ahead, now);
            self.remember(ahead.from, self.head);
        }
        let is_late = self.queue.front().is_some_and(|first| now - first.since > self.figures.age_max_ns);
        let depth = if is_late { 1 } else { self.figures.queue_depth as usize };
        let head = self.platter.turns_to(self.head);
        let times = self.queue.iter().take(depth).map(|waiting| self.platter.position_ns(now, head, waiting.turns));
        let Some((at, position)) = times.enumerate().min_by_key(|&(_, time)| time) else { return };
        let Some(WaitingRequest { id, request, turns, .. }) = self.queue.remove(at) else { return };
        let sweep = self.platter.sweep_ns(turns, self.platter.turns_to(request.offset + request.len));
        self.begin(now, Job { ends: now + position + sweep, id, request });
    }

    fn end(&mut self, job: &Job) {
        let OriginRequest { kind, offset, len } = job.request;
        self.head = offset + len;
        match kind {
            RequestKind::Read => {
                let until = (self.head + self.figures.read_ahead_bytes).min(self.size_bytes);
                self.ahead = Some(Ahead { from: offset, head: self.head, since: job.ends, until });
                self.ends.add(job.ends, job.id);
            }
            _ => self.ends.add(job.ends + self.figures.command_ns, job.id),
        }
    }
}

/// Returns the byte that a head has reached in reading ahead.
fn reached(platter: &Platter, ahead: &Ahead, now: Nanos) -> u64 {
    let turns = platter.turns_to(ahead.head) + (now - ahead.since.min(now)) as f64 / platter.turn_ns() as f64;
    platter.byte_at(turns).clamp(ahead.head, ahead.until)
}

impl Medium for DiskModel {
    fn submit(&mut self, now: Nanos, id: u64, request: OriginRequest) {
        self.work.count(&request);
        match request.kind {
            RequestKind::Read => self.read(now, id, request),
            RequestKind::Write => self.write(now, id, request),
            RequestKind::Trim | RequestKind::Flush => self.ends.add(now + self.figures.command_ns, id),
        }
        if self.job.is_none() {
            self.start(now);
        }
    }

    fn next_at(&self) -> Option<Nanos> {
        let job = self.job.as_ref().map(|job| job.ends);
        job.into_iter().chain(self.ends.next_at()).min()
    }

    fn step(&mut self, now: Nanos, over: &mut Vec<u64>) {
        if let Some(job) = self.job.take_if(|job| job.ends <= now) {
            self.end(&job);
            self.start(now);
        }
        self.ends.take_until(now, over);
    }

    fn work(&self, now: Nanos) -> Work {
        let left = self.job.as_ref().map_or(0, |job| job.ends.saturating_sub(now));
        Work { busy_ns: self.work.busy_ns - u128::from(left), ..self.work }
    }
}
