//! Changing the write mode while serving.
//!
//! To write-through or write-around, in order: (1) Dirty data is destaged while writes go on. (2) A
//! ticket over the whole volume stops writes. (3) The rest is destaged, and all of it is durable.
//! (4) The new mode is durable in the superblock. (5) Writes go on in the new mode. (6) The keeper
//! of the fence notes it. A crash before (4) leaves the old mode, with dirty data or without.
//!
//! To write-back, the keeper notes the mode first. So the note says write-back whenever the origin
//! may lack data, and no write waits for a keeper that hangs.
//!
//! It does not change the design or the geometry; those are fixed when a cache is made.

pub(crate) mod current;

use crate::{destage::reach::Reach, error::EngineError, shared::Shared, tickets::Ticket, unflushed::Asker};
use larder_format::WriteMode;
use std::sync::Arc;

impl Shared {
    /// Sets the write mode. Returns when it is durable; a mode without dirty data also waits until
    /// no data is dirty.
    ///
    /// # Errors
    /// Errors of the devices; the old mode stays then. Errors of the keeper of the fence: a new
    /// mode without dirty data is in force then. Only its note is missing, and is tried again.
    pub async fn set_mode(self: &Arc<Self>, mode: WriteMode, asker: &Asker) -> Result<(), EngineError> {
        // One switch at a time: the note of an earlier switch would otherwise outlast a later one.
        let ticket = self.orders.switch_mode().granted().await;
        let turn = Arc::new(Turn { shared: self.clone(), _ticket: ticket });
        let (this, asker) = (self.clone(), asker.clone());
        if self.mode.get() == mode {
            return self.to_its_end(async move { this.set_again(mode, turn).await }).await;
        }
        self.state.lock().flash.check()?;
        let switching = Switching::begin(self, mode);
        if mode == WriteMode::Back {
            let (this, turn) = (self.clone(), turn.clone());
            self.to_its_end(async move { this.set_note(mode, turn).await }).await?;
        } else {
            self.destage_all(Reach::All).await;
        }
        let ticket = self.orders.change_all().granted().await;
        self.check_open()?;
        // It runs to its end even if the caller gives up: half a switch must not go on beside later
        // operations.
        self.to_its_end(async move { this.switch_and_note(mode, &asker, ticket, (switching, turn)).await }).await
    }

    /// Switches the mode, and notes the new one if it has no dirty data.
    async fn switch_and_note(
        self: &Arc<Self>,
        mode: WriteMode,
        asker: &Asker,
        held: Ticket,
        (_switching, turn): (Switching, Arc<Turn>),
    ) -> Result<(), EngineError> {
        self.switch_to(mode, asker, held).await?;
        if mode == WriteMode::Back { Ok(()) } else { self.set_note(mode, turn).await }
    }

    /// Notes the mode, and keeps the turn meanwhile.
    async fn set_note(self: &Arc<Self>, mode: WriteMode, _turn: Arc<Turn>) -> Result<(), EngineError> {
        self.note_mode(mode).await
    }

    /// Makes the mode in force durable, if it may not be.
    async fn set_again(self: &Arc<Self>, mode: WriteMode, turn: Arc<Turn>) -> Result<(), EngineError> {
        // A switch that failed may have left another mode in a twin, and this one may have no note.
        if self.superblock.is_uncertain() {
            self.update_superblock(|superblock| superblock.mode = mode).await?;
        }
        self.set_note(mode, turn).await
    }

    /// Switches the mode without a write under way: `_held` is over all chunks.
    async fn switch_to(self: &Arc<Self>, mode: WriteMode, asker: &Asker, _held: Ticket) -> Result<(), EngineError> {
        let before = self.counters.values();
        if mode != WriteMode::Back && !self.destage_all(Reach::All).await {
            let why = self.why_dirty(&before);
            return Err(EngineError::Invalid(format!("the origin is not complete: {why}")));
        }
        if self.mode.get() != WriteMode::Back {
            // From here on FLUSH asks the flash alone, so the origin's unflushed data becomes
            // durable first.
            self.flush_origin_for(asker).await?;
        }
        self.commit_everything(false).await?;
        let switched = self.update_superblock(|superblock| superblock.mode = mode).await;
        if let Err(error) = switched {
            // One twin may have the new mode. If this fails, too, an opening that finds dirty data
            // takes write-back.
            let _ = self.update_superblock(|_| {}).await;
            return Err(error);
        }
        self.mode.set(mode);
        Ok(())
    }
}

/// A turn to switch the mode. At its end, however, the keeper of the fence is to have the mode in
/// force. A switch may fail, or be given up, behind its note.
struct Turn {
    shared: Arc<Shared>,
    _ticket: Ticket,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.note_mode_in_background();
    }
}

/// Shows in the status that a switch is under way.
struct Switching(Arc<Shared>);

impl Switching {
    fn begin(shared: &Arc<Shared>, mode: WriteMode) -> Self {
        shared.mode.begin_switch(mode);
        Switching(shared.clone())
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        self.0.mode.end_switch();
    }
}
