//! A flash drive: channels that read in parallel behind an interface that serves one command at a
//! time.
//!
//! A read takes the flash's latency on the channel that is free first, then its time on the
//! interface. A write takes its time on the interface and a latency into the drive's buffer. The
//! interface's write rate bounds sustained writes.
//!
//! It does not collect garbage, wear out, or slow down when full.

use super::model::{Model, Nanos, RequestKind, TimedRequest, transfer};
use std::{cmp::Reverse, collections::BinaryHeap};

/// The figures of a flash drive: times in nanoseconds, rates in bytes a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct SsdFigures {
    pub(super) read_latency: Nanos,
    pub(super) write_latency: Nanos,
    pub(super) flush_latency: Nanos,
    pub(super) discard_latency: Nanos,
    /// Least time of a command on the interface, which bounds the operations a second.
    pub(super) command: Nanos,
    pub(super) read_rate: u64,
    pub(super) write_rate: u64,
    pub(super) channels: usize,
}

/// A SATA SSD for consumers.
///
/// Figures as in Samsung's data sheet of the 860 EVO: 550 and 520 MB/s. Random 4 KiB reads run at
/// 10,000/s at depth 1 and 98,000/s at depth 32, writes at 42,000/s at depth 1. A flush without
/// power-loss protection takes about a millisecond.
pub(super) const SATA_SSD: SsdFigures = SsdFigures {
    read_latency: 90_000,
    write_latency: 14_000,
    flush_latency: 1_000_000,
    discard_latency: 100_000,
    command: 10_000,
    read_rate: 550_000_000,
    write_rate: 520_000_000,
    channels: 32,
};

/// An NVMe SSD for consumers.
///
/// Figures as in Samsung's data sheet of the 970 EVO: 3,400 and 2,500 MB/s. Random 4 KiB reads run
/// at 15,000/s at depth 1 and 500,000/s at depth 128, writes at 50,000/s at depth 1.
pub(super) const NVME: SsdFigures = SsdFigures {
    read_latency: 66_000,
    write_latency: 18_000,
    flush_latency: 500_000,
    discard_latency: 50_000,
    command: 2_000,
    read_rate: 3_400_000_000,
    write_rate: 2_500_000_000,
    channels: 128,
};

pub(super) struct Ssd {
    figures: SsdFigures,
    /// The free time of each channel.
    channels: BinaryHeap<Reverse<Nanos>>,
    reads_free: Nanos,
    writes_free: Nanos,
    last_write_over: Nanos,
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Ssd {
    pub(super) fn new(figures: SsdFigures) -> Ssd {
        let channels = (0..figures.channels).map(|_| Reverse(0)).collect();
        Ssd { figures, channels, reads_free: 0, writes_free: 0, last_write_over: 0, ends: BinaryHeap::new() }
    }

    fn read(&mut self, now: Nanos, len: u64) -> Nanos {
        let free = self.channels.pop().map_or(0, |free| free.0);
        let flash_over = now.max(free) + self.figures.read_latency;
        self.channels.push(Reverse(flash_over));
        self.reads_free =
            flash_over.max(self.reads_free) + self.figures.command.max(transfer(len, self.figures.read_rate));
        self.reads_free
    }

    fn write(&mut self, now: Nanos, len: u64) -> Nanos {
        self.writes_free = now.max(self.writes_free) + self.figures.command.max(transfer(len, self.figures.write_rate));
        self.last_write_over = self.writes_free + self.figures.write_latency;
        self.last_write_over
    }
}

impl Model for Ssd {
    fn submit(&mut self, now: Nanos, request: TimedRequest) {
        let over = match request.kind {
            RequestKind::Read => self.read(now, request.len),
            RequestKind::Write { fua: false } => self.write(now, request.len),
            RequestKind::Write { fua: true } => self.write(now, request.len) + self.figures.flush_latency,
            RequestKind::Flush => now.max(self.last_write_over) + self.figures.flush_latency,
            RequestKind::Discard => now + self.figures.discard_latency,
        };
        self.ends.push(Reverse((over, request.id)));
    }

    fn next_due(&self) -> Option<Nanos> {
        self.ends.peek().map(|end| end.0.0)
    }

    fn advance(&mut self, now: Nanos, over: &mut Vec<(Nanos, u64)>) {
        while let Some(&Reverse(end)) = self.ends.peek().filter(|end| end.0.0 <= now) {
            over.push(end);
            self.ends.pop();
        }
    }
}
