//! A server's address: its written form, and the socket bound to it.
//!
//! Invariants: a socket file is replaced only if no server listens on it. Every error is one
//! sentence that names the address.
//!
//! It does not accept.

use crate::unix_socket::{OwnSocket, SOCKET_PATH_BYTES_MAX, TakeError};
use larder_device::nbd::socket::{self, Keepalive};
use std::{
    fmt,
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    str::FromStr,
};

/// The address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeAddress {
    /// A Unix socket at a path.
    Unix(PathBuf),
    /// `HOST:PORT`; port 0 lets the system choose.
    Tcp(String),
}

impl FromStr for ServeAddress {
    type Err = ServeError;

    fn from_str(text: &str) -> Result<Self, ServeError> {
        let wrong = || ServeError {
            kind: ServeErrorKind::BadAddress,
            message: format!("\"{text}\" is no address to serve at: write unix:PATH or tcp:HOST:PORT."),
        };
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(ServeAddress::Unix(path.into()));
        }
        let host_port = text.strip_prefix("tcp:").ok_or_else(wrong)?;
        let (host, port) = host_port.rsplit_once(':').ok_or_else(wrong)?;
        if host.is_empty() || port.parse::<u16>().is_err() || (host.contains(':') && !host.starts_with('[')) {
            return Err(wrong());
        }
        Ok(ServeAddress::Tcp(host_port.into()))
    }
}

impl fmt::Display for ServeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ServeAddress::Tcp(host_port) => write!(f, "tcp:{host_port}"),
        }
    }
}

/// The kind of failure of a server's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServeErrorKind {
    /// Not an address, or one that is not this machine's.
    BadAddress,
    /// Another server listens there.
    InUse,
    /// The export's name is too long.
    BadName,
    /// Any other error of the system.
    Io,
}

/// A server that could not begin: a kind to match on, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeError {
    /// The kind, for callers to match on.
    pub kind: ServeErrorKind,
    /// One sentence, with the address.
    pub message: String,
}

impl ServeError {
    pub(super) fn io(address: &ServeAddress, what: &str, error: &io::Error) -> ServeError {
        ServeError { kind: ServeErrorKind::Io, message: format!("Cannot {what} {address}: {error}.") }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServeError {}

/// A bound socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(OwnSocket),
}

impl Listener {
    pub fn bind(address: &ServeAddress) -> Result<Listener, ServeError> {
        let listener = match address {
            ServeAddress::Tcp(host_port) => Listener::Tcp(bind_tcp(address, host_port)?),
            ServeAddress::Unix(path) => Listener::Unix(bind_unix(address, path)?),
        };
        let nonblocking = match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(socket) => socket.listener.set_nonblocking(true),
        };
        nonblocking.map_err(|error| ServeError::io(address, "listen at", &error))?;
        Ok(listener)
    }

    /// Returns the bound address, with the port that the system chose.
    pub fn local_address(&self, asked: &ServeAddress) -> ServeAddress {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => ServeAddress::Tcp(address.to_string()),
                Err(_) => asked.clone(),
            },
            Listener::Unix(socket) => ServeAddress::Unix(socket.path().into()),
        }
    }

    /// Accepts the next connection, nonblocking and tuned. [`ErrorKind::WouldBlock`] if there is
    /// none.
    pub fn accept(&self, keepalive: Keepalive) -> io::Result<OwnedFd> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _): (_, SocketAddr) = listener.accept()?;
                stream.set_nonblocking(true)?;
                socket::tune_tcp(stream.as_fd(), keepalive);
                Ok(stream.into())
            }
            Listener::Unix(socket) => {
                let (stream, _) = socket.listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(socket) => socket.listener.as_fd(),
        }
    }
}

fn bind_tcp(address: &ServeAddress, host_port: &str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(host_port).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => ServeError {
            kind: ServeErrorKind::InUse,
            message: format!("Cannot serve at {address}: another server listens on this port."),
        },
        ErrorKind::AddrNotAvailable => ServeError {
            kind: ServeErrorKind::BadAddress,
            message: format!("Cannot serve at {address}: this is no address of this machine."),
        },
        _ => ServeError::io(address, "serve at", &error),
    })
}

fn bind_unix(address: &ServeAddress, path: &Path) -> Result<OwnSocket, ServeError> {
    let refused = |kind, why: &str| ServeError { kind, message: format!("Cannot serve at {address}: {why}.") };
    OwnSocket::bind(path, None).map_err(|error| match error {
        TakeError::TooLong => refused(
            ServeErrorKind::BadAddress,
            &format!(
                "the path has {} bytes, and a socket's has {SOCKET_PATH_BYTES_MAX} at most",
                path.as_os_str().len()
            ),
        ),
        TakeError::NotASocket => refused(ServeErrorKind::InUse, "a file that is no socket is in the way"),
        TakeError::InUse => refused(ServeErrorKind::InUse, "another server listens on this socket"),
        TakeError::Unsure(error) => ServeError::io(address, "tell whether a server listens at", &error),
        TakeError::Io(error) => ServeError::io(address, "serve at", &error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!("unix:/run/a b".parse(), Ok(ServeAddress::Unix("/run/a b".into())));
        assert_eq!("tcp:[::1]:0".parse(), Ok(ServeAddress::Tcp("[::1]:0".into())));
        assert_eq!("tcp:localhost:10809".parse(), Ok(ServeAddress::Tcp("localhost:10809".into())));
        for wrong in ["", "unix:", "tcp:", "tcp:10809", "tcp::10809", "tcp:host:70000", "tcp:::1:5", "/run/a"] {
            let error = wrong.parse::<ServeAddress>().expect_err(wrong);
            assert!(error.message.contains("unix:PATH or tcp:HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn what_is_accepted_ends_with_its_peers_host_alone() {
        let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().expect("an address")).expect("bound");
        let Listener::Tcp(tcp) = &listener else { panic!("a TCP listener") };
        let _client = std::net::TcpStream::connect(tcp.local_addr().expect("an address")).expect("connected");
        let keepalive = Keepalive { idle_s: 11, every_s: 7, unanswered_max: 5 };
        let accepted = loop {
            match listener.accept(keepalive) {
                Ok(accepted) => break accepted,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        let option = |level, option| {
            let (mut value, mut len) = (0_i32, 4);
            // SAFETY: the pointers are those of live integers, and the length is the value's.
            let got =
                unsafe { libc::getsockopt(accepted.as_raw_fd(), level, option, (&raw mut value).cast(), &mut len) };
            assert_eq!(got, 0);
            value
        };
        let tcp = |name| option(libc::IPPROTO_TCP, name);
        assert_eq!(tcp(libc::TCP_USER_TIMEOUT), 0, "a window that stays full is no sign of death");
        assert_eq!(option(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!([libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT].map(tcp), [11, 7, 5]);
        assert_eq!(tcp(libc::TCP_NODELAY), 1);
    }
}
