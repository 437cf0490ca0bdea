//! The sink of decisions, and the causes of a lookup.
//!
//! Invariants: without a sink nothing is noted.
//!
//! It does not know the decisions of a state.

use larder_core::decisions::{Answer, Event};
use std::{fmt, sync::Arc};

/// The receiver of events; see the module. It is called under a lock that every request needs, so
/// it should take no time, and must not call the cache.
pub type Sink = Arc<dyn Fn(&Event, &Answer) + Send + Sync>;

/// A sink, or none, among the options of an opening.
#[derive(Clone, Default)]
pub struct DecisionLog(pub Option<Sink>);

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a sink" } else { "none" })
    }
}

/// The request that looks an address up.
#[derive(Clone, Copy, Debug)]
pub enum LookupCause {
    /// A read of these sectors of the chunk, `first..end`.
    Read(usize, usize),
    /// A write of a part of the chunk.
    Merge,
}

impl DecisionLog {
    /// Tells the sink, if there is one.
    #[inline]
    pub fn note(&self, made: impl FnOnce() -> (Event, Answer)) {
        if let Some(sink) = &self.0 {
            let (event, answer) = made();
            sink(&event, &answer);
        }
    }
}
