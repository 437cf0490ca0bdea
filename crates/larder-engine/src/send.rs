//! Handing closed segments, and metadata slots that changed, to the flash device.
//!
//! Invariants: writes into one slot follow the order of closing; so do writes into one block of the
//! metadata region. A write that is refused is tried again ([`refused`](crate::refused)). When the
//! retries end, the flash has failed, and the bytes stay readable in RAM.
//!
//! It does not flush the device; a written segment is volatile until [`flush`](crate::flush) has
//! run.

use crate::{segment::writer::ToSend, shared::Shared, state::State, tickets::Ticket};
use larder_core::{
    SlotId,
    decisions::{Answer, Event},
};
use larder_device::{IoResult, SharedBuf, WriteFlags};
use std::sync::{Arc, atomic::Ordering::*};

/// A closed segment, or a metadata slot that changed, on its way to the flash.
pub(crate) struct Outgoing {
    content: ToSend,
    /// The slot was freed before a restart: its trim may not have reached the device.
    untrimmed: bool,
    turn: Ticket,
}

impl Shared {
    /// Hands closed segments to the flash device.
    pub fn send_segments(self: &Arc<Self>) {
        let outgoing = self.take_outbox(&mut self.state.lock());
        self.send(outgoing);
    }

    /// Takes the segments and metadata slots to write, each with its turn.
    ///
    /// The turns are asked for under the lock, so that a slot's segments are written in their
    /// order.
    pub(crate) fn take_outbox(&self, state: &mut State) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        while let Some(content) = state.writer.next_to_send() {
            let slot = content.slot;
            let (turn, untrimmed) = match content.is_entry {
                true => (self.region_turn(slot), false),
                false => (self.orders.write_slot(slot), state.writer.take_untrimmed(slot)),
            };
            outgoing.push(Outgoing { content, untrimmed, turn });
        }
        outgoing
    }

    /// Hands taken segments and metadata slots to the flash device.
    pub(crate) fn send(self: &Arc<Self>, outgoing: Vec<Outgoing>) {
        for one in outgoing {
            let this = self.clone();
            self.spawn_counted(async move { this.write_out(one).await });
        }
    }

    async fn write_out(self: &Arc<Self>, outgoing: Outgoing) {
        let Outgoing { content: ToSend { seq, slot, start, data, is_entry }, untrimmed, turn } = outgoing;
        let _turn = turn.granted().await;
        let bytes = data.len() as u64;
        let result = match is_entry {
            true => self.write_entry(slot, seq).await,
            false => self.write_data(slot, (start, untrimmed), data).await.map(|()| None),
        };
        let result = result.map_err(|error| self.fail_flash(error));
        let outgoing = {
            let mut state = self.state.lock();
            match result {
                Ok(entry) => {
                    state.decisions.note(|| (Event::Written { segment: seq }, Answer::Count(bytes)));
                    if let Some(entry) = entry {
                        state.note_entry_written(&entry);
                    }
                    for entry in state.writer.written(seq) {
                        state.log_clean(entry);
                    }
                }
                // The bytes stay readable in RAM; no entry that depends on them ever counts as
                // durable.
                Err(_) => state.writer.fail(seq),
            }
            // Metadata slots that may name the written record.
            self.take_outbox(&mut state)
        };
        self.signals.segments.notify();
        if !is_entry {
            // A slot that was freed ahead can be reused only when its last write is over.
            self.room.written(slot);
        }
        self.send(outgoing);
    }

    /// Writes a segment, or a record that has its own slots.
    async fn write_data(&self, slot: SlotId, (start, untrimmed): (u32, bool), data: SharedBuf) -> IoResult<()> {
        if untrimmed && start == 0 && self.geometry.store.trims_slots() {
            // A failed trim costs wear, not data.
            let slot_bytes = u64::from(self.geometry.layout.slot_bytes);
            let _ = self.flash.discard(self.geometry.flash_offset(slot, 0), slot_bytes).await;
        }
        let bytes = data.len() as u64;
        let offset = self.geometry.flash_offset(slot, start);
        let result = self.until_taken(|| self.flash.write(offset, data.clone(), WriteFlags::default())).await;
        self.counters.flash_segment_bytes_written.fetch_add(bytes, Relaxed);
        result
    }

    /// Waits until every segment below `seq` was written. Returns false if one failed.
    pub async fn segments_written_below(&self, seq: u64) -> bool {
        loop {
            let written = self.signals.segments.listen();
            {
                let state = self.state.lock();
                let mut waiting = state.writer.in_flight().below(seq).peekable();
                if waiting.peek().is_none() {
                    return true;
                }
                if waiting.any(|segment| segment.failed) {
                    return false;
                }
            }
            written.await;
        }
    }
}
