//! The control socket of a served cache, over which `status`, `flush` and `set` reach its process.
//!
//! Protocol: a Unix stream socket. A request is a line, `which`, `status`, `flush`, `set-mode MODE`
//! or `detach`; the reply is a line with one JSON object: `{"ok": …}`, or
//! `{"error": "a sentence"}`. A connection may carry several requests.
//!
//! Invariants: the socket's name is the flash's UUID, its mode 0600, and it is removed at the end.
//! It believes processes of its own user and of root alone, as `client.rs` does. A line has
//! [`LINE_BYTES_MAX`] bytes and comes within [`LINE_TIME_MAX`]; a breach costs its own connection.
//! [`CONNECTIONS_MAX`] connections are served at once.
//!
//! It does not know the meaning of a request.

use crate::{
    client::{Client, Reply, is_trusted, peer, socket_name, socket_path},
    ending::Ending,
    error::{Failure, Outcome, system_reason},
    lines::{self, too_many_files},
    run_dir::{RUN_DIR_ENV, RunDirs},
};
use larder_serve::{
    nbd::Shortage,
    unix_socket::{OwnSocket, SOCKET_PATH_BYTES_MAX, TakeError},
};
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::{
    io::{ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Longest request line, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// How long a request line may take to come.
const LINE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a client may take to receive a piece of a reply.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the end of a server waits for replies to requests that came before it.
const LAST_REPLIES_TIME_MAX: Duration = Duration::from_secs(2);
/// Connections at once.
const CONNECTIONS_MAX: usize = 16;
/// Permissions of a socket's file.
const SOCKET_MODE: u32 = 0o600;
/// Pause of the accepting thread when the system is short of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers requests, on the threads of connections, several at once.
pub type Handler = dyn Fn(&str) -> Reply + Send + Sync;

/// A control socket that is served; a drop ends that.
pub struct ControlServer {
    shared: Arc<ControlShared>,
    thread: Option<JoinHandle<()>>,
    /// Longest time that its end waits for replies.
    replies_time_max: Duration,
}

struct ControlShared {
    socket: OwnSocket,
    stopping: AtomicBool,
    connections: AtomicUsize,
    answering: Answering,
    shortage: Shortage,
}

/// The number of requests that are being answered.
#[derive(Default)]
struct Answering {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Answering {
    fn begin(&self) -> Answer<'_> {
        *self.count.lock() += 1;
        Answer(self)
    }

    /// Waits until no request is being answered, or the time is over.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut count = self.count.lock();
        while *count > 0 && !self.fewer.wait_until(&mut count, until).timed_out() {}
    }
}

/// A request that is being answered, until it is dropped.
struct Answer<'a>(&'a Answering);

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

impl ControlServer {
    /// Takes the control socket of a flash that this process holds.
    ///
    /// # Errors
    /// One sentence: the folder cannot be had, or a copy of the flash is served.
    pub fn bind(flash_uuid: &[u8; 16]) -> Outcome<ControlServer> {
        let dirs = RunDirs::of_this_user();
        let too_long = |path: &Path| {
            Failure::failed(format_args!(
                "the control socket {} has a path that is too long: {SOCKET_PATH_BYTES_MAX} bytes are the most; {RUN_DIR_ENV} names another folder",
                path.display()
            ))
        };
        // Before the folder is made: a refusal leaves nothing behind.
        let first = dirs.first().join(socket_name(flash_uuid));
        if first.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(too_long(&first));
        }
        let path = dirs.for_server()?.join(socket_name(flash_uuid));
        let served = |path: &Path| {
            Failure::failed(format_args!(
                "a copy of this flash is already served (control socket {}): end that one first",
                path.display()
            ))
        };
        // This process holds the flash: a server that answers has another flash with the same
        // identity.
        if let Some(other) = Client::connect(flash_uuid)? {
            return Err(served(other.path()));
        }
        let socket = OwnSocket::bind(&path, Some(SOCKET_MODE)).map_err(|error| match error {
            TakeError::InUse => served(&path),
            TakeError::TooLong => too_long(&path),
            TakeError::NotASocket => Failure::failed(format_args!(
                "{} is no socket, and in the way of the control socket: move it, or name another folder with {RUN_DIR_ENV}",
                path.display()
            )),
            TakeError::Unsure(error) | TakeError::Io(error) => Failure::failed(format_args!(
                "the control socket {} cannot be made: {}; {RUN_DIR_ENV} names another folder",
                path.display(),
                system_reason(&error)
            )),
        })?;
        Ok(ControlServer::over(socket))
    }

    fn over(socket: OwnSocket) -> ControlServer {
        let shared = ControlShared {
            socket,
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            answering: Answering::default(),
            shortage: Shortage::default(),
        };
        ControlServer { shared: Arc::new(shared), thread: None, replies_time_max: LAST_REPLIES_TIME_MAX }
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(&mut self, handler: Arc<Handler>) -> Outcome {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || accept(&shared, &handler));
        let refused = |error| Failure::failed(format_args!("the system refuses to start threads: {error}"));
        self.thread = Some(thread.map_err(refused)?);
        let shortage = self.shared.shortage.clone();
        lines::watch(move || shortage.get().map(|error| too_many_files("commands", &error)));
        Ok(())
    }
}

impl ControlServer {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.shared.socket.path()
    }

    /// Ends it, and waits `at_most` so long for replies to earlier requests.
    pub fn end(mut self, at_most: Duration) {
        self.replies_time_max = self.replies_time_max.min(at_most);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Before it stops to listen: a successor may replace it from then on.
        self.shared.socket.remove();
        self.shared.stopping.store(true, Ordering::Release);
        // SAFETY: a plain call on an open descriptor; it ends an accept that waits.
        unsafe { libc::shutdown(self.shared.socket.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
        // A request that ended this server, a detach, gets its reply.
        self.shared.answering.wait(self.replies_time_max);
    }
}

/// Takes the control socket of a flash.
///
/// # Errors
/// As [`ControlServer::bind`].
pub fn bind_control(flash_uuid: &[u8; 16], ending: &Ending) -> Outcome<ControlServer> {
    let step = format!("taking the control socket {}", socket_path(flash_uuid).display());
    ending.during(step, || ControlServer::bind(flash_uuid))
}

/// Removes the control socket at the end.
pub fn end_control(control: ControlServer, ending: &Ending) {
    ending.now("the control socket was being removed");
    ending.during(format!("removing {}", control.path().display()), || control.end(ending.left()));
}

fn accept(shared: &Arc<ControlShared>, handler: &Arc<Handler>) {
    while !shared.stopping.load(Ordering::Acquire) {
        let accepted = shared.socket.listener.accept();
        shared.shortage.note(accepted.as_ref().err());
        match accepted {
            // Between the making of a socket and its mode other users may have connected.
            Ok((stream, _)) if !peer(&stream).is_ok_and(|peer| is_trusted(peer.uid)) => drop(stream),
            Ok((stream, _)) => begin(shared, handler, stream),
            Err(_) if shared.stopping.load(Ordering::Acquire) => return,
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

fn begin(shared: &Arc<ControlShared>, handler: &Arc<Handler>, stream: UnixStream) {
    if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        shared.connections.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let leaving = Leaving(shared.clone());
    let handler = handler.clone();
    // Without a thread the connection is closed, and the client says so.
    let _ = std::thread::Builder::new().name("control-client".into()).spawn(move || {
        let Leaving(shared) = &leaving;
        converse(&stream, &*handler, &shared.answering);
    });
}

/// A connection's place, given back also after a panic.
struct Leaving(Arc<ControlShared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers one client until it goes away or breaks the rules.
pub fn serve(stream: &UnixStream, handler: &Handler) {
    converse(stream, handler, &Answering::default());
}

fn converse(stream: &UnixStream, handler: &Handler, answering: &Answering) {
    let mut rest = Vec::new();
    while let Some(line) = read_line(stream, &mut rest) {
        let _answer = answering.begin();
        let reply = match handler(&line) {
            Ok(value) => json!({ "ok": value }),
            Err(sentence) => json!({ "error": sentence }),
        };
        let _ = stream.set_write_timeout(Some(WRITE_TIME_MAX));
        let mut out = stream;
        if out.write_all(format!("{reply}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the next line; `None` if the client went away or broke the rules.
fn read_line(mut stream: &UnixStream, rest: &mut Vec<u8>) -> Option<String> {
    let until = Instant::now() + LINE_TIME_MAX;
    loop {
        if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            return Some(String::from_utf8_lossy(&line).trim().to_owned());
        }
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        if rest.len() > LINE_BYTES_MAX || stream.set_read_timeout(Some(left)).is_err() {
            return None;
        }
        let mut piece = [0; 256];
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(bytes) => rest.extend_from_slice(piece.get(..bytes)?),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn serve_at(name: &str) -> (Scratch, PathBuf, ControlServer) {
        serve_with(name, |request: &str| match request {
            "status" => Ok(json!({ "reads": 7 })),
            other => Err(format!("no request is called {other}")),
        })
    }

    fn serve_with(
        name: &str,
        handler: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> (Scratch, PathBuf, ControlServer) {
        let folder = std::env::temp_dir().join(format!("larder-control-{name}-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder of ours");
        let path = folder.join("s");
        let mut server = ControlServer::over(OwnSocket::bind(&path, Some(SOCKET_MODE)).expect("a socket"));
        server.start(Arc::new(handler)).expect("a thread");
        (Scratch(folder), path, server)
    }

    #[test]
    fn requests_are_answered_and_refused() {
        let (_scratch, path, server) = serve_at("answers");
        let mut client = Client::connect_at(&path).expect("no trouble").expect("a server");
        assert_eq!(client.ask("status").expect("an answer")["reads"], 7);
        let failure = client.ask("dance").expect_err("refused");
        assert_eq!(failure.sentence().as_deref(), Some("no request is called dance"));
        // One connection carries several requests.
        assert_eq!(client.ask("status").expect("an answer")["reads"], 7);
        drop(server);
        assert!(!path.exists());
        assert!(Client::connect_at(&path).expect("no trouble").is_none());
    }

    /// The end of a server does not overtake the reply to the request that brought it about.
    #[test]
    fn the_last_reply_is_given() {
        for _ in 0..20 {
            let (asked, was_asked) = std::sync::mpsc::channel();
            let (_scratch, path, server) = serve_with("last", move |_| {
                let _ = asked.send(());
                std::thread::sleep(Duration::from_millis(5));
                Ok(json!("done"))
            });
            let client = std::thread::spawn(move || Client::connect_at(&path).ok()??.ask("detach").ok());
            was_asked.recv().expect("asked");
            drop(server);
            assert_eq!(client.join().expect("no panic"), Some(json!("done")));
        }
    }

    #[test]
    fn a_hostile_client_costs_its_own_connection() {
        let (_scratch, path, _server) = serve_at("hostile");
        let mut endless = UnixStream::connect(&path).expect("a connection");
        // The server stops reading and closes: writes fail at some point, or the read ends.
        let _ = endless.write_all(&vec![b'x'; 1 << 20]);
        endless.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let mut answer = Vec::new();
        let _ = endless.read_to_end(&mut answer);
        assert!(answer.is_empty());
        let silent: Vec<UnixStream> =
            (0..CONNECTIONS_MAX - 2).map(|_| UnixStream::connect(&path).expect("a connection")).collect();
        let mut client = Client::connect_at(&path).expect("no trouble").expect("a server");
        client.ask("status").expect("an answer");
        drop(silent);
    }

    #[test]
    fn several_lines_come_in_pieces() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (&ours).write_all(b"sta").expect("written");
        (&ours).write_all(b"tus\nflush\n").expect("written");
        drop(ours);
        let mut rest = Vec::new();
        assert_eq!(read_line(&theirs, &mut rest).as_deref(), Some("status"));
        assert_eq!(read_line(&theirs, &mut rest).as_deref(), Some("flush"));
        assert_eq!(read_line(&theirs, &mut rest), None);
    }

    #[test]
    fn the_socket_is_named_after_the_flash() {
        let path = socket_path(&[0xab; 16]);
        assert!(path.to_string_lossy().ends_with("/abababababababababababababababab.sock"), "{}", path.display());
    }
}
