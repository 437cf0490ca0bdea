//! The entries of a log about addresses, as a recovery reads them.
//!
//! It does not decide which content is trusted.

use crate::{
    ranges::{Run, RunMap},
    types::{Fingerprint, Lba},
};
use std::collections::BTreeMap;

/// The entries of a log about addresses, mapped in the end or not.
#[derive(Default)]
pub(super) struct Logged {
    /// Overwritten or trimmed addresses, not mapped since.
    forgotten: RunMap,
    /// Addresses with the last mapped content, as far as known.
    mapped: BTreeMap<Lba, Option<Fingerprint>>,
}

impl Logged {
    /// Notes that `lba` was mapped.
    pub fn map(&mut self, lba: Lba, content: Option<Fingerprint>) {
        self.forgotten.remove(lba, 1);
        self.mapped.insert(lba, content);
    }

    /// Notes that a run was overwritten, or trimmed.
    pub fn forget(&mut self, first: Lba, count: u64) {
        let end = Lba(first.0.saturating_add(count));
        let inside: Vec<Lba> = self.mapped.range(first..end).map(|(&lba, _)| lba).collect();
        for lba in inside {
            self.mapped.remove(&lba);
        }
        if count > 0 {
            self.forgotten.insert(Run::new(first, count, 0));
        }
    }

    /// Returns the content of `lba`, given its content in the checkpoint before.
    pub fn content(&self, lba: Lba, before: Fingerprint) -> Option<Fingerprint> {
        match (self.forgotten.get(lba), self.mapped.get(&lba)) {
            (Some(_), _) => None,
            (None, Some(content)) => *content,
            (None, None) => Some(before),
        }
    }
}
