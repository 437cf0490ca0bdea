//! Values on the command line: from text to number, name or address.
//!
//! Invariants: a complaint says what would be right.
//!
//! What it does not do: sizes; `size` does.

use crate::size;
use larder_device::throttled::Profile;
use larder_engine::recover::RAM_BUDGET_BYTES_MIN;
use larder_serve::nbd::ServeAddress;

/// A RAM budget in bytes.
pub(super) fn ram_budget(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        small @ 1..RAM_BUDGET_BYTES_MIN => {
            Err(format!("a RAM budget is 1M at least, or 0 for none; {small} bytes is too small"))
        }
        budget => Ok(budget),
    }
}

/// An FP index ratio in percent.
pub(super) fn fp_index_percent(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    percent
        .filter(|percent| [100, 75, 50, 25, 0].contains(percent))
        .ok_or_else(|| "the FP index has 100, 75, 50, 25 or 0 percent".to_owned())
}

/// A device's timing by name.
pub(super) fn profile(text: &str) -> Result<Profile, String> {
    Profile::named(text).map_err(|_| format!("a profile is one of {}", Profile::ALL.map(Profile::name).join(", ")))
}

/// An address to serve at.
pub(super) fn address(text: &str) -> Result<ServeAddress, String> {
    text.parse().map_err(|_| "write unix:PATH or tcp:HOST:PORT".to_owned())
}

/// Shortest limit of requests, as the NBD protocol recommends no client to need more.
const REQUEST_MAX_MIN: u64 = 64 << 10;

/// A limit of requests in bytes.
pub(super) fn request_max(text: &str) -> Result<u32, String> {
    let max = u64::from(larder_engine::cache::REQUEST_BYTES_MAX);
    let bytes = size::parse(text).ok().filter(|bytes| (REQUEST_MAX_MIN..=max).contains(bytes));
    bytes
        .and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| format!("the limit of requests is {} to {}", size::exact(REQUEST_MAX_MIN), size::exact(max)))
}
