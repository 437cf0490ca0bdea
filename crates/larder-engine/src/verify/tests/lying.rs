//! An index that contradicts itself: each of its answers is bent once, and the check that compares
//! it with another finds that.

use super::*;
use larder_core::{
    Design, Fingerprint, NewMapping, Place, SlotId, StreamClass,
    design::{DesignStats, DirtyCounts, ExportedMapping, Mapping, Persist, Slots, Victim},
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
    RunOverlaps,
    RunOverAMapping,
    RunLeavesTheVolume,
    CleanInOneList,
}

struct Liar(Box<dyn Design>, Lie);

impl Liar {
    fn lies(&self, lie: Lie) -> bool {
        self.1 == lie
    }
}

impl Mapping for Liar {
    fn lookup(&mut self, lba: Lba) -> Lookup {
        self.0.lookup(lba)
    }

    fn peek(&self, lba: Lba) -> Lookup {
        self.0.peek(lba)
    }

    fn find_duplicate(&mut self, fingerprint: &Fingerprint) -> Option<Place> {
        self.0.find_duplicate(fingerprint)
    }

    fn map(&mut self, lba: Lba, new: NewMapping, dirty_seq: Option<u64>) {
        self.0.map(lba, new, dirty_seq);
    }

    fn unmap(&mut self, lba: Lba) -> bool {
        self.0.unmap(lba)
    }

    fn unmap_run(&mut self, first: Lba, count: u64) {
        self.0.unmap_run(first, count);
    }

    fn mapped_in(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.0.mapped_in(first, count)
    }

    fn trim(&mut self, run: Run) {
        self.0.trim(run);
    }

    fn has_room(&self, count: u64) -> bool {
        self.0.has_room(count)
    }

    fn dirty_seq(&self, lba: Lba) -> Option<u64> {
        let seq = self.0.dirty_seq(lba);
        if self.lies(Lie::CleanInOneList) && lba == Lba(2) { None } else { seq }
    }

    fn dirty_from(&self, from: Lba, max: usize) -> Vec<(Lba, u64)> {
        let mut list = self.0.dirty_from(from, max);
        if self.lies(Lie::ListsADirtyChunkLess) {
            list.pop();
        }
        list
    }

    fn trimmed_from(&self, from: Lba) -> Option<Run> {
        self.0.trimmed_from(from)
    }

    fn dirty_counts(&self) -> DirtyCounts {
        let counts = self.0.dirty_counts();
        DirtyCounts { chunks: counts.chunks + u64::from(self.lies(Lie::CountsAnotherDirtyChunk)), ..counts }
    }

    fn mark_clean(&mut self, lba: Lba, seq: u64) -> bool {
        self.0.mark_clean(lba, seq)
    }

    fn mark_run_clean(&mut self, run: &Run) {
        self.0.mark_run_clean(run);
    }
}

impl Slots for Liar {
    fn open_slot(&mut self, class: StreamClass) -> Option<(SlotId, u32)> {
        self.0.open_slot(class)
    }

    fn seal_slot(&mut self, slot: SlotId) {
        self.0.seal_slot(slot);
    }

    fn free_slots(&self) -> usize {
        self.0.free_slots()
    }

    fn choose_victim(&mut self, busy: &mut dyn FnMut(SlotId) -> bool) -> Option<Victim> {
        self.0.choose_victim(busy)
    }

    fn spare_victim(&mut self, slot: SlotId) {
        self.0.spare_victim(slot);
    }

    fn dirty_in(&self, slot: SlotId) -> Vec<Lba> {
        let mut list = self.0.dirty_in(slot);
        if self.lies(Lie::SlotKnowsOneLess) {
            list.pop();
        }
        list
    }

    fn evict(&mut self, slot: SlotId) -> Option<u32> {
        self.0.evict(slot)
    }

    fn release_slot(&mut self, slot: SlotId) {
        self.0.release_slot(slot);
    }

    fn sweep(&mut self) -> usize {
        self.0.sweep()
    }

    fn drop_clean_zeroes(&mut self, all: bool, max: usize) -> Vec<Lba> {
        self.0.drop_clean_zeroes(all, max)
    }
}

impl Persist for Liar {
    fn begin_restore(&mut self, mappings: u64, fingerprints: u64) {
        self.0.begin_restore(mappings, fingerprints);
    }

    fn touch(&self, lba: Lba) {
        self.0.touch(lba);
    }

    fn settle_dirty(&mut self) {
        self.0.settle_dirty();
    }

    fn end_restore(&mut self) {
        self.0.end_restore();
    }

    fn restore_duplicate(&mut self, fingerprint: &Fingerprint, place: &Place) {
        self.0.restore_duplicate(fingerprint, place);
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
        self.0.begin_export();
    }

    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>> {
        self.0.next_slots()
    }

    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>> {
        self.0.next_fingerprints()
    }

    fn export_runs(&self) -> Vec<Run> {
        let mut runs = self.0.export_runs();
        let first = runs[0];
        match self.1 {
            Lie::RunOverlaps => runs.push(Run { first: Lba(first.first.0 + 1), ..first }),
            Lie::RunOverAMapping => runs.insert(0, Run { first: Lba(2), count: 1, ..first }),
            Lie::RunLeavesTheVolume => runs.push(Run { first: Lba(1 << 30), ..first }),
            _ => {}
        }
        runs
    }

    fn restore_slot(&mut self, slot: SlotId, generation: u32) -> bool {
        self.0.restore_slot(slot, generation)
    }

    fn restore_class(&mut self, slot: SlotId, class: StreamClass) {
        self.0.restore_class(slot, class);
    }

    fn restore_freed(&mut self, slot: SlotId, generation: u32) {
        self.0.restore_freed(slot, generation);
    }

    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place) {
        self.0.restore_fingerprint(fingerprint, place);
    }
}

impl Design for Liar {
    fn stats(&self) -> DesignStats {
        self.0.stats()
    }
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
        (Lie::RunOverlaps, "overlap"),
        (Lie::RunOverAMapping, "chunk 2 is mapped, and in a trimmed run as well"),
        (Lie::RunLeavesTheVolume, "leaves the volume"),
        (Lie::CleanInOneList, "chunk 2 is dirty in one list and clean in another"),
    ] {
        let mut found = block_on(recovered(&*flash)).expect("recovered");
        let (_, bad) = index::check(&found, &mut VerifyReport::default());
        assert!(bad.is_empty(), "it is sound");
        found.design = Box::new(Liar(found.design, lie));
        let mut report = VerifyReport::default();
        index::check(&found, &mut report);
        assert!(sentences(&report).contains(words), "{lie:?}: {words:?} is not among:\n{}", sentences(&report));
    }
}
