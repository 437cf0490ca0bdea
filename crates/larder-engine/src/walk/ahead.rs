//! Futures that run at the same time and end in any order, while their results are taken in order.
//!
//! It leaves the bound on their number to the caller.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// The futures, oldest first.
pub struct InOrder<'a, T> {
    queue: VecDeque<QueuedFuture<'a, T>>,
}

enum QueuedFuture<'a, T> {
    Runs(Pin<Box<dyn Future<Output = T> + 'a>>),
    Over(T),
}

impl<'a, T: 'a> InOrder<'a, T> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        InOrder { queue: VecDeque::new() }
    }

    /// Returns the number of futures that were added and not taken.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a future; it runs from the next [`InOrder::next`] on.
    pub fn push(&mut self, future: impl Future<Output = T> + 'a) {
        self.queue.push_back(QueuedFuture::Runs(Box::pin(future)));
    }

    /// Returns the result of the oldest future, when it is over; the others go on meanwhile.
    /// Returns `None` if there is no future.
    pub async fn next(&mut self) -> Option<T> {
        poll_fn(|context| {
            for entry in &mut self.queue {
                if let QueuedFuture::Runs(future) = entry
                    && let Poll::Ready(result) = future.as_mut().poll(context)
                {
                    *entry = QueuedFuture::Over(result);
                }
            }
            match self.queue.pop_front() {
                None => Poll::Ready(None),
                Some(QueuedFuture::Over(result)) => Poll::Ready(Some(result)),
                Some(runs) => {
                    self.queue.push_front(runs);
                    Poll::Pending
                }
            }
        })
        .await
    }
}
