//! Signals to work on traces: it gives up, and leaves nothing half made.
//!
//! The tests of `larder` have the signals of all other commands, and the manual's table.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::lab;
use crate::support::{BLOCKED, MIB, Scratch, Volume, begin, blocked, parts, run};

/// A process obeys a signal within this time.
const SOON: Duration = Duration::from_secs(60);

/// Returns the signals at which work on traces gives up, as the manual's table has them.
fn giving_up() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root");
    let manual = fs::read_to_string(root.join("docs/OPERATING.md")).expect("the manual");
    let (_, table) = manual.split_once("\n| signal | ").expect("its table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let names = cells.filter(|cells| cells[2] == "gives up").flat_map(|cells| cells[0].split(", "));
    let names: Vec<String> = names.map(|name| name.trim_matches('`').to_owned()).collect();
    assert!(names.len() >= 6, "{names:?}");
    names
}

#[test]
fn a_signal_that_the_parent_had_blocked_is_obeyed() {
    let scratch = Scratch::new("signals-lab-blocked");
    let mut make = lab(["trace", "generate", "homes@nitro", "-o"]);
    let making = begin(blocked(make.arg(scratch.path("made")), BLOCKED));
    std::thread::sleep(Duration::from_millis(500));
    making.signal("TERM");
    assert_eq!(making.ends("a trace").status.code(), Some(1));
}

#[test]
fn work_on_traces_gives_up_and_leaves_no_file() {
    let scratch = Scratch::new("signals-traces");
    let (out, pipe) = (scratch.path("out"), scratch.path("pipe"));
    run(Command::new("mkfifo").arg(&pipe));
    let generate = ["trace", "generate", "zipf", "--requests", "1000000000", "-o"];
    let signals = giving_up();
    let mut commands: Vec<(&str, Vec<&str>)> =
        signals.iter().map(|signal| (signal.as_str(), generate.to_vec())).collect();
    commands.push(("HUP", vec!["trace", "convert", pipe.to_str().expect("a name"), "--to", "csv", "-o"]));
    for (signal, words) in commands {
        let running = begin(lab(&words).arg(&out));
        let until = Instant::now() + SOON;
        while parts(&scratch).is_empty() {
            assert!(Instant::now() < until, "{words:?} does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The command opened the pipe, or waits for a writer.
        let writer = words.contains(&"convert").then(|| fs::File::options().write(true).open(&pipe));
        running.signal(signal);
        let ended = running.ends(signal);
        drop(writer);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{signal} {words:?}: {said}");
        assert!(said.contains("ended by a signal"), "{signal} {words:?}: {said}");
        assert!(!out.exists() && parts(&scratch).is_empty(), "{signal} {words:?}");
    }
}

/// All work on a trace. The trace is so long that the signal comes first.
const WORK: [&str; 9] = [
    "trace info IN",
    "trace convert IN --chunk 8K --to content -o OUT",
    "trace generate restore --days-from IN -o OUT",
    "sim run --trace IN --design lru --flash 1M",
    "sim compare --trace IN --design lru,arc --flash 10% --csv OUT",
    "sim sweep --trace IN --design lru --flash 10%,20% -o OUT",
    "paper run nitro-fig4 --trace IN --csv OUT",
    "bench prepare --trace IN --origin OUT",
    "bench replay --trace IN --flash FLASH",
];

/// Signals for all work, with their numbers.
const SIGNALS: [(&str, i32); 3] = [("HUP", libc::SIGHUP), ("INT", libc::SIGINT), ("TERM", libc::SIGTERM)];

#[test]
fn all_work_on_traces_gives_up_at_each_of_its_signals() {
    let scratch = Scratch::new("signals-work");
    let volume = Volume::create(&scratch, 32 * MIB, 16 * MIB, &[]);
    let (trace, out) = (scratch.path("trace"), scratch.path("out"));
    let line = |n: u64| format!("{n} {n} a {} 8 W 0 0 {n:016x} 9\n", n % 1000 * 16);
    fs::write(&trace, (1..=1_000_000).map(line).collect::<String>()).expect("a trace");
    for (words, (signal, number)) in WORK.iter().zip(SIGNALS.into_iter().cycle()) {
        let running = begin(&mut lab(words.split(' ').map(|word| match word {
            "IN" => trace.as_os_str(),
            "OUT" => out.as_os_str(),
            "FLASH" => volume.flash.as_os_str(),
            word => word.as_ref(),
        })));
        let until = Instant::now() + SOON;
        while !catches(running.id(), number) {
            assert!(Instant::now() < until, "{words} does not begin");
        }
        std::thread::sleep(Duration::from_millis(50));
        running.signal(signal);
        let ended = running.ends(words);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{signal}, {words}: {}: {said}", ended.status);
        assert!(said.contains("ended by a signal"), "{signal}, {words}: {said}");
        assert!(!out.exists() && parts(&scratch).is_empty(), "{signal}, {words}");
    }
    volume.verify();
}

/// Returns true if a process has a handler for a signal.
fn catches(id: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    caught.is_some_and(|caught| caught & (1 << (signal - 1)) != 0)
}

/// The second signal, or one that the work does not notice, removes the file, too.
#[test]
fn work_on_traces_that_is_killed_by_a_second_signal_leaves_no_file() {
    let scratch = Scratch::new("signals-twice");
    let out = scratch.path("out");
    let running = begin(lab(["trace", "generate", "zipf", "--requests", "1000000000", "-o"]).arg(&out));
    let until = Instant::now() + SOON;
    while parts(&scratch).is_empty() {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.signal("INT");
    running.signal("INT");
    let ended = running.ends("it");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(!out.exists() && parts(&scratch).is_empty());
}
