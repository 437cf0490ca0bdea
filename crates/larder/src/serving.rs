//! The shared steps of each kind of serving: options, addresses, letting clients in, and their end.
//!
//! Invariants: a server takes its addresses before a cache is opened. Requests finish before a
//! device is flushed.
//!
//! It does not open a device.

use crate::{
    account::Account,
    args::ServeArgs,
    ending::{Ending, ServerEvent, Waited},
    error::{Failure, Outcome},
    export_uri::uri,
    lasting::refuse_standing,
    lines::{self, too_many_files},
    origin::shown,
    output,
    readings::Readings,
    reload::{CHANGEABLE_ALONE, OptionFile},
    size::human,
};
use larder_device::{
    BlockDevice, IoFuture,
    driver::block_on,
    threads::ThreadRuntime,
    throttled::{Profile, Throttled},
};
use larder_serve::nbd::{NbdServer, RequestMemory, ServeAddress, ServeError, ServerOptions};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

pub(crate) fn check(args: &ServeArgs) -> Outcome {
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
pub(crate) fn connections_max(args: &ServeArgs) -> usize {
    usize::from(args.connections) * args.nbd.len()
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

pub(crate) fn end_timeout(args: &ServeArgs) -> Duration {
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

    /// Flushes, as [`Alone::flush`], with a flush of the device that has begun.
    ///
    /// # Errors
    /// A sentence that names the origin.
    pub fn flushed(&self, flushing: IoFuture<()>, device: &dyn BlockDevice, uri: &str) -> Outcome {
        let origin = shown(uri);
        block_on(flushing)
            .map_err(|error| Failure::failed(format_args!("the origin {origin} is not flushed: {error}")))?;
        refuse_standing(block_on(device.look()), origin).map_err(Failure::failed)?;
        self.account.is_durable("origin");
        self.ending.now("threads were ending");
        Ok(())
    }
}

/// Lets clients in, and announces that, unless the end has begun meanwhile.
pub(crate) fn let_in(servers: &[NbdServer], name: &str, ending: &Ending, account: &Account) -> Outcome {
    if !ending.may_open() {
        return Ok(());
    }
    ending.now("it served");
    account.begin();
    start(servers)?;
    announce(servers, name)
}

/// Waits for the end. Each reload reads the option file again, and `apply` changes the server.
///
/// An end that begins meanwhile waits for no reading.
pub(crate) fn wait_for_the_end(
    ending: &Ending,
    file: Option<OptionFile>,
    changeable: &[&str],
    apply: impl Fn(&ServeArgs),
) {
    let mut file = file.map(|file| (Readings::new(file.path(), ending), file));
    loop {
        let late_at = file.as_ref().and_then(|(readings, _)| readings.late_at());
        let look = || file.as_mut().and_then(|(readings, _)| readings.take());
        match (ending.next_unless(late_at, look), &mut file) {
            (Waited::Event(ServerEvent::End), _) => return,
            (_, None) => {}
            (Waited::Event(ServerEvent::Reload), Some((readings, _))) => readings.begin(),
            (Waited::Late, Some((readings, _))) => readings.tell_late(),
            (Waited::Found(bytes), Some((_, file))) => file.again(bytes, changeable, check, |args| {
                ending.set_timeout(end_timeout(args));
                apply(args);
            }),
        }
    }
}

fn start(servers: &[NbdServer]) -> Outcome {
    servers.iter().for_each(|server| {
        let shortage = server.shortage();
        lines::watch(move || shortage.get().map(|error| too_many_files("NBD clients", &error)));
    });
    servers.iter().try_for_each(|server| server.start().map_err(serve_failed))
}

/// Announces the volume's address: one line on standard output, further ones on standard error.
fn announce(servers: &[NbdServer], name: &str) -> Outcome {
    let mut uris = servers.iter().map(|server| uri(server.local_address(), name));
    let first = uris.next().unwrap_or_default();
    uris.for_each(|uri| output::note(&format!("also at {uri}")));
    output::say_in_time(format!("ready: {first}\n"))
}

/// Ends the servers; names the hanging devices if requests had to be cut off.
pub(crate) fn shut_down(servers: &Arc<Vec<NbdServer>>, ending: &Ending, account: &Account) -> Result<(), String> {
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
