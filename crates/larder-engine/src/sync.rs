//! Waiting inside the engine. [`Notify`] is for conditions, and [`Turns`] for work that must not
//! run twice at once. [`Counted`] counts the tasks at some work, and [`join_all`] runs operations
//! side by side.
//!
//! Invariants: a [`Notified`] made before a condition was checked never misses a change made after
//! the check.
//!
//! It does not block a thread.

use crate::tickets::{Ticket, Tickets};
use larder_core::Lba;
use larder_device::{IoFuture, IoResult};
use parking_lot::Mutex;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll, Waker},
};

/// A condition that changes, and the tasks that wait for a change.
#[derive(Default)]
pub struct Notify {
    /// Changes so far. They are counted under the lock and read without it, so that a listener
    /// disturbs no task.
    epoch: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

/// A wait for the first change after its making.
pub struct Notified<'a> {
    notify: &'a Notify,
    epoch: u64,
}

impl Notify {
    /// Returns a listener for the next change. Make it, check the condition, then wait.
    pub fn listen(&self) -> Notified<'_> {
        Notified { notify: self, epoch: self.epoch.load(Acquire) }
    }

    /// Tells every listener.
    pub fn notify(&self) {
        let wakers = {
            let mut wakers = self.wakers.lock();
            self.epoch.fetch_add(1, AcqRel);
            std::mem::take(&mut *wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut wakers = self.notify.wakers.lock();
        if self.notify.epoch.load(Acquire) != self.epoch {
            return Poll::Ready(());
        }
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Runs one turn at a time, in the order of arrival. A turn that ends wakes the next one alone.
#[derive(Default)]
pub struct Turns(Arc<Tickets>);

impl Turns {
    /// Asks for a turn, which ends when the ticket is dropped.
    pub fn ask(&self) -> Ticket {
        self.0.ask(Lba(0), 1)
    }
}

/// Counts work while it is under way, even if its future is dropped.
pub struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    /// Counts one more, until this is dropped.
    pub fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, AcqRel);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// Waits for the first of two changes, or of other futures.
pub async fn either(a: impl Future, b: impl Future) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        let (a, b) = (a.as_mut().poll(cx), b.as_mut().poll(cx));
        if a.is_ready() || b.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs operations side by side. Returns their results in order.
pub async fn join_all<T>(futures: Vec<IoFuture<T>>) -> Vec<IoResult<T>> {
    let mut pending: Vec<Result<IoResult<T>, IoFuture<T>>> = futures.into_iter().map(IoFuture::try_ready).collect();
    poll_fn(|cx| {
        let mut all = true;
        for slot in &mut pending {
            if let Err(future) = slot {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(result) => *slot = Ok(result),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(Result::ok).collect()
}
/// Lets the other tasks of this thread run.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
