//! Readings of an option file beside the server's other work.
//!
//! Each reading has a thread of its own, for the file system may hang. A later one may be over
//! before an earlier one, which is out of date then.
//!
//! Invariants: at most [`READERS_MAX`] threads read. A request for a reading is never forgotten: if
//! there are too many, the next one begins when one of these ends. A file that does not answer is
//! told once.
//!
//! It does not understand the bytes.

use crate::{
    config_file,
    ending::Ending,
    error::{Outcome, system_reason},
    output,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The most threads that read an option file at a time.
pub const READERS_MAX: usize = 8;
/// The wait for the file before a line tells of it.
const LATE: Duration = Duration::from_secs(2);

/// A reading that is under way.
struct Reading {
    begun: Instant,
    bytes: Receiver<Outcome<Vec<u8>>>,
}

/// See the module.
pub struct Readings {
    path: PathBuf,
    ending: Ending,
    /// The oldest first.
    under_way: Vec<Reading>,
    /// Each thread has a copy, also one whose reading is out of date.
    readers: Arc<()>,
    is_wanted: bool,
    is_late_told: bool,
}

impl Readings {
    /// Returns none, of the file at `path`. An end of one makes the waits of `ending` look again.
    pub fn new(path: &Path, ending: &Ending) -> Readings {
        Readings {
            path: path.to_owned(),
            ending: ending.clone(),
            under_way: Vec::new(),
            readers: Arc::new(()),
            is_wanted: false,
            is_late_told: false,
        }
    }

    /// Begins a reading, or has one begin later.
    pub fn begin(&mut self) {
        let shown = self.path.display();
        if Arc::strong_count(&self.readers) > READERS_MAX {
            if !std::mem::replace(&mut self.is_wanted, true) {
                output::note(&format!("{shown} is read again once one of {READERS_MAX} readings of it has ended"));
            }
            return;
        }
        self.is_wanted = false;
        let (read, bytes) = channel();
        let (path, here, reader) = (self.path.clone(), self.ending.clone(), self.readers.clone());
        let begun = thread::Builder::new().name("options".into()).spawn(move || {
            let result = config_file::read(&path);
            drop(reader);
            let _ = read.send(result);
            here.look_again();
        });
        match begun {
            Ok(_) => self.under_way.push(Reading { begun: Instant::now(), bytes }),
            Err(error) => output::complain(&format!("{shown} is not read again: {}", system_reason(&error))),
        }
    }

    /// Returns the result of the latest reading that is over. Those that began before it are out of
    /// date.
    pub fn take(&mut self) -> Option<Outcome<Vec<u8>>> {
        let over = self.under_way.iter().enumerate().rev();
        let found = over.into_iter().find_map(|(at, reading)| Some((at, reading.bytes.try_recv().ok()?)));
        if let Some((at, _)) = &found {
            self.under_way.drain(..=*at);
            self.is_late_told &= !self.under_way.is_empty();
        }
        if self.is_wanted && Arc::strong_count(&self.readers) <= READERS_MAX {
            self.begin();
        }
        found.map(|(_, result)| result)
    }

    /// Returns the time at which the file is late, if that has not been told.
    pub fn late_at(&self) -> Option<Instant> {
        self.under_way.first().filter(|_| !self.is_late_told).map(|oldest| oldest.begun + LATE)
    }

    /// Tells that the file is late.
    pub fn tell_late(&mut self) {
        self.is_late_told = true;
        let (shown, seconds) = (self.path.display(), LATE.as_secs());
        output::note(&format!("waiting: the option file {shown} has not answered for {seconds} s"));
    }
}
