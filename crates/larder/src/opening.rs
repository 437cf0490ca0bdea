//! Opens the cache of `larder serve`, with a bar of the recovery's progress and a line with its
//! result.
//!
//! It leaves opening devices to `volume`.

use crate::{
    error::{Failure, Outcome},
    output,
    size::{count, human},
};
use indicatif::{ProgressBar, ProgressStyle};
use larder_device::{BlockDevice, Runtime, driver::block_on, threads::ThreadRuntime};
use larder_engine::{Cache, Tuning, config::OriginChanged, recover::RecoveryReport, walk::Progress};
use std::{
    convert::Infallible,
    io::IsTerminal,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant, SystemTime},
};

/// Interval at which the bar is drawn again.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Opens the cache, and prints the result of the recovery.
///
/// # Errors
/// A sentence that names the flash.
pub fn open(
    path: &Path,
    flash: Arc<dyn BlockDevice>,
    origin: Arc<dyn BlockDevice>,
    runtime: &Arc<ThreadRuntime>,
    tuning: Tuning,
) -> Outcome<Arc<Cache>> {
    let began = Instant::now();
    let progress = Arc::new(Progress::default());
    let is_to_drop = tuning.origin_changed == OriginChanged::Drop;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let tuning = Tuning { progress: Some(progress.clone()), wall_seconds: since_1970.as_secs(), ..tuning };
    let opened = std::thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<Infallible>();
        if std::io::stderr().is_terminal() {
            scope.spawn(move || show(&progress, &is_over));
        }
        let opened = block_on(Cache::open(flash, origin, runtime.clone() as Arc<dyn Runtime>, tuning));
        drop(over);
        opened
    });
    let cache = opened.map_err(|error| Failure::engine(path, &error))?;
    output::note(&recovery_line(cache.recovery(), began.elapsed()));
    let changed = cache.status().conditions.into_iter().find(|condition| condition.name == "origin_changed");
    match changed {
        Some(condition) => output::note(&condition.what),
        None if is_to_drop && cache.recovery().origin_is_unchanged => {
            output::note("no other program wrote to the origin since this cache ended, by its mark: its copies stay");
        }
        None => {}
    }
    Ok(Arc::new(cache))
}

/// Shows a bar of a recovery's progress, until the recovery is over.
fn show(progress: &Progress, is_over: &mpsc::Receiver<Infallible>) {
    let bar = ProgressBar::no_length().with_message("reading the checkpoint and the metadata log");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {bytes} of {total_bytes} ({elapsed})") {
        bar.set_style(style);
    }
    while is_over.recv_timeout(SHOWN_EVERY) == Err(RecvTimeoutError::Timeout) {
        bar.set_length(progress.bytes_to_read());
        bar.set_position(progress.bytes_read());
    }
    bar.finish_and_clear();
}

fn recovery_line(report: &RecoveryReport, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    if report.checkpoint_mappings + report.log_entries == 0 {
        return format!("opened in {seconds:.1} s: the cache is empty");
    }
    let end = if report.clean_shutdown { "an orderly end" } else { "a crash" };
    format!(
        "recovered after {end} in {seconds:.1} s: {} mappings of the checkpoint, {} log entries, {} read",
        count(report.checkpoint_mappings),
        count(report.log_entries),
        human(report.checkpoint_bytes + report.log_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_told_in_a_line() {
        let second = Duration::from_secs(1);
        let empty = RecoveryReport::default();
        assert_eq!(recovery_line(&empty, second), "opened in 1.0 s: the cache is empty");
        let crash = RecoveryReport { log_entries: 2000, log_bytes: 1 << 20, ..empty };
        assert_eq!(
            recovery_line(&crash, second),
            "recovered after a crash in 1.0 s: 0 mappings of the checkpoint, 2,000 log entries, 1.00 MiB read"
        );
    }
}
