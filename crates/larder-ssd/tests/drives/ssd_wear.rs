//! Wear: the effect and the cost of levelling, and the reported years.

use crate::common::{
    Rng,
    ssd::{Watched, content},
};
use larder_ssd::{
    caftl::{Caftl, options::CaftlOptions},
    counts::{Life, Wear, YEAR_SECONDS},
    flashtier::FlashTierOptions,
    ftl::Ftl,
    geometry::DriveGeometry,
    hybrid::{Hybrid, HybridOptions},
    op::Cause,
    page_mapped::{PageMapped, PageMappedOptions},
    space::SpaceOptions,
    weu_aligned::{WeuAligned, WeuAlignedOptions},
};

const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 2,
    dies_per_package: 1,
    planes_per_die: 1,
    blocks_per_plane: 64,
    pages_per_block: 16,
    page_bytes: 4096,
    over_provisioning_percent: 25.0,
};

/// Makes a drive of which nine tenths lie still, while the rest is written again and again.
fn worn(wear_spread_max: Option<u32>) -> Watched {
    let space = SpaceOptions { wear_spread_max, collection_threshold_percent: 0.0, ..SpaceOptions::default() };
    let options = PageMappedOptions { space, takes_trims: false };
    let mut drive = Watched::new("page", Box::new(PageMapped::new(GEOMETRY, options).expect("a drive")));
    let logical = GEOMETRY.logical_pages();
    for lpn in 0..logical {
        drive.write(lpn, &[content(u64::from(lpn))]);
    }
    let mut rng = Rng::new(20_264);
    for step in 0..200_000 {
        drive.write(rng.below(u64::from(logical) / 10) as u32, &[content(10_000 + step)]);
    }
    drive.check();
    drive
}

#[test]
fn static_levelling_bounds_the_spread() {
    let without = worn(None);
    let wear = Wear::of(without.ftl.array());
    assert!(wear.min == 0 && wear.max > 300, "what lies still is never erased: {wear:?}");
    assert_eq!(without.ftl.counts().erases[Cause::WearLevelling as usize], 0);

    for spread_max in [4, 20, 50] {
        let with = worn(Some(spread_max));
        let levelled = Wear::of(with.ftl.array());
        let spread = levelled.max - levelled.min;
        let moved = with.ftl.counts().programs[Cause::WearLevelling as usize];
        let share = moved as f64 / with.ftl.counts().host_pages_written as f64;
        println!("at most {spread_max} apart: {levelled:?}, {:.2}% of the host's pages moved", share * 100.0);
        // A plane checks once in `spread_max` erasures and moves one block. So the spread may pass
        // the limit while others wait.
        assert!(spread <= 2 * spread_max, "{spread_max}: {levelled:?}");
        assert!(levelled.standard_deviation < wear.standard_deviation / 4.0, "{levelled:?} {wear:?}");
        assert!(levelled.max < wear.max, "the worst block lives longer");
        assert!(moved > 0 && share < 0.5, "{share}");
    }
}

/// The same for layers that take blocks from the whole drive: data blocks or units lie still there.
#[test]
fn static_levelling_bounds_the_spread_of_other_layers() {
    type Make = fn(Option<u32>) -> Box<dyn Ftl>;
    let makes: [(&str, Make); 3] = [
        ("hybrid", |wear_spread_max| {
            let options = HybridOptions { wear_spread_max, ..HybridOptions::default() };
            Box::new(Hybrid::new(GEOMETRY, options).expect("a drive"))
        }),
        ("flashtier", |wear_spread_max| {
            let options =
                FlashTierOptions { wear_spread_max, address_space_percent: 70, ..FlashTierOptions::default() };
            Box::new(Hybrid::flashtier(GEOMETRY, options).expect("a drive"))
        }),
        ("weu", |wear_spread_max| {
            let options = WeuAlignedOptions { wear_spread_max, ..WeuAlignedOptions::default() };
            Box::new(WeuAligned::new(GEOMETRY, options).expect("a drive"))
        }),
    ];
    for (name, make) in makes {
        let worn = |wear_spread_max| {
            let mut drive = Watched::new(name, make(wear_spread_max));
            let unit = drive.ftl.write_unit_pages();
            let units = drive.ftl.logical_pages() / unit;
            (0..units).for_each(|at| drive.write(at * unit, &[content(u64::from(at))]));
            let mut rng = Rng::new(20_284);
            for step in 0..60_000 / u64::from(unit).min(4) {
                drive.write(rng.below(u64::from(units) / 10) as u32 * unit, &[content(10_000 + step)]);
            }
            drive.check();
            (Wear::of(drive.ftl.array()), drive.ftl.counts().programs[Cause::WearLevelling as usize])
        };
        let (wear, moved) = worn(None);
        assert!(wear.min == 0 && wear.max > 150 && moved == 0, "{name}: what lies still is never erased: {wear:?}");
        for spread_max in [4, 20, 50] {
            let (levelled, moved) = worn(Some(spread_max));
            println!("{name}, at most {spread_max} apart: {levelled:?}, {moved} pages moved");
            // One data block is moved in `spread_max` erasures, while others wait; a unit is moved
            // before the next is written.
            let bound = if name == "weu" { spread_max + 1 } else { 3 * spread_max };
            assert!(levelled.max - levelled.min <= bound, "{name}, {spread_max}: {levelled:?}");
            assert!(levelled.standard_deviation < wear.standard_deviation / 4.0, "{name}: {levelled:?} {wear:?}");
            assert!(levelled.max < wear.max && moved > 0, "{name}: the worst block lives longer");
        }
    }
}

/// Under uniform writes the least-worn free block comes next. So all blocks are erased about as
/// often without static levelling.
#[test]
fn dynamic_levelling_is_enough_where_all_is_written() {
    let space = SpaceOptions { wear_spread_max: None, collection_threshold_percent: 5.0, ..SpaceOptions::default() };
    let options = PageMappedOptions { space, takes_trims: false };
    let mut drive = Watched::new("page", Box::new(PageMapped::new(GEOMETRY, options).expect("a drive")));
    let mut rng = Rng::new(20_265);
    for step in 0..200_000 {
        drive.write(rng.below(u64::from(GEOMETRY.logical_pages())) as u32, &[content(step)]);
    }
    let wear = Wear::of(drive.ftl.array());
    println!("{wear:?}");
    assert!(wear.mean > 100.0 && wear.standard_deviation < wear.mean / 10.0, "{wear:?}");
}

/// Derived figures, from the operations that the shadow heard. Copies for wear levelling are
/// copies. Programmed pages are divided by the host's written pages, and not by those left of them.
/// Wear spreads over all blocks.
#[test]
fn derived_figures_are_those_of_their_definitions() {
    let space = SpaceOptions { wear_spread_max: Some(4), ..SpaceOptions::default() };
    let options = CaftlOptions { space, ..CaftlOptions::default() };
    let geometry = DriveGeometry { over_provisioning_percent: 60.0, ..GEOMETRY };
    let mut drive = Watched::new("caftl", Box::new(Caftl::new(geometry, options).expect("a drive")));
    let logical = drive.ftl.logical_pages();
    (0..logical).for_each(|lpn| drive.write(lpn, &[content(u64::from(lpn))]));
    let mut rng = Rng::new(20_266);
    for step in 0..20_000 {
        let number = if rng.chance(20) { rng.below(50) } else { 10_000 + step };
        let among = if rng.chance(70) { logical / 10 } else { logical };
        drive.write(rng.below(among.into()) as u32, &[content(number)]);
    }
    drive.check();
    let counts = drive.ftl.counts();
    let by = |cause: Cause| drive.shadow.counts.programs[cause as usize];
    let (collected, levelled) = (by(Cause::Collection), by(Cause::WearLevelling));
    assert!(collected > 0 && levelled > 0 && counts.pages_deduplicated > 0, "{counts:?}");
    assert_eq!(counts.pages_copied(), collected + levelled);
    let own = by(Cause::Metadata) + by(Cause::Journal) + by(Cause::MapTable);
    let written = u64::from(logical) + 20_000;
    let programmed = written - counts.pages_deduplicated + collected + levelled + own;
    assert_eq!(counts.write_amplification(), Some(programmed as f64 / written as f64));
    let read: u64 = drive.shadow.counts.reads.iter().sum();
    assert_eq!(counts.pages_read(), read);
    let wear = Wear::of(drive.ftl.array());
    let blocks = f64::from(geometry.blocks());
    let erases = || drive.shadow.erases().iter().map(|erases| *erases as f64);
    let mean = erases().sum::<f64>() / blocks;
    let variance = erases().map(|erases| (erases - mean) * (erases - mean)).sum::<f64>() / blocks;
    assert!((wear.mean - mean).abs() < 1e-9 && (wear.standard_deviation - variance.sqrt()).abs() < 1e-9, "{wear:?}");
    assert!((wear.variation().expect("some") - variance.sqrt() / mean).abs() < 1e-9);
}

#[test]
fn years_are_cycles_by_rate() {
    let drive = worn(None);
    let wear = Wear::of(drive.ftl.array());
    let erased: u64 = drive.shadow.erases().iter().sum();
    assert_eq!(wear.mean, erased as f64 / f64::from(GEOMETRY.blocks()));
    assert_eq!(u64::from(wear.max), drive.shadow.erases().iter().copied().max().expect("blocks"));
    // A tenth of a year in which the worst block is erased `max` times: 3,000 cycles last 300 / max
    // years.
    let life = Life::of(&wear, 3000, YEAR_SECONDS / 10.0);
    assert!((life.years_worst_block - 300.0 / f64::from(wear.max)).abs() < 1e-9);
    assert!((life.years_mean_block - 300.0 / wear.mean).abs() < 1e-9);
    let unworn = Wear { min: 0, mean: 0.0, max: 0, standard_deviation: 0.0 };
    assert_eq!(Life::of(&unworn, 3000, 1.0).years_worst_block, f64::INFINITY);
}
