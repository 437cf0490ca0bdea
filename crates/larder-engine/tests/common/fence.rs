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
    raised: Mutex<Option<String>>,
    mode: Mutex<Option<WriteMode>>,
    dirty_bytes: AtomicU64,
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
        let (dirty_bytes, is_destaged) = (self.dirty_bytes.load(SeqCst), self.destaged.load(SeqCst));
        Ok(self.raised.lock().clone().map(|why| Raised { why, dirty_bytes, is_destaged }))
    }
    fn raise(&self, why: &str, dirty_bytes: u64) -> Result<(), String> {
        self.check()?;
        self.raised.lock().get_or_insert_with(|| {
            self.dirty_bytes.store(dirty_bytes, SeqCst);
            why.to_owned()
        });
        Ok(())
    }
    fn lower(&self) -> Result<(), String> {
        self.check()?;
        *self.raised.lock() = None;
        self.destaged.store(false, SeqCst);
        self.dirty_bytes.store(0, SeqCst);
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
