//! [`StateLock`]: the lock of the state. One thread at a time decides; many may look at once.
//!
//! A thread that only looks takes the lock of its own stripe ([`stripes`](crate::stripes)). No
//! other thread waits on that lock, so the look disturbs none. A look leaves its meaning for later
//! decisions as a *touch* in the stripe's buffer. This is the batching of BP-Wrapper (Ding, Jiang
//! and Zhang: "BP-Wrapper: a system framework making any replacement algorithms (almost) lock
//! contention free". ICDE 2009, section III). A thread that takes the lock exclusively takes all
//! stripes, so all looks have ended. It applies all touches first. A full stripe forces this, so no
//! touch is dropped. A touch that can be applied beside other looks is applied at once
//! ([`Touched::apply_now`]), unless the buffer has an earlier one.
//!
//! A writer pays for taking all stripes. So looks are shared only while they come in a row. This is
//! the bias of BRAVO (Dice and Kogan, "BRAVO: biased locking for reader-writer locks", USENIX ATC
//! 2019). It is counted in looks instead of time, because the engine has no clock. A decision ends
//! the sharing. Then looks take the exclusive lock until enough of them have come in a row.
//! `parking_lot::RwLock` is fair, too, but all its readers change one word. On the cores of a large
//! machine that costs as much as the exclusive lock.
//!
//! A decision may leave a part of its work that runs beside later decisions. The guard has it, and
//! runs it right after the lock was given back.
//!
//! Lock order: `exclusive`, then the stripes by number, then a design's own locks. The holder of a
//! stripe waits for a design's lock alone. A design's lock is held for a moment, and its holder
//! takes no lock of this module.
//!
//! Invariants:
//! - `sharing` changes only under `exclusive`, and is cleared only while all stripes are held. The
//!   holder of a stripe may look if `sharing` is set, because no thread decides meanwhile. The
//!   holder of `exclusive` may change the state if `sharing` is clear, or if it holds all stripes
//!   as well.
//! - Touches are applied to the very state in which they were left: only touches change it in
//!   between. The touches of one thread are applied in its order, and touches of simultaneous looks
//!   in any order.
//! - No thread starves: `parking_lot::Mutex` hands itself to a thread that has waited for half a
//!   millisecond. This holds for `exclusive` and the stripes alike. Looks are as short as
//!   decisions: no wait, no I/O.
//!
//! It does not know the guarded state, or the meaning of a touch.

use crate::stripes::{Apart, STRIPES_MAX, Stripe, Stripes};
use larder_core::design::Deferred;
use parking_lot::{Mutex, MutexGuard};
use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::*},
};

/// Limit of touches in a stripe. All are applied when one stripe is full. That costs a few hundred
/// nanoseconds and stops all threads.
const TOUCHES_MAX: usize = 32;
/// Tries of a look while other threads turn the sharing on and off.
const TRIES_MAX: usize = 4;

/// Checks for applied touches or a free lock before a thread parks.
const SPINS_MAX: u32 = 64;
/// Limit of processor pauses between two checks: one the first time, and each time one more.
const PAUSES_MAX: u32 = 8;

/// A state that a [`StateLock`] can guard.
pub trait Touched {
    /// The meaning of a look for later decisions.
    type Touch: Copy + Default;

    /// Applies a touch at once, beside other looks. Returns false, without a change, if that is
    /// impossible.
    fn apply_now(&self, _touch: &Self::Touch) -> bool {
        false
    }

    /// Applies the touches that were left, in their order. Only other touches have changed the
    /// state since.
    fn apply(&mut self, touches: &[Self::Touch]);
}

/// The lock of the state; see the module.
pub struct StateLock<T: Touched> {
    exclusive: Mutex<Looks>,
    sharing: AtomicBool,
    /// Looks in a row before they are shared.
    share_after: u32,
    stripes: Box<[OneStripe<T::Touch>]>,
    state: UnsafeCell<T>,
}

/// The counts of looks, under `exclusive`.
struct Looks {
    /// Looks in a row that took the exclusive lock.
    in_a_row: u32,
    /// Looks are shared from the release of the lock on.
    share: bool,
}

type OneStripe<N> = Apart<Mutex<Touches<N>>>;

struct Touches<N> {
    len: usize,
    left: [N; TOUCHES_MAX],
}

/// All stripes, held.
struct AllStripes<'a, N>([Option<MutexGuard<'a, Touches<N>>>; STRIPES_MAX]);

/// The state, for one thread.
pub struct StateGuard<'a, T: Touched> {
    #[cfg(feature = "lock-times")]
    _held: crate::lock_times::TimedLock,
    lock: &'a StateLock<T>,
    looks: MutexGuard<'a, Looks>,
    /// The part of the last decision that may run beside later ones. Fields are dropped in their
    /// order, so it runs when the lock is given back.
    later: Deferred,
}

// SAFETY: the lock hands out `&T` to several threads at once, or `&mut T` to one; touches move from
// thread to thread.
unsafe impl<T: Touched + Send + Sync> Sync for StateLock<T> where T::Touch: Send {}

impl<'a, T: Touched> StateGuard<'a, T> {
    fn new(lock: &'a StateLock<T>, looks: MutexGuard<'a, Looks>) -> Self {
        StateGuard {
            #[cfg(feature = "lock-times")]
            _held: crate::lock_times::TimedLock::new(),
            lock,
            looks,
            later: Deferred::nothing(),
        }
    }

    /// Decides with `decide`, whose deferred part runs once the lock is given back.
    ///
    /// The deferred part of the decision before runs first.
    pub fn defer(&mut self, decide: impl FnOnce(&mut T) -> Deferred) {
        self.later.finish();
        self.later = decide(self);
    }

    /// Gives the lock back, and returns the deferred part of the last decision.
    #[cfg(test)]
    pub(crate) fn release(mut self) -> Deferred {
        std::mem::replace(&mut self.later, Deferred::nothing())
    }
}

impl<T: Touched> StateLock<T> {
    /// Returns a lock over `state` for threads with these stripes. Looks are shared after
    /// `share_after` looks in a row; always, if it is 0.
    pub fn new(state: T, stripes: &Stripes, share_after: u32) -> Self {
        let stripe = || Apart(Mutex::new(Touches { len: 0, left: [T::Touch::default(); TOUCHES_MAX] }));
        StateLock {
            exclusive: Mutex::new(Looks { in_a_row: 0, share: false }),
            sharing: AtomicBool::new(share_after == 0),
            share_after,
            stripes: (0..stripes.count()).map(|_| stripe()).collect(),
            state: UnsafeCell::new(state),
        }
    }

    /// Locks the state for this thread alone, with all touches applied.
    pub fn lock(&self) -> StateGuard<'_, T> {
        let mut looks = lock_soon(&self.exclusive);
        looks.in_a_row = 0;
        looks.share = self.share_after == 0;
        if self.sharing.load(Relaxed) {
            let stripes = self.apply_all(&mut looks);
            self.sharing.store(false, Relaxed);
            drop(stripes);
        }
        StateGuard::new(self, looks)
    }

    /// Looks at the state beside other threads, and leaves a touch.
    ///
    /// `shared` returns its finding and, if later decisions need one, a touch. If looks are not
    /// shared, or `shared` finds nothing, `alone` looks and does the work of the touch at once.
    #[inline]
    pub fn look<R>(
        &self,
        stripe: Stripe,
        shared: impl Fn(&T) -> Option<(R, Option<T::Touch>)>,
        alone: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        for _ in 0..TRIES_MAX {
            let mut touches = lock_soon(&self.stripes[stripe.0]);
            if touches.len == TOUCHES_MAX {
                drop(touches);
                self.empty(stripe);
                touches = lock_soon(&self.stripes[stripe.0]);
            }
            // `Acquire`: the look sees the decisions made before the sharing began.
            if touches.len < TOUCHES_MAX && self.sharing.load(Acquire) {
                // SAFETY: this stripe is held, and `sharing` is set: no thread gets the state
                // exclusively before the stripe is released.
                let Some((found, touch)) = shared(unsafe { &*self.state.get() }) else { break };
                // SAFETY: as above.
                let applied = |touch: &T::Touch| touches.len == 0 && unsafe { &*self.state.get() }.apply_now(touch);
                if let Some(touch) = touch.filter(|touch| !applied(touch)) {
                    let at = touches.len;
                    touches.left[at] = touch;
                    touches.len += 1;
                }
                return Some(found);
            }
            drop(touches);
            if let Some(mut state) = self.lock_to_look() {
                return alone(&mut state);
            }
        }
        alone(&mut self.lock())
    }

    /// Takes the exclusive lock for a look. Returns `None` if looks are shared by now.
    fn lock_to_look(&self) -> Option<StateGuard<'_, T>> {
        let mut looks = lock_soon(&self.exclusive);
        if self.sharing.load(Relaxed) {
            return None;
        }
        looks.in_a_row = looks.in_a_row.saturating_add(1);
        looks.share = looks.in_a_row >= self.share_after;
        Some(StateGuard::new(self, looks))
    }

    /// Applies all touches while this stripe is full. Looks stay shared.
    #[cold]
    fn empty(&self, stripe: Stripe) {
        // The holder of the lock mostly applies this stripe's touches with all others: then the
        // wait is over.
        let is_full = || self.stripes[stripe.0].try_lock().is_none_or(|touches| touches.len == TOUCHES_MAX);
        let mut looks = None;
        for spin in 0..SPINS_MAX {
            looks = self.exclusive.try_lock();
            if looks.is_some() || !is_full() {
                break;
            }
            pause(spin);
        }
        if !is_full() {
            return;
        }
        let mut looks = looks.unwrap_or_else(|| self.exclusive.lock());
        if self.sharing.load(Relaxed) && self.stripes[stripe.0].lock().len == TOUCHES_MAX {
            drop(self.apply_all(&mut looks));
        }
    }

    /// Holds all stripes, so that no thread looks, and applies their touches.
    fn apply_all(&self, _exclusive: &mut MutexGuard<'_, Looks>) -> AllStripes<'_, T::Touch> {
        let mut held = AllStripes([const { None }; STRIPES_MAX]);
        for (place, stripe) in held.0.iter_mut().zip(&self.stripes) {
            *place = Some(lock_soon(stripe));
        }
        // SAFETY: `exclusive` and all stripes are held.
        let state = unsafe { &mut *self.state.get() };
        for touches in held.0.iter_mut().flatten() {
            let len = std::mem::take(&mut touches.len);
            if len > 0 {
                state.apply(&touches.left[..len]);
            }
        }
        held
    }
}

/// Locks a mutex that is held for microseconds: parking this thread and waking it would take
/// longer.
#[inline]
fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Some(guard) => guard,
        None => wait_soon(mutex),
    }
}

#[cold]
fn wait_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for spin in 0..SPINS_MAX {
        pause(spin);
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
    }
    // The thread that holds it may not be running now.
    mutex.lock()
}

/// Pauses for a fraction of a microsecond: short at first, because most decisions are short.
fn pause(spin: u32) {
    (0..=spin.min(PAUSES_MAX - 1)).for_each(|_| std::hint::spin_loop());
}

impl<T: Touched> Deref for StateGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `exclusive` is held, and `sharing` was cleared: no other thread has the state.
        unsafe { &*self.lock.state.get() }
    }
}

impl<T: Touched> DerefMut for StateGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { &mut *self.lock.state.get() }
    }
}

impl<T: Touched> Drop for StateGuard<'_, T> {
    fn drop(&mut self) {
        if self.looks.share {
            // `Release`: a thread that finds it set sees the decisions.
            self.lock.sharing.store(true, Release);
        }
    }
}
