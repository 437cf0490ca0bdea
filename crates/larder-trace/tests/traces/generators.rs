//! Generators: each trace has its paper's figures, by the statistics of this crate. One seed makes
//! one trace.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use larder_trace::{
    Compressibility, ContentId, Info, InfoCollector, Op, Provenance, ReaderOptions, Record, Tag, TraceErrorKind,
    TraceResult,
    generate::{
        BootStorm, BootStormConfig, Bursts, BurstsConfig, PROFILES, ProfileTrace, RandomReads, RandomReadsConfig,
        Restore, RestoreConfig, Snapshots, SnapshotsConfig, SyntheticBoot, SyntheticBootConfig, WorkloadProfile,
        ZipfConfig, ZipfTrace, boot_template,
    },
};

fn all(records: impl Iterator<Item = TraceResult<Record>>) -> Vec<Record> {
    records.collect::<TraceResult<_>>().expect("records")
}

fn info(records: &[Record]) -> Info {
    InfoCollector::collect(None, records.iter().copied().map(Ok)).expect("statistics")
}

fn is_near(value: f64, wanted: f64, tolerance: f64) -> bool {
    (value - wanted).abs() <= tolerance * wanted.abs()
}

#[test]
fn zipf_has_the_ratios_of_austerecache() {
    for (write_to_read, io_dedup_ratio) in [(7.0 / 3.0, 0.5), (1.0 / 9.0, 0.2), (9.0, 0.8)] {
        let config = ZipfConfig { write_to_read, io_dedup_ratio, requests: 100_000, seed: 3, ..ZipfConfig::default() };
        let records = all(ZipfTrace::new(config).expect("sound"));
        let info = info(&records);
        assert_eq!((info.blocks, info.block_bytes), (100_000, 32 << 10));
        let ratio = info.write_to_read_ratio().expect("reads");
        assert!(is_near(ratio, write_to_read, 0.04), "{ratio} writes to reads for {write_to_read}");
        let share = info.io_dedup_ratio().expect("writes");
        assert!((share - io_dedup_ratio).abs() < 0.015, "{share} for {io_dedup_ratio}");
        // Nearly all of 128 MiB is touched, anywhere on 5 GiB.
        assert!(info.working_set_blocks > 3700 && info.working_set_blocks <= 4096, "{}", info.working_set_blocks);
        assert!(info.end_bytes > 4 << 30 && info.end_bytes <= 5 << 30);
        assert!(is_near(info.compression_ratio().expect("sizes"), 1.86, 0.03), "{:?}", info.compression_ratio());
        assert_eq!(info.content.expect("content").reads_mismatched, 0);
        assert_eq!(records, all(ZipfTrace::new(config).expect("sound")));
        assert_ne!(records, all(ZipfTrace::new(ZipfConfig { seed: 4, ..config }).expect("sound")));
    }
}

#[test]
fn zipf_popularity_follows_the_law() {
    let config = ZipfConfig { write_to_read: 0.0, requests: 200_000, ..ZipfConfig::default() };
    let mut hits: HashMap<u64, u64> = HashMap::new();
    for record in all(ZipfTrace::new(config).expect("sound")) {
        *hits.entry(record.offset_bytes).or_default() += 1;
    }
    let mut hits: Vec<u64> = hits.into_values().collect();
    hits.sort_unstable_by(|a, b| b.cmp(a));
    // Constant 1.0 over 4096 chunks: the first has a share of 1/H(4096) = 1/8.895, the tenth a
    // tenth of that.
    assert!(is_near(hits[0] as f64, 200_000.0 / 8.895, 0.03), "{}", hits[0]);
    assert!(is_near(hits[9] as f64, 20_000.0 / 8.895, 0.1), "{}", hits[9]);
}

#[test]
fn random_reads_meet_their_grid() {
    let base = RandomReadsConfig { cache_bytes: 8 << 20, requests: 60_000, ..RandomReadsConfig::default() };
    let grid: Vec<RandomReadsConfig> = base.grid().collect();
    assert_eq!(grid.len(), 100);
    for config in
        grid.into_iter().filter(|c| [1.0, 4.0].contains(&c.working_set_ratio) && c.dedup_ratio as u32 % 3 == 1)
    {
        let trace = RandomReads::new(config).expect("sound");
        let bytes = trace.working_set_bytes();
        assert_eq!(bytes, (8 << 20) * config.working_set_ratio as u64);
        let info = info(&all(trace));
        assert_eq!((info.write_blocks, info.read_blocks), (0, 60_000));
        assert!(info.working_set_bytes() <= bytes && is_near(info.working_set_bytes() as f64, bytes as f64, 0.01));
        let unique = info.unique_bytes().expect("content") as f64;
        assert!(
            is_near(bytes as f64 / unique, config.dedup_ratio, 0.02),
            "{unique} of {bytes}: {}",
            config.dedup_ratio
        );
    }
}

#[test]
fn a_made_up_boot_is_like_nitros() {
    let records =
        all(SyntheticBoot::new(SyntheticBootConfig { seed: 11, ..SyntheticBootConfig::default() }).expect("sound"));
    let info = info(&records);
    assert_eq!(info.read_bytes + info.write_bytes, 18 << 20);
    let reads = info.read_blocks as f64 / info.blocks as f64;
    assert!((reads - 0.99).abs() < 0.01, "{reads}");
    let random = 1.0 - info.sequential_share().expect("requests");
    assert!((random - 0.14).abs() < 0.03, "{random}");
    assert!(is_near(info.dedup_ratio().expect("content"), 1.2, 0.02), "{:?}", info.dedup_ratio());
}

/// Returns the distinct contents by machine.
fn contents_by_tag(records: &[Record]) -> BTreeMap<String, HashSet<ContentId>> {
    let mut by_tag: BTreeMap<String, HashSet<ContentId>> = BTreeMap::new();
    for record in records {
        if let Some(content) = record.content {
            by_tag.entry(record.tag.to_string()).or_default().insert(content.fingerprint);
        }
    }
    by_tag
}

fn check_storm(template: Vec<Record>, config: BootStormConfig) {
    let count = template.len();
    let one = info(&template);
    let records = all(BootStorm::new(template, config).expect("sound"));
    let storm = info(&records);
    let vms = u64::from(config.vms);
    assert_eq!((storm.blocks, storm.requests), (one.blocks * vms, one.requests * vms));
    assert_eq!(storm.working_set_blocks, one.working_set_blocks * vms);
    assert!(records.len() >= count * config.vms as usize);
    let by_tag = contents_by_tag(&records);
    assert_eq!(by_tag.len() as u64, vms);
    let original = &by_tag["vm0"];
    // Between any two machines, with and without the original, and between all.
    let tags: Vec<&String> = by_tag.keys().collect();
    for (at, &one) in tags.iter().enumerate() {
        for &other in &tags[..at] {
            let shared = by_tag[one].intersection(&by_tag[other]).count() as f64 / by_tag[one].len() as f64;
            assert!((shared - config.overlap).abs() < 0.002, "{one} and {other}: {shared}");
        }
    }
    let of_all = original.iter().filter(|content| by_tag.values().all(|contents| contents.contains(content))).count();
    let shared = of_all as f64 / original.len() as f64;
    assert!((shared - config.overlap).abs() < 0.002, "all: {shared}");
    // The contents that one machine changed are its own.
    let distinct: HashSet<&ContentId> = by_tag.values().flatten().collect();
    let expected = original.len() as f64 * (1.0 + (vms - 1) as f64 * (1.0 - config.overlap));
    assert!(is_near(distinct.len() as f64, expected, 0.01), "{} of {expected}", distinct.len());
    // Addresses are shifted by 0 to 15% of a disk, by one amount a machine.
    let mut shifts = BTreeSet::new();
    for vm in 1..vms {
        let first = records.iter().find(|record| record.tag.to_string() == format!("vm{vm}")).expect("a record");
        let plain = records.iter().find(|record| record.tag.to_string() == "vm0").expect("a record");
        let disk = config.disk_bytes.next_multiple_of(4096);
        let shift = (first.offset_bytes - vm * disk + disk - plain.offset_bytes) % disk;
        assert!(shift as f64 <= 0.15 * disk as f64, "{shift}");
        shifts.insert(shift);
    }
    assert!(shifts.len() as u64 > vms / 2);
    assert_eq!(storm.content.expect("content").reads_mismatched, one.content.expect("content").reads_mismatched * vms);
}

#[test]
fn a_boot_storm_of_a_made_up_boot() {
    let template =
        all(SyntheticBoot::new(SyntheticBootConfig { boot_bytes: 8 << 20, ..Default::default() }).expect("sound"));
    check_storm(template, BootStormConfig::default());
}

#[test]
fn a_boot_storm_of_a_recorded_boot() {
    let Some(traces) = crate::common::traces("a_boot_storm_of_a_recorded_boot") else { return };
    let reader = larder_trace::open(&traces.join("vm-boot.trace.zst"), None, ReaderOptions::default()).expect("opens");
    // The first guest's first boot, on its disk of 2.5 GB.
    let disk = 0..5_242_880u64 * 512;
    let template = boot_template(reader, Some("vm1"), disk.clone(), Some(200_000_000)).expect("a boot");
    assert!(template.len() > 1000, "{}", template.len());
    check_storm(template, BootStormConfig { vms: 12, disk_bytes: disk.end, ..BootStormConfig::default() });
}

#[test]
fn trims_that_wrap_stay_on_their_disk() {
    let content = larder_trace::TraceContent {
        fingerprint: ContentId([1, 1]),
        stored_bytes: None,
        is_zero: false,
        provenance: Provenance::Recorded,
    };
    let disk = 1 << 20;
    let read = Record { content: Some(content), ..Record::new(1, Op::Read, 0, 4096) };
    let template = vec![read, Record::new(2, Op::Trim, 4096, disk - 4096)];
    let config = BootStormConfig { vms: 20, disk_bytes: disk, ..BootStormConfig::default() };
    let records = all(BootStorm::new(template, config).expect("sound"));
    let trims: Vec<&Record> = records.iter().filter(|record| record.op == Op::Trim).collect();
    assert!(trims.len() > 20, "some wrap");
    assert_eq!(trims.iter().map(|trim| trim.len_bytes).sum::<u64>(), 20 * (disk - 4096));
    assert!(trims.iter().all(|trim| trim.offset_bytes / disk == (trim.end_bytes() - 1) / disk));
}

#[test]
fn profiles_meet_their_tables() {
    for profile in PROFILES {
        // About a hundred thousand requests each.
        let scale = 100_000.0 * f64::from(profile.chunk_bytes) / (profile.io_gib * f64::from(1 << 30));
        let trace = ProfileTrace::new(profile, scale, Compressibility::default(), 1).expect("sound");
        let requests = trace.requests();
        let info = info(&all(trace));
        let name = profile.name;
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30) / scale;
        assert_eq!((info.blocks, info.block_bytes), (requests, u64::from(profile.chunk_bytes)), "{name}");
        assert!(is_near(gib(info.read_bytes + info.write_bytes), profile.io_gib, 0.001), "{name}");
        assert!(is_near(gib(info.working_set_bytes()), profile.working_set_gib, 0.001), "{name}");
        let unique = gib(info.unique_bytes().expect("content"));
        assert!(is_near(unique, profile.unique_gib, 0.01), "{name}: {unique} for {}", profile.unique_gib);
        let ratio = info.write_to_read_ratio().expect("reads");
        assert!(is_near(ratio, profile.write_to_read, 0.01), "{name}: {ratio} for {}", profile.write_to_read);
        assert_eq!(info.content.expect("content").reads_mismatched, 0, "{name}");
        assert!(gib(info.end_bytes) <= profile.disk_gib * 1.01, "{name}");
    }
}

#[test]
fn profiles_of_nitro_deduplicate_to_two() {
    let profile = WorkloadProfile::named("webvm@nitro").expect("a profile");
    let info = info(&all(ProfileTrace::new(profile, 0.005, Compressibility::default(), 2).expect("sound")));
    assert!(is_near(info.dedup_ratio().expect("content"), 2.0, 0.01), "{:?}", info.dedup_ratio());
    let error = WorkloadProfile::named("webvm@larder").expect_err("no such profile").to_string();
    assert!(error.contains("homes@austere"), "{error}");
}

#[test]
fn snapshots_age_as_nitros_do() {
    let config = SnapshotsConfig { image_bytes: 64 << 20, ..SnapshotsConfig::default() };
    let records = all(Snapshots::new(config).expect("sound"));
    let blocks = 16_384;
    let mut by_day: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in &records {
        by_day.entry(record.request - 1).or_default().push(record);
    }
    assert_eq!((by_day.len(), by_day[&0].len()), (100, blocks));
    let mut rates: Vec<f64> = (1..100).map(|day| by_day[&day].len() as f64 / blocks as f64).collect();
    rates.sort_unstable_by(f64::total_cmp);
    assert!(is_near(rates[49], 0.023, 0.15), "median {}", rates[49]);
    // A day has each block once, by address, as a recording has.
    assert!(by_day.values().all(|day| day.windows(2).all(|two| two[0].offset_bytes < two[1].offset_bytes)));
    // The content that snapshots share with the last, on average over the newest and the oldest 25.
    let mut disk = vec![ContentId::default(); blocks];
    let mut images = Vec::new();
    for day in by_day.values() {
        for record in day {
            disk[record.offset_bytes as usize / 4096] = record.content.expect("content").fingerprint;
        }
        images.push(disk.clone());
    }
    let last: HashSet<ContentId> = disk.iter().copied().collect();
    let shared = |images: &[Vec<ContentId>]| {
        let blocks = images.iter().flatten();
        blocks.clone().filter(|content| last.contains(content)).count() as f64 / blocks.count() as f64
    };
    let (oldest, newest) = (shared(&images[..25]), shared(&images[75..]));
    assert!((oldest - 0.2).abs() < 0.08 && (newest - 0.8).abs() < 0.06, "oldest {oldest}, newest {newest}");
}

#[test]
fn restores_read_each_snapshot_back() {
    let config = SnapshotsConfig { image_bytes: 3 << 20, days: 6, overwrite_share: 0.2, ..SnapshotsConfig::default() };
    let days = all(Snapshots::new(config).expect("sound"));
    let open = || Ok(days.iter().copied().map(Ok));
    let wanted = RestoreConfig { days: BTreeSet::from([0, 2, 5]), ..RestoreConfig::default() };
    let records = all(Restore::new(open, wanted).expect("opens"));
    let (writes, reads) = records.split_at(days.len());
    assert!(
        writes.iter().zip(&days).all(|(a, b)| (a.content, a.offset_bytes, a.op) == (b.content, b.offset_bytes, b.op))
    );
    assert_eq!(reads.len(), 3 * 768);
    let disk_bytes = 3 << 20;
    for (at, day) in [0u64, 2, 5].into_iter().enumerate() {
        let mut disk = HashMap::new();
        for record in days.iter().filter(|record| record.request - 1 <= day) {
            disk.insert(record.offset_bytes, record.content);
        }
        let read = &reads[at * 768..(at + 1) * 768];
        for (block, record) in read.iter().enumerate() {
            let offset = block as u64 * 4096;
            assert_eq!((record.op, record.offset_bytes), (Op::Read, (day + 1) * disk_bytes + offset));
            assert_eq!(record.content, disk[&offset]);
            assert_eq!(record.tag.to_string(), format!("restore{day}"));
        }
        // Reads of 512 KiB.
        let requests: HashSet<u64> = read.iter().map(|record| record.request).collect();
        assert_eq!(requests.len(), 6);
    }
    let without = RestoreConfig { with_writes: false, ..RestoreConfig::default() };
    assert_eq!(all(Restore::new(open, without).expect("opens")).len(), 6 * 768);
    let odd = RestoreConfig { io_bytes: 1000, ..RestoreConfig::default() };
    assert!(Restore::new(open, odd).is_err());
}

/// CAFTL's bursts have the configured time, writes, duplicates and sizes. Reads find the written
/// content.
#[test]
fn bursts_are_as_long_as_large_and_as_often_duplicates_as_asked() {
    let config = BurstsConfig {
        seconds: 600.0,
        blocks_written: 60_000,
        request_blocks: (4, 12),
        write_share: 0.75,
        duplication: 0.2,
        footprint_blocks: 20_000,
        burst_requests: 8,
        seed: 3,
    };
    let records = all(Bursts::new(config).expect("sound"));
    let found = info(&records);
    assert!(is_near(found.io_dedup_ratio().expect("writes"), 0.2, 0.1), "{:?}", found.io_dedup_ratio());
    assert_eq!(found.content.as_ref().map(|content| content.reads_mismatched), Some(0));
    let written = records.iter().filter(|record| record.op == Op::Write).count();
    assert!((60_000..60_012).contains(&written), "{written}");
    assert!(is_near(found.duration_us.expect("times") as f64 / 1e6, 600.0, 0.2), "{:?}", found.duration_us);
    let mut requests: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    records.iter().for_each(|record| requests.entry(record.request).or_default().push(*record));
    let writes = requests.values().filter(|request| request[0].op == Op::Write).count() as f64;
    assert!(is_near(writes / requests.len() as f64, 0.75, 0.05));
    let bursts: BTreeSet<u64> = requests
        .values()
        .zip(requests.values().skip(1))
        .filter(|(one, next)| {
            let apart = next[0].time_us.expect("a time") - one[0].time_us.expect("a time");
            apart > 14 * one.len() as u64
        })
        .map(|(_, next)| next[0].request)
        .collect();
    assert!(is_near(requests.len() as f64 / bursts.len() as f64, 8.0, 0.15), "{}", bursts.len());
    for request in requests.values() {
        assert!((4..=12).contains(&request.len()));
        assert!(request.windows(2).all(|pair| pair[0].end_bytes() == pair[1].offset_bytes));
        assert!(request.iter().all(|record| record.end_bytes() <= 20_000 * 4096));
    }
    // Half of the duplicates come as whole requests.
    let mut seen = HashSet::new();
    let (mut whole, mut single) = (0, 0);
    for request in requests.values().filter(|request| request[0].op == Op::Write) {
        let contents: Vec<ContentId> =
            request.iter().map(|record| record.content.expect("content").fingerprint).collect();
        let old = contents.iter().filter(|content| seen.contains(*content)).count();
        if old == contents.len() {
            whole += old
        } else {
            single += old
        };
        seen.extend(contents);
    }
    assert!(is_near(f64::from(whole as u32), f64::from(single as u32), 0.25), "{whole} {single}");
    let half = all(Bursts::new(config.scaled(0.5)).expect("sound"));
    assert!(is_near(half.len() as f64, records.len() as f64 / 2.0, 0.1));
    assert_eq!(records, all(Bursts::new(config).expect("sound")));
    assert_ne!(records, all(Bursts::new(BurstsConfig { seed: 4, ..config }).expect("sound")));
}

#[test]
fn recorded_snapshots_are_restored() {
    let Some(traces) = crate::common::traces("recorded_snapshots_are_restored") else { return };
    let path = traces.join("snapshots.days.zst");
    let open = || larder_trace::open(&path, None, ReaderOptions::default());
    let config = RestoreConfig { days: BTreeSet::from([24]), with_writes: false, ..RestoreConfig::default() };
    let info = InfoCollector::collect(None, Restore::new(open, config).expect("opens")).expect("a sound trace");
    // At the end 1917 MB are not zero, with 411404 distinct contents.
    let content = info.content.expect("content");
    assert_eq!((info.blocks, info.read_blocks), (786_432, 786_432));
    assert_eq!(((info.blocks - content.zero_blocks) * 4096) >> 20, 1917);
    assert_eq!(content.unique_blocks, 411_404);
    assert_eq!(info.read_sizes.max_bytes(), Some(512 << 10));
}

const SMALL: BurstsConfig = BurstsConfig {
    seconds: 1.0,
    blocks_written: 100,
    request_blocks: (1, 4),
    write_share: 0.5,
    duplication: 0.5,
    footprint_blocks: 100,
    burst_requests: 2,
    seed: 0,
};

#[test]
fn what_cannot_be_met_is_refused() {
    let bursts = |config| Bursts::new(config).err();
    assert!(bursts(SMALL).is_none());
    let kinds = [
        ZipfTrace::new(ZipfConfig { working_set_bytes: 6 << 30, ..Default::default() }).err(),
        ZipfTrace::new(ZipfConfig { io_dedup_ratio: 1.5, ..Default::default() }).err(),
        ZipfTrace::new(ZipfConfig { chunk_bytes: 3000, ..Default::default() }).err(),
        ZipfTrace::new(ZipfConfig { zipf: f64::NAN, ..Default::default() }).err(),
        RandomReads::new(RandomReadsConfig { dedup_ratio: 0.5, ..Default::default() }).err(),
        RandomReads::new(RandomReadsConfig { cache_bytes: 0, ..Default::default() }).err(),
        SyntheticBoot::new(SyntheticBootConfig { request_bytes: 100, ..Default::default() }).err(),
        BootStorm::new(Vec::new(), BootStormConfig::default()).err(),
        Snapshots::new(SnapshotsConfig { image_bytes: 0, ..Default::default() }).err(),
        ProfileTrace::new(PROFILES[0], 0.0, Compressibility::default(), 0).err(),
        ProfileTrace::new(PROFILES[0], -1.0, Compressibility::default(), 0).err(),
        bursts(BurstsConfig { request_blocks: (0, 4), ..SMALL }),
        bursts(BurstsConfig { request_blocks: (5, 4), ..SMALL }),
        bursts(BurstsConfig { burst_requests: 0, ..SMALL }),
        bursts(BurstsConfig { footprint_blocks: 3, ..SMALL }),
        bursts(BurstsConfig { blocks_written: 3, ..SMALL }),
        bursts(BurstsConfig { write_share: 0.0, ..SMALL }),
        bursts(BurstsConfig { duplication: 1.0, ..SMALL }),
        bursts(BurstsConfig { seconds: f64::NAN, ..SMALL }),
    ];
    for (at, error) in kinds.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("number {at} is taken"));
        assert_eq!(error.kind(), TraceErrorKind::Parameter, "{error}");
        assert!(error.to_string().starts_with("expected") || at == 9, "{error}");
    }
}

#[test]
fn a_boot_of_a_tag_that_no_record_has_is_refused_with_those_that_there_are() {
    let tagged = |names: &[&str]| {
        let records: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                Ok(Record { tag: Tag::new(name.as_bytes()), ..Record::new(at as u64, Op::Read, 0, 4096) })
            })
            .collect();
        boot_template(records, Some("nope"), 0..1 << 20, None)
    };
    let refusal = |names: &[&str]| tagged(names).expect_err("no such tag").to_string();
    assert_eq!(refusal(&["vm2", "vm1", "vm2"]), "no record of the boot has the tag \"nope\": the tags are vm1, vm2");
    assert_eq!(refusal(&["", ""]), "no record of the boot has the tag \"nope\": none has a tag");
    let many: Vec<String> = (0..20).map(|vm| format!("vm{vm:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(refusal(&many).ends_with("among the tags are vm00, vm01, vm02, vm03, vm04, vm05, vm06, vm07"));
    assert_eq!(tagged(&["vm1", "nope"]).expect("a boot").len(), 1);
}
