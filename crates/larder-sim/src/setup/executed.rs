//! Sizes of caches over slots of one chunk, and over buckets, as `larder create` divides a flash.
//!
//! The needs of a design are those that the engine asks for: `larder_core`'s formulas, in a
//! [`LayoutRequest`]. A flash in data chunks has so many beside the spare slots, and metadata on
//! top. A RAM budget is met as by the engine, which makes fewer slots.
//!
//! Invariants: the layout is the engine's for a flash of so many bytes, on an origin of any size.
//!
//! It does not know the needs of a trace.

use super::{
    search::largest,
    words::{Built, Setup},
};
use crate::{
    cache::ReplayCache,
    executor::{Executor, ExecutorOptions, StoreRules, sizing::SECTOR_BYTES},
};
use larder_core::{
    DesignConfig, DesignLayout, Over,
    austere::{
        AustereConfig,
        bucketed::{self, exact::CHUNK_BYTES_MAX},
        config::{bucket_slots_for, subchunk_bytes},
    },
    ledger::DIRTY_SHARE_BYTES_MAX,
    limits::{DIRTY_HIGH_PERCENT, INDEX_SHARE, commit_due, mappings_beside_checkpoint, pending_entries_max},
    named::OverSlots,
    packing::PackingRules,
    slotted::{FlashSize, spares},
};
use larder_format::{
    BucketRequest, FormatError, HistoryRequest, Layout, LayoutRequest,
    layout::{CHUNKS_MAX, SLOT_COUNT_MIN},
    log::LOG_ENTRY_BYTES,
    size::exact,
};

/// Slots, and chunks of data, beyond the design of any index here.
const SLOTS_MAX: u64 = 1 << 31;
const CHUNKS_MAX_DATA: u64 = 1 << 28;
/// Bytes of the metadata of a small flash, from which a search for the smallest begins.
const METADATA_BYTES_LEAST: u64 = 512 << 10;
/// Tries of that search.
const TRIES_MAX: u32 = 64;

/// The division of a flash, as a function of its bytes, and the slots to take of it.
struct Division<'a> {
    plan: &'a dyn Fn(u64) -> Result<Layout, String>,
    /// Slots for so many chunks.
    slots_for: &'a dyn Fn(u64) -> u64,
    /// The fewest slots of a cache.
    slots_min: u64,
    /// The slots that a RAM budget affords.
    slots_max: u64,
    slot_bytes: u64,
}

/// Sizes a cache over slots of one chunk.
pub(super) fn slots(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let Over::Slots(over) = setup.design.row.over else {
        return Err(format!("the design {} has no slots of one chunk", setup.design.name));
    };
    let (chunk, ram) = (setup.chunk_bytes, setup.options.ram_bytes);
    let slots_min = u64::from(SLOT_COUNT_MIN);
    let slots_max = match ram {
        None => u64::MAX,
        Some(ram) => over.slots_within(enough(ram, |ram| over.slots_within(ram, chunk) >= slots_min)?, chunk),
    };
    let slots_for = |chunks: u64| {
        let fewest = chunks + spares(chunks);
        (fewest..).find(|&slots| slots - spares(slots) >= chunks).unwrap_or(fewest)
    };
    let plan = |bytes| plan_slots(setup, &over, bytes, slots_max);
    let division = Division { plan: &plan, slots_for: &slots_for, slots_min, slots_max, slot_bytes: chunk.into() };
    let layout = division.of(flash)?;
    let affordable = ram.map_or(u64::MAX, |ram| ram / over.index_bytes_max(chunk));
    let config = DesignConfig {
        slot_count: layout.slot_count,
        mappings_max: mappings_beside_checkpoint(layout.mappings_max).min(affordable),
        fp_entries_max: if over.dedup { layout.fp_entries_max.min(affordable) } else { 0 },
    };
    build(setup, flash, &layout, config, StoreRules::slots(layout.slot_count, over.dedup))
}

/// Sizes a cache over buckets.
pub(super) fn buckets(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let (subchunk, ram) = (subchunk_of(setup), setup.options.ram_bytes);
    let per_chunk = u64::from(setup.chunk_bytes / subchunk);
    let slots_min = u64::from(SLOT_COUNT_MIN) * per_chunk;
    let slots_min = slots_min.next_multiple_of(bucket_slots_for(slots_min).into());
    let affords = |ram: u64, slots: u64| {
        let indices = bucketed::ram::ram_bytes_max(&config_of(setup, slots));
        indices.is_ok_and(|bytes| bytes <= ram / INDEX_SHARE)
    };
    let slots_max = match ram {
        None => u64::MAX,
        Some(ram) => {
            let ram = enough(ram, |ram| affords(ram, slots_min))?;
            largest(SLOTS_MAX, |slots| slots <= slots_min || affords(ram, slots)).unwrap_or(slots_min)
        }
    };
    let slots_for = |chunks: u64| {
        let slots = chunks * per_chunk;
        slots.next_multiple_of(bucket_slots_for(slots).into())
    };
    let plan = |bytes| plan_buckets(setup, bytes);
    let division = Division { plan: &plan, slots_for: &slots_for, slots_min, slots_max, slot_bytes: subchunk.into() };
    let layout = division.of(flash)?;
    let dirty_bytes = INDEX_SHARE * (CHUNK_BYTES_MAX as u64 + DIRTY_SHARE_BYTES_MAX);
    let affordable = ram.map_or(u64::MAX, |ram| ram / dirty_bytes);
    let config = DesignConfig {
        slot_count: layout.slot_count,
        mappings_max: mappings_beside_checkpoint(layout.mappings_max).min(affordable),
        // The executor asks the design for each content.
        fp_entries_max: layout.slot_count.into(),
    };
    build(setup, flash, &layout, config, StoreRules::buckets(layout.slot_count, SECTOR_BYTES))
}

/// Returns the bytes of a subchunk: a chunk that would fill one is not compressed.
fn subchunk_of(setup: &Setup) -> u32 {
    subchunk_bytes(setup.chunk_bytes, setup.options.compress.unwrap_or(true))
}

impl Division<'_> {
    /// Divides a flash.
    fn of(&self, flash: FlashSize) -> Result<Layout, String> {
        match flash {
            FlashSize::Bytes(bytes) => Ok(self.cut((self.plan)(bytes)?, self.slots_max)),
            FlashSize::DataChunks(chunks) => self.of_chunks(chunks),
        }
    }

    /// Divides the smallest flash with slots for so many chunks.
    fn of_chunks(&self, chunks: u64) -> Result<Layout, String> {
        let fewest = (1..).find(|&chunks| (self.slots_for)(chunks) >= self.slots_min).unwrap_or(1);
        if chunks < fewest {
            return Err(format!("{chunks} data chunks are too few; {fewest} are the least"));
        }
        if chunks > CHUNKS_MAX_DATA {
            return Err(format!("{chunks} data chunks are too many; {CHUNKS_MAX_DATA} are the most"));
        }
        let slots = (self.slots_for)(chunks).min(self.slots_max);
        let mut bytes = slots * self.slot_bytes + METADATA_BYTES_LEAST;
        let mut tries = 0..TRIES_MAX;
        loop {
            match (self.plan)(bytes) {
                Ok(layout) if u64::from(layout.slot_count) >= slots => return Ok(self.cut(layout, slots)),
                Ok(layout) if tries.next().is_some() => {
                    bytes += (slots - u64::from(layout.slot_count)) * self.slot_bytes;
                }
                Err(_) if tries.next().is_some() => bytes += bytes / 8,
                other => return other,
            }
        }
    }

    /// Takes so many slots of a layout at most, in whole buckets.
    fn cut(&self, layout: Layout, slots: u64) -> Layout {
        let whole = u64::from(layout.bucket_slots.max(1));
        let slot_count = u64::from(layout.slot_count).min((slots / whole * whole).max(whole));
        Layout { slot_count: slot_count as u32, ..layout }
    }
}

fn plan_slots(setup: &Setup, over: &OverSlots, flash_bytes: u64, slots_max: u64) -> Result<Layout, String> {
    let chunk = setup.chunk_bytes;
    let flash_slots = flash_bytes / u64::from(chunk);
    let slots = flash_slots.min(slots_max).max(1);
    let mappings = over.mappings_wanted(slots, chunk).ok_or_else(|| {
        format!("{} cannot number {slots} slots: take larger chunks, or a smaller flash", setup.design.name)
    })?;
    let history = HistoryRequest {
        bytes_per_chunk: over.history_bytes(chunk),
        bytes_per_mapping: 0,
        entries_max: slots_max,
        names_records: false,
    };
    plan(LayoutRequest {
        fp_entries_max: (slots_max < flash_slots).then_some(slots_max),
        mappings_max: Some(mappings),
        history: Some(history),
        ..request(setup, flash_bytes, chunk)
    })
}

/// Returns the indices of so many slots.
fn config_of(setup: &Setup, slots: u64) -> AustereConfig {
    let layout = DesignLayout {
        chunk_bytes: setup.chunk_bytes,
        slot_bytes: subchunk_of(setup),
        bucket_slots: bucket_slots_for(slots),
        chunk_count: CHUNKS_MAX,
    };
    AustereConfig::of_layout(&layout, slots)
}

fn plan_buckets(setup: &Setup, flash_bytes: u64) -> Result<Layout, String> {
    let subchunk = u64::from(subchunk_of(setup));
    let plan = |flash_bytes: u64| {
        let config = config_of(setup, flash_bytes / subchunk);
        let buckets =
            BucketRequest { bucket_slots: config.bucket_slots, design_pages_max: bucketed::pages_for(&config) };
        Layout::plan(LayoutRequest { buckets: Some(buckets), ..request(setup, flash_bytes, subchunk as u32) })
    };
    let least = |error: FormatError| error.with_least_size(subchunk, |bytes| plan(bytes).is_ok());
    plan(flash_bytes).map_err(|error| least(error).to_string())
}

/// Returns a budget of RAM that suffices.
///
/// # Errors
/// A sentence with the least that does.
fn enough(ram: u64, suffices: impl Fn(u64) -> bool) -> Result<u64, String> {
    if suffices(ram) {
        return Ok(ram);
    }
    let doubled = std::iter::successors(Some(ram.max(1)), |most| most.checked_mul(2));
    let most = doubled.into_iter().find(|&most| suffices(most)).unwrap_or(u64::MAX);
    // The largest budget that does not suffice is one below the least that does.
    let below = largest(most, |ram| !suffices(ram)).unwrap_or(0);
    Err(format!("a RAM budget of {} is too small; {} is the least", exact(ram), exact(below + 1)))
}

fn request(setup: &Setup, flash_bytes: u64, slot_bytes: u32) -> LayoutRequest {
    LayoutRequest {
        flash_bytes,
        // An unknown origin's size does not bind.
        origin_bytes: CHUNKS_MAX * u64::from(setup.chunk_bytes),
        chunk_bytes: setup.chunk_bytes,
        slot_bytes,
        sector_bytes: SECTOR_BYTES,
        fp_entries_max: None,
        mappings_max: None,
        buckets: None,
        history: None,
    }
}

fn plan(request: LayoutRequest) -> Result<Layout, String> {
    Layout::plan(request).map_err(|error: FormatError| error.to_string())
}

/// Makes the cache of a divided flash.
fn build(
    setup: &Setup,
    flash: FlashSize,
    layout: &Layout,
    config: DesignConfig,
    store: StoreRules,
) -> Result<Built, String> {
    let slot_bytes = layout.slot_bytes;
    let data_bytes = u64::from(layout.slot_count) * u64::from(slot_bytes);
    let pending_max = pending_entries_max(layout.log_bytes / LOG_ENTRY_BYTES as u64);
    let dirty_chunks_max = data_bytes / u64::from(setup.chunk_bytes) * u64::from(DIRTY_HIGH_PERCENT) / 100;
    let options = ExecutorOptions {
        chunk_bytes: setup.chunk_bytes,
        rules: PackingRules { slot_bytes, sector_bytes: SECTOR_BYTES.min(slot_bytes), header_bytes: 0, entry_bytes: 0 },
        slot_count: layout.slot_count,
        mappings_max: config.mappings_max,
        fp_entries_max: config.fp_entries_max,
        store,
        log_bytes: layout.log_bytes,
        checkpoint_area_bytes: layout.checkpoint_area_bytes,
        policy: setup.policy,
        // A slot of a whole chunk gains nothing by it.
        compress: slot_bytes < setup.chunk_bytes && setup.options.compress.unwrap_or(true),
        dirty_chunks_max: dirty_chunks_max.min(config.mappings_max / 2),
        zero_ranges_max: layout.zero_ranges_max,
        commit_entries: commit_due(pending_max).max(1),
    };
    let design_layout = DesignLayout {
        chunk_bytes: setup.chunk_bytes,
        slot_bytes,
        bucket_slots: layout.bucket_slots,
        chunk_count: CHUNKS_MAX,
    };
    let design = setup.design.row.make(config, &design_layout).map_err(|error| error.to_string())?;
    let cache = Box::new(Executor::deciding(design, options)?);
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(_) => cache.flash_span_bytes(),
    };
    Ok(Built { cache, flash_bytes, data_bytes, drive: None })
}
