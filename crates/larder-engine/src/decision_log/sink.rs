//! The sink of decisions, and the causes of a lookup.
//!
//! Invariants: without a sink nothing is noted.
//!
//! It does not know the decisions of a state.

use larder_core::decisions::{Answer, Event};
use parking_lot::Mutex;
use std::{fmt, sync::Arc};

/// The receiver of events; see the module. It is called under a lock that every request needs, or
/// beside reads that hit. So it should take no time, and must not call the cache.
pub type Sink = Arc<dyn Fn(&Event, &Answer) + Send + Sync>;

/// A sink, or none, among the options of an opening.
#[derive(Clone, Default)]
pub struct DecisionLog {
    sink: Option<Sink>,
    turn: Arc<Mutex<()>>,
}

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sink.is_some() { "a sink" } else { "none" })
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
    /// Returns the log that tells this sink.
    pub fn to(sink: impl Fn(&Event, &Answer) + Send + Sync + 'static) -> DecisionLog {
        DecisionLog { sink: Some(Arc::new(sink)), turn: Arc::default() }
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
