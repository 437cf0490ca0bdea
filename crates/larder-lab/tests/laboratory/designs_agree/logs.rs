//! All designs: the engine logs its decisions, and the simulator makes the same by itself. It
//! follows the requests and the order of the decisions ([`larder_follow`]).
//!
//! Each hit and miss, each place, each segment's length, and each evicted WEU is one line of the
//! log. Both write as many bytes of segments and evictions after each request, or after each round
//! of concurrent ones. Requests have several chunks and parts of chunks; completions come in any
//! order; destaging, evictions and commits go on beside them.
//!
//! Some things differ by nature, and are not compared: the frames of the metadata log, and the
//! committer's moments for checkpoints. [`written`](super::written) checks the rules for those
//! bytes. The log tells the beginnings and ends: no simulator without time knows when a fill is
//! over, a slot free, or a chunk destaged.

use super::{
    requests::{CHUNK, compressible, of_traces, packed_bytes_of, settled},
    written::Ledger,
};
use larder_device::{
    IoBuf, Runtime, SharedBuf, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{Schedule, SimDevice, SimOptions, SimRuntime},
};
use larder_engine::{Cache, Compression, CreateOptions, Tuning, WriteMode, create, decision_log::DecisionLog, designs};
use larder_follow::{
    replay::{Decided, DecisionReplay, replay},
    text::{FIRST_LINE, line},
};
use larder_format::StoreKind;
use larder_sim::cache::{CacheRequest, Content};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc};

const MODES: [WriteMode; 3] = [WriteMode::Back, WriteMode::Through, WriteMode::Around];
/// Chunks of the volume of drawn requests.
const VOLUME_CHUNKS: u64 = 4000;
/// Contents of drawn requests.
const CONTENTS: u64 = 20_000;
const DRAWN: usize = 8000;
/// Chunks that compress have so many bytes for some seeds: parts of them may be slots.
const PACKED_CHUNK: usize = 4 * CHUNK;
/// Kinds of events that must occur.
const EVENTS: [&str; 13] = [
    "use",
    "merge",
    "look",
    "fragment",
    "change",
    "trim",
    "full",
    "told",
    "taken",
    "evict",
    "release",
    "clean",
    "clean-run",
];
/// So small that most chunks must go again.
const FLASH_BYTES: u64 = 8 << 20;
/// Clients at the same time.
const CLIENTS: usize = 16;
/// Requests of a client in a round.
const ROUND: usize = 8;
/// The most chunks of a trace that become one request.
const JOINED_MAX: usize = 8;

/// A request.
#[derive(Clone)]
enum Asked {
    Read(u64, usize),
    Write(u64, Written, bool),
    Trim(u64, u64),
    Flush,
}

/// The content of a write.
#[derive(Clone)]
enum Written {
    Bytes(SharedBuf),
    Chunks(Vec<Content>),
}

impl Written {
    fn bytes(self, chunk: usize) -> SharedBuf {
        match self {
            Written::Bytes(bytes) => bytes,
            Written::Chunks(chunks) => {
                let bytes = chunks.iter().flat_map(|content| packed_bytes_of(content, chunk));
                IoBuf::copy_of(&bytes.collect::<Vec<u8>>()).freeze()
            }
        }
    }
}

/// Returns one of the contents of drawn requests: some are zero, some do not compress.
fn drawn_bytes(rng: &mut Rng, chunk: usize) -> Vec<u8> {
    match skewed(rng, CONTENTS) {
        0 => vec![0; chunk],
        number if number % 2 == 0 => compressible(mix64(number), chunk, chunk),
        number => compressible(mix64(number), chunk, 200 + (number * 97 % (chunk as u64 - 300)) as usize),
    }
}

fn skewed(rng: &mut Rng, n: u64) -> u64 {
    (n as f64).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20)) as u64 % n
}

/// Returns requests of one to five chunks, and of some sectors anywhere.
///
/// Few addresses and contents are frequent.
fn drawn(seed: u64, chunk: usize) -> Vec<Asked> {
    let mut rng = Rng::new(seed);
    let requests = (0..DRAWN).map(|_| {
        let first = mix64(skewed(&mut rng, VOLUME_CHUNKS)) % VOLUME_CHUNKS;
        let (mut offset, mut len) = (first * chunk as u64, chunk * (1 + skewed(&mut rng, 5) as usize));
        if rng.below(4) == 0 {
            let sectors = (chunk / 512) as u64;
            offset += rng.below(sectors) * 512;
            len = 512 * (1 + rng.below(5 * sectors / 2) as usize);
        }
        let len = len.min((VOLUME_CHUNKS * chunk as u64 - offset) as usize);
        match rng.below(100) {
            0..50 => Asked::Read(offset, len),
            50..53 => Asked::Trim(offset, len as u64),
            53..56 => Asked::Flush,
            _ => {
                let at = (offset % chunk as u64) as usize;
                let mut data = Vec::new();
                while data.len() < at + len {
                    data.extend(drawn_bytes(&mut rng, chunk));
                }
                Asked::Write(offset, Written::Bytes(IoBuf::copy_of(&data[at..at + len]).freeze()), rng.below(20) == 0)
            }
        }
    });
    requests.collect()
}

/// Returns the requests of a trace, with neighbours joined to one.
fn joined(requests: &[CacheRequest]) -> Vec<Asked> {
    let lba_of = |request: &CacheRequest| match request {
        CacheRequest::Read(lba, _) | CacheRequest::Write(lba, _) | CacheRequest::Trim(lba, _) => Some(lba.0),
        CacheRequest::Forget(..) | CacheRequest::Flush => None,
    };
    let mut len = 0;
    let runs = requests.chunk_by(move |a, b| {
        len += 1;
        let is_next = lba_of(a).is_some_and(|lba| lba_of(b) == Some(lba + 1));
        let joins = is_next && len < JOINED_MAX && std::mem::discriminant(a) == std::mem::discriminant(b);
        if !joins {
            len = 0;
        }
        joins
    });
    let asked = runs.map(|run| {
        let offset = lba_of(&run[0]).unwrap_or_default() * CHUNK as u64;
        match run[0] {
            CacheRequest::Read(..) => Asked::Read(offset, run.len() * CHUNK),
            CacheRequest::Write(..) => {
                let chunks = run.iter().filter_map(|request| match request {
                    CacheRequest::Write(_, content) => Some(*content),
                    _ => None,
                });
                Asked::Write(offset, Written::Chunks(chunks.collect()), false)
            }
            CacheRequest::Trim(..) => Asked::Trim(offset, (run.len() * CHUNK) as u64),
            CacheRequest::Forget(..) | CacheRequest::Flush => Asked::Flush,
        }
    });
    asked.collect()
}

async fn make(cache: &Cache, asked: &Asked, chunk: usize) {
    let failed = match asked.clone() {
        Asked::Read(offset, len) => cache.read(offset, IoBuf::new(len)).await.err().map(|error| error.to_string()),
        Asked::Write(offset, data, fua) => {
            cache.write(offset, data.bytes(chunk), WriteFlags { fua }).await.err().map(|error| error.to_string())
        }
        Asked::Trim(offset, len) => {
            cache.zero(offset, len, ZeroFlags::default()).await.err().map(|error| error.to_string())
        }
        Asked::Flush => cache.flush().await.err().map(|error| error.to_string()),
    };
    assert_eq!(failed, None);
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run<'a> {
    design: &'static str,
    mode: WriteMode,
    flash_bytes: u64,
    chunk: usize,
    /// The content of the volume before the run.
    before: &'a [Content],
    volume_chunks: u64,
    asked: &'a [Asked],
    /// Clients, each with a request at a time.
    clients: usize,
    schedule: Schedule,
    seed: u64,
    compression: Compression,
}

impl Run<'_> {
    fn of(design: &'static str) -> Self {
        Run {
            design,
            mode: WriteMode::Back,
            flash_bytes: FLASH_BYTES,
            chunk: CHUNK,
            before: &[],
            volume_chunks: VOLUME_CHUNKS,
            asked: &[],
            clients: 1,
            schedule: Schedule::Timed,
            seed: 1,
            compression: Compression::Lz4,
        }
    }
}

/// Returns the engine's own counts.
fn counted(cache: &Cache) -> Decided {
    let counts = cache.status().counts;
    Decided {
        read_hits: counts.read_hits,
        read_misses: counts.read_misses,
        records: counts.stored_records,
        stored_bytes: counts.stored_bytes,
        duplicates: counts.duplicate_chunks,
        segment_bytes: counts.flash_segment_bytes_written,
        slots_evicted: counts.evicted_slots,
    }
}

/// The simulator, which replays the logged decisions and must reach the engine's counts.
struct Follower {
    lines: Arc<Mutex<Vec<String>>>,
    replay: DecisionReplay,
    number: u64,
    /// The whole log.
    log: String,
}

impl Follower {
    fn follow(&mut self, cache: &Cache, what: &str) {
        // The status takes the lock alone, so that uses that wait are told before it.
        let counted = counted(cache);
        for line in std::mem::take(&mut *self.lines.lock()) {
            self.number += 1;
            let decided = self.replay.line(self.number, &line);
            if let Err(error) = decided {
                let before: Vec<&str> = self.log.lines().rev().take(20).collect();
                panic!("{what}: {error}\nafter\n{}", before.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
            self.log += &line;
            self.log.push('\n');
        }
        assert_eq!(counted, self.replay.decided(), "{what}: engine and simulator");
    }
}

/// Makes the requests, and returns the log and the common counts.
fn follow(run: &Run<'_>, what: &str) -> (String, Decided) {
    let options = SimOptions { schedule: run.schedule, steps_max: u64::MAX, ..SimOptions::default() };
    let runtime = SimRuntime::with_options(run.seed, options);
    let volume_bytes = run.volume_chunks * run.chunk as u64;
    let flash = SimDevice::new(&runtime, "flash", run.flash_bytes, 512);
    let origin = SimDevice::new(&runtime, "origin", volume_bytes, 512);
    for (lba, content) in run.before.iter().enumerate().filter(|(_, content)| !content.is_zero()) {
        origin.poke((lba * run.chunk) as u64, &packed_bytes_of(content, run.chunk));
    }
    let mut options = CreateOptions {
        mode: run.mode,
        chunk_bytes: run.chunk as u32,
        slot_bytes: 512 << 10,
        compression: run.compression,
        hash_key: [3; 32],
        ..CreateOptions::default()
    };
    designs::named(run.design).expect("the engine runs it").fit(&mut options);
    let made = runtime.block_on(create(&*flash, volume_bytes, &options)).expect("it is made");
    let ledger = Ledger::of(&made);
    let flash = ledger.watch(flash);
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let (sink, noted) = (lines.clone(), ledger.clone());
    let decisions = DecisionLog::to(move |event, answer| {
        noted.decided(event, answer);
        sink.lock().push(line(event, answer));
    });
    let mut tuning = Tuning { prefetch_bytes_max: 0, decisions, ..Tuning::default() };
    if run.clients > 1 {
        // Reads look beside each other from the first on.
        tuning.share_after_reads = 0;
    }
    let cache = runtime.block_on(Cache::open(flash, origin, runtime.clone(), tuning)).expect("it opens");
    let cache = Arc::new(cache);
    let mut follower = Follower { lines, replay: DecisionReplay::default(), number: 1, log: format!("{FIRST_LINE}\n") };
    let round = if run.clients == 1 { 1 } else { run.clients * ROUND };
    for (number, round) in run.asked.chunks(round).enumerate() {
        let clients: Vec<_> = (0..run.clients)
            .map(|client| {
                let mine: Vec<Asked> = round.iter().skip(client).step_by(run.clients).cloned().collect();
                let (cache, chunk, (completer, over)) = (cache.clone(), run.chunk, larder_device::IoFuture::pending());
                runtime.spawn(Box::pin(async move {
                    for asked in &mine {
                        make(&cache, asked, chunk).await;
                    }
                    completer.complete(Ok(()));
                }));
                over
            })
            .collect();
        for over in clients {
            runtime.block_on(over).expect("a client comes to its end");
        }
        follower.follow(&cache, &format!("{what}, round {number}"));
    }
    runtime.block_on(cache.wait_for_insertions());
    runtime.block_on(cache.close()).expect("it closes");
    follower.follow(&cache, what);
    let written = ledger.check(&cache, what);
    assert_eq!(written.slots, follower.replay.decided().segment_bytes, "{what}: the device and the simulator");
    runtime.kill();
    (follower.log, follower.replay.decided())
}

/// Runs in each mode, alone and among others, and returns the kinds of events.
fn agrees_on(what: &str, run: &Run<'_>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for mode in MODES {
        for (clients, schedule) in
            [(1, Schedule::Timed), (1, Schedule::Chaos), (CLIENTS, Schedule::Timed), (CLIENTS, Schedule::Chaos)]
        {
            let run = Run { mode, clients, schedule, ..*run };
            let what = format!("{}, {what}, {mode:?}, {clients} clients, {schedule:?}", run.design);
            let (log, decided) = follow(&run, &what);
            assert_eq!(replay(log.as_bytes()), Ok(decided), "{what}: the log as a file");
            println!("{what}: {} lines, {decided:?}", log.lines().count());
            let caches_some =
                mode != WriteMode::Around || run.asked.iter().any(|asked| matches!(asked, Asked::Read(..)));
            assert_eq!(decided.records > 0, caches_some, "{what}: something was cached");
            seen.extend(log.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned));
        }
    }
    seen
}

fn agrees(design: &'static str) {
    for seed in 1..4 {
        let (chunk, compression) =
            if seed == 2 { (PACKED_CHUNK, Compression::Zstd) } else { (CHUNK, Compression::Lz4) };
        let asked = drawn(seed, chunk);
        let run = Run { asked: &asked, seed, chunk, compression, ..Run::of(design) };
        let seen = agrees_on(&format!("seed {seed}"), &run);
        // Only events that can occur are required. A slot for one record is never found full, and a
        // design without contents never looks one up.
        let kind = designs::named(design).expect("the engine runs it");
        let is_seen = |event: &str| match event {
            "full" => kind.kind() == StoreKind::Weus,
            "look" => kind.can_share(),
            "told" | "taken" => kind.kind() == StoreKind::Buckets,
            _ => true,
        };
        for event in EVENTS {
            assert_eq!(seen.contains(event), is_seen(event), "{design}, seed {seed}: `{event}` among {seen:?}");
        }
    }
    for (trace, mut requests) in of_traces(CHUNK) {
        let before = settled(&mut requests);
        let flash_bytes = FLASH_BYTES.max((requests.len() / 16 * CHUNK) as u64);
        let (asked, volume_chunks) = (joined(&requests), before.len() as u64);
        agrees_on(&trace, &Run { flash_bytes, before: &before, volume_chunks, asked: &asked, ..Run::of(design) });
    }
}

/// Defines a test for each design, and the names of all that have one.
macro_rules! decide_alike {
    ($($test:ident: $design:literal,)+) => {
        $(
            #[test]
            fn $test() {
                agrees($design);
            }
        )+

        const TESTED: &[&str] = &[$($design),+];
    };
}

decide_alike! {
    nitro_decides_alike: "nitro",
    cd_arc_decides_alike: "cd-arc",
    d_lru_decides_alike: "d-lru",
    d_arc_decides_alike: "d-arc",
    lru_decides_alike: "lru",
    arc_decides_alike: "arc",
    austere_decides_alike: "austere",
    larder_decides_alike: "larder",
}

#[test]
fn every_design_of_the_engine_has_a_test() {
    let designs: BTreeSet<&str> = designs::ENGINE_DESIGNS.iter().map(|design| design.name).collect();
    assert_eq!(designs, TESTED.iter().copied().collect());
}
