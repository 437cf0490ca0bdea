//! The results of a trace on a cache with time.
//!
//! Invariants: counts are of requests after the warm-up; the drive's own are of those that were
//! over after it. Time is from the making of the first of them to the answer of the last.
//!
//! It does not know the waits behind its times.

use larder_trace::Op;

use crate::{origin::Work, tally::Tally};
use larder_ssd::time::{
    Nanos,
    latency::{Latencies, OperationTimes},
};

/// The clocks and meters at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub now: Nanos,
    /// The time for which cells were at work, summed over planes, and the number of planes.
    pub drive: Option<(u128, u32)>,
    /// Bytes of the drive that the cache wrote, and all that were programmed.
    pub bytes: (u64, u64),
    pub origin: Work,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TimedFigures {
    /// Reads, each a request of the trace.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// Chunks read and written, and those that hit.
    pub tally: Tally,
    /// The time from the first request to the answer of the last.
    pub elapsed_ns: Nanos,
    /// The drive's times for the cache's requests. None without a drive.
    pub drive: Option<OperationTimes>,
    /// The mean share of the time in which the drive's planes were at work, from 0 to 1. None
    /// without a drive.
    pub drive_utilisation: Option<f64>,
    /// Bytes that the drive programmed for each that the cache wrote. None without a drive or a
    /// write.
    pub write_amplification: Option<f64>,
    /// The share of the time in which the origin's parts were at work, its disks for example.
    pub origin_utilisation: f64,
    /// The work of the origin's parts.
    pub origin: Work,
    began: Marks,
}

impl TimedFigures {
    /// Returns the reads and writes a second; 0 of none.
    pub fn iops(&self) -> f64 {
        let requests = self.reads.count() + self.writes.count();
        if self.elapsed_ns == 0 { 0.0 } else { requests as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    pub(super) fn begin(&mut self, marks: Marks) {
        *self = TimedFigures { began: marks, ..TimedFigures::default() };
    }

    pub(super) fn answered(&mut self, op: Op, took: Nanos) {
        match op {
            Op::Read => self.reads.add(took),
            Op::Write => self.writes.add(took),
            Op::Flush => self.flushes.add(took),
            Op::Trim => {}
        }
    }

    pub(super) fn end(&mut self, marks: &Marks) {
        self.elapsed_ns = marks.now - self.began.now;
        let before = self.began.drive.map_or(0, |(busy, _)| busy);
        self.drive_utilisation = marks.drive.map(|(busy, planes)| {
            let work = Work { busy_ns: busy - before, parts: u64::from(planes), ..Work::default() };
            work.utilisation(self.elapsed_ns)
        });
        let (written, programmed) = (marks.bytes.0 - self.began.bytes.0, marks.bytes.1 - self.began.bytes.1);
        self.write_amplification = (written > 0).then(|| programmed as f64 / written as f64);
        self.origin = marks.origin.since(&self.began.origin);
        self.origin_utilisation = self.origin.utilisation(self.elapsed_ns);
    }
}
