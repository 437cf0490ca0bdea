//! Every translation layer of the table under random workloads, beside a shadow flash.
//!
//! The shadow only hears the layer's operations. Each logical page is at the place of its newest
//! content. Pages add up, programs are accounted for, and flash is programmed in order and once.
//!
//! It does not judge the performance of a layer.

use crate::common::{
    Rng, for_seeds,
    ssd::{Watched, content, profile},
};
use larder_ssd::{
    caftl::{Caftl, options::CaftlOptions},
    ftl::Ftl,
    geometry::{DriveGeometry, Lpn},
    kinds::{FTLS, FtlKind},
    op::Cause,
    space::SpaceOptions,
};
use proptest::{prelude::*, test_runner::RngSeed};

/// The seed of the drawn workloads.
const SEED: u64 = 20_261;

#[derive(Clone, Debug)]
enum Step {
    /// First page, contents by number (0 is unknown).
    Write(u32, Vec<u64>),
    Read(u32),
    Trim(u32, u32),
    Dirty(u32, u32, bool),
    Flush,
    Idle(u64),
    BufferFill(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few contents, so that there are duplicates, and many.
    let number = prop_oneof![0u64..8, 0u64..100_000];
    let step = prop_oneof![
        20 => (any::<u32>(), prop::collection::vec(number.clone(), 1..12)).prop_map(|(at, all)| Step::Write(at, all)),
        // Hot pages.
        20 => (0u32..40, prop::collection::vec(number, 1..4)).prop_map(|(at, all)| Step::Write(at, all)),
        5 => any::<u32>().prop_map(Step::Read),
        5 => (any::<u32>(), 0u32..40).prop_map(|(at, len)| Step::Trim(at, len)),
        3 => (any::<u32>(), 0u32..20, any::<bool>()).prop_map(|(at, len, is)| Step::Dirty(at, len, is)),
        1 => Just(Step::Flush),
        1 => (0u64..100).prop_map(Step::Idle),
        1 => (0u8..=100).prop_map(Step::BufferFill),
    ];
    prop::collection::vec(step, 1..400)
}

/// Returns a geometry that is large enough for the own pages of every layer.
fn geometry() -> impl Strategy<Value = DriveGeometry> {
    (1u32..=2, 1u32..=2, 1u32..=2, 32u32..48, 6u32..=12, 60u32..=100).prop_map(
        |(packages, dies_per_package, planes_per_die, blocks_per_plane, pages_per_block, percent)| DriveGeometry {
            packages,
            dies_per_package,
            planes_per_die,
            blocks_per_plane,
            pages_per_block,
            page_bytes: 4096,
            over_provisioning_percent: f64::from(percent),
        },
    )
}

fn known(number: u64) -> Option<larder_types::Fingerprint> {
    if number == 0 { None } else { content(number) }
}

fn follow(drive: &mut Watched, steps: &[Step]) {
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Write(first, numbers) => {
                let contents: Vec<_> = numbers.iter().map(|&number| known(number)).collect();
                drive.write(*first, &contents);
            }
            Step::Read(lpn) => drive.read(*lpn),
            Step::Trim(first, len) => drive.trim(*first, *len),
            Step::Dirty(first, len, is_dirty) => drive.tell_dirty(*first, *len, *is_dirty),
            Step::Flush => drive.flush(),
            Step::Idle(budget) => drive.idle(*budget),
            Step::BufferFill(percent) => drive.tell_buffer_fill(*percent),
        }
        if at % 64 == 0 {
            drive.check();
        }
    }
    drive.check();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn pages_are_conserved(geometry in geometry(), steps in steps()) {
        for kind in FTLS {
            let ftl = (kind.make)(&profile(geometry)).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            follow(&mut Watched::new(kind.name, ftl), &steps);
        }
    }
}

/// The run erases each block many times, on a drive that is full throughout, with little to spare.
#[test]
fn pages_are_conserved_over_many_erasures() {
    for_seeds(1..4, |seed| {
        let geometry = DriveGeometry {
            packages: 2,
            dies_per_package: 1,
            planes_per_die: 2,
            blocks_per_plane: 48,
            pages_per_block: 16,
            page_bytes: 4096,
            over_provisioning_percent: 25.0,
        };
        for kind in FTLS {
            let ftl = (kind.make)(&profile(geometry)).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            let mut drive = Watched::new(kind.name, ftl);
            let logical = u64::from(drive.ftl.logical_pages());
            let mut rng = Rng::new(seed);
            for lpn in 0..logical as u32 {
                drive.write(lpn, &[content(1_000_000 + u64::from(lpn))]);
            }
            drive.check();
            for step in 0..40_000u64 {
                let lpn = if rng.chance(50) { rng.below(logical) } else { rng.skewed(logical / 8) } as u32;
                match rng.below(20) {
                    0 => drive.trim(lpn, 1 + rng.below(8) as u32),
                    1 => drive.read(lpn),
                    2 => drive.idle(rng.below(20)),
                    3 if rng.chance(20) => drive.tell_dirty(lpn, 1 + rng.below(8) as u32, rng.chance(50)),
                    3..8 => drive.write(lpn, &[content(1 + rng.below(50))]),
                    _ => drive.write(lpn, &[content(2_000_000 + step)]),
                }
                if step % 4096 == 0 {
                    drive.check();
                }
            }
            drive.check();
            let erased: u64 = drive.shadow.erases().iter().sum();
            assert!(erased > 10 * u64::from(geometry.blocks()), "{}: {erased} erasures", kind.name);
        }
    });
}

/// Layers over a space separate pages of different lifetimes. Since a block was erased, its pages
/// are all the host's, or all collected, or all the layer's own, or all moved to spread wear. This
/// holds for CAFTL and for its baselines.
#[test]
fn a_block_has_pages_of_one_stream() {
    let geometry = DriveGeometry {
        packages: 2,
        dies_per_package: 1,
        planes_per_die: 1,
        blocks_per_plane: 48,
        pages_per_block: 16,
        page_bytes: 4096,
        over_provisioning_percent: 60.0,
    };
    let bit = |cause: Cause| 1u32 << cause as u32;
    let own = [Cause::Metadata, Cause::Journal, Cause::MapTable, Cause::SortRun].map(bit).iter().sum::<u32>();
    let streams = [bit(Cause::Host), bit(Cause::Collection), own, bit(Cause::WearLevelling)];
    let made = |name| (FtlKind::named(name).expect("a layer").make)(&profile(geometry)).expect("a drive");
    let drives = ["page", "page-trim", "caftl", "caftl-collecting", "caftl-accelerated"].map(|name| (name, made(name)));
    // Without a capacitor the journal is programmed in the midst of a collection, too; and here
    // wear is levelled often.
    let space = SpaceOptions { wear_spread_max: Some(4), ..SpaceOptions::default() };
    let options = CaftlOptions { capacitor: false, space, ..CaftlOptions::default() };
    let levelled: Box<dyn Ftl> = Box::new(Caftl::new(geometry, options).expect("a drive"));
    for (name, ftl) in drives.into_iter().chain([("caftl, levelled", levelled)]) {
        let mut drive = Watched::new(name, ftl);
        let logical = u64::from(drive.ftl.logical_pages());
        let mut rng = Rng::new(20_267);
        let mut seen = 0;
        for step in 0..30_000u64 {
            let lpn = if step < logical { step } else { rng.skewed(logical) } as u32;
            let number = if rng.chance(20) { rng.below(50) } else { 1_000 + step };
            drive.write(lpn, &[content(number)]);
            if rng.chance(1) {
                drive.idle(20);
            }
            for causes in &drive.shadow.causes_in {
                let of: Vec<&u32> = streams.iter().filter(|stream| *stream & causes != 0).collect();
                assert!(of.len() <= 1, "{name}: a block has pages programmed for {causes:#b}");
                seen |= causes;
            }
        }
        assert!(seen & bit(Cause::Collection) != 0, "{name} has collected");
        assert_eq!(seen & own != 0, name.starts_with("caftl"), "{name}");
        assert!(name != "caftl, levelled" || seen & bit(Cause::WearLevelling) != 0, "{name} has levelled wear");
        drive.check();
    }
}

/// A workload may write the pages of one plane alone: the other planes take them, and none
/// overflows.
#[test]
fn no_plane_overflows() {
    let geometry = DriveGeometry {
        packages: 4,
        dies_per_package: 1,
        planes_per_die: 1,
        blocks_per_plane: 32,
        pages_per_block: 8,
        page_bytes: 4096,
        over_provisioning_percent: 45.0,
    };
    for kind in FTLS {
        let ftl = (kind.make)(&profile(geometry)).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let mut drive = Watched::new(kind.name, ftl);
        let logical = drive.ftl.logical_pages();
        let mut number = 0;
        for lpn in 0..logical {
            number += 1;
            drive.write(lpn, &[content(number)]);
        }
        for _ in 0..20_000 {
            // The first page of plane 0, if there is one: it leaves that plane for another.
            let there = |lpn: &u32| {
                let ppa = drive.ftl.locate(Lpn(*lpn));
                ppa.is_some_and(|ppa| geometry.plane_of(geometry.block_of(ppa)).0 == 0)
            };
            let lpn = (0..logical).find(there).unwrap_or(number as u32 % logical);
            number += 1;
            drive.write(lpn, &[content(number)]);
        }
        drive.check();
    }
}
