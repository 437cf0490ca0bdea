//! A world for a cache under the scheduler: a runtime of threads, and devices in memory. Tasks have
//! one thread, and jobs another. The devices answer at once, later from another thread, or (a few
//! reads) after many other requests.
//!
//! Invariants: short delays (the engine's pauses before it tries again) end once no task can go on.
//! Longer ones, which only the timed commit asks for, never end. So no timer wakes a task that lost
//! its wake-up.
//!
//! It does not use the real driver or `ThreadRuntime`; their own tests explore them.

use crate::{Cache, Condvar, Mutex, Tuning};
use larder_device::{
    BlockDevice, BoxFuture, Completer, DeviceInfo, Extent, IoBuf, IoError, IoErrorKind, IoFuture, IoOp, Runtime,
    SharedBuf, WriteFlags, ZeroFlags, ram::RamDevice, runtime::Job,
};
use shuttle::{
    rand::{Rng, thread_rng},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread::{self, JoinHandle},
};
use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

/// The number of reads of which one is held back.
const READS_FOR_ONE_HELD: u32 = 8;
/// The most other requests during which a read is held; it goes on earlier if all else waits.
const HELD_REQUESTS_MAX: u64 = 150;
/// How often the world looks for requests of other threads while no task can go on.
const IDLE_LOOKS: u32 = 2000;

/// Delays that end in a row, without a request, before the world lets a held read go.
const IDLE_DELAYS: u32 = 100;

/// The number of wake-ups from other threads of which one is handed over.
const WAKES_FOR_ONE_HANDED_OVER: u32 = 8;
/// Looks of a thread that hands over a wake-up before it goes on.
const HAND_OVER_LOOKS: u32 = 2000;

/// Delays from this long on do not end.
const ENDLESS: Duration = Duration::from_millis(500);

/// The state that the threads and devices of a schedule share.
pub struct World {
    queues: Mutex<Queues>,
    work: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queues {
    tasks: VecDeque<Arc<Task>>,
    jobs: VecDeque<Job>,
    delays: VecDeque<Completer<()>>,
    endless: Vec<Completer<()>>,
    /// Reads that are held back until this many requests were made.
    held: Vec<(u64, Job)>,
    requests: u64,
    /// The world's own threads with a task or a job.
    busy: u32,
    stopped: bool,
}

struct Task {
    future: Mutex<Option<BoxFuture>>,
    queued: AtomicBool,
    world: Arc<World>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, SeqCst) {
            return;
        }
        let world = self.world.clone();
        world.queues.lock().tasks.push_back(self);
        world.work.notify_all();
        world.hand_over();
    }
}

impl World {
    /// Starts the two threads.
    pub fn new() -> Arc<World> {
        let world = Arc::new(World { queues: Mutex::default(), work: Condvar::new(), threads: Mutex::default() });
        let (tasks, jobs) = (world.clone(), world.clone());
        let threads = vec![thread::spawn(move || tasks.run_tasks()), thread::spawn(move || jobs.run_jobs())];
        *world.threads.lock() = threads;
        world
    }

    /// Now and then lets the world's threads finish before a client that woke a task goes on.
    ///
    /// So all consequences of the wake-up happen before the client's next step. If the client has a
    /// lock that they need, it goes on after some time.
    fn hand_over(&self) {
        let is_own = self.threads.lock().iter().any(|own| own.thread().id() == thread::current().id());
        if is_own || !thread_rng().gen_ratio(1, WAKES_FOR_ONE_HANDED_OVER) {
            return;
        }
        for _ in 0..HAND_OVER_LOOKS {
            let is_done = {
                let queues = self.queues.lock();
                queues.busy == 0 && queues.tasks.is_empty() && queues.jobs.is_empty() && queues.delays.is_empty()
            };
            if is_done {
                return;
            }
            thread::yield_now();
        }
    }

    /// Drops the remaining tasks, and waits for the threads.
    pub fn stop(&self) {
        self.queues.lock().stopped = true;
        self.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join().expect("the world's threads end"));
        let endless = std::mem::take(&mut self.queues.lock().endless);
        drop(endless);
    }

    fn run_tasks(&self) {
        let mut queues = self.queues.lock();
        let (mut idle_looks, mut idle_delays, mut seen_requests) = (0, 0, 0);
        loop {
            if queues.requests != seen_requests {
                (idle_looks, idle_delays, seen_requests) = (0, 0, queues.requests);
            }
            if !queues.tasks.is_empty() {
                idle_looks = 0;
            }
            if let Some(task) = queues.tasks.pop_front() {
                queues.busy += 1;
                drop(queues);
                task.queued.store(false, SeqCst);
                let waker = Waker::from(task.clone());
                let mut future = task.future.lock();
                if let Some(running) = future.as_mut()
                    && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
                {
                    let over = future.take();
                    drop(future);
                    drop(over);
                }
                queues = self.queues.lock();
                queues.busy -= 1;
            } else if let Some(delay) = queues.delays.pop_front() {
                idle_delays += 1;
                if idle_delays >= IDLE_DELAYS && !queues.held.is_empty() {
                    idle_delays = 0;
                    let (_, job) = queues.held.remove(0);
                    queues.jobs.push_back(job);
                    self.work.notify_all();
                }
                drop(queues);
                // A paused thread waits for others.
                thread::yield_now();
                delay.complete(Ok(()));
                queues = self.queues.lock();
            } else if !queues.held.is_empty() {
                // Other threads may be at work; if none is, they all wait for this.
                if idle_looks == IDLE_LOOKS {
                    idle_looks = 0;
                    let (_, job) = queues.held.remove(0);
                    queues.jobs.push_back(job);
                    self.work.notify_all();
                }
                idle_looks += 1;
                drop(queues);
                thread::yield_now();
                queues = self.queues.lock();
            } else if queues.stopped {
                return;
            } else {
                self.work.wait(&mut queues);
            }
        }
    }

    fn run_jobs(&self) {
        let mut queues = self.queues.lock();
        loop {
            if let Some(job) = queues.jobs.pop_front() {
                queues.busy += 1;
                drop(queues);
                job();
                queues = self.queues.lock();
                queues.busy -= 1;
            } else if queues.stopped {
                return;
            } else {
                self.work.wait(&mut queues);
            }
        }
    }

    /// Counts a request, and lets go of the reads that wait for this count.
    fn note_request(&self) {
        let mut queues = self.queues.lock();
        queues.requests += 1;
        let now = queues.requests;
        let (due, held) = std::mem::take(&mut queues.held).into_iter().partition(|(until, _)| *until <= now);
        queues.held = held;
        let due: Vec<(u64, Job)> = due;
        queues.jobs.extend(due.into_iter().map(|(_, job)| job));
        drop(queues);
        self.work.notify_all();
    }

    fn hold(&self, requests: u64, job: Job) {
        let mut queues = self.queues.lock();
        let until = queues.requests + requests;
        queues.held.push((until, job));
        drop(queues);
        self.work.notify_all();
    }

    fn later(&self, job: Job) {
        self.queues.lock().jobs.push_back(job);
        self.work.notify_all();
    }
}

/// The runtime of a cache in this world.
pub struct Threads(pub Arc<World>);

impl Runtime for Threads {
    fn spawn(&self, task: BoxFuture) {
        let future = Mutex::new(Some(task));
        Arc::new(Task { future, queued: AtomicBool::new(false), world: self.0.clone() }).wake();
    }

    fn delay(&self, after: Duration) -> IoFuture<()> {
        let (completer, future) = IoFuture::pending();
        let mut queues = self.0.queues.lock();
        if after >= ENDLESS {
            queues.endless.push(completer);
        } else {
            queues.delays.push_back(completer);
        }
        drop(queues);
        self.0.work.notify_all();
        future
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn run_job(&self, job: Job) {
        self.0.later(job);
    }

    fn has_idle_worker(&self) -> bool {
        thread_rng().gen_bool(0.5)
    }
}

/// A device in memory; the world's second thread does half of its requests.
pub struct Late {
    ram: Arc<RamDevice>,
    world: Arc<World>,
}

impl Late {
    pub fn new(ram: &Arc<RamDevice>, world: &Arc<World>) -> Arc<Late> {
        Arc::new(Late { ram: ram.clone(), world: world.clone() })
    }

    fn go<T: Send + 'static>(&self, request: impl FnOnce(&RamDevice) -> IoFuture<T> + Send + 'static) -> IoFuture<T> {
        self.world.note_request();
        if thread_rng().gen_bool(0.5) {
            return request(&self.ram);
        }
        let (job, future) = self.job(request);
        self.world.later(job);
        future
    }

    fn job<T: Send + 'static>(
        &self,
        request: impl FnOnce(&RamDevice) -> IoFuture<T> + Send + 'static,
    ) -> (Job, IoFuture<T>) {
        let (completer, future) = IoFuture::pending();
        let ram = self.ram.clone();
        let job = move || match request(&ram).try_ready() {
            Ok(result) => completer.complete(result),
            Err(_) => completer.complete(Err(IoError::new(IoErrorKind::Cancelled, IoOp::Flush, 0, 0))),
        };
        (Box::new(job), future)
    }
}

impl BlockDevice for Late {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        if !thread_rng().gen_ratio(1, READS_FOR_ONE_HELD) {
            return self.go(move |ram| ram.read(offset, buf));
        }
        let (job, future) = self.job(move |ram| ram.read(offset, buf));
        self.world.hold(thread_rng().gen_range(1..=HELD_REQUESTS_MAX), job);
        future
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.go(move |ram| ram.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.go(|ram| ram.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.go(move |ram| ram.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.go(move |ram| ram.write_zeroes(offset, len, flags))
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.go(move |ram| ram.extents(offset, len))
    }
}

/// Returns the tuning of a schedule.
///
/// Nothing happens by itself: no early destaging, no read-ahead, no timed commit.
pub fn tuning() -> Tuning {
    Tuning {
        commit_interval_ms: 3_600_000,
        destage_rate_bytes_per_s: 0,
        prefetch_bytes_max: 0,
        // The same on each machine; hits share the lock at once, or after one exclusive hit.
        read_stripes: 2,
        share_after_reads: thread_rng().gen_range(0..2),
        ..Tuning::default()
    }
}
