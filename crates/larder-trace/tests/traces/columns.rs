//! Rows whose columns the caller names: units, headers, comments, separators, and unclear rows.

use crate::common::{first_error, reader};
use larder_trace::{FormatId, Op, ReaderOptions, Record};

fn options(columns: &str) -> ReaderOptions {
    let columns = columns.parse().unwrap_or_else(|error| panic!("{columns}: {error}"));
    ReaderOptions { columns: Some(columns), ..ReaderOptions::default() }
}

fn rows(columns: &str, text: &str) -> Vec<Record> {
    let reader = reader(text.as_bytes(), Some(FormatId::Columns), options(columns)).expect("opens");
    reader.map(|record| record.unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn row(time_us: Option<u64>, request: u64, op: Op, offset_bytes: u64, len_bytes: u64) -> Record {
    Record { time_us, ..Record::new(request, op, offset_bytes, len_bytes) }
}

const FIVE: &str = "time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5";

#[test]
fn a_header_and_comments_may_be_there_or_not() {
    let expected = [
        row(Some(5), 1, Op::Write, 4096, 8192),
        row(Some(6), 2, Op::Read, (1 << 44) + 512, 512),
        row(Some(7), 3, Op::Flush, 0, 0),
        row(Some(8), 4, Op::Trim, 0, 4096),
    ];
    let text = "5,W,4096,8192,sda\n6,read,512,512,sdb\n7,flush,0,0,sda\n8,discard,0,4096,sda\n";
    for head in [
        "",
        "when,what,where,how much,who\n",
        "# a comment\n\n  # and another\n",
        "\u{feff}time,op,offset,len,dev\r\n#x\n",
    ] {
        for text in
            [text.to_owned(), text.replace(',', " , "), text.replace('\n', ",more\n"), text.replace('\n', "\r\n")]
        {
            assert_eq!(rows(FIVE, &format!("{head}{text}")), expected, "{head:?} {text:?}");
        }
    }
    let between = text.replace("6,read", "# not now\n6,read");
    assert_eq!(rows(FIVE, &between), expected);
}

#[test]
fn columns_stand_apart_by_what_the_first_row_has_most_of() {
    for separator in [",", ";", "\t", "|", " ", "   "] {
        let text = format!("1{separator}2.5\n3{separator}4\n");
        let read = rows("offset=1:4096,time=2:ms", &text);
        assert_eq!(read, [row(Some(2500), 1, Op::Read, 4096, 4096), row(Some(4000), 2, Op::Read, 3 * 4096, 4096)]);
    }
    // Unless the caller names the separator.
    let read = rows("offset=2:sectors,length=3:sectors,separator=blanks", "8,0 16 8\n8,1 24 8\n");
    assert_eq!(read, [row(None, 1, Op::Read, 8192, 4096), row(None, 2, Op::Read, 12_288, 4096)]);
    let read = rows("offset=1:sectors,separator=semicolon", "7;1,2,3\n");
    assert_eq!(read, [row(None, 1, Op::Read, 7 * 512, 512)]);
}

#[test]
fn units_are_those_that_are_said() {
    for (unit, time_us) in [("s", 1_500_000), ("ms", 1500), ("us", 1), ("ns", 0)] {
        let read = rows(&format!("time=2:{unit},offset=1:bytes,length=3:bytes"), "512,1.5,1024\n");
        assert_eq!(read, [row(Some(time_us), 1, Op::Read, 512, 1024)], "{unit}");
    }
    let read = rows("offset=1:4096,length=2:sectors", "3,16\n");
    assert_eq!(read, [row(None, 1, Op::Read, 3 * 4096, 8192)]);
}

/// Only reads, writes and trims have an address and a length.
#[test]
fn rows_that_move_no_blocks_need_no_address() {
    let expected = [row(Some(5), 1, Op::Flush, 0, 0), row(Some(7), 2, Op::Read, 512, 512)];
    for text in ["5,F,,,sda\n7,R,512,512,sda\n", "5,flush,,0,sda\n7,R,512,512,sda\n", "5,F,0,,sda\n7,R,512,512,sda\n"] {
        assert_eq!(rows(FIVE, text), expected, "{text:?}");
    }
    for bad in ["5,F,x,,sda\n", "5,R,,512,sda\n", "5,R,512,,sda\n", "5,T,,,sda\n"] {
        let error = first_error(bad.as_bytes(), Some(FormatId::Columns), options(FIVE)).1.expect(bad).to_string();
        assert!(error.contains("a number in the column of the"), "{bad:?}: {error}");
    }
}

#[test]
fn requests_of_length_0_are_passed_over_and_counted() {
    let text = "4,R,0,0,sda\n5,W,4096,0,sda\n6,T,99999999999999999999,0,sda\n7,R,512,512,sda\n";
    let bad = first_error(text.as_bytes(), Some(FormatId::Columns), options(FIVE)).1.expect("no number");
    assert!(bad.to_string().contains("t, line 3"), "{bad}");
    let text = text.replace("99999999999999999999", "9999999999999999999");
    let mut named = reader(text.as_bytes(), Some(FormatId::Columns), options(FIVE)).expect("opens");
    let read: Vec<Record> = named.by_ref().map(|record| record.expect("no error")).collect();
    assert_eq!(read, [row(Some(7), 1, Op::Read, 512, 512)]);
    assert_eq!((named.empty_requests(), named.skipped()), (3, 0));
    // SCSI commands in csv, as libCacheSim has them.
    let text = "time,op,size,lbn\n1,28,0,8\n2,2a,512,8\n";
    let mut csv = reader(text.as_bytes(), None, ReaderOptions::default()).expect("opens");
    assert_eq!((csv.by_ref().count(), csv.empty_requests()), (1, 1));
}

#[test]
fn numbers_for_operations_are_refused_until_it_is_said_what_they_are() {
    let text = "0,8\n1,16\n";
    for (op, first) in [("op=1:read0", Op::Read), ("op=1:read1", Op::Write)] {
        let read = rows(&format!("{op},offset=2:sectors"), text);
        assert_eq!((read[0].op, read[1].op == first), (first, false), "{op}");
        let bad = first_error(b"2,8\n", Some(FormatId::Columns), options(&format!("{op},offset=2:sectors"))).1;
        assert!(bad.expect("neither").to_string().contains("in the column of the operation"));
    }
    let read = rows("op=1:scsi,offset=2:sectors", "28,8\n0x2A,16\n");
    assert_eq!([read[0].op, read[1].op], [Op::Read, Op::Write]);
    for unclear in ["0,8\n", "28,8\n", "x,8\n", ",8\n"] {
        let error = first_error(unclear.as_bytes(), Some(FormatId::Columns), options("op=1,offset=2:sectors")).1;
        let error = error.unwrap_or_else(|| panic!("{unclear} is taken")).to_string();
        assert!(error.starts_with("t, line 1: expected a word") && error.contains("op=N:read0"), "{error}");
    }
}

#[test]
fn what_is_bad_is_named_by_its_line() {
    for (text, told) in [
        ("5,W,4096,8192,a\nx,W,4096,8192,a\n", "t, line 2: expected a number in the column of the time"),
        ("h,h,h,h,h\n5,W,x,8192,a\n", "t, line 2: expected a number in the column of the offset"),
        ("5,W,0,8k,a\n", "t, line 1: expected a number in the column of the length"),
        ("5,W,0,8,\n", "t, line 1: expected a name in the column of the device"),
        ("5,W,0,8\n", "t, line 1: expected as many columns as --columns names"),
        ("h,h,h,h,h\nh,h,h,h,h\n", "t, line 2: expected a number in the column of the time"),
    ] {
        let error = first_error(text.as_bytes(), Some(FormatId::Columns), options(FIVE)).1;
        let error = error.unwrap_or_else(|| panic!("{text} is taken")).to_string();
        assert!(error.starts_with(told), "{error}");
    }
    let error = first_error(b"1\n", Some(FormatId::Columns), ReaderOptions::default()).1.expect("no columns");
    assert!(error.to_string().contains("needs --columns"), "{error}");
}
