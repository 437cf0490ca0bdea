//! What a cache decides on a request of a client, chunk by chunk, and what it asks its devices for that.
//!
//! Role: after each chunk the cache learns what the drive has dropped by itself, and writes back what is too much to be dirty
//! ([`dirty`](crate::dirty)), as in a replay without time: a request of many chunks makes no more dirty at once than one of one.
//!
//! Invariants: the drive is told what is dirty and what is clean in the moment of the decision. What it dropped before a request
//! is no hit of that.
//!
//! What it does not do: ask the devices.

use super::{Whole, clients::ClientRequest, plan::Plan};
use crate::tally::Tally;

impl Whole {
    /// What has to happen for a request.
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

    /// What the drive dropped is gone, and the cache is to know; what is too much to be dirty is written back.
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
