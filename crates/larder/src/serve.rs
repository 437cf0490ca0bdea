//! `larder serve`: serves a cached volume, or a bare origin, as NBD exports until a signal ends it.
//!
//! The bare origin is that of `--no-cache`. In order:
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
    bare::serve_without_flash,
    control::{bind_control, end_control},
    ending::{Ending, Event},
    error::{Failure, Outcome, system_reason},
    export_uri::uri,
    flush::{outlives, refuse_standing},
    held::Held,
    later::LaterDevice,
    lines,
    memory::refuse_too_large,
    opening::open,
    output,
    reload::{CHANGEABLE, CHANGEABLE_ALONE, OptionFile},
    size::human,
    volume::{
        Access, Flash, Growth, StateArgs, note_open_to_others, open_flash, open_origin, open_origin_within,
        refuse_detached, shown, start_runtime,
    },
};
use larder_device::{
    BlockDevice, DeviceInfo, IoFuture, Runtime, Standing,
    driver::{block_on, io_backend},
    threads::ThreadRuntime,
    throttled::{Profile, Throttled},
    watched::{Watch, Watched},
};
use larder_engine::{
    Cache, EngineError, Pace, Tuning,
    cache::REQUEST_BYTES_MAX,
    conditions::{Condition, Severity},
    tell::Telling,
};
use larder_format::{Superblock, WriteMode};
use larder_serve::nbd::{NbdServer, RequestMemory, ServeAddress, ServeError, ServerOptions};
use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
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

fn check(args: &ServeArgs) -> Outcome {
    let wrong = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    if args.flash.is_some() == args.no_cache {
        return wrong("say what to serve: --flash PATH, or --no-cache with --origin URI");
    }
    if args.no_cache && args.origin.is_none() {
        return wrong("--no-cache serves the bare origin: name it with --origin URI");
    }
    if args.no_cache && args.flash_profile.is_some() {
        return wrong("--flash-profile has no sense with --no-cache: leave it out");
    }
    if args.nbd.is_empty() {
        return wrong("say where to serve: --nbd unix:PATH or --nbd tcp:HOST:PORT");
    }
    if !(args.dirty_low <= args.dirty_high && args.dirty_high <= args.dirty_max) {
        return Err(Failure::Usage(format!(
            "--dirty-low {}, --dirty-high {} and --dirty-max {} must be in ascending order",
            args.dirty_low, args.dirty_high, args.dirty_max
        )));
    }
    let least = RequestMemory::bytes_min(connections_max(args)) as u64;
    if args.ram_requests < least {
        return Err(Failure::Usage(format!(
            "--ram-requests {} is too little for {} connections at each of {} addresses: give {} or more, or fewer --connections",
            human(args.ram_requests),
            args.connections,
            args.nbd.len(),
            human(least)
        )));
    }
    Ok(())
}

/// Returns how many connections there may be at all addresses together.
fn connections_max(args: &ServeArgs) -> usize {
    usize::from(args.connections) * args.nbd.len()
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
    let state = StateArgs {
        dir: args.state.as_deref(),
        adopt: args.adopt,
        discard: args.discard,
        origin_changed: args.origin_changed,
    };
    let runtime = start_runtime(args.workers)?;
    // (3)
    let name = args.export.clone().unwrap_or_else(|| flash.superblock.volume_name.to_string());
    let later = Arc::new(LaterDevice::new(volume_info(&flash.superblock, args.trim)));
    let unit = flash.superblock.layout.chunk_bytes;
    let servers = bind(&args.nbd, limits(args, unit), &name, later.clone(), &ending)?;
    let mut control = bind_control(&flash.superblock.flash_uuid, &ending)?;
    // After the check that no copy of this flash is served: there is one state for both.
    let tuning = ending.during("opening the state directory", || state.apply(&flash, tuning_of(args)))?;
    // (4)
    if !ending.may_open() {
        output::note("ended before the cache was opened");
        return Ok(());
    }
    let held = Held::of(&flash);
    let Flash { path, device: flash_device, superblock, .. } = flash;
    // Reads of the flash stay cheap, uncounted: writes and flushes show a flash that hangs.
    let flash_device = Watched::but_reads(with_profile(flash_device, args.flash_profile, &runtime), runtime.clone());
    let (origin_device, origin_watch) =
        Watched::over(with_profile(origin.device, args.origin_profile, &runtime), runtime.clone());
    let flash_named = (path.display().to_string(), flash_device.watch());
    let account = Account::of(ending.steps(), Some(flash_named), (&origin.canonical_uri, origin_watch.clone()));
    let tuning = Tuning { origin_watch: Some(origin_watch), ..tuning };
    account.serves(&ending, "the cache was being opened");
    let cache = open(&path, Arc::new(flash_device), origin_device, &runtime, tuning)?;
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
    output::note("ending: requests finish, then everything is flushed");
    let in_order = shut_down(&servers, &ending, &account);
    ending.now("what clients wrote was being flushed");
    account.flush(&cache);
    ending.now("the cache was being closed");
    let closed = close(&cache);
    if closed.is_ok() {
        account.is_durable_by(&cache);
    }
    // From here on `larder status` reads the flash.
    end_control(control, &ending);
    let closed = closed.map_err(|error| Failure::engine(&path, &error)).and_then(|()| outlives(&cache));
    ending.now("threads were ending");
    runtime.shutdown();
    // The sentence names the first failure, and none of its consequences.
    let_in.and(closed).and(in_order.map_err(|hung| account.requests_cut(&hung)))
}

/// Closes the cache, and tells the dirty data left in it.
fn close(cache: &Cache) -> Result<(), EngineError> {
    let began = Instant::now();
    if cache.standing().0 == Standing::Unlinked && !cache.is_closed() {
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
    let dirty = human(cache.status().dirty_bytes);
    output::note(&format!("closed in {:.1} s; {dirty} of dirty data stay on the flash", began.elapsed().as_secs_f64()));
    Ok(())
}

fn serve_origin(args: &ServeArgs, ending: &Ending, file: Option<OptionFile>) -> Outcome {
    let uri = args.origin.as_deref().unwrap_or_default();
    let origin = ending.during(opening(uri), || open_origin_within(uri, args.origin_limits.origin_timeout))?;
    let runtime = start_runtime(args.workers)?;
    let device = with_profile(origin.device, args.origin_profile, &runtime);
    let (device, _telling, watch) = watched(device, args.origin_limits.origin_timeout, &runtime);
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
        trim: args.trim.into(),
        listener: lines::of_server(),
        ..Tuning::default()
    }
}

/// Returns `device`, with the timing of `profile` if one is named.
pub fn with_profile(
    device: Arc<dyn BlockDevice>,
    profile: Option<Profile>,
    runtime: &Arc<ThreadRuntime>,
) -> Arc<dyn BlockDevice> {
    match profile {
        None => device,
        Some(profile) => Arc::new(Throttled::new(device, profile, runtime.clone())),
    }
}

/// Watches `origin`, and tells its conditions.
///
/// It tells them as long as the second value returned lives, and the third value shows them.
pub fn watched(
    origin: Arc<dyn BlockDevice>,
    timeout: Duration,
    runtime: &Arc<ThreadRuntime>,
) -> (Arc<dyn BlockDevice>, Option<Arc<Telling>>, Arc<Watch>) {
    let runtime: Arc<dyn Runtime> = runtime.clone();
    let (device, watch) = Watched::over(origin, runtime.clone());
    let telling = Telling::begin(&lines::of_server(), &watch, timeout, &runtime);
    (device, telling, watch)
}

fn serve_failed(error: ServeError) -> Failure {
    // Its sentences begin like sentences; ours follow the program's name.
    let mut letters = error.message.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    Failure::failed(first.into_iter().chain(letters).collect::<String>())
}

/// Takes the addresses.
///
/// # Errors
/// A sentence that names the one that cannot be had.
pub fn bind(
    addresses: &[ServeAddress],
    options: ServerOptions,
    name: &str,
    device: Arc<dyn BlockDevice>,
    ending: &Ending,
) -> Outcome<Arc<Vec<NbdServer>>> {
    let bind = |address: &ServeAddress| {
        let _step = ending.steps().begin(format!("taking the address {address}"));
        NbdServer::bind(address.clone(), name, device.clone(), options.clone()).map_err(serve_failed)
    };
    addresses.iter().map(bind).collect::<Outcome<Vec<_>>>().map(Arc::new)
}

/// Names the step that opens an origin.
pub fn opening(uri: &str) -> String {
    format!("opening the origin {}", shown(uri))
}

/// Returns the limits of servers that have no options, at so many addresses.
pub fn server_options(addresses: usize) -> ServerOptions {
    let defaults = ServerOptions::default();
    let memory = Arc::new(RequestMemory::new(RequestMemory::BYTES_DEFAULT, defaults.connections_max * addresses));
    ServerOptions { memory, ..defaults }
}

/// Returns the limits that the command line sets.
///
/// A cache works on whole chunks for a request: then `work_unit_bytes` is the size of a chunk, and
/// else 0.
pub fn limits(args: &ServeArgs, work_unit_bytes: u32) -> ServerOptions {
    let bytes = usize::try_from(args.ram_requests).unwrap_or(usize::MAX);
    let memory = RequestMemory::new(bytes, connections_max(args)).with_work_in(work_unit_bytes as usize);
    ServerOptions {
        request_bytes_max: args.request_max,
        connections_max: args.connections.into(),
        memory: Arc::new(memory),
        ..ServerOptions::default()
    }
}

fn end_timeout(args: &ServeArgs) -> Duration {
    Duration::from_secs(args.end_timeout.into())
}

/// A device that is served without a cache.
pub struct Alone<'a> {
    /// Its servers.
    pub servers: &'a Arc<Vec<NbdServer>>,
    /// The name of the export.
    pub name: &'a str,
    /// The end.
    pub ending: &'a Ending,
    /// The account of the device.
    pub account: &'a Arc<Account>,
}

impl Alone<'_> {
    /// Lets clients in, announces that, and waits for a signal; then requests finish.
    ///
    /// They finish also if clients could not be let in. `next`: the step after that.
    ///
    /// # Errors
    /// A sentence: the first failure.
    pub fn serve(&self, next: &str, file: Option<OptionFile>) -> Outcome {
        self.account.serves(self.ending, "the server was beginning");
        let let_in = let_in(self.servers, self.name, self.ending, self.account);
        if let_in.is_ok() {
            wait_for_the_end(self.ending, file, CHANGEABLE_ALONE, |_| {});
        }
        output::note(&format!("ending: requests finish, {next}"));
        let in_order = shut_down(self.servers, self.ending, self.account);
        self.ending.now("the origin was being flushed");
        let_in.and(in_order.map_err(|hung| self.account.requests_cut(&hung)))
    }

    /// Flushes the device at the end, and sees that its data outlives this process. `uri` names it.
    ///
    /// # Errors
    /// A sentence that names the origin.
    pub fn flush(&self, device: &dyn BlockDevice, uri: &str) -> Outcome {
        self.flushed(device.flush(), device, uri)
    }

    /// As [`Alone::flush`], with a flush of the device that has begun.
    ///
    /// # Errors
    /// A sentence that names the origin.
    pub fn flushed(&self, flushing: IoFuture<()>, device: &dyn BlockDevice, uri: &str) -> Outcome {
        let origin = shown(uri);
        block_on(flushing)
            .map_err(|error| Failure::failed(format_args!("the origin {origin} is not flushed: {error}")))?;
        refuse_standing(device.standing(), origin).map_err(Failure::failed)?;
        self.account.is_durable("origin");
        self.ending.now("threads were ending");
        Ok(())
    }
}

/// Lets clients in, and announces that, unless the end has begun meanwhile.
fn let_in(servers: &[NbdServer], name: &str, ending: &Ending, account: &Account) -> Outcome {
    if !ending.may_open() {
        return Ok(());
    }
    ending.now("it served");
    account.begin();
    start(servers)?;
    announce(servers, name)
}

/// Waits for the end. Each reload reads the option file again, and `apply` changes the server.
fn wait_for_the_end(ending: &Ending, file: Option<OptionFile>, changeable: &[&str], apply: impl Fn(&ServeArgs)) {
    let mut file = file;
    while ending.next() == Event::Reload {
        let Some(file) = &mut file else { continue };
        file.again(changeable, check, |args| {
            ending.set_timeout(end_timeout(args));
            apply(args);
        });
    }
}

fn start(servers: &[NbdServer]) -> Outcome {
    servers.iter().for_each(|server| {
        let shortage = server.shortage();
        lines::watch(move || shortage.get().map(|error| too_many_files("NBD clients", &error)));
    });
    servers.iter().try_for_each(|server| server.start().map_err(serve_failed))
}

/// Returns the condition that clients are not let in: the system has no descriptor for a
/// connection.
pub fn too_many_files(whom: &str, error: &std::io::Error) -> Condition {
    let what =
        format!("{whom} that connect are not let in: {}; connections that there are go on", system_reason(error));
    Condition { name: "too_many_files", severity: Severity::Degraded, what }
}

/// Announces the volume's address: one line on standard output, further ones on standard error.
fn announce(servers: &[NbdServer], name: &str) -> Outcome {
    let mut uris = servers.iter().map(|server| uri(server.local_address(), name));
    let first = uris.next().unwrap_or_default();
    uris.for_each(|uri| output::note(&format!("also at {uri}")));
    output::say(&format!("ready: {first}\n"))
}

/// Ends the servers; names the hanging devices if requests had to be cut off.
fn shut_down(servers: &Arc<Vec<NbdServer>>, ending: &Ending, account: &Account) -> Result<(), String> {
    ending.begin();
    ending.now("requests were finishing");
    let is_drained = drain(servers, ending);
    let drained = |at_most| is_drained(at_most) && servers.iter().all(|server| server.await_drained(at_most));
    if ending.await_requests(drained) {
        return Ok(());
    }
    let hung = account.hung();
    servers.iter().for_each(|server| server.cut(Duration::ZERO));
    let until = Instant::now() + ending.cut_max();
    while !drained(until.saturating_duration_since(Instant::now())) && Instant::now() < until {}
    Err(format!("{} s: {hung}", ending.requests_max().as_secs_f64()))
}

/// Has the servers close their addresses, and each connection end after its requests.
///
/// Threads do it: the removal of a socket may hang, and acknowledged data is flushed all the same.
/// The returned function waits for at most this time, and tells whether all threads are done.
fn drain(servers: &Arc<Vec<NbdServer>>, ending: &Ending) -> impl Fn(Duration) -> bool {
    let (over, is_over) = mpsc::channel::<Infallible>();
    for at in 0..servers.len() {
        let (servers, steps, over) = (servers.clone(), ending.steps().clone(), over.clone());
        let close = move || {
            if let Some(server) = servers.get(at) {
                let _step = steps.begin(format!("closing {}", server.local_address()));
                server.drain();
            }
            drop(over);
        };
        // A system that refuses the thread has this one do it.
        if std::thread::Builder::new().name("closing".into()).spawn(close.clone()).is_err() {
            close();
        }
    }
    move |at_most| is_over.recv_timeout(at_most) == Err(RecvTimeoutError::Disconnected)
}
