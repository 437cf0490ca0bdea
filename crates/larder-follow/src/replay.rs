//! Replay of an engine's decision log ([`larder_core::decisions`]) over the executor of traces.
//!
//! Each event is decided here once more. If the log has the engine's answer, it must be the same.
//!
//! Invariants: no log panics; a refusal names its line.
//!
//! It does not follow a cache that was not empty when it was opened.

use crate::{
    follow::Follower,
    text::{FIRST_LINE, InWords, LINE_BYTES_MAX, parse},
};
use larder_core::decisions::{Answer, Event};
use std::io::{BufRead, Read};

/// The simulator's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Chunks that reads asked for and that hit.
    pub read_hits: u64,
    /// Chunks that reads asked for and that missed.
    pub read_misses: u64,
    /// Records that were stored.
    pub records: u64,
    /// Their bytes, without the parts around them.
    pub stored_bytes: u64,
    /// Chunks that were inserted and not stored, since their content was there.
    pub duplicates: u64,
    /// Bytes of segments whose write is over.
    pub segment_bytes: u64,
    /// Slots that were evicted and are free.
    pub slots_evicted: u64,
}

/// A log that is replayed.
#[derive(Default)]
pub struct DecisionReplay {
    cache: Option<Follower>,
    decided: Decided,
}

impl DecisionReplay {
    /// Decides an event.
    ///
    /// # Errors
    /// One sentence: the reason why the event cannot be.
    pub fn decide(&mut self, event: &Event) -> Result<Answer, String> {
        let Some(cache) = &mut self.cache else {
            let Event::Opened(opened) = event else { return Err("a log begins with the opening of a cache".into()) };
            self.cache = Some(Follower::opened(opened)?);
            return Ok(Answer::Done);
        };
        let answer = cache.decide(event)?;
        let decided = &mut self.decided;
        match (event, answer) {
            (Event::Read { .. }, Answer::Miss) => decided.read_misses += 1,
            (Event::Read { .. } | Event::Use { .. }, _) => decided.read_hits += 1,
            (Event::Insert { .. } | Event::Fragment { .. }, Answer::Stored(spot)) => {
                decided.records += 1;
                decided.stored_bytes += u64::from(spot.bytes);
            }
            (Event::Insert { .. }, Answer::Hit(_)) => decided.duplicates += 1,
            (Event::Written { .. }, Answer::Count(bytes)) => decided.segment_bytes += bytes,
            (Event::Release, _) => decided.slots_evicted += 1,
            (Event::Reuse { .. }, Answer::Count(slots)) => decided.slots_evicted += slots,
            _ => {}
        }
        Ok(answer)
    }

    /// Decides the event of line `number`, and compares the answer, if the line has one.
    ///
    /// # Errors
    /// One sentence that names the line: it does not parse, its event cannot happen here, or its
    /// answer differs from the one here.
    pub fn line(&mut self, number: u64, line: &str) -> Result<Answer, String> {
        let (event, noted) = parse(number, line)?;
        let answer = self.decide(&event).map_err(|error| format!("line {number}: {error} (`{}`)", InWords(&event)))?;
        match noted {
            Some(noted) if noted != answer => {
                let (event, noted, answer) = (InWords(&event), InWords(&noted), InWords(&answer));
                Err(format!("line {number}: `{event}` is `{noted}` in the log, and `{answer}` here"))
            }
            _ => Ok(answer),
        }
    }

    /// Returns the results so far.
    pub fn decided(&self) -> Decided {
        self.decided
    }
}

/// Replays a whole log.
///
/// # Errors
/// One sentence that names the line, or the reader's error.
pub fn replay(mut log: impl BufRead) -> Result<Decided, String> {
    let mut replay = DecisionReplay::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // The limit of a line, its end, and one byte that shows a longer line.
        let most = LINE_BYTES_MAX as u64 + 2;
        log.by_ref().take(most).read_until(b'\n', &mut line).map_err(|error| format!("line {number}: {error}"))?;
        if line.is_empty() && number > 1 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = std::str::from_utf8(text).map_err(|_| format!("line {number}: expected text, found other bytes"))?;
        if number > 1 {
            replay.line(number, text)?;
        } else if text != FIRST_LINE {
            let found: String = text.chars().take(40).collect();
            return Err(format!("line 1: expected `{FIRST_LINE}`, found {found:?}"));
        }
    }
    Ok(replay.decided())
}
