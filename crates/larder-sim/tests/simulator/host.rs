//! Every design on every translation layer, over random workloads.
//!
//! The drive gets the bytes that the cache writes, finds the data of its reads, and deduplicates
//! pages that are known to be equal. The cache answers as without a drive.

use std::ops::Range;

use crate::common::{Rng, for_seeds};
use larder_core::{Fingerprint, Lba};
use larder_sim::{
    cache::{CacheRequest, Content, WritePolicy},
    devices::{Device, DeviceAction, Requests},
    lab::LabListener,
    measure::{DriveMeasures, Measures, Meter},
    report::drive::figures,
    setup::{
        Accounting, FlashAmount, Granularity, OptionId, Options, Orphans, REPLAY_DESIGNS, ReplayDesign, Setup,
        drive::DriveSetup,
    },
    tally::Tally,
};
use larder_ssd::{
    kinds::{FTLS, FtlKind},
    op::Cause,
    profile::DriveProfile,
};

const CHUNK: u32 = 8192;

fn content(number: u64) -> Content {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Content { fingerprint: Fingerprint(bytes), stored_bytes: 1 + (number * 977 % u64::from(CHUNK)) as u32 }
}

/// Returns reads, writes, trims and flushes, of few contents.
fn workload(rng: &mut Rng, count: u64) -> Vec<CacheRequest> {
    let mut disk: Vec<u64> = (0..6000).map(|_| 1 + rng.below(5000)).collect();
    (0..count)
        .map(|_| {
            let at = if rng.chance(50) { rng.skewed(6000) } else { rng.below(6000) };
            match rng.below(40) {
                0 => CacheRequest::Trim(Lba(at), (1 + rng.below(20)).min(6000 - at)),
                1 => CacheRequest::Flush,
                kind if kind < 20 => {
                    disk[at as usize] = 1 + rng.below(5000);
                    CacheRequest::Write(Lba(at), content(disk[at as usize]))
                }
                _ => CacheRequest::Read(Lba(at), content(disk[at as usize])),
            }
        })
        .collect()
}

fn drive(profile: &str, ftl: &'static FtlKind) -> Option<DriveSetup> {
    let profile = DriveProfile::named(profile).expect("a profile");
    let drive = DriveSetup::new(profile, ftl).with("over_provisioning_percent", 25.0).expect("a number");
    // Far smaller than the caches here, so that some parts of units leave it.
    Some(drive.with("buffer_bytes", f64::from(256 << 10)).expect("a number"))
}

fn replayed(setup: &Setup, requests: &[CacheRequest]) -> Measures {
    let built = setup.build(0).unwrap_or_else(|why| panic!("{}: {why}", setup.label()));
    let mut meter = Meter::new(built, CHUNK, 0);
    requests.chunks(1000).for_each(|some| meter.take(some));
    meter.finish()
}

/// In write-through as in write-back a drive drops only clean data. So the cache writes nothing
/// back for it, and never reads dropped data. Any amount of dirty data finds room.
#[test]
fn what_is_dirty_is_not_dropped_and_what_is_dropped_is_forgotten() {
    let totals = std::cell::Cell::new((0, 0));
    for_seeds(0..2, |seed| {
        let mut rng = Rng::new(seed);
        let requests = workload(&mut rng, 12_000);
        for design in REPLAY_DESIGNS {
            for name in ["flashtier", "flashtier-merge", "flashtier-lru"] {
                for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
                    let ftl = FtlKind::named(name).expect("a layer");
                    let orphans = design.paper_options.contains(&OptionId::Orphans).then_some(Orphans::Forget);
                    // The drive has as much flash as the cache takes, of which the log has a tenth:
                    // it always drops data.
                    let drive = drive("caftl", ftl).expect("a drive").with("over_provisioning_percent", 0.0);
                    let drive = Some(drive.expect("a number"));
                    let accounting = orphans.map(|_| Accounting::Paper);
                    let options = Options { drive, orphans, accounting, ..Options::default() };
                    let setup = Setup { policy, ..setup(design.name, options) };
                    let label = format!("{} on {name} in {}", design.name, policy.name());
                    let built = setup.build(0).unwrap_or_else(|why| panic!("{label}: {why}"));
                    let (mut cache, mut host) = (built.cache, built.drive.expect("a drive"));
                    cache.gather(true);
                    let (mut asked, mut cleaned) = (Requests::default(), 0);
                    let mut tally = Tally::default();
                    for request in &requests {
                        cache.replay(std::slice::from_ref(request), &mut tally);
                        cache.take_requests(&mut asked);
                        host.carry_out(&asked);
                        loop {
                            let dropped = host.take_evicted();
                            for bytes in &dropped {
                                cache.evict_range(bytes.clone());
                                cache.take_requests(&mut asked);
                                // The drop of a larger WEU may write back dirty chunks elsewhere in
                                // it.
                                let reads = asked
                                    .iter()
                                    .filter(|one| (one.device, one.action) == (Device::Flash, DeviceAction::Read));
                                for read in reads.map(|one| one.range()) {
                                    let is_there = |gone: &Range<u64>| read.end <= gone.start || gone.end <= read.start;
                                    assert!(dropped.iter().all(is_there), "{label}: what was dropped was dirty");
                                }
                                host.carry_out(&asked);
                            }
                            let Some(bytes) = host.too_dirty() else { break };
                            cache.clean_range(bytes.clone());
                            cache.take_requests(&mut asked);
                            host.carry_out(&asked);
                            assert_ne!(host.too_dirty(), Some(bytes), "{label}: it was cleaned");
                            cleaned += 1;
                        }
                    }
                    assert!(policy == WritePolicy::Back || cleaned == 0, "{label}: {cleaned} times too dirty");
                    let counts = host.drive_counts();
                    // A design with an order of its own may read a record for one chunk of a
                    // request, which the drive drops for another chunk of it.
                    let most = if design.name == larder_core::larder::NAME { requests.len() as u64 / 1000 } else { 0 };
                    assert!(counts.unmapped_pages_read <= most, "{label}: what was dropped is forgotten");
                    host.ftl().check();
                    println!("{label}: {} pages dropped, {cleaned} blocks cleaned", counts.pages_evicted);
                    let (dropped, all_cleaned) = totals.get();
                    totals.set((dropped + counts.pages_evicted, all_cleaned + cleaned));
                }
            }
        }
    });
    let (dropped, cleaned) = totals.get();
    assert!(dropped > 10_000 && cleaned > 100, "{dropped} pages dropped, {cleaned} blocks cleaned");
}

/// A layer may keep more for itself than its profile does. The reported size is its space for the
/// host, and not that of the geometry.
#[test]
fn the_size_of_a_drive_is_what_its_layer_has_for_the_host() {
    let of = |name: &str| {
        let profile = DriveProfile::named("nitro-mlc").expect("a profile");
        let drive = DriveSetup::new(profile, FtlKind::named(name).expect("a layer"));
        let setup = Setup {
            flash: FlashAmount::Bytes(9 << 20),
            policy: WritePolicy::Through,
            ..setup("lru", Options { drive: Some(drive), ..Options::default() })
        };
        let measures = replayed(&setup, &workload(&mut Rng::new(1), 100)).drive.expect("a drive");
        let told = figures(&drive, &measures, None);
        assert_eq!(told["ssd_logical_bytes"], measures.logical_bytes);
        (measures.logical_bytes, measures.geometry.logical_bytes())
    };
    let (has, left) = of("hybrid");
    assert_eq!((has, left), (9_437_184, 9_854_976));
    let (has, left) = of("page");
    assert_eq!(has, left);
}

fn setup(name: &str, options: Options) -> Setup {
    let design = ReplayDesign::named(name).expect("a design");
    Setup { design, chunk_bytes: CHUNK, flash: FlashAmount::Bytes(16 << 20), policy: WritePolicy::Back, options }
}

#[test]
fn every_design_lies_on_every_layer() {
    for_seeds(0..2, |seed| {
        let mut rng = Rng::new(seed);
        let requests = workload(&mut rng, 12_000);
        for design in REPLAY_DESIGNS {
            let bare = setup(design.name, Options::default());
            for ftl in FTLS {
                let options = Options { drive: drive("caftl", ftl), ..bare.options };
                let label = format!("{} on {}", design.name, ftl.name);
                // The cache cannot forget content without an address if a layer drops it.
                let keeps_orphans = design.paper_options.contains(&OptionId::Orphans);
                let mut options = options;
                if keeps_orphans && ftl.name.starts_with("flashtier") {
                    let why = Setup { options, ..bare }.build(0).map(|_| ()).expect_err("refused");
                    let way_out = "--accounting paper --orphans forget";
                    assert!(why.contains(ftl.name) && why.contains(way_out), "{label}: {why}");
                    (options.orphans, options.accounting) = (Some(Orphans::Forget), Some(Accounting::Paper));
                }
                let alone = replayed(&Setup { options: Options { drive: None, ..options }, ..bare }, &requests);
                assert_eq!(alone.drive, None);
                let measures = replayed(&Setup { options, ..bare }, &requests);
                let DriveMeasures { counts, host, wear, geometry, .. } = measures.drive.clone().expect("a drive");
                // A cache evicts other chunks if the drive chooses its victims, makes it forget
                // data, or has it write data back.
                if counts.pages_evicted == 0 && ftl.name != "weu" && !ftl.name.starts_with("flashtier") {
                    assert_eq!((measures.tally, measures.traffic), (alone.tally, alone.traffic), "{label}");
                }
                let written = measures.flash_total_bytes_written() / u64::from(geometry.page_bytes);
                assert_eq!(host.bytes_written, measures.flash_total_bytes_written(), "{label}");
                let amplified = measures.drive.as_ref().and_then(DriveMeasures::write_amplification).expect("writes");
                let programmed = counts.pages_programmed() * u64::from(geometry.page_bytes);
                assert!((amplified * host.bytes_written as f64 / programmed as f64 - 1.0).abs() < 1e-9, "{label}");
                // In pages of 4 KiB only AustereCache's slots of 512 bytes are parts.
                if host.units_completed + host.writes_absorbed == 0 {
                    assert_eq!(counts.host_pages_written, written, "{label}");
                } else {
                    assert!(design.name == "austere" || geometry.page_bytes > 4096 || written > 0, "{label}: {host:?}");
                }
                assert_eq!(
                    counts.programs[Cause::Host as usize],
                    counts.host_pages_written - counts.pages_deduplicated
                );
                assert_eq!(counts.unmapped_pages_read, 0, "{label}: what is read was written, and not dropped");
                assert!(counts.host_pages_read > 0, "{label}");
                // A slot for one record is written again soon, and whole.
                let trims = measures.traffic.weu_erasures > 0 || options.accounting.is_some();
                assert!(counts.host_pages_trimmed > 0 || !trims, "{label}");
                // A design that stores little may write less than the drive has.
                let goes_around = counts.pages_programmed() > u64::from(geometry.pages());
                assert!((counts.blocks_erased() > 0 || !goes_around) && wear.max >= wear.min, "{label}: {counts:?}");
                let erases = f64::from(geometry.blocks()) * wear.mean;
                assert!((erases - counts.blocks_erased() as f64).abs() < 0.5, "{label}: wear is of all erasures");
            }
        }
    });
}

#[test]
fn a_drive_deduplicates_what_a_cache_leaves_double() {
    let requests = workload(&mut Rng::new(1), 12_000);
    let caftl = FtlKind::named("caftl").expect("a layer");
    let share = |name, options: Options| {
        let options = Options { drive: drive("caftl", caftl), ..options };
        let counts = replayed(&setup(name, options), &requests).drive.expect("a drive").counts;
        counts.pages_deduplicated as f64 / counts.host_pages_written as f64
    };
    let raw = Options { dedup: Some(false), compress: Some(false), ..Options::default() };
    let extent = Options { granularity: Some(Granularity::Extent), ..raw };
    for (name, options) in [("lru", Options::default()), ("arc", Options::default()), ("nitro", extent)] {
        let found = share(name, options);
        println!("{name}: {found:.3}");
        assert!(found > 0.1, "{name}: {found}");
    }
    // Raw chunks of a WEU begin at a sector, so that equal chunks are equal pages.
    assert!(share("nitro", raw) > 0.1);
    // Content that the cache dropped and stores again may still lie on the drive, as an invalid
    // page.
    let left = share("d-lru", Options::default());
    assert!(left < 0.5 * share("lru", Options::default()), "little is left to the drive: {left}");
    assert_eq!(
        share("nitro", Options { dedup: Some(false), ..Options::default() }),
        0.0,
        "nobody knows what compressed bytes are"
    );
}

#[test]
fn parts_of_pages_wait_for_the_rest_of_them() {
    let requests = workload(&mut Rng::new(2), 12_000);
    let page = FtlKind::named("page-trim").expect("a layer");
    // Pages of 8 KiB under log frames and tables of 4 KiB.
    let on = |name, buffer: f64| {
        let drive = drive("nitro-mlc", page).map(|drive| drive.with("buffer_bytes", buffer).expect("a number"));
        let setup = setup(name, Options { drive, ..Options::default() }).by_its_paper();
        let measures = replayed(&setup, &requests);
        let DriveMeasures { counts, host, .. } = measures.drive.clone().expect("a drive");
        assert_eq!(counts.unmapped_pages_read, 0, "{name}");
        // AustereCache's tables are written in sixteenths of such a page.
        let most = if name == "austere" { 16 } else { 2 };
        assert!(counts.host_pages_written * 8192 <= most * measures.flash_total_bytes_written(), "{name}");
        (host, counts.host_pages_written)
    };
    assert_eq!(on("d-lru", 0.0).0.units_completed, 0, "the pages of one table come in their order");
    for name in ["nitro", "austere"] {
        let ((none, without), (much, with)) = (on(name, 0.0), on(name, (1 << 20) as f64));
        assert!(none.units_completed > much.units_completed && without > with, "{name}: {none:?} and {much:?}");
        assert!(much.writes_absorbed > 0 && none.pages_read_to_complete > 0, "{name}: {none:?} and {much:?}");
    }
}

/// Returns reads, and a few writes, of chunks with different contents. They are skewed, over three
/// times the cache.
fn mostly_reads(count: u64) -> Vec<CacheRequest> {
    let mut rng = Rng::new(3);
    (0..count)
        .map(|_| {
            let at = if rng.chance(70) { rng.below(6000) } else { rng.below(40_000) };
            let of = content(1 + at);
            if rng.chance(10) { CacheRequest::Write(Lba(at), of) } else { CacheRequest::Read(Lba(at), of) }
        })
        .collect()
}

#[test]
fn the_drive_made_for_weus_takes_the_caches_as_its_units() {
    let requests = mostly_reads(120_000);
    for weu_bytes in [512 << 10, 1 << 20, 2 << 20, 4 << 20] {
        let on = |name: &str| {
            let profile = DriveProfile::named("nitro-mlc").expect("a profile");
            let drive = DriveSetup::new(profile, FtlKind::named(name).expect("a layer")).with("page_bytes", 4096.0);
            let drive = drive.and_then(|drive| drive.with("pages_per_block", 512.0)).expect("numbers");
            let drive = Some(DriveSetup { only_data: true, ..drive });
            let options = Options { drive, weu_bytes: Some(weu_bytes), compress: Some(false), ..Options::default() };
            let flash = FlashAmount::Bytes(128 << 20);
            let setup = Setup { flash, policy: WritePolicy::Through, ..setup("nitro", options) };
            replayed(&setup, &requests)
        };
        let (own, hybrid) = (on("weu"), on("hybrid"));
        let drive = own.drive.as_ref().expect("a drive");
        let block_bytes = drive.geometry.block_bytes();
        let weu_bytes = u64::from(weu_bytes);
        let hits = [&own, &hybrid].map(|measures| 100.0 * measures.tally.read_hit_ratio());
        let (evictions, erased) = (own.traffic.weu_erasures, drive.counts.blocks_erased());
        println!(
            "WEUs of {weu_bytes} in blocks of {block_bytes}: {hits:?}% hits, {evictions} evictions, {erased} erased"
        );
        assert!((hits[0] - hits[1]).abs() < 2.0, "WEUs of {weu_bytes}: {hits:?}% hits");
        assert!(evictions > 30 && weu_bytes.is_multiple_of(block_bytes), "{evictions} of {weu_bytes}");
        assert_eq!(erased, evictions * (weu_bytes / block_bytes), "WEUs of {weu_bytes}: what is evicted is erased");
        assert_eq!(drive.counts.pages_copied(), 0, "WEUs of {weu_bytes}");
        assert_eq!(drive.host.pages_read_to_complete, 0, "WEUs of {weu_bytes}: padding is of no page");
    }
    // Blocks shrink if a WEU is not whole ones; a size that halving does not reach is refused.
    let on = |pages_per_block: f64| {
        let profile = DriveProfile::named("nitro-mlc").expect("a profile");
        let drive = DriveSetup::new(profile, FtlKind::named("weu").expect("a layer"));
        drive.with("pages_per_block", pages_per_block).expect("a number").build(128 << 20, Some(512 << 10))
    };
    assert_eq!(on(256.0).expect("a drive").profile().geometry.block_bytes(), 512 << 10);
    let sentence = on(33.0).err().expect("refused");
    assert!(sentence.contains("weu_bytes is 524288, but has to be whole erase blocks of 270336"), "{sentence}");
}
