//! A solid-state drive under a cache, simulated: what its translation layer does to the flash for each request of the
//! host, and what that costs in erasures.
//!
//! Role: a [`Profile`](profile::Profile) says what a drive is made of, an [`Ftl`](ftl::Ftl) (flash translation layer)
//! turns the host's reads, writes and trims of *logical pages* into operations on *physical pages*, and tells each of
//! them to a [`Sink`](op::Sink), in order. What looks at a drive is such a sink: the model of time, a shadow flash that
//! a test compares with, or nobody.
//!
//! | file | what is there |
//! |---|---|
//! | [`geometry`] | how a drive is built: packages, dies, planes, blocks, pages; and what their numbers mean |
//! | [`profile`] | named drives: geometry, times of its operations, rated erase cycles |
//! | [`op`] | operations on flash, why each was done, and who is told of them |
//! | [`array`](mod@array) | the physical state, and the rules of flash that nobody gets around |
//! | [`flash`] | the array, its counts and the sink as one: what a translation layer works on |
//! | [`blocks`] | free blocks by wear, closed blocks by their valid pages |
//! | [`space`], `collect.rs`, `restart.rs` | blocks written as a log a plane, greedy collection, wear levelling, and all of it found again |
//! | [`counts`] | what was programmed, read and erased, wear, and years of life |
//! | [`ftl`] | the trait of all translation layers, and the table of them |
//! | [`page_mapped`] | the page-mapped one: a space and a table |
//! | [`caftl`] | the one that deduplicates: a space, two tables and a store of fingerprints |
//! | [`hybrid`] | data blocks mapped by block, and a log mapped by page (FAST): merges |
//! | [`flashtier`] | the hybrid one that drops clean data where another merges: FlashTier |
//! | [`weu_aligned`] | the one made for write-evict units: it takes and drops whole ones |
//! | [`recency`] | what was used least recently, for layers that drop data |
//! | [`time`] | when requests are over: planes, buses, the write buffer, the controller |
//!
//! Words: a **logical page** (LPN) is what the host addresses, a **physical page** (PPA) is where flash is programmed,
//! an **erase block** what is erased. A page is *free* from the erasure of its block until it is programmed, then
//! *valid* while something depends on it, then *invalid*. **Collection** copies what is valid out of a *victim* block
//! and erases it. **Over-provisioning** is the flash beyond the logical capacity, in percent of the logical capacity.
//!
//! Invariants: no data is moved, there is no clock and no randomness, and the same requests make the same operations.
//! All programs, reads and erasures go through [`Flash`](flash::Flash), so that state, counts and what the sink heard
//! never disagree. A page is programmed once between erasures, and a block's pages in their order; whoever tries
//! otherwise panics.
//!
//! What it does not do: time ([`op::Sink`] is where that is built), errors of bits and bad blocks, or the host's side:
//! how a cache lays its data on logical pages (`host.rs` of this crate).

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
pub mod op;
pub mod page_mapped;
pub mod profile;
pub mod recency;
mod restart;
pub mod space;
mod table;
pub mod time;
pub mod weu_aligned;
