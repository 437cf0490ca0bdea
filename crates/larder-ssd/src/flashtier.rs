//! FlashTier's solid-state cache: the hybrid layer with silent eviction.
//!
//! Source: Saxena, Swift and Zhang, FlashTier: a lightweight, consistent and durable storage cache,
//! EuroSys 2012. Under a cache of extents it is Nitro's extent-LRU-mod ("FlashTier extended to use
//! an LRU policy", Nitro section 6.1).
//!
//! Role: a cache's content has a copy elsewhere, unless it is dirty. If the drive needs a block, it
//! drops a data block without dirty pages. It copies nothing, and tells the host
//! ([`FlashOp::Evicted`](super::op::FlashOp::Evicted)). If it finds no such block, it merges as any
//! hybrid drive does. Pages in the log are merged and copied in any case: eviction makes room for
//! the data blocks that merges need.
//!
//! The host says which pages are dirty ([`Ftl::tell_dirty`]). FlashTier's write-dirty is that and a
//! write, write-clean a write of clean pages, clean a word alone, and evict a trim.
//!
//! | | the dropped block | the log |
//! |---|---|---|
//! | SE-Util ([`FlashTierOptions::default`]) | of fewest valid pages | has its own blocks; data gets the dropped ones |
//! | SE-Merge ([`FlashTierOptions::merge`]) | of fewest valid pages | takes the dropped blocks, up to a larger share |
//! | Nitro's ([`FlashTierOptions::lru`]) | of the logical block used least recently | as SE-Util |
//!
//! No capacity is reserved, as in Nitro section 5.4 for its modified drives with WEUs. The host's
//! address space has the size it is made with, and the drive drops the data that does not fit
//! beside the log. Under a cache a profile's over-provisioning is added only if the user gives it
//! (`larder-sim/src/setup/drive.rs`). A drive with more than the log takes would drop nothing.
//! FlashTier has the addresses of the whole disk there. The log's share is Nitro's for hybrid
//! drives, 10%, and for SE-Merge twice that.
//!
//! A host that gives out slots of such a space decides the erasures. If it writes a dropped block
//! from its first page on, the block is taken in place; any other order goes through the log. A
//! block that was just begun has the fewest valid pages.
//!
//! Invariants: those of the hybrid layer; a dirty page is not dropped. The rest is in
//! `hybrid/eviction.rs`.
//!
//! It does not make its maps durable, or drop ahead of need. It drops only data of whole logical
//! blocks without a dirty page. FlashTier looks at the pages of the data block alone, which is
//! finer.
//!
//! [`Ftl::tell_dirty`]: super::ftl::Ftl::tell_dirty

use super::{
    geometry::{DriveGeometry, OutOfRange, PAGES_MAX, PAGES_PER_BLOCK_MAX, within},
    hybrid::{
        Hybrid, HybridOptions,
        eviction::{Eviction, VictimOrder},
        log_blocks,
    },
};

/// The largest address space, in percent of the flash.
pub const ADDRESS_SPACE_PERCENT_MAX: u32 = 100_000;

/// The options of a FlashTier drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashTierOptions {
    /// The order in which data blocks are dropped.
    pub order: VictimOrder,
    /// The most of all blocks that the log may have, in percent; at least two blocks.
    pub log_share_percent: f64,
    /// True if data keeps off the log's blocks; otherwise the log grows by the dropped blocks.
    pub reserves_log: bool,
    /// The host's addresses, in percent of the flash's pages.
    pub address_space_percent: u32,
    /// As [`HybridOptions::wear_spread_max`].
    pub wear_spread_max: Option<u32>,
}

impl Default for FlashTierOptions {
    /// Returns SE-Util, with as many addresses as pages.
    fn default() -> Self {
        let HybridOptions { log_share_percent, wear_spread_max, .. } = HybridOptions::default();
        FlashTierOptions {
            order: VictimOrder::FewestValid,
            log_share_percent,
            reserves_log: true,
            address_space_percent: 100,
            wear_spread_max,
        }
    }
}

impl FlashTierOptions {
    /// Returns SE-Merge.
    pub fn merge() -> Self {
        FlashTierOptions { log_share_percent: 20.0, reserves_log: false, ..FlashTierOptions::default() }
    }

    /// Returns Nitro's extent-LRU-mod.
    pub fn lru() -> Self {
        FlashTierOptions { order: VictimOrder::LeastRecent, ..FlashTierOptions::default() }
    }
}

/// Returns the host's pages for an address space of `percent` percent of `pages`.
pub(super) fn address_pages(pages: u32, percent: u32) -> Result<u32, OutOfRange> {
    within("address_space_percent", percent, 1, ADDRESS_SPACE_PERCENT_MAX)?;
    let address_pages = u64::from(pages) * u64::from(percent) / 100;
    // The last logical block ends within 32 bits, too.
    let most = PAGES_MAX - u64::from(PAGES_PER_BLOCK_MAX);
    if address_pages == 0 || address_pages > most {
        let range = format!("so much that the host has from 1 to {most} pages, with {pages} on flash");
        return Err(OutOfRange::new("address_space_percent", percent, range));
    }
    Ok(address_pages as u32)
}

impl Hybrid {
    /// Makes a new FlashTier drive. It takes trims.
    ///
    /// # Errors
    /// If the geometry is unsound or has too few blocks, or an option is out of its range.
    pub fn flashtier(geometry: DriveGeometry, options: FlashTierOptions) -> Result<Self, OutOfRange> {
        geometry.check()?;
        let FlashTierOptions { order, log_share_percent, reserves_log, address_space_percent, wear_spread_max } =
            options;
        let log = log_blocks(&geometry, log_share_percent)?;
        let logical_pages = address_pages(geometry.pages(), address_space_percent)?;
        let dirty_blocks_max = geometry.blocks() - log - 1;
        let eviction = Eviction::new(&geometry, order, logical_pages, dirty_blocks_max, reserves_log);
        let options = HybridOptions { log_share_percent, takes_trims: true, wear_spread_max };
        Hybrid::of(geometry, options, logical_pages, log, Some(eviction))
    }
}
