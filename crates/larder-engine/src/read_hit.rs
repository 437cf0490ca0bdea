//! The short way of a read: inside one chunk, which is a hit on flash. One decision, one operation, one check.
//!
//! A whole chunk that is stored raw goes straight into the caller's buffer, with no allocation where the flash device
//! answers at once. Whatever does not go as planned begins again on the long way, in [`read`](crate::read).
//!
//! Invariants: those of the long way.
//!
//! What it does not do: find streams, for what hits needs no read-ahead; misses, fragments, zeroes, records in memory.

use crate::{
    read::Want,
    record::{Held, HeldRecord, Pin, check},
    shared::Shared,
};
use larder_core::{Lba, Lookup, Place};
use larder_device::{IoBuf, IoFuture, IoResult};
use std::sync::{Arc, atomic::Ordering::*};

/// A hit inside one chunk.
pub(crate) enum Hit {
    /// The whole chunk, stored raw and aligned.
    Raw(Place, Pin),
    /// Any other.
    Other(Want, HeldRecord),
}

impl Shared {
    /// The decision.
    pub(crate) fn start_hit(self: &Arc<Self>, offset: u64, buf: &IoBuf) -> Option<Hit> {
        let chunk = self.geometry.chunk_bytes;
        let from = (offset % chunk as u64) as usize;
        if buf.is_empty() || from + buf.len() > chunk {
            return None;
        }
        let lba = Lba(offset / chunk as u64);
        let mut state = self.state.lock();
        // What goes the long way is looked up there: twice would be two uses.
        let is_on_flash =
            matches!(state.design.peek(lba), Lookup::Chunk { place, .. } if !state.in_memory[place.slot.0 as usize]);
        if !is_on_flash {
            return None;
        }
        let want = Want { lba, from, at: 0, len: buf.len() };
        let Lookup::Chunk { place, .. } = self.lookup(&mut state, lba, want.asker()) else { return None };
        let pin = self.pin(place.slot);
        drop(state);
        let align = self.geometry.flash_align;
        let direct = buf.len() == chunk
            && place.encoding == 0
            && place.stored_len as usize == chunk
            && (place.offset as usize).is_multiple_of(align)
            && (buf.as_ptr() as usize).is_multiple_of(align);
        Some(if direct {
            Hit::Raw(place, pin)
        } else {
            Hit::Other(want, HeldRecord { place, bytes: Held::Flash(pin) })
        })
    }

    pub(crate) fn finish_raw_hit(self: &Arc<Self>, offset: u64, buf: IoBuf, place: Place, pin: Pin) -> IoFuture<IoBuf> {
        let len = buf.len();
        let read = self.flash.read(self.geometry.flash_offset(place.slot, place.offset), buf);
        let done = move |shared: &Arc<Shared>, result: IoResult<IoBuf>| {
            let again = match result {
                Ok(buf) if check(&place, &buf) => {
                    shared.counters.read_chunks.fetch_add(1, Relaxed);
                    shared.counters.read_hits.fetch_add(1, Relaxed);
                    shared.counters.read_hit_bytes.fetch_add(len as u64, Relaxed);
                    return Ok(buf);
                }
                Ok(buf) => buf,
                Err(error) => {
                    shared.note_flash_read_error(&error);
                    IoBuf::new(len)
                }
            };
            drop(pin);
            Err(again)
        };
        let shared = self.clone();
        match read.try_ready() {
            Ok(result) => match done(self, result) {
                Ok(buf) => IoFuture::ready(Ok(buf)),
                Err(again) => IoFuture::boxed(shared.read_slowly(offset, again)),
            },
            Err(pending) => IoFuture::boxed(async move {
                match done(&shared, pending.await) {
                    Ok(buf) => Ok(buf),
                    Err(again) => shared.read_slowly(offset, again).await,
                }
            }),
        }
    }

    pub(crate) fn finish_hit(
        self: &Arc<Self>,
        offset: u64,
        mut buf: IoBuf,
        want: Want,
        record: HeldRecord,
    ) -> IoFuture<IoBuf> {
        let (read, reading) = self.start_read(record);
        let done = move |shared: &Arc<Shared>, result: IoResult<IoBuf>, buf: &mut IoBuf| match result {
            Ok(bytes) if shared.take_chunk(&want, &reading, &bytes, buf) => {
                shared.counters.read_chunks.fetch_add(1, Relaxed);
                true
            }
            Ok(_) => false,
            Err(error) => {
                shared.note_flash_read_error(&error);
                false
            }
        };
        let shared = self.clone();
        match read.try_ready() {
            Ok(result) => match done(self, result, &mut buf) {
                true => IoFuture::ready(Ok(buf)),
                false => IoFuture::boxed(shared.read_slowly(offset, buf)),
            },
            Err(pending) => IoFuture::boxed(async move {
                let hit = done(&shared, pending.await, &mut buf);
                // The record is unpinned before anything else is tried.
                drop(done);
                if hit { Ok(buf) } else { shared.read_slowly(offset, buf).await }
            }),
        }
    }
}
