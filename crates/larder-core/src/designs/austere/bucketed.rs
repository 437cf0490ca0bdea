//! AustereCache as a [`Design`](crate::Design) over a real flash, with exact dirty data.
//!
//! A clean mapping is in the paper's indices alone, so its answer is provisional. The caller asks
//! for the metadata slot to read ([`Provisional::unread`](crate::design::Provisional::unread)),
//! reads it, comes back with it ([`Provisional::tell`](crate::design::Provisional::tell)), and asks
//! again. Dirty chunks, fragments and trimmed runs are [`exact`]: a hash that two addresses or two
//! contents share never decides about data that the origin lacks. The indices have dirty chunks,
//! too, as in the paper. An address that they lose stays readable until its destage.
//!
//! Concurrent reads need not tell the design of a clean hit. The caller asks with the entry in hand
//! ([`Provisional::hit_with`](crate::design::Provisional::hit_with)), and applies its recency
//! later, as for a dirty hit. The entry of such a hit is not remembered for a duplicate, whose
//! search reads again.
//!
//! A chunk's content determines its bucket, so the design makes room for one content at a time.
//! [`Provisional::open_slot_for`](crate::design::Provisional::open_slot_for) receives the content,
//! and remembers it if there is no room.
//! [`Slots::choose_victim`](crate::design::Slots::choose_victim) then names the runs that the paper
//! would evict, and the caller comes back when they are free. The slots of an evicted run are
//! unusable until its end is durable.
//!
//! Departures from the paper, beside those of [`austere`](super):
//! - *Dirty chunks are exact*, so a read of one needs no metadata slot, and the indices need no
//!   dirty flags.
//! - *Fragments* are unique contents. Their metadata slots list no address.
//! - *A run under eviction counts as evicted* in the choice of the next victim. A run that could
//!   not leave goes last.
//!
//! Invariants: those of [`Design`](crate::Design). A metadata slot that lists the address, under
//! the run's FP-hash, confirms each find of the indices. A run with dirty addresses is never
//! evicted.
//!
//! It leaves reads and writes of metadata slots, and their timing, to the engine. It does not have
//! the losses of the indices logged; therefore [`Mapping::unmap`](crate::design::Mapping::unmap)
//! reports a lost address, too, as possibly mapped.

mod ahead;
pub(super) mod census;
mod decisions;
pub mod entries;
pub mod exact;
mod forget;
mod freeing;
mod indices;
mod mapping;
pub mod memory;
mod provisional;
pub mod ram;
mod wishes;

use super::{Austere, AustereConfig, AustereError, fp_index::SlotRun, keys::Key, pages::pages_max};
use crate::{
    design::{Deferred, DesignConfig, Lookup, Question, Wanted},
    named::DesignLayout,
    region::{RegionEntry, RunMetadata},
    types::{Fingerprint, Lba, Place, SlotId, mix},
};
use ahead::Ahead;
use entries::{Entries, EntryState, Until};
use exact::{Exact, PIECES};
use hashbrown::HashSet;
use indices::Indices;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Reference count of a content that could not be evicted when it was chosen.
const STUCK: u32 = u32::MAX;
/// Maximum number of fragments of one address, old ones included, before one replaces another.
const FRAGMENT_TURNS: u64 = 8;

/// Pages of a checkpoint before those of the indices: the first has the next generation.
const HEAD_PAGES: usize = 1;
/// Longest run whose addresses are forgotten one by one, which takes some tenths of a second. A
/// longer run forgets clean chunks elsewhere, too. (A trim is shorter; a run that recovery reads
/// from a log may be longer.)
const ASKED_MAX: u64 = 1 << 22;
/// Maximum number of suspended addresses before an overwrite; more are just forgotten.
const SUSPENDED_MAX: usize = 4096;

/// The sizes of such a cache.
#[derive(Clone, Copy, Debug)]
pub struct BucketedConfig {
    /// Layout of the indices; never in write-back, because dirty chunks are kept apart.
    pub austere: AustereConfig,
    /// Chunks of the volume.
    pub chunk_count: u64,
    /// Maximum number of dirty chunks and fragments.
    pub exact_max: u64,
}

impl BucketedConfig {
    /// Returns the sizes for this division of a flash.
    pub fn of(config: DesignConfig, layout: &DesignLayout) -> BucketedConfig {
        BucketedConfig {
            austere: AustereConfig::of_layout(layout, config.slot_count.into()),
            chunk_count: layout.chunk_count,
            exact_max: config.mappings_max,
        }
    }
}

/// Returns the maximum pages of a checkpoint for this layout or fewer slots; none if it is
/// impossible.
pub fn pages_for(config: &AustereConfig) -> u64 {
    pages_max(config).map_or(0, |pages| (HEAD_PAGES + pages) as u64)
}

/// A record that waits for room.
struct Wish {
    fingerprint: Fingerprint,
    slots: u32,
    /// The runs that must go for it, of those found at the search, and are not chosen yet.
    victims: Vec<SlotId>,
    /// True if the address is mapped to the content already.
    is_mapped: bool,
}

/// See the module.
pub struct Bucketed {
    indices: Arc<Indices>,
    exact: Exact,
    exact_max: u64,
    entries: Entries,
    /// Generation of the next stored run. All earlier generations are less, unless it wrapped.
    generation: u32,
    /// Records that wait for room, by address: the newest of each.
    wishes: BTreeMap<Lba, Wish>,
    /// The wish of the last chosen run.
    turn: Lba,
    /// Chosen runs, by their first slots.
    leaving: BTreeSet<SlotId>,
    /// Evicted runs among them that are not free yet.
    retired: BTreeSet<SlotId>,
    /// Runs that could not leave when they were chosen.
    stuck: BTreeSet<SlotId>,
    /// LBA-hashes whose content is being overwritten: their index entries are invalid.
    suspended: HashSet<Key>,
    /// Runs that are freed ahead.
    ahead: Ahead,
    /// True during recovery.
    is_restoring: bool,
    /// Recovery: the last mapped address, if it is a duplicate whose content comes next.
    untold: Option<Lba>,
    /// Recovery: true if pages were restored and references are not counted.
    is_uncounted: bool,
}

impl Bucketed {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// An impossible layout.
    pub fn new(config: BucketedConfig) -> Result<Self, AustereError> {
        let core = Austere::new(AustereConfig { is_write_back: false, ..config.austere })?;
        Ok(Bucketed {
            ahead: Ahead::new(core.slot_count() as u32),
            indices: Arc::new(Indices::new(core)),
            exact: Exact::new(config.chunk_count),
            exact_max: config.exact_max,
            entries: Entries::default(),
            generation: 0,
            wishes: BTreeMap::new(),
            turn: Lba(0),
            leaving: BTreeSet::new(),
            retired: BTreeSet::new(),
            stuck: BTreeSet::new(),
            suspended: HashSet::new(),
            is_restoring: false,
            untold: None,
            is_uncounted: false,
        })
    }

    /// Returns the decisions of the paper.
    pub fn core(&self) -> &Austere {
        &self.indices.core
    }

    /// Returns the run that the indices name for an address, unless it is evicted.
    fn run_of(&self, lba: Lba) -> Option<SlotRun> {
        if !self.suspended.is_empty() && self.suspended.contains(&self.indices.core.key_of_lba(lba)) {
            return None;
        }
        self.indices.core.lookup(lba).filter(|run| !self.retired.contains(&SlotId(run.first)))
    }

    /// Returns the run of a content, unless it is leaving.
    fn run_with(&self, fingerprint: &Fingerprint) -> Option<SlotRun> {
        self.indices.core.find_content(fingerprint).filter(|run| !self.leaving.contains(&SlotId(run.first)))
    }

    /// Returns the known entry of `run`, if it is that run's.
    fn entry_of(&self, run: SlotRun) -> Option<&RegionEntry> {
        let entry = self.entries.get(SlotId(run.first))??;
        self.indices.core.is_run_of(run, entry.metadata.fingerprint()).then_some(entry)
    }

    /// Returns the mapping of `lba`, as far as known without a read.
    fn find(&self, lba: Lba) -> Lookup {
        let exact = self.exact.get(lba);
        if exact != Lookup::Miss {
            return exact;
        }
        let entry = self.run_of(lba).and_then(|run| self.entry_of(run)).filter(|entry| entry.metadata.has(lba));
        entry.map_or(Lookup::Miss, |entry| Lookup::Chunk { place: entry.place, duplicate: false })
    }

    /// Returns the metadata slot to read before `question` has an answer.
    fn unread_for(&self, question: Question<'_>) -> Option<SlotId> {
        match question {
            Question::Address(lba) => {
                if self.exact.get(lba) != Lookup::Miss {
                    return None;
                }
                let slot = SlotId(self.run_of(lba)?.first);
                (self.entries.state(slot) == EntryState::Unread).then_some(slot)
            }
            Question::Content(fingerprint) => {
                let slot = SlotId(self.run_with(fingerprint)?.first);
                self.entries.get(slot).is_none().then_some(slot)
            }
        }
    }

    /// Returns the content that `wanted` counts as. It is the record's own content if that can have
    /// room. Otherwise, and for a fragment, it is a unique one.
    fn content_of(&self, wanted: &Wanted) -> Fingerprint {
        if let Some(own) = wanted.fingerprint
            && (self.stuck.is_empty() || self.can_have_room(&own, wanted))
        {
            return own;
        }
        let now = match self.exact.get(wanted.lba) {
            Lookup::Fragment { place, .. } | Lookup::Chunk { place, .. } => Some(place.slot),
            _ => None,
        };
        let others = (0..FRAGMENT_TURNS).map(|turn| fragment_content(wanted.lba, turn));
        // Not the content that it replaces, which stays until the new one is durable.
        let is_other = |content: &Fingerprint| {
            let slot = self.indices.core.find_content(content).map(|run| SlotId(run.first));
            slot.is_none_or(|slot| Some(slot) != now && !self.leaving.contains(&slot))
        };
        let can_be = |content: &Fingerprint| is_other(content) && self.can_have_room(content, wanted);
        let found = others.clone().find(can_be).or_else(|| others.clone().find(is_other));
        found.unwrap_or(fragment_content(wanted.lba, 0))
    }

    /// Hides the record at `place` from searches for content.
    fn spoil_run(&mut self, place: &Place) {
        let Some(run) = self.indices.core.run_from(place.slot.0) else { return };
        let is_its = |lookup: Lookup| matches!(lookup, Lookup::Chunk { place: now, .. } if now == *place);
        let is_there = self.entry_of(run).is_some_and(|entry| entry.place == *place)
            || self.exact.in_slot(place.slot).any(|lba| is_its(self.exact.get(lba)));
        if is_there && !self.retired.contains(&place.slot) {
            let mut metadata = RunMetadata::EMPTY;
            metadata.reset_unlisted(spoiled_content(place.slot), place.stored_len);
            self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        }
    }

    /// Returns whether a content can have room without a run that could not leave.
    fn can_have_room(&self, content: &Fingerprint, wanted: &Wanted) -> bool {
        if self.stuck.is_empty() {
            return true;
        }
        let slots = self.indices.core.slots_for(wanted.stored_len);
        let victims = self.victims_of(&Wish { fingerprint: *content, slots, victims: Vec::new(), is_mapped: true });
        victims.is_none_or(|victims| victims.iter().all(|slot| !self.stuck.contains(slot)))
    }

    /// Returns the runs that must go for a wish and are not chosen yet; `None` if there is room.
    fn victims_of(&self, wish: &Wish) -> Option<Vec<SlotId>> {
        let mut runs = self.in_the_way_of(wish);
        if runs.is_empty() {
            return None;
        }
        runs.retain(|slot| !self.leaving.contains(slot));
        Some(runs)
    }

    /// Returns the runs that must be gone for a wish, chosen ones included.
    fn in_the_way_of(&self, wish: &Wish) -> Vec<SlotId> {
        // A content has one run. The run of its FP-hash goes first: the caller of a wish knows that
        // the content is no duplicate.
        let runs = match self.indices.core.find_content(&wish.fingerprint) {
            Some(run) => vec![run],
            None => {
                let bucket = self.indices.core.bucket_of_content(&wish.fingerprint);
                self.indices.core.victims_in(bucket, wish.slots, |first| self.references_beside(SlotId(first)))
            }
        };
        runs.into_iter().map(|run| SlotId(run.first)).collect()
    }

    /// Forgets the data about a run beside the indices, before it leaves them.
    fn forget_what_was_in(&mut self, slot: SlotId) {
        self.stuck.remove(&slot);
        self.entries.remove(slot);
        self.ahead.keep(slot);
    }

    /// Returns the reference count of a run that was chosen, or could not leave.
    fn references_beside(&self, run: SlotId) -> Option<u32> {
        match self.leaving.contains(&run) {
            true => Some(0),
            false => self.stuck.contains(&run).then_some(STUCK),
        }
    }

    /// Maps the address of a wish to its content before the search for victims (`austere.rs`,
    /// departure 8). It waits while the content's FP-hash has a run, because that may list the
    /// address or another of its LBA-hash.
    fn map_wish(&mut self, lba: Lba) {
        let Some(wish) = self.wishes.get_mut(&lba) else { return };
        let fingerprint = wish.fingerprint;
        if !wish.is_mapped && !is_fragment(&fingerprint) && self.indices.core.find_content(&fingerprint).is_none() {
            wish.is_mapped = true;
            self.map_now(lba, &fingerprint);
        }
    }

    /// Maps an address to the content of the run at `place`. The run's entry lists it from now on,
    /// on flash after it settles.
    fn share(&mut self, lba: Lba, place: &Place, until: Until) -> Deferred {
        let Some(run) = self.indices.core.run_from(place.slot.0) else { return Deferred::nothing() };
        let Some(entry) = self.entry_of(run) else { return Deferred::nothing() };
        let fingerprint = *entry.metadata.fingerprint();
        let core = &self.indices.core;
        self.entries.share(place.slot, lba, until, |list| core.list_change(lba, list));
        self.map_in_core(lba, &fingerprint)
    }

    /// Lets a held address onto flash.
    fn settle_held(&mut self, lba: Lba) {
        let core = &self.indices.core;
        self.entries.settle(lba, |list| core.list_change(lba, list));
    }

    /// Notes a chunk that was stored at `place` for `lba`.
    fn stored(&mut self, lba: Lba, place: &Place, fingerprint: &Fingerprint, until: Until) -> Deferred {
        if self.indices.core.run_from(place.slot.0).is_some_and(|run| !self.indices.core.is_run_of(run, fingerprint)) {
            // The content's own bucket had no room.
            return self.put_unshared(lba, place);
        }
        let mut metadata = RunMetadata::EMPTY;
        metadata.reset(*fingerprint, place.stored_len, lba);
        self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        // The log has a write before any sharer of the run, but a sharer may precede a clean chunk.
        if until == Until::Told {
            self.entries.list_early(place.slot, lba, until);
        }
        self.map_in_core(lba, fingerprint)
    }

    /// Recovery: takes up the content at `place`, which `lba` may have.
    fn restore(&mut self, lba: Option<Lba>, fingerprint: &Fingerprint, place: &Place) {
        let slots = self.indices.core.slots_for(place.stored_len);
        self.count();
        // Another run of the FP-hash with dirty data could not leave when this one was stored.
        let other = self.indices.core.find_content(fingerprint).filter(|run| run.first != place.slot.0);
        let is_elsewhere = other.is_some_and(|run| self.exact.in_slot(SlotId(run.first)).next().is_some());
        if is_elsewhere || !self.indices.core.restore(fingerprint, place.slot.0, slots) {
            // The content does not belong there. A place that no content could have belongs to no
            // address.
            return lba.into_iter().for_each(|lba| self.reserve(lba, place));
        }
        self.generation = self.generation.max(place.generation.wrapping_add(1));
        if let Some(lba) = lba {
            self.map_now(lba, fingerprint);
        }
    }

    /// Recovery: reserves the run at `place` for `lba`; it is in a wrong bucket, or unique.
    fn reserve(&mut self, lba: Lba, place: &Place) {
        let slots = self.indices.core.slots_for(place.stored_len);
        self.generation = self.generation.max(place.generation.wrapping_add(1));
        self.indices.reserve(lba, place.slot.0, slots);
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
    }

    /// Reserves the runs of dirty data that the indices lost.
    fn reserve_exact(&mut self) {
        let pieces = (0..PIECES).flat_map(|piece| self.exact.export(piece));
        let lacks = |place: &Place| self.indices.core.run_from(place.slot.0).is_none();
        let lost: Vec<(Lba, Place)> = pieces
            .filter_map(|mapping| match mapping.lookup {
                Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some((mapping.lba, place)),
                _ => None,
            })
            .filter(|(_, place)| lacks(place))
            .collect();
        lost.into_iter().for_each(|(lba, place)| self.reserve(lba, &place));
    }

    /// Recovery: counts the references in restored pages before any change.
    fn count(&mut self) {
        if std::mem::take(&mut self.is_uncounted) {
            self.indices.core.end_restore();
        }
    }

    /// Maps an address in the indices.
    fn map_in_core(&mut self, lba: Lba, fingerprint: &Fingerprint) -> Deferred {
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
        self.indices.map(lba, fingerprint)
    }

    /// Maps an address in the indices before it returns.
    fn map_now(&mut self, lba: Lba, fingerprint: &Fingerprint) {
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
        self.indices.map_now(lba, fingerprint);
    }

    /// Maps `lba` to a unique content at `place`, in the run that was opened for it or that
    /// recovery knows.
    fn put_unshared(&mut self, lba: Lba, place: &Place) -> Deferred {
        if self.is_restoring {
            self.reserve(lba, place);
            return Deferred::nothing();
        }
        let contents = || (0..FRAGMENT_TURNS).map(|turn| fragment_content(lba, turn));
        let is_here = |run: SlotRun| run.first == place.slot.0;
        let content = contents().find(|content| self.indices.core.find_content(content).is_some_and(is_here));
        let Some(content) = content else { return Deferred::nothing() };
        // The flash still has an older chunk's entry there, whose FP-hash may be the same.
        let mut metadata = RunMetadata::EMPTY;
        metadata.reset_unlisted(content, place.stored_len);
        self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        self.map_in_core(lba, &content)
    }
}

/// Returns a unique content for a fragment of `lba`.
fn fragment_content(lba: Lba, turn: u64) -> Fingerprint {
    let low = mix(lba.0 << 24 | turn);
    Fingerprint((u128::from(u64::MAX) << 64 | u128::from(low)).to_le_bytes())
}

/// Returns a unique content for a damaged record.
fn spoiled_content(slot: SlotId) -> Fingerprint {
    fragment_content(Lba(slot.0.into()), FRAGMENT_TURNS)
}

/// Returns whether the content is a [`fragment_content`].
fn is_fragment(fingerprint: &Fingerprint) -> bool {
    fingerprint.0[8..] == [0xFF; 8]
}

#[cfg(test)]
mod tests;
