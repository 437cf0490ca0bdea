//! A request done in parts, each with memory of its own, and answered once.
//!
//! Invariants: the reply ends when the last part ends, and not before. A part gives its memory back
//! at its end, or when its data has left. The first error is the request's. A part that is dropped
//! without an end is an error.
//!
//! It does not cut a request into parts or call the device.

use super::{answer::fail, connection::Connection, limits::count, outbox::Charge, reply::ReplyTicket};
use crate::dispatch::{Reply, Request};
use larder_device::{IoError, IoErrorKind, IoResult};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// The request.
pub(super) struct Parts {
    connection: Rc<Connection>,
    ticket: ReplyTicket,
    request: Request,
    /// Parts that have not ended.
    open: Cell<usize>,
    error: RefCell<Option<IoError>>,
}

/// One part.
pub(super) struct Part {
    parts: Rc<Parts>,
    bytes: usize,
    is_over: bool,
}

impl Parts {
    /// Begins a read or write with its last part: others come before its end.
    pub fn new(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) -> (Rc<Parts>, Part) {
        let connection = connection.clone();
        let parts = Rc::new(Parts { connection, ticket, request, open: Cell::new(0), error: RefCell::default() });
        let last = parts.part(0);
        (parts, last)
    }

    /// Adds a part, which holds `bytes` of memory.
    pub fn part(self: &Rc<Self>, bytes: usize) -> Part {
        self.open.set(self.open.get() + 1);
        Part { parts: self.clone(), bytes, is_over: false }
    }

    /// Returns whether a part has failed: then the remaining parts need not begin.
    pub fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    fn end(&self, bytes: usize, outcome: IoResult<Reply>) {
        self.open.set(self.open.get() - 1);
        let is_last = self.open.get() == 0;
        let releases = Charge { requests: 0, bytes };
        match outcome {
            Ok(Reply::Read(content)) if !self.has_failed() => {
                let releases = if is_last { self.whole(bytes) } else { releases };
                self.ticket.content(&mut self.connection.outbox(), is_last, content, releases);
                if is_last {
                    count(&self.connection.counters.read_bytes, u64::from(self.request.range().1));
                }
                return;
            }
            // A part of a write has no content, and a failed read sends no more of it.
            Ok(Reply::Done | Reply::Read(_)) => {}
            Ok(Reply::Extents(_)) => unreachable!("only reads and writes have parts"),
            Err(error) => {
                self.error.borrow_mut().get_or_insert(error);
            }
        }
        self.connection.release(releases);
        if is_last {
            match self.error.take() {
                None => self.ticket.done(&mut self.connection.outbox()),
                Some(error) => fail(&self.connection, self.ticket, self.request.changes(), &error),
            }
        }
    }

    /// Returns the charge that the last part's data gives back.
    fn whole(&self, bytes: usize) -> Charge {
        Charge { requests: self.ticket.charge.requests, bytes: self.ticket.charge.bytes + bytes }
    }
}

impl Part {
    /// Makes this part hold `bytes` of memory.
    pub fn holding(mut self, bytes: usize) -> Part {
        self.bytes = bytes;
        self
    }

    /// Ends the part.
    pub fn end(mut self, outcome: IoResult<Reply>) {
        self.is_over = true;
        self.parts.end(self.bytes, outcome);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_over {
            let request = self.parts.request;
            let gone = IoError::new(IoErrorKind::Gone, request.op(), 0, u64::from(request.range().1));
            self.parts.end(self.bytes, Err(gone));
        }
    }
}
