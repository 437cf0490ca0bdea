//! Metadata slots: the content and the addresses of a run of data slots (AustereCache §3.1).
//!
//! Role: [`MetadataSlot`] to its 512 bytes and back. Each data slot of a bucket store has one, in
//! the metadata region; a run uses the metadata slot of its first slot. The indices in RAM hold
//! parts of hashes, so the metadata slot tells a hit from a collision.
//!
//! Invariants: one is 512 bytes, which a device writes whole or not at all. A list has 60 addresses
//! at most, each one that an origin can have.
//!
//! It leaves two questions to the caller: which of the addresses are current, and if the slot's
//! generation is an old one. It does not check that each address is listed once: a search finds an
//! address all the same.

use crate::codes::Encoding;
use crate::error::{FormatError, Structure};
use crate::limits::CHUNKS_MAX;
use crate::place::FlashPlace;
use crate::wire::{self, Le32, Le64};
use crate::{COUNTER_MAX, FORMAT_VERSION};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a metadata slot: the paper's.
pub const METADATA_SLOT_BYTES: usize = 512;
/// Most addresses in a metadata slot, beside a fingerprint of 16 bytes (AustereCache §3.1).
pub const LBAS_MAX: usize = 60;
/// Bytes of an address: the 40 bits of [`CHUNKS_MAX`], and eight more.
const LBA_BYTES: usize = 6;

const MAGIC: [u8; 8] = *b"LARDERMS";
const STRUCTURE: Structure = Structure::MetadataSlot;

/// The addresses that a metadata slot lists; a full list gives up its oldest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbaList {
    /// Zero behind the last.
    lbas: [u64; LBAS_MAX],
    count: u8,
    oldest: u8,
}

impl LbaList {
    /// Makes a list of these addresses, the oldest of them at `oldest`; 0 for a list of none.
    ///
    /// The address behind the oldest was added next, and so on around.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] for more than [`LBAS_MAX`]; [`FormatError::Invalid`] for an
    /// address that no origin has, and for an `oldest` behind the last.
    pub fn new(lbas: &[u64], oldest: usize) -> Result<LbaList, FormatError> {
        let mut list = LbaList { lbas: [0; LBAS_MAX], count: lbas.len() as u8, oldest: oldest as u8 };
        let too_large = FormatError::TooLarge { structure: STRUCTURE, max: LBAS_MAX as u64 };
        list.lbas.get_mut(..lbas.len()).ok_or(too_large)?.copy_from_slice(lbas);
        if lbas.iter().any(|&lba| lba >= CHUNKS_MAX) {
            return Err(invalid("an address that no origin has"));
        }
        if oldest >= lbas.len().max(1) {
            return Err(invalid("its oldest address is not in its list"));
        }
        Ok(list)
    }

    /// Returns the addresses, in the order on flash.
    pub fn as_slice(&self) -> &[u64] {
        self.lbas.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Returns the position of the oldest one; 0 for an empty list.
    pub fn oldest(&self) -> usize {
        self.oldest.into()
    }
}

/// A metadata slot: it describes the run of data slots that begins at its data slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataSlot {
    /// [`crate::Superblock::flash_tag`].
    pub flash_tag: u64,
    /// The data slot: the run's first.
    pub slot: u32,
    /// That slot's generation when the run was written.
    pub generation: u32,
    /// The content's fingerprint.
    pub fingerprint: [u8; 16],
    /// [`crate::record_crc`] of the stored bytes.
    pub crc: u32,
    /// Their length in bytes; at least 1, at most a chunk.
    pub stored_len: u32,
    /// The form in which they are stored.
    pub encoding: Encoding,
    /// The addresses that have, or had, that content.
    pub lbas: LbaList,
    /// The newest durable frame of the metadata log when this slot was made.
    ///
    /// It is 0 for none, or when the slot names none.
    pub durable_frame_seq: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMetadataSlot {
    magic: [u8; 8],
    version: Le32,
    crc: Le32,
    flash_tag: Le64,
    slot: Le32,
    generation: Le32,
    fingerprint: [u8; 16],
    record_crc: Le32,
    stored_len: [u8; 3],
    encoding: u8,
    lba_count: u8,
    oldest: u8,
    reserved_0: [u8; 6],
    lbas: [[u8; LBA_BYTES]; LBAS_MAX],
    durable_frame_seq: Le64,
    reserved_1: [u8; 80],
}

const CRC_OFFSET: usize = 12;
wire::assert_wire!(
    RawMetadataSlot, METADATA_SLOT_BYTES,
    magic @ 0, version @ 8, crc @ CRC_OFFSET, flash_tag @ 16, slot @ 24, generation @ 28, fingerprint @ 32,
    record_crc @ 48, stored_len @ 52, encoding @ 55, lba_count @ 56, oldest @ 57, reserved_0 @ 58, lbas @ 64,
    durable_frame_seq @ 424, reserved_1 @ 432,
);

impl MetadataSlot {
    /// Returns the record's place: it begins with its first slot.
    pub fn place(&self) -> FlashPlace {
        let MetadataSlot { slot, generation, crc, stored_len, encoding, .. } = *self;
        FlashPlace { slot, generation, offset: 0, stored_len, crc, encoding }
    }

    /// Returns the bytes of the slot.
    ///
    /// It encodes a length that [`MetadataSlot::decode`] would refuse, too: keep it valid.
    pub fn encode(&self) -> [u8; METADATA_SLOT_BYTES] {
        let mut raw = self.to_raw();
        raw.crc = Le32::new(wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET));
        zerocopy::transmute!(raw)
    }

    /// Decodes the metadata slot of data slot `slot`.
    ///
    /// The caller compares its generation with the data slot's.
    ///
    /// # Errors
    /// As [`FormatError`] says; [`FormatError::Foreign`] when it is another flash's or another
    /// slot's.
    pub fn decode(bytes: &[u8], flash_tag: u64, slot: u32) -> Result<MetadataSlot, FormatError> {
        let raw: RawMetadataSlot = wire::read(bytes, STRUCTURE)?;
        let computed = wire::crc_with_hole(raw.as_bytes(), CRC_OFFSET);
        wire::check_prefix((&raw.magic, &MAGIC), (raw.crc.get(), computed), raw.version.get(), STRUCTURE)?;
        let found = Self::from_raw(&raw)?;
        wire::check_canonical(
            &RawMetadataSlot { crc: raw.crc, version: raw.version, ..found.to_raw() },
            &raw,
            STRUCTURE,
        )?;
        if (found.flash_tag, found.slot) != (flash_tag, slot) {
            return Err(FormatError::Foreign(STRUCTURE));
        }
        Ok(found)
    }

    fn to_raw(&self) -> RawMetadataSlot {
        let mut lbas = [[0; LBA_BYTES]; LBAS_MAX];
        for (to, lba) in lbas.iter_mut().zip(self.lbas.as_slice()) {
            let [a, b, c, d, e, f, ..] = lba.to_le_bytes();
            *to = [a, b, c, d, e, f];
        }
        RawMetadataSlot {
            magic: MAGIC,
            version: Le32::new(FORMAT_VERSION),
            crc: Le32::new(0),
            flash_tag: Le64::new(self.flash_tag),
            slot: Le32::new(self.slot),
            generation: Le32::new(self.generation),
            fingerprint: self.fingerprint,
            record_crc: Le32::new(self.crc),
            stored_len: wire::to_le24(self.stored_len),
            encoding: self.encoding.code(),
            lba_count: self.lbas.count,
            oldest: self.lbas.oldest,
            reserved_0: [0; 6],
            lbas,
            durable_frame_seq: Le64::new(self.durable_frame_seq),
            reserved_1: [0; 80],
        }
    }

    fn from_raw(raw: &RawMetadataSlot) -> Result<Self, FormatError> {
        let lbas = raw.lbas.map(|[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
        let listed = lbas.get(..raw.lba_count.into()).ok_or_else(|| invalid("more addresses than it has room for"))?;
        let found = MetadataSlot {
            flash_tag: raw.flash_tag.get(),
            slot: raw.slot.get(),
            generation: raw.generation.get(),
            fingerprint: raw.fingerprint,
            crc: raw.record_crc.get(),
            stored_len: wire::from_le24(raw.stored_len),
            encoding: Encoding::from_code(raw.encoding).ok_or_else(|| invalid("an unknown encoding"))?,
            lbas: LbaList::new(listed, raw.oldest.into())?,
            durable_frame_seq: raw.durable_frame_seq.get(),
        };
        if found.durable_frame_seq >= COUNTER_MAX {
            return Err(invalid("a counter is too high"));
        }
        if found.place().is_plausible() { Ok(found) } else { Err(invalid("a record that no chunk has")) }
    }
}

fn invalid(what: &'static str) -> FormatError {
    FormatError::Invalid { structure: STRUCTURE, what }
}
