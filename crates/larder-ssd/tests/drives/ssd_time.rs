//! Time of a drive: single requests to the nanosecond, and queues against the formula.
//!
//! Random requests on every translation layer are each over once, with the programs that the buffer
//! and deduplication leave.

use std::{collections::BTreeMap, ops::Range};

use crate::common::{Rng, for_seeds, ssd::content};
use larder_ssd::{
    array::FlashArray,
    counts::DriveCounts,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, PlaneId, Ppa},
    kinds::{FTLS, FtlKind},
    op::{Cause, FlashOp, Hash, OpSink, PageSource},
    profile::{CORTEX_R4, DriveProfile, Timing},
    time::{
        Drive, DriveRequest, Nanos,
        latency::{Latencies, OperationTimes},
        run::{at_full_load, at_own_pace},
    },
};

const READ: Nanos = 25_000;
const PROGRAM: Nanos = 200_000;
const ERASE: Nanos = 1_500_000;
const BUS: Nanos = 100_000;
const LINK: Nanos = 10_000;

fn profile(packages: u32, planes_per_die: u32, frames: u64) -> DriveProfile {
    DriveProfile {
        name: "test",
        about: "round numbers",
        geometry: DriveGeometry {
            packages,
            dies_per_package: 1,
            planes_per_die,
            blocks_per_plane: 64,
            pages_per_block: 16,
            page_bytes: 4096,
            over_provisioning_percent: 30.0,
        },
        timing: Timing { read_ns: READ, program_ns: PROGRAM, erase_ns: ERASE, transfer_ns: BUS },
        erase_ns_by_block_bytes: None,
        rated_cycles: 1000,
        buffer_bytes: frames * 4096,
        collection_threshold_percent: 5.0,
        controller: CORTEX_R4,
        link_bytes_per_second: 4096 * 1_000_000_000 / LINK,
        cut_from: None,
    }
}

fn drive_of(kind: &FtlKind, profile: &DriveProfile) -> Drive {
    Drive::new((kind.make)(profile).expect("it is sound"), profile).expect("it has times")
}

fn drive(profile: &DriveProfile) -> Drive {
    drive_of(FtlKind::named("page-trim").expect("it is one"), profile)
}

fn write(pages: impl IntoIterator<Item = u32>) -> DriveRequest {
    DriveRequest::Write(pages.into_iter().map(|lpn| PageWrite { lpn: Lpn(lpn), content: None }).collect())
}

fn read(lpn: u32) -> DriveRequest {
    DriveRequest::Read(lpn..lpn + 1)
}

/// A layer that does these operations at the first trim or flush.
struct Scripted {
    inner: Box<dyn Ftl>,
    ops: Vec<FlashOp>,
}

impl Ftl for Scripted {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        self.inner.write(pages, sink)
    }
    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        self.inner.read(lpn, sink)
    }
    fn trim(&mut self, _: Range<u32>, sink: &mut dyn OpSink) {
        std::mem::take(&mut self.ops).iter().for_each(|op| sink.op(op));
    }
    fn flush(&mut self, sink: &mut dyn OpSink) {
        std::mem::take(&mut self.ops).iter().for_each(|op| sink.op(op));
    }
    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.inner.locate(lpn)
    }
    fn takes_trims(&self) -> bool {
        true
    }
    fn counts(&self) -> &DriveCounts {
        self.inner.counts()
    }
    fn array(&self) -> &FlashArray {
        self.inner.array()
    }
    fn ram_bytes(&self) -> u64 {
        self.inner.ram_bytes()
    }
    fn check(&self) {
        self.inner.check();
    }
}

/// A layer that uses all its idle time for reads of one page.
struct Busy(Box<dyn Ftl>);

impl Ftl for Busy {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        self.0.write(pages, sink)
    }
    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        self.0.read(lpn, sink)
    }
    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        self.0.trim(pages, sink);
    }
    fn idle(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        (0..budget).for_each(|_| sink.op(&FlashOp::Read { ppa: Ppa(0), cause: Cause::OutOfLine }));
        budget
    }
    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.0.locate(lpn)
    }
    fn takes_trims(&self) -> bool {
        true
    }
    fn counts(&self) -> &DriveCounts {
        self.0.counts()
    }
    fn array(&self) -> &FlashArray {
        self.0.array()
    }
    fn ram_bytes(&self) -> u64 {
        self.0.ram_bytes()
    }
    fn check(&self) {
        self.0.check();
    }
}

fn mean(latencies: &Latencies) -> Nanos {
    latencies.mean_ns() as Nanos
}

#[test]
fn a_request_alone_takes_what_its_parts_take() {
    let mut drive = drive(&profile(2, 2, 64));
    let times = at_own_pace(&mut drive, [(0, write([7]))]);
    assert_eq!(mean(&times.writes), LINK, "the buffer has it");
    assert_eq!(drive.now(), LINK.max(BUS + PROGRAM), "and then it is programmed");
    let at = drive.now() + 1_000_000;
    let times = at_own_pace(&mut drive, [(at, read(7))]);
    assert_eq!(mean(&times.reads), READ + BUS + LINK);
    let at = drive.now() + 1_000_000;
    let times = at_own_pace(&mut drive, [(at, read(8))]);
    assert_eq!(times.reads.max_ns() / 1000, (READ + BUS + LINK) / 1000, "the histogram has three digits");
    assert_eq!(times.reads.mean_ns(), (READ + BUS + 2 * LINK) as f64 / 2.0, "nothing was ever written there");
}

#[test]
fn what_the_buffer_has_is_not_read_from_flash() {
    let mut drive = drive(&profile(1, 1, 64));
    let times = at_own_pace(&mut drive, [(0, write([7])), (20_000, read(7))]);
    assert_eq!((mean(&times.reads), times.buffer_hits), (LINK, 1));
    assert_eq!(drive.ftl().counts().reads[Cause::Host as usize], 0);
}

#[test]
fn writes_wait_for_frames_and_planes_share_a_bus() {
    // One plane: a page every bus and program. Two of one package: their buses in turn.
    for (planes, each) in [(1, BUS + PROGRAM), (2, (BUS + PROGRAM) / 2), (3, BUS), (4, BUS)] {
        let mut drive = drive(&profile(1, planes, 8));
        let count = 600;
        let times = at_full_load(&mut drive, 1, [write(0..count)]);
        let spent = drive.now();
        let expected = u64::from(count) * each;
        assert!(spent.abs_diff(expected) < 4 * (BUS + PROGRAM), "{planes} planes: {spent} ns for {expected}");
        assert!(mean(&times.writes) < spent && mean(&times.writes) > expected - 16 * (BUS + PROGRAM));
    }
}

#[test]
fn a_read_goes_before_the_writes_that_wait() {
    let mut drive = drive(&profile(1, 1, 64));
    at_own_pace(&mut drive, [(0, write([50]))]);
    let begin = drive.now();
    // The second program has its page on the bus when the read comes; eight more wait.
    let requests = [(begin, write(0..10)), (begin + BUS + PROGRAM + 50_000, read(50))];
    let times = at_own_pace(&mut drive, requests);
    assert_eq!(mean(&times.reads), BUS - 50_000 + PROGRAM + READ + BUS + LINK);
}

/// Four planes of one package share a bus. Two programs wait for it, and a third page is on it,
/// when a read has its page.
#[test]
fn a_read_has_the_bus_before_the_writes_that_wait() {
    let mut drive = drive(&profile(1, 4, 64));
    at_own_pace(&mut drive, [(0, write(0..4))]);
    let begin = drive.now();
    let times = at_own_pace(&mut drive, [(begin, write(4..7)), (begin + 1, read(3))]);
    assert_eq!(mean(&times.reads), BUS - 1 + BUS + LINK);
    assert_eq!(drive.now(), begin + 4 * BUS + PROGRAM, "the writes are over later by one page");
}

/// The second page is found as soon as it is hashed. The first, to which it refers, waits for its
/// plane. Until that is programmed, the buffer has both.
#[test]
fn a_deduplicated_page_keeps_its_frame_until_its_content_is_programmed() {
    let slow = Timing { read_ns: READ, program_ns: 10 * PROGRAM, erase_ns: ERASE, transfer_ns: BUS };
    let profile = DriveProfile { timing: slow, ..profile(1, 1, 64) };
    let mut drive = drive_of(FtlKind::named("caftl").expect("it is one"), &profile);
    let same = |lpn| DriveRequest::Write(vec![PageWrite { lpn: Lpn(lpn), content: content(7) }]);
    let hashed = 2 * profile.hash_ns(Hash::Sha1);
    let programmed = profile.hash_ns(Hash::Sha1) + BUS + 10 * PROGRAM;
    assert!(hashed + 10_000 < programmed);
    let times =
        at_own_pace(&mut drive, [(0, same(0)), (0, same(1)), (hashed + 5_000, read(1)), (programmed + 1, read(1))]);
    assert_eq!(drive.ftl().counts().pages_deduplicated, 1);
    assert_eq!(times.buffer_hits, 1, "while it is programmed, and not after");
    assert_eq!(drive.ftl().counts().reads[Cause::Host as usize], 1);
    assert_eq!(mean(&times.reads), (LINK + READ + BUS + LINK) / 2);
    assert_eq!(drive.now(), programmed + 1 + READ + BUS + LINK);
}

/// If four frames are full, a read gets the next free one before six pages that wait. In its turn
/// it gets the last.
#[test]
fn a_read_takes_a_frame_before_the_writes_that_wait_or_in_its_turn() {
    let reads = |in_turn: bool| {
        let mut drive = drive(&profile(1, 1, 4));
        at_own_pace(&mut drive, [(0, write([50]))]);
        let begin = drive.now();
        let mut drive = if in_turn { drive.with_reads_in_turn() } else { drive };
        // The writes behind the read wait for it.
        let requests = [(begin, write(0..10)), (begin, read(50)), (begin, write(20..30))];
        let times = at_own_pace(&mut drive, requests);
        assert_eq!((times.reads.count(), times.writes.count()), (1, 3));
        mean(&times.reads)
    };
    // One page a program: the first is programmed, its frame is the read's, and the second runs
    // meanwhile.
    let page = BUS + PROGRAM;
    assert!((page..3 * page).contains(&reads(false)), "{}", reads(false));
    // Six more pages have their frames first, the last of them when the sixth is programmed.
    assert!((7 * page..9 * page).contains(&reads(true)), "{}", reads(true));
}

#[test]
fn what_is_written_again_while_it_waits_is_absorbed() {
    let mut drive = drive(&profile(1, 1, 64));
    // Two are handed over at once, the others wait.
    let requests = [write([1]), write([2]), write([3]), write([3]), write([1]), write([3])];
    let times = at_own_pace(&mut drive, requests.map(|request| (0, request)));
    assert_eq!(times.absorbed, 2);
    let programs = drive.ftl().counts().programs[Cause::Host as usize];
    assert_eq!(programs, 4, "1, 2, the last 3, and 1 again, which was handed over before");
}

#[test]
fn a_flush_ends_when_all_before_it_is_programmed() {
    let mut drive = drive(&profile(1, 1, 64));
    let times = at_own_pace(&mut drive, [(0, write(0..5)), (0, DriveRequest::Flush), (0, write(9..12))]);
    assert_eq!(mean(&times.flushes), 5 * (BUS + PROGRAM));
    assert_eq!(drive.now(), 8 * (BUS + PROGRAM));
}

/// Pages that a trim or a flush has collected are hashed like all others. The programs wait for
/// that, and so do later requests.
#[test]
fn the_controller_hashes_what_trims_and_flushes_collect() {
    let profile = profile(1, 1, 8);
    let (hash, cause) = (Hash::Sha1, Cause::OutOfLine);
    let at = profile.geometry.ppa(profile.geometry.block_in_plane(PlaneId(0), 40), 0);
    let ops = [
        FlashOp::Hash { hash, cause },
        FlashOp::Program { ppa: at, source: PageSource::Internal, cause: Cause::Journal },
        FlashOp::Hash { hash, cause },
    ];
    let hashed = 2 * profile.hash_ns(hash);
    assert!(hashed > 0);
    for request in [DriveRequest::Trim(5..6), DriveRequest::Flush] {
        let is_flush = request == DriveRequest::Flush;
        let inner = (FTLS[0].make)(&profile).expect("it is sound");
        let mut drive = Drive::new(Box::new(Scripted { inner, ops: ops.to_vec() }), &profile).expect("it has times");
        let times = at_own_pace(&mut drive, [(0, request), (0, write([9]))]);
        assert_eq!(times.hashing_ns, u128::from(hashed));
        assert_eq!(drive.now(), hashed + 2 * (BUS + PROGRAM), "the page that is written comes behind");
        if is_flush {
            assert_eq!(mean(&times.flushes), hashed + BUS + PROGRAM);
        }
    }
}

/// No request comes for long, and the layer always has more to do. A write and a flush then wait
/// for a few of its operations, and not for all that would fill the time.
#[test]
fn what_comes_in_idle_time_waits_for_a_few_operations() {
    const FEW: u64 = 16;
    let profile = profile(1, 1, 8);
    for wait in [1_000_000, 7_654_321, 98_765_432] {
        let inner = (FTLS[0].make)(&profile).expect("it is sound");
        let mut drive = Drive::new(Box::new(Busy(inner)), &profile).expect("it has times");
        let requests = [(0, write([7])), (wait, write([8])), (wait, DriveRequest::Flush)];
        let times = at_own_pace(&mut drive, requests);
        let waited = mean(&times.flushes) - (LINK + BUS + PROGRAM);
        println!("after {wait} ns: {waited} ns");
        assert!(waited <= FEW * (READ + BUS), "{waited} ns");
    }
}

/// A copy inside a plane takes no bus. One between planes takes both, one after the other. An
/// erasure waits for the copies before it.
#[test]
fn copies_inside_a_plane_take_no_bus() {
    let geometry = profile(1, 2, 8).geometry;
    let page = |plane: u32, page| geometry.ppa(geometry.block_in_plane(PlaneId(plane), 0), page);
    let copy = |from: Ppa, to: Ppa| {
        let cause = Cause::Collection;
        [FlashOp::Read { ppa: from, cause }, FlashOp::Program { ppa: to, source: PageSource::Copy(from), cause }]
    };
    let time_of = |ops: Vec<FlashOp>| {
        let profile = profile(1, 2, 8);
        let ftl = Scripted { inner: (FTLS[0].make)(&profile).expect("it is sound"), ops };
        let mut drive = Drive::new(Box::new(ftl), &profile).expect("it has times");
        at_own_pace(&mut drive, [(0, DriveRequest::Trim(0..1))]);
        drive.now()
    };
    assert_eq!(time_of(copy(page(0, 0), page(0, 1)).to_vec()), READ + PROGRAM);
    // The program begins when the page has been read, and both pass the one bus.
    assert_eq!(time_of(copy(page(0, 0), page(1, 1)).to_vec()), READ + 2 * BUS + PROGRAM);
    // There and back: an operation behind a program that waits for its page waits, too.
    let both = [copy(page(0, 0), page(1, 1)), copy(page(1, 0), page(0, 1))].concat();
    assert_eq!(time_of(both), 2 * (READ + 2 * BUS + PROGRAM));
    let erase = FlashOp::Erase { block: geometry.block_in_plane(PlaneId(0), 0), cause: Cause::Collection };
    let all = [copy(page(0, 0), page(0, 1)).to_vec(), vec![erase]].concat();
    assert_eq!(time_of(all), READ + PROGRAM + ERASE);
}

#[test]
fn collection_is_in_the_way() {
    let profile = profile(1, 2, 8);
    let mut drive = drive(&profile);
    let pages = drive.ftl().logical_pages();
    let fill = at_full_load(&mut drive, 4, (0..pages).map(|lpn| write([lpn])));
    let before = fill.writes.mean_ns();
    let mut rng = Rng::new(5);
    let all = at_full_load(&mut drive, 4, (0..2 * pages).map(|_| write([rng.below(pages.into()) as u32])));
    let count = u64::from(pages);
    let after = (all.writes.mean_ns() * (3 * count) as f64 - before * count as f64) / (2 * count) as f64;
    let counts = drive.ftl().counts();
    assert!(counts.blocks_erased() > 0, "{counts:?}");
    assert!(after > 1.3 * before, "{after:.0} ns after {before:.0}");
}

/// Reads of one plane at random moments, one at a time in the cells: M/D/1. The mean wait is half
/// the load over the remaining capacity, in services (Pollaczek and Khinchine).
#[test]
fn queues_are_as_long_as_the_formula_says() {
    let mut profile = profile(1, 1, 4096);
    (profile.timing.transfer_ns, profile.link_bytes_per_second) = (1, u64::MAX);
    let service = (READ + 1) as f64;
    for load in [0.3, 0.6, 0.8] {
        let mut drive = drive(&profile);
        at_full_load(&mut drive, 1, [write(0..256)]);
        let mut rng = Rng::new(20_263);
        let mut at = drive.now() as f64;
        let requests: Vec<(Nanos, DriveRequest)> = (0..200_000)
            .map(|_| {
                let uniform = (rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
                at += -uniform.ln() * service / load;
                (at as Nanos, read(rng.below(256) as u32))
            })
            .collect();
        let times = at_own_pace(&mut drive, requests);
        let expected = service * (1.0 + load / (2.0 * (1.0 - load)));
        let off = times.reads.mean_ns() / expected - 1.0;
        println!("load {load}: {:.0} ns, the formula {expected:.0}, {:+.2}% off", times.reads.mean_ns(), off * 100.0);
        assert!(off.abs() < 0.02, "load {load}: {:.0} ns, not {expected:.0}", times.reads.mean_ns());
    }
}

#[test]
fn hashing_takes_the_cycles_of_the_profile() {
    // 47,548 cycles at 934 MHz (CAFTL Table 2 and section 4.3.2).
    assert_eq!(profile(1, 1, 8).hash_ns(Hash::Sha1), 50_907);
}

/// Returns random requests at random moments: the same for each layer and each time.
fn random_requests(seed: u64, pages: u32, count: usize) -> Vec<(Nanos, DriveRequest)> {
    let mut rng = Rng::new(seed);
    let mut at = 0;
    let mut requests = Vec::new();
    for _ in 0..count {
        let scale = rng.below(22);
        at += rng.below(1 << scale);
        let first = rng.below(u64::from(pages) - 8) as u32 / (1 + rng.below(8) as u32);
        let run = first..first + 1 + rng.below(7) as u32;
        requests.push((
            at,
            match rng.below(10) {
                0..=4 => DriveRequest::Write(
                    run.map(|lpn| PageWrite { lpn: Lpn(lpn), content: content(rng.below(200)) }).collect(),
                ),
                5..=7 => DriveRequest::Read(run),
                8 => DriveRequest::Trim(run),
                _ => DriveRequest::Flush,
            },
        ));
    }
    requests
}

/// Makes a write a whole unit of this many pages; trims are of parts and of several units.
fn in_units(request: &mut DriveRequest, unit: u32) {
    match request {
        DriveRequest::Write(pages) if unit > 1 => {
            let (first, number) = (pages[0].lpn.0 / unit * unit, pages.len());
            let page = |at| PageWrite { lpn: Lpn(first + at), content: pages[at as usize % number].content };
            *pages = (0..unit).map(page).collect();
        }
        DriveRequest::Trim(pages) if unit > 1 && pages.start % 2 == 0 => {
            *pages = pages.start / unit * unit..(pages.start / unit + 1) * unit;
        }
        _ => {}
    }
}

fn summary(times: &OperationTimes) -> [u64; 8] {
    let OperationTimes { reads, writes, flushes, buffer_hits, absorbed, last_ns, .. } = times;
    let (reads, writes) = ((reads.count(), reads.mean_ns() as u64), (writes.count(), writes.mean_ns() as u64));
    [reads.0, reads.1, writes.0, writes.1, flushes.count(), *buffer_hits, *absorbed, *last_ns]
}

#[test]
fn each_request_is_over_once_on_every_layer() {
    for kind in FTLS.iter() {
        for_seeds(0..6, |seed| {
            let mut profile = profile(2, 2, [4, 16, 64][seed as usize % 3]);
            let unit = (kind.make)(&profile).expect("it is sound").write_unit_pages();
            // A unit and a little more, if writes are of whole ones.
            profile.buffer_bytes += u64::from(unit - 1) * 4096;
            let run = || {
                let mut drive = drive_of(kind, &profile);
                if seed >= 3 {
                    drive = drive.with_reads_in_turn();
                }
                let mut requests = random_requests(seed, drive.ftl().logical_pages(), 3000);
                requests.iter_mut().for_each(|(_, request)| in_units(request, unit));
                let mut asked = BTreeMap::new();
                let mut written = 0;
                let mut over = BTreeMap::new();
                for (at, request) in requests {
                    drive.advance_to(at);
                    if let DriveRequest::Write(pages) = &request {
                        written += pages.len() as u64;
                    }
                    asked.insert(drive.submit(request), at);
                }
                drive.finish();
                while let Some((request, at)) = drive.take_over() {
                    assert!(over.insert(request, at).is_none(), "{request} is over twice");
                }
                assert_eq!(drive.in_flight(), 0);
                assert!(asked.keys().eq(over.keys()), "each that was asked for is over");
                assert!(asked.iter().all(|(request, at)| over[request] >= *at), "nothing is over before it began");
                let times = drive.times();
                let counts = drive.ftl().counts();
                let host = counts.programs[Cause::Host as usize];
                let deduplicated = counts.pages_deduplicated;
                assert_eq!(host, written - times.absorbed - deduplicated, "{}: programs of the host", kind.name);
                drive.ftl().check();
                summary(&times)
            };
            assert_eq!(run(), run(), "{}: the same requests take the same time", kind.name);
        });
    }
}

/// Makes a drive with units of 64 pages, in a buffer of two and a half.
fn unit_drive() -> Drive {
    let drive = drive_of(FtlKind::named("weu").expect("it is one"), &profile(2, 2, 160));
    assert_eq!(drive.ftl().write_unit_pages(), 64);
    drive
}

/// While the first unit is programmed, the others wait. Trimmed in part, a unit is written whole,
/// and then trimmed; trimmed whole, it is not written.
#[test]
fn a_unit_that_waits_stays_whole() {
    for (trim, programmed) in [(130..140, 192), (128..192, 128), (0..192, 64), (100..150, 192)] {
        let mut drive = unit_drive();
        drive.submit(write(0..64));
        drive.submit(write(64..128));
        drive.advance_to(BUS + PROGRAM + 60 * LINK);
        drive.submit(write(128..192));
        // Frames for it come as pages are programmed.
        while drive.times().writes.count() < 3 {
            assert!(drive.step());
        }
        drive.submit(DriveRequest::Trim(trim.clone()));
        for lpn in trim.clone() {
            drive.submit(read(lpn));
        }
        drive.finish();
        drive.ftl().check();
        let counts = drive.ftl().counts();
        assert_eq!(counts.programs[Cause::Host as usize], programmed, "{trim:?}");
        assert_eq!(counts.host_pages_trimmed, trim.len() as u64, "each once");
        assert_eq!(drive.times().absorbed, 192 - programmed);
        for lpn in 0..192 {
            assert_eq!(drive.ftl().locate(Lpn(lpn)).is_some(), !trim.contains(&lpn), "{trim:?}: page {lpn}");
        }
        assert_eq!(drive.in_flight(), 0);
    }
}

#[test]
#[should_panic(expected = "a write is not of whole units of 64 pages")]
fn a_part_of_a_unit_is_not_taken() {
    unit_drive().submit(write(64..127));
}

/// The drive reports dropped pages, unless they were written again since, or are about to be.
#[test]
fn dropped_pages_are_told() {
    for name in ["flashtier", "flashtier-merge", "flashtier-lru"] {
        let mut drive = drive_of(FtlKind::named(name).expect("it is one"), &profile(2, 2, 16));
        let logical = u64::from(drive.ftl().logical_pages());
        let mut rng = Rng::new(20_285);
        let mut there = std::collections::BTreeSet::new();
        for step in 0..4000 {
            let lpn = rng.below(logical) as u32;
            let run = lpn..(lpn + 1 + rng.below(20) as u32).min(logical as u32);
            drive.submit(write(run.clone()));
            there.extend(run);
            if step % 3 == 0 {
                // Some of the requests are under way.
                drive.advance_to(drive.now() + 5 * PROGRAM);
                while let Some(lpn) = drive.take_evicted() {
                    there.remove(&lpn.0);
                }
            }
        }
        drive.finish();
        while let Some(lpn) = drive.take_evicted() {
            there.remove(&lpn.0);
        }
        assert!(drive.ftl().counts().pages_evicted > 1000);
        for lpn in 0..logical as u32 {
            assert_eq!(drive.ftl().locate(Lpn(lpn)).is_some(), there.contains(&lpn), "{name}: page {lpn}");
        }
    }
    // A drive with clocks knows the dirty pages, too.
    let mut drive = drive_of(FtlKind::named("flashtier-lru").expect("it is one"), &profile(2, 2, 16));
    drive.submit(write(0..32));
    drive.finish();
    assert_eq!(drive.ftl().next_eviction(), Some(0..16));
    drive.tell_dirty(3..4, true);
    assert_eq!(drive.ftl().next_eviction(), Some(16..32));
}

#[test]
fn a_drive_without_times_or_frames_is_refused() {
    let sound = profile(1, 1, 8);
    let refused = |profile: DriveProfile| {
        let ftl = (FTLS[0].make)(&sound).expect("it is sound");
        Drive::new(ftl, &profile).map(|_| ()).expect_err("refused").to_string()
    };
    let without = DriveProfile { buffer_bytes: 4095, ..sound };
    assert!(refused(without).contains("buffer_bytes is 4095, but has to be the bytes of one write, 4096"));
    let ftl = (FtlKind::named("weu").expect("it is one").make)(&profile(2, 2, 63)).expect("it is sound");
    let sentence = Drive::new(ftl, &profile(2, 2, 63)).map(|_| ()).expect_err("refused").to_string();
    assert!(sentence.contains("buffer_bytes is 258048, but has to be the bytes of one write, 262144"), "{sentence}");
    let without = DriveProfile { timing: Timing { program_ns: 0, ..sound.timing }, ..sound };
    assert!(refused(without).contains("program_ns"), "{}", refused(without));
    let without = DriveProfile { link_bytes_per_second: 0, ..sound };
    assert!(refused(without).contains("link_bytes_per_second"), "{}", refused(without));
}
