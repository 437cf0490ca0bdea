//! The real program over an origin or a flash that hangs, rather than fails.
//!
//! The origin is a stopped server, or a file on a file system that hangs; so is the flash. Other
//! servers take connections and say nothing, or want TLS. Requests that need no such device go on,
//! and each waiting command prints the cause.
//!
//! It leaves the end of a server under such an origin to `ends`.

use crate::support::image::noise;
use crate::support::nbdkit::Nbdkit;
use crate::support::wire::{READ, Wire};
use crate::support::{
    FuseFile, MIB, Scratch, Server, Volume, begin, ends, ends_within, eventually, have_mounts, have_tools, larder,
    stands_in,
};
use larder_device::nbd::socket::connect_unix;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Work that needs no origin is over within this time, on two slow cores.
const SOON: Duration = Duration::from_secs(20);

fn within_soon<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = act();
    assert!(began.elapsed() < SOON, "{what} took {:?}", began.elapsed());
    done
}

#[test]
fn an_origin_that_hangs_keeps_only_those_waiting_who_need_it() {
    let name = "an origin that hangs";
    if stands_in() || !have_tools(name, &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("hanging");
    let nbdkit = Nbdkit::start(&scratch, "slow", &["memory", "64M"]);
    let volume = Volume::on(
        &scratch,
        "cache",
        scratch.path("flash"),
        Path::new(&nbdkit.uri()),
        32 * MIB,
        &["--weu", "512K", "--compress", "off"],
    );
    let lazy = ["--origin-timeout", "1", "--dirty-low", "90", "--dirty-high", "91", "--dirty-max", "92"];
    let server = volume.serve_with(&lazy);
    let mut wire = Wire::connect(&server.socket);
    let data = |number: u64| noise(number, MIB as usize);
    (0..2).for_each(|number| wire.write(number * MIB, &data(number)));
    wire.flush();
    volume.flush();
    // This is more than the server's socket takes, so a thread that sent it by itself would wait.
    (2..10).for_each(|number| wire.write(number * MIB, &data(number)));
    wire.flush();

    nbdkit.hang();
    let flush = begin(larder(["flush", "--flash"]).arg(&volume.flash));
    let mut needy = Wire::connect(&server.socket);
    let waiting = thread::spawn(move || needy.read(40 * MIB, 64 << 10));
    eventually("it is told", || server.complaints().contains("condition raised: origin_hangs"));
    within_soon("hits, writes and a flush", || {
        (0..10).for_each(|number| assert!(wire.read(number * MIB, MIB as usize) == data(number), "a hit"));
        wire.write(10 * MIB, &data(10));
        wire.flush();
        assert!(wire.read(10 * MIB, MIB as usize) == data(10));
        // New clients are served, too.
        let mut other = Wire::connect(&server.socket);
        assert!(other.read(0, MIB as usize) == data(0));
    });
    let status = within_soon("a status", || volume.status());
    let health = status["health"].as_str().expect("health");
    assert!(health.contains("the origin hangs: it has not answered a") && status["degraded"] == false, "{health}");
    assert!(!waiting.is_finished(), "the request is not given up");
    // Commands that wait leave the control socket to commands that only look.
    let waiters: Vec<_> = (0..20).map(|_| begin(larder(["flush", "--flash"]).arg(&volume.flash))).collect();
    within_soon("statuses beside them", || (0..5).for_each(|_| drop(volume.status())));
    drop(waiters);
    thread::sleep(Duration::from_secs(3));

    nbdkit.go_on();
    assert!(waiting.join().expect("an answer") == vec![0; 64 << 10]);
    let flushed = flush.ends("the flush");
    let said = String::from_utf8_lossy(&flushed.stderr).into_owned();
    assert!(flushed.status.success() && said.contains("waiting: the origin hangs"), "{said}");
    eventually("it is over", || server.complaints().contains("condition cleared: origin_hangs"));
    drop(wire);
    server.stop();
    volume.verify();
}

/// A file on a file system of its own, which the test can stop.
struct FileThatHangs {
    fuse: FuseFile,
    _below: Nbdkit,
}

impl FileThatHangs {
    /// Makes it, or says that `test` is skipped.
    fn make(scratch: &Scratch, test: &str) -> Option<Self> {
        if stands_in() || !have_tools(test, &["nbdkit", "nbdfuse"]) || !have_mounts(test) {
            return None;
        }
        let below = Nbdkit::start(scratch, "below", &["memory", "16M"]);
        Some(Self { fuse: FuseFile::mount(scratch, "fuse", &below.uri()), _below: below })
    }
}

fn is_told(server: &Server, line: &str) {
    eventually(line, || server.complaints().contains(line));
}

/// Waits for the second time: the complaints are those of all servers of a test.
fn is_told_again(server: &Server, line: &str) {
    eventually("it is told again", || server.complaints().matches(line).count() == 2);
}

#[test]
fn a_file_system_of_the_origin_that_hangs_stops_no_thread_of_the_server() {
    let scratch = Scratch::new("hanging-file");
    let Some(file) = FileThatHangs::make(&scratch, "an origin file that hangs") else { return };
    let origin = file.fuse.file();
    let volume = Volume::on(&scratch, "cache", scratch.path("flash"), &origin, 32 * MIB, &["--weu", "512K"]);
    let server = volume.serve_with(&["--origin-timeout", "1", "--dirty-low", "50", "--dirty-high", "60"]);
    let mut wire = Wire::connect(&server.socket);
    let data = |number: u64| noise(number, 64 << 10);
    wire.write(0, &data(0));
    wire.flush();
    volume.flush();
    wire.write(1 << 16, &data(1));
    wire.flush();

    let hung = file.fuse.hang();
    // No client asks the origin for anything.
    is_told(&server, "condition raised: origin_hangs");
    let mut needy = Wire::connect(&server.socket);
    (0..20).for_each(|number| needy.begin(READ, 0, 8 * MIB + (number << 16), 64 << 10, &[]));
    within_soon("hits, writes, a flush and a new client", || {
        (0..2).for_each(|number| assert!(wire.read(number << 16, 64 << 10) == data(number), "a hit"));
        wire.write(2 << 16, &data(2));
        wire.flush();
        assert!(Wire::connect(&server.socket).read(2 << 16, 64 << 10) == data(2));
    });
    let status = ends_within(larder(["status", "--json", "--flash"]).arg(&volume.flash), SOON).expect("a status");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("a status");
    let mut listed = status["conditions"].as_array().expect("conditions").iter();
    let hangs = listed.find(|condition| condition["name"] == "origin_hangs").expect("it is listed");
    let what = hangs["what"].as_str().expect("a sentence");
    let age = what.split(" for ").nth(1).and_then(|age| age.split(' ').next()?.parse::<u64>().ok());
    assert!(age.is_some_and(|seconds| seconds >= 1), "no age: {what}");

    drop(hung);
    is_told(&server, "condition cleared: origin_hangs");
    assert!(wire.read(12 * MIB, 512) == [0; 512]);
    drop((wire, needy));
    server.stop();
    volume.verify();

    // The flash has all data, so an end needs nothing of the origin.
    let server = volume.serve_with(&["--origin-timeout", "1", "--dirty-low", "50", "--dirty-high", "60"]);
    let mut wire = Wire::connect(&server.socket);
    wire.write(3 << 16, &data(3));
    wire.flush();
    drop(wire);
    let hung = file.fuse.hang();
    is_told_again(&server, "condition raised: origin_hangs");
    server.ask_to_end();
    let (status, said) = server.ended(SOON);
    assert!(status.success() && said.contains("condition raised: origin_unmarked"), "{said}");
    drop(hung);
    let server = volume.serve();
    assert_eq!(volume.status()["recovery"]["clean_shutdown"], true);
    assert!(Wire::connect(&server.socket).read(3 << 16, 64 << 10) == data(3));
    server.stop();
}

/// Counts the threads of a server that wait for files alone.
fn blocking_threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("a process of ours");
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim_end() == "larder-blocking").count()
}

#[test]
fn a_file_system_of_the_flash_that_hangs_is_told_and_stops_no_thread_of_the_server() {
    let scratch = Scratch::new("hanging-flash");
    let Some(file) = FileThatHangs::make(&scratch, "a flash file that hangs") else { return };
    let flash = file.fuse.file();
    let origin = scratch.file("origin", 16 * MIB);
    let volume = Volume::on(&scratch, "cache", flash.clone(), &origin, 16 * MIB, &["--weu", "512K"]);
    let serve = || volume.serve_with(&["--origin-timeout", "1", "--end-timeout", "1", "--workers", "1"]);
    let named = format!("the flash {}", flash.display());
    let server = serve();
    let mut wire = Wire::connect(&server.socket);
    let data = noise(0, 64 << 10);
    wire.write(0, &data);
    wire.flush();
    drop(wire);
    server.stop();

    let server = serve();
    let mut needy = Wire::connect(&server.socket);
    let hung = file.fuse.hang();
    (0..8).for_each(|_| needy.begin(READ, 0, 0, 64 << 10, &[]));
    eventually("threads of the file's own wait for these reads", || blocking_threads(&server) >= 8);
    is_told(&server, "condition raised: flash_hangs (degraded): the flash hangs: it has not answered a ");
    within_soon("reads that miss, of a new client", || {
        assert!(Wire::connect(&server.socket).read(8 * MIB, 64 << 10) == vec![0; 64 << 10]);
    });
    drop(hung);
    is_told(&server, "condition cleared: flash_hangs");
    assert!(Wire::connect(&server.socket).read(0, 64 << 10) == data);
    drop(needy);

    let hung = file.fuse.hang();
    server.ask_to_end();
    is_told(&server, "the end was cut off");
    let said = server.complaints();
    let cut = said.lines().find(|line| line.contains("the end was cut off")).expect("it is told");
    assert!(cut.contains(&format!("{named} has not answered a")), "{cut}");
    drop(hung);
    let (status, said) = server.ended(SOON);
    assert_eq!(status.code(), Some(1), "{said}");

    let hung = file.fuse.hang();
    let begun = ["status", "verify", "dump"].map(|command| begin(larder([command, "--flash"]).arg(&flash)));
    thread::sleep(Duration::from_millis(2400));
    drop(hung);
    for command in begun {
        let out = command.ends("a command");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let waits = said.lines().filter(|line| *line == format!("waiting: {named} has not answered for 2 s")).count();
        assert!(out.status.success() && waits == 1, "{said}");
    }
}

#[test]
fn an_origin_alone_takes_clients_and_ends_though_its_file_system_hangs() {
    const END: u64 = 1;
    let scratch = Scratch::new("hanging-alone");
    let Some(file) = FileThatHangs::make(&scratch, "an origin alone that hangs") else { return };
    let volume = Volume::bare(&scratch, "alone", &file.fuse.file());
    let serve = || {
        let mut serve = larder(["serve", "--no-cache", "--origin-timeout", "1", "--end-timeout", &END.to_string()]);
        serve.arg("--origin").arg(&volume.origin).args(["--nbd", &format!("unix:{}", volume.socket().display())]);
        volume.serve_as(&mut serve)
    };
    let server = serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &[7; 512]);
    wire.flush();
    let hung = file.fuse.hang();
    is_told(&server, "condition raised: origin_hangs");
    let other = within_soon("a new client", || Wire::connect(&server.socket));
    assert_eq!(other.export_bytes, 16 * MIB);
    drop(hung);
    is_told(&server, "condition cleared: origin_hangs");
    assert!(wire.read(0, 512) == [7; 512]);
    drop((wire, other));
    server.stop();

    let server = serve();
    let hung = file.fuse.hang();
    is_told_again(&server, "condition raised: origin_hangs");
    let began = Instant::now();
    server.ask_to_end();
    // The kernel may keep the process until its requests are over.
    is_told(&server, "the end was cut off");
    assert!(began.elapsed() < Duration::from_secs(END + 6), "it took {:?}", began.elapsed());
    drop(hung);
    let (status, said) = server.ended(SOON);
    assert_eq!(status.code(), Some(1), "{said}");
}

#[test]
fn a_command_whose_server_is_stopped_says_what_it_waits_for() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("hanging-server");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    let server = volume.serve();
    server.signal("STOP");
    let begun = ["status", "flush"].map(|command| begin(larder([command, "--flash"]).arg(&volume.flash)));
    thread::sleep(Duration::from_secs(6));
    server.signal("CONT");
    for command in begun {
        let out = command.ends("a command");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        let waits: Vec<&str> = said.lines().filter(|line| line.starts_with("waiting: the server at ")).collect();
        assert!(waits.len() == 1 && waits[0].contains(&format!("(process {}) does not answer", server.id())), "{said}");
    }
    server.stop();
}

/// Checks that Larder refuses the origin soon, with exit code 1 and one sentence.
///
/// The sentence has these words, and Larder makes no flash.
fn refused_soon(scratch: &Scratch, origin: &str, words: &[&str]) {
    let flash = scratch.path("no-flash");
    let mut create = larder(["create", "--size", "16M", "--origin-timeout", "1", "--origin", origin, "--flash"]);
    create.arg(&flash);
    let mut serve = larder(["serve", "--no-cache", "--origin-timeout", "1", "--origin", origin, "--nbd"]);
    serve.arg(format!("unix:{}", scratch.path("no.sock").display()));
    for command in [&mut create, &mut serve] {
        let out = within_soon("a refusal", || ends(command));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.trim_end().lines().count() == 1 && said.starts_with("larder: "), "no single sentence: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "it does not say {word:?}: {said}"));
    }
    assert!(!flash.exists());
}

#[test]
fn a_handshake_that_gets_no_answer_is_told() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("hanging-handshake");
    let words = ["gives no answer to the NBD handshake within 1 s:", "TLS"];
    // The system accepts connections for the server, which says nothing.
    let silent = UnixListener::bind(scratch.path("silent")).expect("a socket");
    let uri = format!("nbd+unix:///?socket={}", scratch.path("silent").display());
    refused_soon(&scratch, &uri, &words);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    refused_soon(&scratch, &format!("nbd://{}/", tcp.local_addr().expect("its address")), &words);
    // The server accepts no connection, and its queue is full.
    let held: Vec<_> = std::iter::from_fn(|| connect_unix(&scratch.path("silent")).ok()).collect();
    refused_soon(&scratch, &uri, &["takes no connection in time"]);
    drop((held, silent));
    // The server sends one byte now and then. Each byte comes in time, all of them never do.
    let path = scratch.path("dripping");
    let dripping = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = dripping.accept() {
            thread::spawn(move || {
                for byte in b"NBDMAGICIHAVEOPT\0\x03".iter().cycle() {
                    thread::sleep(Duration::from_millis(300));
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    refused_soon(&scratch, &format!("nbd+unix:///?socket={}", path.display()), &words);
    // The server greets, and answers no option.
    let path = scratch.path("greeting");
    let greeting = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        while let Ok((mut stream, _)) = greeting.accept() {
            thread::spawn(move || {
                let _ = stream.write_all(b"NBDMAGICIHAVEOPT\0\x03");
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    refused_soon(&scratch, &format!("nbd+unix:///?socket={}", path.display()), &words);
}

#[test]
fn an_origin_that_wants_tls_is_told() {
    if stands_in() || !have_tools("an origin that wants TLS", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("hanging-tls");
    let keys = scratch.path("keys.psk");
    fs::write(&keys, format!("larder:{}\n", "0123456789abcdef".repeat(4))).expect("a key");
    let keys = format!("--tls-psk={}", keys.display());
    let nbdkit = Nbdkit::start(&scratch, "tls", &["--tls=require", &keys, "memory", "16M"]);
    refused_soon(&scratch, &nbdkit.uri(), &["requires TLS, which Larder does not speak", "tunnel"]);
    refused_soon(&scratch, "nbds://127.0.0.1/x", &["TLS, which Larder does not speak"]);
}
