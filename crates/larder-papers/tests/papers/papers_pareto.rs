//! The comparison of all designs, over one small trace: a guard of `larder`'s lead.
//!
//! `larder-lab paper run pareto` has the whole.

use larder_core::larder::NAME;
use larder_papers::{Experiment, Grid, Lab, PaperReport, Workload};
use larder_sim::{cache::WritePolicy, report::plot, setup::REPLAY_DESIGNS};

/// Runs the comparison over a generated trace, at a share of its size.
fn run(trace: &str, scale: f64, percents: &[f64]) -> PaperReport {
    let experiment = Experiment::named("pareto").expect("an experiment");
    assert!(experiment.has_grid());
    let stand_in = experiment.stand_ins.iter().find(|one| one.name == trace).expect("a trace");
    let workload = Workload::new(stand_in.name, stand_in.about, move |_| (stand_in.records)(scale));
    let grid = Grid { percents: percents.to_vec(), policies: vec![WritePolicy::Through] };
    let mut lab = Lab::new(vec![workload], 2).over(grid);
    experiment.report(&mut lab).unwrap_or_else(|sentence| panic!("{trace}: {sentence}"))
}

/// Returns the figures of a table by its label, of a series.
fn figures<'a>(report: &'a PaperReport, label: &str, name: &str) -> &'a [Option<f64>] {
    let table = report.tables.iter().find(|table| table.label() == label).unwrap_or_else(|| panic!("no {label}"));
    table.ours(name).unwrap_or_else(|| panic!("no {name} in {label}"))
}

const HITS: &str = "Read hit ratio (%)";
const WRITTEN: &str = "Written to flash (MiB)";

/// Expected: at least the hits of each other design, less half a point, for fewer bytes.
#[test]
fn larder_dominates_each_other_design_on_a_small_trace() {
    let report = run("Zipf", 1.0, &[10.0]);
    let [hits, written] = [HITS, WRITTEN].map(|label| figures(&report, label, NAME)[0].expect("a figure"));
    for design in REPLAY_DESIGNS.iter().filter(|design| design.name != NAME) {
        let [other_hits, other_written] = [HITS, WRITTEN].map(|label| figures(&report, label, design.name)[0]);
        let (other_hits, other_written) = (other_hits.expect("a cache"), other_written.expect("a cache"));
        println!("{}: {other_hits:.2}% for {hits:.2}, {other_written:.1} MiB for {written:.1}", design.name);
        assert!(hits + 0.5 >= other_hits, "{}: {other_hits}% for {hits}", design.name);
        assert!(written < other_written, "{}: {other_written} MiB for {written}", design.name);
        let dominated = figures(&report, "Dominated by larder (1: yes, 0: no)", design.name);
        assert_eq!(dominated, [Some(1.0)], "{}", design.name);
    }
    assert!(hits <= figures(&report, HITS, "bound")[0].expect("a bound"));
    assert!(report.words.iter().all(|words| !words.starts_with("Not dominated")), "{:?}", report.words);
    assert!(report.comparisons.iter().all(|one| one.ours.is_some()), "{:?}", report.comparisons);
}

/// A trace without reads has bytes, and no curve. A flash too small for any cache has no figure.
#[test]
fn a_trace_without_reads_and_a_flash_without_room_give_no_figure() {
    let report = run("Snapshots", 0.1, &[0.001, 40.0]);
    assert_eq!(figures(&report, WRITTEN, NAME)[0], None);
    assert!(figures(&report, WRITTEN, "lru")[1].expect("a cache") > 0.0);
    assert!(report.charts.is_empty());
    assert!(report.words.iter().any(|words| words.starts_with("Too small a flash: ")), "{:?}", report.words);
    let report = run("Bursts", 0.2, &[20.0, 40.0]);
    assert!(plot::svg(&report.charts).expect("charts").contains("</svg>"));
    assert!(report.charts.iter().all(|chart| chart.subtitle.contains("GENERATED")));
}
