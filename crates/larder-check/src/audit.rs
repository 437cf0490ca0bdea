//! The audit of each store: the places of chunks, and the records that have a name.
//!
//! Invariants: an audit changes nothing.
//!
//! It does not repair.

use crate::verify::{
    buckets,
    findings::{Findings, RecordCheck},
    homes::Homes,
    records,
    report::VerifyReport,
    salvage::Salvaged,
};
use larder_core::{
    DESIGNS, Over, Place,
    design::ExportedMapping,
    named::{OverBuckets, OverSlots, OverWeus},
};
use larder_device::BlockDevice;
use larder_format::Layout;
use std::pin::Pin;

/// A check of a flash.
type Checking<'a> = Pin<Box<dyn Future<Output = Findings> + 'a>>;

/// The checks of a store.
pub(crate) trait Audit {
    /// Returns the fault of a chunk's place, if there is one.
    fn out_of_place(&self, homes: &Homes, _layout: &Layout, lba: u64, place: &Place) -> Option<String> {
        homes.out_of_slots(lba, place)
    }

    /// Checks every record that is named.
    fn check_records<'a>(&'a self, check: RecordCheck<'a>) -> Checking<'a> {
        Box::pin(records::check_slots(check))
    }
}

/// Returns the audit of a cache.
pub(crate) fn of(found: &Salvaged) -> &'static dyn Audit {
    let name = found.superblock.design.name();
    let design = DESIGNS.iter().find(|design| design.name == name).expect("a salvaged cache has a design");
    match &design.over {
        Over::Weus(weus) => weus,
        Over::Slots(slots) => slots,
        Over::Buckets(buckets) => buckets,
    }
}

impl Audit for OverWeus {}

impl Audit for OverSlots {}

impl Audit for OverBuckets {
    fn out_of_place(&self, homes: &Homes, layout: &Layout, lba: u64, place: &Place) -> Option<String> {
        let bytes = homes.runs.get(&place.slot.0).map(|&count| u64::from(count) * u64::from(layout.slot_bytes));
        let fits = place.offset == 0 && bytes.is_some_and(|bytes| u64::from(place.stored_len) <= bytes);
        (!fits).then(|| {
            let (len, slot) = (place.stored_len, place.slot.0);
            format!(
                "chunk {lba} has {len} bytes from slot {slot} on, and the FP index has no record of that size there"
            )
        })
    }

    fn check_records<'a>(&'a self, check: RecordCheck<'a>) -> Checking<'a> {
        Box::pin(buckets::check(check))
    }
}

/// Checks every record that has a name, or that the store knows.
pub(crate) async fn check_records(
    flash: &dyn BlockDevice,
    found: &Salvaged,
    mappings: &[ExportedMapping],
    progress: &mut dyn FnMut(u64, u64),
    report: &mut VerifyReport,
) -> Findings {
    let named = records::named_by_slot(found, mappings, report);
    of(found).check_records(RecordCheck { flash, found, named, progress, report }).await
}
