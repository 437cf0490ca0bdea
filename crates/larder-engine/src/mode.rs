//! Changing the write mode while serving.
//!
//! To write-through or write-around, in order: (1) what is dirty is destaged while writes go on; (2) a ticket over the
//! whole volume stops writes; (3) the rest is destaged, and all of it is durable; (4) the new mode is durable in the
//! superblock; (5) writes go on in the new mode. A crash before (4) leaves the old mode, with dirty data or without.
//!
//! What it does not do: change the design or the geometry; those are fixed when a cache is made.

use crate::{destage::Reach, error::EngineError, shared::Shared, tickets::Ticket, unflushed::Asker};
use larder_core::Lba;
use larder_device::runtime::compute;
use larder_format::WriteMode;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::*},
};

/// The write mode that is in force. Who has a ticket of any chunk may rely on it: a switch takes one of the whole volume. So no write
/// asks for the state to know it.
pub struct CurrentMode(AtomicU8);

impl CurrentMode {
    /// In force from the opening on.
    pub fn new(mode: WriteMode) -> CurrentMode {
        CurrentMode(AtomicU8::new(mode.code()))
    }

    /// The mode.
    pub fn get(&self) -> WriteMode {
        WriteMode::from_code(self.0.load(Acquire)).expect("a mode was stored")
    }

    fn set(&self, mode: WriteMode) {
        self.0.store(mode.code(), Release);
    }
}

impl Shared {
    /// Sets the write mode; returns when it is durable, and, for the modes without dirty data, when there is none.
    ///
    /// # Errors
    /// What the devices say; the old mode stays then. What the keeper of the fence says: where the new mode is without dirty
    /// data it is in force, and only its note is missing; setting it again notes it.
    pub async fn set_mode(self: &Arc<Self>, mode: WriteMode, asker: &Asker) -> Result<(), EngineError> {
        // One switch at a time: what one that is over told the keeper would outlast what the other did.
        let turn = self.mode_switches.ask(Lba(0), 1).granted().await;
        let (this, asker) = (self.clone(), asker.clone());
        if self.mode.get() == mode {
            return self.to_its_end(async move { this.set_again(mode, turn).await }).await;
        }
        self.refuse_if_flash_failed()?;
        let switching = Switching::begin(self, mode);
        if mode != WriteMode::Back {
            self.destage_all(Reach::All).await;
        }
        let ticket = self.tickets.ask(Lba(0), u64::MAX).granted().await;
        self.check_open()?;
        // To its end, also where whoever asked gives up: half a switch must not go on beside what comes after it.
        self.to_its_end(async move { this.switch_to(mode, &asker, (ticket, switching, turn)).await }).await
    }

    /// The mode is in force: makes that durable, where it may not be.
    async fn set_again(self: &Arc<Self>, mode: WriteMode, _turn: Ticket) -> Result<(), EngineError> {
        // A switch that failed may have left another mode in a twin, and this one may not have been noted.
        if self.superblock.is_uncertain() {
            self.superblock.update(&*self.flash, &self.counters, |superblock| superblock.mode = mode).await?;
        }
        self.note_mode(mode).await
    }

    /// Switches, with no write under way: a ticket over everything is among what is held meanwhile.
    async fn switch_to(
        self: &Arc<Self>,
        mode: WriteMode,
        asker: &Asker,
        _held: (Ticket, Switching, Ticket),
    ) -> Result<(), EngineError> {
        let before = self.counters.values();
        if mode != WriteMode::Back && !self.destage_all(Reach::All).await {
            let why = self.why_dirty(&before);
            return Err(EngineError::Invalid(format!("the origin is not complete: {why}")));
        }
        if self.mode.get() != WriteMode::Back {
            // From here on FLUSH asks the flash alone: what the origin holds unflushed becomes durable first.
            self.flush_origin_for(asker).await?;
        }
        self.commit_everything(false).await?;
        if mode == WriteMode::Back {
            // From here on the origin may lack what the flash has.
            self.note_mode(mode).await?;
        }
        let switched = self.superblock.update(&*self.flash, &self.counters, |superblock| superblock.mode = mode).await;
        if let Err(error) = switched {
            // One twin may have the new mode. If this fails, too, an opening that finds dirty data knows better.
            let _ = self.superblock.update(&*self.flash, &self.counters, |_| {}).await;
            return Err(error);
        }
        self.mode.set(mode);
        if mode != WriteMode::Back {
            self.note_mode(mode).await?;
        }
        Ok(())
    }

    fn refuse_if_flash_failed(&self) -> Result<(), EngineError> {
        match &self.state.lock().flash_failed {
            Some(error) => Err(EngineError::FlashFailed(error.clone())),
            None => Ok(()),
        }
    }

    /// Tells who keeps the fence which mode is in force.
    pub(crate) async fn note_mode(&self, mode: WriteMode) -> Result<(), EngineError> {
        let Some(keeper) = self.tuning.fence.0.clone() else { return Ok(()) };
        let noted = compute(&*self.runtime, move || keeper.note_mode(mode)).await?;
        noted.map_err(EngineError::State)
    }
}

/// Shows in the status that a switch is under way.
struct Switching(Arc<Shared>);

impl Switching {
    fn begin(shared: &Arc<Shared>, mode: WriteMode) -> Self {
        shared.state.lock().switching_to = Some(mode);
        Switching(shared.clone())
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        self.0.state.lock().switching_to = None;
    }
}
