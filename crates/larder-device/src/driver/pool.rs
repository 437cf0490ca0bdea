//! A small pool of threads for calls that block and that no ring carries: ioctls, extent queries, and every file
//! operation where io_uring is missing.
//!
//! Invariants: at most [`POOL_THREADS_MAX`] threads in a process; they start on demand and end after
//! [`POOL_IDLE`] without work. Calls start in the order they came.
//!
//! What it does not do: bound its queue; the callers' queue depths do.

use parking_lot::{Condvar, Mutex};
use std::{collections::VecDeque, panic::AssertUnwindSafe, time::Duration};

/// Threads that make blocking calls, at most.
const POOL_THREADS_MAX: usize = 16;
/// A thread without work for this long ends.
const POOL_IDLE: Duration = Duration::from_secs(10);

type Call = Box<dyn FnOnce() + Send>;

struct State {
    calls: VecDeque<Call>,
    threads: usize,
    idle: usize,
}

static STATE: Mutex<State> = Mutex::new(State { calls: VecDeque::new(), threads: 0, idle: 0 });
static WORK: Condvar = Condvar::new();

/// Runs `call` on a pool thread; on this thread where none can be started.
pub(crate) fn run(call: impl FnOnce() + Send + 'static) {
    let mut state = STATE.lock();
    state.calls.push_back(Box::new(call));
    if state.idle >= state.calls.len() {
        drop(state);
        WORK.notify_one();
        return;
    }
    if state.threads < POOL_THREADS_MAX {
        state.threads += 1;
        drop(state);
        if std::thread::Builder::new().name("larder-blocking".into()).spawn(work).is_ok() {
            return;
        }
        let mut state = STATE.lock();
        state.threads -= 1;
        if state.threads == 0 {
            let calls = std::mem::take(&mut state.calls);
            drop(state);
            calls.into_iter().for_each(|call| call());
        }
    }
}

fn work() {
    let mut state = STATE.lock();
    loop {
        if let Some(call) = state.calls.pop_front() {
            drop(state);
            // A call that panics has dropped its completer, which answers whoever waits; the thread goes on.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(call));
            state = STATE.lock();
            continue;
        }
        state.idle += 1;
        let timed_out = WORK.wait_for(&mut state, POOL_IDLE).timed_out();
        state.idle -= 1;
        if timed_out && state.calls.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}
