//! The course of a connection: handshake, then requests until either side ends it.
//!
//! Role: the main task receives, parses and starts requests. A sender task waits for a full socket.
//! Each request that the device does not answer at once is a task, too. The thread's driver drives
//! them all.
//!
//! Invariants: the thread ends only when every started request has been answered or the socket has
//! failed, and no device operation is left. No request starts while `draining` is set.
//!
//! It does not keep time. The accept thread ends slow handshakes by shutting the socket down.

use super::{
    commands,
    connection::{Connection, Service, sender},
    handshake::{Handshake, HandshakeProgress, Negotiated},
    inbox::Inbox,
    limits::{SEND_BATCH_BYTES, count},
    outbox::{Body, Charge, OutSegment},
    peer::Peer,
    reply::ReplyTicket,
    request::{self, Action, Parsed},
};
use crate::dispatch::Request;
use larder_device::{IoResult, driver, nbd::proto::REQUEST_BYTES};
use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

/// Serves one connection until it ends. Blocks.
pub(super) fn serve(service: Service, peer: Arc<Peer>) {
    driver::block_on(async move {
        let connection = Connection::new(service, peer);
        driver::spawn_local(sender(connection.clone()));
        let mut inbox = Inbox::new(connection.peer.clone(), connection.spin_max());
        let ended = match handshake(&connection, &mut inbox).await {
            Ok(Some(agreed)) => transmission(&connection, &mut inbox, agreed).await,
            Ok(None) => Ok(End::Goodbye),
            Err(error) => Err(error),
        };
        if matches!(ended, Ok(End::Broken)) {
            count(&connection.counters.protocol_errors, 1);
        }
        connection.finish().await;
    });
}

/// The reason of a connection's end, other than the socket's.
enum End {
    Goodbye,
    Broken,
}

/// Runs the handshake; `None` if the connection ends here.
async fn handshake(connection: &Rc<Connection>, inbox: &mut Inbox) -> IoResult<Option<Negotiated>> {
    let mut out = Vec::new();
    let mut machine = Handshake::new(&connection.export, &mut out);
    let mut progress = HandshakeProgress::More;
    loop {
        if !out.is_empty() {
            connection.outbox().push(OutSegment::new(&[], Body::Bytes(std::mem::take(&mut out))));
            // A client that does not read its replies gets no more of them.
            connection.send_all().await;
        }
        match progress {
            HandshakeProgress::More => {}
            HandshakeProgress::Transmission(agreed) => {
                connection.peer.greeted.store(true, Ordering::Release);
                return Ok(Some(agreed));
            }
            HandshakeProgress::Goodbye => return Ok(None),
            HandshakeProgress::Broken => {
                count(&connection.counters.protocol_errors, 1);
                return Ok(None);
            }
        }
        inbox.fill().await?;
        let consumed;
        (consumed, progress) = machine.feed(inbox.bytes(), &mut out);
        inbox.consume(consumed);
    }
}

async fn transmission(connection: &Rc<Connection>, inbox: &mut Inbox, agreed: Negotiated) -> IoResult<End> {
    while !connection.peer.draining.load(Ordering::Acquire) && !connection.outbox().failed() {
        let incoming = match request::parse(inbox.bytes(), &connection.export, agreed) {
            Parsed::Request(incoming) => incoming,
            Parsed::More => {
                // Nothing is left to start: ready replies leave before the wait.
                connection.send();
                let idle = connection.outbox().held().requests == 0;
                if idle {
                    inbox.fill_idle().await?
                } else {
                    inbox.fill().await?
                }
                continue;
            }
            Parsed::Goodbye => return Ok(End::Goodbye),
            Parsed::Broken => return Ok(End::Broken),
        };
        inbox.consume(REQUEST_BYTES);
        count(&connection.counters.requests, 1);
        connection.admit().await;
        let ticket = ReplyTicket { cookie: incoming.cookie, charge: Charge { requests: 1, bytes: 0 }, agreed };
        if let Action::Do(request @ Request::Write { .. }) = incoming.action {
            commands::write(connection, inbox, ticket, request).await?;
        } else {
            let payload_bytes = incoming.payload_bytes as usize;
            if !inbox.has(payload_bytes) {
                connection.send();
            }
            inbox.skip(payload_bytes).await.inspect_err(|_| connection.release(ticket.charge))?;
            commands::start(connection, ticket, incoming.action);
        }
        if connection.outbox().queued_bytes() >= SEND_BATCH_BYTES {
            connection.send();
        }
    }
    Ok(End::Goodbye)
}
