//! The origin of a cache: opened, and checked against the superblock.
//!
//! Invariants: nothing is written here. Each refusal is one sentence that names the origin.
//!
//! It leaves marks of changes to the engine.

use crate::{
    error::{Failure, Outcome, reason},
    flash::patiently,
    waiting::saying_which,
};
use larder_device::{
    IoError, IoErrorKind,
    driver::block_on,
    uri::{OpenMode, OpenedDevice, open_device},
};
use larder_engine::{config::ORIGIN_TIMEOUT, origin_state, recover::Recovered};
use larder_format::Superblock;
use std::time::Duration;

/// Opens an origin for reading and writing, alone.
///
/// # Errors
/// A sentence that names it.
pub fn open_origin_device(uri: &str) -> Outcome<OpenedDevice> {
    open_origin_within(uri, ORIGIN_TIMEOUT)
}

/// Opens the origin, as [`open_origin_device`], with a time limit for a connection to a server.
///
/// # Errors
/// A sentence that names the origin.
pub fn open_origin_within(uri: &str, timeout: Duration) -> Outcome<OpenedDevice> {
    let mode = OpenMode { read_only: false, exclusive: true, direct: true, timeout: Some(timeout) };
    asking_origin(uri, || patiently(|| open_device(uri, mode))).map_err(|error| unopened_origin(uri, &error))
}

/// Calls `act`, which asks the origin for a little; it says so if the origin hangs.
fn asking_origin<T>(uri: &str, act: impl FnOnce() -> T) -> T {
    saying_which(&format!("the origin {}", shown(uri)), act)
}

fn unopened_origin(uri: &str, error: &IoError) -> Failure {
    let shown = shown(uri);
    Failure::failed(match (error.kind, error.errno) {
        (IoErrorKind::InUse, _) => {
            format!("the origin {shown} is already served, or in use by another process: end that one first")
        }
        (_, Some(libc::ENOENT)) => format!("the origin {shown} is missing: bring it back, or name the right one"),
        (IoErrorKind::ReadOnly, _) => {
            format!("the origin {shown} cannot be written ({}): make it writable", reason(error))
        }
        _ => format!("the origin {shown} cannot be opened: {}", reason(error)),
    })
}

/// Returns the sentence with which `serve` refuses the origin of a flash that has no server.
///
/// It looks at a file or block device alone: a look at a server is a connection there.
pub fn refused_origin(found: &Recovered) -> Option<String> {
    let uri = found.superblock.origin.uri.as_str();
    if found.superblock.detached || !uri.starts_with("file://") {
        return None;
    }
    let mode = OpenMode { read_only: true, exclusive: false, direct: true, timeout: None };
    let check = || {
        let opened = open_device(uri, mode).map_err(|error| unopened_origin(uri, &error))?;
        check_origin(&found.superblock, &opened, Growth::Refused)?;
        block_on(origin_state::refusal(found, &*opened.device))
            .map_or(Ok(()), |sentence| Err(Failure::failed(sentence)))
    };
    let checked = asking_origin(uri, check);
    checked.err().and_then(|failure| failure.sentence())
}

/// Returns a URI in a form for people: for a file the path, if that is plain.
pub fn shown(uri: &str) -> &str {
    uri.strip_prefix("file://").filter(|path| path.starts_with('/') && !path.contains('%')).unwrap_or(uri)
}

/// The treatment of an origin that is larger than at the creation of its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It is refused.
    Refused,
    /// It is taken: only dirty data goes there.
    Accepted,
}

/// Refuses an origin that is not the one whose identity is `known`.
///
/// An origin without an identity does not replace one that had one. A known one without was a block
/// device without an identity from the kernel, which may give one by now.
///
/// # Errors
/// The sentence that says so.
pub fn refuse_another(known: u64, opened: &OpenedDevice) -> Outcome {
    if known == opened.identity || (known == 0 && opened.is_block_device) {
        return Ok(());
    }
    Err(Failure::failed(format_args!(
        "the origin {} is not the one that this cache was made for: bring that one back, or make a new cache with \
         `larder create --force`",
        shown(&opened.canonical_uri)
    )))
}

/// Opens the origin that belongs to a flash: at the place that the superblock names, or at
/// `elsewhere`.
///
/// # Errors
/// A sentence: missing, in use, smaller than before, in coarser blocks, another one.
pub fn open_origin(
    superblock: &Superblock,
    elsewhere: Option<&str>,
    growth: Growth,
    timeout: Duration,
) -> Outcome<OpenedDevice> {
    let opened = open_origin_within(elsewhere.unwrap_or(superblock.origin.uri.as_str()), timeout)?;
    check_origin(superblock, &opened, growth)?;
    Ok(opened)
}

fn check_origin(superblock: &Superblock, opened: &OpenedDevice, growth: Growth) -> Outcome {
    let name = shown(&opened.canonical_uri);
    let (expected, found) = (superblock.origin.size_bytes, opened.device.info().size_bytes);
    refuse_another(superblock.origin.identity, opened)?;
    if found < expected && found + opened.cut_bytes >= expected {
        // The largest block that the size is a multiple of.
        let block_bytes_max = expected & expected.wrapping_neg();
        return Err(Failure::failed(format_args!(
            "the origin {name} has blocks of {} bytes now, so its last {} bytes cannot be reached: give its server or device \
             blocks of {block_bytes_max} bytes at most, as before",
            opened.device.info().sector_bytes,
            expected - found
        )));
    }
    if found < expected {
        return Err(Failure::failed(format_args!(
            "the origin {name} is smaller than before: it has {found} bytes, and had {expected} when this cache was \
             made; give it its size back"
        )));
    }
    if found > expected && growth == Growth::Refused {
        return Err(Failure::failed(format_args!(
            "the origin {name} has grown to {found} bytes from {expected}: give it its size back, or `larder detach` the cache and make one for the larger origin"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shown_by_path() {
        assert_eq!(shown("file:///a/b"), "/a/b");
        assert_eq!(shown("file:///a%20b"), "file:///a%20b");
        assert_eq!(shown("nbd://host/x"), "nbd://host/x");
    }
}
