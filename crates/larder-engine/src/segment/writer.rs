//! The records that the flash may lack: in open slots, and in closed segments under way.
//!
//! Invariants: a slot is in memory while it is open, or a segment or the metadata slot of it is
//! being written. A closed segment is in the outbox, on its way, or unwritable.
//!
//! It does not write them; [`send`](crate::send) does.

use crate::{
    in_flight::{InFlight, InFlightSegment},
    segment::{
        open::{OpenSlot, Ready},
        record::SegmentIdentity,
    },
};
use larder_core::{Place, SlotId, StreamClass, region::RegionEntry};
use larder_device::{IoBuf, SharedBuf};
use larder_format::LogEntry;
use std::collections::VecDeque;

/// Open slots, segments in flight, and the outbox.
pub struct Writer {
    /// Clean, dirty.
    open: [Option<OpenSlot>; 2],
    in_flight: InFlight,
    /// Numbers of the segments that wait for the flash device.
    outbox: VecDeque<u64>,
    next_seq: u64,
    /// For each slot, whether a record of it may be in memory only.
    in_memory: Vec<bool>,
    /// Slots to trim before use, because no record of their trim exists.
    untrimmed: Vec<bool>,
}

/// Record bytes that are not on flash yet.
pub enum InMemory<'a> {
    /// Bytes of an open segment: to be copied under the lock.
    Borrowed(&'a [u8]),
    /// Bytes of a closed segment.
    Shared(SharedBuf),
}

/// A segment, or a metadata slot, to hand to the flash device.
pub(crate) struct ToSend {
    pub seq: u64,
    pub slot: SlotId,
    pub start: u32,
    pub data: SharedBuf,
    pub is_entry: bool,
}

impl Writer {
    /// Returns the writer of an opening, whose first segment has the number `next_seq`. The trims
    /// of all slots may not have reached the device.
    pub fn new(slot_count: usize, next_seq: u64) -> Self {
        Writer {
            open: [None, None],
            in_flight: InFlight::default(),
            outbox: VecDeque::new(),
            next_seq,
            in_memory: vec![false; slot_count],
            untrimmed: vec![true; slot_count],
        }
    }

    /// Returns the number of the next segment.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns the segments whose write is not over.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Returns whether a record of this slot may be in memory only.
    pub fn is_in_memory(&self, slot: SlotId) -> bool {
        self.in_memory[slot.0 as usize]
    }

    /// Says that a record of this slot may be in memory only, or none is.
    #[cfg(test)]
    pub fn set_in_memory(&mut self, slot: SlotId, is_in_memory: bool) {
        self.in_memory[slot.0 as usize] = is_in_memory;
    }

    /// Returns whether a slot of this class is open.
    pub fn is_open(&self, class: StreamClass) -> bool {
        self.open[index(class)].is_some()
    }

    /// Returns whether a commit must close the open segment of this class.
    pub fn is_needed(&self, class: StreamClass) -> bool {
        let needs = |open: &OpenSlot| class == StreamClass::Dirty || open.commit_needs_it;
        self.open[index(class)].as_ref().is_some_and(needs)
    }

    /// Takes over a slot that was just opened.
    pub(super) fn open(&mut self, open: OpenSlot) {
        self.in_memory[open.slot.0 as usize] = true;
        let class = index(open.class());
        self.open[class] = Some(open);
    }

    /// Appends a record to the open slot of its class. Returns its place, and whether the slot is
    /// full. Without an open slot it returns `None`.
    pub(super) fn append(&mut self, ready: &mut Ready<'_>) -> Option<(Option<Place>, bool)> {
        let open = self.open[index(ready.record.class)].as_mut()?;
        let place = open.append(ready);
        Some((place, place.is_none() || open.store.is_full_with_one()))
    }

    /// Closes the open segment of a class if it has records, under `identify`'s identity of its
    /// number. Returns the slot if it is closed, too: it is full, or `seal` is set.
    pub(super) fn close(
        &mut self,
        class: StreamClass,
        seal: bool,
        identify: impl FnOnce(u64) -> SegmentIdentity,
    ) -> Option<SlotId> {
        let open = self.open[index(class)].as_mut()?;
        let (slot, mut room) = (open.slot, true);
        if open.packer.records() > 0 {
            let (segment, more) = open.close(identify(self.next_seq));
            room = more;
            self.push(segment);
        }
        if !seal && room {
            return None;
        }
        self.open[index(class)] = None;
        // If its last segment was written before, no other step clears the bit, and the slot could
        // never be evicted.
        self.note_written(slot);
        Some(slot)
    }

    /// Queues a metadata slot for its write.
    pub(super) fn push_entry(&mut self, entry: &RegionEntry) {
        let Place { slot, generation, .. } = entry.place;
        self.in_memory[slot.0 as usize] = true;
        self.push(InFlightSegment {
            seq: self.next_seq,
            slot,
            generation,
            start: 0,
            data: IoBuf::new(0).freeze(),
            is_entry: true,
            awaiting: Vec::new(),
            failed: false,
        });
    }

    fn push(&mut self, segment: InFlightSegment) {
        self.outbox.push_back(segment.seq);
        self.next_seq += 1;
        self.in_flight.push(segment);
    }

    /// Takes the next segment or metadata slot to send.
    pub(crate) fn next_to_send(&mut self) -> Option<ToSend> {
        loop {
            let seq = self.outbox.pop_front()?;
            if let Some(&InFlightSegment { slot, start, is_entry, ref data, .. }) = self.in_flight.get(seq) {
                return Some(ToSend { seq, slot, start, data: data.clone(), is_entry });
            }
        }
    }

    /// Returns whether the slot is to be trimmed before this use, its first since the opening.
    pub(crate) fn take_untrimmed(&mut self, slot: SlotId) -> bool {
        std::mem::replace(&mut self.untrimmed[slot.0 as usize], false)
    }

    /// Ends the write of a segment. Returns the clean mappings that waited for it.
    pub(crate) fn written(&mut self, seq: u64) -> Vec<LogEntry> {
        let Some(segment) = self.in_flight.remove(seq) else { return Vec::new() };
        self.note_written(segment.slot);
        segment.awaiting
    }

    fn note_written(&mut self, slot: SlotId) {
        let is_open = self.open.iter().flatten().any(|open| open.slot == slot);
        self.in_memory[slot.0 as usize] = is_open || self.in_flight.has(slot);
    }

    /// Marks a segment as unwritable: its bytes stay readable in RAM.
    pub(crate) fn fail(&mut self, seq: u64) {
        self.in_flight.fail(seq);
    }

    /// Makes `entry` wait for the record at `place`. Gives it back if the flash has that record.
    pub fn await_record(&mut self, place: &Place, entry: LogEntry) -> Option<LogEntry> {
        match self.open.iter_mut().flatten().find(|open| open.holds(place)) {
            Some(open) => {
                open.awaiting.push(entry);
                None
            }
            None => self.in_flight.await_record(place, entry),
        }
    }

    /// Has the next commit close the segment of `place`, which a dirty mapping names.
    pub fn commit_needs(&mut self, place: &Place) {
        let holding = self.open.iter_mut().flatten().filter(|open| open.holds(place));
        holding.for_each(|open| open.commit_needs_it = true);
    }

    /// Returns the number of clean mappings that wait for records.
    pub fn awaiting(&self) -> usize {
        self.open.iter().flatten().map(|open| open.awaiting.len()).sum::<usize>() + self.in_flight.awaiting()
    }

    /// Returns whether clean mappings wait for an open segment.
    pub fn has_awaiting_in_open(&self) -> bool {
        self.open.iter().flatten().any(|open| !open.awaiting.is_empty())
    }

    /// Takes all clean mappings that wait for records.
    pub fn take_awaiting(&mut self) -> Vec<LogEntry> {
        let open = self.open.iter_mut().flatten();
        let mut taken: Vec<LogEntry> = open.flat_map(|open| std::mem::take(&mut open.awaiting)).collect();
        taken.extend(self.in_flight.take_awaiting());
        taken
    }

    /// Returns the bytes of the record at `place`, copied or shared, if they are in memory.
    pub fn bytes_at(&self, place: &Place) -> Option<InMemory<'_>> {
        if !self.is_in_memory(place.slot) {
            return None;
        }
        let range = place.offset as usize..place.offset as usize + place.stored_len as usize;
        if let Some(open) = self.open.iter().flatten().find(|open| open.holds(place)) {
            return open.bytes(range).map(InMemory::Borrowed);
        }
        let segment = self.in_flight.segment_of(place)?;
        let start = segment.start as usize;
        Some(InMemory::Shared(segment.data.slice(range.start - start..range.end - start)))
    }
}

/// Returns the index of a class among the open slots.
fn index(class: StreamClass) -> usize {
    match class {
        StreamClass::Clean => 0,
        StreamClass::Dirty => 1,
    }
}
