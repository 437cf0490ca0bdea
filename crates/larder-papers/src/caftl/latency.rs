//! Figures 10 and 11: the cost of deduplication in time, without any acceleration.
//!
//! Baseline and CAFTL have the same buffer and processor; hashing costs the time of Table 2.
//!
//! It does not model a drive without a buffer.

use super::{
    runs::{DriveCase, RunOutcome, run},
    setting::{OF_DRIVES, OF_GENERATED, OF_QUEUES, WORKLOAD, compared, publish, span, titles},
};
use crate::{Lab, PaperReport, Span, Table};
use larder_sim::report::plot::Scale;
use larder_ssd::caftl::options::CaftlOptions;

/// Buffers in MB (§4.3.1).
const BUFFERS_MIB: [u64; 4] = [2, 4, 8, 16];
/// Clocks in MHz (§4.3.2).
const CLOCKS_MHZ: [u64; 4] = [304, 392, 619, 934];

/// Returns by how many percent a latency is more than the baseline's.
///
/// `None` if the trace has no such requests.
pub(super) fn increase(ours: f64, baseline: f64) -> Option<f64> {
    (baseline > 0.0).then(|| 100.0 * (ours - baseline) / baseline)
}

/// Tables of reads and of writes, a series for each name; each trace gives the figures of all of
/// them.
pub(super) struct Both {
    lines: Vec<[Vec<Option<f64>>; 2]>,
}

impl Both {
    pub fn new(series: usize) -> Both {
        Both { lines: vec![Default::default(); series] }
    }

    /// Adds a trace: for each series the figure of its outcome beside another.
    pub fn push<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a RunOutcome, &'a RunOutcome)>,
        of: fn(f64, f64) -> Option<f64>,
    ) {
        for ([reads, writes], (ours, other)) in self.lines.iter_mut().zip(pairs) {
            reads.push(of(ours.read_us, other.read_us));
            writes.push(of(ours.write_us, other.write_us));
        }
    }

    pub fn tables(self, title: &str, figure: &str, titles: &[String], names: &[String]) -> [Table; 2] {
        let mut tables = ["reads", "writes"].map(|of| Table::new(format!("{title}: {of}"), figure, WORKLOAD, titles));
        let [reads, writes] = &mut tables;
        for (name, [read, write]) in names.iter().zip(self.lines) {
            reads.push(name, read);
            writes.push(name, write);
        }
        tables
    }
}

/// Makes a table of mean latencies, in microseconds.
pub(super) fn means(titles: &[String], lines: Vec<(String, Vec<(f64, f64)>)>) -> Table {
    let mut table = Table::new("Mean latency", "Microseconds", WORKLOAD, titles);
    for (name, line) in lines {
        let of = |value: f64| (value > 0.0).then_some(value);
        table.push(format!("{name}, reads"), line.iter().map(|(reads, _)| of(*reads)));
        table.push(format!("{name}, writes"), line.iter().map(|(_, writes)| of(*writes)));
    }
    table
}

/// Runs Figure 10.
pub(super) fn fig10(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let names = BUFFERS_MIB.map(|mib| format!("{mib} MB"));
    let mut both = Both::new(names.len());
    let mut in_turn = Both::new(1);
    let mut baselines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); names.len()];
    for at in 0..titles.len() {
        let pair = |mib| [DriveCase::caftl(CaftlOptions::default(), mib), DriveCase::baseline(mib)];
        let cases: Vec<DriveCase> =
            BUFFERS_MIB.into_iter().flat_map(pair).chain(pair(BUFFERS_MIB[0]).map(DriveCase::in_turn)).collect();
        let outcomes = run(lab, at, &cases)?;
        let pairs = outcomes.as_chunks::<2>().0;
        both.push(pairs.iter().map(|[caftl, baseline]| (caftl, baseline)), increase);
        in_turn.push(pairs.iter().skip(names.len()).map(|[caftl, baseline]| (caftl, baseline)), increase);
        for (line, [_, baseline]) in baselines.iter_mut().zip(pairs) {
            line.push((baseline.read_us, baseline.write_us));
        }
    }
    let [mut reads, writes] = both.tables("Latency increase", "Mean latency, more (%)", &titles, &names);
    publish(&mut reads, lab, "2 MB", &[("t1", 34.0)]);
    let in_turn = in_turn.tables("Latency increase, one queue", "Mean latency, more (%)", &titles, &names[..1]);
    let named = names.iter().map(|name| format!("baseline, {name}"));
    let means = means(&titles, named.zip(baselines).collect());
    let most = |name: &str| {
        let spans = [&reads, &writes].map(|table| span(table, name));
        Span::over(spans.into_iter().flatten().map(|span| span.high))
    };
    let comparisons = [("2 MB", 34.0), ("8 MB", 4.5), ("16 MB", 0.5)]
        .map(|(name, percent)| compared(&format!("{name}: reads or writes, up to (%)"), Span::at(percent), most(name)));
    let of_all = [
        OF_DRIVES,
        OF_QUEUES,
        "The text prints the greatest increase of each size, and for 2 MB that it is t1's. It speaks of reads and \
         writes together, and here the figure stands with the reads. Its own figures do not go together. With the \
         same buffer and processor its Figures 13, 15 and 16 have t1's reads 110 to 200 times as fast as CAFTL's \
         without acceleration. A drive that is 34% slower than one without CAFTL cannot become more than 1.34 times \
         as fast, unless it gets faster than without CAFTL.",
    ];
    let subtitle = "Over the drive without CAFTL, 934 MHz";
    let charts = [("reads", &reads), ("writes", &writes)]
        .map(|(of, table)| table.bars(format!("CAFTL: latency of {of}, more"), subtitle, Scale::Linear));
    Ok(PaperReport {
        comparisons: comparisons.into(),
        words: lab.words(&of_all, &[OF_GENERATED]),
        charts: charts.into(),
        tables: [reads, writes].into_iter().chain(in_turn).chain([means]).collect(),
    })
}

/// Runs Figure 11.
pub(super) fn fig11(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let names = CLOCKS_MHZ.map(|mhz| format!("{mhz} MHz"));
    let mut both = Both::new(names.len());
    for at in 0..titles.len() {
        let caftl = CLOCKS_MHZ
            .map(|mhz| DriveCase { hz: mhz * 1_000_000, ..DriveCase::caftl(CaftlOptions::default(), 16) })
            .into_iter();
        let cases: Vec<DriveCase> = caftl.chain([DriveCase::baseline(16)]).collect();
        let outcomes = run(lab, at, &cases)?;
        let Some((baseline, caftl)) = outcomes.split_last() else { continue };
        both.push(caftl.iter().map(|caftl| (caftl, baseline)), increase);
    }
    let [mut reads, writes] = both.tables("Latency increase", "Mean latency, more (%)", &titles, &names);
    publish(&mut reads, lab, "304 MHz", &[("t2", 8.5)]);
    let comparisons = [("304 MHz", 8.5), ("934 MHz", 0.5)]
        .map(|(name, percent)| compared(&format!("{name}: reads, up to (%)"), Span::at(percent), span(&reads, name)));
    let of_all = [
        OF_DRIVES,
        "The buffer has 16 MB. The paper draws reads alone, for it found no increase of writes; the second table is of these.",
    ];
    let charts =
        vec![reads.bars("CAFTL: latency of reads, more", "Over the drive without CAFTL, 16 MB", Scale::Linear)];
    Ok(PaperReport {
        comparisons: comparisons.into(),
        words: lab.words(&of_all, &[OF_GENERATED]),
        charts,
        tables: vec![reads, writes],
    })
}
