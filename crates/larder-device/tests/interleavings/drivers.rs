//! `driver/`: a sleeping thread wakes, at any time and by any waker.

use crate::{
    IoBuf, IoFuture,
    driver::{block_on, recv, sleep, spawn_local},
    explore::explore,
};
use shuttle::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};
use std::{
    cell::{Cell, RefCell},
    io::Write,
    os::{fd::AsRawFd, unix::net::UnixStream},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

const SCHEDULES: u64 = 2000;

/// Other threads complete in any order while the driver falls asleep, sleeps, or wakes up.
pub fn a_wake_up_ends_the_drivers_sleep() {
    explore(SCHEDULES, || {
        let (completers, futures): (Vec<_>, Vec<_>) = (0..3).map(|_| IoFuture::<u32>::pending()).unzip();
        let threads: Vec<_> = completers
            .into_iter()
            .enumerate()
            .map(|(i, completer)| thread::spawn(move || completer.complete(Ok(i as u32))))
            .collect();
        let sum = block_on(async {
            let mut sum = 0;
            for future in futures {
                sum += future.await.expect("completed");
            }
            sum
        });
        assert_eq!(sum, 3);
        threads.into_iter().for_each(|thread| thread.join().expect("completed"));
    });
}

/// Two drivers, each with a local task, hand a number to and fro.
pub fn tasks_wake_each_other_over_threads() {
    explore(SCHEDULES, || {
        let (there, wait_there) = IoFuture::<u32>::pending();
        let (back, wait_back) = IoFuture::<u32>::pending();
        let other = thread::spawn(move || {
            block_on(async move {
                let (done, wait) = IoFuture::<()>::pending();
                spawn_local(async move {
                    back.complete(Ok(wait_there.await.expect("sent") + 1));
                    done.complete(Ok(()));
                });
                wait.await.expect("done");
            });
        });
        let answer = block_on(async move {
            spawn_local(async move { there.complete(Ok(41)) });
            wait_back.await.expect("answered")
        });
        assert_eq!(answer, 42);
        other.join().expect("answered");
    });
}

/// A local task outlives one `block_on`, is woken in between, and goes on in the next.
pub fn a_driver_is_left_and_entered_again() {
    explore(SCHEDULES, || {
        let (completer, future) = IoFuture::<u32>::pending();
        let seen = Rc::new(Cell::new(0));
        let note = seen.clone();
        block_on(async move {
            spawn_local(async move { note.set(future.await.expect("completed")) });
        });
        let (nested, wait_nested) = IoFuture::<()>::pending();
        let other = thread::spawn(move || {
            completer.complete(Ok(5));
            nested.complete(Ok(()));
        });
        block_on(async { block_on(wait_nested).expect("completed") });
        block_on(async {
            while seen.get() == 0 {
                sleep(Duration::from_millis(1)).await.expect("it ends");
            }
        });
        assert_eq!(seen.get(), 5);
        other.join().expect("completed");
    });
}

/// Its bytes and other threads alike wake a thread that waits for a socket.
pub fn bytes_and_wake_ups_both_come() {
    explore(SCHEDULES, || {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (completer, future) = IoFuture::<u32>::pending();
        let received = Arc::new(AtomicU32::new(0));
        let writer = thread::spawn(move || {
            thread::yield_now();
            ours.write_all(b"abc").expect("written");
            ours
        });
        let waker = thread::spawn(move || completer.complete(Ok(1)));
        let note = received.clone();
        block_on(async move {
            let (done, wait) = IoFuture::<()>::pending();
            spawn_local(async move {
                let (_, count) = recv(theirs.as_raw_fd(), IoBuf::new(8)).await.expect("received");
                note.store(count as u32, SeqCst);
                done.complete(Ok(()));
            });
            future.await.expect("completed");
            wait.await.expect("received");
        });
        assert_eq!(received.load(SeqCst), 3);
        writer.join().expect("written");
        waker.join().expect("completed");
    });
}

/// Timers of two threads, and a wake-up between them.
pub fn sleeps_end_in_order() {
    explore(SCHEDULES, || {
        let (completer, future) = IoFuture::<()>::pending();
        let other = thread::spawn(move || {
            block_on(async { sleep(Duration::from_millis(5)).await }).expect("it ends");
            completer.complete(Ok(()));
        });
        let order = Rc::new(RefCell::new(Vec::new()));
        let (ended, both_ended) = IoFuture::<()>::pending();
        let ended = Rc::new(Cell::new(Some(ended)));
        block_on(async {
            for millis in [1000, 2] {
                let (order, ended) = (order.clone(), ended.clone());
                spawn_local(async move {
                    sleep(Duration::from_millis(millis)).await.expect("it ends");
                    order.borrow_mut().push(millis);
                    if order.borrow().len() == 2 {
                        drop(ended.take());
                    }
                });
            }
            // Its end tells this.
            let _ = both_ended.await;
            future.await.expect("completed");
        });
        assert_eq!(*order.borrow(), [2, 1000]);
        other.join().expect("completed");
    });
}
