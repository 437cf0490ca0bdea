//! The condition that an orderly end notes no mark of its origin.
//!
//! It does not ask the origin.

use crate::conditions::condition::{Condition, Severity};
use parking_lot::Mutex;

/// The reason that an end notes no mark, if the origin has one and did not tell it.
#[derive(Default)]
pub struct MissingMark(Mutex<Option<String>>);

impl MissingMark {
    /// Notes that the mark is missing, for this reason.
    pub fn note(&self, why: String) {
        *self.0.lock() = Some(why);
    }

    /// Returns the condition that the mark is missing.
    pub fn condition(&self) -> Option<Condition> {
        let what = format!(
            "the origin does not tell its change mark ({}): the next opening will not notice if another program has \
             changed the origin by then",
            self.0.lock().as_ref()?
        );
        Some(Condition { name: "origin_unmarked", severity: Severity::Warning, what })
    }
}
