//! A design with equal slots as a [`Design`] that an engine can run: each data slot lies in a flash slot of its own, which is
//! another one each time that it is written.
//!
//! A paper's slot is written in place. Were it done so on a device, a power loss could take a chunk that was durable and leave
//! half of the one that replaces it. So there are a few more flash slots than the design has, and content goes to a free
//! one. What the design has let go of stays readable until nothing that a crash could bring back, and nothing dirty, needs
//! it, as a WEU does that is replaced; then its slot is free again. The flash is written as often as in place.
//!
//! Mappings, dirty chunks, fragments, slots and recovery are those of `nitro.rs`, with slots of one chunk. What is here is
//! what the two have to tell each other:
//! - An address is known to both where it is cached. What only the mappings have is hidden unless it is dirty, and is
//!   forgotten when the caller asks what it may forget ([`Design::drop_clean_zeroes`]), for it has to log that.
//! - What only the design has is *remembered* ([`Design::remembered`]): it is mapped again where its content is stored. What
//!   is about to be overwritten ([`Design::suspend`]) is not, whatever it was.
//! - A fragment is content that nothing else has.
//!
//! What outlives a restart (`placed/restored.rs`): what is mapped, content that no address has any more, and the design's history
//! ([`history`](super::history)), which is all that it knows besides. After an end in order the design goes on as if there had been none.
//! After a crash it has the order, and the addresses without data, of the last checkpoint, each with its content, but where the log says
//! otherwise: whoever overwrites an address whose content is remembered has that logged, as if it were mapped (`placed/outliving.rs`).
//! Then content may be back, too, that the design had let go of, where its slot had not been freed yet.
//!
//! Where it departs from the papers, beside what the designs' own files say:
//! - *A dirty write is durable with a flush.* CacheDedup's cache "synchronously commits both the metadata and data" of each
//!   write-back write (section 3.3), which is then over when the flash has it. An engine that asks here is a block device with
//!   a volatile write cache, as the disk behind it is: a write is over in memory, and data and mappings are durable when a
//!   FLUSH returns, or a write with FUA does, each of which has the paper's commit for all that came before it, in one. Who writes
//!   relies on a flush in either case, and who never flushes need not pay a frame of the log for each chunk. The replays of
//!   `larder-sim` charge the paper's rule.
//!
//! Invariants: those of [`Design`]. A data slot of the design's has at most one flash slot, and that has one owner at most. There are
//! more mappings than addresses of which the design may have data ([`mapped_max`]); so where none has room, some are hidden or stale, and forgetting
//! those, or destaging what of them is dirty, makes room. Nothing that the design has goes for that.
//!
//! What it does not do: know what the design prefers; destage what the design lets go of, for the mappings say what of
//! it is dirty.

mod decisions;
mod outliving;
mod restored;

use super::{ChunkSlot, DataStep, Decision, FlashSize, SizeError, Slotted};
use crate::{
    design::{Design, DesignConfig, Lookup},
    lost::Lost,
    nitro::Nitro,
    slots::SlotState,
    types::{Fingerprint, Lba, Place, SlotId},
    walk::Numbers,
};
use restored::{Restoring, is_unshared};
use std::collections::{BTreeSet, VecDeque};

/// No data slot, or no flash slot.
const NONE: u32 = u32::MAX;
/// A flash slot in so many is one that the design does not have, for what is being written and what is being let go of.
const SPARE_SHARE: u64 = 32;
const SPARES_MIN: u64 = 4;
const SPARES_MAX: u64 = 4096;

/// Of so many mappings one is for addresses that wait to be forgotten, and for what is being mapped.
const HELD_BACK_SHARE: u64 = 8;
/// No more of them: for each spare slot one, and what a caller may map before it comes to forget something.
const HELD_BACK_MAX: u64 = SPARES_MAX + 128;

/// The content of a data slot, and where it is.
#[derive(Clone, Copy)]
struct Held {
    fingerprint: [u8; 16],
    slot: u32,
    generation: u32,
    crc: u32,
    stored_len: u32,
}

const NOTHING: Held = Held { fingerprint: [0; 16], slot: NONE, generation: 0, crc: 0, stored_len: 0 };

impl Held {
    fn new(place: &Place, fingerprint: &Fingerprint) -> Self {
        let Place { slot, generation, crc, stored_len, .. } = *place;
        Held { fingerprint: fingerprint.0, slot: slot.0, generation, crc, stored_len }
    }

    fn is_at(&self, place: &Place) -> bool {
        (self.slot, self.generation) == (place.slot.0, place.generation)
    }

    fn place(&self) -> Place {
        let Held { slot, generation, crc, stored_len, .. } = *self;
        Place { slot: SlotId(slot), generation, offset: 0, stored_len, crc, encoding: 0 }
    }
}

/// See the module.
pub struct Placed {
    design: Box<dyn Slotted>,
    /// Without an FP index: the design knows contents.
    mappings: Nitro,
    /// By data slot.
    held: Vec<Held>,
    /// The data slot of each flash slot, or [`NONE`].
    owner: Vec<u32>,
    /// Flash slots whose content the design let go of, in that order.
    let_go: VecDeque<SlotId>,
    /// Clean mappings of addresses that the design evicted.
    evicted: BTreeSet<Lba>,
    /// Addresses whose content is being changed: what the design has of them is not what they hold.
    suspended: BTreeSet<Lba>,
    /// Addresses whose content a crash may bring back, and that the design does not know to have it.
    lost: Lost,
    /// Whether content is shared.
    dedup: bool,
    /// What was found last: a duplicate that is mapped next is of this content.
    found: Option<(Place, Fingerprint)>,
    decision: Decision,
    /// Metadata entries that decisions changed.
    entries_changed: u64,
    /// Recovery runs.
    restoring: Option<Restoring>,
    /// Data slots before this one were told to a checkpoint; all of them, where none asks.
    exported: usize,
    /// Data slots that got other content since it began to ask.
    held_since: Numbers,
}

/// How many flash slots are kept beside those of the design, of a cache of `slots` flash slots.
pub fn spares(slots: u64) -> u64 {
    (slots / SPARE_SHARE).clamp(SPARES_MIN, SPARES_MAX)
}

/// How many mappings there have to be for a design that has data of so many addresses.
pub fn mappings_for(addresses: u64) -> u64 {
    (addresses / (HELD_BACK_SHARE - 1) * HELD_BACK_SHARE + HELD_BACK_SHARE).min(addresses.saturating_add(HELD_BACK_MAX))
}

/// How many addresses a design may have data of where there are so many mappings.
pub fn addresses_for(mappings: u64) -> u64 {
    mappings - (mappings / HELD_BACK_SHARE).min(HELD_BACK_MAX)
}

/// How many addresses a design may have data of at a time: where content is shared, all that it keeps.
pub fn mapped_max(design: &dyn Slotted) -> u64 {
    let sizes = design.sizes();
    if design.looks_at_content() { sizes.addresses } else { sizes.data_chunks }
}

/// A design of so many data slots, or of as many as its entries can be numbered for.
pub fn of_slots<D: Slotted + 'static>(
    slots: u64,
    make: impl Fn(FlashSize) -> Result<D, SizeError>,
) -> Box<dyn Slotted> {
    let mut slots = slots.max(1);
    loop {
        match make(FlashSize::DataChunks(slots)) {
            Ok(design) => return Box::new(design),
            Err(_) => slots = (slots / 2).max(1),
        }
    }
}

/// Bytes of RAM for each flash slot, at most, beside those of the mappings and of the design.
pub const fn slots_bytes_max() -> u64 {
    // A bit for each that a checkpoint passes, too, in a set that has grown to twice of what it needs: less than a byte.
    (size_of::<Held>() + size_of::<u32>() + 2 * size_of::<SlotId>() + 1) as u64
}

/// Bytes of RAM for each mapping, at most, beside those of the mappings themselves: an address that waits to be forgotten, or to be
/// mapped anew, is in one of two B-trees, half full.
pub const SETS_BYTES_MAX: u64 = 32;

/// Bytes of RAM for each address that a design that looks at content may remember, at most: what is kept of those that it lost.
pub const fn lost_bytes_max() -> u64 {
    Lost::BYTES_MAX
}

impl Placed {
    /// An empty cache over `config.slot_count` flash slots, of which the design, made for a number of data slots, gets all
    /// but the spare ones; fewer, where it could have data of more addresses than there is room to map. `config.fp_entries_max` of 0 turns
    /// deduplication off.
    pub fn new(config: DesignConfig, make: impl Fn(u64) -> Box<dyn Slotted>) -> Self {
        let slots = u64::from(config.slot_count);
        let mut data_slots = slots.saturating_sub(spares(slots)).max(1);
        let room = addresses_for(config.mappings_max);
        let mut design = make(data_slots);
        // The design says what leaves, never a want of mappings. It has about as many addresses for each slot, whatever their number.
        while mapped_max(&*design) > room && data_slots > 1 {
            let fit = u128::from(data_slots) * u128::from(room) / u128::from(mapped_max(&*design));
            data_slots = (fit as u64).clamp(1, data_slots - 1);
            design = make(data_slots);
        }
        let lost_entries = if design.looks_at_content() { design.sizes().addresses } else { 0 };
        Placed {
            held: vec![NOTHING; design.sizes().data_chunks as usize],
            owner: vec![NONE; config.slot_count as usize],
            design,
            mappings: Nitro::new(DesignConfig { fp_entries_max: 0, ..config }),
            let_go: VecDeque::new(),
            evicted: BTreeSet::new(),
            suspended: BTreeSet::new(),
            lost: Lost::new(lost_entries),
            dedup: config.fp_entries_max > 0,
            found: None,
            decision: Decision::default(),
            entries_changed: 0,
            restoring: None,
            exported: usize::MAX,
            held_since: Numbers::default(),
        }
    }

    /// The design.
    pub fn design(&self) -> &dyn Slotted {
        &*self.design
    }

    /// Panics where an invariant does not hold. For tests.
    pub fn check(&self) {
        let held = self.held.iter().enumerate().filter(|(_, held)| held.slot != NONE);
        for (number, held) in held.clone() {
            assert_eq!(self.owner[held.slot as usize], number as u32, "a flash slot has another owner");
            let is_used = |state| matches!(state, SlotState::Open | SlotState::Sealed);
            let generation = self.mappings.slot(SlotId(held.slot)).filter(|(state, _)| is_used(*state)).map(|(_, g)| g);
            assert_eq!(generation, Some(held.generation), "data slot {number} was overwritten");
        }
        let owned = self.owner.iter().filter(|&&owner| owner != NONE).count();
        assert_eq!(owned, held.count(), "an owner has let go");
        for (slot, _, state, _) in self.mappings.export_slots() {
            let is_lost =
                state == SlotState::Sealed && self.owner[slot.0 as usize] == NONE && !self.let_go.contains(&slot);
            assert!(!is_lost, "{slot:?} is neither used nor let go of");
        }
    }

    /// What the design has for `lba`, where that is what `lba` holds.
    fn known(&self, lba: Lba) -> Option<&Held> {
        let slot = self.design.lookup(lba)?;
        let held = self.held.get(slot.0 as usize).filter(|held| held.slot != NONE)?;
        (!self.suspended.contains(&lba)).then_some(held)
    }

    /// Whether a client may see what is mapped for `lba`.
    fn is_visible(&self, lba: Lba, found: &Lookup) -> bool {
        match found {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                self.known(lba).is_some_and(|held| held.is_at(place)) || self.mappings.dirty_seq(lba).is_some()
            }
            Lookup::Zero | Lookup::Miss => true,
        }
    }

    /// The content of a data slot is at `place` from now on.
    fn hold(&mut self, slot: ChunkSlot, place: &Place, fingerprint: &Fingerprint) {
        self.release(slot);
        if let Some(held) = self.held.get_mut(slot.0 as usize) {
            *held = Held::new(place, fingerprint);
            self.owner[place.slot.0 as usize] = slot.0;
            if self.exported < self.held.len() {
                self.held_since.add(slot.0);
            }
        }
    }

    /// A data slot is empty from now on.
    fn release(&mut self, slot: ChunkSlot) {
        let Some(held) = self.held.get_mut(slot.0 as usize) else { return };
        let was = std::mem::replace(held, NOTHING);
        if was.slot != NONE {
            self.owner[was.slot as usize] = NONE;
            self.let_go.push_back(SlotId(was.slot));
        }
    }

    /// Does what the design decided. `new`: what was stored, or found, for the content that was put.
    fn settle(&mut self, new: Option<(&Place, &Fingerprint)>) {
        let decision = std::mem::take(&mut self.decision);
        self.entries_changed += decision.changed.len() as u64;
        for &slot in &decision.freed {
            self.release(slot);
        }
        if let (DataStep::Store { slot, .. } | DataStep::Map(slot), Some((place, fingerprint))) = (decision.data, new)
            && !self.held.get(slot.0 as usize).is_some_and(|held| held.is_at(place))
        {
            self.hold(slot, place, fingerprint);
        }
        for &lba in &decision.evicted {
            self.note_lost(lba);
            self.note_hidden(lba);
        }
        self.decision = decision;
        if let Some((place, _)) = new
            && self.owner[place.slot.0 as usize] == NONE
        {
            self.let_go.push_back(place.slot);
        }
    }

    /// The design does not know `lba` any more. What is mapped for it is to be forgotten, once it is clean.
    fn note_hidden(&mut self, lba: Lba) {
        if self.mappings.has_entry(lba) && self.mappings.dirty_seq(lba).is_none() {
            self.evicted.insert(lba);
        }
    }

    /// Forgets the mapping of an address that the design evicted; whether there was one.
    fn drop_hidden(&mut self, lba: Lba) -> bool {
        // It may have been trimmed since: what is told of that must stay.
        self.mappings.has_entry(lba) && self.mappings.dirty_seq(lba).is_none() && self.mappings.unmap(lba)
    }

    fn put(&mut self, lba: Lba, place: &Place, fingerprint: &Fingerprint, is_dirty: bool) {
        self.suspended.remove(&lba);
        self.evicted.remove(&lba);
        if is_unshared(fingerprint) {
            self.note_lost(lba);
        }
        self.design.put(lba, fingerprint, is_dirty, &mut self.decision);
        self.settle(Some((place, fingerprint)));
    }

    fn forget(&mut self, lba: Lba) {
        self.suspended.remove(&lba);
        self.evicted.remove(&lba);
        if self.design.forget(lba, &mut self.decision) {
            self.settle(None);
        }
    }

    fn forget_run(&mut self, first: Lba, count: u64) {
        self.design.in_run(first, count).into_iter().for_each(|lba| self.forget(lba));
    }
}

/// A fingerprint that no content has, but what lies at `place`.
fn unshared(place: &Place) -> Fingerprint {
    let mut bytes = [0xFF; 16];
    bytes[..4].copy_from_slice(&place.slot.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&place.generation.to_le_bytes());
    Fingerprint(bytes)
}
