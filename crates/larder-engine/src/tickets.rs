//! Range tickets: operations that overlap take effect in the order in which they asked.
//!
//! A ticket names a run of chunks. It is granted when no earlier ticket that overlaps it is left,
//! and is given back when it is dropped. Writes, trims and write-throughs hold one across their
//! I/O; so do destages, among themselves.
//!
//! Each ticket counts the earlier ones that overlap it. A ticket that goes lowers the count of the
//! later ones that overlap it, and wakes those whose count reaches 0. So each waiter is woken once,
//! when it can go. The queue is sorted by size class and first chunk, so a ticket meets its
//! neighbours alone.
//!
//! Invariants: overlapping ranges are served in the order of asking, so each ticket gets its turn.
//! A ticket counts an earlier one that overlaps it exactly while that one is in the queue.
//!
//! It does not order reads: a read that overlaps a write may see the old or the new data.

use crate::stripes::Apart;
use larder_core::Lba;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// All tickets that are asked for or held.
#[derive(Default)]
pub struct Tickets {
    queue: Apart<Mutex<Queue>>,
}

/// Tickets for many things, each for one. They are in parts, so requests for different things
/// seldom share a lock.
pub struct ManyTickets(Box<[Arc<Tickets>]>);

impl ManyTickets {
    /// Returns tickets in this many parts (a power of two).
    pub fn new(parts: usize) -> ManyTickets {
        ManyTickets((0..parts).map(|_| Arc::default()).collect())
    }

    /// Asks for one thing. This call takes the place in its queue.
    pub fn ask(&self, thing: u64) -> Ticket {
        // Neighbours are asked for together, and lie in different parts.
        self.0[thing as usize & (self.0.len() - 1)].ask(Lba(thing), 1)
    }
}

/// The position of a ticket in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Size class: the range has at most 2 to the power of this many chunks.
    class: u32,
    /// First chunk.
    first: u64,
    /// The number of the ticket, in the order of asking.
    id: u64,
}

struct TicketEntry {
    /// The chunk behind the last one.
    end: u64,
    /// Earlier tickets that overlap this one.
    ahead: usize,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Queue {
    next_id: u64,
    entries: BTreeMap<Key, TicketEntry>,
}

/// A ticket that was asked for. Resolves to itself once granted; gives the range back when dropped.
pub struct Ticket {
    tickets: Arc<Tickets>,
    key: Key,
}

impl Tickets {
    /// Asks for `count` chunks from `first`. This call takes the place in the queue.
    pub fn ask(self: &Arc<Self>, first: Lba, count: u64) -> Ticket {
        let range = first.0..first.0.saturating_add(count);
        let mut queue = self.queue.lock();
        let key = Key { class: class_of(count), first: range.start, id: queue.next_id };
        queue.next_id += 1;
        let mut ahead = 0;
        queue.overlapping(&range, |_, _| ahead += 1);
        queue.entries.insert(key, TicketEntry { end: range.end, ahead, waker: None });
        Ticket { tickets: self.clone(), key }
    }

    /// Returns the number of tickets that are asked for or held.
    pub fn count(&self) -> usize {
        self.queue.lock().entries.len()
    }
}

/// Returns the size class of a range of `count` chunks.
fn class_of(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

impl Queue {
    /// Meets every ticket whose range overlaps `range`.
    fn overlapping(&mut self, range: &Range<u64>, mut meet: impl FnMut(Key, &mut TicketEntry)) {
        let mut class = 0;
        // A ticket that begins further ahead than its class is long does not reach the range.
        while let Some((&Key { class: next, .. }, _)) = self.entries.range(Key { class, first: 0, id: 0 }..).next() {
            let longest = 1_u64.checked_shl(next).unwrap_or(u64::MAX);
            let from = Key { class: next, first: range.start.saturating_sub(longest - 1), id: 0 };
            let to = Key { class: next, first: range.end, id: 0 };
            if from < to {
                let near = self.entries.range_mut(from..to);
                near.filter(|(_, entry)| entry.end > range.start).for_each(|(&key, entry)| meet(key, entry));
            }
            class = next + 1;
        }
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
        let Some(entry) = queue.entries.get_mut(&self.key) else { return true };
        if let (1.., Some(cx)) = (entry.ahead, cx) {
            // The last poll counts: the future may have moved to another task.
            entry.waker = Some(cx.waker().clone());
        }
        entry.ahead == 0
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
        let mut free = Vec::new();
        {
            let mut queue = self.tickets.queue.lock();
            let Some(gone) = queue.entries.remove(&self.key) else { return };
            let id = self.key.id;
            queue.overlapping(&(self.key.first..gone.end), |key, later| {
                if key.id > id {
                    later.ahead -= 1;
                    if later.ahead == 0 {
                        free.extend(later.waker.take().map(|waker| (key.id, waker)));
                    }
                }
            });
        }
        free.sort_unstable_by_key(|&(id, _)| id);
        free.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests;
