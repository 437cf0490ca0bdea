//! The checks of a recovered state against itself: mappings, slots, dirty counts, trimmed runs,
//! limits.
//!
//! Invariants: it does not read the flash, or change the state.
//!
//! It does not look at records.

use super::{report::Problem, report::VerifyReport, salvage::Salvaged};
use crate::{
    audit,
    verify::homes::{Homes, SlotList},
};
use larder_core::{Lba, Lookup, Place, SlotId, design::ExportedMapping, ranges::Run, types::SECTOR_BYTES};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Checks the state. Returns its mappings, and the chunks with an impossible mapping.
pub fn check(found: &Salvaged, report: &mut VerifyReport) -> (Vec<ExportedMapping>, BTreeSet<u64>) {
    let design = &found.design;
    let homes = Homes {
        slots: slots(found, report),
        runs: design.stored_runs().into_iter().map(|(slot, count)| (slot.0, count)).collect(),
    };
    let mappings: Vec<ExportedMapping> =
        (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)).collect();
    let runs = design.export_runs();
    let mut seen = HashSet::with_capacity(mappings.len());
    let mut dirty_in_slots: BTreeMap<u32, u64> = BTreeMap::new();
    let mut bad = BTreeSet::new();
    for mapping in &mappings {
        let lba = mapping.lba.0;
        report.mappings += 1;
        report.dirty_mappings += u64::from(mapping.dirty);
        match mapping.lookup {
            Lookup::Chunk { duplicate, .. } => report.duplicates += u64::from(duplicate),
            Lookup::Fragment { .. } => report.fragments += 1,
            Lookup::Zero | Lookup::Miss => report.zero_mappings += 1,
        }
        let mut wrong = |what: String| {
            bad.insert(lba);
            let problem = Problem { kind: "mapping", what, lba: Some(lba), flash_offset: None, dirty: mapping.dirty };
            report.problem_at(problem);
        };
        if !seen.insert(lba) {
            wrong(format!("chunk {lba} is mapped twice"));
        }
        if lba >= found.geometry.chunk_count {
            wrong(format!("chunk {lba} is mapped, and past the end of the volume"));
        }
        if run_of(&runs, lba).is_some() {
            wrong(format!("chunk {lba} is mapped, and in a trimmed run as well"));
        }
        if mapping.dirty != design.dirty_seq(mapping.lba).is_some() {
            wrong(format!("chunk {lba} is dirty in one list and clean in another"));
        }
        if let Some(place) = place_of(found, mapping, &mut wrong) {
            *dirty_in_slots.entry(place.slot.0).or_default() += u64::from(mapping.dirty);
            if let Some(what) = audit::of(found).out_of_place(&homes, &found.superblock.layout, lba, &place) {
                wrong(what);
            }
        }
    }
    dirty(found, &homes, &dirty_in_slots, &runs, report);
    limits(found, report);
    (mappings, bad)
}

fn slots(found: &Salvaged, report: &mut VerifyReport) -> SlotList {
    let layout = &found.superblock.layout;
    let mut slots: SlotList = vec![None; layout.slot_count as usize];
    for (slot, generation, state, _) in found.design.export_slots() {
        match slots.get_mut(slot.0 as usize) {
            Some(entry @ None) => *entry = Some((generation, state)),
            Some(Some(_)) => report.problem("slot", format!("slot {} is known twice", slot.0)),
            None => report.problem("slot", format!("slot {} is none of {}", slot.0, layout.slot_count)),
        }
    }
    slots
}

fn place_of(found: &Salvaged, mapping: &ExportedMapping, wrong: &mut dyn FnMut(String)) -> Option<Place> {
    let lba = mapping.lba.0;
    match mapping.lookup {
        Lookup::Chunk { place, .. } => Some(place),
        Lookup::Fragment { place, sectors } => {
            if sectors.count() == 0 {
                wrong(format!("the fragment of chunk {lba} holds no sector"));
            }
            let last = sectors.runs(256).last().map_or(0, |(_, end)| end);
            if last > found.geometry.chunk_len(mapping.lba).div_ceil(SECTOR_BYTES) {
                wrong(format!("the fragment of chunk {lba} holds sectors that the chunk does not have"));
            }
            Some(place)
        }
        Lookup::Zero => None,
        Lookup::Miss => {
            wrong(format!("chunk {lba} is mapped to nothing"));
            None
        }
    }
}

fn run_of(runs: &[Run], lba: u64) -> Option<&Run> {
    let before = runs.partition_point(|run| run.first.0 <= lba);
    runs.get(before.checked_sub(1)?).filter(|run| lba < run.first.0.saturating_add(run.count))
}

/// Checks the counts that gate eviction and end a flush.
fn dirty(
    found: &Salvaged,
    homes: &Homes,
    dirty_in_slots: &BTreeMap<u32, u64>,
    runs: &[Run],
    report: &mut VerifyReport,
) {
    let design = &found.design;
    let counts = design.dirty_counts();
    if counts.chunks != report.dirty_mappings {
        let what = format!("{} chunks are counted as dirty, and {} are", counts.chunks, report.dirty_mappings);
        report.problem("dirty", what);
    }
    let listed = design.dirty_from(Lba(0), usize::MAX).len() as u64;
    if listed != report.dirty_mappings {
        report.problem("dirty", format!("{listed} chunks are listed as dirty, and {} are", report.dirty_mappings));
    }
    for slot in homes.all() {
        let known = design.dirty_in(SlotId(slot)).len() as u64;
        let mapped = dirty_in_slots.get(&slot).copied().unwrap_or(0);
        if known != mapped {
            let what = format!("slot {slot} knows of {known} dirty chunks, and {mapped} are mapped into it");
            report.problem("dirty", what);
        }
    }
    check_runs(runs, found.geometry.chunk_count, report);
}

/// Checks the trimmed runs, in the order of their addresses.
pub fn check_runs(runs: &[Run], chunk_count: u64, report: &mut VerifyReport) {
    report.trimmed_runs = runs.len() as u64;
    for pair in runs.windows(2) {
        if let [first, second] = pair
            && first.first.0.saturating_add(first.count) > second.first.0
        {
            let what = format!("the trimmed runs at chunks {} and {} overlap", first.first.0, second.first.0);
            report.problem("dirty", what);
        }
    }
    if let Some(last) = runs.last()
        && last.first.0.saturating_add(last.count) > chunk_count
    {
        report.problem("dirty", format!("the trimmed run at chunk {} leaves the volume", last.first.0));
    }
}

/// Checks the counts for which a checkpoint needs room.
fn limits(found: &Salvaged, report: &mut VerifyReport) {
    let max = found.superblock.layout.mappings_max;
    if report.mappings > max {
        let what = format!("there are {} mappings, more than the {max} that a checkpoint holds", report.mappings);
        report.problem("index", what);
    }
}
