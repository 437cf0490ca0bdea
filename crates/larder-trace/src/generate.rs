//! Generators of traces with content, one file each.
//!
//! All are seeded and stream: they are iterators over `TraceResult<Record>`, like readers.
//!
//! Invariants: the same configuration and seed give the same records, on every machine. Made-up
//! content is labelled so. A configuration that cannot be met (a working set larger than the disk,
//! say) is refused before the first record.
//!
//! It does not write files. It leaves this to `write.rs`.

pub mod boot_storm;
pub mod bursts;
pub mod profile;
pub mod random_reads;
pub mod restore;
pub mod snapshots;
pub mod zipf;

pub use boot_storm::{BootStorm, BootStormConfig, SyntheticBoot, SyntheticBootConfig, boot_template};
pub use bursts::{Bursts, BurstsConfig};
pub use profile::{PROFILES, ProfileTrace, WorkloadProfile};
pub use random_reads::{RandomReads, RandomReadsConfig};
pub use restore::{Restore, RestoreConfig};
pub use snapshots::{Snapshots, SnapshotsConfig};
pub use zipf::{ZipfConfig, ZipfTrace};

use crate::{
    chunk::check_chunk_bytes,
    error::{TraceError, TraceResult},
    record::ADDRESS_MAX,
};

/// Returns the number of whole chunks in `bytes`. Refuses less than one chunk, and bytes past the
/// address space.
fn whole_chunks(what: &str, bytes: u64, chunk_bytes: u32) -> TraceResult<u64> {
    check_chunk_bytes(chunk_bytes)?;
    let chunks = bytes / u64::from(chunk_bytes);
    if chunks == 0 || bytes > ADDRESS_MAX {
        let message = format!("expected {what} of one chunk of {chunk_bytes} bytes to 1 EiB, found {bytes} bytes");
        return Err(TraceError::parameter(message));
    }
    Ok(chunks)
}

/// Refuses a number outside a range.
fn within(what: &str, value: f64, range: std::ops::RangeInclusive<f64>) -> TraceResult<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("expected {what} of {} to {}, found {value}", range.start(), range.end());
    Err(TraceError::parameter(message))
}
