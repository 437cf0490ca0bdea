//! [`Provisional`]: a design that reads flash before it is sure, or frees slots ahead.
//!
//! Invariants: a design without it knows each answer in RAM. A [`Decider`](crate::decider::Decider)
//! answers for such a design.
//!
//! It does not read the flash.

use super::{Deferred, Hit, NewMapping, Question, Use, Wanted};
use crate::{
    region::RegionEntry,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};
use std::sync::Arc;

/// The answers that need a metadata slot of the flash, and the slots that are freed ahead.
pub trait Provisional {
    /// Returns the slot that `lba` maps into, as far as the design knows it without a metadata
    /// slot.
    fn slot_of(&self, lba: Lba) -> Option<SlotId>;

    /// Returns as `Mapping::hit`, for a caller that has read the metadata slot of `lba`.
    ///
    /// [`Provisional::unread`] named the slot, and the caller has not [told](Provisional::tell) it.
    /// Newer knowledge of the design decides. After `None` the caller tells the slot.
    fn hit_with(&self, lba: Lba, slot: SlotId, entry: &RegionEntry) -> Option<Hit>;

    /// Applies the lookup of a new hit at once, beside other threads that find and apply hits.
    /// Returns false and changes nothing if that is impossible. The use then goes to the next
    /// `Mapping::used`, with all later ones before that call.
    fn use_now(&self, hit: &Use) -> bool;

    /// Returns whether `lba` maps to this content at `place`, as far as known without a metadata
    /// slot.
    fn maps_to(&self, lba: Lba, place: &Place, fingerprint: &Fingerprint) -> bool;

    /// Returns whether the design maps dirty zeroes. Else they are a trimmed run.
    fn keeps_zeroes(&self) -> bool;

    /// Maps as `Mapping::map`, and returns the part of it that may run beside later decisions.
    ///
    /// The log has a dirty mapping under its sequence number. Until that part is done, the caller
    /// on this thread asks the design only for room and changed metadata slots.
    fn map_deferring(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) -> Deferred;

    /// Returns the metadata slot to read and [tell](Provisional::tell) before the question has an
    /// answer. A design that knows everything in RAM needs none.
    fn unread(&self, question: Question<'_>) -> Option<SlotId>;

    /// Tells the content of a slot's metadata slot; `None` if it is damaged or unreadable.
    fn tell(&mut self, slot: SlotId, entry: Option<Arc<RegionEntry>>);

    /// Returns the next metadata slot to write: each change once, in order.
    fn next_changed_entry(&mut self) -> Option<Arc<RegionEntry>>;

    /// Returns the current content to write for an entry from [`Provisional::next_changed_entry`].
    ///
    /// It may have changed since. Returns `None` if another change wrote it already, or if it
    /// became useless.
    fn entry_to_write(&self, slot: SlotId) -> Option<Arc<RegionEntry>>;

    /// Reports that `entry` is on flash in this form.
    fn entry_written(&mut self, entry: &Arc<RegionEntry>);

    /// Returns the slot whose metadata must not name `lba` on flash yet.
    ///
    /// The caller first [settles](Provisional::settle) the address or
    /// [commits](Provisional::committed) it. After a crash a metadata slot must not name more than
    /// the log or the origin has.
    fn held_at(&self, lba: Lba) -> Option<SlotId>;

    /// Hides the record at `place`, which is damaged or unreadable. A design with contents on flash
    /// never finds it again, also after a restart. The mappings of the record stay.
    fn spoil(&mut self, place: &Place);

    /// Counts the [held](Provisional::held_at) addresses. Each may cost as much RAM as a metadata
    /// slot.
    fn held_entries(&self) -> usize;

    /// Settles the held chunk `lba`: the origin durably has its mapped content. `is_durable` is
    /// false if the chunk is mapped to something else by now. No effect on an address that is not
    /// held.
    fn settle(&mut self, lba: Lba, is_durable: bool);

    /// Reports that the log durably has every write with a number below `upto`.
    fn committed(&mut self, upto: u64);

    /// Opens a free slot for a record, as `Slots::open_slot` if any slot will do.
    ///
    /// A design that allows only certain slots remembers an unplaced record and makes room for it
    /// by evictions.
    fn open_slot_for(&mut self, class: StreamClass, wanted: &Wanted) -> Option<(SlotId, u32)>;

    /// Returns whether enough slots will likely go to be worth a commit of the log.
    ///
    /// The evictor then cleans them and [frees them ahead](Provisional::free_ahead). A design that
    /// evicts slots before it needs them has none.
    fn is_freeing_due(&self) -> bool;

    /// Returns about `max` of these slots at most. A slot comes once until a new record is stored
    /// there.
    fn likely_victims(&mut self, max: usize) -> Vec<SlotId>;

    /// Frees `slot` ahead: entry `seq` of the log, and any later checkpoint, says that it is free.
    ///
    /// All of the slot is on flash. Its mappings stay and hit until the slot is
    /// [reused](Provisional::reuse) or [kept](Provisional::keep). A mapping of a new chunk into it
    /// keeps it, as does `Slots::choose_victim`. Returns the generation for that entry. Returns
    /// `None`, for no entry, if the slot is dirty, is going in any case, or is logged as free
    /// already.
    fn free_ahead(&mut self, slot: SlotId, seq: u64) -> Option<u32>;

    /// Returns the slots that must go for the waiting record of `lba`; none after a victim was
    /// chosen.
    fn in_the_way(&self, lba: Lba) -> Vec<SlotId>;

    /// Returns whether `slot` was freed ahead by an entry below `durable_below`, and not kept
    /// since.
    ///
    /// The log durably has the entries below `durable_below`. The slot has nothing dirty, and no
    /// eviction of it is under way.
    fn is_freed(&mut self, slot: SlotId, durable_below: u64) -> bool;

    /// Frees the slots [in the way](Provisional::in_the_way) at once, as `Slots::release_slot`
    /// does. All of them [are freed](Provisional::is_freed), with no reader and no write under way.
    fn reuse(&mut self, slots: &[SlotId]);

    /// Keeps `slot`: behind its early *slot freed*, the log maps a chunk there.
    fn keep(&mut self, slot: SlotId);

    /// Keeps all slots that were freed ahead, at an orderly end. No log follows the last
    /// checkpoint.
    fn keep_all(&mut self);

    /// Counts the design's own pages in a checkpoint.
    fn page_count(&self) -> usize;

    /// Returns one of these pages.
    fn export_page(&self, page: usize) -> Vec<u8>;

    /// Recovery: takes a page. Returns false and changes nothing for an invalid one.
    fn restore_page(&mut self, page: usize, bytes: &[u8]) -> bool;

    /// Returns the slots in use that a metadata slot describes, as ascending runs: first slot and
    /// length.
    ///
    /// Each run is a record. A design with its places in RAM has none.
    fn stored_runs(&self) -> Vec<(SlotId, u32)>;

    /// Returns whether a search for this content ends at the record that begins in `slot`.
    fn is_found_in(&self, slot: SlotId, fingerprint: &Fingerprint) -> bool;

    /// Forgets the chosen [stored runs](Provisional::stored_runs) for a repair.
    ///
    /// Dirty chunks stay, but no search finds their content from then on. A design without stored
    /// runs forgets nothing.
    fn forget_clean(&mut self, is_wrong: &dyn Fn(SlotId) -> bool);
}
