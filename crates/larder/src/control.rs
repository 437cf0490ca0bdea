//! The control socket of a served cache, over which `status`, `flush` and `set` reach its process.
//!
//! Protocol: a Unix stream socket. A request is a line, `which`, `status`, `flush`, `set-mode MODE`
//! or `detach`; the reply is a line with one JSON object: `{"ok": …}`, or
//! `{"error": "a sentence"}`. A connection may carry several requests.
//!
//! Invariants: the socket's name is the flash's UUID, its mode 0600, and it is removed at the end.
//! Either side believes processes of its own user and of root alone, as the system names them
//! (SO_PEERCRED). A line has [`LINE_BYTES_MAX`] bytes and comes within [`LINE_TIME_MAX`]; a breach
//! costs its own connection. [`CONNECTIONS_MAX`] connections are served at once.
//!
//! It does not know the meaning of a request.

use crate::{
    ending::Ending,
    error::{Failure, Outcome, system_reason},
    lines,
    run_dir::{self, RUN_DIR_ENV, RunDirs},
    serve::too_many_files,
};
use larder_serve::{
    nbd::Shortage,
    unix_socket::{OwnSocket, SOCKET_PATH_BYTES_MAX, TakeError},
};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Longest request line, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// Longest reply line that is read, in bytes.
const REPLY_BYTES_MAX: u64 = 1 << 20;
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

/// The result of a request: the value behind `ok`, or a sentence.
pub type Reply = Result<Value, String>;
/// Answers requests, on the threads of connections, several at once.
pub type Handler = dyn Fn(&str) -> Reply + Send + Sync;

/// Returns the first folder in which a command expects the control socket of a flash.
pub fn socket_path(flash_uuid: &[u8; 16]) -> PathBuf {
    RunDirs::of_this_user().first().join(socket_name(flash_uuid))
}

fn socket_name(flash_uuid: &[u8; 16]) -> String {
    format!("{}.sock", hex(flash_uuid))
}

/// Returns the flashes that have a control socket.
pub fn known_uuids() -> Vec<[u8; 16]> {
    let folders = RunDirs::of_this_user().for_commands().unwrap_or_default();
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    files.filter_map(|file| unhex(file.file_name().to_str()?.strip_suffix(".sock")?)).collect()
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a UUID in hexadecimal digits.
pub fn unhex(digits: &str) -> Option<[u8; 16]> {
    let number = (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())??;
    Some(number.to_be_bytes())
}

/// A control socket that is served; a drop ends that.
pub struct ControlServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Longest time that its end waits for replies.
    replies_time_max: Duration,
}

struct Shared {
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
            return Err(served(&other.path));
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
        let shared = Shared {
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

fn accept(shared: &Arc<Shared>, handler: &Arc<Handler>) {
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

fn begin(shared: &Arc<Shared>, handler: &Arc<Handler>, stream: UnixStream) {
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
struct Leaving(Arc<Shared>);

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

/// Returns true if a process answers for a flash, or for a copy of it.
pub fn is_served(flash_uuid: &[u8; 16]) -> bool {
    // A server that cannot be asked counts, too.
    !matches!(Client::connect(flash_uuid), Ok(None))
}

/// Returns the process at the other end, and its user, as the system knows them.
fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to a live `ucred` and to its length.
    let told = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    if told == 0 { Ok(peer) } else { Err(io::Error::last_os_error()) }
}

/// Returns true for a user whose processes are believed: this user, or root.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == run_dir::user()
}

/// A connection to a server.
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    process: i32,
}

impl Client {
    /// Connects to the process that answers for a flash, or for a copy of it; `None` if none does.
    ///
    /// # Errors
    /// The server is out of reach, or another user's; or the named folder is not to be trusted.
    pub fn connect(flash_uuid: &[u8; 16]) -> Outcome<Option<Client>> {
        for folder in RunDirs::of_this_user().for_commands()? {
            if let Some(client) = Client::connect_at(&folder.join(socket_name(flash_uuid)))? {
                return Ok(Some(client));
            }
        }
        Ok(None)
    }

    fn connect_at(path: &Path) -> Outcome<Option<Client>> {
        use ErrorKind::{ConnectionRefused, InvalidInput, NotFound};
        let failed = |why: &str| Failure::failed(format_args!("the server at {} {why}", path.display()));
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            // No server can be at a path that is too long.
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(None),
            Err(error) => return Err(failed(&format!("cannot be reached: {}", system_reason(&error)))),
        };
        match peer(&stream) {
            Ok(peer) if is_trusted(peer.uid) => {
                Ok(Some(Client { stream: BufReader::new(stream), path: path.to_owned(), process: peer.pid }))
            }
            Ok(peer) => Err(failed(&format!(
                "belongs to another user ({}) and is not believed: run the command as that user, or name another folder with {RUN_DIR_ENV}",
                peer.uid
            ))),
            Err(error) => Err(failed(&format!("does not show who it is: {}", system_reason(&error)))),
        }
    }

    /// The server, in words.
    pub fn name(&self) -> String {
        format!("the server at {} (process {})", self.path.display(), self.process)
    }

    /// Asks, and waits `at_most` so long for each piece of the answer.
    ///
    /// `None` if it does not come: then this connection carries no further request.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_within(&mut self, request: &str, at_most: Duration) -> Outcome<Option<Value>> {
        let stream = self.stream.get_ref();
        let limited = stream.set_read_timeout(Some(at_most)).and_then(|()| stream.set_write_timeout(Some(at_most)));
        limited.map_err(|error| Failure::failed(system_reason(&error)))?;
        self.answer(request)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The server's sentence, or that it went away.
    pub fn ask(&mut self, request: &str) -> Outcome<Value> {
        let answer = self.answer(request)?;
        answer.ok_or_else(|| Failure::failed(format_args!("{} does not answer", self.name())))
    }

    fn answer(&mut self, request: &str) -> Outcome<Option<Value>> {
        let path = self.path.display();
        let failed = |why: &str| Failure::failed(format_args!("the server at {path} {why}"));
        let mut reply = String::new();
        let asked = self
            .stream
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
            .and_then(|()| (&mut self.stream).take(REPLY_BYTES_MAX).read_line(&mut reply));
        match asked {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
            asked => asked.map_err(|error| failed(&format!("does not answer: {}", system_reason(&error))))?,
        };
        match parse_reply(&reply) {
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(sentence)) => Err(Failure::failed(sentence)),
            None if reply.is_empty() => Err(failed("went away before it answered")),
            None => Err(failed("gave an answer that is none")),
        }
    }
}

/// Parses a reply line; `None` for any other line.
pub fn parse_reply(reply: &str) -> Option<Reply> {
    let mut value: Value = serde_json::from_str(reply).ok()?;
    match (value.get_mut("ok").map(Value::take), value.get_mut("error").map(Value::take)) {
        (Some(value), None) => Some(Ok(value)),
        (None, Some(Value::String(sentence))) => Some(Err(sentence)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
