//! The locked state: the design's decisions, the segments, and the queue of the metadata log.
//!
//! A decision, its log entry and its bytes are one step under one lock.
//!
//! Invariants:
//! - `log.entries` is in the order of decisions; an entry's sequence number is its position.
//! - The log queue has the entry of a dirty mapping from the moment of the mapping. The entry of a
//!   clean mapping follows when its segment is written and the origin's content is durable. It
//!   follows only if the mapping is still the current one, so an older clean entry never overtakes
//!   a newer one.
//! - Every place that a mapping names is on flash, in an in-flight segment, or in an open slot.
//!
//! It does not do I/O: [`segment`](crate::segment), [`flush`](crate::flush) and the verbs do.

use crate::{
    checkpoint::tries::CheckpointTries,
    config::Tuning,
    damaged::{DamagedRecords, lost::LostChunks},
    decision_log::sink::DecisionLog,
    degraded::flash_health::FlashHealth,
    error::EngineError,
    fence::known::Fence,
    fill::insertion::Insertions,
    flush::commits::Commits,
    mode::current::CurrentMode,
    origin_changes::runs::OriginChanges,
    pending_log::PendingLog,
    places::to_format,
    prefetch::buffer::PrefetchBuffer,
    segment::writer::Writer,
    state_lock::{StateGuard, Touched},
    unflushed::{flushes::OriginFlushes, unlogged::Unlogged, waiting::Unflushed},
    zeroed_parts::parts::ZeroedParts,
};
use larder_core::{
    Decider, Fingerprint, Lba, NewMapping, Place, SlotId,
    decisions::{Answer, Event},
    design::{Hit, Use},
    history::Draft,
    slots::SlotState,
    streams::Streams,
    versions::Versions,
};
use larder_format::{LogEntry, WriteMode};
use std::sync::Arc;

/// The state of an open cache.
pub struct State {
    /// The decisions.
    design: Decider,
    /// The listener to the decisions.
    pub(crate) decisions: DecisionLog,
    /// The write mode, shared with [`Shared`](crate::shared::Shared).
    pub(crate) mode: Arc<CurrentMode>,
    /// Versions of chunks, which reveal stale fills.
    pub(crate) versions: Versions,
    /// Sequential streams.
    pub(crate) streams: Streams,
    /// Prefetched chunks.
    pub(crate) prefetch: PrefetchBuffer,
    /// The kinds of zeroed parts of chunks.
    pub(crate) zeroed_parts: ZeroedParts,
    /// Records that the flash may lack.
    pub(crate) writer: Writer,
    /// The metadata log's queue.
    pub(crate) log: PendingLog,
    /// The requests for commits of the log.
    pub(crate) commits: Commits,
    /// The tries to write a checkpoint.
    pub(crate) checkpoint_tries: CheckpointTries,
    /// Clean mappings that wait for a flush of the origin.
    pub(crate) unflushed: Unflushed,
    /// Chunks whose only mapping is in RAM: it can be forgotten without an entry.
    pub(crate) unlogged: Unlogged,
    /// Changes of the origin by write-throughs, write-arounds and trims, and its possible losses.
    pub(crate) origin_changes: OriginChanges,
    /// Flushes of the origin.
    pub(crate) origin_flushes: OriginFlushes,
    /// The health of the flash. If it failed, no record is stored any more, and writes go past it:
    /// see [`degraded`](crate::degraded).
    pub(crate) flash: FlashHealth,
    /// The fence, by which a later opening distrusts a flash that failed.
    pub(crate) fence: Fence,
    /// Dirty chunks with a damaged record.
    pub(crate) lost: LostChunks,
    /// Damaged or unreadable records: no content is taken for their duplicate.
    damaged: DamagedRecords,
    /// Chunks that wait for insertion.
    pub(crate) insertions: Insertions,
}

fn map_entry(lba: Lba, place: &Place, dirty: bool, duplicate: bool, fingerprint: Option<Fingerprint>) -> LogEntry {
    let fingerprint = fingerprint.map_or([0; 16], |f| f.0);
    LogEntry::Map { lba: lba.0, place: to_format(place), dirty, duplicate, fingerprint }
}

impl Touched for State {
    type Touch = Use;

    fn apply_now(&self, hit: &Use) -> bool {
        self.decisions.in_turn(|| self.design.use_now(hit).then(|| self.note_use(hit)).is_some())
    }

    fn apply(&mut self, uses: &[Use]) {
        debug_assert!(uses.iter().all(|hit| self.is_there(hit)), "the state has changed since they were hit: {uses:?}");
        self.use_hits(uses);
    }
}

impl State {
    /// Returns the state of an opening, whose recovery found this design, mode and log.
    pub(crate) fn new(design: Decider, mode: WriteMode, slot_count: u32, log: PendingLog, tuning: &Tuning) -> State {
        State {
            design,
            decisions: tuning.decisions.clone(),
            mode: Arc::new(CurrentMode::new(mode)),
            versions: Versions::default(),
            streams: Streams::default(),
            prefetch: PrefetchBuffer::new(tuning.prefetch_bytes_max),
            zeroed_parts: ZeroedParts::default(),
            writer: Writer::new(slot_count as usize, log.next_seq()),
            log,
            commits: Commits::default(),
            checkpoint_tries: CheckpointTries::default(),
            unflushed: Unflushed::default(),
            unlogged: Unlogged::default(),
            origin_changes: OriginChanges::default(),
            origin_flushes: OriginFlushes::after_an_earlier_opening(),
            flash: FlashHealth::default(),
            fence: Fence::default(),
            lost: LostChunks::default(),
            damaged: DamagedRecords::default(),
            insertions: Insertions::default(),
        }
    }

    /// Returns the decisions, to ask about them.
    #[inline]
    pub fn design(&self) -> &Decider {
        &self.design
    }

    /// Returns the decisions, to change them.
    ///
    /// Nothing else in the state changes with them. So few callers need it.
    #[inline]
    pub(crate) fn decide(&mut self) -> &mut Decider {
        &mut self.design
    }

    /// Returns the decisions of a state that is not needed any more.
    pub fn into_design(self) -> Decider {
        self.design
    }

    /// Chooses a slot to evict, whose records are on flash.
    pub(crate) fn choose_victim(&mut self) -> Option<SlotId> {
        let State { design, writer, .. } = self;
        let victim = design.choose_victim(&mut |slot| writer.is_in_memory(slot)).map(|victim| victim.slot);
        self.note_slot(Event::Choose, victim);
        victim
    }

    /// Returns the health of the flash, beside the decisions that data depends on.
    pub(crate) fn flash_and_design(&mut self) -> (&mut FlashHealth, &Decider) {
        (&mut self.flash, &self.design)
    }

    /// Adds a piece of the design's history to a draft. Returns whether more is left.
    ///
    /// The history has no address whose copy the origin forbids.
    pub(crate) fn export_history(&mut self, draft: &mut Draft) -> bool {
        let State { design, origin_changes, .. } = self;
        design.export_history(draft, &|lba| origin_changes.forbids_clean_copy(lba))
    }

    fn is_there(&self, hit: &Use) -> bool {
        self.design.slot_of(hit.lba) == Some(hit.slot)
    }

    /// Applies the uses of hits, which changes only the order of eviction.
    pub(crate) fn use_hits(&mut self, uses: &[Use]) {
        uses.iter().for_each(|hit| self.note_use(hit));
        self.design.used(uses);
    }

    /// Returns a hit on flash that changes only the order of eviction.
    pub fn hit(&self, lba: Lba) -> Option<Hit> {
        self.design.hit(lba).filter(|hit| !self.writer.is_in_memory(hit.place.slot))
    }

    /// Remembers that the record at `place` is damaged, or unreadable by a read of its own.
    pub fn note_damaged(&mut self, place: &Place) {
        self.note_fault();
        self.damaged.note(place);
        self.design.unshare(place);
        self.hide(place);
    }

    /// Forgets the damaged records of `slot`, which was freed.
    pub(crate) fn forget_damage_in(&mut self, slot: SlotId) {
        self.damaged.forget_slot(slot.0);
    }

    /// Returns the records that are known to be damaged.
    pub(crate) fn damaged_records(&self) -> DamagedRecords {
        self.damaged.clone()
    }

    /// Returns the place of a sound record with this content that may take another reference.
    pub fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        let place = self.design.find_duplicate(fingerprint)?;
        (!self.damaged.has(&place)).then_some(place)
    }

    /// Forgets all mappings, for `empty`, a design of the same sizes. Each slot is free and keeps
    /// its generation.
    pub fn empty(&mut self, mut empty: Decider) {
        for (slot, generation, state, _) in self.design.export_slots() {
            // The generation of a free slot is that of its next use.
            let is_free = matches!(state, SlotState::Free | SlotState::Retired);
            let last = if is_free { generation.wrapping_sub(1) } else { generation };
            if last != u32::MAX {
                empty.restore_freed(slot, last);
            }
        }
        self.design = empty;
    }

    /// Outdates fills and prefetched copies of `lba`, whose content changed.
    pub fn outdate(&mut self, lba: Lba) {
        self.versions.bump(lba);
        self.prefetch.remove(lba);
        self.zeroed_parts.remove(lba);
        self.unflushed.remove(lba);
        self.unlogged.remove(lba);
        self.lost.remove(lba);
    }

    /// Outdates a run, as [`State::outdate`].
    pub fn outdate_range(&mut self, first: Lba, count: u64) {
        self.versions.bump_range(first, count);
        self.prefetch.remove_range(first, count);
        self.zeroed_parts.remove_range(first, count);
        self.unflushed.remove_range(first, count);
        self.unlogged.remove_range(first, count);
        self.lost.remove_range(first, count);
    }

    /// Maps `lba` to content that the origin has, too. The entry is logged once the record is
    /// written and the origin's content is durable.
    pub fn map_clean(&mut self, lba: Lba, new: NewMapping, fingerprint: Option<Fingerprint>) {
        let was_forgotten = self.design.is_forgotten(lba);
        self.map_at_once(lba, new);
        if was_forgotten {
            self.unlogged.insert(lba);
        }
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
        if let Some(entry) = self.writer.await_record(place, entry) {
            self.log_clean(entry);
        }
    }

    /// Forgets `lba`, and notes it in the log if a crash may bring it back. Returns whether `lba`
    /// was mapped.
    pub fn invalidate(&mut self, lba: Lba) -> bool {
        let is_logged = !self.unlogged.has(lba);
        self.outdate(lba);
        self.decisions.note(|| (Event::Forget { lba }, Answer::Done));
        let mapped = self.design.unmap(lba);
        if mapped && is_logged {
            self.log.push(LogEntry::Invalidate { lba: lba.0, chunk_count: 1 });
        }
        mapped
    }
}

impl StateGuard<'_, State> {
    /// Maps `lba` to content that the origin lacks. Returns the sequence number to commit.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`], without a change: the content would be in RAM alone,
    /// unrecorded.
    pub fn map_dirty(
        &mut self,
        lba: Lba,
        new: NewMapping,
        fingerprint: Option<Fingerprint>,
    ) -> Result<u64, EngineError> {
        self.flash.check()?;
        let entry = match &new {
            NewMapping::Unique { place, .. } => map_entry(lba, place, true, false, fingerprint),
            NewMapping::Duplicate { place } => map_entry(lba, place, true, true, fingerprint),
            NewMapping::Zero => LogEntry::MapZero { lba: lba.0, dirty: true },
            NewMapping::Fragment { place, sectors } => {
                LogEntry::Fragment { lba: lba.0, place: to_format(place), dirty: true, sectors: sectors.to_bytes() }
            }
        };
        if let NewMapping::Duplicate { place } = &new {
            self.writer.commit_needs(place);
        }
        let seq = self.log.push(entry);
        self.outdate(lba);
        self.note_mapped(lba, &new, fingerprint, Some(seq));
        self.map_beside_others(lba, new, seq);
        Ok(seq)
    }
}
