//! Readers return the written records; and foreign formats have their own programs' bytes.

use std::io::Cursor;

use crate::common::{reader, records, traces};
use larder_trace::{
    AustereWriter, Compressibility, ContentId, ContentWriter, CsvWriter, FormatId, Op, OracleGeneralWriter, Provenance,
    ReaderOptions, Record, RecordWriter, Tag, TraceContent, TraceErrorKind, TraceResult, WriteTotals, convert,
    generate::{ZipfConfig, ZipfTrace},
    zero,
};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of all cases of a run; a failure prints the case.
const SEED: RngSeed = RngSeed::Fixed(20_260);

/// Writes records to a sink that stays when the writer is gone.
fn written<W, F>(records: &[Record], make: F) -> TraceResult<(Vec<u8>, WriteTotals)>
where
    W: RecordWriter,
    F: FnOnce(Shared) -> TraceResult<W>,
{
    let shared = Shared::default();
    let written = convert(records.iter().copied().map(Ok), make(shared.clone())?)?;
    let bytes = shared.0.lock().expect("no writer panicked").get_ref().clone();
    Ok((bytes, written))
}

/// A file in memory with two holders.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<std::sync::Mutex<Cursor<Vec<u8>>>>);

impl std::io::Write for Shared {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").write(buf)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Read for Shared {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").read(buf)
    }
}

impl std::io::Seek for Shared {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.lock().expect("no writer panicked").seek(to)
    }
}

fn a_record() -> impl Strategy<Value = Record> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Trim, Op::Flush]);
    let provenance = prop::sample::select(vec![Provenance::Recorded, Provenance::SizeMade, Provenance::Made]);
    let content = (any::<[u64; 2]>(), prop::option::of(0u32..=4096), any::<bool>(), provenance);
    let place = (prop::option::of(0u64..1 << 50), 0u64..1 << 40, 1u64..1 << 20, "[a-z0-9]{0,15}");
    (op, place, prop::option::of(content)).prop_map(|(op, (time_us, sector, sectors, tag), content)| {
        let content = content.map(|([high, low], stored_bytes, is_zero, provenance)| TraceContent {
            fingerprint: if is_zero { zero::XXH3_4K } else { ContentId([high, low]) },
            stored_bytes,
            is_zero,
            provenance,
        });
        let len_bytes = if content.is_some() { 4096 } else { sectors * 512 };
        let record = Record { time_us, tag: Tag::new(tag.as_bytes()), ..Record::new(0, op, sector * 512, len_bytes) };
        match op {
            Op::Read | Op::Write => Record { content, ..record },
            Op::Trim => record,
            Op::Flush => Record { offset_bytes: 0, len_bytes: 0, ..record },
        }
    })
}

fn a_trace() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(a_record(), 1..60).prop_map(|mut records| {
        for (at, record) in records.iter_mut().enumerate() {
            record.request = at as u64 / 2 + 1;
        }
        records
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: SEED, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_columns_say_everything(trace in a_trace()) {
        let (bytes, written) = written(&trace, ContentWriter::new).unwrap();
        prop_assert_eq!(written, WriteTotals { records: trace.len() as u64, dropped: 0 });
        let back = reader(&bytes, None, ReaderOptions::default()).unwrap();
        prop_assert_eq!(back.format(), FormatId::Content);
        let back: Vec<Record> = back.collect::<TraceResult<_>>().unwrap();
        prop_assert_eq!(back, trace);
    }

    #[test]
    fn csv_says_requests(trace in a_trace()) {
        let (bytes, written) = written(&trace, CsvWriter::new).unwrap();
        prop_assert_eq!(written.records, trace.len() as u64);
        let back = records(&bytes, FormatId::Csv);
        let expected: Vec<Record> = trace
            .iter()
            .zip(1..)
            .map(|(record, request)| {
                let time_us = Some(record.time_us.unwrap_or(0));
                Record { time_us, request, tag: Tag::NONE, content: None, ..*record }
            })
            .collect();
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn austere_says_content(trace in a_trace()) {
        let sized: Vec<Record> = trace
            .into_iter()
            .filter(|record| !record.is_data() || record.content.is_some_and(|c| c.stored_bytes.is_some_and(|bytes| bytes > 0)))
            .collect();
        let (bytes, written) = written(&sized, |out| Ok(AustereWriter::new(out))).unwrap();
        let back = records(&bytes, FormatId::Austere);
        let kept: Vec<&Record> = sized.iter().filter(|record| record.is_data()).collect();
        prop_assert_eq!(written, WriteTotals { records: kept.len() as u64, dropped: (sized.len() - kept.len()) as u64 });
        prop_assert_eq!(back.len(), kept.len());
        for (back, kept) in back.iter().zip(kept) {
            let (a, b) = (back.content.unwrap(), kept.content.unwrap());
            prop_assert_eq!((back.op, back.offset_bytes, back.len_bytes), (kept.op, kept.offset_bytes, kept.len_bytes));
            prop_assert_eq!((a.stored_bytes, a.is_zero), (b.stored_bytes, b.is_zero));
            prop_assert!(a.is_zero || a.fingerprint == b.fingerprint);
        }
    }

    #[test]
    fn oracle_general_knows_what_comes_next(accesses in prop::collection::vec(0u64..20, 1..300)) {
        let trace: Vec<Record> =
            accesses.iter().map(|at| Record { time_us: Some(7_000_000), ..Record::new(0, Op::Read, at * 4096, 4096) }).collect();
        let (bytes, written) = written(&trace, |out| Ok(OracleGeneralWriter::new(out))).unwrap();
        prop_assert_eq!((bytes.len() as u64, written.records), (24 * trace.len() as u64, trace.len() as u64));
        for (at, entry) in bytes.chunks_exact(24).enumerate() {
            let next = i64::from_le_bytes(entry[16..].try_into().unwrap());
            let expected = accesses[at + 1..].iter().position(|other| *other == accesses[at]);
            prop_assert_eq!(next, expected.map_or(-1, |ahead| (at + 1 + ahead + 1) as i64));
        }
        let back = records(&bytes, FormatId::OracleGeneral);
        prop_assert!(back.iter().zip(&trace).all(|(a, b)| (a.offset_bytes, a.len_bytes, a.time_us) == (b.offset_bytes, b.len_bytes, b.time_us)));
    }
}

#[test]
fn many_blocks_of_oracle_general_are_filled_in() {
    // More than one block, and every object comes back after 40,000 requests.
    let trace: Vec<Record> = (0..120_000u64).map(|n| Record::new(n, Op::Write, n % 40_000 * 512, 512)).collect();
    let (bytes, _) = written(&trace, |out| Ok(OracleGeneralWriter::new(out))).expect("written");
    for (at, entry) in bytes.chunks_exact(24).enumerate() {
        let next = i64::from_le_bytes(entry[16..].try_into().expect("8 bytes"));
        let expected = if at < 80_000 { at as i64 + 40_001 } else { -1 };
        assert_eq!(next, expected, "record {at}");
    }
}

#[test]
fn oracle_general_is_what_libcachesim_has_for_the_same_trace() {
    let Some(traces) = traces("oracle_general_is_what_libcachesim_has_for_the_same_trace") else { return };
    let folder = traces.join("public/cloudphysics");
    let csv = larder_trace::open(&folder.join("cloudPhysicsIO.csv"), None, ReaderOptions::default()).expect("opens");
    let ours = Shared::default();
    convert(csv, OracleGeneralWriter::new(ours.clone())).expect("written");
    let ours = ours.0.lock().expect("no writer panicked").get_ref().clone();
    let theirs = std::fs::read(folder.join("cloudPhysicsIO.oracleGeneral.bin")).expect("reads");
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.chunks_exact(24).zip(theirs.chunks_exact(24)) {
        // Time, object and next; they repeat an object's first size.
        assert_eq!((&ours[..12], &ours[16..]), (&theirs[..12], &theirs[16..]));
    }
}

#[test]
fn a_generated_trace_keeps_its_labels() {
    let config = ZipfConfig { requests: 2000, ..ZipfConfig::default() };
    let trace: Vec<Record> = ZipfTrace::new(config).expect("sound").collect::<TraceResult<_>>().expect("records");
    let (bytes, _) = written(&trace, ContentWriter::new).expect("written");
    let back: Vec<Record> =
        reader(&bytes, None, ReaderOptions::default()).expect("opens").collect::<TraceResult<_>>().expect("records");
    assert_eq!(back, trace);
    assert!(back.iter().all(|record| record.content.is_some_and(|content| content.provenance == Provenance::Made)));
}

#[test]
fn what_a_format_cannot_say_is_refused() {
    let plain = [Record::new(5, Op::Read, 0, 4096)];
    let error = written(&plain, |out| Ok(AustereWriter::new(out))).expect_err("no content");
    assert_eq!(error.kind(), TraceErrorKind::Content);
    assert!(error.to_string().contains("request 5"), "{error}");
    let late = [Record { time_us: Some(u64::MAX), ..plain[0] }];
    let error = written(&late, |out| Ok(OracleGeneralWriter::new(out))).expect_err("a late time");
    assert_eq!(error.kind(), TraceErrorKind::Parameter);
    // An error of reading ends the writing.
    let broken = reader(b"1 1 0 0\nx\n", Some(FormatId::ArcLis), ReaderOptions::default()).expect("opens");
    let error = convert(broken, CsvWriter::new(Vec::new()).expect("a header")).expect_err("a bad line");
    assert_eq!(error.kind(), TraceErrorKind::BadRecord);
}

#[test]
fn sizes_follow_fingerprints_through_files() {
    let compress = Compressibility::default();
    let config = ZipfConfig { requests: 500, ..ZipfConfig::default() };
    let trace: Vec<Record> = ZipfTrace::new(config).expect("sound").collect::<TraceResult<_>>().expect("records");
    let (bytes, _) = written(&trace, |out| Ok(AustereWriter::new(out))).expect("written");
    for record in records(&bytes, FormatId::Austere) {
        let content = record.content.expect("content");
        assert_eq!(content.stored_bytes, Some(compress.stored_bytes(content.fingerprint, 32 << 10)));
    }
}
