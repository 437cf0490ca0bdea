//! Target: the readers of traces.
//!
//! The first byte chooses a format, or detection; the rest is the file. Properties, for any file:
//! records within the limits or an error, and never a panic. The records are the same with and
//! without `skip_bad` up to the first error.
//!
//! The records are then chunked, re-chunked, counted, written in our own format, and read back.
//!
//! It does not write other formats. It leaves this to the round trips of `larder-trace`.

use std::io::Cursor;

use larder_trace::{
    ContentWriter, FormatId, InfoCollector, Op, ReaderOptions, RechunkOptions, Rechunker, Record, TraceReader, chunks,
    convert,
    record::{ADDRESS_MAX, REQUEST_BYTES_MAX},
};

/// The most records that a run reads: packed noise may be long.
const RECORDS_MAX: usize = 20_000;

/// Longest read or write of the work: counting blocks of a gigabyte takes long.
const WORKED_BYTES_MAX: u64 = 1 << 20;

/// Returns first inputs: a few lines of each format, plain, and packed.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines: [(FormatId, &[u8]); 24] = [
        (
            FormatId::Content,
            b"1 1 a 0 0 F 0 0 0 0\n2 2 a 16 8 R 0 0 93d76fe148c689ba 26\n9 3 a 8 64 T 0 0 0 0\n7 4 b 8 8 W 2 0 00112233445566778899aabbccddeeff -\n",
        ),
        (FormatId::Days, b"0 0 8775bb2d62bca5dd 270\n1 1 93d76fe148c689ba 26\n"),
        (
            FormatId::Fiu,
            b"777599999908936 2552 kj 160806224 2 W 6 0 3f4fc2833a17fd2a3dacad7c0e8ca8adbf619eac0cdf3f68d496ea9344137e8b\n\
              9 42 a b 508516680 8 R 6 0 b5e9f4e5ab62a4fff5313a606b0ad4e3\n",
        ),
        (FormatId::Austere, b"32768 32768 W d7e03103f071f8c0b630b4339ccfe98b07c38c67 2.0\n"),
        (FormatId::Msr, b"128166372003061629,usr,0,Read,7014609920,24576,41286\n128,usr,1,Write,512,1024,3\n"),
        (
            FormatId::Blkparse,
            b"  8,0    3        1     0.000000000   697  Q FWFS 223490 + 8 [kjournald]\n\
              \x20 8,0 3 2 0.000001829   697  C   R 8 + 8 [0]\nCPU0 (8,0):\n Reads\n",
        ),
        (
            FormatId::Blkparse,
            b"Input file sda.blktrace.0 added\n8,0 0 3 0.000002200 700 Q   R 36 (12 00 ..) [sg inq [x]]\n\
              8,0 0 4 0.000003300 697 Q FWS (    1100) [fio]\n8,0 0 5 0.1 697 Q WS 2048 + 8 (    2200) [fio]\nfio (697)\n Reads\n",
        ),
        (FormatId::Content, b"1 1 a 0 8 W 0 0 00000000000000aa 9\n2 2 a 16 16 W 0 0 00000000000000bb 9\n"),
        (FormatId::Csv, b"\"note\";\"lbn\";\"op\";\"size\"\n\"a; b\";7; \"R\" ;\"512\"\n;9;W;1024\n"),
        (
            FormatId::OracleGeneral,
            b"\x05\0\0\0\x09\0\0\0\0\0\0\0\0\x02\0\0\x02\0\0\0\0\0\0\0\
              \x04\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        (FormatId::Fio, b"fio version 2 iolog\nf add\nf wait 100\nf read 4096 512\ng sync\ng trim 0 65536\nf close\n"),
        (FormatId::ArcLis, b"1936993 8 0 0\n793041 16 94 1\n"),
        (FormatId::Ssdsim, b"4000 0 1024 8 1\n5000 1 16 3 0\n"),
        (FormatId::Csv, b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5.5,28,6656,40409911\n"),
        (FormatId::OracleGeneral, b"\x6a\xf7\x55\0\x09\x1a\x8f\x02\0\0\0\0\0\x02\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        (FormatId::BlockIds, b"\xca\xce\x0d\0\xff\xad\x0d\0"),
        (
            FormatId::Vscsi1,
            b"\x01\0\0\0\0\x10\0\0\x01\0\0\0\x28\0\0\x01\0\x08\0\0\0\0\0\0\x40\x42\x0f\0\0\0\0\0",
        ),
        (
            FormatId::Vscsi2,
            b"\x2a\0\0\x02\x01\0\0\0\0\x20\0\0\x02\0\0\0\0\x10\0\0\0\0\0\0\x40\x4b\x4c\0\0\0\0\0\x05\0\0\0\0\0\0\0",
        ),
        (FormatId::Alibaba, b"# two volumes\n419,W,8792731648,16384,1577808144360767\n420,R,4096,4096,1577808144360999\n"),
        (FormatId::Tencent, b"1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n"),
        (
            FormatId::Systor17,
            b"Timestamp,Response,IOType,LUN,Offset,Size\n1455592061.583970000,0.000123,R,0,81203712,4096\n1.5,,,0,0,512\n",
        ),
        (FormatId::Spc, b"0,20941264,8192,W,0.551706\n1,20939840,8192,r,0.554041,x\n"),
        (FormatId::Columns, b"t;op;off;len;dev\n5;W;4096;8192;sda\n6;\"read\";512;512;sdb\n"),
        (FormatId::Columns, b"\xef\xbb\xbf1 flush 0 0 a\n# x\n2 trim 8 8 a\n"),
    ];
    let mut seeds = Vec::new();
    for (format, bytes) in lines {
        let chosen = FormatId::ALL.iter().position(|known| *known == format).unwrap_or_default() as u8;
        seeds.push([&[chosen], bytes].concat());
        seeds.push([&[0xff], bytes].concat());
    }
    // "1 1 0 0\n2 1 0 1\n" as zstd (plain, and behind a skippable frame), gzip and xz pack it.
    seeds.push(
        b"\xff\x50\x2a\x4d\x18\x04\x00\x00\x00\x19\x00\x00\x00\x28\xb5\x2f\xfd\x00\x58\x81\x00\x00\x31\x20\x31\
          \x20\x30\x20\x30\x0a\x32\x20\x31\x20\x30\x20\x31\x0a"
            .to_vec(),
    );
    seeds.push(
        b"\xff\x28\xb5\x2f\xfd\x00\x58\x81\x00\x00\x31\x20\x31\x20\x30\x20\x30\x0a\x32\x20\x31\x20\x30\x20\x31\
          \x0a"
            .to_vec(),
    );
    seeds.push(
        b"\xff\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x33\x54\x30\x54\x30\x50\x30\xe0\x32\x02\xd3\x86\x5c\x00\
          \x86\x38\x9d\x39\x10\x00\x00\x00"
            .to_vec(),
    );
    seeds.push(
        b"\xff\xfd\x37\x7a\x58\x5a\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\
          \x01\x00\x0f\x31\x20\x31\x20\x30\x20\x30\x0a\x32\x20\x31\x20\x30\x20\x31\x0a\x00\x86\x38\x9d\x39\
          \x00\x01\x24\x10\xe9\x44\xd9\xcc\x90\x42\x99\x0d\x01\x00\x00\x00\x00\x01\x59\x5a"
            .to_vec(),
    );
    seeds
}

/// Reads the input as a trace, strictly and leniently.
pub fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let format = FormatId::ALL.get(usize::from(*choice)).copied();
    let columns = "time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5".parse();
    let options = ReaderOptions {
        columns: columns.ok(),
        device_bytes: (choice & 0x40 == 0).then_some(1 << 50),
        one_block_size: choice & 0x20 == 0,
        ..ReaderOptions::default()
    };
    let strict = read(bytes, format, options);
    let lenient = read(bytes, format, ReaderOptions { skip_bad: true, ..options });
    assert!(lenient.starts_with(&strict), "skipping bad lines changes what stands before the first");
    work(lenient);
}

/// Works on records: each step takes every record of a reader.
fn work(mut records: Vec<Record>) {
    records.retain(|record| record.op == Op::Trim || record.len_bytes <= WORKED_BYTES_MAX);
    let all = || records.iter().copied().map(Ok);
    let info = InfoCollector::collect(None, all()).expect("records are sound");
    assert_eq!(info.trims + info.flushes, records.iter().filter(|record| !record.is_data()).count() as u64);
    assert!(info.written_set_blocks <= info.working_set_blocks && info.working_set_blocks <= info.blocks);
    for request in chunks(all(), 4096).expect("a sound size") {
        let Ok(request) = request else { break };
        assert!(request.op == Op::Flush || request.len_bytes > 0 && request.start_bytes + request.len_bytes <= 4096);
    }
    let mut rechunker = Rechunker::new(RechunkOptions::new(32 << 10)).expect("a sound size");
    if rechunker.learn(all()).is_ok() {
        for request in rechunker.replay(all()) {
            let request = request.expect("pass 1 took all of it");
            assert!(request.op == Op::Trim || request.op == Op::Flush || request.content.is_some());
        }
    }
    read_back(&records);
}

/// Checks that our own format keeps all of a record. Blanks and the like in tags, and parts of
/// sectors, are exceptions.
fn read_back(records: &[Record]) {
    let mut packed = Vec::new();
    let writer = ContentWriter::new(&mut packed).expect("memory takes all");
    let written = convert(records.iter().copied().map(Ok), writer).expect("memory takes all");
    assert_eq!(written.records, records.len() as u64);
    let back = read(&packed, Some(FormatId::Content), ReaderOptions::default());
    assert_eq!(back.len(), records.len());
    for (back, record) in back.iter().zip(records) {
        let is_whole = record.offset_bytes.is_multiple_of(512) && record.len_bytes.is_multiple_of(512);
        let mut expected = Record { tag: back.tag, ..*record };
        if record.content.is_some_and(|content| content.is_zero) {
            expected.content = back.content;
        }
        assert!(!is_whole || *back == expected, "{back:?} for {record:?}");
    }
}

fn read(bytes: &[u8], format: Option<FormatId>, options: ReaderOptions) -> Vec<Record> {
    let mut records = Vec::new();
    let reader = match TraceReader::from_read("input", Cursor::new(bytes.to_vec()), format, options) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.to_string().starts_with("input"), "{error}");
            return records;
        }
    };
    for record in reader.take(RECORDS_MAX) {
        match record {
            Ok(record) => {
                let is_flush = record.op == Op::Flush;
                assert!(is_flush == (record.len_bytes == 0), "{record:?}");
                assert!(record.op == Op::Trim || record.len_bytes <= REQUEST_BYTES_MAX, "{record:?}");
                assert!(record.end_bytes() <= ADDRESS_MAX, "{record:?}");
                if let Some(stored) = record.content.and_then(|content| content.stored_bytes) {
                    assert!(u64::from(stored) <= record.len_bytes, "{record:?}");
                }
                records.push(record);
            }
            Err(error) => {
                assert!(error.to_string().starts_with("input"), "{error}");
                assert!(error.to_string().len() < 1000, "{error}");
            }
        }
    }
    records
}
