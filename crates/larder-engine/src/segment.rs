//! Open slots and their segments: appends records in RAM, closes segments, hands them to the flash.
//!
//! A slot's buffer is allocated once. Each closed segment is split off it and written without a
//! copy, while readers share it until the write is over.
//!
//! Invariants: a closed segment never changes. A slot is sealed when no useful room is left in it,
//! or too little behind its last segment for the next record.
//!
//! It does not flush the device; a written segment is volatile until [`flush`](crate::flush) has
//! run.

pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod writer;

use crate::{
    error::EngineError,
    region::looks::Unconfirmed,
    room::Queued,
    segment::open::{OpenSlot, Ready},
    segment::record::{NewRecord, Payload, RecordOf, SegmentIdentity},
    shared::Shared,
    state::State,
    state_lock::StateGuard,
    store::Store,
};
use larder_core::{
    Place, StreamClass,
    decisions::{Answer, Event},
    design::Wanted,
    packing::PackingRules,
    region::RegionEntry,
};
use larder_format::WeuClass;
use std::{
    cell::OnceCell,
    sync::{Arc, atomic::Ordering::*},
};

/// Limit of closed segments that wait for the flash device, beyond which writers wait.
pub const IN_FLIGHT_SEGMENTS_MAX: usize = 64;
/// Limit of the bytes of these segments.
pub const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// Converts a class to the format's type.
pub(crate) fn weu_class(class: StreamClass) -> WeuClass {
    match class {
        StreamClass::Clean => WeuClass::Clean,
        StreamClass::Dirty => WeuClass::Dirty,
    }
}

/// The outcome of one try to store a record.
enum Storing<'r, R> {
    /// The record is stored, or not wanted any more.
    Over(R),
    /// The design has to read more about the content first.
    Unconfirmed(Unconfirmed),
    /// The content is new, and its chunk is not encoded yet.
    Unencoded(&'r [u8]),
    /// Too many segments wait for the flash.
    Crowded,
    /// No slot is free.
    NoRoom,
}

impl State {
    /// Appends a record to the open slot of its class. Returns `None` if no slot is open, or it is
    /// full (it is sealed then).
    fn append(&mut self, ready: &mut Ready<'_>, flash_tag: u64) -> Option<Place> {
        let (place, is_full) = self.writer.append(ready)?;
        if place.is_none() {
            self.note_full(ready);
        }
        if is_full {
            self.close_segment(ready.record.class, flash_tag, true);
        }
        place
    }

    /// Closes the open segment of `class` if it has records. A full slot closes with it, or any if
    /// `seal` is set.
    pub fn close_segment(&mut self, class: StreamClass, flash_tag: u64, seal: bool) {
        let durable_frame_seq = Some(self.log.area().durable_frame());
        let identify = |segment_seq| SegmentIdentity { flash_tag, segment_seq, durable_frame_seq };
        if let Some(slot) = self.writer.close(class, seal, identify) {
            self.decide().seal_slot(slot);
        }
    }

    /// Opens a slot for `record` if none of its class is open and a slot is free. If slots are
    /// smaller than a record, it opens as many as the record needs.
    fn open_slot(&mut self, ready: &Ready<'_>, store: &'static dyn Store, mut rules: PackingRules) -> bool {
        let (record, class) = (&ready.record, ready.record.class);
        if self.writer.is_open(class) {
            return true;
        }
        let fingerprint = match record.of {
            RecordOf::Chunk(fingerprint) => fingerprint,
            RecordOf::Fragment(_) => None,
        };
        let stored_len = ready.payload.len() as u32;
        let wanted = Wanted { lba: record.lba, fingerprint, stored_len };
        let opened = self.decide().open_slot_for(class, &wanted);
        self.note_slot(Event::Open { class, wanted }, opened.map(|(slot, _)| slot));
        let Some((slot, generation)) = opened else { return false };
        rules.slot_bytes = stored_len.next_multiple_of(rules.slot_bytes);
        self.writer.open(OpenSlot::new((slot, generation), class, store, rules));
        true
    }

    /// Closes the segments that the entries in the log queue depend on; with `all`, every open one.
    pub fn close_for_commit(&mut self, flash_tag: u64, all: bool) {
        self.decisions.note(|| (Event::Commit { all }, Answer::Done));
        for class in [StreamClass::Clean, StreamClass::Dirty] {
            if all || self.writer.is_needed(class) {
                self.close_segment(class, flash_tag, false);
            }
        }
    }

    /// Queues a metadata slot for its write.
    pub(crate) fn push_entry(&mut self, entry: &RegionEntry) {
        self.writer.push_entry(entry);
    }
}

impl Shared {
    /// Returns the packing rules of segments.
    pub fn packing_rules(&self) -> PackingRules {
        self.geometry.store.packing(&self.geometry.layout)
    }

    /// Appends a record to a slot of its class, and decides with `decide` under the same lock.
    ///
    /// It waits for a slot if none is free. It asks `still_wanted` before each try, while the flash
    /// works, with the record's stored length in bytes. That is `None` until the record is encoded.
    ///
    /// # Errors
    /// [`EngineError::FlashFailed`] if the flash takes no more, [`EngineError::Closed`] if the
    /// cache closes.
    pub async fn store<R>(
        self: &Arc<Self>,
        record: NewRecord<'_>,
        mut still_wanted: impl FnMut(&mut StateGuard<'_, State>, Option<u32>) -> Option<R>,
        mut decide: impl FnMut(&mut StateGuard<'_, State>, Place) -> R,
    ) -> Result<R, EngineError> {
        let encoded = OnceCell::new();
        let mut ready = self.ready(record, record.payload);
        let mut queued = None;
        loop {
            let written = self.signals.segments.listen();
            match self.try_to_store(&record, &mut ready, &mut queued, &mut still_wanted, &mut decide)? {
                Storing::Over(answer) => return Ok(answer),
                Storing::Unconfirmed(content) => self.confirm_one(content).await,
                Storing::Unencoded(chunk) => {
                    // The content is not known any more, or another content has its hash.
                    let encoded = encoded.get_or_init(|| self.codec.encode(chunk));
                    ready = self.ready(record, Payload::of(encoded, chunk));
                }
                Storing::Crowded => {
                    self.send_segments();
                    written.await;
                }
                Storing::NoRoom => {
                    self.send_segments();
                    self.refuse_if_draining()?;
                    self.counters.slot_waits.fetch_add(1, Relaxed);
                    // A clean record that waits holds up no client.
                    let _counted = (record.class == StreamClass::Dirty).then(|| self.writes.wait_for_room());
                    self.signals.evict_wanted.notify();
                    if let Some(queued) = &mut queued {
                        queued.called().await;
                    }
                }
            }
        }
    }

    /// Appends a record if it can, or tells the lack. It takes the lock once.
    ///
    /// A record without room is `queued` under that lock.
    fn try_to_store<'r, 's, R>(
        self: &'s Arc<Self>,
        record: &NewRecord<'r>,
        ready: &mut Option<Ready<'_>>,
        queued: &mut Option<Queued<'s>>,
        still_wanted: &mut impl FnMut(&mut StateGuard<'_, State>, Option<u32>) -> Option<R>,
        decide: &mut impl FnMut(&mut StateGuard<'_, State>, Place) -> R,
    ) -> Result<Storing<'r, R>, EngineError> {
        let mut state = self.state.lock();
        state.flash.check()?;
        // A write of a cache that was dropped sends no segment.
        self.check_open()?;
        if let RecordOf::Chunk(Some(fingerprint)) = &record.of
            && let Some(content) = state.unconfirmed_content(fingerprint)
        {
            return Ok(Storing::Unconfirmed(content));
        }
        let in_flight = state.writer.in_flight();
        let is_crowded = in_flight.len() >= IN_FLIGHT_SEGMENTS_MAX || in_flight.bytes() >= IN_FLIGHT_BYTES_MAX;
        let stored_len = ready.as_ref().map(|ready| ready.payload.len() as u32);
        if let Some(answer) = still_wanted(&mut state, stored_len) {
            self.stored(state);
            return Ok(Storing::Over(answer));
        }
        if let Some(ready) = ready
            && let Some(place) = self.place(&mut state, ready, is_crowded)
        {
            let answer = decide(&mut state, place);
            self.stored(state);
            return Ok(Storing::Over(answer));
        }
        Ok(match record.payload {
            Payload::Known(chunk) if ready.is_none() => Storing::Unencoded(chunk),
            _ if is_crowded => Storing::Crowded,
            _ => {
                queued.get_or_insert_with(|| self.room.queue(state.slot_to_await(record.lba)));
                Storing::NoRoom
            }
        })
    }

    /// Returns `record` with this payload, if that is encoded.
    fn ready<'a>(&self, record: NewRecord<'a>, payload: Payload<'a>) -> Option<Ready<'a>> {
        let Payload::Encoded(encoding, payload) = payload else { return None };
        let unit = self.packing_rules().slot_bytes as usize;
        Some(Ready::new(record, encoding, payload, self.geometry.store.is_full_with_one().then_some(unit)))
    }

    /// Appends a record, opening a slot for it if need be and the flash is not crowded. One lock
    /// covers both: a slot for one record is for this one.
    fn place(&self, state: &mut State, ready: &mut Ready<'_>, crowded: bool) -> Option<Place> {
        if let Some(place) = state.append(ready, self.geometry.flash_tag) {
            return Some(place);
        }
        if crowded {
            return None;
        }
        let (store, rules) = (self.geometry.store, self.packing_rules());
        let has_room = state.open_slot(ready, store, rules)
            || self.make_way(state, ready.record.lba) && state.open_slot(ready, store, rules);
        if !has_room {
            return None;
        }
        if state.design().free_slots() < self.free_slots_wanted() || state.wants_room_ahead() {
            self.signals.evict_wanted.notify();
        }
        state.append(ready, self.geometry.flash_tag)
    }

    /// Does as [`Shared::decided`], for a record, and sends the segments and metadata slots of the
    /// outbox.
    fn stored(self: &Arc<Self>, mut state: StateGuard<'_, State>) {
        let outgoing = self.take_outbox(&mut state);
        self.decided(state);
        self.send(outgoing);
    }

    /// Gives back the lock of a mapping, and wakes the destager if due.
    ///
    /// The next store or commit writes metadata slots that the deferred part changes.
    pub(crate) fn decided(&self, state: StateGuard<'_, State>) {
        let wanted = self.destage_wanted(&state);
        drop(state);
        self.ask_for_destage(wanted);
    }
}

#[cfg(test)]
pub(crate) mod tests;
