//! Printing what lies in a checkpoint area: the checkpoint that the superblock names, the one before, or what a crash left
//! of one that was being written.
//!
//! What it does not do: stop at damage. What cannot be read as a block is counted.

use super::{CheckpointBlockDump, CheckpointDump, CheckpointHeaderDump, Listing};
use crate::verify::window::Window;
use larder_device::BlockDevice;
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, FormatError, Superblock,
    checkpoint::{BLOCK_BYTES_MAX, CHECKPOINT_HEADER_BYTES},
};

/// Blocks start at multiples of this.
const BLOCK_ALIGN: u64 = 4096;
/// Offsets of checkpoint number and block index in a block's header.
const ID_AT: usize = 24;
const INDEX_AT: usize = 32;

/// A block as it lies in its area.
pub(super) struct LyingBlock {
    pub checkpoint_id: u64,
    pub index: u32,
    pub flash_offset: u64,
    pub bytes: u64,
    pub block: CheckpointBlock,
}

/// Visits every whole block of this cache in an area, up to `end`. How many bytes are no part of one.
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
        at += found.as_ref().map_or(BLOCK_ALIGN, |block| block.bytes.max(BLOCK_ALIGN));
        match found {
            Some(block) => visit(block),
            None => other_bytes += BLOCK_ALIGN,
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

/// Where an area is on the flash.
pub(super) fn area_of(superblock: &Superblock, area: u8) -> (u64, u64) {
    let layout = &superblock.layout;
    let start = layout.checkpoint_offset.get(usize::from(area)).copied().unwrap_or_default();
    (start, start + layout.checkpoint_area_bytes)
}

/// What lies in an area; without one, in the area that the superblock names (`None` where it names none).
pub async fn checkpoint(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    area: Option<u8>,
    limit: usize,
) -> Option<CheckpointDump> {
    let named = superblock.checkpoint;
    let area = area.or(named.map(|pointer| pointer.area))?;
    let is_named = named.is_some_and(|pointer| pointer.area == area);
    let (start, area_end) = area_of(superblock, area);
    let mut window = Window::new(flash, start, area_end);
    let head = CheckpointHeader::decode(window.bytes(start, CHECKPOINT_HEADER_BYTES).await, superblock.flash_tag());
    // Behind a whole checkpoint there is nothing that was meant to be read.
    let end = match (&head, named.filter(|_| is_named)) {
        (Ok(header), _) => start + header.total_bytes.min(area_end - start),
        (Err(_), Some(pointer)) => start + pointer.bytes,
        (Err(_), None) => area_end,
    };
    let mut listing = Listing::new();
    let other_bytes = blocks(&mut window, superblock, (start, end), &mut |found| {
        listing.add(limit, || CheckpointBlockDump {
            block: found.index,
            checkpoint_id: found.checkpoint_id,
            flash_offset: found.flash_offset,
            bytes: found.bytes,
            kind: kind_name(&found.block).into(),
            count: found.block.len() as u64,
        });
    })
    .await;
    let error = match &head {
        Ok(header) if is_named && named.is_some_and(|pointer| pointer.checkpoint_id != header.checkpoint_id) => {
            Some("it is not the checkpoint that the superblock names".to_owned())
        }
        Ok(_) => None,
        Err(FormatError::BadMagic(_)) => Some("no checkpoint header is here".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    Some(CheckpointDump {
        area,
        named_by_superblock: is_named,
        flash_offset: start,
        error,
        header: head.ok().map(header_dump),
        no_block_bytes: other_bytes,
        blocks: listing,
    })
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
    }
}
