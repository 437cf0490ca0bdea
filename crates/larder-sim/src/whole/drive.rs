//! A drive with a clock that is as large as the flash of a cache, and as parallel as its profile.
//!
//! Where erasures are counted alone, a drive is cut to a small cache by fewer planes ([`setup::drive`](crate::setup::drive)); with time
//! that would make it slow. Here planes stay, there are fewer blocks, down to [`BLOCKS_PER_PLANE_MIN`] a plane, and then blocks have
//! fewer pages, down to [`PAGES_PER_BLOCK_MIN`] (Nitro section 5.4 varies both, too); only then are there fewer planes.
//! A translation layer that has no room to work in such planes gets more and smaller blocks, up to [`BLOCKS_PER_PLANE_TRIED`] a
//! plane, and one that keeps pages for itself gets a larger drive.
//!
//! What it does not do: make a small drive collect as a large one does: of few blocks, the spare ones are few, too.

use crate::ssd::{
    ftl::{Ftl, FtlKind},
    geometry::OutOfRange,
    profile::{Profile, Scale},
    time::Drive,
};

/// The fewest blocks of a plane: of 64, at 7% over-provisioning, 4 are spare.
pub const BLOCKS_PER_PLANE_MIN: u32 = 64;
/// How many blocks a plane is given at least, at most, where a layer has no room in fewer.
pub const BLOCKS_PER_PLANE_TRIED: u32 = 1024;
/// The fewest pages of a block.
pub const PAGES_PER_BLOCK_MIN: u32 = 16;

/// The drive, new and empty, and its profile as it was cut.
///
/// # Errors
/// What a layer or its time cannot do with.
pub fn fitted(profile: &Profile, kind: &FtlKind, flash_bytes: u64) -> Result<(Drive, Profile), OutOfRange> {
    profile.check_time()?;
    let mut blocks = BLOCKS_PER_PLANE_MIN;
    let (ftl, cut) = loop {
        match with_room(profile, kind, flash_bytes, blocks) {
            Ok(made) => break made,
            Err(_) if blocks < BLOCKS_PER_PLANE_TRIED => blocks *= 2,
            Err(error) => return Err(error),
        }
    };
    Ok((Drive::new(ftl, &cut)?, cut))
}

/// The layer on a drive on which it has room for so many bytes.
fn with_room(
    profile: &Profile,
    kind: &FtlKind,
    bytes: u64,
    blocks_min: u32,
) -> Result<(Box<dyn Ftl>, Profile), OutOfRange> {
    let mut wanted = bytes;
    loop {
        let cut = cut(profile, wanted, blocks_min)?;
        let ftl = (kind.make)(&cut)?;
        let has = u64::from(ftl.logical_pages()) * u64::from(cut.geometry.page_bytes);
        if has >= bytes {
            return Ok((ftl, cut));
        }
        wanted += bytes - has;
    }
}

fn cut(profile: &Profile, flash_bytes: u64, blocks_min: u32) -> Result<Profile, OutOfRange> {
    let mut from = *profile;
    loop {
        let scaled = from.scaled_to(flash_bytes, Scale::Blocks)?;
        if scaled.geometry.blocks_per_plane >= blocks_min {
            return Ok(scaled);
        }
        from.geometry.blocks_per_plane = blocks_min;
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
                let cut = cut(profile, mib << 20, BLOCKS_PER_PLANE_MIN).expect("a drive");
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

    #[test]
    fn each_layer_that_takes_single_pages_has_room_on_each_profile() {
        for profile in PROFILES {
            for kind in FTLS {
                for mib in [16, 64, 1024] {
                    let name = format!("{} with {} of {mib} MiB", profile.name, kind.name);
                    let (drive, cut) =
                        fitted(profile, kind, mib << 20).unwrap_or_else(|error| panic!("{name}: {error}"));
                    let has = u64::from(drive.ftl().logical_pages()) * u64::from(cut.geometry.page_bytes);
                    assert!(has >= mib << 20, "{name}");
                }
            }
        }
    }
}
