//! The process's background driver: one thread for the I/O of threads without a running driver.
//!
//! It serves three callers:
//!
//! - foreign executors, whose threads run no driver,
//!
//! - drivers whose thread left `block_on` with operations in flight,
//!
//! - operations that such a driver could not finish itself.
//!
//! Invariants: a process has at most one such thread, started on first use and kept for its life.
//!
//! It does not run tasks.

use super::{
    local::drive_to_the_end,
    op::Op,
    shared::{DriverShared, Message},
};
use std::sync::{Arc, OnceLock};

static DRIVER: OnceLock<Option<Arc<DriverShared>>> = OnceLock::new();

pub(crate) fn driver() -> Option<&'static Arc<DriverShared>> {
    let driver = DRIVER.get_or_init(|| {
        let shared = DriverShared::new();
        let home = shared.clone();
        let thread = std::thread::Builder::new().name("larder-io".into());
        thread.spawn(move || drive_forever(home)).ok().map(|_| shared)
    });
    driver.as_ref()
}

/// Starts an operation on the background thread. Cancels it if the system refuses the thread.
pub(crate) fn start(op: Op) {
    if let Some(driver) = driver() {
        driver.send(Message::Start(op));
    }
}

/// Cancels the operation started here under `id`.
pub(crate) fn cancel(id: u64) {
    if let Some(driver) = driver() {
        driver.send(Message::Cancel(id));
    }
}

/// Cancels an operation that may have moved here from `home`.
pub(crate) fn cancel_for(home: &Arc<DriverShared>, id: u64) {
    if let Some(Some(driver)) = DRIVER.get()
        && !Arc::ptr_eq(driver, home)
    {
        driver.send(Message::Cancel(id));
    }
}

fn drive_forever(shared: Arc<DriverShared>) {
    drive_to_the_end(shared, std::future::pending())
}
