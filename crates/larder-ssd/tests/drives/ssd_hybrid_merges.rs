//! The number of a hybrid layer's merges, against its analysis.
//!
//! Under uniform random writes of single pages the erased blocks depend on the log's share of the
//! data, and not on the size of the drive.
//!
//! The analysis is ours. L logical blocks of B pages are all mapped and written uniformly; R blocks
//! of the log are for random writes. Each page is written once in a unit of time: N = L B writes.
//! In the mean, the log block of a page is the victim R - 1/2 fillings after the page was written.
//! A page at the first place of its block does not go there, so that a filling takes B^2 / (B - 1)
//! writes. So a page lies in the log for
//!
//!   w = (R - 1/2) / L * B / (B - 1).
//!
//! A logical block is merged when a page of it has lain in the log for w and was not written again
//! meanwhile. All its pages have left the log then, and it begins anew. For one page, that happens
//! within t < 2 w at the rate e^-w from w on: a write at t - w, and none since. There are B - 1
//! such pages. The one at the first place of the block begins a sequential log block, which is
//! merged soon, with any pages in the log. So the time between two merges is, in the mean,
//!
//!   T = (1 - e^-w) + e^-w / (1 + (B - 1) e^-w).
//!
//! A merge erases the old data block, and (B - 1) / B log blocks are erased in B writes. Sequential
//! writes of whole blocks have one erasure for each B pages written. Here there are
//!
//!   1 / T + (B - 1) / B.
//!
//! With many pages a block that is some L / R + 3/2. If a share f of all blocks is the log's, R / L
//! is f / (1 - f), and the result is 1 / f + 1/2: ten and a half for a tenth. It is never more than
//! B + 1, its limit for a small log.

use crate::common::Rng;
use larder_ssd::{
    ftl::{Ftl, PageWrite},
    geometry::{DriveGeometry, Lpn},
    hybrid::{Hybrid, HybridOptions},
    op::{Cause, Nobody},
};

/// Returns erasures for each block of pages that is written; see the module.
fn analysis(random_log_blocks: f64, logical_blocks: f64, pages_per_block: f64) -> f64 {
    let others = pages_per_block - 1.0;
    let lain = (random_log_blocks - 0.5) / logical_blocks * pages_per_block / others;
    let kept = (-lain).exp();
    let between = (1.0 - kept) + kept / (1.0 + others * kept);
    1.0 / between + others / pages_per_block
}

fn drive(blocks: u32, pages_per_block: u32, over_provisioning_percent: f64) -> DriveGeometry {
    DriveGeometry {
        packages: 1,
        dies_per_package: 1,
        planes_per_die: 1,
        blocks_per_plane: blocks,
        pages_per_block,
        page_bytes: 4096,
        over_provisioning_percent,
    }
}

/// Fills the drive, writes it over four times until it is steady, and measures twice as much.
/// Returns erasures for each block of pages, and those of the analysis. On a new drive all logical
/// blocks are merged at about the same time, again and again. Merges of the first places scatter
/// them; that takes the longest.
fn measure(geometry: DriveGeometry, log_share_percent: f64, seed: u64) -> (f64, f64) {
    let options = HybridOptions { log_share_percent, takes_trims: false, wear_spread_max: None };
    let mut ftl = Hybrid::new(geometry, options).expect("a drive");
    let pages_per_block = geometry.pages_per_block;
    let logical = ftl.logical_pages() / pages_per_block * pages_per_block;
    let write = |ftl: &mut Hybrid, lpn| {
        ftl.write(&[PageWrite { lpn: Lpn(lpn), content: None }], &mut Nobody);
    };
    (0..logical).for_each(|lpn| write(&mut ftl, lpn));
    let mut rng = Rng::new(seed);
    let mut random = |ftl: &mut Hybrid, times: u32| {
        (0..times * logical).for_each(|_| write(ftl, rng.below(logical.into()) as u32));
    };
    random(&mut ftl, 4);
    let before = ftl.counts().clone();
    random(&mut ftl, 2);
    ftl.check();
    let since = ftl.counts().since(&before);
    assert_eq!(since.erases[Cause::Merge as usize], since.blocks_erased());
    let pages_per_block = f64::from(pages_per_block);
    let found = since.blocks_erased() as f64 / since.host_pages_written as f64 * pages_per_block;
    let random = (f64::from(geometry.blocks()) * log_share_percent / 100.0).round() - 1.0;
    (found, analysis(random, f64::from(logical) / pages_per_block, pages_per_block))
}

/// Checks to 2%: the analysis is of means, and a measurement has at least some hundred merges.
fn check(geometry: DriveGeometry, log_share_percent: f64, seed: u64) -> f64 {
    let (found, expected) = measure(geometry, log_share_percent, seed);
    let off = found / expected - 1.0;
    let DriveGeometry { pages_per_block, over_provisioning_percent, .. } = geometry;
    let what = format!(
        "{log_share_percent}% of {} blocks of {pages_per_block} pages, {over_provisioning_percent}% over-provisioned",
        geometry.blocks()
    );
    println!("{what}: {found:.2}, analysis {expected:.2}, {:.2}% off", off * 100.0);
    assert!(off.abs() < 0.02, "{what}: {found} and {expected}");
    found
}

#[test]
fn erasures_are_what_the_logs_share_says_whatever_the_size() {
    const SEED: u64 = 20_301;
    println!("seed {SEED}");
    for (log_share_percent, least, most) in [(2.0, 26.0, 33.0), (5.0, 14.0, 18.0), (10.0, 8.5, 10.5), (20.0, 4.5, 6.0)]
    {
        for blocks in [512, 2048] {
            let found = check(drive(blocks, 64, 7.0), log_share_percent, SEED);
            assert!((least..most).contains(&found), "{log_share_percent}%: {found}");
        }
    }
}

#[test]
fn so_it_is_with_larger_blocks_more_over_provisioning_and_a_log_of_a_few() {
    const SEED: u64 = 20_302;
    println!("seed {SEED}");
    check(drive(512, 256, 7.0), 10.0, SEED);
    check(drive(512, 64, 28.0), 10.0, SEED);
    // Two random log blocks: nearly each page of them is of another logical block.
    let found = check(drive(512, 256, 7.0), 0.6, SEED);
    assert!(found > 100.0 && found < 257.0, "{found}");
}
