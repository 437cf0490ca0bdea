//! A fence kept in memory; it outlives the openings of a cache as a directory elsewhere would.
//!
//! It does not lose anything in a crash; a keeper promises that.

use larder_engine::{
    FenceKeeper, WriteMode,
    fence::{Keeper, Raised},
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::*},
};

/// The kept fence.
#[derive(Default)]
pub struct MemoryFence {
    raised: Mutex<Option<Raised>>,
    mode: Mutex<Option<WriteMode>>,
    sequence: AtomicU64,
    destaged: AtomicBool,
    broken: AtomicBool,
}

impl MemoryFence {
    pub fn new() -> Arc<MemoryFence> {
        Arc::default()
    }

    /// Returns the keeper as an option of an opening.
    pub fn keeper(self: &Arc<Self>) -> Keeper {
        Keeper(Some(self.clone()))
    }

    pub fn is_up(&self) -> bool {
        self.raised.lock().is_some()
    }

    /// Returns whether the note says that the origin has all dirty data.
    pub fn is_destaged(&self) -> bool {
        self.destaged.load(SeqCst)
    }

    pub fn mode(&self) -> Option<WriteMode> {
        *self.mode.lock()
    }

    /// Returns the number of the superblock that was noted last.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(SeqCst)
    }

    /// Makes the keeper refuse to keep a fence from now on, or keep it again.
    pub fn break_down(&self, broken: bool) {
        self.broken.store(broken, SeqCst);
    }

    fn check(&self) -> Result<(), String> {
        if self.broken.load(SeqCst) { Err("the state directory is full".into()) } else { Ok(()) }
    }
}

impl FenceKeeper for MemoryFence {
    fn place(&self) -> String {
        "memory".into()
    }
    fn prepare(&self) -> Result<(), String> {
        self.check()
    }
    fn raised(&self) -> Result<Option<Raised>, String> {
        let is_destaged = self.destaged.load(SeqCst);
        Ok(self.raised.lock().clone().map(|fence| Raised { is_destaged, ..fence }))
    }
    fn raise(&self, fence: Raised) -> Result<(), String> {
        self.check()?;
        self.raised.lock().get_or_insert(fence);
        Ok(())
    }
    fn newest_superblock(&self) -> u64 {
        self.sequence()
    }
    fn lower(&self) -> Result<(), String> {
        self.check()?;
        *self.raised.lock() = None;
        self.destaged.store(false, SeqCst);
        Ok(())
    }
    fn note_destaged(&self) -> Result<(), String> {
        self.check()?;
        self.destaged.store(true, SeqCst);
        Ok(())
    }
    fn note_superblock(&self, mode: WriteMode, sequence: u64) -> Result<(), String> {
        self.check()?;
        self.sequence.store(sequence, SeqCst);
        *self.mode.lock() = Some(mode);
        Ok(())
    }
}
