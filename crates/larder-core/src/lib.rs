//! The decisions of a deduplicating, compressing flash cache.
//!
//! Role: the crate knows the place of each chunk ([`LbaIndex`](lba_index::LbaIndex)), the stored
//! contents ([`FpIndex`](fp_index::FpIndex)) and the state of every slot
//! ([`SlotTable`](slots::SlotTable)). It decides evictions and prefetches. Each [`Design`] has one
//! file in [`designs`]. A [`Decider`] is a design with the [ledger](ledger::Ledger) of dirty data.
//! An engine executes its decisions on devices, and a simulator counts them.
//!
//! Invariants: no I/O, no clock, no thread, no hidden randomness: a design that draws has a fixed
//! sequence. The same calls give the same answers.
//!
//! It does not hold or move a byte of data.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod decider;
pub mod decisions;
pub mod design;
pub mod designs;
pub mod fp_index;
pub mod history;
pub mod lba_index;
pub mod ledger;
pub mod limits;
pub(crate) mod lost;
pub mod named;
pub mod packing;
pub mod pages;
pub mod ranges;
pub mod region;
pub(crate) mod sharded;
pub mod slots;
pub mod slotted;
pub mod streams;
pub mod versions;
pub(crate) mod walk;
pub mod wear;

pub use decider::Decider;
pub use design::{Design, DesignConfig, DesignStats, Lookup, NewMapping, Victim};
pub use larder_types as types;
pub use named::{DesignLayout, NamedDesign, Over};
pub use types::{Fingerprint, Lba, Place, SectorMap, SlotId, StreamClass, recency};

// A design is a module of the crate, in any folder.
pub use designs::*;
