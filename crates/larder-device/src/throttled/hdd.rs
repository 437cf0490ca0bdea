//! A rotating disk: an arm, a platter turned by the clock, a read-ahead buffer and a write cache.
//!
//! The device's bytes lie on one spiral from the outer to the inner edge. A small device is a disk
//! of few tracks, so that its seeks are as long as a large disk's. Track skew is perfect: a
//! sequential transfer never waits. The arm takes the request that it reaches first among the first
//! [`NCQ_DEPTH`] in the queue, unless one has waited for [`AGE_MAX`]. Writes end in the cache. The
//! cache drains in ascending order around the disk when the arm has been idle for
//! [`DRAIN_AFTER_IDLE`]. It drains in turn with the queue when it is filling up or a flush waits.
//!
//! Invariants: each request ends once. A flush ends only after the drain of every write that ended
//! before it.
//!
//! It does not fail, remap sectors, or settle longer for writes than for reads.

use super::model::{Model, Nanos, RequestKind, TimedRequest, transfer};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

const NCQ_DEPTH: usize = 32;
const AGE_MAX: Nanos = 1_000_000_000;
const DRAIN_AFTER_IDLE: Nanos = 2_000_000;
/// Ranges that the read buffer remembers.
const SEGMENTS_MAX: usize = 16;
/// The part of a turn below which a missed whole turn is rounding.
const ANGLE_ROUNDING: f64 = 1e-5;

/// The figures of a rotating disk: times in nanoseconds, rates in bytes a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct HddFigures {
    pub(super) turn: Nanos,
    pub(super) seek_to_next_track: Nanos,
    pub(super) seek_average: Nanos,
    pub(super) rate_outer: u64,
    pub(super) rate_inner: u64,
    pub(super) command: Nanos,
    pub(super) interface_rate: u64,
    pub(super) read_ahead_bytes: u64,
    pub(super) write_cache_bytes: u64,
}

/// A 3.5-inch SATA disk of 7200 turns a minute.
///
/// Average seek of 8.5 ms and latency of 4.17 ms as in Hitachi's specification of the Deskstar
/// 7K1000.C, table 9. Typical of the class: 0.8 ms to the next track, 180 MB/s outside falling to
/// 100 MB/s inside, 0.1 ms a command. The buffer has 16 MiB for writes; 2 MiB are read ahead.
pub(super) const HDD_7200: HddFigures = HddFigures {
    turn: 60_000_000_000 / 7200,
    seek_to_next_track: 800_000,
    seek_average: 8_500_000,
    rate_outer: 180_000_000,
    rate_inner: 100_000_000,
    command: 100_000,
    interface_rate: 550_000_000,
    read_ahead_bytes: 2 << 20,
    write_cache_bytes: 16 << 20,
};

/// The places of bytes: a track holds fewer of them the further in it is.
struct Platter {
    turn: Nanos,
    /// Bytes of the outermost track.
    track_bytes: f64,
    /// Bytes by which tracks shrink for each byte further in.
    shrink: f64,
    tracks: f64,
    seek_least: f64,
    seek_slope: f64,
}

impl Platter {
    fn new(figures: &HddFigures, size_bytes: u64) -> Platter {
        let turn_seconds = figures.turn as f64 / 1e9;
        let track_bytes = figures.rate_outer as f64 * turn_seconds;
        let shrink = (track_bytes - figures.rate_inner as f64 * turn_seconds) / size_bytes.max(1) as f64;
        // The mean of sqrt(|x - y|) over two random places is 8/15.
        let seek_least = figures.seek_to_next_track as f64;
        let seek_slope = (figures.seek_average as f64 - seek_least) * 15.0 / 8.0;
        let mut platter = Platter { turn: figures.turn, track_bytes, shrink, tracks: 1.0, seek_least, seek_slope };
        platter.tracks = platter.turns_to(size_bytes).max(1.0);
        platter
    }

    /// Returns the turns of the spiral from the outer edge to a byte.
    fn turns_to(&self, offset: u64) -> f64 {
        -(-self.shrink * offset as f64 / self.track_bytes).ln_1p() / self.shrink
    }

    /// Returns the byte that lies this many turns from the outer edge.
    fn byte_at(&self, turns: f64) -> u64 {
        (-(-self.shrink * turns).exp_m1() * self.track_bytes / self.shrink) as u64
    }

    fn sweep(&self, from: u64, to: u64) -> Nanos {
        ((self.turns_to(to) - self.turns_to(from)) * self.turn as f64) as Nanos
    }

    /// Returns the time from `now` until a head over byte `from` is over byte `to`.
    fn position(&self, now: Nanos, from: u64, to: u64) -> Nanos {
        let (from, to) = (self.turns_to(from), self.turns_to(to));
        let distance = (from - to).abs();
        let seek = if from.floor() == to.floor() || distance < ANGLE_ROUNDING {
            0.0
        } else {
            self.seek_least + self.seek_slope * (distance / self.tracks).min(1.0).sqrt()
        };
        let arrival = (now % self.turn) as f64 + seek;
        let wait = (to - arrival / self.turn as f64).rem_euclid(1.0);
        let wait = if wait > 1.0 - ANGLE_ROUNDING { 0.0 } else { wait };
        (seek + wait * self.turn as f64) as Nanos
    }
}

#[derive(Clone, Copy)]
enum Work {
    Media(TimedRequest),
    Drain { key: (u64, u64), len: u64 },
}

struct ArmJob {
    ends: Nanos,
    work: Work,
}

/// The read-ahead: the head reads on behind a read while it is idle.
struct Ahead {
    /// The buffer holds the bytes between this one and the head.
    from: u64,
    /// The head was here at `since`.
    head: u64,
    since: Nanos,
    /// The head stops here.
    until: u64,
}

pub(super) struct Hdd {
    figures: HddFigures,
    platter: Platter,
    size_bytes: u64,
    /// Byte under the head when the last job ended.
    head: u64,
    job: Option<ArmJob>,
    last_was_drain: bool,
    idle_since: Nanos,
    /// Requests for the arm, each with its arrival.
    queue: VecDeque<(Nanos, TimedRequest)>,
    /// Writes for which the cache has no room yet.
    blocked: VecDeque<TimedRequest>,
    flushes: VecDeque<(u64, u64)>,
    /// The write cache: by offset and number, the length.
    dirty: BTreeMap<(u64, u64), u64>,
    dirty_numbers: BTreeSet<u64>,
    dirty_bytes: u64,
    next_number: u64,
    ahead: Option<Ahead>,
    segments: VecDeque<(u64, u64)>,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Hdd {
    pub(super) fn new(figures: HddFigures, size_bytes: u64) -> Hdd {
        Hdd {
            figures,
            platter: Platter::new(&figures, size_bytes),
            size_bytes,
            head: 0,
            job: None,
            last_was_drain: false,
            idle_since: 0,
            queue: VecDeque::new(),
            blocked: VecDeque::new(),
            flushes: VecDeque::new(),
            dirty: BTreeMap::new(),
            dirty_numbers: BTreeSet::new(),
            dirty_bytes: 0,
            next_number: 0,
            ahead: None,
            segments: VecDeque::new(),
            ends: BinaryHeap::new(),
        }
    }

    fn end(&mut self, at: Nanos, id: u64) {
        self.ends.push(Reverse((at, id)));
    }

    /// Returns the end of a request that needs the interface only.
    fn over_from_buffer(&self, now: Nanos, len: u64) -> Nanos {
        now + self.figures.command + transfer(len, self.figures.interface_rate)
    }

    fn read(&mut self, now: Nanos, request: TimedRequest) {
        let (from, to) = (request.offset, request.offset + request.len);
        let buffered = self.segments.iter().any(|&(start, end)| start <= from && to <= end)
            || self.dirty.range(..=(from, u64::MAX)).next_back().is_some_and(|(key, len)| to <= key.0 + len);
        if buffered {
            return self.end(self.over_from_buffer(now, request.len), request.id);
        }
        let Some(ahead) = &mut self.ahead else { return self.queue.push_back((now, request)) };
        let reached = reached(&self.platter, ahead, now);
        if !(ahead.from..=reached).contains(&from) || reached == ahead.until {
            // Elsewhere, or the head has stopped: the buffer of a stopped head serves its part of a
            // stream.
            let mut rest = request;
            if (ahead.from..reached).contains(&from) {
                (rest.offset, rest.len) = (reached.min(to), to.saturating_sub(reached));
            }
            if rest.len == 0 {
                return self.end(self.over_from_buffer(now, request.len), request.id);
            }
            return self.queue.push_back((now, rest));
        }
        ahead.until = (to + self.figures.read_ahead_bytes).min(self.size_bytes);
        if to <= reached {
            return self.end(self.over_from_buffer(now, request.len), request.id);
        }
        // The head is on its way through the range: wait for it.
        let ends = ahead.since + self.platter.sweep(ahead.head, to);
        let start = ahead.from;
        self.ahead = None;
        self.remember(start, from);
        self.job = Some(ArmJob { ends: ends.max(self.over_from_buffer(now, 0)), work: Work::Media(request) });
    }

    fn remember(&mut self, from: u64, to: u64) {
        if from < to {
            self.segments.push_back((from, to));
        }
        if self.segments.len() > SEGMENTS_MAX {
            self.segments.pop_front();
        }
    }

    fn write(&mut self, now: Nanos, request: TimedRequest) {
        let (from, to) = (request.offset, request.offset + request.len);
        self.segments.retain(|&(start, end)| end <= from || to <= start);
        if self.ahead.as_ref().is_some_and(|ahead| ahead.from < to && from < ahead.until) {
            self.ahead = None;
        }
        if request.kind == (RequestKind::Write { fua: true }) {
            self.queue.push_back((now, request));
        } else if self.blocked.is_empty() && self.has_room(request.len) {
            self.absorb(now, request);
        } else {
            self.blocked.push_back(request);
        }
    }

    fn has_room(&self, len: u64) -> bool {
        self.dirty_bytes == 0 || self.dirty_bytes + len <= self.figures.write_cache_bytes
    }

    fn absorb(&mut self, now: Nanos, request: TimedRequest) {
        self.end(self.over_from_buffer(now, request.len), request.id);
        let same = self.dirty.range((request.offset, 0)..=(request.offset, u64::MAX));
        let drained = match &self.job {
            Some(ArmJob { work: Work::Drain { key, .. }, .. }) => Some(*key),
            _ => None,
        };
        if same.clone().any(|(key, &len)| len == request.len && Some(*key) != drained) {
            return;
        }
        self.dirty.insert((request.offset, self.next_number), request.len);
        self.dirty_numbers.insert(self.next_number);
        self.dirty_bytes += request.len;
        self.next_number += 1;
    }

    /// Sets the arm to work, if there is any.
    fn start(&mut self, now: Nanos) {
        let pressed = !self.flushes.is_empty()
            || !self.blocked.is_empty()
            || self.dirty_bytes > self.figures.write_cache_bytes / 4 * 3;
        let drain_now = pressed && !self.dirty.is_empty() && !self.last_was_drain;
        if !self.queue.is_empty() && !drain_now {
            self.start_queued(now);
        } else if !self.dirty.is_empty() && (pressed || now >= self.idle_since + DRAIN_AFTER_IDLE) {
            self.start_drain(now);
        }
    }

    fn leave(&mut self, now: Nanos) {
        if let Some(ahead) = self.ahead.take() {
            let reached = reached(&self.platter, &ahead, now);
            self.head = reached;
            self.remember(ahead.from, reached);
        }
    }

    fn start_queued(&mut self, now: Nanos) {
        self.leave(now);
        let oldest_waits = self.queue.front().is_some_and(|(arrival, _)| now.saturating_sub(*arrival) > AGE_MAX);
        let depth = if oldest_waits { 1 } else { NCQ_DEPTH };
        let (head, platter) = (self.head, &self.platter);
        let times = self.queue.iter().take(depth).map(|(_, request)| platter.position(now, head, request.offset));
        let Some((index, time)) = times.enumerate().min_by_key(|&(_, time)| time) else { return };
        let Some((_, request)) = self.queue.remove(index) else { return };
        let ends = now + time.max(1) + self.platter.sweep(request.offset, request.offset + request.len);
        self.last_was_drain = false;
        self.job = Some(ArmJob { ends, work: Work::Media(request) });
    }

    fn start_drain(&mut self, now: Nanos) {
        self.leave(now);
        // A flush does not wait for later requests.
        let newest = self.flushes.front().map_or(u64::MAX, |flush| flush.1);
        let old_enough = |entry: &(&(u64, u64), &u64)| entry.0.1 <= newest;
        let next = self.dirty.range((self.head, 0)..).find(old_enough).or_else(|| self.dirty.iter().find(old_enough));
        let Some((&key, &len)) = next else { return };
        let ends = now + self.platter.position(now, self.head, key.0).max(1) + self.platter.sweep(key.0, key.0 + len);
        self.last_was_drain = true;
        self.job = Some(ArmJob { ends, work: Work::Drain { key, len } });
    }

    fn finish(&mut self, job: ArmJob) {
        self.idle_since = job.ends;
        match job.work {
            Work::Media(request) => {
                self.head = request.offset + request.len;
                let overhead = if request.kind == RequestKind::Read { 0 } else { self.figures.command };
                self.end(job.ends + overhead, request.id);
                if request.kind == RequestKind::Read {
                    let until = (self.head + self.figures.read_ahead_bytes).min(self.size_bytes);
                    self.ahead = Some(Ahead { from: request.offset, head: self.head, since: job.ends, until });
                }
            }
            Work::Drain { key, len } => {
                self.head = key.0 + len;
                self.dirty.remove(&key);
                self.dirty_numbers.remove(&key.1);
                self.dirty_bytes -= len;
                self.end_flushes(job.ends);
                while let Some(request) = self.blocked.front().copied().filter(|request| self.has_room(request.len)) {
                    self.blocked.pop_front();
                    self.absorb(job.ends, request);
                }
            }
        }
    }

    fn end_flushes(&mut self, now: Nanos) {
        let oldest = self.dirty_numbers.first().copied().unwrap_or(u64::MAX);
        while let Some((id, _)) = self.flushes.front().copied().filter(|flush| flush.1 < oldest) {
            self.flushes.pop_front();
            self.end(now + self.figures.command, id);
        }
    }

    /// Returns the moment when an idle arm turns to the write cache.
    fn drain_due(&self) -> Option<Nanos> {
        (self.job.is_none() && !self.dirty.is_empty()).then_some(self.idle_since + DRAIN_AFTER_IDLE)
    }
}

/// Returns the byte that a head which reads ahead has reached.
fn reached(platter: &Platter, ahead: &Ahead, now: Nanos) -> u64 {
    let turns = platter.turns_to(ahead.head) + (now - ahead.since.min(now)) as f64 / platter.turn as f64;
    platter.byte_at(turns).clamp(ahead.head, ahead.until)
}

impl Model for Hdd {
    fn submit(&mut self, now: Nanos, request: TimedRequest) {
        self.idle_since = self.idle_since.max(now);
        match request.kind {
            RequestKind::Read => self.read(now, request),
            RequestKind::Write { .. } => self.write(now, request),
            RequestKind::Flush => {
                // Number of the newest write in the cache: every write that ended has one.
                match self.next_number.checked_sub(1) {
                    Some(newest) => self.flushes.push_back((request.id, newest)),
                    None => self.end(now + self.figures.command, request.id),
                }
                self.end_flushes(now);
            }
            RequestKind::Discard => self.end(now + self.figures.command, request.id),
        }
        if self.job.is_none() {
            self.start(now);
        }
    }

    fn next_due(&self) -> Option<Nanos> {
        let job = self.job.as_ref().map(|job| job.ends);
        let end = self.ends.peek().map(|end| end.0.0);
        [job, end, self.drain_due()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, over: &mut Vec<(Nanos, u64)>) {
        loop {
            if let Some(job) = self.job.take_if(|job| job.ends <= now) {
                let ended = job.ends;
                self.finish(job);
                self.start(ended);
            } else if let Some(due) = self.drain_due().filter(|&due| due <= now) {
                self.start(due);
            } else {
                break;
            }
        }
        while let Some(&Reverse(end)) = self.ends.peek().filter(|end| end.0.0 <= now) {
            over.push(end);
            self.ends.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const SIZE: u64 = 1 << 40;
    const READ: TimedRequest = TimedRequest { id: 0, kind: RequestKind::Read, offset: 0, len: 4096 };

    /// Runs the model until nothing waits. Returns the end of each request.
    fn run(disk: &mut Hdd) -> Vec<(Nanos, u64)> {
        let mut over = Vec::new();
        while let Some(due) = disk.next_due() {
            disk.advance(due, &mut over);
        }
        over
    }

    #[test]
    fn bytes_and_turns_are_one_spiral() {
        let platter = Platter::new(&HDD_7200, SIZE);
        for offset in [0, 1 << 20, 123 << 30, SIZE - 512] {
            assert!(platter.byte_at(platter.turns_to(offset)).abs_diff(offset) < 64 << 10, "{offset}");
        }
        let outer = platter.sweep(0, 180_000_000);
        let inner = platter.sweep(SIZE - 100_000_000, SIZE);
        assert!(outer.abs_diff(1_000_000_000) < 1_000_000 && inner.abs_diff(1_000_000_000) < 1_000_000);
    }

    #[test]
    fn seeks_and_waits_have_their_means() {
        let (platter, mut rng) = (Platter::new(&HDD_7200, SIZE), Rng::new(6));
        let times: Vec<Nanos> =
            (0..20_000).map(|_| platter.position(rng.below(1 << 40), rng.below(SIZE), rng.below(SIZE))).collect();
        let mean = times.iter().sum::<Nanos>() / times.len() as u64;
        assert!(mean.abs_diff(8_500_000 + 4_166_667) < 100_000, "{mean}");
        assert!(times.iter().all(|&time| time < 26_000_000));
    }

    #[test]
    fn the_arm_takes_the_nearest_and_starves_no_request() {
        let mut disk = Hdd::new(HDD_7200, SIZE);
        disk.submit(0, READ);
        disk.submit(0, TimedRequest { id: 1, offset: SIZE - 4096, ..READ });
        // An endless stream near the head would hold the far request for ever.
        let (mut over, mut next, mut due) = (Vec::new(), 2, 0);
        while over.iter().all(|&(_, id)| id != 1) {
            disk.advance(due, &mut over);
            while next < over.len() as u64 + 8 {
                disk.submit(due, TimedRequest { id: next, offset: next << 20, len: 1 << 20, ..READ });
                next += 1;
            }
            due = disk.next_due().expect("a request waits");
        }
        let (at, _) = over[over.len() - 1];
        assert!((AGE_MAX..AGE_MAX + 100_000_000).contains(&at), "{at}");
    }

    #[test]
    fn a_stream_with_pauses_is_read_ahead() {
        let mut disk = Hdd::new(HDD_7200, SIZE);
        disk.submit(0, READ);
        let (mut now, _) = run(&mut disk)[0];
        for id in 1..100 {
            now += 1_000_000;
            disk.advance(now, &mut Vec::new());
            disk.submit(now, TimedRequest { id, offset: id * 4096, ..READ });
            let over = run(&mut disk);
            assert!(over.len() == 1 && over[0].0 - now < 200_000, "{over:?} from {now}");
        }
    }

    #[test]
    fn a_flush_does_not_wait_for_later_writes() {
        let mut disk = Hdd::new(HDD_7200, SIZE);
        let write = |id, offset| TimedRequest { id, kind: RequestKind::Write { fua: false }, offset, len: 4096 };
        disk.submit(0, write(0, 1 << 30));
        disk.submit(0, TimedRequest { id: 1, kind: RequestKind::Flush, offset: 0, len: 0 });
        for id in 2..500 {
            disk.submit(0, write(id, (id * 7919 % 1000) << 30));
        }
        let over = run(&mut disk);
        let flush = over.iter().find(|end| end.1 == 1).expect("over").0;
        assert!(flush < 40_000_000, "{flush}");
        assert_eq!(over.len(), 500);
    }
}
