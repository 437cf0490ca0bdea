//! Counts of the events in the runs: a simulation without an eviction proves nothing about
//! evictions.
//!
//! Invariants: [`Stats::missing`] names each important event that did not happen at all.
//!
//! It does not judge.

use larder_engine::Status;

macro_rules! stats {
    ($($(#[$doc:meta])* $important:ident $name:ident,)+) => {
        /// Counts over runs.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Stats {
            /// Adds the counts of others.
            pub fn add(&mut self, other: &Stats) {
                $(self.$name += other.$name;)+
            }

            /// Returns each count with its name, and true if it must not be zero.
            pub fn list(&self) -> Vec<(&'static str, u64, bool)> {
                vec![$((stringify!($name), self.$name, stringify!($important) == "must"),)+]
            }
        }
    };
}

stats! {
    /// Lives begun.
    must lives,
    /// Kills and power losses, including those in recoveries.
    must crashes,
    /// Kills and dropped caches among the crashes.
    must kills,
    /// Power losses among the crashes.
    must power_losses,
    /// Crashes in a recovery.
    must crashes_in_recovery,
    /// Crashes with requests in flight.
    must crashes_under_load,
    /// Clean ends.
    must clean_ends,
    /// Clean ends with requests in flight.
    must closed_under_load,
    /// Times that the origin lost data in a failed flush.
    must flushes_forgotten,
    /// Flashes lost, and replaced by empty ones.
    must flashes_lost,
    /// Faults that began.
    must faults,
    /// Requests of clients that began.
    must requests,
    /// Writes that were durable without having asked for it.
    must durable_writes,
    /// Sectors read while several values were possible, or had been.
    must open_sector_reads,
    /// Requests that clients gave up.
    must given_up,
    /// Sectors read with several possible values, now or earlier.
    must reads_failed,
    /// Writes and trims that failed with a reason.
    must writes_failed,
    /// Flushes that failed with a reason.
    must flushes_failed,
    /// Operators' requests that failed with a reason.
    must operations_failed,
    /// Openings that failed with a reason.
    must openings_failed,
    /// Openings that were refused with a reason.
    must openings_refused,
    /// Openings that a fence kept from dirty data.
    must openings_fenced,
    /// Openings that might drop dirty data behind a fence.
    must openings_that_discard,
    /// Flashes lost when the origin was complete.
    must flashes_lost_with_a_complete_origin,
    /// Caches detached.
    must detachments,
    /// Flushes behind a fence.
    must flushes_past_flash,
    /// Writes past a flash that failed.
    must writes_past_flash,
    /// Writes past the wear budget.
    must writes_past_budget,
    /// Flushes that succeeded.
    must flushes,
    /// Full destages that succeeded.
    must full_destages,
    /// Mode switches that succeeded.
    must mode_switches,
    /// Scheduler steps.
    must steps,
    /// WEUs evicted.
    must evicted_slots,
    /// Chunks destaged.
    must destaged_chunks,
    /// Lives that evicted WEUs and destaged chunks.
    must lives_with_eviction_and_destage,
    /// Checkpoints written.
    must checkpoints,
    /// Superblocks whose number was noted off the flash while the cache served.
    must superblocks_noted,
    /// Commits of the log.
    must commits,
    /// Times that a write waited for room.
    must write_waits,
    /// Times that a record waited for a free slot.
    must slot_waits,
    /// Fills that a write overtook.
    must fills_stale,
    /// Fills dropped because the queue was full.
    must fills_dropped,
    /// Chunks inserted.
    must inserted_chunks,
    /// Duplicates among them.
    must duplicates,
    /// Fragments stored.
    must fragments,
    /// Chunks served from prefetched RAM.
    must prefetch_hits,
    /// Reads served from the cache, in chunks.
    must read_hits,
    /// Reads of the flash that failed.
    must flash_read_errors,
    /// Operations of the origin that failed.
    must origin_errors,
    /// Records whose damage was found.
    must corrupt_records,
    /// Lives that ended while the cache kept trims to itself.
    must lives_with_kept_trims,
    /// Lives in which the cache ignored a trim.
    must ignored_trims,
    /// Lives in which the origin got a discard.
    must passed_trims,
    /// Openings that replayed a log.
    must logs_replayed,
    /// Openings that loaded a checkpoint with mappings.
    must checkpoints_loaded,
}

impl Stats {
    /// Adds the cache's counts of one life.
    pub fn add_cache(&mut self, status: &Status) {
        let counts = &status.counts;
        self.lives_with_kept_trims += u64::from(status.kept_trim_bytes > 0);
        self.ignored_trims += u64::from(counts.ignored_trim_bytes > 0);
        self.passed_trims += u64::from(counts.origin_discard_bytes > 0);
        self.evicted_slots += counts.evicted_slots;
        self.destaged_chunks += counts.destaged_chunks;
        self.lives_with_eviction_and_destage += u64::from(counts.evicted_slots > 0 && counts.destaged_chunks > 0);
        self.checkpoints += counts.checkpoints;
        self.commits += counts.commits;
        self.write_waits += counts.write_waits;
        self.slot_waits += counts.slot_waits;
        self.fills_stale += counts.insertions_stale;
        self.fills_dropped += counts.insertions_dropped;
        self.inserted_chunks += counts.inserted_chunks;
        self.duplicates += counts.duplicate_chunks;
        self.fragments += counts.fragments_written;
        self.prefetch_hits += counts.prefetch_hits;
        self.read_hits += counts.read_hits;
        self.flash_read_errors += counts.flash_read_errors;
        self.origin_errors += counts.origin_errors;
        self.corrupt_records += counts.corrupt_records;
        self.writes_past_flash += counts.writes_past_flash;
        self.writes_past_budget += counts.writes_past_budget;
    }

    /// Returns the names of the required events that did not happen.
    pub fn missing(&self) -> Vec<&'static str> {
        self.list().into_iter().filter(|&(_, count, must)| must && count == 0).map(|(name, ..)| name).collect()
    }
}
