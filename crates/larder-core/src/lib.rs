//! The decisions of a deduplicating, compressing flash cache.
//!
//! Role: which chunk is where ([`LbaIndex`](lba_index::LbaIndex)), which content is known
//! ([`FpIndex`](fp_index::FpIndex)), what every WEU slot holds ([`Slots`](slots::Slots)), what is dirty, what to
//! evict, what to prefetch. One file a [`Design`]; an engine executes its decisions on devices, a simulator
//! counts them.
//!
//! Invariants: no I/O, no clock, no thread, no randomness. The same calls give the same answers.
//!
//! What it does not do: hold or move a byte of data.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod arc;
pub mod austere;
pub mod cd_arc;
pub mod d_arc;
pub mod d_lru;
pub mod decisions;
pub mod design;
pub mod dirty;
pub mod fp_index;
pub mod history;
pub mod lba_index;
pub(crate) mod lost;
pub mod lru;
pub mod nitro;
pub mod packing;
pub mod pages;
pub mod ranges;
pub mod region;
pub mod slots;
pub mod slotted;
pub mod streams;
pub mod types;
pub mod versions;
pub(crate) mod walk;

pub use design::{Design, DesignConfig, DesignStats, Lookup, NewMapping, Victim};
pub use types::{Fingerprint, Lba, Place, SectorMap, SlotId, StreamClass};
