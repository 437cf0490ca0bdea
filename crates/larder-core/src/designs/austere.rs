//! AustereCache (Wang et al., USENIX ATC 2020): deduplication and compression, with an index of
//! hashes.
//!
//! Role: an LBA index from LBA-hash to FP-hash ([`lba_index`], §3.1), and an FP index whose slots
//! are those of the flash ([`fp_index`], §3.1, §3.2). Estimated reference counts choose the
//! victims ([`sketch`], §3.3). A hash gives the bucket of an entry, and 16 bits of it the slot
//! there. Full addresses and fingerprints are in the *metadata slots* on flash ([`RunMetadata`]).
//!
//! Each decision is therefore provisional: "probably run `r`; its metadata slot says". The caller
//! reads that slot and comes back with it. For a chunk, the caller has the following steps, in this
//! order:
//!
//! - **Read.** [`lookup`](Austere::lookup), then read the metadata slot. It is a hit if the slot
//!   [`has`](RunMetadata::has) the address: [`touch`](Austere::touch), read the run. Else it is a
//!   miss: read the origin and insert the chunk clean, as a write does.
//! - **Write or insert.** (1) [`find_content`](Austere::find_content) and read the metadata slot:
//!   the same fingerprint is a duplicate, another one a collision, whose run is evicted. (2)
//!   [`displaced`](Austere::displaced) yields a dirty mapping that gives way: read its metadata
//!   slot, and destage its [`owner`](Austere::owner). (3) A duplicate:
//!   [`list_change`](Austere::list_change), destage a dirty address that leaves the list,
//!   [`map`](Austere::map), write the metadata slot if it changed. New content: `map`, evict the
//!   [`victims`](Austere::victims), [`store`](Austere::store), write the subchunks and the metadata
//!   slot.
//! - **Evict a run.** Destage the [dirty](Austere::is_dirty) addresses of its metadata slot and
//!   [`clean`](Austere::clean) each; then [`evict`](Austere::evict).
//! - **Trim, write-around.** [`forget`](Austere::forget).
//!
//! Several threads may ask at once. Each decision has the lock of its bucket in either index (§4),
//! and other decisions run in other buckets. The caller keeps related decisions together: for
//! example, it does not map a run under eviction. One thread at a time asks for
//! [`victims`](Austere::victims), which may count all references anew; in write-back nothing is
//! mapped meanwhile. A bucket of the LBA index can be [held](Austere::hold) beyond the caller's own
//! lock. Changes of that bucket then keep the caller's order, and their work runs beside others.
//!
//! Invariants: an address has the content of a run that lists it, if its LBA-hash and FP-hash lead
//! there. The content of a dirty mapping is on flash, in a run that lists its address, until it is
//! overwritten, trimmed or destaged. A request allocates nothing, but the sketch's table of large
//! counts may grow up to its maximum.
//!
//! Departures from the paper, and their reasons:
//!
//! 1. *A metadata slot lists one address of each LBA-hash.* The paper leaves an address in the list
//!    after an overwrite elsewhere. If another address of the same LBA-hash is then mapped to that
//!    content, the first one reads as a hit with outdated content. The paper's "only leads to a
//!    cache miss" does not hold there. An added address therefore replaces one with its LBA-hash.
//!    The slot is written then anyway, so this costs nothing.
//! 2. *Write-back keeps a dirty flag a slot* (51 bits in place of 50). The list of full addresses
//!    of §2.2 would need RAM for whole addresses. The owner of a displaced dirty mapping is read
//!    from its metadata slot. The estimate 0 is exact, so a victim without references is evicted
//!    without such a read.
//! 3. *Any number of buckets.* The bucket is the hash times the number of buckets, not a suffix of
//!    the hash. The flash need not be a power of two. If it is one, the bits are as many as in the
//!    paper.
//! 4. *SplitMix64's finalizer* in place of XXHash (§4), over fingerprints of 16 bytes in place of
//!    SHA-1's 20. The sketch's four hashes are sums of two (Kirsch and Mitzenmacher, 2006); the
//!    paper has independent ones.
//! 5. *Counters of 4 bits*, with a table for larger counts, as in the prototype. The paper gives
//!    the number of counters, not their width.
//! 6. *Eviction for several slots.* The paper evicts "the slot that has the lowest reference
//!    count", without a rule for consecutive slots. Here, as in the prototype, runs go in the order
//!    of their counts until enough free slots lie together. The first such place is taken.
//! 7. *An invalidation is not written to flash.* The paper invalidates evicted and collided slots
//!    "in the metadata region in flash". Here, as in the prototype, the valid flag in RAM does, and
//!    the next chunk overwrites the metadata slot.
//! 8. *The old reference goes first.* When a content replaces another at an address, both counts
//!    are right before the choice of a victim. The paper gives no order, and the prototype drops
//!    the old reference after it.
//! 9. *Deduplication cannot be turned off*, as in the paper: a content's hash gives its bucket.
//!    Without compression (AC-D) a slot is a whole chunk.
//! 10. *A hand among equals.* The paper has no order for slots with the same count. Here each
//!     bucket has a hand behind the slots of its last store, and eviction takes the first of equals
//!     from the hand on. The lower slot would be a poor choice: if the LBA index never fills and no
//!     count falls, the cache would evict its newest content. (The prototype leaves the order of
//!     equals to its sort.)
//!
//! The tests in `larder-sim/tests/simulator/austere_published.rs` compare this design with the
//! prototype on a trace of the authors' generator. The prototype's source counts metadata as data,
//! too. Its LZ4 compresses a chunk to the next length with available content; ours has the trace's
//! length.
//!
//! It does not hold, read or write metadata slots or data, compress or hash, or log its indices.

pub mod bucketed;
pub mod config;
pub mod fp_index;
pub mod keys;
pub mod lba_index;
mod overflow;
mod pages;
mod parts;
mod row;
pub mod sketch;

pub use bucketed::Bucketed;
pub use config::{AustereConfig, AustereError};
use fp_index::{FpHashIndex, SlotRun};
use keys::{Key, KeySpace};
use lba_index::{Change, HeldBucket, LbaHashEntry, LbaHashIndex};
pub use row::{DESIGN, NAME};
use sketch::{COUNTER_MAX, Sketch};

use crate::{
    region::{ListChange, RunMetadata},
    types::{Fingerprint, Lba},
};

/// A dirty mapping that is about to give way. [`Austere::owner`] tells its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The run of its content; the metadata slot of `run.first` must be read.
    pub run: SlotRun,
    lba_key: Key,
}

/// A run to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VictimRun {
    /// The run.
    pub run: SlotRun,
    /// True if mappings to it may be dirty. The [dirty](Austere::is_dirty) addresses of its
    /// metadata slot must then be destaged.
    pub may_be_dirty: bool,
}

/// The decisions of an AustereCache.
pub struct Austere {
    config: AustereConfig,
    lba_space: KeySpace,
    fp_space: KeySpace,
    lba_index: LbaHashIndex,
    fp_index: FpHashIndex,
    sketch: Sketch,
}

impl Austere {
    /// Creates an empty cache.
    pub fn new(config: AustereConfig) -> Result<Austere, AustereError> {
        let (fp_buckets, lba_buckets) = config.buckets()?;
        let lba_space = KeySpace::new(lba_buckets, config.prefix_bits);
        let fp_space = KeySpace::new(fp_buckets, config.prefix_bits);
        let slots = config.bucket_slots as usize;
        let lba_index = LbaHashIndex::new(lba_space, slots, fp_space.bits(), config.is_write_back);
        let large_bytes_max = config.large_counts_bytes_max.map_or(u64::MAX, |bytes| {
            // A larger table could never fill.
            bytes.min(Sketch::large_bytes_max(lba_index.references_max()))
        });
        Ok(Austere {
            config,
            lba_space,
            fp_space,
            lba_index,
            fp_index: FpHashIndex::new(fp_space, slots),
            sketch: Sketch::new(lba_buckets * config.bucket_slots, large_bytes_max),
        })
    }

    /// Returns the layout.
    pub fn config(&self) -> &AustereConfig {
        &self.config
    }

    /// Returns the slots of the metadata region, and of the data region.
    pub fn slot_count(&self) -> usize {
        self.fp_index.slot_count()
    }

    /// Returns the slots for a chunk of `stored_bytes` (§3.2), at most those of a whole chunk.
    pub fn slots_for(&self, stored_bytes: u32) -> u32 {
        let Self { config: AustereConfig { chunk_bytes, subchunk_bytes, .. }, .. } = self;
        stored_bytes.min(*chunk_bytes).div_ceil(*subchunk_bytes).max(1)
    }

    /// Returns the probable run of `lba` (§3.1, read path). It is a hit if the metadata slot of
    /// `first` has `lba`.
    #[inline]
    pub fn lookup(&self, lba: Lba) -> Option<SlotRun> {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba))?;
        self.fp_index.find(entry.fp_key)
    }

    /// Makes `lba`, which was a hit, the most recent of its bucket.
    #[inline]
    pub fn touch(&self, lba: Lba) {
        self.lba_index.promote(self.lba_space.of_lba(lba), &self.sketch);
    }

    /// Returns the probable run of this content (§3.1, deduplication path). It is a duplicate if
    /// the metadata slot of `first` has its fingerprint. Otherwise the run collides with it, and
    /// must be evicted before the content is stored.
    #[inline]
    pub fn find_content(&self, fingerprint: &Fingerprint) -> Option<SlotRun> {
        self.fp_index.find(self.fp_space.of_content(fingerprint))
    }

    /// Returns the dirty mapping that `map(lba, fingerprint, …)` would end. That is the mapping
    /// of the LBA-hash, if it has another FP-hash, or the least recent one of a full bucket.
    #[inline]
    pub fn displaced(&self, lba: Lba, fingerprint: &Fingerprint) -> Option<Displaced> {
        if !self.config.is_write_back {
            return None;
        }
        let lba_key = self.lba_space.of_lba(lba);
        match self.lba_index.find(lba_key) {
            Some(old) if old.fp_key == self.fp_space.of_content(fingerprint) => None,
            Some(old) => self.dirty_place(&old),
            None => self.lba_index.last_of_full(lba_key).and_then(|last| self.dirty_place(&last)),
        }
    }

    /// Returns the dirty mapping that [`Austere::forget`] of `lba` would end.
    pub fn dirty_mapping(&self, lba: Lba) -> Option<Displaced> {
        self.lba_index.find(self.lba_space.of_lba(lba)).and_then(|entry| self.dirty_place(&entry))
    }

    /// Returns the owner of a displaced mapping: the address in its metadata slot with its
    /// LBA-hash. It must be destaged, unless it is the written or trimmed address itself.
    pub fn owner(&self, displaced: &Displaced, slot: &RunMetadata) -> Option<Lba> {
        slot.lbas().find(|&lba| self.lba_space.of_lba(lba) == displaced.lba_key)
    }

    /// Returns the effect of adding `lba`, a duplicate, to the list in `slot`. An address that
    /// leaves the list and [`is_dirty`](Austere::is_dirty) must be destaged first, and
    /// [`clean`](Austere::clean).
    #[inline]
    pub fn list_change(&self, lba: Lba, slot: &RunMetadata) -> ListChange {
        let lba_key = self.lba_space.of_lba(lba);
        slot.change(lba, |other| self.lba_space.of_lba(other) == lba_key)
    }

    /// Maps `lba` to this content, stored or to be stored, as the most recent of its bucket. The
    /// caller has dealt with [`displaced`](Austere::displaced) before.
    pub fn map(&self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool) -> Change {
        let (lba_key, fp_key) = (self.lba_space.of_lba(lba), self.fp_space.of_content(fingerprint));
        self.lba_index.map(lba_key, fp_key, is_dirty, &self.sketch)
    }

    /// Locks `lba`'s bucket in the LBA index, for [`Austere::map_held`]. Its holder makes no other
    /// call to that index.
    pub fn hold(&self, lba: Lba) -> HeldBucket {
        self.lba_index.hold(self.lba_space.of_lba(lba))
    }

    /// Maps the address of `bucket`, clean, as [`Austere::map`].
    pub fn map_held(&self, bucket: &mut HeldBucket, fp_key: Key) -> Change {
        bucket.map(fp_key, false, &self.sketch)
    }

    /// Returns whether the LBA index has an entry of this LBA-hash.
    pub fn has_entry(&self, lba_key: Key) -> bool {
        self.lba_index.find(lba_key).is_some()
    }

    /// Ends the mapping of `lba`'s LBA-hash. If another address has that mapping, it will miss. The
    /// mapping must not be [dirty](Austere::dirty_mapping) and another address's.
    pub fn forget(&self, lba: Lba) {
        self.forget_key(self.lba_space.of_lba(lba));
    }

    /// Forgets as [`Austere::forget`], by LBA-hash.
    pub fn forget_key(&self, lba_key: Key) {
        self.lba_index.remove(lba_key, &self.sketch);
    }

    /// Returns the runs to evict so that this content finds `count` consecutive free slots (§3.3).
    /// They have the lowest estimated reference counts in the bucket. None if there is room.
    pub fn victims(&self, fingerprint: &Fingerprint, count: u32) -> impl Iterator<Item = VictimRun> + use<> {
        let is_write_back = self.config.is_write_back;
        let fp_key = self.fp_space.of_content(fingerprint);
        self.recount_if_wanted();
        let victims = self.fp_index.victims(fp_key, count, |_, key| self.sketch.estimate(key));
        victims.map(move |(run, is_referenced)| VictimRun { run, may_be_dirty: is_write_back && is_referenced })
    }

    /// Returns as [`Austere::victims`], for any content of a bucket. `special` gives the count of
    /// references for some runs, by first slot.
    pub fn victims_in(&self, bucket: u32, count: u32, special: impl Fn(u32) -> Option<u32>) -> Vec<SlotRun> {
        self.recount_if_wanted();
        let references = |first, key| special(first).unwrap_or_else(|| self.sketch.estimate(key));
        let victims = self.fp_index.victims(self.fp_space.key(bucket as usize, 0), count, references);
        victims.map(|(run, _)| run).collect()
    }

    /// Returns the bucket of a content in the FP index, and of its slots.
    pub fn bucket_of_content(&self, fingerprint: &Fingerprint) -> u32 {
        self.fp_space.bucket(self.fp_space.of_content(fingerprint)) as u32
    }

    /// Returns whether `lba`, which the metadata slot of `run` lists, is mapped to it and dirty.
    pub fn is_dirty(&self, lba: Lba, run: SlotRun) -> bool {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba));
        entry.is_some_and(|entry| entry.is_dirty && entry.fp_key == self.fp_index.key_of(run))
    }

    /// Returns whether `lba`, which the metadata slot of `run` lists, is mapped to it, and so a
    /// hit.
    pub fn is_mapped(&self, lba: Lba, run: SlotRun) -> bool {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba));
        entry.is_some_and(|entry| entry.fp_key == self.fp_index.key_of(run))
    }

    /// Marks `lba` clean after its destage.
    pub fn clean(&self, lba: Lba) {
        self.lba_index.clean(self.lba_space.of_lba(lba));
    }

    /// Frees a run. Mappings to it miss, and stay until they are replaced, as in the paper.
    pub fn evict(&self, run: SlotRun) {
        self.fp_index.clear(run);
    }

    /// Takes the first `count` consecutive free slots for this content. Returns `None` while
    /// [`victims`](Austere::victims) names one.
    pub fn store(&self, fingerprint: &Fingerprint, count: u32) -> Option<SlotRun> {
        self.fp_index.store(self.fp_space.of_content(fingerprint), count)
    }

    /// Returns the run in use that begins at this slot.
    pub fn run_from(&self, first: u32) -> Option<SlotRun> {
        self.fp_index.run_from(first)
    }

    /// Returns the run of an FP-hash.
    pub fn run_of_key(&self, fp_key: Key) -> Option<SlotRun> {
        self.fp_index.find(fp_key)
    }

    /// Returns whether a search for this content finds the run.
    pub fn is_run_of(&self, run: SlotRun, fingerprint: &Fingerprint) -> bool {
        self.fp_index.key_of(run) == self.fp_space.of_content(fingerprint)
    }

    /// Restart: places a content in `count` slots from `first` on. It replaces index entries there,
    /// and any other run of this FP-hash. Returns false and changes nothing if the content cannot
    /// be there.
    pub fn restore(&self, fingerprint: &Fingerprint, first: u32, count: u32) -> bool {
        self.fp_index.replace(self.fp_space.of_content(fingerprint), SlotRun { first, count })
    }

    /// Restart: reserves `count` slots from `first` on for `lba`, also in a wrong bucket. A search
    /// finds it as no content. If the slots are not in one bucket, or no FP-hash is left there, the
    /// older mapping of `lba` is forgotten. Returns as [`map`](Austere::map).
    pub fn reserve(&self, lba: Lba, first: u32, count: u32) -> Change {
        let Some(fp_key) = self.fp_index.reserve(SlotRun { first, count }) else {
            self.forget(lba);
            return Change::default();
        };
        self.lba_index.map(self.lba_space.of_lba(lba), fp_key, false, &self.sketch)
    }

    /// Ends the mappings of all addresses.
    pub fn forget_all(&self) {
        self.lba_index.clear(&self.sketch);
    }

    /// Counts the free slots of the flash.
    pub fn free_slots(&self) -> u64 {
        self.fp_index.free_count()
    }

    /// Counts the mappings in the LBA index, those of evicted contents included.
    pub fn lba_entries(&self) -> u64 {
        self.lba_index.valid_count()
    }

    /// Counts the mappings to stored contents that `is_counted` confirms. If the LBA index has more
    /// than `looked_max` slots, a sample of as many, spread evenly, is scaled up.
    pub fn mappings_where(&self, looked_max: u64, is_counted: impl Fn(Key, SlotRun) -> bool) -> u64 {
        let buckets = self.lba_space.buckets();
        let most = (looked_max / u64::from(self.config.bucket_slots)).max(1) as usize;
        let step = buckets.div_ceil(most);
        let entries = (0..buckets).step_by(step).flat_map(|bucket| self.lba_index.entries_in(bucket));
        let is_one =
            |entry: &LbaHashEntry| self.fp_index.find(entry.fp_key).is_some_and(|run| is_counted(entry.lba_key, run));
        let count = entries.filter(|(entry, _)| is_one(entry)).count() as u64;
        scaled(count, buckets as u64, buckets.div_ceil(step) as u64)
    }

    /// Counts the slots of the LBA index.
    pub fn lba_entries_max(&self) -> u64 {
        self.lba_space.buckets() as u64 * u64::from(self.config.bucket_slots)
    }

    /// Returns the LBA-hash of an address.
    pub fn key_of_lba(&self, lba: Lba) -> Key {
        self.lba_space.of_lba(lba)
    }

    /// Returns the FP-hash of a content.
    pub fn key_of_content(&self, fingerprint: &Fingerprint) -> Key {
        self.fp_space.of_content(fingerprint)
    }

    /// Returns the key space of FP-hashes.
    pub fn contents(&self) -> KeySpace {
        self.fp_space
    }

    /// Returns the FP-hash of the content in a run in use. No other run has it.
    pub fn key_of(&self, run: SlotRun) -> Key {
        self.fp_index.key_of(run)
    }

    /// Returns all runs in use.
    pub fn runs(&self) -> impl Iterator<Item = SlotRun> + '_ {
        self.fp_index.all_runs().map(|(run, _)| run)
    }

    /// Counts the runs in use.
    pub fn run_count(&self) -> u64 {
        self.fp_index.run_count()
    }

    /// Returns the bytes of RAM that the indices and the sketch have allocated.
    pub fn ram(&self) -> AustereRam {
        AustereRam {
            lba_index_bytes: self.lba_index.ram_bytes(),
            fp_index_bytes: self.fp_index.ram_bytes(),
            sketch_bytes: self.sketch.ram_bytes(),
        }
    }

    /// Compares redundant data of the structures, and panics on a difference: for tests.
    pub fn check(&self) {
        let mut exact = std::collections::HashMap::new();
        for (entry, is_recent) in self.lba_index.entries() {
            assert_eq!(self.lba_index.find(entry.lba_key), Some(entry), "a prefix has one slot in a bucket");
            *exact.entry(entry.fp_key).or_insert(0) += 1 + u32::from(is_recent);
            assert!(!entry.is_dirty || self.fp_index.find(entry.fp_key).is_some(), "dirty content is on flash");
        }
        for (key, count) in exact {
            let least = if self.sketch.is_lossy() { count.min(COUNTER_MAX as u32) } else { count };
            assert!(self.sketch.estimate(key) >= least, "an estimate is never too low");
        }
        let mut end = 0;
        for (run, key) in self.fp_index.all_runs() {
            assert!(run.first >= end, "runs do not overlap");
            end = run.first + run.count;
            assert_eq!(run.first / self.config.bucket_slots, (end - 1) / self.config.bucket_slots, "one bucket");
            assert_eq!(self.fp_index.find(key), Some(run), "an FP-hash has one run, and all of it");
        }
        assert_eq!(self.run_count(), self.runs().count() as u64, "runs are counted as they come and go");
    }

    /// Restores counts that a full table of large counts lost.
    #[inline]
    fn recount_if_wanted(&self) {
        if self.sketch.wants_recount() {
            self.lba_index.recount(&self.sketch);
        }
    }

    fn dirty_place(&self, entry: &LbaHashEntry) -> Option<Displaced> {
        let run = if entry.is_dirty { self.fp_index.find(entry.fp_key) } else { None };
        run.map(|run| Displaced { run, lba_key: entry.lba_key })
    }
}

/// RAM by structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AustereRam {
    /// 50 bits a slot in the paper's example (§3.1), one more in write-back.
    pub lba_index_bytes: usize,
    /// 17 bits a slot, and a byte a bucket.
    pub fp_index_bytes: usize,
    /// 16 bits for each slot of the LBA index, and the large counts.
    pub sketch_bytes: usize,
}

impl AustereRam {
    /// Returns the sum.
    pub fn bytes(&self) -> usize {
        self.lba_index_bytes + self.fp_index_bytes + self.sketch_bytes
    }
}

/// Scales `count` of `looked` up to `all`.
fn scaled(count: u64, all: u64, looked: u64) -> u64 {
    (u128::from(count) * u128::from(all)).checked_div(u128::from(looked)).unwrap_or(0) as u64
}
