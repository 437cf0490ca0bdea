//! The end of a request: its device has answered, and the reply is queued.
//!
//! Invariants: each request ends once.
//!
//! It does not start a request.

use super::{connection::Connection, limits::count, reply::ReplyTicket};
use larder_device::{IoError, IoFuture, IoResult, driver, nbd::proto::errno_of};
use std::rc::Rc;

/// Calls `finish` with the future's result, at once or from a task.
pub(super) fn when_done<T: 'static>(
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

/// Answers without data.
pub(super) fn answer(connection: &Rc<Connection>, ticket: ReplyTicket, writes: bool, future: IoFuture<()>) {
    when_done(connection, future, move |connection, result| match result {
        Ok(()) => ticket.done(&mut connection.outbox()),
        Err(error) => fail(connection, ticket, writes, &error),
    });
}

/// Answers with an error of the device.
pub(super) fn fail(connection: &Connection, ticket: ReplyTicket, writes: bool, error: &IoError) {
    count(&connection.counters.errors, 1);
    ticket.error(&mut connection.outbox(), errno_of(error.kind, writes), &error.to_string());
}
