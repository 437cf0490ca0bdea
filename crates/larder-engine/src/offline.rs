//! The room of the engine that is open to offline tools: they check, repair and print a flash. No
//! engine serves it.
//!
//! It has the parts of recovery that such tools apply one by one, because damage is between them:
//! the sizes ([`Geometry`]), the replay ([`Replay`]), the names of durable frames
//! ([`newest_named`]), and the form of records ([`StoreForm`]). And it has the parts by which an
//! opening writes a state anew: [`rebuild`] and [`write_whole`]. The structures are read with
//! [`walk`](crate::walk), [`superblock`](crate::superblock) and [`recover`](crate::recover).
//!
//! Invariants: an open cache does not use this file. All writes go to a flash that its caller has
//! for itself.
//!
//! It does not check or repair; `larder-check` does.

pub use crate::{
    checkpoint::CheckpointTarget,
    designs::check_superblock,
    geometry::Geometry,
    losses::{RANGES_MAX, Ranges},
    named_frames::look::Naming,
    places::{from_format, to_format},
    rebuild::{again, rebuild, write_whole},
    recall::recall,
    record::check as checksum_holds,
    region::entry::{decode as decode_metadata_slot, encode as encode_metadata_slot},
    replay::Replay,
    segment::record::{SegmentHome, SegmentIdentity},
    status::names::{compression_name, mode_name},
};
use crate::{
    named_frames::{self, look::Look},
    store::{self, Store},
    walk::Reader,
};
use larder_core::packing::PackingRules;
use larder_device::BlockDevice;
use larder_format::{FormatError, Layout, RecordEntry, Superblock};

/// The form that a cache's store gives to the records on its flash.
#[derive(Clone, Copy)]
pub struct StoreForm(&'static dyn Store);

impl StoreForm {
    /// Returns the form in a cache of these sizes.
    pub fn of(geometry: &Geometry) -> StoreForm {
        StoreForm(geometry.store)
    }

    /// Returns the packing of records into one write.
    pub fn packing(self, layout: &Layout) -> PackingRules {
        self.0.packing(layout)
    }

    /// Returns whether one record fills the slots that were opened for it.
    pub fn is_full_with_one(self) -> bool {
        self.0.is_full_with_one()
    }

    /// Adds the identification of its records to a coming write, whose bytes are `data`. The table
    /// begins at `table_offset`.
    ///
    /// # Errors
    /// Errors of the format, for a table that does not fit.
    pub fn describe(
        self,
        data: &mut [u8],
        table_offset: usize,
        records: &[RecordEntry],
        identity: SegmentIdentity,
        home: SegmentHome,
    ) -> Result<(), FormatError> {
        self.0.describe(data, table_offset, records, identity, home)
    }
}

/// Returns the newest frame of the log that the superblock or a slot names as durable. It reads the
/// whole flash.
///
/// Under a design that this version cannot run, the superblock alone names a frame.
pub async fn newest_named(flash: &dyn BlockDevice, superblock: &Superblock) -> Option<Naming> {
    match check_superblock(superblock) {
        Ok(design) => store::newest_named(design.store, Reader::alone(flash), superblock, Look::All).await,
        Err(_) => named_frames::in_superblock(superblock),
    }
}
