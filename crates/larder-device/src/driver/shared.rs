//! The part of a driver that other threads share: run queue, wake-ups, tasks, and the locked I/O.
//!
//! Invariants: only the home thread runs tasks and submits I/O here. Any thread may wake and send,
//! and makes a system call only if the home thread sleeps. The sleeper sets `sleeping` and then
//! looks for work; a waker leaves work and then looks at `sleeping`. So one of the two sees the
//! other.
//!
//! It does not bound the run queue; it holds at most one entry for each task.

mod tending;

use super::{
    io::{Io, Outcome},
    op::Op,
    pool,
};
use crate::Completer;
use async_task::{Runnable, Task};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::Future,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Wake,
    time::Instant,
};

/// Tasks run between two looks at the I/O.
const TASKS_PER_TURN_MAX: usize = 256;

static IDS: AtomicU64 = AtomicU64::new(0);

/// Returns a number for a cancellable operation, unique in the process.
pub(crate) fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// A request of another thread to a driver.
pub(crate) enum Message {
    Start(Op),
    Timer(Instant, Completer<()>),
    Cancel(u64),
}

#[derive(Default)]
struct Inbox {
    runnables: VecDeque<Runnable>,
    messages: Vec<Message>,
    /// Takes no new messages.
    closed: bool,
    /// Runs nothing any more.
    ended: bool,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Option<Task<()>>>,
    free: Vec<usize>,
    /// Takes no new tasks. The lock of the slots covers it, so the end cancels every task with a
    /// place.
    closed: bool,
}

/// A driver, as the module describes it.
pub(crate) struct DriverShared {
    pub(crate) id: u64,
    inbox: Mutex<Inbox>,
    tasks: Mutex<Tasks>,
    io: Mutex<Io>,
    outcome: Mutex<Outcome>,
    /// The future of `block_on` is ready for a poll.
    main_woken: AtomicBool,
    /// The home thread sleeps, or is about to.
    sleeping: AtomicBool,
    /// The home thread is inside `block_on` with this driver.
    active: AtomicBool,
    /// The background driver watches the ring.
    tended: AtomicBool,
    /// Operations not yet answered; written under the lock of `io`.
    outstanding: AtomicUsize,
    wake_fd: OnceLock<Option<OwnedFd>>,
}

impl Wake for DriverShared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.main_woken.store(true, Ordering::SeqCst);
        self.nudge();
    }
}

impl DriverShared {
    pub(crate) fn new() -> Arc<DriverShared> {
        Arc::new(DriverShared {
            id: next_id(),
            inbox: Mutex::default(),
            tasks: Mutex::default(),
            io: Mutex::new(Io::new()),
            outcome: Mutex::default(),
            main_woken: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            active: AtomicBool::new(false),
            tended: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            wake_fd: OnceLock::new(),
        })
    }

    /// Ends the home thread's sleep, if it sleeps.
    fn nudge(&self) {
        if self.sleeping.load(Ordering::SeqCst)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(fd) = self.wake_fd()
        {
            let one = 1u64;
            // SAFETY: eight bytes from a local variable. It fails only at the count's limit, which
            // wakes anyway.
            unsafe { libc::write(fd, (&raw const one).cast(), 8) };
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        let made = self.wake_fd.get_or_init(|| {
            // SAFETY: a plain call; a descriptor that it returns is ours.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            // SAFETY: as above.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
        });
        made.as_ref().map(|fd| fd.as_raw_fd())
    }

    fn schedule(&self, runnable: Runnable) {
        let mut inbox = self.inbox.lock();
        if inbox.ended {
            drop(inbox);
            // The task was being spawned while the driver ended; local tasks cannot be.
            drop(runnable);
            return;
        }
        inbox.runnables.push_back(runnable);
        drop(inbox);
        self.nudge();
    }

    /// Sends a message to the driver, from any thread. A closed driver drops and cancels it.
    pub(crate) fn send(&self, message: Message) {
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            drop(inbox);
            return;
        }
        inbox.messages.push(message);
        drop(inbox);
        self.nudge();
    }

    fn has_work(&self) -> bool {
        if self.main_woken.load(Ordering::SeqCst) {
            return true;
        }
        let inbox = self.inbox.lock();
        !inbox.runnables.is_empty() || !inbox.messages.is_empty()
    }

    /// Runs a task on the home thread. A closed driver drops it at once.
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        self.begin_task(|place, home| async_task::spawn(in_place(place, future), move |task| home.schedule(task)));
    }

    /// Runs a task that need not be `Send`; for the home thread alone.
    pub(crate) fn spawn_local(self: &Arc<Self>, future: impl Future<Output = ()> + 'static) {
        self.begin_task(|place, home| {
            async_task::spawn_local(in_place(place, future), move |task| home.schedule(task))
        });
    }

    /// Makes a task with a place of its own, keeps it, and schedules it.
    fn begin_task(self: &Arc<Self>, make: impl FnOnce(TaskPlace, Arc<Self>) -> (Runnable, Task<()>)) {
        let Some(place) = self.reserve_task() else { return };
        let index = place.index;
        let (runnable, task) = make(place, self.clone());
        self.keep_task(index, task);
        runnable.schedule();
    }

    fn reserve_task(self: &Arc<Self>) -> Option<TaskPlace> {
        let mut tasks = self.tasks.lock();
        if tasks.closed {
            return None;
        }
        let index = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(None);
            tasks.slots.len() - 1
        });
        Some(TaskPlace { driver: self.clone(), index })
    }

    fn keep_task(&self, index: usize, task: Task<()>) {
        if let Some(slot) = self.tasks.lock().slots.get_mut(index) {
            *slot = Some(task);
        }
    }

    /// Starts an operation on the home thread.
    pub(crate) fn start(&self, op: Op) {
        let mut io = self.io.lock();
        let for_pool = io.start(op);
        self.outstanding.store(io.outstanding(), Ordering::Relaxed);
        drop(io);
        if let Some(op) = for_pool {
            pool::run(op.file(), move || op.run_blocking());
        }
    }

    pub(crate) fn add_timer(&self, at: Instant, to: Completer<()>) {
        self.io.lock().add_timer(at, to);
    }

    /// Begins to drive, on the home thread.
    pub(crate) fn enter(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// Answers the waiters, and starts unfinished operations again.
    fn deliver(&self, outcome: &mut Outcome) {
        for (op, result) in outcome.done.drain(..) {
            if let Some(op) = op.finish(result) {
                self.start(op);
            }
        }
        for completer in outcome.due.drain(..) {
            completer.complete(Ok(()));
        }
    }

    fn take_messages(self: &Arc<Self>) {
        let mut inbox = self.inbox.lock();
        if inbox.messages.is_empty() {
            return;
        }
        let messages = std::mem::take(&mut inbox.messages);
        drop(inbox);
        for message in messages {
            match message {
                Message::Start(op) => self.start(op),
                Message::Timer(at, to) => self.add_timer(at, to),
                Message::Cancel(id) => self.cancel(id),
            }
        }
    }

    /// Returns whether neither a ring nor a wake-up descriptor was made.
    #[cfg(test)]
    pub(crate) fn is_untouched(&self) -> bool {
        self.io.lock().ring_fd().is_none() && self.wake_fd.get().is_none()
    }

    /// Returns whether the main future is ready for a poll, and clears the flag.
    pub(crate) fn take_main_woken(&self) -> bool {
        self.main_woken.swap(false, Ordering::SeqCst)
    }

    /// Runs one turn of the loop: runs tasks, submits, and takes completions. Sleeps if there is
    /// nothing else to do.
    pub(crate) fn turn(self: &Arc<Self>) {
        for _ in 0..TASKS_PER_TURN_MAX {
            let Some(runnable) = self.inbox.lock().runnables.pop_front() else { break };
            runnable.run();
        }
        self.take_messages();
        let mut outcome = std::mem::take(&mut *self.outcome.lock());
        let mut io = self.io.lock();
        io.take_due(&mut outcome);
        if outcome.due.is_empty() && !self.has_work() {
            let wake_fd = self.wake_fd();
            io.arm_wake(wake_fd);
            self.sleeping.store(true, Ordering::SeqCst);
            if self.has_work() {
                io.submit();
            } else {
                io.sleep(wake_fd, None, &mut outcome);
            }
            self.sleeping.store(false, Ordering::SeqCst);
        } else {
            io.submit();
        }
        io.reap(&mut outcome);
        io.take_due(&mut outcome);
        self.outstanding.store(io.outstanding(), Ordering::Relaxed);
        drop(io);
        self.deliver(&mut outcome);
        *self.outcome.lock() = outcome;
    }
}

/// A task's place among those of its driver; its future's end frees it.
struct TaskPlace {
    driver: Arc<DriverShared>,
    index: usize,
}

/// Runs a future, which has its place for as long as it lives.
async fn in_place(place: TaskPlace, future: impl Future<Output = ()>) {
    let _place = place;
    future.await;
}

impl Drop for TaskPlace {
    fn drop(&mut self) {
        let mut tasks = self.driver.tasks.lock();
        // After `close` there are no slots any more.
        let Some(slot) = tasks.slots.get_mut(self.index) else { return };
        let task = slot.take();
        tasks.free.push(self.index);
        drop(tasks);
        if let Some(task) = task {
            task.detach();
        }
    }
}
