//! A drive with a clock, as it was cut to the flash of a cache.
//!
//! It is that whose erasures are counted ([`setup::drive`](crate::setup::drive)): what is written, copied and erased is the
//! same, as far as it comes in the same order. It may have fewer planes than its profile; those that it has are as parallel as the profile
//! ([`stripes`](crate::ssd::time::stripes)).
//!
//! What it does not do: cut.

use crate::{
    setup::drive::DriveSetup,
    ssd::{ftl::FtlKind, geometry::OutOfRange, profile::Profile, time::Drive},
};

/// The drive, new and empty, of a profile that was cut; `weu_bytes` are those of the cache's units, if it has such.
///
/// # Errors
/// What a layer or its time cannot do with.
pub fn clocked(cut: &Profile, kind: &FtlKind, weu_bytes: Option<u64>) -> Result<Drive, OutOfRange> {
    cut.check_time()?;
    Drive::new(kind.make_for(cut, weu_bytes)?, cut)
}

/// The drive of a profile with room for so many bytes, and its profile as it was cut.
///
/// # Errors
/// What a layer or its time cannot do with.
pub fn fitted(profile: &Profile, kind: &'static FtlKind, flash_bytes: u64) -> Result<(Drive, Profile), OutOfRange> {
    profile.check_time()?;
    let cut = *DriveSetup::new(*profile, kind).made(flash_bytes, None)?.profile();
    Ok((clocked(&cut, kind, None)?, cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::{ftl::FTLS, profile::PROFILES};

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
        let without = Profile { link_bytes_per_second: 0, ..PROFILES[0] };
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
