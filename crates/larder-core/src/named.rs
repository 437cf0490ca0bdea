//! A design by name, with what lies under it: the row that the file of each design has for [`DESIGNS`](crate::DESIGNS).
//!
//! Role: what differs between designs before there is one, said once. An engine takes its store from [`Over`], a simulator the sizes
//! that a log may name, and both have a design made here.
//!
//! Invariants: a row has no state; the same layout gives the same design.
//!
//! What it does not do: list the designs, number them as a superblock does, or lay out a flash.

use crate::{
    design::{Design, DesignConfig},
    slotted::{Placed, Slotted},
};
use std::error::Error;

/// A design by name.
#[derive(Clone, Copy)]
pub struct NamedDesign {
    /// What people call it.
    pub name: &'static str,
    /// What it is, and whose.
    pub about: &'static str,
    /// What lies under it.
    pub over: Over,
}

/// What lies under a design.
#[derive(Clone, Copy)]
pub enum Over {
    /// WEUs, each filled with many records.
    Weus(OverWeus),
    /// Slots of one chunk each.
    Slots(OverSlots),
    /// Slots for parts of a chunk, in buckets, and a metadata slot for each.
    Buckets(OverBuckets),
}

/// A design over WEUs.
#[derive(Clone, Copy)]
pub struct OverWeus {
    /// Bytes of RAM for each mapping at most: one entry of the FP index, its share of the dirty list, and its history included.
    pub index_bytes_max: u64,
    /// Bytes of its history for each mapping at most; 0 for a design without one.
    pub history_bytes_max: u64,
    /// An empty design.
    pub make: fn(DesignConfig) -> Box<dyn Design>,
}

/// A design over slots of one chunk each.
#[derive(Clone, Copy)]
pub struct OverSlots {
    /// Whether content is shared: the design's choice.
    pub dedup: bool,
    /// The design, empty, for a number of data slots and a chunk size; fewer slots where it cannot number so many
    /// ([`of_slots`](crate::slotted::of_slots)).
    pub make: fn(u64, u32) -> Box<dyn Slotted>,
}

/// A design over buckets.
#[derive(Clone, Copy)]
pub struct OverBuckets {
    /// An empty design; an error for a layout that it cannot have.
    pub make: MakeBucketed,
}

/// Makes an empty design over buckets.
pub type MakeBucketed = fn(DesignConfig, &DesignLayout) -> Result<Box<dyn Design>, LayoutError>;

/// Why a design cannot have a layout: a sentence for whoever asked for it.
pub type LayoutError = Box<dyn Error + Send + Sync>;

/// How a flash is divided, as far as a design asks.
#[derive(Clone, Copy, Debug)]
pub struct DesignLayout {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Bytes of a slot: of a WEU, a chunk or a subchunk.
    pub slot_bytes: u32,
    /// Slots of a bucket, where there are buckets.
    pub bucket_slots: u32,
    /// Chunks of the volume.
    pub chunk_count: u64,
}

impl NamedDesign {
    /// An empty cache.
    ///
    /// # Errors
    /// A sentence, for a layout that the design cannot have.
    pub fn make(&self, config: DesignConfig, layout: &DesignLayout) -> Result<Box<dyn Design>, LayoutError> {
        match self.over {
            Over::Weus(weus) => Ok((weus.make)(config)),
            Over::Slots(slots) => {
                Ok(Box::new(Placed::new(config, |data_slots| (slots.make)(data_slots, layout.chunk_bytes))))
            }
            Over::Buckets(buckets) => (buckets.make)(config, layout),
        }
    }
}
