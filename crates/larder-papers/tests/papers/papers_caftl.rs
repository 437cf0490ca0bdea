//! CAFTL's experiments, over workloads so small that a run takes a moment.
//!
//! Each is whole, and has the shape that the design must give any workload of this kind.
//! docs/REPRODUCTION.md has meaningful figures.
//!
//! It does not compare with the paper.

use larder_papers::{Experiment, Lab, PaperReport, Records, Span, Table, Workload, experiments};
use larder_sim::report::plot;
use larder_trace::{
    ContentId, Op, Provenance, Record, TraceContent,
    generate::{Bursts, BurstsConfig},
};

/// Large writes, all at once, so that a buffer of 2 MB is full.
const HADOOP: BurstsConfig = BurstsConfig {
    seconds: 60.0,
    blocks_written: 24_000,
    request_blocks: (32, 64),
    write_share: 0.7,
    duplication: 0.2,
    footprint_blocks: 12_000,
    burst_requests: 32,
    seed: 7,
};
/// Small ones, now and then.
const DESKTOP: BurstsConfig =
    BurstsConfig { request_blocks: (1, 8), burst_requests: 4, blocks_written: 6_000, ..HADOOP };

fn bursts(name: &str, config: BurstsConfig) -> Workload<'static> {
    let open = move |_: &str| Ok(Box::new(Bursts::new(config)?) as Records<'static>);
    Workload::new(name, "a small one", open)
}

fn report_of(name: &str, workloads: Vec<Workload<'_>>) -> PaperReport {
    let experiment = Experiment::named(name).expect("an experiment");
    let report = experiment.report(&mut Lab::new(workloads, 2)).unwrap_or_else(|sentence| panic!("{name}: {sentence}"));
    assert!(!report.words.is_empty() && !report.tables.is_empty(), "{name}");
    assert!(report.comparisons.iter().all(|one| one.ours.is_some()), "{name}: {:?}", report.comparisons);
    assert!(plot::svg(&report.charts).expect("a chart").contains("</svg>"), "{name}");
    assert!(report.charts.iter().all(|chart| chart.subtitle.contains("GENERATED")), "{name}");
    assert!(report.text(&experiment.heading(), &[]).contains(name), "{name}");
    report
}

/// Runs an experiment over a workload of large writes and one of small ones.
fn run(name: &str) -> PaperReport {
    report_of(name, vec![bursts("h1", HADOOP), bursts("d1", DESKTOP)])
}

fn line(table: &Table, name: &str) -> Vec<f64> {
    let line = table.ours(name).unwrap_or_else(|| panic!("no {name} in {}", table.title()));
    line.iter().map(|value| value.expect("a figure")).collect()
}

/// Asserts that each of `less` is no more than its neighbour in `more`.
fn assert_below(less: &[f64], more: &[f64]) {
    assert!(less.iter().zip(more).all(|(less, more)| less <= more), "{less:?} {more:?}");
}

#[test]
fn all_of_the_papers_figures_with_figures_are_listed() {
    let names: Vec<&str> = experiments().map(|one| one.name).filter(|name| name.starts_with("caftl-")).collect();
    let expected = [1, 2, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17].map(|figure| format!("caftl-fig{figure}"));
    assert_eq!(names, expected);
    let of_disks: Vec<&str> = experiments().filter(|one| one.is_of_disks()).map(|one| one.name).collect();
    assert_eq!(of_disks, ["caftl-fig1", "caftl-fig7"]);
}

/// Returns a disk of these contents; 0 is zeroes.
fn disk(contents: &'static [u128]) -> Workload<'static> {
    let record = |(at, &number): (usize, &u128)| {
        let mut record = Record::new(0, Op::Write, at as u64 * 4096, 4096);
        record.content = Some(TraceContent {
            fingerprint: ContentId::from_u128(number),
            stored_bytes: None,
            is_zero: number == 0,
            provenance: Provenance::Recorded,
        });
        Ok(record)
    };
    Workload::new("disk", "by hand", move |_: &str| {
        Ok(Box::new(contents.iter().enumerate().map(record)) as Records<'static>)
    })
}

#[test]
fn duplicates_of_a_disk_are_all_but_the_first_of_each_content() {
    let report = report_of("caftl-fig1", vec![disk(&[0, 0, 0, 7, 8, 7, 9, 10]), disk(&[1, 2, 3])]);
    assert_eq!(line(&report.tables[0], "Duplicate pages"), [37.5, 0.0]);
    assert_eq!(line(&report.tables[0], "of these zeroes"), [25.0, 0.0]);
}

#[test]
fn too_few_bits_take_distinct_contents_for_the_same() {
    // Four contents: two agree in 8 bits, three in 12 bits no longer.
    let report = report_of("caftl-fig7", vec![disk(&[0x101, 0x201, 0x302, 0x302, 1 << 32 | 0x101])]);
    let [rates, wrong] = [0, 1].map(|at| &report.tables[at]);
    let rates = rates.ours("disk").expect("a line");
    assert_eq!(rates[..4], [60.0, 40.0, 40.0, 40.0].map(Some));
    assert_eq!(rates[6..], [Some(40.0), Some(20.0), Some(20.0), None, None]);
    let wrong = wrong.ours("disk").expect("a line");
    assert_eq!((wrong[0], wrong[6], wrong[7]), (Some(2.0), Some(1.0), Some(0.0)));
}

#[test]
fn duplicate_writes_are_those_of_the_workload() {
    let report = run("caftl-fig2");
    let duplicates = line(&report.tables[0], "Duplicates");
    assert!(duplicates.iter().all(|percent| (percent - 20.0).abs() < 2.0), "{duplicates:?}");
    assert_eq!(line(&report.tables[0], "of these zeroes"), [0.0; 2]);
}

#[test]
fn caftl_removes_most_duplicates_and_fewer_where_it_samples() {
    let report = run("caftl-fig8");
    let [offline, all, sampled] = ["offline", "no sampling", "128 KB"].map(|name| line(&report.tables[0], name));
    assert_below(&all, &offline);
    assert_below(&sampled, &all);
    let shares = line(&report.tables[1], "no sampling");
    assert!(shares.iter().all(|share| *share > 75.0), "{shares:?}");
    assert!(sampled.iter().all(|percent| *percent > 2.0), "{sampled:?}");
    assert_below(&line(&report.tables[2], "128 KB, in line alone"), &line(&report.tables[0], "no sampling"));
    // Pages wait longer in the buffer while they are hashed.
    let absorbed =
        ["baseline", "no sampling"].map(|of| line(&report.tables[2], &format!("absorbed by the buffer, {of}")));
    assert_below(&absorbed[0], &absorbed[1]);
}

#[test]
fn what_is_not_written_takes_no_space() {
    let report = run("caftl-fig9");
    let pages = line(&report.tables[1], "no sampling");
    assert!(pages.iter().all(|percent| *percent > 0.0), "{pages:?}");
    let blocks = line(&report.tables[2], "baseline");
    // A page a page, over 80 planes.
    assert!((24_000 / 64..24_000 / 64 + 90).contains(&(blocks[0] as u32)), "{blocks:?}");
    assert!(line(&report.tables[0], "no sampling")[0] < 25.0);
}

#[test]
fn deduplication_costs_time_where_the_buffer_is_small() {
    let report = run("caftl-fig10");
    let [reads, writes] = [0, 1].map(|at| &report.tables[at]);
    for table in [reads, writes] {
        let [small, large] = ["2 MB", "16 MB"].map(|name| line(table, name));
        assert!(small[0] > large[0] && small[0] > 10.0, "{small:?} {large:?}");
    }
    assert!(report.tables[4].ours("baseline, 2 MB, writes").is_some());
}

#[test]
fn a_slower_processor_costs_more() {
    // Requests that come at once fill even 16 MB.
    let many = BurstsConfig { burst_requests: 256, ..HADOOP };
    let report = report_of("caftl-fig11", vec![bursts("h1", many)]);
    assert!(report.tables[0].ours("304 MHz").is_some());
    let writes = ["304 MHz", "392 MHz", "619 MHz", "934 MHz"].map(|name| line(&report.tables[1], name)[0]);
    assert!(writes.windows(2).all(|pair| pair[0] > pair[1]), "{writes:?}");
}

#[test]
fn ordered_buckets_save_comparisons() {
    let many = BurstsConfig { blocks_written: 150_000, footprint_blocks: 150_000, ..HADOOP };
    let report = report_of("caftl-fig12", vec![bursts("h1", many)]);
    let [checked, hot, ordered] = ["Range check", "Range check and hotness", "Bucket-level binary search"]
        .map(|name| line(&report.tables[0], name)[0]);
    assert!(ordered > checked && ordered > hot && ordered > 20.0, "{checked} {hot} {ordered}");
    let plain = line(&report.tables[1], "One bucket after the other")[0];
    let fewer = line(&report.tables[1], "Bucket-level binary search")[0];
    assert!((100.0 * (plain - fewer) / plain - ordered).abs() < 1e-9, "{plain} {fewer} {ordered}");
    assert_eq!(report.comparisons[1].what, "Bucket-level binary search, up to (%)");
    // The paper's figure is d2's: it stands beside d2's savings if there is a d2, and beside no
    // other's.
    let report = report_of("caftl-fig12", vec![bursts("h1", many), bursts("d2", DESKTOP)]);
    let saved = line(&report.tables[0], "Bucket-level binary search");
    assert!(saved[1] < saved[0], "{saved:?}");
    assert_eq!(report.comparisons[1].what, "Bucket-level binary search in d2 (%)");
    assert_eq!(report.comparisons[1].ours, Some(Span::at(saved[1])));
}

#[test]
fn sampling_is_faster_with_larger_units_and_finds_less() {
    let report = run("caftl-fig13");
    // Reads need not be: a page that is programmed sooner is no longer in the buffer, and its
    // planes are busy.
    let [small, large] = ["8 KB", "128 KB"].map(|name| line(&report.tables[1], name));
    assert!(small[0] > 1.0 && large[0] > small[0], "{small:?} {large:?}");
    // If they wait behind the writes they are.
    let [reads, queue] = [0, 2].map(|at| line(&report.tables[at], "128 KB"));
    assert!(queue[0] > 2.0 && queue[0] > reads[0], "{reads:?} {queue:?}");
    let report = run("caftl-fig14");
    let [all, small, large] = ["no sampling", "8 KB", "128 KB"].map(|name| line(&report.tables[0], name));
    assert_below(&small, &all);
    assert_below(&large[..1], &small);
}

#[test]
fn pre_hashing_is_faster_and_finds_nothing_without_idle_time() {
    let report = run("caftl-fig15");
    let writes = line(&report.tables[1], "pre-hashing");
    assert!(writes[0] > 1.0, "{writes:?}");
    let found = &report.tables[4];
    assert_eq!(line(found, "pre-hashing, in line alone"), [0.0; 2]);
    assert!(line(found, "pre-hashing").iter().all(|percent| *percent > 5.0), "{found:?}");
}

#[test]
fn the_switch_is_faster_where_the_buffer_is_full() {
    let report = run("caftl-fig16");
    let [reads, writes] = [0, 1].map(|at| line(&report.tables[at], "switch"));
    assert!(reads[0] > 0.0 && writes[0] > 1.0, "{reads:?} {writes:?}");
    // The desktop's is never full.
    assert_eq!((reads[1], writes[1]), (1.0, 1.0));
    assert_eq!(line(&report.tables[4], "switch")[1], line(&report.tables[4], "no acceleration")[1]);
}

#[test]
fn all_three_win_back_most() {
    let report = run("caftl-fig17");
    let [all, none] = ["all three", "no acceleration"].map(|name| line(&report.tables[1], name));
    assert!(all[0] < none[0] / 2.0, "{all:?} {none:?}");
    assert_eq!(line(&report.tables[0], "all three").len(), 2);
    assert!(line(&report.tables[2], "all three")[0] > 0.0);
}

/// A trace runs at any size, without times too, or is refused with a reason.
#[test]
fn traces_of_any_kind_run_or_are_refused() {
    let of = |name: &str, records: Vec<Record>| {
        let open = move |_: &str| Ok(Box::new(records.clone().into_iter().map(Ok)) as Records<'static>);
        let lab = &mut Lab::new(vec![Workload::new("t1", "by hand", open)], 1);
        Experiment::named(name).expect("an experiment").report(lab)
    };
    let record = |request: u64, op: Op, page: u64, number: u128| {
        let mut record = Record::new(request, op, page * 4096, 4096);
        let fingerprint = ContentId::from_u128(number);
        record.content =
            Some(TraceContent { fingerprint, stored_bytes: None, is_zero: false, provenance: Provenance::Recorded });
        record
    };
    // Without times, and beyond the paper's drive: one with more blocks takes its place.
    let records = vec![
        record(1, Op::Read, 5, 5),
        record(2, Op::Write, 12_000_000, 6),
        record(2, Op::Write, 12_000_001, 6),
        record(3, Op::Write, 5, 6),
        Record::new(4, Op::Flush, 0, 0),
        Record::new(5, Op::Trim, 0, 1 << 50),
    ];
    let report = of("caftl-fig8", records).expect("a report");
    let [offline, all] = ["offline", "no sampling"].map(|name| line(&report.tables[0], name));
    assert_eq!((offline[0].round(), all[0].round()), (67.0, 67.0));
    let sentence = of("caftl-fig8", vec![record(1, Op::Read, 5, 5)]).expect_err("no writes");
    assert!(sentence.contains("t1") && sentence.contains("no writes"), "{sentence}");
    let sentence = of("caftl-fig8", vec![record(1, Op::Write, 1 << 40, 5)]).expect_err("far out");
    assert!(sentence.contains("67108864"), "{sentence}");
}
