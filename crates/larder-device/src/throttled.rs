//! [`Throttled`]: a device with the timing of another medium, a rotating disk above all.
//!
//! Role: the cost of a slow origin decides the worth of a cache. This wrapper makes memory or a
//! file as slow as a disk, a RAID or an SSD. It serves benches and demonstrations, and runs on a
//! simulation's clock, too. A request goes to the inner device at once, and ends when both the
//! device and the medium's model have ended it.
//!
//! Invariants: time is the runtime's alone. Data, errors and durability are the inner device's: a
//! flush reaches it after the model's write cache was drained. With one runtime clock and one order
//! of requests the timing is the same.
//!
//! It does not keep data in a cache that could be lost; lay it over [`crate::sim::SimDevice`] for
//! that. It does not make a medium faster than the device inside.

mod hdd;
mod model;
mod raid;
mod ssd;
#[cfg(test)]
mod tests;

use self::model::{Model, Nanos, RequestKind, TimedRequest};
use crate::{
    BlockDevice, ChangeMark, Completer, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult,
    Runtime, SharedBuf, Standing, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Most requests that wait for the model at one time; more are refused.
const WAITING_MAX: usize = 1 << 20;

/// A medium whose timing a device can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `hdd-7200`: one disk of 7200 turns a minute with NCQ, read-ahead and a volatile write cache.
    ///
    /// A random 4 KiB read takes 12.7 ms; streams run at 180 MB/s outside to 100 MB/s inside.
    Hdd7200,
    /// `raid5-7200`: five such disks, chunks of 64 KiB, rotating parity.
    ///
    /// A small write is two reads and two writes.
    Raid5Hdd7200,
    /// `sata-ssd`: random 4 KiB reads take 0.1 ms, up to 98,000 a second; streams 550 MB/s.
    SataSsd,
    /// `nvme`: random 4 KiB reads take 0.07 ms, up to 500,000 a second; streams 3.4 GB/s.
    Nvme,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 4] = [Profile::Hdd7200, Profile::Raid5Hdd7200, Profile::SataSsd, Profile::Nvme];

    /// Returns its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Hdd7200 => "hdd-7200",
            Profile::Raid5Hdd7200 => "raid5-7200",
            Profile::SataSsd => "sata-ssd",
            Profile::Nvme => "nvme",
        }
    }

    /// Returns the profile of this name. The error ([`IoErrorKind::Unsupported`]) lists the names.
    pub fn named(name: &str) -> IoResult<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| {
            let names = Profile::ALL.map(Profile::name).join(", ");
            let detail = format!("no timing profile is called '{name}'; there are {names}");
            IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(detail)
        })
    }

    fn model(self, size_bytes: u64) -> Box<dyn Model> {
        match self {
            Profile::Hdd7200 => Box::new(hdd::Hdd::new(hdd::HDD_7200, size_bytes)),
            Profile::Raid5Hdd7200 => Box::new(raid::Raid5::new(hdd::HDD_7200, size_bytes)),
            Profile::SataSsd => Box::new(ssd::Ssd::new(ssd::SATA_SSD)),
            Profile::Nvme => Box::new(ssd::Ssd::new(ssd::NVME)),
        }
    }
}

/// A device with the timing of a [`Profile`].
pub struct Throttled<D> {
    inner: Arc<D>,
    clock: Arc<Clock>,
}

/// The model and its waiters.
struct Clock {
    runtime: Arc<dyn Runtime>,
    state: Mutex<ThrottledState>,
}

struct ThrottledState {
    model: Box<dyn Model>,
    waiters: HashMap<u64, Completer<()>>,
    next_id: u64,
    /// The earliest moment with a running timer.
    timer: Option<Nanos>,
}

impl<D: BlockDevice + 'static> Throttled<D> {
    /// Gives `inner` the timing of `profile` on the clock of `runtime`.
    pub fn new(inner: D, profile: Profile, runtime: Arc<dyn Runtime>) -> Self {
        let model = profile.model(inner.info().size_bytes);
        let state = ThrottledState { model, waiters: HashMap::new(), next_id: 0, timer: None };
        Throttled { inner: Arc::new(inner), clock: Arc::new(Clock { runtime, state: Mutex::new(state) }) }
    }

    /// Returns the device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn delayed<T: Send + 'static>(
        &self,
        (op, kind): (IoOp, RequestKind),
        offset: u64,
        len: u64,
        start: impl FnOnce(&D) -> IoFuture<T>,
    ) -> IoFuture<T> {
        if let Err(error) = self.inner.info().check(op, offset, len) {
            return IoFuture::ready(Err(error));
        }
        let over = self.clock.submit(op, kind, offset, len);
        let result = start(&self.inner);
        IoFuture::boxed(async move {
            let result = result.await;
            over.await?;
            result
        })
    }
}

impl Clock {
    /// Resolves when the medium would be done with this request.
    fn submit(self: &Arc<Self>, op: IoOp, kind: RequestKind, offset: u64, len: u64) -> IoFuture<()> {
        let mut over = Vec::new();
        let (completer, future) = IoFuture::pending();
        {
            let mut state = self.state.lock();
            if state.waiters.len() == WAITING_MAX {
                let error = IoError::new(IoErrorKind::Io, op, offset, len);
                return IoFuture::ready(Err(error.with_detail("too many requests wait")));
            }
            let now = self.now();
            state.advance(now, &mut over);
            let id = state.next_id;
            state.next_id += 1;
            state.waiters.insert(id, completer);
            state.model.submit(now, TimedRequest { id, kind, offset, len });
        }
        self.complete_all(over);
        future
    }

    fn now(&self) -> Nanos {
        self.runtime.now().as_nanos() as Nanos
    }

    /// Lets the model's time follow the clock.
    ///
    /// `due` is the moment of the timer that woke us; a timer that fires a little early is set
    /// again.
    fn tick(self: &Arc<Self>, due: Nanos) {
        let mut over = Vec::new();
        {
            let mut state = self.state.lock();
            // The lock covers it, so that the model's time never runs backwards.
            let now = self.now();
            state.timer.take_if(|timer| *timer == due);
            state.advance(now, &mut over);
        }
        self.complete_all(over);
    }

    /// Tells waiters, outside the lock, and sets a timer for the next ones.
    fn complete_all(self: &Arc<Self>, over: Vec<Completer<()>>) {
        over.into_iter().for_each(|completer| completer.complete(Ok(())));
        let (due, now) = (self.next_timer(), self.now());
        if let Some(due) = due {
            let clock = self.clone();
            let delay = self.runtime.delay(Duration::from_nanos(due.saturating_sub(now)));
            self.runtime.spawn(Box::pin(async move {
                // It fails only if the runtime is torn down, and all waiters with it.
                if delay.await.is_ok() {
                    clock.tick(due);
                }
            }));
        }
    }

    /// Returns the moment for a new timer; `None` if one runs for it already.
    ///
    /// Without waiters it is `None`, too: the model catches up later.
    fn next_timer(&self) -> Option<Nanos> {
        let mut state = self.state.lock();
        if state.waiters.is_empty() {
            return None;
        }
        let due = state.model.next_due()?;
        if state.timer.is_some_and(|timer| timer <= due) {
            return None;
        }
        state.timer = Some(due);
        Some(due)
    }
}

impl ThrottledState {
    fn advance(&mut self, now: Nanos, over: &mut Vec<Completer<()>>) {
        let mut ended = Vec::new();
        self.model.advance(now, &mut ended);
        over.extend(ended.into_iter().filter_map(|(_, id)| self.waiters.remove(&id)));
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Throttled<D> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let len = buf.len() as u64;
        self.delayed((IoOp::Read, RequestKind::Read), offset, len, |inner| inner.read(offset, buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let (len, kind) = (data.len() as u64, RequestKind::Write { fua: flags.fua });
        self.delayed((IoOp::Write, kind), offset, len, |inner| inner.write(offset, data, flags))
    }

    fn flush(&self) -> IoFuture<()> {
        let drained = self.clock.submit(IoOp::Flush, RequestKind::Flush, 0, 0);
        let inner = self.inner.clone();
        IoFuture::boxed(async move {
            drained.await?;
            inner.flush().await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.delayed((IoOp::Discard, RequestKind::Discard), offset, len, |inner| inner.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        let kind = RequestKind::Write { fua: flags.fua };
        self.delayed((IoOp::WriteZeroes, kind), offset, len, |inner| inner.write_zeroes(offset, len, flags))
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.inner.extents(offset, len)
    }

    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        self.inner.change_mark()
    }

    fn look(&self) -> IoFuture<Standing> {
        self.inner.look()
    }
}
