//! The requests: drawn ones, and the first chunks of the real traces.
//!
//! It does not make them.

use larder_core::{Fingerprint, Lba};
use larder_device::rng::{Rng, mix64};
use larder_engine::WriteMode;
use larder_sim::{
    cache::{CacheRequest, Content},
    replay::Batches,
};
use larder_trace::{ChunkRequest, FormatId, ReaderOptions, RechunkOptions, Rechunker, TraceResult};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

pub const CHUNK: usize = 4096;
pub const CHUNKS: u64 = 600;
pub const REQUESTS: usize = 3000;
/// Chunks taken from a trace.
const TRACE_REQUESTS: usize = 6000;
/// Chunks taken from a trace that is like another one.
const FEW_REQUESTS: usize = 1000;
/// Blocks of the disk of the daily images: the first image, and the changes of later ones.
const SNAPSHOT_BLOCKS: usize = 786_432;

/// A trace.
#[derive(Clone, Copy)]
struct Trace {
    /// The path below the folder of the traces.
    path: &'static str,
    /// The format of the trace, if the file does not name it.
    format: Option<FormatId>,
    /// Bytes of a block with a content.
    ///
    /// `None` for a trace without contents: then each address has a content of its own.
    block_bytes: Option<usize>,
    /// Skipped blocks, as whole chunks.
    skipped: usize,
    /// Chunks taken by default.
    sample: usize,
}

impl Trace {
    const fn new(path: &'static str, block_bytes: usize) -> Self {
        Trace { path, format: None, block_bytes: Some(block_bytes), skipped: 0, sample: TRACE_REQUESTS }
    }

    const fn of_addresses(path: &'static str, format: FormatId) -> Self {
        Trace { path, format: Some(format), block_bytes: None, skipped: 0, sample: TRACE_REQUESTS }
    }

    /// Takes few chunks, because another trace of the same format is as good.
    const fn few(self) -> Self {
        Trace { sample: FEW_REQUESTS, ..self }
    }

    const fn after(self, skipped: usize) -> Self {
        Trace { skipped, ..self }
    }
}

/// Our own traces, then published samples of few requests, with addresses that few requests share.
///
/// Then public ones of addresses alone. All of them, each with some chunks; of the daily images the
/// first, and the changes of the days after it.
const TRACES: [Trace; 21] = [
    Trace::new("apt-clones.trace.zst", 4096),
    Trace::new("devbuild.trace.zst", 4096),
    Trace::new("devbuild-smallmem.trace.zst", 4096),
    Trace::new("postgres-tpcb.trace.zst", 4096),
    Trace::new("vm-boot.trace.zst", 4096),
    Trace::new("snapshots.days.zst", 4096),
    Trace::new("snapshots.days.zst", 4096).after(SNAPSHOT_BLOCKS).few(),
    Trace::new("public/fiu-iodedup-samples/web-vm-sample.blkparse", 4096),
    Trace::new("public/fiu-iodedup-samples/mail-01-sample.blkparse", 4096),
    Trace::new("public/fiu-iodedup-samples/homes-sample.1.blkparse", 512),
    Trace::new("public/fiu-iodedup-samples/ricarkol/homes.replay.0", 512),
    Trace::new("public/fiu-iodedup-samples/ricarkol/mail.replay.0", 4096),
    Trace::new("public/austere-synthetic/syn-rw7to3-dup50.txt.zst", 32 << 10),
    Trace::of_addresses("public/arc-fast03/OLTP.lis.zst", FormatId::ArcLis),
    Trace::of_addresses("public/cloudphysics/cloudPhysicsIO.csv", FormatId::Csv),
    Trace::of_addresses("public/cloudphysics/w106.trace.xz", FormatId::BlockIds),
    Trace::of_addresses("public/cloudphysics/cloudPhysicsIO.oracleGeneral.bin", FormatId::OracleGeneral).few(),
    Trace::of_addresses("public/arc-fast03/P2.lis.zst", FormatId::ArcLis).few(),
    Trace::of_addresses("public/arc-fast03/P3.lis.zst", FormatId::ArcLis).few(),
    Trace::of_addresses("public/arc-fast03/P6.lis.zst", FormatId::ArcLis).few(),
    Trace::of_addresses("public/arc-fast03/P12.lis.zst", FormatId::ArcLis).few(),
];

/// Returns each real trace's name and first chunks, of `chunk` bytes.
///
/// Without a folder of traces it returns none, and says so.
pub fn of_traces(chunk: usize) -> impl Iterator<Item = (String, Vec<CacheRequest>)> {
    let found = folder();
    if found.is_none() {
        println!("skipped: the real traces (no folder shared/traces beside the checkout)");
    }
    let wanted = std::env::var("LARDER_REQUESTS").ok().map(|count| count.parse().expect("LARDER_REQUESTS is a number"));
    let named = std::env::var("LARDER_TRACES").unwrap_or_default();
    assert!(TRACES.iter().any(|trace| trace.path.contains(&named)), "LARDER_TRACES={named} names no trace");
    found.into_iter().flat_map(move |folder| {
        let named = named.clone();
        let chosen = TRACES.iter().filter(move |trace| trace.path.contains(&named));
        let requests = chosen.map(move |trace| {
            let name = match trace.skipped {
                0 => trace.path.to_owned(),
                skipped => format!("{} after {skipped} blocks", trace.path),
            };
            (name, of_trace(&folder, trace, wanted.unwrap_or(trace.sample), chunk))
        });
        requests.filter(|(_, requests)| !requests.is_empty())
    })
}

/// Returns the folder of the real traces.
fn folder() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().skip(2).take(2).map(|root| root.join("shared/traces")).find(|path| path.is_dir())
}

pub fn content_of(number: u64) -> Content {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: CHUNK as u32 }
}

/// Returns the bytes of a content, which do not compress.
///
/// Those that a number begins have zeroes for 0.
pub fn bytes_of(content: &Content) -> Vec<u8> {
    packed_bytes_of(&Content { stored_bytes: CHUNK as u32, ..*content }, CHUNK)
}

/// Returns `chunk` bytes of a content, which compress to about its stored length.
pub fn packed_bytes_of(content: &Content, chunk: usize) -> Vec<u8> {
    if content.is_zero() {
        return vec![0; chunk];
    }
    let half = |at| u64::from_le_bytes(std::array::from_fn(|i| content.fingerprint.0[at + i]));
    compressible(mix64(half(0)) ^ half(8), chunk, content.stored_bytes as usize)
}

/// Returns `chunk` bytes that compress to about `stored`.
pub fn compressible(seed: u64, chunk: usize, stored: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..chunk as u64 / 8).flat_map(|word| mix64(seed.wrapping_add(word << 32)).to_le_bytes()).collect();
    if stored < chunk {
        bytes[stored.saturating_sub(64).max(8)..].fill(0);
    }
    bytes
}

/// Draws addresses and contents, few of them frequent, as in a Zipf distribution.
///
/// The requests are writes, reads and trims.
pub fn drawn(seed: u64) -> Vec<CacheRequest> {
    let mut rng = Rng::new(seed);
    let skewed = |rng: &mut Rng, n: u64| (n as f64).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20)) as u64 % n;
    let requests = (0..REQUESTS).map(|_| {
        let lba = Lba(mix64(skewed(&mut rng, CHUNKS)) % CHUNKS);
        match rng.below(100) {
            0..55 => CacheRequest::Read(lba, Content { fingerprint: Content::ZEROES, stored_bytes: CHUNK as u32 }),
            55..57 => CacheRequest::Trim(lba, 1),
            _ => CacheRequest::Write(lba, content_of(skewed(&mut rng, 900))),
        }
    });
    requests.collect()
}

/// Returns true if the mode caches some of them: writes alone go around the cache in write-around.
pub fn caches_some(mode: WriteMode, requests: &[CacheRequest]) -> bool {
    mode != WriteMode::Around || requests.iter().any(|request| matches!(request, CacheRequest::Read(..)))
}

/// Returns the first chunks of a trace, of `chunk` bytes, after the skipped ones.
///
/// Addresses are numbered as they come, so that the volume is small. A trace's blocks are composed
/// to chunks. Larger ones, which cannot be divided, are taken for chunks as they are, stored in as
/// much less. In a trace of addresses alone, all accesses to a chunk are one. If the trace is
/// missing, it returns nothing and says so.
fn of_trace(traces: &Path, trace: &Trace, count: usize, chunk: usize) -> Vec<CacheRequest> {
    let (path, block) = (traces.join(trace.path), trace.block_bytes.unwrap_or(chunk));
    if !path.is_file() {
        println!("skipped: the trace {}", trace.path);
        return Vec::new();
    }
    let open = || larder_trace::open(&path, trace.format, ReaderOptions::default()).expect("the trace opens");
    let mut requests = if block < chunk {
        let mut rechunker = Rechunker::new(RechunkOptions::new(chunk as u32)).expect("a size");
        rechunker.learn(open()).expect("a sound trace");
        first_of(rechunker.replay(open()).skip(trace.skipped * block / chunk), chunk, count)
    } else {
        first_of(larder_trace::chunks(open(), block as u32).expect("a size").skip(trace.skipped), block, count)
    };
    // AustereCache's generator draws a content with another stored length each time; here it keeps
    // the first.
    let mut stored: HashMap<Fingerprint, u32> = HashMap::new();
    for request in &mut requests {
        if let CacheRequest::Read(_, content) | CacheRequest::Write(_, content) = request {
            let bytes = content.stored_bytes as usize;
            let bytes = if block > chunk { (bytes * chunk).div_ceil(block) } else { bytes };
            content.stored_bytes = *stored.entry(content.fingerprint).or_insert(bytes as u32);
        }
    }
    assert!(!requests.is_empty(), "{} is empty", trace.path);
    requests
}

fn first_of(chunks: impl Iterator<Item = TraceResult<ChunkRequest>>, chunk: usize, count: usize) -> Vec<CacheRequest> {
    let mut batches = Batches::new(chunks, chunk as u32);
    let mut numbers: HashMap<Lba, u64> = HashMap::new();
    let mut number = |lba: Lba| {
        let next = numbers.len() as u64;
        Lba(*numbers.entry(lba).or_insert(next))
    };
    let mut requests = Vec::new();
    while requests.len() < count {
        let batch = batches.next_batch().expect("a sound trace");
        if batch.is_empty() {
            break;
        }
        for request in batch {
            match *request {
                CacheRequest::Read(lba, content) => requests.push(CacheRequest::Read(number(lba), content)),
                CacheRequest::Write(lba, content) => requests.push(CacheRequest::Write(number(lba), content)),
                CacheRequest::Trim(first, count) => {
                    requests.extend((first.0..first.0 + count).map(|lba| CacheRequest::Trim(number(Lba(lba)), 1)));
                }
                CacheRequest::Flush => requests.push(CacheRequest::Flush),
                // The trace does not tell the content after that.
                CacheRequest::Forget(..) => {}
            }
        }
    }
    requests.truncate(count);
    requests
}

/// Settles the reads on the volume's content, and returns the first content.
///
/// That is the last write, or the content of the first read.
pub fn settled(requests: &mut [CacheRequest]) -> Vec<Content> {
    let mut before: Vec<Option<Content>> = Vec::new();
    let mut now: HashMap<Lba, Content> = HashMap::new();
    let mut set = |lba: Lba, content: Option<Content>| {
        let size = before.len().max(lba.0 as usize + 1);
        before.resize(size, None);
        if let (true, Some(content)) = (before[lba.0 as usize].is_none(), content) {
            before[lba.0 as usize] = Some(content);
        }
    };
    for request in requests {
        match request {
            CacheRequest::Read(lba, content) => match now.get(lba) {
                Some(known) => *content = *known,
                None => {
                    set(*lba, Some(*content));
                    now.insert(*lba, *content);
                }
            },
            CacheRequest::Write(lba, content) => {
                set(*lba, None);
                now.insert(*lba, *content);
            }
            CacheRequest::Trim(lba, _) => {
                set(*lba, None);
                now.insert(*lba, content_of(0));
            }
            CacheRequest::Forget(..) | CacheRequest::Flush => {}
        }
    }
    before.into_iter().map(|content| content.unwrap_or_else(|| content_of(0))).collect()
}
