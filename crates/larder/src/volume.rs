//! An existing cache: its flash, its superblock, its origin, opened and checked against each other.
//!
//! Invariants: nothing is written here. A flash or origin that another process holds is refused.
//! This process holds one until it drops the device. Each refusal is one sentence that names the
//! device.
//!
//! It leaves recovery to the engine.

use crate::{
    args::OriginChangedArg,
    control,
    error::{Failure, Outcome, reason},
    flush::outlives,
    held::{self, Server, refused_copy},
    holder::{self, Holder},
    lines,
    memory::refuse_too_large,
    output,
    run_dir::RUN_DIR_ENV,
    state_dir::StateDir,
    waiting::saying_why,
};
use larder_device::{
    BlockDevice, IoError, IoErrorKind, Runtime,
    driver::block_on,
    file::{FileDevice, FileId, OpenOptions},
    threads::{ThreadRuntime, ThreadRuntimeOptions},
    uri::{OpenMode, OpenedDevice, open_device},
};
use larder_engine::{
    Cache, EngineError, FenceKeeper, Tuning,
    config::{ORIGIN_TIMEOUT, OriginChanged, TrimPolicy},
    fence::Keeper,
    origin_state,
    recover::Recovered,
    superblock,
};
use larder_format::{FormatError, Structure, Superblock};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a device that another process holds is tried again.
///
/// Commands that only look hold a device for a moment.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(1500);
/// Pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The flash of a cache.
pub struct Flash {
    /// Its path.
    pub path: PathBuf,
    /// The open device.
    pub device: Arc<dyn BlockDevice>,
    /// The identity of the file or device.
    pub id: Option<FileId>,
    /// Its superblock.
    pub superblock: Superblock,
}

/// The purpose for which a flash is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read the superblock, even if another process has the flash open.
    Peek,
    /// To read all of it, alone.
    Read,
    /// To read and write it, alone.
    Write,
}

fn try_open(path: &Path, access: Access) -> Result<FileDevice, IoError> {
    let options = OpenOptions {
        direct: true,
        read_only: access != Access::Write,
        exclusive: access != Access::Peek,
        create_bytes: None,
    };
    FileDevice::open(path, options)
}

/// Opens a file or block device by path.
///
/// # Errors
/// A sentence that names the path.
pub fn open_file(path: &Path, access: Access) -> Outcome<FileDevice> {
    patiently(|| try_open(path, access)).map_err(|error| refused_flash(path, &error))
}

/// Returns true if another process holds a file or block device now.
pub fn is_held(path: &Path) -> bool {
    try_open(path, Access::Read).is_err_and(|error| error.kind == IoErrorKind::InUse)
}

/// Warns if other users may read or lock a flash file.
pub fn note_open_to_others(path: &Path) {
    let Ok(found) = fs::metadata(path) else { return };
    let mode = found.mode() & 0o777;
    if found.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        output::note(&format!(
            "other users may open {path} (mode {mode:o}), read what it caches and keep it from being served: `chmod 600 {path}`"
        ));
    }
}

fn patiently<T>(mut attempt: impl FnMut() -> Result<T, IoError>) -> Result<T, IoError> {
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match attempt() {
            Err(error) if error.kind == IoErrorKind::InUse && Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
}

fn refused_flash(path: &Path, error: &IoError) -> Failure {
    let holder = (error.kind == IoErrorKind::InUse).then(|| holder::of(path)).flatten();
    let path = path.display();
    Failure::failed(match (error.kind, error.errno) {
        (IoErrorKind::InUse, _) => match holder {
            Some(Holder { pid, command }) => {
                format!(
                    "{path} is in use by `{command}` (process {pid}): end that one first, or wait until it has ended"
                )
            }
            None => format!("{path} is in use by another process: end that one first"),
        },
        (_, Some(libc::ENOENT)) => format!("{path} does not exist: name the flash that `larder create` made"),
        (IoErrorKind::ReadOnly, _) => format!("{path} cannot be written ({}): make it writable", reason(error)),
        _ => format!("{path} cannot be opened: {}", reason(error)),
    })
}

/// Opens the flash of a cache and reads its superblock.
///
/// # Errors
/// A sentence that names the path: missing, in use, not ours, damaged, newer.
pub fn open_flash(path: &Path, access: Access) -> Outcome<Flash> {
    read_superblock(path, open_file(path, access)?, access)
}

fn read_superblock(path: &Path, device: FileDevice, access: Access) -> Outcome<Flash> {
    let id = device.id();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let read = block_on(superblock::read(&*device)).and_then(|(superblock, _)| {
        if access == Access::Write {
            superblock.check_writable()?;
        }
        Ok(superblock)
    });
    let superblock = read.map_err(|error| no_superblock(path, &error))?;
    Ok(Flash { path: path.to_owned(), device, id, superblock })
}

/// Returns the sentence on a flash without a superblock to go by.
fn no_superblock(path: &Path, error: &EngineError) -> Failure {
    let superblock = Structure::Superblock;
    let EngineError::Format(error) = error else { return Failure::engine(path, error) };
    let path = path.display();
    Failure::failed(match error {
        FormatError::Truncated { .. } => {
            format!("{path} is too short to be a Larder flash: name the one that `larder create` made")
        }
        FormatError::NewerVersion { .. } => format!("{path}: {error}"),
        FormatError::BadMagic(structure) if *structure == superblock => {
            format!("{path} is not a Larder flash (it holds no superblock): name the one that `larder create` made")
        }
        FormatError::Foreign(structure) if *structure == superblock => format!(
            "{path} has the superblocks of two caches, for a `larder create` on it was interrupted: run that again with --force"
        ),
        error => format!(
            "{path} has no superblock that can be used ({error}): bring back a good copy of this flash, or make a new cache with `larder create --force`"
        ),
    })
}

/// The process that has a cache.
pub enum Reached {
    /// Its server answered this.
    Served(Value),
    /// No server: this process has the flash.
    Alone(Box<Flash>),
}

/// Asks the server of a cache, or opens its flash if it has none.
///
/// It waits for a server that is just beginning or ending. If the flash cannot be read, it finds
/// the server through the state directory, if that is named, or else among the servers of this
/// machine. It does not ask the server of a copy.
///
/// # Errors
/// The server's sentence, or one that names the flash.
pub fn reach(path: &Path, state: Option<&Path>, request: &str, access: Access) -> Outcome<Reached> {
    let (uuid, id, unread) = match open_flash(path, Access::Peek) {
        Ok(flash) => (flash.superblock.flash_uuid, flash.id, None),
        // A flash that failed, was removed, replaced or cut short under its server tells nothing.
        Err(failure) => {
            let id = fs::metadata(path).ok().and_then(|meta| FileId::of(&meta));
            let of_state = state.and_then(|state| StateDir::uuid_of(state, path));
            match of_state.or_else(|| held::find(path, id)) {
                Some(uuid) => (uuid, id, Some(failure)),
                None => return Err(failure),
            }
        }
    };
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match saying_why(&uuid, || held::ask(&uuid, path, id, request))? {
            Server::Answered(answer) => return Ok(Reached::Served(answer)),
            // A flash that cannot be read is no copy: the sentence names its fault.
            Server::OfAnother(held) => return Err(unread.unwrap_or_else(|| refused_copy(path, &held))),
            Server::None => {}
        }
        match try_open(path, access) {
            Ok(device) => return Ok(Reached::Alone(Box::new(read_superblock(path, device, access)?))),
            Err(error) if error.kind == IoErrorKind::InUse && Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(error) if error.kind == IoErrorKind::InUse => return Err(unreached(path, &uuid)),
            Err(error) => return Err(refused_flash(path, &error)),
        }
    }
}

/// Returns the reason why a command gets no answer about a flash that another process has.
fn unreached(path: &Path, flash_uuid: &[u8; 16]) -> Failure {
    let (shown, socket) = (path.display(), control::socket_path(flash_uuid));
    let socket = socket.display();
    Failure::failed(match holder::of(path) {
        Some(holder) if !holder.serves() => {
            format!("{shown} is in use by `{}` (process {}): ask again when that has ended", holder.command, holder.pid)
        }
        Some(holder) => format!(
            "{shown} is in use by `{}` (process {}), which does not answer at {socket}: set {RUN_DIR_ENV} as that process has it",
            holder.command, holder.pid
        ),
        None => format!(
            "{shown} is in use by another process, and none answers at {socket}: set {RUN_DIR_ENV} as that process has it"
        ),
    })
}

/// Opens an origin for reading and writing, alone.
///
/// # Errors
/// A sentence that names it.
pub fn open_origin_device(uri: &str) -> Outcome<OpenedDevice> {
    open_origin_within(uri, ORIGIN_TIMEOUT)
}

/// As [`open_origin_device`], with a limit on the time that a connection to a server takes.
///
/// # Errors
/// A sentence that names the origin.
pub fn open_origin_within(uri: &str, timeout: Duration) -> Outcome<OpenedDevice> {
    let mode = OpenMode { read_only: false, exclusive: true, direct: true, timeout: Some(timeout) };
    patiently(|| open_device(uri, mode)).map_err(|error| unopened_origin(uri, &error))
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
    let opened = open_device(uri, mode).map_err(|error| unopened_origin(uri, &error));
    let checked = opened.and_then(|opened| {
        check_origin(&found.superblock, &opened, Growth::Refused)?;
        origin_state::refusal(found, &*opened.device).map_or(Ok(()), |sentence| Err(Failure::failed(sentence)))
    });
    checked.err().and_then(|failure| failure.sentence())
}

/// Returns a URI in a form for people: for a file the path, if that is plain.
pub fn shown(uri: &str) -> &str {
    uri.strip_prefix("file://").filter(|path| path.starts_with('/') && !path.contains('%')).unwrap_or(uri)
}

/// Refuses a flash whose cache was detached, in any state of its origin.
///
/// # Errors
/// The sentence that says so.
pub fn refuse_detached(flash: &Flash) -> Outcome {
    if !flash.superblock.detached {
        return Ok(());
    }
    // The sentence must stay true.
    let flushed = block_on(flash.device.flush()).map_err(EngineError::Flash);
    Err(Failure::engine(&flash.path, &flushed.err().unwrap_or(EngineError::Detached)))
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
/// A sentence: missing, in use, smaller than before, another one.
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
    if found < expected {
        return Err(Failure::failed(format_args!(
            "the origin {name} is smaller than before: it has {found} bytes, and had {expected} when this cache was \
             made; give it its size back"
        )));
    }
    if found > expected && growth == Growth::Refused {
        return Err(Failure::failed(format_args!(
            "the origin {name} has grown: it has {found} bytes, and had {expected} when this cache was made; give it its \
             size back, or `larder detach` the cache and make one for the larger origin"
        )));
    }
    Ok(())
}

/// Starts the threads of this process.
///
/// # Errors
/// The system refuses them.
pub fn start_runtime(workers: Option<u16>) -> Outcome<Arc<ThreadRuntime>> {
    let mut options = ThreadRuntimeOptions::default();
    if let Some(workers) = workers {
        options.workers = workers.into();
    }
    ThreadRuntime::try_new(options)
        .map_err(|error| Failure::failed(format_args!("the system refuses to start threads: {error}")))
}

/// The options of the command line on the state that is not on the flash.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateArgs<'a> {
    /// The directory.
    pub dir: Option<&'a Path>,
    /// Believe the flash though its state is lost.
    pub adopt: bool,
    /// Drop dirty data behind a fence.
    pub discard: bool,
    /// The action after a change of the origin behind the cache's back.
    pub origin_changed: Option<OriginChangedArg>,
}

impl StateArgs<'_> {
    /// Returns `tuning` with the keeper of a fence for this flash.
    ///
    /// # Errors
    /// A sentence.
    pub fn apply(&self, flash: &Flash, tuning: Tuning) -> Outcome<Tuning> {
        let state = StateDir::open(self.dir, &flash.path, &flash.superblock, self.adopt)?;
        let fence = Keeper(state.map(|state| Arc::new(state) as Arc<dyn FenceKeeper>));
        let origin_changed = self.origin_changed.map_or(OriginChanged::Refuse, OriginChanged::from);
        Ok(Tuning { fence, discard_fenced: self.discard, origin_changed, ..tuning })
    }
}

/// A cache that this process opened, and its threads.
pub struct OpenedCache {
    /// The cache.
    pub cache: Cache,
    /// The threads that run it.
    pub runtime: Arc<ThreadRuntime>,
}

/// Opens the cache on a flash without a server.
///
/// # Errors
/// A sentence.
pub fn open_cache(flash: Flash, origin: Option<&str>, state: &StateArgs<'_>, tuning: Tuning) -> Outcome<OpenedCache> {
    refuse_detached(&flash)?;
    refuse_too_large(&flash)?;
    let growth = if tuning.accept_grown_origin { Growth::Accepted } else { Growth::Refused };
    let origin = open_origin(&flash.superblock, origin, growth, tuning.origin_timeout)?;
    let tuning = Tuning { listener: lines::of_command(), ..state.apply(&flash, tuning)? };
    let runtime = start_runtime(None)?;
    let opening = Cache::open(flash.device, origin.device, runtime.clone() as Arc<dyn Runtime>, tuning);
    let cache = block_on(opening).map_err(|error| Failure::engine(&flash.path, &error))?;
    Ok(OpenedCache { cache, runtime })
}

/// Opens the cache on a flash without a server, calls `act` with it, and ends it in order.
///
/// # Errors
/// The opening's, that of `act`, or the end's.
pub fn with_cache<T>(
    flash: Flash,
    origin: Option<&str>,
    state: &StateArgs<'_>,
    trim: TrimPolicy,
    act: impl FnOnce(&Cache) -> Outcome<T>,
) -> Outcome<T> {
    let path = flash.path.clone();
    // No client waits for the origin: destage at full speed.
    let tuning = Tuning { destage_rate_bytes_per_s: 0, trim, ..Tuning::default() };
    let OpenedCache { cache, runtime } = open_cache(flash, origin, state, tuning)?;
    let result = act(&cache);
    let closed = cache.close_blocking().map_err(|error| Failure::engine(&path, &error));
    let outlived = outlives(&cache);
    drop(cache);
    runtime.shutdown();
    let result = result?;
    closed?;
    outlived?;
    Ok(result)
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

    #[test]
    fn a_missing_flash_is_named() {
        let failure = open_flash(Path::new("/nowhere/flash"), Access::Peek).err().and_then(|f| f.sentence());
        assert!(failure.expect("refused").starts_with("/nowhere/flash does not exist"));
    }
}
