//! Closed segments, and metadata slots that changed, until their write is over.
//!
//! Invariants: they lie in the order of their numbers, which is the order of their closing. Pushes
//! and removals keep the counts that each decision asks for: segments, bytes, waiting mappings. A
//! search for one segment goes by its number or its slot, without a walk over the segments
//! themselves.
//!
//! It does not write them; [`send`](crate::send) does.

use larder_core::{Place, SlotId};
use larder_device::SharedBuf;
use larder_format::LogEntry;
use std::collections::VecDeque;

/// A closed segment whose write is not over.
pub struct InFlightSegment {
    pub(crate) seq: u64,
    pub(crate) slot: SlotId,
    pub(crate) generation: u32,
    /// Offset in the slot.
    pub start: u32,
    /// All bytes of the segment; empty for a metadata slot.
    pub data: SharedBuf,
    /// The entry stands for a write of the metadata slot of `slot`, in its form at the write.
    pub(crate) is_entry: bool,
    /// Clean mappings to log when the write is over.
    pub(crate) awaiting: Vec<LogEntry>,
    pub(crate) failed: bool,
}

impl InFlightSegment {
    /// Returns whether `place` is in this segment.
    fn holds(&self, place: &Place) -> bool {
        self.slot == place.slot
            && self.generation == place.generation
            && place.offset >= self.start
            && ((place.offset - self.start) as usize) < self.data.len()
    }
}

/// The segments and metadata slots whose write is not over.
#[derive(Default)]
pub struct InFlight {
    segments: VecDeque<InFlightSegment>,
    /// Number and slot of each segment, side by side: a search passes few lines of memory.
    keys: VecDeque<(u64, SlotId)>,
    bytes: usize,
    awaiting: usize,
}

impl InFlight {
    /// Adds a segment, with the greatest number so far.
    pub(crate) fn push(&mut self, segment: InFlightSegment) {
        debug_assert!(self.keys.back().is_none_or(|(seq, _)| *seq < segment.seq));
        self.keys.push_back((segment.seq, segment.slot));
        self.bytes += segment.data.len();
        self.awaiting += segment.awaiting.len();
        self.segments.push_back(segment);
    }

    /// Returns the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns the bytes to write.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of clean mappings that wait for segments.
    pub(crate) fn awaiting(&self) -> usize {
        self.awaiting
    }

    fn position(&self, seq: u64) -> Option<usize> {
        self.keys.binary_search_by_key(&seq, |(seq, _)| *seq).ok()
    }

    /// Returns the segment of this number.
    pub(crate) fn get(&self, seq: u64) -> Option<&InFlightSegment> {
        self.segments.get(self.position(seq)?)
    }

    /// Removes the segment of this number, whose write is over. Returns it with its waiting
    /// mappings.
    pub(crate) fn remove(&mut self, seq: u64) -> Option<InFlightSegment> {
        let at = self.position(seq)?;
        self.keys.remove(at);
        let segment = self.segments.remove(at)?;
        self.bytes -= segment.data.len();
        self.awaiting -= segment.awaiting.len();
        Some(segment)
    }

    /// Marks the segment of this number as unwritable: it stays.
    pub(crate) fn fail(&mut self, seq: u64) {
        let segment = self.position(seq).and_then(|at| self.segments.get_mut(at));
        segment.into_iter().for_each(|segment| segment.failed = true);
    }

    /// Returns whether a segment of this slot is in flight.
    pub(crate) fn has(&self, slot: SlotId) -> bool {
        self.keys.iter().any(|(_, other)| *other == slot)
    }

    fn holding(&self, place: &Place) -> Option<usize> {
        let mut of_slot = self.keys.iter().enumerate().filter(|(_, (_, slot))| *slot == place.slot);
        of_slot.find_map(|(at, _)| self.segments.get(at)?.holds(place).then_some(at))
    }

    /// Returns the segment that holds the record at `place`.
    pub(crate) fn segment_of(&self, place: &Place) -> Option<&InFlightSegment> {
        self.segments.get(self.holding(place)?)
    }

    /// Makes `entry` wait for the record at `place`. Gives it back if no segment holds that record.
    pub(crate) fn await_record(&mut self, place: &Place, entry: LogEntry) -> Option<LogEntry> {
        match self.holding(place).and_then(|at| self.segments.get_mut(at)) {
            Some(segment) => {
                segment.awaiting.push(entry);
                self.awaiting += 1;
                None
            }
            None => Some(entry),
        }
    }

    /// Takes all waiting mappings out of their segments.
    pub(crate) fn take_awaiting(&mut self) -> Vec<LogEntry> {
        self.awaiting = 0;
        self.segments.iter_mut().flat_map(|segment| std::mem::take(&mut segment.awaiting)).collect()
    }

    /// Returns the segments with smaller numbers.
    pub(crate) fn below(&self, seq: u64) -> impl Iterator<Item = &InFlightSegment> {
        self.segments.iter().take_while(move |segment| segment.seq < seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::IoBuf;

    fn segment(seq: u64, slot: u32, start: u32, bytes: usize) -> InFlightSegment {
        InFlightSegment {
            seq,
            slot: SlotId(slot),
            generation: 1,
            start,
            data: IoBuf::zeroed(bytes).freeze(),
            is_entry: false,
            awaiting: Vec::new(),
            failed: false,
        }
    }

    fn place(slot: u32, offset: u32) -> Place {
        Place { slot: SlotId(slot), generation: 1, offset, stored_len: 1, crc: 0, encoding: 0 }
    }

    #[test]
    fn what_is_counted_is_what_is_there() {
        let mut in_flight = InFlight::default();
        for seq in 0..6 {
            in_flight.push(segment(seq, seq as u32 / 3, (seq as u32 % 3) * 512, 512));
        }
        let entry = || LogEntry::MapZero { lba: 1, dirty: false };
        assert!(in_flight.await_record(&place(1, 600), entry()).is_none());
        assert!(in_flight.await_record(&place(1, 5000), entry()).is_some(), "no segment has that");
        assert_eq!((in_flight.len(), in_flight.bytes(), in_flight.awaiting()), (6, 3072, 1));
        assert_eq!(in_flight.segment_of(&place(1, 600)).map(|segment| segment.seq), Some(4));
        assert_eq!(in_flight.below(3).map(|segment| segment.seq).collect::<Vec<_>>(), [0, 1, 2]);
        for seq in [4, 0, 2] {
            assert_eq!(in_flight.remove(seq).map(|segment| segment.seq), Some(seq));
        }
        assert!(in_flight.remove(4).is_none() && in_flight.get(4).is_none());
        assert_eq!((in_flight.len(), in_flight.bytes(), in_flight.awaiting()), (3, 1536, 0));
        assert!(in_flight.has(SlotId(0)) && in_flight.has(SlotId(1)) && !in_flight.has(SlotId(2)));
        in_flight.fail(1);
        assert!(in_flight.get(1).is_some_and(|segment| segment.failed));
        assert!(in_flight.await_record(&place(1, 0), entry()).is_none());
        assert_eq!((in_flight.take_awaiting().len(), in_flight.awaiting()), (1, 0));
    }
}
