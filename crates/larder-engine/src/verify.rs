//! Checking everything on a flash that mappings depend on: checksums of superblocks, checkpoint, log and segments, each
//! mapped record, and that the state recovered from them agrees with itself.
//!
//! In order: (1) the superblock twins; (2) the checkpoint, block by block; (3) the log, and whether durable frames of it
//! were lost; (4) recovery; (5) the mappings against the slots; (6) WEU by WEU the segments, and in them each record
//! that a mapping or a fingerprint names: checksum, decoding, fingerprint.
//!
//! Invariants: nothing is written. Whatever is found, the checks go on as far as they can; [`PROBLEMS_MAX`] problems are
//! kept, all are counted. What a crash may leave is no problem: a torn end of the log, a twin that is older or torn.
//!
//! What it does not do: repair, or look at the origin.

mod records;

use crate::{
    config::Tuning,
    error::EngineError,
    recover::{Recovered, recover},
    walk,
};
use larder_core::{Lba, Lookup, design::ExportedMapping, slots::SlotState};
use larder_device::BlockDevice;
use larder_format::{CheckpointBlock, FormatError, LogStart, Superblock, WriteMode, superblock::choose};
use std::collections::HashSet;

/// Problems that a report describes; more are counted.
pub const PROBLEMS_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Where to look: `superblock`, `checkpoint`, `log`, `recovery`, `mapping`, `slot`, `segment`, `record`,
    /// `fingerprint`, `dirty`, `read`.
    pub kind: &'static str,
    /// One sentence.
    pub what: String,
    /// The chunk that is hit.
    pub lba: Option<u64>,
    /// Byte offset on the flash.
    pub flash_offset: Option<u64>,
    /// Only the cache had these bytes.
    pub dirty: bool,
}

/// What a verification found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct VerifyReport {
    /// Nothing is wrong.
    pub clean: bool,
    /// The last end was an orderly one.
    pub clean_shutdown: bool,
    /// Superblock twins that are whole.
    pub superblocks_valid: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Blocks of the checkpoint.
    pub checkpoint_blocks: u64,
    /// Frames of the log since the checkpoint.
    pub log_frames: u64,
    /// Entries in them.
    pub log_entries: u64,
    /// Mappings that were checked, zero chunks and fragments among them.
    pub mappings: u64,
    /// Of them, zero chunks.
    pub zero_mappings: u64,
    /// Of them, fragments.
    pub fragments: u64,
    /// Of them, those that share another's record.
    pub duplicates: u64,
    /// Of them, dirty ones.
    pub dirty_mappings: u64,
    /// Trimmed runs that the origin was not told of.
    pub trimmed_runs: u64,
    /// Fingerprints that were checked.
    pub fingerprints: u64,
    /// WEU slots that were read.
    pub slots_read: u64,
    /// Segments in them.
    pub segments: u64,
    /// Records that were read and checked.
    pub records: u64,
    /// Bytes of them, as stored.
    pub record_bytes: u64,
    /// Dirty chunks whose bytes are lost.
    pub dirty_chunks_lost: u64,
    /// Problems found.
    pub problems_found: u64,
    /// The first of them.
    pub problems: Vec<Problem>,
    /// What is worth knowing and no problem.
    pub notes: Vec<String>,
}

impl VerifyReport {
    fn problem(&mut self, kind: &'static str, what: String) {
        self.problem_at(Problem { kind, what, lba: None, flash_offset: None, dirty: false });
    }

    fn problem_at(&mut self, problem: Problem) {
        self.problems_found += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Checks the cache on `flash`. `progress` is told how many of how many WEU slots were read.
///
/// # Errors
/// Where there is no cache to check: no superblock is whole, or it is a newer one.
pub async fn verify(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, EngineError> {
    let mut report = VerifyReport::default();
    // (1)
    let superblock = check_superblocks(flash, &mut report).await?;
    // (2)
    let log_start = check_checkpoint(flash, &superblock, &mut report).await;
    // (3)
    if let Some(log_start) = log_start {
        check_log(flash, &superblock, log_start, &mut report).await;
    }
    // (4)
    match recover(flash, None, &Tuning::default()).await {
        Err(error) => report.problem("recovery", format!("the cache cannot be opened: {error}")),
        Ok(recovered) => {
            // (5)
            let mappings = check_mappings(&recovered, &mut report);
            // (6)
            records::check(flash, &recovered, &mappings, progress, &mut report).await;
        }
    }
    report.clean = report.problems_found == 0;
    Ok(report)
}

async fn check_superblocks(flash: &dyn BlockDevice, report: &mut VerifyReport) -> Result<Superblock, EngineError> {
    // This refuses what is no cache at all.
    let (superblock, _) = crate::superblock::read(flash).await?;
    report.clean_shutdown = superblock.clean_shutdown;
    let twins = walk::twins(flash).await;
    for (name, twin) in ["first", "second"].into_iter().zip(&twins) {
        match twin {
            Ok(_) => report.superblocks_valid += 1,
            // After an orderly end both are whole.
            Err(error) if superblock.clean_shutdown => {
                report.problem("superblock", format!("the {name} superblock is damaged: {error}"));
            }
            Err(error) => report.notes.push(format!(
                "the {name} superblock is damaged ({error}), as a crash may leave it; the next opening repairs it"
            )),
        }
    }
    if let [Ok(first), Ok(second)] = &twins[..] {
        let differ = choose(&first.encode(), &second.encode()).is_ok_and(|chosen| chosen.repair.is_some());
        if differ {
            let note = "the superblocks differ, as a crash may leave them; the next opening repairs the older one";
            report.notes.push(note.into());
        }
    }
    Ok(superblock)
}

async fn check_checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    report: &mut VerifyReport,
) -> Option<(LogStart, u64)> {
    let Some(pointer) = &superblock.checkpoint else {
        return Some((superblock.log_start, superblock.entry_seq_next));
    };
    let chunk_count = chunk_count(superblock);
    let mut seen = HashSet::new();
    let mut wrong: Vec<Problem> = Vec::new();
    let mut blocks = 0;
    let walked = walk::checkpoint(flash, superblock, pointer, &mut |_, offset, _, block| {
        blocks += 1;
        let lbas: Vec<u64> = match block {
            CheckpointBlock::Mappings(mappings) => mappings.iter().map(|mapping| mapping.lba).collect(),
            CheckpointBlock::Fragments(fragments) => fragments.iter().map(|fragment| fragment.lba).collect(),
            _ => Vec::new(),
        };
        for lba in lbas {
            let what = match (lba < chunk_count, seen.insert(lba)) {
                (true, true) => continue,
                (false, _) => format!("the checkpoint maps chunk {lba}, past the end of the volume"),
                (true, false) => format!("the checkpoint maps chunk {lba} twice"),
            };
            let problem =
                Problem { kind: "checkpoint", what, lba: Some(lba), flash_offset: Some(offset), dirty: false };
            wrong.push(problem);
        }
    })
    .await;
    report.checkpoint_blocks = blocks;
    wrong.into_iter().for_each(|problem| report.problem_at(problem));
    match walked {
        Ok(header) => {
            report.checkpoint_bytes = header.total_bytes;
            if (header.log_start, header.entry_seq_next) != (superblock.log_start, superblock.entry_seq_next) {
                report.problem("checkpoint", "checkpoint and superblock name different log starts".into());
            }
            Some((header.log_start, header.entry_seq_next))
        }
        Err(error) => {
            let what = format!("checkpoint {}, after {blocks} whole blocks: {error}", pointer.checkpoint_id);
            report.problem("checkpoint", what);
            None
        }
    }
}

async fn check_log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    start: (LogStart, u64),
    report: &mut VerifyReport,
) {
    let end = match walk::log(flash, superblock, start, &mut |_, _, _| {}).await {
        Ok(end) => end,
        Err(error) => return report.problem("log", format!("the metadata log cannot be read: {error}")),
    };
    report.log_frames = end.frames;
    report.log_entries = end.entries;
    match walk::lost_frame(flash, superblock, end.next_frame_seq).await {
        Ok(None) => {}
        Ok(Some((seq, at))) => report.problem_at(Problem {
            kind: "log",
            what: format!(
                "durable frames of the metadata log are damaged: frame {} is not there, but frame {seq} is",
                end.next_frame_seq
            ),
            lba: None,
            flash_offset: Some(superblock.layout.log_offset + at),
            dirty: false,
        }),
        Err(error) => report.problem("log", format!("the metadata log cannot be read: {error}")),
    }
}

fn chunk_count(superblock: &Superblock) -> u64 {
    superblock.origin.size_bytes.div_ceil(u64::from(superblock.layout.chunk_bytes))
}

/// Checks the index against itself and the slots; the mappings.
fn check_mappings(recovered: &Recovered, report: &mut VerifyReport) -> Vec<ExportedMapping> {
    let design = &recovered.state.design;
    let layout = &recovered.superblock.layout;
    let mut slots = vec![None; layout.slot_count as usize];
    for (slot, generation, state, _) in design.export_slots() {
        match slots.get_mut(slot.0 as usize) {
            Some(entry @ None) => *entry = Some((generation, state)),
            Some(Some(_)) => report.problem("slot", format!("slot {} is known twice", slot.0)),
            None => report.problem("slot", format!("slot {} is none of {}", slot.0, layout.slot_count)),
        }
    }
    let mappings: Vec<ExportedMapping> =
        (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)).collect();
    let mut seen = HashSet::with_capacity(mappings.len());
    let mut dirty_in_slots = 0;
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
            let problem = Problem { kind: "mapping", what, lba: Some(lba), flash_offset: None, dirty: mapping.dirty };
            report.problem_at(problem);
        };
        if !seen.insert(lba) {
            wrong(format!("chunk {lba} is mapped twice"));
        }
        if lba >= recovered.geometry.chunk_count {
            wrong(format!("chunk {lba} is mapped, and past the end of the volume"));
        }
        let place = match mapping.lookup {
            Lookup::Chunk { place, .. } => place,
            Lookup::Fragment { place, sectors } => {
                if sectors.count() == 0 {
                    wrong(format!("the fragment of chunk {lba} holds no sector"));
                }
                place
            }
            Lookup::Zero => continue,
            Lookup::Miss => {
                wrong(format!("chunk {lba} is mapped to nothing"));
                continue;
            }
        };
        dirty_in_slots += u64::from(mapping.dirty);
        match slots.get(place.slot.0 as usize) {
            Some(Some((generation, state))) => {
                if *generation != place.generation || matches!(state, SlotState::Free | SlotState::Retired) {
                    wrong(format!(
                        "chunk {lba} is mapped into generation {} of slot {}, which is {state:?} in generation {generation}",
                        place.generation, place.slot.0
                    ));
                }
            }
            _ => wrong(format!("chunk {lba} is mapped into slot {}, which there is not", place.slot.0)),
        }
    }
    check_dirty(recovered, dirty_in_slots, report);
    mappings
}

/// The counts that gate eviction and say when a flush is over.
fn check_dirty(recovered: &Recovered, dirty_in_slots: u64, report: &mut VerifyReport) {
    let design = &recovered.state.design;
    let counts = design.dirty_counts();
    if counts.chunks != report.dirty_mappings {
        let what = format!("{} chunks are counted as dirty, and {} are", counts.chunks, report.dirty_mappings);
        report.problem("dirty", what);
    }
    let listed = design.dirty_from(Lba(0), usize::MAX).len() as u64;
    if listed != report.dirty_mappings {
        report.problem("dirty", format!("{listed} chunks are listed as dirty, and {} are", report.dirty_mappings));
    }
    let referenced: u64 = design.export_slots().iter().map(|(slot, ..)| design.dirty_in(*slot).len() as u64).sum();
    if referenced != dirty_in_slots {
        let what = format!("slots know of {referenced} dirty chunks, and {dirty_in_slots} are mapped into them");
        report.problem("dirty", what);
    }
    let runs = design.export_runs();
    report.trimmed_runs = runs.len() as u64;
    for pair in runs.windows(2) {
        if let [first, second] = pair
            && first.first.0 + first.count > second.first.0
        {
            report.problem(
                "dirty",
                format!("the trimmed runs at chunks {} and {} overlap", first.first.0, second.first.0),
            );
        }
    }
    if recovered.state.mode != WriteMode::Back && report.dirty_mappings > 0 {
        let what = format!("{} chunks are dirty, and the mode is not write-back", report.dirty_mappings);
        report.problem("dirty", what);
    }
}

/// Whether an error means that a structure is absent, rather than damaged.
fn is_absent(error: &FormatError) -> bool {
    matches!(error, FormatError::BadMagic(_) | FormatError::Foreign(_) | FormatError::Truncated { .. })
}

#[cfg(test)]
mod tests;
