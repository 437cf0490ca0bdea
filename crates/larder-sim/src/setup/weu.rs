//! Sizes of the designs in WEUs.
//!
//! A flash in bytes is laid out as `larder create` does. Room for a number of data chunks is as many WEUs as hold them
//! uncompressed; metadata then comes on top. A RAM budget is met with fewer mappings and fingerprints.
//!
//! What it does not do: pack WEUs.

use super::{Built, Granularity, Setup};
use crate::weu::{WeuCache, WeuOptions};
use larder_core::{
    Design, DesignConfig,
    packing::{PackingRules, SegmentPacker},
    slotted::FlashSize,
};
use larder_format::{
    CheckpointCounts, Layout, LayoutRequest,
    checkpoint::checkpoint_bytes_max,
    layout::CHUNKS_MAX,
    segment::{RECORD_ENTRY_BYTES, SEGMENT_HEADER_BYTES},
};

/// Bytes of a WEU where nothing else is asked.
const WEU_BYTES: u32 = 2 << 20;
/// Segments and frames are padded to this.
const SECTOR_BYTES: u32 = 4096;
/// Mappings and fingerprints for each whole chunk of flash, as in the layout of `larder create`.
const MAPPINGS_PER_CHUNK: u64 = 4;
const FINGERPRINTS_PER_CHUNK: u64 = 2;
/// Bytes of RAM for a mapping, a fingerprint and a back pointer together: tables that have just doubled, and have seen many
/// entries go, included.
const ENTRY_RAM_BYTES: u64 = 192;
/// Bytes of RAM for a slot, its back pointers apart.
const SLOT_RAM_BYTES: u64 = 96;
/// Bytes of RAM for what does not grow.
const FIXED_RAM_BYTES: u64 = 64 << 10;
/// Destaging begins when this share of the flash is dirty, in percent, as in `larder serve`.
const DIRTY_PERCENT: u64 = 10;

pub(super) fn build(
    setup: &Setup,
    flash: FlashSize,
    design: impl FnOnce(DesignConfig) -> Box<dyn Design>,
) -> Result<Built, String> {
    let sized = options(setup, flash)?;
    let sized = match setup.options.ram_bytes {
        Some(ram) => within(ram, sized)?,
        None => sized,
    };
    let weu_bytes = u64::from(sized.rules.weu_bytes);
    let data_bytes = u64::from(sized.slot_count) * weu_bytes;
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(_) => data_bytes + metadata_bytes(&sized),
    };
    let cache = WeuCache::new(design, sized)?;
    Ok(Built { cache: Box::new(cache), flash_bytes, data_bytes })
}

fn options(setup: &Setup, flash: FlashSize) -> Result<WeuOptions, String> {
    let chunk = u64::from(setup.chunk_bytes);
    let is_extent = setup.options.granularity == Some(Granularity::Extent);
    if is_extent && (setup.options.compress == Some(true) || setup.options.weu_bytes.is_some()) {
        return Err("an extent is stored alone and uncompressed: leave out --compress on and --weu".to_owned());
    }
    let weu_bytes = setup.options.weu_bytes.unwrap_or(WEU_BYTES);
    let rules = match is_extent {
        true => PackingRules { weu_bytes: setup.chunk_bytes, sector_bytes: 512, header_bytes: 0, entry_bytes: 0 },
        false => PackingRules {
            weu_bytes,
            sector_bytes: SECTOR_BYTES,
            header_bytes: SEGMENT_HEADER_BYTES as u32,
            entry_bytes: RECORD_ENTRY_BYTES as u32,
        },
    };
    let (data_bytes, mappings_max, fingerprints, log_bytes) = match flash {
        FlashSize::Bytes(flash_bytes) => {
            let layout = Layout::plan(LayoutRequest {
                flash_bytes,
                origin_bytes: (CHUNKS_MAX - 1) * chunk,
                chunk_bytes: setup.chunk_bytes,
                weu_bytes,
                sector_bytes: SECTOR_BYTES,
                fp_entries_max: None,
                mappings_max: setup.options.lba_entries,
            })
            .map_err(|error| error.to_string())?;
            let data_bytes = u64::from(layout.slot_count) * u64::from(weu_bytes);
            (data_bytes, layout.mappings_max, layout.fp_entries_max, layout.log_bytes)
        }
        FlashSize::DataChunks(chunks) => {
            let mappings = setup.options.lba_entries.unwrap_or(chunks.saturating_mul(MAPPINGS_PER_CHUNK));
            (chunks.saturating_mul(chunk), mappings, chunks.saturating_mul(FINGERPRINTS_PER_CHUNK), 4 << 20)
        }
    };
    let slots = match flash {
        FlashSize::DataChunks(chunks) => chunks.div_ceil(chunks_of(&rules, setup.chunk_bytes)?),
        FlashSize::Bytes(_) => data_bytes / u64::from(rules.weu_bytes),
    };
    let percent = if setup.options.dedup == Some(false) { 0 } else { setup.options.fp_index_percent.unwrap_or(100) };
    Ok(WeuOptions {
        chunk_bytes: setup.chunk_bytes,
        rules,
        slot_count: u32::try_from(slots).map_err(|_| format!("{slots} WEUs are more than 32 bits can number"))?,
        mappings_max,
        fp_entries_max: fingerprints * u64::from(percent) / 100,
        log_bytes,
        policy: setup.policy,
        compress: !is_extent && setup.options.compress.unwrap_or(true),
        dirty_chunks_max: data_bytes / chunk * DIRTY_PERCENT / 100,
    })
}

/// The same with so few mappings and fingerprints that the indices fit `ram` bytes. All slots stay: with few mappings, WEUs
/// are evicted early.
fn within(ram: u64, options: WeuOptions) -> Result<WeuOptions, String> {
    let fixed = FIXED_RAM_BYTES + u64::from(options.slot_count) * SLOT_RAM_BYTES;
    let entries = ram.saturating_sub(fixed) / ENTRY_RAM_BYTES;
    let chunks = u64::from(options.rules.weu_bytes / options.chunk_bytes).max(1);
    if entries < chunks {
        let least = fixed + chunks * ENTRY_RAM_BYTES;
        return Err(format!("the RAM budget is too small: {least} bytes are the least, and {ram} are given"));
    }
    let (mappings_max, fp_entries_max) = (options.mappings_max.min(entries), options.fp_entries_max.min(entries));
    Ok(WeuOptions { mappings_max, fp_entries_max, ..options })
}

/// Uncompressed chunks that a WEU holds.
fn chunks_of(rules: &PackingRules, chunk_bytes: u32) -> Result<u64, String> {
    let mut packer = SegmentPacker::new(*rules);
    let chunks = std::iter::from_fn(|| packer.place(chunk_bytes, true)).count() as u64;
    if chunks == 0 {
        let weu = rules.weu_bytes;
        return Err(format!("a chunk of {chunk_bytes} bytes does not fit a WEU of {weu} with what surrounds it"));
    }
    Ok(chunks)
}

/// Log and checkpoints.
fn metadata_bytes(options: &WeuOptions) -> u64 {
    let counts = CheckpointCounts {
        slots: u64::from(options.slot_count),
        mappings: options.mappings_max,
        fragments: 0,
        zero_ranges: 0,
        fingerprints: options.fp_entries_max,
    };
    2 * checkpoint_bytes_max(&counts) + options.log_bytes
}
