//! The hybrid log-block layer and FlashTier's silent eviction in it.
//!
//! Merges of each kind, trims and evictions are worked out by hand on drives of a few blocks.
//! Larger drives show their totals, and bad options are refused.

use crate::common::{
    Rng,
    ssd::{Watched, content},
};
use larder_ssd::{
    counts::DriveCounts,
    flashtier::FlashTierOptions,
    ftl::{Ftl, PageWrite},
    geometry::{DriveGeometry, Lpn, OutOfRange},
    hybrid::{Hybrid, HybridOptions, Merges, eviction::VictimOrder},
    kinds::FtlKind,
    op::{Cause, FlashOp, Nobody},
    profile::DriveProfile,
};

/// Blocks of 4 pages in one plane.
fn tiny(blocks: u32) -> DriveGeometry {
    DriveGeometry {
        packages: 1,
        dies_per_package: 1,
        planes_per_die: 1,
        blocks_per_plane: blocks,
        pages_per_block: 4,
        page_bytes: 4096,
        over_provisioning_percent: 0.0,
    }
}

/// Makes a drive of 16 blocks, `log_blocks` of them the log's.
fn hybrid(log_blocks: u32, takes_trims: bool) -> Hybrid {
    let log_share_percent = f64::from(log_blocks) * 100.0 / 16.0;
    let options = HybridOptions { log_share_percent, takes_trims, wear_spread_max: None };
    Hybrid::new(tiny(16), options).expect("a drive")
}

fn write(ftl: &mut Hybrid, pages: impl IntoIterator<Item = u32>) {
    for lpn in pages {
        ftl.write(&[PageWrite { lpn: Lpn(lpn), content: None }], &mut Nobody);
        ftl.check();
    }
}

/// Returns the work since `before`: merged and padded pages, and erasures by merges.
fn merged(ftl: &Hybrid, before: &DriveCounts) -> [u64; 3] {
    let since = ftl.counts().since(before);
    assert_eq!(since.reads[Cause::Merge as usize], since.programs[Cause::Merge as usize], "copies");
    let [copied, padded] = [Cause::Merge, Cause::MergePadding].map(|cause| since.programs[cause as usize]);
    assert_eq!(since.pages_programmed(), since.host_pages_written + copied + padded);
    [copied, padded, since.erases[Cause::Merge as usize]]
}

fn merges(switch: u64, partial: u64, full: u64) -> Merges {
    Merges { switch, partial, full }
}

#[test]
fn sequential_writes_cost_switches_and_nothing_else() {
    let mut ftl = hybrid(4, false);
    // 16 blocks less 4 of the log and a spare.
    assert_eq!(ftl.logical_pages(), 11 * 4);
    write(&mut ftl, 0..44);
    assert_eq!(
        (merged(&ftl, &DriveCounts::default()), ftl.merges()),
        ([0; 3], merges(0, 0, 0)),
        "straight to data blocks"
    );
    for pass in 1..4 {
        write(&mut ftl, 0..44);
        assert_eq!(merged(&ftl, &DriveCounts::default()), [0, 0, 11 * pass]);
        assert_eq!(ftl.merges(), merges(11 * pass, 0, 0));
    }
    assert_eq!(ftl.counts().write_amplification(), Some(1.0));
}

#[test]
fn a_sequential_log_block_is_filled_up_for_the_next() {
    let mut ftl = hybrid(4, false);
    write(&mut ftl, 0..8);
    write(&mut ftl, [0, 1]);
    let before = ftl.counts().clone();
    // Logical block 1 begins: pages 2 and 3 are copied behind 0 and 1, and the old data block goes.
    write(&mut ftl, [4]);
    assert_eq!((merged(&ftl, &before), ftl.merges()), ([2, 0, 1], merges(0, 1, 0)));
    // A page out of sequence ends it, too: pages 5, 6 and 7 are copied, and page 6 goes to the log.
    let before = ftl.counts().clone();
    write(&mut ftl, [6]);
    assert_eq!((merged(&ftl, &before), ftl.merges()), ([3, 0, 1], merges(0, 2, 0)));
    assert_eq!(ftl.log_blocks(), 1);
}

#[test]
fn a_victim_merges_each_logical_block_that_it_has_pages_of() {
    // One random log block.
    let mut ftl = hybrid(2, false);
    write(&mut ftl, 0..16);
    write(&mut ftl, [1, 5, 9, 13]);
    assert_eq!(merged(&ftl, &DriveCounts::default()), [0; 3]);
    write(&mut ftl, [2]);
    // Four logical blocks of four pages; four old data blocks and the log block.
    assert_eq!((merged(&ftl, &DriveCounts::default()), ftl.merges()), ([16, 0, 5], merges(0, 0, 4)));

    // Pages of one logical block alone cost one merge, which takes the newest of each.
    let mut ftl = hybrid(2, false);
    write(&mut ftl, 0..4);
    write(&mut ftl, [1, 2, 3, 1, 2]);
    assert_eq!((merged(&ftl, &DriveCounts::default()), ftl.merges()), ([4, 0, 2], merges(0, 0, 1)));
}

#[test]
fn what_is_missing_is_padded() {
    let mut ftl = hybrid(2, false);
    // Logical block 0 has a data block with two pages, and page 3 in the log; logical block 1 is in
    // the log alone.
    write(&mut ftl, [0, 1, 3, 5, 6, 7]);
    assert_eq!(ftl.counts().pages_programmed(), 6);
    write(&mut ftl, [9]);
    // 0: page 2 is padded and page 3 copied, in the data block. 1: page 4 is padded and three are
    // copied, to a new one.
    assert_eq!((merged(&ftl, &DriveCounts::default()), ftl.merges()), ([4, 2, 1], merges(0, 1, 1)));
    assert!(ftl.locate(Lpn(2)).is_none() && ftl.locate(Lpn(4)).is_none() && ftl.locate(Lpn(3)).is_some());
    // A padded page cannot be written in place.
    let before = ftl.counts().clone();
    write(&mut ftl, [2]);
    assert_eq!((merged(&ftl, &before), ftl.log_blocks()), ([0; 3], 1));
}

#[test]
fn the_oldest_log_block_is_the_victim() {
    let mut ftl = hybrid(3, false);
    write(&mut ftl, 0..8);
    // The first log block has pages 5, 6, 7, 7 of logical block 1, the second page 1 four times.
    write(&mut ftl, [5, 6, 7, 7, 1, 1, 1, 1]);
    let kept = ftl.locate(Lpn(1));
    write(&mut ftl, [2]);
    // Fewer of the second's pages are valid; the first goes: four copies, its data block and
    // itself.
    assert_eq!((merged(&ftl, &DriveCounts::default()), ftl.merges()), ([4, 0, 2], merges(0, 0, 1)));
    assert_eq!(ftl.locate(Lpn(1)), kept);
}

#[test]
fn trimmed_pages_are_not_copied() {
    let mut ftl = hybrid(2, true);
    write(&mut ftl, 0..8);
    ftl.trim(0..4, &mut Nobody);
    let counts = ftl.counts().clone();
    assert_eq!((counts.erases[Cause::Collection as usize], counts.pages_copied()), (1, 0), "a data block is erased");
    // A sequential log block and the data block behind it.
    write(&mut ftl, [4, 5]);
    ftl.trim(4..8, &mut Nobody);
    ftl.check();
    assert_eq!((ftl.counts().blocks_erased(), ftl.counts().pages_copied(), ftl.log_blocks()), (3, 0, 0));
    assert_eq!(ftl.totals().valid, 0);

    // In the log, and in the midst of a data block.
    write(&mut ftl, 0..8);
    write(&mut ftl, [1, 2, 5, 6]);
    ftl.trim(1..3, &mut Nobody);
    ftl.trim(4..5, &mut Nobody);
    let before = ftl.counts().clone();
    write(&mut ftl, [10]);
    // Logical block 0 needs no merge; three pages of logical block 1 are copied behind a padded
    // one.
    assert_eq!(merged(&ftl, &before), [3, 1, 2]);

    let mut deaf = hybrid(2, false);
    write(&mut deaf, 0..4);
    deaf.trim(0..4, &mut Nobody);
    assert_eq!((deaf.totals().valid, deaf.counts().host_pages_trimmed), (4, 4));
}

fn larger() -> DriveGeometry {
    DriveGeometry {
        packages: 2,
        dies_per_package: 1,
        planes_per_die: 2,
        blocks_per_plane: 64,
        pages_per_block: 32,
        page_bytes: 4096,
        over_provisioning_percent: 28.0,
    }
}

/// Returns programmed pages for one of the host, of a full drive that is written over at random.
fn random_writes(name: &str, geometry: DriveGeometry) -> f64 {
    const SEED: u64 = 20_281;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let kind = FtlKind::named(name).expect("a layer");
    let mut ftl = (kind.make)(&crate::common::ssd::profile(geometry)).expect("a drive");
    let logical = ftl.logical_pages().min(geometry.logical_pages());
    for lpn in 0..logical {
        ftl.write(&[PageWrite { lpn: Lpn(lpn), content: None }], &mut Nobody);
    }
    let mut random = |count| {
        for _ in 0..count {
            let lpn = Lpn(rng.below(u64::from(logical)) as u32);
            ftl.write(&[PageWrite { lpn, content: None }], &mut Nobody);
        }
        ftl.counts().clone()
    };
    let before = random(2 * logical);
    random(2 * logical).since(&before).write_amplification().expect("writes")
}

#[test]
fn random_writes_cost_far_more_than_page_mapped() {
    let [page, hybrid] = ["page", "hybrid"].map(|name| random_writes(name, larger()));
    println!("write amplification: page {page:.2}, hybrid {hybrid:.2}");
    assert!(hybrid > 2.0 * page, "{hybrid} and {page}");
}

/// A larger log has more pages of a logical block when that is merged.
#[test]
fn a_larger_log_merges_less() {
    let copies = |log_share_percent| {
        let options = HybridOptions { log_share_percent, ..HybridOptions::default() };
        let mut ftl = Hybrid::new(larger(), options).expect("a drive");
        let mut rng = Rng::new(20_282);
        // The same pages, which fit beside either log.
        for lpn in (0..4000).chain((0..40_000).map(|_| rng.below(4000) as u32)) {
            ftl.write(&[PageWrite { lpn: Lpn(lpn), content: None }], &mut Nobody);
        }
        ftl.check();
        ftl.counts().pages_copied()
    };
    let [small, large] = [5.0, 20.0].map(copies);
    println!("{small} copies with 5%, {large} with 20%");
    assert!(large < small / 2, "{large} and {small}");
}

/// Makes a drive of 8 blocks, two of them the log's and one the spare, with four times the
/// addresses.
fn flashtier(order: VictimOrder) -> Watched {
    let options = FlashTierOptions {
        order,
        log_share_percent: 25.0,
        address_space_percent: 400,
        wear_spread_max: None,
        ..FlashTierOptions::default()
    };
    let ftl = Hybrid::flashtier(tiny(8), options).expect("a drive");
    assert_eq!(ftl.logical_pages(), 4 * 8 * 4);
    let mut drive = Watched::new("flashtier", Box::new(ftl));
    // Five data blocks, and two pages of logical block 2 in the log.
    (0..20).for_each(|lpn| drive.write(lpn, &[content(u64::from(lpn))]));
    drive.write(9, &[content(109)]);
    drive.write(10, &[content(110)]);
    drive
}

/// Returns the pages that are dropped when logical block 5 begins.
fn dropped(drive: &mut Watched) -> Vec<u32> {
    let mut dropped = Vec::new();
    let before = drive.ftl.counts().clone();
    drive.ftl.write(&[PageWrite { lpn: Lpn(20), content: None }], &mut |op: &FlashOp| {
        if let FlashOp::Evicted { lpn } = op {
            dropped.push(lpn.0);
        }
    });
    let since = drive.ftl.counts().since(&before);
    assert_eq!((since.pages_programmed(), since.blocks_erased()), (1, 1), "one block, and no copy");
    assert_eq!((since.erases[Cause::Eviction as usize], since.pages_evicted), (1, dropped.len() as u64));
    for &lpn in &dropped {
        assert!(!drive.ftl.read(Lpn(lpn), &mut Nobody) && drive.ftl.locate(Lpn(lpn)).is_none(), "{lpn} is not there");
    }
    drive.ftl.check();
    dropped
}

#[test]
fn the_data_block_with_the_fewest_valid_pages_is_dropped() {
    let mut drive = flashtier(VictimOrder::FewestValid);
    assert_eq!(drive.ftl.next_eviction(), Some(8..12));
    // Pages in the log stay.
    assert_eq!(dropped(&mut drive), [8, 11]);
    assert!(drive.ftl.locate(Lpn(9)).is_some() && drive.ftl.locate(Lpn(10)).is_some());
}

#[test]
fn the_logical_block_that_was_used_least_recently_is_dropped() {
    let mut drive = flashtier(VictimOrder::LeastRecent);
    assert_eq!(drive.ftl.next_eviction(), Some(0..4));
    drive.read(3);
    drive.write(6, &[content(206)]);
    assert_eq!(drive.ftl.next_eviction(), Some(12..16), "0, 1 and 2 were used since");
    assert_eq!(dropped(&mut drive), [12, 13, 14, 15]);
}

#[test]
fn what_is_dirty_stays() {
    for (order, next) in [(VictimOrder::FewestValid, 0..4), (VictimOrder::LeastRecent, 4..8)] {
        let mut drive = flashtier(order);
        drive.tell_dirty(if next.start == 0 { 11 } else { 0 }, 1, true);
        assert_eq!(drive.ftl.next_eviction(), Some(next.clone()), "{order:?}");
        assert_eq!(dropped(&mut drive), next.collect::<Vec<_>>());
    }
    // Cleaned, or trimmed in part, it may go again.
    let mut drive = flashtier(VictimOrder::FewestValid);
    drive.tell_dirty(8, 4, true);
    drive.tell_dirty(8, 3, false);
    assert_eq!(drive.ftl.next_eviction(), Some(0..4));
    drive.trim(11, 1);
    assert_eq!(drive.ftl.next_eviction(), Some(8..12));
    assert_eq!(dropped(&mut drive), [8]);
}

/// If all data blocks are dirty, clean pages go from the log, as there is no place to merge them
/// to.
#[test]
fn clean_pages_give_way_to_dirty_ones() {
    for order in [VictimOrder::FewestValid, VictimOrder::LeastRecent] {
        let mut drive = flashtier(order);
        drive.tell_dirty(0, 20, true);
        assert!(!drive.ftl.takes_dirty(Lpn(20)) && drive.ftl.takes_dirty(Lpn(19)));
        assert_eq!(drive.ftl.next_eviction(), None);
        // The log block is full then; page 29 merges it. Logical block 2 is merged, 5 and 6 are
        // dropped.
        [21, 25].into_iter().for_each(|lpn| drive.write(lpn, &[content(u64::from(lpn))]));
        let before = drive.ftl.counts().clone();
        drive.write(29, &[content(29)]);
        let since = drive.ftl.counts().since(&before);
        assert_eq!((since.programs[Cause::Merge as usize], since.pages_evicted, since.blocks_erased()), (4, 2, 2));
        drive.check();
        // One that begins a logical block goes to the log, too.
        drive.write(32, &[content(32)]);
        drive.check();
        assert!(drive.ftl.locate(Lpn(32)).is_some());
    }
}

#[test]
#[should_panic(expected = "so much is dirty that page 20 has no room")]
fn more_than_fits_cannot_be_dirty() {
    let mut drive = flashtier(VictimOrder::FewestValid);
    drive.ftl.tell_dirty(0..21, true);
}

/// SE-Util leaves the log its blocks. In SE-Merge data has them until the log needs them, and then
/// some data goes.
#[test]
fn a_log_grows_by_what_is_dropped() {
    let drive = |options: FlashTierOptions| {
        let options = FlashTierOptions { log_share_percent: 25.0, wear_spread_max: None, ..options };
        let mut ftl = Hybrid::flashtier(tiny(16), options).expect("a drive");
        write(&mut ftl, 0..64);
        ftl
    };
    let mut util = drive(FlashTierOptions::default());
    // 16 blocks less 4 of the log and the spare hold data.
    assert_eq!((util.totals().valid, util.counts().erases[Cause::Eviction as usize]), (44, 5));
    let mut merge = drive(FlashTierOptions::merge());
    assert_eq!((merge.totals().valid, merge.counts().erases[Cause::Eviction as usize]), (60, 1));
    for (ftl, dropped) in [(&mut util, 0), (&mut merge, 3)] {
        let before = ftl.counts().clone();
        // The last 11 logical blocks are there in both; three random log blocks are filled.
        write(ftl, [21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61, 62]);
        let since = ftl.counts().since(&before);
        assert_eq!((ftl.log_blocks(), since.erases[Cause::Eviction as usize]), (3, dropped));
        assert_eq!(since.pages_copied(), 0);
    }
}

/// If all has room nothing is dropped, and a FlashTier drive is a hybrid one.
#[test]
fn nothing_is_dropped_where_all_fits() {
    let [hybrid, se_util, se_merge, lru] =
        ["hybrid", "flashtier", "flashtier-merge", "flashtier-lru"].map(|name| random_writes(name, larger()));
    println!("write amplification: hybrid {hybrid:.2}, SE-Util {se_util:.2}, SE-Merge {se_merge:.2}, LRU {lru:.2}");
    assert_eq!((se_util, lru), (hybrid, hybrid));
    assert!(se_merge < se_util, "a larger log merges less: {se_merge} and {se_util}");
}

/// A cache of a disk of four times the size, by the disk's addresses, which writes missing pages. A
/// drive that drops the data used least recently follows the hot pages. One that drops the fewest
/// valid pages keeps former hot pages whose blocks are whole.
#[test]
fn recency_follows_what_is_hot() {
    let hits = |options: FlashTierOptions| {
        let options = FlashTierOptions { address_space_percent: 400, ..options };
        let mut ftl = Hybrid::flashtier(larger(), options).expect("a drive");
        let mut rng = Rng::new(20_286);
        let mut hits = 0;
        for step in 0..20_000 {
            // 150 logical blocks, for some 230 data blocks; others after each 4000 requests.
            let first = (step / 4000 * 150 + rng.below(150) as u32) * 32 + rng.below(4) as u32 * 8;
            let mut is_there = true;
            (first..first + 8).for_each(|lpn| is_there &= ftl.read(Lpn(lpn), &mut Nobody));
            hits += u32::from(is_there);
            if !is_there {
                let page = |lpn| PageWrite { lpn: Lpn(lpn), content: None };
                ftl.write(&(first..first + 8).map(page).collect::<Vec<_>>(), &mut Nobody);
            }
        }
        ftl.check();
        let counts = ftl.counts();
        assert!(counts.pages_evicted > 10_000, "{counts:?}");
        println!("{options:?}: {hits} hits, {:?} pages programmed for one", counts.write_amplification());
        hits
    };
    let [se_util, lru] = [FlashTierOptions::default(), FlashTierOptions::lru()].map(hits);
    assert!(lru > se_util, "{lru} and {se_util}");
}

#[test]
fn what_cannot_hold_is_refused() {
    let refused = |options| Hybrid::new(tiny(16), options).map(|_| ()).expect_err("refused").to_string();
    let sound = HybridOptions::default();
    for log_share_percent in [0.0, -1.0, 95.0, f64::NAN] {
        let sentence = refused(HybridOptions { log_share_percent, ..sound });
        let start = format!("log_share_percent is {log_share_percent}, but has to be above 0, and so little that");
        assert!(sentence.starts_with(&start) && sentence.ends_with("of the 16 that there are"), "{sentence}");
    }
    let sentence = refused(HybridOptions { wear_spread_max: Some(0), ..sound });
    assert_eq!(sentence, "wear_spread_max is 0, but has to be at least 1, or none");
    let few: OutOfRange = Hybrid::new(tiny(3), sound).map(|_| ()).expect_err("two of the log and a spare are all");
    let sentence = few.to_string();
    assert!(
        sentence.starts_with("blocks is 3, but has to be 4 or more") && sentence.contains("pages_per_block"),
        "{sentence}"
    );
    assert_eq!(Hybrid::new(tiny(4), sound).expect("one data block").logical_pages(), 4);

    let sound = FlashTierOptions::default();
    let refused = |options| Hybrid::flashtier(tiny(16), options).map(|_| ()).expect_err("refused").to_string();
    let sentence = refused(FlashTierOptions { address_space_percent: 0, ..sound });
    assert_eq!(sentence, "address_space_percent is 0, but has to be from 1 to 100000");
    let sentence = refused(FlashTierOptions { log_share_percent: 100.0, ..sound });
    assert!(sentence.starts_with("log_share_percent is 100,"), "{sentence}");
    let tlc = DriveProfile::named("tlc-nvme").expect("a profile").geometry;
    let vast = FlashTierOptions { address_space_percent: 100_000, ..sound };
    let sentence = Hybrid::flashtier(tlc, vast).map(|_| ()).expect_err("beyond 32 bits").to_string();
    assert!(sentence.contains("from 1 to 4294901759 pages, with 67108864 on flash"), "{sentence}");
}

/// Nitro reserves 10% for the log beside 7% over-provisioning: the host has the rest.
#[test]
fn the_log_is_taken_from_the_capacity() {
    let geometry = DriveProfile::named("nitro-mlc")
        .expect("a profile")
        .scaled_to(1 << 30, larder_ssd::profile::ProfileScale::Blocks);
    let geometry = geometry.expect("a drive").geometry;
    let ftl = Hybrid::new(geometry, HybridOptions::default()).expect("a drive");
    let log = (f64::from(geometry.blocks()) / 10.0).round() as u32;
    assert_eq!(ftl.logical_pages(), (geometry.blocks() - log - 1) * geometry.pages_per_block);
    assert!(ftl.logical_pages() < geometry.logical_pages());
}
