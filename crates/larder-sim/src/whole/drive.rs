//! A drive with a clock that is as large as the flash of a cache, and as parallel as its profile.
//!
//! Where erasures are counted alone, a drive is cut to a small cache by fewer planes ([`setup::drive`](crate::setup::drive)); with time
//! that would make it slow. Here planes stay, there are fewer blocks, down to [`BLOCKS_PER_PLANE_MIN`] a plane, and then blocks have
//! fewer pages, down to [`PAGES_PER_BLOCK_MIN`] (Nitro section 5.4 varies both, too); only then are there fewer planes.
//!
//! What it does not do: make a small drive collect as a large one does: of few blocks, the spare ones are few, too.

use crate::ssd::{
    ftl::FtlKind,
    geometry::OutOfRange,
    profile::{Profile, Scale},
    time::Drive,
};

/// The fewest blocks of a plane: of 64, at 7% over-provisioning, 4 are spare.
pub const BLOCKS_PER_PLANE_MIN: u32 = 64;
/// The fewest pages of a block.
pub const PAGES_PER_BLOCK_MIN: u32 = 16;

/// The drive, new and empty, and its profile as it was cut.
///
/// # Errors
/// What a layer or its time cannot do with.
pub fn fitted(profile: &Profile, kind: &FtlKind, flash_bytes: u64) -> Result<(Drive, Profile), OutOfRange> {
    profile.check_time()?;
    let cut = cut(profile, flash_bytes)?;
    Ok((Drive::new((kind.make)(&cut)?, &cut)?, cut))
}

fn cut(profile: &Profile, flash_bytes: u64) -> Result<Profile, OutOfRange> {
    let mut from = *profile;
    loop {
        let scaled = from.scaled_to(flash_bytes, Scale::Blocks)?;
        if scaled.geometry.blocks_per_plane >= BLOCKS_PER_PLANE_MIN {
            return Ok(scaled);
        }
        from.geometry.blocks_per_plane = BLOCKS_PER_PLANE_MIN;
        let scaled = from.scaled_to(flash_bytes, Scale::BlockSize)?;
        if scaled.geometry.pages_per_block >= PAGES_PER_BLOCK_MIN.min(profile.geometry.pages_per_block) {
            return Ok(scaled);
        }
        let geometry = &mut from.geometry;
        let parts = [&mut geometry.planes_per_die, &mut geometry.dies_per_package, &mut geometry.packages];
        match parts.into_iter().find(|part| **part > 1) {
            Some(part) => *part = part.div_ceil(2),
            None => return Ok(scaled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::{ftl::FTLS, profile::PROFILES};

    #[test]
    fn a_drive_is_as_large_as_asked_and_keeps_its_planes_as_long_as_it_can() {
        for profile in PROFILES {
            for mib in [4, 64, 300, 5000, 40_000] {
                let cut = cut(profile, mib << 20).expect("a drive");
                let (geometry, whole) = (cut.geometry, profile.geometry);
                assert!(geometry.logical_bytes() >= mib << 20, "{} of {mib} MiB", profile.name);
                let pages = u64::from(BLOCKS_PER_PLANE_MIN * PAGES_PER_BLOCK_MIN) * u64::from(whole.page_bytes);
                let flash = (mib << 20) as f64 * (1.0 + whole.over_provisioning_percent / 100.0);
                let is_small = flash < (u64::from(whole.planes()) * pages) as f64;
                assert_eq!(geometry.planes() < whole.planes(), is_small, "{} of {mib} MiB: {geometry:?}", profile.name);
            }
            fitted(profile, &FTLS[0], 64 << 20).expect("it has a layer and a time");
        }
        let without = Profile { link_bytes_per_second: 0, ..PROFILES[0] };
        let why = fitted(&without, &FTLS[0], 64 << 20).map(|_| ()).expect_err("refused").to_string();
        assert!(why.starts_with("link_bytes_per_second is 0, but has to be at least 1"), "{why}");
    }
}
