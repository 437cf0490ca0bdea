//! CAFTL when the power goes between two requests.
//!
//! A start rebuilds the state before, or, without a capacitor, the state at the last write of the
//! journal. The reads of a start are compared with the pages on flash. The cost of a change of
//! metadata is compared with a count by hand.
//!
//! It does not cut the power within a request, of the host or of idle time, or within a start. It
//! leaves this to `caftl_power.rs`.

use std::collections::BTreeSet;

use crate::common::{
    Rng,
    caftl::{Drive, ROOMY},
    for_seeds,
};
use larder_ssd::{
    caftl::options::{CaftlOptions, Switch},
    ftl::Ftl,
    geometry::Lpn,
    op::Cause,
};

fn options() -> CaftlOptions {
    CaftlOptions {
        store: ROOMY,
        switch: Some(Switch::default()),
        journal_pages_max: Some(3),
        metadata_pages_in_ram: Some(4),
        sort_fingerprints_max: 100,
        merge_after_percent: 1.0,
        ..CaftlOptions::default()
    }
}

fn work(drive: &mut Drive, rng: &mut Rng, requests: u64, misses_percent: u64) {
    for step in 0..requests {
        let lpn = rng.below(600) as u32;
        drive.ftl.tell_buffer_fill(if rng.chance(misses_percent) { 100 } else { 0 });
        match rng.below(20) {
            0 => drive.trim(lpn),
            1 => drop(drive.idle(rng.below(30))),
            2..8 => drop(drive.write(lpn, &[rng.below(60), rng.below(60)])),
            _ => drop(drive.write(lpn, &[rng.below(1 << 30), step << 32])),
        }
    }
}

fn fingerprinted(drive: &Drive) -> impl Iterator<Item = u32> {
    drive.model.keys().copied().filter(|&lpn| drive.ftl.is_fingerprinted(Lpn(lpn)))
}

/// Returns the metadata pages programmed and read by a request and the power loss after it. The
/// reads of the start are not among them.
fn metadata_of<R>(drive: &mut Drive, request: impl FnOnce(&mut Drive) -> R) -> (u64, u64) {
    let of = |drive: &Drive| {
        let counts = drive.ftl.counts();
        (counts.programs[Cause::Metadata as usize], counts.reads[Cause::Metadata as usize])
    };
    let before = of(drive);
    request(drive);
    drive.lose_power();
    drive.check();
    let after = of(drive);
    (after.0 - before.0, after.1 - before.1)
}

/// Section 3.3.3: a page's fingerprint and its LBA or VBA are in its metadata page. All pages here
/// have the same one, of which nothing is in RAM after a start.
#[test]
fn a_change_of_metadata_is_one_page_read_and_one_programmed() {
    let mut drive = Drive::new(CaftlOptions { journal_pages_max: Some(100), ..options() });
    let drive = &mut drive;
    assert_eq!(metadata_of(drive, |drive| drive.write(0, &[1])), (1, 0), "a new page; none was to be read");
    assert_eq!(metadata_of(drive, |_| ()), (0, 0), "nothing");
    assert_eq!(metadata_of(drive, |drive| drive.write(1, &[1])), (1, 1), "a page has a VBA now");
    assert_eq!(metadata_of(drive, |drive| drive.write(2, &[1])), (0, 0), "one more refers to the VBA");
    assert_eq!(metadata_of(drive, |drive| drive.write(3, &[2])), (1, 1), "a new page");
    assert_eq!(metadata_of(drive, |drive| drive.trim(2)), (0, 0), "one less refers to the VBA");
    let revalidate = |drive: &mut Drive| {
        drive.trim(3);
        drive.write(4, &[2]);
    };
    assert_eq!(metadata_of(drive, revalidate), (1, 1), "a deleted page is another's");
    let miss = |drive: &mut Drive| {
        drive.ftl.tell_buffer_fill(100);
        drive.write(5, &[3]);
    };
    assert_eq!(metadata_of(drive, miss), (1, 1), "a page without fingerprint");
    assert_eq!(fingerprinted(drive).collect::<Vec<_>>(), [0, 1, 4]);
    assert_eq!(metadata_of(drive, |drive| drive.idle(3)), (1, 1), "it is fingerprinted");
    assert_eq!(fingerprinted(drive).collect::<Vec<_>>(), [0, 1, 4, 5]);
    assert_eq!(drive.ftl.caftl_counts().fingerprinted_idle, 1);
    assert_eq!(drive.own_pages(&[Cause::Metadata]).len(), 1);
    // A log that is not empty is one page of the journal: seven requests left one. No table was
    // written yet.
    let journal = drive.own_pages(&[Cause::Journal, Cause::MapTable]).len();
    assert_eq!((journal, drive.ftl.caftl_counts().syncs), (7, 0));
    let recovered = drive.lose_power();
    assert_eq!((recovered.map_pages_read, recovered.metadata_pages_read, recovered.fingerprints), (7, 1, 3));
}

#[test]
fn with_a_capacitor_all_is_as_it_was() {
    for_seeds(1..5, |seed| {
        let mut drive = Drive::new(options());
        let mut rng = Rng::new(seed);
        for _ in 0..40 {
            let requests = rng.below(150);
            work(&mut drive, &mut rng, requests, 0);
            let entries = drive.live_entries();
            let references: Vec<u32> = (0..600).map(|lpn| drive.references(lpn)).collect();
            let recovered = drive.lose_power();
            assert_eq!(recovered.records_lost, 0);
            // The start may have moved pages: contents, references and hotness stay; the drive
            // checks places.
            let after = drive.live_entries();
            let what = |entries: &[_]| -> Vec<_> {
                entries.iter().map(|entry: &larder_ssd::caftl::store::Entry| (entry.digest, entry.reference)).collect()
            };
            assert_eq!(what(&after), what(&entries));
            assert_eq!(recovered.fingerprints as usize, after.len());
            assert_eq!((0..600).map(|lpn| drive.references(lpn)).collect::<Vec<_>>(), references);
            drive.check();
        }
        assert!(drive.ftl.caftl_counts().syncs > 3 && drive.ftl.caftl_counts().pages_shared > 100);
        assert!(drive.starts_compared > 20, "{} starts", drive.starts_compared);
    });
}

/// Missed contents are there twice, and work that idle time had begun is forgotten. Nothing else is
/// lost.
#[test]
fn power_goes_in_the_midst_of_out_of_line_work() {
    for_seeds(1..5, |seed| {
        let mut drive = Drive::new(options());
        let mut rng = Rng::new(seed);
        for _ in 0..60 {
            work(&mut drive, &mut rng, 40, 40);
            drive.idle(rng.below(60));
            let known: Vec<u32> = fingerprinted(&drive).collect();
            drive.lose_power();
            // The start may have moved pages, which are fingerprinted then.
            let after: BTreeSet<u32> = fingerprinted(&drive).collect();
            assert!(known.iter().all(|lpn| after.contains(lpn)), "a fingerprint is in a metadata page");
            drive.check();
        }
        let counts = drive.ftl.caftl_counts();
        assert!(counts.fingerprinted_idle > 100 && drive.ftl.counts().pages_copied() > 0, "{counts:?}");
        assert!(drive.starts_compared > 20, "{} starts", drive.starts_compared);
        // A page that moved during the sort is found the next time.
        for number in 0..5 {
            drive.write(600, &[(1 << 50) + number]);
            while drive.idle(u64::MAX) > 0 {}
        }
        let (pages, contents) = drive.pages_and_contents();
        assert_eq!(pages, contents);
        drive.check();
    });
}

#[test]
fn without_one_what_was_flushed_is_there() {
    for_seeds(1..5, |seed| {
        let mut drive = Drive::new(CaftlOptions { capacitor: false, ..options() });
        let mut rng = Rng::new(seed);
        for _ in 0..30 {
            let requests = rng.below(150);
            work(&mut drive, &mut rng, requests, 10);
            drive.ftl.flush(&mut drive.shadow);
            let recovered = drive.lose_power();
            assert_eq!(recovered.records_lost, 0);
            // No fingerprint is trusted, and idle time computes all of them again.
            assert_eq!(recovered.fingerprints, 0);
            drive.check();
            while drive.idle(u64::MAX) > 0 {}
            assert!(drive.model.keys().all(|&lpn| drive.ftl.is_fingerprinted(Lpn(lpn))));
            drive.check();
        }
    });
}

/// The tail of the log is lost: some logical pages are as they were before. Flushed data is there,
/// though collection moves and erases all the time.
#[test]
fn without_one_the_tail_is_lost_and_nothing_else() {
    let lost = std::cell::Cell::new(0);
    for_seeds(1..9, |seed| {
        let mut drive = Drive::new(CaftlOptions { capacitor: false, log_pages: 4, ..options() });
        let mut rng = Rng::new(seed);
        // Full, so that blocks are erased all the time.
        for lpn in 0..drive.ftl.logical_pages() {
            drive.write(lpn, &[1 << 40 | u64::from(lpn)]);
        }
        for _ in 0..20 {
            drive.ftl.flush(&mut drive.shadow);
            let flushed = drive.model.clone();
            let mut written = Vec::new();
            for step in 0..rng.below(1_200) {
                let lpn = rng.below(600) as u32;
                drive.write(lpn, &[rng.below(1 << 30) + step]);
                written.push((lpn, drive.model[&lpn]));
            }
            let recovered = drive.lose_power();
            for lpn in 0..drive.ftl.logical_pages() {
                let found = drive.ftl.locate(Lpn(lpn)).map(|_| drive.held(lpn));
                let was_once = |content: Option<_>| {
                    flushed.get(&lpn) == content.as_ref()
                        || written.iter().any(|&(of, then)| of == lpn && Some(then) == content)
                };
                assert!(found.is_some() || !flushed.contains_key(&lpn), "page {lpn} was flushed");
                assert!(found.is_none() || was_once(found), "page {lpn} holds {found:?}");
                let is_older = found != drive.model.get(&lpn).copied();
                assert!(!is_older || recovered.records_lost > 0, "page {lpn} holds {found:?}");
                lost.set(lost.get() + u64::from(is_older));
                match found {
                    Some(content) => drop(drive.model.insert(lpn, content)),
                    None => drop(drive.model.remove(&lpn)),
                }
            }
            drive.check();
        }
    });
    assert!(lost.get() > 0, "a record that was in the log alone is lost");
}
