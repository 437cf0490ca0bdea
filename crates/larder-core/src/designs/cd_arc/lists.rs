//! The lists of `cd-arc`: D-ARC's Algorithms 2 and 3 (CacheDedup §4.2) over addresses in WEUs.
//!
//! They are without the data.
//!
//! Invariants: |T1|+|T2|+|B3| <= C+X and |B1|+|B2| <= C. Each slot has a count of the addresses in
//! T1 and T2 that are in its present generation.
//!
//! It does not know the places of contents, or forget an address that is in a WEU. Addresses that
//! leave B3 wait on LEFT, with at most twice as many addresses as are mapped; dirty ones wait on
//! OWED.

use crate::{
    design::Use,
    slotted::addresses::Addresses,
    types::{Fingerprint, Lba, SlotId},
};
use std::collections::VecDeque;

pub(super) const T1: usize = 0;
pub(super) const T2: usize = 1;
pub(super) const B1: usize = 2;
pub(super) const B2: usize = 3;
pub(super) const B3: usize = 4;
/// Number of the paper's lists, from 0 on.
pub(super) const ON_LISTS: usize = 5;
/// Addresses that have left the lists: dropped as soon as the caller logs that.
pub(super) const LEFT: usize = 5;
/// Dirty addresses that have left the lists. They are apart, so that a search for droppable ones
/// skips them all.
pub(super) const OWED: usize = 6;
/// The list of an incoming address.
pub(super) const NEW: usize = 7;
const LISTS: usize = 8;

/// Nodes for each address of 2C + X: itself, and two that wait to be dropped.
const NODES_AN_ADDRESS: usize = 3;
/// Maximum bytes of RAM for each address of 2C + X: nodes, and entries of a hash table that
/// doubled.
pub(super) const ADDRESS_BYTES_MAX: u64 = (NODES_AN_ADDRESS * Addresses::<Known, LISTS>::NODE_BYTES_MAX) as u64;

/// No known content has this fingerprint: a fingerprint is a keyed hash.
const NO_FINGERPRINT: [u8; 16] = [0; 16];

/// The location of a mapped address, valid while the slot has this generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub slot: u32,
    pub generation: u32,
}

impl At {
    /// The location of an unmapped address.
    pub const NOWHERE: At = At { slot: u32::MAX, generation: 0 };
    /// The location of a chunk of zeroes.
    pub const ZERO: At = At { slot: u32::MAX, generation: 1 };
}

/// The data of an address.
#[derive(Clone, Copy)]
struct Known {
    /// Its content: a hit when that is known again.
    fingerprint: [u8; 16],
    at: At,
}

/// The addresses of T1 and T2 in a slot.
#[derive(Clone, Copy, Default)]
struct SlotCount {
    generation: u32,
    /// Number of these addresses.
    count: u32,
    /// True if it is in the queue of slots without any.
    is_queued: bool,
}

/// See the module.
pub(super) struct Lists {
    addresses: Addresses<Known, LISTS>,
    held: Vec<SlotCount>,
    /// Slots that lost their last address in T1 and T2, in that order; some may have one again, or
    /// be gone.
    unheld: VecDeque<u32>,
    /// The paper's C.
    data_chunks: u64,
    /// The paper's X.
    extra: u64,
    /// The target size of T1.
    p: f64,
}

impl Lists {
    /// Creates empty lists of `addresses_max` (2C + X) addresses in `slot_count` slots.
    pub fn new(addresses_max: u64, slot_count: u32) -> Self {
        // On lists, twice as many that wait to be dropped, and an incoming one.
        let nodes_max =
            addresses_max.saturating_mul(NODES_AN_ADDRESS as u64).saturating_add(2).min(u64::from(u32::MAX) - 1);
        Lists {
            addresses: Addresses::new(nodes_max as usize),
            held: vec![SlotCount::default(); slot_count as usize],
            unheld: VecDeque::new(),
            data_chunks: addresses_max / 2,
            extra: addresses_max % 2,
            p: 0.0,
        }
    }

    /// Returns the target size of T1 (the paper's p).
    pub fn target(&self) -> f64 {
        self.p
    }

    /// Restart: sets p.
    pub fn set_target(&mut self, target: f64) {
        self.p = target;
    }

    /// Returns the paper's C and X.
    pub fn sizes(&self) -> (u64, u64) {
        (self.data_chunks, self.extra)
    }

    pub fn slot_count(&self) -> u64 {
        self.held.len() as u64
    }

    /// Begins a walk along `list`, least recent first.
    pub fn begin_walk(&mut self, list: usize) {
        self.addresses.begin_walk(list);
    }

    /// Shows the next addresses of the walk with their content; returns whether it goes on. An
    /// unknown content is zeroes.
    pub fn show_some(&mut self, mut see: impl FnMut(Lba, &Fingerprint)) -> bool {
        let seen = self.addresses.walk();
        let seen_now = seen.iter().flatten();
        seen_now.for_each(|&i| see(self.addresses.lba(i), &Fingerprint(self.addresses.payload(i).fingerprint)));
        seen.is_some()
    }

    /// Returns the queued slots with their generations, in the order of their last losses.
    pub fn unheld(&self) -> impl Iterator<Item = (SlotId, u32)> + '_ {
        self.unheld.iter().map(|&slot| (SlotId(slot), self.held[slot as usize].generation))
    }

    /// Restart: queues `slot` among them.
    pub fn queue(&mut self, slot: SlotId) {
        if let Some(held) = self.held.get_mut(slot.0 as usize).filter(|held| !held.is_queued) {
            held.is_queued = true;
            self.unheld.push_back(slot.0);
        }
    }

    /// Restart: takes all addresses off, list by list, least recent first, with their known
    /// contents.
    pub fn take_all(&mut self) -> Vec<(Lba, Option<Fingerprint>)> {
        let all = (0..LISTS).flat_map(|list| self.addresses.on_list(list));
        let all = all.map(|i| (self.addresses.lba(i), self.fingerprint(i))).collect();
        *self = Lists::new(2 * self.data_chunks + self.extra, self.held.len() as u32);
        all
    }

    /// Restart: makes `lba`, which is on no list, the most recent of `list`.
    pub fn put_back(&mut self, lba: Lba, list: usize, at: At, fingerprint: Option<Fingerprint>, is_dirty: bool) {
        let fingerprint = fingerprint.map_or(NO_FINGERPRINT, |fingerprint| fingerprint.0);
        let i = self.addresses.insert(lba, list, Known { fingerprint, at });
        if is_top(list) {
            self.count(at, true);
        }
        self.addresses.set_dirty(i, is_dirty);
    }

    #[inline]
    pub fn len(&self, list: usize) -> u64 {
        self.addresses.len(list) as u64
    }

    /// Counts the addresses on all lists.
    pub fn total(&self) -> u64 {
        (0..LISTS).map(|list| self.len(list)).sum()
    }

    #[inline]
    pub fn find(&self, lba: Lba) -> Option<u32> {
        self.addresses.find(lba)
    }

    /// Returns the number of `lba`; an unknown one is then on [`NEW`].
    pub fn find_or_insert(&mut self, lba: Lba) -> u32 {
        let unknown = Known { fingerprint: NO_FINGERPRINT, at: At::NOWHERE };
        self.find(lba).unwrap_or_else(|| self.addresses.insert(lba, NEW, unknown))
    }

    /// Returns the least recent address on `list`.
    pub fn oldest(&self, list: usize) -> Option<(u32, Lba)> {
        self.addresses.oldest(list).map(|i| (i, self.addresses.lba(i)))
    }

    #[inline]
    pub fn list(&self, i: u32) -> usize {
        self.addresses.list(i)
    }

    #[inline]
    pub fn at(&self, i: u32) -> At {
        self.addresses.payload(i).at
    }

    /// Returns the content of `i`, if it is known.
    pub fn fingerprint(&self, i: u32) -> Option<Fingerprint> {
        let fingerprint = self.addresses.payload(i).fingerprint;
        (fingerprint != NO_FINGERPRINT).then_some(Fingerprint(fingerprint))
    }

    /// Queues `slot` if it has no address in T1 and T2.
    pub fn note_unheld(&mut self, slot: SlotId) {
        if let Some(held) = self.held.get_mut(slot.0 as usize).filter(|held| held.count == 0 && !held.is_queued) {
            held.is_queued = true;
            self.unheld.push_back(slot.0);
        }
    }

    /// Takes the first queued slot that may go. `state` returns true for such a slot, `Some(false)`
    /// for one that may not go now, and `None` for one that is noted again later.
    pub fn take_unheld(&mut self, mut state: impl FnMut(SlotId) -> Option<bool>) -> Option<SlotId> {
        for _ in 0..self.unheld.len() {
            let slot = self.unheld.pop_front()?;
            let held = self.held.get_mut(slot as usize)?;
            held.is_queued = false;
            match state(SlotId(slot)).filter(|_| held.count == 0) {
                Some(true) => return Some(SlotId(slot)),
                Some(false) => self.note_unheld(SlotId(slot)),
                None => {}
            }
        }
        None
    }

    /// Begins a generation of `slot`, which is then empty.
    pub fn begin_generation(&mut self, slot: SlotId, generation: u32) {
        if let Some(held) = self.held.get_mut(slot.0 as usize).filter(|held| held.generation != generation) {
            (held.generation, held.count) = (generation, 0);
        }
    }

    /// Returns whether the data that was mapped to `at` is still there.
    #[inline]
    pub fn is_there(&self, at: At) -> bool {
        at == At::ZERO || self.held.get(at.slot as usize).is_some_and(|held| held.generation == at.generation)
    }

    /// Counts an address in T1 or T2 that maps to `at`, or uncounts it.
    #[inline]
    fn count(&mut self, at: At, more: bool) {
        let Some(held) = self.held.get_mut(at.slot as usize).filter(|held| held.generation == at.generation) else {
            return;
        };
        held.count = if more { held.count + 1 } else { held.count - 1 };
        if held.count == 0 {
            self.note_unheld(SlotId(at.slot));
        }
    }

    /// Moves `i` to the head of `list`.
    #[inline]
    pub fn move_to(&mut self, i: u32, list: usize) {
        let was = is_top(self.list(i));
        self.addresses.move_to(i, list);
        match (was, is_top(list)) {
            (false, true) => self.count(self.at(i), true),
            (true, false) => self.count(self.at(i), false),
            _ => {}
        }
    }

    fn move_oldest(&mut self, from: usize, to: usize) {
        if let Some(i) = self.addresses.oldest(from) {
            self.move_to(i, to);
        }
    }

    /// Maps `i` to `at`, with this content.
    #[inline]
    pub fn place(&mut self, i: u32, at: At, fingerprint: Option<Fingerprint>) {
        let fingerprint = fingerprint.map_or(NO_FINGERPRINT, |fingerprint| fingerprint.0);
        let before = std::mem::replace(self.addresses.payload_mut(i), Known { fingerprint, at }).at;
        if is_top(self.list(i)) {
            self.count(before, false);
            self.count(at, true);
        }
    }

    /// Marks `i` dirty or clean. A dirty address cannot be dropped.
    #[inline]
    pub fn set_dirty(&mut self, i: u32, is_dirty: bool) {
        if self.addresses.set_dirty(i, is_dirty) && matches!(self.list(i), LEFT | OWED) {
            self.leave(i);
        }
    }

    /// Returns whether the origin lacks the content of `i`.
    pub fn is_dirty(&self, i: u32) -> bool {
        self.addresses.is_dirty(i)
    }

    /// Lets `i` wait to be dropped.
    pub fn leave(&mut self, i: u32) {
        self.move_to(i, if self.addresses.is_dirty(i) { OWED } else { LEFT });
    }

    /// Forgets `i`.
    pub fn remove(&mut self, i: u32) {
        self.place(i, At::NOWHERE, None);
        self.addresses.remove(i);
    }

    /// Forgets the unmapped addresses.
    pub fn forget_ghosts(&mut self) {
        let gone: Vec<u32> = self.addresses.iter().filter(|&i| !self.is_there(self.at(i))).collect();
        gone.into_iter().for_each(|i| self.remove(i));
    }

    /// Returns the addresses in a run that are on any list, ascending.
    pub fn in_run(&self, first: Lba, count: u64) -> Vec<Lba> {
        self.addresses.in_run(first, count)
    }

    /// Reads the memory of these uses ahead.
    pub fn warm(&self, uses: &[Use]) {
        self.addresses.warm(uses);
    }

    /// Handles a request of address `i` (PROCESSREQUEST, for the lists).
    #[inline]
    pub fn process(&mut self, i: u32) {
        let to = match self.list(i) {
            T1 | T2 => T2,
            list @ (B1 | B2) => {
                self.adapt(list);
                self.check_metadata(i);
                T2
            }
            B3 => T1,
            _ => {
                // Off LEFT and OWED, where it might be removed meanwhile.
                self.addresses.move_to(i, NEW);
                self.check_metadata(i);
                T1
            }
        };
        self.move_to(i, to);
    }

    /// Recovery: maps `i`. A new one goes to T2, else to B2, else it leaves.
    pub fn restore(&mut self, i: u32) {
        let list = match self.list(i) {
            NEW if self.has_room_in_t() => T2,
            NEW if self.len(B1) + self.len(B2) < self.data_chunks => B2,
            NEW => return self.leave(i),
            known => known,
        };
        self.move_to(i, list);
    }

    fn has_room_in_t(&self) -> bool {
        self.len(T1) + self.len(T2) + self.len(B3) < self.data_chunks + self.extra
    }

    /// Moves `p` after a hit in `list`, B1 or B2.
    fn adapt(&mut self, list: usize) {
        let (b1, b2) = (self.len(B1) as f64, self.len(B2) as f64);
        self.p = match list {
            B1 => (self.p + (b2 / b1).max(1.0)).min(self.data_chunks as f64),
            _ => (self.p - (b1 / b2).max(1.0)).max(0.0),
        };
    }

    /// Makes room for an address on the lists, if they are full (CHECKMETADATACACHE).
    fn check_metadata(&mut self, i: u32) {
        if self.has_room_in_t() {
            return;
        }
        if self.len(B3) == 0 {
            self.manage_metadata();
        }
        let Some(oldest) = self.addresses.oldest(B3).filter(|&oldest| oldest != i) else { return };
        if self.is_there(self.at(oldest)) {
            self.leave(oldest);
            self.sift_left();
        } else {
            self.addresses.remove(oldest);
        }
    }

    /// Removes waiting addresses whose WEU is gone: no log needs them. Each arrival checks two, so
    /// at most twice as many wait as are mapped.
    fn sift_left(&mut self) {
        for _ in 0..2 {
            match self.addresses.oldest(LEFT) {
                Some(i) if self.is_there(self.at(i)) => self.addresses.move_to(i, LEFT),
                Some(i) => self.addresses.remove(i),
                None => return,
            }
        }
    }

    /// Takes one address out of T1 or T2, if there is one (MANAGEMETADATACACHE).
    pub fn manage_metadata(&mut self) {
        let t1 = self.len(T1);
        if t1 + self.len(B1) >= self.data_chunks {
            if t1 < self.data_chunks {
                self.move_oldest(B1, B3);
                self.replace_in_metadata();
            } else if self.len(B1) > 0 {
                self.move_oldest(B1, B3);
                self.move_oldest(T1, B1);
            } else {
                self.move_oldest(T1, B3);
            }
        } else {
            if self.len(B1) + self.len(B2) >= self.data_chunks {
                self.move_oldest(B2, B3);
            }
            self.replace_in_metadata();
        }
    }

    /// Moves the oldest address of T1 or T2 to B1 or B2 (REPLACEINMETADATACACHE).
    fn replace_in_metadata(&mut self) {
        let t1 = self.len(T1);
        if t1 > 0 && (t1 as f64 > self.p || self.len(T2) == 0) {
            self.move_oldest(T1, B1);
        } else {
            self.move_oldest(T2, B2);
        }
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        let slots = self.held.capacity() * size_of::<SlotCount>() + self.unheld.capacity() * size_of::<u32>();
        self.addresses.ram_bytes() + slots
    }

    /// Returns all addresses with their numbers, in no useful order. For tests. Panics if an
    /// invariant of this file does not hold.
    pub fn check(&self) -> Vec<(Lba, u32)> {
        let [t1, t2, b1, b2, b3] = [T1, T2, B1, B2, B3].map(|list| self.len(list));
        assert!(t1 + t2 + b3 <= self.data_chunks + self.extra, "T1 {t1}, T2 {t2}, B3 {b3}");
        assert!(b1 + b2 <= self.data_chunks, "B1 {b1}, B2 {b2}");
        assert!((0.0..=self.data_chunks as f64).contains(&self.p), "p is {}", self.p);
        assert_eq!(self.len(NEW), 0);
        let mut counts = vec![0; self.held.len()];
        let tops = self.addresses.iter().filter(|&i| is_top(self.list(i)) && self.at(i).slot != u32::MAX);
        tops.filter(|&i| self.is_there(self.at(i))).for_each(|i| counts[self.at(i).slot as usize] += 1);
        assert!(self.held.iter().zip(&counts).all(|(held, count)| held.count == *count), "addresses in T1 and T2");
        let queued = self.held.iter().filter(|held| held.is_queued).count();
        assert_eq!(queued, self.unheld.len());
        self.addresses.iter().map(|i| (self.addresses.lba(i), i)).collect()
    }
}

#[inline]
pub(super) fn is_top(list: usize) -> bool {
    list == T1 || list == T2
}
