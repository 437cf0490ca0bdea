//! Reading a checkpoint: its header, whose counts place every block; then the blocks, in large
//! pieces.
//!
//! Invariants: blocks are handed on in their order, each checked; the first wrong one ends the
//! walk.

use super::{
    ahead::InOrder,
    reader::{READ_BYTES, READS_IN_FLIGHT, Reader},
};
use crate::error::EngineError;
use larder_format::{
    BlockIdentity, CheckpointBlock, CheckpointHeader, CheckpointPointer, FormatError, METADATA_ALIGN_BYTES, Structure,
    Superblock,
    checkpoint::{BLOCK_HEADER_BYTES, BlockKind, CHECKPOINT_HEADER_BYTES},
};

/// A block as the counts of the header foresee it.
#[derive(Clone, Copy)]
struct Planned {
    index: u32,
    at: u64,
    bytes: usize,
    kind: BlockKind,
    entries: usize,
}

/// Consecutive blocks that are read at once.
struct BlockRun {
    at: u64,
    bytes: u64,
    blocks: Vec<Planned>,
}

/// The blocks of a piece, up to the first one that is wrong.
struct DecodedBlocks {
    blocks: Vec<(Planned, CheckpointBlock)>,
    wrong: Option<FormatError>,
}

impl Reader<'_> {
    /// Returns the header of the checkpoint that `pointer` names.
    ///
    /// # Errors
    /// A fault of the header.
    pub async fn checkpoint_header(
        &self,
        superblock: &Superblock,
        pointer: &CheckpointPointer,
    ) -> Result<CheckpointHeader, EngineError> {
        let bytes = self.read(area_start(superblock, pointer)?, CHECKPOINT_HEADER_BYTES as u64).await?;
        let header = CheckpointHeader::decode(&bytes, superblock.flash_tag())?;
        if header.checkpoint_id != pointer.checkpoint_id || header.total_bytes != pointer.bytes {
            return Err(wrong_header("it is not the checkpoint that the superblock names"));
        }
        if (header.log_start, header.entry_seq_next) != (superblock.log_start, superblock.entry_seq_next) {
            return Err(wrong_header("it names another log start than the superblock"));
        }
        if header.total_bytes > superblock.layout.checkpoint_area_bytes {
            return Err(wrong_header("it is longer than its area"));
        }
        Ok(header)
    }

    /// Reads the blocks of the checkpoint with this header. `visit` gets the index, flash offset,
    /// size in bytes and content of each.
    ///
    /// # Errors
    /// The first fault of the blocks.
    pub async fn checkpoint_blocks(
        &self,
        superblock: &Superblock,
        pointer: &CheckpointPointer,
        header: &CheckpointHeader,
        visit: &mut dyn FnMut(u32, u64, usize, CheckpointBlock),
    ) -> Result<(), EngineError> {
        let identity =
            BlockIdentity { flash_tag: header.flash_tag, checkpoint_id: header.checkpoint_id, block_index: 0 };
        let first_at = area_start(superblock, pointer)? + CHECKPOINT_HEADER_BYTES as u64;
        let mut planned = plan(header, first_at).peekable();
        let mut pieces = InOrder::new();
        loop {
            while pieces.len() < READS_IN_FLIGHT
                && let Some(piece) = next_piece(&mut planned)
            {
                pieces.push(self.checkpoint_piece(piece, identity));
            }
            let Some(decoded) = pieces.next().await else { return Ok(()) };
            let decoded: DecodedBlocks = decoded?;
            for (block, content) in decoded.blocks {
                visit(block.index, block.at, block.bytes, content);
            }
            if let Some(wrong) = decoded.wrong {
                return Err(wrong.into());
            }
        }
    }

    async fn checkpoint_piece(self, piece: BlockRun, identity: BlockIdentity) -> Result<DecodedBlocks, EngineError> {
        let bytes = self.read(piece.at, piece.bytes).await?;
        self.decoded(move || decode(&bytes, piece.blocks, identity)).await
    }
}

fn area_start(superblock: &Superblock, pointer: &CheckpointPointer) -> Result<u64, EngineError> {
    let offset = superblock.layout.checkpoint_offset.get(usize::from(pointer.area));
    offset.copied().ok_or_else(|| wrong_header("the superblock names no area"))
}

fn wrong_header(what: &'static str) -> EngineError {
    EngineError::Format(FormatError::Invalid { structure: Structure::CheckpointHeader, what })
}

/// Returns the place of each block. The kinds follow each other, and all blocks but the last of a
/// kind are full.
fn plan(header: &CheckpointHeader, first_at: u64) -> impl Iterator<Item = Planned> {
    let counts = header.counts;
    let (mut index, mut at) = (0, first_at);
    BlockKind::ALL
        .into_iter()
        .flat_map(move |kind| {
            let (count, full) = (counts.of(kind), kind.entries_max() as u64);
            (0..count.div_ceil(full)).map(move |block| (kind, (count - block * full).min(full) as usize))
        })
        .map(move |(kind, entries)| {
            let bytes = BLOCK_HEADER_BYTES + entries * kind.entry_bytes();
            let bytes = bytes.next_multiple_of(METADATA_ALIGN_BYTES as usize);
            let block = Planned { index, at, bytes, kind, entries };
            index += 1;
            at += bytes as u64;
            block
        })
}

fn next_piece(planned: &mut std::iter::Peekable<impl Iterator<Item = Planned>>) -> Option<BlockRun> {
    let first = planned.next()?;
    let mut piece = BlockRun { at: first.at, bytes: first.bytes as u64, blocks: vec![first] };
    while let Some(block) = planned.next_if(|block| piece.bytes + block.bytes as u64 <= READ_BYTES) {
        piece.bytes += block.bytes as u64;
        piece.blocks.push(block);
    }
    Some(piece)
}

fn decode(bytes: &[u8], planned: Vec<Planned>, identity: BlockIdentity) -> DecodedBlocks {
    let mut decoded = DecodedBlocks { blocks: Vec::with_capacity(planned.len()), wrong: None };
    let mut from = 0;
    for block in planned {
        let identity = BlockIdentity { block_index: block.index, ..identity };
        match CheckpointBlock::decode(bytes.get(from..).unwrap_or_default(), &identity) {
            Ok((content, bytes))
                if (content.kind(), content.len(), bytes) == (block.kind, block.entries, block.bytes) =>
            {
                decoded.blocks.push((block, content));
            }
            Ok(_) => {
                let what = "a block that the counts of its checkpoint do not foresee";
                decoded.wrong = Some(FormatError::Invalid { structure: Structure::CheckpointBlock, what });
                return decoded;
            }
            Err(error) => {
                decoded.wrong = Some(error);
                return decoded;
            }
        }
        from += block.bytes;
    }
    decoded
}
