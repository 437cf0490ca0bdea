//! Reaching an NBD server: its URI, a socket, and the client's side of the handshake.
//!
//! Invariants: connecting and the handshake end within the caller's time limit, against any server.
//! They hold at most [`REPLY_BYTES_MAX`] bytes.
//!
//! It does not implement TLS, structured replies, or servers older than the option GO (2016).

use super::{
    proto::{
        CLIENT_FLAGS_BYTES, Fields, GREETING_BYTES, GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_HEADER_BYTES,
        STRING_BYTES_MAX, encode_option, handshake_flag, info, option, option_reply as reply, parse_option_reply,
    },
    socket,
};
use crate::{IoError, IoErrorKind, IoOp, IoResult};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

/// NBD's TCP port.
const PORT_DEFAULT: u16 = 10809;
/// The longest wait for an answer of one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two tries to connect to a Unix socket whose server has a full queue.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);
/// Longest reply to an option that is read.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Replies to one option that are read.
const REPLIES_MAX: usize = 256;
/// The protocol's longest request if the server names no limit.
const REQUEST_BYTES_DEFAULT: u32 = 32 << 20;

pub(super) fn failed(detail: impl Into<String>) -> IoError {
    IoError::new(IoErrorKind::Gone, IoOp::Open, 0, 0).with_detail(detail.into())
}

fn malformed(text: &str) -> IoError {
    IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(format!(
        "\"{text}\" is no NBD address: write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"
    ))
}

/// The address of a server and its export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NbdUri {
    endpoint: Endpoint,
    export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl NbdUri {
    /// Parses `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`, percent-encoded.
    ///
    /// The path of an existing socket is made canonical.
    pub(crate) fn parse(text: &str) -> IoResult<NbdUri> {
        let wrong = || malformed(text);
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').ok_or_else(wrong)?;
            let socket = query.split('&').find_map(|item| item.strip_prefix("socket=")).ok_or_else(wrong)?;
            let socket = percent_decode(socket).filter(|socket| !socket.is_empty()).ok_or_else(wrong)?;
            let export = percent_decode(path.strip_prefix('/').unwrap_or(path)).ok_or_else(wrong)?;
            let path = PathBuf::from(socket);
            let path = path.canonicalize().or_else(|_| std::path::absolute(&path)).unwrap_or(path);
            return NbdUri { endpoint: Endpoint::Unix(path), export }.checked(wrong);
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(wrong)?) })
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => PORT_DEFAULT,
        };
        let host = host.to_ascii_lowercase();
        let export = percent_decode(export).ok_or_else(wrong)?;
        if host.is_empty() || host.contains(['[', ']']) || export.contains('?') {
            return Err(wrong());
        }
        NbdUri { endpoint: Endpoint::Tcp { host, port }, export }.checked(wrong)
    }

    fn checked(self, wrong: impl Fn() -> IoError) -> IoResult<NbdUri> {
        if self.export.len() > STRING_BYTES_MAX { Err(wrong()) } else { Ok(self) }
    }

    /// Returns the same address in its one canonical form.
    pub(crate) fn canonical(&self) -> String {
        let export = percent_encode(&self.export);
        match &self.endpoint {
            Endpoint::Unix(path) => format!("nbd+unix:///{export}?socket={}", percent_encode(&path.to_string_lossy())),
            Endpoint::Tcp { host, port } if host.contains(':') => format!("nbd://[{host}]:{port}/{export}"),
            Endpoint::Tcp { host, port } => format!("nbd://{host}:{port}/{export}"),
        }
    }
}

pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || (bytes.next()? as char).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok().filter(|text| !text.contains('\0'))
}

pub(crate) fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A connected socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    /// Limits the waiting of reads and writes to this moment.
    fn wait_until(&self, until: Instant) -> io::Result<()> {
        match until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            Some(left) => self.set_timeouts(Some(left)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn set_timeouts(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)),
        }
    }
}

/// A socket whose reads and writes end at a fixed moment with [`io::ErrorKind::TimedOut`].
struct Until<'a>(&'a Stream, Instant);

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.wait_until(self.1)?;
        socket::receive(self.0.as_fd(), buf, true).map_err(timed_out)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.wait_until(self.1)?;
        socket::send_slices(self.0.as_fd(), &[io::IoSlice::new(buf)], true).map_err(timed_out)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Translates the error of a socket at its time limit: the system reports that it would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        socket::receive(self.as_fd(), buf, true)
    }
}

/// A connection past its handshake, and the server's facts of the export.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) size_bytes: u64,
    /// Transmission flags.
    pub(super) flags: u16,
    /// The unit of offsets and lengths; 1 if the server named none.
    pub(super) block_bytes_min: u32,
    pub(super) block_bytes_preferred: u32,
    pub(super) request_bytes_max: u32,
}

/// Connects and shakes hands within `timeout`. Blocks.
///
/// Fails with [`IoErrorKind::Gone`] if the server is out of reach or does not answer.
pub(super) fn open(uri: &NbdUri, timeout: Duration) -> IoResult<Opened> {
    let until = Instant::now() + timeout;
    let stream = connect(&uri.endpoint, until).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::TimedOut => "it takes no connection in time: see that its server runs".to_owned(),
            _ => error.to_string(),
        };
        failed(format!("cannot reach {}: {why}", uri.canonical()))
    })?;
    shake_hands(stream, uri, until, timeout)
}

/// Shakes hands over a connected socket, until this moment. A refusal names the limit, `timeout`.
/// Blocks.
pub(super) fn shake_hands(stream: Stream, uri: &NbdUri, until: Instant, timeout: Duration) -> IoResult<Opened> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => failed(format!(
            "{} takes the connection, but gives no answer to the NBD handshake within {} s: see that an NBD server \
             without TLS runs there and is not stopped",
            uri.canonical(),
            timeout.as_secs_f64()
        )),
        _ => failed(format!("{} broke off the handshake: {error}", uri.canonical())),
    };
    greet(Until(&stream, until), uri).map_err(io)??;
    let mut opened = Opened {
        stream,
        size_bytes: 0,
        flags: 0,
        block_bytes_min: 1,
        block_bytes_preferred: 4096,
        request_bytes_max: REQUEST_BYTES_DEFAULT,
    };
    go(&mut opened, uri, until).map_err(io)??;
    opened.stream.set_timeouts(None).map_err(io)?;
    Ok(opened)
}

fn connect(endpoint: &Endpoint, until: Instant) -> io::Result<Stream> {
    match endpoint {
        Endpoint::Unix(path) => loop {
            // A full queue of the server would make a plain connect wait for ever.
            match socket::connect_unix(path) {
                Ok(stream) => return Ok(Stream::Unix(stream)),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if Instant::now() >= until => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) => std::thread::sleep(BACKLOG_PAUSE),
            }
        },
        Endpoint::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for address in resolve(host, *port, until)? {
                let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                    return Err(io::ErrorKind::TimedOut.into());
                };
                match TcpStream::connect_timeout(&address, left.min(CONNECT_TIMEOUT)) {
                    Ok(stream) => {
                        socket::tune_tcp(stream.as_fd(), socket::Keepalive::default());
                        return Ok(Stream::Tcp(stream));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Returns the addresses of a host.
///
/// The system's resolver has no time limit, so a thread asks it; the call abandons the thread after
/// the limit.
fn resolve(host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (tell, told) = mpsc::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("nbd-resolve".into()).spawn(move || {
        // The receiver may be gone.
        let _ = tell.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
    })?;
    told.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(|_| {
        Err(io::Error::other("the host's name is not resolved in time: see to the resolver, or give an IP address"))
    })
}

fn not_nbd(uri: &NbdUri, why: &str) -> IoError {
    IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(format!("{} {why}", uri.canonical()))
}

/// Reads the greeting and answers it. The outer error is the socket's.
fn greet(mut stream: Until<'_>, uri: &NbdUri) -> io::Result<IoResult<()>> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting)?;
    let mut fields = Fields(&greeting);
    if (fields.u64(), fields.u64()) != (Some(GREETING_MAGIC), Some(OPTION_MAGIC)) {
        return Ok(Err(not_nbd(uri, "does not speak the NBD protocol (newstyle)")));
    }
    let flags = fields.u16().unwrap_or(0);
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Ok(Err(not_nbd(uri, "speaks an NBD protocol that is too old")));
    }
    let flags = u32::from(flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES));
    let answer: [u8; CLIENT_FLAGS_BYTES] = flags.to_be_bytes();
    stream.write_all(&answer)?;
    Ok(Ok(()))
}

/// Asks for the export with GO. The outer error is the socket's.
fn go(opened: &mut Opened, uri: &NbdUri, until: Instant) -> io::Result<IoResult<()>> {
    let name = uri.export.as_bytes();
    let mut data = u32::try_from(name.len()).unwrap_or(0).to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    let mut message = Vec::new();
    encode_option(&mut message, option::GO, &data);
    Until(&opened.stream, until).write_all(&message)?;

    let mut export_known = false;
    for _ in 0..REPLIES_MAX {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        Until(&opened.stream, until).read_exact(&mut header)?;
        let (kind, len) = match parse_option_reply(&header) {
            Some((option::GO, kind, len)) if len <= REPLY_BYTES_MAX => (kind, len),
            _ => return Ok(Err(not_nbd(uri, "sent a malformed reply"))),
        };
        let mut data = vec![0; len as usize];
        Until(&opened.stream, until).read_exact(&mut data)?;
        match kind {
            reply::ACK if export_known => return Ok(Ok(())),
            reply::INFO => match take_info(&data, opened) {
                Some(is_export) => export_known |= is_export,
                None => return Ok(Err(not_nbd(uri, "sent malformed information"))),
            },
            reply::ERR_UNSUP => return Ok(Err(not_nbd(uri, "is too old: it lacks the option GO"))),
            reply::ERR_TLS_REQD => {
                return Ok(Err(not_nbd(
                    uri,
                    "requires TLS, which Larder does not speak: serve the export without TLS, on a Unix socket or through \
                     a tunnel (stunnel, ssh)",
                )));
            }
            reply::ERR_UNKNOWN => {
                return Ok(Err(not_nbd(uri, "has no export of this name")));
            }
            kind if kind & reply::ERROR_BIT != 0 => {
                let why = String::from_utf8_lossy(&data).replace(char::is_control, " ");
                return Ok(Err(not_nbd(uri, &format!("refused the export (error {:#x}): {why}", kind))));
            }
            _ => return Ok(Err(not_nbd(uri, "sent an unexpected reply"))),
        }
    }
    Ok(Err(not_nbd(uri, "sent too many replies")))
}

/// Takes one item of information; `None` if it is malformed. Returns whether it was the export
/// itself.
fn take_info(data: &[u8], opened: &mut Opened) -> Option<bool> {
    let mut fields = Fields(data);
    match fields.u16()? {
        info::EXPORT => {
            opened.size_bytes = fields.u64()?;
            opened.flags = fields.u16()?;
            return Some(true);
        }
        info::BLOCK_SIZE => {
            let (min, preferred, max) = (fields.u32()?, fields.u32()?, fields.u32()?);
            if !min.is_power_of_two() || max < min {
                return None;
            }
            opened.block_bytes_min = min;
            opened.block_bytes_preferred = preferred;
            opened.request_bytes_max = max;
        }
        _ => {}
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_one_canonical_form() {
        for (text, canonical) in [
            ("nbd://Host", "nbd://host:10809/"),
            ("nbd://host:99/disk%20one", "nbd://host:99/disk%20one"),
            ("nbd://[::1]/a/b", "nbd://[::1]:10809/a/b"),
            ("nbd+unix:///?socket=/nowhere/s", "nbd+unix:///?socket=/nowhere/s"),
            ("nbd+unix:///d?a=b&socket=/nowhere/a%2520b", "nbd+unix:///d?socket=/nowhere/a%2520b"),
        ] {
            let uri = NbdUri::parse(text).expect(text);
            assert_eq!(uri.canonical(), canonical);
            assert_eq!(NbdUri::parse(canonical).expect(canonical), uri);
        }
    }

    #[test]
    fn wrong_uris_are_refused_with_the_right_forms() {
        for text in [
            "nbd:host",
            "nbd://",
            "nbd:///disk",
            "nbd://h:x/",
            "nbd://[[h]/",
            "nbd+unix:///d",
            "nbd+unix:///?socket=",
            "nbd://h/%zz",
        ] {
            let error = NbdUri::parse(text).expect_err(text).to_string();
            assert!(error.contains("nbd://HOST[:PORT]/EXPORT"), "{error}");
        }
    }
}
