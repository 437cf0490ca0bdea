//! The server's limits for clients, and its counters.
//!
//! Invariants: every buffer, queue and wait of the server is bounded by a constant or an option of
//! this file.
//!
//! It does not enforce; each limit names the place that does.

use super::memory::RequestMemory;
use larder_device::nbd::socket::Keepalive;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Bytes of a connection's receive buffer: at least one option of the handshake, or many requests.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 128 << 10;
/// Longest data of one option that is parsed; longer data is skipped and answered "too big".
pub(super) const OPTION_BYTES_MAX: u32 = 16 << 10;
/// Longest data of one option that is skipped; at more the connection is closed.
pub(super) const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Options that a client may send in one handshake.
pub(super) const OPTIONS_MAX: u32 = 256;
/// Longest write payload that is received and thrown away; at more the connection is closed.
pub(super) const PAYLOAD_SKIP_BYTES_MAX: u32 = 256 << 20;
/// Longest message of an error in a structured reply, in bytes.
pub(super) const ERROR_MESSAGE_BYTES_MAX: usize = 200;
/// Longest read or write of the device for a request.
///
/// A longer request is served in pieces, each when there is memory for it.
pub(super) const PIECE_BYTES_MAX: u32 = 1 << 20;
/// Bytes of trims and zeroes of one connection under way at a time.
pub(super) const RANGES_BYTES_MAX: u64 = 64 << 20;
/// Ready bytes of replies that force a send.
pub(super) const SEND_BATCH_BYTES: usize = 64 << 10;

/// Connections at once, by default.
const CONNECTIONS_MAX: usize = 256;

/// Limits of one server. All have sensible defaults.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Text that clients may show to people.
    pub description: String,
    /// Longest read or write in bytes; a smaller limit of the device applies.
    pub request_bytes_max: u32,
    /// The memory of read and write payloads, and of replies.
    ///
    /// Servers that share it stay within it together; its connection count must cover all of them.
    /// A request waits if it has no memory left.
    pub memory: Arc<RequestMemory>,
    /// Requests of one connection in flight.
    pub requests_in_flight_max: usize,
    /// Connections at once; further ones are closed as they arrive.
    pub connections_max: usize,
    /// The longest time from the connection to the end of its handshake.
    pub handshake_timeout: Duration,
    /// The longest spin of an idle connection before its thread sleeps, if the client's pace suits
    /// it.
    ///
    /// It doubles the rate of a client with one request in flight, for some processor time. Zero:
    /// never.
    pub spin_max: Duration,
    /// The times of the keepalive questions to a silent TCP client's host.
    pub keepalive: Keepalive,
    /// The longest wait of [`NbdServer::shutdown`](super::NbdServer::shutdown) for requests in
    /// flight.
    pub shutdown_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            description: "Larder".into(),
            request_bytes_max: 32 << 20,
            memory: Arc::new(RequestMemory::new(RequestMemory::BYTES_DEFAULT, CONNECTIONS_MAX)),
            requests_in_flight_max: 256,
            connections_max: CONNECTIONS_MAX,
            handshake_timeout: Duration::from_secs(10),
            spin_max: Duration::from_micros(50),
            keepalive: Keepalive::default(),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// The counts of a server since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections open now.
    pub connections_now: u64,
    /// Connections accepted, open ones included.
    pub connections_total: u64,
    /// Connections closed at once because `connections_max` was reached.
    pub connections_refused: u64,
    /// Requests received.
    pub requests: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Connections closed because the client broke the protocol or was too slow in the handshake.
    pub protocol_errors: u64,
}

/// The live counters behind [`ServerStats`]. Relaxed: they count, they order nothing.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub connections_now: AtomicU64,
    pub connections_total: AtomicU64,
    pub connections_refused: AtomicU64,
    pub requests: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub errors: AtomicU64,
    pub protocol_errors: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    pub fn snapshot(&self) -> ServerStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            connections_now: get(&self.connections_now),
            connections_total: get(&self.connections_total),
            connections_refused: get(&self.connections_refused),
            requests: get(&self.requests),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            errors: get(&self.errors),
            protocol_errors: get(&self.protocol_errors),
        }
    }
}
