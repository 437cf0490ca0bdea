//! The requests for commits, and the outcome of the last commit.
//!
//! Invariants: a failed commit takes its requests with it.
//!
//! It does not commit.

use crate::pending_log::PendingLog;
use larder_device::IoError;

/// The desk of the committer.
#[derive(Default)]
pub(crate) struct Commits {
    /// A task waits for the entries below this.
    wanted_below: u64,
    close_clean: bool,
    use_reserve: bool,
    /// The next commit makes the frame of this number durable, without entries if none waits.
    frame_wanted: u64,
    clean_closed: u64,
    /// Commits of any kind that are over.
    over: u64,
    has_ended: bool,
    /// The error of the last commit, if it failed.
    error: Option<IoError>,
}

impl Commits {
    /// Asks for a commit of the entries below `upto`, a number that the log has. With `close_clean`
    /// it also closes the open segments of clean data. With `use_reserve` it may use the log's
    /// reserve, for a checkpoint.
    pub fn request(&mut self, upto: u64, close_clean: bool, use_reserve: bool) {
        self.wanted_below = self.wanted_below.max(upto);
        self.close_clean |= close_clean;
        self.use_reserve |= use_reserve;
    }

    /// Asks the next commit for the frame of this number.
    pub fn want_frame(&mut self, frame_seq: u64) {
        self.frame_wanted = self.frame_wanted.max(frame_seq);
    }

    /// Returns whether a commit was asked for and is not done.
    pub fn are_requested(&self, log: &PendingLog) -> bool {
        self.wanted_below > log.durable_below() || self.close_clean || self.lack_frame(log)
    }

    /// Returns whether a commit still has to write a frame that was asked for.
    pub fn lack_frame(&self, log: &PendingLog) -> bool {
        log.area().position().frame_seq <= self.frame_wanted
    }

    /// Returns whether the next commit may use the log's reserve.
    pub fn may_use_reserve(&self) -> bool {
        self.use_reserve
    }

    /// Begins a commit. Returns whether it closes the open segments of clean data, too.
    pub fn begin(&mut self) -> bool {
        self.use_reserve = false;
        std::mem::take(&mut self.close_clean)
    }

    /// Notes that a commit which closed the open segments of clean data is whole.
    pub fn close_clean(&mut self) {
        self.clean_closed += 1;
    }

    /// Returns the number of commits that closed the open segments of clean data.
    pub fn clean_closed(&self) -> u64 {
        self.clean_closed
    }

    /// Ends a commit.
    pub fn end(&mut self, result: Result<(), IoError>) {
        self.over += 1;
        self.error = result.err();
        if self.error.is_some() {
            self.drop_requests();
        }
    }

    /// Drops all requests.
    pub fn drop_requests(&mut self) {
        (self.wanted_below, self.frame_wanted) = (0, 0);
        (self.close_clean, self.use_reserve) = (false, false);
    }

    /// Returns the number of commits that are over.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Returns the error of the last commit, if it failed and began after `over` commits.
    pub fn error_after(&self, over: u64) -> Option<&IoError> {
        self.error.as_ref().filter(|_| self.over > over)
    }

    /// Ends the committer: no entry becomes durable any more.
    pub fn end_for_good(&mut self) {
        self.has_ended = true;
    }

    /// Returns whether the committer has ended.
    pub fn have_ended(&self) -> bool {
        self.has_ended
    }
}
