//! The order in which reads and writes get the buffer's frames.
//!
//! Invariants: reads go in their order, and so do writes. If reads wait their turn, no request gets
//! a frame before an earlier request.
//!
//! It does not give frames back; requests that are over do that.

use super::{Drive, Pending};

impl Drive {
    /// Returns true if a request has to wait for `other`, the first of the other queue.
    ///
    /// It has to if `other` was made before, and reads wait their turn.
    fn waits_for(&self, request: u64, other: Option<u64>) -> bool {
        self.reads_in_turn && other.is_some_and(|other| other < request)
    }

    /// Begins reads for as long as the next one finds its page in the buffer, or room for it.
    pub(super) fn begin_reads(&mut self) {
        while let Some(&(request, lpn)) = self.reads_waiting.front() {
            if self.waits_for(request, self.writes_waiting.front().copied()) {
                break;
            }
            if self.buffer.holds(lpn) {
                self.times.buffer_hits += 1;
                self.link(request, false);
            } else if self.buffer.take_frame() {
                self.read(request, lpn);
            } else {
                break;
            }
            self.reads_waiting.pop_front();
        }
    }

    /// Puts written pages into the buffer, as far as there is room.
    pub(super) fn fill_buffer(&mut self) {
        while let Some(&request) = self.writes_waiting.front() {
            if self.waits_for(request, self.reads_waiting.front().map(|(read, _)| *read)) {
                return;
            }
            let Some(Pending { pages, .. }) = self.requests.get_mut(&request) else { return };
            let mut put = 0;
            while let Some(&page) = pages.front()
                && self.buffer.put(request, page)
            {
                pages.pop_front();
                put += 1;
            }
            let is_all = pages.is_empty();
            (0..put).for_each(|_| self.link(request, false));
            if !is_all {
                return;
            }
            self.writes_waiting.pop_front();
        }
    }
}
