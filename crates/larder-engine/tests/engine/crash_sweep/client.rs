//! The requests of a script to an open cache, which the model hears of.

use super::{
    model::{Model, ZERO, bytes_of},
    world::{CHUNK, read},
};
use larder_core::types::SECTOR_BYTES;
use larder_device::{IoErrorKind, WriteFlags, ZeroFlags, rng::Rng, sim::SimRuntime};
use larder_engine::{Cache, WriteMode, status::CounterValues};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    task::Poll,
};

pub type Run<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
pub type Script = for<'a> fn(&'a Client<'a>) -> Run<'a>;

/// The cache and model of a script.
pub struct Client<'a> {
    pub cache: &'a Cache,
    pub model: &'a RefCell<Model>,
    /// Sectors of the volume.
    ///
    /// The last three are its last chunk, if the device's sector allows a chunk that short.
    pub sectors: usize,
    /// Size of the metadata log.
    pub log_bytes: u64,
    pub runtime: &'a SimRuntime,
    pub sweeping: &'a Cell<bool>,
}

impl Client<'_> {
    /// Begins the sweep with the events from here on; earlier ones are preparation.
    pub fn sweep_from_here(&self) {
        self.sweeping.set(true);
        self.runtime.stop_at_change(Some(self.runtime.changes() + 1));
    }

    /// Writes `count` sectors, each with its own stamp, in steps of 2 from `stamp` on.
    pub async fn put(&self, at: usize, count: usize, stamp: u32) {
        put(self.cache, self.model, at, count, stamp, false).await;
    }

    /// Writes the same with FUA.
    pub async fn put_durably(&self, at: usize, count: usize, stamp: u32) {
        put(self.cache, self.model, at, count, stamp, true).await;
    }

    /// Writes to a cache that makes each write durable before it is over.
    pub async fn put_committed(&self, at: usize, count: usize, stamp: u32) {
        put(self.cache, self.model, at, count, stamp, false).await;
        self.model.borrow_mut().durable(at, count);
    }

    /// Trims in the same way.
    pub async fn trim_committed(&self, at: usize, count: usize) {
        self.trim(at, count).await;
        self.model.borrow_mut().durable(at, count);
    }

    /// Writes, perhaps too late: the cache may end meanwhile.
    pub async fn put_if_open(&self, at: usize, count: usize, stamp: u32) {
        let stamps: Vec<u32> = (0..count as u32).map(|i| stamp + 2 * i).collect();
        self.model.borrow_mut().begin(at, &stamps);
        let (offset, data) = ((at * SECTOR_BYTES) as u64, bytes_of(&stamps).freeze());
        match self.cache.write(offset, data, WriteFlags::default()).await {
            Ok(()) => self.model.borrow_mut().complete(at, count),
            Err(error) => assert_eq!(error.kind, IoErrorKind::Cancelled, "write: {error}"),
        }
    }

    pub async fn trim(&self, at: usize, count: usize) {
        self.model.borrow_mut().begin(at, &vec![ZERO; count]);
        let (offset, len) = ((at * SECTOR_BYTES) as u64, (count * SECTOR_BYTES) as u64);
        let zeroed = self.cache.zero(offset, len, ZeroFlags::default()).await;
        zeroed.unwrap_or_else(|error| panic!("zero: {error}"));
        self.model.borrow_mut().complete(at, count);
    }

    pub async fn flush(&self) {
        flush(self.cache, self.model).await;
    }

    pub async fn check(&self, at: usize, count: usize) {
        let bytes = read(self.cache, at, count).await;
        let model = self.model.borrow();
        for (at, sector) in (at..).zip(bytes.chunks(SECTOR_BYTES)) {
            model.is(at, sector).unwrap_or_else(|error| panic!("before any crash: {error}"));
        }
    }

    pub fn counts(&self) -> CounterValues {
        self.cache.status().counts
    }

    pub fn deduplicates(&self) -> bool {
        self.cache.status().dedup
    }

    pub async fn checkpoint(&self) {
        self.cache.checkpoint().await.unwrap_or_else(|error| panic!("checkpoint: {error}"));
    }

    pub async fn destage(&self) {
        assert!(self.cache.destage_all().await, "destage");
    }

    pub async fn set_mode(&self, mode: WriteMode) {
        self.model.borrow_mut().mode_switch_begins(mode);
        self.cache.set_mode(mode).await.unwrap_or_else(|error| panic!("set mode: {error}"));
        self.model.borrow_mut().mode_is(mode);
    }

    /// Detaches the cache: the origin has everything.
    pub async fn detach(&self) {
        self.cache.detach().await.unwrap_or_else(|error| panic!("detach: {error}"));
    }

    /// Ends the cache in order: everything that completed is durable.
    pub async fn close(&self) {
        let began = self.model.borrow().flush_begins();
        self.cache.close().await.unwrap_or_else(|error| panic!("close: {error}"));
        self.model.borrow_mut().flushed(began);
    }
}

/// Runs futures side by side on the simulation's main task.
pub async fn all<'a>(mut futures: Vec<Run<'a>>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Overwrites some chunks and parts of chunks in a life after a crash, and flushes.
pub async fn go_on(cache: &Cache, model: &RefCell<Model>, mut rng: Rng) {
    let written: Vec<usize> = model.borrow().written().map(|(at, _)| at).collect();
    for _ in 0..4 {
        let last = written[written.len() - 1];
        let at = written[rng.index(written.len())];
        let (at, count) = if rng.chance(1, 2) { (at / CHUNK * CHUNK, CHUNK) } else { (at, 2) };
        let count = count.min(last + 1 - at);
        // Contents of all scenarios are below.
        let stamp = (1 << 31) + rng.below(1 << 30) as u32;
        put(cache, model, at, count, stamp, rng.chance(1, 4)).await;
        if rng.chance(1, 2) {
            flush(cache, model).await;
        }
    }
}

async fn put(cache: &Cache, model: &RefCell<Model>, at: usize, count: usize, stamp: u32, fua: bool) {
    let stamps: Vec<u32> = (0..count as u32).map(|i| stamp + 2 * i).collect();
    model.borrow_mut().begin(at, &stamps);
    let (offset, data) = ((at * SECTOR_BYTES) as u64, bytes_of(&stamps).freeze());
    cache.write(offset, data, WriteFlags { fua }).await.unwrap_or_else(|error| panic!("write: {error}"));
    let mut model = model.borrow_mut();
    model.complete(at, count);
    if fua {
        model.durable(at, count);
    }
}

async fn flush(cache: &Cache, model: &RefCell<Model>) {
    let began = model.borrow().flush_begins();
    cache.flush().await.unwrap_or_else(|error| panic!("flush: {error}"));
    model.borrow_mut().flushed(began);
}
