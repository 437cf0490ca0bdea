//! The records that mappings and fingerprints name, WEU by WEU.
//!
//! Invariants: a WEU is read once and whole, in the order of the flash; each record in it is checked once, however many
//! chunks share it.
//!
//! What it does not do: look at records that nothing names.

use super::{Problem, VerifyReport, is_absent};
use crate::{
    codec::{Codec, decode},
    record::check as checksum_holds,
    recover::Recovered,
    walk::{self, Segment},
};
use larder_core::{Fingerprint, Lookup, Place, SectorMap, design::ExportedMapping, types::SECTOR_BYTES};
use larder_device::{BlockDevice, IoBuf};
use larder_format::{Encoding, RecordContent, RecordEntry};
use std::collections::{BTreeMap, HashMap};

/// Where a WEU cannot be read whole, it is read in pieces of this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// What names a record.
#[derive(Clone, Copy)]
enum Named {
    /// A chunk.
    Chunk { lba: u64, dirty: bool, sectors: Option<SectorMap>, duplicate: bool },
    /// The FP index.
    Fingerprint(Fingerprint),
}

/// Checks every record that is named.
pub async fn check(
    flash: &dyn BlockDevice,
    recovered: &Recovered,
    mappings: &[ExportedMapping],
    progress: &mut dyn FnMut(u64, u64),
    report: &mut VerifyReport,
) {
    let slots = named_by_slot(recovered, mappings, report);
    let superblock = &recovered.superblock;
    let codec = Codec::new(superblock.hash_key, superblock.compression, 1, true);
    let total = slots.len() as u64;
    for ((slot, generation), mut named) in slots {
        progress(report.slots_read, total);
        let Some(offset) = superblock.layout.slot_offset(slot) else { continue };
        let weu = read_weu(flash, offset, superblock.layout.weu_bytes as usize, report).await;
        report.slots_read += 1;
        let (segments, end) = walk::segments(&weu, superblock.flash_tag(), slot, generation);
        named.sort_by_key(|(place, _)| place.offset);
        let mut reader = SlotReader {
            weu: &weu,
            weu_offset: offset,
            table: table_of(&segments, offset, report),
            segments_end: segments.iter().map(|s| s.header.offset + s.header.segment_bytes).max().unwrap_or(0),
            end_is_damage: end.is_some_and(|error| !is_absent(&error)),
            codec: &codec,
            chunk: vec![0; superblock.layout.chunk_bytes as usize],
            report,
        };
        for same in named.chunk_by(|(a, _), (b, _)| a == b) {
            reader.check_record(same);
        }
    }
    progress(total, total);
}

/// Who names what, by slot and generation. Names of places that cannot be were reported with the mappings.
fn named_by_slot(
    recovered: &Recovered,
    mappings: &[ExportedMapping],
    report: &mut VerifyReport,
) -> BTreeMap<(u32, u32), Vec<(Place, Named)>> {
    let mut slots: BTreeMap<(u32, u32), Vec<(Place, Named)>> = BTreeMap::new();
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
    for (fingerprint, place) in recovered.state.design.export_fingerprints() {
        report.fingerprints += 1;
        add(place, Named::Fingerprint(fingerprint));
    }
    slots
}

async fn read_weu(flash: &dyn BlockDevice, offset: u64, bytes: usize, report: &mut VerifyReport) -> Vec<u8> {
    if let Ok(weu) = flash.read(offset, IoBuf::new(bytes)).await {
        return weu.to_vec();
    }
    let mut weu = Vec::with_capacity(bytes);
    while weu.len() < bytes {
        let at = offset + weu.len() as u64;
        let len = PIECE_BYTES.min(bytes - weu.len());
        match flash.read(at, IoBuf::new(len)).await {
            Ok(piece) => weu.extend_from_slice(&piece),
            Err(error) => {
                let what = format!("the flash cannot be read: {error}");
                report.problem_at(Problem { kind: "read", what, lba: None, flash_offset: Some(at), dirty: false });
                weu.resize(weu.len() + len, 0);
            }
        }
    }
    weu
}

/// The records of all segments, by offset in the WEU.
fn table_of(segments: &[Segment], weu_offset: u64, report: &mut VerifyReport) -> HashMap<u32, RecordEntry> {
    let mut table = HashMap::new();
    for segment in segments {
        report.segments += 1;
        match &segment.records {
            Ok(records) => table.extend(records.iter().map(|record| (record.offset, *record))),
            Err(error) => report.problem_at(Problem {
                kind: "segment",
                what: format!("segment {} of slot {}: {error}", segment.header.segment_seq, segment.header.slot),
                lba: None,
                flash_offset: Some(weu_offset + u64::from(segment.header.offset)),
                dirty: false,
            }),
        }
    }
    table
}

/// Checks records of one WEU.
struct SlotReader<'a> {
    weu: &'a [u8],
    weu_offset: u64,
    table: HashMap<u32, RecordEntry>,
    /// Where the last whole segment ends.
    segments_end: u32,
    /// What follows it is a damaged segment, not the end.
    end_is_damage: bool,
    codec: &'a Codec,
    /// Room for a decoded chunk.
    chunk: Vec<u8>,
    report: &'a mut VerifyReport,
}

impl SlotReader<'_> {
    /// Checks one record that all of `same` name.
    fn check_record(&mut self, same: &[(Place, Named)]) {
        let Some(&(place, first)) = same.first() else { return };
        self.report.records += 1;
        self.report.record_bytes += u64::from(place.stored_len);
        let fragment = match first {
            Named::Chunk { sectors, .. } => sectors,
            Named::Fingerprint(_) => None,
        };
        match self.content(&place, fragment) {
            Err(what) => self.lost(same, &what),
            Ok(len) => self.check_identity(same, len),
        }
    }

    /// Decodes a record into `chunk`; how many bytes it gave. The error says what is wrong with its bytes.
    fn content(&mut self, place: &Place, fragment: Option<SectorMap>) -> Result<usize, String> {
        let from = place.offset as usize;
        let stored = from.checked_add(place.stored_len as usize).and_then(|to| self.weu.get(from..to));
        let stored = stored.ok_or("it leaves its WEU")?;
        if !checksum_holds(place, stored) {
            return Err("its bytes are not what was stored: the checksum does not match".into());
        }
        let encoding = Encoding::from_code(place.encoding).ok_or("its encoding is unknown")?;
        let len = fragment.map_or(self.chunk.len(), |sectors| sectors.count() * SECTOR_BYTES);
        let out = self.chunk.get_mut(..len).ok_or("its sectors leave the chunk")?;
        match decode(encoding, stored, out) {
            true => Ok(len),
            false => Err(format!("it does not decode to {len} bytes")),
        }
    }

    /// The bytes are bad: every chunk that needs them is hit.
    fn lost(&mut self, same: &[(Place, Named)], what: &str) {
        for (place, named) in same {
            let flash_offset = Some(self.weu_offset + u64::from(place.offset));
            let problem = match *named {
                Named::Chunk { lba, dirty, .. } => {
                    self.report.dirty_chunks_lost += u64::from(dirty);
                    let whose = if dirty { "dirty, so these bytes are lost" } else { "clean, the origin has it" };
                    let what = format!("the record of chunk {lba} ({whose}) is damaged: {what}");
                    Problem { kind: "record", what, lba: Some(lba), flash_offset, dirty }
                }
                Named::Fingerprint(_) => {
                    let what = format!("a record that the FP index names is damaged: {what}");
                    Problem { kind: "fingerprint", what, lba: None, flash_offset, dirty: false }
                }
            };
            self.report.problem_at(problem);
        }
    }

    /// The bytes are good: the segment's table and the fingerprints must say the same of them.
    fn check_identity(&mut self, same: &[(Place, Named)], len: usize) {
        let Some(&(place, _)) = same.first() else { return };
        let at = Some(self.weu_offset + u64::from(place.offset));
        let Some(&record) = self.table.get(&place.offset) else {
            // A record needs no table to be read; but after this much is whole, the next segment should be.
            let what = match place.offset >= self.segments_end && self.end_is_damage {
                true => "the header of its segment is damaged",
                false => "no segment of its slot lists it",
            };
            let what = format!("the record at offset {} of slot {} is whole, but {what}", place.offset, place.slot.0);
            return self.report.problem_at(Problem {
                kind: "segment",
                what,
                lba: lba_of(same),
                flash_offset: at,
                dirty: false,
            });
        };
        let mut wrong = |kind, what, lba| {
            self.report.problem_at(Problem { kind, what, lba, flash_offset: at, dirty: false });
        };
        if (record.stored_len, record.crc, record.encoding.code()) != (place.stored_len, place.crc, place.encoding) {
            let what = format!(
                "slot {}, offset {}: segment and mapping describe different records",
                place.slot.0, place.offset
            );
            return wrong("segment", what, lba_of(same));
        }
        let chunk = self.chunk.get(..len).unwrap_or_default();
        let stored = match record.content {
            RecordContent::Chunk(fingerprint) if fingerprint != [0; 16] => Some(Fingerprint(fingerprint)),
            _ => None,
        };
        if stored.is_some() && self.codec.fingerprint(chunk) != stored {
            let what = "the record's content has another fingerprint than its segment says".to_owned();
            wrong("fingerprint", what, lba_of(same));
        }
        for (_, named) in same {
            match *named {
                Named::Fingerprint(fingerprint) => {
                    if self.codec.fingerprint(chunk) != Some(fingerprint) {
                        wrong("fingerprint", "the FP index names a record with other content".to_owned(), None);
                    }
                }
                Named::Chunk { lba, sectors, duplicate, .. } => {
                    let is_fragment = matches!(record.content, RecordContent::Fragment(_));
                    if is_fragment != sectors.is_some() {
                        wrong(
                            "mapping",
                            format!("chunk {lba} takes a fragment for a chunk, or a chunk for a fragment"),
                            Some(lba),
                        );
                    } else if !duplicate && record.lba != lba {
                        wrong(
                            "mapping",
                            format!("chunk {lba} is mapped to the record of chunk {}", record.lba),
                            Some(lba),
                        );
                    }
                }
            }
        }
    }
}

fn lba_of(same: &[(Place, Named)]) -> Option<u64> {
    same.iter().find_map(|(_, named)| match named {
        Named::Chunk { lba, .. } => Some(*lba),
        Named::Fingerprint(_) => None,
    })
}
