//! The checks of superblocks, checkpoint and log, each structure for itself and against its
//! neighbours.
//!
//! Invariants: it does not write.
//!
//! It does not make a state of them; recovery or salvage does.

use super::{
    frames::{self, FrameAt},
    homes::is_newer,
    report::Problem,
    report::VerifyReport,
    window::Window,
};
use larder_device::BlockDevice;
use larder_engine::{
    EngineError,
    offline::{Naming, newest_named},
    superblock,
    walk::{self, LogEnd, LogWalk, Reader},
};
use larder_format::{
    CheckpointBlock, CheckpointCounts, FlashPlace, FrameHeader, LogEntry, LogStart, SlotEntry, SlotState, Superblock,
    ZeroRange, superblock::choose,
};
use std::collections::{HashMap, HashSet};

/// Checks both twins. Returns the superblock that counts.
///
/// # Errors
/// No cache to check.
pub async fn superblocks(flash: &dyn BlockDevice, report: &mut VerifyReport) -> Result<Superblock, EngineError> {
    // This read refuses a flash without any cache.
    let (superblock, repair) = superblock::read(flash).await?;
    report.clean_shutdown = superblock.clean_shutdown;
    report.log_end_confirmed = superblock.clean_shutdown && repair.is_none();
    let twins = walk::twins(flash).await;
    for (name, twin) in ["first", "second"].into_iter().zip(&twins) {
        match twin {
            Ok(_) => report.superblocks_valid += 1,
            // After an orderly end both are whole.
            Err(error) if superblock.clean_shutdown => {
                report.problem("superblock", format!("the {name} superblock is damaged: {error}"));
            }
            Err(error) => report.note(format!(
                "the {name} superblock is damaged ({error}), as a crash may leave it; the next opening repairs it"
            )),
        }
    }
    if let [Ok(first), Ok(second)] = &twins[..] {
        let differ = choose(&first.encode(), &second.encode()).is_ok_and(|chosen| chosen.repair.is_some());
        if differ {
            let note = "the superblocks differ, as a crash may leave them; the next opening repairs the older one";
            report.note(note.into());
        }
    }
    Ok(superblock)
}

/// The checkpoint's data for later checks.
pub struct CheckpointSays {
    log_start: (LogStart, u64),
    dirty: HashSet<u64>,
}

/// Checks the checkpoint that the superblock names. Returns `None` if it is damaged.
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    report: &mut VerifyReport,
) -> Option<CheckpointSays> {
    let named = (superblock.log_start, superblock.entry_seq_next);
    let Some(pointer) = &superblock.checkpoint else {
        return Some(CheckpointSays { log_start: named, dirty: HashSet::new() });
    };
    let mut checker = Checker::new(superblock);
    let mut blocks = 0;
    let walked = walk::checkpoint(flash, superblock, pointer, &mut |_, offset, _, block| {
        blocks += 1;
        checker.block(offset, &block);
    })
    .await;
    report.checkpoint_blocks = blocks;
    let Checker { wrong, dirty, slots, .. } = checker;
    wrong.into_iter().for_each(|problem| report.problem_at(problem));
    match walked {
        Ok(header) => {
            report.checkpoint_bytes = header.total_bytes;
            if (header.log_start, header.entry_seq_next) != named {
                report.problem("checkpoint", "checkpoint and superblock name different log starts".into());
            }
            // In buckets, the indices and the metadata region describe the slots.
            let spoken_of = superblock.layout.checkpoint_counts_max().slots;
            if slots.len() as u64 != spoken_of {
                let what = format!("the checkpoint speaks of {} slots, and there are {spoken_of}", slots.len());
                report.problem("checkpoint", what);
            }
            counts(&header.counts, superblock, report);
            Some(CheckpointSays { log_start: (header.log_start, header.entry_seq_next), dirty })
        }
        Err(error) => {
            let what = format!("checkpoint {}, after {blocks} whole blocks: {error}", pointer.checkpoint_id);
            report.problem("checkpoint", what);
            None
        }
    }
}

fn counts(counts: &CheckpointCounts, superblock: &Superblock, report: &mut VerifyReport) {
    let max = superblock.layout.checkpoint_counts_max();
    for (name, count, max) in [
        ("mappings", counts.mappings, max.mappings),
        ("fragments", counts.fragments, max.fragments),
        ("zero ranges", counts.zero_ranges, max.zero_ranges),
        ("fingerprints", counts.fingerprints, max.fingerprints),
        ("design pages", counts.design_pages, max.design_pages),
    ] {
        if count > max {
            report.problem("checkpoint", format!("the checkpoint has {count} {name}, and {max} are allowed"));
        }
    }
}

/// The checks of each entry of a checkpoint.
struct Checker<'a> {
    superblock: &'a Superblock,
    chunk_count: u64,
    seen: HashSet<u64>,
    dirty: HashSet<u64>,
    /// The first generation of each slot that an entry may name.
    slots: HashMap<u32, u32>,
    fingerprints: HashSet<[u8; 16]>,
    pages: HashSet<u32>,
    /// First chunk and end of the trimmed run before.
    run_before: Option<(u64, u64)>,
    wrong: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn new(superblock: &'a Superblock) -> Self {
        Checker {
            superblock,
            chunk_count: chunk_count(superblock),
            seen: HashSet::new(),
            dirty: HashSet::new(),
            slots: HashMap::new(),
            fingerprints: HashSet::new(),
            pages: HashSet::new(),
            run_before: None,
            wrong: Vec::new(),
        }
    }

    fn wrong(&mut self, at: u64, lba: Option<u64>, what: String) {
        self.wrong.push(Problem { kind: "checkpoint", what, lba, flash_offset: Some(at), dirty: false });
    }

    fn block(&mut self, at: u64, block: &CheckpointBlock) {
        match block {
            CheckpointBlock::Slots(slots) => slots.iter().for_each(|slot| self.slot(at, slot)),
            CheckpointBlock::Mappings(mappings) => {
                for mapping in mappings {
                    self.chunk(at, mapping.lba, mapping.dirty, mapping.place.as_ref());
                }
            }
            CheckpointBlock::Fragments(fragments) => {
                for fragment in fragments {
                    self.chunk(at, fragment.lba, fragment.dirty, Some(&fragment.place));
                }
            }
            CheckpointBlock::ZeroRanges(ranges) => ranges.iter().for_each(|range| self.trimmed_run(at, range)),
            CheckpointBlock::Fingerprints(fingerprints) => {
                for entry in fingerprints {
                    if !self.fingerprints.insert(entry.fingerprint) {
                        self.wrong(at, None, "the checkpoint knows a fingerprint twice".into());
                    }
                    self.place(at, None, &entry.place);
                }
            }
            CheckpointBlock::DesignPages(pages) => {
                pages.iter().for_each(|page| self.design_page(at, page.number()));
            }
        }
    }

    fn slot(&mut self, at: u64, slot: &SlotEntry) {
        let count = self.superblock.layout.slot_count;
        if slot.slot >= count {
            self.wrong(at, None, format!("the checkpoint names slot {} of {count}", slot.slot));
            return;
        }
        // The next use of a free slot is the first that an entry may name.
        let is_free = slot.state == SlotState::Free;
        let first = slot.generation.wrapping_add(u32::from(is_free));
        if self.slots.insert(slot.slot, first).is_some() {
            self.wrong(at, None, format!("the checkpoint names slot {} twice", slot.slot));
        }
    }

    fn trimmed_run(&mut self, at: u64, range: &ZeroRange) {
        let end = range.lba.saturating_add(range.chunk_count);
        if end > self.chunk_count {
            let what = format!("the trimmed run at chunk {} leaves the volume", range.lba);
            self.wrong(at, Some(range.lba), what);
        }
        // Runs come by address: only the last one can overlap the next.
        if let Some((first, before)) = self.run_before.replace((range.lba, end))
            && range.lba < before
            && first < end
        {
            let what = format!("the trimmed runs at chunks {first} and {} overlap", range.lba);
            self.wrong(at, Some(range.lba), what);
        }
    }

    fn design_page(&mut self, at: u64, number: u32) {
        let max = self.superblock.layout.checkpoint_counts_max().design_pages;
        if u64::from(number) >= max {
            self.wrong(at, None, format!("the checkpoint has design page {number} of {max}"));
        } else if !self.pages.insert(number) {
            self.wrong(at, None, format!("the checkpoint has design page {number} twice"));
        }
    }

    fn chunk(&mut self, at: u64, lba: u64, dirty: bool, place: Option<&FlashPlace>) {
        if lba >= self.chunk_count {
            self.wrong(at, Some(lba), format!("the checkpoint maps chunk {lba}, past the end of the volume"));
        }
        if !self.seen.insert(lba) {
            self.wrong(at, Some(lba), format!("the checkpoint maps chunk {lba} twice"));
        }
        if dirty {
            self.dirty.insert(lba);
        }
        if let Some(place) = place {
            self.place(at, Some(lba), place);
        }
    }

    /// Slots are exported before the entries that name them. So an entry with an older generation
    /// than its slot is wrong.
    fn place(&mut self, at: u64, lba: Option<u64>, place: &FlashPlace) {
        let whose = lba.map_or("a fingerprint".to_owned(), |lba| format!("chunk {lba}"));
        if let Some(what) = misplaced(place, self.superblock) {
            return self.wrong(at, lba, format!("the checkpoint has {whose} in {what}"));
        }
        if let Some(&generation) = self.slots.get(&place.slot)
            && is_newer(generation, place.generation)
        {
            let (slot, old) = (place.slot, place.generation);
            let what = format!(
                "the checkpoint has {whose} in generation {old} of slot {slot}, which is over: the slot is at {generation}"
            );
            self.wrong(at, lba, what);
        }
    }
}

/// Returns the fault of an impossible place.
fn misplaced(place: &FlashPlace, superblock: &Superblock) -> Option<String> {
    let layout = &superblock.layout;
    if place.slot >= layout.slot_count {
        return Some(format!("slot {}, which there is not", place.slot));
    }
    (!layout.has_record(place)).then(|| format!("a record that leaves slot {}", place.slot))
}

/// Checks the log behind the checkpoint.
pub async fn log(flash: &dyn BlockDevice, superblock: &Superblock, says: &CheckpointSays, report: &mut VerifyReport) {
    let mut wrong: Vec<Problem> = Vec::new();
    let count = chunk_count(superblock);
    let mut visit = |at: u64, header: &FrameHeader, entries: &[LogEntry]| {
        for (seq, entry) in (header.start.first_entry_seq..).zip(entries) {
            let Some((lba, what)) = entry_problem(entry, superblock, count, &says.dirty) else { continue };
            let what = format!("entry {seq} of the log {what}");
            let flash_offset = Some(superblock.layout.log_offset + at);
            wrong.push(Problem { kind: "log", what, lba, flash_offset, dirty: false });
        }
    };
    let mut walk = LogWalk::new(Reader::alone(flash), superblock, says.log_start);
    let end = match walk.to_the_end(&mut visit).await {
        Ok(end) => end,
        Err(error) => return report.problem("log", format!("the metadata log cannot be read: {error}")),
    };
    report.log_frame_last = end.next_frame_seq.saturating_sub(1);
    wrong.into_iter().for_each(|problem| report.problem_at(problem));
    report.log_frames = end.frames;
    report.log_entries = end.entries;
    match walk.lost_frame().await {
        Ok(None) if report.log_end_confirmed => {}
        Ok(None) => {
            // Another check reports a design that cannot run.
            let named = newest_named(flash, superblock).await;
            report.log_frame_named = named.map(|named| named.frame_seq);
            match named.filter(|named| named.frame_seq >= end.next_frame_seq) {
                Some(named) => lost_end(named, &end, report),
                None => end_of_log(flash, superblock, &end, report).await,
            }
        }
        Ok(Some((seq, at))) => report.problem_at(Problem {
            kind: "log",
            what: format!(
                "durable frames of the metadata log are damaged: frame {} is not there, but frame {seq} is",
                end.next_frame_seq
            ),
            lba: None,
            flash_offset: Some(superblock.layout.log_offset + at),
            dirty: false,
        }),
        Err(error) => report.problem("log", format!("the metadata log cannot be read: {error}")),
    }
}

/// Reports a log that ends before a frame that the superblock or a slot names.
fn lost_end(named: Naming, end: &LogEnd, report: &mut VerifyReport) {
    let (lost, found) = (end.next_frame_seq, named.frame_seq);
    report.problem_at(Problem {
        kind: "log",
        what: format!(
            "the end of the metadata log is lost: frame {lost} is not there, and a later write here names frame {found} as durable"
        ),
        lba: None,
        flash_offset: Some(named.flash_offset),
        dirty: false,
    });
}

/// Checks the end of the log. A crash leaves one frame that is not whole, and none behind it.
async fn end_of_log(flash: &dyn BlockDevice, superblock: &Superblock, end: &LogEnd, report: &mut VerifyReport) {
    let layout = &superblock.layout;
    let (next_frame, next_entry) = (end.next_frame_seq, end.next_entry_seq);
    let mut window = Window::new(flash, layout.log_offset, layout.log_offset + layout.log_bytes);
    let lying = frames::scan(&mut window, superblock).await;
    let at = |frame: &FrameAt| layout.log_offset + frame.offset_in_log;
    if let Some(later) = lying.proof_of_loss(next_frame, next_entry) {
        let what = format!(
            "the end of the metadata log is damaged: neither frame {next_frame} nor frame {}, begun after it was durable, is whole, and a crash tears one",
            later.header.start.frame_seq
        );
        report.problem_at(Problem { kind: "log", what, lba: None, flash_offset: Some(at(later)), dirty: false });
    } else if let Some(torn) = lying.torn(next_frame, next_entry) {
        report.note(format!(
            "the log ends in a frame that is not whole (frame {next_frame} at flash offset {}, {} entries), as after a crash; else the last flushed data is lost",
            at(torn),
            torn.header.entry_count
        ));
    }
    let named = match report.log_frame_named {
        Some(frame) => {
            format!("frame {frame} is the newest that the superblock or anything in a {} names as durable", report.slot)
        }
        None => format!("neither the superblock nor anything in a {} names a frame as durable", report.slot),
    };
    let why = match report.clean_shutdown {
        true => "one superblock alone says that the last end was orderly",
        false => "the last end was not orderly",
    };
    report.note(format!(
        "the end of the log cannot be confirmed, because {why}: frame {} is the last, and {named}; lost later frames and their data would leave no trace",
        report.log_frame_last
    ));
}

/// Returns the fault of one entry: its chunk and the words for it.
fn entry_problem(
    entry: &LogEntry,
    superblock: &Superblock,
    chunk_count: u64,
    dirty_at_end: &HashSet<u64>,
) -> Option<(Option<u64>, String)> {
    let (lba, count, place, dirty) = match entry {
        LogEntry::Map { lba, place, dirty, .. } => (*lba, 1, Some(place), *dirty),
        LogEntry::Fragment { lba, place, dirty, .. } => (*lba, 1, Some(place), *dirty),
        LogEntry::MapZero { lba, dirty } => (*lba, 1, None, *dirty),
        LogEntry::Trim { lba, chunk_count, .. }
        | LogEntry::Invalidate { lba, chunk_count }
        | LogEntry::Clean { lba, chunk_count, .. } => (*lba, *chunk_count, None, false),
        LogEntry::SlotFreed { slot, .. } if *slot >= superblock.layout.slot_count => {
            return Some((None, format!("frees slot {slot}, which there is not")));
        }
        LogEntry::SlotFreed { .. } | LogEntry::Mode { .. } => return None,
    };
    if lba.saturating_add(count) > chunk_count {
        return Some((Some(lba), format!("speaks of chunk {lba} and {count} chunks, past the end of the volume")));
    }
    if let Some(what) = place.and_then(|place| misplaced(place, superblock)) {
        return Some((Some(lba), format!("has chunk {lba} in {what}")));
    }
    if superblock.clean_shutdown && dirty && !dirty_at_end.contains(&lba) {
        return Some((Some(lba), format!("makes chunk {lba} dirty, after an end that was marked as orderly")));
    }
    None
}

fn chunk_count(superblock: &Superblock) -> u64 {
    superblock.origin.size_bytes.div_ceil(u64::from(superblock.layout.chunk_bytes))
}
