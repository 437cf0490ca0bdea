//! Chunking and re-chunking, chunk by chunk, against a model that holds the whole disk.

use std::collections::{HashMap, HashSet};

use larder_trace::{
    ChunkRequest, ContentId, Initial, Op, Provenance, RechunkOptions, Rechunker, Record, TraceContent, TraceErrorKind,
    TraceResult, Unknown, chunks, zero,
};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of all cases of a run; a failure prints the case.
const SEED: RngSeed = RngSeed::Fixed(20_260);

fn block(request: u64, op: Op, block: u64, content: u64, stored: u32) -> Record {
    let fingerprint = if content == 0 { zero::XXH3_4K } else { ContentId([0, content]) };
    let content = TraceContent {
        fingerprint,
        stored_bytes: Some(stored),
        is_zero: content == 0,
        provenance: Provenance::Recorded,
    };
    Record { content: Some(content), ..Record::new(request, op, block * 4096, 4096) }
}

fn rechunk(records: &[Record], options: RechunkOptions) -> Vec<ChunkRequest> {
    let mut rechunker = Rechunker::new(options).expect("a sound size");
    rechunker.learn(records.iter().copied().map(Ok)).expect("pass 1");
    rechunker.replay(records.iter().copied().map(Ok)).collect::<TraceResult<_>>().expect("pass 2")
}

fn fingerprints(requests: &[ChunkRequest]) -> Vec<ContentId> {
    requests.iter().map(|request| request.content.expect("content").fingerprint).collect()
}

#[test]
fn chunks_of_the_trace_keep_their_content() {
    let records = [block(1, Op::Write, 3, 7, 100), Record::new(2, Op::Trim, 0, 1 << 20)];
    let requests: Vec<ChunkRequest> = chunks(records.map(Ok), 4096).unwrap().collect::<TraceResult<_>>().unwrap();
    assert_eq!((requests[0].lba, requests[0].is_whole, requests[0].content), (3, true, records[0].content));
    assert_eq!((requests[1].op, requests[1].chunk_count), (Op::Trim, 256));
    assert_eq!(requests[0].to_record(4096), records[0]);
    assert_eq!(requests[1].to_record(4096), records[1]);
    let error = chunks(records.map(Ok), 8192).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), TraceErrorKind::Content);
}

#[test]
fn a_chunk_of_one_block_is_the_block() {
    let records = [block(1, Op::Write, 3, 7, 100), block(1, Op::Write, 4, 8, 90), block(2, Op::Read, 3, 7, 100)];
    let requests = rechunk(&records, RechunkOptions::new(4096));
    assert_eq!(requests.len(), 3);
    for (request, record) in requests.iter().zip(&records) {
        assert_eq!((request.content, request.lba), (record.content, record.offset_bytes / 4096));
    }
}

#[test]
fn blocks_that_a_request_does_not_touch_are_known_from_pass_one() {
    // Block 1 is read only at the end, but was there all the time. So chunk 0 has the content (7,
    // 8) twice.
    let records = [
        block(1, Op::Write, 0, 7, 100),
        block(2, Op::Write, 2, 7, 100),
        block(2, Op::Write, 3, 8, 60),
        block(3, Op::Read, 1, 8, 60),
    ];
    let requests = rechunk(&records, RechunkOptions::new(8192));
    let prints = fingerprints(&requests);
    assert_eq!(requests.len(), 3);
    assert_eq!((prints[0], prints[0]), (prints[1], prints[2]));
    assert_eq!(
        requests.iter().map(|r| (r.start_bytes, r.len_bytes, r.is_whole)).collect::<Vec<_>>(),
        [(0, 4096, false), (0, 8192, true), (4096, 4096, false)]
    );
    assert_eq!(requests[0].content.unwrap().stored_bytes, Some(160));
    // The writes of one request are one request of the chunk, in one time and with the last
    // content.
    assert_eq!(requests[1].lba, 1);
}

#[test]
fn what_is_written_first_was_unknown_before() {
    let records = [
        block(1, Op::Write, 0, 7, 100),
        block(2, Op::Write, 1, 8, 60),
        block(3, Op::Write, 2, 7, 100),
        block(4, Op::Write, 3, 8, 60),
    ];
    let distinct =
        |options: RechunkOptions| fingerprints(&rechunk(&records, options)).iter().collect::<HashSet<_>>().len();
    let options = RechunkOptions::new(8192);
    // Nitro: (7, ?) and (7, ?') differ. AustereCache: both are (7, 0). First seen: all are (7, 8).
    assert_eq!(distinct(options), 3);
    assert_eq!(distinct(RechunkOptions { unknown: Unknown::Zero, ..options }), 2);
    assert_eq!(distinct(RechunkOptions { initial: Initial::FirstSeen, ..options }), 1);
    // An unknown block counts as its neighbour.
    assert_eq!(rechunk(&records, options)[0].content.unwrap().stored_bytes, Some(200));
}

#[test]
fn zeroes_stay_zeroes() {
    let records = [
        block(1, Op::Read, 0, 0, 26),
        block(1, Op::Read, 1, 0, 26),
        block(2, Op::Write, 0, 5, 50),
        Record::new(3, Op::Trim, 0, 4096),
        block(4, Op::Read, 1, 0, 26),
        Record::new(5, Op::Flush, 0, 0),
    ];
    let requests = rechunk(&records, RechunkOptions::new(8192));
    let zero: Vec<bool> = requests.iter().filter_map(|r| r.content).map(|content| content.is_zero).collect();
    assert_eq!(zero, [true, false, true]);
    assert_eq!(requests.iter().map(|r| r.op).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Trim, Op::Read, Op::Flush]);
    assert_eq!(requests[0].content.unwrap().stored_bytes, Some(52));
}

#[test]
fn what_cannot_be_rechunked_is_refused() {
    let learn = |records: &[Record], chunk_bytes| {
        let mut rechunker = Rechunker::new(RechunkOptions::new(chunk_bytes)).unwrap();
        rechunker.learn(records.iter().copied().map(Ok)).map_err(|error| error.to_string())
    };
    let error = learn(&[Record::new(9, Op::Read, 0, 4096)], 8192).unwrap_err();
    assert!(error.contains("request 9 has no content"), "{error}");
    let error = learn(&[block(1, Op::Read, 0, 1, 1)], 2048).unwrap_err();
    assert!(error.contains("chunks of 2048 bytes cannot be made of blocks of 4096"), "{error}");
    let odd = Record { offset_bytes: 512, ..block(1, Op::Read, 0, 1, 1) };
    let error = learn(&[block(1, Op::Read, 0, 1, 1), odd], 8192).unwrap_err();
    assert!(error.contains("expected blocks of 4096 bytes"), "{error}");
    assert!(Rechunker::new(RechunkOptions::new(3000)).is_err());
}

#[test]
fn a_trace_that_changed_between_the_passes_is_refused() {
    let learned = [block(1, Op::Read, 0, 7, 100), block(2, Op::Read, 5, 7, 100)];
    // In a chunk that pass 1 has seen, in one between, and beyond all.
    for other in [1, 3, 4, 6, 9] {
        let mut rechunker = Rechunker::new(RechunkOptions::new(8192)).unwrap();
        rechunker.learn(learned.map(Ok)).unwrap();
        let changed = [learned[0], block(3, Op::Read, other, 7, 100)];
        let error = rechunker.replay(changed.map(Ok)).find_map(Result::err).unwrap().to_string();
        let expected = format!("request 3 touches byte {}, which the first pass", other * 4096);
        assert!(error.contains(&expected), "{error}");
    }
}

/// Returns the disk as pass 2 should see it, block by block, without any grouping. `None` is
/// unknown.
fn model(records: &[Record], per_chunk: u64) -> Vec<(Op, u64, Vec<Option<u64>>)> {
    let mut disk: HashMap<u64, Option<u64>> = HashMap::new();
    for record in records.iter().filter(|record| record.is_data()) {
        let content = record.content.expect("content").fingerprint.0[1];
        let first = (record.op == Op::Read).then_some(content);
        disk.entry(record.offset_bytes / 4096).or_insert(first);
    }
    let mut requests: Vec<(Op, u64, Vec<Option<u64>>)> = Vec::new();
    let mut last = None;
    for record in records {
        let at = record.offset_bytes / 4096;
        disk.insert(at, Some(record.content.expect("content").fingerprint.0[1]));
        let chunk = at / per_chunk;
        let key = (record.request, record.op, chunk);
        let blocks = (chunk * per_chunk..(chunk + 1) * per_chunk).map(|at| disk.get(&at).copied().flatten()).collect();
        if last == Some(key) {
            requests.pop();
        }
        requests.push((record.op, chunk, blocks));
        last = Some(key);
    }
    requests
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: SEED, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two chunks have the same fingerprint exactly if all their blocks are the same in the model.
    #[test]
    fn fingerprints_are_equal_where_blocks_are(
        accesses in prop::collection::vec((any::<bool>(), 0u64..24, 1u64..4, any::<bool>()), 1..80),
        per_chunk in prop::sample::select(vec![2u64, 4, 8]),
    ) {
        let mut request = 0;
        let records: Vec<Record> = accesses
            .into_iter()
            .map(|(is_read, at, content, is_new)| {
                request += u64::from(is_new);
                block(request, if is_read { Op::Read } else { Op::Write }, at, content, 100)
            })
            .collect();
        let requests = rechunk(&records, RechunkOptions::new(4096 * per_chunk as u32));
        let expected = model(&records, per_chunk);
        prop_assert_eq!(requests.len(), expected.len());
        for (a, (request, (op, chunk, blocks))) in requests.iter().zip(&expected).enumerate() {
            prop_assert_eq!((request.op, request.lba), (*op, *chunk));
            for (other, (_, other_chunk, other_blocks)) in requests.iter().zip(&expected).take(a) {
                // An unknown block equals itself only.
                let is_known = blocks.iter().all(Option::is_some);
                let same = blocks == other_blocks && (is_known || chunk == other_chunk);
                let prints = (request.content.unwrap().fingerprint, other.content.unwrap().fingerprint);
                prop_assert_eq!(prints.0 == prints.1, same, "{:?} {:?}", blocks, other_blocks);
            }
        }
    }
}

#[test]
fn a_real_trace_of_sectors_becomes_blocks() {
    let Some(traces) = crate::common::traces("a_real_trace_of_sectors_becomes_blocks") else { return };
    let path = traces.join("public/fiu-iodedup-samples/homes-sample.1.blkparse");
    let open = || larder_trace::open(&path, None, larder_trace::ReaderOptions::default()).unwrap();
    let mut rechunker = Rechunker::new(RechunkOptions::new(4096)).unwrap();
    rechunker.learn(open()).unwrap();
    assert!(rechunker.memory_bytes() < 1 << 20, "{}", rechunker.memory_bytes());
    let requests: Vec<ChunkRequest> = rechunker.replay(open()).collect::<TraceResult<_>>().unwrap();
    // Each line has the eight sectors of a block.
    assert_eq!(requests.len(), 1000);
    assert!(requests.iter().all(|request| request.is_whole && request.content.unwrap().stored_bytes.is_none()));
}
