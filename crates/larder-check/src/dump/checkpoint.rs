//! Printing the content of a checkpoint area, and the entries of one of its blocks.
//!
//! An area holds the checkpoint that the superblock names, the one before, or the rest of one that
//! a crash cut off.
//!
//! It does not stop at damage: bytes that are no readable block are counted.

use super::{
    shapes::{
        CheckpointBlockDump, CheckpointBlocksDump, CheckpointDump, CheckpointEntriesDump, CheckpointEntryDump,
        CheckpointHeaderDump, DesignPageDump, Listing, SlotEntryDump, ZeroRangeDump,
    },
    values::{fingerprint_dump, mapping_dump},
};
use crate::verify::window::Window;
use larder_core::{Lookup, SectorMap};
use larder_device::BlockDevice;
use larder_engine::{EngineError, offline::from_format};
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, FormatError, METADATA_ALIGN_BYTES, Superblock,
    checkpoint::{BLOCK_BYTES_MAX, CHECKPOINT_HEADER_BYTES},
};

/// Offsets of checkpoint number and block index in a block's header.
const ID_AT: usize = 24;
const INDEX_AT: usize = 32;

/// A block and its position in the area.
pub(super) struct LyingBlock {
    pub checkpoint_id: u64,
    pub index: u32,
    pub flash_offset: u64,
    pub bytes: u64,
    pub block: CheckpointBlock,
}

/// Visits every whole block of this cache in an area, up to `end`. Returns the bytes that belong to
/// none.
pub(super) async fn blocks(
    window: &mut Window<'_>,
    superblock: &Superblock,
    (start, end): (u64, u64),
    visit: &mut dyn FnMut(LyingBlock),
) -> u64 {
    let mut other_bytes = 0;
    let mut at = start + CHECKPOINT_HEADER_BYTES as u64;
    while at < end {
        let found = block_at(window.bytes(at, BLOCK_BYTES_MAX).await, superblock, at);
        at += found.as_ref().map_or(METADATA_ALIGN_BYTES, |block| block.bytes.max(METADATA_ALIGN_BYTES));
        match found {
            Some(block) => visit(block),
            None => other_bytes += METADATA_ALIGN_BYTES,
        }
    }
    other_bytes
}

fn block_at(bytes: &[u8], superblock: &Superblock, flash_offset: u64) -> Option<LyingBlock> {
    let id = bytes.get(ID_AT..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))?;
    let index = bytes.get(INDEX_AT..)?.first_chunk().map(|four| u32::from_le_bytes(*four))?;
    let identity = BlockIdentity { flash_tag: superblock.flash_tag(), checkpoint_id: id, block_index: index };
    let (block, bytes) = CheckpointBlock::decode(bytes, &identity).ok()?;
    Some(LyingBlock { checkpoint_id: id, index, flash_offset, bytes: bytes as u64, block })
}

/// Returns start and end of an area on the flash.
pub(super) fn area_of(superblock: &Superblock, area: u8) -> (u64, u64) {
    let layout = &superblock.layout;
    let start = layout.checkpoint_offset.get(usize::from(area)).copied().unwrap_or_default();
    (start, start + layout.checkpoint_area_bytes)
}

/// An area, its header, and the end of its possible blocks.
struct Area<'a> {
    number: u8,
    is_named: bool,
    start: u64,
    blocks_end: u64,
    head: Result<CheckpointHeader, FormatError>,
    window: Window<'a>,
}

impl<'a> Area<'a> {
    /// Reads area `number`, or without one the area that the superblock names (`None` if it names
    /// none).
    async fn read(flash: &'a dyn BlockDevice, superblock: &Superblock, number: Option<u8>) -> Option<Area<'a>> {
        let named = superblock.checkpoint;
        let number = number.or(named.map(|pointer| pointer.area))?;
        let named = named.filter(|pointer| pointer.area == number);
        let (start, area_end) = area_of(superblock, number);
        let mut window = Window::new(flash, start, area_end);
        let head = CheckpointHeader::decode(window.bytes(start, CHECKPOINT_HEADER_BYTES).await, superblock.flash_tag());
        // No block behind a whole checkpoint is meant to be read.
        let blocks_end = match (&head, named) {
            (Ok(header), _) => start + header.total_bytes.min(area_end - start),
            (Err(_), Some(pointer)) => start + pointer.bytes,
            (Err(_), None) => area_end,
        };
        Some(Area { number, is_named: named.is_some(), start, blocks_end, head, window })
    }

    async fn blocks(&mut self, superblock: &Superblock, visit: &mut dyn FnMut(LyingBlock)) -> u64 {
        blocks(&mut self.window, superblock, (self.start, self.blocks_end), visit).await
    }
}

/// Returns the content of an area, or of the one that the superblock names (`None` if it names
/// none).
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    area: Option<u8>,
    limit: usize,
) -> Option<CheckpointDump> {
    let mut area = Area::read(flash, superblock, area).await?;
    let mut listing = Listing::new();
    let other_bytes =
        area.blocks(superblock, &mut |found| listing.add(limit, || CheckpointBlockDump::of(&found))).await;
    let named = superblock.checkpoint.filter(|_| area.is_named);
    let error = match &area.head {
        Ok(header) if named.is_some_and(|pointer| pointer.checkpoint_id != header.checkpoint_id) => {
            Some("it is not the checkpoint that the superblock names".to_owned())
        }
        Ok(_) => None,
        Err(FormatError::BadMagic(_)) => Some("no checkpoint header is here".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    Some(CheckpointDump {
        area: area.number,
        named_by_superblock: area.is_named,
        flash_offset: area.start,
        error,
        header: area.head.ok().map(header_dump),
        no_block_bytes: other_bytes,
        blocks: listing,
    })
}

/// Returns the entries of the block with this number in an area, or in the superblock's.
///
/// An area with the rest of two checkpoints may have several blocks of that number. `limit` counts
/// entries, and blocks.
///
/// # Errors
/// No whole block of that number lies there, or the superblock names no checkpoint.
pub async fn checkpoint_block(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    area: Option<u8>,
    block: u32,
    limit: usize,
) -> Result<CheckpointBlocksDump, EngineError> {
    let Some(mut area) = Area::read(flash, superblock, area).await else {
        return Err(EngineError::Invalid(
            "the superblock names no checkpoint yet: say which area to look in, 0 or 1".to_owned(),
        ));
    };
    let mut numbers: Option<(u32, u32)> = None;
    let mut found = Listing::new();
    let mut left = limit;
    area.blocks(superblock, &mut |lying| {
        let (lowest, highest) = numbers.unwrap_or((lying.index, lying.index));
        numbers = Some((lowest.min(lying.index), highest.max(lying.index)));
        if lying.index == block {
            found.add(limit, || {
                let entries = entries_of(&lying.block, left);
                left -= entries.entries.len();
                CheckpointEntriesDump { block: CheckpointBlockDump::of(&lying), entries }
            });
        }
    })
    .await;
    let number = area.number;
    match numbers {
        _ if found.total > 0 => {
            Ok(CheckpointBlocksDump { area: number, named_by_superblock: area.is_named, blocks: found })
        }
        None => Err(EngineError::Invalid(format!("there is no whole block in checkpoint area {number}"))),
        Some((lowest, highest)) => Err(EngineError::Invalid(format!(
            "there is no whole block {block} in checkpoint area {number}: those there have numbers from {lowest} to {highest}"
        ))),
    }
}

impl CheckpointBlockDump {
    fn of(lying: &LyingBlock) -> Self {
        CheckpointBlockDump {
            block: lying.index,
            checkpoint_id: lying.checkpoint_id,
            flash_offset: lying.flash_offset,
            bytes: lying.bytes,
            kind: kind_name(&lying.block).into(),
            count: lying.block.len() as u64,
        }
    }
}

fn entries_of(block: &CheckpointBlock, limit: usize) -> Listing<CheckpointEntryDump> {
    use CheckpointEntryDump::{DesignPage, Fingerprint, Mapping, Slot, ZeroRange};
    fn cut<T>(entries: &[T], limit: usize, dump: impl Fn(&T) -> CheckpointEntryDump) -> Listing<CheckpointEntryDump> {
        Listing { entries: entries.iter().take(limit).map(dump).collect(), total: entries.len() as u64 }
    }
    match block {
        CheckpointBlock::Slots(slots) => cut(slots, limit, |slot| {
            Slot(SlotEntryDump {
                slot: slot.slot,
                generation: (slot.generation != u32::MAX).then_some(slot.generation),
                state: format!("{:?}", slot.state).to_lowercase(),
                class: format!("{:?}", slot.class).to_lowercase(),
            })
        }),
        CheckpointBlock::Mappings(mappings) => cut(mappings, limit, |mapping| {
            let lookup = match &mapping.place {
                Some(place) => Lookup::Chunk { place: from_format(place), duplicate: mapping.duplicate },
                None => Lookup::Zero,
            };
            Mapping(mapping_dump(mapping.lba, &lookup, mapping.dirty))
        }),
        CheckpointBlock::Fragments(fragments) => cut(fragments, limit, |fragment| {
            let sectors = SectorMap::from_bytes(&fragment.sectors);
            let lookup = Lookup::Fragment { place: from_format(&fragment.place), sectors };
            Mapping(mapping_dump(fragment.lba, &lookup, fragment.dirty))
        }),
        CheckpointBlock::ZeroRanges(ranges) => cut(ranges, limit, |range| {
            ZeroRange(ZeroRangeDump {
                lba: range.lba,
                chunk_count: range.chunk_count,
                dirty: range.dirty,
                no_hole: range.no_hole,
                advisory: range.advisory,
            })
        }),
        CheckpointBlock::Fingerprints(known) => {
            cut(known, limit, |entry| Fingerprint(fingerprint_dump(&entry.fingerprint, &from_format(&entry.place))))
        }
        CheckpointBlock::DesignPages(pages) => cut(pages, limit, |page| {
            DesignPage(DesignPageDump { page: page.number(), bytes: page.bytes().len() as u64 })
        }),
    }
}

fn header_dump(header: CheckpointHeader) -> CheckpointHeaderDump {
    CheckpointHeaderDump {
        checkpoint_id: header.checkpoint_id,
        total_bytes: header.total_bytes,
        block_count: header.block_count,
        slots: header.counts.slots,
        mappings: header.counts.mappings,
        fragments: header.counts.fragments,
        zero_ranges: header.counts.zero_ranges,
        fingerprints: header.counts.fingerprints,
        design_pages: header.counts.design_pages,
        log_start_offset: header.log_start.offset_in_log,
        log_start_frame_seq: header.log_start.frame_seq,
        entry_seq_next: header.entry_seq_next,
    }
}

fn kind_name(block: &CheckpointBlock) -> &'static str {
    match block {
        CheckpointBlock::Slots(_) => "slots",
        CheckpointBlock::Mappings(_) => "mappings",
        CheckpointBlock::Fragments(_) => "fragments",
        CheckpointBlock::ZeroRanges(_) => "zero ranges",
        CheckpointBlock::Fingerprints(_) => "fingerprints",
        CheckpointBlock::DesignPages(_) => "design pages",
    }
}
