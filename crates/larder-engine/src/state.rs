//! The locked state: the design's decisions, the open and in-flight segments, and the entries that wait for the
//! metadata log, so that "decide, note it in the log, put the bytes" is one step under one lock.
//!
//! Invariants:
//! - `log.entries` is in the order of decisions; an entry's sequence number is its position.
//! - A dirty mapping's entry is in the log queue from the moment that the mapping is made. A clean mapping's follows when
//!   its segment was written and the origin durably has what it copies, if it is still the current one: an older clean
//!   entry never overtakes a newer one.
//! - Every place that a mapping names is on flash, in an in-flight segment, or in an open WEU.
//!
//! What it does not do: I/O. [`segment`](crate::segment), [`flush`](crate::flush) and the verbs do.

use crate::{
    damaged::DamagedRecords,
    decision_log::DecisionLog,
    error::EngineError,
    fence::Fence,
    in_flight::InFlight,
    log_area::LogArea,
    mode::CurrentMode,
    origin_changes::OriginChanges,
    prefetch::PrefetchBuffer,
    segment::OpenWeu,
    state_lock::Touched,
    unflushed::{OriginFlushes, Unflushed},
};
use larder_core::{
    Design, Fingerprint, Lba, NewMapping, Place, SlotId, StreamClass,
    decisions::{Answer, Event},
    design::{Deferred, Hit, Question, Use},
    ranges::Run,
    region::RegionEntry,
    slots::SlotState,
    streams::Streams,
    versions::Versions,
};
use larder_device::{IoError, SharedBuf};
use larder_format::{Encoding, LogEntry, WriteMode};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Log entries that may wait before writers do.
pub const PENDING_ENTRIES_MAX: usize = 1 << 16;

/// Entries that wait for the metadata log.
pub struct PendingLog {
    /// Entries, in order of decision.
    pub entries: VecDeque<LogEntry>,
    /// Sequence number of the first of them.
    pub first_seq: u64,
    /// Entries below this are durable.
    pub durable_below: u64,
    /// The entries that forget mappings are below this. While they are not durable, a crash brings mappings back.
    pub forgets_below: u64,
    /// Someone waits for entries below this.
    pub wanted_below: u64,
    /// The next commit shall also close open segments of clean data, and say so in `clean_closed`.
    pub close_clean: bool,
    /// It is a checkpoint that asks: the log's reserve is for that.
    pub use_reserve: bool,
    /// Commits that closed the open segments of clean data.
    pub clean_closed: u64,
    /// Commits of any kind.
    pub commits: u64,
    /// The committer has ended: nothing more becomes durable.
    pub ended: bool,
    /// The last commit failed so.
    pub error: Option<IoError>,
    /// Where frames go.
    pub area: LogArea,
    /// Checksum of the last frame: the next one names it.
    pub previous_crc: u32,
    /// The flash failed: entries are numbered and not kept, for nothing will be durable any more.
    pub dead: bool,
    /// Tries to write a checkpoint that began.
    pub checkpoint_tries: u64,
    /// The last one failed so: which it was, and why. While they fail, the log is not filled up.
    pub checkpoint_failed: Option<(u64, EngineError)>,
}

/// When somebody asked for a commit.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Commits that were over.
    pub commits: u64,
    /// Tries to write a checkpoint that had begun.
    pub checkpoint_tries: u64,
}

impl PendingLog {
    /// As of now.
    pub fn asked_now(&self) -> Asked {
        Asked { commits: self.commits, checkpoint_tries: self.checkpoint_tries }
    }

    /// Sequence number that the next entry gets.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    /// Why there is no checkpoint, for somebody who asked when `tries` of them had begun: one that began later failed.
    pub fn checkpoint_error(&self, tries: u64) -> Option<EngineError> {
        let (_, error) = self.checkpoint_failed.as_ref().filter(|(failed, _)| *failed > tries)?;
        Some(error.clone())
    }

    /// Notes an entry; its sequence number.
    pub fn push(&mut self, entry: LogEntry) -> u64 {
        // A clean fragment is forgotten, too.
        if matches!(entry, LogEntry::Invalidate { .. } | LogEntry::SlotFreed { .. } | LogEntry::Clean { .. }) {
            self.forgets_below = self.next_seq() + 1;
        }
        self.append(entry)
    }

    /// Notes that a slot is free whose mappings stay for now: nothing is forgotten.
    pub fn push_freed_ahead(&mut self, slot: SlotId, generation: u32) -> u64 {
        self.append(LogEntry::SlotFreed { slot: slot.0, generation })
    }

    fn append(&mut self, entry: LogEntry) -> u64 {
        let seq = self.next_seq();
        if self.dead {
            self.first_seq += 1;
        } else {
            self.entries.push_back(entry);
        }
        seq
    }

    /// The flash failed: what waits will never be durable. Returns the dirty chunks among it: first chunk, number of
    /// chunks, sequence number.
    pub fn die(&mut self) -> Vec<(Lba, u64, u64)> {
        self.dead = true;
        let first_seq = self.first_seq;
        self.first_seq = self.next_seq();
        self.wanted_below = 0;
        self.close_clean = false;
        self.use_reserve = false;
        let entries = std::mem::take(&mut self.entries);
        let dirty = |entry: &LogEntry| match *entry {
            LogEntry::Map { lba, dirty: true, .. }
            | LogEntry::MapZero { lba, dirty: true }
            | LogEntry::Fragment { lba, dirty: true, .. } => Some((Lba(lba), 1)),
            LogEntry::Trim { lba, chunk_count, dirty: true, .. } => Some((Lba(lba), chunk_count)),
            _ => None,
        };
        let numbered = (first_seq..).zip(&entries);
        numbered.filter_map(|(seq, entry)| dirty(entry).map(|(lba, count)| (lba, count, seq))).collect()
    }
}

/// The state of an open cache.
pub struct State {
    /// The decisions.
    pub design: Box<dyn Design>,
    /// Is told of them.
    pub decisions: DecisionLog,
    /// The write mode, which [`Shared`](crate::shared::Shared) has, too.
    pub mode: Arc<CurrentMode>,
    /// Versions of chunks, against stale fills.
    pub versions: Versions,
    /// Sequential streams.
    pub streams: Streams,
    /// Prefetched chunks.
    pub prefetch: PrefetchBuffer,
    /// Open WEUs: clean, dirty.
    pub open: [Option<OpenWeu>; 2],
    /// Closed segments whose write is not over, oldest first.
    pub in_flight: InFlight,
    /// Whether some record of a slot may be in memory only.
    pub in_memory: Vec<bool>,
    /// Segments to be handed to the flash device.
    pub outbox: Vec<u64>,
    /// Number of the next segment.
    pub segment_seq: u64,
    /// The metadata log's queue.
    pub log: PendingLog,
    /// Clean mappings that a flush of the origin must precede.
    pub unflushed: Unflushed,
    /// The origin was written since its last flush.
    pub origin_unflushed: bool,
    /// What write-throughs, write-arounds and their trims are changing on the origin, and what it may have lost of that.
    pub origin_changes: OriginChanges,
    /// Flushes of the origin that failed: what was written before one of them may be lost, whatever a later one says.
    pub origin_flush_failures: u64,
    /// Flushes of the origin.
    pub origin_flushes: OriginFlushes,
    /// The flash failed so: nothing new is stored, and writes go past it. See [`degraded`](crate::degraded).
    pub flash_failed: Option<IoError>,
    /// Since when, on the runtime's clock, none of the dirty data that was asked for could be read.
    pub unreadable_since: Option<Duration>,
    /// What keeps a flash that failed from being believed later.
    pub fence: Fence,
    /// Dirty chunks that were not durable when the flash failed: first chunk, number of chunks, sequence number.
    pub undurable: Vec<(Lba, u64, u64)>,
    /// A switch of modes is under way.
    pub switching_to: Option<WriteMode>,
    /// Dirty chunks whose record turned out damaged.
    pub lost: BTreeMap<u64, u64>,
    /// Records that turned out damaged, or unreadable: no content is taken for their duplicate.
    pub damaged: DamagedRecords,
    /// Slots that must be trimmed before use because nothing says that they were.
    pub untrimmed: Vec<bool>,
    /// Chunks waiting to be inserted.
    pub insertions: VecDeque<crate::fill::Insertion>,
    /// Bytes in `insertions` and in work.
    pub insertion_bytes: usize,
    /// Insertion tasks that run.
    pub insertion_tasks: usize,
}

/// Index of a class in [`State::open`].
pub fn class_index(class: StreamClass) -> usize {
    match class {
        StreamClass::Clean => 0,
        StreamClass::Dirty => 1,
    }
}

/// A place in the words of the format. Encodings come from the codec, so each code is known.
pub fn to_format(place: &Place) -> larder_format::Place {
    larder_format::Place {
        slot: place.slot.0,
        generation: place.generation,
        offset: place.offset,
        stored_len: place.stored_len,
        crc: place.crc,
        encoding: Encoding::from_code(place.encoding).unwrap_or(Encoding::Raw),
    }
}

/// A place in the words of the core.
pub fn from_format(place: &larder_format::Place) -> Place {
    Place {
        slot: SlotId(place.slot),
        generation: place.generation,
        offset: place.offset,
        stored_len: place.stored_len,
        crc: place.crc,
        encoding: place.encoding.code(),
    }
}

fn map_entry(lba: Lba, place: &Place, dirty: bool, duplicate: bool, fingerprint: Option<Fingerprint>) -> LogEntry {
    let fingerprint = fingerprint.map_or([0; 16], |f| f.0);
    LogEntry::Map { lba: lba.0, place: to_format(place), dirty, duplicate, fingerprint }
}

impl Touched for State {
    type Touch = Use;

    fn apply_now(&self, hit: &Use) -> bool {
        self.design.use_now(hit)
    }

    fn apply(&mut self, uses: &[Use]) {
        debug_assert!(uses.iter().all(|hit| self.is_there(hit)), "the state has changed since they were hit: {uses:?}");
        self.design.used(uses);
    }
}

impl State {
    fn is_there(&self, hit: &Use) -> bool {
        self.design.slot_of(hit.lba) == Some(hit.slot)
    }

    /// A hit on flash that changes nothing but what leaves next. None where each decision is told as it is made.
    pub fn hit(&self, lba: Lba) -> Option<Hit> {
        if self.decisions.0.is_some() {
            return None;
        }
        self.design.hit(lba).filter(|hit| !self.in_memory[hit.place.slot.0 as usize])
    }

    /// The metadata slot that says what `lba` maps to, if it is the only thing that is missing for a [hit](State::hit).
    pub fn unread_hit(&self, lba: Lba) -> Option<SlotId> {
        if self.decisions.0.is_some() {
            return None;
        }
        let slot = self.design.unread(Question::Address(lba))?;
        (!self.in_memory[slot.0 as usize]).then_some(slot)
    }

    /// As [`State::hit`], by the metadata slot of `slot`, as it was read just now.
    pub fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit> {
        if self.decisions.0.is_some() {
            return None;
        }
        self.design.hit_with(lba, slot, entry).filter(|hit| !self.in_memory[hit.place.slot.0 as usize])
    }

    /// Remembers that the record at `place` is damaged, or was not read when it was asked for alone.
    pub fn note_damaged(&mut self, place: &Place) {
        self.note_fault();
        self.damaged.note(place);
        self.design.spoil(place);
        self.note_changed_entries();
    }

    /// The place of a stored chunk with this content that may take another reference, and is not known to be damaged.
    pub fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let place = self.design.find_duplicate(fingerprint)?;
        (!self.damaged.has(&place)).then_some(place)
    }

    /// Forgets all that is mapped, for `empty`, a design of the same sizes; each slot keeps its generation and is free.
    pub fn empty(&mut self, mut empty: Box<dyn Design>) {
        for (slot, generation, state, _) in self.design.export_slots() {
            // A free slot has the generation that it will have next.
            let is_free = matches!(state, SlotState::Free | SlotState::Retired);
            let last = if is_free { generation.wrapping_sub(1) } else { generation };
            if last != u32::MAX {
                empty.restore_freed(slot, last);
            }
        }
        self.design = empty;
    }

    /// What changed `lba`'s content outdates fills and prefetched copies of it.
    pub fn outdate(&mut self, lba: Lba) {
        self.versions.bump(lba);
        self.prefetch.remove(lba);
        self.unflushed.remove(lba);
        if !self.lost.is_empty() {
            self.lost.remove(&lba.0);
        }
    }

    /// Maps `lba` to content that the origin does not have. Returns the sequence number to commit for it. What may be done of it when the
    /// lock was given back is `later` then; what was there before is done first.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`]: it would be in RAM alone, and nothing would say so. Nothing has changed then.
    pub fn map_dirty(
        &mut self,
        lba: Lba,
        new: NewMapping,
        fingerprint: Option<Fingerprint>,
        later: &mut Deferred,
    ) -> Result<u64, EngineError> {
        self.check_flash()?;
        later.finish();
        let entry = match &new {
            NewMapping::Unique { place, .. } => map_entry(lba, place, true, false, fingerprint),
            NewMapping::Duplicate { place } => map_entry(lba, place, true, true, fingerprint),
            NewMapping::Zero => LogEntry::MapZero { lba: lba.0, dirty: true },
            NewMapping::Fragment { place, sectors } => {
                LogEntry::Fragment { lba: lba.0, place: to_format(place), dirty: true, sectors: sectors.to_bytes() }
            }
        };
        if let NewMapping::Duplicate { place } = &new {
            self.commit_needs(place);
        }
        let seq = self.log.push(entry);
        self.outdate(lba);
        self.note_mapped(lba, &new, fingerprint, Some(seq));
        *later = self.design.map_deferring(lba, new, Some(seq));
        if self.decisions.0.is_some() {
            // Whoever follows the decisions has each done before the next.
            later.finish();
        }
        self.note_changed_entries();
        Ok(seq)
    }

    /// Refuses where the flash has failed.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`].
    pub fn check_flash(&self) -> Result<(), EngineError> {
        self.flash_failed.as_ref().map_or(Ok(()), |error| Err(EngineError::FlashFailed(error.clone())))
    }

    /// Maps `lba` to content that the origin has, too; it is logged once its record was written, and the origin has what
    /// it copies durably.
    pub fn map_clean(&mut self, lba: Lba, new: NewMapping, fingerprint: Option<Fingerprint>) {
        self.design.map(lba, new, None);
        self.note_changed_entries();
        match new {
            NewMapping::Unique { place, .. } => {
                self.await_record(&place, map_entry(lba, &place, false, false, fingerprint))
            }
            NewMapping::Duplicate { place } => {
                self.await_record(&place, map_entry(lba, &place, false, true, fingerprint))
            }
            NewMapping::Zero => self.log_clean(LogEntry::MapZero { lba: lba.0, dirty: false }),
            // Fragments are never clean: the origin has the rest, and reading it completes them.
            NewMapping::Fragment { .. } => {}
        }
    }

    fn await_record(&mut self, place: &Place, entry: LogEntry) {
        for open in self.open.iter_mut().flatten() {
            if open.holds(place) {
                open.awaiting.push(entry);
                return;
            }
        }
        if let Some(entry) = self.in_flight.await_record(place, entry) {
            self.log_clean(entry);
        }
    }

    /// A dirty mapping names `place`: the next commit must close the segment that it is in.
    fn commit_needs(&mut self, place: &Place) {
        for open in self.open.iter_mut().flatten() {
            if open.holds(place) {
                open.commit_needs_it = true;
            }
        }
    }

    /// Forgets `lba` and notes it in the log. Returns whether anything was mapped.
    pub fn invalidate(&mut self, lba: Lba) -> bool {
        self.outdate(lba);
        self.decisions.note(|| (Event::Forget { lba }, Answer::Done));
        let mapped = self.design.unmap(lba);
        if mapped {
            self.log.push(LogEntry::Invalidate { lba: lba.0, chunk_count: 1 });
        }
        mapped
    }

    /// Makes a run of chunks read as zeroes until the origin is told. Returns its sequence number.
    ///
    /// The trim covers the runs of its kind that it touches as well, and all become one.
    ///
    /// # Errors
    /// As [`State::map_dirty`].
    pub fn trim(&mut self, run: Run) -> Result<u64, EngineError> {
        self.check_flash()?;
        let Run { first, count, .. } = run;
        self.versions.bump_range(first, count);
        self.prefetch.remove_range(first, count);
        self.unflushed.remove_range(first, count);
        self.lost.retain(|&lba, _| lba < first.0 || lba >= first.0 + count);
        let Run { first, count, no_hole, advisory, .. } = self.with_touching_runs(run);
        let seq = self.log.push(LogEntry::Trim { lba: first.0, chunk_count: count, dirty: true, no_hole, advisory });
        self.decisions.note(|| (Event::Trim { first, count, seq }, Answer::Done));
        self.design.trim(Run { first, count, seq, no_hole, advisory });
        Ok(seq)
    }

    /// A run, extended by the trimmed runs of the same kind that it touches.
    fn with_touching_runs(&self, wanted: Run) -> Run {
        let (mut start, mut end) = (wanted.first.0, wanted.first.0 + wanted.count);
        let run_at = |lba: u64| {
            let found = self.design.trimmed_from(Lba(lba)).filter(|run| run.first.0 <= lba);
            found.filter(|run| run.is_of_a_kind_with(&wanted))
        };
        if let Some(run) = start.checked_sub(1).and_then(run_at) {
            start = run.first.0;
            end = end.max(run.first.0 + run.count);
        }
        if let Some(run) = run_at(end) {
            end = run.first.0 + run.count;
        }
        Run { first: Lba(start), count: end - start, ..wanted }
    }

    /// The bytes of the record at `place`, if they are in memory. Copies, or shares.
    pub fn in_memory(&self, place: &Place) -> Option<InMemory<'_>> {
        if !self.in_memory[place.slot.0 as usize] {
            return None;
        }
        let range = place.offset as usize..place.offset as usize + place.stored_len as usize;
        for open in self.open.iter().flatten() {
            if open.holds(place) {
                return open.bytes(range).map(InMemory::Borrowed);
            }
        }
        let segment = self.in_flight.segment_of(place)?;
        let start = segment.start as usize;
        Some(InMemory::Shared(segment.data.slice(range.start - start..range.end - start)))
    }
}

/// Record bytes that are not on flash yet.
pub enum InMemory<'a> {
    /// In an open segment: to be copied under the lock.
    Borrowed(&'a [u8]),
    /// In a closed one.
    Shared(SharedBuf),
}
