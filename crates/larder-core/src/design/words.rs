//! The words of questions to a design and of its answers.
//!
//! Invariants: addresses and places, never bytes.
//!
//! It does not decide.

use crate::types::{Fingerprint, Lba, Place, SectorMap, SlotId};

/// The sizes that a design works with.
#[derive(Clone, Copy, Debug)]
pub struct DesignConfig {
    /// Number of slots.
    pub slot_count: u32,
    /// Entries of the LBA index at most.
    pub mappings_max: u64,
    /// Entries of the FP index at most; 0 turns deduplication off.
    pub fp_entries_max: u64,
}

/// The mapping of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Unknown to the cache; the origin has it.
    Miss,
    /// Zeroes.
    Zero,
    /// A whole chunk.
    Chunk {
        /// Location of its bytes.
        place: Place,
        /// True if it shares another address's record.
        duplicate: bool,
    },
    /// Some sectors; the origin has the rest.
    Fragment {
        /// Location of the valid sectors' bytes.
        place: Place,
        /// The valid sectors.
        sectors: SectorMap,
    },
}

/// A chunk that a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Location of its bytes.
    pub place: Place,
    /// The use to tell the design.
    pub used: Use,
}

/// A use of a chunk that the design has not been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The address.
    pub lba: Lba,
    /// The slot that it maps into.
    pub slot: SlotId,
    /// The design's own number for the address, which speeds up its search; may be meaningless.
    pub number: u32,
}

/// A new mapping for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewMapping {
    /// A chunk that was stored for this address.
    Unique {
        /// Its location.
        place: Place,
        /// Its fingerprint, for the search for duplicates; `None` without deduplication.
        fingerprint: Option<Fingerprint>,
    },
    /// A chunk whose content is stored already.
    Duplicate {
        /// Its location.
        place: Place,
    },
    /// A chunk of zeroes.
    Zero,
    /// Some sectors of a chunk.
    Fragment {
        /// Its location.
        place: Place,
        /// The valid sectors.
        sectors: SectorMap,
    },
}

/// A question that may need a metadata slot on flash.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// A question for the mapping of an address.
    Address(Lba),
    /// A question for stored content.
    Content(&'a Fingerprint),
}

/// A record for a new slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its address.
    pub lba: Lba,
    /// Its content; `None` for a fragment, and without deduplication.
    pub fingerprint: Option<Fingerprint>,
    /// Bytes of its stored form.
    pub stored_len: u32,
}

/// A slot that was chosen for replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The slot.
    pub slot: SlotId,
    /// Dirty mappings that point into it; they must be destaged first.
    pub dirty_refs: u32,
}

/// A record of a victim that is worth another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The address that it was stored for, and maps to it still.
    pub lba: Lba,
    /// Its place in the victim.
    pub place: Place,
    /// Its content.
    pub fingerprint: Fingerprint,
}

/// One mapping, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedMapping {
    /// The address.
    pub lba: Lba,
    /// Its mapping.
    pub lookup: Lookup,
    /// True if the origin lacks it.
    pub dirty: bool,
}

/// The addresses of a run that are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// All, trimmed parts included.
    All,
    /// Those that the origin has.
    Clean,
}

/// The source of a restored fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldBy {
    /// A checkpoint, which has each content once, and the mappings elsewhere.
    Checkpoint,
    /// A log, which often repeats a content. The entry has just mapped a duplicate of it.
    Log,
}
