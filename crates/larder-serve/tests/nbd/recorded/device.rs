//! A device that notes its operations, over known content and known extents.
//!
//! Invariants: an operation is noted at its end, and before its future resolves.
//!
//! It does not check the operations; the oracle does.

use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, SharedBuf, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{future::poll_fn, ops::Range, sync::Arc, task::Poll};

/// The operations of the device, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    Read(u64, usize),
    Write(u64, Vec<u8>, WriteFlags),
    Flush,
    Discard(u64, u64),
    Zero(u64, u64, ZeroFlags),
}

/// A noting device, as the module describes it.
pub struct Recorder {
    info: DeviceInfo,
    /// A run after the other, the whole device.
    extents: Vec<Extent>,
    /// Answers a little later, and knows its extents only then.
    is_late: bool,
    state: Arc<Mutex<State>>,
}

pub struct State {
    pub image: Vec<u8>,
    pub noted: Vec<Noted>,
    /// Reads and writes that touch this range fail after `good` successes.
    pub bad: Range<u64>,
    /// The number of those that succeed first.
    pub good: usize,
}

impl State {
    fn fails(&mut self, op: IoOp, offset: u64, len: usize) -> Option<IoError> {
        if self.bad.start >= offset + len as u64 || offset >= self.bad.end {
            return None;
        }
        match self.good.checked_sub(1) {
            Some(left) => self.good = left,
            None => return Some(IoError::new(IoErrorKind::Io, op, offset, len as u64)),
        }
        None
    }
}

impl Recorder {
    /// Returns a device with these runs; a nonzero run has content that differs from place to
    /// place.
    pub fn new(block_bytes: u32, extents: Vec<Extent>, is_late: bool) -> Recorder {
        let size_bytes = extents.iter().map(|extent| extent.len).sum();
        let mut image = Vec::with_capacity(size_bytes as usize);
        for extent in &extents {
            let from = image.len() as u64;
            image.extend((from..from + extent.len).map(|at| if extent.zero { 0 } else { content(at) }));
        }
        let info = DeviceInfo {
            name: "recorder".into(),
            size_bytes,
            sector_bytes: block_bytes,
            physical_sector_bytes: block_bytes,
            optimal_io_bytes: 64 << 10,
            request_bytes_max: 64 << 20,
            discard_zeroes: false,
            zeroes_fast: true,
            read_only: false,
        };
        let state = State { image, noted: Vec::new(), bad: 0..0, good: 0 };
        Recorder { info, extents, is_late, state: Arc::new(Mutex::new(state)) }
    }

    pub fn zeroes_slowly(mut self) -> Recorder {
        self.info.zeroes_fast = false;
        self
    }

    pub fn read_only(mut self) -> Recorder {
        self.info.read_only = true;
        self
    }

    pub fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the operations noted since the last call.
    pub fn noted(&self) -> Vec<Noted> {
        std::mem::take(&mut self.state.lock().noted)
    }

    /// Returns the runs of a range.
    pub fn runs(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut at = 0;
        let mut runs = Vec::new();
        for extent in &self.extents {
            let (from, to) = (at.max(offset), (at + extent.len).min(offset + len));
            if from < to {
                runs.push(Extent { len: to - from, ..*extent });
            }
            at += extent.len;
        }
        runs
    }

    fn done<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut State) -> Result<T, IoError> + Send + 'static,
    ) -> IoFuture<T> {
        if !self.is_late {
            return IoFuture::ready(act(&mut self.state.lock()));
        }
        let state = self.state.clone();
        IoFuture::boxed(async move {
            let mut turns = 2;
            poll_fn(move |cx| {
                turns -= 1;
                cx.waker().wake_by_ref();
                if turns == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            act(&mut state.lock())
        })
    }
}

/// Returns the content at an offset: neither zero nor the same in any two blocks nearby.
pub fn content(at: u64) -> u8 {
    let mixed = (at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_le_bytes()[(at % 8) as usize] | 1
}

impl BlockDevice for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        self.done(move |state| {
            state.noted.push(Noted::Read(offset, buf.len()));
            if let Some(error) = state.fails(IoOp::Read, offset, buf.len()) {
                return Err(error);
            }
            let from = offset as usize;
            let len = buf.len();
            buf.copy_from_slice(&state.image[from..from + len]);
            Ok(buf)
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.done(move |state| {
            state.noted.push(Noted::Write(offset, data.to_vec(), flags));
            state.fails(IoOp::Write, offset, data.len()).map_or(Ok(()), Err)
        })
    }
    fn flush(&self) -> IoFuture<()> {
        self.done(|state| {
            state.noted.push(Noted::Flush);
            Ok(())
        })
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.done(move |state| {
            state.noted.push(Noted::Discard(offset, len));
            Ok(())
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.done(move |state| {
            state.noted.push(Noted::Zero(offset, len, flags));
            Ok(())
        })
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        let runs = self.runs(offset, len);
        self.done(move |_| Ok(runs))
    }
}
