//! Range tickets: operations that overlap take effect in the order in which they asked.
//!
//! A ticket names a run of chunks. It is granted when no earlier ticket that overlaps it is left, and is given back
//! when it is dropped. Writes, trims and write-throughs hold one across their I/O; so do destages, among themselves.
//!
//! Invariants: first come, first served among overlapping ranges, so nobody starves.
//!
//! What it does not do: order reads. A read that overlaps a write may see either.

use crate::stripes::Apart;
use larder_core::Lba;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// All tickets that are asked for or held.
#[derive(Default)]
pub struct Tickets {
    queue: Apart<Mutex<Queue>>,
}

/// Tickets for one thing each, of a great many: who asks for one seldom passes a lock that somebody takes for another.
pub struct ManyTickets(Box<[Arc<Tickets>]>);

impl ManyTickets {
    /// In so many parts (a power of two).
    pub fn new(parts: usize) -> ManyTickets {
        ManyTickets((0..parts).map(|_| Arc::default()).collect())
    }

    /// Asks for one of them. The place in its queue is taken by this call.
    pub fn ask(&self, thing: u64) -> Ticket {
        // Neighbours are asked for together, and lie in different parts.
        self.0[thing as usize & (self.0.len() - 1)].ask(Lba(thing), 1)
    }
}

#[derive(Default)]
struct Queue {
    next_id: u64,
    entries: VecDeque<Entry>,
}

struct Entry {
    id: u64,
    first: u64,
    end: u64,
    waker: Option<Waker>,
}

/// A ticket that was asked for. Resolves to itself once granted; gives the range back when dropped.
pub struct Ticket {
    tickets: Arc<Tickets>,
    id: u64,
}

impl Tickets {
    /// Asks for `count` chunks from `first`. The place in the queue is taken by this call.
    pub fn ask(self: &Arc<Self>, first: Lba, count: u64) -> Ticket {
        let mut queue = self.queue.lock();
        let id = queue.next_id;
        queue.next_id += 1;
        queue.entries.push_back(Entry { id, first: first.0, end: first.0.saturating_add(count), waker: None });
        Ticket { tickets: self.clone(), id }
    }

    /// How many tickets are out.
    pub fn count(&self) -> usize {
        self.queue.lock().entries.len()
    }
}

impl Queue {
    fn position(&self, id: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }
}

impl Ticket {
    /// Waits until the ticket is granted.
    pub async fn granted(self) -> Ticket {
        if !self.is_granted(None) {
            Granted(&self).await;
        }
        self
    }

    fn is_granted(&self, cx: Option<&Context<'_>>) -> bool {
        let mut queue = self.tickets.queue.lock();
        let Some(at) = queue.position(self.id) else { return true };
        let (first, end) = (queue.entries[at].first, queue.entries[at].end);
        let blocked = queue.entries.range(..at).any(|earlier| earlier.first < end && first < earlier.end);
        if let (true, Some(cx)) = (blocked, cx) {
            queue.entries[at].waker = Some(cx.waker().clone());
        }
        !blocked
    }
}

struct Granted<'a>(&'a Ticket);

impl Future for Granted<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.is_granted(Some(cx)) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut wake = Vec::new();
        {
            let mut queue = self.tickets.queue.lock();
            let Some(at) = queue.position(self.id) else { return };
            let Some(gone) = queue.entries.remove(at) else { return };
            for later in queue.entries.range_mut(at..) {
                if later.first < gone.end && gone.first < later.end {
                    wake.extend(later.waker.take());
                }
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(future: &mut Pin<Box<dyn Future<Output = Ticket>>>) -> Option<Ticket> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ticket) => Some(ticket),
            Poll::Pending => None,
        }
    }

    #[test]
    fn overlapping_tickets_wait_in_order_and_others_do_not() {
        let tickets = Arc::new(Tickets::default());
        let first = tickets.ask(Lba(0), 10);
        let mut second: Pin<Box<dyn Future<Output = Ticket>>> = Box::pin(tickets.ask(Lba(5), 10).granted());
        let mut third: Pin<Box<dyn Future<Output = Ticket>>> = Box::pin(tickets.ask(Lba(12), 1).granted());
        let mut other: Pin<Box<dyn Future<Output = Ticket>>> = Box::pin(tickets.ask(Lba(20), 1).granted());
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
    fn a_ticket_that_is_given_up_blocks_nobody() {
        let tickets = Arc::new(Tickets::default());
        let held = tickets.ask(Lba(0), 1);
        let waiting = tickets.ask(Lba(0), 1);
        let mut last: Pin<Box<dyn Future<Output = Ticket>>> = Box::pin(tickets.ask(Lba(0), 1).granted());
        drop(waiting);
        assert!(poll(&mut last).is_none());
        drop(held);
        assert!(poll(&mut last).is_some());
    }
}
