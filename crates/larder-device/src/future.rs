//! [`IoFuture`]: the future of one device operation; a known result needs no allocation.
//!
//! Invariants: a future from [`IoFuture::pending`] resolves exactly once. A [`Completer`] dropped
//! unused resolves it with [`IoErrorKind::Cancelled`], so that no waiter waits for ever.
//!
//! It does not run anything. It leaves that to the holder of the [`Completer`].

use crate::{IoError, IoErrorKind, IoOp, IoResult, watched::Pending};
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

/// The result, now or later, of a device operation. `Send`, `'static`, and `Unpin`.
pub struct IoFuture<T>(FutureState<T>);

enum FutureState<T> {
    Ready(Option<IoResult<T>>),
    Pending(Arc<Mutex<Slot<T>>>),
    /// As `Pending`, of an operation that a watch counts until then.
    Noted(Arc<Mutex<Slot<T>>>, Option<Pending>),
    Boxed(Pin<Box<dyn Future<Output = IoResult<T>> + Send>>),
}

struct Slot<T> {
    result: Option<IoResult<T>>,
    waker: Option<Waker>,
}

/// The other end of [`IoFuture::pending`]: delivers the result, from any thread.
pub struct Completer<T>(Option<Arc<Mutex<Slot<T>>>>);

impl<T> IoFuture<T> {
    /// Returns a future that already has its result.
    pub fn ready(result: IoResult<T>) -> Self {
        IoFuture(FutureState::Ready(Some(result)))
    }

    /// Returns a future that an `async` block computes.
    pub fn boxed(future: impl Future<Output = IoResult<T>> + Send + 'static) -> Self {
        IoFuture(FutureState::Boxed(Box::pin(future)))
    }

    /// Returns a future that resolves when its completer delivers the result.
    pub fn pending() -> (Completer<T>, Self) {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        (Completer(Some(slot.clone())), IoFuture(FutureState::Pending(slot)))
    }

    /// Returns the result if it was known at the future's making; else the future itself.
    pub fn try_ready(self) -> Result<IoResult<T>, Self> {
        match self.0 {
            FutureState::Ready(Some(result)) => Ok(result),
            other => Err(IoFuture(other)),
        }
    }
}

impl<T> Completer<T> {
    /// Delivers the result and wakes the waiter.
    pub fn complete(mut self, result: IoResult<T>) {
        if let Some(slot) = self.0.take() {
            deliver(&slot, result);
        }
    }

    /// Returns whether the future was dropped, so that the result has no waiter.
    pub fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|slot| Arc::strong_count(slot) == 1)
    }
}

fn deliver<T>(slot: &Mutex<Slot<T>>, result: IoResult<T>) {
    let waker = {
        let mut slot = slot.lock();
        slot.result = Some(result);
        slot.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            deliver(&slot, Err(IoError::new(IoErrorKind::Cancelled, IoOp::Flush, 0, 0)));
        }
    }
}

// Nothing in an `IoFuture` is structurally pinned: the boxed future is pinned by its box.
impl<T> Unpin for IoFuture<T> {}

impl<T> Future for IoFuture<T> {
    type Output = IoResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<T>> {
        match &mut self.0 {
            FutureState::Ready(result) => Poll::Ready(result.take().expect("an IoFuture was polled after it was over")),
            FutureState::Boxed(future) => future.as_mut().poll(cx),
            FutureState::Pending(slot) => poll_slot(slot, cx),
            FutureState::Noted(slot, pending) => {
                let result = ready!(poll_slot(slot, cx));
                if let Some(pending) = pending.take() {
                    pending.end(&result);
                }
                Poll::Ready(result)
            }
        }
    }
}

fn poll_slot<T>(slot: &Mutex<Slot<T>>, cx: &Context<'_>) -> Poll<IoResult<T>> {
    let mut slot = slot.lock();
    if let Some(result) = slot.result.take() {
        return Poll::Ready(result);
    }
    match &mut slot.waker {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        waker => *waker = Some(cx.waker().clone()),
    }
    Poll::Pending
}

impl<T: Send + 'static> IoFuture<T> {
    /// Ends `pending` when the result arrives. It needs no allocation if a completer delivers that.
    pub(crate) fn noted_by(self, pending: Pending) -> IoFuture<T> {
        match self.0 {
            FutureState::Pending(slot) => IoFuture(FutureState::Noted(slot, Some(pending))),
            inner => IoFuture::boxed(async move {
                let result = IoFuture(inner).await;
                pending.end(&result);
                result
            }),
        }
    }

    /// Maps the result when it arrives.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(IoResult<T>) -> IoResult<U> + Send + 'static) -> IoFuture<U> {
        match self.try_ready() {
            Ok(result) => IoFuture::ready(f(result)),
            Err(future) => IoFuture::boxed(async move { f(future.await) }),
        }
    }
}
