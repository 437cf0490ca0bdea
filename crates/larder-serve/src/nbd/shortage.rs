//! [`Shortage`]: the lack of a resource that makes a server refuse clients.
//!
//! Invariants: a lack shows while connections are refused for it, and for [`LASTS`] after.
//!
//! It does not wait for the lack's end; the accept thread does.

use parking_lot::Mutex;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// The time a lack shows after the last refused connection.
///
/// It is longer than the pause of the accept thread.
const LASTS: Duration = Duration::from_secs(1);

/// The lack that the last client met. Clones show the same.
#[derive(Clone, Default)]
pub struct Shortage(Arc<Mutex<Option<(Instant, i32)>>>);

impl Shortage {
    /// Returns the error that keeps clients out; `None` while clients are let in, or none connects.
    pub fn get(&self) -> Option<io::Error> {
        let (when, errno) = (*self.0.lock())?;
        (when.elapsed() < LASTS).then(|| io::Error::from_raw_os_error(errno))
    }

    /// Notes that a client was let in, or refused for this error.
    pub fn note(&self, error: Option<&io::Error>) {
        let lack = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
        let errno = error.and_then(io::Error::raw_os_error).filter(|errno| lack.contains(errno));
        *self.0.lock() = errno.map(|errno| (Instant::now(), errno));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_is_told_and_only_while_it_lasts() {
        let (shortage, shown) = (Shortage::default(), Shortage::default());
        assert!(shown.get().is_none());
        let shown = shortage.clone();
        shortage.note(Some(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert_eq!(shown.get().and_then(|error| error.raw_os_error()), Some(libc::EMFILE));
        shortage.note(Some(&io::Error::from_raw_os_error(libc::ECONNABORTED)));
        assert!(shown.get().is_none());
        shortage.note(Some(&io::Error::from_raw_os_error(libc::ENFILE)));
        shortage.note(None);
        assert!(shown.get().is_none());
    }
}
