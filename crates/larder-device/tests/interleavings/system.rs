//! The kernel's part for scheduled threads: a clock, and a poll that lets other threads go on.
//!
//! Invariants: the clock goes on only when a poll ends by time, and never back. Descriptors are
//! real ones, so that the next poll sees the bytes a thread wrote.
//!
//! It does not block. A poll without an end looks again and again, and a lost wake-up shows as a
//! schedule that never ends.

use real_libc::{c_int, nfds_t, pollfd, sigset_t, timespec};
use real_std::{
    ops::{Add, Sub},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};
use shuttle::rand::Rng;

/// Looks that a poll takes before its time is over.
const TIMED_LOOKS_MAX: u32 = 4;

static NANOS: AtomicU64 = AtomicU64::new(1);

/// An instant of the schedule's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Instant {
        Instant(Duration::from_nanos(NANOS.load(SeqCst)))
    }
    pub fn checked_add(self, by: Duration) -> Option<Instant> {
        self.0.checked_add(by).map(Instant)
    }
    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
    pub fn elapsed(self) -> Duration {
        Instant::now().0 - self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, by: Duration) -> Instant {
        Instant(self.0 + by)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.0 - earlier.0
    }
}

/// Polls as the system's call, but lets other threads run while it waits.
///
/// # Safety
/// As the system's.
pub unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *const timespec, _mask: *const sigset_t) -> c_int {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's array, and a time that outlives the call.
    let look = || unsafe { real_libc::ppoll(fds, count, &now, real_std::ptr::null()) };
    // SAFETY: null, or the caller's time.
    let limit = unsafe { limit.as_ref() }.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    let looks = shuttle::rand::thread_rng().gen_range(0..TIMED_LOOKS_MAX);
    let mut looked = 0;
    loop {
        let ready = look();
        if ready != 0 || limit == Some(Duration::ZERO) {
            return ready;
        }
        if let Some(limit) = limit {
            if looked >= looks {
                NANOS.fetch_add(limit.as_nanos().min(u128::from(u32::MAX) << 20) as u64, SeqCst);
                return 0;
            }
            looked += 1;
        }
        shuttle::thread::yield_now();
    }
}
