//! The entries of a checkpoint, each of a fixed size.
//!
//! Invariants: as everywhere, an entry that decodes encodes to the same bytes again.

use crate::codes::{Encoding, SlotState, WeuClass};
use crate::error::{FormatError, Structure};
use crate::flags::{FLAG_ADVISORY, FLAG_DIRTY, FLAG_DUPLICATE, FLAG_NO_HOLE};
use crate::place::{FlashPlace, Sectors};
use crate::wire::{self, Le16, Le32, Le64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const STRUCTURE: Structure = Structure::CheckpointBlock;
const FLAG_ZERO: u8 = 4;

/// A slot of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// Its number.
    pub slot: u32,
    /// Its generation; a free slot has the last one used, or `u32::MAX` before its first use.
    pub generation: u32,
    /// The state of the slot.
    pub state: SlotState,
    /// The class of the chunks in it; a free slot has its last one.
    pub class: WeuClass,
}

/// A chunk that a whole record holds, or that is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingEntry {
    /// The chunk's number on the origin.
    pub lba: u64,
    /// Its record; `None` when it is all zeroes and has none.
    pub place: Option<FlashPlace>,
    /// True if the origin lacks it.
    pub dirty: bool,
    /// True if the record was stored for another chunk or an older write. Never set on a zero
    /// chunk.
    pub duplicate: bool,
}

/// A chunk of which a record holds some sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentEntry {
    /// The chunk's number on the origin.
    pub lba: u64,
    /// Its record.
    pub place: FlashPlace,
    /// True if the origin lacks them.
    pub dirty: bool,
    /// The sectors that the record holds.
    pub sectors: Sectors,
}

/// A run of whole chunks that read as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroRange {
    /// The first chunk's number on the origin.
    pub lba: u64,
    /// Number of chunks, at least 1.
    pub chunk_count: u64,
    /// True if the origin lacks the zeroes.
    pub dirty: bool,
    /// True if the origin shall keep the range allocated when it is zeroed.
    pub no_hole: bool,
    /// True if a client trimmed the run and asked for no zeroes.
    ///
    /// The engine need not tell the origin of such a run.
    pub advisory: bool,
}

/// A fingerprint and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintEntry {
    /// The fingerprint.
    pub fingerprint: [u8; 16],
    /// The record.
    pub place: FlashPlace,
}

/// An entry that has a form on flash.
pub trait WireEntry: Sized {
    /// Its form.
    type Raw: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned;

    /// Converts the entry to that form.
    fn to_raw(&self) -> Self::Raw;

    /// Converts that form to an entry; the caller checks the bits without a meaning.
    fn from_raw(raw: &Self::Raw) -> Result<Self, FormatError>;
}

/// Decodes one entry.
pub fn decode<E: WireEntry>(bytes: &[u8]) -> Result<E, FormatError> {
    let raw: E::Raw = wire::read(bytes, STRUCTURE)?;
    let entry = E::from_raw(&raw)?;
    wire::check_canonical(&entry.to_raw(), &raw, STRUCTURE)?;
    Ok(entry)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSlotEntry {
    slot: Le32,
    generation: Le32,
    state: u8,
    class: u8,
    reserved: [u8; 6],
}
wire::assert_wire!(RawSlotEntry, 16, slot @ 0, generation @ 4, state @ 8, class @ 9, reserved @ 10);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawMapping {
    lba: Le64,
    slot: Le32,
    generation: Le32,
    offset: Le32,
    crc: Le32,
    stored_len: [u8; 3],
    encoding: u8,
    volume: Le16,
    flags: u8,
    reserved: u8,
}
wire::assert_wire!(
    RawMapping, 32,
    lba @ 0, slot @ 8, generation @ 12, offset @ 16, crc @ 20, stored_len @ 24, encoding @ 27, volume @ 28, flags @ 30,
    reserved @ 31,
);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawFragment {
    mapping: RawMapping,
    sectors: [u8; 32],
}
wire::assert_wire!(RawFragment, 64, mapping @ 0, sectors @ 32);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawZeroRange {
    lba: Le64,
    chunk_count: Le64,
    volume: Le16,
    flags: u8,
    reserved: [u8; 5],
}
wire::assert_wire!(RawZeroRange, 24, lba @ 0, chunk_count @ 8, volume @ 16, flags @ 18, reserved @ 19);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawFingerprint {
    fingerprint: [u8; 16],
    slot: Le32,
    generation: Le32,
    offset: Le32,
    crc: Le32,
    stored_len: [u8; 3],
    encoding: u8,
    reserved: [u8; 4],
}
wire::assert_wire!(
    RawFingerprint, 40,
    fingerprint @ 0, slot @ 16, generation @ 20, offset @ 24, crc @ 28, stored_len @ 32, encoding @ 35, reserved @ 36,
);

impl SlotEntry {
    /// Size on flash.
    pub const BYTES: usize = size_of::<RawSlotEntry>();
}

impl MappingEntry {
    /// Size on flash.
    pub const BYTES: usize = size_of::<RawMapping>();
}

impl FragmentEntry {
    /// Size on flash.
    pub const BYTES: usize = size_of::<RawFragment>();
}

impl ZeroRange {
    /// Size on flash.
    pub const BYTES: usize = size_of::<RawZeroRange>();
}

impl FingerprintEntry {
    /// Size on flash.
    pub const BYTES: usize = size_of::<RawFingerprint>();
}

impl WireEntry for SlotEntry {
    type Raw = RawSlotEntry;

    fn to_raw(&self) -> RawSlotEntry {
        RawSlotEntry {
            slot: Le32::new(self.slot),
            generation: Le32::new(self.generation),
            state: self.state.code(),
            class: self.class.code(),
            reserved: [0; 6],
        }
    }

    fn from_raw(raw: &RawSlotEntry) -> Result<Self, FormatError> {
        Ok(SlotEntry {
            slot: raw.slot.get(),
            generation: raw.generation.get(),
            state: SlotState::from_code(raw.state).ok_or_else(|| invalid("a slot in an unknown state"))?,
            class: WeuClass::from_code(raw.class).ok_or_else(|| invalid("a slot of an unknown class"))?,
        })
    }
}

impl WireEntry for MappingEntry {
    type Raw = RawMapping;

    fn to_raw(&self) -> RawMapping {
        let flags = flag(self.dirty, FLAG_DIRTY) | flag(self.duplicate, FLAG_DUPLICATE);
        match &self.place {
            Some(place) => mapping_to_raw(self.lba, place, flags),
            None => RawMapping { lba: Le64::new(self.lba), flags: flags | FLAG_ZERO, ..RawMapping::new_zeroed() },
        }
    }

    fn from_raw(raw: &RawMapping) -> Result<Self, FormatError> {
        let zero = raw.flags & FLAG_ZERO != 0;
        let duplicate = raw.flags & FLAG_DUPLICATE != 0;
        if zero && duplicate {
            return Err(invalid("a zero chunk that is a duplicate"));
        }
        let place = if zero { None } else { Some(mapping_place(raw)?) };
        Ok(MappingEntry { lba: raw.lba.get(), place, dirty: raw.flags & FLAG_DIRTY != 0, duplicate })
    }
}

impl WireEntry for FragmentEntry {
    type Raw = RawFragment;

    fn to_raw(&self) -> RawFragment {
        let mapping = mapping_to_raw(self.lba, &self.place, flag(self.dirty, FLAG_DIRTY));
        RawFragment { mapping, sectors: self.sectors }
    }

    fn from_raw(raw: &RawFragment) -> Result<Self, FormatError> {
        Ok(FragmentEntry {
            lba: raw.mapping.lba.get(),
            place: mapping_place(&raw.mapping)?,
            dirty: raw.mapping.flags & FLAG_DIRTY != 0,
            sectors: raw.sectors,
        })
    }
}

impl WireEntry for ZeroRange {
    type Raw = RawZeroRange;

    fn to_raw(&self) -> RawZeroRange {
        RawZeroRange {
            lba: Le64::new(self.lba),
            chunk_count: Le64::new(self.chunk_count),
            volume: Le16::new(0),
            flags: flag(self.dirty, FLAG_DIRTY) | flag(self.no_hole, FLAG_NO_HOLE) | flag(self.advisory, FLAG_ADVISORY),
            reserved: [0; 5],
        }
    }

    fn from_raw(raw: &RawZeroRange) -> Result<Self, FormatError> {
        let (lba, chunk_count) = (raw.lba.get(), raw.chunk_count.get());
        if chunk_count == 0 || lba.checked_add(chunk_count).is_none() {
            return Err(invalid("a run of chunks that is empty or overflows"));
        }
        let (dirty, no_hole) = (raw.flags & FLAG_DIRTY != 0, raw.flags & FLAG_NO_HOLE != 0);
        let advisory = raw.flags & FLAG_ADVISORY != 0;
        if no_hole && advisory {
            return Err(invalid("a trim that keeps its range allocated"));
        }
        Ok(ZeroRange { lba, chunk_count, dirty, no_hole, advisory })
    }
}

impl WireEntry for FingerprintEntry {
    type Raw = RawFingerprint;

    fn to_raw(&self) -> RawFingerprint {
        RawFingerprint {
            fingerprint: self.fingerprint,
            slot: Le32::new(self.place.slot),
            generation: Le32::new(self.place.generation),
            offset: Le32::new(self.place.offset),
            crc: Le32::new(self.place.crc),
            stored_len: wire::to_le24(self.place.stored_len),
            encoding: self.place.encoding.code(),
            reserved: [0; 4],
        }
    }

    fn from_raw(raw: &RawFingerprint) -> Result<Self, FormatError> {
        let place = FlashPlace {
            slot: raw.slot.get(),
            generation: raw.generation.get(),
            offset: raw.offset.get(),
            stored_len: wire::from_le24(raw.stored_len),
            crc: raw.crc.get(),
            encoding: encoding(raw.encoding)?,
        };
        Ok(FingerprintEntry { fingerprint: raw.fingerprint, place: plausible(place)? })
    }
}

fn mapping_to_raw(lba: u64, place: &FlashPlace, flags: u8) -> RawMapping {
    RawMapping {
        lba: Le64::new(lba),
        slot: Le32::new(place.slot),
        generation: Le32::new(place.generation),
        offset: Le32::new(place.offset),
        crc: Le32::new(place.crc),
        stored_len: wire::to_le24(place.stored_len),
        encoding: place.encoding.code(),
        volume: Le16::new(0),
        flags,
        reserved: 0,
    }
}

fn mapping_place(raw: &RawMapping) -> Result<FlashPlace, FormatError> {
    plausible(FlashPlace {
        slot: raw.slot.get(),
        generation: raw.generation.get(),
        offset: raw.offset.get(),
        stored_len: wire::from_le24(raw.stored_len),
        crc: raw.crc.get(),
        encoding: encoding(raw.encoding)?,
    })
}

fn encoding(code: u8) -> Result<Encoding, FormatError> {
    Encoding::from_code(code).ok_or_else(|| invalid("an unknown encoding"))
}

fn plausible(place: FlashPlace) -> Result<FlashPlace, FormatError> {
    if place.is_plausible() { Ok(place) } else { Err(invalid("a record that leaves its slot")) }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

pub fn invalid(what: &'static str) -> FormatError {
    FormatError::Invalid { structure: STRUCTURE, what }
}
