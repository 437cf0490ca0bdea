//! The effects of signals on this process.
//!
//! A signal ends a server in order or reloads its option file, or ends a command that works on
//! traces. Some have no effect.
//!
//! Invariants: an inherited SIGHUP that was ignored stays ignored, unless it reloads. A command
//! blocks no signal that it obeys, even if the parent process had blocked it. A thread that waits
//! for signals alone takes them. The second of SIGINT, SIGQUIT and SIGTERM ends the process at
//! once, with exit code 1. SIGHUP, SIGPWR and SIGXCPU never do, for a terminal that hangs up, or a
//! limit, sends several.
//!
//! It leaves the end of a server, and its time, to `ending`.

use crate::{
    error::{EXIT_FAILED, Failure, Outcome, system_reason},
    output,
};
use libc::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    SIGXFSZ, c_int,
};
use signal_hook::{flag, low_level::pipe};
use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Signals that ask for the end; a second one asks for it at once.
const ASKS: [c_int; 3] = [SIGINT, SIGQUIT, SIGTERM];
/// Signals that announce the end, maybe more than once.
const TELLS: [c_int; 3] = [SIGHUP, SIGPWR, SIGXCPU];
/// Signals without meaning here that would end the process; real-time signals are the same.
const MEANINGLESS: [c_int; 7] = [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT];
/// Longest time in which a command that works on traces notices that it shall end.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// Makes a write beyond the shell's `ulimit -f` fail, in place of the end of the process.
pub fn outlive_file_limits() {
    ignore(SIGXFSZ);
}

/// Unblocks the signals that end or reload, for this thread and those that it starts.
///
/// A parent process may have blocked them, and `exec` keeps that.
pub fn unblock() {
    mask(libc::SIG_UNBLOCK);
}

/// Leaves the signals that end or reload to the thread that takes them, which runs already.
///
/// This thread, and those that it starts from now on, may hang in the system. A signal that the
/// system gives to such a thread has no effect until then.
pub fn leave_to_taker() {
    mask(libc::SIG_BLOCK);
}

fn mask(how: c_int) {
    // SAFETY: all zeroes is a valid `sigset_t`, which `sigemptyset` then sets up.
    let mut obeyed: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `obeyed` outlives the calls, and each signal is one of the system's.
    unsafe {
        libc::sigemptyset(&raw mut obeyed);
        for signal in ASKS.into_iter().chain(TELLS) {
            libc::sigaddset(&raw mut obeyed, signal);
        }
        // It fails for a request that is none, and this is one.
        libc::pthread_sigmask(how, &raw const obeyed, std::ptr::null_mut());
    }
}

/// Ignores the signals without meaning.
fn outlive_the_meaningless() {
    MEANINGLESS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).for_each(ignore);
}

fn ignore(signal: c_int) {
    // SAFETY: no handler is installed; a signal that cannot be ignored is left as it is.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Returns true if the parent process had a signal ignored.
fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is installed, and `now` outlives the call.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN }
}

fn refused(error: &std::io::Error) -> Failure {
    Failure::failed(format_args!("signals cannot be waited for: {}", system_reason(error)))
}

/// The streams on which signals arrive, as bytes that can be polled for.
pub struct Arrivals {
    /// A byte for each signal that ends.
    pub end: UnixStream,
    /// A byte for each signal that reloads; none comes to a process without an option file.
    pub reload: UnixStream,
    /// A byte written here has the effect of a signal that ends.
    pub wake: UnixStream,
    /// Kept open, also if no signal writes to it: a closed end would be readable for ever.
    _wake_reload: UnixStream,
}

/// Begins to listen for a server.
///
/// It listens to signals that end the server, and with `reloads` to a SIGHUP that reloads.
///
/// # Errors
/// A sentence.
pub fn arrivals(reloads: bool) -> Outcome<Arrivals> {
    outlive_the_meaningless();
    let register = || {
        let (end, wake) = UnixStream::pair()?;
        let (reload, wake_reload) = UnixStream::pair()?;
        for stream in [&end, &reload] {
            stream.set_nonblocking(true)?;
        }
        end_at_second()?;
        let tells = TELLS.into_iter().filter(|&signal| signal != SIGHUP || !(reloads || is_ignored(SIGHUP)));
        for signal in ASKS.into_iter().chain(tells) {
            pipe::register(signal, wake.try_clone()?)?;
        }
        if reloads {
            pipe::register(SIGHUP, wake_reload.try_clone()?)?;
        }
        Ok(Arrivals { end, reload, wake, _wake_reload: wake_reload })
    };
    register().map_err(|error: std::io::Error| refused(&error))
}

/// Makes the second signal that asks for the end exit the process.
fn end_at_second() -> std::io::Result<()> {
    let is_asked = Arc::new(AtomicBool::new(false));
    for signal in ASKS {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, EXIT_FAILED.into(), is_asked.clone())?;
        flag::register(signal, is_asked.clone())?;
    }
    Ok(())
}

/// Returns a flag that a signal sets, for work that polls it and cleans up.
///
/// The second signal, or a clean-up that takes too long, calls `leftovers` and ends the process.
///
/// # Errors
/// A sentence.
pub fn flag(leftovers: fn()) -> Outcome<Arc<AtomicBool>> {
    outlive_the_meaningless();
    let is_ending = Arc::new(AtomicBool::new(false));
    let register = || {
        let (came, wake) = UnixStream::pair()?;
        let (asked, wake_asked) = UnixStream::pair()?;
        for signal in ASKS.into_iter().chain(TELLS).filter(|&signal| signal != SIGHUP || !is_ignored(SIGHUP)) {
            flag::register(signal, is_ending.clone())?;
            let wake = if ASKS.contains(&signal) { &wake_asked } else { &wake };
            pipe::register(signal, wake.try_clone()?)?;
        }
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            // The ends of the process keep the writing ends open.
            let _kept = (wake, wake_asked);
            await_end(&came, &asked);
            leftovers();
            output::complain("ended by a signal at once");
            signal_hook::low_level::exit(EXIT_FAILED.into());
        })?;
        leave_to_taker();
        Ok(())
    };
    register().map_err(|error: std::io::Error| refused(&error))?;
    Ok(is_ending)
}

/// Lets a command finish its work after a signal that would end the process; then the process ends.
///
/// A second signal that asks ends it at once.
///
/// # Errors
/// A sentence.
pub fn finish_what_is_begun() -> Outcome {
    outlive_the_meaningless();
    let register = || {
        end_at_second()?;
        for signal in TELLS {
            flag::register(signal, Arc::default())?;
        }
        Ok(())
    };
    register().map_err(|error: std::io::Error| refused(&error))
}

/// Returns at the second signal that asks, or some time after the first of any kind.
fn await_end(came: &UnixStream, asked: &UnixStream) {
    let mut asks = 0;
    let mut ready = [false; 2];
    while ready == [false; 2] {
        ready = wait_for([came, asked], None);
    }
    let until = std::time::Instant::now() + NOTICE_MAX;
    loop {
        if ready[1] {
            // Each signal writes a byte; reading them one at a time counts them.
            let _ = (&*asked).read(&mut [0]);
            asks += 1;
        }
        if ready[0] {
            let _ = (&*came).read(&mut [0; 64]);
        }
        let left = until.saturating_duration_since(std::time::Instant::now());
        if asks >= 2 || left.is_zero() {
            return;
        }
        ready = wait_for([came, asked], Some(left));
    }
}

/// Waits until one of the streams can be read, or the time is over, and returns the readable ones.
pub fn wait_for(streams: [&UnixStream; 2], at_most: Option<Duration>) -> [bool; 2] {
    use std::os::fd::AsRawFd;
    let mut polled = streams.map(|stream| libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let millis = at_most.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX).saturating_add(1));
    // SAFETY: the array lives until the call is over, and its length is passed.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
    polled.map(|polled| ready > 0 && polled.revents != 0)
}
