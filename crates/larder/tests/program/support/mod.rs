//! The common parts of the tests with real clients. They are a scratch folder, a served volume, an
//! nbdfuse file, a loop device, and a mounted file system. Each is a guard that undoes itself when
//! it is dropped, also when a test panics.
//!
//! Invariants: a guard ends only processes that it started, by their id. Every wait has a bound,
//! and nothing listens outside loopback and the scratch folder. Guards must be declared outermost
//! first, because Rust drops them in reverse order.
//!
//! `LARDER_TEST_SERVER=nbdkit` serves the origin with nbdkit in place of Larder. That shows a
//! correct client script before the search for a fault in Larder. `LARDER_REQUIRE_TOOLS=1` turns a
//! skip for a missing program into a failure.
//!
//! It leaves the checks of the clients' views to the tests.

pub mod image;
pub mod nbdkit;
pub mod wire;

use larder_engine::designs::{ENGINE_DESIGNS, EngineDesign};
use larder_format::StoreKind;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// No client command takes longer than this on two slow cores.
const CLIENT_SECONDS_MAX: u64 = 240;
/// A server must serve, or be gone after SIGTERM, within this time.
///
/// It may have much to recover or to write.
const SERVER_WAIT_MAX: Duration = Duration::from_secs(90);
/// An unmount waits this long for its last user.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// Returns true if the server under test is nbdkit, which shows that the scripts are right.
pub fn stands_in() -> bool {
    std::env::var("LARDER_TEST_SERVER").is_ok_and(|name| name == "nbdkit")
}

/// Prints past the test harness's capture: a skip must be seen in a green run.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn on_path(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(program).is_file())
}

/// Returns true if the programs are there. Otherwise says that `test` is skipped.
///
/// Under `LARDER_REQUIRE_TOOLS=1` it fails the test.
pub fn have_tools(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !on_path(program)).collect();
    if missing.is_empty() {
        return true;
    }
    let missing = missing.join(", ");
    let required = std::env::var("LARDER_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "{test} needs {missing}: scripts/install-packages.sh installs it");
    say(&format!("skipped: {test}: no {missing} here"));
    false
}

/// Returns true if this machine can mount a file system from a FUSE file through a loop device.
pub fn have_mounts(test: &str) -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let lack = if !root {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else if !system("losetup").arg("-f").output().is_ok_and(|out| out.status.success()) {
        "free loop device"
    } else {
        return true;
    };
    say(&format!("skipped: {test}: no {lack} here"));
    false
}

/// A folder that is removed with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("larder-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder");
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes a sparse file.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a program of the system, found also in the folders of root, under a time limit.
pub fn system(program: &str) -> Command {
    let mut command = Command::new("timeout");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    command.env("PATH", path).args(["-k", "5", &CLIENT_SECONDS_MAX.to_string(), program]).stdin(Stdio::null());
    command
}

/// Returns a TCP port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("its address").port()
}

/// Runs a command to its end; panics with all its output if it fails.
pub fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let complained = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{said}\n{complained}", out.status);
    said
}

/// Runs a program of the system to its end.
pub fn sh<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> String {
    run(system(program).args(args))
}

/// Returns the `larder` command line under test; each program of tests knows its place.
pub fn larder<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = heeding(crate::larder_program());
    command.args(args).stdin(Stdio::null());
    command
}

/// Returns a command that no signal is ignored for, as in the foreground of a terminal.
///
/// A shell without job control has the jobs in its background ignore some, and `nohup` one. The
/// suite would hand that on.
pub fn heeding(program: impl AsRef<OsStr>) -> Command {
    let heed = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the call may be made after a fork, and the signals exist.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    let mut command = Command::new(program);
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(heed) };
    command
}

/// Signals that a command may inherit blocked.
pub const BLOCKED: &[i32] = &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPWR, libc::SIGXCPU];

/// Blocks these signals in the command, as a parent does that waits for them with `sigwait`.
pub fn blocked<'a>(command: &'a mut Command, signals: &'static [i32]) -> &'a mut Command {
    let block = move || {
        // SAFETY: all zeroes is a valid set, which outlives the calls; each of them may be made
        // after a fork.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for &signal in signals {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(block) }
}

/// Returns the files with temporary names.
pub fn parts(scratch: &Scratch) -> Vec<PathBuf> {
    let files = fs::read_dir(scratch.path("")).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.to_string_lossy().contains(".part-")).collect()
}

/// Returns the requests of a recording, which is whole.
pub fn recorded_requests(trace: &Path) -> u64 {
    let records = larder_trace::open(trace, None, larder_trace::ReaderOptions::default());
    let records = records.unwrap_or_else(|error| panic!("{error}"));
    let mut requests: Vec<u64> =
        records.map(|record| record.unwrap_or_else(|error| panic!("{error}")).request).collect();
    requests.dedup();
    requests.len() as u64
}

/// Returns the design of `LARDER_DESIGN`, or the default one.
pub fn design() -> &'static EngineDesign {
    let Ok(name) = std::env::var("LARDER_DESIGN") else { return &ENGINE_DESIGNS[0] };
    larder_engine::designs::named(&name).expect("LARDER_DESIGN names a design")
}

/// Options of `create` for the filling of WEUs. Designs with slots of one chunk refuse them.
const WEU_OPTIONS: [&str; 4] = ["--weu", "--compress", "--dedup", "--fp-index"];

/// Returns `options` of `create` for the design of `LARDER_DESIGN`, unless they name one.
///
/// It leaves out options that the design does not have, and takes chunks that the design can
/// compress.
pub fn fitting(options: &[&str]) -> Vec<String> {
    let mut fitting: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    if std::env::var_os("LARDER_DESIGN").is_none() || options.contains(&"--design") {
        return fitting;
    }
    let design = design();
    let is_open = |option: &str| match design.kind() {
        StoreKind::Weus => true,
        StoreKind::Slots => false,
        StoreKind::Buckets => option == "--compress",
    };
    for option in WEU_OPTIONS.into_iter().filter(|option| !is_open(option)) {
        while let Some(at) = fitting.iter().position(|given| given == option) {
            fitting.drain(at..at + 2);
        }
    }
    // A chunk of one subchunk cannot be kept in less.
    let is = |option: &str, value: &str| options.windows(2).any(|pair| *pair == [option, value]);
    if design.kind() == StoreKind::Buckets && is("--chunk", "4K") && !is("--compress", "off") {
        fitting.iter_mut().filter(|given| *given == "4K").for_each(|chunk| "8K".clone_into(chunk));
    }
    fitting.extend(["--design".to_owned(), design.name.to_owned()]);
    fitting
}

/// Checks that a document names every key of an object that `--json` printed.
pub fn is_told_in(document: &str, printed: &serde_json::Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root");
    let text = fs::read_to_string(root.join("docs").join(document)).expect("a document");
    let keys = printed.as_object().expect("an object").keys();
    let untold: Vec<&String> = keys.filter(|key| !text.contains(&format!("`{key}`"))).collect();
    assert!(untold.is_empty(), "docs/{document} does not tell what these are: {untold:?}");
}

/// Puts a copy of a program at `to`.
///
/// Another process writes it. A program that another test starts holds this process's files until
/// it runs, and a file that is open for writing cannot be run.
pub fn install(program: &Path, to: &Path) {
    run(Command::new("install").args(["-m", "755"]).arg(program).arg(to));
}

/// Returns the exit code and both streams of a command that must end by itself soon.
pub fn ends(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    let mut guard = Running(Some(child));
    let child = guard.0.as_mut().expect("it has just begun");
    let output = output(child, SERVER_WAIT_MAX).unwrap_or_else(|| panic!("{command:?} did not end by itself"));
    guard.0 = None;
    output
}

/// Returns the output of a command that ends by itself in time; else kills it and its children.
pub fn ends_within(command: &mut Command, limit: Duration) -> Option<Output> {
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    let mut guard = Running(Some(child));
    let child = guard.0.as_mut().expect("it has just begun");
    let output = output(child, limit);
    match output {
        Some(_) => guard.0 = None,
        // The guard's end waits for the process itself.
        None => drop(Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output()),
    }
    output
}

/// Returns a child's output, of any length; `None` if it does not end in time.
fn output(child: &mut Child, limit: Duration) -> Option<Output> {
    fn all(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.map(|mut stream| stream.read_to_end(&mut bytes));
            bytes
        })
    }
    let (stdout, stderr) = (all(child.stdout.take()), all(child.stderr.take()));
    let status = wait(child, limit)?;
    Some(Output { status, stdout: stdout.join().expect("it reads"), stderr: stderr.join().expect("it reads") })
}

/// A command that runs beside the test, killed when it is dropped.
pub struct Background(Running);

/// Begins a command, with pipes for both streams: it must not say much before [`Background::ends`].
pub fn begin(command: &mut Command) -> Background {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    Background(Running(Some(child)))
}

impl Background {
    pub fn is_over(&mut self) -> bool {
        self.0.0.as_mut().is_none_or(|child| child.try_wait().expect("a child of ours").is_some())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.0.as_ref().expect("it has begun").id()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]));
    }

    /// Waits for its end, which must come soon: exit code and both streams.
    pub fn ends(mut self, what: &str) -> Output {
        let child = self.0.0.as_mut().expect("it has begun");
        let output = output(child, SERVER_WAIT_MAX).unwrap_or_else(|| panic!("{what} did not end by itself"));
        self.0.0 = None;
        output
    }
}

/// Kills and reaps the child that it holds.
struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.0.as_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(child: &mut Child, at_most: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + at_most;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// A flash file before an origin file, not served yet.
pub struct Volume {
    pub flash: PathBuf,
    pub origin: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Volume {
    /// Creates flash and a sparse origin in the scratch folder, with more options for
    /// `larder create`.
    pub fn create(scratch: &Scratch, flash_bytes: u64, origin_bytes: u64, options: &[&str]) -> Self {
        let origin = scratch.file("origin", origin_bytes);
        Self::over(scratch, "flash", &origin, flash_bytes, options)
    }

    /// Creates the same over an existing origin.
    pub fn over(scratch: &Scratch, name: &str, origin: &Path, flash_bytes: u64, options: &[&str]) -> Self {
        Self::on(scratch, name, scratch.path(name), origin, flash_bytes, options)
    }

    /// Creates the same on any flash; its socket and its log have `name`.
    pub fn on(
        scratch: &Scratch,
        name: &str,
        flash: PathBuf,
        origin: &Path,
        flash_bytes: u64,
        options: &[&str],
    ) -> Self {
        let volume = Self {
            origin: origin.to_path_buf(),
            socket: scratch.path(&format!("{name}.sock")),
            log: scratch.path(&format!("{name}.log")),
            flash,
        };
        if !stands_in() {
            let mut create = larder(["create", "--flash"]);
            create.arg(&volume.flash).arg("--origin").arg(&volume.origin).args(fitting(options));
            run(create.args(["--size", &flash_bytes.to_string()]));
        }
        volume
    }

    /// Returns the cache that is on a flash already.
    pub fn made(scratch: &Scratch, name: &str, flash: PathBuf, origin: &Path) -> Self {
        Self { flash, ..Self::bare(scratch, name, origin) }
    }

    /// Returns a file that is served as it is, without a cache.
    pub fn bare(scratch: &Scratch, name: &str, file: &Path) -> Self {
        Self {
            flash: PathBuf::new(),
            origin: file.to_path_buf(),
            socket: scratch.path(&format!("{name}.sock")),
            log: scratch.path(&format!("{name}.log")),
        }
    }

    /// Serves the origin alone on a Unix socket.
    pub fn serve_bare(&self) -> Server {
        let mut serve = larder(["serve", "--no-cache", "--origin"]);
        serve.arg(&self.origin).args(["--nbd", &format!("unix:{}", self.socket.display())]);
        self.begin(&mut serve)
    }

    /// Serves it on a Unix socket.
    pub fn serve(&self) -> Server {
        self.serve_at(&format!("unix:{}", self.socket.display()), &[])
    }

    /// Serves it at an address, with more options.
    pub fn serve_at(&self, address: &str, options: &[&str]) -> Server {
        let mut command = if stands_in() {
            assert!(address.starts_with("unix:"), "the stand-in serves Unix sockets");
            let mut nbdkit = Command::new("nbdkit");
            nbdkit.args(["-f", "-U"]).arg(&self.socket).arg("file").arg(&self.origin);
            nbdkit
        } else {
            let mut serve = larder(["serve", "--flash"]);
            serve.arg(&self.flash).args(["--nbd", address]).args(options);
            serve
        };
        self.begin(&mut command)
    }

    /// Serves its origin alone, and records the requests, with more options.
    pub fn record(&self, out: &Path, options: &[&str]) -> Server {
        let mut record = larder(["trace", "record", "--origin"]);
        record.arg(&self.origin).args(["--nbd", &format!("unix:{}", self.socket.display()), "-o"]).arg(out);
        self.begin(record.args(options))
    }

    /// Its Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs a command that serves on its Unix socket.
    pub fn serve_as(&self, command: &mut Command) -> Server {
        self.begin(command)
    }

    fn begin(&self, command: &mut Command) -> Server {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log file");
        self.begin_into(command, log.into())
    }

    fn begin_into(&self, command: &mut Command, errors: Stdio) -> Server {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut server = Server {
            child: Running(Some(child.unwrap_or_else(|err| panic!("{command:?}: {err}")))),
            uri: format!("nbd+unix:///?socket={}", self.socket.display()),
            socket: self.socket.clone(),
            log: self.log.clone(),
        };
        server.wait_until_ready();
        server
    }

    /// Serves it on its Unix socket, with more options.
    pub fn serve_with(&self, options: &[&str]) -> Server {
        self.serve_at(&format!("unix:{}", self.socket.display()), options)
    }

    /// Returns `larder serve` on its Unix socket, not begun yet.
    pub fn serve_command(&self, options: &[&str]) -> Command {
        let mut serve = larder(["serve", "--flash"]);
        serve.arg(&self.flash).args(["--nbd", &format!("unix:{}", self.socket.display())]).args(options);
        serve
    }

    /// Serves the same, with its error stream written there.
    pub fn serve_into(&self, options: &[&str], errors: std::os::fd::OwnedFd) -> Server {
        self.begin_into(&mut self.serve_command(options), errors.into())
    }

    /// Waits until the server has noticed that every client is gone.
    pub fn wait_for_no_clients(&self) {
        assert!(until_done(|| self.number("nbd_connections") == 0), "clients stay connected");
    }

    /// Returns `larder status --json`, served or not.
    pub fn status(&self) -> serde_json::Value {
        let said = run(larder(["status", "--json", "--flash"]).arg(&self.flash));
        serde_json::from_str(&said).unwrap_or_else(|err| panic!("status is no JSON object: {err}\n{said}"))
    }

    /// Returns one number of the status.
    pub fn number(&self, key: &str) -> u64 {
        let status = self.status();
        status[key].as_u64().unwrap_or_else(|| panic!("status has no whole number {key}: {status}"))
    }

    /// Destages everything.
    pub fn flush(&self) {
        run(larder(["flush", "--flash"]).arg(&self.flash));
    }

    /// Runs `larder verify`, which must succeed.
    pub fn verify(&self) {
        run(larder(["verify", "--flash"]).arg(&self.flash));
    }
}

/// A server process, killed when it is dropped.
pub struct Server {
    child: Running,
    pub uri: String,
    pub socket: PathBuf,
    log: PathBuf,
}

impl Server {
    fn wait_until_ready(&mut self) {
        let child = self.child.0.as_mut().expect("it has just begun");
        let out = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (send, lines) = mpsc::channel();
        // Reads to the end, so that the server never writes to a full or closed pipe.
        thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| drop(send.send(line))));
        let end = Instant::now() + SERVER_WAIT_MAX;
        while Instant::now() < end {
            if let Ok(line) = lines.recv_timeout(POLL)
                && let Some(uri) = line.strip_prefix("ready: ")
            {
                self.uri = uri.to_owned();
                return;
            }
            if stands_in() && self.socket.exists() {
                return;
            }
            if let Some(status) = child.try_wait().expect("a child of ours") {
                panic!("the server ended before it served: {status}\n{}", self.complaints());
            }
        }
        panic!("the server did not say that it serves\n{}", self.complaints());
    }

    /// Returns the content of its error stream.
    pub fn complaints(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.0.as_ref().expect("it runs").id()
    }

    pub fn alive(&mut self) -> bool {
        self.child.0.as_mut().is_some_and(|child| child.try_wait().expect("a child of ours").is_none())
    }

    /// Sends SIGTERM: it must finish, flush, checkpoint and exit with 0.
    pub fn stop(mut self) {
        let child = self.child.0.as_mut().expect("it runs");
        run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
        let status = wait(child, SERVER_WAIT_MAX).unwrap_or_else(|| panic!("it did not end after SIGTERM"));
        self.child.0 = None;
        assert!(status.success(), "after SIGTERM: {status}\n{}", self.complaints());
        if stands_in() {
            let _ = fs::remove_file(&self.socket);
        }
    }

    /// Sends SIGTERM: it must end with this exit code. Returns the content of its error stream.
    pub fn ends_with(mut self, code: i32) -> String {
        self.ask_to_end();
        let child = self.child.0.as_mut().expect("it runs");
        let status = wait(child, SERVER_WAIT_MAX).unwrap_or_else(|| panic!("it did not end after SIGTERM"));
        self.child.0 = None;
        assert_eq!(status.code(), Some(code), "{}", self.complaints());
        self.complaints()
    }

    /// Waits for a server that was told to end: it must exit with 0.
    pub fn ends_by_itself(mut self) {
        let child = self.child.0.as_mut().expect("it runs");
        let status = wait(child, SERVER_WAIT_MAX).unwrap_or_else(|| panic!("it does not end"));
        self.child.0 = None;
        assert!(status.success(), "{status}\n{}", self.complaints());
    }

    /// Sends SIGTERM, without a wait for its effect.
    pub fn ask_to_end(&self) {
        self.signal("TERM");
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.0.as_ref().expect("it runs").id()
    }

    /// Sends it a signal, by name or number.
    pub fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]));
    }

    /// Returns its exit status, if it ends in this time, and the content of its error stream.
    pub fn ended(mut self, at_most: Duration) -> (ExitStatus, String) {
        let child = self.child.0.as_mut().expect("it runs");
        let status = wait(child, at_most).unwrap_or_else(|| panic!("it does not end\n{}", self.complaints()));
        self.child.0 = None;
        (status, self.complaints())
    }

    /// Sends SIGKILL, without a wait for its effect.
    pub fn strike(&self) {
        let child = self.child.0.as_ref().expect("it runs");
        run(Command::new("kill").args(["-KILL", &child.id().to_string()]));
    }

    /// Sends SIGKILL, as a crash of the process.
    pub fn kill(self) {
        let socket = self.socket.clone();
        drop(self);
        if stands_in() {
            let _ = fs::remove_file(socket);
        }
    }
}

/// An NBD export as a plain file, by nbdfuse.
pub struct FuseFile {
    child: Running,
    folder: PathBuf,
}

impl FuseFile {
    pub fn mount(scratch: &Scratch, name: &str, uri: &str) -> Self {
        let folder = scratch.path(name);
        fs::create_dir_all(&folder).expect("a mount point");
        let log = File::create(scratch.path(&format!("{name}.nbdfuse.log"))).expect("a log file");
        let child = Command::new("nbdfuse")
            .arg(folder.join("nbd"))
            .arg(uri)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nbdfuse starts");
        let mut fuse = Self { child: Running(Some(child)), folder };
        let end = Instant::now() + SERVER_WAIT_MAX;
        while !fuse.file().exists() {
            let child = fuse.child.0.as_mut().expect("it has just begun");
            assert!(child.try_wait().expect("a child of ours").is_none(), "nbdfuse ended before it mounted");
            assert!(Instant::now() < end, "nbdfuse did not mount");
            thread::sleep(POLL);
        }
        fuse
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    /// Stops nbdfuse: its file system answers nothing until the guard is dropped.
    ///
    /// A guard of a server that uses the file comes before this one: the kernel may keep a killed
    /// process until its requests are over.
    pub fn hang(&self) -> Hung<'_> {
        // The guard comes first: it undoes a stop that does not succeed.
        let hung = Hung(self);
        stop_whole(self.id());
        hung
    }

    fn id(&self) -> u32 {
        self.child.0.as_ref().expect("it runs").id()
    }

    /// Sends SIGKILL: the mount stays, and answers nothing any more.
    pub fn kill(&mut self) {
        let child = self.child.0.as_mut().expect("it runs");
        child.kill().and_then(|()| child.wait()).expect("a child of ours");
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        // nbdfuse flushes and ends by itself once it is unmounted; its loop device may let go a
        // moment late.
        if !until_done(|| unmounted(&self.folder)) {
            let_go(&self.folder);
        }
        if let Some(child) = self.child.0.as_mut()
            && wait(child, BUSY_WAIT_MAX).is_none()
        {
            say(&format!("nbdfuse at {} did not end by itself", self.folder.display()));
        }
    }
}

/// A file system that hangs, and goes on when this is dropped.
pub struct Hung<'a>(&'a FuseFile);

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        // A test that fails must not leave processes that nothing ends.
        let _ = Command::new("kill").args(["-CONT", &self.0.id().to_string()]).output();
    }
}

/// Stops a process, and waits for the stop of each of its threads.
///
/// One thread takes the signal and tells the others, so on a busy machine some still work for a
/// while.
fn stop_whole(id: u32) {
    run(Command::new("kill").args(["-STOP", &id.to_string()]));
    let state_of = |task: std::io::Result<fs::DirEntry>| {
        // The state follows the name, which is in parentheses.
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    };
    eventually("each of its threads has stopped", || {
        let mut tasks = fs::read_dir(format!("/proc/{id}/task")).expect("a process of ours");
        tasks.all(|task| state_of(task).is_none_or(|state| state == 'T'))
    });
}

/// A loop device over a file, without the page cache between.
pub struct Loop {
    pub device: PathBuf,
}

impl Loop {
    pub fn over(file: &Path) -> Self {
        Self::with(&["--direct-io=on"], file)
    }

    /// Makes a loop device with sectors of this size.
    pub fn in_sectors_of(bytes: u32, file: &Path) -> Self {
        Self::with(&["--direct-io=on", "-b", &bytes.to_string()], file)
    }

    /// Makes a loop device that takes no write.
    pub fn read_only(file: &Path) -> Self {
        Self::with(&["--direct-io=on", "-r"], file)
    }

    fn with(options: &[&str], file: &Path) -> Self {
        // Two tests may be told of the same free device; the loser asks again.
        let mut told = String::new();
        let found = until_done(|| {
            let out = system("losetup").args(options).args(["-f", "--show"]).arg(file).output().expect("losetup");
            told = String::from_utf8_lossy(if out.status.success() { &out.stdout } else { &out.stderr }).into_owned();
            out.status.success()
        });
        assert!(found, "losetup {}: {told}", file.display());
        Self { device: PathBuf::from(told.trim()) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        until_done(|| system("losetup").arg("-d").arg(&self.device).output().is_ok_and(|out| out.status.success()));
    }
}

/// A mounted file system.
pub struct Mounted {
    pub folder: PathBuf,
}

impl Mounted {
    pub fn mount(scratch: &Scratch, name: &str, device: &Path, options: &str) -> Self {
        let folder = scratch.path(name);
        fs::create_dir_all(&folder).expect("a mount point");
        run(system("mount").args(["-o", options]).arg(device).arg(&folder));
        Self { folder }
    }

    /// Mounts a small file system in memory.
    pub fn tmpfs(scratch: &Scratch, name: &str, bytes: u64) -> Self {
        let folder = scratch.path(name);
        fs::create_dir_all(&folder).expect("a mount point");
        run(system("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "larder-test"]).arg(&folder));
        Self { folder }
    }

    /// Makes it read-only from here on, or writable again.
    pub fn remount(&self, options: &str) {
        run(system("mount").args(["-o", &format!("remount,{options}")]).arg(&self.folder));
    }

    /// Fills it to the last block, and returns the file, which the test may remove.
    pub fn fill(&self) -> PathBuf {
        let path = self.folder.join("filler");
        let mut file = File::create(&path).expect("a file of ours");
        let block = vec![0x5a; 4096];
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !until_done(|| unmounted(&self.folder)) {
            let_go(&self.folder);
        }
    }
}

fn unmounted(folder: &Path) -> bool {
    let done = system("umount").arg(folder).output().is_ok_and(|out| out.status.success());
    // The kernel's own list: a file system whose server died cannot be asked, and is mounted all
    // the same.
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
    let folder = folder.display().to_string();
    done || !mounts.lines().any(|line| line.split(' ').nth(1) == Some(&folder))
}

/// Unmounts lazily a mount that a failed test still has open: it goes with its last user.
fn let_go(folder: &Path) {
    say(&format!("{} is busy, and is unmounted later", folder.display()));
    let _ = system("umount").arg("-l").arg(folder).output();
}

/// Waits until the condition holds, for as long as a server may take.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    assert!(until_done(is_so), "it does not come to this: {what}");
}

/// Makes a FIFO, which stands for a file that hangs when it is opened.
#[track_caller]
pub fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a path without a zero");
    // SAFETY: plain system call on a string that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "{}", path.display());
}

/// Lists the mounts, loop devices and processes that name a test's folder.
pub fn left_behind(scratch: &Scratch) -> Vec<String> {
    let name = scratch.0.display().to_string();
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
    found.extend(mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    let loops = sh("losetup", ["-a"]);
    found.extend(loops.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    for process in fs::read_dir("/proc").expect("the processes").flatten() {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&name) {
            found.push(command);
        }
    }
    found
}

pub fn until_done(mut attempt: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + BUSY_WAIT_MAX;
    while !attempt() {
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(POLL * 5);
    }
    true
}
