//! The offline tools: checks, repairs and prints the flash of a cache that no engine serves.
//!
//! Role: [`verify`] checks all that mappings depend on, [`verify::repair`] makes a damaged cache
//! one that opens, and [`dump`] tells the structures. They read the flash with the engine's
//! [`walk`](larder_engine::walk), and recover its state as an opening does.
//!
//! Invariants: only a repair writes. The engine opens one room to this crate,
//! [`offline`](larder_engine::offline). Differences between stores are in one file, `audit.rs`.
//!
//! It does not open paths or print, and never looks at an origin.

pub(crate) mod audit;
pub mod dump;
pub(crate) mod region;
pub mod verify;
