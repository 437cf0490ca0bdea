//! Making a cache on a flash device: checks, layout, superblocks.
//!
//! In order: (1) All options are checked before the first write. (2) Both superblocks are cleared,
//! durably, so an earlier cache opens whole or not at all. Then both checkpoint headers and the
//! log's first sector are cleared, durably. So none of them fits the new cache. (3) The slots
//! are trimmed. (4) The superblock twins are written. A crash in between leaves no cache, or the
//! new one. A crash before the first flush may leave the earlier one.
//!
//! It does not open paths, or decide to overwrite; the caller asks first.

use crate::{
    config::CreateOptions,
    designs::{self, EngineDesign},
    error::EngineError,
    recover::RAM_BUDGET_BYTES_MIN,
    superblock,
};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_format::{
    Layout, LayoutRequest, LogStart, Origin, OriginUri, Superblock, VolumeName, layout::CHUNKS_MAX,
    superblock::SUPERBLOCK_BYTES,
};

/// Checks the options against the devices and lays the cache out, without a write.
///
/// # Errors
/// One sentence on the fault and the remedy.
pub fn plan(
    flash_bytes: u64,
    flash_sector: u32,
    origin_bytes: u64,
    options: &CreateOptions,
) -> Result<Superblock, EngineError> {
    let design = designs::find(options.design)?;
    design.check(options)?;
    check_numbers(origin_bytes, options)?;
    let layout = lay_out_or_tell(design, flash_bytes, flash_sector, origin_bytes, options)?;
    let chunk_count = origin_bytes.div_ceil(u64::from(options.chunk_bytes));
    design.check_layout(&designs::layout_of(&layout, chunk_count), layout.slot_count.into())?;
    Ok(Superblock {
        sequence: 1,
        flash_uuid: options.flash_uuid,
        features_compat: 0,
        features_read_only: 0,
        log_positions: design.store.names_frames(),
        kept_trims: false,
        origin_state: None,
        durable_frame: None,
        wear: None,
        kept: Vec::new(),
        detached: false,
        mode: options.mode,
        design: options.design,
        compression: options.compression,
        dedup: options.dedup,
        clean_shutdown: true,
        fp_index_percent: options.fp_index_percent,
        ram_budget_bytes: options.ram_budget_bytes,
        hash_key: options.hash_key,
        layout,
        origin: Origin {
            size_bytes: origin_bytes,
            identity: options.origin_identity,
            uri: OriginUri::new(options.origin_uri.clone())?,
        },
        volume_name: VolumeName::new(options.name.clone())?,
        state_dir: Default::default(),
        checkpoint: None,
        log_start: LogStart { offset_in_log: 0, frame_seq: 1 },
        entry_seq_next: 1,
    })
}

/// Checks the options that no design restricts.
fn check_numbers(origin_bytes: u64, options: &CreateOptions) -> Result<(), EngineError> {
    if ![0, 25, 50, 75, 100].contains(&options.fp_index_percent) {
        return Err(EngineError::Invalid(format!(
            "the FP index ratio {} is none of 100, 75, 50, 25 and 0 percent",
            options.fp_index_percent
        )));
    }
    if (1..RAM_BUDGET_BYTES_MIN).contains(&options.ram_budget_bytes) {
        return Err(EngineError::Invalid(format!(
            "a RAM budget of {} bytes is too small for an index: 1M is the least, 0 sets no limit",
            options.ram_budget_bytes
        )));
    }
    if origin_bytes / u64::from(options.chunk_bytes.max(1)) >= CHUNKS_MAX {
        return Err(EngineError::Invalid(format!(
            "an origin of {origin_bytes} bytes has too many chunks of {} bytes: 2^40 are the most; take a larger chunk",
            options.chunk_bytes
        )));
    }
    Ok(())
}

/// Returns the division of a flash of `flash_bytes`, or the least size if that is too small.
fn lay_out_or_tell(
    design: &EngineDesign,
    flash_bytes: u64,
    flash_sector: u32,
    origin_bytes: u64,
    options: &CreateOptions,
) -> Result<Layout, EngineError> {
    let lay_out = |flash_bytes| lay_out(design, flash_bytes, flash_sector, origin_bytes, options);
    lay_out(flash_bytes).map_err(|error| match error {
        EngineError::Format(error) if design.buckets(options, flash_bytes).is_some() => {
            error.with_least_size(options.slot_bytes.into(), |bytes| lay_out(bytes).is_ok()).into()
        }
        error => error,
    })
}

/// Returns the division of a flash of `flash_bytes`.
fn lay_out(
    design: &EngineDesign,
    flash_bytes: u64,
    sector_bytes: u32,
    origin_bytes: u64,
    options: &CreateOptions,
) -> Result<Layout, EngineError> {
    let slots_max = design.slots_max(options);
    let flash_slots = u32::try_from(flash_bytes / u64::from(options.slot_bytes.max(1))).unwrap_or(u32::MAX);
    let slots_bytes_max = u64::from(slots_max) * u64::from(options.chunk_bytes);
    let buckets = design.buckets(options, flash_bytes);
    let mut layout = Layout::plan(LayoutRequest {
        flash_bytes,
        origin_bytes,
        chunk_bytes: options.chunk_bytes,
        slot_bytes: options.slot_bytes,
        sector_bytes,
        // One content for each slot, if the budget affords fewer than the flash has. In buckets,
        // the indices hold the contents.
        fp_entries_max: match slots_max < flash_slots && buckets.is_none() {
            true => Some(slots_max.into()),
            false => design.store.fingerprints_wanted(flash_bytes, options.chunk_bytes),
        },
        mappings_max: design.mappings_wanted(flash_bytes.min(slots_bytes_max), options.chunk_bytes)?,
        buckets,
        history: design.store.history(options),
    })?;
    // A bucket is whole or absent.
    let whole = layout.bucket_slots.max(1);
    layout.slot_count = layout.slot_count.min((slots_max / whole * whole).max(whole));
    Ok(layout)
}

/// Makes a cache on `flash` for an origin of `origin_bytes`.
///
/// # Errors
/// The errors of [`plan`], and of the device.
pub async fn create(
    flash: &dyn BlockDevice,
    origin_bytes: u64,
    options: &CreateOptions,
) -> Result<Superblock, EngineError> {
    // (1)
    let info = flash.info();
    let sector = info.physical_sector_bytes.clamp(info.sector_bytes, 4096);
    let made = plan(info.size_bytes, sector, origin_bytes, options)?;
    // (2)
    let layout = &made.layout;
    let zeroes = || IoBuf::zeroed(SUPERBLOCK_BYTES).freeze();
    for &offset in &layout.superblock_offsets {
        flash.write(offset, zeroes(), WriteFlags::default()).await?;
    }
    flash.flush().await?;
    for &offset in layout.checkpoint_offset.iter().chain([&layout.log_offset]) {
        flash.write(offset, zeroes(), WriteFlags::default()).await?;
    }
    flash.flush().await?;
    // (3): advisory.
    let slots_bytes = u64::from(layout.slot_count) * u64::from(layout.slot_bytes);
    let _ = flash.discard(layout.slots_offset, slots_bytes).await;
    // (4)
    superblock::write(flash, &made, None).await?;
    flash.flush().await?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::ENGINE_DESIGNS;
    use larder_format::FormatError;

    #[test]
    fn a_layout_that_no_opening_takes_is_refused() {
        let design = ENGINE_DESIGNS.iter().find(|design| design.name == "austere").expect("the design");
        let mut options = CreateOptions { design: design.id, chunk_bytes: 4096, ..CreateOptions::default() };
        design.fit(&mut options);
        let refused = plan(1200 << 30, 4096, 1500 << 30, &options).expect_err("too many entries").to_string();
        assert!(refused.contains("1084655616 LBA entries are too many"), "{refused}");
        assert!(plan(1100 << 30, 4096, 1500 << 30, &options).is_ok());
    }

    /// For any asked size, a cache of the named size is made, and a cache of one slot less is not.
    #[test]
    fn the_least_flash_is_the_least() {
        for design in ENGINE_DESIGNS {
            for chunk_bytes in (12..=17).map(|bits| 1 << bits) {
                let mut options = CreateOptions { chunk_bytes, ..CreateOptions::default() };
                design.fit(&mut options);
                let plan = |bytes| plan(bytes, 4096, 64 << 20, &options);
                let what = |bytes| format!("{}, chunks of {chunk_bytes}, asked for {bytes}", design.name);
                let mut told = Vec::new();
                for asked in [4096, 100 << 10, 300 << 10, 488 << 10] {
                    match plan(asked) {
                        Err(EngineError::Format(FormatError::FlashTooSmall { flash_bytes, needed_bytes })) => {
                            assert_eq!(flash_bytes, asked, "{}", what(asked));
                            told.push(needed_bytes);
                        }
                        Err(other) => panic!("{}: {other}", what(asked)),
                        Ok(_) => {}
                    }
                }
                let Some(&least) = told.first() else { panic!("{}: a page is enough", what(4096)) };
                assert!(told.iter().all(|&bytes| bytes == least), "{}: {told:?}", what(least));
                assert!(plan(least).is_ok(), "{}", what(least));
                let less = plan(least - u64::from(options.slot_bytes));
                assert!(matches!(less, Err(EngineError::Format(FormatError::FlashTooSmall { .. }))), "{}", what(least));
            }
        }
    }
}
