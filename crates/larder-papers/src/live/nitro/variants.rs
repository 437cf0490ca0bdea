//! Media and variants of the paper's experiments on time.
//!
//! It runs no experiment.

use super::super::rig::CacheOf;
use crate::nitro::EXTENT_BYTES;
use larder_device::throttled::Profile;

/// The media.
pub(super) const DISK: Profile = Profile::Raid5Hdd7200;

pub(super) const FLASH: Profile = Profile::SataSsd;

/// The paper's name of a variant.
pub(super) struct LiveVariant {
    pub name: &'static str,
    pub design: &'static str,
    pub dedup: bool,
    pub compress: bool,
}

impl LiveVariant {
    /// Returns a cache with room for so many bytes of unreduced extents.
    pub fn cache(&self, data_bytes: u64) -> Result<CacheOf, String> {
        let LiveVariant { dedup, compress, .. } = *self;
        Ok(CacheOf { dedup, compress, ..CacheOf::named(self.design, EXTENT_BYTES, data_bytes)? })
    }
}

pub(super) const fn variant(name: &'static str, design: &'static str, dedup: bool, compress: bool) -> LiveVariant {
    LiveVariant { name, design, dedup, compress }
}

pub(super) const EXTENT: LiveVariant = variant("Extent (ND, NC)", "lru", false, false);

pub(super) const WEU: LiveVariant = variant("WEU (ND, NC)", "nitro", false, false);

pub(super) const WEU_C: LiveVariant = variant("WEU (ND, C)", "nitro", false, true);

pub(super) const WEU_D: LiveVariant = variant("WEU (D, NC)", "nitro", true, false);

pub(super) const WEU_DC: LiveVariant = variant("WEU (D, C)", "nitro", true, true);
