//! The health of the flash in this opening: its failure, the lost data, and the signs before.
//!
//! Invariants: a failure is final, so the first error stays. Only a failure leaves data undurable,
//! and such data only becomes less. A name that was lost stays lost.
//!
//! It does not look at the device, judge a sign, or wake a task.

use crate::error::EngineError;
use larder_core::Lba;
use larder_device::IoError;
use std::time::Duration;

/// A condition reports failed reads of the flash for this long after the last one.
const READS_FAILED_LATELY: Duration = Duration::from_secs(60);

/// Dirty chunks that were not durable when the flash failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndurableRun {
    pub first: Lba,
    pub count: u64,
    /// The sequence number of their mapping.
    pub seq: u64,
}

/// The health of the flash.
#[derive(Default)]
pub(crate) struct FlashHealth {
    failure: Option<IoError>,
    undurable: Vec<UndurableRun>,
    /// The time of the last failed read.
    read_failed_at: Option<Duration>,
    /// Start of the time in which reads of dirty data all failed.
    unreadable_since: Option<Duration>,
    is_nameless: bool,
}

impl FlashHealth {
    /// Notes that the flash fails with `error`: it stores no more, and no device has `undurable`
    /// data. The caller has asked [`FlashHealth::is_failed`].
    pub fn fail(&mut self, error: IoError, undurable: Vec<UndurableRun>) {
        debug_assert!(!self.is_failed(), "a flash fails once");
        self.failure = Some(error);
        self.undurable = undurable;
    }

    /// Returns whether the flash failed.
    pub fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the error of a flash that failed.
    pub fn failure(&self) -> Option<&IoError> {
        self.failure.as_ref()
    }

    /// Returns an error if the flash failed.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`].
    pub fn check(&self) -> Result<(), EngineError> {
        self.check_device().map_err(EngineError::FlashFailed)
    }

    /// Returns the error of a flash that failed, as its operations do.
    ///
    /// # Errors
    /// The failure.
    pub fn check_device(&self) -> Result<(), IoError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Keeps the undurable runs that are `left`. Returns whether there are any.
    pub fn retain_undurable(&mut self, left: impl FnMut(&UndurableRun) -> bool) -> bool {
        self.undurable.retain(left);
        !self.undurable.is_empty()
    }

    /// Notes a failed read at the time `now`.
    pub fn read_failed(&mut self, now: Duration) {
        self.read_failed_at = Some(now);
    }

    /// Returns the time since the last failed read, if that was lately.
    pub fn reads_failed_lately(&self, now: Duration) -> Option<Duration> {
        let since = now.saturating_sub(self.read_failed_at?);
        (since < READS_FAILED_LATELY).then_some(since)
    }

    /// Notes that dirty data is unreadable. Returns the time for which all reads of it have failed.
    pub fn dirty_is_unreadable(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.unreadable_since.get_or_insert(now))
    }

    /// Notes that dirty data can be read, or that room was made without it.
    pub fn dirty_is_readable(&mut self) {
        self.unreadable_since = None;
    }

    /// Returns whether all reads of dirty data fail for now.
    pub fn is_dirty_unreadable(&self) -> bool {
        self.unreadable_since.is_some()
    }

    /// Notes that the file of the flash has no name. Returns whether that is news.
    pub fn lose_name(&mut self) -> bool {
        !std::mem::replace(&mut self.is_nameless, true)
    }

    /// Returns whether the file of the flash has lost its name.
    pub fn is_nameless(&self) -> bool {
        self.is_nameless
    }

    /// Returns whether the flash loses its content: it failed, or its file has no name.
    pub fn loses_content(&self) -> bool {
        self.is_failed() || self.is_nameless
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{IoErrorKind, IoOp};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_failure_stays_and_its_undurable_data_becomes_less() {
        let mut flash = FlashHealth::default();
        assert!(flash.check().is_ok() && !flash.loses_content() && !flash.retain_undurable(|_| true));
        let runs = (0..3).map(|first| UndurableRun { first: Lba(first), count: 1, seq: first });
        flash.fail(IoError::new(IoErrorKind::Gone, IoOp::Write, 0, 512), runs.collect());
        assert!(matches!(flash.check(), Err(EngineError::FlashFailed(error)) if error.kind == IoErrorKind::Gone));
        assert!(flash.is_failed() && flash.loses_content() && !flash.is_nameless());
        assert!(flash.retain_undurable(|run| run.seq > 1));
        assert!(flash.retain_undurable(|run| run.first == Lba(2)), "the last one is left");
        assert!(!flash.retain_undurable(|_| false) && !flash.retain_undurable(|_| true), "none comes back");
    }

    #[test]
    fn a_lost_name_is_news_once() {
        let mut flash = FlashHealth::default();
        assert_eq!([flash.lose_name(), flash.lose_name()], [true, false]);
        assert!(flash.is_nameless() && flash.loses_content() && !flash.is_failed());
    }

    #[test]
    fn failed_reads_are_told_for_a_while_and_dirty_data_until_it_is_read() {
        let mut flash = FlashHealth::default();
        assert_eq!(flash.reads_failed_lately(SECOND), None);
        flash.read_failed(SECOND);
        assert_eq!(flash.reads_failed_lately(60 * SECOND), Some(59 * SECOND));
        assert_eq!(flash.reads_failed_lately(61 * SECOND), None);
        assert_eq!([5, 9].map(|now| flash.dirty_is_unreadable(now * SECOND)), [Duration::ZERO, 4 * SECOND]);
        assert!(flash.is_dirty_unreadable());
        flash.dirty_is_readable();
        assert!(!flash.is_dirty_unreadable());
        assert_eq!(flash.dirty_is_unreadable(20 * SECOND), Duration::ZERO, "the time begins anew");
    }
}
