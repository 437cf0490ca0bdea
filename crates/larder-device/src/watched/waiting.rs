//! The operations that wait for their answer, with the time since which they do.
//!
//! A read that hits is quick, and threads read side by side. So there are several *lanes*, each on
//! cache lines of its own, and a thread begins its operations in one of them.
//!
//! Invariants: an operation ends in the lane in which it began, on whichever thread. The memory of
//! a lane is enough for the most operations that waited there at once.
//!
//! It does not read a clock.

use super::health::{Health, Oldest};
use crate::{IoOp, IoResult};
use parking_lot::Mutex;
use std::{
    array,
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// The number of lanes, a power of two.
const LANES: usize = 16;

/// Threads that began an operation so far.
static THREADS: AtomicUsize = AtomicUsize::new(0);

std::thread_local! {
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the lane of this thread. An ending thread, which has none any more, takes the first.
fn mine() -> usize {
    let lane = LANE.try_with(|lane| {
        lane.get().unwrap_or_else(|| {
            let next = THREADS.fetch_add(1, Relaxed) % LANES;
            lane.set(Some(next));
            next
        })
    });
    lane.unwrap_or(0)
}

/// The operations of some threads. Its count of users has a cache line of its own, too.
#[repr(align(128))]
struct Lane {
    entries: Mutex<Entries>,
    health: Arc<Health>,
}

#[derive(Default)]
struct Entries {
    /// Each operation and the time of its beginning; `None` is free.
    entries: Vec<Option<(IoOp, Duration)>>,
    free: Vec<usize>,
}

/// An operation under way, until its drop.
pub(crate) struct Pending {
    lane: Arc<Lane>,
    entry: usize,
    op: IoOp,
}

impl Pending {
    /// Notes the result, which ends the operation.
    pub(crate) fn end<T>(self, result: &IoResult<T>) {
        self.lane.health.note(self.op, result);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Entries { entries, free } = &mut *self.lane.entries.lock();
        entries[self.entry] = None;
        free.push(self.entry);
    }
}

/// The operations that wait. Thread-safe.
pub(super) struct WaitingOps([Arc<Lane>; LANES]);

impl WaitingOps {
    /// Returns no operations; their results are noted in `health`.
    pub(super) fn new(health: &Arc<Health>) -> Self {
        WaitingOps(array::from_fn(|_| Arc::new(Lane { entries: Mutex::default(), health: health.clone() })))
    }

    /// Notes an operation that begins `now`.
    pub(super) fn begin(&self, op: IoOp, now: Duration) -> Pending {
        let lane = &self.0[mine()];
        let Entries { entries, free } = &mut *lane.entries.lock();
        let noted = Some((op, now));
        let entry = match free.pop() {
            Some(entry) => {
                entries[entry] = noted;
                entry
            }
            None => {
                entries.push(noted);
                entries.len() - 1
            }
        };
        Pending { lane: lane.clone(), entry, op }
    }

    /// Returns the operation that waits longest `now`; `None` without any.
    pub(super) fn oldest(&self, now: Duration) -> Option<Oldest> {
        let (mut first, mut waiting) = (None, 0);
        for lane in &self.0 {
            for &(op, began) in lane.entries.lock().entries.iter().flatten() {
                waiting += 1;
                if first.is_none_or(|(_, earliest)| began < earliest) {
                    first = Some((op, began));
                }
            }
        }
        first.map(|(op, began)| Oldest { op, age: now.saturating_sub(began), waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn operations_of_many_threads_are_known_until_they_end_elsewhere() {
        let (waiting, second) = (WaitingOps::new(&Arc::default()), Duration::from_secs(1));
        let begin = |number: u32| (waiting.begin(IoOp::Write, (number + 2) * second), number);
        let begun: Vec<_> = thread::scope(|scope| {
            let begin = &begin;
            let threads: Vec<_> = (0..40).map(|number| scope.spawn(move || begin(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        let first = waiting.begin(IoOp::Read, second);
        let oldest = |now: u32| waiting.oldest(now * second).map(|it| (it.op, it.age.as_secs(), it.waiting));
        assert_eq!(oldest(50), Some((IoOp::Read, 49, 41)));
        drop(first);
        for (pending, number) in begun {
            assert_eq!(oldest(50), Some((IoOp::Write, u64::from(48 - number), 40 - number as usize)));
            drop(pending);
        }
        assert_eq!(oldest(50), None);
        let memory =
            |waiting: &WaitingOps| waiting.0.iter().map(|lane| lane.entries.lock().entries.len()).sum::<usize>();
        let before = memory(&waiting);
        (0..1000).for_each(|_| drop(waiting.begin(IoOp::Read, second)));
        assert!(memory(&waiting) <= before + 1, "entries are used again");
    }
}
