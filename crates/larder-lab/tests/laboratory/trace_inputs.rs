//! Traces as inputs of any command: pipes, which are read once, and content in blocks of any size.
//!
//! `larder-trace` tests the input of each format, and its bad lines.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use crate::common::lab;
use crate::support::{Scratch, begin, ends, run, system};
use serde_json::Value;

/// Returns a command with its arguments; `IN` is the trace and `OUT` a file to write.
fn command(words: &str, input: &Path, output: &Path) -> Command {
    lab(words.split(' ').map(|word| match word {
        "IN" => input.as_os_str(),
        "OUT" => output.as_os_str(),
        word => word.as_ref(),
    }))
}

fn pipe(scratch: &Scratch) -> PathBuf {
    let path = scratch.path("pipe");
    run(system("mkfifo").arg(&path));
    path
}

/// Returns the text of a failed command on standard error.
fn complaint(out: &Output) -> String {
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn content(blocks: u64, sectors_of: impl Fn(u64) -> u64) -> String {
    (1..=blocks).map(|n| format!("{n} {n} a {} {} W 0 0 {n:016x} 9\n", n * 16, sectors_of(n))).collect()
}

/// Commands that read a trace more than once.
const REPLAYS: [&str; 7] = [
    "sim run --trace IN --design lru --flash 1M",
    "sim compare --trace IN --design lru,arc --flash 10%",
    "sim sweep --trace IN --design lru --flash 10%,20% -o OUT",
    "trace convert IN --chunk 8K --to content -o OUT",
    "trace generate restore --days-from IN -o OUT",
    "paper run nitro-fig4 --trace IN",
    "bench prepare --trace IN --origin OUT",
];

#[test]
fn commands_that_read_a_trace_again_refuse_a_pipe_at_once() {
    let scratch = Scratch::new("pipes-refused");
    let (pipe, out) = (pipe(&scratch), scratch.path("out"));
    for words in REPLAYS {
        let said = complaint(&ends(&mut command(words, &pipe, &out)));
        assert!(said.contains("pipe: expected a file, since it is read more than once"), "{words}: {said}");
        assert!(!out.exists(), "{words}");
    }
}

#[test]
fn commands_that_read_a_trace_once_take_a_pipe() {
    let scratch = Scratch::new("pipes-taken");
    let (pipe, out) = (pipe(&scratch), scratch.path("out"));
    let text = content(50_000, |_| 8);
    for words in ["trace info IN --json", "trace convert IN --to csv -o OUT"] {
        let (pipe_of_writer, text) = (pipe.clone(), text.clone());
        let writer = thread::spawn(move || fs::write(pipe_of_writer, text).expect("the command reads all"));
        run(&mut command(words, &pipe, &out));
        writer.join().expect("a writer");
    }
    let said: Value = serde_json::from_str(&run(&mut command("trace info IN --json", &out, &out))).expect("JSON");
    assert_eq!(said["write_blocks"], 50_000, "{said}");
}

#[test]
fn a_signal_ends_a_command_that_waits_for_a_pipe() {
    let scratch = Scratch::new("pipes-signal");
    let (pipe, out) = (pipe(&scratch), scratch.path("out"));
    for words in ["trace info IN", "trace convert IN --to csv -o OUT"] {
        let running = begin(&mut command(words, &pipe, &out));
        // The command has opened the pipe once this is open, and waits for data that does not come.
        let mut writer: File = OpenOptions::new().write(true).open(&pipe).expect("a reader");
        writer.write_all(b"1 1 a 0 8 W 0 0 0000").expect("a reader");
        running.signal("TERM");
        let said = complaint(&running.ends(words));
        assert!(said.contains("cannot read the trace: ended by a signal"), "{words}: {said}");
        assert!(!out.exists(), "{words}");
    }
}

/// `info` reads such a trace, and commands that need blocks of one size refuse it.
#[test]
fn content_in_blocks_of_two_sizes_is_named_by_its_line() {
    let scratch = Scratch::new("two-sizes");
    let (trace, out) = (scratch.path("trace"), scratch.path("out"));
    fs::write(&trace, content(60, |n| if n == 31 { 16 } else { 8 })).expect("a file");
    let sentence =
        "trace, line 31: expected content in blocks of 4096 bytes, as in line 1, found a block of 8192 bytes";
    for words in REPLAYS {
        let said = complaint(&ends(&mut command(words, &trace, &out)));
        assert!(said.contains(sentence), "{words}: {said}");
        assert!(!out.exists(), "{words}: nothing is left");
    }
    let looked = ends(&mut command("trace info IN --json", &trace, &out));
    let said: Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    assert_eq!((&said["content_left_out"], &said["blocks"]), (&1.into(), &61.into()), "{said}");
    let note = String::from_utf8_lossy(&looked.stderr);
    assert!(note.contains("can be neither replayed nor re-chunked") && note.contains(sentence), "{note}");
    // With the bad line passed over the rest is replayed.
    let skipping = run(&mut command("sim run --trace IN --design lru --flash 1M --skip-bad --json", &trace, &out));
    let said: Value = serde_json::from_str(&skipping).expect("JSON");
    assert_eq!((&said["requests"], &said["lines_skipped"]), (&59.into(), &1.into()), "{said}");
    // A sound trace has no such note.
    fs::write(&trace, content(60, |_| 8)).expect("a file");
    let sound = ends(&mut command("trace info IN", &trace, &out));
    assert!(sound.stderr.is_empty() && sound.status.success(), "{sound:?}");
}
