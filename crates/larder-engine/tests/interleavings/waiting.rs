//! The engine's own means of waiting, alone, under many schedules. They are `sync.rs`, `tickets.rs`
//! and `pins.rs`.
//!
//! A lost wake-up is a deadlock here, and the scheduler reports it.
//!
//! It leaves caches to `caches.rs`.

use crate::{
    explore::explore,
    pins::Pins,
    stripes::Stripe,
    sync::{Arc, Notify, either, join_all},
    tickets::{Ticket, Tickets},
};
use larder_core::{Lba, SlotId};
use larder_device::IoFuture;
// The counters serve the check, and are no part of the exploration.
use real_std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
};
use std::collections::BTreeSet;

const SCHEDULES: u64 = 3000;

/// Steps of each thread, and the step after which the first one pauses.
const STEPS: u32 = 40;
const PAUSE_AT: u32 = 20;

/// Waits as all of the engine does: it listens first, and then looks at the condition.
async fn wait_for(condition: &AtomicU32, at_least: u32, changed: &Notify) {
    loop {
        let change = changed.listen();
        if condition.load(SeqCst) >= at_least {
            return;
        }
        change.await;
    }
}

/// Schedules in which one thread paused between two steps while another one did all of its own.
static PAUSES: AtomicU64 = AtomicU64::new(0);

/// The schedules: one thread pauses at one exact point, and another does all its steps there.
///
/// Only such a schedule shows a listener that listens too late and misses a change.
pub fn a_thread_pauses_while_another_one_does_all() {
    explore(SCHEDULES, || {
        let place = Arc::new(AtomicU32::new(0));
        let other = {
            let place = place.clone();
            thread::spawn(move || {
                let seen: BTreeSet<u32> = (0..STEPS).map(|_| place.load(SeqCst)).collect();
                if seen == BTreeSet::from([PAUSE_AT]) {
                    PAUSES.fetch_add(1, Relaxed);
                }
            })
        };
        (1..=STEPS).for_each(|at| place.store(at, SeqCst));
        other.join().expect("it ends");
    });
    let pauses = PAUSES.load(Relaxed);
    assert!(pauses >= SCHEDULES / 1000, "only {pauses} schedules have a long pause at one point");
}

pub fn a_change_after_the_check_wakes_its_listener() {
    explore(SCHEDULES, || {
        let shared = Arc::new((AtomicU32::new(0), Notify::default()));
        let waiters: Vec<_> = (1..=3)
            .map(|at_least| {
                let shared = shared.clone();
                thread::spawn(move || block_on(wait_for(&shared.0, at_least, &shared.1)))
            })
            .collect();
        for _ in 0..3 {
            shared.0.fetch_add(1, SeqCst);
            shared.1.notify();
        }
        waiters.into_iter().for_each(|waiter| waiter.join().expect("woken"));
    });
}

pub fn either_change_wakes() {
    explore(SCHEDULES, || {
        let shared = Arc::new((AtomicU32::new(0), Notify::default(), Notify::default()));
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || {
                block_on(async {
                    loop {
                        let (one, other) = (shared.1.listen(), shared.2.listen());
                        if shared.0.load(SeqCst) >= 2 {
                            return;
                        }
                        either(one, other).await;
                    }
                });
            })
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.fetch_add(1, SeqCst);
                shared.2.notify();
            })
        };
        shared.0.fetch_add(1, SeqCst);
        shared.1.notify();
        other.join().expect("told");
        waiter.join().expect("woken");
    });
}

pub fn operations_side_by_side_all_end() {
    explore(SCHEDULES, || {
        let (completers, mut futures): (Vec<_>, Vec<_>) = (0..3).map(|_| IoFuture::<u32>::pending()).unzip();
        futures.push(IoFuture::ready(Ok(3)));
        let threads: Vec<_> = completers
            .into_iter()
            .enumerate()
            .map(|(i, completer)| thread::spawn(move || completer.complete(Ok(i as u32))))
            .collect();
        let results: Vec<u32> =
            block_on(join_all(futures)).into_iter().map(|result| result.expect("completed")).collect();
        assert_eq!(results, [0, 1, 2, 3]);
        threads.into_iter().for_each(|thread| thread.join().expect("completed"));
    });
}

/// The chunks, each with its visitors.
#[derive(Default)]
struct Chunks([AtomicBool; 4]);

impl Chunks {
    /// Stays alone in `first..first + count` for a while.
    fn visit(&self, first: usize, count: usize) {
        for chunk in &self.0[first..first + count] {
            assert!(!chunk.swap(true, SeqCst), "two are in one chunk");
        }
        thread::yield_now();
        for chunk in &self.0[first..first + count] {
            chunk.store(false, SeqCst);
        }
    }
}

pub fn overlapping_tickets_exclude_each_other() {
    explore(SCHEDULES, || {
        let (tickets, chunks) = (Arc::new(Tickets::default()), Arc::new(Chunks::default()));
        let clients: Vec<_> = [(0, 2), (1, 2), (2, 2), (0, 4)]
            .into_iter()
            .map(|(first, count)| {
                let (tickets, chunks) = (tickets.clone(), chunks.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let ticket = block_on(tickets.ask(Lba(first), count).granted());
                        chunks.visit(first as usize, count as usize);
                        drop(ticket);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("granted"));
        assert_eq!(tickets.count(), 0);
    });
}

pub fn tickets_are_granted_in_the_order_of_asking() {
    explore(SCHEDULES, || {
        let tickets = Arc::new(Tickets::default());
        let turn = Arc::new(AtomicU32::new(0));
        let asked: Vec<Ticket> = (0..4).map(|_| tickets.ask(Lba(7), 1)).collect();
        let clients: Vec<_> = asked
            .into_iter()
            .enumerate()
            .map(|(number, ticket)| {
                let turn = turn.clone();
                thread::spawn(move || {
                    let ticket = block_on(ticket.granted());
                    assert_eq!(turn.load(SeqCst), number as u32, "somebody overtook");
                    turn.fetch_add(1, SeqCst);
                    drop(ticket);
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("granted"));
    });
}

pub fn tickets_given_up_block_no_others() {
    explore(SCHEDULES, || {
        let tickets = Arc::new(Tickets::default());
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let tickets = tickets.clone();
                let gives_up = thread_rng().gen_bool(0.5);
                thread::spawn(move || {
                    let ticket = tickets.ask(Lba(0), 1);
                    if gives_up {
                        // Polled, so that its waker is in the queue, and then dropped.
                        let mut granted = Box::pin(ticket.granted());
                        let _ = block_on(std::future::poll_fn(|cx| std::task::Poll::Ready(granted.as_mut().poll(cx))));
                    } else {
                        drop(block_on(ticket.granted()));
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("ended"));
        assert_eq!(tickets.count(), 0);
    });
}

/// Readers leave while an eviction comes: it waits for the last of them, and is told.
pub fn an_eviction_waits_for_the_last_reader() {
    explore(SCHEDULES, || {
        let pins = Arc::new(Pins::new(2, 2));
        let reading = Arc::new(AtomicU32::new(0));
        let readers: Vec<_> = [(0, 0), (0, 1), (1, 1)]
            .into_iter()
            .map(|(slot, stripe)| {
                // Under the state's lock, before the eviction takes the mappings.
                let pin = pins.pin(SlotId(slot), Stripe(stripe)).hold();
                reading.fetch_add(u32::from(slot == 0), SeqCst);
                let (pins, reading) = (pins.clone(), reading.clone());
                thread::spawn(move || {
                    reading.fetch_sub(u32::from(slot == 0), SeqCst);
                    pins.unpin(pin);
                })
            })
            .collect();
        block_on(pins.wait_unpinned(SlotId(0)));
        assert_eq!(reading.load(SeqCst), 0, "the slot is trimmed under a reader");
        block_on(pins.wait_unpinned(SlotId(1)));
        readers.into_iter().for_each(|reader| reader.join().expect("done"));
    });
}
