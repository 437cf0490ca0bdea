//! Checks that data outlives this process: the files of flash and origin have names and sizes.
//!
//! Invariants: each refusal is one sentence.
//!
//! It does not move data.

use crate::{
    error::{Failure, Outcome},
    size,
};
use larder_device::{IoResult, Standing, driver::block_on};
use larder_engine::{Cache, lacked};
use std::time::Duration;

/// The time for which an end waits for a look at a device that it needs for nothing else.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Returns the standing of the flash now, or the last known one if the flash hangs.
pub fn flash_standing(cache: &Cache) -> Standing {
    block_on(cache.flash_watch().look_within(LOOK_MAX)).unwrap_or_else(|_| cache.flash_watch().standing())
}

/// Refuses to call an origin complete if the origin vanishes with its last user.
///
/// # Errors
/// A sentence.
pub fn refuse_unlinked_origin(cache: &Cache) -> Result<(), String> {
    refuse_standing(block_on(cache.origin_watch().look()), &cache.status().origin)
}

/// Refuses an origin of this standing if its file has no name any more.
///
/// # Errors
/// A sentence.
pub fn refuse_standing(standing: IoResult<Standing>, origin: &str) -> Result<(), String> {
    match standing {
        Ok(Standing::Sound | Standing::Renamed) => Ok(()),
        Err(error) => Err(format!("whether the file of the origin {origin} is whole cannot be told: {error}")),
        Ok(Standing::Unlinked) => Err(format!(
            "the file of the origin {origin} has no name any more: all that was written to it goes when its server ends"
        )),
        Ok(Standing::Truncated(bytes)) => Err(format!(
            "the file of the origin {origin} was cut to {bytes} bytes while it was in use: the data behind that is lost there"
        )),
    }
}

/// Confirms that the data in the cache and its origin outlives this process.
///
/// # Errors
/// A sentence, if a file has no name any more.
pub fn outlives(cache: &Cache) -> Outcome {
    // An origin that hangs is not needed here: the flash has the data, or the end has failed.
    let (of_origin, status) = (block_on(cache.origin_watch().look_within(LOOK_MAX)), cache.status());
    refuse_standing(of_origin, &status.origin).map_err(Failure::failed)?;
    let (dirty, trimmed) = (status.dirty_bytes, status.trimmed_bytes + status.kept_trim_bytes);
    match flash_standing(cache) {
        Standing::Unlinked | Standing::Truncated(_) if dirty + trimmed > 0 => Err(Failure::failed(format_args!(
            "the file of the flash has no name any more, or was cut short, and {} that the origin lacks go with it",
            lacked::told(dirty, trimmed, size::human)
        ))),
        _ => Ok(()),
    }
}
