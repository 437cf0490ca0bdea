//! Reads: whole if there is memory for them, else in pieces.
//!
//! A read of up to [`PIECE_BYTES_MAX`] bytes is one read of the device. A longer one is answered in
//! chunks, one or more for each piece, in the order of the device's answers. The server reads a
//! piece when the connection has memory for it, so when its client has taken earlier ones. A piece
//! that fails makes the last chunk an error.
//!
//! Simple replies, and chunks that must not be fragmented, are one stretch of bytes. If the
//! connection can't have memory for all of it, the reply is a *stretch*: its head, then piece after
//! piece. A simple reply cannot tell an error after its head; the protocol has the connection end
//! then. So the server reads all of it once before, for errors alone. An error between the two
//! readings does end the connection. In a chunk zeroes stand for the unreadable bytes, and an error
//! chunk follows, which makes the whole read a failed one.
//!
//! Invariants: each read leads to one reply, and its connection is charged for its memory.
//!
//! It does not check requests, or wait for the socket, other than for a stretch.

use super::{
    answer::{answer, fail, when_done},
    connection::Connection,
    limits::{PIECE_BYTES_MAX, count},
    outbox::{Body, OutSegment},
    parts::{Part, Parts},
    reply::ReplyTicket,
};
use crate::dispatch::Request;
use larder_device::{IoBuf, IoError, IoResult, driver};
use std::rc::Rc;

/// Starts a read: at once if there is memory for it, else in pieces or as a stretch.
pub(super) fn read(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) {
    let whole = matches!(request, Request::Read { whole: true, .. });
    let (_, len) = request.range();
    if (whole || len <= PIECE_BYTES_MAX)
        && let Some(bytes) = connection.memory_now(len as usize)
    {
        return answer(connection, ticket.holding(bytes), request, None);
    }
    let connection = connection.clone();
    driver::spawn_local(async move {
        if whole {
            in_one_stretch(&connection, ticket, request).await;
        } else {
            in_pieces(&connection, ticket, request).await;
        }
        connection.to_send.notify();
    });
}

async fn in_pieces(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) {
    let (_, len) = request.range();
    let (parts, last) = Parts::new(connection, ticket, request);
    let mut at = 0;
    // Without memory the client is gone. Dropping the last part ends the request.
    while !parts.has_failed() {
        let wanted = (len - at).min(PIECE_BYTES_MAX) as usize;
        let Some(memory) = connection.memory(wanted).await else { return };
        let piece = request.piece(at, memory.data_bytes as u32);
        at += memory.data_bytes as u32;
        if at == len {
            return read_part(connection, last.holding(memory.bytes), piece);
        }
        read_part(connection, parts.part(memory.bytes), piece);
        connection.to_send.notify();
    }
}

fn read_part(connection: &Rc<Connection>, part: Part, piece: Request) {
    when_done(connection, connection.dispatch.start(piece, None), move |_, outcome| part.end(outcome));
}

async fn in_one_stretch(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) {
    let (_, len) = request.range();
    let Some(memory) = connection.memory(len as usize).await else {
        return connection.release(ticket.charge);
    };
    let ticket = ticket.holding(memory.bytes);
    if memory.data_bytes == len as usize {
        return answer(connection, ticket, request, None);
    }
    let piece_bytes = memory.data_bytes as u32;
    if !ticket.agreed.structured
        && let Err(error) = look_for_errors(connection, request, piece_bytes).await
    {
        return fail(connection, ticket, false, &error);
    }
    let _turn = connection.stretches.take().await;
    connection.outbox().begin_stretch();
    stretch(connection, ticket, request, piece_bytes).await;
    connection.outbox().end_stretch();
}

/// Cuts a read into pieces of at most `piece_bytes`.
fn pieces(request: Request, piece_bytes: u32) -> impl Iterator<Item = Request> {
    let (_, len) = request.range();
    let starts = (0..len).step_by(piece_bytes as usize);
    starts.map(move |at| request.piece(at, (len - at).min(piece_bytes)))
}

async fn look_for_errors(connection: &Rc<Connection>, request: Request, piece_bytes: u32) -> IoResult<()> {
    for piece in pieces(request, piece_bytes) {
        let (offset, len) = piece.range();
        connection.dispatch.read(offset, len).await?;
    }
    Ok(())
}

/// Sends a stretch. Each piece is read when the one before has left, into memory of the same
/// charge.
async fn stretch(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, piece_bytes: u32) {
    let (offset, whole_len) = request.range();
    connection.outbox().push_stretch(ticket.stretch_head(offset, whole_len));
    let mut failed: Option<IoError> = None;
    for piece in pieces(request, piece_bytes) {
        let (offset, len) = piece.range();
        let data = match &failed {
            None => connection.dispatch.read(offset, len).await,
            Some(_) => Ok(IoBuf::zeroed(len as usize)),
        };
        let data = match data {
            Ok(data) => data,
            Err(_) if !ticket.agreed.structured => {
                count(&connection.counters.errors, 1);
                connection.abandon();
                return connection.release(ticket.charge);
            }
            Err(error) => {
                failed = Some(error);
                IoBuf::zeroed(len as usize)
            }
        };
        connection.outbox().push_stretch(OutSegment::new(&[], Body::Buf(data)));
        if !connection.all_sent().await {
            return connection.release(ticket.charge);
        }
    }
    match failed {
        Some(error) => fail(connection, ticket, false, &error),
        None => {
            count(&connection.counters.read_bytes, u64::from(whole_len));
            match ticket.agreed.structured {
                true => ticket.no_more(&mut connection.outbox()),
                false => connection.release(ticket.charge),
            }
        }
    }
}
