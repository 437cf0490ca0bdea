//! The watch over an origin that is served alone: its conditions, name and size, and new attempts.
//!
//! Invariants: a question is a read. A device may report lost data to one flush alone. So clients
//! alone send flushes, and each hears the answer to its own. No question is asked once the end
//! began.
//!
//! It leaves the origin of a cache to the engine.

use crate::lines;
use larder_device::{
    BlockDevice, Runtime,
    threads::ThreadRuntime,
    watched::{Watch, WatchedDevice, again::ask_again_and_again, looks::look_again_and_again},
};
use larder_engine::{conditions::Watches, tell::Telling};
use std::{sync::Arc, time::Duration};

/// Tells the conditions of an origin until it is dropped.
pub struct OriginTelling {
    telling: Arc<Telling>,
    runtime: Arc<dyn Runtime>,
}

impl Drop for OriginTelling {
    fn drop(&mut self) {
        self.telling.look(self.runtime.now());
    }
}

/// Watches `origin`, tells its conditions, and asks it again while it fails.
///
/// It tells them as long as the second value returned lives, for the last time at its drop. The
/// third value shows them. It asks until `has_ended`.
pub fn watched(
    origin: Arc<dyn BlockDevice>,
    timeout: Duration,
    runtime: &Arc<ThreadRuntime>,
    has_ended: impl Fn() -> bool + Send + Sync + 'static,
) -> (Arc<dyn BlockDevice>, Option<OriginTelling>, Arc<Watch>) {
    let runtime: Arc<dyn Runtime> = runtime.clone();
    let (device, watch) = WatchedDevice::over(origin, runtime.clone());
    let watches = Watches { flash: None, origin: watch.clone(), hangs_after: timeout };
    let telling = Telling::begin(&lines::of_server(), watches, &runtime)
        .map(|telling| OriginTelling { telling, runtime: runtime.clone() });
    let has_ended = Arc::new(has_ended);
    let ended = has_ended.clone();
    runtime.spawn(Box::pin(look_again_and_again(Arc::downgrade(&watch), runtime.clone(), move || ended())));
    runtime.spawn(Box::pin(ask_again_and_again(Arc::downgrade(&watch), runtime.clone(), move || has_ended())));
    (device, telling, watch)
}
