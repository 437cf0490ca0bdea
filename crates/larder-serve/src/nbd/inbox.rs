//! The received bytes before their parsing.
//!
//! Role: many requests are parsed from one buffer for one receive. A small payload is copied out of
//! it, once; a large one is received into its own buffer.
//!
//! Invariants: at most [`RECEIVE_BUFFER_BYTES`] are held.
//!
//! It does not parse.

use super::limits::RECEIVE_BUFFER_BYTES;
use super::peer::Peer;
use larder_device::{IoBuf, IoError, IoErrorKind, IoOp, IoResult, SharedBuf, driver, nbd::socket};
use std::{
    io::ErrorKind,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// The longest payload that goes through the receive buffer.
///
/// The bytes behind it then come in the same receive.
const COPIED_PAYLOAD_BYTES_MAX: usize = 32 << 10;

/// The receive side of a connection.
pub(super) struct Inbox {
    peer: Arc<Peer>,
    buf: IoBuf,
    start: usize,
    end: usize,
    spin_max: Duration,
    /// The last request came so soon that a spin was, or would have been, worth it.
    spins: bool,
}

fn closed() -> IoError {
    IoError::new(IoErrorKind::Gone, IoOp::Read, 0, 0)
}

impl Inbox {
    /// Returns an empty inbox.
    ///
    /// It spins at most this long for a client that sends one request after another.
    pub fn new(peer: Arc<Peer>, spin_max: Duration) -> Inbox {
        Inbox { peer, buf: IoBuf::new(RECEIVE_BUFFER_BYTES), start: 0, end: 0, spin_max, spins: false }
    }

    /// Returns the received bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or(&[])
    }

    /// Drops the first `n` bytes.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// Waits for more bytes. Fails if the peer has closed, or if the buffer is full.
    pub async fn fill(&mut self) -> IoResult<()> {
        self.compact();
        let mut rest = std::mem::replace(&mut self.buf, IoBuf::new(0));
        let mut head = rest.split_to(self.end);
        let (rest, n) = driver::recv(self.peer.socket.as_raw_fd(), rest).await?;
        head.unsplit(rest).expect("the pieces of the receive buffer are neighbours");
        self.buf = head;
        self.received(n)
    }

    /// Fills the inbox, as [`Inbox::fill`], for a connection without other work.
    ///
    /// Then it pays to look a few times before the thread sleeps. A wake-up takes longer than the
    /// next request of a client that waits for each reply. The thread does nothing else meanwhile.
    /// So the time is short, and only spent if it paid the last time.
    pub async fn fill_idle(&mut self) -> IoResult<()> {
        self.compact();
        let since = Instant::now();
        while self.spins {
            let room = self.buf.get_mut(self.end..).unwrap_or(&mut []);
            match socket::receive(self.peer.socket.as_fd(), room, false) {
                Ok(n) => return self.received(n),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(closed()),
                Err(_) if since.elapsed() >= self.spin_max => break,
                // The client may need this very processor.
                Err(_) => std::thread::yield_now(),
            }
        }
        self.fill().await?;
        self.spins = since.elapsed() <= self.spin_max * 2;
        Ok(())
    }

    /// Moves the received bytes to the front, to make room behind them.
    fn compact(&mut self) {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    fn received(&mut self, n: usize) -> IoResult<()> {
        self.end += n;
        if n == 0 { Err(closed()) } else { Ok(()) }
    }

    /// Returns whether a payload of `len` bytes is here already.
    pub fn has(&self, len: usize) -> bool {
        self.end - self.start >= len
    }

    /// Takes a payload of `len` bytes.
    pub async fn payload(&mut self, len: usize) -> IoResult<SharedBuf> {
        if len <= COPIED_PAYLOAD_BYTES_MAX {
            while !self.has(len) {
                self.fill().await?;
            }
        }
        let mut rest = IoBuf::new(len);
        let here = len.min(self.bytes().len());
        let mut payload = rest.split_to(here);
        payload.copy_from_slice(&self.bytes()[..here]);
        self.consume(here);
        while !rest.is_empty() {
            let (received, n) = driver::recv(self.peer.socket.as_raw_fd(), rest).await?;
            rest = received;
            if n == 0 {
                return Err(closed());
            }
            payload.unsplit(rest.split_to(n)).expect("the pieces of a payload are neighbours");
        }
        Ok(payload.freeze())
    }

    /// Drops a payload of `len` bytes.
    pub async fn skip(&mut self, mut len: usize) -> IoResult<()> {
        loop {
            let here = len.min(self.bytes().len());
            self.consume(here);
            len -= here;
            if len == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }
}
