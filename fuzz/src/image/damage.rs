//! The damage that an input does to a sound image.
//!
//! It is rot, a shorter device, and sectors that are lost, misdirected, torn or rolled back.
//! *Sealed* changes are made under a right checksum, as only a defect or an adversary makes them.
//!
//! Invariants: the same input does the same damage. The result tells of sealed changes.
//!
//! It does not judge the consequences.

use super::{
    super::input::{Input, patch},
    base::{Base, Kind, Record, Structure},
    medium::SECTOR,
};
use larder_engine::record::check;
use larder_format::{FrameStart, LogEntry, RecordIdentity, crc32c, decode_frame, encode_frame, frame_crc, record_crc};

/// Changes that one input can make.
const CHANGES_MAX: usize = 24;

/// An image after the damage.
pub struct Damaged {
    pub flash: Vec<u8>,
    /// Size of the device; shorter than the image if it was cut.
    pub size_bytes: u64,
    /// True if a byte was changed under a right checksum.
    pub sealed: bool,
}

/// Damages the flash of `base` by the choices of `input`.
pub fn damage(base: &Base, input: &mut Input<'_>) -> Damaged {
    let mut damaged = Damaged { flash: base.flash.to_vec(), size_bytes: base.flash.len() as u64, sealed: false };
    let mut log = Log { end: base.log_end.next_offset_in_log, appended: None };
    for _ in 0..CHANGES_MAX {
        if input.is_empty() {
            break;
        }
        change(base, &mut damaged, &mut log, input);
    }
    damaged
}

/// The end of the log, for more frames.
struct Log {
    end: u64,
    /// The last appended frame: number, next entry, checksum.
    appended: Option<FrameStart>,
}

fn change(base: &Base, damaged: &mut Damaged, log: &mut Log, input: &mut Input<'_>) {
    let sectors = damaged.flash.len() / SECTOR;
    let choice = input.byte();
    match choice % 16 {
        0..=2 => {
            let at = place(base, input);
            damaged.flash[at] ^= 1 << (input.byte() & 7);
        }
        3 => sector_mut(damaged, place(base, input) / SECTOR).fill(0),
        4 => {
            let from = place(base, input) / SECTOR;
            let copy = sector_mut(damaged, from).to_vec();
            sector_mut(damaged, place(base, input) / SECTOR).copy_from_slice(&copy);
        }
        5 => {
            let (a, b) = (place(base, input) / SECTOR, place(base, input) / SECTOR);
            let (first, second) = (sector_mut(damaged, a).to_vec(), sector_mut(damaged, b).to_vec());
            sector_mut(damaged, a).copy_from_slice(&second);
            sector_mut(damaged, b).copy_from_slice(&first);
        }
        6 => {
            let (sector, bytes) = &base.old[usize::from(input.u16()) % base.old.len()];
            sector_mut(damaged, *sector as usize).copy_from_slice(bytes);
        }
        7 => {
            // An old version of each sector of a structure, with the input's age.
            let structure = base.structures[input.below(base.structures.len())];
            let age = usize::from(input.byte());
            let range = structure.offset / SECTOR..(structure.offset + structure.bytes).div_ceil(SECTOR);
            for sector in range {
                let mut versions = base.old.iter().rev().filter(|(old, _)| *old == sector as u64);
                if let Some((_, bytes)) = versions.nth(age) {
                    sector_mut(damaged, sector).copy_from_slice(bytes);
                }
            }
        }
        8 => {
            let at = place(base, input) / SECTOR;
            let bytes = input.bytes(SECTOR);
            sector_mut(damaged, at)[..bytes.len()].copy_from_slice(bytes);
        }
        9 if choice & 16 != 0 => {
            // The device is cut at any sector, or by little.
            let cut = if choice & 32 == 0 { 1 + usize::from(input.byte()) } else { usize::from(input.u16()) % sectors };
            damaged.size_bytes = ((sectors - cut) * SECTOR) as u64;
        }
        9 => {
            // A run of sectors that were never written.
            let from = place(base, input) / SECTOR;
            (from..(from + usize::from(input.byte())).min(sectors)).for_each(|s| sector_mut(damaged, s).fill(0));
        }
        10 => {
            // A segment or frame at another place: whole, and not at home.
            let structure = base.structures[input.below(base.structures.len())];
            let from = structure.offset / SECTOR * SECTOR;
            let len = (structure.bytes.next_multiple_of(SECTOR)).min(damaged.flash.len() - from);
            let copy = damaged.flash[from..from + len].to_vec();
            let to = (place(base, input) / SECTOR * SECTOR).min(damaged.flash.len() - len);
            damaged.flash[to..to + len].copy_from_slice(&copy);
        }
        11 | 12 => sealed_patch(base, damaged, input),
        13 => append_frame(base, damaged, log, input),
        _ => forge_record(base, damaged, input),
    }
}

/// Chooses a byte of the flash: anywhere, in a structure, or in a mapped record.
fn place(base: &Base, input: &mut Input<'_>) -> usize {
    match input.byte() % 4 {
        0 => usize::from(input.u16()) * SECTOR % base.flash.len() + usize::from(input.byte()),
        1 | 2 => {
            let structure = base.structures[input.below(base.structures.len())];
            structure.offset + input.below(structure.bytes)
        }
        _ => {
            let record = base.records[input.below(base.records.len())];
            record.offset + input.below(record.place.stored_len as usize)
        }
    }
}

fn sector_mut(damaged: &mut Damaged, sector: usize) -> &mut [u8] {
    &mut damaged.flash[sector * SECTOR..][..SECTOR]
}

/// Returns the place of a structure's checksum.
fn crc_offset(kind: Kind) -> usize {
    if kind == Kind::Superblock { 16 } else { 12 }
}

/// Makes the checksum of a structure right, and of those that repeat it.
fn seal(base: &Base, flash: &mut [u8], structure: &Structure) {
    let bytes = &mut flash[structure.offset..structure.offset + structure.bytes];
    match structure.kind {
        Kind::Table { header } => {
            let crc = crc32c(bytes);
            flash[header + 52..header + 56].copy_from_slice(&crc.to_le_bytes());
            seal_bytes(&mut flash[header..header + 64], 12);
        }
        Kind::Frame { .. } => {
            // The frames behind it repeat its checksum, each in its turn.
            seal_bytes(bytes, 12);
            let mut crc = frame_crc(bytes);
            let later = |other: &&Structure| match (other.kind, structure.kind) {
                (Kind::Frame { seq: other, .. }, Kind::Frame { seq, .. }) => other > seq,
                _ => false,
            };
            for next in base.structures.iter().filter(later) {
                let bytes = &mut flash[next.offset..next.offset + next.bytes];
                bytes[56..60].copy_from_slice(&crc.to_le_bytes());
                seal_bytes(bytes, 12);
                crc = frame_crc(bytes);
            }
        }
        kind => seal_bytes(bytes, crc_offset(kind)),
    }
}

fn seal_bytes(bytes: &mut [u8], crc_offset: usize) {
    bytes[crc_offset..crc_offset + 4].fill(0);
    let crc = crc32c(bytes);
    bytes[crc_offset..crc_offset + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Changes fields of a structure under a right checksum. Both superblocks get the same.
fn sealed_patch(base: &Base, damaged: &mut Damaged, input: &mut Input<'_>) {
    damaged.sealed = true;
    let structure = base.structures[input.below(base.structures.len())];
    let bytes = &mut damaged.flash[structure.offset..structure.offset + structure.bytes];
    let front = match structure.kind {
        Kind::Superblock => 344,
        Kind::CheckpointHeader => 112,
        _ => 64 * 4,
    };
    for _ in 0..=input.byte() % 3 {
        patch(bytes, front, input);
    }
    let copy = bytes.to_vec();
    seal(base, &mut damaged.flash, &structure);
    if structure.kind == Kind::Superblock {
        for twin in base.structures.iter().filter(|twin| twin.kind == Kind::Superblock) {
            damaged.flash[twin.offset..twin.offset + twin.bytes].copy_from_slice(&copy);
            seal(base, &mut damaged.flash, twin);
        }
    }
}

/// Appends a frame with changed entries of other frames: a log that continues in a strange way.
fn append_frame(base: &Base, damaged: &mut Damaged, log: &mut Log, input: &mut Input<'_>) {
    let tag = base.superblock.flash_tag();
    let frames = base.structures.iter().filter(|s| matches!(s.kind, Kind::Frame { .. }));
    let known: Vec<LogEntry> = frames
        .filter_map(|frame| decode_frame(&base.flash[frame.offset..frame.offset + frame.bytes], tag).ok())
        .flat_map(|(_, entries)| entries)
        .collect();
    let start = log.appended.unwrap_or_else(|| {
        let last = base.structures.iter().rfind(|s| matches!(s.kind, Kind::Frame { .. }));
        let last = last.map(|frame| &base.flash[frame.offset..frame.offset + frame.bytes]);
        let header = last.and_then(|bytes| decode_frame(bytes, tag).ok()).map(|(header, _)| header);
        FrameStart {
            flash_tag: tag,
            frame_seq: base.log_end.next_frame_seq,
            first_entry_seq: header.map_or(base.superblock.entry_seq_next, |header| header.entry_seq_next()),
            durable_frame_seq: 0,
            previous_crc: header.map_or(0, |header| header.crc),
        }
    });
    let layout = &base.superblock.layout;
    let kinds = [
        LogEntry::MapZero { lba: 1, dirty: true },
        LogEntry::Trim { lba: 2, chunk_count: 3, dirty: true, no_hole: false, advisory: false },
        LogEntry::Invalidate { lba: 4, chunk_count: 2 },
        LogEntry::Clean { lba: 0, chunk_count: 9, map_seq: start.first_entry_seq },
        LogEntry::SlotFreed { slot: 0, generation: 0 },
        LogEntry::Mode { mode: larder_format::WriteMode::Through },
    ];
    let entries: Vec<LogEntry> = (0..=input.byte() % 8)
        .map(|_| {
            let at = input.below(known.len() + 4 * kinds.len());
            known.get(at).copied().unwrap_or(kinds[at % kinds.len()])
        })
        .collect();
    let Ok(mut frame) = encode_frame(&start, &entries, layout.sector_bytes) else { return };
    for _ in 0..input.byte() % 4 {
        patch(&mut frame[64..], 64 * entries.len(), input);
    }
    seal_bytes(&mut frame, 12);
    if log.end + frame.len() as u64 > layout.log_bytes {
        return;
    }
    let at = (layout.log_offset + log.end) as usize;
    damaged.flash[at..at + frame.len()].copy_from_slice(&frame);
    damaged.sealed = true;
    log.end += frame.len() as u64;
    log.appended = Some(FrameStart {
        frame_seq: start.frame_seq + 1,
        first_entry_seq: start.first_entry_seq + entries.len() as u64,
        previous_crc: frame_crc(&frame),
        ..start
    });
}

/// Changes the stored bytes of a record and its checksums in the log and in the record table. So
/// the code behind the checksum must bear them, too.
fn forge_record(base: &Base, damaged: &mut Damaged, input: &mut Input<'_>) {
    let Record { place, offset, .. } = base.records[input.below(base.records.len())];
    let stored = &mut damaged.flash[offset..offset + place.stored_len as usize];
    if !check(&place, stored) {
        return;
    }
    for _ in 0..=input.byte() % 4 {
        patch(stored, 64, input);
    }
    let identity = RecordIdentity { slot: place.slot.0, generation: place.generation, offset: place.offset };
    let crc = record_crc(identity, place.encoding, stored);
    damaged.sealed = true;
    let (old, new) = (place.crc.to_le_bytes(), crc.to_le_bytes());
    for structure in base.structures.iter().filter(|s| s.kind != Kind::Superblock && s.kind != Kind::SegmentHeader) {
        let bytes = &mut damaged.flash[structure.offset..structure.offset + structure.bytes];
        let mut found = false;
        for field in bytes.chunks_exact_mut(4).filter(|field| *field == old) {
            field.copy_from_slice(&new);
            found = true;
        }
        if found {
            seal(base, &mut damaged.flash, structure);
        }
    }
}
