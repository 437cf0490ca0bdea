//! Bad input of each kind, and its errors.
//!
//! The error has file, line or byte, and expectation. With `skip_bad` the reader counts the input
//! and passes over it.

use crate::common::{first_error, gzip, reader};
use larder_trace::{FormatId, Position, ReaderOptions, TraceErrorKind};

const SKIP: ReaderOptions = ReaderOptions {
    skip_bad: true,
    device_bytes: None,
    block_bytes: None,
    action: None,
    columns: None,
    one_block_size: false,
};
const STRICT: ReaderOptions = ReaderOptions { skip_bad: false, ..SKIP };

/// Returns the error after one sound line.
fn error_after(first: &str, bad: &str, format: FormatId) -> String {
    let (count, error) = first_error(format!("{first}\n{bad}\n").as_bytes(), Some(format), STRICT);
    let error = error.unwrap_or_else(|| panic!("{format} takes {bad:?}"));
    assert_eq!(
        (count, error.position()),
        (if first.starts_with("fio") || first.starts_with("lbn") { 0 } else { 1 }, Position::Line(2)),
        "{error}"
    );
    // With skip_bad the reader reads the rest.
    let text = format!(
        "{first}\n{bad}\n{}\n",
        if first.starts_with("fio") {
            "f sync"
        } else if first.starts_with("lbn") {
            "1,1,R"
        } else {
            first
        }
    );
    let mut reader = reader(text.as_bytes(), Some(format), SKIP).expect("opens");
    assert!(reader.by_ref().all(|record| record.is_ok()));
    assert_eq!(reader.skipped(), 1);
    assert_eq!(reader.first_skipped().expect("one was skipped").to_string(), error.to_string());
    error.to_string()
}

#[test]
fn bad_lines_are_named() {
    let content = "1 1 a 0 8 R 0 0 93d76fe148c689ba 26";
    let fiu = "89966527996712 4253 nfsd 508516680 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3";
    let austere = "4431380480 32768 W d7e03103f071f8c0b630b4339ccfe98b07c38c67 2.0";
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286";
    let blk = "8,0 3 3 0.000002197 697 Q WS 223490 + 8 [kjournald]";
    let cases = [
        (FormatId::Content, content, "x 1 a 0 8 R 0 0 93d76fe148c689ba 26", "time in microseconds in column 1"),
        (FormatId::Content, content, "1 1 a 0 8 Q 0 0 93d76fe148c689ba 26", "R, W, T or F in column 6"),
        (FormatId::Content, content, "1 1 a 0 8 R 7 0 93d76fe148c689ba 26", "in column 7"),
        (FormatId::Content, content, "1 1 a 0 8 R 0 0 93d76fe148c689b 26", "fingerprint"),
        (FormatId::Content, content, "1 1 a 0 8 R 0 0 93d76fe148c689bg 26", "fingerprint"),
        (FormatId::Content, content, "1 1 a 0 8 R 0 0 93d76fe148c689ba", "column 10"),
        (FormatId::Content, content, "1 1 a 0 8 R 0 0 93d76fe148c689ba 0", "from 1 to the block's own, in column 10"),
        (
            FormatId::Austere,
            austere,
            "4431380480 32768 W d7e03103f071f8c0b630b4339ccfe98b07c38c67 0",
            "a compression ratio above 0",
        ),
        (FormatId::Content, content, "1 1 a 0 8 R 0 0 93d76fe148c689ba 26 9", "ten columns and no more"),
        (FormatId::Content, content, "1 1 a 8 0 F 0 0 0 0", "address and length 0 for a flush"),
        (FormatId::Content, content, "1 1 a 0 18446744073709551616 R 0 0 93d76fe148c689ba 26", "column 5"),
        (FormatId::Content, content, "1 1 a 0 4096 R 0 0 93d76fe148c689ba 26", "at most 1 MiB for one fingerprint"),
        (FormatId::Days, "0 0 8775bb2d62bca5dd 270", "0 x 8775bb2d62bca5dd 270", "block in column 2"),
        (FormatId::Fiu, fiu, "1 4253 nfsd x 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3", "column 4"),
        (FormatId::Fiu, fiu, "1 2 W b5e9f4e5ab62a4fff5313a606b0ad4e3", "nine columns"),
        (FormatId::Fiu, fiu, "1 2 n 0 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3b5e9", "MD5 of 32 digits"),
        (
            FormatId::Fiu,
            fiu,
            "1 2 n 0 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3b5e9f4e5ab62a4fff5313a606b0ad4e3",
            "as many MD5s",
        ),
        (FormatId::Fiu, fiu, "1 2 n 0 8 W 6 0 -5e9f4e5ab62a4fff5313a606b0ad4e3", "hexadecimal"),
        (FormatId::Austere, austere, "0 32768 W d7e0 2.0", "SHA-1"),
        (FormatId::Austere, austere, "0 32768 W d7e03103f071f8c0b630b4339ccfe98b07c38c67 two", "compression ratio"),
        (FormatId::Msr, msr, "128166372003061629,usr,0,Erase,7014609920,24576,41286", "Read or Write in column 4"),
        (FormatId::Msr, msr, "128166372003061629,usr,0,Read,7014609920", "column 6"),
        (FormatId::Content, content, "1 1 a 0 0 R 0 0 93d76fe148c689ba 26", "a size above 0, found 0"),
        (FormatId::Blkparse, blk, "8,0 3 3 0.000002197 697 Q WS 223490 8 [kjournald]", "sector + sectors"),
        (FormatId::Blkparse, blk, "8,0 3 3 0.000002197 697 Q R 36 (12 00 [sg_inq]", "sector + sectors"),
        (FormatId::Blkparse, blk, "8,0 3 3 0.000002197 697 Q WS 223490 + [a]", "the length in sectors after"),
        (FormatId::Blkparse, blk, "hello", "line of blkparse"),
        (FormatId::Blkparse, blk, "8,0 3 3 x 697 Q WS 1 + 1 [a]", "seconds in column 4"),
        (FormatId::Fio, "fio version 2 iolog", "f erase 0 1", "add, open, close"),
        (FormatId::Fio, "fio version 3 iolog", "f read 0 1", "time in microseconds"),
        (FormatId::ArcLis, "1 1 0 0", "1 1 0", "column 4"),
        (FormatId::Ssdsim, "1 0 0 8 1", "1 0 0 8 2", "0 (write) or 1 (read)"),
        (FormatId::Csv, "lbn,size,op", "1,1,eat", "SCSI opcode"),
        (FormatId::Csv, "lbn,size,op", "1,1", "as many columns"),
        (FormatId::Csv, "lbn,size,op", "1,1,R,1", "no more columns"),
        (FormatId::Csv, "lbn,size,op", "\"1,1,R", "the number of a block"),
    ];
    for (format, first, bad, expected) in cases {
        if bad == "f read 0 1" {
            // The next sound line differs by version; only the error counts.
            let error = first_error(format!("{first}\n{bad}\n").as_bytes(), Some(format), STRICT).1.unwrap();
            assert!(error.to_string().starts_with("t, line 2: expected ") && error.to_string().contains(expected));
            continue;
        }
        let error = error_after(first, bad, format);
        assert!(error.starts_with("t, line 2: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn sizes_and_addresses_that_cannot_be() {
    let device = ReaderOptions { device_bytes: Some(1 << 20), ..STRICT };
    let cases: [(FormatId, &[u8], ReaderOptions, TraceErrorKind); 8] = [
        (FormatId::ArcLis, b"1 0 0 0\n", STRICT, TraceErrorKind::ZeroSize),
        (FormatId::Fiu, b"1 2 n 0 0 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3\n", STRICT, TraceErrorKind::ZeroSize),
        (FormatId::ArcLis, b"0 1000000000 0 0\n", STRICT, TraceErrorKind::TooLong),
        (FormatId::ArcLis, b"18446744073709551615 1 0 0\n", STRICT, TraceErrorKind::PastEnd),
        (FormatId::ArcLis, b"281474976710656 1 0 0\n", STRICT, TraceErrorKind::PastEnd),
        (FormatId::ArcLis, b"256 1 0 0\n", device, TraceErrorKind::PastEnd),
        (FormatId::Ssdsim, b"1 0 2047 2 1\n", device, TraceErrorKind::PastEnd),
        (FormatId::Content, b"1 1 a 0 4096 T 0 0 0 0\n", device, TraceErrorKind::PastEnd),
    ];
    for (format, bytes, options, kind) in cases {
        let (_, error) = first_error(bytes, Some(format), options);
        let error = error.unwrap_or_else(|| panic!("{}", bytes.escape_ascii()));
        assert_eq!((error.kind(), error.position()), (kind, Position::Line(1)), "{error}");
    }
    assert_eq!(first_error(b"255 1 0 0\n", Some(FormatId::ArcLis), device).0, 1);
    let zero_size = [&7u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 4], &(-1i64).to_le_bytes()].concat();
    let sound = [&7u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0, 2, 0, 0], &(-1i64).to_le_bytes()].concat();
    let (count, error) = first_error(&[&sound[..], &zero_size].concat(), Some(FormatId::OracleGeneral), STRICT);
    let error = error.unwrap();
    assert_eq!((count, error.kind(), error.position()), (1, TraceErrorKind::ZeroSize, Position::Byte(24)));
    let hashed = [&7u32.to_le_bytes()[..], &u64::MAX.to_le_bytes(), &[0, 2, 0, 0], &(-1i64).to_le_bytes()].concat();
    let error = first_error(&hashed, Some(FormatId::OracleGeneral), STRICT).1.unwrap();
    assert_eq!(error.kind(), TraceErrorKind::PastEnd);
}

#[test]
fn truncated_files() {
    let text = b"1 1 0 0\n2 1 0 0\n3 1 0".to_vec();
    let (count, error) = first_error(&text, Some(FormatId::ArcLis), STRICT);
    let error = error.unwrap();
    assert_eq!((count, error.kind(), error.position()), (2, TraceErrorKind::Truncated, Position::Line(3)));
    let (count, error) = first_error(&text, Some(FormatId::ArcLis), SKIP);
    assert!(count == 2 && error.is_none());
    // A last line that lacks its end but is whole is taken.
    assert_eq!(first_error(b"1 1 0 0\n2 1 0 0", Some(FormatId::ArcLis), STRICT).0, 2);
    let (count, error) = first_error(&[1, 0, 0, 0, 2, 0], Some(FormatId::BlockIds), STRICT);
    let error = error.unwrap();
    assert_eq!((count, error.kind(), error.position()), (1, TraceErrorKind::Truncated, Position::Byte(4)));
    assert!(error.to_string().contains("expected 4 bytes, found 2"), "{error}");
}

#[test]
fn truncated_and_damaged_streams() {
    let mut text = Vec::new();
    for n in 0..60_000u64 {
        text.extend(format!("{} {} 0 {n}\n", n.wrapping_mul(0x9e37_79b9) % 100_000, 1 + n % 7).into_bytes());
    }
    let zstd = zstd::encode_all(&text[..], 3).unwrap();
    let gzip = gzip(&text);
    for (name, whole) in [("zstd", zstd), ("gzip", gzip)] {
        assert_eq!(first_error(&whole, Some(FormatId::ArcLis), STRICT).0, 60_000);
        let (count, error) = first_error(&whole[..whole.len() / 2], Some(FormatId::ArcLis), STRICT);
        let error = error.unwrap_or_else(|| panic!("half of {name} is read to its end"));
        assert_eq!(error.kind(), TraceErrorKind::Truncated, "{error}");
        assert!(error.to_string().contains(name) && count < 60_000, "{error}");
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        for byte in &mut damaged[middle..middle + 64] {
            *byte = !*byte;
        }
        let kind = |options| first_error(&damaged, Some(FormatId::ArcLis), options).1.map(|error| error.kind());
        assert!(kind(STRICT).is_some(), "{name} is damaged");
        // The reader passes over damage that looks like the end of the file, and over no other.
        assert!(matches!(kind(SKIP), Some(TraceErrorKind::Corrupt) | None), "{name}: {:?}", kind(SKIP));
    }
    let xz = include_bytes!("../fixtures/two.lis.xz");
    let error = first_error(&xz[..xz.len() - 30], Some(FormatId::ArcLis), STRICT).1.unwrap();
    assert_eq!(error.kind(), TraceErrorKind::Truncated, "{error}");
}

#[test]
fn long_lines_cost_no_memory() {
    let mut text = vec![b'9'; 3 << 20];
    text.extend(b"\n5 1 0 0\n");
    let (count, error) = first_error(&text, Some(FormatId::ArcLis), STRICT);
    let error = error.unwrap();
    assert_eq!((count, error.kind(), error.position()), (0, TraceErrorKind::BadRecord, Position::Line(1)));
    assert!(error.to_string().len() < 200, "{error}");
    assert_eq!(first_error(&text, Some(FormatId::ArcLis), SKIP).0, 1);
}

#[test]
fn unknown_formats_say_why() {
    let (_, error) = first_error(b"", None, STRICT);
    assert_eq!(error.unwrap().to_string(), "t: cannot tell the format of an empty file");
    let cases: [(&[u8], &str); 4] = [
        (b"hello world\nand more\n", "the first line has 2 columns; known text formats are"),
        (b"a b c d e f g h i j\n", "10 columns; content wants the time in microseconds in column 1 in line 1"),
        (b"1 2 3 four\n", "days wants a fingerprint"),
        (&[0xff; 64], "binary"),
    ];
    for (bytes, expected) in cases {
        let error = first_error(bytes, None, STRICT).1.unwrap();
        assert_eq!(error.kind(), TraceErrorKind::UnknownFormat);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = first_error(b"fio version 9 iolog\nf add\n", None, STRICT).1.unwrap().to_string();
    for words in ["fio iolog", "\"fio version 2 iolog\" or \"fio version 3 iolog\"", "found \"fio version 9 iolog\""] {
        assert!(error.contains(words), "{error}");
    }
    // A few bad lines do not hide the format.
    let line = "1 1 a 0 8 R 0 0 93d76fe148c689ba 26\n";
    let mostly = format!("{line}x\n{line}{line}");
    assert_eq!(reader(mostly.as_bytes(), None, SKIP).unwrap().format(), FormatId::Content);
}

/// The readable part of a packed file that was cut gives records.
#[test]
fn a_packed_trace_that_was_cut_is_read_up_to_there_where_bad_input_may_be_skipped() {
    let line = "1 1 a 0 8 R 0 0 93d76fe148c689ba 26\n";
    let lines: String = (0..20_000).map(|time| line.replacen('1', &time.to_string(), 1)).collect();
    let records: Vec<u8> = (0..20_000_u32).flat_map(|id| (id.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    for (bytes, format) in [(gzip(lines.as_bytes()), FormatId::Content), (gzip(&records), FormatId::BlockIds)] {
        let cut = &bytes[..bytes.len() / 2];
        let mut strict = reader(cut, Some(format), STRICT).expect("opens");
        let error = strict.by_ref().find_map(|record| record.err()).expect("it is cut");
        assert_eq!(error.kind(), TraceErrorKind::Truncated, "{error}");
        let mut reader = reader(cut, Some(format), SKIP).expect("opens");
        let found = reader.by_ref().inspect(|record| assert!(record.is_ok())).count();
        assert!(found > 1000 && found < 20_000, "{found} records of {format}");
        assert_eq!(reader.skipped(), 1);
        assert_eq!(reader.first_skipped().expect("the cut").to_string(), error.to_string());
    }
}

/// A cut file is still a trace, even if it is shorter than the bytes that detection reads.
#[test]
fn the_format_of_a_short_packed_trace_that_was_cut_is_found_out() {
    let line = "1 1 a 0 8 R 0 0 93d76fe148c689ba 26\n";
    let lines: String = (0..60).map(|time: u64| line.replacen("1 1", &format!("{time} {}", time * 7919), 1)).collect();
    let zstd = zstd::encode_all(lines.as_bytes(), 3).unwrap();
    for (name, whole) in [("gzip", gzip(lines.as_bytes())), ("zstd", zstd)] {
        let cut = &whole[..whole.len() - 9];
        let (count, error) = first_error(cut, None, STRICT);
        let error = error.unwrap_or_else(|| panic!("{name} is cut"));
        assert_eq!(error.kind(), TraceErrorKind::Truncated, "{error}");
        assert_eq!(
            (count, error.position()),
            match name {
                "gzip" => (60, Position::Line(61)),
                // A zstd block is unpacked as a whole.
                _ => (0, Position::Byte(0)),
            },
            "{error}"
        );
        if count > 0 {
            let mut reader = reader(cut, None, SKIP).expect("opens");
            assert_eq!((reader.format(), reader.by_ref().count(), reader.skipped()), (FormatId::Content, 60, 1));
            assert_eq!(reader.first_skipped().expect("the cut").to_string(), error.to_string());
        }
    }
}

#[test]
fn other_bytes_behind_a_packed_trace_are_called_so() {
    let text = b"1 1 0 0\n2 1 0 0\n";
    let zstd = zstd::encode_all(&text[..], 3).unwrap();
    let xz = include_bytes!("../fixtures/two.lis.xz").to_vec();
    for (name, whole) in [("gzip", gzip(text)), ("zstd", zstd), ("xz", xz)] {
        let lis = Some(FormatId::ArcLis);
        let records = first_error(&whole, lis, STRICT).0;
        let twice = [whole.clone(), whole.clone()].concat();
        let (count, error) = first_error(&twice, lis, STRICT);
        assert!(count == 2 * records && error.is_none(), "{name}: {count}, {error:?}");
        for tail in [&b"x"[..], b"other", &[0; 21], &[b'y'; 70_000], &[0, 0, 0, 0, b'z']] {
            let bytes = [&twice[..], tail].concat();
            let (count, error) = first_error(&bytes, lis, STRICT);
            let error = error.unwrap_or_else(|| panic!("{name}"));
            assert_eq!((count, error.kind()), (2 * records, TraceErrorKind::Behind), "{error}");
            let message = format!("t: expected the end of the file behind the {name} stream, found other bytes");
            assert_eq!(error.to_string(), message);
            let mut reader = reader(&bytes, lis, SKIP).expect("opens");
            assert_eq!((reader.by_ref().count(), reader.skipped()), (2 * records, 1), "{name}");
        }
        // The beginning of another stream is a stream that was cut.
        let error = first_error(&[&whole[..], &whole[..8]].concat(), lis, STRICT).1.unwrap();
        assert_eq!(error.kind(), TraceErrorKind::Truncated, "{name}: {error}");
        // xz allows zeroes behind a stream, four at a time.
        if name == "xz" {
            for zeroes in [4, 8, 400_000] {
                let (count, error) = first_error(&[&whole[..], &vec![0; zeroes], &twice].concat(), lis, STRICT);
                assert!(count == 3 * records && error.is_none(), "{zeroes}: {count}, {error:?}");
            }
        }
    }
}

#[test]
fn no_block_takes_more_than_its_own_size_when_it_is_compressed() {
    let lines = "1 1 - 0 8 W 0 0 00000000000000aa 4096\n2 2 - 8 8 W 0 0 00000000000000bb 4097\n\
                 3 3 - 16 8 R 0 0 00000000000000cc 1\n";
    let (count, error) = first_error(lines.as_bytes(), None, STRICT);
    let error = error.expect("4097 bytes are more than a block");
    assert_eq!((count, error.kind(), error.position()), (1, TraceErrorKind::BadRecord, Position::Line(2)));
    assert!(error.to_string().contains("from 1 to the block's own, in column 10"), "{error}");
    let mut skipping = reader(lines.as_bytes(), None, SKIP).expect("opens");
    assert_eq!((skipping.by_ref().count(), skipping.skipped()), (2, 1));
    // Each format names its own column.
    for size in ["4097", "0", "x"] {
        let lines = format!("0 0 00000000000000aa 4096\n0 1 00000000000000bb {size}\n");
        let error = first_error(lines.as_bytes(), Some(FormatId::Days), STRICT).1.expect("no such size");
        assert_eq!(error.position(), Position::Line(2));
        assert!(error.to_string().contains("from 1 to the block's own, in column 4"), "{error}");
    }
}

/// Replay and re-chunking need blocks of one size; the reader names the first line with another.
#[test]
fn a_block_of_another_size_is_named_by_its_line() {
    let block = |n: u64, sectors: u64| format!("{n} {n} a {} {sectors} W 0 0 00000000000000aa 9\n", n * 16);
    // A flush and a block of unknown content have no size to go by.
    let head = "0 0 a 0 16 R 0 0 - -\n1 1 a 0 0 F 0 0 0 0\n";
    let text = format!("{head}{}{}{}{}", block(2, 8), block(3, 8), block(4, 16), block(5, 8));
    let said = "t, line 5: expected content in blocks of 4096 bytes, as in line 3, found a block of 8192 bytes";
    let strict = ReaderOptions { one_block_size: true, ..STRICT };
    let (count, error) = first_error(text.as_bytes(), None, strict);
    let error = error.expect("a block of another size");
    assert_eq!((count, error.kind(), error.to_string().as_str()), (4, TraceErrorKind::Content, said));
    let mut skipping = reader(text.as_bytes(), None, ReaderOptions { skip_bad: true, ..strict }).expect("opens");
    assert_eq!((skipping.by_ref().count(), skipping.skipped()), (5, 1));
    let mut looking = reader(text.as_bytes(), None, STRICT).expect("opens");
    assert_eq!(looking.by_ref().filter(|record| record.is_ok()).count(), 6);
    assert_eq!(looking.other_block_size().expect("one is there").to_string(), said);
    // A block within another is bad, too.
    let text = format!("{}1 1 a 20 8 W 0 0 00000000000000aa 9\n", block(1, 8));
    let error = first_error(text.as_bytes(), None, strict).1.expect("a block out of place");
    let said = "t, line 2: expected a block of 4096 bytes of content at a multiple of that, found one at byte 10240";
    assert_eq!(error.to_string(), said);
    // Lines without content may have any length.
    let plain = reader(b"1 1 0 0\n2 8 0 0\n", Some(FormatId::ArcLis), strict).expect("opens");
    assert_eq!(plain.filter(|record| record.is_ok()).count(), 2);
}

#[test]
fn an_msr_trace_may_begin_with_one_header() {
    let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    let line = "128166372003061629,usr,0,Read,7014609920,24576,41286\n";
    for format in [None, Some(FormatId::Msr)] {
        let text = format!("\n{header}{line}{line}");
        let mut reader = reader(text.as_bytes(), format, STRICT).expect("opens");
        assert_eq!((reader.format(), reader.by_ref().filter(|record| record.is_ok()).count()), (FormatId::Msr, 2));
    }
    for (text, at) in [(format!("{header}{header}{line}{line}"), 2), (format!("{line}{header}{line}"), 2)] {
        let error = first_error(text.as_bytes(), Some(FormatId::Msr), STRICT).1.expect("a header too many");
        assert_eq!(error.position(), Position::Line(at), "{error}");
    }
    let odd = "Timestamp,Hostname,DiskNumber\n";
    assert!(first_error(format!("{odd}{line}").as_bytes(), Some(FormatId::Msr), STRICT).1.is_some());
}
