//! [`SimDevice`]: a device whose operations complete when the simulation's scheduler chooses.
//!
//! The scheduler chooses the moment of their effect, too.
//!
//! Invariants:
//! - An operation takes effect at one moment between its submission and its completion. Without FUA
//!   it may take two: some of its atoms first, the others at completion.
//! - A write is volatile until a flush that was submitted after its completion completes. A FUA
//!   write is durable when it completes, and it alone. Discards and zeroes are volatile like
//!   writes.
//! - An atom of a write is old or new after a crash, never a mixture. Writes of different parts of
//!   one atom are kept or dropped each on its own. Drives are less harsh and write the whole atom.
//! - A discarded sector without a promise of zeroes holds its old bytes, zeroes or garbage. After
//!   the next power loss it may hold another of these, flushed or not, until it is rewritten.
//! - A failed write may have taken effect in full, in part, or not at all. A failed flush makes
//!   nothing durable, and may forget its changes. Then no later flush makes them durable either,
//!   until they are written again.
//!
//! It does not choose the order of completions ([`super::SimRuntime`] does). It refuses only a
//! wrong range or alignment.

use super::{
    SimRuntime,
    body::Body,
    image::Medium,
    mischief::{Mischief, Mischiefs},
    op::{PendingOp, SimOp},
    pages::{Change, Content, SECTOR_BYTES},
};
use crate::{
    BlockDevice, Completer, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf,
    WriteFlags, ZeroFlags,
    faulty::{FaultPlan, IoCounters, IoMeter},
    rng::Rng,
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u32 = 64 << 20;

/// The promises of a simulated device, beyond its size.
#[derive(Clone, Debug)]
pub struct SimDeviceOptions {
    /// Alignment of requests, in bytes.
    pub sector_bytes: u32,
    /// The medium's own sector, in bytes.
    pub physical_sector_bytes: u32,
    /// A discarded range reads as zeroes; else as any bytes, which may change after each power
    /// loss.
    pub discard_zeroes: bool,
    /// The device's *atom*, in bytes, aligned to itself: it is written at once or not at all.
    ///
    /// It is 512, or 4096 as in most SSDs. A part of an atom is then old or new as a whole.
    pub tear_bytes: u32,
}

impl Default for SimDeviceOptions {
    fn default() -> Self {
        SimDeviceOptions { sector_bytes: 512, physical_sector_bytes: 4096, discard_zeroes: true, tear_bytes: 512 }
    }
}

/// A simulated block device. It outlives the runtimes of its attachments, one after the other.
pub struct SimDevice {
    info: DeviceInfo,
    body: Arc<Body>,
    mischiefs: Mischiefs,
    full: AtomicBool,
    meter: IoMeter,
}

impl SimDevice {
    /// Returns a device of `size_bytes` zeroes, attached to `runtime`.
    ///
    /// # Panics
    /// If `sector_bytes` is not a power of two in 512..=4096, or `size_bytes` not a multiple of it.
    pub fn new(runtime: &Arc<SimRuntime>, name: &str, size_bytes: u64, sector_bytes: u32) -> Arc<SimDevice> {
        let options = SimDeviceOptions { sector_bytes, ..SimDeviceOptions::default() };
        SimDevice::with_options(runtime, name, size_bytes, options)
    }

    /// Makes a device with all options, as [`SimDevice::new`].
    ///
    /// # Panics
    /// As [`SimDevice::new`]; also if `tear_bytes` is neither 512 nor 4096.
    pub fn with_options(
        runtime: &Arc<SimRuntime>,
        name: &str,
        size_bytes: u64,
        options: SimDeviceOptions,
    ) -> Arc<SimDevice> {
        let sector_bytes = options.sector_bytes;
        assert!(sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes), "sector of {sector_bytes}");
        assert!(size_bytes.is_multiple_of(u64::from(sector_bytes)), "{size_bytes} bytes in sectors of {sector_bytes}");
        assert!([512, 4096].contains(&options.tear_bytes), "atoms of {} bytes", options.tear_bytes);
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
        let device = Arc::new(SimDevice {
            body: Arc::new(Body::new(name, Medium::new(u64::from(options.tear_bytes)))),
            info,
            mischiefs: Mischiefs::default(),
            full: AtomicBool::new(false),
            meter: IoMeter::default(),
        });
        device.attach(runtime);
        device
    }

    /// Returns a device of another kind with a durable copy of the content that reads see.
    ///
    /// It is attached to `runtime`.
    ///
    /// # Panics
    /// As [`SimDevice::with_options`].
    pub fn copied_to(&self, runtime: &Arc<SimRuntime>, options: SimDeviceOptions) -> Arc<SimDevice> {
        let tear_bytes = u64::from(options.tear_bytes);
        let copy = SimDevice::with_options(runtime, &self.info.name, self.info.size_bytes, options);
        *copy.body.medium.lock() = self.body.medium.lock().copied(tear_bytes);
        copy
    }

    /// Hands the device to another runtime, which completes later submissions.
    pub fn attach(&self, runtime: &Arc<SimRuntime>) {
        self.body.medium.lock().recall();
        runtime.adopt(&self.body);
    }

    /// Returns the number of failed flushes so far, reported or not.
    pub fn failed_flushes(&self) -> u64 {
        self.body.medium.lock().failed_flushes()
    }

    /// Returns the number of changes that failed flushes forgot so far.
    pub fn forgotten(&self) -> u64 {
        self.body.medium.lock().forgotten()
    }

    /// Returns the planned failures. A failure is decided at an operation's submission, and told at
    /// its completion.
    pub fn plan(&self) -> &FaultPlan {
        &self.body.plan
    }

    /// Fails the next operation `op`.
    pub fn fail_next(&self, op: IoOp, kind: IoErrorKind) {
        self.body.plan.fail_next(op, kind);
    }

    /// Fails the next `times` operations `op` that overlap `range` of bytes.
    pub fn fail_range(&self, op: IoOp, range: Range<u64>, kind: IoErrorKind, times: u64) {
        self.body.plan.fail_range(op, range, kind, times);
    }

    /// Makes the device vanish with the operations in flight, or come back with its state, durable
    /// or not.
    pub fn set_gone(&self, gone: bool) {
        self.body.plan.set_gone(gone);
    }

    /// Makes this device alone lose power, behind the runtime's back.
    ///
    /// Each volatile change is kept, dropped or torn. With [`SimDevice::set_gone`] around it, the
    /// device was unplugged.
    pub fn power_cycle(&self, rng: &mut Rng) {
        self.body.power_loss(rng);
    }

    /// Fills the device up, like a sparse file on a full file system.
    ///
    /// Writes into empty pages of 4096 bytes fail with [`IoErrorKind::NoSpace`], others succeed.
    /// Discards and zeroes free pages and need none.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Relaxed);
    }

    /// Misdirects the next write to `to_offset`, or as near before the end as it fits.
    ///
    /// The write tells success, and leaves its own place unchanged.
    ///
    /// # Panics
    /// If `to_offset` is not a multiple of 512 bytes, or 1024 mischiefs are planned.
    pub fn misdirect_next_write(&self, to_offset: u64) {
        assert!(to_offset.is_multiple_of(SECTOR_BYTES), "misdirect to {to_offset}");
        self.mischiefs.plan(Mischief::Misdirect(to_offset));
    }

    /// Loses the next write, which tells success and does nothing.
    ///
    /// # Panics
    /// If 1024 mischiefs are planned.
    pub fn lose_next_write(&self) {
        self.mischiefs.plan(Mischief::Lose);
    }

    /// Flips between one and eight bits in the answer of the next read; the medium is unchanged.
    ///
    /// # Panics
    /// If 1024 mischiefs are planned.
    pub fn misread_next(&self, rng: &mut Rng) {
        self.mischiefs.plan(Mischief::Misread(rng.next_u64()));
    }

    /// Delays the next operation `op` (`None`: any) by `time` on the simulation's clock.
    ///
    /// In every schedule others overtake it for that long, unless nothing else is left to happen.
    ///
    /// # Panics
    /// If 1024 mischiefs are planned.
    pub fn delay_next(&self, op: Option<IoOp>, time: Duration) {
        self.mischiefs.plan(Mischief::Delay(op, time));
    }

    /// Forgets the mischief still planned: misdirected and lost writes, misreads, delays.
    pub fn clear_mischief(&self) {
        self.mischiefs.clear();
    }

    /// Flips between one and eight bits of `offset..offset + len`, durably and for reads.
    ///
    /// # Panics
    /// If the range is empty or not inside the device.
    pub fn corrupt(&self, offset: u64, len: u64, rng: &mut Rng) {
        assert!(len > 0 && offset.saturating_add(len) <= self.info.size_bytes, "corrupt {len} bytes at {offset}");
        self.body.medium.lock().flip_bits(offset, len, rng);
    }

    /// Returns the bytes that a read would see now.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.body.medium.lock().read(offset, &mut bytes);
        bytes
    }

    /// Returns the bytes that survive a power loss of everything not flushed.
    pub fn peek_durable(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.body.medium.lock().read_durable(offset, &mut bytes);
        bytes
    }

    /// Puts bytes on the medium, durably, at once and unnoticed: a misdirected write, an old image.
    ///
    /// # Panics
    /// If offset or length are not multiples of 512 bytes, or not inside the device.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        assert!(offset.is_multiple_of(512) && len.is_multiple_of(512), "poke {len} bytes at {offset}");
        assert!(offset.saturating_add(len) <= self.info.size_bytes, "poke {len} bytes at {offset}");
        let content = Content::Data(IoBuf::copy_of(bytes).freeze());
        self.body.medium.lock().change_durably(&Change { offset, len, content });
    }

    /// Returns the bytes written, discarded or zeroed that a power loss may still take.
    pub fn unflushed_bytes(&self) -> u64 {
        self.body.medium.lock().unflushed_bytes()
    }

    /// Returns the counts of the device's operations since its making, over all its lives.
    pub fn counters(&self) -> IoCounters {
        self.meter.get()
    }

    /// Fails if the operation will end with a failure.
    fn fate(&self, what: IoOp, offset: u64, len: u64) -> IoResult<()> {
        self.body.plan.check(what, offset, len)?;
        if what == IoOp::Write && self.full.load(Relaxed) && self.body.medium.lock().needs_space(offset, len) {
            return Err(IoError::new(IoErrorKind::NoSpace, what, offset, len).with_detail("planned by a test"));
        }
        Ok(())
    }

    /// Submits an operation, counted and with its fate decided. `make` gets its planned mischief.
    fn submit<T>(
        &self,
        what: IoOp,
        offset: u64,
        len: u64,
        make: impl FnOnce(Option<Mischief>, Completer<T>) -> SimOp,
    ) -> IoFuture<T> {
        self.meter.count(what, len);
        let checked = if what == IoOp::Flush { Ok(()) } else { self.info.check(what, offset, len) };
        let cancelled = || IoError::new(IoErrorKind::Cancelled, what, offset, len);
        let ready = checked.and_then(|()| {
            let runtime = self.body.home::<SimRuntime>().ok_or_else(cancelled)?;
            let fate = self.fate(what, offset, len);
            let (mischief, delay) = self.mischiefs.take(what);
            let (completer, future) = IoFuture::pending();
            let op = PendingOp { device: self.body.clone(), op: make(mischief, completer), fate };
            match runtime.submit(op, !matches!(what, IoOp::Read | IoOp::Extents), delay) {
                Ok(()) => Ok(future),
                Err(_closed) => Err(cancelled()),
            }
        });
        ready.unwrap_or_else(|error| IoFuture::ready(Err(error)))
    }

    fn submit_change(&self, what: IoOp, change: Change, fua: bool) -> IoFuture<()> {
        let (offset, len) = (change.offset, change.len);
        self.submit(what, offset, len, |mischief, done| {
            let rest = match mischief {
                Some(Mischief::Lose) => Vec::new(),
                Some(Mischief::Misdirect(to)) => vec![Change { offset: to.min(self.info.size_bytes - len), ..change }],
                _ => vec![change],
            };
            SimOp::Change { what, rest, fua, split: false, place: (offset, len), done }
        })
    }
}

impl BlockDevice for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let len = buf.len() as u64;
        self.submit(IoOp::Read, offset, len, |mischief, done| {
            let misread = match mischief {
                Some(Mischief::Misread(seed)) => Some(seed),
                _ => None,
            };
            SimOp::Read { offset, buf, filled: Vec::new(), misread, done }
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let change = Change { offset, len: data.len() as u64, content: Content::Data(data) };
        self.submit_change(IoOp::Write, change, flags.fua)
    }

    fn flush(&self) -> IoFuture<()> {
        let upto = self.body.medium.lock().next_change();
        self.submit(IoOp::Flush, 0, 0, |_, done| SimOp::Flush { upto, done })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        let content = if self.info.discard_zeroes {
            Content::Zeroes
        } else {
            Content::Undefined { seed: self.body.medium.lock().next_change() as u32, from: offset }
        };
        self.submit_change(IoOp::Discard, Change { offset, len, content }, false)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.submit_change(IoOp::WriteZeroes, Change { offset, len, content: Content::Zeroes }, flags.fua)
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.submit(IoOp::Extents, offset, len, |_, done| SimOp::Extents { offset, len, done })
    }
}
