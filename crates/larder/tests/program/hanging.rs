//! The real program before an origin that hangs, rather than fails.
//!
//! The origin is a stopped server, one that takes connections and says nothing, or one that wants
//! TLS. Requests that need no origin go on, and each waiting command prints the cause.
//!
//! It leaves the end of a server under such an origin to `ends`.

use crate::support::image::noise;
use crate::support::nbdkit::Nbdkit;
use crate::support::wire::Wire;
use crate::support::{MIB, Scratch, Volume, begin, ends, eventually, have_tools, larder, stands_in};
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
