//! The shared parts of the decoders: little-endian field types, checks of prefix, checksum and
//! padding.

use crate::FORMAT_VERSION;
use crate::error::{FormatError, Structure};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub type Le16 = zerocopy::little_endian::U16;
pub type Le32 = zerocopy::little_endian::U32;
pub type Le64 = zerocopy::little_endian::U64;

/// Asserts a size and field offsets at compile time.
macro_rules! assert_wire {
    ($name:ident, $size:expr, $($field:ident @ $offset:expr),+ $(,)?) => {
        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            assert!(core::mem::align_of::<$name>() == 1);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)+
        };
    };
}
pub(crate) use assert_wire;

/// Reads a fixed structure from the front of `bytes`.
pub fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], structure: Structure) -> Result<T, FormatError> {
    match T::read_from_prefix(bytes) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(FormatError::Truncated { structure, needed_bytes: size_of::<T>() as u64 }),
    }
}

/// Returns the first `len` bytes.
pub fn prefix(bytes: &[u8], len: usize, structure: Structure) -> Result<&[u8], FormatError> {
    bytes.get(..len).ok_or(FormatError::Truncated { structure, needed_bytes: len as u64 })
}

/// Checks magic, then the checksum of `bytes`, then the version.
///
/// In this order a flipped bit is corruption, never a newer version.
pub fn check_prefix(
    (found_magic, magic): (&[u8; 8], &[u8; 8]),
    (crc, computed): (u32, u32),
    version: u32,
    structure: Structure,
) -> Result<(), FormatError> {
    if found_magic != magic {
        return Err(FormatError::BadMagic(structure));
    }
    if crc != computed {
        return Err(FormatError::BadChecksum(structure));
    }
    if version > FORMAT_VERSION {
        return Err(FormatError::NewerVersion { structure, version, features: 0 });
    }
    if version == 0 {
        return Err(FormatError::Invalid { structure, what: "version 0" });
    }
    Ok(())
}

/// Returns the CRC32C of `bytes` as if the four at `crc_offset` were zero.
///
/// It returns 0 for bytes too short for that field.
pub fn crc_with_hole(bytes: &[u8], crc_offset: usize) -> u32 {
    let (Some(before), Some(after)) = (bytes.get(..crc_offset), bytes.get(crc_offset + 4..)) else { return 0 };
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(before);
    digest.update(&[0; 4]);
    digest.update(after);
    digest.finalize() as u32
}

/// Writes `crc` into its field.
pub fn put_crc(bytes: &mut [u8], crc_offset: usize, crc: u32) {
    if let Some(field) = bytes.get_mut(crc_offset..crc_offset + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Refuses a decoded value whose encoding differs from its bytes: they hold bits without a meaning.
pub fn check_canonical<T: IntoBytes + Immutable>(again: &T, raw: &T, structure: Structure) -> Result<(), FormatError> {
    if again.as_bytes() == raw.as_bytes() { Ok(()) } else { Err(FormatError::ReservedNotZero(structure)) }
}

/// Refuses padding that is not zero.
pub fn check_zero(padding: &[u8], structure: Structure) -> Result<(), FormatError> {
    if padding.iter().all(|&b| b == 0) { Ok(()) } else { Err(FormatError::ReservedNotZero(structure)) }
}

/// Returns a length, at most 24 bits, as three bytes.
pub fn to_le24(len: u32) -> [u8; 3] {
    let [a, b, c, _] = len.to_le_bytes();
    [a, b, c]
}

/// Returns the length in three bytes.
pub fn from_le24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

/// Returns a fingerprint in the room of a bitmap.
pub fn widen(fingerprint: [u8; 16]) -> [u8; 32] {
    let mut wide = [0; 32];
    for (to, from) in wide.iter_mut().zip(fingerprint) {
        *to = from;
    }
    wide
}

/// Returns the fingerprint in the room of a bitmap; [`check_canonical`] checks the rest.
pub fn narrow(wide: [u8; 32]) -> [u8; 16] {
    let mut fingerprint = [0; 16];
    for (to, from) in fingerprint.iter_mut().zip(wide) {
        *to = from;
    }
    fingerprint
}
