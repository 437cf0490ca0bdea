//! Files that are no trace, each named by its kind, under each format.
//!
//! They are archives, text in UTF-16, and files in other packings.

use crate::common::{first_error, gzip, reader, records};
use larder_trace::{FormatId, ReaderOptions, TraceErrorKind};

/// Makes a tar archive of one empty file, with `ustar` or in the old layout.
fn tar(magic: &[u8]) -> Vec<u8> {
    let mut header = vec![0u8; 512];
    header[..9].copy_from_slice(b"trace.csv");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(b"00000000000");
    header[257..257 + magic.len()].copy_from_slice(magic);
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.resize(10_240, 0);
    header
}

/// Makes the head of a cpio archive of one file, in the layout that `magic` names, in ASCII.
fn cpio(magic: &str) -> Vec<u8> {
    let name = "trace.csv";
    let numbers = if magic == "070707" {
        // Device, inode, mode, owner, group, links, special device: 6 digits; time; name; size.
        let name_bytes = name.len() + 1;
        format!(
            "{:06o}{:06o}{:06o}{:06o}{:06o}{:06o}{:06o}{:011o}{name_bytes:06o}{:011o}",
            7, 9, 0o100_644, 0, 0, 1, 0, 1, 5
        )
    } else {
        let fields = [9, 0o100_644, 0, 0, 1, 1, 5, 0, 7, 0, 0, name.len() as u32 + 1, 0];
        fields.map(|field: u32| format!("{field:08x}")).concat()
    };
    [magic, &numbers, name, "\0\0\0", "1,2,3"].concat().into_bytes()
}

/// Makes the head of a cpio archive in its binary layout.
fn binary_cpio(bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
    let fields = [0o070_707, 7, 9, 0o100_644, 0, 0, 1, 0, 0, 1, 10, 0, 5].map(bytes_of);
    [fields.as_flattened(), b"trace.csv\x001,2,3"].concat()
}

/// Returns the complaint about a file: the same under each of these formats, or without a format.
fn told(bytes: &[u8], formats: impl IntoIterator<Item = Option<FormatId>>) -> String {
    let mut said: Option<String> = None;
    for format in formats {
        let skip = ReaderOptions { skip_bad: true, ..ReaderOptions::default() };
        for options in [ReaderOptions::default(), skip] {
            let (count, error) = first_error(bytes, format, options);
            let error = error.unwrap_or_else(|| panic!("{format:?} reads {}", bytes[..8].escape_ascii()));
            assert_eq!((count, error.kind()), (0, TraceErrorKind::UnknownFormat), "{error}");
            assert_eq!(said.get_or_insert(error.to_string()), &error.to_string());
        }
    }
    said.expect("a format")
}

fn any() -> impl Iterator<Item = Option<FormatId>> {
    FormatId::ALL.into_iter().map(Some).chain([None])
}

/// Returns formats of text, and none.
fn text() -> impl Iterator<Item = Option<FormatId>> {
    any().filter(|format| format.is_none_or(|format| !format.is_binary()))
}

#[test]
fn archives_are_named_as_such() {
    for (bytes, what) in [
        (tar(b"ustar\x0000"), "a tar archive"),
        (tar(b""), "a tar archive"),
        (b"PK\x03\x04\x14\0\0\0\x08\0".to_vec(), "a zip archive"),
        (b"PK\x05\x06\0\0\0\0\0\0".to_vec(), "a zip archive"),
        (b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "a 7z archive"),
        (b"Rar!\x1a\x07\x01\0".to_vec(), "a rar archive"),
        (b"!<arch>\ndebian-binary".to_vec(), "an ar archive"),
        (cpio("070701"), "a cpio archive"),
        (cpio("070702"), "a cpio archive"),
        (cpio("070707"), "a cpio archive"),
        (binary_cpio(u16::to_le_bytes), "a cpio archive"),
        (binary_cpio(u16::to_be_bytes), "a cpio archive"),
    ] {
        let said = told(&bytes, any());
        assert!(said.starts_with(&format!("t: expected a trace, found {what}: unpack it")), "{said}");
        let said = told(&gzip(&bytes), any());
        assert!(said.starts_with(&format!("t: expected a trace, found {what}, packed with gzip: unpack it")), "{said}");
        let said = told(&zstd::encode_all(&bytes[..], 3).expect("packs"), any());
        assert!(said.contains(&format!("{what}, packed with zstd")), "{said}");
    }
    // A damaged header marks no archive.
    let mut tar = tar(b"");
    tar[0] += 1;
    assert!(reader(&tar, Some(FormatId::BlockIds), ReaderOptions::default()).is_ok());
    // Numbers may begin as a cpio archive does.
    for line in [&b"070701 8 0 1\n"[..], b"070702 8 0 1\n", b"070707 8 0 1\n"] {
        assert_eq!(records(line, FormatId::ArcLis).len(), 1);
    }
    for ids in [[0x0000_71c7u32; 8], [0x1234_71c7; 8], [0x0000_c771; 8]] {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(records(&bytes, FormatId::BlockIds).len(), ids.len());
    }
}

#[test]
fn text_in_utf16_and_utf32_is_named_as_such() {
    let text = "time,op,size,lbn\n1,R,512,8\n2,W,512,16\n3,R,512,24\n";
    let of = |text: &str, unit_bytes: usize, low_first: bool| -> Vec<u8> {
        let bytes = |letter: char| match (unit_bytes, low_first) {
            (2, true) => (letter as u16).to_le_bytes().to_vec(),
            (2, false) => (letter as u16).to_be_bytes().to_vec(),
            (_, true) => (letter as u32).to_le_bytes().to_vec(),
            (_, false) => (letter as u32).to_be_bytes().to_vec(),
        };
        text.chars().flat_map(bytes).collect()
    };
    for (unit_bytes, name) in [(2, "UTF-16"), (4, "UTF-32")] {
        for low_first in [true, false] {
            let bare = of(text, unit_bytes, low_first);
            let marked = [of("\u{feff}", unit_bytes, low_first), bare.clone()].concat();
            let long = of(&text.repeat(100), unit_bytes, low_first);
            // Old programs end lines with a CR alone.
            let returns = of(&text.replace('\n', "\r"), unit_bytes, low_first);
            for bytes in [&bare, &marked, &long, &returns] {
                let said = told(bytes, any());
                let remedy = format!("found text in {name}: write it as UTF-8 first (iconv -f {name} -t UTF-8)");
                assert!(said.contains(&remedy), "{said}");
                assert!(told(&gzip(bytes), any()).contains(&format!("text in {name}, packed with gzip")));
            }
        }
    }
    // Numbers may begin as a mark does, and a few may look like letters.
    for ids in [&[0x0000_feffu32, 7][..], &[0x0000_feff, 65, 10, 66], &[10, 40, 50, 60, 70, 80, 90, 100]] {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(records(&bytes, FormatId::BlockIds).len(), ids.len());
    }
    // So may numbers in a row, and the same few numbers, again and again.
    for ids in [(0..300).collect::<Vec<u32>>(), (0..300).map(|at| 33 + at % 90).collect()] {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(records(&bytes, FormatId::BlockIds).len(), ids.len());
    }
}

#[test]
fn text_may_begin_with_the_mark_of_utf8() {
    let bare = "time,op,size,lbn\n1,R,512,8\n";
    let marked = format!("\u{feff}{bare}");
    let read = reader(marked.as_bytes(), None, ReaderOptions::default()).expect("it says what it is");
    assert_eq!(read.format(), FormatId::Csv);
    assert_eq!(records(marked.as_bytes(), FormatId::Csv), records(bare.as_bytes(), FormatId::Csv));
}

#[test]
fn what_is_packed_otherwise_is_named_as_such() {
    let twice = gzip(&gzip(b"1 1 0 0\n"));
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("packs");
    for (bytes, what) in [
        (&b"BZh91AY&SY\0\0"[..], "a file packed with bzip2"),
        (b"\x04\x22\x4d\x18\x64\x40\xa7\0", "a file packed with lz4"),
        (b"LZIP\x01\x0c\0\0", "a file packed with lzip"),
        (&twice, "a file that is packed twice, packed with gzip"),
        (&zstd(&zstd(b"1 1 0 0\n")), "a file that is packed twice, packed with zstd"),
        (&gzip(b"\xfd7zXZ\0\0\x04"), "a file that is packed twice, packed with gzip"),
    ] {
        let said = told(bytes, any());
        assert!(said.contains(&format!("expected a trace, found {what}: unpack it first")), "{said}");
    }
    // Two bytes mark compress: numbers may begin so. They may begin as gzip does, but not go on.
    let said = told(b"\x1f\x9d\x90\x31\x20\0\0\0", text());
    assert!(said.contains("expected a trace, found a file packed with compress: unpack it first"), "{said}");
    let ids: Vec<u8> = [0x0008_8b1fu32, 7, 0x1234, 0x9d1f].iter().flat_map(|id| id.to_le_bytes()).collect();
    assert_eq!(records(&ids[12..], FormatId::BlockIds).len(), 1);
    let packed = zstd(&ids);
    assert_eq!(records(&packed, FormatId::BlockIds).len(), 4);
}
