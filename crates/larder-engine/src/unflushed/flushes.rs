//! The flushes of the origin: the writes that wait for one, and the failures.
//!
//! A flush in flight may miss writes that completed after it began, and has promised nothing yet.
//! After a failed flush, earlier writes may be lost, even if a later flush succeeds.
//!
//! Invariants: one flush is in flight at most. A failure is untold until the answer of a requester
//! of that audience has told it.
//!
//! It does not flush.

use super::waiting::Audience;
use larder_device::IoError;

/// The flushes of an opening.
#[derive(Default)]
pub struct OriginFlushes {
    is_written: bool,
    begun: u64,
    in_flight: bool,
    failures: u64,
    written_since_failure: bool,
    last_error: Option<IoError>,
    /// The last failure with its number, for each [`Audience`].
    untold: [Option<(u64, IoError)>; 2],
}

impl OriginFlushes {
    /// Returns the state after an earlier opening, which may have left writes without a flush.
    pub fn after_an_earlier_opening() -> Self {
        OriginFlushes { is_written: true, ..OriginFlushes::default() }
    }

    /// Returns whether the origin may lose written data in a power loss.
    pub fn are_due(&self) -> bool {
        self.is_written || self.in_flight
    }

    /// Notes that the origin was written, or that a write of it failed.
    pub fn note_written(&mut self) {
        (self.is_written, self.written_since_failure) = (true, true);
    }

    /// Notes that the origin keeps all writes so far.
    pub fn note_durable(&mut self) {
        self.is_written = false;
    }

    /// Begins a flush of all writes so far.
    pub fn begin(&mut self) {
        (self.is_written, self.in_flight) = (false, true);
        self.begun += 1;
    }

    /// Ends the flush in flight.
    pub fn end(&mut self) {
        self.in_flight = false;
    }

    /// Returns the number of flushes that began.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Notes a failed flush. Returns whether it may lose data of which no earlier failure tells.
    ///
    /// A repeated flush without a write since the last failure loses nothing new.
    pub fn fail(&mut self, error: &IoError, is_repeated: bool) -> bool {
        self.is_written = true;
        self.failures += 1;
        self.last_error = Some(error.clone());
        std::mem::take(&mut self.written_since_failure) || !is_repeated
    }

    /// Returns the number of failed flushes.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the error of the last failed flush.
    pub fn last_error(&self) -> Option<&IoError> {
        self.last_error.as_ref()
    }

    /// Leaves the last failure for each audience to be told of.
    pub fn leave_untold(&mut self) {
        let failure = self.last_error.clone().map(|error| (self.failures, error));
        self.untold = [failure.clone(), failure];
    }

    /// Returns the failure, with its number, that this audience has not been told of.
    pub fn untold(&self, whom: Audience) -> Option<&(u64, IoError)> {
        self.untold[whom as usize].as_ref()
    }

    /// Notes that this audience was told of the failures up to number `heard`.
    pub fn note_told(&mut self, whom: Audience, heard: u64) {
        let untold = &mut self.untold[whom as usize];
        *untold = untold.take().filter(|(number, _)| *number > heard);
    }
}
