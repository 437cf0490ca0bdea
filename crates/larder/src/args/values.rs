//! Values on the command line: from text to number, name or address.
//!
//! Invariants: a complaint names the allowed values.
//!
//! It leaves sizes to `size`.

use crate::size;
use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use larder_device::throttled::Profile;
use larder_engine::{
    WearLimit,
    config::{OriginChanged, TrimPolicy},
    designs::{self, ENGINE_DESIGNS, EngineDesign},
    recover::RAM_BUDGET_BYTES_MIN,
};
use larder_format::DesignId;
use larder_serve::nbd::ServeAddress;
use std::{convert::Infallible, time::Duration};

/// Longest time that an option may name, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// Parses a time in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=SECONDS_MAX).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write seconds, from 0.1 to 86400".to_owned())
}

/// Parses a RAM budget in bytes.
pub(super) fn ram_budget(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        small @ 1..RAM_BUDGET_BYTES_MIN => {
            Err(format!("a RAM budget is 1M at least, or 0 for none; {small} bytes is too small"))
        }
        budget => Ok(budget),
    }
}

/// Parses a wear budget: bytes a day, drive writes a day, or none.
pub(super) fn wear(text: &str) -> Result<WearLimit, String> {
    let limit = match (text, text.strip_suffix("/day"), text.strip_suffix("dwpd")) {
        ("none", ..) => Some(WearLimit::Absent),
        (_, Some(bytes), _) => size::parse(bytes).ok().filter(|&bytes| bytes > 0).map(WearLimit::BytesADay),
        (.., Some(writes)) => {
            let writes = writes.parse().ok().filter(|writes| (0.0001..=1000.0).contains(writes));
            writes.map(WearLimit::DriveWritesADay)
        }
        _ => None,
    };
    limit.ok_or_else(|| "write bytes a day (50G/day), drive writes a day from 0.0001 to 1000 (0.3dwpd), or none".into())
}

/// Parses an FP index ratio in percent.
pub(super) fn fp_index_percent(text: &str) -> Result<u8, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    percent
        .filter(|percent| [100, 75, 50, 25, 0].contains(percent))
        .ok_or_else(|| "the FP index has 100, 75, 50, 25 or 0 percent".to_owned())
}

/// Parses the name of a device's timing.
pub(super) fn profile(text: &str) -> Result<Profile, String> {
    Profile::named(text).map_err(|_| format!("a profile is one of {}", Profile::ALL.map(Profile::name).join(", ")))
}

/// Parses an address to serve at.
pub(super) fn address(text: &str) -> Result<ServeAddress, String> {
    text.parse().map_err(|_| "write unix:PATH or tcp:HOST:PORT".to_owned())
}

/// The time for the end of a server by default, in seconds.
pub(super) const END_TIMEOUT: &str = "60";

/// Parses a time in seconds for the end of a server: a day at most.
pub(super) fn end_timeout() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=86_400)
}

/// Shortest limit of requests; the NBD protocol recommends that no client need more.
const REQUEST_MAX_MIN: u64 = 64 << 10;

/// Parses a limit of requests in bytes.
pub(super) fn request_max(text: &str) -> Result<u32, String> {
    let max = u64::from(larder_engine::cache::REQUEST_BYTES_MAX);
    let bytes = size::parse(text).ok().filter(|bytes| (REQUEST_MAX_MIN..=max).contains(bytes));
    bytes
        .and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| format!("the limit of requests is {} to {}", size::exact(REQUEST_MAX_MIN), size::exact(max)))
}

/// Parses a word for a column of a trace; an empty one for a trace without the column.
pub(super) fn tag(text: &str) -> Result<String, String> {
    match text.bytes().all(|byte| byte.is_ascii_graphic()) && text != "-" {
        true => Ok(text.to_owned()),
        false => {
            Err("a tag is one word of letters, digits and signs in ASCII, without blanks, and not - alone".to_owned())
        }
    }
}

/// The action after a change of the origin behind the cache's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OriginChangedArg {
    /// Forget all clean copies; dirty data stays, and is laid over the origin as it is now
    Drop,
    /// Believe the content of the flash
    Keep,
}

impl From<OriginChangedArg> for OriginChanged {
    fn from(what: OriginChangedArg) -> OriginChanged {
        match what {
            OriginChangedArg::Drop => OriginChanged::Drop,
            OriginChangedArg::Keep => OriginChanged::Keep,
        }
    }
}

/// The treatment of a client's TRIM. A request to write zeroes always zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrimArg {
    /// The origin gets zeroes
    Zero,
    /// The origin gets a discard if it promises zeroes after one, else zeroes
    Pass,
    /// The cache keeps the trim as far as it has room, and the origin gets nothing; other trims are
    /// ignored
    Keep,
}

impl From<TrimArg> for TrimPolicy {
    fn from(trim: TrimArg) -> TrimPolicy {
        match trim {
            TrimArg::Zero => TrimPolicy::Zero,
            TrimArg::Pass => TrimPolicy::Pass,
            TrimArg::Keep => TrimPolicy::Keep,
        }
    }
}

/// Refuses every design: a flash has its own.
pub fn no_design(_: &str) -> Result<Infallible, String> {
    Err("a flash keeps the design that it was created with (see `larder status --flash PATH`): leave --design out, or make a cache of another with `larder create`"
        .to_owned())
}

/// Parses the name of a design that the engine runs.
pub(super) fn design() -> impl TypedValueParser<Value = DesignId> {
    let name = |design: &EngineDesign| PossibleValue::new(design.name).help(design.about);
    PossibleValuesParser::new(ENGINE_DESIGNS.iter().map(name))
        .map(|name| designs::named(&name).map_or(ENGINE_DESIGNS[0].id, |design| design.id))
}
