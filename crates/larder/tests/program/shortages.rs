//! The real program when the system is short of flash space, origin space or file descriptors. The
//! server tells each shortage on standard error and in the status, heals when the cause goes, and
//! loses no acknowledged data.
//!
//! It leaves each kind at each moment to the engine's tests.

use crate::support::image::noise;
use crate::support::nbdkit::Nbdkit;
use crate::support::wire::{READ, WRITE, Wire};
use crate::support::{MIB, Mounted, Scratch, Server, Volume};
use crate::support::{ends, eventually, have_mounts, have_tools, larder, stands_in};
use larder_device::{BlockDevice, IoBuf, WriteFlags, driver::block_on, nbd::NbdDevice};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const CHUNK: u64 = 8 << 10;
const FLASH_BYTES: u64 = 8 * MIB;

fn has(status: &Value, name: &str) -> bool {
    status["conditions"].as_array().expect("conditions").iter().any(|condition| condition["name"] == name)
}

#[track_caller]
fn told(server: &Server, entry: &str) {
    eventually(entry, || server.complaints().contains(entry));
}

/// A chunk of which the checkpoint has a copy, among those that are written.
const KEPT: u64 = 400;

/// Writers fill the space, and wait. They go on when there is room.
///
/// The flash has not failed, with a state directory and without.
#[test]
fn a_full_flash_is_waited_for_and_heals() {
    if stands_in() || !have_mounts("a full flash that heals") {
        return;
    }
    for (mode, has_state) in [("write-back", true), ("write-back", false), ("write-through", true)] {
        let scratch = Scratch::new("shortage-flash");
        let disk = Mounted::tmpfs(&scratch, "disk", 3 * FLASH_BYTES);
        let origin = scratch.file("origin", 16 * MIB);
        let options = ["--weu", "512K", "--mode", mode, "--compress", "off"];
        let volume = Volume::on(&scratch, "cache", disk.folder.join("flash"), &origin, FLASH_BYTES, &options);
        let state = scratch.path("state");
        fs::create_dir(&state).expect("a state directory");
        let state = ["--state", state.to_str().expect("a plain path")];
        let server = volume.serve_with(if has_state { &state } else { &[] });
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &noise(0, 64 << 10));
        // In write-through a write needs the flash if log or checkpoint have a copy of its chunk.
        wire.write(KEPT * CHUNK, &noise(1, 64 << 10));
        wire.flush();
        drop(wire);
        server.stop();
        let server = volume.serve_with(if has_state { &state } else { &[] });
        let mut wire = Wire::connect(&server.socket);
        let filler = disk.fill();
        // The acknowledged writes, by chunk.
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let progress = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (acknowledged, progress) = (acknowledged.clone(), progress.clone());
            move || {
                for number in 0..600 {
                    let at = 16 + number % 500;
                    wire.write(at * CHUNK, &noise(1000 + number, CHUNK as usize));
                    acknowledged.lock().expect("a lock").push((at, 1000 + number));
                    if number % 20 == 19 {
                        wire.flush();
                    }
                    progress.store(number, Relaxed);
                }
                wire
            }
        });
        told(&server, "condition raised: flash_full");
        let status = volume.status();
        assert!(has(&status, "flash_full") && status["degraded"] == false, "{mode}: {status}");
        // Readers do not wait.
        let mut reader = Wire::connect(&server.socket);
        assert!(reader.read(0, 64 << 10) == noise(0, 64 << 10));
        assert!(reader.read(12 * MIB, 64 << 10) == vec![0; 64 << 10]);
        thread::sleep(Duration::from_millis(1500));
        assert!(!writer.is_finished(), "{mode}: after {} writes", progress.load(Relaxed));

        fs::remove_file(filler).expect("the filler");
        let mut wire = writer.join().expect("every write succeeded");
        wire.flush();
        told(&server, "condition cleared: flash_full");
        let status = volume.status();
        assert!(status["degraded"] == false && !has(&status, "fence_up") && status["health"] == "ok", "{status}");
        drop((wire, reader));
        // Acknowledged and flushed data outlives a crash.
        server.kill();
        let server = volume.serve_with(if has_state { &state } else { &[] });
        let mut wire = Wire::connect(&server.socket);
        let acknowledged = acknowledged.lock().expect("a lock");
        let newest: std::collections::BTreeMap<u64, u64> = acknowledged.iter().copied().collect();
        for (at, number) in newest {
            assert!(wire.read(at * CHUNK, CHUNK as usize) == noise(number, CHUNK as usize), "{mode}: chunk {at}");
        }
        drop(wire);
        server.stop();
        volume.verify();
    }
}

/// The end waits for room for five seconds, and then is that of a flash that failed.
#[test]
fn an_end_on_a_full_flash_is_over_long_before_its_deadline() {
    if stands_in() || !have_mounts("the end on a full flash") {
        return;
    }
    for has_state in [true, false] {
        let scratch = Scratch::new("shortage-end");
        let disk = Mounted::tmpfs(&scratch, "disk", 3 * FLASH_BYTES);
        let origin = scratch.file("origin", 16 * MIB);
        let options = ["--weu", "512K", "--compress", "off"];
        let volume = Volume::on(&scratch, "cache", disk.folder.join("flash"), &origin, FLASH_BYTES, &options);
        let state = scratch.path("state");
        fs::create_dir(&state).expect("a state directory");
        let state = ["--state", state.to_str().expect("a plain path")];
        let server = volume.serve_with(if has_state { &state } else { &[] });
        let mut wire = Wire::connect(&server.socket);
        wire.write(0, &noise(0, 64 << 10));
        wire.flush();
        let _filler = disk.fill();
        // A server that has ended answers nothing more.
        let device = NbdDevice::connect(&server.uri).expect("a connection");
        let writer = thread::spawn(move || {
            let write = |number: u64| {
                let data = IoBuf::copy_of(&noise(number, CHUNK as usize)).freeze();
                block_on(device.write(number * CHUNK, data, WriteFlags::default()))
            };
            (16..600).take_while(|&number| write(number).is_ok()).count()
        });
        told(&server, "condition raised: flash_full");
        server.ask_to_end();
        let (status, said) = server.ended(Duration::from_secs(40));
        assert!(!said.contains("cut off"), "{said}");
        assert_eq!(status.success(), has_state, "{said}");
        let written = writer.join().expect("it ends");
        if has_state {
            let origin = fs::read(&origin).expect("the origin");
            for number in 16..16 + written as u64 {
                let at = (number * CHUNK) as usize;
                assert!(origin[at..][..CHUNK as usize] == noise(number, CHUNK as usize)[..], "chunk {number}");
            }
        }
    }
}

/// Dirty data stays on the flash while the origin has no space.
///
/// It goes there by itself when the origin has space again.
#[test]
fn a_full_origin_is_told_and_heals() {
    if stands_in() || !have_mounts("a full origin that heals") {
        return;
    }
    let scratch = Scratch::new("shortage-origin");
    let disk = Mounted::tmpfs(&scratch, "disk", 16 * MIB);
    let origin = disk.folder.join("origin");
    fs::File::create(&origin).and_then(|file| file.set_len(64 * MIB)).expect("a sparse file");
    let volume = Volume::on(&scratch, "cache", scratch.path("flash"), &origin, 16 * MIB, &["--weu", "512K"]);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    let filler = disk.fill();
    (0..64).for_each(|number| wire.write(number * 64 * CHUNK, &noise(number, CHUNK as usize)));
    wire.flush();
    let refused = ends(larder(["flush", "--flash"]).arg(&volume.flash));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("no space left"), "{said}");
    told(&server, "condition raised: origin_full");
    let status = volume.status();
    assert!(has(&status, "origin_full") && status["dirty_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{status}");
    (0..64).for_each(|number| {
        assert!(wire.read(number * 64 * CHUNK, CHUNK as usize) == noise(number, CHUNK as usize), "a dirty chunk");
    });

    fs::remove_file(filler).expect("the filler");
    told(&server, "condition cleared: origin_full");
    volume.flush();
    assert_eq!(volume.number("dirty_bytes"), 0);
    let found = fs::read(&origin).expect("the origin");
    (0..64).for_each(|number| {
        let at = (number * 64 * CHUNK) as usize;
        assert!(found[at..at + CHUNK as usize] == noise(number, CHUNK as usize), "the origin's chunk");
    });
    drop(wire);
    server.stop();
}

/// Without a free descriptor the server lets no new client in, and its clients go on.
///
/// It lets others in when some have gone.
#[test]
fn a_server_without_descriptors_lets_clients_in_again() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("shortage-files");
    let volume = Volume::create(&scratch, 16 * MIB, 16 * MIB, &["--weu", "512K"]);
    let serve = volume.serve_command(&[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""]).arg(serve.get_program()).args(serve.get_args());
    let server = volume.serve_as(&mut limited);
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &noise(1, 64 << 10));
    let crowd: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&server.socket).expect("it listens")).collect();
    told(&server, "condition raised: too_many_files");
    assert!(server.complaints().contains("too many open files"), "{}", server.complaints());
    assert!(wire.read(0, 64 << 10) == noise(1, 64 << 10));
    wire.write(MIB, &noise(2, 64 << 10));
    wire.flush();
    drop(crowd);
    let mut other = Wire::connect(&server.socket);
    assert!(other.read(MIB, 64 << 10) == noise(2, 64 << 10));
    told(&server, "condition cleared: too_many_files");
    assert_eq!(volume.status()["health"], "ok");
    drop((wire, other));
    server.stop();
}

/// A recording tells of the process's shortages, and of an origin that exceeds `--origin-timeout`.
#[test]
fn a_recording_tells_its_conditions() {
    if stands_in() || !have_tools("the conditions of a recording", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("shortage-record");
    let nbdkit = Nbdkit::start(&scratch, "origin", &["memory", "16M"]);
    let volume = Volume::bare(&scratch, "bare", Path::new(&nbdkit.uri()));
    let address = format!("unix:{}", volume.socket().display());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_larder"), "trace", "record"]);
    limited.args(["--origin", &nbdkit.uri(), "--origin-timeout", "1", "--nbd", &address, "-o"]);
    let server = volume.serve_as(limited.arg(scratch.path("trace")));
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &noise(1, 64 << 10));
    let crowd: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&server.socket).expect("it listens")).collect();
    told(&server, "condition raised: too_many_files");
    drop(crowd);
    told(&server, "condition cleared: too_many_files");
    nbdkit.hang();
    // A process that is told to stop may give an answer still.
    let goes_on = Arc::new(AtomicU64::new(0));
    let waiting = thread::spawn({
        let goes_on = goes_on.clone();
        move || {
            while goes_on.load(Relaxed) == 0 {
                assert!(wire.read(0, 64 << 10) == noise(1, 64 << 10));
                thread::sleep(Duration::from_millis(20));
            }
            wire
        }
    });
    told(&server, "condition raised: origin_hangs");
    goes_on.store(1, Relaxed);
    nbdkit.go_on();
    let wire = waiting.join().expect("answers");
    told(&server, "condition cleared: origin_hangs");
    drop(wire);
    server.stop();
}

/// The server tells that the origin dies while a client uses it, and that it comes back.
///
/// It does so in each mode, and without a cache.
#[test]
fn an_origin_that_dies_and_heals_is_told_in_each_mode() {
    if stands_in() || !have_tools("an origin that dies and heals", &["nbdkit"]) {
        return;
    }
    thread::scope(|scope| {
        for mode in ["write-back", "write-through", "write-around", "no-cache", "no-flash", "record"] {
            scope.spawn(move || dies_and_heals(mode));
        }
    });
}

fn dies_and_heals(mode: &str) {
    let scratch = Scratch::new("shortage-dies");
    let file = scratch.file("file", 16 * MIB);
    let file = ["file", file.to_str().expect("a plain path")];
    let nbdkit = Nbdkit::start(&scratch, "origin", &file);
    let uri = nbdkit.uri();
    let state = scratch.path("state");
    fs::create_dir(&state).expect("a state directory");
    let state = ["--state", state.to_str().expect("a plain path")];
    let make = |mode: &str| {
        let options = ["--weu", "512K", "--mode", mode];
        Volume::on(&scratch, "cache", scratch.path("flash"), Path::new(&uri), 16 * MIB, &options)
    };
    let server = match mode {
        "no-cache" => Volume::bare(&scratch, "bare", Path::new(&uri)).serve_bare(),
        "record" => Volume::bare(&scratch, "bare", Path::new(&uri)).record(&scratch.path("trace"), &[]),
        "no-flash" => {
            let volume = make("write-through");
            volume.serve_with(&state).stop();
            fs::remove_file(&volume.flash).expect("the flash");
            volume.serve_with(&state)
        }
        mode => make(mode).serve(),
    };
    // The client goes on after any answer.
    let mut wire = Wire::connect(&server.socket);
    let ask = |wire: &mut Wire, number: u64| {
        let data = noise(number, CHUNK as usize);
        let _ = wire.request(WRITE, 0, number % 512 * CHUNK, CHUNK as u32, &data);
        let _ = wire.request(READ, 0, (512 + number * 7 % 1024) * CHUNK, CHUNK as u32, &[]);
    };
    (0..8).for_each(|number| ask(&mut wire, number));
    nbdkit.kill();
    let mut number = 8;
    let mut until = |wire: &mut Wire, entry: &str| {
        eventually(entry, || {
            number += 1;
            ask(wire, number);
            server.complaints().contains(entry)
        });
    };
    until(&mut wire, "condition raised: origin_gone");
    let _nbdkit = Nbdkit::start(&scratch, "origin", &file);
    // The client is silent: the server itself asks the origin.
    eventually("the origin is back", || server.complaints().contains("condition cleared: origin_gone"));
    let complaints = server.complaints();
    let lines: Vec<&str> = complaints.lines().filter(|line| line.contains("origin_gone")).collect();
    assert!(lines.len() >= 2 && lines.len() <= 8, "{mode}: {lines:?}");
    assert!(lines[0].contains("what to do: bring the origin back"), "{mode}: {lines:?}");
    drop(wire);
    server.kill();
}

/// The end comes right behind the failure: no look of the second between comes.
#[test]
fn a_condition_raised_just_before_the_end_is_told() {
    if stands_in() || !have_tools("a condition before the end", &["nbdkit"]) {
        return;
    }
    for way in ["no-cache", "record", "write-through"] {
        let scratch = Scratch::new("condition-at-the-end");
        let file = scratch.file("origin", 16 * MIB);
        let failing = ["error-pread=EIO", "error-pread-rate=100%"];
        let nbdkit = Nbdkit::over(&scratch, "origin", &file, &["error"], &failing);
        let uri = nbdkit.uri();
        let origin = Path::new(&uri);
        let server = match way {
            "no-cache" => Volume::bare(&scratch, "bare", origin).serve_bare(),
            "record" => Volume::bare(&scratch, "bare", origin).record(&scratch.path("trace"), &[]),
            mode => {
                let options = ["--weu", "512K", "--mode", mode];
                Volume::on(&scratch, "cache", scratch.path("flash"), origin, FLASH_BYTES, &options).serve()
            }
        };
        let mut wire = Wire::connect(&server.socket);
        assert!(wire.request(READ, 0, 0, CHUNK as u32, &[]).is_err(), "{way}: the origin fails");
        drop(wire);
        let complaints = server.ends_with(0);
        assert!(complaints.contains("condition raised: origin_failing"), "{way}: {complaints}");
    }
}

/// Dirty data that is found damaged right before the end is told, too.
#[test]
fn dirty_data_found_damaged_just_before_the_end_is_told() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("damage-at-the-end");
    let volume = Volume::create(&scratch, FLASH_BYTES, 16 * MIB, &["--weu", "512K", "--compress", "off"]);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    (0..16).for_each(|chunk| wire.write(chunk * CHUNK, &noise(chunk, CHUNK as usize)));
    wire.flush();
    let flash = fs::read(&volume.flash).expect("the flash");
    let found = flash.windows(64).position(|window| window == &noise(3, CHUNK as usize)[..64]).expect("the record");
    let file = fs::File::options().write(true).open(&volume.flash).expect("the flash");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 64], found as u64).expect("written");
    assert!(wire.request(READ, 0, 3 * CHUNK, CHUNK as u32, &[]).is_err(), "the record is damaged");
    drop(wire);
    let complaints = server.ends_with(0);
    assert!(complaints.contains("condition raised: dirty_data_lost"), "{complaints}");
}

/// In write-through a flush of the origin failed, and the next one succeeded. The end tells of the
/// failure, with the origin's name.
#[test]
fn an_end_names_the_origin_whose_flush_failed_earlier() {
    if stands_in() || !have_tools("an origin whose flush failed", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("shortage-earlier");
    let file = scratch.file("file", 16 * MIB);
    let nbdkit = Nbdkit::over(&scratch, "origin", &file, &[], &[]);
    let uri = nbdkit.uri();
    let options = ["--weu", "512K", "--mode", "write-through"];
    let volume = Volume::on(&scratch, "cache", scratch.path("flash"), Path::new(&uri), 16 * MIB, &options);
    let server = volume.serve();
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &noise(1, CHUNK as usize));
    nbdkit.kill();
    assert!(wire.request(crate::support::wire::FLUSH, 0, 0, 0, &[]).is_err(), "a flush of no origin");
    let _nbdkit = Nbdkit::over(&scratch, "origin", &file, &[], &[]);
    // The connection to the origin may be lost once more, under a write that is not flushed.
    eventually("the origin is back", || {
        let written = wire.request(WRITE, 0, 0, CHUNK as u32, &noise(1, CHUNK as usize));
        written.is_ok() && wire.request(crate::support::wire::FLUSH, 0, 0, 0, &[]).is_ok()
    });
    drop(wire);
    let complaints = server.ends_with(1);
    let sentence = complaints.lines().last().expect("a sentence");
    let words = ["larder: a flush of the origin ", "failed earlier", "origin.nbdkit"];
    assert!(words.iter().all(|word| sentence.contains(word)), "{complaints}");
    assert!(!sentence.contains(volume.flash.to_str().expect("a plain path")), "{sentence}");
}

/// Standard error is a full pipe without a reader.
///
/// The server does not wait for it, and writes later as much as fits.
#[test]
fn a_full_standard_error_keeps_no_client_waiting() {
    if stands_in() || !have_tools("a full standard error", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("shortage-stderr");
    let nbdkit = Nbdkit::start(&scratch, "origin", &["memory", "16M"]);
    let options = ["--weu", "512K"];
    let volume = Volume::on(&scratch, "cache", scratch.path("flash"), Path::new(&nbdkit.uri()), 16 * MIB, &options);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut filler = writer.try_clone().expect("another end");
    let server = volume.serve_into(&["--origin-timeout", "1"], OwnedFd::from(writer));
    let mut wire = Wire::connect(&server.socket);
    wire.write(0, &noise(1, 64 << 10));
    wire.flush();
    // A thread fills the pipe, and waits when it is full.
    let filled = Arc::new(AtomicU64::new(0));
    let count = filled.clone();
    thread::spawn(move || {
        while filler.write_all(&[b'.'; 512]).is_ok() {
            count.fetch_add(512, Relaxed);
        }
    });
    let mut before = u64::MAX;
    eventually("the pipe is full", || std::mem::replace(&mut before, filled.load(Relaxed)) == filled.load(Relaxed));
    nbdkit.hang();
    let mut needy = Wire::connect(&server.socket);
    let waiting = thread::spawn(move || needy.read(8 * MIB, 64 << 10));
    eventually("the status tells it", || has(&volume.status(), "origin_hangs"));
    assert!(wire.read(0, 64 << 10) == noise(1, 64 << 10));
    wire.write(MIB, &noise(2, 64 << 10));
    wire.flush();
    // Long enough for a look at it.
    thread::sleep(Duration::from_secs(2));
    nbdkit.go_on();
    waiting.join().expect("an answer");
    let mut said = Vec::new();
    let mut piece = vec![0; 64 << 10];
    while !String::from_utf8_lossy(&said).contains("condition raised: origin_hangs") {
        let count = reader.read(&mut piece).expect("more");
        said.extend(piece[..count].iter().filter(|&&byte| byte != b'.'));
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
    }
    server.kill();
}
