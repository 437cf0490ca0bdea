//! Checks everything on a flash that mappings depend on: the checksums of superblocks, checkpoint,
//! log and segments, each mapped record, and the recovered state.
//!
//! In order: (1) The superblock twins. (2) The checkpoint, block by block, and each of its entries.
//! (3) The log, each of its entries, and any loss of its durable frames. (4) Recovery, or, if that
//! is refused, salvage of the rest. (5) The mappings against slots, dirty counts and trimmed runs.
//! (6) WEU by WEU the segments, and in them each record that a mapping or a fingerprint names. The
//! check of a record covers checksum, decoding, fingerprint and overlap.
//!
//! Invariants: it does not write. After any finding the checks go on as far as they can;
//! [`PROBLEMS_MAX`] problems are kept, all are counted. The remains of a crash are no problem: a
//! torn end of the log, an older or torn twin, torn segments that no metadata names. (So a rotten
//! end of the log passes for a torn one, unless a slot names a lost frame.
//! [`VerifyReport::log_end_confirmed`] is false without a confirmation of the end.)
//!
//! A failed read is the device's error, and no damage: the report counts the bytes that could not
//! be read.
//!
//! It does not repair ([`repair`] does), or look at the origin.

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
    recover::{Recovered, geometry, recover},
};
use larder_device::BlockDevice;
use larder_format::LogStart;
use records::Findings;
pub use salvage::LogGap;
use salvage::{MetadataDamage, Salvaged, salvage};
use watched::Watched;

/// Problems that a report describes; more are counted.
pub const PROBLEMS_MAX: usize = 100;
/// Limit of the notes of a report.
pub const NOTES_MAX: usize = 100;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The damaged structure. It is `superblock`, `checkpoint`, `log`, `recovery`, `index`,
    /// `mapping`, `dirty`, `slot`, `segment`, `record`, `fingerprint`, `read`.
    pub kind: &'static str,
    /// One sentence.
    pub what: String,
    /// The affected chunk.
    pub lba: Option<u64>,
    /// Byte offset on the flash.
    pub flash_offset: Option<u64>,
    /// Only the cache had these bytes.
    pub dirty: bool,
}

/// The findings of a verification.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct VerifyReport {
    /// No problem was found.
    pub clean: bool,
    /// The last end was an orderly one.
    pub clean_shutdown: bool,
    /// The log is surely there to its end: both superblocks record an orderly end. Otherwise only a
    /// name in a slot reveals frames that were lost behind the last one.
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
    /// Zero chunks among them.
    pub zero_mappings: u64,
    /// Fragments among them.
    pub fragments: u64,
    /// Mappings among them that share another's record.
    pub duplicates: u64,
    /// Dirty ones among them.
    pub dirty_mappings: u64,
    /// Trimmed runs that the origin was not told of.
    pub trimmed_runs: u64,
    /// Fingerprints that were checked.
    pub fingerprints: u64,
    /// The name of a slot: a WEU, a chunk or a subchunk.
    pub slot: &'static str,
    /// Slots that were read.
    pub slots_read: u64,
    /// Whole segments in them, and damaged ones that hold a record in use.
    pub segments: u64,
    /// Torn segments without a record in use.
    pub segments_unused: u64,
    /// Records that the segments list.
    pub records_listed: u64,
    /// Records among them that no mapping or fingerprint names: garbage until the WEU is evicted.
    pub records_unused: u64,
    /// Records in use that were read and checked.
    pub records: u64,
    /// Bytes of them, as stored.
    pub record_bytes: u64,
    /// Dirty chunks whose bytes are lost.
    pub dirty_chunks_lost: u64,
    /// Bytes that the device failed to read. Their content is unknown, and problems may stem from
    /// that alone.
    pub unread_bytes: u64,
    /// Problems found.
    pub problems_found: u64,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// Notable findings that are no problem.
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

/// Checks the cache on `flash`. `progress` gets the slots read and all slots.
///
/// # Errors
/// No cache to check: no superblock is whole, or it is a newer one. A device that cannot hold it.
pub async fn verify(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, EngineError> {
    let watched = Watched::over(flash);
    let mut report = check(&watched, progress).await?.report;
    watched.settle(&mut report)?;
    Ok(report)
}

/// A report, and the further findings for a repair.
struct Checked {
    report: VerifyReport,
    /// `None`: even the superblock's own data makes no state.
    found: Option<Salvaged>,
    findings: Findings,
}

async fn check(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<Checked, EngineError> {
    let mut report = VerifyReport::default();
    // (1)
    let superblock = metadata::superblocks(flash, &mut report).await?;
    report.slot = superblock.layout.store().slot_name();
    // A device on which this cache cannot be is refused here, as by an opening and by a repair: it
    // is not damage.
    geometry(&superblock, flash, None)?;
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

/// Returns the state as an opening recovers it.
///
/// # Errors
/// Those of an opening that is refused.
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
