//! A cache of equal slots under replay: any [`Slotted`] design, a write policy, and what they cost.
//!
//! A read of a hit looks at the mapping alone, as an engine would; what the volume holds is looked at where the chunk is
//! inserted. Data is destaged only when a decision asks for it.
//!
//! Metadata (CacheDedup §3.3: all of it is on flash, "the metadata for clean blocks can be written in batches", and what
//! is dirty is committed "synchronously") is counted by this rule. Each entry that a decision changes is gathered in a
//! page of [`METADATA_PAGE_BYTES`], which is written when it is full. The decision of a dirty write that changes an
//! entry writes the page at once, padded, and so does a flush when anything is gathered; the next entry begins a new
//! page. The order of replacement is not kept on flash, so that hits cost nothing.
//!
//! Invariants: beside the design this takes a fixed number of bytes, whatever the trace.
//!
//! What it does not do: compress. A chunk takes a slot, whatever its stored size.

use larder_core::{
    Lba,
    slotted::{DataStep, Decision, METADATA_PAGE_BYTES, Slotted},
};

use crate::cache::{Content, Figures, ReplayCache, Traffic, WritePolicy};

/// See the module.
pub struct SlottedCache<D> {
    design: D,
    decision: Decision,
    policy: WritePolicy,
    chunk_bytes: u64,
    entry_bytes: u64,
    traffic: Traffic,
    /// Bytes of entries in the page that is being gathered.
    gathered_bytes: u64,
}

impl<D: Slotted> SlottedCache<D> {
    /// An empty cache of chunks of `chunk_bytes`.
    pub fn new(design: D, policy: WritePolicy, chunk_bytes: u32) -> Self {
        SlottedCache {
            entry_bytes: u64::from(design.sizes().entry_bytes),
            design,
            decision: Decision::default(),
            policy,
            chunk_bytes: u64::from(chunk_bytes),
            traffic: Traffic::default(),
            gathered_bytes: 0,
        }
    }

    /// The design.
    pub fn design(&self) -> &D {
        &self.design
    }

    fn put(&mut self, lba: Lba, content: &Content, is_dirty: bool) {
        self.design.put(lba, &content.fingerprint, is_dirty, &mut self.decision);
        self.traffic.ghost_hits += u64::from(self.decision.was_ghost);
        self.execute();
        if is_dirty && !self.decision.changed.is_empty() {
            self.commit();
        }
    }

    fn forget(&mut self, lba: Lba) -> bool {
        self.design.forget(lba, &mut self.decision);
        self.execute();
        self.decision.was_cached
    }

    /// Counts what the decision asks for.
    #[inline]
    fn execute(&mut self) {
        let destaged = self.decision.destage.len() as u64;
        self.traffic.flash_data_bytes_read += destaged * self.chunk_bytes;
        self.traffic.origin_chunks_written += destaged;
        self.traffic.chunks_evicted += self.decision.freed.len() as u64;
        match self.decision.data {
            DataStep::Store { evicts, .. } => {
                self.traffic.flash_data_bytes_written += self.chunk_bytes;
                self.traffic.chunks_stored += 1;
                self.traffic.chunks_evicted += u64::from(evicts);
            }
            DataStep::Nothing | DataStep::Map(_) => {}
        }
        for _ in 0..self.decision.changed.len() {
            if self.gathered_bytes + self.entry_bytes > METADATA_PAGE_BYTES {
                self.commit();
            }
            self.gathered_bytes += self.entry_bytes;
        }
    }

    /// Writes the page that is being gathered.
    fn commit(&mut self) {
        if self.gathered_bytes > 0 {
            self.traffic.flash_metadata_bytes_written += METADATA_PAGE_BYTES;
            self.gathered_bytes = 0;
        }
    }

    /// A put that was not stored found its content there.
    fn count_duplicate(&mut self) {
        self.traffic.chunks_deduplicated += u64::from(matches!(self.decision.data, DataStep::Map(_)));
    }
}

impl<D: Slotted> ReplayCache for SlottedCache<D> {
    #[inline]
    fn read(&mut self, lba: Lba, content: &Content) -> bool {
        if self.design.read(lba, &mut self.decision).is_some() {
            self.traffic.flash_data_bytes_read += self.chunk_bytes;
            self.execute();
            return true;
        }
        self.traffic.origin_chunks_read += 1;
        self.put(lba, content, false);
        self.count_duplicate();
        false
    }

    fn write(&mut self, lba: Lba, content: &Content) -> bool {
        if self.policy != WritePolicy::Back {
            self.traffic.origin_chunks_written += 1;
        }
        if self.policy == WritePolicy::Around {
            return self.forget(lba);
        }
        self.put(lba, content, self.policy == WritePolicy::Back);
        self.count_duplicate();
        self.decision.was_cached
    }

    fn trim(&mut self, lba: Lba) {
        self.forget(lba);
    }

    fn trim_part(&mut self, lba: Lba) {
        if self.design.is_dirty(lba) {
            self.traffic.flash_data_bytes_read += self.chunk_bytes;
            self.traffic.origin_chunks_written += 1;
            self.design.clean(lba);
        }
        self.forget(lba);
    }

    fn flush(&mut self) {
        self.commit();
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn figures(&self) -> Figures {
        let stats = self.design.stats();
        Figures {
            index_ram_bytes: stats.ram_bytes + self.decision.ram_bytes() as u64,
            mapped_chunks: stats.mapped_chunks,
            unstored_zero_chunks: 0,
            live_chunks: stats.live_slots,
            stale_chunks: stats.stale_slots,
            live_stored_bytes: stats.live_slots * self.chunk_bytes,
        }
    }
}
