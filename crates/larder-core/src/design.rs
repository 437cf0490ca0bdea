//! [`Design`]: the decisions that a caching design makes, and the words in which it makes them.
//!
//! The engine and the simulator drive the same trait. Dirty state, fragments and zeroes are part of it, because
//! each design must gate eviction on them; how content is indexed, kept and replaced is the design's own.
//!
//! Invariants that every design keeps:
//! - [`Design::lookup`] answers with what was mapped last, or a miss.
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
pub use words::{DesignConfig, ExportedMapping, Hit, Lookup, NewMapping, Question, Use, Victim, Wanted};

/// A caching design. Shared by threads, it answers what changes nothing.
pub trait Design: Send + Sync {
    /// What `lba` maps to; counts as a use.
    fn lookup(&mut self, lba: Lba) -> Lookup;

    /// What `lba` maps to, as [`Design::lookup`] would say; does not count as a use.
    fn peek(&self, lba: Lba) -> Lookup;

    /// The slot that `lba` is mapped into, if it is in one; as far as that is known without reading a metadata slot.
    fn slot_of(&self, lba: Lba) -> Option<SlotId> {
        match self.peek(lba) {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot),
            Lookup::Zero | Lookup::Miss => None,
        }
    }

    /// The chunk that `lba` maps to, if a lookup of it would change no answer of the design, but only what it lets go of next. Then
    /// the lookup may be made up for: the caller has it among the next [`Design::used`], before it has the design change
    /// anything else. `None` wherever a design, which need not have this, is not sure of that.
    fn hit(&self, _lba: Lba) -> Option<Hit> {
        None
    }

    /// As [`Design::hit`], for who has just read the metadata slot that [`Design::unread`] named for `lba`, and has not
    /// [told](Design::tell) it. What the design knows that is newer decides. Where this is `None`, the caller tells what it read.
    fn hit_with(&self, _lba: Lba, _slot: SlotId, _entry: &RegionEntry) -> Option<Hit> {
        None
    }

    /// Makes up at once for the lookup of a hit that was just found, beside others who find hits and do so. False, and nothing changed,
    /// where that cannot be: then it is among the next [`Design::used`], and so are all that the caller finds before that.
    fn use_now(&self, _hit: &Use) -> bool {
        false
    }

    /// Makes up for the lookups of what [`Design::hit`] and [`Design::hit_with`] found, in their order: a batch, as of BP-Wrapper (Ding, Jiang and Zhang,
    /// ICDE 2009, section III), which reads ahead in memory what it will need (there, section III.B).
    fn used(&mut self, uses: &[Use]) {
        for hit in uses {
            self.lookup(hit.lba);
        }
    }

    /// Whether `lba` maps to the chunk at `place`, whose content this is; as far as that is known without reading a metadata slot.
    fn maps_to(&self, lba: Lba, place: &Place, _fingerprint: &Fingerprint) -> bool {
        matches!(self.peek(lba), Lookup::Chunk { place: now, .. } if now == *place)
    }

    /// The place of a stored chunk with this content that may take another reference; counts as a use.
    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place>;

    /// Maps `lba`, with the sequence number of the write where the origin does not have it. Whatever the address
    /// mapped to before, a trimmed run included, is gone.
    fn map(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>);

    /// As [`Design::map`], but for what may be done beside later decisions. Until that is done nothing is asked of the design on this
    /// thread but what is dirty, what there is room for and which metadata slots changed.
    fn map_deferring(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred {
        self.map(lba, new, dirty_seq);
        Deferred::nothing()
    }

    /// Forgets `lba`; returns whether it was mapped or part of a trimmed run, or whether a crash might bring such a thing back.
    fn unmap(&mut self, lba: Lba) -> bool;

    /// The content that `lba`, which is not mapped, is remembered to have, where it is stored for others. Whoever may use it
    /// maps it as a duplicate. A design that remembers nothing of what it replaced has none.
    fn remembered(&self, _lba: Lba) -> Option<Fingerprint> {
        None
    }

    /// Forgets `lba`, whose content is about to be overwritten and is mapped anew then; returns as [`Design::unmap`]. A design
    /// that takes an overwrite for a use of the address keeps it in mind.
    fn suspend(&mut self, lba: Lba) -> bool {
        self.unmap(lba)
    }

    /// Whether `lba` is a ghost: remembered without its data, so that a request of it is a miss that tells the design something.
    /// It is not mapped, and its content, as far as that is known, is not stored. A design that remembers nothing of what it
    /// replaced has none.
    fn is_ghost(&self, _lba: Lba) -> bool {
        false
    }

    /// Forgets a run of chunks, trimmed parts included, however long it is.
    fn unmap_run(&mut self, first: Lba, count: u64);

    /// The addresses in a run, ascending, that the index has an entry for; it may be stale. A design whose index does not know whose
    /// its entries are names those that it knows beside it.
    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba>;

    /// Whether [`Design::unmap`], or [`Design::suspend`], would say yes of any address in a run: whoever forgets it has something
    /// to log.
    fn is_forgetting_logged(&self, first: Lba, count: u64) -> bool {
        let is_trimmed = |run: Run| run.first.0 < first.0.saturating_add(count);
        self.trimmed_from(first).is_some_and(is_trimmed) || !self.mapped_in(first, count).is_empty()
    }

    /// Forgets the mappings of a run of chunks. The run reads as zeroes until the origin is zeroed. Parts that lie in a trimmed
    /// run have no mappings and cost nothing.
    fn trim(&mut self, run: Run);

    /// Returns the number of chunks, of `count` from `first`, that one short [`Design::trim`] takes: at most `mapped_max` of them
    /// are mapped.
    fn trim_span(&self, first: Lba, count: u64, mapped_max: usize) -> u64 {
        self.mapped_in(first, count).get(mapped_max).map_or(count, |lba| lba.0 - first.0)
    }

    /// Whether the LBA index has room for `count` more entries.
    fn has_room(&self, count: u64) -> bool;

    /// The sequence number of `lba`'s dirty data.
    fn dirty_seq(&self, lba: Lba) -> Option<u64>;

    /// Up to `max` dirty chunks from `from` on, by address, each with its sequence number.
    fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)>;

    /// The first trimmed run that ends after `from`.
    fn trimmed_from(&self, from: Lba) -> Option<Run>;

    /// How much is dirty.
    fn dirty_counts(&self) -> DirtyCounts;

    /// The origin has `lba` as of `seq`: it is clean if that is still its newest sequence number. A fragment is
    /// forgotten then. Returns whether it was.
    fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool;

    /// The origin was told of `run`: what is left of it under its sequence number is forgotten.
    fn mark_run_clean(&mut self, run: &Run);

    /// The metadata slot that has to be read and [told](Design::tell) before this can be answered. A design that keeps what
    /// it knows in RAM needs none.
    fn unread(&self, _question: Question<'_>) -> Option<SlotId> {
        None
    }

    /// What the metadata slot of `slot` says; `None` where it could not be read, or is damaged.
    fn tell(&mut self, _slot: SlotId, _entry: Option<Arc<RegionEntry>>) {}

    /// A metadata slot that changed and has to be written, each change once and in their order.
    fn next_changed_entry(&mut self) -> Option<Arc<RegionEntry>> {
        None
    }

    /// What is to be written for an entry that [`Design::next_changed_entry`] handed out: it, or what it has become since; `None` where
    /// that was written for another change of it, or is of no use any more.
    fn entry_to_write(&self, _slot: SlotId) -> Option<Arc<RegionEntry>> {
        None
    }

    /// An entry is written as it was then.
    fn entry_written(&mut self, _entry: &Arc<RegionEntry>) {}

    /// The slot whose metadata names `lba` only when the caller [settles](Design::settle) it, or has [committed](Design::committed) it: of
    /// what a metadata slot on flash says a crash must not leave more than the log, or the origin, has.
    fn held_at(&self, _lba: Lba) -> Option<SlotId> {
        None
    }

    /// The record at `place` is damaged, or cannot be read. A design that keeps contents on flash has it found as none from now on, also
    /// after a restart; whose data it is stays as it is.
    fn spoil(&mut self, _place: &Place) {}

    /// How many addresses are [held](Design::held_at). Each may cost as much RAM as a metadata slot.
    fn held_entries(&self) -> usize {
        0
    }

    /// The origin durably has what the clean chunk `lba` is mapped to; or the chunk is mapped to something else by now, and
    /// `is_durable` is false. Of no effect on what is not held.
    fn settle(&mut self, _lba: Lba, _is_durable: bool) {}

    /// The log durably has each write that was mapped with a number below `upto`.
    fn committed(&mut self, _upto: u64) {}

    /// Opens a free slot for a class of data: the slot and its generation. None in a design where that depends on the data.
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)>;

    /// Opens a free slot for a record; where any slot will do, as [`Design::open_slot`]. A design where it may be of certain slots
    /// only remembers what it could not place, and makes room for that by evictions.
    fn open_slot_for(&mut self, class: StreamClass, _wanted: &Wanted) -> Option<(SlotId, u32)> {
        self.open_slot(class)
    }

    /// An open slot is full.
    fn seal_slot(&mut self, slot: SlotId);

    /// Number of free slots.
    fn free_slots(&self) -> usize;

    /// Chooses a slot for replacement; it takes no new references from now on. `busy` names slots to pass over.
    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim>;

    /// Chooses this slot for replacement, as [`Design::choose_victim`] would, if it is one that may be; for a simulator whose drive says
    /// what goes. A design that chooses in an order of its own does as if all others were busy.
    fn choose_slot(&mut self, slot: SlotId) -> Option<Victim> {
        self.choose_victim(&mut |other| other != slot)
    }

    /// Gives a victim back, unharmed: what is in it cannot leave now. It is not the next to be chosen, where another may go.
    fn spare_victim(&mut self, slot: SlotId);

    /// The dirty chunks that map into `slot`.
    fn dirty_in(&self, slot: SlotId) -> Vec<Lba>;

    /// Evicts a victim: every mapping into it dies. Returns the generation that ended; `None`, and nothing changed,
    /// while dirty mappings point into it.
    fn evict(&mut self, slot: SlotId) -> Option<u32>;

    /// An evicted slot is durable as such and trimmed: it is free.
    fn release_slot(&mut self, slot: SlotId);

    /// Whether there are slots that will likely have to go, enough of them to be worth a commit of the log: whoever has an evictor
    /// has them clean and [frees them ahead](Design::free_ahead). A design that lets go of slots before they are needed has none.
    fn is_freeing_due(&self) -> bool {
        false
    }

    /// Some of these, at most about so many; each is named once, until something is stored where it is.
    fn likely_victims(&mut self, _max: usize) -> Vec<SlotId> {
        Vec::new()
    }

    /// The log says as its entry `seq` that `slot`, all of which is on flash, is free; a checkpoint from now on says the same. What is
    /// mapped there stays and hits, until the slot is [reused](Design::reuse), or [kept](Design::keep): who maps a chunk to it keeps it, and
    /// so does [`Design::choose_victim`]. Returns the generation for that entry; `None`, and there shall be no entry, where something there
    /// is dirty, or it goes in any case, or the log says so already.
    fn free_ahead(&mut self, _slot: SlotId, _seq: u64) -> Option<u32> {
        None
    }

    /// The slots that have to go for what waits to be stored for `lba`, and of which none was chosen to go for that.
    fn in_the_way(&self, _lba: Lba) -> Vec<SlotId> {
        Vec::new()
    }

    /// Whether `slot` was freed ahead, and not kept since, by an entry below `durable_below`, which are durable. Nothing of it is dirty then,
    /// and nobody else has it go.
    fn is_freed(&mut self, _slot: SlotId, _durable_below: u64) -> bool {
        false
    }

    /// What is [in the way](Design::in_the_way) goes at once and is free, as after [`Design::release_slot`]: all of it [is
    /// freed](Design::is_freed), nobody reads there, and nothing is being written there.
    fn reuse(&mut self, _slots: &[SlotId]) {}

    /// The log says behind what freed `slot` ahead that a chunk is mapped there.
    fn keep(&mut self, _slot: SlotId) {}

    /// The cache ends in order: what was freed ahead stays, for the checkpoint that follows, behind which is no log.
    fn keep_all(&mut self) {}

    /// One step of the background cleaning of stale entries; returns how many it removed.
    fn sweep(&mut self) -> usize;

    /// Clean chunks of zeroes have no WEU whose eviction would remove them. Forgets some where there are too many, or,
    /// with `all`, a shard's worth in any case, and says which: the caller logs that, for a crash must not bring them back.
    /// A design that replaces addresses by themselves forgets here what it has replaced. At most `max` at a time, for what
    /// waits for the log is bounded; the rest comes with the next calls.
    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba>;

    /// A checkpoint begins: what is logged from now on is replayed over it. What had begun before failed.
    fn checkpoint_begins(&mut self) {}

    /// The checkpoint that began last is durable. Whatever waited for the log when it began was committed before.
    fn checkpoint_is_durable(&mut self) {}

    /// Number of pieces that [`Design::export_mappings`] comes in.
    fn export_pieces(&self) -> usize;

    /// One piece of the live mappings.
    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping>;

    /// How many pages of its own a design keeps in a checkpoint.
    fn page_count(&self) -> usize {
        0
    }

    /// One of these pages.
    fn export_page(&self, _page: usize) -> Vec<u8> {
        Vec::new()
    }

    /// A checkpoint asks for slots and fingerprints piece by piece, while the design goes on: it begins with the first of each. There is
    /// one that asks at a time.
    fn begin_export(&mut self);

    /// The next slots, in the order of [`Design::export_slots`]; `None` at the end. Each slot is among them once, as it was at that moment.
    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>>;

    /// The next known fingerprints with their live places, in the order of [`Design::export_fingerprints`]; `None` at the end. None comes
    /// twice: what came to be known since the export began is left out. The log has it, if its mapping lasts until that is logged.
    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>>;

    /// What a design keeps in a checkpoint beside all that, yet empty: in what order it has its addresses, and which it remembers. It goes
    /// into pages of [`PAGE_BYTES`](crate::history::PAGE_BYTES), the last of which is shorter; what has no room is left out. A
    /// design has this or [pages](Design::page_count), or neither.
    fn begin_history(&self) -> Option<Draft> {
        None
    }

    /// Adds the next piece to it; whether there is more. The design may change between two pieces. Of what is doubtful it does not say what
    /// it holds: the origin may have lost that.
    fn export_history(&mut self, _draft: &mut Draft, _is_doubtful: &dyn Fn(Lba) -> bool) -> bool {
        false
    }

    /// Known fingerprints with their live places, least recent first.
    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)>;

    /// Slots with generation and state, least recent first.
    fn export_slots(&self) -> Vec<ExportedSlot>;

    /// The slots in use of which a metadata slot says what is in them: the first slot of each record, ascending, and how many the
    /// record takes. A design that keeps its places in RAM has none.
    fn stored_runs(&self) -> Vec<(SlotId, u32)> {
        Vec::new()
    }

    /// Whether a search for this content ends at the record that begins in `slot`.
    fn is_found_in(&self, _slot: SlotId, _fingerprint: &Fingerprint) -> bool {
        false
    }

    /// Repair: forgets what lies in such of its [stored runs](Design::stored_runs), dirty chunks excepted, which are found as no
    /// content from then on. A design that has none of them forgets nothing.
    fn forget_clean(&mut self, _is_wrong: &dyn Fn(SlotId) -> bool) {}

    /// Trimmed runs.
    fn export_runs(&self) -> Vec<Run>;

    /// Recovery begins, with so many mappings and fingerprints to come at once: room is made for them. From here on, what
    /// is dirty is known only after [`Design::settle_dirty`].
    fn begin_restore(&mut self, mappings: u64, fingerprints: u64);

    /// Recovery, before it is over: how far the history that came with the checkpoint holds. Where this is not said, an address that is not
    /// mapped may hold anything.
    fn trust_history(&mut self, _trust: Trust) {}

    /// Recovery: one of its pages, or of its history. False, and nothing changed, where it is none.
    fn restore_page(&mut self, _page: usize, _bytes: &[u8]) -> bool {
        false
    }

    /// Recovery: `lba` is about to be mapped. Changes nothing; a hint, so that one wait for memory is one for many.
    fn touch(&self, lba: Lba);

    /// Recovery: what is dirty is asked for now.
    fn settle_dirty(&mut self);

    /// Recovery is over.
    fn end_restore(&mut self);

    /// Recovery: `slot` holds data of `generation`. False where it cannot be, or has moved on since.
    fn restore_slot(&mut self, slot: SlotId, generation: u32) -> bool;

    /// Recovery: `slot`, which was restored, holds data that came as this class.
    fn restore_class(&mut self, slot: SlotId, class: StreamClass);

    /// Recovery: `slot` was freed when its generation was `generation`.
    fn restore_freed(&mut self, slot: SlotId, generation: u32);

    /// Recovery: the content of `place` is `fingerprint`; it becomes the most recent.
    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place);

    /// Recovery: as [`Design::restore_fingerprint`], for a log, which names the same content again and again.
    fn restore_duplicate(&mut self, fingerprint: &Fingerprint, place: &Place);

    /// Counts.
    fn stats(&self) -> DesignStats;
}
