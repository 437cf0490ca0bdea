//! The input and the outcome of a check of all records.
//!
//! Invariants: they only describe.
//!
//! It does not check.

use super::{report::VerifyReport, salvage::Salvaged};
use larder_core::{Fingerprint, Place, SectorMap};
use larder_device::BlockDevice;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Mappings, fingerprints and slots that cannot stay as they are.
#[derive(Default)]
pub struct Findings {
    /// Chunks with an unusable mapping: the record is damaged, or another's.
    pub bad_chunks: BTreeSet<u64>,
    /// Fingerprints that name a damaged record, or one of other content.
    pub bad_fingerprints: HashSet<[u8; 16]>,
    /// Slots with a damaged header or table, or with unreadable bytes: their whole records must
    /// move.
    pub damaged_slots: BTreeSet<u32>,
    /// Slots that hold a newer generation than any metadata names.
    pub newer: BTreeMap<u32, u32>,
    /// Slots whose metadata slot, or its record, is damaged: no clean chunk is in them.
    pub bad_runs: BTreeSet<u32>,
}

/// A name of a record.
#[derive(Clone, Copy)]
pub(crate) enum Named {
    /// A chunk's mapping.
    Chunk { lba: u64, dirty: bool, sectors: Option<SectorMap>, duplicate: bool },
    /// An entry of the FP index.
    Fingerprint(Fingerprint),
}

/// The names of records, by slot and generation.
pub(crate) type NamedBySlot = BTreeMap<(u32, u32), Vec<(Place, Named)>>;

/// The input of a check of all records.
pub(crate) struct RecordCheck<'a> {
    pub flash: &'a dyn BlockDevice,
    pub found: &'a Salvaged,
    pub named: NamedBySlot,
    /// Gets the slots read and all slots.
    pub progress: &'a mut dyn FnMut(u64, u64),
    pub report: &'a mut VerifyReport,
}
