//! The end of a server: one deadline for all of it, from the signal to the end of the process.
//!
//! Role: a thread waits for signals, independent of all other threads. It keeps the time from the
//! first signal that ends the server. At the deadline it cuts the rest off. The process ends, and
//! its last line names the cause of the delay and the consequence for data.
//!
//! Invariants: the deadline covers the whole end, also exits of threads and of the process, and an
//! opening that a signal interrupts. Before a cache is opened and clients are let in, there is
//! nothing to bring to its end, and the deadline is short. Time in which the process is stopped
//! does not count. The last line takes [`SAYING_MAX`] at most.
//!
//! It leaves an orderly end to the server, which asks for the time that is left.

use crate::{
    error::{EXIT_FAILED, Failure, Outcome, system_reason},
    signals::{self, Arrivals},
    steps::{Steps, UNTOUCHED},
};
use parking_lot::{Condvar, Mutex};
use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

/// A step in which the time is counted down. Each step counts as [`STEP_COUNTS_MAX`] at most.
const STEP: Duration = Duration::from_millis(50);
/// A longer step means that the process was stopped meanwhile.
const STEP_COUNTS_MAX: Duration = Duration::from_millis(500);
/// Longest time for the last line: a terminal or pipe may have stopped to take bytes.
const SAYING_MAX: Duration = Duration::from_millis(500);
/// The share of the deadline for requests. The rest is for the steps that make data durable.
const REQUESTS_SHARE: (u32, u32) = (3, 4);
/// The part of the deadline that connections that were cut get at most: 1 divided by this.
const CUT_SHARE: u32 = 20;
/// Longest time for connections that were cut.
const CUT_MAX: Duration = Duration::from_secs(1);

/// Longest time of an end that begins before there is anything to end.
const BEGINNING_MAX: Duration = Duration::from_secs(2);

/// The next action of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Read the option file again.
    Reload,
    /// End in order.
    End,
}

/// The end of a wait.
#[derive(Debug)]
pub enum Waited<T> {
    /// The event came.
    Event(ServerEvent),
    /// The look found this.
    Found(T),
    /// The time is over.
    Late,
}

/// Names, in a few words, the operation that hangs and the consequence for data.
pub type LastWords = Box<dyn Fn() -> String + Send>;

/// The end of this process, which may have begun.
#[derive(Clone)]
pub struct Ending(Arc<EndingShared>);

struct EndingShared {
    state: Mutex<EndingState>,
    changed: Condvar,
    wake: UnixStream,
    steps: Steps,
}

struct EndingState {
    reload: bool,
    is_ending: bool,
    /// A cache was opened, or clients were let in.
    has_opened: bool,
    /// For the whole end.
    timeout: Duration,
    /// The rest of that time.
    left: Duration,
    /// The action that is under way; the last line has it after "while".
    stage: &'static str,
    account: Option<LastWords>,
}

impl Ending {
    /// Begins to listen for signals. An end may take `timeout`; with `reloads`, SIGHUP does not
    /// begin one.
    ///
    /// # Errors
    /// A sentence.
    pub fn listen(timeout: Duration, reloads: bool) -> Outcome<Ending> {
        let arrivals = signals::arrivals(reloads)?;
        let wake = another(&arrivals.wake)?;
        let state = EndingState {
            reload: false,
            is_ending: false,
            has_opened: false,
            timeout,
            left: timeout,
            stage: "the server was beginning",
            account: None,
        };
        let shared =
            Arc::new(EndingShared { state: Mutex::new(state), changed: Condvar::new(), wake, steps: Steps::default() });
        let ending = Ending(shared.clone());
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || shared.keep_time(&arrivals));
        thread.map_err(|error| Failure::failed(format_args!("the system refuses to start threads: {error}")))?;
        signals::leave_to_taker();
        Ok(ending)
    }

    /// Returns a stream to which a write is as good as a signal.
    ///
    /// # Errors
    /// A sentence.
    pub fn waker(&self) -> Outcome<UnixStream> {
        another(&self.0.wake)
    }

    /// Waits for the next event, or until `look` finds something, at most until `late_at`.
    ///
    /// [`Ending::look_again`] asks for a look. Each call after the begin of the end returns the
    /// end.
    pub fn next_unless<T>(&self, late_at: Option<Instant>, mut look: impl FnMut() -> Option<T>) -> Waited<T> {
        let mut state = self.0.state.lock();
        loop {
            if state.is_ending {
                return Waited::Event(ServerEvent::End);
            }
            if let Some(found) = look() {
                return Waited::Found(found);
            }
            if std::mem::take(&mut state.reload) {
                return Waited::Event(ServerEvent::Reload);
            }
            match late_at {
                None => self.0.changed.wait(&mut state),
                Some(until) if Instant::now() >= until => return Waited::Late,
                Some(until) => _ = self.0.changed.wait_until(&mut state, until),
            }
        }
    }

    /// Makes the waiting threads look again.
    pub fn look_again(&self) {
        // A thread that has looked and does not wait yet has the lock.
        let _state = self.0.state.lock();
        self.0.changed.notify_all();
    }

    /// Notes that from here on the server has something to end in order.
    ///
    /// Returns false if the end has begun: then nothing may be opened any more.
    pub fn may_open(&self) -> bool {
        let mut state = self.0.state.lock();
        state.has_opened |= !state.is_ending;
        !state.is_ending
    }

    /// Returns a look at whether the end has begun.
    pub fn look(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let this = self.clone();
        move || this.0.state.lock().is_ending
    }

    /// Returns the steps of this process.
    pub fn steps(&self) -> &Steps {
        &self.0.steps
    }

    /// Does a step that may hang, named as in "opening the flash PATH" if the end is cut off.
    pub fn during<T>(&self, doing: impl Into<Arc<str>>, act: impl FnOnce() -> T) -> T {
        let _step = self.0.steps.begin(doing);
        act()
    }

    /// Begins the end, unless a signal has.
    pub fn begin(&self) {
        let mut state = self.0.state.lock();
        state.begin();
        self.0.changed.notify_all();
        drop(state);
        // The thread that keeps the time may be waiting for a signal.
        let _ = std::io::Write::write(&mut &self.0.wake, &[0]);
    }

    /// Returns how long a whole end may take.
    pub fn timeout(&self) -> Duration {
        self.0.state.lock().timeout
    }

    /// Changes the time of an end that has not begun.
    pub fn set_timeout(&self, timeout: Duration) {
        let mut state = self.0.state.lock();
        if !state.is_ending {
            (state.timeout, state.left) = (timeout, timeout);
        }
    }

    /// Returns the rest of the deadline.
    pub fn left(&self) -> Duration {
        self.0.state.lock().left
    }

    /// Returns the time that requests must leave.
    fn reserve(&self) -> Duration {
        let timeout = self.timeout();
        timeout - timeout * REQUESTS_SHARE.0 / REQUESTS_SHARE.1
    }

    /// Returns how long requests may take of this deadline.
    pub fn requests_max(&self) -> Duration {
        self.timeout() - self.reserve()
    }

    /// Returns how long connections that were cut may take.
    pub fn cut_max(&self) -> Duration {
        (self.timeout() / CUT_SHARE).min(CUT_MAX)
    }

    /// Calls `is_over` again and again with the time that it may wait, and returns its last result.
    ///
    /// It stops when `is_over` returns true or the time of requests has passed.
    pub fn await_requests(&self, mut is_over: impl FnMut(Duration) -> bool) -> bool {
        let reserve = self.reserve();
        loop {
            let left = self.left().saturating_sub(reserve);
            // In steps: the time that a stopped process loses is not counted.
            if is_over(left.min(STEP)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Sets the action that is under way from here on: the text after "while" if the end is cut
    /// off.
    pub fn now(&self, stage: &'static str) {
        self.0.state.lock().stage = stage;
    }

    /// Sets the function that names the operation that hangs; it must return without a wait.
    pub fn set_account(&self, account: LastWords) {
        self.0.state.lock().account = Some(account);
    }
}

impl EndingState {
    fn begin(&mut self) {
        if !self.is_ending {
            self.is_ending = true;
            if !self.has_opened {
                self.timeout = self.timeout.min(BEGINNING_MAX);
            }
            self.left = self.timeout;
        }
    }
}

impl EndingShared {
    /// Does the thread's work, as long as the process lives.
    fn keep_time(&self, Arrivals { end, reload, .. }: &Arrivals) {
        let mut before = Instant::now();
        loop {
            let is_ending = self.state.lock().is_ending;
            let [ends, reloads] = signals::wait_for([end, reload], is_ending.then_some(STEP));
            for (came, mut stream) in [(ends, end), (reloads, reload)] {
                // Emptied: many signals are one.
                while came && matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
            }
            let took = before.elapsed().min(STEP_COUNTS_MAX);
            before = Instant::now();
            let mut state = self.state.lock();
            if state.is_ending && is_ending {
                state.left = state.left.saturating_sub(took);
            }
            if ends {
                state.begin();
            }
            state.reload |= reloads;
            if ends || reloads {
                self.changed.notify_all();
            }
            if state.is_ending && state.left.is_zero() {
                cut_off(&state, &self.steps);
            }
        }
    }
}

fn another(stream: &UnixStream) -> Outcome<UnixStream> {
    stream
        .try_clone()
        .map_err(|error| Failure::failed(format_args!("no more file descriptors: {}", system_reason(&error))))
}

/// Ends the process, which did not end in time.
fn cut_off(state: &EndingState, steps: &Steps) -> ! {
    let mut sentence =
        format!("larder: the end was cut off after {} s, while {}", state.timeout.as_secs_f64(), state.stage);
    match &state.account {
        Some(account) => sentence += &format!(": {}", account()),
        None => {
            let long = steps.long().join(", and ");
            sentence += &format!("{}{long}; {UNTOUCHED}", if long.is_empty() { "" } else { ": " });
        }
    }
    sentence.push('\n');
    say(sentence);
    // SAFETY: a plain call. Nothing is run at this exit that could wait for a device.
    unsafe { libc::_exit(EXIT_FAILED.into()) }
}

/// Writes to standard error for a short time, past the lock that a waiting thread may hold.
fn say(sentence: String) {
    let (said, is_said) = std::sync::mpsc::channel();
    let write = move || {
        // SAFETY: the pointer and length are those of a live string. An error has no reader left.
        unsafe { libc::write(libc::STDERR_FILENO, sentence.as_ptr().cast(), sentence.len()) };
        let _ = said.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = is_said.recv_timeout(SAYING_MAX);
    }
}
