//! Drives in the command line's notation, and lists of them.
//!
//! It does not make drives; `larder_sim::setup::drive` does.

use crate::args::DriveArgs;
use larder::{
    error::{Failure, Outcome},
    output,
    size::human,
};
use larder_sim::{report::drive::PREFIX, setup::drive::DriveSetup};
use larder_ssd::{
    kinds::FTLS,
    profile::{DriveProfile, PROFILES},
};

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
    use crate::args::drives::{FTL, ftl, profile};

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
