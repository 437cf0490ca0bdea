//! An NBD server that hangs when it is told to: an origin, or below nbdfuse a flash.
//!
//! It does not look into what it serves.

use super::{Running, Scratch, until_done};
use std::{
    cell::RefCell,
    fs::File,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// How long it takes to see that clients went away.
const SETTLING: Duration = Duration::from_millis(200);

/// nbdkit over a file, killed when it is dropped.
pub struct Nbdkit {
    child: RefCell<Running>,
    command: RefCell<Command>,
    socket: PathBuf,
}

impl Nbdkit {
    /// Serves `file` on a socket called `name`, through these filters and with their parameters.
    pub fn over(scratch: &Scratch, name: &str, file: &Path, filters: &[&str], parameters: &[&str]) -> Self {
        let socket = scratch.path(&format!("{name}.sock"));
        let log = File::create(scratch.path(&format!("{name}.log"))).expect("a log file");
        let mut command = Command::new("nbdkit");
        command.arg("-f").arg("-U").arg(&socket).args(filters.iter().map(|filter| format!("--filter={filter}")));
        command.arg("file").arg(file).args(parameters).stdin(Stdio::null()).stderr(log);
        let nbdkit = Self { child: RefCell::new(Running(None)), command: RefCell::new(command), socket };
        nbdkit.begin();
        nbdkit
    }

    fn begin(&self) {
        let mut command = self.command.borrow_mut();
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        self.child.replace(Running(Some(child)));
        assert!(until_done(|| self.serves()), "nbdkit does not serve");
    }

    fn serves(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }

    /// How `larder` and libnbd name it.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// It takes requests, and answers none any more.
    pub fn hang(&self) {
        self.signal("STOP");
    }

    /// It goes on.
    pub fn go_on(&self) {
        self.signal("CONT");
        let is_over =
            || self.child.borrow_mut().0.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|it| it.is_some()));
        // nbdkit may end where clients went away while it was stopped: then the origin's server is started again.
        std::thread::sleep(SETTLING);
        if is_over() || !self.serves() {
            self.child.replace(Running(None));
            let _ = std::fs::remove_file(&self.socket);
            self.begin();
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.borrow().0.as_ref().expect("it runs").id();
        super::run(Command::new("kill").args([&format!("-{name}"), &id.to_string()]));
    }
}
