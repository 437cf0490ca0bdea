//! Commands: started at the device, answered when it is done.
//!
//! Role: one function a command. A device that has the result at once is answered at once; else a task of the
//! connection's thread waits for it, so that requests are answered in the order in which they complete.
//!
//! Invariants: each call of [`start`] leads to exactly one reply.
//!
//! What it does not do: check requests (they are), send replies (they are queued).

use super::{
    connection::Connection,
    limits::{SPARSE_READ_BYTES_MIN, count},
    reply::{Piece, Ticket, tidy},
    request::Action,
};
use larder_device::{
    BlockDevice, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, IoResult, SharedBuf, WriteFlags, ZeroFlags,
    driver,
    nbd::proto::{errno, errno_of},
};
use std::{rc::Rc, sync::Arc};

/// Starts a request. `payload` is a write's data.
pub(super) fn start(connection: &Rc<Connection>, ticket: Ticket, action: Action, payload: Option<SharedBuf>) {
    let device = &connection.device;
    match action {
        Action::Read { offset, len, whole } => read(connection, ticket, offset, len, whole),
        Action::Write { offset, fua, .. } => {
            let Some(data) = payload else { return refuse(connection, ticket, errno::EIO) };
            count(&connection.counters.written_bytes, data.len() as u64);
            answer(connection, ticket, true, device.write(offset, data, WriteFlags { fua }));
        }
        Action::Flush => answer(connection, ticket, false, device.flush()),
        Action::Trim { offset, len, fua: false } => {
            answer(connection, ticket, true, device.discard(offset, u64::from(len)));
        }
        Action::Trim { offset, len, fua: true } => {
            answer(connection, ticket, true, discard_and_flush(device.clone(), offset, u64::from(len)));
        }
        Action::WriteZeroes { offset, len, fua, no_hole, fast_only } => {
            let len = u64::from(len);
            let zeroed = if fast_only && !device.info().zeroes_fast {
                IoFuture::ready(Err(IoError::new(IoErrorKind::Unsupported, IoOp::WriteZeroes, offset, len)))
            } else {
                device.write_zeroes(offset, len, ZeroFlags { fua, no_hole, fast_only })
            };
            answer(connection, ticket, true, zeroed);
        }
        Action::BlockStatus { offset, len, one } => {
            let block_bytes = u64::from(connection.export.block_bytes_min);
            when_done(connection, device.extents(offset, u64::from(len)), move |connection, result| match result {
                Ok(extents) => {
                    let mut extents = tidy(&extents, u64::from(len), block_bytes);
                    extents.truncate(if one { 1 } else { extents.len() });
                    ticket.extents(&mut connection.outbox(), &extents);
                }
                Err(error) => fail(connection, ticket, false, &error),
            });
        }
        Action::Refuse { error, .. } => refuse(connection, ticket, error),
    }
}

/// Calls `finish` with the future's result, at once or from a task.
fn when_done<T: 'static>(
    connection: &Rc<Connection>,
    future: IoFuture<T>,
    finish: impl FnOnce(&Rc<Connection>, IoResult<T>) + 'static,
) {
    match future.try_ready() {
        Ok(result) => finish(connection, result),
        Err(future) => {
            let connection = connection.clone();
            driver::spawn_local(async move {
                let result = future.await;
                finish(&connection, result);
                connection.to_send.notify();
            });
        }
    }
}

fn answer(connection: &Rc<Connection>, ticket: Ticket, writes: bool, future: IoFuture<()>) {
    when_done(connection, future, move |connection, result| match result {
        Ok(()) => ticket.done(&mut connection.outbox()),
        Err(error) => fail(connection, ticket, writes, &error),
    });
}

fn fail(connection: &Connection, ticket: Ticket, writes: bool, error: &IoError) {
    count(&connection.counters.errors, 1);
    ticket.error(&mut connection.outbox(), errno_of(error.kind, writes), &error.to_string());
}

fn refuse(connection: &Connection, ticket: Ticket, error: u32) {
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

fn read(connection: &Rc<Connection>, ticket: Ticket, offset: u64, len: u32, whole: bool) {
    if len >= SPARSE_READ_BYTES_MIN && !whole && ticket.agreed.structured && connection.extents_are_cheap.get() {
        match connection.device.extents(offset, u64::from(len)).try_ready() {
            Ok(Ok(extents)) if extents.iter().any(|extent| extent.zero) => {
                return read_sparse(connection, ticket, offset, len, &extents);
            }
            Ok(_) => {}
            // A device that must do I/O to know its holes is not asked again.
            Err(_) => connection.extents_are_cheap.set(false),
        }
    }
    let future = connection.device.read(offset, IoBuf::new(len as usize));
    when_done(connection, future, move |connection, result| match result {
        Ok(data) => {
            count(&connection.counters.read_bytes, u64::from(len));
            ticket.data(&mut connection.outbox(), offset, data);
        }
        Err(error) => fail(connection, ticket, false, &error),
    });
}

/// Reads what is not zero, all pieces at once, and answers in chunks.
fn read_sparse(connection: &Rc<Connection>, ticket: Ticket, offset: u64, len: u32, extents: &[Extent]) {
    let mut runs = tidy(extents, u64::from(len), u64::from(connection.export.block_bytes_min));
    let covered: u64 = runs.iter().map(|run| run.len).sum();
    if covered < u64::from(len) {
        runs.push(Extent { len: u64::from(len) - covered, hole: false, zero: false });
    }
    let mut at = offset;
    let mut reads = Vec::with_capacity(runs.len());
    for run in &runs {
        let data = (!run.zero).then(|| connection.device.read(at, IoBuf::new(run.len as usize)));
        reads.push((at, run.len as u32, data));
        at += run.len;
    }
    let all = IoFuture::boxed(async move {
        let mut pieces = Vec::with_capacity(reads.len());
        for (at, len, data) in reads {
            pieces.push(match data {
                Some(data) => Piece::Data(at, data.await?),
                None => Piece::Zeroes(at, len),
            });
        }
        Ok(pieces)
    });
    when_done(connection, all, move |connection, result| match result {
        Ok(pieces) => {
            count(&connection.counters.read_bytes, u64::from(len));
            ticket.pieces(&mut connection.outbox(), pieces);
        }
        Err(error) => fail(connection, ticket, false, &error),
    });
}
