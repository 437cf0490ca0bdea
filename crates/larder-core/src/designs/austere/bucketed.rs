//! AustereCache as a [`Design`](crate::Design) that an engine can run over a real flash: the decisions of [`austere`](super), beside what of
//! the volume is dirty, which is kept with its full address.
//!
//! A clean mapping is in the paper's indices alone, so what they say of it is provisional: the caller asks which metadata slot
//! would tell ([`Design::unread`](crate::Design::unread)), reads it, comes back with it ([`Design::tell`](crate::Design::tell)), and asks again. What is dirty, a fragment or
//! trimmed is [`exact`]: a hash that two addresses or two contents share never decides about data that the origin lacks. The
//! indices have dirty chunks, too, as the paper's have; an address that they lose stays readable until it was destaged.
//!
//! Where many read at once, nothing need be told of a clean chunk that is hit: the caller asks with the entry in hand
//! ([`Design::hit_with`](crate::Design::hit_with)), and its recency is made up for later, as that of a dirty one is.
//! What was read for such a hit is not remembered for a duplicate, which is looked for by a read of its own then.
//!
//! A chunk's content says in which bucket it lies, so room is made for one content at a time: [`Design::open_slot_for`](crate::Design::open_slot_for) is told what is
//! to be stored; where there is no room it remembers that, [`Design::choose_victim`](crate::Design::choose_victim) names the runs which the paper would evict, and
//! the caller comes back when they are free. A run that was evicted is nobody's until its end is durable.
//!
//! Where it departs from the paper, beside what [`austere`](super) says:
//! - *Dirty chunks are exact*, so a read of one looks at no metadata slot, and the indices need no dirty flags.
//! - *Fragments* are content that nothing else has. Their metadata slots list no address.
//! - *What is being evicted counts as evicted* when the next victim is chosen; what could not leave goes last.
//!
//! Invariants: those of [`Design`](crate::Design). What is found by the indices was confirmed by a metadata slot that lists the address, under the
//! FP-hash that the run has. A run with dirty addresses is never evicted.
//!
//! What it does not do: read or write metadata slots, or decide when; have logged what the indices lose by themselves, for which
//! reason [`Design::unmap`](crate::Design::unmap) says of what was lost, too, that it may have been mapped.

mod ahead;
pub(super) mod census;
mod decisions;
pub mod entries;
pub mod exact;
mod indices;
mod mapping;
pub mod memory;
pub mod ram;
mod wishes;

use super::{Austere, AustereConfig, AustereError, fp_index::Run as SlotRun, keys::Key, pages::pages_max};
use crate::{
    design::{Deferred, DesignConfig, Lookup, Question, Wanted},
    named::DesignLayout,
    region::{MetadataSlot, RegionEntry},
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

/// A content counts as one of so many references where it could not be evicted when it should have been.
const STUCK: u32 = u32::MAX;
/// Fragments of one address that there may be at a time, old ones included, before one takes the place of another.
const FRAGMENT_TURNS: u64 = 8;

/// Of the pages that a checkpoint keeps, the first is not of the indices: it has the next generation.
const HEAD_PAGES: usize = 1;
/// The longest run whose addresses are asked about one by one, for some tenths of a second; a longer one forgets what is clean elsewhere,
/// too. (A trim comes in shorter ones; what a recovery reads of a log may be longer.)
const ASKED_MAX: u64 = 1 << 22;
/// Chunks of one trim at most, so that each trim is short.
const TRIMMED_AT_ONCE: u64 = 1 << 14;
/// As many addresses may be about to be overwritten; more are just forgotten.
const SUSPENDED_MAX: usize = 4096;

/// The sizes of such a cache.
#[derive(Clone, Copy, Debug)]
pub struct BucketedConfig {
    /// Layout of the indices; not in write-back, for dirty chunks are kept apart.
    pub austere: AustereConfig,
    /// Chunks of the volume.
    pub chunk_count: u64,
    /// Dirty chunks and fragments at most.
    pub exact_max: u64,
}

impl BucketedConfig {
    /// Over a flash that is divided so.
    pub fn of(config: DesignConfig, layout: &DesignLayout) -> BucketedConfig {
        BucketedConfig {
            austere: AustereConfig::of_layout(layout, config.slot_count.into()),
            chunk_count: layout.chunk_count,
            exact_max: config.mappings_max,
        }
    }
}

/// The most pages of a checkpoint that a cache of this layout, or of fewer slots, needs; none for a layout that cannot be.
pub fn pages_for(config: &AustereConfig) -> u64 {
    pages_max(config).map_or(0, |pages| (HEAD_PAGES + pages) as u64)
}

/// What somebody waits to store.
struct Wish {
    fingerprint: Fingerprint,
    slots: u32,
    /// The runs that go for it and were not chosen yet: all of those that had to go when they were looked for.
    victims: Vec<SlotId>,
    /// The address is mapped to the content already.
    is_mapped: bool,
}

/// See the module.
pub struct Bucketed {
    indices: Arc<Indices>,
    exact: Exact,
    exact_max: u64,
    entries: Entries,
    /// Generation of the next run that is stored. All generations that came before it are less, unless it wrapped.
    generation: u32,
    /// What waits for room, by address: the newest of each.
    wishes: BTreeMap<Lba, Wish>,
    /// The one that a run was chosen for last.
    turn: Lba,
    /// Runs that were chosen to go, by their first slots.
    leaving: BTreeSet<SlotId>,
    /// Of them, those that were evicted and are not free yet.
    retired: BTreeSet<SlotId>,
    /// Runs that could not go when they should have.
    stuck: BTreeSet<SlotId>,
    /// LBA-hashes whose content is being overwritten: what the indices have of them is nobody's.
    suspended: HashSet<Key>,
    /// Runs that are freed ahead.
    ahead: Ahead,
    /// Recovery runs.
    is_restoring: bool,
    /// Recovery: the address that was mapped last, to a duplicate whose content is told next.
    untold: Option<Lba>,
    /// Recovery: pages were restored, and references are not counted.
    is_uncounted: bool,
}

impl Bucketed {
    /// An empty cache.
    ///
    /// # Errors
    /// A layout that cannot be.
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

    /// The decisions.
    pub fn core(&self) -> &Austere {
        &self.indices.core
    }

    /// The run that the indices name for an address, as long as it is not evicted.
    fn run_of(&self, lba: Lba) -> Option<SlotRun> {
        if !self.suspended.is_empty() && self.suspended.contains(&self.indices.core.key_of_lba(lba)) {
            return None;
        }
        self.indices.core.lookup(lba).filter(|run| !self.retired.contains(&SlotId(run.first)))
    }

    /// The run that a content would be in, as long as it is to stay.
    fn run_with(&self, fingerprint: &Fingerprint) -> Option<SlotRun> {
        self.indices.core.find_content(fingerprint).filter(|run| !self.leaving.contains(&SlotId(run.first)))
    }

    /// What the entry of `run`, where it is known, says, if it is that run's.
    fn entry_of(&self, run: SlotRun) -> Option<&RegionEntry> {
        let entry = self.entries.get(SlotId(run.first))??;
        self.indices.core.is_run_of(run, entry.metadata.fingerprint()).then_some(entry)
    }

    /// What `lba` maps to, by what is known without reading anything.
    fn find(&self, lba: Lba) -> Lookup {
        let exact = self.exact.get(lba);
        if exact != Lookup::Miss {
            return exact;
        }
        let entry = self.run_of(lba).and_then(|run| self.entry_of(run)).filter(|entry| entry.metadata.has(lba));
        entry.map_or(Lookup::Miss, |entry| Lookup::Chunk { place: entry.place, duplicate: false })
    }

    /// The metadata slot that has to be read before `question` can be answered.
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

    /// The content that `wanted` counts as: its own, if room can be made for that; else, and for a fragment, one like no other.
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
        // Not what it is about to replace, which stays until the new one is durable.
        let is_other = |content: &Fingerprint| {
            let slot = self.indices.core.find_content(content).map(|run| SlotId(run.first));
            slot.is_none_or(|slot| Some(slot) != now && !self.leaving.contains(&slot))
        };
        let can_be = |content: &Fingerprint| is_other(content) && self.can_have_room(content, wanted);
        let found = others.clone().find(can_be).or_else(|| others.clone().find(is_other));
        found.unwrap_or(fragment_content(wanted.lba, 0))
    }

    /// The record at `place` is found as no content from now on.
    fn spoil_run(&mut self, place: &Place) {
        let Some(run) = self.indices.core.run_from(place.slot.0) else { return };
        let is_its = |lookup: Lookup| matches!(lookup, Lookup::Chunk { place: now, .. } if now == *place);
        let is_there = self.entry_of(run).is_some_and(|entry| entry.place == *place)
            || self.exact.in_slot(place.slot).any(|lba| is_its(self.exact.get(lba)));
        if is_there && !self.retired.contains(&place.slot) {
            let mut metadata = MetadataSlot::EMPTY;
            metadata.reset_unlisted(spoiled_content(place.slot), place.stored_len);
            self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        }
    }

    /// Whether nothing that could not leave when it should have stands in the way of a content.
    fn can_have_room(&self, content: &Fingerprint, wanted: &Wanted) -> bool {
        if self.stuck.is_empty() {
            return true;
        }
        let slots = self.indices.core.slots_for(wanted.stored_len);
        let victims = self.victims_of(&Wish { fingerprint: *content, slots, victims: Vec::new(), is_mapped: true });
        victims.is_none_or(|victims| victims.iter().all(|slot| !self.stuck.contains(slot)))
    }

    /// Runs that have to go for a wish, and have not been chosen yet. `None` where there is room for it.
    fn victims_of(&self, wish: &Wish) -> Option<Vec<SlotId>> {
        let mut runs = self.in_the_way_of(wish);
        if runs.is_empty() {
            return None;
        }
        runs.retain(|slot| !self.leaving.contains(slot));
        Some(runs)
    }

    /// Runs that have to be gone for a wish, those that were chosen among them.
    fn in_the_way_of(&self, wish: &Wish) -> Vec<SlotId> {
        // A content has one run: what has its FP-hash goes first, duplicate or not, for who wishes it knows that it is none.
        let runs = match self.indices.core.find_content(&wish.fingerprint) {
            Some(run) => vec![run],
            None => {
                let bucket = self.indices.core.bucket_of_content(&wish.fingerprint);
                self.indices.core.victims_in(bucket, wish.slots, |first| self.references_beside(SlotId(first)))
            }
        };
        runs.into_iter().map(|run| SlotId(run.first)).collect()
    }

    /// What is known of a run beside the indices, which is about to leave them.
    fn forget_what_was_in(&mut self, slot: SlotId) {
        self.stuck.remove(&slot);
        self.entries.remove(slot);
        self.ahead.keep(slot);
    }

    /// As how many references those of a run count that has been chosen to go, or could not.
    fn references_beside(&self, run: SlotId) -> Option<u32> {
        match self.leaving.contains(&run) {
            true => Some(0),
            false => self.stuck.contains(&run).then_some(STUCK),
        }
    }

    /// Maps the address of a wish to its content before victims are looked for, as the paper's cache does (`austere.rs`, departure
    /// 8); not while there is a run of the content's FP-hash, for that may list the address, or another of its LBA-hash.
    fn map_wish(&mut self, lba: Lba) {
        let Some(wish) = self.wishes.get_mut(&lba) else { return };
        let fingerprint = wish.fingerprint;
        if !wish.is_mapped && !is_fragment(&fingerprint) && self.indices.core.find_content(&fingerprint).is_none() {
            wish.is_mapped = true;
            self.map_now(lba, &fingerprint);
        }
    }

    /// Maps an address to a content that is in the run at `place`, whose entry lists it from now on: on flash, once that is settled.
    fn share(&mut self, lba: Lba, place: &Place, until: Until) -> Deferred {
        let Some(run) = self.indices.core.run_from(place.slot.0) else { return Deferred::nothing() };
        let Some(entry) = self.entry_of(run) else { return Deferred::nothing() };
        let fingerprint = *entry.metadata.fingerprint();
        let core = &self.indices.core;
        self.entries.share(place.slot, lba, until, |list| core.list_change(lba, list));
        self.map_in_core(lba, &fingerprint)
    }

    /// What is held of an address may be on flash.
    fn settle_held(&mut self, lba: Lba) {
        let core = &self.indices.core;
        self.entries.settle(lba, |list| core.list_change(lba, list));
    }

    /// A chunk was stored at `place` for `lba`.
    fn stored(&mut self, lba: Lba, place: &Place, fingerprint: &Fingerprint, until: Until) -> Deferred {
        if self.indices.core.run_from(place.slot.0).is_some_and(|run| !self.indices.core.is_run_of(run, fingerprint)) {
            // There was no room for it where its content belongs.
            return self.put_unshared(lba, place);
        }
        let mut metadata = MetadataSlot::EMPTY;
        metadata.reset(*fingerprint, place.stored_len, lba);
        self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        // Whoever has the run, too, is behind a write in the log, but may be before what is clean.
        if until == Until::Told {
            self.entries.list_early(place.slot, lba, until);
        }
        self.map_in_core(lba, fingerprint)
    }

    /// What recovery knows: `lba`, if it is given, has this content, which is at `place`.
    fn restore(&mut self, lba: Option<Lba>, fingerprint: &Fingerprint, place: &Place) {
        let slots = self.indices.core.slots_for(place.stored_len);
        self.count();
        // Another run of the content's FP-hash that has dirty data could not leave when this one was stored.
        let other = self.indices.core.find_content(fingerprint).filter(|run| run.first != place.slot.0);
        let is_elsewhere = other.is_some_and(|run| self.exact.in_slot(SlotId(run.first)).next().is_some());
        if is_elsewhere || !self.indices.core.restore(fingerprint, place.slot.0, slots) {
            // It lay where its content does not belong; a place that no content could have is of no address.
            return lba.into_iter().for_each(|lba| self.reserve(lba, place));
        }
        self.generation = self.generation.max(place.generation.wrapping_add(1));
        if let Some(lba) = lba {
            self.map_now(lba, fingerprint);
        }
    }

    /// What recovery knows: `lba` has the run at `place`, which lies where its content does not belong, or is like no other.
    fn reserve(&mut self, lba: Lba, place: &Place) {
        let slots = self.indices.core.slots_for(place.stored_len);
        self.generation = self.generation.max(place.generation.wrapping_add(1));
        self.indices.reserve(lba, place.slot.0, slots);
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
    }

    /// What is dirty has its run, whatever the indices lost.
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

    /// Recovery: counts the references of what pages brought, before anything changes.
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

    /// The same, done when this returns.
    fn map_now(&mut self, lba: Lba, fingerprint: &Fingerprint) {
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
        self.indices.map_now(lba, fingerprint);
    }

    /// The indices forget an address. The log has an entry that forgets its LBA-hash at each restart, too.
    fn forget_in_core(&mut self, lba: Lba) {
        self.entries.drop_held(lba);
        self.suspended.remove(&self.indices.core.key_of_lba(lba));
        self.indices.core.forget(lba);
    }

    /// The indices forget an address, and at some restart no entry of the log may forget its LBA-hash.
    fn lose_in_core(&mut self, lba: Lba) {
        self.count();
        self.indices.note_lost(lba);
        self.forget_in_core(lba);
    }

    /// What is like no other content is, for `lba`, at `place`: in the run that was opened for it, or that recovery knows of.
    fn put_unshared(&mut self, lba: Lba, place: &Place) -> Deferred {
        if self.is_restoring {
            self.reserve(lba, place);
            return Deferred::nothing();
        }
        let contents = || (0..FRAGMENT_TURNS).map(|turn| fragment_content(lba, turn));
        let is_here = |run: SlotRun| run.first == place.slot.0;
        let content = contents().find(|content| self.indices.core.find_content(content).is_some_and(is_here));
        let Some(content) = content else { return Deferred::nothing() };
        // What the flash has there is the entry of an older chunk, whose FP-hash may be the same.
        let mut metadata = MetadataSlot::EMPTY;
        metadata.reset_unlisted(content, place.stored_len);
        self.entries.change(place.slot, RegionEntry { place: *place, metadata });
        self.map_in_core(lba, &content)
    }

    /// The parts of a run that a trim forgets: those that are not trimmed yet. A restart forgets the whole run, because a
    /// checkpoint may hold a run that an earlier frame of the log trims later. The trim removed the mappings of other addresses
    /// with the same LBA-hash, and the log does not list them. A lookup would find such a mapping after a write to its address.
    fn to_forget(&self, run: &crate::ranges::Run) -> Vec<(Lba, u64)> {
        match self.is_restoring {
            true => vec![(run.first, run.count)],
            false => self.exact.trimmed().gaps(run.first, run.count),
        }
    }

    /// The addresses of a run are forgotten.
    fn forget_run(&mut self, first: Lba, count: u64) {
        self.count();
        self.exact.remove_run(first, count);
        if count > self.indices.core.lba_entries_max().max(ASKED_MAX) {
            // Whose the entries are the indices do not know: each address is asked about, and these are too many.
            self.indices.lose_all();
            self.suspended.clear();
            self.entries.drop_held_run(first, Lba(first.0.saturating_add(count)));
            return;
        }
        (first.0..first.0.saturating_add(count)).for_each(|lba| self.forget_in_core(Lba(lba)));
    }
}

/// A content like no other: that of a fragment of `lba`.
fn fragment_content(lba: Lba, turn: u64) -> Fingerprint {
    let low = mix(lba.0 << 24 | turn);
    Fingerprint((u128::from(u64::MAX) << 64 | u128::from(low)).to_le_bytes())
}

/// A content like no other: what is found where a record is damaged.
fn spoiled_content(slot: SlotId) -> Fingerprint {
    fragment_content(Lba(slot.0.into()), FRAGMENT_TURNS)
}

/// Whether it is a [`fragment_content`].
fn is_fragment(fingerprint: &Fingerprint) -> bool {
    fingerprint.0[8..] == [0xFF; 8]
}

#[cfg(test)]
mod tests;
