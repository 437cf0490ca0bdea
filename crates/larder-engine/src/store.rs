//! The parts under a design: the division of the flash, the form of writes, the records' own words.
//!
//! [`Store`] holds all differences between the stores. Reading, writing, destaging, eviction,
//! recovery and checks ask the cache's store, and do not know its kind. There is one file a store:
//! [`weus`], [`slots`], [`buckets`]. A design's row names its store ([`Over`]).
//!
//! Invariants: a store has no state of its own; the content of a flash is in its superblock, its
//! design and the engine's state. The default of a method holds for slots that have one record
//! each, without any description beside them.
//!
//! It does not decide the place of a record, or its eviction; the design does.

pub(crate) mod buckets;
pub(crate) mod slots;
pub(crate) mod weus;

use crate::{
    config::CreateOptions,
    named_frames::{
        self,
        look::{Look, Named, Naming},
    },
    requested::refusal::Refusal,
    room::ServedRecords,
    segment::record::{SegmentHome, SegmentIdentity},
    walk::Reader,
};
use larder_core::{
    Over,
    limits::{RECORD_BATCH_MAX, free_record_slots},
    packing::PackingRules,
};
use larder_format::{
    BucketRequest, FormatError, HistoryRequest, Layout, RecordEntry, StoreKind, Superblock, layout::SECTOR_BYTES_MAX,
};
use std::fmt;

/// Returns the newest frame of the log that the superblock or a slot names as durable.
pub(crate) async fn newest_named(
    store: &dyn Store,
    reader: Reader<'_>,
    superblock: &Superblock,
    look: Look,
) -> Option<Naming> {
    let in_slots = store.newest_in_slots(reader, superblock, look).await;
    named_frames::newer(named_frames::in_superblock(superblock), in_slots)
}

/// Returns the store under a design.
pub(crate) const fn under(over: &'static Over) -> &'static dyn Store {
    match over {
        Over::Weus(weus) => weus,
        Over::Slots(slots) => slots,
        Over::Buckets(buckets) => buckets,
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind())
    }
}

/// The store under a design; see the module.
pub(crate) trait Store: Send + Sync {
    /// Returns the format's kind of the store.
    fn kind(&self) -> StoreKind;

    // ---- The making of a cache over it.

    /// Returns whether equal content can be kept once.
    fn can_share(&self) -> bool {
        true
    }

    /// Returns the limit of RAM bytes for each mapping, by which a RAM budget is divided.
    fn index_bytes_max(&self, chunk_bytes: u32) -> u64;

    /// Returns the bytes of RAM that the design's tables take for the slots of this layout, full or
    /// empty.
    fn slot_tables_bytes(&self, layout: &Layout) -> u64;

    /// Returns the slots that a RAM budget of 1 byte or more affords, if slots cost RAM even when
    /// empty.
    fn slots_max(&self, _options: &CreateOptions) -> u32 {
        u32::MAX
    }

    /// Returns the bytes of a WEU that the design wants on such a flash; `None` for the default.
    fn weu_wanted(&self, _flash_bytes: u64) -> Option<u32> {
        None
    }

    /// Returns the mappings that fit a flash of `flash_bytes`, or `None` for the format's default.
    ///
    /// # Errors
    /// The fault of this size, as the end of a sentence that begins with the design.
    fn mappings_wanted(&self, _flash_bytes: u64, _chunk_bytes: u32) -> Result<Option<u64>, String> {
        Ok(None)
    }

    /// Returns the buckets to divide a flash of `flash_bytes` into, if it has buckets.
    fn buckets(&self, _options: &CreateOptions, _flash_bytes: u64) -> Option<BucketRequest> {
        None
    }

    /// Returns the fingerprints of a checkpoint, or `None` for the format's default.
    fn fingerprints_wanted(&self, _flash_bytes: u64, _chunk_bytes: u32) -> Option<u64> {
        None
    }

    /// Returns the history of its design, in a checkpoint.
    ///
    /// `None` stands for a design without one, and for one that has pages of its own.
    fn history(&self, _options: &CreateOptions) -> Option<HistoryRequest> {
        None
    }

    /// Sets the options that the store fixes.
    fn fit(&self, options: &mut CreateOptions);

    /// Refuses options that the store cannot have.
    ///
    /// # Errors
    /// The fault and the remedy.
    fn check(&self, options: &CreateOptions) -> Result<(), Refusal>;

    /// Returns whether a cache that has this superblock may have been made over it.
    fn has_made(&self, superblock: &Superblock) -> bool;

    // ---- The filling and emptying.

    /// Returns the packing of records into one write.
    fn packing(&self, layout: &Layout) -> PackingRules {
        PackingRules {
            slot_bytes: layout.slot_bytes,
            sector_bytes: layout.sector_bytes.min(layout.slot_bytes),
            header_bytes: 0,
            entry_bytes: 0,
        }
    }

    /// Returns the largest sector of a device that carries the store; by default the format's
    /// maximum.
    fn sector_bytes_max(&self, _layout: &Layout) -> u32 {
        SECTOR_BYTES_MAX
    }

    /// Adds the identification of its records to a coming write, whose bytes are `data`. The table
    /// begins at `table_offset`.
    ///
    /// # Errors
    /// Errors of the format, for a table that does not fit.
    fn describe(
        &self,
        _data: &mut [u8],
        _table_offset: usize,
        _records: &[RecordEntry],
        _identity: SegmentIdentity,
        _home: SegmentHome,
    ) -> Result<(), FormatError> {
        Ok(())
    }

    /// Returns the bytes of flash of which a record takes a multiple, from 0 on.
    fn record_step_bytes(&self, layout: &Layout) -> u32 {
        layout.slot_bytes
    }

    /// Returns whether one record fills the slots that were opened for it.
    fn is_full_with_one(&self) -> bool {
        true
    }

    /// Returns the records that a freed slot serves.
    fn served_by_slot(&self, _layout: &Layout) -> ServedRecords {
        ServedRecords::Any
    }

    /// Returns whether the design decides by metadata on flash, which is read before for several
    /// contents.
    fn reads_to_decide(&self) -> bool {
        false
    }

    /// Returns whether chunks of zeroes are stored as any other content.
    fn stores_zeroes(&self) -> bool {
        true
    }

    /// Returns the free slots to keep ready, of `slots`.
    fn free_slots_wanted(&self, slots: usize) -> usize {
        free_record_slots(slots)
    }

    /// Returns the slots that go with one commit, if `missing` free ones are missing.
    ///
    /// With slots for one record, all that the design has let go of are evicted: otherwise each
    /// stored chunk would cost a commit. If the index is full, data in use may have to go, and no
    /// more than necessary goes.
    fn evict_at_once(&self, missing: usize, index_is_full: bool) -> usize {
        if index_is_full { missing.clamp(1, RECORD_BATCH_MAX) } else { RECORD_BATCH_MAX }
    }

    /// Returns whether a slot is trimmed between its uses. A slot that is written again soon, and
    /// whole, gains nothing by it.
    fn trims_slots(&self) -> bool {
        false
    }

    // ---- The records' self-description.

    /// Returns whether a structure written with records names the newest durable frame of the log.
    fn names_frames(&self) -> bool {
        false
    }

    /// Returns the newest frame of the log that a structure written with records names as durable.
    fn newest_in_slots<'a>(&'a self, _reader: Reader<'a>, _superblock: &'a Superblock, _look: Look) -> Named<'a> {
        Box::pin(std::future::ready(None))
    }
}
