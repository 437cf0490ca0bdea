//! The laboratory's commands, asked of `larder`: `larder-lab` beside it has them, or a sentence
//! tells.
//!
//! A script stands for `larder-lab`. Its own tests have its commands.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::support::{Scratch, begin, ends, install, stands_in};

/// Commands of the laboratory, with their names in a sentence.
const COMMANDS: [(&[&str], &str); 6] = [
    (&["sim", "run", "--trace", "t"], "sim"),
    (&["paper", "list"], "paper"),
    (&["bench", "replay", "--help"], "bench"),
    (&["trace", "info", "a trace", "--json"], "trace info"),
    (&["trace", "convert"], "trace convert"),
    (&["trace", "generate", "--list"], "trace generate"),
];

/// Returns a copy of `larder` in a folder of its own.
fn alone(scratch: &Scratch) -> PathBuf {
    let program = scratch.path("larder");
    install(Path::new(crate::larder_program()), &program);
    program
}

/// Puts a script beside it, in the place of the laboratory.
fn beside(scratch: &Scratch, script: &str) {
    let path = scratch.path("script");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    install(&path, &scratch.path("larder-lab"));
}

fn complaint(ended: &Output) -> String {
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[test]
fn the_laboratory_that_lies_beside_runs_its_commands() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("laboratory-beside");
    let program = alone(&scratch);
    beside(&scratch, r#"for word in "$@"; do echo "<$word>"; done; cat; echo complaint >&2; exit 7"#);
    for (words, _) in COMMANDS {
        let ended = ends(Command::new(&program).args(words));
        let said: String = words.iter().map(|word| format!("<{word}>\n")).collect();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), said, "{words:?}");
        assert_eq!((ended.status.code(), complaint(&ended).as_str()), (Some(7), "complaint\n"), "{words:?}");
    }
    // Another program of this name on the path is not run, and no other command is handed over.
    let ended = ends(Command::new(&program).args(["trace", "record"]).env("PATH", scratch.path("")));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}

#[test]
fn the_laboratory_takes_the_place_of_the_process() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("laboratory-place");
    let program = alone(&scratch);
    beside(&scratch, "echo $0: $$; exec sleep 60");
    let running = begin(Command::new(&program).arg0("larder").args(["sim", "designs"]));
    let (id, until) = (running.id(), std::time::Instant::now() + std::time::Duration::from_secs(30));
    // The script's last command has the process of `larder`.
    while !fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "sleep") {
        assert!(std::time::Instant::now() < until, "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    running.signal("TERM");
    let ended = running.ends("the laboratory");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(libc::SIGTERM), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stdout).ends_with(&format!("larder-lab: {id}\n")), "{ended:?}");
}

#[test]
fn without_the_laboratory_one_sentence_names_it() {
    if stands_in() {
        return;
    }
    let scratch = Scratch::new("laboratory-missing");
    let program = alone(&scratch);
    for (words, command) in COMMANDS {
        let ended = ends(Command::new(&program).args(words));
        let said = complaint(&ended);
        assert_eq!(
            (ended.status.code(), ended.stdout.len(), said.lines().count()),
            (Some(1), 0, 1),
            "{words:?}: {said}"
        );
        assert!(said.starts_with(&format!("larder: larder-lab has the command {command},")), "{words:?}: {said}");
    }
    // A folder, or a file that no one may run, is no laboratory.
    fs::write(scratch.path("larder-lab"), "").expect("a file");
    let ended = ends(Command::new(&program).args(["sim", "designs"]));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(complaint(&ended).contains("larder-lab cannot be run: permission denied"), "{ended:?}");
}
