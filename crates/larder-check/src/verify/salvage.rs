//! The rest of damaged metadata: checkpoint blocks and log frames, each under its own checksum.
//!
//! They are applied in order as an opening would, but without ending at the first lost one.
//!
//! The loss of each means:
//! - *A checkpoint's header:* nothing, if all blocks are found. The superblock names log start and
//!   size, too.
//! - *Slots of a checkpoint:* generations. A slot that no other entry names is free, and goes on
//!   after the newest generation that lies in it. No mapping can become wrong: each names its own
//!   generation.
//! - *Mappings, fragments, zero ranges:* those chunks read as the origin has them. The others are
//!   right as they are, because the log after the checkpoint is whole and has every later change.
//! - *Fingerprints:* duplicates that are not noticed.
//! - *Design pages:* clean chunks that are not found. Dirty chunks keep their slots.
//! - *Frames in the middle of the log:* all their entries. An earlier clean mapping may be stale
//!   (an *invalidate* may be lost), so all clean mappings are dropped: the origin has the data. An
//!   earlier dirty one may have been written again, or destaged: it is kept, and is *suspect*.
//!   Later frames are right about their chunks.
//! - *The end of the log:* a superblock or slot that names a lost frame as durable reveals the
//!   loss. The last frames, behind which neither was written, look like frames that a crash tore.
//!
//! Invariants: it does not write. On a sound flash the result is that of
//! [`recover`](larder_engine::recover::recover).
//!
//! It does not look at records; [`records`](super::records) does.

use super::{
    frames::{self, FrameAt},
    homes::is_newer,
    window::{Window, span},
};
use crate::region::restore_uses;
use larder_core::{Decider, SlotId, ranges::RunMap, slots::SlotState};
use larder_device::BlockDevice;
use larder_engine::{
    EngineError,
    offline::{Geometry, Replay, newest_named, rebuild, recall},
    recover::{geometry, new_design},
    superblock,
    walk::{self, Reader},
};
use larder_format::{
    BlockIdentity, BlockKind, CheckpointBlock, CheckpointHeader, CheckpointPointer, FrameHeader, LogEntry, LogStart,
    METADATA_ALIGN_BYTES, Superblock, WriteMode,
    checkpoint::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, CHECKPOINT_HEADER_BYTES},
    layout::SECTOR_BYTES_MIN,
    segment::decode_header,
};
use std::collections::BTreeSet;

/// Offset of a block's index in its header.
const BLOCK_INDEX_AT: usize = 32;

/// A hole in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LogGap {
    /// The first frame that is lost.
    pub first_frame: u64,
    /// Number of frames; unknown at the end of the log.
    pub frames: Option<u64>,
    /// Number of entries.
    pub entries: Option<u64>,
}

/// The lost metadata.
#[derive(Clone, Debug, Default)]
pub struct MetadataDamage {
    /// The checkpoint's header.
    pub checkpoint_header: bool,
    /// Blocks of the checkpoint, as far as they could be counted.
    pub blocks: u64,
    /// Their entries, by kind: slots, mappings, fragments, zero ranges, fingerprints, design pages.
    /// `None`: the kind is unknown.
    pub entries: Option<[u64; 6]>,
    /// Holes in the log.
    pub gaps: Vec<LogGap>,
    /// Ranges of the log that cannot be read, bytes on the flash.
    pub unreadable_log: Vec<(u64, u64)>,
}

impl MetadataDamage {
    /// Returns whether mappings, fragments or zero ranges of the checkpoint are lost.
    pub fn loses_mappings(&self) -> bool {
        match self.entries {
            None => self.blocks > 0,
            Some([_, mappings, fragments, zero_ranges, ..]) => mappings + fragments + zero_ranges > 0,
        }
    }

    fn loses_slots(&self) -> bool {
        self.blocks > 0 && self.entries.is_none_or(|[slots, .., pages]| slots + pages > 0)
    }

    /// Returns whether any metadata is lost.
    pub fn is_any(&self) -> bool {
        self.checkpoint_header || self.blocks > 0 || !self.gaps.is_empty()
    }
}

/// The findings of a salvage.
pub struct Salvaged {
    /// The superblock that counts.
    pub superblock: Superblock,
    /// The twin that is damaged or older.
    pub damaged_twin: Option<usize>,
    /// Sizes.
    pub geometry: Geometry,
    /// Mappings, slots, runs, fingerprints.
    pub design: Decider,
    /// Both twins agree on a mode without dirty data: when they were written, there was none.
    pub clean_by_mode: bool,
    /// The lost metadata.
    pub damage: MetadataDamage,
    /// Dirty mappings and trimmed runs with a lower sequence number are suspect.
    pub suspect_below: u64,
    /// Chunks that the lost metadata cannot concern; `None`: all.
    pub certain: Option<RunMap>,
    /// The end of the log: the next frame, the next entry.
    pub log_end: (LogStart, u64),
    /// The newest frame that the superblock or a slot names as durable, if a look asked for it.
    pub named_frame: u64,
}

/// Reads all the rest of the metadata. With `end_is_lost`, other evidence proves that the log went
/// on.
///
/// # Errors
/// No superblock is whole, or the flash is smaller than it says.
pub async fn salvage(flash: &dyn BlockDevice, end_is_lost: bool) -> Result<Salvaged, EngineError> {
    let (superblock, repair) = superblock::read(flash).await?;
    let geometry = geometry(&superblock, flash, None)?;
    let mut design = new_design(&superblock, geometry.chunk_count)?;
    design.begin_restore(0, 0);
    let replay = Replay::new(design, geometry.chunk_count, &superblock);
    // The mark of an orderly end says that the checkpoint is complete without the log. It is
    // believed if the twins agree: a twin that is years old may carry an old mark.
    let agree = matches!(&walk::twins(flash).await[..], [Ok(a), Ok(b)] if a == b);
    let mut salvage = Salvage {
        flash,
        superblock: &superblock,
        replay,
        damage: MetadataDamage { entries: Some([0; 6]), ..MetadataDamage::default() },
        heard: vec![false; superblock.layout.slot_count as usize],
        touched: RunMap::default(),
        suspect_below: 0,
        ended_in_order: superblock.clean_shutdown && agree && !end_is_lost,
        end_is_lost,
        named_frame: 0,
    };
    let start = salvage.checkpoint().await;
    recall(Reader::alone(flash), &superblock, &mut salvage.replay).await;
    let mut log_end = salvage.log(start).await;
    // The log goes on at a boundary of its present device, as after an opening.
    let boundary = log_end.0.offset_in_log.next_multiple_of(geometry.layout.sector_bytes.max(1).into());
    log_end.0.offset_in_log = boundary.min(superblock.layout.log_bytes);
    let certain = salvage.certain();
    salvage.replay.design.confirm_dirty();
    salvage.replay.design.end_restore();
    salvage.inspect_slots().await;
    let Salvage { replay, damage, suspect_below, named_frame, .. } = salvage;
    let Replay { mut design, .. } = replay;
    if !damage.gaps.is_empty() {
        design =
            rebuild(&superblock, &geometry, &design, &mut |mapping| mapping.dirty, &mut |_| true, &mut |_, _| false)?;
        design.forget_clean(&|_| true);
    }
    let clean_by_mode = agree && superblock.mode != WriteMode::Back;
    Ok(Salvaged {
        superblock,
        damaged_twin: repair,
        geometry,
        design,
        clean_by_mode,
        damage,
        suspect_below,
        certain,
        log_end,
        named_frame,
    })
}

struct Salvage<'a> {
    flash: &'a dyn BlockDevice,
    superblock: &'a Superblock,
    replay: Replay,
    damage: MetadataDamage,
    /// Slots that a block of the checkpoint names.
    heard: Vec<bool>,
    /// Chunks whose state an entry of the log tells, regardless of earlier entries.
    touched: RunMap,
    suspect_below: u64,
    ended_in_order: bool,
    end_is_lost: bool,
    named_frame: u64,
}

impl Salvage<'_> {
    /// Applies the rest of the checkpoint. Returns the start of the log.
    async fn checkpoint(&mut self) -> (LogStart, u64) {
        let superblock = self.superblock;
        let named = (superblock.log_start, superblock.entry_seq_next);
        let Some(pointer) = &superblock.checkpoint else { return named };
        let layout = &superblock.layout;
        let Some(&start) = layout.checkpoint_offset.get(usize::from(pointer.area)) else { return named };
        let end = start + pointer.bytes.min(layout.checkpoint_area_bytes);
        let mut window = Window::new(self.flash, start, end);
        let head = window.bytes(start, CHECKPOINT_HEADER_BYTES).await;
        let header = CheckpointHeader::decode(head, superblock.flash_tag()).ok();
        let header = header.filter(|h| {
            (h.checkpoint_id, h.total_bytes) == (pointer.checkpoint_id, pointer.bytes)
                && (h.log_start, h.entry_seq_next) == named
        });
        self.damage.checkpoint_header = header.is_none();
        let mut seen = BTreeSet::new();
        let mut lost_bytes = 0;
        let mut at = start + CHECKPOINT_HEADER_BYTES as u64;
        while at < end {
            let bytes = window.bytes(at, BLOCK_BYTES_MAX).await;
            match block_of(bytes, superblock.flash_tag(), pointer) {
                Some((index, block, bytes)) => {
                    // A second block of one number is of this checkpoint, too; it takes another's
                    // place.
                    if seen.insert(index) {
                        self.apply_block(block);
                    } else {
                        lost_bytes += bytes;
                    }
                    at += bytes;
                }
                None => {
                    lost_bytes += METADATA_ALIGN_BYTES;
                    at += METADATA_ALIGN_BYTES;
                }
            }
        }
        match &header {
            Some(header) => self.count_lost(header, &seen),
            None if lost_bytes > 0 => {
                self.damage.blocks = lost_bytes.div_ceil(BLOCK_BYTES_MAX as u64);
                self.damage.entries = None;
            }
            None => {}
        }
        named
    }

    fn count_lost(&mut self, header: &CheckpointHeader, seen: &BTreeSet<u32>) {
        let mut lost = [0; 6];
        let mut index = 0;
        for (kind, lost) in BlockKind::ALL.into_iter().zip(&mut lost) {
            let mut left = header.counts.of(kind);
            while left > 0 && index < header.block_count {
                let entries = left.min(kind.entries_max() as u64);
                if !seen.contains(&index) {
                    *lost += entries;
                    self.damage.blocks += 1;
                }
                left -= entries;
                index += 1;
            }
        }
        self.damage.entries = Some(lost);
    }

    fn apply_block(&mut self, block: CheckpointBlock) {
        if let CheckpointBlock::Slots(slots) = &block {
            for slot in slots {
                if let Some(heard) = self.heard.get_mut(slot.slot as usize) {
                    *heard = true;
                }
            }
        }
        self.replay.block(block);
    }

    /// Applies the rest of the log. Returns its end.
    async fn log(&mut self, (start, entry_seq): (LogStart, u64)) -> (LogStart, u64) {
        let layout = &self.superblock.layout;
        let (from, end) = (layout.log_offset, layout.log_offset + layout.log_bytes);
        let mut window = Window::new(self.flash, from, end);
        let mut position = Position { next_frame: start.frame_seq, next_entry: entry_seq, previous: None };
        let mut at = start.offset_in_log;
        let mut applied = RunMap::default();
        // It goes as an opening does: frame by frame, until one is not whole or not the next.
        loop {
            let mut place = at;
            let mut found = frames::at(&mut window, self.superblock, place).await;
            if !found.as_ref().is_some_and(|(header, _)| position.goes_on_with(header)) {
                place = 0;
                found = frames::at(&mut window, self.superblock, place).await;
            }
            let Some((header, entries)) = found.filter(|(header, _)| position.goes_on_with(header)) else { break };
            self.apply(&header, &entries);
            applied.insert(span(from + place, header.frame_bytes.into()));
            at = place + u64::from(header.frame_bytes);
            position.move_to(&header);
        }
        let ended_at = at;
        let lying = frames::scan(&mut window, self.superblock).await;
        self.damage.unreadable_log = window.unreadable().collect();
        if !self.ended_in_order {
            let passed_over = self.beyond(&mut window, &lying.whole, &mut position).await;
            let hidden = |&(from, end): &(u64, u64)| {
                let mut left = RunMap::default();
                left.insert(span(from, end - from));
                applied.iter().for_each(|run| {
                    left.remove(run.first, run.count);
                });
                !left.is_empty()
            };
            // Unreadable bytes may have held any number of frames.
            let of_head = lying.proof_of_loss(position.next_frame, position.next_entry).is_some();
            let named = newest_named(self.flash, self.superblock).await;
            self.named_frame = named.map_or(0, |named| named.frame_seq);
            let is_named = self.named_frame >= position.next_frame;
            let proof = self.end_is_lost || passed_over || of_head || is_named;
            if proof || self.damage.unreadable_log.iter().any(hidden) {
                self.gap(LogGap { first_frame: position.next_frame, frames: None, entries: None }, u64::MAX);
            }
            if !self.damage.gaps.is_empty() {
                // The damage that made a hole may have taken the last frames, too, and no witness
                // tells: no chunk is certain.
                self.touched = RunMap::default();
            }
        }
        (
            LogStart { offset_in_log: ended_at.min(layout.log_bytes), frame_seq: position.next_frame },
            position.next_entry,
        )
    }

    /// Applies the frames that follow a lost one that was durable. Returns whether it passed over
    /// such a frame.
    ///
    /// A frame that shows the loss, but has an earlier number, is passed over: its position is
    /// unknown.
    async fn beyond(&mut self, window: &mut Window<'_>, others: &[FrameAt], position: &mut Position) -> bool {
        let (lost_from, log_bytes) = (position.next_frame, self.superblock.layout.log_bytes);
        let shows_loss = |frame: &&FrameAt| frame.header.start.shows_durable(lost_from, position.next_entry, log_bytes);
        let (earlier, later): (Vec<&FrameAt>, Vec<&FrameAt>) =
            others.iter().filter(shows_loss).partition(|frame| frame.header.start.frame_seq < lost_from);
        for same in later.chunk_by(|a, b| a.header.start.frame_seq == b.header.start.frame_seq) {
            let mut whole = Vec::new();
            for frame in same {
                let found = frames::at(window, self.superblock, frame.offset_in_log).await;
                whole.extend(found.filter(|(header, _)| header.start.first_entry_seq >= position.next_entry));
            }
            // Two frames of one number are of two histories: the one that goes on is right, else
            // none is.
            let right = whole.iter().position(|(header, _)| position.goes_on_with(header));
            let chosen = right.or((whole.len() == 1).then_some(0));
            let Some((header, entries)) = chosen.map(|index| whole.swap_remove(index)) else { continue };
            if right.is_none() {
                let gap = LogGap {
                    first_frame: position.next_frame,
                    frames: Some(header.start.frame_seq - position.next_frame),
                    entries: Some(header.start.first_entry_seq - position.next_entry),
                };
                self.gap(gap, header.start.first_entry_seq);
            }
            self.apply(&header, &entries);
            position.move_to(&header);
        }
        !earlier.is_empty()
    }

    fn gap(&mut self, gap: LogGap, next_entry: u64) {
        self.damage.gaps.push(gap);
        self.suspect_below = next_entry;
        self.touched = RunMap::default();
    }

    fn apply(&mut self, header: &FrameHeader, entries: &[LogEntry]) {
        for (seq, entry) in (header.start.first_entry_seq..).zip(entries) {
            self.replay.apply(seq, entry);
            if self.damage.is_any() {
                self.touch(entry);
            }
        }
    }

    fn touch(&mut self, entry: &LogEntry) {
        let (first, count) = match *entry {
            LogEntry::Map { lba, .. } | LogEntry::MapZero { lba, .. } | LogEntry::Fragment { lba, .. } => (lba, 1),
            LogEntry::Trim { lba, chunk_count, .. } | LogEntry::Invalidate { lba, chunk_count } => (lba, chunk_count),
            // A clean entry may not be the newest.
            LogEntry::Clean { .. } | LogEntry::SlotFreed { .. } | LogEntry::Mode { .. } => return,
        };
        let end = first.saturating_add(count).min(self.replay.chunk_count);
        if first < end {
            self.touched.insert(span(first, end - first));
        }
    }

    /// Returns the chunks whose last entry is surely not lost.
    fn certain(&mut self) -> Option<RunMap> {
        if self.damage.gaps.is_empty() {
            if !self.damage.loses_mappings() {
                return None;
            }
            // The log is whole: the mappings of the rest of the checkpoint are right.
            let design = &self.replay.design;
            for mapping in (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece)) {
                self.touched.insert(span(mapping.lba.0, 1));
            }
            design.export_runs().into_iter().for_each(|run| self.touched.insert(run));
        }
        Some(std::mem::take(&mut self.touched))
    }

    /// Looks at the content of slots that may have been used again without any entry.
    async fn inspect_slots(&mut self) {
        let gaps = !self.damage.gaps.is_empty();
        if !gaps && !self.damage.loses_slots() {
            return;
        }
        if restore_uses(self.flash, self.superblock, &mut self.replay.design).await {
            return;
        }
        for (slot, generation, state, _) in self.replay.design.export_slots() {
            let heard = self.heard.get(slot.0 as usize).copied().unwrap_or(true);
            if heard && !gaps {
                continue;
            }
            let free = matches!(state, SlotState::Free | SlotState::Retired);
            let Some(found) = self.newest_in(slot, !heard && free).await else { continue };
            if is_newer(found, generation) || (free && found == generation) || (free && !heard) {
                self.replay.design.restore_freed(slot, found);
            }
        }
    }

    /// Returns the newest generation of a segment in a slot: at its start, or anywhere in it.
    async fn newest_in(&self, slot: SlotId, anywhere: bool) -> Option<u32> {
        let layout = &self.superblock.layout;
        let start = layout.slot_offset(slot.0).filter(|_| layout.store().lists_records())?;
        let bytes = if anywhere { layout.slot_bytes as usize } else { METADATA_ALIGN_BYTES as usize };
        let mut window = Window::new(self.flash, start, start + bytes as u64);
        let stored = window.bytes(start, bytes).await;
        let mut newest: Option<u32> = None;
        let step = if anywhere { SECTOR_BYTES_MIN as usize } else { bytes };
        for (number, piece) in stored.chunks(step.max(1)).enumerate() {
            if let Ok(header) = decode_header(piece)
                && header.flash_tag == self.superblock.flash_tag()
                && (header.slot, header.offset as usize) == (slot.0, number * step)
                && newest.is_none_or(|newest| is_newer(header.generation, newest))
            {
                newest = Some(header.generation);
            }
        }
        newest
    }
}

/// The position that the log was followed to.
struct Position {
    next_frame: u64,
    next_entry: u64,
    previous: Option<FrameHeader>,
}

impl Position {
    fn goes_on_with(&self, header: &FrameHeader) -> bool {
        header.start.frame_seq == self.next_frame
            && header.start.first_entry_seq == self.next_entry
            && self.previous.as_ref().is_none_or(|previous| header.follows(previous))
    }

    fn move_to(&mut self, header: &FrameHeader) {
        self.next_frame = header.start.frame_seq.saturating_add(1);
        self.next_entry = header.entry_seq_next();
        self.previous = Some(*header);
    }
}

/// Returns the block of this checkpoint at the start of `bytes`: its index, its entries, its size.
fn block_of(bytes: &[u8], flash_tag: u64, pointer: &CheckpointPointer) -> Option<(u32, CheckpointBlock, u64)> {
    let index = bytes.get(BLOCK_INDEX_AT..BLOCK_HEADER_BYTES)?.first_chunk().map(|four| u32::from_le_bytes(*four))?;
    let identity = BlockIdentity { flash_tag, checkpoint_id: pointer.checkpoint_id, block_index: index };
    let (block, bytes) = CheckpointBlock::decode(bytes, &identity).ok()?;
    Some((index, block, (bytes as u64).max(METADATA_ALIGN_BYTES)))
}
