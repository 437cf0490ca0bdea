//! Writes that the flash refuses: they are retried until the flash takes them or counts as failed.
//!
//! An operator has to mend a lack of space or quota. The write waits as long as it lasts, or as the
//! tuning allows, and a condition reports it meanwhile. Other failed writes are tried again for
//! [`FAILING_MAX`]: a device that returns from a reset takes them then. Operations that need the
//! write wait for it; reads go on. So no acknowledged data is lost.
//!
//! Invariants: a retry writes the same bytes to the same place. A cache that ends waits at most
//! [`END_WAIT`] for room; one that was dropped does not retry.
//!
//! It does not flush again: neither a failed flush nor the next one says anything of the writes
//! before it.

pub(crate) mod refusals;

use crate::{conditions::flash_refuses, shared::Shared};
use larder_device::{IoError, IoErrorKind, IoResult};
use std::{sync::atomic::Ordering::*, time::Duration};

/// A write that fails is tried again for this long, when room is not the cause.
pub const FAILING_MAX: Duration = Duration::from_secs(3);
/// A cache that ends waits this long for room on the flash.
pub const END_WAIT: Duration = Duration::from_secs(5);
/// Pause before the third try, doubling up to the maximum. The second comes at once.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One refused write, until this is dropped.
pub(crate) struct Refused<'a>(&'a Shared);

impl<'a> Refused<'a> {
    pub(crate) fn note(shared: &'a Shared, error: &IoError) -> Self {
        let waiting = {
            let mut waiting = shared.refusals.0.lock();
            waiting.writes += 1;
            waiting.last = Some(error.clone());
            waiting.writes
        };
        shared.condition_raised(|| flash_refuses(error, waiting));
        Refused(shared)
    }
}

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        self.0.refusals.0.lock().writes -= 1;
        self.0.conditions_changed();
    }
}

/// The time for which one write has been refused.
pub(crate) struct Patience {
    began: Duration,
    ending_since: Option<Duration>,
}

impl Patience {
    pub(crate) fn begin(shared: &Shared) -> Self {
        Patience { began: shared.runtime.now(), ending_since: None }
    }

    /// Returns whether a write with this error is tried again.
    pub(crate) fn is_left(&mut self, shared: &Shared, error: &IoError) -> bool {
        if shared.life.is_abandoned() || shared.state.lock().flash.is_failed() {
            return false;
        }
        let now = shared.runtime.now();
        let waited = now.saturating_sub(self.began);
        match error.kind {
            kind if kind.is_shortage() => {
                let ending_since = shared.life.is_ending().then(|| *self.ending_since.get_or_insert(now));
                shared.tuning.flash_full_timeout.is_none_or(|most| waited < most)
                    && ending_since.is_none_or(|since| now.saturating_sub(since) < END_WAIT)
            }
            IoErrorKind::Io => waited < FAILING_MAX,
            _ => false,
        }
    }
}

impl Shared {
    /// Repeats `attempt` at a write until the flash takes it.
    ///
    /// # Errors
    /// The last refusal, when the retries end: then the flash has failed, unless the runtime ends.
    pub(crate) async fn until_taken<F: Future<Output = IoResult<()>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> IoResult<()> {
        let mut error = match attempt().await {
            Err(error) if error.kind != IoErrorKind::Cancelled => error,
            over => return over,
        };
        self.counters.flash_write_errors.fetch_add(1, Relaxed);
        let (mut patience, mut pause, mut refused) = (Patience::begin(self), Duration::ZERO, None);
        loop {
            if !pause.is_zero() {
                if !patience.is_left(self, &error) {
                    return Err(error);
                }
                refused.get_or_insert_with(|| Refused::note(self, &error));
                if self.runtime.delay(pause).await.is_err() {
                    return Err(error);
                }
            }
            pause = (pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
            error = match attempt().await {
                Err(error) if error.kind != IoErrorKind::Cancelled => error,
                over => return over,
            };
        }
    }
}
