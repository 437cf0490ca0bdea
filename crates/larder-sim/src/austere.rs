//! AustereCache under replay: the decisions of [`larder_core::austere`], over metadata slots that are kept here.
//!
//! What is counted is what the paper's system does to its devices (§3.1, §3.2): each look at a metadata slot reads 512 bytes,
//! each change of one writes 512, a chunk is written and read in whole subchunks. A duplicate whose address is in the list
//! already writes nothing. Evicting and invalidating write nothing.
//!
//! Invariants: a dirty mapping is destaged before what it names leaves the flash. A hit has the content of the address;
//! [`AustereCache::wrong_hits`] counts those that have not, which are an error of the cache or of the trace.
//!
//! What it does not do: destage for any other reason than to make room: what is dirty at the end of a trace stays so.

use larder_core::{
    Fingerprint, Lba,
    austere::{
        Austere, AustereConfig, AustereError,
        fp_index::Run,
        metadata::{ListChange, METADATA_SLOT_BYTES, MetadataSlot},
    },
};

use crate::cache::{Content, Figures, ReplayCache, Traffic, WritePolicy};

/// An AustereCache.
pub struct AustereCache {
    core: Austere,
    policy: WritePolicy,
    /// The metadata region.
    slots: Vec<MetadataSlot>,
    traffic: Traffic,
    wrong_hits: u64,
    destaged: Vec<(Lba, Fingerprint)>,
}

impl AustereCache {
    /// An empty cache; `policy` decides whether mappings may be dirty, whatever `config` says.
    pub fn new(config: AustereConfig, policy: WritePolicy) -> Result<AustereCache, AustereError> {
        let core = Austere::new(AustereConfig { is_write_back: policy == WritePolicy::Back, ..config })?;
        let slots = vec![MetadataSlot::EMPTY; core.slot_count()];
        Ok(AustereCache { core, policy, slots, traffic: Traffic::default(), wrong_hits: 0, destaged: Vec::new() })
    }

    /// The decisions.
    pub fn core(&self) -> &Austere {
        &self.core
    }

    /// Read hits whose content was not what the volume holds there.
    pub fn wrong_hits(&self) -> u64 {
        self.wrong_hits
    }

    /// What the last request destaged, in order.
    pub fn destaged(&self) -> &[(Lba, Fingerprint)] {
        &self.destaged
    }

    /// The addresses that are dirty, each with its content, in no useful order.
    pub fn dirty(&self) -> impl Iterator<Item = (Lba, Fingerprint)> + '_ {
        self.core.runs().flat_map(move |run| {
            let slot = &self.slots[run.first as usize];
            self.core.dirty_of(run, slot).map(|lba| (lba, *slot.fingerprint()))
        })
    }

    /// Maps `lba` to a content, which is stored if it is not there (§3.1, write path and deduplication path).
    fn insert(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let fingerprint = &content.fingerprint;
        // 1. Duplicate, collision, or neither.
        let mut duplicate = self.core.find_content(fingerprint);
        if let Some(run) = duplicate {
            self.count_metadata_read();
            if self.slots[run.first as usize].fingerprint() != fingerprint {
                self.evict(run, Some(lba));
                duplicate = None;
            }
        }
        // 2. A dirty mapping that gives way.
        if let Some(displaced) = self.core.displaced(lba, fingerprint) {
            self.count_metadata_read();
            let slot = &self.slots[displaced.run.first as usize];
            if let Some(owner) = self.core.owner(&displaced, slot).filter(|&owner| owner != lba) {
                self.destage(owner, displaced.run);
            }
        }
        // 3. The mapping, then what it names: nobody reads in between.
        match duplicate {
            Some(run) => self.share(lba, fingerprint, run, is_dirty),
            None => self.store(lba, content, is_dirty),
        }
    }

    /// One more address for a content that is there.
    fn share(&mut self, lba: Lba, fingerprint: &Fingerprint, run: Run, is_dirty: bool) {
        let change = self.core.list_change(lba, &self.slots[run.first as usize]);
        if let ListChange::Replaces(old) | ListChange::Overflows(old) = change
            && self.core.is_dirty(old, run)
        {
            self.destage(old, run);
        }
        self.core.map(lba, fingerprint, is_dirty);
        self.traffic.chunks_deduplicated += 1;
        if change != ListChange::Present {
            self.slots[run.first as usize].apply(lba, change);
            self.traffic.flash_metadata_bytes_written += u64::from(METADATA_SLOT_BYTES);
        }
    }

    /// A content that is not there.
    fn store(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        let count = self.core.slots_for(content.stored_bytes);
        self.core.map(lba, &content.fingerprint, is_dirty);
        for victim in self.core.victims(&content.fingerprint, count) {
            if victim.may_be_dirty {
                self.count_metadata_read();
            }
            self.evict(victim.run, None);
        }
        let Some(run) = self.core.store(&content.fingerprint, count) else { return };
        self.slots[run.first as usize].reset(content.fingerprint, content.stored_bytes, lba);
        self.traffic.chunks_stored += 1;
        self.traffic.flash_data_bytes_written += self.run_bytes(run);
        self.traffic.flash_metadata_bytes_written += u64::from(METADATA_SLOT_BYTES);
    }

    /// Frees a run, whose metadata slot was read where mappings may be dirty. `overwritten` gets new content right now.
    fn evict(&mut self, run: Run, overwritten: Option<Lba>) {
        if self.policy == WritePolicy::Back {
            let slot = self.slots[run.first as usize].clone();
            for lba in slot.lbas() {
                match self.core.is_dirty(lba, run) {
                    true if overwritten == Some(lba) => self.core.clean(lba),
                    true => self.destage(lba, run),
                    false => {}
                }
            }
        }
        self.core.evict(run);
        self.traffic.chunks_evicted += 1;
    }

    fn destage(&mut self, lba: Lba, run: Run) {
        self.traffic.flash_data_bytes_read += self.run_bytes(run);
        self.traffic.origin_chunks_written += 1;
        self.destaged.push((lba, *self.slots[run.first as usize].fingerprint()));
        self.core.clean(lba);
    }

    /// The mapping of `lba` ends without being destaged; a dirty one of another address stays.
    fn forget(&mut self, lba: Lba) {
        if let Some(mapping) = self.core.dirty_mapping(lba) {
            self.count_metadata_read();
            if self.core.owner(&mapping, &self.slots[mapping.run.first as usize]) != Some(lba) {
                return;
            }
        }
        self.core.forget(lba);
    }

    fn count_metadata_read(&mut self) {
        self.traffic.flash_metadata_bytes_read += u64::from(METADATA_SLOT_BYTES);
    }

    fn run_bytes(&self, run: Run) -> u64 {
        u64::from(run.count) * u64::from(self.core.config().subchunk_bytes)
    }
}

impl ReplayCache for AustereCache {
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        if let Some(run) = self.core.lookup(lba) {
            self.count_metadata_read();
            let slot = &self.slots[run.first as usize];
            if slot.has(lba) {
                self.wrong_hits += u64::from(*slot.fingerprint() != content.fingerprint);
                self.core.touch(lba);
                self.traffic.flash_data_bytes_read += self.run_bytes(run);
                return true;
            }
        }
        self.traffic.origin_chunks_read += 1;
        self.insert(lba, content, false);
        false
    }

    /// Whether both indices have something for the address. The paper does not count write hits, and reads no metadata slot
    /// for one; so two addresses of one LBA-hash are one here.
    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        self.destaged.clear();
        let was_cached = self.core.lookup(lba).is_some();
        if self.policy != WritePolicy::Back {
            self.traffic.origin_chunks_written += 1;
        }
        match self.policy {
            WritePolicy::Around => self.forget(lba),
            WritePolicy::Through => self.insert(lba, content, false),
            WritePolicy::Back => self.insert(lba, content, true),
        }
        was_cached
    }

    fn trim(&mut self, lba: Lba) {
        self.destaged.clear();
        self.forget(lba);
    }

    fn trim_part(&mut self, lba: Lba) {
        self.destaged.clear();
        if let Some(mapping) = self.core.dirty_mapping(lba)
            && self.core.owner(&mapping, &self.slots[mapping.run.first as usize]) == Some(lba)
        {
            self.destage(lba, mapping.run);
        }
        self.forget(lba);
    }

    /// Nothing: chunk and metadata slot are on flash when a write is done.
    fn flush(&mut self) {
        self.destaged.clear();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Walks all metadata slots.
    fn figures(&self) -> Figures {
        let mut figures = Figures { index_ram_bytes: self.core.ram().bytes() as u64, ..Figures::default() };
        for run in self.core.runs() {
            let slot = &self.slots[run.first as usize];
            let mapped = slot.lbas().filter(|&lba| self.core.is_mapped(lba, run)).count() as u64;
            figures.mapped_chunks += mapped;
            if mapped == 0 {
                figures.stale_chunks += 1;
            } else {
                figures.live_chunks += 1;
                figures.live_stored_bytes += u64::from(slot.stored_bytes());
            }
        }
        figures
    }
}
