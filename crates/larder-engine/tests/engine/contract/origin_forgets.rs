//! Changes of the origin under way, in write-through, write-around, and past a failed flash. A
//! write acknowledged after a failed flush is covered by the next one. No read goes back in time
//! beside a write.
//!
//! Invariants: as in `mod.rs`.

use super::gate::*;
use crate::{
    fence::MemoryFence,
    world::{World, identify, read, write, zero},
};
use larder_core::{Lba, types::SECTOR_BYTES};
use larder_device::{
    BlockDevice, Completer, DeviceInfo, IoBuf, IoErrorKind, IoFuture, IoOp, Runtime, SharedBuf, WriteFlags, ZeroFlags,
    faulty::{FOR_EVER, Fault},
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, WriteMode};
use larder_format::DesignId;
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

/// The modes; in write-back the flash has failed.
const MODES: [WriteMode; 3] = [WriteMode::Through, WriteMode::Around, WriteMode::Back];
const X: usize = 20;

fn fenced_world(mode: WriteMode, prefetch_bytes_max: usize) -> (World, Arc<SimRuntime>) {
    let (mut world, rt) = new_world(mode);
    world.shape.tuning.fence = MemoryFence::new().keeper();
    world.shape.tuning.prefetch_bytes_max = prefetch_bytes_max;
    (world, rt)
}

async fn open(world: &World, origin: Arc<dyn BlockDevice>, rt: &Arc<SimRuntime>) -> Arc<Cache> {
    let cache = open_on(world, world.flash.clone(), origin, rt).await;
    if world.shape.mode == WriteMode::Back {
        for op in [IoOp::Write, IoOp::Flush] {
            world.flash.plan().add(Fault { op: Some(op), range: None, kind: IoErrorKind::Io, times: FOR_EVER });
        }
        write(&cache, 100 * CHUNK, &stamps(1, CHUNK), true).await;
        assert!(cache.status().degraded);
    }
    cache
}

/// A flush fails and the origin loses a write that took effect but is not acknowledged yet.
///
/// The client that hears of it flushes again, and then the write is there.
#[test]
fn contract_what_is_acknowledged_after_a_flush_failed_is_there_for_the_next() {
    let mut forgotten = 0;
    for (mode, seed) in MODES.into_iter().flat_map(|mode| (0..12).map(move |seed| (mode, seed))) {
        let (world, first) = fenced_world(mode, 0);
        first.kill();
        let rt = runtime(seed + 50);
        world.flash.attach(&rt);
        world.origin.attach(&rt);
        let origin = Gate::new(&world.origin);
        rt.block_on(async {
            let cache = open(&world, origin.clone(), &rt).await;
            write(&cache, 200 * CHUNK, &stamps(5, CHUNK), false).await;
            origin.hold_nth(IoOp::Write, 1);
            let writing = cache.clone();
            let written = spawn(&rt, async move { write(&writing, X * CHUNK, &stamps(1001, CHUNK), false).await });
            until(&rt, "the write comes to the origin", || origin.waiting() > 0).await;
            origin.release();
            until(&rt, "it took effect", || origin.waiting() > 0).await;
            world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            cache.flush().await.expect_err("the flush that fails");
            assert!(!written.load(Acquire));
            origin.release();
            until(&rt, "it is acknowledged", || written.load(Acquire)).await;
            cache.flush().await.expect("the next flush");
        });
        forgotten += world.origin.forgotten();
        rt.crash();
        let bytes = world.origin.peek((X * CHUNK * SECTOR_BYTES) as u64, SECTOR_BYTES);
        assert!(identify(&bytes, [1001]).is_some(), "{mode:?}, seed {seed}: it was flushed");
    }
    assert!(forgotten > 3, "{forgotten}");
}

/// One operation that is held.
struct Step {
    before: Option<Completer<()>>,
    after: Option<Completer<()>>,
}

/// A device whose reads and writes over one offset wait twice each, once it is armed.
///
/// They wait before they begin, and before their outcome is told.
struct Steps {
    inner: Arc<SimDevice>,
    at: Mutex<Option<u64>>,
    steps: Mutex<Vec<Step>>,
}

impl Steps {
    fn go<T: Send + 'static>(
        &self,
        offset: u64,
        len: u64,
        start: impl FnOnce(&SimDevice) -> IoFuture<T> + Send + 'static,
    ) -> IoFuture<T> {
        if !self.at.lock().is_some_and(|at| (offset..offset + len).contains(&at)) {
            return start(&self.inner);
        }
        let ((before, may_begin), (after, may_be_told)) = (IoFuture::pending(), IoFuture::pending());
        self.steps.lock().push(Step { before: Some(before), after: Some(after) });
        let inner = self.inner.clone();
        IoFuture::boxed(async move {
            may_begin.await?;
            let outcome = start(&inner).await;
            may_be_told.await?;
            outcome
        })
    }

    fn count(&self) -> usize {
        self.steps.lock().len()
    }

    /// Lets a step begin, and end.
    async fn begin(&self, step: usize, rt: &Arc<SimRuntime>) {
        let completer = self.steps.lock()[step].before.take();
        completer.expect("it waits").complete(Ok(()));
        rt.delay(Duration::from_millis(20)).await.expect("a delay ends");
    }

    /// Tells its outcome.
    async fn tell(&self, step: usize, rt: &Arc<SimRuntime>) {
        let completer = self.steps.lock()[step].after.take();
        completer.expect("it waits").complete(Ok(()));
        rt.delay(Duration::from_millis(20)).await.expect("a delay ends");
    }
}

impl BlockDevice for Steps {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.go(offset, buf.len() as u64, move |device| device.read(offset, buf))
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.go(offset, data.len() as u64, move |device| device.write(offset, data, flags))
    }
    fn flush(&self) -> IoFuture<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.inner.discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.inner.write_zeroes(offset, len, flags)
    }
}

/// A read shows a write that is not over: the next read must not show older data read ahead.
#[test]
fn contract_reads_beside_a_write_do_not_go_back_in_time() {
    // In the order of their coming.
    const WRITE: usize = 0;
    const FIRST: usize = 1;
    const AHEAD: usize = 2;
    for mode in MODES {
        let (world, rt) = fenced_world(mode, 1 << 20);
        rt.block_on(async {
            let (at, steps) = (Mutex::default(), Mutex::default());
            let origin = Arc::new(Steps { inner: world.origin.clone(), at, steps });
            let cache = open(&world, origin.clone(), &rt).await;
            *origin.at.lock() = Some((X * CHUNK * SECTOR_BYTES) as u64);
            let writing = cache.clone();
            let written = spawn(&rt, async move { write(&writing, X * CHUNK, &stamps(1001, CHUNK), false).await });
            until(&rt, "the write comes", || origin.count() > WRITE).await;
            let (reading, first) = (cache.clone(), Arc::new(Mutex::new(None)));
            let to = first.clone();
            let over = spawn(&rt, async move { *to.lock() = Some(read(&reading, X * CHUNK, CHUNK).await) });
            until(&rt, "a read comes", || origin.count() > FIRST).await;
            // A stream comes near.
            for chunk in (0..X).take_while(|_| origin.count() <= AHEAD) {
                read(&cache, chunk * CHUNK, CHUNK).await;
                rt.delay(Duration::from_millis(1)).await.expect("a delay ends");
            }
            assert_eq!(origin.count(), AHEAD + 1, "{mode:?}: it is read ahead");
            for step in [AHEAD, WRITE, FIRST] {
                origin.begin(step, &rt).await;
            }
            origin.tell(FIRST, &rt).await;
            until(&rt, "the first read is over", || over.load(Acquire)).await;
            origin.tell(AHEAD, &rt).await;
            *origin.at.lock() = None;
            assert!(!written.load(Acquire));
            let second = read(&cache, X * CHUNK, 1).await;
            origin.tell(WRITE, &rt).await;
            until(&rt, "the write is over", || written.load(Acquire)).await;
            let first = first.lock().take().expect("read");
            let seen = [&first[..SECTOR_BYTES], &second[..]].map(|sector| identify(sector, [1001, 0]));
            assert_eq!(seen, [Some(1001); 2], "{mode:?}");
        });
        rt.kill();
    }
}

/// The design drops an address whose copy waits for a flush of the origin, and the flush fails.
///
/// No checkpoint may keep the copy, which has no address any more.
#[test]
fn contract_copy_of_what_was_forgotten_does_not_come_back_where_the_design_let_go_of_it() {
    // A power loss takes the lost data in some of the seeds.
    for seed in 0..24 {
        let rt = runtime(seed);
        let mut shape = shape(WriteMode::Through);
        shape.design = DesignId::DLru;
        shape.flash_bytes = 10 << 20;
        shape.origin_bytes = 64 << 20;
        let world = World::new(&rt, shape);
        let same = stamps(5001, CHUNK);
        let last = rt.block_on(async {
            let cache = world.open(&rt).await;
            let is_cached = |chunk: usize| cache.slot_of(Lba(chunk as u64)).is_some();
            // One content, so that addresses become too many.
            let mut next = 0;
            while next == 0 || is_cached(0) {
                write(&cache, next * CHUNK, &same, false).await;
                cache.wait_for_insertions().await;
                if next % 100 == 99 {
                    cache.flush().await.unwrap();
                    cache.checkpoint().await.unwrap();
                }
                next += 1;
            }
            cache.flush().await.unwrap();
            cache.checkpoint().await.unwrap();
            write(&cache, next * CHUNK, &stamps(1001, CHUNK), false).await;
            cache.wait_for_insertions().await;
            assert!(is_cached(next));
            for chunk in (0..next).filter(|&chunk| is_cached(chunk)) {
                read(&cache, chunk * CHUNK, CHUNK).await;
            }
            write(&cache, (next + 1) * CHUNK, &same, false).await;
            cache.wait_for_insertions().await;
            assert!(!is_cached(next), "the design was to let go of it");
            rt.delay(Duration::from_secs(1)).await.unwrap();
            world.origin.fail_next(IoOp::Flush, IoErrorKind::Io);
            cache.flush().await.expect_err("the flush that fails");
            // Room for the addresses of the restart.
            zero(&cache, 0, 200 * CHUNK, ZeroFlags::default()).await;
            cache.checkpoint().await.unwrap();
            next
        });
        rt.crash();
        let rt = attach(&world, seed + 100);
        rt.block_on(async {
            let cache = world.open(&rt).await;
            let found = read(&cache, last * CHUNK, 1).await;
            let origin = world.origin.peek((last * CHUNK * SECTOR_BYTES) as u64, SECTOR_BYTES);
            assert!(
                found[..] == origin[..],
                "seed {seed}: what is read is not what the origin has, and nothing is dirty"
            );
        });
        rt.kill();
    }
}
