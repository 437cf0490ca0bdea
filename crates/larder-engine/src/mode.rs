//! Changing the write mode while serving.
//!
//! To write-through or write-around, in order: (1) what is dirty is destaged while writes go on; (2) a ticket over the
//! whole volume stops writes; (3) the rest is destaged, and all of it is durable; (4) the new mode is durable in the
//! superblock; (5) writes go on in the new mode. A crash before (4) leaves the old mode, with dirty data or without.
//!
//! What it does not do: change the design or the geometry; those are fixed when a cache is made.

use crate::{error::EngineError, shared::Shared};
use larder_core::Lba;
use larder_format::WriteMode;
use std::sync::Arc;

impl Shared {
    /// Sets the write mode; returns when it is durable, and, for the modes without dirty data, when there is none.
    ///
    /// # Errors
    /// What the devices say; the old mode stays then.
    pub async fn set_mode(self: &Arc<Self>, mode: WriteMode) -> Result<(), EngineError> {
        if self.state.lock().mode == mode {
            return Ok(());
        }
        if mode != WriteMode::Back {
            self.destage_all().await;
        }
        let _ticket = self.tickets.ask(Lba(0), u64::MAX).granted().await;
        self.check_open()?;
        if mode != WriteMode::Back && !self.destage_all().await {
            return Err(EngineError::Invalid(
                "the mode was not changed: some dirty data could not be written to the origin".into(),
            ));
        }
        if self.state.lock().mode != WriteMode::Back {
            // From here on FLUSH asks the flash alone: what the origin holds unflushed becomes durable first.
            self.flush_origin().await?;
        }
        self.commit_everything().await?;
        let switched = self.superblock.update(&*self.flash, &self.counters, |superblock| superblock.mode = mode).await;
        if let Err(error) = switched {
            // One twin may have the new mode. If this fails, too, an opening that finds dirty data knows better.
            let _ = self.superblock.update(&*self.flash, &self.counters, |_| {}).await;
            return Err(error);
        }
        self.state.lock().mode = mode;
        Ok(())
    }
}
