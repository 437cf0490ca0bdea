//! Decisions of a cache on a client's request, chunk by chunk, and its requests to its devices.
//!
//! Role: after each chunk the cache learns which data the drive has dropped by itself. Then it
//! writes back surplus dirty data ([`dirty`](crate::dirty)), as in a replay without time. So a
//! request of many chunks makes no more dirty at once than a request of one.
//!
//! Invariants: the drive learns of dirty and clean data in the moment of the decision. Data that it
//! dropped before a request is no hit of the request.
//!
//! It does not ask the devices.

use super::{Whole, clients::ClientRequest, plan::Plan};
use crate::tally::Tally;

impl Whole {
    /// Returns the tasks for a request.
    pub(super) fn decide(&mut self, request: &ClientRequest, is_counted: bool) -> Plan {
        let mut plan = Plan::default();
        self.follow_drive(&mut plan);
        for chunk in &request.chunks {
            let tally = if is_counted { &mut self.figures.tally } else { &mut Tally::default() };
            self.devices.advise(&mut *self.cache);
            self.cache.replay(std::slice::from_ref(chunk), tally);
            self.cache.take_requests(&mut self.asked);
            self.devices.advisor_follows(&self.asked);
            self.add_asked(&mut plan);
            self.follow_drive(&mut plan);
        }
        plan
    }

    /// Tells the cache which data the drive dropped, and writes back surplus dirty data.
    fn follow_drive(&mut self, plan: &mut Plan) {
        loop {
            for bytes in self.devices.take_evicted() {
                self.cache.evict_range(bytes);
                self.cache.take_requests(&mut self.asked);
                self.add_asked(plan);
            }
            let Some(bytes) = self.devices.too_dirty() else { break };
            self.cache.clean_range(bytes);
            self.cache.take_requests(&mut self.asked);
            self.add_asked(plan);
        }
    }

    fn add_asked(&mut self, plan: &mut Plan) {
        self.devices.told(&self.asked);
        plan.add(&self.asked, self.pages.as_mut());
    }
}
