//! `future.rs`: completers and their waiters.

use crate::{Completer, IoErrorKind, IoFuture, explore::explore};
use shuttle::{future::block_on, thread};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

const SCHEDULES: u64 = 3000;

/// A future that was first polled with another waker is handed on.
pub fn a_result_reaches_the_last_waker() {
    explore(SCHEDULES, || {
        let (completer, mut future): (Completer<u32>, _) = IoFuture::pending();
        let other = thread::spawn(move || completer.complete(Ok(7)));
        if let Poll::Ready(result) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            assert_eq!(result.expect("completed"), 7);
        } else {
            let last = thread::spawn(move || block_on(future).expect("completed"));
            assert_eq!(last.join().expect("woken"), 7);
        }
        other.join().expect("completed");
    });
}

pub fn a_completer_that_is_dropped_answers() {
    explore(SCHEDULES, || {
        let (completer, future): (Completer<u32>, _) = IoFuture::pending();
        let other = thread::spawn(move || drop(completer));
        assert_eq!(block_on(future).expect_err("nobody completed it").kind, IoErrorKind::Cancelled);
        other.join().expect("dropped");
    });
}
