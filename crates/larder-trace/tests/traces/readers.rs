//! Each format: a small sample, read field by field; and the packing, detection and opening of
//! files.

use crate::common::{first_error, gzip, reader, records};
use larder_trace::{
    ContentId, FormatId, Op, Packing, Provenance, ReaderOptions, Record, Tag, TraceContent, TraceErrorKind,
};

/// A file of each format, as its own programs write it.
const SAMPLES: &[(FormatId, &[u8])] = &[
    (
        FormatId::Content,
        b"152803 1 aptvm 0 0 F 0 0 0 0\n165954 2 aptvm 20971392 8 R 0 0 93d76fe148c689ba 26\n\
          166146 4 aptvm 0 8 W 0 0 d488b37c48cbb4ed 263\n165000 5 aptvm 8 8192 T 0 0 0 0\n",
    ),
    (FormatId::Days, b"0 0 8775bb2d62bca5dd 270\n0 1 93d76fe148c689ba 26\n3 1 06ed64cbee151eb0 46\n"),
    (
        FormatId::Fiu,
        b"89966527996712 4253 nfsd 508516680 8 W 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3\n\
          89966528039628 4253 a b 508516688 8 R 6 0 620f0b67a91f7f74151bc5be745b7110\n",
    ),
    (
        FormatId::Austere,
        b"4431380480 32768 W d7e03103f071f8c0b630b4339ccfe98b07c38c67 2.0\n\
          3558473728 32768 R 5188431849b4613152fd7bdba6a3ff0ae2fe9e0f 0.5\n",
    ),
    (
        FormatId::Msr,
        b"128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,512,1024,1963\n",
    ),
    (
        FormatId::Blkparse,
        b"  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
          \x20 8,0    3        2     0.000001829   697  P   R [kjournald]\n\
          \x20 8,0    3        3     0.000002197   697  Q  WS 223490 + 8 [kjournald]\n\
          \x20 8,0    3        4     0.000005197   697  D  WS 223490 + 8 [kjournald]\n\
          \x20 8,16   1        5     1.500005197     0  Q FWFS 96 + 16 [jbd2/sda1-8]\n\
          \x20 8,0    1        6     1.600000000     0  Q FWS [fio]\n\
          \x20 8,0    1        7     1.700000000     0  Q   D 0 + 2048 [fstrim]\n\
          CPU0 (8,0):\n Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB\n",
    ),
    (
        FormatId::Fio,
        b"fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda read 4096 512\n/dev/sda wait 150\n\
          /dev/sdb write 0 4096\n/dev/sda sync\n/dev/sda trim 0 65536\n/dev/sda close\n",
    ),
    (FormatId::ArcLis, b"1936993 8 0 0\n793041 16 94 1\n"),
    (FormatId::Ssdsim, b"4000 0 1024 8 1\n5000 1 16 3 0\n4500 0 0 1 0\n"),
    (FormatId::Csv, b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899.5,28,6656,40409911\n"),
    (
        FormatId::OracleGeneral,
        b"\x6a\xf7\x55\0\x09\x1a\x8f\x02\0\0\0\0\0\x02\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
          \x6b\xf7\x55\0\x0a\x1a\x8f\x02\0\0\0\0\0\x1a\0\0\x03\0\0\0\0\0\0\0",
    ),
    (FormatId::BlockIds, b"\xca\xce\x0d\0\xff\xad\x0d\0\xca\xce\x0d\0"),
    (FormatId::Vscsi1, include_bytes!("../fixtures/commands.vscsi1")),
    (FormatId::Vscsi2, include_bytes!("../fixtures/commands.vscsi2")),
    (FormatId::Alibaba, include_bytes!("../fixtures/alibaba.csv")),
    (FormatId::Tencent, include_bytes!("../fixtures/tencent.csv")),
    (FormatId::Systor17, include_bytes!("../fixtures/systor17.csv")),
    (FormatId::Spc, include_bytes!("../fixtures/umass.spc")),
];

/// The formats whose files have a mark.
const SAYS_WHICH: [FormatId; 8] = [
    FormatId::Content,
    FormatId::Days,
    FormatId::Fiu,
    FormatId::Austere,
    FormatId::Blkparse,
    FormatId::Fio,
    FormatId::Csv,
    FormatId::Systor17,
];

fn sample(format: FormatId) -> &'static [u8] {
    SAMPLES.iter().find(|(known, _)| *known == format).expect("a sample of each").1
}

fn known(fingerprint: u128, stored_bytes: Option<u32>, is_zero: bool) -> Option<TraceContent> {
    let fingerprint = ContentId::from_u128(fingerprint);
    Some(TraceContent { fingerprint, stored_bytes, is_zero, provenance: Provenance::Recorded })
}

fn record(time_us: Option<u64>, request: u64, tag: &str, op: Op, offset_bytes: u64, len_bytes: u64) -> Record {
    Record { time_us, request, tag: Tag::new(tag.as_bytes()), op, offset_bytes, len_bytes, content: None }
}

/// The region of the second device.
const SECOND: u64 = 1 << 52;

#[test]
fn every_format_has_a_sample_and_is_found_out_where_that_says_which_it_is() {
    // The last has no sample: the caller names its columns.
    for format in FormatId::ALL.into_iter().filter(|format| *format != FormatId::Columns) {
        assert_eq!(format.name().parse::<FormatId>().unwrap(), format);
        assert!(records(sample(format), format).len() >= 2, "{format}");
        match reader(sample(format), None, ReaderOptions::default()) {
            Ok(reader) => assert!(reader.format() == format && SAYS_WHICH.contains(&format), "{format}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!SAYS_WHICH.contains(&format) && error.kind() == TraceErrorKind::UnknownFormat, "{said}");
                assert!(
                    said.contains("cannot tell the format") && said.contains(&format!("--format {format}")),
                    "{said}"
                );
            }
        }
    }
    let error = "ten".parse::<FormatId>().unwrap_err().to_string();
    assert!(error.contains("content") && error.contains("block-ids"), "{error}");
}

#[test]
fn content_lines() {
    let expected = [
        record(Some(152_803), 1, "aptvm", Op::Flush, 0, 0),
        Record {
            content: known(0x93d7_6fe1_48c6_89ba, Some(26), true),
            ..record(Some(165_954), 2, "aptvm", Op::Read, 20_971_392 * 512, 4096)
        },
        Record {
            content: known(0xd488_b37c_48cb_b4ed, Some(263), false),
            ..record(Some(166_146), 4, "aptvm", Op::Write, 0, 4096)
        },
        record(Some(165_000), 5, "aptvm", Op::Trim, 4096, 8192 * 512),
    ];
    assert_eq!(records(sample(FormatId::Content), FormatId::Content), expected);
    let mut reader = reader(sample(FormatId::Content), None, ReaderOptions::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 4);
    assert_eq!((reader.back_steps().count, reader.back_steps().worst_us), (1, 1146));
    // Made-up content is labelled, and wide fingerprints keep all bits.
    let made = records(b"1 1 - 0 8 W 2 0 00112233445566778899aabbccddeeff -\n2 2 - 0 8 R 0 0 - -\n", FormatId::Content);
    let content = made[0].content.unwrap();
    assert_eq!(content.fingerprint.to_u128(), 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    assert_eq!((content.provenance, content.stored_bytes, made[1].content), (Provenance::Made, None, None));
}

#[test]
fn days() {
    let records = records(sample(FormatId::Days), FormatId::Days);
    assert_eq!(records.len(), 3);
    let day_us = 86_400_000_000;
    let third = Record {
        content: known(0x06ed_64cb_ee15_1eb0, Some(46), false),
        ..record(Some(3 * day_us), 4, "", Op::Write, 4096, 4096)
    };
    assert_eq!(records[2], third);
    assert!(records[1].content.unwrap().is_zero && records[0].request == records[1].request);
}

#[test]
fn fiu_of_4k() {
    let read = records(sample(FormatId::Fiu), FormatId::Fiu);
    let expected = [
        Record {
            content: known(0xb5e9_f4e5_ab62_a4ff_f531_3a60_6b0a_d4e3, None, false),
            ..record(Some(89_966_527_996), 1, "nfsd", Op::Write, 508_516_680 * 512, 4096)
        },
        Record {
            content: known(0x620f_0b67_a91f_7f74_151b_c5be_745b_7110, None, true),
            ..record(Some(89_966_528_039), 2, "a b", Op::Read, 508_516_688 * 512, 4096)
        },
    ];
    assert_eq!(read, expected);
}

/// Tabs may separate columns in every format of columns.
#[test]
fn tabs_are_blanks() {
    for format in
        [FormatId::Content, FormatId::Days, FormatId::Fiu, FormatId::Austere, FormatId::ArcLis, FormatId::Ssdsim]
    {
        // The name of a process may have a blank.
        let text = String::from_utf8(sample(format).to_vec()).unwrap().replace("a b", "ab");
        let tabs = text.replace(' ', "\t");
        let named = Some(format).filter(|format| !SAYS_WHICH.contains(format));
        let mut reader =
            reader(tabs.as_bytes(), named, ReaderOptions::default()).unwrap_or_else(|e| panic!("{format}: {e}"));
        assert_eq!(reader.format(), format);
        let read: Vec<Record> = reader.by_ref().map(|record| record.unwrap()).collect();
        assert_eq!(read, records(text.as_bytes(), format), "{format}");
    }
}

#[test]
fn fiu_of_512() {
    let md5s = "3f4fc2833a17fd2a3dacad7c0e8ca8adbf619eac0cdf3f68d496ea9344137e8b";
    let read = records(format!("777599999908936 2552 kjournald 1000 2 W 6 0 {md5s}\n").as_bytes(), FormatId::Fiu);
    assert_eq!(read.len(), 2);
    assert_eq!(
        read.iter().map(|r| (r.offset_bytes, r.len_bytes, r.request)).collect::<Vec<_>>(),
        [(512_000, 512, 1), (512_512, 512, 1)]
    );
    assert_eq!(read.iter().map(|r| r.content.unwrap().is_zero).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn fiu_of_two_blocks_in_a_line() {
    let md5s = "b5e9f4e5ab62a4fff5313a606b0ad4e3620f0b67a91f7f74151bc5be745b7110";
    let read = records(format!("89967404311353 4253 nfsd 680 16 W 6 0 {md5s}\n").as_bytes(), FormatId::Fiu);
    let places: Vec<_> = read.iter().map(|r| (r.offset_bytes, r.len_bytes, r.content.unwrap().is_zero)).collect();
    assert_eq!(places, [(680 * 512, 4096, false), (688 * 512, 4096, true)]);
}

#[test]
fn austere() {
    let expected = [
        Record {
            content: known(0xd7e0_3103_f071_f8c0_b630_b433_9ccf_e98b, Some(16_384), false),
            ..record(None, 1, "", Op::Write, 4_431_380_480, 32_768)
        },
        Record {
            content: known(0x5188_4318_49b4_6131_52fd_7bdb_a6a3_ff0a, Some(32_768), true),
            ..record(None, 2, "", Op::Read, 3_558_473_728, 32_768)
        },
    ];
    assert_eq!(records(sample(FormatId::Austere), FormatId::Austere), expected);
}

#[test]
fn msr() {
    let expected = [
        record(Some(12_816_637_200_306_162), 1, "usr", Op::Read, 7_014_609_920, 24_576),
        record(Some(12_816_637_201_638_215), 2, "usr", Op::Write, SECOND + 512, 1024),
    ];
    assert_eq!(records(sample(FormatId::Msr), FormatId::Msr), expected);
}

#[test]
fn blkparse_takes_one_action() {
    let expected = [
        record(Some(2), 1, "kjournald", Op::Write, 223_490 * 512, 4096),
        // A flush before the write, and one after it for its FUA.
        record(Some(1_500_005), 2, "jbd2/sda1-8", Op::Flush, 0, 0),
        record(Some(1_500_005), 2, "jbd2/sda1-8", Op::Write, SECOND + 96 * 512, 8192),
        record(Some(1_500_005), 2, "jbd2/sda1-8", Op::Flush, 0, 0),
        record(Some(1_600_000), 3, "fio", Op::Flush, 0, 0),
        record(Some(1_700_000), 4, "fstrim", Op::Trim, 0, 1 << 20),
    ];
    assert_eq!(records(sample(FormatId::Blkparse), FormatId::Blkparse), expected);
    // Without Q the requests to the driver count; or the caller's choice.
    let without: Vec<u8> = sample(FormatId::Blkparse).iter().map(|&b| if b == b'Q' { b'I' } else { b }).collect();
    let from_driver = reader(&without, None, ReaderOptions::default()).unwrap();
    assert_eq!(from_driver.map(|record| record.unwrap().time_us).collect::<Vec<_>>(), [Some(5)]);
    let options = ReaderOptions { action: Some(b'D'), ..ReaderOptions::default() };
    assert_eq!(reader(sample(FormatId::Blkparse), None, options).unwrap().count(), 1);
    let options = ReaderOptions { action: Some(b'X'), ..ReaderOptions::default() };
    assert_eq!(first_error(b"", None, options).1.unwrap().kind(), TraceErrorKind::Parameter);
}

/// The output of blkparse 1.2.0 for events of each action. It has data, no data, flushes, and SCSI
/// commands that pass through to the disk. It is plain, and with `-t -s` (times of requests,
/// figures of each process).
#[test]
fn blkparse_lines_of_every_action() {
    let plain = include_bytes!("../fixtures/blkparse.txt");
    let tracked = include_bytes!("../fixtures/blkparse-tracked.txt");
    let shape = |op, offset_bytes, len_bytes| (op, offset_bytes, len_bytes);
    let flush = shape(Op::Flush, 0, 0);
    let fua = [flush, shape(Op::Write, 96 * 512, 8192), flush];
    let trim = shape(Op::Trim, 4096 * 512, 1 << 20);
    let write = shape(Op::Write, 2048 * 512, 4096);
    let read = shape(Op::Read, 8192 * 512, 8192);
    for action in *b"QDC" {
        let reads = if action == b'C' { vec![] } else { vec![read] };
        let expected = [vec![write], reads, vec![flush, flush], fua.to_vec(), vec![trim]].concat();
        for bytes in [&plain[..], tracked] {
            let options = ReaderOptions { action: Some(action), ..ReaderOptions::default() };
            let reader = reader(bytes, None, options).expect("opens");
            assert_eq!(reader.format(), FormatId::Blkparse);
            let read: Vec<Record> = reader.map(|record| record.unwrap_or_else(|error| panic!("{error}"))).collect();
            let shapes: Vec<_> = read.iter().map(|r| shape(r.op, r.offset_bytes, r.len_bytes)).collect();
            assert_eq!(shapes, expected, "{}", action as char);
            // A completion has the error in the place of the process.
            let tag = if action == b'C' { Tag::NONE } else { Tag::new(b"fio") };
            assert!(read.iter().all(|record| record.tag == tag), "{read:?}");
        }
    }
}

#[test]
fn fio_of_both_versions() {
    let expected = [
        record(None, 1, "sda", Op::Read, 4096, 512),
        record(Some(150), 2, "sdb", Op::Write, SECOND, 4096),
        record(Some(150), 3, "sda", Op::Flush, 0, 0),
        record(Some(150), 4, "sda", Op::Trim, 0, 65_536),
    ];
    assert_eq!(records(sample(FormatId::Fio), FormatId::Fio), expected);
    let three = b"fio version 3 iolog\n2 Nvme1n1 add\n872 Nvme1n1 open\n878 Nvme1n1 write 0 16384\n\
                  888 Nvme1n1 datasync 0 0\n10001677 Nvme1n1 close\n";
    let expected =
        [record(Some(878), 1, "Nvme1n1", Op::Write, 0, 16_384), record(Some(888), 2, "Nvme1n1", Op::Flush, 0, 0)];
    assert_eq!(records(three, FormatId::Fio), expected);
    assert_eq!(reader(three, None, ReaderOptions::default()).unwrap().format(), FormatId::Fio);
}

#[test]
fn fio_actions_of_every_kind() {
    // The log of fio 3.33, and once more into the same log; with the actions of later versions.
    let once = "fio version 3 iolog\n1 f add\n2 f open\n7 f write 0 4096\n8 f sync_file_range 0 4096\n9 f sync 0 4096\n\
                9 f datasync 0 4096\n10 f syncfs 0 0\n11 g file_operation 0 4096\n12 f close\n13 f unlink\n";
    let flush = |time_us, request| record(Some(time_us), request, "f", Op::Flush, 0, 0);
    let run = |first| {
        [
            record(Some(7), first, "f", Op::Write, 0, 4096),
            flush(9, first + 1),
            flush(9, first + 2),
            flush(10, first + 3),
        ]
    };
    assert_eq!(records(once.repeat(2).as_bytes(), FormatId::Fio), [run(1), run(5)].concat());
    // Version 2 waits anew.
    let two = "fio version 2 iolog\nf wait 100 0\nf read 0 512\n";
    let times: Vec<_> = records(two.repeat(2).as_bytes(), FormatId::Fio).iter().map(|record| record.time_us).collect();
    assert_eq!(times, [Some(100), Some(100)]);
}

#[test]
fn arc_lis() {
    let expected = [
        record(None, 1, "", Op::Read, 1_936_993 * 4096, 8 * 4096),
        record(None, 2, "", Op::Read, 793_041 * 4096, 16 * 4096),
    ];
    assert_eq!(records(sample(FormatId::ArcLis), FormatId::ArcLis), expected);
    let options = ReaderOptions { block_bytes: Some(512), ..ReaderOptions::default() };
    let first = reader(sample(FormatId::ArcLis), Some(FormatId::ArcLis), options).unwrap().next().unwrap().unwrap();
    assert_eq!((first.offset_bytes, first.len_bytes), (1_936_993 * 512, 4096));
}

#[test]
fn ssdsim() {
    let expected = [
        record(Some(4), 1, "", Op::Read, 1024 * 512, 4096),
        record(Some(5), 2, "", Op::Write, SECOND + 16 * 512, 3 * 512),
        record(Some(4), 3, "", Op::Write, 0, 512),
    ];
    assert_eq!(records(sample(FormatId::Ssdsim), FormatId::Ssdsim), expected);
}

#[test]
fn csv_by_its_header() {
    let expected = [
        record(Some(5_633_898_000_000), 1, "", Op::Write, 42_932_745 * 512, 512),
        record(Some(5_633_899_500_000), 2, "", Op::Read, 40_409_911 * 512, 6656),
    ];
    assert_eq!(records(sample(FormatId::Csv), FormatId::Csv), expected);
    let words = b"obj_id,OP\r\n7,trim\r\n9,Flush\r\n";
    let expected = [record(None, 1, "", Op::Trim, 7 * 512, 512), record(None, 2, "", Op::Flush, 0, 0)];
    assert_eq!(records(words, FormatId::Csv), expected);
}

#[test]
fn csv_of_other_separators_and_with_quotes() {
    let expected = records(sample(FormatId::Csv), FormatId::Csv);
    let text = String::from_utf8(sample(FormatId::Csv).to_vec()).unwrap();
    for separator in [",", "\t", ";", "|", " , "] {
        let other = text.replace(',', separator);
        let reader = reader(other.as_bytes(), None, ReaderOptions::default()).expect("opens");
        assert_eq!(reader.format(), FormatId::Csv, "{separator:?}");
        assert_eq!(reader.map(|record| record.unwrap()).collect::<Vec<_>>(), expected, "{separator:?}");
    }
    let quoted = "\"note\",\"lbn\",\"op\",\"size\"\n\"a, b\",\"7\", \"R\" ,\"512\"\n,9,W,\"1024\"\n";
    let expected = [record(None, 1, "", Op::Read, 7 * 512, 512), record(None, 2, "", Op::Write, 9 * 512, 1024)];
    assert_eq!(records(quoted.as_bytes(), FormatId::Csv), expected);
    // A separator at the ends of lines.
    assert_eq!(records(b"lbn,op,size,\n7,R,512,\n9,W,1024,\n", FormatId::Csv), expected);
}

#[test]
fn binary_formats() {
    let expected = [
        record(Some(5_633_898_000_000), 1, "", Op::Read, 42_932_745 * 512, 512),
        record(Some(5_633_899_000_000), 2, "", Op::Read, 42_932_746 * 512, 6656),
    ];
    assert_eq!(records(sample(FormatId::OracleGeneral), FormatId::OracleGeneral), expected);
    let blocks: Vec<u64> =
        records(sample(FormatId::BlockIds), FormatId::BlockIds).iter().map(|r| r.offset_bytes / 4096).collect();
    assert_eq!(blocks, [0xdceca, 0xdadff, 0xdceca]);
}

#[test]
fn packed_files_are_told_by_their_first_bytes() {
    let plain = sample(FormatId::Content);
    // Two consecutive frames, as recorders that append leave them.
    let halves = plain.split_at(70);
    let zstd = [halves.0, halves.1].map(|half| zstd::encode_all(half, 19).unwrap()).concat();
    let packed = [(plain.to_vec(), Packing::Plain), (zstd, Packing::Zstd), (gzip(plain), Packing::Gzip)];
    for (bytes, packing) in packed {
        let mut reader = reader(&bytes, None, ReaderOptions::default()).unwrap();
        assert_eq!((reader.packing(), reader.format()), (packing, FormatId::Content));
        let read: Vec<Record> = reader.by_ref().map(|record| record.unwrap()).collect();
        assert_eq!(read, records(plain, FormatId::Content));
        assert_eq!(reader.progress_bytes().0, bytes.len() as u64);
    }
}

/// pzstd writes a skippable frame before each frame of data, with its size.
#[test]
fn zstd_may_begin_with_a_frame_to_be_skipped() {
    let plain = sample(FormatId::Content);
    let data = zstd::encode_all(plain, 3).unwrap();
    for number in [0x50, 0x5f] {
        let skipped = [&[number, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &(data.len() as u32).to_le_bytes()].concat();
        let bytes = [&skipped[..], &data, &skipped, &data].concat();
        let reader = reader(&bytes, None, ReaderOptions::default()).unwrap();
        assert_eq!((reader.packing(), reader.format()), (Packing::Zstd, FormatId::Content));
        assert_eq!(reader.filter(|record| record.is_ok()).count(), 8);
    }
}

#[test]
fn xz_is_unpacked() {
    // printf '1 1 0 0\n2 3 0 1\n' | xz
    let packed = include_bytes!("../fixtures/two.lis.xz");
    let reader = reader(packed, Some(FormatId::ArcLis), ReaderOptions::default()).unwrap();
    assert_eq!(reader.packing(), Packing::Xz);
    assert_eq!(reader.map(|record| record.unwrap().len_bytes).collect::<Vec<_>>(), [4096, 3 * 4096]);
}

#[test]
fn batches_are_the_same_records() {
    let mut text = Vec::new();
    for n in 0..1000u32 {
        text.extend(format!("{n} 1 0 {n}\n").into_bytes());
    }
    let mut reader = reader(&text, Some(FormatId::ArcLis), ReaderOptions::default()).unwrap();
    let mut pages = Vec::new();
    pages.push(reader.next().unwrap().unwrap().offset_bytes / 4096);
    loop {
        let batch = reader.next_batch().unwrap();
        if batch.is_empty() {
            break;
        }
        pages.extend(batch.iter().map(|record| record.offset_bytes / 4096));
    }
    assert_eq!(pages, (0..1000).collect::<Vec<u64>>());
    assert!(reader.next().is_none());
}

#[test]
fn files_are_opened_by_path() {
    let folder = std::env::temp_dir().join(format!("larder-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.zst");
    // The name says zstd, the bytes do not.
    std::fs::write(&path, sample(FormatId::Fiu)).unwrap();
    assert_eq!(larder_trace::detect(&path).unwrap(), FormatId::Fiu);
    let reader = larder_trace::open(&path, None, ReaderOptions::default()).unwrap();
    assert_eq!(reader.progress_bytes().1, Some(sample(FormatId::Fiu).len() as u64));
    assert_eq!(reader.count(), 2);
    for wrong in [folder.join("none"), folder.clone()] {
        let error = larder_trace::open(&wrong, None, ReaderOptions::default()).err().unwrap();
        assert_eq!(error.kind(), TraceErrorKind::Io);
        assert!(error.to_string().contains(wrong.to_str().unwrap()), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
