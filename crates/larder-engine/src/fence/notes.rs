//! The notes of an open cache: the keeper's number of the superblock, and the notes under way.
//!
//! Invariants: the number never falls.
//!
//! It does not ask the keeper; [`noting`](crate::fence::noting) does.

use crate::sync::Notify;
use larder_format::WriteMode;
use parking_lot::Mutex;
use std::time::Duration;

/// The notes of an open cache.
#[derive(Default)]
pub struct Notes {
    state: Mutex<NotesState>,
    ended: Notify,
}

#[derive(Default)]
struct NotesState {
    /// The number that the keeper has.
    noted: u64,
    /// A task makes notes.
    is_busy: bool,
    /// The times since which the keeper owes an answer, one for each note under way.
    owed: Vec<Duration>,
    /// The keeper refused the last note, for this reason.
    refused: Option<String>,
    /// The mode that the keeper has; `None` while it may have either of two.
    mode: Option<WriteMode>,
    /// The mode in force is to be noted with the next number.
    owes_mode: bool,
}

/// The task that makes notes, until it is over or dropped.
pub struct NoteTask<'a> {
    notes: &'a Notes,
    is_over: bool,
}

/// A note that the keeper has not answered, until this is dropped.
pub struct Owed<'a> {
    notes: &'a Notes,
    since: Duration,
}

impl Notes {
    /// Counts a note that is under way from now on.
    pub fn owe(&self, now: Duration) -> Owed<'_> {
        self.state.lock().owed.push(now);
        Owed { notes: self, since: now }
    }

    /// Returns true if no task makes notes, so that the caller is to begin one.
    pub fn want_task(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_busy, true)
    }

    /// Returns the task that was wanted.
    pub fn task(&self) -> NoteTask<'_> {
        NoteTask { notes: self, is_over: false }
    }

    /// Notes that the keeper has this number.
    pub fn keep(&self, sequence: u64) {
        let mut state = self.state.lock();
        state.noted = state.noted.max(sequence);
        state.refused = None;
    }

    /// Notes that the keeper is asked to take a mode.
    pub fn mode_is_asked(&self) {
        self.state.lock().mode = None;
    }

    /// Notes that the keeper has this number and this mode.
    pub fn keep_mode(&self, sequence: u64, mode: WriteMode) {
        self.keep(sequence);
        let mut state = self.state.lock();
        (state.mode, state.owes_mode) = (Some(mode), false);
    }

    /// Has the mode in force noted with the next number, unless the keeper has it. Returns whether
    /// it is to be noted.
    pub fn owe_mode(&self, in_force: WriteMode) -> bool {
        let mut state = self.state.lock();
        state.owes_mode |= state.mode != Some(in_force);
        state.owes_mode
    }

    /// Notes that the keeper refused a note, for this reason.
    pub fn refuse(&self, why: String) {
        self.state.lock().refused = Some(why);
    }

    /// Returns for how long the keeper owes its oldest answer, and its reason to refuse the last
    /// note.
    pub fn trouble(&self, now: Duration) -> (Duration, Option<String>) {
        let state = self.state.lock();
        let waited = state.owed.iter().min().map_or(Duration::ZERO, |&since| now.saturating_sub(since));
        (waited, state.refused.clone())
    }

    /// Waits until no task makes notes; `hurry` is called while one does.
    pub async fn at_rest(&self, hurry: impl Fn()) {
        loop {
            let ended = self.ended.listen();
            if !self.state.lock().is_busy {
                return;
            }
            hurry();
            ended.await;
        }
    }
}

impl NoteTask<'_> {
    /// Returns the number to note, and whether the mode goes with it. The number is the newest one,
    /// unless the keeper has both or `is_closing`. Then the task is over, and the next number
    /// begins another one.
    pub fn next(&mut self, newest: impl Fn() -> u64, is_closing: impl Fn() -> bool) -> Option<(u64, bool)> {
        let mut state = self.notes.state.lock();
        let sequence = newest();
        if state.noted >= sequence && !state.owes_mode || is_closing() {
            // Under the lock: a number that comes from here on finds no task.
            (state.is_busy, self.is_over) = (false, true);
            return None;
        }
        Some((sequence, state.owes_mode))
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        let owed = &mut self.notes.state.lock().owed;
        owed.iter().position(|since| *since == self.since).map(|at| owed.swap_remove(at));
    }
}

impl Drop for NoteTask<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.notes.state.lock().is_busy = false;
        }
        self.notes.ended.notify();
    }
}
