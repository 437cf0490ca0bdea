//! LRU, ARC, D-LRU and D-ARC side by side, by cache size: Figures 3, 4, 6 and 8.
//!
//! The paper does not define a design's "reduces by". So each figure stands beside ours in points,
//! which are percent of all requests, and in percent of the other design's ratio.
//!
//! It varies the size alone.

use super::setting::{CHUNK_BYTES, SIZE_LABEL, how, percent_less};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::{
    cache::WritePolicy,
    measure::Measures,
    report::plot::Scale,
    setup::{Accounting, FlashAmount, Options, Orphans, ReplayDesign, Setup},
};

/// A design: the paper's name, ours, and the fate of its orphans.
type Named = (&'static str, &'static str, Orphans);

const OF_PAPER: [Named; 4] = [
    ("LRU", "lru", Orphans::Forget),
    ("ARC", "arc", Orphans::Forget),
    ("D-LRU", "d-lru", Orphans::Forget),
    ("D-ARC", "d-arc", Orphans::Forget),
];
/// The same, and Algorithm 1 to the letter, which has no overwrites.
const AND_KEEPING: [Named; 5] = {
    let [lru, arc, d_lru, d_arc] = OF_PAPER;
    [lru, arc, d_lru, d_arc, ("D-LRU, orphans kept", "d-lru", Orphans::Keep)]
};
/// Cache sizes in percent of the working set (§5.2).
const PERCENTS: [f64; 4] = [20.0, 40.0, 60.0, 80.0];
/// Mail's.
const MAIL_PERCENTS: [f64; 5] = [10.0, 20.0, 40.0, 60.0, 80.0];
/// The nine virtual machines' (§5.5).
const HADOOP_PERCENTS: [f64; 1] = [40.0];

/// A figure of a replay.
type DesignFigure = (&'static str, fn(&Measures) -> f64);

const READ_MISSES: DesignFigure = ("Read miss ratio (%)", |measures| 100.0 * measures.tally.read_miss_ratio());
const WRITE_MISSES: DesignFigure = ("Write miss ratio (%)", |measures| 100.0 * measures.tally.write_miss_ratio());
const MISSES: DesignFigure = ("Total miss ratio (%)", |measures| 100.0 * measures.tally.total_miss_ratio());
const WRITES: DesignFigure =
    ("Writes to flash (% of requests)", |measures| 100.0 * measures.tally.writes_to_flash_ratio(&measures.traffic));
const STALE: DesignFigure = ("Cached data that no address has (%)", |measures| 100.0 * measures.stale_ratio());

/// Replays the designs over a trace, at all sizes, into a table for each figure.
fn tables(
    lab: &mut Lab<'_>,
    at: usize,
    designs: &[Named],
    percents: &[f64],
    figures: &[DesignFigure],
) -> Result<Vec<Table>, String> {
    let mut setups = Vec::new();
    for (_, name, orphans) in designs {
        let design = ReplayDesign::named(name)?;
        let accounting = Some(Accounting::Paper);
        let asked = Options { orphans: Some(*orphans), accounting, ..Options::default() };
        for percent in percents {
            setups.push(Setup {
                design,
                chunk_bytes: CHUNK_BYTES,
                flash: FlashAmount::PercentOfWorkingSet(*percent),
                policy: WritePolicy::Back,
                options: Options::default().or_from(&asked, design),
            });
        }
    }
    let replayed = lab.replay(at, &how(), 0, &setups)?;
    let trace = lab.workload(at)?.title();
    let table = |(label, of): &DesignFigure| {
        let mut table = Table::new(trace, *label, SIZE_LABEL, percents);
        for ((name, ..), line) in designs.iter().zip(replayed.chunks(percents.len())) {
            table.push(*name, line.iter().map(|replayed| Some(of(&replayed.measures))));
        }
        table
    };
    Ok(figures.iter().map(table).collect())
}

/// Returns the sizes that the paper has for the trace.
fn percents_of(trace: &str) -> &'static [f64] {
    if trace == "Mail" { &MAIL_PERCENTS } else { &PERCENTS }
}

/// Returns the most by which `a` is lower than `b` among the sizes, in points and in percent of
/// `b`.
fn most_below(table: &Table, a: &str, b: &str) -> [Option<Span>; 2] {
    let pairs = || {
        let lines = table.ours(a).zip(table.ours(b));
        let cells = lines.into_iter().flat_map(|(a, b)| a.iter().zip(b));
        cells.filter_map(|(a, b)| (*a).zip(*b))
    };
    let most = |span: Option<Span>| span.map(|span| Span::at(span.high));
    let points = Span::over(pairs().map(|(a, b)| b - a));
    let percent = Span::over(pairs().map(|(a, b)| percent_less(a, b)));
    [most(points), most(percent)]
}

/// Compares it with the text's figure.
fn up_to(table: &Table, a: &str, b: &str, published: f64) -> [Comparison; 2] {
    let what = format!("{a} lower than {b} by up to");
    below(table, &what, a, b, published)
}

/// Compares it in other words.
fn below(table: &Table, what: &str, a: &str, b: &str, published: f64) -> [Comparison; 2] {
    let [points, percent] = most_below(table, a, b);
    [("points", points), ("%", percent)].map(|(unit, ours)| Comparison {
        what: format!("{}: {what} ({unit})", table.title()),
        published: Span::at(published),
        ours,
    })
}

/// Compares one trace by its title, if it was replayed.
fn up_to_in(tables: &[Table], trace: &str, pairs: &[(&str, &str, f64)]) -> Vec<Comparison> {
    let table = tables.iter().find(|table| table.title() == trace);
    let all = table.map(|table| pairs.iter().flat_map(|(a, b, published)| up_to(table, a, b, *published)));
    all.into_iter().flatten().collect()
}

fn line_charts<'a>(tables: impl IntoIterator<Item = &'a Table>, what: &str) -> Vec<larder_sim::report::plot::Chart> {
    let chart = |table: &Table| {
        let title = format!("{}: {what}", table.title());
        table.lines(title, "Write-back, chunks of 4 KiB, metadata on the flash", Scale::Linear, Scale::Linear)
    };
    tables.into_iter().map(chart).collect()
}

const NOT_DEFINED: &str = "The paper draws the ratios; its text prints only the differences above. It does not say \
                           if those are in points or in percent of the other design's ratio, so both are here.";
const ORPHANS_WORDS: &str = "D-LRU and D-ARC forget data with its last address, as §3.1 and §3.2 have it, which \
                             count references. Algorithm 1 to the letter keeps it until it is the least recent. It \
                             is written, and its proof made, for addresses whose content never changes. If one does, \
                             it breaks its own rule for orphans (\"at the bottom of the DataCache LRU list\"). That \
                             is the last line. AustereCache's D-LRU keeps it, and its paper speaks of the stale \
                             chunks.";

/// Makes Figure 3.
pub(super) fn fig3(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut all = Vec::new();
    let mut comparisons = Vec::new();
    for at in 0..lab.workload_count() {
        let tables = tables(lab, at, &AND_KEEPING, &PERCENTS, &[READ_MISSES, WRITE_MISSES, MISSES, STALE])?;
        if let Some(misses) = tables.get(2) {
            comparisons.extend(up_to(misses, "D-LRU", "LRU", 20.0));
            comparisons.extend(up_to(misses, "D-ARC", "LRU", 19.6));
            comparisons.push(smallest(misses));
        }
        all.extend(tables);
    }
    let labels = [READ_MISSES, WRITE_MISSES, MISSES, STALE].map(|(label, _)| label_words(label));
    let charts = all.iter().zip(labels.iter().cycle()).flat_map(|(table, what)| line_charts([table], what)).collect();
    let hits = "The paper's remembered addresses and fingerprints make 83.25% of the read hits of WebVM at 20%. The \
                hits that are theirs are not counted here.";
    let words = lab.words(&[NOT_DEFINED, hits, ORPHANS_WORDS], &[]);
    Ok(PaperReport { tables: all, comparisons, words, charts })
}

/// Compares D-ARC's lead over D-LRU in the smallest cache.
fn smallest(table: &Table) -> Comparison {
    let first = |name: &str| table.ours(name).and_then(|line| line.first().copied().flatten());
    let ours = first("D-LRU").zip(first("D-ARC")).map(|(lru, arc)| Span::at(lru - arc));
    let what = format!("{}: D-ARC lower than D-LRU at 20%, about (points)", table.title());
    Comparison { what, published: Span::at(5.0), ours }
}

/// Makes Figure 4.
pub(super) fn fig4(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let all = each(lab, &AND_KEEPING, MISSES)?;
    let homes = [("D-ARC", "LRU", 5.4), ("D-ARC", "ARC", 3.0), ("D-ARC", "D-LRU", 2.71)];
    let mail = [("D-ARC", "LRU", 2.0), ("D-ARC", "ARC", 1.0), ("D-ARC", "D-LRU", 0.94)];
    let mut comparisons = up_to_in(&all, lab.title_of("Homes"), &homes);
    comparisons.extend(up_to_in(&all, lab.title_of("Mail"), &mail));
    let charts = line_charts(&all, "total misses");
    let words = lab.words(
        &[NOT_DEFINED, ORPHANS_WORDS],
        &["Mail gains more than in the paper in places. A profile has the totals of its Table 2, by which each \
         content of Mail comes ten times, but repeats them under any address. So an address whose data is gone often \
         finds it again under another."],
    );
    Ok(PaperReport { tables: all, comparisons, words, charts })
}

/// Makes Figure 6.
pub(super) fn fig6(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let all = each(lab, &OF_PAPER, WRITES)?;
    let mut comparisons = Vec::new();
    for (trace, published) in [("WebVM", 54.0), ("Homes", 33.0), ("Mail", 89.0)] {
        let pairs = [("D-LRU", "LRU", published), ("D-ARC", "LRU", published)];
        comparisons.extend(up_to_in(&all, lab.title_of(trace), &pairs));
    }
    let charts = line_charts(&all, "writes to flash");
    let words = lab.words(
        &[
            "The text prints one greatest saving of writes, for both designs together and against \"the traditional \
           approaches\". It does not say if that is in points or in percent, so both are here, against LRU.",
            "Writes are saved if the content is in the cache. By the paper's Table 2 content comes for the first time \
           in 43% of all requests of WebVM, 66% of Homes and 10% of Mail, which none can save. So its savings, if \
           percent, take an LRU that writes at least 93, 98 and 89% of all requests. Two thirds of WebVM's reads \
           would miss, and half of those of Homes.",
        ],
        &["In the profiles more reads hit, and content comes back at any age, when its data may have gone."],
    );
    Ok(PaperReport { tables: all, comparisons, words, charts })
}

/// Makes Figure 8.
pub(super) fn fig8(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut all = Vec::new();
    let mut comparisons = Vec::new();
    for at in 0..lab.workload_count() {
        let tables = tables(lab, at, &OF_PAPER, &HADOOP_PERCENTS, &[READ_MISSES, WRITE_MISSES, MISSES, WRITES])?;
        if let [_, _, misses, writes] = tables.as_slice() {
            for (table, what, published) in [(misses, "misses", 11.0), (writes, "writes to flash", 81.0)] {
                for design in ["D-LRU", "D-ARC"] {
                    comparisons.extend(below(
                        table,
                        &format!("{what} of {design} lower than of LRU by"),
                        design,
                        "LRU",
                        published,
                    ));
                }
            }
        }
        all.extend(tables);
    }
    let subtitle = "Write-back, chunks of 4 KiB, 40% of the working set";
    let labels = [READ_MISSES, WRITE_MISSES, MISSES, WRITES].map(|(label, _)| label_words(label));
    let chart =
        |(table, what): (&Table, &String)| table.bars(format!("{}: {what}", table.title()), subtitle, Scale::Linear);
    let charts = all.iter().zip(labels.iter().cycle()).map(chart).collect();
    let words = lab.words(
        &["The paper lowers the miss ratio by 11% and writes by 81%, for D-LRU and D-ARC together; whether in points \
         or in percent it does not say. Its latency (12% less) is about devices and has no replay. Nine virtual machines in three groups were replayed at once there; \
         here each trace has a cache of its own (`cachededup-fig8-latency` has them all before one)."],
        &["The profile is of their totals (Table 2): one stream of requests whose content repeats over all \
         addresses. So content that one machine shares with another is not told from content that it shares with \
         itself."],
    );
    Ok(PaperReport { tables: all, comparisons, words, charts })
}

fn label_words(label: &str) -> String {
    label.split(" (").next().unwrap_or(label).to_lowercase()
}

/// Makes a table of one figure for each trace, at the sizes that the paper has for it.
fn each(lab: &mut Lab<'_>, designs: &[Named], figure: DesignFigure) -> Result<Vec<Table>, String> {
    let mut all = Vec::new();
    for at in 0..lab.workload_count() {
        let percents = percents_of(lab.workload(at)?.name());
        all.extend(tables(lab, at, designs, percents, &[figure])?);
    }
    Ok(all)
}
