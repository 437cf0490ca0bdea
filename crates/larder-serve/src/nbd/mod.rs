//! A network block device (NBD) server over any [`BlockDevice`].
//!
//! Role: it listens, and gives each connection a thread with a driver of its own. It covers the
//! fixed newstyle handshake, simple and structured replies, and `base:allocation`. See the files:
//! `handshake`, `request` (pure parsing), `connection`, `commands`, `reads`, `ranges`, `parts`,
//! `reply`, `outbox`, `memory`.
//!
//! Invariants: a malformed, slow or hostile client costs its own connection only. [`ServerOptions`]
//! bounds the memory. After [`NbdServer::shutdown`] no thread uses the device, unless a request was
//! still in the device when its time ran out.
//!
//! It does not implement TLS, authentication, extended headers, or resizing.

mod address;
mod answer;
mod commands;
mod connection;
mod conversation;
mod export;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod inbox;
mod limits;
mod memory;
mod outbox;
mod parts;
mod peer;
mod ranges;
mod reads;
mod reply;
mod request;
mod room;
mod shortage;
mod signal;

pub use address::{ServeAddress, ServeError, ServeErrorKind};
pub use limits::{ServerOptions, ServerStats};
pub use memory::RequestMemory;
pub use shortage::Shortage;

use address::Listener;
use connection::Service;
use export::Export;
use larder_device::{BlockDevice, buf, nbd::proto::STRING_BYTES_MAX};
use limits::{Counters, count};
use parking_lot::{Condvar, Mutex};
use peer::Peer;
use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Longest wait of the accept thread before it looks after its connections again.
const ACCEPT_WAIT_MAX: Duration = Duration::from_millis(500);
/// The pause of the accept thread when the system has no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The interval after which unused buffers go back to the system.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(2);
/// The longest wait of [`NbdServer::shutdown`] for threads whose connections were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// A server of one export. Dropping it shuts it down.
pub struct NbdServer {
    shared: Arc<ServerShared>,
    address: ServeAddress,
    accepting: Mutex<Accepting>,
}

enum Accepting {
    /// Bound, not started.
    Bound(Box<Listener>),
    Started(JoinHandle<()>),
    Stopped,
}

struct ServerShared {
    service: Service,
    stopping: AtomicBool,
    /// An eventfd that wakes the accept thread.
    wake: OwnedFd,
    connections: Mutex<HashMap<u64, ConnectionEntry>>,
    /// A connection's thread has come to its end.
    ended: Condvar,
    /// The server has ended: later calls return without a wait.
    is_over: AtomicBool,
    shortage: Shortage,
}

struct ConnectionEntry {
    peer: Arc<Peer>,
    since: Instant,
    /// `None` for the moment until the thread runs.
    thread: Option<JoinHandle<()>>,
    over: bool,
}

impl NbdServer {
    /// Binds `address` to serve `device` as the export `name`, also for clients without a name.
    ///
    /// Connections are accepted from [`NbdServer::start`] on.
    pub fn bind(
        address: ServeAddress,
        name: &str,
        device: Arc<dyn BlockDevice>,
        options: ServerOptions,
    ) -> Result<NbdServer, ServeError> {
        if name.len() > STRING_BYTES_MAX {
            return Err(ServeError {
                kind: ServeErrorKind::BadName,
                message: format!("Cannot serve at {address}: an export's name has {STRING_BYTES_MAX} bytes at most."),
            });
        }
        let listener = Listener::bind(&address)?;
        let wake = event_fd().map_err(|error| ServeError::io(&address, "serve at", &error))?;
        let export = Arc::new(Export::new(name, device.info(), &options));
        let service = Service { device, export, options: Arc::new(options), counters: Arc::new(Counters::default()) };
        let shared = ServerShared {
            service,
            stopping: AtomicBool::new(false),
            wake,
            connections: Mutex::default(),
            ended: Condvar::new(),
            is_over: AtomicBool::new(false),
            shortage: Shortage::default(),
        };
        Ok(NbdServer {
            address: listener.local_address(&address),
            shared: Arc::new(shared),
            accepting: Mutex::new(Accepting::Bound(Box::new(listener))),
        })
    }

    /// Returns the address of the server, with the port that the system chose.
    pub fn local_address(&self) -> &ServeAddress {
        &self.address
    }

    /// Begins to accept, on a thread. A second call does nothing.
    pub fn start(&self) -> Result<(), ServeError> {
        let mut accepting = self.accepting.lock();
        let listener = match std::mem::replace(&mut *accepting, Accepting::Stopped) {
            Accepting::Bound(listener) => listener,
            other => {
                *accepting = other;
                return Ok(());
            }
        };
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn(move || accept_loop(&shared, *listener))
            .map_err(|error| ServeError::io(&self.address, "start a thread to serve at", &error))?;
        *accepting = Accepting::Started(thread);
        Ok(())
    }

    /// Returns the lack that makes the server refuse clients. The handle outlives the server.
    pub fn shortage(&self) -> Shortage {
        self.shared.shortage.clone()
    }

    /// Returns the counters, now.
    pub fn stats(&self) -> ServerStats {
        self.shared.service.counters.snapshot()
    }

    /// Stops accepting, finishes requests in flight with their replies, and closes every
    /// connection.
    ///
    /// It cuts off connections unfinished after [`ServerOptions::shutdown_timeout`]. Returns
    /// whether everything ended in order. A second call waits for nothing.
    pub fn shutdown(&self) -> bool {
        self.drain();
        if self.shared.is_over.load(Ordering::Acquire) {
            return self.await_drained(Duration::ZERO);
        }
        let in_order = self.await_drained(self.shared.service.options.shutdown_timeout);
        if !in_order {
            self.cut(CUT_WAIT);
        }
        in_order
    }

    /// Takes the first step of [`NbdServer::shutdown`], for an end with a deadline of its own.
    ///
    /// Stops accepting, and has each connection end after its requests. Returns without a wait for
    /// requests.
    pub fn drain(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        wake(&self.shared.wake);
        match std::mem::replace(&mut *self.accepting.lock(), Accepting::Stopped) {
            Accepting::Started(thread) => drop(thread.join()),
            // Dropping the listener removes its socket file.
            Accepting::Bound(_) | Accepting::Stopped => {}
        }
        self.shared.connections.lock().values().for_each(|entry| entry.peer.drain());
    }

    /// Waits `at_most` so long until every connection has ended. Returns whether they have. Follows
    /// [`NbdServer::drain`].
    pub fn await_drained(&self, at_most: Duration) -> bool {
        let drained = self.shared.await_all(at_most);
        if drained {
            self.shared.is_over.store(true, Ordering::Release);
            self.shared.reap();
        }
        drained
    }

    /// Takes the last step: cuts off every open connection, and waits at most so long for their
    /// threads.
    pub fn cut(&self, at_most: Duration) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.connections.lock().values().for_each(|entry| entry.peer.cut());
        self.shared.await_all(at_most);
        self.shared.reap();
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        // A server that has ended returns at once: its end was waited for already.
        self.shutdown();
    }
}

impl ServerShared {
    /// Waits until every connection has ended. Returns whether that was in time.
    fn await_all(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut connections = self.connections.lock();
        while connections.values().any(|entry| !entry.over) {
            if self.ended.wait_until(&mut connections, until).timed_out() {
                return connections.values().all(|entry| entry.over);
            }
        }
        true
    }

    /// Joins threads that have ended.
    fn reap(&self) {
        let mut over = Vec::new();
        self.connections.lock().retain(|_, entry| {
            if entry.over && entry.thread.is_some() {
                over.extend(entry.thread.take());
                return false;
            }
            true
        });
        for thread in over {
            // A panic was reported by its thread and has cost that connection only.
            let _ = thread.join();
        }
    }

    /// Cuts connections whose handshake takes too long. Returns the time until the next one.
    fn cut_slow(&self) -> Duration {
        let timeout = self.service.options.handshake_timeout;
        let mut next = ACCEPT_WAIT_MAX;
        for entry in self.connections.lock().values() {
            if entry.over || entry.peer.greeted.load(Ordering::Acquire) {
                continue;
            }
            let age = entry.since.elapsed();
            if age < timeout {
                next = next.min(timeout - age);
            } else if !entry.peer.draining.load(Ordering::Acquire) {
                count(&self.service.counters.protocol_errors, 1);
                entry.peer.cut();
            }
        }
        next
    }

    fn begin(self: &Arc<Self>, id: u64, socket: OwnedFd) {
        let counters = &self.service.counters;
        count(&counters.connections_total, 1);
        if counters.connections_now.load(Ordering::Relaxed) >= self.service.options.connections_max as u64 {
            // Dropping the socket closes it.
            return count(&counters.connections_refused, 1);
        }
        let peer = Arc::new(Peer { socket, greeted: AtomicBool::new(false), draining: AtomicBool::new(false) });
        let entry = ConnectionEntry { peer: peer.clone(), since: Instant::now(), thread: None, over: false };
        count(&counters.connections_now, 1);
        self.connections.lock().insert(id, entry);
        let ending = Ending { shared: self.clone(), id };
        let service = self.service.clone();
        let spawned = std::thread::Builder::new().name(format!("nbd-{id}")).spawn(move || {
            let _ending = ending;
            conversation::serve(service, peer);
        });
        let mut connections = self.connections.lock();
        match spawned {
            Ok(thread) => {
                if let Some(entry) = connections.get_mut(&id) {
                    entry.thread = Some(thread);
                }
            }
            Err(_) => {
                connections.remove(&id);
                count(&counters.connections_refused, 1);
            }
        }
    }
}

/// A guard that marks a connection as ended, also if its thread panicked or never began.
struct Ending {
    shared: Arc<ServerShared>,
    id: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.service.counters.connections_now.fetch_sub(1, Ordering::Relaxed);
        if let Some(entry) = self.shared.connections.lock().get_mut(&self.id) {
            entry.over = true;
            entry.peer.cut();
        }
        self.shared.ended.notify_all();
        wake(&self.shared.wake);
    }
}

fn accept_loop(shared: &Arc<ServerShared>, listener: Listener) {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let mut given_back = Instant::now();
    while !shared.stopping.load(Ordering::Acquire) {
        let wait = shared.cut_slow();
        shared.reap();
        if given_back.elapsed() >= GIVE_BACK_EVERY {
            given_back = Instant::now();
            buf::give_back();
        }
        wait_for(&listener, &shared.wake, wait);
        loop {
            if shared.stopping.load(Ordering::Acquire) {
                break;
            }
            let accepted = listener.accept(shared.service.options.keepalive);
            shared.shortage.note(accepted.as_ref().err());
            match accepted {
                Ok(socket) => shared.begin(NEXT_ID.fetch_add(1, Ordering::Relaxed), socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A connection that died in the queue costs nothing; a lack of descriptors is
                // waited out.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                    break;
                }
            }
        }
    }
}

fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn wake(event: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: the pointer and length are those of a live array. A full counter means that a wake is
    // pending already.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Waits until a connection or a wake arrives, or the time ends.
fn wait_for(listener: &Listener, event: &OwnedFd, at_most: Duration) {
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [poll(listener.as_fd().as_raw_fd()), poll(event.as_raw_fd())];
    let millis = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
    // SAFETY: the array lives until the call ends, and its length is passed.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    if ready > 0 && fds[1].revents != 0 {
        let mut count = [0_u8; 8];
        // SAFETY: the pointer and length are those of a live array.
        unsafe { libc::read(event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
