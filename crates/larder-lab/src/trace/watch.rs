//! Records on their way: a progress bar, an end at a signal, and the faults of skipped lines.
//!
//! Invariants: all of it costs a look every few thousand records. The first signal ends the stream
//! with an error, so that files are cleaned up; a second one ends the process.
//!
//! It does not change records.

use indicatif::{ProgressBar, ProgressStyle};
use larder::{error::Outcome, output, signals, size::count, trace::out::remove_parts};
use larder_trace::{Position, Record, TraceError, TraceErrorKind, TraceReader, TraceResult};
use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    io::IsTerminal,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Records between two looks.
const LOOK_EVERY: u64 = 4096;

/// The watch over a command's records.
#[derive(Clone)]
pub struct Watch {
    bar: Option<ProgressBar>,
    is_ending: Arc<AtomicBool>,
    skipped: Rc<Cell<u64>>,
    empty: Rc<Cell<u64>>,
    first_skipped: Rc<RefCell<Option<String>>>,
    other_block_size: Rc<RefCell<Option<String>>>,
    back_steps: Rc<Cell<u64>>,
}

impl Watch {
    /// Begins to watch for signals.
    ///
    /// From here on a signal ends streams; the caller makes the watch before any file.
    ///
    /// # Errors
    /// A sentence.
    pub fn new() -> Outcome<Watch> {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        let is_ending = signals::flag(remove_parts)?;
        Ok(Watch {
            bar,
            is_ending,
            skipped: Rc::default(),
            empty: Rc::default(),
            first_skipped: Rc::default(),
            other_block_size: Rc::default(),
            back_steps: Rc::default(),
        })
    }

    /// Returns the records of a reader; `what` names the pass for people.
    pub fn reading(&self, reader: TraceReader, what: impl Into<Cow<'static, str>>) -> Reading {
        if let Some(bar) = &self.bar {
            let template = "{spinner} {msg} {wide_bar} {bytes} of {total_bytes} ({eta})";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what);
        }
        Reading { reader, watch: self.clone(), looked: 0 }
    }

    /// Returns records that are made, not read.
    pub fn making<I: Iterator<Item = TraceResult<Record>>>(
        &self,
        records: I,
    ) -> impl Iterator<Item = TraceResult<Record>> {
        if let Some(bar) = &self.bar
            && let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} records ({elapsed})")
        {
            bar.set_style(style);
        }
        let watch = self.clone();
        let mut made = 0;
        records.map(move |record| {
            made += 1;
            if u64::is_multiple_of(made, LOOK_EVERY) {
                if let Some(bar) = &watch.bar {
                    bar.set_position(made);
                }
                watch.check()?;
            }
            record
        })
    }

    /// Ends the pass, and returns its skipped lines.
    ///
    /// It prints notes about them and about content that cannot be replayed.
    pub fn finish(&self) -> u64 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(first) = &*self.other_block_size.borrow() {
            output::note(&format!("note: this trace can be neither replayed nor re-chunked: {first}"));
        }
        if let Some(first) = &*self.first_skipped.borrow() {
            output::note(&format!(
                "note: {} bad lines were passed over, the first: {first}",
                count(self.skipped.get())
            ));
        }
        if self.empty.get() > 0 {
            output::note(&format!(
                "note: {} requests of length 0 were passed over, for they move no blocks",
                count(self.empty.get())
            ));
        }
        self.skipped.get()
    }

    /// Returns the requests of length 0 that the last pass had.
    pub fn empty_requests(&self) -> u64 {
        self.empty.get()
    }

    /// Returns the skipped lines of the last pass.
    pub fn skipped(&self) -> u64 {
        self.skipped.get()
    }

    /// Returns how often time stepped back in the last pass.
    pub fn back_steps(&self) -> u64 {
        self.back_steps.get()
    }

    /// Returns whether a signal came.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Returns the flag that a signal sets.
    pub fn ending(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ending)
    }

    fn check(&self) -> TraceResult<()> {
        if self.is_ending() {
            let message = "ended by a signal, and nothing was written";
            return Err(TraceError::new(TraceErrorKind::Io, "", Position::Whole, message));
        }
        Ok(())
    }
}

/// Records of a reader, from [`Watch::reading`].
pub struct Reading {
    reader: TraceReader,
    watch: Watch,
    looked: u64,
}

impl Iterator for Reading {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.reader.next();
        self.looked += 1;
        if self.looked.is_multiple_of(LOOK_EVERY) {
            if let (Some(bar), (read, all)) = (&self.watch.bar, self.reader.progress_bytes()) {
                bar.set_length(all.unwrap_or(read));
                bar.set_position(read);
            }
            if let Err(error) = self.watch.check() {
                return Some(Err(error));
            }
        }
        next
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.watch.skipped.set(self.reader.skipped());
        self.watch.empty.set(self.reader.empty_requests());
        self.watch.back_steps.set(self.reader.back_steps().count);
        *self.watch.first_skipped.borrow_mut() = self.reader.first_skipped().map(ToString::to_string);
        *self.watch.other_block_size.borrow_mut() = self.reader.other_block_size().map(ToString::to_string);
    }
}
