//! A sample of contents, cached or refused alike, that teaches the life tables.
//!
//! One content in [`SHARE`] is sampled, by its fingerprint. Each sampled content has its class and
//! the time of its last event. A hand goes around the sample, so that contents without events count
//! as alive, too.
//!
//! Two miniature caches hold sampled contents alone (Waldspurger et al., USENIX ATC 2017). One
//! keeps the most recent, the other decides by the life tables. The rule that brings more hits for
//! its writes holds for the cache.
//!
//! Invariants: the number of sampled contents is bounded. Equal requests give equal answers.
//!
//! It does not know addresses or places.

use super::{
    ages::{Ages, BINS, Stamp},
    class::Class,
    lifetimes::Lifetimes,
    price::{Price, RECENT_VALUE_SHARE},
};
use crate::recency::{Linked, NONE, Neighbours, Recency};
use crate::types::mix;
use hashbrown::HashTable;

/// One content in so many is sampled.
pub const SHARE: u64 = 32;
/// Mappings for each entry of the sample. More contents than are cached must fit.
const MAPPINGS_AN_ENTRY: u64 = 8;
const ENTRIES_MIN: u64 = 1 << 10;
const ENTRIES_MAX: u64 = 1 << 26;
/// Requests between two renewals of the life tables.
const EPOCH: u32 = 12_000;
/// Requests between two computations in the first epoch.
const FIRST_EPOCHS: u32 = 5_000;
/// Entries that the hand passes at a step, each [`SHARE`] requests.
const HAND_STEPS: usize = 2;
/// Entries that the hand looks at for one to replace.
const LOOKS_MAX: usize = 16;
/// Entries that a miniature cache looks at for a victim.
const VICTIMS: usize = 16;
/// The weight of a victim in the rent of the miniature cache.
const RENT_WEIGHT: f64 = 0.02;
/// The fading of scores, for each sampled request.
const FADING: f64 = 0.9998;
/// The lead, as a share of both scores, from which the rule changes.
const LEAD: f64 = 0.02;
/// The share of a score by recency that whole WEUs bring: they take recent contents along.
const RECENT_SHARE: f64 = 0.95;

struct Entry {
    key: u64,
    at: u32,
    stored_len: u32,
    class: Class,
    /// Bins that it has lived through since its last event.
    bins: u8,
    is_recent: bool,
    beside: Neighbours,
    /// Its place among those that the life tables keep, or [`NONE`].
    chosen: u32,
}

impl Linked for Entry {
    fn neighbours(&self) -> Neighbours {
        self.beside
    }
    fn neighbours_mut(&mut self) -> &mut Neighbours {
        &mut self.beside
    }
}

/// The miniature cache of the most recent contents.
#[derive(Default)]
struct Recent {
    order: Recency,
    bytes: u64,
    score: f64,
}

/// The miniature cache that decides by the life tables.
#[derive(Default)]
struct Chosen {
    entries: Vec<u32>,
    bytes: u64,
    rent: f64,
    score: f64,
}

/// See the module.
pub struct Sample {
    lives: Lifetimes,
    entries: Vec<Entry>,
    by_key: HashTable<u32>,
    entries_max: usize,
    hand: usize,
    now: u32,
    epoch: u32,
    /// Bytes of each miniature cache.
    capacity: u64,
    recent: Recent,
    chosen: Chosen,
    keeps_recent: bool,
    draws: u64,
    price: Price,
}

impl Sample {
    /// Returns an empty sample for a cache of so many mappings.
    pub fn new(mappings_max: u64) -> Sample {
        // Ages and epochs grow with the cache: they were chosen on small ones.
        let scale = (mappings_max >> 20).clamp(1, 1 << 12) as u32;
        Sample {
            lives: Lifetimes::new(Ages::new(64 * scale)),
            entries: Vec::new(),
            by_key: HashTable::new(),
            entries_max: (mappings_max / MAPPINGS_AN_ENTRY).clamp(ENTRIES_MIN, ENTRIES_MAX) as usize,
            hand: 0,
            now: 0,
            epoch: EPOCH.saturating_mul(scale),
            capacity: 0,
            recent: Recent::default(),
            chosen: Chosen::default(),
            keeps_recent: true,
            draws: 1,
            price: Price::default(),
        }
    }

    /// Returns the time: requests of chunks, modulo 2^32.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Returns the stamp of the present.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.lives.ages().stamp(self.now)
    }

    /// Returns the stamp of a time so many requests ago.
    pub fn stamp_before(&self, age: u32) -> Stamp {
        self.lives.ages().stamp(self.now.wrapping_sub(age))
    }

    /// Returns the requests since a stamp.
    #[inline]
    pub fn since(&self, stamp: Stamp) -> u32 {
        self.lives.ages().since(stamp, self.now)
    }

    /// Returns the life tables.
    #[inline]
    pub fn lives(&self) -> &Lifetimes {
        &self.lives
    }

    /// Returns the life tables, to restore them.
    pub fn lives_mut(&mut self) -> &mut Lifetimes {
        &mut self.lives
    }

    /// Goes on from a time and a rule, after a restart.
    pub fn restore(&mut self, now: u32, keeps_recent: bool) {
        (self.now, self.keeps_recent) = (now, keeps_recent);
    }

    /// Returns whether the cache keeps the most recent contents for now.
    #[inline]
    pub fn keeps_recent(&self) -> bool {
        self.keeps_recent
    }

    /// Tells the bytes of the cache.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes / SHARE;
    }

    /// Returns the hits that a written byte is worth.
    pub fn price(&self) -> f64 {
        self.price.of_byte()
    }

    /// Counts a request of a chunk.
    pub fn tick(&mut self, is_read: bool) {
        self.price.note(is_read);
        self.now = self.now.wrapping_add(1);
        if self.now.is_multiple_of(self.epoch) {
            self.lives.renew();
        } else if self.now < self.epoch && self.now.is_multiple_of(FIRST_EPOCHS) {
            self.lives.solve();
        }
        if u64::from(self.now).is_multiple_of(SHARE) {
            for _ in 0..HAND_STEPS.min(self.entries.len()) {
                self.hand = (self.hand + 1) % self.entries.len();
                self.live_on(self.hand);
            }
        }
    }

    /// Notes a request of a content, which is in `class` from now on.
    ///
    /// `may_switch` is false while the cache has not been written often enough to compare rules.
    pub fn observe(&mut self, key: u64, class: Class, is_hit: bool, stored_len: u32, may_switch: bool) {
        if !is_sampled(key) {
            return;
        }
        let i = match self.find(key) {
            Some(i) => {
                self.end_life(i, is_hit);
                i
            }
            None => {
                let Some(i) = self.add(key, class, stored_len) else { return };
                i
            }
        };
        let now = self.now;
        let entry = &mut self.entries[i];
        (entry.class, entry.at, entry.bins) = (class, now, 0);
        if stored_len > 0 && !entry.is_recent && entry.chosen == NONE {
            entry.stored_len = stored_len;
        }
        self.replay(i, is_hit, may_switch);
    }

    /// Notes that a content has lost its last address.
    pub fn lose(&mut self, key: u64) {
        if !is_sampled(key) {
            return;
        }
        if let Some(i) = self.find(key) {
            self.end_life(i, false);
            let now = self.now;
            let entry = &mut self.entries[i];
            (entry.class, entry.at, entry.bins) = (entry.class.dead(), now, 0);
        }
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.by_key.find(key, |&i| self.entries[i as usize].key == key).map(|&i| i as usize)
    }

    /// Adds an entry, in place of an old one if there are too many.
    fn add(&mut self, key: u64, class: Class, stored_len: u32) -> Option<usize> {
        let entry = Entry {
            key,
            at: self.now,
            stored_len: stored_len.max(1),
            class,
            bins: 0,
            is_recent: false,
            beside: Neighbours::ALONE,
            chosen: NONE,
        };
        let i = match self.entries.len() < self.entries_max {
            true => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            false => {
                let i = self.oldest_of_some()?;
                self.live_on(i);
                let old = self.entries[i].key;
                if let Ok(found) = self.by_key.find_entry(old, |&at| at as usize == i) {
                    found.remove();
                }
                self.entries[i] = entry;
                i
            }
        };
        let entries = &self.entries;
        self.by_key.insert_unique(key, i as u32, |&i| entries[i as usize].key);
        Some(i)
    }

    /// Returns the entry without an event for the longest time, of a few that no miniature cache
    /// has.
    fn oldest_of_some(&mut self) -> Option<usize> {
        let len = self.entries.len();
        let looked = (0..LOOKS_MAX).map(|step| (self.hand + step) % len);
        let free = looked.filter(|&i| !self.entries[i].is_recent && self.entries[i].chosen == NONE);
        let oldest = free.max_by_key(|&i| self.now.wrapping_sub(self.entries[i].at));
        self.hand = (self.hand + LOOKS_MAX) % len;
        oldest
    }

    /// Counts the bins that an entry has lived through by now.
    fn live_on(&mut self, i: usize) {
        let entry = &mut self.entries[i];
        let bin = self.lives.ages().bin(self.now.wrapping_sub(entry.at));
        while usize::from(entry.bins) <= bin && usize::from(entry.bins) < BINS {
            self.lives.live_through(entry.class, entry.bins.into());
            entry.bins += 1;
        }
    }

    fn end_life(&mut self, i: usize, is_hit: bool) {
        self.live_on(i);
        let entry = &self.entries[i];
        self.lives.note(entry.class, self.now.wrapping_sub(entry.at), is_hit);
    }

    /// Replays a request of a sampled content on both miniature caches.
    fn replay(&mut self, i: usize, is_hit: bool, may_switch: bool) {
        self.replay_recent(i, is_hit);
        self.replay_chosen(i, is_hit);
        self.recent.score *= FADING;
        self.chosen.score *= FADING;
        if !may_switch {
            return;
        }
        let lead = RECENT_SHARE * self.recent.score - self.chosen.score + 1.0;
        let band = LEAD * (self.recent.score.abs() + self.chosen.score.abs());
        self.keeps_recent = if self.keeps_recent { lead >= -band } else { lead > band };
    }

    fn replay_recent(&mut self, i: usize, is_hit: bool) {
        let bytes = self.entries[i].stored_len;
        if self.entries[i].is_recent {
            self.recent.score += f64::from(u8::from(is_hit));
            self.recent.order.unlink(self.entries.as_mut_slice(), i as u32);
        } else {
            self.recent.score -= self.price.of_byte() * f64::from(bytes);
            self.recent.bytes += u64::from(bytes);
            self.entries[i].is_recent = true;
        }
        self.recent.order.link(self.entries.as_mut_slice(), i as u32);
        while self.recent.bytes > self.capacity {
            let oldest = self.recent.order.oldest();
            if oldest == NONE {
                break;
            }
            self.recent.order.unlink(self.entries.as_mut_slice(), oldest);
            let entry = &mut self.entries[oldest as usize];
            entry.is_recent = false;
            self.recent.bytes -= u64::from(entry.stored_len);
        }
    }

    fn replay_chosen(&mut self, i: usize, is_hit: bool) {
        let entry = &self.entries[i];
        if entry.chosen != NONE {
            self.chosen.score += f64::from(u8::from(is_hit));
            return;
        }
        let bytes = f64::from(entry.stored_len);
        if self.lives.profit(entry.class, 0, self.chosen.rent * bytes) <= self.price.of_byte() * bytes {
            return;
        }
        self.chosen.score -= self.price.of_byte() * bytes;
        self.chosen.bytes += u64::from(entry.stored_len);
        self.entries[i].chosen = self.chosen.entries.len() as u32;
        self.chosen.entries.push(i as u32);
        while self.chosen.bytes > self.capacity {
            let Some((at, value)) = self.least_of_chosen() else { break };
            let gone = self.chosen.entries.swap_remove(at);
            if let Some(&moved) = self.chosen.entries.get(at) {
                self.entries[moved as usize].chosen = at as u32;
            }
            let entry = &mut self.entries[gone as usize];
            entry.chosen = NONE;
            self.chosen.bytes -= u64::from(entry.stored_len);
            let rent = &mut self.chosen.rent;
            *rent = if *rent == 0.0 { value } else { *rent + (value - *rent) * RENT_WEIGHT };
        }
    }

    /// Returns the least valuable of some chosen entries, by the byte, with its value.
    fn least_of_chosen(&mut self) -> Option<(usize, f64)> {
        let count = self.chosen.entries.len();
        let mut least: Option<(usize, f64)> = None;
        for _ in 0..VICTIMS.min(count) {
            let at = (self.draw() % count as u64) as usize;
            let entry = &self.entries[self.chosen.entries[at] as usize];
            let age = self.now.wrapping_sub(entry.at);
            let value = value_of(&self.lives, entry.class, age) / f64::from(entry.stored_len);
            if least.is_none_or(|(_, best)| value < best) {
                least = Some((at, value));
            }
        }
        least
    }

    /// Returns the next number of a fixed sequence.
    pub fn draw(&mut self) -> u64 {
        self.draws = self.draws.wrapping_add(1);
        mix(self.draws)
    }

    /// Returns the value of a content under the rule that holds: hits for each request.
    #[inline]
    pub fn value(&self, class: Class, used_at: Stamp) -> f64 {
        let age = self.since(used_at);
        match self.keeps_recent {
            true => 1.0 / (f64::from(age) + 64.0),
            false => value_of(&self.lives, class, age),
        }
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> usize {
        self.lives.ram_bytes()
            + self.entries.capacity() * size_of::<Entry>()
            + self.by_key.allocation_size()
            + self.chosen.entries.capacity() * size_of::<u32>()
    }
}

/// Returns whether a content of this key is sampled.
fn is_sampled(key: u64) -> bool {
    (key >> 32).is_multiple_of(SHARE)
}

/// Returns the index of a content, and a little for a recent one of a class without hope.
fn value_of(lives: &Lifetimes, class: Class, age: u32) -> f64 {
    lives.index(class, age).max(RECENT_VALUE_SHARE / (f64::from(age) + 64.0))
}
