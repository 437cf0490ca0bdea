//! Checkpoints: the state that the metadata log up to some entry amounts to.
//!
//! One area holds one checkpoint: a header block, written last, then blocks of entries.
//!
//! Role: encodes and decodes the header and the blocks; [`CheckpointEncoder`] gathers entries into
//! full blocks; [`checkpoint_bytes_max`] bounds the size.
//!
//! Invariants: the kinds come in the order of [`BlockKind`], and each block but the last of its
//! kind is full. Each block carries the checkpoint's number and its own index: blocks of an older
//! checkpoint in the same area are refused.
//!
//! It does no I/O, and does not decide which entries the state has.

mod encoder;
mod entries;
mod pages;

pub use encoder::CheckpointEncoder;
pub use entries::{FingerprintEntry, FragmentEntry, MappingEntry, SlotEntry, ZeroRange};
pub use pages::{DESIGN_PAGE_BYTES_MAX, DesignPage};

use crate::error::{FormatError, Structure};
use crate::log::LogStart;
use crate::wire::{self, Le32, Le64};
use crate::{COUNTER_MAX, FORMAT_VERSION, METADATA_ALIGN_BYTES};
use entries::WireEntry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the header block.
pub const CHECKPOINT_HEADER_BYTES: usize = 4096;
/// Size of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 64;
/// The largest block.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(BLOCK_HEADER_BYTES + 16 * DesignPage::BYTES == BLOCK_BYTES_MAX);

const HEADER_MAGIC: [u8; 8] = *b"LARDERCP";
const BLOCK_MAGIC: [u8; 8] = *b"LARDERCB";
const ALIGN: usize = METADATA_ALIGN_BYTES as usize;

/// The kind of a block's entries, in the order of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockKind {
    /// [`SlotEntry`], in replacement order, least recent first.
    Slots = 1,
    /// [`MappingEntry`].
    Mappings = 2,
    /// [`FragmentEntry`].
    Fragments = 3,
    /// [`ZeroRange`].
    ZeroRanges = 4,
    /// [`FingerprintEntry`], least recent first.
    Fingerprints = 5,
    /// [`DesignPage`].
    DesignPages = 6,
}

impl BlockKind {
    /// All kinds, in order.
    pub const ALL: [BlockKind; 6] = [
        BlockKind::Slots,
        BlockKind::Mappings,
        BlockKind::Fragments,
        BlockKind::ZeroRanges,
        BlockKind::Fingerprints,
        BlockKind::DesignPages,
    ];

    /// Returns the size of an entry.
    pub const fn entry_bytes(self) -> usize {
        match self {
            BlockKind::Slots => SlotEntry::BYTES,
            BlockKind::Mappings => MappingEntry::BYTES,
            BlockKind::Fragments => FragmentEntry::BYTES,
            BlockKind::ZeroRanges => ZeroRange::BYTES,
            BlockKind::Fingerprints => FingerprintEntry::BYTES,
            BlockKind::DesignPages => DesignPage::BYTES,
        }
    }

    /// Returns the most entries in a block.
    pub const fn entries_max(self) -> usize {
        (BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES) / self.entry_bytes()
    }

    fn from_code(code: u8) -> Option<Self> {
        BlockKind::ALL.into_iter().find(|&kind| kind as u8 == code)
    }
}

/// The number of entries of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CheckpointCounts {
    /// Slots.
    pub slots: u64,
    /// Mappings; mappings of fragments count as fragments in the counts of a checkpoint.
    pub mappings: u64,
    /// Fragments.
    pub fragments: u64,
    /// Zero ranges.
    pub zero_ranges: u64,
    /// Fingerprints.
    pub fingerprints: u64,
    /// Pages of the design.
    pub design_pages: u64,
}

impl CheckpointCounts {
    /// Returns the count of one kind.
    pub fn of(&self, kind: BlockKind) -> u64 {
        match kind {
            BlockKind::Slots => self.slots,
            BlockKind::Mappings => self.mappings,
            BlockKind::Fragments => self.fragments,
            BlockKind::ZeroRanges => self.zero_ranges,
            BlockKind::Fingerprints => self.fingerprints,
            BlockKind::DesignPages => self.design_pages,
        }
    }

    fn add(&mut self, kind: BlockKind, count: u64) {
        let field = match kind {
            BlockKind::Slots => &mut self.slots,
            BlockKind::Mappings => &mut self.mappings,
            BlockKind::Fragments => &mut self.fragments,
            BlockKind::ZeroRanges => &mut self.zero_ranges,
            BlockKind::Fingerprints => &mut self.fingerprints,
            BlockKind::DesignPages => &mut self.design_pages,
        };
        *field = field.saturating_add(count);
    }
}

/// Returns the bytes of a checkpoint of these entries in full blocks, header included.
pub fn checkpoint_bytes_max(counts: &CheckpointCounts) -> u64 {
    let mut bytes = CHECKPOINT_HEADER_BYTES as u64;
    for kind in BlockKind::ALL {
        let (full, rest) = blocks_of(kind, counts);
        bytes = bytes.saturating_add(full.saturating_mul(BLOCK_BYTES_MAX as u64));
        if rest > 0 {
            bytes = bytes.saturating_add(block_bytes(kind, rest) as u64);
        }
    }
    bytes
}

/// Returns how many full blocks a kind has, and how many entries the last block.
fn blocks_of(kind: BlockKind, counts: &CheckpointCounts) -> (u64, usize) {
    let per_block = kind.entries_max() as u64;
    (counts.of(kind) / per_block, (counts.of(kind) % per_block) as usize)
}

/// The fields of a checkpoint's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// [`crate::Superblock::flash_tag`].
    pub flash_tag: u64,
    /// Its number; each checkpoint has a higher one.
    pub checkpoint_id: u64,
    /// Number of blocks that follow.
    pub block_count: u32,
    /// Size of header and blocks.
    pub total_bytes: u64,
    /// Entries of each kind.
    pub counts: CheckpointCounts,
    /// The place where replay of the log starts.
    pub log_start: LogStart,
    /// The sequence number of the first entry there.
    pub entry_seq_next: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCheckpointHeader {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    checkpoint_id: Le64,
    total_bytes: Le64,
    block_count: Le32,
    reserved_0: [u8; 4],
    counts: [Le64; 5],
    log_start_offset: Le64,
    log_start_frame_seq: Le64,
    entry_seq_next: Le64,
    design_pages: Le64,
    reserved_1: [u8; 3976],
}

const CRC_OFFSET: usize = 12;
wire::assert_wire!(
    RawCheckpointHeader, CHECKPOINT_HEADER_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, checkpoint_id @ 24, total_bytes @ 32, block_count @ 40,
    counts @ 48, log_start_offset @ 88, log_start_frame_seq @ 96, entry_seq_next @ 104, design_pages @ 112,
    reserved_1 @ 120,
);

impl CheckpointHeader {
    /// Returns the bytes of the header block.
    pub fn encode(&self) -> [u8; CHECKPOINT_HEADER_BYTES] {
        let mut raw = self.to_raw();
        raw.crc = Le32::new(wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET));
        zerocopy::transmute!(raw)
    }

    /// Decodes a header block.
    ///
    /// The caller checks that the superblock names this checkpoint.
    ///
    /// # Errors
    /// As [`FormatError`] says; [`FormatError::Foreign`] when it is another flash's.
    pub fn decode(bytes: &[u8], flash_tag: u64) -> Result<Self, FormatError> {
        const STRUCTURE: Structure = Structure::CheckpointHeader;
        let raw: RawCheckpointHeader = wire::read(bytes, STRUCTURE)?;
        let computed = wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET);
        wire::check_prefix((&raw.magic, &HEADER_MAGIC), (raw.crc.get(), computed), raw.version.get(), STRUCTURE)?;
        let [slots, mappings, fragments, zero_ranges, fingerprints] = raw.counts.map(Le64::get);
        let design_pages = raw.design_pages.get();
        let header = CheckpointHeader {
            flash_tag: raw.flash_tag.get(),
            checkpoint_id: raw.checkpoint_id.get(),
            block_count: raw.block_count.get(),
            total_bytes: raw.total_bytes.get(),
            counts: CheckpointCounts { slots, mappings, fragments, zero_ranges, fingerprints, design_pages },
            log_start: LogStart { offset_in_log: raw.log_start_offset.get(), frame_seq: raw.log_start_frame_seq.get() },
            entry_seq_next: raw.entry_seq_next.get(),
        };
        wire::check_canonical(
            &RawCheckpointHeader { crc: raw.crc, version: raw.version, ..header.to_raw() },
            &raw,
            STRUCTURE,
        )?;
        if header.flash_tag != flash_tag {
            return Err(FormatError::Foreign(STRUCTURE));
        }
        if [header.checkpoint_id, header.log_start.frame_seq, header.entry_seq_next]
            .iter()
            .any(|&count| count >= COUNTER_MAX)
        {
            return Err(FormatError::Invalid { structure: STRUCTURE, what: "a counter is too high" });
        }
        let block_count = BlockKind::ALL.into_iter().fold(0u64, |sum, kind| {
            let (full, rest) = blocks_of(kind, &header.counts);
            sum.saturating_add(full + u64::from(rest > 0))
        });
        if header.total_bytes != checkpoint_bytes_max(&header.counts) || u64::from(header.block_count) != block_count {
            return Err(FormatError::Invalid { structure: STRUCTURE, what: "its size does not fit its counts" });
        }
        Ok(header)
    }

    fn to_raw(self) -> RawCheckpointHeader {
        let [slots, mappings, fragments, zero_ranges, fingerprints, design_pages] =
            BlockKind::ALL.map(|kind| Le64::new(self.counts.of(kind)));
        RawCheckpointHeader {
            magic: HEADER_MAGIC,
            version: Le32::new(FORMAT_VERSION),
            crc: Le32::new(0),
            flash_tag: Le64::new(self.flash_tag),
            checkpoint_id: Le64::new(self.checkpoint_id),
            total_bytes: Le64::new(self.total_bytes),
            block_count: Le32::new(self.block_count),
            reserved_0: [0; 4],
            counts: [slots, mappings, fragments, zero_ranges, fingerprints],
            log_start_offset: Le64::new(self.log_start.offset_in_log),
            log_start_frame_seq: Le64::new(self.log_start.frame_seq),
            entry_seq_next: Le64::new(self.entry_seq_next),
            design_pages,
            reserved_1: [0; 3976],
        }
    }
}

/// The place of a block: its checkpoint, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIdentity {
    /// [`crate::Superblock::flash_tag`].
    pub flash_tag: u64,
    /// The checkpoint's number.
    pub checkpoint_id: u64,
    /// Counts the checkpoint's blocks from 0.
    pub block_index: u32,
}

/// The entries of a block, all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointBlock {
    /// In replacement order, least recent first.
    Slots(Vec<SlotEntry>),
    /// In any order.
    Mappings(Vec<MappingEntry>),
    /// In any order.
    Fragments(Vec<FragmentEntry>),
    /// In any order.
    ZeroRanges(Vec<ZeroRange>),
    /// Least recent first.
    Fingerprints(Vec<FingerprintEntry>),
    /// In any order.
    DesignPages(Vec<DesignPage>),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBlock {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    checkpoint_id: Le64,
    block_index: Le32,
    entry_count: Le32,
    block_bytes: Le32,
    kind: u8,
    reserved: [u8; 19],
}

wire::assert_wire!(
    RawBlock, BLOCK_HEADER_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, checkpoint_id @ 24, block_index @ 32, entry_count @ 36,
    block_bytes @ 40, kind @ 44, reserved @ 45,
);

impl CheckpointBlock {
    /// Returns an empty block.
    pub fn new(kind: BlockKind) -> Self {
        match kind {
            BlockKind::Slots => CheckpointBlock::Slots(Vec::new()),
            BlockKind::Mappings => CheckpointBlock::Mappings(Vec::new()),
            BlockKind::Fragments => CheckpointBlock::Fragments(Vec::new()),
            BlockKind::ZeroRanges => CheckpointBlock::ZeroRanges(Vec::new()),
            BlockKind::Fingerprints => CheckpointBlock::Fingerprints(Vec::new()),
            BlockKind::DesignPages => CheckpointBlock::DesignPages(Vec::new()),
        }
    }

    /// Returns the kind of its entries.
    pub fn kind(&self) -> BlockKind {
        match self {
            CheckpointBlock::Slots(_) => BlockKind::Slots,
            CheckpointBlock::Mappings(_) => BlockKind::Mappings,
            CheckpointBlock::Fragments(_) => BlockKind::Fragments,
            CheckpointBlock::ZeroRanges(_) => BlockKind::ZeroRanges,
            CheckpointBlock::Fingerprints(_) => BlockKind::Fingerprints,
            CheckpointBlock::DesignPages(_) => BlockKind::DesignPages,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            CheckpointBlock::Slots(entries) => entries.len(),
            CheckpointBlock::Mappings(entries) => entries.len(),
            CheckpointBlock::Fragments(entries) => entries.len(),
            CheckpointBlock::ZeroRanges(entries) => entries.len(),
            CheckpointBlock::Fingerprints(entries) => entries.len(),
            CheckpointBlock::DesignPages(pages) => pages.len(),
        }
    }

    /// Returns true if it has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the block, padded to a multiple of 4096.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] when there are more than [`BlockKind::entries_max`] entries.
    pub fn encode(&self, identity: &BlockIdentity) -> Result<Vec<u8>, FormatError> {
        let kind = self.kind();
        if self.len() > kind.entries_max() {
            let max = kind.entries_max() as u64;
            return Err(FormatError::TooLarge { structure: Structure::CheckpointBlock, max });
        }
        let bytes = block_bytes(kind, self.len());
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(block_to_raw(identity, kind, self.len() as u32, bytes as u32).as_bytes());
        match self {
            CheckpointBlock::Slots(entries) => put(&mut out, entries),
            CheckpointBlock::Mappings(entries) => put(&mut out, entries),
            CheckpointBlock::Fragments(entries) => put(&mut out, entries),
            CheckpointBlock::ZeroRanges(entries) => put(&mut out, entries),
            CheckpointBlock::Fingerprints(entries) => put(&mut out, entries),
            CheckpointBlock::DesignPages(pages) => put(&mut out, pages),
        }
        out.resize(bytes, 0);
        let crc = wire::crc_with_hole(&out, CRC_OFFSET);
        wire::put_crc(&mut out, CRC_OFFSET, crc);
        Ok(out)
    }

    /// Decodes the block at the front of `bytes`, and returns its size with its padding too.
    ///
    /// # Errors
    /// As [`FormatError`] says; [`FormatError::Foreign`] when it is not the block of that identity.
    pub fn decode(bytes: &[u8], identity: &BlockIdentity) -> Result<(CheckpointBlock, usize), FormatError> {
        const STRUCTURE: Structure = Structure::CheckpointBlock;
        let invalid = |what| FormatError::Invalid { structure: STRUCTURE, what };
        let raw: RawBlock = wire::read(bytes, STRUCTURE)?;
        if raw.magic != BLOCK_MAGIC {
            return Err(FormatError::BadMagic(STRUCTURE));
        }
        let kind = BlockKind::from_code(raw.kind).ok_or_else(|| invalid("a block of an unknown kind"))?;
        let count = raw.entry_count.get() as usize;
        if count > kind.entries_max() || raw.block_bytes.get() as usize != block_bytes(kind, count) {
            return Err(invalid("its size does not fit its entries"));
        }
        let block = wire::prefix(bytes, raw.block_bytes.get() as usize, STRUCTURE)?;
        let computed = wire::crc_with_hole(block, CRC_OFFSET);
        wire::check_prefix((&raw.magic, &BLOCK_MAGIC), (raw.crc.get(), computed), raw.version.get(), STRUCTURE)?;
        let (flash_tag, checkpoint_id) = (raw.flash_tag.get(), raw.checkpoint_id.get());
        let found = BlockIdentity { flash_tag, checkpoint_id, block_index: raw.block_index.get() };
        let again = block_to_raw(&found, kind, raw.entry_count.get(), raw.block_bytes.get());
        wire::check_canonical(&RawBlock { crc: raw.crc, version: raw.version, ..again }, &raw, STRUCTURE)?;
        if found != *identity {
            return Err(FormatError::Foreign(STRUCTURE));
        }
        let body = block.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        let (table, padding) = body.split_at_checked(count * kind.entry_bytes()).unwrap_or_default();
        wire::check_zero(padding, STRUCTURE)?;
        let decoded = match kind {
            BlockKind::Slots => CheckpointBlock::Slots(take(table)?),
            BlockKind::Mappings => CheckpointBlock::Mappings(take(table)?),
            BlockKind::Fragments => CheckpointBlock::Fragments(take(table)?),
            BlockKind::ZeroRanges => CheckpointBlock::ZeroRanges(take(table)?),
            BlockKind::Fingerprints => CheckpointBlock::Fingerprints(take(table)?),
            BlockKind::DesignPages => CheckpointBlock::DesignPages(take(table)?),
        };
        Ok((decoded, block.len()))
    }
}

fn block_bytes(kind: BlockKind, entries: usize) -> usize {
    (BLOCK_HEADER_BYTES + entries * kind.entry_bytes()).next_multiple_of(ALIGN)
}

fn block_to_raw(identity: &BlockIdentity, kind: BlockKind, entry_count: u32, block_bytes: u32) -> RawBlock {
    RawBlock {
        magic: BLOCK_MAGIC,
        version: Le32::new(FORMAT_VERSION),
        crc: Le32::new(0),
        flash_tag: Le64::new(identity.flash_tag),
        checkpoint_id: Le64::new(identity.checkpoint_id),
        block_index: Le32::new(identity.block_index),
        entry_count: Le32::new(entry_count),
        block_bytes: Le32::new(block_bytes),
        kind: kind as u8,
        reserved: [0; 19],
    }
}

fn put<E: WireEntry>(out: &mut Vec<u8>, entries: &[E]) {
    for entry in entries {
        out.extend_from_slice(entry.to_raw().as_bytes());
    }
}

fn take<E: WireEntry>(table: &[u8]) -> Result<Vec<E>, FormatError> {
    table.chunks_exact(size_of::<E::Raw>()).map(entries::decode).collect()
}
