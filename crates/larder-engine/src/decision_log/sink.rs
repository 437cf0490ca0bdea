//! The sink of decisions, and the causes of a lookup.
//!
//! A build without the feature `decision-log` has no sink, and its log is of no size.
//!
//! Invariants: without a sink nothing is noted.
//!
//! It does not know the decisions of a state.

use larder_core::decisions::{Answer, Event};
use std::fmt;
#[cfg(feature = "decision-log")]
use {parking_lot::Mutex, std::sync::Arc};

/// The receiver of events; see the module. It is called under a lock that every request needs, or
/// beside reads that hit. So it should take no time, and must not call the cache.
#[cfg(feature = "decision-log")]
pub type Sink = Arc<dyn Fn(&Event, &Answer) + Send + Sync>;

/// A sink, or none, among the options of an opening.
#[derive(Clone, Default)]
pub struct DecisionLog {
    #[cfg(feature = "decision-log")]
    sink: Option<Sink>,
    #[cfg(feature = "decision-log")]
    turn: Arc<Mutex<()>>,
}

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_sink() { "a sink" } else { "none" })
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

#[cfg(feature = "decision-log")]
impl DecisionLog {
    /// Returns the log that tells this sink.
    pub fn to(sink: impl Fn(&Event, &Answer) + Send + Sync + 'static) -> DecisionLog {
        DecisionLog { sink: Some(Arc::new(sink)), turn: Arc::default() }
    }

    fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Tells the sink, if there is one.
    #[inline]
    pub fn note(&self, made: impl FnOnce() -> (Event, Answer)) {
        if let Some(sink) = &self.sink {
            let (event, answer) = made();
            sink(&event, &answer);
        }
    }

    /// Decides and tells under a lock of its own, if there is a sink.
    ///
    /// Threads that decide beside each other so tell it in the order of their decisions.
    #[inline]
    pub fn in_turn<R>(&self, decide: impl FnOnce() -> R) -> R {
        let _turn = self.sink.as_ref().map(|_| self.turn.lock());
        decide()
    }
}

#[cfg(not(feature = "decision-log"))]
impl DecisionLog {
    fn has_sink(&self) -> bool {
        false
    }

    /// Makes no event.
    #[inline]
    pub fn note(&self, _made: impl FnOnce() -> (Event, Answer)) {}

    /// Decides, and tells nothing.
    #[inline]
    pub fn in_turn<R>(&self, decide: impl FnOnce() -> R) -> R {
        decide()
    }
}
