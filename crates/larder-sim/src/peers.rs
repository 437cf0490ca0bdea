//! Published orders of replacement for comparison in a replay, which no cache can have.
//!
//! Each is d-lru's cache with another order of D. So a content of several addresses is one entry,
//! and a use of any of its addresses is a use of the content. Addresses, entries of metadata and
//! orphans are d-lru's (`larder-core/src/designs/d_lru.rs`). An order counts its queues, marks and
//! ghosts as the allocator does.
//! [`larc`] also refuses contents.
//!
//! Invariants: those of d-lru. A slot is on one queue while it has content.
//!
//! The orders do not outlive a restart, and a superblock has no number for them.

pub mod clock2q_plus;
mod ghosts;
pub mod larc;
#[cfg(test)]
mod model;
mod queues;
mod row;
pub mod s3_fifo;
pub mod sieve;
