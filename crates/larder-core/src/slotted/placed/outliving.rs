//! What is logged of addresses that are not mapped: CacheDedup has "the entire Metadata Cache" persistent (section 3.3), so that a crash may
//! bring back what an address held whose data had left. Whoever changes such an address on the origin has that logged first, durably, as
//! for one that is mapped: [`Design::suspend`](crate::design::Design::suspend) and [`Design::unmap`](crate::design::Design::unmap) say yes
//! of it.
//!
//! A crash brings back what the history of a checkpoint has, where the log behind it says nothing of the address. So it is not enough to
//! look at what the design knows now: it may have let go of the address since, or have it without a content. Those are noted as lost until no
//! checkpoint has them any more.
//!
//! Invariants: the content of an address is believed after a crash only if each change of it since was logged.
//!
//! What it does not do: log.

use super::{Placed, restored::is_believable};
use crate::{
    ranges::{Run, RunMap},
    types::{Fingerprint, Lba},
};
use std::collections::BTreeMap;

impl Placed {
    /// Whether a crash might have `lba` hold again what it holds now, though it is not mapped.
    pub(super) fn outlives(&self, lba: Lba) -> bool {
        self.is_remembered(lba) || self.design.looks_at_content() && self.lost.has(lba.0)
    }

    /// Whether the design knows what `lba` holds.
    pub(super) fn is_remembered(&self, lba: Lba) -> bool {
        let content = self.design.content_of(lba).filter(|content| is_believable(lba, content));
        content.is_some() && !self.suspended.contains(&lba)
    }

    /// Whether that is so of any address of a run.
    pub(super) fn any_outlives(&self, first: Lba, count: u64) -> bool {
        // Of a run that is longer than the lists nobody wants to know it exactly.
        let is_long = count > self.design.sizes().addresses;
        self.design.looks_at_content() && (is_long || (first.0..first.0 + count).any(|lba| self.outlives(Lba(lba))))
    }

    /// The design does not know any more what `lba` holds.
    pub(super) fn note_lost(&mut self, lba: Lba) {
        if self.design.looks_at_content() {
            self.lost.add(lba.0);
        }
    }
}

/// What a log says of addresses, whether it still has them mapped in the end or not.
#[derive(Default)]
pub(super) struct Logged {
    /// Overwritten, or trimmed, and not mapped since.
    forgotten: RunMap,
    /// Mapped last to this content, as far as that is known.
    mapped: BTreeMap<Lba, Option<Fingerprint>>,
}

impl Logged {
    /// `lba` was mapped.
    pub fn map(&mut self, lba: Lba, content: Option<Fingerprint>) {
        self.forgotten.remove(lba, 1);
        self.mapped.insert(lba, content);
    }

    /// A run was overwritten, or trimmed.
    pub fn forget(&mut self, first: Lba, count: u64) {
        let end = Lba(first.0.saturating_add(count));
        let inside: Vec<Lba> = self.mapped.range(first..end).map(|(&lba, _)| lba).collect();
        for lba in inside {
            self.mapped.remove(&lba);
        }
        if count > 0 {
            self.forgotten.insert(Run { first, count, seq: 0, no_hole: false, advisory: false });
        }
    }

    /// What `lba` holds, of which a checkpoint before had this content.
    pub fn content(&self, lba: Lba, before: Fingerprint) -> Option<Fingerprint> {
        match (self.forgotten.get(lba), self.mapped.get(&lba)) {
            (Some(_), _) => None,
            (None, Some(content)) => *content,
            (None, None) => Some(before),
        }
    }
}
