//! A fence kept in memory; it outlives the openings of a cache as a directory elsewhere would.
//!
//! It does not lose anything in a crash; a keeper promises that.

use larder_engine::{
    FenceKeeper, WriteMode,
    fence::{Keeper, NoteAnswer, Raised},
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::*},
};

/// A note of the newest superblock that the keeper has not answered.
type Asked = (u64, NoteAnswer);

/// The kept fence.
#[derive(Default)]
pub struct MemoryFence {
    raised: Mutex<Option<Raised>>,
    mode: Mutex<Option<WriteMode>>,
    sequence: AtomicU64,
    destaged: AtomicBool,
    broken: AtomicBool,
    /// The numbers that the engine had noted in the background, in order.
    newest: Mutex<Vec<u64>>,
    /// Notes are not answered; the one that waits for its answer.
    hangs: AtomicBool,
    waiting: Mutex<Option<Asked>>,
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

    /// Makes the keeper leave notes in the background without an answer, or answer again.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, SeqCst);
        let waiting = if hangs { None } else { self.waiting.lock().take() };
        if let Some((sequence, answer)) = waiting {
            self.answer(sequence, answer);
        }
    }

    /// Returns the number that waits for its answer, if one does.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting.lock().as_ref().map(|(sequence, _)| *sequence)
    }

    /// Returns the numbers that were noted in the background since the last call.
    pub fn take_newest(&self) -> Vec<u64> {
        std::mem::take(&mut self.newest.lock())
    }

    fn answer(&self, sequence: u64, answer: NoteAnswer) {
        let noted = self.check();
        if noted.is_ok() {
            self.sequence.fetch_max(sequence, SeqCst);
            self.newest.lock().push(sequence);
        }
        answer(noted);
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
        self.sequence.fetch_max(sequence, SeqCst);
        *self.mode.lock() = Some(mode);
        Ok(())
    }
    fn note_newest(self: Arc<Self>, sequence: u64, answer: NoteAnswer) {
        if self.hangs.load(SeqCst) {
            let before = self.waiting.lock().replace((sequence, answer));
            assert!(before.is_none(), "one note at a time");
        } else {
            self.answer(sequence, answer);
        }
    }
}
