//! Origins: their times against calculated ones, and their queues against formulas.
//!
//! Random requests on every profile are each over once, and not before their parts.

use std::collections::BTreeMap;

use crate::common::{Rng, for_seeds};
use larder_sim::origin::{
    OriginModel, OriginRequest, RequestKind,
    profile::{
        DISK_7200, DiskFigures, FlashFigures, NetworkFigures, OriginFigures, OriginProfile, PROFILES, RaidFigures,
    },
    raid::Rows,
};
use larder_ssd::time::Nanos;

const SIZE: u64 = 1 << 40;
const TURN: Nanos = 60_000_000_000 / 7200;

fn read(offset: u64, len: u64) -> OriginRequest {
    OriginRequest { kind: RequestKind::Read, offset, len }
}

fn write(offset: u64, len: u64) -> OriginRequest {
    OriginRequest { kind: RequestKind::Write, offset, len }
}

fn origin(name: &str) -> OriginModel {
    OriginModel::new(&OriginProfile::named(name).expect("it is one"), SIZE).expect("it is sound")
}

fn of(figures: OriginFigures) -> OriginModel {
    OriginModel::new(&OriginProfile { name: "test", about: "for a test", figures }, SIZE).expect("it is sound")
}

/// Makes each request as soon as fewer than `outstanding` are under way.
fn full_load(origin: &mut OriginModel, outstanding: usize, requests: impl IntoIterator<Item = OriginRequest>) {
    for request in requests {
        while origin.in_flight() >= outstanding && origin.step() {}
        origin.submit(request);
    }
    origin.finish();
}

/// Makes the requests at random moments, at a mean rate of `per_second`.
fn poisson(
    origin: &mut OriginModel,
    rng: &mut Rng,
    per_second: f64,
    requests: impl IntoIterator<Item = OriginRequest>,
) {
    let mut at = origin.now() as f64;
    for request in requests {
        let uniform = (rng.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        at += -uniform.ln() * 1e9 / per_second;
        origin.advance_to(at as Nanos);
        origin.submit(request);
    }
    origin.finish();
}

fn anywhere(rng: &mut Rng, count: usize) -> Vec<u64> {
    (0..count).map(|_| rng.below(SIZE / 4096) * 4096).collect()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, percent: f64, what: &str) {
    let off = 100.0 * (found / expected - 1.0);
    println!("{what}: {found:.0} for {expected:.0}, {off:+.2}%");
    assert!(off.abs() <= percent, "{what}: {found} for {expected}, {off:+.2}%");
}

#[test]
fn a_random_read_of_a_disk_is_a_mean_seek_and_half_a_turn() {
    let mut disk = origin("hdd-7200");
    let mut rng = Rng::new(1);
    full_load(&mut disk, 1, anywhere(&mut rng, 20_000).into_iter().map(|offset| read(offset, 4096)));
    let expected = (8_500_000 + TURN / 2) as f64;
    assert_near(disk.times().reads.mean_ns(), expected, 1.0, "random reads (ns)");
    let most = 800_000 + (8_500_000 - 800_000) * 15 / 8 + TURN + 100_000;
    assert!(disk.times().reads.max_ns() < most * 1001 / 1000, "{}", disk.times().reads.max_ns());
    assert_near(disk.work().utilisation(disk.now()), 1.0, 1.0, "the arm's share");
}

#[test]
fn streams_go_at_the_rate_of_their_place() {
    // With one request at a time, the next is there when the head is: reading ahead makes up for
    // the command.
    for (first, rate) in [(0, 180e6), (SIZE - (257 << 20), 100e6)] {
        for (kind, outstanding) in [(RequestKind::Read, 1), (RequestKind::Read, 4), (RequestKind::Write, 2)] {
            let mut disk = origin("hdd-7200");
            full_load(&mut disk, 1, [read(first, 4096)]);
            let began = disk.now();
            let requests = (1..2048).map(|at| OriginRequest { kind, offset: first + at * (128 << 10), len: 128 << 10 });
            full_load(&mut disk, outstanding, requests);
            let found = (2047u64 * (128 << 10)) as f64 * 1e9 / (disk.now() - began) as f64;
            assert_near(found, rate, 2.0, &format!("{kind:?} from {first}, {outstanding} at a time (bytes/s)"));
        }
    }
}

#[test]
fn a_write_that_follows_alone_misses_its_turn() {
    let mut disk = origin("hdd-7200");
    full_load(&mut disk, 1, (0..100).map(|at| write(at * 4096, 4096)));
    assert_near(disk.times().writes.mean_ns(), TURN as f64, 3.0, "writes one by one (ns)");
}

#[test]
fn a_queue_shortens_the_way_and_starves_no_request() {
    let mut rng = Rng::new(2);
    let offsets = anywhere(&mut rng, 4000);
    let per_second = |depth| {
        let mut disk = of(OriginFigures::Disk(DiskFigures { queue_depth: depth, ..DISK_7200 }));
        full_load(&mut disk, 32, offsets.iter().map(|&offset| read(offset, 4096)));
        (4000.0 * 1e9 / disk.now() as f64, disk.times().reads.max_ns())
    };
    let ((alone, _), (chosen, longest)) = (per_second(1), per_second(32));
    assert!(chosen > 2.0 * alone, "{chosen:.0} a second where the arm chooses, {alone:.0} where not");
    assert!(longest < 1_000_000_000 + 32 * 30_000_000, "{longest}");
}

/// One arm, first come, first served, random reads. This is M/G/1, where the mean wait is the
/// load's second moment over twice the remaining capacity (Pollaczek and Khinchine). The root of
/// the distance has mean 8/15 and mean square 1/3; a wait for the angle is uniform.
#[test]
fn a_disks_queue_is_as_long_as_the_formula_says() {
    let rates = DiskFigures { outer_bytes_per_second: 100_000_000, read_ahead_bytes: 0, ..DISK_7200 };
    let figures = DiskFigures { queue_depth: 1, age_max_ns: 10_000_000_000, ..rates };
    let (least, turn) = (800_000.0, TURN as f64);
    let slope = (8_500_000.0 - least) * 15.0 / 8.0;
    let sweep = 4096.0 * 1e9 / 100e6;
    let mean = 8_500_000.0 + turn / 2.0 + sweep;
    let variance = slope * slope * (1.0 / 3.0 - 64.0 / 225.0) + turn * turn / 12.0;
    for load in [0.3, 0.6, 0.8] {
        let mut disk = of(OriginFigures::Disk(figures));
        let mut rng = Rng::new(20_264);
        let offsets = anywhere(&mut rng, 200_000);
        let rate = load / mean;
        poisson(&mut disk, &mut rng, rate * 1e9, offsets.into_iter().map(|offset| read(offset, 4096)));
        let expected = mean + rate * (variance + mean * mean) / (2.0 * (1.0 - load));
        assert_near(disk.times().reads.mean_ns(), expected, 3.0, &format!("load {load} (ns)"));
        assert_near(disk.work().utilisation(disk.now()), load, 2.0, &format!("load {load}, the arm's share"));
    }
}

/// The gate of a network volume, and the interface of a flash drive. They are M/D/1, with the
/// latency beside the queue.
#[test]
fn gates_are_queues_of_one_constant_service() {
    let network = NetworkFigures {
        read_ns: 1_000_000,
        write_ns: 2_000_000,
        operations_per_second: 10_000,
        operation_bytes: 256 << 10,
        bytes_per_second: 1 << 40 >> 2,
    };
    let flash = FlashFigures {
        read_ns: 1_000,
        write_ns: 5_000,
        command_ns: 100_000,
        read_bytes_per_second: 1_000_000_000,
        write_bytes_per_second: 1_000_000_000,
        channels: 4096,
    };
    type Make = fn(u64, u64) -> OriginRequest;
    let cases: [(_, Make, _); 4] = [
        (OriginFigures::Network(network), read, 1_000_000.0),
        (OriginFigures::Network(network), write, 2_000_000.0),
        (OriginFigures::Flash(flash), read, 1_000.0),
        (OriginFigures::Flash(flash), write, 5_000.0),
    ];
    for (figures, make, beside) in cases {
        for load in [0.3, 0.6, 0.8] {
            let mut origin = of(figures);
            let mut rng = Rng::new(20_265);
            poisson(&mut origin, &mut rng, load * 10_000.0, (0..200_000).map(|at| make(at * 4096, 4096)));
            let service = 100_000.0;
            let expected = service * (1.0 + load / (2.0 * (1.0 - load))) + beside;
            let times = origin.times();
            let found = if times.reads.count() > 0 { times.reads.mean_ns() } else { times.writes.mean_ns() };
            assert_near(found, expected, 2.0, &format!("{figures:?}, load {load} (ns)"));
        }
    }
}

#[test]
fn caps_and_data_sheets_are_kept() {
    let mut rng = Rng::new(3);
    let offsets = anywhere(&mut rng, 30_000);
    let per_second = |name, outstanding, make: fn(u64, u64) -> OriginRequest, len| {
        let mut origin = origin(name);
        full_load(&mut origin, outstanding, offsets.iter().map(|&at| make(at.min(SIZE - len), len)));
        offsets.len() as f64 * 1e9 / origin.now() as f64
    };
    // The data sheets' figures at their depths. The model takes latency and interface apart, so
    // depth 32 is a little less.
    assert_near(per_second("sata-ssd", 1, read, 4096), 10_000.0, 1.0, "SATA, reads at depth 1");
    assert_near(per_second("sata-ssd", 32, read, 4096), 98_000.0, 3.0, "SATA, reads at depth 32");
    assert_near(per_second("sata-ssd", 1, write, 4096), 42_000.0, 1.0, "SATA, writes at depth 1");
    assert_near(per_second("nvme-ssd", 1, read, 4096), 15_000.0, 2.5, "NVMe, reads at depth 1");
    assert_near(per_second("nvme-ssd", 128, read, 4096), 500_000.0, 1.0, "NVMe, reads at depth 128");
    assert_near(per_second("nvme-ssd", 1, write, 4096), 50_000.0, 1.0, "NVMe, writes at depth 1");
    assert_near(per_second("network", 64, read, 4096), 3_000.0, 1.0, "network, the cap of operations");
    assert_near(per_second("network", 64, write, 1 << 20), 125.0, 1.0, "network, the cap of bytes");
    assert_near(per_second("network", 1, read, 4096), 750.0, 1.0, "network, one at a time");
}

const RAID5: Rows = Rows { disks: 5, parity: 1, unit_bytes: 64 << 10 };
const RAID6: Rows = Rows { disks: 6, parity: 2, unit_bytes: 64 << 10 };

#[test]
fn small_writes_are_four_requests_of_raid_5_and_six_of_raid_6() {
    for (rows, reads_and_writes) in [(RAID5, (2, 2)), (RAID6, (3, 3))] {
        let (reads, writes) = rows.of_write(300 << 10, 4096);
        assert_eq!((reads.len(), writes.len()), reads_and_writes, "{rows:?}");
        assert_eq!(reads, writes, "what is read is written");
        // A whole row reads nothing.
        let (reads, writes) = rows.of_write(2 * rows.row_bytes(), rows.row_bytes());
        assert_eq!((reads.len(), writes.len()), (0, rows.disks as usize));
        // All but a unit: the rest is less than the old data and parity.
        let (reads, writes) = rows.of_write(0, rows.row_bytes() - rows.unit_bytes);
        assert_eq!((reads.len(), writes.len()), (1, rows.disks as usize - 1), "{rows:?}");
    }
    for (name, requests) in [("raid5-7200", 2), ("raid6-7200", 3)] {
        let mut raid = origin(name);
        full_load(&mut raid, 1, [write(12 << 20, 4096)]);
        let work = raid.work();
        assert_eq!((work.reads, work.writes), (requests, requests));
        assert_eq!((work.bytes_read, work.bytes_written), (requests * 4096, requests * 4096));
    }
}

/// Every byte of the array has one place. No disk holds two of them at one place, and a row's
/// parity is on another disk than its data.
#[test]
fn rows_have_a_place_for_everything() {
    for rows in
        [RAID5, RAID6, Rows { disks: 3, parity: 1, unit_bytes: 512 }, Rows { disks: 4, parity: 2, unit_bytes: 512 }]
    {
        let mut used = BTreeMap::new();
        let all = u64::from(rows.disks) * rows.row_bytes();
        for unit in 0..all / rows.unit_bytes {
            let parts = rows.of_read(unit * rows.unit_bytes, rows.unit_bytes);
            let [part] = parts[..] else { panic!("{parts:?}") };
            assert_eq!(part.len, rows.unit_bytes);
            assert_eq!(used.insert((part.disk, part.offset), unit), None, "{rows:?}: {part:?}");
        }
        for row in 0..u64::from(rows.disks) {
            let (_, writes) = rows.of_write(row * rows.row_bytes(), rows.row_bytes());
            let mut disks: Vec<u32> = writes.iter().map(|part| part.disk).collect();
            disks.sort_unstable();
            assert!(disks.iter().copied().eq(0..rows.disks), "{disks:?}");
            let parity = writes.iter().filter(|part| !used.contains_key(&(part.disk, part.offset))).count();
            assert_eq!(parity, rows.parity as usize, "what holds no data holds parity");
        }
    }
}

#[test]
fn a_small_write_waits_for_its_reads_and_then_a_turn() {
    // The old data and parity, then a turn of both disks until the same place comes again.
    let mut rng = Rng::new(4);
    let mut raid = origin("raid5-7200");
    full_load(&mut raid, 1, anywhere(&mut rng, 5000).into_iter().map(|offset| write(offset, 4096)));
    let mean = raid.times().writes.mean_ns();
    // The later of two disks' reads is a little more than one's mean, and the writes end a turn
    // after the reads.
    let least = (8_500_000 + TURN / 2 + TURN) as f64;
    assert!(mean > least && mean < 1.4 * least, "{mean} for {least} and more");
}

fn random_requests(rng: &mut Rng, count: usize) -> Vec<(Nanos, OriginRequest)> {
    let mut at = 0;
    (0..count)
        .map(|_| {
            let scale = rng.below(26);
            at += rng.below(1 << scale);
            let kind = match rng.below(20) {
                0..=9 => RequestKind::Read,
                10..=17 => RequestKind::Write,
                18 => RequestKind::Trim,
                _ => RequestKind::Flush,
            };
            let scale = rng.below(12);
            let len = (1 + rng.skewed(1 << scale)) * 512;
            let offset = rng.skewed(SIZE / 512 - (1 << 13)) * 512;
            (at, OriginRequest { kind, offset, len })
        })
        .collect()
}

/// Returns the requests' work on the parts of an origin: (reads, writes, bytes read, bytes
/// written).
fn expected_work(profile: &OriginProfile, requests: &[(Nanos, OriginRequest)]) -> [u64; 4] {
    let rows = match profile.figures {
        OriginFigures::Raid(RaidFigures { disks, parity_disks, stripe_unit_bytes, .. }) => {
            Some(Rows { disks, parity: parity_disks, unit_bytes: stripe_unit_bytes })
        }
        _ => None,
    };
    let mut work = [0; 4];
    for (_, OriginRequest { kind, offset, len }) in requests {
        let (reads, writes) = match (kind, &rows) {
            (RequestKind::Read, Some(rows)) => {
                (rows.of_read(*offset, *len).iter().map(|part| part.len).collect(), vec![])
            }
            (RequestKind::Write, Some(rows)) => {
                let (reads, writes) = rows.of_write(*offset, *len);
                (reads.iter().map(|part| part.len).collect(), writes.iter().map(|part| part.len).collect())
            }
            (RequestKind::Read, None) => (vec![*len], vec![]),
            (RequestKind::Write, None) => (vec![], vec![*len]),
            _ => (vec![], vec![]),
        };
        let found = [reads.len() as u64, writes.len() as u64, reads.iter().sum(), writes.iter().sum()];
        work.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
    }
    work
}

/// Returns the least time that a request can take, with any queue. It is the time of its bytes
/// alone on the way to or from the medium, and the latencies of every request. A disk may have the
/// data of a read in its buffer.
fn least_ns(profile: &OriginProfile, request: &OriginRequest) -> Nanos {
    let bytes_ns = |rate: u64| request.len * 1_000_000_000 / rate;
    match (profile.figures, request.kind) {
        (OriginFigures::Disk(disk), RequestKind::Read) => {
            bytes_ns(disk.interface_bytes_per_second).min(bytes_ns(180_000_001))
        }
        // The bytes end where the head was at most one rounding ago.
        (OriginFigures::Disk(disk), RequestKind::Write) => {
            bytes_ns(disk.outer_bytes_per_second + 1_000) + disk.command_ns - 1_000
        }
        (OriginFigures::Flash(flash), RequestKind::Read) => {
            flash.read_ns + flash.command_ns.max(bytes_ns(flash.read_bytes_per_second))
        }
        (OriginFigures::Flash(flash), RequestKind::Write) => {
            flash.write_ns + flash.command_ns.max(bytes_ns(flash.write_bytes_per_second))
        }
        (OriginFigures::Network(network), RequestKind::Read) => network.read_ns + bytes_ns(network.bytes_per_second),
        (OriginFigures::Network(network), RequestKind::Write) => network.write_ns + bytes_ns(network.bytes_per_second),
        (OriginFigures::Raid(raid), RequestKind::Write) => raid.disk.command_ns,
        _ => 0,
    }
}

#[test]
fn each_request_is_over_once_and_work_is_conserved() {
    for profile in PROFILES {
        for_seeds(0..6, |seed| {
            let run = || {
                let requests = random_requests(&mut Rng::new(seed), 1500);
                let mut origin = OriginModel::new(profile, SIZE).expect("it is sound");
                let mut asked = BTreeMap::new();
                for (at, request) in &requests {
                    origin.advance_to(*at);
                    asked.insert(origin.submit(*request), (*at, *request));
                    let share = origin.work().utilisation(origin.now());
                    assert!((0.0..=1.0).contains(&share), "{}: at work for {share} of {at} ns", profile.name);
                }
                origin.finish();
                let mut over = BTreeMap::new();
                let mut last = 0;
                while let Some((number, at)) = origin.take_over() {
                    assert!(last <= at, "time goes back");
                    last = at;
                    assert!(over.insert(number, at).is_none(), "{number} is over twice");
                }
                assert_eq!(origin.in_flight(), 0);
                assert!(asked.keys().eq(over.keys()), "each that was asked for is over");
                for (number, (at, request)) in &asked {
                    let took = over[number] - at;
                    assert!(took >= least_ns(profile, request), "{}: {request:?} took {took}", profile.name);
                }
                let work = origin.work();
                let found = [work.reads, work.writes, work.bytes_read, work.bytes_written];
                assert_eq!(found, expected_work(profile, &requests), "{}", profile.name);
                assert!(work.utilisation(origin.now()) <= 1.0 + 1e-9, "{work:?} in {}", origin.now());
                over
            };
            assert_eq!(run(), run(), "{}: the same requests take the same time", profile.name);
        });
    }
}

#[test]
fn what_cannot_hold_is_refused_with_field_and_range() {
    let refused = |figures| {
        let profile = OriginProfile { name: "test", about: "for a test", figures };
        OriginModel::new(&profile, SIZE).map(|_| ()).expect_err("refused").to_string()
    };
    let disk = |change: fn(&mut DiskFigures)| {
        let mut figures = DISK_7200;
        change(&mut figures);
        refused(OriginFigures::Disk(figures))
    };
    assert_eq!(disk(|disk| disk.rpm = 0), "rpm is 0, but has to be from 1000 to 60000");
    assert_eq!(disk(|disk| disk.seek_track_ns = 0), "seek_track_ns is 0, but has to be from 1 to 10000000000");
    assert!(disk(|disk| disk.seek_mean_ns = 5).starts_with("seek_mean_ns is 5, but has to be from 800000 to"));
    assert!(disk(|disk| disk.inner_bytes_per_second = 0).starts_with("inner_bytes_per_second is 0"));
    assert!(disk(|disk| disk.outer_bytes_per_second = 5_000).starts_with("outer_bytes_per_second is 5000"));
    assert!(disk(|disk| disk.command_ns = 0).starts_with("command_ns is 0"));
    assert!(disk(|disk| disk.queue_depth = 0).starts_with("queue_depth is 0, but has to be from 1"));
    let raid = |disks, parity_disks, stripe_unit_bytes| {
        refused(OriginFigures::Raid(RaidFigures { disks, parity_disks, stripe_unit_bytes, disk: DISK_7200 }))
    };
    assert_eq!(raid(0, 1, 65536), "disks is 0, but has to be from 3 to 256");
    assert_eq!(raid(3, 2, 65536), "disks is 3, but has to be from 4 to 256");
    assert_eq!(raid(5, 0, 65536), "parity_disks is 0, but has to be from 1 to 2");
    assert_eq!(raid(5, 1, 0), "stripe_unit_bytes is 0, but has to be from 512 to 1073741824");
    assert_eq!(raid(5, 1, 1000), "stripe_unit_bytes is 1000, but has to be a multiple of 512");
    let OriginFigures::Flash(flash) = OriginProfile::named("sata-ssd").expect("it is one").figures else {
        panic!("it is flash")
    };
    assert!(refused(OriginFigures::Flash(FlashFigures { read_ns: 0, ..flash })).starts_with("read_ns is 0"));
    assert!(refused(OriginFigures::Flash(FlashFigures { channels: 0, ..flash })).starts_with("channels is 0"));
    let OriginFigures::Network(network) = OriginProfile::named("network").expect("it is one").figures else {
        panic!("it is one")
    };
    let without = NetworkFigures { operations_per_second: 0, ..network };
    assert!(refused(OriginFigures::Network(without)).starts_with("operations_per_second is 0"));
    assert!(refused(OriginFigures::Network(NetworkFigures { write_ns: 0, ..network })).starts_with("write_ns is 0"));
    for size in [0, u64::MAX] {
        let told = OriginModel::new(&PROFILES[0], size).map(|_| ()).expect_err("refused").to_string();
        assert!(told.starts_with(&format!("size_bytes is {size}, but has to be from 1 to")), "{told}");
    }
}

#[test]
fn the_profiles_are_sound_and_have_names_of_their_own() {
    for (at, profile) in PROFILES.iter().enumerate() {
        assert_eq!(profile.check(), Ok(()), "{}", profile.name);
        assert!(PROFILES[..at].iter().all(|other| other.name != profile.name));
        assert_eq!(OriginProfile::named(profile.name), Some(*profile));
    }
    assert_eq!(OriginProfile::named("tape"), None);
}
