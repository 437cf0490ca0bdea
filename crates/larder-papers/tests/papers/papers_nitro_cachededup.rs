//! Nitro's and CacheDedup's experiments, over traces so small that a run takes a moment.
//!
//! Each is whole, and has the shape that its design must give any trace of this kind.
//! docs/REPRODUCTION.md has meaningful figures.
//!
//! It does not compare with the papers.

use larder_papers::{Experiment, Lab, PaperReport, Records, SEED, Table, Workload, experiments};
use larder_sim::report::plot;
use larder_trace::{
    Compressibility, ContentId, Op, Provenance, Record, TraceContent,
    generate::{ProfileTrace, WorkloadProfile},
};

/// Runs an experiment over small traces, under its names for them.
fn run(name: &str) -> PaperReport {
    let experiment = Experiment::named(name).expect("an experiment");
    let chunk_bytes = if name.starts_with("nitro") && name != "nitro-fig1" { 8192 } else { 4096 };
    let workloads = experiment.stand_ins.iter().map(|stand_in| {
        let open = move |_: &str| {
            let of = WorkloadProfile::named("webvm@cachededup")?;
            // The trace touches 64 MiB: the smallest of the caches have a few WEUs.
            let per_chunk = f64::from(chunk_bytes) / 8192.0;
            let [io_gib, unique_gib] = [0.5 * per_chunk, 0.2 * per_chunk];
            let profile = WorkloadProfile { chunk_bytes, io_gib, unique_gib, working_set_gib: 0.0625, ..of };
            let trace = ProfileTrace::new(profile, 1.0, Compressibility::default(), SEED)?;
            Ok(Box::new(trace) as Records<'static>)
        };
        Workload::new(stand_in.name, "a small one", open)
    });
    let mut lab = Lab::new(workloads.collect(), 2);
    let report = experiment.report(&mut lab).unwrap_or_else(|sentence| panic!("{name}: {sentence}"));
    assert!(!report.words.is_empty() && !report.comparisons.is_empty(), "{name}");
    assert!(report.comparisons.iter().all(|one| one.ours.is_some()), "{name}: {:?}", report.comparisons);
    assert!(plot::svg(&report.charts).expect("a chart").contains("</svg>"), "{name}");
    assert!(report.charts.iter().all(|chart| chart.subtitle.contains("GENERATED")), "{name}");
    assert!(report.text(&experiment.heading(), &[]).contains("The text says"), "{name}");
    report
}

fn line(table: &Table, name: &str) -> Vec<f64> {
    let line = table.ours(name).unwrap_or_else(|| panic!("no {name} in {}", table.title()));
    line.iter().map(|value| value.expect("a figure")).collect()
}

fn assert_falls(line: &[f64]) {
    assert!(line.windows(2).all(|pair| pair[0] >= pair[1]), "{line:?}");
}

#[test]
fn all_of_both_papers_are_listed() {
    let names: Vec<&str> = experiments().map(|experiment| experiment.name).collect();
    let nitro = [
        "nitro-fig1",
        "nitro-fig4",
        "nitro-fig5",
        "nitro-fig6",
        "nitro-erasures",
        "nitro-writes",
        "nitro-table2-modelled",
    ];
    let figures = [3, 4, 6, 7, 8, 9].map(|figure| format!("cachededup-fig{figure}"));
    assert!(nitro.iter().all(|name| names.contains(name)), "{names:?}");
    assert!(figures.iter().all(|name| names.contains(&name.as_str())), "{names:?}");
}

#[test]
fn a_larger_cache_finds_more_of_nitros_duplicates_up_to_all_that_there_are() {
    let report = run("nitro-fig1");
    let ratios = line(&report.tables[0], "WebVM");
    assert!(ratios.windows(2).all(|pair| pair[0] <= pair[1]), "{ratios:?}");
    // Two requests of five bring content for the first time.
    let last = ratios.last().copied().unwrap_or_default();
    assert!((last - 2.5).abs() < 0.02, "{ratios:?}");
}

#[test]
fn what_nitro_saves_in_space_it_has_in_read_hits() {
    let report = run("nitro-fig4");
    for table in &report.tables {
        let [plain, compressed, deduplicated, both] =
            ["WEU (ND, NC)", "WEU (ND, C)", "WEU (D, NC)", "WEU (D, C)"].map(|name| line(table, name));
        for at in 0..plain.len() {
            assert!(plain[at] < compressed[at] && plain[at] < deduplicated[at], "{table:?}");
            assert!(both[at] > compressed[at].min(deduplicated[at]), "{table:?}");
        }
        assert!(line(table, "Extent (D, NC)").iter().zip(line(table, "Extent (ND, NC)")).all(|(d, nd)| *d > nd));
    }
    let sizes = report.tables.iter().map(|table| line(table, "WEU (D, C)")).collect::<Vec<_>>();
    assert!(sizes[0].iter().zip(&sizes[1]).all(|(small, large)| small < large), "{sizes:?}");
}

#[test]
fn with_fewer_fingerprints_nitro_finds_fewer_duplicates_and_with_none_none() {
    let report = run("nitro-fig5");
    for trace in ["WebVM", "Homes", "Mail"] {
        // Ratios are those at the end, of caches of a few WEUs. Between a full index and a quarter
        // they may step back.
        let [hits, ratios, ram] = [0, 1, 2].map(|at| line(&report.tables[at], trace));
        assert!(ratios.iter().take(4).all(|ratio| *ratio > 1.05) && ratios[4] == 1.0, "{ratios:?}");
        assert!(hits[0] > hits[4] && ram[0] > ram[4], "{hits:?} {ram:?}");
    }
}

#[test]
fn weus_are_erased_less_than_extents_but_on_a_drive_that_the_cache_follows() {
    let report = run("nitro-fig6");
    let erased = |name| line(&report.tables[0], name);
    let [base, trim, extent, naive] = ["WEU-LRU", "WEU-LRU-TRIM", "extent-LRU-TRIM", "extent, unmodified"].map(erased);
    for at in 0..base.len() {
        assert_eq!(base[at], 1.0);
        assert!(trim[at] <= 1.05 && extent[at] > 1.5 && (naive[at] / extent[at] - 1.0).abs() < 0.1, "{report:?}");
    }
    // If a cache fills the dropped places of its drive, from the beginning, the drive erases as
    // much as if extents were WEUs.
    for extents in ["extent-LRU-mod", "extent, FlashTier SE-Util"].map(erased) {
        assert!(extents.iter().all(|extents| (0.8..1.2).contains(extents)), "{report:?}");
    }
    // A cache that leaves the choice of victims to its drive has about the same hits.
    let [own, modified] = ["WEU-LRU", "WEU-LRU-mod"].map(|name| line(&report.tables[1], name));
    for (own, modified) in own.iter().zip(modified) {
        assert!((own - modified).abs() < 10.0, "{report:?}");
    }
}

#[test]
fn nitro_writes_least_with_both() {
    let report = run("nitro-writes");
    let [plain, deduplicated, compressed, both] =
        ["WEU (ND, NC)", "WEU (D, NC)", "WEU (ND, C)", "WEU (D, C)"].map(|name| line(&report.tables[0], name));
    for at in 0..plain.len() {
        assert!(plain[at].abs() < 5.0, "{plain:?}");
        assert!(deduplicated[at] > 5.0 && compressed[at] > 35.0, "{deduplicated:?} {compressed:?}");
        assert!(both[at] > deduplicated[at].max(compressed[at]), "{both:?}");
    }
}

#[test]
fn each_variant_of_nitro_is_ahead_of_no_cache_in_modelled_time() {
    let report = run("nitro-table2-modelled");
    let [warm_iops, warm_times, .., warm_hits, _] = &report.tables[..] else { panic!("six tables") };
    for trace in ["WebVM", "Homes", "Mail"] {
        for (table, least) in [(warm_iops, 50.0), (warm_times, 10.0), (warm_hits, 30.0)] {
            let line = line(table, trace);
            assert!(line.len() == 5 && line.iter().all(|value| *value > least), "{}: {line:?}", table.title());
        }
        let times = line(warm_times, trace);
        assert!(times.iter().all(|less| *less < 100.0), "{times:?}");
    }
    assert_eq!(report, run("nitro-table2-modelled"), "the same each time");
}

#[test]
fn misses_fall_with_cachededups_sizes() {
    for name in ["cachededup-fig3", "cachededup-fig4"] {
        for table in run(name).tables.iter().filter(|table| line(table, "LRU").iter().any(|value| *value > 0.0)) {
            ["LRU", "ARC", "D-LRU", "D-ARC"].iter().for_each(|design| assert_falls(&line(table, design)));
        }
    }
    let stale = &run("cachededup-fig3").tables[3];
    assert!(line(stale, "LRU").iter().all(|value| *value == 0.0));
    assert!(line(stale, "D-LRU").iter().all(|value| *value == 0.0));
}

#[test]
fn what_d_lru_keeps_without_an_address_costs_it_hits() {
    let report = run("cachededup-fig3");
    let [misses, stale] = [2, 3].map(|at| &report.tables[at]);
    let [forgetful, keeping] = ["D-LRU", "D-LRU, orphans kept"].map(|design| line(misses, design));
    assert!(forgetful.iter().zip(&keeping).all(|(a, b)| a < b), "{forgetful:?} {keeping:?}");
    assert!(line(stale, "D-LRU, orphans kept").iter().all(|value| *value > 10.0), "{stale:?}");
}

#[test]
fn reads_and_writes_that_miss_are_all_that_do() {
    for name in ["cachededup-fig3", "cachededup-fig8"] {
        let report = run(name);
        for design in ["LRU", "ARC", "D-LRU", "D-ARC"] {
            let [reads, writes, all] = [0, 1, 2].map(|at| line(&report.tables[at], design));
            for at in 0..all.len() {
                assert!((reads[at] + writes[at] - all[at]).abs() < 1e-9, "{name}: {design}");
            }
        }
    }
}

#[test]
fn deduplication_saves_cachededups_flash_writes() {
    let mut tables = run("cachededup-fig6").tables;
    tables.extend(run("cachededup-fig8").tables.into_iter().skip(3));
    assert_eq!(tables.len(), 4);
    for table in &tables {
        for (with, without) in [("D-LRU", "LRU"), ("D-ARC", "ARC")] {
            let pairs = line(table, with).into_iter().zip(line(table, without));
            assert!(pairs.clone().all(|(with, without)| with < without), "{table:?}");
        }
    }
}

#[test]
fn metadata_takes_its_space_from_the_data() {
    let report = run("cachededup-fig7");
    assert_eq!(report.tables.len(), 2);
    for table in &report.tables {
        for design in ["D-LRU", "D-ARC"] {
            let figures = line(table, design);
            // Each cache is another one, and each of them misses and writes.
            assert!(figures.iter().all(|figure| (0.1..100.0).contains(figure)), "{figures:?}");
            assert!(figures.windows(2).any(|pair| pair[0] != pair[1]), "{figures:?}");
        }
    }
}

#[test]
fn more_fits_where_chunks_compress_better() {
    let report = run("cachededup-fig9");
    let [half, quarter] = [1, 4].map(|at| &report.tables[at]);
    for design in ["Nitro", "CD-ARC"] {
        let pairs = line(half, design).into_iter().zip(line(quarter, design));
        assert!(pairs.clone().all(|(half, quarter)| half <= quarter), "{design}: {pairs:?}");
    }
    assert!(line(&report.tables[2], "CD-ARC").iter().all(|stale| (0.0..100.0).contains(stale)));
}

/// A cache of 16,640 extents would have blocks of 512 KiB on some layers and of 1 MiB on others.
/// Whole WEUs that are written in order are erased once on all of them, and so are extents in
/// order.
#[test]
fn erasures_beside_one_another_are_of_blocks_of_one_size() {
    const EXTENTS: u64 = 44_096;
    let records = |_: &str| {
        let record = |number: u64| {
            let mut record = Record::new(number, Op::Write, number % EXTENTS * 8192, 8192);
            let fingerprint = ContentId::from_u128(u128::from(number));
            record.content = Some(TraceContent {
                fingerprint,
                stored_bytes: None,
                is_zero: false,
                provenance: Provenance::Recorded,
            });
            Ok(record)
        };
        Ok(Box::new((0..2 * EXTENTS).map(record)) as Records<'static>)
    };
    let table_of = |name: &str| {
        let mut lab = Lab::new(vec![Workload::new("WebVM", "in order", records)], 2);
        let experiment = Experiment::named(name).expect("an experiment");
        experiment.report(&mut lab).unwrap_or_else(|sentence| panic!("{name}: {sentence}")).tables.remove(0)
    };
    let beside = table_of("nitro-fig6");
    for pair in ["WEU-LRU-TRIM", "WEU-LRU-mod", "extent-LRU-TRIM", "extent-LRU-mod", "extent, unmodified"] {
        let erased = line(&beside, pair)[0];
        assert!((0.8..1.25).contains(&erased), "{pair}: {erased} times the erasures of WEU-LRU");
    }
    let saved = table_of("nitro-erasures");
    for variant in ["Extent (ND, NC)", "WEU (ND, NC)"] {
        let erased = line(&saved, variant);
        let (least, most) = erased.iter().fold((f64::MAX, 0.0f64), |(low, high), one| (low.min(*one), high.max(*one)));
        assert!(most < 1.25 * least, "{variant}: {erased:?}");
    }
}
