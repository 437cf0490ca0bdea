//! The dispatch of every front end: a client's request goes to the device, and its reply comes
//! back.
//!
//! Role: a front end translates its bytes to a [`Request`], has the [`Limits`] check it, and hands
//! it to [`Dispatch::start`]. The outcome is a [`Reply`], or an error of the device. A long read or
//! write may be handed over in pieces ([`Request::piece`]), each when there is memory for it.
//!
//! Invariants: a checked request is inside the device, aligned, and no longer than its limits. A
//! piece of a write is as durable as the whole must be. The device gets and returns the very
//! buffers of front ends. A begun request that the device answers at once allocates nothing here.
//!
//! It knows no protocol, bounds no memory, and keeps no order among requests.

use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags,
    ZeroFlags,
};
use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// Extents in one reply.
pub(crate) const EXTENTS_MAX: usize = 1024;
/// Reads of at least this many bytes ask the device for holes, so that zeroes need not travel.
pub(crate) const SPARSE_READ_BYTES_MIN: u32 = 64 << 10;

/// A client's request. Offsets and lengths are in bytes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read {
        offset: u64,
        len: u32,
        /// The data must come as one buffer, zeroes included.
        whole: bool,
    },
    /// A write, whose payload comes beside it.
    Write {
        offset: u64,
        len: u32,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        len: u32,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        len: u32,
        flags: ZeroFlags,
    },
    /// The question for the allocation states of a range.
    Extents {
        offset: u64,
        len: u32,
        /// Only the first one is wanted.
        one: bool,
    },
}

/// The limits of requests to a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Size of the device.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this.
    pub block_bytes: u32,
    /// Longest read or write.
    pub request_bytes_max: u32,
    /// Requests that change the device are refused.
    pub read_only: bool,
}

/// The reason of a refusal before the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The device may not be changed.
    ReadOnly,
    /// The range is empty.
    Empty,
    /// The range reaches past the end of the device.
    PastEnd,
    /// Offset or length is no multiple of the block.
    Unaligned,
    /// A read or write is longer than the limit.
    TooLong,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Success, without data.
    Done,
    /// The content of a read.
    Read(Content),
    /// Extents from the offset on: at least one, and at most [`EXTENTS_MAX`].
    Extents(Vec<Extent>),
}

/// The content of a read.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it, from its offset on.
    Data(u64, IoBuf),
    /// Its pieces in order, at least one: zeroes are a length alone.
    Sparse(Vec<SparsePiece>),
}

/// A piece of a sparse read. Offsets and lengths are in bytes.
#[derive(Debug)]
pub(crate) enum SparsePiece {
    /// Data at an offset.
    Data(u64, IoBuf),
    /// Zeroes at an offset.
    Zeroes(u64, u32),
}

/// A request that the device has: the future of its [`Reply`].
pub(crate) enum Begun {
    #[allow(missing_docs)]
    Done(IoFuture<()>),
    Data(u64, IoFuture<IoBuf>),
    Sparse(IoFuture<Vec<SparsePiece>>),
    Extents(ExtentsAsked, IoFuture<Vec<Extent>>),
}

/// A question for extents.
#[derive(Clone, Copy)]
pub(crate) struct ExtentsAsked {
    len: u32,
    block_bytes: u32,
    one: bool,
}

/// A device behind a front end, for the requests of one client.
pub(crate) struct Dispatch {
    device: Arc<dyn BlockDevice>,
    limits: Limits,
    /// The device has answered for extents without waiting so far.
    extents_are_cheap: Cell<bool>,
}

impl Request {
    /// Returns the operation of the device.
    pub fn op(self) -> IoOp {
        match self {
            Request::Read { .. } => IoOp::Read,
            Request::Write { .. } => IoOp::Write,
            Request::Flush => IoOp::Flush,
            Request::Trim { .. } => IoOp::Discard,
            Request::WriteZeroes { .. } => IoOp::WriteZeroes,
            Request::Extents { .. } => IoOp::Extents,
        }
    }

    /// Returns whether the request changes the device.
    pub fn changes(self) -> bool {
        matches!(self.op(), IoOp::Write | IoOp::Discard | IoOp::WriteZeroes)
    }

    /// Returns offset and length; zeroes for a flush.
    pub fn range(self) -> (u64, u32) {
        match self {
            Request::Flush => (0, 0),
            Request::Read { offset, len, .. }
            | Request::Write { offset, len, .. }
            | Request::Trim { offset, len, .. }
            | Request::WriteZeroes { offset, len, .. }
            | Request::Extents { offset, len, .. } => (offset, len),
        }
    }

    /// Returns the piece of a read or write that begins `at` bytes after its offset.
    ///
    /// The piece of another request is all of it.
    pub fn piece(self, at: u32, len: u32) -> Request {
        let at = u64::from(at);
        match self {
            Request::Read { offset, whole, .. } => Request::Read { offset: offset + at, len, whole },
            Request::Write { offset, fua, .. } => Request::Write { offset: offset + at, len, fua },
            other => other,
        }
    }
}

impl Limits {
    /// Returns the limits of a device whose front end takes reads and writes of `bytes_max`.
    pub fn new(info: &DeviceInfo, bytes_max: u32) -> Limits {
        let block_bytes = info.sector_bytes.max(1);
        let request_bytes_max = bytes_max.min(info.request_bytes_max).max(block_bytes) / block_bytes * block_bytes;
        Limits { size_bytes: info.size_bytes, block_bytes, request_bytes_max, read_only: info.read_only }
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The first of the reasons that holds, in their order.
    pub fn check(&self, request: Request) -> Result<(), Refusal> {
        if request == Request::Flush {
            return Ok(());
        }
        let (offset, len) = request.range();
        let block_bytes = u64::from(self.block_bytes);
        let is_outside = offset.checked_add(u64::from(len)).is_none_or(|end| end > self.size_bytes);
        let has_data = matches!(request, Request::Read { .. } | Request::Write { .. });
        match () {
            () if request.changes() && self.read_only => Err(Refusal::ReadOnly),
            () if len == 0 => Err(Refusal::Empty),
            () if is_outside => Err(Refusal::PastEnd),
            () if offset % block_bytes != 0 || u64::from(len) % block_bytes != 0 => Err(Refusal::Unaligned),
            () if has_data && len > self.request_bytes_max => Err(Refusal::TooLong),
            () => Ok(()),
        }
    }
}

impl Dispatch {
    /// Returns the dispatch to `device`, within `limits`.
    pub fn new(device: Arc<dyn BlockDevice>, limits: Limits) -> Dispatch {
        Dispatch { device, limits, extents_are_cheap: Cell::new(true) }
    }

    /// Starts a checked request at the device. `payload` is the data of a write, and of no other.
    pub fn start(&self, request: Request, payload: Option<SharedBuf>) -> Begun {
        match request {
            Request::Read { offset, len, whole: false } if self.may_omit(len) => self.read_sparse(offset, len),
            Request::Read { offset, len, .. } => Begun::Data(offset, self.read(offset, len)),
            Request::Write { offset, len, fua } => Begun::Done(match payload {
                Some(data) if data.len() == len as usize => self.device.write(offset, data, WriteFlags { fua }),
                _ => refused(IoErrorKind::Unaligned, request),
            }),
            Request::Flush => Begun::Done(self.device.flush()),
            Request::Trim { offset, len, fua: false } => Begun::Done(self.device.discard(offset, u64::from(len))),
            Request::Trim { offset, len, fua: true } => Begun::Done(self.discard_and_flush(offset, u64::from(len))),
            Request::WriteZeroes { offset, len, flags } => {
                // A device that would write the zeroes as data is slow.
                let is_slow = flags.fast_only && !self.device.info().zeroes_fast;
                Begun::Done(match is_slow {
                    true => refused(IoErrorKind::Unsupported, request),
                    false => self.device.write_zeroes(offset, u64::from(len), flags),
                })
            }
            Request::Extents { offset, len, one } => {
                let asked = ExtentsAsked { len, block_bytes: self.limits.block_bytes, one };
                Begun::Extents(asked, self.device.extents(offset, u64::from(len)))
            }
        }
    }

    /// Starts a read of `len` bytes into one buffer, as for a [`Request::Read`] that wants a whole.
    pub fn read(&self, offset: u64, len: u32) -> IoFuture<IoBuf> {
        self.device.read(offset, IoBuf::new(len as usize))
    }

    fn discard_and_flush(&self, offset: u64, len: u64) -> IoFuture<()> {
        let (device, discarded) = (self.device.clone(), self.device.discard(offset, len));
        IoFuture::boxed(async move {
            discarded.await?;
            device.flush().await
        })
    }

    /// Returns whether the omission of zeroes may pay for a read of `len` bytes.
    fn may_omit(&self, len: u32) -> bool {
        len >= SPARSE_READ_BYTES_MIN && self.extents_are_cheap.get()
    }

    /// Starts a read without its zeroes, if there are any.
    fn read_sparse(&self, offset: u64, len: u32) -> Begun {
        match self.device.extents(offset, u64::from(len)).try_ready() {
            Ok(Ok(extents)) if extents.iter().any(|extent| extent.zero) => {
                return Begun::Sparse(self.read_around_zeroes(offset, len, &extents));
            }
            Ok(_) => {}
            // A device that must do I/O to know its holes is not asked again.
            Err(_) => self.extents_are_cheap.set(false),
        }
        Begun::Data(offset, self.read(offset, len))
    }

    /// Reads the ranges that are not zero, all at once, into one buffer.
    fn read_around_zeroes(&self, offset: u64, len: u32, extents: &[Extent]) -> IoFuture<Vec<SparsePiece>> {
        let mut runs = tidy(extents, u64::from(len), u64::from(self.limits.block_bytes));
        let covered: u64 = runs.iter().map(|run| run.len).sum();
        if covered < u64::from(len) {
            runs.push(Extent { len: u64::from(len) - covered, hole: false, zero: false });
        }
        let data_bytes: u64 = runs.iter().filter(|run| !run.zero).map(|run| run.len).sum();
        let mut buf = IoBuf::new(data_bytes as usize);
        let mut at = offset;
        let mut reads = Vec::with_capacity(runs.len());
        for run in &runs {
            let data = (!run.zero).then(|| self.device.read(at, buf.split_to(run.len as usize)));
            reads.push((at, run.len as u32, data));
            at += run.len;
        }
        if reads.iter().all(|(_, _, data)| data.is_none()) {
            let zeroes = reads.into_iter().map(|(at, len, _)| SparsePiece::Zeroes(at, len));
            return IoFuture::ready(Ok(zeroes.collect()));
        }
        IoFuture::boxed(async move {
            let mut pieces = Vec::with_capacity(reads.len());
            for (at, len, data) in reads {
                pieces.push(match data {
                    Some(data) => SparsePiece::Data(at, data.await?),
                    None => SparsePiece::Zeroes(at, len),
                });
            }
            Ok(pieces)
        })
    }
}

impl Begun {
    /// Returns the outcome if the device had it at once; else the begun request.
    pub fn try_ready(self) -> Result<IoResult<Reply>, Begun> {
        match self {
            Begun::Done(done) => done.try_ready().map(|result| result.map(|()| Reply::Done)).map_err(Begun::Done),
            Begun::Data(offset, data) => match data.try_ready() {
                Ok(result) => Ok(result.map(|data| Reply::Read(Content::Data(offset, data)))),
                Err(data) => Err(Begun::Data(offset, data)),
            },
            Begun::Sparse(pieces) => match pieces.try_ready() {
                Ok(result) => Ok(result.map(|pieces| Reply::Read(Content::Sparse(pieces)))),
                Err(pieces) => Err(Begun::Sparse(pieces)),
            },
            Begun::Extents(asked, extents) => match extents.try_ready() {
                Ok(result) => Ok(result.map(|extents| asked.answer(&extents))),
                Err(extents) => Err(Begun::Extents(asked, extents)),
            },
        }
    }
}

impl Future for Begun {
    type Output = IoResult<Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<Reply>> {
        match self.get_mut() {
            Begun::Done(done) => Pin::new(done).poll(cx).map_ok(|()| Reply::Done),
            Begun::Data(offset, data) => {
                let offset = *offset;
                Pin::new(data).poll(cx).map_ok(|data| Reply::Read(Content::Data(offset, data)))
            }
            Begun::Sparse(pieces) => Pin::new(pieces).poll(cx).map_ok(|pieces| Reply::Read(Content::Sparse(pieces))),
            Begun::Extents(asked, extents) => {
                let asked = *asked;
                Pin::new(extents).poll(cx).map_ok(|extents| asked.answer(&extents))
            }
        }
    }
}

impl ExtentsAsked {
    /// Returns the reply for a device's extents.
    fn answer(self, extents: &[Extent]) -> Reply {
        let mut extents = tidy(extents, u64::from(self.len), u64::from(self.block_bytes));
        extents.truncate(if self.one { 1 } else { extents.len() });
        Reply::Extents(extents)
    }
}

fn refused(kind: IoErrorKind, request: Request) -> IoFuture<()> {
    let (offset, len) = request.range();
    IoFuture::ready(Err(IoError::new(kind, request.op(), offset, u64::from(len))))
}

/// Returns a device's extents in the form of a reply, at least one and at most [`EXTENTS_MAX`].
///
/// None is empty, and equal neighbours are merged. They have no more than `len` bytes in all, and
/// each but the last is a multiple of `block_bytes`.
fn tidy(extents: &[Extent], len: u64, block_bytes: u64) -> Vec<Extent> {
    let mut tidied: Vec<Extent> = Vec::new();
    let mut left = len;
    for extent in extents {
        let take = extent.len.min(left);
        let whole = take - take % block_bytes;
        if whole > 0 {
            let full = tidied.len() == EXTENTS_MAX;
            match tidied.last_mut() {
                Some(last) if last.hole == extent.hole && last.zero == extent.zero => last.len += whole,
                _ if full => break,
                _ => tidied.push(Extent { len: whole, ..*extent }),
            }
        }
        left -= whole;
        // A device's extent that ends inside a block ends the answer: a later one would be
        // misplaced.
        if whole < extent.len {
            break;
        }
    }
    if tidied.is_empty() {
        tidied.push(Extent { len, hole: false, zero: false });
    }
    tidied
}

#[cfg(test)]
mod tests;
