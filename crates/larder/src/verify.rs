//! `larder verify`: checks everything on an unserved cache's flash, and repairs it on request.
//!
//! Invariants: without `--repair` nothing is written, nor with `--dry-run`. The exit code tells a
//! script if it may go on:
//! - 0: nothing is wrong (any more) and nothing was lost.
//! - 1: something is wrong.
//! - 3: repaired at the cost of data.
//!
//! It does not look at the origin.

use crate::{
    args::VerifyArgs,
    client,
    error::{Failure, Outcome},
    flash::{Access, Flash, is_held, open_file, open_flash},
    memory::refuse_too_large,
    output::{self, aligned},
    size::{count, human},
    state_dir::{note_repair, refuse_older_copy},
    waiting::saying_which,
};
use indicatif::{ProgressBar, ProgressStyle};
use larder_check::verify::{
    VerifyReport,
    repair::{RANGES_MAX, Ranges, RepairOptions, RepairReport, repair},
    verify,
};
use larder_device::driver::block_on;
use std::{io::IsTerminal, path::Path};

/// The text that replaces "nothing is lost" after a crash.
const UNCONFIRMED: &str =
    "that the log was whole to its end cannot be confirmed, for no two superblocks say that the last end was orderly";

/// Runs the command.
///
/// # Errors
/// One sentence; [`Failure::Reported`] for damage, [`Failure::DataLost`] for a repair that cost
/// data.
pub fn run(args: &VerifyArgs) -> Outcome {
    if args.repair {
        return run_repair(args);
    }
    let flash = open_offline(&args.flash, "verify")?;
    refuse_too_large(&flash)?;
    let report = with_progress(|progress| block_on(verify(&*flash.device, progress)));
    let report = report.map_err(|error| Failure::engine(&flash.path, &error))?;
    match args.json {
        true => output::say_json(&report)?,
        false => output::say(&page(&flash.path, &report))?,
    }
    if report.clean { Ok(()) } else { Err(Failure::Reported) }
}

fn run_repair(args: &VerifyArgs) -> Outcome {
    let path = &args.flash;
    // No server has a flash without a whole superblock; the repair gives the reason why it cannot
    // repair it.
    let state = args.state.as_deref();
    let before = open_flash(path, Access::Peek).ok();
    if let Some(flash) = &before {
        refuse_served(flash, "verify --repair")?;
        refuse_too_large(flash)?;
        saying_which("the state directory", || refuse_older_copy(state, &flash.superblock, args.adopt))?;
    }
    let device = open_file(path, if args.dry_run { Access::Read } else { Access::Write })?;
    let options =
        RepairOptions { dry_run: args.dry_run, drop_suspect: args.drop_suspect, unread_is_lost: args.unread_is_lost };
    let report = with_progress(|progress| block_on(repair(&device, &options, progress)));
    let report = report.map_err(|error| Failure::engine(path, &error))?;
    if let Some(before) = before.filter(|_| !args.dry_run)
        && let Ok(after) = open_flash(path, Access::Peek)
    {
        let (before, after) = (before.superblock, after.superblock.sequence);
        let noted = saying_which("the state directory", || note_repair(state, &before, after));
        noted.unwrap_or_else(|why| output::complain(&format!("the repair is not noted: {why}")));
    }
    match args.json {
        true => output::say_json(&report)?,
        false => output::say(&repair_page(path, &report))?,
    }
    match report.loses_data() {
        _ if !report.whole && !report.dry_run => Err(Failure::Reported),
        true => Err(Failure::DataLost),
        false => Ok(()),
    }
}

/// Runs `act` with a bar on a terminal.
fn with_progress<T>(act: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos} of {len} slots ({eta})") {
            bar.set_style(style);
        }
        bar
    });
    let result = act(&mut |done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    result
}

/// Opens the flash of a cache without a server, to read it.
///
/// # Errors
/// A sentence, for one that is served as well.
pub fn open_offline(path: &Path, command: &str) -> Outcome<Flash> {
    refuse_served(&open_flash(path, Access::Peek)?, command)?;
    open_flash(path, Access::Read)
}

/// Refuses a flash that its server holds; a copy of that flash has no server, and can be read.
fn refuse_served(flash: &Flash, command: &str) -> Outcome {
    if client::is_served(&flash.superblock.flash_uuid) && is_held(&flash.path) {
        return Err(Failure::failed(format_args!(
            "{} is served now, and changes: end `larder serve` before `larder {command}`",
            flash.path.display()
        )));
    }
    Ok(())
}

fn page(path: &Path, report: &VerifyReport) -> String {
    let VerifyReport { mappings, zero_mappings, fragments, duplicates, .. } = report;
    let found = match report {
        VerifyReport { clean: true, .. } => "clean",
        VerifyReport { unread_bytes: 1.., .. } => "NOT READ IN FULL",
        _ => "DAMAGED",
    };
    let mut out = format!("{}: {found}\n", path.display());
    let mapped = format!(
        "{} ({} duplicates, {} fragments, {} zero)",
        count(*mappings),
        count(*duplicates),
        count(*fragments),
        count(*zero_mappings)
    );
    let slots = format!("{}s read", report.slot);
    let segments = if report.segments > 0 { format!(", {} segments", count(report.segments)) } else { String::new() };
    let end = if report.clean_shutdown { "orderly" } else { "none, or a crash" };
    let log_end = if report.log_end_confirmed { "" } else { "; its end cannot be confirmed" };
    aligned(
        &mut out,
        &[
            ("last end", end.to_owned()),
            ("whole superblocks", format!("{} of 2", report.superblocks_valid)),
            ("checkpoint", format!("{}, {} blocks", human(report.checkpoint_bytes), count(report.checkpoint_blocks))),
            (
                "log since then",
                format!("{} frames, {} entries{log_end}", count(report.log_frames), count(report.log_entries)),
            ),
            ("mappings", mapped),
            ("dirty mappings", count(report.dirty_mappings)),
            ("fingerprints", count(report.fingerprints)),
            (&slots, format!("{}{segments}", count(report.slots_read))),
            ("records in use", format!("{}, {}, all checked", count(report.records), human(report.record_bytes))),
            ("records unused", format!("{} of {}", count(report.records_unused), count(report.records_listed))),
            ("problems", count(report.problems_found)),
        ],
    );
    problems(&mut out, report);
    if report.dirty_chunks_lost > 0 {
        out.push_str(&format!("{} dirty chunks are lost\n", count(report.dirty_chunks_lost)));
    }
    if report.unread_bytes > 0 {
        out.push_str("unread data may be whole: try again, or copy what the device gives to another one\n");
    }
    if !report.clean {
        out.push_str("`larder verify --repair --dry-run` says what a repair would do\n");
    }
    out
}

fn problems(out: &mut String, report: &VerifyReport) {
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
}

fn repair_page(path: &Path, report: &RepairReport) -> String {
    let mut out = String::new();
    let path = path.display();
    if !report.needed {
        let end = match report.before.log_end_confirmed {
            true => String::new(),
            false => format!("; {UNCONFIRMED}"),
        };
        return format!("{path}: nothing to repair{end}\n");
    }
    problems(&mut out, &report.before);
    for sentence in sentences(report) {
        out.push_str(&format!("{sentence}\n"));
    }
    list(&mut out, "lost", &report.lost);
    list(&mut out, "suspect", &report.suspect);
    list(&mut out, "may be older", &report.unknown);
    let is_certain = report.before.log_end_confirmed;
    let end = match (report.dry_run, report.whole, report.loses_data()) {
        (true, _, false) if is_certain => "a repair would lose nothing; nothing was written".to_owned(),
        (true, _, false) => format!("a repair would lose nothing that is there; {UNCONFIRMED}; nothing was written"),
        (true, _, true) => "a repair would cost data, as said above; nothing was written".to_owned(),
        (false, true, false) if is_certain => "repaired, nothing is lost".to_owned(),
        (false, true, false) => format!("repaired, and nothing that was there is lost; {UNCONFIRMED}"),
        (false, true, true) => "repaired, at the cost of data, as said above".to_owned(),
        (false, false, _) => {
            let left = report.after.as_ref().map_or(0, |after| after.problems_found);
            if let Some(after) = &report.after {
                problems(&mut out, after);
            }
            format!("NOT repaired: {} problems are left; is the flash device itself failing?", count(left))
        }
    };
    out.push_str(&format!("{path}: {end}\n"));
    out
}

/// Returns the actions of a repair, done or planned, and their cost.
fn sentences(report: &RepairReport) -> Vec<String> {
    let mut said = Vec::new();
    let mut say = |applies: bool, sentence: String| {
        if applies {
            said.push(sentence);
        }
    };
    say(report.superblock_rewritten, "superblocks: both are written from the one that counts".into());
    say(report.checkpoint_header_lost, "checkpoint: its header is lost; its blocks tell the same".into());
    let blocks = report.checkpoint_blocks_lost;
    say(blocks > 0, format!("checkpoint: {} blocks are lost, the others are kept", count(blocks)));
    for gap in &report.log_gaps {
        let frames = gap.frames.map_or("an unknown number of frames".to_owned(), |n| format!("{} frames", count(n)));
        let entries = gap.entries.map_or(String::new(), |n| format!(" with {} entries", count(n)));
        say(true, format!("log: {frames}{entries} are lost from frame {} on", gap.first_frame));
    }
    say(
        !report.log_gaps.is_empty(),
        "log: clean chunks from before are forgotten, for one may be out of date; the origin has them all".into(),
    );
    let clean = report.clean_chunks_dropped;
    say(clean > 0, format!("clean chunks: {} are forgotten; the origin has them", count(clean)));
    let fingerprints = report.fingerprints_dropped;
    say(fingerprints > 0, format!("fingerprints: {} are forgotten; this costs some space", count(fingerprints)));
    let moved = report.records_moved;
    say(moved > 0, format!("records: {} whole ones are moved out of damaged segments", count(moved)));
    let stay = report.records_not_moved;
    say(stay > 0, format!("records: {} whole ones stay in damaged segments, for no slot is free", count(stay)));
    let lost = report.dirty_chunks_lost;
    let bytes = human(report.lost.bytes());
    say(
        lost > 0,
        format!(
            "LOST: {} dirty chunks ({bytes}): their records are damaged; they read as the origin has them, which is older",
            count(lost)
        ),
    );
    let bytes = human(report.suspect.bytes());
    say(
        !report.suspect.is_empty() && report.suspect_dropped,
        format!("SUSPECT: {bytes} of dirty data from before the gap are forgotten; they read as the origin has them"),
    );
    say(
        !report.suspect.is_empty() && !report.suspect_dropped,
        format!(
            "SUSPECT: {bytes} of dirty data from before the gap are kept, though the gap may hide newer writes or destages of them (--drop-suspect forgets them)"
        ),
    );
    let most = report.unknown_entries.map_or(String::new(), |n| format!(", at most {} of them", count(n)));
    say(
        !report.unknown.is_empty(),
        format!(
            "MAY BE OLDER: the lost part may have held newer data of any chunk in {}{most}; they read as what is left has \
             them",
            human(report.unknown.bytes())
        ),
    );
    said
}

fn list(out: &mut String, name: &str, ranges: &Ranges) {
    for range in ranges.all().iter().take(RANGES_MAX) {
        let end = range.offset + range.bytes;
        out.push_str(&format!("  {name}: bytes {} to {} of the volume\n", range.offset, end.saturating_sub(1)));
    }
    if let more @ 1.. = ranges.all().len().saturating_sub(RANGES_MAX) {
        out.push_str(&format!("  {name}: and {} more ranges\n", count(more as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_check::verify::{LogGap, Problem};

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

    #[test]
    fn the_page_of_a_repair_says_what_it_costs() {
        let mut report = RepairReport {
            needed: true,
            whole: true,
            log_gaps: vec![LogGap { first_frame: 9, frames: Some(2), entries: Some(31) }],
            dirty_chunks_lost: 1,
            ..RepairReport::default()
        };
        (0..RANGES_MAX as u64 + 2).for_each(|n| report.lost.add(n * 16384, 8192));
        report.suspect.add(512, 512);
        let said = repair_page(Path::new("/f"), &report);
        for words in [
            "log: 2 frames with 31 entries are lost from frame 9 on\n",
            "LOST: 1 dirty chunks",
            "  lost: bytes 16384 to 24575 of the volume\n",
            "  lost: and 2 more ranges\n",
            "SUSPECT: 512 B of dirty data from before the gap are kept",
            "/f: repaired, at the cost of data",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("MAY BE OLDER") && !said.contains("moved"), "{said}");
        let before = VerifyReport { log_end_confirmed: true, ..VerifyReport::default() };
        let none = RepairReport { whole: true, before, ..RepairReport::default() };
        assert_eq!(repair_page(Path::new("/f"), &none), "/f: nothing to repair\n");
    }

    #[test]
    fn what_cannot_be_confirmed_is_not_said() {
        for (needed, dry_run) in [(false, false), (true, false), (true, true)] {
            for log_end_confirmed in [true, false] {
                let before = VerifyReport { log_end_confirmed, ..VerifyReport::default() };
                let report = RepairReport { needed, dry_run, whole: !dry_run, before, ..RepairReport::default() };
                let said = repair_page(Path::new("/f"), &report);
                assert_eq!(said.contains("cannot be confirmed"), !log_end_confirmed, "{said}");
                let says_all = said.contains("nothing is lost") || said.contains("lose nothing;");
                assert_eq!(says_all, needed && log_end_confirmed, "{said}");
            }
        }
    }
}
