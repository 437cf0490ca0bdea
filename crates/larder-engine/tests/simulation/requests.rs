//! The desk between the plan and the cache: requests of clients and operators go through it, and what they show is told
//! to the model.
//!
//! Invariants: a request's beginning is told to the model before the cache hears of it, and its end after it answered.
//!
//! What it does not do: open or end anything; [`crate::life`] does.

use crate::{
    content::{Fill, value, write_sector},
    fence::MemoryFence,
    model::Model,
    plan::{Client, FaultKind, Life, Op, OperatorOp, Run, What},
    sector::Moment,
    stats::Stats,
    trouble::{Trouble, Way},
    world::World,
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoBuf, Runtime, WriteFlags, ZeroFlags, rng::mix64, sim::SimRuntime};
use larder_engine::{Cache, EngineError, WriteMode};
use parking_lot::Mutex;
use std::{
    fmt::Display,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Requests that look at the whole volume have one of these lengths, in sectors.
const CHECK_SECTORS: [usize; 4] = [64, 256, 1024, 8192];

/// What kind of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A read returned what it must not.
    Data,
    /// Something failed without a reason.
    Error,
    /// The cache could not be opened, without a reason.
    Opening,
    /// Something panicked.
    Panic,
    /// The run no longer gets anywhere.
    Stuck,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: ViolationKind,
    pub text: String,
}

/// The desk of a run.
pub struct Desk {
    state: Mutex<State>,
}

struct State {
    model: Model,
    stats: Stats,
    /// What happened, if anybody wants to know.
    lines: Option<Vec<String>>,
    /// Prints what happens to this sector.
    watched: Option<usize>,
    life: usize,
    runtime: Option<Arc<SimRuntime>>,
    cache: Option<Arc<Cache>>,
    violation: Option<Violation>,
    /// For each client, its next request.
    next: Vec<usize>,
    begun: usize,
    operator: Vec<(usize, OperatorOp)>,
    /// Tasks of clients and operators that are not over.
    tasks: usize,
    waiting: Option<Waker>,
    requests_in_flight: usize,
    /// Counts beginnings and ends of mode switches.
    mode_switches: u64,
    /// Mode switches under way.
    switching: u64,
    /// The mode that the next opening must find; `None` where a switch failed or was cut short.
    mode: Option<WriteMode>,
    /// A hash of all choices of all schedulers.
    trace: u64,
    closed: bool,
    /// Where a fence is kept, and the moment at which it was first seen to be up in this life.
    fence: Option<Arc<MemoryFence>>,
    fenced_since: Option<Moment>,
}

impl Desk {
    /// A desk for a volume.
    pub fn new(model: Model, tell: bool, watched: Option<usize>) -> Arc<Desk> {
        let state = State {
            model,
            stats: Stats::default(),
            lines: tell.then(Vec::new),
            watched,
            life: 0,
            runtime: None,
            cache: None,
            violation: None,
            next: Vec::new(),
            begun: 0,
            operator: Vec::new(),
            tasks: 0,
            waiting: None,
            requests_in_flight: 0,
            mode_switches: 0,
            switching: 0,
            mode: None,
            trace: 0,
            closed: false,
            fence: None,
            fenced_since: None,
        };
        Arc::new(Desk { state: Mutex::new(state) })
    }

    /// Adds a line to the history.
    pub fn history(&self, line: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        let life = state.life;
        if let Some(lines) = &mut state.lines {
            lines.push(format!("life {life}: {}", line()));
        }
    }

    pub fn take_history(&self) -> Vec<String> {
        self.state.lock().lines.take().unwrap_or_default()
    }

    pub fn stats(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.state.lock().stats);
    }

    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// Another flash is in place: nothing is known of its mode. `origin_is_complete`: and nothing is lost by that.
    pub fn new_flash(&self, origin_is_complete: bool) {
        let mut state = self.state.lock();
        if origin_is_complete {
            state.model.origin_is_complete();
        }
        state.model.lose_flash();
        state.model.trouble.new_flash();
        state.mode = None;
        state.stats.flashes_lost += 1;
        state.stats.flashes_lost_with_a_complete_origin += u64::from(origin_is_complete);
    }

    /// The next opening may drop dirty data behind the fence.
    pub fn drop_dirty_data(&self) {
        let mut state = self.state.lock();
        state.model.lose_flash();
        state.stats.openings_that_discard += 1;
    }

    pub fn take_stats(&self) -> Stats {
        let state = self.state.lock();
        Stats { open_sector_reads: state.model.open_reads, ..state.stats }
    }

    pub fn trouble(&self) -> Trouble {
        self.state.lock().model.trouble
    }

    /// Notes a broken promise, and ends the life.
    pub fn violate(&self, kind: ViolationKind, text: String) {
        self.history(|| text.clone());
        let waker = {
            let mut state = self.state.lock();
            state.violation.get_or_insert(Violation { kind, text });
            state.waiting.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    pub fn take_violation(&self) -> Option<Violation> {
        self.state.lock().violation.take()
    }

    pub fn is_sound(&self) -> bool {
        self.state.lock().violation.is_none()
    }

    pub fn in_flight(&self) -> bool {
        self.state.lock().requests_in_flight > 0
    }

    pub fn begin_life(&self, number: usize, life: &Life, runtime: &Arc<SimRuntime>, world: &World) {
        let mut state = self.state.lock();
        state.fence = world.shape.fence.then(|| world.fence.clone());
        state.fenced_since = None;
        state.life = number;
        state.runtime = Some(runtime.clone());
        state.next = vec![0; life.clients.len()];
        state.begun = 0;
        state.operator = life.operator.clone();
        (state.tasks, state.requests_in_flight, state.switching) = (0, 0, 0);
        state.closed = false;
        state.stats.lives += 1;
    }

    pub fn end_life(&self, runtime: &SimRuntime, was_open: bool) {
        let mut state = self.state.lock();
        state.runtime = None;
        let cache = state.cache.take();
        state.stats.steps += runtime.steps();
        state.trace = mix64(state.trace ^ runtime.trace_hash());
        if was_open {
            let closed = state.closed;
            state.model.life_ends(closed);
        } else {
            state.model.trouble.life_ends();
        }
        drop(state);
        drop(cache);
    }

    pub fn opened(&self, cache: &Arc<Cache>) {
        let recovery = *cache.recovery();
        let mut state = self.state.lock();
        if !crate::life::keeps_dirty(cache.mode()) {
            state.model.opened_clean();
        }
        state.model.trouble.twins_damaged = [false; 2];
        state.stats.logs_replayed += u64::from(recovery.log_entries > 0);
        state.stats.checkpoints_loaded += u64::from(recovery.checkpoint_mappings > 0);
        state.cache = Some(cache.clone());
        let expected = state.mode.replace(cache.mode());
        drop(state);
        self.history(|| format!("the cache is open in {:?}", cache.mode()));
        // Dirty data that is found where a mark of the log is lost brings write-back back.
        let expected = expected.filter(|_| !self.trouble().metadata_damaged);
        if let Some(expected) = expected.filter(|&mode| mode != cache.mode()) {
            let text = format!("the cache is open in {:?}, though {expected:?} was durable", cache.mode());
            self.violate(ViolationKind::Data, text);
        }
    }

    /// Counts what the cache did in this life, and lets it go.
    pub fn forget_cache(&self) {
        let cache = self.state.lock().cache.take();
        if let Some(cache) = &cache {
            self.stats(|stats| stats.add_cache(&cache.status().counts));
        }
    }

    /// A fault begins, perhaps while the cache is being opened.
    pub fn fault_begins(&self, fault: &FaultKind, opening: bool) {
        {
            let mut state = self.state.lock();
            state.model.trouble.note(fault);
            if opening && state.model.trouble.log_damaged {
                state.model.revert();
            }
            state.stats.faults += 1;
        }
        self.history(|| format!("{fault}"));
    }

    /// Starts the clients' tasks. An operator's are started when their time has come.
    pub fn spawn_clients(self: &Arc<Self>, cache: &Arc<Cache>, life: &Life) {
        for (number, client) in life.clients.iter().enumerate() {
            let client = Arc::new(client.clone());
            for _ in 0..client.depth.min(client.ops.len()) {
                let (desk, cache, client) = (self.clone(), cache.clone(), client.clone());
                self.spawn(async move { desk.work(&cache, number, &client).await });
            }
        }
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = {
            let mut state = self.state.lock();
            state.tasks += 1;
            state.runtime.clone()
        };
        let desk = self.clone();
        let task = async move {
            task.await;
            let waker = {
                let mut state = desk.state.lock();
                state.tasks -= 1;
                if state.tasks == 0 { state.waiting.take() } else { None }
            };
            waker.into_iter().for_each(Waker::wake);
        };
        if let Some(runtime) = runtime {
            runtime.spawn(Box::pin(task));
        }
    }

    /// Until all tasks are over, or a promise was broken.
    pub async fn all_done(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.tasks == 0 || state.violation.is_some() {
                return Poll::Ready(());
            }
            state.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// One of the hands of a client: takes its requests one after the other.
    async fn work(self: &Arc<Self>, cache: &Arc<Cache>, number: usize, client: &Client) {
        loop {
            let op = {
                let mut state = self.state.lock();
                if state.violation.is_some() || state.closed {
                    return;
                }
                let Some(op) = client.ops.get(state.next[number]) else { return };
                state.next[number] += 1;
                state.begun += 1;
                state.stats.requests += 1;
                op
            };
            self.call_operator(cache);
            self.request(cache, number, op).await;
        }
    }

    fn call_operator(self: &Arc<Self>, cache: &Arc<Cache>) {
        let due: Vec<OperatorOp> = {
            let mut state = self.state.lock();
            let begun = state.begun;
            let (due, later) = state.operator.drain(..).partition(|&(after, _)| after < begun);
            state.operator = later;
            let due: Vec<(usize, OperatorOp)> = due;
            due.into_iter().map(|(_, op)| op).collect()
        };
        for op in due {
            let (desk, cache) = (self.clone(), cache.clone());
            self.spawn(async move { desk.operate(&cache, op).await });
        }
    }

    async fn request(&self, cache: &Cache, client: usize, op: &Op) {
        self.history(|| format!("client {client} begins {op}"));
        self.state.lock().requests_in_flight += 1;
        let patience = op.gives_up_after;
        let answered = match op.what {
            What::Read(run) => self.read(cache, run, patience).await,
            What::Write { run, fill, fua } => self.write(cache, op, run, fill, fua, None).await,
            What::Zero { run, no_hole, fua } => self.write(cache, op, run, Fill::Zeroes, fua, Some(no_hole)).await,
            What::Flush => self.flush(cache, patience).await,
        };
        match answered {
            Answer::Done => self.history(|| format!("{} is done", op.number)),
            Answer::Failed(error) => self.history(|| format!("{} fails: {error}", op.number)),
            Answer::GivenUp => {
                self.stats(|stats| stats.given_up += 1);
                self.history(|| format!("client {client} gives {} up", op.number));
            }
        }
        self.state.lock().requests_in_flight -= 1;
    }

    /// What [`Desk::way`] compares with: how many mode switches began and ended, how many are under way, and the mode.
    fn mode(&self, cache: &Cache) -> (u64, u64, WriteMode) {
        let state = self.state.lock();
        (state.mode_switches, state.switching, cache.mode())
    }

    /// Which way a request went that began at `before`.
    fn way(&self, cache: &Cache, before: (u64, u64, WriteMode)) -> Way {
        if self.mode(cache) != before || before.1 > 0 {
            Way::Unknown
        } else if crate::life::keeps_dirty(before.2) {
            Way::Back
        } else {
            Way::Through
        }
    }

    async fn read(&self, cache: &Cache, run: Run, patience: Option<u32>) -> Answer {
        let start = self.state.lock().model.now();
        let buf = IoBuf::new(run.count * SECTOR_BYTES);
        let result = patient(cache.read((run.at * SECTOR_BYTES) as u64, buf), patience).await;
        let mut state = self.state.lock();
        match result {
            None => Answer::GivenUp,
            Some(Ok(bytes)) => {
                if let Some(at) = state.watched.filter(|at| (run.at..run.end()).contains(at)) {
                    let found = crate::content::read_sector(&bytes[(at - run.at) * SECTOR_BYTES..][..SECTOR_BYTES]);
                    eprintln!(
                        "life {}: sector {at} reads as {}",
                        state.life,
                        found.map_or("?".into(), crate::content::name)
                    );
                }
                let read = state.model.read(run, start, &bytes);
                drop(state);
                if let Err(broken) = read {
                    let text = format!("a read of sectors {run}: {}", broken.text);
                    self.violate(ViolationKind::Data, text);
                }
                Answer::Done
            }
            Some(Err(error)) => {
                let dirty = state.model.perhaps_dirty(run);
                let allowed = state.closed_or_closing() || state.model.trouble.read_may_fail(dirty);
                state.stats.reads_failed += 1;
                drop(state);
                self.judge(allowed, &format!("the read of sectors {run}"), error)
            }
        }
    }

    async fn write(&self, cache: &Cache, op: &Op, run: Run, fill: Fill, fua: bool, no_hole: Option<bool>) -> Answer {
        let mode = self.mode(cache);
        let offset = (run.at * SECTOR_BYTES) as u64;
        {
            let mut state = self.state.lock();
            state.fenced_since();
            state.model.begin(op.number, run, fill);
            state.tell_watcher(run, || format!("{} begins", op.number));
        }
        let result = match no_hole {
            Some(no_hole) => {
                let flags = ZeroFlags { fua, no_hole, fast_only: false };
                patient(cache.zero(offset, (run.count * SECTOR_BYTES) as u64, flags), op.gives_up_after).await
            }
            None => {
                let mut buf = IoBuf::new(run.count * SECTOR_BYTES);
                for (index, out) in buf.chunks_exact_mut(SECTOR_BYTES).enumerate() {
                    write_sector(value(fill, op.number, index, run.at + index), out);
                }
                let write = cache.write(offset, buf.freeze(), WriteFlags { fua });
                patient(write, op.gives_up_after).await.map(|result| result.map_err(EngineError::Io))
            }
        };
        let way = self.way(cache, mode);
        let mut state = self.state.lock();
        match result {
            None => Answer::GivenUp,
            Some(Ok(())) => {
                state.model.complete(op.number, run, fua, way == Way::Through);
                state.tell_watcher(run, || format!("{} is done", op.number));
                Answer::Done
            }
            Some(Err(error)) => {
                let dirty = state.model.perhaps_dirty(run);
                state.model.fail(op.number, run, way == Way::Through);
                state.tell_watcher(run, || format!("{} fails", op.number));
                state.stats.writes_failed += 1;
                let allowed =
                    state.closed_or_closing() || state.model.trouble.write_may_fail(way, dirty, state.fence.is_some());
                drop(state);
                self.judge(allowed, &format!("write {} of sectors {run}", op.number), error)
            }
        }
    }

    async fn flush(&self, cache: &Cache, patience: Option<u32>) -> Answer {
        let mode = self.mode(cache);
        let (start, fenced) = {
            let mut state = self.state.lock();
            (state.model.now(), state.fenced_since())
        };
        let result = patient(cache.flush(), patience).await;
        let way = self.way(cache, mode);
        let mut state = self.state.lock();
        match result {
            None => Answer::GivenUp,
            Some(Ok(())) => {
                match fenced {
                    Some(since) if way != Way::Through => state.model.durable_past_flash(start, since),
                    _ => state.model.durable_before(start, way == Way::Through),
                }
                state.stats.flushes += 1;
                state.stats.flushes_past_flash += u64::from(fenced.is_some());
                Answer::Done
            }
            Some(Err(error)) => {
                state.stats.flushes_failed += 1;
                let allowed = state.closed_or_closing() || state.model.trouble.flush_may_fail(way);
                drop(state);
                self.judge(allowed, "a flush", error)
            }
        }
    }

    fn judge(&self, allowed: bool, what: &str, error: impl Display) -> Answer {
        if !allowed {
            self.violate(ViolationKind::Error, format!("{what} fails for no reason: {error}"));
        }
        Answer::Failed(error.to_string())
    }

    async fn operate(self: &Arc<Self>, cache: &Arc<Cache>, op: OperatorOp) {
        self.history(|| format!("the operator asks: {op:?}"));
        let start = self.state.lock().model.now();
        let before = self.mode(cache);
        if matches!(op, OperatorOp::SetMode(_)) {
            self.mode_switch_begins();
        }
        let result = match op {
            OperatorOp::DestageAll => match cache.destage_all().await {
                true => Ok(()),
                false => Err("not all could be destaged".to_owned()),
            },
            OperatorOp::Checkpoint => cache.checkpoint().await.map_err(|error| error.to_string()),
            OperatorOp::SetMode(mode) => cache.set_mode(mode).await.map_err(|error| error.to_string()),
            OperatorOp::Settle => {
                cache.settle().await;
                Ok(())
            }
            OperatorOp::Close => {
                self.close(cache, false).await;
                Ok(())
            }
            OperatorOp::Detach => {
                self.close(cache, true).await;
                Ok(())
            }
        };
        if matches!(op, OperatorOp::SetMode(_)) {
            self.mode_switch_ends(cache, result.is_ok());
        }
        let way = self.way(cache, before);
        // No other switch was under way at any time.
        let alone = before.1 == 0 && self.mode(cache).0 == before.0 + 2;
        self.history(|| format!("{op:?}: {}", result.as_ref().err().map_or("done", String::as_str)));
        let mut state = self.state.lock();
        match &result {
            Ok(()) => match op {
                OperatorOp::DestageAll => {
                    state.stats.full_destages += 1;
                    state.model.durable_before(start, true);
                }
                OperatorOp::SetMode(mode) if mode != before.2 => {
                    state.stats.mode_switches += 1;
                    // What had completed when the switch began is on the origin when it is over.
                    if alone && !crate::life::keeps_dirty(mode) {
                        state.model.durable_before(start, true);
                    }
                }
                _ => {}
            },
            Err(error) => {
                state.stats.operations_failed += 1;
                let allowed = state.closed_or_closing() || state.model.trouble.operation_may_fail();
                drop(state);
                self.judge(allowed, &format!("{op:?}"), error);
            }
        }
    }

    fn mode_switch_begins(&self) {
        let mut state = self.state.lock();
        state.switching += 1;
        state.mode_switches += 1;
        state.mode = None;
    }

    fn mode_switch_ends(&self, cache: &Cache, succeeded: bool) {
        let mut state = self.state.lock();
        state.switching -= 1;
        state.mode_switches += 1;
        if succeeded && state.switching == 0 {
            state.mode = Some(cache.mode());
        }
    }

    /// Closes or detaches the cache; false where that failed, and might.
    pub async fn close(&self, cache: &Cache, detach: bool) -> bool {
        let start = {
            let mut state = self.state.lock();
            if state.closed || state.model.trouble.closing {
                return state.closed;
            }
            // A detachment that fails leaves the cache open, but whether it will is not known yet.
            state.model.trouble.closing = true;
            state.model.trouble.detaching |= detach;
            state.stats.closed_under_load += u64::from(state.requests_in_flight > 0);
            state.model.now()
        };
        let result = if detach { cache.detach().await } else { cache.close().await };
        let what = if detach { "detach" } else { "close" };
        self.history(|| {
            format!("{what}: {}", result.as_ref().err().map_or("done".to_owned(), |error| error.to_string()))
        });
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.closed = true;
                state.model.durable_before(start, detach || !crate::life::keeps_dirty(cache.mode()));
                state.stats.clean_ends += 1;
                state.stats.detachments += u64::from(detach);
                true
            }
            Err(error) => {
                state.stats.operations_failed += 1;
                let trouble = &state.model.trouble;
                let allowed = trouble.closing_may_fail() || (detach && trouble.slots_damaged);
                drop(state);
                self.judge(allowed, what, error);
                false
            }
        }
    }

    /// Reads the whole volume.
    pub async fn check(&self, cache: &Cache, life: &Life) {
        let sectors = self.state.lock().model.len();
        let step = CHECK_SECTORS[(life.schedule_seed >> 8) as usize % CHECK_SECTORS.len()];
        for at in (0..sectors).step_by(step) {
            if !self.is_sound() || self.state.lock().closed {
                return;
            }
            let run = Run { at, count: step.min(sectors - at) };
            if let Answer::Failed(error) = self.read(cache, run, None).await {
                self.history(|| format!("the check of sectors {run} fails: {error}"));
            }
        }
    }
}

impl State {
    /// Since when a fence is known to be up.
    fn fenced_since(&mut self) -> Option<Moment> {
        if self.fenced_since.is_none() && self.fence.as_ref().is_some_and(|fence| fence.is_up()) {
            self.fenced_since = Some(self.model.now());
        }
        self.fenced_since
    }

    fn closed_or_closing(&self) -> bool {
        self.closed || self.model.trouble.closing
    }

    fn tell_watcher(&self, run: Run, what: impl FnOnce() -> String) {
        if let Some(at) = self.watched.filter(|at| (run.at..run.end()).contains(at)) {
            eprintln!("life {}: sector {at}: write {}", self.life, what());
        }
    }
}

enum Answer {
    Done,
    Failed(String),
    GivenUp,
}

/// The future's output; `None` where it was still not there after so many looks.
async fn patient<F: Future>(future: F, patience: Option<u32>) -> Option<F::Output> {
    let Some(mut looks) = patience else { return Some(future.await) };
    let mut future = pin!(future);
    let mut look = |cx: &mut Context<'_>| -> Poll<Option<F::Output>> {
        match Pin::as_mut(&mut future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if looks == 0 => Poll::Ready(None),
            Poll::Pending => {
                looks -= 1;
                Poll::Pending
            }
        }
    };
    std::future::poll_fn(&mut look).await
}
