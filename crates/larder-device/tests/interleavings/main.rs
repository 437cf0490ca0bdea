//! The driver, its pool, the thread runtime and the futures under a scheduler of all threads.
//!
//! The scheduler decides, at each lock and each atomic operation, which thread goes on.
//!
//! The sources are the crate's own, compiled a second time, into this program. They name
//! `parking_lot`, `std::sync::atomic`, `std::thread`, `std::time::Instant` and `libc::ppoll`. Here
//! these names mean shuttle's, a clock that goes on when a thread sleeps, and a poll that lets
//! other threads run. The crate stands in for `parking_lot`, `libc` and `std`, and its root has
//! their modules beside the crate's. Production code does not know of it.
//!
//! Invariants: all randomness comes from the schedule, and so from its seed. A thread that waits
//! for ever, and one that never ends, fail. Every driver is of the kind without io_uring, because
//! no scheduler controls the kernel's side.
//!
//! It does not explore how the background driver tends a ring (only a ring has that), or weak
//! memory (see `larder-engine/tests/interleavings/stand_ins.rs`). It does not use the usual test
//! harness, in which the sources would bring their own unit tests.

// The sources are used in part, and their documentation is checked in their own crate.
#![allow(dead_code, unused_imports, missing_docs, ambiguous_glob_reexports, unfulfilled_lint_expectations)]

extern crate libc as real_libc;
extern crate self as libc;
extern crate self as parking_lot;
extern crate self as std;
extern crate std as real_std;

// Each thread of the scheduler has its own. It stands before the modules, to replace the usual one
// there.
macro_rules! thread_local {
    ($($key:tt)*) => { shuttle::thread_local! { $($key)* } };
}

pub use real_libc::*;
pub use real_std::*;
pub use stand_ins::{Condvar, Mutex, MutexGuard};
pub use system::ppoll;

/// The standard library's, with shuttle's atomics.
pub mod sync {
    pub use real_std::sync::*;
    pub use shuttle::sync::atomic;
}

/// Shuttle's.
pub mod thread {
    pub use real_std::thread::available_parallelism;
    pub use shuttle::thread::*;
}

/// The standard library's, with a clock of our own.
pub mod time {
    pub use crate::system::Instant;
    pub use real_std::time::Duration;
}

/// The standard library's, for an operator without io_uring.
pub mod env {
    pub use real_std::env::*;
    pub fn var(name: &str) -> Result<String, VarError> {
        if name == crate::driver::BACKEND_ENV { Ok("threads".into()) } else { real_std::env::var(name) }
    }
}

/// The standard library's and the crate's.
pub mod error {
    pub use larder_device::error::*;
    pub use real_std::error::Error;
}

/// The standard library's and the crate's.
pub mod future {
    pub use crate::device_future::*;
    pub use real_std::future::*;
}

/// The count of operations under watch; the sources here begin none.
pub mod watched {
    pub struct Pending;

    impl Pending {
        pub fn end<T>(self, _: &crate::IoResult<T>) {}
    }
}

#[path = "../../src/future.rs"]
mod device_future;
#[path = "../../src/driver/mod.rs"]
pub mod driver;
#[path = "../../src/runtime.rs"]
pub mod runtime;
#[path = "../../src/threads.rs"]
pub mod threads;

pub use device_future::{Completer, IoFuture};
pub use larder_device::{IoBuf, IoError, IoErrorKind, IoOp, IoResult, SharedBuf};
pub use runtime::{BoxFuture, Runtime};

mod drivers;
#[path = "../../../larder-engine/tests/interleavings/explore.rs"]
mod explore;
mod futures;
mod pools;
mod runtimes;
#[path = "../../../larder-engine/tests/interleavings/stand_ins.rs"]
mod stand_ins;
mod system;

/// Schedules at once; the driver's pool, and the clock here, belong to the whole process.
fn explorers() -> usize {
    1
}

fn main() -> process::ExitCode {
    explore::run(&[
        ("a_result_reaches_the_last_waker", futures::a_result_reaches_the_last_waker),
        ("a_completer_that_is_dropped_answers", futures::a_completer_that_is_dropped_answers),
        ("a_wake_up_ends_the_drivers_sleep", drivers::a_wake_up_ends_the_drivers_sleep),
        ("tasks_wake_each_other_over_threads", drivers::tasks_wake_each_other_over_threads),
        ("a_driver_is_left_and_entered_again", drivers::a_driver_is_left_and_entered_again),
        ("bytes_and_wake_ups_both_come", drivers::bytes_and_wake_ups_both_come),
        ("sleeps_end_in_order", drivers::sleeps_end_in_order),
        ("every_call_is_made_once", pools::every_call_is_made_once),
        ("jobs_run_once_and_hand_back_results", runtimes::jobs_run_once_and_hand_back_results),
        ("jobs_beside_a_shutdown_run_once", runtimes::jobs_beside_a_shutdown_run_once),
        ("tasks_beside_a_shutdown_run_or_are_dropped", runtimes::tasks_beside_a_shutdown_run_or_are_dropped),
        ("delays_beside_a_shutdown_end", runtimes::delays_beside_a_shutdown_end),
        ("delays_asked_for_elsewhere_end", runtimes::delays_asked_for_elsewhere_end),
        ("a_worker_that_waits_is_known", runtimes::a_worker_that_waits_is_known),
    ])
}
