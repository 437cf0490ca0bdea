//! A store's reason to refuse options.
//!
//! Invariants: it is the end of one sentence.
//!
//! It does not know the store.

/// A store's reason to refuse options: the end of a sentence that begins with its design.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The fault.
    pub why: String,
    /// The options to ask for instead, of the same design.
    pub instead: String,
}

impl Refusal {
    pub fn new(why: impl Into<String>, instead: impl Into<String>) -> Refusal {
        Refusal { why: why.into(), instead: instead.into() }
    }
}
