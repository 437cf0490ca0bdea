//! The common parts of the tests of `larder-lab`: the command, the rows of `sim`, a trace.
//!
//! It leaves the checks of rows to the tests.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{Scratch, run};

/// Returns the `larder-lab` command line under test.
///
/// A run of the tests under `nohup` ignores SIGHUP, which a child would go on to ignore.
pub fn lab<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder-lab"));
    command.args(args).stdin(Stdio::null());
    let heed = || {
        // SAFETY: the call may be made after a fork.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(heed) };
    command
}

/// Returns `larder-lab sim` with these words.
pub fn sim(words: &[&str]) -> Command {
    let mut command = lab(["sim"]);
    command.args(words);
    command
}

/// Returns the rows of a command that ends well.
pub fn list(command: &mut Command) -> Vec<Value> {
    let said = run(command.arg("--json"));
    serde_json::from_str(&said).unwrap_or_else(|err| panic!("no list: {err}\n{said}"))
}

/// Returns a number of a row.
pub fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no number {key}: {row}"))
}

/// Writes a trace with content and without times.
///
/// It has so many requests of 8 KiB over a working set of this size.
pub fn zipf(scratch: &Scratch, requests: &str, working_set: &str) -> PathBuf {
    let path = scratch.path("zipf");
    let words = ["generate", "zipf", "--requests", requests, "--working-set", working_set, "--chunk", "8K"];
    run(lab(["trace"]).args(words).args(["--dup", "0.4", "--seed", "5", "-o"]).arg(&path));
    path
}
