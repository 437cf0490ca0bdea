//! One connection: handshake, then requests until either side ends it. Runs on a thread of its own.
//!
//! Role: the main task receives, parses and starts requests. A sender task waits for a full socket.
//! Each request that the device does not answer at once is a task, too. The thread's driver drives
//! them all.
//!
//! Invariants: requests hold no more than [`ServerOptions`] allows. A request, or a piece of one,
//! waits until it fits. The requests of a connection take turns, so that a small request has its
//! own between two pieces of a large one. The thread ends only when every started request has been
//! answered or the socket has failed, and no device operation is left. No request starts while
//! `draining` is set.
//!
//! It does not keep time. The accept thread ends slow handshakes by shutting the socket down.

use super::{
    commands,
    export::Export,
    handshake::{Handshake, Negotiated, Progress},
    inbox::Inbox,
    limits::{Counters, SEND_BATCH_BYTES, ServerOptions, count},
    memory::Account,
    outbox::{Body, Charge, Outbox, Segment, Sent},
    ranges::Ranges,
    reply::Ticket,
    request::{self, Action, Parsed},
    signal::{Signal, Turns},
};
use larder_device::{
    BlockDevice, IoResult, driver,
    nbd::{
        proto::REQUEST_BYTES,
        socket::{self, Direction},
    },
};
use std::{
    cell::{Cell, RefCell, RefMut},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The state that the connection's thread and the accept thread share.
pub(super) struct Peer {
    /// The socket, nonblocking.
    pub socket: OwnedFd,
    /// The handshake is over.
    pub greeted: AtomicBool,
    /// No further request may start.
    pub draining: AtomicBool,
}

impl Peer {
    /// Lets requests in flight finish, and starts no other.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        socket::shutdown(self.socket.as_fd(), Direction::Receive);
    }

    /// Ends the connection as soon as the device has answered.
    pub fn cut(&self) {
        self.draining.store(true, Ordering::Release);
        socket::shutdown(self.socket.as_fd(), Direction::Both);
    }
}

/// The served device and options of a connection.
#[derive(Clone)]
pub(super) struct Service {
    pub device: Arc<dyn BlockDevice>,
    pub export: Arc<Export>,
    pub options: Arc<ServerOptions>,
    pub counters: Arc<Counters>,
}

/// The state that the tasks of a connection share.
pub(super) struct Connection {
    pub device: Arc<dyn BlockDevice>,
    pub export: Arc<Export>,
    pub counters: Arc<Counters>,
    /// The device has answered for extents without waiting so far.
    pub extents_are_cheap: Cell<bool>,
    /// Replies were queued by a task.
    pub to_send: Signal,
    options: Arc<ServerOptions>,
    peer: Arc<Peer>,
    outbox: RefCell<Outbox>,
    /// The socket is full; the sender task waits for it, or is about to.
    full: Cell<bool>,
    /// The account has fallen: for the main task.
    room: Signal,
    /// The account has fallen: for the task whose turn it is to take memory.
    freed: Signal,
    memory_turns: Turns,
    /// Replies have left: for the task that sends a stretch.
    sent: Signal,
    /// One reply at a time is a stretch.
    pub stretches: Turns,
    /// Trims and writes of zeroes.
    pub ranges: Ranges,
    closing: Cell<bool>,
    sender_over: Signal,
}

/// The memory of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// The number of data bytes that the memory is for.
    pub data_bytes: usize,
    /// The charge of the connection for it.
    pub bytes: usize,
}

/// Serves one connection until it ends. Blocks.
pub(super) fn serve(service: Service, peer: Arc<Peer>) {
    driver::block_on(async move {
        let outbox = Outbox::new(Account::new(service.options.memory.clone()));
        let connection = Rc::new(Connection {
            device: service.device,
            export: service.export,
            counters: service.counters,
            extents_are_cheap: Cell::new(true),
            to_send: Signal::default(),
            options: service.options,
            peer,
            outbox: RefCell::new(outbox),
            full: Cell::new(false),
            room: Signal::default(),
            freed: Signal::default(),
            memory_turns: Turns::default(),
            sent: Signal::default(),
            stretches: Turns::default(),
            ranges: Ranges::default(),
            closing: Cell::new(false),
            sender_over: Signal::default(),
        });
        driver::spawn_local(sender(connection.clone()));
        let mut inbox = Inbox::new(connection.peer.clone(), connection.options.spin_max);
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
    let mut progress = Progress::More;
    loop {
        if !out.is_empty() {
            connection.outbox().push(Segment::new(&[], Body::Bytes(std::mem::take(&mut out))));
            // A client that does not read its replies gets no more of them.
            connection.send_all().await;
        }
        match progress {
            Progress::More => {}
            Progress::Transmission(agreed) => {
                connection.peer.greeted.store(true, Ordering::Release);
                return Ok(Some(agreed));
            }
            Progress::Goodbye => return Ok(None),
            Progress::Broken => {
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
        let ticket = Ticket { cookie: incoming.cookie, charge: Charge { requests: 1, bytes: 0 }, agreed };
        if let Action::Write { offset, len, fua } = incoming.action {
            commands::write(connection, inbox, ticket, (offset, len), fua).await?;
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

impl Connection {
    /// Returns the replies; borrowed for the length of a statement, never across an await.
    pub fn outbox(&self) -> RefMut<'_, Outbox> {
        self.outbox.borrow_mut()
    }

    /// Sends ready replies, as far as the socket takes them; the sender task does the rest.
    pub fn send(&self) {
        if self.full.get() {
            return;
        }
        let state = |outbox: &Outbox| (outbox.held(), outbox.queued_bytes(), outbox.failed());
        let mut outbox = self.outbox();
        let before = state(&outbox);
        let sent = outbox.send(self.peer.socket.as_fd());
        let after = state(&outbox);
        drop(outbox);
        if sent == Sent::Full {
            self.full.set(true);
            self.to_send.notify();
        }
        // Only after a change: tasks call this in the loops that wait for one.
        if after != before {
            self.progress();
        }
    }

    /// Wakes the waiting tasks after less is held or queued, or the peer is gone.
    fn progress(&self) {
        self.room.notify();
        self.freed.notify();
        self.sent.notify();
    }

    /// Gives the memory of a request back.
    pub fn release(&self, charge: Charge) {
        self.outbox().release(charge);
        self.progress();
    }

    /// Returns whether the client is gone. Then no further request begins.
    pub fn is_gone(&self) -> bool {
        if !self.outbox().failed() && socket::is_hung_up(self.peer.socket.as_fd()) {
            self.outbox().fail();
            self.progress();
        }
        self.outbox().failed()
    }

    /// Ends the connection in the middle of a reply.
    pub fn abandon(&self) {
        self.outbox().fail();
        self.peer.cut();
        self.progress();
    }

    /// Waits until one more request fits the limits, and charges it.
    async fn admit(&self) {
        loop {
            {
                let mut outbox = self.outbox();
                let has_place = outbox.held().requests < self.options.requests_in_flight_max.max(1);
                if has_place && outbox.account().begin_request() {
                    return;
                }
            }
            self.send();
            self.room.wait().await;
        }
    }

    /// Takes the memory for `data_bytes`, if it is free and no task waits. Returns the charge.
    pub fn memory_now(&self, data_bytes: usize) -> Option<usize> {
        let bytes = self.options.memory.cost(data_bytes);
        (!self.memory_turns.is_taken() && self.outbox().account().take(bytes)).then_some(bytes)
    }

    /// Waits for the memory for `data_bytes`, or for as many as the connection could ever hold.
    ///
    /// Returns `None` if the peer is gone.
    pub async fn memory(&self, data_bytes: usize) -> Option<Memory> {
        let _turn = self.memory_turns.take().await;
        loop {
            {
                let mut outbox = self.outbox();
                if outbox.failed() {
                    return None;
                }
                if let Some(data_bytes) = outbox.account().take_for(data_bytes) {
                    return Some(Memory { data_bytes, bytes: self.options.memory.cost(data_bytes) });
                }
            }
            self.send();
            self.freed.wait().await;
        }
    }

    /// Waits until all queued segments have left. False if the peer is gone.
    pub async fn all_sent(&self) -> bool {
        loop {
            self.send();
            {
                let outbox = self.outbox();
                if outbox.failed() || outbox.queued_bytes() == 0 {
                    return !outbox.failed();
                }
            }
            self.sent.wait().await;
        }
    }

    /// Waits until all queued bytes have left, or the socket has failed.
    async fn send_all(&self) {
        loop {
            self.send();
            if self.outbox().queued_bytes() == 0 {
                return;
            }
            self.room.wait().await;
        }
    }

    /// Waits for requests in flight and their replies, then for the sender, and closes.
    async fn finish(&self) {
        loop {
            self.send();
            if self.outbox().held() == Charge::default() && self.outbox().queued_bytes() == 0 {
                break;
            }
            self.room.wait().await;
        }
        self.closing.set(true);
        self.to_send.notify();
        self.sender_over.wait().await;
        let socket = self.peer.socket.as_fd();
        socket::shutdown(socket, Direction::Send);
        // TCP resets a connection that is closed with unread bytes, and the reset drops replies
        // that the client has not read yet. So the server reads arrived bytes, up to a limit.
        let mut scratch = [0; 4096];
        for _ in 0..LINGER_READS_MAX {
            if !matches!(socket::receive(socket, &mut scratch, false), Ok(1..)) {
                break;
            }
        }
        socket::shutdown(socket, Direction::Both);
    }
}

/// Receives of 4 KiB before a connection is closed for good.
const LINGER_READS_MAX: usize = 256;

/// Sends the replies of tasks: woken once for all that completed together.
async fn sender(connection: Rc<Connection>) {
    while !connection.closing.get() {
        connection.to_send.wait().await;
        connection.send();
        while connection.full.get() {
            let writable = driver::writable(connection.peer.socket.as_raw_fd()).await;
            connection.full.set(false);
            if writable.is_err() {
                connection.outbox().fail();
            }
            connection.send();
            connection.progress();
        }
        // Replies to a peer that is gone are dropped from the queue, and make room, too.
        connection.progress();
    }
    connection.sender_over.notify();
}
