//! [`Runtime`]: the engine's only way to spawn background work, wait for time, and compute.
//!
//! It computes off the caller's path.
//!
//! Invariants: the engine takes time, threads and order from here alone. So a simulated runtime
//! with one seed replays a whole run.
//!
//! It leaves I/O to the devices.

use crate::IoFuture;
use std::{future::Future, pin::Pin, time::Duration};

/// A task that is given to a runtime.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A piece of computing: hashing, compressing.
pub type Job = Box<dyn FnOnce() + Send>;

/// The source of an engine's background work, time and computing.
pub trait Runtime: Send + Sync {
    /// Runs `task` in the background to its end.
    fn spawn(&self, task: BoxFuture);

    /// Resolves `after` this long, on the runtime's clock.
    fn delay(&self, after: Duration) -> IoFuture<()>;

    /// Returns the time since the runtime began, on its own clock.
    fn now(&self) -> Duration;

    /// Runs `job` on a worker. Jobs may run at the same time and in any order.
    fn run_job(&self, job: Job);

    /// Returns whether a job with a waiting caller is worth a worker.
    ///
    /// False if the caller would only wait: there are no workers, or all of them are busy.
    fn has_idle_worker(&self) -> bool;
}

/// Runs `f` on a worker of `runtime` and hands back its result. The future fails only if the
/// runtime is torn down.
pub fn compute<T: Send + 'static>(runtime: &dyn Runtime, f: impl FnOnce() -> T + Send + 'static) -> IoFuture<T> {
    let (completer, future) = IoFuture::pending();
    runtime.run_job(Box::new(move || completer.complete(Ok(f()))));
    future
}
