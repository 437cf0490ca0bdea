//! Trims and writes of zeroes: a few long ones of each connection are under way at a time.
//!
//! Such a request is short on the wire and may be long work. A client could leave the device hours
//! of it and go. So a request begins when there is room among
//! [`RANGES_BYTES_MAX`](super::limits::RANGES_BYTES_MAX), in the order of arrival, and is dropped
//! if its client is gone by then.
//!
//! Invariants: one request at least may be under way, at any length. Each request ends with one
//! reply, unless the client is gone.
//!
//! It does not split requests.

use super::{
    answer::{finish, when_done},
    connection::Connection,
    reply::ReplyTicket,
};
use crate::dispatch::Request;
use larder_device::driver;
use std::rc::Rc;

/// Begins a request over a range, now or when there is room.
pub(super) fn start(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request) {
    let len = u64::from(request.range().1);
    if !connection.ranges.turns.is_taken() && connection.ranges.begin(len) {
        return run(connection, ticket, request, len);
    }
    let connection = connection.clone();
    driver::spawn_local(async move {
        let turn = connection.ranges.turns.take().await;
        while !connection.ranges.begin(len) {
            connection.ranges.ended.wait().await;
        }
        drop(turn);
        run(&connection, ticket, request, len);
        connection.to_send.notify();
    });
}

/// Runs a request that has room, or drops it if its client is gone.
///
/// A socket hands out the requests of a client that has closed it, so each request asks.
fn run(connection: &Rc<Connection>, ticket: ReplyTicket, request: Request, len: u64) {
    if connection.is_gone() {
        connection.ranges.end(len);
        return connection.release(ticket.charge);
    }
    when_done(connection, connection.dispatch.start(request, None), move |connection, outcome| {
        connection.ranges.end(len);
        finish(connection, ticket, request, outcome);
    });
}
