//! The choice of the kernel interface for I/O: io_uring if it works, else threads with blocking
//! calls.
//!
//! Invariants: the process probes once, and the answer stays. `LARDER_IO=threads` forces the
//! fallback. `LARDER_IO=uring` makes a missing io_uring an error of every device that is opened,
//! and carries files through it that have threads of their own otherwise.
//!
//! It does not create the rings that carry I/O; each driver has its own.

use crate::{IoError, IoErrorKind, IoOp, IoResult};
use io_uring::{IoUring, Probe, opcode};
use std::{
    fmt, io,
    sync::{Arc, OnceLock},
};

/// Environment variable that chooses the backend: `uring` or `threads`.
pub const BACKEND_ENV: &str = "LARDER_IO";

/// The carrier of file and socket I/O in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackendKind {
    /// One io_uring for each thread that does I/O.
    Uring,
    /// Blocking calls on a small pool of threads, and poll(2) for sockets.
    Threads,
}

/// The backend in use and its reason. It displays as one line for a log.
#[derive(Clone, Debug)]
pub struct IoBackend {
    /// The backend in use.
    pub kind: IoBackendKind,
    /// The reason, for people.
    pub reason: Arc<str>,
    /// The backend that the operator chose.
    pub chosen: Option<IoBackendKind>,
    /// The operator demanded a backend that is missing.
    pub refused: bool,
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            IoBackendKind::Uring => "io_uring",
            IoBackendKind::Threads => "threads",
        };
        write!(f, "{name} ({})", self.reason)
    }
}

/// Returns the I/O backend of this process, probed on the first call.
pub fn io_backend() -> &'static IoBackend {
    static BACKEND: OnceLock<IoBackend> = OnceLock::new();
    BACKEND.get_or_init(|| choose(std::env::var(BACKEND_ENV).ok().as_deref()))
}

/// Fails if the operator demanded a backend that is missing.
pub(crate) fn demanded_backend_works() -> IoResult<()> {
    let backend = io_backend();
    if backend.refused {
        return Err(IoError::new(IoErrorKind::Unsupported, IoOp::Open, 0, 0).with_detail(backend.reason.clone()));
    }
    Ok(())
}

fn choose(wish: Option<&str>) -> IoBackend {
    let chosen = match wish {
        Some("threads") => Some(IoBackendKind::Threads),
        Some("uring") => Some(IoBackendKind::Uring),
        _ => None,
    };
    let made = |kind, reason: String, refused| IoBackend { kind, reason: reason.into(), chosen, refused };
    match wish {
        Some("threads") => made(IoBackendKind::Threads, format!("{BACKEND_ENV}=threads"), false),
        None | Some("" | "auto" | "uring") => match (probe(), wish) {
            (Ok(()), Some("uring")) => made(IoBackendKind::Uring, format!("{BACKEND_ENV}=uring"), false),
            (Ok(()), _) => made(IoBackendKind::Uring, "available".into(), false),
            (Err(why), Some("uring")) => {
                made(IoBackendKind::Threads, format!("{BACKEND_ENV}=uring, but io_uring is not usable: {why}"), true)
            }
            (Err(why), _) => made(IoBackendKind::Threads, format!("io_uring is not usable: {why}"), false),
        },
        Some(other) => {
            made(IoBackendKind::Threads, format!("{BACKEND_ENV}={other} is neither `uring` nor `threads`"), true)
        }
    }
}

fn probe() -> Result<(), String> {
    let ring = IoUring::new(4).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has none".to_string(),
        Some(libc::EPERM) => "the system forbids it (seccomp or kernel.io_uring_disabled)".to_string(),
        _ => describe(&error),
    })?;
    let params = ring.params();
    if !params.is_feature_ext_arg() || !params.is_feature_nodrop() || !params.is_feature_fast_poll() {
        return Err("the kernel's is too old (5.11 or newer is wanted)".into());
    }
    let mut supported = Probe::new();
    ring.submitter().register_probe(&mut supported).map_err(|error| describe(&error))?;
    let needed = [
        ("READ", opcode::Read::CODE),
        ("WRITE", opcode::Write::CODE),
        ("FSYNC", opcode::Fsync::CODE),
        ("FALLOCATE", opcode::Fallocate::CODE),
        ("RECV", opcode::Recv::CODE),
        ("POLL_ADD", opcode::PollAdd::CODE),
        ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ];
    match needed.iter().find(|(_, code)| !supported.is_supported(*code)) {
        Some((name, _)) => Err(format!("the kernel's has no {name}")),
        None => Ok(()),
    }
}

fn describe(error: &io::Error) -> String {
    format!("io_uring_setup: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_honoured_and_nonsense_is_refused() {
        let forced = choose(Some("threads"));
        assert_eq!((forced.kind, forced.refused), (IoBackendKind::Threads, false));
        let chosen = |wish| choose(wish).chosen;
        assert_eq!(
            [chosen(Some("uring")), chosen(Some("auto")), chosen(None)],
            [Some(IoBackendKind::Uring), None, None]
        );
        let nonsense = choose(Some("aio"));
        assert!(nonsense.refused && nonsense.to_string().contains("aio"), "{nonsense}");
        let demanded = choose(Some("uring"));
        assert_eq!(demanded.refused, demanded.kind == IoBackendKind::Threads);
    }
}
