//! The short way of a read: inside one chunk, which is a hit on flash. One look, one operation, one
//! check.
//!
//! A whole chunk that is stored raw goes straight into the caller's buffer. It needs no allocation
//! if the flash device answers at once. A read that meets an obstacle begins again on the long way,
//! in [`read`](crate::read).
//!
//! Reads like this that come in a row share the state's lock ([`state_lock`](crate::state_lock)).
//! While the flash answers at once, they change no memory that other threads change, so they scale
//! with the cores.
//!
//! Some designs know a clean chunk only by the metadata slot on flash that tells of it. Then the
//! read looks twice. Between the looks it reads that slot with the turn of its block
//! ([`region`](crate::region)). Readers of other blocks go on, and no thread holds the exclusive
//! lock. If the second look does not confirm the hit, the design is told, and the long way begins.
//!
//! A sequential stream may go on inside a chunk: the first half was missed, and the second half is
//! on flash by now. Such a hit takes the long way, which follows the stream. The check for it
//! writes nothing.
//!
//! Invariants: those of the long way. The slot is pinned under the lock, shared or not, of its
//! lookup.
//!
//! It does not follow streams that hit from a chunk's beginning on, which need no read-ahead. It
//! leaves misses, fragments, zeroes and records in memory to the long way.

use crate::{
    pins::Pinned,
    read::want::Want,
    record::{ReadingRecord, passes, window},
    region::looks::Unconfirmed,
    shared::Shared,
    state::State,
    stripes::Stripe,
};
use larder_core::{Lba, Lookup, Place, design::Use};
use larder_device::{IoBuf, IoFuture, IoResult};
use std::sync::Arc;

/// A hit inside one chunk.
pub(crate) struct Hit<'a> {
    place: Place,
    pin: Pinned<'a>,
    want: Want,
    stripe: Stripe,
    /// The hit is the whole chunk, stored raw and aligned.
    is_direct: bool,
}

/// The finding of a look.
pub(crate) enum Found<'a> {
    Hit(Hit<'a>),
    /// A hit, if its metadata slot confirms it.
    Unconfirmed(Unconfirmed),
}

/// A read inside one chunk, as its client asked for it.
struct ShortRead<'a> {
    stripe: Stripe,
    offset: u64,
    lba: Lba,
    /// First byte in the chunk.
    from: usize,
    buf: &'a IoBuf,
}

impl ShortRead<'_> {
    fn want(&self) -> Want {
        Want { lba: self.lba, from: self.from, at: 0, len: self.buf.len() }
    }
}

impl Shared {
    /// Looks a chunk up; a hit counts as a use.
    pub(crate) fn start_hit(&self, stripe: Stripe, offset: u64, buf: &IoBuf) -> Option<Found<'_>> {
        let read = self.short_read(stripe, offset, buf)?;
        self.state.look(stripe, |state| self.find_beside_others(state, &read), |state| self.find_alone(state, &read))
    }

    /// Returns the read if it stays inside one chunk.
    #[inline]
    fn short_read<'a>(&self, stripe: Stripe, offset: u64, buf: &'a IoBuf) -> Option<ShortRead<'a>> {
        let chunk = self.geometry.chunk_bytes;
        let from = (offset % chunk as u64) as usize;
        let is_short = !buf.is_empty() && from + buf.len() <= chunk;
        is_short.then(|| ShortRead { stripe, offset, lba: Lba(offset / chunk as u64), from, buf })
    }

    /// Looks a chunk up under the shared lock. A hit leaves its use behind.
    #[inline]
    fn find_beside_others(&self, state: &State, read: &ShortRead<'_>) -> Option<(Found<'_>, Option<Use>)> {
        if self.follows_stream(state, read) {
            return None;
        }
        match state.hit(read.lba) {
            Some(hit) => Some((Found::Hit(self.pinned_hit(hit.place, read)), Some(hit.used))),
            None => state.unconfirmed_hit(read.lba).map(|hit| (Found::Unconfirmed(hit), None)),
        }
    }

    /// Looks a chunk up under the exclusive lock.
    fn find_alone(&self, state: &mut State, read: &ShortRead<'_>) -> Option<Found<'_>> {
        if self.follows_stream(state, read) {
            return None;
        }
        if let Some(hit) = state.unconfirmed_hit(read.lba) {
            return Some(Found::Unconfirmed(hit));
        }
        // A read that goes the long way is looked up there: a lookup here would be a second use.
        if !is_hit_on_flash(state, read.lba) || state.unconfirmed(read.lba).is_some() {
            return None;
        }
        match self.lookup(state, read.lba, read.want().cause()) {
            Lookup::Chunk { place, .. } => Some(Found::Hit(self.pinned_hit(place, read))),
            _ => None,
        }
    }

    /// Returns whether the read goes on with a sequential stream inside a chunk.
    #[inline]
    fn follows_stream(&self, state: &State, read: &ShortRead<'_>) -> bool {
        read.from > 0 && self.live.prefetches() && state.streams.go_on_at(read.offset)
    }

    /// Pins a hit's slot, under the state's lock, shared or not.
    fn pinned_hit(&self, place: Place, read: &ShortRead<'_>) -> Hit<'_> {
        let (chunk, align) = (self.geometry.chunk_bytes, self.geometry.flash_align);
        let is_direct = read.buf.len() == chunk
            && place.encoding == 0
            && place.stored_len as usize == chunk
            && (place.offset as usize).is_multiple_of(align)
            && (read.buf.as_ptr() as usize).is_multiple_of(align);
        let (stripe, want) = (read.stripe, read.want());
        Hit { place, pin: self.pins.pin(place.slot, stripe), want, stripe, is_direct }
    }

    /// Reads a possible hit, after the metadata slot that confirms it.
    pub(crate) async fn read_confirmed(
        self: Arc<Self>,
        stripe: Stripe,
        hit: Unconfirmed,
        offset: u64,
        buf: IoBuf,
    ) -> IoResult<IoBuf> {
        let hit = match self.short_read(stripe, offset, &buf) {
            Some(read) => self.look_confirmed(stripe, hit, read.lba, |place| self.pinned_hit(place, &read)).await,
            None => None,
        };
        let read = match hit {
            Some(hit) => self.finish(hit, offset, buf),
            None => IoFuture::boxed(self.clone().read_slowly(offset, buf)),
        };
        read.await
    }

    /// Reads the record of a hit.
    pub(crate) fn finish(self: &Arc<Self>, hit: Hit<'_>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        match hit.is_direct {
            true => self.finish_raw_hit(hit, offset, buf),
            false => self.finish_hit(hit, offset, buf),
        }
    }

    fn count_direct(&self, stripe: Stripe, bytes: usize) {
        self.counters.note_chunks(stripe, 1);
        self.counters.note_hit(stripe, bytes as u64);
    }

    /// Returns the bytes of a whole chunk if their check passes, or else a buffer for the long way.
    fn take_raw(&self, stripe: Stripe, place: &Place, result: IoResult<IoBuf>, len: usize) -> Result<IoBuf, IoBuf> {
        match result {
            Ok(buf) if passes(place, &buf, &self.counters) => {
                self.count_direct(stripe, len);
                Ok(buf)
            }
            Ok(buf) => Err(buf),
            Err(error) => {
                self.note_flash_read_error(&error);
                Err(IoBuf::new(len))
            }
        }
    }

    fn finish_raw_hit(self: &Arc<Self>, hit: Hit<'_>, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let Hit { place, pin, stripe, .. } = hit;
        let len = buf.len();
        let read = self.read_data(stripe, self.geometry.flash_offset(place.slot, place.offset), buf);
        match read.try_ready() {
            Ok(result) => {
                let taken = self.take_raw(stripe, &place, result, len);
                // The record is unpinned before the long way begins.
                drop(pin);
                match taken {
                    Ok(buf) => IoFuture::ready(Ok(buf)),
                    Err(again) => IoFuture::boxed(self.clone().read_slowly(offset, again)),
                }
            }
            Err(pending) => {
                let pin = self.keep(pin);
                IoFuture::boxed(async move {
                    let result = pending.await;
                    match pin.shared().take_raw(stripe, &place, result, len) {
                        Ok(buf) => Ok(buf),
                        Err(again) => pin.give_back().read_slowly(offset, again).await,
                    }
                })
            }
        }
    }

    /// Copies or decodes the bytes that were read of a chunk.
    fn take_hit(
        &self,
        stripe: Stripe,
        want: &Want,
        reading: &ReadingRecord,
        result: IoResult<IoBuf>,
        buf: &mut IoBuf,
    ) -> bool {
        match result {
            Ok(bytes) if self.take_chunk(want, reading, &bytes, buf) => {
                self.count_direct(stripe, want.len);
                true
            }
            Ok(_) => false,
            Err(error) => {
                self.note_flash_read_error(&error);
                false
            }
        }
    }

    fn finish_hit(self: &Arc<Self>, hit: Hit<'_>, offset: u64, mut buf: IoBuf) -> IoFuture<IoBuf> {
        let Hit { place, pin, want, stripe, .. } = hit;
        let (at, len, skip) = window(&self.geometry, &place);
        // The pin is held beside it.
        let reading = ReadingRecord { place, pin: None, skip };
        match self.read_data(stripe, at, IoBuf::new(len)).try_ready() {
            Ok(result) => {
                let hit = self.take_hit(stripe, &want, &reading, result, &mut buf);
                drop(pin);
                match hit {
                    true => IoFuture::ready(Ok(buf)),
                    false => IoFuture::boxed(self.clone().read_slowly(offset, buf)),
                }
            }
            Err(pending) => {
                let pin = self.keep(pin);
                IoFuture::boxed(async move {
                    let result = pending.await;
                    match pin.shared().take_hit(stripe, &want, &reading, result, &mut buf) {
                        true => Ok(buf),
                        false => pin.give_back().read_slowly(offset, buf).await,
                    }
                })
            }
        }
    }
}

/// Returns whether the address is a chunk whose record is on flash, and not in memory.
fn is_hit_on_flash(state: &State, lba: Lba) -> bool {
    match state.design().peek(lba) {
        Lookup::Chunk { place, .. } => !state.writer.is_in_memory(place.slot),
        _ => false,
    }
}
