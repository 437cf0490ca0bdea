//! Checks everything on a flash that mappings depend on. That is the checksums of superblocks,
//! checkpoint, log and segments, each mapped record, and the recovered state.
//!
//! In order: (1) The superblock twins. (2) The checkpoint, block by block, and each of its entries.
//! (3) The log, each of its entries, and any loss of its durable frames. (4) Recovery, or, if that
//! is refused, salvage of the rest. (5) The mappings against slots, dirty counts and trimmed runs.
//! (6) Slot by slot the segments, and in them each record that a mapping or a fingerprint names.
//! The check of a record covers checksum, decoding, fingerprint and overlap.
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
pub(crate) mod findings;
pub(crate) mod frames;
pub(crate) mod fresh_log;
pub(crate) mod homes;
pub(crate) mod index;
mod metadata;
mod moving;
pub(crate) mod records;
pub mod repair;
pub(crate) mod salvage;
mod watched;
pub(crate) mod window;
mod writing;

pub(crate) mod report;

use crate::audit;
use findings::Findings;
use larder_device::BlockDevice;
use larder_engine::{
    EngineError, Tuning,
    recover::{Recovered, geometry, recover},
};
pub use report::{NOTES_MAX, PROBLEMS_MAX, Problem, VerifyReport};
pub use salvage::LogGap;
use salvage::{MetadataDamage, Salvaged, salvage};
use watched::WatchedFlash;

/// Checks the cache on `flash`. `progress` gets the slots read and all slots.
///
/// # Errors
/// No cache to check: no superblock is whole, or it is a newer one. A device that cannot hold it.
pub async fn verify(flash: &dyn BlockDevice, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport, EngineError> {
    let watched = WatchedFlash::over(flash);
    let mut report = check(&watched, progress).await?.report;
    watched.conclude(&mut report)?;
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
        findings = audit::check_records(flash, found, &mappings, progress, &mut report).await;
        findings.bad_chunks.extend(bad);
    }
    report.clean = report.problems_found == 0;
    Ok(Checked { report, found, findings })
}

/// Returns the state as an opening recovers it.
///
/// # Errors
/// The refusal of an opening.
pub(crate) async fn recovered(flash: &dyn BlockDevice) -> Result<Salvaged, EngineError> {
    let found = recover(flash, None, &Tuning::default()).await?;
    let log_end = found.log_end();
    let Recovered { superblock, repair, state, geometry, .. } = found;
    Ok(Salvaged {
        superblock,
        damaged_twin: repair,
        geometry,
        clean_by_mode: false,
        log_end,
        design: state.into_design(),
        damage: MetadataDamage::default(),
        suspect_below: 0,
        certain: None,
        named_frame: 0,
    })
}

#[cfg(test)]
pub(crate) mod tests;
