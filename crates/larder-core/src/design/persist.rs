//! [`Persist`]: the parts of a design that survive a restart.
//!
//! Invariants: a restart restores a checkpoint first, and then the log, entry by entry.
//!
//! It does not know their form on flash.

use super::{ExportedMapping, ToldBy};
use crate::{
    slots::ExportedSlot,
    types::{Fingerprint, Lba, Place, SlotId, StreamClass},
};

/// The parts that a checkpoint exports and a restart restores.
pub trait Persist {
    /// Begins a checkpoint: an export piece by piece, while the design goes on. Later log entries
    /// are replayed over it. At most one export runs; one that had begun before failed.
    fn begin_export(&mut self);

    /// Ends the last export as a durable checkpoint. Entries that waited for the log at its
    /// beginning are committed.
    fn export_is_durable(&mut self) {}

    /// Counts the pieces of [`Persist::export_mappings`].
    fn export_pieces(&self) -> usize;

    /// Returns one piece of the live mappings.
    fn export_mappings(&self, piece: usize) -> Vec<ExportedMapping>;

    /// Returns the next slots in the order of [`Persist::export_slots`]; `None` at the end. Each
    /// slot comes once, in its state at that moment.
    fn next_slots(&mut self) -> Option<Vec<ExportedSlot>>;

    /// Returns the next known fingerprints with live places; `None` at the end.
    ///
    /// They come in the order of [`Persist::export_fingerprints`], each once. Content that came
    /// after the beginning is left out; the log has it if its mapping lasts until it is logged.
    fn next_fingerprints(&mut self) -> Option<Vec<(Fingerprint, Place)>>;

    /// Returns the known fingerprints with live places, least recent first.
    fn export_fingerprints(&self) -> Vec<(Fingerprint, Place)>;

    /// Returns the slots with generation and state, least recent first.
    fn export_slots(&self) -> Vec<ExportedSlot>;

    /// Begins recovery and makes room for so many mappings and fingerprints.
    fn begin_restore(&mut self, mappings: u64, fingerprints: u64);

    /// Recovery: hints that `lba` is about to be mapped, so that many waits for memory become one.
    /// Changes nothing.
    fn touch(&self, _lba: Lba) {}

    /// Ends recovery. Trimmed addresses read as zeroes, and have no mapping.
    fn end_restore(&mut self, is_trimmed: &dyn Fn(Lba) -> bool);

    /// Recovery: says that `slot` holds data of `generation`, and of this class if it is told. A
    /// design may keep all data together.
    ///
    /// Returns false if that is impossible, or if the slot has moved on. `ended` hears of each
    /// dirty address whose mapping ends with an older generation.
    fn restore_slot(
        &mut self,
        slot: SlotId,
        generation: u32,
        class: Option<StreamClass>,
        ended: &mut dyn FnMut(Lba),
    ) -> bool;

    /// Recovery: says that `slot` was freed at `generation`. `ended` hears as in
    /// [`Persist::restore_slot`].
    fn restore_freed(&mut self, slot: SlotId, generation: u32, ended: &mut dyn FnMut(Lba));

    /// Recovery: makes `fingerprint` the content of `place`, and the most recent one.
    fn restore_fingerprint(&mut self, fingerprint: &Fingerprint, place: &Place, told_by: ToldBy);
}
