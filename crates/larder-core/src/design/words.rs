//! The words in which a design is asked and answers.
//!
//! Invariants: addresses and places, never bytes.
//!
//! What it does not do: decide.

use crate::types::{Fingerprint, Lba, Place, SectorMap, SlotId};

/// The sizes that a design works with.
#[derive(Clone, Copy, Debug)]
pub struct DesignConfig {
    /// Number of WEU slots.
    pub slot_count: u32,
    /// Entries of the LBA index at most.
    pub mappings_max: u64,
    /// Entries of the FP index at most; 0 turns deduplication off.
    pub fp_entries_max: u64,
}

/// What a chunk's address maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The cache does not know; the origin does.
    Miss,
    /// Zeroes.
    Zero,
    /// A whole chunk.
    Chunk {
        /// Where its bytes are.
        place: Place,
        /// It shares another address's record.
        duplicate: bool,
    },
    /// Some sectors; the origin has the rest.
    Fragment {
        /// Where the bytes of the valid sectors are.
        place: Place,
        /// Which sectors are valid.
        sectors: SectorMap,
    },
}

/// A chunk that a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Where its bytes are.
    pub place: Place,
    /// What the design is to be told of it.
    pub used: Use,
}

/// A use of a chunk that the design has not been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The address.
    pub lba: Lba,
    /// The slot that it maps into.
    pub slot: SlotId,
    /// The design's own number for the address, by which it finds it faster; of no meaning where it needs none.
    pub number: u32,
}

/// What an address shall map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewMapping {
    /// A chunk that was stored for this address.
    Unique {
        /// Where.
        place: Place,
        /// Its fingerprint, to find duplicates by; `None` where deduplication is off.
        fingerprint: Option<Fingerprint>,
    },
    /// A chunk whose content is stored already.
    Duplicate {
        /// Where.
        place: Place,
    },
    /// A chunk of zeroes.
    Zero,
    /// Some sectors of a chunk.
    Fragment {
        /// Where.
        place: Place,
        /// Which.
        sectors: SectorMap,
    },
}

/// A question that a design may answer only when it knows a metadata slot on flash.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// What does this address map to?
    Address(Lba),
    /// Is this content stored?
    Content(&'a Fingerprint),
}

/// A record that a slot is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The address that it is stored for.
    pub lba: Lba,
    /// Its content; `None` for a fragment, and where content is not looked at.
    pub fingerprint: Option<Fingerprint>,
    /// Bytes of it as stored.
    pub stored_len: u32,
}

/// A slot that was chosen for replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The slot.
    pub slot: SlotId,
    /// How many dirty mappings point into it: they must be destaged first.
    pub dirty_refs: u32,
}

/// One mapping, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedMapping {
    /// The address.
    pub lba: Lba,
    /// What it maps to.
    pub lookup: Lookup,
    /// The origin does not have it.
    pub dirty: bool,
}
