//! The Larder cache: executes the decisions of a design on a flash device and an origin.
//!
//! Role: one file a verb ([`read`], [`write`](mod@write), [`flush`], [`trim`], [`destage`],
//! [`evict`], [`fill`], [`checkpoint`], [`recover`], [`create`](mod@create)). Each is an `async fn`
//! read from top to bottom, over the shared state in [`state`]. [`Cache`] is their face: a
//! [`BlockDevice`](larder_device::BlockDevice) and a blocking interface.
//!
//! Invariants: time, threads and order come from the [`Runtime`](larder_device::Runtime) alone. The
//! lock of the state is held for a decision and never across an await. `docs/FORMAT.md` states the
//! order in which structures become durable.
//!
//! It does not serve clients, open paths or print.

pub mod advice;
pub mod batch;
pub mod cache;
pub mod checkpoint;
pub mod close;
pub mod conditions;
pub mod config;
pub mod create;
pub mod damaged;
pub mod decision_log;
pub mod degraded;
pub mod designs;
pub mod destage;
pub mod detach;
pub(crate) mod durable_frame;
pub mod error;
pub mod evict;
pub mod fence;
pub mod fill;
pub mod flush;
pub(crate) mod geometry;
pub mod in_flight;
pub(crate) mod kept;
pub mod lacked;
pub(crate) mod lifecycle;
#[cfg(feature = "lock-times")]
pub mod lock_times;
pub mod log_area;
pub mod log_room;
pub(crate) mod lookup;
pub(crate) mod losses;
pub mod mode;
pub(crate) mod named_frames;
pub mod offline;
pub(crate) mod open;
pub(crate) mod orders;
pub(crate) mod origin_again;
pub mod origin_changes;
pub mod origin_state;
pub(crate) mod pending_log;
pub mod pins;
pub mod places;
pub mod prefetch;
pub mod prepare;
pub mod read;
pub mod read_hit;
pub(crate) mod rebuild;
pub mod recall;
pub mod record;
pub mod recover;
pub mod refused;
pub mod region;
pub mod remains;
pub mod replay;
pub mod requested;
pub mod retune;
pub(crate) mod room;
pub mod segment;
pub mod send;
pub mod shared;
pub mod stall;
pub mod standing;
pub mod state;
pub mod state_lock;
pub mod status;
pub(crate) mod store;
pub mod stripes;
pub mod superblock;
pub mod sync;
pub mod tell;
pub mod tickets;
pub mod trim;
pub mod unflushed;
pub mod walk;
pub(crate) mod wear;
pub mod write;
pub mod write_back;
pub(crate) mod zeroed_parts;

pub use cache::Cache;
pub use config::{CreateOptions, Tuning};
pub use create::create;
pub use error::EngineError;
pub use fence::FenceKeeper;
pub use larder_format::{Compression, WriteMode};
pub use retune::live::Pace;
pub use status::Status;
pub use wear::account::{WearLimit, WearStatus};
