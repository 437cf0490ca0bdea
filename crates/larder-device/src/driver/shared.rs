//! A driver: what its thread and others share of it. Run queue, wake-ups, tasks, and the lock around its I/O.
//!
//! Invariants: only the home thread runs tasks and submits I/O here. Any thread may wake and send; it makes a system
//! call only where the home thread sleeps: the sleeper sets `sleeping` and then looks for work, a waker leaves work
//! and then looks at `sleeping`, so that one of the two sees the other.
//! While the home thread is not inside `block_on`, the background driver *tends* the ring: it takes completions and
//! answers whoever waits, so that a future may outlive the `block_on` in which it began.
//!
//! What it does not do: bound the run queue; it holds at most one entry for each task.

use super::{
    background,
    io::{Io, Outcome},
    op::{Fd, Kind, Op},
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
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
    task::Wake,
    time::{Duration, Instant},
};

/// Tasks run between two looks at the I/O.
const TASKS_PER_TURN_MAX: usize = 256;
/// How long the end of a thread waits for the kernel to give back what it holds; then that memory is leaked.
const WIND_UP_MAX: Duration = Duration::from_secs(30);
/// One step of that wait.
const WIND_UP_STEP: Duration = Duration::from_millis(100);

static IDS: AtomicU64 = AtomicU64::new(0);

/// A number for something that can be cancelled, unique in the process.
pub(crate) fn next_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// What other threads ask of a driver.
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
    /// Takes no new tasks. Under the lock of the slots: a task that found a place is among those that the end cancels.
    closed: bool,
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) id: u64,
    inbox: Mutex<Inbox>,
    tasks: Mutex<Tasks>,
    io: Mutex<Io>,
    outcome: Mutex<Outcome>,
    /// The future given to `block_on` wants to be polled.
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

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.main_woken.store(true, Ordering::SeqCst);
        self.nudge();
    }
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        Arc::new(Shared {
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
            // SAFETY: eight bytes from a local variable. It fails only where the count is at its end: awake anyway.
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
            // A task that was being spawned while the driver ended; local tasks cannot be.
            drop(runnable);
            return;
        }
        inbox.runnables.push_back(runnable);
        drop(inbox);
        self.nudge();
    }

    /// Asks something of the driver, from any thread. Dropped, and so cancelled, where the driver is closed.
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

    /// Runs a task on the home thread. Dropped at once where the driver is closed.
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let Some(place) = self.reserve_task() else { return };
        let index = place.index;
        let future = async move {
            let _place = place;
            future.await;
        };
        let home = self.clone();
        let (runnable, task) = async_task::spawn(future, move |runnable| home.schedule(runnable));
        self.keep_task(index, task);
        runnable.schedule();
    }

    /// Runs a task that need not be `Send`; for the home thread alone.
    pub(crate) fn spawn_local(self: &Arc<Self>, future: impl Future<Output = ()> + 'static) {
        let Some(place) = self.reserve_task() else { return };
        let index = place.index;
        let future = async move {
            let _place = place;
            future.await;
        };
        let home = self.clone();
        let (runnable, task) = async_task::spawn_local(future, move |runnable| home.schedule(runnable));
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

    /// Cancels a socket operation; for the home thread alone.
    pub(crate) fn cancel(self: &Arc<Self>, id: u64) {
        let mut outcome = Outcome::default();
        let mut io = self.io.lock();
        let is_here = io.cancel(id, &mut outcome);
        self.outstanding.store(io.outstanding(), Ordering::Relaxed);
        drop(io);
        self.settle(&mut outcome);
        if !is_here {
            background::cancel_for(self, id);
        }
        if !self.active.load(Ordering::Relaxed) {
            self.leave();
        }
    }

    /// The home thread begins to drive.
    pub(crate) fn enter(&self) {
        self.active.store(true, Ordering::Relaxed);
    }

    /// The home thread stops driving: what is still in flight is left to the background driver.
    pub(crate) fn leave(self: &Arc<Self>) {
        self.active.store(false, Ordering::Relaxed);
        if self.outstanding.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut io = self.io.lock();
        io.submit();
        let fd = io.ring_fd();
        let waiting = if fd.is_none() { io.take_waiting() } else { Vec::new() };
        self.outstanding.store(io.outstanding(), Ordering::Relaxed);
        drop(io);
        // The fallback has no ring to watch: its socket operations move.
        waiting.into_iter().for_each(background::start);
        // Ordered after `active`: either the tender sees that nobody drives, or it is told here.
        fence(Ordering::SeqCst);
        if let Some(fd) = fd
            && !self.tended.swap(true, Ordering::SeqCst)
        {
            background::start(Op::new(Fd::Raw(fd), 0, Kind::Tend { driver: self.clone() }));
        }
    }

    /// Takes the completions of a driver whose thread does not; on the background thread.
    pub(crate) fn tend(self: &Arc<Self>) {
        self.tended.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.active.load(Ordering::SeqCst) {
            return;
        }
        // Who holds the lock is the home thread, which calls `leave` again when it is through.
        let Some(mut io) = self.io.try_lock() else { return };
        let mut outcome = Outcome::default();
        io.reap(&mut outcome);
        let waiting = io.take_waiting();
        let (left, fd) = (io.outstanding(), io.ring_fd());
        self.outstanding.store(left, Ordering::Relaxed);
        drop(io);
        for (op, result) in outcome.done {
            if let Some(op) = op.finish(result) {
                background::start(op);
            }
        }
        waiting.into_iter().for_each(background::start);
        if let (true, Some(fd)) = (left > 0, fd)
            && !self.tended.swap(true, Ordering::SeqCst)
        {
            background::start(Op::new(Fd::Raw(fd), 0, Kind::Tend { driver: self.clone() }));
        }
    }

    /// Nobody watches the ring: the watch failed.
    pub(crate) fn stop_tending(&self) {
        self.tended.store(false, Ordering::SeqCst);
    }

    /// Answers whoever waits, and starts again what must go on.
    fn settle(&self, outcome: &mut Outcome) {
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

    /// Whether neither a ring nor a wake-up descriptor was made.
    #[cfg(test)]
    pub(crate) fn is_untouched(&self) -> bool {
        self.io.lock().ring_fd().is_none() && self.wake_fd.get().is_none()
    }

    /// Whether the main future wants to be polled; asking clears it.
    pub(crate) fn take_main_woken(&self) -> bool {
        self.main_woken.swap(false, Ordering::SeqCst)
    }

    /// One turn of the loop: runs tasks, submits, and takes completions. Sleeps where there is nothing else to do.
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
        self.settle(&mut outcome);
        *self.outcome.lock() = outcome;
    }

    /// Ends the driver, on its home thread: cancels tasks and socket operations, and waits for the kernel to give
    /// back every buffer it holds.
    pub(crate) fn close(self: &Arc<Self>) {
        self.active.store(true, Ordering::SeqCst);
        let messages = {
            let mut inbox = self.inbox.lock();
            inbox.closed = true;
            std::mem::take(&mut inbox.messages)
        };
        drop(messages);
        let tasks = {
            let mut tasks = self.tasks.lock();
            tasks.closed = true;
            std::mem::take(&mut tasks.slots)
        };
        // Dropping a task's handle schedules it a last time, to drop its future on this thread.
        drop(tasks);
        loop {
            let mut inbox = self.inbox.lock();
            let Some(runnable) = inbox.runnables.pop_front() else {
                inbox.ended = true;
                break;
            };
            drop(inbox);
            runnable.run();
        }
        if self.tended.swap(true, Ordering::SeqCst) {
            background::cancel(self.id);
        }
        let deadline = Instant::now() + WIND_UP_MAX;
        let mut first = true;
        loop {
            let mut outcome = Outcome::default();
            let over = self.io.lock().wind_up(first, WIND_UP_STEP, &mut outcome);
            first = false;
            for (op, result) in outcome.done {
                if result == -libc::ECANCELED {
                    drop(op);
                } else if let Some(op) = op.finish(result) {
                    // The rest of a transfer that was cut short.
                    if op.is_file_op() {
                        pool::run(op.file(), move || op.run_blocking());
                    }
                }
            }
            drop(outcome.due);
            if over || Instant::now() > deadline {
                let io = std::mem::replace(&mut *self.io.lock(), Io::new());
                if over {
                    drop(io)
                } else {
                    std::mem::forget(io)
                }
                return;
            }
        }
    }
}

/// A task's place among those of its driver; gone when its future is.
struct TaskPlace {
    driver: Arc<Shared>,
    index: usize,
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
