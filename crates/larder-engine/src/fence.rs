//! The fence: a note, kept off the flash, that the origin was written while the flash was away.
//!
//! A flash that failed may come back with copies that are older than the origin by then. The flash
//! itself cannot record that, because it could not be written. So before the first write that is
//! acknowledged without the flash, the cache's keeper makes a fence durable somewhere else. The
//! next opening asks for it, and drops the content of the flash. [`raising`] does these steps. The
//! keeper also has the number of the newest superblock, by which an older copy of the flash is told
//! ([`noting`]).
//!
//! Invariants: no write is acknowledged past a failed flash before [`Note::Raised`] is durable. A
//! fence is lowered only after the flash was emptied, durably.
//!
//! It leaves the storage of the note to the keeper: for one, a directory of the command line.

pub(crate) mod known;
pub(crate) mod notes;
pub(crate) mod noting;
pub(crate) mod raising;

use larder_format::WriteMode;
use std::{fmt, sync::Arc};

/// The keeper's answer to a note: it is durable, or refused for a reason.
pub type NoteAnswer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A change that the keeper makes durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The fence goes up. If the fence is up already, nothing changes.
    ///
    /// If it is refused, no write goes past the flash.
    Raised(Raised),
    /// The origin durably has all dirty data, so the flash's dirty copies are older.
    ///
    /// The engine notes it behind the fence, as soon as no dirty data is left. It stays until the
    /// fence is taken down. If it is refused, the next opening counts the data that was dirty as
    /// lost.
    Destaged,
    /// The fence goes down.
    Lowered,
    /// The cache has this mode from now on, and the superblock on its flash this number.
    ///
    /// The engine notes it at each opening and each orderly end, before the first write in
    /// write-back, and after the last one. Another mode means that the origin is complete without
    /// the flash. If it is refused, the mode does not change to write-back. A change from
    /// write-back stays, and the last note still says write-back.
    Mode(WriteMode, u64),
    /// The superblock of this number is durable on the flash, unless a higher one is noted.
    ///
    /// A flash whose superblock has a lower number is an older copy.
    Newest(u64),
}

/// Keeps the fence of one cache, durably and not on its flash. The opening waits for its calls;
/// [`FenceKeeper::note`] alone returns at once.
pub trait FenceKeeper: Send + Sync {
    /// Returns the fence's place, as the superblock records it; at most 512 bytes.
    ///
    /// A later opening without a keeper is refused, and its error names this place.
    fn place(&self) -> String;

    /// Prepares the fence's place. The cache opens with this keeper, and the flash is about to name
    /// the place.
    ///
    /// The keeper creates its files now and not before, because an opening that is refused changes
    /// nothing.
    ///
    /// # Errors
    /// A sentence: then the cache does not open.
    fn prepare(&self) -> Result<(), String>;

    /// Returns the fence that is up, or `None` if it is down.
    ///
    /// # Errors
    /// A sentence, if the state is unknown: then the cache does not open.
    fn raised(&self) -> Result<Option<Raised>, String>;

    /// Returns the number of the newest superblock of any flash of this cache; 0 if unknown.
    ///
    /// The opening counts on from there, so each flash that it leaves behind is an older copy.
    fn newest_superblock(&self) -> u64;

    /// Makes a note. It returns at once, and another thread calls `answer` when the note is durable
    /// or refused. Notes side by side take effect one after the other, in any order.
    fn note(self: Arc<Self>, note: Note, answer: NoteAnswer);
}

/// A fence that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The reason for the fence.
    pub why: String,
    /// Bytes of dirty data and trimmed ranges that the flash had then; 0 if the note tells none.
    pub dirty_bytes: u64,
    /// The number of the flash's newest superblock then; 0 if the note tells none.
    pub superblock_sequence: u64,
    /// The origin has all data that the flash calls dirty ([`Note::Destaged`]).
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
