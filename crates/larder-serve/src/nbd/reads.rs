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

/// The range of a read.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    len: u32,
}

/// Starts a read, `whole` if it is to be one stretch of bytes.
pub(super) fn read(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, whole: bool) {
    let (offset, len) = request.range();
    if (whole || len <= PIECE_BYTES_MAX)
        && let Some(bytes) = connection.memory_now(len as usize)
    {
        return answer(connection, ticket.holding(bytes), request, None);
    }
    let connection = connection.clone();
    driver::spawn_local(async move {
        if whole {
            in_one_stretch(&connection, ticket, request, Range { offset, len }).await;
        } else {
            in_pieces(&connection, ticket, request, len).await;
        }
        connection.to_send.notify();
    });
}

async fn in_pieces(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, len: u32) {
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

async fn in_one_stretch(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, read: Range) {
    let Some(memory) = connection.memory(read.len as usize).await else {
        return connection.release(ticket.charge);
    };
    let ticket = ticket.holding(memory.bytes);
    if memory.data_bytes == read.len as usize {
        return answer(connection, ticket, request, None);
    }
    let piece_bytes = memory.data_bytes as u32;
    if !ticket.agreed.structured
        && let Err(error) = look_for_errors(connection, read, piece_bytes).await
    {
        return fail(connection, ticket, false, &error);
    }
    let _turn = connection.stretches.take().await;
    connection.outbox().begin_stretch();
    stretch(connection, ticket, read, piece_bytes).await;
    connection.outbox().end_stretch();
}

/// Cuts a read into pieces of at most `piece_bytes`: offset and length of each.
fn pieces(read: Range, piece_bytes: u32) -> impl Iterator<Item = (u64, u32)> {
    let starts = (0..read.len).step_by(piece_bytes as usize);
    starts.map(move |at| (read.offset + u64::from(at), (read.len - at).min(piece_bytes)))
}

async fn look_for_errors(connection: &Rc<Connection>, read: Range, piece_bytes: u32) -> IoResult<()> {
    for (offset, len) in pieces(read, piece_bytes) {
        connection.dispatch.read(offset, len).await?;
    }
    Ok(())
}

/// Sends a stretch. Each piece is read when the one before has left, into memory of the same
/// charge.
async fn stretch(connection: &Rc<Connection>, ticket: ReplyTicket, read: Range, piece_bytes: u32) {
    connection.outbox().push_stretch(ticket.stretch_head(read.offset, read.len));
    let mut failed: Option<IoError> = None;
    for (offset, len) in pieces(read, piece_bytes) {
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
            count(&connection.counters.read_bytes, u64::from(read.len));
            match ticket.agreed.structured {
                true => ticket.no_more(&mut connection.outbox()),
                false => connection.release(ticket.charge),
            }
        }
    }
}
