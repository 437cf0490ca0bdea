//! The conditions of flash and origin, from their watches alone.
//!
//! Invariants: without a watch's word there is no condition.
//!
//! It does not wait for a device. It leaves the flash's failed writes and reads to the cache, which
//! repeats them.

use crate::conditions::condition::{Condition, Severity};
use larder_device::{
    IoError, IoErrorKind, Standing,
    watched::{Oldest, Watch},
};
use std::{sync::Arc, time::Duration};

/// The watches of a cache that is being opened, or of an origin without one.
pub struct Watches {
    /// The flash, if there is one.
    pub flash: Option<Arc<Watch>>,
    /// The origin.
    pub origin: Arc<Watch>,
    /// The age of a request from which on its device hangs.
    pub hangs_after: Duration,
}

impl Watches {
    /// Returns the conditions of the devices.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let of_flash = self.flash.as_ref().and_then(|flash| flash_hangs(flash, self.hangs_after));
        of_flash.into_iter().chain(of_origin(&self.origin, self.hangs_after)).collect()
    }
}

/// Returns the condition of an origin whose last operation of a kind failed with `error`. With
/// `dirty`, data waits to be written there.
pub fn origin_fails(error: &IoError, dirty: bool) -> Condition {
    let name = match error.kind {
        IoErrorKind::Gone => "origin_gone",
        IoErrorKind::NoSpace | IoErrorKind::Quota => "origin_full",
        _ => "origin_failing",
    };
    let rest = if dirty { "; dirty data stays on the flash and is tried again" } else { "" };
    Condition { name, severity: Severity::Degraded, what: format!("the origin fails ({error}){rest}") }
}

/// Returns the condition of a flash whose name and size cannot be asked for.
pub(crate) fn flash_unlooked(error: &IoError) -> Condition {
    let what = format!("the flash fails ({error}): until that succeeds, FLUSH and FUA fail in write-back");
    Condition { name: "flash_failing", severity: Severity::Degraded, what }
}

/// Returns the condition of an origin that owes an answer for `limit` or longer.
pub(crate) fn origin_hangs(watch: &Watch, limit: Duration) -> Option<Condition> {
    hangs("origin_hangs", "origin", watch, limit)
}

/// Returns the condition of a flash that owes an answer for `limit` or longer.
pub(crate) fn flash_hangs(watch: &Watch, limit: Duration) -> Option<Condition> {
    hangs("flash_hangs", "flash", watch, limit)
}

fn hangs(name: &'static str, device: &str, watch: &Watch, limit: Duration) -> Option<Condition> {
    let Oldest { op, age, waiting } = watch.oldest().filter(|oldest| oldest.age >= limit)?;
    let requests = if waiting == 1 { "1 request waits" } else { &format!("{waiting} requests wait") };
    let what = format!(
        "the {device} hangs: it has not answered a {} for {} s, and {requests} for it; requests without it go on",
        op.name(),
        age.as_secs()
    );
    Some(Condition { name, severity: Severity::Degraded, what })
}

/// Returns the conditions of an origin, from its watch alone.
pub fn of_origin(watch: &Watch, limit: Duration) -> Vec<Condition> {
    let fails = watch.error().map(|error| origin_fails(&error, false));
    fails.into_iter().chain(origin_hangs(watch, limit)).chain(origin_stands(watch.standing())).collect()
}

/// Returns the condition of an origin with this standing.
pub(crate) fn origin_stands(standing: Standing) -> Option<Condition> {
    let (name, what) = match standing {
        Standing::Sound => return None,
        Standing::Renamed => {
            let what = "the file of the origin is no longer at its place: it was renamed, or its file system unmounted";
            return Some(Condition { name: "origin_renamed", severity: Severity::Warning, what: what.to_owned() });
        }
        Standing::Unlinked => (
            "origin_unlinked",
            "the file of the origin has no name any more: it goes when this server ends; copy the volume to another place \
             before that"
                .to_owned(),
        ),
        Standing::Truncated(bytes) => (
            "origin_truncated",
            format!("the file of the origin was cut to {bytes} bytes while it was in use: the data behind that is lost there"),
        ),
    };
    Some(Condition { name, severity: Severity::Degraded, what })
}
