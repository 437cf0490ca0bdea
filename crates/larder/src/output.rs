//! Writing to standard output and standard error.
//!
//! Invariants: a reader that went away (`larder dump | head`) is no failure.
//!
//! What it does not do: decide what to say.

use crate::error::{Failure, Outcome, system_reason};
use std::io::{ErrorKind, Write};

/// Writes `text` to standard output.
///
/// # Errors
/// The system's, unless nobody reads any more.
pub fn say(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format_args!("standard output cannot be written: {}", system_reason(&error))))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON object to standard output.
///
/// # Errors
/// As [`say`].
pub fn say_json(value: &impl serde::Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format_args!("the answer is no JSON: {error}")))?;
    say(&(text + "\n"))
}

/// Writes a line for people to standard error.
pub fn note(line: &str) {
    // There is nowhere to complain about a closed standard error.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Writes a complaint to standard error.
pub fn complain(sentence: &str) {
    note(&format!("larder: {sentence}"));
}

/// Pairs of a label and a value, the values aligned.
pub fn aligned(out: &mut String, rows: &[(&str, String)]) {
    /// Columns of the labels, where none is longer.
    const LABEL_COLUMNS: usize = 24;
    let columns = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0).max(LABEL_COLUMNS);
    for (label, value) in rows {
        out.push_str(&format!("  {label:<columns$}  {value}\n"));
    }
}
