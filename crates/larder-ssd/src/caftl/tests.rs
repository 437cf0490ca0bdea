//! The RAM that a drive of this kind needs, in the sizes of the paper's structures.

use super::*;

/// Section 3.3.3: of 32 GB, 0.6% are metadata, and the array has 192 KB. Section 3.3.1: the tables.
#[test]
fn ram_of_a_drive_is_as_the_paper_counts_it() {
    let gib_32 = DriveGeometry {
        packages: 8,
        dies_per_package: 1,
        planes_per_die: 8,
        blocks_per_plane: 2048,
        pages_per_block: 64,
        page_bytes: 4096,
        over_provisioning_percent: 15.0,
    };
    assert_eq!(gib_32.physical_bytes(), 32 << 30);
    let drive = Caftl::new(gib_32, CaftlOptions::default()).expect("a drive");
    let primary_table = u64::from(drive.maps().logical_pages()) * u64::from(journal::PRIMARY_BYTES);
    assert_eq!(primary_table, u64::from(gib_32.logical_pages()) * 4);
    let secondary_table = u64::from(drive.maps().vbas()) * u64::from(journal::SECONDARY_BYTES);
    let store = drive.options().store;
    let fingerprint_store = u64::from(store.buckets_max) * u64::from(store.bucket_bytes);
    assert_eq!((secondary_table, fingerprint_store), (0, 16 << 20));
    // 170 of 24 bytes in a page: the paper has 170 2/3.
    let metadata_page_array = u64::from(drive.sizes.metadata_pages) * 4;
    assert_eq!(metadata_page_array, (8u64 << 20).div_ceil(170) * 4);
    assert!(metadata_page_array.abs_diff(192 << 10) < 1 << 10);
    let metadata_pages = u64::from(drive.sizes.metadata_frames) * 4096;
    let sort = u64::from(drive.options().sort_fingerprints_max) * u64::from(pages::METADATA_BYTES);
    let log = u64::from(drive.options().log_pages) * 4096;
    let all = primary_table + fingerprint_store + metadata_page_array + metadata_pages + sort + log;
    assert!(all < 64 << 20, "{all}");
}
