//! The data slots of a bucket store: each record that a dirty mapping or a metadata slot names.
//!
//! Dirty records are checked by their mapping alone. Any other record needs a metadata slot that
//! describes it, and content with the fingerprint in that slot. Some records have a metadata slot
//! of another content than the index looks for. They were dirty once and lay in another content's
//! place, and no lookup finds them.
//!
//! Invariants: a record is read once. A damaged metadata slot of a dirty record is a note: no
//! mapping depends on it.
//!
//! It does not check the indices, which name the records.

use super::{
    findings::{Findings, Named, NamedBySlot, RecordCheck},
    records::{SlotReader, homeless, unreadable},
    report::Problem,
    report::VerifyReport,
    window::{PIECE_BYTES, Window},
};
use crate::region::{StoredRun, clean_mappings, stored_runs};
use larder_codec::Codec;
use larder_core::{Decider, Lookup, Place};
use std::collections::HashSet;

/// Checks every record.
pub(crate) async fn check(check: RecordCheck<'_>) -> Findings {
    let RecordCheck { flash, found, mut named, progress, report } = check;
    let superblock = &found.superblock;
    let layout = &superblock.layout;
    let mut findings = Findings::default();
    let codec = Codec::new(superblock.hash_key, superblock.compression, 1, true);
    let runs = stored_runs(flash, superblock, &found.design).await;
    let total = runs.len() as u64;
    count_clean(&runs, &found.design, report);
    let end = layout.slot_offset(0).unwrap_or_default() + u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    for (done, run) in runs.iter().enumerate() {
        progress(done as u64, total);
        let Some(offset) = layout.slot_offset(run.slot.0) else { continue };
        let mut names = take(&mut named, run.slot.0);
        let is_dirty = !names.is_empty();
        match run.known(&found.design) {
            Some(entry) if !is_dirty || names.iter().any(|(place, _)| *place == entry.place) => {
                report.fingerprints += 1;
                names.push((entry.place, Named::Fingerprint(*entry.metadata.fingerprint())));
            }
            Some(_) => {}
            None => unknown(run, is_dirty, layout.metadata_slot_offset(run.slot.0), report, &mut findings),
        }
        report.slots_read += u64::from(run.slots);
        report.records_listed += 1;
        if names.is_empty() {
            report.records_unused += 1;
            continue;
        }
        let len =
            names.iter().map(|(place, _)| place.stored_len).max().unwrap_or(0).next_multiple_of(PIECE_BYTES as u32);
        let mut window = Window::new(flash, offset, (offset + u64::from(len)).min(end));
        let stored = window.bytes(offset, len as usize).await.to_vec();
        unreadable(&window, run.slot.0, &names, report, &mut findings);
        let mut reader = SlotReader {
            bytes: &stored,
            slot_offset: offset,
            lists: None,
            codec: &codec,
            chunk: vec![0; layout.chunk_bytes as usize],
            report,
            findings: &mut findings,
        };
        names.sort_by_key(|(place, _)| (place.generation, place.stored_len, place.crc));
        reader.check_overlaps(&names);
        for same in names.chunk_by(|(a, _), (b, _)| a == b) {
            reader.check_record(same);
        }
        if names.iter().any(|(_, named)| is_bad(named, &findings)) {
            findings.bad_runs.insert(run.slot.0);
        }
    }
    // Records do not move: each has its own slots.
    findings.damaged_slots.clear();
    homeless(named, &mut findings);
    progress(total, total);
    findings
}

/// Returns whether a record is named by a fingerprint that is not its content's.
fn is_bad(named: &Named, findings: &Findings) -> bool {
    match named {
        Named::Fingerprint(fingerprint) => findings.bad_fingerprints.contains(&fingerprint.0),
        Named::Chunk { .. } => false,
    }
}

/// Counts the clean mappings that metadata slots list: the indices know no address of them.
fn count_clean(runs: &[StoredRun], design: &Decider, report: &mut VerifyReport) {
    let mut slots = HashSet::new();
    for mapping in clean_mappings(runs, design) {
        let Lookup::Chunk { place, .. } = mapping.lookup else { continue };
        report.mappings += 1;
        report.duplicates += u64::from(!slots.insert(place.slot));
    }
}

/// Takes the names of records in a slot, of any generation.
fn take(named: &mut NamedBySlot, slot: u32) -> Vec<(Place, Named)> {
    let generations: Vec<(u32, u32)> = named.range((slot, 0)..=(slot, u32::MAX)).map(|(key, _)| *key).collect();
    generations.iter().filter_map(|key| named.remove(key)).flatten().collect()
}

/// Notes a record whose metadata slot is damaged, or another content's.
fn unknown(
    run: &StoredRun,
    is_dirty: bool,
    flash_offset: Option<u64>,
    report: &mut VerifyReport,
    findings: &mut Findings,
) {
    let slot = run.slot.0;
    match (run.entry.is_some(), is_dirty) {
        (true, _) => {}
        (false, true) => {
            findings.bad_runs.insert(slot);
            report.note(format!(
                "the metadata slot of slot {slot} is damaged; the data in the slot is dirty, and mapped without it"
            ));
        }
        (false, false) => {
            findings.bad_runs.insert(slot);
            let what = format!(
                "the metadata slot of slot {slot} is damaged: its content is unknown (clean, the origin has it)"
            );
            report.problem_at(Problem { kind: "metadata slot", what, lba: None, flash_offset, dirty: false });
        }
    }
}
