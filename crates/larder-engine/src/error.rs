//! Errors of the engine: a cache that cannot be created or opened, and a request that failed.
//!
//! It does not name paths; the command line knows those.

use larder_device::{IoError, IoErrorKind, IoOp};
use larder_format::FormatError;
use std::fmt;

/// The reason why a cache could not be made, opened or used.
#[derive(Clone, Debug)]
pub enum EngineError {
    /// A device operation failed.
    Io(IoError),
    /// The flash failed an operation that is tried again later.
    Flash(IoError),
    /// The origin failed a flush.
    Origin {
        /// The name of the origin.
        name: String,
        /// The failure.
        error: IoError,
        /// An earlier flush failed, and this audience has not been told of it.
        is_earlier: bool,
    },
    /// A checkpoint outgrew its area. Pieces of different moments may together hold more than the
    /// index ever did; the next try may fit.
    CheckpointTooLarge,
    /// The content of the flash device is not a usable cache.
    Format(FormatError),
    /// An option makes no sense; the sentence names it and the remedy.
    Invalid(String),
    /// The origin is not the one that this cache was made for.
    WrongOrigin(String),
    /// Another program changed the origin since the last orderly end.
    OriginChanged(String),
    /// A dirty record on flash is damaged: the origin does not have these bytes.
    DirtyDataLost {
        /// Byte offset on the volume.
        offset: u64,
    },
    /// Frames of the metadata log that were durable cannot be read any more.
    LogDamaged {
        /// The first frame that is lost.
        lost: u64,
        /// A later frame that marks it as durable, or the newest that superblock or slot name as
        /// durable.
        found: u64,
        /// The position of that frame, or of its name.
        flash_offset: u64,
        /// The evidence is not a frame but its name in the superblock or a slot.
        is_named: bool,
    },
    /// The flash device failed; no write becomes durable there until the cache is opened again.
    FlashFailed(IoError),
    /// The flash device failed, and a write past it would need a fence, which could not be made
    /// durable.
    NoFence {
        /// The failure of the flash.
        flash: IoError,
        /// The reason for the missing fence.
        why: String,
    },
    /// The flash failed earlier, and the origin was written without it since: its dirty data may be
    /// older.
    Fenced {
        /// The reason for the fence.
        why: String,
        /// Bytes of dirty data and trimmed ranges on the flash now.
        dirty_bytes: u64,
        /// The bytes of such data that the flash had when the fence went up; 0 if unknown.
        noted_bytes: u64,
    },
    /// The cache was detached.
    Detached,
    /// The state that is kept off the flash cannot be read or written.
    State(String),
    /// The cache is closing.
    Closed,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Io(error) => error.fmt(f),
            EngineError::Flash(error) => write!(f, "the flash: {error}"),
            EngineError::Origin { name, error, is_earlier: false } => write!(f, "the origin {name}: {error}"),
            EngineError::Origin { name, error, is_earlier: true } => write!(
                f,
                "a flush of the origin {name} failed earlier ({error}): earlier writes of clients may be lost there"
            ),
            EngineError::CheckpointTooLarge => f.write_str("the checkpoint outgrew its area"),
            EngineError::Format(error) => error.fmt(f),
            EngineError::Invalid(sentence)
            | EngineError::WrongOrigin(sentence)
            | EngineError::OriginChanged(sentence) => f.write_str(sentence),
            EngineError::DirtyDataLost { offset } => {
                write!(f, "the dirty record for volume offset {offset} is damaged on flash, and the origin lacks it")
            }
            EngineError::LogDamaged { lost, found, flash_offset, is_named } => {
                write!(f, "the metadata log is damaged: frame {lost} was durable and cannot be read (")?;
                match is_named {
                    false => write!(f, "frame {found} at flash offset {flash_offset} follows it")?,
                    true => write!(f, "the data at flash offset {flash_offset} names frame {found} as durable")?,
                }
                f.write_str("), so flushed writes are missing; `larder verify --repair` keeps the rest")
            }
            EngineError::FlashFailed(error) => write!(f, "the flash device failed: {error}"),
            EngineError::NoFence { flash, why } => {
                // The reason comes first, because a client may get only the beginning.
                write!(f, "the flash failed, and nothing is written past it without a fence: {why} (the flash: {flash})")
            }
            EngineError::Fenced { why, dirty_bytes: 0, noted_bytes } => write!(
                f,
                "the origin was written while this flash was away ({why}); {noted_bytes} bytes of dirty data and trims are gone, and the origin may lack them: --discard opens it without them"
            ),
            EngineError::Fenced { why, dirty_bytes, .. } => write!(
                f,
                "the origin was written while this flash was away ({why}), and its {dirty_bytes} bytes of dirty data and trims may be older than the origin's: --discard drops them"
            ),
            EngineError::Detached => f.write_str(
                "this cache was detached, and its origin may have changed since: make a new one with `larder create --force`",
            ),
            EngineError::State(sentence) => f.write_str(sentence),
            EngineError::Closed => f.write_str("the cache is closed"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<IoError> for EngineError {
    fn from(error: IoError) -> Self {
        EngineError::Io(error)
    }
}

impl From<FormatError> for EngineError {
    fn from(error: FormatError) -> Self {
        EngineError::Format(error)
    }
}

impl EngineError {
    /// Returns the error of a device operation, for front ends.
    pub fn into_io(self, op: IoOp, offset: u64, len: u64) -> IoError {
        match self {
            EngineError::Io(error) | EngineError::Flash(error) | EngineError::Origin { error, .. } => error,
            EngineError::DirtyDataLost { .. } => {
                IoError::new(IoErrorKind::Corrupt, op, offset, len).with_detail(self.to_string())
            }
            EngineError::Closed => IoError::new(IoErrorKind::Cancelled, op, offset, len),
            other => IoError::new(IoErrorKind::Io, op, offset, len).with_detail(other.to_string()),
        }
    }
}
