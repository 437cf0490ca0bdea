//! Helpers for tests of designs with equal slots: the designs, and an opening from an export.
//!
//! It does not ask the design anything.

use larder_core::{
    Decider, Design, DesignConfig, Fingerprint, Lookup, NewMapping,
    arc::Arc,
    d_arc::DArc,
    d_lru::DLru,
    design::ToldBy,
    history::{Draft, PAGE_BYTES, Trust},
    lru::Lru,
    slots::SlotState,
    slotted::{FlashSize, Placed, Slotted},
};

pub const CHUNK: u32 = 4096;

pub fn fingerprint_of(content: u64) -> Fingerprint {
    let mut bytes = [7; 16];
    bytes[8..].copy_from_slice(&content.to_le_bytes());
    Fingerprint(bytes)
}

/// Makes an empty design: `d-lru`, `d-arc`, `lru` or `arc`.
pub fn make(kind: usize, config: DesignConfig) -> Decider<Placed> {
    Decider::new(make_boxed(kind, config))
}

/// Makes the same design without its ledger.
pub fn make_boxed(kind: usize, config: DesignConfig) -> Box<Placed> {
    Box::new(Placed::new(config, |slots| bare(kind, slots)))
}

/// Makes the same design by itself, of so many data slots.
pub fn bare(kind: usize, slots: u64) -> Box<dyn Slotted> {
    let size = FlashSize::DataChunks(slots);
    match kind {
        0 => Box::new(DLru::for_flash(size, CHUNK).expect("it fits")),
        1 => Box::new(DArc::for_flash(size, CHUNK).expect("it fits")),
        2 => Box::new(Lru::for_flash(size, CHUNK).expect("it fits")),
        _ => Box::new(Arc::for_flash(size, CHUNK).expect("it fits")),
    }
}

/// Returns the mapping that a checkpoint restores for an exported one.
pub fn mapped_again(exported: Lookup) -> NewMapping {
    match exported {
        Lookup::Miss => panic!("a miss is no mapping"),
        Lookup::Zero => NewMapping::Zero,
        Lookup::Chunk { place, duplicate: true } => NewMapping::Duplicate { place },
        Lookup::Chunk { place, .. } => NewMapping::Unique { place, fingerprint: None },
        Lookup::Fragment { place, sectors } => NewMapping::Fragment { place, sectors },
    }
}

/// Opens an empty `design` with the checkpoint of `old`, with this history, and nothing else.
pub fn reopen<D: Design + ?Sized>(old: &Decider<D>, design: &mut Decider<D>, history: &[u8], is_trusted: bool) {
    design.begin_restore(0, 0);
    for (slot, generation, state, class) in old.export_slots() {
        match state {
            SlotState::Free | SlotState::Retired if generation == 0 => {}
            SlotState::Free | SlotState::Retired => design.restore_freed(slot, generation - 1),
            _ => {
                assert!(design.restore_slot(slot, generation, Some(class)));
            }
        }
    }
    for mapping in (0..old.export_pieces()).flat_map(|piece| old.export_mappings(piece)) {
        let dirty = mapping.dirty.then(|| old.dirty_seq(mapping.lba)).flatten();
        design.map(mapping.lba, mapped_again(mapping.lookup), dirty);
    }
    old.export_runs().into_iter().for_each(|run| design.trim(run));
    for (fingerprint, place) in old.export_fingerprints() {
        design.restore_fingerprint(&fingerprint, &place, ToldBy::Checkpoint);
    }
    for (number, page) in history.chunks(PAGE_BYTES).enumerate() {
        assert!(design.restore_page(number, page), "page {number}");
    }
    if is_trusted {
        design.trust_history(Trust::Whole);
    }
    design.end_restore();
}

/// A history that is drafted piece by piece, while decisions go on.
#[derive(Default)]
pub struct Drafting {
    draft: Option<Draft>,
    /// The last finished one.
    pub finished: Vec<u8>,
}

impl Drafting {
    /// Begins a draft, or adds its next piece.
    pub fn go_on<D: Design + ?Sized>(&mut self, design: &mut Decider<D>) {
        let Some(mut draft) = self.draft.take().or_else(|| design.begin_history()) else { return };
        match design.export_history(&mut draft, &|_| false) {
            true => self.draft = Some(draft),
            false => self.finished = draft.finish(),
        }
    }

    /// Drops the draft before another design is used.
    pub fn give_up(&mut self) {
        self.draft = None;
    }
}
