//! `larder verify --repair`: makes a damaged cache one that opens, and lists the cost.
//!
//! In order: (1) All is checked, and damaged metadata is salvaged. (2) A repaired state without bad
//! entries is made in memory, and lost ranges are listed. (3) The flash is flushed before the first
//! write, so the bytes read stay. (4) If the superblock twins differ, or one is damaged, both get
//! the one that counts. (5) Whole records in damaged segments are written into free slots. (6) The
//! repaired state is written as a checkpoint into the area that the superblock does not name. A
//! flush, the header with FUA, and a flush follow. (7) The twins name it, and a log that begins
//! behind the present one. (8) Unreadable log pieces are written anew. (9) All is checked again.
//!
//! A crash before the first twin of (7) leaves the damaged cache; a later one the repaired cache.
//!
//! Invariants: no byte is made up: afterwards a chunk reads as the cache or the origin has it. A
//! clean chunk with a bad record is forgotten, because the origin has it. So is a dirty one, which
//! is listed as *lost*: it then reads as the origin's older content.
//!
//! It does not open the origin, or guess a layout if both superblocks are gone.

use super::{
    Checked, Findings, VerifyReport, check,
    moving::{Moved, Mover},
    salvage::{LogGap, Salvaged, salvage},
    watched::WatchedFlash,
    window::Window,
    writing::{mend_twin, write_repaired},
};
use crate::region;
use larder_codec::{Codec, decode};
use larder_core::{
    Decider, Fingerprint, Lba, Lookup, NewMapping, Place, SectorMap, SlotId, StreamClass, design::ExportedMapping,
    ranges::Run, types::SECTOR_BYTES,
};
use larder_device::BlockDevice;
pub use larder_engine::offline::{RANGES_MAX, Ranges};
use larder_engine::{
    EngineError,
    offline::{Geometry, again, checksum_holds, rebuild},
    superblock,
};
use larder_format::{Encoding, FormatError, RecordContent};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Options of a repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Write nothing; report the repair instead.
    pub dry_run: bool,
    /// Forget dirty data that may be older than the volume's last content.
    pub drop_suspect: bool,
    /// Count unread bytes as lost; otherwise unread bytes keep the repair from writing.
    pub unread_is_lost: bool,
}

/// The findings and the work of a repair, or its plan.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RepairReport {
    /// The flash was not written.
    pub dry_run: bool,
    /// The cache needed a repair.
    pub needed: bool,
    /// The cache is whole now, and was checked again; never after a dry run that found damage.
    pub whole: bool,
    /// A superblock twin was damaged or older.
    pub superblock_rewritten: bool,
    /// The state was written anew.
    pub checkpoint_written: bool,
    /// The checkpoint's header was lost (its blocks tell the same).
    pub checkpoint_header_lost: bool,
    /// Blocks of the checkpoint that are lost.
    pub checkpoint_blocks_lost: u64,
    /// Holes in the metadata log.
    pub log_gaps: Vec<LogGap>,
    /// Clean chunks that were forgotten: the origin has them.
    pub clean_chunks_dropped: u64,
    /// Fingerprints that were forgotten: some duplicates are stored once more.
    pub fingerprints_dropped: u64,
    /// Whole records that were written to another slot, since the segment around them is damaged.
    pub records_moved: u64,
    /// Records in damaged segments that stay there, because no slot is free.
    pub records_not_moved: u64,
    /// Dirty chunks whose records are damaged.
    pub dirty_chunks_lost: u64,
    /// Their bytes on the volume: they read as the origin has them, which is older.
    pub lost: Ranges,
    /// Dirty chunks and trimmed runs that may have been written again in a lost part of the log.
    pub suspect: Ranges,
    /// Those were forgotten, and read as the origin has them; else they read as the cache has them.
    pub suspect_dropped: bool,
    /// Ranges that lost metadata may concern: lost dirty data there reads as something older.
    pub unknown: Ranges,
    /// Lost entries there, if known: this many chunks or runs may read as something older.
    pub unknown_entries: Option<u64>,
    /// The findings before.
    pub before: VerifyReport,
    /// The findings now.
    pub after: Option<VerifyReport>,
}

impl RepairReport {
    /// Returns whether data is lost, or may be.
    pub fn loses_data(&self) -> bool {
        !self.lost.is_empty() || !self.suspect.is_empty() || !self.unknown.is_empty()
    }
}

/// Repairs the cache on `flash`, which no engine serves. `progress` gets slots read and all slots.
///
/// # Errors
/// A cache that cannot be repaired, and errors of the device.
pub async fn repair(
    flash: &dyn BlockDevice,
    options: &RepairOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport, EngineError> {
    let flash = &WatchedFlash::over(flash);
    // (1)
    superblock::read(flash).await.map_err(hopeless)?.0.check_writable()?;
    let Checked { report: mut before, found, findings } = check(flash, progress).await.map_err(hopeless)?;
    let found = match found {
        // A slot is used again only after an entry of the log that freed it: the log's end is lost.
        Some(found) if !findings.newer.is_empty() && found.damage.gaps.is_empty() => Some(salvage(flash, true).await?),
        found => found,
    };
    flash.conclude(&mut before)?;
    let Some(found) = found else { return Err(without_metadata(&before)) };
    let twins = before.problems.iter().filter(|problem| problem.kind == "superblock").count() as u64;
    let superblock_rewritten = found.damaged_twin.is_some();
    let checkpoint_written = before.problems_found > twins;
    let mut report = RepairReport {
        dry_run: options.dry_run,
        needed: superblock_rewritten || checkpoint_written,
        superblock_rewritten,
        checkpoint_written,
        before,
        ..RepairReport::default()
    };
    if !report.needed {
        report.whole = true;
        return Ok(report);
    }
    let mut superblock = found.superblock.clone();
    if !options.dry_run {
        flash.all_was_read(options.unread_is_lost)?;
        // (3)
        flash.flush().await?;
        // (4)
        if superblock_rewritten {
            mend_twin(flash, &mut superblock, found.damaged_twin).await?;
        }
    }
    if checkpoint_written {
        // (2), (5)
        let design = repaired(flash, &found, &findings, options, &mut report).await?;
        if !options.dry_run {
            flash.all_was_read(options.unread_is_lost)?;
            write_repaired(flash, &found, superblock, design).await?;
        }
    }
    if !options.dry_run {
        // (9)
        let after = super::verify(flash, progress).await?;
        report.whole = after.clean;
        report.after = Some(after);
    }
    Ok(report)
}

/// Returns the reason why a flash without readable metadata is beyond repair.
fn without_metadata(report: &VerifyReport) -> EngineError {
    let what = report.problems.iter().rfind(|problem| problem.kind == "recovery");
    let what = what.map_or("its metadata cannot be read", |problem| problem.what.as_str());
    EngineError::Invalid(format!("this cache cannot be repaired: {what}"))
}

/// Returns the reason why a flash without a superblock is beyond repair.
fn hopeless(error: EngineError) -> EngineError {
    match error {
        EngineError::Format(
            FormatError::BadChecksum(_) | FormatError::Invalid { .. } | FormatError::ReservedNotZero(_),
        ) => EngineError::Invalid(
            "both superblocks are damaged, so this flash cannot be repaired: make the cache anew with `larder create --force` (data that the origin lacks is lost)"
                .into(),
        ),
        other => other,
    }
}

/// A mapping that must move, and the sequence number of its dirty data.
type Waiting = BTreeMap<u32, Vec<(Place, ExportedMapping, Option<u64>)>>;

/// Makes the repaired state, and lists its cost.
async fn repaired(
    flash: &dyn BlockDevice,
    found: &Salvaged,
    findings: &Findings,
    options: &RepairOptions,
    report: &mut RepairReport,
) -> Result<Decider, EngineError> {
    let (old, geometry) = (&found.design, &found.geometry);
    note_damage(found, options, report);
    let is_suspect = |seq: Option<u64>| seq.is_some_and(|seq| seq < found.suspect_below);
    let mut waiting: Waiting = BTreeMap::new();
    let drop_suspect = report.suspect_dropped;
    let mut keep = |mapping: &ExportedMapping| {
        let seq = old.dirty_seq(mapping.lba).filter(|_| mapping.dirty);
        if findings.bad_chunks.contains(&mapping.lba.0) {
            forget(mapping, geometry, report);
            return false;
        }
        if is_suspect(seq) {
            report.suspect.add(geometry.offset_of(mapping.lba), geometry.chunk_len(mapping.lba) as u64);
            if drop_suspect {
                return false;
            }
        }
        match mapping.lookup {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. }
                if findings.damaged_slots.contains(&place.slot.0) =>
            {
                waiting.entry(place.slot.0).or_default().push((place, *mapping, seq));
                false
            }
            _ => true,
        }
    };
    let mut suspect_runs: Vec<Run> = Vec::new();
    let mut keep_run = |run: &Run| {
        let suspect = is_suspect(Some(run.seq));
        suspect_runs.extend(suspect.then_some(*run));
        !(suspect && drop_suspect)
    };
    let mut fingerprints_dropped = 0;
    let mut keep_fingerprint = |fingerprint: &Fingerprint, place: &Place| {
        let bad = findings.bad_fingerprints.contains(&fingerprint.0);
        fingerprints_dropped += u64::from(bad);
        !bad && !findings.damaged_slots.contains(&place.slot.0)
    };
    let mut design = rebuild(&found.superblock, geometry, old, &mut keep, &mut keep_run, &mut keep_fingerprint)?;
    report.fingerprints_dropped = fingerprints_dropped;
    forget_runs(flash, found, findings, &mut design, options, report).await?;
    note_suspects(&suspect_runs, geometry, report);
    move_records(flash, found, waiting, &mut design, options, report).await?;
    // It comes only now, because the records must not move into the slots that they leave.
    free_unused(&findings.damaged_slots, &mut design);
    unknown(found, &design, report);
    for ranges in [&mut report.lost, &mut report.suspect, &mut report.unknown] {
        ranges.join();
    }
    Ok(design)
}

/// Notes the damage of the metadata, and the answer to suspect data.
fn note_damage(found: &Salvaged, options: &RepairOptions, report: &mut RepairReport) {
    report.checkpoint_header_lost = found.damage.checkpoint_header;
    report.checkpoint_blocks_lost = found.damage.blocks;
    report.log_gaps.clone_from(&found.damage.gaps);
    // Twins that agree on a mode without dirty data were written when there was none. Dirty data
    // before a gap was destaged then, and the origin may have been written since.
    report.suspect_dropped = options.drop_suspect || found.clean_by_mode;
}

/// Notes the ranges of suspect trimmed runs.
fn note_suspects(runs: &[Run], geometry: &Geometry, report: &mut RepairReport) {
    for run in runs {
        let offset = geometry.offset_of(run.first);
        let end = geometry.offset_of(Lba(run.first.0 + run.count)).min(geometry.volume_bytes);
        report.suspect.add(offset, end.saturating_sub(offset));
    }
}

/// Forgets the mappings of bad metadata slots. Dirty data there gets a readable metadata slot.
async fn forget_runs(
    flash: &dyn BlockDevice,
    found: &Salvaged,
    findings: &Findings,
    design: &mut Decider,
    options: &RepairOptions,
    report: &mut RepairReport,
) -> Result<(), EngineError> {
    if findings.bad_runs.is_empty() {
        return Ok(());
    }
    design.forget_clean(&|slot| findings.bad_runs.contains(&slot.0));
    for mapping in (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)) {
        if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = mapping.lookup
            && findings.bad_runs.contains(&place.slot.0)
            && !options.dry_run
        {
            region::write_unlisted(flash, &found.superblock, &place).await?;
        }
    }
    let dropped = findings.bad_runs.iter().filter(|&&slot| design.dirty_in(SlotId(slot)).is_empty());
    report.clean_chunks_dropped += dropped.count() as u64;
    Ok(())
}

/// Counts a chunk whose record is damaged; the content of a dirty one is lost.
fn forget(mapping: &ExportedMapping, geometry: &Geometry, report: &mut RepairReport) {
    if !mapping.dirty {
        report.clean_chunks_dropped += 1;
        return;
    }
    report.dirty_chunks_lost += 1;
    let (offset, len) = (geometry.offset_of(mapping.lba), geometry.chunk_len(mapping.lba) as u64);
    match mapping.lookup {
        Lookup::Fragment { sectors, .. } => {
            for (first, end) in sectors.runs(geometry.chunk_bytes / SECTOR_BYTES) {
                report.lost.add(offset + (first * SECTOR_BYTES) as u64, ((end - first) * SECTOR_BYTES) as u64);
            }
        }
        _ => report.lost.add(offset, len),
    }
}

/// Writes the waiting records into free slots, dirty data first, and maps them there.
async fn move_records(
    flash: &dyn BlockDevice,
    found: &Salvaged,
    waiting: Waiting,
    design: &mut Decider,
    options: &RepairOptions,
    report: &mut RepairReport,
) -> Result<(), EngineError> {
    let superblock = &found.superblock;
    let dedup = superblock.dedup && superblock.fp_index_percent > 0;
    let codec = Codec::new(superblock.hash_key, superblock.compression, 1, dedup);
    let mut mover = Mover::new(flash, found, !options.dry_run);
    let mut chunk = vec![0; superblock.layout.chunk_bytes as usize];
    for dirty_turn in [true, false] {
        for (&slot, mappings) in &waiting {
            let Some(start) = superblock.layout.slot_offset(slot) else { continue };
            let slot_bytes = superblock.layout.slot_bytes as usize;
            let mut window = Window::new(flash, start, start + slot_bytes as u64);
            let stored = window.bytes(start, slot_bytes).await;
            let mut mappings = mappings.clone();
            mappings.sort_by_key(|(place, mapping, _)| (place.offset, mapping.lba));
            for same in mappings.chunk_by(|(a, ..), (b, ..)| a == b) {
                if same.iter().any(|(_, mapping, _)| mapping.dirty) != dirty_turn {
                    continue;
                }
                let Some(record) = record_of(same, stored, &codec, &mut chunk) else {
                    // It was whole at its check.
                    for (_, mapping, _) in same {
                        forget(mapping, &found.geometry, report);
                    }
                    continue;
                };
                let place = mover.put(design, &record).await?;
                put_again(same, place, &record, design, report);
            }
        }
    }
    mover.finish(design).await
}

/// Returns the record of all of `same`, to be stored again.
fn record_of<'a>(
    same: &[(Place, ExportedMapping, Option<u64>)],
    stored: &'a [u8],
    codec: &Codec,
    chunk: &mut [u8],
) -> Option<Moved<'a>> {
    let (place, first, _) = same.first()?;
    let payload = stored.get(place.offset as usize..(place.offset + place.stored_len) as usize)?;
    let encoding = Encoding::from_code(place.encoding)?;
    if !checksum_holds(place, payload) {
        return None;
    }
    // The chunk for which the record was stored comes first.
    let is_owner = |mapping: &&ExportedMapping| !matches!(mapping.lookup, Lookup::Chunk { duplicate: true, .. });
    let owner = same.iter().map(|(_, mapping, _)| mapping).find(is_owner).unwrap_or(first);
    let content = match owner.lookup {
        Lookup::Fragment { sectors, .. } => RecordContent::Fragment(SectorMap::to_bytes(sectors)),
        _ => {
            let known = decode(encoding, payload, chunk).then(|| codec.fingerprint(chunk)).flatten();
            RecordContent::Chunk(known.map_or([0; 16], |fingerprint| fingerprint.0))
        }
    };
    let dirty = same.iter().any(|(_, mapping, _)| mapping.dirty);
    let class = if dirty { StreamClass::Dirty } else { StreamClass::Clean };
    Some(Moved { class, lba: owner.lba, content, encoding, payload })
}

/// Maps moved records to their new place. Without one, only dirty records stay.
fn put_again(
    same: &[(Place, ExportedMapping, Option<u64>)],
    moved_to: Option<Place>,
    record: &Moved<'_>,
    design: &mut Decider,
    report: &mut RepairReport,
) {
    match moved_to {
        Some(_) => report.records_moved += 1,
        None if record.class == StreamClass::Dirty => report.records_not_moved += 1,
        None => {}
    }
    for (_, mapping, seq) in same {
        let new = match (moved_to, mapping.lookup, record.content) {
            (None, ..) if !mapping.dirty => {
                report.clean_chunks_dropped += 1;
                continue;
            }
            (None, ..) => again(mapping),
            (Some(place), Lookup::Fragment { sectors, .. }, _) => Some(NewMapping::Fragment { place, sectors }),
            (Some(place), _, RecordContent::Chunk(known)) if mapping.lba == record.lba => {
                let fingerprint = (known != [0; 16]).then_some(Fingerprint(known));
                Some(NewMapping::Unique { place, fingerprint })
            }
            (Some(place), ..) => Some(NewMapping::Duplicate { place }),
        };
        if let Some(new) = new {
            design.map(mapping.lba, new, *seq);
        }
    }
}

/// Frees the slots among `slots` that have no mapping.
fn free_unused(slots: &BTreeSet<u32>, design: &mut Decider) {
    if slots.is_empty() {
        return;
    }
    let mappings = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
    let used: HashSet<u32> = mappings
        .filter_map(|mapping| match mapping.lookup {
            Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => Some(place.slot.0),
            Lookup::Zero | Lookup::Miss => None,
        })
        .collect();
    for (slot, generation, ..) in design.export_slots() {
        if slots.contains(&slot.0) && !used.contains(&slot.0) {
            design.restore_freed(slot, generation);
        }
    }
}

/// Lists the ranges that lost metadata may concern.
fn unknown(found: &Salvaged, design: &Decider, report: &mut RepairReport) {
    let Some(certain) = &found.certain else { return };
    let dirty = design.dirty_counts();
    if found.clean_by_mode && dirty.chunks + dirty.runs == 0 {
        // The origin has all data.
        return;
    }
    let geometry = &found.geometry;
    let mut from = 0;
    let ends = [Run::new(Lba(geometry.chunk_count), 0, 0)];
    for run in certain.iter().chain(ends) {
        let (start, end) = (geometry.offset_of(Lba(from)), geometry.offset_of(run.first).min(geometry.volume_bytes));
        report.unknown.add(start, end.saturating_sub(start));
        from = run.first.0 + run.count;
    }
    let in_blocks = found.damage.entries.map(|[_, mappings, fragments, runs, ..]| mappings + fragments + runs);
    let in_gaps: Option<u64> = found.damage.gaps.iter().map(|gap| gap.entries).sum();
    report.unknown_entries = in_blocks.zip(in_gaps).map(|(blocks, gaps)| blocks + gaps);
}
