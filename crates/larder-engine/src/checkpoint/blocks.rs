//! A checkpoint on flash: the area that it fills, its blocks, and its header.
//!
//! The blocks hold slots, mappings, fragments, trimmed runs, fingerprints, the design's pages and
//! its history, in this order.
//!
//! Invariants: the design is locked for one piece, or for some small ones, and never across a
//! write. The blocks stay within their area.
//!
//! It does not flush, and leaves the moment of a checkpoint to [`checkpoint`](crate::checkpoint).

use crate::{
    damaged::DamagedRecords, error::EngineError, geometry::Geometry, places::to_format, segment::weu_class,
    sync::yield_now,
};
use larder_core::{
    Decider, Lookup, StreamClass, design::ExportedMapping, history::PAGE_BYTES, ranges::Run, slots::SlotState,
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_format::{
    CheckpointCounts, CheckpointEncoder, CheckpointHeader, CheckpointPointer, DesignPage, FingerprintEntry,
    FragmentEntry, Layout, LogStart, MappingEntry, SlotEntry, Superblock, ZeroRange,
    checkpoint::{CHECKPOINT_HEADER_BYTES, DESIGN_PAGE_BYTES_MAX},
};
use std::ops::{DerefMut, Range};

const _: () = assert!(PAGE_BYTES == DESIGN_PAGE_BYTES_MAX);

/// Bytes of blocks to gather before a write.
const WRITE_BYTES: usize = 1 << 20;
/// Mappings that are exported under one hold of the lock, unless one piece alone has more.
const MAPPINGS_A_HOLD: usize = 1 << 10;
/// Limit of pieces under one hold: each may take long to look through and yield no mapping.
const PIECES_A_HOLD: usize = 16;

/// The area of a checkpoint, its number, and the start of the replay behind it.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointTarget {
    /// The area that the superblock does not name.
    pub area: u8,
    /// The number of the last checkpoint, plus one.
    pub checkpoint_id: u64,
    /// The position of the next frame.
    pub log_start: LogStart,
    /// The sequence number of the first entry there.
    pub entry_seq: u64,
    /// The sequence number from which on the log behind the checkpoint has each dirty mapping.
    ///
    /// The checkpoint leaves those out. So it has as many as were dirty when it began, at most.
    pub logged_from: u64,
}

impl CheckpointTarget {
    /// Returns the target that follows the checkpoint that `superblock` names.
    pub fn after(superblock: &Superblock, log_start: LogStart, entry_seq: u64) -> Self {
        let (area, checkpoint_id) = match &superblock.checkpoint {
            Some(last) => (1 - last.area.min(1), last.checkpoint_id + 1),
            None => (0, 1),
        };
        CheckpointTarget { area, checkpoint_id, log_start, entry_seq, logged_from: entry_seq }
    }

    fn offset(&self, layout: &Layout) -> u64 {
        layout.checkpoint_offset[usize::from(self.area)]
    }
}

/// Writes the blocks of a checkpoint of `design`, piece by piece. Returns their header. The caller
/// has begun the export when it noted the position of the log.
///
/// Each call of `design` locks it for one piece, or for some small ones. The fingerprints of
/// `damaged` records are left out: a restart must not find their content either. `history` gives
/// the design's other data, in so many pages at most.
///
/// # Errors
/// Errors of the device, and [`EngineError::CheckpointTooLarge`].
pub async fn write_blocks<D: DerefMut<Target = Decider>>(
    flash: &dyn BlockDevice,
    geometry: &Geometry,
    target: &CheckpointTarget,
    damaged: &DamagedRecords,
    design: impl Fn() -> D,
    history: impl AsyncFnOnce(u64) -> Vec<u8>,
) -> Result<CheckpointHeader, EngineError> {
    let max = geometry.layout.checkpoint_counts_max();
    let mut blocks = BlockWriter::begin(flash, geometry, target);
    blocks.put_slots(&design).await?;
    let fragments = blocks.put_mappings(&design, target.logged_from).await?;
    blocks.put_fragments(fragments).await?;
    let runs = design().export_runs();
    blocks.put_runs(runs).await?;
    blocks.put_fingerprints(&design, damaged).await?;
    let pages = design().page_count();
    for number in 0..pages {
        let bytes = design().export_page(number);
        blocks.put_page(number, bytes).await?;
    }
    let room = max.design_pages.min(blocks.pages_that_fit(&geometry.layout));
    // The history goes whole or not at all: without it, only the order is lost.
    let history = history(room).await;
    let history = history.chunks(PAGE_BYTES);
    if history.len() as u64 <= room {
        for (number, bytes) in history.enumerate() {
            blocks.put_page(number, bytes.to_vec()).await?;
        }
    }
    blocks.end(&max).await
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

/// Makes blocks of entries, kind by kind, and puts them into their area.
struct BlockWriter<'a> {
    area: AreaWriter<'a>,
    encoder: CheckpointEncoder,
}

impl<'a> BlockWriter<'a> {
    fn begin(flash: &'a dyn BlockDevice, geometry: &Geometry, target: &CheckpointTarget) -> Self {
        let start = target.offset(&geometry.layout);
        let area = AreaWriter {
            flash,
            at: start + CHECKPOINT_HEADER_BYTES as u64,
            end: start + geometry.layout.checkpoint_area_bytes,
            gathered: Vec::new(),
        };
        let CheckpointTarget { checkpoint_id, log_start, entry_seq, .. } = *target;
        BlockWriter { area, encoder: CheckpointEncoder::new(geometry.flash_tag, checkpoint_id, log_start, entry_seq) }
    }

    async fn put_slots<D: DerefMut<Target = Decider>>(&mut self, design: &impl Fn() -> D) -> Result<(), EngineError> {
        let next_slots = || design().next_slots();
        while let Some(slots) = next_slots() {
            for (slot, generation, state, class) in slots {
                self.area.put(self.encoder.push_slot(slot_entry(slot.0, generation, state, class))?).await?;
            }
            yield_now().await;
        }
        Ok(())
    }

    /// Puts the mappings of whole chunks and zeroes. Returns the fragments, which follow.
    async fn put_mappings<D: DerefMut<Target = Decider>>(
        &mut self,
        design: &impl Fn() -> D,
        logged_from: u64,
    ) -> Result<Vec<FragmentEntry>, EngineError> {
        let pieces = design().export_pieces();
        let mut fragments = Vec::new();
        let mut left = 0..pieces;
        while !left.is_empty() {
            let mappings = next_mappings(&design(), &mut left, logged_from);
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
                self.area.put(self.encoder.push_mapping(entry)?).await?;
            }
            if !is_empty {
                yield_now().await;
            }
        }
        Ok(fragments)
    }

    async fn put_fragments(&mut self, fragments: Vec<FragmentEntry>) -> Result<(), EngineError> {
        for fragment in fragments {
            self.area.put(self.encoder.push_fragment(fragment)?).await?;
        }
        Ok(())
    }

    async fn put_runs(&mut self, runs: Vec<Run>) -> Result<(), EngineError> {
        for run in runs {
            let Run { first, count, no_hole, advisory, .. } = run;
            let range = ZeroRange { lba: first.0, chunk_count: count, dirty: true, no_hole, advisory };
            self.area.put(self.encoder.push_zero_range(range)?).await?;
        }
        Ok(())
    }

    async fn put_fingerprints<D: DerefMut<Target = Decider>>(
        &mut self,
        design: &impl Fn() -> D,
        damaged: &DamagedRecords,
    ) -> Result<(), EngineError> {
        let next_fingerprints = || design().next_fingerprints();
        while let Some(known) = next_fingerprints() {
            for (fingerprint, place) in known.into_iter().filter(|(_, place)| !damaged.has(place)) {
                let entry = FingerprintEntry { fingerprint: fingerprint.0, place: to_format(&place) };
                self.area.put(self.encoder.push_fingerprint(entry)?).await?;
            }
            yield_now().await;
        }
        Ok(())
    }

    /// Returns how many pages still fit into the area.
    fn pages_that_fit(&self, layout: &Layout) -> u64 {
        self.encoder.pages_that_fit(layout.checkpoint_area_bytes)
    }

    /// Puts a page of the design, or of its history.
    async fn put_page(&mut self, number: usize, bytes: Vec<u8>) -> Result<(), EngineError> {
        self.area.put(self.encoder.push_design_page(DesignPage::new(number as u32, bytes)?)?).await
    }

    /// Writes the last blocks, if the checkpoint is not too large. Returns the header.
    async fn end(mut self, max: &CheckpointCounts) -> Result<CheckpointHeader, EngineError> {
        let counts = self.encoder.counts();
        if counts.mappings > max.mappings || counts.fragments > max.fragments || counts.zero_ranges > max.zero_ranges {
            return Err(EngineError::CheckpointTooLarge);
        }
        let (last, header) = self.encoder.finish();
        self.area.put(last).await?;
        self.area.write().await?;
        Ok(header)
    }
}

/// Returns the mappings of the next piece, or of as many small pieces as one hold of the lock is
/// worth. Dirty ones that the log has from `logged_from` on are none of them.
fn next_mappings(design: &Decider, left: &mut Range<usize>, logged_from: u64) -> Vec<ExportedMapping> {
    let is_logged = |mapping: &ExportedMapping| design.dirty_seq(mapping.lba).is_some_and(|seq| seq >= logged_from);
    let mut mappings = Vec::new();
    for piece in left.by_ref().take(PIECES_A_HOLD) {
        let exported = design.export_mappings(piece);
        mappings.extend(exported.into_iter().filter(|mapping| !mapping.dirty || !is_logged(mapping)));
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
/// Errors of the device.
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

fn slot_entry(slot: u32, generation: u32, state: SlotState, class: StreamClass) -> SlotEntry {
    let (state, generation) = match state {
        // A free slot carries its last generation; the next use is one more.
        SlotState::Free | SlotState::Retired => (larder_format::SlotState::Free, generation.wrapping_sub(1)),
        SlotState::Open => (larder_format::SlotState::Open, generation),
        SlotState::Sealed | SlotState::Evicting => (larder_format::SlotState::Sealed, generation),
    };
    SlotEntry { slot, generation, state, class: weu_class(class) }
}
