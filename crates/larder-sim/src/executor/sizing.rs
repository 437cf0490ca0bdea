//! The division of a flash of a given size for a cache over WEUs: from a size to
//! [`ExecutorOptions`].
//!
//! A flash in bytes is divided by [`Layout::plan`] and limited as the engine limits it. So a replay
//! has the slots, the entries and the log that `larder create` would make of that flash. A flash in
//! data chunks has WEUs for the data of so many uncompressed chunks. Headers, tables, checkpoints
//! and log come on top: each WEU is longer by its segment's metadata.
//!
//! Extents (Nitro §5.3, Table 1 "write/evict granularity") have no layout in the paper. The rule
//! here: the data area of a flash of WEUs is cut into slots of one chunk each, with nothing around
//! it. Superblocks, checkpoints and log are those of the flash of WEUs. An extent's table entry
//! goes only into the log. Its frames are written when the entries of a whole WEU wait, or earlier
//! for entries that must be durable before the origin changes. Extents are not compressed (§5.3).
//!
//! Invariants: the returned options make a [`Executor`](super::Executor). Sums do not overflow, for
//! any sizes.
//!
//! It does not know the needs of a trace.

use super::{ExecutorOptions, SLOTS_MIN, StoreRules};
use crate::cache::WritePolicy;
use larder_core::{
    history::waiting_weus_bytes,
    limits::{DIRTY_HIGH_PERCENT, checkpoint_for_mappings, mappings_beside_checkpoint},
    named::CheckpointShares,
    packing::{PackingRules, SegmentPacker},
    slotted::FlashSize,
};
use larder_format::size::exact;
use larder_format::{
    CheckpointCounts, HistoryRequest, Layout, LayoutRequest,
    checkpoint::checkpoint_bytes_max,
    layout::{CHUNKS_MAX, FINGERPRINTS_PER_CHUNK, MAPPINGS_PER_CHUNK, SLOT_COUNT_MIN, WEU_BYTES_MAX},
    segment::{RECORD_ENTRY_BYTES, SEGMENT_HEADER_BYTES},
};

/// The padding of segments and frames, in bytes: the sector of nearly every flash.
pub const SECTOR_BYTES: u32 = 4096;
/// The most chunks of data, and addresses: beyond the design of any index here.
const CHUNKS_OR_ENTRIES_MAX: u64 = 1 << 31;

/// The pieces in which flash is written and evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Write-evict units of many chunks.
    Weu,
    /// One chunk at a time.
    Extent,
}

impl Granularity {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Granularity::Weu => "weu",
            Granularity::Extent => "extent",
        }
    }
}

/// The requirements of a cache over WEUs.
#[derive(Clone, Copy, Debug)]
pub struct WeuSizing {
    /// The size of the flash.
    pub flash: FlashSize,
    /// Size of a chunk in bytes.
    pub chunk_bytes: u32,
    /// Size of a WEU in bytes. Extents use it only for the parts around the data.
    pub weu_bytes: u32,
    /// The pieces in which flash is written and evicted.
    pub granularity: Granularity,
    /// The moment when writes reach the origin.
    pub policy: WritePolicy,
    /// The FP index ratio (Nitro §3.1, Table 1), in percent of a full index; 0 for no
    /// deduplication.
    pub fp_index_percent: u32,
    /// True if chunks are stored compressed.
    pub compress: bool,
    /// Addresses at most; by default four for each whole chunk of data.
    ///
    /// It is fewer if they would take too much of the flash.
    pub lba_entries: Option<u64>,
    /// Bytes of a checkpoint for each address beside its mapping; 0 for a design without history.
    pub history_bytes: u64,
    /// The room in a checkpoint; `None` for the format's default.
    pub checkpoint: Option<CheckpointShares>,
    /// Size of the origin in bytes, if it is known: no more addresses are mapped than it has
    /// chunks.
    pub origin_bytes: Option<u64>,
}

impl WeuSizing {
    /// Makes the paper's default (Nitro, Table 1): WEUs of 2 MiB, deduplicated by a full index,
    /// compressed.
    pub fn new(flash: FlashSize, chunk_bytes: u32, policy: WritePolicy) -> Self {
        WeuSizing {
            flash,
            chunk_bytes,
            weu_bytes: 2 << 20,
            granularity: Granularity::Weu,
            policy,
            fp_index_percent: 100,
            compress: true,
            lba_entries: None,
            history_bytes: 0,
            checkpoint: None,
            origin_bytes: None,
        }
    }

    /// Returns the options of the cache that fits.
    ///
    /// # Errors
    /// One sentence with the cause, and the least that works.
    pub fn options(&self) -> Result<ExecutorOptions, String> {
        if self.fp_index_percent > 100 {
            return Err(format!("an FP index ratio of {} percent is not one of 0 to 100", self.fp_index_percent));
        }
        if self.granularity == Granularity::Extent && self.compress {
            return Err("extents are not compressed: turn compression off, or use WEUs".to_owned());
        }
        if let Some(entries) = self.lba_entries.filter(|&entries| entries > CHUNKS_OR_ENTRIES_MAX) {
            return Err(format!("{entries} LBA entries are too many; {CHUNKS_OR_ENTRIES_MAX} are the most"));
        }
        let options = match self.flash {
            FlashSize::Bytes(bytes) => self.of_bytes(bytes)?,
            FlashSize::DataChunks(chunks) => self.of_chunks(chunks)?,
        };
        let options = match self.granularity {
            Granularity::Weu => options,
            Granularity::Extent => self.cut(options)?,
        };
        let least = u64::from(options.rules.slot_bytes / self.chunk_bytes);
        if options.mappings_max < least {
            let given = options.mappings_max;
            return Err(format!("{given} LBA entries are too few for the chunks of a WEU; {least} are the least"));
        }
        Ok(options)
    }

    /// Divides a flash as `larder create` would.
    fn of_bytes(&self, flash_bytes: u64) -> Result<ExecutorOptions, String> {
        // The plan refuses chunks of no bytes.
        let flash_chunks = flash_bytes / u64::from(self.chunk_bytes.max(1));
        let wanted = self.checkpoint.map(|shares| shares.mappings(flash_chunks));
        let asked = self.lba_entries.or(wanted).map(checkpoint_for_mappings);
        let fingerprints = self.checkpoint.map(|shares| shares.fingerprints(flash_chunks));
        let layout = self.plan(flash_bytes, asked, fingerprints)?;
        let origin_chunks = self.origin_chunks();
        let fits = match layout.mappings_max >= origin_chunks {
            true => layout.mappings_max,
            false => mappings_beside_checkpoint(layout.mappings_max),
        };
        let mappings_max = match self.lba_entries {
            Some(entries) if entries.min(origin_chunks) > fits => {
                return Err(format!(
                    "a flash of {} has no room for {entries} LBA entries; {fits} are the most",
                    exact(flash_bytes)
                ));
            }
            Some(entries) => entries,
            None => fits,
        };
        let rules = self.rules(self.weu_bytes);
        let fp_entries_max = layout.fp_entries_max * u64::from(self.fp_index_percent) / 100;
        Ok(self.with(rules, layout.slot_count, mappings_max, fp_entries_max, &layout))
    }

    /// Makes WEUs for `chunks` uncompressed ones, rounded up to whole WEUs.
    fn of_chunks(&self, chunks: u64) -> Result<ExecutorOptions, String> {
        if chunks > CHUNKS_OR_ENTRIES_MAX {
            return Err(format!("{chunks} data chunks are too many; {CHUNKS_OR_ENTRIES_MAX} are the most"));
        }
        let mappings = self.checkpoint.map_or(chunks * MAPPINGS_PER_CHUNK, |shares| shares.mappings(chunks));
        let mappings_max = self.lba_entries.unwrap_or(mappings);
        let full_index = self.checkpoint.map_or(chunks * FINGERPRINTS_PER_CHUNK, |shares| shares.fingerprints(chunks));
        // Confirms the sizes of chunk and WEU, too.
        let fewest = self.plan(u64::from(SLOT_COUNT_MIN) * 4 * u64::from(self.weu_bytes), Some(1), Some(1))?;
        let rules = self.rules(padded_weu_bytes(fewest.slot_bytes, self.chunk_bytes));
        let per_weu = raw_chunks(rules, self.chunk_bytes);
        let slots = chunks.div_ceil(per_weu.max(1)) as u32;
        if self.granularity == Granularity::Weu && slots < SLOTS_MIN {
            let (least, weu) = (u64::from(SLOTS_MIN - 1) * per_weu + 1, exact(self.weu_bytes.into()));
            return Err(format!(
                "{chunks} data chunks are too few for {SLOTS_MIN} WEUs of {weu}; {least} are the least"
            ));
        }
        // On top: as much for checkpoints and log as a flash with so many slots gives them.
        let weu = u64::from(self.weu_bytes);
        let mut flash_bytes = u64::from(slots.max(SLOT_COUNT_MIN) + 1) * weu;
        let layout = loop {
            let layout = self.plan(flash_bytes, Some(mappings_max), Some(full_index))?;
            if layout.slot_count >= slots && layout.mappings_max >= mappings_max.min(self.origin_chunks()) {
                break layout;
            }
            flash_bytes += u64::from(slots.saturating_sub(layout.slot_count).max(1)) * weu;
        };
        let fp_entries_max = full_index * u64::from(self.fp_index_percent) / 100;
        Ok(self.with(rules, slots, mappings_max, fp_entries_max, &layout))
    }

    /// Cuts the data area of `options` into slots of one chunk each.
    fn cut(&self, options: ExecutorOptions) -> Result<ExecutorOptions, String> {
        let slots = match self.flash {
            FlashSize::Bytes(_) => u64::from(options.slot_count) * u64::from(self.weu_bytes / self.chunk_bytes),
            FlashSize::DataChunks(chunks) => chunks,
        };
        if slots > CHUNKS_OR_ENTRIES_MAX {
            return Err(format!("{slots} extents are too many; {CHUNKS_OR_ENTRIES_MAX} are the most"));
        }
        let slot_count = slots as u32;
        if slot_count < SLOTS_MIN {
            return Err(format!("{slots} data chunks are too few; {SLOTS_MIN} are the least"));
        }
        let rules =
            PackingRules { slot_bytes: self.chunk_bytes, sector_bytes: SECTOR_BYTES, header_bytes: 0, entry_bytes: 0 };
        let entries = |slots: u32| CheckpointCounts { slots: slots.into(), ..CheckpointCounts::default() };
        let more = checkpoint_bytes_max(&entries(slot_count))
            .saturating_sub(checkpoint_bytes_max(&entries(options.slot_count)));
        Ok(ExecutorOptions {
            rules,
            slot_count,
            store: StoreRules {
                evict_commit_entries: u64::from(self.weu_bytes / self.chunk_bytes),
                ..StoreRules::weus()
            },
            commit_entries: u64::from(self.weu_bytes / self.chunk_bytes),
            // A checkpoint names each slot.
            checkpoint_area_bytes: options.checkpoint_area_bytes + more,
            ..options
        })
    }

    fn with(
        &self,
        rules: PackingRules,
        slot_count: u32,
        mappings_max: u64,
        fp_entries_max: u64,
        layout: &Layout,
    ) -> ExecutorOptions {
        let data_chunks = u64::from(slot_count) * u64::from(self.weu_bytes / self.chunk_bytes);
        let most = Layout { slot_count, mappings_max, fragments_max: 0, fp_entries_max, ..*layout };
        ExecutorOptions {
            chunk_bytes: self.chunk_bytes,
            rules,
            slot_count,
            mappings_max,
            fp_entries_max,
            log_bytes: layout.log_bytes,
            // The layout's area, unless this cache has more entries than the layout.
            checkpoint_area_bytes: layout.checkpoint_area_bytes.max(most.checkpoint_bytes_max()),
            policy: self.policy,
            compress: self.compress,
            dirty_chunks_max: (data_chunks * u64::from(DIRTY_HIGH_PERCENT) / 100).min(mappings_max / 2),
            zero_ranges_max: layout.zero_ranges_max,
            store: StoreRules::weus(),
            commit_entries: 1,
        }
    }

    fn rules(&self, weu_bytes: u32) -> PackingRules {
        PackingRules {
            slot_bytes: weu_bytes,
            sector_bytes: SECTOR_BYTES,
            header_bytes: SEGMENT_HEADER_BYTES as u32,
            entry_bytes: RECORD_ENTRY_BYTES as u32,
        }
    }

    fn origin_bytes(&self) -> u64 {
        // An unknown origin's size does not bind.
        self.origin_bytes.unwrap_or(CHUNKS_MAX * u64::from(self.chunk_bytes))
    }

    fn origin_chunks(&self) -> u64 {
        self.origin_bytes().div_ceil(u64::from(self.chunk_bytes))
    }

    fn plan(&self, flash_bytes: u64, mappings: Option<u64>, fingerprints: Option<u64>) -> Result<Layout, String> {
        let request = LayoutRequest {
            flash_bytes,
            origin_bytes: self.origin_bytes(),
            chunk_bytes: self.chunk_bytes,
            slot_bytes: self.weu_bytes,
            sector_bytes: SECTOR_BYTES,
            fp_entries_max: fingerprints,
            mappings_max: mappings,
            buckets: None,
            history: (self.history_bytes > 0).then_some(HistoryRequest {
                bytes_per_chunk: waiting_weus_bytes(self.chunk_bytes, self.weu_bytes),
                bytes_per_mapping: self.history_bytes,
                entries_max: u64::MAX,
                names_records: self.checkpoint.is_some_and(|shares| shares.names_records),
            }),
        };
        Layout::plan(request).map_err(|error| error.to_string())
    }
}

/// Returns the bytes of a WEU of `weu_bytes` of raw chunks, with its segment's metadata on them.
fn padded_weu_bytes(weu_bytes: u32, chunk_bytes: u32) -> u32 {
    let chunks = weu_bytes / chunk_bytes;
    let table = (chunks * RECORD_ENTRY_BYTES as u32).next_multiple_of(SECTOR_BYTES);
    // A raw chunk begins at a sector, behind the header. A place's offset has the bits for the
    // largest WEU.
    (SECTOR_BYTES + weu_bytes + table).min(WEU_BYTES_MAX)
}

/// Returns the number of uncompressed chunks that fit a WEU.
fn raw_chunks(rules: PackingRules, chunk_bytes: u32) -> u64 {
    let mut packer = SegmentPacker::new(rules);
    std::iter::from_fn(|| packer.place(chunk_bytes, true)).count() as u64
}
