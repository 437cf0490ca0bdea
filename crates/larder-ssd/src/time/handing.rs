//! The way from the layer to the planes, through the controller.
//!
//! A batch, a trim, a flush or idle time lets the layer do operations. The controller hashes them,
//! as far as they ask for it. Then they go to the planes.
//!
//! Invariants: the controller has one batch at a time. The operations come to the planes in the
//! order in which the layer did them. A page gives its frame back once: when it is programmed. If
//! its content is there, it does so when it is hashed and that content is programmed.
//!
//! It does not time the handover of a batch.

use super::{Drive, buffer::HandOver, events::Event, handed_over::HandedOver, nanos::Nanos};
use crate::{
    geometry::Lpn,
    op::{FlashOp, PageSource},
};

impl Drive {
    /// Hands over the oldest batch, if it is whole.
    pub(super) fn hand_over(&mut self) -> Option<HandedOver> {
        let fill = self.buffer.fill_percent();
        let HandOver { batch, pages, trimmed } = self.buffer.hand_over()?;
        self.ftl.tell_buffer_fill(fill);
        let mut ops = Vec::new();
        if !pages.is_empty() {
            self.ftl.write(&pages, &mut |op: &FlashOp| ops.push(*op));
        }
        for Lpn(lpn) in trimmed {
            self.ftl.trim(lpn..lpn + 1, &mut |op: &FlashOp| ops.push(*op));
        }
        Some(HandedOver { batch: Some((batch, pages)), ops, ..HandedOver::default() })
    }

    /// Hashes operations in the controller, behind those that it has, and then programs them.
    pub(super) fn hash_and_program(&mut self, handed: HandedOver) {
        self.times.hashing_ns += u128::from(self.hashes_ns(&handed));
        self.hashing.push_back(handed);
        if self.hashing.len() == 1 {
            self.hash_next();
        }
    }

    /// Ends the hashing of the controller's first operations.
    pub(super) fn is_hashed(&mut self) {
        if let Some(handed) = self.hashing.pop_front() {
            self.program(handed);
        }
        self.hash_next();
    }

    /// Begins with the next operations; those without a hash go to the planes at once.
    fn hash_next(&mut self) {
        while let Some(handed) = self.hashing.front() {
            match self.hashes_ns(handed) {
                0 => {
                    let handed = self.hashing.pop_front().unwrap_or_default();
                    self.program(handed);
                }
                ns => return self.events.put(self.now + ns, Event::Hashed),
            }
        }
    }

    fn hashes_ns(&self, handed: &HandedOver) -> Nanos {
        let hash_ns = |op: &FlashOp| match op {
            FlashOp::Hash { hash, .. } => self.profile.hash_ns(*hash),
            _ => 0,
        };
        handed.ops.iter().map(hash_ns).sum()
    }

    /// Gives hashed operations to the planes.
    ///
    /// Pages whose content is there already free their frames when that content is programmed.
    fn program(&mut self, handed: HandedOver) {
        let Some((batch, pages)) = handed.batch else {
            return self.enqueue(&handed.ops, None, handed.awaited);
        };
        let is_programmed = |op: &FlashOp| match op {
            FlashOp::Program { source: PageSource::Host(lpn, _), .. } => Some(lpn.0),
            _ => None,
        };
        let mut programmed: Vec<u32> = handed.ops.iter().filter_map(is_programmed).collect();
        programmed.sort_unstable();
        self.programs_ahead += programmed.len() as u64;
        self.enqueue(&handed.ops, Some(batch), None);
        for page in pages.iter().filter(|page| programmed.binary_search(&page.lpn.0).is_err()) {
            let refers_to = self.ftl.locate(page.lpn);
            if !refers_to.is_some_and(|ppa| self.filling.waits(ppa, (page.lpn, batch))) {
                self.buffer.release(page.lpn, batch);
            }
        }
    }
}
