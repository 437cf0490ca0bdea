//! A design with equal slots as a [`Design`](crate::Design). Each write of a data slot takes
//! another flash slot.
//!
//! A paper's slot is written in place. On a device, a power loss could then take a durable chunk
//! and leave half of its replacement. So there are a few more flash slots than the design has, and
//! content goes to a free one. Released content stays readable until nothing that a crash could
//! bring back, and nothing dirty, needs it, as in a replaced WEU. Its slot is then free again. The
//! flash is written as often as in place.
//!
//! Mappings, dirty chunks, fragments, slots and recovery are those of `nitro.rs`, with slots of one
//! chunk. This file connects the two:
//! - Both know a cached address. A mapping that the design does not know is hidden, unless it is
//!   dirty. It is forgotten when the caller asks for addresses to forget
//!   ([`Slots::drop_clean_zeroes`](crate::design::Slots::drop_clean_zeroes)), because the caller
//!   has to log that.
//! - An address that only the design knows is *remembered*
//!   ([`Memory::ghost`](crate::design::Memory::ghost)): it is mapped again if its content is
//!   stored. A suspended address, before an overwrite ([`Mapping::suspend`]), is never remembered.
//! - A fragment is a unique content.
//!
//! A restart (`placed/restored.rs`) keeps the mappings, content without addresses, and the design's
//! history ([`history`](crate::history)), which has the rest. After an orderly end the design
//! continues as without one. After a crash it has the order and the ghosts of the last checkpoint,
//! each with its content, unless the log differs. An overwrite of a ghost with a content is logged
//! as an overwrite of a mapped address is (`placed/outliving.rs`). Released content may be back,
//! too, if its slot had not been freed yet.
//!
//! Departures from the papers, beside those in the designs' own files:
//! - *A dirty write is durable with a flush.* CacheDedup's cache "synchronously commits both the
//!   metadata and data" of each write-back write (section 3.3), which ends with the commit on
//!   flash. Here the cache is a block device with a volatile write cache, as the disk behind it. A
//!   write ends in memory. Data and mappings are durable after a FLUSH, or a write with FUA, which
//!   is the paper's commit for all earlier writes in one. A client relies on a flush in either
//!   case, and without flushes it need not pay a frame of the log for each chunk. The papers'
//!   accounting of `larder-sim` charges the paper's rule.
//!
//! Invariants: those of [`Design`](crate::Design). A data slot of the design has at most one flash
//! slot, and that has at most one owner. There are more mappings than addresses with data in the
//! design ([`mapped_max`]). If no mapping has room, some are hidden or stale, and forgetting or
//! destaging those makes room. No data of the design goes for that.
//!
//! It leaves preferences to the design, and destages of released data to the mappings, which know
//! its dirty addresses.

mod decisions;
mod logged;
mod made_up;
mod memory;
mod outliving;
mod restored;
mod restoring;
mod selective;
mod slot_content;

use super::{ChunkSlot, DataStep, Decision, FlashSize, SizeError, Slotted};
use crate::{
    design::{DesignConfig, Lookup, Mapping, Persist},
    lost::Lost,
    nitro::Nitro,
    slots::SlotState,
    types::{Fingerprint, Lba, Place, SlotId},
    walk::Numbers,
};
use made_up::is_unshared;
use restoring::RestoringSlots;
use slot_content::{NONE, NOTHING, SlotContent};
use std::collections::{BTreeSet, VecDeque};

/// Flash slots for each spare one, for content that is being written or released.
const SPARE_SHARE: u64 = 32;
const SPARES_MIN: u64 = 4;
const SPARES_MAX: u64 = 4096;

/// Mappings for each one that is held back, for addresses to forget and for current mappings.
const HELD_BACK_SHARE: u64 = 8;
/// Their maximum: one for each spare slot, and mappings that a caller may make before it forgets
/// some.
const HELD_BACK_MAX: u64 = SPARES_MAX + 128;

/// See the module.
pub struct Placed {
    design: Box<dyn Slotted>,
    /// The mappings, without an FP index: the design knows contents.
    mappings: Nitro,
    /// Contents by data slot.
    held: Vec<SlotContent>,
    /// The data slot of each flash slot, or [`NONE`].
    owner: Vec<u32>,
    /// Flash slots whose content the design released, in that order.
    let_go: VecDeque<SlotId>,
    /// Clean mappings of addresses that the design evicted.
    evicted: BTreeSet<Lba>,
    /// Addresses whose content is changing: the design's data of them is invalid.
    suspended: BTreeSet<Lba>,
    /// Addresses whose content a crash may bring back, unknown to the design.
    lost: Lost,
    /// True if content is shared.
    dedup: bool,
    /// The last found content: the next mapped duplicate has it.
    found: Option<(Place, Fingerprint)>,
    decision: Decision,
    /// Number of metadata entries that decisions changed.
    entries_changed: u64,
    /// The state of a recovery.
    restoring: Option<RestoringSlots>,
    /// Number of data slots that an export has passed; all without an export.
    exported: usize,
    /// Data slots with new content since the export began.
    held_since: Numbers,
}

/// Returns the number of spare flash slots of a cache with `slots` flash slots.
pub fn spares(slots: u64) -> u64 {
    (slots / SPARE_SHARE).clamp(SPARES_MIN, SPARES_MAX)
}

/// Returns the mappings for a design that has data of so many addresses.
pub fn mappings_for(addresses: u64) -> u64 {
    (addresses / (HELD_BACK_SHARE - 1) * HELD_BACK_SHARE + HELD_BACK_SHARE).min(addresses.saturating_add(HELD_BACK_MAX))
}

/// Returns how many addresses a design may have data of with so many mappings.
pub fn addresses_for(mappings: u64) -> u64 {
    mappings - (mappings / HELD_BACK_SHARE).min(HELD_BACK_MAX)
}

/// Returns how many addresses a design may have data of: all that it keeps, if content is shared.
pub fn mapped_max(design: &dyn Slotted) -> u64 {
    let sizes = design.sizes();
    if design.looks_at_content() { sizes.addresses } else { sizes.data_chunks }
}

/// Makes a design of so many data slots, or of as many as its entry numbers allow.
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

/// Returns the maximum bytes of RAM for each flash slot, beside mappings and design.
pub const fn slots_bytes_max() -> u64 {
    // A bit for each slot of an export, in a set that may have grown to twice its need: less than a
    // byte.
    (size_of::<SlotContent>() + size_of::<u32>() + 2 * size_of::<SlotId>() + 1) as u64
}

/// Maximum bytes of RAM for each mapping, beside those of the mappings. An address to forget, or to
/// map anew, is in one of two B-trees, half full.
pub const SETS_BYTES_MAX: u64 = 32;

/// Returns the maximum bytes of RAM for each remembered address of a design that looks at content.
/// They are for the lost addresses.
pub const fn lost_bytes_max() -> u64 {
    Lost::BYTES_MAX
}

impl Placed {
    /// Creates an empty cache over `config.slot_count` flash slots. The design, made for a number
    /// of data slots, gets all but the spare ones, or fewer if its addresses would exceed the
    /// mappings. `config.fp_entries_max` of 0 turns deduplication off.
    pub fn new(config: DesignConfig, make: impl Fn(u64) -> Box<dyn Slotted>) -> Self {
        let slots = u64::from(config.slot_count);
        let mut data_slots = slots.saturating_sub(spares(slots)).max(1);
        let room = addresses_for(config.mappings_max);
        let mut design = make(data_slots);
        // The design must not lack mappings. Its addresses for each slot hardly depend on the
        // number of slots.
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

    /// Returns the design.
    pub fn design(&self) -> &dyn Slotted {
        &*self.design
    }

    /// Panics if an invariant does not hold. For tests.
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

    /// Returns the design's data of `lba`, if that is valid.
    fn known(&self, lba: Lba) -> Option<&SlotContent> {
        let slot = self.design.lookup(lba)?;
        let held = self.held.get(slot.0 as usize).filter(|held| held.slot != NONE)?;
        (!self.suspended.contains(&lba)).then_some(held)
    }

    /// Returns whether a client may see the mapping of `lba`.
    fn is_visible(&self, lba: Lba, found: &Lookup) -> bool {
        match found {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => {
                self.known(lba).is_some_and(|held| held.is_at(place)) || self.mappings.is_dirty(lba)
            }
            Lookup::Zero | Lookup::Miss => true,
        }
    }

    /// Moves the content of a data slot to `place`.
    fn hold(&mut self, slot: ChunkSlot, place: &Place, fingerprint: &Fingerprint) {
        self.release(slot);
        if let Some(held) = self.held.get_mut(slot.0 as usize) {
            *held = SlotContent::new(place, fingerprint);
            self.owner[place.slot.0 as usize] = slot.0;
            if self.exported < self.held.len() {
                self.held_since.add(slot.0);
            }
        }
    }

    /// Empties a data slot.
    fn release(&mut self, slot: ChunkSlot) {
        let Some(held) = self.held.get_mut(slot.0 as usize) else { return };
        let was = std::mem::replace(held, NOTHING);
        if was.slot != NONE {
            self.owner[was.slot as usize] = NONE;
            self.let_go.push_back(SlotId(was.slot));
        }
    }

    /// Executes the design's decision. `new` is the record that was stored or found for the put.
    fn execute(&mut self, new: Option<(&Place, &Fingerprint)>) {
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

    /// Notes that the design forgot `lba`. Its mapping is forgotten, if it is clean.
    fn note_hidden(&mut self, lba: Lba) {
        if self.mappings.has_entry(lba) && !self.mappings.is_dirty(lba) {
            self.evicted.insert(lba);
        }
    }

    /// Forgets the mapping of an address that the design evicted; returns whether there was one.
    fn drop_hidden(&mut self, lba: Lba) -> bool {
        self.mappings.has_entry(lba) && !self.mappings.is_dirty(lba) && self.mappings.unmap(lba)
    }

    fn put(&mut self, lba: Lba, place: &Place, fingerprint: &Fingerprint, is_dirty: bool) {
        self.suspended.remove(&lba);
        self.evicted.remove(&lba);
        if is_unshared(fingerprint) {
            self.note_lost(lba);
        }
        self.design.put(lba, fingerprint, is_dirty, &mut self.decision);
        self.execute(Some((place, fingerprint)));
    }

    fn forget(&mut self, lba: Lba) {
        self.suspended.remove(&lba);
        self.evicted.remove(&lba);
        if self.design.forget(lba, &mut self.decision) {
            self.execute(None);
        }
    }

    fn forget_run(&mut self, first: Lba, count: u64) {
        self.design.in_run(first, count).into_iter().for_each(|lba| self.forget(lba));
    }
}
