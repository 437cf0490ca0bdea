//! `larder verify`: checks everything on the flash of a cache that is not served.
//!
//! What it does not do: repair, or look at the origin.

use crate::{
    args::VerifyArgs,
    control,
    error::{Failure, Outcome},
    output::{self, aligned},
    size::{count, human},
    volume::{Access, Flash, open_flash},
};
use indicatif::{ProgressBar, ProgressStyle};
use larder_device::driver::block_on;
use larder_engine::verify::{VerifyReport, verify};
use std::{io::IsTerminal, path::Path};

/// Runs the command.
///
/// # Errors
/// One sentence; [`Failure::Reported`] where the flash is damaged.
pub fn run(args: &VerifyArgs) -> Outcome {
    let flash = open_offline(&args.flash, "verify")?;
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos} of {len} WEUs ({eta})") {
            bar.set_style(style);
        }
        bar
    });
    let result = block_on(verify(&*flash.device, &mut |done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let report = result.map_err(|error| Failure::engine(&flash.path, &error))?;
    match args.json {
        true => output::say_json(&report)?,
        false => output::say(&page(&flash.path, &report))?,
    }
    if report.clean { Ok(()) } else { Err(Failure::Reported) }
}

/// Opens the flash of a cache that nobody serves.
///
/// # Errors
/// A sentence, for one that is served as well.
pub fn open_offline(path: &Path, command: &str) -> Outcome<Flash> {
    let uuid = open_flash(path, Access::Peek)?.superblock.flash_uuid;
    if control::is_served(&uuid) {
        return Err(Failure::failed(format_args!(
            "{} is served now, and changes: end `larder serve` before `larder {command}`",
            path.display()
        )));
    }
    open_flash(path, Access::Read)
}

fn page(path: &Path, report: &VerifyReport) -> String {
    let VerifyReport { mappings, zero_mappings, fragments, duplicates, .. } = report;
    let mut out = format!("{}: {}\n", path.display(), if report.clean { "clean" } else { "DAMAGED" });
    let mapped = format!(
        "{} ({} duplicates, {} fragments, {} zero)",
        count(*mappings),
        count(*duplicates),
        count(*fragments),
        count(*zero_mappings)
    );
    let end = if report.clean_shutdown { "orderly" } else { "none, or a crash" };
    aligned(
        &mut out,
        &[
            ("last end", end.to_owned()),
            ("whole superblocks", format!("{} of 2", report.superblocks_valid)),
            ("checkpoint", format!("{}, {} blocks", human(report.checkpoint_bytes), count(report.checkpoint_blocks))),
            ("log since then", format!("{} frames, {} entries", count(report.log_frames), count(report.log_entries))),
            ("mappings", mapped),
            ("dirty mappings", count(report.dirty_mappings)),
            ("fingerprints", count(report.fingerprints)),
            ("WEUs read", format!("{}, {} segments", count(report.slots_read), count(report.segments))),
            ("records checked", format!("{}, {}", count(report.records), human(report.record_bytes))),
            ("problems", count(report.problems_found)),
        ],
    );
    for note in &report.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    for problem in &report.problems {
        let at = problem.flash_offset.map(|offset| format!(" (flash offset {offset})")).unwrap_or_default();
        out.push_str(&format!("{}: {}{at}\n", problem.kind, problem.what));
    }
    let more = report.problems_found - report.problems.len() as u64;
    if more > 0 {
        out.push_str(&format!("and {} more\n", count(more)));
    }
    if report.dirty_chunks_lost > 0 {
        out.push_str(&format!("{} dirty chunks are lost\n", count(report.dirty_chunks_lost)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_engine::verify::Problem;

    #[test]
    fn the_page_tells_each_problem_and_counts_the_rest() {
        let problem = Problem {
            kind: "record",
            what: "the record of chunk 7 is damaged".into(),
            lba: Some(7),
            flash_offset: Some(4096),
            dirty: true,
        };
        let report = VerifyReport {
            problems_found: 3,
            problems: vec![problem],
            dirty_chunks_lost: 1,
            ..VerifyReport::default()
        };
        let page = page(Path::new("/f"), &report);
        for words in [
            "/f: DAMAGED\n",
            "record: the record of chunk 7 is damaged (flash offset 4096)\n",
            "and 2 more\n",
            "1 dirty chunks are lost",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
}
