//! [`NbdDevice`]: a device behind an NBD server.
//!
//! Invariants: many requests are in flight at once. A lost connection fails everything in flight
//! with [`IoErrorKind::Gone`]. Later requests connect again, no sooner than a backoff allows, and
//! wait for the outcome. An export that comes back with another size, coarser blocks or fewer
//! abilities stays gone. If the lost connection had acknowledged writes that were not flushed, the
//! next flush fails, once: the server may have lost them. A caller that shares the device among
//! several that flush must tell them all.
//!
//! It does not retry requests or find holes. A `write_zeroes` by data whose future was dropped does
//! not stop at once, but after the pieces sent so far.

use super::{
    connect::{self, NbdUri, Opened},
    proto::{command, command_flag, transmission_flag as flag},
    transfer::{Call, IN_FLIGHT_MAX, Link, Waiter},
};
use crate::{
    BlockDevice, DeviceInfo, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The error of a flush after such a loss.
const WRITES_LOST: &str = "the connection was lost with writes that were not flushed";
/// Longest request that callers may make; the server's own limit splits it.
const REQUEST_BYTES_MAX: u32 = 64 << 20;
/// Longest read or write that is sent, in bytes, under any limit of the server.
const PIECE_BYTES_MAX: u32 = 32 << 20;
/// Longest range of a sent TRIM or WRITE_ZEROES, in bytes.
const RANGE_BYTES_MAX: u32 = 1 << 30;
/// Zeroes in one write if the server has no WRITE_ZEROES.
const ZERO_PIECE_BYTES: u32 = 1 << 20;
/// Calls that wait for a connection attempt.
const PARKED_MAX: usize = IN_FLIGHT_MAX;
/// Pause after the first failed attempt to connect again; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The default time limit of a connection to a server.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest block size that a device may have here.
const SECTOR_BYTES_MAX: u32 = 4096;

/// A device behind an NBD server.
pub struct NbdDevice {
    info: DeviceInfo,
    canonical_uri: String,
    remote: Arc<Remote>,
}

/// The server, as requests need it.
struct Remote {
    uri: NbdUri,
    /// The time limit of a connection attempt.
    timeout: Duration,
    size_bytes: u64,
    sector_bytes: u32,
    flags: u16,
    piece_bytes_max: u32,
    state: Mutex<RemoteState>,
}

struct RemoteState {
    connection: Connection,
    /// Acknowledged writes may be lost, and no flush has reported it yet.
    writes_lost: bool,
    closed: bool,
}

enum Connection {
    Up(Arc<Link>),
    Down { retry_at: Instant, backoff: Duration },
    Connecting { parked: Vec<Call>, backoff: Duration },
}

impl NbdDevice {
    /// Connects to `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`. Blocks until the
    /// handshake is over.
    pub fn connect(uri: &str) -> IoResult<Arc<NbdDevice>> {
        Self::connect_with(uri, false, OPEN_TIMEOUT)
    }

    /// Connects with options, as [`NbdDevice::connect`].
    ///
    /// With `read_only` set the device refuses writes, even if the server allows them. `timeout`
    /// ends this connection attempt and each later one if the server does not answer.
    pub fn connect_with(uri: &str, read_only: bool, timeout: Duration) -> IoResult<Arc<NbdDevice>> {
        let uri = NbdUri::parse(uri)?;
        let opened = connect::open(&uri, timeout)?;
        Self::over(uri, opened, read_only, timeout)
    }

    /// Returns a device over a connection past its handshake.
    pub(super) fn over(uri: NbdUri, opened: Opened, read_only: bool, timeout: Duration) -> IoResult<Arc<NbdDevice>> {
        let sector_bytes = opened.block_bytes_min.max(512);
        if sector_bytes > SECTOR_BYTES_MAX {
            return Err(IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0)
                .with_detail(format!("the server's blocks of {sector_bytes} bytes are too large")));
        }
        let size_bytes = opened.size_bytes - opened.size_bytes % u64::from(sector_bytes);
        let piece_bytes_max = opened.request_bytes_max.min(PIECE_BYTES_MAX).max(sector_bytes);
        let canonical_uri = uri.canonical();
        let info = DeviceInfo {
            name: canonical_uri.clone(),
            size_bytes,
            sector_bytes,
            physical_sector_bytes: opened.block_bytes_preferred.clamp(sector_bytes, 4096).max(sector_bytes),
            optimal_io_bytes: opened.block_bytes_preferred.clamp(64 << 10, 4 << 20),
            request_bytes_max: REQUEST_BYTES_MAX,
            discard_zeroes: false,
            zeroes_fast: opened.flags & flag::SEND_WRITE_ZEROES != 0,
            read_only: read_only || opened.flags & flag::READ_ONLY != 0,
        };
        let remote = Remote {
            uri,
            timeout,
            size_bytes: opened.size_bytes,
            sector_bytes,
            flags: opened.flags,
            piece_bytes_max: piece_bytes_max - piece_bytes_max % sector_bytes,
            state: Mutex::new(RemoteState {
                connection: Connection::Up(Link::start(opened.stream)?),
                writes_lost: false,
                closed: false,
            }),
        };
        Ok(Arc::new(NbdDevice { info, canonical_uri, remote: Arc::new(remote) }))
    }

    /// Returns the address in its one canonical form.
    pub fn canonical_uri(&self) -> &str {
        &self.canonical_uri
    }

    /// Returns the bytes of the export behind its last whole block, which no request reaches.
    pub fn cut_bytes(&self) -> u64 {
        self.remote.size_bytes - self.info.size_bytes
    }

    /// Returns the pieces of a range, none longer than `piece_max`.
    fn pieces(offset: u64, len: u64, piece_max: u32) -> impl Iterator<Item = (u64, u32)> {
        let piece_max = u64::from(piece_max);
        (0..len.div_ceil(piece_max)).map(move |i| {
            let at = i * piece_max;
            (offset + at, (len - at).min(piece_max) as u32)
        })
    }

    /// Sends one command for each piece of a range.
    fn over_range(&self, command: u16, flags: u16, offset: u64, len: u64) -> IoFuture<()> {
        let calls: Vec<_> = Self::pieces(offset, len, RANGE_BYTES_MAX)
            .map(|(offset, len)| self.remote.done(command, flags, offset, len, None))
            .collect();
        all(calls)
    }

    /// Adds a flush after `first` if the server lacks FUA for the command.
    fn then_flush(&self, first: IoFuture<()>) -> IoFuture<()> {
        let remote = self.remote.clone();
        IoFuture::boxed(async move {
            first.await?;
            remote.flush().await
        })
    }

    /// Returns whether a flush must stand in for FUA, and the flag otherwise.
    fn fua(&self, fua: bool) -> (bool, u16) {
        match (fua, self.remote.has(flag::SEND_FUA)) {
            (false, _) => (false, 0),
            (true, true) => (false, command_flag::FUA),
            (true, false) => (true, 0),
        }
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        let mut state = self.remote.state.lock();
        state.closed = true;
        let link = match &state.connection {
            Connection::Up(link) => Some(link.clone()),
            _ => None,
        };
        drop(state);
        if let Some(link) = link {
            link.close();
        }
    }
}

/// Waits for all of them; the first error counts.
fn all(mut futures: Vec<IoFuture<()>>) -> IoFuture<()> {
    if futures.len() <= 1 {
        return futures.pop().unwrap_or_else(|| IoFuture::ready(Ok(())));
    }
    IoFuture::boxed(async move {
        let mut result = Ok(());
        for future in futures {
            result = result.and(future.await);
        }
        result
    })
}

impl BlockDevice for NbdDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        if let Err(error) = self.info.check(IoOp::Read, offset, buf.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        if buf.is_empty() {
            return IoFuture::ready(Ok(buf));
        }
        if buf.len() as u64 <= u64::from(self.remote.piece_bytes_max) {
            return self.remote.read(offset, buf);
        }
        let mut reads = Vec::new();
        for (offset, len) in Self::pieces(offset, buf.len() as u64, self.remote.piece_bytes_max) {
            let piece = buf.split_to(len as usize);
            reads.push(self.remote.read(offset, piece));
        }
        IoFuture::boxed(async move {
            let mut whole: Option<IoBuf> = None;
            for read in reads {
                let piece = read.await?;
                match &mut whole {
                    Some(whole) => whole.unsplit(piece).expect("the pieces of a buffer come back in order"),
                    None => whole = Some(piece),
                }
            }
            Ok(whole.unwrap_or_else(|| IoBuf::new(0)))
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        if let Err(error) = self.info.check(IoOp::Write, offset, data.len() as u64) {
            return IoFuture::ready(Err(error));
        }
        let (flush_after, wire_flags) = self.fua(flags.fua);
        let calls: Vec<_> = Self::pieces(offset, data.len() as u64, self.remote.piece_bytes_max)
            .map(|(at, len)| {
                let from = (at - offset) as usize;
                let piece = data.slice(from..from + len as usize);
                self.remote.done(command::WRITE, wire_flags, at, len, Some(piece))
            })
            .collect();
        if flush_after { self.then_flush(all(calls)) } else { all(calls) }
    }

    fn flush(&self) -> IoFuture<()> {
        self.remote.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        if let Err(error) = self.info.check(IoOp::Discard, offset, len) {
            return IoFuture::ready(Err(error));
        }
        if !self.remote.has(flag::SEND_TRIM) {
            return IoFuture::ready(Ok(()));
        }
        self.over_range(command::TRIM, 0, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        if let Err(error) = self.info.check(IoOp::WriteZeroes, offset, len) {
            return IoFuture::ready(Err(error));
        }
        let needed = if flags.fast_only { flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO } else { 0 };
        if !self.remote.has(needed) {
            return IoFuture::ready(Err(IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len)));
        }
        let (flush_after, mut wire_flags) = self.fua(flags.fua);
        let zeroed = if self.remote.has(flag::SEND_WRITE_ZEROES) {
            wire_flags |= if flags.no_hole { command_flag::NO_HOLE } else { 0 };
            wire_flags |= if flags.fast_only { command_flag::FAST_ZERO } else { 0 };
            self.over_range(command::WRITE_ZEROES, wire_flags, offset, len)
        } else {
            let remote = self.remote.clone();
            let zeroes = IoBuf::zeroed(ZERO_PIECE_BYTES.min(remote.piece_bytes_max) as usize).freeze();
            IoFuture::boxed(async move {
                for (at, len) in Self::pieces(offset, len, zeroes.len() as u32) {
                    let piece = zeroes.slice(0..len as usize);
                    remote.done(command::WRITE, wire_flags, at, len, Some(piece)).await?;
                }
                Ok(())
            })
        };
        if flush_after { self.then_flush(zeroed) } else { zeroed }
    }
}

impl Remote {
    fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    fn read(self: &Arc<Self>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let (completer, future) = IoFuture::pending();
        let len = buf.len() as u32;
        let to = Waiter::Read(buf, completer);
        self.call(Call { command: command::READ, flags: 0, offset, len, data: None, to });
        future
    }

    fn done(
        self: &Arc<Self>,
        command: u16,
        flags: u16,
        offset: u64,
        len: u32,
        data: Option<SharedBuf>,
    ) -> IoFuture<()> {
        let (completer, future) = IoFuture::pending();
        self.call(Call { command, flags, offset, len, data, to: Waiter::Done(completer) });
        future
    }

    /// Flushes the server. If it cannot, it promises nothing about power loss, and no request is
    /// sent.
    fn flush(self: &Arc<Self>) -> IoFuture<()> {
        if self.has(flag::SEND_FLUSH) {
            return self.done(command::FLUSH, 0, 0, 0, None);
        }
        let mut state = self.state.lock();
        state.notice_loss();
        match state.tell_lost_writes() {
            true => IoFuture::ready(Err(IoError::new(IoErrorKind::Io, IoOp::Flush, 0, 0).with_detail(WRITES_LOST))),
            false => IoFuture::ready(Ok(())),
        }
    }

    /// Sends a call. Connects first if that is due.
    fn call(self: &Arc<Self>, call: Call) {
        let mut state = self.state.lock();
        state.notice_loss();
        // The same lock chooses the connection: one that comes up in between would answer for
        // writes that it never had.
        if call.command == command::FLUSH && state.tell_lost_writes() {
            drop(state);
            return call.fail(IoErrorKind::Io, WRITES_LOST);
        }
        match &mut state.connection {
            Connection::Up(link) => {
                let link = link.clone();
                drop(state);
                link.submit(call);
            }
            Connection::Connecting { parked, .. } if parked.len() < PARKED_MAX => parked.push(call),
            Connection::Down { retry_at, backoff } if Instant::now() >= *retry_at => {
                let backoff = *backoff;
                state.connection = Connection::Connecting { parked: vec![call], backoff };
                drop(state);
                let remote = self.clone();
                let thread = std::thread::Builder::new().name("nbd-connect".into());
                if thread.spawn(move || remote.connect_again()).is_err() {
                    self.end_attempt(Err(connect::failed("no thread could be started to connect again")));
                }
            }
            _ => {
                drop(state);
                call.fail(IoErrorKind::Gone, "");
            }
        }
    }

    fn connect_again(self: Arc<Self>) {
        let link = connect::open(&self.uri, self.timeout).and_then(|opened: Opened| {
            let lacks = self.flags & !opened.flags & !flag::CAN_MULTI_CONN != 0;
            let read_only = opened.flags & !self.flags & flag::READ_ONLY != 0;
            let limits = opened.request_bytes_max < self.piece_bytes_max;
            let coarser = opened.block_bytes_min > self.sector_bytes;
            if opened.size_bytes != self.size_bytes || lacks || read_only || limits || coarser {
                return Err(connect::failed(
                    "the export came back with another size, coarser blocks or other abilities",
                ));
            }
            Link::start(opened.stream)
        });
        self.end_attempt(link);
    }

    /// Ends an attempt to connect; the calls that waited for it go on, or fail.
    fn end_attempt(&self, link: IoResult<Arc<Link>>) {
        let mut state = self.state.lock();
        let next = match (&link, &state.connection) {
            (Ok(link), _) if !state.closed => Connection::Up(link.clone()),
            (_, Connection::Connecting { backoff, .. }) => {
                let backoff = (*backoff).clamp(BACKOFF_MIN, BACKOFF_MAX);
                Connection::Down { retry_at: Instant::now() + backoff, backoff: backoff * 2 }
            }
            _ => Connection::Down { retry_at: Instant::now(), backoff: BACKOFF_MIN },
        };
        let closed = state.closed;
        let parked = match std::mem::replace(&mut state.connection, next) {
            Connection::Connecting { parked, .. } => parked,
            _ => Vec::new(),
        };
        drop(state);
        match link {
            Ok(link) if closed => {
                link.close();
                parked.into_iter().for_each(|call| call.fail(IoErrorKind::Gone, "the device was closed"));
            }
            Ok(link) => parked.into_iter().for_each(|call| link.submit(call)),
            Err(error) => {
                let why = error.to_string();
                parked.into_iter().for_each(|call| call.fail(IoErrorKind::Gone, &why));
            }
        }
    }
}

impl RemoteState {
    /// Returns whether acknowledged writes may be lost without a report; the caller's flush reports
    /// it.
    fn tell_lost_writes(&mut self) -> bool {
        std::mem::take(&mut self.writes_lost)
    }

    /// Notes that the connection was lost, and whether acknowledged writes may be.
    fn notice_loss(&mut self) {
        if let Connection::Up(link) = &self.connection
            && link.gone()
        {
            self.writes_lost |= link.unflushed();
            self.connection = Connection::Down { retry_at: Instant::now(), backoff: BACKOFF_MIN };
        }
    }
}
