//! From the buffer to the planes: a batch is handed to the layer, hashed by the controller, and programmed.
//!
//! Invariants: the controller has one batch at a time. A page gives its frame back once: when it is programmed, or, where its content
//! is there, when it is hashed and that content is programmed.
//!
//! What it does not do: say when a batch is handed over.

use super::{Drive, Event, Nanos, buffer::HandOver};
use crate::ssd::{
    ftl::PageWrite,
    geometry::Lpn,
    op::{Op, Source},
};

/// What the layer was handed, while the controller hashes it.
pub(super) struct HandedOver {
    /// The batch and its pages; none where the layer works on its own.
    pub batch: Option<(u64, Vec<PageWrite>)>,
    pub ops: Vec<Op>,
}

impl Drive {
    /// The oldest batch that is whole.
    pub(super) fn hand_over(&mut self) -> Option<HandedOver> {
        let fill = self.buffer.fill_percent();
        let HandOver { batch, pages, trimmed } = self.buffer.hand_over()?;
        self.ftl.tell_buffer_fill(fill);
        let mut ops = Vec::new();
        if !pages.is_empty() {
            self.ftl.write(&pages, &mut |op: &Op| ops.push(*op));
        }
        for Lpn(lpn) in trimmed {
            self.ftl.trim(lpn..lpn + 1, &mut |op: &Op| ops.push(*op));
        }
        Some(HandedOver { batch: Some((batch, pages)), ops })
    }

    /// The controller hashes what it was handed, and has it programmed then.
    pub(super) fn hash_and_program(&mut self, handed: HandedOver) {
        let hash_ns = |op: &Op| match op {
            Op::Hash { hash, .. } => self.profile.hash_ns(*hash),
            _ => 0,
        };
        let ns: Nanos = handed.ops.iter().map(hash_ns).sum();
        self.times.hashing_ns += u128::from(ns);
        match ns {
            0 => self.program(handed),
            ns => {
                self.hashing = Some(handed);
                self.at(self.now + ns, Event::Hashed);
            }
        }
    }

    /// What was handed over and hashed goes to the planes; pages whose content is there already need their frames no more, once it
    /// is there.
    pub(super) fn program(&mut self, handed: HandedOver) {
        let Some((batch, pages)) = handed.batch else {
            return self.enqueue(&handed.ops, None, None);
        };
        let is_programmed = |op: &Op| match op {
            Op::Program { source: Source::Host(lpn, _), .. } => Some(lpn.0),
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
