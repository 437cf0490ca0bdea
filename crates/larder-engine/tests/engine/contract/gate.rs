//! The base of the scenarios: a device that stops at an operation, small worlds, waits,
//! comparisons.
//!
//! Invariants: all randomness here comes from the given seed.

use crate::world::{self, Shape, World, identify, read};
use larder_core::types::SECTOR_BYTES;
use larder_device::{
    BlockDevice, Completer, DeviceInfo, IoBuf, IoFuture, IoOp, Runtime, SharedBuf, WriteFlags, ZeroFlags,
    rng::Rng,
    sim::{Schedule, SimDevice, SimOptions, SimRuntime},
};
use larder_engine::{Cache, Compression, Tuning, WriteMode};
use larder_format::DesignId;
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::*},
    },
    task::Poll,
    time::Duration,
};

/// A device that holds back operations of one kind until it is told to let them go.
pub struct Gate {
    inner: Arc<dyn BlockDevice>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    /// The held operation, on bytes from an offset on.
    what: Option<(IoOp, Range<u64>)>,
    /// So many operations pass first, and one is held.
    nth: Option<u32>,
    waiting: Vec<Completer<()>>,
}

impl Gate {
    pub fn new(inner: &Arc<SimDevice>) -> Arc<Gate> {
        Gate::over(inner.clone())
    }

    pub fn over(inner: Arc<dyn BlockDevice>) -> Arc<Gate> {
        Arc::new(Gate { inner, held: Arc::default() })
    }

    pub fn hold(&self, op: IoOp) {
        self.hold_below(op, u64::MAX);
    }

    pub fn hold_below(&self, op: IoOp, offset: u64) {
        self.hold_within(op, 0..offset);
    }

    /// Holds operations that begin at one of these offsets.
    pub fn hold_within(&self, op: IoOp, offsets: Range<u64>) {
        let mut held = self.held.lock();
        held.what = Some((op, offsets));
        held.nth = None;
    }

    /// Holds the `nth` operation from now on, counted from 1, and no other.
    ///
    /// It waits before it begins and, after its release, before its outcome is told.
    pub fn hold_nth(&self, op: IoOp, nth: u32) {
        let mut held = self.held.lock();
        held.what = Some((op, 0..u64::MAX));
        held.nth = Some(nth);
    }

    pub fn waiting(&self) -> usize {
        self.held.lock().waiting.len()
    }

    pub fn release(&self) {
        let waiting = {
            let mut held = self.held.lock();
            held.what = None;
            std::mem::take(&mut held.waiting)
        };
        waiting.into_iter().for_each(|waiter| waiter.complete(Ok(())));
    }

    /// Lets the first waiting operation go, and goes on holding.
    pub fn release_one(&self) {
        let first = self.held.lock().waiting.remove(0);
        first.complete(Ok(()));
    }

    fn pass<T: Send + 'static>(
        &self,
        op: IoOp,
        offset: u64,
        start: impl FnOnce(&dyn BlockDevice) -> IoFuture<T> + Send + 'static,
    ) -> IoFuture<T> {
        let mut held = self.held.lock();
        let is_held = held.what.as_ref().is_some_and(|(what, offsets)| *what == op && offsets.contains(&offset));
        if !is_held {
            return start(&*self.inner);
        }
        let twice = held.nth.is_some();
        if let Some(left) = &mut held.nth {
            *left = left.saturating_sub(1);
            match *left {
                0 => held.what = None,
                _ => return start(&*self.inner),
            }
        }
        let (completer, future) = IoFuture::pending();
        held.waiting.push(completer);
        let (inner, held) = (self.inner.clone(), self.held.clone());
        IoFuture::boxed(async move {
            future.await?;
            let outcome = start(&*inner).await;
            if twice {
                let (completer, future) = IoFuture::pending();
                held.lock().waiting.push(completer);
                future.await?;
            }
            outcome
        })
    }
}

impl BlockDevice for Gate {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.pass(IoOp::Read, offset, move |device| device.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.pass(IoOp::Write, offset, move |device| device.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.pass(IoOp::Flush, 0, |device| device.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.pass(IoOp::Discard, offset, move |device| device.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.pass(IoOp::WriteZeroes, offset, move |device| device.write_zeroes(offset, len, flags))
    }
}

/// Sectors of a chunk in these scenarios.
pub const CHUNK: usize = 8;

/// Returns a world of 4 KiB chunks, without background work unless the scenario asks for it.
pub fn shape(mode: WriteMode) -> Shape {
    Shape {
        design: crate::design::chosen(),
        chunk_bytes: (CHUNK * SECTOR_BYTES) as u32,
        slot_bytes: 512 << 10,
        flash_bytes: 8 << 20,
        origin_bytes: 16 << 20,
        mode,
        compression: Compression::Lz4,
        dedup: true,
        fp_index_percent: 100,
        ram_budget_bytes: 0,
        tuning: Tuning {
            dirty_low_percent: 60,
            dirty_high_percent: 65,
            commit_interval_ms: 3_600_000,
            prefetch_bytes_max: 0,
            ..Tuning::default()
        },
    }
}

/// Returns the same over WEUs, for scenarios that need no slot for each write.
pub fn over_weus(mut shape: Shape) -> Shape {
    if !crate::design::fills_weus(shape.design) {
        shape.design = DesignId::Nitro;
    }
    shape
}

/// Returns the same with a design that logs each mapping.
///
/// It is for scenarios that overwrite until the log is full.
pub fn that_logs(mut shape: Shape) -> Shape {
    if !crate::design::logs_each_mapping(shape.design) {
        shape.design = DesignId::Nitro;
    }
    shape
}

/// Returns the same without buckets.
///
/// It is for scenarios in which a write needs no eviction while the log is full.
pub fn without_buckets(mut shape: Shape) -> Shape {
    if !crate::design::fills_weus(shape.design) && !crate::design::is_slotted(shape.design) {
        shape.design = DesignId::Nitro;
    }
    shape
}

pub fn runtime(seed: u64) -> Arc<SimRuntime> {
    let options = SimOptions { schedule: Schedule::Timed, steps_max: 3_000_000, ..SimOptions::default() };
    SimRuntime::with_options(seed, options)
}

/// Begins the next life over the same devices.
pub fn attach(world: &World, seed: u64) -> Arc<SimRuntime> {
    let runtime = runtime(seed);
    world.flash.attach(&runtime);
    world.origin.attach(&runtime);
    runtime
}

pub async fn open_on(
    world: &World,
    flash: Arc<dyn BlockDevice>,
    origin: Arc<dyn BlockDevice>,
    rt: &Arc<SimRuntime>,
) -> Arc<Cache> {
    let cache = Cache::open(flash, origin, rt.clone(), world.shape.tuning.clone()).await;
    Arc::new(cache.unwrap_or_else(|error| panic!("open: {error}")))
}

/// Waits until `condition` holds, a simulated second at most.
pub async fn until(rt: &Arc<SimRuntime>, what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if condition() {
            return;
        }
        rt.delay(Duration::from_micros(10)).await.expect("a delay ends");
    }
    panic!("waited in vain until {what}");
}

/// Returns the output of `future`, if it is over within `limit`.
pub async fn within<T>(rt: &Arc<SimRuntime>, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut delay) = (pin!(future), rt.delay(limit));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        match pin!(&mut delay).poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls `future` until `condition` holds, and drops it then.
pub async fn drop_when(rt: &Arc<SimRuntime>, future: impl Future, mut condition: impl FnMut() -> bool) {
    let mut future = Box::pin(future);
    for _ in 0..100_000 {
        if within(rt, Duration::from_micros(10), &mut future).await.is_some() {
            panic!("the operation was over before it could be dropped");
        }
        if condition() {
            return;
        }
    }
    panic!("the operation never got where it was to be dropped");
}

/// Runs `future` in the background; the flag says when it is over.
pub fn spawn(rt: &Arc<SimRuntime>, future: impl Future<Output = ()> + Send + 'static) -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let flag = over.clone();
    rt.spawn(Box::pin(async move {
        future.await;
        flag.store(true, Release);
    }));
    over
}

pub fn stamps(content: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| content + 2 * i).collect()
}

/// Checks that these sectors read so.
///
/// Without damage no record fails its check; the count reveals a read that met a wrong record and
/// recovered.
pub async fn expect(cache: &Cache, at: usize, stamps: &[u32]) {
    expect_beside_damage(cache, at, stamps).await;
    assert_eq!(cache.status().counts.failed_checks, 0, "a record is damaged, and nothing damaged it");
}

/// Checks as [`expect`] does, in a scenario that damages something.
pub async fn expect_beside_damage(cache: &Cache, at: usize, stamps: &[u32]) {
    let bytes = read(cache, at, stamps.len()).await;
    for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        let found = identify(sector, [stamps[i], 0]);
        assert!(identify(sector, [stamps[i]]).is_some(), "sector {} reads as {found:?}, not as {}", at + i, stamps[i]);
    }
}

pub async fn try_write(cache: &Cache, at: usize, stamps: &[u32]) -> bool {
    let mut buf = IoBuf::new(stamps.len() * SECTOR_BYTES);
    for (&stamp, out) in stamps.iter().zip(buf.chunks_mut(SECTOR_BYTES)) {
        world::sector_bytes(stamp, out);
    }
    cache.write((at * SECTOR_BYTES) as u64, buf.freeze(), WriteFlags::default()).await.is_ok()
}

pub fn new_world(mode: WriteMode) -> (World, Arc<SimRuntime>) {
    let rt = runtime(1);
    let world = World::new(&rt, shape(mode));
    (world, rt)
}

/// Rots the record of chunk `lba` on flash.
pub fn rot(world: &World, cache: &Cache, lba: u64) {
    let slot = cache.slot_of(larder_core::Lba(lba)).expect("cached");
    let rt_layout = world.layout();
    let start = rt_layout.slots_offset + u64::from(slot.0) * u64::from(rt_layout.slot_bytes);
    world.flash.corrupt(start + 64, 64, &mut Rng::new(5));
}

pub trait LayoutOf {
    fn layout(&self) -> larder_format::Layout;
}

impl LayoutOf for World {
    fn layout(&self) -> larder_format::Layout {
        let bytes = self.flash.peek(0, larder_format::superblock::SUPERBLOCK_BYTES);
        larder_format::superblock::choose(&bytes, &bytes).expect("a superblock").superblock.layout
    }
}
