//! An existing cache: its server is asked, or this process opens it.
//!
//! Invariants: a command never asks the server of a copy. Each refusal is one sentence that names
//! the device.
//!
//! It leaves recovery to the engine.

use crate::{
    args::OriginChangedArg,
    client,
    error::{Failure, Outcome},
    flash::{
        Access, Flash, LOCK_PAUSE, LOCK_WAIT_MAX, open_flash, read_superblock, refuse_detached, refused_flash, try_open,
    },
    held::{self, Server, refused_copy},
    holder,
    lasting::outlives,
    lines,
    memory::refuse_too_large,
    origin::{Growth, open_origin},
    run_dir::RUN_DIR_ENV,
    state_dir::StateDir,
    steps::Steps,
    waiting::{saying_which, saying_why},
};
use larder_device::{
    IoErrorKind, Runtime,
    driver::block_on,
    file::FileId,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{
    Cache, FenceKeeper, Tuning,
    config::{OriginChanged, TrimPolicy},
    fence::Keeper,
};
use serde_json::Value;
use std::{fs, path::Path, sync::Arc, time::Instant};

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
/// the server through a named state directory, or else among the servers of this machine. It does
/// not ask the server of a copy.
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
            Err(error) => return Err(refused_flash(path, access, &error)),
        }
    }
}

/// Returns the reason why a command gets no answer about a flash that another process has.
fn unreached(path: &Path, flash_uuid: &[u8; 16]) -> Failure {
    let (shown, socket) = (path.display(), client::socket_path(flash_uuid));
    let socket = socket.display();
    Failure::failed(match holder::of(path) {
        Some(holder) if !holder.serves() => {
            format!("{shown} is in use by `{}` (process {}): ask again when that has ended", holder.command, holder.pid)
        }
        Some(holder) if !holder.is_trusted() => format!(
            "{shown} is in use by `{}` (process {}) of another user ({}): run the command as that user",
            holder.command, holder.pid, holder.uid
        ),
        Some(holder) => format!(
            "{shown} is in use by `{}` (process {}), which does not answer at {socket}: set {RUN_DIR_ENV} as that process has it",
            holder.command, holder.pid
        ),
        None => format!(
            "{shown} is in use by another process, and none answers at {socket}: set {RUN_DIR_ENV} as that process has it"
        ),
    })
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
#[derive(Clone, Copy, Default)]
pub struct StateArgs<'a> {
    /// The directory.
    pub dir: Option<&'a Path>,
    /// Believe the flash though its state is lost.
    pub adopt: bool,
    /// Drop dirty data behind a fence.
    pub discard: bool,
    /// The action after a change of the origin behind the cache's back.
    pub origin_changed: Option<OriginChangedArg>,
    /// The steps among which writes of the state file are.
    pub steps: Option<&'a Steps>,
}

impl StateArgs<'_> {
    /// Returns `tuning` with the keeper of a fence for this flash.
    ///
    /// # Errors
    /// A sentence.
    pub fn apply(&self, flash: &Flash, tuning: Tuning) -> Outcome<Tuning> {
        let open = || StateDir::open(self.dir, &flash.path, &flash.superblock, self.adopt);
        let state = saying_which("the state directory", open)?;
        let state = state.map(|state| match self.steps {
            Some(steps) => state.among(steps),
            None => state,
        });
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
/// The error of the opening, of `act`, or of the end.
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
