//! The lock of the state, `state_lock.rs`, by itself and with pins, under many schedules. The
//! checks run looks beside one another, with the touches that they leave, and decisions between
//! them.
//!
//! It leaves look-ups to `caches.rs`.

use crate::{
    explore::explore,
    pins::Pins,
    state_lock::{StateLock, Touched},
    stripes::Stripes,
    sync::Arc,
};
use larder_core::SlotId;
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    thread,
};

const SCHEDULES: u64 = 1500;
/// Looks of a thread: one more than a stripe has room for.
const LOOKS: u32 = 33;
const LOOKERS: usize = 3;

/// The state under the lock.
#[derive(Default)]
struct Looked {
    decisions: u32,
    /// A decision is under way. Not atomic: the lock guards it.
    deciding: bool,
    /// The number of known looks of each thread.
    known: [u32; LOOKERS],
}

/// A look: its thread, its number, and the number of decisions before it.
#[derive(Clone, Copy, Default)]
struct Look {
    thread: usize,
    number: u32,
    decisions: u32,
}

impl Looked {
    fn note(&mut self, look: &Look) {
        assert_eq!(look.decisions, self.decisions, "a decision came between a look and its touch");
        assert_eq!(look.number, self.known[look.thread], "the looks of a thread come in its order, and none is lost");
        self.known[look.thread] += 1;
    }

    fn look(&self, thread: usize, number: u32) -> Look {
        assert!(!self.deciding, "somebody looks while another decides");
        Look { thread, number, decisions: self.decisions }
    }
}

impl Touched for Looked {
    type Touch = Look;
    fn apply(&mut self, looks: &[Look]) {
        assert!(!self.deciding && !looks.is_empty());
        looks.iter().for_each(|look| self.note(look));
    }
}

/// Touches beside decisions: each touch is applied once, to the state of its look.
///
/// The touches of a thread are applied in its order.
pub fn touches_are_applied_before_a_decision() {
    explore(SCHEDULES, || {
        let stripes = Arc::new(Stripes::new(2));
        let lock = Arc::new(StateLock::new(Looked::default(), &stripes, thread_rng().gen_range(0..4)));
        let lookers = (0..LOOKERS).map(|thread| {
            let (lock, stripes) = (lock.clone(), stripes.clone());
            thread::spawn(move || {
                let stripe = stripes.mine();
                for number in 0..LOOKS {
                    let found = lock.look(
                        stripe,
                        |state| {
                            let look = state.look(thread, number);
                            thread::yield_now();
                            assert!(!state.deciding && state.decisions == look.decisions);
                            Some((number, Some(look)))
                        },
                        |state| {
                            let look = state.look(thread, number);
                            state.note(&look);
                            Some(number)
                        },
                    );
                    assert_eq!(found, Some(number));
                }
            })
        });
        let decider = |lock: Arc<StateLock<Looked>>| {
            thread::spawn(move || {
                for _ in 0..3 {
                    let mut state = lock.lock();
                    state.deciding = true;
                    state.decisions += 1;
                    thread::yield_now();
                    state.deciding = false;
                    drop(state);
                    thread::yield_now();
                }
            })
        };
        let threads: Vec<_> = lookers.chain([decider(lock.clone()), decider(lock.clone())]).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        let state = lock.lock();
        assert_eq!((state.known, state.decisions), ([LOOKS; LOOKERS], 6), "a touch is lost");
    });
}

/// A slot with a record.
struct OneSlot {
    mapped: bool,
}

impl Touched for OneSlot {
    type Touch = ();
    fn apply(&mut self, _touches: &[()]) {
        assert!(self.mapped, "it was evicted before the touch of a hit was applied");
    }
}

/// A hit that shares the lock, and pins, against an eviction of the same slot.
///
/// The eviction touches the slot only after the reader is done, and no reader comes after.
pub fn a_shared_hit_pins_against_an_eviction() {
    static HITS: [AtomicReal; 2] = [const { AtomicReal::new(0) }; 2];
    use real_std::sync::atomic::{AtomicU64 as AtomicReal, Ordering::Relaxed};
    explore(SCHEDULES, || {
        let stripes = Arc::new(Stripes::new(2));
        let lock = StateLock::new(OneSlot { mapped: true }, &stripes, thread_rng().gen_range(0..3));
        let shared = Arc::new((lock, Pins::new(2, stripes.count()), AtomicBool::new(false), AtomicU32::new(0)));
        let reader = |_| {
            let (shared, stripes) = (shared.clone(), stripes.clone());
            thread::spawn(move || {
                let (lock, pins, trimmed, reading) = &*shared;
                let stripe = stripes.mine();
                for _ in 0..3 {
                    let hit = |state: &OneSlot| state.mapped.then(|| pins.pin(SlotId(0), stripe));
                    let pin = lock.look(stripe, |state| hit(state).map(|pin| (pin, Some(()))), |state| hit(state));
                    HITS[usize::from(pin.is_some())].fetch_add(1, Relaxed);
                    let Some(pin) = pin else { continue };
                    reading.fetch_add(1, SeqCst);
                    assert!(!trimmed.load(SeqCst), "a reader came after the slot was trimmed");
                    thread::yield_now();
                    assert!(!trimmed.load(SeqCst), "the slot is trimmed under a reader");
                    reading.fetch_sub(1, SeqCst);
                    drop(pin);
                }
            })
        };
        let readers: Vec<_> = (0..3).map(reader).collect();
        let (lock, pins, trimmed, reading) = &*shared;
        lock.lock().mapped = false;
        block_on(pins.wait_unpinned(SlotId(0)));
        trimmed.store(true, SeqCst);
        assert_eq!(reading.load(SeqCst), 0);
        readers.into_iter().for_each(|reader| reader.join().expect("done"));
    });
    assert!(HITS.iter().all(|hits| hits.load(Relaxed) > 0), "readers came before the eviction only, or after it only");
}
