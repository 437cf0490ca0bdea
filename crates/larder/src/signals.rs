//! SIGTERM and SIGINT: the end of a server, in order.
//!
//! Invariants: the first signal is waited for, a second one ends the process at once, with exit code 1.
//!
//! What it does not do: end anything itself.

use crate::error::{EXIT_FAILED, Failure, Outcome, system_reason};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    low_level::pipe,
};
use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
};

/// A flag that the first SIGTERM or SIGINT sets; a second one ends the process. For work that looks at it now and then.
///
/// # Errors
/// A sentence.
pub fn flag() -> Outcome<Arc<AtomicBool>> {
    let is_ending = Arc::new(AtomicBool::new(false));
    let register = |signal| {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, EXIT_FAILED.into(), is_ending.clone())?;
        flag::register(signal, is_ending.clone())
    };
    [SIGTERM, SIGINT].into_iter().try_for_each(|signal| register(signal).map(drop)).map_err(|error| refused(&error))?;
    Ok(is_ending)
}

fn refused(error: &std::io::Error) -> Failure {
    Failure::failed(format_args!("signals cannot be waited for: {}", system_reason(error)))
}

/// SIGTERM and SIGINT: the first one is waited for, a second one ends the process.
pub struct Signals {
    came: UnixStream,
    wake: UnixStream,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// A sentence.
    pub fn register() -> Outcome<Signals> {
        let register = || {
            let (came, wake) = UnixStream::pair()?;
            let is_ending = Arc::new(AtomicBool::new(false));
            for signal in [SIGTERM, SIGINT] {
                // In this order: the first signal finds the flag unset.
                flag::register_conditional_shutdown(signal, EXIT_FAILED.into(), is_ending.clone())?;
                flag::register(signal, is_ending.clone())?;
                pipe::register(signal, wake.try_clone()?)?;
            }
            Ok(Signals { came, wake })
        };
        register().map_err(|error: std::io::Error| refused(&error))
    }

    /// Writing to it is as good as a signal.
    ///
    /// # Errors
    /// A sentence.
    pub fn waker(&self) -> Outcome<UnixStream> {
        self.wake
            .try_clone()
            .map_err(|error| Failure::failed(format_args!("no more file descriptors: {}", system_reason(&error))))
    }

    /// Waits for the first signal.
    pub fn wait(&self) {
        // The other end lives as long as the process; an interrupted read is a signal, too, but ours writes first.
        while matches!((&self.came).read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::Interrupted) {}
    }
}
