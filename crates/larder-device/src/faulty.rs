//! [`Faulty`]: a device whose operations fail on demand, and are counted.
//!
//! Role: a test makes any device fail or vanish, and counts its operations. The device is a file,
//! memory, or the finished cache. [`FaultPlan`] and [`IoCounters`] serve the simulated device, too.
//!
//! Invariants: an operation that a fault hits never reaches the inner device. Faults apply in the
//! order of their planning, each to the first operations that match it. Without faults an operation
//! costs a few relaxed atomic additions and one load.
//!
//! It does not lose, misdirect, tear, reorder or hold back operations, or run out of space.
//! [`crate::sim::SimDevice`] does, because it knows its content and the durable part. It leaves
//! time to [`crate::throttled`].

use crate::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf,
    Standing, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// `times` of a fault that never wears out.
pub const FOR_EVER: u64 = u64::MAX;
/// Most faults that one plan holds.
const FAULTS_MAX: usize = 1024;

/// One planned failure.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The operation that fails; `None` matches any.
    pub op: Option<IoOp>,
    /// The range of bytes that an operation must overlap; `None` matches any place. A flush has no
    /// range: only a fault without a range hits it.
    pub range: Option<Range<u64>>,
    /// The kind of the failure.
    pub kind: IoErrorKind,
    /// The number of failures; [`FOR_EVER`] does not wear out.
    pub times: u64,
}

impl Fault {
    fn hits(&self, op: IoOp, offset: u64, len: u64) -> bool {
        self.op.is_none_or(|wanted| wanted == op)
            && self.range.as_ref().is_none_or(|range| offset < range.end && range.start < offset.saturating_add(len))
    }
}

/// The planned failures of a device. Thread-safe.
#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: Mutex<Vec<Fault>>,
    /// A failure is planned: the one word that a healthy operation reads.
    armed: AtomicBool,
    gone: AtomicBool,
}

impl FaultPlan {
    /// Adds a failure after those planned already.
    ///
    /// # Panics
    /// If 1024 are planned and not used up.
    pub fn add(&self, fault: Fault) {
        let mut faults = self.faults.lock();
        assert!(faults.len() < FAULTS_MAX, "a plan holds {FAULTS_MAX} faults");
        faults.push(fault);
        self.armed.store(true, Relaxed);
    }

    /// Fails the next operation `op`, at any place.
    pub fn fail_next(&self, op: IoOp, kind: IoErrorKind) {
        self.add(Fault { op: Some(op), range: None, kind, times: 1 });
    }

    /// Fails the next `times` operations `op` that overlap `range` of bytes.
    pub fn fail_range(&self, op: IoOp, range: Range<u64>, kind: IoErrorKind, times: u64) {
        self.add(Fault { op: Some(op), range: Some(range), kind, times });
    }

    /// Returns how many planned failures are not used up.
    pub fn left(&self) -> usize {
        self.faults.lock().len()
    }

    /// Forgets all planned failures. A device that is gone stays gone.
    pub fn clear(&self) {
        self.faults.lock().clear();
        self.armed.store(self.gone.load(Relaxed), Relaxed);
    }

    /// Makes the device vanish or come back. While it is gone, each operation fails with
    /// [`IoErrorKind::Gone`].
    pub fn set_gone(&self, gone: bool) {
        let faults = self.faults.lock();
        self.gone.store(gone, Relaxed);
        self.armed.store(gone || !faults.is_empty(), Relaxed);
    }

    /// Returns whether the device vanished.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Fails if a failure is planned for this operation, and uses it up once.
    pub fn check(&self, op: IoOp, offset: u64, len: u64) -> IoResult<()> {
        if self.armed.load(Relaxed) { self.check_armed(op, offset, len) } else { Ok(()) }
    }

    #[cold]
    fn check_armed(&self, op: IoOp, offset: u64, len: u64) -> IoResult<()> {
        if self.is_gone() {
            return Err(IoError::new(IoErrorKind::Gone, op, offset, len));
        }
        let mut faults = self.faults.lock();
        let Some(index) = faults.iter().position(|fault| fault.hits(op, offset, len)) else { return Ok(()) };
        let fault = &mut faults[index];
        let error = IoError::new(fault.kind, op, offset, len).with_detail("planned by a test");
        if fault.times != FOR_EVER {
            fault.times = fault.times.saturating_sub(1);
            if fault.times == 0 {
                faults.remove(index);
                self.armed.store(self.is_gone() || !faults.is_empty(), Relaxed);
            }
        }
        Err(error)
    }
}

/// Counts of a device's operations and bytes, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct IoCounters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub zeroes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub discarded_bytes: u64,
    pub zeroed_bytes: u64,
}

/// Meter behind [`IoCounters`]. Thread-safe; the counters of one snapshot may be a few operations
/// apart.
#[derive(Debug, Default)]
pub struct IoMeter {
    ops: [AtomicU64; 5],
    bytes: [AtomicU64; 5],
}

impl IoMeter {
    /// Counts one operation. `Open` and `Extents` are not counted.
    pub fn count(&self, op: IoOp, len: u64) {
        let slot = match op {
            IoOp::Read => 0,
            IoOp::Write => 1,
            IoOp::Flush => 2,
            IoOp::Discard => 3,
            IoOp::WriteZeroes => 4,
            IoOp::Open | IoOp::Extents | IoOp::Standing => return,
        };
        self.ops[slot].fetch_add(1, Relaxed);
        self.bytes[slot].fetch_add(len, Relaxed);
    }

    /// Returns the counts so far.
    pub fn get(&self) -> IoCounters {
        let ops = |slot: usize| self.ops[slot].load(Relaxed);
        let bytes = |slot: usize| self.bytes[slot].load(Relaxed);
        IoCounters {
            reads: ops(0),
            writes: ops(1),
            flushes: ops(2),
            discards: ops(3),
            zeroes: ops(4),
            read_bytes: bytes(0),
            written_bytes: bytes(1),
            discarded_bytes: bytes(3),
            zeroed_bytes: bytes(4),
        }
    }
}

/// A device whose operations fail on demand, and are counted.
pub struct Faulty<D> {
    inner: D,
    plan: FaultPlan,
    meter: IoMeter,
}

impl<D: BlockDevice> Faulty<D> {
    /// Wraps `inner`, with nothing planned.
    pub fn new(inner: D) -> Self {
        Faulty { inner, plan: FaultPlan::default(), meter: IoMeter::default() }
    }

    /// Returns the device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the planned failures.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Returns the counts so far, failures and refused ranges included.
    pub fn counters(&self) -> IoCounters {
        self.meter.get()
    }

    fn admit<T>(&self, op: IoOp, offset: u64, len: u64, go: impl FnOnce() -> IoFuture<T>) -> IoFuture<T> {
        self.meter.count(op, len);
        match self.plan.check(op, offset, len) {
            Ok(()) => go(),
            Err(error) => IoFuture::ready(Err(error)),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.admit(IoOp::Read, offset, buf.len() as u64, || self.inner.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.admit(IoOp::Write, offset, data.len() as u64, || self.inner.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.admit(IoOp::Flush, 0, 0, || self.inner.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.admit(IoOp::Discard, offset, len, || self.inner.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.admit(IoOp::WriteZeroes, offset, len, || self.inner.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.admit(IoOp::Extents, offset, len, || self.inner.extents(offset, len))
    }
    fn change_mark(&self) -> IoFuture<Option<ChangeMark>> {
        self.inner.change_mark()
    }
    fn look(&self) -> IoFuture<Standing> {
        self.inner.look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::RamDevice;

    fn now<T>(future: IoFuture<T>) -> IoResult<T> {
        future.try_ready().ok().expect("operations in memory are over at once")
    }

    fn device() -> Faulty<RamDevice> {
        Faulty::new(RamDevice::new("ram", 1 << 20, 512))
    }

    #[test]
    fn faults_hit_what_they_name_as_often_as_planned() {
        let device = device();
        device.plan().fail_next(IoOp::Flush, IoErrorKind::Io);
        device.plan().fail_range(IoOp::Read, 4096..8192, IoErrorKind::Corrupt, 2);
        let read = |offset| now(device.read(offset, IoBuf::new(4096))).map(|_| ()).map_err(|error| error.kind);
        assert_eq!(read(0), Ok(()));
        assert_eq!(read(4608), Err(IoErrorKind::Corrupt));
        assert_eq!(read(512), Err(IoErrorKind::Corrupt));
        assert_eq!(read(4096), Ok(()));
        assert_eq!(now(device.flush()).expect_err("planned").kind, IoErrorKind::Io);
        assert!(now(device.flush()).is_ok());
        assert!(!device.plan().armed.load(Relaxed));
    }

    #[test]
    fn a_fault_for_ever_lasts_until_cleared() {
        let device = device();
        device.plan().add(Fault { op: None, range: None, kind: IoErrorKind::NoSpace, times: FOR_EVER });
        (0..100).for_each(|_| assert!(now(device.discard(0, 512)).is_err()));
        device.plan().clear();
        assert!(now(device.discard(0, 512)).is_ok());
    }

    #[test]
    fn a_device_that_is_gone_comes_back() {
        let device = device();
        device.plan().set_gone(true);
        assert_eq!(now(device.flush()).expect_err("gone").kind, IoErrorKind::Gone);
        device.plan().clear();
        assert_eq!(now(device.read(0, IoBuf::new(512))).expect_err("gone").kind, IoErrorKind::Gone);
        device.plan().set_gone(false);
        assert!(now(device.flush()).is_ok());
    }

    #[test]
    fn operations_and_bytes_are_counted() {
        let device = device();
        now(device.read(0, IoBuf::new(4096))).expect("read");
        now(device.write(0, IoBuf::zeroed(512).freeze(), WriteFlags::default())).expect("write");
        now(device.discard(0, 1024)).expect("discard");
        now(device.write_zeroes(0, 2048, ZeroFlags::default())).expect("zeroes");
        now(device.flush()).expect("flush");
        let expected = IoCounters {
            reads: 1,
            writes: 1,
            flushes: 1,
            discards: 1,
            zeroes: 1,
            read_bytes: 4096,
            written_bytes: 512,
            discarded_bytes: 1024,
            zeroed_bytes: 2048,
        };
        assert_eq!(device.counters(), expected);
    }
}
