//! Drives by name and by number: refusals and their sentences, scaling, and derived values.

use crate::common::ssd::profile;
use larder_ssd::{
    geometry::{BlockId, DriveGeometry, PlaneId, Ppa},
    kinds::FTLS,
    op::Hash,
    profile::{Controller, DriveProfile, PROFILES, ProfileScale, Timing},
    space::{Space, SpaceOptions},
};

const SOUND: DriveGeometry = DriveGeometry {
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
        assert_eq!(DriveProfile::named(profile.name), Some(*profile));
        // A large drive takes too much memory for a test: it is built at a hundredth of its
        // capacity.
        let logical_bytes = profile.geometry.logical_bytes() / 100;
        let small = profile.scaled_to(logical_bytes, ProfileScale::BlockSize).unwrap_or_else(|error| panic!("{error}"));
        for kind in FTLS {
            (kind.make)(&small).unwrap_or_else(|error| panic!("{} on {}: {error}", kind.name, profile.name));
        }
    }
    assert_eq!(DriveProfile::named("none"), None);
}

#[test]
fn caftl_is_its_tables() {
    let caftl = DriveProfile::named("caftl").expect("a profile");
    // Table 1: 10 packages of 8 planes of 2048 blocks of 64 pages of 4 KB.
    assert_eq!(caftl.geometry.physical_bytes(), 10 * 8 * 2048 * 64 * 4096);
    assert_eq!((caftl.geometry.planes(), caftl.geometry.over_provisioning_percent), (80, 15.0));
    let DriveGeometry {
        packages, dies_per_package, planes_per_die, blocks_per_plane, pages_per_block, page_bytes, ..
    } = caftl.geometry;
    let counts = [packages, dies_per_package, planes_per_die, blocks_per_plane, pages_per_block, page_bytes];
    assert_eq!(counts, [10, 2, 4, 2048, 64, 4096]);
    // Table 2, and its cycles at 934 MHz; the bus is Agrawal's.
    let timing = Timing { read_ns: 25_000, program_ns: 200_000, erase_ns: 1_500_000, transfer_ns: 100_000 };
    assert_eq!((caftl.timing, caftl.erase_ns_by_block_bytes, caftl.controller), (timing, None, ARM));
    // Section 1.2's cycles, section 4.2's buffer; collection below 5%, and a link of its years.
    assert_eq!((caftl.rated_cycles, caftl.buffer_bytes, caftl.cut_from), (10_000, 16 << 20, None));
    assert_eq!((caftl.collection_threshold_percent, caftl.link_bytes_per_second), (5.0, 300_000_000));
    assert_eq!((caftl.hash_ns(Hash::Sha1), caftl.hash_ns(Hash::Crc32)), (50_907, 4_411));
}

const ARM: Controller = Controller { hz: 934_000_000, sha1_cycles_4k: 47_548, crc32_cycles_4k: 4_120 };

/// Section 5.4: 2 ms for blocks of 128 KiB and 3.8 ms for 2 MiB, 7% over-provisioned. `about` has
/// the values that the paper lacks.
#[test]
fn nitro_mlc_is_its_figures() {
    let nitro = DriveProfile::named("nitro-mlc").expect("a profile");
    let published = DriveProfile {
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 2,
            planes_per_die: 2,
            blocks_per_plane: 4096,
            pages_per_block: 256,
            page_bytes: 8 << 10,
            over_provisioning_percent: 7.0,
        },
        timing: Timing { read_ns: 50_000, program_ns: 1_300_000, erase_ns: 3_800_000, transfer_ns: 41_000 },
        erase_ns_by_block_bytes: Some([(128 << 10, 2_000_000), (2 << 20, 3_800_000)]),
        rated_cycles: 3_000,
        buffer_bytes: 64 << 20,
        collection_threshold_percent: 1.0,
        controller: ARM,
        link_bytes_per_second: 300_000_000,
        cut_from: None,
        name: nitro.name,
        about: nitro.about,
    };
    assert_eq!(nitro, published);
    assert_eq!((nitro.geometry.block_bytes(), nitro.geometry.physical_bytes()), (2 << 20, 256 << 30));
    // 8 KiB at 200 MB/s.
    assert_eq!(nitro.timing.transfer_ns, (8192 * 1000 / 200_u64).next_multiple_of(1000));
}

/// 1 TiB sold as 1 TB: reads of 45 us, programs of 450 us, 1.2 Gb/s a pin of eight. Blocks of 16
/// MiB take 3.5 ms, and last 3,000 cycles.
#[test]
fn tlc_nvme_is_its_figures() {
    let tlc = DriveProfile::named("tlc-nvme").expect("a profile");
    let published = DriveProfile {
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 4,
            planes_per_die: 2,
            blocks_per_plane: 1024,
            pages_per_block: 1024,
            page_bytes: 16 << 10,
            over_provisioning_percent: 9.95,
        },
        timing: Timing { read_ns: 45_000, program_ns: 450_000, erase_ns: 3_500_000, transfer_ns: 13_653 },
        erase_ns_by_block_bytes: None,
        rated_cycles: 3_000,
        buffer_bytes: 64 << 20,
        collection_threshold_percent: 1.0,
        controller: ARM,
        link_bytes_per_second: 3_938_000_000,
        cut_from: None,
        name: tlc.name,
        about: tlc.about,
    };
    assert_eq!(tlc, published);
    assert_eq!((tlc.geometry.block_bytes(), tlc.geometry.physical_bytes()), (16 << 20, 1 << 40));
    sold_as(&tlc, 1e12);
    a_page_at_1_2_gbit_a_pin(&tlc);
}

/// 4 TiB sold as 4 TB: reads of 110 us, programs of 2 ms, 1.2 Gb/s a pin of eight. Blocks of 32 MiB
/// take 5 ms, and last 1,000 cycles.
#[test]
fn qlc_nvme_is_its_figures() {
    let qlc = DriveProfile::named("qlc-nvme").expect("a profile");
    let published = DriveProfile {
        geometry: DriveGeometry {
            packages: 8,
            dies_per_package: 4,
            planes_per_die: 2,
            blocks_per_plane: 2048,
            pages_per_block: 2048,
            page_bytes: 16 << 10,
            over_provisioning_percent: 9.95,
        },
        timing: Timing { read_ns: 110_000, program_ns: 2_000_000, erase_ns: 5_000_000, transfer_ns: 13_653 },
        erase_ns_by_block_bytes: None,
        rated_cycles: 1_000,
        buffer_bytes: 256 << 20,
        collection_threshold_percent: 1.0,
        controller: ARM,
        link_bytes_per_second: 3_938_000_000,
        cut_from: None,
        name: qlc.name,
        about: qlc.about,
    };
    assert_eq!(qlc, published);
    assert_eq!((qlc.geometry.block_bytes(), qlc.geometry.physical_bytes()), (32 << 20, 4 << 40));
    sold_as(&qlc, 4e12);
    a_page_at_1_2_gbit_a_pin(&qlc);
}

/// Checks that the host has the nominal size of the drive, to a thousandth.
fn sold_as(profile: &DriveProfile, bytes: f64) {
    let logical = profile.geometry.logical_bytes() as f64;
    assert!((logical / bytes - 1.0).abs() < 0.001, "{}: {logical} for the host", profile.name);
}

fn a_page_at_1_2_gbit_a_pin(profile: &DriveProfile) {
    let page_ns = u64::from(profile.geometry.page_bytes) * 10 / 12;
    assert_eq!(profile.timing.transfer_ns, page_ns, "{}", profile.name);
}

#[test]
fn numbers_that_cannot_hold_are_refused() {
    let cases: [(DriveGeometry, &str); 9] = [
        (DriveGeometry { packages: 0, ..SOUND }, "packages is 0, but has to be from 1 to 1024"),
        (DriveGeometry { dies_per_package: 2000, ..SOUND }, "dies_per_package is 2000, but has to be from 1 to 1024"),
        (DriveGeometry { planes_per_die: 0, ..SOUND }, "planes_per_die is 0, but has to be from 1 to 1024"),
        (DriveGeometry { blocks_per_plane: 0, ..SOUND }, "blocks_per_plane is 0, but has to be from 1 to 4294967295"),
        (DriveGeometry { pages_per_block: 70_000, ..SOUND }, "pages_per_block is 70000, but has to be from 1 to 65536"),
        (
            DriveGeometry { page_bytes: 256, ..SOUND },
            "page_bytes is 256, but has to be a power of two from 512 to 1048576",
        ),
        (
            DriveGeometry { page_bytes: 5000, ..SOUND },
            "page_bytes is 5000, but has to be a power of two from 512 to 1048576",
        ),
        (
            DriveGeometry { over_provisioning_percent: -1.0, ..SOUND },
            "over_provisioning_percent is -1, but has to be from 0 to 1000",
        ),
        (
            DriveGeometry { packages: 1024, planes_per_die: 1024, blocks_per_plane: u32::MAX, ..SOUND },
            "physical pages is 324259173095178240, but has to be at most 4294967295: fewer blocks, or larger pages",
        ),
    ];
    for (geometry, sentence) in cases {
        assert_eq!(refused(geometry.check()), sentence);
        for kind in FTLS {
            assert!((kind.make)(&profile(geometry)).is_err(), "{}", kind.name);
        }
    }
    assert!(DriveGeometry { over_provisioning_percent: f64::NAN, ..SOUND }.check().is_err());
    let no_logical =
        DriveGeometry { pages_per_block: 1, blocks_per_plane: 1, packages: 1, dies_per_package: 1, ..SOUND };
    let no_logical = DriveGeometry { planes_per_die: 1, ..no_logical };
    assert_eq!(refused(no_logical.check()), "logical pages is 0, but has to be at least 1");
}

#[test]
fn a_drive_without_spare_blocks_is_refused() {
    let none = DriveGeometry { over_provisioning_percent: 0.0, ..SOUND };
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
        ("read_ns", DriveProfile { timing: Timing { read_ns: 0, ..sound.timing }, ..sound }),
        ("program_ns", DriveProfile { timing: Timing { program_ns: 0, ..sound.timing }, ..sound }),
        ("erase_ns", DriveProfile { timing: Timing { erase_ns: 0, ..sound.timing }, ..sound }),
        ("transfer_ns", DriveProfile { timing: Timing { transfer_ns: 0, ..sound.timing }, ..sound }),
        ("hz", DriveProfile { controller: Controller { hz: 0, ..sound.controller }, ..sound }),
    ];
    for (field, profile) in cases {
        profile.check().expect("erasures are counted without time");
        let sentence = format!("{field} is 0, but has to be at least 1 where time is asked for");
        assert_eq!(refused(profile.check_time()), sentence);
    }
    assert_eq!(
        refused(DriveProfile { rated_cycles: 0, ..sound }.check()),
        "rated_cycles is 0, but has to be at least 1"
    );
}

#[test]
fn pages_tell_where_they_are() {
    for page in 0..SOUND.pages() {
        let block = SOUND.block_of(Ppa(page));
        let plane = SOUND.plane_of(block);
        assert_eq!(SOUND.ppa(block, SOUND.page_in_block(Ppa(page))), Ppa(page));
        assert_eq!(SOUND.block_in_plane(plane, block.0 / SOUND.planes()), block);
    }
    // Blocks in a row lie in planes in a row, and then in the first plane's next block.
    let planes = [0, 1, 2, 6, 11, 12, 13].map(|block| SOUND.plane_of(BlockId(block)));
    assert_eq!(planes, [0, 1, 2, 6, 11, 0, 1].map(PlaneId));
}

#[test]
fn a_profile_takes_any_capacity() {
    for profile in PROFILES {
        for bytes in [1 << 30, 1_434_000_000, 10_000_000_000, profile.geometry.logical_bytes()] {
            for scale in [ProfileScale::Blocks, ProfileScale::BlockSize] {
                let scaled = profile.scaled_to(bytes, scale).unwrap_or_else(|error| panic!("{error}")).geometry;
                let name = format!("{} {bytes} {scale:?}: {scaled:?}", profile.name);
                assert!(scaled.logical_bytes() >= bytes, "{name}");
                // At most one block a plane more than asked for, or one page a block.
                let step = match scale {
                    ProfileScale::Blocks => scaled.block_bytes() * u64::from(scaled.planes()),
                    ProfileScale::BlockSize => u64::from(scaled.page_bytes) * u64::from(scaled.blocks()),
                };
                assert!(scaled.logical_bytes() <= bytes + step + u64::from(scaled.page_bytes), "{name}");
            }
        }
    }
    // Nitro section 5.4's two times, and a block between.
    let nitro = DriveProfile::named("nitro-mlc").expect("a profile");
    let erase_ns = |block_bytes: u64| {
        let bytes = nitro.geometry.logical_bytes() * block_bytes / nitro.geometry.block_bytes();
        let scaled = nitro.scaled_to(bytes - (1 << 20), ProfileScale::BlockSize).expect("a drive");
        assert_eq!(scaled.geometry.block_bytes(), block_bytes);
        scaled.timing.erase_ns
    };
    assert_eq!((erase_ns(2 << 20), erase_ns(128 << 10)), (3_800_000, 2_000_000));
    assert!((2_000_001..3_800_000).contains(&erase_ns(1 << 20)));
    assert_eq!(nitro.scaled_to(1 << 30, ProfileScale::Blocks).expect("a drive").timing.erase_ns, 3_800_000);

    let most = nitro.capacity_max(ProfileScale::Blocks);
    assert_eq!(
        refused(nitro.scaled_to(1 << 50, ProfileScale::Blocks)),
        format!(
            "capacity is 1125899906842624, but has to be at most {most}: that and its spare pages are the most that there can be"
        )
    );
    assert!((0.999..1.0).contains(&(most as f64 / (u32::MAX as f64 * 8192.0 / 1.07))), "{most}");
    let few = DriveProfile { geometry: DriveGeometry { blocks_per_plane: 10, ..nitro.geometry }, ..nitro };
    let sentence = refused(few.scaled_to(1 << 40, ProfileScale::BlockSize));
    assert!(sentence.ends_with("but has to be at most 65536: vary the number of blocks"), "{sentence}");
}
