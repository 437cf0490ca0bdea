//! [`SimDevice`]: a device whose operations take effect and complete when the simulation's scheduler says so.
//!
//! Invariants:
//! - An operation takes effect at one moment between its submission and its completion, or, without FUA, at two:
//!   some of its sectors first, the others at completion.
//! - A write is volatile until a flush that was submitted after its completion completes; a FUA write is durable
//!   when it completes. Discards and zeroes are volatile like writes.
//! - A failed write may have taken effect in full, in part, or not at all. A failed flush makes nothing durable.
//!
//! What it does not do: choose the order of completions ([`super::SimRuntime`] does); refuse what a caller may not
//! do, beyond range and alignment.

use super::{
    SimRuntime,
    image::{Change, Content, Medium},
};
use crate::{
    BlockDevice, Completer, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf,
    WriteFlags, ZeroFlags,
    faulty::{FaultPlan, IoCounters, IoMeter},
    rng::Rng,
};
use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::{Arc, Weak},
};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u32 = 64 << 20;

/// What a simulated device promises, beyond its size.
#[derive(Clone, Debug)]
pub struct SimDeviceOptions {
    /// Alignment of requests, in bytes. Writes are torn at 512 bytes, whatever this is.
    pub sector_bytes: u32,
    /// The medium's own sector, in bytes.
    pub physical_sector_bytes: u32,
    /// A discarded range reads as zeroes; else as garbage that the seed decides.
    pub discard_zeroes: bool,
}

impl Default for SimDeviceOptions {
    fn default() -> Self {
        SimDeviceOptions { sector_bytes: 512, physical_sector_bytes: 4096, discard_zeroes: true }
    }
}

/// A simulated block device. Outlives the runtimes that it is attached to, one after the other.
pub struct SimDevice {
    me: Weak<SimDevice>,
    info: DeviceInfo,
    runtime: Mutex<Weak<SimRuntime>>,
    medium: Mutex<Medium>,
    plan: FaultPlan,
    meter: IoMeter,
}

/// An operation that was submitted and has not completed.
pub(super) struct PendingOp {
    device: Arc<SimDevice>,
    op: Op,
    /// The planned failure, decided at submission.
    fate: IoResult<()>,
}

enum Op {
    Read { offset: u64, buf: IoBuf, filled: Vec<Range<usize>>, done: Completer<IoBuf> },
    Change { what: IoOp, rest: Vec<Change>, fua: bool, split: bool, place: (u64, u64), done: Completer<()> },
    Flush { upto: u64, done: Completer<()> },
    Extents { offset: u64, len: u64, done: Completer<Vec<Extent>> },
}

impl SimDevice {
    /// A device of `size_bytes` zeroes, attached to `runtime`.
    ///
    /// # Panics
    /// If `sector_bytes` is not a power of two in 512..=4096, or `size_bytes` not a multiple of it.
    pub fn new(runtime: &Arc<SimRuntime>, name: &str, size_bytes: u64, sector_bytes: u32) -> Arc<SimDevice> {
        let options = SimDeviceOptions { sector_bytes, ..SimDeviceOptions::default() };
        SimDevice::with_options(runtime, name, size_bytes, options)
    }

    /// [`SimDevice::new`] with more to choose.
    ///
    /// # Panics
    /// As [`SimDevice::new`].
    pub fn with_options(
        runtime: &Arc<SimRuntime>,
        name: &str,
        size_bytes: u64,
        options: SimDeviceOptions,
    ) -> Arc<SimDevice> {
        let sector_bytes = options.sector_bytes;
        assert!(sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes), "sector of {sector_bytes}");
        assert!(size_bytes.is_multiple_of(u64::from(sector_bytes)), "{size_bytes} bytes in sectors of {sector_bytes}");
        let info = DeviceInfo {
            name: name.to_owned(),
            size_bytes,
            sector_bytes,
            physical_sector_bytes: options.physical_sector_bytes.max(sector_bytes),
            optimal_io_bytes: 64 << 10,
            request_bytes_max: REQUEST_BYTES_MAX,
            discard_zeroes: options.discard_zeroes,
            zeroes_fast: true,
            read_only: false,
        };
        let device = Arc::new_cyclic(|me| SimDevice {
            me: me.clone(),
            info,
            runtime: Mutex::new(Weak::new()),
            medium: Mutex::new(Medium::default()),
            plan: FaultPlan::default(),
            meter: IoMeter::default(),
        });
        device.attach(runtime);
        device
    }

    /// Hands the device to another runtime, which completes what is submitted from now on.
    pub fn attach(&self, runtime: &Arc<SimRuntime>) {
        *self.runtime.lock() = Arc::downgrade(runtime);
        runtime.adopt(self.me.clone());
    }

    /// What is to fail. A failure is decided when an operation is submitted, and told when it completes.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Fails the next operation `op`.
    pub fn fail_next(&self, op: IoOp, kind: IoErrorKind) {
        self.plan.fail_next(op, kind);
    }

    /// Fails the next `times` operations `op` that overlap `range` of bytes.
    pub fn fail_range(&self, op: IoOp, range: Range<u64>, kind: IoErrorKind, times: u64) {
        self.plan.fail_range(op, range, kind, times);
    }

    /// Makes the device vanish with what is in flight, or come back.
    pub fn set_gone(&self, gone: bool) {
        self.plan.set_gone(gone);
    }

    /// Flips between one and eight bits of `offset..offset + len`, in what is read and in what survives a crash.
    ///
    /// # Panics
    /// If the range is empty or not inside the device.
    pub fn corrupt(&self, offset: u64, len: u64, rng: &mut Rng) {
        assert!(len > 0 && offset.saturating_add(len) <= self.info.size_bytes, "corrupt {len} bytes at {offset}");
        self.medium.lock().flip_bits(offset, len, rng);
    }

    /// The bytes that a read would see now.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.medium.lock().read(offset, &mut bytes);
        bytes
    }

    /// The bytes that survive a power loss that takes everything not flushed.
    pub fn peek_durable(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.medium.lock().read_durable(offset, &mut bytes);
        bytes
    }

    /// Puts bytes on the medium, durably and at once, behind everyone's back: a misdirected write, an old image.
    ///
    /// # Panics
    /// If offset or length are not multiples of 512 bytes, or not inside the device.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        assert!(offset.is_multiple_of(512) && len.is_multiple_of(512), "poke {len} bytes at {offset}");
        assert!(offset.saturating_add(len) <= self.info.size_bytes, "poke {len} bytes at {offset}");
        let content = Content::Data(IoBuf::copy_of(bytes).freeze());
        self.medium.lock().change_durably(&Change { offset, len, content });
    }

    /// Bytes written, discarded or zeroed that a power loss may still take.
    pub fn unflushed_bytes(&self) -> u64 {
        self.medium.lock().unflushed_bytes()
    }

    /// What was asked of the device since it was made, over all its lives.
    pub fn counters(&self) -> IoCounters {
        self.meter.get()
    }

    pub(super) fn belongs_to(&self, runtime: &SimRuntime) -> bool {
        std::ptr::eq(self.runtime.lock().as_ptr(), runtime)
    }

    pub(super) fn power_loss(&self, rng: &mut Rng) {
        self.medium.lock().power_loss(rng);
    }

    /// Submits an operation, counted and with its fate decided. `make` gets this device's runtime.
    fn submit<T>(
        &self,
        what: IoOp,
        offset: u64,
        len: u64,
        make: impl FnOnce(&SimRuntime, Completer<T>) -> Op,
    ) -> IoFuture<T> {
        self.meter.count(what, len);
        let checked = if what == IoOp::Flush { Ok(()) } else { self.info.check(what, offset, len) };
        let cancelled = || IoError::new(IoErrorKind::Cancelled, what, offset, len);
        let ready = checked.and_then(|()| {
            let device = self.me.upgrade().ok_or_else(cancelled)?;
            let runtime = self.runtime.lock().upgrade().ok_or_else(cancelled)?;
            let fate = self.plan.check(what, offset, len);
            let (completer, future) = IoFuture::pending();
            let op = PendingOp { device, op: make(&runtime, completer), fate };
            match runtime.submit(op, !matches!(what, IoOp::Read | IoOp::Extents)) {
                Ok(()) => Ok(future),
                Err(_closed) => Err(cancelled()),
            }
        });
        ready.unwrap_or_else(|error| IoFuture::ready(Err(error)))
    }

    fn submit_change(&self, what: IoOp, change: Change, fua: bool) -> IoFuture<()> {
        let (offset, len) = (change.offset, change.len);
        self.submit(what, offset, len, |_, done| Op::Change {
            what,
            rest: vec![change],
            fua,
            split: false,
            place: (offset, len),
            done,
        })
    }
}

impl BlockDevice for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let len = buf.len() as u64;
        self.submit(IoOp::Read, offset, len, |_, done| Op::Read { offset, buf, filled: Vec::new(), done })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let change = Change { offset, len: data.len() as u64, content: Content::Data(data) };
        self.submit_change(IoOp::Write, change, flags.fua)
    }

    fn flush(&self) -> IoFuture<()> {
        let upto = self.medium.lock().next_change();
        self.submit(IoOp::Flush, 0, 0, |_, done| Op::Flush { upto, done })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        let content = if self.info.discard_zeroes {
            Content::Zeroes
        } else {
            Content::Garbage { seed: self.medium.lock().next_change(), from: offset }
        };
        self.submit_change(IoOp::Discard, Change { offset, len, content }, false)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.submit_change(IoOp::WriteZeroes, Change { offset, len, content: Content::Zeroes }, flags.fua)
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.submit(IoOp::Extents, offset, len, |_, done| Op::Extents { offset, len, done })
    }
}

impl PendingOp {
    /// Completes the operation; or, where it is one that may, lets some of it take effect and hands it back.
    pub(super) fn deliver(mut self, partly: bool, rng: &mut Rng) -> Option<PendingOp> {
        if partly && self.fate.is_ok() && self.do_some(rng) {
            return Some(self);
        }
        let PendingOp { device, op, mut fate } = self;
        if fate.is_ok() && device.plan.is_gone() {
            let (what, offset, len) = op.place();
            fate = Err(IoError::new(IoErrorKind::Gone, what, offset, len));
        }
        let mut medium = device.medium.lock();
        match op {
            Op::Read { offset, mut buf, filled, done } => {
                let mut bytes = vec![0; if filled.is_empty() { 0 } else { buf.len() }];
                if filled.is_empty() {
                    medium.read(offset, &mut buf);
                } else {
                    medium.read(offset, &mut bytes);
                    filled.into_iter().for_each(|range| bytes[range.clone()].copy_from_slice(&buf[range]));
                    buf.copy_from_slice(&bytes);
                }
                drop(medium);
                done.complete(fate.map(|()| buf));
            }
            Op::Change { rest, fua, done, .. } => {
                match &fate {
                    Ok(()) if fua => rest.iter().for_each(|change| medium.change_durably(change)),
                    Ok(()) => rest.into_iter().for_each(|change| medium.change(change)),
                    Err(_) => leave_behind(&mut medium, rest, rng),
                }
                drop(medium);
                done.complete(fate);
            }
            Op::Flush { upto, done } => {
                if fate.is_ok() {
                    medium.flush(upto);
                }
                drop(medium);
                done.complete(fate);
            }
            Op::Extents { offset, len, done } => {
                let extents = medium.extents(offset, len);
                drop(medium);
                done.complete(fate.map(|()| extents));
            }
        }
        None
    }

    /// Lets some sectors of the operation take effect now. False where it has no second moment left.
    fn do_some(&mut self, rng: &mut Rng) -> bool {
        let mut medium = self.device.medium.lock();
        match &mut self.op {
            Op::Read { offset, buf, filled, .. } if filled.is_empty() && buf.len() > 512 => {
                let all = Change { offset: 0, len: buf.len() as u64, content: Content::Zeroes };
                for part in all.tear(rng).0 {
                    let range = part.offset as usize..(part.offset + part.len) as usize;
                    medium.read(*offset + part.offset, &mut buf[range.clone()]);
                    filled.push(range);
                }
                !filled.is_empty()
            }
            // Not with FUA: a later completed write could lie between the two moments and be covered again when
            // the whole is made durable.
            Op::Change { rest, fua: false, split, .. } if !*split && rest.iter().any(|change| change.len > 512) => {
                *split = true;
                let whole = std::mem::take(rest);
                for change in whole {
                    let (now, later) = change.tear(rng);
                    now.into_iter().for_each(|part| medium.change(part));
                    rest.extend(later);
                }
                true
            }
            _ => false,
        }
    }

    /// The operation's process died or its device lost power: it takes effect in full, in part, or not at all.
    pub(super) fn abandon(self, rng: &mut Rng) {
        if let Op::Change { rest, .. } = self.op {
            leave_behind(&mut self.device.medium.lock(), rest, rng);
        }
    }
}

/// What a change that was interrupted leaves: all, some or none of it, volatile.
fn leave_behind(medium: &mut Medium, rest: Vec<Change>, rng: &mut Rng) {
    let fate = rng.below(3);
    for change in rest {
        match fate {
            0 => {}
            1 => medium.change(change),
            _ => change.tear(rng).0.into_iter().for_each(|part| medium.change(part)),
        }
    }
}

impl Op {
    fn place(&self) -> (IoOp, u64, u64) {
        match self {
            Op::Read { offset, buf, .. } => (IoOp::Read, *offset, buf.len() as u64),
            Op::Change { what, place, .. } => (*what, place.0, place.1),
            Op::Flush { .. } => (IoOp::Flush, 0, 0),
            Op::Extents { offset, len, .. } => (IoOp::Extents, *offset, *len),
        }
    }
}

impl std::fmt::Display for PendingOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, offset, len) = self.op.place();
        write!(f, "{what:?} of {len} bytes at {offset} on {}", self.device.info.name)
    }
}
