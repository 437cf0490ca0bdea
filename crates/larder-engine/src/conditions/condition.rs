//! A condition: something that an operator should know or do.
//!
//! Invariants: its words are one sentence.
//!
//! It does not look for conditions.

use crate::config::policies::OriginChanged;

/// The weight of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// An operator should look.
    Warning,
    /// The cache does less than it should, or data is lost.
    Degraded,
}

/// One fault or notable state.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Condition {
    /// Its name, which does not change: one of those that [`advice`](crate::advice) lists.
    pub name: &'static str,
    /// Its weight.
    pub severity: Severity,
    /// One sentence.
    pub what: String,
}

/// The findings of the opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    /// A superblock twin was damaged or older, and was written anew.
    pub superblock_repaired: Option<usize>,
    /// The fence was up: the flash was emptied.
    pub emptied: bool,
    /// Another program had changed the origin, and the opening did this.
    pub origin_changed: Option<OriginChanged>,
    /// Clean mappings of the checkpoint were forgotten, and a later opening may find them again.
    pub is_incomplete: bool,
}
