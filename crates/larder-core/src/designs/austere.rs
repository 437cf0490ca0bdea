//! AustereCache (Wang et al., USENIX ATC 2020): deduplication and compression, with an index of hashes.
//!
//! Role: an LBA index from LBA-hash to FP-hash ([`lba_index`], §3.1), an FP index whose slots are the slots of the flash
//! ([`fp_index`], §3.1, §3.2), and estimated reference counts, which choose what is evicted ([`sketch`], §3.3). Hashes say
//! in which bucket a thing is, and 16 bits of them which slot it has there; full addresses and fingerprints are in the
//! *metadata slots* on flash ([`MetadataSlot`]).
//!
//! So each decision is provisional: "probably run `r`; its metadata slot says". The caller reads that slot, and
//! comes back with it. What it does for one chunk, in this order:
//!
//! - **Read.** [`lookup`](Austere::lookup); read the metadata slot; if that [`has`](MetadataSlot::has) the address, it is a hit:
//!   [`touch`](Austere::touch), read the run. Else a miss: read the origin and insert, as a write does, clean.
//! - **Write or insert.** (1) [`find_content`](Austere::find_content) and read the metadata slot: the same
//!   fingerprint is a duplicate, another one a collision, whose run is evicted. (2) [`displaced`](Austere::displaced): a dirty
//!   mapping that gives way; read its metadata slot, and destage its [`owner`](Austere::owner). (3) A duplicate:
//!   [`list_change`](Austere::list_change), destage who leaves the list dirty; [`map`](Austere::map); write the metadata slot if
//!   it changed. New content: `map`; evict the [`victims`](Austere::victims); [`store`](Austere::store);
//!   write the subchunks and the metadata slot.
//! - **Evict a run.** [`dirty_of`](Austere::dirty_of) its metadata slot is destaged first and each called
//!   [`clean`](Austere::clean); then [`evict`](Austere::evict).
//! - **Trim, write-around.** [`forget`](Austere::forget).
//!
//! Several threads may ask at once: each decision has the lock of its bucket, in either index (§4), and others go on
//! elsewhere. What belongs together of several decisions, such as that a run which is evicted is not mapped meanwhile, is up to the
//! caller; so is that one thread at a time asks for [`victims`](Austere::victims), which may count all references anew, and in write-back
//! nobody maps then. A bucket of the LBA index can be [held](Austere::hold) beyond the caller's own lock, so that what order there is among
//! changes of that bucket is that of the caller, and their work is done beside others.
//!
//! Invariants: an address whose LBA-hash and FP-hash lead to a run that lists it, has that content. A dirty mapping's
//! content is on flash, in a run that lists its address, until it is overwritten, trimmed or destaged. Nothing is allocated
//! for a request, but the sketch's table of large counts may grow, to the maximum that it was given.
//!
//! Where this departs from the paper, and why:
//!
//! 1. *A metadata slot lists one address of each LBA-hash.* The paper leaves an address in the list after it was overwritten
//!    elsewhere. When another address of the same LBA-hash is then mapped to that content, the first one reads as a hit,
//!    with content that it no longer has; the paper's "only leads to a cache miss" does not hold there. So an address that
//!    is added takes the place of one with its LBA-hash. The slot is written then anyway, so this costs nothing.
//! 2. *Write-back keeps a dirty flag a slot* (51 bits in place of 50) instead of the list of full addresses of §2.2, which
//!    would have whole addresses in RAM. Whose mapping it is, when a dirty one gives way, is read from its metadata slot. The
//!    estimate 0 is exact, so that a victim without references is evicted without such a read.
//! 3. *Any number of buckets.* The bucket is the hash times the number of buckets, not a suffix of the hash, so the flash need
//!    not be a power of two. Where it is one, the bits are as many as in the paper.
//! 4. *SplitMix64's finalizer* in place of XXHash (§4), over fingerprints of 16 bytes in place of SHA-1's 20; the sketch's four
//!    hashes are sums of two (Kirsch and Mitzenmacher, 2006), where the paper has independent ones.
//! 5. *Counters of 4 bits*, with a table of what goes beyond: the paper says how many counters there are, not how wide. (So
//!    does the prototype.)
//! 6. *Eviction for several slots.* The paper evicts "the slot that has the lowest reference count", and does not say how a chunk
//!    of several subchunks gets consecutive slots. Here runs go in the order of their counts until enough free slots lie together; the
//!    first such place is taken. (So does the prototype.)
//! 7. *Invalidating is not written to flash.* The paper invalidates evicted and collided slots "in the metadata region in
//!    flash". Here the valid flag in RAM does; the metadata slot is overwritten with the next chunk. (So does the prototype.)
//! 8. *The old reference goes first.* When a content replaces another at an address, both counts are right before the
//!    victim is chosen; the paper does not say when, and the prototype takes the old one's after it.
//! 9. *Deduplication cannot be turned off*, as it cannot in the paper: a content's hash says where it lies. Without
//!    compression (AC-D) a slot is a whole chunk.
//! 10. *A hand among equals.* The paper does not say which of several slots with the lowest count goes. Here each bucket has a
//!     hand, which stands behind the slots of its last store, and eviction takes the first of equals from the hand on. The lower
//!     slot of equals would be a poor choice: a cache whose LBA index never fills, and whose counts never fall, would evict its
//!     newest content. (The prototype leaves the order of equals to its sort.)
//!
//! What the prototype makes of a trace of the authors' generator is in `larder-sim/tests/simulator/austere_published.rs`, whose tests
//! compare ours with it and print it. As the prototype's source reads, its counter of data counts metadata, too; and its chunks
//! are compressed by LZ4, to the next length that it has content for, where ours have the trace's length.
//!
//! What it does not do: hold, read or write metadata slots or data; compress or hash; keep a journal of its indices.

pub mod bucketed;
pub mod config;
pub mod fp_index;
pub mod keys;
pub mod lba_index;
mod overflow;
mod pages;
mod parts;
pub mod sketch;

pub use bucketed::Bucketed;
use bucketed::{BucketedConfig, census::scaled};
pub use config::{AustereConfig, AustereError};
use fp_index::{FpIndex, Run};
use keys::{Key, KeySpace};
use lba_index::{Change, Entry, HeldBucket, LbaIndex};
use sketch::{COUNTER_MAX, Sketch};

use crate::{
    named::{NamedDesign, Over, OverBuckets},
    region::{ListChange, METADATA_SLOT_BYTES, MetadataSlot},
    types::{Fingerprint, Lba},
};

/// The design's name.
pub const NAME: &str = "austere";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "AustereCache (Wang et al., USENIX ATC 2020): an index of hashes, ten bytes for each address that it has room for, and metadata on flash",
    over: Over::Buckets(OverBuckets {
        make: |config, layout| Ok(Box::new(Bucketed::new(BucketedConfig::of(config, layout))?)),
    }),
};

/// A dirty mapping that is about to give way. [`Austere::owner`] says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// Where its content is: read the metadata slot of `run.first`.
    pub run: Run,
    lba_key: Key,
}

/// A run that has to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The run.
    pub run: Run,
    /// Whether mappings to it may be dirty: if so, read its metadata slot and destage [`Austere::dirty_of`] it first.
    pub may_be_dirty: bool,
}

/// The decisions of an AustereCache.
pub struct Austere {
    config: AustereConfig,
    lba_space: KeySpace,
    fp_space: KeySpace,
    lba_index: LbaIndex,
    fp_index: FpIndex,
    sketch: Sketch,
}

impl Austere {
    /// An empty cache.
    pub fn new(config: AustereConfig) -> Result<Austere, AustereError> {
        let (fp_buckets, lba_buckets) = config.buckets()?;
        let lba_space = KeySpace::new(lba_buckets, config.prefix_bits);
        let fp_space = KeySpace::new(fp_buckets, config.prefix_bits);
        let slots = config.bucket_slots as usize;
        let lba_index = LbaIndex::new(lba_space, slots, fp_space.bits(), config.is_write_back);
        let large_bytes_max = config.large_counts_bytes_max.map_or(u64::MAX, |bytes| {
            // More than could ever be needed is not taken at once.
            bytes.min(Sketch::large_bytes_max(lba_index.references_max()))
        });
        Ok(Austere {
            config,
            lba_space,
            fp_space,
            lba_index,
            fp_index: FpIndex::new(fp_space, slots),
            sketch: Sketch::new(lba_buckets * config.bucket_slots, large_bytes_max),
        })
    }

    /// How it is laid out.
    pub fn config(&self) -> &AustereConfig {
        &self.config
    }

    /// Slots of the metadata region and of the data region.
    pub fn slot_count(&self) -> usize {
        self.fp_index.slot_count()
    }

    /// Slots that a chunk of `stored_bytes` takes (§3.2), at most those of a whole chunk.
    pub fn slots_for(&self, stored_bytes: u32) -> u32 {
        let Self { config: AustereConfig { chunk_bytes, subchunk_bytes, .. }, .. } = self;
        stored_bytes.min(*chunk_bytes).div_ceil(*subchunk_bytes).max(1)
    }

    /// Where `lba` probably is (§3.1, read path). It is a hit if the metadata slot of `first` has it.
    #[inline]
    pub fn lookup(&self, lba: Lba) -> Option<Run> {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba))?;
        self.fp_index.find(entry.fp_key)
    }

    /// `lba` was a hit: it is the most recent of its bucket now.
    #[inline]
    pub fn touch(&self, lba: Lba) {
        self.lba_index.promote(self.lba_space.of_lba(lba), &self.sketch);
    }

    /// Where this content probably is (§3.1, deduplication path). It is a duplicate if the metadata slot of `first` has its
    /// fingerprint; if not, the run collides with it, and must be evicted before the content is stored.
    #[inline]
    pub fn find_content(&self, fingerprint: &Fingerprint) -> Option<Run> {
        self.fp_index.find(self.fp_space.of_content(fingerprint))
    }

    /// The dirty mapping that `map(lba, fingerprint, …)` would end: that of the LBA-hash, if it is to another FP-hash, or of
    /// the least recent one, if the bucket is full.
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

    /// The dirty mapping that [`Austere::forget`] of `lba` would end, if it is one.
    pub fn dirty_mapping(&self, lba: Lba) -> Option<Displaced> {
        self.lba_index.find(self.lba_space.of_lba(lba)).and_then(|entry| self.dirty_place(&entry))
    }

    /// Whose mapping it is: the one address with its LBA-hash in its metadata slot. If that is another than the one
    /// being written or trimmed, it must be destaged.
    pub fn owner(&self, displaced: &Displaced, slot: &MetadataSlot) -> Option<Lba> {
        slot.lbas().find(|&lba| self.lba_space.of_lba(lba) == displaced.lba_key)
    }

    /// What becomes of the list in `slot`, which is that of a duplicate of `lba`'s content. An address that leaves the list
    /// and [`is_dirty`](Austere::is_dirty) must be destaged first, and [`clean`](Austere::clean).
    #[inline]
    pub fn list_change(&self, lba: Lba, slot: &MetadataSlot) -> ListChange {
        let lba_key = self.lba_space.of_lba(lba);
        slot.change(lba, |other| self.lba_space.of_lba(other) == lba_key)
    }

    /// Maps `lba`, the most recent of its bucket now, to this content, which is or will be stored. What
    /// [`displaced`](Austere::displaced) said was dealt with.
    pub fn map(&self, lba: Lba, fingerprint: &Fingerprint, is_dirty: bool) -> Change {
        let (lba_key, fp_key) = (self.lba_space.of_lba(lba), self.fp_space.of_content(fingerprint));
        self.lba_index.map(lba_key, fp_key, is_dirty, &self.sketch)
    }

    /// The lock of `lba`'s bucket in the LBA index, for [`Austere::map_held`]. Who holds it asks nothing else of that index.
    pub fn hold(&self, lba: Lba) -> HeldBucket {
        self.lba_index.hold(self.lba_space.of_lba(lba))
    }

    /// As [`Austere::map`], clean, of the address that `bucket` is held for.
    pub fn map_held(&self, bucket: &mut HeldBucket, fp_key: Key) -> Change {
        bucket.map(fp_key, false, &self.sketch)
    }

    /// Whether the LBA index has an entry of this LBA-hash.
    pub fn has_entry(&self, lba_key: Key) -> bool {
        self.lba_index.find(lba_key).is_some()
    }

    /// Ends the mapping of `lba`'s LBA-hash. If that was another address's, that one will miss; if it is
    /// [dirty](Austere::dirty_mapping) and another's, it must not be forgotten.
    pub fn forget(&self, lba: Lba) {
        self.forget_key(self.lba_space.of_lba(lba));
    }

    /// As [`Austere::forget`], by LBA-hash.
    pub fn forget_key(&self, lba_key: Key) {
        self.lba_index.remove(lba_key, &self.sketch);
    }

    /// The runs to evict, so that this content finds `count` consecutive free slots (§3.3): those with the lowest estimated
    /// reference counts in the bucket. None where there is room.
    pub fn victims(&self, fingerprint: &Fingerprint, count: u32) -> impl Iterator<Item = Victim> + use<> {
        let is_write_back = self.config.is_write_back;
        let fp_key = self.fp_space.of_content(fingerprint);
        self.recount_if_wanted();
        let victims = self.fp_index.victims(fp_key, count, |_, key| self.sketch.estimate(key));
        victims.map(move |(run, is_referenced)| Victim { run, may_be_dirty: is_write_back && is_referenced })
    }

    /// As [`Austere::victims`], for any content of a bucket, where `special` says of some runs, by their first slots, that they count as so
    /// many references.
    pub fn victims_in(&self, bucket: u32, count: u32, special: impl Fn(u32) -> Option<u32>) -> Vec<Run> {
        self.recount_if_wanted();
        let references = |first, key| special(first).unwrap_or_else(|| self.sketch.estimate(key));
        let victims = self.fp_index.victims(self.fp_space.key(bucket as usize, 0), count, references);
        victims.map(|(run, _)| run).collect()
    }

    /// The bucket of the FP index, and of the slots, that a content belongs to.
    pub fn bucket_of_content(&self, fingerprint: &Fingerprint) -> u32 {
        self.fp_space.bucket(self.fp_space.of_content(fingerprint)) as u32
    }

    /// The addresses in `slot`, the metadata slot of `run`, whose mappings to it are dirty.
    pub fn dirty_of<'a>(&'a self, run: Run, slot: &'a MetadataSlot) -> impl Iterator<Item = Lba> + 'a {
        slot.lbas().filter(move |&lba| self.config.is_write_back && self.is_dirty(lba, run))
    }

    /// Whether `lba`, which the metadata slot of `run` lists, is mapped to it and dirty.
    pub fn is_dirty(&self, lba: Lba, run: Run) -> bool {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba));
        entry.is_some_and(|entry| entry.is_dirty && entry.fp_key == self.fp_index.key_of(run))
    }

    /// Whether `lba`, which the metadata slot of `run` lists, is mapped to it: whether it would be a hit.
    pub fn is_mapped(&self, lba: Lba, run: Run) -> bool {
        let entry = self.lba_index.find(self.lba_space.of_lba(lba));
        entry.is_some_and(|entry| entry.fp_key == self.fp_index.key_of(run))
    }

    /// `lba` was destaged.
    pub fn clean(&self, lba: Lba) {
        self.lba_index.clean(self.lba_space.of_lba(lba));
    }

    /// Frees a run. Mappings to it stay until they are replaced, as in the paper, and miss.
    pub fn evict(&self, run: Run) {
        self.fp_index.clear(run);
    }

    /// Takes `count` consecutive free slots for this content, the first that there are. `None` where
    /// [`victims`](Austere::victims) still names one.
    pub fn store(&self, fingerprint: &Fingerprint, count: u32) -> Option<Run> {
        self.fp_index.store(self.fp_space.of_content(fingerprint), count)
    }

    /// The run in use that begins at this slot.
    pub fn run_from(&self, first: u32) -> Option<Run> {
        self.fp_index.run_from(first)
    }

    /// The run of an FP-hash.
    pub fn run_of_key(&self, fp_key: Key) -> Option<Run> {
        self.fp_index.find(fp_key)
    }

    /// Whether the run in use that begins at this slot would be found as that of a content.
    pub fn is_run_of(&self, run: Run, fingerprint: &Fingerprint) -> bool {
        self.fp_index.key_of(run) == self.fp_space.of_content(fingerprint)
    }

    /// A restart knows that a content is in `count` slots from `first` on. What the index has there, or elsewhere of this
    /// FP-hash, is gone. False, and nothing changed, where the content cannot be there.
    pub fn restore(&self, fingerprint: &Fingerprint, first: u32, count: u32) -> bool {
        self.fp_index.replace(self.fp_space.of_content(fingerprint), Run { first, count })
    }

    /// A restart knows that `lba` has something in `count` slots from `first` on, which need not belong there. It is found as no
    /// content. `lba` is forgotten, for what it had is older, if the slots are not all in one bucket, or if no FP-hash is left there.
    /// Returns as [`map`](Austere::map).
    pub fn reserve(&self, lba: Lba, first: u32, count: u32) -> Change {
        let Some(fp_key) = self.fp_index.reserve(Run { first, count }) else {
            self.forget(lba);
            return Change::default();
        };
        self.lba_index.map(self.lba_space.of_lba(lba), fp_key, false, &self.sketch)
    }

    /// Ends the mappings of all addresses.
    pub fn forget_all(&self) {
        self.lba_index.clear(&self.sketch);
    }

    /// Slots of the flash that are not in use.
    pub fn free_slots(&self) -> u64 {
        self.fp_index.free_count()
    }

    /// Mappings in the LBA index, of contents that left included.
    pub fn lba_entries(&self) -> u64 {
        self.lba_index.valid_count()
    }

    /// Mappings to contents that are stored, and that `is_counted` says so of; where there are more than `looked_max`, those of that
    /// many slots of the LBA index, spread evenly, times what they stand for.
    pub fn mappings_where(&self, looked_max: u64, is_counted: impl Fn(Key, Run) -> bool) -> u64 {
        let buckets = self.lba_space.buckets();
        let most = (looked_max / u64::from(self.config.bucket_slots)).max(1) as usize;
        let step = buckets.div_ceil(most);
        let entries = (0..buckets).step_by(step).flat_map(|bucket| self.lba_index.entries_in(bucket));
        let is_one = |entry: &Entry| self.fp_index.find(entry.fp_key).is_some_and(|run| is_counted(entry.lba_key, run));
        let count = entries.filter(|(entry, _)| is_one(entry)).count() as u64;
        scaled(count, buckets as u64, buckets.div_ceil(step) as u64)
    }

    /// Slots of the LBA index.
    pub fn lba_entries_max(&self) -> u64 {
        self.lba_space.buckets() as u64 * u64::from(self.config.bucket_slots)
    }

    /// The LBA-hash of an address.
    pub fn key_of_lba(&self, lba: Lba) -> Key {
        self.lba_space.of_lba(lba)
    }

    /// The FP-hash of a content.
    pub fn key_of_content(&self, fingerprint: &Fingerprint) -> Key {
        self.fp_space.of_content(fingerprint)
    }

    /// How contents get their FP-hashes.
    pub fn contents(&self) -> KeySpace {
        self.fp_space
    }

    /// The FP-hash of the content in a run in use. No other run has it.
    pub fn key_of(&self, run: Run) -> Key {
        self.fp_index.key_of(run)
    }

    /// All runs in use.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.fp_index.all_runs().map(|(run, _)| run)
    }

    /// How many there are.
    pub fn run_count(&self) -> u64 {
        self.fp_index.run_count()
    }

    /// Bytes of RAM that the indices and the sketch have allocated.
    pub fn ram(&self) -> AustereRam {
        AustereRam {
            lba_index_bytes: self.lba_index.ram_bytes(),
            fp_index_bytes: self.fp_index.ram_bytes(),
            sketch_bytes: self.sketch.ram_bytes(),
        }
    }

    /// Compares what the structures keep twice, and panics where they differ: for tests.
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

    /// Where the table of large counts is full, what it lost comes back.
    #[inline]
    fn recount_if_wanted(&self) {
        if self.sketch.wants_recount() {
            self.lba_index.recount(&self.sketch);
        }
    }

    fn dirty_place(&self, entry: &Entry) -> Option<Displaced> {
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
    /// All of it.
    pub fn bytes(&self) -> usize {
        self.lba_index_bytes + self.fp_index_bytes + self.sketch_bytes
    }
}

/// Bytes of flash for the metadata slots of `slots` slots.
pub fn metadata_region_bytes(slots: usize) -> u64 {
    slots as u64 * u64::from(METADATA_SLOT_BYTES)
}
