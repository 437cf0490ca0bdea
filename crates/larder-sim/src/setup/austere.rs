//! Sizes of an AustereCache.
//!
//! Each slot of the flash is a subchunk and a metadata slot of 512 bytes (AustereCache §3.1,
//! §3.2). The cache uses flash in whole buckets of 128 slots. A subchunk is a quarter of a chunk,
//! but 4 KiB at least, as in caches on devices; `--subchunk` sets another. By default the LBA index
//! has four slots for each whole chunk (§5.2).
//!
//! A RAM budget is met with fewer buckets, and, if their number was left open, with fewer slots of
//! the LBA index. The sketch's large counts may take the rest of the budget.
//!
//! It does not lay the indices out.

use super::{
    search::largest,
    words::{Built, Setup},
};
use crate::austere::AustereCache;
use larder_core::{
    austere::{Austere, AustereConfig, AustereError, config::subchunk_bytes},
    region::METADATA_SLOT_BYTES,
    slotted::FlashSize,
};
use larder_format::size::exact;

pub(super) fn build(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let config = config(setup, flash)?;
    let slot_bytes = u64::from(config.subchunk_bytes) + u64::from(METADATA_SLOT_BYTES);
    let config = match setup.options.ram_bytes {
        Some(ram) => within(ram, config)?,
        None => config,
    };
    let cache = AustereCache::new(config, setup.policy).map_err(|error| explain(&error, &config, flash))?;
    let slots = cache.core().slot_count() as u64;
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(_) => slots * slot_bytes,
    };
    let data_bytes = slots * u64::from(config.subchunk_bytes);
    Ok(Built { cache: Box::new(cache), flash_bytes, data_bytes, drive: None })
}

fn config(setup: &Setup, flash: FlashSize) -> Result<AustereConfig, String> {
    let chunk = setup.chunk_bytes;
    let has_compression = setup.options.compress.unwrap_or(true);
    // The subchunk of a cache on a device, so that a user can create the replayed cache.
    let mut config = AustereConfig {
        subchunk_bytes: subchunk_bytes(chunk, has_compression),
        ..AustereConfig::new(0, chunk, has_compression)
    };
    if let Some(asked) = setup.options.subchunk_bytes {
        if !has_compression && asked != chunk {
            return Err("a --subchunk is for compressed chunks: leave out --compress off".to_owned());
        }
        if asked == 0 {
            return Err("a --subchunk has at least 1 byte".to_owned());
        }
        config.subchunk_bytes = asked;
    }
    let slot_bytes = u64::from(config.subchunk_bytes) + u64::from(METADATA_SLOT_BYTES);
    config.data_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes / slot_bytes * u64::from(config.subchunk_bytes),
        FlashSize::DataChunks(chunks) => chunks.saturating_mul(u64::from(chunk)),
    };
    config.lba_entries = setup.options.lba_entries;
    config.is_write_back = setup.policy == crate::cache::WritePolicy::Back;
    Ok(config)
}

/// Reduces the buckets until the indices fit `ram` bytes; the sketch's large counts get the rest.
fn within(ram: u64, config: AustereConfig) -> Result<AustereConfig, String> {
    let bucket_bytes = u64::from(config.subchunk_bytes) * u64::from(config.bucket_slots);
    let of_buckets = |buckets: u64| AustereConfig { data_bytes: buckets * bucket_bytes, ..config };
    let ram_of = |config| Austere::new(config).map(|core| core.ram().bytes() as u64);
    let most = config.data_bytes / bucket_bytes;
    if most == 0 {
        // The flash is too small. The cache's constructor refuses it.
        return Ok(config);
    }
    let found = largest(most, |buckets| ram_of(of_buckets(buckets)).is_ok_and(|bytes| bytes <= ram));
    match found {
        Some(buckets) => {
            let config = if buckets == most { config } else { of_buckets(buckets) };
            let taken = ram_of(config).map_err(|error| error.to_string())?;
            Ok(AustereConfig { large_counts_bytes_max: Some(ram.saturating_sub(taken)), ..config })
        }
        None => {
            let least = ram_of(of_buckets(1)).map_err(|error| error.to_string())?;
            Err(format!("a RAM budget of {} is too small; {} is the least", exact(ram), exact(least)))
        }
    }
}

/// Explains that the flash is too small, with or without metadata as the user counts.
fn explain(error: &AustereError, config: &AustereConfig, flash: FlashSize) -> String {
    match (error, flash) {
        (AustereError::FlashTooSmall { least_bytes, .. }, FlashSize::Bytes(given)) => {
            let metadata = u64::from(config.bucket_slots) * u64::from(METADATA_SLOT_BYTES);
            let least = least_bytes + metadata;
            format!("a flash of {} is too small for one bucket; {} is the least", exact(given), exact(least))
        }
        (AustereError::FlashTooSmall { least_bytes, .. }, FlashSize::DataChunks(given)) => {
            let least = least_bytes.div_ceil(u64::from(config.chunk_bytes));
            format!("{given} data chunks are too few for one bucket; {least} are the least")
        }
        _ => error.to_string(),
    }
}
