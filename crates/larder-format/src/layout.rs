//! The division of a flash: superblock twins, two checkpoint areas, the metadata log, slots.
//!
//! Role: [`Layout::plan`] decides it at creation; [`Layout::check`] confirms the layout of a
//! superblock. Slots in buckets have a metadata region before them.
//!
//! Invariants: regions neither overlap nor leave the flash, all start at multiples of 4096, slots
//! at a multiple of their size. A checkpoint within the layout's limits fits into its area.
//!
//! It leaves the count of entries to the engine, which must keep to the `*_max` fields.

use crate::METADATA_ALIGN_BYTES;
use crate::checkpoint::{CheckpointCounts, DESIGN_PAGE_BYTES_MAX, checkpoint_bytes_max};
use crate::error::{FormatError, Structure};
use crate::log::{FRAME_BYTES_MAX, entries_that_fit};
use crate::metadata_slot::METADATA_SLOT_BYTES;
use crate::place::FlashPlace;

pub use crate::limits::{
    BUCKET_SLOTS_MAX, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNKS_MAX, DESIGN_PAGES_MAX, ENTRIES_MIN, LOG_BYTES_MIN,
    METADATA_OFFSET, SECTOR_BYTES_MAX, SECTOR_BYTES_MIN, SLOT_COUNT_MIN, SUBCHUNK_BYTES_MIN, SUPERBLOCK_OFFSETS,
    StoreKind, WEU_BYTES_MAX, WEU_BYTES_MIN,
};

const DESIGN_PAGES_PAST: u64 = DESIGN_PAGES_MAX + 1;
/// The smallest log on a flash of ordinary size.
const LOG_BYTES_ORDINARY: u64 = 4 << 20;
/// A small flash's log does not shrink below this part of the flash (but to [`LOG_BYTES_MIN`]).
const LOG_SHARE_SMALL: u64 = 64;
/// Metadata should take no more than this part of the flash.
const METADATA_SHARE: u64 = 10;
/// Default mappings for each whole chunk of flash: room for deduplication and compression.
pub const MAPPINGS_PER_CHUNK: u64 = 4;
/// The same with buckets, where only dirty chunks and fragments have an entry.
const EXACT_MAPPINGS_PER_CHUNK: u64 = 1;
/// Default fingerprints for each whole chunk that the flash holds: room for compression.
pub const FINGERPRINTS_PER_CHUNK: u64 = 2;
/// Mappings that a short checkpoint has room for in any case.
pub const MAPPINGS_ALWAYS: u64 = 4096;
/// Pages of the design for each one that has room of its own in a short checkpoint.
const PAGES_A_ROOM: u64 = 3;
/// One fragment for this many mappings.
const MAPPINGS_PER_FRAGMENT: u64 = 4;
/// One zero range for this many mappings.
const MAPPINGS_PER_ZERO_RANGE: u64 = 16;

/// Asks for slots in buckets, and a metadata region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRequest {
    /// Slots of a bucket, 1 to 128: at least as many as a chunk has subchunks.
    pub bucket_slots: u32,
    /// The most pages of the design in a checkpoint, at most [`DESIGN_PAGES_MAX`].
    pub design_pages_max: u64,
}

/// Asks for room in checkpoints for a design's history, in pages of [`DESIGN_PAGE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// Bytes of history for each whole chunk that the flash holds.
    pub bytes_per_chunk: u64,
    /// Bytes of history for each mapping that a checkpoint may keep.
    pub bytes_per_mapping: u64,
    /// The most chunks, and the most mappings, that get such room.
    pub entries_max: u64,
    /// True if it names the records to whose addresses clean mappings lead. Checkpoints are short
    /// then.
    pub names_records: bool,
}

/// A request for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRequest {
    /// Size of the flash.
    pub flash_bytes: u64,
    /// Size of the origin.
    pub origin_bytes: u64,
    /// Chunk size, a power of two from 4 KiB to 128 KiB.
    pub chunk_bytes: u32,
    /// Size of a slot, bytes: a WEU, a chunk (without segments) or, with buckets, a subchunk.
    ///
    /// A power of two: for a WEU from 512 KiB to 4 MiB, for a subchunk from a sector to the chunk.
    pub slot_bytes: u32,
    /// The unit that segments and frames are padded to: a power of two from 512 to 4096.
    pub sector_bytes: u32,
    /// The most fingerprints of a checkpoint: by default two a whole chunk, with buckets none.
    pub fp_entries_max: Option<u64>,
    /// The most mappings, fragments included, never more than the origin has chunks.
    ///
    /// The default is four for each whole chunk of flash, or fewer to keep metadata to a tenth.
    /// With buckets it limits exact mappings (of dirty chunks and fragments); the default is one.
    pub mappings_max: Option<u64>,
    /// `Some` for slots in buckets.
    pub buckets: Option<BucketRequest>,
    /// `Some` for a design that keeps a history; never with buckets.
    pub history: Option<HistoryRequest>,
}

/// The division of a flash; offsets and sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the flash at its creation; Larder uses a larger device up to here.
    pub flash_bytes: u64,
    /// Chunk size.
    pub chunk_bytes: u32,
    /// Size of a slot: a WEU, a chunk, or a subchunk; see [`Layout::store`].
    pub slot_bytes: u32,
    /// The unit that segments and frames are padded to.
    pub sector_bytes: u32,
    /// The twins.
    pub superblock_offsets: [u64; 2],
    /// The two checkpoint areas.
    pub checkpoint_offset: [u64; 2],
    /// Size of each checkpoint area.
    pub checkpoint_area_bytes: u64,
    /// Start of the metadata log.
    pub log_offset: u64,
    /// Size of the metadata log, a multiple of 4096.
    pub log_bytes: u64,
    /// Start of the metadata region, of [`METADATA_SLOT_BYTES`] for each slot; 0 without a region.
    pub region_offset: u64,
    /// Start of slot 0, a multiple of `slot_bytes`.
    pub slots_offset: u64,
    /// Number of slots; in buckets, of whole buckets alone.
    pub slot_count: u32,
    /// Slots of a bucket; 0 without a metadata region.
    pub bucket_slots: u32,
    /// The most mappings at any time, with fragments and single zero chunks, without zero ranges.
    pub mappings_max: u64,
    /// The most fragments at any time.
    pub fragments_max: u64,
    /// The most zero ranges at any time.
    pub zero_ranges_max: u64,
    /// The most fingerprints that a checkpoint may keep; 0 with buckets.
    pub fp_entries_max: u64,
    /// The bound of the pages of its design in a checkpoint, and of their numbers; 0 for none.
    pub design_pages_max: u64,
    /// True if a checkpoint has room for a part of the mappings ([`in_short_checkpoint`]).
    ///
    /// The history of the design names the records of the others, and the record tables have the
    /// addresses.
    pub short_checkpoints: bool,
}

impl Layout {
    /// Plans a flash.
    ///
    /// # Errors
    /// One sentence: a size not allowed, or a flash too small (and the least size) or too large.
    pub fn plan(request: LayoutRequest) -> Result<Layout, FormatError> {
        let bucket_slots = request.buckets.map(|buckets| buckets.bucket_slots);
        check_sizes(request.chunk_bytes, request.slot_bytes, request.sector_bytes, bucket_slots)?;
        if let Some(BucketRequest { design_pages_max: pages @ DESIGN_PAGES_PAST.., .. }) = request.buckets {
            return Err(FormatError::DesignPages { pages });
        }
        if request.origin_bytes == 0 {
            return Err(FormatError::OriginEmpty);
        }
        let slot = u64::from(request.slot_bytes);
        // Half of the slots that 32 bits could number, so that no sum of slots overflows.
        let flash_bytes_max = slot << 31;
        if request.flash_bytes > flash_bytes_max {
            return Err(FormatError::FlashTooLarge { flash_bytes_max, store: request.store() });
        }
        if let Some(layout) = fit(&request) {
            return Ok(layout);
        }
        // The search ends. Metadata takes at most a tenth of a flash of thousands of WEUs. On the
        // largest flash of buckets, the most pages of a design take a sixth.
        let mut needed_bytes = request.flash_bytes.next_multiple_of(slot).max(u64::from(SLOT_COUNT_MIN) * slot);
        while needed_bytes < flash_bytes_max && fit(&LayoutRequest { flash_bytes: needed_bytes, ..request }).is_none() {
            needed_bytes += slot.max(needed_bytes / 64 / slot * slot);
        }
        Err(FormatError::FlashTooSmall { flash_bytes: request.flash_bytes, needed_bytes })
    }

    /// Confirms a superblock's layout: its sizes, and regions in order, in the flash, large enough.
    ///
    /// # Errors
    /// [`FormatError::Invalid`], or one of the sizes' errors.
    pub fn check(&self) -> Result<(), FormatError> {
        let is_bucketed = self.store() == StoreKind::Buckets;
        check_sizes(self.chunk_bytes, self.slot_bytes, self.sector_bytes, is_bucketed.then_some(self.bucket_slots))?;
        let slot = u64::from(self.slot_bytes);
        let invalid = |what| Err(FormatError::Invalid { structure: Structure::Superblock, what });
        let aligned = [
            self.checkpoint_offset[0],
            self.checkpoint_offset[1],
            self.checkpoint_area_bytes,
            self.log_offset,
            self.log_bytes,
            self.region_offset,
        ];
        if aligned.iter().any(|n| !n.is_multiple_of(METADATA_ALIGN_BYTES))
            || !self.slots_offset.is_multiple_of(slot.max(METADATA_ALIGN_BYTES))
        {
            return invalid("a region is not aligned");
        }
        let log_end = self.log_offset.saturating_add(self.log_bytes);
        let region = if is_bucketed { self.region_offset } else { log_end };
        if self.superblock_offsets != SUPERBLOCK_OFFSETS
            || self.checkpoint_offset[0] < METADATA_OFFSET
            || self.checkpoint_offset[1] < self.checkpoint_offset[0].saturating_add(self.checkpoint_area_bytes)
            || self.log_offset < self.checkpoint_offset[1].saturating_add(self.checkpoint_area_bytes)
            || region < log_end
            || self.slots_offset < region.saturating_add(self.region_bytes())
            || self.flash_bytes < self.end()
        {
            return invalid("regions overlap or leave the flash");
        }
        if self.log_bytes < LOG_BYTES_MIN || self.slot_count < self.slot_count_min() {
            return invalid("the log is too small or the slots are too few");
        }
        if is_bucketed && (!self.slot_count.is_multiple_of(self.bucket_slots) || self.fp_entries_max != 0) {
            return invalid("a bucket is not whole, or a checkpoint could keep fingerprints of buckets");
        }
        if !is_bucketed && self.bucket_slots != 0 {
            return invalid("there are buckets and no metadata region");
        }
        let fp_entries_min = if is_bucketed { 0 } else { ENTRIES_MIN };
        if self.fragments_max.min(self.zero_ranges_max) < ENTRIES_MIN || self.fp_entries_max < fp_entries_min {
            return invalid("a limit is too small");
        }
        if self.design_pages_max > DESIGN_PAGES_MAX {
            return invalid("a checkpoint could keep too many pages of its design");
        }
        if self.checkpoint_bytes_max() > self.checkpoint_area_bytes {
            return invalid("a checkpoint could overflow its area");
        }
        Ok(())
    }

    /// Returns the most entries of each kind that a checkpoint can hold.
    pub fn checkpoint_counts_max(&self) -> CheckpointCounts {
        CheckpointCounts {
            slots: if self.store() == StoreKind::Buckets { 0 } else { self.slot_count.into() },
            mappings: match self.short_checkpoints {
                true => in_short_checkpoint(self.mappings_max),
                false => self.mappings_max,
            },
            fragments: self.fragments_max,
            zero_ranges: self.zero_ranges_max,
            // The history names their records.
            fingerprints: if self.short_checkpoints { 0 } else { self.fp_entries_max },
            design_pages: self.design_pages_max,
        }
    }

    /// Returns the bytes of the largest checkpoint that must have room.
    ///
    /// In a short checkpoint, fragments are among the mappings, and some pages have room of their
    /// own. Further pages take the room that is left.
    pub fn checkpoint_bytes_max(&self) -> u64 {
        let most = self.checkpoint_counts_max();
        match self.short_checkpoints {
            true => checkpoint_bytes_max(&CheckpointCounts {
                mappings: most.mappings.saturating_sub(most.fragments),
                design_pages: most.design_pages.div_ceil(PAGES_A_ROOM),
                ..most
            })
            // With fewer fragments, the last block of either kind may be longer.
            .saturating_add(2 * METADATA_ALIGN_BYTES),
            false => checkpoint_bytes_max(&most),
        }
    }

    /// Returns the kind of the slots.
    pub fn store(&self) -> StoreKind {
        match self.region_offset {
            0 if self.slot_bytes == self.chunk_bytes => StoreKind::Slots,
            0 => StoreKind::Weus,
            _ => StoreKind::Buckets,
        }
    }

    /// Returns the offset behind the last slot. A rest of the flash behind it is in no use.
    pub fn end(&self) -> u64 {
        self.slots_offset.saturating_add(u64::from(self.slot_bytes) * u64::from(self.slot_count))
    }

    /// Returns the flash offset of a slot, `None` for a slot that does not exist.
    pub fn slot_offset(&self, slot: u32) -> Option<u64> {
        (slot < self.slot_count).then(|| self.slots_offset + u64::from(slot) * u64::from(self.slot_bytes))
    }

    /// Returns the flash offset of a slot's metadata slot, `None` without such a slot or a region.
    pub fn metadata_slot_offset(&self, slot: u32) -> Option<u64> {
        let has_one = self.store() == StoreKind::Buckets && slot < self.slot_count;
        has_one.then(|| self.region_offset + u64::from(slot) * METADATA_SLOT_BYTES as u64)
    }

    /// Returns the size of the metadata region, a multiple of 4096; 0 without a region.
    pub fn region_bytes(&self) -> u64 {
        match self.store() {
            StoreKind::Buckets => region_bytes(self.slot_count.into()),
            StoreKind::Weus | StoreKind::Slots => 0,
        }
    }

    /// Returns the fewest slots that such a flash must have.
    fn slot_count_min(&self) -> u32 {
        match self.store() {
            StoreKind::Weus | StoreKind::Slots => SLOT_COUNT_MIN,
            StoreKind::Buckets => SLOT_COUNT_MIN * (self.chunk_bytes / self.slot_bytes),
        }
    }

    /// Returns true if a record may lie there: in one slot, or, for subchunks, in one bucket.
    pub fn has_record(&self, place: &FlashPlace) -> bool {
        let end = u64::from(place.offset) + u64::from(place.stored_len);
        let slots = match self.store() {
            StoreKind::Buckets if place.offset == 0 => self.bucket_slots - place.slot % self.bucket_slots,
            _ => 1,
        };
        place.slot < self.slot_count && end <= u64::from(self.slot_bytes) * u64::from(slots)
    }

    /// Returns the most bytes of a frame: at most a quarter of the log, so wrapping wastes little.
    pub fn frame_bytes_max(&self) -> u64 {
        FRAME_BYTES_MAX.min(self.log_bytes / 4)
    }

    /// Returns the most entries that a writer should put into one frame.
    pub fn frame_entries_max(&self) -> usize {
        entries_that_fit(self.frame_bytes_max())
    }
}

impl LayoutRequest {
    /// Returns the most pages of its design that a checkpoint has room for; 0 without room.
    fn design_pages(&self, mappings_max: u64) -> u64 {
        let chunks = self.flash_bytes / u64::from(self.chunk_bytes);
        let pages = |history: HistoryRequest| {
            let of = |entries: u64, bytes: u64| entries.min(history.entries_max).saturating_mul(bytes);
            let bytes = of(chunks, history.bytes_per_chunk).saturating_add(of(mappings_max, history.bytes_per_mapping));
            // Besides, it has a head.
            (bytes / DESIGN_PAGE_BYTES_MAX as u64 + 1).min(DESIGN_PAGES_MAX)
        };
        match self.buckets {
            Some(buckets) => buckets.design_pages_max,
            None => self.history.map_or(0, pages),
        }
    }

    fn store(&self) -> StoreKind {
        match self.buckets {
            Some(_) => StoreKind::Buckets,
            None if self.slot_bytes == self.chunk_bytes => StoreKind::Slots,
            None => StoreKind::Weus,
        }
    }
}

/// Returns the mappings that a short checkpoint has room for, of so many at any time.
///
/// Half of them may be dirty. [`MAPPINGS_ALWAYS`] have room in any case.
pub fn in_short_checkpoint(mappings: u64) -> u64 {
    (mappings / 16 * 9).max(MAPPINGS_ALWAYS).min(mappings)
}

/// Checks the sizes that the operator or a design may choose.
fn check_sizes(
    chunk_bytes: u32,
    slot_bytes: u32,
    sector_bytes: u32,
    bucket_slots: Option<u32>,
) -> Result<(), FormatError> {
    let allowed = |bytes: u32, min, max| bytes.is_power_of_two() && bytes >= min && bytes <= max;
    if !allowed(chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) {
        return Err(FormatError::ChunkSize { bytes: chunk_bytes });
    }
    if bucket_slots.is_none() && !allowed(slot_bytes, WEU_BYTES_MIN, WEU_BYTES_MAX) && slot_bytes != chunk_bytes {
        return Err(FormatError::WeuSize { bytes: slot_bytes });
    }
    if !allowed(sector_bytes, SECTOR_BYTES_MIN, SECTOR_BYTES_MAX) {
        return Err(FormatError::SectorSize { bytes: sector_bytes });
    }
    let Some(bucket_slots) = bucket_slots else { return Ok(()) };
    let least_bytes = sector_bytes.max(SUBCHUNK_BYTES_MIN);
    if !allowed(slot_bytes, least_bytes, chunk_bytes) {
        return Err(FormatError::SubchunkSize { bytes: slot_bytes, least_bytes, chunk_bytes });
    }
    // Room for a chunk that does not shrink.
    let least = chunk_bytes / slot_bytes;
    if !(least..=BUCKET_SLOTS_MAX).contains(&bucket_slots) {
        return Err(FormatError::BucketSlots { slots: bucket_slots, least });
    }
    Ok(())
}

/// Returns the roomiest layout with metadata in the tenth, else one with enough slots at least.
fn fit(request: &LayoutRequest) -> Option<Layout> {
    let asked = request.mappings_max.is_some();
    let frugal =
        |layout: &Layout| (layout.log_offset + wanted_log_bytes(layout)) <= layout.flash_bytes / METADATA_SHARE;
    // From four mappings a chunk down to one. The operator's limits shrink only to fit at all.
    let by_share = (4..=16).rev().filter_map(|sixteenths| at_scale(request, sixteenths)).find(|l| asked || frugal(l));
    // Alignment hides metadata: the most at no further slot (`max_by_key` takes the last of
    // equals).
    by_share
        .or_else(|| (4..=16).filter_map(|sixteenths| at_scale(request, sixteenths)).max_by_key(|l| l.slot_count))
        .or_else(|| (1..4).rev().find_map(|sixteenths| at_scale(request, sixteenths)))
}

/// Returns the layout with all limits scaled, if it leaves enough slots.
fn at_scale(request: &LayoutRequest, sixteenths: u64) -> Option<Layout> {
    let chunk = u64::from(request.chunk_bytes);
    let slot = u64::from(request.slot_bytes);
    let flash_chunks = request.flash_bytes / chunk;
    let origin_chunks = request.origin_bytes.div_ceil(chunk);
    let scaled = |n: u64| (n / 16 * sixteenths + n % 16 * sixteenths / 16).max(ENTRIES_MIN);
    // No checkpoint that fits could name more; the limit keeps sums from overflowing.
    let entries_max = request.flash_bytes / 16;
    let limit = |n: Option<u64>, default: u64| n.unwrap_or(default).min(entries_max);

    let (mappings_per_chunk, fp_entries_max) = match request.buckets {
        Some(_) => (EXACT_MAPPINGS_PER_CHUNK, 0),
        None => (MAPPINGS_PER_CHUNK, scaled(limit(request.fp_entries_max, flash_chunks * FINGERPRINTS_PER_CHUNK))),
    };
    let mappings_max = scaled(limit(request.mappings_max, flash_chunks * mappings_per_chunk)).min(origin_chunks);
    let slots_upper = (request.flash_bytes / slot) as u32;
    let mut layout = Layout {
        flash_bytes: request.flash_bytes,
        chunk_bytes: request.chunk_bytes,
        slot_bytes: request.slot_bytes,
        sector_bytes: request.sector_bytes,
        superblock_offsets: SUPERBLOCK_OFFSETS,
        checkpoint_offset: [0; 2],
        checkpoint_area_bytes: 0,
        log_offset: 0,
        log_bytes: 0,
        // Not 0, which tells the count of entries that there is a region.
        region_offset: request.buckets.map_or(0, |_| METADATA_OFFSET),
        slots_offset: 0,
        slot_count: slots_upper,
        bucket_slots: request.buckets.map_or(0, |buckets| buckets.bucket_slots),
        mappings_max,
        fragments_max: (mappings_max / MAPPINGS_PER_FRAGMENT).max(ENTRIES_MIN),
        zero_ranges_max: (mappings_max / MAPPINGS_PER_ZERO_RANGE).max(ENTRIES_MIN),
        fp_entries_max,
        // Not scaled: the size of the buckets' indices is given.
        design_pages_max: request.design_pages(mappings_max),
        short_checkpoints: request.history.is_some_and(|history| history.names_records),
    };
    layout.checkpoint_area_bytes = layout.checkpoint_bytes_max();
    layout.checkpoint_offset = [METADATA_OFFSET, METADATA_OFFSET + layout.checkpoint_area_bytes];
    layout.log_offset = METADATA_OFFSET + 2 * layout.checkpoint_area_bytes;
    let log_end = layout.log_offset + wanted_log_bytes(&layout);
    if request.buckets.is_some() {
        place_buckets(&mut layout, log_end)?;
    } else {
        layout.slots_offset = log_end.next_multiple_of(slot);
        // The log takes the bytes that the alignment of the slots leaves over.
        layout.log_bytes = layout.slots_offset - layout.log_offset;
        layout.slot_count = (request.flash_bytes.checked_sub(layout.slots_offset)? / slot) as u32;
    }
    (layout.slot_count >= layout.slot_count_min()).then_some(layout)
}

/// Places as many buckets as fit behind the log, behind their metadata region; `None` for no room.
fn place_buckets(layout: &mut Layout, log_end: u64) -> Option<()> {
    (layout.log_bytes, layout.region_offset) = (log_end - layout.log_offset, log_end);
    let (slot, bucket) = (u64::from(layout.slot_bytes), u64::from(layout.bucket_slots));
    let slots_offset = |slots: u64| (log_end + region_bytes(slots)).next_multiple_of(slot.max(METADATA_ALIGN_BYTES));
    let room = layout.flash_bytes.checked_sub(log_end)?;
    let buckets_upper = room / (bucket * (slot + METADATA_SLOT_BYTES as u64));
    // Aligning takes the room of a few slots: one of the first counts fits.
    let mut counts = (1..=buckets_upper).rev().map(|buckets| buckets * bucket);
    let slots = counts.find(|slots| slots_offset(*slots) + slots * slot <= layout.flash_bytes)?;
    (layout.slot_count, layout.slots_offset) = (slots as u32, slots_offset(slots));
    Some(())
}

/// Returns the size of a metadata region for this number of slots.
fn region_bytes(slots: u64) -> u64 {
    (slots * METADATA_SLOT_BYTES as u64).next_multiple_of(METADATA_ALIGN_BYTES)
}

/// Returns about half of the size of a checkpoint, so that checkpoints are rare.
fn wanted_log_bytes(layout: &Layout) -> u64 {
    let small = (layout.flash_bytes / LOG_SHARE_SMALL).clamp(LOG_BYTES_MIN, LOG_BYTES_ORDINARY);
    small.max(layout.checkpoint_area_bytes / 2).next_multiple_of(METADATA_ALIGN_BYTES)
}
