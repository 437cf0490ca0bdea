//! [`WatchedDevice`]: a device that knows its unanswered operations, their success, and its
//! standing.
//!
//! Invariants: an operation that the call does not end counts from then on, until its future ends
//! or is dropped. Operations pass unchanged; one that ends at once stays so, and costs no look at
//! the clock. The success of one kind of operation says nothing of another: a full device reads and
//! flushes well.
//!
//! It does not end an operation that takes too long, or judge the time.

pub mod again;
mod callers;
mod health;
pub mod looks;
mod waiting;

use crate::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, Runtime, SharedBuf,
    Standing, WriteFlags, ZeroFlags,
};
use callers::Looks;
pub use health::Oldest;
use health::{Health, LOOK, WRITE};
use parking_lot::Mutex;
use std::{
    fmt,
    sync::{Arc, Weak, atomic::Ordering::Acquire},
};
pub(crate) use waiting::Pending;
use waiting::WaitingOps;

/// The operations under way on a [`WatchedDevice`]. Thread-safe.
pub struct Watch {
    clock: Arc<dyn Runtime>,
    /// Weak, so that the device closes with its last user.
    device: Weak<dyn BlockDevice>,
    waiting: WaitingOps,
    health: Arc<Health>,
    looks: Mutex<Looks>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.oldest()).finish()
    }
}

impl Watch {
    /// Returns a watch over a device, which knows of no operation but its own looks.
    fn on(device: &Arc<dyn BlockDevice>, clock: Arc<dyn Runtime>) -> Self {
        let health = Arc::<Health>::default();
        Watch {
            clock,
            device: Arc::downgrade(device),
            waiting: WaitingOps::new(&health),
            health,
            looks: Mutex::default(),
        }
    }

    /// Returns the operation that waits longest; `None` without any.
    pub fn oldest(&self) -> Option<Oldest> {
        self.waiting.oldest(self.clock.now())
    }

    /// Returns the last error of a kind of operation without a later success.
    ///
    /// The error of a device that is gone comes first, then that of writes.
    pub fn error(&self) -> Option<IoError> {
        if self.is_well() {
            return None;
        }
        let errors = self.health.errors.lock();
        let mut failing = errors.failing.iter().flatten();
        let gone = failing.clone().find(|error| error.kind == IoErrorKind::Gone);
        gone.or_else(|| failing.next()).cloned()
    }

    /// Returns the error of the last look at the standing; `None` if that succeeded.
    pub fn look_error(&self) -> Option<IoError> {
        if self.is_well() { None } else { self.health.errors.lock().failing[LOOK].clone() }
    }

    /// Returns whether the last write failed.
    pub fn fails_writes(&self) -> bool {
        !self.is_well() && self.health.errors.lock().failing[WRITE].is_some()
    }

    /// Returns whether no kind of operation fails.
    fn is_well(&self) -> bool {
        !self.health.is_ill.load(Acquire)
    }

    /// Returns the last error since the previous call, also if later operations succeeded.
    pub fn take_unseen(&self) -> Option<IoError> {
        self.health.errors.lock().unseen.take()
    }

    fn begin(&self, op: IoOp) -> Pending {
        self.waiting.begin(op, self.clock.now())
    }
}

/// A device whose operations are watched.
pub struct WatchedDevice {
    inner: Arc<dyn BlockDevice>,
    watch: Arc<Watch>,
}

impl WatchedDevice {
    /// Watches `inner`, on the clock of `runtime`.
    pub fn new(inner: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Self {
        let watch = Arc::new(Watch::on(&inner, runtime));
        WatchedDevice { inner, watch }
    }

    /// Watches `inner`. Returns the device and its watch.
    pub fn over(inner: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> (Arc<dyn BlockDevice>, Arc<Watch>) {
        let watched = WatchedDevice::new(inner, runtime);
        let watch = watched.watch();
        (Arc::new(watched), watch)
    }

    /// Returns the operations under way.
    pub fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    fn watched<T: Send + 'static>(&self, op: IoOp, start: impl FnOnce() -> IoFuture<T>) -> IoFuture<T> {
        match start().try_ready() {
            Ok(result) => {
                self.watch.health.note(op, &result);
                IoFuture::ready(result)
            }
            Err(future) => future.noted_by(self.watch.begin(op)),
        }
    }
}

impl BlockDevice for WatchedDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.watched(IoOp::Read, || self.inner.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.watched(IoOp::Write, || self.inner.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.watched(IoOp::Flush, || self.inner.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.watched(IoOp::Discard, || self.inner.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.watched(IoOp::WriteZeroes, || self.inner.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.watched(IoOp::Extents, || self.inner.extents(offset, len))
    }
    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        self.watched(IoOp::Standing, || self.inner.change_mark())
    }
    fn look(&self) -> IoFuture<Standing> {
        self.watched(IoOp::Standing, || self.inner.look())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        faulty::Faulty,
        ram::RamDevice,
        sim::{SimDevice, SimRuntime},
    };
    use std::time::Duration;

    #[test]
    fn the_oldest_operation_is_known_by_its_age() {
        let runtime = SimRuntime::new(1);
        let device = WatchedDevice::new(SimDevice::new(&runtime, "slow", 1 << 20, 512), runtime.clone());
        let watch = device.watch();
        assert_eq!(watch.oldest(), None);
        let (read, began) = (device.read(0, IoBuf::new(512)), runtime.now());
        let flush = device.flush();
        let oldest = watch.oldest().expect("two wait");
        assert_eq!((oldest.op, oldest.waiting), (IoOp::Read, 2));
        runtime.block_on(runtime.delay(Duration::from_secs(3))).expect("time");
        let aged = watch.oldest().expect("a future that nobody polled is not over");
        assert_eq!((aged.op, aged.age), (IoOp::Read, runtime.now() - began));
        runtime.block_on(read).expect("a read");
        assert_eq!(watch.oldest().map(|oldest| oldest.op), Some(IoOp::Flush));
        drop(flush);
        assert_eq!(watch.oldest(), None, "nobody waits for it any more");
    }

    #[test]
    fn what_is_over_at_once_stays_so() {
        let runtime = SimRuntime::new(1);
        let device = WatchedDevice::new(Arc::new(RamDevice::new("ram", 1 << 20, 512)), runtime);
        assert!(device.flush().try_ready().is_ok());
        assert_eq!(device.watch().oldest(), None);
    }

    #[test]
    fn what_fails_is_known_until_it_succeeds() {
        let runtime = SimRuntime::new(1);
        let faulty = Arc::new(Faulty::new(RamDevice::new("ram", 1 << 20, 512)));
        let device = WatchedDevice::new(faulty.clone(), runtime);
        let watch = device.watch();
        let write = || drop(device.write(0, IoBuf::zeroed(512).freeze(), WriteFlags::default()));
        faulty.plan().fail_next(IoOp::Write, IoErrorKind::NoSpace);
        write();
        assert_eq!(watch.error().map(|error| error.kind), Some(IoErrorKind::NoSpace));
        drop((device.flush(), device.read(0, IoBuf::new(512))));
        assert!(watch.error().is_some(), "a flush and a read say nothing of writes");
        write();
        assert!(watch.error().is_none());
        assert_eq!(watch.take_unseen().map(|error| error.kind), Some(IoErrorKind::NoSpace));
        assert!(watch.take_unseen().is_none());
        faulty.plan().set_gone(true);
        write();
        drop(device.flush());
        faulty.plan().set_gone(false);
        drop(device.read(0, IoBuf::new(512)));
        assert!(watch.error().is_none(), "what answers is back");
        drop(device.read(100, IoBuf::new(512)));
        assert!(watch.error().is_none(), "a request that is wrong says nothing of the device");
    }
}
