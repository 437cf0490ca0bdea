//! A design by name, with its store: the row of a design's file for [`DESIGNS`](crate::DESIGNS).
//!
//! Role: the differences between designs, before one is made, in one place. An engine takes its
//! store from [`Over`], and a simulator takes the sizes that a log may name. Both make their
//! designs here.
//!
//! Invariants: a row has no state; the same layout gives the same design.
//!
//! It does not list the designs, number them for a superblock, or lay out a flash.

use crate::{
    design::{Design, DesignConfig},
    slotted::Slotted,
};
use std::error::Error;

/// A design by name.
#[derive(Clone, Copy)]
pub struct NamedDesign {
    /// The usual name.
    pub name: &'static str,
    /// A description with its authors.
    pub about: &'static str,
    /// The store under it.
    pub over: Over,
}

/// The store under a design.
#[derive(Clone, Copy)]
pub enum Over {
    /// WEUs, each filled with many records.
    Weus(OverWeus),
    /// Slots of one chunk each.
    Slots(OverSlots),
    /// Slots for parts of a chunk, in buckets, and a metadata slot for each.
    Buckets(OverBuckets),
}

/// The entries that a checkpoint has room for.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointShares {
    /// Mappings for each chunk of flash.
    pub mappings_per_chunk: u64,
    /// Chunks of flash for each fingerprint; the history has the other fingerprints.
    pub chunks_per_fingerprint: u64,
    /// True if the history names records ([`Recalled`](crate::design::Recalled)).
    pub names_records: bool,
}

impl CheckpointShares {
    /// Returns the mappings for so many chunks of flash.
    pub fn mappings(&self, flash_chunks: u64) -> u64 {
        flash_chunks.saturating_mul(self.mappings_per_chunk)
    }

    /// Returns the fingerprints for so many chunks of flash.
    pub fn fingerprints(&self, flash_chunks: u64) -> u64 {
        flash_chunks / self.chunks_per_fingerprint
    }
}

/// A design over WEUs.
#[derive(Clone, Copy)]
pub struct OverWeus {
    /// Maximum bytes of RAM for a mapping, with an FP index entry, and its share of ledger and
    /// history.
    pub index_bytes_max: u64,
    /// Maximum bytes of history for each mapping; 0 for a design without one.
    pub history_bytes_max: u64,
    /// The room in a checkpoint; `None` for the format's default.
    pub checkpoint: Option<CheckpointShares>,
    /// WEUs from which the design has a choice. A small flash has smaller ones, rather than fewer.
    pub weus_wanted: u32,
    /// Makes an empty design.
    pub make: fn(DesignConfig) -> Box<dyn Design>,
}

impl OverWeus {
    /// Returns the bytes of a WEU with which a flash has as many as the design wants.
    ///
    /// They are `most`, or its halvings down to `least`.
    pub fn weu_for(&self, flash_bytes: u64, least: u32, most: u32) -> u32 {
        let smaller = std::iter::successors(Some(most), |weu_bytes| Some(weu_bytes / 2));
        let smaller = smaller.take_while(|&weu_bytes| weu_bytes >= least);
        let has_many = |weu_bytes: &u32| flash_bytes / u64::from(*weu_bytes) >= u64::from(self.weus_wanted);
        smaller.clone().find(has_many).or_else(|| smaller.last()).unwrap_or(most)
    }
}

/// A design over slots of one chunk each.
#[derive(Clone, Copy)]
pub struct OverSlots {
    /// True if content is shared, which the design decides.
    pub dedup: bool,
    /// Makes an empty design for a number of data slots and a chunk size.
    ///
    /// It uses fewer slots if it cannot number so many ([`of_slots`](crate::slotted::of_slots)).
    pub make: fn(u64, u32) -> Box<dyn Slotted>,
}

/// A design over buckets.
#[derive(Clone, Copy)]
pub struct OverBuckets {
    /// Makes an empty design, or returns an error for an impossible layout.
    pub make: MakeBucketed,
    /// Returns an error for an impossible layout of so many slots.
    pub check: fn(&DesignLayout, u64) -> Result<(), LayoutError>,
}

/// The constructor of an empty design over buckets.
pub type MakeBucketed = fn(DesignConfig, &DesignLayout) -> Result<Box<dyn Design>, LayoutError>;

/// The reason that a design cannot have a layout, as a sentence for the caller.
pub type LayoutError = Box<dyn Error + Send + Sync>;

/// The division of a flash, as far as a design needs it.
#[derive(Clone, Copy, Debug)]
pub struct DesignLayout {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a slot: of a WEU, a chunk or a subchunk.
    pub slot_bytes: u32,
    /// Slots of a bucket, if the store has buckets.
    pub bucket_slots: u32,
    /// Chunks of the volume.
    pub chunk_count: u64,
}
