//! Lines on standard error: one for each condition that is raised, one for each that is over.
//!
//! Invariants: a thread that reports a condition goes on at once, for a thread of its own writes
//! the lines. When standard error takes none (a full pipe without a reader), lines beyond
//! [`LINES_MAX`] are dropped. The next line that is written counts them.
//!
//! It leaves finding faults to the engine and the servers.

use crate::error::system_reason;
use larder_engine::{
    advice::advice,
    conditions::{Condition, Severity},
    tell::{ConditionListener, Listener},
};
use parking_lot::Mutex;
use std::{
    fs::File,
    io::Write,
    os::fd::AsFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::*},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

/// Lines that wait to be written.
const LINES_MAX: usize = 256;
/// Longest time that the end of the process waits for lines to be written.
const END_WAIT: Duration = Duration::from_millis(500);

/// Returns a condition that this process itself has found.
type Source = dyn Fn() -> Option<Condition> + Send + Sync;

/// The lines of this process.
pub struct Lines {
    to_write: SyncSender<QueuedLine>,
    dropped: AtomicU64,
    sources: Mutex<Vec<Arc<Source>>>,
    /// The least severity that is written.
    least: Severity,
}

enum QueuedLine {
    Line(String),
    /// The end waits until all lines before this are written.
    End(SyncSender<()>),
}

static LINES: OnceLock<Option<Arc<Lines>>> = OnceLock::new();

/// Returns the lines of a server: of all conditions.
pub fn of_server() -> Listener {
    begin(Severity::Notice)
}

/// Returns the lines of a command that ends by itself: of the conditions that delay or fail it.
pub fn of_command() -> Listener {
    begin(Severity::Warning)
}

fn begin(least: Severity) -> Listener {
    let lines = LINES.get_or_init(|| Lines::start(least));
    Listener(lines.clone().map(|lines| lines as Arc<dyn ConditionListener>))
}

/// Adds a source that is looked at now and then.
pub fn watch(source: impl Fn() -> Option<Condition> + Send + Sync + 'static) {
    if let Some(Some(lines)) = LINES.get() {
        lines.sources.lock().push(Arc::new(source));
    }
}

/// Returns the conditions that this process itself has found.
pub fn own_conditions() -> Vec<Condition> {
    LINES.get().and_then(Option::as_ref).map_or_else(Vec::new, |lines| lines.more())
}

/// Waits until the lines so far are written, if standard error takes them.
pub fn end() {
    let Some(Some(lines)) = LINES.get() else { return };
    let (written, over) = sync_channel(1);
    if lines.to_write.try_send(QueuedLine::End(written)).is_ok() {
        // A reader that is slower may lose the last lines.
        let _ = over.recv_timeout(END_WAIT);
    }
}

impl Lines {
    /// Starts the thread; `None` if the system refuses it: then the status alone shows conditions.
    fn start(least: Severity) -> Option<Arc<Lines>> {
        let (to_write, entries) = sync_channel(LINES_MAX);
        // Past the library's handle: a write that waits would hold its lock.
        let out = File::from(std::io::stderr().as_fd().try_clone_to_owned().ok()?);
        let lines = Arc::new(Lines { to_write, dropped: AtomicU64::new(0), sources: Mutex::default(), least });
        let weak = Arc::downgrade(&lines);
        let thread = std::thread::Builder::new().name("conditions".into());
        let dropped = move || weak.upgrade().map_or(0, |lines| lines.dropped.swap(0, AcqRel));
        thread.spawn(move || write(&entries, out, &dropped)).ok()?;
        Some(lines)
    }

    fn tell(&self, condition: &Condition, line: impl FnOnce() -> String) {
        if condition.severity >= self.least && self.to_write.try_send(QueuedLine::Line(line())).is_err() {
            self.dropped.fetch_add(1, AcqRel);
        }
    }
}

fn write(entries: &Receiver<QueuedLine>, mut out: File, dropped: &dyn Fn() -> u64) {
    while let Ok(entry) = entries.recv() {
        match entry {
            QueuedLine::Line(mut line) => {
                if let missing @ 1.. = dropped() {
                    line = format!("{missing} lines could not be written\n{line}");
                }
                // In one piece, so that no other line comes between. A closed standard error has no
                // place for a complaint.
                let _ = out.write_all(line.as_bytes());
            }
            QueuedLine::End(written) => drop(written.send(())),
        }
    }
}

impl ConditionListener for Lines {
    fn raised(&self, condition: &Condition) {
        self.tell(condition, || raised(condition));
    }

    fn cleared(&self, condition: &Condition) {
        self.tell(condition, || format!("condition cleared: {}\n", condition.name));
    }

    fn more(&self) -> Vec<Condition> {
        let sources = self.sources.lock().clone();
        let mut found: Vec<Condition> = Vec::new();
        for condition in sources.iter().filter_map(|source| source()) {
            if found.iter().all(|other| other.name != condition.name) {
                found.push(condition);
            }
        }
        found
    }
}

fn raised(condition: &Condition) -> String {
    let Condition { name, severity, what } = condition;
    let severity = match severity {
        Severity::Notice => "notice",
        Severity::Warning => "warning",
        Severity::Degraded => "degraded",
    };
    let what: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("condition raised: {name} ({severity}): {what}; what to do: {}\n", advice(name))
}

/// Returns the condition that clients are not let in: the system has no descriptor for a
/// connection.
pub fn too_many_files(whom: &str, error: &std::io::Error) -> Condition {
    let what =
        format!("{whom} that connect are not let in: {}; connections that there are go on", system_reason(error));
    Condition { name: "too_many_files", severity: Severity::Degraded, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn condition(what: &str) -> Condition {
        Condition { name: "origin_gone", severity: Severity::Degraded, what: what.into() }
    }

    fn lines(to_write: SyncSender<QueuedLine>) -> Lines {
        Lines { to_write, dropped: AtomicU64::new(0), sources: Mutex::default(), least: Severity::Warning }
    }

    #[test]
    fn a_line_says_what_it_means_and_what_to_do() {
        let line = raised(&condition("the origin\nfails"));
        assert_eq!(
            line,
            "condition raised: origin_gone (degraded): the origin fails; what to do: bring the origin back: it is \
             connected to again by itself\n"
        );
    }

    #[test]
    fn a_reader_that_is_slow_keeps_no_writer_waiting_and_learns_what_it_missed() {
        let (to_write, entries) = sync_channel(4);
        let lines = Arc::new(lines(to_write));
        for _ in 0..10 {
            lines.raised(&condition("a"));
            lines.cleared(&condition("a"));
        }
        let notice = Condition { severity: Severity::Notice, ..condition("b") };
        lines.raised(&notice);
        assert_eq!(lines.dropped.load(Acquire), 16);
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let dropped = lines.clone();
        let write = std::thread::spawn(move || {
            write(&entries, File::from(std::os::fd::OwnedFd::from(writer)), &|| dropped.dropped.swap(0, AcqRel));
        });
        let (written, over) = sync_channel(1);
        lines.to_write.send(QueuedLine::End(written)).expect("the thread lives");
        over.recv_timeout(Duration::from_secs(10)).expect("all was written");
        let mut said = vec![0; 4096];
        let count = reader.read(&mut said).expect("what was written");
        let said = String::from_utf8_lossy(&said[..count]).into_owned();
        assert!(said.starts_with("16 lines could not be written\ncondition raised"), "{said}");
        assert_eq!(said.lines().count(), 5, "{said}");
        drop(lines);
        drop(write);
    }
}
