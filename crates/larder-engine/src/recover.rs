//! Opening: from superblock, checkpoint and metadata log back to the state, whether the end was clean or a crash.
//!
//! In order: (1) the superblock that counts; (2) its checkpoint, block by block; (3) the log from there on, frame by
//! frame, until one is not whole or not the next; (4) both devices are flushed, so that what this opening saw cannot
//! change under a later power loss; (5) a damaged superblock twin is repaired and the clean-shutdown mark removed,
//! before anything else is written.
//!
//! One rule makes the state: entries apply in order, the newest for an address wins, *slot freed* kills the mappings of
//! that generation and older ones. An entry that names a generation that is over already is dead: over a checkpoint of
//! pieces from different moments, its slot was freed later in the log.
//!
//! Invariants: nothing is written before (5). What does not decode is an error, never a guess, except at the end of the
//! log, where a frame that is not whole is what a crash leaves.

use crate::{
    config::Tuning,
    error::EngineError,
    log_area::LogArea,
    prefetch::PrefetchBuffer,
    shared::Geometry,
    state::{PendingLog, State, from_format},
    superblock,
};
use larder_core::{
    Design, DesignConfig, Fingerprint, Lba, NewMapping, SectorMap, SlotId, nitro::Nitro, ranges::Run, streams::Streams,
    types::SECTOR_BYTES, versions::Versions,
};
use larder_device::{BlockDevice, IoBuf};
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, DesignId, FormatError, FrameHeader, LogEntry, LogStart,
    Structure, Superblock,
    checkpoint::{BLOCK_BYTES_MAX, CHECKPOINT_HEADER_BYTES},
    decode_frame,
    log::{FRAME_HEADER_BYTES, LOG_ENTRY_BYTES},
    peek_frame,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Bytes of RAM for each entry of the indices at most: an entry of the LBA index just after its table doubled, one of
/// the FP index, and a slot's back pointer. What a RAM budget is divided by.
pub const INDEX_BYTES_MAX: u64 = 128;
/// The smallest RAM budget, in bytes.
pub const RAM_BUDGET_BYTES_MIN: u64 = 1 << 20;
/// Bytes of metadata that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// What opening found.
pub struct Recovered {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// Its twin that needs repair.
    pub repair: Option<usize>,
    /// The state.
    pub state: State,
    /// Sizes.
    pub geometry: Geometry,
    /// What was read.
    pub report: RecoveryReport,
}

/// What a recovery read and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// The last end was clean.
    pub clean_shutdown: bool,
    /// Mappings in the checkpoint.
    pub checkpoint_mappings: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Frames of the log that were replayed.
    pub log_frames: u64,
    /// Entries in them.
    pub log_entries: u64,
    /// Bytes of them.
    pub log_bytes: u64,
}

/// Sizes of the cache that `superblock` describes, over these devices.
pub fn geometry(superblock: &Superblock, flash: &dyn BlockDevice, origin: Option<&dyn BlockDevice>) -> Geometry {
    let layout = superblock.layout;
    let volume_bytes = superblock.origin.size_bytes;
    Geometry {
        chunk_bytes: layout.chunk_bytes as usize,
        volume_bytes,
        chunk_count: volume_bytes.div_ceil(u64::from(layout.chunk_bytes)),
        flash_align: flash.info().sector_bytes as usize,
        origin_align: origin.map_or(SECTOR_BYTES, |origin| origin.info().sector_bytes as usize),
        flash_tag: superblock.flash_tag(),
        index_entries_max: index_limits(superblock, volume_bytes.div_ceil(u64::from(layout.chunk_bytes))).mappings_max,
        layout,
    }
}

/// How large the indices of the cache that `superblock` describes may grow.
pub fn index_limits(superblock: &Superblock, chunk_count: u64) -> DesignConfig {
    let layout = &superblock.layout;
    let percent = if superblock.dedup { u64::from(superblock.fp_index_percent) } else { 0 };
    // A checkpoint gathers its pieces at different moments: a little more than the limit must fit its area, unless the
    // volume has no more chunks than that.
    let fits = if layout.mappings_max >= chunk_count {
        u64::MAX / 2
    } else {
        layout.mappings_max - layout.mappings_max / 16
    };
    let affordable = match superblock.ram_budget_bytes {
        0 => u64::MAX,
        budget => budget / INDEX_BYTES_MAX,
    };
    DesignConfig {
        slot_count: layout.slot_count,
        mappings_max: fits.min(affordable),
        fp_entries_max: (layout.fp_entries_max * percent / 100).min(affordable),
    }
}

/// The design that the superblock names, empty.
///
/// # Errors
/// [`EngineError::Invalid`] for one that this version cannot run.
pub fn new_design(superblock: &Superblock, chunk_count: u64) -> Result<Box<dyn Design>, EngineError> {
    let config = index_limits(superblock, chunk_count);
    match superblock.design {
        DesignId::Nitro => Ok(Box::new(Nitro::new(config))),
        other => Err(EngineError::Invalid(format!("this version cannot run the design {other:?}; it runs nitro"))),
    }
}

/// Reads superblock, checkpoint and log of `flash`; writes nothing.
///
/// # Errors
/// What is wrong with the flash, or with this origin for it.
pub async fn recover(
    flash: &dyn BlockDevice,
    origin: Option<&dyn BlockDevice>,
    tuning: &Tuning,
) -> Result<Recovered, EngineError> {
    // (1)
    let (superblock, repair) = superblock::read(flash).await?;
    if flash.info().size_bytes < superblock.layout.flash_bytes {
        return Err(EngineError::Invalid(format!(
            "the flash device has {} bytes, fewer than the {} that this cache was made with",
            flash.info().size_bytes,
            superblock.layout.flash_bytes
        )));
    }
    if let Some(origin) = origin {
        check_origin(&superblock, origin)?;
    }
    let geometry = geometry(&superblock, flash, origin);
    let design = new_design(&superblock, geometry.chunk_count)?;
    let weu_bytes = superblock.layout.weu_bytes.into();
    let mut replay = Replay { design, chunk_count: geometry.chunk_count, weu_bytes, mode: superblock.mode };
    let mut report = RecoveryReport { clean_shutdown: superblock.clean_shutdown, ..RecoveryReport::default() };
    // (2)
    let (start, entry_seq) = match &superblock.checkpoint {
        Some(pointer) => {
            let header = load_checkpoint(flash, &superblock, pointer.area, pointer.checkpoint_id, &mut replay).await?;
            report.checkpoint_mappings = header.counts.mappings + header.counts.fragments;
            report.checkpoint_bytes = header.total_bytes;
            (header.log_start, header.entry_seq_next)
        }
        None => (superblock.log_start, superblock.entry_seq_next),
    };
    // (3)
    let (area, next_seq, previous_crc) =
        replay_log(flash, &superblock, start, entry_seq, &mut replay, &mut report).await?;
    let slot_count = superblock.layout.slot_count as usize;
    let state = State {
        mode: replay.mode,
        design: replay.design,
        versions: Versions::default(),
        streams: Streams::default(),
        prefetch: PrefetchBuffer::new(tuning.prefetch_bytes_max),
        open: [None, None],
        in_flight: Vec::new(),
        in_memory: vec![false; slot_count],
        outbox: Vec::new(),
        segment_seq: next_seq,
        log: PendingLog {
            entries: VecDeque::new(),
            first_seq: next_seq,
            durable_below: next_seq,
            wanted_below: 0,
            close_clean: false,
            clean_closed: 0,
            commits: 0,
            error: None,
            area,
            previous_crc,
        },
        // Who knows what a predecessor wrote and did not flush.
        origin_unflushed: true,
        changing: Vec::new(),
        origin_flushes_in_flight: 0,
        flash_failed: None,
        lost: BTreeMap::new(),
        untrimmed: vec![true; slot_count],
        insertions: VecDeque::new(),
        insertion_bytes: 0,
        insertion_tasks: 0,
    };
    Ok(Recovered { superblock, repair, state, geometry, report })
}

fn check_origin(superblock: &Superblock, origin: &dyn BlockDevice) -> Result<(), EngineError> {
    let (expected, found) = (superblock.origin.size_bytes, origin.info().size_bytes);
    if found < expected {
        return Err(EngineError::WrongOrigin(format!(
            "the origin {} has {found} bytes, fewer than the {expected} that it had when this cache was made; give back the origin that belongs to it",
            origin.info().name
        )));
    }
    Ok(())
}

/// Applies checkpoint and log entries to a design.
struct Replay {
    design: Box<dyn Design>,
    chunk_count: u64,
    weu_bytes: u64,
    mode: larder_format::WriteMode,
}

impl Replay {
    fn map(
        &mut self,
        lba: u64,
        place: Option<&larder_format::Place>,
        new: impl FnOnce() -> NewMapping,
        dirty: Option<u64>,
    ) {
        if lba >= self.chunk_count {
            return;
        }
        let lba = Lba(lba);
        match place {
            // A place that leaves its WEU cannot be read; the checksums do not let one through, only a defect would.
            Some(place) if u64::from(place.offset) + u64::from(place.stored_len) > self.weu_bytes => {
                self.design.unmap(lba);
            }
            Some(place) if !self.design.restore_slot(SlotId(place.slot), place.generation) => {
                self.design.unmap(lba);
            }
            _ => self.design.map(lba, new(), dirty),
        }
    }

    fn trim(&mut self, lba: u64, count: u64, seq: u64, no_hole: bool) {
        let end = lba.saturating_add(count).min(self.chunk_count);
        if lba < end {
            self.design.trim(Run { first: Lba(lba), count: end - lba, seq, no_hole });
        }
    }

    fn apply(&mut self, seq: u64, entry: &LogEntry) {
        match entry {
            LogEntry::Map { lba, place, dirty, duplicate, fingerprint } => {
                let core = from_format(place);
                let known = (*fingerprint != [0; 16]).then_some(Fingerprint(*fingerprint));
                let new = || match duplicate {
                    true => NewMapping::Duplicate { place: core },
                    false => NewMapping::Unique { place: core, fingerprint: known },
                };
                self.map(*lba, Some(place), new, dirty.then_some(seq));
                if let (true, Some(fingerprint)) = (*duplicate, known) {
                    self.design.restore_fingerprint(&fingerprint, &core);
                }
            }
            LogEntry::MapZero { lba, dirty } => self.map(*lba, None, || NewMapping::Zero, dirty.then_some(seq)),
            LogEntry::Fragment { lba, place, dirty, sectors } => {
                let sectors = SectorMap::from_bytes(sectors);
                let new = || NewMapping::Fragment { place: from_format(place), sectors };
                self.map(*lba, Some(place), new, dirty.then_some(seq));
            }
            LogEntry::Trim { lba, chunk_count, no_hole, .. } => self.trim(*lba, *chunk_count, seq, *no_hole),
            LogEntry::Invalidate { lba, chunk_count } => {
                for lba in *lba..lba.saturating_add(*chunk_count).min(self.chunk_count) {
                    self.design.unmap(Lba(lba));
                }
            }
            LogEntry::Clean { lba, chunk_count, map_seq } => self.clean(*lba, *chunk_count, *map_seq),
            LogEntry::SlotFreed { slot, generation } => self.design.restore_freed(SlotId(*slot), *generation),
            LogEntry::Mode { mode } => self.mode = *mode,
        }
    }

    fn clean(&mut self, lba: u64, count: u64, map_seq: u64) {
        let end = lba.saturating_add(count).min(self.chunk_count);
        // What a checkpoint said to be dirty carries sequence number 0: any mark that follows is for it.
        let mut from = Lba(lba);
        loop {
            let found = self.design.dirty_from(from, 256);
            let inside: Vec<_> = found.iter().copied().filter(|(lba, _)| lba.0 < end).collect();
            for &(lba, seq) in &inside {
                if seq <= map_seq {
                    self.design.mark_clean(lba, seq);
                }
            }
            match inside.last() {
                Some(&(last, _)) if inside.len() == 256 => from = Lba(last.0 + 1),
                _ => break,
            }
        }
        for seq in [map_seq, 0] {
            self.design.mark_run_clean(&Run { first: Lba(lba), count: end.saturating_sub(lba), seq, no_hole: false });
        }
    }
}

async fn load_checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    area: u8,
    checkpoint_id: u64,
    replay: &mut Replay,
) -> Result<CheckpointHeader, EngineError> {
    let layout = &superblock.layout;
    let invalid = |what| EngineError::Format(FormatError::Invalid { structure: Structure::CheckpointHeader, what });
    let start = *layout.checkpoint_offset.get(usize::from(area)).ok_or_else(|| invalid("it names no area"))?;
    let tag = superblock.flash_tag();
    let bytes = flash.read(start, IoBuf::new(CHECKPOINT_HEADER_BYTES)).await?;
    let header = CheckpointHeader::decode(&bytes, tag)?;
    if header.checkpoint_id != checkpoint_id {
        return Err(invalid("it is not the checkpoint that the superblock names"));
    }
    if header.total_bytes > layout.checkpoint_area_bytes {
        return Err(invalid("it is longer than its area"));
    }
    // Large reads; a block may cross the end of one, so its rest is carried over.
    let (mut at, end) = (start + CHECKPOINT_HEADER_BYTES as u64, start + header.total_bytes);
    let mut carried: Vec<u8> = Vec::new();
    let mut block_index = 0;
    while block_index < header.block_count {
        if carried.len() < BLOCK_BYTES_MAX && at < end {
            let len = READ_BYTES.min(end - at);
            let bytes = flash.read(at, IoBuf::new(len as usize)).await?;
            carried.extend_from_slice(&bytes);
            at += len;
        }
        let mut used = 0;
        while block_index < header.block_count && (carried.len() - used >= BLOCK_BYTES_MAX || at >= end) {
            let identity = BlockIdentity { flash_tag: tag, checkpoint_id, block_index };
            let (block, bytes) = CheckpointBlock::decode(carried.get(used..).unwrap_or_default(), &identity)?;
            apply_block(block, replay);
            used += bytes;
            block_index += 1;
        }
        carried.drain(..used);
    }
    Ok(header)
}

fn apply_block(block: CheckpointBlock, replay: &mut Replay) {
    match block {
        CheckpointBlock::Slots(slots) => {
            for slot in slots {
                match slot.state {
                    larder_format::SlotState::Free => {
                        // A slot that was never used has had no generation yet.
                        if slot.generation != u32::MAX {
                            replay.design.restore_freed(SlotId(slot.slot), slot.generation);
                        }
                    }
                    _ => {
                        replay.design.restore_slot(SlotId(slot.slot), slot.generation);
                    }
                }
            }
        }
        CheckpointBlock::Mappings(mappings) => {
            for mapping in mappings {
                let new = || match &mapping.place {
                    None => NewMapping::Zero,
                    Some(place) if mapping.duplicate => NewMapping::Duplicate { place: from_format(place) },
                    Some(place) => NewMapping::Unique { place: from_format(place), fingerprint: None },
                };
                replay.map(mapping.lba, mapping.place.as_ref(), new, mapping.dirty.then_some(0));
            }
        }
        CheckpointBlock::Fragments(fragments) => {
            for fragment in fragments {
                let sectors = SectorMap::from_bytes(&fragment.sectors);
                let new = || NewMapping::Fragment { place: from_format(&fragment.place), sectors };
                replay.map(fragment.lba, Some(&fragment.place), new, fragment.dirty.then_some(0));
            }
        }
        CheckpointBlock::ZeroRanges(ranges) => {
            for range in ranges {
                // Exported after the mappings: what is mapped inside a range by now was written after its trim.
                let mut from = range.lba;
                let end = range.lba.saturating_add(range.chunk_count).min(replay.chunk_count);
                let mapped: Vec<u64> =
                    (from..end).filter(|&lba| replay.design.peek(Lba(lba)) != larder_core::Lookup::Miss).collect();
                for lba in mapped {
                    if from < lba {
                        replay.trim(from, lba - from, 0, range.no_hole);
                    }
                    from = lba + 1;
                }
                if from < end {
                    replay.trim(from, end - from, 0, range.no_hole);
                }
            }
        }
        CheckpointBlock::Fingerprints(fingerprints) => {
            for entry in fingerprints {
                replay.design.restore_fingerprint(&Fingerprint(entry.fingerprint), &from_format(&entry.place));
            }
        }
    }
}

async fn replay_log(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    start: LogStart,
    entry_seq: u64,
    replay: &mut Replay,
    report: &mut RecoveryReport,
) -> Result<(LogArea, u64, u32), EngineError> {
    let layout = &superblock.layout;
    let mut reader = LogReader::new(flash, superblock);
    let mut area = LogArea::new(layout.log_bytes, start.offset_in_log, 0, start.frame_seq);
    let mut next_entry = entry_seq;
    let mut at = start.offset_in_log;
    let mut previous: Option<FrameHeader> = None;
    loop {
        let frame_seq = area.position().frame_seq;
        // A frame that did not fit before the end of the region is at its beginning.
        let mut found = reader.frame(at, frame_seq, next_entry, previous.as_ref()).await?;
        if found.is_none() && at != 0 {
            found = reader.frame(0, frame_seq, next_entry, previous.as_ref()).await?;
            if found.is_some() {
                at = 0;
            }
        }
        let Some((header, entries)) = found else { break };
        let bytes = u64::from(header.frame_bytes);
        for entry in &entries {
            replay.apply(next_entry, entry);
            next_entry += 1;
        }
        area.advance(bytes);
        at += bytes;
        report.log_frames += 1;
        report.log_entries += entries.len() as u64;
        report.log_bytes += bytes;
        previous = Some(header);
    }
    Ok((area, next_entry, previous.map_or(0, |header| header.crc)))
}

/// Reads frames of the log, large pieces at a time.
pub struct LogReader<'a> {
    flash: &'a dyn BlockDevice,
    tag: u64,
    log_offset: u64,
    log_bytes: u64,
    sector_bytes: u64,
    piece: (u64, Arc<[u8]>),
}

impl<'a> LogReader<'a> {
    /// A reader of the log that `superblock` describes.
    pub fn new(flash: &'a dyn BlockDevice, superblock: &Superblock) -> Self {
        let layout = &superblock.layout;
        LogReader {
            flash,
            tag: superblock.flash_tag(),
            log_offset: layout.log_offset,
            log_bytes: layout.log_bytes,
            sector_bytes: u64::from(layout.sector_bytes),
            piece: (0, Arc::from([])),
        }
    }

    async fn bytes(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>, EngineError> {
        if at + len > self.log_bytes {
            return Ok(None);
        }
        let (start, piece) = &self.piece;
        if at < *start || at + len > start + piece.len() as u64 {
            let read = READ_BYTES.max(len).min(self.log_bytes - at);
            let bytes = self.flash.read(self.log_offset + at, IoBuf::new(read as usize)).await?;
            self.piece = (at, Arc::from(&bytes[..]));
        }
        let from = (at - self.piece.0) as usize;
        Ok(self.piece.1.get(from..from + len as usize))
    }

    /// The frame at `at`, if it is whole and the one expected: its header and its entries. `previous`
    /// is the frame before it, where one was read.
    ///
    /// # Errors
    /// The device's. What is not a whole frame is no error: it is where the log ends.
    pub async fn frame(
        &mut self,
        at: u64,
        frame_seq: u64,
        entry_seq: u64,
        previous: Option<&FrameHeader>,
    ) -> Result<Option<(FrameHeader, Vec<LogEntry>)>, EngineError> {
        let tag = self.tag;
        let head = self.sector_bytes.max((FRAME_HEADER_BYTES + LOG_ENTRY_BYTES) as u64);
        let Some(bytes) = self.bytes(at, head).await? else { return Ok(None) };
        let Ok(header) = peek_frame(bytes, tag) else { return Ok(None) };
        if header.start.frame_seq != frame_seq || header.start.first_entry_seq != entry_seq {
            return Ok(None);
        }
        if previous.is_some_and(|previous| !header.follows(previous)) {
            return Ok(None);
        }
        let frame_bytes = u64::from(header.frame_bytes);
        let Some(bytes) = self.bytes(at, frame_bytes).await? else { return Ok(None) };
        Ok(decode_frame(bytes, tag).ok())
    }
}
