//! The queue of replies on their way out, and the account of a connection's holdings.
//!
//! Role: replies are queued as *segments* (a short head and an optional body) and sent, several at
//! a time, straight from their buffers. A task that has queued replies calls [`Outbox::send`]. If
//! the socket is full, the connection's sender task goes on later. A reply that must be one stretch
//! of bytes, and is not in memory at once, holds the others up while it leaves.
//!
//! Invariants: it is single-threaded. Segments leave whole and in order. The segments of one
//! [`Outbox::push`] stay together with those pushed right after it. After the socket has failed,
//! segments are dropped, and the account still falls to zero.
//!
//! It does not wait; the connection does.

use super::memory::MemoryAccount;
use larder_device::{IoBuf, nbd::socket};
use std::{
    collections::VecDeque,
    io::{ErrorKind, IoSlice},
    os::fd::BorrowedFd,
};

/// Longest head of a segment: a chunk header with an offset and a length.
pub const HEAD_BYTES_MAX: usize = 40;

/// A piece of a reply.
pub struct OutSegment {
    head: [u8; HEAD_BYTES_MAX],
    head_len: u8,
    body: Body,
    /// Returned to the account when the segment has left.
    pub releases: Charge,
}

/// The part after a segment's head.
pub enum Body {
    /// Nothing.
    None,
    /// A read's data.
    Buf(IoBuf),
    /// Some small content.
    Bytes(Vec<u8>),
}

/// A share of a connection's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Requests.
    pub requests: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl OutSegment {
    /// Returns a segment: the parts of `head` (at most [`HEAD_BYTES_MAX`] in all), then `body`.
    pub fn new(head: &[&[u8]], body: Body) -> OutSegment {
        let mut segment = OutSegment { head: [0; HEAD_BYTES_MAX], head_len: 0, body, releases: Charge::default() };
        for part in head {
            let at = usize::from(segment.head_len);
            segment.head[at..at + part.len()].copy_from_slice(part);
            segment.head_len += part.len() as u8;
        }
        segment
    }

    fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            Body::None => &[],
            Body::Buf(buf) => buf,
            Body::Bytes(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.head().len() + self.body().len()
    }
}

/// The outcome of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing is left to send.
    All,
    /// The socket is full.
    Full,
    /// The peer is gone.
    Failed,
}

/// The queue of replies of one connection.
pub struct Outbox {
    queue: VecDeque<OutSegment>,
    queued_bytes: usize,
    /// Bytes of the first segment that have left.
    front_sent: usize,
    /// Segments pushed while a stretch leaves.
    held_up: Option<Vec<OutSegment>>,
    account: MemoryAccount,
    failed: bool,
}

impl Outbox {
    /// Makes an empty queue.
    pub fn new(account: MemoryAccount) -> Outbox {
        Outbox { queue: VecDeque::new(), queued_bytes: 0, front_sent: 0, held_up: None, account, failed: false }
    }

    /// Returns the holdings of requests in flight and unsent replies.
    pub fn held(&self) -> Charge {
        Charge { requests: self.account.requests(), bytes: self.account.held() }
    }

    /// Returns the account of memory.
    pub fn account(&mut self) -> &mut MemoryAccount {
        &mut self.account
    }

    /// Gives back the holdings of a request.
    pub fn release(&mut self, charge: Charge) {
        self.account.give_back(charge.bytes);
        self.account.end_requests(charge.requests);
    }

    /// Queues a segment.
    pub fn push(&mut self, segment: OutSegment) {
        match &mut self.held_up {
            Some(held_up) if !self.failed => held_up.push(segment),
            _ => self.push_stretch(segment),
        }
    }

    /// Holds up later segments.
    pub fn begin_stretch(&mut self) {
        self.held_up = Some(Vec::new());
    }

    /// Queues a segment of the stretch.
    pub fn push_stretch(&mut self, segment: OutSegment) {
        if self.failed {
            return self.release(segment.releases);
        }
        self.queued_bytes += segment.len();
        self.queue.push_back(segment);
    }

    /// Ends the stretch; the segments that were held up follow it.
    pub fn end_stretch(&mut self) {
        for segment in self.held_up.take().into_iter().flatten() {
            self.push_stretch(segment);
        }
    }

    /// Returns the bytes that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes - self.front_sent
    }

    /// Returns whether the socket has failed.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Gives up: drops queued segments and all later ones.
    pub fn fail(&mut self) {
        self.failed = true;
        self.front_sent = 0;
        self.queued_bytes = 0;
        let held_up = self.held_up.take().into_iter().flatten();
        let segments: Vec<OutSegment> = self.queue.drain(..).chain(held_up).collect();
        for segment in segments {
            self.release(segment.releases);
        }
    }

    /// Sends as much as the socket takes now.
    pub fn send(&mut self, fd: BorrowedFd<'_>) -> Sent {
        while !self.failed && !self.queue.is_empty() {
            match self.send_some(fd) {
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Sent::Full,
                Err(_) => self.fail(),
            }
        }
        if self.failed { Sent::Failed } else { Sent::All }
    }

    fn send_some(&self, fd: BorrowedFd<'_>) -> std::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); socket::SLICES_MAX];
        let mut n = 0;
        let mut skip = self.front_sent;
        for segment in self.queue.iter().take(socket::SLICES_MAX / 2) {
            for part in [segment.head(), segment.body()] {
                let cut = skip.min(part.len());
                skip -= cut;
                if cut < part.len() {
                    slices[n] = IoSlice::new(&part[cut..]);
                    n += 1;
                }
            }
        }
        socket::send_slices(fd, &slices[..n], false)
    }

    fn advance(&mut self, sent: usize) {
        self.front_sent += sent;
        while let Some(front) = self.queue.front() {
            let len = front.len();
            if self.front_sent < len {
                break;
            }
            self.front_sent -= len;
            self.queued_bytes -= len;
            let releases = front.releases;
            self.queue.pop_front();
            self.release(releases);
        }
    }
}
