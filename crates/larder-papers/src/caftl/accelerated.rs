//! Figures 13 to 17: the gains of sampling, pre-hashing and the dynamic switch (§4.4).
//!
//! The buffer is of 2 MB, the clock of 934 MHz. A speedup is the mean latency of CAFTL without
//! acceleration over that with it.
//!
//! It does not accelerate the search for fingerprints, which costs no time here.

use super::{
    latency::{Both, increase, means},
    runs::{DriveCase, RunOutcome, run},
    setting::{OF_DRIVES, OF_GENERATED, OF_QUEUES, OF_SAMPLES, WORKLOAD, compared, publish, span, titles},
};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::report::plot::Scale;
use larder_ssd::caftl::options::{CaftlOptions, InLineSwitch};

const BUFFER_MIB: u64 = 2;
/// Sampling units in KiB.
const UNITS_KIB: [u32; 5] = [8, 16, 32, 64, 128];
const NO_SAMPLING: &str = "no sampling";

fn speedup(ours: f64, plain: f64) -> Option<f64> {
    (ours > 0.0).then(|| plain / ours)
}

fn case(options: CaftlOptions) -> DriveCase {
    DriveCase::caftl(options, BUFFER_MIB)
}

/// Runs CAFTL without acceleration, then each of these.
fn outcomes(lab: &Lab<'_>, at: usize, others: &[CaftlOptions]) -> Result<Vec<RunOutcome>, String> {
    let cases: Vec<DriveCase> =
        std::iter::once(CaftlOptions::default()).chain(others.iter().copied()).map(case).collect();
    run(lab, at, &cases)
}

/// Adds the speedups of these over CAFTL without acceleration, if reads wait their turn.
fn queue_up(lab: &Lab<'_>, at: usize, options: &[CaftlOptions], both: &mut Both) -> Result<(), String> {
    let cases: Vec<DriveCase> =
        std::iter::once(&CaftlOptions::default()).chain(options).map(|options| case(*options).in_turn()).collect();
    let outcomes = run(lab, at, &cases)?;
    if let Some((plain, faster)) = outcomes.split_first() {
        both.push(faster.iter().map(|faster| (faster, plain)), speedup);
    }
    Ok(())
}

/// Compares the greatest of reads and of writes.
fn greatest(tables: &[Table; 2], name: &str, published: [f64; 2]) -> Vec<Comparison> {
    let of = [("reads", published[0]), ("writes", published[1])];
    let pairs = of.into_iter().zip(tables);
    pairs
        .map(|((of, value), table)| {
            compared(&format!("{of}, {name}: up to (times)"), Span::at(value), span(table, name))
        })
        .collect()
}

fn charts(tables: &[Table; 2], title: &str) -> Vec<larder_sim::report::plot::Chart> {
    let of = ["reads", "writes"].into_iter().zip(tables);
    of.map(|(of, table)| table.bars(format!("CAFTL: {of}, {title}"), "Buffer of 2 MB, 934 MHz", Scale::Log)).collect()
}

fn sampling() -> [CaftlOptions; 5] {
    UNITS_KIB.map(|kib| CaftlOptions { sampling_unit_bytes: Some(kib << 10), ..CaftlOptions::default() })
}

fn unit_names() -> Vec<String> {
    UNITS_KIB.map(|kib| format!("{kib} KB")).into()
}

/// Runs Figure 13.
pub(super) fn fig13(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let (titles, names) = (titles(lab)?, unit_names());
    let mut both = Both::new(names.len());
    let mut queue = Both::new(1);
    let mut plainly = Vec::new();
    for at in 0..titles.len() {
        queue_up(lab, at, &sampling()[4..], &mut queue)?;
        let outcomes = outcomes(lab, at, &sampling())?;
        let Some((plain, sampled)) = outcomes.split_first() else { continue };
        both.push(sampled.iter().map(|sampled| (sampled, plain)), speedup);
        plainly.push((plain.read_us, plain.write_us));
    }
    let mut tables = both.tables("Speedup with sampling", "Times", &titles, &names);
    publish(&mut tables[0], lab, "128 KB", &[("h7", 94.1), ("t1", 110.6)]);
    publish(&mut tables[1], lab, "128 KB", &[("h7", 3.5)]);
    let mut queue = queue.tables("Speedup with sampling, one queue", "Times", &titles, &names[4..]);
    publish(&mut queue[0], lab, "128 KB", &[("h7", 94.1), ("t1", 110.6)]);
    publish(&mut queue[1], lab, "128 KB", &[("h7", 3.5)]);
    let comparisons = vec![
        compared("reads, 128 KB: up to (times)", Span::at(110.6), span(&tables[0], "128 KB")),
        compared("the same, one queue", Span::at(110.6), span(&queue[0], "128 KB")),
    ];
    let of_all = [
        OF_DRIVES,
        OF_QUEUES,
        OF_SAMPLES,
        "That the paper's greatest speedups are those of 128 KB is how we read its text, which says that more speed comes \
         with larger units.",
    ];
    let charts = charts(&tables, "faster with sampling");
    let means = means(&titles, vec![(NO_SAMPLING.to_owned(), plainly)]);
    let words = lab.words(&of_all, &[OF_GENERATED]);
    Ok(PaperReport { tables: tables.into_iter().chain(queue).chain([means]).collect(), comparisons, words, charts })
}

/// Runs Figure 14.
pub(super) fn fig14(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let names: Vec<String> = std::iter::once(NO_SAMPLING.to_owned()).chain(unit_names()).collect();
    let mut table = Table::new("Duplicate writes removed", "Pages written (%)", WORKLOAD, &titles);
    let mut lines: Vec<Vec<Option<f64>>> = vec![Vec::new(); names.len()];
    for at in 0..titles.len() {
        let outcomes = outcomes(lab, at, &sampling())?;
        lines.iter_mut().zip(&outcomes).for_each(|(line, outcome)| line.push(Some(outcome.removed_percent())));
    }
    names.iter().zip(lines).for_each(|(name, line)| table.push(name, line));
    publish(&mut table, lab, NO_SAMPLING, &[("h7", 18.0), ("t1", 4.6), ("h6", 24.2)]);
    publish(&mut table, lab, "128 KB", &[("h7", 15.4), ("t1", 1.3)]);
    let kept = |name: &str| {
        let [all, sampled] = [NO_SAMPLING, name].map(|name| table.ours(name).unwrap_or_default());
        let shares = all.iter().zip(sampled).filter_map(|(all, sampled)| Some(100.0 * (*sampled)? / (*all)?));
        Span::over(shares.filter(|share| share.is_finite()))
    };
    let comparisons = vec![compared(
        "128 KB, of what is removed without sampling: t1 and h7 (%)",
        Span::of(28.3, 85.6),
        kept("128 KB"),
    )];
    let of_all = [
        OF_DRIVES,
        OF_SAMPLES,
        "The paper's 28.3% and 85.6% follow from the rates that it prints of t1 and h7; ours are of all workloads.",
    ];
    let words = lab.words(&of_all, &[OF_GENERATED]);
    let charts = vec![table.bars("CAFTL: duplicate writes removed", "By sampling unit, buffer of 2 MB", Scale::Linear)];
    Ok(PaperReport { tables: vec![table], comparisons, words, charts })
}

/// Runs a single acceleration: speedups, and duplicate writes removed without it and with it.
fn single(lab: &Lab<'_>, name: &str, ways: &[(&str, CaftlOptions)]) -> Result<Single, String> {
    let titles = titles(lab)?;
    let names: Vec<String> = ways.iter().map(|(name, _)| (*name).to_owned()).collect();
    let options: Vec<CaftlOptions> = ways.iter().map(|(_, options)| *options).collect();
    let mut both = Both::new(names.len());
    let mut queue = Both::new(names.len());
    let mut removed: Vec<Vec<Option<f64>>> = vec![Vec::new(); 1 + names.len()];
    let mut plainly = Vec::new();
    for at in 0..titles.len() {
        queue_up(lab, at, &options, &mut queue)?;
        let outcomes = outcomes(lab, at, &options)?;
        let Some((plain, faster)) = outcomes.split_first() else { continue };
        both.push(faster.iter().map(|faster| (faster, plain)), speedup);
        plainly.push((plain.read_us, plain.write_us));
        removed.iter_mut().zip(&outcomes).for_each(|(line, outcome)| line.push(Some(outcome.removed_percent())));
    }
    let tables = both.tables(&format!("Speedup with {name}"), "Times", &titles, &names);
    let queue = queue.tables(&format!("Speedup with {name}, one queue"), "Times", &titles, &names);
    let mut found = Table::new("Duplicate writes removed", "Pages written (%)", WORKLOAD, &titles);
    let all = std::iter::once(PLAIN.to_owned()).chain(names);
    all.zip(removed).for_each(|(name, line)| found.push(name, line));
    Ok(Single { tables, queue, found, means: means(&titles, vec![(PLAIN.to_owned(), plainly)]) })
}

/// The outcome of a single acceleration.
struct Single {
    tables: [Table; 2],
    queue: [Table; 2],
    found: Table,
    means: Table,
}

impl Single {
    fn into_tables(self) -> Vec<Table> {
        self.tables.into_iter().chain(self.queue).chain([self.found, self.means]).collect()
    }
}

const PLAIN: &str = "no acceleration";

/// Runs Figure 15.
pub(super) fn fig15(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let hashed = CaftlOptions { pre_hashes: true, ..CaftlOptions::default() };
    let alone = CaftlOptions { out_of_line: false, fingerprints_collected: false, ..hashed };
    let ways = [("pre-hashing", hashed), ("pre-hashing, in line alone", alone)];
    let mut of = single(lab, "pre-hashing", &ways)?;
    for tables in [&mut of.tables, &mut of.queue] {
        publish(&mut tables[0], lab, "pre-hashing", &[("t1", 148.3)]);
        publish(&mut tables[1], lab, "pre-hashing", &[("t1", 3.9)]);
    }
    let mut comparisons = greatest(&of.tables, "pre-hashing", [148.3, 3.9]);
    comparisons.push(compared("reads, one queue", Span::at(148.3), span(&of.queue[0], "pre-hashing")));
    let of_all = [
        OF_DRIVES,
        OF_QUEUES,
        OF_SAMPLES,
        "A page whose CRC32 is not in the store is not fingerprinted, and so its CRC32 does not come into the store: \
         in line alone nothing ever does. Idle time fills it, for its work fingerprints written pages; duplicates \
         that come before that are missed. The paper finds hardly a difference in removed duplicates, and does not \
         say how its store fills.",
    ];
    let charts = charts(&of.tables, "faster with pre-hashing");
    let words = lab.words(&of_all, &[OF_GENERATED]);
    Ok(PaperReport { tables: of.into_tables(), comparisons, words, charts })
}

/// Runs Figure 16.
pub(super) fn fig16(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let switched = CaftlOptions { switch: Some(InLineSwitch::default()), ..CaftlOptions::default() };
    let mut of = single(lab, "the dynamic switch", &[("switch", switched)])?;
    for tables in [&mut of.tables, &mut of.queue] {
        publish(&mut tables[0], lab, "switch", &[("t1", 200.6)]);
    }
    let comparisons = vec![
        compared("reads, switch: up to (times)", Span::at(200.6), span(&of.tables[0], "switch")),
        compared("the same, one queue", Span::at(200.6), span(&of.queue[0], "switch")),
    ];
    let of_all = [
        OF_DRIVES,
        OF_QUEUES,
        "Off from 95% of the buffer, on from 50% down. The paper finds nothing gained in h1 to h5, which ask for \
         little, and 2.1 to 94.6 times in the others but t1. It does not say if that is of reads alone.",
    ];
    let charts = charts(&of.tables, "faster with the switch");
    let words = lab.words(&of_all, &[OF_GENERATED]);
    Ok(PaperReport { tables: of.into_tables(), comparisons, words, charts })
}

/// Runs Figure 17.
pub(super) fn fig17(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let names = ["all three".to_owned(), PLAIN.to_owned()];
    let mut both = Both::new(names.len());
    let mut removed: [Vec<Option<f64>>; 2] = Default::default();
    for at in 0..titles.len() {
        let cases = [case(CaftlOptions::accelerated()), case(CaftlOptions::default()), DriveCase::baseline(BUFFER_MIB)];
        let outcomes = run(lab, at, &cases)?;
        let Some((baseline, caftl)) = outcomes.split_last() else { continue };
        both.push(caftl.iter().map(|caftl| (caftl, baseline)), increase);
        removed.iter_mut().zip(caftl).for_each(|(line, caftl)| line.push(Some(caftl.removed_percent())));
    }
    let tables = both.tables("Latency increase", "Mean latency, more (%)", &titles, &names);
    let mut found = Table::new("Duplicate writes removed", "Pages written (%)", WORKLOAD, &titles);
    names.iter().zip(removed).for_each(|(name, line)| found.push(name, line));
    let comparisons =
        vec![compared("Duplicate writes removed, up to (%)", Span::at(19.9), span(&found, names[0].as_str()))];
    let of_all = [
        OF_DRIVES,
        OF_SAMPLES,
        "All three are sampling units of 128 KB, CRC32 pre-hashing and the switch; over the drive without CAFTL. The paper says \
         that the overhead is almost gone, without a figure; Figure 10 has ours without acceleration.",
    ];
    let of = ["reads", "writes"].into_iter().zip(&tables);
    let subtitle = "Over the drive without CAFTL, buffer of 2 MB, 934 MHz";
    let mut charts: Vec<_> =
        of.map(|(of, table)| table.bars(format!("CAFTL: latency of {of}, more"), subtitle, Scale::Linear)).collect();
    charts.push(found.bars("CAFTL: duplicate writes removed", "Buffer of 2 MB, 934 MHz", Scale::Linear));
    let words = lab.words(&of_all, &[OF_GENERATED]);
    Ok(PaperReport { tables: tables.into_iter().chain([found]).collect(), comparisons, words, charts })
}
