//! [`StateLock`]: the lock of the state. One thread at a time decides; many may look at once, and leave behind what their
//! looking means for later decisions.
//!
//! A thread that only looks takes the lock of its own stripe ([`stripes`](crate::stripes)), on which no other thread waits, and so
//! disturbs none. What it leaves is a *touch*, in the stripe's buffer, which is the batching of BP-Wrapper (Ding, Jiang and
//! Zhang, "BP-Wrapper: a system framework making any replacement algorithms (almost) lock contention free", ICDE 2009,
//! section III). Whoever takes the lock for himself goes through all stripes: then nobody looks any more, and he applies all touches
//! first. A stripe that is full is a reason to do so, and nothing is dropped. What can be applied at once, beside others who look, is
//! not left at all ([`Touched::apply_now`]), unless something before it was.
//!
//! Going through all stripes costs a writer something. So looks are shared only as long as they come in a row, which is
//! the bias of BRAVO (Dice and Kogan, "BRAVO: biased locking for reader-writer locks", USENIX ATC 2019), counted in looks in
//! place of time, for the engine has no clock: a decision ends the sharing, and until so many looks have followed one
//! another they take the lock as a decision does. `parking_lot::RwLock` is fair, too, but all its readers change one word: on the
//! cores of a large machine that costs as much as the exclusive lock did.
//!
//! Lock order: `exclusive`, then the stripes by number, then what a design locks by itself. Who holds a stripe waits for nothing but that, which is
//! held for a moment by who asks for nothing of this.
//!
//! Invariants:
//! - `sharing` is set and taken back only under `exclusive`, and taken back only while all stripes are held. Who holds
//!   a stripe and finds it set may look, for nobody decides meanwhile; who holds `exclusive` while it is not set, or all
//!   stripes besides, may change the state.
//! - Touches are applied to the very state that they were left in: nothing else has changed it since. Those of one thread
//!   are applied in its order; those of threads that look at the same time in any.
//! - Nobody starves: `parking_lot::Mutex` hands itself over to who has waited for half a millisecond, `exclusive` and stripes alike, and
//!   looks are as short as decisions: no wait, no I/O.
//!
//! What it does not do: know what is looked at, or what a touch means.

use crate::stripes::{Apart, STRIPES_MAX, Stripe, Stripes};
use parking_lot::{Mutex, MutexGuard};
use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering::*},
};

/// Touches that a stripe keeps at most. All are applied when one is full, which costs a few hundred nanoseconds, and stops
/// everybody.
const TOUCHES_MAX: usize = 32;
/// Times that a look is tried while others turn the sharing on and off.
const TRIES_MAX: usize = 4;

/// Times that a thread looks again whether touches are applied, or the lock is free, before it parks.
const SPINS_MAX: u32 = 64;
/// Pauses of the processor between, at most: one the first time, and each time one more.
const PAUSES_MAX: u32 = 8;

/// What a [`StateLock`] can guard.
pub trait Touched {
    /// What looking means for later decisions.
    type Touch: Copy + Default;

    /// Applies a touch at once, beside others who look and do so. False, and nothing changed, where that cannot be.
    fn apply_now(&self, _touch: &Self::Touch) -> bool {
        false
    }

    /// Applies what was left, in its order. The state is as it was when that was looked at, but for other touches.
    fn apply(&mut self, touches: &[Self::Touch]);
}

/// See the module.
pub struct StateLock<T: Touched> {
    exclusive: Mutex<Looks>,
    sharing: AtomicBool,
    /// Looks in a row before they are shared.
    share_after: u32,
    stripes: Box<[OneStripe<T::Touch>]>,
    state: UnsafeCell<T>,
}

/// Under `exclusive`.
struct Looks {
    /// Looks in a row that took the lock.
    in_a_row: u32,
    /// They are shared from the moment on that the lock is given back.
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
    _held: crate::lock_times::Held,
    lock: &'a StateLock<T>,
    looks: MutexGuard<'a, Looks>,
}

// SAFETY: the lock hands out `&T` to several threads at once, or `&mut T` to one; touches move from thread to thread.
unsafe impl<T: Touched + Send + Sync> Sync for StateLock<T> where T::Touch: Send {}

impl<'a, T: Touched> StateGuard<'a, T> {
    fn new(lock: &'a StateLock<T>, looks: MutexGuard<'a, Looks>) -> Self {
        StateGuard {
            #[cfg(feature = "lock-times")]
            _held: crate::lock_times::Held::new(),
            lock,
            looks,
        }
    }
}

impl<T: Touched> StateLock<T> {
    /// `state`, to be looked at by threads with these stripes. Looks are shared after so many in a row; with 0 always.
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

    /// The state for this thread alone, all touches applied.
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

    /// Looks at the state, beside others, and leaves a touch: `shared` says what it found, and what that means for later, if it means
    /// anything. Where looks are not shared, and where `shared` finds nothing, `alone` looks, and does at once what the touch would do.
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
            // `Acquire`: what was decided before the sharing began is seen.
            if touches.len < TOUCHES_MAX && self.sharing.load(Acquire) {
                // SAFETY: this stripe is held, and `sharing` is set: nobody has the state for himself before the stripe is given back.
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

    /// The lock, for a look; `None` where looks are shared by now.
    fn lock_to_look(&self) -> Option<StateGuard<'_, T>> {
        let mut looks = lock_soon(&self.exclusive);
        if self.sharing.load(Relaxed) {
            return None;
        }
        looks.in_a_row = looks.in_a_row.saturating_add(1);
        looks.share = looks.in_a_row >= self.share_after;
        Some(StateGuard::new(self, looks))
    }

    /// Applies all touches, as long as this stripe is full. Looks stay shared.
    #[cold]
    fn empty(&self, stripe: Stripe) {
        // Whoever has the lock applies this stripe's touches with all others, mostly: then there is nothing to wait for.
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

    /// Holds all stripes, so that nobody looks, and applies what was left in them.
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

/// Locks what is held for microseconds, by who decides, applies touches or looks: parking this thread and waking it would take longer.
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
    // Who holds it does not run now, perhaps.
    mutex.lock()
}

/// A fraction of a microsecond: short at first, for most decisions are.
fn pause(spin: u32) {
    (0..=spin.min(PAUSES_MAX - 1)).for_each(|_| std::hint::spin_loop());
}

impl<T: Touched> Deref for StateGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `exclusive` is held, and `sharing` was taken back: nobody else has the state.
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
            // `Release`: who finds it set sees what was decided.
            self.lock.sharing.store(true, Release);
        }
    }
}
