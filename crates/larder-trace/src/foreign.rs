//! Refuses files that are no trace, each by its kind.
//!
//! The kinds are archives, files in a packing that Larder cannot unpack, and text in UTF-16 or
//! UTF-32. The search covers the unpacked content, too: a packed tar archive is an archive. The
//! same file is refused under every format, also a binary one. A number in binary records may look
//! like a mark of two bytes, and a few numbers like letters. So only longer marks and longer text
//! count if the caller names a binary format.
//!
//! It does not find formats.

use crate::{
    error::{Position, TraceError, TraceErrorKind, TraceResult},
    formats::FormatId,
    input::{Input, Packing},
};

/// Bytes that the search reads: the header of a file in a tar archive.
const LOOKED_BYTES: usize = 512;
/// The place of the checksum in that header.
const TAR_CHECKSUM: std::ops::Range<usize> = 148..156;
/// The mark that text in UTF-8 may begin with.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Refuses a file that is no trace, in one sentence.
pub(crate) fn refuse(input: &mut Input, format: Option<FormatId>) -> TraceResult<()> {
    let is_binary = format.is_some_and(FormatId::is_binary);
    let head = input.glimpse(LOOKED_BYTES);
    let found = archive(head).or_else(|| packing(head, is_binary)).or_else(|| wide_text(head, is_binary));
    let Some(found) = found else { return Ok(()) };
    let packed = match input.packing() {
        Packing::Plain => String::new(),
        packing => format!(", packed with {}", packing.name()),
    };
    let message = format!("expected a trace, found {}{packed}: {}", found.what, found.remedy);
    Err(TraceError::new(TraceErrorKind::UnknownFormat, input.name(), Position::Whole, message))
}

/// Passes over the mark that text in UTF-8 may begin with.
pub(crate) fn pass_mark(input: &mut Input) {
    if input.glimpse(UTF8_MARK.len()).starts_with(UTF8_MARK) {
        input.take(UTF8_MARK.len());
    }
}

/// Returns text without the mark that it may begin with.
pub(crate) fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(UTF8_MARK).unwrap_or(head)
}

/// Characters of text in binary records; fewer may be numbers.
const WIDE_UNITS_MIN: usize = 32;
const UTF16: Found = Found { what: "text in UTF-16", remedy: "write it as UTF-8 first (iconv -f UTF-16 -t UTF-8)" };
const UTF32: Found = Found { what: "text in UTF-32", remedy: "write it as UTF-8 first (iconv -f UTF-32 -t UTF-8)" };

/// Returns the kind of text whose characters take two or four bytes, with a mark or without.
fn wide_text(head: &[u8], is_binary: bool) -> Option<Found> {
    let head = head.get(..LOOKED_BYTES).unwrap_or(head);
    let units_min = if is_binary { WIDE_UNITS_MIN } else { 4 };
    match head {
        [0xff, 0xfe, 0, 0, text @ ..] | [0, 0, 0xfe, 0xff, text @ ..] => {
            (!is_binary || is_wide::<4>(text, units_min)).then_some(UTF32)
        }
        [0xff, 0xfe, text @ ..] | [0xfe, 0xff, text @ ..] => {
            (!is_binary || is_wide::<2>(text, units_min)).then_some(UTF16)
        }
        _ if is_wide::<4>(head, units_min) => Some(UTF32),
        _ if is_wide::<2>(head, units_min) => Some(UTF16),
        _ => None,
    }
}

/// Returns whether 9 of 10 units of `N` bytes are a letter and zeroes, with a line's end among
/// them.
fn is_wide<const N: usize>(head: &[u8], units_min: usize) -> bool {
    let (units, _) = head.as_chunks::<N>();
    let low = units.iter().filter_map(|unit| alone(unit.split_first()));
    let high = units.iter().filter_map(|unit| alone(unit.split_last()));
    let ends_lines = |letters: &[u8]| letters.iter().any(|letter| matches!(letter, b'\n' | b'\r'));
    let is_text = |letters: Vec<u8>| ends_lines(&letters) && letters.len() * 10 >= units.len() * 9;
    units.len() >= units_min && (is_text(low.collect()) || is_text(high.collect()))
}

/// Returns the letter of a unit with nothing but zeroes beside it.
fn alone(unit: Option<(&u8, &[u8])>) -> Option<u8> {
    let (letter, rest) = unit?;
    let is_letter = letter.is_ascii_graphic() || letter.is_ascii_whitespace();
    (is_letter && rest.iter().all(|byte| *byte == 0)).then_some(*letter)
}

struct Found {
    what: &'static str,
    remedy: &'static str,
}

fn archive(head: &[u8]) -> Option<Found> {
    let found = |what, remedy| Some(Found { what, remedy });
    match head {
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => {
            found("a zip archive", "unpack it (unzip), and name one of its files")
        }
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => {
            found("a 7z archive", "unpack it (7z x), and name one of its files")
        }
        [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => {
            found("a rar archive", "unpack it (unrar x), and name one of its files")
        }
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', b'\n', ..] => {
            found("an ar archive", "unpack it (ar x), and name one of its files")
        }
        _ if is_cpio(head) => found("a cpio archive", "unpack it (cpio -i), and name one of its files"),
        _ if is_tar(head) => found("a tar archive", "unpack it (tar -xf), and name one of its files"),
        _ => None,
    }
}

/// Returns the kind of a file in a packing that is not unpacked on the way.
///
/// Binary records may begin with the two bytes of compress, and with the first three of gzip.
fn packing(head: &[u8], is_binary: bool) -> Option<Found> {
    let found =
        |what| Some(Found { what, remedy: "unpack it first: zstd, gzip and xz alone are unpacked on the way, once" });
    match head {
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => found("a file packed with bzip2"),
        [0x04, 0x22, 0x4d, 0x18, flags, ..] if flags & 0xc0 == 0x40 => found("a file packed with lz4"),
        [b'L', b'Z', b'I', b'P', 1, ..] => found("a file packed with lzip"),
        [0x1f, 0x9d, ..] if !is_binary => found("a file packed with compress"),
        _ if Packing::of(head) == Packing::Gzip && is_binary && !is_gzip_header(head) => None,
        _ if Packing::of(head) != Packing::Plain => found("a file that is packed twice"),
        _ => None,
    }
}

/// Returns whether the fields of a gzip header have values that gzip writes.
fn is_gzip_header(head: &[u8]) -> bool {
    matches!(head, [0x1f, 0x8b, 8, 0..=0x1f, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..])
}

/// The mark of a cpio archive, in octal digits and as a number of two bytes.
const CPIO_DIGITS: &[u8] = b"070707";
const CPIO_NUMBER: u16 = 0o070_707;
/// The length of a cpio header, in octal digits, in hexadecimal digits, and in numbers.
const CPIO_OCTAL_BYTES: usize = 76;
const CPIO_HEX_BYTES: usize = 110;
const CPIO_BYTES: usize = 26;
/// The places of a file's kind, and of the length of its name, among those numbers.
const CPIO_MODE: usize = 3;
const CPIO_NAME_BYTES: usize = 10;

/// Returns whether a file begins with the header of a file in a cpio archive.
///
/// Numbers may begin as its mark does. So all digits count, or else the name behind the numbers.
fn is_cpio(head: &[u8]) -> bool {
    let all =
        |bytes: usize, is_digit: fn(&u8) -> bool| head.get(6..bytes).is_some_and(|rest| rest.iter().all(is_digit));
    match head {
        [b'0', b'7', b'0', b'7', b'0', b'1' | b'2', ..] => all(CPIO_HEX_BYTES, u8::is_ascii_hexdigit),
        _ if head.starts_with(CPIO_DIGITS) => all(CPIO_OCTAL_BYTES, |byte| matches!(byte, b'0'..=b'7')),
        _ => [u16::from_le_bytes, u16::from_be_bytes].into_iter().any(|number| is_numeric_cpio(head, number)),
    }
}

fn is_numeric_cpio(head: &[u8], number: fn([u8; 2]) -> u16) -> bool {
    let Some((header, name)) = head.split_at_checked(CPIO_BYTES) else { return false };
    let field = |at: usize| header.as_chunks().0.get(at).map(|bytes| number(*bytes)).unwrap_or_default();
    // The kinds: FIFO, character device, folder, block device, file, link, socket.
    let is_kind = matches!(field(CPIO_MODE) >> 12, 1 | 2 | 4 | 6 | 8 | 10 | 12);
    // The name ends with a zero, and has none before.
    let name_bytes = usize::from(field(CPIO_NAME_BYTES));
    let name = name.get(..name_bytes).and_then(<[u8]>::split_last);
    let is_name = name.is_some_and(|(end, name)| *end == 0 && !name.is_empty() && !name.contains(&0));
    field(0) == CPIO_NUMBER && is_kind && is_name
}

/// Returns whether a file begins with the header of a file in a tar archive. The test uses the
/// checksum, since old archives have no other mark.
fn is_tar(head: &[u8]) -> bool {
    let Some(header) = head.first_chunk::<LOOKED_BYTES>().filter(|header| header[0] != 0) else { return false };
    let Some(digits) = header.get(TAR_CHECKSUM) else { return false };
    let is_digit = |byte: &&u8| matches!(byte, b'0'..=b'7');
    let told = digits.trim_ascii_start().iter().take_while(is_digit);
    let told = told.fold(0u64, |number, digit| number * 8 + u64::from(digit - b'0'));
    // The checksum counts as blanks in its own sum.
    let bytes = header.iter().enumerate().map(|(at, byte)| if TAR_CHECKSUM.contains(&at) { b' ' } else { *byte });
    told > 0 && bytes.map(u64::from).sum::<u64>() == told
}
