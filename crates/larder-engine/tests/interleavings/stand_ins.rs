//! Stand-ins for `parking_lot` under a scheduler that picks threads: the same names over shuttle.
//!
//! Invariants: each call is a point at which any other thread may run. A timed wait ends by
//! notification or by time, at the scheduler's choice, and never waits for ever.
//!
//! It does not model weak memory. Every atomic operation is sequentially consistent here, for any
//! ordering in the source; so these checks do not show that a weaker one suffices.

use real_std::{
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{PoisonError, TryLockError},
    time::Duration,
};
use shuttle::{rand::Rng, sync};

/// Looks of a timed wait at its condition before its time is over.
const TIMED_LOOKS_MAX: u32 = 8;

/// A lock that does not poison.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>, &'a Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), self)
    }
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard), self)),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()), self)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_deref().expect("a guard that waits is not used")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("a guard that waits is not used")
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Returns a guard of a part of the guarded value.
    pub fn map<U>(mut guard: Self, part: impl FnOnce(&mut T) -> &mut U) -> MappedMutexGuard<'a, T, U> {
        let part = NonNull::from(part(&mut guard));
        MappedMutexGuard { part, _whole: guard }
    }
}

/// Holds a [`Mutex`], and shows a part of its value.
pub struct MappedMutexGuard<'a, T, U> {
    part: NonNull<U>,
    _whole: MutexGuard<'a, T>,
}

impl<T, U> Deref for MappedMutexGuard<'_, T, U> {
    type Target = U;
    fn deref(&self) -> &U {
        // SAFETY: the guarded value lent the part; it stays in place and ours while the guard
        // lives.
        unsafe { self.part.as_ref() }
    }
}

impl<T, U> DerefMut for MappedMutexGuard<'_, T, U> {
    fn deref_mut(&mut self) -> &mut U {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { self.part.as_mut() }
    }
}

/// A condition variable.
#[derive(Default)]
pub struct Condvar {
    condvar: sync::Condvar,
    /// Notifications so far that a timed waiter may take; and the timed waiters.
    timed: real_std::sync::Mutex<Timed>,
}

#[derive(Default)]
struct Timed {
    waiters: u32,
    notified: u32,
}

/// The end of a timed wait.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub const fn new() -> Self {
        Condvar { condvar: sync::Condvar::new(), timed: real_std::sync::Mutex::new(Timed { waiters: 0, notified: 0 }) }
    }

    fn timed(&self) -> real_std::sync::MutexGuard<'_, Timed> {
        self.timed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn notify_one(&self) {
        let mut timed = self.timed();
        if timed.notified < timed.waiters {
            timed.notified += 1;
            return;
        }
        drop(timed);
        self.condvar.notify_one();
    }

    pub fn notify_all(&self) {
        let mut timed = self.timed();
        timed.notified = timed.waiters;
        drop(timed);
        self.condvar.notify_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a guard waits once at a time");
        guard.0 = Some(self.condvar.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits as long as the scheduler decides, for any duration.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _at_most: Duration) -> WaitTimeoutResult {
        self.timed().waiters += 1;
        drop(guard.0.take());
        let looks = shuttle::rand::thread_rng().gen_range(0..TIMED_LOOKS_MAX);
        let mut notified = false;
        for _ in 0..=looks {
            shuttle::thread::yield_now();
            let mut timed = self.timed();
            if timed.notified > 0 {
                timed.notified -= 1;
                notified = true;
                break;
            }
        }
        self.timed().waiters -= 1;
        let mutex = guard.1;
        guard.0 = Some(mutex.0.lock().unwrap_or_else(PoisonError::into_inner));
        WaitTimeoutResult(!notified)
    }
}
