//! A drive under a trace, at the trace's own pace, and the outcome.
//!
//! Invariants: pages that are on the drive before the trace begins count nowhere.
//!
//! It leaves the choice of runs to its caller.

use super::stream::PageStream;
use crate::Lab;
use larder_ssd::{
    caftl::{Caftl, entry::StoreOptions, options::CaftlOptions, store::StoreCounts},
    counts::DriveCounts,
    ftl::{Ftl, PageWrite},
    geometry::Lpn,
    op::Nobody,
    page_mapped::{PageMapped, PageMappedOptions},
    profile::DriveProfile,
    space::SpaceOptions,
    time::{
        Drive, DriveRequest,
        run::{at_full_load, at_own_pace},
    },
};

/// A drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveCase {
    /// The options of CAFTL; `None` is the baseline.
    pub caftl: Option<CaftlOptions>,
    /// The write buffer.
    pub buffer_bytes: u64,
    /// The clock of the processor.
    pub hz: u64,
    /// True if reads wait their turn for the buffer.
    pub in_turn: bool,
}

/// MiB in bytes.
pub const MIB: u64 = 1 << 20;

impl DriveCase {
    /// Makes a case without CAFTL, with 934 MHz, and so many MB of buffer.
    pub fn baseline(buffer_mib: u64) -> DriveCase {
        DriveCase { caftl: None, buffer_bytes: buffer_mib * MIB, hz: 934_000_000, in_turn: false }
    }

    /// Makes reads wait their turn.
    pub fn in_turn(self) -> DriveCase {
        DriveCase { in_turn: true, ..self }
    }

    /// Makes a case with CAFTL.
    pub fn caftl(options: CaftlOptions, buffer_mib: u64) -> DriveCase {
        DriveCase { caftl: Some(options), ..DriveCase::baseline(buffer_mib) }
    }
}

/// The outcome of a drive.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The mean time of a read, in microseconds.
    pub read_us: f64,
    /// The mean time of a write, in microseconds.
    pub write_us: f64,
    /// The layer's counts since the trace began.
    pub counts: DriveCounts,
    /// Pages written that never came to the layer.
    pub absorbed: u64,
    /// Erase blocks that are not wholly free, less those in use before.
    pub blocks: u32,
    /// Valid pages, less those before.
    pub valid: u64,
    /// Pages written by the host.
    pub requested: u64,
}

impl RunOutcome {
    /// Returns the percentage of pages written whose content was there, removed since (§4.2.1).
    pub fn removed_percent(&self) -> f64 {
        100.0 * self.counts.pages_deduplicated as f64 / self.requested.max(1) as f64
    }

    /// Returns the share of pages written that the buffer absorbed, in percent.
    pub fn absorbed_percent(&self) -> f64 {
        100.0 * self.absorbed as f64 / self.requested.max(1) as f64
    }
}

/// Runs each drive under a trace.
///
/// # Errors
/// A sentence.
pub fn run(lab: &Lab<'_>, at: usize, cases: &[DriveCase]) -> Result<Vec<RunOutcome>, String> {
    let stream = PageStream::of(lab, at)?;
    lab.each(cases, |case| one(&stream, case))
}

fn one(stream: &PageStream, case: &DriveCase) -> Result<RunOutcome, String> {
    let mut profile = stream.profile()?;
    profile.buffer_bytes = case.buffer_bytes;
    profile.controller.hz = case.hz;
    let ftl = prepared(stream, case, &profile)?;
    let (before, occupied, valid) = (ftl.counts().clone(), ftl.array().blocks_occupied(), ftl.totals().valid);
    let logical_pages = ftl.logical_pages();
    let mut drive = Drive::new(ftl, &profile).map_err(|error| error.to_string())?;
    if case.in_turn {
        drive = drive.with_reads_in_turn();
    }
    let requests = stream.requests(logical_pages);
    let times = match stream.has_times() {
        true => at_own_pace(&mut drive, requests),
        false => at_full_load(&mut drive, 1, requests.map(|(_, request)| request)),
    };
    Ok(RunOutcome {
        read_us: times.reads.mean_ns() / 1e3,
        write_us: times.writes.mean_ns() / 1e3,
        counts: drive.ftl().counts().since(&before),
        absorbed: times.absorbed,
        blocks: drive.ftl().array().blocks_occupied().saturating_sub(occupied),
        valid: drive.ftl().totals().valid.saturating_sub(valid),
        requested: stream.pages_written(),
    })
}

/// Makes the layer, with the pages that the trace reads first.
fn prepared(stream: &PageStream, case: &DriveCase, profile: &DriveProfile) -> Result<Box<dyn Ftl>, String> {
    let collection_threshold_percent = profile.collection_threshold_percent;
    let space = SpaceOptions { collection_threshold_percent, ..SpaceOptions::default() };
    let page = |&lpn: &u32| PageWrite { lpn: Lpn(lpn), content: None };
    match case.caftl {
        None => {
            let options = PageMappedOptions { space, takes_trims: true };
            let mut ftl = PageMapped::new(profile.geometry, options).map_err(|error| error.to_string())?;
            stream.read_first().iter().for_each(|lpn| {
                ftl.write(&[page(lpn)], &mut Nobody);
            });
            Ok(Box::new(ftl))
        }
        Some(options) => {
            let mut ftl = Caftl::new(profile.geometry, CaftlOptions { space, ..options }).map_err(|e| e.to_string())?;
            stream.read_first().iter().for_each(|lpn| ftl.write_undeduplicated(&[page(lpn)], &mut Nobody));
            Ok(Box::new(ftl))
        }
    }
}

/// Counts the work of stores of these kinds under a trace's writes, one after the other, in line
/// alone.
///
/// # Errors
/// A sentence.
pub fn searched(lab: &Lab<'_>, at: usize, stores: &[StoreOptions]) -> Result<Vec<StoreCounts>, String> {
    let stream = PageStream::of(lab, at)?;
    lab.each(stores, |store| {
        let options = CaftlOptions { store: *store, out_of_line: false, ..CaftlOptions::default() };
        let geometry = stream.profile()?.geometry;
        let mut ftl = Caftl::new(geometry, options).map_err(|error| error.to_string())?;
        for (_, request) in stream.requests(geometry.logical_pages()) {
            match request {
                DriveRequest::Write(pages) => drop(ftl.write(&pages, &mut Nobody)),
                DriveRequest::Trim(pages) => ftl.trim(pages, &mut Nobody),
                DriveRequest::Read(_) | DriveRequest::Flush => {}
            }
        }
        Ok(*ftl.store().counts())
    })
}
