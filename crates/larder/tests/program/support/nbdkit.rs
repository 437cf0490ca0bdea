//! nbdkit as an NBD server: an origin, or below nbdfuse a flash. A test stops, continues or kills
//! it.
//!
//! It does not look into the data that it serves.

use super::{Running, Scratch, eventually};
use std::{
    cell::RefCell,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// nbdkit on a Unix socket, killed when it is dropped.
pub struct Nbdkit {
    child: RefCell<Running>,
    socket: PathBuf,
}

impl Nbdkit {
    /// Serves on a socket called after `name`.
    ///
    /// `args` name the plugin and its parameters, after options.
    pub fn start(scratch: &Scratch, name: &str, args: &[&str]) -> Self {
        let socket = scratch.path(&format!("{name}.nbdkit"));
        // An earlier one was killed.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.arg("-f").arg("-U").arg(&socket).args(args).stdin(Stdio::null());
        let mut child = Running(Some(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))));
        eventually("nbdkit serves", || {
            let child = child.0.as_mut().expect("it has just begun");
            assert!(child.try_wait().expect("a child of ours").is_none(), "nbdkit ended before it served: {args:?}");
            UnixStream::connect(&socket).is_ok()
        });
        Self { child: RefCell::new(child), socket }
    }

    /// Serves a file, through filters and with their parameters.
    pub fn over(scratch: &Scratch, name: &str, file: &Path, filters: &[&str], parameters: &[&str]) -> Self {
        let filters: Vec<String> = filters.iter().map(|filter| format!("--filter={filter}")).collect();
        let mut args: Vec<&str> = filters.iter().map(String::as_str).collect();
        args.extend(["file", file.to_str().expect("a plain path")]);
        args.extend(parameters);
        Self::start(scratch, name, &args)
    }

    /// Names it for `larder` and libnbd.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Stops it: it takes requests, and answers none any more.
    pub fn hang(&self) {
        super::stop_whole(self.id());
    }

    /// Continues it.
    pub fn go_on(&self) {
        super::run(Command::new("kill").args(["-CONT", &self.id().to_string()]));
        eventually("nbdkit serves again", || {
            let ended = self.child.borrow_mut().0.as_mut().expect("it runs").try_wait().expect("a child of ours");
            assert!(ended.is_none(), "nbdkit ended when it was continued: {ended:?}");
            UnixStream::connect(&self.socket).is_ok()
        });
    }

    /// Kills it; its socket stays, and refuses.
    pub fn kill(self) {
        drop(self);
    }

    fn id(&self) -> u32 {
        self.child.borrow().0.as_ref().expect("it runs").id()
    }
}
