//! The effect of each signal on each long command, in a table that the manual has, too.
//!
//! Servers end in order, with all acknowledged data. No other signal kills a server, except those
//! that ask for it or tell of a crash.
//!
//! `kill` sends the signals to the real program. A limit of the shell on the size of files sends
//! one, too. The tests of `larder-lab` have work on traces.

use crate::support::{
    BLOCKED, FuseFile, MIB, Scratch, Server, Volume, begin, blocked, have_mounts, have_tools, heeding, larder,
    nbdkit::Nbdkit,
    parts, recorded_requests, run,
    wire::{FLAG_FUA, READ, WRITE, Wire},
};
use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

const CHUNK: usize = 8192;
/// Writes that are acknowledged and not flushed when a signal comes.
const WRITES: u64 = 100;
/// A process obeys a signal within this time.
const SOON: Duration = Duration::from_secs(60);

/// The effect of a signal on a command, in the words of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It ends in order, with exit code 0.
    Ends,
    /// It ends in order. With an option file it reads the file again.
    EndsOrReloads,
    /// It gives up, with exit code 1, and leaves nothing half made.
    GivesUp,
    /// It goes on to its end.
    GoesOn,
    /// No effect.
    Nothing,
    /// It stops until CONT, and then goes on.
    Stops,
    /// The signal kills it, in the state that a crash leaves.
    Dies,
    /// The first signal has no effect, the second one kills it.
    DiesLate,
}
use Effect::*;

impl Effect {
    fn words(self) -> &'static str {
        match self {
            Ends => "ends in order",
            EndsOrReloads => "ends in order; with `--config` reads that file again",
            GivesUp => "gives up",
            GoesOn => "goes on to its end",
            Nothing => "nothing",
            Stops => "stops until CONT",
            Dies => "dies",
            DiesLate => "dies at the second",
        }
    }
}

/// Signals with the same effects.
///
/// The columns are a server, work on traces, `create` while it writes, and the rest.
const TABLE: &[(&[&str], [Effect; 4])] = &[
    (&["HUP"], [EndsOrReloads, GivesUp, GoesOn, Dies]),
    (&["INT", "QUIT", "TERM"], [Ends, GivesUp, GoesOn, Dies]),
    (&["PWR", "XCPU"], [Ends, GivesUp, GoesOn, Dies]),
    (&["USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "STKFLT", "RTMIN", "RTMAX"], [Nothing, Nothing, Nothing, Dies]),
    (&["PIPE", "XFSZ", "CHLD", "CONT", "URG", "WINCH"], [Nothing, Nothing, Nothing, Nothing]),
    (&["TSTP", "TTIN", "TTOU", "STOP"], [Stops, Stops, Stops, Stops]),
    (&["ABRT", "FPE", "ILL", "KILL", "SYS", "TRAP"], [Dies, Dies, Dies, Dies]),
    (&["BUS", "SEGV"], [DiesLate, DiesLate, DiesLate, DiesLate]),
];

/// Returns the signals with this effect on the commands of this column.
fn with(column: usize, effect: Effect) -> impl Iterator<Item = &'static str> {
    let rows = TABLE.iter().filter(move |(_, effects)| effects[column] == effect);
    rows.flat_map(|(names, _)| names.iter().copied())
}

#[test]
fn the_manual_has_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root");
    let manual = fs::read_to_string(root.join("docs/OPERATING.md")).expect("the manual");
    let (_, table) = manual.split_once("\n| signal | ").expect("its table");
    let told: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let made: Vec<String> = TABLE
        .iter()
        .map(|(names, effects)| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {} | {} |", names.join(", "), effects.map(Effect::words).join(" | "))
        })
        .collect();
    assert_eq!(told, made);
}

/// Every signal of this system is in the table, or cannot be sent.
#[test]
fn the_table_has_every_signal() {
    let listed = run(Command::new("bash").args(["-c", "kill -l"]));
    let mut looked = 0;
    for name in listed.split_whitespace().filter_map(|word| word.strip_prefix("SIG")) {
        looked += 1;
        // The signals between RTMIN and RTMAX have numbers from either end.
        let is_one_of_many = name.starts_with("RTM");
        let is_told = TABLE.iter().any(|(names, _)| names.contains(&name));
        assert!(is_told || is_one_of_many, "{name} is not in the table");
    }
    assert!(looked > 60, "{listed}");
}

fn chunk(n: u64, of: u64) -> Vec<u8> {
    (0..CHUNK as u64).map(|at| (n * 31 + of * 17 + at * 7 + at / 251) as u8).collect()
}

/// Writes all chunks and flushes none.
fn write_all(socket: &Path, of: u64) -> Wire {
    let mut client = Wire::connect(socket);
    (0..WRITES).for_each(|n| client.write(n * CHUNK as u64, &chunk(n, of)));
    client
}

fn assert_all(socket: &Path, of: u64, why: &str) {
    let mut client = Wire::connect(socket);
    let lost = (0..WRITES).filter(|&n| client.read(n * CHUNK as u64, CHUNK) != chunk(n, of)).count();
    assert_eq!(lost, 0, "{why}: of {WRITES} writes that were acknowledged");
}

fn volume(name: &str) -> (Scratch, Volume) {
    let scratch = Scratch::new(name);
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    (scratch, volume)
}

#[test]
fn a_signal_that_the_parent_had_blocked_is_obeyed() {
    let (scratch, volume) = volume("signals-blocked");
    for (of, signal) in (1..).zip(with(0, Ends).chain(with(0, EndsOrReloads))) {
        let server = volume.serve_as(blocked(&mut volume.serve_command(&[]), BLOCKED));
        let client = write_all(volume.socket(), of);
        server.signal(signal);
        let (status, said) = server.ended(SOON);
        assert_eq!(status.code(), Some(0), "{signal}: {said}");
        drop(client);
    }
    let mut bare = larder(["trace", "record", "--origin"]);
    let address = format!("unix:{}", volume.socket().display());
    bare.arg(&volume.origin).args(["--nbd", &address, "-o"]).arg(scratch.path("trace"));
    let server = volume.serve_as(blocked(&mut bare, BLOCKED));
    server.signal("TERM");
    assert_eq!(server.ended(SOON).0.code(), Some(0));
    // This command leaves the signal to the system. It waits for its server, which is stopped.
    let server = volume.serve();
    server.signal("STOP");
    let waiting = begin(blocked(larder(["status", "--flash"]).arg(&volume.flash), BLOCKED));
    std::thread::sleep(Duration::from_millis(500));
    waiting.signal("TERM");
    assert_eq!(waiting.ends("the status").status.signal(), Some(libc::SIGTERM));
    server.signal("CONT");
    server.stop();
}

#[test]
fn a_server_that_is_told_to_end_loses_nothing() {
    let (_scratch, volume) = volume("signals-ends");
    for (of, signal) in (1..).zip(with(0, Ends).chain(with(0, EndsOrReloads))) {
        let server = volume.serve();
        let client = write_all(volume.socket(), of);
        server.signal(signal);
        let (status, said) = server.ended(SOON);
        assert_eq!(status.code(), Some(0), "{signal}: {said}");
        drop(client);
        let server = volume.serve();
        assert_eq!(volume.status()["recovery"]["clean_shutdown"], true, "{signal}");
        assert_all(volume.socket(), of, signal);
        server.stop();
    }
}

#[test]
fn a_server_goes_on_after_signals_that_mean_nothing_to_it_and_after_it_was_stopped() {
    let (_scratch, volume) = volume("signals-nothing");
    // In an orphaned group of processes the kernel drops TSTP, TTIN and TTOU (setpgid(2)). The
    // tests may run in one. A group of its own has this process as its parent.
    let server = volume.serve_as(volume.serve_command(&[]).process_group(0));
    let mut client = write_all(volume.socket(), 1);
    for signal in with(0, Nothing) {
        server.signal(match signal {
            // `kill` has names for none of these.
            "RTMIN" => "34",
            "RTMAX" => "64",
            named => named,
        });
        client.write(0, &chunk(0, 1));
    }
    for signal in with(0, Stops) {
        server.signal(signal);
        assert!(becomes(server.id(), 'T'), "{signal} does not stop it");
        client.begin(READ, 0, 0, CHUNK as u32, &[]);
        std::thread::sleep(Duration::from_millis(100));
        server.signal("CONT");
        assert_eq!(client.answer(0, CHUNK).expect("an answer"), chunk(0, 1), "{signal}");
    }
    // Waiting for the next signal takes no processor.
    let before = ticks(server.id());
    std::thread::sleep(Duration::from_millis(500));
    let spent = ticks(server.id()) - before;
    assert!(spent < 25, "{spent} hundredths of a second in half a second without a request");
    // The signal to end comes while the server is stopped.
    server.signal("STOP");
    assert!(becomes(server.id(), 'T'));
    server.signal("TERM");
    server.signal("CONT");
    let (status, said) = server.ended(SOON);
    assert_eq!(status.code(), Some(0), "{said}");
    drop(client);
    let server = volume.serve();
    assert_all(volume.socket(), 1, "after all of them");
    server.stop();
}

/// The time for which a process is stopped does not count against the deadline of its end.
#[test]
fn an_end_that_is_stopped_for_longer_than_its_deadline_goes_on() {
    if !have_tools("signals", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("signals-stopped");
    let file = scratch.file("origin", 16 * MIB);
    let origin = Nbdkit::over(&scratch, "nbdkit", &file, &[], &[]);
    let flash = scratch.path("flash");
    run(larder(["create", "--size", "32M", "--origin", &origin.uri(), "--flash"]).arg(&flash));
    let volume = Volume::made(&scratch, "volume", flash, &file);
    let server = volume.serve_with(&["--end-timeout", "3"]);
    let mut client = write_all(volume.socket(), 1);
    origin.hang();
    client.begin(READ, 0, 8 * MIB, CHUNK as u32, &[]);
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(300));
    server.signal("STOP");
    std::thread::sleep(Duration::from_secs(4));
    origin.go_on();
    server.signal("CONT");
    let (status, said) = server.ended(SOON);
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn what_kills_a_server_leaves_what_a_crash_does() {
    let (_scratch, volume) = volume("signals-dies");
    for (of, (signal, times)) in
        (1..).zip(with(0, Dies).map(|name| (name, 1)).chain(with(0, DiesLate).map(|name| (name, 2))))
    {
        let server = begin_without_core(&volume);
        let mut client = write_all(volume.socket(), of);
        client.flush();
        for time in 0..times {
            server.signal(signal);
            if time + 1 < times {
                client.write(0, &chunk(0, of));
                client.flush();
            }
        }
        let (status, said) = server.ended(SOON);
        assert!(status.signal().is_some(), "{signal}: {status}: {said}");
        let server = volume.serve();
        assert_eq!(volume.status()["recovery"]["clean_shutdown"], false, "{signal}");
        assert_all(volume.socket(), of, signal);
        server.stop();
    }
}

/// Starts a server that leaves no core file behind.
fn begin_without_core(volume: &Volume) -> Server {
    let mut serve = heeding("prlimit");
    serve.args(["--core=0", env!("CARGO_BIN_EXE_larder"), "serve", "--flash"]).arg(&volume.flash);
    serve.args(["--nbd", &format!("unix:{}", volume.socket().display())]);
    volume.serve_as(&mut serve)
}

/// Returns the processor time that a process has taken, in hundredths of a second.
fn ticks(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("a process of ours");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    // Behind the name, user and system time are the 12th and the 13th.
    [11, 12].map(|at| fields[at].parse::<u64>().expect("a number")).iter().sum()
}

/// Returns true if a process comes to this state soon.
fn becomes(id: u32, state: char) -> bool {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(state)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_hangup_that_was_to_be_ignored_is() {
    let (_scratch, volume) = volume("signals-nohup");
    let mut serve = heeding("nohup");
    serve.args([env!("CARGO_BIN_EXE_larder"), "serve", "--flash"]).arg(&volume.flash);
    serve.args(["--nbd", &format!("unix:{}", volume.socket().display())]);
    let mut server = volume.serve_as(&mut serve);
    let mut client = write_all(volume.socket(), 1);
    server.signal("HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.alive(), "{}", server.complaints());
    client.write(0, &chunk(0, 1));
    server.stop();
}

/// A flash file that may not grow (`ulimit -f`) fails, and leaves the server alive.
#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_flash() {
    let (_scratch, volume) = volume("signals-fsize");
    let mut serve = heeding("prlimit");
    serve.args(["--fsize=4194304", env!("CARGO_BIN_EXE_larder"), "serve", "--end-timeout", "5", "--flash"]);
    serve.arg(&volume.flash).args(["--nbd", &format!("unix:{}", volume.socket().display())]);
    let server = volume.serve_as(&mut serve);
    let mut client = Wire::connect(volume.socket());
    client.write(0, &incompressible(0));
    client.flush();
    // Each write is durable. The client waits for no answer, because none may come while the flash
    // has no room.
    let writer = std::thread::spawn(move || {
        for n in 1..1000 {
            client.begin(WRITE, FLAG_FUA, n * CHUNK as u64, CHUNK as u32, &incompressible(n));
        }
        client
    });
    let until = Instant::now() + SOON;
    let mut told = serde_json::Value::Null;
    while !told.to_string().contains("flash_") {
        assert!(Instant::now() < until, "the flash has 32 MiB, and may have 4: {told}");
        told = volume.status()["conditions"].take();
    }
    server.signal("TERM");
    let (status, said) = server.ended(SOON);
    assert_eq!(status.signal(), None, "{said}");
    // The server may have cut the client off in the middle.
    drop(writer.join());
    let server = volume.serve();
    assert_eq!(Wire::connect(volume.socket()).read(0, CHUNK), incompressible(0), "what was durable is there");
    server.stop();
}

/// Returns bytes that do not compress, and so take as much of the flash.
fn incompressible(n: u64) -> Vec<u8> {
    let mut state = n + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..CHUNK).map(|_| next()).collect()
}

#[test]
fn a_recording_that_is_told_to_end_is_whole() {
    let scratch = Scratch::new("signals-record");
    let volume = Volume::bare(&scratch, "disk", &scratch.file("origin", 16 * MIB));
    for signal in with(0, Ends).chain(with(0, EndsOrReloads)) {
        let trace = scratch.path(&format!("{signal}.trace"));
        let server = volume.record(&trace, &[]);
        let client = write_all(volume.socket(), 1);
        server.signal(signal);
        let (status, said) = server.ended(SOON);
        assert_eq!(status.code(), Some(0), "{signal}: {said}");
        drop(client);
        assert_eq!(recorded_requests(&trace), WRITES, "{signal}");
    }
    assert_eq!(parts(&scratch), Vec::<PathBuf>::new());
}

/// The flash is a file of nbdfuse over a slow server, so that signals come while `create` writes.
#[test]
fn a_flash_is_made_whole_whatever_signal_comes_meanwhile() {
    if !have_tools("signals", &["nbdkit", "nbdfuse"]) || !have_mounts("signals") {
        return;
    }
    let scratch = Scratch::new("signals-create");
    let (file, origin) = (scratch.file("flash", 16 * MIB), scratch.file("origin", 16 * MIB));
    let below = Nbdkit::over(&scratch, "nbdkit", &file, &["delay"], &["wdelay=100ms", "rdelay=50ms"]);
    let flash = FuseFile::mount(&scratch, "fuse", &below.uri());
    let running = begin(larder(["create", "--force", "--flash"]).arg(flash.file()).arg("--origin").arg(&origin));
    // The command has begun to write.
    let until = Instant::now() + SOON;
    while fs::read(&file).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
        assert!(Instant::now() < until, "it does not begin");
    }
    with(2, GoesOn).filter(|signal| !["QUIT", "TERM"].contains(signal)).for_each(|signal| running.signal(signal));
    let ended = running.ends("create");
    assert!(ended.status.success(), "{ended:?}");
    // A command that only reads, or repairs a whole flash, dies of the signal and leaves the flash
    // as it was.
    for (words, signal) in [(&["verify"][..], "HUP"), (&["verify", "--repair"], "INT"), (&["verify"], "TERM")] {
        let running = begin(larder(words).arg("--flash").arg(flash.file()));
        std::thread::sleep(Duration::from_millis(200));
        running.signal(signal);
        let status = running.ends(signal).status;
        assert_eq!(status.signal(), Some(number(signal)), "{words:?}: {status}");
    }
    run(larder(["verify", "--flash"]).arg(flash.file()));
}

/// The signal kills a command that waits for an origin, and the cache is as a crash leaves it.
#[test]
fn commands_on_a_cache_without_a_server_die_and_leave_it_whole() {
    if !have_tools("signals", &["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new("signals-dies-cache");
    let file = scratch.file("origin", 16 * MIB);
    let origin = Nbdkit::over(&scratch, "nbdkit", &file, &[], &[]);
    let flash = scratch.path("flash");
    run(larder(["create", "--size", "32M", "--origin", &origin.uri(), "--flash"]).arg(&flash));
    let volume = Volume::made(&scratch, "volume", flash.clone(), &file);
    let server = volume.serve_with(&["--dirty-low", "70", "--dirty-high", "70"]);
    drop(write_all(volume.socket(), 1));
    server.stop();
    let commands = [vec!["flush"], vec!["set", "--mode", "write-through"], vec!["detach"]];
    for (words, signal) in commands.iter().zip(["HUP", "INT", "TERM"]) {
        let mut command = larder(words);
        command.arg("--flash").arg(&flash);
        let running = begin(&mut command);
        // The command is connected to its origin once it holds the flash; then the origin hangs.
        let until = Instant::now() + SOON;
        while !is_locked(&flash) {
            assert!(Instant::now() < until, "{words:?} does not begin");
        }
        origin.hang();
        std::thread::sleep(Duration::from_millis(200));
        running.signal(signal);
        let ended: ExitStatus = running.ends(signal).status;
        origin.go_on();
        // The command may have ended before the origin hung.
        assert!(ended.signal().is_some() || ended.success(), "{words:?}: {ended}");
        assert!(ended.success() || ended.signal() == Some(number(signal)), "{words:?}: {ended}");
        if words[0] == "detach" && ended.success() {
            return;
        }
        run(larder(["verify", "--flash"]).arg(&flash));
        let server = volume.serve_with(&["--dirty-low", "70", "--dirty-high", "70"]);
        assert_all(volume.socket(), 1, words[0]);
        drop(write_all(volume.socket(), 1));
        server.stop();
        run(larder(["set", "--mode", "write-back", "--flash"]).arg(&flash));
    }
}

/// Returns true if another process holds a file.
fn is_locked(path: &Path) -> bool {
    fs::File::open(path).expect("a file").try_lock().is_err()
}

fn number(signal: &str) -> i32 {
    match signal {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        _ => libc::SIGTERM,
    }
}
