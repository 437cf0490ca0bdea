//! A SATA or NVMe drive as an origin, by the figures of its data sheet.
//!
//! Its channels read in parallel, behind an interface that serves one command at a time in each
//! direction. A read takes the flash's latency on the channel that is free first, then its time on
//! the interface. A write takes its time on the interface, and a latency into the drive's buffer,
//! which survives power loss. The interface's rate bounds sustained writes. Discipline: first come,
//! first served.
//!
//! It leaves garbage collection, wear, and a full drive's slowness to `larder-ssd`.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use super::{
    medium::{Foresees, transfer_ns},
    profile::FlashFigures,
    request::{OriginRequest, RequestKind},
};
use larder_ssd::time::Nanos;

/// See the module.
pub struct FlashModel {
    figures: FlashFigures,
    /// The time when each channel is free.
    channels: BinaryHeap<Reverse<Nanos>>,
    reads_are_free_at: Nanos,
    writes_are_free_at: Nanos,
}

impl FlashModel {
    /// Makes an idle drive.
    pub fn new(figures: FlashFigures) -> FlashModel {
        FlashModel {
            figures,
            channels: (0..figures.channels).map(|_| Reverse(0)).collect(),
            reads_are_free_at: 0,
            writes_are_free_at: 0,
        }
    }

    fn on_interface(&self, len: u64, bytes_per_second: u64) -> Nanos {
        self.figures.command_ns.max(transfer_ns(len, bytes_per_second))
    }

    fn read(&mut self, now: Nanos, len: u64) -> (Nanos, Range<Nanos>) {
        let is_free_at = self.channels.pop().map_or(0, |free| free.0);
        let has_read_at = now.max(is_free_at) + self.figures.read_ns;
        self.channels.push(Reverse(has_read_at));
        let passes = self.on_interface(len, self.figures.read_bytes_per_second);
        let begins = has_read_at.max(self.reads_are_free_at);
        self.reads_are_free_at = begins + passes;
        (self.reads_are_free_at, begins..self.reads_are_free_at)
    }

    fn write(&mut self, now: Nanos, len: u64) -> (Nanos, Range<Nanos>) {
        let passes = self.on_interface(len, self.figures.write_bytes_per_second);
        let begins = now.max(self.writes_are_free_at);
        self.writes_are_free_at = begins + passes;
        (self.writes_are_free_at + self.figures.write_ns, begins..self.writes_are_free_at)
    }
}

impl Foresees for FlashModel {
    /// Both directions of the interface: it bounds a drive, in commands or in bytes.
    const PARTS: u64 = 2;

    fn take(&mut self, now: Nanos, request: &OriginRequest) -> (Nanos, Range<Nanos>) {
        match request.kind {
            RequestKind::Read => self.read(now, request.len),
            RequestKind::Write => self.write(now, request.len),
            RequestKind::Trim | RequestKind::Flush => (now + self.figures.command_ns, now..now),
        }
    }
}
