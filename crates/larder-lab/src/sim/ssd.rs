//! Drives in the command line's notation, and lists of them.
//!
//! It does not make drives; `larder_sim::setup::drive` does.

use crate::args::DriveArgs;
use larder::{
    error::{Failure, Outcome},
    output,
    size::{self, human},
};
use larder_sim::{report::drive::PREFIX, setup::drive::DriveSetup};
use larder_ssd::{
    kinds::{FTLS, FtlKind},
    profile::{DriveProfile, PROFILES},
};

/// The default layer, as in today's drives.
const FTL: &str = "page-trim";

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

/// Returns the requested drives, one for each translation layer; one `None` without a drive.
pub fn drives(args: &DriveArgs) -> Vec<Option<DriveSetup>> {
    let Some(drive) = args.ssd else { return vec![None] };
    if args.ftl.is_empty() {
        return vec![Some(drive)];
    }
    let mut drives: Vec<Option<DriveSetup>> = Vec::new();
    for &ftl in &args.ftl {
        let drive = Some(DriveSetup { ftl, ..drive });
        if !drives.contains(&drive) {
            drives.push(drive);
        }
    }
    drives
}

/// Checks that the chart's figure exists.
///
/// # Errors
/// A sentence.
pub fn check_metric(args: &DriveArgs, metric: &str) -> Outcome {
    if metric.starts_with(PREFIX) && args.ssd.is_none() {
        return Err(Failure::Usage(format!("--metric {metric} is of a drive: say which with --ssd PROFILE")));
    }
    Ok(())
}

/// Prints all profiles.
///
/// # Errors
/// Standard output is gone.
pub fn profiles() -> Outcome {
    let mut page = String::new();
    let micros = |ns: u64| ns as f64 / 1e3;
    for DriveProfile { name, about, geometry, timing, rated_cycles, buffer_bytes, controller, .. } in PROFILES {
        page.push_str(&format!("{name:<11}{about}\n"));
        page.push_str(&format!(
            "{:<11}{} for the host, {}% over-provisioning; {} blocks of {} in {} planes, pages of {}; {rated_cycles} cycles; \
             a buffer of {}\n",
            "",
            human(geometry.logical_bytes()),
            geometry.over_provisioning_percent,
            geometry.blocks(),
            human(geometry.block_bytes()),
            geometry.planes(),
            human(geometry.page_bytes.into()),
            human(*buffer_bytes),
        ));
        page.push_str(&format!(
            "{:<11}a page: {} us to read, {} us to program, {} us over the bus; {} us to erase a block; a processor of {} MHz\n",
            "",
            micros(timing.read_ns),
            micros(timing.program_ns),
            micros(timing.transfer_ns),
            micros(timing.erase_ns),
            controller.hz / 1_000_000,
        ));
    }
    let numbers: Vec<&str> = DriveSetup::fields().collect();
    page.push_str(&format!(
        "numbers that can be given behind a name, as in caftl:packages=4: {}\n",
        numbers.join(", ")
    ));
    output::say(&page)
}

/// Prints all translation layers.
///
/// # Errors
/// Standard output is gone.
pub fn ftls() -> Outcome {
    let width = FTLS.iter().map(|kind| kind.name.len()).max().unwrap_or(0) + 2;
    output::say(&FTLS.iter().map(|kind| format!("{:<width$}{}\n", kind.name, kind.about)).collect::<String>())
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
    fn there_is_a_drive_for_each_layer() {
        let drive = profile("caftl").expect("a drive");
        let names = |ssd, layers: &[&str]| -> Vec<Option<&str>> {
            let ftl = layers.iter().map(|name| ftl(name).expect("a layer")).collect();
            drives(&DriveArgs { ssd, ftl }).into_iter().map(|drive| drive.map(|drive| drive.ftl.name)).collect()
        };
        assert_eq!(names(None, &[]), [None]);
        assert_eq!(names(Some(drive), &[]), [Some(FTL)]);
        assert_eq!(names(Some(drive), &["page", "caftl", "page"]), [Some("page"), Some("caftl")]);
    }
}
