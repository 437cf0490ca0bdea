//! The formats of published block traces: each field of each sample, and bad lines.

use crate::common::{first_error, reader, records};
use larder_trace::{FormatId, Op, Position, ReaderOptions, Record, Tag, TraceErrorKind};

/// The region of each volume in the formats of clouds, and of each device in the others.
const VOLUME: u64 = 1 << 44;
const DEVICE: u64 = 1 << 52;

fn record(time_us: u64, request: u64, op: Op, offset_bytes: u64, len_bytes: u64) -> Record {
    Record { time_us: Some(time_us), tag: Tag::NONE, ..Record::new(request, op, offset_bytes, len_bytes) }
}

#[test]
fn vscsi_of_version_1() {
    let bytes = include_bytes!("../fixtures/commands.vscsi1");
    let expected = [
        record(1_000_000, 1, Op::Read, 2048 * 512, 4096),
        record(1_000_250, 2, Op::Write, 7 * 512, 512),
        // The third tests whether the unit is ready.
        record(1_000_400, 3, Op::Flush, 0, 0),
        record(1_000_200, 4, Op::Read, 512 << 32, 65_536),
    ];
    assert_eq!(records(bytes, FormatId::Vscsi1), expected);
}

#[test]
fn vscsi_of_version_2() {
    let bytes = include_bytes!("../fixtures/commands.vscsi2");
    let expected = [record(5_000_000, 1, Op::Write, 4096 * 512, 8192), record(5_000_020, 2, Op::Read, 16 * 512, 4096)];
    assert_eq!(records(bytes, FormatId::Vscsi2), expected);
}

#[test]
fn records_of_another_version_and_half_records_are_bad() {
    let v1 = include_bytes!("../fixtures/commands.vscsi1");
    let v2 = include_bytes!("../fixtures/commands.vscsi2");
    for (bytes, format, told) in [
        (&v1[..], FormatId::Vscsi2, "t, byte 0: expected version 2 in byte 3 of a record of 40 bytes"),
        (&v2[..], FormatId::Vscsi1, "t, byte 0: expected version 1 in byte 15 of a record of 32 bytes"),
    ] {
        let error = first_error(bytes, Some(format), ReaderOptions::default()).1.expect("another version");
        assert!(error.to_string().starts_with(told), "{error}");
    }
    let mut bad = v1.to_vec();
    bad[32 + 15] = 3;
    let (count, error) = first_error(&bad, Some(FormatId::Vscsi1), ReaderOptions::default());
    assert_eq!((count, error.expect("a third version").position()), (1, Position::Byte(32)));
    let (count, error) = first_error(&v2[..90], Some(FormatId::Vscsi2), ReaderOptions::default());
    let error = error.expect("a record is cut");
    assert_eq!((count, error.kind(), error.position()), (1, TraceErrorKind::Truncated, Position::Byte(80)));
}

/// A SCSI command may move no blocks: it is no request, and no error either.
#[test]
fn commands_of_length_0_are_passed_over_and_counted() {
    for (bytes, len_at, format) in [
        (&include_bytes!("../fixtures/commands.vscsi1")[..], 4, FormatId::Vscsi1),
        (&include_bytes!("../fixtures/commands.vscsi2")[..], 8, FormatId::Vscsi2),
    ] {
        let whole = records(bytes, format);
        let mut empty = bytes.to_vec();
        empty[len_at..len_at + 4].fill(0);
        // Behind the end of every device.
        empty[16..24].fill(0xff);
        let mut read_of = reader(&empty, Some(format), ReaderOptions::default()).expect("opens");
        let read: Vec<Record> = read_of.by_ref().map(|record| record.expect("no error")).collect();
        let expected = whole[1..].iter().map(|record| Record { request: record.request - 1, ..*record });
        assert_eq!(read, expected.collect::<Vec<_>>(), "{format}");
        assert_eq!((read_of.empty_requests(), read_of.skipped()), (1, 0), "{format}");
    }
}

#[test]
fn alibaba() {
    let expected = [
        record(1_577_808_144_360_767, 1, Op::Write, 8_792_731_648, 16_384),
        record(1_577_808_144_360_999, 2, Op::Read, VOLUME + 4096, 4096),
        record(1_577_808_144_361_003, 3, Op::Read, 8_792_731_648, 16_384),
    ];
    let text = include_bytes!("../fixtures/alibaba.csv");
    assert_eq!(records(text, FormatId::Alibaba), expected);
    let headed = [b"device_id,opcode,offset,length,timestamp\n", &text[..]].concat();
    assert_eq!(records(&headed, FormatId::Alibaba), expected);
}

#[test]
fn tencent() {
    let expected = [
        record(1_538_323_200_000_000, 1, Op::Read, 12_910_952 * 512, 65_536),
        record(1_538_323_200_000_000, 2, Op::Write, VOLUME + 6_338_688 * 512, 4096),
        record(1_538_323_201_000_000, 3, Op::Read, 0, 4096),
    ];
    assert_eq!(records(include_bytes!("../fixtures/tencent.csv"), FormatId::Tencent), expected);
}

#[test]
fn systor17() {
    let expected = [
        record(1_455_592_061_583_970, 1, Op::Read, 81_203_712, 4096),
        record(1_455_592_061_584_100, 2, Op::Write, 4096, 8192),
        // The third has no operation.
        record(1_455_592_062_000_000, 3, Op::Write, DEVICE, 512),
    ];
    let text = include_bytes!("../fixtures/systor17.csv");
    assert_eq!(records(text, FormatId::Systor17), expected);
    let header = text.iter().position(|&byte| byte == b'\n').expect("a header") + 1;
    assert_eq!(records(&text[header..], FormatId::Systor17), expected, "a part of a file");
    // The row without an operation may lack its address and length, too.
    let text = String::from_utf8(text.to_vec()).expect("text");
    for (offset, len) in [("", "512"), ("0", ""), ("", "")] {
        let lacks = text.replace(",,0,0,512\n", &format!(",,0,{offset},{len}\n"));
        assert!(lacks != text || (offset, len) == ("0", "512"));
        assert_eq!(records(lacks.as_bytes(), FormatId::Systor17), expected, "{offset:?} {len:?}");
    }
}

#[test]
fn umass() {
    let expected = [
        record(551_706, 1, Op::Write, 20_941_264 * 512, 8192),
        record(554_041, 2, Op::Read, DEVICE + 20_939_840 * 512, 8192),
        record(554_000, 3, Op::Read, 0, 512),
    ];
    assert_eq!(records(include_bytes!("../fixtures/umass.spc"), FormatId::Spc), expected);
}

#[test]
fn bad_rows_are_named() {
    for (format, row, told) in [
        (FormatId::Alibaba, "419,X,0,4096,1", "R or W in column 2"),
        (FormatId::Alibaba, "419,R,-1,4096,1", "the address in bytes in column 3"),
        (FormatId::Alibaba, "419,R,0,4096", "the time in microseconds in column 5"),
        (FormatId::Alibaba, "419,R,0,4096,1,1", "five columns and no more"),
        (FormatId::Alibaba, ",R,0,4096,1", "the number of the device in column 1"),
        (FormatId::Tencent, "1,0,8,2,1", "0 (read) or 1 (write) in column 4"),
        (FormatId::Tencent, "x,0,8,1,1", "the time in seconds in column 1"),
        (FormatId::Tencent, "1,0,8,1", "the number of the volume in column 5"),
        (FormatId::Systor17, "1.5,0.1,T,0,0,512", "R, W or nothing in column 3"),
        (FormatId::Systor17, "1.5,0.1,R,0,0", "the length in bytes in column 6"),
        (FormatId::Spc, "0,1,512,W,1e3", "the time in seconds in column 5"),
        (FormatId::Spc, "0,x,512,W,1", "the address in sectors in column 2"),
    ] {
        let (count, error) = first_error(format!("{row}\n").as_bytes(), Some(format), ReaderOptions::default());
        let error = error.unwrap_or_else(|| panic!("{format} takes {row}")).to_string();
        assert!(count == 0 && error.starts_with("t, line 1: expected ") && error.contains(told), "{format}: {error}");
    }
    let past = first_error(b"1,R,17592186044416,512,1\n", Some(FormatId::Alibaba), ReaderOptions::default()).1;
    let past = past.expect("past its volume");
    assert!(past.kind() == TraceErrorKind::PastEnd && past.to_string().contains("16 TiB"), "{past}");
}

/// A cloud has more volumes than a machine has disks.
#[test]
fn many_volumes_stay_apart() {
    let row = |volume: u64| format!("{volume},W,4096,4096,7\n");
    let text: String = (0..6000).chain([0, 5999]).map(row).collect();
    let read = records(text.as_bytes(), FormatId::Alibaba);
    assert!((0..6000).zip(&read).all(|(at, record)| record.offset_bytes == at * VOLUME + 4096));
    assert_eq!([&read[6000], &read[6001]].map(|record| record.offset_bytes / VOLUME), [0, 5999]);
}
