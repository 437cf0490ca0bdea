//! Replay: a design takes the entries of a checkpoint and of the log, one after the other.
//!
//! One rule makes the state. Entries apply in order, and the newest for an address wins. *Slot
//! freed* kills the mappings of that generation and older ones. An entry that names an ended
//! generation is dead: its slot was freed later in the log. This happens over a checkpoint of
//! pieces from different moments.
//!
//! Invariants: any entries that decode can be applied; none makes it panic.
//!
//! It does not read; [`walk`](crate::walk) does.

use crate::places::from_format;
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, NewMapping, SectorMap, SlotId, StreamClass,
    design::{RecalledSlot, ToldBy},
    history::Trust,
    ranges::Run,
};
use larder_format::{
    CheckpointBlock, CheckpointCounts, Layout, LogEntry, RecordContent, RecordEntry, SlotEntry, SlotState, Superblock,
    WeuClass, ZeroRange,
};
use std::collections::BTreeSet;

/// Entries whose chunks are looked up before any of them is applied.
const TOUCHED_AT_ONCE: usize = 32;

/// Applies checkpoint and log entries to a design.
pub struct Replay {
    /// The design.
    pub design: Decider,
    /// Chunks of the volume; entries beyond it are passed over.
    pub chunk_count: u64,
    /// The limits of record places.
    pub layout: Layout,
    /// The write mode.
    pub mode: larder_format::WriteMode,
    /// Slots, with generations, of mapped records that no table had, unless the log frees them.
    unrecalled: BTreeSet<(u32, u32)>,
}

impl Replay {
    /// Returns a replay onto `design`, an empty one, for the cache that `superblock` describes.
    pub fn new(design: Decider, chunk_count: u64, superblock: &Superblock) -> Replay {
        let (layout, mode) = (superblock.layout, superblock.mode);
        Replay { design, chunk_count, layout, mode, unrecalled: BTreeSet::new() }
    }

    /// Returns whether mappings of the checkpoint are missing, because their tables cannot be read.
    ///
    /// A later opening may read them after all. So a new checkpoint must come before each change.
    pub fn is_incomplete(&self) -> bool {
        !self.unrecalled.is_empty()
    }

    fn map(
        &mut self,
        lba: u64,
        place: Option<&larder_format::FlashPlace>,
        new: impl FnOnce() -> NewMapping,
        dirty: Option<u64>,
    ) {
        if lba >= self.chunk_count {
            return;
        }
        let lba = Lba(lba);
        match place {
            // A place outside its slot cannot be read. The checksums let none through, so only a
            // defect makes one.
            Some(place) if !self.layout.has_record(place) => {
                self.design.unmap(lba);
            }
            Some(place) if !self.design.restore_slot(SlotId(place.slot), place.generation, None) => {
                self.design.unmap(lba);
            }
            _ => self.design.map(lba, new(), dirty),
        }
    }

    /// Notes a record of a mapping: its slot takes data of its class.
    fn stored(&mut self, place: &larder_format::FlashPlace, dirty: bool) {
        let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
        self.design.restore_slot(SlotId(place.slot), place.generation, Some(class));
    }

    fn trim(&mut self, run: Run) {
        let end = run.first.0.saturating_add(run.count).min(self.chunk_count);
        if run.first.0 < end {
            self.design.trim(Run { count: end - run.first.0, ..run });
        }
    }

    /// Begins with the checkpoint's counts.
    pub fn begin(&mut self, counts: &CheckpointCounts) {
        self.design.begin_restore(counts.mappings.saturating_add(counts.fragments), counts.fingerprints);
    }

    /// Ends the replay. `trust` says how far the checkpoint's history holds, if at all.
    pub fn end(&mut self, trust: Option<Trust>) {
        if let Some(trust) = trust {
            self.design.trust_history(trust);
        }
        self.design.end_restore();
    }

    /// Applies the entries of a frame, the first of which has sequence number `first_seq`.
    pub fn frame(&mut self, first_seq: u64, entries: &[LogEntry]) {
        for (seq, entries) in (first_seq..).step_by(TOUCHED_AT_ONCE).zip(entries.chunks(TOUCHED_AT_ONCE)) {
            for entry in entries {
                if let LogEntry::Map { lba, .. } | LogEntry::MapZero { lba, .. } | LogEntry::Fragment { lba, .. } =
                    entry
                {
                    self.design.touch(Lba(*lba));
                }
            }
            let later = entries.iter().skip(1).map(Some).chain([None]);
            for ((seq, entry), later) in (seq..).zip(entries).zip(later) {
                if !later.is_some_and(|later| covers(later, entry)) {
                    self.apply(seq, entry);
                }
            }
        }
    }

    /// Applies the entry with sequence number `seq`.
    pub fn apply(&mut self, seq: u64, entry: &LogEntry) {
        match entry {
            LogEntry::Map { lba, place, dirty, duplicate, fingerprint } => {
                let core = from_format(place);
                let known = (*fingerprint != [0; 16]).then_some(Fingerprint(*fingerprint));
                let new = || match duplicate {
                    true => NewMapping::Duplicate { place: core },
                    false => NewMapping::Unique { place: core, fingerprint: known },
                };
                self.map(*lba, Some(place), new, dirty.then_some(seq));
                if !*duplicate {
                    self.stored(place, *dirty);
                }
                if let (true, Some(fingerprint)) = (*duplicate, known) {
                    self.design.restore_fingerprint(&fingerprint, &core, ToldBy::Log);
                }
            }
            LogEntry::MapZero { lba, dirty } => self.map(*lba, None, || NewMapping::Zero, dirty.then_some(seq)),
            LogEntry::Fragment { lba, place, dirty, sectors } => {
                let sectors = SectorMap::from_bytes(sectors);
                let new = || NewMapping::Fragment { place: from_format(place), sectors };
                self.map(*lba, Some(place), new, dirty.then_some(seq));
                self.stored(place, *dirty);
            }
            &LogEntry::Trim { lba, chunk_count: count, no_hole, advisory, .. } => {
                self.trim(Run { first: Lba(lba), count, seq, no_hole, advisory });
            }
            LogEntry::Invalidate { lba, chunk_count } => {
                let end = lba.saturating_add(*chunk_count).min(self.chunk_count);
                self.design.unmap_run(Lba(*lba), end.saturating_sub(*lba));
            }
            LogEntry::Clean { lba, chunk_count, map_seq } => self.clean(*lba, *chunk_count, *map_seq),
            LogEntry::SlotFreed { slot, generation } => {
                self.unrecalled.remove(&(*slot, *generation));
                self.design.restore_freed(SlotId(*slot), *generation);
            }
            LogEntry::Mode { mode } => self.mode = *mode,
        }
    }

    fn clean(&mut self, lba: u64, count: u64, map_seq: u64) {
        self.design.confirm_dirty();
        let end = lba.saturating_add(count).min(self.chunk_count);
        // A mapping that a checkpoint calls dirty carries sequence number 0: any mark that follows
        // is for it.
        let mut from = Lba(lba);
        loop {
            let found = self.design.dirty_from(from, 256);
            let inside: Vec<_> = found.iter().copied().filter(|(lba, _)| lba.0 < end).collect();
            for &(lba, seq) in &inside {
                if seq <= map_seq {
                    self.design.mark_clean(lba, seq);
                }
            }
            match inside.last() {
                Some(&(last, _)) if inside.len() == 256 => from = Lba(last.0 + 1),
                _ => break,
            }
        }
        for seq in [map_seq, 0] {
            self.design.mark_run_clean(&Run::new(Lba(lba), end.saturating_sub(lba), seq));
        }
    }

    fn slot(&mut self, entry: &SlotEntry) {
        let slot = SlotId(entry.slot);
        match entry.state {
            // A slot that was never used has had no generation yet.
            SlotState::Free if entry.generation == u32::MAX => {}
            SlotState::Free => self.design.restore_freed(slot, entry.generation),
            _ => _ = self.design.restore_slot(slot, entry.generation, Some(stream_class(entry.class))),
        }
    }

    fn zero_range(&mut self, range: &ZeroRange) {
        // The ranges are exported after the mappings: a chunk that is mapped inside a range was
        // written after its trim.
        let &ZeroRange { no_hole, advisory, .. } = range;
        let part = |from, count| Run { first: Lba(from), count, seq: 0, no_hole, advisory };
        let mut from = range.lba;
        let end = range.lba.saturating_add(range.chunk_count).min(self.chunk_count);
        let mut mapped = self.design.mapped_in(Lba(from), end.saturating_sub(from));
        mapped.retain(|&lba| self.design.peek(lba) != Lookup::Miss);
        for Lba(lba) in mapped {
            if from < lba {
                self.trim(part(from, lba - from));
            }
            from = lba + 1;
        }
        if from < end {
            self.trim(part(from, end - from));
        }
    }

    /// Applies the records of a slot that the history names, from the records of its tables.
    pub fn recall(&mut self, named: &RecalledSlot, records: &[RecordEntry]) {
        for recalled in &named.records {
            let at = records.binary_search_by_key(&recalled.offset, |record| record.offset).ok();
            let found = at.and_then(|at| records.get(at));
            let Some(record @ RecordEntry { content: RecordContent::Chunk(content), .. }) = found else {
                if recalled.is_mapped {
                    self.unrecalled.insert((named.slot.0, named.generation));
                }
                continue;
            };
            let place = record.place(named.slot.0, named.generation);
            let known = Some(Fingerprint(*content)).filter(|_| recalled.is_known && *content != [0; 16]);
            let is_its = record.lba as u16 == recalled.lba_low && record.lba < self.chunk_count;
            if recalled.is_mapped && is_its && self.design.peek(Lba(record.lba)) == Lookup::Miss {
                let new = || NewMapping::Unique { place: from_format(&place), fingerprint: known };
                self.map(record.lba, Some(&place), new, None);
            } else if let Some(known) = known.filter(|_| self.layout.has_record(&place)) {
                self.design.restore_fingerprint(&known, &from_format(&place), ToldBy::Checkpoint);
            }
        }
    }

    /// Applies a block of a checkpoint.
    pub fn block(&mut self, block: CheckpointBlock) {
        match block {
            CheckpointBlock::Slots(slots) => {
                slots.iter().for_each(|slot| self.slot(slot));
            }
            CheckpointBlock::Mappings(mappings) => {
                for mapping in mappings {
                    let new = || match &mapping.place {
                        None => NewMapping::Zero,
                        Some(place) if mapping.duplicate => NewMapping::Duplicate { place: from_format(place) },
                        Some(place) => NewMapping::Unique { place: from_format(place), fingerprint: None },
                    };
                    self.map(mapping.lba, mapping.place.as_ref(), new, mapping.dirty.then_some(0));
                }
            }
            CheckpointBlock::Fragments(fragments) => {
                for fragment in fragments {
                    let sectors = SectorMap::from_bytes(&fragment.sectors);
                    let new = || NewMapping::Fragment { place: from_format(&fragment.place), sectors };
                    self.map(fragment.lba, Some(&fragment.place), new, fragment.dirty.then_some(0));
                }
            }
            CheckpointBlock::ZeroRanges(ranges) => {
                ranges.iter().for_each(|range| self.zero_range(range));
            }
            CheckpointBlock::Fingerprints(fingerprints) => {
                for entry in fingerprints {
                    let (fingerprint, place) = (Fingerprint(entry.fingerprint), from_format(&entry.place));
                    self.design.restore_fingerprint(&fingerprint, &place, ToldBy::Checkpoint);
                }
            }
            CheckpointBlock::DesignPages(pages) => {
                for page in pages {
                    // A checkpoint that was written holds valid pages alone; the content of an
                    // invalid one would be misses.
                    self.design.restore_page(page.number() as usize, page.bytes());
                }
            }
        }
    }
}

fn stream_class(class: WeuClass) -> StreamClass {
    match class {
        WeuClass::Clean => StreamClass::Clean,
        WeuClass::Dirty => StreamClass::Dirty,
    }
}

/// Returns whether a trim undoes all that the trim before it did.
///
/// The log names a run anew, and longer, for each trim that extends it. A replay of each of them
/// would cost the square of their number.
fn covers(later: &LogEntry, entry: &LogEntry) -> bool {
    match (later, entry) {
        (
            LogEntry::Trim { lba: later, chunk_count: later_count, .. },
            LogEntry::Trim { lba, chunk_count: count, .. },
        ) => later <= lba && lba.saturating_add(*count) <= later.saturating_add(*later_count),
        _ => false,
    }
}
