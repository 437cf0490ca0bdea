//! The few system calls on sockets without a safe form in the standard library.
//!
//! Invariants: no call raises SIGPIPE; a caller's slices outlive the call that reads them.
//!
//! It does not own sockets; callers pass descriptors that they keep open.

use std::{
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::Path,
};

/// Most slices of one call of [`send_slices`]; the system's limit is 1024.
pub const SLICES_MAX: usize = 128;

/// Sends from the first [`SLICES_MAX`] of `slices`. Returns how many bytes the socket took.
///
/// With `wait` unset, it fails with [`io::ErrorKind::WouldBlock`] if the socket takes none now.
pub fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is a valid, empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast::<libc::iovec>().cast_mut();
    message.msg_iovlen = slices.len().min(SLICES_MAX) as _;
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: the header points to `msg_iovlen` slices. They have iovec's layout and live until
        // the call ends; sendmsg only reads through them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives into `buf`. Returns the number of bytes, 0 if the peer closed.
///
/// With `wait` unset, it fails with [`io::ErrorKind::WouldBlock`] if no byte is there now.
pub fn receive(socket: BorrowedFd<'_>, buf: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: the pointer and length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::recv(socket.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), flags) };
        if let Ok(got) = usize::try_from(got) {
            return Ok(got);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns whether the connection is over in both directions: closed by its peer, or reset.
///
/// A TCP peer that has closed is known as gone when it resets the data that it is sent.
pub fn is_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the pointer is that of one live entry. The call does not wait.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// Connects to the Unix socket at `path` at once.
///
/// Fails with [`io::ErrorKind::WouldBlock`] if its server's queue of unaccepted connections is
/// full. The returned socket blocks, as usual.
pub fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    // SAFETY: an all-zero sockaddr_un is a valid one.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // One byte is left for the end of the name.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path of a socket has 107 bytes at most"));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    // SAFETY: a plain system call.
    let socket =
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    // SAFETY: the pointer and length are those of a live address.
    let done = unsafe {
        let len = size_of_val(&address) as libc::socklen_t;
        libc::connect(socket, std::ptr::from_ref(&address).cast(), len)
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The directions that [`shutdown`] closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ends receiving.
    Receive,
    /// Ends sending.
    Send,
    /// Ends both.
    Both,
}

/// Closes one or both directions of a connected socket and wakes its waiters. Ignores errors of a
/// peer that is gone.
pub fn shutdown(socket: BorrowedFd<'_>, direction: Direction) {
    let how = match direction {
        Direction::Receive => libc::SHUT_RD,
        Direction::Send => libc::SHUT_WR,
        Direction::Both => libc::SHUT_RDWR,
    };
    // SAFETY: a plain system call on a descriptor that the caller keeps open.
    unsafe { libc::shutdown(socket.as_raw_fd(), how) };
}

/// Sets an integer option of a socket. Ignores errors: options tune, nothing depends on them.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) {
    // SAFETY: the value's pointer and size are those of a live integer.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// The questions to a silent peer's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Seconds of silence before the first question.
    pub idle_s: i32,
    /// Seconds between questions.
    pub every_s: i32,
    /// Questions without an answer after which the connection ends.
    pub unanswered_max: i32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive { idle_s: 60, every_s: 15, unanswered_max: 8 }
    }
}

/// Sets up a TCP connection: small messages leave at once, and it ends with the peer's host.
///
/// A host that acknowledges nothing is gone. A host that acknowledges is present, even if its
/// program reads nothing for long:
/// - Nothing is under way: `keepalive` asks, and ends the connection.
/// - Data is under way: Linux sends no keepalives. It sends the data again, ever less often, as
///   many times as `net.ipv4.tcp_retries2` says (15: about 15 minutes).
/// - The peer's window is full: Linux asks for room as often. Each answer, also "no room", begins
///   the count anew.
///
/// It leaves `TCP_USER_TIMEOUT` unset, because under it those answers would not count.
pub fn tune_tcp(socket: BorrowedFd<'_>, keepalive: Keepalive) {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    set_option(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, keepalive.idle_s);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, keepalive.every_s);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, keepalive.unanswered_max);
}
