//! Requests of clients, and their results, which the model hears of.
//!
//! Invariants: the model hears of a request's beginning before the cache, and of its end after the
//! answer.
//!
//! It leaves opening and ending to [`crate::life`].

use crate::{
    content::{Fill, name, read_sector, value, write_sector},
    desk::{Desk, ViolationKind},
    model::{Broken, Reach},
    plan::{Client, Life, Op, OperatorOp, Run, What},
    trouble::Way,
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{BlockDevice, IoBuf, WriteFlags, ZeroFlags};
use larder_engine::{Cache, EngineError};
use std::{
    fmt::Display,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

/// Requests that look at the whole volume have one of these lengths, in sectors.
const CHECK_SECTORS: [usize; 4] = [64, 256, 1024, 8192];

/// A change of sectors by a request.
enum Change {
    Write,
    Zero { no_hole: bool },
    Trim,
}

/// The outcome of a request.
pub enum Answer {
    Done,
    Failed(String),
    /// Its client went away.
    GivenUp,
}

impl Desk {
    /// Starts the clients' tasks. An operator's tasks start at their time.
    pub fn spawn_clients(self: &Arc<Self>, cache: &Arc<Cache>, life: &Life) {
        for (number, client) in life.clients.iter().enumerate() {
            let client = Arc::new(client.clone());
            for _ in 0..client.depth.min(client.ops.len()) {
                let (desk, cache, client) = (self.clone(), cache.clone(), client.clone());
                self.spawn(async move { desk.work(&cache, number, &client).await });
            }
        }
    }

    /// Sends the requests of one of a client's hands, one after the other.
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
            What::Write { run, fill, fua } => self.write(cache, op, run, fill, fua, Change::Write).await,
            What::Zero { run, no_hole, fua } => {
                self.write(cache, op, run, Fill::Zeroes, fua, Change::Zero { no_hole }).await
            }
            What::Trim(run) => self.write(cache, op, run, Fill::Zeroes, false, Change::Trim).await,
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

    async fn read(&self, cache: &Cache, run: Run, patience: Option<u32>) -> Answer {
        let start = self.state.lock().model.now();
        let buf = IoBuf::new(run.count * SECTOR_BYTES);
        let result = patient(cache.read((run.at * SECTOR_BYTES) as u64, buf), patience).await;
        let mut state = self.state.lock();
        match result {
            None => Answer::GivenUp,
            Some(Ok(bytes)) => {
                if let Some(at) = state.watched.filter(|at| (run.at..run.end()).contains(at)) {
                    let found = read_sector(&bytes[(at - run.at) * SECTOR_BYTES..][..SECTOR_BYTES]);
                    eprintln!("life {}: sector {at} reads as {}", state.life, found.map_or("?".into(), name));
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

    async fn write(&self, cache: &Cache, op: &Op, run: Run, fill: Fill, fua: bool, change: Change) -> Answer {
        let mode = self.mode(cache);
        let offset = (run.at * SECTOR_BYTES) as u64;
        {
            let mut state = self.state.lock();
            state.fenced_since();
            state.look_at_origin();
            state.model.begin(op.number, run, fill, matches!(change, Change::Trim));
            state.tell_watcher(run, || format!("{} begins", op.number));
        }
        let len = (run.count * SECTOR_BYTES) as u64;
        let result = match change {
            Change::Zero { no_hole } => {
                let flags = ZeroFlags { fua, no_hole, fast_only: false };
                patient(cache.zero(offset, len, flags), op.gives_up_after).await
            }
            Change::Trim => {
                let trim = BlockDevice::discard(cache, offset, len);
                patient(trim, op.gives_up_after).await.map(|result| result.map_err(EngineError::Io))
            }
            Change::Write => {
                let mut buf = IoBuf::new(run.count * SECTOR_BYTES);
                for (index, out) in buf.chunks_exact_mut(SECTOR_BYTES).enumerate() {
                    write_sector(value(fill, op.number, index, run.at + index), out);
                }
                let write = cache.write(offset, buf.freeze(), WriteFlags { fua });
                patient(write, op.gives_up_after).await.map(|result| result.map_err(EngineError::Io))
            }
        };
        let way = self.way(cache, mode);
        // The cache may promise more than the request asks for.
        let fua = fua || self.durable_writes;
        let mut state = self.state.lock();
        state.look_at_origin();
        match result {
            None => Answer::GivenUp,
            Some(Ok(())) => {
                let kept = state.knows_of_all_failures(cache);
                state.stats.durable_writes += u64::from(self.durable_writes);
                state.model.complete(op.number, run, fua, way, kept);
                state.tell_watcher(run, || format!("{} is done", op.number));
                Answer::Done
            }
            Some(Err(error)) => {
                if fua {
                    state.model.told();
                }
                let dirty = state.model.perhaps_dirty(run);
                state.model.fail(op.number, run, way);
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
            (state.operation_begins(), state.fenced_since())
        };
        let result = patient(cache.flush(), patience).await;
        let way = self.way(cache, mode);
        let mut state = self.state.lock();
        state.look_at_origin();
        match result {
            // The failure of the dropped request remains to be told.
            None => Answer::GivenUp,
            Some(Ok(())) => {
                let kept = match fenced {
                    Some(since) if way != Way::Through => state.model.durable_past_flash(start, since),
                    _ => state.model.durable_before(start, if way == Way::Through { Reach::All } else { Reach::Flash }),
                };
                state.stats.flushes += 1;
                state.stats.flushes_past_flash += u64::from(fenced.is_some());
                drop(state);
                self.kept(kept, "a flush");
                Answer::Done
            }
            Some(Err(error)) => {
                state.model.told();
                state.stats.flushes_failed += 1;
                let allowed = state.closed_or_closing() || state.model.trouble.flush_may_fail(way);
                drop(state);
                self.judge(allowed, "a flush", error)
            }
        }
    }

    /// Notes the model's verdict on a promise.
    pub fn kept(&self, kept: Result<(), Broken>, what: &str) {
        if let Err(broken) = kept {
            self.violate(ViolationKind::Data, format!("{what} succeeds, but {}", broken.text));
        }
    }

    /// Notes an error: allowed, or a broken promise.
    pub fn judge(&self, allowed: bool, what: &str, error: impl Display) -> Answer {
        if !allowed {
            self.violate(ViolationKind::Error, format!("{what} fails for no reason: {error}"));
        }
        Answer::Failed(error.to_string())
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

/// Returns the future's output, or `None` if it is missing after so many looks.
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
