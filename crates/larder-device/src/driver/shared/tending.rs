//! A driver that its thread does not drive: the background driver takes its completions.
//!
//! While the home thread is outside `block_on`, the background driver *tends* the ring. It takes
//! completions and answers their waiters, so a future may outlive its `block_on`.
//!
//! Invariants: an operation is with one driver at a time. An ending driver waits until the kernel
//! has given back every buffer.
//!
//! It does not run the tasks of another thread.

use super::{
    super::{
        background,
        io::{Io, Outcome},
        op::{Fd, Op, OpKind, Tended},
        pool,
    },
    DriverShared,
};
use std::{
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    time::{Duration, Instant},
};

/// The longest wait of an ending thread for the kernel to return memory. After it this memory is
/// leaked.
const WIND_UP_MAX: Duration = Duration::from_secs(30);
/// One step of that wait.
const WIND_UP_STEP: Duration = Duration::from_millis(100);

impl DriverShared {
    /// Cancels a socket operation; for the home thread alone.
    pub(crate) fn cancel(self: &Arc<Self>, id: u64) {
        let mut outcome = Outcome::default();
        let mut io = self.io.lock();
        let is_here = io.cancel(id, &mut outcome);
        self.outstanding.store(io.outstanding(), Ordering::Relaxed);
        drop(io);
        self.deliver(&mut outcome);
        if !is_here {
            background::cancel_for(self, id);
        }
        if !self.active.load(Ordering::Relaxed) {
            self.leave();
        }
    }

    /// Stops driving and leaves operations in flight to the background driver.
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
        // The fallback has no ring to watch, so its socket operations move.
        waiting.into_iter().for_each(background::start);
        // Ordered after `active`: either the tender sees that no thread drives, or it is told here.
        fence(Ordering::SeqCst);
        if let Some(fd) = fd
            && !self.tended.swap(true, Ordering::SeqCst)
        {
            background::start(Op::new(Fd::Raw(fd), 0, OpKind::Tend { driver: self.clone() }));
        }
    }

    /// Ends the driver, on its home thread. Cancels tasks and socket operations, and waits until
    /// the kernel has given back every buffer.
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
                    // The rest of a short transfer.
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

impl Tended for DriverShared {
    fn id(&self) -> u64 {
        self.id
    }

    /// Takes the completions of a driver that its thread does not drive; on the background thread.
    fn tend(self: Arc<Self>) {
        self.tended.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.active.load(Ordering::SeqCst) {
            return;
        }
        // The home thread holds the lock, and calls `leave` again at its end.
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
            background::start(Op::new(Fd::Raw(fd), 0, OpKind::Tend { driver: self.clone() }));
        }
    }

    /// Notes that the watch of the ring failed.
    fn stop_tending(&self) {
        self.tended.store(false, Ordering::SeqCst);
    }
}
