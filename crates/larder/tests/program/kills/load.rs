//! The load: several clients, each with its own connection, sectors, and requests in flight.
//!
//! The first half of the volume is dealt out in stripes of 2 KiB, so that clients share chunks. The
//! second half is dealt out in runs of two chunks, so that whole chunks are written, some of them
//! with known content.
//!
//! A request that fails before the server was killed is a failed test; one that fails afterwards
//! ends its client.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_device::driver::block_on;
use larder_device::nbd::NbdDevice;
use larder_device::rng::Rng;
use larder_device::{BlockDevice, IoBuf, IoFuture, SharedBuf, WriteFlags, ZeroFlags};

use super::model::{Content, Model, SECTOR, bytes_of};

/// Clients at once.
pub const CLIENTS: usize = 4;
/// Requests in flight of one client.
const REQUESTS_MAX: usize = 6;
/// Contents that many chunks have.
const COMMON_CONTENTS: u32 = 12;

/// The load on one life of a server.
pub struct Load {
    pub model: Mutex<Model>,
    pub sectors: usize,
    /// From here on requests may fail, because the server is being killed.
    pub killed: AtomicBool,
    /// Clients finish the requests in flight, and leave.
    pub leave: AtomicBool,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    next_content: AtomicU32,
}

impl Load {
    pub fn new(sectors: usize) -> Self {
        Load {
            model: Mutex::new(Model::new(sectors)),
            sectors,
            killed: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            next_content: AtomicU32::new(COMMON_CONTENTS + 1),
        }
    }

    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a content that was never written.
    pub fn new_content(&self) -> Content {
        self.next_content.fetch_add(1, Relaxed)
    }

    /// Works until the server is gone, or until it is told to leave.
    pub fn work(&self, uri: &str, client: usize, mut rng: Rng) {
        let device = match NbdDevice::connect(uri) {
            Ok(device) => device,
            Err(error) => return self.failed("connect", &error),
        };
        while !self.leave.load(Acquire) {
            if !self.batch(&*device, client, &mut rng) {
                return;
            }
        }
    }

    fn failed(&self, what: &str, error: &dyn std::fmt::Display) {
        assert!(self.killed.load(Acquire), "{what} failed before the server was killed: {error}");
    }

    /// Makes a few requests at once, and waits for all; false if the server is gone.
    fn batch(&self, device: &dyn BlockDevice, client: usize, rng: &mut Rng) -> bool {
        let mut changes: Vec<(Range<usize>, bool, IoFuture<()>)> = Vec::new();
        for _ in 0..=rng.index(REQUESTS_MAX) {
            let range = self.own_range(client, rng);
            if !changes.iter().any(|(taken, ..)| taken.start < range.end && range.start < taken.end) {
                let durable = rng.chance(1, 12);
                let future = self.issue(device, &range, durable, rng);
                changes.push((range, durable, future));
            }
        }
        let flush = rng.chance(1, 3).then(|| (self.model().flush_begins(), device.flush()));
        for (range, durable, future) in changes {
            if let Err(error) = block_on(future) {
                self.failed("a write", &error);
                return false;
            }
            self.model().complete(range, durable);
            self.writes.fetch_add(1, Relaxed);
        }
        if let Some((snapshot, future)) = flush {
            if let Err(error) = block_on(future) {
                self.failed("a flush", &error);
                return false;
            }
            self.model().flush_completes(&snapshot);
            self.flushes.fetch_add(1, Relaxed);
        }
        !rng.chance(1, 2) || self.look(device, self.own_range(client, rng))
    }

    fn issue(&self, device: &dyn BlockDevice, range: &Range<usize>, durable: bool, rng: &mut Rng) -> IoFuture<()> {
        let (offset, bytes) = (range.start * SECTOR, range.len() * SECTOR);
        let content = match rng.below(10) {
            0 => 0,
            1..=3 => 1 + rng.below(COMMON_CONTENTS.into()) as Content,
            _ => self.new_content(),
        };
        self.model().begin(range.clone(), content);
        match (content, rng.below(3)) {
            (0, 0) if !durable => device.discard(offset as u64, bytes as u64),
            (0, 1) => {
                let flags = ZeroFlags { fua: durable, no_hole: rng.chance(1, 2), fast_only: false };
                device.write_zeroes(offset as u64, bytes as u64, flags)
            }
            _ => device.write(offset as u64, data(range, content), WriteFlags { fua: durable }),
        }
    }

    fn look(&self, device: &dyn BlockDevice, range: Range<usize>) -> bool {
        match block_on(device.read((range.start * SECTOR) as u64, IoBuf::new(range.len() * SECTOR))) {
            Ok(bytes) => self.model().check_newest(range.start, &bytes).expect("a read under load"),
            Err(error) => {
                self.failed("a read", &error);
                return false;
            }
        }
        true
    }

    fn own_range(&self, client: usize, rng: &mut Rng) -> Range<usize> {
        let half = self.sectors / 2;
        let (base, run) = if rng.chance(1, 2) { (0, 4) } else { (half, 32) };
        let runs = half / run / CLIENTS;
        // A few places are hot.
        let number = if rng.chance(1, 3) { rng.index(runs.min(8)) } else { rng.index(runs) };
        let start = base + (number * CLIENTS + client) * run;
        if rng.chance(2, 3) {
            return start..start + run;
        }
        let first = rng.index(run);
        start + first..start + first + 1 + rng.index(run - first)
    }
}

/// Returns the bytes of a content over a range of sectors.
pub fn data(range: &Range<usize>, content: Content) -> SharedBuf {
    let mut bytes = IoBuf::zeroed(range.len() * SECTOR);
    for (sector, piece) in range.clone().zip(bytes.chunks_mut(SECTOR)) {
        bytes_of(content, sector, piece);
    }
    bytes.freeze()
}
