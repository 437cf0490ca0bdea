//! A cache that gives out slots, and the drive beneath it.
//!
//! The choice of the next free slot decides the fate of a drive that drops data blocks by itself.
//! The time that slots are free decides the worth of TRIM.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::common::Rng;
use larder_core::Lba;
use larder_sim::{
    cache::{CacheRequest, WritePolicy},
    devices::{Device, DeviceAction, Requests},
    lab::LabListener,
    measure::Meter,
    replay::own_content,
    setup::{Built, FlashAmount, Granularity, Options, ReplayDesign, Setup, drive::DriveSetup},
    tally::Tally,
};
use larder_ssd::{
    counts::DriveCounts,
    flashtier::FlashTierOptions,
    ftl::{Ftl, PageWrite},
    geometry::{DriveGeometry, Lpn},
    hybrid::Hybrid,
    kinds::FtlKind,
    op::FlashOp,
    profile::DriveProfile,
};

const EXTENT_BYTES: u32 = 8192;
const EXTENTS: u64 = 4096;

const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 1,
    dies_per_package: 1,
    planes_per_die: 1,
    blocks_per_plane: 128,
    pages_per_block: 32,
    page_bytes: 4096,
    over_provisioning_percent: 7.0,
};
const PAGES: u64 = 128 * 32;
/// Beside 13 blocks of the log and a spare.
const DATA_PAGES: u64 = (128 - 14) * 32;

/// The free slot that is written next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    FreedLast,
    FreedFirst,
}

#[derive(Debug)]
struct Found {
    /// Blocks erased for each block of pages that was written.
    erasures: f64,
    /// The ages of the dropped pages in writes, at least and at most.
    ages: (u64, u64),
    /// Pages that are there since the drive was filled.
    oldest_kept: u64,
}

/// Writes slots of a page to all addresses of a drive, each when it comes. It counts after the
/// drive is full for the first time, over five times its size.
fn write_slots(options: FlashTierOptions, next: Next) -> Found {
    let mut ftl = Hybrid::flashtier(GEOMETRY, FlashTierOptions { wear_spread_max: None, ..options }).expect("a drive");
    let mut free: VecDeque<u32> = (0..PAGES as u32).collect();
    let mut written = BTreeMap::new();
    let mut ages = (u64::MAX, 0);
    let mut counts = ftl.counts().clone();
    for write in 0..6 * PAGES {
        if write == PAGES {
            counts = ftl.counts().clone();
        }
        let slot = free.pop_front().expect("a tenth of the addresses has no room, so that some are free");
        let mut dropped = Vec::new();
        ftl.write(&[PageWrite { lpn: Lpn(slot), content: None }], &mut |op: &FlashOp| {
            if let FlashOp::Evicted { lpn } = op {
                dropped.push(lpn.0);
            }
        });
        written.insert(slot, write);
        dropped.sort_unstable();
        for slot in dropped {
            let since = write - written.remove(&slot).expect("it was written");
            if write >= PAGES {
                ages = (since.min(ages.0), since.max(ages.1));
            }
            match next {
                Next::FreedLast => free.push_front(slot),
                Next::FreedFirst => free.push_back(slot),
            }
        }
    }
    ftl.check();
    assert!(written.keys().all(|slot| ftl.locate(Lpn(*slot)).is_some()), "what was not dropped is there");
    let since = ftl.counts().since(&counts);
    Found {
        erasures: since.blocks_erased() as f64 * 32.0 / since.host_pages_written as f64,
        ages,
        oldest_kept: written.values().filter(|write| **write < PAGES).count() as u64,
    }
}

/// The slots of dropped pages are written again first page first. The drive is a ring, whichever
/// block it drops.
#[test]
fn slots_in_the_order_in_which_they_were_freed_make_the_drive_a_ring() {
    for options in [FlashTierOptions::default(), FlashTierOptions::lru()] {
        let found = write_slots(options, Next::FreedFirst);
        println!("{:?}: {found:?}", options.order);
        assert!((found.erasures - 1.0).abs() < 0.01 && found.oldest_kept == 0, "{found:?}");
        assert!(found.ages.0 >= DATA_PAGES - 32 && found.ages.1 <= DATA_PAGES + 32, "{found:?}");
    }
}

/// The slot that was freed last is the last of a block. The block is written from its end, into the
/// log, and merged when it has all its pages. That erases a block of the log and a data block for
/// each.
#[test]
fn by_recency_slots_that_were_freed_last_cost_a_merge_for_each_block() {
    let found = write_slots(FlashTierOptions::lru(), Next::FreedLast);
    println!("{found:?}");
    assert!((found.erasures - 2.0).abs() < 0.05 && found.oldest_kept < PAGES / 50, "{found:?}");
}

/// SE-Util drops the block with the fewest valid pages, which was begun last. Its slot is free
/// again, is written next, and begins a block again, for which that block is dropped. All full
/// blocks stay for ever.
#[test]
fn with_se_util_slots_that_were_freed_last_thrash() {
    let found = write_slots(FlashTierOptions::default(), Next::FreedLast);
    println!("{found:?}");
    assert!(found.erasures > 31.0, "an erasure for each page: {found:?}");
    assert!(found.ages.1 < 10 && found.oldest_kept > DATA_PAGES - 64, "{found:?}");
}

/// Makes Nitro's cache of 4096 extents on a drive, with an index of this many addresses.
fn cache_of_extents(ftl: &str, lba_entries: u64) -> Built {
    setup_of_extents(ftl, lba_entries, true).build(0).expect("a cache")
}

fn setup_of_extents(ftl: &str, lba_entries: u64, only_data: bool) -> Setup {
    let drive =
        DriveSetup::new(DriveProfile::named("nitro-mlc").expect("a profile"), FtlKind::named(ftl).expect("a layer"));
    let drive =
        drive.with("page_bytes", 4096.0).and_then(|drive| drive.with("pages_per_block", 32.0)).expect("numbers");
    Setup {
        design: ReplayDesign::named("nitro").expect("a design"),
        chunk_bytes: EXTENT_BYTES,
        flash: FlashAmount::DataChunks(EXTENTS),
        policy: WritePolicy::Through,
        options: Options {
            granularity: Some(Granularity::Extent),
            compress: Some(false),
            lba_entries: Some(lba_entries),
            drive: Some(DriveSetup { only_data, ..drive }),
            ..Options::default()
        },
    }
}

fn read(address: u64, content: u64) -> CacheRequest {
    CacheRequest::Read(Lba(address), own_content(Lba(content), EXTENT_BYTES))
}

/// Returns the drive's counts after the first quarter of the requests.
fn erasures(ftl: &str, lba_entries: u64, requests: &[CacheRequest]) -> DriveCounts {
    let mut meter = Meter::new(cache_of_extents(ftl, lba_entries), EXTENT_BYTES, requests.len() as u64 / 4);
    meter.take(requests);
    meter.finish().drive.expect("a drive").counts
}

/// A cache whose drive drops whole blocks writes them again as a ring, too.
#[test]
fn a_cache_fills_what_its_drive_dropped_from_the_beginning() {
    let requests: Vec<_> = (0..6 * EXTENTS).map(|at| read(at, at)).collect();
    for ftl in ["flashtier", "flashtier-lru"] {
        let counts = erasures(ftl, 2 * EXTENTS, &requests);
        let per_block = counts.blocks_erased() as f64 * 32.0 / counts.host_pages_written as f64;
        println!("{ftl}: {per_block:.3} erasures for a block of pages");
        assert!((per_block - 1.0).abs() < 0.02, "{ftl}: {per_block}");
        assert!(counts.pages_evicted > 30_000, "{counts:?}");
    }
}

/// A drive with the cache's metadata, which is written again and again, is still nearly a ring. The
/// drive keeps metadata. Else the metadata blocks would have the fewest valid pages, and be
/// dropped.
#[test]
fn a_cache_whose_metadata_is_on_the_drive_fills_what_that_dropped_too() {
    let mut rng = Rng::new(20_304);
    let write = |lba: u64, number: u64| CacheRequest::Write(Lba(lba), own_content(Lba(number), EXTENT_BYTES));
    let requests: Vec<_> = (0..12 * EXTENTS).map(|number| write(rng.below(3 * EXTENTS), number)).collect();
    for policy in [WritePolicy::Through, WritePolicy::Back] {
        for ftl in ["flashtier", "flashtier-lru"] {
            let setup = Setup { policy, ..setup_of_extents(ftl, 2 * EXTENTS, false) };
            let mut meter = Meter::new(setup.build(0).expect("a cache"), EXTENT_BYTES, requests.len() as u64 / 4);
            meter.take(&requests);
            let drive = meter.finish().drive.expect("a drive");
            let blocks = drive.host.bytes_written as f64 / drive.geometry.block_bytes() as f64;
            let per_block = drive.counts.blocks_erased() as f64 / blocks;
            println!("{ftl} in {}: {per_block:.3} erasures for a block that is written", policy.name());
            assert!((0.9..1.3).contains(&per_block), "{ftl} in {}: {per_block}", policy.name());
        }
    }
}

/// Returns reads of 16384 addresses, two of which have one content each.
fn random_reads() -> Vec<CacheRequest> {
    const SEED: u64 = 20_303;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let addresses = (0..60_000).map(|_| rng.below(4 * EXTENTS));
    addresses.map(|address| read(address, address / 2)).collect()
}

/// Returns the extents that were trimmed and not written since: in the mean, and at most.
fn trimmed(lba_entries: u64, requests: &[CacheRequest]) -> (f64, usize) {
    let mut cache = cache_of_extents("page-trim", lba_entries).cache;
    cache.gather(true);
    let (mut asked, mut tally, mut unwritten) = (Requests::default(), Tally::default(), BTreeSet::new());
    let (mut sum, mut most) = (0, 0);
    for request in requests {
        cache.replay(std::slice::from_ref(request), &mut tally);
        cache.take_requests(&mut asked);
        for asked in asked.iter().filter(|asked| asked.device == Device::Flash) {
            match asked.action {
                DeviceAction::Trim => drop(unwritten.insert(asked.start)),
                DeviceAction::Write => drop(unwritten.remove(&asked.start)),
                DeviceAction::Read | DeviceAction::Flush => {}
            }
        }
        sum += unwritten.len();
        most = most.max(unwritten.len());
    }
    (sum as f64 / requests.len() as f64, most)
}

/// An extent goes when its slot is needed, and the slot is trimmed and written. So at most one slot
/// is free, while its next content is in memory. TRIM tells a drive nothing that the write would
/// not.
#[test]
fn a_slot_that_is_written_at_once_is_trimmed_for_nothing() {
    let requests = random_reads();
    let (mean, most) = trimmed(4 * EXTENTS, &requests);
    println!("trimmed and not written: {mean:.2} extents in the mean, {most} at most");
    assert!(most == 1 && mean > 0.1);
    for (deaf, told) in [("page", "page-trim"), ("hybrid", "hybrid-trim")] {
        let [deaf, told] = [deaf, told].map(|ftl| erasures(ftl, 4 * EXTENTS, &requests).blocks_erased() as f64);
        println!("{deaf} blocks erased, and with TRIM {told}");
        assert!((told / deaf - 1.0).abs() < 0.01, "{told} and {deaf}");
    }
}

/// A cache whose index limits it, and not its flash, has slots that stay free. A page-mapped drive
/// copies none of their old pages. A hybrid one copies less, and merges all the same: a merge
/// covers the rest of a logical block, and free slots lie scattered.
#[test]
fn slots_that_stay_free_are_worth_trimming_on_a_page_mapped_drive() {
    let requests = random_reads();
    let (mean, most) = trimmed(EXTENTS, &requests);
    println!("trimmed and not written: {mean:.2} extents in the mean, {most} at most");
    assert!(mean > EXTENTS as f64 / 20.0);
    let [page, page_trim, hybrid, hybrid_trim] =
        ["page", "page-trim", "hybrid", "hybrid-trim"].map(|ftl| erasures(ftl, EXTENTS, &requests));
    for (name, counts) in
        [("page", &page), ("page-trim", &page_trim), ("hybrid", &hybrid), ("hybrid-trim", &hybrid_trim)]
    {
        println!("{name}: {} blocks erased, {} pages copied", counts.blocks_erased(), counts.pages_copied());
    }
    assert!(page_trim.pages_copied() < page.pages_copied() * 2 / 3, "{page_trim:?}");
    assert!(page_trim.blocks_erased() < page.blocks_erased() * 9 / 10, "{page_trim:?}");
    let hybrids = hybrid_trim.blocks_erased() as f64 / hybrid.blocks_erased() as f64;
    assert!(hybrid_trim.pages_copied() < hybrid.pages_copied() && (hybrids - 1.0).abs() < 0.02, "{hybrids}");
}
