//! `larder serve`: serves a cached volume, or a bare origin, as NBD exports until a signal ends it.
//!
//! `--no-cache` serves the bare origin. In order:
//! 1. Options are checked.
//! 2. Flash and origin are opened, alone, and checked.
//! 3. Addresses and the control socket are taken; nothing was changed so far.
//! 4. The cache is opened.
//! 5. Clients are let in, and `ready: URI` is printed.
//! 6. A signal comes.
//! 7. Servers finish their requests and close; the cache flushes and writes its checkpoint, also if
//!    (5) failed.
//!
//! Invariants: standard output carries the `ready` line alone. All of (7) has one deadline, which
//! `ending` keeps.
//!
//! It does not run in the background.

use crate::{
    account::Account,
    answers::Served,
    args::{ServeArgs, TrimArg},
    asking::watched,
    bare::serve_without_flash,
    control::{bind_control, end_control},
    ending::Ending,
    error::{Failure, Outcome},
    flash::{Access, Flash, note_open_to_others, open_flash, refuse_detached},
    held::HeldFlash,
    lasting::{flash_standing, outlives},
    later::LaterDevice,
    lines,
    memory::refuse_too_large,
    opening::open,
    origin::{Growth, open_origin, open_origin_within, shown},
    output,
    reload::{CHANGEABLE, OptionFile},
    serving::{Alone, bind, check, end_timeout, let_in, limits, opening, shut_down, wait_for_the_end, with_profile},
    size::human,
    volume::{StateArgs, start_runtime},
};
use larder_device::{
    DeviceInfo, Standing,
    driver::{block_on, io_backend},
    uri::OpenedDevice,
    watched::WatchedDevice,
};
use larder_engine::{Cache, EngineError, Pace, Tuning, cache::REQUEST_BYTES_MAX, lacked};
use larder_format::{Superblock, WriteMode};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

/// Sector of a cached volume, in bytes.
const VOLUME_SECTOR_BYTES: u32 = larder_core::types::SECTOR_BYTES as u32;

/// Runs the command until a signal; `file`: the option file, if there is one.
///
/// # Errors
/// One sentence. A failure before the cache is opened has changed nothing. A failure after that,
/// and before `ready` was printed, has closed it again as in order.
pub fn run(args: &ServeArgs, file: Option<OptionFile>) -> Outcome {
    check(args)?;
    let ending = Ending::listen(end_timeout(args), file.is_some())?;
    match &args.flash {
        Some(flash) => serve_cache(args, flash, ending, file),
        None => serve_origin(args, &ending, file),
    }
}

fn serve_cache(args: &ServeArgs, path: &Path, ending: Ending, file: Option<OptionFile>) -> Outcome {
    // (2)
    let opened = ending.during(format!("opening the flash {}", path.display()), || open_flash(path, Access::Write));
    let flash = match (opened, &args.state) {
        (Err(_), Some(state)) if !path.exists() => return serve_without_flash(args, path, state, &ending, file),
        (flash, _) => flash?,
    };
    refuse_detached(&flash)?;
    refuse_too_large(&flash)?;
    let (elsewhere, timeout) = (args.origin.as_deref(), args.origin_limits.origin_timeout);
    let origin = ending.during(opening(elsewhere.unwrap_or(flash.superblock.origin.uri.as_str())), || {
        open_origin(&flash.superblock, elsewhere, Growth::Refused, timeout)
    })?;
    serve_on(args, flash, origin, ending, file)
}

/// Serves the cache on these devices; the steps follow the steps of [`serve_cache`].
fn serve_on(args: &ServeArgs, flash: Flash, origin: OpenedDevice, ending: Ending, file: Option<OptionFile>) -> Outcome {
    let runtime = start_runtime(args.workers)?;
    // (3)
    let name = args.export.clone().unwrap_or_else(|| flash.superblock.volume_name.to_string());
    let later = Arc::new(LaterDevice::new(volume_info(&flash.superblock, args.trim)));
    let unit = flash.superblock.layout.chunk_bytes;
    let servers = bind(&args.nbd, limits(args, unit), &name, later.clone(), &ending)?;
    let mut control = bind_control(&flash.superblock.flash_uuid, &ending)?;
    // After the check that no copy of this flash is served: there is one state for both.
    let tuning = with_state(args, &flash, &ending)?;
    // (4)
    if !ending.may_open() {
        output::note("ended before the cache was opened");
        return Ok(());
    }
    let held = HeldFlash::of(&flash);
    let Flash { path, device: flash_device, superblock, .. } = flash;
    let watched = |device, profile| WatchedDevice::over(with_profile(device, profile, &runtime), runtime.clone());
    let (flash_device, flash_watch) = watched(flash_device, args.flash_profile);
    let (origin_device, origin_watch) = watched(origin.device, args.origin_profile);
    let flash_named = (path.display().to_string(), flash_watch.clone());
    let account = Account::of(ending.steps(), Some(flash_named), (&origin.canonical_uri, origin_watch.clone()));
    let tuning = Tuning { flash_watch: Some(flash_watch), origin_watch: Some(origin_watch), ..tuning };
    account.serves(&ending, "the cache was being opened");
    let cache = open(&path, flash_device, origin_device, &runtime, tuning)?;
    output::note(&format!("I/O: {}", io_backend()));
    note_open_to_others(&path);
    later.set(cache.clone());
    let is_ending = Arc::new(AtomicBool::new(false));
    // (5) and (6)
    let let_in = ending.waker().and_then(|wake| {
        let (cache, flash) = (cache.clone(), path.clone());
        let long = AtomicUsize::new(0);
        let served = Served { cache, servers: servers.clone(), flash, held, superblock, wake, long };
        let answers = is_ending.clone();
        control.start(Arc::new(move |request: &str| served.answer(request, answers.load(Ordering::Acquire))))?;
        let_in(&servers, &name, &ending, &account)
    });
    if let_in.is_ok() {
        let retune = |args: &ServeArgs| cache.retune(Pace::from(&tuning_of(args)));
        wait_for_the_end(&ending, file, CHANGEABLE, retune);
    }
    // (7)
    is_ending.store(true, Ordering::Release);
    cache.expect_end();
    output::note("ending: requests finish, then everything is flushed");
    let in_order = shut_down(&servers, &ending, &account);
    let closed = flush_and_close(&cache, &account, &ending);
    // From here on `larder status` reads the flash.
    end_control(control, &ending);
    let closed = closed.map_err(|error| Failure::engine(&path, &error)).and_then(|()| outlives(&cache));
    ending.now("threads were ending");
    runtime.shutdown();
    // The sentence names the first failure, and none of its consequences.
    let_in.and(closed).and(in_order.map_err(|hung| account.requests_cut(&hung)))
}

/// Opens the state directory, and returns the tuning with it.
fn with_state(args: &ServeArgs, flash: &Flash, ending: &Ending) -> Outcome<Tuning> {
    let state = StateArgs {
        dir: args.state.as_deref(),
        adopt: args.adopt,
        discard: args.discard,
        origin_changed: args.origin_changed,
        steps: Some(ending.steps()),
    };
    ending.during("opening the state directory", || state.apply(flash, tuning_of(args)))
}

/// Flushes the cache and closes it.
fn flush_and_close(cache: &Cache, account: &Account, ending: &Ending) -> Result<(), EngineError> {
    ending.now("the clients' writes were being flushed");
    account.flush(cache);
    ending.now("the cache was being closed");
    close(cache).inspect(|()| account.is_durable_by(cache))
}

/// Closes the cache, and tells the dirty data left in it.
fn close(cache: &Cache) -> Result<(), EngineError> {
    let began = Instant::now();
    if flash_standing(cache) == Standing::Unlinked && !cache.is_closed() {
        output::note("the file of the flash has no name any more: its dirty data goes to the origin before the end");
        // The line below tells the data that stays.
        let _ = block_on(cache.destage_all());
    }
    match block_on(cache.close()) {
        Ok(()) => {}
        // A detach closed it, or tried to.
        Err(EngineError::Closed) if cache.superblock().detached => {}
        Err(error) => return Err(error),
    }
    let status = cache.status();
    let lacked = lacked::told(status.dirty_bytes, status.trimmed_bytes, human);
    output::note(&format!("closed in {:.1} s; {lacked} stay on the flash", began.elapsed().as_secs_f64()));
    Ok(())
}

fn serve_origin(args: &ServeArgs, ending: &Ending, file: Option<OptionFile>) -> Outcome {
    let uri = args.origin.as_deref().unwrap_or_default();
    let origin = ending.during(opening(uri), || open_origin_within(uri, args.origin_limits.origin_timeout))?;
    let runtime = start_runtime(args.workers)?;
    let device = with_profile(origin.device, args.origin_profile, &runtime);
    let (device, _telling, watch) = watched(device, args.origin_limits.origin_timeout, &runtime, ending.look());
    let name = args.export.clone().unwrap_or_default();
    let servers = bind(&args.nbd, limits(args, 0), &name, device.clone(), ending)?;
    output::note(&format!("I/O: {}", io_backend()));
    output::note(&format!("no cache: {} alone", shown(&origin.canonical_uri)));
    let account = Account::of(ending.steps(), None, (&origin.canonical_uri, watch));
    let alone = Alone { servers: &servers, name: &name, ending, account: &account };
    let served = alone.serve("then the origin is flushed", file);
    let flushed = alone.flush(&*device, uri);
    drop(device);
    runtime.shutdown();
    flushed.and(served)
}

/// Describes the volume of a cache that is yet to be opened.
fn volume_info(superblock: &Superblock, trim: TrimArg) -> DeviceInfo {
    DeviceInfo {
        name: superblock.volume_name.to_string(),
        size_bytes: superblock.origin.size_bytes,
        sector_bytes: VOLUME_SECTOR_BYTES,
        physical_sector_bytes: 4096,
        optimal_io_bytes: superblock.layout.chunk_bytes,
        request_bytes_max: REQUEST_BYTES_MAX,
        discard_zeroes: trim != TrimArg::Keep,
        zeroes_fast: superblock.mode == WriteMode::Back,
        read_only: false,
    }
}

fn tuning_of(args: &ServeArgs) -> Tuning {
    let in_memory = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Tuning {
        dirty_low_percent: args.dirty_low,
        dirty_high_percent: args.dirty_high,
        dirty_max_percent: args.dirty_max,
        destage_rate_bytes_per_s: args.destage_rate,
        insert_queue_bytes_max: in_memory(args.insert_queue),
        prefetch_bytes_max: in_memory(args.prefetch),
        durable_writes: args.durable_writes,
        origin_timeout: args.origin_limits.origin_timeout,
        flash_full_timeout: args.flash_full_timeout,
        // The rest of the end has the other half.
        mark_wait_max: Tuning::default().mark_wait_max.min(end_timeout(args) / 2),
        trim: args.trim.into(),
        wear: args.wear,
        listener: lines::of_server(),
        ..Tuning::default()
    }
}
