//! Drives by name and by number: what is refused and how it is said, scaling, and what is derived.

mod common;

use common::ssd::profile;
use larder_sim::ssd::{
    ftl::FTLS,
    geometry::{BlockId, Geometry, PlaneId, Ppa},
    op::Hash,
    profile::{Controller, PROFILES, Profile, Scale, Timing},
    space::{Space, SpaceOptions},
};

const SOUND: Geometry = Geometry {
    packages: 2,
    dies_per_package: 3,
    planes_per_die: 2,
    blocks_per_plane: 40,
    pages_per_block: 24,
    page_bytes: 4096,
    over_provisioning_percent: 25.0,
};

fn refused<T>(result: Result<T, impl std::fmt::Display>) -> String {
    match result {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_profile_is_sound_and_runs_every_layer() {
    for profile in PROFILES {
        profile.check_time().unwrap_or_else(|error| panic!("{}: {error}", profile.name));
        assert_eq!(Profile::named(profile.name), Some(*profile));
        // The whole of a large drive is much memory for a test: as built, at a hundredth of its capacity.
        let logical_bytes = profile.geometry.logical_bytes() / 100;
        let small = profile.scaled_to(logical_bytes, Scale::BlockSize).unwrap_or_else(|error| panic!("{error}"));
        for kind in FTLS {
            (kind.make)(&small).unwrap_or_else(|error| panic!("{} on {}: {error}", kind.name, profile.name));
        }
    }
    assert_eq!(Profile::named("none"), None);
}

#[test]
fn caftl_is_its_tables() {
    let caftl = Profile::named("caftl").expect("a profile");
    // Table 1: 10 packages of 8 planes of 2048 blocks of 64 pages of 4 KB.
    assert_eq!(caftl.geometry.physical_bytes(), 10 * 8 * 2048 * 64 * 4096);
    assert_eq!((caftl.geometry.planes(), caftl.geometry.over_provisioning_percent), (80, 15.0));
    // Table 2, and its cycles at 934 MHz.
    assert_eq!((caftl.timing.read_ns, caftl.timing.program_ns, caftl.timing.erase_ns), (25_000, 200_000, 1_500_000));
    assert_eq!((caftl.hash_ns(Hash::Sha1), caftl.hash_ns(Hash::Crc32)), (50_907, 4_411));
}

#[test]
fn numbers_that_cannot_hold_are_refused() {
    let cases: [(Geometry, &str); 9] = [
        (Geometry { packages: 0, ..SOUND }, "packages is 0, but has to be from 1 to 1024"),
        (Geometry { dies_per_package: 2000, ..SOUND }, "dies_per_package is 2000, but has to be from 1 to 1024"),
        (Geometry { planes_per_die: 0, ..SOUND }, "planes_per_die is 0, but has to be from 1 to 1024"),
        (Geometry { blocks_per_plane: 0, ..SOUND }, "blocks_per_plane is 0, but has to be from 1 to 4294967295"),
        (Geometry { pages_per_block: 70_000, ..SOUND }, "pages_per_block is 70000, but has to be from 1 to 65536"),
        (Geometry { page_bytes: 256, ..SOUND }, "page_bytes is 256, but has to be a power of two from 512 to 1048576"),
        (
            Geometry { page_bytes: 5000, ..SOUND },
            "page_bytes is 5000, but has to be a power of two from 512 to 1048576",
        ),
        (
            Geometry { over_provisioning_percent: -1.0, ..SOUND },
            "over_provisioning_percent is -1, but has to be from 0 to 1000",
        ),
        (
            Geometry { packages: 1024, planes_per_die: 1024, blocks_per_plane: u32::MAX, ..SOUND },
            "physical pages is 324259173095178240, but has to be at most 4294967295: fewer blocks, or larger pages",
        ),
    ];
    for (geometry, sentence) in cases {
        assert_eq!(refused(geometry.check()), sentence);
        for kind in FTLS {
            assert!((kind.make)(&profile(geometry)).is_err(), "{}", kind.name);
        }
    }
    assert!(Geometry { over_provisioning_percent: f64::NAN, ..SOUND }.check().is_err());
    let no_logical = Geometry { pages_per_block: 1, blocks_per_plane: 1, packages: 1, dies_per_package: 1, ..SOUND };
    let no_logical = Geometry { planes_per_die: 1, ..no_logical };
    assert_eq!(refused(no_logical.check()), "logical pages is 0, but has to be at least 1");
}

#[test]
fn a_drive_without_spare_blocks_is_refused() {
    let none = Geometry { over_provisioning_percent: 0.0, ..SOUND };
    none.check().expect("a device that drops what it has no room for needs no spare blocks");
    assert_eq!(
        refused(none.check_spare_blocks(1)),
        "over_provisioning_percent is 0, but has to be so much that a plane of 40 blocks has at least 1 spare; it has 0"
    );
    SOUND.check_spare_blocks(8).expect("a fifth of 40 blocks");
    assert!(SOUND.check_spare_blocks(9).is_err());
    assert_eq!(
        refused(Space::new(none, SpaceOptions::default())),
        "over_provisioning_percent is 0, but has to be so much that beside the 41 blocks that a plane's data fills, 2 stay free \
         and 3 open; a plane has 40 (or give it more, smaller ones)"
    );
    let options = SpaceOptions { collection_threshold_percent: 100.0, ..SpaceOptions::default() };
    assert_eq!(
        refused(Space::new(SOUND, options)),
        "collection_threshold_percent is 100, but has to be from 0 to below 100"
    );
    let options = SpaceOptions { wear_spread_max: Some(0), ..SpaceOptions::default() };
    assert_eq!(refused(Space::new(SOUND, options)), "wear_spread_max is 0, but has to be at least 1, or none");
}

#[test]
fn a_weu_has_to_have_a_place() {
    let (block, capacity) = (SOUND.block_bytes(), SOUND.logical_bytes());
    let most = capacity / block * block;
    SOUND.check_weu(block).expect("a block");
    SOUND.check_weu(most).expect("all of it");
    for weu_bytes in [0, block - 1, block + 4096, most + block] {
        let range = format!("whole erase blocks of {block}, and at most {capacity} (the drive's capacity)");
        assert_eq!(refused(SOUND.check_weu(weu_bytes)), format!("weu_bytes is {weu_bytes}, but has to be {range}"));
    }
}

#[test]
fn no_time_without_latency() {
    let sound = PROFILES[0];
    let cases = [
        ("read_ns", Profile { timing: Timing { read_ns: 0, ..sound.timing }, ..sound }),
        ("program_ns", Profile { timing: Timing { program_ns: 0, ..sound.timing }, ..sound }),
        ("erase_ns", Profile { timing: Timing { erase_ns: 0, ..sound.timing }, ..sound }),
        ("transfer_ns", Profile { timing: Timing { transfer_ns: 0, ..sound.timing }, ..sound }),
        ("hz", Profile { controller: Controller { hz: 0, ..sound.controller }, ..sound }),
    ];
    for (field, profile) in cases {
        profile.check().expect("erasures are counted without time");
        let sentence = format!("{field} is 0, but has to be at least 1 where time is asked for");
        assert_eq!(refused(profile.check_time()), sentence);
    }
    assert_eq!(refused(Profile { rated_cycles: 0, ..sound }.check()), "rated_cycles is 0, but has to be at least 1");
}

#[test]
fn pages_tell_where_they_are() {
    for page in 0..SOUND.pages() {
        let block = SOUND.block_of(Ppa(page));
        let plane = SOUND.plane_of(block);
        assert_eq!(SOUND.ppa(block, SOUND.page_in_block(Ppa(page))), Ppa(page));
        assert_eq!(SOUND.block_in_plane(plane, SOUND.index_in_plane(block)), block);
        assert_eq!(SOUND.package_of(plane), SOUND.die_of(plane) % SOUND.packages);
    }
    // Blocks in a row: other packages first, then other dies, then other planes, and then the first plane's next block.
    let places = |block| {
        let plane = SOUND.plane_of(BlockId(block));
        (plane, SOUND.die_of(plane), SOUND.package_of(plane))
    };
    assert_eq!(places(0), (PlaneId(0), 0, 0));
    assert_eq!(places(1), (PlaneId(1), 1, 1));
    assert_eq!(places(2), (PlaneId(2), 2, 0));
    assert_eq!(places(6), (PlaneId(6), 0, 0));
    assert_eq!(places(12), (PlaneId(0), 0, 0));
}

#[test]
fn a_profile_takes_any_capacity() {
    for profile in PROFILES {
        for bytes in [1 << 30, 1_434_000_000, 10_000_000_000, profile.geometry.logical_bytes()] {
            for scale in [Scale::Blocks, Scale::BlockSize] {
                let scaled = profile.scaled_to(bytes, scale).unwrap_or_else(|error| panic!("{error}")).geometry;
                let name = format!("{} {bytes} {scale:?}: {scaled:?}", profile.name);
                assert!(scaled.logical_bytes() >= bytes, "{name}");
                // At most one block a plane more than asked for, or one page a block.
                let step = match scale {
                    Scale::Blocks => scaled.block_bytes() * u64::from(scaled.planes()),
                    Scale::BlockSize => u64::from(scaled.page_bytes) * u64::from(scaled.blocks()),
                };
                assert!(scaled.logical_bytes() <= bytes + step + u64::from(scaled.page_bytes), "{name}");
            }
        }
    }
    // Nitro section 5.4's two times, and a block between.
    let nitro = Profile::named("nitro-mlc").expect("a profile");
    let erase_ns = |block_bytes: u64| {
        let bytes = nitro.geometry.logical_bytes() * block_bytes / nitro.geometry.block_bytes();
        let scaled = nitro.scaled_to(bytes - (1 << 20), Scale::BlockSize).expect("a drive");
        assert_eq!(scaled.geometry.block_bytes(), block_bytes);
        scaled.timing.erase_ns
    };
    assert_eq!((erase_ns(2 << 20), erase_ns(128 << 10)), (3_800_000, 2_000_000));
    assert!((2_000_001..3_800_000).contains(&erase_ns(1 << 20)));
    assert_eq!(nitro.scaled_to(1 << 30, Scale::Blocks).expect("a drive").timing.erase_ns, 3_800_000);

    let most = nitro.capacity_max(Scale::Blocks);
    assert_eq!(
        refused(nitro.scaled_to(1 << 50, Scale::Blocks)),
        format!(
            "capacity is 1125899906842624, but has to be at most {most}: that and its spare pages are the most that there can be"
        )
    );
    assert!((0.999..1.0).contains(&(most as f64 / (u32::MAX as f64 * 8192.0 / 1.07))), "{most}");
    let few = Profile { geometry: Geometry { blocks_per_plane: 10, ..nitro.geometry }, ..nitro };
    let sentence = refused(few.scaled_to(1 << 40, Scale::BlockSize));
    assert!(sentence.ends_with("but has to be at most 65536: vary the number of blocks"), "{sentence}");
}
