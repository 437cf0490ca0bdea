//! Re-chunking against a model that holds every block of every chunk and makes each chunk anew.
//!
//! All fields of all requests are equal. Some traces touch a block here and there, others nearly
//! all blocks, with trims of any length.

use std::collections::{BTreeMap, BTreeSet};

use larder_trace::{
    ChunkRequest, ContentId, Initial, Op, Provenance, RechunkOptions, Rechunker, Record, TraceContent, TraceResult,
    Unknown, chunks, zero,
};
use proptest::{prelude::*, test_runner::RngSeed};
use twox_hash::XxHash3_128;

/// The seed of all cases of a run; a failure prints the case.
const SEED: RngSeed = RngSeed::Fixed(20_261);

/// The content of a block; `None` is unknown.
type Held = Option<TraceContent>;

const TRIMMED: TraceContent =
    TraceContent { fingerprint: zero::XXH3_4K, stored_bytes: None, is_zero: true, provenance: Provenance::Recorded };

struct Model {
    options: RechunkOptions,
    block_bytes: u64,
    has_sizes: bool,
    /// Every block of every chunk that is read or written.
    disk: BTreeMap<u64, Held>,
}

/// Returns the whole blocks of a trim.
fn whole_blocks(trim: &Record, block_bytes: u64) -> std::ops::Range<u64> {
    let first = trim.offset_bytes.div_ceil(block_bytes);
    first..(trim.end_bytes() / block_bytes).max(first)
}

impl Model {
    /// Runs pass 1.
    fn new(records: &[Record], options: RechunkOptions) -> Model {
        let data = || records.iter().filter(|record| record.is_data());
        let block_bytes = data().next().map_or(1, |record| record.len_bytes);
        let per_chunk = u64::from(options.chunk_bytes) / block_bytes;
        let chunks: BTreeSet<u64> = data().map(|record| record.offset_bytes / u64::from(options.chunk_bytes)).collect();
        let mut disk: BTreeMap<u64, Held> =
            chunks.iter().flat_map(|chunk| chunk * per_chunk..(chunk + 1) * per_chunk).map(|at| (at, None)).collect();
        let mut touched = BTreeSet::new();
        for record in records {
            match record.op {
                Op::Flush => {}
                Op::Trim => touched.extend(disk.range(whole_blocks(record, block_bytes)).map(|(&at, _)| at)),
                Op::Read | Op::Write => {
                    let at = record.offset_bytes / block_bytes;
                    let tells = record.op == Op::Read || options.initial == Initial::FirstSeen;
                    if touched.insert(at) && tells {
                        disk.insert(at, record.content);
                    }
                }
            }
        }
        let has_sizes = data().any(|record| record.content.is_some_and(|content| content.stored_bytes.is_some()));
        Model { options, block_bytes, has_sizes, disk }
    }

    /// Runs pass 2.
    fn requests(&mut self, records: &[Record]) -> Vec<ChunkRequest> {
        let chunk_bytes = u64::from(self.options.chunk_bytes);
        let mut requests: Vec<ChunkRequest> = Vec::new();
        let mut before = None;
        for record in records {
            if !record.is_data() {
                for (_, held) in self.disk.range_mut(whole_blocks(record, self.block_bytes)) {
                    *held = Some(TRIMMED);
                }
                requests.extend(
                    chunks([Ok(*record)], self.options.chunk_bytes)
                        .expect("a size")
                        .map(|request| request.expect("a trim")),
                );
                before = None;
                continue;
            }
            self.disk.insert(record.offset_bytes / self.block_bytes, record.content);
            let chunk = record.offset_bytes / chunk_bytes;
            let (mut start, mut end) = (record.offset_bytes % chunk_bytes, record.end_bytes() - chunk * chunk_bytes);
            let mut first = *record;
            if before == Some((record.request, record.op, chunk)) {
                let joined = requests.pop().expect("one before");
                start = start.min(u64::from(joined.start_bytes));
                end = end.max(u64::from(joined.start_bytes + joined.len_bytes));
                (first.time_us, first.tag) = (joined.time_us, joined.tag);
            }
            before = Some((record.request, record.op, chunk));
            requests.push(ChunkRequest {
                time_us: first.time_us,
                request: first.request,
                tag: first.tag,
                op: first.op,
                lba: chunk,
                chunk_count: 1,
                start_bytes: start as u32,
                len_bytes: (end - start) as u32,
                is_whole: end - start == chunk_bytes,
                content: Some(self.compose(chunk)),
            });
        }
        requests
    }

    fn compose(&self, chunk: u64) -> TraceContent {
        let per_chunk = u64::from(self.options.chunk_bytes) / self.block_bytes;
        let blocks: Vec<(u64, Held)> =
            (chunk * per_chunk..(chunk + 1) * per_chunk).map(|at| (at, self.disk[&at])).collect();
        let unknown_is_zero = self.options.unknown == Unknown::Zero;
        let prints: Vec<ContentId> = blocks
            .iter()
            .map(|(at, held)| match held {
                Some(content) if content.is_zero => zero::XXH3_4K,
                Some(content) => content.fingerprint,
                None if unknown_is_zero => zero::XXH3_4K,
                None => {
                    let seed = u64::from_be_bytes(*b"unwritte");
                    ContentId::from_u128(XxHash3_128::oneshot_with_seed(seed, &at.to_be_bytes()))
                }
            })
            .collect();
        let is_zero = blocks.iter().all(|(_, held)| held.map_or(unknown_is_zero, |content| content.is_zero));
        let fingerprint = match &prints[..] {
            _ if is_zero => zero::XXH3_4K,
            [one] => *one,
            all => {
                let bytes: Vec<u8> = all.iter().flat_map(|print| print.to_u128().to_be_bytes()).collect();
                ContentId::from_u128(XxHash3_128::oneshot(&bytes))
            }
        };
        let held = blocks.iter().filter_map(|(_, held)| *held);
        let provenance = held.map(|content| content.provenance).max().unwrap_or_default();
        TraceContent { fingerprint, stored_bytes: self.stored_bytes(&blocks), is_zero, provenance }
    }

    fn stored_bytes(&self, blocks: &[(u64, Held)]) -> Option<u32> {
        let zeroes = self.block_bytes.div_ceil(255) + 9;
        let (mut sum, mut known, mut unknown) = (0, 0, 0);
        for (_, held) in blocks {
            let size = match held {
                None if self.options.unknown == Unknown::Unique => {
                    unknown += 1;
                    continue;
                }
                None => zeroes,
                Some(TraceContent { stored_bytes: Some(bytes), .. }) => u64::from(*bytes),
                Some(content) if content.is_zero => zeroes,
                Some(_) => return None,
            };
            sum += size;
            known += 1;
        }
        let rest = if known == 0 { unknown * self.block_bytes } else { (sum * unknown).div_ceil(known) };
        self.has_sizes.then_some((sum + rest).min(u64::from(self.options.chunk_bytes)) as u32)
    }
}

/// One step of a trace, before the size of blocks is known.
#[derive(Clone, Debug)]
enum Step {
    /// Consecutive blocks: read or not, the first, the count, and the first's content.
    Access(bool, u64, u64, u64),
    /// A trim, in units of 512 bytes: the first, and the count.
    Trim(u64, u64),
    Flush,
}

/// Draws places near one another, and few far away.
fn place() -> impl Strategy<Value = u64> {
    let base = prop::sample::select(vec![0u64, 0, 0, 1 << 12, 1 << 30, 1 << 50]);
    (base, 0u64..96).prop_map(|(base, at)| base + at)
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 1u64..200, 1 => 200u64..5000, 1 => Just(1 << 49)];
    prop_oneof![
        12 => (any::<bool>(), place(), 1u64..12, 0u64..9).prop_map(|(is_read, at, count, content)| {
            Step::Access(is_read, at, count, content)
        }),
        3 => (place(), len).prop_map(|(at, len)| Step::Trim(at, len)),
        1 => Just(Step::Flush),
    ]
}

fn records(steps: &[Step], block_bytes: u64, sizes: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for (n, step) in (0u64..).zip(steps) {
        let base = Record { time_us: n.is_multiple_of(3).then_some(n), ..Record::new(n, Op::Flush, 0, 0) };
        match *step {
            Step::Flush => records.push(base),
            Step::Trim(at, len) => {
                records.push(Record { op: Op::Trim, offset_bytes: at * 512, len_bytes: len * 512, ..base });
            }
            Step::Access(is_read, at, count, first) => records.extend((0..count).map(|block| {
                let content = (first + block) % 9;
                let is_zero = content == 0;
                let content = TraceContent {
                    fingerprint: if is_zero { zero::XXH3_4K } else { ContentId([content << 60, content]) },
                    // None, all, or some have sizes.
                    stored_bytes: (sizes > content % 3).then_some((content * 977 % block_bytes) as u32 + 1),
                    is_zero,
                    provenance: [Provenance::Recorded, Provenance::SizeMade, Provenance::Made][(content % 3) as usize],
                };
                let op = if is_read { Op::Read } else { Op::Write };
                // A place counts in 512 bytes or in blocks, so that trims cut blocks, and whole
                // chunks are touched.
                Record {
                    op,
                    offset_bytes: (at + block) * block_bytes,
                    len_bytes: block_bytes,
                    content: Some(content),
                    ..base
                }
            })),
        }
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, rng_seed: SEED, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_requests_are_as_the_model_has_them(
        steps in prop::collection::vec(step(), 1..60),
        block_bytes in prop::sample::select(vec![512u64, 4096]),
        chunk_bytes in prop::sample::select(vec![4096u32, 8192, 32 << 10, 128 << 10, 256 << 10]),
        sizes in 0u64..4,
        zero_unknown: bool,
        first_seen: bool,
    ) {
        let records = records(&steps, block_bytes, sizes);
        let all = || records.iter().copied().map(Ok);
        let options = RechunkOptions {
            chunk_bytes,
            unknown: if zero_unknown { Unknown::Zero } else { Unknown::Unique },
            initial: if first_seen { Initial::FirstSeen } else { Initial::FirstRead },
        };
        let expected = Model::new(&records, options).requests(&records);
        let mut rechunker = Rechunker::new(options).unwrap();
        rechunker.learn(all()).unwrap();
        let requests: Vec<ChunkRequest> = rechunker.replay(all()).collect::<TraceResult<_>>().unwrap();
        prop_assert_eq!(requests.len(), expected.len());
        for (at, (request, expected)) in requests.iter().zip(&expected).enumerate() {
            prop_assert_eq!(request, expected, "request {}", at);
        }
        let outline = Rechunker::new(options).unwrap().outline(all());
        let outline: Vec<ChunkRequest> = outline.collect::<TraceResult<_>>().unwrap();
        let bare: Vec<ChunkRequest> =
            expected.iter().map(|request| ChunkRequest { content: None, ..*request }).collect();
        prop_assert_eq!(outline, bare);
    }
}
