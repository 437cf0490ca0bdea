//! The slots: their segments, and each record that a mapping or a fingerprint names.
//!
//! Invariants: a slot is read once and whole, in the order of the flash. Each record in it is
//! checked once, however many chunks share it. Records without a name are only counted as unused: a
//! crash leaves torn segments that no log entry names.
//!
//! It does not decide the fate of bad records; [`repair`](super::repair) does.

use super::{homes::is_newer, report::Problem, report::VerifyReport, salvage::Salvaged, window::Window};
use crate::verify::findings::{Findings, Named, NamedBySlot, RecordCheck};
use larder_codec::{Codec, decode};
use larder_core::{
    Fingerprint, Lookup, Place, SectorMap, design::ExportedMapping, slots::SlotState, types::SECTOR_BYTES,
};
use larder_engine::{
    offline::checksum_holds,
    walk::{self, Segment},
};
use larder_format::{
    Encoding, RecordContent, RecordEntry, Superblock,
    layout::SECTOR_BYTES_MIN,
    segment::{decode_header, decode_table},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes at the start of a slot that contain the header of its first segment.
const HEAD_BYTES: usize = 4096;

/// Checks every slot that is not free, and in it every record that has a name.
pub(crate) async fn check_slots(check: RecordCheck<'_>) -> Findings {
    let RecordCheck { flash, found, mut named, progress, report } = check;
    let superblock = &found.superblock;
    let lists_records = superblock.layout.store().lists_records();
    let mut findings = Findings::default();
    let codec = Codec::new(superblock.hash_key, superblock.compression, 1, true);
    let mut slots = found.design.export_slots();
    slots.sort_by_key(|(slot, ..)| *slot);
    let total = slots.len() as u64;
    for (done, (slot, generation, state, _)) in slots.into_iter().enumerate() {
        progress(done as u64, total);
        let Some(offset) = superblock.layout.slot_offset(slot.0) else { continue };
        let free = matches!(state, SlotState::Free | SlotState::Retired);
        if free && !lists_records {
            // The slot has no description of its content.
            continue;
        }
        let bytes = if free { HEAD_BYTES } else { superblock.layout.slot_bytes as usize };
        let mut window = Window::new(flash, offset, offset + bytes as u64);
        let stored = window.bytes(offset, bytes).await.to_vec();
        if lists_records
            && let Ok(header) = decode_header(&stored)
            && (header.flash_tag, header.slot, header.offset) == (superblock.flash_tag(), slot.0, 0)
            && is_newer(header.generation, generation)
        {
            let what = format!(
                "slot {} is at generation {generation} and holds a segment of generation {}: the log does not speak of it",
                slot.0, header.generation
            );
            report.problem_at(Problem { kind: "slot", what, lba: None, flash_offset: Some(offset), dirty: false });
            findings.newer.insert(slot.0, header.generation);
        }
        if free {
            continue;
        }
        report.slots_read += 1;
        let mut named = named.remove(&(slot.0, generation)).unwrap_or_default();
        named.sort_by_key(|(place, _)| (place.offset, place.stored_len, place.crc));
        unreadable(&window, slot.0, &named, report, &mut findings);
        let segments = lists_records.then(|| segments_of(&stored, superblock, slot.0, generation));
        let mut reader = SlotReader {
            bytes: &stored,
            slot_offset: offset,
            lists: segments.as_ref().map(|segments| Lists::of(segments)),
            codec: &codec,
            chunk: vec![0; superblock.layout.chunk_bytes as usize],
            report,
            findings: &mut findings,
        };
        reader.read_tables(&segments.unwrap_or_default(), &named);
        reader.check_overlaps(&named);
        for same in named.chunk_by(|(a, _), (b, _)| a == b) {
            reader.check_record(same);
        }
    }
    homeless(named, &mut findings);
    progress(total, total);
    findings
}

/// Notes names into slots that do not exist: they were reported with the mappings.
pub(super) fn homeless(named: NamedBySlot, findings: &mut Findings) {
    for (_, named) in named.into_values().flatten() {
        match named {
            Named::Chunk { lba, .. } => findings.bad_chunks.insert(lba),
            Named::Fingerprint(fingerprint) => findings.bad_fingerprints.insert(fingerprint.0),
        };
    }
}

/// Returns the segments of this generation in the bytes of a slot, in order. It finds those behind
/// a damaged header, too.
fn segments_of(stored: &[u8], superblock: &Superblock, slot: u32, generation: u32) -> Vec<Segment> {
    let tag = superblock.flash_tag();
    let (mut found, _) = walk::segments(stored, tag, slot, generation);
    let end =
        |found: &[Segment]| found.last().map_or(0, |s| s.header.offset as usize + s.header.segment_bytes as usize);
    // A flash that moved to coarser sectors has segments at boundaries of finer ones, too.
    let sector = SECTOR_BYTES_MIN as usize;
    let mut at = end(&found);
    while let Some(bytes) = stored.get(at..).filter(|bytes| !bytes.is_empty()) {
        match decode_header(bytes) {
            Ok(header) if header.segment_bytes > 0 && header.check_home(tag, slot, generation, at as u32).is_ok() => {
                let table = bytes.get(header.table_offset as usize..).unwrap_or_default();
                found.push(Segment { header, records: decode_table(&header, table) });
                at = end(&found);
            }
            _ => at += sector,
        }
    }
    found
}

/// Returns the names of records, by slot and generation.
pub(crate) fn named_by_slot(found: &Salvaged, mappings: &[ExportedMapping], report: &mut VerifyReport) -> NamedBySlot {
    let mut slots: NamedBySlot = BTreeMap::new();
    let mut add = |place: Place, named| slots.entry((place.slot.0, place.generation)).or_default().push((place, named));
    for mapping in mappings {
        let (lba, dirty) = (mapping.lba.0, mapping.dirty);
        match mapping.lookup {
            Lookup::Chunk { place, duplicate } => add(place, Named::Chunk { lba, dirty, sectors: None, duplicate }),
            Lookup::Fragment { place, sectors } => {
                add(place, Named::Chunk { lba, dirty, sectors: Some(sectors), duplicate: false });
            }
            Lookup::Zero | Lookup::Miss => {}
        }
    }
    for (fingerprint, place) in found.design.export_fingerprints() {
        report.fingerprints += 1;
        add(place, Named::Fingerprint(fingerprint));
    }
    slots
}

/// Reports the unreadable bytes of a slot: a problem if a record in it is used.
pub(super) fn unreadable(
    window: &Window<'_>,
    slot: u32,
    named: &[(Place, Named)],
    report: &mut VerifyReport,
    findings: &mut Findings,
) {
    for (from, end) in window.unreadable() {
        if named.is_empty() {
            report.note(format!("{} bytes of slot {slot}, which nothing uses, cannot be read", end - from));
            continue;
        }
        findings.damaged_slots.insert(slot);
        let what = format!("{} bytes of slot {slot} cannot be read", end - from);
        report.problem_at(Problem { kind: "read", what, lba: None, flash_offset: Some(from), dirty: false });
    }
}

/// The records that the segments of a WEU list.
#[derive(Default)]
pub(super) struct Lists {
    /// The records of all whole tables, by offset in the WEU.
    table: HashMap<u32, RecordEntry>,
    /// Begin and end of each segment with a whole header.
    covered: Vec<(u32, u32)>,
    /// Begin of the last reported stretch that no such segment covers.
    hole_reported: Option<u32>,
}

impl Lists {
    fn of(segments: &[Segment]) -> Lists {
        let span = |segment: &Segment| {
            let header = &segment.header;
            (header.offset, header.offset + header.segment_bytes)
        };
        Lists { covered: segments.iter().map(span).collect(), ..Lists::default() }
    }

    /// Returns the begin of the uncovered stretch with this offset, or `None` if a segment covers
    /// it.
    fn hole_at(&self, offset: u32) -> Option<u32> {
        let covered = self.covered.iter().any(|&(from, end)| (from..end).contains(&offset));
        let ends = self.covered.iter().map(|&(_, end)| end).filter(|&end| end <= offset);
        (!covered).then(|| ends.max().unwrap_or(0))
    }
}

/// The check of one slot.
pub(super) struct SlotReader<'a> {
    pub bytes: &'a [u8],
    pub slot_offset: u64,
    /// `None`: only mappings and fingerprints name its record.
    pub lists: Option<Lists>,
    pub codec: &'a Codec,
    /// Room for a decoded chunk.
    pub chunk: Vec<u8>,
    pub report: &'a mut VerifyReport,
    pub findings: &'a mut Findings,
}

impl SlotReader<'_> {
    fn segment_problem(&mut self, slot: u32, offset: u32, lba: Option<u64>, what: String) {
        self.findings.damaged_slots.insert(slot);
        let flash_offset = Some(self.slot_offset + u64::from(offset));
        self.report.problem_at(Problem { kind: "segment", what, lba, flash_offset, dirty: false });
    }

    /// Takes the records of all tables. A damaged table matters if a record in its segment has a
    /// name.
    fn read_tables(&mut self, segments: &[Segment], named: &[(Place, Named)]) {
        let used: HashSet<u32> = named.iter().map(|(place, _)| place.offset).collect();
        for segment in segments {
            let header = &segment.header;
            let inside = header.offset..header.offset.saturating_add(header.segment_bytes);
            match &segment.records {
                Ok(records) => {
                    self.report.segments += 1;
                    let mut end = 0;
                    for record in records {
                        self.report.records_listed += 1;
                        self.report.records_unused += u64::from(!used.contains(&record.offset));
                        let table = self.lists.as_mut().map(|lists| &mut lists.table);
                        let is_there = table.is_some_and(|table| table.insert(record.offset, *record).is_some());
                        if is_there || record.offset < end {
                            let what = format!("two records of slot {} overlap at {}", header.slot, record.offset);
                            self.segment_problem(header.slot, record.offset, Some(record.lba), what);
                        }
                        end = record.offset.saturating_add(record.stored_len);
                    }
                }
                Err(error) if named.iter().any(|(place, _)| inside.contains(&place.offset)) => {
                    self.report.segments += 1;
                    let what = format!("segment {} of slot {}: {error}", header.segment_seq, header.slot);
                    self.segment_problem(header.slot, header.offset, None, what);
                }
                // A crash tore it before any entry named it.
                Err(_) => self.report.segments_unused += 1,
            }
        }
    }

    /// Checks that no two records share a byte.
    pub fn check_overlaps(&mut self, named: &[(Place, Named)]) {
        let mut last: Option<Place> = None;
        for (place, _) in named {
            if let Some(last) = last.filter(|last| last != place)
                && last.offset.saturating_add(last.stored_len) > place.offset
            {
                let what = format!(
                    "two records that are in use overlap in slot {}, at {} and {}",
                    place.slot.0, last.offset, place.offset
                );
                self.segment_problem(place.slot.0, place.offset, None, what);
            }
            last = Some(*place);
        }
    }

    /// Checks one record that all of `same` name.
    pub fn check_record(&mut self, same: &[(Place, Named)]) {
        let Some(&(place, _)) = same.first() else { return };
        self.report.records += 1;
        self.report.record_bytes += u64::from(place.stored_len);
        let fragment = same.iter().find_map(|(_, named)| match named {
            Named::Chunk { sectors, .. } => *sectors,
            Named::Fingerprint(_) => None,
        });
        match self.content(&place, fragment) {
            Err(what) => self.lost(same, &what),
            Ok(len) => self.check_identity(same, len),
        }
    }

    /// Decodes a record into `chunk`, and returns the number of bytes. The error is the fault of
    /// its bytes.
    fn content(&mut self, place: &Place, fragment: Option<SectorMap>) -> Result<usize, String> {
        let from = place.offset as usize;
        let stored = from.checked_add(place.stored_len as usize).and_then(|to| self.bytes.get(from..to));
        let stored = stored.ok_or("it leaves its slot")?;
        if !checksum_holds(place, stored) {
            return Err("its bytes are not the stored ones: the checksum does not match".into());
        }
        let encoding = Encoding::from_code(place.encoding).ok_or("its encoding is unknown")?;
        let len = fragment.map_or(self.chunk.len(), |sectors| sectors.count() * SECTOR_BYTES);
        let out = self.chunk.get_mut(..len).ok_or("its sectors leave the chunk")?;
        match decode(encoding, stored, out) {
            true => Ok(len),
            false => Err(format!("it does not decode to {len} bytes")),
        }
    }

    /// Reports every chunk that needs the bad bytes of a record.
    fn lost(&mut self, same: &[(Place, Named)], what: &str) {
        for (place, named) in same {
            let flash_offset = Some(self.slot_offset + u64::from(place.offset));
            let problem = match *named {
                Named::Chunk { lba, dirty, .. } => {
                    self.findings.bad_chunks.insert(lba);
                    self.report.dirty_chunks_lost += u64::from(dirty);
                    let whose = if dirty { "dirty, so these bytes are lost" } else { "clean, the origin has it" };
                    let what = format!("the record of chunk {lba} ({whose}) is damaged: {what}");
                    Problem { kind: "record", what, lba: Some(lba), flash_offset, dirty }
                }
                Named::Fingerprint(fingerprint) => {
                    self.findings.bad_fingerprints.insert(fingerprint.0);
                    let what = format!("a record that the FP index names is damaged: {what}");
                    Problem { kind: "fingerprint", what, lba: None, flash_offset, dirty: false }
                }
            };
            self.report.problem_at(problem);
        }
    }

    /// Compares the good bytes of a record with the segment's table and the fingerprints.
    fn check_identity(&mut self, same: &[(Place, Named)], len: usize) {
        let Some(&(place, _)) = same.first() else { return };
        let (slot, offset) = (place.slot.0, place.offset);
        let Some(lists) = &mut self.lists else { return self.check_fingerprints(same, len) };
        let Some(&record) = lists.table.get(&offset) else {
            // A record needs no table to be read.
            match lists.hole_at(offset) {
                None => {
                    let what = format!(
                        "the record at offset {offset} of slot {slot} is whole, but no segment of its slot lists it"
                    );
                    self.segment_problem(slot, offset, lba_of(same), what);
                }
                Some(hole) => {
                    // One damaged header is one problem, however many records it listed.
                    let is_new = lists.hole_reported.replace(hole) != Some(hole);
                    self.findings.damaged_slots.insert(slot);
                    if is_new {
                        let what = format!(
                            "the header of a segment at offset {hole} of slot {slot} is damaged; the record at {offset} is whole"
                        );
                        self.segment_problem(slot, hole, lba_of(same), what);
                    }
                }
            }
            return self.check_fingerprints(same, len);
        };
        if (record.stored_len, record.crc, record.encoding.code()) != (place.stored_len, place.crc, place.encoding) {
            let what = format!("slot {slot}, offset {offset}: segment and mapping describe different records");
            self.segment_problem(slot, offset, lba_of(same), what);
            return self.check_fingerprints(same, len);
        }
        let chunk = self.chunk.get(..len).unwrap_or_default();
        let stored = match record.content {
            RecordContent::Chunk(fingerprint) if fingerprint != [0; 16] => Some(Fingerprint(fingerprint)),
            _ => None,
        };
        if stored.is_some() && self.codec.fingerprint(chunk) != stored {
            self.findings.damaged_slots.insert(slot);
            let what = "the record's content has another fingerprint than its segment says".to_owned();
            self.wrong("fingerprint", &place, what, lba_of(same));
        }
        self.check_fingerprints(same, len);
        for (_, named) in same {
            let Named::Chunk { lba, sectors, duplicate, dirty } = *named else { continue };
            let is_fragment = matches!(record.content, RecordContent::Fragment(_));
            let what = if is_fragment != sectors.is_some() {
                format!("chunk {lba} takes a fragment for a chunk, or a chunk for a fragment")
            } else if !duplicate && record.lba != lba {
                format!("chunk {lba} is mapped to the record of chunk {}", record.lba)
            } else {
                continue;
            };
            self.findings.bad_chunks.insert(lba);
            self.report.dirty_chunks_lost += u64::from(dirty);
            self.wrong("mapping", &place, what, Some(lba));
        }
    }

    /// Compares the content in `chunk` with the FP index.
    fn check_fingerprints(&mut self, same: &[(Place, Named)], len: usize) {
        for (place, named) in same {
            let Named::Fingerprint(fingerprint) = named else { continue };
            let chunk = self.chunk.get(..len).unwrap_or_default();
            if self.codec.fingerprint(chunk) != Some(*fingerprint) {
                self.findings.bad_fingerprints.insert(fingerprint.0);
                let what = "the FP index names a record with other content".to_owned();
                self.wrong("fingerprint", place, what, None);
            }
        }
    }

    fn wrong(&mut self, kind: &'static str, place: &Place, what: String, lba: Option<u64>) {
        let flash_offset = Some(self.slot_offset + u64::from(place.offset));
        self.report.problem_at(Problem { kind, what, lba, flash_offset, dirty: false });
    }
}

fn lba_of(same: &[(Place, Named)]) -> Option<u64> {
    same.iter().find_map(|(_, named)| match named {
        Named::Chunk { lba, .. } => Some(*lba),
        Named::Fingerprint(_) => None,
    })
}
