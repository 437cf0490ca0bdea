//! Small pools of threads for blocking calls that no ring carries.
//!
//! These are ioctls and extent queries, operations of files that may hang, and every file operation
//! if io_uring is missing.
//!
//! Invariants: each file has a *lane* of its own, so a hanging file delays only its own calls. A
//! lane has at most [`LANE_THREADS_MAX`] threads; they start on demand and end after [`POOL_IDLE`]
//! without work. A lane starts its calls in the order of arrival.
//!
//! It does not bound its queues; the callers' queue depths do.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::RawFd,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

/// Threads of a lane, at most.
const LANE_THREADS_MAX: usize = 64;
/// A thread without work for this long ends.
const POOL_IDLE: Duration = Duration::from_secs(10);

type PoolCall = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct PoolLane {
    calls: VecDeque<PoolCall>,
    threads: usize,
    idle: usize,
    work: Arc<Condvar>,
}

/// The lanes that have threads, by descriptor.
static LANES: Mutex<BTreeMap<RawFd, PoolLane>> = Mutex::new(BTreeMap::new());

/// Runs `call`, which concerns this file, on a pool thread.
///
/// If no pool thread can start, this thread runs it.
pub(crate) fn run(file: RawFd, call: impl FnOnce() + Send + 'static) {
    let mut lanes = LANES.lock();
    let lane = lanes.entry(file).or_default();
    lane.calls.push_back(Box::new(call));
    if lane.idle >= lane.calls.len() {
        let work = lane.work.clone();
        drop(lanes);
        work.notify_one();
        return;
    }
    if lane.threads < LANE_THREADS_MAX {
        lane.threads += 1;
        drop(lanes);
        if std::thread::Builder::new().name("larder-blocking".into()).spawn(move || work(file)).is_ok() {
            return;
        }
        let mut lanes = LANES.lock();
        let Some(lane) = lanes.get_mut(&file) else { return };
        lane.threads -= 1;
        if lane.threads == 0 {
            let calls = std::mem::take(&mut lane.calls);
            lanes.remove(&file);
            drop(lanes);
            calls.into_iter().for_each(|call| call());
        }
    }
}

fn work(file: RawFd) {
    let mut lanes = LANES.lock();
    loop {
        // A lane exists as long as it has a thread.
        let Some(lane) = lanes.get_mut(&file) else { return };
        if let Some(call) = lane.calls.pop_front() {
            drop(lanes);
            // A call that panics has dropped its completer, which answers the waiter; the thread
            // goes on.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(call));
            lanes = LANES.lock();
            continue;
        }
        lane.idle += 1;
        let work = lane.work.clone();
        let timed_out = work.wait_for(&mut lanes, POOL_IDLE).timed_out();
        let Some(lane) = lanes.get_mut(&file) else { return };
        lane.idle -= 1;
        if timed_out && lane.calls.is_empty() {
            lane.threads -= 1;
            if lane.threads == 0 {
                lanes.remove(&file);
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_file_that_hangs_keeps_no_other_waiting() {
        // These are no real descriptors; the calls here use none.
        let (hanging, other) = (-7, -8);
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..4 * LANE_THREADS_MAX {
            let released = released.clone();
            run(hanging, move || released.lock().recv().unwrap_or(()));
        }
        let (tell, told) = channel();
        run(other, move || tell.send(7).expect("the test waits"));
        assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(7));
        drop(release);
    }
}
