//! The desk between plan and cache: the state of a run, of each life, and a life's tasks.
//!
//! Invariants: the first broken promise is the one that counts, and ends the life.
//!
//! It leaves requests to [`crate::requests`], and operators to [`crate::operator`].

use crate::{
    fence::MemoryFence,
    model::Model,
    plan::{FaultKind, Life, OperatorOp, Run},
    sector::Moment,
    stats::Stats,
    trouble::Trouble,
    world::World,
};
use larder_device::{
    Runtime,
    rng::mix64,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, WriteMode, config::TrimPolicy};
use parking_lot::Mutex;
use std::{
    future::Future,
    sync::Arc,
    task::{Poll, Waker},
};

/// The kind of a broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A read returned a forbidden value.
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
    pub state: Mutex<State>,
    /// True if each write is durable once it is over.
    pub durable_writes: bool,
}

/// The state of the desk, all behind one lock.
pub struct State {
    pub model: Model,
    pub stats: Stats,
    /// The history, if the run keeps one.
    pub lines: Option<Vec<String>>,
    /// The sector whose events are printed.
    pub watched: Option<usize>,
    pub life: usize,
    pub runtime: Option<Arc<SimRuntime>>,
    pub cache: Option<Arc<Cache>>,
    pub violation: Option<Violation>,
    /// For each client, its next request.
    pub next: Vec<usize>,
    pub begun: usize,
    pub operator: Vec<(usize, OperatorOp)>,
    /// Tasks of clients and operators that are not over.
    pub tasks: usize,
    pub waiting: Option<Waker>,
    pub requests_in_flight: usize,
    /// Counts beginnings and ends of mode switches.
    pub mode_switches: u64,
    /// Mode switches under way.
    pub switching: u64,
    /// The mode that the next opening must find; `None` if a switch failed or was cut short.
    pub mode: Option<WriteMode>,
    /// A hash of all choices of all schedulers.
    pub trace: u64,
    pub closed: bool,
    /// The keeper of the fence, and the moment of the first look in this life that found it up.
    pub fence: Option<Arc<MemoryFence>>,
    pub fenced_since: Option<Moment>,
    /// The origin, and the number of its losses by failed flushes that the model knows.
    pub origin: Option<Arc<SimDevice>>,
    pub forgotten: u64,
    /// Flushes of the origin that had failed when the life began.
    pub failed_flushes_before: u64,
}

impl Desk {
    /// Returns a desk for a volume.
    pub fn new(model: Model, durable_writes: bool, tell: bool, watched: Option<usize>) -> Arc<Desk> {
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
            origin: None,
            forgotten: 0,
            failed_flushes_before: 0,
        };
        Arc::new(Desk { state: Mutex::new(state), durable_writes })
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

    /// Notes that another flash is in place, and its mode is unknown.
    ///
    /// `origin_is_complete`: the loss of the flash loses no data. `but_for_trims`: only trims that
    /// the cache kept.
    pub fn new_flash(&self, origin_is_complete: bool, but_for_trims: bool) {
        let mut state = self.state.lock();
        if origin_is_complete {
            state.model.origin_is_complete(but_for_trims);
        }
        state.model.lose_flash();
        state.model.trouble.new_flash();
        state.mode = None;
        state.stats.flashes_lost += 1;
        state.stats.flashes_lost_with_a_complete_origin += u64::from(origin_is_complete);
    }

    /// Checks that the keeper of the fence takes the flash of the next opening for no copy.
    pub fn knows_its_flash(&self, world: &World) {
        self.stats(|stats| stats.superblocks_noted += world.fence.take_newest().len() as u64);
        let (noted, found) = (world.fence.sequence(), world.superblock_sequence());
        if self.trouble().twins_are_whole() && found < noted {
            self.violate(ViolationKind::Opening, format!("superblock {noted} is noted, and the flash has {found}"));
        }
    }

    /// Allows the next opening to drop dirty data behind the fence.
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
        state.origin = Some(world.origin.clone());
        state.forgotten = world.origin.forgotten();
        state.failed_flushes_before = world.origin.failed_flushes();
        state.model.trouble.wears_out = world.shape.wear_left.is_some();
        state.life = number;
        state.runtime = Some(runtime.clone());
        state.next = vec![0; life.clients.len()];
        state.begun = 0;
        state.operator = life.operator.clone();
        (state.tasks, state.requests_in_flight, state.switching) = (0, 0, 0);
        state.closed = false;
        state.stats.lives += 1;
    }

    /// Notes the treatment of trims in this life. `others`: that of other lives.
    pub fn treats_trims(&self, policy: TrimPolicy, others: TrimPolicy) {
        let model = &mut self.state.lock().model;
        model.keeps_trims = policy == TrimPolicy::Keep;
        model.leaves_trims = policy == TrimPolicy::Pass && others == TrimPolicy::Keep;
    }

    pub fn end_life(&self, runtime: &SimRuntime, was_open: bool) {
        let mut state = self.state.lock();
        state.runtime = None;
        let cache = state.cache.take();
        state.stats.steps += runtime.steps();
        state.trace = mix64(state.trace ^ runtime.trace_hash());
        state.look_at_origin();
        if was_open {
            let closed = state.closed;
            state.model.life_ends(closed);
        } else {
            state.model.opening_ends();
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
        state.model.trouble.opened();
        state.stats.logs_replayed += u64::from(recovery.log_entries > 0);
        state.stats.checkpoints_loaded += u64::from(recovery.checkpoint_mappings > 0);
        state.cache = Some(cache.clone());
        let expected = state.mode.replace(cache.mode());
        drop(state);
        self.history(|| format!("the cache is open in {:?}", cache.mode()));
        // Dirty data behind a lost mark of the log brings write-back back.
        let expected = expected.filter(|_| !self.trouble().metadata_damaged);
        if let Some(expected) = expected.filter(|&mode| mode != cache.mode()) {
            let text = format!("the cache is open in {:?}, though {expected:?} was durable", cache.mode());
            self.violate(ViolationKind::Data, text);
        }
    }

    /// Counts the cache's work in this life, and drops it.
    ///
    /// On an undamaged flash no record may fail its check. A failure hides a slot that was written
    /// during a read, or a mapping to lost content.
    pub fn forget_cache(&self) {
        let cache = self.state.lock().cache.take();
        let Some(cache) = &cache else { return };
        let status = cache.status();
        self.stats(|stats| stats.add_cache(&status));
        if status.counts.failed_checks > 0 && !self.trouble().may_meet_damage() {
            let text = format!("{} records failed their check, and nothing damaged them", status.counts.failed_checks);
            self.violate(ViolationKind::Data, text);
        }
    }

    /// Notes the beginning of a fault, perhaps while the cache is being opened.
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

    /// Starts a task that [`Desk::all_done`] waits for.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
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

    /// Waits until all tasks are over, or a promise was broken.
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
}

impl State {
    /// Tells the model the losses of the origin by failed flushes since the last look.
    pub fn look_at_origin(&mut self) {
        let forgotten = self.origin.as_ref().map_or(0, |origin| origin.forgotten());
        if forgotten > self.forgotten {
            self.forgotten = forgotten;
            self.stats.flushes_forgotten += 1;
            let fenced = self.fence.as_ref().is_some_and(|fence| fence.is_up());
            let written_through = self.mode.is_some_and(|mode| !crate::life::keeps_dirty(mode)) && self.switching == 0;
            self.model.origin_forgets(fenced, written_through);
        }
    }

    /// Returns true if the cache was told of every failed flush of the origin.
    pub fn knows_of_all_failures(&self, cache: &Cache) -> bool {
        let failed = self.origin.as_ref().map_or(0, |origin| origin.failed_flushes()) - self.failed_flushes_before;
        failed == 0 || cache.status().counts.origin_flush_failures == failed
    }

    /// Returns the moment at which an operation begins.
    pub fn operation_begins(&mut self) -> Moment {
        self.look_at_origin();
        self.model.now()
    }

    /// Returns the moment since which a fence is known to be up.
    pub fn fenced_since(&mut self) -> Option<Moment> {
        if self.fenced_since.is_none() && self.fence.as_ref().is_some_and(|fence| fence.is_up()) {
            self.fenced_since = Some(self.model.now());
        }
        self.fenced_since
    }

    pub fn closed_or_closing(&self) -> bool {
        self.closed || self.model.trouble.closing
    }

    pub fn tell_watcher(&self, run: Run, what: impl FnOnce() -> String) {
        if let Some(at) = self.watched.filter(|at| (run.at..run.end()).contains(at)) {
            eprintln!("life {}: sector {at}: write {}", self.life, what());
        }
    }
}
