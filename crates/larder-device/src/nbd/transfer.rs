//! One connection of the client: requests out, replies in, matched by cookie.
//!
//! Role: callers send under a lock; a thread reads replies and completes requests as they come, in any order.
//!
//! Invariants: each call is completed exactly once; once the connection has failed, with [`IoErrorKind::Gone`]. At most
//! [`IN_FLIGHT_MAX`] requests are with the server; a further caller waits.
//!
//! What it does not do: connect again; the device does.

use super::{
    connect::Stream,
    proto::{Request, SIMPLE_REPLY_BYTES, SimpleReply, command, command_flag, kind_of},
    socket::{self, Direction},
};
use crate::{Completer, IoBuf, IoError, IoErrorKind, IoOp, IoResult, SharedBuf};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    io::{self, BufReader, IoSlice, Read},
    sync::Arc,
};

/// Requests with the server at once.
pub(super) const IN_FLIGHT_MAX: usize = 256;
/// Bytes of the reader's buffer: many small replies for one receive.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// A request, with who waits for it.
pub(super) struct Call {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// A write's payload.
    pub(super) data: Option<SharedBuf>,
    pub(super) to: Waiting,
}

/// Who waits for a request.
pub(super) enum Waiting {
    /// A read, and where its data goes.
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
            Waiting::Read(_, to) => to.complete(Err(error)),
            Waiting::Done(to) => to.complete(Err(error)),
        }
    }
}

/// See the module.
pub(super) struct Link {
    stream: Stream,
    /// Held while a request is sent.
    sending: Mutex<()>,
    table: Mutex<Table>,
    /// A request has left the table.
    room: Condvar,
}

#[derive(Default)]
struct Table {
    /// By cookie: the call, and `written` when it was sent.
    waiting: HashMap<u64, (Call, u64)>,
    next_cookie: u64,
    gone: bool,
    /// Writes that the server has answered and did not have to make durable.
    written: u64,
    /// How many of them a later flush has covered.
    flushed: u64,
}

impl Link {
    /// Takes a connection over and starts its reader.
    pub(super) fn start(stream: Stream) -> IoResult<Arc<Link>> {
        let link = Arc::new(Link { stream, sending: Mutex::new(()), table: Mutex::default(), room: Condvar::new() });
        // The reader ends when the link is closed.
        let reader = link.clone();
        std::thread::Builder::new()
            .name("nbd-client".into())
            .spawn(move || reader.read_replies())
            .map_err(|error| IoError::from_std(&error, IoOp::Open, 0, 0))?;
        Ok(link)
    }

    /// Whether the connection has failed.
    pub(super) fn gone(&self) -> bool {
        self.table.lock().gone
    }

    /// Whether writes were answered that no flush has covered.
    pub(super) fn unflushed(&self) -> bool {
        let table = self.table.lock();
        table.written > table.flushed
    }

    /// Sends a request. Waits while too many are in flight, and while the socket is full.
    pub(super) fn submit(&self, mut call: Call) {
        let mut request =
            Request { flags: call.flags, command: call.command, cookie: 0, offset: call.offset, len: call.len };
        let data = call.data.take();
        {
            let mut table = self.table.lock();
            while !table.gone && table.waiting.len() >= IN_FLIGHT_MAX {
                self.room.wait(&mut table);
            }
            if table.gone {
                drop(table);
                return call.fail(IoErrorKind::Gone, "");
            }
            table.next_cookie += 1;
            request.cookie = table.next_cookie;
            let written = table.written;
            table.waiting.insert(request.cookie, (call, written));
        }
        let sent = {
            let _sending = self.sending.lock();
            self.send(&request.encode(), data.as_deref().unwrap_or(&[]))
        };
        if sent.is_err() {
            self.fail("");
        }
    }

    fn send(&self, mut head: &[u8], mut data: &[u8]) -> io::Result<()> {
        while !head.is_empty() || !data.is_empty() {
            let sent = socket::send_slices(self.stream.as_fd(), &[IoSlice::new(head), IoSlice::new(data)], true)?;
            let of_head = sent.min(head.len());
            head = &head[of_head..];
            data = &data[sent - of_head..];
        }
        Ok(())
    }

    /// Says goodbye where nothing is in flight, and closes.
    pub(super) fn close(&self) {
        if !self.gone() && self.table.lock().waiting.is_empty() {
            let _sending = self.sending.lock();
            let goodbye = Request { command: command::DISC, ..Request::default() };
            // The server may be gone first; that is as good.
            let _ = socket::send_slices(self.stream.as_fd(), &[IoSlice::new(&goodbye.encode())], false);
        }
        self.fail("the device was closed");
    }

    /// Ends the connection: everything in flight fails.
    fn fail(&self, why: &str) {
        socket::shutdown(self.stream.as_fd(), Direction::Both);
        let waiting = {
            let mut table = self.table.lock();
            table.gone = true;
            std::mem::take(&mut table.waiting)
        };
        self.room.notify_all();
        for (call, _) in waiting.into_values() {
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

    /// Reads one reply and completes its call. False where it is none.
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
            found.0
        };
        self.room.notify_one();
        if reply.error != 0 {
            call.fail(kind_of(reply.error), &format!("the server answered with error {}", reply.error));
            return Ok(true);
        }
        match call.to {
            Waiting::Done(to) => to.complete(Ok(())),
            Waiting::Read(mut buf, to) => match stream.read_exact(&mut buf) {
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
