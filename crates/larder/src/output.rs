//! Writes to standard output and standard error.
//!
//! Invariants: a reader that went away (`larder dump | head`) is no failure.
//!
//! It leaves the text to its callers.

use crate::error::{Failure, Outcome, system_reason};
use std::{
    borrow::Cow,
    io::{ErrorKind, Write},
    sync::{OnceLock, mpsc::channel},
    thread::Builder,
    time::Duration,
};

/// Most bytes of a line for people: a pipe that can be written takes as many at once (`PIPE_BUF`).
const LINE_BYTES_MAX: usize = 4096;
/// Longest time that a line for people waits for a reader that takes nothing.
const NOTE_TIME_MAX: Duration = Duration::from_secs(1);

/// Writes `text` to standard output.
///
/// # Errors
/// The system's, unless the reader went away.
pub fn say(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format_args!("standard output cannot be written: {}", system_reason(&error))))
        }
        _ => Ok(()),
    }
}

/// Writes `text` to standard output. A reader that takes nothing is waited for at most
/// [`NOTE_TIME_MAX`]; a thread goes on with the write.
///
/// # Errors
/// As [`say`]; the system refuses a thread.
pub fn say_in_time(text: String) -> Outcome {
    let (tell, told) = channel();
    let write = move || {
        // The end of a process waits for no thread.
        let _ = tell.send(say(&text));
    };
    Builder::new().name("stdout".into()).spawn(write).map_err(|error| {
        Failure::failed(format_args!("the system refuses to start a thread: {}", system_reason(&error)))
    })?;
    told.recv_timeout(NOTE_TIME_MAX).unwrap_or(Ok(()))
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
///
/// It drops a line that is not taken for [`NOTE_TIME_MAX`]: a server must go on without a reader of
/// its log. The middle of a very long line is left out.
pub fn note(line: &str) {
    let line = shortened(line);
    let mut polled = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let millis = i32::try_from(NOTE_TIME_MAX.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, which outlives the call.
    if unsafe { libc::poll(&raw mut polled, 1, millis) } == 0 {
        return;
    }
    // A closed standard error has no place for a complaint.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Returns a line of at most [`LINE_BYTES_MAX`] with its end.
fn shortened(line: &str) -> Cow<'_, str> {
    const OUT: &str = " [...] ";
    if line.len() < LINE_BYTES_MAX {
        return line.into();
    }
    let each = (LINE_BYTES_MAX - 1 - OUT.len()) / 2;
    let head = (0..=each).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
    let tail = (line.len() - each..line.len()).find(|&at| line.is_char_boundary(at)).unwrap_or(line.len());
    format!("{}{OUT}{}", &line[..head], &line[tail..]).into()
}

/// The name of this program, before each complaint.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Sets the name of this program; the first name stays.
pub fn name_program(name: &'static str) {
    PROGRAM.get_or_init(|| name);
}

/// Writes a complaint to standard error.
pub fn complain(sentence: &str) {
    note(&format!("{}: {sentence}", PROGRAM.get_or_init(|| "larder")));
}

/// Writes pairs of a label and a value, the values aligned.
pub fn aligned(out: &mut String, rows: &[(&str, String)]) {
    /// Columns of the labels, if none is longer.
    const LABEL_COLUMNS: usize = 24;
    let columns = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0).max(LABEL_COLUMNS);
    for (label, value) in rows {
        out.push_str(&format!("  {label:<columns$}  {value}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_keeps_both_ends_and_fits_a_pipe() {
        assert_eq!(shortened("short"), "short");
        for fill in ["x", "\u{20ac}"] {
            let line = format!("begin{}end", fill.repeat(5000));
            let short = shortened(&line);
            assert!(short.len() < LINE_BYTES_MAX && short.len() > LINE_BYTES_MAX - 64, "{}", short.len());
            assert!(short.starts_with("begin") && short.ends_with("end") && short.contains("[...]"));
        }
    }
}
