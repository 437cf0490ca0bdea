//! Looks at a device's standing, which block no other request while the device hangs.
//!
//! A look at a file waits as long as its file system hangs. So a look is an operation: a task waits
//! for it, and its age shows like the age of any operation. The standing that the last look found
//! is kept.
//!
//! Invariants: one look at a time. A caller hears of a look that began after its call, so two calls
//! during a look share the next one.
//!
//! It does not judge the standing.

use super::{Pending, Watch};
use crate::{IoFuture, IoOp, IoResult, Runtime, Standing};
use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

/// The time between two looks at a device that has no other reason for one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Watch {
    /// Returns the last look's [standing](Standing); sound before the first look.
    pub fn standing(&self) -> Standing {
        self.looks.lock().last
    }

    /// Looks at the device's standing. The look goes on if its future is dropped.
    ///
    /// # Errors
    /// Errors of the device; [`IoErrorKind::Cancelled`](crate::IoErrorKind::Cancelled) when the
    /// runtime ends.
    pub fn look(self: &Arc<Self>) -> IoFuture<Standing> {
        let (to, future) = IoFuture::pending();
        {
            let mut looks = self.looks.lock();
            if looks.is_looking {
                looks.next.retain(|to| !to.is_abandoned());
                looks.next.push(to);
                return future;
            }
            looks.is_looking = true;
            looks.present.push(to);
        }
        self.begin_look();
        future
    }

    /// Looks at the device's standing. Returns the last known one if that takes longer than
    /// `at_most`.
    ///
    /// # Errors
    /// As [`Watch::look`].
    pub async fn look_within(self: &Arc<Self>, at_most: Duration) -> IoResult<Standing> {
        let (mut look, mut time) = (self.look(), self.clock.delay(at_most));
        poll_fn(|cx| match (Pin::new(&mut look).poll(cx), Pin::new(&mut time).poll(cx)) {
            (Poll::Ready(standing), _) => Poll::Ready(standing),
            (Poll::Pending, Poll::Ready(_)) => Poll::Ready(Ok(self.standing())),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        })
        .await
    }

    /// Looks at the device's standing, unless a look is under way.
    pub fn look_in_background(self: &Arc<Self>) {
        if !self.looks.lock().is_looking {
            drop(self.look());
        }
    }

    fn begin_look(self: &Arc<Self>) {
        let pending = self.begin(IoOp::Standing);
        match self.device.upgrade().map(|device| device.look().try_ready()) {
            // Its last user has closed it.
            None => self.end_look(&Ok(self.standing()), pending),
            Some(Ok(result)) => self.end_look(&result, pending),
            Some(Err(future)) => {
                let watch = self.clone();
                self.clock.spawn(Box::pin(async move { watch.end_look(&future.await, pending) }));
            }
        }
    }

    fn end_look(self: &Arc<Self>, result: &IoResult<Standing>, pending: Pending) {
        pending.end(result);
        let (told, goes_on) = {
            let mut looks = self.looks.lock();
            if let Ok(standing) = result {
                looks.last = *standing;
            }
            let next = mem::take(&mut looks.next);
            looks.is_looking = !next.is_empty();
            (mem::replace(&mut looks.present, next), looks.is_looking)
        };
        told.into_iter().for_each(|to| to.complete(result.clone()));
        if goes_on {
            self.begin_look();
        }
    }
}

/// Looks at a device's standing once a second, until the watch is gone or `has_ended`.
pub async fn look_again_and_again(watch: Weak<Watch>, runtime: Arc<dyn Runtime>, has_ended: impl Fn() -> bool) {
    while let Some(watch) = watch.upgrade().filter(|_| !has_ended()) {
        watch.look_in_background();
        drop(watch);
        if runtime.delay(LOOK_EVERY).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockDevice, Completer, DeviceInfo, IoBuf, SharedBuf, WriteFlags, ZeroFlags, ram::RamDevice, sim::SimRuntime,
        watched::WatchedDevice,
    };
    use parking_lot::Mutex;

    /// A device whose looks end when the test says so.
    struct Hanging {
        ram: RamDevice,
        looks: Mutex<Vec<Completer<Standing>>>,
    }

    impl Hanging {
        fn answers(&self, standing: Standing) {
            let looks = mem::take(&mut *self.looks.lock());
            assert_eq!(looks.len(), 1, "one look at a time");
            looks.into_iter().for_each(|look| look.complete(Ok(standing)));
        }
    }

    impl BlockDevice for Hanging {
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
            self.ram.flush()
        }
        fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
            self.ram.discard(offset, len)
        }
        fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
            self.ram.write_zeroes(offset, len, flags)
        }
        fn look(&self) -> IoFuture<Standing> {
            let (to, future) = IoFuture::pending();
            self.looks.lock().push(to);
            future
        }
    }

    #[test]
    fn a_look_that_hangs_has_an_age_and_keeps_no_caller() {
        let runtime = SimRuntime::new(1);
        let device = Arc::new(Hanging { ram: RamDevice::new("ram", 1 << 20, 512), looks: Mutex::default() });
        let watched = WatchedDevice::new(device.clone(), runtime.clone());
        let watch = watched.watch();
        let wait = |millis: u64| drop(runtime.block_on(runtime.delay(Duration::from_millis(millis))));
        runtime.spawn(Box::pin(look_again_and_again(Arc::downgrade(&watch), runtime.clone(), || false)));
        wait(10_000);
        let oldest = watch.oldest().expect("a look is under way");
        assert_eq!((oldest.op, oldest.waiting), (IoOp::Standing, 1), "and no second one");
        assert!(oldest.age >= Duration::from_secs(9));
        assert_eq!(watch.standing(), Standing::Sound);
        let (first, second) = (watch.look(), watch.look());
        device.answers(Standing::Unlinked);
        wait(10);
        assert_eq!(watch.standing(), Standing::Unlinked);
        let first = first.try_ready().expect_err("that look may have been before the call");
        device.answers(Standing::Truncated(512));
        for told in [first, second] {
            assert_eq!(runtime.block_on(told).expect("a look"), Standing::Truncated(512));
        }
        let before = runtime.now();
        let known = runtime.block_on(async { watch.look_within(Duration::from_secs(2)).await });
        assert_eq!(known.expect("the last known one"), Standing::Truncated(512));
        assert!(runtime.now() - before >= Duration::from_secs(2), "the device hangs");
        device.answers(Standing::Sound);
        wait(10);
        assert_eq!(watch.standing(), Standing::Sound, "and the next look comes by itself");
    }
}
