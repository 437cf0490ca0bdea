//! Waiting for a slot: the records that found no room.
//!
//! The store tells which records a freed slot serves ([`ServedRecords`]). If any slot serves any
//! record, a freed one wakes the record that has waited longest. A stored record wakes the next
//! one: there may be more slots, and a slot has room for many records. If a record fits into one
//! bucket only, a freed slot wakes the records of its *group*, to which few other buckets belong.
//!
//! Invariants: a record asks for its place in the queue under the lock under which it found no
//! room, so no slot is freed between. A woken record that goes without a try passes the call on. A
//! record that finds no room again keeps its place.
//!
//! It does not know the slots, or the lock.

use larder_core::SlotId;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::atomic::{AtomicU64, Ordering::*},
    task::{Context, Poll, Waker},
};

/// Groups of buckets.
const GROUPS: usize = 64;

/// The records that a freed slot serves.
#[derive(Clone, Copy)]
pub enum ServedRecords {
    /// Any record.
    Any,
    /// Those whose bucket the slot belongs to.
    OfBucket {
        /// Slots of a bucket.
        slots: u32,
    },
}

impl ServedRecords {
    /// Returns the number of groups of records.
    fn groups(self) -> usize {
        match self {
            ServedRecords::Any => 1,
            ServedRecords::OfBucket { .. } => GROUPS,
        }
    }

    /// Returns the group of the records that `slot` serves.
    fn group_of(self, slot: SlotId) -> usize {
        match self {
            ServedRecords::Any => 0,
            ServedRecords::OfBucket { slots } => (slot.0 / slots.max(1)) as usize % GROUPS,
        }
    }
}

/// A record in the queue.
#[derive(Default)]
struct Waiter {
    is_called: bool,
    waker: Option<Waker>,
}

/// The queue of each group, in the order of arrival.
pub struct Room {
    groups: Box<[Mutex<BTreeMap<u64, Waiter>>]>,
    served: ServedRecords,
    next: AtomicU64,
}

/// The place of a record in its queue, until it is dropped.
pub struct Queued<'r> {
    room: &'r Room,
    group: usize,
    number: u64,
    /// The record was called, and has not found the room gone again.
    has_call: bool,
}

impl Room {
    /// Makes the empty queues of a store.
    pub fn new(served: ServedRecords) -> Self {
        let groups = (0..served.groups()).map(|_| Mutex::default());
        Room { groups: groups.collect(), served, next: AtomicU64::new(0) }
    }

    /// Returns a place at the end of the queue. `slot` is one that would serve the record, in a
    /// store with buckets.
    pub fn queue(&self, slot: Option<SlotId>) -> Queued<'_> {
        let (group, number) = (slot.map_or(0, |slot| self.served.group_of(slot)), self.next.fetch_add(1, Relaxed));
        self.groups[group].lock().insert(number, Waiter::default());
        Queued { room: self, group, number, has_call: false }
    }

    /// Tells that `slot` may serve a record now.
    pub fn freed(&self, slot: SlotId) {
        match self.served {
            ServedRecords::Any => self.call_one(0),
            ServedRecords::OfBucket { .. } => self.call_group(self.served.group_of(slot)),
        }
    }

    /// Tells that a write to `slot` is over, after which a record may reuse it.
    pub fn written(&self, slot: SlotId) {
        if let ServedRecords::OfBucket { .. } = self.served {
            self.freed(slot);
        }
    }

    /// Calls all records to try again.
    pub fn call_all(&self) {
        (0..self.groups.len()).for_each(|group| self.call_group(group));
    }

    /// Returns whether any record waits.
    pub fn is_awaited(&self) -> bool {
        self.groups.iter().any(|group| group.lock().values().any(|waiter| !waiter.is_called))
    }

    fn call_group(&self, group: usize) {
        let wakers: Vec<Waker> = {
            let mut waiters = self.groups[group].lock();
            let call = |waiter: &mut Waiter| {
                waiter.is_called = true;
                waiter.waker.take()
            };
            waiters.values_mut().filter_map(call).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn call_one(&self, group: usize) {
        let waker = {
            let mut waiters = self.groups[group].lock();
            let first = waiters.values_mut().find(|waiter| !waiter.is_called);
            first.and_then(|waiter| {
                waiter.is_called = true;
                waiter.waker.take()
            })
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Queued<'_> {
    /// Waits for a call. After it the record tries again; if it finds no room, it waits here again.
    pub async fn called(&mut self) {
        self.has_call = false;
        poll_fn(|cx| self.poll_call(cx)).await;
        self.has_call = true;
    }

    fn poll_call(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiters = self.room.groups[self.group].lock();
        let waiter = waiters.entry(self.number).or_default();
        if std::mem::take(&mut waiter.is_called) {
            return Poll::Ready(());
        }
        waiter.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let waiter = self.room.groups[self.group].lock().remove(&self.number);
        // A stored record leaves room for the next one, and a record that gives up leaves its slot.
        if self.has_call || waiter.is_some_and(|waiter| waiter.is_called) {
            self.room.call_one(self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{pin::pin, sync::Arc, task::Wake};

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether a place is called at this moment.
    fn is_called(place: &mut Queued<'_>) -> bool {
        let waker = Arc::new(Woken::default()).into();
        pin!(place.called()).poll(&mut Context::from_waker(&waker)).is_ready()
    }

    #[test]
    fn a_slot_for_any_record_calls_the_one_that_waited_longest() {
        let room = Room::new(ServedRecords::Any);
        let mut places = [0; 3].map(|_| room.queue(None));
        assert!(places.iter_mut().all(|place| !is_called(place)) && room.is_awaited());
        room.freed(SlotId(9));
        let [first, second, third] = &mut places;
        assert!(is_called(first) && !is_called(second) && !is_called(third));
        // The record found no room after all, and keeps its place.
        assert!(!is_called(first));
        room.freed(SlotId(9));
        assert!(!is_called(second) && is_called(first));
        room.call_all();
        assert!(is_called(first) && is_called(second) && is_called(third));
    }

    #[test]
    fn a_stored_record_and_one_that_gives_up_call_the_next() {
        let room = Room::new(ServedRecords::Any);
        let mut places: Vec<Queued<'_>> = (0..4).map(|_| room.queue(None)).collect();
        room.freed(SlotId(0));
        assert!(is_called(&mut places[0]));
        // The record was stored.
        drop(places.remove(0));
        // The record gives up between its call and its try.
        drop(places.remove(0));
        assert!(is_called(&mut places[0]) && !is_called(&mut places[1]));
        // The record finds no room, and gives up: it has no call to pass on.
        assert!(!is_called(&mut places[0]));
        drop(places.remove(0));
        assert!(!is_called(&mut places[0]));
        drop(places);
        assert!(!room.is_awaited());
    }

    #[test]
    fn a_slot_of_a_bucket_calls_the_records_of_its_group() {
        let room = Room::new(ServedRecords::OfBucket { slots: 128 });
        let mut here = [0; 2].map(|_| room.queue(Some(SlotId(130))));
        let mut there = room.queue(Some(SlotId(5)));
        room.freed(SlotId(255));
        assert!(here.iter_mut().all(is_called) && !is_called(&mut there));
        room.freed(SlotId(128 * GROUPS as u32 + 3));
        assert!(is_called(&mut there) && !here.iter_mut().any(is_called));
    }

    #[test]
    fn a_call_wakes_the_task_of_the_record_alone() {
        let room = Room::new(ServedRecords::Any);
        let tasks = [0; 2].map(|_| Arc::new(Woken::default()));
        let mut places = [0; 2].map(|_| room.queue(None));
        for (task, place) in tasks.iter().zip(&mut places) {
            let waker = task.clone().into();
            assert!(pin!(place.called()).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        room.freed(SlotId(1));
        assert_eq!(tasks.map(|task| task.0.load(Relaxed)), [1, 0]);
    }
}
