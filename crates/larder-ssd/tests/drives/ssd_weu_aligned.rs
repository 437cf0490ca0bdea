//! The drive made for write-evict units.
//!
//! The tests cover places of pages, overwriting and dropping without copies, trims, and eviction by
//! recency. Random workloads have more units than places. Bad options are refused.

use crate::common::{
    Rng, for_seeds,
    ssd::{Watched, content},
};
use larder_ssd::{
    ftl::{Ftl, PageWrite},
    geometry::{BlockId, DriveGeometry, Lpn},
    op::{Cause, FlashOp, Nobody},
    profile::DriveProfile,
    weu_aligned::{WeuAligned, WeuAlignedOptions},
};

/// Two planes of 9 blocks of 4 pages.
const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 2,
    dies_per_package: 1,
    planes_per_die: 1,
    blocks_per_plane: 9,
    pages_per_block: 4,
    page_bytes: 4096,
    over_provisioning_percent: 7.0,
};
const BLOCK_BYTES: u64 = 16 << 10;

/// Units of 2 blocks: 9 places, and as many units or twice as many.
fn options(address_space_percent: u32) -> WeuAlignedOptions {
    WeuAlignedOptions { weu_bytes: Some(2 * BLOCK_BYTES), address_space_percent, wear_spread_max: None }
}

fn drive(address_space_percent: u32) -> Watched {
    let ftl = WeuAligned::new(GEOMETRY, options(address_space_percent)).expect("a drive");
    assert_eq!((ftl.write_unit_pages(), ftl.free_places()), (8, 9));
    assert_eq!(ftl.logical_pages(), 9 * 8 * address_space_percent / 100);
    Watched::new("weu", Box::new(ftl))
}

fn write(drive: &mut Watched, unit: u32, number: u64) {
    drive.write(unit * 8, &[content(number)]);
}

#[test]
fn a_unit_lies_across_planes_in_whole_blocks() {
    let mut drive = drive(100);
    write(&mut drive, 3, 1);
    let place = |at: u32| {
        let ppa = drive.ftl.locate(Lpn(24 + at)).expect("it was written");
        (GEOMETRY.block_of(ppa), GEOMETRY.plane_of(GEOMETRY.block_of(ppa)).0, GEOMETRY.page_in_block(ppa))
    };
    for at in 0..8 {
        assert_eq!(place(at), (BlockId(at % 2), at % 2, at / 2));
    }
}

#[test]
fn writing_over_units_copies_nothing() {
    let mut drive = drive(100);
    let mut rng = Rng::new(20_283);
    (0..9).for_each(|unit| write(&mut drive, unit, u64::from(unit)));
    assert_eq!(drive.ftl.counts().blocks_erased(), 0, "all of the flash holds data");
    for step in 0..1000 {
        write(&mut drive, rng.below(9) as u32, 100 + step);
    }
    drive.check();
    let counts = drive.ftl.counts();
    assert_eq!((counts.write_amplification(), counts.pages_copied()), (Some(1.0), 0));
    assert_eq!((counts.blocks_erased(), counts.erases[Cause::Collection as usize]), (2000, 2000));
}

#[test]
fn the_unit_that_was_used_least_recently_is_dropped() {
    let mut drive = drive(200);
    assert_eq!(drive.ftl.next_eviction(), None);
    (0..9).for_each(|unit| write(&mut drive, unit, u64::from(unit)));
    drive.read(3);
    write(&mut drive, 1, 100);
    assert_eq!(drive.ftl.next_eviction(), Some(16..24), "0 was read, 1 written");
    let before = drive.ftl.counts().clone();
    let mut dropped = Vec::new();
    let pages: Vec<PageWrite> = (80..88).rev().map(|lpn| PageWrite { lpn: Lpn(lpn), content: None }).collect();
    drive.ftl.write(&pages, &mut |op: &FlashOp| {
        if let FlashOp::Evicted { lpn } = op {
            dropped.push(lpn.0);
        }
    });
    assert_eq!(dropped, (16..24).collect::<Vec<_>>());
    let since = drive.ftl.counts().since(&before);
    assert_eq!((since.pages_programmed(), since.blocks_erased(), since.pages_evicted), (8, 2, 8));
    assert_eq!(since.erases[Cause::Eviction as usize], 2);
    for lpn in 0..drive.ftl.logical_pages() {
        let is_there = lpn < 72 && !(16..24).contains(&lpn) || (80..88).contains(&lpn);
        assert_eq!(drive.ftl.read(Lpn(lpn), &mut Nobody), is_there, "page {lpn}");
    }
    drive.ftl.check();
}

#[test]
fn a_trimmed_unit_is_erased_once_nothing_of_it_is_left() {
    let mut drive = drive(200);
    (0..9).for_each(|unit| write(&mut drive, unit, u64::from(unit)));
    drive.trim(8, 7);
    drive.check();
    assert_eq!(drive.ftl.counts().blocks_erased(), 0);
    drive.trim(15, 1);
    drive.check();
    assert_eq!((drive.ftl.counts().blocks_erased(), drive.ftl.counts().pages_copied()), (2, 0));
    // So there is room.
    write(&mut drive, 9, 9);
    assert_eq!(drive.ftl.counts().pages_evicted, 0);
    // If a unit was trimmed in part, the rest of it is dropped.
    drive.trim(0, 3);
    write(&mut drive, 10, 10);
    drive.check();
    assert_eq!(drive.ftl.counts().pages_evicted, 5);
    // Written whole again, it is whole.
    drive.trim(80, 3);
    write(&mut drive, 10, 11);
    drive.check();
}

#[test]
fn pages_are_conserved_with_more_units_than_places() {
    for_seeds(0..8, |seed| {
        let mut rng = Rng::new(seed);
        let geometry = DriveGeometry { blocks_per_plane: 16 + rng.below(9) as u32, ..GEOMETRY };
        let options = WeuAlignedOptions {
            weu_bytes: Some(BLOCK_BYTES * (1 + rng.below(5))),
            address_space_percent: 150,
            wear_spread_max: [None, Some(1), Some(5)][seed as usize % 3],
        };
        let mut drive = Watched::new("weu", Box::new(WeuAligned::new(geometry, options).expect("a drive")));
        let logical = u64::from(drive.ftl.logical_pages());
        for step in 0..4000 {
            let lpn = if rng.chance(50) { rng.below(logical) } else { rng.skewed(logical / 4) } as u32;
            match rng.below(10) {
                0 => drive.trim(lpn, 1 + rng.below(20) as u32),
                1..=3 => drive.read(lpn),
                _ => drive.write(lpn, &[content(step), None]),
            }
            if step % 256 == 0 {
                drive.check();
            }
        }
        drive.check();
        let counts = drive.ftl.counts();
        assert!(counts.erases[Cause::Eviction as usize] > 100, "{counts:?}");
        assert_eq!(counts.pages_copied(), counts.programs[Cause::WearLevelling as usize]);
        assert_eq!(counts.pages_copied() > 0, options.wear_spread_max.is_some(), "{counts:?}");
    });
}

#[test]
#[should_panic(expected = "is not of whole units of 8 pages")]
fn a_part_of_a_unit_is_not_written() {
    let pages: Vec<PageWrite> = (8..15).map(|lpn| PageWrite { lpn: Lpn(lpn), content: None }).collect();
    WeuAligned::new(GEOMETRY, options(100)).expect("a drive").write(&pages, &mut Nobody);
}

#[test]
fn units_are_2_mib_or_a_block() {
    let unit_bytes = |name: &str| {
        let geometry = DriveProfile::named(name).expect("a profile").geometry;
        // Only its counts: a drive of this size is made elsewhere.
        let geometry = DriveGeometry { blocks_per_plane: 64, ..geometry };
        let ftl = WeuAligned::new(geometry, WeuAlignedOptions::default()).expect("a drive");
        assert_eq!(ftl.logical_pages() / ftl.write_unit_pages(), geometry.pages() / ftl.write_unit_pages());
        u64::from(ftl.write_unit_pages()) * u64::from(geometry.page_bytes)
    };
    assert_eq!(["caftl", "nitro-mlc"].map(unit_bytes), [2 << 20; 2]);
    assert_eq!(unit_bytes("tlc-nvme"), 16 << 20);
    // A small drive has 64 units if it has as many blocks.
    let small = DriveGeometry { blocks_per_plane: 100, ..GEOMETRY };
    assert_eq!(WeuAligned::new(small, WeuAlignedOptions::default()).expect("a drive").write_unit_pages(), 3 * 4);
}

#[test]
fn what_cannot_hold_is_refused() {
    let refused = |options| WeuAligned::new(GEOMETRY, options).map(|_| ()).expect_err("refused").to_string();
    let sound = options(100);
    let logical_bytes = GEOMETRY.logical_bytes();
    for weu_bytes in [0, 4095, BLOCK_BYTES + 4096, 1 << 40] {
        assert_eq!(
            refused(WeuAlignedOptions { weu_bytes: Some(weu_bytes), ..sound }),
            format!(
                "weu_bytes is {weu_bytes}, but has to be whole erase blocks of 16384, and at most {logical_bytes} (the drive's \
                 capacity)"
            )
        );
    }
    let sentence = refused(WeuAlignedOptions { address_space_percent: 0, ..sound });
    assert_eq!(sentence, "address_space_percent is 0, but has to be from 1 to 100000");
    let sentence = refused(WeuAlignedOptions { address_space_percent: 10, ..sound });
    assert_eq!(sentence, "address_space_percent is 10, but has to be so much that the host has a unit of 8 pages");
    let sentence = refused(WeuAlignedOptions { wear_spread_max: Some(0), ..sound });
    assert_eq!(sentence, "wear_spread_max is 0, but has to be at least 1, or none");
}
