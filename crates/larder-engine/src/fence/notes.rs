//! The notes of the newest superblock's number: the number that the keeper of the fence has, and
//! the note that is under way.
//!
//! Invariants: the number never falls.
//!
//! It does not ask the keeper; [`noting`](crate::fence::noting) does.

use crate::sync::Notify;
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
    /// The time since which the keeper owes an answer.
    asked_at: Option<Duration>,
    /// The keeper refused the last note, for this reason.
    refused: Option<String>,
}

/// The task that makes notes, until it is over or dropped.
pub struct NoteTask<'a> {
    notes: &'a Notes,
    is_over: bool,
}

impl Notes {
    /// Returns true if the caller is to begin a task that makes notes, for there is none.
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
        (state.asked_at, state.refused) = (None, None);
    }

    /// Notes that the keeper refused a note, for this reason.
    pub fn refuse(&self, why: String) {
        let mut state = self.state.lock();
        (state.asked_at, state.refused) = (None, Some(why));
    }

    /// Returns for how long the keeper owes an answer, and its reason to refuse the last note.
    pub fn trouble(&self, now: Duration) -> (Duration, Option<String>) {
        let state = self.state.lock();
        let waited = state.asked_at.map_or(Duration::ZERO, |since| now.saturating_sub(since));
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
    /// Returns the number to note: the newest one, unless the keeper has it or `is_closing`. Then
    /// the task is over, and the next number begins another one.
    pub fn next(&mut self, now: Duration, newest: impl Fn() -> u64, is_closing: impl Fn() -> bool) -> Option<u64> {
        let mut state = self.notes.state.lock();
        let sequence = newest();
        if state.noted >= sequence || is_closing() {
            // Under the lock: a number that comes from here on finds no task.
            (state.is_busy, self.is_over) = (false, true);
            return None;
        }
        state.asked_at = Some(now);
        Some(sequence)
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
