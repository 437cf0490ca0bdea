//! What lies under a design: how the flash is divided for it, how its records become writes, and what is known of what lies there.
//!
//! [`Store`] is all in which the stores differ. Whoever reads, writes, destages, evicts, recovers or verifies asks the store of the
//! cache, and does not know which it is. There is one file a store, [`weus`], [`slots`], [`buckets`]: what a design's row says of what
//! is to lie under it ([`Over`]) is its store.
//!
//! Invariants: a store has no state of its own; what a flash holds is in its superblock, its design and the engine's state. What a
//! method says where a store does not is what holds of slots that have one record each, which nothing beside them describes.
//!
//! What it does not do: decide which record goes where, or which leaves; the design does.

pub(crate) mod buckets;
pub(crate) mod slots;
pub(crate) mod weus;

use crate::{
    asked::Refusal,
    config::CreateOptions,
    designs,
    error::EngineError,
    named_frames::{Look, Named},
    segment::{SegmentHome, SegmentIdentity},
    verify::{
        index::Homes,
        records::{self, Findings, RecordCheck},
    },
    walk::Reader,
};
use larder_core::{Design, Over, Place, packing::PackingRules};
use larder_device::BlockDevice;
use larder_format::{
    BucketRequest, FormatError, HistoryRequest, Layout, RecordEntry, StoreKind, Superblock, layout::SECTOR_BYTES_MAX,
};
use std::{fmt, future::Future, pin::Pin};

/// Slots for one record that are evicted with one commit at most.
pub(crate) const RECORD_BATCH_MAX: usize = 256;

/// The outcome of looking at a flash that nobody serves.
pub(crate) type Looking<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The store of the cache that this superblock describes.
///
/// # Errors
/// [`EngineError::Invalid`] for a superblock that no cache of its design has, and for a design that this version cannot run.
pub(crate) fn of(superblock: &Superblock) -> Result<&'static dyn Store, EngineError> {
    Ok(designs::check_superblock(superblock)?.store)
}

/// The store under a design.
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

/// What lies under a design; see the module.
pub(crate) trait Store: Send + Sync {
    /// What the format calls it.
    fn kind(&self) -> StoreKind;

    // ---- What a cache over it is made with.

    /// Whether equal content can be kept once.
    fn can_share(&self) -> bool {
        true
    }

    /// Bytes of RAM for each mapping at most, for chunks of so many bytes: what a RAM budget is divided by.
    fn index_bytes_max(&self, chunk_bytes: u32) -> u64;

    /// Bytes of RAM that the design's tables take for the slots of this layout, full or empty.
    fn slot_tables_bytes(&self, layout: &Layout) -> u64;

    /// How many slots a RAM budget affords, of 1 byte or more, where slots cost RAM whatever is cached.
    fn slots_max(&self, _options: &CreateOptions) -> u32 {
        u32::MAX
    }

    /// How many mappings a flash of so many bytes shall have room for; `None` for what the format gives.
    ///
    /// # Errors
    /// What is wrong with so many bytes, as the end of a sentence that begins with the design.
    fn mappings_wanted(&self, _flash_bytes: u64, _chunk_bytes: u32) -> Result<Option<u64>, String> {
        Ok(None)
    }

    /// What a flash of so many bytes is to be divided into, where that is buckets.
    fn buckets(&self, _options: &CreateOptions, _flash_bytes: u64) -> Option<BucketRequest> {
        None
    }

    /// The history of its design, in a checkpoint; `None` for a design without one, and for one that has pages of its own.
    fn history(&self, _options: &CreateOptions) -> Option<HistoryRequest> {
        None
    }

    /// Changes those of the options that it leaves open in one way only.
    fn fit(&self, options: &mut CreateOptions);

    /// Refuses options that it cannot have.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    fn check(&self, options: &CreateOptions) -> Result<(), Refusal>;

    /// Whether a cache that has this superblock may have been made over it.
    fn has_made(&self, superblock: &Superblock) -> bool;

    // ---- How it is filled and emptied.

    /// How records are packed into what is written at once.
    fn packing(&self, layout: &Layout) -> PackingRules {
        PackingRules {
            weu_bytes: layout.weu_bytes,
            sector_bytes: layout.sector_bytes.min(layout.weu_bytes),
            header_bytes: 0,
            entry_bytes: 0,
        }
    }

    /// The largest sector of a device that carries the store; by default the format's maximum.
    fn sector_bytes_max(&self, _layout: &Layout) -> u32 {
        SECTOR_BYTES_MAX
    }

    /// Adds the identification of its records to a coming write, whose bytes are `data`. The table begins at `table_offset`.
    ///
    /// # Errors
    /// The format's, for a table that does not fit.
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

    /// A record takes a multiple of so many bytes of flash, beginning with none.
    fn record_step_bytes(&self, layout: &Layout) -> u32 {
        layout.weu_bytes
    }

    /// Whether one record fills what was opened for it.
    fn is_full_with_one(&self) -> bool {
        true
    }

    /// Whether the design decides by what lies on flash, so that what it has to know of several contents is read before.
    fn reads_to_decide(&self) -> bool {
        false
    }

    /// Whether chunks of zeroes are stored as any other content.
    fn stores_zeroes(&self) -> bool {
        true
    }

    /// Free slots that are kept ready, of so many.
    fn free_slots_wanted(&self, slots: usize) -> usize {
        // Of the spare ones, half.
        (slots / 64).clamp(2, RECORD_BATCH_MAX)
    }

    /// How many slots go with one commit, where so many free ones are missing. Of slots for one record all that the design has let go
    /// of, or each chunk stored would cost a commit; where the index is full it may be data in use that goes, and no more than has to.
    fn evict_at_once(&self, missing: usize, index_is_full: bool) -> usize {
        if index_is_full { missing.clamp(1, RECORD_BATCH_MAX) } else { RECORD_BATCH_MAX }
    }

    /// Whether a slot is trimmed between its uses: one that is written again soon, and whole, gains nothing by it.
    fn trims_slots(&self) -> bool {
        false
    }

    // ---- What is known of what lies there.

    /// Whether what lies in a slot says itself what it is, and of which use of the slot.
    fn lists_records(&self) -> bool {
        false
    }

    /// Whether a structure written with records names the newest durable frame of the log.
    fn names_frames(&self) -> bool {
        false
    }

    /// The newest frame of the log that a structure on the flash names as durable.
    fn newest_named<'a>(&'a self, _reader: Reader<'a>, _superblock: &'a Superblock, _look: Look) -> Named<'a> {
        Box::pin(std::future::ready(None))
    }

    /// What is wrong with where a chunk is mapped to, if anything is.
    fn out_of_place(&self, homes: &Homes, _layout: &Layout, lba: u64, place: &Place) -> Option<String> {
        homes.out_of_slots(lba, place)
    }

    /// Checks every record that is named.
    fn check_records<'a>(&'a self, check: RecordCheck<'a>) -> Looking<'a, Findings> {
        Box::pin(records::check_slots(check, self.lists_records()))
    }

    /// Has `design` know of uses of slots that lie on the flash, where what spoke of them may be lost. Returns whether it now does;
    /// else each slot has to be looked at.
    fn restore_uses<'a>(
        &'a self,
        _flash: &'a dyn BlockDevice,
        _superblock: &'a Superblock,
        _design: &'a mut dyn Design,
    ) -> Looking<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}
