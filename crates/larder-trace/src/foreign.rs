//! Refuses files that are no trace, each by its kind.
//!
//! The kinds are archives, files in a packing that Larder cannot unpack, and text in UTF-16. The
//! search covers the unpacked content, too: a packed tar archive is an archive. A number in binary
//! records may look like a mark of two or three bytes. So only longer marks count if the caller
//! names a binary format.
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
    let Some(found) = archive(head).or_else(|| if is_binary { None } else { short_mark(head) }) else { return Ok(()) };
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

/// Returns whether text is in UTF-16, with a mark or without: every other byte is a zero.
pub(crate) fn is_utf16(head: &[u8]) -> bool {
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return true;
    }
    let (pairs, _) = head.as_chunks::<2>();
    let is_letter = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let low = pairs.iter().filter(|[low, high]| is_letter(low) && *high == 0).count();
    let high = pairs.iter().filter(|[high, low]| is_letter(low) && *high == 0).count();
    pairs.len() >= 4 && low.max(high) * 10 >= pairs.len() * 9
}

/// The name of UTF-16, and its remedy.
pub(crate) const UTF16: (&str, &str) = ("text in UTF-16", "write it as UTF-8 first (iconv -f UTF-16 -t UTF-8)");

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
        _ if is_tar(head) => found("a tar archive", "unpack it (tar -xf), and name one of its files"),
        _ => None,
    }
}

/// Returns the kind of a file by a short mark. The file is expected to be text.
fn short_mark(head: &[u8]) -> Option<Found> {
    let found =
        |what| Some(Found { what, remedy: "unpack it first: zstd, gzip and xz alone are unpacked on the way, once" });
    match head {
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => found("a file packed with bzip2"),
        [0x04, 0x22, 0x4d, 0x18, ..] => found("a file packed with lz4"),
        [b'L', b'Z', b'I', b'P', 1, ..] => found("a file packed with lzip"),
        [0x1f, 0x9d, ..] => found("a file packed with compress"),
        _ if Packing::of(head) != Packing::Plain => found("a file that is packed twice"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(Found { what: UTF16.0, remedy: UTF16.1 }),
        _ => None,
    }
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
