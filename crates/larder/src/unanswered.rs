//! [`Unanswered`]: a device that knows how long its oldest request has been waiting.
//!
//! Role: the end of a server has a deadline, and names the device that does not answer.
//!
//! Invariants: a request counts from its call until its future is over or dropped. What is answered at once costs no
//! allocation. [`Unanswered::but_reads`] hands reads on as they are, for a device whose reads must stay cheap.
//!
//! What it does not do: end a request, or give up on one.

use larder_device::{
    BlockDevice, ChangeMark, DeviceInfo, Extent, IoBuf, IoFuture, IoOp, SharedBuf, Standing, WriteFlags, ZeroFlags,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// See the module.
pub struct Unanswered {
    inner: Arc<dyn BlockDevice>,
    waiting: Arc<Mutex<Waiting>>,
    reads_count: bool,
}

#[derive(Default)]
struct Waiting {
    next_id: u64,
    /// By number: the first has waited longest.
    requests: BTreeMap<u64, (IoOp, Instant)>,
}

/// A request, until this is dropped.
struct Counted {
    waiting: Arc<Mutex<Waiting>>,
    id: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.waiting.lock().requests.remove(&self.id);
    }
}

impl Unanswered {
    /// Watches all requests to `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Unanswered {
        Unanswered { inner, waiting: Arc::default(), reads_count: true }
    }

    /// Watches all requests to `inner` but reads.
    pub fn but_reads(inner: Arc<dyn BlockDevice>) -> Unanswered {
        Unanswered { reads_count: false, ..Unanswered::new(inner) }
    }

    /// The request that has waited longest, and for how long.
    pub fn oldest(&self) -> Option<(IoOp, Duration)> {
        let waiting = self.waiting.lock();
        waiting.requests.first_key_value().map(|(_, (op, since))| (*op, since.elapsed()))
    }

    fn watch<T: Send + 'static>(&self, op: IoOp, start: impl FnOnce(&dyn BlockDevice) -> IoFuture<T>) -> IoFuture<T> {
        // Counted before it begins: a device may block whoever calls it.
        let counted = {
            let mut waiting = self.waiting.lock();
            let id = waiting.next_id;
            waiting.next_id += 1;
            waiting.requests.insert(id, (op, Instant::now()));
            Counted { waiting: self.waiting.clone(), id }
        };
        match start(&*self.inner).try_ready() {
            Ok(result) => IoFuture::ready(result),
            Err(future) => IoFuture::boxed(async move {
                let _counted = counted;
                future.await
            }),
        }
    }
}

impl BlockDevice for Unanswered {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        match self.reads_count {
            true => self.watch(IoOp::Read, |inner| inner.read(offset, buf)),
            false => self.inner.read(offset, buf),
        }
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.watch(IoOp::Write, |inner| inner.write(offset, data, flags))
    }

    fn flush(&self) -> IoFuture<()> {
        self.watch(IoOp::Flush, |inner| inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.watch(IoOp::Discard, |inner| inner.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.watch(IoOp::WriteZeroes, |inner| inner.write_zeroes(offset, len, flags))
    }

    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.watch(IoOp::Extents, |inner| inner.extents(offset, len))
    }

    fn change_mark(&self) -> Option<ChangeMark> {
        self.inner.change_mark()
    }

    fn standing(&self) -> Standing {
        self.inner.standing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{Completer, driver::block_on, ram::RamDevice};

    /// Answers flushes when it is told to, and the rest as RAM does.
    struct Slow {
        ram: RamDevice,
        flushes: Mutex<Vec<Completer<()>>>,
    }

    impl BlockDevice for Slow {
        fn info(&self) -> &DeviceInfo {
            self.ram.info()
        }
        fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
            self.ram.read(offset, buf)
        }
        fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
            self.ram.write(offset, data, flags)
        }
        fn flush(&self) -> IoFuture<()> {
            let (completer, future) = IoFuture::pending();
            self.flushes.lock().push(completer);
            future
        }
        fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
            self.ram.discard(offset, len)
        }
        fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
            self.ram.write_zeroes(offset, len, flags)
        }
    }

    #[test]
    fn the_oldest_request_is_known_until_it_is_over_or_dropped() {
        let slow = Arc::new(Slow { ram: RamDevice::new("ram", 8192, 512), flushes: Mutex::default() });
        let watched = Unanswered::new(slow.clone());
        assert!(watched.oldest().is_none());
        block_on(watched.read(0, IoBuf::new(512))).expect("RAM");
        assert!(watched.oldest().is_none(), "what was answered waits no more");
        let (first, second) = (watched.flush(), watched.flush());
        let (op, waited) = watched.oldest().expect("two wait");
        assert_eq!(op, IoOp::Flush);
        slow.flushes.lock().remove(0).complete(Ok(()));
        block_on(first).expect("it is over");
        let (_, since) = watched.oldest().expect("one waits");
        assert!(since <= waited + Duration::from_secs(60), "it is the younger one's time");
        drop(second);
        assert!(watched.oldest().is_none(), "nobody waits for what was dropped");
    }
}
