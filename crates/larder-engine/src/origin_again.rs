//! Asks a failing origin again, in the background, so that its condition ends once its cause does.
//!
//! One task asks, from a failure on until no read and no flush fails. Before each question it
//! pauses, a second at first and 30 at last. A failed read has one block read at its place
//! ([`again`](larder_device::watched::again)). A failed flush has the origin flushed as for a
//! commit, so that its failure reaches the operations that rely on it. Clients and the destager
//! repeat writes.
//!
//! Invariants: one question at a time, none once an end began, and none while the origin owes an
//! answer. The counters of the origin's reads and errors leave these reads out.
//!
//! It does not judge the origin; its watch does.

pub(crate) mod asking;

use crate::{shared::Shared, sync::either};
use larder_device::watched::again::{ASK_AFTER, next_pause};
use std::{sync::Arc, time::Duration};

impl Shared {
    /// Asks the origin again from now on, if that may show its health and no task does.
    pub(crate) fn ask_origin_again(self: &Arc<Self>) {
        if self.origin_watch.questions().is_empty() || self.life.is_draining() {
            return;
        }
        if !self.asking.begin() {
            return;
        }
        let this = self.clone();
        self.spawn_counted(async move {
            let mut pause = ASK_AFTER;
            while this.pause_asking(pause).await {
                pause = match this.origin_watch.questions().is_empty() {
                    // A failure since this look finds the mark gone, or is found by the next look.
                    true if this.asks_no_more() => return,
                    true => ASK_AFTER,
                    false if this.origin_watch.owes_answer() => pause,
                    false => {
                        this.ask_origin().await;
                        next_pause(pause)
                    }
                };
            }
        });
    }

    /// Takes the mark of the asking task away. Returns false if it goes on after all.
    fn asks_no_more(&self) -> bool {
        self.asking.end();
        self.origin_watch.questions().is_empty() || !self.asking.begin()
    }

    /// Waits. Returns false if an end began.
    async fn pause_asking(&self, pause: Duration) -> bool {
        let until = self.runtime.now() + pause;
        loop {
            let changed = self.signals.pace.listen();
            let left = until.saturating_sub(self.runtime.now());
            if self.life.is_draining() || left.is_zero() {
                return !self.life.is_draining();
            }
            either(self.runtime.delay(left), changed).await;
        }
    }

    async fn ask_origin(self: &Arc<Self>) {
        let questions = self.origin_watch.questions();
        if let Some(offset) = questions.read {
            self.unless_closing(self.origin_watch.ask_to_read(offset)).await;
        }
        if questions.flush && !self.life.is_draining() {
            // The next FLUSH is told of a failure.
            let _ = self.flush_origin_again().await;
        }
        self.conditions_changed();
    }
}
