//! Sizes of the designs with equal slots.
//!
//! Data and metadata share the flash. The designs' files give the metadata entries for a number of
//! chunks (CacheDedup §5.1: the minimum and 2% of the data's bytes). An explicit number of LBA
//! entries replaces that. A RAM budget reduces the chunks until the index can't outgrow it.
//!
//! It does not know the designs' formulas.

use super::{
    search::largest,
    words::{Built, Setup},
};
use crate::slotted::SlottedCache;
use larder_core::{
    d_arc::{self, DArc},
    d_lru::OverContents,
    slotted::{ContentOrder, FlashSize, Orphans, SizeError, SizeErrorKind, Slotted},
};
use larder_format::size::exact;

/// Sizes d-lru, with any order of contents.
pub(super) fn over_contents<O: ContentOrder + 'static>(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let orphans = setup.options.orphans.unwrap_or_default();
    build(setup, flash, |flash, chunk_bytes| {
        let design = match (setup.options.lba_entries, flash) {
            (Some(entries), FlashSize::DataChunks(chunks)) => OverContents::<O>::new(chunks, entries),
            _ => OverContents::for_flash(flash, chunk_bytes),
        };
        design.map(|design| design.with_orphans(orphans))
    })
}

pub(super) fn d_arc(setup: &Setup, flash: FlashSize) -> Result<Built, String> {
    let orphans = setup.options.orphans.unwrap_or_default();
    build(setup, flash, |flash, chunk_bytes| {
        let design = match (setup.options.lba_entries, flash) {
            (Some(entries), FlashSize::DataChunks(chunks)) => d_arc_of(chunks, entries),
            _ => DArc::for_flash(flash, chunk_bytes),
        };
        design.map(|design| design.with_orphans(orphans))
    })
}

/// Creates a D-ARC of `data_chunks` whose lists have `addresses` (2C + X, at least 2C).
fn d_arc_of(data_chunks: u64, addresses: u64) -> Result<DArc, SizeError> {
    let least = data_chunks.saturating_mul(2);
    match addresses.checked_sub(least) {
        Some(extra) => DArc::new(data_chunks, extra),
        None => {
            let kind = SizeErrorKind::MetadataEntries { given: addresses, least };
            Err(SizeError { design: d_arc::NAME, kind })
        }
    }
}

/// Bytes of RAM for the lists of a decision.
///
/// An eviction of a content with some dozens of dirty addresses fits.
const DECISION_BYTES: u64 = 1 << 10;

/// Returns the most bytes of RAM that the index of `design` may take.
fn ram_bytes_max(design: &impl Slotted) -> u64 {
    design.ram_bytes_max() + DECISION_BYTES
}

/// Sizes a cache of the design that `make` makes for a flash and a chunk size.
pub(super) fn build<D: Slotted + 'static>(
    setup: &Setup,
    flash: FlashSize,
    make: impl Fn(FlashSize, u32) -> Result<D, SizeError>,
) -> Result<Built, String> {
    let of_chunks = |chunks| make(FlashSize::DataChunks(chunks), setup.chunk_bytes);
    let design = match (flash, setup.options.lba_entries) {
        (FlashSize::Bytes(bytes), Some(_)) => of_bytes(setup, bytes, &of_chunks)?,
        _ => make(flash, setup.chunk_bytes).map_err(|error| error.to_string())?,
    };
    let design = match setup.options.ram_bytes {
        Some(ram) if ram_bytes_max(&design) > ram => within(ram, design.sizes().data_chunks, &of_chunks)?,
        _ => design,
    };
    let data_bytes = data_bytes(&design, setup.chunk_bytes);
    let flash_bytes = match flash {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::DataChunks(_) => data_bytes + design.sizes().metadata_bytes,
    };
    let keeps_orphans = design.looks_at_content() && setup.options.orphans.unwrap_or_default() == Orphans::Keep;
    let cache = SlottedCache::new(design, setup.policy, setup.chunk_bytes).keeping_orphans(keeps_orphans);
    let cache = Box::new(cache);
    Ok(Built { cache, flash_bytes, data_bytes, drive: None })
}

/// Finds the largest cache that `bytes` have room for, with an explicit number of LBA entries.
fn of_bytes<D: Slotted>(
    setup: &Setup,
    bytes: u64,
    of_chunks: &impl Fn(u64) -> Result<D, SizeError>,
) -> Result<D, String> {
    let total = |design: &D| data_bytes(design, setup.chunk_bytes) + design.sizes().metadata_bytes;
    let most = bytes / u64::from(setup.chunk_bytes);
    let found = largest(most, |chunks| of_chunks(chunks).is_ok_and(|design| total(&design) <= bytes));
    let design = of_chunks(found.unwrap_or(1)).map_err(|error| error.to_string())?;
    if found.is_none() {
        let least = total(&design);
        return Err(format!("a flash of {} is too small; {} is the least", exact(bytes), exact(least)));
    }
    // The limit has to be the flash, not the number of entries.
    match of_chunks(design.sizes().data_chunks + 1) {
        Err(error) if total(&design) + u64::from(setup.chunk_bytes) <= bytes => Err(error.to_string()),
        _ => Ok(design),
    }
}

/// Finds the largest cache of at most `most` chunks whose index can't outgrow `ram` bytes.
fn within<D: Slotted>(ram: u64, most: u64, of_chunks: &impl Fn(u64) -> Result<D, SizeError>) -> Result<D, String> {
    let found = largest(most, |chunks| of_chunks(chunks).is_ok_and(|design| ram_bytes_max(&design) <= ram));
    match found {
        Some(chunks) => of_chunks(chunks).map_err(|error| error.to_string()),
        None => {
            let least = ram_bytes_max(&of_chunks(1).map_err(|error| error.to_string())?);
            Err(format!("a RAM budget of {} is too small; {} is the least", exact(ram), exact(least)))
        }
    }
}

fn data_bytes(design: &impl Slotted, chunk_bytes: u32) -> u64 {
    design.sizes().data_chunks * u64::from(chunk_bytes)
}
