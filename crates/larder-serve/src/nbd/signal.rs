//! A signal between two tasks of one thread, and turns among several.
//!
//! Invariants: a signal has one waiter at a time. A signal before the wait is kept; several before
//! the wait count as one. One task at a time has the turn, and a task that waits for a turn waits
//! to the end.
//!
//! It does not cross threads.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// A signal, as the module describes it.
#[derive(Default)]
pub struct Signal {
    set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// Wakes the waiter, now or when it waits.
    pub fn notify(&self) {
        self.set.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the signal, and takes it.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            if self.set.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Turns of the tasks of one thread, in the order of their requests.
#[derive(Default)]
pub struct SignalTurns {
    is_taken: Cell<bool>,
    waiting: RefCell<VecDeque<Rc<Signal>>>,
}

/// A turn; its drop passes it on.
pub struct Turn<'a>(&'a SignalTurns);

impl SignalTurns {
    /// Waits for a turn.
    pub async fn take(&self) -> Turn<'_> {
        if self.is_taken.replace(true) {
            let mine = Rc::new(Signal::default());
            self.waiting.borrow_mut().push_back(mine.clone());
            mine.wait().await;
        }
        Turn(self)
    }

    /// Returns whether a task has the turn.
    pub fn is_taken(&self) -> bool {
        self.is_taken.get()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = self.0.waiting.borrow_mut().pop_front();
        match next {
            Some(next) => next.notify(),
            None => self.0.is_taken.set(false),
        }
    }
}
