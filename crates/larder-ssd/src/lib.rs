//! A simulated solid-state drive: its translation layer's work for requests, and the erasures.
//!
//! Role: a [`DriveProfile`](profile::DriveProfile) describes a drive. An [`Ftl`](ftl::Ftl) (flash
//! translation layer) turns the host's reads, writes and trims of *logical pages* into operations
//! on *physical pages*. It tells each of them to an [`OpSink`](op::OpSink), in order. A sink is the
//! model of time, a shadow flash that a test compares with, or an empty one.
//!
//! | file | content |
//! |---|---|
//! | [`geometry`] | the build of a drive: packages, dies, planes, blocks, pages, and their numbers |
//! | [`profile`] | named drives: geometry, times of its operations, rated erase cycles |
//! | [`op`] | operations on flash, their reasons, and their listeners |
//! | [`array`](mod@array) | the physical state, and the hard rules of flash |
//! | [`flash`] | the array, its counts and the sink as one: translation layers work on it |
//! | [`blocks`] | free blocks by wear, closed blocks by their valid pages |
//! | [`space`], `collect.rs` | blocks written as a log a plane, collection, wear levelling |
//! | [`counts`] | programs, reads, erasures, wear, and years of life |
//! | [`ftl`], [`kinds`] | the trait of all translation layers; the table of them |
//! | [`page_mapped`] | the page-mapped one: a space and a table |
//! | [`caftl`] | the one that deduplicates: a space, two tables and a store of fingerprints |
//! | [`hybrid`] | data blocks mapped by block, and a log mapped by page (FAST): merges |
//! | [`flashtier`] | the hybrid one that drops clean data instead of a merge: FlashTier |
//! | [`weu_aligned`] | the one made for write-evict units: it takes and drops whole ones |
//! | [`use_order`] | the least recently used data, for layers that drop data |
//! | [`time`] | the ends of requests: planes, buses, the write buffer, the controller |
//!
//! Words: the host addresses **logical pages** (LPN). Flash is programmed in **physical pages**
//! (PPA) and erased in **erase blocks**. A page is *free* from the erasure of its block until it is
//! programmed. Then it is *valid* while some data depends on it, then *invalid*. **Collection**
//! copies the valid pages out of a *victim* block and erases it. **Over-provisioning** is the flash
//! beyond the logical capacity, in percent of the logical capacity.
//!
//! Invariants: no data is moved, there is no clock and no randomness, and the same requests make
//! the same operations. All programs, reads and erasures go through
//! [`CountedFlash`](flash::CountedFlash), so state, counts and the sink's operations never
//! disagree. A page is programmed once between erasures, and a block's pages in their order; a
//! breach panics.
//!
//! It does not take time, for which there is [`op::OpSink`], or model errors of bits and bad
//! blocks. It leaves the host's side, a cache's data on logical pages, to `larder-sim`.

#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod array;
pub mod blocks;
pub mod caftl;
mod collect;
pub mod counts;
pub mod flash;
pub mod flashtier;
pub mod ftl;
pub mod geometry;
pub mod hybrid;
pub mod kinds;
pub mod op;
pub mod page_mapped;
pub mod profile;
pub mod space;
mod table;
pub mod time;
pub mod use_order;
pub mod weu_aligned;
