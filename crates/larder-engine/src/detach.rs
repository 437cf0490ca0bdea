//! Detaching: the origin gets all data that only the cache has, and the flash is no cache any more.
//!
//! In order: (1) Dirty data is destaged while requests go on. (2) A ticket over the whole volume
//! stops writes. (3) The rest is destaged, and the origin is flushed. (4) The superblock twins say
//! *detached*. (5) The cache is closed. A crash before (4) leaves the cache as it was, with dirty
//! data or without. A crash after it leaves an origin that is complete alone.
//!
//! Invariants: if some data cannot be destaged, the cache stays attached and goes on.
//!
//! It does not erase the flash; making another cache there does.

use crate::{
    Cache,
    destage::reach::Reach,
    error::EngineError,
    unflushed::waiting::{Asker, Audience},
};
use larder_format::Superblock;

impl Cache {
    /// Writes all data to the origin, durably, and ends this cache for ever: opening it again is
    /// refused.
    ///
    /// # Errors
    /// Dirty data that could not be written; the cache goes on then. Errors of the devices. If the
    /// flash does not take the mark, the cache stays attached, but it is closed
    /// ([`Cache::is_closed`]).
    pub async fn detach(&self) -> Result<(), EngineError> {
        let asker = Asker::new(Audience::Operator);
        self.shared().answer(&asker, self.detach_for(&asker).await)
    }

    async fn detach_for(&self, asker: &Asker) -> Result<(), EngineError> {
        let shared = self.shared();
        shared.check_open()?;
        // A cache that could not be marked must not be closed.
        shared.state.lock().flash.check()?;
        // (1)
        shared.destage_all(Reach::Owed).await;
        // (2)
        let ticket = shared.orders.change_all().granted().await;
        shared.check_open()?;
        // (3)
        let before = shared.counters.values();
        if !shared.destage_all(Reach::Owed).await {
            let why = shared.why_dirty(&before);
            return Err(EngineError::Invalid(format!("the cache stays attached: the origin is not complete: {why}")));
        }
        shared.flush_origin_for(asker).await?;
        // (4) and (5)
        shared.end(ticket, true, asker).await
    }

    /// Returns whether [`Cache::close`] or [`Cache::detach`] closed the cache. It takes no more
    /// requests then.
    pub fn is_closed(&self) -> bool {
        self.shared().is_closing()
    }

    /// Returns whether the cache is being closed or detached, or is closed.
    pub fn is_ending(&self) -> bool {
        self.shared().refuse_if_draining().is_err() || self.is_closed()
    }

    /// Notes that the cache will be closed soon. Requests go on. From now on a write that the flash
    /// refuses for want of room waits as long as the writes of the end itself.
    pub fn expect_end(&self) {
        self.shared().life.expect_end();
    }

    /// Returns the superblock in force.
    pub fn superblock(&self) -> Superblock {
        self.shared().superblock.get()
    }
}
