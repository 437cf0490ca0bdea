//! Printing the metadata log: its entries since the checkpoint, one frame, or every frame in it.
//!
//! It does not apply anything.

use super::{
    shapes::{FrameDump, Listing, LogDump, LogEntryDump},
    values::{hex, place_of, runs},
};
use crate::verify::{frames as lying, window::Window};
use larder_device::BlockDevice;
use larder_engine::{EngineError, offline::mode_name, walk};
use larder_format::{FrameHeader, LogEntry, Superblock};

/// Returns the log since the checkpoint.
///
/// # Errors
/// Errors of the device.
pub async fn log(flash: &dyn BlockDevice, superblock: &Superblock, limit: usize) -> Result<LogDump, EngineError> {
    let mut log = Listing::new();
    let start = (superblock.log_start, superblock.entry_seq_next);
    let end = walk::log(flash, superblock, start, &mut |at, header, entries| {
        entries_of(superblock.layout.log_offset + at, header, entries, limit, &mut log);
    })
    .await?;
    Ok(LogDump { frames: end.frames, bytes: end.bytes, next_frame_seq: end.next_frame_seq, log })
}

fn entries_of(
    flash_offset: u64,
    header: &FrameHeader,
    entries: &[LogEntry],
    limit: usize,
    log: &mut Listing<LogEntryDump>,
) {
    for (seq, entry) in (header.start.first_entry_seq..).zip(entries) {
        log.add(limit, || LogEntryDump {
            seq,
            frame_seq: header.start.frame_seq,
            frame_flash_offset: flash_offset,
            ..log_entry(entry)
        });
    }
}

/// Returns the frame at a byte offset on the flash, with its entries.
///
/// # Errors
/// The offset is outside the log, or no whole frame begins there.
pub async fn frame(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    flash_offset: u64,
    limit: usize,
) -> Result<LogDump, EngineError> {
    let layout = &superblock.layout;
    let (from, end) = (layout.log_offset, layout.log_offset + layout.log_bytes);
    let sector = u64::from(layout.sector_bytes);
    if !(from..end).contains(&flash_offset) || !(flash_offset - from).is_multiple_of(sector) {
        return Err(EngineError::Invalid(format!(
            "no frame begins at flash offset {flash_offset}: the log is at {from} to {end}, and frames begin at multiples \
             of {sector} in it"
        )));
    }
    let mut window = Window::new(flash, from, end);
    let Some((header, entries)) = lying::at(&mut window, superblock, flash_offset - from).await else {
        return Err(EngineError::Invalid(format!(
            "no whole frame of this cache begins at flash offset {flash_offset}"
        )));
    };
    let mut log = Listing::new();
    entries_of(flash_offset, &header, &entries, limit, &mut log);
    let next_frame_seq = header.start.frame_seq.saturating_add(1);
    Ok(LogDump { frames: 1, bytes: header.frame_bytes.into(), next_frame_seq, log })
}

/// Returns every frame of this cache in the log, by number. Frames before the checkpoint and torn
/// ones are included.
pub async fn frames(flash: &dyn BlockDevice, superblock: &Superblock, limit: usize) -> Listing<FrameDump> {
    let layout = &superblock.layout;
    let mut window = Window::new(flash, layout.log_offset, layout.log_offset + layout.log_bytes);
    let found = lying::scan(&mut window, superblock).await;
    let whole = found.whole.iter().map(|frame| (frame, true));
    let mut all: Vec<_> = whole.chain(found.heads.iter().map(|frame| (frame, false))).collect();
    all.sort_by_key(|(frame, _)| (frame.header.start.frame_seq, frame.offset_in_log));
    let mut listing = Listing::new();
    for (frame, whole) in all {
        listing.add(limit, || FrameDump {
            frame_seq: frame.header.start.frame_seq,
            flash_offset: layout.log_offset + frame.offset_in_log,
            bytes: frame.header.frame_bytes,
            first_entry_seq: frame.header.start.first_entry_seq,
            count: frame.header.entry_count.into(),
            durable_frame_seq: frame.header.start.durable_frame_seq,
            whole,
            needed: frame.header.start.frame_seq >= superblock.log_start.frame_seq,
        });
    }
    listing
}

pub(super) fn log_entry(entry: &LogEntry) -> LogEntryDump {
    let none = LogEntryDump::default();
    match entry {
        LogEntry::Map { lba, place, dirty, duplicate, fingerprint } => LogEntryDump {
            kind: "map",
            lba: Some(*lba),
            place: Some(place_of(place)),
            dirty: Some(*dirty),
            duplicate: Some(*duplicate),
            fingerprint: (*fingerprint != [0; 16]).then(|| hex(fingerprint)),
            ..none
        },
        LogEntry::MapZero { lba, dirty } => {
            LogEntryDump { kind: "map-zero", lba: Some(*lba), dirty: Some(*dirty), ..none }
        }
        LogEntry::Fragment { lba, place, dirty, sectors } => LogEntryDump {
            kind: "fragment",
            lba: Some(*lba),
            place: Some(place_of(place)),
            dirty: Some(*dirty),
            sectors: Some(runs(sectors)),
            ..none
        },
        LogEntry::Trim { lba, chunk_count, dirty, no_hole, advisory } => LogEntryDump {
            kind: "trim",
            lba: Some(*lba),
            chunk_count: Some(*chunk_count),
            dirty: Some(*dirty),
            no_hole: Some(*no_hole),
            advisory: Some(*advisory),
            ..none
        },
        LogEntry::Invalidate { lba, chunk_count } => {
            LogEntryDump { kind: "invalidate", lba: Some(*lba), chunk_count: Some(*chunk_count), ..none }
        }
        LogEntry::Clean { lba, chunk_count, map_seq } => LogEntryDump {
            kind: "clean",
            lba: Some(*lba),
            chunk_count: Some(*chunk_count),
            map_seq: Some(*map_seq),
            ..none
        },
        LogEntry::SlotFreed { slot, generation } => {
            LogEntryDump { kind: "slot-freed", freed_slot: Some(*slot), freed_generation: Some(*generation), ..none }
        }
        LogEntry::Mode { mode } => LogEntryDump { kind: "mode", mode: Some(mode_name(*mode)), ..none },
    }
}
