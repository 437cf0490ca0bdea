//! The checkpoint: all mappings at once, so that the metadata log before it can be reused and a
//! restart is short.
//!
//! In order: (1) The position of the log is noted, and the export begins, while no entry is
//! between decision and queue.
//! (2) Slots, mappings, fragments, trimmed runs, fingerprints and the design's other data are
//! exported piece by piece. Operations go on meanwhile. The pieces go to the area that the last
//! checkpoint does not use. (3) In write-through and write-around the origin is flushed: pieces
//! name clean mappings that no log has yet. Then all decisions so far are committed. So each
//! mapping in a piece is durable, or durably forgotten. (4) The header is written, with a flush
//! before and after. (5) The superblock twins point to it, and name the newest frame. (6) The log
//! before the noted position is free. (7) If no frame lies behind that position, one without
//! entries is written and named. A crash before (5) leaves the last checkpoint and its log.
//!
//! The pieces are of different moments. Replaying the log from the noted position over them ends in
//! the right state. For each address the last entry after the position wins; without such an entry,
//! the piece is right.
//!
//! Invariants: one checkpoint at a time.

mod origin_mark;

use crate::{
    damaged::DamagedRecords,
    error::EngineError,
    geometry::Geometry,
    places::to_format,
    refused::{Patience, Refused},
    segment::weu_class,
    shared::Shared,
    state::State,
    state_lock::StateGuard,
    sync::yield_now,
};
use larder_core::{
    Decider, Lookup, StreamClass,
    design::ExportedMapping,
    history::{Draft, PAGE_BYTES},
    ranges::Run,
    slots::SlotState,
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_format::{
    CheckpointEncoder, CheckpointHeader, CheckpointPointer, DesignPage, FingerprintEntry, FragmentEntry, Layout,
    LogStart, MappingEntry, OriginState, SlotEntry, Superblock, WriteMode, ZeroRange,
    checkpoint::{CHECKPOINT_HEADER_BYTES, DESIGN_PAGE_BYTES_MAX},
};
use std::{
    ops::{Deref, DerefMut, Range},
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

const _: () = assert!(PAGE_BYTES == DESIGN_PAGE_BYTES_MAX);

/// Bytes of blocks to gather before a write.
const WRITE_BYTES: usize = 1 << 20;
/// Mappings that are exported under one hold of the lock, unless one piece alone has more.
const MAPPINGS_A_HOLD: usize = 1 << 10;
/// Limit of pieces under one hold: each may take long to look through and yield no mapping.
const PIECES_A_HOLD: usize = 16;
/// Share of the log in use from which on a checkpoint is due, in percent.
const DUE_PERCENT: u64 = 50;
/// Pause after a checkpoint failed.
const RETRY: Duration = Duration::from_millis(200);
/// Failed checkpoints in a row, for the flash's sake, after which the flash counts as failed.
const TRIES_MAX: u32 = 3;

/// The area of a checkpoint, its number, and the start of the replay behind it.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointTarget {
    /// The area that the superblock does not name.
    pub area: u8,
    /// One more than the last.
    pub checkpoint_id: u64,
    /// The position of the next frame.
    pub log_start: LogStart,
    /// The sequence number of the first entry there.
    pub entry_seq: u64,
}

impl CheckpointTarget {
    /// Returns the target that follows the checkpoint that `superblock` names.
    pub fn after(superblock: &Superblock, log_start: LogStart, entry_seq: u64) -> Self {
        let (area, checkpoint_id) = match &superblock.checkpoint {
            Some(last) => (1 - last.area.min(1), last.checkpoint_id + 1),
            None => (0, 1),
        };
        CheckpointTarget { area, checkpoint_id, log_start, entry_seq }
    }

    fn offset(&self, layout: &Layout) -> u64 {
        layout.checkpoint_offset[usize::from(self.area)]
    }
}

/// Gathers blocks and writes them in large pieces.
struct AreaWriter<'a> {
    flash: &'a dyn BlockDevice,
    at: u64,
    end: u64,
    gathered: Vec<u8>,
}

impl AreaWriter<'_> {
    async fn put(&mut self, block: Option<Vec<u8>>) -> Result<(), EngineError> {
        if let Some(block) = block {
            self.gathered.extend_from_slice(&block);
        }
        if self.gathered.len() >= WRITE_BYTES { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<(), EngineError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let bytes = self.gathered.len() as u64;
        if self.at + bytes > self.end {
            return Err(EngineError::CheckpointTooLarge);
        }
        let buf = IoBuf::copy_of(&self.gathered).freeze();
        self.flash.write(self.at, buf, WriteFlags::default()).await.map_err(EngineError::Flash)?;
        self.at += bytes;
        self.gathered.clear();
        Ok(())
    }
}

/// Writes the blocks of a checkpoint of `design`, piece by piece. Returns their header. The caller
/// has begun the export when it noted the position of the log.
///
/// Each call of `design` locks it for one piece, or for some small ones. The fingerprints of
/// `damaged` records are left out: a restart must not find their content either. `history` gives
/// the design's other data.
///
/// # Errors
/// Those of the device, and [`EngineError::CheckpointTooLarge`].
pub async fn write_blocks<D: DerefMut<Target = Decider>>(
    flash: &dyn BlockDevice,
    geometry: &Geometry,
    target: &CheckpointTarget,
    damaged: &DamagedRecords,
    design: impl Fn() -> D,
    history: impl Future<Output = Vec<u8>>,
) -> Result<CheckpointHeader, EngineError> {
    let layout = &geometry.layout;
    let start = target.offset(layout);
    let mut writer = AreaWriter {
        flash,
        at: start + CHECKPOINT_HEADER_BYTES as u64,
        end: start + layout.checkpoint_area_bytes,
        gathered: Vec::new(),
    };
    let CheckpointTarget { checkpoint_id, log_start, entry_seq, .. } = *target;
    let mut encoder = CheckpointEncoder::new(geometry.flash_tag, checkpoint_id, log_start, entry_seq);
    let next_slots = || design().next_slots();
    while let Some(slots) = next_slots() {
        for (slot, generation, state, class) in slots {
            let entry = slot_entry(slot.0, generation, state, class);
            writer.put(encoder.push_slot(entry)?).await?;
        }
        yield_now().await;
    }
    let pieces = design().export_pieces();
    let mut fragments = Vec::new();
    let mut left = 0..pieces;
    while !left.is_empty() {
        let mappings = next_mappings(&design(), &mut left);
        let is_empty = mappings.is_empty();
        for mapping in mappings {
            let (lba, dirty) = (mapping.lba.0, mapping.dirty);
            let entry = match mapping.lookup {
                Lookup::Zero => MappingEntry { lba, place: None, dirty, duplicate: false },
                Lookup::Chunk { place, duplicate } => {
                    MappingEntry { lba, place: Some(to_format(&place)), dirty, duplicate }
                }
                Lookup::Fragment { place, sectors } => {
                    let place = to_format(&place);
                    fragments.push(FragmentEntry { lba, place, dirty, sectors: sectors.to_bytes() });
                    continue;
                }
                Lookup::Miss => continue,
            };
            writer.put(encoder.push_mapping(entry)?).await?;
        }
        if !is_empty {
            yield_now().await;
        }
    }
    for fragment in fragments {
        writer.put(encoder.push_fragment(fragment)?).await?;
    }
    let runs = design().export_runs();
    for run in runs {
        let Run { first, count, no_hole, advisory, .. } = run;
        let range = ZeroRange { lba: first.0, chunk_count: count, dirty: true, no_hole, advisory };
        writer.put(encoder.push_zero_range(range)?).await?;
    }
    let next_fingerprints = || design().next_fingerprints();
    while let Some(known) = next_fingerprints() {
        for (fingerprint, place) in known.into_iter().filter(|(_, place)| !damaged.has(place)) {
            let entry = FingerprintEntry { fingerprint: fingerprint.0, place: to_format(&place) };
            writer.put(encoder.push_fingerprint(entry)?).await?;
        }
        yield_now().await;
    }
    let pages = design().page_count();
    for number in 0..pages {
        let bytes = design().export_page(number);
        writer.put(encoder.push_design_page(DesignPage::new(number as u32, bytes)?)?).await?;
    }
    let max = layout.checkpoint_counts_max();
    let history = history.await;
    // The history goes whole or not at all: without it, only the order is lost.
    let history = history.chunks(PAGE_BYTES);
    if history.len() as u64 <= max.design_pages {
        for (number, bytes) in history.enumerate() {
            writer.put(encoder.push_design_page(DesignPage::new(number as u32, bytes.to_vec())?)?).await?;
        }
    }
    let counts = encoder.counts();
    if counts.mappings > max.mappings || counts.fragments > max.fragments || counts.zero_ranges > max.zero_ranges {
        return Err(EngineError::CheckpointTooLarge);
    }
    let (last, header) = encoder.finish();
    writer.put(last).await?;
    writer.write().await?;
    Ok(header)
}

/// Returns the mappings of the next piece, or of as many small pieces as one hold of the lock is
/// worth.
fn next_mappings(design: &Decider, left: &mut Range<usize>) -> Vec<ExportedMapping> {
    let mut mappings = Vec::new();
    for piece in left.by_ref().take(PIECES_A_HOLD) {
        mappings.append(&mut design.export_mappings(piece));
        if mappings.len() >= MAPPINGS_A_HOLD {
            break;
        }
    }
    mappings
}

/// Writes the header, with FUA; the caller has flushed the blocks. Returns the pointer for the
/// superblock.
///
/// # Errors
/// Those of the device.
pub async fn write_header(
    flash: &dyn BlockDevice,
    geometry: &Geometry,
    target: &CheckpointTarget,
    header: &CheckpointHeader,
) -> Result<CheckpointPointer, EngineError> {
    let header_block = IoBuf::copy_of(&header.encode()).freeze();
    flash
        .write(target.offset(&geometry.layout), header_block, WriteFlags { fua: true })
        .await
        .map_err(EngineError::Flash)?;
    let CheckpointTarget { area, checkpoint_id, .. } = *target;
    Ok(CheckpointPointer { area, checkpoint_id, bytes: header.total_bytes })
}

/// The design, locked with all of the state.
struct LockedDesign<'a>(StateGuard<'a, State>);

impl Deref for LockedDesign<'_> {
    type Target = Decider;
    fn deref(&self) -> &Decider {
        &self.0.design
    }
}

impl DerefMut for LockedDesign<'_> {
    fn deref_mut(&mut self) -> &mut Decider {
        &mut self.0.design
    }
}

impl Shared {
    /// Runs the checkpointer's task until the cache closes.
    pub(crate) async fn checkpointer(self: Arc<Self>) {
        let mut tries = 0;
        let mut refused: Option<(Patience, Refused<'_>)> = None;
        loop {
            let wanted = self.signals.checkpoint_wanted.listen();
            if self.is_closing() {
                return;
            }
            let (idle, crowded) = {
                let state = self.state.lock();
                let (used, crowded) = (state.log.area().used_percent(), self.log_is_crowded(&state));
                let due = used >= DUE_PERCENT || crowded && self.checkpoint_helps(&state);
                (!due || state.flash.is_failed(), crowded && !state.flash.is_failed())
            };
            if idle {
                // If other tasks' reservations crowd the log, a checkpoint frees nothing; their end
                // wakes the waiting tasks. The committer may have asked for a checkpoint before
                // some of them ended.
                if !crowded {
                    self.signals.checkpointed.notify();
                } else {
                    self.signals.commit_wanted.notify();
                }
                wanted.await;
                continue;
            }
            self.state.lock().log.try_checkpoint();
            match self.checkpoint(false).await {
                Ok(()) => (tries, refused) = (0, None),
                Err(error) => {
                    self.counters.checkpoint_errors.fetch_add(1, Relaxed);
                    tries += 1;
                    refused = self.wait_for_room(&error, refused);
                    self.note_failed_checkpoint(error, tries >= TRIES_MAX && refused.is_none());
                    let _ = self.runtime.delay(RETRY).await;
                }
            }
            self.signals.checkpointed.notify();
        }
    }

    /// Makes a checkpoint wait, as any write does, while the flash has no room for it.
    fn wait_for_room<'a>(
        &'a self,
        error: &EngineError,
        refused: Option<(Patience, Refused<'a>)>,
    ) -> Option<(Patience, Refused<'a>)> {
        let EngineError::Flash(error) = error else { return None };
        let (mut patience, refused) = match refused {
            Some((patience, refused)) => (patience, Some(refused)),
            None => (Patience::begin(self), None),
        };
        let waits = error.kind.is_shortage() && patience.is_left(self, error);
        waits.then(|| (patience, refused.unwrap_or_else(|| Refused::note(self, error))))
    }

    /// Notes a failed checkpoint, and fails the flash after the last try.
    ///
    /// Without checkpoints the log fills up, and no entry becomes durable. Tasks that wait for a
    /// checkpoint wait until the last try. The next one may succeed, and without the flash writes
    /// go past it.
    fn note_failed_checkpoint(&self, error: EngineError, last_try: bool) {
        match error {
            EngineError::Flash(error) if last_try => {
                self.fail_flash(error);
            }
            EngineError::Flash(_) => {}
            // A failed flush of the origin, a checkpoint that is too large, or the cache's end: not
            // the flash's fault.
            error => self.state.lock().log.checkpoint_fails(error),
        }
    }

    /// Gathers the design's other data piece by piece, while operations go on.
    async fn history(&self) -> Vec<u8> {
        let draft = self.state.lock().design.begin_history();
        let Some(mut draft) = draft else { return Vec::new() };
        while self.add_to_history(&mut draft) {
            yield_now().await;
        }
        draft.finish()
    }

    fn add_to_history(&self, draft: &mut Draft) -> bool {
        let mut state = self.state.lock();
        let State { design, origin_changes, .. } = &mut *state;
        design.export_history(draft, &|lba| origin_changes.forbids_clean_copy(lba))
    }

    /// Writes a checkpoint; with `clean_shutdown`, one that marks a clean end.
    ///
    /// # Errors
    /// Those of the devices; the last checkpoint is in force then.
    pub async fn checkpoint(self: &Arc<Self>, clean_shutdown: bool) -> Result<(), EngineError> {
        let _turn = self.orders.checkpoint().granted().await;
        if self.superblock.is_uncertain() {
            // A twin may name the checkpoint that failed last, in the area that this one is about
            // to overwrite.
            self.update_superblock(|_| {}).await?;
        }
        // (1)
        let (position, entry_seq) = {
            let mut state = self.state.lock();
            state.design.begin_export();
            state.unlogged.export_begins();
            (state.log.area().position(), state.log.first_seq())
        };
        let log_start = LogStart { offset_in_log: position.offset, frame_seq: position.frame_seq };
        let target = CheckpointTarget::after(&self.superblock.get(), log_start, entry_seq);
        // (2)
        let design = || LockedDesign(self.state.lock());
        let damaged = self.state.lock().damaged_records();
        let header = write_blocks(&*self.flash, &self.geometry, &target, &damaged, design, self.history()).await;
        self.state.lock().unlogged.export_ends();
        let header = header?;
        self.counters.flash_metadata_bytes_written.fetch_add(header.total_bytes, Relaxed);
        // (3)
        if self.mode.get() != WriteMode::Back {
            self.flush_origin().await.map_err(|error| self.origin_failed(error, false))?;
        }
        if clean_shutdown {
            // An end is tried once. So the next opening need not make the frame.
            let mut state = self.state.lock();
            if !self.log_is_crowded(&state) {
                state.log.want_frame(position.frame_seq);
            }
        }
        self.commit_everything(true).await?;
        let durable_frame = self.durable_frame();
        // (4)
        self.flush_flash().await.map_err(EngineError::Flash)?;
        let pointer = write_header(&*self.flash, &self.geometry, &target, &header).await?;
        // No more write goes to the origin.
        let mark = if clean_shutdown { self.mark_of_origin().await } else { None };
        // (5)
        self.update_superblock(|superblock| {
            superblock.checkpoint = Some(pointer);
            superblock.log_start = log_start;
            superblock.entry_seq_next = entry_seq;
            superblock.note_durable_frame(durable_frame);
            superblock.clean_shutdown = clean_shutdown;
            // The log starts at such a boundary now.
            superblock.layout.sector_bytes = self.geometry.layout.sector_bytes;
            superblock.origin_state = mark.map(|mark| OriginState {
                sequence: superblock.sequence,
                size_bytes: mark.size_bytes,
                epoch: mark.epoch,
                changes: mark.changes,
            });
        })
        .await?;
        // (6)
        {
            let mut state = self.state.lock();
            state.log.checkpoint_is_durable(&position);
            state.design.export_is_durable();
        }
        self.counters.checkpoints.fetch_add(1, Relaxed);
        self.signals.checkpointed.notify();
        // (7) Not before (6): tries of a checkpoint that fails take no room in the log. If it
        // fails, the next checkpoint or opening makes the frame.
        if !clean_shutdown {
            let _ = self.name_a_frame().await;
        }
        Ok(())
    }
}

fn slot_entry(slot: u32, generation: u32, state: SlotState, class: StreamClass) -> SlotEntry {
    let (state, generation) = match state {
        // A free slot carries its last generation; the next use is one more.
        SlotState::Free | SlotState::Retired => (larder_format::SlotState::Free, generation.wrapping_sub(1)),
        SlotState::Open => (larder_format::SlotState::Open, generation),
        SlotState::Sealed | SlotState::Evicting => (larder_format::SlotState::Sealed, generation),
    };
    SlotEntry { slot, generation, state, class: weu_class(class) }
}
