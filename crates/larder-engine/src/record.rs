//! Reading one record: from memory or flash, checked by its CRC, decoded to sectors.
//!
//! Invariants: a record that is read from flash is pinned from the decision until its bytes are
//! checked, so its slot cannot be reused meanwhile. Bytes that fail their check are never handed
//! out.
//!
//! It does not look anything up, or decide how to treat a damaged record.

use crate::{
    geometry::Geometry,
    pins::{HeldPin, Pinned},
    segment::writer::InMemory,
    shared::Shared,
    state::State,
    status::counters::Counters,
    stripes::Stripe,
};
use larder_codec::decode;
use larder_core::{Place, SectorMap, SlotId, types::SECTOR_BYTES};
use larder_device::{IoBuf, IoFuture, IoResult, SharedBuf};
use larder_format::{Encoding, RecordIdentity, record_crc};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// A reader's hold on a slot, for as long as the read takes.
pub struct Pin {
    shared: Arc<Shared>,
    held: HeldPin,
}

impl Pin {
    /// Returns the cache of the slot.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Unpins the slot.
    pub(crate) fn give_back(self) -> Arc<Shared> {
        self.shared.clone()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.pins.unpin(self.held);
    }
}

/// A record whose place was looked up, and whose bytes are held in memory or pinned on flash.
pub struct HeldRecord {
    /// Place of the record.
    pub place: Place,
    pub(crate) bytes: HeldBytes,
}

/// The bytes of a held record.
pub(crate) enum HeldBytes {
    /// In memory.
    Memory(SharedBuf),
    /// In a slot that stays as it is meanwhile.
    Flash(Pin),
}

/// A record that is being read.
pub struct ReadingRecord {
    /// Place of the record.
    pub place: Place,
    pub(crate) pin: Option<Pin>,
    /// Bytes before the record in the bytes of the read.
    pub(crate) skip: usize,
}

impl Shared {
    /// Holds the record at `place`, which the caller just looked up under the same lock.
    pub fn hold(self: &Arc<Self>, state: &State, place: Place) -> HeldRecord {
        let bytes = match state.writer.bytes_at(&place) {
            Some(InMemory::Borrowed(bytes)) => HeldBytes::Memory(IoBuf::copy_of(bytes).freeze()),
            Some(InMemory::Shared(bytes)) => HeldBytes::Memory(bytes),
            None => HeldBytes::Flash(self.pin(place.slot)),
        };
        HeldRecord { place, bytes }
    }

    /// Pins `slot`; the state must be locked.
    pub fn pin(self: &Arc<Self>, slot: SlotId) -> Pin {
        self.keep(self.pins.pin(slot, self.stripes.mine()))
    }

    /// Returns a pin that outlives the borrow.
    pub(crate) fn keep(self: &Arc<Self>, pinned: Pinned<'_>) -> Pin {
        Pin { shared: self.clone(), held: pinned.hold() }
    }

    /// Begins to read one record or more, at `offset` on flash.
    #[inline]
    pub(crate) fn read_data(&self, stripe: Stripe, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.counters.note_data_read(stripe, buf.len() as u64);
        self.flash.read(offset, buf)
    }

    /// Begins to read a held record. Returns the operation, and the record with which to check its
    /// bytes.
    pub fn start_read(&self, held: HeldRecord) -> (IoFuture<IoBuf>, ReadingRecord) {
        match held.bytes {
            HeldBytes::Memory(bytes) => {
                (IoFuture::ready(Ok(bytes.into_iobuf())), ReadingRecord { place: held.place, pin: None, skip: 0 })
            }
            HeldBytes::Flash(pin) => {
                let (offset, len, skip) = window(&self.geometry, &held.place);
                (
                    self.read_data(self.stripes.mine(), offset, IoBuf::new(len)),
                    ReadingRecord { place: held.place, pin: Some(pin), skip },
                )
            }
        }
    }

    /// Reads a held record whole. Returns its checked payload.
    ///
    /// # Errors
    /// Errors of the device; `Ok(None)` if the bytes fail their check.
    pub async fn read_held(&self, held: HeldRecord) -> IoResult<Option<IoBuf>> {
        let (future, reading) = self.start_read(held);
        let mut window = future.await?;
        let payload = match reading.payload(&window, &self.counters) {
            Some(_) => {
                let _ = window.split_to(reading.skip);
                window.truncate(reading.place.stored_len as usize);
                Some(window)
            }
            None => None,
        };
        drop(reading.pin);
        Ok(payload)
    }
}

/// Returns the device-aligned window around a record. It is the offset on flash, the length, and
/// the bytes before the record.
pub fn window(geometry: &Geometry, place: &Place) -> (u64, usize, usize) {
    let start = geometry.flash_offset(place.slot, place.offset);
    let align = geometry.flash_align as u64;
    let from = start / align * align;
    let to = (start + u64::from(place.stored_len)).next_multiple_of(align);
    (from, (to - from) as usize, (start - from) as usize)
}

impl ReadingRecord {
    /// Returns the same record, to be read once more by itself.
    pub(crate) fn again(self) -> HeldRecord {
        let ReadingRecord { place, pin, .. } = self;
        let pin = pin.expect("only a read of flash fails, and it holds its slot");
        HeldRecord { place, bytes: HeldBytes::Flash(pin) }
    }

    /// Returns the record's payload in the bytes that were read, if it passes its check.
    pub fn payload<'a>(&self, window: &'a [u8], counters: &Counters) -> Option<&'a [u8]> {
        let payload = window.get(self.skip..self.skip + self.place.stored_len as usize)?;
        passes(&self.place, payload, counters).then_some(payload)
    }
}

/// Returns whether `payload`, read from a pinned slot or from memory, is the content stored at
/// `place`.
///
/// Each mismatch is counted: the payload was damaged, or its slot was written over meanwhile.
pub fn passes(place: &Place, payload: &[u8], counters: &Counters) -> bool {
    let passes = check(place, payload);
    if !passes {
        counters.failed_checks.fetch_add(1, Relaxed);
    }
    passes
}

/// Checks a payload against its place without counting: for readers of a flash that is not served.
pub fn check(place: &Place, payload: &[u8]) -> bool {
    let identity = RecordIdentity { slot: place.slot.0, generation: place.generation, offset: place.offset };
    record_crc(identity, place.encoding, payload) == place.crc
}

/// Returns the encoding of a place; an unknown code counts as raw and then fails its length check.
pub fn encoding_of(place: &Place) -> Encoding {
    Encoding::from_code(place.encoding).unwrap_or(Encoding::Raw)
}

/// Decodes a chunk's payload into a buffer of one chunk. Returns false if it does not decode.
pub fn decode_chunk(place: &Place, payload: &[u8], out: &mut [u8]) -> bool {
    decode(encoding_of(place), payload, out)
}

/// Decodes a fragment's payload (its valid sectors, one after the other) into their places in a
/// chunk.
pub fn overlay_fragment(place: &Place, sectors: &SectorMap, payload: &[u8], chunk: &mut [u8]) -> bool {
    let mut packed = vec![0; sectors.count() * SECTOR_BYTES];
    if !decode(encoding_of(place), payload, &mut packed) {
        return false;
    }
    let mut from = 0;
    for (first, end) in sectors.runs(chunk.len() / SECTOR_BYTES) {
        let bytes = (end - first) * SECTOR_BYTES;
        chunk[first * SECTOR_BYTES..end * SECTOR_BYTES].copy_from_slice(&packed[from..from + bytes]);
        from += bytes;
    }
    true
}
