//! `threads.rs`: tasks, delays and jobs of a thread runtime, beside its end.

use crate::{
    IoErrorKind, IoFuture, Runtime,
    driver::block_on,
    explore::explore,
    runtime::compute,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use shuttle::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};
use std::{sync::Arc, time::Duration};

const SCHEDULES: u64 = 1000;

fn runtime(workers: usize) -> Arc<ThreadRuntime> {
    ThreadRuntime::new(ThreadRuntimeOptions { workers, name: "explored".into() })
}

pub fn jobs_run_once_and_hand_back_results() {
    explore(SCHEDULES, || {
        let runtime = runtime(2);
        let other = {
            let runtime = runtime.clone();
            thread::spawn(move || block_on(compute(&*runtime, || 1)).expect("computed"))
        };
        let futures: Vec<IoFuture<u32>> = (0..3).map(|number| compute(&*runtime, move || number * 10)).collect();
        let sum: u32 = futures.into_iter().map(|future| block_on(future).expect("computed")).sum();
        assert_eq!(sum + other.join().expect("computed"), 31);
        runtime.shutdown();
    });
}

/// A job requested while the runtime ends runs once, there or here.
pub fn jobs_beside_a_shutdown_run_once() {
    explore(SCHEDULES, || {
        let runtime = runtime(2);
        let ran = Arc::new(AtomicU32::new(0));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let (runtime, ran) = (runtime.clone(), ran.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let ran = ran.clone();
                        runtime.run_job(Box::new(move || {
                            ran.fetch_add(1, SeqCst);
                        }));
                    }
                })
            })
            .collect();
        runtime.shutdown();
        callers.into_iter().for_each(|caller| caller.join().expect("asked"));
        assert_eq!(ran.load(SeqCst), 4);
    });
}

/// A value that counts its drop.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A task spawned while the runtime ends is polled or not, and dropped once; no thread waits for
/// ever.
pub fn tasks_beside_a_shutdown_run_or_are_dropped() {
    explore(SCHEDULES, || {
        let runtime = runtime(0);
        let dropped = Arc::new(AtomicU32::new(0));
        let (wake, woken) = IoFuture::<()>::pending();
        let spawner = {
            let (runtime, dropped) = (runtime.clone(), dropped.clone());
            thread::spawn(move || {
                let waits = Dropped(dropped.clone());
                runtime.spawn(Box::pin(async move {
                    let _waits = waits;
                    let _ = woken.await;
                }));
                let ready = Dropped(dropped.clone());
                runtime.spawn(Box::pin(async move { drop(ready) }));
                let never = Dropped(dropped);
                runtime.spawn(Box::pin(async move {
                    let _never = never;
                    std::future::pending::<()>().await;
                }));
            })
        };
        let waker = thread::spawn(move || wake.complete(Ok(())));
        runtime.shutdown();
        spawner.join().expect("spawned");
        waker.join().expect("woken");
        assert_eq!(dropped.load(SeqCst), 3);
    });
}

/// A delay ends by time or by the runtime's end.
pub fn delays_beside_a_shutdown_end() {
    explore(SCHEDULES, || {
        let runtime = runtime(0);
        let sleeper = {
            let runtime = runtime.clone();
            thread::spawn(move || {
                for millis in [1, 3_600_000] {
                    let result = block_on(runtime.delay(Duration::from_millis(millis)));
                    assert!(result.is_ok_and(|()| true) || runtime.now() < Duration::from_secs(7200));
                }
            })
        };
        let cancelled = runtime.delay(Duration::MAX);
        assert_eq!(block_on(cancelled).expect_err("out of range").kind, IoErrorKind::Unsupported);
        runtime.shutdown();
        sleeper.join().expect("ended");
    });
}

/// The driver's thread sleeps, without an end, when a delay is requested.
pub fn delays_asked_for_elsewhere_end() {
    explore(SCHEDULES, || {
        let runtime = runtime(0);
        let other = {
            let runtime = runtime.clone();
            thread::spawn(move || block_on(runtime.delay(Duration::from_millis(2))).expect("not cancelled"))
        };
        for millis in [3, 1] {
            block_on(runtime.delay(Duration::from_millis(millis))).expect("not cancelled");
        }
        other.join().expect("ended");
        runtime.shutdown();
    });
}

/// The hint is right when everything is quiet: both workers wait, or none is left.
pub fn a_worker_that_waits_is_known() {
    explore(SCHEDULES, || {
        let runtime = runtime(1);
        for _ in 0..2 {
            // A worker that never reports its wait makes this a schedule without an end.
            while !runtime.has_idle_worker() {
                thread::yield_now();
            }
            block_on(compute(&*runtime, || ())).expect("computed");
        }
        runtime.shutdown();
    });
}
