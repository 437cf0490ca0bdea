//! The records of clean victims that are worth another life.
//!
//! A selective design chooses them. They are read while their slot is whole, and offered as fills
//! once its mappings have ended. A fill checks whether its chunk has changed meanwhile.
//!
//! Invariants: a record that fails its check is not offered. The waiting bytes are bounded: beyond
//! twice the limit of the queue, the next victim keeps no record.
//!
//! It does not choose or store.

use crate::{
    batch::BatchRecord,
    fill::insertion::{Insertion, Reason},
    record::{HeldRecord, decode_chunk},
    shared::Shared,
    state::State,
    sync::join_all,
};
use larder_core::{
    Lba, SlotId,
    decisions::{Answer, Event},
    design::Survivor,
};
use larder_device::IoBuf;
use std::sync::Arc;

impl State {
    /// Returns the records of a clean victim that are to be stored again.
    fn survivors(&mut self, victim: SlotId) -> Vec<Survivor> {
        if !self.design().dirty_in(victim).is_empty() {
            return Vec::new();
        }
        let survivors = self.decide().survivors(victim);
        if !survivors.is_empty() {
            self.decisions.note(|| (Event::Keep { slot: victim }, Answer::Count(survivors.len() as u64)));
        }
        survivors
    }
}

impl Shared {
    /// Reads the records of these victims that the design keeps.
    pub(super) async fn read_survivors(self: &Arc<Self>, victims: &[SlotId]) -> Vec<Insertion> {
        let mut held: Vec<((Lba, u32), HeldRecord)> = Vec::new();
        if !self.wear_admits() {
            return Vec::new();
        }
        for &slot in victims {
            let mut state = self.state.lock();
            let bytes_max = self.live.get().insert_queue_bytes_max.saturating_mul(2);
            if state.insertions.is_full_with(held.len() * self.geometry.chunk_bytes, bytes_max) {
                break;
            }
            for Survivor { lba, place, .. } in state.survivors(slot) {
                held.push(((lba, state.versions.get(lba)), self.hold(&state, place)));
            }
        }
        let (operations, records) = self.start_batch(held);
        let results = join_all(operations).await;
        let failed = results.iter().filter_map(|result| result.as_ref().err());
        failed.for_each(|error| self.note_flash_read_error(error));
        let read = records.into_iter().filter_map(|BatchRecord { about: (lba, version), operation, reading }| {
            let payload = reading.payload(results[operation].as_ref().ok()?, &self.counters)?;
            let mut chunk = IoBuf::new(self.geometry.chunk_bytes);
            let is_whole = decode_chunk(&reading.place, payload, &mut chunk);
            chunk.truncate(self.geometry.chunk_len(lba));
            is_whole.then(|| Insertion { lba, version, data: chunk.freeze(), reason: Reason::Survivor })
        });
        read.collect()
    }

    /// Offers these chunks for another life.
    pub(super) fn offer_survivors(self: &Arc<Self>, survivors: Vec<Insertion>) {
        for survivor in survivors {
            let begins = self.state.lock().insertions.push(survivor, self.tuning.insert_depth.max(1));
            if begins {
                self.begin_inserting();
            }
        }
    }
}
