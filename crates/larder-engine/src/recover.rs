//! Opening: from superblock, checkpoint and log back to the state, after a clean end or a crash.
//!
//! In order: (1) The superblock that counts. (2) Its checkpoint, block by block. (3) The log from
//! there on, frame by frame, until one is not whole or not the next. (4) A flush of both devices,
//! so that a later power loss cannot change the state that this opening read. (5) The repair of a
//! damaged superblock twin, and the removal of the clean-shutdown mark, before any other write. (6)
//! On sectors coarser than the superblock's, a checkpoint whose log starts at the next boundary,
//! before any other write. [`open`](crate::open) does (4) to (6).
//!
//! Invariants: no write comes before (5). A structure that does not decode is an error, never a
//! guess. The exception is the end of the log: a crash leaves a frame there that is not whole. A
//! frame behind the end may name an earlier one as durable, and so may superblock and slots. That
//! shows damage, not a crash: flushed writes are lost, and opening is refused.

pub(crate) mod recovered;

use crate::{
    config::Tuning,
    designs::{self, EngineDesign},
    error::EngineError,
    geometry::Geometry,
    log_area::LogArea,
    named_frames::look::{LastSpoken, LikelySlots, Look},
    pending_log::PendingLog,
    recall::recall,
    replay::Replay,
    state::State,
    store, superblock,
    walk::{LogEnd, LogWalk, Reader},
    wear::account::WearAccount,
};
use larder_core::{
    Decider, DesignConfig,
    history::Trust,
    ledger::{FRAGMENT_SHARE, RUN_SHARE},
    limits::{CHECKPOINT_DUE_PERCENT, MAPPINGS_ALWAYS, mappings_beside_checkpoint},
    types::SECTOR_BYTES,
};
use larder_device::{BlockDevice, DeviceInfo};
use larder_format::{CheckpointCounts, Layout, LogStart, Superblock, WriteMode};
pub use recovered::{Recovered, RecoveryReport};

// A design keeps to the room that the layout gives.
const _: () = assert!(MAPPINGS_ALWAYS == larder_format::layout::MAPPINGS_ALWAYS);

/// The smallest RAM budget, in bytes.
pub const RAM_BUDGET_BYTES_MIN: u64 = 1 << 20;

/// Entries that an index never reaches, for each chunk of a volume or each slot.
///
/// They include stale ones, and those of writers in flight. An index has its parts by this limit,
/// so it is not endless.
const ENTRIES_OUT_OF_REACH: u64 = 8;

/// Bytes of RAM that the engine keeps for a slot, beside the design's. They are two flags, and the
/// count of readers that pin it.
pub const ENGINE_SLOT_BYTES: u64 = 6;

/// Returns the sizes of the cache that `superblock` describes, over these devices.
///
/// # Errors
/// [`EngineError::Invalid`] for a flash that is smaller than it was, and for a design that this
/// version cannot run.
pub fn geometry(
    superblock: &Superblock,
    flash: &dyn BlockDevice,
    origin: Option<&dyn BlockDevice>,
) -> Result<Geometry, EngineError> {
    let mut layout = superblock.layout;
    // A device of coarser sectors lacks the last bytes of an odd size; they lie behind the slots.
    if flash.info().size_bytes < layout.end() {
        return Err(EngineError::Invalid(format!(
            "the flash device has {} bytes, fewer than the {} that this cache fills; give it back its size",
            flash.info().size_bytes,
            layout.end()
        )));
    }
    let volume_bytes = superblock.origin.size_bytes;
    let chunk_count = volume_bytes.div_ceil(u64::from(layout.chunk_bytes));
    let design = designs::check_superblock(superblock)?;
    layout.sector_bytes = sector_on(flash.info(), &layout, design.store.sector_bytes_max(&layout))?;
    let affordable = affordable_entries(superblock, design);
    Ok(Geometry {
        chunk_bytes: layout.chunk_bytes as usize,
        volume_bytes,
        chunk_count,
        flash_align: flash.info().sector_bytes as usize,
        origin_align: origin.map_or(SECTOR_BYTES, |origin| origin.info().sector_bytes as usize),
        flash_tag: superblock.flash_tag(),
        index_entries_max: index_limits(superblock, design, chunk_count).mappings_max,
        fragments_max: layout.fragments_max.min(affordable / FRAGMENT_SHARE as u64),
        zero_ranges_max: layout.zero_ranges_max.min(affordable / RUN_SHARE as u64),
        layout,
        store: design.store,
    })
}

/// Returns the padding of log and segments from now on.
///
/// It is the sector that [`create`](mod@crate::create) would take on this device, and at least the
/// superblock's. If the sector is larger than before, the log continues at the next boundary of
/// such sectors. A checkpoint that starts there then precedes all other writes.
///
/// # Errors
/// [`EngineError::Invalid`] for a device whose sectors are larger than `most`, the store's maximum.
fn sector_on(device: &DeviceInfo, layout: &Layout, most: u32) -> Result<u32, EngineError> {
    let least = device.sector_bytes;
    if least > most {
        return Err(EngineError::Invalid(format!(
            "the flash {} has sectors of {least} bytes, and this cache takes at most {most} bytes: detach it on such a device, and make a new cache here",
            device.name
        )));
    }
    let wanted = device.physical_sector_bytes.max(least).checked_next_power_of_two().unwrap_or(most);
    Ok(layout.sector_bytes.max(wanted.min(most)))
}

/// Returns the limits of the indices of the cache that `superblock` describes.
pub fn index_limits(superblock: &Superblock, design: &EngineDesign, chunk_count: u64) -> DesignConfig {
    let layout = &superblock.layout;
    let percent = if superblock.dedup { u64::from(superblock.fp_index_percent) } else { 0 };
    // The limit leaves room in a checkpoint. It is out of reach if the volume has no more chunks.
    let has_all = !layout.short_checkpoints || layout.mappings_max <= MAPPINGS_ALWAYS;
    let is_out_of_reach = layout.mappings_max >= chunk_count && has_all;
    let fits = match is_out_of_reach {
        // A design with lists of addresses wants room for all of them, even before a small volume.
        true => chunk_count.max(layout.slot_count.into()).saturating_mul(ENTRIES_OUT_OF_REACH),
        false => mappings_beside_checkpoint(layout.mappings_max),
    };
    let affordable = affordable_entries(superblock, design);
    DesignConfig {
        slot_count: layout.slot_count,
        mappings_max: fits.min(affordable),
        fp_entries_max: (layout.fp_entries_max * percent / 100).min(affordable),
    }
}

/// Returns the entries that the RAM budget has room for.
fn affordable_entries(superblock: &Superblock, design: &EngineDesign) -> u64 {
    match superblock.ram_budget_bytes {
        0 => u64::MAX,
        // No cache is made with less than the smallest budget; a budget without room would let
        // writers wait for ever.
        budget => budget.max(RAM_BUDGET_BYTES_MIN) / design.index_bytes_max(superblock.layout.chunk_bytes),
    }
}

/// Returns the bytes of RAM that the superblock's slots alone take in an opening.
///
/// Mappings come on top.
///
/// # Errors
/// As [`new_design`].
pub fn tables_bytes(superblock: &Superblock) -> Result<u64, EngineError> {
    let design = designs::check_superblock(superblock)?;
    let layout = &superblock.layout;
    Ok(design.store.slot_tables_bytes(layout) + u64::from(layout.slot_count) * ENGINE_SLOT_BYTES)
}

/// Returns the design that the superblock names, empty.
///
/// # Errors
/// [`EngineError::Invalid`] for a design that this version cannot run.
pub fn new_design(superblock: &Superblock, chunk_count: u64) -> Result<Decider, EngineError> {
    let design = designs::find(superblock.design)?;
    let config = index_limits(superblock, design, chunk_count);
    design.make(config, &designs::layout_of(&superblock.layout, chunk_count))
}

/// Reads superblock, checkpoint and log of `flash`, without a write.
///
/// # Errors
/// Faults of the flash, or an origin that is not the flash's.
pub async fn recover(
    flash: &dyn BlockDevice,
    origin: Option<&dyn BlockDevice>,
    tuning: &Tuning,
) -> Result<Recovered, EngineError> {
    recover_by(Reader::alone(flash), origin, tuning).await
}

/// Recovers as [`recover`], with the workers and the progress of `reader`.
///
/// # Errors
/// As [`recover`].
pub async fn recover_by(
    reader: Reader<'_>,
    origin: Option<&dyn BlockDevice>,
    tuning: &Tuning,
) -> Result<Recovered, EngineError> {
    // (1)
    let mut recovery = Recovery::begin(reader, origin, tuning).await?;
    // (2)
    let start = recovery.read_checkpoint().await?;
    // (3)
    let log = recovery.read_log(start).await?;
    Ok(recovery.end(log, tuning))
}

/// A recovery under way.
struct Recovery<'a> {
    reader: Reader<'a>,
    superblock: Superblock,
    repair: Option<usize>,
    geometry: Geometry,
    replay: Replay,
    spoken: LastSpoken,
    report: RecoveryReport,
}

impl<'a> Recovery<'a> {
    /// Reads the superblock, and checks that flash and origin are those that it describes.
    async fn begin(reader: Reader<'a>, origin: Option<&dyn BlockDevice>, tuning: &Tuning) -> Result<Self, EngineError> {
        let (superblock, repair) = superblock::read(reader.flash).await?;
        let geometry = geometry(&superblock, reader.flash, origin)?;
        if let Some(origin) = origin {
            check_origin(&superblock, origin, tuning.accept_grown_origin)?;
        }
        // A refusal comes before any write.
        WearAccount::new(&superblock, tuning.wear, tuning.wall_seconds)?;
        let design = new_design(&superblock, geometry.chunk_count)?;
        let replay = Replay::new(design, geometry.chunk_count, &superblock);
        let report = RecoveryReport { clean_shutdown: superblock.clean_shutdown, ..RecoveryReport::default() };
        if let Some(progress) = reader.progress {
            let checkpoint_bytes = superblock.checkpoint.as_ref().map_or(0, |pointer| pointer.bytes);
            let log_bytes =
                if superblock.clean_shutdown { 0 } else { superblock.layout.log_bytes * CHECKPOINT_DUE_PERCENT / 100 };
            progress.expect(checkpoint_bytes + log_bytes);
        }
        Ok(Recovery { reader, superblock, repair, geometry, replay, spoken: LastSpoken::default(), report })
    }

    /// Applies the checkpoint, if there is one. Returns the start of the log behind it, and the
    /// sequence number of the first entry there.
    async fn read_checkpoint(&mut self) -> Result<(LogStart, u64), EngineError> {
        let Recovery { reader, superblock, replay, spoken, report, .. } = self;
        let Some(pointer) = &superblock.checkpoint else {
            replay.begin(&CheckpointCounts::default());
            return Ok((superblock.log_start, superblock.entry_seq_next));
        };
        let header = reader.checkpoint_header(superblock, pointer).await?;
        replay.begin(&header.counts);
        reader
            .checkpoint_blocks(superblock, pointer, &header, &mut |_, _, _, block| {
                spoken.note_block(&block);
                replay.block(block);
            })
            .await?;
        recall(*reader, superblock, replay).await;
        report.checkpoint_mappings = header.counts.mappings + header.counts.fragments;
        report.checkpoint_bytes = header.total_bytes;
        Ok((header.log_start, header.entry_seq_next))
    }

    /// Applies the log from `start` on, up to its end. Returns the log that goes on there.
    ///
    /// # Errors
    /// [`EngineError::LogDamaged`] if the log was durable beyond that end.
    async fn read_log(&mut self, start: (LogStart, u64)) -> Result<PendingLog, EngineError> {
        let log_bytes = self.superblock.layout.log_bytes;
        let mut area = LogArea::new(log_bytes, start.0.offset_in_log, 0, start.0.frame_seq);
        let (mut next_seq, mut previous_crc) = (start.1, 0);
        let mut walk = LogWalk::new(self.reader, &self.superblock, start);
        let end = walk
            .to_the_end(&mut |_, header, entries| {
                self.replay.frame(next_seq, entries);
                self.spoken.note(entries);
                next_seq += entries.len() as u64;
                area.advance(header.frame_bytes.into());
                previous_crc = header.crc;
            })
            .await?;
        // Only frames of its own commit follow the checkpoint of a clean end: no client wrote any
        // more. After a crash, the log is whole, or the opening fails. The older of two twins does
        // not know the later frames.
        self.replay.end(match (self.is_surely_clean(), self.repair) {
            (true, _) => Some(Trust::Whole),
            (false, None) => Some(Trust::WithLog),
            (false, Some(_)) => None,
        });
        if !self.is_surely_clean() {
            self.check_end_of_log(&mut walk, &end).await?;
        }
        if let Some(progress) = self.reader.progress {
            progress.finish();
        }
        area.continue_in_sectors_of(self.geometry.layout.sector_bytes.into());
        self.report.log_frames = end.frames;
        self.report.log_entries = end.entries;
        self.report.log_bytes = end.bytes;
        Ok(PendingLog::new(next_seq, area, previous_crc))
    }

    /// Returns whether the last end was surely clean. The mark of one twin alone proves nothing if
    /// the other is damaged or differs: it may be of an earlier end.
    fn is_surely_clean(&self) -> bool {
        self.superblock.clean_shutdown && self.repair.is_none()
    }

    /// Checks that no frame behind the log's end was durable, by frames, superblock and slots.
    async fn check_end_of_log(&self, walk: &mut LogWalk<'_>, end: &LogEnd) -> Result<(), EngineError> {
        let lost = end.next_frame_seq;
        if let Some((found, offset)) = walk.lost_frame().await? {
            let flash_offset = self.superblock.layout.log_offset + offset;
            return Err(EngineError::LogDamaged { lost, found, flash_offset, is_named: false });
        }
        let likely = Look::Likely(LikelySlots::of(&self.spoken, &self.replay.design));
        let named = store::newest_named(self.geometry.store, self.reader, &self.superblock, likely).await;
        if let Some(named) = named.filter(|named| named.frame_seq >= end.next_frame_seq) {
            let (found, flash_offset) = (named.frame_seq, named.flash_offset);
            return Err(EngineError::LogDamaged { lost, found, flash_offset, is_named: true });
        }
        Ok(())
    }

    /// Returns the state that was read.
    fn end(self, log: PendingLog, tuning: &Tuning) -> Recovered {
        let Recovery { mut superblock, repair, geometry, replay, report, .. } = self;
        let is_incomplete = replay.is_incomplete();
        let Replay { design, mut mode, .. } = replay;
        let dirty = design.dirty_counts();
        if dirty.chunks + dirty.runs > 0 {
            // A switch of modes that was not reported done may have reached one twin: with dirty
            // data it did not happen.
            mode = WriteMode::Back;
            superblock.mode = mode;
        }
        let state = State::new(design, mode, superblock.layout.slot_count, log, tuning);
        Recovered { superblock, repair, state, geometry, report, is_incomplete }
    }
}

fn check_origin(superblock: &Superblock, origin: &dyn BlockDevice, may_grow: bool) -> Result<(), EngineError> {
    let (expected, found) = (superblock.origin.size_bytes, origin.info().size_bytes);
    if found < expected {
        return Err(EngineError::WrongOrigin(format!(
            "the origin {} has {found} bytes, fewer than the {expected} at the creation of this cache: give back the origin that belongs to it",
            origin.info().name
        )));
    }
    if found > expected && !may_grow {
        return Err(EngineError::WrongOrigin(format!(
            "the origin {} has {found} bytes, more than the {expected} at the creation of this cache: detach it, and make one for the larger origin",
            origin.info().name
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, create, designs::ENGINE_DESIGNS};
    use larder_core::limits::mappings_in_short_checkpoint;
    use larder_device::{driver::block_on, ram::RamDevice};

    /// Returns the sector of a design's flash on a device with this sector and physical sector.
    fn on(design: &EngineDesign, layout: &Layout, sectors: (u32, u32)) -> Result<u32, EngineError> {
        let mut info = RamDevice::new("flash", 1 << 20, 512).info().clone();
        (info.sector_bytes, info.physical_sector_bytes) = sectors;
        sector_on(&info, layout, design.store.sector_bytes_max(layout))
    }

    fn made(design: &EngineDesign) -> Layout {
        let mut options = CreateOptions { design: design.id, ..CreateOptions::default() };
        design.fit(&mut options);
        let flash = RamDevice::new("flash", 64 << 20, 512);
        block_on(create(&flash, 64 << 20, &options)).expect("created").layout
    }

    #[test]
    fn a_design_keeps_to_the_room_that_the_layout_gives() {
        let mut mappings = 1;
        while mappings < 1 << 40 {
            let room = larder_format::layout::in_short_checkpoint(mappings);
            let of_design = mappings_in_short_checkpoint(mappings_beside_checkpoint(mappings));
            assert!(0 < of_design && of_design <= room && room <= mappings, "{mappings}");
            mappings += mappings / 7 + 1;
        }
    }

    #[test]
    fn a_flash_is_written_in_the_coarser_of_its_sector_and_the_devices() {
        for design in ENGINE_DESIGNS {
            let (mut layout, name) = (made(design), design.name);
            layout.sector_bytes = 512;
            for (sectors, expected) in
                [((512, 512), 512), ((512, 2048), 2048), ((512, 4096), 4096), ((4096, 4096), 4096)]
            {
                assert_eq!(on(design, &layout, sectors).ok(), Some(expected), "{name} on {sectors:?}");
            }
            assert_eq!(on(design, &layout, (512, 1 << 20)).ok(), Some(4096), "{name}: no more than the format has");
            let refused = on(design, &layout, (8192, 8192)).expect_err("sectors that are too large").to_string();
            assert!(refused.contains("8192 bytes") && refused.contains("at most 4096"), "{refused}");
            layout.sector_bytes = 4096;
            assert_eq!(on(design, &layout, (512, 512)).ok(), Some(4096), "{name}: finer sectors change nothing");
        }
    }

    #[test]
    fn subchunks_never_share_a_sector() {
        let mut tried = 0;
        for design in ENGINE_DESIGNS.iter().filter(|design| made(design).bucket_slots > 0) {
            tried += 1;
            let layout = Layout { slot_bytes: 1024, sector_bytes: 512, ..made(design) };
            assert_eq!(on(design, &layout, (512, 4096)).ok(), Some(1024), "what the device writes whole is its affair");
            let refused = on(design, &layout, (4096, 4096)).expect_err("four subchunks in a sector").to_string();
            assert!(refused.contains("4096 bytes") && refused.contains("at most 1024 bytes"), "{refused}");
        }
        assert!(tried > 0, "a design has subchunks");
    }
}
