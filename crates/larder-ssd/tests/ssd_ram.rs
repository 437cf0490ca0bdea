//! Memory of drives, counted by the allocator.
//!
//! The reported bytes are the allocated bytes. A 1 TB drive of 16 KiB pages fits in 1 GiB
//! altogether, with any layer but CAFTL.

#[path = "common/live.rs"]
mod live;

use larder_ssd::{
    ftl::{Ftl, PageWrite},
    geometry::{DriveGeometry, Lpn},
    kinds::{FTLS, FtlKind},
    op::Nobody,
    profile::{DriveProfile, ProfileScale},
};

#[global_allocator]
static ALLOCATOR: live::Counting = live::Counting;

fn make(kind: &FtlKind, profile: &DriveProfile) -> Box<dyn Ftl> {
    (kind.make)(profile).unwrap_or_else(|error| panic!("{}: {error}", kind.name))
}

/// Writes every page, and then enough random pages to have blocks collected.
fn fill_and_overwrite(ftl: &mut dyn Ftl) {
    let pages = ftl.logical_pages();
    let spare = ftl.array().geometry().pages() - pages;
    let mut write = |lpn| {
        ftl.write(&[PageWrite { lpn: Lpn(lpn), content: None }], &mut Nobody);
    };
    (0..pages).for_each(&mut write);
    let step = |lpn: &u32| Some((u64::from(*lpn) * 48_271 % u64::from(pages)) as u32);
    std::iter::successors(Some(1), step).take(spare as usize + 1_000_000).for_each(&mut write);
    assert!(ftl.counts().pages_copied() > 0, "nothing was collected");
}

/// There is one test alone: the allocator counts all threads.
#[test]
fn memory_is_what_is_told_and_fits() {
    let caftl = DriveProfile::named("caftl").expect("a profile");
    let package = DriveProfile { geometry: DriveGeometry { packages: 1, ..caftl.geometry }, ..caftl };
    let small = package.scaled_to(400 << 20, ProfileScale::Blocks).unwrap_or_else(|error| panic!("{error}"));
    for kind in FTLS {
        let (peak, told) = live::peak(|| {
            let mut ftl = make(kind, &small);
            let unit = ftl.write_unit_pages();
            let units = ftl.logical_pages() / unit;
            let mut pages = Vec::new();
            let (mut at, mut told) = (1u64, 0);
            for _ in 0..3 * units {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let first = (at >> 33) as u32 % units * unit;
                pages.clear();
                pages.extend((first..first + unit).map(|lpn| PageWrite { lpn: Lpn(lpn), content: None }));
                ftl.write(&pages, &mut Nobody);
                // Memory of the sort for a merge is temporary.
                told = told.max(ftl.ram_bytes());
            }
            told
        });
        println!("{}: {told} bytes told, {peak} at most", kind.name);
        assert!(peak >= told, "{}: {told} bytes told, {peak} allocated", kind.name);
        // The rest is temporary memory and the box itself. While CAFTL writes its tables out, they
        // are on flash twice.
        assert!(peak - told < told / 16 + 4096, "{}: {told} bytes told, {peak} allocated", kind.name);
    }

    let tlc = DriveProfile::named("tlc-nvme").expect("a profile");
    assert!(tlc.geometry.page_bytes == 16 << 10 && tlc.geometry.logical_bytes() >= 1_000_000_000_000);
    for name in ["page-trim", "hybrid", "flashtier", "flashtier-merge", "flashtier-lru", "weu"] {
        let kind = FtlKind::named(name).expect("a layer");
        let (peak, told) = live::peak(|| {
            let mut ftl = make(kind, &tlc);
            // The others need only to be made: the loop above covers the memory that grows with
            // use.
            if name == "page-trim" {
                fill_and_overwrite(&mut *ftl);
            }
            ftl.ram_bytes()
        });
        println!("1 TB, {name}: {told} bytes told, {peak} at most");
        assert!(peak < 1 << 30 && told <= peak, "{name}: {told} bytes told, {peak} allocated");
    }
}
