//! The common parts of the tests of `larder sim` on drives and with time: the command, its rows, a
//! trace.
//!
//! It leaves the checks of rows to the tests.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

use super::{Scratch, larder, run};

/// Returns `larder sim` with these words.
pub fn sim(words: &[&str]) -> Command {
    let mut command = larder(["sim"]);
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
    run(larder(["trace"]).args(words).args(["--dup", "0.4", "--seed", "5", "-o"]).arg(&path));
    path
}
