//! The report of a verification.
//!
//! Invariants: it describes a bounded number of problems and notes, and counts the rest.
//!
//! It does not look for problems.

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
    /// name in the superblock or a slot reveals frames that were lost behind the last one.
    pub log_end_confirmed: bool,
    /// The newest frame of the log that the superblock or a slot names as durable.
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
    /// Records among them that no mapping or fingerprint names: garbage until the slot is evicted.
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
    pub(super) fn problem(&mut self, kind: &'static str, what: String) {
        self.problem_at(Problem { kind, what, lba: None, flash_offset: None, dirty: false });
    }

    pub(super) fn problem_at(&mut self, problem: Problem) {
        self.problems_found += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}
