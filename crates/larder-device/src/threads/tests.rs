//! Tests of the thread runtime: order of delays, back-pressure of jobs, panics, and the end.

use super::*;
use crate::runtime::compute;
use std::sync::{atomic::AtomicBool, mpsc};

fn runtime(workers: usize) -> Arc<ThreadRuntime> {
    ThreadRuntime::new(ThreadRuntimeOptions { workers, name: "test".into() })
}

#[test]
fn delays_end_in_the_order_of_their_deadlines() {
    let runtime = runtime(0);
    let (sender, receiver) = mpsc::channel();
    for millis in [12u64, 4, 8, 4, 0] {
        let (sender, delay) = (sender.clone(), runtime.delay(Duration::from_millis(millis)));
        runtime.spawn(Box::pin(async move {
            delay.await.expect("not cancelled");
            let _ = sender.send(millis);
        }));
    }
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 4, 4, 8, 12]);
}

#[test]
fn delays_take_their_time_from_any_thread() {
    let runtime = runtime(0);
    let before = runtime.now();
    driver::block_on(runtime.delay(Duration::from_millis(15))).expect("not cancelled");
    let after = runtime.now();
    assert!(after - before >= Duration::from_millis(15), "{:?}", after - before);
    assert!(driver::block_on(runtime.delay(Duration::MAX)).is_err());
}

#[test]
fn jobs_run_on_workers_and_hand_back_results() {
    let runtime = runtime(3);
    let futures: Vec<_> = (0..1000u64).map(|number| compute(&*runtime, move || number * number)).collect();
    let sum: u64 = futures.into_iter().map(|future| driver::block_on(future).expect("computed")).sum();
    assert_eq!(sum, (0..1000).map(|number| number * number).sum());
}

#[test]
fn a_queue_that_is_full_makes_callers_work() {
    let runtime = runtime(1);
    let (go, wait) = mpsc::channel::<()>();
    let held = compute(&*runtime, move || wait.recv().is_ok());
    let futures: Vec<_> = (0..JOBS_QUEUED_MAX + 10).map(|_| compute(&*runtime, || thread::current().id())).collect();
    go.send(()).expect("the worker waits");
    let own = futures.into_iter().map(driver::block_on);
    let own = own.filter(|id| id.as_ref().is_ok_and(|&id| id == thread::current().id())).count();
    assert!((9..=11).contains(&own), "{own} jobs ran here");
    assert!(driver::block_on(held).expect("computed"));
}

#[test]
fn idle_workers_are_known() {
    let none = runtime(0);
    assert!(!none.has_idle_worker());
    let me = thread::current().id();
    assert_eq!(driver::block_on(compute(&*none, || thread::current().id())).expect("computed"), me);

    let one = runtime(1);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !one.has_idle_worker() {
        assert!(Instant::now() < deadline, "the worker never waits");
        thread::yield_now();
    }
    let (go, wait) = mpsc::channel::<()>();
    let held = compute(&*one, move || wait.recv().is_ok());
    assert!(!one.has_idle_worker());
    go.send(()).expect("the worker waits");
    assert!(driver::block_on(held).expect("computed"));
}

#[test]
fn a_panic_in_a_task_or_a_job_harms_no_other() {
    let runtime = runtime(1);
    runtime.spawn(Box::pin(async { panic!("on purpose") }));
    let job = compute(&*runtime, || panic!("on purpose"));
    assert_eq!(driver::block_on::<IoFuture<()>>(job).expect_err("it panicked").kind, IoErrorKind::Cancelled);
    let (sender, receiver) = mpsc::channel();
    runtime.spawn(Box::pin(async move {
        let _ = sender.send(5);
    }));
    assert_eq!(receiver.recv(), Ok(5));
    assert_eq!(driver::block_on(compute(&*runtime, || 6)).expect("computed"), 6);
}

#[test]
fn shutdown_drops_tasks_and_cancels_delays() {
    struct Tell(Arc<AtomicBool>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let runtime = runtime(2);
    let dropped = Arc::new(AtomicBool::new(false));
    let (tell, endless) = (Tell(dropped.clone()), runtime.delay(Duration::from_secs(3600)));
    runtime.spawn(Box::pin(async move {
        let _tell = tell;
        let _ = endless.await;
        std::future::pending::<()>().await;
    }));
    let delay = runtime.delay(Duration::from_secs(3600));
    runtime.shutdown();
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(driver::block_on(delay).expect_err("cancelled").kind, IoErrorKind::Cancelled);
    // After the end: dropped, cancelled, and run here.
    let dropped = Arc::new(AtomicBool::new(false));
    let tell = Tell(dropped.clone());
    runtime.spawn(Box::pin(async move {
        let _tell = tell;
        std::future::pending::<()>().await;
    }));
    assert!(dropped.load(Ordering::SeqCst));
    assert!(driver::block_on(runtime.delay(Duration::ZERO)).is_err());
    assert_eq!(driver::block_on(compute(&*runtime, || 1)).expect("computed"), 1);
    runtime.shutdown();
}

#[test]
fn the_last_handle_may_go_inside_a_task() {
    let runtime = runtime(1);
    let inside = runtime.clone();
    let (sender, receiver) = mpsc::channel();
    let delay = runtime.delay(Duration::from_millis(5));
    runtime.spawn(Box::pin(async move {
        let _ = delay.await;
        drop(inside);
        let _ = sender.send(());
    }));
    drop(runtime);
    assert_eq!(receiver.recv(), Ok(()));
}

#[test]
fn tasks_do_their_own_io_and_wake_each_other() {
    use std::{io::Write, os::fd::AsRawFd, os::unix::net::UnixStream};
    let runtime = runtime(0);
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let (completer, future) = IoFuture::pending();
    runtime.spawn(Box::pin(async move {
        let received = driver::recv(theirs.as_raw_fd(), crate::IoBuf::new(8)).await;
        drop(theirs);
        completer.complete(received);
    }));
    ours.write_all(b"abc").expect("written");
    let (buf, count) = driver::block_on(future).expect("received");
    assert_eq!(&buf[..count], b"abc");
}
