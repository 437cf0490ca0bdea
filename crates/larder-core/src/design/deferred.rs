//! The part of a decision that is left to do, beside other decisions.
//!
//! Invariants: it runs once, when it is dropped at the latest. It stays on the thread that decided,
//! so it cannot be kept across a wait.
//!
//! It does not know its own work.

/// The part of a decision that a design does under its own lock, which is held already.
///
/// Another thread that needs the data behind that lock waits until the part is done, so it sees the
/// order of decisions. Estimates of a design, such as the references to a content, may lag
/// meanwhile. The caller may therefore give back the lock of the decision first, and run this part
/// then. It makes no other decision in between, because it could wait for itself.
#[must_use = "it is done where it is dropped, and others wait for it until then"]
pub struct Deferred(Option<Box<dyn FnOnce()>>);

impl Deferred {
    /// Returns a finished one.
    pub fn nothing() -> Deferred {
        Deferred(None)
    }

    /// Returns one with `rest` left to do.
    pub fn new(rest: impl FnOnce() + 'static) -> Deferred {
        Deferred(Some(Box::new(rest)))
    }

    /// Runs it now, if it has not run.
    pub fn finish(&mut self) {
        if let Some(rest) = self.0.take() {
            rest();
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.finish();
    }
}
