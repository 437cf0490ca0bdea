//! What is left to do of a decision, beside others.
//!
//! Invariants: it is done once, when it is dropped at the latest. It stays on the thread that decided, so it cannot be kept across a wait.
//!
//! What it does not do: know what it is.

/// The part of a decision that a design does under a lock of its own, which is held already: whoever asks for what that lock guards waits until
/// it is done, and so finds it done, in the order in which the decisions were made. What a design only estimates, such as how often a content is
/// referred to, may lag by what is being done. So the caller may give back the lock under which
/// he decided, and do this then. Between he decides nothing else, for he could wait for himself.
#[must_use = "it is done where it is dropped, and others wait for it until then"]
pub struct Deferred(Option<Box<dyn FnOnce()>>);

impl Deferred {
    /// All is done.
    pub fn nothing() -> Deferred {
        Deferred(None)
    }

    /// This is left.
    pub fn new(rest: impl FnOnce() + 'static) -> Deferred {
        Deferred(Some(Box::new(rest)))
    }

    /// Does it now, if it is not done.
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
