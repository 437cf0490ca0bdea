//! `larder`: admission, victims and reinsertion by learned life tables, over WEUs.
//!
//! An address names a content, and a content has a place while it is stored. So an address outlives
//! the record of its content: if that is stored again for another address, the first one hits, too.
//! A sample of contents teaches how long a content of a class lives until it is read again. From
//! that follow the contents that are stored at all, the WEU that goes, and its records that stay.
//!
//! Invariants: those of [`Design`]. A slot's reference counts are its mappings. A belief is an
//! address whose content is not stored. It is no mapping, and no crash leaves one.

mod addresses;
mod ages;
mod blocks;
mod by_number;
mod checkpoint_room;
mod class;
mod content;
mod contents;
mod growth;
mod heat;
mod history;
mod lifetimes;
mod mapping;
mod memory;
mod neighbourhoods;
mod persist;
mod price;
mod recalling;
mod region;
mod replacement;
mod runs;
mod sample;
mod space;

use crate::{
    design::{Design, DesignConfig, DesignStats, Lookup, Memory, Selective},
    history::Pages,
    ledger::DIRTY_SHARE_BYTES_MAX,
    named::{CheckpointShares, NamedDesign, Over, OverWeus},
    pages::PageMap,
    slots::SlotTable,
    types::{SectorMap, SlotId},
};
use addresses::{Address, AddressIndex, Kind};
use ages::BINS;
use checkpoint_room::CheckpointRoom;
use class::CLASSES;
use contents::Contents;
use price::Rents;
use recalling::{HEAD_BYTES, Recalling};
use sample::Sample;

/// The design's name.
pub const NAME: &str = "larder";
/// The design by name.
pub const DESIGN: NamedDesign = NamedDesign {
    name: NAME,
    about: "Larder's own: learned life tables decide admission, victims and reinsertion",
    over: Over::Weus(OverWeus {
        index_bytes_max: INDEX_BYTES_MAX,
        history_bytes_max: HISTORY_BYTES,
        checkpoint: Some(CHECKPOINT),
        weus_wanted: WEUS_WANTED,
        make: |config| Box::new(Larder::new(config)),
    }),
};
/// Maximum bytes of RAM for each mapping.
///
/// They include its content, its region, and its share of the sample and of the write-back data.
pub const INDEX_BYTES_MAX: u64 = 220 + HISTORY_BYTES + DIRTY_SHARE_BYTES_MAX;
/// Bytes of the knowledge in a checkpoint: a slot, a record, and a cell of a life table.
const SLOT_BYTES: usize = 12;
const RECORD_BYTES: u64 = 7;
/// Bytes of the knowledge for each mapping, at most.
///
/// Most are of beliefs, which take the room that is left.
const HISTORY_BYTES: u64 = 3 * RECORD_BYTES;
const CELL_BYTES: usize = 14;
/// WEUs from which a victim among some is much worse than the mean of all.
const WEUS_WANTED: u32 = 512;
/// The room in a checkpoint.
///
/// Three records for each chunk are enough for records of a third of a chunk. The history names
/// each, so few mappings and no fingerprints have entries of their own.
const CHECKPOINT: CheckpointShares =
    CheckpointShares { mappings_per_chunk: 3, chunks_per_fingerprint: 2, names_records: true };
/// Entries of the index for each mapping: the others are beliefs.
const ENTRIES_SHARE: u64 = 4;
/// Contents that are not stored, for each mapping, at most.
const UNSTORED_SHARE: u64 = 2;
/// Regions of addresses for each mapping, at most: neighbours share one.
const REGION_SHARE: u64 = 1;

/// The design's state.
pub struct Larder {
    config: DesignConfig,
    index: AddressIndex,
    contents: Contents,
    slots: SlotTable,
    fragments: PageMap<SectorMap>,
    sample: Sample,
    rents: Rents,
    checkpoint_room: CheckpointRoom,
    live: u64,
    zeroes: u64,
    clean_zeroes: u64,
    zero_hand: usize,
    /// Bytes of a slot, as far as records have shown.
    slot_bytes: u64,
    /// Bytes of the records that were stored.
    written: u64,
    /// Bytes that were refused since the rent was looked at.
    refused: u64,
    /// Victims that were given back: the last to be chosen again.
    spared: Vec<SlotId>,
    restoring: bool,
    /// True at an orderly end: no mapping is transient any more.
    persists_all: bool,
    /// True if the checkpoint of a recovery was an orderly end's, and nothing has changed since.
    trusts_beliefs: bool,
    /// The pages of a checkpoint, during a recovery.
    pages: Option<Pages>,
    /// Their bytes, once the first record was recalled.
    recalling: Option<Recalling>,
}

impl Larder {
    /// Creates an empty cache.
    pub fn new(config: DesignConfig) -> Self {
        Larder {
            index: AddressIndex::new(config.mappings_max.saturating_mul(REGION_SHARE)),
            contents: Contents::new(config.slot_count, config.mappings_max.saturating_mul(1 + UNSTORED_SHARE)),
            slots: SlotTable::new(config.slot_count),
            fragments: PageMap::default(),
            sample: Sample::new(config.mappings_max),
            rents: Rents::default(),
            checkpoint_room: CheckpointRoom::new(&config),
            live: 0,
            zeroes: 0,
            clean_zeroes: 0,
            zero_hand: 0,
            slot_bytes: 1,
            written: 0,
            refused: 0,
            spared: Vec::new(),
            restoring: false,
            persists_all: false,
            trusts_beliefs: false,
            pages: None,
            recalling: None,
            config,
        }
    }

    /// Returns the bytes of its knowledge in a checkpoint, at most.
    fn knowledge_bytes_max(&self) -> usize {
        let slots = (self.config.slot_count as usize + 1) * SLOT_BYTES;
        let records = self.config.mappings_max.saturating_mul(HISTORY_BYTES) as usize;
        (HEAD_BYTES + slots + CLASSES * BINS * CELL_BYTES).saturating_add(records)
    }

    /// Returns whether an entry is a mapping, and no belief.
    #[inline]
    fn is_live(contents: &Contents, entry: &Address) -> bool {
        entry.content().is_none_or(|id| contents.is_stored(id))
    }

    #[inline]
    fn interpret(&self, entry: &Address) -> Option<Lookup> {
        let Some(id) = entry.content() else { return Some(Lookup::Zero) };
        let (place, record) = self.contents.place_and_record(id)?;
        Some(match entry.kind {
            Kind::Fragment => Lookup::Fragment { place, sectors: self.fragments.get(entry.lba.0).unwrap_or_default() },
            _ => Lookup::Chunk { place, duplicate: !record.is_of(entry.lba) },
        })
    }
}

impl Design for Larder {
    fn stats(&self) -> DesignStats {
        DesignStats {
            mapped_chunks: self.live,
            zero_chunks: self.zeroes,
            fragments: self.fragments.len() as u64,
            lba_index_entries: self.live,
            fp_index_entries: self.contents.known_stored() as u64,
            lba_index_ram_bytes: (self.index.ram_bytes() + self.contents.ram_bytes() + self.sample.ram_bytes()) as u64,
            fp_index_ram_bytes: self.contents.search_ram_bytes() as u64,
            slot_table_ram_bytes: self.slots.ram_bytes() as u64,
            dirty_ram_bytes: self.fragments.ram_bytes() as u64,
            slots_free: self.slots.free_count() as u64,
            ghosts: self.index.len() as u64 - self.live,
            ..DesignStats::default()
        }
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn Memory> {
        Some(self)
    }

    fn selective_mut(&mut self) -> Option<&mut dyn Selective> {
        Some(self)
    }
}
