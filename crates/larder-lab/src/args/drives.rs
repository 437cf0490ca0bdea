//! Drives and origins in the command line's notation.
//!
//! It does not make drives; `larder_sim::setup::drive` does.

use larder::size;
use larder_sim::{
    origin::profile::{self, OriginProfile},
    setup::drive::DriveSetup,
};
use larder_ssd::{
    kinds::{FTLS, FtlKind},
    profile::{DriveProfile, PROFILES},
};

/// The default layer, as in today's drives.
pub(crate) const FTL: &str = "page-trim";

/// Parses `caftl` or `caftl:over_provisioning_percent=20:page_bytes=8K`.
///
/// Its translation layer comes later.
pub fn profile(text: &str) -> Result<DriveSetup, String> {
    let mut pieces = text.split(':');
    let name = pieces.next().unwrap_or_default();
    let profile = DriveProfile::named(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("there is no drive {name:?}; there are {}", names.join(", "))
    })?;
    let numbers = pieces.map(|piece| {
        let wrong = "behind a drive write :NUMBER=VALUE, as in caftl:over_provisioning_percent=20";
        let (name, value) = piece.split_once('=').ok_or(wrong)?;
        Ok((name, number(name, value)?))
    });
    DriveSetup::new(profile, ftl(FTL)?).with_all(&numbers.collect::<Result<Vec<_>, String>>()?)
}

/// Parses a number, perhaps with K, M, G or T behind it, or %.
fn number(name: &str, text: &str) -> Result<f64, String> {
    let bytes = size::parse(text).ok().map(|bytes| bytes as f64);
    let plain = || text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|number: &f64| number.is_finite());
    // The zero without a sign.
    bytes
        .or_else(plain)
        .map(|number| number + 0.0)
        .ok_or_else(|| format!("{name} is {text:?}, but has to be a number, as in 7 or 16K"))
}

/// Parses a translation layer.
pub fn ftl(name: &str) -> Result<&'static FtlKind, String> {
    FtlKind::named(name).ok_or_else(|| {
        let names: Vec<&str> = FTLS.iter().map(|kind| kind.name).collect();
        format!("there is no translation layer {name:?}; there are {}", names.join(", "))
    })
}

/// Parses an origin's name.
pub fn origin(name: &str) -> Result<OriginProfile, String> {
    OriginProfile::named(name).ok_or_else(|| {
        let names: Vec<&str> = profile::PROFILES.iter().map(|profile| profile.name).collect();
        format!("there is no origin {name:?}; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_sim::setup::drive::Capacity;

    #[test]
    fn a_drive_has_numbers_of_its_own_behind_its_name() {
        let drive = profile("caftl:over_provisioning_percent=7.5%:page_bytes=8K:capacity=4G").expect("a drive");
        assert_eq!(drive.profile.geometry.over_provisioning_percent, 7.5);
        assert_eq!((drive.profile.geometry.page_bytes, drive.capacity), (8192, Capacity::Bytes(4 << 30)));
        for (text, words) in [
            ("floppy", "there are caftl"),
            ("caftl:wings=2", "over_provisioning_percent"),
            ("caftl:packages", ":NUMBER=VALUE"),
            ("caftl:packages=many", "packages is \"many\""),
            ("caftl:packages=0", "packages is 0, but has to be a whole number from 1 to 1024"),
            ("caftl:capacity=15T", "capacity is 16492674416640, but has to be a whole number from 1 to 15"),
            ("caftl:capacity=1G:capacity=2G", "capacity is given twice"),
            ("caftl:program_ns=9007199254740992:packages=1", "program_ns is 9007199254740992, but has to be"),
            ("caftl:page_bytes=3K", "page_bytes is 3072, but has to be a power of two"),
            ("caftl:over_provisioning_percent=-1", "from 0 to 1000"),
            ("caftl:over_provisioning_percent=NaN", "has to be a number"),
        ] {
            let sentence = profile(text).expect_err(text);
            assert!(sentence.contains(words), "{text}: {sentence}");
        }
        let none = profile("caftl:over_provisioning_percent=-0").expect("a drive").profile.geometry;
        assert!(none.over_provisioning_percent.is_sign_positive());
        assert!(ftl("page").is_ok() && ftl("paged").expect_err("no such").contains("page-trim"));
    }

    #[test]
    fn an_origin_has_a_name() {
        assert_eq!(origin("raid6-7200").expect("it is one").name, "raid6-7200");
        let sentence = origin("tape").expect_err("it is none");
        assert!(sentence.contains("\"tape\"") && sentence.contains("hdd-7200, raid5-7200"), "{sentence}");
    }
}
