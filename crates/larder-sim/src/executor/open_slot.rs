//! A slot that is being filled, and the classes of data that have one each.
//!
//! It does not fill or close a slot.

use larder_core::{SlotId, StreamClass, packing::SegmentPacker};

/// A slot that is being filled.
pub(super) struct OpenSlot {
    pub slot: SlotId,
    pub generation: u32,
    /// Bytes of the slots that were opened.
    pub bytes: u32,
    pub packer: SegmentPacker,
    /// Mappings that are logged when the segment is written.
    pub awaiting: u64,
    pub holds_dirty: bool,
}

pub(super) fn index_of(class: StreamClass) -> usize {
    match class {
        StreamClass::Clean => 0,
        StreamClass::Dirty => 1,
    }
}

/// Returns the class of dirty chunks, or of clean ones.
pub(super) fn class_of(dirty: bool) -> StreamClass {
    if dirty { StreamClass::Dirty } else { StreamClass::Clean }
}
