//! Commands: started at the device, answered when it is done.
//!
//! Role: one function a command; reads are in `reads`, trims and zeroes in `ranges`. A device that
//! has the result at once is answered at once. Else a task of the connection's thread waits for it,
//! so that requests are answered in the order of completion. The server receives and writes a long
//! write piece by piece, each piece as durably as the whole must be. A client that leaves in the
//! middle has written a part of it.
//!
//! Invariants: each call of [`start`] or [`write`] leads to exactly one reply, unless the client is
//! gone.
//!
//! It does not check requests or send replies: checked requests come in, queued replies go out.

use super::{
    answer::{answer, fail, when_done},
    connection::{Connection, Memory},
    inbox::Inbox,
    limits::{EXTENTS_MAX, PIECE_BYTES_MAX, count},
    outbox::Charge,
    parts::Parts,
    ranges,
    reads::{self, Read},
    reply::{ReplyTicket, tidy},
    request::Action,
};
use larder_device::{
    BlockDevice, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags, ZeroFlags, driver,
    nbd::proto::errno,
};
use std::{rc::Rc, sync::Arc};

/// Bytes of a reply to block status.
const EXTENTS_BYTES_MAX: usize = EXTENTS_MAX * 8;

/// Starts a request that has no payload.
pub(super) fn start(connection: &Rc<Connection>, ticket: ReplyTicket, action: Action) {
    match action {
        Action::Read { offset, len, whole } => reads::read(connection, ticket, Read { offset, len, whole }),
        // The caller receives its payload: see `write`.
        Action::Write { .. } => refuse(connection, ticket, errno::EIO),
        Action::Flush => answer(connection, ticket, false, connection.device.flush()),
        Action::Trim { offset, len, fua } => ranges::start(connection, ticket, len, move |connection| match fua {
            false => connection.device.discard(offset, u64::from(len)),
            true => discard_and_flush(connection.device.clone(), offset, u64::from(len)),
        }),
        Action::WriteZeroes { offset, len, fua, no_hole, fast_only } => {
            ranges::start(connection, ticket, len, move |connection| {
                let (device, len) = (&connection.device, u64::from(len));
                if fast_only && !device.info().zeroes_fast {
                    return IoFuture::ready(Err(IoError::new(
                        IoErrorKind::Unsupported,
                        IoOp::WriteZeroes,
                        offset,
                        len,
                    )));
                }
                device.write_zeroes(offset, len, ZeroFlags { fua, no_hole, fast_only })
            });
        }
        Action::BlockStatus { offset, len, one } => match connection.memory_now(EXTENTS_BYTES_MAX) {
            Some(bytes) => block_status(connection, ticket.holding(bytes), offset, len, one),
            None => {
                let connection = connection.clone();
                driver::spawn_local(async move {
                    let Some(Memory { bytes, .. }) = connection.memory(EXTENTS_BYTES_MAX).await else {
                        return connection.release(ticket.charge);
                    };
                    block_status(&connection, ticket.holding(bytes), offset, len, one);
                    connection.to_send.notify();
                });
            }
        },
        Action::Refuse { error, .. } => refuse(connection, ticket, error),
    }
}

/// Receives a write and starts it. Fails if the client is gone.
pub(super) async fn write(
    connection: &Rc<Connection>,
    inbox: &mut Inbox,
    ticket: ReplyTicket,
    (offset, len): (u64, u32),
    fua: bool,
) -> IoResult<()> {
    let flags = WriteFlags { fua };
    let first = len.min(PIECE_BYTES_MAX);
    let (memory, data) = receive(connection, inbox, first).await.inspect_err(|_| connection.release(ticket.charge))?;
    if memory.data_bytes == len as usize {
        answer(connection, ticket.holding(memory.bytes), true, connection.device.write(offset, data, flags));
        return Ok(());
    }
    let (parts, mut last) = Parts::new(connection, ticket, IoOp::Write, len);
    let (mut at, mut received) = (0, (memory, data));
    loop {
        let (memory, data) = received;
        let written = connection.device.write(offset + u64::from(at), data, flags);
        at += memory.data_bytes as u32;
        if at == len {
            last = last.holding(memory.bytes);
            when_done(connection, written, move |_, result| last.end(result.map(|()| None)));
            return Ok(());
        }
        let part = parts.part(memory.bytes);
        when_done(connection, written, move |_, result| part.end(result.map(|()| None)));
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

fn block_status(connection: &Rc<Connection>, ticket: ReplyTicket, offset: u64, len: u32, one: bool) {
    let block_bytes = u64::from(connection.export.block_bytes_min);
    let extents = connection.device.extents(offset, u64::from(len));
    when_done(connection, extents, move |connection, result| match result {
        Ok(extents) => {
            let mut extents = tidy(&extents, u64::from(len), block_bytes);
            extents.truncate(if one { 1 } else { extents.len() });
            ticket.extents(&mut connection.outbox(), &extents);
        }
        Err(error) => fail(connection, ticket, false, &error),
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

fn discard_and_flush(device: Arc<dyn BlockDevice>, offset: u64, len: u64) -> IoFuture<()> {
    let discarded = device.discard(offset, len);
    IoFuture::boxed(async move {
        discarded.await?;
        device.flush().await
    })
}
