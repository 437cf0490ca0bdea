//! The end of a server has one deadline, whichever part hangs: origin, flash, clients, or reader.
//! Data that was durable before is there afterwards. A sentence names the part that hung, and its
//! meaning for data.
//!
//! Devices hang because their server is stopped. Deadlines are seconds, and bounds generous: the
//! tests show that waits neither add up nor repeat.

use crate::support::{
    FuseFile, Loop, MIB, Mounted, Scratch, Server, Volume, begin, have_mounts, have_tools, larder,
    nbdkit::Nbdkit,
    recorded_requests, run, say, sh, system, until_done,
    wire::{READ, WRITE, Wire},
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{PipeWriter, Read, Write},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The deadline of these ends, in seconds.
const DEADLINE: u64 = 2;
/// The longest time of an end that kept it, on a machine with other work beside.
const KEPT: Duration = Duration::from_secs(DEADLINE + 6);
const CHUNK: usize = 8192;

/// A cache before an origin that can hang.
struct Hanging {
    scratch: Scratch,
    origin: Nbdkit,
    flash: PathBuf,
}

impl Hanging {
    fn create(name: &str, options: &[&str]) -> Self {
        let scratch = Scratch::new(name);
        let file = scratch.file("origin", 16 * MIB);
        let (origin, flash) = (Nbdkit::over(&scratch, "nbdkit", &file, &[], &[]), scratch.path("flash"));
        let mut create = larder(["create", "--size", "32M", "--origin", &origin.uri(), "--flash"]);
        run(create.arg(&flash).args(options));
        Self { scratch, origin, flash }
    }

    fn serve(&self, options: &[&str]) -> Server {
        await_free(&self.flash);
        let (one, other) = (self.socket("one"), self.socket("other"));
        let mut serve = larder(["serve", "--flash"]);
        serve.arg(&self.flash).args(["--end-timeout", &DEADLINE.to_string(), "--origin-timeout", "1"]).args(options);
        for socket in [one, other] {
            serve.args(["--nbd", &format!("unix:{}", socket.display())]);
        }
        Volume::bare(&self.scratch, "one", Path::new("")).serve_as(&mut serve)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.scratch.path(&format!("{name}.sock"))
    }

    /// Waits until a request has waited for the origin.
    fn awaits_origin(server: &Server) {
        let until = Instant::now() + KEPT * 4;
        while !server.complaints().contains("condition raised: origin_hangs") {
            assert!(Instant::now() < until, "nothing waits for the origin: {}", server.complaints());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has a new process serve the origin.
    ///
    /// nbdkit may end by itself when it goes on after its clients were cut off.
    fn origin_anew(&self) -> Nbdkit {
        Nbdkit::over(&self.scratch, "nbdkit", &self.scratch.path("origin"), &[], &[])
    }

    /// Serves it again with its origin there, and checks that the first `chunks` are as written.
    fn holds(&self, chunks: u64) {
        let _origin = self.origin_anew();
        let server = self.serve(&[]);
        let mut client = self.client("one");
        for n in 0..chunks {
            assert_eq!(client.read(n * CHUNK as u64, CHUNK), chunk(n), "chunk {n}");
        }
        drop(client);
        assert_eq!(ends(server).0, Some(0));
    }

    /// Connects a client to one of the two addresses.
    fn client(&self, name: &str) -> Wire {
        Wire::connect(&self.socket(name))
    }
}

/// Waits until the lock of the flash is free.
///
/// A kernel that still ends requests of a process that is gone keeps its files, and their locks,
/// until then.
fn await_free(flash: &Path) {
    let is_free = || File::open(flash).is_ok_and(|flash| flash.try_lock().is_ok());
    assert!(until_done(is_free), "the flash stays in use");
}

/// Returns the content of chunk `n`.
fn chunk(n: u64) -> Vec<u8> {
    (0..CHUNK as u64).map(|at| (n * 31 + at * 7 + at / 251) as u8).collect()
}

/// Sends SIGTERM, and returns the exit code and the words of an end that keeps its deadline.
fn ends(server: Server) -> (Option<i32>, String) {
    server.signal("TERM");
    let began = Instant::now();
    let (status, said) = server.ended(KEPT * 4);
    assert!(began.elapsed() < KEPT, "it took {:?}: {said}", began.elapsed());
    (status.code(), said)
}

#[test]
fn two_addresses_with_requests_in_an_origin_that_hangs_share_one_deadline() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let cache = Hanging::create("ends-reads", &[]);
    let server = cache.serve(&[]);
    let (mut one, mut other) = (cache.client("one"), cache.client("other"));
    for n in 0..100 {
        one.write(n * CHUNK as u64, &chunk(n));
    }
    cache.origin.hang();
    let miss = 8 * MIB;
    let mut third = cache.client("other");
    for n in 0..200 {
        // More requests than the origin's server gets at once. The cache reads the next chunks
        // ahead, too.
        other.begin(READ, 0, miss + n * CHUNK as u64, CHUNK as u32, &[]);
        third.begin(READ, 0, miss + (n + 300) * CHUNK as u64, CHUNK as u32, &[]);
    }
    one.begin(READ, 0, miss, CHUNK as u32, &[]);
    Hanging::awaits_origin(&server);
    let (code, said) = ends(server);
    assert_eq!(code, Some(1), "{said}");
    // A slow machine may need more than the rest of the deadline to close the cache.
    let cut = ["some requests did not finish and were cut off after 1.5 s: ", "while the cache was being closed: "];
    assert!(cut.iter().any(|cut| said.contains(&format!("{cut}the origin nbd+unix:"))), "{said}");
    assert!(said.contains("has not answered a read for"), "{said}");
    assert!(said.contains("acknowledged writes are durable on the flash"), "{said}");
    cache.holds(100);
}

#[test]
fn what_is_written_through_to_an_origin_that_hangs_may_be_lost_and_that_is_said() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let cache = Hanging::create("ends-writes", &["--mode", "write-through"]);
    let server = cache.serve(&[]);
    let mut client = cache.client("one");
    client.write(0, &chunk(1));
    client.flush();
    client.write(CHUNK as u64, &chunk(2));
    cache.origin.hang();
    client.begin(WRITE, 0, 2 * CHUNK as u64, CHUNK as u32, &chunk(3));
    let (code, said) = ends(server);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the end was cut off after 2 s, while "), "{said}");
    assert!(said.contains("has not answered a"), "{said}");
    assert!(said.contains("flushed data of clients is kept, and later writes may be lost"), "{said}");
    let _origin = cache.origin_anew();
    let server = cache.serve(&[]);
    assert_eq!(cache.client("one").read(0, CHUNK), chunk(1));
    assert_eq!(ends(server).0, Some(0));
}

#[test]
fn a_destage_into_an_origin_that_hangs_keeps_no_end_from_ending() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let cache = Hanging::create("ends-destage", &[]);
    let server = cache.serve(&["--dirty-low", "0", "--destage-rate", "0"]);
    let mut client = cache.client("one");
    cache.origin.hang();
    for n in 0..100 {
        client.write(n * CHUNK as u64, &chunk(n));
    }
    Hanging::awaits_origin(&server);
    let (code, said) = ends(server);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("while the cache was being closed: the origin nbd+unix:"), "{said}");
    assert!(said.contains("durable on the flash"), "{said}");
    cache.holds(100);
}

#[test]
fn an_origin_alone_and_a_recording_end_as_well() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("ends-alone");
    let file = scratch.file("origin", 16 * MIB);
    let (trace, deadline) = (scratch.path("trace"), DEADLINE.to_string());
    for recorded in [false, true] {
        let origin = Nbdkit::over(&scratch, &format!("nbdkit-{recorded}"), &file, &[], &[]);
        let volume = Volume::bare(&scratch, "alone", &file);
        let address = format!("unix:{}", volume.socket().display());
        let mut serve = match recorded {
            false => larder(["serve", "--no-cache"]),
            true => larder(["trace", "record"]),
        };
        serve.args(["--end-timeout", &deadline, "--origin", &origin.uri(), "--nbd", &address]);
        if recorded {
            serve.arg("-o").arg(&trace);
        }
        let server = volume.serve_as(&mut serve);
        let mut client = Wire::connect(volume.socket());
        client.write(0, &chunk(1));
        origin.hang();
        client.begin(READ, 0, 0, CHUNK as u32, &[]);
        let (code, said) = ends(server);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("while the origin was being flushed: the origin nbd+unix:"), "{said}");
        assert!(said.contains("later writes may be lost"), "{said}");
    }
    assert_eq!(recorded_requests(&trace), 1, "what was answered is recorded");
}

#[test]
fn a_flash_that_hangs_is_named() {
    if !have_tools("ends", &["nbdkit", "nbdfuse"]) || !have_mounts("ends") {
        return;
    }
    let scratch = Scratch::new("ends-flash");
    let (file, origin) = (scratch.file("flash", 32 * MIB), scratch.file("origin", 16 * MIB));
    let below = Nbdkit::over(&scratch, "nbdkit", &file, &[], &[]);
    let flash = FuseFile::mount(&scratch, "fuse", &below.uri());
    run(larder(["create", "--flash"]).arg(flash.file()).arg("--origin").arg(&origin));
    let volume = Volume::made(&scratch, "volume", flash.file(), &origin);
    let server = volume.serve_with(&["--end-timeout", &DEADLINE.to_string()]);
    let mut client = Wire::connect(volume.socket());
    client.write(0, &chunk(1));
    client.flush();
    client.write(CHUNK as u64, &chunk(2));
    below.hang();
    server.signal("TERM");
    let began = Instant::now();
    // The kernel keeps a process until its requests are over; the server says so before.
    while !server.complaints().contains("cut off") {
        assert!(began.elapsed() < KEPT, "{}", server.complaints());
        std::thread::sleep(Duration::from_millis(20));
    }
    let stays = Path::new(&format!("/proc/{}/task", server.id())).exists();
    below.go_on();
    let (status, said) = server.ended(KEPT);
    say(&format!("ends: a process with requests in a FUSE file that hangs {}", if stays { "stays" } else { "goes" }));
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("while the clients' writes were being flushed: the flash "), "{said}");
    assert!(said.contains("later writes may be lost"), "{said}");
    await_free(&flash.file());
    let server = volume.serve();
    assert_eq!(Wire::connect(volume.socket()).read(0, CHUNK), chunk(1));
    server.stop();
}

#[test]
fn an_opening_that_hangs_is_cut_off_too() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let cache = Hanging::create("ends-opening", &[]);
    cache.origin.hang();
    let mut serve = larder(["serve", "--end-timeout", "1", "--flash"]);
    serve.arg(&cache.flash).args(["--nbd", &format!("unix:{}", cache.socket("one").display())]);
    let running = begin(&mut serve);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    running.signal("TERM");
    let out = running.ends("the opening");
    assert!(began.elapsed() < KEPT, "it took {:?}", began.elapsed());
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("the end was cut off after 1 s, while the server was beginning"), "{said}");
}

/// A file system on which each write waits, until this is dropped.
pub struct Frozen(PathBuf);

impl Frozen {
    pub fn freeze(mounted: &Mounted) -> Self {
        sh("fsfreeze", [OsStr::new("-f"), mounted.folder.as_os_str()]);
        Self(mounted.folder.clone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A test that fails must not leave processes that nothing ends.
        let _ = system("fsfreeze").arg("-u").arg(&self.0).output();
    }
}

/// The end names the step, its path, and the fate of data. The rest does not wait for that step.
#[test]
fn a_file_system_that_hangs_is_named_with_the_step_that_waits_for_it() {
    if !have_tools("ends", &["fsfreeze", "mkfs.ext4"]) || !have_mounts("ends") {
        return;
    }
    let scratch = Scratch::new("ends-frozen");
    let image = scratch.file("image", 64 * MIB);
    sh("mkfs.ext4", [OsStr::new("-qF"), image.as_os_str()]);
    let disk = Loop::over(&image);
    let mounted = Mounted::mount(&scratch, "disk", &disk.device, "defaults");
    let there = |name: &str| mounted.folder.join(name);
    let deadline = ["--end-timeout", &DEADLINE.to_string()];
    // A loaded machine may take seconds for the flash, which does not hang.
    let long = Duration::from_secs(10);
    let long_deadline = ["--end-timeout", &long.as_secs().to_string()];
    let volume = |name: &str| {
        let origin = scratch.file(&format!("{name}.origin"), 16 * MIB);
        Volume::over(&scratch, name, &origin, 32 * MIB, &[])
    };
    let (one, two, three) = (volume("one"), volume("two"), volume("three"));
    let commanded = one.serve_as(one.serve_command(&long_deadline).env("LARDER_RUN_DIR", there("run")));
    let address = there("two.sock");
    let mut serve = larder(["serve", "--flash"]);
    serve.arg(&two.flash).args(["--nbd", &format!("unix:{}", address.display())]).args(long_deadline);
    let addressed = two.serve_as(&mut serve);
    let bare = Volume::bare(&scratch, "bare", &three.origin);
    let recording = bare.record(&there("trace"), &deadline);
    for socket in [one.socket(), &address, bare.socket()] {
        Wire::connect(socket).write(0, &chunk(1));
    }
    let mut begins = larder(["trace", "record", "--end-timeout", "60", "--origin"]);
    begins.arg(scratch.file("four.origin", MIB)).args([
        "--nbd",
        &format!("unix:{}", scratch.path("4").display()),
        "-o",
    ]);

    // Without its flash, a server begins with a write into its state directory.
    let origin = scratch.file("missing.origin", 16 * MIB);
    let missing = Volume::over(&scratch, "missing", &origin, 32 * MIB, &["--mode", "write-through"]);
    let state = there("state");
    std::fs::create_dir(&state).expect("a state directory");
    let with_state = ["--end-timeout", "60", "--state", state.to_str().expect("a plain path")];
    missing.serve_with(&with_state).stop();
    std::fs::remove_file(&missing.flash).expect("removed");

    let frozen = Frozen::freeze(&mounted);
    let beginning = begin(begins.arg(there("other")));
    let raising = begin(&mut missing.serve_command(&with_state));
    std::thread::sleep(Duration::from_millis(500));
    beginning.signal("TERM");
    raising.signal("TERM");
    let servers = [commanded, addressed, recording];
    servers.iter().for_each(Server::ask_to_end);
    let began = Instant::now();
    while servers.iter().any(|server| !server.complaints().contains("cut off")) {
        let said = servers.each_ref().map(Server::complaints);
        assert!(began.elapsed() < long + KEPT, "{said:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    drop(frozen);
    let [commanded, addressed, recording] = servers.map(|server| {
        let (status, said) = server.ended(KEPT);
        assert_eq!(status.code(), Some(1), "{said}");
        said
    });
    let has = |said: &str, words: [&str; 3]| assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    let run = format!("removing {}", there("run").display());
    has(&commanded, ["while the control socket was being removed: ", &run, "are durable on the flash"]);
    let closing = format!("closing unix:{} has taken ", address.display());
    has(&addressed, ["some requests did not finish and were cut off", &closing, "are durable on the flash"]);
    let ending = format!("ending the trace {} has taken", there("trace").display());
    has(&recording, ["the end was cut off after 2 s, while the trace was being ended: ", &ending, "may be lost"]);
    let out = beginning.ends("a recording that begins");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let making = format!("making the trace {} has taken", there("other").display());
    has(
        &said,
        ["the end was cut off after 2 s, while the server was beginning: ", &making, "no client had been let in"],
    );
    let out = raising.ends("a server that begins without its flash");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let fence = format!("raising the fence in {}/", state.display());
    has(
        &said,
        ["the end was cut off after 2 s, while the server was beginning: ", &fence, "no client had been let in"],
    );
    for volume in [&one, &two] {
        await_free(&volume.flash);
        let server = volume.serve();
        assert_eq!(Wire::connect(volume.socket()).read(0, CHUNK), chunk(1));
        server.stop();
    }
}

#[test]
fn a_second_signal_ends_an_end_at_once_but_not_a_hangup() {
    if !have_tools("ends", &["nbdkit"]) {
        return;
    }
    let cache = Hanging::create("ends-second", &[]);
    let mut server = cache.serve(&[]);
    let mut client = cache.client("one");
    client.write(0, &chunk(1));
    cache.origin.hang();
    client.begin(READ, 0, 8 * MIB, CHUNK as u32, &[]);
    Hanging::awaits_origin(&server);
    for signal in ["HUP", "TERM", "HUP", "XCPU", "PWR"] {
        server.signal(signal);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.alive(), "{}", server.complaints());
    let began = Instant::now();
    server.signal("INT");
    let (status, said) = server.ended(KEPT);
    assert!(began.elapsed() < Duration::from_secs(DEADLINE), "{:?}", began.elapsed());
    assert_eq!((status.code(), status.signal()), (Some(1), None), "{said}");
    assert!(!said.contains("cut off"), "{said}");
}

/// A low rate is a pause between batches: an end does not wait for it.
#[test]
fn a_destage_rate_of_nearly_nothing_keeps_no_end_from_ending() {
    let scratch = Scratch::new("ends-rate");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    let server = volume.serve_with(&["--destage-rate", "1", "--dirty-low", "0"]);
    let mut client = Wire::connect(volume.socket());
    for n in 0..200 {
        client.write(n * CHUNK as u64, &chunk(n));
    }
    drop(client);
    assert!(until_done(|| volume.number("destaged_chunks") > 0), "it has begun");
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Writes into a pipe until nothing more fits.
fn fill(mut writer: &PipeWriter) {
    let takes_more = || {
        let mut polled = libc::pollfd { fd: writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
    };
    while takes_more() {
        writer.write_all(&[b'.'; 4096]).expect("a reader");
    }
}

/// An end goes on while its words have no reader, be the pipe full or closed.
#[test]
fn an_end_does_not_wait_for_readers_of_its_words() {
    let scratch = Scratch::new("ends-words");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    for closed in [false, true] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut reader = Some(reader);
        let mut serve = volume.serve_command(&["--end-timeout", "30"]);
        serve.stdout(Stdio::piped()).stderr(writer.try_clone().expect("a descriptor"));
        let mut child = serve.spawn().expect("larder");
        let mut first = [0; 6];
        child.stdout.take().expect("a pipe").read_exact(&mut first).expect("the ready line");
        assert_eq!(&first, b"ready:");
        match closed {
            // Its standard output is closed in both cases, for the test drops its end.
            true => drop(reader.take()),
            false => fill(&writer),
        }
        let mut client = Wire::connect(volume.socket());
        client.write(0, &chunk(5 + u64::from(closed)));
        drop(client);
        run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
        let began = Instant::now();
        let status = child.wait().expect("a child of ours");
        assert!(status.success(), "{status}, readers closed: {closed}");
        assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
        let server = volume.serve();
        assert_eq!(Wire::connect(volume.socket()).read(0, CHUNK), chunk(5 + u64::from(closed)));
        server.stop();
    }
}

/// A server without a reader of its ready line serves, and ends in order.
#[test]
fn an_end_does_not_wait_for_a_reader_of_the_ready_line() {
    let scratch = Scratch::new("ends-ready");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    fill(&writer);
    let log = File::create(scratch.path("log")).expect("a log file");
    let mut child =
        volume.serve_command(&["--end-timeout", "30"]).stdout(writer).stderr(log).spawn().expect("larder starts");
    assert!(until_done(|| volume.status()["served"] == true), "clients are let in");
    let mut client = Wire::connect(volume.socket());
    client.write(0, &chunk(7));
    drop(client);
    run(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    let began = Instant::now();
    let status = child.wait().expect("a child of ours");
    assert!(status.success(), "{status}: {}", std::fs::read_to_string(scratch.path("log")).expect("a log"));
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let server = volume.serve();
    assert_eq!(Wire::connect(volume.socket()).read(0, CHUNK), chunk(7));
    server.stop();
}
