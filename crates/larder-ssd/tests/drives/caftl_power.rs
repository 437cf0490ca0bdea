//! CAFTL when the power goes within a request, after any change of the flash.
//!
//! Random workloads have a cut after a number of programs and erasures, again and again on the same
//! drive. All acknowledged data is there. Each page of the request under way is as before or as
//! after. The drive is whole: pages add up, and none is programmed twice or out of order (the
//! shadow flash checks that by itself). It continues after each cut.
//!
//! `LARDER_SEEDS=N` takes N seeds.
//!
//! It does not cut half an operation.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
};

use crate::common::{
    Rng,
    caftl::{Drive, GEOMETRY, ROOMY},
    ssd::{Shadow, content},
};
use larder_core::Fingerprint;
use larder_ssd::{
    array::PageState,
    caftl::{
        options::{CaftlOptions, Switch},
        store::{Order, StoreOptions},
    },
    ftl::{Ftl, PageWrite},
    geometry::{Geometry, Lpn, Ppa},
    op::Cause,
    space::SpaceOptions,
};

/// Returns a small log, journal, store and sort, so that background writing never rests.
///
/// With every other seed the layer keeps no more free blocks than it needs by itself, and the log
/// has four pages. With some seeds much metadata is in RAM. With every third, merging runs with
/// collection, too.
fn options(seed: u64) -> CaftlOptions {
    let collection_threshold_percent = if seed.is_multiple_of(2) { 0.0 } else { 5.0 };
    CaftlOptions {
        merges_collecting: seed.is_multiple_of(3),
        space: SpaceOptions { wear_spread_max: Some(3), collection_threshold_percent, ..SpaceOptions::default() },
        store: StoreOptions { order: Order::Hotness, buckets_max: 12, bucket_bytes: 290, ..ROOMY },
        switch: Some(Switch::default()),
        journal_pages_max: Some(2),
        log_pages: if seed.is_multiple_of(2) { 4 } else { 1 },
        metadata_pages_in_ram: Some(if seed % 4 == 2 { 40 } else { 4 }),
        sort_fingerprints_max: 100,
        merge_after_percent: 1.0,
        ..CaftlOptions::default()
    }
}

/// Returns one plane or two, and pages of 4096 or 512 bytes. Log, tables and metadata fill more of
/// the small pages.
fn geometry(seed: u64) -> Geometry {
    match seed % 4 {
        0 => Geometry { page_bytes: 512, over_provisioning_percent: 100.0, ..GEOMETRY },
        1 => Geometry { packages: 1, over_provisioning_percent: 70.0, ..GEOMETRY },
        2 => Geometry {
            packages: 1,
            blocks_per_plane: 128,
            page_bytes: 512,
            over_provisioning_percent: 110.0,
            ..GEOMETRY
        },
        _ => GEOMETRY,
    }
}

#[derive(Clone, Debug)]
enum Request {
    Write(u32, Vec<u64>),
    Trim(u32, u32),
    Idle(u64),
    Flush,
    Fill(u8),
}

fn request(rng: &mut Rng, logical: u32) -> Request {
    let hot = if rng.chance(50) { 40 } else { u64::from(logical) };
    let first = rng.below(hot) as u32;
    match rng.below(40) {
        0 => Request::Trim(first, (rng.below(6) as u32).min(logical - first)),
        1..5 => Request::Idle(rng.below(120)),
        5 => Request::Flush,
        6..9 => Request::Fill(if rng.chance(50) { 100 } else { 0 }),
        _ => {
            let contents = if rng.chance(50) { 50 } else { 1 << 40 };
            let len = (1 + rng.below(5)).min(u64::from(logical - first));
            Request::Write(first, (0..len).map(|_| rng.below(contents)).collect())
        }
    }
}

type Content = Option<Fingerprint>;

/// The allowed contents of each logical page, among them none.
struct Allowed {
    /// The newest acknowledged content.
    newest: BTreeMap<u32, Content>,
    /// Older contents since the last flush, which a drive without capacitor may have kept.
    older: BTreeMap<u32, HashSet<Option<Content>>>,
}

impl Allowed {
    fn set(&mut self, lpn: u32, to: Option<Content>) {
        let before = match to {
            Some(content) => self.newest.insert(lpn, content),
            None => self.newest.remove(&lpn),
        };
        self.older.entry(lpn).or_default().insert(before);
    }

    /// Checks the found contents, and takes them as the newest from now on.
    fn check(&mut self, drive: &Drive, under_way: &BTreeMap<u32, Option<Content>>, has_capacitor: bool) {
        for lpn in 0..drive.ftl.logical_pages() {
            let found = drive.ftl.locate(Lpn(lpn)).map(|_| drive.held(lpn));
            let is_newest = found == self.newest.get(&lpn).copied();
            let is_under_way = under_way.get(&lpn) == Some(&found);
            let is_older = !has_capacitor && self.older.get(&lpn).is_some_and(|older| older.contains(&found));
            assert!(
                is_newest || is_under_way || is_older,
                "page {lpn} holds {found:?}, not {:?}",
                self.newest.get(&lpn)
            );
            match found {
                Some(content) => drop(self.newest.insert(lpn, content)),
                None => drop(self.newest.remove(&lpn)),
            }
        }
        self.older.clear();
    }
}

/// The causes of the operations that the cuts hit, with their counts.
#[derive(Default)]
struct Cuts {
    by_cause: BTreeMap<(Cause, bool), u64>,
    within_starts: u64,
    reorganised: u64,
    records_lost: u64,
    merges: u64,
}

/// Runs a drive whose power goes after about each `every`-th operation.
fn run(seed: u64, geometry: Geometry, options: CaftlOptions, every: u64, requests: u32, cuts: &RefCell<Cuts>) {
    let mut rng = Rng::new(seed);
    let mut drive = Drive::of(geometry, options);
    let logical = drive.ftl.logical_pages();
    let mut allowed = Allowed { newest: BTreeMap::new(), older: BTreeMap::new() };
    // Full, so that collection and levelling are under way all the time.
    for lpn in 0..logical {
        drive.write(lpn, &[1 << 50 | u64::from(lpn)]);
        allowed.set(lpn, Some(content(1 << 50 | u64::from(lpn))));
    }
    let (mut number, mut armed_for) = (0, 0);
    for _ in 0..requests {
        armed_for += 1;
        if drive.shadow.power_goes_after.is_none() || drive.shadow.power_counts.is_some() && armed_for > 40 {
            armed_for = 0;
            // Some causes are rare: now and then the cut comes at one of their next operations.
            let rare = [Cause::MapTable, Cause::Journal, Cause::Metadata, Cause::WearLevelling];
            let counted = rng.chance(30).then(|| rare[rng.below(4) as usize]);
            let most = if counted.is_some() { 6 } else { 2 * every };
            drive.shadow.power_counts = counted;
            drive.shadow.power_goes_after = Some(1 + rng.below(most));
        }
        let request = request(&mut rng, logical);
        let mut under_way = BTreeMap::new();
        let went = {
            let (ftl, shadow) = (&mut drive.ftl, &mut drive.shadow);
            shadow.request += 1;
            match &request {
                Request::Write(first, numbers) => {
                    let page = |(lpn, mixed): (u32, &u64)| {
                        number += 1;
                        // Half of them are like no other; some have no fingerprint that the host
                        // knows.
                        let mixed = if mixed % 2 == 0 { *mixed } else { number << 20 | mixed };
                        PageWrite { lpn: Lpn(lpn), content: content(mixed) }
                    };
                    let pages: Vec<PageWrite> = (*first..).zip(numbers).map(page).collect();
                    under_way.extend(pages.iter().map(|page| (page.lpn.0, Some(page.content))));
                    Shadow::until_power_goes(|| {
                        ftl.write(&pages, shadow);
                    })
                }
                Request::Trim(first, len) => {
                    under_way.extend((*first..first + len).map(|lpn| (lpn, None)));
                    Shadow::until_power_goes(|| ftl.trim(*first..first + len, shadow))
                }
                Request::Idle(budget) => Shadow::until_power_goes(|| {
                    ftl.idle(*budget, shadow);
                }),
                Request::Flush => Shadow::until_power_goes(|| ftl.flush(shadow)),
                Request::Fill(percent) => {
                    ftl.tell_buffer_fill(*percent);
                    false
                }
            }
        };
        if !went {
            for (lpn, to) in under_way {
                allowed.set(lpn, to);
            }
            if matches!(request, Request::Flush) {
                allowed.older.clear();
            }
            continue;
        }
        // Now and then the power goes again while the capacitor saves the rest, or within the
        // start.
        let mut cuts = cuts.borrow_mut();
        drive.shadow.power_counts = None;
        *cuts.by_cause.entry(drive.shadow.last_change).or_default() += 1;
        if rng.chance(20) {
            drive.shadow.power_goes_after = Some(1 + rng.below(12));
        }
        loop {
            let (ftl, shadow) = (&mut drive.ftl, &mut drive.shadow);
            let mut lost = 0;
            if !Shadow::until_power_goes(|| lost = ftl.lose_power(shadow).records_lost) {
                cuts.records_lost += lost;
                break;
            }
            cuts.within_starts += 1;
        }
        drive.shadow.power_goes_after = None;
        drive.ftl.check();
        allowed.check(&drive, &under_way, options.capacitor);
        let totals = drive.ftl.totals();
        assert_eq!(totals, drive.ftl.array().recount());
        assert_eq!(totals.valid + totals.invalid + totals.free, u64::from(geometry.pages()));
        for ppa in (0..geometry.pages()).map(Ppa) {
            let is_free = drive.ftl.array().state(ppa) == PageState::Free;
            assert_eq!(is_free, !drive.shadow.is_programmed(ppa), "page {} is free", ppa.0);
        }
    }
    let mut cuts = cuts.borrow_mut();
    cuts.reorganised += drive.ftl.store().counts().reorganised;
    cuts.merges += drive.ftl.caftl_counts().merges;
}

/// Runs the test with `LARDER_SEEDS` seeds, or this many.
fn for_each_seed(many: u64, test: impl Fn(u64)) {
    let many = std::env::var("LARDER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(many);
    crate::common::for_seeds(1..many + 1, test);
}

#[test]
fn with_a_capacitor_nothing_acknowledged_is_lost() {
    let cuts = RefCell::new(Cuts::default());
    for_each_seed(24, |seed| {
        let every = [1, 3, 10, 40, 150, 400][seed as usize / 4 % 6];
        run(seed, geometry(seed), options(seed), every, 4_000, &cuts);
    });
    let cuts = cuts.into_inner();
    println!("{:?}, {} within starts", cuts.by_cause, cuts.within_starts);
    for (cause, is_erasure) in [
        (Cause::Host, false),
        (Cause::Collection, false),
        (Cause::Collection, true),
        (Cause::WearLevelling, false),
        (Cause::WearLevelling, true),
        (Cause::Metadata, false),
        (Cause::Journal, false),
        (Cause::MapTable, false),
        (Cause::SortRun, false),
    ] {
        let at = cuts.by_cause.get(&(cause, is_erasure)).copied().unwrap_or(0);
        assert!(at > 0, "the power went at {} (an erasure: {is_erasure})", cause.name());
    }
    assert!(cuts.within_starts > 20 && cuts.reorganised > 0 && cuts.merges > 0 && cuts.records_lost == 0);
}

#[test]
fn without_one_what_was_flushed_is_there() {
    let cuts = RefCell::new(Cuts::default());
    for_each_seed(24, |seed| {
        let every = [1, 3, 10, 40, 150, 400][seed as usize / 4 % 6];
        let options = CaftlOptions { capacitor: false, ..options(seed) };
        run(seed, geometry(seed), options, every, 4_000, &cuts);
    });
    let cuts = cuts.into_inner();
    println!("{:?}, {} within starts, {} records lost", cuts.by_cause, cuts.within_starts, cuts.records_lost);
    assert!(cuts.within_starts > 20 && cuts.records_lost > 0 && cuts.merges > 0);
    assert!(
        cuts.by_cause.contains_key(&(Cause::Journal, false)) && cuts.by_cause.contains_key(&(Cause::MapTable, false))
    );
}
