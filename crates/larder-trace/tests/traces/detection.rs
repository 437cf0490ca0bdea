//! Detection of formats.
//!
//! Bad lines do not hide a format, several fitting formats are named, and each complaint has place
//! and expectation. The evidence itself is tested in `src/detect/binary.rs`.

use crate::common::{first_error, reader};
use larder_trace::{FormatId, Position, ReaderOptions, TraceErrorKind};

const STRICT: ReaderOptions = ReaderOptions {
    skip_bad: false,
    device_bytes: None,
    block_bytes: None,
    action: None,
    columns: None,
    one_block_size: false,
};
const SKIP: ReaderOptions = ReaderOptions { skip_bad: true, ..STRICT };

fn entry(seconds: u32, object: u64, size_bytes: u32, next: i64) -> Vec<u8> {
    [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &size_bytes.to_le_bytes(), &next.to_le_bytes()].concat()
}

/// Returns the error of a file, and the numbers of records before it and without bad ones.
/// Detection finds the format, unless `named` gives it.
fn found_out(bytes: &[u8], format: FormatId, named: Option<FormatId>) -> (String, Position, usize, usize) {
    let (before, error) = first_error(bytes, named, STRICT);
    let error = error.unwrap_or_else(|| panic!("{format}: no error in {}", bytes.escape_ascii()));
    let mut lenient = reader(bytes, named, SKIP).unwrap_or_else(|error| panic!("{format}: {error}"));
    assert_eq!(lenient.format(), format);
    let all = lenient.by_ref().filter(|record| record.is_ok()).count();
    assert_eq!(lenient.first_skipped().map(ToString::to_string), Some(error.to_string()));
    (error.to_string(), error.position(), before, all)
}

#[test]
fn a_size_of_zero_is_called_so_wherever_it_stands() {
    let sound = "1 1 a 0 8 R 0 0 93d76fe148c689ba 26\n";
    let zero = "2 2 a 0 0 R 0 0 93d76fe148c689ba 26\n";
    for (text, line, sound) in [
        (zero.to_owned(), 1, 0),
        (format!("{zero}{sound}"), 1, 1),
        (format!("{}{zero}{sound}", sound.repeat(30)), 31, 31),
    ] {
        let (said, position, before, all) = found_out(text.as_bytes(), FormatId::Content, None);
        assert_eq!(said, format!("t, line {line}: expected a size above 0, found 0"));
        assert_eq!((position, before as u64, all), (Position::Line(line), line - 1, sound));
    }
}

#[test]
fn bad_records_of_oracle_general_are_named_by_their_place() {
    let sound = [entry(7, 1, 512, -1), entry(9, 2, 1024, 4), entry(9, 2, 1024, -1)].concat();
    let zero = entry(9, 2, 0, -1);
    for (bytes, at, all) in [
        (zero.clone(), 0, 0),
        ([zero.clone(), sound.clone()].concat(), 0, 3),
        ([sound.clone(), zero.clone()].concat(), 72, 3),
        ([sound.repeat(500), zero, sound].concat(), 36_000, 1503),
    ] {
        let (said, position, before, records) =
            found_out(&bytes, FormatId::OracleGeneral, Some(FormatId::OracleGeneral));
        assert_eq!(said, format!("t, byte {at}: expected a size above 0, found 0"));
        assert_eq!((position, before as u64, records), (Position::Byte(at), at / 24, all));
    }
}

#[test]
fn times_of_oracle_general_may_step_back_anywhere() {
    let bytes = [entry(9, 1, 512, -1), entry(7, 2, 512, -1), entry(8, 3, 512, -1)].concat();
    let mut reader = reader(&bytes, Some(FormatId::OracleGeneral), STRICT).expect("opens");
    assert_eq!(reader.by_ref().filter(|record| record.is_ok()).count(), 3);
    assert_eq!((reader.back_steps().count, reader.back_steps().worst_us), (2, 2_000_000));
}

#[test]
fn a_header_of_csv_says_that_the_file_is_csv() {
    for (line, expected) in [
        ("1e3,R,512,8", "a time in seconds"),
        ("-1,R,512,8", "a time in seconds"),
        ("1,eat,512,8", "an operation or a SCSI opcode"),
        ("1,R,half,8", "a size in bytes"),
        ("1,R,512,-8", "the number of a block"),
        ("\"R\"", "a time in seconds"),
        ("1", "as many columns as the header names"),
    ] {
        let (said, position, before, all) =
            found_out(format!("time,op,size,lbn\n{line}\n1,R,512,8\n").as_bytes(), FormatId::Csv, None);
        assert!(said.starts_with(&format!("t, line 2: expected {expected}")), "{said}");
        assert_eq!((position, before, all), (Position::Line(2), 0, 1));
    }
}

#[test]
fn a_line_of_other_bytes_does_not_make_a_trace_binary() {
    let line = |n: u32| format!("{n} {n} a 0 8 R 0 0 93d76fe148c689ba 26\n").into_bytes();
    // A crash leaves zeroes; the others are noise.
    for junk in [vec![0; 4096], vec![0xff; 300], b"\x01\x02 \x7f".to_vec()] {
        for before in [0, 1, 20] {
            let lines: Vec<u8> = (0..before).flat_map(line).collect();
            let rest: Vec<u8> = (before..40).flat_map(line).collect();
            let bytes = [&lines[..], &junk, b"\n", &rest].concat();
            let (said, position, good, all) = found_out(&bytes, FormatId::Content, None);
            assert_eq!((position, good, all), (Position::Line(u64::from(before) + 1), before as usize, 40));
            assert!(said.contains("expected the time in microseconds in column 1, found \"\\x"), "{said}");
        }
    }
}

#[test]
fn the_largest_address_is_named() {
    let lis = first_error(b"1 1 0 0\n18446744073709551615 1 0 0\n", Some(FormatId::ArcLis), STRICT).1.unwrap();
    assert_eq!(
        lis.to_string(),
        "t, line 2: expected a request that ends at byte 1152921504606846976 at most (1 EiB, Larder's largest address), found one that reaches past it"
    );
    let ssd = first_error(b"1 0 0 8 1\n1 0 8796093022208 8 1\n", Some(FormatId::Ssdsim), STRICT).1.unwrap();
    assert!(ssd.to_string().contains("byte 4503599627370496 of its device or file at most (4 PiB"), "{ssd}");
    assert_eq!((lis.kind(), ssd.kind()), (TraceErrorKind::PastEnd, TraceErrorKind::PastEnd));
}

#[test]
fn what_says_nothing_of_its_format_is_told_with_all_that_fit_and_can_be_named() {
    let ids: Vec<u8> = (0..2000u32).flat_map(|i| [i, i + 1, 0, 512, i + 5, 0]).flat_map(u32::to_le_bytes).collect();
    let error = first_error(&ids, None, STRICT).1.expect("both fit");
    assert_eq!(error.kind(), TraceErrorKind::UnknownFormat);
    let said = error.to_string();
    assert!(
        said.starts_with("t: cannot tell the format: ")
            && said.ends_with("--format oracle-general or --format block-ids"),
        "{said}"
    );
    for (format, records) in [(FormatId::OracleGeneral, 2000), (FormatId::BlockIds, 12_000)] {
        let reader = reader(&ids, Some(format), STRICT).expect("opens");
        assert_eq!(reader.filter(|record| record.is_ok()).count(), records);
    }
    for list in [vec![1, 2, 3, 1, 2, 3], (1..13).collect::<Vec<u32>>()] {
        let bytes: Vec<u8> = list.iter().flat_map(|id| id.to_le_bytes()).collect();
        let said = first_error(&bytes, None, STRICT).1.expect("it may be anything").to_string();
        assert!(said.contains("cannot tell the format") && said.ends_with("name it with --format block-ids"), "{said}");
        let reader = reader(&bytes, Some(FormatId::BlockIds), STRICT).expect("opens");
        assert_eq!(reader.count(), list.len());
    }
}

#[test]
fn what_has_commas_is_told_what_a_header_of_csv_is() {
    let error = first_error(b"1,R,512,8\n2,W,512,9\n", None, STRICT).1.expect("no header");
    let said = error.to_string();
    assert!(said.contains("4 columns; csv wants a header that names its columns, lbn among them"), "{said}");
    assert!(!said.contains("arc-lis"), "{said}");
    let error = first_error(b"8,0 1 1 0.5 697 Q W 8 * 8 [a]\n", None, STRICT).1.expect("no request");
    let said = error.to_string();
    assert!(said.contains("blkparse wants \"sector + sectors\"") && !said.contains("csv"), "{said}");
}
