//! A hit of a clean chunk by its metadata slot, step by step, against evictions of its run.
//! Contents with the same FP-hash rewrite the same slots. Only the metadata slot tells the two
//! contents apart, and only while no write replaces it.
//!
//! The lock, the turns, the pins and the design are the engine's; flash is a metadata slot and a
//! record here.
//!
//! It leaves the engine's own read to `caches.rs`.

use crate::{
    Mutex,
    explore::explore,
    pins::Pins,
    state_lock::{StateLock, Touched},
    stripes::{Stripe, Stripes},
    sync::Arc,
    tickets::ManyTickets,
};
use larder_core::{
    Decider, Design, Fingerprint, Lba, Lookup, NewMapping, Place, SlotId, StreamClass,
    austere::{AustereConfig, Bucketed, bucketed::BucketedConfig},
    design::{Question, Use, Wanted},
    region::RegionEntry,
};
use real_std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    thread,
};

const SCHEDULES: u64 = 1500;
const CHUNK: u32 = 4096;
/// The block of all metadata slots.
const BLOCK: u64 = 0;
/// Times that the run is replaced.
const ROUNDS: usize = 4;

/// Hits by a metadata slot, and looks without its confirmation.
static CONFIRMED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

struct Cached(Decider<Bucketed>);

impl Touched for Cached {
    type Touch = Use;
    fn apply(&mut self, uses: &[Use]) {
        assert!(
            uses.iter().all(|hit| self.0.slot_of(hit.lba) == Some(hit.slot)),
            "it left before its touch was applied"
        );
        self.0.used(uses);
    }
}

struct World {
    lock: StateLock<Cached>,
    turns: ManyTickets,
    pins: Pins,
    /// Slot 0 on flash: its metadata slot, and the record's generation and content.
    entry: Mutex<Option<RegionEntry>>,
    record: Mutex<(u32, usize)>,
    /// Two addresses, and a content of each; both have one FP-hash.
    lbas: [Lba; 2],
    contents: [Fingerprint; 2],
}

impl World {
    fn new(stripes: &Stripes) -> World {
        let austere =
            AustereConfig { bucket_slots: 2, prefix_bits: 1, ..AustereConfig::new(2 * u64::from(CHUNK), CHUNK, false) };
        let config = BucketedConfig { austere, chunk_count: 64, exact_max: 64 };
        let design = Decider::new(Box::new(Bucketed::new(config).expect("a layout")));
        let content = |number: u8| Fingerprint([number.wrapping_mul(89); 16]);
        let key = |number| design.core().contents().of_content(&content(number));
        let same = (1..).find(|&number| key(number) == key(0)).expect("there are two FP-hashes");
        let other = |lba: &u64| design.core().key_of_lba(Lba(*lba)) != design.core().key_of_lba(Lba(0));
        let lbas = [Lba(0), Lba((1..64).find(other).expect("and more LBA-hashes than one"))];
        let share_after = thread_rng().gen_range(0..3);
        World {
            lbas,
            contents: [content(0), content(same)],
            lock: StateLock::new(Cached(design), stripes, share_after),
            turns: ManyTickets::new(2),
            pins: Pins::new(2, stripes.count()),
            entry: Mutex::new(None),
            record: Mutex::new((u32::MAX, usize::MAX)),
        }
    }

    /// Stores one of the contents for its address, in place of the other.
    fn store(&self, which: usize) {
        let (lba, fingerprint) = (self.lbas[which], self.contents[which]);
        let wanted = Wanted { lba, fingerprint: Some(fingerprint), stored_len: CHUNK };
        let (mut state, slot, generation) = loop {
            let mut state = self.lock.lock();
            if let Some((slot, generation)) = state.0.open_slot_for(StreamClass::Clean, &wanted) {
                break (state, slot, generation);
            }
            let victim = state.0.choose_victim(&mut |_| false).expect("the other one goes");
            assert!(state.0.evict(victim.slot).is_some(), "nothing is dirty");
            drop(state);
            block_on(self.pins.wait_unpinned(victim.slot));
            self.lock.lock().0.release_slot(victim.slot);
        };
        assert_eq!(slot, SlotId(0));
        *self.record.lock() = (generation, which);
        let place = Place { slot, generation, offset: 0, stored_len: CHUNK, crc: 0, encoding: 0 };
        // Opened and mapped in one step, as the engine does; its records are read from memory until
        // they are written.
        state.0.map(lba, NewMapping::Unique { place, fingerprint: Some(fingerprint) }, None);
        assert!(state.0.next_changed_entry().is_some());
        let turn = self.turns.ask(BLOCK);
        drop(state);
        let turn = block_on(turn.granted());
        let entry = self.lock.lock().0.entry_to_write(slot).expect("it changed");
        *self.entry.lock() = Some((*entry).clone());
        thread::yield_now();
        self.lock.lock().0.entry_written(&entry);
        drop(turn);
    }

    /// Reads an address, and returns true if its content was found.
    fn read(&self, which: usize, stripe: Stripe) -> bool {
        let lba = self.lbas[which];
        let pin = |place: Place| (place, self.pins.pin(place.slot, stripe));
        let look = |state: &Cached| match state.0.hit(lba) {
            Some(hit) => Some((Ok(pin(hit.place)), Some(hit.used))),
            None => state.0.unread(Question::Address(lba)).map(|slot| (Err(slot), None)),
        };
        let alone = |state: &mut Cached| {
            let (found, used) = look(state)?;
            state.0.used(used.as_slice());
            Some(found)
        };
        let found = match self.lock.look(stripe, look, alone) {
            None => return false,
            Some(Ok(found)) => Some(found),
            Some(Err(slot)) => {
                let turn = block_on(self.turns.ask(BLOCK).granted());
                let entry = self.entry.lock().clone();
                thread::yield_now();
                let look = |state: &Cached| {
                    let hit = state.0.hit_with(lba, slot, entry.as_ref()?)?;
                    Some((pin(hit.place), Some(hit.used)))
                };
                let alone = |state: &mut Cached| match look(state) {
                    Some((found, used)) => {
                        state.0.used(used.as_slice());
                        Some(found)
                    }
                    None => {
                        state.0.tell(slot, entry.clone().map(Arc::new));
                        None
                    }
                };
                let found = self.lock.look(stripe, look, alone);
                drop(turn);
                CONFIRMED[usize::from(found.is_none())].fetch_add(1, Relaxed);
                // The long way.
                found.or_else(|| match self.lock.lock().0.lookup(lba) {
                    Lookup::Chunk { place, .. } => Some(pin(place)),
                    _ => None,
                })
            }
        };
        let Some((place, pin)) = found else { return false };
        thread::yield_now();
        assert_eq!(*self.record.lock(), (place.generation, which), "another content, or one that left");
        drop(pin);
        true
    }
}

/// Hits by a metadata slot return the present content.
pub fn hits_by_a_metadata_slot_are_of_what_is_there() {
    explore(SCHEDULES, || {
        let stripes = Arc::new(Stripes::new(2));
        let world = Arc::new(World::new(&stripes));
        world.store(0);
        let reader = |which: usize| {
            let (world, stripes) = (world.clone(), stripes.clone());
            thread::spawn(move || {
                let stripe = stripes.mine();
                for _ in 0..3 {
                    world.read(which, stripe);
                }
            })
        };
        let readers: Vec<_> = [0, 0, 1].into_iter().map(reader).collect();
        (1..=ROUNDS).for_each(|round| world.store(round % 2));
        readers.into_iter().for_each(|reader| reader.join().expect("it ends"));
        assert!(world.read(ROUNDS % 2, stripes.mine()), "what was stored last is there");
        assert!(!world.read((ROUNDS + 1) % 2, stripes.mine()), "what was replaced is not");
    });
    assert!(CONFIRMED.iter().all(|looks| looks.load(Relaxed) > SCHEDULES), "{CONFIRMED:?}");
}
