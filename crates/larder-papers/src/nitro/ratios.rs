//! Figure 4: read hit ratios of WEUs and of extents (§6.1).
//!
//! It has two sizes: 2% of the file system, the paper's default, and 5%, which its text names.

use super::variants::{
    EXTENT, EXTENT_BYTES, EXTENT_D, OF_FILE_SYSTEM, Variant, WEU, WEU_C, WEU_D, WEU_DC, cache_extents, how, warmup,
};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::{report::plot::Scale, setup::Setup};

const VARIANTS: [&Variant; 6] = [&EXTENT, &EXTENT_D, &WEU, &WEU_C, &WEU_D, &WEU_DC];
/// Cache sizes, in percent of the file system.
const PERCENTS: [f64; 2] = [2.0, 5.0];
const READ_HITS: &str = "Read hit ratio (%)";

/// Runs Figure 4.
pub(super) fn fig4(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let names: Vec<String> =
        (0..lab.workload_count()).map(|at| Ok(lab.workload(at)?.title().to_owned())).collect::<Result<_, String>>()?;
    let mut tables: Vec<Table> = PERCENTS
        .iter()
        .map(|percent| Table::new(format!("Cache of {percent}% of the file system"), READ_HITS, "Trace", &names))
        .collect();
    let traces: Vec<Vec<f64>> = (0..names.len()).map(|at| read_hits(lab, at)).collect::<Result<_, _>>()?;
    for (size, table) in tables.iter_mut().enumerate() {
        for (line, variant) in VARIANTS.iter().enumerate() {
            let place = size * VARIANTS.len() + line;
            table.push(variant.name, traces.iter().map(|ratios| ratios.get(place).copied()));
        }
    }
    let comparisons = tables.first().map_or(Vec::new(), |table| comparisons(lab, table, &names));
    let charts = PERCENTS
        .iter()
        .zip(&tables)
        .map(|(percent, table)| {
            table.bars("Nitro: read hit ratio", format!("Cache of {percent}% of the file system"), Scale::Linear)
        })
        .collect();
    let words = words(lab);
    Ok(PaperReport { tables, comparisons, words, charts })
}

/// Returns the ratios of all variants at the first size, then at the next.
fn read_hits(lab: &mut Lab<'_>, at: usize) -> Result<Vec<f64>, String> {
    let survey = lab.survey(at, &how(EXTENT_BYTES))?;
    let mut setups: Vec<Setup> = Vec::new();
    for percent in PERCENTS {
        let extents = cache_extents(lab, at, percent)?;
        for variant in VARIANTS {
            setups.push(variant.setup(extents, survey.working_set_chunks)?);
        }
    }
    let replayed = lab.replay(at, &how(EXTENT_BYTES), warmup(survey.requests), &setups)?;
    Ok(replayed.iter().map(|replayed| 100.0 * replayed.measures.tally.read_hit_ratio()).collect())
}

/// Compares §6.1's claims on Figure 4. It does not say if they are points or percent.
fn comparisons(lab: &Lab<'_>, table: &Table, traces: &[String]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (trace, published) in [("WebVM", 25.0), ("Homes", 14.0), ("Mail", 20.0)] {
        let trace = lab.title_of(trace);
        let Some(at) = traces.iter().position(|title| title == trace) else { continue };
        let what = format!("{trace}: WEU (D, C) over WEU (ND, NC)");
        comparisons.extend(both(table, &what, &WEU_DC, &WEU, Some(at), Span::at(published)));
    }
    let rest = [
        ("compression, WEUs: (ND, C) over (ND, NC)", &WEU_C, &WEU, Span::of(5.0, 9.0)),
        ("deduplication, WEUs: (D, NC) over (ND, NC)", &WEU_D, &WEU, Span::of(8.0, 19.0)),
        ("deduplication, extents: (D, NC) over (ND, NC)", &EXTENT_D, &EXTENT, Span::of(6.0, 17.0)),
        ("extents over WEUs, both (D, NC)", &EXTENT_D, &WEU_D, Span::of(1.0, 4.0)),
    ];
    comparisons.extend(rest.into_iter().flat_map(|(what, a, b, published)| both(table, what, a, b, None, published)));
    comparisons
}

/// Compares `a` with `b`, over all traces or for one: in points, and in percent of `b`.
fn both(table: &Table, what: &str, a: &Variant, b: &Variant, at: Option<usize>, published: Span) -> [Comparison; 2] {
    let pairs = || {
        let lines = table.ours(a.name).zip(table.ours(b.name));
        let cells = lines.into_iter().flat_map(|(a, b)| a.iter().zip(b)).enumerate();
        let cells = cells.filter(move |(place, _)| at.is_none_or(|at| at == *place));
        cells.filter_map(|(_, (a, b))| (*a).zip(*b))
    };
    let points = Span::over(pairs().map(|(a, b)| a - b));
    let percent = Span::over(pairs().filter(|(_, b)| *b > 0.0).map(|(a, b)| 100.0 * (a - b) / b));
    [("points", points), ("%", percent)].map(|(unit, ours)| Comparison {
        what: format!("{what} ({unit})"),
        published,
        ours,
    })
}

fn words(lab: &Lab<'_>) -> Vec<String> {
    let of_all = [
        OF_FILE_SYSTEM,
        "The paper draws the ratios and prints none. It prints gains, and does not say if they are points or \
         percent, so both are here. Nor does it say in which order the three of (D, C) come: that of the figure is \
         assumed.",
        "There is no recipe cache here, which lets the paper's cache answer reads of addresses that it does not \
         know, by their content. By §6.2 it is worth 5 to 14% of the read hits; deduplication gains that much less \
         here.",
    ];
    let of_profiles =
        ["A profile has the paper's sizes, writes for each read, and deduplication of all I/O. But it repeats \
         content from all of the past, and reads addresses without regard to the popularity of their content. If \
         content repeats sooner than that, a cache finds more duplicates, and deduplication gains more. Extents and \
         WEUs are nearer to each other here. Chunks that a profile touches first together lie together, and grow old \
         together."];
    lab.words(&of_all, &of_profiles)
}
