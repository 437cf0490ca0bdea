//! [`SimRuntime`]: a seeded scheduler for tasks, jobs, timers and device completions.
//!
//! Invariants: the state's lock is never held while foreign code runs (a task, a job, a waker, a
//! destructor). After the end of a runtime nothing it was given runs: tasks are dropped, operations
//! cancelled.
//!
//! It does not run woken tasks fairly, or timers on time. A task that needs either is wrong.

use super::{
    Frozen,
    body::Body,
    op::PendingOp,
    options::{Schedule, SimOptions},
    schedule::{EventKind, Scheduled, SimState, push},
};
use crate::{
    BoxFuture, Completer, IoError, IoErrorKind, IoFuture, IoOp, Runtime,
    rng::{Rng, mix64},
    runtime::Job,
};
use async_task::{Builder, Runnable, Task};
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// Operations listed by a panic.
const LISTED_MAX: usize = 16;

/// A simulated runtime, as [`crate::sim`] describes it.
pub struct SimRuntime {
    seed: u64,
    options: SimOptions,
    state: Mutex<SimState>,
    ready: Arc<Mutex<Ready>>,
}

/// The woken tasks.
struct Ready {
    tasks: Vec<Runnable<u64>>,
    closed: bool,
}

enum Choice {
    Main,
    Task(Runnable<u64>),
    Op { op: Scheduled<PendingOp>, partly: bool, rng: Rng },
    Job(Job),
    Timer(Completer<()>),
    Stop,
    Nothing,
}

enum End {
    Over,
    Stopped,
    Idle,
}

struct MainWaker(AtomicBool);

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

impl SimRuntime {
    /// Returns a runtime whose order the seed decides, in [`Schedule::Chaos`].
    pub fn new(seed: u64) -> Arc<SimRuntime> {
        SimRuntime::with_options(seed, SimOptions::default())
    }

    /// Returns a runtime that keeps to time, for measurements: [`Schedule::Timed`].
    pub fn timed(seed: u64) -> Arc<SimRuntime> {
        SimRuntime::with_options(seed, SimOptions { schedule: Schedule::Timed, ..SimOptions::default() })
    }

    /// Returns a runtime with these options.
    pub fn with_options(seed: u64, options: SimOptions) -> Arc<SimRuntime> {
        let ready = Arc::new(Mutex::new(Ready { tasks: Vec::new(), closed: false }));
        Arc::new(SimRuntime { seed, options, state: Mutex::new(SimState::new(seed)), ready })
    }

    /// Returns the seed that replays this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of choices so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Returns the writes, flushes, discards and zeroings submitted so far, on all devices.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Returns a hash of every choice so far: two runs with the same hash were the same run.
    pub fn trace_hash(&self) -> u64 {
        self.state.lock().trace
    }

    /// Stops the run before step number `step`.
    pub fn stop_at_step(&self, step: Option<u64>) {
        self.state.lock().stop_at_step = step;
    }

    /// Stops the run as soon as change number `change` (from 1) was submitted, before it takes
    /// effect.
    pub fn stop_at_change(&self, change: Option<u64>) {
        self.state.lock().stop_at_change = change;
    }

    /// Runs until `future` ends.
    ///
    /// # Panics
    /// With the seed: if no wake-up is possible, if the steps run out, or if a set stop is reached.
    /// Also if called inside the simulation, or after its end.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self.block_on_or_stop(future) {
            Some(output) => output,
            None => panic!("simulation with seed {}: stopped before the future was over", self.seed),
        }
    }

    /// Runs until `future` ends, or until a stop set before is reached; then it returns `None`.
    ///
    /// # Panics
    /// As [`SimRuntime::block_on`], but for the stop.
    pub fn block_on_or_stop<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut output = None;
        let mut poll = |context: &mut Context<'_>| is_over(future.as_mut(), &mut output, context);
        if let End::Idle = self.drive(Some(&mut poll), None) {
            self.deadlock();
        }
        output
    }

    /// Runs until `future` ends. A reached stop is forgotten, and the run goes on unchanged after
    /// `pause`. `pause` may take a [`SimRuntime::capture`] and set the next stop.
    ///
    /// # Panics
    /// As [`SimRuntime::block_on`], but for stops.
    pub fn block_on_pausing<F: Future>(&self, future: F, mut pause: impl FnMut(&SimRuntime)) -> F::Output {
        let mut future = pin!(future);
        let mut output = None;
        let mut poll = |context: &mut Context<'_>| is_over(future.as_mut(), &mut output, context);
        self.drive(Some(&mut poll), Some(&mut pause));
        output.unwrap_or_else(|| self.deadlock())
    }

    fn deadlock(&self) -> ! {
        panic!("simulation with seed {}: deadlock: nothing can wake the future; {}", self.seed, self.waiting());
    }

    /// Runs until no task, operation or job is left to run. Timers that are not due stay. False: a
    /// stop was reached.
    ///
    /// # Panics
    /// As [`SimRuntime::block_on`], but for deadlocks and the stop.
    pub fn run_until_idle(&self) -> bool {
        matches!(self.drive(None, None), End::Idle)
    }

    /// Runs for this long on the simulation's clock, at least.
    ///
    /// # Panics
    /// As [`SimRuntime::block_on`].
    pub fn run_for(&self, time: Duration) {
        // A tear-down comes only from outside, so the delay cannot fail while it runs.
        let _ = self.block_on(self.delay(time));
    }

    /// Ends this runtime with a power loss on its devices. An operation in flight happened in full,
    /// in part, or not at all. Each volatile change is kept, dropped or torn.
    pub fn crash(&self) {
        self.end(true);
    }

    /// Ends this runtime as if its process were killed. An operation in flight happened in full, in
    /// part, or not at all. A completed one stays visible, but no more durable than before.
    pub fn kill(&self) {
        self.end(false);
    }

    /// Returns the undecided outcomes of a crash at this instant. The runtime goes on unchanged.
    pub fn capture(&self) -> Frozen {
        let (devices, in_flight) = {
            let state = self.state.lock();
            let ops = state.ops.iter().chain(&state.held);
            let mut ops: Vec<_> = ops.filter(|op| !op.what.changes().is_empty()).collect();
            ops.sort_unstable_by_key(|op| op.id);
            let ops: Vec<_> = ops.iter().map(|op| (op.what.device.clone(), op.what.changes().to_vec())).collect();
            (state.devices.clone(), ops)
        };
        let devices = devices.iter().filter_map(Weak::upgrade).filter(|device| device.belongs_to(self)).collect();
        Frozen::new(devices, in_flight)
    }

    /// Ends this runtime with a power loss whose outcome the [`Frozen`] chooses. Until then the
    /// devices hold one outcome.
    pub fn freeze(&self) -> Frozen {
        let frozen = self.capture();
        self.crash();
        frozen
    }

    fn end(&self, power_loss: bool) {
        let (mut rng, tasks, mut ops, jobs, timers, devices) = {
            let mut state = self.state.lock();
            assert!(!state.driving, "a simulation is ended from outside");
            if state.closed {
                return;
            }
            state.closed = true;
            let rng = state.rng.fork();
            let SimState { tasks, ops, held, jobs, timers, devices, .. } = &mut *state;
            ops.append(held);
            (rng, take(tasks), take(ops), take(jobs), take(timers), take(devices))
        };
        rng.shuffle(&mut ops);
        ops.into_iter().for_each(|op| op.what.abandon(&mut rng));
        let woken = {
            let mut ready = self.ready.lock();
            ready.closed = true;
            take(&mut ready.tasks)
        };
        if power_loss {
            for device in devices.iter().filter_map(Weak::upgrade).filter(|device| device.belongs_to(self)) {
                device.power_loss(&mut rng);
            }
        }
        drop((tasks, woken, jobs, timers));
    }

    /// Takes a device, whose later operations it completes.
    pub(super) fn adopt(self: &Arc<Self>, device: &Arc<Body>) {
        device.move_to(self.clone());
        let device = Arc::downgrade(device);
        let devices = &mut self.state.lock().devices;
        devices.retain(|known| !known.ptr_eq(&device));
        devices.push(device);
    }

    /// Takes an operation to complete later; hands it back if the runtime has ended.
    pub(super) fn submit(&self, op: PendingOp, is_change: bool, delay: Duration) -> Result<(), Box<PendingOp>> {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Err(Box::new(op));
        }
        state.changes += u64::from(is_change);
        let latency_max = self.options.op_latency_max.as_nanos() as u64;
        let latency = Duration::from_nanos(state.rng.below(latency_max + 1));
        let waiting = state.wait_for(latency.saturating_add(delay), op);
        let queue = if delay.is_zero() { &mut state.ops } else { &mut state.held };
        push(queue, waiting);
        Ok(())
    }

    fn drive(
        &self,
        mut main: Option<&mut dyn FnMut(&mut Context<'_>) -> bool>,
        mut pause: Option<&mut dyn FnMut(&SimRuntime)>,
    ) -> End {
        let _turn = Turn::begin(self);
        let woken = Arc::new(MainWaker(AtomicBool::new(main.is_some())));
        let waker = Waker::from(woken.clone());
        loop {
            let choice = self.choose(woken.0.load(SeqCst), main.is_none());
            match choice {
                Choice::Main => {
                    woken.0.store(false, SeqCst);
                    let poll = main.as_mut().expect("only a main future is woken");
                    if poll(&mut Context::from_waker(&waker)) {
                        return End::Over;
                    }
                }
                Choice::Task(task) => {
                    let id = *task.metadata();
                    task.run();
                    let mut state = self.state.lock();
                    let over = state.tasks.get(&id).is_some_and(Task::is_finished);
                    let task = if over { state.tasks.remove(&id) } else { None };
                    drop(state);
                    drop(task);
                }
                Choice::Op { op: Scheduled { id, due, what }, partly, mut rng } => {
                    if let Some(what) = what.deliver(partly, &mut rng) {
                        self.state.lock().ops.push(Scheduled { id, due, what });
                    }
                }
                Choice::Job(job) => job(),
                Choice::Timer(timer) => timer.complete(Ok(())),
                Choice::Stop => match &mut pause {
                    Some(pause) => {
                        self.stop_at_step(None);
                        self.stop_at_change(None);
                        pause(self);
                    }
                    None => return End::Stopped,
                },
                Choice::Nothing => return End::Idle,
            }
        }
    }

    fn choose(&self, main_woken: bool, stop_when_idle: bool) -> Choice {
        let mut state = self.state.lock();
        let mut ready = self.ready.lock();
        if state.stop_reached() {
            return Choice::Stop;
        }
        if state.steps == self.options.steps_max {
            drop((state, ready));
            panic!("simulation with seed {}: {} steps, no end; {}", self.seed, self.options.steps_max, self.waiting());
        }
        state.steps += 1;
        let ready_tasks = ready.tasks.len() + usize::from(main_woken);
        let (kind, id, choice) = match state.choose_kind(self.options.schedule, ready_tasks, stop_when_idle) {
            EventKind::Ready => {
                let index = state.rng.index(ready_tasks);
                if index == ready.tasks.len() {
                    (0, u64::MAX, Choice::Main)
                } else {
                    let task = ready.tasks.swap_remove(index);
                    (1, *task.metadata(), Choice::Task(task))
                }
            }
            EventKind::Op(index) => {
                let op = state.ops.remove(index);
                state.now = state.now.max(op.due);
                let partly = self.options.schedule == Schedule::Chaos && {
                    let split_ops = state.bias.split_ops;
                    state.rng.chance(split_ops, 16)
                };
                let rng = state.rng.fork();
                (2, op.id, Choice::Op { op, partly, rng })
            }
            EventKind::Job(index) => {
                let job = state.jobs.remove(index);
                (3, job.id, Choice::Job(job.what))
            }
            EventKind::Timer(index) => {
                let timer = state.timers.remove(index);
                state.now = state.now.max(timer.due);
                (4, timer.id, Choice::Timer(timer.what))
            }
            EventKind::Nothing => return Choice::Nothing,
        };
        state.trace = mix64(state.trace ^ mix64(id) ^ (state.now.as_nanos() as u64).rotate_left(3) ^ kind);
        choice
    }

    /// Lists the waiting work, for a panic's message.
    fn waiting(&self) -> String {
        let state = self.state.lock();
        let ops: Vec<String> =
            state.ops.iter().chain(&state.held).take(LISTED_MAX).map(|op| op.what.to_string()).collect();
        format!(
            "after {} steps at {:?}: {} tasks alive, {} woken, {} jobs, {} timers, {} operations [{}]",
            state.steps,
            state.now,
            state.tasks.len(),
            self.ready.lock().tasks.len(),
            state.jobs.len(),
            state.timers.len(),
            state.ops.len() + state.held.len(),
            ops.join(", ")
        )
    }
}

fn take<T: Default>(place: &mut T) -> T {
    std::mem::take(place)
}

/// A mark that the runtime runs; it tells the seed if the run panics.
struct Turn<'a>(&'a SimRuntime);

impl<'a> Turn<'a> {
    fn begin(runtime: &'a SimRuntime) -> Turn<'a> {
        let mut state = runtime.state.lock();
        assert!(!state.driving, "a simulation is driven from outside, once");
        assert!(!state.closed, "this simulation has ended");
        state.driving = true;
        Turn(runtime)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().driving = false;
        if std::thread::panicking() {
            eprintln!("simulation with seed {}: panicked; {}", self.0.seed, self.0.waiting());
        }
    }
}

/// Polls `future`, whose value goes to `output`. Returns whether it ended.
fn is_over<F: Future>(future: Pin<&mut F>, output: &mut Option<F::Output>, context: &mut Context<'_>) -> bool {
    match future.poll(context) {
        Poll::Ready(value) => {
            *output = Some(value);
            true
        }
        Poll::Pending => false,
    }
}

impl Runtime for SimRuntime {
    fn spawn(&self, task: BoxFuture) {
        let id = {
            let mut state = self.state.lock();
            state.next_id += 1;
            (!state.closed).then_some(state.next_id)
        };
        // Dropped after the lock is free: a destructor may come back here.
        let Some(id) = id else { return drop(task) };
        let ready = Arc::downgrade(&self.ready);
        let schedule = move |task: Runnable<u64>| {
            if let Some(ready) = ready.upgrade() {
                let mut ready = ready.lock();
                if !ready.closed {
                    ready.tasks.push(task);
                }
            }
        };
        let (runnable, task) = Builder::new().metadata(id).spawn(move |_| task, schedule);
        self.state.lock().tasks.insert(id, task);
        runnable.schedule();
    }

    fn delay(&self, after: Duration) -> IoFuture<()> {
        let mut state = self.state.lock();
        if state.closed {
            return IoFuture::ready(Err(IoError::new(IoErrorKind::Cancelled, IoOp::Flush, 0, 0)));
        }
        let (completer, future) = IoFuture::pending();
        let timer = state.wait_for(after, completer);
        push(&mut state.timers, timer);
        future
    }

    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn run_job(&self, job: Job) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return drop(job);
        }
        let job = state.wait_for(Duration::ZERO, job);
        push(&mut state.jobs, job);
    }

    fn has_idle_worker(&self) -> bool {
        let mut state = self.state.lock();
        match self.options.schedule {
            Schedule::Chaos => state.rng.chance(1, 2),
            Schedule::Timed => state.jobs.is_empty(),
        }
    }
}
