//! The I/O half of a driver: its ring, the operations in the kernel's hands, and its timers.
//!
//! Invariants: an operation given to the kernel stays in `slots` until its completion was taken, so
//! the kernel never touches freed memory. At most [`IN_FLIGHT_MAX`] operations are with the kernel;
//! the rest wait in `backlog` in the order of arrival. The driver's lock covers no completion:
//! results go to a list, and the caller works it off after the lock.
//!
//! Without io_uring the same type polls sockets with poll(2), and gives file operations back for
//! the pool.
//!
//! It does not run tasks, or decide when to sleep.

use super::{
    backend::{IoBackendKind, io_backend},
    op::Op,
};
use crate::Completer;
use io_uring::{IoUring, opcode, types};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant},
};

/// Entries of a ring's submission queue; a full queue is submitted at once.
pub(crate) const RING_ENTRIES: u32 = 256;
/// Entries of a ring's completion queue: those in flight, cancellations and the wake-up.
const COMPLETION_ENTRIES: u32 = 2048;
/// Operations with the kernel at once; more wait in user space.
pub(crate) const IN_FLIGHT_MAX: usize = 1024;
/// Kernel threads for blocking operations on regular files, for each thread with a ring. The kernel
/// starts them on demand. The limit exceeds the requests of a connection, because all of these may
/// wait for one file.
const FILE_WORKERS_MAX: u32 = 512;
/// The least number of timers at which a doubling starts a search for abandoned ones.
const TIMERS_PURGE_MIN: usize = 1024;
/// The interval between looks for wake-ups if the system has no descriptor left for an eventfd.
const BLIND_SLEEP: Duration = Duration::from_millis(1);

/// User data of the read of the eventfd.
const WAKE: u64 = u64::MAX;
/// User data of a cancellation.
const CANCEL: u64 = u64::MAX - 1;

enum Ring {
    /// Not made yet, before the first submission.
    None,
    Uring(Box<IoUring>),
    /// This driver polls.
    Poll,
}

/// A timer: its time, its order among equal times, and its waiter.
pub(crate) struct Timer {
    at: Instant,
    order: u64,
    to: Completer<()>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The results of operations, told to their waiters after the lock is released.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) done: Vec<(Op, i32)>,
    pub(crate) due: Vec<Completer<()>>,
}

/// The I/O half, as the module describes it.
pub(crate) struct Io {
    ring: Ring,
    slots: Vec<Option<Op>>,
    free: Vec<u32>,
    backlog: VecDeque<Op>,
    /// Socket operations of the poll(2) backend.
    polled: Vec<Op>,
    poll_fds: Vec<libc::pollfd>,
    timers: BinaryHeap<Reverse<Timer>>,
    timers_made: u64,
    timers_purge_at: usize,
    wake_armed: bool,
    /// The memory for the eventfd's count. The box keeps its place.
    wake_count: Box<u64>,
}

impl Io {
    pub(crate) fn new() -> Io {
        Io {
            ring: Ring::None,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            polled: Vec::new(),
            poll_fds: Vec::new(),
            timers: BinaryHeap::new(),
            timers_made: 0,
            timers_purge_at: TIMERS_PURGE_MIN,
            wake_armed: false,
            wake_count: Box::new(0),
        }
    }

    /// Returns the number of operations with the kernel, besides the driver's own wake-up.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the number of operations not yet answered.
    pub(crate) fn outstanding(&self) -> usize {
        self.in_flight() + self.backlog.len() + self.polled.len()
    }

    /// Returns the ring's descriptor, which can be polled for completions.
    pub(crate) fn ring_fd(&self) -> Option<RawFd> {
        match &self.ring {
            Ring::Uring(ring) => Some(ring.as_raw_fd()),
            _ => None,
        }
    }

    /// Starts an operation; gives it back if the pool must run it.
    pub(crate) fn start(&mut self, op: Op) -> Option<Op> {
        if let Ring::None = self.ring {
            self.ring = make_ring();
        }
        if let Ring::Poll = self.ring {
            if op.is_file_op() {
                return Some(op);
            }
            self.polled.push(op);
            return None;
        }
        if self.backlog.is_empty() && self.in_flight() < IN_FLIGHT_MAX {
            if let Err(op) = self.push(op) {
                self.backlog.push_back(op);
            }
        } else {
            self.backlog.push_back(op);
        }
        None
    }

    /// Puts an operation into the submission queue. Submits first if the queue is full.
    fn push(&mut self, mut op: Op) -> Result<(), Op> {
        let Ring::Uring(ring) = &mut self.ring else { return Err(op) };
        if ring.submission().is_full() {
            // An error here leaves the queue full, and the operation in the backlog for the next
            // turn.
            let _ = ring.submit();
            if ring.submission().is_full() {
                return Err(op);
            }
        }
        let entry = op.entry();
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        // SAFETY: the op and all memory the entry names stay in its slot until the completion came.
        let pushed = unsafe { ring.submission().push(&entry.user_data(u64::from(index))) };
        pushed.expect("room was checked above");
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = Some(op);
        }
        Ok(())
    }

    fn drain_backlog(&mut self) {
        while self.in_flight() < IN_FLIGHT_MAX {
            let Some(op) = self.backlog.pop_front() else { return };
            if let Err(op) = self.push(op) {
                self.backlog.push_front(op);
                return;
            }
        }
    }

    /// Takes the operations that are not with the kernel.
    pub(crate) fn take_waiting(&mut self) -> Vec<Op> {
        self.backlog.drain(..).chain(self.polled.drain(..)).collect()
    }

    /// Adds a timer.
    pub(crate) fn add_timer(&mut self, at: Instant, to: Completer<()>) {
        self.timers_made += 1;
        self.timers.push(Reverse(Timer { at, order: self.timers_made, to }));
        if self.timers.len() >= self.timers_purge_at {
            self.timers.retain(|timer| !timer.0.to.is_abandoned());
            self.timers_purge_at = (self.timers.len() * 2).max(TIMERS_PURGE_MIN);
        }
    }

    /// Moves the timers that are due into `outcome`.
    pub(crate) fn take_due(&mut self, outcome: &mut Outcome) {
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while self.timers.peek().is_some_and(|timer| timer.0.at <= now) {
            if let Some(Reverse(timer)) = self.timers.pop() {
                outcome.due.push(timer.to);
            }
        }
    }

    /// Returns the longest sleep: until the first timer.
    fn sleep_max(&self) -> Option<Duration> {
        self.timers.peek().map(|timer| timer.0.at.saturating_duration_since(Instant::now()))
    }

    /// Submits queued entries and lets the kernel deliver completions, without waiting.
    pub(crate) fn submit(&mut self) {
        self.drain_backlog();
        if let Ring::Uring(ring) = &mut self.ring {
            let queue = ring.submission();
            let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
            drop(queue);
            if needed {
                // Interrupted, or the completion queue is full: the next turn submits the rest.
                let _ = ring.submit();
            }
        }
    }

    /// Prepares for a sleep, so that a write to the eventfd ends it.
    pub(crate) fn arm_wake(&mut self, wake_fd: Option<RawFd>) {
        let Some(fd) = wake_fd else { return };
        let Ring::Uring(ring) = &mut self.ring else { return };
        if self.wake_armed {
            return;
        }
        if ring.submission().is_full() {
            let _ = ring.submit();
        }
        let entry = opcode::Read::new(types::Fd(fd), (&raw mut *self.wake_count).cast(), 8).build().user_data(WAKE);
        // SAFETY: the box of the count lives until the ring is torn down with nothing in flight.
        self.wake_armed = unsafe { ring.submission().push(&entry) }.is_ok();
    }

    /// Sleeps until a completion, a wake-up, a timer, or `at_most`.
    pub(crate) fn sleep(&mut self, wake_fd: Option<RawFd>, at_most: Option<Duration>, outcome: &mut Outcome) {
        let blind = wake_fd.is_none().then_some(BLIND_SLEEP);
        let limit = [self.sleep_max(), at_most, blind].into_iter().flatten().min();
        self.drain_backlog();
        if self.has_completions() {
            return self.submit();
        }
        match &mut self.ring {
            Ring::Uring(ring) => {
                // Without a wake-up descriptor, waiting is a poll.
                let limit = if self.wake_armed { limit } else { Some(limit.unwrap_or(BLIND_SLEEP).min(BLIND_SLEEP)) };
                if let Some(limit) = limit {
                    let time = types::Timespec::from(limit);
                    let args = types::SubmitArgs::new().timespec(&time);
                    // Errors: timed out, interrupted, or one that the next turn meets again.
                    let _ = ring.submitter().submit_with_args(1, &args);
                } else {
                    let _ = ring.submit_and_wait(1);
                }
            }
            _ => self.poll(wake_fd, limit, outcome),
        }
    }

    fn has_completions(&mut self) -> bool {
        match &mut self.ring {
            Ring::Uring(ring) => !ring.completion().is_empty(),
            _ => false,
        }
    }

    /// Takes the completions.
    pub(crate) fn reap(&mut self, outcome: &mut Outcome) {
        match &mut self.ring {
            Ring::Uring(ring) => {
                for entry in ring.completion() {
                    match entry.user_data() {
                        WAKE => self.wake_armed = false,
                        CANCEL => {}
                        index => {
                            let op = self.slots.get_mut(index as usize).and_then(Option::take);
                            let op = op.expect("a completion names an operation in flight");
                            self.free.push(index as u32);
                            outcome.done.push((op, entry.result()));
                        }
                    }
                }
            }
            Ring::Poll if !self.polled.is_empty() => self.poll(None, Some(Duration::ZERO), outcome),
            _ => {}
        }
    }

    /// Polls the eventfd and the sockets once with poll(2), and runs the ready operations.
    fn poll(&mut self, wake_fd: Option<RawFd>, limit: Option<Duration>, outcome: &mut Outcome) {
        self.poll_fds.clear();
        let want = |fd, events| libc::pollfd { fd, events, revents: 0 };
        // poll(2) skips negative descriptors.
        self.poll_fds.push(want(wake_fd.unwrap_or(-1), libc::POLLIN));
        self.poll_fds.extend(self.polled.iter().map(|op| want(op.raw_fd(), op.poll_events())));
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time_ptr = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the time outlive the call, and the count is the array's.
        let ready = unsafe {
            libc::ppoll(self.poll_fds.as_mut_ptr(), self.poll_fds.len() as libc::nfds_t, time_ptr, std::ptr::null())
        };
        if ready <= 0 {
            return;
        }
        let mut fds = self.poll_fds.iter();
        if let (Some(woken), Some(fd)) = (fds.next(), wake_fd)
            && woken.revents != 0
        {
            // SAFETY: the eventfd has a count, so eight bytes come at once.
            unsafe { libc::read(fd, (&raw mut *self.wake_count).cast(), 8) };
        }
        let hit: Vec<bool> = fds.map(|fd| fd.revents != 0).collect();
        for index in (0..hit.len()).rev().filter(|&index| hit.get(index) == Some(&true)) {
            let mut op = self.polled.swap_remove(index);
            let result = op.call();
            outcome.done.push((op, result));
        }
    }

    /// Cancels a socket operation; false if it is not here.
    ///
    /// An operation outside the kernel comes back as done; one in the kernel completes soon.
    pub(crate) fn cancel(&mut self, id: u64, outcome: &mut Outcome) -> bool {
        let is_it = |op: &Op| op.cancel_id() == Some(id);
        if let Some(index) = self.backlog.iter().position(is_it) {
            outcome.done.extend(self.backlog.remove(index).map(|op| (op, -libc::ECANCELED)));
        } else if let Some(index) = self.polled.iter().position(is_it) {
            outcome.done.push((self.polled.swap_remove(index), -libc::ECANCELED));
        } else if let Some(index) = self.slots.iter().position(|slot| slot.as_ref().is_some_and(is_it)) {
            // An entry still in the queue goes to the kernel first, which then holds the socket
            // itself. The caller may then close its descriptor, and the number may be used again.
            self.submit();
            self.push_cancel(index as u64);
            self.submit();
        } else {
            return false;
        }
        true
    }

    fn push_cancel(&mut self, target: u64) {
        let Ring::Uring(ring) = &mut self.ring else { return };
        if ring.submission().is_full() {
            let _ = ring.submit();
        }
        let entry = opcode::AsyncCancel::new(target).build().user_data(CANCEL);
        // SAFETY: the entry names no memory. A full queue loses the cancellation, which is a hint.
        let _ = unsafe { ring.submission().push(&entry) };
    }

    /// Takes one step of the end; true when the kernel holds nothing any more.
    ///
    /// The step cancels all operations (once), waits a little, and takes completions.
    pub(crate) fn wind_up(&mut self, first: bool, wait: Duration, outcome: &mut Outcome) -> bool {
        if first {
            self.timers.drain().for_each(|timer| outcome.due.push(timer.0.to));
            let waiting = self.take_waiting();
            outcome.done.extend(waiting.into_iter().map(|op| (op, -libc::ECANCELED)));
            let sockets = self.slots.iter().enumerate();
            let sockets: Vec<u64> = sockets
                .filter(|(_, slot)| slot.as_ref().is_some_and(|op| !op.is_file_op()))
                .map(|(index, _)| index as u64)
                .collect();
            self.submit();
            sockets.into_iter().for_each(|index| self.push_cancel(index));
            if self.wake_armed {
                self.push_cancel(WAKE);
            }
            self.submit();
        }
        if self.in_flight() > 0 || self.wake_armed {
            if let Ring::Uring(ring) = &mut self.ring {
                let time = types::Timespec::from(wait);
                let _ = ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time));
            }
            self.reap(outcome);
        }
        self.in_flight() == 0 && !self.wake_armed
    }
}

fn make_ring() -> Ring {
    if io_backend().kind == IoBackendKind::Threads {
        return Ring::Poll;
    }
    let cooperative = IoUring::builder()
        .setup_cqsize(COMPLETION_ENTRIES)
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(RING_ENTRIES)
        .or_else(|_| IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(RING_ENTRIES));
    match cooperative {
        Ok(ring) => {
            // The limit keeps a hanging file from taking all of the kernel's workers. An older
            // kernel lacks the call, and keeps this danger.
            let _ = ring.submitter().register_iowq_max_workers(&mut [FILE_WORKERS_MAX, 0]);
            Ring::Uring(Box::new(ring))
        }
        // Out of descriptors or locked memory: this driver falls back alone.
        Err(_) => Ring::Poll,
    }
}
