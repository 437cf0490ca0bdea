//! Commands: started at the device, answered when it is done.
//!
//! Role: one function a command; reads are in `reads`, trims and zeroes in `ranges`. A device that
//! has the result at once is answered at once. Else a task of the connection's thread waits for it,
//! so that requests are answered in the order of completion. The server receives and writes a long
//! write piece by piece, each piece as durably as the whole must be. A client that leaves in the
//! middle has written a part of it.
//!
//! Invariants: each call of [`start`] or [`write()`] leads to exactly one reply, unless the client
//! is gone.
//!
//! It does not check requests or send replies: checked requests come in, queued replies go out.

use super::{
    answer::{answer, when_done},
    connection::{Connection, Memory},
    inbox::Inbox,
    limits::{PIECE_BYTES_MAX, count},
    outbox::Charge,
    parts::Parts,
    ranges, reads,
    reply::ReplyTicket,
    request::Action,
};
use crate::dispatch::{EXTENTS_MAX, Request};
use larder_device::{IoError, IoErrorKind, IoOp, IoResult, SharedBuf, driver, nbd::proto::errno};
use std::rc::Rc;

/// Bytes of a reply to block status.
const EXTENTS_BYTES_MAX: usize = EXTENTS_MAX * 8;

/// Starts a request that has no payload.
pub(super) fn start(connection: &Rc<Connection>, ticket: ReplyTicket, action: Action) {
    let request = match action {
        Action::Do(request) => request,
        Action::Refuse(error) => return refuse(connection, ticket, error),
    };
    match request {
        Request::Read { .. } => reads::read(connection, ticket, request),
        Request::Trim { .. } | Request::WriteZeroes { .. } => ranges::start(connection, ticket, request),
        Request::Extents { .. } => block_status(connection, ticket, request),
        // The caller receives the payload of a write: see `write`.
        Request::Flush | Request::Write { .. } => answer(connection, ticket, request, None),
    }
}

/// Receives a write and starts it. Fails if the client is gone.
pub(super) async fn write(
    connection: &Rc<Connection>,
    inbox: &mut Inbox,
    ticket: ReplyTicket,
    request: Request,
) -> IoResult<()> {
    let (_, len) = request.range();
    let first = len.min(PIECE_BYTES_MAX);
    let (memory, data) = receive(connection, inbox, first).await.inspect_err(|_| connection.release(ticket.charge))?;
    if memory.data_bytes == len as usize {
        answer(connection, ticket.holding(memory.bytes), request, Some(data));
        return Ok(());
    }
    let (parts, mut last) = Parts::new(connection, ticket, request);
    let (mut at, mut received) = (0, (memory, data));
    loop {
        let (memory, data) = received;
        let piece = request.piece(at, memory.data_bytes as u32);
        let written = connection.dispatch.start(piece, Some(data));
        at += memory.data_bytes as u32;
        if at == len {
            last = last.holding(memory.bytes);
            when_done(connection, written, move |_, outcome| last.end(outcome));
            return Ok(());
        }
        let part = parts.part(memory.bytes);
        when_done(connection, written, move |_, outcome| part.end(outcome));
        if parts.has_failed() {
            return inbox.skip((len - at) as usize).await;
        }
        received = receive(connection, inbox, (len - at).min(PIECE_BYTES_MAX)).await?;
    }
}

/// Receives up to `len` bytes of a payload, as many as fit the free memory.
async fn receive(connection: &Connection, inbox: &mut Inbox, len: u32) -> IoResult<(Memory, SharedBuf)> {
    let Some(memory) = connection.memory(len as usize).await else {
        return Err(IoError::new(IoErrorKind::Gone, IoOp::Write, 0, u64::from(len)));
    };
    if !inbox.has(memory.data_bytes) {
        connection.send();
    }
    match inbox.payload(memory.data_bytes).await {
        Ok(data) => {
            count(&connection.counters.written_bytes, data.len() as u64);
            Ok((memory, data))
        }
        Err(error) => {
            connection.release(Charge { requests: 0, bytes: memory.bytes });
            Err(error)
        }
    }
}

/// Asks for extents, when there is memory for the longest reply.
fn block_status(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) {
    if let Some(bytes) = connection.memory_now(EXTENTS_BYTES_MAX) {
        return answer(connection, ticket.holding(bytes), request, None);
    }
    let connection = connection.clone();
    driver::spawn_local(async move {
        let Some(Memory { bytes, .. }) = connection.memory(EXTENTS_BYTES_MAX).await else {
            return connection.release(ticket.charge);
        };
        answer(&connection, ticket.holding(bytes), request, None);
        connection.to_send.notify();
    });
}

fn refuse(connection: &Connection, ticket: ReplyTicket, error: u32) {
    count(&connection.counters.errors, 1);
    let message = match error {
        errno::EPERM => "The export is read-only.",
        errno::ENOSPC => "The range reaches past the end of the export.",
        errno::EOVERFLOW => "The read is too long for one piece.",
        _ => "The command, its flags or its range are not valid for this export.",
    };
    ticket.error(&mut connection.outbox(), error, message);
}
