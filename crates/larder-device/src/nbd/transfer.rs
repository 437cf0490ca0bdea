//! One connection of the client: requests out, replies in, matched by cookie.
//!
//! Role: callers send as much as the socket takes at once, and leave the rest to a thread. Another
//! thread reads replies and completes requests as they arrive, in any order.
//!
//! Invariants: each call is completed exactly once; with [`IoErrorKind::Gone`] after the connection
//! has failed. At most [`IN_FLIGHT_MAX`] requests are with the server. Further ones wait in their
//! order, and so do requests without room in the socket. No caller waits: a hanging server delays
//! only its own requests.
//!
//! It does not connect again; the device does.

use super::{
    connect::Stream,
    proto::{REQUEST_BYTES, SIMPLE_REPLY_BYTES, SimpleReply, WireRequest, command, command_flag, kind_of},
    socket::{self, Direction},
};
use crate::{Completer, IoBuf, IoError, IoErrorKind, IoOp, IoResult, SharedBuf};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufReader, IoSlice, Read},
    sync::Arc,
};

/// Requests with the server at once.
pub(super) const IN_FLIGHT_MAX: usize = 256;
/// Further requests that wait.
const BEHIND_MAX: usize = 1 << 16;
/// Bytes of the reader's buffer: many small replies for one receive.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A request and its waiter.
pub(super) struct Call {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// A write's payload.
    pub(super) data: Option<SharedBuf>,
    pub(super) to: Waiter,
}

/// The waiter of a request.
pub(super) enum Waiter {
    /// A read and the buffer for its data.
    Read(IoBuf, Completer<IoBuf>),
    /// Anything else.
    Done(Completer<()>),
}

fn op_of(command: u16) -> IoOp {
    match command {
        command::READ => IoOp::Read,
        command::WRITE => IoOp::Write,
        command::TRIM => IoOp::Discard,
        command::WRITE_ZEROES => IoOp::WriteZeroes,
        _ => IoOp::Flush,
    }
}

impl Call {
    /// Completes the call with an error.
    pub(super) fn fail(self, kind: IoErrorKind, why: &str) {
        let error = IoError::new(kind, op_of(self.command), self.offset, u64::from(self.len));
        let error = if why.is_empty() { error } else { error.with_detail(why) };
        match self.to {
            Waiter::Read(_, to) => to.complete(Err(error)),
            Waiter::Done(to) => to.complete(Err(error)),
        }
    }
}

/// A connection, as the module describes it.
pub(super) struct Link {
    stream: Stream,
    /// The requests that the socket has not taken yet.
    unsent: Mutex<Unsent>,
    /// A request is ready to be sent, or the connection has ended.
    to_send: Condvar,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By cookie: the call, and `written` when it was sent.
    waiting: HashMap<u64, (Call, u64)>,
    /// Calls that arrived when the server had its maximum of requests.
    behind: VecDeque<Call>,
    next_cookie: u64,
    gone: bool,
    /// Answered writes that did not have to be durable.
    written: u64,
    /// The number of those that a later flush has covered.
    flushed: u64,
}

impl Table {
    /// Takes the next call, if the server may have one more.
    fn take_next(&mut self) -> Option<Outgoing> {
        if self.waiting.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let mut call = self.behind.pop_front()?;
        self.next_cookie += 1;
        let cookie = self.next_cookie;
        let Call { flags, command, offset, len, .. } = call;
        let request = WireRequest { flags, command, cookie, offset, len };
        let outgoing = Outgoing { head: request.encode(), data: call.data.take(), sent: 0 };
        self.waiting.insert(cookie, (call, self.written));
        Some(outgoing)
    }
}

/// The bytes of a request that are still to be sent.
struct Outgoing {
    head: [u8; REQUEST_BYTES],
    data: Option<SharedBuf>,
    sent: usize,
}

impl Outgoing {
    /// Returns the rest of head and payload.
    fn rest(&self) -> [&[u8]; 2] {
        let data = self.data.as_deref().unwrap_or(&[]);
        let of_data = self.sent.saturating_sub(self.head.len());
        [self.head.get(self.sent..).unwrap_or(&[]), data.get(of_data..).unwrap_or(&[])]
    }

    /// Sends as much as the socket takes, or everything if `wait` is set. Returns whether all of it
    /// was sent.
    fn send(&mut self, stream: &Stream, wait: bool) -> io::Result<bool> {
        loop {
            let [head, data] = self.rest();
            if head.is_empty() && data.is_empty() {
                return Ok(true);
            }
            match socket::send_slices(stream.as_fd(), &[IoSlice::new(head), IoSlice::new(data)], wait) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !wait => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Requests that wait for the socket, in their order.
#[derive(Default)]
struct Unsent {
    queue: VecDeque<Outgoing>,
    /// The thread is sending a request that it took from the queue.
    is_sending: bool,
    ended: bool,
}

impl Link {
    /// Takes over a connection and starts its threads.
    pub(super) fn start(stream: Stream) -> IoResult<Arc<Link>> {
        let link =
            Arc::new(Link { stream, unsent: Mutex::default(), to_send: Condvar::new(), table: Mutex::default() });
        // Both threads end when the link is closed.
        for (name, run) in [("nbd-client", Link::read_replies as fn(&Link)), ("nbd-sender", Link::send_queued)] {
            let thread = link.clone();
            if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(move || run(&thread)) {
                link.fail("");
                return Err(IoError::from_std(&error, IoOp::Open, 0, 0));
            }
        }
        Ok(link)
    }

    /// Returns whether the connection has failed.
    pub(super) fn gone(&self) -> bool {
        self.table.lock().gone
    }

    /// Returns whether any answered write lacks a flush.
    pub(super) fn unflushed(&self) -> bool {
        let table = self.table.lock();
        table.written > table.flushed
    }

    /// Sends a request, at once or when server and socket have room. Never waits.
    pub(super) fn submit(&self, call: Call) {
        let mut table = self.table.lock();
        if table.gone {
            drop(table);
            return call.fail(IoErrorKind::Gone, "");
        }
        if table.behind.len() >= BEHIND_MAX {
            drop(table);
            return call.fail(IoErrorKind::Io, "too many requests wait for the server");
        }
        table.behind.push_back(call);
        self.send_next(table);
    }

    /// Sends the next calls, as many as the server may have.
    fn send_next(&self, mut table: MutexGuard<'_, Table>) {
        while let Some(outgoing) = table.take_next() {
            // Unanswered requests need no order among themselves.
            MutexGuard::unlocked(&mut table, || {
                if self.send_or_queue(outgoing).is_err() {
                    self.fail("");
                }
            });
        }
    }

    fn send_or_queue(&self, mut outgoing: Outgoing) -> io::Result<()> {
        let mut unsent = self.unsent.lock();
        let is_free = unsent.queue.is_empty() && !unsent.is_sending;
        if !(is_free && outgoing.send(&self.stream, false)?) {
            unsent.queue.push_back(outgoing);
            self.to_send.notify_one();
        }
        Ok(())
    }

    /// Runs the sender's thread, which sends the requests that found no room in the socket.
    fn send_queued(&self) {
        loop {
            let mut outgoing = {
                let mut unsent = self.unsent.lock();
                unsent.is_sending = false;
                loop {
                    if unsent.ended {
                        return;
                    }
                    if let Some(next) = unsent.queue.pop_front() {
                        unsent.is_sending = true;
                        break next;
                    }
                    self.to_send.wait(&mut unsent);
                }
            };
            if outgoing.send(&self.stream, true).is_err() {
                self.fail("");
            }
        }
    }

    /// Says goodbye if nothing is in flight, and closes.
    pub(super) fn close(&self) {
        if !self.gone() && self.table.lock().waiting.is_empty() {
            let goodbye = WireRequest { command: command::DISC, ..WireRequest::default() };
            // The server may be gone first, which is as good.
            let _ = socket::send_slices(self.stream.as_fd(), &[IoSlice::new(&goodbye.encode())], false);
        }
        self.fail("the device was closed");
    }

    /// Ends the connection and fails everything in flight.
    fn fail(&self, why: &str) {
        socket::shutdown(self.stream.as_fd(), Direction::Both);
        let (waiting, behind) = {
            let mut table = self.table.lock();
            table.gone = true;
            (std::mem::take(&mut table.waiting), std::mem::take(&mut table.behind))
        };
        {
            let mut unsent = self.unsent.lock();
            unsent.ended = true;
            unsent.queue.clear();
        }
        self.to_send.notify_all();
        for call in waiting.into_values().map(|(call, _)| call).chain(behind) {
            call.fail(IoErrorKind::Gone, why);
        }
    }

    fn read_replies(&self) {
        let mut stream = BufReader::with_capacity(READ_BUFFER_BYTES, &self.stream);
        let why = loop {
            match self.read_reply(&mut stream) {
                Ok(true) => {}
                Ok(false) => break "the server sent a malformed reply",
                Err(_) => break "",
            }
        };
        self.fail(why);
    }

    /// Reads one reply and completes its call. False if the bytes are no reply.
    fn read_reply(&self, stream: &mut impl Read) -> io::Result<bool> {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        stream.read_exact(&mut header)?;
        let Some(reply) = SimpleReply::parse(&header) else { return Ok(false) };
        let call = {
            let mut table = self.table.lock();
            let Some(found) = table.waiting.remove(&reply.cookie) else { return Ok(false) };
            if reply.error == 0 {
                match found.0.command {
                    command::WRITE | command::WRITE_ZEROES if found.0.flags & command_flag::FUA == 0 => {
                        table.written += 1;
                    }
                    command::FLUSH => table.flushed = table.flushed.max(found.1),
                    _ => {}
                }
            }
            self.send_next(table);
            found.0
        };
        if reply.error != 0 {
            call.fail(kind_of(reply.error), &format!("the server answered with error {}", reply.error));
            return Ok(true);
        }
        match call.to {
            Waiter::Done(to) => to.complete(Ok(())),
            Waiter::Read(mut buf, to) => match stream.read_exact(&mut buf) {
                Ok(()) => to.complete(Ok(buf)),
                Err(error) => {
                    let gone = IoError::new(IoErrorKind::Gone, IoOp::Read, call.offset, u64::from(call.len));
                    to.complete(Err(gone));
                    return Err(error);
                }
            },
        }
        Ok(true)
    }
}
