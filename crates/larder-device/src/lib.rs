//! Block devices under and over the Larder cache.
//!
//! Role: this crate holds
//!
//! - the [`BlockDevice`] trait that origin, flash, test fakes and the finished cache share,
//!
//! - the buffers of its operations ([`IoBuf`], [`SharedBuf`]),
//!
//! - the [`Runtime`] through which the engine spawns background work, waits and computes,
//!
//! - the *driver* that completes I/O on the calling thread.
//!
//! Invariants: no crate of ours is a dependency; no type here knows the cache.
//!
//! It does not cache, retry, or hide a device's errors.

pub mod buf;
pub mod device;
pub mod driver;
pub mod error;
pub mod faulty;
pub mod file;
pub mod future;
pub mod nbd;
pub mod ram;
pub mod rng;
pub mod runtime;
pub mod sim;
pub mod threads;
pub mod throttled;
pub mod uri;
pub mod watched;

pub use buf::{IoBuf, SharedBuf};
pub use device::{BlockDevice, ChangeMark, DeviceInfo, Extent, Standing, WriteFlags, ZeroFlags};
pub use error::{IoError, IoErrorKind, IoOp, IoResult};
pub use future::{Completer, IoFuture};
pub use runtime::{BoxFuture, Runtime};
