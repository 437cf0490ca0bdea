//! Time of a whole cache: single requests to the nanosecond, and random requests on every design.
//!
//! The tests of single requests cover their waits. Random requests have the hits of a replay
//! without time, and are each answered once.

use crate::common::{Rng, for_seeds};
use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{CacheRequest, Content, ReplayCache, WritePolicy},
    lab::LabListener,
    measure::Meter,
    origin::{
        OriginModel,
        profile::{NetworkFigures, OriginFigures as Medium, OriginProfile},
    },
    setup::{Built, FlashAmount, Options, REPLAY_DESIGNS, ReplayDesign, Setup, drive::DriveSetup},
    tally::Tally,
    whole::{ClientRequest, ReplayPace, Whole, drive::fitted, figures::TimedFigures, uncached::Uncached},
};
use larder_ssd::{
    geometry::DriveGeometry,
    kinds::FtlKind,
    profile::{DriveProfile, Timing},
    time::Nanos,
};
use larder_trace::{Op, TraceError};

const CHUNK: u32 = 8192;
const SIZE: u64 = 1 << 38;
/// The times of most tests' origin: its gate, and its latency.
const GATE: Nanos = 1_000_000;
const LATENCY: Nanos = 7_000_000;
const READ: Nanos = 50_000;
const BUS: Nanos = 41_000;

fn content(number: u64) -> Content {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: CHUNK }
}

fn network() -> OriginModel {
    let figures = NetworkFigures {
        read_ns: LATENCY,
        write_ns: LATENCY,
        operations_per_second: 1_000,
        operation_bytes: 1 << 20,
        bytes_per_second: 1_000_000_000_000,
    };
    let profile = OriginProfile { name: "test", about: "round numbers", figures: Medium::Network(figures) };
    OriginModel::new(&profile, SIZE).expect("it is sound")
}

fn named(name: &str) -> OriginModel {
    OriginModel::new(&OriginProfile::named(name).expect("it is one"), SIZE).expect("it is sound")
}

fn profile() -> DriveProfile {
    let profile = DriveProfile::named("nitro-mlc").expect("it is one");
    DriveProfile { timing: Timing { read_ns: READ, transfer_ns: BUS, ..profile.timing }, ..profile }
}

fn cache_of(design: &'static ReplayDesign, policy: WritePolicy, chunks: u64) -> Box<dyn ReplayCache> {
    let flash = FlashAmount::DataChunks(chunks);
    let setup = Setup { design, chunk_bytes: CHUNK, flash, policy, options: Options::default() };
    setup.build(100_000).unwrap_or_else(|why| panic!("{}: {why}", design.name)).cache
}

fn nitro(policy: WritePolicy, chunks: u64) -> Box<dyn ReplayCache> {
    cache_of(ReplayDesign::named("nitro").expect("it is one"), policy, chunks)
}

fn whole(cache: Box<dyn ReplayCache>, origin: OriginModel) -> Whole {
    let ftl = FtlKind::named("page-trim").expect("it is one");
    let (drive, profile) = fitted(&profile(), ftl, cache.flash_span_bytes()).expect("a drive");
    Whole::new(cache, Some((drive, &profile)), origin).expect("it fits")
}

fn uncached(origin: OriginModel) -> Whole {
    Whole::new(Box::new(Uncached::new(CHUNK)), None, origin).expect("nothing has to fit")
}

fn client(at: Nanos, op: Op, chunks: Vec<CacheRequest>) -> ClientRequest {
    ClientRequest { at: Some(at), op, chunks }
}

fn read(at: Nanos, lba: u64) -> ClientRequest {
    client(at, Op::Read, vec![CacheRequest::Read(Lba(lba), content(lba))])
}

fn write(at: Nanos, lba: u64) -> ClientRequest {
    client(at, Op::Write, vec![CacheRequest::Write(Lba(lba), content(lba))])
}

fn flush(at: Nanos) -> ClientRequest {
    client(at, Op::Flush, vec![CacheRequest::Flush])
}

fn run(
    whole: &mut Whole,
    requests: impl IntoIterator<Item = ClientRequest>,
    pace: ReplayPace,
    warmup: u64,
) -> TimedFigures {
    whole.run(requests.into_iter().map(Ok), pace, warmup).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn without_a_cache_a_request_is_the_origins() {
    let requests = [read(0, 5), write(1_000, 6), read(20_000_000, 7)];
    let figures = run(&mut uncached(network()), requests, ReplayPace::Own, 0);
    assert_eq!(figures.reads.mean_ns(), (GATE + LATENCY) as f64);
    assert_eq!(figures.writes.mean_ns(), (2 * GATE + LATENCY - 1_000) as f64, "it passes the gate behind the first");
    assert_eq!((figures.elapsed_ns, figures.drive_utilisation), (20_000_000 + GATE + LATENCY, None));
    let share = (3 * GATE) as f64 / figures.elapsed_ns as f64;
    assert!((figures.origin_utilisation - share).abs() < 1e-9, "{}", figures.origin_utilisation);
}

#[test]
fn neighbours_of_one_request_are_one_request_of_the_origin() {
    let chunks = (10..18).map(|lba| CacheRequest::Read(Lba(lba), content(lba))).collect();
    let figures = run(&mut uncached(network()), [client(0, Op::Read, chunks)], ReplayPace::Own, 0);
    assert_eq!((figures.origin.reads, figures.origin.bytes_read), (1, 8 * u64::from(CHUNK)));
    assert_eq!((figures.reads.mean_ns(), figures.tally.reads), ((GATE + LATENCY) as f64, 8));
}

#[test]
fn a_miss_is_the_origins_and_a_hit_the_drives() {
    // Until the first is in a segment on flash, it is in memory; a flush puts it there.
    let later = 1_000_000_000;
    let mut whole = whole(nitro(WritePolicy::Back, 1000), network());
    let requests = [write(0, 5), read(1_000, 5), flush(2_000), read(later, 5), read(2 * later, 6)];
    let figures = run(&mut whole, requests, ReplayPace::Own, 0);
    assert_eq!((figures.tally.read_hits, figures.writes.max_ns()), (2, 0), "memory has a write at once");
    // From the buffer of the drive, from memory, and from the origin: in order of time.
    let link = profile().link_ns();
    assert_eq!(figures.reads.percentile_ns(1.0), 0);
    let pages = 2;
    let hit = figures.reads.percentile_ns(60.0);
    assert!(hit >= READ + BUS + link && hit <= (READ + pages * (BUS + link)) * 1001 / 1000, "{hit}");
    assert_eq!(figures.reads.max_ns() / 10_000, (GATE + LATENCY) / 10_000);
    assert!(figures.flushes.max_ns() >= 1_300_000, "a flush waits for the program of its segment");
}

#[test]
fn write_through_waits_for_the_origin_and_not_for_insertions() {
    let later = 1_000_000_000;
    let mut whole = whole(nitro(WritePolicy::Through, 1000), network());
    let figures = run(&mut whole, [write(0, 5), read(later, 6), read(2 * later, 6)], ReplayPace::Own, 0);
    assert_eq!(figures.writes.mean_ns(), (GATE + LATENCY) as f64);
    assert_eq!(figures.tally.read_hits, 1);
    assert_eq!(figures.reads.max_ns() / 10_000, (GATE + LATENCY) / 10_000, "a miss waits for no flash");
}

/// Evicted dirty chunks are written to the origin. Writes are no faster than these, once the
/// reserve is used.
#[test]
fn at_full_load_writes_wait_for_the_room_that_evictions_make() {
    let mut whole = whole(nitro(WritePolicy::Back, 2000), network());
    let count = 20_000;
    // Every eighth chunk, so that none is another's neighbour.
    let requests = (0..count).map(|number| write(0, 8 * number));
    let figures = run(&mut whole, requests, ReplayPace::Full(4), count / 2);
    assert_eq!(figures.writes.count(), count / 2);
    let destaged = figures.origin.writes as f64;
    assert!(destaged > 0.9 * (count / 2) as f64, "{destaged} of {} leave", count / 2);
    // 8 at a time through a gate of 1 ms, each 7 ms behind it: one a millisecond.
    let least = destaged * GATE as f64;
    assert!(figures.elapsed_ns as f64 > 0.95 * least, "{} ns, {least} of the origin", figures.elapsed_ns);
    assert!((figures.elapsed_ns as f64) < 1.2 * least, "{} ns, {least} of the origin", figures.elapsed_ns);
    assert!(figures.writes.mean_ns() > 2.0 * GATE as f64, "{}", figures.writes.mean_ns());
    assert!(figures.origin_utilisation > 0.9, "{}", figures.origin_utilisation);
    // At a pace that the origin can follow, writes wait for nothing.
    let mut whole = self::whole(nitro(WritePolicy::Back, 2000), network());
    let requests = (0..count).map(|number| write(number * 3 * GATE, 8 * number));
    let figures = run(&mut whole, requests, ReplayPace::Own, count / 2);
    assert!(figures.writes.percentile_ns(95.0) == 0, "{}", figures.writes.percentile_ns(95.0));
}

#[test]
fn more_outstanding_take_less_time_and_longer_each() {
    let mut rng = Rng::new(8);
    let lbas: Vec<u64> = (0..3000).map(|_| rng.below(SIZE / u64::from(CHUNK))).collect();
    let of = |outstanding| {
        let requests = lbas.iter().map(|&lba| read(0, lba));
        run(&mut uncached(named("raid5-7200")), requests, ReplayPace::Full(outstanding), 0)
    };
    let (one, many) = (of(1), of(16));
    assert!(many.iops() > 4.0 * one.iops(), "{} {}", many.iops(), one.iops());
    assert!(many.reads.mean_ns() > one.reads.mean_ns());
    // Little's law: the number under way is the rate times the time.
    for (figures, outstanding) in [(&one, 1.0), (&many, 16.0)] {
        let found = figures.iops() * figures.reads.mean_ns() / 1e9;
        assert!((found / outstanding - 1.0).abs() < 0.02, "{found} for {outstanding}");
    }
}

#[test]
fn a_trace_without_times_has_no_pace() {
    let requests = [Ok::<_, TraceError>(ClientRequest { at: None, ..read(0, 1) })];
    let why = uncached(network()).run(requests, ReplayPace::Own, 0).expect_err("refused").to_string();
    assert!(why.contains("the trace has no times") && why.contains("full load"), "{why}");
    let requests = [Ok::<_, TraceError>(ClientRequest { at: None, ..read(0, 1) })];
    assert_eq!(uncached(network()).run(requests, ReplayPace::Full(1), 0).expect("timed").reads.count(), 1);
}

#[test]
fn a_drive_that_is_too_small_is_refused() {
    let ftl = FtlKind::named("page-trim").expect("it is one");
    let cache = nitro(WritePolicy::Back, 5000);
    let (drive, profile) = fitted(&profile(), ftl, 16 << 20).expect("a drive");
    let why = Whole::new(cache, Some((drive, &profile)), network()).map(|_| ()).expect_err("refused").to_string();
    assert!(why.starts_with("capacity is ") && why.contains("the flash of the cache"), "{why}");
}

/// Returns reads, writes, trims and flushes, some of several chunks.
fn workload(rng: &mut Rng, count: u64) -> Vec<ClientRequest> {
    let chunks = 6000;
    let mut disk: Vec<u64> = (0..chunks).map(|_| rng.below(9000)).collect();
    let mut at = 0;
    (0..count)
        .map(|_| {
            let scale = rng.below(23);
            at += rng.below(1 << scale);
            let first = if rng.chance(50) { rng.skewed(chunks) } else { rng.below(chunks) };
            let run = first..(first + 1 + rng.skewed(6)).min(chunks);
            match rng.below(40) {
                0 => {
                    disk[run.start as usize..run.end as usize].fill(0);
                    client(at, Op::Trim, vec![CacheRequest::Trim(Lba(run.start), run.end - run.start)])
                }
                1 => flush(at),
                kind if kind < 20 => {
                    run.clone().for_each(|lba| disk[lba as usize] = 1 + rng.below(9000));
                    let write = |lba: u64| CacheRequest::Write(Lba(lba), content(disk[lba as usize]));
                    client(at, Op::Write, run.map(write).collect())
                }
                _ => {
                    let read = |lba: u64| CacheRequest::Read(Lba(lba), content(disk[lba as usize]));
                    client(at, Op::Read, run.map(read).collect())
                }
            }
        })
        .collect()
}

#[test]
fn each_design_has_the_hits_of_a_replay_and_answers_each_once() {
    for design in REPLAY_DESIGNS {
        for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
            for_seeds(0..2, |seed| {
                let mut rng = Rng::new(seed);
                let requests = workload(&mut rng, 2500);
                let pace = if seed == 0 { ReplayPace::Own } else { ReplayPace::Full(8) };
                let run = || {
                    let mut whole = whole(cache_of(design, policy, 1500), named("raid5-7200"));
                    let figures = run(&mut whole, requests.clone(), pace, 0);
                    let traffic = whole.cache().traffic();
                    (figures, traffic, whole.drive().map(|drive| drive.in_flight()), whole.origin().times().clone())
                };
                let (figures, traffic, in_flight, origin) = run();
                let mut bare = cache_of(design, policy, 1500);
                let mut tally = Tally::default();
                requests.iter().for_each(|request| bare.replay(&request.chunks, &mut tally));
                assert_eq!((figures.tally, traffic), (tally, bare.traffic()), "{}", design.name);
                let of = |op| requests.iter().filter(|request| request.op == op).count() as u64;
                let counts = [figures.reads.count(), figures.writes.count(), figures.flushes.count()];
                assert_eq!(counts, [of(Op::Read), of(Op::Write), of(Op::Flush)], "{}", design.name);
                assert_eq!(in_flight, Some(0), "nothing is left on the drive");
                let shares = [figures.drive_utilisation.expect("a drive"), figures.origin_utilisation];
                assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{}: {shares:?}", design.name);
                assert!(origin.reads.count() <= traffic.origin_chunks_read, "neighbours are joined, none is made up");
                let again = run().0;
                let summary = |figures: &TimedFigures| {
                    (figures.elapsed_ns, figures.reads.mean_ns(), figures.writes.mean_ns(), figures.origin)
                };
                assert_eq!(summary(&figures), summary(&again), "{}: the same takes the same time", design.name);
            });
        }
    }
}

/// The drive names its next victim, and the cache drops that: with a clock as without.
#[test]
fn on_the_drive_made_for_weus_hits_are_those_of_a_replay() {
    let ftl = FtlKind::named("weu").expect("it is one");
    for policy in [WritePolicy::Back, WritePolicy::Through] {
        let options = Options { drive: Some(DriveSetup::new(profile(), ftl)), ..Options::default() };
        let design = ReplayDesign::named("nitro").expect("it is one");
        let setup = Setup { design, chunk_bytes: CHUNK, flash: FlashAmount::Bytes(24 << 20), policy, options };
        let requests = workload(&mut Rng::new(3), 6000);
        let mut meter = Meter::new(setup.build(0).expect("a cache"), CHUNK, 0);
        requests.iter().for_each(|request| meter.take(&request.chunks));
        let measures = meter.finish();
        let counts = measures.drive.expect("a drive").counts;
        let Built { cache, drive: host, .. } = setup.build(0).expect("a cache");
        let mut whole = Whole::beside(cache, host.expect("a drive"), ftl, named("nvme-ssd")).expect("it fits");
        let figures = run(&mut whole, requests, ReplayPace::Full(8), 0);
        assert_eq!((figures.tally, whole.cache().traffic()), (measures.tally, measures.traffic));
        let drive = whole.drive().expect("a drive");
        assert_eq!(drive.in_flight(), 0);
        let (timed, counted) = (drive.ftl().counts().host_pages_written as f64, counts.host_pages_written as f64);
        assert!(
            (timed / counted - 1.0).abs() < 0.05 && counted > 3000.0,
            "{timed} pages with a clock, {counted} without"
        );
        assert!(
            figures.write_amplification.is_some_and(|amplified| amplified < 1.01),
            "{:?}",
            figures.write_amplification
        );
    }
}

/// Chunks in the drive's buffer take no time, at any place in a request.
#[test]
fn what_waits_in_the_buffer_is_read_in_no_time() {
    let ftl = FtlKind::named("weu").expect("it is one");
    for chunk_bytes in [8 << 10, 16 << 10, 128 << 10] {
        let options = Options { drive: Some(DriveSetup::new(profile(), ftl)), ..Options::default() };
        let design = ReplayDesign::named("lru").expect("it is one");
        let flash = FlashAmount::Bytes(32 << 20);
        // Slots lie from the beginning of the drive on, and are written in place.
        let setup = Setup { design, chunk_bytes, flash, policy: WritePolicy::Through, options }.by_its_paper();
        // The unit that has the first chunk is whole, and a part of it is written again.
        let chunks = (4 << 20) / u64::from(chunk_bytes);
        let requests: Vec<_> = (0..chunks).chain([0]).map(|lba| write(0, lba)).collect();
        let Built { cache, drive: host, .. } = setup.build(0).expect("a cache");
        let mut whole = Whole::beside(cache, host.expect("a drive"), ftl, named("nvme-ssd")).expect("it fits");
        let reads = (0..100).map(|_| read(0, 0));
        let figures = run(&mut whole, requests.into_iter().chain(reads), ReplayPace::Full(1), chunks + 1);
        assert_eq!((figures.reads.count(), figures.reads.max_ns()), (100, 0), "chunks of {chunk_bytes} bytes");
        assert_eq!(figures.drive.expect("a drive").reads.count(), 0);
    }
}

/// The chunks of one request come to the drive in the order of the cache, as without a clock. A
/// cycle of reads through a flash with slots in the order of insertion writes the drive from end to
/// end, and no block is copied.
#[test]
fn what_a_large_request_stores_comes_in_the_order_of_the_cache() {
    let ftl = FtlKind::named("page").expect("it is one");
    for (name, outstanding) in [("lru", 1), ("lru", 16), ("d-lru", 1), ("arc", 16), ("nitro", 4)] {
        let mut rng = Rng::new(8);
        let mut first = 0;
        let mut requests = Vec::new();
        while first < 24_000 {
            let run = first..first + 1 + rng.below(64);
            first = run.end;
            let read = |at: u64| CacheRequest::Read(Lba(at % 6000), content(at % 6000));
            requests.push(client(0, Op::Read, run.map(read).collect()));
        }
        let geometry = DriveGeometry { over_provisioning_percent: 7.0, ..profile().geometry };
        let few = DriveProfile { geometry, buffer_bytes: 1 << 20, ..profile() };
        let options = Options { drive: Some(DriveSetup::new(few, ftl)), ..Options::default() };
        let design = ReplayDesign::named(name).expect("it is one");
        let setup = Setup {
            design,
            chunk_bytes: CHUNK,
            flash: FlashAmount::Bytes(24 << 20),
            policy: WritePolicy::Through,
            options,
        };
        let mut meter = Meter::new(setup.build(0).expect("a cache"), CHUNK, 0);
        requests.iter().for_each(|request| meter.take(&request.chunks));
        let counted = meter.finish().drive.expect("a drive").write_amplification().expect("something was written");
        let Built { cache, drive: host, .. } = setup.build(0).expect("a cache");
        let mut whole = Whole::beside(cache, host.expect("a drive"), ftl, named("nvme-ssd")).expect("it fits");
        let timed = run(&mut whole, requests, ReplayPace::Full(outstanding), 0).write_amplification.expect("written");
        assert!(timed < 1.05 * counted, "{name}, {outstanding} outstanding: {timed} with a clock, {counted} without");
    }
}

/// The drive's own work in a pause before the first counted request is not in the counted time.
#[test]
fn what_the_drive_does_in_a_pause_before_the_window_is_not_counted() {
    let ftl = FtlKind::named("caftl-accelerated").expect("it is one");
    let cache = cache_of(ReplayDesign::named("lru").expect("it is one"), WritePolicy::Through, 1500);
    let (drive, cut) = fitted(&profile(), ftl, cache.flash_span_bytes()).expect("a drive");
    let mut whole = Whole::new(cache, Some((drive, &cut)), named("nvme-ssd")).expect("it fits");
    let count = 1400;
    let pause = 10_000_000_000;
    let requests = (0..count).map(|lba| write(lba, lba)).chain([write(pause, count), read(pause + 1000, count)]);
    let figures = run(&mut whole, requests, ReplayPace::Own, count);
    let share = figures.drive_utilisation.expect("a drive");
    assert!((0.0..=1.0).contains(&share) && figures.writes.count() == 1, "{share}");
    // Nor is the work of earlier requests: one chunk is written and read.
    let times = figures.drive.expect("a drive");
    let slowest = figures.writes.max_ns().max(figures.reads.max_ns());
    assert!((1..4).contains(&times.writes.count()) && times.reads.count() < 4, "{times:?}");
    assert!(times.reads.max_ns() <= slowest && times.last_ns > pause, "{times:?}");
}

/// If all requests are warm-up, no time passes and nothing is at work.
#[test]
fn a_warm_up_that_is_all_of_the_trace_leaves_nothing_to_count() {
    for pace in [ReplayPace::Own, ReplayPace::Full(4)] {
        let mut whole = whole(nitro(WritePolicy::Back, 1500), named("raid5-7200"));
        let figures = run(&mut whole, workload(&mut Rng::new(2), 500), pace, 1 << 40);
        assert_eq!((figures.elapsed_ns, figures.write_amplification, figures.tally), (0, None, Tally::default()));
        assert_eq!((figures.reads.count(), figures.origin.reads, figures.origin.writes), (0, 0, 0));
        assert_eq!((figures.drive_utilisation, figures.origin_utilisation), (Some(0.0), 0.0));
        let times = figures.drive.expect("a drive");
        assert_eq!((times.reads.count(), times.writes.count(), times.flushes.count()), (0, 0, 0));
    }
}

/// Work that is under way at the last answer counts until then, and no longer.
#[test]
fn nothing_is_at_work_for_longer_than_it_was() {
    for origin in larder_sim::origin::profile::PROFILES {
        for count in [1, 2, 5, 20, 100, 400] {
            for (name, policy) in
                [("lru", WritePolicy::Back), ("nitro", WritePolicy::Through), ("d-lru", WritePolicy::Around)]
            {
                let cache = cache_of(ReplayDesign::named(name).expect("it is one"), policy, 1500);
                let mut whole = whole(cache, OriginModel::new(origin, SIZE).expect("it is sound"));
                let figures = run(&mut whole, workload(&mut Rng::new(count), count), ReplayPace::Full(8), count / 3);
                let shares = [figures.drive_utilisation.expect("a drive"), figures.origin_utilisation];
                let label = format!("{name} before {}, {count} requests", origin.name);
                assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{label}: {shares:?}");
            }
        }
    }
}

/// A drive that is cut to few planes is as fast as one with all of them.
#[test]
fn a_small_drive_is_as_parallel_as_its_profile() {
    let tlc = DriveProfile::named("tlc-nvme").expect("it is one");
    let ftl = FtlKind::named("page-trim").expect("it is one");
    let requests = workload(&mut Rng::new(4), 20_000);
    let of = |bytes: u64| {
        let cache = cache_of(ReplayDesign::named("nitro").expect("it is one"), WritePolicy::Through, 2000);
        let bytes = bytes.max(cache.flash_span_bytes());
        let (drive, cut) = fitted(&tlc, ftl, bytes).expect("a drive");
        let mut whole = Whole::new(cache, Some((drive, &cut)), named("nvme-ssd")).expect("it fits");
        (run(&mut whole, requests.clone(), ReplayPace::Full(16), 0), cut.geometry.planes())
    };
    let ((small, few), (large, many)) = (of(0), of(160 << 30));
    println!("{few} planes: {} requests a second; {many}: {}", small.iops(), large.iops());
    assert!(few < many / 8 && many == tlc.geometry.planes(), "{few} of {many} planes");
    assert!(small.iops() > 0.5 * large.iops(), "{} and {}", small.iops(), large.iops());
}

/// Bytes at the origin are those that the cache counts, if nothing is parity.
#[test]
fn the_origins_work_is_what_the_cache_counted() {
    for design in REPLAY_DESIGNS {
        let mut whole = whole(cache_of(design, WritePolicy::Back, 1500), network());
        run(&mut whole, workload(&mut Rng::new(11), 3000), ReplayPace::Full(8), 0);
        let (work, traffic) = (whole.origin().work(), whole.cache().traffic());
        let chunk = u64::from(CHUNK);
        let counted = [traffic.origin_chunks_read * chunk, traffic.origin_chunks_written * chunk];
        assert_eq!([work.bytes_read, work.bytes_written], counted, "{}", design.name);
    }
}
