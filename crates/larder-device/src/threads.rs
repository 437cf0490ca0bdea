//! [`ThreadRuntime`]: the [`Runtime`] of a real process.
//!
//! It has a driver thread for tasks and timers, and workers for jobs.
//!
//! Invariants: tasks run on one thread, so that an engine's background work needs no lock against
//! itself. Their I/O is completed there. Timers fire in the order of their deadlines, equal ones in
//! the order of their requests. At most [`JOBS_QUEUED_MAX`] jobs wait; the caller runs the next one
//! itself, which slows it to the workers' speed. After [`ThreadRuntime::shutdown`] nothing runs any
//! more: tasks are dropped, delays are cancelled.
//!
//! It does not spread tasks over threads; hashing and compressing belong into jobs.

use crate::{
    BoxFuture, Completer, IoError, IoErrorKind, IoFuture, IoOp, Runtime,
    driver::{self, DriverShared, Message},
    runtime::Job,
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Jobs that wait for a worker, at most.
pub const JOBS_QUEUED_MAX: usize = 4096;
/// Worker threads, at most.
pub const WORKERS_MAX: usize = 256;

/// The options of a [`ThreadRuntime`].
#[derive(Clone, Debug)]
pub struct ThreadRuntimeOptions {
    /// Worker threads for jobs, up to [`WORKERS_MAX`]. With none, jobs run on their callers'
    /// threads.
    pub workers: usize,
    /// Name of the threads; the system shows its first characters.
    pub name: String,
}

impl Default for ThreadRuntimeOptions {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        ThreadRuntimeOptions { workers: cores, name: "larder".into() }
    }
}

/// A runtime of threads, as the module describes it.
pub struct ThreadRuntime {
    driver: Arc<DriverShared>,
    workers: usize,
    jobs: Arc<Jobs>,
    began: Instant,
    stop: Mutex<Option<Completer<()>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Jobs {
    queue: Mutex<JobQueue>,
    work: Condvar,
    /// Workers that wait, less the jobs queued for them; a hint, read without the lock.
    idle: AtomicUsize,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    waiting: usize,
    stopped: bool,
}

impl ThreadRuntime {
    /// Starts the driver thread and the workers.
    ///
    /// # Panics
    /// If the system refuses the threads; see [`ThreadRuntime::try_new`].
    pub fn new(options: ThreadRuntimeOptions) -> Arc<ThreadRuntime> {
        Self::try_new(options).expect("the system starts the runtime's threads")
    }

    /// Makes a runtime, as [`ThreadRuntime::new`], with the system's refusal as an error.
    pub fn try_new(options: ThreadRuntimeOptions) -> io::Result<Arc<ThreadRuntime>> {
        let (stop, stopped) = IoFuture::pending();
        let workers = options.workers.min(WORKERS_MAX);
        let jobs = Arc::new(Jobs { queue: Mutex::default(), work: Condvar::new(), idle: AtomicUsize::new(0) });
        // From here on, a drop of the runtime stops all started threads.
        let runtime = Arc::new(ThreadRuntime {
            driver: DriverShared::new(),
            workers,
            jobs,
            began: Instant::now(),
            stop: Mutex::new(Some(stop)),
            threads: Mutex::new(Vec::new()),
        });
        let home = runtime.driver.clone();
        let driver_thread = thread::Builder::new().name(format!("{}-driver", options.name)).spawn(move || {
            // Cancelled or completed, it means stop.
            let _ = driver::drive_to_the_end(home, stopped);
        })?;
        runtime.threads.lock().push(driver_thread);
        for number in 0..workers {
            let jobs = runtime.jobs.clone();
            let worker =
                thread::Builder::new().name(format!("{}-{number}", options.name)).spawn(move || jobs.work())?;
            runtime.threads.lock().push(worker);
        }
        Ok(runtime)
    }

    /// Stops the runtime and waits for the threads.
    ///
    /// It drops the unfinished tasks, cancels the delays, and lets queued jobs run to their end.
    /// Later tasks and delays are dropped, later jobs run on their callers' threads.
    pub fn shutdown(&self) {
        drop(self.stop.lock().take());
        self.jobs.queue.lock().stopped = true;
        self.jobs.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A task or a job may drop the last handle; that thread ends by itself.
            if thread.thread().id() != thread::current().id() {
                // A thread's panic was printed when it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for ThreadRuntime {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Runtime for ThreadRuntime {
    fn spawn(&self, task: BoxFuture) {
        self.driver.spawn(CatchPanic(task));
    }

    fn delay(&self, after: Duration) -> IoFuture<()> {
        let (completer, future) = IoFuture::pending();
        match Instant::now().checked_add(after) {
            Some(at) => self.driver.send(Message::Timer(at, completer)),
            None => {
                let error = IoError::new(IoErrorKind::Unsupported, IoOp::Flush, 0, 0);
                completer.complete(Err(error.with_detail("a delay beyond the clock's range")));
            }
        }
        future
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn run_job(&self, job: Job) {
        let mut queue = self.jobs.queue.lock();
        if self.workers == 0 || queue.stopped || queue.jobs.len() >= JOBS_QUEUED_MAX {
            drop(queue);
            job();
            return;
        }
        queue.jobs.push_back(job);
        self.jobs.note_idle(&queue);
        drop(queue);
        self.jobs.work.notify_one();
    }

    fn has_idle_worker(&self) -> bool {
        self.jobs.idle.load(Ordering::Relaxed) > 0
    }
}

impl Jobs {
    fn note_idle(&self, queue: &JobQueue) {
        self.idle.store(queue.waiting.saturating_sub(queue.jobs.len()), Ordering::Relaxed);
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                self.note_idle(&queue);
                drop(queue);
                // The message was printed, and the dropped completer tells the job's waiter.
                let _ = catch_unwind(AssertUnwindSafe(job));
                queue = self.queue.lock();
            } else if queue.stopped {
                return;
            } else {
                queue.waiting += 1;
                self.note_idle(&queue);
                self.work.wait(&mut queue);
                queue.waiting -= 1;
                self.note_idle(&queue);
            }
        }
    }
}

/// A task whose panic ends it alone; the other tasks of its thread go on.
struct CatchPanic(BoxFuture);

impl Future for CatchPanic {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))).unwrap_or(Poll::Ready(()))
    }
}

#[cfg(test)]
#[path = "threads/tests.rs"]
mod tests;
