//! A part of the FP index: consecutive buckets under one lock.
//!
//! Eviction takes, among runs with equal counts of references, the first from the bucket's *hand*
//! on. The hand stands behind the last stored run, so the newest run goes last. Only a store moves
//! the hand, so a caller can ask for victims any number of times. A checkpoint has the hands; log
//! entries that store at a restart move none.
//!
//! Invariants: those of the [index](super). Buckets have their numbers in the index; slots have
//! their numbers there or in their bucket. A hand is below the number of slots.
//!
//! It does not know the other buckets.

use super::run::SlotRun;
use crate::austere::keys::{Key, KeySpace, equal_mask, low_bits};

/// Maximum slots of a bucket: a bit of 128 for each.
const SLOTS_MAX: usize = 128;

/// See the module.
pub struct FpPart {
    space: KeySpace,
    /// The first bucket's number.
    first: usize,
    slots: usize,
    prefixes: Box<[u16]>,
    valid: Box<[u128]>,
    /// The hand of each bucket: eviction takes runs with equal counts from that slot on.
    hands: Box<[u8]>,
    /// Number of runs in use, because a walk over all slots takes a while.
    runs: u64,
}

impl FpPart {
    /// Creates a part of so many buckets from `first` on, each of so many slots.
    pub fn new(space: KeySpace, first: usize, buckets: usize, slots: usize) -> FpPart {
        let (prefixes, valid, hands) = (vec![0; buckets * slots], vec![0; buckets], vec![0; buckets]);
        FpPart { space, first, slots, prefixes: prefixes.into(), valid: valid.into(), hands: hands.into(), runs: 0 }
    }

    /// Counts the slots in use.
    pub fn used_count(&self) -> u64 {
        self.valid.iter().map(|valid| u64::from(valid.count_ones())).sum()
    }

    /// Counts the runs in use.
    pub fn run_count(&self) -> u64 {
        self.runs
    }

    /// Returns the bytes that it has allocated.
    pub fn ram_bytes(&self) -> usize {
        size_of_val(&*self.prefixes) + size_of_val(&*self.valid) + size_of_val(&*self.hands)
    }

    /// Returns the slots of a bucket in use, as a mask.
    #[inline]
    fn valid(&self, bucket: usize) -> u128 {
        self.valid[bucket - self.first]
    }

    /// Returns the prefixes of a bucket's slots.
    #[inline]
    fn prefixes(&self, bucket: usize) -> &[u16] {
        &self.prefixes[(bucket - self.first) * self.slots..][..self.slots]
    }

    /// Returns the run of an FP-hash.
    #[inline]
    pub fn find(&self, fp_key: Key) -> Option<SlotRun> {
        let bucket = self.space.bucket(fp_key);
        let prefixes = self.prefixes(bucket);
        let mask = equal_mask(prefixes, self.space.prefix(fp_key)) & self.valid(bucket);
        (mask != 0).then(|| self.run(bucket, mask.trailing_zeros() as usize, mask.count_ones()))
    }

    /// Gives an FP-hash the first `count` consecutive free slots of its bucket.
    ///
    /// The hand moves behind them. Returns `None` when the bucket has no such slots.
    pub fn store(&mut self, fp_key: Key, count: u32) -> Option<SlotRun> {
        let bucket = self.space.bucket(fp_key);
        let starts = starts_of(self.free(fp_key), count);
        let run = (starts != 0).then(|| self.run(bucket, starts.trailing_zeros() as usize, count))?;
        self.set(fp_key, run);
        let end = run.first as usize % self.slots + run.count as usize;
        self.hands[bucket - self.first] = (end % self.slots) as u8;
        Some(run)
    }

    /// Returns the hand of a bucket.
    pub fn hand(&self, bucket: usize) -> u8 {
        self.hands[bucket - self.first]
    }

    /// Puts the hand of a bucket at one of its slots.
    pub fn set_hand(&mut self, bucket: usize, slot: u8) {
        assert!(usize::from(slot) < self.slots, "a hand is at a slot of its bucket");
        self.hands[bucket - self.first] = slot;
    }

    /// Returns the runs to evict so that the bucket of an FP-hash has `count` consecutive free
    /// slots.
    ///
    /// Runs with the fewest references come first, and among equals the first from the hand on.
    /// Empty when there is room. `references` returns the references of a run, by its first slot
    /// and its hash.
    pub fn victims(&self, fp_key: Key, count: u32, references: impl Fn(u32, Key) -> u32) -> Victims {
        let bucket = self.space.bucket(fp_key);
        let free = self.free(fp_key);
        let mut victims = Victims { bucket_first: (bucket * self.slots) as u32, starts: 0, slots: 0, referenced: 0 };
        if starts_of(free, count) != 0 {
            return victims;
        }
        // 1. Runs without references go at once.
        let prefixes = self.prefixes(bucket);
        let firsts = self.firsts(bucket);
        let mut counts = [0u32; SLOTS_MAX];
        for slot in self.slots_from_hand(bucket, firsts) {
            counts[slot] = references((bucket * self.slots + slot) as u32, self.space.key(bucket, prefixes[slot]));
            if counts[slot] == 0 {
                victims.add(slot, self.run_at(bucket, slot).count, false);
                if starts_of(free | victims.slots, count) != 0 {
                    return victims;
                }
            }
        }
        // 2. Then the other runs go, one by one: `min_by_key` takes the first of equals.
        let mut left = firsts & !victims.starts;
        while starts_of(free | victims.slots, count) == 0
            && let Some(slot) = self.slots_from_hand(bucket, left).min_by_key(|&slot| counts[slot])
        {
            left &= !(1 << slot);
            victims.add(slot, self.run_at(bucket, slot).count, true);
        }
        victims
    }

    /// Returns the first slots of the runs of a bucket.
    fn firsts(&self, bucket: usize) -> u128 {
        let prefixes = self.prefixes(bucket);
        let pairs = prefixes.iter().zip(prefixes.iter().skip(1)).enumerate();
        let as_before = pairs.fold(0u128, |mask, (slot, (one, next))| mask | u128::from(one == next) << (slot + 1));
        let valid = self.valid(bucket);
        valid & !(as_before & valid << 1)
    }

    /// Returns the slots of a bucket that are set in `mask`, from the hand on.
    #[inline]
    fn slots_from_hand(&self, bucket: usize, mask: u128) -> impl Iterator<Item = usize> + use<> {
        let before = low_bits(self.hands[bucket - self.first].into());
        bits(mask & !before).chain(bits(mask & before))
    }

    /// Gives the slots of `run`, which are free and in the bucket of `fp_key`, to that hash.
    fn set(&mut self, fp_key: Key, run: SlotRun) {
        let bucket = self.space.bucket(fp_key);
        let mask = self.mask(run);
        assert!(self.valid(bucket) & mask == 0 && self.bucket_of(run) == bucket, "the slots of a new chunk are free");
        self.valid[bucket - self.first] |= mask;
        self.runs += 1;
        let at = run.first as usize - self.first * self.slots;
        self.prefixes[at..][..run.count as usize].fill(self.space.prefix(fp_key));
    }

    /// Frees the slots of `run`.
    pub fn clear(&mut self, run: SlotRun) {
        let (bucket, mask) = (self.bucket_of(run), self.mask(run));
        self.runs -= u64::from(self.valid(bucket) & mask != 0);
        self.valid[bucket - self.first] &= !mask;
    }

    /// Returns the run in use that begins at slot `first`.
    pub fn run_from(&self, first: u32) -> Option<SlotRun> {
        let (bucket, slot) = (first as usize / self.slots, first as usize % self.slots);
        if self.valid(bucket) >> slot & 1 == 0 {
            return None;
        }
        let run = self.run_at(bucket, slot);
        (self.find(self.key_of(run)) == Some(run)).then_some(run)
    }

    /// Gives the slots of `run` to that hash; replaces other runs there, and another run of the
    /// hash.
    ///
    /// Returns false if the slots are not all in the bucket of the hash.
    pub fn replace(&mut self, fp_key: Key, run: SlotRun) -> bool {
        let bucket = self.space.bucket(fp_key);
        let slot = (run.first as usize).wrapping_sub(bucket * self.slots);
        let is_inside = slot < self.slots && run.count > 0 && run.count as usize <= self.slots - slot;
        if !is_inside {
            return false;
        }
        let mask = self.mask(run);
        let gone = |(other, key): &(SlotRun, Key)| self.mask(*other) & mask != 0 || *key == fp_key;
        let gone: Vec<SlotRun> = self.runs_in(bucket).filter(gone).map(|(other, _)| other).collect();
        gone.into_iter().for_each(|other| self.clear(other));
        self.set(fp_key, run);
        true
    }

    /// Gives the slots of `run` to an unused hash of their bucket, and returns the hash.
    ///
    /// It replaces other runs there. Returns `None` if the slots are not in one bucket, or every
    /// hash of the bucket has a run.
    pub fn reserve(&mut self, run: SlotRun) -> Option<Key> {
        let bucket = self.bucket_of(run);
        let is_here =
            |key: Key| self.space.bucket(key) == bucket && self.find(key).is_none_or(|other| other.first == run.first);
        let key = (0..=u16::MAX).rev().map(|prefix| self.space.key(bucket, prefix)).find(|&key| is_here(key))?;
        self.replace(key, run).then_some(key)
    }

    /// Returns the FP-hash of a run.
    pub fn key_of(&self, run: SlotRun) -> Key {
        self.space.key(self.bucket_of(run), self.prefixes[run.first as usize - self.first * self.slots])
    }

    /// Returns the slots of a bucket in use, without runs that count as free, by their first slots.
    pub fn valid_but(&self, bucket: usize, is_freed: impl Fn(u32) -> bool) -> u128 {
        let freed = self.runs_in(bucket).filter(|(run, _)| is_freed(run.first));
        freed.fold(self.valid(bucket), |valid, (run, _)| valid & !self.mask(run))
    }

    /// Returns the prefix of a slot in use.
    pub fn prefix_of(&self, bucket: usize, slot: usize) -> u16 {
        self.prefixes(bucket)[slot]
    }

    /// Gives free slots to a prefix without a run.
    pub fn set_if_new(&mut self, bucket: usize, slot: usize, count: u32, prefix: u16) {
        let run = self.run(bucket, slot, count);
        let key = self.space.key(bucket, prefix);
        let is_free = self.valid(bucket) & self.mask(run) == 0;
        if is_free && self.space.prefix(key) == prefix && self.space.bucket(key) == bucket && self.find(key).is_none() {
            self.set(key, run);
        }
    }

    /// Returns all runs of a bucket, in order, each with its hash.
    #[inline]
    pub fn runs_in(&self, bucket: usize) -> impl Iterator<Item = (SlotRun, Key)> + '_ {
        let mut left = self.valid(bucket);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let slot = left.trailing_zeros() as usize;
            let run = self.run_at(bucket, slot);
            left &= !low_bits(slot + run.count as usize);
            Some((run, self.key_of(run)))
        })
    }

    /// Returns the run that begins at slot `slot` of a bucket.
    #[inline]
    fn run_at(&self, bucket: usize, slot: usize) -> SlotRun {
        let prefixes = self.prefixes(bucket);
        let valid = (self.valid(bucket) >> slot).trailing_ones() as usize;
        let same = prefixes[slot..].iter().take(valid).take_while(|&&other| other == prefixes[slot]);
        self.run(bucket, slot, same.count() as u32)
    }

    #[inline]
    fn free(&self, fp_key: Key) -> u128 {
        !self.valid(self.space.bucket(fp_key)) & low_bits(self.slots)
    }

    #[inline]
    fn run(&self, bucket: usize, slot: usize, count: u32) -> SlotRun {
        SlotRun { first: (bucket * self.slots + slot) as u32, count }
    }

    #[inline]
    fn bucket_of(&self, run: SlotRun) -> usize {
        run.first as usize / self.slots
    }

    fn mask(&self, run: SlotRun) -> u128 {
        low_bits(run.count as usize) << (run.first as usize % self.slots)
    }
}

/// Runs of one bucket that must go, in the order of their slots, with a mark for references.
#[derive(Clone, Copy, Debug)]
pub struct Victims {
    bucket_first: u32,
    /// First slots of runs.
    starts: u128,
    /// All their slots.
    slots: u128,
    /// First slots of runs with references.
    referenced: u128,
}

impl Victims {
    fn add(&mut self, slot: usize, count: u32, is_referenced: bool) {
        self.starts |= 1 << slot;
        self.slots |= low_bits(count as usize) << slot;
        self.referenced |= u128::from(is_referenced) << slot;
    }
}

impl Iterator for Victims {
    type Item = (SlotRun, bool);

    fn next(&mut self) -> Option<(SlotRun, bool)> {
        let slot = bits(self.starts).next()?;
        self.starts &= self.starts - 1;
        // A run ends with its slots, or before the next run.
        let next = if self.starts == 0 { u128::BITS } else { self.starts.trailing_zeros() };
        let count = (self.slots >> slot).trailing_ones().min(next - slot as u32);
        Some((SlotRun { first: self.bucket_first + slot as u32, count }, self.referenced >> slot & 1 == 1))
    }
}

/// Returns the starts of `count` consecutive bits of `free`.
#[inline]
fn starts_of(free: u128, count: u32) -> u128 {
    (1..count).fold(free, |starts, i| starts & free >> i)
}

/// Returns the positions of the set bits.
#[inline]
fn bits(mut mask: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        bit
    })
}
