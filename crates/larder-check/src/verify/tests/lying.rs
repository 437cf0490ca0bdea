//! An index that contradicts itself: each answer is bent once, and its check against another tells.

use super::*;
use larder_core::{
    Decider, Design, Fingerprint, NewMapping, Place, SlotId, StreamClass,
    design::{DesignStats, ExportedMapping, Mapping, Persist, Slots, ToldBy, Victim},
    ledger::Ledger,
    ranges::Run,
    slots::{ExportedSlot, SlotState},
};

/// The answer that is bent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    CountsAnotherDirtyChunk,
    ListsADirtyChunkLess,
    SlotKnowsOneLess,
    SlotTwice,
    SlotFree,
    MappedTwice,
    MappedToNothing,
    RunOverAMapping,
    RunLeavesTheVolume,
    CleanInOneList,
}

/// A design that is only looked at.
struct Liar(Decider, Lie);

impl Liar {
    fn lies(&self, lie: Lie) -> bool {
        self.1 == lie
    }
}

const LOOKED_AT: &str = "a check changes nothing";

impl Mapping for Liar {
    fn lookup(&mut self, _: Lba) -> Lookup {
        unreachable!("{LOOKED_AT}")
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.0.peek(lba)
    }

    fn find_duplicate(&mut self, _: &Fingerprint) -> Option<Place> {
        unreachable!("{LOOKED_AT}")
    }

    fn map(&mut self, _: Lba, _: NewMapping, _: bool) {
        unreachable!("{LOOKED_AT}")
    }

    fn mark_clean(&mut self, _: Lba) {
        unreachable!("{LOOKED_AT}")
    }

    fn is_dirty(&self, lba: Lba) -> bool {
        self.0.is_dirty(lba)
    }

    fn unmap(&mut self, _: Lba) -> bool {
        unreachable!("{LOOKED_AT}")
    }

    fn unmap_run(&mut self, _: Lba, _: u64) {
        unreachable!("{LOOKED_AT}")
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.0.mapped_in(first, count)
    }

    fn has_room(&self, count: u64) -> bool {
        self.0.has_room(count)
    }
}

impl Slots for Liar {
    fn open_slot(&mut self, _: StreamClass) -> Option<(SlotId, u32)> {
        unreachable!("{LOOKED_AT}")
    }

    fn seal_slot(&mut self, _: SlotId) {
        unreachable!("{LOOKED_AT}")
    }

    fn free_slots(&self) -> usize {
        self.0.free_slots()
    }

    fn choose_victim(&mut self, _: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        unreachable!("{LOOKED_AT}")
    }

    fn spare_victim(&mut self, _: SlotId) {
        unreachable!("{LOOKED_AT}")
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        let mut list = self.0.dirty_in(slot);
        if self.lies(Lie::SlotKnowsOneLess) {
            list.pop();
        }
        list
    }

    fn evict(&mut self, _: SlotId) -> Option<u32> {
        unreachable!("{LOOKED_AT}")
    }

    fn release_slot(&mut self, _: SlotId) {
        unreachable!("{LOOKED_AT}")
    }

    fn sweep(&mut self) -> usize {
        unreachable!("{LOOKED_AT}")
    }

    fn drop_clean_zeroes(&mut self, _: bool, _: usize) -> Vec<Lba> {
        unreachable!("{LOOKED_AT}")
    }
}

impl Persist for Liar {
    fn begin_restore(&mut self, _: u64, _: u64) {
        unreachable!("{LOOKED_AT}")
    }

    fn touch(&self, lba: Lba) {
        self.0.touch(lba);
    }

    fn end_restore(&mut self, _: &dyn Fn(Lba) -> bool) {
        unreachable!("{LOOKED_AT}")
    }

    fn export_pieces(&self) -> usize {
        self.0.export_pieces()
    }

    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping> {
        let mut mappings = self.0.export_mappings(piece);
        if let Some(&first) = mappings.first() {
            if self.lies(Lie::MappedTwice) {
                mappings.push(first);
            }
            if self.lies(Lie::MappedToNothing) {
                mappings[0].lookup = Lookup::Miss;
            }
        }
        mappings
    }

    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)> {
        self.0.export_fingerprints()
    }

    fn export_slots(&self) -> Vec<ExportedSlot> {
        let mut slots = self.0.export_slots();
        if self.lies(Lie::SlotTwice) {
            slots.push(slots[0]);
        }
        if self.lies(Lie::SlotFree) {
            slots.iter_mut().for_each(|(_, _, state, _)| *state = SlotState::Free);
        }
        slots
    }

    fn begin_export(&mut self) {
        unreachable!("{LOOKED_AT}")
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        unreachable!("{LOOKED_AT}")
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        unreachable!("{LOOKED_AT}")
    }

    fn restore_slot(&mut self, _: SlotId, _: u32, _: Option<StreamClass>, _: &mut dyn FnMut(Lba)) -> bool {
        unreachable!("{LOOKED_AT}")
    }

    fn restore_freed(&mut self, _: SlotId, _: u32, _: &mut dyn FnMut(Lba)) {
        unreachable!("{LOOKED_AT}")
    }

    fn restore_fingerprint(&mut self, _: &Fingerprint, _: &Place, _: ToldBy) {
        unreachable!("{LOOKED_AT}")
    }
}

impl Design for Liar {
    fn stats(&self) -> DesignStats {
        self.0.stats()
    }
}

/// Returns the ledger of `design` with this lie.
fn ledger_of(design: &Decider, lie: Lie) -> Ledger {
    let mut ledger = Ledger::default();
    let dirty = design.dirty_from(Lba(0), usize::MAX);
    let runs = design.export_runs();
    dirty.iter().for_each(|&(lba, seq)| ledger.write(lba, seq, false));
    runs.iter().for_each(|&run| ledger.trim(run));
    let last = dirty.last().expect("a dirty chunk").0;
    match lie {
        Lie::CountsAnotherDirtyChunk => ledger.write(Lba(last.0 + 1), 1, false),
        Lie::ListsADirtyChunkLess => _ = ledger.forget(last),
        Lie::CleanInOneList => _ = ledger.forget(Lba(2)),
        Lie::RunOverAMapping => ledger.trim(Run { first: Lba(2), count: 1, ..runs[0] }),
        Lie::RunLeavesTheVolume => ledger.trim(Run { first: Lba(1 << 30), ..runs[0] }),
        _ => {}
    }
    ledger
}

#[test]
fn an_index_that_contradicts_itself_is_found() {
    let flash = flash(true);
    for (lie, words) in [
        (Lie::CountsAnotherDirtyChunk, "202 chunks are counted as dirty, and 201 are"),
        (Lie::ListsADirtyChunkLess, "200 chunks are listed as dirty, and 201 are"),
        (Lie::SlotKnowsOneLess, "dirty chunks, and"),
        (Lie::SlotTwice, "is known twice"),
        (Lie::SlotFree, "which is Free"),
        (Lie::MappedTwice, "is mapped twice"),
        (Lie::MappedToNothing, "is mapped to nothing"),
        (Lie::RunOverAMapping, "chunk 2 is mapped, and in a trimmed run as well"),
        (Lie::RunLeavesTheVolume, "leaves the volume"),
        (Lie::CleanInOneList, "chunk 2 is dirty in one list and clean in another"),
    ] {
        let mut found = block_on(recovered(&*flash)).expect("recovered");
        let (_, bad) = index::check(&found, &mut VerifyReport::default());
        assert!(bad.is_empty(), "it is sound");
        let ledger = ledger_of(&found.design, lie);
        found.design = Decider::with_ledger(Box::new(Liar(found.design, lie)), ledger);
        let mut report = VerifyReport::default();
        index::check(&found, &mut report);
        assert!(sentences(&report).contains(words), "{lie:?}: {words:?} is not among:\n{}", sentences(&report));
    }
}

#[test]
fn runs_that_overlap_are_found() {
    let run = |first, count| Run::new(Lba(first), count, 1);
    for (runs, is_sound) in [([run(3, 4), run(7, 2)], true), ([run(3, 5), run(7, 2)], false)] {
        let mut report = VerifyReport::default();
        index::check_runs(&runs, 100, &mut report);
        assert_eq!(sentences(&report).contains("overlap"), !is_sound, "{runs:?}");
    }
}
