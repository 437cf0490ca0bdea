//! The end of a request: its device has answered, and the reply is queued.
//!
//! Invariants: each request ends once.
//!
//! It does not start a request.

use super::{connection::Connection, limits::count, reply::ReplyTicket};
use crate::dispatch::{Begun, Reply, Request};
use larder_device::{IoError, IoResult, SharedBuf, driver, nbd::proto::errno_of};
use std::rc::Rc;

/// Calls `finish` with the outcome of a begun request, at once or from a task.
pub(super) fn when_done(
    connection: &Rc<Connection>,
    begun: Begun,
    finish: impl FnOnce(&Rc<Connection>, IoResult<Reply>) + 'static,
) {
    match begun.try_ready() {
        Ok(outcome) => finish(connection, outcome),
        Err(begun) => {
            let connection = connection.clone();
            driver::spawn_local(async move {
                let outcome = begun.await;
                finish(&connection, outcome);
                connection.to_send.notify();
            });
        }
    }
}

/// Starts a request at the device, and answers it.
pub(super) fn answer(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, payload: Option<SharedBuf>) {
    let begun = connection.dispatch.start(request, payload);
    when_done(connection, begun, move |connection, outcome| finish(connection, ticket, request, outcome));
}

/// Answers with the outcome of a request.
pub(super) fn finish(connection: &Connection, ticket: ReplyTicket, request: Request, outcome: IoResult<Reply>) {
    match outcome {
        Ok(reply) => {
            if let Request::Read { len, .. } = request {
                count(&connection.counters.read_bytes, u64::from(len));
            }
            ticket.reply(&mut connection.outbox(), reply);
        }
        Err(error) => fail(connection, ticket, request.changes(), &error),
    }
}

/// Answers with an error of the device.
pub(super) fn fail(connection: &Connection, ticket: ReplyTicket, changes: bool, error: &IoError) {
    count(&connection.counters.errors, 1);
    ticket.error(&mut connection.outbox(), errno_of(error.kind, changes), &error.to_string());
}
