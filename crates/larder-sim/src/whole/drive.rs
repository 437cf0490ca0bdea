//! A drive with a clock, as it was cut to the flash of a cache.
//!
//! It is the drive whose erasures are counted ([`setup::drive`](crate::setup::drive)): writes,
//! copies and erasures are the same, as far as requests come in the same order. It may have fewer
//! planes than its profile. The planes that it has are as parallel as the profile
//! ([`stripes`](larder_ssd::time::stripes)).
//!
//! It does not cut.

use crate::setup::drive::DriveSetup;
use larder_ssd::{geometry::OutOfRange, kinds::FtlKind, profile::DriveProfile, time::Drive};

/// Makes the drive, new and empty, of a profile that was cut.
///
/// The cache's units, if it has such, are of `weu_bytes`.
///
/// # Errors
/// A figure that the layer or its time refuses.
pub fn clocked(cut: &DriveProfile, kind: &FtlKind, weu_bytes: Option<u64>) -> Result<Drive, OutOfRange> {
    cut.check_time()?;
    Drive::new(kind.make_for(cut, weu_bytes)?, cut)
}

/// Makes the drive of a profile with room for so many bytes, and returns the cut profile, too.
///
/// # Errors
/// A figure that the layer or its time refuses.
pub fn fitted(
    profile: &DriveProfile,
    kind: &'static FtlKind,
    flash_bytes: u64,
) -> Result<(Drive, DriveProfile), OutOfRange> {
    profile.check_time()?;
    let cut = *DriveSetup::new(*profile, kind).made(flash_bytes, None)?.profile();
    Ok((clocked(&cut, kind, None)?, cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_ssd::{kinds::FTLS, profile::PROFILES};

    #[test]
    fn a_drive_is_as_large_as_asked_and_as_parallel_as_its_profile() {
        for profile in PROFILES {
            for mib in [4, 64, 300, 5000] {
                let (drive, cut) = fitted(profile, &FTLS[0], mib << 20).expect("a drive");
                let (name, has, whole) = (profile.name, cut.geometry.planes(), profile.geometry.planes());
                assert!(cut.geometry.logical_bytes() >= mib << 20, "{name} of {mib} MiB");
                assert_eq!(drive.planes(), whole / has * has, "{name} of {mib} MiB: {:?}", cut.geometry);
            }
        }
        let without = DriveProfile { link_bytes_per_second: 0, ..PROFILES[0] };
        let why = fitted(&without, &FTLS[0], 64 << 20).map(|_| ()).expect_err("refused").to_string();
        assert!(why.starts_with("link_bytes_per_second is 0, but has to be at least 1"), "{why}");
    }

    #[test]
    fn each_layer_has_room_on_each_profile() {
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
