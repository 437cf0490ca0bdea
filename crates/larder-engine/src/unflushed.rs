//! Clean mappings that the metadata log must not have yet, and the flush of the origin that they wait for.
//!
//! In write-through and write-around a clean mapping may copy bytes that the origin has not made durable. Were it durable
//! before they are, a power loss could leave the copy and take the original, and what is read would change when the copy
//! is evicted. So such a mapping stays here, outside the queue of the log, until the origin was flushed: a commit that
//! forgets something finds in the queue nothing that it would have to flush the origin for.
//!
//! Invariants:
//! - An entry goes to the log after a successful flush that began when it was here, and only if it still is what its
//!   chunk maps to. When a flush fails, all that is here is forgotten instead, and all that still waits for its record: what
//!   they copy may be lost.
//! - There is one entry for a chunk at most, the newest, with a number of its own: a chunk that was forgotten, and mapped to
//!   the same record again, waits for another flush.
//! - Nothing is here while the origin has nothing to flush.
//!
//! What it does not do: say when the origin is flushed. FLUSH, destaging and checkpoints do, and [`Shared::drain`], which
//! the commit timer and a queue of insertions that fills up ask for; who forgets a mapping never does.

use crate::{error::EngineError, shared::Shared, state::State, state::from_format};
use larder_core::{Fingerprint, Lba, Lookup, SlotId};
use larder_device::{IoError, IoOp};
use larder_format::{LogEntry, WriteMode};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::*},
    },
};

/// Clean mappings that wait for a flush of the origin. Together with the log's entries, about as many as of those may wait:
/// then nothing more is inserted.
#[derive(Default)]
pub struct Unflushed {
    /// By chunk: the entry's number, and the entry.
    entries: BTreeMap<u64, (u64, LogEntry)>,
    next_number: u64,
    draining: bool,
}

impl Unflushed {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn insert(&mut self, lba: Lba, entry: LogEntry) {
        self.entries.insert(lba.0, (self.next_number, entry));
        self.next_number += 1;
    }

    /// The chunk changed.
    pub fn remove(&mut self, lba: Lba) {
        self.entries.remove(&lba.0);
    }

    /// A run of chunks changed.
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<u64> = self.entries.range(first.0..first.0 + count).map(|(&lba, _)| lba).collect();
        inside.into_iter().for_each(|lba| self.remove(Lba(lba)));
    }

    /// The log is dead: nothing waits for it any more.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes out what has a number below `upto`, in the order in which it came.
    fn take_below(&mut self, upto: u64) -> Vec<LogEntry> {
        let mut taken = Vec::new();
        self.entries.retain(|_, &mut (number, entry)| {
            if number < upto {
                taken.push((number, entry));
            }
            number >= upto
        });
        taken.sort_unstable_by_key(|&(number, _)| number);
        taken.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// Flushes of the origin, of which one is under way at a time.
#[derive(Default)]
pub struct OriginFlushes {
    /// How many began.
    begun: u64,
    in_flight: bool,
    /// Why one failed last.
    pub last_error: Option<IoError>,
    /// The same, with its number, if clients' writes go to the origin, for each [`Audience`] until it is told. (What is destaged is
    /// tried again.)
    untold: [Option<(u64, IoError)>; 2],
}

/// Who is told, once, that a flush of the origin failed, whoever asked for that flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Clients: one of them, by the FLUSH that comes next.
    Client,
    /// Whoever operates the cache: by what brings everything to the origin, or ends the cache.
    Operator,
}

/// One who asks, until he has his answer. What failed unseen counts as told only with that ([`Shared::answer`]): others who ask
/// meanwhile are told as well, and where he gives up, the next one is.
#[derive(Clone)]
pub struct Asker {
    whom: Audience,
    /// The newest failure that his answer will speak of.
    heard: Arc<AtomicU64>,
}

impl Asker {
    /// Somebody who asks now.
    pub fn new(whom: Audience) -> Self {
        Asker { whom, heard: Arc::new(AtomicU64::new(0)) }
    }
}

impl State {
    /// Whether clean mappings become durable only after a flush of the origin. In write-back they need none: what
    /// destaging writes and has not flushed is dirty still.
    fn origin_matters(&self) -> bool {
        self.mode.get() != WriteMode::Back && self.origin_is_unflushed()
    }

    /// Whether the origin may lack, after a power loss, what was written to it.
    fn origin_is_unflushed(&self) -> bool {
        // A flush in flight may miss writes that completed after it began, and has promised nothing yet.
        self.origin_unflushed || self.origin_flushes.in_flight
    }

    /// A clean mapping's record was written: it is logged, if it still is what its chunk maps to; where the origin may lack what
    /// it copies, after a flush.
    pub fn log_clean(&mut self, entry: LogEntry) {
        match self.still_mapped(&entry) {
            Some(lba) if self.origin_matters() && !self.log.dead => self.unflushed.insert(lba, entry),
            still => self.log_settled(entry, still.is_some()),
        }
    }

    /// The origin durably has what a clean mapping copies: it is logged, if it still is what its chunk maps to.
    fn log_settled(&mut self, entry: LogEntry, is_mapped: bool) {
        if let LogEntry::Map { lba, place, .. } = &entry {
            self.settle(Lba(*lba), &from_format(place), is_mapped);
            if is_mapped {
                self.design.keep(SlotId(place.slot));
            }
        }
        if is_mapped {
            self.log.push(entry);
        }
    }

    /// The chunk of a clean mapping, if it still maps to what the entry says.
    fn still_mapped(&self, entry: &LogEntry) -> Option<Lba> {
        let (lba, current) = match entry {
            LogEntry::Map { lba, place, fingerprint, .. } => {
                let (lba, place) = (Lba(*lba), from_format(place));
                (lba, self.design.maps_to(lba, &place, &Fingerprint(*fingerprint)))
            }
            LogEntry::MapZero { lba, .. } => (Lba(*lba), self.design.peek(Lba(*lba)) == Lookup::Zero),
            _ => return None,
        };
        (current && self.design.dirty_seq(lba).is_none()).then_some(lba)
    }

    /// A flush of the origin succeeded that began when `upto` was the next number.
    fn origin_was_flushed(&mut self, upto: u64, changes_upto: u64) {
        self.origin_changes.flushed(changes_upto);
        // Where nothing was written since the last flush began, that one was for what came after it began, too.
        let upto = if self.origin_is_unflushed() { upto } else { u64::MAX };
        for entry in self.unflushed.take_below(upto) {
            let is_mapped = self.still_mapped(&entry).is_some();
            self.log_settled(entry, is_mapped);
        }
    }

    /// A flush of the origin failed: what was written before it may be lost, whatever a later one says.
    fn origin_flush_failed(&mut self, error: &IoError) {
        let mode = self.mode.get();
        self.origin_unflushed = true;
        self.origin_flush_failures += 1;
        self.origin_flushes.last_error = Some(error.clone());
        self.origin_changes.flush_failed();
        if mode != WriteMode::Back || self.flash_failed.is_some() {
            let failure = (self.origin_flush_failures, error.clone());
            self.origin_flushes.untold = [Some(failure.clone()), Some(failure)];
        }
        let mut lost = self.unflushed.take_below(u64::MAX);
        if mode != WriteMode::Back {
            // They would come here when their records are written, as if nothing had been.
            let open = self.open.iter_mut().flatten().map(|open| &mut open.awaiting);
            lost.extend(open.flat_map(std::mem::take));
            lost.extend(self.in_flight.take_awaiting());
        }
        for entry in lost {
            match self.still_mapped(&entry) {
                Some(lba) => drop(self.invalidate(lba)),
                None => self.log_settled(entry, false),
            }
        }
    }
}

impl Shared {
    /// Flushes the origin, unless it was not written since a flush that is over. One flush at a time: whoever comes meanwhile
    /// waits for the next, and shares it. Were there two, one that succeeds could not tell what the other one lost.
    ///
    /// # Errors
    /// The origin's, of this flush or of one that failed since this was called.
    pub async fn flush_origin(self: &Arc<Self>) -> Result<(), IoError> {
        let (failures, wanted) = {
            let state = self.state.lock();
            if !state.origin_is_unflushed() {
                return Ok(());
            }
            let flushes = &state.origin_flushes;
            (state.origin_flush_failures, flushes.begun + 1)
        };
        // To its end, also where whoever asked gives up: what it flushes, or loses, others will want to know.
        let this = self.clone();
        let flushed = self.to_its_end(async move { Ok(this.flush_origin_in_turn(failures, wanted).await) });
        flushed.await.unwrap_or_else(|error| Err(error.into_io(IoOp::Flush, 0, 0)))
    }

    async fn flush_origin_in_turn(self: &Arc<Self>, failures: u64, wanted: u64) -> Result<(), IoError> {
        let _turn = self.origin_flush_turns.take().await;
        let (upto, changes_upto) = {
            let mut state = self.state.lock();
            if let Some(error) =
                state.origin_flushes.last_error.clone().filter(|_| state.origin_flush_failures != failures)
            {
                return Err(error);
            }
            // Without failures since, the flushes that began since are over, and succeeded.
            if state.origin_flushes.begun >= wanted || !state.origin_is_unflushed() {
                return Ok(());
            }
            state.origin_unflushed = false;
            state.origin_flushes.begun += 1;
            state.origin_flushes.in_flight = true;
            (state.unflushed.next_number, state.origin_changes.next_number())
        };
        self.counters.origin_flushes.fetch_add(1, Relaxed);
        let result = self.origin.flush().await;
        self.note_origin(&result);
        let mut state = self.state.lock();
        state.origin_flushes.in_flight = false;
        match &result {
            Ok(()) => state.origin_was_flushed(upto, changes_upto),
            Err(error) => {
                self.counters.origin_flush_failures.fetch_add(1, Relaxed);
                state.origin_flush_failed(error);
            }
        }
        // Metadata slots that waited for it.
        let outgoing = self.take_outbox(&mut state);
        drop(state);
        self.send(outgoing);
        result
    }

    /// [`Shared::flush_origin`] for somebody who relies on it. An earlier flush that failed may have lost what a client wrote, and
    /// a device says so once, and the next flush succeeds.
    ///
    /// # Errors
    /// The origin's, of this flush or of an earlier one that this audience was not told of.
    pub async fn flush_origin_for(self: &Arc<Self>, asker: &Asker) -> Result<(), EngineError> {
        let result = self.flush_origin().await;
        let untold = self.tell(asker);
        result?;
        untold
    }

    /// Tells of a flush of the origin that failed, and that this audience has not been told of.
    ///
    /// # Errors
    /// That one's.
    pub fn tell(&self, asker: &Asker) -> Result<(), EngineError> {
        let state = self.state.lock();
        let Some((number, error)) = &state.origin_flushes.untold[asker.whom as usize] else { return Ok(()) };
        asker.heard.store(*number, Relaxed);
        Err(error.clone().into())
    }

    /// The answer that whoever asked gets now, and nothing between: with it he is told what he heard of.
    pub fn answer<T, E>(&self, asker: &Asker, answer: Result<T, E>) -> Result<T, E> {
        let heard = asker.heard.load(Relaxed);
        if answer.is_err() && heard > 0 {
            let untold = &mut self.state.lock().origin_flushes.untold[asker.whom as usize];
            *untold = untold.take().filter(|(number, _)| *number > heard);
        }
        answer
    }

    /// Has the origin flushed in the background, and then logs what waits for that. Nobody waits for it.
    pub fn drain(self: &Arc<Self>) {
        {
            let unflushed = &mut self.state.lock().unflushed;
            if unflushed.is_empty() || std::mem::replace(&mut unflushed.draining, true) {
                return;
            }
        }
        let this = self.clone();
        self.spawn_counted(async move {
            // One that fails is told to the next FLUSH.
            let _ = this.flush_origin().await;
            let upto = {
                let mut state = this.state.lock();
                state.unflushed.draining = false;
                state.log.next_seq()
            };
            this.request_commit(upto, false);
        });
    }
}

#[cfg(test)]
mod tests;
