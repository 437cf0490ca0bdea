//! The records that the history of a checkpoint names, slot by slot.
//!
//! Invariants: any bytes can be read. They are recalled before the log is replayed.
//!
//! It does not write a history; [`history`](super::history) does.

use crate::{
    design::{Recalled, RecalledSlot},
    history::Front,
    lba_index::OFFSET_BITS,
    types::SlotId,
};

/// The version of the history.
pub const VERSION: u16 = 4;
/// Bytes of its head.
pub const HEAD_BYTES: usize = 23;
/// The slot behind the last one.
pub const NO_SLOT: u32 = u32::MAX;
/// The mark of a record that a search finds.
pub const KNOWN: u32 = 1 << 28;
/// The mark of a record to which its address has a clean mapping.
pub const MAPPED: u32 = 1 << 29;
/// The class of a record, above its offset.
pub const CLASS_MASK: u32 = (1 << (28 - OFFSET_BITS)) - 1;

/// Returns the offset of a packed record.
pub fn offset_of(packed: u32) -> u32 {
    packed & ((1 << OFFSET_BITS) - 1)
}

/// The history of a checkpoint whose records are recalled, slot by slot.
pub struct Recalling {
    bytes: Vec<u8>,
    at: usize,
}

impl Recalling {
    /// Begins with the first slot.
    pub fn new(bytes: Vec<u8>) -> Recalling {
        let is_ours = bytes.first_chunk().is_some_and(|version| u16::from_le_bytes(*version) == VERSION);
        Recalling { at: if is_ours { HEAD_BYTES } else { bytes.len() }, bytes }
    }

    /// Returns all bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the records of the next slot that are to be recalled; `None` behind the last.
    pub fn next_slot(&mut self) -> Option<RecalledSlot> {
        let mut front = Front(self.bytes.get(self.at..)?);
        let slot = u32::from_le_bytes(front.take()?);
        if slot == NO_SLOT {
            return None;
        }
        let generation = u32::from_le_bytes(front.take()?);
        let count = u32::from_le_bytes(front.take()?);
        let mut records = Vec::new();
        for _ in 0..count {
            let packed = u32::from_le_bytes(front.take()?);
            front.take::<1>()?;
            let lba_low = u16::from_le_bytes(front.take()?);
            let (is_known, is_mapped) = (packed & KNOWN != 0, packed & MAPPED != 0);
            if is_known || is_mapped {
                records.push(Recalled { offset: offset_of(packed), is_known, is_mapped, lba_low });
            }
        }
        self.at = self.bytes.len() - front.0.len();
        Some(RecalledSlot { slot: SlotId(slot), generation, records })
    }
}
