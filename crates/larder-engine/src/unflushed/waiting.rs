//! The clean mappings that wait for a flush of the origin, and the requesters of one.
//!
//! Invariants: a chunk has one waiting entry at most.
//!
//! It does not flush.

use larder_core::Lba;
use larder_format::LogEntry;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

/// Clean mappings that wait for a flush of the origin. Together with the log's entries, about as
/// many as of those may wait; beyond that, insertion stops.
#[derive(Default)]
pub struct Unflushed {
    /// By chunk: the entry's number, and the entry.
    entries: BTreeMap<u64, (u64, LogEntry)>,
    next_number: u64,
    is_draining: bool,
}

impl Unflushed {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of the next entry.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns whether a chunk has an entry.
    #[cfg(test)]
    pub(super) fn has(&self, lba: Lba) -> bool {
        self.entries.contains_key(&lba.0)
    }

    /// Begins a flush for the entries. Returns false if there are none, or one is under way.
    pub(super) fn begin_drain(&mut self) -> bool {
        !self.is_empty() && !std::mem::replace(&mut self.is_draining, true)
    }

    pub(super) fn end_drain(&mut self) {
        self.is_draining = false;
    }

    pub(super) fn insert(&mut self, lba: Lba, entry: LogEntry) {
        self.entries.insert(lba.0, (self.next_number, entry));
        self.next_number += 1;
    }

    /// Drops the entry of a chunk that changed.
    pub fn remove(&mut self, lba: Lba) {
        self.entries.remove(&lba.0);
    }

    /// Drops the entries of a run of chunks that changed.
    pub fn remove_range(&mut self, first: Lba, count: u64) {
        let inside: Vec<u64> = self.entries.range(first.0..first.0 + count).map(|(&lba, _)| lba).collect();
        inside.into_iter().for_each(|lba| self.remove(Lba(lba)));
    }

    /// Drops all entries, because the log is dead.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes out the entries with a number below `upto`, in the order of their numbers.
    pub(super) fn take_below(&mut self, upto: u64) -> Vec<LogEntry> {
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

/// The party that is told, once, of a failed flush of the origin, regardless of the flush's
/// requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Clients: one of them, by the FLUSH that comes next.
    Client,
    /// The operator, by an operation that brings all data to the origin, or ends the cache.
    Operator,
}

/// A requester, until its answer. A failure counts as told only with that answer
/// ([`Shared::answer`](crate::shared::Shared::answer)).
///
/// Other requesters are told as well meanwhile. If this one gives up, the next one is told.
#[derive(Clone)]
pub struct Asker {
    pub(super) whom: Audience,
    /// The newest failure in the requester's answer.
    pub(super) heard: Arc<AtomicU64>,
}

impl Asker {
    /// Returns a requester that has heard of no failure.
    pub fn new(whom: Audience) -> Self {
        Asker { whom, heard: Arc::new(AtomicU64::new(0)) }
    }
}
