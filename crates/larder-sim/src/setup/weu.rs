//! Sizes of the designs in WEUs.
//!
//! [`sizing`](crate::executor::sizing) divides the flash. A RAM budget is met with fewer mappings
//! and fingerprints.
//!
//! It does not pack WEUs.

use super::{
    options::Options,
    words::{Built, Setup},
};
use crate::{
    cache::WritePolicy,
    executor::{
        Executor, ExecutorOptions,
        sizing::{Granularity, WeuSizing},
    },
};
use larder_core::{
    Over,
    ledger::{DIRTY_BYTES_MAX, DIRTY_SHARE, RUN_SHARE},
    named::OverWeus,
    nitro::INDEX_BYTES_MAX,
    ranges::RUN_BYTES_MAX,
    slotted::FlashSize,
};
use larder_format::{
    CheckpointCounts,
    checkpoint::{DESIGN_PAGE_BYTES_MAX, checkpoint_bytes_max},
    layout::WEU_BYTES_MIN,
    size::exact,
};

/// Bytes of RAM for a mapping, a fingerprint and a back pointer together.
///
/// They include tables that have just doubled and have lost many entries.
const ENTRY_RAM_BYTES: u64 = 192;
/// Bytes of RAM for a mapping's share of dirty chunks and trimmed runs in write-back.
///
/// There are no fragments here.
const DIRTY_SHARE_RAM_BYTES: u64 = (DIRTY_BYTES_MAX / DIRTY_SHARE + RUN_BYTES_MAX / RUN_SHARE) as u64 + 1;
/// Bytes of RAM for a slot, its back pointers apart.
const SLOT_RAM_BYTES: u64 = 96;
/// Bytes of RAM for the parts of fixed size.
const FIXED_RAM_BYTES: u64 = 64 << 10;

/// Sizes a cache.
///
/// Beside Nitro's indices a design may have lists in RAM, for each mapping. It may have a history
/// in checkpoints, too, of which a replay has no copy in RAM.
pub(super) fn build(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let Over::Weus(weus) = setup.design.row.over else {
        return Err(format!("the design {} has no WEUs", setup.design.name));
    };
    let OverWeus { index_bytes_max, history_bytes_max, make, .. } = weus;
    let lists_ram_bytes = index_bytes_max - (INDEX_BYTES_MAX + history_bytes_max);
    let sized = options(setup, flash, &weus)?;
    let sized = match setup.options.ram_bytes {
        Some(ram) => {
            let dirty = if setup.policy == WritePolicy::Back { DIRTY_SHARE_RAM_BYTES } else { 0 };
            within(ram, ENTRY_RAM_BYTES + lists_ram_bytes + dirty, sized)?
        }
        None => sized,
    };
    let weu_bytes = u64::from(sized.rules.slot_bytes);
    let data_bytes = u64::from(sized.slot_count) * weu_bytes;
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(_) => data_bytes + metadata_bytes(&sized, history_bytes_max),
    };
    let cache = Executor::new(make, sized)?;
    Ok(Built { cache: Box::new(cache), flash_bytes, data_bytes, drive: None })
}

fn options(setup: &Setup, flash: FlashSize, weus: &OverWeus) -> Result<ExecutorOptions, String> {
    let Options { dedup, compress, fp_index_percent, granularity, weu_bytes, lba_entries, .. } = setup.options;
    let is_extent = granularity == Some(Granularity::Extent);
    if is_extent && (compress == Some(true) || weu_bytes.is_some()) {
        return Err("an extent is stored alone and uncompressed: leave out --compress on and --weu".to_owned());
    }
    let defaults = WeuSizing::new(flash, setup.chunk_bytes, setup.policy);
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(chunks) => chunks * u64::from(setup.chunk_bytes),
    };
    let sizing = WeuSizing {
        weu_bytes: weu_bytes.unwrap_or_else(|| weus.weu_for(flash_bytes, WEU_BYTES_MIN, defaults.weu_bytes)),
        granularity: granularity.unwrap_or(defaults.granularity),
        fp_index_percent: if dedup == Some(false) { 0 } else { fp_index_percent.unwrap_or(100).into() },
        compress: !is_extent && compress.unwrap_or(true),
        lba_entries,
        history_bytes: weus.history_bytes_max,
        checkpoint: weus.checkpoint,
        ..defaults
    };
    sizing.options().map_err(|sentence| match weu_bytes {
        Some(asked) => with_range_of_weu(sentence, asked, sizing),
        None => sentence,
    })
}

/// Adds the field and its range to a refusal, if smaller WEUs would fit.
fn with_range_of_weu(sentence: String, asked: u32, sizing: WeuSizing) -> String {
    let smaller = std::iter::successors(Some(asked / 2), |weu_bytes| Some(weu_bytes / 2));
    let mut smaller = smaller.take_while(|weu_bytes| *weu_bytes >= WEU_BYTES_MIN);
    match smaller.find(|&weu_bytes| WeuSizing { weu_bytes, ..sizing }.options().is_ok()) {
        Some(most) => {
            let [asked, least, most] = [asked, WEU_BYTES_MIN, most].map(|bytes| exact(bytes.into()));
            let range = if least == most { least } else { format!("{least} to {most}") };
            format!("weu is {asked}, but has to be {range} here: with it {sentence}")
        }
        None => sentence,
    }
}

/// Reduces mappings and fingerprints until the indices fit `ram` bytes.
///
/// All slots stay: with few mappings, the cache evicts WEUs early.
fn within(ram: u64, entry_ram_bytes: u64, options: ExecutorOptions) -> Result<ExecutorOptions, String> {
    let fixed = FIXED_RAM_BYTES + u64::from(options.slot_count) * SLOT_RAM_BYTES;
    let entries = ram.saturating_sub(fixed) / entry_ram_bytes;
    let chunks = u64::from(options.rules.slot_bytes / options.chunk_bytes).max(1);
    if entries < chunks {
        let least = fixed + chunks * entry_ram_bytes;
        return Err(format!("a RAM budget of {} is too small; {} is the least", exact(ram), exact(least)));
    }
    Ok(ExecutorOptions {
        mappings_max: options.mappings_max.min(entries),
        fp_entries_max: options.fp_entries_max.min(entries),
        dirty_chunks_max: options.dirty_chunks_max.min(entries / DIRTY_SHARE as u64),
        zero_ranges_max: options.zero_ranges_max.min(entries / RUN_SHARE as u64),
        ..options
    })
}

/// Returns the bytes of log and checkpoints.
fn metadata_bytes(options: &ExecutorOptions, history_bytes: u64) -> u64 {
    let counts = CheckpointCounts {
        slots: u64::from(options.slot_count),
        mappings: options.mappings_max,
        fragments: 0,
        zero_ranges: 0,
        fingerprints: options.fp_entries_max,
        design_pages: (options.mappings_max * history_bytes).div_ceil(DESIGN_PAGE_BYTES_MAX as u64),
    };
    2 * checkpoint_bytes_max(&counts) + options.log_bytes
}
