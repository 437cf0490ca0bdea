//! [`Design`]: the decisions of a caching design, and the words for them.
//!
//! The engine and the simulator drive the same trait, through a [`Decider`](crate::Decider). Each
//! design indexes, keeps and replaces content in its own way. The decider's ledger lists the data
//! that the origin lacks. A design marks its dirty mappings beside that, because dirt gates
//! evictions by slot. It answers [`Mapping::is_dirty`], [`Slots::dirty_in`] and
//! [`Mapping::mark_clean`] from its own entries.
//!
//! A design is a [`Mapping`] with [`Slots`] that can [`Persist`]. A design that must read flash
//! before it is sure is [`Provisional`], too. A design that remembers replaced addresses has a
//! [`Memory`]. A design that does not store each chunk is [`Selective`].
//!
//! Invariants: those of its parts.

mod counts;
mod deferred;
mod mapping;
mod memory;
mod persist;
mod provisional;
mod selective;
mod slots;
mod words;

pub use counts::{DesignStats, DirtyCounts};
pub use deferred::Deferred;
pub use mapping::Mapping;
pub(crate) use mapping::unmap_some;
pub use memory::{Ghost, Memory};
pub use persist::Persist;
pub use provisional::Provisional;
pub use selective::{Recalled, RecalledSlot, Selective};
pub use slots::Slots;
pub use words::{
    DesignConfig, ExportedMapping, Hit, Leaving, Lookup, NewMapping, Question, Survivor, ToldBy, Use, Victim, Wanted,
};

/// A caching design. Threads share it for the calls that change nothing.
pub trait Design: Mapping + Slots + Persist + Send + Sync {
    /// Returns the counts.
    fn stats(&self) -> DesignStats;

    /// Returns its provisional part, in a design that reads flash before it is sure.
    fn provisional(&self) -> Option<&dyn Provisional> {
        None
    }

    /// Returns its provisional part, to change it.
    fn provisional_mut(&mut self) -> Option<&mut dyn Provisional> {
        None
    }

    /// Returns its memory, in a design that remembers replaced addresses.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    /// Returns its memory, to change it.
    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        None
    }

    /// Returns its selective part, in a design that does not store each chunk.
    fn selective_mut(&mut self) -> Option<&mut dyn Selective> {
        None
    }
}
