//! The state of one connection: its replies, its memory, and the tasks that wait for either.
//!
//! Invariants: requests hold no more than [`ServerOptions`] allows. A request, or a piece of one,
//! waits until it fits. The requests of a connection take turns, so that a small request has its
//! own between two pieces of a large one.
//!
//! It does not receive or start a request; `conversation.rs` does.

use super::{
    export::Export,
    limits::{Counters, ServerOptions},
    memory::MemoryAccount,
    outbox::{Charge, Outbox, Sent},
    peer::Peer,
    room::Ranges,
    signal::{Signal, SignalTurns},
};
use crate::dispatch::Dispatch;
use larder_device::{
    BlockDevice, driver,
    nbd::socket::{self, Direction},
};
use std::{
    cell::{Cell, RefCell, RefMut},
    os::fd::{AsFd, AsRawFd},
    rc::Rc,
    sync::Arc,
};

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
    pub dispatch: Dispatch,
    pub export: Arc<Export>,
    pub counters: Arc<Counters>,
    /// Replies were queued by a task.
    pub to_send: Signal,
    options: Arc<ServerOptions>,
    pub peer: Arc<Peer>,
    outbox: RefCell<Outbox>,
    /// The socket is full; the sender task waits for it, or is about to.
    full: Cell<bool>,
    /// The account has fallen: for the main task.
    room: Signal,
    /// The account has fallen: for the task whose turn it is to take memory.
    freed: Signal,
    memory_turns: SignalTurns,
    /// Replies have left: for the task that sends a stretch.
    sent: Signal,
    /// One reply at a time is a stretch.
    pub stretches: SignalTurns,
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

impl Connection {
    /// Begins a connection that holds nothing.
    pub fn new(service: Service, peer: Arc<Peer>) -> Rc<Connection> {
        let outbox = Outbox::new(MemoryAccount::new(service.options.memory.clone()));
        Rc::new(Connection {
            dispatch: Dispatch::new(service.device, service.export.limits),
            export: service.export,
            counters: service.counters,
            to_send: Signal::default(),
            options: service.options,
            peer,
            outbox: RefCell::new(outbox),
            full: Cell::new(false),
            room: Signal::default(),
            freed: Signal::default(),
            memory_turns: SignalTurns::default(),
            sent: Signal::default(),
            stretches: SignalTurns::default(),
            ranges: Ranges::default(),
            closing: Cell::new(false),
            sender_over: Signal::default(),
        })
    }

    /// Returns the time for which a receive spins before it sleeps.
    pub fn spin_max(&self) -> std::time::Duration {
        self.options.spin_max
    }

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
    pub async fn admit(&self) {
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

    /// Waits for the memory for `data_bytes`, or for the most bytes that the connection could ever
    /// hold.
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
    pub async fn send_all(&self) {
        loop {
            self.send();
            if self.outbox().queued_bytes() == 0 {
                return;
            }
            self.room.wait().await;
        }
    }

    /// Waits for requests in flight and their replies, then for the sender, and closes.
    pub async fn finish(&self) {
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
pub(super) async fn sender(connection: Rc<Connection>) {
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
