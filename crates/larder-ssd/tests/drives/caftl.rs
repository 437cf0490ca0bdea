//! CAFTL from inside: deduplication in line and out of line.
//!
//! The tests cover in-line deduplication, sampling, pre-hashing, the switch and references.
//! Out-of-line deduplication finds duplicates that were missed in line.
//!
//! They leave random workloads over all options to `ssd_conservation.rs`, and power losses to
//! others.

use crate::common::{
    Rng,
    caftl::{Drive, GEOMETRY, ROOMY},
    for_seeds,
    ssd::content,
};
use larder_ssd::{
    caftl::{
        Caftl,
        digest::Digest,
        entry::StoreOptions,
        options::{CaftlOptions, InLineSwitch},
    },
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn},
    kinds::FtlKind,
    op::{Cause, Hash, Nobody},
    profile::{DriveProfile, PROFILES},
};
use std::collections::HashMap;

const PLAIN: fn() -> CaftlOptions = || CaftlOptions { store: ROOMY, ..CaftlOptions::default() };

fn hashes(drive: &Drive) -> [u64; 2] {
    let hashes = drive.ftl.counts().hashes;
    [hashes[Hash::Crc32 as usize], hashes[Hash::Sha1 as usize]]
}

#[test]
fn what_is_there_is_not_programmed_again() {
    let mut drive = Drive::new(PLAIN());
    assert_eq!(drive.write(0, &[7, 8, 7]), WrittenPages { programmed: 2, deduplicated: 1 });
    assert_eq!(drive.locate(0), drive.locate(2));
    assert_eq!((drive.references(0), drive.references(1), drive.references(2)), (2, 1, 2));
    // The same again at its place, shared or not.
    assert_eq!(drive.write(0, &[7, 8]), WrittenPages { programmed: 0, deduplicated: 2 });
    assert_eq!(drive.ftl.caftl_counts().same_content, 2);
    assert_eq!((drive.references(0), drive.references(1)), (2, 1));
    // One refers to another content, then the other: the page of 7 is deleted, and found again.
    let shared = drive.locate(0);
    drive.write(0, &[9]);
    assert_eq!(drive.references(2), 1);
    drive.trim(2);
    assert_eq!((drive.ftl.maps().vbas(), drive.ftl.array().is_valid(shared)), (0, false));
    assert_eq!(drive.write(5, &[7]), WrittenPages { programmed: 0, deduplicated: 1 });
    assert_eq!((drive.locate(5), drive.ftl.caftl_counts().revalidated), (shared, 1));
    assert_eq!(drive.references(5), 1);
    drive.check();
    assert_eq!(hashes(&drive), [0, 7], "each page is fingerprinted");
}

#[test]
fn deleted_pages_are_found_only_where_that_is_asked_for() {
    let mut drive = Drive::new(CaftlOptions { keeps_deleted: false, ..PLAIN() });
    drive.write(0, &[7]);
    drive.trim(0);
    assert_eq!(drive.ftl.store().len(), 0);
    assert_eq!(drive.write(0, &[7]), WrittenPages { programmed: 1, deduplicated: 0 });
    drive.check();
}

#[test]
fn unknown_contents_are_like_no_other() {
    let mut drive = Drive::new(PLAIN());
    let page = |lpn| larder_ssd::ftl::PageWrite { lpn: Lpn(lpn), content: None };
    let written = drive.ftl.write(&[page(0), page(1), page(0)], &mut drive.shadow);
    assert_eq!(written, WrittenPages { programmed: 3, deduplicated: 0 });
    drive.ftl.check();
}

/// 8 bits in the store, 32 in the secondary table (sections 3.2.3 and 3.3.1).
#[test]
fn references_are_exact_in_the_table_and_stop_at_255_in_the_store() {
    let mut drive = Drive::new(PLAIN());
    for lpn in 0..300 {
        drive.write(lpn, &[7]);
        assert_eq!(drive.references(0), lpn + 1);
        assert_eq!(u32::from(drive.live_entries()[0].reference), (lpn + 1).min(255));
    }
    for lpn in 0..299 {
        drive.trim(lpn);
        assert_eq!(drive.references(299), 299 - lpn);
        assert_eq!(u32::from(drive.live_entries()[0].reference), (299 - lpn).min(255));
    }
    drive.check();
    assert_eq!(drive.ftl.counts().programs[Cause::Host as usize], 1);
}

/// Collection moves a page once, with any number of sharers.
#[test]
fn a_shared_page_is_copied_once() {
    let mut drive = Drive::new(PLAIN());
    let mut rng = Rng::new(5);
    for lpn in 0..200 {
        drive.write(lpn, &[7]);
    }
    let before = drive.locate(0);
    let mut number = 1_000;
    while drive.locate(0) == before {
        number += 1;
        drive.write(200 + rng.below(300) as u32, &[number]);
    }
    drive.check();
    let after = drive.locate(0);
    assert!((0..200).all(|lpn| drive.locate(lpn) == after));
    assert_eq!((drive.references(0), drive.ftl.maps().vbas()), (200, 1));
}

/// Returns contents with sample bytes of a known order.
///
/// They grow in the order 6, 8, 9, 1, 3, 4, 2, 7; those of 2 and 5 are equal.
fn contents_by_sample_bytes() -> [u64; 10] {
    let bytes = |number| Digest::of(content(number).expect("a content")).sample_bytes();
    let mut seen = HashMap::new();
    let mut pairs = (1..).filter_map(|number| seen.insert(bytes(number), number).map(|before| (before, number)));
    let (one, other) =
        pairs.find(|(one, _)| (1 << 30..3 << 30).contains(&bytes(*one))).expect("32 bits meet again soon");
    let mut numbers: Vec<u64> = (1..500).filter(|&number| bytes(number) < bytes(one)).take(6).collect();
    numbers.sort_by_key(|&number| bytes(number));
    let greater = (1..500).find(|&number| bytes(number) > bytes(one)).expect("one is greater");
    let [six, eight, nine, first, third, fourth] = numbers.try_into().expect("six are smaller");
    [0, first, one, third, fourth, other, six, greater, eight, nine]
}

#[test]
fn the_sample_page_decides_for_its_unit() {
    let options = CaftlOptions { sampling_unit_bytes: Some(16 << 10), fingerprints_collected: false, ..PLAIN() };
    let mut drive = Drive::new(options);
    let contents = contents_by_sample_bytes();
    let write = |drive: &mut Drive, first, numbers: &[usize]| {
        drive.write(first, &numbers.iter().map(|&number| contents[number]).collect::<Vec<_>>())
    };
    // Two units: the sample is 2, then 9 alone. Only these are fingerprinted.
    assert_eq!(write(&mut drive, 0, &[1, 2, 3, 4, 9]), WrittenPages { programmed: 5, deduplicated: 0 });
    assert_eq!(hashes(&drive), [0, 2]);
    let known: Vec<u32> = (0..5).filter(|&lpn| drive.ftl.is_fingerprinted(Lpn(lpn))).collect();
    assert_eq!(known, [1, 4]);
    // 2 is there: all of the unit are fingerprinted, though they were not before and are not found.
    assert_eq!(write(&mut drive, 10, &[1, 3, 2, 4]), WrittenPages { programmed: 3, deduplicated: 1 });
    assert_eq!(hashes(&drive), [0, 6]);
    // The second time they are found.
    assert_eq!(write(&mut drive, 20, &[1, 3, 2, 4]), WrittenPages { programmed: 0, deduplicated: 4 });
    assert_eq!(hashes(&drive), [0, 10]);
    // 7 is greater and is not there: 2 is missed.
    assert_eq!(write(&mut drive, 30, &[2, 7, 1]), WrittenPages { programmed: 3, deduplicated: 0 });
    assert_eq!(hashes(&drive), [0, 11]);
    // Among equals the first: 2, which is there; then 5, which is not.
    assert_eq!(write(&mut drive, 40, &[2, 5]), WrittenPages { programmed: 1, deduplicated: 1 });
    assert_eq!(write(&mut drive, 50, &[6, 8]), WrittenPages { programmed: 2, deduplicated: 0 });
    let counts = drive.ftl.caftl_counts();
    assert_eq!((counts.units_sampled, counts.samples_found, counts.pages_sampled_out), (6, 3, 3 + 2 + 1));
    drive.check();
}

#[test]
fn crc32_decides_what_is_fingerprinted() {
    let mut drive = Drive::new(CaftlOptions { pre_hashes: true, fingerprints_collected: false, ..PLAIN() });
    assert_eq!(drive.write(0, &[1, 2, 1]), WrittenPages { programmed: 3, deduplicated: 0 });
    assert_eq!(hashes(&drive), [3, 0], "no CRC32 is there, nothing is fingerprinted");
    // Idle time fingerprints them, and finds the duplicate.
    drive.idle(1_000);
    assert_eq!(hashes(&drive), [3, 3]);
    assert_eq!(drive.pages_and_contents(), (2, 2));
    assert_eq!(drive.write(10, &[2, 3]), WrittenPages { programmed: 1, deduplicated: 1 });
    assert_eq!(hashes(&drive), [5, 4]);
    let counts = drive.ftl.caftl_counts();
    assert_eq!((counts.crc_lookups, counts.crc_found, counts.fingerprinted_idle), (5, 1, 3));
    drive.check();
}

#[test]
fn a_full_buffer_switches_it_off() {
    let mut drive = Drive::new(CaftlOptions { switch: Some(InLineSwitch::default()), ..PLAIN() });
    drive.write(0, &[1]);
    let steps = [(94, 1), (95, 0), (94, 0), (51, 0), (50, 1), (94, 1), (100, 0), (0, 1)];
    for (at, (percent, deduplicated)) in steps.into_iter().enumerate() {
        drive.ftl.tell_buffer_fill(percent);
        assert_eq!(drive.write(1 + at as u32, &[1]).deduplicated, deduplicated, "at {percent}%");
    }
    let counts = drive.ftl.caftl_counts();
    assert_eq!((counts.switched_off, counts.pages_switched_off), (2, 4));
    assert_eq!(hashes(&drive), [0, 1 + 4], "what is not deduplicated is not fingerprinted");
    drive.check();
    // A drive without a switch stays on.
    let mut drive = Drive::new(PLAIN());
    drive.ftl.tell_buffer_fill(100);
    assert_eq!(drive.write(0, &[1, 1]).deduplicated, 1);
}

/// Writes with many duplicates missed in line: a store of a few entries, and off now and then.
fn missing(drive: &mut Drive, rng: &mut Rng, writes: u32) {
    for _ in 0..writes {
        drive.ftl.tell_buffer_fill(if rng.chance(30) { 100 } else { 0 });
        let lpn = rng.below(500) as u32;
        drive.write(lpn, &[rng.below(120)]);
    }
}

/// Runs idle time until nothing is left to do. It takes a few times, since a page that moved during
/// the sort is found the next time.
fn deduplicated(drive: &mut Drive) {
    for number in 0..5 {
        drive.write(500, &[1_000 + number]);
        while drive.idle(u64::MAX) > 0 {}
    }
    assert_eq!(drive.idle(u64::MAX), 0, "nothing is left to do");
}

fn misses() -> CaftlOptions {
    CaftlOptions {
        store: StoreOptions { segments: 1, bucket_bytes: 250, buckets_max: 2, ..StoreOptions::default() },
        switch: Some(InLineSwitch::default()),
        sort_fingerprints_max: 50,
        merge_after_percent: 0.0,
        ..CaftlOptions::default()
    }
}

#[test]
fn out_of_line_finds_all_that_was_missed() {
    for_seeds(1..6, |seed| {
        let mut drive = Drive::new(misses());
        let mut rng = Rng::new(seed);
        missing(&mut drive, &mut rng, 2_000);
        let (pages, contents) = drive.pages_and_contents();
        assert!(pages > contents + 50, "{pages} pages of {contents} contents");
        assert!((0..500).any(|lpn| drive.model.contains_key(&lpn) && !drive.ftl.is_fingerprinted(Lpn(lpn))));
        deduplicated(&mut drive);
        assert_eq!(drive.pages_and_contents(), (contents + 1, contents + 1));
        assert!(drive.model.keys().all(|&lpn| drive.ftl.is_fingerprinted(Lpn(lpn))));
        let counts = drive.ftl.caftl_counts();
        assert!(counts.merges > 0 && counts.coalesced as usize >= pages - contents, "{counts:?}");
        let runs = drive.ftl.counts().programs[Cause::SortRun as usize];
        assert!(runs > 1, "{runs} pages of runs");
        assert_eq!(drive.ftl.counts().reads[Cause::SortRun as usize], runs, "merging reads each page of a run once");
        drive.check();
    });
}

/// Idle time may end after any operation, with requests in between.
#[test]
fn out_of_line_may_be_interrupted_anywhere() {
    for_seeds(1..4, |seed| {
        let mut drive = Drive::new(misses());
        let mut rng = Rng::new(seed);
        missing(&mut drive, &mut rng, 1_000);
        for _ in 0..1_500 {
            drive.idle(1 + rng.below(3));
            if rng.chance(40) {
                missing(&mut drive, &mut rng, 1);
            }
            if rng.chance(10) {
                drive.check();
            }
        }
        let mut steps = 0;
        while drive.idle(1) > 0 {
            steps += 1;
            assert!(steps < 100_000, "idle time ends");
        }
        deduplicated(&mut drive);
        let (pages, contents) = drive.pages_and_contents();
        assert_eq!(pages, contents);
        drive.check();
    });
}

#[test]
fn fingerprints_that_fit_in_memory_are_not_written_to_flash() {
    let mut drive = Drive::new(CaftlOptions { sort_fingerprints_max: 10_000, ..misses() });
    missing(&mut drive, &mut Rng::new(3), 1_000);
    while drive.idle(u64::MAX) > 0 {}
    assert!(drive.ftl.caftl_counts().merges > 0);
    assert_eq!(drive.ftl.counts().programs[Cause::SortRun as usize], 0);
}

#[test]
fn collection_fingerprints_what_it_moves_where_that_is_asked_for() {
    for fingerprints_collected in [true, false] {
        let options = CaftlOptions { in_line: false, out_of_line: false, fingerprints_collected, ..PLAIN() };
        let mut drive = Drive::new(options);
        let mut rng = Rng::new(8);
        for _ in 0..6_000 {
            let lpn = rng.skewed(680) as u32;
            drive.write(lpn, &[rng.below(200)]);
        }
        drive.check();
        let counts = drive.ftl.caftl_counts();
        assert_eq!(counts.fingerprinted_collected > 0, fingerprints_collected);
        assert_eq!(counts.coalesced > 0, fingerprints_collected, "{counts:?}");
        assert_eq!(hashes(&drive), [0, counts.fingerprinted_collected]);
        assert_eq!(drive.idle(100), 0, "idle time is not used");
    }
}

/// The external merge needs no idle time then. Requests that have blocks erased find the missed
/// duplicates.
#[test]
fn merging_goes_on_with_collection_where_that_is_asked_for() {
    for merges_collecting in [true, false] {
        let options = CaftlOptions {
            in_line: false,
            out_of_line: false,
            fingerprints_collected: false,
            merges_collecting,
            ..misses()
        };
        let mut drive = Drive::new(options);
        let mut rng = Rng::new(8);
        for step in 0..6_000 {
            let lpn = rng.skewed(680) as u32;
            drive.write(lpn, &[rng.below(200)]);
            if step % 500 == 0 {
                drive.check();
            }
        }
        drive.check();
        let counts = drive.ftl.caftl_counts();
        assert_eq!(counts.merges > 2, merges_collecting, "{counts:?}");
        assert_eq!(counts.coalesced > 100, merges_collecting, "{counts:?}");
        assert_eq!(drive.ftl.counts().programs[Cause::SortRun as usize] > 0, merges_collecting);
        let (pages, contents) = drive.pages_and_contents();
        assert!(merges_collecting || pages > 2 * contents, "{pages} pages of {contents} contents");
        assert_eq!(drive.idle(100), 0, "idle time is not used");
    }
}

/// The merge continues for as many operations as the erased blocks have pages, few or many. No
/// write waits for more, and the whole worth of a block of many pages is used.
#[test]
fn merging_with_collection_takes_as_many_operations_as_erased_blocks_have_pages() {
    for pages_per_block in [8, 32] {
        let geometry = DriveGeometry { pages_per_block, ..GEOMETRY };
        let options = CaftlOptions {
            in_line: false,
            out_of_line: false,
            fingerprints_collected: false,
            merges_collecting: true,
            // All in memory: merging sorted runs begins with a read of each, in one step.
            sort_fingerprints_max: 1 << 20,
            ..misses()
        };
        let mut drive = Drive::of(geometry, options);
        let mut rng = Rng::new(12);
        let (mut most, mut used, mut writes) = (0.0_f64, 0, 0);
        for _ in 0..6_000 * pages_per_block / 8 {
            let before = (drive.ftl.counts().blocks_erased(), out_of_line(&drive));
            drive.write(rng.skewed(80 * u64::from(pages_per_block)) as u32, &[rng.below(1_000)]);
            let erased = drive.ftl.counts().blocks_erased() - before.0;
            let operations = out_of_line(&drive) - before.1;
            assert!(operations == 0 || erased > 0, "{operations} operations, and nothing erased");
            // The last step may be of two.
            let budget = erased * u64::from(pages_per_block);
            assert!(operations <= budget + 1, "{operations} operations for {erased} blocks of {pages_per_block}");
            if erased > 0 {
                most = most.max(operations as f64 / budget as f64);
                (used, writes) = (used + operations, writes + 1);
            }
        }
        println!(
            "{pages_per_block} pages a block: {used} operations in {writes} writes, up to {most} of what they may be"
        );
        assert!(most > 0.9, "{most} of what may be used, at the most");
    }
}

/// Returns the operations that fingerprint missed pages.
fn out_of_line(drive: &Drive) -> u64 {
    let counts = drive.ftl.counts();
    counts.reads[Cause::OutOfLine as usize] + drive.shadow.hashed_for[Cause::OutOfLine as usize]
}

/// Idle time reads each page that it fingerprints first, once. Collection reads a page to move it,
/// and only hashes it besides.
#[test]
fn each_page_that_is_fingerprinted_out_of_line_is_read_once() {
    let mut drive = Drive::new(CaftlOptions { in_line: false, ..PLAIN() });
    let mut rng = Rng::new(11);
    for _ in 0..4_000 {
        drive.write(rng.skewed(680) as u32, &[rng.below(200)]);
    }
    drive.idle(30);
    drive.idle(u64::MAX);
    let (counts, caftl) = (drive.ftl.counts(), drive.ftl.caftl_counts());
    assert!(caftl.fingerprinted_idle > 0 && caftl.fingerprinted_collected > 0, "{caftl:?}");
    assert_eq!(counts.reads[Cause::OutOfLine as usize], caftl.fingerprinted_idle);
    let hashed = drive.shadow.hashed_for[Cause::OutOfLine as usize];
    assert_eq!(hashed, caftl.fingerprinted_idle + caftl.fingerprinted_collected);
    assert_eq!(counts.reads[Cause::Collection as usize], counts.programs[Cause::Collection as usize]);
    drive.check();
}

/// One plane of 1024 pages, so that pages are programmed from the first on. A metadata page has 170
/// of them, and four metadata pages are in RAM.
const ONE_PLANE: DriveGeometry =
    DriveGeometry { packages: 1, pages_per_block: 16, over_provisioning_percent: 45.0, ..GEOMETRY };

fn metadata_reads(drive: &Drive) -> u64 {
    drive.ftl.counts().reads[Cause::Metadata as usize]
}

/// 700 pages are in five metadata pages. The last of them to come has sent the first to flash.
/// Gathering, 0 sends 1 there, 1 sends 2, and so on: each is read in its turn.
#[test]
fn metadata_pages_are_read_to_be_gathered() {
    let mut drive = Drive::of(ONE_PLANE, CaftlOptions { metadata_pages_in_ram: Some(4), ..PLAIN() });
    for lpn in 0..700 {
        drive.write(lpn, &[u64::from(lpn)]);
    }
    let programmed = |drive: &Drive| drive.ftl.counts().programs[Cause::Metadata as usize];
    assert_eq!((metadata_reads(&drive), programmed(&drive)), (0, 1));
    drive.idle(u64::MAX);
    assert_eq!(drive.ftl.caftl_counts().merges, 1);
    assert_eq!((metadata_reads(&drive), programmed(&drive)), (5, 5));
    drive.check();
}

/// A page that collection moves takes its metadata along, which is read once if it is in flash
/// alone. The metadata of its new place is in RAM, since the pages beside it were written last.
#[test]
fn the_metadata_of_a_collected_page_is_read() {
    let mut drive = Drive::of(ONE_PLANE, CaftlOptions { metadata_pages_in_ram: Some(4), ..PLAIN() });
    let logical = drive.ftl.maps().logical_pages();
    // The first block keeps page 0 alone, the second pages 16 and 17, all others three quarters of
    // theirs, or half. Copies go to a free block: so two have to be emptied.
    let again = (1..16).chain(18..32).chain((32..logical).step_by(4)).chain((33..logical).step_by(4));
    let mut erased = 0;
    let mut number = 0;
    for lpn in (0..logical).chain(again) {
        let before = (metadata_reads(&drive), drive.ftl.counts().clone());
        number += 1;
        drive.write(lpn, &[number]);
        let did = drive.ftl.counts().since(&before.1);
        if did.blocks_erased() > 0 {
            erased = did.blocks_erased();
            assert_eq!((erased, did.programs[Cause::Collection as usize]), (2, 3));
            assert_eq!((metadata_reads(&drive) - before.0, did.pages_read()), (1, 4));
            break;
        }
    }
    assert_eq!(erased, 2, "it has collected");
    drive.check();
}

/// Figures 8 and 9: removed writes, and unoccupied erase blocks, beside the baseline.
#[test]
fn fewer_pages_and_blocks_than_the_baseline() {
    let mut drive = Drive::new(PLAIN());
    let profile = DriveProfile { geometry: GEOMETRY, ..PROFILES[0] };
    let mut baseline = (FtlKind::named("page-trim").expect("a layer").make)(&profile).expect("a drive");
    for lpn in 0..400 {
        // Every other page is one of ten.
        let number = if lpn % 2 == 0 { u64::from(lpn) % 20 } else { 1_000 + u64::from(lpn) };
        drive.write(lpn, &[number]);
        baseline.write(&[PageWrite { lpn: Lpn(lpn), content: content(number) }], &mut Nobody);
    }
    let counts = drive.ftl.counts();
    assert_eq!((counts.host_pages_written, counts.pages_deduplicated), (400, 190));
    // 210 pages over two planes are 28 blocks, and one has the journal.
    assert_eq!((baseline.array().blocks_occupied(), drive.ftl.array().blocks_occupied()), (50, 29));
}

/// The journal, the tables and the metadata cost pages, and these are few.
#[test]
fn own_pages_are_programmed_now_and_then() {
    let mut drive = Drive::new(CaftlOptions { journal_pages_max: Some(3), metadata_pages_in_ram: Some(4), ..PLAIN() });
    let mut rng = Rng::new(9);
    for number in 0..20_000 {
        drive.write(rng.below(600) as u32, &[number]);
    }
    drive.check();
    let counts = drive.ftl.counts();
    let by = |cause: Cause| counts.programs[cause as usize];
    // A record for each page that is written or copied, 341 a page.
    let records = by(Cause::Host) + by(Cause::Collection) + by(Cause::WearLevelling);
    assert!(by(Cause::Journal).abs_diff(records / 341) <= 1, "{} of {records}", by(Cause::Journal));
    assert_eq!(drive.ftl.caftl_counts().syncs, by(Cause::Journal) / 3);
    assert_eq!(by(Cause::MapTable), drive.ftl.caftl_counts().syncs, "one page has the whole primary table");
    assert!(by(Cause::Metadata) > 0 && by(Cause::Metadata) < 20_000 / 4, "{}", by(Cause::Metadata));
}

#[test]
fn options_out_of_their_range_are_refused() {
    let refused = |options| Caftl::new(GEOMETRY, options).expect_err("nothing").to_string();
    let options = PLAIN();
    assert_eq!(
        refused(CaftlOptions { sampling_unit_bytes: Some(6000), ..options }),
        "sampling_unit_bytes is 6000, but has to be whole pages of 4096"
    );
    assert_eq!(
        refused(CaftlOptions { sampling_unit_bytes: Some(2048), ..options }),
        "page_bytes is 4096, but has to be 2048 at most, as much as is sampled at once"
    );
    let switch = Some(InLineSwitch { high_percent: 50, low_percent: 50 });
    assert_eq!(refused(CaftlOptions { switch, ..options }), "low_percent is 50, but has to be from 0 to 49");
    assert_eq!(
        refused(CaftlOptions { sort_fingerprints_max: 1, ..options }),
        "sort_fingerprints_max is 1, but has to be from 2 to 67108864"
    );
    assert_eq!(refused(CaftlOptions { log_pages: 0, ..options }), "log_pages is 0, but has to be from 1 to 1024");
    assert_eq!(
        refused(CaftlOptions { merge_after_percent: f64::NAN, ..options }),
        "merge_after_percent is NaN, but has to be from 0 to 1000"
    );
    let vast =
        DriveGeometry { packages: 1024, planes_per_die: 32, blocks_per_plane: 256, pages_per_block: 256, ..GEOMETRY };
    let error = Caftl::new(vast, options).expect_err("nothing").to_string();
    assert!(error.starts_with("physical pages is 2147483648, but has to be so few"), "{error}");
}
