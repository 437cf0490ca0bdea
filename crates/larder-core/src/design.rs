//! [`Design`]: the decisions of a caching design, and the words for them.
//!
//! The engine and the simulator drive the same trait. It covers dirty state, fragments and zeroes,
//! because each design gates eviction on them. Each design indexes, keeps and replaces content in
//! its own way.
//!
//! Invariants of every design:
//! - [`Design::lookup`] answers with the newest mapping, or a miss.
//! - A slot with dirty references is never evicted.
//! - After [`Design::evict`] no lookup answers with a place in that generation of the slot.

use crate::{
    history::{Draft, Trust},
    ranges::Run,
    region::RegionEntry,
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};
use std::sync::Arc;

mod counts;
mod deferred;
mod words;

pub use counts::{DesignStats, DirtyCounts};
pub use deferred::Deferred;
pub use words::{DesignConfig, ExportedMapping, Hit, Leaving, Lookup, NewMapping, Question, Use, Victim, Wanted};

/// A caching design. Threads share it for the calls that change nothing.
pub trait Design: Send + Sync {
    /// Returns the mapping of `lba`. Counts as a use.
    fn lookup(&mut self, lba: Lba) -> Lookup;

    /// Returns the mapping of `lba` as [`Design::lookup`] does. Does not count as a use.
    fn peek(&self, lba: Lba) -> Lookup;

    /// Returns the slot that `lba` maps into, as far as the design knows it without a metadata
    /// slot.
    fn slot_of(&self, lba: Lba) -> Option<SlotId> {
        match self.peek(lba) {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot),
            Lookup::Zero | Lookup::Miss => None,
        }
    }

    /// Returns the chunk that `lba` maps to, if its lookup would change only the next eviction and
    /// no answer.
    ///
    /// The caller may then postpone the lookup: it passes the use to the next [`Design::used`],
    /// before any other change of the design. A design that is not sure, or does not support this,
    /// returns `None`.
    fn hit(&self, _lba: Lba) -> Option<Hit> {
        None
    }

    /// Returns as [`Design::hit`], for a caller that has read the metadata slot of `lba`.
    ///
    /// [`Design::unread`] named the slot, and the caller has not [told](Design::tell) it. Newer
    /// knowledge of the design decides. After `None` the caller tells the slot.
    fn hit_with(&self, _lba: Lba, _slot: SlotId, _entry: &RegionEntry) -> Option<Hit> {
        None
    }

    /// Applies the lookup of a new hit at once, beside other threads that find and apply hits.
    /// Returns false and changes nothing if that is impossible. The use then goes to the next
    /// [`Design::used`], with all later ones before that call.
    fn use_now(&self, _hit: &Use) -> bool {
        false
    }

    /// Applies postponed uses from [`Design::hit`] and [`Design::hit_with`] in their order, as a
    /// batch.
    ///
    /// The batch follows BP-Wrapper (Ding, Jiang and Zhang, ICDE 2009, section III), which
    /// prefetches the memory of the batch (section III.B).
    fn used(&mut self, uses: &[Use]) {
        for hit in uses {
            self.lookup(hit.lba);
        }
    }

    /// Returns whether `lba` maps to this content at `place`, as far as known without a metadata
    /// slot.
    fn maps_to(&self, lba: Lba, place: &Place, _fingerprint: &Fingerprint) -> bool {
        matches!(self.peek(lba), Lookup::Chunk { place: now, .. } if now == *place)
    }

    /// Returns the place of a stored chunk with this content that may take another reference.
    ///
    /// Counts as a use.
    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place>;

    /// Maps `lba`; a write that the origin lacks has a sequence number. Replaces an older mapping
    /// or a trimmed run of the address.
    fn map(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>);

    /// Maps as [`Design::map`], and returns the part of it that may run beside later decisions.
    ///
    /// Until that part is done, the caller on this thread asks the design only for dirty state,
    /// room and changed metadata slots.
    fn map_deferring(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred {
        self.map(lba, new, dirty_seq);
        Deferred::nothing()
    }

    /// Forgets `lba`. Returns whether it was mapped or trimmed, or a crash might bring that back.
    fn unmap(&mut self, lba: Lba) -> bool;

    /// Returns the remembered content of `lba`, if `lba` is unmapped and the content is stored for
    /// others.
    ///
    /// The caller may map `lba` as a duplicate of it. A design without ghosts has none.
    fn remembered(&self, _lba: Lba) -> Option<Fingerprint> {
        None
    }

    /// Forgets `lba` before an overwrite that maps it anew. Returns as [`Design::unmap`].
    ///
    /// A design that counts an overwrite as a use of the address keeps the address in mind.
    fn suspend(&mut self, lba: Lba) -> bool {
        self.unmap(lba)
    }

    /// Returns whether `lba` is a ghost: an address that the design remembers without its data.
    ///
    /// A request of a ghost is a miss that informs the design. A ghost is not mapped, and its known
    /// content is not stored. A design that remembers no replaced address has none.
    fn is_ghost(&self, _lba: Lba) -> bool {
        false
    }

    /// Forgets a run of chunks of any length, trimmed parts included.
    fn unmap_run(&mut self, first: Lba, count: u64);

    /// [Unmaps](Design::unmap) each address of a run of any length, at the cost of its mapped chunks.
    /// Returns whether any of them is logged; for a long run, it may say so without need.
    fn unmap_each(&mut self, first: Lba, count: u64, leaving: Leaving) -> bool {
        let mapped = self.mapped_in(first, count);
        unmap_some(self, mapped, (first, count), leaving)
    }

    /// Returns the addresses in a run that have an index entry, ascending; an entry may be stale.
    ///
    /// An index that does not know the owners of its entries yields the addresses that the design
    /// knows elsewhere.
    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// Returns whether [`Design::unmap`] or [`Design::suspend`] says yes for any address in a run.
    /// Forgetting that address must then be logged.
    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        let is_trimmed = |run: Run| run.first.0 < first.0.saturating_add(count);
        self.trimmed_from(first).is_some_and(is_trimmed) || !self.mapped_in(first, count).is_empty()
    }

    /// Forgets the mappings of a run, which reads as zeroes until the origin is zeroed. Parts in a
    /// trimmed run have no mappings and cost nothing.
    fn trim(&mut self, run: Run);

    /// Returns how many of `count` chunks from `first` one short [`Design::trim`] takes. At most
    /// `mapped_max` of them are mapped.
    fn trim_span(&self, first: Lba, count: u64, mapped_max: usize) -> u64 {
        self.mapped_in(first, count).get(mapped_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Returns whether the LBA index has room for `count` more entries.
    fn has_room(&self, count: u64) -> bool;

    /// Returns the sequence number of `lba`'s dirty data.
    fn dirty_seq(&self, lba: Lba) -> Option<u64>;

    /// Returns up to `max` dirty chunks from `from` on, by address, with their sequence numbers.
    fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)>;

    /// Returns the first trimmed run that ends after `from`.
    fn trimmed_from(&self, from: Lba) -> Option<Run>;

    /// Counts the dirty data.
    fn dirty_counts(&self) -> DirtyCounts;

    /// Marks `lba` clean if `seq` is still its newest sequence number, because the origin has it.
    /// Forgets a fragment then. Returns whether it became clean.
    fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool;

    /// Forgets the rest of `run` under its sequence number, because the origin has the trim.
    fn mark_run_clean(&mut self, run: &Run);

    /// Returns the metadata slot to read and [tell](Design::tell) before the question has an
    /// answer. A design that knows everything in RAM needs none.
    fn unread(&self, _question: Question<'_>) -> Option<SlotId> {
        None
    }

    /// Tells the content of a slot's metadata slot; `None` if it is damaged or unreadable.
    fn tell(&mut self, _slot: SlotId, _entry: Option<Arc<RegionEntry>>) {}

    /// Returns the next metadata slot to write: each change once, in order.
    fn next_changed_entry(&mut self) -> Option<Arc<RegionEntry>> {
        None
    }

    /// Returns the current content to write for an entry from [`Design::next_changed_entry`].
    ///
    /// It may have changed since. Returns `None` if another change wrote it already, or if it
    /// became useless.
    fn entry_to_write(&self, _slot: SlotId) -> Option<Arc<RegionEntry>> {
        None
    }

    /// Reports that `entry` is on flash in this form.
    fn entry_written(&mut self, _entry: &Arc<RegionEntry>) {}

    /// Returns the slot whose metadata must not name `lba` on flash yet.
    ///
    /// The caller first [settles](Design::settle) the address or [commits](Design::committed) it.
    /// After a crash a metadata slot must not name more than the log or the origin has.
    fn held_at(&self, _lba: Lba) -> Option<SlotId> {
        None
    }

    /// Hides the record at `place`, which is damaged or unreadable. A design with contents on flash
    /// never finds it again, also after a restart. The mappings of the record stay.
    fn spoil(&mut self, _place: &Place) {}

    /// Counts the [held](Design::held_at) addresses. Each may cost as much RAM as a metadata slot.
    fn held_entries(&self) -> usize {
        0
    }

    /// Settles the held chunk `lba`: the origin durably has its mapped content. `is_durable` is
    /// false if the chunk is mapped to something else by now. No effect on an address that is not
    /// held.
    fn settle(&mut self, _lba: Lba, _is_durable: bool) {}

    /// Reports that the log durably has every write with a number below `upto`.
    fn committed(&mut self, _upto: u64) {}

    /// Opens a free slot for a class of data; returns slot and generation. A design whose choice
    /// depends on the data returns none.
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)>;

    /// Opens a free slot for a record, as [`Design::open_slot`] if any slot will do.
    ///
    /// A design that allows only certain slots remembers an unplaced record and makes room for it
    /// by evictions.
    fn open_slot_for(&mut self, class: StreamClass, _wanted: &Wanted) -> Option<(SlotId, u32)> {
        self.open_slot(class)
    }

    /// Seals an open slot that is full.
    fn seal_slot(&mut self, slot: SlotId);

    /// Counts the free slots.
    fn free_slots(&self) -> usize;

    /// Chooses a slot for replacement; it takes no new references from now on. `busy` names slots
    /// to pass over.
    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim>;

    /// Chooses this slot for replacement, if it may go; for a simulator whose drive decides. A
    /// design with its own order acts as if all other slots were busy.
    fn choose_slot(&mut self, slot: SlotId) -> Option<Victim> {
        self.choose_victim(&mut |other| other != slot)
    }

    /// Gives a victim back unharmed if its data cannot leave now. It is not the next choice while
    /// another slot may go.
    fn spare_victim(&mut self, slot: SlotId);

    /// Returns the dirty chunks that map into `slot`.
    fn dirty_in(&self, slot: SlotId) -> Vec<Lba>;

    /// Evicts a victim and ends every mapping into it. Returns the generation that ended. Returns
    /// `None` and changes nothing while dirty mappings point into it.
    fn evict(&mut self, slot: SlotId) -> Option<u32>;

    /// Frees an evicted slot that is durable as such and trimmed.
    fn release_slot(&mut self, slot: SlotId);

    /// Returns whether enough slots will likely go to be worth a commit of the log.
    ///
    /// The evictor then cleans them and [frees them ahead](Design::free_ahead). A design that
    /// evicts slots before it needs them has none.
    fn is_freeing_due(&self) -> bool {
        false
    }

    /// Returns about `max` of these slots at most. A slot comes once until a new record is stored
    /// there.
    fn likely_victims(&mut self, _max: usize) -> Vec<SlotId> {
        Vec::new()
    }

    /// Frees `slot` ahead: entry `seq` of the log, and any later checkpoint, says that it is free.
    ///
    /// All of the slot is on flash. Its mappings stay and hit until the slot is
    /// [reused](Design::reuse) or [kept](Design::keep). A mapping of a new chunk into it keeps it,
    /// as does [`Design::choose_victim`]. Returns the generation for that entry. Returns `None`,
    /// for no entry, if the slot is dirty, is going in any case, or is logged as free already.
    fn free_ahead(&mut self, _slot: SlotId, _seq: u64) -> Option<u32> {
        None
    }

    /// Returns the slots that must go for the waiting record of `lba`; none once a victim was
    /// chosen for it.
    fn in_the_way(&self, _lba: Lba) -> Vec<SlotId> {
        Vec::new()
    }

    /// Returns whether `slot` was freed ahead by an entry below `durable_below`, and not kept
    /// since.
    ///
    /// The log durably has the entries below `durable_below`. The slot has nothing dirty, and no
    /// eviction of it is under way.
    fn is_freed(&mut self, _slot: SlotId, _durable_below: u64) -> bool {
        false
    }

    /// Frees the slots [in the way](Design::in_the_way) at once, as [`Design::release_slot`] does.
    /// All of them [are freed](Design::is_freed), with no reader and no write under way.
    fn reuse(&mut self, _slots: &[SlotId]) {}

    /// Keeps `slot`: behind its early *slot freed*, the log maps a chunk there.
    fn keep(&mut self, _slot: SlotId) {}

    /// Keeps all slots that were freed ahead, at an orderly end. No log follows the last
    /// checkpoint.
    fn keep_all(&mut self) {}

    /// Cleans stale entries in one background step; returns how many it removed.
    fn sweep(&mut self) -> usize;

    /// Forgets some clean chunks of zeroes if there are too many; with `all`, a shard's worth in
    /// any case.
    ///
    /// No eviction of a WEU would remove them. The caller logs the returned addresses, because a
    /// crash must not bring them back. A design that replaces single addresses forgets its replaced
    /// ones here. One call returns at most `max`, because the queue of the log is bounded; the rest
    /// comes with the next calls.
    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba>;

    /// Begins a checkpoint; later log entries are replayed over it. A checkpoint that had begun
    /// before failed.
    fn checkpoint_begins(&mut self) {}

    /// Ends the last checkpoint as durable. Entries that waited for the log at its beginning are
    /// committed.
    fn checkpoint_is_durable(&mut self) {}

    /// Counts the pieces of [`Design::export_mappings`].
    fn export_pieces(&self) -> usize;

    /// Returns one piece of the live mappings.
    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping>;

    /// Counts the design's own pages in a checkpoint.
    fn page_count(&self) -> usize {
        0
    }

    /// Returns one of these pages.
    fn export_page(&self, _page: usize) -> Vec<u8> {
        Vec::new()
    }

    /// Begins an export of slots and fingerprints, piece by piece while the design goes on. At most
    /// one export runs.
    fn begin_export(&mut self);

    /// Returns the next slots in the order of [`Design::export_slots`]; `None` at the end. Each
    /// slot comes once, in its state at that moment.
    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>>;

    /// Returns the next known fingerprints with live places; `None` at the end.
    ///
    /// They come in the order of [`Design::export_fingerprints`], each once. Content that came
    /// after the beginning is left out; the log has it if its mapping lasts until it is logged.
    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>>;

    /// Returns an empty draft of the design's history: its order of addresses, and its ghosts.
    ///
    /// The history goes into pages of [`PAGE_BYTES`](crate::history::PAGE_BYTES), the last one
    /// shorter, and drops entries without room. A design has a history or
    /// [pages](Design::page_count), or neither.
    fn begin_history(&self) -> Option<Draft> {
        None
    }

    /// Adds the next piece to the draft; returns whether more follows. The design may change
    /// between two pieces. Doubtful addresses come without content, because the origin may have
    /// lost it.
    fn export_history(&mut self, _draft: &mut Draft, _is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        false
    }

    /// Returns the known fingerprints with live places, least recent first.
    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)>;

    /// Returns the slots with generation and state, least recent first.
    fn export_slots(&self) -> Vec<ExportedSlot>;

    /// Returns the slots in use that a metadata slot describes, as ascending runs: first slot and
    /// length.
    ///
    /// Each run is a record. A design with its places in RAM has none.
    fn stored_runs(&self) -> Vec<(SlotId, u32)> {
        Vec::new()
    }

    /// Returns whether a search for this content ends at the record that begins in `slot`.
    fn is_found_in(&self, _slot: SlotId, _fingerprint: &Fingerprint) -> bool {
        false
    }

    /// Forgets the chosen [stored runs](Design::stored_runs) for a repair.
    ///
    /// Dirty chunks stay, but no search finds their content from then on. A design without stored
    /// runs forgets nothing.
    fn forget_clean(&mut self, _is_wrong: &dyn Fn(SlotId) -> bool) {}

    /// Returns the trimmed runs.
    fn export_runs(&self) -> Vec<Run>;

    /// Begins recovery and makes room for so many mappings and fingerprints. From now on, dirty
    /// state is known only after [`Design::settle_dirty`].
    fn begin_restore(&mut self, mappings: u64, fingerprints: u64);

    /// Recovery: says how far the history of the checkpoint holds. Without this call the content of
    /// every unmapped address is unknown.
    fn trust_history(&mut self, _trust: Trust) {}

    /// Recovery: takes a page of the design or of its history. Returns false and changes nothing
    /// for an invalid page.
    fn restore_page(&mut self, _page: usize, _bytes: &[u8]) -> bool {
        false
    }

    /// Recovery: hints that `lba` is about to be mapped, so that many waits for memory become one.
    /// Changes nothing.
    fn touch(&self, lba: Lba);

    /// Recovery: makes dirty state known.
    fn settle_dirty(&mut self);

    /// Ends recovery.
    fn end_restore(&mut self);

    /// Recovery: says that `slot` holds data of `generation`. Returns false if that is impossible,
    /// or if the slot has moved on.
    fn restore_slot(&mut self, slot: SlotId, generation: u32) -> bool;

    /// Recovery: says that the restored `slot` holds data of this class.
    fn restore_class(&mut self, slot: SlotId, class: StreamClass);

    /// Recovery: says that `slot` was freed at `generation`.
    fn restore_freed(&mut self, slot: SlotId, generation: u32);

    /// Recovery: makes `fingerprint` the content of `place`, and the most recent one.
    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place);

    /// Recovery: as [`Design::restore_fingerprint`], for a log, which often repeats a content.
    fn restore_duplicate(&mut self, fingerprint: &Fingerprint, place: &Place);

    /// Returns the counts.
    fn stats(&self) -> DesignStats;
}

/// Unmaps the leaving ones of `mapped`, addresses of a run, and trimmed parts.
///
/// Returns as [`Design::unmap_each`].
pub(crate) fn unmap_some<D: Design + ?Sized>(
    design: &mut D,
    mut mapped: Vec<Lba>,
    (first, count): (Lba, u64),
    leaving: Leaving,
) -> bool {
    let end = first.0.saturating_add(count);
    let is_owed = |design: &D, lba| {
        design.dirty_seq(lba).is_some() || design.trimmed_from(lba).is_some_and(|run| run.first <= lba)
    };
    mapped.sort_unstable();
    mapped.dedup();
    let mut any = false;
    for lba in mapped {
        if leaving == Leaving::All || !is_owed(design, lba) {
            any |= design.unmap(lba);
        }
    }
    if leaving == Leaving::All && design.trimmed_from(first).is_some_and(|run| run.first.0 < end) {
        design.unmap_run(first, count);
        any = true;
    }
    any
}
