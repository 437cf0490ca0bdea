//! Requests of an operator: destages, checkpoints, mode switches, the end.
//!
//! Invariants: the model hears of a promise only when the request succeeded.
//!
//! It leaves requests of clients to [`crate::requests`].

use crate::{desk::Desk, life::keeps_dirty, model::Reach, plan::OperatorOp, trouble::Way};
use larder_engine::{Cache, WriteMode};
use std::sync::Arc;

impl Desk {
    /// Returns the mode for [`Desk::way`].
    ///
    /// With it come the number of mode switches that began or ended, and the number under way.
    pub fn mode(&self, cache: &Cache) -> (u64, u64, WriteMode) {
        let state = self.state.lock();
        (state.mode_switches, state.switching, cache.mode())
    }

    /// Returns the way of a request that began at `before`.
    pub fn way(&self, cache: &Cache, before: (u64, u64, WriteMode)) -> Way {
        // Behind a fence it may have gone past the flash.
        // It may also have gone past the wear budget.
        let goes_past = {
            let state = self.state.lock();
            state.fence.as_ref().is_some_and(|fence| fence.is_up()) || state.model.trouble.wears_out
        };
        let way = if self.mode(cache) != before || before.1 > 0 || (goes_past && keeps_dirty(before.2)) {
            Way::Unknown
        } else if keeps_dirty(before.2) {
            Way::Back
        } else {
            Way::Through
        };
        self.state.lock().model.trouble.was_through |= way != Way::Back;
        way
    }

    /// Executes an operator's request, and tells the model its promise.
    pub async fn operate(self: &Arc<Self>, cache: &Arc<Cache>, op: OperatorOp) {
        self.history(|| format!("the operator asks: {op:?}"));
        let start = self.state.lock().operation_begins();
        let before = self.mode(cache);
        if matches!(op, OperatorOp::SetMode(_)) {
            self.mode_switch_begins();
        }
        let result = match op {
            OperatorOp::DestageAll => match cache.destage_all().await {
                true => Ok(()),
                false => Err("not all could be destaged".to_owned()),
            },
            OperatorOp::Checkpoint => cache.checkpoint().await.map_err(|error| error.to_string()),
            OperatorOp::SetMode(mode) => cache.set_mode(mode).await.map_err(|error| error.to_string()),
            OperatorOp::Settle => {
                cache.wait_for_insertions().await;
                Ok(())
            }
            OperatorOp::Close => {
                self.close(cache, false).await;
                Ok(())
            }
            OperatorOp::Detach => {
                self.close(cache, true).await;
                Ok(())
            }
        };
        if matches!(op, OperatorOp::SetMode(_)) {
            self.mode_switch_ends(cache, result.is_ok());
        }
        // No other switch was under way at any time.
        let alone = before.1 == 0 && self.mode(cache).0 == before.0 + 2;
        self.history(|| format!("{op:?}: {}", result.as_ref().err().map_or("done", String::as_str)));
        let mut state = self.state.lock();
        state.look_at_origin();
        let mut kept = Ok(());
        match &result {
            Ok(()) => match op {
                OperatorOp::DestageAll => {
                    state.stats.full_destages += 1;
                    kept = state.model.durable_before(start, Reach::Owed);
                }
                OperatorOp::SetMode(mode) if mode != before.2 => {
                    state.stats.mode_switches += 1;
                    // Writes that completed before the switch began are on the origin at its end.
                    if alone {
                        kept = state.model.durable_before(start, Reach::All);
                    }
                }
                _ => {}
            },
            Err(error) => {
                state.model.told();
                state.stats.operations_failed += 1;
                let allowed = state.closed_or_closing() || state.model.trouble.operation_may_fail();
                drop(state);
                self.judge(allowed, &format!("{op:?}"), error);
                return;
            }
        }
        drop(state);
        self.kept(kept, &format!("{op:?}"));
    }

    fn mode_switch_begins(&self) {
        let mut state = self.state.lock();
        // Earlier failures belong to the mode that was in force.
        state.look_at_origin();
        state.switching += 1;
        state.mode_switches += 1;
        state.mode = None;
    }

    fn mode_switch_ends(&self, cache: &Cache, succeeded: bool) {
        let mut state = self.state.lock();
        // Failures during the switch do not count in the new mode yet.
        state.look_at_origin();
        state.switching -= 1;
        state.mode_switches += 1;
        if succeeded && state.switching == 0 {
            state.mode = Some(cache.mode());
        }
    }

    /// Closes or detaches the cache, and returns false if that failed with a reason.
    pub async fn close(&self, cache: &Cache, detach: bool) -> bool {
        let start = {
            let mut state = self.state.lock();
            if state.closed || state.model.trouble.closing {
                return state.closed;
            }
            // A failed detachment leaves the cache open, but its outcome is still unknown.
            state.model.trouble.closing = true;
            state.model.trouble.detaching |= detach;
            state.stats.closed_under_load += u64::from(state.requests_in_flight > 0);
            state.operation_begins()
        };
        let result = if detach { cache.detach().await } else { cache.close().await };
        let what = if detach { "detach" } else { "close" };
        self.history(|| {
            format!("{what}: {}", result.as_ref().err().map_or("done".to_owned(), |error| error.to_string()))
        });
        let mut state = self.state.lock();
        state.look_at_origin();
        match result {
            Ok(()) => {
                state.closed = true;
                let reach = match (keeps_dirty(cache.mode()), detach) {
                    (false, _) => Reach::All,
                    (true, true) => Reach::Owed,
                    (true, false) => Reach::Flash,
                };
                let kept = state.model.durable_before(start, reach);
                state.stats.clean_ends += 1;
                state.stats.detachments += u64::from(detach);
                drop(state);
                self.kept(kept, what);
                true
            }
            Err(error) => {
                state.model.told();
                state.stats.operations_failed += 1;
                let trouble = &state.model.trouble;
                let allowed = trouble.closing_may_fail() || (detach && trouble.slots_damaged);
                drop(state);
                self.judge(allowed, what, error);
                false
            }
        }
    }
}
