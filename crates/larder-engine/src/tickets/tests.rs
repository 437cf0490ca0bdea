//! Tickets, one by one and against a list that is searched from its start.

use super::*;
use larder_core::types::mix;
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::Wake,
};

type Waiting = Pin<Box<dyn Future<Output = Ticket>>>;

fn poll(future: &mut Waiting) -> Option<Ticket> {
    poll_as(future, Waker::noop())
}

fn poll_as(future: &mut Waiting, waker: &Waker) -> Option<Ticket> {
    match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(ticket) => Some(ticket),
        Poll::Pending => None,
    }
}

#[test]
fn overlapping_tickets_wait_in_order_and_others_do_not() {
    let tickets = Arc::new(Tickets::default());
    let first = tickets.ask(Lba(0), 10);
    let mut second: Waiting = Box::pin(tickets.ask(Lba(5), 10).granted());
    let mut third: Waiting = Box::pin(tickets.ask(Lba(12), 1).granted());
    let mut other: Waiting = Box::pin(tickets.ask(Lba(20), 1).granted());
    assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
    drop(poll(&mut other).expect("free"));
    drop(first);
    let held = poll(&mut second).expect("granted");
    assert!(poll(&mut third).is_none());
    drop(held);
    assert!(poll(&mut third).is_some());
    assert_eq!(tickets.count(), 0);
}

#[test]
fn a_ticket_that_is_given_up_blocks_no_other() {
    let tickets = Arc::new(Tickets::default());
    let held = tickets.ask(Lba(0), 1);
    let waiting = tickets.ask(Lba(0), 1);
    let mut last: Waiting = Box::pin(tickets.ask(Lba(0), 1).granted());
    drop(waiting);
    assert!(poll(&mut last).is_none());
    drop(held);
    assert!(poll(&mut last).is_some());
}

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn of_many_who_wait_for_one_chunk_one_is_woken_at_a_time() {
    let tickets = Arc::new(Tickets::default());
    let bells: Vec<Arc<Bell>> = (0..48).map(|_| Arc::default()).collect();
    let mut waiting: Vec<Waiting> =
        bells.iter().map(|_| Box::pin(tickets.ask(Lba(7), 1).granted()) as Waiting).collect();
    let mut held = poll_as(&mut waiting[0], &bells[0].clone().into());
    for (future, bell) in waiting.iter_mut().zip(&bells).skip(1) {
        assert!(poll_as(future, &bell.clone().into()).is_none());
    }
    for (number, next) in waiting.iter_mut().enumerate().skip(1) {
        drop(held.take());
        let woken: Vec<usize> = bells.iter().map(|bell| bell.0.swap(0, SeqCst)).collect();
        let expected: Vec<usize> = (0..48).map(|other| usize::from(other == number)).collect();
        assert_eq!(woken, expected, "when ticket {} goes", number - 1);
        held = poll(next);
        assert!(held.is_some());
    }
}

/// A ticket in the model: in the order of asking.
struct Modelled {
    range: Range<u64>,
    future: Option<Waiting>,
    held: Option<Ticket>,
    /// The task that waits now, the tasks that it was moved from, and whether it waits at all.
    bell: Arc<Bell>,
    old_bells: Vec<Arc<Bell>>,
    is_waiting: bool,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Checks all waiting tickets against the list. Each is woken once when it is free and never
/// earlier, and its old tasks stay asleep.
fn check(list: &mut [Modelled], seed: u64) {
    for at in 0..list.len() {
        let (earlier, rest) = list.split_at_mut(at);
        let ticket = &mut rest[0];
        let is_free = !earlier.iter().any(|other| overlap(&other.range, &ticket.range));
        assert!(ticket.held.is_none() || is_free, "seed {seed:#x}: {:?} was granted early", ticket.range);
        let rung = ticket.bell.0.swap(0, SeqCst);
        let expected = usize::from(is_free && ticket.is_waiting);
        assert_eq!(rung, expected, "seed {seed:#x}: {:?} was woken wrongly", ticket.range);
        if rung > 0 {
            ticket.is_waiting = false;
            ticket.held = ticket.future.as_mut().and_then(poll);
            assert!(ticket.held.is_some(), "seed {seed:#x}: {:?} was woken early", ticket.range);
            ticket.future = None;
        }
        for old in &ticket.old_bells {
            assert_eq!(old.0.load(SeqCst), 0, "seed {seed:#x}: {:?} moved to another task", ticket.range);
        }
    }
}

/// Makes a step of the clients of [`agrees_with_a_list_searched_from_its_start`].
fn step(tickets: &Arc<Tickets>, list: &mut Vec<Modelled>, next: &mut impl FnMut(u64) -> u64, seed: u64) {
    let pick = next(list.len().max(1) as u64) as usize;
    match next(5) {
        0 | 1 => {
            // Mostly short ranges, some long, some over all chunks.
            let count = match next(8) {
                0 => u64::MAX,
                1 | 2 => 1 + next(40),
                _ => 1 + next(4),
            };
            let first = if count == u64::MAX { 0 } else { next(48) };
            let ticket = tickets.ask(Lba(first), count);
            let range = first..first.saturating_add(count);
            let future: Waiting = Box::pin(ticket.granted());
            let bell = Arc::default();
            list.push(Modelled { range, future: Some(future), held: None, bell, old_bells: vec![], is_waiting: false });
        }
        // Polls a ticket, perhaps again and for another task.
        2 | 3 => {
            let is_free =
                list.get(pick).is_some_and(|picked| !list[..pick].iter().any(|o| overlap(&o.range, &picked.range)));
            let Some(picked) = list.get_mut(pick) else { return };
            let Some(future) = &mut picked.future else { return };
            if next(2) == 0 {
                picked.old_bells.push(std::mem::take(&mut picked.bell));
            }
            picked.held = poll_as(future, &picked.bell.clone().into());
            assert_eq!(picked.held.is_some(), is_free, "seed {seed:#x}: {:?}", picked.range);
            picked.is_waiting = picked.held.is_none();
            if picked.held.is_some() {
                picked.future = None;
            }
        }
        // Ends or cancels a ticket.
        _ if pick < list.len() => drop(list.remove(pick)),
        _ => {}
    }
}

#[test]
fn agrees_with_a_list_searched_from_its_start() {
    for seed in 1..200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |n: u64| {
            state = mix(state);
            state % n
        };
        let (tickets, mut list) = (Arc::new(Tickets::default()), Vec::new());
        for _ in 0..400 {
            step(&tickets, &mut list, &mut next, seed);
            check(&mut list, seed);
            assert_eq!(tickets.count(), list.len(), "seed {seed:#x}");
        }
        // All tickets come to their turn when those before them go.
        while !list.is_empty() {
            let mut first = list.remove(0);
            let held = first.held.take().or_else(|| first.future.as_mut().and_then(poll));
            assert!(held.is_some(), "seed {seed:#x}: the oldest waits");
            drop((held, first));
            check(&mut list, seed);
        }
        assert_eq!(tickets.count(), 0);
    }
}
