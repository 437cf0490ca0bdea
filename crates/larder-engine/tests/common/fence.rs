//! A fence kept in memory; it outlives the openings of a cache as a directory elsewhere would.
//!
//! It does not lose anything in a crash; a keeper promises that.

use larder_engine::{
    FenceKeeper, WriteMode,
    fence::{Keeper, Note, NoteAnswer, Raised},
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
    /// The numbers that the engine had noted in the background, in order.
    newest: Mutex<Vec<u64>>,
    /// Notes are not answered; those that wait for their answer.
    hangs: AtomicBool,
    waiting: Mutex<Vec<(Note, NoteAnswer)>>,
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

    /// Makes the keeper leave notes without an answer, or answer again.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, SeqCst);
        let waiting = if hangs { Vec::new() } else { std::mem::take(&mut *self.waiting.lock()) };
        waiting.into_iter().for_each(|(note, answer)| answer(self.keep(note)));
    }

    /// Returns the notes that wait for their answer, in the order of the engine.
    pub fn waiting(&self) -> Vec<Note> {
        self.waiting.lock().iter().map(|(note, _)| note.clone()).collect()
    }

    /// Returns the numbers that were noted in the background since the last call.
    pub fn take_newest(&self) -> Vec<u64> {
        std::mem::take(&mut self.newest.lock())
    }

    /// Makes a note at once, or refuses it.
    pub fn keep(&self, note: Note) -> Result<(), String> {
        self.check()?;
        match note {
            Note::Raised(fence) => drop(self.raised.lock().get_or_insert(fence)),
            Note::Destaged => self.destaged.store(true, SeqCst),
            Note::Lowered => {
                *self.raised.lock() = None;
                self.destaged.store(false, SeqCst);
            }
            Note::Mode(mode, sequence) => {
                self.sequence.fetch_max(sequence, SeqCst);
                *self.mode.lock() = Some(mode);
            }
            Note::Newest(sequence) => {
                self.sequence.fetch_max(sequence, SeqCst);
                self.newest.lock().push(sequence);
            }
        }
        Ok(())
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
    fn newest_superblock(&self) -> u64 {
        self.sequence()
    }
    fn note(self: Arc<Self>, note: Note, answer: NoteAnswer) {
        if self.hangs.load(SeqCst) {
            let mut waiting = self.waiting.lock();
            let is_number = |note: &Note| matches!(note, Note::Newest(_));
            let second = is_number(&note) && waiting.iter().any(|(other, _)| is_number(other));
            assert!(!second, "one note of a number at a time");
            waiting.push((note, answer));
        } else {
            answer(self.keep(note));
        }
    }
}
