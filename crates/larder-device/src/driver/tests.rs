//! Tests of the driver. The last one runs the whole binary again on the fallback backend.

use super::{local::LOCAL, *};
use std::{
    cell::RefCell,
    io::Write,
    os::{fd::AsRawFd, unix::net::UnixStream},
    pin::pin,
    rc::Rc,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Wake, Waker},
    thread,
};

/// Yields to the executor once.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_ready_future_is_returned_at_once_and_makes_no_ring() {
    thread::spawn(|| {
        assert_eq!(block_on(async { 7 }), 7);
        LOCAL.with(|local| {
            let idle = local.idle.borrow();
            assert_eq!(idle.len(), 1);
            assert!(idle[0].shared.is_untouched());
        });
    })
    .join()
    .unwrap();
}

#[test]
fn local_tasks_run_interleaved_with_the_main_future() {
    let log = Rc::new(RefCell::new(Vec::new()));
    block_on(async {
        for task in 0..3 {
            let log = log.clone();
            spawn_local(async move {
                for step in 0..2 {
                    log.borrow_mut().push((task, step));
                    yield_now().await;
                }
            });
        }
        while log.borrow().len() < 6 {
            yield_now().await;
        }
    });
    assert_eq!(*log.borrow(), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_local_task_goes_on_with_the_next_block_on_and_is_dropped_with_its_thread() {
    struct Tell(mpsc::Sender<thread::ThreadId>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }
    let (sender, receiver) = mpsc::channel();
    let waker_out = Arc::new(parking_lot::Mutex::new(None));
    let keep = waker_out.clone();
    let home = thread::spawn(move || {
        let steps = Rc::new(std::cell::Cell::new(0));
        let count = steps.clone();
        block_on(async move {
            spawn_local(async move {
                let _tell = Tell(sender);
                loop {
                    count.set(count.get() + 1);
                    yield_now().await;
                    if count.get() >= 3 {
                        std::future::poll_fn(|context| {
                            *keep.lock() = Some(context.waker().clone());
                            Poll::<()>::Pending
                        })
                        .await;
                    }
                }
            });
        });
        assert_eq!(steps.get(), 0);
        block_on(async {
            while steps.get() < 3 {
                yield_now().await;
            }
            yield_now().await;
            yield_now().await;
        });
    });
    let home_id = home.thread().id();
    home.join().unwrap();
    assert_eq!(receiver.recv().unwrap(), home_id);
    let waker: Waker = waker_out.lock().take().unwrap();
    waker.wake();
}

#[test]
#[should_panic(expected = "inside driver::block_on")]
fn spawn_local_outside_of_block_on_panics() {
    spawn_local(async {});
}

#[test]
fn nested_block_on_uses_another_driver() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let got = block_on(async {
        let outer = recv(theirs.as_raw_fd(), IoBuf::new(16));
        let inner = block_on(async {
            sleep(Duration::from_millis(2)).await.unwrap();
            // The outer driver's operation, awaited inside: the background thread completes it.
            ours.write_all(b"hello").unwrap();
            outer.await.unwrap()
        });
        yield_now().await;
        inner
    });
    assert_eq!(&got.0[..got.1], b"hello");
}

#[test]
fn a_future_that_blocks_while_its_thread_ends_is_served() {
    struct BlockOnDrop;
    impl Drop for BlockOnDrop {
        fn drop(&mut self) {
            block_on(sleep(Duration::from_millis(2))).unwrap();
        }
    }
    thread::spawn(|| {
        block_on(async {
            spawn_local(async {
                let _guard = BlockOnDrop;
                std::future::pending::<()>().await;
            });
            yield_now().await;
            yield_now().await;
        });
    })
    .join()
    .unwrap();
}

#[test]
fn a_panic_leaves_the_driver_usable() {
    let result = std::panic::catch_unwind(|| block_on(async { panic!("on purpose") }));
    assert!(result.is_err());
    block_on(async { sleep(Duration::from_millis(1)).await.unwrap() });
    assert!(current().is_none());
}

#[test]
fn wakes_from_other_threads_are_never_lost() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 5_000;
    let count = Arc::new(AtomicUsize::new(0));
    let waker = Arc::new(parking_lot::Mutex::new(None::<Waker>));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (count, waker) = (count.clone(), waker.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    count.fetch_add(1, Ordering::SeqCst);
                    if let Some(waker) = waker.lock().take() {
                        waker.wake();
                    }
                    if (round + number).is_multiple_of(7) {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    block_on(std::future::poll_fn(|context| {
        *waker.lock() = Some(context.waker().clone());
        if count.load(Ordering::SeqCst) == THREADS * ROUNDS { Poll::Ready(()) } else { Poll::Pending }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn tasks_are_woken_across_threads_one_by_one() {
    // A ping-pong of two drivers: each round needs a wake in both directions, so one lost wake
    // hangs.
    const ROUNDS: usize = 3_000;
    type Ball = Arc<parking_lot::Mutex<(usize, [Option<Waker>; 2])>>;
    async fn play(ball: Ball, side: usize) {
        std::future::poll_fn(|context| {
            loop {
                let mut state = ball.lock();
                if state.0 >= ROUNDS {
                    return Poll::Ready(());
                }
                if state.0 % 2 != side {
                    state.1[side] = Some(context.waker().clone());
                    return Poll::Pending;
                }
                state.0 += 1;
                let other = state.1[1 - side].take();
                drop(state);
                if let Some(other) = other {
                    other.wake();
                }
            }
        })
        .await;
        if let Some(other) = ball.lock().1[1 - side].take() {
            other.wake();
        }
    }
    let ball = Ball::default();
    let other = ball.clone();
    let thread = thread::spawn(move || {
        block_on(async move {
            let (done, over) = IoFuture::pending();
            spawn_local(async move {
                play(other, 1).await;
                done.complete(Ok(()));
            });
            over.await.unwrap();
        });
    });
    block_on(play(ball, 0));
    thread.join().unwrap();
}

#[test]
fn recv_hands_over_what_comes_and_tells_the_end() {
    for nonblocking in [false, true] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(nonblocking).unwrap();
        let fd = theirs.as_raw_fd();
        let sender = thread::spawn(move || {
            for part in [&b"one"[..], b"three", b"five five"] {
                thread::sleep(Duration::from_millis(3));
                ours.write_all(part).unwrap();
            }
        });
        let all = block_on(async {
            let mut all = Vec::new();
            loop {
                let (buf, count) = recv(fd, IoBuf::new(4)).await.unwrap();
                if count == 0 {
                    return all;
                }
                all.extend_from_slice(&buf[..count]);
            }
        });
        assert_eq!(all, b"onethreefive five");
        sender.join().unwrap();
    }
}

#[test]
fn sockets_become_readable_and_writable() {
    let dir = std::env::temp_dir().join(format!("larder-driver-{}-{}", std::process::id(), next_id()));
    let listener = std::os::unix::net::UnixListener::bind(&dir).unwrap();
    listener.set_nonblocking(true).unwrap();
    let path = dir.clone();
    let client = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        UnixStream::connect(path).unwrap()
    });
    let accepted = block_on(async {
        readable(listener.as_raw_fd()).await.unwrap();
        let (accepted, _) = listener.accept().unwrap();
        writable(accepted.as_raw_fd()).await.unwrap();
        accepted
    });
    drop((accepted, client.join().unwrap()));
    std::fs::remove_file(dir).unwrap();
}

#[test]
fn a_dropped_recv_takes_no_bytes_and_lets_go_of_the_socket() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let fd = theirs.as_raw_fd();
    block_on(async {
        let early = recv(fd, IoBuf::new(16));
        sleep(Duration::from_millis(1)).await.unwrap();
        drop(early);
        // Not yet given to the kernel when it is dropped.
        drop(recv(fd, IoBuf::new(16)));
        sleep(Duration::from_millis(5)).await.unwrap();
        ours.write_all(b"kept").unwrap();
        let (buf, count) = recv(fd, IoBuf::new(16)).await.unwrap();
        assert_eq!(&buf[..count], b"kept");
        let last = recv(fd, IoBuf::new(16));
        sleep(Duration::from_millis(1)).await.unwrap();
        drop(last);
        drop(theirs);
        sleep(Duration::from_millis(5)).await.unwrap();
    });
    ours.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(std::io::Read::read(&mut ours, &mut [0; 4]).unwrap(), 0, "the peer sees the end");
}

#[test]
fn a_thread_ends_while_it_receives() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let fd = theirs.as_raw_fd();
    let left = thread::spawn(move || {
        let pending = recv(fd, IoBuf::new(64 << 10));
        block_on(async {
            spawn_local(async move {
                let _ = recv(fd, IoBuf::new(4096)).await;
            });
            yield_now().await;
            yield_now().await;
        });
        let inside = block_on(async { recv(fd, IoBuf::new(4096)) });
        (pending, inside)
    })
    .join()
    .unwrap();
    // The operation of the background driver goes on. That of the ended thread is cancelled with
    // its ring; the fallback has none, and moved it.
    let (pending, inside) = left;
    drop(ours);
    match block_on(inside) {
        Ok((_, count)) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind, crate::IoErrorKind::Cancelled),
    }
    assert_eq!(block_on(pending).unwrap().1, 0);
}

/// Runs `future` on an executor that knows nothing of drivers.
fn foreign_block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn socket_futures_and_sleeps_work_under_a_foreign_executor() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let future = recv(theirs.as_raw_fd(), IoBuf::new(16));
    ours.write_all(b"abc").unwrap();
    assert_eq!(foreign_block_on(future).unwrap().1, 3);
    let began = Instant::now();
    foreign_block_on(sleep(Duration::from_millis(10))).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(10));
    drop(recv(theirs.as_raw_fd(), IoBuf::new(16)));
}

#[test]
fn an_operation_left_behind_by_block_on_is_completed() {
    for _ in 0..50 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let fd = theirs.as_raw_fd();
        let future = block_on(async { recv(fd, IoBuf::new(16)) });
        let writer = thread::spawn(move || ours.write_all(b"late").unwrap());
        let (_, count) = foreign_block_on(future).unwrap();
        assert_eq!(count, 4);
        writer.join().unwrap();
    }
}

#[test]
fn more_operations_than_the_ring_holds_wait_in_user_space() {
    const PAIRS: usize = 40;
    const EACH: usize = 40;
    const { assert!(PAIRS * EACH > io::IN_FLIGHT_MAX) };
    let pairs: Vec<_> = (0..PAIRS).map(|_| UnixStream::pair().unwrap()).collect();
    block_on(async {
        let mut futures = Vec::new();
        for _ in 0..EACH {
            for (_, theirs) in &pairs {
                futures.push(readable(theirs.as_raw_fd()));
            }
        }
        sleep(Duration::from_millis(1)).await.unwrap();
        for (ours, _) in &pairs {
            let mut ours = ours;
            ours.write_all(b"x").unwrap();
        }
        for future in futures {
            future.await.unwrap();
        }
    });
}

#[test]
fn sleeps_end_in_order_and_abandoned_ones_are_forgotten() {
    let order = Rc::new(RefCell::new(Vec::new()));
    block_on(async {
        for _ in 0..10_000 {
            drop(sleep(Duration::from_secs(3600)));
        }
        for millis in [9u64, 3, 6, 3] {
            let order = order.clone();
            let sleep = sleep(Duration::from_millis(millis));
            spawn_local(async move {
                sleep.await.unwrap();
                order.borrow_mut().push(millis);
            });
        }
        while order.borrow().len() < 4 {
            sleep(Duration::from_millis(1)).await.unwrap();
        }
    });
    assert_eq!(*order.borrow(), [3, 3, 6, 9]);
}

#[test]
fn the_fallback_backend_passes_the_same_tests() {
    if io_backend().kind == IoBackendKind::Threads {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .env(BACKEND_ENV, "threads")
        .args(["driver::", "file::", "threads::"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
