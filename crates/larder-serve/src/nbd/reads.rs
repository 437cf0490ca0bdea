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
    answer::{fail, when_done},
    connection::Connection,
    limits::{PIECE_BYTES_MAX, SPARSE_READ_BYTES_MIN, count},
    outbox::{Body, OutSegment},
    parts::{Part, Parts},
    reply::{Piece, ReplyContent, ReplyTicket, tidy},
};
use larder_device::{Extent, IoBuf, IoError, IoFuture, IoOp, IoResult, driver};
use std::rc::Rc;

/// A client's read.
#[derive(Clone, Copy)]
pub(super) struct Read {
    pub offset: u64,
    pub len: u32,
    /// "Don't fragment": the data must come in one chunk.
    pub whole: bool,
}

/// Starts a read.
pub(super) fn read(connection: &Rc<Connection>, ticket: ReplyTicket, read: Read) {
    let one_stretch = read.whole || !ticket.agreed.structured;
    let connection = connection.clone();
    if (one_stretch || read.len <= PIECE_BYTES_MAX)
        && let Some(bytes) = connection.memory_now(read.len as usize)
    {
        return read_whole(&connection, ticket.holding(bytes), read, one_stretch);
    }
    driver::spawn_local(async move {
        if one_stretch {
            in_one_stretch(&connection, ticket, read).await;
        } else {
            in_pieces(&connection, ticket, read).await;
        }
        connection.to_send.notify();
    });
}

/// Starts a read whose memory is charged already.
fn read_whole(connection: &Rc<Connection>, ticket: ReplyTicket, read: Read, one_stretch: bool) {
    let Read { offset, len, .. } = read;
    if !one_stretch && let Some(content) = without_zeroes(connection, offset, len) {
        return when_done(connection, content, move |connection, result| match result {
            Ok(content) => {
                count(&connection.counters.read_bytes, u64::from(len));
                ticket.content(&mut connection.outbox(), true, content, ticket.charge);
            }
            Err(error) => fail(connection, ticket, false, &error),
        });
    }
    let data = connection.device.read(offset, IoBuf::new(len as usize));
    when_done(connection, data, move |connection, result| match result {
        Ok(data) => {
            count(&connection.counters.read_bytes, u64::from(len));
            ticket.data(&mut connection.outbox(), offset, data);
        }
        Err(error) => fail(connection, ticket, false, &error),
    });
}

async fn in_pieces(connection: &Rc<Connection>, ticket: ReplyTicket, read: Read) {
    let (parts, last) = Parts::new(connection, ticket, IoOp::Read, read.len);
    let mut at = 0;
    // Without memory the client is gone. Dropping the last part ends the request.
    while !parts.has_failed() {
        let wanted = (read.len - at).min(PIECE_BYTES_MAX) as usize;
        let Some(memory) = connection.memory(wanted).await else { return };
        let (offset, len) = (read.offset + u64::from(at), memory.data_bytes as u32);
        at += len;
        if at == read.len {
            return read_part(connection, last.holding(memory.bytes), offset, len);
        }
        read_part(connection, parts.part(memory.bytes), offset, len);
        connection.to_send.notify();
    }
}

fn read_part(connection: &Rc<Connection>, part: Part, offset: u64, len: u32) {
    if let Some(content) = without_zeroes(connection, offset, len) {
        return when_done(connection, content, move |_, result| part.end(result.map(Some)));
    }
    let data = connection.device.read(offset, IoBuf::new(len as usize));
    when_done(connection, data, move |_, result| part.end(result.map(|data| Some(ReplyContent::Data(offset, data)))));
}

/// Reads `len` bytes without their zeroes, if the omission pays.
fn without_zeroes(connection: &Rc<Connection>, offset: u64, len: u32) -> Option<IoFuture<ReplyContent>> {
    if len < SPARSE_READ_BYTES_MIN || !connection.extents_are_cheap.get() {
        return None;
    }
    match connection.device.extents(offset, u64::from(len)).try_ready() {
        Ok(Ok(extents)) if extents.iter().any(|extent| extent.zero) => {
            return Some(sparse_content(connection, offset, len, &extents));
        }
        Ok(_) => {}
        // A device that must do I/O to know its holes is not asked again.
        Err(_) => connection.extents_are_cheap.set(false),
    }
    None
}

/// Reads the ranges that are not zero, all at once, into one buffer.
fn sparse_content(connection: &Rc<Connection>, offset: u64, len: u32, extents: &[Extent]) -> IoFuture<ReplyContent> {
    let mut runs = tidy(extents, u64::from(len), u64::from(connection.export.block_bytes_min));
    let covered: u64 = runs.iter().map(|run| run.len).sum();
    if covered < u64::from(len) {
        runs.push(Extent { len: u64::from(len) - covered, hole: false, zero: false });
    }
    let data_bytes: u64 = runs.iter().filter(|run| !run.zero).map(|run| run.len).sum();
    let mut buf = IoBuf::new(data_bytes as usize);
    let mut at = offset;
    let mut reads = Vec::with_capacity(runs.len());
    for run in &runs {
        let data = (!run.zero).then(|| connection.device.read(at, buf.split_to(run.len as usize)));
        reads.push((at, run.len as u32, data));
        at += run.len;
    }
    if reads.iter().all(|(_, _, data)| data.is_none()) {
        let zeroes = reads.into_iter().map(|(at, len, _)| Piece::Zeroes(at, len));
        return IoFuture::ready(Ok(ReplyContent::Sparse(zeroes.collect())));
    }
    IoFuture::boxed(async move {
        let mut pieces = Vec::with_capacity(reads.len());
        for (at, len, data) in reads {
            pieces.push(match data {
                Some(data) => Piece::Data(at, data.await?),
                None => Piece::Zeroes(at, len),
            });
        }
        Ok(ReplyContent::Sparse(pieces))
    })
}

async fn in_one_stretch(connection: &Rc<Connection>, ticket: ReplyTicket, read: Read) {
    let Some(memory) = connection.memory(read.len as usize).await else {
        return connection.release(ticket.charge);
    };
    let ticket = ticket.holding(memory.bytes);
    if memory.data_bytes == read.len as usize {
        return read_whole(connection, ticket, read, true);
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
fn pieces(read: Read, piece_bytes: u32) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..read.len).step_by(piece_bytes as usize);
    starts.map(move |at| (read.offset + u64::from(at), (read.len - at).min(piece_bytes) as usize))
}

async fn look_for_errors(connection: &Rc<Connection>, read: Read, piece_bytes: u32) -> IoResult<()> {
    for (offset, len) in pieces(read, piece_bytes) {
        connection.device.read(offset, IoBuf::new(len)).await?;
    }
    Ok(())
}

/// Sends a stretch. Each piece is read when the one before has left, into memory of the same
/// charge.
async fn stretch(connection: &Rc<Connection>, ticket: ReplyTicket, read: Read, piece_bytes: u32) {
    connection.outbox().push_stretch(ticket.stretch_head(read.offset, read.len));
    let mut failed: Option<IoError> = None;
    for (offset, len) in pieces(read, piece_bytes) {
        let data = match &failed {
            None => connection.device.read(offset, IoBuf::new(len)).await,
            Some(_) => Ok(IoBuf::zeroed(len)),
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
                IoBuf::zeroed(len)
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
