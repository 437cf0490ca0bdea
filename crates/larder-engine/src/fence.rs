//! The fence: a note, kept off the flash, that the origin was written while the flash was away.
//!
//! A flash that failed may come back with copies that are older than the origin by then. Nothing on the flash can say
//! so, for it could not be written. So before the first write that is acknowledged without the flash, whoever opened the
//! cache makes a fence durable somewhere else; the next opening asks for it, and drops what the flash holds.
//!
//! Invariants: no write is acknowledged past a failed flash before [`FenceKeeper::raise`] returned. A fence is lowered
//! only after the flash was emptied, durably.
//!
//! What it does not do: keep the note; that is the keeper's, a directory of the command line for one.

use larder_format::WriteMode;
use std::{fmt, sync::Arc};

/// Keeps the fence of one cache, durably and not on its flash. Its calls may block.
pub trait FenceKeeper: Send + Sync {
    /// Where the fence is kept, as the superblock shall say; at most 512 bytes. Whoever opens the cache later without
    /// a keeper is refused, and told this.
    fn place(&self) -> String;

    /// The cache opens with this keeper: the flash is about to name its place. What has to be there before is made now, and
    /// nothing is before, for an opening that is refused changes nothing.
    ///
    /// # Errors
    /// A sentence: then the cache does not open.
    fn prepare(&self) -> Result<(), String>;

    /// The fence that is up; `None` when it is down.
    ///
    /// # Errors
    /// A sentence, when the state is unknown: then the cache does not open.
    fn raised(&self) -> Result<Option<Raised>, String>;

    /// Puts the fence up; it is durable when this returns. Again, where it is up already, changes nothing.
    ///
    /// # Errors
    /// A sentence: then nothing is written past the flash.
    fn raise(&self, why: &str) -> Result<(), String>;

    /// Notes that the origin durably has all dirty data, so the flash's dirty copies are older. The engine calls it at an orderly
    /// end behind the fence; the note stays durable until the fence is taken down.
    ///
    /// # Errors
    /// A sentence: then the next opening counts the data that the flash calls dirty as lost.
    fn note_destaged(&self) -> Result<(), String>;

    /// Takes the fence down, durably.
    ///
    /// # Errors
    /// A sentence.
    fn lower(&self) -> Result<(), String>;

    /// The cache is in this mode from now on. Told before the first write in write-back, and after the last one: who
    /// reads that it is another mode knows that the origin is complete without the flash.
    ///
    /// # Errors
    /// A sentence: then the mode does not change to write-back; or it has changed from it, and is still noted as write-back.
    fn note_mode(&self, mode: WriteMode) -> Result<(), String>;
}

/// A fence that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The reason why it was put up.
    pub why: String,
    /// The origin has all data that the flash calls dirty ([`FenceKeeper::note_destaged`]).
    pub is_destaged: bool,
}

/// A keeper, or none, among the options of an opening.
#[derive(Clone, Default)]
pub struct Keeper(pub Option<Arc<dyn FenceKeeper>>);

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a keeper" } else { "none" })
    }
}

/// Where the fence is, as far as this opening knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Down: nothing was written past the flash.
    Down,
    /// Someone is putting it up.
    Rising,
    /// Up.
    Up,
    /// It could not be put up, for this reason; the next write tries again.
    Refused(String),
}
