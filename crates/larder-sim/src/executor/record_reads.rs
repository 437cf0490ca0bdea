//! Reads of records under replay, and the drive's advice on the next victim.
//!
//! It does not know places: `requests` has them.

use super::Executor;
use crate::devices::Device;
use larder_core::Place;
use std::ops::Range;

impl Executor {
    /// Reads a record from the flash, or from its segment if that is open still.
    #[inline]
    pub(super) fn count_record_read(&mut self, place: &Place) {
        self.traffic.flash_data_bytes_read += u64::from(place.stored_len);
        if self.asked.is_on() {
            self.note_record_read(place);
        }
    }

    #[cold]
    fn note_record_read(&mut self, place: &Place) {
        let device = self.open_class_of(place).map_or(Device::Flash, |_| Device::Buffer);
        let start = self.asked.slot_start(place.slot) + u64::from(place.offset);
        self.asked.record_read(device, start, place.stored_len.into());
    }

    /// Takes advice: [`ReplayCache::advise_victim`](crate::cache::ReplayCache::advise_victim).
    ///
    /// A store of slots for one record chooses among records, and not among places.
    pub(super) fn advise(&mut self, bytes: &Range<u64>) {
        if self.options.store.one_record {
            return;
        }
        let slots = self.asked.slots_in(bytes);
        let within = |slot: u64| slot.min(self.options.slot_count.into()) as u32;
        self.advised = within(slots.start)..within(slots.end);
    }
}
