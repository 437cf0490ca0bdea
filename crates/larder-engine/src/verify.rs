//! Checking everything on a flash that mappings depend on: checksums of superblocks, checkpoint, log and segments, each
//! mapped record, and that the state recovered from them agrees with itself.
//!
//! In order: (1) the superblock twins; (2) the checkpoint, block by block, and each of its entries; (3) the log, each of
//! its entries, and whether durable frames of it were lost; (4) recovery, or, where that is refused, what is left;
//! (5) the mappings against slots, dirty counts and trimmed runs; (6) WEU by WEU the segments, and in them each record
//! that a mapping or a fingerprint names: checksum, decoding, fingerprint, and that it lies alone.
//!
//! Invariants: nothing is written. Whatever is found, the checks go on as far as they can; [`PROBLEMS_MAX`] problems are
//! kept, all are counted. What a crash may leave is no problem: a torn end of the log, a twin that is older or torn,
//! torn segments that no metadata names. (So a rotten end of the log passes for a torn one, unless a slot names a lost frame;
//! [`VerifyReport::log_end_confirmed`] is false without a confirmation of the end.)
//!
//! A failed read is the device's error, and no damage: the report counts the bytes that could not be read.
//!
//! What it does not do: repair ([`repair`] does), or look at the origin.

pub(crate) mod buckets;
pub(crate) mod frames;
pub(crate) mod index;
pub mod losses;
mod metadata;
mod moving;
pub(crate) mod rebuild;
pub(crate) mod records;
pub mod repair;
pub(crate) mod salvage;
mod watched;
pub(crate) mod window;

use crate::{
    config::Tuning,
    error::EngineError,
    recover::{Recovered, recover},
};
use larder_device::BlockDevice;
use larder_format::LogStart;
use records::Findings;
pub use salvage::LogGap;
use salvage::{MetadataDamage, Salvaged, salvage};
use watched::Watched;

/// Problems that a report describes; more are counted.
pub const PROBLEMS_MAX: usize = 100;
/// Notes that a report has at most.
pub const NOTES_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Where to look: `superblock`, `checkpoint`, `log`, `recovery`, `index`, `mapping`, `dirty`, `slot`, `segment`,
    /// `record`, `fingerprint`, `read`.
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
    /// The log is surely there to its end: both superblocks record that the last end was orderly. Otherwise only a name in a slot
    /// reveals frames that were lost behind the last one.
    pub log_end_confirmed: bool,
    /// The newest frame of the log that a slot names as durable.
    pub log_frame_named: Option<u64>,
    /// The last frame of the log on the flash; 0 for none.
    pub log_frame_last: u64,
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
    /// What a slot is, in a word: a WEU, a chunk or a subchunk.
    pub slot: &'static str,
    /// Slots that were read.
    pub slots_read: u64,
    /// Whole segments in them, and damaged ones that hold a record in use.
    pub segments: u64,
    /// Torn segments of which nothing is in use.
    pub segments_unused: u64,
    /// Records that the segments list.
    pub records_listed: u64,
    /// Of them, those that nothing names: garbage until the WEU is evicted.
    pub records_unused: u64,
    /// Records in use that were read and checked.
    pub records: u64,
    /// Bytes of them, as stored.
    pub record_bytes: u64,
    /// Dirty chunks whose bytes are lost.
    pub dirty_chunks_lost: u64,
    /// Bytes that the device failed to read: their content is unknown, and problems may stem from that alone.
    pub unread_bytes: u64,
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

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}

/// Checks the cache on `flash`. `progress` is told how many of how many slots were read.
///
/// # Errors
/// Where there is no cache to check: no superblock is whole, or it is a newer one.
pub async fn verify(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, EngineError> {
    let watched = Watched::over(flash);
    let mut report = check(&watched, progress).await?.report;
    watched.settle(&mut report)?;
    Ok(report)
}

/// A report, and what a repair needs besides.
struct Checked {
    report: VerifyReport,
    /// `None`: not even the superblock's own words can be made a state of.
    found: Option<Salvaged>,
    findings: Findings,
}

async fn check(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<Checked, EngineError> {
    let mut report = VerifyReport::default();
    // (1)
    let superblock = metadata::superblocks(flash, &mut report).await?;
    report.slot = superblock.layout.store().slot_name();
    // (2)
    let says = metadata::checkpoint(flash, &superblock, &mut report).await;
    // (3)
    if let Some(says) = says {
        metadata::log(flash, &superblock, &says, &mut report).await;
    }
    // (4)
    let metadata_is_whole = report.problems.iter().all(|problem| problem.kind == "superblock");
    let found = match recovered(flash).await {
        Ok(found) if metadata_is_whole => Some(found),
        // An opening may pass over damage that a look at the whole log shows.
        Ok(_) => salvage(flash, false).await.ok(),
        Err(error) => {
            report.problem("recovery", format!("the cache cannot be opened: {error}"));
            salvage(flash, false).await.ok()
        }
    };
    let mut findings = Findings::default();
    if let Some(found) = &found {
        // (5)
        let (mappings, bad) = index::check(found, &mut report);
        // (6)
        findings = records::check(flash, found, &mappings, progress, &mut report).await;
        findings.bad_chunks.extend(bad);
    }
    report.clean = report.problems_found == 0;
    Ok(Checked { report, found, findings })
}

/// The state as an opening recovers it.
///
/// # Errors
/// Where an opening would be refused.
pub(crate) async fn recovered(flash: &dyn BlockDevice) -> Result<Salvaged, EngineError> {
    let Recovered { superblock, repair, state, geometry, .. } = recover(flash, None, &Tuning::default()).await?;
    let position = state.log.area.position();
    let start = LogStart { offset_in_log: position.offset, frame_seq: position.frame_seq };
    Ok(Salvaged {
        superblock,
        twin_needs_repair: repair.is_some(),
        geometry,
        settled_without_dirty: false,
        log_end: (start, state.log.next_seq()),
        design: state.design,
        damage: MetadataDamage::default(),
        suspect_below: 0,
        certain: None,
        named_frame: 0,
    })
}

#[cfg(test)]
pub(crate) mod tests;
